//! Products of `f32` matrices for AVX-512: tiles of sums that stay in registers.
//!
//! BLAS packs both factors, once for each thread; here the right one is packed once for all, in panels of columns, and the
//! left one is read in place, unless its columns are far apart. Depends on `std::arch` and `simd`. Invariants:
//! [`by_panels`] checks every bound once, before the loops; results do not depend on the number of threads.

use super::{gemm_f32_dots, Matrix, Product};
use crate::simd::transpose::{transpose, Tile as Square};
use crate::simd::{alloc::Block, run, threads, Task};
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

/// Where a matrix is: elements to the next row and to the next column.
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

/// The tile of so many rows, 6 at most, and columns or registers of them, 4 at most.
macro_rules! tile_of {
    ($tile:ident, $rows:expr, $columns:expr, $work:expr) => {
        tile_of!(@ $tile $rows, $columns, $work; 1 2 3 4 5 6)
    };
    (@ $tile:ident $rows:expr, $columns:expr, $work:expr; $($m:literal)*) => {
        match ($rows, $columns) {
            $(
                ($m, 1) => $tile::<$m, 1>($work),
                ($m, 2) => $tile::<$m, 2>($work),
                ($m, 3) => $tile::<$m, 3>($work),
                ($m, _) => $tile::<$m, 4>($work),
            )*
            #[allow(clippy::unreachable)] // Who calls names all heights of its tiles.
            (rows, _) => unreachable!("a tile of {rows} rows"),
        }
    };
}
pub(super) use tile_of;

/// `m` rows against a panel of `n` columns, `n` from 1 to `PANEL`; `tiles` elements are between tiles of the left factor.
///
/// # Safety
/// As for [`tile`], for all `m` rows.
#[target_feature(enable = "avx512f")]
unsafe fn rows(m: usize, n: usize, tiles: usize, work: Work) {
    let registers = n.div_ceil(LANES);
    let mask = !0 >> (registers * LANES - n);
    for i in (0..m).step_by(TALL) {
        // SAFETY: row `i` is one of the `m`, and so are those of its tile.
        unsafe {
            let work = Work { a: work.a.add(i / TALL * tiles), c: work.c.add(i * work.ldc), mask, ..work };
            tile_of!(tile, (m - i).min(TALL), registers, work);
        }
    }
}

/// Copies `rows` x `cols` elements, from the first of `x` on, into rows of `width` elements, the rest of which are zeros:
/// they are multiplied like the others, and whatever was there may be numbers that take a hundred times as long.
struct Pack<'a> {
    x: &'a [f32],
    at: Steps,
    rows: usize,
    cols: usize,
    width: usize,
    to: &'a mut [f32],
}
impl Task for Pack<'_> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        let Pack { x, at, rows, cols, width, to } = self;
        if cols < width {
            to.chunks_mut(width).take(rows).for_each(|to| to[cols..].fill(0.0));
        }
        if at.across == 1 {
            for (i, to) in to.chunks_mut(width).take(rows).enumerate() {
                to[..cols].copy_from_slice(&x[i * at.down..][..cols]);
            }
            return;
        }
        // Squares, which registers hold in their own layout and as they are to be; along the memory that is read, which the processor
        // fetches in advance for so many lines and not for many more.
        for j in (0..cols).step_by(LANES) {
            for i in (0..rows).step_by(LANES) {
                let (height, wide) = (LANES.min(rows - i), LANES.min(cols - j));
                let mut square = Square([[0; LANES]; LANES]);
                for (s, line) in square.0.iter_mut().enumerate().take(wide) {
                    let from = &x[i + (j + s) * at.across..][..height];
                    match <&[f32; LANES]>::try_from(from) {
                        Ok(from) => *line = from.map(f32::to_bits),
                        Err(_) => line.iter_mut().zip(from).for_each(|(to, x)| *to = x.to_bits()),
                    }
                }
                // SAFETY: products are made this way where there is AVX-512F.
                unsafe { transpose(&mut square) };
                for (line, to) in square.0.iter().zip(to[i * width + j..].chunks_mut(width)).take(height) {
                    match <&mut [f32; LANES]>::try_from(&mut to[..wide]) {
                        Ok(to) => *to = line.map(f32::from_bits),
                        Err(_) => to[..wide].iter_mut().zip(line).for_each(|(to, &x)| *to = f32::from_bits(x)),
                    }
                }
            }
        }
    }
}

/// Would a left factor be fetched anew for each panel, its rows being of a few elements each, far apart?
fn scattered(a: &Matrix<f32>, k: usize) -> bool {
    a.trans && a.ld.saturating_mul(k) > BLOCK
}

