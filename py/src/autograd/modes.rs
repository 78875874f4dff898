//! Grad mode, inference mode, hooks on saved tensors, anomaly mode.

use super::{call_python, callable, maybe_tensor, PyRefs, RAISED};
use crate::tensor::{wrap, PyTensor};
use crate::{engine_call, errors};
use lucid::autograd::{self, Former, HostRef, Pack, SavedTensorHooks, Tracer, Unpack};
use lucid::Tensor;
use pyo3::prelude::*;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// Does the calling thread record ops?
#[pyfunction]
fn is_grad_enabled() -> bool {
    lucid::grad_enabled()
}

/// Says whether the calling thread records ops, and gives the former answer.
#[pyfunction]
fn _set_grad_enabled(mode: bool) -> bool {
    lucid::set_grad_enabled(mode)
}

/// Says whether the first gradients of leaves have the layout of the leaves, in the calling thread, and gives the former answer.
#[pyfunction]
fn _set_layout_enforced(on: bool) -> bool {
    autograd::set_layout_enforced(on)
}

/// Is the calling thread in inference mode?
#[pyfunction]
fn is_inference_mode_enabled() -> bool {
    autograd::inference_mode_enabled()
}

/// While it is entered, what the thread records is named after one op, whatever that is made of.
#[pyclass(name = "_Step", module = "lucid", unsendable)]
struct PyStep {
    op: &'static str,
    on: Option<autograd::OpScope>,
}

#[pymethods]
impl PyStep {
    #[new]
    fn new(op: &str) -> PyStep {
        static KNOWN: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        // Lucid's own code names few ops: what is kept for ever is bounded.
        let op = known.get(op).copied().unwrap_or_else(|| {
            let kept: &'static str = Box::leak(op.into());
            known.insert(kept);
            kept
        });
        PyStep { op, on: None }
    }

    fn __enter__(&mut self) {
        self.on = Some(autograd::named(self.op));
    }

    fn __exit__(&mut self, _kind: &Bound<'_, PyAny>, _value: &Bound<'_, PyAny>, _trace: &Bound<'_, PyAny>) {
        self.on = None;
    }
}

/// The mode that a thread was in.
#[pyclass(name = "_Mode", module = "lucid", frozen)]
struct PyMode(Former);

#[pyfunction]
fn _set_inference_mode(mode: bool) -> PyMode {
    PyMode(autograd::set_inference_mode(mode))
}

#[pyfunction]
fn _restore_mode(former: &PyMode) {
    autograd::restore_mode(former.0);
}

/// From now on tensors that the tape saves go through `pack`, and come back through `unpack`.
#[pyfunction]
fn _push_saved_tensors_hooks(py: Python<'_>, pack: &Bound<'_, PyAny>, unpack: &Bound<'_, PyAny>) -> PyResult<()> {
    let hook = pack_of(pack, unpack)?;
    engine_call::quick(py, autograd::check_hooks)?;
    if let Some(SavedTensorHooks::Refused(why)) = autograd::packing() {
        return Err(errors::runtime_error(py, why));
    }
    autograd::push_packing(SavedTensorHooks::Hook(hook));
    Ok(())
}

/// The function transform that a thread was in.
#[pyclass(name = "_Transform", module = "lucid", frozen)]
struct PyTransform(autograd::Transform);

/// Begins a call of a function transform, and gives what `_leave_transform` puts back.
#[pyfunction]
fn _enter_transform(py: Python<'_>, reverse: bool) -> PyResult<PyTransform> {
    engine_call::quick(py, || autograd::enter_transform(reverse)).map(PyTransform)
}

/// The tensor counts as made in the transform that is at work.
#[pyfunction]
fn _adopt(t: &Bound<'_, PyTensor>) {
    t.get().read().adopt();
}

/// Refuses what does not go with function transforms where one is at work.
#[pyfunction]
fn _check_untransformed(py: Python<'_>, what: &str) -> PyResult<()> {
    engine_call::quick(py, || autograd::check_untransformed("autograd", what))
}

/// Is a function transform at work, `vmap` included?
#[pyfunction]
fn _is_transformed() -> bool {
    autograd::is_transformed()
}

/// What puts the transform back that is at work.
#[pyfunction]
fn _current_transform() -> PyTransform {
    PyTransform(autograd::current_transform())
}

