//! Composites in one pass: linear layers, softmax and gelu.
//!
//! Depends on `simd` and `blas`. 16-bit floats are computed with in `float32`; sums over a row go on in double precision
//! every 2048 elements. Invariant: each agrees with the composite of plain ops that it stands for.

use super::blas::{gemm, Gemm, Matrix, Product};
use super::elementwise::{apply1, apply2};
use super::simd::{
    for_strips, join, kernel, run, threads, Exponential, Extreme, Map1, Math, Real, Strip, Sum, Task, Wide,
};
use super::{attention, copy, element_fn, embedding, softmax_backward, CpuArray};
use crate::dtype::Element;
use crate::fallible::scratch;
use crate::shape::{Axes, Layout};
use crate::Result;
use lucid_ir::backend::Array;
use lucid_ir::ops::nn::NnOp;
use lucid_ir::Meta;

/// Runs `$body` with `$T` bound to the Rust type of a floating dtype; an error for any other.
macro_rules! with_float {
    ($op:expr, $dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            $crate::DType::F16 => {
                type $T = half::f16;
                $body
            }
            $crate::DType::BF16 => {
                type $T = half::bf16;
                $body
            }
            $crate::DType::F32 => {
                type $T = f32;
                $body
            }
            $crate::DType::F64 => {
                type $T = f64;
                $body
            }
            other @ ($crate::DType::Bool
            | $crate::DType::U8
            | $crate::DType::I8
            | $crate::DType::I16
            | $crate::DType::I32
            | $crate::DType::I64
            | $crate::DType::U16
            | $crate::DType::U32
            | $crate::DType::U64
            | $crate::DType::F8E4M3FN
            | $crate::DType::F8E5M2
            | $crate::DType::C64
            | $crate::DType::C128) => Err($crate::Error::dtype($op, "expected a floating dtype", &[other])),
        }
    };
}
pub(super) use with_float;

/// What floating elements are computed in: `f32` or `f64`.
pub trait Compute: Element + num_traits::Float + Wide<W = Self> + Real + Gemm + Into<f64> {
    /// Rounded from double precision.
    fn of(x: f64) -> Self;
    /// e to the power of it, as [`Math::Exp`] gives it.
    fn power<const F: bool>(self) -> Self;
    /// Its natural logarithm, as [`Math::Log`] gives it.
    fn logarithm<const F: bool>(self) -> Self;
}
impl Compute for f32 {
    #[inline(always)]
    fn of(x: f64) -> f32 {
        x as f32
    }
    #[inline(always)]
    fn power<const F: bool>(self) -> f32 {
        Exponential.map::<F>(self)
    }
    #[inline(always)]
    fn logarithm<const F: bool>(self) -> f32 {
        kernel::Log.map::<F>(self)
    }
}
impl Compute for f64 {
    #[inline(always)]
    fn of(x: f64) -> f64 {
        x
    }
    #[inline(always)]
    fn power<const F: bool>(self) -> f64 {
        Exponential.map::<F>(self)
    }
    #[inline(always)]
    fn logarithm<const F: bool>(self) -> f64 {
        kernel::Log.map::<F>(self)
    }
}

/// Floating elements.
pub trait Float: Element + Real + Gemm + Extreme + Sum<Acc = f64> + Wide<W: Compute> {}
impl<T: Element + Real + Gemm + Extreme + Sum<Acc = f64> + Wide<W: Compute>> Float for T {}

