//! Batching rules of views, of gathering and scattering, and of joining.

use super::batch_dim::{batched, front_to, to_front};
use super::rules::each_sample;
use super::{Batch, Input};
use crate::dispatch::{apply1, view as plain_view, Meta, Prim};
use crate::ops::create::arange_of;
use crate::ops::index::{index_position, IndexOp};
use crate::ops::nn::NnOp;
use crate::ops::view::{permute_axes, reshape_to, Source, ViewOp};
use crate::shape::{numel, Axes, Layout, Shape, SliceDim, Slices};
use crate::{Error, Result, Tensor};

/// A layout with a dimension more in front.
fn prepended(size: usize, stride: usize, layout: &Layout) -> Layout {
    let mut out = layout.clone();
    out.shape.insert(0, size);
    out.strides.insert(0, stride);
    out
}

fn shifted(axes: &[usize]) -> Axes {
    axes.iter().map(|a| a + 1).collect()
}

fn shifted_slices(dims: &[SliceDim]) -> Slices {
    dims.iter().map(|d| SliceDim { axis: d.axis + 1, ..*d }).collect()
}

fn led(size: usize, shape: &[usize]) -> Shape {
    let mut out = Shape::from_slice(&[size]);
    out.extend_from_slice(shape);
    out
}

/// The view of a value that shows `op`'s view of each sample.
pub(super) fn view(op: ViewOp, batch: &Batch, layout: Layout) -> Result<Tensor> {
    let (size, step) = (batch.size(), batch.value.layout().strides[0]);
    // Strides count elements, which these views make smaller or larger.
    let stride = match op {
        ViewOp::AsReal => step * 2,
        ViewOp::AsComplex if step % 2 == 0 => step / 2,
        ViewOp::AsComplex => {
            let why = "vmap: the batch dimension must have a stride divisible by 2";
            return Err(Error::runtime("view_as_complex", why));
        }
        ViewOp::Recast { from, dtype } if (step * from.size()).is_multiple_of(dtype.size()) => {
            step * from.size() / dtype.size()
        }
        ViewOp::Recast { .. } => {
            let why = "vmap: the batch dimension has a stride that is no whole number of elements of the new dtype";
            return Err(Error::runtime("view", why));
        }
        ViewOp::Reshape { .. }
        | ViewOp::Permute { .. }
        | ViewOp::Expand { .. }
        | ViewOp::Slice { .. }
        | ViewOp::AsStrided { .. } => step,
    };
    let whole = prepended(size, stride, &layout);
    let (op, value) = match op {
        ViewOp::Reshape { shape } => (ViewOp::Reshape { shape: led(size, &shape) }, batch.value.clone()),
        ViewOp::Permute { axes } => {
            (ViewOp::Permute { axes: std::iter::once(0).chain(shifted(&axes)).collect() }, batch.value.clone())
        }
        ViewOp::Expand { shape } => {
            let missing = shape.len() - batch.layout.ndim();
            let mut wide = Shape::from_slice(batch.value.shape());
            wide.insert_many(1, std::iter::repeat_n(1, missing));
            (ViewOp::Expand { shape: led(size, &shape) }, reshape_to(&batch.value, &wide)?)
        }
        ViewOp::AsReal | ViewOp::AsComplex | ViewOp::Recast { .. } => (op, batch.value.clone()),
        ViewOp::Slice { dims } => (ViewOp::Slice { dims: shifted_slices(&dims) }, batch.value.clone()),
        ViewOp::AsStrided { source, .. } => {
            if size > 0 && whole.numel() > 0 && whole.span() > batch.value.storage_numel() {
                let why = format!(
                    "vmap: sizes {:?}, strides {:?} and offset {} reach outside of the storage in some sample",
                    layout.shape, layout.strides, layout.offset
                );
                return Err(Error::runtime("as_strided", why));
            }
            let own = batch.value.layout();
            let step = numel(&batch.layout.shape);
            let plain = own.offset == 0 && own.is_contiguous() && (size <= 1 || stride == step);
            let source = match source {
                Source::Plain if plain => Source::Plain,
                Source::Plain => Source::Logical(Box::new(prepended(size, step, &layout))),
                Source::Logical(l) => Source::Logical(Box::new(prepended(size, step, &l))),
                Source::Storage(_) => Source::Storage(Box::new(own.clone())),
            };
            (ViewOp::AsStrided { layout: Box::new(whole.clone()), source }, batch.value.clone())
        }
    };
    // An expanded batch may have its dimension of size 1 anywhere: only the sizes must agree.
    plain_view(op, &value, whole)
}

