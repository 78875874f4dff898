//! Walking over arrays of any layout in the row-major order of the result.
//!
//! Depends on `simd` and `shape`. A kernel sees dense slices or single values, or rows of either where an operand broadcasts
//! (`Arg::Rows`): what is dense is handed over in its own layout, all else is gathered block by block. Invariant: no kernel ever sees
//! elements with a stride.

use super::simd::{fill, threads, Arg, Rows};
use crate::shape::Layout;
use smallvec::SmallVec;

/// Elements gathered at once; small enough for the first cache level.
const BLOCK: usize = 512;
/// Dense runs shorter than this are gathered into blocks, to call kernels less often.
const SHORT: usize = 128;
/// Elements of a row that is broadcast which are adjacent in a copy, about as often as they fit, for the same reason; they
/// stay in the first cache level.
const REPEATED: usize = 1024;

/// Rows that a kernel is told of, where operands broadcast: shorter ones are gathered, and of longer ones each is worth a call.
const ROWS: std::ops::Range<usize> = 8..8192;

/// Dimensions as (size, stride), outermost first.
pub type Dims = SmallVec<[(usize, usize); 4]>;

/// Joins neighbouring dimensions that one stride can describe, and drops those of size 1.
pub fn collapse(dims: impl IntoIterator<Item = (usize, usize)>) -> Dims {
    let mut out = Dims::new();
    for (n, s) in dims {
        match out.last_mut() {
            _ if n == 1 => {}
            // Of tensors without elements, sizes may be greater together than a number can be.
            Some(last) if n.checked_mul(s) == Some(last.1) && last.0.checked_mul(n).is_some() => {
                *last = (last.0 * n, s)
            }
            _ => out.push((n, s)),
        }
    }
    out
}

/// An operand: where its elements are, seen under the shape of the result.
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

    /// The same elements; a short row that comes again and again is in `room` more than once.
    fn repeated<'b>(&self, room: &'b mut Vec<T>) -> Source<'b, T>
    where
        'a: 'b,
    {
        let (data, dims, offset) = (self.data, self.dims.clone(), self.offset);
        let &[(m, 0), (n, 1)] = dims.as_slice() else { return Source { data, dims, offset } };
        let times = (1..=REPEATED / n.max(1)).rev().find(|&times| m.is_multiple_of(times)).unwrap_or(1);
        if times < 2 || n * m < REPEATED {
            return Source { data, dims, offset };
        }
        *room = data[offset..offset + n].repeat(times);
        Source { data: room, dims: collapse([(m / times, 0), (n * times, 1)]), offset: 0 }
    }

    /// Elements along the innermost dimension, as far as one step leads.
    fn inner(&self) -> usize {
        self.dims.last().map_or(usize::MAX, |&(n, _)| n)
    }

    /// Rows of `n` elements: where they begin, and whether one is one value; none where they are neither that nor dense.
    fn rows(&self, n: usize) -> Option<(Source<'a, T>, bool)> {
        let (&(inner, s), outer) = self.dims.split_last().unwrap_or((&(n, 0), &[]));
        if s > 1 || !inner.is_multiple_of(n) {
            return None;
        }
        let dims = collapse(outer.iter().copied().chain([(inner / n, n * s)]));
        Some((Source { data: self.data, dims, offset: self.offset }, s == 0))
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
        Cursor { data: self.data, outer, inner, index, at, offset, block: Vec::new() }
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
    /// Where elements are gathered; allocated when first needed.
    block: Vec<T>,
}

