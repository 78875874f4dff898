//! Decompositions under PyTorch's names: `linalg_qr` is `torch.linalg.qr`, and so on.
//!
//! Made of the primitives in `decomposition`, which give its parts; gradients follow from theirs.
//! Matrices are the last two dimensions, those before them a batch. Complex ones are factored on the CPU alone.
#![allow(non_snake_case)]

use super::decomposition::{cholesky_parts, eig_parts, eigh_parts, ldl_parts, lu_parts, qr_parts, svd_parts};
use super::{adjoint, batch, by_columns, first_of, lower_of, matrices, refuse, refuse_driver, row_order};
use crate::autograd::{with_grad_layout, GradLayoutRule};
use crate::ops::macros::define_composites;
use crate::shape::Shape;
use crate::{DType, Error, Result, Scalar, Tensor};

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! factor_ops {
    ($cb:ident) => { $crate::rows! { $cb "factor" :
        /// The lower triangular `L` of `A = L Lᴴ`, or with `upper` its conjugate transpose. Reads the lower half, and
        /// gives a symmetric gradient. An error where a matrix is not positive definite; on the GPU device that is read
        /// back, which evaluates.
        function linalg_cholesky(A: Tensor; upper: Bool = false) -> Tensor {
            amp: Full, dtypes: FACTORED, result: Same,
            run: cholesky_body, node: "linalg_cholesky_ex", torch: "linalg.cholesky",
            samples: ["SPD(3, 3)", "SPD(2, 4, 4), upper=True", "N(0, 0)"],
            example: [
                "assert_close(linalg_cholesky(&tensor([[4.0, 2.0], [2.0, 10.0]])?, false)?, [[2.0, 0.0], [1.0, 3.0]]);",
            ],
        }
        /// [`linalg_cholesky`], and for each matrix 0 or the order of the leading minor that is not positive, as int32;
        /// what is in the factor is not defined then. With `check_errors` an error instead.
        function linalg_cholesky_ex(A: Tensor; upper: Bool = false, check_errors: Bool = false) -> Named {
            amp: Full, dtypes: FACTORED, result: Own,
            run: cholesky_ex_body, torch: "linalg.cholesky_ex",
            samples: ["SPD(3, 3)", "SPD(2, 2, 2), upper=True"],
            example: [
                "let made = linalg_cholesky_ex(&tensor([[1.0, 0.0], [0.0, -1.0]])?, false, false)?;",
                "assert_close(&made[1], 2);",
            ],
        }
        /// `Q` with orthonormal columns and the upper triangular `R` of `A = Q R`. `mode` "reduced" gives min(m, n)
        /// columns, "complete" all m, "r" an empty `Q`.
        function linalg_qr(A: Tensor, mode: Text = "reduced") -> Named {
            amp: Full, dtypes: FACTORED, result: Same,
            run: qr_body, torch: "linalg.qr",
            samples: ["N(4, 3)", "N(2, 3, 4)", "REG(2, 3, 3)", "N(2, 0)"],
            example: [
                "let a = tensor([[3.0, 1.0], [4.0, 2.0]])?;",
                "let made = linalg_qr(&a, QrMode::Reduced)?;",
                "assert_close(made[0].matmul(&made[1])?, &a);",
                "assert_close(made[0].t()?.matmul(&made[0])?, [[1.0, 0.0], [0.0, 1.0]]);",
            ],
        }
        /// The eigenvalues of each symmetric matrix in ascending order, and the eigenvectors as columns. Reads the
        /// lower half, with `UPLO` "U" the upper one, and gives a symmetric gradient; that of the vectors is infinite
        /// where eigenvalues are equal.
        function linalg_eigh(A: Tensor, UPLO: Text = "L") -> Named {
            amp: Full, dtypes: FACTORED, result: Same,
            run: eigh_body, torch: "linalg.eigh",
            samples: ["SYM(3, 3)", "SYM(2, 4, 4), 'U'", "N(0, 0)"],
            example: [
                "let a = tensor([[2.0, 1.0], [1.0, 2.0]])?;",
                "let made = linalg_eigh(&a, Triangle::Lower)?;",
                "assert_close(&made[0], [1.0, 3.0]);",
                "assert_close(a.matmul(&made[1])?, &(&made[1] * &made[0])?);",
            ],
        }
        /// The eigenvalues of each square matrix and eigenvectors of norm 1 as columns, both complex, of
        /// float64 complex128. A gradient of the vectors must not depend on their phases.
        function linalg_eig(A: Tensor) -> Named {
            amp: Full, dtypes: FACTORED, result: Own,
            run: eig_body, torch: "linalg.eig",
            samples: [],
            example: [
                "let a = tensor([[0.0, -1.0], [1.0, 0.0]])?.cast(DType::C64)?;",
                "let made = linalg_eig(&a)?;",
                "assert_close(a.matmul(&made[1])?, &(&made[1] * &made[0])?);",
            ],
        }
        /// The eigenvalues of each square matrix as complex numbers, in no order.
        function linalg_eigvals(A: Tensor) -> Tensor {
            amp: Full, dtypes: FACTORED, result: Own,
            run: eigvals_body, torch: "linalg.eigvals",
            samples: [],
            example: [
                "let values = linalg_eigvals(&tensor([[0.0, -1.0], [1.0, 0.0]])?)?;",
                "assert_close(&values.square()?, [(-1.0, 0.0), (-1.0, 0.0)]);",
            ],
        }
        /// `U`, the singular values in descending order, and `Vᴴ` of `A = U S Vᴴ`; with `full_matrices` all columns of
        /// U and V. Columns that belong to no singular value have no gradient; that of the others is infinite where two
        /// values are equal.
        function linalg_svd(A: Tensor, full_matrices: Bool = true; driver: OptText = None) -> Named {
            amp: Full, dtypes: FACTORED, result: Same,
            run: svd_body, torch: "linalg.svd",
            samples: ["N(3, 3)", "N(2, 4, 3), False", "N(3, 4), full_matrices=False"],
            example: [
                "let a = tensor([[0.0, 2.0], [-3.0, 0.0]])?;",
                "let made = linalg_svd(&a, true, None)?;",
                "assert_close(&made[1], [3.0, 2.0]);",
                "assert_close((&made[0] * &made[1])?.matmul(&made[2])?, &a);",
            ],
        }
        /// `P`, `L` and `U` of `A = P L U`, with a unit lower triangular `L` and an upper triangular `U`.
        function linalg_lu(A: Tensor; pivot: Bool = true) -> Named {
            amp: Full, dtypes: FACTORED, result: Same,
            run: lu_body, torch: "linalg.lu",
            samples: ["REG(3, 3)", "N(2, 4, 3)", "N(3, 5)"],
            example: [
                "let made = linalg_lu(&tensor([[2.0, 1.0], [4.0, 3.0]])?, true)?;",
                "assert_close(&made[0], [[0.0, 1.0], [1.0, 0.0]]);",
                "assert_close(&made[1], [[1.0, 0.0], [0.5, 1.0]]);",
                "assert_close(&made[2], [[4.0, 3.0], [0.0, -0.5]]);",
            ],
        }
        /// `L` below the diagonal and `U` from it on, in one matrix, and the rows exchanged, counted from 1, as int32.
        /// An error where a pivot is zero.
        function linalg_lu_factor(A: Tensor; pivot: Bool = true) -> Named {
            amp: Full, dtypes: FACTORED, result: Own,
            run: lu_factor_body, node: "linalg_lu_factor_ex", torch: "linalg.lu_factor",
            samples: ["REG(3, 3)", "N(2, 4, 3)", "N(3, 5)"],
            example: [
                "let made = linalg_lu_factor(&tensor([[2.0, 1.0], [4.0, 3.0]])?, true)?;",
                "assert_close(&made[0], [[4.0, 3.0], [0.5, -0.5]]);",
                "assert_close(&made[1], [2, 2]);",
            ],
        }
        /// [`linalg_lu_factor`], and for each matrix 0 or the number of the first pivot that is zero, as int32. With
        /// `check_errors` an error instead.
        function linalg_lu_factor_ex(A: Tensor; pivot: Bool = true, check_errors: Bool = false) -> Named {
            amp: Full, dtypes: FACTORED, result: Own,
            run: lu_factor_ex_body, torch: "linalg.lu_factor_ex",
            samples: ["N(3, 3)", "N(2, 2, 3)"],
            example: [
                "let made = linalg_lu_factor_ex(&tensor([[1.0, 2.0], [2.0, 4.0]])?, true, false)?;",
                "assert_close(&made[2], 2);",
            ],
        }
        /// The factors of each symmetric matrix, `L D Lᵀ`, or if `hermitian` `L D Lᴴ`, packed as LAPACK's sytrf does in
        /// the lower half of one matrix, and the pivots, counted from 1 and negative for blocks of two, as int32. Reads
        /// the lower half. An error where `D` has a block that is zero. No gradient. On the GPU device the matrix is
        /// read back, which evaluates.
        function linalg_ldl_factor(input: Tensor; hermitian: Bool = false) -> Named {
            flags: [no_gradient], amp: Full, dtypes: FACTORED, result: Own,
            run: ldl_factor_body, torch: "linalg.ldl_factor",
            samples: ["SYM(3, 3)", "SYM(2, 4, 4), hermitian=True"],
            example: [
                "let made = linalg_ldl_factor(&tensor([[2.0, 1.0], [1.0, 3.0]])?, false)?;",
                "assert_close(made[0].tril(0)?, [[2.0, 0.0], [0.5, 2.5]]);",
                "assert_close(&made[1], [1, 2]);",
            ],
        }
        /// [`linalg_ldl_factor`], and for each matrix 0 or the number of the first block of `D` that is zero, as int32.
        /// With `check_errors` an error instead.
        function linalg_ldl_factor_ex(input: Tensor; hermitian: Bool = false, check_errors: Bool = false) -> Named {
            flags: [no_gradient], amp: Full, dtypes: FACTORED, result: Own,
            run: ldl_factor_ex_body, torch: "linalg.ldl_factor_ex",
            samples: ["SYM(3, 3)", "SYM(2, 4, 4), hermitian=True"],
            example: [
                "let made = linalg_ldl_factor_ex(&tensor([[2.0, 1.0], [1.0, 3.0]])?, false, false)?;",
                "assert_close(&made[2], 0);",
            ],
        }
        /// `P`, `L` and `U` of `A = P L U` from what [`linalg_lu_factor`] gave. Without `unpack_pivots` `P` is empty,
        /// without `unpack_data` `L` and `U` are.
        function lu_unpack(
            LU_data: Tensor, LU_pivots: Tensor, unpack_data: Bool = true, unpack_pivots: Bool = true
        ) -> Named {
            dtypes: NUMERIC, result: Same,
            run: lu_unpack_body,
            samples: ["N(3, 3), PIV(3)", "N(2, 3, 5), PIV(2, 3)", "N(4, 2), PIV(2)", "N(3, 3), PIV(3), True, False"],
            example: [
                "let (packed, pivots) = (tensor([[4.0, 3.0], [0.5, -0.5]])?, tensor([2, 2])?.cast(DType::I32)?);",
                "let made = lu_unpack(&packed, &pivots, true, true)?;",
                "assert_close(made[0].matmul(&made[1])?.matmul(&made[2])?, [[2.0, 1.0], [4.0, 3.0]]);",
            ],
        }
        /// [`linalg_lu_factor`], but no error where a pivot is zero; with `get_infos` [`linalg_lu_factor_ex`].
        method lu(pivot: Bool = true, get_infos: Whether = false) -> Tensors {
            out: rule, amp: Full, dtypes: FACTORED, result: Own,
            run: lu_method_body, node: "linalg_lu_factor_ex",
            samples: ["REG(3, 3)", "N(2, 4, 3)", "N(3, 5), get_infos=True"],
            example: [
                "let made = tensor([[2.0, 1.0], [4.0, 3.0]])?.lu(true, false)?;",
                "assert_close(&made[0], [[4.0, 3.0], [0.5, -0.5]]);",
            ],
        }
        /// `U`, the singular values in descending order, and `V` (not its adjoint) of `A = U S Vᴴ`; without `some` all
        /// columns of U and V. Without `compute_uv` both are zeros, and square.
        method svd(some: Bool = true, compute_uv: Bool = true) -> Named {
            amp: Full, dtypes: FACTORED, result: Same,
            run: svd_method_body, node: "linalg_svd",
            samples: ["N(3, 3)", "N(2, 4, 3)", "N(3, 3), False", "N(3, 4), compute_uv=False"],
            example: [
                "let a = tensor([[0.0, 2.0], [-3.0, 0.0]])?;",
                "let made = a.svd(true, true)?;",
                "assert_close((&made[0] * &made[1])?.matmul(&made[2].t()?)?, &a);",
            ],
        }
    }};
}
factor_ops!(define_composites);

