//! Grad mode, backward passes, and Python functions as hooks.

use crate::args::{tensors_of, At};
use crate::cross;
use crate::errors;
use crate::tensor::{wrap, PyTensor};
use lucid::autograd::{Hook, Keep};
use lucid::{Error, Tensor};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyList, PyTuple};
use std::cell::RefCell;
use std::sync::Arc;

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
    let Some(given) = given else { return Ok(vec![None; n]) };
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

/// A Python function as a hook. It runs with the GIL, which a backward pass has released.
pub fn hook_of(hook: &Bound<'_, PyAny>) -> PyResult<Hook> {
    let py = hook.py();
    if !hook.is_callable() {
        let got = crate::args::kind_name(hook);
        return Err(errors::type_error(py, format!("a hook must be callable, got {got}")));
    }
    let hook = hook.clone().unbind();
    Ok(Arc::new(move |g: &Tensor| {
        let called = Python::attach(|py| -> PyResult<Option<Tensor>> {
            let out = hook.bind(py).call1((wrap(py, g.clone())?,))?;
            match out.cast::<PyTensor>() {
                Ok(t) => Ok(Some(t.get().share())),
                Err(_) if out.is_none() => Ok(None),
                Err(_) => {
                    let got = crate::args::kind_name(&out);
                    Err(errors::type_error(py, format!("a hook must return a Tensor or None, got {got}")))
                }
            }
        });
        called.map_err(|e| {
            RAISED.set(Some(e));
            Box::new(Error::Runtime { op: "hook", why: "a hook raised an exception".into() })
        })
    }))
}

/// What removes a hook again.
pub fn handle<'py>(tensor: &Bound<'py, PyTensor>, id: u64) -> PyResult<Bound<'py, PyAny>> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    CLASS.import(tensor.py(), "lucid.autograd", "RemovableHandle")?.call1((tensor, id))
}

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
    let keep = Keep { graph: retain_graph, create_graph };
    cross::long(py, || lucid::autograd::backward(&tensors, &grads, keep, inputs.as_deref()))
}

/// Gradients of outputs with respect to inputs, as `lucid.autograd.grad` documents.
#[pyfunction]
fn _grad<'py>(
    py: Python<'py>,
    outputs: &Bound<'_, PyAny>,
    inputs: &Bound<'_, PyAny>,
    grads: Option<&Bound<'_, PyAny>>,
    retain_graph: bool,
    create_graph: bool,
) -> PyResult<Bound<'py, PyTuple>> {
    let outputs = tensors_of(At { op: "grad", arg: "outputs" }, outputs.as_borrowed())?;
    let inputs = tensors_of(At { op: "grad", arg: "inputs" }, inputs.as_borrowed())?;
    let grads = grads_of(py, "grad", grads, outputs.len())?;
    let keep = Keep { graph: retain_graph, create_graph };
    let found = cross::long(py, || lucid::autograd::grad(&outputs, &inputs, &grads, keep))?;
    let found: Vec<_> = found.into_iter().map(|g| g.map(|g| wrap(py, g)).transpose()).collect::<PyResult<_>>()?;
    PyTuple::new(py, found)
}

/// Adds the functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(is_grad_enabled, m)?)?;
    m.add_function(wrap_pyfunction!(_set_grad_enabled, m)?)?;
    m.add_function(wrap_pyfunction!(_backward, m)?)?;
    m.add_function(wrap_pyfunction!(_grad, m)?)
}
