//! Pooling over windows in one to three dimensions.
//!
//! Depends on `simd`. Planes are walked tap by tap: for each element of the window, a row of results takes in a row of the
//! input, so that the inner loops run along rows. Invariant: of equal maxima the first in row-major order is the one; NaN
//! counts as equal to NaN and above all else.

use super::fused::{with_float, Compute, Float};
use super::simd::{run, threads, Extreme, Sum, Task, Wide};
use super::CpuArray;
use crate::backend::Array;
use crate::dispatch::Meta;
use crate::dtype::Element;
use crate::ops::pool::{PoolArgs, PoolOp};
use crate::{DType, Error, Result};
use half::{bf16, f16};
use std::ops::Range;

/// How windows lie along one dimension.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Elements of the input.
    pub size: usize,
    /// Windows.
    pub count: usize,
    /// Elements of a window.
    pub taps: usize,
    /// Steps between windows.
    pub stride: usize,
    /// Places before the first element.
    pub padding: usize,
    /// Steps between a window's elements.
    pub dilation: usize,
}

impl Window {
    /// A dimension that is not there.
    pub const NONE: Window = Window { size: 1, count: 1, taps: 1, stride: 1, padding: 0, dilation: 1 };

    /// The element of a window, if it lies inside the input.
    #[inline(always)]
    pub fn at(&self, window: usize, tap: usize) -> Option<usize> {
        (window * self.stride + tap * self.dilation).checked_sub(self.padding).filter(|&i| i < self.size)
    }

    /// The windows whose element of that number lies inside the input.
    pub fn inside(&self, tap: usize) -> Range<usize> {
        let reach = tap * self.dilation;
        let end = (self.size + self.padding).saturating_sub(reach).div_ceil(self.stride).min(self.count);
        self.padding.saturating_sub(reach).div_ceil(self.stride).min(end)..end
    }
}

/// The windows of all dimensions; those that are not there come first.
type Windows = [Window; 3];

fn windows(space: &[usize], args: &PoolArgs) -> Result<Windows> {
    let n = args.kernel.len();
    if n == 0 || n > 3 || space.len() != n {
        return Err(Error::shape("pool", "expected one to three spatial dimensions", &[space]));
    }
    let mut out = [Window::NONE; 3];
    for (i, w) in out[3 - n..].iter_mut().enumerate() {
        *w = Window {
            size: space[i],
            count: args.output[i],
            taps: args.kernel[i],
            stride: args.stride[i],
            padding: args.padding[i],
            dilation: args.dilation[i],
        };
    }
    Ok(out)
}

fn input_plane(w: &Windows) -> usize {
    w.iter().map(|w| w.size).product()
}

fn output_plane(w: &Windows) -> usize {
    w.iter().map(|w| w.count).product()
}

/// The rows that meet: for each row of windows and each tap inside the input, (first window, windows, first element, tap).
fn each_tap(w: &Windows, mut f: impl FnMut(usize, usize, usize)) {
    let [wd, wh, ww] = w;
    for row in 0..wd.count * wh.count {
        let (d, h) = (row / wh.count, row % wh.count);
        for td in 0..wd.taps {
            let Some(id) = wd.at(d, td) else { continue };
            for th in 0..wh.taps {
                let Some(ih) = wh.at(h, th) else { continue };
                for tw in 0..ww.taps {
                    let range = ww.inside(tw);
                    if let Some(first) = ww.at(range.start, tw).filter(|_| !range.is_empty()) {
                        let from = (id * wh.size + ih) * ww.size + first;
                        f(row * ww.count + range.start, range.len(), from);
                    }
                }
            }
        }
    }
}

/// Elements with a least one.
trait Lowest: Element + Extreme {
    const LOWEST: Self;
}
macro_rules! lowest {
    ($($t:ident $least:ident),*) => { $(impl Lowest for $t { const LOWEST: $t = $t::$least; })* };
}
lowest!(u8 MIN, i8 MIN, i16 MIN, i32 MIN, i64 MIN, f16 NEG_INFINITY, bf16 NEG_INFINITY, f32 NEG_INFINITY, f64 NEG_INFINITY);

macro_rules! with_real {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            DType::U8 => {
                type $T = u8;
                $body
            }
            DType::I8 => {
                type $T = i8;
                $body
            }
            DType::I16 => {
                type $T = i16;
                $body
            }
            DType::I32 => {
                type $T = i32;
                $body
            }
            DType::I64 => {
                type $T = i64;
                $body
            }
            DType::F16 => {
                type $T = f16;
                $body
            }
            DType::BF16 => {
                type $T = bf16;
                $body
            }
            DType::F32 => {
                type $T = f32;
                $body
            }
            DType::F64 => {
                type $T = f64;
                $body
            }
            other @ (DType::Bool | DType::C64) => Err(Error::dtype("pool", "expected a real dtype", &[other])),
        }
    };
}

