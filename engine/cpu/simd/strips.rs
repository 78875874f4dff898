//! Loops over the columns of matrices, a strip of them a piece.
//!
//! Depends on `threads`. For what goes down the columns of a result, so that a matrix of its own can be shared out as well as
//! many. Invariant: no two strips have an element in common.

use super::threads::{each_piece, num_threads, piece_size};
use std::marker::PhantomData;

/// Columns that strips are cut between: each row of a strip is fetched anew, which few lines are not worth.
const SIDE: usize = 256;

/// Neighbouring columns of one of the matrices that a slice consists of, to be written.
pub struct Strip<'a, T> {
    /// Where its matrix begins in the slice.
    pub start: usize,
    /// Its first column.
    pub column: usize,
    /// How many it has.
    pub width: usize,
    /// Rows, and elements from one to the next.
    rows: usize,
    apart: usize,
    first: *mut T,
    own: PhantomData<&'a mut [T]>,
}

impl<T> Strip<'_, T> {
    /// Its part of a row.
    ///
    /// # Panics
    /// Below the matrix.
    #[inline(always)]
    pub fn row(&mut self, i: usize) -> &mut [T] {
        assert!(i < self.rows, "a strip has {} rows, not {i}", self.rows);
        // SAFETY: the row is one of the matrix, which is in a slice that is borrowed for as long as the strip lives; its
        // columns are no other strip's.
        unsafe { std::slice::from_raw_parts_mut(self.first.add(i * self.apart), self.width) }
    }
}

/// A pointer that strips are cut from.
struct Base<T>(*mut T);
// SAFETY: each thread gets other columns of the slice, whose elements can be sent.
unsafe impl<T: Send> Sync for Base<T> {}

impl<T> Base<T> {
    fn get(&self) -> *mut T {
        self.0
    }
}

/// Runs `f` for strips of at most `widest` columns that cover the matrices of `rows` rows and `columns` columns in `out`, over
/// the pool where they have `grain` elements and more. What `make` makes is handed from strip to strip on a thread.
///
/// # Panics
/// If the matrices do not fill `out`.
pub fn for_strips<T: Send, S>(
    out: &mut [T],
    [rows, columns]: [usize; 2],
    widest: usize,
    grain: usize,
    make: impl Fn() -> S + Sync,
    f: impl Fn(&mut S, Strip<'_, T>) + Sync,
) {
    let n = out.len();
    if n == 0 {
        return;
    }
    let matrix = rows * columns;
    assert!(matrix > 0 && n.is_multiple_of(matrix), "{n} elements are not matrices of {rows} rows of {columns}");
    let pieces = if num_threads() == 1 { 1 } else { (n / grain.max(1)).clamp(1, 2 * num_threads()) };
    let cuts = pieces.div_ceil(n / matrix);
    let width = columns.div_ceil(cuts).next_multiple_of(SIDE).min(widest.max(1)).min(columns);
    let across = columns.div_ceil(width);
    let strips = n / matrix * across;
    let few = piece_size(strips, 1, (grain / (rows * width)).max(1));
    let base = Base(out.as_mut_ptr());
    each_piece(strips.div_ceil(few), &|piece| {
        let mut state = make();
        for strip in piece * few..((piece + 1) * few).min(strips) {
            let (start, column) = (strip / across * matrix, strip % across * width);
            let width = width.min(columns - column);
            // SAFETY: the column is one of a matrix that is in the slice.
            let first = unsafe { base.get().add(start + column) };
            f(&mut state, Strip { start, column, width, rows, apart: columns, first, own: PhantomData });
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::threads::set_num_threads;
    use crate::tests::many;

    #[test]
    fn strips_cover_everything_once() {
        for threads in [1, 3] {
            set_num_threads(threads);
            for (matrices, rows, columns) in [(1, 5, many(1000, 300)), (7, 3, 70), (many(300, 20), 2, 3), (1, 1, 1)] {
                for widest in [1, 100, 5000] {
                    let mut out = vec![0; matrices * rows * columns];
                    let go = |seen: &mut usize, mut strip: Strip<usize>| {
                        *seen += 1;
                        assert!(strip.width <= widest);
                        for i in 0..rows {
                            let at = strip.start + i * columns + strip.column;
                            strip.row(i).iter_mut().enumerate().for_each(|(j, x)| *x += at + j + 1);
                        }
                    };
                    for_strips(&mut out, [rows, columns], widest, 10, || 0, go);
                    assert!(out.iter().enumerate().all(|(i, &x)| x == i + 1));
                }
            }
        }
        for_strips(&mut [0u8; 0], [0, 4], 4, 1, || (), |(), _| unreachable!("there are no strips"));
    }

    #[test]
    #[should_panic(expected = "a strip has 2 rows")]
    fn a_strip_ends_with_its_matrix() {
        for_strips(&mut [0u8; 8], [2, 4], 4, 100, || (), |(), mut strip| strip.row(2).fill(1));
    }
}
