//! The order along one dimension, searching in what is sorted, and quantiles.
//!
//! The primitives are the stable `argsort`, of elements and of rows, and bisection; `order` has those that give elements too.
//! Kernels are in `cpu/sort.rs` and `mlx/sort.rs`. NaN is the largest number, as in PyTorch.

use super::compare::select::r#where;
use super::macros::define_ops;
use super::Operand;
use crate::dispatch::{self, Meta, Prim};
use crate::shape::{self, Shape};
use crate::{DType, Error, Result, Scalar, Tensor};
pub use lucid_ir::ops::sort::*;
use lucid_ir::sort_ops;

sort_ops!(define_ops);

fn argsort_body(x: &Tensor, dim: isize, descending: bool, _stable: bool) -> Result<Tensor> {
    schema::argsort.check(x.dtype())?;
    let axis = shape::wrap_dim("argsort", dim, x.ndim())?;
    if x.ndim() == 0 {
        return x.zeros_like()?.cast(DType::I64);
    }
    dispatch::apply1(
        Prim::Sort(SortOp::ArgSort { axis, descending }),
        &[&x.detach()?],
        Meta::new(x.shape(), DType::I64),
    )
}

fn argsort_rows_body(x: &Tensor) -> Result<Tensor> {
    schema::argsort_rows.check(x.dtype())?;
    let [lead @ .., n, _] = x.shape() else {
        return Err(Error::shape("argsort_rows", "takes matrices", &[x.shape()]));
    };
    let shape: Shape = lead.iter().chain([n]).copied().collect();
    let meta = Meta { shape, dtype: DType::I64 };
    dispatch::apply1(Prim::Sort(SortOp::ArgSortRows), &[&x.detach()?], meta)
}

fn search_body(rows: &Tensor, values: &Tensor, right: bool) -> Result<Tensor> {
    schema::search_rows.check(rows.dtype())?;
    let lead = |t: &Tensor| t.shape().split_last().map(|(_, lead)| Shape::from_slice(lead));
    let same = rows.ndim() == 1 || (rows.ndim() == values.ndim() && lead(rows) == lead(values));
    if rows.ndim() == 0 || !same || rows.dtype() != values.dtype() {
        let why = "values must be of the rows' dtype, and in as many rows, unless there is one row";
        return Err(Error::shape("search_rows", why, &[rows.shape(), values.shape()]));
    }
    let inputs = [&rows.detach()?, &values.detach()?];
    dispatch::apply1(Prim::Sort(SortOp::Search { right }), &inputs, Meta::new(values.shape(), DType::I64))
}

fn msort_body(x: &Tensor) -> Result<Tensor> {
    x.sort(0, false, true).map(|(values, _)| values)
}

/// How many elements along `dim` are NaN, with that dimension kept; NaN is last in order.
fn count_nan(x: &Tensor, dim: isize) -> Result<Tensor> {
    x.detach()?.isnan()?.sum(Some(&[dim]), true, None)
}

/// The dimensions of a quantile as one, the last; and the shape of what is left, with the reduced ones kept as 1 or not.
fn reduced_last(op: &'static str, x: &Tensor, dim: Option<&[isize]>, keepdim: bool) -> Result<(Tensor, Shape)> {
    let axes = match dim {
        None => (0..x.ndim()).collect(),
        Some(dims) => shape::wrap_dims(op, dims, x.ndim())?,
    };
    if x.ndim() == 0 {
        return Ok((x.reshape(&[1])?, Shape::new()));
    }
    let mut order: shape::Axes = (0..x.ndim()).filter(|a| !axes.contains(a)).collect();
    let mut lead: Shape = order.iter().map(|&a| x.shape()[a]).collect();
    order.extend_from_slice(&axes);
    lead.push(crate::shape::product(axes.iter().map(|&a| x.shape()[a])));
    let moved = super::view::permute_axes(x, &order)?;
    Ok((super::view::reshape_to(&moved, &lead)?, shape::reduced_shape(x.shape(), &axes, keepdim)))
}

