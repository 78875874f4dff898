//! Inputs laid out so that a convolution needs no columns: padded planes in which each tap is a shift.
//!
//! Depends on `simd` only. Along each dimension the elements that a stride never brings together are in planes of their
//! own (phases), so that for every tap the elements that neighbouring places meet are neighbours too. The places are
//! numbered through all rows, planes and images of a block; those that exist only between rows are computed where a
//! tile covers them, and dropped. Invariant: results depend on neither the block of images nor the number of threads.

use super::super::simd::tile::{to_write, Along, Offsets, Part, Run, Size, Tiles, TILE};
use super::super::simd::{run, threads, Task};
use crate::fallible::{scratch, scratch_from, scratch_resize, scratch_room};
use std::marker::PhantomData;
use std::ops::{Add, Range};

/// A dimension of a plane.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// Elements of what is laid out.
    pub size: usize,
    /// Steps between neighbours of a phase.
    pub stride: usize,
    /// Zeros before the first element.
    pub padding: usize,
    /// Phases that are laid out.
    pub phases: usize,
    /// Elements of a phase.
    pub len: usize,
}

/// The layout of channels in planes: channel, phase, image, then the three dimensions.
#[derive(Clone, Debug)]
pub struct Planes {
    lines: [Line; 3],
    images: usize,
    /// Elements of one image in one phase.
    plane: usize,
    /// Elements from channel to channel.
    pub channel: usize,
}

impl Planes {
    /// For a block of images, channels beginning at multiples of `unit`.
    pub fn new(lines: [Line; 3], images: usize, unit: usize) -> Planes {
        let plane = lines.iter().map(|l| l.len).product();
        let phases: usize = lines.iter().map(|l| l.phases).product();
        Planes { lines, images, plane, channel: (phases * images * plane).next_multiple_of(unit) }
    }

    /// The elements of a channel of one image with the dimensions given, unless that is absurdly large.
    pub fn elements(lines: &[Line; 3]) -> Option<usize> {
        lines.iter().try_fold(1usize, |n, l| n.checked_mul(l.phases)?.checked_mul(l.len))
    }

    /// From the first place to what an element so many steps along each dimension is to it, in the first channel.
    pub fn shift(&self, steps: [usize; 3]) -> usize {
        let (mut phase, mut at) = (0, 0);
        for (line, step) in self.lines.iter().zip(steps) {
            phase = phase * line.phases + step % line.stride;
            at = at * line.len + step / line.stride;
        }
        phase * self.images * self.plane + at
    }

    /// Distances of neighbours along image and the three dimensions.
    pub fn pitches(&self) -> [usize; 4] {
        let [_, h, w] = &self.lines;
        [self.plane, h.len * w.len, w.len, 1]
    }

    /// Lays out channels: `x` has one image after another, `pitch` elements apart, of `space` elements per channel.
    /// Writes `channel` elements for each channel, and zeros beyond them.
    pub fn fill<T: Tiles + Send + Sync>(
        &self,
        x: &[T],
        channels: usize,
        pitch: usize,
        space: usize,
        out: &mut [T],
        wide: bool,
    ) {
        let (out, slack) = out.split_at_mut(channels * self.channel);
        slack.fill(T::default());
        let fill = |start: usize, out: &mut [T]| {
            for (i, out) in out.chunks_mut(self.channel).enumerate() {
                run(FillChannel { planes: self, x: &x[(start / self.channel + i) * space..], pitch, out });
            }
        };
        match wide {
            true => threads::for_chunks(out, self.channel, threads::GRAIN, fill),
            false => fill(0, out),
        }
    }