impl<'a, T: Copy> Cursor<'a, '_, T> {
    /// Of a cursor over rows: the next `rows` rows of `n` elements, as many as are evenly apart at most.
    fn take_rows(&mut self, rows: usize, n: usize, one: bool) -> Arg<'a, T> {
        let rows_of = Rows { data: &self.data[self.offset..], n, pitch: self.inner.1, one };
        self.advance(rows);
        Arg::Rows(rows_of)
    }

    /// How many elements can be had from here on without gathering.
    #[inline]
    fn run(&self) -> usize {
        match self.inner {
            (n, 0 | 1) => n - self.at,
            _ => 0,
        }
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

    /// The next `len` elements: in their own layout where they are dense, else gathered.
    #[inline]
    pub fn take(&mut self, len: usize) -> Arg<'_, T> {
        let data = self.data;
        if self.run() >= len {
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
                0 => self.block.extend(std::iter::repeat_n(data[self.offset], run)),
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
    let mut room = Vec::new();
    let a = a.repeated(&mut room);
    threads::for_chunks(out, 64, grain, |start, mut out| {
        let mut a = a.cursor(start);
        while !out.is_empty() {
            let (head, rest) = out.split_at_mut(share(a.run(), out.len()));
            match a.take(head.len()) {
                Arg::Slice(x) => f(x, head),
                x => {
                    f(&[x.at(0)], &mut head[..1]);
                    fill(head[0], head);
                }
            }
            out = rest;
        }
    });
}

/// Is a kernel to be told of rows of `n` elements, in pieces of at least `grain` for a thread?
fn worth_telling(n: usize, total: usize, grain: usize) -> bool {
    ROWS.contains(&n) && n < total && n <= grain
}

/// Applies a kernel to two operands.
pub fn each2<A, B, O>(a: &Source<A>, b: &Source<B>, out: &mut [O], grain: usize, f: &F2<A, B, O>)
where
    A: Copy + Sync,
    B: Copy + Sync,
    O: Send,
{
    let mut room = (Vec::new(), Vec::new());
    let (a, b) = (a.repeated(&mut room.0), b.repeated(&mut room.1));
    let n = a.inner().min(b.inner());
    if worth_telling(n, out.len(), grain)
        && let (Some((a, one_a)), Some((b, one_b))) = (a.rows(n), b.rows(n))
    {
        return threads::for_chunks(out, n, grain, |start, mut out| {
            let (mut a, mut b) = (a.cursor(start / n), b.cursor(start / n));
            while !out.is_empty() {
                let rows = (out.len() / n).min(a.inner.0 - a.at).min(b.inner.0 - b.at);
                let (head, rest) = out.split_at_mut(rows * n);
                f(a.take_rows(rows, n, one_a), b.take_rows(rows, n, one_b), head);
                out = rest;
            }
        });
    }
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
    let mut room = Vec::new();
    let b = b.repeated(&mut room);
    let n = b.inner();
    if worth_telling(n, a.len(), grain)
        && let Some((b, one)) = b.rows(n)
    {
        return threads::for_chunks(a, n, grain, |start, mut a| {
            let mut b = b.cursor(start / n);
            while !a.is_empty() {
                let (head, rest) = a.split_at_mut((a.len() / n).min(b.inner.0 - b.at) * n);
                f(head, b.take_rows(head.len() / n, n, one));
                a = rest;
            }
        });
    }
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
    let mut room = (Vec::new(), Vec::new(), Vec::new());
    let (a, b, c) = (a.repeated(&mut room.0), b.repeated(&mut room.1), c.repeated(&mut room.2));
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
    if s == 0 && (2..=FEW).contains(&n) && source.dims.len() > 1 {
        return repeat_to(source, n, out);
    }
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

/// Repetitions of an element up to which a run for each would cost more than the elements.
const FEW: usize = 16;

/// Copies a source whose innermost dimension repeats each element `n` times.
fn repeat_to<T: Copy + Send + Sync>(source: &Source<T>, n: usize, out: &mut [T]) {
    fn repeat<T: Copy, const N: usize>(x: &[T], out: &mut [T]) {
        out.chunks_exact_mut(N).zip(x).for_each(|(out, &x)| out.copy_from_slice(&[x; N]));
    }
    let each = Source { data: source.data, dims: source.dims[..source.dims.len() - 1].into(), offset: source.offset };
    threads::for_chunks(out, n, threads::GRAIN, |start, out| {
        let mut from = each.cursor(start / n);
        for out in out.chunks_mut(n * BLOCK) {
            from.block.clear();
            from.gather(out.len() / n);
            let x = from.block.as_slice();
            match n {
                2 => repeat::<T, 2>(x, out),
                3 => repeat::<T, 3>(x, out),
                4 => repeat::<T, 4>(x, out),
                8 => repeat::<T, 8>(x, out),
                _ => out.chunks_exact_mut(n).zip(x).for_each(|(out, &x)| out.fill(x)),
            }
        }
    });
}

/// Up to `WIDE` lines of `TILE` elements become columns of `TILE` rows of `n` elements, from `column` on.
///
/// The lines are often a power of 2 apart, so that they share few places in the first cache level: each is read once, into a
/// block where they are one behind another.
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
            // Elements that are in one place: the last one stays.
            (x, 0) => out[0] = x.at(n - 1),
            (Arg::Slice(x), 1) => out[..n].copy_from_slice(x),
            (Arg::Slice(x), _) => out.iter_mut().step_by(s).zip(x).for_each(|(o, x)| *o = *x),
            (x, 1) => out[..n].fill(x.at(0)),
            (x, _) => out.iter_mut().step_by(s).take(n).for_each(|o| *o = x.at(0)),
        }
        to.advance(n);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::many;

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
            layout(&[700, 2], &[3, 0], 4),
            layout(&[3, 300, 4], &[1000, 1, 0], 1),
            layout(&[5, 3, 60, 3], &[400, 0, 2, 0], 0),
        ]
    }

    #[test]
    fn every_layout_is_walked_in_order() {
        let data: Vec<i32> = (0..40_000).map(|i| i * 7 % 1009).collect();
        for threads in [1, 2] {
            threads::set_num_threads(threads);
            for l in layouts().into_iter().filter(|l| l.numel() <= many(usize::MAX, 200)) {
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
                        *o = a.at(i) - b.at(i);
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
