//! Scans: running sums, products, extrema and recurrences along one dimension.
//!
//! All but the recurrence work along physical axes, so that a permuted value needs no transposition. Depends on `array`,
//! `elementwise`, `special` and mlx-ffi. Invariant: the number of operations grows at most with the logarithm of the length.

use super::array::GpuArray;
use super::convert::{constant, int, Ints};
use super::elementwise::cast_array;
use super::host_kernel;
use super::kernel_error::Made;
use super::reduce::as_dtype;
use super::special::in_float32;
use super::value::Value;
use super::view::physical_axis;
use crate::{DType, Scalar};
use lucid_cpu::CpuBackend;
use lucid_ir::backend::Backend;
use lucid_ir::ops::scan::ScanOp;
use lucid_ir::Meta;
use mlx_ffi::{ops, Array, Dtype};

pub(super) fn scan(op: &ScanOp, inputs: &[&GpuArray], out: &Meta) -> Made<GpuArray> {
    let x = inputs[0];
    if let ScanOp::Recur { axis } = *op {
        let (factors, terms) = (x.value()?.logical()?.clone(), inputs[1].value()?.logical()?.clone());
        if x.numel() == 0 {
            return GpuArray::new(
                Value::plain(cast_array(&terms, inputs[1].element(), out.dtype)?),
                &out.shape,
                out.dtype,
            );
        }
        return GpuArray::new(Value::plain(recur(&factors, &terms, axis, out.dtype)?), &out.shape, out.dtype);
    }
    if let ScanOp::Sum { axis } | ScanOp::Prod { axis } | ScanOp::LogSumExp { axis } = *op
        && host_kernel::takes_sum(x.shape().get(axis).copied().unwrap_or(1), x.element())
    {
        let op = op.clone();
        return host_kernel::run(c"LucidScan", inputs, out, move |x, out| CpuBackend::scan(&op, x, out));
    }
    let v = x.value()?;
    let (perm, dtype) = (v.perm.clone(), x.element());
    let place = |axis: usize| int(physical_axis(v.perm.as_ref(), axis));
    let array = match op {
        _ if x.numel() == 0 => cast_array(v.array()?, dtype, out.dtype)?,
        ScanOp::Sum { axis } => ops::cumsum_axis(&wide(v.array()?, dtype)?, place(*axis)?, false, true, None)?,
        ScanOp::Prod { axis } => ops::cumprod_axis(&wide(v.array()?, dtype)?, place(*axis)?, false, true, None)?,
        ScanOp::LogSumExp { axis } => {
            let axis = place(*axis)?;
            if dtype.is_complex() {
                log_sum_exp_complex(v.array()?, axis)?
            } else {
                in_float32(v.array()?, dtype, |x| log_sum_exp(x, axis))?
            }
        }
        // Two inputs; it has returned above.
        ScanOp::Recur { .. } => v.array()?.clone(),
    };
    drop(v);
    GpuArray::new(Value::new(as_dtype(array, out.dtype)?, perm), &out.shape, out.dtype)
}

/// What 16-bit floats are added up and multiplied in, as PyTorch does; MLX would keep their own precision.
fn wide(x: &Array, dtype: DType) -> Made<Array> {
    match dtype {
        DType::F16 | DType::BF16 => cast_array(x, dtype, DType::F32),
        _ => Ok(x.clone()),
    }
}

/// The index of the last extremum so far: the running maximum of the indices where the running extremum is met.
pub(super) fn arg_scan(x: &Array, axis: i32, dtype: DType, largest: bool) -> Made<Array> {
    let n = x.shape()[axis as usize];
    let mut line = Ints::from_elem(1, x.ndim());
    line[axis as usize] = n;
    let at = ops::reshape(&ops::arange(0.0, f64::from(n), 1.0, Dtype::Int32)?, &line)?;
    let running = |x: &Array, up: bool| {
        if up {
            ops::cummax_axis(x, axis, false, true)
        } else {
            ops::cummin_axis(x, axis, false, true)
        }
    };
    let met = if dtype.is_float() {
        // From the first NaN on, only NaN is an extremum.
        let nan = ops::isnan(x)?;
        let worst = constant(if largest { f64::NEG_INFINITY } else { f64::INFINITY }, dtype)?;
        let best = running(&ops::where_(&nan, &worst, x)?, largest)?;
        let seen = ops::astype(&running(&ops::astype(&nan, Dtype::Int32)?, true)?, Dtype::Bool)?;
        ops::where_(&seen, &nan, &ops::equal(x, &best)?)?
    } else {
        ops::equal(x, &running(x, largest)?)?
    };
    Ok(running(&ops::where_(&met, &at, &Array::scalar(0i32)?)?, true)?)
}