/// The kernels of the `pool` family.
pub fn pool(op: &PoolOp, inputs: &[&CpuArray], out: &Meta) -> Result<CpuArray> {
    let x = inputs[0];
    let of = |shape: &[usize], args: &PoolArgs| windows(shape.get(2..).unwrap_or(&[]), args);
    match op {
        PoolOp::Max { args } => {
            let w = of(x.shape(), args)?;
            with_real!(x.dtype(), T => max::<T>(x, &w, &out.shape))
        }
        PoolOp::MaxIndices { args } => max_indices(x, &of(x.shape(), args)?, &out.shape),
        PoolOp::MaxPick { args } => {
            let w = of(x.shape(), args)?;
            let at = max_indices(x, &w, &out.shape)?;
            with_real!(out.dtype, T => pick::<T>(inputs[1], &at, &w, &out.shape))
        }
        PoolOp::MaxScatter { args } => {
            let w = of(x.shape(), args)?;
            let at = max_indices(x, &w, inputs[1].shape())?;
            with_real!(out.dtype, T => scatter::<T>(inputs[1], &at, &w, &out.shape))
        }
        PoolOp::Average { args } => {
            let w = of(x.shape(), args)?;
            with_float!("avg_pool", out.dtype, T => average::<T>(x, &w, args, &out.shape))
        }
        PoolOp::AverageSpread { args, shape } => {
            let w = of(shape, args)?;
            with_float!("avg_pool", out.dtype, T => spread::<T>(x, &w, args, &out.shape))
        }
    }
}

/// How many results a thread should make at least.
fn grain(w: &Windows) -> usize {
    threads::GRAIN / 4 / w.iter().map(|w| w.taps).product::<usize>().max(1)
}

/// Runs `f(input plane, output plane)` for all planes.
fn each_plane<T: Sync, O: Send>(
    x: &[T],
    size: usize,
    out: &mut [O],
    unit: usize,
    grain: usize,
    f: impl Fn(&[T], &mut [O]) + Sync,
) {
    if unit == 0 || out.is_empty() {
        return;
    }
    threads::for_chunks(out, unit, grain, |start, out| {
        for (i, out) in out.chunks_mut(unit).enumerate() {
            let plane = start / unit + i;
            f(&x[plane * size..(plane + 1) * size], out);
        }
    });
}

/// Windows of 2 × 2 that lie side by side.
fn is_halving(w: &Windows) -> bool {
    let [d, h, ww] = w;
    let halves =
        |w: &Window| w.taps == 2 && w.stride == 2 && w.padding == 0 && w.dilation == 1 && 2 * w.count <= w.size;
    d.size == 1 && d.taps == 1 && d.count == 1 && d.padding == 0 && halves(h) && halves(ww)
}

/// The better of two elements with their places.
#[inline(always)]
fn better<T: Extreme>(a: (T, i64), b: (T, i64)) -> (T, i64) {
    let wins = T::beats::<true>(b.0, a.0);
    (if wins { b.0 } else { a.0 }, if wins { b.1 } else { a.1 })
}

/// One row of 2 × 2 windows: the maxima, and their places if `PLACES`.
struct Halve<'a, T, const PLACES: bool> {
    rows: [&'a [T]; 2],
    /// Place of the upper row's first element.
    first: i64,
    best: &'a mut [T],
    places: &'a mut [i64],
}
impl<T: Extreme, const PLACES: bool> Task for Halve<'_, T, PLACES> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        let Halve { rows: [a, b], first, best, places } = self;
        let pairs = a.chunks_exact(2).zip(b.chunks_exact(2));
        if PLACES {
            let below = first + a.len() as i64;
            for (((p, (a, b)), best), place) in (0i64..).step_by(2).zip(pairs).zip(best).zip(places) {
                let upper = better((a[0], first + p), (a[1], first + p + 1));
                let lower = better((b[0], below + p), (b[1], below + p + 1));
                (*best, *place) = better(upper, lower);
            }
        } else {
            let larger = |a, b| if T::beats::<true>(b, a) { b } else { a };
            for ((a, b), best) in pairs.zip(best) {
                *best = larger(larger(a[0], a[1]), larger(b[0], b[1]));
            }
        }
    }
}

