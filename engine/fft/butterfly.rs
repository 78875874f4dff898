//! The butterflies between the transform of `m` complex numbers and that of `2 m` real ones, which are their parts.
//!
//! Holds `unsafe` for AVX2's instructions, and to see real numbers as pairs. Where a processor has no AVX2, or at the
//! ends of rows, plain code computes the same.
#![allow(unsafe_code)]

use crate::Real;
use num_complex::Complex;

/// Real numbers as the parts of complex ones.
pub(crate) fn pairs<T: Real>(x: &[T]) -> &[Complex<T>] {
    // SAFETY: `Complex` is two numbers in a row (`repr(C)`), aligned as one; half as many fit.
    unsafe { std::slice::from_raw_parts(x.as_ptr().cast(), x.len() / 2) }
}

/// The same, to write.
pub(crate) fn pairs_mut<T: Real>(x: &mut [T]) -> &mut [Complex<T>] {
    // SAFETY: as above, and `x` is borrowed alone.
    unsafe { std::slice::from_raw_parts_mut(x.as_mut_ptr().cast(), x.len() / 2) }
}

/// Replaces elements `a = y[k]` and `b = y[m - k]` by `h (s - t)` and the conjugate of `h (s + t)`, where
/// `s = a + conj(b)` and `t = twiddles[k] (a - conj(b))`, for every `k` but 0.
pub(crate) fn butterflies<T: Real>(y: &mut [Complex<T>], twiddles: &[Complex<T>], h: T) {
    let (m, y) = (y.len(), y.as_mut_ptr());
    // SAFETY: both places are the slice.
    unsafe { between(y, y, m, twiddles, h) }
}

/// The same of the first elements of `x`, as many as `y` has, written to `y`.
///
/// # Panics
/// Where `x` has fewer.
pub(crate) fn butterflies_of<T: Real>(x: &[Complex<T>], y: &mut [Complex<T>], twiddles: &[Complex<T>], h: T) {
    let x = &x[..y.len()];
    // SAFETY: both have as many elements, and do not meet.
    unsafe { between(x.as_ptr(), y.as_mut_ptr(), x.len(), twiddles, h) }
}

/// # Safety
/// `x` may be read and `y` written for `m` elements; they are the same place or do not meet.
unsafe fn between<T: Real>(x: *const Complex<T>, y: *mut Complex<T>, m: usize, twiddles: &[Complex<T>], h: T) {
    // SAFETY: as the caller promises; indices below `m`.
    unsafe {
        let done = T::butterflies_in_lanes(x, y, m, twiddles, h);
        for (k, &u) in twiddles.iter().enumerate().take(m.div_ceil(2)).skip(done + 1) {
            let (a, b) = (*x.add(k), (*x.add(m - k)).conj());
            let (s, t) = (a + b, u * (a - b));
            *y.add(k) = (s - t).scale(h);
            *y.add(m - k) = (s + t).conj().scale(h);
        }
        if m.is_multiple_of(2) && m > 0 {
            *y.add(m / 2) = (*x.add(m / 2)).conj().scale(h + h);
        }
    }
}

/// Writes a function of the butterflies of as many elements from the second on as make up whole vectors, and says how many.
macro_rules! lanes {
    ($name:ident, $T:ident, $lanes:literal, $load:ident, $store:ident, $set1:ident, $add:ident, $sub:ident, $mul:ident,
     $fmaddsub:ident, $xor:ident, $signs:expr, $twist:expr, $real:expr, $imag:expr, $swap:expr) => {
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma")]
        unsafe fn $name(
            x: *const Complex<$T>,
            y: *mut Complex<$T>,
            m: usize,
            twiddles: &[Complex<$T>],
            h: $T,
        ) -> usize {
            use std::arch::x86_64::*;
            let most = twiddles.len().min(m.div_ceil(2));
            let (h, signs) = ($set1(h), $signs);
            let mut k = 1;
            while k + $lanes <= most {
                // SAFETY: `k + lanes <= most <= twiddles.len()`, and `k + lanes - 1 < m - k - lanes + 1`, as `most` is at most half
                // of `m`, rounded up: what is read and written is among the `m` elements, and the two places do not meet.
                unsafe {
                    let (low, high) = (k, m - k - ($lanes - 1));
                    let u = $load(twiddles.as_ptr().add(k).cast::<$T>());
                    let a = $load(x.add(low).cast::<$T>());
                    let b = $xor($twist($load(x.add(high).cast::<$T>())), signs);
                    let (s, d) = ($add(a, b), $sub(a, b));
                    let t = $fmaddsub($real(u), d, $mul($imag(u), $swap(d)));
                    $store(y.add(low).cast::<$T>(), $mul(h, $sub(s, t)));
                    $store(y.add(high).cast::<$T>(), $twist($xor($mul(h, $add(s, t)), signs)));
                }
                k += $lanes;
            }
            k - 1
        }
    };
}

