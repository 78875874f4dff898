//! Pooling over windows in one to three dimensions.
//!
//! Depends on `simd`. Planes are walked tap by tap: for each element of the window, a row of results takes in a row of the
//! input, so that the inner loops run along rows. Invariant: of equal maxima the first in row-major order is the one; NaN
//! counts as equal to NaN and above all else.

mod average;
mod max;

use super::fused::with_float;
use super::simd::threads;
use super::CpuArray;
use crate::{fallible, DType, Error, Result};
use half::{bf16, f16};
use lucid_ir::backend::Array;
use lucid_ir::ops::pool::{PoolArgs, PoolOp};
use lucid_ir::Meta;
use std::ops::Range;

/// The layout of windows along one dimension.
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

    /// The element of a window, if it is inside the input.
    #[inline(always)]
    pub fn at(&self, window: usize, tap: usize) -> Option<usize> {
        (window * self.stride + tap * self.dilation).checked_sub(self.padding).filter(|&i| i < self.size)
    }

    /// The windows whose element of that number is inside the input.
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
    crate::shape::product(w.iter().map(|w| w.size))
}

fn output_plane(w: &Windows) -> usize {
    crate::shape::product(w.iter().map(|w| w.count))
}

/// Windows in a row that take in elements of a row of the input.
#[derive(Clone, Copy, Debug)]
struct Tap {
    /// The first window.
    to: usize,
    /// How many.
    len: usize,
    /// The first one's element.
    from: usize,
}

/// For each row of windows and each tap inside the input what meets. A list, as the body of a loop over it is compiled for
/// the instruction set of the function that it stands in, and a closure's is not.
fn taps(w: &Windows, elements: usize) -> Vec<Tap> {
    let [wd, wh, ww] = w;
    let mut list = Vec::new();
    // Without planes nothing meets, however large each would be.
    if elements == 0 {
        return list;
    }
    for row in 0..wd.count * wh.count {
        fallible::scratch_reserve(&mut list, wd.taps * wh.taps * ww.taps);
        let (d, h) = (row / wh.count, row % wh.count);
        for td in 0..wd.taps {
            let Some(id) = wd.at(d, td) else { continue };
            for th in 0..wh.taps {
                let Some(ih) = wh.at(h, th) else { continue };
                for tw in 0..ww.taps {
                    let range = ww.inside(tw);
                    if let Some(first) = ww.at(range.start, tw).filter(|_| !range.is_empty()) {
                        let from = (id * wh.size + ih) * ww.size + first;
                        list.push(Tap { to: row * ww.count + range.start, len: range.len(), from });
                    }
                }
            }
        }
    }
    list
}

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
            other @ (DType::Bool
            | DType::C64
            | DType::C128
            | DType::U16
            | DType::U32
            | DType::U64
            | DType::F8E4M3FN
            | DType::F8E5M2) => Err(Error::dtype("pool", "expected a real dtype", &[other])),
        }
    };
}

use with_real;

/// The kernels of the `pool` family.
pub fn pool(op: &PoolOp, inputs: &[&CpuArray], out: &Meta) -> Result<CpuArray> {
    let x = inputs[0];
    let of = |shape: &[usize], args: &PoolArgs| windows(shape.get(2..).unwrap_or(&[]), args);
    match op {
        PoolOp::Max { args } => {
            let w = of(x.shape(), args)?;
            with_real!(x.dtype(), T => max::max::<T>(x, &w, &out.shape))
        }
        PoolOp::MaxIndices { args } => {
            let w = of(x.shape(), args)?;
            match out.dtype {
                DType::I32 => max::places::<i32>(x, &w, &out.shape),
                _ => max::places::<i64>(x, &w, &out.shape),
            }
        }
        PoolOp::MaxPick { args } => {
            let places = max::places::<i32>(x, &of(x.shape(), args)?, &out.shape)?;
            max::take(inputs[1], &places)
        }
        PoolOp::MaxScatter { args } => {
            let places = max::places::<i32>(x, &of(x.shape(), args)?, inputs[1].shape())?;
            max::put(inputs[1], &places, &out.shape)
        }
        PoolOp::Take => max::take(x, inputs[1]),
        PoolOp::Put { shape } => max::put(x, inputs[1], shape),
        PoolOp::Average { args } => {
            let w = of(x.shape(), args)?;
            with_float!("avg_pool", out.dtype, T => average::average::<T>(x, &w, args, &out.shape))
        }
        PoolOp::AverageSpread { args, shape } => {
            let w = of(shape, args)?;
            with_float!("avg_pool", out.dtype, T => average::spread::<T>(x, &w, args, &out.shape))
        }
    }
}