/// The kernels of the `nn` family.
pub fn nn(op: &NnOp, inputs: &[&CpuArray], out: &Meta) -> Result<CpuArray> {
    let x = inputs[0];
    match *op {
        NnOp::Embedding { .. } => super::index::rows(x, inputs[1], out),
        NnOp::EmbeddingSum { scale, .. } => embedding::sum(inputs, scale, out),
        NnOp::Linear => with_float!("linear", out.dtype, T => linear::<T>(inputs, out)),
        NnOp::Softmax { axis } => with_float!("softmax", out.dtype, T => softmax::<T, false>(x, axis)),
        NnOp::LogSoftmax { axis } => with_float!("log_softmax", out.dtype, T => softmax::<T, true>(x, axis)),
        NnOp::SoftmaxGradient { axis, log } => {
            with_float!("softmax_gradient", out.dtype, T => softmax_backward::softmax::<T>(x, inputs[1], axis, log))
        }
        NnOp::Attention { causal, scale } => attention::attention(inputs, causal, scale, out),
        NnOp::Elementwise { f, numbers } => element_fn::forward(f, numbers, x),
        NnOp::ElementwiseGradient { f, numbers } => element_fn::backward(f, numbers, x, inputs[1], out),
        NnOp::GeluGradient { tanh } => with_float!("gelu", out.dtype, T => {
            apply2::<T, T>(x, inputs[1], &out.shape, threads::GRAIN / 4, &|g, x, out| T::gelu_gradient(tanh, g, x, out))
        }),
        NnOp::Gelu { tanh } => {
            let op = if tanh { Math::GeluTanh } else { Math::Gelu };
            with_float!("gelu", out.dtype, T => {
                apply1::<T, T>(x, threads::GRAIN / 4, &|x, out| T::math(op, x, out))
            })
        }
    }
}

/// A matrix as BLAS takes it, where its strides allow that.
fn matrix<'a, T>(data: &'a [T], layout: &Layout) -> Option<Matrix<'a, T>> {
    let (&[rows, columns], &[down, across]) = (layout.shape.as_slice(), layout.strides.as_slice()) else { return None };
    let data = data.get(layout.offset..)?;
    match () {
        () if across == 1 && down >= columns => Some(Matrix { data, ld: down, trans: false }),
        () if down == 1 && across >= rows => Some(Matrix { data, ld: across, trans: true }),
        () => None,
    }
}

/// `x wᵀ + bias`, any leading dimensions being rows.
fn linear<T: Float>(inputs: &[&CpuArray], out: &Meta) -> Result<CpuArray> {
    let [mut x, mut w] = [inputs[0], inputs[1]].map(Clone::clone);
    let (n, k) = (w.shape()[0], w.shape()[1]);
    if x.layout().ndim() != 2 || matrix(&x.read::<T>(), x.layout()).is_none() {
        x = x.contiguous()?;
        let rows = crate::shape::numel(&x.shape()[..x.layout().ndim() - 1]);
        let flat = Layout { shape: [rows, k][..].into(), strides: [k, 1][..].into(), offset: x.layout().offset };
        x = x.with_layout(flat);
    }
    if matrix(&w.read::<T>(), w.layout()).is_none() {
        w = w.contiguous()?;
    }
    let bias = inputs.get(2).map(|b| b.contiguous()).transpose()?;
    let bias_guard = bias.as_ref().map(|b| b.read::<T>());
    let (x_guard, w_guard) = (x.read::<T>(), w.read::<T>());
    let (zero, one) = (<T as Gemm>::ZERO, <T as Gemm>::ONE);
    CpuArray::build(&out.shape, |out: &mut [T]| {
        let beta = match (&bias, &bias_guard) {
            (Some(bias), Some(guard)) if n > 0 => {
                let bias = bias.slice(guard);
                threads::for_chunks(out, n, threads::GRAIN, |_, out| {
                    out.chunks_mut(n).for_each(|row| row.copy_from_slice(bias));
                });
                one
            }
            _ => zero,
        };
        let empty = Matrix { data: &[][..], ld: k.max(1), trans: false };
        let a = matrix(&x_guard, x.layout()).unwrap_or(empty);
        let b = matrix(&w_guard, w.layout()).map_or(empty, |m| Matrix { trans: !m.trans, ..m });
        gemm(&Product { beta, ..Product::of([x.shape()[0], n, k], a, b) }, out);
        Ok(())
    })
}

/// The array with a dimension moved to the end, row-major.
pub fn axis_last(x: &CpuArray, axis: usize) -> Result<CpuArray> {
    let n = x.layout().ndim();
    let axes: Axes = (0..n).filter(|&a| a != axis).chain([axis]).collect();
    x.with_layout(x.layout().permuted_by(&axes)).contiguous()
}

/// What [`axis_last`] moved, moved back.
pub fn axis_back(x: &CpuArray, axis: usize) -> Result<CpuArray> {
    let last = x.layout().ndim() - 1;
    let axes: Axes = (0..axis).chain([last]).chain(axis..last).collect();
    if axis == last {
        return Ok(x.clone());
    }
    copy::copy(&x.with_layout(x.layout().permuted_by(&axes)))
}

