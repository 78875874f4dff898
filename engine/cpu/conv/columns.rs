//! Convolutions by a matrix of columns (im2col): the windows of a block of output places are its columns, and one product
//! takes them.
//!
//! Depends on `blas` and `simd`. Windows of one element need no copy, and groups of one channel no product. For sizes
//! that `direct` leaves alone; it is tested against this. Invariant: scratch memory is a few MiB per thread, whatever the
//! sizes, and results do not depend on the number of threads.

use super::super::blas::{gemm, gemm_here, Gemm, Matrix, Product};
use super::super::fused::{Compute, Float};
use super::super::simd::{run, threads, Task};
use super::{Sizes, WORK, WORTH_CUTTING};
use crate::fallible::{scratch, scratch_resize};
use std::ops::Range;

/// Elements of a block of columns.
const COLUMNS: usize = 1 << 18;
/// Elements of a weight beyond which its gradient is not summed in parts side by side.
const PARTS: usize = 1 << 17;

impl Sizes {
    /// Columns of a block.
    fn block(&self) -> usize {
        (COLUMNS / self.depth().max(1)).clamp(64.min(self.area), self.area)
    }

    /// Runs `f(unit, its part of out, scratch, wide)` for all units: side by side where there are enough of them, else one
    /// by one, `wide` telling `f` to use the pool itself.
    pub(super) fn each_unit<T, F>(&self, out: &mut [T], size: usize, f: F)
    where
        T: Send,
        F: Fn(usize, &mut [T], &mut Vec<T>, bool) + Sync,
    {
        if out.is_empty() {
            return;
        }
        let work = (self.outputs * self.area * self.depth()).max(1);
        let units = out.len() / size;
        if units < threads::num_threads() && work > WORTH_CUTTING && !self.is_depthwise() {
            let mut scratch = Vec::new();
            out.chunks_mut(size).enumerate().for_each(|(unit, out)| f(unit, out, &mut scratch, true));
            return;
        }
        threads::for_chunks(out, size, (WORK / work).max(1) * size, |start, out| {
            let mut scratch = Vec::new();
            for (i, out) in out.chunks_mut(size).enumerate() {
                f(start / size + i, out, &mut scratch, false);
            }
        });
    }

    /// The pieces of a row of columns: for each run of output places in a row of the image, `f` gets where it begins, how
    /// many places are before the input, in it, and after it, and which element the first one inside meets.
    fn pieces(&self, tap: usize, places: Range<usize>, mut f: impl FnMut(usize, [usize; 3], usize)) {
        let [wd, wh, ww] = &self.windows;
        let (td, th, tw) = (tap / (wh.taps * ww.taps), tap / ww.taps % wh.taps, tap % ww.taps);
        let inside = ww.inside(tw);
        let (mut at, mut row, mut column) = (places.start, places.start / ww.count, places.start % ww.count);
        while at < places.end {
            let end = ww.count.min(column + places.end - at);
            let line = wd.at(row / wh.count, td).zip(wh.at(row % wh.count, th));
            let (from, to) = (inside.start.clamp(column, end), inside.end.clamp(column, end));
            match line {
                Some((d, h)) if from < to => {
                    let first = (d * wh.size + h) * ww.size + from * ww.stride + tw * ww.dilation - ww.padding;
                    f(at - places.start, [from - column, to - from, end - to], first);
                }
                Some(_) | None => f(at - places.start, [end - column, 0, 0], 0),
            }
            at += end - column;
            (row, column) = (row + 1, 0);
        }
    }

    /// The matrix of columns for a range of output places: one row per input channel and tap.
    fn columns<T: Compute>(&self, x: &[T], places: Range<usize>, out: &mut [T], wide: bool) {
        let (n, stride) = (places.len(), self.windows[2].stride);
        let fill = |start: usize, rows: &mut [T]| {
            for (i, row) in rows.chunks_mut(n).enumerate() {
                let (channel, tap) = ((start / n + i) / self.taps, (start / n + i) % self.taps);
                let x = &x[channel * self.space..(channel + 1) * self.space];
                self.pieces(tap, places.clone(), |at, [before, len, after], first| {
                    let (head, rest) = row[at..at + before + len + after].split_at_mut(before);
                    let (middle, tail) = rest.split_at_mut(len);
                    head.fill(T::of(0.0));
                    tail.fill(T::of(0.0));
                    match stride {
                        1 => middle.copy_from_slice(&x[first..first + len]),
                        _ => middle.iter_mut().zip(x[first..].iter().step_by(stride)).for_each(|(o, x)| *o = *x),
                    }
                });
            }
        };
        match wide {
            true => threads::for_chunks(out, n, threads::GRAIN / 2, fill),
            false => fill(0, out),
        }
    }