    #[inline(always)]
    fn fill_channel<T: Tiles>(&self, x: &[T], pitch: usize, out: &mut [T]) {
        let [ld, lh, lw] = &self.lines;
        let mut at = 0;
        if self.lines.iter().all(|l| l.stride == 1 && l.padding == 0 && l.len == l.size) {
            let (planes, rest) = out.split_at_mut(self.images * self.plane);
            planes
                .chunks_mut(self.plane.max(1))
                .enumerate()
                .for_each(|(i, o)| o.copy_from_slice(&x[i * pitch..][..o.len()]));
            return rest.fill(T::default());
        }
        for phase in 0..ld.phases * lh.phases * lw.phases {
            let [pd, ph, pw] = [phase / (lh.phases * lw.phases), phase / lw.phases % lh.phases, phase % lw.phases];
            // Of a row, those places that meet an element.
            let from = lw.padding.saturating_sub(pw).div_ceil(lw.stride).min(lw.len);
            let to = (lw.size + lw.padding).saturating_sub(pw).div_ceil(lw.stride).clamp(from, lw.len);
            let first = from * lw.stride + pw - lw.padding.min(from * lw.stride + pw);
            for image in 0..self.images {
                for d in 0..ld.len {
                    let d = (d * ld.stride + pd).checked_sub(ld.padding).filter(|&d| d < ld.size);
                    for h in 0..lh.len {
                        let h = (h * lh.stride + ph).checked_sub(lh.padding).filter(|&h| h < lh.size);
                        let row = &mut out[at..at + lw.len];
                        at += lw.len;
                        let (Some(d), Some(h), true) = (d, h, from < to) else {
                            row.fill(T::default());
                            continue;
                        };
                        row[..from].fill(T::default());
                        row[to..].fill(T::default());
                        let x = &x[image * pitch + (d * lh.size + h) * lw.size + first..];
                        match lw.stride {
                            1 => row[from..to].copy_from_slice(&x[..to - from]),
                            // The compiler makes vectors of this where it knows the step.
                            2 => {
                                let Some((last, row)) = row[from..to].split_last_mut() else { continue };
                                row.iter_mut().zip(x.as_chunks::<2>().0).for_each(|(o, x)| *o = x[0]);
                                *last = x[2 * row.len()];
                            }
                            s => row[from..to].iter_mut().zip(x.iter().step_by(s)).for_each(|(o, x)| *o = *x),
                        }
                    }
                }
            }
        }
        out[at..].fill(T::default());
    }
}

/// One channel of [`Planes::fill`].
struct FillChannel<'a, T> {
    planes: &'a Planes,
    x: &'a [T],
    pitch: usize,
    out: &'a mut [T],
}
impl<T: Tiles> Task for FillChannel<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        self.planes.fill_channel(self.x, self.pitch, self.out);
    }
}

/// Places along one dimension, and where their results go.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    /// The first place's coordinate.
    pub first: usize,
    /// Places.
    pub count: usize,
    /// The first result's index.
    pub to: usize,
    /// Distance of the results.
    pub step: usize,
}

/// Neighbouring places, and where the first one's result goes.
#[derive(Clone, Copy, Debug)]
struct Row {
    place: usize,
    len: usize,
    to: usize,
}

/// The places that results are wanted of.
#[derive(Debug)]
pub struct Grid {
    runs: Vec<Row>,
    step: usize,
}

impl Grid {
    /// Over image and three dimensions with the places' distances.
    pub fn new(axes: [Axis; 4], pitches: [usize; 4]) -> Grid {
        let [lead @ .., last] = axes;
        let mut runs: Vec<Row> = Vec::new();
        let mut at = [0; 3];
        if axes.iter().any(|a| a.count == 0) {
            return Grid { runs, step: 1 };
        }
        loop {
            let (mut place, mut to) = (last.first * pitches[3], last.to);
            for ((axis, at), pitch) in lead.iter().zip(at).zip(pitches) {
                place += (axis.first + at) * pitch;
                to += axis.to + at * axis.step;
            }
            match runs.last_mut() {
                Some(run) if run.place + run.len == place && run.to + run.len * last.step == to => {
                    run.len += last.count
                }
                _ => runs.push(Row { place, len: last.count, to }),
            }
            let Some(i) = (0..3).rev().find(|&i| at[i] + 1 < lead[i].count) else {
                return Grid { runs, step: last.step };
            };
            at[i] += 1;
            at[i + 1..].fill(0);
        }
    }

