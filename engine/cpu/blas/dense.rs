//! Products of `f32` matrices that are not large, for AVX-512: tiles of sums that stay in registers.
//!
//! BLAS packs both factors, which products of a few hundred rows and columns do not win back. Here the left factor is read
//! where it lies, and the right one in panels of columns, packed once. Depends on `std::arch`. Invariant: [`product`] checks
//! every bound once, before the loops; whether it takes a product does not depend on the rows that a thread gets.

use super::Matrix;
use std::arch::x86_64::{
    __mmask16, _mm512_add_ps, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_mask_storeu_ps, _mm512_maskz_loadu_ps,
    _mm512_set1_ps, _mm512_setzero_ps,
};

/// Elements of a register.
const LANES: usize = 16;
/// Columns of a panel.
const PANEL: usize = 4 * LANES;
/// Rows of a tile: with four registers each, the sums fill 24 of the 32 registers.
const TALL: usize = 6;
/// The most terms that are added up before the sums are stored: a panel of so many rows stays in the second cache level.
const DEPTH: usize = 512;
/// Elements of the left factor that all panels meet before the next ones: they stay there as well.
const BLOCK: usize = 1 << 16;

/// Where a matrix lies: elements to the next row and to the next column.
#[derive(Clone, Copy)]
struct Steps {
    down: usize,
    across: usize,
}

impl Steps {
    fn of<T>(x: &Matrix<T>) -> Steps {
        match x.trans {
            false => Steps { down: x.ld, across: 1 },
            true => Steps { down: 1, across: x.ld },
        }
    }
}

/// A tile's work: sums over `k` of `a` times a panel `b`, written to `c` or added to it.
#[derive(Clone, Copy)]
struct Work {
    a: *const f32,
    at: Steps,
    b: *const f32,
    k: usize,
    c: *mut f32,
    ldc: usize,
    /// Columns of the last register.
    mask: __mmask16,
    add: bool,
}

/// `M` rows of `R` registers of columns.
///
/// # Safety
/// The machine must have AVX-512F; `a` must hold `M` rows of `k` elements, `b` `k` rows of `PANEL`, and `c` `M` rows of as
/// many columns as the registers and the mask say.
#[inline(always)]
unsafe fn tile<const M: usize, const R: usize>(work: Work) {
    let Work { mut a, at, mut b, k, c, ldc, mask, add } = work;
    // SAFETY: the contract covers each element that is read and written; a panel's rows are whole.
    unsafe {
        let mut sums = [[_mm512_setzero_ps(); R]; M];
        for _ in 0..k {
            let mut row = [_mm512_setzero_ps(); R];
            for (r, row) in row.iter_mut().enumerate() {
                *row = _mm512_loadu_ps(b.add(LANES * r));
            }
            for (i, sums) in sums.iter_mut().enumerate() {
                let x = _mm512_set1_ps(*a.add(i * at.down));
                for (sum, row) in sums.iter_mut().zip(row) {
                    *sum = _mm512_fmadd_ps(x, row, *sum);
                }
            }
            // The last step leads behind the matrix, where nothing is read.
            a = a.wrapping_add(at.across);
            b = b.wrapping_add(PANEL);
        }
        for (i, sums) in sums.into_iter().enumerate() {
            for (r, sum) in sums.into_iter().enumerate() {
                let to = c.add(i * ldc + LANES * r);
                let mask = if r + 1 == R { mask } else { !0 };
                let sum = if add { _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, to)) } else { sum };
                _mm512_mask_storeu_ps(to, mask, sum);
            }
        }
    }
}

/// `m` rows against a panel of `n` columns, `n` from 1 to `PANEL`.
///
/// # Safety
/// As for [`tile`], for all `m` rows.
#[target_feature(enable = "avx512f")]
unsafe fn rows(m: usize, n: usize, work: Work) {
    let registers = n.div_ceil(LANES);
    let mask = !0 >> (registers * LANES - n);
    for i in (0..m).step_by(TALL) {
        // SAFETY: row `i` is one of the `m`, and so are those of its tile.
        unsafe {
            let work = Work { a: work.a.add(i * work.at.down), c: work.c.add(i * work.ldc), mask, ..work };
            macro_rules! pick {
                ($($m:literal),*) => {
                    match ((m - i).min(TALL), registers) {
                        $(
                            ($m, 1) => tile::<$m, 1>(work),
                            ($m, 2) => tile::<$m, 2>(work),
                            ($m, 3) => tile::<$m, 3>(work),
                            ($m, _) => tile::<$m, 4>(work),
                        )*
                        _ => unreachable!("a tile has {TALL} rows at most"),
                    }
                };
            }
            pick!(1, 2, 3, 4, 5, 6);
        }
    }
}

