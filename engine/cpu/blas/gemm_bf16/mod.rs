//! Products of `bfloat16` matrices by instructions that multiply pairs and add up in `f32`: AVX-512 BF16 and AMX.
//!
//! Both read the same packed form: strips of 16 rows or columns, cut along the sums into tiles of 32 terms, which are what
//! one AMX register holds. A tile's words are pairs of terms, the earlier one in the lower half; those of a left factor are row by
//! row, those of a right factor by pairs, of all columns side by side. Depends on `simd`. Invariant: bounds are checked once, by [`by`]; a task writes a
//! rectangle of the result that no other task has, so that results do not depend on the number of threads.

mod kernels;
#[cfg(test)]
mod tests;

use super::{Matrix, Product};
use crate::fallible::scratch_room;
use crate::simd::transpose::{Tile, SIDE};
use crate::simd::{alloc::Block, run, threads, Task, Wide};
use half::bf16;
use kernels::{Amx, Avx512, Kernel};
use std::sync::OnceLock;

/// Terms of the sums in a tile.
const TERMS: usize = 32;
/// Rows and columns of the block of results that a kernel makes at once, of two strips each way.
const BLOCK: usize = 2 * SIDE;
/// Tiles along the sums after which the sums are stored: two strips of so many stay in the first cache level.
const CUT: usize = 16;
/// Blocks of a task, down and across: what they read, and their sums, stay in the second cache level.
const TASK: (usize, usize) = (4, 8);
/// Multiplications below which widening to `f32` is quicker than packing.
const SMALL: usize = 1 << 15;

/// The ways of multiplying pairs, best last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Avx512,
    Amx,
}

/// The best way of this machine; found out once.
fn way() -> Option<Way> {
    static WAY: OnceLock<Option<Way>> = OnceLock::new();
    *WAY.get_or_init(|| match () {
        () if Amx::exists() => Some(Way::Amx),
        () if Avx512::exists() => Some(Way::Avx512),
        () => None,
    })
}

/// A product over the pool, all sizes at least 1, where the machine multiplies pairs; else false.
///
/// # Panics
/// If a slice is too short for its matrix.
pub(super) fn product(product: &Product<bf16>, c: &mut [bf16]) -> bool {
    match if product.work() < SMALL { None } else { way() } {
        Some(Way::Amx) => by::<Amx>(product, CUT, c),
        Some(Way::Avx512) => by::<Avx512>(product, CUT, c),
        None => false,
    }
}

/// Where the result is.
struct Place(*mut bf16);
// SAFETY: tasks write to rectangles that do not overlap.
unsafe impl Sync for Place {}

/// The product by a kernel whose instructions the machine has, sums being stored after `cut` tiles; false where there is
/// no memory to pack in.
fn by<K: Kernel>(product: &Product<bf16>, cut: usize, c: &mut [bf16]) -> bool {
    product.check(c);
    let Product { m, n, k, a, b, .. } = *product;
    let depth = k.div_ceil(TERMS);
    let (high, wide) = (m.div_ceil(SIDE), n.div_ceil(SIDE));
    let Ok(block) = Block::uncounted((high + wide) * depth, size_of::<Tile>()) else { return false };
    // SAFETY: the block has room for so many tiles, aligned as they are; any bytes are a tile.
    let packed = unsafe { std::slice::from_raw_parts_mut(block.as_ptr().cast::<Tile>(), (high + wide) * depth) };
    threads::for_chunks(packed, depth, K::WORTH_PACKING, |start, to| {
        let (first, end) = (start / depth, (start + to.len()) / depth);
        let of_left = high.clamp(first, end) - first;
        let (left, right) = to.split_at_mut(of_left * depth);
        // A product's left factor is read by rows, its right one by columns.
        let a = Strips { x: a, dense: !a.trans, lines: m, terms: k };
        let b = Strips { x: b, dense: b.trans, lines: n, terms: k };
        run(Pack { strips: a, first, by_pairs: false, transpose: K::transpose, to: left });
        run(Pack { strips: b, first: first.max(high) - high, by_pairs: true, transpose: K::transpose, to: right });
    });
    let (left, right) = packed.split_at(high * depth);

    let (blocks_down, blocks_across) = (m.div_ceil(BLOCK), n.div_ceil(BLOCK));
    let (mut tall, mut broad) = (TASK.0.min(blocks_down), TASK.1.min(blocks_across));
    let count = |tall: usize, broad: usize| blocks_down.div_ceil(tall) * blocks_across.div_ceil(broad);
    // Smaller tasks, where there are too few for the threads and each is still worth one.
    while count(tall, broad) < 2 * threads::num_threads() && tall * broad > 1 {
        let (t, b) = if broad > tall { (tall, broad.div_ceil(2)) } else { (tall.div_ceil(2), broad) };
        if t * b * BLOCK * BLOCK * k < K::WORTH_A_TASK {
            break;
        }
        (tall, broad) = (t, b);
    }
    if product.work() < 2 * K::WORTH_A_TASK {
        (tall, broad) = (blocks_down, blocks_across);
    }
    let across = blocks_across.div_ceil(broad);
    let place = Place(c.as_mut_ptr());
    threads::each_piece(count(tall, broad), &|number| {
        let (i, j) = (number / across * tall, number % across * broad);
        let rows = i..(i + tall).min(blocks_down);
        let columns = j..(j + broad).min(blocks_across);
        // SAFETY: the machine has the instructions; tasks have different blocks of `c`, which holds all of them.
        unsafe { task::<K>(product, cut, left, right, rows, columns, &place) };
    });
    true
}

