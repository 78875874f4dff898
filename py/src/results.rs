//! The engine's results as Python objects, one function per kind of result that the op table names.
#![allow(non_snake_case)]

use crate::tensor::{wrap, PyTensor};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyDict, PyTuple};

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

/// The named tuple of an op's results, where it has one, else a plain tuple.
pub fn named<'py>(py: Python<'py>, op: &'static str, parts: Vec<Bound<'py, PyAny>>) -> Object<'py> {
    static CLASSES: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let classes = CLASSES.import(py, "lucid.return_types", "CLASSES")?;
    let parts = PyTuple::new(py, parts)?;
    match classes.cast::<PyDict>()?.get_item(op)? {
        Some(class) => class.call1(parts),
        None => Ok(parts.into_any()),
    }
}

/// A named tuple `(values, indices)`.
pub fn ValuesIndices<'py>(py: Python<'py>, op: &'static str, pair: (lucid::Tensor, lucid::Tensor)) -> Object<'py> {
    named(py, op, vec![wrap(py, pair.0)?, wrap(py, pair.1)?])
}

/// A named tuple `(min, max)`.
pub fn MinMax<'py>(py: Python<'py>, op: &'static str, pair: (lucid::Tensor, lucid::Tensor)) -> Object<'py> {
    ValuesIndices(py, op, pair)
}

/// A named tuple `(sign, logabsdet)`.
pub fn SignLogabsdet<'py>(py: Python<'py>, op: &'static str, pair: (lucid::Tensor, lucid::Tensor)) -> Object<'py> {
    ValuesIndices(py, op, pair)
}

/// A named tuple `(mantissa, exponent)`.
pub fn MantissaExponent<'py>(py: Python<'py>, op: &'static str, pair: (lucid::Tensor, lucid::Tensor)) -> Object<'py> {
    ValuesIndices(py, op, pair)
}

/// One tensor alone, several as a tuple.
pub fn Packed<'py>(py: Python<'py>, op: &'static str, mut tensors: Vec<lucid::Tensor>) -> Object<'py> {
    match tensors.len() {
        1 => wrap(py, tensors.remove(0)),
        _ => Tensors(py, op, tensors),
    }
}

/// A tensor alone, or with its indices the named tuple `(values, indices)`.
pub fn MaybeIndices<'py>(
    py: Python<'py>,
    op: &'static str,
    (values, indices): (lucid::Tensor, Option<lucid::Tensor>),
) -> Object<'py> {
    match indices {
        Some(indices) => ValuesIndices(py, op, (values, indices)),
        None => wrap(py, values),
    }
}

/// A named tuple `(hist, bin_edges)`.
pub fn HistEdges<'py>(py: Python<'py>, op: &'static str, pair: (lucid::Tensor, lucid::Tensor)) -> Object<'py> {
    ValuesIndices(py, op, pair)
}

/// A named tuple `(hist, bin_edges)` with the edges of each dimension.
pub fn HistEdgesList<'py>(py: Python<'py>, op: &'static str, pair: (lucid::Tensor, Vec<lucid::Tensor>)) -> Object<'py> {
    named(py, op, vec![wrap(py, pair.0)?, Tensors(py, op, pair.1)?])
}

/// Several tensors as the named tuple of the op.
pub fn Named<'py>(py: Python<'py>, op: &'static str, tensors: Vec<lucid::Tensor>) -> Object<'py> {
    let parts: Vec<_> = tensors.into_iter().map(|t| wrap(py, t)).collect::<PyResult<_>>()?;
    named(py, op, parts)
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

/// A tuple of tensors, one per tensor given.
#[allow(dead_code)]
pub fn Each<'py>(py: Python<'py>, op: &'static str, tensors: Vec<lucid::Tensor>) -> Object<'py> {
    Tensors(py, op, tensors)
}

/// The results of functions that take tensors one by one; `alone` says that one tensor was given by itself.
pub mod variadic {
    use super::*;

    pub fn Tensor<'py>(py: Python<'py>, op: &'static str, t: lucid::Tensor, _alone: bool) -> Object<'py> {
        super::Tensor(py, op, t)
    }

    pub fn Tensors<'py>(py: Python<'py>, op: &'static str, t: Vec<lucid::Tensor>, _alone: bool) -> Object<'py> {
        super::Tensors(py, op, t)
    }

    /// One tensor by itself gives one tensor.
    pub fn Each<'py>(py: Python<'py>, op: &'static str, mut t: Vec<lucid::Tensor>, alone: bool) -> Object<'py> {
        match t.pop() {
            Some(only) if alone && t.is_empty() => wrap(py, only),
            last => {
                t.extend(last);
                super::Tensors(py, op, t)
            }
        }
    }
}

/// A new tensor as a leaf.
pub fn leaf(py: Python<'_>, t: lucid::Tensor, requires_grad: bool) -> Object<'_> {
    let made = wrap(py, t)?;
    if requires_grad {
        crate::tensor::asks_for_grad(made.cast::<PyTensor>()?, true)?;
    }
    Ok(made)
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
    ($($ty:ty),*) => { $(impl Same for $ty { fn is(&self, _: &lucid::Tensor) -> bool { false } })* };
}
never_same! {
    bool, Vec<lucid::Tensor>, (lucid::Tensor, lucid::Tensor), (lucid::Tensor, Option<lucid::Tensor>),
    (lucid::Tensor, Vec<lucid::Tensor>)
}

/// The argument's own object where the op gave its tensor back as it was (`F.dropout(x, training=False) is x`).
#[inline]
pub fn or_argument<'py>(made: Bound<'py, PyAny>, argument: crate::args::Arg<'_, 'py>) -> Bound<'py, PyAny> {
    let given = argument.0.and_then(|given| given.cast::<PyTensor>().ok());
    let same = |own: &Bound<'py, PyTensor>| given.filter(|given| own.get().read().is_same(&given.get().read()));
    match made.cast::<PyTensor>().ok().and_then(same) {
        Some(given) => given.to_owned().into_any(),
        None => match given {
            Some(given) => made_of(&given, &given.get().read(), made),
            None => made,
        },
    }
}

/// Results that know the object that they were made of, the object of `source`, where they are views.
#[inline]
pub fn made_of<'py>(
    object: &Bound<'py, PyTensor>,
    source: &lucid::Tensor,
    made: Bound<'py, PyAny>,
) -> Bound<'py, PyAny> {
    if let Ok(one) = made.cast_exact::<PyTensor>() {
        one.get().made_of(object, source);
    } else if let Ok(several) = made.cast_exact::<PyTuple>() {
        let views = several.iter_borrowed().filter_map(|t| t.to_owned().cast_into_exact::<PyTensor>().ok());
        views.for_each(|t| t.get().made_of(object, source));
    }
    made
}

/// [`or_argument`] for each of one result or a tuple of them, and a sequence of arguments.
pub fn or_arguments<'py>(made: Bound<'py, PyAny>, arguments: &Bound<'py, PyAny>) -> Object<'py> {
    let arguments: Vec<Bound<'py, PyAny>> = arguments.try_iter()?.collect::<PyResult<_>>()?;
    let own = |made: Bound<'py, PyAny>| {
        arguments.iter().fold(made, |made, a| or_argument(made, crate::args::Arg(Some(a.as_borrowed()))))
    };
    match made.cast_exact::<PyTuple>() {
        Ok(several) => Ok(PyTuple::new(made.py(), several.iter().map(own))?.into_any()),
        Err(_) => Ok(own(made)),
    }
}

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
        wrap(made).map(|made| made_of(slf, input, made))
    }
}
