//! Running sums, products and extrema along one dimension.
//!
//! Kernels are in `cpu/scan.rs` and `mlx/reduce.rs`.

use super::macros::define_ops;
use super::OpRow;
use crate::autograd::{Ctx, Grads};
use crate::dispatch::{self, Meta, Prim};
use crate::shape::{self, Shape};
use crate::{DType, Device, Error, Result, Scalar, Tensor};
pub use lucid_ir::ops::scan::*;
use lucid_ir::scan_ops;

scan_ops!(define_ops);

fn scan(op: ScanOp, x: &[&Tensor], dtype: DType) -> Result<Tensor> {
    dispatch::apply1(Prim::Scan(op), x, Meta::new(x[0].shape(), dtype))
}

fn accumulate(op: fn(usize) -> ScanOp, x: &Tensor, dim: isize, dtype: Option<DType>) -> Result<Tensor> {
    let schema = op(0).schema();
    let axis = shape::wrap_dim(schema.name, dim, x.ndim())?;
    if dtype == Some(DType::Bool) {
        let why = "does not run in bool; ask for an integer dtype";
        return Err(Error::dtype(schema.name, why, &[x.dtype(), DType::Bool]));
    }
    let dtype = dtype.unwrap_or(schema.result.of(x.dtype()));
    crate::warnings::of_cast(x.dtype(), dtype);
    let x = x.cast(dtype)?;
    schema.check(x.dtype())?;
    if x.ndim() == 0 {
        return x.reshape(&[1])?.cumsum(0, None)?.reshape(());
    }
    scan(op(axis), &[&x], x.dtype())
}

fn cumsum_reversed(g: &Tensor, axis: usize) -> Result<Tensor> {
    let dim = [axis as isize];
    g.flip(&dim)?.cumsum(dim[0], None)?.flip(&dim)
}

/// Each element in the place of its follower along `axis`, behind a first one of `fill`.
fn delayed(x: &Tensor, axis: usize, fill: Scalar) -> Result<Tensor> {
    let n = x.shape()[axis];
    if n == 0 {
        return Ok(x.clone());
    }
    let mut shape = Shape::from_slice(x.shape());
    shape[axis] = 1;
    let first = Tensor::full_of(&shape, fill, x.dtype(), x.device())?;
    super::index::cat(&[first, x.narrow(axis as isize, 0, n as i64 - 1)?], axis as isize)
}

/// The product, for each element, of all the others along `axis`: those before it times those behind it.
pub(crate) fn product_of_others(x: &Tensor, axis: usize) -> Result<Tensor> {
    let dim = [axis as isize];
    let before = |x: &Tensor| delayed(&x.cumprod(dim[0], None)?, axis, Scalar::ONE);
    before(x)? * &before(&x.flip(&dim)?)?.flip(&dim)?
}

fn recurrence_body(factors: &Tensor, terms: &Tensor, dim: isize) -> Result<Tensor> {
    let schema = &schema::linear_recurrence;
    schema.check(factors.dtype())?;
    if factors.shape() != terms.shape() || factors.ndim() == 0 {
        let why = "takes factors and terms of one shape, of one dimension at least";
        return Err(Error::shape(schema.name, why, &[factors.shape(), terms.shape()]));
    }
    if factors.dtype() != terms.dtype() {
        let why = "takes factors and terms of one dtype";
        return Err(Error::dtype(schema.name, why, &[factors.dtype(), terms.dtype()]));
    }
    let axis = shape::wrap_dim(schema.name, dim, factors.ndim())?;
    scan(ScanOp::Recur { axis }, &[factors, terms], terms.dtype())
}

/// `y[i] = terms[i] + factors[i + 1] y[i + 1]`: the recurrence from the other end.
fn recurrence_back(factors: &Tensor, terms: &Tensor, axis: usize) -> Result<Tensor> {
    let dim = [axis as isize];
    let factors = delayed(&factors.flip(&dim)?, axis, Scalar::ZERO)?;
    linear_recurrence(&factors, &terms.flip(&dim)?, dim[0])?.flip(&dim)
}

