//! A tensor's bytes as elements of another dtype: the body of `view(dtype)`.
//!
//! Depends on the view family's primitive. The tape knows nothing of it: bits have no derivative.

use super::view::ViewOp;
use crate::{dispatch, DType, Error, Result, Tensor};

pub(super) fn view_dtype_body(x: &Tensor, dtype: DType) -> Result<Tensor> {
    let from = x.dtype();
    let op = ViewOp::Recast { from, dtype };
    let layout = op.layout(x.layout()).ok_or_else(|| Error::runtime("view", refusal(x, dtype)))?;
    let view = dispatch::view(op, &x.detach()?, layout)?;
    // As in PyTorch, it has no base.
    Ok(if view.is_batched() { view } else { Tensor::from_storage(view.storage().clone()) })
}

/// What stands in the way of seeing a tensor as elements of another size.
fn refusal(x: &Tensor, dtype: DType) -> String {
    let (own, new) = (x.dtype().size(), dtype.size());
    let end = format!("to view {} as {dtype} (different element sizes)", x.dtype());
    let (Some(&last), Some(&step)) = (x.shape().last(), x.strides().last()) else {
        return format!("self.dim() cannot be 0 {end}");
    };
    let ratio = new / own.min(new);
    let divisible = |what: String, got: usize| format!("{what} must be divisible by {ratio} {end}, but got {got}");
    if !last.is_multiple_of(ratio) {
        return divisible("self.size(-1)".into(), last);
    }
    if step != 1 {
        return format!("self.stride(-1) must be 1 {end}, but got {step}");
    }
    if !x.storage_offset().is_multiple_of(ratio) {
        return divisible("self.storage_offset()".into(), x.storage_offset());
    }
    match x.strides().iter().enumerate().find(|&(_, &s)| !s.is_multiple_of(ratio)) {
        Some((i, &s)) => divisible(format!("self.stride({i})"), s),
        None => format!("the strides are too large {end}"),
    }
}
