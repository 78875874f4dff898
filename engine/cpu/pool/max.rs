//! The largest element of each window, in place, and moving elements from and to those places.
//!
//! Depends on `simd`. Places are numbered within their plane, in 32 bits, so that vectors hold as many as of `f32`.

use super::{each_plane, grain, input_plane, output_plane, taps, with_real, Tap, Window, Windows};
use crate::dtype::Element;
use crate::fallible::{scratch, scratch_resize};
use crate::simd::{run, threads, Extreme, Sum, Task};
use crate::CpuArray;
use crate::{DType, Error, Result};
use half::{bf16, f16};
use lucid_ir::backend::Array;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Elements with a least one.
pub(super) trait Lowest: Element + Extreme {
    const LOWEST: Self;
}
macro_rules! lowest {
    ($($t:ident $least:ident),*) => { $(impl Lowest for $t { const LOWEST: $t = $t::$least; })* };
}
lowest!(u8 MIN, i8 MIN, i16 MIN, i32 MIN, i64 MIN, f16 NEG_INFINITY, bf16 NEG_INFINITY, f32 NEG_INFINITY, f64 NEG_INFINITY);

/// Windows of 2 × 2 that are adjacent.
fn is_halving(w: &Windows) -> bool {
    let [d, h, ww] = w;
    let halves =
        |w: &Window| w.taps == 2 && w.stride == 2 && w.padding == 0 && w.dilation == 1 && 2 * w.count <= w.size;
    d.size == 1 && d.taps == 1 && d.count == 1 && d.padding == 0 && halves(h) && halves(ww)
}

/// The better of two elements with their places.
#[inline(always)]
fn better<T: Extreme>(a: (T, u32), b: (T, u32)) -> (T, u32) {
    let wins = T::beats::<true>(b.0, a.0);
    (if wins { b.0 } else { a.0 }, if wins { b.1 } else { a.1 })
}

/// The maxima of a plane's windows; their places too if `PLACES`, for which the plane has fewer than 2^32 elements.
struct Maxima<'a, T, const PLACES: bool> {
    w: &'a Windows,
    taps: &'a [Tap],
    x: &'a [T],
    best: &'a mut [T],
    places: &'a mut [u32],
}

impl<T: Lowest, const PLACES: bool> Maxima<'_, T, PLACES> {
    /// One row of 2 × 2 windows, below the rows `a` and `b`, the first of which begins at `first`.
    #[inline(always)]
    fn halve(a: &[T], b: &[T], first: u32, best: &mut [T], places: &mut [u32]) {
        let pairs = a.chunks_exact(2).zip(b.chunks_exact(2));
        if PLACES {
            let below = first.wrapping_add(a.len() as u32);
            for ((((a, b), best), place), i) in pairs.zip(best).zip(places).zip(0usize..) {
                let p = (i as u32).wrapping_mul(2);
                let upper = better((a[0], first.wrapping_add(p)), (a[1], first.wrapping_add(p).wrapping_add(1)));
                let lower = better((b[0], below.wrapping_add(p)), (b[1], below.wrapping_add(p).wrapping_add(1)));
                (*best, *place) = better(upper, lower);
            }
        } else {
            let larger = |a, b| if T::beats::<true>(b, a) { b } else { a };
            for ((a, b), best) in pairs.zip(best) {
                *best = larger(larger(a[0], a[1]), larger(b[0], b[1]));
            }
        }
    }

    /// Takes elements, whose places are `stride` apart, into the maxima so far.
    #[inline(always)]
    fn take(x: &[T], stride: usize, first: u32, best: &mut [T], places: &mut [u32]) {
        if PLACES {
            let step = stride as u32;
            for (((&x, best), place), i) in x.iter().zip(best).zip(places).zip(0usize..) {
                let at = first.wrapping_add((i as u32).wrapping_mul(step));
                (*best, *place) = better((*best, *place), (x, at));
            }
        } else {
            for (&x, best) in x.iter().zip(best) {
                *best = if T::beats::<true>(x, *best) { x } else { *best };
            }
        }
    }
}