/// Takes a row of elements, `stride` apart, into the maxima so far.
struct Take<'a, T, const PLACES: bool> {
    x: &'a [T],
    stride: usize,
    first: i64,
    best: &'a mut [T],
    places: &'a mut [i64],
}
impl<T: Extreme, const PLACES: bool> Take<'_, T, PLACES> {
    #[inline(always)]
    fn all<'x>(best: &mut [T], places: &mut [i64], stride: usize, first: i64, x: impl Iterator<Item = &'x T>) {
        if PLACES {
            for (((&x, best), place), at) in x.zip(best).zip(places).zip((first..).step_by(stride)) {
                (*best, *place) = better((*best, *place), (x, at));
            }
        } else {
            for (&x, best) in x.zip(best) {
                *best = if T::beats::<true>(x, *best) { x } else { *best };
            }
        }
    }
}
impl<T: Extreme, const PLACES: bool> Task for Take<'_, T, PLACES> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        let Take { x, stride, first, best, places } = self;
        // One loop for each step that the compiler can know.
        match stride {
            1 => Self::all(best, places, 1, first, x.iter()),
            2 => Self::all(best, places, 2, first, x.iter().step_by(2)),
            _ => Self::all(best, places, stride, first, x.iter().step_by(stride)),
        }
    }
}

/// The maxima of a plane's windows; their places too if `PLACES`.
fn max_plane<T: Lowest, const PLACES: bool>(w: &Windows, x: &[T], best: &mut [T], places: &mut [i64]) {
    let [wd, wh, ww] = w;
    if is_halving(w) {
        let rows = x.chunks_exact(2 * ww.size);
        for (i, (rows, best)) in rows.zip(best.chunks_mut(ww.count)).enumerate() {
            let (a, b) = rows.split_at(ww.size);
            let places = if PLACES { &mut places[i * ww.count..(i + 1) * ww.count] } else { &mut [] };
            let first = (i * 2 * ww.size) as i64;
            run(Halve::<T, PLACES> { rows: [a, b], first, best, places });
        }
        return;
    }
    best.fill(T::LOWEST);
    if PLACES {
        // Each window's first element, which stays where all are the least there is.
        let first = |w: &Window, i: usize| (0..w.taps).find_map(|t| w.at(i, t)).unwrap_or(0);
        for (i, place) in places.iter_mut().enumerate() {
            let (row, column) = (i / ww.count, i % ww.count);
            let (d, h) = (first(wd, row / wh.count), first(wh, row % wh.count));
            *place = ((d * wh.size + h) * ww.size + first(ww, column)) as i64;
        }
    }
    each_tap(w, |to, len, from| {
        let places = if PLACES { &mut places[to..to + len] } else { &mut [] };
        let best = &mut best[to..to + len];
        run(Take::<T, PLACES> { x: &x[from..], stride: ww.stride, first: from as i64, best, places });
    });
}

fn max<T: Lowest>(x: &CpuArray, w: &Windows, shape: &[usize]) -> Result<CpuArray> {
    let x = x.contiguous()?;
    let guard = x.read::<T>();
    let data = x.slice(&guard);
    CpuArray::build(shape, |out: &mut [T]| {
        each_plane(data, input_plane(w), out, output_plane(w), grain(w), |x, out| {
            max_plane::<T, false>(w, x, out, &mut []);
        });
        Ok(())
    })
}

fn max_indices(x: &CpuArray, w: &Windows, shape: &[usize]) -> Result<CpuArray> {
    with_real!(x.dtype(), T => {
        let x = x.contiguous()?;
        let guard = x.read::<T>();
        let data = x.slice(&guard);
        CpuArray::build(shape, |out: &mut [i64]| {
            each_plane(data, input_plane(w), out, output_plane(w), grain(w), |x, out| {
                max_plane::<T, true>(w, x, &mut vec![T::LOWEST; out.len()], out);
            });
            Ok(())
        })
    })
}

fn pick<T: Element>(source: &CpuArray, at: &CpuArray, w: &Windows, shape: &[usize]) -> Result<CpuArray> {
    let source = source.contiguous()?;
    let (guard, at_guard) = (source.read::<T>(), at.read::<i64>());
    let (data, at) = (source.slice(&guard), at.slice(&at_guard));
    let (size, unit) = (input_plane(w), output_plane(w).max(1));
    CpuArray::build(shape, |out: &mut [T]| {
        threads::for_chunks(out, unit, threads::GRAIN / 2, |start, out| {
            let planes = data[start / unit * size..].chunks(size.max(1));
            for ((x, out), at) in planes.zip(out.chunks_mut(unit)).zip(at[start..].chunks(unit)) {
                out.iter_mut().zip(at).for_each(|(o, &i)| *o = x[i as usize]);
            }
        });
        Ok(())
    })
}

