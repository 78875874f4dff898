//! Half-precision elements in loops: branch-free conversions, so that a loop that widens, computes and narrows
//! vectorises as a whole.
//!
//! Depends on `half` for the types only. Invariant: `narrow(widen(x))` is `x`, and narrowing rounds to nearest even.

use super::dispatch::{map1, Map1};
use crate::dtype::float8::{F8E4M3FN, F8E5M2};
use half::{bf16, f16};

/// An element that is computed with in another type (`f32` for the 16-bit floats, itself for the rest).
pub trait Wide: Copy {
    /// The type to compute in.
    type W: Copy;
    /// To the type computed in; exact.
    fn widen(self) -> Self::W;
    /// Back, rounding to nearest even.
    fn narrow(w: Self::W) -> Self;
    /// The same of a slice, over the shorter of the two.
    fn widen_all(x: &[Self], out: &mut [Self::W]) {
        map1(Widen, x, out);
    }
    /// The same of a slice, over the shorter of the two.
    fn narrow_all(w: &[Self::W], out: &mut [Self]) {
        map1(Narrow, w, out);
    }
}

macro_rules! identity {
    ($($t:ty),*) => {
        $(impl Wide for $t {
            type W = $t;
            #[inline(always)]
            fn widen(self) -> $t { self }
            #[inline(always)]
            fn narrow(w: $t) -> $t { w }
        })*
    };
}
identity!(bool, u8, u16, u32, u64, i8, i16, i32, i64, f32, f64, num_complex::Complex32, num_complex::Complex64);

macro_rules! float8 {
    ($($t:ty),*) => {
        $(impl Wide for $t {
            type W = f32;
            #[inline(always)]
            fn widen(self) -> f32 { self.to_f32() }
            #[inline(always)]
            fn narrow(w: f32) -> $t { <$t>::from_f32(w) }
        })*
    };
}
float8!(F8E4M3FN, F8E5M2);

impl Wide for bf16 {
    type W = f32;
    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits((self.to_bits() as u32) << 16)
    }
    #[inline(always)]
    fn narrow(w: f32) -> bf16 {
        let bits = w.to_bits();
        let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
        // A NaN must not round to infinity: set its quiet bit instead.
        let nan = (bits >> 16) | 0x40;
        bf16::from_bits(if w.is_nan() { nan } else { rounded } as u16)
    }
}

impl Wide for f16 {
    type W = f32;
    #[inline(always)]
    fn widen(self) -> f32 {
        let h = self.to_bits() as u32;
        let em = (h & 0x7fff) << 13;
        // Multiplying by 2^112 rebiases the exponent, and normalises subnormals on the way.
        let normal = (f32::from_bits(em) * f32::from_bits(0x7780_0000)).to_bits();
        let special = em | 0x7f80_0000;
        let magnitude = if em >= 0x0f80_0000 { special } else { normal };
        f32::from_bits(magnitude | ((h & 0x8000) << 16))
    }
    #[inline(always)]
    fn narrow(w: f32) -> f16 {
        let bits = w.to_bits();
        let sign = (bits >> 16) & 0x8000;
        let a = bits & 0x7fff_ffff;
        // Below 2^-14 the result is subnormal: adding 0.5 makes the FPU round at the right bit.
        let small = (f32::from_bits(a) + 0.5).to_bits().wrapping_sub(0x3f00_0000);
        let normal = a.wrapping_sub(0x3800_0000).wrapping_add(0x0fff + ((a >> 13) & 1)) >> 13;
        let special = if a > 0x7f80_0000 { 0x7e00 | ((a >> 13) & 0x3ff) } else { 0x7c00 };
        let finite = if a < 0x3880_0000 { small } else { normal };
        f16::from_bits((sign | if a >= 0x4780_0000 { special } else { finite }) as u16)
    }
    // By the processor's instruction where it has one.
    fn widen_all(x: &[f16], out: &mut [f32]) {
        let n = x.len().min(out.len());
        let done = by_instruction::widen(&x[..n], &mut out[..n]);
        map1(Widen, &x[done..n], &mut out[done..n]);
    }
    fn narrow_all(w: &[f32], out: &mut [f16]) {
        let n = w.len().min(out.len());
        let done = by_instruction::narrow(&w[..n], &mut out[..n]);
        map1(Narrow, &w[done..n], &mut out[done..n]);
    }
}

/// Conversions by F16C's instructions, eight elements at a time: how many of the first were done.
#[cfg(target_arch = "x86_64")]
mod by_instruction {
    use half::f16;
    use std::arch::x86_64::{
        __m128i, _mm256_cvtph_ps, _mm256_cvtps_ph, _mm256_loadu_ps, _mm256_storeu_ps, _mm_loadu_si128, _mm_storeu_si128,
    };

    const LANES: usize = 8;

    fn is_there() -> bool {
        is_x86_feature_detected!("f16c") && is_x86_feature_detected!("avx")
    }

