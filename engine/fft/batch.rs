//! Transforms of real numbers of eight rows at a time, a row in each lane of AVX2's vectors.
//!
//! What is beside one another in a vector belongs to other rows, so no step moves elements within one, and a factor of 5 costs what
//! its arithmetic does. Stockham's algorithm (Cochran et al., "What is the fast Fourier transform?", 1967), which brings no order
//! about. A row of 1,000 takes four fifths of what `rustfft` and [`butterflies`](crate::butterfly) take for it; powers of two are
//! faster there, see [`takes`].
//!
//! Holds `unsafe` for AVX2's instructions, and to transpose tiles of rows. Invariant: a [`Batch`] is made only where the processor has
//! these instructions.
#![allow(unsafe_code)]

use lucid_core::fallible::scratch_resize;
use num_complex::Complex;
use std::cell::RefCell;
use std::sync::Arc;

/// Rows of a batch.
pub(crate) const ROWS: usize = 8;
/// Complex elements up to which rows stay in the second cache.
const LONGEST: usize = 2500;

/// A number of every row.
#[derive(Clone, Copy)]
#[repr(align(32))]
#[doc(hidden)]
pub struct Vector([f32; ROWS]);

/// Real and imaginary parts of a number of every row.
#[doc(hidden)]
pub type Pair = [Vector; 2];

const EMPTY: Pair = [Vector([0.0; ROWS]); 2];

thread_local! {
    static KEPT: RefCell<Vec<Pair>> = const { RefCell::new(Vec::new()) };
}

/// What batches work in, at most 320 KB, which the thread keeps: taken from the system and given back for every few rows, as the
/// C library does where this is the last of its memory, it took a third of the time.
#[doc(hidden)]
pub struct Room(Vec<Pair>);

impl Room {
    /// Room for a plan's batches.
    pub(crate) fn of(batch: Option<&Batch>) -> Room {
        let Some(batch) = batch else { return Room(Vec::new()) };
        let mut kept = KEPT.try_with(RefCell::take).unwrap_or_default();
        let len = kept.len().max(2 * (batch.m + 1));
        scratch_resize(&mut kept, len, EMPTY);
        Room(kept)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if !self.0.is_empty() {
            let _ = KEPT.try_with(|kept| kept.replace(std::mem::take(&mut self.0)));
        }
    }
}

