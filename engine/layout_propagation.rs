//! In which order the elements of a result are: as those of what it is made of, where PyTorch has it so.
//!
//! Ops are run on arrays whose dimensions are put in the order of memory, and the result's are put back. Nothing is done, and
//! nothing costs time, where the inputs are row-major. Depends on `backend`, `format` and `shape`; used by `dispatch` alone.

use crate::dispatch::{Meta, Metas};
use crate::ops::{fft::FftOp, index::IndexOp, order::OrderOp, view::ViewOp};
use crate::shape::{Axes, Layout, Shape};
use crate::Result;
use lucid_core::memory_format::common_order;
use lucid_ir::backend::{Array, Backend, Results};
use smallvec::{smallvec, SmallVec};

/// Runs an op that takes elements one by one in the order in which they are, where that is another than the dimensions', and
/// gives the result that order too, as PyTorch does.
pub(crate) fn in_order<B: Backend>(
    x: &[&B::Array],
    out: &Meta,
    run: impl FnOnce(&[&B::Array], &Meta) -> Result<B::Array>,
) -> Result<B::Array> {
    in_order_along::<B>(x, out, |x, out, _| run(x, out))
}

/// [`in_order`] for two inputs of which the second one decides the layout of the result, as in PyTorch.
pub(crate) fn in_order_of_second<B: Backend>(
    x: &[&B::Array],
    out: &Meta,
    run: impl FnOnce(&[&B::Array], &Meta) -> Result<B::Array>,
) -> Result<B::Array> {
    let swapped: SmallVec<[&B::Array; 2]> = x.iter().rev().copied().collect();
    in_order::<B>(&swapped, out, |x, out| run(&x.iter().rev().copied().collect::<SmallVec<[&B::Array; 2]>>(), out))
}

/// [`in_order`] for an op along dimensions: it is told where they are then, or nothing where they are where they were.
pub(crate) fn in_order_along<B: Backend>(
    x: &[&B::Array],
    out: &Meta,
    run: impl FnOnce(&[&B::Array], &Meta, Option<&[usize]>) -> Result<B::Array>,
) -> Result<B::Array> {
    if x.iter().all(|x| x.is_contiguous()) {
        return run(x, out, None);
    }
    let layouts: SmallVec<[&Layout; 3]> = x.iter().map(|x| x.layout()).collect();
    let Some(orders) = common_order(&layouts, &out.shape) else { return run(x, out, None) };
    turned::<B>(x, out, orders, run)
}

/// Runs an op on arrays whose dimensions are put in another order, and puts those of the result `back`.
fn turned<B: Backend>(
    x: &[&B::Array],
    out: &Meta,
    (order, back): (Axes, Axes),
    run: impl FnOnce(&[&B::Array], &Meta, Option<&[usize]>) -> Result<B::Array>,
) -> Result<B::Array> {
    let seen = |x: &B::Array, op: ViewOp| match op.layout(x.layout()) {
        Some(layout) => B::view(&op, x, layout),
        None => Ok(x.clone()),
    };
    let turned = |x: &B::Array| match (x.layout().ndim(), order.len()) {
        (0, _) => Ok(x.clone()),
        (n, all) if n == all => seen(x, ViewOp::Permute { axes: order.clone() }),
        (n, all) => {
            let mut shape: Shape = smallvec![1; all - n];
            shape.extend_from_slice(&x.layout().shape);
            seen(&seen(x, ViewOp::Reshape { shape })?, ViewOp::Permute { axes: order.clone() })
        }
    };
    let flat = x.iter().map(|x| turned(x)).collect::<Result<SmallVec<[B::Array; 3]>>>()?;
    let meta = Meta { shape: order.iter().map(|&axis| out.shape[axis]).collect(), dtype: out.dtype };
    let flat: SmallVec<[&B::Array; 3]> = flat.iter().collect();
    seen(&run(&flat, &meta, Some(&back))?, ViewOp::Permute { axes: back.clone() })
}

/// Tensors side by side: with the channels innermost where all have them so.
pub(crate) fn joined<B: Backend>(axis: usize, x: &[&B::Array], out: &Meta) -> Result<B::Array> {
    let run = |x: &[&B::Array], out: &Meta, at: Option<&[usize]>| {
        let axis = at.map_or(axis, |at| at[axis]);
        B::index(&IndexOp::Concat { axis }, x, out)
    };
    let format = |x: &&B::Array| x.layout().suggested_format();
    match x.first().map(format).and_then(|f| Some((f, lucid_core::memory_format::channels_order(f)?))) {
        Some((first, orders)) if x.iter().all(|x| format(x) == first) => turned::<B>(x, out, orders, run),
        _ => run(x, out, None),
    }
}

/// A result of images with the channels innermost where some of the first two inputs has them so, as in PyTorch.
pub(crate) fn as_images<B: Backend>(x: &[&B::Array], made: B::Array) -> Result<B::Array> {
    let formats = x.iter().take(2).map(|x| x.layout().suggested_format());
    match formats.filter_map(lucid_core::memory_format::channels_order).next() {
        Some(orders) => in_memory_order::<B>(made, orders),
        None => Ok(made),
    }
}