    /// The runs of places.
    pub fn runs(&self) -> Vec<Run> {
        scratch_from(self.runs.iter().map(|r| Run { place: r.place, len: r.len }))
    }

    /// The first place of each tile of `n`, with the run that it is in, so that every wanted place is in a tile.
    fn tiles(&self, n: usize) -> Vec<(usize, usize)> {
        let (mut tiles, mut end) = (Vec::new(), 0);
        for (i, run) in self.runs.iter().enumerate() {
            let mut place = run.place.max(end);
            while place < run.place + run.len {
                tiles.push((place, i));
                place += n;
                end = place;
            }
        }
        tiles
    }
}

/// Sums over taps: `out[row, place] = sum over k of weight[k, row] planes[place + offset k]`.
pub struct Pass<T> {
    size: Size,
    rows: usize,
    offsets: Offsets,
    grid: Grid,
    /// The first place of each tile, and its parts.
    tiles: Vec<(usize, Range<usize>)>,
    /// What of tiles' rows is wanted.
    parts: Vec<Part>,
    numbers: PhantomData<T>,
}

/// Elements of planes that tiles of one block of places read: they stay in the cache while the rows change.
const BLOCK: usize = 48 << 10;

impl<T: Tiles + Add<Output = T> + Send + Sync> Pass<T> {
    /// For a number of rows and the places of a grid.
    pub fn new(rows: usize, offsets: Offsets, grid: Grid) -> Pass<T> {
        // The cheapest size of tiles; one with a single row loads as often as it multiplies, and to turn one costs about as much as
        // so many terms.
        const TURN: usize = 6;
        let cost = |s: &Size| {
            let tiles = grid.tiles(s.places).len() * s.places * rows.next_multiple_of(s.rows);
            match s.along {
                Along::Places if s.rows == 1 => tiles * offsets.len() * 2,
                Along::Places => tiles * offsets.len(),
                Along::Rows => tiles * (offsets.len() + TURN),
            }
        };
        let size = T::kernels().sizes.iter().copied().min_by_key(cost).unwrap_or(T::kernels().sizes[0]);
        let mut parts = Vec::new();
        let mut of_tile = |(place, run): (usize, usize)| {
            let (first, end) = (parts.len(), place + size.places);
            for r in grid.runs[run..].iter().take_while(|r| r.place < end) {
                let (from, to) = (r.place.max(place), end.min(r.place + r.len));
                parts.push(Part { from: from - place, len: to - from, to: r.to + (from - r.place) * grid.step });
            }
            (place, first..parts.len())
        };
        let tiles = scratch_from(grid.tiles(size.places).into_iter().map(&mut of_tile));
        Pass { size, rows, offsets, grid, tiles, parts, numbers: PhantomData }
    }

    /// `weight(group, k, row)` of all groups as [`Pass::run`] reads them: by tile of rows, offset, and row.
    pub fn weights(&self, groups: usize, weight: impl Fn(usize, usize, usize) -> T) -> Vec<T> {
        let m = self.size.rows;
        let mut out = scratch_room(groups * self.rows.next_multiple_of(m) * self.offsets.len());
        for group in 0..groups {
            for start in (0..self.rows).step_by(m) {
                for k in 0..self.offsets.len() {
                    let row = |row| if row < self.rows { weight(group, k, row) } else { T::default() };
                    out.extend((start..start + m).map(row));
                }
            }
        }
        out
    }

