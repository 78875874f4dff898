//! Convolutions as sums over shifted planes, without a matrix of columns.
//!
//! The input is laid out once (see `planes`), and each tile of results is summed in registers over input channels and
//! taps. The gradient of the input is the same over planes of the output's gradient, once for each way in which a stride
//! lets taps meet elements; that of the weight is a product of planes with planes. Groups are convolutions of their own.
//! Invariant: each function says, before it writes anything, whether the sizes suit it.

use super::super::simd::tile::{Offsets, Tiles};
use super::super::simd::{run_light, threads, Task};
use super::planes::{add_dots, Axis, Grid, Line, Outer, Pass, Planes};
use super::Sizes;
use crate::fallible::{scratch, scratch_from, scratch_resize};
use std::ops::{Add, Mul, Range};

/// Elements of a block of images laid out, about.
const BLOCK: usize = 32 << 10;
/// Elements of a weight beyond which its gradient is not summed in parts side by side.
const PARTS: usize = 1 << 17;
/// Outputs of a group that leave registers mostly empty.
const FEW: usize = 4;
/// Outputs whose gradients one thread sums at least: all of them read the same planes.
const SIDE: usize = 16;
/// Multiplications that must not be exceeded so many times for results that are dropped.
const WASTE: usize = 8;

/// What the planes hold.
pub trait Number: Tiles + Add<Output = Self> + Mul<Output = Self> + PartialEq + Send + Sync {}
impl<T: Tiles + Add<Output = T> + Mul<Output = T> + PartialEq + Send + Sync> Number for T {}

/// Planes of a block of images and what is summed over them.
struct Job<T> {
    planes: Planes,
    /// Each with its weights, group by group.
    passes: Vec<(Pass<T>, Vec<T>)>,
}

impl<T: Number> Job<T> {
    /// Elements that the planes of so many channels take, with what tiles read beyond them.
    fn room(&self, channels: usize) -> usize {
        self.passes.iter().map(|(pass, _)| pass.reach()).fold(channels * self.planes.channel, usize::max)
    }

    fn work(&self) -> usize {
        self.passes.iter().map(|(pass, _)| pass.work()).sum()
    }
}

/// The layout of the planes of the input: one phase for each remainder that taps have.
fn input_lines(s: &Sizes) -> [Line; 3] {
    s.windows.map(|w| {
        let reach = w.taps.saturating_sub(1) * w.dilation;
        let (phases, len) = (w.stride.min(reach + 1), w.count + reach / w.stride);
        Line { size: w.size, stride: w.stride, padding: w.padding, phases, len }
    })
}

/// The layout of the planes of the output's gradient, for that of the input: with as many zeros before as taps reach back.
fn gradient_lines(s: &Sizes) -> [Line; 3] {
    s.windows.map(|w| {
        let reach = w.taps.saturating_sub(1) * w.dilation / w.stride;
        let len = (w.size + w.padding).saturating_sub(1) / w.stride + 1 + reach;
        Line { size: w.count, stride: 1, padding: reach, phases: 1, len }
    })
}

/// Are the planes of a group hardly larger than what it reads and writes?
fn fits(s: &Sizes, lines: &[Line; 3], channels: usize) -> bool {
    let least = s.inputs * s.space + s.outputs * s.area;
    Planes::elements(lines).and_then(|n| n.checked_mul(channels)).is_some_and(|n| n <= 4 * least + BLOCK)
}

/// Images that are laid out together, whatever the number of threads.
fn images_at_once(s: &Sizes, lines: &[Line; 3], channels: usize) -> usize {
    let n = Planes::elements(lines).unwrap_or(usize::MAX).saturating_mul(channels).max(1);
    if s.groups > 1 {
        1
    } else {
        (BLOCK / n).clamp(1, (s.batch / 8).max(1))
    }
}

/// Steps to a tap along each dimension.
fn steps(s: &Sizes, tap: usize) -> [usize; 3] {
    let [d, h, w] = &s.windows;
    [tap / (h.taps * w.taps) * d.dilation, tap / w.taps % h.taps * h.dilation, tap % w.taps * w.dilation]
}