    /// Adds a matrix of columns to the elements that they were made of.
    fn add_columns<T: Compute>(&self, columns: &[T], places: Range<usize>, x: &mut [T], wide: bool) {
        let (n, stride) = (places.len(), self.windows[2].stride);
        let add = |start: usize, planes: &mut [T]| {
            for (i, x) in planes.chunks_mut(self.space).enumerate() {
                let channel = start / self.space + i;
                for tap in 0..self.taps {
                    let row = &columns[(channel * self.taps + tap) * n..][..n];
                    self.pieces(tap, places.clone(), |at, [before, len, _], first| {
                        if len > 0 {
                            let (y, step) = (&mut x[first..], stride);
                            run(Axpy { a: T::of(1.0), x: &row[at + before..][..len], from: 1, y, to: step });
                        }
                    });
                }
            }
        };
        match wide {
            true => threads::for_chunks(x, self.space, threads::GRAIN / 2, add),
            false => add(0, x),
        }
    }
}

/// `y += a x`, with steps; as long as the shorter.
struct Axpy<'a, T> {
    a: T,
    x: &'a [T],
    from: usize,
    y: &'a mut [T],
    to: usize,
}
impl<T: Compute> Task for Axpy<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        let Axpy { a, x, from, y, to } = self;
        let add = |y: &mut T, x: &T| *y = if F { x.mul_add(a, *y) } else { *x * a + *y };
        match (from, to) {
            (1, 1) => y.iter_mut().zip(x).for_each(|(y, x)| add(y, x)),
            _ => y.iter_mut().step_by(to).zip(x.iter().step_by(from)).for_each(|(y, x)| add(y, x)),
        }
    }
}

/// The sum of `g x` over a row, `x` with a step.
struct Dot<'a, T> {
    g: &'a [T],
    x: &'a [T],
    step: usize,
}
impl<T: Compute> Task for Dot<'_, T> {
    type Out = f64;
    #[inline(always)]
    fn run<const F: bool>(self) -> f64 {
        const LANES: usize = 16;
        let Dot { g, x, step } = self;
        let mut lanes = [T::of(0.0); LANES];
        for (i, g) in g.chunks(LANES).enumerate() {
            let x = &x[(i * LANES * step).min(x.len())..];
            match (step, g.len()) {
                (1, LANES) => (0..LANES).for_each(|j| lanes[j] = lanes[j] + g[j] * x[j]),
                _ => lanes.iter_mut().zip(g).zip(x.iter().step_by(step)).for_each(|((l, &g), &x)| *l = *l + g * x),
            }
        }
        lanes.into_iter().fold(T::of(0.0), |a, b| a + b).into()
    }
}

/// A product, over the pool or on this thread.
fn product<T: Gemm>(wide: bool, product: &Product<T>, c: &mut [T]) {
    match wide {
        true => gemm(product, c),
        false => gemm_here(product, c),
    }
}

fn rows<T>(data: &[T], ld: usize) -> Matrix<'_, T> {
    Matrix { data, ld, trans: false }
}

fn transposed<T>(data: &[T], ld: usize) -> Matrix<'_, T> {
    Matrix { data, ld, trans: true }
}

/// Scratch of that many elements, with arbitrary values.
fn room<T: Compute>(scratch: &mut Vec<T>, n: usize) -> &mut [T] {
    if scratch.len() < n {
        scratch_resize(scratch, n, T::of(0.0));
    }
    &mut scratch[..n]
}

/// Output of a unit: (outputs, area) = (outputs, depth) × (depth, area) + bias.
pub fn forward<T: Float + Compute>(
    s: &Sizes,
    x: &[T],
    w: &[T],
    bias: Option<&[T]>,
    out: &mut [T],
    scratch: &mut Vec<T>,
    wide: bool,
) {
    let (depth, area) = (s.depth(), s.area);
    let started = bias.is_some() || depth == 0 || s.is_depthwise();
    if started {
        for (i, plane) in out.chunks_mut(area).enumerate() {
            plane.fill(bias.map_or(T::of(0.0), |b| b[i]));
        }
    }
    let beta = T::of(if started { 1.0 } else { 0.0 });
    if s.is_depthwise() {
        let from = s.windows[2].stride;
        for (tap, &a) in w.iter().enumerate() {
            s.pieces(tap, 0..area, |at, [before, len, _], first| {
                let y = &mut out[at + before..at + before + len];
                run(Axpy { a, x: &x[first..], from, y, to: 1 });
            });
        }
    } else if s.is_pointwise() {
        product(wide, &Product { beta, ..Product::of([s.outputs, area, depth], rows(w, depth), rows(x, area)) }, out);
    } else if depth > 0 {
        let block = s.block();
        for start in (0..area).step_by(block) {
            let n = block.min(area - start);
            let columns = room(scratch, depth * n);
            s.columns(x, start..start + n, columns, wide);
            let of = Product::of([s.outputs, n, depth], rows(w, depth), rows(columns, n));
            product(wide, &Product { beta, ldc: area, ..of }, &mut out[start..]);
        }
    }
}

