//! Gathering, joining and flipping: elements are moved; what is written at indices is in `scatter`.
//!
//! Depends on `strided` and `simd`. Index elements are int64, negative ones only in advanced indexing. Invariant: all of them
//! are checked before what they lead to is read or written, and what is written does not depend on the number of threads.
//! Beside the result nothing is allocated that grows with an input.

use super::index_plan::{IndexGuards, Plan};
use super::scatter::{self, put};
use super::simd::{run_light, threads, with_word, Task, Word};
use super::strided::{copy_to, write_to};
use super::CpuArray;
use crate::dtype::Element;
use crate::shape::{numel, Layout};
use crate::{with_computed_dtype, DType, Error, Result};
use lucid_ir::backend::Array;
use lucid_ir::ops::index::{IndexOp, ScatterMode};
use lucid_ir::Meta;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Elements moved one by one below which one thread does it.
pub(super) const GRAIN: usize = threads::GRAIN / 2;

/// The kernels of the `index` family.
pub fn index(op: &IndexOp, inputs: &[&CpuArray], out: &Meta) -> Result<CpuArray> {
    let x = inputs[0];
    match op {
        IndexOp::Gather { axis } => {
            let at = inputs[1].contiguous()?;
            let guard = at.read::<i64>();
            let at = at.slice(&guard);
            with_word!(out.dtype, W => gather::<W>(x, *axis, at, &out.shape))
        }
        IndexOp::Scatter { .. } | IndexOp::Reduce { .. } | IndexOp::IndexPut { .. } => scatter::scattered(op, inputs),
        IndexOp::Index { axes, strict } => {
            let guards: IndexGuards = inputs[1..].iter().map(|i| i.read::<i64>()).collect();
            let plan = Plan::new("index", x.layout(), (axes, *strict), (&inputs[1..], &guards), &out.shape)?;
            with_word!(out.dtype, W => read_plan::<W>(x, &plan, &out.shape))
        }
        IndexOp::SliceScatter { dims, .. } => {
            let part = Layout::contiguous(&out.shape).sliced(dims);
            if part.shape.as_slice() != inputs[1].shape() {
                return Err(mismatch("slice_scatter", inputs));
            }
            with_word!(out.dtype, W => slice_scatter::<W>(x, inputs[1], &part))
        }
        IndexOp::StridedAdd { layout, shape } => {
            with_computed_dtype!(out.dtype, T => strided_add::<T>(x, layout, shape), dtype => Err(stored_only(op.name(), dtype)))
        }
        IndexOp::Concat { axis } => with_word!(out.dtype, W => concat::<W>(inputs, *axis, &out.shape)),
        IndexOp::Flip { axes } => with_word!(out.dtype, W => flip::<W>(x, axes)),
    }
}

/// The rows of a table at indices.
pub(super) fn rows(x: &CpuArray, at: &CpuArray, out: &Meta) -> Result<CpuArray> {
    index(&IndexOp::Index { axes: smallvec::smallvec![0], strict: true }, &[x, at], out)
}

/// Why a kernel takes no elements that are stored only: dispatch gives it what they are moved as or computed in.
#[cold]
pub(super) fn stored_only(op: &'static str, dtype: DType) -> Box<Error> {
    Error::dtype(op, format!("not implemented for {dtype}"), &[dtype])
}

#[cold]
fn mismatch(op: &'static str, inputs: &[&CpuArray]) -> Box<Error> {
    let shapes: Vec<_> = inputs.iter().map(|x| x.shape()).collect();
    Error::shape(op, "the shapes do not belong together", &shapes)
}

/// Why an op failed whose indices were all in range when it began: somebody else writes to their memory.
#[cold]
pub(super) fn changed(op: &'static str) -> Box<Error> {
    let why = "another thread changed the index tensor while the op ran; clone() it first, or wait for that thread";
    Error::runtime(op, why)
}