/// Elements worked on at once where rows are short: with what is made of them, the first cache level holds them.
const BLOCK: usize = 1024;
pub(super) const LANES: usize = 32;

/// Elements added up in their own precision before going on in double precision.
pub(super) const SUMMED: usize = 64 * LANES;

/// The sum of a function of a row's elements.
#[inline(always)]
pub(super) fn total<T: Wide<W: Compute>>(x: &[T], f: impl Fn(T::W) -> T::W) -> f64 {
    let zero = T::W::of(0.0);
    let mut sum = 0.0;
    for block in x.chunks(SUMMED) {
        let mut lanes = [zero; LANES];
        let (chunks, rest) = block.as_chunks::<LANES>();
        for c in chunks {
            for j in 0..LANES {
                lanes[j] = lanes[j] + f(c[j].widen());
            }
        }
        for x in rest {
            sum += f(x.widen()).into();
        }
        sum += join(lanes, |a, b| a + b).into();
    }
    sum
}

/// The sum of `n` terms; `fill` writes those from a place on. They go through memory, in loops that the compiler makes
/// vectors of: sums of more than one row's elements it may else make one by one.
#[inline(always)]
fn total_of<W: Compute>(n: usize, fill: impl Fn(usize, &mut [W])) -> f64 {
    const PART: usize = 256;
    let mut terms = [W::of(0.0); PART];
    let mut sum = 0.0;
    for block in (0..n).step_by(SUMMED) {
        let mut lanes = [W::of(0.0); LANES];
        let end = n.min(block + SUMMED);
        for start in (block..end).step_by(PART) {
            let terms = &mut terms[..PART.min(end - start)];
            fill(start, terms);
            let (chunks, rest) = terms.as_chunks::<LANES>();
            for &term in rest {
                sum += term.into();
            }
            for c in chunks {
                for j in 0..LANES {
                    lanes[j] = lanes[j] + c[j];
                }
            }
        }
        sum += join(lanes, |a, b| a + b).into();
    }
    sum
}

/// The sum of a function of the elements of two rows.
#[inline(always)]
pub(super) fn total2<T: Wide<W: Compute>>(x: &[T], y: &[T], f: impl Fn(T::W, T::W) -> T::W) -> f64 {
    total_of(x.len().min(y.len()), |start, terms| {
        for ((t, x), y) in terms.iter_mut().zip(&x[start..]).zip(&y[start..]) {
            *t = f(x.widen(), y.widen());
        }
    })
}

/// The largest element of a row, NaN aside.
#[inline(always)]
pub(super) fn largest<T: Wide<W: Compute>>(x: &[T]) -> T::W {
    let least = T::W::of(f64::NEG_INFINITY);
    let mut lanes = [least; LANES];
    let larger = |a: T::W, b: T::W| if b > a { b } else { a };
    let (chunks, rest) = x.as_chunks::<LANES>();
    let rest = rest.iter().fold(least, |a, b| larger(a, b.widen()));
    if x.len() < LANES {
        return rest;
    }
    for c in chunks {
        for j in 0..LANES {
            lanes[j] = larger(lanes[j], c[j].widen());
        }
    }
    larger(join(lanes, larger), rest)
}

/// Rows over their sum of powers, or, if `LOG`, less the logarithm of that.
struct Softmax<'a, T: Wide, const LOG: bool> {
    x: &'a [T],
    n: usize,
    /// As long as `x`, to work in.
    powers: &'a mut [T::W],
    out: &'a mut [T],
}
impl<T: Wide<W: Compute>, const LOG: bool> Task for Softmax<'_, T, LOG> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        let Softmax { x, n, powers, out } = self;
        for (x, e) in x.chunks(n).zip(powers.chunks_mut(n)) {
            let most = largest(x);
            for (x, e) in x.iter().zip(e) {
                *e = x.widen() - most;
            }
        }
        // Over all rows at once, as they may be short.
        for e in powers.iter_mut() {
            *e = e.power::<F>();
        }
        for ((x, e), out) in x.chunks(n).zip(powers.chunks(n)).zip(out.chunks_mut(n)) {
            let sum = total::<T::W>(e, |e| e);
            if LOG {
                let (most, less) = (largest(x), T::W::of(sum.ln()));
                for (x, o) in x.iter().zip(out) {
                    *o = T::narrow(x.widen() - most - less);
                }
            } else {
                let scale = T::W::of(1.0 / sum);
                for (&e, o) in e.iter().zip(out) {
                    *o = T::narrow(e * scale);
                }
            }
        }
    }
}