/// Is this way a good one for such a product here? Few rows or columns do not win back the packing.
fn suits(product: &Product<f32>) -> bool {
    let Product { m, n, k, alpha, a, beta, .. } = product;
    let large = *m >= 16 && *n >= LANES && n.saturating_mul(*k) >= 1 << 15 && (*n >= 4 * PANEL || !scattered(a, *k));
    large && *alpha == 1.0 && (*beta == 0.0 || *beta == 1.0) && is_available()
}

/// Has this machine the instructions?
pub(super) fn is_available() -> bool {
    std::is_x86_feature_detected!("avx512f")
}

/// `c += a b` by panels, which [`is_available`] allows, also where packing them may take longer than it saves.
///
/// # Panics
/// As [`whole`].
pub(super) fn add(product: &Product<f32>, c: &mut [f32]) {
    let pays = product.m >= 16 && product.n >= LANES && product.k >= LANES && is_available();
    if !(pays && by_panels(product, product.work() >= 1 << 20, c)) {
        super::gemm(product, c);
    }
}

/// A product over the pool, all sizes at least 1, where this way of doing it is a good one; else false.
///
/// # Panics
/// If a slice is too short for its matrix.
pub(super) fn whole(product: &Product<f32>, c: &mut [f32]) -> bool {
    // A region costs as much as some 2^18 multiplications.
    best_way(product, product.work() >= 1 << 20, c)
}

/// [`whole`] on this thread.
///
/// # Panics
/// As [`whole`].
pub(super) fn here(product: &Product<f32>, c: &mut [f32]) -> bool {
    best_way(product, false, c)
}

/// Without packing, or from panels, where one of them is a good way.
fn best_way(product: &Product<f32>, pool: bool, c: &mut [f32]) -> bool {
    let panels = suits(product);
    if gemm_f32_dots::suits(product, panels && transposes(product)) {
        gemm_f32_dots::product(product, pool, c);
        return true;
    }
    panels && either_way(product, pool, c)
}

/// Is the right factor, as a layer's weight, a transpose of more columns than the left one has rows? Then it need not be packed
/// if it takes the left one's place, whose rows fill panels.
fn transposes(product: &Product<f32>) -> bool {
    let Product { m, n, k, a, b, ldc, .. } = *product;
    let filled = m % PANEL == 0 || m % PANEL > 2 * LANES;
    filled && b.trans && !a.trans && n >= 2 * m && k >= PANEL && ldc == n
}

/// The product, or its transpose from the transposes of its factors, transposed.
fn either_way(product: &Product<f32>, pool: bool, c: &mut [f32]) -> bool {
    let Product { m, n, a, b, beta, .. } = *product;
    if !transposes(product) {
        return by_panels(product, pool, c);
    }
    let (a, b) = (Matrix { trans: !b.trans, ..b }, Matrix { trans: !a.trans, ..a });
    let transposed = Product { m: n, n: m, a, b, ldc: m, ..*product };
    let Some(mut room) = Room::new(m * n) else { return false };
    let room = room.of();
    if beta != 0.0 {
        run(Pack { x: c, at: Steps { down: 1, across: n }, rows: n, cols: m, width: m, to: room });
    }
    if !by_panels(&transposed, pool, room) {
        return false;
    }
    run(Pack { x: room, at: Steps { down: 1, across: m }, rows: m, cols: n, width: n, to: c });
    true
}

/// Memory for so many elements; their values are arbitrary.
struct Room(Block, usize);

impl Room {
    fn new(len: usize) -> Option<Room> {
        Some(Room(Block::uncounted(len, size_of::<f32>()).ok()?, len))
    }
    fn of(&mut self) -> &mut [f32] {
        // SAFETY: the block has room for so many, aligned; any bytes are a number.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_ptr().cast(), self.1) }
    }
}

/// The product, over the pool or on this thread; false where there is no memory to pack in.
fn by_panels(product: &Product<f32>, pool: bool, c: &mut [f32]) -> bool {
    product.check(c);
    let Product { m, n, k, b, ldc, .. } = *product;
    let c = &mut c[..(m - 1) * ldc + n];
    let deep = k.div_ceil(k.div_ceil(DEPTH));
    let (cuts, across) = (k.div_ceil(deep), n.div_ceil(PANEL));
    let Some(mut panels) = Room::new(cuts * across * PANEL * deep) else { return false };
    let bt = Steps::of(&b);
    let pack = |start: usize, panels: &mut [f32]| {
        for (i, to) in panels.chunks_mut(PANEL * deep).enumerate() {
            let panel = start / (PANEL * deep) + i;
            let (p, j) = (panel / across * deep, panel % across * PANEL);
            let x = &b.data[p * bt.down + j * bt.across..];
            run(Pack { x, at: bt, rows: deep.min(k - p), cols: PANEL.min(n - j), width: PANEL, to });
        }
    };
    let every = ((1usize << 19) / (n * k)).max(TALL).saturating_mul(ldc);
    if pool {
        threads::for_chunks(panels.of(), PANEL * deep, threads::GRAIN / 2, pack);
        let panels = &*panels.of();
        threads::for_chunks(c, TALL * ldc, every, |start, c| lines(product, start / ldc, deep, panels, c));
    } else {
        pack(0, panels.of());
        lines(product, 0, deep, panels.of(), c);
    }
    true
}