impl<T: Lowest, const PLACES: bool> Task for Maxima<'_, T, PLACES> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        let Maxima { w, taps, x, best, places } = self;
        let [wd, wh, ww] = w;
        if is_halving(w) {
            let rows = x.chunks_exact(2 * ww.size);
            for (i, (rows, best)) in rows.zip(best.chunks_mut(ww.count)).enumerate() {
                let (a, b) = rows.split_at(ww.size);
                let places = if PLACES { &mut places[i * ww.count..(i + 1) * ww.count] } else { &mut [] };
                Self::halve(a, b, (i * 2 * ww.size) as u32, best, places);
            }
            return;
        }
        best.fill(T::LOWEST);
        if PLACES {
            // Each window's first element, which stays where all are the least there is.
            let first = |w: &Window, i: usize| (0..w.taps).find_map(|t| w.at(i, t)).unwrap_or(0);
            for row in 0..wd.count * wh.count {
                let at = (first(wd, row / wh.count) * wh.size + first(wh, row % wh.count)) * ww.size;
                for (column, place) in places[row * ww.count..][..ww.count].iter_mut().enumerate() {
                    *place = (at + first(ww, column)) as u32;
                }
            }
        }
        // What is read `stride` apart again and again is copied side by side once: the rows' first, second, … elements.
        let (stride, size) = (ww.stride, ww.size);
        let apart = size.div_ceil(stride);
        let mut parts = Vec::new();
        if stride > 1 {
            scratch_resize(&mut parts, x.len() / size.max(1) * stride * apart, T::LOWEST);
            for (x, parts) in x.chunks_exact(size).zip(parts.chunks_exact_mut(stride * apart)) {
                if stride == 2 {
                    let (even, odd) = parts.split_at_mut(apart);
                    let pairs = x.chunks_exact(2);
                    if let ([last], Some(to)) = (pairs.remainder(), even.last_mut()) {
                        *to = *last;
                    }
                    for ((pair, even), odd) in pairs.zip(even).zip(odd) {
                        (*even, *odd) = (pair[0], pair[1]);
                    }
                } else {
                    for (part, to) in parts.chunks_exact_mut(apart).enumerate() {
                        to.iter_mut().zip(x.iter().skip(part).step_by(stride)).for_each(|(to, x)| *to = *x);
                    }
                }
            }
        }
        for &Tap { to, len, from } in taps {
            let places = if PLACES { &mut places[to..to + len] } else { &mut [] };
            let best = &mut best[to..to + len];
            if stride == 1 {
                Self::take(&x[from..], 1, from as u32, best, places);
                continue;
            }
            let (row, column) = (from / size, from % size);
            let at = (row * stride + column % stride) * apart + column / stride;
            Self::take(&parts[at..], stride, from as u32, best, places);
        }
    }
}

pub(super) fn max<T: Lowest>(x: &CpuArray, w: &Windows, shape: &[usize]) -> Result<CpuArray> {
    let x = x.contiguous()?;
    let guard = x.read::<T>();
    let data = x.slice(&guard);
    let taps = &taps(w, data.len());
    CpuArray::build(shape, |out: &mut [T]| {
        each_plane(data, input_plane(w), out, output_plane(w), grain(w), |x, best| {
            run(Maxima::<T, false> { w, taps, x, best, places: &mut [] });
        });
        Ok(())
    })
}

/// Numbers of places within a plane.
pub(super) trait Place: Element {
    /// Planes have as many elements at most.
    const MOST: u64;
    fn of(place: u32) -> Self;
}
impl Place for i32 {
    const MOST: u64 = 1 << 31;
    fn of(place: u32) -> i32 {
        place as i32
    }
}
impl Place for i64 {
    const MOST: u64 = 1 << 32;
    fn of(place: u32) -> i64 {
        place.into()
    }
}

