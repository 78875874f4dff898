//! What primitives do with sparse tensors: sums, factors, functions that keep zero, casts and copies.

use super::{made, places, products, rows_at, Coo, Parts};
use crate::dispatch::{apply1, Meta, Prim};
use crate::ops::binary::BinaryOp;
use crate::ops::index::{cat, put_axes, stack, IndexOp, Target};
use crate::ops::reduce::ReduceOp;
use crate::ops::transfer::TransferOp;
use crate::ops::unary::UnaryOp;
use crate::ops::view::{expand_to, permute_axes, ViewOp};
use crate::shape::{Axes, Shape};
use crate::{Error, Result, Tensor};
use smallvec::SmallVec;

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
    let name = prim.name();
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
            (Some(_), Some(_)) if prim == Prim::Binary(BinaryOp::Mul) => products::by_element(name, a, b),
            (Some(_), Some(_)) | (None, _) => refused(),
        },
        (Prim::Reduce(ReduceOp::Sum, how), [x]) if how.axes.len() == x.ndim() && !how.keepdim => {
            let Some(parts) = coo(x) else { return refused() };
            parts.values.sum(None, false, Some(meta.dtype))
        }
        (Prim::Reduce(ReduceOp::Sum, how), [x]) if !how.keepdim && x.is_sparse() => summed(x, &how.axes, &meta),
        (Prim::Index(IndexOp::Concat { axis }), x) if x.iter().all(|t| t.is_sparse()) => {
            products::joined(name, *axis, x, &meta.shape)
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
        _ if meta.shape.as_slice() == x.shape() => rows_at(&expand_to(factor, x.shape())?, &parts.indices)?,
        _ => {
            let why = "a sparse tensor is scaled by numbers and by dense tensors that can be expanded to its shape";
            return Err(Error::shape(prim.name(), why, &[x.shape(), factor.shape()]));
        }
    };
    let meta = Meta::new(parts.values.shape(), meta.dtype);
    parts.values = apply1(prim.clone(), &[&parts.values, &factor], meta)?;
    Ok(made(parts, x.shape()))
}

/// A sparse tensor summed over some of its dimensions: sparse as long as one that is indexed is left, and dense otherwise.
fn summed(x: &Tensor, axes: &[usize], meta: &Meta) -> Result<Tensor> {
    let Parts { indices, values, .. } = x.sparse_parts("sum")?;
    let (dim, here) = (x.sparse_dim(), |axis: &usize| axes.contains(axis));
    let mut over: SmallVec<[isize; 8]> = (dim..x.ndim()).filter(here).map(|axis| (axis - dim + 1) as isize).collect();
    let kept: Vec<i64> = (0..dim).filter(|axis| !here(axis)).map(|axis| axis as i64).collect();
    if kept.is_empty() {
        over.push(0);
    }
    let values = match over.is_empty() {
        true => values.cast(meta.dtype)?,
        false => values.sum(Some(&over), false, Some(meta.dtype))?,
    };
    if kept.is_empty() {
        return Ok(values);
    }
    let rows = kept.iter().map(|&axis| indices.select(0, axis)).collect::<Result<Vec<_>>>()?;
    made(Parts { indices: stack(&rows, 0)?, values, coalesced: false }, &meta.shape).coalesce()
}

/// A sparse tensor with its dimensions in another order: those that are indexed among themselves, and the others.
pub(crate) fn view(op: &ViewOp, x: &Tensor) -> Result<Tensor> {
    let name = op.name();
    let Parts { indices, values, .. } = x.sparse_parts(name)?;
    let (ViewOp::Permute { axes }, dim) = (op, x.sparse_dim()) else {
        return Err(refuse(name, &[x]).unwrap_or_else(|| Error::runtime(name, "expected a sparse tensor")));
    };
    if axes[..dim].iter().any(|&axis| axis >= dim) {
        let why = "a dimension that is indexed and one that is not cannot change places: call to_dense() first";
        return Err(Error::runtime(name, why));
    }
    let rows = axes[..dim].iter().map(|&axis| indices.select(0, axis as i64)).collect::<Result<Vec<_>>>()?;
    let order: Axes = std::iter::once(0).chain(axes[dim..].iter().map(|axis| axis - dim + 1)).collect();
    let shape: Shape = axes.iter().map(|&axis| x.shape()[axis]).collect();
    let indices = if rows.is_empty() { indices } else { stack(&rows, 0)? };
    Ok(made(Parts { indices, values: permute_axes(&values, &order)?, coalesced: false }, &shape))
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
        let _name = crate::autograd::OpScope::of("zero_", 0);
        let Some(coo) = self.storage().coo() else { return self.fill_(crate::Scalar::ZERO) };
        let Parts { indices, values, .. } = coo.parts();
        let none =
            Parts { indices: indices.narrow(1, 0, 0)?, values: values.detach()?.narrow(0, 0, 0)?, coalesced: true };
        write("zero_", self, &made(none, self.shape()))
    }
}
