//! Standardisation of channels, as batch norm needs it, in place: each in as many pieces as the batch has samples.
//!
//! Depends on `simd`, `strided` and `fused`. Invariant: results are in memory in the input's order.

use super::fused::{total, Compute, Float};
use super::simd::{join, run, threads, Task, Wide};
use super::strided::collapse;
use super::CpuArray;
use crate::fallible::{scratch, scratch_from, scratch_room};
use crate::shape::Layout;
use crate::Result;

/// Elements whose mean the others are measured from.
pub(super) const FIRST: usize = 512;
/// Pieces shorter than this are not worth a loop of their own.
const SHORT: usize = 16;

/// The layout of rows that are made of pieces.
#[derive(Clone, Copy)]
pub(super) struct Channels {
    /// Pieces of a row.
    pieces: usize,
    /// Rows.
    rows: usize,
    /// Elements of a piece.
    len: usize,
}

impl Channels {
    /// Of an array whose last `dims` dimensions make the rows; `None` where rows do not have that layout.
    pub(super) fn of(layout: &Layout, dims: usize) -> Option<Channels> {
        let lead = layout.ndim().checked_sub(dims)?;
        let part = |from: usize, to: usize| collapse((from..to).map(|d| (layout.shape[d], layout.strides[d])));
        match (part(0, lead).as_slice(), part(lead, layout.ndim()).as_slice()) {
            (&[(rows, apart)], &[(pieces, step), (len, 1)])
                if apart == len && Some(step) == rows.checked_mul(len) && len >= SHORT =>
            {
                Some(Channels { pieces, rows, len })
            }
            _ => None,
        }
    }

    /// Of a row-major array, whose second dimension counts the rows.
    pub(super) fn second(shape: &[usize]) -> Channels {
        let size = |i: usize| shape.get(i).copied().unwrap_or(1);
        Channels { pieces: size(0), rows: size(1), len: crate::shape::product(shape.iter().skip(2).copied()) }
    }

    fn numel(&self) -> usize {
        self.pieces * self.rows * self.len
    }

    /// What a row's elements count.
    fn count(&self) -> f64 {
        (self.pieces * self.len) as f64
    }

    /// The pieces of a row.
    #[inline(always)]
    fn row<'a, T>(&self, x: &'a [T], row: usize) -> impl Iterator<Item = &'a [T]> {
        let Channels { rows, len, .. } = *self;
        (0..self.pieces).map(move |piece| &x[(piece * rows + row) * len..][..len])
    }
}

/// One row: standardised, scaled and shifted, with its mean and variance; or, of `g`, the gradient through that, and the sums
/// that weight and bias get.
struct Row<'a, 'o, T: Wide> {
    x: &'a [T],
    g: Option<&'a [T]>,
    how: Channels,
    row: usize,
    eps: f64,
    /// The mean and `1 / sqrt(var + eps)` of what `g` is the gradient of, where they are known.
    known: Option<[f64; 2]>,
    by: [T::W; 2],
    /// Where its pieces go.
    out: &'a mut [&'o mut [T]],
}

/// Elements added up in their own precision before going on in double precision.
const SUMMED: usize = 64 * LANES;
const LANES: usize = 16;

/// With `d` the elements less a number, the sums of `d` and of `d²`.
#[inline(always)]
pub(super) fn moments<T: Wide<W: Compute>>(x: &[T], less: T::W) -> [f64; 4] {
    let zero = T::W::of(0.0);
    let mut sums = [0.0; 4];
    for x in x.chunks(SUMMED) {
        let mut lanes = [[zero; LANES]; 2];
        let (chunks, rest) = x.as_chunks::<LANES>();
        for x in rest {
            let d = x.widen() - less;
            sums[0] += d.into();
            sums[1] += (d * d).into();
        }
        for x in chunks {
            for j in 0..LANES {
                let d = x[j].widen() - less;
                lanes[0][j] = lanes[0][j] + d;
                lanes[1][j] = lanes[1][j] + d * d;
            }
        }
        for (sum, lanes) in sums.iter_mut().zip(lanes) {
            *sum += join(lanes, |a, b| a + b).into();
        }
    }
    sums
}