pub(super) fn run(op: IndexOp, x: &[Input<'_>], size: usize, out: Meta) -> Result<Tensor> {
    match op {
        IndexOp::Gather { axis } => all(IndexOp::Gather { axis: axis + 1 }, x, size, out),
        IndexOp::Scatter { axis, mode } => all(IndexOp::Scatter { axis: axis + 1, mode }, x, size, out),
        IndexOp::Reduce { axis, mode } => all(IndexOp::Reduce { axis: axis + 1, mode }, x, size, out),
        IndexOp::Index { axes, strict } => index(&axes, strict, x, size, out),
        IndexOp::IndexPut { axes, accumulate, strict } => put(&axes, accumulate, strict, x, size, out),
        IndexOp::SliceScatter { dims, pads } => {
            all(IndexOp::SliceScatter { dims: shifted_slices(&dims), pads }, x, size, out)
        }
        IndexOp::StridedAdd { layout, shape } => {
            let layout = Box::new(prepended(size, numel(&shape), &layout));
            all(IndexOp::StridedAdd { layout, shape: led(size, &shape) }, x, size, out)
        }
        IndexOp::Concat { axis } => all(IndexOp::Concat { axis: axis + 1 }, x, size, out),
        IndexOp::Flip { axes } => all(IndexOp::Flip { axes: shifted(&axes) }, x, size, out),
        #[allow(unreachable_patterns, reason = "for ops to come")]
        op => each_sample(Prim::Index(op), x, size, out),
    }
}

/// Rows of one table, or of each sample's own.
pub(super) fn embedding(
    padding: Option<usize>,
    sparse: bool,
    x: &[Input<'_>],
    size: usize,
    out: Meta,
) -> Result<Tensor> {
    if !x[0].batched {
        return apply1(Prim::Nn(NnOp::Embedding { padding, sparse }), &[x[0].value, x[1].value], out);
    }
    let rows = index(&[0], true, x, size, out)?;
    match padding {
        // The padding row's values come from a copy that the tape does not see.
        Some(p) => {
            let padded = x[1].value.eq(p as i64)?.unsqueeze(-1)?;
            crate::ops::compare::select::r#where(&padded, &rows.detach()?, &rows)
        }
        None => Ok(rows),
    }
}

/// Every input with the batch in front; the op's dimensions have been counted from there.
fn all(op: IndexOp, x: &[Input<'_>], size: usize, out: Meta) -> Result<Tensor> {
    let x: Vec<Tensor> = x.iter().map(|x| batched(x, size)).collect::<Result<_>>()?;
    apply1(Prim::Index(op), &x.iter().collect::<Vec<_>>(), out)
}

/// The dimensions of the broadcast index tensors.
fn index_ndim(indices: &[Input<'_>]) -> usize {
    indices.iter().map(Input::ndim).max().unwrap_or(0)
}

/// Index tensors that broadcast with the batch in front, and one that counts it.
fn counted(indices: &[Input<'_>], ndim: usize, size: usize) -> Result<Vec<Tensor>> {
    let device = indices[0].value.device();
    let count = reshape_to(&arange_of(size, device)?, &led(size, &Shape::from_elem(1, ndim)))?;
    let rest = indices.iter().map(|i| super::batch_dim::aligned(i, ndim));
    std::iter::once(Ok(count)).chain(rest).collect()
}

/// `count` dimensions from `from` moved to `to`.
fn moved(x: &Tensor, from: usize, count: usize, to: usize) -> Result<Tensor> {
    if from == to || count == 0 {
        return Ok(x.clone());
    }
    let mut axes: Axes = (0..x.ndim()).filter(|a| !(from..from + count).contains(a)).collect();
    axes.insert_many(to, from..from + count);
    permute_axes(x, &axes)
}

fn index(axes: &[usize], strict: bool, x: &[Input<'_>], size: usize, out: Meta) -> Result<Tensor> {
    let (source, indices) = (&x[0], &x[1..]);
    let (at, n) = (index_position(axes), index_ndim(indices));
    let gather = |source: &Tensor, axes: Axes, indices: &[Tensor], shape: Shape| {
        let inputs: Vec<&Tensor> = std::iter::once(source).chain(indices).collect();
        apply1(Prim::Index(IndexOp::Index { axes, strict }), &inputs, Meta { shape, dtype: out.dtype })
    };
    if !source.batched {
        // The batch comes with the index tensors.
        let indices: Vec<Tensor> = indices.iter().map(|i| super::batch_dim::aligned(i, n)).collect::<Result<_>>()?;
        let mut shape = Shape::from_slice(&out.shape[1..]);
        shape.insert(at, size);
        return to_front(&gather(source.value, Axes::from_slice(axes), &indices, shape)?, at);
    }
    if indices.iter().all(|i| !i.batched) {
        let indices: Vec<Tensor> = indices.iter().map(|i| i.value.clone()).collect();
        let axes = shifted(axes);
        // Apart from each other, the indexed dimensions go in front of the batch.
        let front = if index_position(&axes) == 0 { n } else { 0 };
        let mut shape = Shape::from_slice(&out.shape[1..]);
        shape.insert(front, size);
        return to_front(&gather(source.value, axes, &indices, shape)?, front);
    }
    let indices = counted(indices, n, size)?;
    let axes: Axes = std::iter::once(0).chain(shifted(axes)).collect();
    let mut shape: Shape = out.shape[1..].into();
    let indexed: Shape = shape.drain(at..at + n).collect();
    let shape: Shape = std::iter::once(size).chain(indexed).chain(shape).collect();
    moved(&gather(source.value, axes, &indices, shape)?, 1, n, at + 1)
}

fn put(axes: &[usize], accumulate: bool, strict: bool, x: &[Input<'_>], size: usize, out: Meta) -> Result<Tensor> {
    let (target, values) = (batched(&x[0], size)?, batched(&x[1], size)?);
    let (indices, n) = (&x[2..], index_ndim(&x[2..]));
    let write = |axes: Axes, values: &Tensor, indices: &[Tensor]| {
        let inputs: Vec<&Tensor> = [&target, values].into_iter().chain(indices).collect();
        apply1(Prim::Index(IndexOp::IndexPut { axes, accumulate, strict }), &inputs, out.clone())
    };
    if indices.iter().all(|i| !i.batched) {
        let axes = shifted(axes);
        let front = if index_position(&axes) == 0 { n } else { 0 };
        let indices: Vec<Tensor> = indices.iter().map(|i| i.value.clone()).collect();
        return write(axes, &front_to(&values, front)?, &indices);
    }
    let at = index_position(axes);
    let indices = counted(indices, n, size)?;
    write(std::iter::once(0).chain(shifted(axes)).collect(), &moved(&values, at + 1, n, 1)?, &indices)
}
