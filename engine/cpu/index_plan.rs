//! Where advanced indexing reads and writes: the offsets of the indexed elements, worked out while they are walked.
//!
//! Depends on `index` for walks and ranges. Invariants: an index array's elements are read once each where they are used, and
//! checked then, so that one that another thread changes meanwhile leads nowhere else; nothing is allocated that grows with an
//! input.

use super::index::{changed, within, Walk};
use super::simd::ReadGuard;
use super::strided::collapse;
use super::CpuArray;
use crate::fallible::scratch;
use crate::shape::{numel, Axes, Layout};
use crate::{Error, Result};
use lucid_ir::backend::Array;
use lucid_ir::ops::index::index_position;
use smallvec::SmallVec;

/// Offsets of indexed elements that are worked out at once; they stay in the first cache level.
const BLOCK: usize = 256;
/// The same where rows before the indexed dimensions share them: worked out again for each row they cost more than its elements.
const SHARED: usize = 4096;

/// One index array of advanced indexing.
struct IndexArray<'a> {
    /// All elements of its buffer, and the layouts of the array's own among them: as it is, and broadcast with the others.
    data: &'a [i64],
    own: Layout,
    wide: Layout,
    dense: bool,
    axis: usize,
    /// Of the dimension that it indexes.
    size: usize,
    stride: usize,
    least: i64,
}

impl IndexArray<'_> {
    /// Adds the offsets that its elements from number `start` on lead to. True where one of them is out of range; it counts as 0.
    fn add_to(&self, start: usize, offsets: &mut [usize]) -> bool {
        let (n, least, stride) = (self.size as i64, self.least, self.stride);
        let mut bad = false;
        let mut add = |o: &mut usize, i: i64| {
            let outside = (i < least) | (i >= n);
            let place = if i < 0 { i.wrapping_add(n) } else { i };
            *o += if outside { 0 } else { place as usize * stride };
            bad |= outside;
        };
        if self.dense {
            let from = &self.data[self.wide.offset + start..][..offsets.len()];
            offsets.iter_mut().zip(from).for_each(|(o, &i)| add(o, i));
        } else {
            let places = Walk::new(&self.wide.shape, &self.wide.strides, start);
            offsets.iter_mut().zip(places).for_each(|(o, place)| add(o, self.data[self.wide.offset + place]));
        }
        bad
    }

    fn check(&self, op: &'static str) -> Result<()> {
        let (n, offset) = (self.own.numel(), self.own.offset);
        if n == 0 {
            return Ok(());
        }
        if self.own.is_contiguous() {
            return within(op, &self.data[offset..offset + n], self.axis, self.size, self.least);
        }
        Walk::new(&self.own.shape, &self.own.strides, 0)
            .take(n)
            .try_for_each(|place| within(op, &self.data[offset + place..][..1], self.axis, self.size, self.least))
    }
}

/// The index arrays of an op, to read.
pub(super) type IndexGuards<'a> = SmallVec<[ReadGuard<'a, i64>; 2]>;

/// Where advanced indexing reads or writes: an element of the indexed array is at the sum of an offset of the dimensions before
/// the indexed ones, one that the indices give, and one of the dimensions after. All three are walked; none is a table.
pub(super) struct Plan<'a> {
    op: &'static str,
    before: Layout,
    indices: SmallVec<[IndexArray<'a>; 2]>,
    /// How many positions the index arrays have together.
    positions: usize,
    /// The dimensions after but for the innermost, which has `len` elements, `step` apart.
    outer: (SmallVec<[usize; 4]>, SmallVec<[usize; 4]>),
    len: usize,
    step: usize,
    /// The number of elements of all dimensions after.
    pub(super) run: usize,
}

