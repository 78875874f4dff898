//! What says, for a thread, whether handlers are asked: the stack of modes, and the guards that turn handlers off.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Who is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Who {
    All,
    Modes,
    Nobody,
}

thread_local! {
    static WHO: Cell<Who> = const { Cell::new(Who::All) };
    static MODES: RefCell<Vec<Py<PyAny>>> = const { RefCell::new(Vec::new()) };
}

/// How many modes are on, on all threads: while it is 0 no thread looks at its own.
static ON: AtomicUsize = AtomicUsize::new(0);

#[inline]
pub fn none_anywhere() -> bool {
    ON.load(Ordering::Relaxed) == 0
}

/// Are classes asked on this thread?
pub fn subclasses_are_asked() -> bool {
    WHO.get() == Who::All
}

/// Is a mode on, on this thread?
pub fn is_on() -> bool {
    !none_anywhere() && WHO.get() != Who::Nobody && MODES.with_borrow(|modes| !modes.is_empty())
}

/// The innermost mode, which is off while this lives.
pub struct Suspended(Py<PyAny>);

impl Suspended {
    pub fn mode<'py>(&self, py: Python<'py>) -> &Bound<'py, PyAny> {
        self.0.bind(py)
    }
}

impl Drop for Suspended {
    fn drop(&mut self) {
        Python::attach(|py| push(self.0.clone_ref(py)));
    }
}

pub fn suspend() -> Option<Suspended> {
    if !is_on() {
        return None;
    }
    pop().map(Suspended)
}

fn push(mode: Py<PyAny>) {
    MODES.with_borrow_mut(|modes| modes.push(mode));
    ON.fetch_add(1, Ordering::Relaxed);
}

fn pop() -> Option<Py<PyAny>> {
    let mode = MODES.with_borrow_mut(Vec::pop);
    if mode.is_some() {
        ON.fetch_sub(1, Ordering::Relaxed);
    }
    mode
}

/// What was asked before, and is again once this is dropped.
pub struct Quiet(Who);

/// Classes are not asked while the result lives. Modes are.
pub fn quiet() -> Quiet {
    let before = WHO.get();
    if before == Who::All {
        WHO.set(Who::Modes);
    }
    Quiet(before)
}

impl Drop for Quiet {
    fn drop(&mut self) {
        WHO.set(self.0);
    }
}

macro_rules! guard {
    ($(#[$doc:meta])* $class:ident $name:literal |$before:ident| $during:expr) => {
        $(#[$doc])*
        #[pyclass(name = $name, module = "lucid._C", frozen)]
        struct $class {
            /// What was asked before each `with` of it, the innermost last.
            before: parking_lot::Mutex<Vec<Who>>,
        }

        #[pymethods]
        impl $class {
            #[new]
            fn new() -> $class {
                $class { before: parking_lot::Mutex::new(Vec::new()) }
            }

            fn __enter__(&self) {
                let $before = WHO.get();
                self.before.lock().push($before);
                WHO.set($during);
            }

            #[pyo3(signature = (*_exc))]
            fn __exit__(&self, _exc: &Bound<'_, PyTuple>) {
                if let Some(before) = self.before.lock().pop() {
                    WHO.set(before);
                }
            }
        }
    };
}
guard! {
    /// A context in which no class's `__torch_function__` is asked on this thread; modes are.
    Subclass "DisableTorchFunctionSubclass" |before| if before == Who::Nobody { before } else { Who::Modes }
}
guard! {
    /// A context in which neither classes nor modes are asked on this thread.
    Everything "DisableTorchFunction" |_before| Who::Nobody
}

/// Makes a mode the innermost one of this thread.
#[pyfunction]
fn _push_torch_function_mode(mode: Py<PyAny>) {
    push(mode);
}

/// Takes the innermost mode of this thread off.
#[pyfunction]
fn _pop_torch_function_mode() -> Option<Py<PyAny>> {
    pop()
}

/// The modes of this thread, the innermost last.
#[pyfunction]
fn _torch_function_modes(py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
    MODES.with_borrow(|modes| PyTuple::new(py, modes))
}

/// Are classes asked on this thread?
#[pyfunction]
fn _is_torch_function_enabled() -> bool {
    subclasses_are_asked()
}

/// Is nobody asked on this thread, neither classes nor modes?
#[pyfunction]
fn _is_torch_function_all_disabled() -> bool {
    WHO.get() == Who::Nobody
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<Subclass>()?;
    m.add_class::<Everything>()?;
    m.add_function(wrap_pyfunction!(_push_torch_function_mode, m)?)?;
    m.add_function(wrap_pyfunction!(_pop_torch_function_mode, m)?)?;
    m.add_function(wrap_pyfunction!(_torch_function_modes, m)?)?;
    m.add_function(wrap_pyfunction!(_is_torch_function_enabled, m)?)?;
    m.add_function(wrap_pyfunction!(_is_torch_function_all_disabled, m)?)?;
    Ok(())
}
