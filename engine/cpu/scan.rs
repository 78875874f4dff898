//! Running sums, products and extrema along one dimension.
//!
//! Depends on `simd`. Floats accumulate in double precision. Invariant: an array is scanned row by row of what is
//! behind the axis, so that the inner loop is dense for every axis.

use super::cast::cast;
use super::elementwise::log_add_exp;
use super::simd::{accumulate, run, threads, Extreme, Map2, Sum, Task};
use super::CpuArray;
use crate::dtype::{narrow, wide as widened, Element};
use crate::fallible::{scratch, scratch_from};
use crate::shape::numel;
use crate::{DType, Error, Result};
use lucid_ir::backend::Array;
use lucid_ir::ops::scan::ScanOp;
use lucid_ir::Meta;
use num_complex::{Complex32, Complex64};

#[derive(Clone, Copy)]
struct Plus;
impl<T: Sum> Map2<T::Acc, T, T::Acc> for Running<T, Plus> {
    #[inline(always)]
    fn map<const F: bool>(self, a: T::Acc, b: T) -> T::Acc {
        T::plus(a, T::acc(b.widen()))
    }
}
#[derive(Clone, Copy)]
struct Times;
impl<T: Sum> Map2<T::Acc, T, T::Acc> for Running<T, Times> {
    #[inline(always)]
    fn map<const F: bool>(self, a: T::Acc, b: T) -> T::Acc {
        T::times(a, T::acc(b.widen()))
    }
}
/// Names the element type, which the accumulator does not.
struct Running<T, K>(std::marker::PhantomData<fn() -> (T, K)>);
impl<T, K> Clone for Running<T, K> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T, K> Copy for Running<T, K> {}

/// Sizes before, along and behind the axis.
fn split(shape: &[usize], axis: usize) -> (usize, usize, usize) {
    (numel(&shape[..axis]), shape[axis], numel(&shape[axis + 1..]))
}

/// Rows that are scanned side by side, since each step of one waits for the one before.
const ABREAST: usize = 4;

/// [`ABREAST`] rows of `n` elements.
fn abreast<T: Element + Sum, K>(k: Running<T, K>, start: T::Acc, n: usize, x: &[T], out: &mut [T])
where
    Running<T, K>: Map2<T::Acc, T, T::Acc>,
{
    let (x0, x) = x.split_at(n);
    let (x1, x) = x.split_at(n);
    let (x2, x3) = x.split_at(n);
    let (o0, out) = out.split_at_mut(n);
    let (o1, out) = out.split_at_mut(n);
    let (o2, o3) = out.split_at_mut(n);
    let mut acc = [start; ABREAST];
    let rows = o0.iter_mut().zip(x0).zip(o1.iter_mut().zip(x1)).zip(o2.iter_mut().zip(x2).zip(o3.iter_mut().zip(x3)));
    for (((o0, &x0), (o1, &x1)), ((o2, &x2), (o3, &x3))) in rows {
        acc = [
            k.map::<false>(acc[0], x0),
            k.map::<false>(acc[1], x1),
            k.map::<false>(acc[2], x2),
            k.map::<false>(acc[3], x3),
        ];
        (*o0, *o1) = (T::finish(acc[0]), T::finish(acc[1]));
        (*o2, *o3) = (T::finish(acc[2]), T::finish(acc[3]));
    }
}