/// Is any index below the first bound, or not below the second?
struct Outside<'a>(&'a [i64], i64, i64);
impl Task for Outside<'_> {
    type Out = bool;
    #[inline(always)]
    fn run<const F: bool>(self) -> bool {
        let Outside(index, least, n) = self;
        // Without a way out of the loop, so that it runs on vectors.
        let mut any = false;
        for &i in index {
            any |= (i < least) | (i >= n);
        }
        any
    }
}

/// An error where an index is below `least`, or not below a dimension's size.
pub(super) fn within(op: &'static str, index: &[i64], axis: usize, size: usize, least: i64) -> Result<()> {
    let n = size as i64;
    if run_light(Outside(index, least, n)) {
        let bad = index.iter().find(|&&i| i < least || i >= n).copied().unwrap_or_default();
        return Err(Error::index(op, format!("index {bad} is out of bounds for dimension {axis} with size {size}")));
    }
    Ok(())
}

/// The offsets of a layout's elements in row-major order, over and over. Steps may wrap, to go backwards.
pub(super) struct Walk<'a> {
    shape: &'a [usize],
    strides: &'a [usize],
    index: SmallVec<[usize; 4]>,
    offset: usize,
}

impl<'a> Walk<'a> {
    /// From the element of that number on.
    pub(super) fn new(shape: &'a [usize], strides: &'a [usize], mut position: usize) -> Walk<'a> {
        let mut index: SmallVec<[usize; 4]> = SmallVec::from_elem(0, shape.len());
        let mut offset = 0usize;
        for ((i, &n), &s) in index.iter_mut().zip(shape).zip(strides).rev() {
            *i = position % n.max(1);
            position /= n.max(1);
            offset = offset.wrapping_add(i.wrapping_mul(s));
        }
        Walk { shape, strides, index, offset }
    }
}

impl Iterator for Walk<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let offset = self.offset;
        for ((i, &n), &s) in self.index.iter_mut().zip(self.shape).zip(self.strides).rev() {
            *i += 1;
            self.offset = self.offset.wrapping_add(s);
            if *i < n {
                break;
            }
            *i = 0;
            self.offset = self.offset.wrapping_sub(n.wrapping_mul(s));
        }
        Some(offset)
    }
}

fn gather<W: Word>(x: &CpuArray, axis: usize, at: &[i64], shape: &[usize]) -> Result<CpuArray> {
    let Layout { strides, offset, .. } = x.layout();
    let (Some((&len, outer)), true) = (shape.split_last(), shape.len() == strides.len()) else {
        return Err(Error::shape("gather", "index and input must have as many dimensions", &[x.shape(), shape]));
    };
    let (along, size) = (strides[axis], x.shape()[axis]);
    let mut strides = strides.clone();
    strides[axis] = 0;
    let step = strides[outer.len()];
    let guard = x.read_words::<W>();
    let data: &[W] = &guard;
    CpuArray::build_words(shape, x.dtype(), |out| {
        let bad = AtomicBool::new(false);
        threads::for_chunks(out, len, GRAIN, |start, out| {
            let at = &at[start..][..out.len()];
            let bases = Walk::new(outer, &strides, start / len.max(1));
            let mut inside = true;
            for ((row, at), base) in out.chunks_mut(len.max(1)).zip(at.chunks(len.max(1))).zip(bases) {
                let base = base + offset;
                // Each index is read once: what was checked is what is used, whoever else writes to it.
                if step == 0 && along == 1 {
                    let line = data.get(base..base + size).unwrap_or_default();
                    for (o, &i) in row.iter_mut().zip(at) {
                        match line.get(i as usize) {
                            Some(&x) => *o = x,
                            None => inside = false,
                        }
                    }
                    continue;
                }
                for (j, (o, &i)) in row.iter_mut().zip(at).enumerate() {
                    match (i as usize) < size {
                        true => *o = data[base + j * step + i as usize * along],
                        false => inside = false,
                    }
                }
            }
            if !inside {
                bad.store(true, Relaxed);
            }
        });
        match bad.into_inner() {
            true => Err(within("gather", at, axis, size, 0).err().unwrap_or_else(|| changed("gather"))),
            false => Ok(()),
        }
    })
}

