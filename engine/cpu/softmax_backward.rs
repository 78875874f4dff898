//! The gradient through softmax, in one pass over the rows.
//!
//! Depends on `simd` and `fused`. 16-bit floats are computed with in `float32`. Invariant: each agrees with the composite of
//! plain ops that its row in the table states.

use super::fused::{axis_back, axis_last, total, total2, Compute, Float};
use super::simd::{for_strips, run, threads, Task, Wide};
use super::CpuArray;
use crate::fallible::scratch;
use crate::Result;

/// Elements worked on at once where rows are short.
const BLOCK: usize = 1024;

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

/// `g - e^y Σ g` of each row.
struct LogSoftmax<'a, T: Wide> {
    g: &'a [T],
    y: &'a [T],
    n: usize,
    /// As long as `y`, to work in.
    powers: &'a mut [T::W],
    out: &'a mut [T],
}
impl<T: Wide<W: Compute>> Task for LogSoftmax<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        let LogSoftmax { g, y, n, powers, out } = self;
        // Over all rows at once, as they may be short.
        for (y, e) in y.iter().zip(powers.iter_mut()) {
            *e = y.widen().power::<F>();
        }
        for ((g, e), out) in g.chunks(n).zip(powers.chunks(n)).zip(out.chunks_mut(n)) {
            let sum = T::W::of(total(g, |g| g));
            for ((g, &e), o) in g.iter().zip(e).zip(out) {
                *o = T::narrow(g.widen() - e * sum);
            }
        }
    }
}

/// Adds a row of `g y`, or of `g`, to the sums of columns.
struct AddRow<'a, T: Wide> {
    g: &'a [T],
    y: &'a [T],
    sums: &'a mut [T::W],
    log: bool,
}
impl<T: Wide<W: Compute>> Task for AddRow<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        let AddRow { g, y, sums, log } = self;
        match log {
            true => sums.iter_mut().zip(g).for_each(|(s, g)| *s = *s + g.widen()),
            false => sums.iter_mut().zip(g).zip(y).for_each(|((s, g), y)| *s = *s + g.widen() * y.widen()),
        }
    }
}

/// A row of the result, from the sums of columns.
struct SpreadRow<'a, T: Wide> {
    g: &'a [T],
    y: &'a [T],
    sums: &'a [T::W],
    log: bool,
    out: &'a mut [T],
}
impl<T: Wide<W: Compute>> Task for SpreadRow<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        let SpreadRow { g, y, sums, log, out } = self;
        let each = out.iter_mut().zip(g).zip(y).zip(sums);
        match log {
            true => each.for_each(|(((o, g), y), &s)| *o = T::narrow(g.widen() - y.widen().power::<F>() * s)),
            false => each.for_each(|(((o, g), y), &s)| *o = T::narrow(y.widen() * (g.widen() - s))),
        }
    }
}

/// Terms up to which a sum of columns goes on in the precision that elements are computed in.
const TERMS: usize = 2048;
/// Columns that are done together, and as many at least that it pays.
const COLUMNS: usize = 1024;

/// The gradient along the rows of matrices of `n` rows and `inner` columns.
fn down<T: Float>(g: &CpuArray, y: &CpuArray, [n, inner]: [usize; 2], log: bool) -> Result<CpuArray> {
    let (g, y) = (g.contiguous()?, y.contiguous()?);
    let (g_guard, y_guard) = (g.read::<T>(), y.read::<T>());
    let (gs, ys) = (g.slice(&g_guard), y.slice(&y_guard));
    CpuArray::build(y.shape(), |out: &mut [T]| {
        let room = || scratch(T::W::of(0.0), COLUMNS.min(inner));
        for_strips(out, [n, inner], COLUMNS, threads::GRAIN / 4, room, |sums, mut strip| {
            let (first, width) = (strip.start + strip.column, strip.width);
            let sums = &mut sums[..width];
            sums.fill(T::W::of(0.0));
            let row = |i: usize| first + i * inner..first + i * inner + width;
            for i in 0..n {
                let at = row(i);
                run(AddRow { g: &gs[at.clone()], y: &ys[at], sums: &mut *sums, log });
            }
            for i in 0..n {
                let at = row(i);
                run(SpreadRow { g: &gs[at.clone()], y: &ys[at], sums: &*sums, log, out: strip.row(i) });
            }
        });
        Ok(())
    })
}

/// The gradient of softmax along a dimension, or of its logarithm, from that of the result `y`.
pub fn softmax<T: Float>(g: &CpuArray, y: &CpuArray, axis: usize, log: bool) -> Result<CpuArray> {
    let rows = y.shape().get(axis).copied().unwrap_or(1);
    let inner = crate::shape::product(y.shape().iter().skip(axis + 1).copied());
    if inner >= 16 && (1..=TERMS).contains(&rows) {
        return down::<T>(g, y, [rows, inner], log);
    }
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
            let mut powers = scratch(T::W::of(0.0), block.min(out.len()));
            for ((g, y), out) in g.chunks(block).zip(y.chunks(block)).zip(out.chunks_mut(block)) {
                run(LogSoftmax { g, y, n, powers: &mut powers[..out.len()], out });
            }
        });
        Ok(())
    })?;
    axis_back(&x, axis)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{array, layouts, near, numbers, show};

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
}