fn running<T: Element + Sum, K>(x: &CpuArray, axis: usize, start: T::Acc) -> Result<CpuArray>
where
    Running<T, K>: Map2<T::Acc, T, T::Acc>,
{
    let x = x.contiguous()?;
    let guard = x.read::<T>();
    let data = x.slice(&guard);
    let (_, n, inner) = split(x.shape(), axis);
    let k = Running::<T, K>(std::marker::PhantomData);
    CpuArray::build(x.shape(), |out| {
        if data.is_empty() {
            return Ok(());
        }
        threads::for_chunks(out, n * inner, threads::GRAIN, |first, out| {
            let (mut out, mut x) = (out, &data[first..]);
            while inner == 1 && out.len() >= ABREAST * n {
                let (rows, rest) = out.split_at_mut(ABREAST * n);
                abreast(k, start, n, &x[..ABREAST * n], rows);
                (out, x) = (rest, &x[ABREAST * n..]);
            }
            for (out, x) in out.chunks_mut(n * inner).zip(x.chunks(n * inner)) {
                if inner == 1 {
                    let mut acc = start;
                    for (o, &x) in out.iter_mut().zip(x) {
                        acc = k.map::<false>(acc, x);
                        *o = T::finish(acc);
                    }
                    continue;
                }
                let mut acc = scratch(start, inner);
                for (o, x) in out.chunks_mut(inner).zip(x.chunks(inner)) {
                    accumulate(k, &mut acc, x);
                    o.iter_mut().zip(&acc).for_each(|(o, &acc)| *o = T::finish(acc));
                }
            }
        });
        Ok(())
    })
}

/// Where the extremum so far is, along a row.
struct ArgRow<'a, T, const MAX: bool> {
    x: &'a [T],
    out: &'a mut [i64],
}

impl<T: Extreme, const MAX: bool> Task for ArgRow<'_, T, MAX> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        // New ones become rare, and of so many elements together vectors tell that there is none.
        const TOGETHER: usize = 16;
        let ArgRow { x, out } = self;
        let (mut best, mut at, mut first) = (x[0], 0i64, 0i64);
        for (x, out) in x.chunks(TOGETHER).zip(out.chunks_mut(TOGETHER)) {
            let mut any = false;
            for &x in x {
                any |= !T::beats::<MAX>(best, x);
            }
            if any {
                for ((i, o), &x) in (first..).zip(&mut *out).zip(x) {
                    // The later one at a tie, and the last NaN.
                    if !T::beats::<MAX>(best, x) {
                        (best, at) = (x, i);
                    }
                    *o = at;
                }
            } else {
                for o in &mut *out {
                    *o = at;
                }
            }
            first += TOGETHER as i64;
        }
    }
}

fn arg<T: Element + Extreme, const MAX: bool>(x: &CpuArray, axis: usize) -> Result<CpuArray> {
    let x = x.contiguous()?;
    let guard = x.read::<T>();
    let data = x.slice(&guard);
    let (_, n, inner) = split(x.shape(), axis);
    CpuArray::build(x.shape(), |out: &mut [i64]| {
        if data.is_empty() {
            return Ok(());
        }
        threads::for_chunks(out, n * inner, threads::GRAIN, |first, out| {
            for (out, x) in out.chunks_mut(n * inner).zip(data[first..].chunks(n * inner)) {
                if inner == 1 {
                    run(ArgRow::<T, MAX> { x, out });
                    continue;
                }
                let mut best: Vec<(T, i64)> = scratch_from(x[..inner].iter().map(|&x| (x, 0)));
                for (i, (o, x)) in out.chunks_mut(inner).zip(x.chunks(inner)).enumerate() {
                    for ((o, &x), best) in o.iter_mut().zip(x).zip(&mut best) {
                        // The later one at a tie, and the last NaN.
                        if !T::beats::<MAX>(best.0, x) {
                            *best = (x, i as i64);
                        }
                        *o = best.1;
                    }
                }
            }
        });
        Ok(())
    })
}

/// `y[i] = terms[i] + factors[i] y[i - 1]`, from 0.
fn recur<T: Element + Sum>(factors: &CpuArray, terms: &CpuArray, axis: usize) -> Result<CpuArray> {
    let (a, b) = (factors.contiguous()?, terms.contiguous()?);
    let (left, right) = (a.read::<T>(), b.read::<T>());
    let (left, right) = (a.slice(&left), b.slice(&right));
    let (_, n, inner) = split(a.shape(), axis);
    CpuArray::build(a.shape(), |out: &mut [T]| {
        if out.is_empty() {
            return Ok(());
        }
        threads::for_chunks(out, n * inner, threads::GRAIN, |first, out| {
            let rows = left[first..].chunks(n * inner).zip(right[first..].chunks(n * inner));
            for (out, (a, b)) in out.chunks_mut(n * inner).zip(rows) {
                let mut acc: Vec<T::Acc> = scratch_from(b[..inner].iter().map(|b| T::acc(b.widen())));
                out[..inner].copy_from_slice(&b[..inner]);
                for i in (inner..n * inner).step_by(inner) {
                    for (j, acc) in acc.iter_mut().enumerate() {
                        let (a, b) = (T::acc(a[i + j].widen()), T::acc(b[i + j].widen()));
                        *acc = T::plus(b, T::times(a, *acc));
                        out[i + j] = T::finish(*acc);
                    }
                }
            }
        });
        Ok(())
    })
}

