//! Group norm of images whose channels are last: in memory each image is a matrix whose columns are channels.
//!
//! Depends on `simd`, `fused` and `batch_norm_columns`, whose sums of columns and lines it takes. Invariant: sums are made of parts of
//! fixed size of each image, so that they do not depend on the number of threads.

use super::batch_norm_columns::{Lines, Sums, BLOCK, FIRST, PART};
use super::fused::{Compute, Float};
use super::simd::{run, threads};
use super::CpuArray;
use crate::fallible::{scratch, scratch_from};
use crate::shape::{numel, Axes, Layout};
use crate::Result;

/// A dense array (N, C, …) with its second dimension innermost in memory.
#[derive(Clone, Copy)]
pub(super) struct Images {
    count: usize,
    /// Elements of a channel of an image.
    rows: usize,
    channels: usize,
    groups: usize,
}

impl Images {
    /// Nothing for what is row-major, and for other orders.
    pub(super) fn of(layout: &Layout, groups: usize) -> Option<Images> {
        let &[count, channels, ref rest @ ..] = &layout.shape[..] else { return None };
        let order: Axes = (0..layout.ndim()).filter(|&d| d != 1).chain([1]).collect();
        let dense = layout.permuted_by(&order).is_contiguous() && !layout.is_contiguous();
        (dense && groups > 0).then_some(Images { count, rows: numel(rest), channels, groups })
    }

    fn numel(self) -> usize {
        self.count * self.image()
    }

    fn image(self) -> usize {
        self.rows * self.channels
    }

    /// Channels of a group.
    fn own(self) -> usize {
        (self.channels / self.groups).max(1)
    }

    /// How many elements a group has.
    fn size(self) -> f64 {
        (self.rows * self.own()) as f64
    }

    /// Elements of a part of an image.
    fn part(self) -> usize {
        (PART / self.channels.max(1)).max(1).next_multiple_of(BLOCK) * self.channels
    }

    /// The numbers of groups, one image after another, for each channel, rounded.
    fn spread<W: Compute>(self, numbers: &[f64]) -> Vec<W> {
        scratch_from(numbers.iter().flat_map(|&x| std::iter::repeat_n(W::of(x), self.own())))
    }
}

/// Of each image the sums of its columns: of `d` and of `d²`, with `d` the elements less a number, or of `g` and of `g d`.
fn sums<T: Float>(x: &[T], g: Option<&[T]>, of: Images, less: &[T::W]) -> Vec<f64> {
    let (width, part) = (2 * of.channels, of.part());
    let parts = of.image().div_ceil(part.max(1));
    let mut made = scratch(0f64, of.count * parts * width);
    let grain = (threads::GRAIN / 4).div_ceil(part.max(1)) * width;
    threads::for_chunks(&mut made, width, grain, |start, made| {
        for (i, totals) in made.chunks_mut(width).enumerate() {
            let (image, nr) = ((start / width + i) / parts, (start / width + i) % parts);
            let own = image * of.image() + nr * part..image * of.image() + of.image().min((nr + 1) * part);
            let less = &less[image * of.channels..][..of.channels];
            run(Sums { x: &x[own.clone()], g: g.map(|g| &g[own]), less, totals });
        }
    });
    let mut totals = scratch(0f64, of.count * width);
    for (totals, made) in totals.chunks_mut(width).zip(made.chunks(parts * width)) {
        for part in made.chunks(width) {
            totals.iter_mut().zip(part).for_each(|(total, part)| *total += part);
        }
    }
    totals
}

/// An array in the order of `x`, whose rows are made of the lines of the columns of their image.
fn lines<T: Float>(
    like: &CpuArray,
    of: Images,
    x: &[T],
    g: Option<(&[T], &[T::W])>,
    by: [&[T::W]; 3],
) -> Result<CpuArray> {
    let flat = CpuArray::build(&[of.numel()], |out: &mut [T]| {
        threads::for_chunks(out, of.channels, threads::GRAIN / 2, |start, out| {
            let (mut at, end) = (start, start + out.len());
            while at < end {
                let image = at / of.image();
                let own = at..end.min((image + 1) * of.image());
                let columns = image * of.channels..(image + 1) * of.channels;
                let [less, scale, shift] = by.map(|by| &by[columns.clone()]);
                let g = g.map(|(g, slope)| (&g[own.clone()], &slope[columns]));
                let out = &mut out[own.start - start..own.end - start];
                run(Lines { x: &x[own.clone()], g, less, scale, shift, out });
                at = own.end;
            }
        });
        Ok(())
    })?;
    Ok(flat.with_layout(Layout { offset: 0, ..like.layout.clone() }))
}

