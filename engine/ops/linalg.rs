//! Determinants, inverses, decompositions and linear systems.
//!
//! The primitives of decompositions, whose parts lie one behind the other in one result; `ops/matrix.rs` takes them apart.
//! Kernels are in `cpu/linalg.rs` and `cpu/factor.rs` (LAPACK), and in `gpu/linalg.rs` and `gpu/factor.rs` (MLX's
//! factorisations, which run on its CPU). Matrices are the last two dimensions, those before them a batch.
#![allow(non_snake_case)]

use super::compare::select;
use super::macros::define_ops;
use crate::autograd::Ctx;
use crate::dispatch::{self, Meta, Prim};
use crate::shape::{self, Shape};
use crate::{DType, Error, Result, Scalar, Tensor};

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
                run determinant_parts_body["determinant_parts"], torch "-", samples []
            }
            /// The lower Cholesky factor of each matrix, row by row, and behind it 0, or the order of the leading minor that is
            /// not positive. Reads the lower half.
            function cholesky_parts(input: Tensor) -> Tensor {
                [] Full Yes DTypes::FACTORED, Same,
                prim CholeskyParts Output {|c, g| [cholesky_gradient(c, g)]},
                run cholesky_parts_body, torch "-", samples []
            }
            /// Q and R of each matrix, with min(m, n) columns and rows, one behind the other.
            function qr_parts(input: Tensor) -> Tensor {
                [] Full Yes DTypes::FACTORED, Same,
                prim QrParts Output {|c, g| [qr_gradient(c, g)]},
                run qr_parts_body, torch "-", samples []
            }
            /// Eigenvalues in ascending order, then eigenvectors as columns, of each symmetric matrix, one behind the other.
            /// Reads the lower half. An error where a number is not finite; on the GPU device that is read back.
            function eigh_parts(input: Tensor) -> Tensor {
                [] Full Yes DTypes::FACTORED, Same,
                prim EighParts Output {|c, g| [eigh_gradient(c, g)]},
                run eigh_parts_body, torch "-", samples []
            }
            /// Eigenvalues, then with `vectors` eigenvectors of norm 1 as columns, of each square matrix, one behind the other, as
            /// complex64. An error where a number is not finite; on the GPU device that is read back.
            function eig_parts(input: Tensor, vectors: Bool) -> Tensor {
                [] Full Yes DTypes::of(&[$crate::DType::F32, $crate::DType::C64]), Own,
                prim EigParts { vectors: bool } Both {|c, g| [eig_gradient(c, g, *vectors)]},
                run eig_parts_body, torch "-", samples []
            }
            /// U, the singular values in descending order, and Vᴴ of each matrix, one behind the other; with `full` all columns of
            /// U and V. An error where a number is not finite; on the GPU device that is read back.
            function svd_parts(input: Tensor, full: Bool) -> Tensor {
                [] Full Yes DTypes::FACTORED, Same,
                prim SvdParts { full: bool } Output {|c, g| [svd_gradient(c, g, *full)]},
                run svd_parts_body, torch "-", samples []
            }
            /// `P L U` of each matrix: L below the diagonal and U from it on in one matrix, the rows that were exchanged, counted
            /// from 1, and the number of the first pivot that is zero, or 0, one behind the other.
            function lu_parts(input: Tensor) -> Tensor {
                [] Full Yes DTypes::FACTORED, Same,
                prim LuParts Output {|c, g| [lu_gradient(c, g)]},
                run lu_parts_body, torch "-", samples []
            }
            /// The order of `n` rows that exchanging them one after the other leads to, by pivots counted from 1. On the GPU
            /// device they are read back, which evaluates.
            function row_permutation(pivots: Tensor, n: Int) -> Tensor {
                [plain nograd] Keep Yes DTypes::of(&[$crate::DType::I64]), Same,
                prim Permutation { n: usize } Nothing {none},
                run permutation_body, torch "-", samples []
            }
            /// `x` of `A x = B` for triangular matrices, whose other half is not read, and the columns of `B`, of one batch shape;
            /// with `unit` the diagonal counts as ones.
            function solve_triangle(a: Tensor, b: Tensor, upper: Bool, unit: Bool) -> Tensor {
                [] Full Yes DTypes::FACTORED, Same,
                prim SolveTriangular { upper: bool, unit: bool } Both {|c, g| all triangle_gradient(c, g, *upper, *unit)},
                run triangle_body, torch "-", samples []
            }
            /// The eigenvalues of each symmetric matrix in ascending order. Reads the lower half, with `UPLO` "U" the upper one.
            function linalg_eigvalsh(A: Tensor, UPLO: Text = "L") -> Tensor {
                [] Full Yes DTypes::FACTORED, Real,
                prim Eigenvalues First {|c, g| [eigenvalues_gradient(c, g)]},
                run eigenvalues_body, torch "linalg.eigvalsh", samples ["SYM(3, 3)", "SYM(2, 4, 4), 'U'", "SYM(1, 1)", "N(0, 0)"]
            }
            /// The singular values of each matrix, in descending order.
            function linalg_svdvals(A: Tensor; driver: OptText = None) -> Tensor {
                [] Full Yes DTypes::FACTORED, Real,
                prim SingularValues First {|c, g| [singular_values_gradient(c, g)]},
                run singular_values_body, torch "linalg.svdvals", samples ["N(3, 3)", "N(2, 3, 4)", "N(4, 2)", "N(2, 0)"]
            }
            /// The pseudoinverse of each matrix: singular values up to the larger of `atol` and `rtol` times the largest count as 0.
            function pseudo_inverse(input: Tensor, atol: Float, rtol: Float) -> Tensor {
                [] Full Yes DTypes::FACTORED, Same,
                prim PseudoInverse { atol: f64, rtol: f64 } Both {|c, g| [pseudo_inverse_gradient(c, g)]},
                run pseudo_inverse_body, torch "-", samples []
            }
            /// The exponential of each matrix, `Σ Aᵏ / k!`, by scaling and squaring (Moler and Van Loan, 2003). On the GPU device the
            /// largest norm is read back, which evaluates.
            function linalg_matrix_exp(A: Tensor) -> Tensor {
                [] Full Yes DTypes::INEXACT, Same,
                prim Exponential First {|c, g| [exponential_gradient(c, g)]},
                run exponential_body, torch "linalg.matrix_exp", samples ["N(3, 3)", "N(2, 2, 2)", "N(1, 1)", "N(0, 0)"]
            }
            /// The inverse of each matrix; an error where one is singular. On the GPU device that is read back, which evaluates.
            method inverse() -> Tensor {
                [] Full Yes DTypes::FACTORED, Same,
                prim Inverse Output {|c, g| [inverse_gradient(c, g)]},
                run inverse_body, torch "", samples ["N(2, 3, 3)", "N(1, 1, 1)", "N(0, 2, 2)"]
            }
            /// `x` of `A x = B` for each matrix `A` and the columns of `B`, whose batches broadcast; an error where an `A` is
            /// singular. On the GPU device that is read back, which evaluates.
            function solve_matrices(a: Tensor, b: Tensor) -> Tensor {
                [] Full Yes DTypes::FACTORED, Same,
                prim SolveMatrices Both {|c, g| all solve_gradient(c, g)},
                run solve_body, torch "-", samples []
            }
            /// The determinant of each matrix. The gradient is that of its cofactors, also where the matrix is singular.
            method det() -> Tensor {
                [] Full Yes DTypes::FACTORED, Same,
                run part_body["det", 2], torch "", samples ["N(2, 3, 3)", "N(1, 2, 2)", "N(2, 0, 0)"]
            }
            /// The logarithm of the determinant of each matrix: -inf where it is 0, NaN where it is negative.
            method logdet() -> Tensor {
                [] Full Yes DTypes::FACTORED, Same,
                run logdet_body, torch "", samples ["P(2, 1, 1)"]
            }
            /// Sign and logarithm of the absolute value of the determinant of each matrix.
            method slogdet() -> SignLogabsdet {
                [] Full Yes DTypes::FACTORED, Same,
                run slogdet_body, torch "", samples ["N(2, 3, 3)", "N(1, 2, 2)"]
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

/// The parts of the last dimension, each in its shape.
pub(super) fn unpacked(t: &Tensor, shapes: &[&[usize]]) -> Result<Vec<Tensor>> {
    let (mut from, lead) = (0, &t.shape()[..t.ndim() - 1]);
    let mut found = Vec::with_capacity(shapes.len());
    for part in shapes {
        let size: usize = part.iter().product();
        let shape: Shape = lead.iter().chain(part.iter()).copied().collect();
        found.push(super::view::reshape_to(&t.narrow(-1, from, size as i64)?, &shape)?);
        from += size as i64;
    }
    Ok(found)
}

fn two(mut parts: Vec<Tensor>) -> Result<[Tensor; 2]> {
    parts.truncate(2);
    <[Tensor; 2]>::try_from(parts).map_err(|_| Error::runtime("linalg", "a decomposition lacks a part"))
}

pub(super) fn three(mut parts: Vec<Tensor>) -> Result<[Tensor; 3]> {
    parts.truncate(3);
    <[Tensor; 3]>::try_from(parts).map_err(|_| Error::runtime("linalg", "a decomposition lacks a part"))
}

/// Rows and columns of a gradient rule's matrix.
fn sides(c: &Ctx<'_>) -> (usize, usize) {
    match c.shape(0).as_slice() {
        [.., m, n] => (*m, *n),
        _ => (0, 0),
    }
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

/// In the diagonal's place its real part.
fn real_diagonal(t: &Tensor) -> Result<Tensor> {
    match t.dtype().is_complex() {
        true => off_diagonal(t)? + &real_part(&t.diagonal(0, -2, -1)?)?.cast(t.dtype())?.diag_embed(0, -2, -1)?,
        false => Ok(t.clone()),
    }
}

/// The gradient of what is unique up to a factor of absolute value 1 must not depend on that factor: refuses one whose
/// component along it, in a diagonal's imaginary part, is not 0. On the CPU alone, where reading costs nothing.
fn refuse_phase(op: &'static str, along: &Tensor) -> Result<()> {
    if !along.dtype().is_complex() || along.numel() == 0 || along.device() != crate::Device::Cpu {
        return Ok(());
    }
    let along = crate::batching::bare(along).detach()?;
    match super::complex::imag(&along)?.abs()?.amax(None, false)?.item_f64()? {
        most if most > 1e-2 => {
            let why =
                "the vectors are unique up to factors of absolute value 1 alone; the loss depends on them, so that \
                       its gradient is not defined";
            Err(Error::runtime(op, why))
        }
        _ => Ok(()),
    }
}

/// `a / b`, and 0 where both are 0: of equal values, and nothing asked of them.
fn quotient(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let none = a.detach()?.eq(0)?.logical_and(&b.detach()?.eq(0)?)?;
    a / &select::r#where(&none, Scalar::ONE, b)?
}

fn cholesky_parts_body(a: &Tensor) -> Result<Tensor> {
    let lead = batch("linalg.cholesky", a)?;
    let n = a.shape()[a.ndim() - 1];
    parts(LinalgOp::CholeskyParts, a, lead, n * n + 1)
}

/// `L⁻ᴴ Φ(Lᴴ g) L⁻¹ / 2`, where Φ copies the lower half up, conjugated (Murray, 2016).
fn cholesky_gradient(c: &Ctx<'_>, g: &Tensor) -> Result<Tensor> {
    let (n, _) = sides(c);
    let shapes: [&[usize]; 2] = [&[n, n], &[1]];
    let ([l, _], [g, _]) = (two(unpacked(&c.out()?, &shapes)?)?, two(unpacked(g, &shapes)?)?);
    let upper = adjoint(&l)?;
    let x = upper.matmul(&g)?;
    let phi = ((x.tril(0)? + &adjoint(&x.tril(-1)?)?)? * 0.5)?;
    let half = adjoint(&solve_triangle(&upper, &phi, true, false)?)?;
    adjoint(&solve_triangle(&upper, &half, true, false)?)
}

fn qr_parts_body(a: &Tensor) -> Result<Tensor> {
    let (lead, m, n) = matrices("linalg.qr", a)?;
    let k = m.min(n);
    parts(LinalgOp::QrParts, a, lead, m * k + k * n)
}

/// Of a matrix that is not wide `(g_Q + Q sym(R g_Rᵀ - g_Qᵀ Q)) R⁻ᵀ`, where sym copies the lower half up; of a wide one the
/// same of its square part, after the columns behind it (Roberts and Roberts, 2020).
fn qr_gradient(c: &Ctx<'_>, g: &Tensor) -> Result<Tensor> {
    let (m, n) = sides(c);
    let k = m.min(n);
    let shapes: [&[usize]; 2] = [&[m, k], &[k, n]];
    let ([q, r], [gq, gr]) = (two(unpacked(&c.out()?, &shapes)?)?, two(unpacked(g, &shapes)?)?);
    let tall = |gq: &Tensor, r: &Tensor, gr: &Tensor| -> Result<Tensor> {
        let x = (r.matmul(&adjoint(gr)?)? - &adjoint(gq)?.matmul(&q)?)?;
        let both = real_diagonal(&(x.tril(0)? + &adjoint(&x.tril(-1)?)?)?)?;
        adjoint(&solve_triangle(r, &adjoint(&(gq + &q.matmul(&both)?)?)?, true, false)?)
    };
    if m >= n {
        return tall(&gq, &r, &gr);
    }
    let cut = |t: &Tensor| -> Result<(Tensor, Tensor)> {
        Ok((t.narrow(-1, 0, m as i64)?, t.narrow(-1, m as i64, (n - m) as i64)?))
    };
    let ((u, v), (gu, gv)) = (cut(&r)?, cut(&gr)?);
    let behind = q.matmul(&v)?;
    let gq = (&gq + &behind.matmul(&adjoint(&gv)?)?)?;
    super::index::cat(&[tall(&gq, &u, &gu)?, q.matmul(&gv)?], -1)
}

fn eigh_parts_body(a: &Tensor) -> Result<Tensor> {
    let lead = batch("linalg.eigh", a)?;
    let n = a.shape()[a.ndim() - 1];
    parts(LinalgOp::EighParts, a, lead, n + n * n)
}

/// `V (diag(g_λ) + (Vᴴ g_V) / (λⱼ - λᵢ)) Vᴴ` (Giles, 2008).
fn eigh_gradient(c: &Ctx<'_>, g: &Tensor) -> Result<Tensor> {
    let (n, _) = sides(c);
    let shapes: [&[usize]; 2] = [&[n], &[n, n]];
    let ([w, v], [gw, gv]) = (two(unpacked(&c.out()?, &shapes)?)?, two(unpacked(g, &shapes)?)?);
    let w = real_part(&w)?;
    let gaps = (w.unsqueeze(-2)? - &w.unsqueeze(-1)?)?;
    let x = adjoint(&v)?.matmul(&gv)?;
    refuse_phase("linalg.eigh", &x.diagonal(0, -2, -1)?)?;
    let x = off_diagonal(&x)?;
    let inner = (quotient(&x, &gaps)? + &gw.diag_embed(0, -2, -1)?)?;
    let whole = v.matmul(&inner)?.matmul(&adjoint(&v)?)?;
    // One half is read: its gradient goes to both, evenly.
    (&whole + &adjoint(&whole)?)? * 0.5
}

fn eig_parts_body(a: &Tensor, vectors: bool) -> Result<Tensor> {
    schema::eig_parts.check(a.dtype())?;
    let mut shape = Shape::from_slice(batch("linalg.eig", a)?);
    let n = a.shape()[a.ndim() - 1];
    shape.push(if vectors { n + n * n } else { n });
    dispatch::apply1(Prim::Linalg(LinalgOp::EigParts { vectors }), &[a], Meta { shape, dtype: DType::C64 })
}

/// `V⁻ᴴ (diag(g_λ) + (Vᴴ g_V - Vᴴ V diag(Re Vᴴ g_V)) / conj(λⱼ - λᵢ)) Vᴴ`, of a real matrix the real part.
fn eig_gradient(c: &Ctx<'_>, g: &Tensor, vectors: bool) -> Result<Tensor> {
    let (n, _) = sides(c);
    let shapes: [&[usize]; 2] = [&[n], &[n, n]];
    let whole = if vectors { c.out()? } else { eig_parts(&c.x(0)?, true)? };
    let [w, v] = two(unpacked(&whole, &shapes)?)?;
    let vh = adjoint(&v)?;
    let inner = if vectors {
        let [gw, gv] = two(unpacked(g, &shapes)?)?;
        let x = vh.matmul(&gv)?;
        let own = x.diagonal(0, -2, -1)?;
        refuse_phase("linalg.eig", &own)?;
        let x = (x - &(vh.matmul(&v)? * &real_part(&own)?.unsqueeze(-2)?)?)?;
        let gaps = (w.unsqueeze(-2)? - &w.unsqueeze(-1)?)?.conjugated()?;
        (quotient(&off_diagonal(&x)?, &gaps)? + &gw.diag_embed(0, -2, -1)?)?
    } else {
        g.diag_embed(0, -2, -1)?
    };
    let total = solve_matrices(&vh, &inner.matmul(&vh)?)?;
    match c.x(0)?.dtype().is_complex() {
        true => Ok(total),
        false => real_part(&total),
    }
}

fn off_diagonal(x: &Tensor) -> Result<Tensor> {
    x.tril(-1)? + &x.triu(1)?
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
    let mut parts = unpacked(&svd_parts(a, false)?, &[&[m, k], &[k], &[k, n]])?;
    parts[1] = real_part(&parts[1])?;
    Ok(parts)
}

/// Townsend's formula (2016); columns that belong to no singular value have no gradient.
fn svd_gradient(c: &Ctx<'_>, g: &Tensor, full: bool) -> Result<Tensor> {
    let (m, n) = sides(c);
    let k = m.min(n);
    let (ku, kv) = if full { (m, n) } else { (k, k) };
    let shapes: [&[usize]; 3] = [&[m, ku], &[k], &[kv, n]];
    let thin = |t: &Tensor| -> Result<[Tensor; 3]> {
        let [u, s, vt] = three(unpacked(t, &shapes)?)?;
        Ok([u.narrow(-1, 0, k as i64)?, s, vt.narrow(-2, 0, k as i64)?])
    };
    let ([u, s, vt], [gu, gs, gvt]) = (thin(&c.out()?)?, thin(g)?);
    let (ut, v, gv) = (adjoint(&u)?, adjoint(&vt)?, adjoint(&gvt)?);
    let s = real_part(&s)?;
    let squares = s.square()?;
    let gaps = (squares.unsqueeze(-2)? - &squares.unsqueeze(-1)?)?;
    let skew = |x: Tensor| -> Result<Tensor> { quotient(&off_diagonal(&(&x - &adjoint(&x)?)?)?, &gaps) };
    let (row, column) = (s.unsqueeze(-2)?, s.unsqueeze(-1)?);
    let (along_u, along_v) = (ut.matmul(&gu)?, vt.matmul(&gv)?);
    let mut of_s = gs;
    if along_u.dtype().is_complex() {
        // U and V turn together: a factor of one column of both is free, that of U alone is not.
        let (own_u, own_v) = (along_u.diagonal(0, -2, -1)?, along_v.diagonal(0, -2, -1)?);
        refuse_phase("linalg.svd", &(&own_u + &own_v)?)?;
        of_s = (of_s + &quotient(&(&own_u - &own_u.conjugated()?)?, &(&s * 2.0)?)?)?;
    }
    let of_u = (skew(along_u)? * &row)?;
    let of_v = (skew(along_v)? * &column)?;
    let inner = ((of_u + &of_v)? + &of_s.diag_embed(0, -2, -1)?)?;
    let mut total = u.matmul(&inner)?.matmul(&vt)?;
    if m > k {
        let rest = (&gu - &u.matmul(&ut.matmul(&gu)?)?)?;
        total = (total + &quotient(&rest, &row)?.matmul(&vt)?)?;
    }
    if n > k {
        let rest = (&gvt - &gvt.matmul(&v)?.matmul(&vt)?)?;
        total = (total + &u.matmul(&quotient(&rest, &column)?)?)?;
    }
    Ok(total)
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

fn singular_values_gradient(c: &Ctx<'_>, g: &Tensor) -> Result<Tensor> {
    let [u, _, vt] = three(svd_thin(&c.x(0)?)?)?;
    (u * &g.unsqueeze(-2)?)?.matmul(&vt)
}

fn eigenvalues_body(a: &Tensor, uplo: &str) -> Result<Tensor> {
    let lead = batch("linalg.eigvalsh", a)?;
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

fn eigenvalues_gradient(c: &Ctx<'_>, g: &Tensor) -> Result<Tensor> {
    let (n, _) = sides(c);
    let [_, v] = two(unpacked(&eigh_parts(&c.x(0)?)?, &[&[n], &[n, n]])?)?;
    (&v * &g.unsqueeze(-2)?)?.matmul(&adjoint(&v)?)
}

fn pseudo_inverse_body(a: &Tensor, atol: f64, rtol: f64) -> Result<Tensor> {
    let (lead, m, n) = matrices("linalg.pinv", a)?;
    let shape: Shape = lead.iter().copied().chain([n, m]).collect();
    dispatch::apply1(Prim::Linalg(LinalgOp::PseudoInverse { atol, rtol }), &[a], Meta { shape, dtype: a.dtype() })
}

/// `dP = -P dA P + P Pᵀ dAᵀ (I - A P) + (I - P A) dAᵀ Pᵀ P` (Golub and Pereyra, 1973), where the rank stays.
fn pseudo_inverse_gradient(c: &Ctx<'_>, g: &Tensor) -> Result<Tensor> {
    let (a, p) = (c.x(0)?, c.out()?);
    let (pt, gt) = (adjoint(&p)?, adjoint(g)?);
    let own = adjoint(&p.matmul(&gt)?.matmul(&p)?)?;
    // The smaller products first: `left` is short on the side of the columns, `right` on that of the rows.
    let k = gt.matmul(&p)?.matmul(&pt)?;
    let left = (&k - &a.matmul(&p.matmul(&k)?)?)?;
    let k = pt.matmul(&p.matmul(&gt)?)?;
    let right = (&k - &k.matmul(&p)?.matmul(&a)?)?;
    (left - &own)? + &right
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
    let index = super::view::expand_to(&order.unsqueeze(-1)?, x.shape())?;
    x.gather(-2, &index)
}

/// With `L⁻ᵀ (tril(Lᵀ g_L) + triu(g_U Uᵀ)) U⁻ᵀ` for the square part, and for what is beside or below it what follows from
/// `A₂ = L U₂` and `A₂ = L₂ U`.
fn lu_gradient(c: &Ctx<'_>, g: &Tensor) -> Result<Tensor> {
    let (m, n) = sides(c);
    let k = m.min(n);
    let shapes: [&[usize]; 3] = [&[m, n], &[k], &[1]];
    let ([lu, pivots, _], [g, ..]) = (three(unpacked(&c.out()?, &shapes)?)?, three(unpacked(g, &shapes)?)?);
    let (square, rest) = (k as i64, (m.max(n) - k) as i64);
    let corner = |t: &Tensor| t.narrow(-1, 0, square)?.narrow(-2, 0, square);
    let (own, g1) = (corner(&lu)?, corner(&g)?);
    let eye = super::create::identity(k, lu.dtype(), lu.device())?;
    let (lt, u) = ((adjoint(&own.tril(-1)?)? + &eye)?, own.triu(0)?);
    let mut left = lt.matmul(&g1.tril(-1)?)?;
    let mut right = g1.triu(0)?.matmul(&adjoint(&u)?)?;
    let by_u = |x: &Tensor| adjoint(&solve_triangle(&u, &adjoint(x)?, true, false)?);
    let mut outside = None;
    if n > k {
        let (u2, g2) = (lu.narrow(-1, square, rest)?, g.narrow(-1, square, rest)?);
        left = (left - &g2.matmul(&adjoint(&u2)?)?)?;
        outside = Some((solve_triangle(&lt, &g2, true, true)?, -1));
    } else if m > k {
        let (l2, g2) = (lu.narrow(-2, square, rest)?, g.narrow(-2, square, rest)?);
        right = (right - &adjoint(&l2)?.matmul(&g2)?)?;
        outside = Some((by_u(&g2)?, -2));
    }
    let inner = (left.tril(-1)? + &right.triu(0)?)?;
    let mut total = by_u(&solve_triangle(&lt, &inner, true, true)?)?;
    if let Some((beside, dim)) = outside {
        total = super::index::cat(&[total, beside], dim)?;
    }
    let back = row_order(&pivots, m)?.argsort(-1, false, true)?;
    reordered(&total, &back)
}

fn permutation_body(pivots: &Tensor, n: i64) -> Result<Tensor> {
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

fn triangle_gradient(c: &Ctx<'_>, g: &Tensor, upper: bool, unit: bool) -> Result<crate::autograd::Grads> {
    let of_b = solve_triangle(&adjoint(&c.x(0)?)?, g, !upper, unit)?;
    let mut grads = crate::autograd::Grads::new();
    grads.push(match c.needs(0) {
        true => {
            let whole = of_b.matmul(&adjoint(&c.out()?)?)?.neg()?;
            let inside = i64::from(unit);
            Some(if upper { whole.triu(inside)? } else { whole.tril(-inside)? })
        }
        false => None,
    });
    grads.push(c.needs(1).then_some(of_b));
    Ok(grads)
}

fn exponential_body(a: &Tensor) -> Result<Tensor> {
    if matches!(a.dtype(), DType::F16 | DType::BF16) {
        return exponential_body(&a.cast(DType::F32)?)?.cast(a.dtype());
    }
    batch("linalg.matrix_exp", a)?;
    dispatch::apply1(Prim::Linalg(LinalgOp::Exponential), &[a], Meta::new(a.shape(), a.dtype()))
}

/// The upper right block of the exponential of `[[Aᵀ, g], [0, Aᵀ]]` (Al-Mohy and Higham, 2009).
fn exponential_gradient(c: &Ctx<'_>, g: &Tensor) -> Result<Tensor> {
    let (n, _) = sides(c);
    let at = adjoint(&c.x(0)?)?;
    let above = super::index::cat(&[at.clone(), g.clone()], -1)?;
    let below = super::index::cat(&[g.zeros_like()?, at], -1)?;
    let whole = linalg_matrix_exp(&super::index::cat(&[above, below], -2)?)?;
    whole.narrow(-2, 0, n as i64)?.narrow(-1, n as i64, n as i64)
}

fn determinant_parts_body(op: &'static str, a: &Tensor) -> Result<Tensor> {
    let mut shape = Shape::from_slice(batch(op, a)?);
    shape.push(3);
    dispatch::apply1(Prim::Linalg(LinalgOp::DeterminantParts), &[a], Meta { shape, dtype: a.dtype() })
}

/// `d log|det A| = Re tr(A⁻¹ dA)`, `d det A = tr(adj A dA)`; a real sign is constant. Where a matrix is singular, its cofactors are
/// made of its singular values, and the logarithm's gradient is infinite.
fn determinant_gradient(c: &Ctx<'_>, g: &Tensor) -> Result<Tensor> {
    let part = |t: &Tensor, i: i64| t.select(-1, i);
    let wide = |t: Tensor| t.unsqueeze(-1)?.unsqueeze(-1);
    let (a, out) = (c.x(0)?, c.out()?);
    let mut along = (part(g, 1)? + &(part(g, 2)? * &part(&out, 2)?.conjugated()?)?)?;
    if a.dtype().is_complex() {
        // The sign turns by the imaginary part of what the logarithm grows by.
        let turn = (part(g, 0)? * &part(&out, 0)?.conjugated()?)?;
        along = (along + &((&turn - &turn.conjugated()?)? * 0.5)?)?;
    }
    let singular = part(&out.detach()?, 0)?.eq(0)?;
    if matches!(singular.any(None, false)?.item_bool(), Ok(false)) {
        return wide(along)?.mul(&adjoint(&a.inverse()?)?);
    }
    // Each branch gets matrices that it can take.
    let n = a.shape()[a.ndim() - 1];
    let eye = super::create::identity(n, a.dtype(), a.device())?;
    let singular = wide(singular)?;
    let regular = select::r#where(&singular, &eye, &a)?.inverse()?;
    let regular = adjoint(&regular)?;
    let odd = select::r#where(&singular, &a, &eye)?;
    let [u, s, vt] = three(svd_thin(&odd)?)?;
    let others = super::scan::product_of_others(&s, s.ndim() - 1)?;
    let turn = wide((u.det()? * &vt.det()?)?.conjugated()?)?;
    let cofactors = ((&u * &others.unsqueeze(-2)?)?.matmul(&vt)? * &turn)?;
    // Nothing times infinity would be no number: only where the logarithm was asked for.
    let of_log = part(g, 1)?;
    let asked = wide(of_log.detach()?.ne(0)?)?;
    let infinite = (cofactors.detach()? / 0.0)?.where_else_zero(&asked)?;
    let at_singular = ((wide(part(g, 2)?)? * &cofactors)? + &(wide(of_log)? * &infinite)?.where_else_zero(&asked)?)?;
    let plain = wide(along.where_else_zero(&singular.squeeze(Some(&[-1]))?.squeeze(Some(&[-1]))?.logical_not()?)?)?;
    select::r#where(&singular, &at_singular, &plain.mul(&regular)?)
}

/// `-A⁻ᴴ g A⁻ᴴ`.
fn inverse_gradient(c: &Ctx<'_>, g: &Tensor) -> Result<Tensor> {
    let inverse = adjoint(&c.out()?)?;
    inverse.matmul(g)?.matmul(&inverse)?.neg()
}

fn solve_gradient(c: &Ctx<'_>, g: &Tensor) -> Result<crate::autograd::Grads> {
    let of_b = solve_matrices(&adjoint(&c.x(0)?)?, g)?;
    let of_a = match c.needs(0) {
        true => Some(of_b.matmul(&adjoint(&c.out()?)?)?.neg()?),
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
    if a.dtype().is_complex() {
        return parts.select(-1, 0)?.log()? + &real_part(&parts.select(-1, 1)?)?;
    }
    let negative = parts.detach()?.select(-1, 0)?.lt(0)?;
    select::r#where(&negative, Scalar::Float(f64::NAN), &parts.select(-1, 1)?)
}

fn slogdet_body(a: &Tensor) -> Result<(Tensor, Tensor)> {
    let parts = determinant_parts_body("slogdet", a)?;
    Ok((parts.select(-1, 0)?, real_part(&parts.select(-1, 1)?)?))
}