/// `log(e^a + e^b)` of complex numbers, by the one with the larger real part, whose phase is kept as it is.
fn log_add_exp_complex(a: Complex64, b: Complex64) -> Complex64 {
    if a.is_nan() || b.is_nan() {
        return Complex64::new(f64::NAN, f64::NAN);
    }
    let (low, high) = if a.re < b.re { (a, b) } else { (b, a) };
    if low.re == f64::NEG_INFINITY {
        return high;
    }
    if high.re == f64::INFINITY {
        // What is finite counts for nothing; of two infinities the phases decide.
        return if low.re == high.re { (low.exp() + high.exp()).ln() } else { high };
    }
    high + (Complex64::new(1.0, 0.0) + (low - high).exp()).ln()
}

fn log_sum_exp<T: Element + Copy>(x: &CpuArray, axis: usize, none: T, add: fn(T, T) -> T) -> Result<CpuArray> {
    let x = x.contiguous()?;
    let guard = x.read::<T>();
    let data = x.slice(&guard);
    let (_, n, inner) = split(x.shape(), axis);
    CpuArray::build(x.shape(), |out: &mut [T]| {
        if out.is_empty() {
            return Ok(());
        }
        threads::for_chunks(out, n * inner, threads::GRAIN / 8, |first, out| {
            for (out, x) in out.chunks_mut(n * inner).zip(data[first..].chunks(n * inner)) {
                let mut acc = scratch(none, inner);
                for (o, x) in out.chunks_mut(inner).zip(x.chunks(inner)) {
                    for ((o, &x), acc) in o.iter_mut().zip(x).zip(&mut acc) {
                        *acc = add(*acc, x);
                        *o = *acc;
                    }
                }
            }
        });
        Ok(())
    })
}

