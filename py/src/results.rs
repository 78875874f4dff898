//! The engine's results as Python objects, one function per kind of result that the op table names.
#![allow(non_snake_case)]

use crate::cross;
use crate::tensor::{wrap, PyTensor};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyTuple};

type Object<'py> = PyResult<Bound<'py, PyAny>>;

/// One tensor.
#[inline]
pub fn Tensor<'py>(py: Python<'py>, _op: &'static str, t: lucid::Tensor) -> Object<'py> {
    wrap(py, t)
}

/// A tuple of tensors.
pub fn Tensors<'py>(py: Python<'py>, _op: &'static str, tensors: Vec<lucid::Tensor>) -> Object<'py> {
    let objects: Vec<_> = tensors.into_iter().map(|t| wrap(py, t)).collect::<PyResult<_>>()?;
    Ok(PyTuple::new(py, objects)?.into_any())
}

/// A named tuple `(values, indices)`.
pub fn ValuesIndices<'py>(py: Python<'py>, op: &'static str, pair: (lucid::Tensor, lucid::Tensor)) -> Object<'py> {
    static CLASSES: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let class = CLASSES.import(py, "lucid.return_types", "CLASSES")?.get_item(op)?;
    class.call1((wrap(py, pair.0)?, wrap(py, pair.1)?))
}

/// A pair of tensors.
#[allow(dead_code)]
pub fn Pair<'py>(py: Python<'py>, _op: &'static str, pair: (lucid::Tensor, lucid::Tensor)) -> Object<'py> {
    Ok(PyTuple::new(py, [wrap(py, pair.0)?, wrap(py, pair.1)?])?.into_any())
}

/// A Python bool.
pub fn Truth<'py>(py: Python<'py>, _op: &'static str, truth: bool) -> Object<'py> {
    Ok(PyBool::new(py, truth).to_owned().into_any())
}

/// A new tensor as a leaf.
pub fn leaf(py: Python<'_>, t: lucid::Tensor, requires_grad: bool) -> Object<'_> {
    if requires_grad {
        cross::quick(py, || t.requires_grad_(true))?;
    }
    wrap(py, t)
}

/// Is a result the very tensor that a method was called on?
pub trait Same {
    fn is(&self, input: &lucid::Tensor) -> bool;
}

impl Same for lucid::Tensor {
    #[inline]
    fn is(&self, input: &lucid::Tensor) -> bool {
        self.is_same(input)
    }
}

macro_rules! never_same {
    ($($ty:ty)*) => { $(impl Same for $ty { fn is(&self, _: &lucid::Tensor) -> bool { false } })* };
}
never_same! { Vec<lucid::Tensor> (lucid::Tensor, lucid::Tensor) bool }

/// The tensor's own object where the op gave the tensor back as it was (`x.contiguous() is x`), else a new one.
#[inline]
pub fn same_or<'py, T: Same>(
    slf: &Bound<'py, PyTensor>,
    input: &lucid::Tensor,
    made: T,
    wrap: impl FnOnce(T) -> Object<'py>,
) -> Object<'py> {
    if made.is(input) {
        Ok(slf.clone().into_any())
    } else {
        wrap(made)
    }
}
