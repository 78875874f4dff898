//! Decompositions under PyTorch's names: `linalg_qr` is `torch.linalg.qr`, and so on.
//!
//! Made of the primitives in `linalg`, which give the parts of a decomposition in one result; gradients follow from theirs.
//! Matrices are the last two dimensions, those before them a batch. Complex ones are factored on the CPU alone.
#![allow(non_snake_case)]

use super::{
    adjoint, batch, eigh_parts, lower_of, lu_parts, matrices, real_part, refuse, refuse_driver, row_order, svd_parts,
    unpacked,
};
use crate::ops::macros::define_ops;
use crate::shape::Shape;
use crate::{DType, Error, Result, Scalar, Tensor};

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! factor_ops {
    ($cb:ident) => { $cb! { "factor" FactorOp :
        /// The lower triangular `L` of `A = L Lᴴ`, or with `upper` its conjugate transpose. Reads the lower half, and gives a symmetric
        /// gradient. An error where a matrix is not positive definite; on the GPU device that is read back, which evaluates.
        function linalg_cholesky(A: Tensor; upper: Bool = false) -> Tensor {
            [] Full Yes DTypes::FACTORED, Same,
            run cholesky_body, torch "linalg.cholesky", samples ["SPD(3, 3)", "SPD(2, 4, 4), upper=True", "N(0, 0)"]
        }
        /// [`linalg_cholesky`], and for each matrix 0 or the order of the leading minor that is not positive, as int32; what is in
        /// the factor is not defined then. With `check_errors` an error instead.
        function linalg_cholesky_ex(A: Tensor; upper: Bool = false, check_errors: Bool = false) -> Named {
            [] Full Yes DTypes::FACTORED, Own,
            run cholesky_ex_body, torch "linalg.cholesky_ex", samples ["SPD(3, 3)", "SPD(2, 2, 2), upper=True"]
        }
        /// `Q` with orthonormal columns and the upper triangular `R` of `A = Q R`. `mode` "reduced" gives min(m, n) columns,
        /// "complete" all m, "r" an empty `Q`.
        function linalg_qr(A: Tensor, mode: Text = "reduced") -> Named {
            [] Full Yes DTypes::FACTORED, Same,
            run qr_body, torch "linalg.qr", samples ["N(4, 3)", "N(2, 3, 4)", "REG(2, 3, 3)", "N(2, 0)"]
        }
        /// The eigenvalues of each symmetric matrix in ascending order, and the eigenvectors as columns. Reads the lower half,
        /// with `UPLO` "U" the upper one, and gives a symmetric gradient; that of the vectors is infinite where eigenvalues are
        /// equal.
        function linalg_eigh(A: Tensor, UPLO: Text = "L") -> Named {
            [] Full Yes DTypes::FACTORED, Same,
            run eigh_body, torch "linalg.eigh", samples ["SYM(3, 3)", "SYM(2, 4, 4), 'U'", "N(0, 0)"]
        }
        /// The eigenvalues of each square matrix and eigenvectors of norm 1 as columns, both complex64; there is no complex128,
        /// so that float64 is refused. A gradient of the vectors must not depend on their phases.
        function linalg_eig(A: Tensor) -> Named {
            [] Full Yes DTypes::of(&[$crate::DType::F32, $crate::DType::C64]), Own,
            run eig_body, torch "linalg.eig", samples []
        }
        /// The eigenvalues of each square matrix as complex64, in no order.
        function linalg_eigvals(A: Tensor) -> Tensor {
            [] Full Yes DTypes::of(&[$crate::DType::F32, $crate::DType::C64]), Own,
            run eigvals_body, torch "linalg.eigvals", samples []
        }
        /// `U`, the singular values in descending order, and `Vᴴ` of `A = U S Vᴴ`; with `full_matrices` all columns of U and V.
        /// Columns that belong to no singular value have no gradient; that of the others is infinite where two values are equal.
        function linalg_svd(A: Tensor, full_matrices: Bool = true; driver: OptText = None) -> Named {
            [] Full Yes DTypes::FACTORED, Same,
            run svd_body, torch "linalg.svd", samples ["N(3, 3)", "N(2, 4, 3), False", "N(3, 4), full_matrices=False"]
        }
        /// `P`, `L` and `U` of `A = P L U`, with a unit lower triangular `L` and an upper triangular `U`.
        function linalg_lu(A: Tensor; pivot: Bool = true) -> Named {
            [] Full Yes DTypes::FACTORED, Same,
            run lu_body, torch "linalg.lu", samples ["REG(3, 3)", "N(2, 4, 3)", "N(3, 5)"]
        }
        /// `L` below the diagonal and `U` from it on, in one matrix, and the rows exchanged, counted from 1, as int32. An error
        /// where a pivot is zero.
        function linalg_lu_factor(A: Tensor; pivot: Bool = true) -> Named {
            [] Full Yes DTypes::FACTORED, Own,
            run lu_factor_body, torch "linalg.lu_factor", samples ["REG(3, 3)", "N(2, 4, 3)", "N(3, 5)"]
        }
        /// [`linalg_lu_factor`], and for each matrix 0 or the number of the first pivot that is zero, as int32. With
        /// `check_errors` an error instead.
        function linalg_lu_factor_ex(A: Tensor; pivot: Bool = true, check_errors: Bool = false) -> Named {
            [] Full Yes DTypes::FACTORED, Own,
            run lu_factor_ex_body, torch "linalg.lu_factor_ex", samples ["N(3, 3)", "N(2, 2, 3)"]
        }
    }};
}
factor_ops!(define_ops);

