//! Determinants, inverses, decompositions and linear systems.
//!
//! The primitives, of which those of decompositions give their parts one behind the other in one result; `factor` takes
//! them apart, `solve` and `ops/matrix.rs` make more of them. Gradient rules are in `gradients`.
//! Kernels are in `cpu/linalg.rs` and `cpu/factor.rs` (LAPACK), and in `gpu/linalg.rs` and `gpu/factor.rs` (MLX's
//! factorisations, which run on its CPU). Matrices are the last two dimensions, those before them a batch.
#![allow(non_snake_case)]

pub mod factor;
mod gradients;
pub mod lowrank;
pub mod reflect;
pub mod solve;

use self::gradients::{
    cholesky_gradient, determinant_gradient, eig_gradient, eigenvalues_gradient, eigh_gradient, exponential_gradient,
    inverse_gradient, lu_gradient, pseudo_inverse_gradient, qr_gradient, singular_values_gradient, solve_gradient,
    svd_gradient, triangle_gradient,
};
use super::compare::select;
use super::macros::define_ops;
use crate::autograd::{laid_back, Lay, Laying};
use crate::dispatch::{self, Meta, Prim};
use crate::shape::{self, Shape};
use crate::{autograd, DType, Error, Result, Scalar, Tensor};

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! linalg_ops {
    ($cb:ident) => {
        $cb! { "linalg" LinalgOp :
            /// Sign, logarithm of the absolute value, and value of the determinant, as a last dimension of 3.
            function determinant_parts(input: Tensor) -> Tensor {
                [] Full Yes DTypes::FACTORED, Same,
                prim DeterminantParts Both {|c, g| [determinant_gradient(c, g)]},
                run determinant_parts_body["determinant_parts"], torch "-", samples [],
                example [
                    "let parts = determinant_parts(&tensor([[1.0, 2.0], [3.0, 4.0]])?)?;",
                    "assert_close(parts, [-1.0, 0.69315, -2.0]);",
                ]
            }
            /// The lower Cholesky factor of each matrix, column by column, and behind it 0, or the order of the leading minor that is
            /// not positive. Reads the lower half.
            function cholesky_parts(input: Tensor) -> Tensor {
                [] Full Yes DTypes::FACTORED, Same,
                prim CholeskyParts Output {|c, g| [cholesky_gradient(c, g)]},
                run cholesky_parts_body, torch "-", samples [],
                example ["assert_close(cholesky_parts(&tensor([[4.0, 2.0], [2.0, 10.0]])?)?, [2.0, 1.0, 0.0, 3.0, 0.0]);"]
            }
            /// Q and R of each matrix, with min(m, n) columns and rows, one behind the other, each column by column.
            function qr_parts(input: Tensor) -> Tensor {
                [] Full Yes DTypes::FACTORED, Same,
                prim QrParts Output {|c, g| [qr_gradient(c, g)]},
                run qr_parts_body, torch "-", samples [],
                example [
                    "let parts = qr_parts(&tensor([[3.0], [4.0]])?)?;",
                    "assert_close(parts.abs()?, [0.6, 0.8, 5.0]);",
                ]
            }
            /// Eigenvalues in ascending order, then the eigenvectors of each symmetric matrix, one behind the other.
            /// Reads the lower half. An error where a number is not finite; on the GPU device that is read back.
            function eigh_parts(input: Tensor) -> Tensor {
                [] Full Yes DTypes::FACTORED, Same,
                prim EighParts Output {|c, g| [eigh_gradient(c, g)]},
                run eigh_parts_body, torch "-", samples [],
                example [
                    "let parts = eigh_parts(&tensor([[3.0, 0.0], [0.0, 2.0]])?)?;",
                    "assert_close(parts.abs()?, [2.0, 3.0, 0.0, 1.0, 1.0, 0.0]);",
                ]
            }
            /// Eigenvalues, then with `vectors` eigenvectors of norm 1, of each square matrix, one behind the other, as
            /// complex numbers. An error where a number is not finite; on the GPU device that is read back.
            function eig_parts(input: Tensor, vectors: Bool) -> Tensor {
                [] Full Yes DTypes::FACTORED, Own,
                prim EigParts { vectors: bool } Both {|c, g| [eig_gradient(c, g, *vectors)]},
                run eig_parts_body, torch "-", samples [],
                example [
                    "let parts = eig_parts(&tensor([[0.0, -1.0], [1.0, 0.0]])?, false)?;",
                    "assert_close(parts.abs()?, [1.0f32, 1.0]);",
                ]
            }
            /// U, the singular values in descending order, and Vᴴ of each matrix, one behind the other, column by column; with `full`
            /// all columns of U and V. An error where a number is not finite; on the GPU device that is read back.
            function svd_parts(input: Tensor, full: Bool) -> Tensor {
                [] Full Yes DTypes::FACTORED, Same,
                prim SvdParts { full: bool } Output {|c, g| [svd_gradient(c, g, *full)]},
                run svd_parts_body, torch "-", samples [],
                example [
                    "let parts = svd_parts(&tensor([[0.0, 2.0], [3.0, 0.0]])?, false)?;",
                    "assert_close(parts.abs()?, [0.0, 1.0, 1.0, 0.0, 3.0, 2.0, 1.0, 0.0, 0.0, 1.0]);",
                ]
            }
            /// `P L U` of each matrix: L below the diagonal and U from it on in one matrix, by columns, the rows that were exchanged,
            /// counted from 1, and the number of the first pivot that is zero, or 0, one behind the other.
            function lu_parts(input: Tensor) -> Tensor {
                [] Full Yes DTypes::FACTORED, Same,
                prim LuParts Output {|c, g| [lu_gradient(c, g)]},
                run lu_parts_body, torch "-", samples [],
                example [
                    "let parts = lu_parts(&tensor([[2.0, 1.0], [4.0, 3.0]])?)?;",
                    "assert_close(parts, [4.0, 0.5, 3.0, -0.5, 2.0, 2.0, 0.0]);",
                ]
            }
            /// `R` from the diagonal on and the vectors of Householder's reflections below it, in one matrix, by columns,
            /// then the reflections' factors. On the GPU device the matrices are read back, which evaluates.
            function reflector_parts(input: Tensor) -> Tensor {
                [] Full Yes DTypes::FACTORED, Same,
                prim ReflectorParts Nothing {|c, g| all c.not_differentiable()},
                run reflector_parts_body, torch "-", samples [],
                example [
                    "let parts = reflector_parts(&tensor([[3.0], [4.0]])?)?;",
                    "assert_close(parts, [-5.0, 0.5, 1.6]);",
                ]
            }
            /// `L D Lᵀ`, if `hermitian` `L D Lᴴ`, of each symmetric matrix, in the lower half of one matrix, by columns; then the
            /// pivots of Bunch and Kaufman, and the number of the first block of `D` that is zero, or 0. Reads the lower half. On the GPU
            /// device the matrices are read back, which evaluates.
            function ldl_parts(input: Tensor, hermitian: Bool) -> Tensor {
                [] Full Yes DTypes::FACTORED, Same,
                prim LdlParts { hermitian: bool } Nothing {|c, g| all c.not_differentiable()},
                run ldl_parts_body, torch "-", samples [],
                example [
                    "let parts = ldl_parts(&tensor([[2.0, 0.0], [1.0, 3.0]])?, false)?;",
                    "assert_close(parts.narrow(0, 4, 3)?, [1.0, 2.0, 0.0]);",
                ]
            }
            /// `x` of `A x = B` from what `ldl_parts` gave, of one batch shape, with pivots of int32. An error where these are none.
            /// On the GPU device all is read back, which evaluates.
            function ldl_solve_matrices(a: Tensor, pivots: Tensor, b: Tensor, hermitian: Bool) -> Tensor {
                [] Full Yes DTypes::FACTORED, Same,
                prim LdlSolve { hermitian: bool } Nothing {|c, g| all c.not_differentiable()},
                run ldl_solve_body, torch "-", samples [],
                example [
                    "let (factors, pivots) = (tensor([[2.0, 0.0], [0.5, 2.5]])?, tensor([1, 2])?.cast(DType::I32)?);",
                    "let x = ldl_solve_matrices(&factors, &pivots, &tensor([[3.0], [4.0]])?, false)?;",
                    "assert_close(x, [[1.0], [1.0]]);",
                ]
            }
            /// The order of `n` rows that exchanging them one after the other leads to, by pivots counted from 1. On the GPU
            /// device they are read back, which evaluates.
            function row_permutation(pivots: Tensor, n: Int) -> Tensor {
                [plain nograd] Keep Yes DTypes::of(&[$crate::DType::I64]), Same,
                prim Permutation { n: usize } Nothing {none},
                run permutation_body, torch "-", samples [],
                example ["assert_close(row_permutation(&tensor([2, 2])?, 2)?, [1, 0]);"]
            }
            /// `x` of `A x = B` for triangular matrices, whose other half is not read, and the columns of `B`, of one batch shape;
            /// with `unit` the diagonal counts as ones.
            function solve_triangle(a: Tensor, b: Tensor, upper: Bool, unit: Bool) -> Tensor {
                [] Full Yes DTypes::FACTORED, Same,
                prim SolveTriangular { upper: bool, unit: bool } Both {|c, g| all triangle_gradient(c, g, *upper, *unit)},
                run triangle_body, torch "-", samples [],
                example [
                    "let x = solve_triangle(&tensor([[2.0, 0.0], [1.0, 3.0]])?, &tensor([[2.0], [4.0]])?, false, false)?;",
                    "assert_close(x, [[1.0], [1.0]]);",
                ]
            }
            /// The eigenvalues of each symmetric matrix in ascending order. Reads the lower half, with `UPLO` "U" the upper one.
            function linalg_eigvalsh(A: Tensor, UPLO: Text = "L") -> Tensor {
                [] Full Yes DTypes::FACTORED, Real,
                prim Eigenvalues First {|c, g| [eigenvalues_gradient(c, g)]},
                run eigenvalues_body, torch "linalg.eigvalsh", samples ["SYM(3, 3)", "SYM(2, 4, 4), 'U'", "SYM(1, 1)", "N(0, 0)"],
                example [r#"assert_close(linalg_eigvalsh(&tensor([[2.0, 1.0], [1.0, 2.0]])?, "L")?, [1.0, 3.0]);"#]
            }
            /// The singular values of each matrix, in descending order.
            function linalg_svdvals(A: Tensor; driver: OptText = None) -> Tensor {
                [] Full Yes DTypes::FACTORED, Real,
                prim SingularValues First {|c, g| [singular_values_gradient(c, g)]},
                run singular_values_body, torch "linalg.svdvals", samples ["N(3, 3)", "N(2, 3, 4)", "N(4, 2)", "N(2, 0)"],
                example ["assert_close(linalg_svdvals(&tensor([[0.0, 2.0], [-3.0, 0.0]])?, None)?, [3.0, 2.0]);"]
            }
            /// The pseudoinverse of each matrix: singular values up to the larger of `atol` and `rtol` times the largest count as 0.
            /// Of `hermitian` matrices the lower half is read, and the gradient is that of matrices that are.
            function pseudo_inverse(input: Tensor, atol: Float, rtol: Float, hermitian: Bool) -> Tensor {
                [] Full Yes DTypes::FACTORED, Same,
                prim PseudoInverse { atol: f64, rtol: f64, hermitian: bool } Both {|c, g| [pseudo_inverse_gradient(c, g)]},
                run pseudo_inverse_body, torch "-", samples [],
                example [
                    "let x = pseudo_inverse(&tensor([[2.0, 0.0], [0.0, 0.0]])?, 0.0, 1e-6, false)?;",
                    "assert_close(x, [[0.5, 0.0], [0.0, 0.0]]);",
                ]
            }
            /// The exponential of each matrix, `Σ Aᵏ / k!`, by scaling and squaring (Moler and Van Loan, 2003). On the GPU device the
            /// largest norm is read back, which evaluates.
            function linalg_matrix_exp(A: Tensor) -> Tensor {
                [no_out] Full Yes DTypes::INEXACT, Same,
                prim Exponential First {|c, g| [exponential_gradient(c, g)]},
                run exponential_body, torch "linalg.matrix_exp", samples ["N(3, 3)", "N(2, 2, 2)", "N(1, 1)", "N(0, 0)"],
                example ["assert_close(linalg_matrix_exp(&tensor([[0.0, 1.0], [0.0, 0.0]])?)?, [[1.0, 1.0], [0.0, 1.0]]);"]
            }
            /// The inverse of each matrix; an error where one is singular. On the GPU device that is read back, which evaluates.
            method inverse() -> Tensor {
                [] Full Yes DTypes::FACTORED, Same,
                prim Inverse Output {|c, g| [inverse_gradient(c, g)]},
                run inverse_body, torch "", samples ["N(2, 3, 3)", "N(1, 1, 1)", "N(0, 2, 2)"],
                example ["assert_close(tensor([[2.0, 0.0], [0.0, 4.0]])?.inverse()?, [[0.5, 0.0], [0.0, 0.25]]);"]
            }
            /// `x` of `A x = B` for each matrix `A` and the columns of `B`, whose batches broadcast; an error where an `A` is
            /// singular. On the GPU device that is read back, which evaluates.
            function solve_matrices(a: Tensor, b: Tensor) -> Tensor {
                [] Full Yes DTypes::FACTORED, Same,
                prim SolveMatrices Both {|c, g| all solve_gradient(c, g)},
                run solve_body, torch "-", samples [],
                example [
                    "let x = solve_matrices(&tensor([[2.0, 1.0], [1.0, 3.0]])?, &tensor([[3.0], [4.0]])?)?;",
                    "assert_close(x, [[1.0], [1.0]]);",
                ]
            }
            /// The determinant of each matrix. The gradient is that of its cofactors, also where the matrix is singular.
            method det() -> Tensor {
                [no_out] Full Yes DTypes::FACTORED, Same,
                run part_body["det", 2], torch "", samples ["N(2, 3, 3)", "N(1, 2, 2)", "N(2, 0, 0)"],
                example ["assert_close(tensor([[1.0, 2.0], [3.0, 4.0]])?.det()?, -2.0);"]
            }
            /// The logarithm of the determinant of each matrix: -inf where it is 0, NaN where it is negative.
            method logdet() -> Tensor {
                [no_out] Full Yes DTypes::FACTORED, Same,
                run logdet_body, torch "", samples ["P(2, 1, 1)"],
                example ["assert_close(tensor([[2.0, 0.0], [0.0, 3.0]])?.logdet()?, 6f64.ln());"]
            }
            /// Sign and logarithm of the absolute value of the determinant of each matrix.
            method slogdet() -> SignLogabsdet {
                [] Full Yes DTypes::FACTORED, Same,
                run slogdet_body, torch "", samples ["N(2, 3, 3)", "N(1, 2, 2)"],
                example [
                    "let (sign, logabsdet) = tensor([[1.0, 2.0], [3.0, 4.0]])?.slogdet()?;",
                    "assert_close(sign, -1.0);",
                    "assert_close(logabsdet, 2f64.ln());",
                ]
            }
        }
    };
}
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

/// What a decomposition gives: `each` numbers for every matrix.
fn parts(op: LinalgOp, a: &Tensor, lead: &[usize], each: usize) -> Result<Tensor> {
    let mut shape = Shape::from_slice(lead);
    shape.push(each);
    let dtype = op.schema().result.of(a.dtype());
    dispatch::apply1(Prim::Linalg(op), &[a], Meta { shape, dtype })
}

impl LinalgOp {
    /// Is the result matrices, which lie column by column, as LAPACK leaves them?
    pub(crate) fn gives_columns(&self) -> bool {
        matches!(
            self,
            LinalgOp::Inverse | LinalgOp::SolveMatrices | LinalgOp::SolveTriangular { .. } | LinalgOp::LdlSolve { .. }
        )
    }
}

/// The parts of the last dimension, each in its shape, after `own` had them as they lie: matrices by columns.
fn parted(t: &Tensor, shapes: &[&[usize]], own: impl Fn(Tensor) -> Result<Tensor>) -> Result<Vec<Tensor>> {
    let (mut from, lead) = (0, &t.shape()[..t.ndim() - 1]);
    let mut found = Vec::with_capacity(shapes.len());
    for part in shapes {
        let size: usize = part.iter().product();
        let shape: Shape = lead.iter().chain(part.iter().rev()).copied().collect();
        let lying = own(super::view::reshape_to(&t.narrow(-1, from, size as i64)?, &shape)?)?;
        found.push(if part.len() == 2 { lying.transpose(-2, -1)? } else { lying });
        from += size as i64;
    }
    Ok(found)
}

/// The parts of the last dimension, each in its shape; matrices lie by columns.
pub(super) fn unpacked(t: &Tensor, shapes: &[&[usize]]) -> Result<Vec<Tensor>> {
    parted(t, shapes, Ok)
}

/// [`unpacked`] for the user: tensors of their own, so that a write to one of them is none to the others.
pub(super) fn handed(t: &Tensor, shapes: &[&[usize]]) -> Result<Vec<Tensor>> {
    parted(t, shapes, |part| part.copy())
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

/// What is real, but lies among complex numbers.
pub(super) fn real_part(t: &Tensor) -> Result<Tensor> {
    if t.dtype().is_complex() {
        super::complex::real(t)
    } else {
        Ok(t.clone())
    }
}

fn cholesky_parts_body(a: &Tensor) -> Result<Tensor> {
    let lead = batch("linalg.cholesky", a)?;
    let n = a.shape()[a.ndim() - 1];
    parts(LinalgOp::CholeskyParts, a, lead, n * n + 1)
}

fn qr_parts_body(a: &Tensor) -> Result<Tensor> {
    let (lead, m, n) = matrices("linalg.qr", a)?;
    let k = m.min(n);
    parts(LinalgOp::QrParts, a, lead, m * k + k * n)
}

fn eigh_parts_body(a: &Tensor) -> Result<Tensor> {
    let lead = batch("linalg.eigh", a)?;
    let n = a.shape()[a.ndim() - 1];
    parts(LinalgOp::EighParts, a, lead, n + n * n)
}

fn eig_parts_body(a: &Tensor, vectors: bool) -> Result<Tensor> {
    schema::eig_parts.check(a.dtype())?;
    let mut shape = Shape::from_slice(batch("linalg.eig", a)?);
    let n = a.shape()[a.ndim() - 1];
    shape.push(if vectors { n + n * n } else { n });
    dispatch::apply1(Prim::Linalg(LinalgOp::EigParts { vectors }), &[a], Meta { shape, dtype: a.dtype().to_complex() })
}

fn svd_parts_body(a: &Tensor, full: bool) -> Result<Tensor> {
    let (lead, m, n) = matrices("linalg.svd", a)?;
    let k = m.min(n);
    let each = if full { m * m + k + n * n } else { m * k + k + k * n };
    parts(LinalgOp::SvdParts { full }, a, lead, each)
}

/// `U`, the singular values and `Vᴴ`, without what belongs to none.
pub(super) fn svd_thin(a: &Tensor) -> Result<Vec<Tensor>> {
    let (_, m, n) = matrices("linalg.svd", a)?;
    let k = m.min(n);
    let mut parts = handed(&svd_parts(a, false)?, &[&[m, k], &[k], &[k, n]])?;
    parts[1] = real_part(&parts[1])?;
    Ok(parts)
}

fn singular_values_body(a: &Tensor, driver: Option<&str>) -> Result<Tensor> {
    refuse_driver("linalg.svdvals", driver)?;
    let (lead, m, n) = matrices("linalg.svdvals", a)?;
    parts(LinalgOp::SingularValues, a, lead, m.min(n))
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
    let a = &laid_back(a, Lay::RowMajor)?;
    parts(LinalgOp::Eigenvalues, &lower_of("linalg.eigvalsh", a, uplo)?, lead, a.shape()[a.ndim() - 1])
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
    let _lies = Laying::set(Lay::Columns);
    dispatch::apply1(Prim::Linalg(op), &[a], Meta { shape, dtype: a.dtype() })
}

fn reflector_parts_body(a: &Tensor) -> Result<Tensor> {
    let (lead, m, n) = matrices("geqrf", a)?;
    parts(LinalgOp::ReflectorParts, a, lead, m * n + m.min(n))
}

fn ldl_parts_body(a: &Tensor, hermitian: bool) -> Result<Tensor> {
    let lead = batch("linalg.ldl_factor", a)?;
    let n = a.shape()[a.ndim() - 1];
    parts(LinalgOp::LdlParts { hermitian }, a, lead, n * n + n + 1)
}

fn ldl_solve_body(a: &Tensor, pivots: &Tensor, b: &Tensor, hermitian: bool) -> Result<Tensor> {
    let op = LinalgOp::LdlSolve { hermitian };
    dispatch::apply1(Prim::Linalg(op), &[a, pivots, b], Meta::new(b.shape(), b.dtype()))
}

fn lu_parts_body(a: &Tensor) -> Result<Tensor> {
    let (lead, m, n) = matrices("linalg.lu", a)?;
    parts(LinalgOp::LuParts, a, lead, m * n + m.min(n) + 1)
}

/// The order of the rows of `P`: row `i` of `L U` is row `order[i]` of the matrix.
pub(super) fn row_order(pivots: &Tensor, m: usize) -> Result<Tensor> {
    row_permutation(&real_part(&pivots.detach()?)?.cast(DType::I64)?, m as i64)
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

fn determinant_parts_body(op: &'static str, a: &Tensor) -> Result<Tensor> {
    let mut shape = Shape::from_slice(batch(op, a)?);
    shape.push(3);
    dispatch::apply1(Prim::Linalg(LinalgOp::DeterminantParts), &[a], Meta { shape, dtype: a.dtype() })
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
    determinant_parts_body(op, a)?.select(-1, part)?.contiguous()
}

fn logdet_body(a: &Tensor) -> Result<Tensor> {
    let parts = determinant_parts_body("logdet", a)?;
    if a.dtype().is_complex() {
        return parts.select(-1, 0)?.log()? + &real_part(&parts.select(-1, 1)?)?;
    }
    let negative = parts.detach()?.select(-1, 0)?.lt(0)?;
    select::r#where(&negative, Scalar::Float(f64::NAN), &parts.select(-1, 1)?)
}

fn slogdet_body(a: &Tensor) -> Result<(Tensor, Tensor)> {
    let parts = determinant_parts_body("slogdet", a)?;
    let mut sign = parts.select(-1, 0)?.copy()?;
    if !a.dtype().is_complex() {
        sign = sign.detach()?;
        autograd::leading_nowhere(&sign, "LinalgSlogdetBackward0", &[a])?;
    }
    Ok((sign, real_part(&parts.select(-1, 1)?)?.copy()?))
}

/// LAPACK's word on each matrix: refused where it is not 0, looking also through what `vmap` hides.
pub(in crate::ops) fn refuse(info: &Tensor, why: impl FnOnce(i64) -> Box<Error>) -> Result<()> {
    let worst = crate::batching::bare(info).detach()?;
    if worst.numel() == 0 {
        return Ok(());
    }
    match worst.amax(None, false)?.item()?.to_i64() {
        0 => Ok(()),
        n => Err(why(n)),
    }
}
