//! Batch norm of channels that are columns in memory: of features (N, C), of images whose channels are last, and of images of few
//! elements, where each channel is as many columns side by side.
//!
//! Depends on `simd` and `fused`. Invariant: sums over rows are made of blocks of fixed size, so that they do not depend on the
//! number of threads; elements are measured from a mean of some of them, so that sums of squares lose little.

use super::fused::{Compute, Float};
use super::simd::{run, threads, Task, Wide};
use super::CpuArray;
use crate::fallible::{scratch, scratch_from};
use crate::shape::{numel, Axes, Layout};
use crate::Result;

/// Columns that are added up side by side.
const LANES: usize = 16;
/// Rows that are added up in their own precision before going on in double precision.
pub(super) const BLOCK: usize = 64;
/// Rows whose mean elements are measured from.
pub(super) const FIRST: usize = 16;
/// Elements of which the sums of a part of the rows are.
pub(super) const PART: usize = 1 << 15;

/// The most elements of an image for which each is a column.
const FEW: usize = 32;

/// Rows and columns of a matrix that is dense.
#[derive(Clone, Copy)]
pub(super) struct Table {
    rows: usize,
    columns: usize,
    /// Columns of a channel.
    each: usize,
}

impl Table {
    /// Of an array (N, C, …) whose second dimension is the innermost in memory, or of which little is behind that.
    pub(super) fn of(layout: &Layout) -> Option<Table> {
        let &[images, channels, ref rest @ ..] = &layout.shape[..] else { return None };
        let order: Axes = (0..layout.ndim()).filter(|&d| d != 1).chain([1]).collect();
        let each = numel(rest);
        if layout.permuted_by(&order).is_contiguous() {
            return Some(Table { rows: images * each, columns: channels, each: 1 });
        }
        (each <= FEW && layout.is_contiguous()).then_some(Table { rows: images, columns: channels * each, each })
    }

    fn channels(self) -> usize {
        self.columns / self.each.max(1)
    }

    /// How many elements a channel has.
    fn count(self) -> f64 {
        (self.rows * self.each) as f64
    }

    /// What columns sum up to, of each channel.
    fn joined(self, sums: &[f64]) -> Vec<f64> {
        scratch_from(sums.chunks(self.each.max(1)).map(|own| own.iter().sum()))
    }

    /// The numbers of channels for each column, rounded.
    fn spread<W: Compute>(self, numbers: impl Iterator<Item = f64>) -> Vec<W> {
        let mut made = scratch(W::of(0.0), self.columns);
        made.chunks_mut(self.each.max(1)).zip(numbers).for_each(|(own, x)| own.fill(W::of(x)));
        made
    }

    fn numel(self) -> usize {
        self.rows * self.columns
    }

    /// The rows of a part.
    fn part(self) -> usize {
        (PART / self.columns.max(1)).max(1).next_multiple_of(BLOCK)
    }
}

