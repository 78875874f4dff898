//! Elements chosen along one dimension, with their indices: sorting, what is at a rank, extrema, and the most frequent.
//!
//! Each is a primitive with two results, whose gradient goes to where the elements came from. Kernels are in `cpu/order.rs` and
//! `mlx/order.rs`. NaN is the largest number, as in PyTorch.

use super::compare::select::r#where;
use super::index::scatter_along;
use super::macros::define_ops;
use super::OpRow;
use crate::autograd::Ctx;
use crate::dispatch::{self, Prim};
use crate::shape;
use crate::{DType, Error, Result, Scalar, Tensor};
use lucid_ir::ops::index::ScatterMode;
pub use lucid_ir::ops::order::*;
use lucid_ir::order_ops;

order_ops!(define_ops);

/// Values and indices of a primitive whose arguments have been checked.
fn chosen(op: OrderOp, x: &Tensor) -> Result<(Tensor, Tensor)> {
    let name = op.schema().name;
    let fault = || Error::shape(name, "takes no elements of this shape", &[x.shape()]);
    let metas = op.results(x.shape(), x.dtype()).ok_or_else(fault)?;
    let mut made = dispatch::apply_multi(Prim::Order(op), &[x], &metas)?.into_iter();
    made.next().zip(made.next()).ok_or_else(|| Error::runtime(name, "has two results"))
}

/// The gradient of the values in the places that the indices say; all of `g` where there is one element without a dimension.
fn chosen_gradient(c: &Ctx<'_>, g: &Tensor, axis: usize) -> Result<Tensor> {
    let (mut g, mut at) = (g.clone(), c.result(1)?);
    if c.shape(0).is_empty() {
        return Ok(g);
    }
    if g.ndim() < c.shape(0).len() {
        (g, at) = (g.unsqueeze(axis as isize)?, at.unsqueeze(axis as isize)?);
    }
    scatter_along(ScatterMode::Add, &c.zeros(0)?, axis, &at, &g)
}

fn sort_body(x: &Tensor, dim: isize, descending: bool, _stable: bool) -> Result<(Tensor, Tensor)> {
    schema::sort.check(x.dtype())?;
    let axis = shape::wrap_dim("sort", dim, x.ndim())?;
    chosen(OrderOp::Sort { axis, descending }, x)
}

/// The size of a dimension; a 0-d tensor has one of 1.
fn length(x: &Tensor, axis: usize) -> usize {
    x.shape().get(axis).copied().unwrap_or(1)
}

fn topk_body(x: &Tensor, k: i64, dim: isize, largest: bool, _sorted: bool) -> Result<(Tensor, Tensor)> {
    schema::topk.check(x.dtype())?;
    let axis = shape::wrap_dim("topk", dim, x.ndim())?;
    let n = length(x, axis);
    if k < 0 || k as usize > n {
        let why = format!("selected index k out of range: k is {k}, dimension {axis} has {n} elements");
        return Err(Error::runtime("topk", why));
    }
    // The one element of a 0-d tensor is given for 0, too.
    let k = if x.ndim() == 0 { 1 } else { k as usize };
    chosen(OrderOp::TopK { axis, k, largest }, x)
}

fn kthvalue_body(x: &Tensor, k: i64, dim: isize, keepdim: bool) -> Result<(Tensor, Tensor)> {
    let axis = shape::wrap_dim("kthvalue", dim, x.ndim())?;
    let n = length(x, axis);
    refuse_nothing("kthvalue", x, axis)?;
    if k < 1 || k as usize > n {
        let why = format!("selected number k out of range for dimension {axis}: k is {k}, of {n} elements");
        return Err(Error::runtime("kthvalue", why));
    }
    if x.ndim() > 0 {
        schema::kthvalue.check(x.dtype())?;
    }
    chosen(OrderOp::KthValue { axis, k: k as usize, keepdim }, x)
}

/// Refuses a dimension without elements, of which none can be chosen.
fn refuse_nothing(op: &'static str, x: &Tensor, axis: usize) -> Result<()> {
    if length(x, axis) > 0 {
        return Ok(());
    }
    let why = format!("Expected reduction dim {axis} to have non-zero size (shape: {:?})", x.shape());
    Err(Error::index(op, why))
}

/// One element of each row: `max_dim`, `min_dim` and `mode`. Of nothing any dtype will do, and of one element without a
/// dimension, where nothing is compared, for `mode`.
fn reduced_body(op: fn(usize, bool) -> OrderOp, x: &Tensor, dim: isize, keepdim: bool) -> Result<(Tensor, Tensor)> {
    let row = op(0, keepdim).schema();
    let name = row.torch;
    let axis = shape::wrap_dim(name, dim, x.ndim())?;
    refuse_nothing(name, x, axis)?;
    if name != "mode" || x.ndim() > 0 && x.numel() > 0 {
        row.check(x.dtype())?;
    }
    chosen(op(axis, keepdim), x)
}

fn median_body(
    op: fn(usize, bool) -> OrderOp,
    x: &Tensor,
    dim: Option<isize>,
    keepdim: bool,
) -> Result<(Tensor, Option<Tensor>)> {
    let row = op(0, keepdim).schema();
    let Some(dim) = dim else { return median_of_all(op, x).map(|m| (m, None)) };
    let axis = shape::wrap_dim(row.name, dim, x.ndim())?;
    refuse_nothing(row.name, x, axis)?;
    row.check(x.dtype())?;
    chosen(op(axis, keepdim), x).map(|(values, indices)| (values, Some(indices)))
}

/// The median of all elements: its equals share the gradient, as in PyTorch.
fn median_of_all(op: fn(usize, bool) -> OrderOp, x: &Tensor) -> Result<Tensor> {
    let flat = x.reshape(&[-1])?;
    if flat.numel() == 0 {
        let nothing = match x.dtype() {
            DType::Bool => Scalar::Bool(true),
            d if d.is_integral() => Scalar::Int(i64::MIN),
            _ => Scalar::Float(f64::NAN),
        };
        return Tensor::constant(nothing, x.dtype(), x.device());
    }
    let (value, _) = median_body(op, &flat.detach()?, Some(0), false)?;
    if !crate::autograd::is_followed(&flat) {
        return Ok(value);
    }
    // Where the median is NaN, what is NaN shares it.
    let none = flat.detach()?.isnan()?.logical_and(&value.isnan()?)?;
    let equal = flat.detach()?.eq(&value)?.logical_or(&none)?;
    r#where(&equal, &flat, Scalar::Float(f64::NEG_INFINITY))?.amax(None, false)
}

fn running_body(op: fn(usize) -> OrderOp, x: &Tensor, dim: isize) -> Result<(Tensor, Tensor)> {
    let row = op(0).schema();
    let axis = shape::wrap_dim(row.name, dim, x.ndim())?;
    // Of less than two elements nothing is compared, so that any dtype will do.
    if x.ndim() > 0 && x.numel() > 0 {
        row.check(x.dtype())?;
    }
    chosen(op(axis), x)
}

impl Tensor {
    /// The largest element along `dim` and its index: see [`max_dim`].
    pub fn max_dim(&self, dim: isize, keepdim: bool) -> Result<(Tensor, Tensor)> {
        max_dim(self, dim, keepdim)
    }

    /// The smallest element along `dim` and its index: see [`min_dim`].
    pub fn min_dim(&self, dim: isize, keepdim: bool) -> Result<(Tensor, Tensor)> {
        min_dim(self, dim, keepdim)
    }
}
