//! Squares of words, and rows of them made columns in registers of AVX-512.
//!
//! Depends on `std::arch`.

use std::arch::x86_64::*;

/// Rows and columns of a tile.
pub const SIDE: usize = 16;

/// Words that 16 registers of AVX-512 hold, or one of AMX.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct Tile(pub [[u32; SIDE]; SIDE]);

/// Of each two rows `STEP` apart, exchanges the first one's words at odd multiples of the step with the second one's at even.
#[inline]
#[target_feature(enable = "avx512f")]
fn exchange<const STEP: usize>(rows: &mut [__m512i; SIDE]) {
    let places = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    let step = _mm512_set1_epi32(STEP as i32);
    let odd = _mm512_test_epi32_mask(places, step);
    // Sixteen more means a word of the second row.
    let more = _mm512_set1_epi32(SIDE as i32);
    let first = _mm512_mask_sub_epi32(places, odd, _mm512_add_epi32(places, more), step);
    let second = _mm512_mask_add_epi32(_mm512_add_epi32(places, step), odd, places, more);
    for i in 0..SIDE {
        if i & STEP == 0 {
            let (x, y) = (rows[i], rows[i + STEP]);
            rows[i] = _mm512_permutex2var_epi32(x, first, y);
            rows[i + STEP] = _mm512_permutex2var_epi32(x, second, y);
        }
    }
}

/// Exchanges rows and columns of a tile in registers.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn turn_rows(rows: &mut [__m512i; SIDE]) {
    exchange::<1>(rows);
    exchange::<2>(rows);
    exchange::<4>(rows);
    exchange::<8>(rows);
}

/// Exchanges rows and columns.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn transpose(tile: &mut Tile) {
    let at = tile.0.as_mut_ptr().cast::<__m512i>();
    let mut rows = [_mm512_setzero_si512(); SIDE];
    for (i, row) in rows.iter_mut().enumerate() {
        // SAFETY: a tile is 16 registers, and aligned as they are.
        *row = unsafe { _mm512_load_si512(at.add(i)) };
    }
    turn_rows(&mut rows);
    for (i, row) in rows.into_iter().enumerate() {
        // SAFETY: as above.
        unsafe { _mm512_store_si512(at.add(i), row) };
    }
}
