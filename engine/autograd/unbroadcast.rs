//! Sums gradients over the dimensions that broadcasting added, and casts them to the dtype of their input.

use super::grad_dtype;
use super::node::{Edge, GradLayout, Grads, InputMeta, Node};
use crate::ops::view::reshape_to;
use crate::MemoryFormat;
use crate::{Error, Result, Tensor};

/// Sums what was broadcast and casts what was promoted, to the dtype that is taken where it goes.
pub(crate) fn unbroadcast(g: Tensor, meta: &InputMeta, edge: Option<&Edge>) -> Result<Tensor> {
    let g = if g.shape() == meta.shape.as_slice() { g } else { sum_to_shape(&g, &meta.shape)? };
    let g = match edge {
        Some(edge) => grad_dtype::cast(edge, g, meta.dtype)?,
        None => g.cast(meta.dtype)?,
    };
    let Some(layout) = &meta.layout else { return Ok(g) };
    match &**layout {
        _ if g.is_batched() || g.is_sparse() => Ok(g),
        GradLayout::Dense if g.layout().is_dense() => Ok(g),
        GradLayout::Dense => g.copy_in(MemoryFormat::Preserve),
        GradLayout::In(format) => g.contiguous_in(*format),
        GradLayout::Ordered(order) => g.contiguous_by(order),
    }
}

/// Gradients as the node's inputs have them.
pub(super) fn unbroadcast_all(node: &Node, made: Grads) -> Result<Grads> {
    let to =
        |(i, g): (usize, Option<Tensor>)| g.map(|g| unbroadcast(g, &node.metas[i], node.edges[i].as_ref())).transpose();
    made.into_iter().enumerate().map(to).collect()
}

/// The sum over the dimensions that broadcasting `shape` had added or expanded.
fn sum_to_shape(g: &Tensor, shape: &[usize]) -> Result<Tensor> {
    let lead = g.ndim().checked_sub(shape.len()).ok_or_else(|| {
        Error::shape("backward", "a gradient has fewer dimensions than its tensor", &[g.shape(), shape])
    })?;
    let expanded = |(i, &n): (usize, &usize)| (shape[i] == 1 && n != 1).then_some((i + lead) as isize);
    let dims: Vec<isize> =
        (0..lead as isize).chain(g.shape()[lead..].iter().enumerate().filter_map(expanded)).collect();
    let sum = if dims.is_empty() { g.clone() } else { g.sum(Some(&dims), true, None)? };
    reshape_to(&sum, shape)
}
