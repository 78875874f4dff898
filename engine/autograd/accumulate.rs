//! Gradients that leaves keep: a backward pass's end adds to them.
//!
//! Invariants: a leaf's gradient has PyTorch's strides, and backward passes in several threads may meet at one leaf.

use super::with_grad;
use crate::{sparse, Result, Scalar, Tensor};
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;

/// Can a gradient be added to in place?
fn takes_writes(g: &Tensor) -> bool {
    !g.is_sparse() && !g.is_batched() && !g.is_inference() && !g.layout().may_overlap()
}

/// Has a gradient the layout of this leaf's: that of the leaf, or row-major where the leaf has gaps or repetitions?
fn has_leaf_layout(g: &Tensor, leaf: &Tensor) -> bool {
    match leaf.layout() {
        like if like.is_contiguous() || !like.is_dense() || g.is_sparse() || g.is_batched() => g.is_contiguous(),
        like => (0..like.ndim()).all(|i| like.shape[i] == 1 || like.strides[i] == g.strides()[i]),
    }
}

/// Adds to a leaf's gradient. The first one is kept as it is where nothing else holds it.
///
/// Backward passes in several threads may meet at one leaf: a sum takes a gradient's place only if that has not changed meanwhile.
pub(super) fn accumulate(leaf: &Tensor, g: Tensor, create_graph: bool) -> Result<()> {
    loop {
        let old = leaf.grad();
        let seen = old.as_ref().map(Tensor::version);
        let unchanged = || match (&old, leaf.grad()) {
            (Some(old), Some(now)) => now.is_same(old) && Some(now.version()) == seen,
            (None, None) => true,
            _ => false,
        };
        let total = match &old {
            // In place, so that who holds the gradient sees the sum, as in PyTorch.
            Some(old) if !create_graph && takes_writes(old) && !g.is_sparse() && !g.is_batched() => {
                let _one = adding(leaf);
                if unchanged() {
                    return with_grad(false, || old.add_(&g, Scalar::ONE));
                }
                continue;
            }
            // The sum may call hooks of saved tensors, so it is made before the lock is taken.
            Some(old) => sparse::accumulated(old, &g)?,
            // A gradient that is recorded may be shown by others, too.
            None if create_graph => {
                let _name = super::modes::named("copy_");
                g.copy_lying_as(leaf)?
            }
            None if g.is_unshared() && (has_leaf_layout(&g, leaf) || !super::modes::layout_enforced()) => g.detach()?,
            // An expanded or shared gradient must not be seen through another's in-place write.
            None => g.detach()?.copy_lying_as(leaf)?,
        };
        let _one = adding(leaf);
        if unchanged() {
            leaf.0.auto.set_grad(Some(total));
            return Ok(());
        }
    }
}

/// The right to change a leaf's gradient. Leaves share few locks, which are held for one addition.
fn adding(leaf: &Tensor) -> MutexGuard<'static, ()> {
    static LOCKS: [Mutex<()>; 16] = [const { Mutex::new(()) }; 16];
    LOCKS[(Arc::as_ptr(&leaf.0).addr() >> 6) % LOCKS.len()].lock()
}
