//! Determinants, inverses and linear systems.
//!
//! Kernels are in `cpu/linalg.rs` (LAPACK) and `gpu/linalg.rs` (MLX's factorisations, which run on its CPU). Matrices are
//! the last two dimensions, those before them a batch.

use super::macros::define_ops;
use crate::autograd::Ctx;
use crate::dispatch::{self, Meta, Prim};
use crate::shape::{self, Shape};
use crate::{Error, Result, Tensor};

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! linalg_ops {
    ($cb:ident) => {
        $cb! { "linalg" LinalgOp :
            /// Sign, logarithm of the absolute value, and value of the determinant, as a last dimension of 3.
            function determinant_parts(input: Tensor) -> Tensor {
                [] Full Yes DTypes::of(&[$crate::DType::F32, $crate::DType::F64]), Same,
                prim DeterminantParts Both {|c, g| [determinant_gradient(c, g)]},
                run determinant_parts_body["determinant_parts"], torch "-", samples []
            }
            /// The inverse of each matrix; an error where one is singular. On the GPU device that is read back, which evaluates.
            method inverse() -> Tensor {
                [] Full Yes DTypes::of(&[$crate::DType::F32, $crate::DType::F64]), Same,
                prim Inverse Output {|c, g| [inverse_gradient(c, g)]},
                run inverse_body, torch "", samples ["N(2, 3, 3)", "N(1, 1, 1)", "N(0, 2, 2)"]
            }
            /// `x` of `A x = B` for each matrix `A` and the columns of `B`, whose batches broadcast; an error where an `A` is
            /// singular. On the GPU device that is read back, which evaluates.
            function solve_matrices(a: Tensor, b: Tensor) -> Tensor {
                [] Full Yes DTypes::of(&[$crate::DType::F32, $crate::DType::F64]), Same,
                prim SolveMatrices Both {|c, g| all solve_gradient(c, g)},
                run solve_body, torch "-", samples []
            }
            /// The determinant of each matrix. The gradient is that of matrices that are not singular; for others it is an error.
            method det() -> Tensor {
                [] Full Yes DTypes::of(&[$crate::DType::F32, $crate::DType::F64]), Same,
                run part_body["det", 2], torch "", samples ["N(2, 3, 3)", "N(1, 2, 2)", "N(2, 0, 0)"]
            }
            /// The logarithm of the determinant of each matrix: -inf where it is 0, NaN where it is negative.
            method logdet() -> Tensor {
                [] Full Yes DTypes::of(&[$crate::DType::F32, $crate::DType::F64]), Same,
                run logdet_body, torch "", samples ["P(2, 1, 1)"]
            }
            /// Sign and logarithm of the absolute value of the determinant of each matrix.
            method slogdet() -> SignLogabsdet {
                [] Full Yes DTypes::of(&[$crate::DType::F32, $crate::DType::F64]), Same,
                run slogdet_body, torch "", samples ["N(2, 3, 3)", "N(1, 2, 2)"]
            }
        }
    };
}
linalg_ops!(define_ops);

/// The batch's sizes, of square matrices of a dtype that can be factored.
fn batch<'a>(op: &'static str, a: &'a Tensor) -> Result<&'a [usize]> {
    schema::inverse.dtypes.has(a.dtype()).then_some(()).ok_or_else(|| {
        Error::dtype(
            op,
            "Low precision, integer and complex matrices cannot be factored; cast to float32",
            &[a.dtype()],
        )
    })?;
    match a.shape() {
        [lead @ .., n, m] if n == m => Ok(lead),
        [_, .., _] => {
            let why = "A must be batches of square matrices";
            Err(Error::shape(op, why, &[a.shape()]))
        }
        _ => Err(Error::shape(op, "The input tensor A must have at least 2 dimensions.", &[a.shape()])),
    }
}

fn determinant_parts_body(op: &'static str, a: &Tensor) -> Result<Tensor> {
    let mut shape = Shape::from_slice(batch(op, a)?);
    shape.push(3);
    dispatch::apply1(Prim::Linalg(LinalgOp::DeterminantParts), &[a], Meta { shape, dtype: a.dtype() })
}

/// `d log|det A| = tr(A⁻¹ dA)`, `d det A = det A tr(A⁻¹ dA)`; the sign is constant.
fn determinant_gradient(c: &Ctx<'_>, g: &Tensor) -> Result<Tensor> {
    let part = |t: &Tensor, i: i64| t.select(-1, i);
    let along = (part(g, 1)? + &(part(g, 2)? * &part(&c.out()?, 2)?)?)?;
    along.unsqueeze(-1)?.unsqueeze(-1)?.mul(&c.x(0)?.inverse()?.transpose(-2, -1)?)
}

/// `-A⁻ᵀ g A⁻ᵀ`.
fn inverse_gradient(c: &Ctx<'_>, g: &Tensor) -> Result<Tensor> {
    let turned = c.out()?.transpose(-2, -1)?;
    turned.matmul(g)?.matmul(&turned)?.neg()
}

fn solve_gradient(c: &Ctx<'_>, g: &Tensor) -> Result<crate::autograd::Grads> {
    let of_b = solve_matrices(&c.x(0)?.transpose(-2, -1)?, g)?;
    let of_a = match c.needs(0) {
        true => Some(of_b.matmul(&c.out()?.transpose(-2, -1)?)?.neg()?),
        false => None,
    };
    let mut grads = crate::autograd::Grads::new();
    grads.push(of_a);
    grads.push(c.needs(1).then_some(of_b));
    Ok(grads)
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

fn part_body(op: &'static str, part: i64, a: &Tensor) -> Result<Tensor> {
    determinant_parts_body(op, a)?.select(-1, part)
}

fn logdet_body(a: &Tensor) -> Result<Tensor> {
    let parts = determinant_parts_body("logdet", a)?;
    let negative = parts.detach()?.select(-1, 0)?.lt(0)?;
    super::compare::select::r#where(&negative, crate::Scalar::Float(f64::NAN), &parts.select(-1, 1)?)
}

fn slogdet_body(a: &Tensor) -> Result<(Tensor, Tensor)> {
    let parts = determinant_parts_body("slogdet", a)?;
    Ok((parts.select(-1, 0)?.detach()?, parts.select(-1, 1)?))
}
