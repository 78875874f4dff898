//! Order statistics: the indices of what is chosen along a dimension, and the elements there.
//!
//! Depends on `sort`, `reduce` and `scan`, which find most indices, on `index`, which reads the elements, and mlx-ffi.
#![allow(unsafe_code)] // MLX checks no index.

use super::array::GpuArray;
use super::convert::{self, int, ints, Ints};
use super::kernel_error::Made;
use super::value::{Value, ValueRange};
use super::{elementwise, index, reduce, scan, sort};
use crate::{DType, Error};
use lucid_ir::backend::Results;
use lucid_ir::ops::index::IndexOp;
use lucid_ir::ops::order::OrderOp;
use lucid_ir::ops::reduce::{ReduceOp, Reduction};
use lucid_ir::Meta;
use mlx_ffi::{ops, Array, Dtype};
use std::ops::Range;

pub(super) fn order(op: &OrderOp, x: &GpuArray, out: &[Meta]) -> Made<Results<GpuArray>> {
    let [values, indices] = out else {
        return Err(Error::runtime(op.name(), format!("has two results, not {}", out.len())).into());
    };
    let new = |array: Array, out: &Meta| GpuArray::new(Value::plain(array), &out.shape, out.dtype);
    let zeros = |out: &Meta| new(ops::zeros(&ints(&out.shape)?, convert::dtype(out.dtype)?)?, out);
    if x.ndim() == 0 {
        let alone = x.value()?.array()?.clone();
        return Ok(Results::from_iter([new(alone, values)?, zeros(indices)?]));
    }
    if crate::shape::numel(&values.shape) == 0 {
        return Ok(Results::from_iter([zeros(values)?, zeros(indices)?]));
    }
    let fault = || Error::shape(op.name(), "takes no such shape", &[x.shape()]);
    let kept = op.kept(x.shape()).ok_or_else(fault)?;
    let (axis, n) = (op.axis(), x.shape()[op.axis()]);
    let at = Meta::new(&kept, indices.dtype);
    let sorted = |descending: bool| sort::argsort(x, axis, descending, &Meta::new(x.shape(), DType::I64));
    let known = |array: Array| {
        let value = Value::plain(array).knowing(ValueRange::Within(0, n as i64 - 1));
        GpuArray::new(value, &at.shape, at.dtype)
    };
    let ranked = |descending: bool, ranks: Range<usize>| -> Made<GpuArray> {
        let order = sorted(descending)?;
        let (mut start, mut stop) = (Ints::from_elem(0, x.ndim()), ints(x.shape())?);
        (start[axis], stop[axis]) = (int(ranks.start)?, int(ranks.end)?);
        let part = ops::slice(&*order.value()?.logical()?, &start, &stop, &Ints::from_elem(1, x.ndim()))?;
        known(part)
    };
    let numbers = match x.element() {
        DType::Bool => elementwise::cast(x, DType::U8)?,
        _ => x.clone(),
    };
    let extremum = |op: ReduceOp| {
        let how = Reduction { axes: [axis].into_iter().collect(), keepdim: true };
        reduce::reduce(&op, &how, &numbers, &at)
    };
    let running = |largest: bool| -> Made<GpuArray> {
        let found = scan::arg_scan(&*numbers.value()?.logical()?, int(axis)?, numbers.element(), largest)?;
        known(ops::astype(&found, Dtype::Int64)?)
    };
    let at = match *op {
        OrderOp::Sort { descending, .. } => sorted(descending)?,
        OrderOp::TopK { k, largest, .. } => ranked(largest, 0..k)?,
        OrderOp::KthValue { k, .. } => ranked(false, k - 1..k)?,
        OrderOp::Median { .. } | OrderOp::NanMedian { .. } if !x.element().is_float() => {
            ranked(false, (n - 1) / 2..(n + 1) / 2)?
        }
        OrderOp::Median { .. } => known(middle(x, &sorted(false)?, axis, false)?)?,
        OrderOp::NanMedian { .. } => known(middle(x, &sorted(false)?, axis, true)?)?,
        OrderOp::Mode { .. } => known(mode(x, &sorted(false)?, axis)?)?,
        OrderOp::Max { .. } => extremum(ReduceOp::ArgMax)?,
        OrderOp::Min { .. } => extremum(ReduceOp::ArgMin)?,
        OrderOp::CumMax { .. } => running(true)?,
        OrderOp::CumMin { .. } => running(false)?,
    };
    let elements = index::index(&IndexOp::Gather { axis }, &[x, &at], &Meta::new(&kept, x.element()))?;
    let shown = |made: GpuArray, out: &Meta| -> Made<GpuArray> {
        if made.shape() == &out.shape[..] {
            return Ok(made);
        }
        let v = made.value()?;
        let value = Value::plain(ops::reshape(&*v.logical()?, &ints(&out.shape)?)?).knowing(v.known);
        drop(v);
        GpuArray::new(value, &out.shape, out.dtype)
    };
    Ok(Results::from_iter([shown(elements, values)?, shown(at, indices)?]))
}