/// Adds the sums of columns to `totals`, first of one and then of the other: of `d` and of `d²`, with `d` the elements less a
/// number; or of `g` and of `g d`.
pub(super) struct Sums<'a, T: Wide> {
    pub(super) x: &'a [T],
    pub(super) g: Option<&'a [T]>,
    pub(super) less: &'a [T::W],
    pub(super) totals: &'a mut [f64],
}
impl<T: Wide<W: Compute>> Task for Sums<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        let Sums { x, g, less, totals } = self;
        let (n, zero) = (less.len(), T::W::of(0.0));
        let (first, second) = totals.split_at_mut(n);
        let whole = n / LANES * LANES;
        for (block, x) in x.chunks(BLOCK * n).enumerate() {
            let g = g.map(|g| &g[block * BLOCK * n..][..x.len()]);
            let mut c = 0;
            while c < whole {
                let mut from = [zero; LANES];
                from.copy_from_slice(&less[c..c + LANES]);
                let mut lanes = [[zero; LANES]; 2];
                for r in (0..x.len()).step_by(n) {
                    let x = &x[r + c..r + c + LANES];
                    match g {
                        None => {
                            for j in 0..LANES {
                                let d = x[j].widen() - from[j];
                                lanes[0][j] = lanes[0][j] + d;
                                lanes[1][j] = lanes[1][j] + d * d;
                            }
                        }
                        Some(g) => {
                            let g = &g[r + c..r + c + LANES];
                            for j in 0..LANES {
                                let v = g[j].widen();
                                lanes[0][j] = lanes[0][j] + v;
                                lanes[1][j] = lanes[1][j] + v * (x[j].widen() - from[j]);
                            }
                        }
                    }
                }
                for j in 0..LANES {
                    first[c + j] += lanes[0][j].into();
                    second[c + j] += lanes[1][j].into();
                }
                c += LANES;
            }
            for c in whole..n {
                let (mut a, mut b) = (zero, zero);
                for r in (0..x.len()).step_by(n) {
                    let d = x[r + c].widen() - less[c];
                    let v = g.map_or(d, |g| g[r + c].widen());
                    a = a + v;
                    b = b + v * d;
                }
                first[c] += a.into();
                second[c] += b.into();
            }
        }
    }
}

/// The sums of [`Sums`] over all rows, of each channel.
fn sums<T: Float>(x: &[T], g: Option<&[T]>, table: Table, less: &[T::W]) -> [Vec<f64>; 2] {
    let (n, each) = (table.columns, table.part() * table.columns);
    let width = 2 * n;
    let mut parts = scratch(0f64, x.len().div_ceil(each.max(1)) * width);
    let grain = (threads::GRAIN / 4).div_ceil(each.max(1)) * width;
    threads::for_chunks(&mut parts, width, grain, |start, parts| {
        for (i, totals) in parts.chunks_mut(width).enumerate() {
            let from = (start / width + i) * each;
            let own = from..(from + each).min(x.len());
            run(Sums { x: &x[own.clone()], g: g.map(|g| &g[own]), less, totals });
        }
    });
    let mut totals = scratch(0f64, width);
    for part in parts.chunks(width) {
        totals.iter_mut().zip(part).for_each(|(total, part)| *total += part);
    }
    [table.joined(&totals[..n]), table.joined(&totals[n..])]
}

/// `(x - less) scale + shift` of each column, or, of `g`, `g scale - (x - less) slope + shift`.
pub(super) struct Lines<'a, T: Wide> {
    pub(super) x: &'a [T],
    pub(super) g: Option<(&'a [T], &'a [T::W])>,
    pub(super) less: &'a [T::W],
    pub(super) scale: &'a [T::W],
    pub(super) shift: &'a [T::W],
    pub(super) out: &'a mut [T],
}
impl<T: Wide<W: Compute>> Task for Lines<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        let Lines { x, g, less, scale, shift, out } = self;
        let n = less.len();
        for (row, (x, out)) in x.chunks(n).zip(out.chunks_mut(n)).enumerate() {
            let by = less.iter().zip(scale).zip(shift);
            match g {
                None => {
                    for ((x, o), ((less, scale), shift)) in x.iter().zip(out).zip(by) {
                        *o = T::narrow((x.widen() - *less) * *scale + *shift);
                    }
                }
                Some((g, slope)) => {
                    let g = &g[row * n..][..x.len()];
                    for ((((x, g), slope), o), ((less, scale), shift)) in x.iter().zip(g).zip(slope).zip(out).zip(by) {
                        *o = T::narrow(g.widen() * *scale - (x.widen() - *less) * *slope + *shift);
                    }
                }
            }
        }
    }
}

