//! Copies between strided memory and rows.
//!
//! Where the elements of a row are far apart, several rows are copied at a time, a tile after the other, so that each
//! line of cache that is loaded is used up.

use crate::columns::Columns;
use crate::Source;

/// Elements along both sides of a tile: those of a cache line.
const TILE: usize = 8;
/// Rows that are loaded before they are copied.
const AHEAD: usize = 32;

/// Positions of the rows of a source, all dimensions but the last.
pub(crate) struct Rows<'a, T> {
    source: Source<'a, T>,
    /// Elements of a row, and how far apart they are.
    pub(crate) n: usize,
    step: usize,
}

impl<'a, T: Copy> Rows<'a, T> {
    pub(crate) fn new(source: Source<'a, T>) -> Rows<'a, T> {
        let n = source.shape.last().copied().unwrap_or(1);
        let step = source.strides.last().copied().unwrap_or(1);
        Rows { source, n, step }
    }

    /// Where row `i` begins.
    fn start(&self, mut i: usize) -> usize {
        let lead = self.source.shape.len().saturating_sub(1);
        let dims = self.source.shape[..lead].iter().zip(&self.source.strides[..lead]);
        let mut at = self.source.offset;
        for (&n, &stride) in dims.rev() {
            at += i % n.max(1) * stride;
            i /= n.max(1);
        }
        at
    }

    /// Rows from `first` on in their own layout, where they do so one behind the other.
    pub(crate) fn dense(&self, first: usize, rows: usize) -> Option<&'a [T]> {
        let (shape, strides) = (self.source.shape, self.source.strides);
        let mut want = 1;
        for (&n, &stride) in shape.iter().zip(strides).rev() {
            if n != 1 && stride != want {
                return None;
            }
            want *= n;
        }
        let start = self.source.offset + first * self.n;
        self.source.data.get(start..start + rows * self.n)
    }

    /// Copies rows from `first` on, as many as fit, to `out`, where they are `pitch` elements apart.
    pub(crate) fn copy_to<U>(&self, first: usize, out: &mut [U], pitch: usize, f: impl Fn(T) -> U + Copy) {
        let rows = (out.len() + pitch - self.n) / pitch.max(1);
        let data = self.source.data;
        if self.step == 1 {
            for (i, row) in out.chunks_mut(pitch).take(rows).enumerate() {
                let start = self.start(first + i);
                row.iter_mut().zip(&data[start..start + self.n]).for_each(|(o, &x)| *o = f(x));
            }
            return;
        }
        for (b, block) in out.chunks_mut(pitch * TILE).enumerate() {
            let done = b * TILE;
            let count = TILE.min(rows.saturating_sub(done));
            let mut starts = [0; TILE];
            for (i, start) in starts[..count].iter_mut().enumerate() {
                *start = self.start(first + done + i);
            }
            let neighbours = count == TILE && starts.iter().enumerate().all(|(i, &at)| at == starts[0] + i);
            for from in (0..self.n).step_by(TILE) {
                let to = (from + TILE).min(self.n);
                if neighbours && to - from == TILE {
                    let line = |k: usize| &data[starts[0] + (from + k) * self.step..].as_chunks::<TILE>().0[0];
                    let lines: [&[T; TILE]; TILE] = std::array::from_fn(line);
                    for (i, row) in block.chunks_mut(pitch).take(TILE).enumerate() {
                        let to = &mut row[from..].as_chunks_mut::<TILE>().0[0];
                        to.iter_mut().zip(&lines).for_each(|(o, line)| *o = f(line[i]));
                    }
                    continue;
                }
                for (i, &start) in starts[..count].iter().enumerate() {
                    let row = &mut block[i * pitch + from..i * pitch + to];
                    for (k, o) in row.iter_mut().enumerate() {
                        *o = f(data[start + (from + k) * self.step]);
                    }
                }
            }
        }
    }
}

/// Copies a block, `n` rows of `width` elements, to rows of `n` elements that are `pitch` apart.
pub(crate) fn gather<T: Copy>(block: &Columns<'_, T>, out: &mut [T], pitch: usize) {
    let (n, width) = (block.rows(), block.width());
    for from in (0..n).step_by(TILE) {
        let to = (from + TILE).min(n);
        (from + AHEAD..to + AHEAD).for_each(|i| block.prefetch(i));
        for start in (0..width).step_by(TILE) {
            let end = (start + TILE).min(width);
            if to - from == TILE && end - start == TILE {
                let line = |i: usize| &block.row(from + i)[start..].as_chunks::<TILE>().0[0];
                let lines: [&[T; TILE]; TILE] = std::array::from_fn(line);
                for (j, row) in out[start * pitch..].chunks_mut(pitch).take(TILE).enumerate() {
                    let to = &mut row[from..].as_chunks_mut::<TILE>().0[0];
                    to.iter_mut().zip(&lines).for_each(|(o, line)| *o = line[j]);
                }
                continue;
            }
            for i in from..to {
                for (j, &x) in block.row(i)[start..end].iter().enumerate() {
                    out[(start + j) * pitch + i] = x;
                }
            }
        }
    }
}

/// The inverse of [`gather`].
pub(crate) fn scatter<T: Copy>(rows: &[T], pitch: usize, block: &mut Columns<'_, T>) {
    let (n, width) = (block.rows(), block.width());
    for from in (0..n).step_by(TILE) {
        let to = (from + TILE).min(n);
        for start in (0..width).step_by(TILE) {
            let end = (start + TILE).min(width);
            if to - from == TILE && end - start == TILE {
                let line = |j: usize| &rows[(start + j) * pitch + from..].as_chunks::<TILE>().0[0];
                let lines: [&[T; TILE]; TILE] = std::array::from_fn(line);
                for i in 0..TILE {
                    let to = &mut block.row_mut(from + i)[start..].as_chunks_mut::<TILE>().0[0];
                    to.iter_mut().zip(&lines).for_each(|(o, line)| *o = line[i]);
                }
                continue;
            }
            for i in from..to {
                for (j, o) in block.row_mut(i)[start..end].iter_mut().enumerate() {
                    *o = rows[(start + j) * pitch + i];
                }
            }
        }
    }
}
