//! Order statistics: the indices of what is chosen along a dimension, and the elements there.
//!
//! Depends on `sort`, `reduce` and `scan`, which find most indices, on `index`, which reads the elements, and mlx-ffi.

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
            ranked(false, (n - 1) / 2..n.div_ceil(2))?
        }
        OrderOp::Median { .. } => known(sort::middle(x, &sorted(false)?, axis, false)?)?,
        OrderOp::NanMedian { .. } => known(sort::middle(x, &sorted(false)?, axis, true)?)?,
        OrderOp::Mode { .. } => known(sort::mode(x, &sorted(false)?, axis)?)?,
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
