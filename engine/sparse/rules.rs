//! What primitives do with sparse tensors: sums, factors, functions that keep zero, casts and copies.

use super::{made, places, rows_at, Coo, Parts};
use crate::dispatch::{apply1, Meta, Prim};
use crate::ops::binary::BinaryOp;
use crate::ops::index::{cat, put_axes, Target};
use crate::ops::reduce::ReduceOp;
use crate::ops::transfer::TransferOp;
use crate::ops::unary::UnaryOp;
use crate::{Error, Result, Tensor};

/// The tensor cut off from the tape, where it is sparse: the same storage, or that of values that are cut off.
pub(crate) fn detached(x: &Tensor) -> Result<Option<Tensor>> {
    let Some(coo) = x.storage().coo().filter(|_| x.requires_grad()) else { return Ok(None) };
    let Parts { indices, values, coalesced } = coo.parts();
    Ok(Some(made(Parts { indices, values: values.detach()?, coalesced }, x.shape())))
}

/// The error for a sparse tensor where only dense ones can be, if there is one among the inputs.
pub(crate) fn refuse(op: &'static str, inputs: &[&Tensor]) -> Option<Box<Error>> {
    inputs.iter().any(|t| t.is_sparse()).then(|| {
        Error::not_implemented(op, format!("{op} takes dense tensors; got a sparse one: call to_dense() on it first"))
    })
}

/// Runs a primitive that has a sparse input.
pub(crate) fn apply(prim: Prim, inputs: &[&Tensor], meta: Meta) -> Result<Tensor> {
    let name = prim.schema().name;
    let refused = || Err(refuse(name, inputs).unwrap_or_else(|| Error::runtime(name, "expected a sparse tensor")));
    let coo = |t: &Tensor| t.storage().coo().map(Coo::parts);
    match (&prim, inputs) {
        (Prim::Transfer(op), [x]) => {
            let Some(Parts { indices, values, coalesced }) = coo(x) else { return refused() };
            let (indices, values) = match *op {
                TransferOp::Cast { dtype } => (indices, values.cast(dtype)?),
                TransferOp::Copy => (indices.copy()?, values.copy()?),
                TransferOp::Move { device } => (indices.to_device(device)?, values.to_device(device)?),
            };
            Ok(made(Parts { indices, values, coalesced }, x.shape()))
        }
        (Prim::Unary(op), [x]) if keeps_zero(op) => {
            let Some(mut parts) = coo(x) else { return refused() };
            if !is_linear(op) {
                parts = x.coalesced_parts(parts)?;
            }
            let meta = Meta::new(parts.values.shape(), meta.dtype);
            parts.values = apply1(prim.clone(), &[&parts.values], meta)?;
            Ok(made(parts, x.shape()))
        }
        (Prim::Binary(BinaryOp::Add), [a, b]) => sum(name, a, b),
        (Prim::Binary(BinaryOp::Sub), [a, b]) => sum(name, a, &b.neg()?),
        (Prim::Binary(BinaryOp::Mul | BinaryOp::Div), [a, b]) => match (coo(a), coo(b)) {
            (Some(parts), None) => scaled(&prim, a, parts, b, meta),
            (None, Some(parts)) if prim == Prim::Binary(BinaryOp::Mul) => scaled(&prim, b, parts, a, meta),
            (Some(_), Some(_)) | (None, _) => refused(),
        },
        (Prim::Reduce(ReduceOp::Sum, how), [x]) if how.axes.len() == x.ndim() && !how.keepdim => {
            let Some(parts) = coo(x) else { return refused() };
            parts.values.sum(None, false, Some(meta.dtype))
        }
        _ => refused(),
    }
}

/// Is the function's value 0 at 0? Only such a function gives a sparse tensor.
fn keeps_zero(op: &UnaryOp) -> bool {
    is_linear(op)
        || matches!(
            op,
            UnaryOp::Abs
                | UnaryOp::Sign
                | UnaryOp::Square
                | UnaryOp::Sqrt
                | UnaryOp::Sin
                | UnaryOp::Tan
                | UnaryOp::Tanh
                | UnaryOp::Expm1
                | UnaryOp::Log1p
                | UnaryOp::Floor
                | UnaryOp::Ceil
                | UnaryOp::Trunc
                | UnaryOp::Relu
        )
}

/// Is the sum of the values' function that of the sum? Otherwise values at one index must be summed first.
fn is_linear(op: &UnaryOp) -> bool {
    matches!(op, UnaryOp::Neg | UnaryOp::Conj)
}

/// `x` times or by a dense tensor of one shape, or of no dimensions.
fn scaled(prim: &Prim, x: &Tensor, mut parts: Parts, factor: &Tensor, meta: Meta) -> Result<Tensor> {
    let factor = match factor.ndim() {
        0 => factor.clone(),
        _ if factor.shape() == x.shape() => rows_at(factor, &parts.indices)?,
        _ => {
            let why = "a sparse tensor is scaled by a number, a 0-d tensor, or a dense tensor of its own shape";
            return Err(Error::shape(prim.schema().name, why, &[x.shape(), factor.shape()]));
        }
    };
    let meta = Meta::new(parts.values.shape(), meta.dtype);
    parts.values = apply1(prim.clone(), &[&parts.values, &factor], meta)?;
    Ok(made(parts, x.shape()))
}