    /// One group's part of the weights.
    pub fn of_group<'a>(&self, weights: &'a [T], group: usize) -> &'a [T] {
        let n = self.rows.next_multiple_of(self.size.rows) * self.offsets.len();
        &weights[group * n..][..n]
    }

    /// Elements of the planes from the first to the last that tiles read.
    pub fn reach(&self) -> usize {
        self.tiles.last().map_or(0, |(place, _)| self.offsets.reach(place + self.size.places))
    }

    /// Rows that are computed together.
    pub fn rows_at_once(&self) -> usize {
        self.size.rows
    }

    /// Multiplications, those for dropped results included.
    pub fn work(&self) -> usize {
        self.tiles.len() * self.size.places * self.rows.next_multiple_of(self.size.rows) * self.offsets.len()
    }

    /// Computes some rows, the first a multiple of those computed at once; rows of results are `pitch` apart in `out`,
    /// which begins with the first one of them.
    pub fn run(
        &self,
        weights: &[T],
        planes: &[T],
        rows: Range<usize>,
        bias: Option<&[T]>,
        out: &mut [T],
        pitch: usize,
    ) {
        let Size { rows: m, places: n, along } = self.size;
        let k = self.offsets.len();
        let (kernels, mut sums, zeros) = (T::kernels(), [T::default(); TILE], [T::default(); TILE]);
        let together = (BLOCK / (n * k).max(1)).max(4);
        for tiles in self.tiles.chunks(together) {
            for start in rows.clone().step_by(m) {
                let weights = &weights[start / m * k * m..][..k * m];
                let end = rows.end.min(start + m);
                let bias = bias.map_or(&zeros[..end - start], |bias| &bias[start..end]);
                let out = &mut out[(start - rows.start) * pitch..];
                for (place, parts) in tiles {
                    let parts = &self.parts[parts.clone()];
                    if along == Along::Places && m > 1 {
                        // By the time that the sums are there, so are the lines that they go to; those of one row are there at once.
                        for part in parts {
                            (0..bias.len()).for_each(|row| to_write(&out[row * pitch + part.to..][..part.len]));
                        }
                    }
                    kernels.gather(self.size, weights, planes, &self.offsets, *place, &mut sums);
                    if self.grid.step == 1 {
                        kernels.put(&sums, n, bias, parts, out, pitch);
                        continue;
                    }
                    for ((row, sums), bias) in sums.chunks(n).enumerate().zip(bias) {
                        for Part { from, len, to } in parts {
                            let out = out[row * pitch + to..].iter_mut().step_by(self.grid.step);
                            out.zip(&sums[*from..from + len]).for_each(|(o, s)| *o = *s + *bias);
                        }
                    }
                }
            }
        }
    }
}

/// Adds products over places: `out[row, k] += sum over p of a[row_at + p] b[offset k + p]`, `n` places, a multiple of
/// the step, `pitch` between the rows of `a`.
pub fn add_dots<T: Tiles + Add<Output = T>>(
    a: &[T],
    pitch: usize,
    rows: usize,
    b: &[T],
    offsets: &[usize],
    n: usize,
    out: &mut [T],
) {
    let cost = |&(i, j): &(usize, usize)| {
        let products = rows.next_multiple_of(i) * offsets.len().next_multiple_of(j);
        if i == 1 {
            products * 2
        } else {
            products
        }
    };
    let kernels = T::kernels();
    let (i, j) = kernels.blocks.iter().copied().min_by_key(cost).unwrap_or(kernels.blocks[0]);
    let mut sums = [T::default(); TILE];
    let k = offsets.len();
    let (mut left, mut right) = (scratch(0, i), scratch(0, j));
    for taps in (0..k).step_by(j) {
        // Beyond the last one: again, and dropped.
        right.iter_mut().enumerate().for_each(|(t, at)| *at = offsets[(taps + t).min(k - 1)]);
        for start in (0..rows).step_by(i) {
            left.iter_mut().enumerate().for_each(|(r, at)| *at = (start + r).min(rows - 1) * pitch);
            kernels.dots(a, &left, b, &right, n, &mut sums);
            for row in start..rows.min(start + i) {
                let out = &mut out[row * k + taps..row * k + k.min(taps + j)];
                out.iter_mut().zip(&sums[(row - start) * j..]).for_each(|(o, s)| *o = *o + *s);
            }
        }
    }
}

/// Places that are multiplied at a time: their part of the output's gradient stays in the cache while the taps change.
const PLACES: usize = 512;