/// Columns side by side, `apart` elements from one of their elements to the next, over their sum of powers, or, if `LOG`, less
/// the logarithm of that.
struct Columns<'a, T: Wide, const LOG: bool> {
    x: &'a [T],
    apart: usize,
    /// As many powers of each row, to work in.
    powers: &'a mut [T::W],
    out: Strip<'a, T>,
}
impl<T: Wide<W: Compute>, const LOG: bool> Task for Columns<'_, T, LOG> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        /// Rows that are added up in their own precision before going on in double precision.
        const ROWS: usize = 64;
        let Columns { x, apart, powers, mut out } = self;
        let width = out.width;
        let mut most = scratch(T::W::of(f64::NEG_INFINITY), width);
        for x in x.chunks(apart) {
            for (most, x) in most.iter_mut().zip(x) {
                let x = x.widen();
                *most = if x > *most { x } else { *most };
            }
        }
        let mut sums = scratch(0f64, width);
        let mut part = scratch(T::W::of(0.0), width);
        for (x, e) in x.chunks(ROWS * apart).zip(powers.chunks_mut(ROWS * width)) {
            part.fill(T::W::of(0.0));
            for (x, e) in x.chunks(apart).zip(e.chunks_mut(width)) {
                for ((e, x), &most) in e.iter_mut().zip(x).zip(&most) {
                    *e = (x.widen() - most).power::<F>();
                }
                for (sum, &e) in part.iter_mut().zip(&*e) {
                    *sum = *sum + e;
                }
            }
            for (sum, &part) in sums.iter_mut().zip(&part) {
                *sum += part.into();
            }
        }
        // Not by a closure: its body would not be compiled for this function's instruction set.
        for (by, &sum) in part.iter_mut().zip(&sums) {
            *by = T::W::of(if LOG { sum.ln() } else { 1.0 / sum });
        }
        if LOG {
            for (i, x) in x.chunks(apart).enumerate() {
                for (((o, x), &most), &less) in out.row(i).iter_mut().zip(x).zip(&most).zip(&part) {
                    *o = T::narrow(x.widen() - most - less);
                }
            }
        } else {
            for (i, e) in powers.chunks(width).enumerate() {
                for ((o, &e), &by) in out.row(i).iter_mut().zip(e).zip(&part) {
                    *o = T::narrow(e * by);
                }
            }
        }
    }
}

/// Softmax of rows whose elements are `inner` apart, without moving them.
fn softmax_columns<T: Float, const LOG: bool>(x: &CpuArray, n: usize, inner: usize) -> Result<CpuArray> {
    /// Powers that are kept at once: with as much of the input and the output, the second cache level holds them.
    const KEPT: usize = 64 * BLOCK;
    let guard = x.read::<T>();
    let data = x.slice(&guard);
    CpuArray::build(x.shape(), |out: &mut [T]| {
        // As many columns as fit: few of a row are few bytes of a page, and of a line that is fetched.
        let widest = (KEPT / n).clamp(LANES, BLOCK).min(inner);
        let room = || scratch(T::W::of(0.0), n * widest);
        for_strips(out, [n, inner], widest, threads::GRAIN / 4, room, |powers, out| {
            let x = &data[out.start..][..n * inner][out.column..];
            run(Columns::<T, LOG> { x, apart: inner, powers: &mut powers[..n * out.width], out });
        });
        Ok(())
    })
}

