//! Linear maps, softmax, gelu and standardisation.
//!
//! Depends on `array`, `convert` and mlx-ffi's fused operations. Invariant: 16-bit floats are summed in float32.

use super::array::GpuArray;
use super::attention::attention;
use super::contract;
use super::convert::{self, constant, int, ints, Ints};
use super::cross_entropy::LogSoftmax;
use super::element_fn;
use super::element_kernels;
use super::elementwise::cast_array;
use super::fused_linear::Chain;
use super::host_kernel;
use super::kernel_error::Made;
use super::lower::Origin;
use super::special::in_float32;
use super::value::{Ref, Value};
use super::view::physical_axis;
use super::{norm_kernels, row_kernels, softmax_kernels};
use crate::shape::numel;
use crate::{DType, Error};
use lucid_cpu::CpuBackend;
use lucid_ir::backend::Backend;
use lucid_ir::fused::ElementOp;
use lucid_ir::ops::nn::{NnOp, GELU_CUBIC, GELU_SCALE};
use lucid_ir::ops::norm::NormOp;
use lucid_ir::Meta;
use mlx_ffi::{fast, ops, Array, Dtype};
use std::f64::consts::FRAC_1_SQRT_2;

pub(super) fn nn(op: &NnOp, inputs: &[&GpuArray], out: &Meta) -> Made<GpuArray> {
    if let NnOp::Softmax { axis } | NnOp::LogSoftmax { axis } | NnOp::SoftmaxGradient { axis, .. } = op
        && host_kernel::takes_sum(out.shape[*axis], out.dtype)
        && out.dtype.is_float()
    {
        let op = op.clone();
        return host_kernel::run(c"LucidSoftmax", inputs, out, move |x, out| CpuBackend::nn(&op, x, out));
    }
    if let NnOp::Elementwise { .. } | NnOp::ElementwiseGradient { .. } = op
        && host_kernel::takes(out.dtype)
    {
        let op = op.clone();
        return host_kernel::run(c"LucidPointwise", inputs, out, move |x, out| CpuBackend::nn(&op, x, out));
    }
    if let (NnOp::EmbeddingSum { .. }, [table, at, ..]) = (op, inputs)
        && host_kernel::takes(out.dtype)
    {
        super::bounds::check(op.name(), at, table.shape()[0], 0, false)?;
        let op = op.clone();
        return host_kernel::run(c"LucidEmbeddingSum", inputs, out, move |x, out| CpuBackend::nn(&op, x, out));
    }
    let value = match (op, inputs) {
        (NnOp::Linear, [x, w, rest @ ..]) => linear_value(x, w, rest.first().copied(), out)?,
        (NnOp::Embedding { .. }, [x, at]) => super::index::rows(x, at, out)?,
        (NnOp::EmbeddingSum { scale, .. }, [table, at, factors @ ..]) => {
            embedding_sum(table, at, factors.first().copied(), *scale, out)?
        }
        (NnOp::Softmax { axis }, [x, ..]) => along(x, *axis, |x, axis| {
            let half = out.dtype.is_half();
            Ok(ops::softmax_axis(x, axis, half)?)
        })?,
        (NnOp::LogSoftmax { axis }, [x, ..]) => {
            if let Some(value) = log_softmax_later(x, *axis)? {
                return GpuArray::new(value, &out.shape, out.dtype);
            }
            along(x, *axis, |x, axis| {
                if let Some(made) = row_kernels::log_softmax(x, axis)? {
                    return Ok(made);
                }
                // Rounded once, and the largest is subtracted first: the logarithm of the sum then is small. An infinity makes
                // the whole row NaN, as in PyTorch.
                in_float32(x, out.dtype, |x| {
                    let below = ops::subtract(x, &ops::max_axis(x, axis, true)?)?;
                    Ok(ops::subtract(&below, &ops::logsumexp_axis(&below, axis, true)?)?)
                })
            })?
        }
        (NnOp::SoftmaxGradient { axis, log }, [g, y]) => {
            let (g, y) = (g.value()?, y.value()?);
            if let (true, Some(Origin::OneClass(g)), Some(Origin::LogSoftmax(y))) = (*log, g.origin(), y.origin())
                && let Some(made) = y.back(g)?
            {
                return GpuArray::new(Value::plain(made), &out.shape, out.dtype);
            }
            let (g, y) = (g.logical()?, y.logical()?);
            Value::plain(softmax_gradient(&g, &y, *axis, *log, out)?)
        }
        (NnOp::Elementwise { f, numbers }, [x, ..]) => {
            let v = x.value()?;
            if let Some(made) = element_kernels::run(&ElementOp::Curve(*f, *numbers), &[v.array()?])? {
                return GpuArray::new(Value::new(made, v.perm.clone()), &out.shape, out.dtype);
            }
            Value::new(in_float32(v.array()?, out.dtype, |x| element_fn::value(*f, *numbers, x))?, v.perm.clone())
        }
        (NnOp::ElementwiseGradient { f, numbers }, [g, x]) => {
            let (g, x) = (g.value()?, x.value()?);
            let g = g.ordered(x.perm.as_ref())?;
            if let Some(made) = element_kernels::run(&ElementOp::CurveGradient(*f, *numbers), &[&*g, x.array()?])? {
                return GpuArray::new(Value::new(made, x.perm.clone()), &out.shape, out.dtype);
            }
            let g = cast_array(&g, out.dtype, DType::F32)?;
            Value::new(in_float32(x.array()?, out.dtype, |x| element_fn::back(*f, *numbers, &g, x))?, x.perm.clone())
        }
        (NnOp::Gelu { tanh }, [x, ..]) => {
            let v = x.value()?;
            let made = match element_kernels::run(&ElementOp::Gelu { tanh: *tanh }, &[v.array()?])? {
                Some(made) => made,
                None => gelu(v.array()?, *tanh, out.dtype)?,
            };
            Value::new(made, v.perm.clone())
        }
        (NnOp::GeluGradient { tanh }, [g, x]) => {
            let (g, x) = (g.value()?, x.value()?);
            // Both in the input's order.
            let g = g.ordered(x.perm.as_ref())?;
            let made = match element_kernels::run(&ElementOp::GeluGradient { tanh: *tanh }, &[&*g, x.array()?])? {
                Some(made) => made,
                None => ops::multiply(&g, &gelu_slope(x.array()?, *tanh, out.dtype)?)?,
            };
            Value::new(made, x.perm.clone())
        }
        (NnOp::Attention { causal, scale }, [q, k, v, rest @ ..]) => {
            Value::plain(attention([q, k, v], rest.first().copied(), *causal, *scale, out)?)
        }
        (
            NnOp::Linear
            | NnOp::Embedding { .. }
            | NnOp::EmbeddingSum { .. }
            | NnOp::Softmax { .. }
            | NnOp::LogSoftmax { .. }
            | NnOp::SoftmaxGradient { .. }
            | NnOp::Elementwise { .. }
            | NnOp::ElementwiseGradient { .. }
            | NnOp::Gelu { .. }
            | NnOp::GeluGradient { .. }
            | NnOp::Attention { .. },
            _,
        ) => {
            return Err(Error::runtime(op.name(), format!("does not take {} arrays", inputs.len())).into());
        }
    };
    GpuArray::new(value, &out.shape, out.dtype)
}