/// The same, and the sums of `g` and of `g d`.
#[inline(always)]
fn joint_moments<T: Wide<W: Compute>>(x: &[T], g: &[T], less: T::W) -> [f64; 4] {
    let zero = T::W::of(0.0);
    let mut sums = [0.0; 4];
    for (x, g) in x.chunks(SUMMED).zip(g.chunks(SUMMED)) {
        let mut lanes = [[zero; LANES]; 4];
        let ((a, x), (b, g)) = (x.as_chunks::<LANES>(), g.as_chunks::<LANES>());
        for (x, g) in x.iter().zip(g) {
            let (d, g) = (x.widen() - less, g.widen());
            for (sum, term) in sums.iter_mut().zip([d, d * d, g, g * d]) {
                *sum += term.into();
            }
        }
        for (x, g) in a.iter().zip(b) {
            for j in 0..LANES {
                let (d, g) = (x[j].widen() - less, g[j].widen());
                lanes[0][j] = lanes[0][j] + d;
                lanes[1][j] = lanes[1][j] + d * d;
                lanes[2][j] = lanes[2][j] + g;
                lanes[3][j] = lanes[3][j] + g * d;
            }
        }
        for (sum, lanes) in sums.iter_mut().zip(lanes) {
            *sum += join(lanes, |a, b| a + b).into();
        }
    }
    sums
}

/// The sums of `g` and of `g d` alone, where the other two are known.
#[inline(always)]
pub(super) fn met<T: Wide<W: Compute>>(x: &[T], g: &[T], less: T::W) -> [f64; 4] {
    let zero = T::W::of(0.0);
    let mut sums = [0.0; 2];
    for (x, g) in x.chunks(SUMMED).zip(g.chunks(SUMMED)) {
        let mut lanes = [[zero; LANES]; 2];
        let ((a, x), (b, g)) = (x.as_chunks::<LANES>(), g.as_chunks::<LANES>());
        for (x, g) in x.iter().zip(g) {
            let g = g.widen();
            sums[0] += g.into();
            sums[1] += (g * (x.widen() - less)).into();
        }
        for (x, g) in a.iter().zip(b) {
            for j in 0..LANES {
                let g = g[j].widen();
                lanes[0][j] = lanes[0][j] + g;
                lanes[1][j] = lanes[1][j] + g * (x[j].widen() - less);
            }
        }
        for (sum, lanes) in sums.iter_mut().zip(lanes) {
            *sum += join(lanes, |a, b| a + b).into();
        }
    }
    [0.0, 0.0, sums[0], sums[1]]
}

impl<T: Wide<W: Compute>> Task for Row<'_, '_, T> {
    type Out = [f64; 2];
    #[inline(always)]
    fn run<const F: bool>(self) -> [f64; 2] {
        let Row { x, g, how, row, eps, known, by: [weight, bias], out } = self;
        let count = how.count();
        // One pass over the row: elements are measured from the mean of the first of them. As that is a mean of some, it
        // is so near the mean of all that the sum of squares loses little.
        let first = how.row(x, row).next().unwrap_or_default();
        let first = &first[..first.len().min(FIRST)];
        let less = T::W::of(match known {
            Some([mean, _]) => mean,
            None => total(first, |x| x) / first.len() as f64,
        });
        // Loops, no closures: these would not be compiled for this function's instruction set.
        let mut sums = [0.0; 4];
        for piece in 0..how.pieces {
            let own = (piece * how.rows + row) * how.len..(piece * how.rows + row + 1) * how.len;
            let part = match (g, known) {
                (None, _) => moments(&x[own], less),
                (Some(g), None) => joint_moments(&x[own.clone()], &g[own], less),
                (Some(g), Some(_)) => met(&x[own.clone()], &g[own], less),
            };
            for (sum, part) in sums.iter_mut().zip(part) {
                *sum += part;
            }
        }
        // The mean, measured from there.
        let mean = sums[0] / count;
        let variance = sums[1] / count - mean * mean;
        let variance = if variance < 0.0 { 0.0 } else { variance };
        let inverse = known.map_or(1.0 / (variance + eps), |[_, scale]| scale * scale);
        let scale = inverse.sqrt() * weight.into();
        let Some(g) = g else {
            let (shift, scale) = (T::W::of(bias.into() - mean * scale), T::W::of(scale));
            for (x, out) in how.row(x, row).zip(out) {
                for (x, o) in x.iter().zip(out.iter_mut()) {
                    *o = T::narrow((x.widen() - less) * scale + shift);
                }
            }
            return [less.into() + mean, variance];
        };
        let met = sums[3] - mean * sums[2];
        let slope = met / count * inverse;
        let shift = T::W::of((mean * slope - sums[2] / count) * scale);
        let (slope, scale) = (T::W::of(slope * scale), T::W::of(scale));
        for ((g, x), out) in how.row(g, row).zip(how.row(x, row)).zip(out) {
            for ((x, g), o) in x.iter().zip(g).zip(out.iter_mut()) {
                *o = T::narrow(g.widen() * scale - (x.widen() - less) * slope + shift);
            }
        }
        [met * inverse.sqrt(), sums[2]]
    }
}

