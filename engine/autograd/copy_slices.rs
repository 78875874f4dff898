//! The gradients of a write through a view: PyTorch's `CopySlices`.
//!
//! Invariant: a view's ops are followed from a tensor that has the layout of the view's base, since strided views count elements
//! from their storage's start.

use super::Grads;
use crate::ops::strided::copied_into;
use crate::ops::view::{Source, ViewOp};
use crate::shape::{Layout, Shape};
use crate::{DType, Error, Result, Scalar, Tensor};
use smallvec::SmallVec;

/// What the ops of a view show of `x`, which has the layout of the view's base: strided views count from its storage's start.
pub(crate) fn follow(x: &Tensor, ops: &[ViewOp]) -> Result<Tensor> {
    ops.iter().try_fold(x.clone(), |t, op| match op.layout(t.layout()) {
        Some(layout) => crate::dispatch::view(op.clone(), &t, layout),
        None => Err(Error::runtime(op.name(), "no strides can express this view")),
    })
}

/// The gradients of a write: the old elements where they survived, the new ones where they went. As PyTorch's `CopySlices`, the
/// gradient gets the layout of the `base` that the view is of, so that the view's ops show the same elements of both.
pub(crate) fn write_gradient(
    g: &Tensor,
    ops: &[ViewOp],
    base: Option<&Layout>,
    shape: &Shape,
    needs: [bool; 2],
) -> Result<Grads> {
    let Some(base) = base else {
        let value = if needs[1] { Some(crate::ops::view::reshape_to(&g.contiguous()?, shape)?) } else { None };
        let old = if needs[0] { Some(g.zeros_like()?) } else { None };
        return Ok([old, value].into_iter().collect());
    };
    if base.repeats() {
        return Err(Error::runtime("copy_slices", crate::in_place::REPEATED));
    }
    let (ops, base) = from_start(ops, base);
    let room = room(g.dtype(), &base, &ops);
    let value = match needs[1] {
        // Gaps of another storage would show what is in them.
        true if !g.is_batched() && *g.layout() == base && room == g.numel() => Some(follow(g, &ops)?),
        true => Some(follow(&copied_into(g, &base, room)?, &ops)?),
        false => None,
    };
    let old = match needs[0] {
        true => {
            let rest = copied_into(g, &base, room)?;
            let written = follow(&rest, &ops)?;
            // The same numbers could be written there any number of times, but PyTorch refuses it.
            written.refuse_expanded("copy_slices")?;
            written.fill_(Scalar::ZERO)?;
            Some(rest)
        }
        false => None,
    };
    Ok([old, value].into_iter().collect())
}

/// The ops of a view and its base's layout for a base that begins with its storage, where they do not change the dtype and show
/// nothing in front of it; else as they are.
fn from_start(ops: &[ViewOp], base: &Layout) -> (SmallVec<[ViewOp; 1]>, Layout) {
    let start = base.offset;
    let moved = |op: &ViewOp| match op {
        ViewOp::AsStrided { layout, source } => {
            let back = |layout: &Layout| {
                let offset = layout.offset.checked_sub(start)?;
                Some(Box::new(Layout { offset, ..layout.clone() }))
            };
            let source = match source {
                Source::Storage(own) => Source::Storage(back(own)?),
                source => source.clone(),
            };
            Some(ViewOp::AsStrided { layout: back(layout)?, source })
        }
        ViewOp::AsReal | ViewOp::AsComplex | ViewOp::Recast { .. } => None,
        ViewOp::Reshape { .. } | ViewOp::Permute { .. } | ViewOp::Expand { .. } | ViewOp::Slice { .. } => {
            Some(op.clone())
        }
    };
    match ops.iter().map(moved).collect::<Option<_>>() {
        Some(ops) if start > 0 => (ops, Layout { offset: 0, ..base.clone() }),
        _ => (ops.iter().cloned().collect(), base.clone()),
    }
}

/// How many elements of `dtype` a storage must have for a base of this layout and what a view's ops show of it: a strided view may
/// show elements that the base does not.
fn room(dtype: DType, base: &Layout, ops: &[ViewOp]) -> usize {
    let (mut layout, mut shown) = (base.clone(), dtype);
    let mut bytes = base.span() * dtype.size();
    for op in ops {
        let Some(next) = op.layout(&layout) else { break };
        (layout, shown) = (next, op.dtype(shown));
        bytes = bytes.max(layout.span() * shown.size());
    }
    bytes.div_ceil(dtype.size())
}