fn cholesky_ex_body(a: &Tensor, upper: bool, check_errors: bool) -> Result<Vec<Tensor>> {
    let op = "linalg.cholesky";
    batch(op, a)?;
    let n = a.shape()[a.ndim() - 1];
    let parts = unpacked(&super::cholesky_parts(a)?, &[&[n, n], &[]])?;
    let info = real_part(&parts[1].detach()?)?.cast(DType::I32)?;
    if check_errors {
        refuse(&info, |minor| {
            let why = format!(
                "The factorization could not be completed because the input is not positive-definite (the leading minor \
                 of order {minor} is not positive-definite)."
            );
            Error::runtime(op, why)
        })?;
    }
    Ok(vec![if upper { adjoint(&parts[0])? } else { parts[0].clone() }, info])
}

fn cholesky_body(a: &Tensor, upper: bool) -> Result<Tensor> {
    Ok(cholesky_ex_body(a, upper, true)?.swap_remove(0))
}

fn qr_body(a: &Tensor, mode: &str) -> Result<Vec<Tensor>> {
    let op = "linalg.qr";
    let (_, m, n) = matrices(op, a)?;
    let k = m.min(n);
    match mode {
        "reduced" => unpacked(&super::qr_parts(a)?, &[&[m, k], &[k, n]]),
        "r" => {
            let r = unpacked(&super::qr_parts(a)?, &[&[m, k], &[k, n]])?.swap_remove(1);
            Ok(vec![Tensor::full_of(&[0], Scalar::ZERO, a.dtype(), a.device())?, r])
        }
        "complete" if m <= n => unpacked(&super::qr_parts(a)?, &[&[m, k], &[k, n]]),
        "complete" => {
            // The reflections of the first n columns are those of the matrix alone.
            let mut shape = Shape::from_slice(a.shape());
            shape[a.ndim() - 1] = m;
            let eye = crate::ops::view::expand_to(&crate::ops::create::identity(m, a.dtype(), a.device())?, &shape)?;
            let both = crate::ops::index::cat(&[a.clone(), eye], -1)?;
            let parts = unpacked(&super::qr_parts(&both)?, &[&[m, m], &[m, n + m]])?;
            Ok(vec![parts[0].clone(), parts[1].narrow(-1, 0, n as i64)?])
        }
        other => {
            let why = format!(
                "received unrecognized mode '{other}' but expected one of 'reduced' (default), 'r', or 'complete'"
            );
            Err(Error::runtime(op, why))
        }
    }
}

