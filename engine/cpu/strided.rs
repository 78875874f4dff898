//! Walking over arrays of any layout in the row-major order of the result.
//!
//! Depends on `simd` and `shape`. A kernel always sees dense slices or single values: runs of a layout that are dense are
//! handed over as they lie, all else is gathered block by block. Invariant: no kernel ever sees a stride.

use super::simd::{fill, threads, Arg};
use crate::shape::Layout;
use smallvec::SmallVec;

/// Elements gathered at once; small enough for the first cache level.
const BLOCK: usize = 512;
/// Dense runs shorter than this are gathered into blocks, to call kernels less often.
const SHORT: usize = 128;
/// Elements of a row that is broadcast which lie side by side in a copy, as often as they fit, for the same reason; they stay in
/// the first cache level.
const REPEATED: usize = 1024;

/// Dimensions as (size, stride), outermost first.
pub type Dims = SmallVec<[(usize, usize); 4]>;

/// Joins neighbouring dimensions that one stride can describe, and drops those of size 1.
pub fn collapse(dims: impl IntoIterator<Item = (usize, usize)>) -> Dims {
    let mut out = Dims::new();
    for (n, s) in dims {
        match out.last_mut() {
            _ if n == 1 => {}
            Some(last) if n.checked_mul(s) == Some(last.1) => *last = (last.0 * n, s),
            _ => out.push((n, s)),
        }
    }
    out
}

/// An operand: where its elements lie, seen under the shape of the result.
pub struct Source<'a, T> {
    data: &'a [T],
    dims: Dims,
    offset: usize,
}

impl<'a, T: Copy> Source<'a, T> {
    /// The elements that a layout shows of a storage, broadcast to a shape.
    pub fn new(data: &'a [T], layout: &Layout, shape: &[usize]) -> Source<'a, T> {
        let (dims, offset) = match layout.shape.as_slice() == shape {
            true => (collapse(layout.shape.iter().copied().zip(layout.strides.iter().copied())), layout.offset),
            false => {
                let wide = layout.broadcast_to(shape);
                (collapse(wide.shape.iter().copied().zip(wide.strides.iter().copied())), wide.offset)
            }
        };
        Source { data, dims, offset }
    }

    /// A cursor at the element of that number.
    pub fn cursor(&self, mut position: usize) -> Cursor<'a, '_, T> {
        let (&inner, outer) = self.dims.split_last().unwrap_or((&(usize::MAX, 0), &[]));
        let at = position % inner.0.max(1);
        position /= inner.0.max(1);
        let mut offset = self.offset + at * inner.1;
        let mut index: SmallVec<[usize; 4]> = SmallVec::from_elem(0, outer.len());
        for (i, &(n, s)) in index.iter_mut().zip(outer).rev() {
            *i = position % n.max(1);
            position /= n.max(1);
            offset += *i * s;
        }
        Cursor { data: self.data, outer, inner, index, at, offset, block: Vec::new(), rows: Vec::new() }
    }
}

/// A position in a source.
pub struct Cursor<'a, 's, T> {
    data: &'a [T],
    /// The dimensions, and the innermost, which most steps stay within.
    outer: &'s [(usize, usize)],
    inner: (usize, usize),
    /// The position along the outer ones, and along the innermost.
    index: SmallVec<[usize; 4]>,
    at: usize,
    offset: usize,
    /// Where elements are gathered, and a row that comes again is repeated; allocated when first needed.
    block: Vec<T>,
    rows: Vec<T>,
}

impl<T: Copy> Cursor<'_, '_, T> {
    /// How many elements can be had from here on without gathering.
    #[inline]
    fn run(&self) -> usize {
        match self.inner {
            (n, _) if self.times() > 1 => self.times() * n - self.at,
            (n, 0 | 1) => n - self.at,
            _ => 0,
        }
    }

    /// How often a copy has the row that the source is over and over; 1 where it is none, or the row is long.
    #[inline]
    fn times(&self) -> usize {
        match (self.outer, self.inner) {
            (&[(m, 0)], (n, 1)) if n > 0 => m.min(REPEATED / n),
            _ => 1,
        }
    }

    /// The next `len` elements, at most a [`run`](Cursor::run), of a row that comes again.
    #[inline]
    fn take_again(&mut self, len: usize) -> Arg<'_, T> {
        let (n, from) = (self.inner.0, self.at);
        let start = self.offset - from;
        if self.rows.is_empty() {
            self.rows = self.data[start..start + n].repeat(self.times());
        }
        self.at = (from + len) % n;
        self.offset = start + self.at;
        Arg::Slice(&self.rows[from..from + len])
    }

