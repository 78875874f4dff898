//! Inner products of rows of 16-bit floats with a row of float32, by AVX2 and F16C: written out, as the compiler keeps the sums of
//! a loop in registers or in memory as it happens to go.
//!
//! Depends on `std::arch`. Invariant: a row's sum does not depend on the rows beside it.

use half::{bf16, f16};
use std::arch::x86_64::{
    __m128i, __m256, _mm256_add_ps, _mm256_castsi256_ps, _mm256_cvtepu16_epi32, _mm256_cvtph_ps, _mm256_fmadd_ps,
    _mm256_loadu_ps, _mm256_setzero_ps, _mm256_slli_epi32, _mm256_storeu_ps, _mm_loadu_si128,
};

/// Elements of a register.
const LANES: usize = 8;
/// Registers of sums for each row.
const ASIDE: usize = 2;

/// Does the machine have the instructions?
pub fn is_there() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
}

/// A 16-bit float that is widened when it is read.
pub trait Half: Copy {
    /// Eight of them.
    ///
    /// # Safety
    /// All eight must be there to be read, and the machine must have AVX2 and F16C.
    unsafe fn load(from: *const Self) -> __m256;
    /// One.
    fn wide(self) -> f32;
}

impl Half for bf16 {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn load(from: *const bf16) -> __m256 {
        // SAFETY: the contract; no alignment is asked for.
        let bits = _mm256_cvtepu16_epi32(unsafe { _mm_loadu_si128(from.cast::<__m128i>()) });
        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(bits))
    }
    fn wide(self) -> f32 {
        self.to_f32()
    }
}

impl Half for f16 {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn load(from: *const f16) -> __m256 {
        // SAFETY: the contract; no alignment is asked for.
        _mm256_cvtph_ps(unsafe { _mm_loadu_si128(from.cast::<__m128i>()) })
    }
    fn wide(self) -> f32 {
        self.to_f32()
    }
}

/// The inner products of `x` and each row.
///
/// # Panics
/// Where a row is shorter than `x`, or the machine lacks the instructions.
pub fn dots<T: Half, const R: usize>(x: &[f32], w: [&[T]; R]) -> [f32; R] {
    assert!(is_there() && w.iter().all(|w| w.len() >= x.len()));
    // SAFETY: the assertion.
    unsafe { products(x, w) }
}

/// [`dots`] of rows that are long enough.
#[target_feature(enable = "avx2,fma,f16c")]
fn products<T: Half, const R: usize>(x: &[f32], w: [&[T]; R]) -> [f32; R] {
    let whole = x.len() - x.len() % (LANES * ASIDE);
    let mut sums = [[_mm256_setzero_ps(); ASIDE]; R];
    for at in (0..whole).step_by(LANES * ASIDE) {
        for k in 0..ASIDE {
            // SAFETY: `at` and what is read from there on is below `whole`, within `x` and each row.
            unsafe {
                let x = _mm256_loadu_ps(x.as_ptr().add(at + k * LANES));
                for (sums, w) in sums.iter_mut().zip(w) {
                    sums[k] = _mm256_fmadd_ps(x, T::load(w.as_ptr().add(at + k * LANES)), sums[k]);
                }
            }
        }
    }
    let mut made = [0f32; R];
    for ((made, [a, b]), w) in made.iter_mut().zip(sums).zip(w) {
        let mut lanes = [0f32; LANES];
        // SAFETY: eight elements, to which no alignment is asked for.
        unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), _mm256_add_ps(a, b)) };
        let mut width = LANES / 2;
        while width > 0 {
            for i in 0..width {
                lanes[i] += lanes[i + width];
            }
            width /= 2;
        }
        *made = x[whole..].iter().zip(&w[whole..]).fold(lanes[0], |s, (&x, &w)| x.mul_add(w.wide(), s));
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_every_length() {
        if !is_there() {
            return;
        }
        for n in [0, 1, 7, 8, 15, 16, 17, 40, 133] {
            let x: Vec<f32> = (0..n).map(|i| i as f32 / 8.0 - 3.0).collect();
            let rows: Vec<Vec<f16>> =
                (0..4).map(|r| (0..n).map(|i| f16::from_f32((i * 7 + r * 3) as f32 % 11.0 - 5.0)).collect()).collect();
            let brains: Vec<Vec<bf16>> =
                rows.iter().map(|r| r.iter().map(|h| bf16::from_f32(h.to_f32())).collect()).collect();
            // Sums of eighths are exact.
            let want: Vec<f32> = rows.iter().map(|r| r.iter().zip(&x).map(|(h, x)| h.to_f32() * x).sum()).collect();
            assert_eq!(dots(&x, [0, 1, 2, 3].map(|r| &rows[r][..])).to_vec(), want, "{n}");
            assert_eq!(dots(&x, [0, 1, 2, 3].map(|r| &brains[r][..])).to_vec(), want, "{n}");
            assert_eq!(dots(&x, [&rows[1][..]]), [want[1]], "{n}");
        }
    }
}