fn recurrence_gradient(c: &Ctx<'_>, g: &Tensor, axis: usize) -> Result<Grads> {
    let of_terms = recurrence_back(&c.x(0)?.conjugated()?, g, axis)?;
    let mut grads = Grads::new();
    grads.push(match c.needs(0) {
        true => Some((&of_terms * &delayed(&c.out()?, axis, Scalar::ZERO)?.conjugated()?)?),
        false => None,
    });
    grads.push(c.needs(1).then_some(of_terms));
    Ok(grads)
}

/// `Σ g[k] Π x[j]` over `k ≥ i` and `j ≤ k`, `j ≠ i`: the product before `i` times a recurrence of what follows. Where no
/// element is zero the sum of `g[k] y[k]` by the element, as in PyTorch, which infinities and NaN show in.
fn cumprod_gradient(c: &Ctx<'_>, g: &Tensor, axis: usize) -> Result<Tensor> {
    let (x, y) = (c.x(0)?, c.out()?);
    if x.shape()[axis] == 1 {
        return Ok(g.clone());
    }
    // Asked on the CPU alone, where nothing waits for the answer.
    let zero = || x.detach()?.eq(0)?.any(None, false)?.item_bool();
    if x.device() == Device::Cpu && matches!(zero(), Ok(false)) {
        return cumsum_reversed(&(g * &y.conjugated()?)?, axis)? / &x.conjugated()?;
    }
    if !crate::grad_enabled() && !x.is_batched() {
        return cumprod_by_zeros(&x, &y, g, axis);
    }
    let before = delayed(&y, axis, Scalar::ONE)?.conjugated()?;
    before * &recurrence_back(&x.conjugated()?, g, axis)?
}

/// [`cumprod_gradient`] beside zeros, part by part as PyTorch does, so that infinities and NaN go where they go there: what is
/// behind the second zero gets nothing, the first zero the products around it, and what is before it sums over quotients.
fn cumprod_by_zeros(x: &Tensor, y: &Tensor, g: &Tensor, axis: usize) -> Result<Tensor> {
    let dim = axis as isize;
    let (conj, w) = (x.conjugated()?, (g * &y.conjugated()?)?);
    let zero = x.eq(0)?;
    let zeros = zero.cumsum(dim, None)?;
    let before = zeros.eq(0)?;
    let first = zero.logical_and(&zeros.eq(1)?)?;
    let behind = zeros.eq(1)?.logical_and(&zero.logical_not()?)?;
    let quotients = (cumsum_reversed(&w.where_else_zero(&before)?, axis)? / &conj)?;
    let products = super::compare::select::r#where(&behind, &conj, Scalar::ONE)?.cumprod(dim, None)?;
    let sums = (products * &g.where_else_zero(&zeros.eq(1)?)?)?.sum(Some(&[dim]), true, None)?;
    let at_first = (delayed(&y.conjugated()?, axis, Scalar::ONE)? * &sums)?;
    let rest = at_first.where_else_zero(&first)?;
    super::compare::select::r#where(&before, &quotients, &rest)
}

fn logcumsumexp_body(x: &Tensor, dim: isize) -> Result<Tensor> {
    let schema = &schema::logcumsumexp;
    let axis = shape::wrap_dim(schema.name, dim, x.ndim())?;
    schema.check(x.dtype())?;
    if x.ndim() == 0 {
        return logcumsumexp_body(&x.reshape(&[1])?, 0)?.reshape(());
    }
    // PyTorch's gradient of it is row-major.
    let _lies = crate::autograd::GradLayoutGuard::set(crate::autograd::GradLayoutRule::RowMajor);
    scan(ScanOp::LogSumExp { axis }, &[x], x.dtype())
}

/// `Σ g[k] e^(x[i] - y[k])` over `k ≥ i`, from factors that are, of real numbers, at most 1: `e^(y[i-1] - y[i])` and `e^(x[i] - y[i])`.
fn logcumsumexp_gradient(c: &Ctx<'_>, g: &Tensor, axis: usize) -> Result<Tensor> {
    let y = c.out()?;
    let before = delayed(&y, axis, Scalar::Float(f64::NEG_INFINITY))?;
    // Between infinities of one sign nothing is added: the factor is 1.
    let same = before.detach()?.eq(&y)?;
    let step = super::compare::select::r#where(&same, Scalar::ZERO, &(before - &y)?)?;
    let (own, step) = ((c.x(0)? - &y)?.exp()?.conjugated()?, step.exp()?.conjugated()?);
    own * &recurrence_back(&step, g, axis)?
}
