//! Group norm: rows of whole channels, each row standardised, each channel scaled and shifted by its own numbers.
//!
//! Depends on `simd`, `fused` and `batch_norm`. Invariant: a row's sums are those of its channels in order, so that they do not
//! depend on the number of threads.

use super::batch_norm::{met, moments, FIRST};
use super::fused::{total, Compute, Float};
use super::simd::{run, threads, Task, Wide};
use super::CpuArray;
use crate::fallible::{scratch, scratch_from};
use crate::Result;

/// Rows of a row-major array (N, C, …).
#[derive(Clone, Copy)]
pub(super) struct Groups {
    images: usize,
    channels: usize,
    /// Channels of a row.
    own: usize,
    /// Elements of a channel.
    each: usize,
}

impl Groups {
    pub(super) fn of(shape: &[usize], groups: usize) -> Groups {
        let (images, channels) = (shape[0], shape[1]);
        Groups { images, channels, own: channels / groups.max(1), each: crate::shape::numel(&shape[2..]) }
    }

    fn row(self) -> usize {
        self.own * self.each
    }

    fn rows(self) -> usize {
        self.images * self.channels / self.own.max(1)
    }

    /// The channels of a row.
    fn channels_of(self, row: usize) -> std::ops::Range<usize> {
        let first = row % (self.channels / self.own.max(1)) * self.own;
        first..first + self.own
    }

    fn grain(self) -> usize {
        (threads::GRAIN / 4 / self.row().max(1)).max(1)
    }
}

/// A row: its mean, and `1 / sqrt(var + eps)`.
struct Forward<'a, T> {
    x: &'a [T],
    each: usize,
    eps: f64,
    by: [&'a [f64]; 2],
    out: &'a mut [T],
}
impl<T: Wide<W: Compute>> Task for Forward<'_, T> {
    type Out = [f64; 2];
    #[inline(always)]
    fn run<const F: bool>(self) -> [f64; 2] {
        let Forward { x, each, eps, by: [weight, bias], out } = self;
        let count = x.len() as f64;
        let first = &x[..x.len().min(FIRST)];
        let less = T::W::of(total(first, |x| x) / first.len() as f64);
        let sums = moments(x, less);
        // The mean, measured from there.
        let mean = sums[0] / count;
        let variance = sums[1] / count - mean * mean;
        let scale = 1.0 / (if variance < 0.0 { 0.0 } else { variance } + eps).sqrt();
        for (((x, out), w), b) in x.chunks(each).zip(out.chunks_mut(each)).zip(weight).zip(bias) {
            let by = scale * w;
            let (shift, by) = (T::W::of(b - mean * by), T::W::of(by));
            for (x, o) in x.iter().zip(out) {
                *o = T::narrow((x.widen() - less) * by + shift);
            }
        }
        [less.into() + mean, scale]
    }
}

/// The gradient of a row, and of each channel the sums of `g` times what was standardised and of `g`.
struct Backward<'a, T> {
    g: &'a [T],
    x: &'a [T],
    each: usize,
    weight: &'a [f64],
    known: [f64; 2],
    out: &'a mut [T],
    sums: &'a mut [[f64; 2]],
}
impl<T: Wide<W: Compute>> Task for Backward<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        let Backward { g, x, each, weight, known: [mean, scale], out, sums } = self;
        let (count, less) = (x.len() as f64, T::W::of(mean));
        let [mut plain, mut slope] = [0.0; 2];
        for (((g, x), w), sums) in g.chunks(each).zip(x.chunks(each)).zip(weight).zip(sums) {
            let part = met(x, g, less);
            *sums = [part[3] * scale, part[2]];
            plain += w * part[2];
            slope += w * part[3];
        }
        let shift = T::W::of(-plain / count * scale);
        let slope = T::W::of(slope / count * scale * scale * scale);
        let channels = g.chunks(each).zip(x.chunks(each));
        for (((g, x), out), w) in channels.zip(out.chunks_mut(each)).zip(weight) {
            let by = T::W::of(w * scale);
            for ((g, x), o) in g.iter().zip(x).zip(out) {
                *o = T::narrow(g.widen() * by - (x.widen() - less) * slope + shift);
            }
        }
    }
}

/// Rows less their mean over their deviation, each channel scaled and shifted; the mean and `1 / sqrt(var + eps)` of each row.
pub(super) fn forward<T: Float>(
    x: &CpuArray,
    groups: Groups,
    eps: f64,
    by: [&[f64]; 2],
) -> Result<(CpuArray, Vec<[f64; 2]>)> {
    let x = x.contiguous()?;
    let guard = x.read::<T>();
    let data = x.slice(&guard);
    let mut made = scratch([0.0; 2], groups.rows());
    let n = groups.row().max(1);
    let y = CpuArray::build(x.shape(), |out: &mut [T]| {
        let mut jobs: Vec<_> = scratch_from(out.chunks_mut(n).zip(&mut made));
        threads::for_chunks(&mut jobs, 1, groups.grain(), |first, jobs| {
            for (i, (out, made)) in jobs.iter_mut().enumerate() {
                let (row, own) = (first + i, groups.channels_of(first + i));
                let by = by.map(|by| &by[own.clone()]);
                **made = run(Forward { x: &data[row * n..][..n], each: groups.each, eps, by, out });
            }
        });
        Ok(())
    })?;
    Ok((y, made))
}

/// The gradient through that from `g`, with the means and `1 / sqrt(var + eps)` of the rows; of each channel the sums of `g` times
/// what was standardised and of `g`.
pub(super) fn backward<T: Float>(
    x: &CpuArray,
    g: &CpuArray,
    groups: Groups,
    weight: &[f64],
    known: [&[f64]; 2],
) -> Result<(CpuArray, Vec<[f64; 2]>)> {
    let (x, g) = (x.contiguous()?, g.contiguous()?);
    let (guard, g_guard) = (x.read::<T>(), g.read::<T>());
    let (data, gs) = (x.slice(&guard), g.slice(&g_guard));
    let mut parts = scratch([0.0; 2], groups.images * groups.channels);
    let n = groups.row().max(1);
    let dx = CpuArray::build(x.shape(), |out: &mut [T]| {
        let mut jobs: Vec<_> = scratch_from(out.chunks_mut(n).zip(parts.chunks_mut(groups.own.max(1))));
        threads::for_chunks(&mut jobs, 1, groups.grain(), |first, jobs| {
            for (i, (out, sums)) in jobs.iter_mut().enumerate() {
                let (row, own) = (first + i, groups.channels_of(first + i));
                let part = row * n..(row + 1) * n;
                let (g, x) = (&gs[part.clone()], &data[part]);
                let known = known.map(|of| of[row]);
                run(Backward { g, x, each: groups.each, weight: &weight[own], known, out, sums });
            }
        });
        Ok(())
    })?;
    let mut sums = scratch([0.0; 2], groups.channels);
    for image in parts.chunks(groups.channels.max(1)) {
        for (sum, part) in sums.iter_mut().zip(image) {
            sum[0] += part[0];
            sum[1] += part[1];
        }
    }
    Ok((dx, sums))
}
