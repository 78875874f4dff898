//! Products of `f32` matrices whose terms are adjacent in both factors, for AVX-512: a layer's weight and its input.
//!
//! Lanes are added up along the terms, and nothing is packed: with few rows, packing a weight takes between a third
//! and a half of the time of multiplying by it. Depends on `std::arch` and `simd`. Invariants: [`product`] checks every bound once, before the loops;
//! results do not depend on the number of threads, since a sum's order does not depend on its tile.

use super::gemm_f32::tile_of;
use super::Product;
use crate::simd::threads;
use std::arch::x86_64::*;

/// Terms that a register holds.
const LANES: usize = 16;
/// Rows and columns of a tile: 24 registers of sums, and one for each column and for a row of terms.
const TALL: usize = 6;
const WIDE: usize = 4;
/// The most terms that are added up before the sums are stored: a tile's stay in the first cache level.
const DEPTH: usize = 1024;
/// Elements of the right factor that all rows meet before the next ones: they stay in the second cache level.
const BLOCK: usize = 1 << 16;

/// A tile's work: sums over `k` terms of rows of `a` times rows of `b`, written to `c` or added to it.
#[derive(Clone, Copy)]
struct Work {
    a: *const f32,
    lda: usize,
    b: *const f32,
    ldb: usize,
    k: usize,
    c: *mut f32,
    ldc: usize,
    add: bool,
}

/// The sums of the lanes of each of four registers.
#[inline]
#[target_feature(enable = "avx512f")]
fn sums([a, b, c, d]: [__m512; WIDE]) -> __m128 {
    let pair = |x, y| _mm512_add_ps(_mm512_unpacklo_ps(x, y), _mm512_unpackhi_ps(x, y));
    let (ab, cd) = (_mm512_castps_pd(pair(a, b)), _mm512_castps_pd(pair(c, d)));
    let all = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd)), _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd)));
    let quarter = |high| match high {
        0 => _mm512_castps512_ps128(all),
        1 => _mm512_extractf32x4_ps::<1>(all),
        2 => _mm512_extractf32x4_ps::<2>(all),
        _ => _mm512_extractf32x4_ps::<3>(all),
    };
    _mm_add_ps(_mm_add_ps(quarter(0), quarter(1)), _mm_add_ps(quarter(2), quarter(3)))
}

/// `M` rows of `N` columns.
///
/// # Safety
/// The machine must have AVX-512F; `a` must hold `M` rows of `k` elements, `b` `N`, and `c` `M` rows of `N`.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn tile<const M: usize, const N: usize>(work: Work) {
    let Work { a, lda, b, ldb, k, c, ldc, add } = work;
    let mut all = [[_mm512_setzero_ps(); WIDE]; M];
    for p in (0..k).step_by(LANES) {
        let mask: __mmask16 = if k - p < LANES { !0 >> (LANES - (k - p)) } else { !0 };
        // SAFETY: the contract covers what the mask lets through.
        unsafe {
            let mut columns = [_mm512_setzero_ps(); N];
            for (j, column) in columns.iter_mut().enumerate() {
                *column = _mm512_maskz_loadu_ps(mask, b.add(j * ldb + p));
            }
            for (i, sums) in all.iter_mut().enumerate() {
                let x = _mm512_maskz_loadu_ps(mask, a.add(i * lda + p));
                for (sum, column) in sums.iter_mut().zip(columns) {
                    *sum = _mm512_fmadd_ps(x, column, *sum);
                }
            }
        }
    }
    for (i, row) in all.into_iter().enumerate() {
        let mut y = [0f32; WIDE];
        // SAFETY: the array has room for four; a row of `c` has `N`.
        unsafe {
            _mm_storeu_ps(y.as_mut_ptr(), sums(row));
            for (j, y) in y.into_iter().enumerate().take(N) {
                let to = c.add(i * ldc + j);
                *to = if add { *to + y } else { y };
            }
        }
    }
}