/// Distances from a place to the elements that meet it, for each input channel and tap.
fn offsets(s: &Sizes, planes: &Planes) -> Vec<usize> {
    let taps: Vec<usize> = scratch_from((0..s.taps).map(|tap| planes.shift(steps(s, tap))));
    scratch_from((0..s.inputs).flat_map(|c| taps.iter().map(move |at| c * planes.channel + at)))
}

/// Convolution with `w` plus `bias`. False, and nothing done, where the sizes do not suit it.
pub fn forward<T: Number>(s: &Sizes, x: &[T], w: &[T], bias: Option<&[T]>, out: &mut [T]) -> bool {
    let lines = input_lines(s);
    if !fits(s, &lines, s.inputs) {
        return false;
    }
    let depth = s.depth();
    let job = |images: usize| {
        let planes = Planes::new(lines, images, 1);
        let offsets = Offsets::new(offsets(s, &planes));
        let [d, h, w3] = s.windows.map(|w| w.count);
        let axis = |count, step| Axis { first: 0, count, to: 0, step };
        let axes = [axis(images, s.outputs * s.area), axis(d, h * w3), axis(h, w3), axis(w3, 1)];
        let pass = Pass::new(s.outputs, offsets, Grid::new(axes, planes.pitches()));
        let weights = pass.weights(s.groups, |group, k, row| w[(group * s.outputs + row) * depth + k]);
        Job { planes, passes: vec![(pass, weights)] }
    };
    let images = images_at_once(s, &lines, s.inputs);
    go(s, [s.inputs, s.space, s.outputs, s.area], images, job, x, bias, out)
}

/// Gradient of the input from `g`, the output's. False, and nothing done, where the sizes do not suit it.
pub fn input_gradient<T: Number>(s: &Sizes, g: &[T], w: &[T], out: &mut [T]) -> bool {
    let lines = gradient_lines(s);
    if s.space == 0 || !fits(s, &lines, s.outputs) {
        return false;
    }
    let depth = s.depth();
    let [sd, sh, sw] = s.windows.map(|w| w.stride);
    // Elements of the input with the same remainders meet the same taps.
    let Some(classes) = sd.checked_mul(sh).and_then(|n| n.checked_mul(sw)).filter(|&n| n <= 64) else {
        return false;
    };
    let job = |images: usize| {
        let planes = Planes::new(lines, images, 1);
        let mut passes = Vec::new();
        for class in 0..classes {
            let rest = [class / (sh * sw), class / sw % sh, class % sw];
            let taps: Vec<usize> = (0..s.taps)
                .filter(|&tap| steps(s, tap).iter().zip(&s.windows).zip(rest).all(|((at, w), r)| at % w.stride == r))
                .collect();
            let back = |tap: usize| {
                let mut at = steps(s, tap);
                for (at, (line, w)) in at.iter_mut().zip(lines.iter().zip(&s.windows)) {
                    *at = line.padding - *at / w.stride;
                }
                planes.shift(at)
            };
            let shifts: Vec<usize> = scratch_from(taps.iter().map(|&tap| back(tap)));
            let terms = |o| shifts.iter().map(move |at| o * planes.channel + at);
            let offsets = Offsets::new(scratch_from((0..s.outputs).flat_map(terms)));
            let spaces = [s.windows[1].size * s.windows[2].size, s.windows[2].size, 1];
            let mut axes = [Axis { first: 0, count: images, to: 0, step: s.inputs * s.space }; 4];
            for (i, w) in s.windows.iter().enumerate() {
                // The elements i = rest + stride t - padding inside the input.
                let first = w.padding.saturating_sub(rest[i]).div_ceil(w.stride);
                let end = (w.size + w.padding).saturating_sub(rest[i]).div_ceil(w.stride).max(first);
                let to = (rest[i] + first * w.stride).saturating_sub(w.padding) * spaces[i];
                axes[i + 1] = Axis { first, count: end - first, to, step: w.stride * spaces[i] };
            }
            let pass = Pass::new(s.inputs, offsets, Grid::new(axes, planes.pitches()));
            let n = taps.len();
            let weights = pass
                .weights(s.groups, |group, k, row| w[(group * s.outputs + k / n) * depth + row * s.taps + taps[k % n]]);
            passes.push((pass, weights));
        }
        Job { planes, passes }
    };
    let images = images_at_once(s, &lines, s.outputs);
    go(s, [s.outputs, s.area, s.inputs, s.space], images, job, g, None, out)
}

