//! Grad mode, backward passes, and Python functions as hooks.

use crate::args::{tensors_of, At};
use crate::engine_call;
use crate::errors;
use crate::tensor::{wrap, PyTensor};
use lucid::autograd::{BackwardOptions, GraphNode, Hook, HostRef, LeafHook};
use lucid::{Error, Tensor};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyTuple, PyWeakrefMethods, PyWeakrefReference};
use std::cell::RefCell;
use std::sync::Arc;

mod forward;
mod function;
mod modes;
mod node;

pub use node::node_object;

thread_local! {
    /// The exception that a hook raised, on its way through the engine.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// The exception that a hook raised in this thread, if the last engine call ended by one.
pub fn take_raised() -> Option<PyErr> {
    RAISED.take()
}

/// Weights of results: `None`, a tensor, or a sequence of tensors and `None`, for `n` results.
pub fn grads_of(
    py: Python<'_>,
    op: &'static str,
    given: Option<&Bound<'_, PyAny>>,
    n: usize,
) -> PyResult<Vec<Option<Tensor>>> {
    let Some(given) = given else { return Ok((0..n).map(|_| None).collect()) };
    let one = |o: &Bound<'_, PyAny>| match o.cast::<PyTensor>() {
        Ok(t) => Ok(Some(t.get().share())),
        Err(_) if o.is_none() => Ok(None),
        Err(_) => {
            let got = crate::args::kind_name(o);
            Err(errors::type_error(py, format!("{op}(): gradients can be either Tensors or None, but got {got}")))
        }
    };
    if given.is_instance_of::<PyTuple>() || given.is_instance_of::<PyList>() {
        return given.try_iter()?.map(|o| one(&o?)).collect();
    }
    Ok(vec![one(given)?])
}

/// Objects that a closure on a graph holds. It has one handle and the graph another, for [`visit_host`].
struct PyRefs(Vec<Py<PyAny>>);

impl PyRefs {
    fn of(objects: Vec<Py<PyAny>>) -> Arc<PyRefs> {
        Arc::new(PyRefs(objects))
    }

    fn bind<'py>(&self, py: Python<'py>, i: usize) -> &Bound<'py, PyAny> {
        self.0[i].bind(py)
    }
}

/// Shows Python's collector the objects behind a host reference.
fn visit_host(host: &HostRef, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
    if let Some(refs) = host.downcast_ref::<PyRefs>() {
        return refs.0.iter().try_for_each(|object| visit.call(object));
    }
    match host.downcast_ref::<Py<PyDict>>() {
        Some(dict) => visit.call(dict),
        None => Ok(()),
    }
}

/// Shows Python's collector what a tensor owns through its graph.
pub fn visit_tensor(t: &Tensor, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
    let mut seen = Ok(());
    lucid::autograd::visit_tensor_hosts(t, &mut |host| {
        if seen.is_ok() {
            seen = visit_host(host, visit);
        }
    });
    seen
}

/// The same of a node.
fn visit_node(node: &GraphNode, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
    let mut seen = Ok(());
    lucid::autograd::visit_node_hosts(node, &mut |host| {
        if seen.is_ok() {
            seen = visit_host(host, visit);
        }
    });
    seen
}

/// A callable argument.
fn callable(hook: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
    if !hook.is_callable() {
        let got = crate::args::kind_name(hook);
        return Err(errors::type_error(hook.py(), format!("a hook must be callable, got {got}")));
    }
    Ok(hook.clone().unbind())
}

/// Calls Python from within the engine; an exception waits until the engine's call has ended.
pub fn call_python<T>(f: impl FnOnce(Python<'_>) -> PyResult<T>) -> lucid::Result<T> {
    Python::attach(f).map_err(|e| {
        RAISED.set(Some(e));
        Box::new(Error::Runtime { op: "hook", why: "a hook raised an exception".into() })
    })
}

/// A tensor or `None` that a hook gave.
fn maybe_tensor(out: &Bound<'_, PyAny>, what: &str) -> PyResult<Option<Tensor>> {
    match out.cast::<PyTensor>() {
        Ok(t) => Ok(Some(t.get().share())),
        Err(_) if out.is_none() => Ok(None),
        Err(_) => {
            let got = crate::args::kind_name(out);
            Err(errors::type_error(out.py(), format!("{what} must return a Tensor or None, got {got}")))
        }
    }
}

/// Gradients as a tuple of tensors and `None`.
fn grads_tuple<'py>(py: Python<'py>, grads: &[Option<Tensor>]) -> PyResult<Bound<'py, PyTuple>> {
    let list: Vec<_> = grads.iter().map(|g| g.clone().map(|g| wrap(py, g)).transpose()).collect::<PyResult<_>>()?;
    PyTuple::new(py, list)
}

