//! The range check of index arrays.
//!
//! MLX reads outside of an array where an index says so. Ranges that are known (of constants, ranges, results of argmax
//! and the like, and of small arrays that came from the host) cost nothing; an index that was computed is evaluated, which
//! is one of the documented points where the lazy graph is. Depends on `array` and mlx-ffi. Invariant: none.

use super::array::GpuArray;
use super::create::range_of;
use super::kernel_error::Made;
use super::lazy;
use super::value::ValueRange;
use crate::{DType, Error};
use mlx_ffi::{ops, transforms, Array, Dtype};

/// Arrays up to this size are looked through on the host.
const ON_HOST: usize = 4096;

/// Refuses an index that is not in `0..n`, or with `wrap` in `-n..n`.
pub(super) fn check(op: &'static str, at: &GpuArray, n: usize, axis: usize, wrap: bool) -> Made<()> {
    if at.numel() == 0 {
        return Ok(());
    }
    let low = if wrap { -(n as i64) } else { 0 };
    let known = at.value()?.known;
    let (least, most) = match known {
        // A range that is only possible may be wider than the one that is there.
        ValueRange::Within(a, b) if low <= a && b < n as i64 => return Ok(()),
        ValueRange::Within(..) | ValueRange::Nothing | ValueRange::Constant(_) => find(at)?,
    };
    let bad = if least < low { least } else { most };
    if low <= bad && bad < n as i64 {
        return Ok(());
    }
    Err(Error::index(op, format!("index {bad} is out of bounds for dimension {axis} with size {n}")).into())
}

/// Refuses an index that is not in `0..n` and is not `ignore`.
pub(super) fn check_but(op: &'static str, at: &GpuArray, n: usize, ignore: i64) -> Made<()> {
    let classes = 0..n as i64;
    let inside = |low: i64, high: i64| classes.contains(&low) && classes.contains(&high);
    if at.numel() == 0 || matches!(at.value()?.known, ValueRange::Within(low, high) if inside(low, high)) {
        return Ok(());
    }
    let (low, high) = find(at)?;
    if inside(low, high) {
        return Ok(());
    }
    // Something is outside: it may be what is ignored.
    let array = at.value()?.array()?.clone();
    let used = ops::not_equal(&array, &Array::scalar(ignore)?)?;
    let rest = ops::where_(&used, &array, &Array::scalar(0i64)?)?;
    let (low, high) = (ops::min(&rest, false)?, ops::max(&rest, false)?);
    transforms::eval(&[&low, &high])?;
    let (low, high) = (low.item::<i64>()?, high.item::<i64>()?);
    // There need be no class 0.
    if low >= 0 && high < n.max(1) as i64 {
        return Ok(());
    }
    let bad = if low < 0 { low } else { high };
    Err(Error::index(op, format!("index {bad} is out of bounds for dimension 1 with size {n}")).into())
}

/// The least and the largest element. Evaluates.
fn find(at: &GpuArray) -> Made<(i64, i64)> {
    let array = at.value()?.array()?.clone();
    let range = if at.numel() <= ON_HOST {
        match array.read(|bytes| range_of(bytes, at.element()))? {
            ValueRange::Within(a, b) => (a, b),
            ValueRange::Nothing | ValueRange::Constant(_) => (0, 0),
        }
    } else {
        let wide = |x: &Array| if at.element() == DType::I64 { Ok(x.clone()) } else { ops::astype(x, Dtype::Int64) };
        let (least, most) = (wide(&ops::min(&array, false)?)?, wide(&ops::max(&array, false)?)?);
        transforms::eval(&[&least, &most, &array])?;
        (least.item::<i64>()?, most.item::<i64>()?)
    };
    if let Some(cell) = at.base() {
        cell.learn(array.id(), ValueRange::Within(range.0, range.1));
    }
    lazy::settle(true);
    Ok(range)
}