fn quantile_body(
    skip: bool,
    x: &Tensor,
    q: Operand<'_>,
    dim: Option<isize>,
    keepdim: bool,
    interpolation: &str,
) -> Result<Tensor> {
    let dim = dim.as_ref().map(std::slice::from_ref);
    let op = if skip { "nanquantile" } else { "quantile" };
    if !matches!(x.dtype(), DType::F32 | DType::F64) {
        return Err(Error::dtype(op, "input tensor must be either float or double dtype", &[x.dtype()]));
    }
    if !matches!(interpolation, "linear" | "lower" | "higher" | "midpoint" | "nearest") {
        let why =
            format!("interpolation must be one of linear, lower, higher, midpoint or nearest, but got {interpolation}");
        return Err(Error::runtime(op, why));
    }
    if x.numel() == 0 {
        return Err(Error::shape(op, "input tensor must be non-empty", &[x.shape()]));
    }
    let q = match q {
        Operand::Scalar(s) => Tensor::constant(Scalar::Float(s.to_f64()), x.dtype(), x.device())?,
        Operand::Tensor(q) if q.dtype() != x.dtype() => {
            return Err(Error::dtype(op, "q tensor must be same dtype as the input tensor", &[x.dtype(), q.dtype()]))
        }
        Operand::Tensor(q) if q.ndim() > 1 => {
            return Err(Error::shape(op, "q must be a scalar or 1D tensor", &[q.shape()]))
        }
        // Only between two elements does the place matter.
        Operand::Tensor(q) if interpolation != "linear" => q.detach()?,
        Operand::Tensor(q) => q.clone(),
    };
    // Under vmap, and of meta tensors, nothing can be read, and so nothing refused.
    let readable = !q.is_batched() && q.device() != crate::Device::Meta;
    if readable && !q.detach()?.ge(0)?.logical_and(&q.detach()?.le(1)?)?.all(None, false)?.item_bool()? {
        return Err(Error::runtime(op, "q values must be in the range [0, 1]"));
    }
    let (rows, left) = reduced_last(op, x, dim, keepdim)?;
    let n = rows.shape().last().copied().unwrap_or(1);
    let sorted = rows.sort(-1, false, true)?.0;
    let nans = count_nan(&rows, -1)?;
    // Places (…, q) of the rows (…, n).
    let place = match skip {
        true => q.mul(&((-&nans)? + (n as i64 - 1))?.clamp(Some(0.into()), None)?.cast(q.dtype())?)?,
        false => {
            let place = super::view::expand_to(&q.mul((n - 1) as f64)?.reshape(&[-1])?, &wide(&rows, q.numel()))?;
            r#where(&nans.eq(0)?, &place, Scalar::Float((n - 1) as f64))?
        }
    };
    let place = match interpolation {
        "lower" => place.floor()?,
        "higher" => place.ceil()?,
        "nearest" => place.round(0)?,
        _ => place,
    };
    let at = |p: &Tensor| sorted.gather(-1, &p.detach()?.cast(DType::I64)?);
    let below = place.floor()?;
    let mut values = at(&below)?;
    if matches!(interpolation, "linear" | "midpoint") {
        let above = at(&place.ceil()?)?;
        let weight =
            if interpolation == "midpoint" { ((&place * 0.0)? + 0.5)? } else { (&place - &below.detach()?)? };
        let (span, rest) = ((&above - &values)?, (1.0 - &weight)?);
        // From the nearer end, as PyTorch's `lerp`.
        let near = (&values + &(&span * &weight)?)?;
        values = r#where(&weight.detach()?.lt(0.5)?, &near, &(&above - &(&span * &rest)?)?)?;
    }
    // (…, q) to (q, …).
    if q.ndim() == 0 {
        return super::view::reshape_to(&values, &left);
    }
    let mut whole: Shape = left;
    whole.insert(0, q.numel());
    super::view::reshape_to(&values.movedim(&[-1], &[0])?, &whole)
}

/// The rows' leading dimensions and `n`.
fn wide(rows: &Tensor, n: usize) -> Shape {
    let mut shape = Shape::from_slice(rows.shape());
    shape.pop();
    shape.push(n);
    shape
}
