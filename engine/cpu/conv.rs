//! Convolutions in one to three dimensions, and their products with gradients.
//!
//! Depends on `blas` and `simd`. The windows of a block of output places become the columns of a matrix (im2col), which
//! one product takes; windows of one element need no copy, and groups of one channel no product. 16-bit floats are
//! computed with in `float32`. Invariant: scratch memory is a few MiB per thread, whatever the sizes, and results do not
//! depend on the number of threads.

use super::blas::{gemm, Gemm, Matrix};
use super::cast::cast;
use super::fused::{Compute, Float};
use super::pool::Window;
use super::simd::{run, threads, Task};
use super::CpuArray;
use crate::dispatch::Meta;
use crate::ops::conv::{ConvArgs, ConvOp};
use crate::{DType, Error, Result};
use std::ops::Range;

/// Elements of a block of columns.
const COLUMNS: usize = 1 << 18;
/// Multiplications below which one thread does it.
const WORK: usize = 1 << 18;
/// Elements of a weight beyond which its gradient is not summed in parts side by side.
const PARTS: usize = 1 << 17;

/// The kernels of the `conv` family.
pub fn conv(op: &ConvOp, inputs: &[&CpuArray], out: &Meta) -> Result<CpuArray> {
    match out.dtype {
        DType::F32 => conv_as::<f32>(op, inputs, out),
        DType::F64 => conv_as::<f64>(op, inputs, out),
        DType::F16 | DType::BF16 => {
            let wide: Vec<CpuArray> = inputs.iter().map(|x| cast(x, DType::F32)).collect::<Result<_>>()?;
            let wide: Vec<&CpuArray> = wide.iter().collect();
            cast(&conv(op, &wide, &Meta::new(&out.shape, DType::F32))?, out.dtype)
        }
        other @ (DType::Bool | DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::C64) => {
            Err(Error::dtype("convolution", "expected a floating dtype", &[other]))
        }
    }
}

fn conv_as<T: Float + Compute>(op: &ConvOp, inputs: &[&CpuArray], out: &Meta) -> Result<CpuArray> {
    let (a, b) = (inputs[0].contiguous()?, inputs[1].contiguous()?);
    let (a_guard, b_guard) = (a.read::<T>(), b.read::<T>());
    let (x, y) = (a.slice(&a_guard), b.slice(&b_guard));
    match op {
        ConvOp::Forward { args } => {
            let s = Sizes::new(args, a.shape(), b.shape(), &out.shape)?;
            let bias = inputs.get(2).map(|b| b.contiguous()).transpose()?;
            let guard = bias.as_ref().map(|b| b.read::<T>());
            let bias = bias.as_ref().zip(guard.as_ref()).map(|(b, guard)| b.slice(guard));
            CpuArray::build(&out.shape, |out| {
                s.each_unit(out, s.outputs * s.area, |unit, out, scratch, wide| {
                    let bias = bias.map(|b| &b[unit % s.groups * s.outputs..][..s.outputs]);
                    forward(&s, s.input(x, unit), s.weight(y, unit), bias, out, scratch, wide);
                });
                Ok(())
            })
        }
        ConvOp::InputGradient { args, shape } => {
            let s = Sizes::new(args, shape, b.shape(), a.shape())?;
            CpuArray::build(&out.shape, |out| {
                s.each_unit(out, s.inputs * s.space, |unit, out, scratch, wide| {
                    input_gradient(&s, s.output(x, unit), s.weight(y, unit), out, scratch, wide);
                });
                Ok(())
            })
        }
        ConvOp::WeightGradient { args, shape } => {
            let s = Sizes::new(args, a.shape(), shape, b.shape())?;
            CpuArray::build(&out.shape, |out| {
                weight_gradient(&s, x, y, out);
                Ok(())
            })
        }
    }
}

/// The sizes of a convolution. A unit is one group of one image: its input, and its output, are dense.
struct Sizes {
    windows: [Window; 3],
    batch: usize,
    groups: usize,
    /// Input channels of a group.
    inputs: usize,
    /// Output channels of a group.
    outputs: usize,
    /// Elements of a window in one channel.
    taps: usize,
    /// Elements of an input channel.
    space: usize,
    /// Elements of an output channel.
    area: usize,
}