/// Copies `rows` x `cols` elements, from the first of `x` on, into rows of `PANEL` elements.
fn pack(x: &[f32], at: Steps, rows: usize, cols: usize, to: &mut [f32]) {
    const SIDE: usize = LANES;
    if at.across == 1 {
        for (i, to) in to.chunks_mut(PANEL).take(rows).enumerate() {
            to[..cols].copy_from_slice(&x[i * at.down..][..cols]);
        }
        return;
    }
    // Squares, which the first cache level holds as they lie and as they are to lie.
    for i in (0..rows).step_by(SIDE) {
        for j in (0..cols).step_by(SIDE) {
            let (height, width) = (SIDE.min(rows - i), SIDE.min(cols - j));
            let mut square = [[0f32; SIDE]; SIDE];
            for (s, square) in square.iter_mut().enumerate().take(width) {
                square[..height].copy_from_slice(&x[i + (j + s) * at.across..][..height]);
            }
            for (r, to) in to[i * PANEL + j..].chunks_mut(PANEL).enumerate().take(height) {
                for (to, square) in to.iter_mut().zip(&square[..width]) {
                    *to = square[r];
                }
            }
        }
    }
}

/// `c = alpha a b + beta c`, all sizes at least 1 and checked, where this way of doing it is a good one here; else false.
///
/// # Panics
/// If a slice is too short for its matrix.
#[allow(clippy::too_many_arguments)]
pub(super) fn product(
    m: usize,
    n: usize,
    k: usize,
    alpha: f32,
    a: Matrix<f32>,
    b: Matrix<f32>,
    beta: f32,
    c: &mut [f32],
    ldc: usize,
) -> bool {
    // Large ones, and columns far apart on the left, are better packed on both sides; a transposed right factor, such as a
    // layer's weight, takes longer to pack here than BLAS takes for the product.
    let fits = n >= LANES && (1 << 15..=1 << 18).contains(&(n * k)) && m >= TALL;
    let fits = fits && !b.trans && !(a.trans && a.ld * k > BLOCK);
    if !fits || alpha != 1.0 || !(beta == 0.0 || beta == 1.0) || !std::is_x86_feature_detected!("avx512f") {
        return false;
    }
    assert!(
        a.holds(m, k) && b.holds(k, n) && c.len() >= (m - 1) * ldc + n && ldc >= n,
        "product: a slice is too short"
    );
    let deep = k.div_ceil(k.div_ceil(DEPTH));
    let mut panels = vec![0f32; n.div_ceil(PANEL) * PANEL * deep];
    let tall = (BLOCK / deep / TALL).max(1) * TALL;
    let (at, bt) = (Steps::of(&a), Steps::of(&b));
    for p in (0..k).step_by(deep) {
        let len = deep.min(k - p);
        for (j, to) in (0..n).step_by(PANEL).zip(panels.chunks_mut(PANEL * deep)) {
            pack(&b.data[p * bt.down + j * bt.across..], bt, len, PANEL.min(n - j), to);
        }
        for i in (0..m).step_by(tall) {
            for (j, panel) in (0..n).step_by(PANEL).zip(panels.chunks(PANEL * deep)) {
                let work = Work {
                    a: a.data[i * at.down + p * at.across..].as_ptr(),
                    at,
                    b: panel.as_ptr(),
                    k: len,
                    c: c[i * ldc + j..].as_mut_ptr(),
                    ldc,
                    mask: 0,
                    add: beta == 1.0 || p > 0,
                };
                // SAFETY: the machine has AVX-512F; by the assertion `a` and `c` hold `m` rows, of which those from `i` on
                // are taken, and a panel has `deep` rows.
                unsafe { rows(tall.min(m - i), PANEL.min(n - j), work) };
            }
        }
    }
    true
}