fn read_plan<W: Word>(x: &CpuArray, plan: &Plan, shape: &[usize]) -> Result<CpuArray> {
    let guard = x.read_words::<W>();
    let data: &[W] = &guard;
    let n = plan.run.max(1);
    let (len, step) = plan.row();
    CpuArray::build_words(shape, x.dtype(), |out: &mut [W]| {
        let bad = AtomicBool::new(false);
        threads::for_chunks(out, n, GRAIN, |first, out| {
            let fine = plan.runs(first / n, out.len() / n, |done, base, at| {
                let out = &mut out[done * n..(done + at.len()) * n];
                if n == 1 {
                    return out.iter_mut().zip(at).for_each(|(o, at)| *o = data[base + at]);
                }
                for (out, at) in out.chunks_exact_mut(n).zip(at) {
                    plan.rows(|start, row| {
                        let (row, out) = (base + at + row, &mut out[start..start + len]);
                        match step {
                            1 => out.copy_from_slice(&data[row..row + len]),
                            _ => out.iter_mut().enumerate().for_each(|(j, o)| *o = data[row + j * step]),
                        }
                    });
                }
            });
            if !fine {
                bad.store(true, Relaxed);
            }
        });
        if bad.into_inner() {
            Err(plan.refused())
        } else {
            Ok(())
        }
    })
}

fn slice_scatter<W: Word>(x: &CpuArray, src: &CpuArray, part: &Layout) -> Result<CpuArray> {
    let (guard, src_guard) = (x.read_words::<W>(), src.read_words::<W>());
    let rows = part.strides.last() == Some(&1) && src.layout.is_contiguous() && part.shape.len() > 1;
    // Padding: one number around what is inside.
    if rows && !part.shape.contains(&0) && x.layout.strides.iter().all(|&stride| stride == 0) {
        let (around, src) = (guard[x.layout.offset], src.slice(&src_guard));
        return CpuArray::build_words(x.shape(), x.dtype(), |out: &mut [W]| {
            pad_rows(src, around, part, out);
            Ok(())
        });
    }
    CpuArray::build_words(x.shape(), x.dtype(), |out: &mut [W]| {
        copy_to(&x.source(&guard, x.shape()), out);
        write_to(&src.source(&src_guard, src.shape()), out, part);
        Ok(())
    })
}

/// Writes the rows of `src` to their places in `out`, which grow from one to the next, and a number around them.
fn pad_rows<W: Word>(src: &[W], around: W, part: &Layout, out: &mut [W]) {
    let (row, ndim) = (part.shape[part.ndim() - 1], part.ndim());
    let (block, step) = (part.strides[0], numel(&part.shape[1..]));
    let (first, last) = (part.offset / block, part.offset / block + part.shape[0]);
    threads::for_chunks(out, block, threads::GRAIN / 2, |start, out| {
        for (i, out) in out.chunks_mut(block).enumerate() {
            let i = start / block + i;
            if !(first..last).contains(&i) {
                out.fill(around);
                continue;
            }
            let places = Walk::new(&part.shape[1..ndim - 1], &part.strides[1..ndim - 1], 0);
            let places = places.map(|at| part.offset % block + at);
            let mut end = 0;
            for (x, at) in src[(i - first) * step..][..step].chunks_exact(row).zip(places) {
                out[end..at].fill(around);
                out[at..at + row].copy_from_slice(x);
                end = at + row;
            }
            out[end..].fill(around);
        }
    });
}

fn strided_add<T: Element + scatter::ScatterReduce>(
    x: &CpuArray,
    layout: &Layout,
    shape: &[usize],
) -> Result<CpuArray> {
    // A view of nothing may start beyond its storage.
    let span = if layout.numel() == 0 { 0 } else { layout.span() };
    if layout.numel() != x.numel() || span > numel(shape) {
        let why = format!("a layout that spans {} elements does not fit", layout.span());
        return Err(Error::shape("strided_scatter_add", why, &[x.shape(), shape]));
    }
    let x = x.contiguous()?;
    let guard = x.read::<T>();
    let values = x.slice(&guard);
    CpuArray::build(shape, |out: &mut [T]| {
        out.fill(T::default());
        let places = Walk::new(&layout.shape, &layout.strides, 0);
        values.iter().zip(places).for_each(|(&x, at)| put(&mut out[layout.offset + at], x, ScatterMode::Add));
        Ok(())
    })
}