/// What advanced indexing along `axes` makes of the first input: in the order in which what it reads and the indices are, as in
/// PyTorch, where a dimension that is read at indices says nothing of its place.
pub(crate) fn as_indexed<B: Backend>(axes: &[usize], x: &[&B::Array], made: B::Array) -> Result<B::Array> {
    let (Some((read, indices)), true) = (x.split_first(), made.layout().is_contiguous()) else { return Ok(made) };
    if x.iter().all(|x| x.is_contiguous()) {
        return Ok(made);
    }
    let shape = &made.layout().shape;
    let others: SmallVec<[usize; 4]> = (0..read.layout().ndim()).filter(|axis| !axes.contains(axis)).collect();
    let Some(wide) = shape.len().checked_sub(others.len()) else { return Ok(made) };
    let at = crate::ops::index::index_position(axes);
    let with = |strides: &[usize], wide: &[usize]| -> Layout {
        let strides = strides[..at].iter().chain(wide).chain(&strides[at..]).copied().collect();
        Layout { shape: shape.clone(), strides, offset: 0 }
    };
    let kept: SmallVec<[usize; 4]> = others.iter().map(|&axis| read.layout().strides[axis]).collect();
    let none: SmallVec<[usize; 4]> = smallvec![0; others.len()];
    let mut layouts = vec![with(&kept, &SmallVec::<[usize; 4]>::from_elem(0, wide))];
    for index in indices {
        layouts.push(with(&none, &index.layout().broadcast_to(&shape[at..at + wide]).strides));
    }
    match common_order(&layouts.iter().collect::<SmallVec<[&Layout; 4]>>(), shape) {
        Some(orders) => in_memory_order::<B>(made, orders),
        None => Ok(made),
    }
}

/// What was written into a copy of the first input: in the order in which that is, as in PyTorch.
pub(crate) fn as_first<B: Backend>(x: &[&B::Array], made: B::Array) -> Result<B::Array> {
    match x.first().filter(|x| !x.is_contiguous()) {
        Some(x) => match common_order(&[x.layout()], &made.layout().shape) {
            Some(orders) => in_memory_order::<B>(made, orders),
            None => Ok(made),
        },
        None => Ok(made),
    }
}

/// Matrices column by column, where they do not have that layout yet.
pub(crate) fn by_columns<B: Backend>(made: B::Array) -> Result<B::Array> {
    let mut order: Axes = (0..made.layout().ndim()).collect();
    let last = order.len() - 1;
    order.swap(last - 1, last);
    // A single column has the layout of a row.
    match made.layout().shape[last - 1..].contains(&1) {
        true => Ok(made),
        false => in_memory_order::<B>(made, (order.clone(), order)),
    }
}

/// A part of matrices of `rank` dimensions: one of as many is a matrix itself, which is given column by column. A single column
/// has strides of its own in PyTorch's decompositions.
pub(crate) fn matrices_by_columns<B: Backend>(made: B::Array, rank: usize) -> Result<B::Array> {
    let Layout { shape, strides, .. } = made.layout();
    if shape.len() != rank || rank < 2 {
        return Ok(made);
    }
    let (mut order, mut transposed): (Axes, Shape) = ((0..rank).collect(), shape.clone());
    order.swap(rank - 2, rank - 1);
    transposed.swap(rank - 2, rank - 1);
    let mut wanted = Layout::contiguous(&transposed).strides;
    wanted.swap(rank - 2, rank - 1);
    match *strides == wanted {
        true => Ok(made),
        false => permuted::<B>(&B::copy(&permuted::<B>(&made, order.clone())?)?, order),
    }
}

/// A row-major result in another order.
fn in_memory_order<B: Backend>(made: B::Array, (order, back): (Axes, Axes)) -> Result<B::Array> {
    if made.layout().ndim() != order.len() || !made.layout().is_contiguous() {
        return Ok(made);
    }
    permuted::<B>(&B::copy(&permuted::<B>(&made, order)?)?, back)
}

/// A Fourier transform, run with the dimensions in the order of its lanes; the result keeps that order in memory, as in PyTorch.
pub(crate) fn by_lanes<B: Backend>(op: &FftOp, x: &B::Array, out: &Meta) -> Result<B::Array> {
    let order = op.order(&x.layout().strides);
    if order.is_sorted() {
        return B::fft(op, x, out);
    }
    let back: Axes = (0..order.len()).map(|axis| order.iter().position(|&a| a == axis).unwrap_or(axis)).collect();
    let meta = Meta { shape: order.iter().map(|&axis| out.shape[axis]).collect(), dtype: out.dtype };
    let made = B::fft(&op.moved(|axis| back[axis]), &permuted::<B>(x, order)?, &meta)?;
    permuted::<B>(&made, back)
}

/// Order statistics: what is sorted is run with its dimensions in the order of memory, which the results keep, as in PyTorch.
pub(crate) fn ordered<B: Backend>(op: &OrderOp, x: &B::Array, out: &[Meta]) -> Result<Results<B::Array>> {
    let sorts = matches!(op, OrderOp::Sort { .. }) && !x.is_contiguous();
    let orders = if sorts { common_order(&[x.layout()], &x.layout().shape) } else { None };
    let Some((order, back)) = orders else { return B::order(op, x, out) };
    let permute = |out: &Meta| Meta { shape: order.iter().map(|&axis| out.shape[axis]).collect(), dtype: out.dtype };
    let metas: Metas = out.iter().map(permute).collect();
    let made = B::order(&op.clone().along(back[op.axis()]), &permuted::<B>(x, order)?, &metas)?;
    made.iter().map(|made| permuted::<B>(made, back.clone())).collect()
}

/// The same elements with their dimensions in another order.
fn permuted<B: Backend>(x: &B::Array, axes: Axes) -> Result<B::Array> {
    let op = ViewOp::Permute { axes };
    op.layout(x.layout()).map_or_else(|| Ok(x.clone()), |layout| B::view(&op, x, layout))
}
