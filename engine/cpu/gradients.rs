//! What goes back through softmax and layer norm, in one pass over the rows.
//!
//! Depends on `simd` and `fused`. 16-bit floats are computed with in `float32`. Invariant: each agrees with the composite of
//! plain ops that its row in the table states.

use super::channels::{self, Channels};
use super::fused::{axis_back, axis_last, join, total, Compute, Float};
use super::simd::{map1, run, threads, Math, Real, Task, Wide, Widen};
use super::CpuArray;
use crate::{Error, Result};

const LANES: usize = 32;
/// Elements worked on at once where rows are short.
const BLOCK: usize = 4096;

/// The sum of a function of the elements of two rows.
#[inline(always)]
pub(super) fn total2<T: Wide<W: Compute>>(x: &[T], y: &[T], f: impl Fn(T::W, T::W) -> T::W) -> f64 {
    let zero = T::W::of(0.0);
    let mut sum = 0.0;
    for (x, y) in x.chunks(16 * LANES).zip(y.chunks(16 * LANES)) {
        let mut lanes = [zero; LANES];
        let (a, b) = (x.chunks_exact(LANES), y.chunks_exact(LANES));
        let rest = a.remainder().iter().zip(b.remainder());
        let rest = rest.fold(zero, |sum, (x, y)| sum + f(x.widen(), y.widen()));
        for (a, b) in a.zip(b) {
            for j in 0..LANES {
                lanes[j] = lanes[j] + f(a[j].widen(), b[j].widen());
            }
        }
        sum += (join(lanes, |a, b| a + b) + rest).into();
    }
    sum
}

/// `y (g - Σ g y)` of each row.
struct Softmax<'a, T> {
    g: &'a [T],
    y: &'a [T],
    n: usize,
    out: &'a mut [T],
}
impl<T: Wide<W: Compute>> Task for Softmax<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        let Softmax { g, y, n, out } = self;
        for ((g, y), out) in g.chunks(n).zip(y.chunks(n)).zip(out.chunks_mut(n)) {
            let sum = T::W::of(total2(g, y, |g, y| g * y));
            for ((g, y), o) in g.iter().zip(y).zip(out) {
                *o = T::narrow(y.widen() * (g.widen() - sum));
            }
        }
    }
}

/// `g - e Σ g` of each row, where `e` are the powers.
struct LogSoftmax<'a, T: Wide> {
    g: &'a [T],
    powers: &'a [T::W],
    n: usize,
    out: &'a mut [T],
}
impl<T: Wide<W: Compute>> Task for LogSoftmax<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        let LogSoftmax { g, powers, n, out } = self;
        for ((g, e), out) in g.chunks(n).zip(powers.chunks(n)).zip(out.chunks_mut(n)) {
            let sum = T::W::of(total(g, |g| g));
            for ((g, &e), o) in g.iter().zip(e).zip(out) {
                *o = T::narrow(g.widen() - e * sum);
            }
        }
    }
}

/// The gradient of softmax along a dimension, or of its logarithm, from that of the result `y`.
pub fn softmax<T: Float>(g: &CpuArray, y: &CpuArray, axis: usize, log: bool) -> Result<CpuArray> {
    let (g, y) = (axis_last(g, axis)?, axis_last(y, axis)?);
    let n = y.shape().last().copied().unwrap_or(1).max(1);
    let (g_guard, y_guard) = (g.read::<T>(), y.read::<T>());
    let (gs, ys) = (g.slice(&g_guard), y.slice(&y_guard));
    let x = CpuArray::build(y.shape(), |out: &mut [T]| {
        threads::for_chunks(out, n, threads::GRAIN / 4, |start, out| {
            let (g, y) = (&gs[start..][..out.len()], &ys[start..][..out.len()]);
            if !log {
                return run(Softmax { g, y, n, out });
            }
            let block = (BLOCK / n).max(1) * n;
            let mut wide = vec![T::W::of(0.0); block.min(out.len())];
            let mut powers = wide.clone();
            for ((g, y), out) in g.chunks(block).zip(y.chunks(block)).zip(out.chunks_mut(block)) {
                let (wide, powers) = (&mut wide[..out.len()], &mut powers[..out.len()]);
                map1(Widen, y, wide);
                T::W::math(Math::Exp, wide, powers);
                run(LogSoftmax { g, powers, n, out });
            }
        });
        Ok(())
    })?;
    axis_back(&x, axis)
}