/// Elements of a row up to which a call for each part of it would take longer than the copy.
const SHORT_ROW: usize = 16;

/// Rows of `row` elements, from number `first` on, made of rows of the parts.
fn interleave<W: Word>(parts: &[(&[W], usize)], row: usize, first: usize, out: &mut [W]) {
    if let [(a, 1), (b, 1)] = parts {
        let (pairs, _) = out.as_chunks_mut::<2>();
        for ((o, &a), &b) in pairs.iter_mut().zip(&a[first..]).zip(&b[first..]) {
            *o = [a, b];
        }
        return;
    }
    let mut from = 0;
    for &(x, n) in parts {
        let x = &x[first * n..];
        match n {
            0 => {}
            1 => out.iter_mut().skip(from).step_by(row).zip(x).for_each(|(o, &x)| *o = x),
            _ => {
                for (out, x) in out.chunks_exact_mut(row).zip(x.chunks_exact(n)) {
                    out[from..].iter_mut().zip(x).for_each(|(o, &x)| *o = x);
                }
            }
        }
        from += n;
    }
}

/// Elements of a part that are copied one by one.
const BORDER: usize = 4;

fn concat<W: Word>(inputs: &[&CpuArray], axis: usize, shape: &[usize]) -> Result<CpuArray> {
    let row = numel(&shape[axis..]);
    let total = inputs.iter().fold(0, |sum: usize, x| sum.saturating_add(x.numel()));
    if total != numel(shape) {
        return Err(mismatch("cat", inputs));
    }
    if numel(&shape[..axis]) == 1 {
        return CpuArray::build_words(shape, inputs[0].dtype(), |mut out: &mut [W]| {
            for x in inputs {
                let (head, rest) = out.split_at_mut(x.numel());
                copy_to(&x.source(&x.read_words::<W>(), x.shape()), head);
                out = rest;
            }
            Ok(())
        });
    }
    let dense: Vec<CpuArray> = inputs.iter().map(|x| x.contiguous()).collect::<Result<_>>()?;
    let guards: Vec<_> = dense.iter().map(|x| x.read_words::<W>()).collect();
    let parts: Vec<(&[W], usize)> =
        dense.iter().zip(&guards).map(|(x, guard)| (x.slice(guard), numel(&x.shape()[axis..]))).collect();
    CpuArray::build_words(shape, inputs[0].dtype(), |out| {
        threads::for_chunks(out, row, threads::GRAIN, |start, out| {
            if row <= SHORT_ROW {
                return interleave(&parts, row, start / row.max(1), out);
            }
            for (i, mut out) in out.chunks_mut(row.max(1)).enumerate() {
                let i = start / row.max(1) + i;
                for &(x, n) in &parts {
                    let (head, rest) = out.split_at_mut(n);
                    let part = &x[i * n..(i + 1) * n];
                    match n {
                        // A border's elements, for which a call of `memcpy` takes longer than they do.
                        ..=BORDER => head.iter_mut().zip(part).for_each(|(o, &x)| *o = x),
                        _ => head.copy_from_slice(part),
                    }
                    out = rest;
                }
            }
        });
        Ok(())
    })
}