/// MLX's own, and what it says of infinities put right: it stays infinite from the first inf on, NaN from the first NaN on.
fn log_sum_exp(x: &Array, axis: i32) -> Made<Array> {
    let at = |n: f64| constant(n, DType::F32);
    let worst = at(f64::NEG_INFINITY)?;
    let finite = ops::where_(&ops::isfinite(x)?, x, &at(-f64::from(f32::MAX))?)?;
    let y = ops::logcumsumexp_axis(&finite, axis, false, true)?;
    // The infinities and NaN that have been met add up to what the result is.
    let odd = ops::where_(&ops::isfinite(x)?, &worst, x)?;
    let met = ops::cummax_axis(&ops::where_(&ops::isnan(&odd)?, &worst, &odd)?, axis, false, true)?;
    let broken = ops::astype(&ops::isnan(x)?, Dtype::Int32)?;
    let broken = ops::astype(&ops::cummax_axis(&broken, axis, false, true)?, Dtype::Bool)?;
    let any = ops::astype(&ops::greater(x, &worst)?, Dtype::Int32)?;
    let any = ops::astype(&ops::cummax_axis(&any, axis, false, true)?, Dtype::Bool)?;
    let y = ops::where_(&any, &y, &worst)?;
    let y = ops::where_(&ops::isposinf(&met)?, &met, &y)?;
    Ok(ops::where_(&broken, &at(f64::NAN)?, &y)?)
}

/// Of complex numbers: sums of `e^(x - m)` for the largest real part `m` so far, a recurrence by `e^(m' - m)` of the one before.
fn log_sum_exp_complex(x: &Array, axis: i32) -> Made<Array> {
    let low = constant(f64::NEG_INFINITY, DType::F32)?;
    let m = ops::cummax_axis(&ops::real(x)?, axis, false, true)?;
    let (n, place) = (m.shape()[axis as usize], axis as usize);
    let (mut first, mut start, mut stop) =
        (Ints::from_slice(m.shape()), Ints::from_elem(0, m.ndim()), Ints::from_slice(m.shape()));
    (first[place], stop[place]) = (1, n - 1);
    start[place] = 0;
    let fill = ops::broadcast_to(&low, &first)?;
    let before = ops::slice(&m, &start, &stop, &Ints::from_elem(1, m.ndim()))?;
    let before = ops::concatenate_axis(&[&fill, &before], axis)?;
    let zero = constant(0.0, DType::F32)?;
    let complex = |x: &Array| ops::astype(x, Dtype::Complex64);
    // While all are -inf, so is the largest, and nothing has been added up.
    let nothing = ops::equal(&m, &low)?;
    let same = ops::equal(&before, &m)?;
    let factors = ops::exp(&ops::where_(&same, &zero, &ops::subtract(&before, &m)?)?)?;
    let terms = ops::exp(&ops::subtract(x, &complex(&m)?)?)?;
    let terms = ops::where_(&nothing, &complex(&zero)?, &terms)?;
    let sums = recur(&complex(&factors)?, &terms, place, DType::C64)?;
    let y = ops::add(&ops::log(&sums)?, &complex(&m)?)?;
    let y = ops::where_(&nothing, &complex(&low)?, &y)?;
    // The phase goes on from the result before, or begins anew where the element is the larger of the two.
    let last = ops::slice(&y, &start, &stop, &Ints::from_elem(1, m.ndim()))?;
    let last = ops::concatenate_axis(&[&complex(&fill)?, &last], axis)?;
    let anew = ops::greater_equal(&ops::real(x)?, &ops::real(&last)?)?;
    let gap = ops::where_(&anew, &ops::subtract(&last, x)?, &ops::subtract(x, &last)?)?;
    let turn = ops::imag(&ops::log(&ops::add(&ops::exp(&gap)?, &constant(1.0, DType::F32)?)?)?)?;
    let turn = ops::where_(&ops::isnan(&turn)?, &zero, &turn)?;
    let turn = ops::add(&turn, &ops::where_(&anew, &ops::imag(x)?, &zero)?)?;
    let phase = recur(&ops::astype(&ops::logical_not(&anew)?, Dtype::Float32)?, &turn, place, DType::F32)?;
    let unit = constant(Scalar::Complex(0.0, 1.0), DType::C64)?;
    let turned = ops::add(&complex(&ops::real(&y)?)?, &ops::multiply(&complex(&phase)?, &unit)?)?;
    Ok(ops::where_(&ops::isfinite(&ops::real(&y)?)?, &turned, &y)?)
}

/// The recurrence by doubling: after a step over `d` each result holds the terms of the `2 d` places up to it.
fn recur(factors: &Array, terms: &Array, axis: usize, dtype: DType) -> Made<Array> {
    let wide = if dtype.is_complex() { DType::C64 } else { DType::F32 };
    let (mut a, mut y) = (cast_array(factors, dtype, wide)?, cast_array(terms, dtype, wide)?);
    let n = int(y.shape().get(axis).copied().unwrap_or(0) as usize)?;
    let part = |x: &Array, from: i32, to: i32| -> Made<Array> {
        let (mut start, mut stop) = (Ints::from_elem(0, x.ndim()), Ints::from_slice(x.shape()));
        (start[axis], stop[axis]) = (from, to);
        Ok(ops::slice(x, &start, &stop, &Ints::from_elem(1, x.ndim()))?)
    };
    // `a` holds the products of the places from `d` on, the only ones that are still asked for.
    let mut d = 1;
    a = if n > 1 { part(&a, 1, n)? } else { a };
    while d < n {
        let rest = ops::add(&part(&y, d, n)?, &ops::multiply(&a, &part(&y, 0, n - d)?)?)?;
        y = ops::concatenate_axis(&[&part(&y, 0, d)?, &rest], int(axis)?)?;
        if 2 * d < n {
            a = ops::multiply(&part(&a, d, n - d)?, &part(&a, 0, n - 2 * d)?)?;
        }
        d *= 2;
    }
    cast_array(&y, wide, dtype)
}