fn cholesky_ex_body(a: &Tensor, upper: bool, check_errors: bool) -> Result<Vec<Tensor>> {
    let op = "linalg.cholesky";
    batch(op, a)?;
    // Only the lower half is read, and the upper one is put in its place. The gradient is that of a whole matrix.
    let still = a.detach()?;
    let lower = if upper { (a + &(adjoint(&still)? - &still)?)? } else { a.clone() };
    let [l, info] = first_of(cholesky_parts(&lower)?)?;
    if check_errors {
        refuse(&info, |minor| {
            let why = format!(
                "The factorization could not be completed because the input is not positive-definite (the leading minor of order {minor} is not positive-definite)."
            );
            Error::lin_alg(op, why)
        })?;
    }
    Ok(vec![if upper { by_columns(&adjoint(&l)?)? } else { l }, info])
}

fn cholesky_body(a: &Tensor, upper: bool) -> Result<Tensor> {
    Ok(cholesky_ex_body(a, upper, true)?.swap_remove(0))
}

fn qr_body(a: &Tensor, mode: &str) -> Result<Vec<Tensor>> {
    let op = "linalg.qr";
    let (_, m, n) = matrices(op, a)?;
    let a = &with_grad_layout(a, if m < n { GradLayoutRule::RowMajor } else { GradLayoutRule::Columns })?;
    match mode {
        "reduced" => qr_parts(a),
        "r" => {
            let [_, r] = first_of(qr_parts(a)?)?;
            Ok(vec![Tensor::full_of(&[0], Scalar::ZERO, a.dtype(), a.device())?, r])
        }
        "complete" if m <= n => qr_parts(a),
        "complete" => {
            // The reflections of the first n columns are those of the matrix alone.
            let mut shape = Shape::from_slice(a.shape());
            shape[a.ndim() - 1] = m;
            let eye = crate::ops::view::expand_to(&crate::ops::create::identity(m, a.dtype(), a.device())?, &shape)?;
            let both = crate::ops::index::cat(&[a.clone(), eye], -1)?;
            let [q, r] = first_of(qr_parts(&both)?)?;
            Ok(vec![q, r.narrow(-1, 0, n as i64)?])
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
    let a = &with_grad_layout(a, GradLayoutRule::RowMajor)?;
    eigh_parts(&lower_of("linalg.eigh", a, uplo)?)
}

fn eig_body(a: &Tensor) -> Result<Vec<Tensor>> {
    eig_parts(a, true)
}

fn eigvals_body(a: &Tensor) -> Result<Tensor> {
    Ok(eig_parts(a, false)?.swap_remove(0))
}

fn svd_body(a: &Tensor, full: bool, driver: Option<&str>) -> Result<Vec<Tensor>> {
    refuse_driver("linalg.svd", driver)?;
    let (lead, m, n) = matrices("linalg.svd", a)?;
    if !full {
        return svd_parts(a, false);
    }
    if m * n == 0 {
        let eye = |n: usize| {
            let shape: Shape = lead.iter().copied().chain([n, n]).collect();
            let eye = crate::ops::view::expand_to(&crate::ops::create::identity(n, a.dtype(), a.device())?, &shape)?
                .copy()?;
            // A part of the graph, as PyTorch's: zeros are added that come from the input.
            if a.requires_grad() {
                &eye + &a.sum(Some(&[-2, -1]), true, None)?
            } else {
                Ok(eye)
            }
        };
        return Ok(vec![eye(m)?, super::linalg_svdvals(a, None)?, eye(n)?]);
    }
    svd_parts(a, true)
}

/// The factors in one matrix, pivots and zero pivots.
fn lu_of(op: &'static str, a: &Tensor, pivot: bool) -> Result<Vec<Tensor>> {
    matrices(op, a)?;
    if !pivot && a.numel() > 0 {
        return Err(Error::runtime(op, "LU without pivoting is not implemented on the CPU"));
    }
    lu_parts(a)
}

fn lu_factor_ex_body(a: &Tensor, pivot: bool, check_errors: bool) -> Result<Vec<Tensor>> {
    let op = "linalg.lu_factor";
    let parts = lu_of(op, a, pivot)?;
    if check_errors {
        refuse(&parts[2], |n| {
            let why = format!(
                "U[{n},{n}] is zero and using it on lu_solve would result in a division by zero. If you still want to perform the factorization, consider calling linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)"
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
    let [l, u] = halves(&parts[0])?;
    let p = if pivot { permutation(&parts[0], &parts[1])? } else { a.detach()?.reshape(&[-1])?.narrow(0, 0, 0)? };
    Ok(vec![p, l, u])
}

/// The batch's sizes, then rows and columns, of matrices of any dtype.
fn sides<'a>(op: &'static str, lu: &'a Tensor) -> Result<(&'a [usize], usize, usize)> {
    match lu.shape() {
        [lead @ .., m, n] => Ok((lead, *m, *n)),
        _ => Err(Error::shape(op, "The input tensor must have at least 2 dimensions.", &[lu.shape()])),
    }
}

/// `L` with ones on its diagonal, and `U`, from one matrix.
fn halves(lu: &Tensor) -> Result<[Tensor; 2]> {
    let (_, m, n) = sides("lu_unpack", lu)?;
    let k = m.min(n) as i64;
    let eye = crate::ops::create::identity(m, lu.dtype(), lu.device())?.narrow(-1, 0, k)?;
    Ok([(lu.narrow(-1, 0, k)?.tril(-1)? + &eye)?, lu.narrow(-2, 0, k)?.triu(0)?])
}

/// The matrix that puts the rows of `L U` where they came from.
fn permutation(lu: &Tensor, pivots: &Tensor) -> Result<Tensor> {
    let (_, m, _) = sides("lu_unpack", lu)?;
    let order = row_order(pivots, m)?;
    let rows = crate::ops::create::arange_of(m, lu.device())?;
    rows.unsqueeze(-1)?.eq(&order.unsqueeze(-2)?)?.cast(lu.dtype())
}

fn lu_unpack_body(lu: &Tensor, pivots: &Tensor, data: bool, places: bool) -> Result<Vec<Tensor>> {
    let op = "lu_unpack";
    schema::lu_unpack.check(lu.dtype())?;
    let (lead, m, n) = sides(op, lu)?;
    if places && pivots.dtype() != DType::I32 {
        return Err(Error::dtype(op, "LU_pivots is expected to be a tensor of int32", &[pivots.dtype()]));
    }
    let wanted: Shape = lead.iter().copied().chain([m.min(n)]).collect();
    if places && pivots.shape() != wanted.as_slice() {
        let why = format!("Expected LU_pivots to have shape {:?} but got {:?} instead.", &wanted[..], pivots.shape());
        return Err(Error::value(op, why));
    }
    let p = match places {
        true => permutation(lu, pivots)?,
        false => Tensor::full_of(&[0], Scalar::ZERO, lu.dtype(), lu.device())?,
    };
    let [l, u] = match data {
        true => halves(lu)?,
        false => {
            // Of no elements, but made of the factors: the gradient is zeros.
            let none = || crate::ops::view::reshape_to(&lu.narrow(-1, 0, 0)?, &[0])?.copy();
            [none()?, none()?]
        }
    };
    Ok(vec![p, l, u])
}

fn lu_method_body(a: &Tensor, pivot: bool, infos: bool) -> Result<Vec<Tensor>> {
    crate::warnings::warn_once!("lu is deprecated in favor of linalg.lu_factor and linalg.lu_factor_ex.");
    let mut parts = lu_factor_ex_body(a, pivot, false)?;
    parts.truncate(if infos { 3 } else { 2 });
    Ok(parts)
}

fn svd_method_body(a: &Tensor, some: bool, vectors: bool) -> Result<Vec<Tensor>> {
    let (lead, m, n) = matrices("svd", a)?;
    if !vectors {
        let zeros = |n: usize| {
            let shape: Shape = lead.iter().copied().chain([n, n]).collect();
            Tensor::full_of(&shape, Scalar::ZERO, a.dtype(), a.device())
        };
        return Ok(vec![zeros(m)?, super::linalg_svdvals(a, None)?, zeros(n)?.transpose(-2, -1)?]);
    }
    let mut parts = svd_body(a, !some, None)?;
    parts[2] = adjoint(&parts[2])?;
    Ok(parts)
}

fn ldl_factor_ex_body(a: &Tensor, hermitian: bool, check_errors: bool) -> Result<Vec<Tensor>> {
    let op = "linalg.ldl_factor";
    let parts = ldl_parts(a, hermitian)?;
    if check_errors {
        refuse(&parts[2], |n| {
            let why = format!(
                "the diagonal element {n} of D is zero: solving by this factorization would divide by zero. linalg.ldl_factor_ex gives it without an error"
            );
            Error::lin_alg(op, why)
        })?;
    }
    Ok(parts)
}

fn ldl_factor_body(a: &Tensor, hermitian: bool) -> Result<Vec<Tensor>> {
    let mut parts = ldl_factor_ex_body(a, hermitian, true)?;
    parts.truncate(2);
    Ok(parts)
}
