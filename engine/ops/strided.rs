//! Views that other strides make: the bodies of `as_strided`, `diagonal` and `unfold`, the gradient that they share, and copies
//! with given strides.
//!
//! Invariant: a view shows elements of its tensor's storage alone.

use super::view::{must_view, permute_axes, Source, ViewOp};
use crate::shape::{self, Axes, Layout};
use crate::{batching, dispatch, Error, Result, Tensor};
use smallvec::smallvec;

pub(super) fn as_strided_body(
    x: &Tensor,
    size: &[isize],
    stride: &[isize],
    storage_offset: Option<i64>,
) -> Result<Tensor> {
    let fail = |why: String| Error::runtime("as_strided", why);
    if size.len() != stride.len() {
        return Err(fail(format!("mismatch in length of strides and shape: {stride:?} and {size:?}")));
    }
    if size.iter().chain(stride).any(|&n| n < 0) || storage_offset.is_some_and(|o| o < 0) {
        return Err(fail(format!("sizes {size:?}, strides {stride:?} and the offset must not be negative")));
    }
    let mut layout = Layout {
        shape: size.iter().map(|&n| n as usize).collect(),
        strides: stride.iter().map(|&n| n as usize).collect(),
        offset: storage_offset.map_or(x.layout().offset, |o| o as usize),
    };
    let reach = layout.shape.iter().zip(&layout.strides).try_fold(layout.offset, |sum, (&n, &s)| {
        n.checked_sub(1).map_or(Some(sum), |n| n.checked_mul(s)?.checked_add(sum))
    });
    let room = x.storage_numel();
    let empty = layout.shape.contains(&0);
    if !empty && reach.is_none_or(|r| r >= room) {
        let why = format!(
            "sizes {size:?}, strides {stride:?} and offset {} reach outside of the storage of {room} elements",
            layout.offset
        );
        return Err(fail(why));
    }
    if empty {
        // No element is there, but kernels start from the offset.
        layout.offset = layout.offset.min(room);
    }
    let own = x.layout();
    let plain = own.offset == 0 && own.is_contiguous() && layout.span() <= own.numel();
    let source = if plain { Source::Plain } else { Source::Storage(Box::new(own.clone())) };
    must_view(ViewOp::AsStrided { layout: Box::new(layout), source }, x)
}

/// A view whose strides follow from the tensor's own: `place` says how, for any layout of it.
fn restride(x: &Tensor, place: impl Fn(Layout) -> Layout) -> Result<Tensor> {
    let own = x.layout();
    let source = match own.offset == 0 && own.is_contiguous() {
        true => Source::Plain,
        false => Source::Logical(Box::new(place(Layout::contiguous(x.shape())))),
    };
    must_view(ViewOp::AsStrided { layout: Box::new(place(own.clone())), source }, x)
}

/// A copy of `v` with the strides and the offset of `layout`, whose sizes it has. The rest of its storage, which has `room` elements,
/// is zeros. What is batched has such a storage for each sample.
pub(crate) fn copied_into(v: &Tensor, layout: &Layout, room: usize) -> Result<Tensor> {
    let levels = batching::levels_of(v);
    let bare = batching::bare_by(v.clone(), &levels)?;
    let lead = bare.ndim() - layout.ndim();
    let order = match layout.is_contiguous() {
        true => Some((shape::every_axis(layout.ndim()), shape::every_axis(layout.ndim()))),
        false => layout.permuted(),
    };
    if let Some((order, back)) = order.filter(|_| layout.offset == 0 && room == layout.numel()) {
        let led = |axes: Axes| -> Axes { (0..lead).chain(axes.iter().map(|axis| axis + lead)).collect() };
        let dense = permute_axes(&bare, &led(order))?.copy()?;
        return batching::rewrapped_by(permute_axes(&dense, &led(back))?.alone_on_storage(), &levels);
    }
    let mut wide = layout.clone();
    let mut all = room;
    for &size in bare.shape()[..lead].iter().rev() {
        wide.shape.insert(0, size);
        wide.strides.insert(0, all);
        all = all.saturating_mul(size);
    }
    let zeros = Tensor::full_of(&[all], crate::Scalar::ZERO, v.dtype(), v.device())?;
    let op = ViewOp::AsStrided { layout: Box::new(wide.clone()), source: Source::Plain };
    let copy = Tensor::from_storage(dispatch::view(op, &zeros, wide)?.storage().clone());
    copy.copy_(&bare)?;
    batching::rewrapped_by(copy, &levels)
}