    /// Moves on by at most what is left of the innermost dimension.
    #[inline]
    fn advance(&mut self, len: usize) {
        let (n, s) = self.inner;
        self.at += len;
        self.offset = self.offset.wrapping_add(len.wrapping_mul(s));
        if self.at < n {
            return;
        }
        self.at = 0;
        self.offset = self.offset.wrapping_sub(n.wrapping_mul(s));
        for (i, &(n, s)) in self.index.iter_mut().zip(self.outer).rev() {
            *i += 1;
            self.offset = self.offset.wrapping_add(s);
            if *i < n {
                return;
            }
            *i = 0;
            self.offset = self.offset.wrapping_sub(n.wrapping_mul(s));
        }
    }

    /// The next `len` elements: as they lie where they are dense, else gathered.
    #[inline]
    pub fn take(&mut self, len: usize) -> Arg<'_, T> {
        let data = self.data;
        if self.run() >= len {
            if self.times() > 1 {
                return self.take_again(len);
            }
            let start = self.offset;
            self.advance(len);
            return if self.inner.1 == 0 { Arg::Value(data[start]) } else { Arg::Slice(&data[start..start + len]) };
        }
        self.block.clear();
        self.gather(len);
        Arg::Slice(&self.block)
    }

    fn gather(&mut self, mut len: usize) {
        let data = self.data;
        while len > 0 {
            let (n, s) = self.inner;
            let run = (n - self.at).min(len);
            match s {
                0 => self.block.resize(self.block.len() + run, data[self.offset]),
                1 => self.block.extend_from_slice(&data[self.offset..self.offset + run]),
                _ => self.block.extend(data[self.offset..].iter().step_by(s).take(run)),
            }
            self.advance(run);
            len -= run;
        }
    }
}

/// How many elements to take next, of `left`, where `run` can be had without gathering.
fn share(run: usize, left: usize) -> usize {
    if run >= SHORT || run >= left {
        run.min(left)
    } else {
        BLOCK.min(left)
    }
}

/// A kernel over one dense operand.
pub type F1<'f, A, O> = dyn Fn(&[A], &mut [O]) + Sync + 'f;
/// A kernel over two.
pub type F2<'f, A, B, O> = dyn Fn(Arg<A>, Arg<B>, &mut [O]) + Sync + 'f;
/// A kernel that writes over its operand.
pub type Over1<'f, T> = dyn Fn(&mut [T]) + Sync + 'f;
/// A kernel that writes over the first of two.
pub type Over2<'f, A, B> = dyn Fn(&mut [A], Arg<B>) + Sync + 'f;
/// A kernel over three.
pub type F3<'f, A, B, C, O> = dyn Fn(Arg<A>, Arg<B>, Arg<C>, &mut [O]) + Sync + 'f;

/// Applies a kernel to an operand, over the pool where there are at least two `grain`s of elements.
pub fn each1<A: Copy + Sync, O: Send + Copy>(a: &Source<A>, out: &mut [O], grain: usize, f: &F1<A, O>) {
    threads::for_chunks(out, 64, grain, |start, mut out| {
        let mut a = a.cursor(start);
        while !out.is_empty() {
            let (head, rest) = out.split_at_mut(share(a.run(), out.len()));
            match a.take(head.len()) {
                Arg::Slice(x) => f(x, head),
                Arg::Value(x) => {
                    f(&[x], &mut head[..1]);
                    fill(head[0], head);
                }
            }
            out = rest;
        }
    });
}

/// Applies a kernel to two operands.
pub fn each2<A, B, O>(a: &Source<A>, b: &Source<B>, out: &mut [O], grain: usize, f: &F2<A, B, O>)
where
    A: Copy + Sync,
    B: Copy + Sync,
    O: Send,
{
    threads::for_chunks(out, 64, grain, |start, mut out| {
        let (mut a, mut b) = (a.cursor(start), b.cursor(start));
        while !out.is_empty() {
            let (head, rest) = out.split_at_mut(share(a.run().min(b.run()), out.len()));
            f(a.take(head.len()), b.take(head.len()), head);
            out = rest;
        }
    });
}

/// Applies a kernel to elements and another operand that writes its results over the elements.
pub fn over2<A: Send, B: Copy + Sync>(a: &mut [A], b: &Source<B>, grain: usize, f: &Over2<A, B>) {
    threads::for_chunks(a, 64, grain, |start, mut a| {
        let mut b = b.cursor(start);
        while !a.is_empty() {
            let (head, rest) = a.split_at_mut(share(b.run(), a.len()));
            f(head, b.take(head.len()));
            a = rest;
        }
    });
}

