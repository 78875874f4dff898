//! Means of windows, and their gradient.
//!
//! Depends on `simd`. Many short windows are summed side by side, a long one along its own rows.

use super::{each_plane, grain, input_plane, output_plane, some_planes, taps, Tap, Window, Windows};
use crate::fallible::{scratch, scratch_from};
use crate::fused::{Compute, Float};
use crate::simd::{run, sum_of, threads, Task, Wide};
use crate::CpuArray;
use crate::Result;
use lucid_ir::ops::pool::PoolArgs;
use std::ops::Range;

/// What each window along one dimension counts: the places it covers, which end with the padding after the input, or
/// only those inside the input.
fn counts<W: Compute>(w: &Window, include_pad: bool) -> Vec<W> {
    let count = |i: usize| {
        let start = i * w.stride;
        let end = (start + w.taps).min(w.size + 2 * w.padding);
        match include_pad {
            true => end.saturating_sub(start),
            false => end.min(w.size + w.padding).saturating_sub(start.max(w.padding)),
        }
    };
    scratch_from((0..w.count).map(|i| W::of(count(i) as f64)))
}

/// What each window of a plane is divided by.
fn divisors<W: Compute>(w: &Windows, args: &PoolArgs) -> Vec<W> {
    if let Some(d) = args.divisor {
        return scratch(W::of(d as f64), output_plane(w));
    }
    let [d, h, ww] = w.each_ref().map(|w| counts::<W>(w, args.count_include_pad));
    let rows = d.iter().flat_map(|&d| h.iter().map(move |&h| d * h));
    scratch_from(rows.flat_map(|row| ww.iter().map(move |&c| row * c)))
}

/// The means of the windows of some planes.
struct Means<'a, T: Wide> {
    w: &'a Windows,
    taps: &'a [Tap],
    /// What the windows of a plane are divided by.
    by: &'a [T::W],
    x: &'a [T],
    out: &'a mut [T],
}

/// Elements of a window's row from which it is summed by itself.
const LONG: usize = 16;

/// Are windows so wide that each is summed by itself?
fn is_long(w: &Windows) -> bool {
    w[2].taps >= LONG && w.iter().all(|w| w.dilation == 1)
}

/// The sum of each window along its rows; rows that follow one another are one.
#[inline(always)]
fn along_rows<T: Float>([wd, wh, ww]: &Windows, x: &[T], sums: &mut [T::W]) {
    let span = |w: &Window, i: usize| -> Range<usize> {
        let start = i * w.stride;
        let end = (start + w.taps).saturating_sub(w.padding).min(w.size);
        start.saturating_sub(w.padding).min(end)..end
    };
    for (i, sum) in sums.iter_mut().enumerate() {
        let (row, columns) = (i / ww.count, span(ww, i % ww.count));
        let (depths, rows) = (span(wd, row / wh.count), span(wh, row % wh.count));
        let mut all = 0.0;
        for d in depths {
            let at = |row: usize| (d * wh.size + row) * ww.size;
            if columns.len() == ww.size {
                all += sum_of(&x[at(rows.start)..at(rows.end)]);
            } else {
                for row in rows.clone() {
                    all += sum_of(&x[at(row)..][columns.clone()]);
                }
            }
        }
        *sum = T::W::of(all);
    }
}

/// The sums of a plane's windows, tap by tap.
#[inline(always)]
fn by_taps<T: Float>(stride: usize, taps: &[Tap], x: &[T], sums: &mut [T::W]) {
    sums.fill(T::W::of(0.0));
    for &Tap { to, len, from } in taps {
        let (sums, x) = (sums[to..to + len].iter_mut(), &x[from..]);
        match stride {
            1 => sums.zip(x).for_each(|(s, x)| *s = *s + x.widen()),
            2 => sums.zip(x.iter().step_by(2)).for_each(|(s, x)| *s = *s + x.widen()),
            step => sums.zip(x.iter().step_by(step)).for_each(|(s, x)| *s = *s + x.widen()),
        }
    }
}

impl<T: Float> Task for Means<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        let Means { w, taps, by, x, out } = self;
        let (size, long) = (input_plane(w), is_long(w));
        let mut sums = scratch(T::W::of(0.0), by.len());
        for (i, out) in out.chunks_mut(by.len()).enumerate() {
            let x = &x[i * size..(i + 1) * size];
            if long {
                along_rows(w, x, &mut sums);
            } else {
                by_taps(w[2].stride, taps, x, &mut sums);
            }
            for ((o, &sum), &by) in out.iter_mut().zip(&sums).zip(by) {
                // A window beside the input covers nothing.
                *o = T::narrow(if by == T::W::of(0.0) { by } else { sum / by });
            }
        }
    }
}

pub(super) fn average<T: Float>(x: &CpuArray, w: &Windows, args: &PoolArgs, shape: &[usize]) -> Result<CpuArray> {
    let x = x.contiguous()?;
    let guard = x.read::<T>();
    let data = x.slice(&guard);
    let by = if data.is_empty() { Vec::new() } else { divisors::<T::W>(w, args) };
    let taps = if is_long(w) { Vec::new() } else { taps(w, data.len()) };
    CpuArray::build(shape, |out: &mut [T]| {
        some_planes(data, input_plane(w), out, output_plane(w), grain(w), |x, out| {
            run(Means { w, taps: &taps, by: &by, x, out });
        });
        Ok(())
    })
}

pub(super) fn spread<T: Float>(g: &CpuArray, w: &Windows, args: &PoolArgs, shape: &[usize]) -> Result<CpuArray> {
    let g = g.contiguous()?;
    let guard = g.read::<T>();
    let data = g.slice(&guard);
    let by = if data.is_empty() { Vec::new() } else { divisors::<T::W>(w, args) };
    let taps = taps(w, data.len());
    CpuArray::build(shape, |out: &mut [T]| {
        each_plane(data, output_plane(w), out, input_plane(w), threads::GRAIN / 8, |g, out| {
            let zero = T::W::of(0.0);
            let share = |(g, &by): (&T, &T::W)| if by == zero { zero } else { g.widen() / by };
            let shares: Vec<T::W> = scratch_from(g.iter().zip(&by).map(share));
            let mut sums = scratch(zero, out.len());
            for &Tap { to, len, from } in &taps {
                let sums = sums[from..].iter_mut().step_by(w[2].stride);
                sums.zip(&shares[to..to + len]).for_each(|(s, &x)| *s = *s + x);
            }
            out.iter_mut().zip(sums).for_each(|(o, sum)| *o = T::narrow(sum));
        });
        Ok(())
    })
}