/// `(g - mean(g) - y mean(g y)) / σ` of each row, with `y` and σ those of `x`.
struct Standard<'a, T> {
    g: &'a [T],
    x: &'a [T],
    n: usize,
    eps: f64,
    out: &'a mut [T],
}
impl<T: Wide<W: Compute>> Task for Standard<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        let Standard { g, x, n, eps, out } = self;
        let count = n as f64;
        for ((g, x), out) in g.chunks(n).zip(x.chunks(n)).zip(out.chunks_mut(n)) {
            let mean = T::W::of(total(x, |x| x) / count);
            let variance = total(x, |x| (x - mean) * (x - mean)) / count + eps;
            let scale = T::W::of(1.0 / variance.sqrt());
            let g_mean = T::W::of(total(g, |g| g) / count);
            // Of the deviations, which are y σ.
            let met = total2(g, x, |g, x| g * (x - mean)) / count;
            let slope = T::W::of(met / variance);
            for ((g, x), o) in g.iter().zip(x).zip(out) {
                *o = T::narrow((g.widen() - g_mean - (x.widen() - mean) * slope) * scale);
            }
        }
    }
}

/// The gradient of standardisation over the last `dims` dimensions.
pub fn standardize<T: Float>(g: &CpuArray, x: &CpuArray, dims: usize, eps: f64) -> Result<CpuArray> {
    if let Some(how) = Channels::of(&x.layout, dims) {
        return channels::standardize::<T>(x, Some(&g.ordered_as(&x.layout)?), how, eps);
    }
    let (g, x) = (g.contiguous()?, x.contiguous()?);
    let lead = x.shape().len().checked_sub(dims);
    let lead =
        lead.ok_or_else(|| Error::shape("layer_norm", format!("there are no {dims} dimensions"), &[x.shape()]))?;
    let n = x.shape()[lead..].iter().product::<usize>().max(1);
    let (g_guard, x_guard) = (g.read::<T>(), x.read::<T>());
    let (gs, xs) = (g.slice(&g_guard), x.slice(&x_guard));
    CpuArray::build(x.shape(), |out: &mut [T]| {
        threads::for_chunks(out, n, threads::GRAIN / 4, |start, out| {
            let end = start + out.len();
            run(Standard { g: &gs[start..end], x: &xs[start..end], n, eps, out });
        });
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::tests::{array, layouts, show};

    fn numbers(n: usize, seed: usize) -> Vec<f64> {
        (0..n).map(|i| ((i * 37 + seed) % 23) as f64 / 8.0 - 1.25).collect()
    }

    fn near(a: &[f64], b: &[f64]) {
        assert!(a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12), "{a:?} {b:?}");
    }

    #[test]
    fn softmax_along_any_axis_of_any_layout() {
        let (shape, n) = ([3, 5, 40], 600);
        let (g, y) = (numbers(n, 1), numbers(n, 2));
        for (axis, inner) in [(0, 200), (1, 40), (2, 1)] {
            let size = shape[axis];
            for log in [false, true] {
                let mut want = vec![0.0; n];
                for start in (0..n / size).map(|r| r / inner * size * inner + r % inner) {
                    let at = |i: usize| start + i * inner;
                    let sum: f64 = (0..size).map(|i| g[at(i)] * if log { 1.0 } else { y[at(i)] }).sum();
                    for i in (0..size).map(at) {
                        want[i] = if log { g[i] - y[i].exp() * sum } else { y[i] * (g[i] - sum) };
                    }
                }
                for (g, y) in layouts(&shape, &g).iter().zip(layouts(&shape, &y).iter().rev()) {
                    near(&show::<f64>(&softmax::<f64>(g, y, axis, log).unwrap()), &want);
                }
            }
        }
        let none = array::<f32>(&[2, 0], &[]);
        assert!(show::<f32>(&softmax::<f32>(&none, &none, 1, true).unwrap()).is_empty());
    }

    #[test]
    fn standardized_rows_pass_gradients_across_their_mean_and_scale() {
        let (shape, eps) = ([2, 3, 50], 0.1);
        let (g, x) = (numbers(300, 1), numbers(300, 2));
        for (dims, n) in [(1, 50), (2, 150), (3, 300)] {
            let mut want = Vec::new();
            for (g, x) in g.chunks(n).zip(x.chunks(n)) {
                let mean = |f: &dyn Fn(usize) -> f64| (0..n).map(f).sum::<f64>() / n as f64;
                let m = mean(&|i| x[i]);
                let sigma = (mean(&|i| (x[i] - m) * (x[i] - m)) + eps).sqrt();
                let y = |i: usize| (x[i] - m) / sigma;
                let (a, b) = (mean(&|i| g[i]), mean(&|i| g[i] * y(i)));
                want.extend((0..n).map(|i| (g[i] - a - y(i) * b) / sigma));
            }
            for (g, x) in layouts(&shape, &g).iter().zip(layouts(&shape, &x).iter().rev()) {
                near(&show::<f64>(&standardize::<f64>(g, x, dims, eps).unwrap()), &want);
            }
        }
    }
}