fn flip<W: Word>(x: &CpuArray, axes: &[usize]) -> Result<CpuArray> {
    let Layout { shape, strides, offset } = x.layout();
    if x.numel() == 0 || shape.is_empty() {
        return super::copy::copy(x);
    }
    let (mut strides, mut offset) = (strides.clone(), *offset);
    for &axis in axes {
        offset += (shape[axis] - 1) * strides[axis];
        strides[axis] = strides[axis].wrapping_neg();
    }
    let last = shape.len() - 1;
    let (len, step) = (shape[last], strides[last]);
    let guard = x.read_words::<W>();
    let data: &[W] = &guard;
    CpuArray::build_words(shape, x.dtype(), |out| {
        threads::for_chunks(out, len, GRAIN, |start, out| {
            let bases = Walk::new(&shape[..last], &strides, start / len);
            for (row, base) in out.chunks_mut(len).zip(bases) {
                let base = offset.wrapping_add(base);
                match step {
                    1 => row.copy_from_slice(&data[base..base + len]),
                    usize::MAX => {
                        let from = data[base + 1 - len..=base].iter().rev();
                        row.iter_mut().zip(from).for_each(|(o, x)| *o = *x);
                    }
                    _ => {
                        let at = |j: usize| base.wrapping_add(j.wrapping_mul(step));
                        row.iter_mut().enumerate().for_each(|(j, o)| *o = data[at(j)]);
                    }
                }
            }
        });
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::{Axes, SliceDim};
    use crate::tests::{array, layouts, many, show};
    use half::bf16;

    fn go<T: Element>(op: IndexOp, inputs: &[&CpuArray], shape: &[usize]) -> Vec<T> {
        show(&index(&op, inputs, &Meta::new(shape, T::DTYPE)).unwrap())
    }

    fn six() -> Vec<CpuArray> {
        layouts(&[2, 3], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0])
    }

    #[test]
    fn gather_and_scatter_along_both_axes() {
        for x in six() {
            for i in layouts(&[2, 2], &[2i64, 0, 2, 1]) {
                assert_eq!(go::<f32>(IndexOp::Gather { axis: 1 }, &[&x, &i], &[2, 2]), [3.0, 1.0, 6.0, 5.0]);
                let set = IndexOp::Scatter { axis: 1, mode: ScatterMode::Set };
                for src in layouts(&[2, 2], &[10f32, 20.0, 30.0, 40.0]) {
                    assert_eq!(go::<f32>(set.clone(), &[&x, &i, &src], &[2, 3]), [20.0, 2.0, 10.0, 4.0, 40.0, 30.0]);
                }
            }
            let i = array(&[1, 3], &[1i64, 0, 1]);
            assert_eq!(go::<f32>(IndexOp::Gather { axis: 0 }, &[&x, &i], &[1, 3]), [4.0, 2.0, 6.0]);
            let i = array(&[2, 2], &[1i64, 0, 1, 0]);
            let src = array(&[1, 1], &[100f32]);
            let src = src.with_layout(src.layout().broadcast_to(&[2, 2]));
            let add = IndexOp::Scatter { axis: 0, mode: ScatterMode::Add };
            assert_eq!(go::<f32>(add, &[&x, &i, &src], &[2, 3]), [1.0, 202.0, 3.0, 204.0, 5.0, 6.0]);
        }
    }

    #[test]
    fn scatter_over_many_rows() {
        threads::set_num_threads(3);
        let (rows, n) = (700, 100);
        let at: Vec<i64> = (0..rows * n).map(|i| ((i % n * 7 + i / n) % n) as i64).collect();
        let src: Vec<i32> = (0..(rows * n) as i32).collect();
        let zero = array(&[rows + 1, n], &vec![0i32; (rows + 1) * n]);
        let (at, src) = (array(&[rows, n], &at), array(&[rows, n], &src));
        let scatter = IndexOp::Scatter { axis: 1, mode: ScatterMode::Add };
        let y = index(&scatter, &[&zero, &at, &src], &Meta::new(&[rows + 1, n], DType::I32)).unwrap();
        let back = go::<i32>(IndexOp::Gather { axis: 1 }, &[&y, &at], &[rows, n]);
        assert_eq!(back, show::<i32>(&src));
    }

    #[test]
    fn out_of_range_is_an_error() {
        let (x, i) = (array(&[3], &[0u8; 3]), array(&[1], &[5i64]));
        let why = index(&IndexOp::Gather { axis: 0 }, &[&x, &i], &Meta::new(&[1], DType::U8)).unwrap_err();
        assert!(why.to_string().contains("index 5 is out of bounds for dimension 0 with size 3"), "{why}");
        // Far behind, where another thread meets it.
        threads::set_num_threads(2);
        let mut at = vec![1i64; 3 * GRAIN];
        at[3 * GRAIN - 1] = -1;
        let (long, n) = (array(&[3 * GRAIN], &at), 3 * GRAIN);
        let why = index(&IndexOp::Gather { axis: 0 }, &[&x, &long], &Meta::new(&[n], DType::U8)).unwrap_err();
        assert!(why.to_string().contains("index -1 is out of bounds"), "{why}");
        let low = array(&[1], &[-4i64]);
        let put = IndexOp::IndexPut { axes: Axes::from_slice(&[0]), accumulate: true, strict: false };
        let value = array(&[1], &[1u8]);
        assert!(index(&put, &[&x, &value, &low], &Meta::new(&[3], DType::U8)).is_err());
        let none = array::<u8>(&[0], &[]);
        assert!(index(&IndexOp::Gather { axis: 0 }, &[&none, &i], &Meta::new(&[1], DType::U8)).is_err());
    }

    #[test]
    fn advanced_indexing() {
        let cube: Vec<i64> = (0..24).collect();
        for x in layouts(&[2, 3, 4], &cube) {
            let rows = array(&[2], &[1i64, -1]);
            let at = |axes: &[usize]| IndexOp::Index { axes: Axes::from_slice(axes), strict: false };
            let y = go::<i64>(at(&[1]), &[&x, &rows], &[2, 2, 4]);
            assert_eq!(y, [4, 5, 6, 7, 8, 9, 10, 11, 16, 17, 18, 19, 20, 21, 22, 23]);
            let columns = array(&[2, 1], &[0i64, 3]);
            // Neighbouring axes: in place. Index (2, 1) with (2) is (2, 2).
            let y = go::<i64>(at(&[1, 2]), &[&x, &rows, &columns], &[2, 2, 2]);
            assert_eq!(y, [4, 8, 7, 11, 16, 20, 19, 23]);
            // Apart: in front.
            let y = go::<i64>(at(&[0, 2]), &[&x, &rows, &columns], &[2, 2, 3]);
            assert_eq!(y, [12, 16, 20, 12, 16, 20, 15, 19, 23, 15, 19, 23]);
            let all = go::<i64>(at(&[0, 1, 2]), &[&x, &rows, &rows, &array(&[], &[2i64])], &[2]);
            assert_eq!(all, [18, 22]);
            let empty = array::<i64>(&[0], &[]);
            assert!(go::<i64>(at(&[0]), &[&x, &empty], &[0, 3, 4]).is_empty());
        }
    }

    #[test]
    fn writing_at_indices() {
        let put =
            |axes: &[usize], accumulate| IndexOp::IndexPut { axes: Axes::from_slice(axes), accumulate, strict: false };
        for x in six() {
            let i = array(&[3], &[0i64, -3, 2]);
            let values = array(&[1, 3], &[1f32, 10.0, 100.0]);
            let values = values.with_layout(values.layout().broadcast_to(&[2, 3]));
            let y = go::<f32>(put(&[1], true), &[&x, &values, &i], &[2, 3]);
            assert_eq!(y, [12.0, 2.0, 103.0, 15.0, 5.0, 106.0]);
            let y = go::<f32>(put(&[0], false), &[&x, &values, &array(&[2], &[1i64, 1])], &[2, 3]);
            assert_eq!(y, [1.0, 2.0, 3.0, 1.0, 10.0, 100.0]);
        }
        let x = array(&[2], &[bf16::ONE, bf16::ONE]);
        let y = go::<bf16>(put(&[0], true), &[&x, &x, &array(&[2], &[1i64, 1])], &[2]);
        assert_eq!(y, [bf16::ONE, bf16::from_f32(3.0)]);
    }

    #[test]
    fn many_indices_of_many_rows() {
        // Fewer than one table of offsets holds, as many as rows share, and more.
        for n in [many(200, 20), many(256, 30), many(300, 270), many(5000, 280)] {
            let (rows, columns) = (3, 7);
            let data: Vec<f32> = (0..rows * columns).map(|i| i as f32).collect();
            let places: Vec<i64> = (0..n).map(|i| ((i * i + i) % 14) as i64 - 7).collect();
            let values: Vec<f32> = (0..rows * n).map(|i| (i % 5) as f32).collect();
            let of = |i: usize| places[i].rem_euclid(7) as usize;
            let mut sums = data.clone();
            (0..rows * n).for_each(|i| sums[i / n * columns + of(i % n)] += values[i]);
            let read: Vec<f32> = (0..rows * n).map(|i| data[i / n * columns + of(i % n)]).collect();
            let axes = Axes::from_slice(&[1]);
            let put = IndexOp::IndexPut { axes: axes.clone(), accumulate: true, strict: false };
            let (at, values) = (array(&[n], &places), array(&[rows, n], &values));
            for x in layouts(&[rows, columns], &data) {
                let op = IndexOp::Index { axes: axes.clone(), strict: false };
                assert_eq!(go::<f32>(op, &[&x, &at], &[rows, n]), read);
                assert_eq!(go::<f32>(put.clone(), &[&x, &values, &at], &[rows, columns]), sums);
            }
            let mut wrong = places.clone();
            wrong[n - 1] = 7;
            let x = array(&[rows, columns], &data);
            let op = IndexOp::Index { axes, strict: false };
            assert!(index(&op, &[&x, &array(&[n], &wrong)], &Meta::new(&[rows, n], DType::F32)).is_err());
        }
    }

    #[test]
    fn slices_joins_and_reversals() {
        for x in six() {
            let dims = [SliceDim { axis: 1, start: 0, step: 2, len: 2 }].into_iter().collect();
            let src = array(&[2, 2], &[7f32, 8.0, 9.0, 10.0]);
            let y = go::<f32>(IndexOp::SliceScatter { dims, pads: false }, &[&x, &src], &[2, 3]);
            assert_eq!(y, [7.0, 2.0, 8.0, 9.0, 5.0, 10.0]);
            let y = go::<f32>(IndexOp::Concat { axis: 1 }, &[&x, &src], &[2, 5]);
            assert_eq!(y, [1.0, 2.0, 3.0, 7.0, 8.0, 4.0, 5.0, 6.0, 9.0, 10.0]);
            let none = array::<f32>(&[0, 3], &[]);
            let y = go::<f32>(IndexOp::Concat { axis: 0 }, &[&x, &none, &x], &[4, 3]);
            assert_eq!(y, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
            let flip = |axes: &[usize]| IndexOp::Flip { axes: Axes::from_slice(axes) };
            assert_eq!(go::<f32>(flip(&[0]), &[&x], &[2, 3]), [4.0, 5.0, 6.0, 1.0, 2.0, 3.0]);
            assert_eq!(go::<f32>(flip(&[1]), &[&x], &[2, 3]), [3.0, 2.0, 1.0, 6.0, 5.0, 4.0]);
            assert_eq!(go::<f32>(flip(&[0, 1]), &[&x], &[2, 3]), [6.0, 5.0, 4.0, 3.0, 2.0, 1.0]);
        }
        let bools = array(&[2], &[true, false]);
        assert_eq!(go::<bool>(IndexOp::Flip { axes: Axes::from_slice(&[0]) }, &[&bools], &[2]), [false, true]);
    }

    #[test]
    fn windows_add_where_they_overlap() {
        let layout = Box::new(Layout { shape: [2, 3][..].into(), strides: [1, 1][..].into(), offset: 1 });
        let op = IndexOp::StridedAdd { layout: layout.clone(), shape: [5][..].into() };
        for x in six() {
            assert_eq!(go::<f32>(op.clone(), &[&x], &[5]), [0.0, 1.0, 6.0, 8.0, 6.0]);
        }
        let short = IndexOp::StridedAdd { layout, shape: [4][..].into() };
        assert!(index(&short, &[&six()[0]], &Meta::new(&[4], DType::F32)).is_err());
    }
}
