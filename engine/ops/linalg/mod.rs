//! Determinants, inverses, decompositions and linear systems.
//!
//! The primitives of one result; those of decompositions, which have several, are in `decomposition`. `factor` has them under
//! PyTorch's names, `solve` and `ops/matrix.rs` make more of them. Gradient rules are in `gradients`.
//! Kernels are in `cpu/linalg.rs` and `cpu/factor.rs` (LAPACK), and in `mlx/linalg.rs` and `mlx/factor.rs` (MLX's
//! factorisations, which run on its CPU). Matrices are the last two dimensions, those before them a batch.
#![allow(non_snake_case)]

pub mod decomposition;
pub mod factor;
mod gradients;
pub mod lowrank;
pub mod reflect;
pub mod solve;

use self::decomposition::determinant_parts_body;
use self::gradients::{
    eigenvalues_gradient, exponential_gradient, inverse_gradient, pseudo_inverse_gradient, singular_values_gradient,
    solve_gradient, triangle_gradient,
};
use super::compare::select;
use super::macros::define_ops;
use crate::autograd::{with_grad_layout, GradLayoutGuard, GradLayoutRule};
use crate::dispatch::{self, Meta, Prim};
use crate::ops::OpRow;
use crate::shape::{self, Shape};
use crate::{DType, Error, Result, Scalar, Tensor};
use lucid_ir::linalg_ops;
pub use lucid_ir::ops::linalg::*;

linalg_ops!(define_ops);

/// The batch's sizes, of square matrices of a dtype that can be factored.
pub(super) fn batch<'a>(op: &'static str, a: &'a Tensor) -> Result<&'a [usize]> {
    schema::inverse.dtypes.has(a.dtype()).then_some(()).ok_or_else(|| {
        Error::dtype(op, "Low precision and integer matrices cannot be factored; cast to float32", &[a.dtype()])
    })?;
    match a.shape() {
        [lead @ .., n, m] if n == m => Ok(lead),
        [_, .., _] => Err(Error::shape(op, "A must be batches of square matrices", &[a.shape()])),
        _ => Err(Error::shape(op, "The input tensor A must have at least 2 dimensions.", &[a.shape()])),
    }
}

/// The batch's sizes, then rows and columns, of matrices of a dtype that can be factored.
pub(super) fn matrices<'a>(op: &'static str, a: &'a Tensor) -> Result<(&'a [usize], usize, usize)> {
    if !schema::inverse.dtypes.has(a.dtype()) {
        let why = "Low precision and integer matrices cannot be factored; cast to float32";
        return Err(Error::dtype(op, why, &[a.dtype()]));
    }
    match a.shape() {
        [lead @ .., m, n] => Ok((lead, *m, *n)),
        _ => Err(Error::shape(op, "The input tensor A must have at least 2 dimensions.", &[a.shape()])),
    }
}

/// What gives `each` numbers for every matrix.
fn values(op: LinalgOp, a: &Tensor, lead: &[usize], each: usize) -> Result<Tensor> {
    let mut shape = Shape::from_slice(lead);
    shape.push(each);
    let dtype = op.schema().result.of(a.dtype());
    dispatch::apply1(Prim::Linalg(op), &[a], Meta { shape, dtype })
}

/// Matrices in memory of their own, column by column.
pub(super) fn by_columns(t: &Tensor) -> Result<Tensor> {
    t.transpose(-2, -1)?.copy()?.transpose(-2, -1)
}

/// The first parts of a decomposition, as many as are asked for.
pub(super) fn first_of<const N: usize>(mut parts: Vec<Tensor>) -> Result<[Tensor; N]> {
    parts.truncate(N);
    <[Tensor; N]>::try_from(parts).map_err(|_| Error::runtime("linalg", "a decomposition lacks a part"))
}

/// The conjugate transposes.
pub(super) fn adjoint(t: &Tensor) -> Result<Tensor> {
    t.transpose(-2, -1)?.conjugated()
}

/// What is real, but is among complex numbers.
pub(super) fn real_part(t: &Tensor) -> Result<Tensor> {
    if t.dtype().is_complex() {
        super::complex::real(t)
    } else {
        Ok(t.clone())
    }
}

fn singular_values_body(a: &Tensor, driver: Option<&str>) -> Result<Tensor> {
    refuse_driver("linalg.svdvals", driver)?;
    let (lead, m, n) = matrices("linalg.svdvals", a)?;
    values(LinalgOp::SingularValues, a, lead, m.min(n))
}

/// PyTorch's drivers are cuSOLVER's.
pub(super) fn refuse_driver(op: &'static str, driver: Option<&str>) -> Result<()> {
    match driver {
        None => Ok(()),
        Some(_) => Err(Error::runtime(op, "keyword argument `driver=` is only supported on CUDA inputs.")),
    }
}

fn eigenvalues_body(a: &Tensor, uplo: &str) -> Result<Tensor> {
    let lead = batch("linalg.eigvalsh", a)?;
    let a = &with_grad_layout(a, GradLayoutRule::RowMajor)?;
    values(LinalgOp::Eigenvalues, &lower_of("linalg.eigvalsh", a, uplo)?, lead, a.shape()[a.ndim() - 1])
}

/// A matrix whose lower half is the one that `uplo` names.
pub(super) fn lower_of(op: &'static str, a: &Tensor, uplo: &str) -> Result<Tensor> {
    match uplo {
        "L" | "l" => Ok(a.clone()),
        "U" | "u" => adjoint(a),
        other => Err(Error::runtime(op, format!("Expected UPLO argument to be 'L' or 'U', but got {other}"))),
    }
}