/// `m` rows of `n` columns.
///
/// # Safety
/// As for [`tile`].
#[target_feature(enable = "avx512f")]
unsafe fn tiles(m: usize, n: usize, work: Work) {
    let few = (BLOCK / work.k / WIDE).max(1) * WIDE;
    for from in (0..n).step_by(few) {
        for i in (0..m).step_by(TALL) {
            for j in (from..n.min(from + few)).step_by(WIDE) {
                // SAFETY: the tile's rows are among the `m`, its columns among the `n`.
                unsafe {
                    let (a, b) = (work.a.add(i * work.lda), work.b.add(j * work.ldb));
                    let work = Work { a, b, c: work.c.add(i * work.ldc + j), ..work };
                    tile_of!(tile, (m - i).min(TALL), n - j, work);
                }
            }
        }
    }
}

/// Is this way a good one for such a product here? What adding up lanes costs is made good by many terms, and packing, which
/// is what others do, by many rows, or by many columns where `turns` says that the rows are packed.
pub(super) fn suits(product: &Product<f32>, turns: bool) -> bool {
    let Product { m, n, k, alpha, a, b, beta, .. } = *product;
    let few = if turns { m.max(n) } else { m };
    let shape = m > 1 && n > 1 && k >= 4 * LANES && k / 2 >= few && b.trans && !a.trans;
    shape && alpha == 1.0 && (beta == 0.0 || beta == 1.0) && std::is_x86_feature_detected!("avx512f")
}

/// A product that [`suits`], over the pool or on this thread.
///
/// # Panics
/// If a slice is too short for its matrix, or the machine has no AVX-512.
pub(super) fn product(product: &Product<f32>, pool: bool, c: &mut [f32]) {
    assert!(std::is_x86_feature_detected!("avx512f") && product.b.trans && !product.a.trans);
    product.check(c);
    let Product { m, n, k, a, b, beta, ldc, .. } = *product;
    let c = &mut c[..(m - 1) * ldc + n];
    let deep = k.div_ceil(k.div_ceil(DEPTH)).next_multiple_of(LANES);
    let rows = |start: usize, c: &mut [f32]| {
        let (first, m) = (start / ldc, c.len().div_ceil(ldc));
        for p in (0..k).step_by(deep) {
            let work = Work {
                a: a.data[first * a.ld + p..].as_ptr(),
                lda: a.ld,
                b: b.data[p..].as_ptr(),
                ldb: b.ld,
                k: deep.min(k - p),
                c: c.as_mut_ptr(),
                ldc,
                add: beta == 1.0 || p > 0,
            };
            // SAFETY: the machine has AVX-512F; the slices hold their matrices, and `c` so many rows of the result.
            unsafe { tiles(m, n, work) };
        }
    };
    if pool {
        let every = ((1usize << 19) / (n * k)).max(TALL).next_multiple_of(TALL);
        threads::for_chunks(c, TALL * ldc, every.saturating_mul(ldc), rows);
    } else {
        rows(0, c);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Matrix;
    use super::*;

    #[test]
    fn tiles_of_every_size_and_terms_of_any_number() {
        if !std::is_x86_feature_detected!("avx512f") {
            return;
        }
        for (m, n, k) in [(2, 2, 64), (6, 4, 65), (13, 7, 79), (5, 9, 1100), (64, 10, 129), (70, 33, 2050)] {
            let numbers = |n: usize, by: usize| (0..n).map(|i| (i * by % 17) as f32 - 8.0).collect::<Vec<f32>>();
            // Rows that are further apart than they are long.
            let (x, w) = (numbers(m * (k + 3), 7), numbers(n * (k + 5), 11));
            let (a, b) = (Matrix { data: &x, ld: k + 3, trans: false }, Matrix { data: &w, ld: k + 5, trans: true });
            for (beta, ldc, pool) in [(0.0, n, false), (1.0, n + 2, false), (1.0, n, true), (0.0, n + 2, true)] {
                let by = Product { beta, ldc, ..Product::of([m, n, k], a, b) };
                assert!(suits(&by, false));
                let before = numbers((m - 1) * ldc + n, 5);
                let mut c = before.clone();
                product(&by, pool, &mut c);
                for (p, (&y, &before)) in c.iter().zip(&before).enumerate() {
                    let (i, j) = (p / ldc, p % ldc);
                    let dot = || -> f32 {
                        x[i * (k + 3)..][..k].iter().zip(&w[j * (k + 5)..][..k]).map(|(x, w)| x * w).sum()
                    };
                    // Whole numbers, which no order of adding rounds; beside the columns nothing is written.
                    assert_eq!(y, if j < n { dot() + beta * before } else { before }, "{m} {n} {k} {p}");
                }
            }
        }
    }
}