#[pyfunction]
fn _leave_transform(former: &PyTransform) {
    autograd::leave_transform(former.0);
}

/// Python's hooks for what the tape saves.
pub fn pack_of(pack: &Bound<'_, PyAny>, unpack: &Bound<'_, PyAny>) -> PyResult<Pack> {
    let (pack, unpack) = (callable(pack)?, callable(unpack)?);
    let hook: Pack = Arc::new(move |t: &Tensor| {
        let pack = |py: Python<'_>| Ok((pack.bind(py).call1((wrap(py, t.clone())?,))?.unbind(), unpack.clone_ref(py)));
        let (packed, unpack) = call_python(pack)?;
        let refs = PyRefs::of(vec![packed, unpack]);
        let host: HostRef = refs.clone();
        let call = move || {
            call_python(|py| {
                let out = refs.bind(py, 1).call1((refs.bind(py, 0),))?;
                match maybe_tensor(&out, "the unpack hook of saved_tensors_hooks")? {
                    Some(t) => Ok(t),
                    None => Err(errors::type_error(py, "the unpack hook must return a Tensor, got None")),
                }
            })
        };
        Ok(Unpack { call: Arc::new(call), host: Some(host) })
    });
    Ok(hook)
}

/// From now on hooks on saved tensors are refused with this message.
#[pyfunction]
fn _push_saved_tensors_refusal(message: String) {
    autograd::push_packing(SavedTensorHooks::Refused(message));
}

#[pyfunction]
fn _pop_saved_tensors_hooks() {
    autograd::pop_packing();
}

#[pyfunction]
fn _set_detect_anomaly(mode: bool, check_nan: bool) {
    autograd::set_detect_anomaly(mode, check_nan);
}

/// Is anomaly mode on, and does it look for NaN?
#[pyfunction]
fn _anomaly() -> (bool, bool) {
    autograd::anomaly()
}

/// The Python stack, as `traceback` formats it.
fn trace() -> Option<String> {
    Python::attach(|py| {
        let stack = py.import("traceback")?.call_method0("format_stack")?;
        "".into_pyobject(py)?.call_method1("join", (stack,))?.extract()
    })
    .ok()
}

fn report(name: &str, trace: Option<&str>) {
    let told = Python::attach(|py| {
        let text = match trace {
            Some(trace) => {
                format!("Error detected in {name}. Traceback of forward call that caused the error:\n{trace}")
            }
            None => format!(
                "Error detected in {name}. No forward pass information available. Enable detect anomaly during forward \
                 pass for more information."
            ),
        };
        crate::warn::user(py, &text)
    });
    // Warnings may have been made errors.
    if let Err(e) = told {
        RAISED.set(Some(e));
    }
}

/// Adds the functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    autograd::set_tracer(Tracer { trace, report });
    m.add_class::<PyMode>()?;
    m.add_class::<PyTransform>()?;
    m.add_class::<PyStep>()?;
    m.add_function(wrap_pyfunction!(_enter_transform, m)?)?;
    m.add_function(wrap_pyfunction!(_current_transform, m)?)?;
    m.add_function(wrap_pyfunction!(_leave_transform, m)?)?;
    m.add_function(wrap_pyfunction!(_adopt, m)?)?;
    m.add_function(wrap_pyfunction!(_check_untransformed, m)?)?;
    m.add_function(wrap_pyfunction!(_is_transformed, m)?)?;
    m.add_function(wrap_pyfunction!(is_grad_enabled, m)?)?;
    m.add_function(wrap_pyfunction!(_set_grad_enabled, m)?)?;
    m.add_function(wrap_pyfunction!(_set_layout_enforced, m)?)?;
    m.add_function(wrap_pyfunction!(is_inference_mode_enabled, m)?)?;
    m.add_function(wrap_pyfunction!(_set_inference_mode, m)?)?;
    m.add_function(wrap_pyfunction!(_restore_mode, m)?)?;
    m.add_function(wrap_pyfunction!(_push_saved_tensors_hooks, m)?)?;
    m.add_function(wrap_pyfunction!(_push_saved_tensors_refusal, m)?)?;
    m.add_function(wrap_pyfunction!(_pop_saved_tensors_hooks, m)?)?;
    m.add_function(wrap_pyfunction!(_set_detect_anomaly, m)?)?;
    m.add_function(wrap_pyfunction!(_anomaly, m)?)
}
