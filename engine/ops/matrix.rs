//! Linear algebra under PyTorch's names: `linalg_inv` is `torch.linalg.inv`, and so on.
//!
//! Made of the primitives in `ops/linalg.rs`, which give the parts of a decomposition in one result, and of other ops; what
//! has a gradient has it from these. Matrices are the last two dimensions, those before them a batch. Complex
//! ones are factored on the CPU alone.
#![allow(non_snake_case)]

use super::compare::select;
use super::linalg::{
    self, adjoint, batch, eigh_parts, lower_of, lu_parts, matrices, real_part, refuse_driver, reordered, row_order,
    solve_triangle, svd_parts, unpacked,
};
use super::macros::define_ops;
use super::{NormOrder, Operand};
use crate::shape::{self, Shape};
use crate::{DType, Error, Result, Scalar, Tensor};

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! matrix_ops {
    ($cb:ident) => { $cb! { "matrix" MatrixOp :
        /// The inverse of each matrix; an error where one is singular.
        function linalg_inv(A: Tensor) -> Tensor {
            [] Full Yes DTypes::FACTORED, Same,
            run linalg::inverse, torch "linalg.inv", samples ["REG(2, 3, 3)", "N(1, 1)", "N(0, 0)"]
        }
        /// The inverse of each matrix, and for each 0 or the number of the first pivot that is zero, as int32; the inverse is NaN
        /// there. With `check_errors` an error instead.
        function linalg_inv_ex(A: Tensor; check_errors: Bool = false) -> Named {
            [] Full Yes DTypes::FACTORED, Own,
            run inv_ex_body, torch "linalg.inv_ex", samples ["REG(2, 3, 3)", "REG(2, 2), check_errors=True"]
        }
        /// The determinant of each matrix. The gradient is that of its cofactors, also where the matrix is singular.
        function linalg_det(A: Tensor) -> Tensor {
            [] Full Yes DTypes::FACTORED, Same,
            run linalg::det, torch "linalg.det", samples ["REG(2, 3, 3)", "N(0, 0)"]
        }
        /// Sign and logarithm of the absolute value of the determinant of each matrix.
        function linalg_slogdet(A: Tensor) -> SignLogabsdet {
            [] Full Yes DTypes::FACTORED, Same,
            run linalg::slogdet, torch "linalg.slogdet", samples ["REG(2, 3, 3)", "REG(2, 2)"]
        }
        /// `X` of `A X = B`, or without `left` of `X A = B`; `B` is a vector, or a matrix whose batch broadcasts with that of `A`.
        /// An error where an `A` is singular.
        function linalg_solve(A: Tensor, B: Tensor; left: Bool = true) -> Tensor {
            [] Full Yes DTypes::FACTORED, Same,
            run solve_body, torch "linalg.solve", samples ["REG(3, 3), N(3, 2)", "REG(2, 3, 3), N(3, 2)", "REG(3, 3), N(3)", "REG(2, 3, 3), N(2, 3)", "REG(3, 3), N(2, 3), left=False"]
        }
        /// [`linalg_solve`], and for each matrix 0 or the number of the first pivot that is zero, as int32; the result is NaN
        /// there. With `check_errors` an error instead.
        function linalg_solve_ex(A: Tensor, B: Tensor; left: Bool = true, check_errors: Bool = false) -> Named {
            [] Full Yes DTypes::FACTORED, Own,
            run solve_ex_body, torch "linalg.solve_ex", samples ["REG(2, 3, 3), N(2, 3, 2)", "REG(3, 3), N(2, 3), left=False"]
        }
        /// `X` of `A X = B` (without `left`, of `X A = B`) for triangular `A`, whose other half is not read; with `unitriangular`
        /// its diagonal counts as ones. Batches broadcast. A zero on the diagonal makes what it reaches infinite or NaN; on the
        /// GPU device the whole matrix is NaN then.
        function linalg_solve_triangular(A: Tensor, B: Tensor; upper: Bool = true, left: Bool = true, unitriangular: Bool = false) -> Tensor {
            [] Full Yes DTypes::FACTORED, Same,
            run solve_triangular_body, torch "linalg.solve_triangular", samples ["P(3, 3), N(3, 2), upper=True", "P(2, 3, 3), N(3, 2), upper=False", "P(3, 3), N(2, 3), upper=True, left=False", "N(3, 3), N(2, 3, 2), upper=False, unitriangular=True"]
        }
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
        /// The pseudoinverse of each matrix: singular values up to the larger of `atol` and `rtol` times the largest count as 0.
        /// By default `rtol` is the larger side times the dtype's rounding. With `hermitian` the matrices are symmetric.
        function linalg_pinv(A: Tensor; atol: OptOperand = None, rtol: OptOperand = None, hermitian: Bool = false) -> Tensor {
            [casts_out] Full Yes DTypes::FACTORED, Same,
            run pinv_body, torch "linalg.pinv", samples ["REG(3, 3)", "N(2, 4, 3)", "N(3, 5), rtol=1e-3", "N(0, 2)"]
        }
        /// The number of singular values above the tolerance that [`linalg_pinv`] has, as int64.
        function linalg_matrix_rank(A: Tensor; atol: OptOperand = None, rtol: OptOperand = None, hermitian: Bool = false) -> Tensor {
            [casts_out plain nograd] Full Yes DTypes::FACTORED, Index,
            run matrix_rank_body, torch "linalg.matrix_rank", samples ["N(3, 3)", "N(2, 4, 3), atol=1.5", "N(3, 5), rtol=0.5", "SYM(3, 3), hermitian=True", "N(0, 2)"]
        }
        /// The condition number in the norm `p`: `‖A‖ ‖A⁻¹‖`, by default the largest singular value over the smallest.
        function linalg_cond(A: Tensor, p: OptOrder = None) -> Tensor {
            [casts_out] Full Yes DTypes::FACTORED, Real,
            run cond_body, torch "linalg.cond", samples ["REG(2, 3, 3)", "N(3, 4), -2", "REG(3, 3), 'fro'", "REG(3, 3), 'nuc'", "REG(3, 3), 1", "REG(3, 3), float('-inf')"]
        }
        /// The matrices that come nearest to `A X = B`, of the least norm, by the pseudoinverse; then the squared distances, where
        /// the driver (`"gels"`, `"gelsd"`, `"gelss"`) gives them and `A` has more rows than its rank, the rank, and the singular
        /// values (`"gelsd"` and `"gelss"`). What a driver does not give is empty.
        function linalg_lstsq(A: Tensor, B: Tensor, rcond: OptFloat = None; driver: OptText = None) -> Named {
            [casts_out] Full Yes DTypes::FACTORED, Same,
            run lstsq_body, torch "linalg.lstsq", samples ["N(4, 3), N(4, 2)", "N(2, 3, 3), N(2, 3, 2)", "N(3, 4), N(3, 2), driver='gelsd'", "N(5, 2), N(5, 1), driver='gels'", "N(2, 4, 2), N(2, 4)"]
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
        /// `X` of `A X = B` (without `left`, of `X A = B`; with `adjoint`, of the conjugate transposed `A`) from what `lu_factor` gave.
        function linalg_lu_solve(LU: Tensor, pivots: Tensor, B: Tensor; left: Bool = true, adjoint: Bool = false) -> Tensor {
            [] Full Yes DTypes::FACTORED, Same,
            run lu_solve_body, torch "linalg.lu_solve", samples ["P(3, 3), PIV(3), N(3, 2)", "P(2, 3, 3), PIV(2, 3), N(2, 3, 2), adjoint=True", "P(3, 3), PIV(3), N(2, 3), left=False"]
        }
        /// Each square matrix to the power `n`; of negative powers the inverse's.
        method matrix_power(n: Int) -> Tensor {
            [] Keep Yes DTypes::INEXACT, Same,
            run matrix_power_body["matrix_power"], torch "", samples ["N(3, 3), 3", "N(2, 2, 2), 0", "REG(3, 3), -2", "N(2, 2), 5", "N(2, 2), 1"]
        }
        /// [`matrix_power`].
        function linalg_matrix_power(A: Tensor, n: Int) -> Tensor {
            [] Keep Yes DTypes::INEXACT, Same,
            run matrix_power_body["linalg.matrix_power"], torch "linalg.matrix_power", samples ["N(3, 3), 2", "REG(2, 2, 2), -1"]
        }
        /// The exponential of each square matrix.
        method matrix_exp() -> Tensor {
            [] Full Yes DTypes::INEXACT, Same,
            run linalg::linalg_matrix_exp, torch "", samples ["N(3, 3)", "N(2, 2, 2)"]
        }
        /// The pseudoinverse; singular values up to `rcond` times the largest count as 0.
        method pinverse(rcond: Float = 1e-15) -> Tensor {
            [] Full Yes DTypes::FACTORED, Same,
            run pinverse_body, torch "", samples ["REG(3, 3)", "N(4, 2)"]
        }
        /// The product of two or more matrices, the first and the last of which may be vectors, in the order that costs least.
        function linalg_multi_dot(tensors: Tensors) -> Tensor {
            [] Low Yes DTypes::NUMERIC, Same,
            run multi_dot_body, torch "linalg.multi_dot", samples ["[N(2, 3), N(3, 4)]", "[N(2, 3), N(3, 4), N(4, 2), N(2, 5)]", "[N(3), N(3, 4), N(4)]", "[N(2, 3), N(3)]"]
        }
        /// The powers 0 to `N - 1` (by default as many as elements) of the elements of each vector, one row for each element.
        function linalg_vander(x: Tensor; N: OptInt = None) -> Tensor {
            [] Keep Yes DTypes::NUMERIC.less(DTypes::of(&[$crate::DType::F16, $crate::DType::BF16])), Sum,
            run linalg_vander_body, torch "linalg.vander", samples ["N(3)", "N(2, 3), N=4", "N(4), N=2", "I(-3, 4, 4)"]
        }
        /// The powers of a vector's elements, one row for each, from the highest on, or with `increasing` from 0 on.
        function vander(x: Tensor, N: OptInt = None, increasing: Bool = false) -> Tensor {
            [] Keep Yes DTypes::NUMERIC, Sum,
            run vander_body, torch "", samples ["N(3)", "N(3), 5", "N(4), 2, True", "I(-3, 4, 4), increasing=True", "N(3), 1", "N(3), 0"]
        }
        /// The cross product of the 3 elements along `dim`, with broadcasting.
        function linalg_cross(input: Tensor, other: Tensor; dim: Dim = -1) -> Tensor {
            [] PromoteGpu Yes DTypes::NUMERIC, Same,
            run linalg_cross_body, torch "linalg.cross", samples ["N(3), N(3)", "N(2, 3), N(2, 3)", "N(3, 4), N(3, 1), dim=0", "N(2, 3, 2), N(2, 3, 1), dim=1"]
        }
        /// The cross product along `dim`, by default the first dimension of size 3.
        method cross(other: Tensor, dim: OptDim = None) -> Tensor {
            [] PromoteGpu Yes DTypes::NUMERIC, Same,
            run cross_body, torch "", samples ["N(3), N(3)", "N(4, 3), N(4, 3)", "N(3, 3), N(3, 3), 1", "N(3, 4), N(3, 1), 0"]
        }
        /// The sum of the products along `dim`, with broadcasting; the first factors are conjugated.
        function linalg_vecdot(x: Tensor, y: Tensor; dim: Dim = -1) -> Tensor {
            [] Low Yes DTypes::INEXACT, Same,
            run vecdot_body, torch "linalg.vecdot", samples ["N(3), N(3)", "N(2, 3), N(2, 3)", "N(3, 4), N(3, 1), dim=0", "N(2, 1, 3), N(4, 3)"]
        }
        /// The norm of the elements over `dim` (all by default), as vectors: `(Σ|x|^ord)^(1/ord)`, for ±∞ the largest and the
        /// smallest |x|, for 0 how many are not zero. Computed in `dtype` if given.
        function linalg_vector_norm(x: Tensor, ord: Number = 2, dim: OptDims = None, keepdim: Bool = false; dtype: OptDtype = None) -> Tensor {
            [own_out] FullGpu Yes DTypes::INEXACT, Real,
            run vector_norm_body, torch "linalg.vector_norm", samples ["N(3, 4)", "N(3, 4), 1, 1", "N(3, 4), 3, (0, 1), True", "N(3, 4), float('inf'), 0", "N(3, 4), 0, 1", "N(3, 4), -1, 1"]
        }
        /// The norm of each matrix of the dimensions `dim`: "fro" (Frobenius), "nuc" (the sum of the singular values), 2 or -2
        /// (the largest or smallest of them), 1 or -1 (the largest or smallest sum of a column's |x|), ∞ or -∞ (of a row's).
        function linalg_matrix_norm(A: Tensor, ord: OptOrder = Some($crate::ops::NormOrder::Fro), dim: Dims = &[-2, -1], keepdim: Bool = false; dtype: OptDtype = None) -> Tensor {
            [own_out] FullGpu Yes DTypes::INEXACT, Real,
            run matrix_norm_body, torch "linalg.matrix_norm", samples ["N(3, 4)", "N(2, 3, 4), 'nuc'", "N(3, 4), 2, (1, 0), True", "N(3, 4), -2", "N(3, 4), 1", "N(2, 3, 4), -1, (0, 1)", "N(3, 4), float('inf'), (0, 1), True", "N(3, 4), -float('inf')"]
        }
        /// [`linalg_vector_norm`] or [`linalg_matrix_norm`]: of two dimensions with an `ord` the matrix norm, else the vector
        /// norm, by default 2, of all elements.
        function linalg_norm(input: Tensor, ord: OptOrder = None, dim: OptDims = None, keepdim: Bool = false; dtype: OptDtype = None) -> Tensor {
            [own_out] FullGpu Yes DTypes::INEXACT, Real,
            run linalg_norm_body, torch "linalg.norm", samples ["N(3, 4)", "N(2, 3, 4), dim=(0, 2)", "N(3, 4), 1", "N(4), 3", "N(2, 3, 4), 'nuc', (1, 2)", "N(3, 4), 'fro', keepdim=True", "N(2, 3, 4), float('inf'), 1"]
        }
        /// The sum of the singular values of each matrix of the two dimensions `dim`.
        function nuclear_norm(input: Tensor, dim: OptDims = None, keepdim: Bool = false) -> Tensor {
            [] Full Yes DTypes::FACTORED, Real,
            run nuclear_norm_body, torch "", samples ["N(3, 4)", "N(2, 3, 4), (0, 2)", "N(3, 3), keepdim=True"]
        }
        /// The inverse of `L Lᵀ` (with `upper`, of `Uᵀ U`) from a Cholesky factor.
        method cholesky_inverse(upper: Bool = false) -> Tensor {
            [casts_out] Full Yes DTypes::FACTORED, Same,
            run cholesky_inverse_body, torch "", samples ["P(3, 3)", "P(2, 3, 3), upper=True"]
        }
        /// `X` of `L Lᵀ X = input` (with `upper`, of `Uᵀ U X = input`) from a Cholesky factor. Batches broadcast.
        method cholesky_solve(L: Tensor, upper: Bool = false) -> Tensor {
            [casts_out] Full Yes DTypes::FACTORED, Same,
            run cholesky_solve_body, torch "", samples ["N(3, 2), P(3, 3)", "N(2, 3, 2), P(3, 3), upper=True"]
        }
        /// The inverse of a tensor as a linear map from its last dimensions to its first `ind`.
        function linalg_tensorinv(A: Tensor, ind: Int = 2) -> Tensor {
            [casts_out] Full Yes DTypes::FACTORED, Same,
            run tensorinv_body, torch "linalg.tensorinv", samples ["REG(2, 3, 6)", "REG(4, 2, 2), ind=1"]
        }
        /// `X` with `tensordot(A, X, X.ndim) = B`; the dimensions `dims` of `A` are moved to its end first.
        function linalg_tensorsolve(A: Tensor, B: Tensor, dims: OptDims = None) -> Tensor {
            [casts_out] Full Yes DTypes::FACTORED, Same,
            run tensorsolve_body, torch "linalg.tensorsolve", samples ["REG(2, 3, 6), N(2, 3)", "REG(6, 2, 3), N(2, 3), dims=(0,)"]
        }
        /// [`diagonal`](crate::ops::view::diagonal) of the last two dimensions by default.
        function linalg_diagonal(A: Tensor; offset: Int = 0, dim1: Dim = -2, dim2: Dim = -1) -> Tensor {
            [] Keep Yes DTypes::ALL, Same,
            run linalg_diagonal_body, torch "linalg.diagonal", samples ["N(2, 3, 4)", "N(3, 4), offset=1"]
        }
    }};
}
matrix_ops!(define_ops);

fn turned(t: &Tensor) -> Result<Tensor> {
    t.transpose(-2, -1)
}

/// LAPACK's word on each matrix: refused where it is not 0, looking also through what `vmap` hides.
fn refuse(info: &Tensor, why: impl FnOnce(i64) -> Box<Error>) -> Result<()> {
    let worst = crate::batching::bare(info).detach()?;
    if worst.numel() == 0 {
        return Ok(());
    }
    match worst.amax(None, false)?.item()?.to_i64() {
        0 => Ok(()),
        n => Err(why(n)),
    }
}

// ---- systems ---------------------------------------------------------------------------------------------------------

/// For each matrix 0, or the number of the first pivot that is zero.
fn zero_pivots(a: &Tensor) -> Result<Tensor> {
    let parts = lu_parts(&a.detach()?)?;
    real_part(&parts.select(-1, -1)?)?.cast(DType::I32)
}

/// The matrices, with the identity in place of the singular ones, and which they are.
fn regular(a: &Tensor, info: &Tensor) -> Result<(Tensor, Tensor)> {
    let singular = info.ne(0)?.unsqueeze(-1)?.unsqueeze(-1)?;
    let eye = super::create::identity(a.shape()[a.ndim() - 1], a.dtype(), a.device())?;
    Ok((select::r#where(&singular, &eye, a)?, singular))
}

fn singular_error(op: &'static str, pivot: i64) -> Box<Error> {
    let why = format!(
        "The diagonal element {pivot} is zero, the inversion could not be completed because the input matrix is singular."
    );
    Error::runtime(op, why)
}

fn inv_ex_body(a: &Tensor, check_errors: bool) -> Result<Vec<Tensor>> {
    batch("linalg.inv_ex", a)?;
    let info = zero_pivots(a)?;
    if check_errors {
        refuse(&info, |n| singular_error("linalg.inv", n))?;
    }
    let (safe, singular) = regular(a, &info)?;
    Ok(vec![select::r#where(&singular, Scalar::Float(f64::NAN), &safe.inverse()?)?, info])
}

/// Is `b` a vector for each matrix, or one for all?
fn is_vector(a: &Tensor, b: &Tensor) -> bool {
    b.ndim() == 1 || (b.ndim() + 1 == a.ndim() && b.shape() == &a.shape()[..a.ndim() - 1])
}

/// Runs `solve` with the right side as columns, from whichever side.
fn sided(
    op: &'static str,
    a: &Tensor,
    b: &Tensor,
    left: bool,
    solve: impl FnOnce(&Tensor, &Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    if is_vector(a, b) {
        if !left {
            let why = "Vector broadcasting of the left hand side is not supported for left=False.";
            return Err(Error::runtime(op, why));
        }
        return solve(a, &b.unsqueeze(-1)?)?.squeeze(Some(&[-1]));
    }
    match left {
        true => solve(a, b),
        false if b.ndim() < 2 => Err(Error::shape(op, "B must have at least 2 dimensions", &[b.shape()])),
        false => turned(&solve(&turned(a)?, &turned(b)?)?),
    }
}

fn solve_body(a: &Tensor, b: &Tensor, left: bool) -> Result<Tensor> {
    batch("linalg.solve", a)?;
    sided("linalg.solve", a, b, left, linalg::solve_matrices)
}

fn solve_ex_body(a: &Tensor, b: &Tensor, left: bool, check_errors: bool) -> Result<Vec<Tensor>> {
    batch("linalg.solve_ex", a)?;
    let info = zero_pivots(a)?;
    if check_errors {
        refuse(&info, |n| singular_error("linalg.solve", n))?;
    }
    let (safe, singular) = regular(a, &info)?;
    let x = sided("linalg.solve_ex", &safe, b, left, |a, b| {
        select::r#where(&singular, Scalar::Float(f64::NAN), &linalg::solve_matrices(a, b)?)
    })?;
    Ok(vec![x, info])
}

/// Both with the batch that theirs broadcast to.
fn spread(op: &'static str, a: &Tensor, b: &Tensor) -> Result<(Tensor, Tensor)> {
    let lead = batch(op, a)?;
    if b.ndim() < 2 || b.shape()[b.ndim() - 2] != a.shape()[a.ndim() - 1] {
        return Err(Error::shape(
            op,
            "Incompatible shapes of A and B for the equation AX = B",
            &[a.shape(), b.shape()],
        ));
    }
    if a.dtype() != b.dtype() {
        return Err(Error::dtype(op, "Expected A and B to have the same dtype", &[a.dtype(), b.dtype()]));
    }
    let lead = shape::broadcast(op, lead, &b.shape()[..b.ndim() - 2])?;
    let wide = |t: &Tensor| {
        let shape: Shape = lead.iter().chain(&t.shape()[t.ndim() - 2..]).copied().collect();
        super::view::expand_to(t, &shape)
    };
    Ok((wide(a)?, wide(b)?))
}

fn solve_triangular_body(a: &Tensor, b: &Tensor, upper: bool, left: bool, unit: bool) -> Result<Tensor> {
    let op = "linalg.solve_triangular";
    if b.ndim() < 2 {
        return Err(Error::shape(op, "The input tensor B must have at least 2 dimensions.", &[b.shape()]));
    }
    let solve = |a: &Tensor, b: &Tensor, upper: bool| {
        let (a, b) = spread(op, a, b)?;
        solve_triangle(&a, &b, upper, unit)
    };
    match left {
        true => solve(a, b, upper),
        false => turned(&solve(&turned(a)?, &turned(b)?, !upper)?),
    }
}

fn cholesky_solve_body(b: &Tensor, l: &Tensor, upper: bool) -> Result<Tensor> {
    let (l, b) = spread("cholesky_solve", l, b)?;
    let (first, second) = if upper { (adjoint(&l)?, l) } else { (l.clone(), adjoint(&l)?) };
    solve_triangle(&second, &solve_triangle(&first, &b, false, false)?, true, false)
}

fn cholesky_inverse_body(l: &Tensor, upper: bool) -> Result<Tensor> {
    batch("cholesky_inverse", l)?;
    let eye = super::create::identity(l.shape()[l.ndim() - 1], l.dtype(), l.device())?;
    cholesky_solve_body(&eye, l, upper)
}

fn lstsq_body(a: &Tensor, b: &Tensor, rcond: Option<f64>, driver: Option<&str>) -> Result<Vec<Tensor>> {
    let op = "linalg.lstsq";
    let driver = driver.unwrap_or("gelsy");
    if !matches!(driver, "gels" | "gelsy" | "gelsd" | "gelss") {
        let why = "parameter `driver` should be one of (gels, gelsy, gelsd, gelss)";
        return Err(Error::runtime(op, why));
    }
    let (_, m, n) = matrices(op, a)?;
    let vector = b.ndim() + 1 == a.ndim() && is_vector(a, b);
    let b = if vector { b.unsqueeze(-1)? } else { b.clone() };
    if a.dtype() != b.dtype() {
        return Err(Error::dtype(op, "Expected A and B to have the same dtype", &[a.dtype(), b.dtype()]));
    }
    if b.ndim() < 2 || b.shape()[b.ndim() - 2] != m {
        return Err(Error::shape(op, "input.size(-2) should match other.size(-2)", &[a.shape(), b.shape()]));
    }
    let rtol = rcond.unwrap_or_else(|| rounding(a, m.max(n)));
    let x = linalg::pseudo_inverse(a, 0.0, rtol)?.matmul(&b)?;
    let values = linalg::linalg_svdvals(&a.detach()?, None)?;
    let rank = above(&values, 0.0, rtol)?.sum(Some(&[-1]), false, None)?;
    let real = values.dtype();
    let none = |dtype| Tensor::full_of(&[0], Scalar::ZERO, dtype, a.device());
    let full = || -> Result<bool> {
        let ranks = crate::batching::bare(&rank).clone();
        Ok(ranks.numel() > 0 && ranks.amin(None, false)?.item()?.to_i64() == n as i64)
    };
    let residuals = match m > n && driver != "gelsy" && (driver == "gels" || full()?) {
        true => (a.matmul(&x)? - &b)?.abs()?.square()?.sum(Some(&[-2]), false, None)?,
        false => none(real)?,
    };
    let x = if vector { x.squeeze(Some(&[-1]))? } else { x };
    Ok(vec![
        x,
        residuals,
        if driver == "gels" { none(DType::I64)? } else { rank },
        if matches!(driver, "gelsd" | "gelss") { values } else { none(real)? },
    ])
}

fn tensorinv_body(a: &Tensor, ind: i64) -> Result<Tensor> {
    let op = "linalg.tensorinv";
    let Some(ind) = usize::try_from(ind).ok().filter(|&i| i > 0) else {
        return Err(Error::runtime(op, "Expected a strictly positive integer for 'ind'"));
    };
    let (first, last) = a.shape().split_at(ind.min(a.ndim()));
    let (m, n): (usize, usize) = (first.iter().product(), last.iter().product());
    if m != n {
        let why = format!("Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), but got {n} != {m}");
        return Err(Error::shape(op, why, &[a.shape()]));
    }
    let shape: Shape = last.iter().chain(first).copied().collect();
    super::view::reshape_to(&super::view::reshape_to(a, &[m, n])?.inverse()?, &shape)
}

fn tensorsolve_body(a: &Tensor, b: &Tensor, dims: Option<&[isize]>) -> Result<Tensor> {
    let op = "linalg.tensorsolve";
    let a = match dims {
        Some(dims) => {
            let last: Vec<isize> = (0..dims.len() as isize).map(|i| i - dims.len() as isize).collect();
            a.movedim(dims, &last)?
        }
        None => a.clone(),
    };
    let result = Shape::from_slice(&a.shape()[b.ndim().min(a.ndim())..]);
    let (m, n): (usize, usize) = (b.numel(), result.iter().product());
    if m != n || a.numel() != m * n {
        let why =
            "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == prod(self.shape[:other.ndim])";
        return Err(Error::shape(op, why, &[a.shape(), b.shape()]));
    }
    let flat = super::view::reshape_to(b, &[m, 1])?;
    super::view::reshape_to(&linalg::solve_matrices(&super::view::reshape_to(&a, &[m, n])?, &flat)?, &result)
}

// ---- decompositions --------------------------------------------------------------------------------------------------

fn cholesky_ex_body(a: &Tensor, upper: bool, check_errors: bool) -> Result<Vec<Tensor>> {
    let op = "linalg.cholesky";
    batch(op, a)?;
    let n = a.shape()[a.ndim() - 1];
    let parts = unpacked(&linalg::cholesky_parts(a)?, &[&[n, n], &[]])?;
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
        "reduced" => unpacked(&linalg::qr_parts(a)?, &[&[m, k], &[k, n]]),
        "r" => {
            let r = unpacked(&linalg::qr_parts(a)?, &[&[m, k], &[k, n]])?.swap_remove(1);
            Ok(vec![Tensor::full_of(&[0], Scalar::ZERO, a.dtype(), a.device())?, r])
        }
        "complete" if m <= n => unpacked(&linalg::qr_parts(a)?, &[&[m, k], &[k, n]]),
        "complete" => {
            // The reflections of the first n columns are those of the matrix alone.
            let mut shape = Shape::from_slice(a.shape());
            shape[a.ndim() - 1] = m;
            let eye = super::view::expand_to(&super::create::identity(m, a.dtype(), a.device())?, &shape)?;
            let both = super::index::cat(&[a.clone(), eye], -1)?;
            let parts = unpacked(&linalg::qr_parts(&both)?, &[&[m, m], &[m, n + m]])?;
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
    unpacked(&linalg::eig_parts(a, true)?, &[&[n], &[n, n]])
}

fn eigvals_body(a: &Tensor) -> Result<Tensor> {
    linalg::eig_parts(a, false)
}

fn svd_body(a: &Tensor, full: bool, driver: Option<&str>) -> Result<Vec<Tensor>> {
    refuse_driver("linalg.svd", driver)?;
    let (lead, m, n) = matrices("linalg.svd", a)?;
    if !full {
        return linalg::svd_thin(a);
    }
    if m * n == 0 {
        let eye = |n: usize| {
            let shape: Shape = lead.iter().copied().chain([n, n]).collect();
            super::view::expand_to(&super::create::identity(n, a.dtype(), a.device())?, &shape)?.copy()
        };
        return Ok(vec![eye(m)?, linalg::linalg_svdvals(a, None)?, eye(n)?]);
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
    let eye = |rows: usize, columns: i64| super::create::identity(rows, a.dtype(), a.device())?.narrow(-1, 0, columns);
    let l = (lower + &eye(m, k)?)?;
    let order = row_order(&parts[1], m)?;
    let rows = super::create::arange_of(m, a.device())?;
    let p = rows.unsqueeze(-1)?.eq(&order.unsqueeze(-2)?)?.cast(a.dtype())?;
    Ok(vec![p, l, parts[0].narrow(-2, 0, k)?.triu(0)?])
}

fn lu_solve_body(lu: &Tensor, pivots: &Tensor, b: &Tensor, left: bool, adjoint: bool) -> Result<Tensor> {
    let op = "linalg.lu_solve";
    batch(op, lu)?;
    if pivots.dtype() != DType::I32 && pivots.dtype() != DType::I64 {
        return Err(Error::dtype(op, "Expected pivots to be integers", &[pivots.dtype()]));
    }
    let n = lu.shape()[lu.ndim() - 1];
    if pivots.shape() != &lu.shape()[..lu.ndim() - 1] {
        return Err(Error::shape(
            op,
            "Number of pivots per batch should be same as the dimension of the matrix",
            &[lu.shape(), pivots.shape()],
        ));
    }
    let order = row_order(pivots, n)?;
    let b = if left { b.clone() } else { turned(b)? };
    let (lu, b) = spread(op, lu, &b)?;
    let lead = &b.shape()[..b.ndim() - 2];
    let wide: Shape = lead.iter().copied().chain([n]).collect();
    let order = super::view::expand_to(&order, &wide)?;
    // From the right it is a system of the transpose, or of the conjugate.
    let lu = if adjoint { lu.conjugated()? } else { lu };
    let x = if adjoint == left {
        let y = solve_triangle(&turned(&lu)?, &b, false, false)?;
        reordered(&solve_triangle(&turned(&lu)?, &y, true, true)?, &order.argsort(-1, false, true)?)?
    } else {
        let y = solve_triangle(&lu, &reordered(&b, &order)?, false, true)?;
        solve_triangle(&lu, &y, true, false)?
    };
    if left {
        Ok(x)
    } else {
        turned(&x)
    }
}

// ---- ranks -----------------------------------------------------------------------------------------------------------

/// What rounding makes of zero singular values, over the largest one.
fn rounding(a: &Tensor, side: usize) -> f64 {
    let one = if a.dtype() == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
    one * side as f64
}

/// Absolute and relative tolerance.
fn tolerances(
    op: &'static str,
    a: &Tensor,
    atol: Option<Operand<'_>>,
    rtol: Option<Operand<'_>>,
) -> Result<(f64, f64)> {
    let number = |o: Operand<'_>| match o {
        Operand::Scalar(s) => Ok(s.to_f64()),
        Operand::Tensor(t) if t.numel() == 1 => t.detach()?.item_f64(),
        Operand::Tensor(t) => Err(Error::shape(op, "takes one tolerance for all matrices", &[t.shape()])),
    };
    let (_, m, n) = matrices(op, a)?;
    let absolute = atol.map(number).transpose()?.unwrap_or(0.0);
    let relative = match rtol {
        Some(r) => number(r)?,
        None if absolute > 0.0 => 0.0,
        None => rounding(a, m.max(n)),
    };
    Ok((absolute, relative))
}

/// Which singular values, or sizes of eigenvalues, are above the tolerance.
fn above(values: &Tensor, atol: f64, rtol: f64) -> Result<Tensor> {
    if values.shape()[values.ndim() - 1] == 0 {
        return values.gt(0);
    }
    let least = (values.amax(Some(&[-1]), true)? * rtol)?.clamp_min(atol)?;
    values.gt(&least)
}

fn pinv_body(a: &Tensor, atol: Option<Operand<'_>>, rtol: Option<Operand<'_>>, hermitian: bool) -> Result<Tensor> {
    let (atol, rtol) = tolerances("linalg.pinv", a, atol, rtol)?;
    // Of a symmetric matrix the lower half alone is read.
    let a = if hermitian { (a.tril(0)? + &adjoint(&a.tril(-1)?)?)? } else { a.clone() };
    linalg::pseudo_inverse(&a, atol, rtol)
}

fn pinverse_body(a: &Tensor, rcond: f64) -> Result<Tensor> {
    matrices("pinverse", a)?;
    linalg::pseudo_inverse(a, 0.0, rcond)
}

fn matrix_rank_body(
    a: &Tensor,
    atol: Option<Operand<'_>>,
    rtol: Option<Operand<'_>>,
    hermitian: bool,
) -> Result<Tensor> {
    let (atol, rtol) = tolerances("linalg.matrix_rank", a, atol, rtol)?;
    let a = a.detach()?;
    let values = match hermitian {
        true => linalg::linalg_eigvalsh(&a, "L")?.abs()?,
        false => linalg::linalg_svdvals(&a, None)?,
    };
    above(&values, atol, rtol)?.sum(Some(&[-1]), false, None)
}

fn cond_body(a: &Tensor, p: Option<NormOrder>) -> Result<Tensor> {
    let op = "linalg.cond";
    let (_, m, n) = matrices(op, a)?;
    match p {
        None | Some(NormOrder::Number(2.0 | -2.0)) => {
            if m.min(n) == 0 {
                return linalg::linalg_svdvals(a, None)?.sum(Some(&[-1]), false, None);
            }
            let values = linalg::linalg_svdvals(a, None)?;
            let (first, last) = (values.select(-1, 0)?, values.select(-1, -1)?);
            if p == Some(NormOrder::Number(-2.0)) {
                last / &first
            } else {
                first / &last
            }
        }
        Some(_) => {
            batch(op, a)?;
            let info = zero_pivots(a)?;
            let (safe, singular) = regular(a, &info)?;
            let inverse = select::r#where(&singular, Scalar::Float(f64::INFINITY), &safe.inverse()?)?;
            let norm = |t: &Tensor| matrix_norm_body(t, p, &[-2, -1], false, None);
            let finite = select::r#where(&singular, Scalar::ONE, &inverse)?;
            let y = norm(a)? * &norm(&finite)?;
            let singular = singular.squeeze(Some(&[-1]))?.squeeze(Some(&[-1]))?;
            select::r#where(&singular, Scalar::Float(f64::INFINITY), &y?)
        }
    }
}

// ---- products --------------------------------------------------------------------------------------------------------

fn matrix_power_body(op: &'static str, a: &Tensor, n: i64) -> Result<Tensor> {
    match a.shape() {
        [.., m, n] if m == n => {}
        [_, .., _] => return Err(Error::shape(op, "A must be batches of square matrices", &[a.shape()])),
        _ => return Err(Error::shape(op, "The input tensor A must have at least 2 dimensions.", &[a.shape()])),
    }
    schema::matrix_power.check(a.dtype())?;
    if n == 0 {
        let eye = super::create::identity(a.shape()[a.ndim() - 1], a.dtype(), a.device())?;
        let y = super::view::expand_to(&eye, a.shape())?.copy()?;
        if !a.requires_grad() {
            return Ok(y);
        }
        // The gradient is there, and 0.
        let no = Tensor::full_of(&[], Scalar::Bool(false), DType::Bool, a.device())?;
        return y + &a.where_else_zero(&no)?;
    }
    let mut square = if n < 0 { a.inverse()? } else { a.clone() };
    let (mut left, mut y) = (n.unsigned_abs(), None);
    loop {
        if left & 1 == 1 {
            y = Some(match y {
                None => square.clone(),
                Some(y) => square.matmul(&y)?,
            });
        }
        left >>= 1;
        match (left, y) {
            (0, Some(y)) if n == 1 => return y.copy(),
            (0, Some(y)) => return Ok(y),
            (_, rest) => y = rest,
        }
        square = square.matmul(&square)?;
    }
}

fn multi_dot_body(tensors: &[Tensor]) -> Result<Tensor> {
    let op = "linalg.multi_dot";
    let [first, middle @ .., last] = tensors else {
        return Err(Error::runtime(op, format!("expected at least 2 tensors but got {}", tensors.len())));
    };
    let wrong = |t: &Tensor| !matches!(t.ndim(), 1 | 2);
    if wrong(first) || wrong(last) || middle.iter().any(|t| t.ndim() != 2) {
        let shapes: Vec<&[usize]> = tensors.iter().map(Tensor::shape).collect();
        return Err(Error::shape(op, "takes matrices, the first and the last of which may be vectors", &shapes));
    }
    let mut all = vec![if first.ndim() == 1 { first.unsqueeze(0)? } else { first.clone() }];
    all.extend_from_slice(middle);
    all.push(if last.ndim() == 1 { last.unsqueeze(-1)? } else { last.clone() });
    let mut y = super::einsum::chain_matmul(&all)?;
    if last.ndim() == 1 {
        y = y.squeeze(Some(&[-1]))?;
    }
    match first.ndim() {
        1 => y.squeeze(Some(&[0])),
        _ => Ok(y),
    }
}

/// The powers 0 to `n - 1`, as a new last dimension.
fn powers(x: &Tensor, n: usize) -> Result<Tensor> {
    let dtype = if x.dtype().is_integral() { DType::I64 } else { x.dtype() };
    let mut shape = Shape::from_slice(x.shape());
    shape.push(1.min(n));
    let ones = Tensor::full_of(&shape, Scalar::ONE, dtype, x.device())?;
    if n < 2 {
        return Ok(ones);
    }
    shape[x.ndim()] = n - 1;
    let repeated = super::view::expand_to(&x.cast(dtype)?.unsqueeze(-1)?, &shape)?;
    super::index::cat(&[ones, repeated.cumprod(-1, None)?], -1)
}

fn linalg_vander_body(x: &Tensor, n: Option<i64>) -> Result<Tensor> {
    let op = "linalg.vander";
    schema::linalg_vander.check(x.dtype())?;
    if x.ndim() == 0 {
        return linalg_vander_body(&x.reshape(&[1])?, Some(n.unwrap_or(1)));
    }
    match n {
        Some(n) if n <= 1 => Err(Error::runtime(op, "N must be greater than 1.")),
        Some(n) => powers(x, n as usize),
        None => powers(x, x.shape()[x.ndim() - 1]),
    }
}

fn vander_body(x: &Tensor, n: Option<i64>, increasing: bool) -> Result<Tensor> {
    schema::vander.check(x.dtype())?;
    if x.ndim() != 1 {
        return Err(Error::shape("vander", "x must be a one-dimensional tensor.", &[x.shape()]));
    }
    let Ok(n) = usize::try_from(n.unwrap_or(x.numel() as i64)) else {
        return Err(Error::runtime("vander", "N must be non-negative."));
    };
    let y = powers(x, n)?;
    if increasing {
        Ok(y)
    } else {
        y.flip(&[-1])
    }
}

fn linalg_cross_body(a: &Tensor, b: &Tensor, dim: isize) -> Result<Tensor> {
    let op = "linalg.cross";
    let dtype = super::result_type([Operand::Tensor(a), Operand::Tensor(b)]);
    schema::linalg_cross.check(dtype)?;
    if a.ndim() != b.ndim() {
        return Err(Error::shape(op, "inputs must have the same number of dimensions.", &[a.shape(), b.shape()]));
    }
    let axis = shape::wrap_dim(op, dim, a.ndim())?;
    let size = |t: &Tensor| t.shape().get(axis).copied().unwrap_or(1);
    if size(a) != 3 || size(b) != 3 {
        let why = format!("inputs dimension {dim} must have length 3. Got {} and {}", size(a), size(b));
        return Err(Error::shape(op, why, &[a.shape(), b.shape()]));
    }
    let shape = shape::broadcast(op, a.shape(), b.shape())?;
    let (a, b) = (super::view::expand_to(a, &shape)?, super::view::expand_to(b, &shape)?);
    let dims = [axis as isize];
    let turn = |t: &Tensor, by: isize| t.roll(&[by], Some(&dims));
    (turn(&a, -1)? * &turn(&b, -2)?)? - &(turn(&a, -2)? * &turn(&b, -1)?)?
}

fn cross_body(a: &Tensor, b: &Tensor, dim: Option<isize>) -> Result<Tensor> {
    let dim = match dim {
        Some(dim) => dim,
        None => match a.shape().iter().position(|&n| n == 3) {
            Some(axis) => axis as isize,
            None => return Err(Error::shape("cross", "no dimension of size 3 in input", &[a.shape()])),
        },
    };
    linalg_cross_body(a, b, dim)
}

fn vecdot_body(x: &Tensor, y: &Tensor, dim: isize) -> Result<Tensor> {
    schema::linalg_vecdot.check(x.dtype())?;
    if x.dtype() != y.dtype() {
        let why = "Expected x and y to have the same dtype";
        return Err(Error::dtype("linalg.vecdot", why, &[x.dtype(), y.dtype()]));
    }
    (x.conjugated()? * y)?.sum(Some(&[dim]), false, Some(x.dtype()))
}

fn linalg_diagonal_body(a: &Tensor, offset: i64, dim1: isize, dim2: isize) -> Result<Tensor> {
    a.diagonal(offset, dim1, dim2)
}

// ---- norms -----------------------------------------------------------------------------------------------------------

fn vector_norm_body(
    x: &Tensor,
    ord: Scalar,
    dim: Option<&[isize]>,
    keepdim: bool,
    dtype: Option<DType>,
) -> Result<Tensor> {
    let op = "linalg.vector_norm";
    let axes = super::reduce::axes_of(op, dim, x)?;
    let p = ord.to_f64();
    if (p < 0.0 || p == f64::INFINITY) && axes.iter().any(|&a| x.shape()[a] == 0) {
        let why =
            format!("cannot compute the {p} norm on an empty tensor because the operation does not have an identity");
        return Err(Error::runtime(op, why));
    }
    x.norm(ord, dim, keepdim, dtype)
}

fn matrix_norm_body(
    a: &Tensor,
    ord: Option<NormOrder>,
    dim: &[isize],
    keepdim: bool,
    dtype: Option<DType>,
) -> Result<Tensor> {
    let op = "linalg.matrix_norm";
    schema::linalg_matrix_norm.check(a.dtype())?;
    if a.ndim() < 2 {
        return Err(Error::shape(op, "The input tensor A must have at least 2 dimensions.", &[a.shape()]));
    }
    let &[first, second] = dim else {
        return Err(Error::runtime(op, format!("dim must be a 2-tuple. Got {dim:?}")));
    };
    let (rows, columns) = (shape::wrap_dim(op, first, a.ndim())?, shape::wrap_dim(op, second, a.ndim())?);
    if rows == columns {
        return Err(Error::runtime(op, format!("dims must be different. Got ({first}, {second})")));
    }
    let a = a.cast(dtype.unwrap_or(a.dtype()))?;
    let (row, column) = (rows as isize, columns as isize);
    let sums = |over: isize, of: isize, largest: bool| {
        let sums = a.abs()?.sum(Some(&[over]), true, None)?;
        let y = if largest { sums.amax(Some(&[of]), true)? } else { sums.amin(Some(&[of]), true)? };
        match keepdim {
            true => Ok(y),
            false => y.squeeze(Some(&[row, column])),
        }
    };
    let values = |f: fn(&Tensor) -> Result<Tensor>| {
        let y = f(&linalg::linalg_svdvals(&a.movedim(&[row, column], &[-2, -1])?, None)?)?;
        match keepdim {
            true => y.unsqueeze(rows.min(columns) as isize)?.unsqueeze(rows.max(columns) as isize),
            false => Ok(y),
        }
    };
    match ord.unwrap_or(NormOrder::Fro) {
        NormOrder::Fro => vector_norm_body(&a, Scalar::Int(2), Some(dim), keepdim, None),
        NormOrder::Nuc => values(|s| s.sum(Some(&[-1]), false, None)),
        NormOrder::Number(2.0) => values(|s| s.amax(Some(&[-1]), false)),
        NormOrder::Number(-2.0) => values(|s| s.amin(Some(&[-1]), false)),
        NormOrder::Number(1.0) => sums(row, column, true),
        NormOrder::Number(-1.0) => sums(row, column, false),
        NormOrder::Number(f64::INFINITY) => sums(column, row, true),
        NormOrder::Number(f64::NEG_INFINITY) => sums(column, row, false),
        NormOrder::Number(other) => Err(Error::runtime(op, format!("Order {other} not supported."))),
    }
}

fn linalg_norm_body(
    x: &Tensor,
    ord: Option<NormOrder>,
    dim: Option<&[isize]>,
    keepdim: bool,
    dtype: Option<DType>,
) -> Result<Tensor> {
    let op = "linalg.norm";
    match (dim, ord) {
        (Some([_] | [_, _]), _) | (None, None) => {}
        (Some(dims), _) => {
            let why = format!("If dim is specified, it must be of length 1 or 2. Got {dims:?}");
            return Err(Error::runtime(op, why));
        }
        (None, Some(_)) if matches!(x.ndim(), 1 | 2) => {}
        (None, Some(_)) => {
            let why = "If dim is not specified but ord is, the input must be 1D or 2D";
            return Err(Error::shape(op, why, &[x.shape()]));
        }
    }
    let pair = dim.map_or(x.ndim(), <[isize]>::len) == 2;
    match ord {
        Some(NormOrder::Fro | NormOrder::Nuc) => matrix_norm_body(x, ord, dim.unwrap_or(&[-2, -1]), keepdim, dtype),
        Some(_) if pair => matrix_norm_body(x, ord, dim.unwrap_or(&[-2, -1]), keepdim, dtype),
        Some(NormOrder::Number(p)) => vector_norm_body(x, Scalar::Float(p), dim, keepdim, dtype),
        None => vector_norm_body(x, Scalar::Int(2), dim, keepdim, dtype),
    }
}

/// The sum of the singular values, for `norm` as well.
pub(crate) fn nuclear_norm_body(x: &Tensor, dim: Option<&[isize]>, keepdim: bool) -> Result<Tensor> {
    if dim.is_none() && x.ndim() != 2 {
        return Err(Error::shape("nuclear_norm", "takes matrices unless 'dim' names two dimensions", &[x.shape()]));
    }
    matrix_norm_body(x, Some(NormOrder::Nuc), dim.unwrap_or(&[-2, -1]), keepdim, None)
}