/// Rows that are looked up and added up, in float32.
fn embedding_sum(table: &GpuArray, at: &GpuArray, factors: Option<&GpuArray>, scale: f64, out: &Meta) -> Made<Value> {
    let mut shape = crate::shape::Shape::from_slice(at.shape());
    shape.extend(out.shape.last().copied());
    let rows = super::index::rows(table, at, &Meta { shape, dtype: out.dtype })?;
    let mut rows = cast_array(&*rows.logical()?, out.dtype, DType::F32)?;
    if let Some(f) = factors {
        let f = cast_array(&*f.value()?.logical()?, out.dtype, DType::F32)?;
        rows = ops::multiply(&rows, &ops::expand_dims(&f, -1)?)?;
    }
    let sum = ops::sum_axes(&rows, &[rows.ndim() as i32 - 2], false)?;
    let sum = ops::multiply(&sum, &constant(scale, DType::F32)?)?;
    Ok(Value::plain(cast_array(&sum, DType::F32, out.dtype)?))
}

/// The logarithm of softmax over long rows, which what reads it may do without.
fn log_softmax_later(x: &GpuArray, axis: usize) -> Made<Option<Value>> {
    let v = x.value()?;
    if v.perm.is_some() || axis + 1 != x.ndim() {
        return Ok(None);
    }
    LogSoftmax::of(v.array()?)?.map(LogSoftmax::value).transpose()
}