    pub(super) fn widen(x: &[f16], out: &mut [f32]) -> usize {
        #[target_feature(enable = "f16c,avx")]
        fn all(x: &[f16], out: &mut [f32]) {
            for (x, out) in x.chunks_exact(LANES).zip(out.chunks_exact_mut(LANES)) {
                // SAFETY: both have as many elements as are read and written, 16 bytes and 32; no alignment is asked for.
                unsafe {
                    let narrow = _mm_loadu_si128(x.as_ptr().cast::<__m128i>());
                    _mm256_storeu_ps(out.as_mut_ptr(), _mm256_cvtph_ps(narrow));
                }
            }
        }
        if !is_there() {
            return 0;
        }
        // SAFETY: the processor has the instructions.
        unsafe { all(x, out) };
        x.len().min(out.len()) / LANES * LANES
    }

    pub(super) fn narrow(w: &[f32], out: &mut [f16]) -> usize {
        #[target_feature(enable = "f16c,avx")]
        fn all(w: &[f32], out: &mut [f16]) {
            for (w, out) in w.chunks_exact(LANES).zip(out.chunks_exact_mut(LANES)) {
                // SAFETY: both have as many elements as are read and written, 32 bytes and 16; no alignment is asked for.
                unsafe {
                    let narrow = _mm256_cvtps_ph::<0>(_mm256_loadu_ps(w.as_ptr()));
                    _mm_storeu_si128(out.as_mut_ptr().cast::<__m128i>(), narrow);
                }
            }
        }
        if !is_there() {
            return 0;
        }
        // SAFETY: the processor has the instructions.
        unsafe { all(w, out) };
        w.len().min(out.len()) / LANES * LANES
    }
}

/// Elsewhere none is done so.
#[cfg(not(target_arch = "x86_64"))]
mod by_instruction {
    use half::f16;

    pub(super) fn widen(_: &[f16], _: &mut [f32]) -> usize {
        0
    }

    pub(super) fn narrow(_: &[f32], _: &mut [f16]) -> usize {
        0
    }
}

/// A kernel that widens.
#[derive(Clone, Copy, Debug)]
pub struct Widen;
impl<T: Wide> Map1<T, T::W> for Widen {
    #[inline(always)]
    fn map<const F: bool>(self, x: T) -> T::W {
        x.widen()
    }
}

/// A kernel that narrows.
#[derive(Clone, Copy, Debug)]
pub struct Narrow;
impl<T: Wide> Map1<T::W, T> for Narrow {
    #[inline(always)]
    fn map<const F: bool>(self, x: T::W) -> T {
        T::narrow(x)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::many;

    #[test]
    fn slices_convert_as_single_elements() {
        let halves: Vec<f16> = (0..=u16::MAX).step_by(many(1, 61)).map(f16::from_bits).collect();
        let mut wide = vec![0f32; halves.len()];
        f16::widen_all(&halves, &mut wide);
        for (&h, &w) in halves.iter().zip(&wide) {
            assert!(w.to_bits() == h.widen().to_bits() || h.is_nan() && w.is_nan(), "{h}");
        }
        let floats: Vec<f32> =
            (0..200_003u32).step_by(many(1, 211)).map(|i| f32::from_bits(i.wrapping_mul(2_654_435_761))).collect();
        let mut back = vec![f16::ZERO; floats.len()];
        f16::narrow_all(&floats, &mut back);
        for (&w, &h) in floats.iter().zip(&back) {
            assert!(h.to_bits() == f16::narrow(w).to_bits() || w.is_nan() && h.is_nan(), "{w}");
        }
    }

    #[test]
    fn halves_round_trip() {
        for bits in (0..=u16::MAX).step_by(many(1, 61)) {
            let h = f16::from_bits(bits);
            assert!(h.widen().to_bits() == h.to_f32().to_bits() || h.is_nan() && h.widen().is_nan(), "{bits:x}");
            let back = f16::narrow(h.widen());
            assert!(back.to_bits() == bits || h.is_nan() && back.is_nan(), "{bits:x}");
            let b = bf16::from_bits(bits);
            let back = bf16::narrow(b.widen());
            assert!(back.to_bits() == bits || b.is_nan() && back.is_nan(), "{bits:x}");
        }
    }

    #[test]
    fn narrowing_rounds_as_the_half_crate() {
        let mut x = 0x1234_5678u32;
        for _ in 0..many(2_000_000, 500) {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Exponents around the range of f16, and anything at all.
            for bits in [x, (x & 0x8fff_ffff) | 0x3000_0000, (x & 0x87ff_ffff) | 0x4000_0000] {
                let f = f32::from_bits(bits);
                if !f.is_nan() {
                    assert_eq!(f16::narrow(f).to_bits(), f16::from_f32(f).to_bits(), "{f:e}");
                    assert_eq!(bf16::narrow(f).to_bits(), bf16::from_f32(f).to_bits(), "{f:e}");
                }
            }
        }
        assert!(f16::narrow(f32::NAN).is_nan() && bf16::narrow(f32::NAN).is_nan());
    }
}