lanes!(
    butterflies_f32,
    f32,
    4,
    _mm256_loadu_ps,
    _mm256_storeu_ps,
    _mm256_set1_ps,
    _mm256_add_ps,
    _mm256_sub_ps,
    _mm256_mul_ps,
    _mm256_fmaddsub_ps,
    _mm256_xor_ps,
    _mm256_setr_ps(0.0, -0.0, 0.0, -0.0, 0.0, -0.0, 0.0, -0.0),
    |x| _mm256_castpd_ps(_mm256_permute4x64_pd::<0b00_01_10_11>(_mm256_castps_pd(x))),
    _mm256_moveldup_ps,
    _mm256_movehdup_ps,
    _mm256_permute_ps::<0b10_11_00_01>
);
lanes!(
    butterflies_f64,
    f64,
    2,
    _mm256_loadu_pd,
    _mm256_storeu_pd,
    _mm256_set1_pd,
    _mm256_add_pd,
    _mm256_sub_pd,
    _mm256_mul_pd,
    _mm256_fmaddsub_pd,
    _mm256_xor_pd,
    _mm256_setr_pd(0.0, -0.0, 0.0, -0.0),
    |x| _mm256_permute2f128_pd::<1>(x, x),
    _mm256_movedup_pd,
    _mm256_permute_pd::<0b1111>,
    _mm256_permute_pd::<0b0101>
);

/// Elements that vectors computed, from the second on: see [`butterflies`].
#[doc(hidden)]
pub trait Lanes: Sized {
    /// # Safety
    /// `x` may be read and `y` written for `m` elements; they are the same place or do not meet.
    #[doc(hidden)]
    unsafe fn butterflies_in_lanes(
        x: *const Complex<Self>,
        y: *mut Complex<Self>,
        m: usize,
        twiddles: &[Complex<Self>],
        h: Self,
    ) -> usize;
}

macro_rules! dispatch {
    ($T:ident, $name:ident) => {
        impl Lanes for $T {
            unsafe fn butterflies_in_lanes(
                x: *const Complex<$T>,
                y: *mut Complex<$T>,
                m: usize,
                twiddles: &[Complex<$T>],
                h: $T,
            ) -> usize {
                #[cfg(target_arch = "x86_64")]
                if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma") {
                    // SAFETY: the processor has these instructions; the rest as the caller promises.
                    return unsafe { $name(x, y, m, twiddles, h) };
                }
                let _ = (x, y, m, twiddles, h);
                0
            }
        }
    };
}
dispatch!(f32, butterflies_f32);
dispatch!(f64, butterflies_f64);

#[cfg(test)]
mod tests {
    use super::*;
    use num_complex::Complex64;

    #[test]
    fn vectors_compute_what_plain_code_does() {
        for m in 0..40 {
            let number = |i: usize| Complex64::new((i as f64 * 0.7).sin(), (i as f64 * 1.3).cos());
            let y: Vec<Complex64> = (0..m).map(number).collect();
            let twiddles: Vec<Complex64> = (0..m.div_ceil(2)).map(|k| number(k + 50)).collect();
            let mut got = y.clone();
            butterflies(&mut got, &twiddles, 0.5);
            let mut elsewhere = vec![Complex64::default(); m];
            butterflies_of(&y, &mut elsewhere, &twiddles, 0.5);
            assert_eq!(elsewhere.get(1..), got.get(1..));
            for (k, made) in got.iter().enumerate().skip(1) {
                let (at, other) = (k.min(m - k), m - k.min(m - k));
                let (a, b) = (y[at], y[other].conj());
                let t = if at == other { a - b } else { twiddles[at] * (a - b) };
                let want = if k <= m - k { (a + b - t) * 0.5 } else { (a + b + t).conj() * 0.5 };
                assert!((made - want).norm() < 1e-15, "{k} of {m}");
            }
            let narrow = |x: &Complex64| Complex::new(x.re as f32, x.im as f32);
            let mut single: Vec<_> = y.iter().map(narrow).collect();
            butterflies(&mut single, &twiddles.iter().map(narrow).collect::<Vec<_>>(), 0.5);
            assert!(single.iter().zip(&got).all(|(a, b)| (a - narrow(b)).norm() < 1e-6), "{m}");
        }
    }
}