/// The results of blocks down and across.
///
/// # Safety
/// The machine must have the kernel's instructions, `c` all rows and columns, and nobody else must use those blocks.
unsafe fn task<K: Kernel>(
    product: &Product<bf16>,
    cut: usize,
    left: &[Tile],
    right: &[Tile],
    rows: std::ops::Range<usize>,
    columns: std::ops::Range<usize>,
    c: &Place,
) {
    let depth = product.k.div_ceil(TERMS);
    // Two strips; where there is one only, its products are made twice and the second are dropped.
    let pair = |x: &[Tile], block: usize, from: usize, len: usize| {
        let strip = |i: usize| x[i * depth + from..][..len].as_ptr();
        let other = if (2 * block + 2) * depth <= x.len() { 2 * block + 1 } else { 2 * block };
        [strip(2 * block), strip(other)]
    };
    // Sums that are not cut go to one place, which stays in the first cache level.
    let cuts = depth.div_ceil(cut);
    let ld = if cuts == 1 { BLOCK } else { columns.len() * BLOCK };
    let at = |i: usize, j: usize| match cuts {
        1 => 0,
        _ => (i - rows.start) * BLOCK * ld + (j - columns.start) * BLOCK,
    };
    let room = if cuts == 1 { BLOCK } else { rows.len() * BLOCK } * ld;
    // A tile has as many bytes as that many sums.
    let mut sums = scratch_room::<Tile>(room.div_ceil(SIDE * SIDE));
    let sums = sums.as_mut_ptr().cast::<f32>();
    let session = K::begin();
    for (p, from) in (0..depth).step_by(cut).enumerate() {
        let len = cut.min(depth - from);
        for j in columns.clone() {
            let b = pair(right, j, from, len);
            for i in rows.clone() {
                let a = pair(left, i, from, len);
                // SAFETY: the strips have `len` tiles from there on; the block of sums is inside the room, and is
                // written when its first terms are added up; its rows and columns of `c` are this task's.
                unsafe {
                    let sums = sums.add(at(i, j));
                    K::sums(a, b, len, sums, ld, p > 0);
                    if p + 1 == cuts {
                        let (rows, columns) = (BLOCK.min(product.m - i * BLOCK), BLOCK.min(product.n - j * BLOCK));
                        let c = c.0.add(i * BLOCK * product.ldc + j * BLOCK);
                        run(Round { product, rows, columns, sums, ld, c });
                    }
                }
            }
        }
    }
    drop(session);
}

