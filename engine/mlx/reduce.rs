//! Reductions.
//!
//! They work along physical axes, so that a permuted value needs no transposition. Depends on `array`, `elementwise`, `host_kernel` and
//! mlx-ffi. Invariant: as in PyTorch NaN wins extrema, and the first of equals is found.

use super::arg_extremum;
use super::array::GpuArray;
use super::convert::{self, constant, int, ints, Ints};
use super::host_kernel;
use super::kernel_error::Made;
use super::norm_kernels;
use super::value::{reduced, Perm, Value, ValueRange};
use super::view::physical_axis;
use crate::shape::{Axes, Shape};
use crate::{DType, Error, Scalar};
use lucid_cpu::{CpuArray, CpuBackend};
use lucid_ir::backend::Backend;
use lucid_ir::ops::reduce::{ReduceOp, Reduction};
use lucid_ir::Meta;
use mlx_ffi::{ops, Array, Dtype};
use smallvec::smallvec;

pub(super) fn reduce(op: &ReduceOp, how: &Reduction, x: &GpuArray, out: &Meta) -> Made<GpuArray> {
    if x.numel() == 0 {
        return GpuArray::new(Value::plain(of_nothing(op, out)?), &out.shape, out.dtype);
    }
    let v = x.value()?;
    let mut axes = ints(&how.axes)?;
    if v.perm.is_some() {
        for axis in &mut axes {
            *axis = int(physical_axis(v.perm.as_ref(), *axis as usize))?;
        }
    }
    let array = match axes.as_slice() {
        [] if matches!(op, ReduceOp::SumOfSquares) => ops::square(v.array()?)?,
        [] => v.array()?.clone(),
        axes if hosts(op, v.array()?.shape(), axes, x.element()) => {
            by_host(op, v.array()?, axes, how.keepdim, x.element())?
        }
        axes if let Some(sum) = of_columns(op, v.array()?, axes, how.keepdim)? => sum,
        axes => match accumulates(op, x.element()) {
            true => reduce_array(op, &as_dtype(v.array()?.clone(), DType::F32)?, axes, how.keepdim, DType::F32)?,
            false => reduce_array(op, v.array()?, axes, how.keepdim, x.element())?,
        },
    };
    let array = as_dtype(array, out.dtype)?;
    let perm = if how.keepdim { v.perm.clone() } else { v.perm.as_ref().and_then(|p| without(p, &how.axes)) };
    drop(v);
    let last = how.axes.first().map_or(0, |&a| x.shape()[a] as i64 - 1);
    let known = if matches!(op, ReduceOp::ArgMax | ReduceOp::ArgMin) {
        ValueRange::Within(0, last)
    } else {
        ValueRange::Nothing
    };
    GpuArray::new(Value::new(array, perm).knowing(known), &out.shape, out.dtype)
}

/// The sum over the first axes, by a kernel of our own where there are many of them.
fn of_columns(op: &ReduceOp, x: &Array, axes: &[i32], keepdim: bool) -> Made<Option<Array>> {
    let first = (0..int(axes.len())?).all(|a| axes.contains(&a));
    if !matches!(op, ReduceOp::Sum) || !first {
        return Ok(None);
    }
    let Some(sum) = norm_kernels::column_sum(x, axes.len())? else { return Ok(None) };
    let shape: Ints = axes.iter().map(|_| 1).chain(x.shape()[axes.len()..].iter().copied()).collect();
    Ok(Some(if keepdim { ops::reshape(&sum, &shape)? } else { sum }))
}

/// Must the elements be widened first? MLX adds up 16-bit floats in their own precision, where sums of some hundred get stuck.
fn accumulates(op: &ReduceOp, dtype: DType) -> bool {
    matches!((op, dtype), (ReduceOp::Sum | ReduceOp::SumOfSquares | ReduceOp::Prod, DType::F16 | DType::BF16))
}

/// Does the CPU device's kernel add up, or multiply, along these axes?
fn hosts(op: &ReduceOp, shape: &[i32], axes: &[i32], dtype: DType) -> bool {
    let terms = axes.iter().map(|&a| shape[a as usize] as usize).product();
    matches!(op, ReduceOp::Sum | ReduceOp::SumOfSquares | ReduceOp::Prod) && host_kernel::takes_sum(terms, dtype)
}

