//! Registers of floats of each instruction set, under one trait.
//!
//! Depends on `std::arch`. Invariant: each method is one instruction, or the few that a sum takes.

/// A register of floats.
///
/// # Safety
/// The methods must be called where the instruction set is known to exist, and with pointers to `N` elements.
pub(super) unsafe trait Lanes: Copy {
    type T: Copy;
    /// Elements of a register.
    const N: usize;
    unsafe fn zero() -> Self;
    unsafe fn load(from: *const Self::T) -> Self;
    unsafe fn splat(x: Self::T) -> Self;
    /// `self + a b`
    unsafe fn add_product(self, a: Self, b: Self) -> Self;
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn store(self, to: *mut Self::T);
    /// The sum of its elements.
    unsafe fn sum(self) -> Self::T;
}

macro_rules! lanes {
    ($V:ty, $t:ty, $n:expr, $zero:expr, $load:path, $splat:path, |$s:ident, $a:ident, $b:ident| $fma:expr, $add:path,
     $store:path, $sum:expr) => {
        // SAFETY: each method is one instruction, whose needs the trait's contract hands on to the caller.
        unsafe impl Lanes for $V {
            type T = $t;
            const N: usize = $n;
            #[inline(always)]
            unsafe fn zero() -> Self {
                // SAFETY: the caller's promise is the instruction's need.
                unsafe { $zero }
            }
            #[inline(always)]
            unsafe fn load(from: *const $t) -> Self {
                // SAFETY: the caller's promise is the instruction's need.
                unsafe { $load(from) }
            }
            #[inline(always)]
            unsafe fn splat(x: $t) -> Self {
                // SAFETY: the caller's promise is the instruction's need.
                unsafe { $splat(x) }
            }
            #[inline(always)]
            unsafe fn add_product(self, $a: Self, $b: Self) -> Self {
                let $s = self;
                // SAFETY: the caller's promise is the instruction's need.
                unsafe { $fma }
            }
            #[inline(always)]
            unsafe fn add(self, other: Self) -> Self {
                // SAFETY: the caller's promise is the instruction's need.
                unsafe { $add(self, other) }
            }
            #[inline(always)]
            unsafe fn store(self, to: *mut $t) {
                // SAFETY: the caller's promise is the instruction's need.
                unsafe { $store(to, self) }
            }
            #[inline(always)]
            unsafe fn sum(self) -> $t {
                let $s = self;
                // SAFETY: the caller's promise is the instruction's need.
                unsafe { $sum }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Lanes;
    use std::arch::x86_64::*;

    #[inline(always)]
    unsafe fn sum4(s: __m128) -> f32 {
        // SAFETY: every x86-64 has these.
        unsafe {
            let pairs = _mm_add_ps(s, _mm_movehl_ps(s, s));
            _mm_cvtss_f32(_mm_add_ss(pairs, _mm_shuffle_ps::<1>(pairs, pairs)))
        }
    }

    lanes!(
        __m512,
        f32,
        16,
        _mm512_setzero_ps(),
        _mm512_loadu_ps,
        _mm512_set1_ps,
        |s, a, b| _mm512_fmadd_ps(a, b, s),
        _mm512_add_ps,
        _mm512_storeu_ps,
        _mm512_reduce_add_ps(s)
    );
    lanes!(
        __m512d,
        f64,
        8,
        _mm512_setzero_pd(),
        _mm512_loadu_pd,
        _mm512_set1_pd,
        |s, a, b| _mm512_fmadd_pd(a, b, s),
        _mm512_add_pd,
        _mm512_storeu_pd,
        _mm512_reduce_add_pd(s)
    );
    lanes!(
        __m256,
        f32,
        8,
        _mm256_setzero_ps(),
        _mm256_loadu_ps,
        _mm256_set1_ps,
        |s, a, b| _mm256_fmadd_ps(a, b, s),
        _mm256_add_ps,
        _mm256_storeu_ps,
        _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps::<1>(s)).sum()
    );
    lanes!(
        __m256d,
        f64,
        4,
        _mm256_setzero_pd(),
        _mm256_loadu_pd,
        _mm256_set1_pd,
        |s, a, b| _mm256_fmadd_pd(a, b, s),
        _mm256_add_pd,
        _mm256_storeu_pd,
        _mm_add_pd(_mm256_castpd256_pd128(s), _mm256_extractf128_pd::<1>(s)).sum()
    );
    // Every x86-64 has these, without a fused product.
    lanes!(
        __m128,
        f32,
        4,
        _mm_setzero_ps(),
        _mm_loadu_ps,
        _mm_set1_ps,
        |s, a, b| _mm_add_ps(s, _mm_mul_ps(a, b)),
        _mm_add_ps,
        _mm_storeu_ps,
        sum4(s)
    );
    lanes!(
        __m128d,
        f64,
        2,
        _mm_setzero_pd(),
        _mm_loadu_pd,
        _mm_set1_pd,
        |s, a, b| _mm_add_pd(s, _mm_mul_pd(a, b)),
        _mm_add_pd,
        _mm_storeu_pd,
        _mm_cvtsd_f64(_mm_add_sd(s, _mm_unpackhi_pd(s, s)))
    );
}

#[cfg(target_arch = "aarch64")]
mod arm {
    use super::Lanes;
    use std::arch::aarch64::*;
    lanes!(
        float32x4_t,
        f32,
        4,
        vdupq_n_f32(0.0),
        vld1q_f32,
        vdupq_n_f32,
        |s, a, b| vfmaq_f32(s, a, b),
        vaddq_f32,
        vst1q_f32,
        vaddvq_f32(s)
    );
    lanes!(
        float64x2_t,
        f64,
        2,
        vdupq_n_f64(0.0),
        vld1q_f64,
        vdupq_n_f64,
        |s, a, b| vfmaq_f64(s, a, b),
        vaddq_f64,
        vst1q_f64,
        vaddvq_f64(s)
    );
}