/// `c = alpha sums + beta c`, rounded once, for rows and columns of one block.
struct Round<'a> {
    product: &'a Product<'a, bf16>,
    rows: usize,
    columns: usize,
    sums: *const f32,
    ld: usize,
    c: *mut bf16,
}
impl Task for Round<'_> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        let Product { alpha, beta, ldc, .. } = *self.product;
        let (alpha, beta) = (alpha.widen(), beta.widen());
        for i in 0..self.rows {
            // SAFETY: whoever made the task owns the rows of the block, which have so many columns.
            let (sums, c) = unsafe {
                let sums = std::slice::from_raw_parts(self.sums.add(i * self.ld), self.columns);
                (sums, std::slice::from_raw_parts_mut(self.c.add(i * ldc), self.columns))
            };
            if beta == 0.0 {
                c.iter_mut().zip(sums).for_each(|(c, s)| *c = bf16::narrow(alpha * s));
            } else {
                c.iter_mut().zip(sums).for_each(|(c, s)| *c = bf16::narrow(alpha * s + beta * c.widen()));
            }
        }
    }
}

/// A factor as strips of lines: rows of the left one, columns of the right one.
struct Strips<'a> {
    x: Matrix<'a, bf16>,
    /// Are the terms of a line adjacent? Else those of neighbouring lines are.
    dense: bool,
    lines: usize,
    terms: usize,
}

/// Packs whole strips from the one of number `first` on, by pairs of terms or by lines.
struct Pack<'a> {
    strips: Strips<'a>,
    first: usize,
    by_pairs: bool,
    /// Exchanges rows and columns of a tile.
    transpose: fn(&mut Tile),
    to: &'a mut [Tile],
}
impl Task for Pack<'_> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        let Pack { strips, first, by_pairs, transpose, to } = self;
        let depth = strips.terms.div_ceil(TERMS);
        let count = to.len() / depth;
        // In the order in which the factor is in memory.
        let (outer, inner) = if strips.dense { (count, depth) } else { (depth, count) };
        for o in 0..outer {
            for i in 0..inner {
                let (strip, block) = if strips.dense { (o, i) } else { (i, o) };
                let (line, term) = ((first + strip) * SIDE, block * TERMS);
                let (lines, terms) = (SIDE.min(strips.lines - line), TERMS.min(strips.terms - term));
                let to = &mut to[strip * depth + block];
                if lines == SIDE && terms == TERMS {
                    // By itself, so that the compiler knows the lengths.
                    strips.tile(line, SIDE, term, TERMS, to);
                } else {
                    strips.tile(line, lines, term, terms, to);
                }
                if strips.dense == by_pairs {
                    transpose(to);
                }
            }
        }
    }
}

impl Strips<'_> {
    /// The tile from a line and a term on, by lines where the factor is dense, else by pairs; zeros where it ends.
    #[inline(always)]
    fn tile(&self, line: usize, lines: usize, term: usize, terms: usize, to: &mut Tile) {
        for (i, row) in to.0.iter_mut().enumerate() {
            *row = [0; SIDE];
            if self.dense {
                if i < lines {
                    let from: [bf16; TERMS] = filled(&self.x.data[(line + i) * self.x.ld + term..][..terms]);
                    for (word, pair) in row.iter_mut().zip(from.chunks_exact(2)) {
                        *word = word_of(pair[0], pair[1]);
                    }
                }
                continue;
            }
            let from = |k: usize| -> [bf16; SIDE] {
                match k < terms {
                    true => filled(&self.x.data[(term + k) * self.x.ld + line..][..lines]),
                    false => [bf16::ZERO; SIDE],
                }
            };
            for ((word, x), y) in row.iter_mut().zip(from(2 * i)).zip(from(2 * i + 1)) {
                *word = word_of(x, y);
            }
        }
    }
}

/// The elements, with zeros behind them.
#[inline(always)]
fn filled<const N: usize>(x: &[bf16]) -> [bf16; N] {
    let mut out = [bf16::ZERO; N];
    match x.len() == N {
        true => out.copy_from_slice(x),
        false => out[..x.len()].copy_from_slice(x),
    }
    out
}

#[inline(always)]
fn word_of(earlier: bf16, later: bf16) -> u32 {
    u32::from(earlier.to_bits()) | u32::from(later.to_bits()) << 16
}