fn pseudo_inverse_body(a: &Tensor, atol: f64, rtol: f64, hermitian: bool) -> Result<Tensor> {
    let (lead, m, n) = matrices("linalg.pinv", a)?;
    let shape: Shape = lead.iter().copied().chain([n, m]).collect();
    let op = LinalgOp::PseudoInverse { atol, rtol, hermitian };
    let _lies = GradLayoutGuard::set(GradLayoutRule::Columns);
    dispatch::apply1(Prim::Linalg(op), &[a], Meta { shape, dtype: a.dtype() })
}

fn ldl_solve_body(a: &Tensor, pivots: &Tensor, b: &Tensor, hermitian: bool) -> Result<Tensor> {
    let op = LinalgOp::LdlSolve { hermitian };
    dispatch::apply1(Prim::Linalg(op), &[a, pivots, b], Meta::new(b.shape(), b.dtype()))
}

/// The order of the rows of `P`: row `i` of `L U` is row `order[i]` of the matrix.
pub(super) fn row_order(pivots: &Tensor, m: usize) -> Result<Tensor> {
    row_permutation(&pivots.detach()?.cast(DType::I64)?, m as i64)
}

/// The rows of `x` in another order, of each matrix its own.
pub(super) fn reordered(x: &Tensor, order: &Tensor) -> Result<Tensor> {
    // From columns to columns.
    let x = x.transpose(-2, -1)?;
    let index = super::view::expand_to(&order.unsqueeze(-2)?, x.shape())?;
    x.gather(-1, &index)?.transpose(-2, -1)
}

fn permutation_body(pivots: &Tensor, n: i64) -> Result<Tensor> {
    schema::row_permutation.check(pivots.dtype())?;
    let n = usize::try_from(n).unwrap_or(0);
    let mut shape = Shape::from_slice(&pivots.shape()[..pivots.ndim().saturating_sub(1)]);
    shape.push(n);
    if pivots.numel() == 0 {
        return super::view::expand_to(&super::create::arange_of(n, pivots.device())?, &shape);
    }
    let op = Prim::Linalg(LinalgOp::Permutation { n });
    dispatch::apply1(op, &[pivots], Meta { shape, dtype: DType::I64 })
}

fn triangle_body(a: &Tensor, b: &Tensor, upper: bool, unit: bool) -> Result<Tensor> {
    let op = LinalgOp::SolveTriangular { upper, unit };
    dispatch::apply1(Prim::Linalg(op), &[a, b], Meta::new(b.shape(), b.dtype()))
}

fn exponential_body(a: &Tensor) -> Result<Tensor> {
    if a.dtype().is_half() {
        return exponential_body(&a.cast(DType::F32)?)?.cast(a.dtype());
    }
    batch("linalg.matrix_exp", a)?;
    dispatch::apply1(Prim::Linalg(LinalgOp::Exponential), &[a], Meta::new(a.shape(), a.dtype()))
}

fn inverse_body(a: &Tensor) -> Result<Tensor> {
    batch("inverse", a)?;
    dispatch::apply1(Prim::Linalg(LinalgOp::Inverse), &[a], Meta::new(a.shape(), a.dtype()))
}

fn solve_body(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let op = "solve";
    let lead = batch(op, a)?;
    if a.dtype() != b.dtype() {
        return Err(Error::dtype(op, "Expected A and B to have the same dtype", &[a.dtype(), b.dtype()]));
    }
    let n = a.shape()[a.ndim() - 1];
    if b.ndim() < 2 || b.shape()[b.ndim() - 2] != n {
        return Err(Error::shape(
            op,
            "Incompatible shapes of A and B for the equation AX = B",
            &[a.shape(), b.shape()],
        ));
    }
    let mut shape = shape::broadcast(op, lead, &b.shape()[..b.ndim() - 2])?;
    let rank = shape.len();
    shape.extend_from_slice(&[n, n]);
    let a = super::view::expand_to(a, &shape)?;
    shape[rank + 1] = b.shape()[b.ndim() - 1];
    let b = super::view::expand_to(b, &shape)?;
    dispatch::apply1(Prim::Linalg(LinalgOp::SolveMatrices), &[&a, &b], Meta { shape, dtype: a.dtype() })
}

fn det_body(a: &Tensor) -> Result<Tensor> {
    // A copy, so that the graph has it as the one result of its step.
    let [_, _, det] = first_of(determinant_parts_body("det", a)?)?;
    det.copy()
}

fn logdet_body(a: &Tensor) -> Result<Tensor> {
    let [sign, log] = first_of(determinant_parts_body("logdet", a)?)?;
    if a.dtype().is_complex() {
        return sign.log()? + &log;
    }
    let negative = sign.detach()?.lt(0)?;
    select::r#where(&negative, Scalar::Float(f64::NAN), &log)
}

fn slogdet_body(a: &Tensor) -> Result<(Tensor, Tensor)> {
    let [sign, log] = first_of(determinant_parts_body("slogdet", a)?)?;
    Ok((sign, log))
}

/// LAPACK's word on each matrix: refused where it is not 0, looking also through what `vmap` hides.
pub(in crate::ops) fn refuse(info: &Tensor, why: impl FnOnce(i64) -> Box<Error>) -> Result<()> {
    let worst = crate::batching::bare(info).detach()?;
    // Without elements, as on the device meta, there is nothing to refuse.
    if worst.numel() == 0 || worst.device() == crate::Device::Meta {
        return Ok(());
    }
    match worst.amax(None, false)?.item()?.to_i64() {
        0 => Ok(()),
        n => Err(why(n)),
    }
}