fn softmax_gradient(g: &Array, y: &Array, axis: usize, log: bool, out: &Meta) -> Made<Array> {
    if numel(&out.shape) == 0 {
        return Ok(g.clone());
    }
    if let Some(made) = row_kernels::softmax_back(g, y, int(axis)?, log)? {
        return Ok(made);
    }
    if axis + 1 == y.ndim()
        && let Some(made) = softmax_kernels::back(g, y, log, 1.0)?
    {
        return Ok(made);
    }
    let axis = [int(axis)?];
    let half = out.dtype.is_half();
    let wide = |x: &Array| -> Made<Array> { Ok(if half { ops::astype(x, Dtype::Float32)? } else { x.clone() }) };
    let (g, y) = (wide(g)?, wide(y)?);
    let made = if log {
        ops::subtract(&g, &ops::multiply(&ops::exp(&y)?, &ops::sum_axes(&g, &axis, true)?)?)?
    } else {
        let weighted = ops::multiply(&g, &y)?;
        ops::subtract(&weighted, &ops::multiply(&y, &ops::sum_axes(&weighted, &axis, true)?)?)?
    };
    Ok(if half { ops::astype(&made, convert::dtype(out.dtype)?)? } else { made })
}

/// Runs something along a physical axis; nothing on no elements.
fn along(x: &GpuArray, axis: usize, f: impl FnOnce(&Array, i32) -> Made<Array>) -> Made<Value> {
    let v = x.value()?;
    let array = match x.numel() {
        0 => v.array()?.clone(),
        _ => f(v.array()?, int(physical_axis(v.perm.as_ref(), axis))?)?,
    };
    Ok(Value::new(array, v.perm.clone()))
}

fn linear_value(x: &GpuArray, w: &GpuArray, bias: Option<&GpuArray>, out: &Meta) -> Made<Value> {
    match Chain::of(x, w, bias, out)? {
        Some(chain) => Value::later(Origin::Linear(chain), None),
        None => Ok(Value::plain(linear(x, w, bias, out)?)),
    }
}

fn linear(x: &GpuArray, w: &GpuArray, bias: Option<&GpuArray>, out: &Meta) -> Made<Array> {
    let rows = || ints(&out.shape);
    if numel(&out.shape) == 0 {
        return Ok(ops::zeros(&rows()?, convert::dtype(out.dtype)?)?);
    }
    if x.numel() == 0 {
        // Sums of nothing: the bias alone.
        return match bias {
            Some(b) => Ok(ops::broadcast_to(&*b.value()?.logical()?, &rows()?)?),
            None => Ok(ops::zeros(&rows()?, convert::dtype(out.dtype)?)?),
        };
    }
    let (x, w) = (x.value()?, w.value()?);
    let x = x.logical()?;
    match bias {
        Some(b) => product(&x, &*transposed(&w)?, Some(&*b.value()?.broadcast(&rows()?)?)),
        None => product(&x, &*transposed(&w)?, None),
    }
}