impl Sizes {
    /// From the shapes of input, weight and output.
    fn new(args: &ConvArgs, x: &[usize], w: &[usize], y: &[usize]) -> Result<Sizes> {
        let n = args.stride.len();
        let fits = (1..=3).contains(&n)
            && [x, w, y].iter().all(|s| s.len() == n + 2)
            && args.groups > 0
            && (x[0], w[0]) == (y[0], y[1])
            && x[1] == w[1] * args.groups
            && w[0].is_multiple_of(args.groups);
        if !fits {
            return Err(Error::shape("convolution", "input, weight and output do not belong together", &[x, w, y]));
        }
        let mut windows = [Window::NONE; 3];
        for (i, window) in windows[3 - n..].iter_mut().enumerate() {
            let (stride, padding, dilation) = (args.stride[i], args.padding[i], args.dilation[i]);
            *window = Window { size: x[i + 2], count: y[i + 2], taps: w[i + 2], stride, padding, dilation };
        }
        let product = |f: fn(&Window) -> usize| windows.iter().map(f).product();
        Ok(Sizes {
            batch: x[0],
            groups: args.groups,
            inputs: w[1],
            outputs: w[0] / args.groups,
            taps: product(|w| w.taps),
            space: product(|w| w.size),
            area: product(|w| w.count),
            windows,
        })
    }

    /// Rows of a matrix of columns.
    fn depth(&self) -> usize {
        self.inputs * self.taps
    }

    /// Columns of a block.
    fn block(&self) -> usize {
        (COLUMNS / self.depth().max(1)).clamp(64.min(self.area), self.area)
    }

    fn input<'a, T>(&self, x: &'a [T], unit: usize) -> &'a [T] {
        let n = self.inputs * self.space;
        &x[unit * n..(unit + 1) * n]
    }

    fn output<'a, T>(&self, y: &'a [T], unit: usize) -> &'a [T] {
        let n = self.outputs * self.area;
        &y[unit * n..(unit + 1) * n]
    }

    fn weight<'a, T>(&self, w: &'a [T], unit: usize) -> &'a [T] {
        let n = self.outputs * self.depth();
        &w[unit % self.groups * n..][..n]
    }

    /// Are the columns the input itself?
    fn is_pointwise(&self) -> bool {
        self.windows.iter().all(|w| w.taps == 1 && w.stride == 1 && w.padding == 0)
    }

    fn is_depthwise(&self) -> bool {
        self.inputs == 1 && self.outputs == 1
    }

    /// Runs `f(unit, its part of out, scratch, wide)` for all units: side by side where there are enough of them, else one
    /// by one, `wide` telling `f` to use the pool itself.
    fn each_unit<T, F>(&self, out: &mut [T], size: usize, f: F)
    where
        T: Send,
        F: Fn(usize, &mut [T], &mut Vec<T>, bool) + Sync,
    {
        if out.is_empty() {
            return;
        }
        let work = (self.outputs * self.area * self.depth()).max(1);
        let units = out.len() / size;
        if units < threads::num_threads() && work > WORK && !self.is_depthwise() {
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
    /// many places lie before the input, in it, and after it, and which element the first one inside meets.
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

/// `c = a b + beta c`, over the pool or on this thread.
#[allow(clippy::too_many_arguments)]
fn product<T: Gemm>(wide: bool, [m, n, k]: [usize; 3], a: Matrix<T>, b: Matrix<T>, beta: T, c: &mut [T], ldc: usize) {
    if wide {
        gemm(m, n, k, T::ONE, a, b, beta, c, ldc);
    } else if m > 0 && n > 0 && k > 0 {
        T::block(m, n, k, T::ONE, a, b, beta, c, ldc);
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
        scratch.resize(n, T::of(0.0));
    }
    &mut scratch[..n]
}

/// Output of a unit: (outputs, area) = (outputs, depth) × (depth, area) + bias.
fn forward<T: Float + Compute>(
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
        product(wide, [s.outputs, area, depth], rows(w, depth), rows(x, area), beta, out, area);
    } else if depth > 0 {
        let block = s.block();
        for start in (0..area).step_by(block) {
            let n = block.min(area - start);
            let columns = room(scratch, depth * n);
            s.columns(x, start..start + n, columns, wide);
            product(wide, [s.outputs, n, depth], rows(w, depth), rows(columns, n), beta, &mut out[start..], area);
        }
    }
}

/// Gradient of a unit's input: columns (depth, area) = (depth, outputs) × (outputs, area), added where they came from.
fn input_gradient<T: Float + Compute>(s: &Sizes, g: &[T], w: &[T], out: &mut [T], scratch: &mut Vec<T>, wide: bool) {
    let (depth, area) = (s.depth(), s.area);
    if s.is_pointwise() && s.outputs > 0 {
        return product(wide, [depth, area, s.outputs], transposed(w, depth), rows(g, area), T::of(0.0), out, area);
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
            product(wide, sizes, transposed(w, depth), rows(&g[start..], area), T::of(0.0), columns, n);
            s.add_columns(columns, start..start + n, out, wide);
        }
    }
}