fn scatter<T: Element + Sum>(g: &CpuArray, at: &CpuArray, w: &Windows, shape: &[usize]) -> Result<CpuArray> {
    let g = g.contiguous()?;
    let (guard, at_guard) = (g.read::<T>(), at.read::<i64>());
    let (data, at) = (g.slice(&guard), at.slice(&at_guard));
    let (size, unit) = (input_plane(w).max(1), output_plane(w).max(1));
    CpuArray::build(shape, |out: &mut [T]| {
        threads::for_chunks(out, size, threads::GRAIN / 2, |start, out| {
            out.fill(T::default());
            let (g, at) = (data[start / size * unit..].chunks(unit), at[start / size * unit..].chunks(unit));
            for ((out, g), at) in out.chunks_mut(size).zip(g).zip(at) {
                for (&g, &i) in g.iter().zip(at) {
                    let to = &mut out[i as usize];
                    *to = T::narrow(T::add(to.widen(), g.widen()));
                }
            }
        });
        Ok(())
    })
}

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
    (0..w.count).map(|i| W::of(count(i) as f64)).collect()
}

/// What each window of a plane is divided by.
fn divisors<W: Compute>(w: &Windows, args: &PoolArgs) -> Vec<W> {
    if let Some(d) = args.divisor {
        return vec![W::of(d as f64); output_plane(w)];
    }
    let [d, h, ww] = w.each_ref().map(|w| counts::<W>(w, args.count_include_pad));
    let rows = d.iter().flat_map(|&d| h.iter().map(move |&h| d * h));
    rows.flat_map(|row| ww.iter().map(move |&c| row * c)).collect()
}

/// Adds a row of elements, `step` apart, to a row.
struct AddFrom<'a, T: Wide> {
    x: &'a [T],
    step: usize,
    sums: &'a mut [T::W],
}
impl<T: Wide<W: Compute>> Task for AddFrom<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        let AddFrom { x, step, sums } = self;
        match step {
            1 => sums.iter_mut().zip(x).for_each(|(s, x)| *s = *s + x.widen()),
            2 => sums.iter_mut().zip(x.iter().step_by(2)).for_each(|(s, x)| *s = *s + x.widen()),
            _ => sums.iter_mut().zip(x.iter().step_by(step)).for_each(|(s, x)| *s = *s + x.widen()),
        }
    }
}

fn average<T: Float>(x: &CpuArray, w: &Windows, args: &PoolArgs, shape: &[usize]) -> Result<CpuArray> {
    let x = x.contiguous()?;
    let guard = x.read::<T>();
    let data = x.slice(&guard);
    let by = divisors::<T::W>(w, args);
    CpuArray::build(shape, |out: &mut [T]| {
        each_plane(data, input_plane(w), out, output_plane(w), grain(w), |x, out| {
            let mut sums = vec![T::W::of(0.0); out.len()];
            each_tap(w, |to, len, from| {
                run(AddFrom { x: &x[from..], step: w[2].stride, sums: &mut sums[to..to + len] });
            });
            for ((o, &sum), &by) in out.iter_mut().zip(&sums).zip(&by) {
                // A window beside the input covers nothing.
                *o = T::narrow(if by == T::W::of(0.0) { by } else { sum / by });
            }
        });
        Ok(())
    })
}