/// A weight's logical order, read as its transpose.
pub(super) fn transposed(w: &Value) -> Made<Ref<'_>> {
    match &w.perm {
        None => w.ordered(Some(&[1, 0].into_iter().collect())),
        Some(_) => Ok(Ref::Held(w.array()?)),
    }
}

/// A product, and what is added to it.
pub(super) fn product(x: &Array, wt: &Array, bias: Option<&Array>) -> Made<Array> {
    match bias {
        Some(bias) => Ok(ops::addmm(bias, x, wt)?),
        None => contract::product(x, wt),
    }
}

fn gelu(x: &Array, tanh: bool, dtype: DType) -> Made<Array> {
    let number = |n: f64| constant(n, dtype);
    let slope = if tanh {
        let cubic = ops::add(&ops::multiply(&ops::square(x)?, &number(GELU_CUBIC)?)?, &number(1.0)?)?;
        ops::tanh(&ops::multiply(&ops::multiply(x, &cubic)?, &number(GELU_SCALE)?)?)?
    } else {
        ops::erf(&ops::multiply(x, &number(FRAC_1_SQRT_2)?)?)?
    };
    Ok(ops::multiply(&ops::multiply(x, &number(0.5)?)?, &ops::add(&slope, &number(1.0)?)?)?)
}

/// `Φ(x) + x φ(x)`, or the slope of the tanh form.
fn gelu_slope(x: &Array, tanh: bool, dtype: DType) -> Made<Array> {
    let number = |n: f64| constant(n, dtype);
    let square = ops::square(x)?;
    if tanh {
        let line = |by: f64| -> Made<Array> { Ok(ops::add(&ops::multiply(&square, &number(by)?)?, &number(1.0)?)?) };
        let t = ops::tanh(&ops::multiply(&ops::multiply(x, &line(GELU_CUBIC)?)?, &number(GELU_SCALE)?)?)?;
        let inner = ops::multiply(&line(3.0 * GELU_CUBIC)?, &number(GELU_SCALE)?)?;
        let steep = ops::multiply(&ops::multiply(x, &ops::subtract(&number(1.0)?, &ops::square(&t)?)?)?, &inner)?;
        return Ok(ops::multiply(&ops::add(&ops::add(&t, &number(1.0)?)?, &steep)?, &number(0.5)?)?);
    }
    let cdf = ops::add(&ops::erf(&ops::multiply(x, &number(FRAC_1_SQRT_2)?)?)?, &number(1.0)?)?;
    let cdf = ops::multiply(&cdf, &number(0.5)?)?;
    let density = ops::exp(&ops::multiply(&square, &number(-0.5)?)?)?;
    let density = ops::multiply(&density, &number(GELU_SCALE * 0.5)?)?;
    Ok(ops::add(&cdf, &ops::multiply(x, &density)?)?)
}

/// How many elements each mean of a norm is of.
fn terms(op: &NormOp, shape: &[usize]) -> usize {
    let (NormOp::Standardize { dims, .. } | NormOp::StandardizeGradient { dims, .. } | NormOp::Affine { dims, .. }) =
        *op;
    numel(&shape[shape.len() - dims..])
}