/// Gradient of the weight: the sum over images of (outputs, area) × (area, depth), group by group.
fn weight_gradient<T: Float + Compute>(s: &Sizes, x: &[T], g: &[T], out: &mut [T]) {
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
    let mut sums = vec![T::of(0.0); parts * size];
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
            product(wide, [s.outputs, depth, n], rows(&g[start..], area), columns, T::of(1.0), out, depth);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Array;
    use crate::cpu::tests::{array, layouts, show};
    use crate::ops::conv::Spatial;
    use half::bf16;

    fn args(stride: &[usize], padding: &[usize], dilation: &[usize], groups: usize) -> Box<ConvArgs> {
        let [stride, padding, dilation] = [stride, padding, dilation].map(Spatial::from_slice);
        Box::new(ConvArgs { stride, padding, dilation, groups })
    }

    fn go(op: ConvOp, inputs: &[&CpuArray], shape: &[usize]) -> Vec<f64> {
        show(&conv(&op, inputs, &Meta::new(shape, DType::F64)).unwrap())
    }

    fn numbers(shape: &[usize], seed: usize) -> Vec<f64> {
        (0..shape.iter().product()).map(|i: usize| ((i * 31 + seed * 7) % 19) as f64 - 9.0).collect()
    }

    /// Every product that a convolution sums: (input element, weight element, output element).
    fn terms(a: &ConvArgs, x: &[usize], w: &[usize], y: &[usize]) -> Vec<[usize; 3]> {
        let wide = |s: &[usize]| -> Vec<usize> {
            let fill = std::iter::repeat_n(1, 5 - s.len());
            s[..2].iter().copied().chain(fill).chain(s[2..].iter().copied()).collect()
        };
        let spread = |s: &[usize], none: usize| -> Vec<usize> {
            std::iter::repeat_n(none, 3 - s.len()).chain(s.iter().copied()).collect()
        };
        let (xs, ws, ys) = (wide(x), wide(w), wide(y));
        let (stride, padding, dilation) = (spread(&a.stride, 1), spread(&a.padding, 0), spread(&a.dilation, 1));
        let index = |mut i: usize, s: &[usize]| -> Vec<usize> {
            let mut at = vec![0; 5];
            for d in (0..5).rev() {
                at[d] = i % s[d];
                i /= s[d];
            }
            at
        };
        let mut out = Vec::new();
        for o in 0..ys.iter().product() {
            for k in 0..ws[1..].iter().product::<usize>() {
                let at = index(o, &ys);
                let wi = at[1] * ws[1..].iter().product::<usize>() + k;
                let tap = index(wi, &ws);
                let group = at[1] / (ws[0] / a.groups);
                let mut xi = at[0] * xs[1] + group * ws[1] + tap[1];
                let inside = (0..3).all(|d| {
                    let p = (at[d + 2] * stride[d] + tap[d + 2] * dilation[d]).wrapping_sub(padding[d]);
                    xi = xi.wrapping_mul(xs[d + 2]).wrapping_add(p);
                    p < xs[d + 2]
                });
                if inside {
                    out.push([xi, wi, o]);
                }
            }
        }
        out
    }

    fn check(a: Box<ConvArgs>, x: &[usize], w: &[usize], y: &[usize]) {
        let (xs, ws, g, bias) = (numbers(x, 1), numbers(w, 2), numbers(y, 3), numbers(&y[1..2], 4));
        let area: usize = y[2..].iter().product();
        let plane = |i: usize| bias[i / area % y[1]];
        let mut out: Vec<f64> = (0..g.len()).map(plane).collect();
        let (mut dx, mut dw) = (vec![0.0; xs.len()], vec![0.0; ws.len()]);
        for [xi, wi, oi] in terms(&a, x, w, y) {
            out[oi] += xs[xi] * ws[wi];
            dx[xi] += g[oi] * ws[wi];
            dw[wi] += g[oi] * xs[xi];
        }
        let plain: Vec<f64> = out.iter().enumerate().map(|(i, y)| y - plane(i)).collect();
        let bias = array(&y[1..2], &bias);
        for (xa, wa, ga) in
            layouts(x, &xs).into_iter().zip(layouts(w, &ws)).zip(layouts(y, &g)).map(|((xa, wa), ga)| (xa, wa, ga))
        {
            let forward = ConvOp::Forward { args: a.clone() };
            assert_eq!(go(forward.clone(), &[&xa, &wa, &bias], y), out, "{a:?}");
            assert_eq!(go(forward, &[&xa, &wa], y), plain, "{a:?}");
            let back = ConvOp::InputGradient { args: a.clone(), shape: x.into() };
            assert_eq!(go(back, &[&ga, &wa], x), dx, "input {a:?}");
            let back = ConvOp::WeightGradient { args: a.clone(), shape: w.into() };
            assert_eq!(go(back, &[&xa, &ga], w), dw, "weight {a:?}");
        }
    }

    #[test]
    fn one_two_and_three_dimensions() {
        check(args(&[1], &[0], &[1], 1), &[2, 3, 8], &[4, 3, 3], &[2, 4, 6]);
        check(args(&[2], &[1], &[2], 2), &[2, 4, 9], &[6, 2, 3], &[2, 6, 4]);
        check(args(&[1, 1], &[0, 0], &[1, 1], 1), &[2, 3, 6, 7], &[4, 3, 3, 2], &[2, 4, 4, 6]);
        check(args(&[2, 1], &[1, 1], &[1, 1], 2), &[2, 4, 7, 6], &[6, 2, 3, 3], &[2, 6, 4, 6]);
        check(args(&[1, 1], &[2, 2], &[2, 2], 2), &[1, 2, 7, 7], &[2, 1, 3, 3], &[1, 2, 7, 7]);
        check(args(&[1, 2], &[3, 0], &[1, 1], 1), &[1, 2, 3, 5], &[3, 2, 2, 2], &[1, 3, 8, 2]);
        check(args(&[1, 1], &[4, 4], &[1, 1], 1), &[1, 2, 5, 5], &[3, 2, 3, 3], &[1, 3, 11, 11]);
        check(args(&[1, 1, 1], &[1, 0, 1], &[1, 1, 2], 1), &[2, 2, 4, 4, 5], &[3, 2, 2, 2, 2], &[2, 3, 5, 3, 5]);
    }

    #[test]
    fn windows_of_one_element_and_single_channels() {
        check(args(&[1, 1], &[0, 0], &[1, 1], 1), &[3, 5, 4, 4], &[6, 5, 1, 1], &[3, 6, 4, 4]);
        check(args(&[1, 1], &[0, 0], &[1, 1], 2), &[3, 4, 4, 4], &[6, 2, 1, 1], &[3, 6, 4, 4]);
        check(args(&[2, 2], &[0, 0], &[1, 1], 1), &[3, 5, 4, 4], &[6, 5, 1, 1], &[3, 6, 2, 2]);
        check(args(&[1, 1], &[1, 1], &[1, 1], 5), &[2, 5, 6, 7], &[5, 1, 3, 3], &[2, 5, 6, 7]);
        check(args(&[2, 2], &[1, 1], &[1, 1], 3), &[2, 3, 6, 7], &[3, 1, 3, 3], &[2, 3, 3, 4]);
        check(args(&[1, 1], &[1, 1], &[1, 1], 3), &[2, 3, 6, 7], &[6, 1, 3, 3], &[2, 6, 6, 7]);
    }

    #[test]
    fn blocks_and_threads() {
        threads::set_num_threads(3);
        // One large image, and many.
        check(args(&[1, 1], &[1, 1], &[1, 1], 1), &[1, 40, 32, 33], &[16, 40, 3, 3], &[1, 16, 32, 33]);
        check(args(&[1, 1], &[0, 0], &[1, 1], 1), &[20, 6, 12, 12], &[16, 6, 5, 5], &[20, 16, 8, 8]);
        check(args(&[3], &[7], &[5], 1), &[1, 3, 9000], &[5, 3, 40], &[1, 5, 2940]);
    }

    #[test]
    fn halves_and_nothing() {
        let one = array(&[1, 1, 2, 2], &[bf16::ONE; 4]);
        let a = args(&[1, 1], &[0, 0], &[1, 1], 1);
        let op = ConvOp::Forward { args: a.clone() };
        let y = conv(&op, &[&one, &one], &Meta::new(&[1, 1, 1, 1], DType::BF16)).unwrap();
        assert_eq!((show::<bf16>(&y), y.dtype()), (vec![bf16::from_f32(4.0)], DType::BF16));
        let none = array::<f64>(&[0, 2, 4, 4], &[]);
        let w = array(&[3, 2, 2, 2], &[1f64; 24]);
        assert!(go(op.clone(), &[&none, &w], &[0, 3, 3, 3]).is_empty());
        let g = array::<f64>(&[0, 3, 3, 3], &[]);
        let back = ConvOp::WeightGradient { args: a.clone(), shape: [3, 2, 2, 2][..].into() };
        assert_eq!(go(back, &[&none, &g], &[3, 2, 2, 2]), [0.0; 24]);
        // No channels: the bias alone, and zero gradients.
        let (x, w) = (array::<f64>(&[1, 0, 2, 2], &[]), array::<f64>(&[1, 0, 2, 2], &[]));
        assert_eq!(go(op, &[&x, &w, &array(&[1], &[5f64])], &[1, 1, 1, 1]), [5.0]);
        let (g, w) = (array::<f64>(&[1, 0, 1, 1], &[]), array::<f64>(&[0, 1, 2, 2], &[]));
        let back = ConvOp::InputGradient { args: a, shape: [1, 1, 2, 2][..].into() };
        assert_eq!(go(back, &[&g, &w], &[1, 1, 2, 2]), [0.0; 4]);
    }
}