fn spread<T: Float>(g: &CpuArray, w: &Windows, args: &PoolArgs, shape: &[usize]) -> Result<CpuArray> {
    let g = g.contiguous()?;
    let guard = g.read::<T>();
    let data = g.slice(&guard);
    let by = divisors::<T::W>(w, args);
    CpuArray::build(shape, |out: &mut [T]| {
        each_plane(data, output_plane(w), out, input_plane(w), threads::GRAIN / 8, |g, out| {
            let zero = T::W::of(0.0);
            let share = |(g, &by): (&T, &T::W)| if by == zero { zero } else { g.widen() / by };
            let shares: Vec<T::W> = g.iter().zip(&by).map(share).collect();
            let mut sums = vec![zero; out.len()];
            each_tap(w, |to, len, from| {
                let sums = sums[from..].iter_mut().step_by(w[2].stride);
                sums.zip(&shares[to..to + len]).for_each(|(s, &x)| *s = *s + x);
            });
            out.iter_mut().zip(sums).for_each(|(o, sum)| *o = T::narrow(sum));
        });
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::tests::{array, layouts, show};
    use crate::ops::conv::Spatial;
    use std::slice::from_ref;

    fn args(
        kernel: &[usize],
        stride: &[usize],
        padding: &[usize],
        dilation: &[usize],
        output: &[usize],
    ) -> Box<PoolArgs> {
        let [kernel, stride, padding, dilation, output] =
            [kernel, stride, padding, dilation, output].map(Spatial::from_slice);
        Box::new(PoolArgs { kernel, stride, padding, dilation, output, count_include_pad: true, divisor: None })
    }

    fn go<T: Element>(op: PoolOp, inputs: &[&CpuArray], shape: &[usize]) -> Vec<T> {
        show(&pool(&op, inputs, &Meta::new(shape, T::DTYPE)).unwrap())
    }

    /// For each window of a (1, 1, h, w) input, its places inside.
    fn places(a: &PoolArgs, h: usize, w: usize) -> Vec<Vec<usize>> {
        let at = |i: usize, t: usize, d: usize, n: usize| {
            (i * a.stride[d] + t * a.dilation[d]).checked_sub(a.padding[d]).filter(|&x| x < n)
        };
        let mut out = Vec::new();
        for (i, j) in (0..a.output[0]).flat_map(|i| (0..a.output[1]).map(move |j| (i, j))) {
            let taps = (0..a.kernel[0]).flat_map(|s| (0..a.kernel[1]).map(move |t| (s, t)));
            out.push(taps.filter_map(|(s, t)| Some(at(i, s, 0, h)? * w + at(j, t, 1, w)?)).collect());
        }
        out
    }

    #[allow(clippy::vec_box)] // The ops take their arguments boxed.
    fn cases() -> Vec<Box<PoolArgs>> {
        vec![
            args(&[2, 2], &[2, 2], &[0, 0], &[1, 1], &[3, 3]),
            args(&[3, 3], &[2, 1], &[1, 1], &[1, 1], &[4, 6]),
            args(&[2, 3], &[3, 3], &[1, 0], &[2, 1], &[2, 2]),
            // As with ceil_mode: the last windows reach beyond the padding.
            args(&[2, 2], &[2, 2], &[0, 0], &[1, 1], &[4, 3]),
            args(&[3, 3], &[2, 2], &[1, 1], &[1, 1], &[4, 4]),
        ]
    }

    #[test]
    fn maxima_and_their_places() {
        let (h, w) = (7, 6);
        let data: Vec<f32> = (0..h * w).map(|i| (i * 29 % 11) as f32 - 20.0).collect();
        for a in cases() {
            let want: Vec<usize> = places(&a, h, w)
                .iter()
                .map(|p| p.iter().copied().reduce(|b, i| if data[i] > data[b] { i } else { b }).unwrap())
                .collect();
            let shape = [1, 1, a.output[0], a.output[1]];
            let g: Vec<f32> = (0..want.len()).map(|i| i as f32 + 1.0).collect();
            let mut scattered = vec![0f32; h * w];
            want.iter().zip(&g).for_each(|(&i, g)| scattered[i] += g);
            for x in layouts(&[1, 1, h, w], &data) {
                let y = go::<f32>(PoolOp::Max { args: a.clone() }, &[&x], &shape);
                assert_eq!(y, want.iter().map(|&i| data[i]).collect::<Vec<_>>(), "{a:?}");
                let at = go::<i64>(PoolOp::MaxIndices { args: a.clone() }, &[&x], &shape);
                assert_eq!(at, want.iter().map(|&i| i as i64).collect::<Vec<_>>(), "{a:?}");
                let y = go::<f32>(PoolOp::MaxPick { args: a.clone() }, &[&x, &x], &shape);
                assert_eq!(y, want.iter().map(|&i| data[i]).collect::<Vec<_>>());
                let g = array(&shape, &g);
                let y = go::<f32>(PoolOp::MaxScatter { args: a.clone() }, &[&x, &g], &[1, 1, h, w]);
                assert_eq!(y, scattered, "{a:?}");
            }
        }
    }

    #[test]
    fn averages_and_their_gradient() {
        let (h, w) = (7, 6);
        let data: Vec<f64> = (0..h * w).map(|i| (i * 29 % 11) as f64).collect();
        for a in cases().into_iter().filter(|a| a.dilation.iter().all(|&d| d == 1)) {
            for (include, divisor) in [(true, None), (false, None), (true, Some(3))] {
                let a = Box::new(PoolArgs { count_include_pad: include, divisor, ..(*a).clone() });
                let extent = |i: usize, d: usize, n: usize| {
                    (i * a.stride[d] + a.kernel[d]).min(n + 2 * a.padding[d]) - i * a.stride[d]
                };
                let by = |i: usize, inside: usize| match (divisor, include) {
                    (Some(d), _) => d,
                    (None, true) => extent(i / a.output[1], 0, h) * extent(i % a.output[1], 1, w),
                    (None, false) => inside,
                };
                let shape = [1, 1, a.output[0], a.output[1]];
                let windows = places(&a, h, w);
                let mut shares = vec![0f64; h * w];
                let mut want = Vec::new();
                for (i, p) in windows.iter().enumerate() {
                    let by = by(i, p.len()) as f64;
                    want.push(p.iter().map(|&p| data[p]).sum::<f64>() / by);
                    p.iter().for_each(|&p| shares[p] += (i + 1) as f64 / by);
                }
                let near = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12);
                for x in layouts(&[1, 1, h, w], &data) {
                    let y = go::<f64>(PoolOp::Average { args: a.clone() }, &[&x], &shape);
                    assert!(near(&y, &want), "{a:?} {y:?} {want:?}");
                }
                let g: Vec<f64> = (0..want.len()).map(|i| i as f64 + 1.0).collect();
                let op = PoolOp::AverageSpread { args: a.clone(), shape: [1, 1, h, w][..].into() };
                let y = go::<f64>(op, &[&array(&shape, &g)], &[1, 1, h, w]);
                assert!(near(&y, &shares), "{a:?}");
            }
        }
    }

    #[test]
    fn nan_wins_and_the_least_is_found() {
        let x = array(&[1, 1, 4], &[1f32, f32::NAN, f32::NEG_INFINITY, f32::NEG_INFINITY]);
        let a = args(&[2], &[2], &[0], &[1], &[2]);
        let y = go::<f32>(PoolOp::Max { args: a.clone() }, &[&x], &[1, 1, 2]);
        assert!(y[0].is_nan() && y[1] == f32::NEG_INFINITY);
        assert_eq!(go::<i64>(PoolOp::MaxIndices { args: a.clone() }, &[&x], &[1, 1, 2]), [1, 2]);
        let bytes = array(&[1, 1, 4], &[0u8, 0, 3, 9]);
        assert_eq!(go::<u8>(PoolOp::Max { args: a.clone() }, from_ref(&&bytes), &[1, 1, 2]), [0, 9]);
        let none = array::<f32>(&[0, 1, 4], &[]);
        assert!(go::<f32>(PoolOp::Max { args: a.clone() }, &[&none], &[0, 1, 2]).is_empty());
        assert!(
            go::<f32>(PoolOp::MaxScatter { args: a }, &[&none, &array::<f32>(&[0, 1, 2], &[])], &[0, 1, 4]).is_empty()
        );
    }

    #[test]
    fn many_planes_of_three_dimensions() {
        threads::set_num_threads(2);
        let data: Vec<f32> = (0..40 * 16 * 64).map(|i| (i * 7919 % 1013) as f32).collect();
        let x = array(&[20, 2, 16, 8, 8], &data);
        let a = args(&[2, 2, 2], &[2, 2, 2], &[0, 0, 0], &[1, 1, 1], &[8, 4, 4]);
        let y = go::<f32>(PoolOp::Max { args: a.clone() }, &[&x], &[20, 2, 8, 4, 4]);
        let flat = |p: usize, d: usize, h: usize, w: usize| data[((p * 16 + d) * 8 + h) * 8 + w];
        for (i, y) in y.iter().enumerate() {
            let (p, d, h, w) = (i / 128, i / 16 % 8 * 2, i / 4 % 4 * 2, i % 4 * 2);
            let all = (0..8).map(|t| flat(p, d + t / 4, h + t / 2 % 2, w + t % 2));
            assert_eq!(*y, all.fold(0.0, f32::max));
        }
        let half = array(&[1, 1, 2, 2], &[bf16::ONE; 4]);
        let a = args(&[2, 2], &[2, 2], &[0, 0], &[1, 1], &[1, 1]);
        assert_eq!(go::<bf16>(PoolOp::Average { args: a }, &[&half], &[1, 1, 1, 1]), [bf16::ONE]);
    }
}
