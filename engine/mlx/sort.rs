//! Sorting and searching along one dimension.
//!
//! Depends on `array`, `view` and mlx-ffi. Invariant: as in PyTorch NaN is the largest number and equal elements keep their
//! order.
#![allow(unsafe_code)] // MLX checks no index, and no kernel.

use super::array::GpuArray;
use super::convert::{int, ints, Ints};
use super::kernel_error::Made;
use super::value::{Value, ValueRange};
use super::view::physical_axis;
use crate::{DType, Error};
use lucid_ir::ops::sort::SortOp;
use lucid_ir::Meta;
use mlx_ffi::device::{self, Kind};
use mlx_ffi::{ops, Array, Dtype};

pub(super) fn sort(op: &SortOp, inputs: &[&GpuArray], out: &Meta) -> Made<GpuArray> {
    match (op, inputs) {
        (SortOp::ArgSort { axis, descending }, [x]) => argsort(x, *axis, *descending, out),
        (SortOp::ArgSortRows, [x]) => argsort_rows(x, out),
        (SortOp::Search { right }, [rows, values]) => search(rows, values, *right, out),
        (SortOp::ArgSort { .. } | SortOp::ArgSortRows | SortOp::Search { .. }, _) => {
            Err(Error::runtime(op.name(), format!("does not take {} arrays", inputs.len())).into())
        }
    }
}

pub(super) fn argsort(x: &GpuArray, axis: usize, descending: bool, out: &Meta) -> Made<GpuArray> {
    let v = x.value()?;
    let n = x.shape()[axis];
    if x.numel() == 0 {
        return GpuArray::new(Value::plain(ops::zeros(&ints(&out.shape)?, Dtype::Int64)?), &out.shape, out.dtype);
    }
    let place = int(physical_axis(v.perm.as_ref(), axis))?;
    let keys = if x.element() == DType::Bool { ops::astype(v.array()?, Dtype::Uint8)? } else { v.array()?.clone() };
    // MLX's CUDA sort reads rows of views with a stride of 0 wrongly; of contiguous arrays this copies nothing.
    let keys = if matches!(device::kind(), Ok(Kind::Cuda)) { ops::contiguous(&keys, false)? } else { keys };
    let order = if descending {
        // Sorted from behind and read backwards, equal elements keep their order.
        let order = ops::argsort_axis(&ops::flip_axis(&keys, place)?, place)?;
        let order = ops::astype(&ops::flip_axis(&order, place)?, Dtype::Int64)?;
        ops::subtract(&Array::scalar(n as i64 - 1)?, &order)?
    } else {
        ops::astype(&ops::argsort_axis(&keys, place)?, Dtype::Int64)?
    };
    let value = Value::new(order, v.perm.clone()).knowing(ValueRange::Within(0, n as i64 - 1));
    drop(v);
    GpuArray::new(value, &out.shape, out.dtype)
}

/// The indices in the middle of the sorted `order`: of the numbers, or with `skip` not the first NaN where there is one. NaN is
/// behind all others.
pub(super) fn middle(x: &GpuArray, order: &GpuArray, axis: usize, skip: bool) -> Made<Array> {
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
pub(super) fn mode(x: &GpuArray, order: &GpuArray, axis: usize) -> Made<Array> {
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

/// Sorted from the last columns on, by as many of them at a time as 64 bits hold.
fn argsort_rows(x: &GpuArray, out: &Meta) -> Made<GpuArray> {
    let rank = x.shape().len();
    let (n, m) = (x.shape()[rank - 2], x.shape()[rank - 1]);
    let known = ValueRange::Within(0, (n as i64 - 1).max(0));
    let shape = ints(&out.shape)?;
    let places = ops::arange(0.0, n as f64, 1.0, Dtype::Int64)?;
    let mut order = ops::broadcast_to(&places, &shape)?;
    if x.numel() > 0 {
        let (keys, bits) = keys(&*x.value()?.logical()?, x.element())?;
        let (axis, each) = (int(rank - 1)?, 64 / bits);
        let mut column = m;
        while column > 0 {
            let first = column.saturating_sub(each);
            let mut key: Option<Array> = None;
            for c in first..column {
                // SAFETY: the number of a column.
                let next = unsafe { ops::take_axis(&keys, &Array::scalar(int(c)?)?, axis) }?;
                key = Some(match key {
                    None => next,
                    Some(key) => {
                        let moved = ops::left_shift(&key, &Array::scalar(bits as u64)?)?;
                        ops::bitwise_or(&moved, &next)?
                    }
                });
            }
            if let Some(key) = key {
                // SAFETY: a sort's order is a permutation.
                let by = ops::argsort_axis(&unsafe { ops::take_along_axis(&key, &order, axis - 1) }?, axis - 1)?;
                // SAFETY: as above.
                order = unsafe { ops::take_along_axis(&order, &by, axis - 1) }?;
            }
            column = first;
        }
    }
    GpuArray::new(Value::plain(order).knowing(known), &out.shape, out.dtype)
}

/// Unsigned numbers in the order of the elements, and how many bits they have. NaN is the largest, -0 equals 0.
fn keys(x: &Array, dtype: DType) -> Made<(Array, usize)> {
    let shifted = |x: &Array, by: i64| -> Made<Array> {
        let wide = ops::add(&ops::astype(x, Dtype::Int64)?, &Array::scalar(by)?)?;
        Ok(ops::astype(&wide, Dtype::Uint64)?)
    };
    Ok(match dtype {
        DType::Bool => (ops::astype(x, Dtype::Uint64)?, 1),
        DType::U8 => (ops::astype(x, Dtype::Uint64)?, 8),
        DType::I8 => (shifted(x, 1 << 7)?, 8),
        DType::I16 => (shifted(x, 1 << 15)?, 16),
        DType::I32 => (shifted(x, 1 << 31)?, 32),
        DType::I64 => {
            let bits = ops::view(x, Dtype::Uint64)?;
            (ops::bitwise_xor(&bits, &Array::scalar(1u64 << 63)?)?, 64)
        }
        // Dispatch sorts them as what they are computed in.
        DType::U16 | DType::U32 | DType::U64 | DType::F8E4M3FN | DType::F8E5M2 => {
            return Err(Error::dtype("sort", format!("not implemented for {dtype}"), &[dtype]).into());
        }
        DType::F16 | DType::BF16 | DType::F32 | DType::F64 | DType::C64 | DType::C128 => {
            let x = ops::astype(x, Dtype::Float32)?;
            let zero = Array::scalar(0f32)?;
            let x = ops::where_(&ops::equal(&x, &zero)?, &zero, &x)?;
            let bits = ops::view(&x, Dtype::Int32)?;
            // Below zero the other bits run backwards.
            let turned = ops::bitwise_xor(&bits, &Array::scalar(i32::MAX)?)?;
            let bits = ops::where_(&ops::less(&bits, &Array::scalar(0i32)?)?, &turned, &bits)?;
            let bits = ops::where_(&ops::isnan(&x)?, &Array::scalar(i32::MAX)?, &bits)?;
            (shifted(&bits, 1 << 31)?, 32)
        }
    })
}

/// Bisection of all rows at once: as many rounds as the length of a row has bits.
fn search(rows: &GpuArray, values: &GpuArray, right: bool, out: &Meta) -> Made<GpuArray> {
    let n = rows.shape().last().copied().unwrap_or(0);
    let known = ValueRange::Within(0, n as i64);
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
        // SAFETY: a row's start and less than its length.
        let found = unsafe { ops::take(&flat, &at) }?;
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
