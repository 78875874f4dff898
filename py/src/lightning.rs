//! Small ops of `lucid.lightning` on NumPy's arrays, each in one crossing: what is between Python and the engine costs more than
//! they do. Each says where it does not take what it got; the caller then goes the long way.

use crate::dlpack::{show_float32, show_sized, Sizes};
use crate::engine_call;
use crate::tensor::PyTensor;
use lucid::ops::conv::conv2d;
use lucid::ops::nn::scaled_dot_product_attention;
use lucid::{BinaryOp, Tensor};
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};
use smallvec::SmallVec;

/// Writes `a + b`, `a - b` or `a / b` over the elements of `out` in one pass; false, and nothing written, where that is not
/// possible (see [`Tensor::arithmetic_into`]).
#[pyfunction]
fn _arithmetic_into(
    name: &str,
    a: &Bound<'_, PyTensor>,
    b: &Bound<'_, PyTensor>,
    out: &Bound<'_, PyTensor>,
) -> PyResult<bool> {
    let Some(op) = arithmetic(name) else { return Ok(false) };
    let py = out.py();
    let (a, b, out) = (a.get().share(), b.get().share(), out.get().share());
    engine_call::op(py, out.numel(), || out.arithmetic_into(&op, &a, &b))
}

fn arithmetic(name: &str) -> Option<BinaryOp> {
    match name {
        "add" => Some(BinaryOp::Add),
        "sub" => Some(BinaryOp::Sub),
        "div" => Some(BinaryOp::Div),
        _ => None,
    }
}

/// [`_arithmetic_into`] of two arrays and a third one, float32 and of one shape; false, and nothing written, where they are not, or
/// one is none of `class`, NumPy's array.
#[pyfunction]
fn _arithmetic_float32_into(class: &Bound<'_, PyType>, name: &str, arrays: [Bound<'_, PyAny>; 3]) -> PyResult<bool> {
    let Some(op) = arithmetic(name) else { return Ok(false) };
    let shown = shown(class, &arrays, None)?;
    let [(a, _), (b, _), (out, _)] = &shown[..] else { return Ok(false) };
    if a.shape() != b.shape() || a.shape() != out.shape() {
        return Ok(false);
    }
    engine_call::op(class.py(), out.numel(), || out.arithmetic_into(&op, a, b))
}

/// Those of the arrays that are of `class` and can be shown, with sizes of their own.
fn shown(
    class: &Bound<'_, PyType>,
    arrays: &[Bound<'_, PyAny>],
    shape: Option<&[usize]>,
) -> PyResult<SmallVec<[(Tensor, Sizes); 3]>> {
    let mut shown = SmallVec::new();
    for x in arrays.iter().filter(|x| x.get_type().is(class)) {
        shown.extend(show_sized(x, shape)?);
    }
    Ok(shown)
}

/// Writes the product of two matrices over the elements of `out`; false, and nothing written, where that is not possible (see
/// [`Tensor::matmul_into`]).
#[pyfunction]
fn _matmul_into(a: &Bound<'_, PyTensor>, b: &Bound<'_, PyTensor>, out: &Bound<'_, PyTensor>) -> PyResult<bool> {
    let py = out.py();
    let (a, b, out) = (a.get().share(), b.get().share(), out.get().share());
    let inner = a.shape().last().map_or(1, |&n| n.max(1));
    engine_call::op(py, out.numel().saturating_mul(inner), || out.matmul_into(&a, &b))
}

/// Attention of three matrices that are float32 arrays, as a new array. With `shape` they are of that shape, or flat and read in
/// it, all alike, and so is the result. `None`, and nothing done, where one is none of `class`, NumPy's array, or they do not
/// fit.
#[pyfunction]
fn _attention_float32<'py>(
    class: &Bound<'py, PyType>,
    float32: &Bound<'py, PyAny>,
    operands: [Bound<'py, PyAny>; 3],
    shape: Option<[usize; 2]>,
    causal: bool,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = class.py();
    let shown = shown(class, &operands, shape.as_ref().map(|s| &s[..]))?;
    let [(q, own), (k, own_k), (v, own_v)] = &shown[..] else { return Ok(None) };
    let ([m, d], [n, dk], [nv, e]) = (q.shape(), k.shape(), v.shape()) else { return Ok(None) };
    if d != dk || n != nv {
        return Ok(None);
    }
    let result = [*m, *e];
    let sizes = match shape {
        Some(shape) if own == own_k && own == own_v && (own[..] == shape || own.len() == 1) => &own[..],
        Some(_) => return Ok(None),
        None => &result,
    };
    let array = class.call1((PyTuple::new(py, sizes)?, float32))?;
    let Some(out) = show_float32(&array, Some(&result))? else { return Ok(None) };
    let work = m.saturating_mul(*n).saturating_mul(d + e);
    engine_call::op(py, work, || out.copy_(&scaled_dot_product_attention(q, k, v, None, 0.0, causal, None, false)?))?;
    Ok(Some(array))
}

/// A convolution of arrays that fit, of images, kernels and perhaps a bias, as a new array of the sizes that it has; `None`, and
/// nothing done, where one is none of `class`, NumPy's array, or cannot be shown.
#[pyfunction]
fn _conv_float32<'py>(
    class: &Bound<'py, PyType>,
    float32: &Bound<'py, PyAny>,
    operands: Vec<Bound<'py, PyAny>>,
    sizes: Vec<usize>,
    stride: [isize; 2],
    padding: [isize; 2],
    relu: bool,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = class.py();
    let shown = shown(class, &operands, None)?;
    let (x, w, bias) = match &shown[..] {
        [(x, _), (w, _)] if operands.len() == 2 => (x, w, None),
        [(x, _), (w, _), (b, _)] => (x, w, Some(b)),
        _ => return Ok(None),
    };
    let array = class.call1((PyTuple::new(py, &sizes)?, float32))?;
    let Some(out) = show_float32(&array, Some(&sizes))? else { return Ok(None) };
    let work = out.numel().saturating_mul(w.numel() / w.shape().first().map_or(1, |&n| n.max(1)));
    engine_call::op(py, work, || {
        let made = conv2d(x, w, bias, &stride, &padding, &[1], 1)?;
        out.copy_(&if relu { made.relu()? } else { made })
    })?;
    Ok(Some(array))
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(_arithmetic_into, m)?)?;
    m.add_function(wrap_pyfunction!(_arithmetic_float32_into, m)?)?;
    m.add_function(wrap_pyfunction!(_attention_float32, m)?)?;
    m.add_function(wrap_pyfunction!(_conv_float32, m)?)?;
    m.add_function(wrap_pyfunction!(_matmul_into, m)?)
}
