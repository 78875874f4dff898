//! Columns of matrices in one slice, for threads that each write others of them.
//!
//! Holds `unsafe`. Invariant: two [`Columns`] that live at a time share no element.
#![allow(unsafe_code)]

use crate::Pool;
use std::marker::PhantomData;
use std::ops::Range;

/// Neighbouring columns of one of the matrices of `rows` rows, each `pitch` elements behind the other.
pub(crate) struct Columns<'a, T> {
    first: *mut T,
    rows: usize,
    pitch: usize,
    width: usize,
    slice: PhantomData<&'a mut [T]>,
}

impl<T: Copy> Columns<'_, T> {
    /// How many rows.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// How many columns.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// What the columns hold of a row.
    #[inline(always)]
    pub(crate) fn row(&self, i: usize) -> &[T] {
        assert!(i < self.rows, "no such row");
        // SAFETY: the row is one of the matrix, in which the columns are; nobody else has them.
        unsafe { std::slice::from_raw_parts(self.first.add(i * self.pitch), self.width) }
    }

    /// Asks for a row to be loaded, where there is one: rows are too far apart for processors to foresee the next.
    #[inline(always)]
    pub(crate) fn prefetch(&self, i: usize) {
        #[cfg(target_arch = "x86_64")]
        if i < self.rows {
            use std::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
            for at in (0..self.width).step_by((64 / size_of::<T>()).max(1)) {
                // SAFETY: the element is one of the matrix, and is not read.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(self.first.add(i * self.pitch + at).cast()) };
            }
        }
        let _ = i;
    }

    /// What the columns hold of a row, to write.
    #[inline(always)]
    pub(crate) fn row_mut(&mut self, i: usize) -> &mut [T] {
        assert!(i < self.rows, "no such row");
        // SAFETY: as above, and `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.first.add(i * self.pitch), self.width) }
    }
}

/// A pointer that columns are cut from.
struct Base<T>(*mut T);
// SAFETY: each thread gets other columns, whose elements can be sent.
unsafe impl<T: Send> Sync for Base<T> {}

impl<T> Base<T> {
    fn get(&self) -> *mut T {
        self.0
    }
}

/// Runs `f` for blocks of at most `width` columns of every matrix, (rows, pitch) each, that are one behind the other
/// in `data`. `each` blocks are one task of the pool.
pub(crate) fn for_columns<T: Send + Copy>(
    data: &mut [T],
    (rows, pitch): (usize, usize),
    width: usize,
    each: usize,
    pool: Pool<'_>,
    f: impl Fn(&mut dyn Iterator<Item = Columns<'_, T>>) + Sync,
) {
    let size = rows * pitch;
    if size == 0 || data.is_empty() {
        return;
    }
    assert!(data.len().is_multiple_of(size), "matrices of one size");
    let (width, each) = (width.clamp(1, pitch), each.max(1));
    let across = pitch.div_ceil(width);
    let blocks = data.len() / size * across;
    let base = Base(data.as_mut_ptr());
    let block = |i: usize| {
        let (matrix, start) = (i / across, i % across * width);
        // SAFETY: `matrix` is one of those in `data`, and `start` one of its columns.
        let first = unsafe { base.get().add(matrix * size + start) };
        Columns { first, rows, pitch, width: width.min(pitch - start), slice: PhantomData }
    };
    let run = |range: Range<usize>| f(&mut range.map(block));
    pool(blocks.div_ceil(each), &|task| {
        // Tasks have blocks of their own, and each is made once.
        run(task * each..((task + 1) * each).min(blocks));
    });
}

/// Runs `f(index of the first row, rows)` over pieces of `data`, of at most `each` rows of `n` elements.
pub(crate) fn for_rows<T: Send>(
    data: &mut [T],
    n: usize,
    each: usize,
    pool: Pool<'_>,
    f: impl Fn(usize, &mut [T]) + Sync,
) {
    let rows = data.len() / n.max(1);
    let each = each.max(1);
    if rows <= each {
        return f(0, data);
    }
    let base = Base(data.as_mut_ptr());
    pool(rows.div_ceil(each), &|task| {
        let first = task * each;
        let len = each.min(rows - first) * n;
        // SAFETY: the pieces are inside `data`, which is borrowed for the call, and do not overlap; each is made
        // once.
        let piece = unsafe { std::slice::from_raw_parts_mut(base.get().add(first * n), len) };
        f(first, piece);
    });
}