/// What rows are scaled and shifted by, and what is known of them.
#[derive(Clone, Copy)]
pub(super) struct By<'a> {
    pub weight: &'a [f64],
    pub bias: Option<&'a [f64]>,
    /// Means, and `1 / sqrt(var + eps)`.
    pub known: Option<[&'a [f64]; 2]>,
}

/// Rows less their mean over their deviation, scaled and shifted, with the mean and variance of each; of `g`, which has the
/// layout of `x`, the gradient through that, with the sums over each row of `g` times what was standardised and of `g`, the
/// gradients of weight and bias.
pub(super) fn standardize<T: Float>(
    x: &CpuArray,
    g: Option<&CpuArray>,
    how: Channels,
    eps: f64,
    by: Option<By<'_>>,
) -> Result<(CpuArray, Vec<[f64; 2]>)> {
    let start = |a: &CpuArray| a.layout.offset;
    let (guard, g_guard) = (x.read::<T>(), g.map(|g| g.read::<T>()));
    let data = &guard[start(x)..][..how.numel()];
    let g = g_guard.as_ref().zip(g).map(|(guard, g)| &guard[start(g)..][..how.numel()]);
    let mut sums = scratch([0.0; 2], how.rows);
    let flat = CpuArray::build(&[how.numel()], |out: &mut [T]| {
        // A row at a time, which the cache may hold until its results are written.
        let mut rows: Vec<Vec<&mut [T]>> = scratch_from((0..how.rows).map(|_| scratch_room(how.pieces)));
        for (i, piece) in out.chunks_mut(how.len.max(1)).enumerate() {
            rows[i % how.rows].push(piece);
        }
        let mut jobs: Vec<_> = scratch_from(rows.iter_mut().zip(&mut sums));
        let grain = (threads::GRAIN / 4 / (how.pieces * how.len).max(1)).max(1);
        threads::for_chunks(&mut jobs, 1, grain, |first, jobs| {
            for (i, (out, sums)) in jobs.iter_mut().enumerate() {
                let row = first + i;
                let of =
                    by.map_or([1.0, 0.0], |by| [by.weight[row], by.bias.map_or(0.0, |bias| bias[row])]).map(T::W::of);
                let known = by.and_then(|by| by.known).map(|[mean, scale]| [mean[row], scale[row]]);
                **sums = run(Row { x: data, g, how, row, eps, known, by: of, out });
            }
        });
        Ok(())
    })?;
    Ok((flat.with_layout(Layout { offset: 0, ..x.layout.clone() }), sums))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{array, show};

    #[test]
    fn channels_are_rows_of_pieces() {
        let (pieces, rows, len, eps) = (3, 4, 20, 0.1);
        let numbers = |seed: usize| -> Vec<f64> {
            (0..pieces * rows * len).map(|i| ((i * 37 + seed) % 23) as f64 / 8.0 - 1.25).collect()
        };
        let shape = [pieces, rows, 4, 5];
        let transposed = |x: &[f64]| {
            let x = array(&shape, x);
            x.with_layout(x.layout.permuted_by(&[1, 0, 2, 3]))
        };
        for threads in [1, 3] {
            threads::set_num_threads(threads);
            let (x, g) = (transposed(&numbers(1)), transposed(&numbers(2)));
            let how = Channels::of(&x.layout, 3).unwrap();
            let (y, back) = (
                standardize::<f64>(&x, None, how, eps, None).unwrap().0,
                standardize::<f64>(&x, Some(&g), how, eps, None).unwrap().0,
            );
            assert_eq!((&y.layout, &back.layout), (&x.layout, &x.layout));
            // The same of rows that are dense.
            let (rows_of_x, rows_of_g) = (x.contiguous().unwrap(), g.contiguous().unwrap());
            let near = |a: CpuArray, b: CpuArray| {
                let (a, b) = (show::<f64>(&a), show::<f64>(&b));
                assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-12), "{a:?} {b:?}");
            };
            near(y, super::super::norm::standardize::<f64>(&rows_of_x, 3, eps).unwrap());
            near(back, super::super::norm::standardize_gradient::<f64>(&rows_of_g, &rows_of_x, 3, eps).unwrap());
        }
        assert!(Channels::of(&array(&[2, 3, 30], &[0f32; 180]).layout, 1).is_none());
    }
}