/// Elements that a kernel reads from a copy where it cannot write over its operand; it stays in the first cache level.
const ASIDE: usize = 1024;

/// Hands over elements piece by piece: the number of those before it, a copy of it, and itself.
pub fn aside<T: Copy>(x: &mut [T], mut f: impl FnMut(usize, &[T], &mut [T])) {
    let Some(&first) = x.first() else { return };
    let mut copy = [first; ASIDE];
    for (i, piece) in x.chunks_mut(ASIDE).enumerate() {
        let old = &mut copy[..piece.len()];
        old.copy_from_slice(piece);
        f(i * ASIDE, old, piece);
    }
}

/// Applies a kernel to three operands.
pub fn each3<A, B, C, O>(a: &Source<A>, b: &Source<B>, c: &Source<C>, out: &mut [O], grain: usize, f: &F3<A, B, C, O>)
where
    A: Copy + Sync,
    B: Copy + Sync,
    C: Copy + Sync,
    O: Send,
{
    threads::for_chunks(out, 64, grain, |start, mut out| {
        let (mut a, mut b, mut c) = (a.cursor(start), b.cursor(start), c.cursor(start));
        while !out.is_empty() {
            let run = a.run().min(b.run()).min(c.run());
            let (head, rest) = out.split_at_mut(share(run, out.len()));
            f(a.take(head.len()), b.take(head.len()), c.take(head.len()), head);
            out = rest;
        }
    });
}

/// Rows of a transposition done together: as many elements of one cache line serve them.
const TILE: usize = 16;
/// Columns of these rows done together.
const WIDE: usize = 64;

/// Copies the elements of a source to a slice, in order; tile by tile where the source's rows are not dense.
pub fn copy_to<T: Copy + Send + Sync>(source: &Source<T>, out: &mut [T]) {
    let &(n, s) = source.dims.last().unwrap_or(&(1, 1));
    if s <= 1 || n < 4 {
        return each1(source, out, threads::GRAIN, &|x, out| out.copy_from_slice(x));
    }
    let rows = Source { data: source.data, dims: source.dims[..source.dims.len() - 1].into(), offset: source.offset };
    threads::for_chunks(out, n * TILE, threads::GRAIN / 4, |start, out| {
        let mut row = rows.cursor(start / n);
        for band in out.chunks_mut(n * TILE) {
            let mut starts = [0; TILE];
            for start in starts.iter_mut().take(band.len() / n) {
                *start = row.offset;
                row.advance(1);
            }
            let dense = band.len() == n * TILE && starts.iter().zip(starts[0]..).all(|(&start, next)| start == next);
            for column in (0..n).step_by(WIDE) {
                let end = (column + WIDE).min(n);
                if dense {
                    let lines = (column..end).map(|c| &source.data[starts[0] + c * s..][..TILE]);
                    transpose_band(lines, band, n, column);
                    continue;
                }
                for (out, start) in band.chunks_mut(n).zip(starts) {
                    let from = source.data[start + column * s..].iter().step_by(s);
                    out[column..end].iter_mut().zip(from).for_each(|(o, x)| *o = *x);
                }
            }
        }
    });
}

/// Up to `WIDE` lines of `TILE` elements become columns of `TILE` rows of `n` elements, from `column` on.
///
/// The lines are often a power of 2 apart, so that they share few places in the first cache level: each is read once, into a
/// block where they lie one behind another.
fn transpose_band<'a, T: Copy + 'a>(
    lines: impl ExactSizeIterator<Item = &'a [T]>,
    rows: &mut [T],
    n: usize,
    column: usize,
) {
    let width = lines.len().min(WIDE);
    let mut block = [[rows[0]; TILE]; WIDE];
    for (to, line) in block.iter_mut().zip(lines) {
        to.copy_from_slice(line);
    }
    for (r, row) in rows.chunks_exact_mut(n).enumerate() {
        for (o, line) in row[column..column + width].iter_mut().zip(&block) {
            *o = line[r % TILE];
        }
    }
}