/// How many results a thread should make at least.
fn grain(w: &Windows) -> usize {
    threads::GRAIN / 4 / crate::shape::product(w.iter().map(|w| w.taps)).max(1)
}

/// Runs `f(input planes, output planes)` for all planes, some at a time.
fn some_planes<T: Sync, O: Send>(
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
        let (first, planes) = (start / unit, out.len() / unit);
        f(&x[first * size..(first + planes) * size], out);
    });
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
    some_planes(x, size, out, unit, grain, |x, out| {
        for (i, out) in out.chunks_mut(unit).enumerate() {
            f(&x[i * size..(i + 1) * size], out);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::Element;
    use crate::tests::{array, layouts, show};
    use lucid_ir::ops::conv::Spatial;
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
                let at = array(&shape, &want.iter().map(|&i| i as i32).collect::<Vec<_>>());
                let found = go::<i32>(PoolOp::MaxIndices { args: a.clone() }, &[&x], &shape);
                assert_eq!(found, show::<i32>(&at));
                let y = go::<f32>(PoolOp::Take, &[&x, &at], &shape);
                assert_eq!(y, want.iter().map(|&i| data[i]).collect::<Vec<_>>());
                let op = PoolOp::Put { shape: [1, 1, h, w][..].into() };
                assert_eq!(go::<f32>(op, &[&g, &at], &[1, 1, h, w]), scattered);
            }
        }
    }

    #[test]
    fn places_outside_of_their_planes_are_refused() {
        let (x, at) = (array(&[1, 2, 3], &[1f32; 6]), array(&[1, 2, 1], &[0i32, 3]));
        assert!(pool(&PoolOp::Take, &[&x, &at], &Meta::new(&[1, 2, 1], DType::F32)).is_err());
        let (g, at) = (array(&[1, 2, 1], &[1f32; 2]), array(&[1, 2, 1], &[0i32, -1]));
        let op = PoolOp::Put { shape: [1, 2, 3][..].into() };
        assert!(pool(&op, &[&g, &at], &Meta::new(&[1, 2, 3], DType::F32)).is_err());
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
    fn long_windows_are_summed_along_their_rows() {
        let (h, w) = (23, 40);
        let data: Vec<f64> = (0..h * w).map(|i| (i * 29 % 11) as f64).collect();
        for a in [
            args(&[23, 40], &[23, 40], &[0, 0], &[1, 1], &[1, 1]),
            args(&[3, 40], &[2, 40], &[1, 0], &[1, 1], &[12, 1]),
            args(&[4, 20], &[3, 7], &[2, 9], &[1, 1], &[8, 6]),
        ] {
            let want: Vec<f64> = (places(&a, h, w).iter())
                .map(|p| p.iter().map(|&p| data[p]).sum::<f64>() / (a.kernel[0] * a.kernel[1]) as f64)
                .collect();
            let shape = [1, 1, a.output[0], a.output[1]];
            let a = Box::new(PoolArgs { divisor: Some(a.kernel[0] * a.kernel[1]), ..*a });
            for x in layouts(&[1, 1, h, w], &data) {
                let y = go::<f64>(PoolOp::Average { args: a.clone() }, &[&x], &shape);
                assert!(y.iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-12), "{a:?} {y:?} {want:?}");
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