/// The kernels of the `scan` family. What is not float32, float64 or int64 goes through one that holds all its numbers.
pub fn scan(op: &ScanOp, inputs: &[&CpuArray], out: &Meta) -> Result<CpuArray> {
    let x = inputs[0];
    let wide = match (op, x.dtype()) {
        (_, dtype @ (DType::C64 | DType::C128)) => dtype,
        (ScanOp::Sum { .. }, DType::F32 | DType::F16 | DType::BF16) => DType::F32,
        (_, dtype) if dtype.is_integral() => DType::I64,
        _ => DType::F64,
    };
    if wide != x.dtype() {
        let inputs = inputs.iter().map(|x| cast(x, wide)).collect::<Result<Vec<_>>>()?;
        let y = scan(op, &inputs.iter().collect::<Vec<_>>(), &Meta { shape: out.shape.clone(), dtype: wide })?;
        return if y.dtype() == out.dtype { Ok(y) } else { cast(&y, out.dtype) };
    }
    let long = wide == DType::I64;
    match *op {
        ScanOp::Sum { axis } => match wide {
            DType::C64 => running::<Complex32, Plus>(x, axis, <Complex32 as Sum>::ZERO),
            DType::C128 => running::<Complex64, Plus>(x, axis, <Complex64 as Sum>::ZERO),
            DType::F32 => running::<f32, Plus>(x, axis, 0.0),
            DType::I64 => running::<i64, Plus>(x, axis, 0),
            DType::Bool
            | DType::U8
            | DType::I8
            | DType::I16
            | DType::I32
            | DType::F16
            | DType::BF16
            | DType::F64
            | DType::U16
            | DType::U32
            | DType::U64
            | DType::F8E4M3FN
            | DType::F8E5M2 => running::<f64, Plus>(x, axis, 0.0),
        },
        ScanOp::Prod { axis } if wide == DType::C64 => running::<Complex32, Times>(x, axis, <Complex32 as Sum>::UNIT),
        ScanOp::Prod { axis } if wide == DType::C128 => running::<Complex64, Times>(x, axis, <Complex64 as Sum>::UNIT),
        ScanOp::Prod { axis } if long => running::<i64, Times>(x, axis, 1),
        ScanOp::Prod { axis } => running::<f64, Times>(x, axis, 1.0),
        ScanOp::Recur { axis } if wide == DType::C64 => recur::<Complex32>(x, inputs[1], axis),
        ScanOp::Recur { axis } if wide == DType::C128 => recur::<Complex64>(x, inputs[1], axis),
        ScanOp::Recur { axis } => recur::<f64>(x, inputs[1], axis),
        ScanOp::LogSumExp { axis } if wide == DType::C64 => {
            log_sum_exp(x, axis, Complex32::new(f32::NEG_INFINITY, 0.0), |a, b| {
                narrow(log_add_exp_complex(widened(a), widened(b)))
            })
        }
        ScanOp::LogSumExp { axis } if wide == DType::C128 => {
            log_sum_exp(x, axis, Complex64::new(f64::NEG_INFINITY, 0.0), log_add_exp_complex)
        }
        ScanOp::LogSumExp { axis } => log_sum_exp(x, axis, f64::NEG_INFINITY, log_add_exp),
    }
}

/// The index, along a dimension, of the largest or smallest element so far; the last at a tie, NaN wins.
pub(super) fn running_extremum(x: &CpuArray, axis: usize, largest: bool) -> Result<CpuArray> {
    let (whole, wide) = match x.dtype() {
        dtype if dtype.is_integral() => (true, DType::I64),
        dtype @ (DType::C64 | DType::C128) => {
            return Err(Error::dtype("cummax", "complex numbers have no order", &[dtype]));
        }
        _ => (false, DType::F64),
    };
    let x = &if wide == x.dtype() { x.clone() } else { cast(x, wide)? };
    match (whole, largest) {
        (true, true) => arg::<i64, true>(x, axis),
        (true, false) => arg::<i64, false>(x, axis),
        (false, true) => arg::<f64, true>(x, axis),
        (false, false) => arg::<f64, false>(x, axis),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{array, layouts, show};

    fn meta(shape: &[usize], dtype: DType) -> Meta {
        Meta { shape: shape.into(), dtype }
    }

    #[test]
    fn sums_run_along_either_axis() {
        for x in layouts(&[2, 3], &[1i64, 2, 3, 4, 5, 6]) {
            let run = |op| show::<i64>(&scan(&op, &[&x], &meta(&[2, 3], DType::I64)).unwrap());
            assert_eq!(run(ScanOp::Sum { axis: 1 }), [1, 3, 6, 4, 9, 15]);
            assert_eq!(run(ScanOp::Sum { axis: 0 }), [1, 2, 3, 5, 7, 9]);
            assert_eq!(run(ScanOp::Prod { axis: 1 }), [1, 2, 6, 4, 20, 120]);
        }
        let empty = array::<f32>(&[0, 3], &[]);
        assert_eq!(scan(&ScanOp::Sum { axis: 1 }, &[&empty], &meta(&[0, 3], DType::F32)).unwrap().shape(), [0, 3]);
    }

    #[test]
    fn extrema_take_the_last_at_a_tie() {
        let x = array(&[6], &[1f32, 3.0, 3.0, 2.0, f32::NAN, 9.0]);
        let run = |largest| show::<i64>(&running_extremum(&x, 0, largest).unwrap());
        assert_eq!(run(true), [0, 1, 2, 2, 4, 4]);
        assert_eq!(run(false), [0, 0, 0, 0, 4, 4]);
    }
}