/// A Python function as a hook, and what it holds. It runs with the GIL, which a backward pass has released.
pub fn hook_of(hook: &Bound<'_, PyAny>) -> PyResult<(Hook, HostRef)> {
    let refs = PyRefs::of(vec![callable(hook)?]);
    let host: HostRef = refs.clone();
    let hook =
        move |g: &Tensor| call_python(|py| maybe_tensor(&refs.bind(py, 0).call1((wrap(py, g.clone())?,))?, "a hook"));
    Ok((Arc::new(hook), host))
}

/// A Python function as a hook on a leaf whose gradient has grown. It is given the very object it was registered on.
pub fn leaf_hook_of(tensor: &Bound<'_, PyTensor>, hook: &Bound<'_, PyAny>) -> PyResult<(LeafHook, HostRef)> {
    let refs = PyRefs::of(vec![callable(hook)?]);
    let host: HostRef = refs.clone();
    let object = PyWeakrefReference::new(tensor)?.unbind();
    let hook = move |leaf: &Tensor| {
        call_python(|py| {
            let own = object.bind(py).upgrade();
            let given = own.map_or_else(|| wrap(py, leaf.clone()), Ok)?;
            let out = refs.bind(py, 0).call1((given,))?;
            maybe_tensor(&out, "a hook").map(drop)
        })
    };
    Ok((Arc::new(hook), host))
}

/// What removes a hook again.
pub fn handle<'py, T>(owner: &Bound<'py, T>, id: u64) -> PyResult<Bound<'py, PyAny>> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    CLASS.import(owner.py(), "lucid.utils.hooks", "EngineHandle")?.call1((owner.as_any(), id))
}

/// Adds gradients to leaves, as `lucid.autograd.backward` documents.
#[pyfunction]
fn _backward(
    py: Python<'_>,
    tensors: &Bound<'_, PyAny>,
    grads: Option<&Bound<'_, PyAny>>,
    retain_graph: bool,
    create_graph: bool,
    inputs: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let tensors = tensors_of(At { op: "backward", arg: "tensors" }, tensors.as_borrowed())?;
    let grads = grads_of(py, "backward", grads, tensors.len())?;
    let inputs = inputs.map(|i| tensors_of(At { op: "backward", arg: "inputs" }, i.as_borrowed())).transpose()?;
    engine_call::quick(py, || lucid::autograd::check_untransformed("backward", "backward()"))?;
    let keep = BackwardOptions { graph: retain_graph, create_graph };
    engine_call::long(py, || lucid::autograd::backward(&tensors, &grads, keep, inputs.as_deref()))
}

/// Gradients of outputs with respect to inputs, as `lucid.autograd.grad` documents; with `apart` none of these leads to another.
#[pyfunction]
#[pyo3(signature = (outputs, inputs, grads, retain_graph, create_graph, apart=false))]
fn _grad<'py>(
    py: Python<'py>,
    outputs: &Bound<'_, PyAny>,
    inputs: &Bound<'_, PyAny>,
    grads: Option<&Bound<'_, PyAny>>,
    retain_graph: bool,
    create_graph: bool,
    apart: bool,
) -> PyResult<Bound<'py, PyTuple>> {
    let outputs = tensors_of(At { op: "grad", arg: "outputs" }, outputs.as_borrowed())?;
    let inputs = tensors_of(At { op: "grad", arg: "inputs" }, inputs.as_borrowed())?;
    let grads = grads_of(py, "grad", grads, outputs.len())?;
    let keep = BackwardOptions { graph: retain_graph, create_graph };
    let made = if apart { lucid::autograd::grad_apart } else { lucid::autograd::grad };
    let found = engine_call::long(py, || made(&outputs, &inputs, &grads, keep))?;
    grads_tuple(py, &found)
}

/// The number of the backward pass that runs in this thread, 0 where none does.
#[pyfunction]
fn _current_pass() -> u64 {
    lucid::autograd::current_pass()
}

/// Does a backward pass run in this thread that is asked for chosen gradients alone?
#[pyfunction]
fn _chosen_alone() -> bool {
    lucid::autograd::chosen_alone()
}

/// Calls `callback()` when the backward pass that runs in this thread has made all its gradients.
#[pyfunction]
fn _queue_callback(py: Python<'_>, callback: &Bound<'_, PyAny>) -> PyResult<()> {
    let callback = callable(callback)?;
    engine_call::quick(py, || {
        lucid::autograd::queue_callback(Box::new(move || call_python(|py| callback.bind(py).call0().map(drop))))
    })
}

/// Adds the functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    modes::register(m)?;
    node::register(m)?;
    function::register(m)?;
    forward::register(m)?;
    m.add_function(wrap_pyfunction!(_queue_callback, m)?)?;
    m.add_function(wrap_pyfunction!(_backward, m)?)?;
    m.add_function(wrap_pyfunction!(_current_pass, m)?)?;
    m.add_function(wrap_pyfunction!(_chosen_alone, m)?)?;
    m.add_function(wrap_pyfunction!(_grad, m)?)
}