/// Gradient of a unit's input: columns (depth, area) = (depth, outputs) × (outputs, area), added where they came from.
pub fn input_gradient<T: Float + Compute>(
    s: &Sizes,
    g: &[T],
    w: &[T],
    out: &mut [T],
    scratch: &mut Vec<T>,
    wide: bool,
) {
    let (depth, area) = (s.depth(), s.area);
    if s.is_pointwise() && s.outputs > 0 {
        return product(wide, &Product::of([depth, area, s.outputs], transposed(w, depth), rows(g, area)), out);
    }
    out.fill(T::of(0.0));
    if s.is_depthwise() {
        let to = s.windows[2].stride;
        for (tap, &a) in w.iter().enumerate() {
            s.pieces(tap, 0..area, |at, [before, len, _], first| {
                run(Axpy { a, x: &g[at + before..at + before + len], from: 1, y: &mut out[first..], to });
            });
        }
    } else if s.outputs > 0 && area > 0 {
        let block = s.block();
        for start in (0..area).step_by(block) {
            let n = block.min(area - start);
            let columns = room(scratch, depth * n);
            let sizes = [depth, n, s.outputs];
            product(wide, &Product::of(sizes, transposed(w, depth), rows(&g[start..], area)), columns);
            s.add_columns(columns, start..start + n, out, wide);
        }
    }
}

/// Gradient of the weight: the sum over images of (outputs, area) × (area, depth), group by group.
pub fn weight_gradient<T: Float + Compute>(s: &Sizes, x: &[T], g: &[T], out: &mut [T]) {
    out.fill(T::of(0.0));
    if s.area == 0 || out.is_empty() || s.batch == 0 {
        return;
    }
    if s.is_depthwise() {
        let grain = (WORK / (s.batch * s.area * s.taps).max(1)).max(1) * s.taps;
        return threads::for_chunks(out, s.taps, grain, |start, out| {
            for (i, out) in out.chunks_mut(s.taps).enumerate() {
                depthwise_weight_gradient(s, x, g, start / s.taps + i, out);
            }
        });
    }
    let size = out.len();
    // As many parts as do not depend on the number of threads, each the sum over some of the images.
    let parts = if size <= PARTS { s.batch.min(8) } else { 1 };
    if parts == 1 || s.batch * s.area * size < WORK {
        return add_images(s, x, g, 0..s.batch, out, size > PARTS || s.batch == 1);
    }
    let mut sums = scratch(T::of(0.0), parts * size);
    threads::for_chunks(&mut sums, size, size, |start, sums| {
        for (i, sum) in sums.chunks_mut(size).enumerate() {
            let part = start / size + i;
            add_images(s, x, g, part * s.batch / parts..(part + 1) * s.batch / parts, sum, false);
        }
    });
    for sum in sums.chunks(size) {
        run(Axpy { a: T::of(1.0), x: sum, from: 1, y: out, to: 1 });
    }
}

/// Adds the weight gradient of some images.
fn add_images<T: Float + Compute>(s: &Sizes, x: &[T], g: &[T], images: Range<usize>, out: &mut [T], wide: bool) {
    let (depth, area, block) = (s.depth(), s.area, s.block());
    let mut scratch = Vec::new();
    for unit in images.start * s.groups..images.end * s.groups {
        let (x, g) = (s.input(x, unit), s.output(g, unit));
        let out = &mut out[unit % s.groups * s.outputs * depth..][..s.outputs * depth];
        for start in (0..area).step_by(block) {
            let n = block.min(area - start);
            let columns = match s.is_pointwise() {
                true => transposed(&x[start..], area),
                false => {
                    let columns = room(&mut scratch, depth * n);
                    s.columns(x, start..start + n, columns, wide);
                    transposed(&*columns, n)
                }
            };
            let of = Product::of([s.outputs, depth, n], rows(&g[start..], area), columns);
            product(wide, &Product { beta: T::ONE, ..of }, out);
        }
    }
}

/// The weight gradient of one channel.
fn depthwise_weight_gradient<T: Float + Compute>(s: &Sizes, x: &[T], g: &[T], channel: usize, out: &mut [T]) {
    let stride = s.windows[2].stride;
    for (tap, out) in out.iter_mut().enumerate() {
        let mut sum = 0.0;
        for unit in (0..s.batch).map(|n| n * s.groups + channel) {
            let (x, g) = (s.input(x, unit), s.output(g, unit));
            s.pieces(tap, 0..s.area, |at, [before, len, _], first| {
                let g = &g[at + before..at + before + len];
                sum += run(Dot { g, x: &x[first..], step: stride });
            });
        }
        *out = T::of(sum);
    }
}