/// Where in their planes the maxima of the windows are.
pub(super) fn places<P: Place>(x: &CpuArray, w: &Windows, shape: &[usize]) -> Result<CpuArray> {
    fn of<T: Lowest, P: Place>(x: &CpuArray, w: &Windows, shape: &[usize]) -> Result<CpuArray> {
        let x = x.contiguous()?;
        let guard = x.read::<T>();
        let data = x.slice(&guard);
        let (taps, unit) = (&taps(w, data.len()), output_plane(w));
        CpuArray::build(shape, |out: &mut [P]| {
            threads::for_chunks(out, unit.max(1), grain(w), |start, out| {
                let (mut best, mut places) = (scratch(T::LOWEST, unit), scratch(0, unit));
                let size = input_plane(w);
                for (i, out) in out.chunks_mut(unit.max(1)).enumerate() {
                    let plane = start / unit.max(1) + i;
                    let x = &data[plane * size..(plane + 1) * size];
                    run(Maxima::<T, true> { w, taps, x, best: &mut best, places: &mut places });
                    out.iter_mut().zip(&places).for_each(|(o, &p)| *o = P::of(p));
                }
            });
            Ok(())
        })
    }
    if input_plane(w) as u64 > P::MOST {
        let why = format!("finds the places of maxima in planes of {} elements at most", P::MOST);
        return Err(Error::shape("max_pool", why, &[x.shape()]));
    }
    with_real!(x.dtype(), T => of::<T, P>(x, w, shape))
}

fn outside() -> Box<Error> {
    Error::index("max_pool", "a place is outside of its plane")
}

/// Elements of the planes and places in each.
fn planes(x: &[usize], places: &[usize]) -> (usize, usize) {
    let each = |shape: &[usize]| crate::shape::product(shape.iter().skip(2).copied());
    (each(x), each(places))
}

/// The elements at places of their planes.
pub(super) fn take(x: &CpuArray, places: &CpuArray) -> Result<CpuArray> {
    fn of<T: Element>(x: &CpuArray, places: &CpuArray) -> Result<CpuArray> {
        let (size, unit) = planes(x.shape(), places.shape());
        let (x, places) = (x.contiguous()?, places.contiguous()?);
        let (guard, at) = (x.read::<T>(), places.read::<i32>());
        let (data, at) = (x.slice(&guard), places.slice(&at));
        let missed = AtomicBool::new(false);
        let taken = CpuArray::build(places.shape(), |out: &mut [T]| {
            threads::for_chunks(out, unit.max(1), threads::GRAIN / 4, |start, out| {
                let planes = data[start / unit.max(1) * size..].chunks(size.max(1));
                for ((x, at), out) in planes.zip(at[start..].chunks(unit.max(1))).zip(out.chunks_mut(unit.max(1))) {
                    for (o, &p) in out.iter_mut().zip(at) {
                        match x.get(p as usize) {
                            Some(&x) => *o = x,
                            None => missed.store(true, Relaxed),
                        }
                    }
                }
            });
            Ok(())
        });
        if missed.into_inner() {
            Err(outside())
        } else {
            taken
        }
    }
    with_real!(x.dtype(), T => of::<T>(x, places))
}

/// Zeros with `g` added at places of the planes.
pub(super) fn put(g: &CpuArray, places: &CpuArray, shape: &[usize]) -> Result<CpuArray> {
    fn of<T: Element + Sum>(g: &CpuArray, places: &CpuArray, shape: &[usize]) -> Result<CpuArray> {
        let (size, unit) = planes(shape, places.shape());
        let (g, places) = (g.contiguous()?, places.contiguous()?);
        let (guard, at) = (g.read::<T>(), places.read::<i32>());
        let (data, at) = (g.slice(&guard), places.slice(&at));
        let missed = AtomicBool::new(false);
        let sums = CpuArray::build(shape, |out: &mut [T]| {
            threads::for_chunks(out, size.max(1), threads::GRAIN / 4, |start, out| {
                for (i, out) in out.chunks_mut(size.max(1)).enumerate() {
                    let own = (start / size.max(1) + i) * unit..(start / size.max(1) + i + 1) * unit;
                    out.fill(T::default());
                    for (&g, &p) in data[own.clone()].iter().zip(&at[own]) {
                        match out.get_mut(p as usize) {
                            Some(to) => *to = T::narrow(T::add(to.widen(), g.widen())),
                            None => missed.store(true, Relaxed),
                        }
                    }
                }
            });
            Ok(())
        });
        if missed.into_inner() {
            Err(outside())
        } else {
            sums
        }
    }
    with_real!(g.dtype(), T => of::<T>(g, places, shape))
}