/// The rows of the result from `first` on, as many as `c` has, from packed panels.
fn lines(product: &Product<f32>, first: usize, deep: usize, panels: &[f32], c: &mut [f32]) {
    let Product { n, k, a, beta, ldc, .. } = *product;
    let (m, across) = (c.len().div_ceil(ldc), n.div_ceil(PANEL));
    let at = Steps::of(&a);
    let tall = (BLOCK / deep / TALL).max(1) * TALL;
    let mut room = if scattered(&a, k) { Room::new(tall.min(m).next_multiple_of(TALL) * deep) } else { None };
    for (cut, p) in (0..k).step_by(deep).enumerate() {
        let len = deep.min(k - p);
        for i in (0..m).step_by(tall) {
            let x = &a.data[(first + i) * at.down + p * at.across..];
            let height = tall.min(m - i);
            let (left, at, tiles) = match &mut room {
                Some(room) => {
                    for (t, to) in (0..height).step_by(TALL).zip(room.of().chunks_mut(TALL * len)) {
                        let transposed = Steps { down: at.across, across: at.down };
                        let cols = TALL.min(height - t);
                        run(Pack { x: &x[t * at.down..], at: transposed, rows: len, cols, width: TALL, to });
                    }
                    (room.of().as_ptr(), Steps { down: 1, across: TALL }, TALL * len)
                }
                None => (x.as_ptr(), at, TALL * at.down),
            };
            for j in 0..across {
                let panel = &panels[(cut * across + j) * PANEL * deep..][..PANEL * deep];
                let work = Work {
                    a: left,
                    at,
                    b: panel.as_ptr(),
                    k: len,
                    c: c[i * ldc + j * PANEL..].as_mut_ptr(),
                    ldc,
                    mask: 0,
                    add: beta == 1.0 || p > 0,
                };
                // SAFETY: the machine has AVX-512F; `c` holds the rows, and the left factor, in its own layout or packed, the
                // same; a panel has `deep` rows.
                unsafe { rows(height, PANEL.min(n - j * PANEL), tiles, work) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_that_takes_the_left_factors_place() {
        if !std::is_x86_feature_detected!("avx512f") {
            return;
        }
        for (m, n, k) in [(64, 256, 700), (48, 130, 300), (128, 257, 129)] {
            let numbers = |n: usize, by: usize| (0..n).map(|i| (i * by % 17) as f32 - 8.0).collect::<Vec<f32>>();
            // Rows that are further apart than they are long.
            let (x, w) = (numbers(m * (k + 3), 7), numbers(n * (k + 5), 11));
            let (a, b) = (Matrix { data: &x, ld: k + 3, trans: false }, Matrix { data: &w, ld: k + 5, trans: true });
            for beta in [0.0, 1.0] {
                let product = Product { beta, ..Product::of([m, n, k], a, b) };
                assert!(suits(&product) && transposes(&product));
                let before = numbers(m * n, 5);
                for pool in [false, true] {
                    let mut c = before.clone();
                    assert!(either_way(&product, pool, &mut c));
                    for (p, (&y, &before)) in c.iter().zip(&before).enumerate() {
                        let (x, w) = (&x[p / n * (k + 3)..][..k], &w[p % n * (k + 5)..][..k]);
                        // Whole numbers, which no order of adding rounds.
                        assert_eq!(y, x.iter().zip(w).map(|(x, w)| x * w).sum::<f32>() + beta * before);
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_packed_beside_a_matrix_is_zeros() {
        let x: Vec<f32> = (0..20 * 24).map(|v| v as f32).collect();
        let ways = [Steps { down: 24, across: 1 }, Steps { down: 1, across: 24 }];
        for (at, transposed) in ways.into_iter().zip([false, true]) {
            if transposed && !std::is_x86_feature_detected!("avx512f") {
                continue;
            }
            // The smallest of numbers, which processors take their time with.
            let mut to = vec![f32::from_bits(1); 18 * 32];
            run(Pack { x: &x, at, rows: 18, cols: 19, width: 32, to: &mut to });
            for (i, row) in to.chunks(32).enumerate() {
                let wanted = |j: usize| if j < 19 { x[i * at.down + j * at.across] } else { 0.0 };
                assert!(row.iter().enumerate().all(|(j, &v)| v == wanted(j)), "{transposed} {i}: {row:?}");
            }
        }
    }
}
