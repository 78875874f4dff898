//! What `lucid.autograd.Function` needs of the engine: one node whose gradient is a Python method.

use super::{call_python, grads_of, grads_tuple, PyRefs};
use crate::args::{tensors_of, At};
use crate::engine_call;
use crate::tensor::{wrap, PyTensor};
use lucid::autograd::{custom, custom_view, rewritten, CustomNode, HostRef, Record, WeakNode};
use lucid::Tensor;
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyWeakrefMethods, PyWeakrefReference};
use std::sync::Arc;

/// The saved tensors of a custom function's node, which this does not keep alive.
#[pyclass(name = "_SavedTensors", module = "lucid", frozen)]
struct PySaved {
    node: WeakNode,
    /// The objects that were given to be saved, as long as anybody has them.
    given: Vec<Option<Py<PyWeakrefReference>>>,
}

#[pymethods]
impl PySaved {
    /// The tensors, as they were saved: the same objects where these still show them.
    fn get<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let Some(node) = self.node.upgrade() else { return Ok(PyTuple::empty(py)) };
        let saved = engine_call::quick(py, || node.saved())?;
        let object = |(i, t): (usize, Option<Tensor>)| {
            let Some(t) = t else { return Ok(None) };
            let given = self.given.get(i).and_then(Option::as_ref).and_then(|weak| weak.bind(py).upgrade());
            match given.filter(|object| object.cast::<PyTensor>().is_ok_and(|o| o.get().read().is_same(&t))) {
                Some(object) => Ok(Some(object)),
                None => wrap(py, t).map(Some),
            }
        };
        PyTuple::new(py, saved.into_iter().enumerate().map(object).collect::<PyResult<Vec<_>>>()?)
    }

    /// Where the node is in memory; 0 where it is gone.
    fn address(&self) -> usize {
        self.node.upgrade().map_or(0, |node| node.address())
    }
}

/// What a function is to read of a tensor that it writes over: see `rewritten`.
#[pyfunction]
fn _rewritten<'py>(t: &Bound<'py, PyTensor>) -> PyResult<Bound<'py, PyAny>> {
    let py = t.py();
    match rewritten(&t.get().share()) {
        Some(read) => wrap(py, read),
        None => Ok(t.clone().into_any()),
    }
}

/// Writes what a function made of a tensor over it, and gives the tensor.
#[pyfunction]
fn _overwrite<'py>(t: &Bound<'py, PyTensor>, value: &Bound<'py, PyTensor>) -> PyResult<Bound<'py, PyTensor>> {
    let (own, value) = (t.get().share(), value.get().share());
    engine_call::quick(t.py(), || own.refuse_captured("overwrite_").and_then(|()| own.overwrite_(value)))?;
    Ok(t.clone())
}

/// A result that is an input or a view, as a tensor of its own that nobody may write to: see `custom_view`.
#[pyfunction]
fn _custom_view<'py>(
    py: Python<'py>,
    out: &Bound<'py, PyTensor>,
    is_input: bool,
    several: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let out = out.get().share();
    wrap(py, engine_call::quick(py, || custom_view(&out, is_input, several))?)
}

/// Puts `outputs` on the tape as results of a function whose gradient is `backward(*grads)`. Gives access to `saved`, or
/// `None` where nothing is recorded. `grad_dtypes` are those of the gradients, `None` for any, where they are declared.
#[pyfunction]
#[pyo3(signature = (name, inputs, outputs, non_differentiable, saved, materialize, backward, grad_dtypes=None))]
#[allow(clippy::too_many_arguments)]
fn _record_function(
    py: Python<'_>,
    name: &str,
    inputs: &Bound<'_, PyAny>,
    outputs: &Bound<'_, PyAny>,
    non_differentiable: Vec<bool>,
    saved: &Bound<'_, PyAny>,
    materialize: bool,
    backward: Py<PyAny>,
    grad_dtypes: Option<Vec<Option<Bound<'_, PyAny>>>>,
) -> PyResult<Option<PySaved>> {
    let inputs = tensors_of(At { op: "Function", arg: "inputs" }, inputs.as_borrowed())?;
    let outputs = tensors_of(At { op: "Function", arg: "outputs" }, outputs.as_borrowed())?;
    let objects = saved;
    let saved = grads_of(py, "save_for_backward", Some(saved), 0)?;
    let refs = PyRefs::of(vec![backward]);
    let host: HostRef = refs.clone();
    let run = move |_: &CustomNode, grads: &[Option<Tensor>]| {
        call_python(|py| {
            let out = refs.bind(py, 0).call1(grads_tuple(py, grads)?)?;
            Ok(grads_of(py, "backward", Some(&out), 0)?.into_iter().collect())
        })
    };
    let node = engine_call::quick(py, || {
        let record = Record {
            name,
            inputs: &inputs,
            non_differentiable: &non_differentiable,
            saved: &saved,
            materialize,
            backward: Arc::new(run),
        };
        custom(&outputs, record)
    })?;
    let Some(node) = node else { return Ok(None) };
    node.set_host(host);
    if let Some(dtypes) = grad_dtypes {
        let dtype = |given: Option<Bound<'_, PyAny>>| given.and_then(|given| crate::dtype::dtype_of(&given));
        node.declare_grad_dtypes(dtypes.into_iter().map(dtype).collect());
    }
    let weak = |object: Bound<'_, PyAny>| match object.is_none() {
        true => Ok(None),
        false => PyWeakrefReference::new(&object).map(|weak| Some(weak.unbind())),
    };
    let given = objects.try_iter()?.map(|object| weak(object?)).collect::<PyResult<_>>()?;
    Ok(Some(PySaved { node: node.downgrade(), given }))
}

/// Says that `tensor` was written in place and now is `value` on the tape.
#[pyfunction]
fn _record_dirty(py: Python<'_>, tensor: &Bound<'_, PyTensor>, value: &Bound<'_, PyTensor>) -> PyResult<()> {
    let (tensor, value) = (tensor.get().share(), value.get().share());
    engine_call::quick(py, || tensor.written_as(&value))
}

/// Adds the functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PySaved>()?;
    m.add_function(wrap_pyfunction!(_rewritten, m)?)?;
    m.add_function(wrap_pyfunction!(_overwrite, m)?)?;
    m.add_function(wrap_pyfunction!(_custom_view, m)?)?;
    m.add_function(wrap_pyfunction!(_record_function, m)?)?;
    m.add_function(wrap_pyfunction!(_record_dirty, m)?)
}