fn sum(op: &'static str, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    if a.shape() != b.shape() {
        let why = "a sparse tensor is added to tensors of its own shape only";
        return Err(Error::shape(op, why, &[a.shape(), b.shape()]));
    }
    match (a.storage().coo(), b.storage().coo()) {
        (Some(x), Some(y)) => {
            let (x, y) = (x.parts(), y.parts());
            if a.sparse_dim() != b.sparse_dim() {
                let why = "the tensors must have the same number of sparse dimensions";
                return Err(Error::shape(op, why, &[x.indices.shape(), y.indices.shape()]));
            }
            let joined = Parts {
                indices: cat(&[x.indices, y.indices], 1)?,
                values: cat(&[x.values, y.values], 0)?,
                coalesced: false,
            };
            // Sums would grow without end: no more indices than there are elements.
            let parts = match joined.indices.shape()[1] > a.numel() {
                true => a.coalesced_parts(joined)?,
                false => joined,
            };
            Ok(made(parts, a.shape()))
        }
        (None, Some(y)) => added(a, y),
        _ => Err(Error::runtime(op, "add(sparse, dense) is not supported. Use add(dense, sparse) instead.")),
    }
}

/// A dense tensor plus a sparse one of its shape and dtype.
pub(super) fn added(x: &Tensor, coo: &Coo) -> Result<Tensor> {
    let Parts { indices, values, .. } = coo.parts();
    if x.device() != coo.device {
        let why = "Expected all tensors to be on the same device; move one with .to()";
        return Err(Error::device("add", why, &[x.device(), coo.device]));
    }
    if indices.shape()[0] == 0 {
        return x.add(&values.sum(Some(&[0]), false, None)?, 1);
    }
    let (axes, at) = places(&indices)?;
    put_axes(Target::Copy, x, &axes, &at, &values, true, true)
}

/// Two gradients of one tensor, either of which may be sparse.
pub(crate) fn accumulated(old: &Tensor, new: &Tensor) -> Result<Tensor> {
    match old.is_sparse() && !new.is_sparse() {
        true => new + old,
        false => old + new,
    }
}

/// The end of an in-place op on a sparse tensor, or of one with a sparse value: the parts are replaced. A number may only
/// be the zero of `zero_`, which leaves no indices.
pub(crate) fn write(op: &'static str, x: &Tensor, value: &Tensor) -> Result<()> {
    let Some(coo) = x.storage().coo() else {
        let why =
            format!("{op} between dense and sparse Tensors is not implemented; call to_dense() on the sparse one");
        return Err(Error::runtime(op, why));
    };
    if x.is_inference() && !crate::autograd::inference_mode_enabled() {
        return Err(Error::runtime(op, "Inplace update to inference tensor outside InferenceMode is not allowed."));
    }
    if crate::grad_enabled() && x.requires_grad() {
        let why = "a sparse tensor with a history is not written in place; use no_grad() or .detach()";
        return Err(Error::runtime(op, why));
    }
    let Some(new) = value.storage().coo() else {
        return Err(refuse(op, &[x]).unwrap_or_else(|| Error::runtime(op, "expected a sparse tensor")));
    };
    if value.shape() != x.shape() || new.sparse_dim != coo.sparse_dim {
        let why = "the value must have the sparse tensor's shape and number of sparse dimensions";
        return Err(Error::shape(op, why, &[x.shape(), value.shape()]));
    }
    if new.device != coo.device {
        return Err(Error::device(op, "the value must be on the tensor's device", &[coo.device, new.device]));
    }
    if !new.dtype.can_cast(coo.dtype) {
        let why = format!("result type {} can't be cast to the desired output type {}", new.dtype, coo.dtype);
        return Err(Error::dtype(op, why, &[new.dtype, coo.dtype]));
    }
    let mut parts = new.parts();
    parts.values = parts.values.cast(coo.dtype)?;
    // The written tensor must not show what is written to the value later.
    if op == "copy_" {
        parts = Parts { indices: parts.indices.copy()?, values: parts.values.copy()?, ..parts };
    }
    coo.replace(parts);
    Ok(())
}

impl Tensor {
    /// Writes zeros over the elements; a sparse tensor is left with no indices.
    ///
    /// # Errors
    /// For a leaf that requires gradients.
    pub fn zero_(&self) -> Result<()> {
        let _name = crate::autograd::Naming::of("zero_", 0);
        let Some(coo) = self.storage().coo() else { return self.fill_(crate::Scalar::ZERO) };
        let Parts { indices, values, .. } = coo.parts();
        let none =
            Parts { indices: indices.narrow(1, 0, 0)?, values: values.detach()?.narrow(0, 0, 0)?, coalesced: true };
        write("zero_", self, &made(none, self.shape()))
    }
}