/// Lays out blocks of images and runs their job, over the pool. The sizes: channels of a group and their elements, as
/// read and as written.
fn go<T: Number>(
    s: &Sizes,
    [channels, from, rows, to]: [usize; 4],
    images: usize,
    job: impl Fn(usize) -> Job<T>,
    x: &[T],
    bias: Option<&[T]>,
    out: &mut [T],
) -> bool {
    if out.is_empty() {
        return true;
    }
    let (units, part) = (s.batch * s.groups, rows * to);
    let block = job(images);
    if block.work() > WASTE * (images * s.outputs * s.area * s.depth() + BLOCK) {
        return false;
    }
    let rest = (units % images > 0).then(|| job(units % images));
    // Lays out the block that begins with a unit, and gives its planes to be read.
    let fill_planes = |job: &Job<T>, unit: usize, planes: &mut Vec<T>, wide: bool| {
        scratch_resize(planes, job.room(channels), T::default());
        job.planes.fill(&x[unit * channels * from..], channels, channels * from, from, planes, wide);
    };
    let bias_of = |unit: usize| bias.map(|b| &b[unit % s.groups * rows..][..rows]);
    let work = block.work().max(1);
    if units.div_ceil(images) < threads::num_threads() && work > super::WORTH_CUTTING && images == 1 {
        let mut planes = Vec::new();
        for (unit, out) in out.chunks_mut(part).enumerate() {
            fill_planes(&block, unit, &mut planes, true);
            for (pass, weights) in &block.passes {
                let unit_of_rows = pass.rows_at_once() * to;
                threads::for_chunks(out, unit_of_rows, unit_of_rows, |start, out| {
                    let rows = start / to..(start + out.len()) / to;
                    pass.run(pass.of_group(weights, unit % s.groups), &planes, rows, bias_of(unit), out, to);
                });
            }
        }
        return true;
    }
    let size = images * part;
    threads::for_chunks(out, size, (super::WORK / work).max(1) * size, |start, out| {
        let mut planes = Vec::new();
        for (i, out) in out.chunks_mut(size).enumerate() {
            let unit = start / part + i * images;
            let job = if out.len() < size { rest.as_ref().unwrap_or(&block) } else { &block };
            fill_planes(job, unit, &mut planes, false);
            for (pass, weights) in &job.passes {
                pass.run(pass.of_group(weights, unit % s.groups), &planes, 0..rows, bias_of(unit), out, to);
            }
        }
    });
    true
}

/// What one thread needs for gradients of the weight.
struct Room<T> {
    planes: Vec<T>,
    grads: Vec<T>,
}