macro_rules! by_lane {
    ($($(#[$doc:meta])* $name:ident($a:ident, $($b:ident: $B:ty),*) = |$i:ident| $value:expr;)*) => {
        impl Vector {$(
            $(#[$doc])*
            #[inline(always)]
            fn $name(self, $($b: $B),*) -> Vector {
                let ($a, mut made) = (self, self);
                for $i in 0..ROWS {
                    made.0[$i] = $value;
                }
                made
            }
        )*}
    };
}
by_lane! {
    plus(a, b: Vector) = |i| a.0[i] + b.0[i];
    minus(a, b: Vector) = |i| a.0[i] - b.0[i];
    times(a, b: f32) = |i| a.0[i] * b;
    /// `self * b + c`, rounded once.
    times_plus(a, b: f32, c: Vector) = |i| a.0[i].mul_add(b, c.0[i]);
    times_minus(a, b: f32, c: Vector) = |i| a.0[i].mul_add(b, -c.0[i]);
    negative(a,) = |i| -a.0[i];
}

#[inline(always)]
fn sum(a: Pair, b: Pair) -> Pair {
    [a[0].plus(b[0]), a[1].plus(b[1])]
}

#[inline(always)]
fn difference(a: Pair, b: Pair) -> Pair {
    [a[0].minus(b[0]), a[1].minus(b[1])]
}

#[inline(always)]
fn scaled(a: Pair, b: f32) -> Pair {
    [a[0].times(b), a[1].times(b)]
}

/// `a b + c`
#[inline(always)]
fn scaled_sum(a: Pair, b: f32, c: Pair) -> Pair {
    [a[0].times_plus(b, c[0]), a[1].times_plus(b, c[1])]
}

#[inline(always)]
fn conjugate(a: Pair) -> Pair {
    [a[0], a[1].negative()]
}

/// `a - i b` and `a + i b`
#[inline(always)]
fn minus_plus_i(a: Pair, b: Pair) -> [Pair; 2] {
    [[a[0].plus(b[1]), a[1].minus(b[0])], [a[0].minus(b[1]), a[1].plus(b[0])]]
}

#[inline(always)]
fn product(a: Pair, w: Complex<f32>) -> Pair {
    [a[0].times_minus(w.re, a[1].times(w.im)), a[0].times_plus(w.im, a[1].times(w.re))]
}

/// The transform of so few numbers.
trait Small {
    fn transformed(self) -> Self;
}

impl Small for [Pair; 2] {
    #[inline(always)]
    fn transformed(self) -> Self {
        let [a, b] = self;
        [sum(a, b), difference(a, b)]
    }
}

impl Small for [Pair; 3] {
    #[inline(always)]
    fn transformed(self) -> Self {
        let [a, b, c] = self;
        let t = sum(b, c);
        let [p, q] = minus_plus_i(scaled_sum(t, -0.5, a), scaled(difference(b, c), 0.75_f64.sqrt() as f32));
        [sum(a, t), p, q]
    }
}

impl Small for [Pair; 4] {
    #[inline(always)]
    fn transformed(self) -> Self {
        let [a, b, c, d] = self;
        let (even, odd) = (sum(a, c), sum(b, d));
        let [p, q] = minus_plus_i(difference(a, c), difference(b, d));
        [sum(even, odd), p, difference(even, odd), q]
    }
}

impl Small for [Pair; 5] {
    #[inline(always)]
    fn transformed(self) -> Self {
        // Cosines and sines of one and two fifths of a turn.
        const COS: [f32; 2] = [0.309_017, -0.809_017];
        const SIN: [f32; 2] = [0.951_056_5, 0.587_785_25];
        let [a, b, c, d, e] = self;
        let (s, t, u, v) = (sum(b, e), sum(c, d), difference(b, e), difference(c, d));
        let one =
            minus_plus_i(scaled_sum(t, COS[1], scaled_sum(s, COS[0], a)), scaled_sum(v, SIN[1], scaled(u, SIN[0])));
        let two =
            minus_plus_i(scaled_sum(t, COS[0], scaled_sum(s, COS[1], a)), scaled_sum(v, -SIN[0], scaled(u, SIN[1])));
        [sum(a, sum(s, t)), one[0], two[0], two[1], one[1]]
    }
}

/// One factor `R` of transforms of `n` elements, of which `s` stand between one another, from `x` to `y`.
#[inline(always)]
fn stage<const R: usize>(x: &[Pair], y: &mut [Pair], (n, s): (usize, usize), twiddles: &[Complex<f32>])
where
    [Pair; R]: Small,
{
    let m = n / R;
    let room = m * R * s;
    assert!(x.len() >= room && y.len() >= room && twiddles.len() >= m * (R - 1), "a stage of another length");
    for (p, w) in twiddles.chunks_exact(R - 1).take(m).enumerate() {
        for q in 0..s {
            // SAFETY: the last element that is read is `s (m - 1 + (R - 1) m) + s - 1`, the last that is written
            // `s (R (m - 1) + R - 1) + s - 1`, both `s R m - 1`, which is below the lengths that were looked at.
            unsafe {
                let (from, to) = (x.as_ptr().add(s * p + q), y.as_mut_ptr().add(s * R * p + q));
                let mut parts = [*from; R];
                for (k, part) in parts.iter_mut().enumerate().skip(1) {
                    *part = *from.add(s * m * k);
                }
                let made = parts.transformed();
                *to = made[0];
                for k in 1..R {
                    *to.add(s * k) = if m > 1 { product(made[k], w[k - 1]) } else { made[k] };
                }
            }
        }
    }
}

/// Are rows of `m` complex elements faster here than with `rustfft`? They are where it splits off several factors of 5: of 28
/// lengths from 25 to 5,000 that were timed, these.
fn takes(m: usize) -> bool {
    let (mut rest, mut fives) = (m, 0);
    while rest > 0 && rest.is_multiple_of(5) {
        (rest, fives) = (rest / 5, fives + 1);
    }
    fives >= 2 && rest <= 4 && m <= LONGEST && cfg!(target_arch = "x86_64")
}

/// The plan of rows of `2 m` real numbers.
#[doc(hidden)]
pub struct Batch {
    m: usize,
    factors: Vec<usize>,
    /// Those of each stage, one behind the other.
    twiddles: Vec<Complex<f32>>,
    /// Those of [`butterflies`](crate::butterfly::butterflies).
    real: Arc<[Complex<f32>]>,
}

impl Batch {
    /// A plan, if rows of so many are faster by one, and the processor can follow it. `real` are the factors between the
    /// transforms of complex and real numbers, in the direction of this plan.
    fn new(m: usize, real: &Arc<[Complex<f32>]>) -> Option<Arc<Batch>> {
        if !takes(m) || !has_instructions() {
            return None;
        }
        let (mut factors, mut twiddles, mut rest) = (Vec::new(), Vec::new(), m);
        for factor in [5, 3, 4, 2] {
            while rest.is_multiple_of(factor) {
                factors.push(factor);
                for (p, k) in (0..rest / factor).flat_map(|p| (1..factor).map(move |k| (p, k))) {
                    let (sin, cos) = (std::f64::consts::TAU * (p * k) as f64 / rest as f64).sin_cos();
                    twiddles.push(Complex::new(cos as f32, -sin as f32));
                }
                rest /= factor;
            }
        }
        Some(Arc::new(Batch { m, factors, twiddles, real: real.clone() }))
    }

    /// The first halves of the spectra of as many rows as a batch has, times `scale`. Rows of the result are `width`
    /// elements apart.
    fn forward(&self, x: &[f32], y: &mut [Complex<f32>], width: usize, room: &mut Room, scale: f32) {
        assert!(x.len() == ROWS * 2 * self.m && y.len() == ROWS * width && width > self.m, "rows of another length");
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a plan is made only where the processor has the instructions.
        unsafe {
            self.forward_avx2(x, y, width, room, scale);
        }
        let _ = (room, scale);
    }

    /// The rows whose spectra's first halves are `x`, times `scale`.
    fn inverse(&self, x: &[Complex<f32>], y: &mut [f32], room: &mut Room, scale: f32) {
        assert!(x.len() == ROWS * (self.m + 1) && y.len() == ROWS * 2 * self.m, "rows of another length");
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        unsafe {
            self.inverse_avx2(x, y, room, scale);
        }
        let _ = (room, scale);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    fn forward_avx2(&self, x: &[f32], y: &mut [Complex<f32>], width: usize, room: &mut Room, scale: f32) {
        let (m, (a, b)) = (self.m, room.0[..2 * (self.m + 1)].split_at_mut(self.m + 1));
        load(x, 2 * m, a[..m].as_flattened_mut());
        let z = self.run(a, b);
        let (first, h) = (z[0], scale * 0.5);
        for k in 1..m.div_ceil(2) {
            [z[k], z[m - k]] = butterfly(z[k], z[m - k], self.real[k], h);
        }
        if m.is_multiple_of(2) {
            z[m / 2] = scaled(conjugate(z[m / 2]), h + h);
        }
        z[0] = [first[0].plus(first[1]).times(scale), EMPTY[0]];
        z[m] = [first[0].minus(first[1]).times(scale), EMPTY[0]];
        store(z.as_flattened(), numbers_mut(y), 2 * width);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    fn inverse_avx2(&self, x: &[Complex<f32>], y: &mut [f32], room: &mut Room, scale: f32) {
        let (m, (a, b)) = (self.m, room.0[..2 * (self.m + 1)].split_at_mut(self.m + 1));
        load(numbers(x), 2 * (m + 1), a.as_flattened_mut());
        let (first, last) = (a[0][0].times(scale), a[m][0].times(scale));
        // The transform with the other sign is that of the elements in the opposite order.
        for k in 1..m.div_ceil(2) {
            [a[m - k], a[k]] = butterfly(a[k], a[m - k], self.real[k], scale);
        }
        if m.is_multiple_of(2) {
            a[m / 2] = scaled(conjugate(a[m / 2]), scale + scale);
        }
        a[0] = [first.plus(last), first.minus(last)];
        let z = self.run(a, b);
        store(z[..m].as_flattened(), y, 2 * m);
    }

    /// The complex transform of `a`; gives the one of both in which it is then.
    #[inline(always)]
    fn run<'a>(&self, a: &'a mut [Pair], b: &'a mut [Pair]) -> &'a mut [Pair] {
        let (mut x, mut y, mut n, mut s, mut rest) = (a, b, self.m, 1, &self.twiddles[..]);
        for &factor in &self.factors {
            let (w, behind) = rest.split_at(n / factor * (factor - 1));
            match factor {
                2 => stage::<2>(x, y, (n, s), w),
                3 => stage::<3>(x, y, (n, s), w),
                4 => stage::<4>(x, y, (n, s), w),
                _ => stage::<5>(x, y, (n, s), w),
            }
            (n, s, rest) = (n / factor, s * factor, behind);
            std::mem::swap(&mut x, &mut y);
        }
        x
    }
}

/// The two elements that [`butterflies`](crate::butterfly::butterflies) makes of two.
#[inline(always)]
fn butterfly(a: Pair, b: Pair, twiddle: Complex<f32>, h: f32) -> [Pair; 2] {
    let b = conjugate(b);
    let (s, t) = (sum(a, b), product(difference(a, b), twiddle));
    [scaled(difference(s, t), h), scaled(conjugate(sum(s, t)), h)]
}

/// Numbers that batches may be made of. A type without plans has no batches, so that its `forward` and `inverse` are never called.
#[doc(hidden)]
pub trait Batched: Sized {
    #[doc(hidden)]
    fn plan(m: usize, real: &Arc<[Complex<Self>]>) -> Option<Arc<Batch>> {
        let _ = (m, real);
        None
    }
    #[doc(hidden)]
    fn forward(batch: &Batch, x: &[Self], y: &mut [Complex<Self>], width: usize, room: &mut Room, scale: Self) {
        let _ = (batch, x, y, width, room, scale);
    }
    #[doc(hidden)]
    fn inverse(batch: &Batch, x: &[Complex<Self>], y: &mut [Self], room: &mut Room, scale: Self) {
        let _ = (batch, x, y, room, scale);
    }
}

impl Batched for f32 {
    fn plan(m: usize, real: &Arc<[Complex<f32>]>) -> Option<Arc<Batch>> {
        Batch::new(m, real)
    }
    fn forward(batch: &Batch, x: &[f32], y: &mut [Complex<f32>], width: usize, room: &mut Room, scale: f32) {
        batch.forward(x, y, width, room, scale);
    }
    fn inverse(batch: &Batch, x: &[Complex<f32>], y: &mut [f32], room: &mut Room, scale: f32) {
        batch.inverse(x, y, room, scale);
    }
}

/// Four doubles in a vector have not been timed.
impl Batched for f64 {}

/// The parts of complex numbers.
#[cfg(target_arch = "x86_64")]
fn numbers(x: &[Complex<f32>]) -> &[f32] {
    // SAFETY: `Complex` is two numbers in a row (`repr(C)`), aligned as one.
    unsafe { std::slice::from_raw_parts(x.as_ptr().cast(), 2 * x.len()) }
}

/// The same, to write.
#[cfg(target_arch = "x86_64")]
fn numbers_mut(x: &mut [Complex<f32>]) -> &mut [f32] {
    // SAFETY: as above, and `x` is borrowed alone.
    unsafe { std::slice::from_raw_parts_mut(x.as_mut_ptr().cast(), 2 * x.len()) }
}

fn has_instructions() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Columns of rows that are `pitch` elements apart.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2")]
fn load(x: &[f32], pitch: usize, to: &mut [Vector]) {
    let whole = to.len() / ROWS * ROWS;
    assert!(x.len() >= (ROWS - 1) * pitch + to.len(), "rows of another length");
    for j in (0..whole).step_by(ROWS) {
        // SAFETY: row 7 has elements up to `to.len()`, and so have the others; the vectors are `to[j..j + 8]`.
        unsafe { transpose(x.as_ptr().add(j), pitch, to.as_mut_ptr().add(j).cast(), ROWS) };
    }
    for (j, to) in to.iter_mut().enumerate().skip(whole) {
        to.0.iter_mut().enumerate().for_each(|(i, to)| *to = x[i * pitch + j]);
    }
}

/// The inverse of [`load`].
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2")]
fn store(from: &[Vector], y: &mut [f32], pitch: usize) {
    let whole = from.len() / ROWS * ROWS;
    assert!(y.len() >= (ROWS - 1) * pitch + from.len(), "rows of another length");
    for j in (0..whole).step_by(ROWS) {
        // SAFETY: as of `load`, with the places exchanged.
        unsafe { transpose(from.as_ptr().add(j).cast(), ROWS, y.as_mut_ptr().add(j), pitch) };
    }
    for (j, from) in from.iter().enumerate().skip(whole) {
        from.0.iter().enumerate().for_each(|(i, &from)| y[i * pitch + j] = from);
    }
}

/// Transposes eight rows of eight elements.
///
/// # Safety
/// Eight elements may be read and written at every multiple below 8 of the pitches.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn transpose(from: *const f32, from_pitch: usize, to: *mut f32, to_pitch: usize) {
    use std::arch::x86_64::*;
    // SAFETY: as the caller promises.
    let row = |i: usize| unsafe { _mm256_loadu_ps(from.add(i * from_pitch)) };
    // Pairs of rows, then fours, then both halves.
    let pairs = |i: usize| {
        let (a, b) = (row(i), row(i + 1));
        [_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b)]
    };
    let fours = |i: usize| {
        let ([a, b], [c, d]) = (pairs(i), pairs(i + 2));
        [
            _mm256_shuffle_ps::<0b01_00_01_00>(a, c),
            _mm256_shuffle_ps::<0b11_10_11_10>(a, c),
            _mm256_shuffle_ps::<0b01_00_01_00>(b, d),
            _mm256_shuffle_ps::<0b11_10_11_10>(b, d),
        ]
    };
    let (upper, lower) = (fours(0), fours(4));
    for i in 0..4 {
        let (a, b) = (upper[i], lower[i]);
        // SAFETY: as the caller promises.
        unsafe {
            _mm256_storeu_ps(to.add(i * to_pitch), _mm256_permute2f128_ps::<0x20>(a, b));
            _mm256_storeu_ps(to.add((i + 4) * to_pitch), _mm256_permute2f128_ps::<0x31>(a, b));
        }
    }
}
