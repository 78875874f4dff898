//! Warnings of ops: calls that work, and that PyTorch warns of.
//!
//! The mechanism is `lucid_core::warnings`; here are the warnings that look at tensors.

pub use lucid_core::warnings::*;

/// Warns where one of `ops` is the call that is at work, and divides by what is left of `n` elements, which is nothing.
pub(crate) fn of_freedom(ops: [&'static str; 2], n: usize, correction: f64) {
    let op = crate::autograd::op_name().filter(|called| ops.contains(called));
    if let Some(op) = op.filter(|_| n as f64 - correction <= 0.0) {
        warn(format!(
            "{op}(): degrees of freedom is <= 0. The correction should be less than the number of elements that make \
             one of the result."
        ));
    }
}

/// Warns of an in-place write to a tensor that shows an element several times.
pub(crate) fn of_expanded(op: &'static str, x: &crate::Tensor) {
    if x.strides().contains(&0) && x.layout().may_overlap() && !x.is_batched() {
        warn(format!(
            "Use of {op} on expanded tensors is deprecated. Please clone() the tensor before; that is also so for \
             writing by an index or a mask, as in tensor[mask] = number."
        ));
    }
}