/// Groups less their mean over their deviation, each channel scaled and shifted; the mean and `1 / sqrt(var + eps)` of each group.
pub(super) fn forward<T: Float>(
    x: &CpuArray,
    of: Images,
    eps: f64,
    [weight, bias]: [&[f64]; 2],
) -> Result<(CpuArray, Vec<[f64; 2]>)> {
    let guard = x.read::<T>();
    let data = &guard[x.layout.offset..][..of.numel()];
    let few = of.rows.clamp(1, FIRST);
    let mut from = scratch(0f64, of.count * of.groups);
    for (from, image) in from.chunks_mut(of.groups).zip(data.chunks(of.image().max(1))) {
        for row in image.chunks(of.channels.max(1)).take(few) {
            for (from, own) in from.iter_mut().zip(row.chunks(of.own())) {
                *from += own.iter().map(|x| x.widen().into()).sum::<f64>();
            }
        }
        // Exactly what elements are measured from: rounded.
        from.iter_mut().for_each(|from| *from = T::W::of(*from / (few * of.own()) as f64).into());
    }
    let less: Vec<T::W> = of.spread(&from);
    let totals = sums(data, None, of, &less);
    let mut known = scratch([0.0; 2], of.count * of.groups);
    let mut scale = scratch(T::W::of(0.0), of.count * of.channels);
    let mut shift = scratch(T::W::of(0.0), of.count * of.channels);
    for (i, known) in known.iter_mut().enumerate() {
        let (image, own) = (i / of.groups, i % of.groups * of.own()..(i % of.groups + 1) * of.own());
        let totals = &totals[image * 2 * of.channels..][..2 * of.channels];
        let sum = |totals: &[f64]| totals[own.clone()].iter().sum::<f64>() / of.size();
        let (mean, square) = (sum(&totals[..of.channels]), sum(&totals[of.channels..]));
        let variance = square - mean * mean;
        *known = [from[i] + mean, 1.0 / (if variance < 0.0 { 0.0 } else { variance } + eps).sqrt()];
        for c in own {
            let by = known[1] * weight[c];
            scale[image * of.channels + c] = T::W::of(by);
            shift[image * of.channels + c] = T::W::of(bias[c] - mean * by);
        }
    }
    Ok((lines(x, of, data, None, [&less, &scale, &shift])?, known))
}

/// The gradient through that from `g`, which is in the order of `x`, with the means and `1 / sqrt(var + eps)` of the groups; of
/// each channel the sums of `g` times what was standardised and of `g`.
pub(super) fn backward<T: Float>(
    x: &CpuArray,
    g: &CpuArray,
    of: Images,
    weight: &[f64],
    [mean, scale]: [&[f64]; 2],
) -> Result<(CpuArray, Vec<[f64; 2]>)> {
    let (guard, g_guard) = (x.read::<T>(), g.read::<T>());
    let (data, g) = (&guard[x.layout.offset..][..of.numel()], &g_guard[g.layout.offset..][..of.numel()]);
    let less: Vec<T::W> = of.spread(mean);
    let totals = sums(data, Some(g), of, &less);
    let mut given = scratch([0.0; 2], of.channels);
    let numbers = || scratch(T::W::of(0.0), of.count * of.channels);
    let (mut whole, mut slope, mut shift) = (numbers(), numbers(), numbers());
    for (i, scale) in scale.iter().enumerate() {
        let (image, own) = (i / of.groups, i % of.groups * of.own()..(i % of.groups + 1) * of.own());
        let (plain, met) = totals[image * 2 * of.channels..][..2 * of.channels].split_at(of.channels);
        // Elements are measured from the mean as it was rounded.
        let off = mean[i] - less[image * of.channels + own.start].into();
        let met = |c: usize| met[c] - off * plain[c];
        let (mut all, mut along) = (0.0, 0.0);
        for c in own.clone() {
            given[c][0] += met(c) * scale;
            given[c][1] += plain[c];
            all += weight[c] * plain[c];
            along += weight[c] * met(c);
        }
        let by = along / of.size() * scale * scale * scale;
        for c in own {
            let at = image * of.channels + c;
            whole[at] = T::W::of(weight[c] * scale);
            slope[at] = T::W::of(by);
            shift[at] = T::W::of(off * by - all / of.size() * scale);
        }
    }
    Ok((lines(x, of, data, Some((g, &slope)), [&less, &whole, &shift])?, given))
}