fn by_host(op: &ReduceOp, x: &Array, axes: &[i32], keepdim: bool, dtype: DType) -> Made<Array> {
    let mut axes: Axes = axes.iter().map(|&a| a as usize).collect();
    axes.sort_unstable();
    let sizes = x.shape().iter().map(|&n| n as usize).enumerate();
    let left = |(i, n): (usize, usize)| match axes.contains(&i) {
        true => keepdim.then_some(1),
        false => Some(n),
    };
    let shape: Shape = sizes.filter_map(left).collect();
    let (meta, how, op) = (Meta::new(&shape, dtype), Reduction { axes, keepdim }, op.clone());
    let to = (&*ints(&shape)?, convert::dtype(dtype)?);
    let kernel = move |x: &[&CpuArray]| Ok(vec![CpuBackend::reduce(&op, &how, x[0], &meta)?]);
    let made = host_kernel::nodes(c"LucidReduce", &[x], smallvec![dtype], &[to], kernel)?;
    made.into_iter().next().ok_or_else(|| Error::backend("reduce", "a node without an output").into())
}

/// The sum of floats along axes, which may be counted from the last.
pub(super) fn sum(x: &Array, axes: &[i32], keepdim: bool, dtype: DType) -> Made<Array> {
    let axes: Ints = axes.iter().map(|&a| if a < 0 { a + x.ndim() as i32 } else { a }).collect();
    match hosts(&ReduceOp::Sum, x.shape(), &axes, dtype) {
        true => by_host(&ReduceOp::Sum, x, &axes, keepdim, dtype),
        false => Ok(ops::sum_axes(x, &axes, keepdim)?),
    }
}

/// MLX gives some results in a dtype of its own.
pub(super) fn as_dtype(x: Array, to: DType) -> Made<Array> {
    if x.dtype() == convert::dtype(to)? {
        Ok(x)
    } else {
        convert::astype(&x, to)
    }
}

/// An order of axes without some of the logical ones.
fn without(perm: &Perm, axes: &[usize]) -> Option<Perm> {
    let rank = |a: u16| (0..usize::from(a)).filter(|b| !axes.contains(b)).count() as u16;
    reduced(perm.iter().copied().filter(|&a| !axes.contains(&usize::from(a))).map(rank).collect())
}

/// What a reduction of no elements gives; extrema of none were refused before, unless there is no result either.
fn of_nothing(op: &ReduceOp, out: &Meta) -> Made<Array> {
    let unit = match op {
        ReduceOp::Prod => Scalar::ONE,
        ReduceOp::All => Scalar::Bool(true),
        ReduceOp::Sum
        | ReduceOp::SumOfSquares
        | ReduceOp::Max
        | ReduceOp::Min
        | ReduceOp::Any
        | ReduceOp::ArgMax
        | ReduceOp::ArgMin => Scalar::ZERO,
    };
    Ok(ops::full(&ints(&out.shape)?, &constant(unit, out.dtype)?, convert::dtype(out.dtype)?)?)
}

fn reduce_array(op: &ReduceOp, x: &Array, axes: &[i32], keep: bool, dtype: DType) -> Made<Array> {
    let logical = dtype == DType::Bool;
    Ok(match op {
        ReduceOp::Sum if logical => ops::any_axes(x, axes, keep)?,
        ReduceOp::Sum => ops::sum_axes(x, axes, keep)?,
        ReduceOp::SumOfSquares => ops::sum_axes(&ops::square(x)?, axes, keep)?,
        ReduceOp::Prod if logical => ops::all_axes(x, axes, keep)?,
        ReduceOp::Prod => ops::prod_axes(x, axes, keep)?,
        ReduceOp::Max if logical => ops::any_axes(x, axes, keep)?,
        ReduceOp::Max => ops::max_axes(x, axes, keep)?,
        ReduceOp::Min if logical => ops::all_axes(x, axes, keep)?,
        ReduceOp::Min => ops::min_axes(x, axes, keep)?,
        ReduceOp::Any => ops::any_axes(x, axes, keep)?,
        ReduceOp::All => ops::all_axes(x, axes, keep)?,
        ReduceOp::ArgMax => arg_extremum(x, axes[0], keep, dtype, true)?,
        ReduceOp::ArgMin => arg_extremum(x, axes[0], keep, dtype, false)?,
    })
}

fn arg_extremum(x: &Array, axis: i32, keep: bool, dtype: DType, largest: bool) -> Made<Array> {
    if dtype.is_integral() {
        return Ok(if largest { ops::argmax_axis(x, axis, keep)? } else { ops::argmin_axis(x, axis, keep)? });
    }
    if let Some(places) = arg_extremum::arg_extremum(x, axis, keep, largest)? {
        return Ok(places);
    }
    // MLX's own passes over NaN. The extremum is NaN where there is one, and then equal to nothing.
    let best = if largest { ops::max_axis(x, axis, true)? } else { ops::min_axis(x, axis, true)? };
    let hit = ops::logical_or(&ops::equal(x, &best)?, &ops::isnan(x)?)?;
    Ok(ops::argmax_axis(&ops::astype(&hit, Dtype::Uint8)?, axis, keep)?)
}