/// Adds `g` to zeros where the view reads. By storage, what several of `x`'s elements share is divided among them, as in
/// PyTorch.
pub(super) fn strided_gradient(g: &Tensor, layout: &Layout, source: &Source, shape: &[usize]) -> Result<Tensor> {
    use super::index::{strided_add, strided_read};
    let own = match source {
        Source::Plain => return strided_add(g, layout, shape),
        Source::Logical(logical) => return strided_add(g, logical, shape),
        Source::Storage(own) => own,
    };
    let room = [layout.span().max(own.span())];
    let mut storage = strided_add(g, layout, &room)?;
    if own.may_overlap() {
        let ones = Tensor::full_of(&own.shape, crate::Scalar::ONE, g.dtype(), g.device())?;
        let count = strided_add(&ones, own, &room)?;
        storage = (storage / &count.clamp(Some(crate::Operand::Scalar(crate::Scalar::ONE)), None)?)?;
    }
    strided_read(&storage, own)
}

pub(super) fn diagonal_body(x: &Tensor, offset: i64, dim1: isize, dim2: isize) -> Result<Tensor> {
    let (a, b) = (shape::wrap_dim("diagonal", dim1, x.ndim())?, shape::wrap_dim("diagonal", dim2, x.ndim())?);
    if a == b || x.ndim() < 2 {
        return Err(Error::runtime("diagonal", format!("diagonal dimensions cannot be identical {dim1}, {dim2}")));
    }
    restride(x, |layout| diagonal_of(layout, offset, a, b))
}

/// The layout of the diagonal between the dimensions `a` and `b`, which comes last.
pub(super) fn diagonal_of(
    Layout { mut shape, mut strides, offset: mut start }: Layout,
    offset: i64,
    a: usize,
    b: usize,
) -> Layout {
    let (rows, cols) = (shape[a], shape[b]);
    let (down, right) = (offset.min(0).unsigned_abs() as usize, offset.max(0) as usize);
    let len = rows.saturating_sub(down).min(cols.saturating_sub(right));
    if len > 0 {
        // Strides of a tensor without elements may be beyond a number.
        start = start.saturating_add(down.saturating_mul(strides[a])).saturating_add(right.saturating_mul(strides[b]));
    }
    let step = strides[a].saturating_add(strides[b]);
    for i in [a.max(b), a.min(b)] {
        shape.remove(i);
        strides.remove(i);
    }
    shape.push(len);
    strides.push(step);
    Layout { shape, strides, offset: start }
}

pub(super) fn unfold_body(x: &Tensor, dimension: isize, size: i64, step: i64) -> Result<Tensor> {
    let axis = shape::wrap_dim("unfold", dimension, x.ndim())?;
    let n = x.shape().get(axis).copied().unwrap_or(1) as i64;
    if size < 0 || size > n || step < 1 {
        let why = format!("maximum size for tensor at dimension {axis} is {n} but size is {size}; step is {step}");
        return Err(Error::runtime("unfold", why));
    }
    restride(x, |Layout { mut shape, mut strides, offset }| {
        if shape.is_empty() {
            // Of a 0-d tensor the windows are along a dimension that it has not.
            return Layout { shape: smallvec![size as usize], strides: smallvec![1], offset };
        }
        let own = strides[axis];
        shape[axis] = ((n - size) / step + 1) as usize;
        strides[axis] = own.saturating_mul(step as usize);
        shape.push(size as usize);
        strides.push(own);
        Layout { shape, strides, offset }
    })
}