fn eigh_body(a: &Tensor, uplo: &str) -> Result<Vec<Tensor>> {
    batch("linalg.eigh", a)?;
    let n = a.shape()[a.ndim() - 1];
    let mut parts = unpacked(&eigh_parts(&lower_of("linalg.eigh", a, uplo)?)?, &[&[n], &[n, n]])?;
    parts[0] = real_part(&parts[0])?;
    Ok(parts)
}

fn eig_body(a: &Tensor) -> Result<Vec<Tensor>> {
    batch("linalg.eig", a)?;
    let n = a.shape()[a.ndim() - 1];
    unpacked(&super::eig_parts(a, true)?, &[&[n], &[n, n]])
}

fn eigvals_body(a: &Tensor) -> Result<Tensor> {
    super::eig_parts(a, false)
}

fn svd_body(a: &Tensor, full: bool, driver: Option<&str>) -> Result<Vec<Tensor>> {
    refuse_driver("linalg.svd", driver)?;
    let (lead, m, n) = matrices("linalg.svd", a)?;
    if !full {
        return super::svd_thin(a);
    }
    if m * n == 0 {
        let eye = |n: usize| {
            let shape: Shape = lead.iter().copied().chain([n, n]).collect();
            crate::ops::view::expand_to(&crate::ops::create::identity(n, a.dtype(), a.device())?, &shape)?.copy()
        };
        return Ok(vec![eye(m)?, super::linalg_svdvals(a, None)?, eye(n)?]);
    }
    let mut parts = unpacked(&svd_parts(a, true)?, &[&[m, m], &[m.min(n)], &[n, n]])?;
    parts[1] = real_part(&parts[1])?;
    Ok(parts)
}

/// The factors in one matrix, pivots and zero pivots.
fn lu_of(op: &'static str, a: &Tensor, pivot: bool) -> Result<Vec<Tensor>> {
    let (_, m, n) = matrices(op, a)?;
    if !pivot {
        return Err(Error::runtime(op, "LU without pivoting is not implemented on the CPU"));
    }
    let parts = unpacked(&lu_parts(a)?, &[&[m, n], &[m.min(n)], &[]])?;
    let whole = |t: &Tensor| real_part(&t.detach()?)?.cast(DType::I32);
    Ok(vec![parts[0].clone(), whole(&parts[1])?, whole(&parts[2])?])
}

fn lu_factor_ex_body(a: &Tensor, pivot: bool, check_errors: bool) -> Result<Vec<Tensor>> {
    let op = "linalg.lu_factor";
    let parts = lu_of(op, a, pivot)?;
    if check_errors {
        refuse(&parts[2], |n| {
            let why = format!(
                "U[{n},{n}] is zero and using it on lu_solve would result in a division by zero. If you still want to \
                 perform the factorization, consider calling linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)"
            );
            Error::runtime(op, why)
        })?;
    }
    Ok(parts)
}

fn lu_factor_body(a: &Tensor, pivot: bool) -> Result<Vec<Tensor>> {
    let mut parts = lu_factor_ex_body(a, pivot, true)?;
    parts.truncate(2);
    Ok(parts)
}

fn lu_body(a: &Tensor, pivot: bool) -> Result<Vec<Tensor>> {
    let parts = lu_of("linalg.lu", a, pivot)?;
    let (_, m, n) = matrices("linalg.lu", a)?;
    let k = m.min(n) as i64;
    let lower = parts[0].narrow(-1, 0, k)?.tril(-1)?;
    let eye =
        |rows: usize, columns: i64| crate::ops::create::identity(rows, a.dtype(), a.device())?.narrow(-1, 0, columns);
    let l = (lower + &eye(m, k)?)?;
    let order = row_order(&parts[1], m)?;
    let rows = crate::ops::create::arange_of(m, a.device())?;
    let p = rows.unsqueeze(-1)?.eq(&order.unsqueeze(-2)?)?.cast(a.dtype())?;
    Ok(vec![p, l, parts[0].narrow(-2, 0, k)?.triu(0)?])
}