/// The indices in the middle of the sorted `order`: of the numbers, or with `skip` not the first NaN where there is one. NaN is
/// behind all others.
fn middle(x: &GpuArray, order: &GpuArray, axis: usize, skip: bool) -> Made<Array> {
    let (v, order) = (x.value()?, order.value()?);
    let (n, axis) = (x.shape()[axis] as i64, int(axis)?);
    let nans = ops::astype(&ops::isnan(&*v.logical()?)?, Dtype::Int64)?;
    let numbers = ops::subtract(&Array::scalar(n)?, &ops::sum_axes(&nans, &[axis], true)?)?;
    let last = ops::maximum(&ops::subtract(&numbers, &Array::scalar(1i64)?)?, &Array::scalar(0i64)?)?;
    let mut place = ops::right_shift(&last, &Array::scalar(1i64)?)?;
    if !skip {
        place = ops::where_(&ops::less(&numbers, &Array::scalar(n)?)?, &numbers, &place)?;
    }
    // SAFETY: less than the length of the dimension, as the numbers are where there is a NaN.
    Ok(unsafe { ops::take_along_axis(&*order.logical()?, &place, axis) }?)
}

/// The last index of the longest run of equals in the sorted `order`, of the first such run.
fn mode(x: &GpuArray, order: &GpuArray, axis: usize) -> Made<Array> {
    let (v, order) = (x.value()?, order.value()?);
    let (shape, n, axis) = (ints(x.shape())?, int(x.shape()[axis])?, int(axis)?);
    let order = order.logical()?;
    if n == 1 {
        return Ok(order.into_owned());
    }
    // SAFETY: a sort's order is a permutation.
    let sorted = unsafe { ops::take_along_axis(&*v.logical()?, &order, axis) }?;
    let mut line = Ints::from_elem(1, shape.len());
    line[axis as usize] = n;
    let place = ops::reshape(&ops::arange(0.0, f64::from(n), 1.0, Dtype::Int32)?, &line)?;
    let part = |x: &Array, from: i32, to: i32| -> Made<Array> {
        let (mut start, mut stop) = (Ints::from_elem(0, shape.len()), Ints::from_slice(x.shape()));
        (start[axis as usize], stop[axis as usize]) = (from, to);
        Ok(ops::slice(x, &start, &stop, &Ints::from_elem(1, shape.len()))?)
    };
    // Where an element differs from the one before, a run begins.
    let begins = ops::not_equal(&part(&sorted, 1, n)?, &part(&sorted, 0, n - 1)?)?;
    let later = ops::multiply(&ops::astype(&begins, Dtype::Int32)?, &part(&place, 1, n)?)?;
    let first = ops::zeros(part(&sorted, 0, 1)?.shape(), Dtype::Int32)?;
    let starts = ops::cummax_axis(&ops::concatenate_axis(&[&first, &later], axis)?, axis, false, true)?;
    let longest = ops::argmax_axis(&ops::subtract(&place, &starts)?, axis, true)?;
    // SAFETY: the place of an element.
    Ok(unsafe { ops::take_along_axis(&order, &longest, axis) }?)
}