/// An array in the order of `x`, whose rows are made of the lines of the columns.
fn lines<T: Float>(
    like: &CpuArray,
    table: Table,
    x: &[T],
    g: Option<(&[T], &[T::W])>,
    by: [&[T::W]; 3],
) -> Result<CpuArray> {
    let [less, scale, shift] = by;
    let flat = CpuArray::build(&[table.numel()], |out: &mut [T]| {
        threads::for_chunks(out, table.columns.max(1), threads::GRAIN / 2, |start, out| {
            let own = start..start + out.len();
            let g = g.map(|(g, slope)| (&g[own.clone()], slope));
            run(Lines { x: &x[own], g, less, scale, shift, out });
        });
        Ok(())
    })?;
    Ok(flat.with_layout(Layout { offset: 0, ..like.layout.clone() }))
}

/// Columns less their mean over their deviation, scaled and shifted, with the mean and the variance of each.
pub(super) fn forward<T: Float>(
    x: &CpuArray,
    table: Table,
    eps: f64,
    weight: &[f64],
    bias: &[f64],
) -> Result<(CpuArray, Vec<[f64; 2]>)> {
    let guard = x.read::<T>();
    let data = &guard[x.layout.offset..][..table.numel()];
    let few = table.rows.clamp(1, FIRST);
    let mut first = scratch(0f64, table.columns);
    for row in data.chunks(table.columns.max(1)).take(few) {
        first.iter_mut().zip(row).for_each(|(sum, x)| *sum += x.widen().into());
    }
    // Exactly what elements are measured from: rounded.
    let from = table.joined(&first).into_iter().map(|sum| T::W::of(sum / (few * table.each) as f64).into());
    let from: Vec<f64> = scratch_from(from);
    let less: Vec<T::W> = table.spread(from.iter().copied());
    let [sums, squares] = sums(data, None, table, &less);
    let moments = from.iter().zip(sums.iter().zip(&squares)).map(|(from, (sum, square))| {
        let mean = sum / table.count();
        let variance = square / table.count() - mean * mean;
        [from + mean, if variance < 0.0 { 0.0 } else { variance }]
    });
    let moments: Vec<[f64; 2]> = scratch_from(moments);
    let by: Vec<f64> = scratch_from(moments.iter().zip(weight).map(|([_, var], w)| w / (var + eps).sqrt()));
    let scale: Vec<T::W> = table.spread(by.iter().copied());
    let shift = (0..table.channels()).map(|c| bias[c] - (moments[c][0] - from[c]) * by[c]);
    let shift: Vec<T::W> = table.spread(shift);
    Ok((lines(x, table, data, None, [&less, &scale, &shift])?, moments))
}

/// The gradient through that from `g`, which is in the order of `x`, with what is known of the columns: means, and `1 / sqrt(var +
/// eps)`. Then of each column the sums of `g` times what was standardised and of `g`.
pub(super) fn backward<T: Float>(
    x: &CpuArray,
    g: &CpuArray,
    table: Table,
    weight: &[f64],
    [mean, scale]: [&[f64]; 2],
) -> Result<(CpuArray, Vec<[f64; 2]>)> {
    let (guard, g_guard) = (x.read::<T>(), g.read::<T>());
    let (data, g) = (&guard[x.layout.offset..][..table.numel()], &g_guard[g.layout.offset..][..table.numel()]);
    let less: Vec<T::W> = table.spread(mean.iter().copied());
    let [sums, met] = sums(data, Some(g), table, &less);
    let (all, count) = (0..table.channels(), table.count());
    let whole: Vec<T::W> = table.spread(all.clone().map(|c| scale[c] * weight[c]));
    let shift: Vec<T::W> = table.spread(all.clone().map(|c| -sums[c] / count * scale[c] * weight[c]));
    let slope: Vec<T::W> =
        table.spread(all.clone().map(|c| met[c] / count * scale[c] * scale[c] * scale[c] * weight[c]));
    let given = scratch_from(all.map(|c| [met[c] * scale[c], sums[c]]));
    Ok((lines(x, table, data, Some((g, &slope)), [&less, &whole, &shift])?, given))
}
