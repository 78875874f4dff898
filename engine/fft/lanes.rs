//! Copies between strided memory and rows.
//!
//! Where the elements of a row are far apart, several rows are copied at a time, a tile after the other, so that each
//! line of cache that is loaded is used up.

use crate::Source;

/// Elements along both sides of a tile: those of a cache line.
const TILE: usize = 8;

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

    /// Rows from `first` on as they lie, where they do so one behind the other.
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
        let mut done = 0;
        while done < rows {
            let mut starts = [0; TILE];
            let count = TILE.min(rows - done);
            for (i, start) in starts[..count].iter_mut().enumerate() {
                *start = self.start(first + done + i);
            }
            let block = &mut out[done * pitch..];
            for from in (0..self.n).step_by(TILE) {
                let to = (from + TILE).min(self.n);
                for (i, &start) in starts[..count].iter().enumerate() {
                    let row = &mut block[i * pitch + from..i * pitch + to];
                    for (k, o) in row.iter_mut().enumerate() {
                        *o = f(data[start + (from + k) * self.step]);
                    }
                }
            }
            done += count;
        }
    }
}

/// Writes `columns` of a block, rows of `width` elements each, to rows of `n` elements that are `pitch` apart.
#[inline(always)]
pub(crate) fn gather<'c, T: Copy + 'c>(
    row: impl Fn(usize) -> &'c [T],
    n: usize,
    width: usize,
    out: &mut [T],
    pitch: usize,
) {
    for from in (0..n).step_by(TILE) {
        let to = (from + TILE).min(n);
        for start in (0..width).step_by(TILE) {
            let end = (start + TILE).min(width);
            for i in from..to {
                let line = &row(i)[start..end];
                for (j, &x) in line.iter().enumerate() {
                    out[(start + j) * pitch + i] = x;
                }
            }
        }
    }
}