/// Products of elements and gradients, summed over places, in tiles of taps and outputs.
pub struct Outer<T> {
    size: Size,
    taps: usize,
    outputs: usize,
    sums: Vec<T>,
    transposed: Vec<T>,
}

impl<T: Tiles + Add<Output = T>> Outer<T> {
    /// All sums zero.
    pub fn new(taps: usize, outputs: usize) -> Outer<T> {
        let cost = |s: &Size| {
            let products = taps.next_multiple_of(s.rows) * outputs.next_multiple_of(s.places);
            // One register of outputs: nearly as many loads as products.
            if s.places == T::kernels().step {
                products * 5 / 4
            } else {
                products
            }
        };
        let size = T::kernels().outers.iter().copied().min_by_key(cost).unwrap_or(T::kernels().outers[0]);
        let n = taps.next_multiple_of(size.rows) * outputs.next_multiple_of(size.places);
        Outer { size, taps, outputs, sums: scratch(T::default(), n), transposed: Vec::new() }
    }

    /// Adds `x[offset of tap + place] g[output, number of the place]` for all places of the runs; rows of `g` are `pitch`
    /// apart.
    pub fn add(&mut self, x: &[T], offsets: &[usize], runs: &[Run], g: &[T], pitch: usize) {
        let ld = self.outputs.next_multiple_of(self.size.places);
        let (mut block, mut len, mut first) = (Vec::new(), 0, 0);
        for run in runs {
            let (mut place, end) = (run.place, run.place + run.len);
            while place < end {
                let n = (end - place).min(PLACES - len);
                block.push(Run { place, len: n });
                (place, len) = (place + n, len + n);
                if len == PLACES {
                    self.add_block(x, offsets, &block, &g[first..], pitch, len, ld);
                    block.clear();
                    (first, len) = (first + len, 0);
                }
            }
        }
        if len > 0 {
            self.add_block(x, offsets, &block, &g[first..], pitch, len, ld);
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn add_block(&mut self, x: &[T], offsets: &[usize], runs: &[Run], g: &[T], pitch: usize, places: usize, ld: usize) {
        let Size { rows: m, places: n, .. } = self.size;
        scratch_resize(&mut self.transposed, PLACES * ld, T::default());
        transpose(g, pitch, self.outputs, places, &mut self.transposed, ld);
        let mut at = scratch(0, m);
        let (kernels, mut sums) = (T::kernels(), self.sums.chunks_mut(m * n));
        for taps in (0..self.taps).step_by(m) {
            // Beyond the last tap: again, and dropped.
            at.iter_mut().enumerate().for_each(|(i, at)| *at = offsets[(taps + i).min(self.taps - 1)]);
            for output in (0..ld).step_by(n) {
                let Some(sums) = sums.next() else { return };
                kernels.outer(self.size, x, &at, runs, &self.transposed[output..], ld, sums);
            }
        }
    }

    /// Adds the sums to `out[output, tap]`.
    pub fn finish(&self, out: &mut [T]) {
        let Size { rows: m, places: n, .. } = self.size;
        let across = self.outputs.div_ceil(n);
        for output in 0..self.outputs {
            for tap in 0..self.taps {
                let tile = tap / m * across + output / n;
                let o = &mut out[output * self.taps + tap];
                *o = *o + self.sums[(tile * m + tap % m) * n + output % n];
            }
        }
    }
}

/// `out[place, row] = g[row, place]`, in squares that fit a few lines of the cache.
fn transpose<T: Copy>(g: &[T], pitch: usize, rows: usize, places: usize, out: &mut [T], ld: usize) {
    const SIDE: usize = 16;
    for first in (0..rows).step_by(SIDE) {
        let n = SIDE.min(rows - first);
        for place in (0..places).step_by(SIDE) {
            let m = SIDE.min(places - place);
            for row in first..first + n {
                let from = &g[row * pitch + place..][..m];
                for (i, x) in from.iter().enumerate() {
                    out[(place + i) * ld + row] = *x;
                }
            }
        }
    }
}