impl<'a> Plan<'a> {
    /// For an array of this layout, indexed along `axes`, where the indexed array has the shape `indexed`.
    pub(super) fn new(
        op: &'static str,
        x: &Layout,
        (axes, strict): (&[usize], bool),
        (arrays, guards): (&[&CpuArray], &'a IndexGuards<'_>),
        indexed: &[usize],
    ) -> Result<Plan<'a>> {
        let position = index_position(axes);
        let others: Axes = (0..x.ndim()).filter(|a| !axes.contains(a)).collect();
        let fits = axes.len() == arrays.len()
            && arrays.len() == guards.len()
            && axes.iter().all(|&a| a < x.ndim())
            && position <= others.len()
            && indexed.len() >= others.len();
        if !fits {
            let shapes: SmallVec<[&[usize]; 4]> = arrays.iter().map(|i| i.shape()).chain([indexed]).collect();
            return Err(Error::shape(op, "the indices do not belong to the result", &shapes));
        }
        let shape = &indexed[position..position + indexed.len() - others.len()];
        let mut indices = SmallVec::new();
        for ((&axis, array), data) in axes.iter().zip(arrays).zip(guards) {
            let (mut own, size) = (array.layout().clone(), x.shape[axis]);
            let wide = own.broadcast_to(shape);
            // An element that a dimension repeats is checked once.
            own.shape.iter_mut().zip(&own.strides).filter(|&(&mut n, &s)| n > 1 && s == 0).for_each(|(n, _)| *n = 1);
            let least = if strict { 0 } else { -(size as i64) };
            let (dense, stride) = (wide.is_contiguous(), x.strides[axis]);
            indices.push(IndexArray { data, own, wide, dense, axis, size, stride, least });
        }
        let part = |axes: &[usize], offset| {
            let (shape, strides) = axes.iter().map(|&a| (x.shape[a], x.strides[a])).unzip();
            Layout { shape, strides, offset }
        };
        let (before, after) = others.split_at(position);
        let run = after.iter().map(|&a| x.shape[a]).product();
        let mut outer = collapse(after.iter().map(|&a| (x.shape[a], x.strides[a])));
        let (len, step) = outer.pop().unwrap_or((1, 1));
        let outer = outer.into_iter().unzip();
        let plan = Plan { op, before: part(before, x.offset), indices, positions: numel(shape), outer, len, step, run };
        // Of nothing no index is read, and a wrong one is an error all the same.
        if numel(indexed) == 0 {
            plan.check()?;
        }
        Ok(plan)
    }

    /// An error where an index is out of range.
    pub(super) fn check(&self) -> Result<()> {
        self.indices.iter().try_for_each(|index| index.check(self.op))
    }

    /// Why [`Plan::runs`] found an index out of range.
    #[cold]
    pub(super) fn refused(&self) -> Box<Error> {
        self.check().err().unwrap_or_else(|| changed(self.op))
    }

    /// Calls `f(number of the first, base, offsets)` for `count` runs of the dimensions after, from that of number `first` on; run
    /// `i` of a call begins at `base + offsets[i]`. False, and ended, where an index is out of range.
    pub(super) fn runs(&self, first: usize, count: usize, mut f: impl FnMut(usize, usize, &[usize])) -> bool {
        let n = self.positions.max(1);
        let (row, mut column) = (first / n, first % n);
        let mut few = [0; BLOCK];
        let mut many;
        let table = match n > BLOCK && count > n {
            true => {
                many = scratch(0, n.min(SHARED));
                &mut many[..]
            }
            false => &mut few[..],
        };
        let most = table.len();
        let fill = |start: usize, table: &mut [usize]| {
            table.fill(0);
            // All of them, so that none of the offsets is wrong.
            !self.indices.iter().fold(false, |bad, index| bad | index.add_to(start, table))
        };
        // So few are worked out once for all rows.
        if n <= most && count > 0 && !fill(0, &mut table[..n]) {
            return false;
        }
        let mut done = 0;
        for base in Walk::new(&self.before.shape, &self.before.strides, row) {
            while column < n && done < count {
                let len = (n - column).min(most).min(count - done);
                if n <= most {
                    f(done, self.before.offset + base, &table[column..column + len]);
                } else if fill(column, &mut table[..len]) {
                    f(done, self.before.offset + base, &table[..len]);
                } else {
                    return false;
                }
                (column, done) = (column + len, done + len);
            }
            column = 0;
            if done == count {
                break;
            }
        }
        true
    }

    /// Calls `f(number of the first, offset)` for the rows of the innermost dimension of one run: `len` elements, `step` apart.
    #[inline]
    pub(super) fn rows(&self, mut f: impl FnMut(usize, usize)) {
        if self.outer.0.is_empty() {
            return f(0, 0);
        }
        for (i, at) in (0..self.run / self.len.max(1)).zip(Walk::new(&self.outer.0, &self.outer.1, 0)) {
            f(i * self.len, at);
        }
    }

    /// The innermost dimension: how many elements, and how far apart.
    pub(super) fn row(&self) -> (usize, usize) {
        (self.len, self.step)
    }
}