fn softmax<T: Float, const LOG: bool>(x: &CpuArray, axis: usize) -> Result<CpuArray> {
    let inner = crate::shape::numel(&x.shape()[axis + 1..]);
    if inner >= LANES && x.shape()[axis] > 0 {
        return softmax_columns::<T, LOG>(&x.contiguous()?, x.shape()[axis], inner);
    }
    let x = axis_last(x, axis)?;
    let n = x.shape().last().copied().unwrap_or(1).max(1);
    let guard = x.read::<T>();
    let data = x.slice(&guard);
    let y = CpuArray::build(x.shape(), |out: &mut [T]| {
        threads::for_chunks(out, n, threads::GRAIN / 4, |start, out| {
            let block = (BLOCK / n).max(1) * n;
            let mut powers = scratch(T::W::of(0.0), block.min(out.len()));
            for (x, out) in data[start..].chunks(block).zip(out.chunks_mut(block)) {
                let len = out.len();
                run(Softmax::<T, LOG> { x: &x[..len], n, powers: &mut powers[..len], out });
            }
        });
        Ok(())
    })?;
    axis_back(&y, axis)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{array, layouts, show};
    use half::{bf16, f16};

    fn run_nn<T: Element>(op: NnOp, inputs: &[&CpuArray], shape: &[usize]) -> Vec<T> {
        show(&nn(&op, inputs, &Meta::new(shape, T::DTYPE)).unwrap())
    }

    fn numbers(n: usize) -> Vec<f32> {
        (0..n).map(|i| (i * 37 % 23) as f32 / 4.0 - 2.5).collect()
    }

    fn close(a: &[f32], b: &[f32], tolerance: f32) {
        assert_eq!(a.len(), b.len());
        assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() <= tolerance * (1.0 + b.abs())), "{a:?} {b:?}");
    }

    /// Softmax along the middle of (outer, n, inner), by definition.
    fn naive(x: &[f32], n: usize, inner: usize, log: bool) -> Vec<f32> {
        let mut out = x.to_vec();
        for start in (0..x.len() / n).map(|r| r / inner * n * inner + r % inner) {
            let sum: f64 = (0..n).map(|i| f64::from(x[start + i * inner]).exp()).sum();
            for i in 0..n {
                let e = f64::from(x[start + i * inner]);
                out[start + i * inner] = if log { e - sum.ln() } else { e.exp() / sum } as f32;
            }
        }
        out
    }

    #[test]
    fn softmax_along_any_axis_of_any_layout() {
        let shape = [3, 5, 40];
        let data = numbers(600);
        for (axis, inner) in [(0, 200), (1, 40), (2, 1)] {
            for x in layouts(&shape, &data) {
                let want = naive(&data, shape[axis], inner, false);
                close(&run_nn::<f32>(NnOp::Softmax { axis }, &[&x], &shape), &want, 1e-6);
                let want = naive(&data, shape[axis], inner, true);
                close(&run_nn::<f32>(NnOp::LogSoftmax { axis }, &[&x], &shape), &want, 1e-6);
            }
        }
    }

    #[test]
    fn softmax_at_the_edges() {
        let x = array(&[3, 2], &[1000f32, 1000.0, f32::NAN, 0.0, f32::NEG_INFINITY, 0.0]);
        let y = run_nn::<f32>(NnOp::Softmax { axis: 1 }, &[&x], &[3, 2]);
        assert!(y[..2] == [0.5, 0.5] && y[2].is_nan() && y[3].is_nan() && y[4..] == [0.0, 1.0], "{y:?}");
        assert!(run_nn::<f32>(NnOp::Softmax { axis: 1 }, &[&array::<f32>(&[2, 0], &[])], &[2, 0]).is_empty());
        assert!(run_nn::<f32>(NnOp::LogSoftmax { axis: 0 }, &[&array::<f32>(&[2, 0], &[])], &[2, 0]).is_empty());
        let half = array(&[2], &[bf16::ONE, bf16::ONE]);
        assert_eq!(run_nn::<bf16>(NnOp::Softmax { axis: 0 }, &[&half], &[2]), [bf16::from_f32(0.5); 2]);
        let long: Vec<f64> = vec![0.0; 100_000];
        let y = run_nn::<f64>(NnOp::Softmax { axis: 0 }, &[&array(&[100_000], &long)], &[100_000]);
        assert!((y[5] - 1e-5).abs() < 1e-18);
    }

    #[test]
    fn linear_of_any_layout() {
        let (m, n, k) = (6, 5, 7);
        let (x, w, b) = (numbers(m * k), numbers(n * k + 3)[3..].to_vec(), numbers(n));
        let at = |i: usize, j: usize| (0..k).map(|l| x[i * k + l] * w[j * k + l]).sum::<f32>();
        let plain: Vec<f32> = (0..m * n).map(|p| at(p / n, p % n)).collect();
        let shifted: Vec<f32> = plain.iter().enumerate().map(|(p, y)| y + b[p % n]).collect();
        for xs in layouts(&[m, k], &x).iter().chain(&layouts(&[2, 3, k], &x)) {
            for ws in layouts(&[n, k], &w) {
                close(&run_nn::<f32>(NnOp::Linear, &[xs, &ws], &[m, n]), &plain, 1e-5);
                close(&run_nn::<f32>(NnOp::Linear, &[xs, &ws, &array(&[n], &b)], &[m, n]), &shifted, 1e-5);
            }
        }
        let expanded = array(&[1, k], &x[..k]);
        let expanded = expanded.with_layout(expanded.layout().broadcast_to(&[3, k]));
        close(&run_nn::<f32>(NnOp::Linear, &[&expanded, &array(&[n, k], &w)], &[3, n])[n..2 * n], &plain[..n], 1e-5);
        let half = |v: &[f32]| v.iter().map(|&v| f16::from_f32(v)).collect::<Vec<_>>();
        let (hx, hw, hb) = (array(&[m, k], &half(&x)), array(&[n, k], &half(&w)), array(&[n], &half(&b)));
        let y = run_nn::<f16>(NnOp::Linear, &[&hx, &hw, &hb], &[m, n]);
        close(&y.iter().map(|v| v.to_f32()).collect::<Vec<_>>(), &shifted, 1e-3);
    }

    #[test]
    fn linear_of_nothing() {
        let bias = array(&[2], &[1f32, 2.0]);
        let (x, w) = (array::<f32>(&[3, 0], &[]), array::<f32>(&[2, 0], &[]));
        assert_eq!(run_nn::<f32>(NnOp::Linear, &[&x, &w, &bias], &[3, 2]), [1.0, 2.0, 1.0, 2.0, 1.0, 2.0]);
        assert_eq!(run_nn::<f32>(NnOp::Linear, &[&x, &w], &[3, 2]), [0.0; 6]);
        let (x, w) = (array::<f32>(&[0, 3], &[]), array(&[2, 3], &[0f32; 6]));
        assert!(run_nn::<f32>(NnOp::Linear, &[&x, &w, &bias], &[0, 2]).is_empty());
        let w = array::<f32>(&[0, 3], &[]);
        let x = array(&[1, 3], &[0f32; 3]);
        assert!(run_nn::<f32>(NnOp::Linear, &[&x, &w, &array::<f32>(&[0], &[])], &[1, 0]).is_empty());
    }

    #[test]
    fn gelu_in_both_forms() {
        for x in layouts(&[4], &[-1f32, 0.0, 1.0, 3.0]) {
            let y = run_nn::<f32>(NnOp::Gelu { tanh: false }, &[&x], &[4]);
            close(&y, &[-0.158_655_25, 0.0, 0.841_344_7, 2.995_950_3], 1e-6);
            let y = run_nn::<f32>(NnOp::Gelu { tanh: true }, &[&x], &[4]);
            close(&y, &[-0.158_808, 0.0, 0.841_191_97, 2.996_362_7], 1e-6);
        }
        // The slopes are those of neighbouring values.
        let (x, h) = ([-4f64, -1.3, 0.0, 0.7, 6.0], 1e-5);
        let g = [2f64, -1.0, 0.5, 3.0, 1.0];
        for tanh in [false, true] {
            let at = |d: f64| run_nn::<f64>(NnOp::Gelu { tanh }, &[&array(&[5], &x.map(|x| x + d))], &[5]);
            let (above, below) = (at(h), at(-h));
            let dx = run_nn::<f64>(NnOp::GeluGradient { tanh }, &[&array(&[5], &g), &array(&[5], &x)], &[5]);
            let half = run_nn::<f32>(
                NnOp::GeluGradient { tanh },
                &[&array(&[5], &g.map(|g| g as f32)), &array(&[5], &x.map(|x| x as f32))],
                &[5],
            );
            for i in 0..5 {
                let want = g[i] * (above[i] - below[i]) / (2.0 * h);
                assert!((dx[i] - want).abs() < 1e-8 && (f64::from(half[i]) - want).abs() < 1e-6, "{i} {dx:?} {half:?}");
            }
        }
    }
}
