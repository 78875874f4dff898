//! Inner products of rows of 16-bit floats with a few rows, by AVX2 and F16C, or of bfloat16 by the instruction that multiplies
//! pairs: written out, as the compiler keeps the sums of a loop in registers or in memory as it happens to go.
//!
//! Depends on `std::arch`. Rows that come next are asked for while these are read: a page of memory is a row or two, and what
//! the processor asks for by itself ends with a page. Invariant: a row's sum does not depend on the rows beside it.

use half::{bf16, f16};
use std::arch::x86_64::{
    __m128i, __m256, __m512bh, __m512i, _mm256_add_ps, _mm256_castsi256_ps, _mm256_cvtepu16_epi32, _mm256_cvtph_ps,
    _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_setzero_ps, _mm256_slli_epi32, _mm256_storeu_ps, _mm512_add_ps,
    _mm512_dpbf16_ps, _mm512_loadu_si512, _mm512_maskz_loadu_epi16, _mm512_reduce_add_ps, _mm512_setzero_ps,
    _mm_loadu_si128, _mm_prefetch, _MM_HINT_T1,
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
                    if k == 0 {
                        ask_for(w, at, R);
                    }
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

/// Asks for what is at the same place of the row that is `rows` behind one, where rows follow one another.
#[inline(always)]
fn ask_for<T>(row: &[T], at: usize, rows: usize) {
    // SAFETY: nothing is read, and an address where nothing is does no harm.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(row.as_ptr().wrapping_add(at + rows * row.len()).cast()) }
}

/// Pairs that one instruction multiplies are of so many elements.
const PAIRED: usize = 32;

/// Does the machine multiply pairs of bfloat16?
pub fn has_pairs() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512bf16")
}

/// The inner products of each `x` and each row; products are exact, sums `f32`, and subnormal numbers count as zeros.
///
/// # Panics
/// Where rows are not of one length, or the machine lacks the instructions.
pub fn paired<const M: usize, const R: usize>(x: [&[bf16]; M], w: [&[bf16]; R]) -> [[f32; R]; M] {
    let n = x.first().map_or(0, |x| x.len());
    assert!(has_pairs() && x.iter().chain(&w).all(|row| row.len() == n));
    // SAFETY: the assertion.
    unsafe { sums_of_pairs(x, w, n) }
}

#[inline(always)]
fn as_pairs(x: __m512i) -> __m512bh {
    // SAFETY: both are 512 bits, and any bits are a value.
    unsafe { std::mem::transmute(x) }
}

/// [`paired`] of rows of `n` elements.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn sums_of_pairs<const M: usize, const R: usize>(x: [&[bf16]; M], w: [&[bf16]; R], n: usize) -> [[f32; R]; M] {
    let mut sums = [[[_mm512_setzero_ps(); ASIDE]; R]; M];
    let whole = n - n % (PAIRED * ASIDE);
    for start in (0..whole).step_by(PAIRED * ASIDE) {
        for k in 0..ASIDE {
            let at = start + k * PAIRED;
            // SAFETY: `PAIRED` elements from `at` on are within each row.
            let load = |row: &[bf16]| unsafe { as_pairs(_mm512_loadu_si512(row.as_ptr().add(at).cast())) };
            let x = x.map(load);
            for (r, w) in w.iter().enumerate() {
                ask_for(w, at, R);
                let w = load(w);
                for (sums, x) in sums.iter_mut().zip(x) {
                    sums[r][k] = _mm512_dpbf16_ps(sums[r][k], x, w);
                }
            }
        }
    }
    for (k, at) in (whole..n).step_by(PAIRED).enumerate() {
        let mask = u32::MAX >> (PAIRED - PAIRED.min(n - at));
        // SAFETY: what the mask leaves out is not read.
        let load = |row: &[bf16]| unsafe { as_pairs(_mm512_maskz_loadu_epi16(mask, row.as_ptr().add(at).cast())) };
        let x = x.map(load);
        for (r, w) in w.iter().enumerate() {
            let w = load(w);
            for (sums, x) in sums.iter_mut().zip(x) {
                sums[r][k] = _mm512_dpbf16_ps(sums[r][k], x, w);
            }
        }
    }
    sums.map(|sums| sums.map(|[a, b]| _mm512_reduce_add_ps(_mm512_add_ps(a, b))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_every_length() {
        if !is_there() {
            return;
        }
        for n in [0, 1, 7, 8, 15, 16, 17, 31, 32, 33, 40, 63, 64, 65, 97, 133] {
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
            if has_pairs() {
                let x: Vec<bf16> = x.iter().map(|&x| bf16::from_f32(x)).collect();
                let all = [0, 1, 2, 3].map(|r| &brains[r][..]);
                let once: [f32; 4] = want[..].try_into().unwrap();
                assert_eq!(paired([&x[..]], all), [once], "{n}");
                let twice: Vec<bf16> = x.iter().map(|x| bf16::from_f32(x.to_f32() * 2.0)).collect();
                assert_eq!(paired([&x[..], &twice[..]], all), [once, once.map(|s| s * 2.0)], "{n}");
            }
        }
    }
}