/// Writes the elements of a source, in order, over those that `layout` shows of a storage.
pub fn write_to<T: Copy + Send + Sync>(source: &Source<T>, data: &mut [T], layout: &Layout) {
    let total = layout.numel();
    let dims = collapse(layout.shape.iter().copied().zip(layout.strides.iter().copied()));
    if let [] | [(_, 1)] = dims.as_slice() {
        return copy_to(source, &mut data[layout.offset..layout.offset + total]);
    }
    if total == 0 {
        return;
    }
    let target = Source::<T> { data: &[], dims, offset: layout.offset };
    let (mut to, mut from) = (target.cursor(0), source.cursor(0));
    let &(n, s) = target.dims.last().unwrap_or(&(1, 1));
    for _ in 0..total / n {
        let out = &mut data[to.offset..];
        match (from.take(n), s) {
            (Arg::Slice(x), 1) => out[..n].copy_from_slice(x),
            // Elements that lie in one place: the last one stays.
            (Arg::Slice(x), 0) => out[0] = x[n - 1],
            (Arg::Slice(x), _) => out.iter_mut().step_by(s).zip(x).for_each(|(o, x)| *o = *x),
            (Arg::Value(x), 0) => out[0] = x,
            (Arg::Value(x), 1) => out[..n].fill(x),
            (Arg::Value(x), _) => out.iter_mut().step_by(s).take(n).for_each(|o| *o = x),
        }
        to.advance(n);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(shape: &[usize], strides: &[usize], offset: usize) -> Layout {
        Layout { shape: shape.into(), strides: strides.into(), offset }
    }

    /// The elements by the definition of strides.
    fn naive(data: &[i32], l: &Layout) -> Vec<i32> {
        let at = |mut i: usize| {
            let mut offset = l.offset;
            for (&n, &s) in l.shape.iter().zip(&l.strides).rev() {
                offset += i % n * s;
                i /= n;
            }
            data[offset]
        };
        (0..l.numel()).map(at).collect()
    }

    fn layouts() -> Vec<Layout> {
        vec![
            layout(&[], &[], 3),
            layout(&[0, 4], &[4, 1], 0),
            layout(&[6, 7], &[7, 1], 5),
            layout(&[7, 6], &[1, 7], 0),
            layout(&[5, 3, 40], &[400, 80, 2], 1),
            layout(&[5, 3, 40], &[0, 40, 1], 1),
            layout(&[40, 3, 5], &[1, 40, 0], 1),
            layout(&[2, 700, 3], &[0, 0, 0], 9),
            layout(&[100, 200], &[1, 100], 7),
            layout(&[3, 70, 50], &[3500, 1, 70], 0),
            layout(&[20, 3, 5, 7], &[105, 1, 21, 3], 2),
            layout(&[1000, 2], &[2, 1], 0),
            layout(&[1000, 2], &[3, 1], 0),
            layout(&[40, 30], &[1, 5], 2),
            layout(&[3, 33, 129], &[0, 1, 64], 0),
            layout(&[90, 70], &[0, 1], 2),
            layout(&[3, 2100], &[0, 1], 1),
            layout(&[500, 9], &[1, 0], 4),
        ]
    }

    #[test]
    fn every_layout_is_walked_in_order() {
        let data: Vec<i32> = (0..40_000).map(|i| i * 7 % 1009).collect();
        for threads in [1, 2] {
            threads::set_num_threads(threads);
            for l in layouts() {
                let want = naive(&data, &l);
                let source = Source::new(&data, &l, &l.shape);
                let mut out = vec![0; want.len()];
                copy_to(&source, &mut out);
                assert_eq!(out, want, "{l:?}");
                out.fill(0);
                each1(&source, &mut out, 100, &|x, o| o.iter_mut().zip(x).for_each(|(o, x)| *o = *x));
                assert_eq!(out, want, "{l:?}");
                let other: Vec<i32> = (0..want.len() as i32).collect();
                let dense = Layout::contiguous(&l.shape);
                let counted = Source::new(&other, &dense, &l.shape);
                each2(&source, &counted, &mut out, 100, &|a, b, o| {
                    for (i, o) in o.iter_mut().enumerate() {
                        let get = |x: Arg<i32>| match x {
                            Arg::Slice(x) => x[i],
                            Arg::Value(x) => x,
                        };
                        *o = get(a) - get(b);
                    }
                });
                let want: Vec<i32> = want.iter().zip(&other).map(|(a, b)| a - b).collect();
                assert_eq!(out, want, "{l:?}");
                if !l.may_overlap() {
                    let mut target = vec![-1; data.len()];
                    write_to(&counted, &mut target, &l);
                    assert_eq!(naive(&target, &l), other, "{l:?}");
                    assert_eq!(target.iter().filter(|&&x| x != -1).count(), other.len());
                }
            }
        }
    }

    #[test]
    fn sources_broadcast() {
        let data = [1, 2, 3];
        let column = Source::new(&data, &layout(&[3, 1], &[1, 1], 0), &[2, 3, 2]);
        let mut out = [0; 12];
        copy_to(&column, &mut out);
        assert_eq!(out, [1, 1, 2, 2, 3, 3, 1, 1, 2, 2, 3, 3]);
    }
}
