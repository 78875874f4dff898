//! Sorting and searching along one dimension.
//!
//! Depends on `array`, `view` and mlx-ffi. Invariant: as in PyTorch NaN is the largest number and equal elements keep their
//! order.

use super::array::{GpuArray, Known, Value};
use super::convert::{int, ints, Ints};
use super::fault::Made;
use super::view::physical_axis;
use crate::dispatch::Meta;
use crate::ops::sort::SortOp;
use crate::{DType, Error};
use mlx_ffi::{ops, Array, Dtype};

pub(super) fn sort(op: &SortOp, inputs: &[&GpuArray], out: &Meta) -> Made<GpuArray> {
    match (op, inputs) {
        (SortOp::ArgSort { axis, descending }, [x]) => argsort(x, *axis, *descending, out),
        (SortOp::Search { right }, [rows, values]) => search(rows, values, *right, out),
        (SortOp::ArgSort { .. } | SortOp::Search { .. }, _) => {
            Err(Error::runtime(op.schema().name, format!("does not take {} arrays", inputs.len())).into())
        }
    }
}

fn argsort(x: &GpuArray, axis: usize, descending: bool, out: &Meta) -> Made<GpuArray> {
    let v = x.value()?;
    let n = x.shape()[axis];
    if x.numel() == 0 {
        return GpuArray::new(Value::plain(ops::zeros(&ints(&out.shape)?, Dtype::Int64)?), &out.shape, out.dtype);
    }
    let place = int(physical_axis(v.perm.as_ref(), axis))?;
    let keys = if x.element() == DType::Bool { ops::astype(&v.array, Dtype::Uint8)? } else { v.array.clone() };
    let order = if descending {
        // Sorted from behind and read backwards, equal elements keep their order.
        let order = ops::argsort_axis(&ops::flip_axis(&keys, place)?, place)?;
        let order = ops::astype(&ops::flip_axis(&order, place)?, Dtype::Int64)?;
        ops::subtract(&Array::scalar(n as i64 - 1)?, &order)?
    } else {
        ops::astype(&ops::argsort_axis(&keys, place)?, Dtype::Int64)?
    };
    let value = Value::new(order, v.perm.clone()).knowing(Known::Within(0, n as i64 - 1));
    drop(v);
    GpuArray::new(value, &out.shape, out.dtype)
}

/// Bisection of all rows at once: as many rounds as the length of a row has bits.
fn search(rows: &GpuArray, values: &GpuArray, right: bool, out: &Meta) -> Made<GpuArray> {
    let n = rows.shape().last().copied().unwrap_or(0);
    let known = Known::Within(0, n as i64);
    if n == 0 || values.numel() == 0 {
        let zeros = ops::zeros(&ints(&out.shape)?, Dtype::Int64)?;
        return GpuArray::new(Value::plain(zeros).knowing(known), &out.shape, out.dtype);
    }
    let (row_value, value) = (rows.value()?, values.value()?);
    let flat = ops::reshape(&*row_value.logical()?, &[-1])?;
    let count = rows.numel() / n;
    let x = ops::reshape(&*value.logical()?, &[int(count)?, int(values.numel() / count)?])?;
    let wide = Dtype::Int64;
    // Where each row starts; the last element stands in for the place behind it, which is never looked at.
    let starts = ops::multiply(&ops::arange(0.0, count as f64, 1.0, wide)?, &Array::scalar(n as i64)?)?;
    let starts = ops::reshape(&starts, &Ints::from_slice(&[int(count)?, 1]))?;
    let nan = if values.element().is_float() { Some(ops::isnan(&x)?) } else { None };
    let (one, last) = (Array::scalar(1i64)?, Array::scalar(n as i64 - 1)?);
    let mut low = ops::zeros(x.shape(), wide)?;
    let mut high = ops::full(x.shape(), &Array::scalar(n as i64)?, wide)?;
    for _ in 0..usize::BITS - n.leading_zeros() {
        let middle = ops::right_shift(&ops::add(&low, &high)?, &one)?;
        let at = ops::add(&ops::minimum(&middle, &last)?, &starts)?;
        let found = ops::take(&flat, &at)?;
        let before = if right { ops::less_equal(&found, &x)? } else { ops::less(&found, &x)? };
        // NaN is larger than all.
        let before = match &nan {
            Some(nan) => ops::logical_or(&before, nan)?,
            None => before,
        };
        let open = ops::less(&low, &high)?;
        let go = ops::logical_and(&before, &open)?;
        low = ops::where_(&go, &ops::add(&middle, &one)?, &low)?;
        high = ops::where_(&ops::logical_and(&open, &ops::logical_not(&before)?)?, &middle, &high)?;
    }
    let found = ops::reshape(&low, &ints(&out.shape)?)?;
    drop((row_value, value));
    GpuArray::new(Value::plain(found).knowing(known), &out.shape, out.dtype)
}