/// Adds the weight gradient of some images of a group, for some of its outputs, to `out`. Few outputs leave the registers
/// of `Outer` empty; for them places are multiplied side by side, those between rows by zero.
fn add_images<T: Number>(
    s: &Sizes,
    x: &[T],
    g: &[T],
    units: Range<usize>,
    rows: Range<usize>,
    room: &mut Room<T>,
    out: &mut [T],
) {
    let lines = input_lines(s);
    let planes = Planes::new(lines, 1, 1);
    let mut spread = lines;
    spread
        .iter_mut()
        .zip(&s.windows)
        .for_each(|(l, w)| *l = Line { size: w.count, stride: 1, padding: 0, phases: 1, ..*l });
    let spread = Planes::new(spread, 1, T::kernels().step);
    let offsets = offsets(s, &planes);
    let [d, h, w] = s.windows.map(|w| w.count);
    let axis = |count| Axis { first: 0, count, to: 0, step: 1 };
    let runs = Grid::new([axis(1), axis(d), axis(h), axis(w)], planes.pitches()).runs();
    let most = offsets.iter().max().map_or(0, |at| at + spread.channel);
    scratch_resize(&mut room.planes, most.max(s.inputs * planes.channel), T::default());
    let mut outer = (s.outputs >= FEW).then(|| Outer::new(offsets.len(), rows.len()));
    for unit in units.step_by(s.groups) {
        let (x, g) = (s.input(x, unit), &s.output(g, unit)[rows.start * s.area..]);
        planes.fill(x, s.inputs, 0, s.space, &mut room.planes, false);
        if let Some(outer) = &mut outer {
            outer.add(&room.planes, &offsets, &runs, g, s.area);
            continue;
        }
        scratch_resize(&mut room.grads, rows.len() * spread.channel, T::default());
        spread.fill(g, rows.len(), 0, s.area, &mut room.grads, false);
        add_dots(&room.grads, spread.channel, rows.len(), &room.planes, &offsets, spread.channel, out);
    }
    if let Some(outer) = outer {
        outer.finish(out);
    }
}

/// Gradient of the weight. False, and nothing done, where the sizes or the numbers do not suit it.
pub fn weight_gradient<T: Number>(s: &Sizes, x: &[T], g: &[T], out: &mut [T]) -> bool {
    let lines = input_lines(s);
    if out.is_empty() || s.area == 0 || s.batch == 0 || !fits(s, &lines, s.inputs) {
        return false;
    }
    // Zero times an infinite element is no zero.
    if s.outputs < FEW && !run_light(Finite(x)) {
        return false;
    }
    out.fill(T::default());
    let (images, size) = (s.batch, s.outputs * s.depth());
    let room = || Room { planes: Vec::new(), grads: Vec::new() };
    let work = images * s.area * size;
    if s.groups > 1 {
        threads::for_chunks(out, size, (super::WORK / work.max(1)).max(1) * size, |start, out| {
            let mut room = room();
            for (i, out) in out.chunks_mut(size).enumerate() {
                // This group of all images.
                add_images(s, x, g, start / size + i..images * s.groups, 0..s.outputs, &mut room, out);
            }
        });
        return true;
    }
    // As many parts as do not depend on the number of threads, each the sum over some of the images.
    let parts = if size <= PARTS { images.min(8) } else { 1 };
    if parts == 1 || work < super::WORK {
        let depth = s.depth();
        let few = (super::WORK / (work / s.outputs).max(1)).next_multiple_of(SIDE);
        threads::for_chunks(out, SIDE * depth, few * depth, |start, out| {
            let rows = start / depth..(start + out.len()) / depth;
            add_images(s, x, g, 0..images, rows, &mut room(), out);
        });
        return true;
    }
    let mut sums = scratch(T::default(), parts * size);
    threads::for_chunks(&mut sums, size, size, |start, sums| {
        let mut room = room();
        for (i, sum) in sums.chunks_mut(size).enumerate() {
            let part = start / size + i;
            let units = part * images / parts..(part + 1) * images / parts;
            add_images(s, x, g, units, 0..s.outputs, &mut room, sum);
        }
    });
    for sum in sums.chunks(size) {
        out.iter_mut().zip(sum).for_each(|(o, s)| *o = *o + *s);
    }
    true
}

/// Is every element a finite number?
struct Finite<'a, T>(&'a [T]);
impl<T: Number> Task for Finite<'_, T> {
    type Out = bool;
    #[inline(always)]
    fn run<const F: bool>(self) -> bool {
        const LANES: usize = 32;
        let (zero, mut lanes) = (T::default(), [T::default(); LANES]);
        let (chunks, rest) = self.0.as_chunks::<LANES>();
        for x in chunks {
            for (l, x) in lanes.iter_mut().zip(x) {
                *l = *l + *x * zero;
            }
        }
        lanes.iter().chain(rest).all(|&x| x * zero == zero)
    }
}