pub(super) fn norm(op: &NormOp, inputs: &[&GpuArray], out: &Meta) -> Made<GpuArray> {
    if host_kernel::takes_sum(terms(op, &out.shape), out.dtype) && numel(&out.shape) > 0 && out.dtype.is_float() {
        let op = op.clone();
        return host_kernel::run(c"LucidNorm", inputs, out, move |x, out| CpuBackend::norm(&op, x, out));
    }
    let (x, dims, eps) = match (op, inputs) {
        (NormOp::Standardize { dims, eps }, [x]) => (x, *dims, *eps),
        (NormOp::StandardizeGradient { dims, eps }, [g, x]) => {
            let n = numel(&x.shape()[x.ndim() - dims..]);
            let (g, x) = (g.value()?, x.value()?);
            if let Some(made) = norm_kernels::standardize_back(&*g.logical()?, &*x.logical()?, n, *eps)? {
                return GpuArray::new(Value::plain(made), &out.shape, out.dtype);
            }
            let array = standardize_gradient(&*g.logical()?, &*x.logical()?, *dims, *eps, out)?;
            return GpuArray::new(Value::plain(array), &out.shape, out.dtype);
        }
        (NormOp::Affine { dims, eps }, [x, w, b]) => {
            let (w, b) = (w.value()?, b.value()?);
            let x = x.value()?;
            let array = affine(&*x.logical()?, [&*w.logical()?, &*b.logical()?], *dims, *eps, out)?;
            return GpuArray::new(Value::plain(array), &out.shape, out.dtype);
        }
        (NormOp::Standardize { .. } | NormOp::StandardizeGradient { .. } | NormOp::Affine { .. }, _) => {
            return Err(Error::runtime(op.name(), format!("does not take {} arrays", inputs.len())).into());
        }
    };
    let v = x.value()?;
    let logical = v.logical()?;
    let array = if x.numel() == 0 {
        logical.into_owned()
    } else if dims == 1 {
        fast::layer_norm(&logical, None, None, eps as f32)?
    } else {
        let (keep, over) = x.shape().split_at(x.ndim() - dims);
        let mut flat: Ints = ints(keep)?;
        flat.push(int(numel(over))?);
        let y = fast::layer_norm(&ops::reshape(&logical, &flat)?, None, None, eps as f32)?;
        ops::reshape(&y, &ints(x.shape())?)?
    };
    drop(v);
    GpuArray::new(Value::plain(array), &out.shape, out.dtype)
}

/// Standardised over the last dimensions; scaled and shifted.
fn affine(x: &Array, [w, b]: [&Array; 2], dims: usize, eps: f64, out: &Meta) -> Made<Array> {
    if numel(&out.shape) == 0 {
        return Ok(x.clone());
    }
    let (mut flat, over) = (ints(&out.shape[..out.shape.len() - dims])?, [int(w.size())?]);
    flat.push(over[0]);
    let (w, b) = (ops::reshape(w, &over)?, ops::reshape(b, &over)?);
    let y = fast::layer_norm(&ops::reshape(x, &flat)?, Some(&w), Some(&b), eps as f32)?;
    Ok(ops::reshape(&y, &ints(&out.shape)?)?)
}

/// `(g - mean(g) - y mean(g y)) / σ`, with `y` and σ found again from the input.
fn standardize_gradient(g: &Array, x: &Array, dims: usize, eps: f64, out: &Meta) -> Made<Array> {
    if numel(&out.shape) == 0 {
        return Ok(g.clone());
    }
    let over = (1..=dims).map(|d| Ok(-int(d)?)).collect::<Made<Ints>>()?;
    let half = out.dtype.is_half();
    let wide = |x: &Array| -> Made<Array> { Ok(if half { ops::astype(x, Dtype::Float32)? } else { x.clone() }) };
    let (g, x) = (wide(g)?, wide(x)?);
    let mean = |x: &Array| ops::mean_axes(x, &over, true);
    let centred = ops::subtract(&x, &mean(&x)?)?;
    let eps = constant(eps, if half { DType::F32 } else { out.dtype })?;
    let scale = ops::rsqrt(&ops::add(&mean(&ops::square(&centred)?)?, &eps)?)?;
    let y = ops::multiply(&centred, &scale)?;
    let met = ops::multiply(&y, &mean(&ops::multiply(&g, &y)?)?)?;
    let inner = ops::subtract(&ops::subtract(&g, &mean(&g)?)?, &met)?;
    let all = ops::multiply(&inner, &scale)?;
    Ok(if half { ops::astype(&all, convert::dtype(out.dtype)?)? } else { all })
}
