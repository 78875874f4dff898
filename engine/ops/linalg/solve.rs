//! Linear systems, inverses and least squares, under PyTorch's names.
//!
//! Made of the primitives in `linalg`; gradients follow from theirs. Matrices are the last two dimensions, those before them
//! a batch. Complex ones are solved on the CPU alone.
#![allow(non_snake_case)]

use super::decomposition::lu_parts;
use super::{adjoint, batch, by_columns, first_of, matrices, refuse, reordered, row_order, solve_triangle};
use crate::autograd::{with_grad_layout, GradLayoutRule};
use crate::ops::compare::select;
use crate::ops::macros::define_composites;
use crate::ops::matrix::{above, rounding};
use crate::shape::{self, numel, Shape};
use crate::warnings::warn_once;
use crate::{DType, Error, Result, Scalar, Tensor};

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! solve_ops {
    ($cb:ident) => { $crate::rows! { $cb "solve" :
        /// The inverse of each matrix; an error where one is singular.
        function linalg_inv(A: Tensor) -> Tensor {
            amp: Full, dtypes: FACTORED, result: Same,
            run: super::inverse, node: "linalg_inv_ex", torch: "linalg.inv",
            samples: ["REG(2, 3, 3)", "N(1, 1)", "N(0, 0)"],
            example: ["assert_close(linalg_inv(&tensor([[2.0, 0.0], [0.0, 4.0]])?)?, [[0.5, 0.0], [0.0, 0.25]]);"],
        }
        /// The inverse of each matrix, and for each 0 or the number of the first pivot that is zero, as int32; the
        /// inverse is NaN there. With `check_errors` an error instead.
        function linalg_inv_ex(A: Tensor; check_errors: Bool = false) -> Named {
            amp: Full, dtypes: FACTORED, result: Own,
            run: inv_ex_body, torch: "linalg.inv_ex",
            samples: ["REG(2, 3, 3)", "REG(2, 2), check_errors=True"],
            example: [
                "let made = linalg_inv_ex(&tensor([[1.0, 2.0], [2.0, 4.0]])?, false)?;",
                "assert_close(&made[1], 2);",
            ],
        }
        /// `X` of `A X = B`, or without `left` of `X A = B`; `B` is a vector, or a matrix whose batch broadcasts with
        /// that of `A`. An error where an `A` is singular.
        function linalg_solve(A: Tensor, B: Tensor; left: Bool = true) -> Tensor {
            amp: Full, dtypes: FACTORED, result: Same,
            run: solve_body, node: "linalg_solve_ex", torch: "linalg.solve",
            samples: [
                "REG(3, 3), N(3, 2)",
                "REG(2, 3, 3), N(3, 2)",
                "REG(3, 3), N(3)",
                "REG(2, 3, 3), N(2, 3)",
                "REG(3, 3), N(2, 3), left=False",
            ],
            example: [
                "let x = linalg_solve(&tensor([[2.0, 1.0], [1.0, 3.0]])?, &tensor([3.0, 4.0])?, true)?;",
                "assert_close(x, [1.0, 1.0]);",
            ],
        }
        /// [`linalg_solve`], and for each matrix 0 or the number of the first pivot that is zero, as int32; the result
        /// is NaN there. With `check_errors` an error instead.
        function linalg_solve_ex(A: Tensor, B: Tensor; left: Bool = true, check_errors: Bool = false) -> Named {
            amp: Full, dtypes: FACTORED, result: Own,
            run: solve_ex_body, torch: "linalg.solve_ex",
            samples: ["REG(2, 3, 3), N(2, 3, 2)", "REG(3, 3), N(2, 3), left=False"],
            example: [
                "let made = linalg_solve_ex(&tensor([[2.0, 1.0], [1.0, 3.0]])?, &tensor([3.0, 4.0])?, true, false)?;",
                "assert_close(&made[0], [1.0, 1.0]);",
                "assert_close(&made[1], 0);",
            ],
        }
        /// `X` of `A X = B` (without `left`, of `X A = B`) for triangular `A`, whose other half is not read; with
        /// `unitriangular` its diagonal counts as ones. Batches broadcast. A zero on the diagonal makes what it reaches
        /// infinite or NaN; on the GPU device the whole matrix is NaN then.
        function linalg_solve_triangular(
            A: Tensor, B: Tensor; upper: Bool = true, left: Bool = true, unitriangular: Bool = false
        ) -> Tensor {
            amp: Full, dtypes: FACTORED, result: Same,
            run: solve_triangular_body, torch: "linalg.solve_triangular",
            samples: [
                "P(3, 3), N(3, 2), upper=True",
                "P(2, 3, 3), N(3, 2), upper=False",
                "P(3, 3), N(2, 3), upper=True, left=False",
                "N(3, 3), N(2, 3, 2), upper=False, unitriangular=True",
            ],
            example: [
                "let (a, b) = (tensor([[2.0, 1.0], [0.0, 4.0]])?, tensor([[3.0], [4.0]])?);",
                "assert_close(linalg_solve_triangular(&a, &b, true, true, false)?, [[1.0], [1.0]]);",
            ],
        }
        /// `X` of `A X = B` (without `left`, of `X A = B`; with `adjoint`, of the conjugate transposed `A`) from what
        /// `lu_factor` gave.
        function linalg_lu_solve(
            LU: Tensor, pivots: Tensor, B: Tensor; left: Bool = true, adjoint: Bool = false
        ) -> Tensor {
            amp: Full, dtypes: FACTORED, result: Same,
            run: lu_solve_body, torch: "linalg.lu_solve",
            samples: [
                "P(3, 3), PIV(3), N(3, 2)",
                "P(2, 3, 3), PIV(2, 3), N(2, 3, 2), adjoint=True",
                "P(3, 3), PIV(3), N(2, 3), left=False",
            ],
            example: [
                "let (packed, pivots) = (tensor([[4.0, 3.0], [0.5, -0.5]])?, tensor([2, 2])?.cast(DType::I32)?);",
                "let x = linalg_lu_solve(&packed, &pivots, &tensor([[3.0], [7.0]])?, true, false)?;",
                "assert_close(x, [[1.0], [1.0]]);",
            ],
        }
        /// The matrices that come nearest to `A X = B`, of the least norm, by the pseudoinverse; then the squared
        /// distances, where the driver (`"gels"`, `"gelsd"`, `"gelss"`) gives them and `A` has more rows than its rank,
        /// the rank, and the singular values (`"gelsd"` and `"gelss"`). What a driver does not give is empty.
        function linalg_lstsq(A: Tensor, B: Tensor, rcond: OptFloat = None; driver: OptText = None) -> Named {
            out: cast, amp: Full, dtypes: FACTORED, result: Same,
            run: lstsq_body, torch: "linalg.lstsq",
            samples: [
                "N(4, 3), N(4, 2)",
                "N(2, 3, 3), N(2, 3, 2)",
                "N(3, 4), N(3, 2), driver='gelsd'",
                "N(5, 2), N(5, 1), driver='gels'",
                "N(2, 4, 2), N(2, 4)",
            ],
            example: [
                "let (a, b) = (tensor([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])?, tensor([[1.0], [3.0], [5.0]])?);",
                "assert_close(&linalg_lstsq(&a, &b, None, None)?[0], [[1.0], [2.0]]);",
            ],
        }
        /// The inverse of `L Lᵀ` (with `upper`, of `Uᵀ U`) from a Cholesky factor.
        method cholesky_inverse(upper: Bool = false) -> Tensor {
            out: cast, amp: Full, dtypes: FACTORED, result: Same,
            run: cholesky_inverse_body,
            samples: ["P(3, 3)", "P(2, 3, 3), upper=True"],
            example: [
                "let made = tensor([[2.0, 0.0], [0.0, 4.0]])?.cholesky_inverse(false)?;",
                "assert_close(made, [[0.25, 0.0], [0.0, 0.0625]]);",
            ],
        }
        /// `X` of `L Lᵀ X = input` (with `upper`, of `Uᵀ U X = input`) from a Cholesky factor. Batches broadcast.
        method cholesky_solve(L: Tensor, upper: Bool = false) -> Tensor {
            out: cast, amp: Full, dtypes: FACTORED, result: Same,
            run: cholesky_solve_body,
            samples: ["N(3, 2), P(3, 3)", "N(2, 3, 2), P(3, 3), upper=True"],
            example: [
                "let x = tensor([[6.0], [12.0]])?.cholesky_solve(&tensor([[2.0, 0.0], [1.0, 3.0]])?, false)?;",
                "assert_close(x, [[1.0], [1.0]]);",
            ],
        }
        /// The inverse of a tensor as a linear map from its last dimensions to its first `ind`.
        function linalg_tensorinv(A: Tensor, ind: Int = 2) -> Tensor {
            out: cast, flags: [steps], amp: Full, dtypes: FACTORED, result: Same,
            run: tensorinv_body, node: "reshape_alias", torch: "linalg.tensorinv",
            samples: ["REG(2, 3, 6)", "REG(4, 2, 2), ind=1"],
            example: [
                "let made = linalg_tensorinv(&tensor([[2.0, 0.0], [0.0, 4.0]])?.reshape(&[2, 2, 1])?, 1)?;",
                "assert_close(made.reshape(&[2, 2])?, [[0.5, 0.0], [0.0, 0.25]]);",
            ],
        }
        /// `X` with `tensordot(A, X, X.ndim) = B`; the dimensions `dims` of `A` are moved to its end first.
        function linalg_tensorsolve(A: Tensor, B: Tensor, dims: OptDims = None) -> Tensor {
            out: cast, flags: [steps], amp: Full, dtypes: FACTORED, result: Same,
            run: tensorsolve_body, node: "view", torch: "linalg.tensorsolve",
            samples: ["REG(2, 3, 6), N(2, 3)", "REG(6, 2, 3), N(2, 3), dims=(0,)"],
            example: [
                "let x = linalg_tensorsolve(&tensor([[2.0, 1.0], [1.0, 3.0]])?, &tensor([3.0, 4.0])?, None)?;",
                "assert_close(x, [1.0, 1.0]);",
            ],
        }
        /// `X` of `A X = B` from what [`linalg_ldl_factor`](super::factor::linalg_ldl_factor) gave. The batch of `B`
        /// broadcasts with that of `LD`. No gradient. An error where the pivots are not those of a factorization. On
        /// the GPU device all is read back, which evaluates.
        function linalg_ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor; hermitian: Bool = false) -> Tensor {
            flags: [no_gradient], amp: Full, dtypes: FACTORED, result: Same,
            run: ldl_solve_body, torch: "linalg.ldl_solve",
            samples: ["P(3, 3), PIV(3), N(3, 2)", "P(2, 3, 3), PIV(2, 3), N(3, 2), hermitian=True"],
            example: [
                "let (factors, pivots) = (tensor([[2.0, 0.0], [0.5, 2.5]])?, tensor([1, 2])?.cast(DType::I32)?);",
                "assert_close(linalg_ldl_solve(&factors, &pivots, &tensor([[3.0], [4.0]])?, false)?, [[1.0], [1.0]]);",
            ],
        }
        /// `X` of `A X = input` from what `lu_factor` gave. Batches broadcast.
        method lu_solve(LU_data: Tensor, LU_pivots: Tensor) -> Tensor {
            amp: Full, dtypes: FACTORED, result: Same,
            run: lu_solve_method_body, node: "linalg_lu_solve",
            samples: ["N(3, 2), P(3, 3), PIV(3)", "N(2, 3, 2), P(2, 3, 3), PIV(2, 3)"],
            example: [
                "let (packed, pivots) = (tensor([[4.0, 3.0], [0.5, -0.5]])?, tensor([2, 2])?.cast(DType::I32)?);",
                "assert_close(tensor([[3.0], [7.0]])?.lu_solve(&packed, &pivots)?, [[1.0], [1.0]]);",
            ],
        }
        /// `X` of `A X = input`, with `transpose` of `Aᵀ X = input` (not conjugated), for a triangular `A` whose other
        /// half is not read, and a copy of `A`; with `unitriangular` its diagonal counts as ones. Batches broadcast.
        method triangular_solve(
            A: Tensor, upper: Bool = true, transpose: Bool = false, unitriangular: Bool = false
        ) -> Named {
            amp: Full, dtypes: FACTORED, result: Same,
            run: triangular_solve_body,
            samples: [
                "N(3, 2), P(3, 3)",
                "N(2, 3, 2), P(3, 3), False",
                "N(3, 2), P(2, 3, 3), True, True",
                "N(3, 2), P(3, 3), False, True, True",
            ],
            example: [
                "let a = tensor([[2.0, 1.0], [0.0, 4.0]])?;",
                "let made = tensor([[3.0], [4.0]])?.triangular_solve(&a, true, false, false)?;",
                "assert_close(&made[0], [[1.0], [1.0]]);",
            ],
        }
    }};
}
solve_ops!(define_composites);

fn turned(t: &Tensor) -> Result<Tensor> {
    t.transpose(-2, -1)
}

/// For each matrix 0, or the number of the first pivot that is zero.
pub(in crate::ops) fn zero_pivots(a: &Tensor) -> Result<Tensor> {
    let [_, _, info] = first_of(lu_parts(&a.detach()?)?)?;
    Ok(info)
}

/// The matrices, with the identity in place of the singular ones, and which they are.
pub(in crate::ops) fn regular(a: &Tensor, info: &Tensor) -> Result<(Tensor, Tensor)> {
    let singular = info.ne(0)?.unsqueeze(-1)?.unsqueeze(-1)?;
    let eye = crate::ops::create::identity(a.shape()[a.ndim() - 1], a.dtype(), a.device())?;
    Ok((select::r#where(&singular, &eye, a)?, singular))
}

fn inv_ex_body(a: &Tensor, check_errors: bool) -> Result<Vec<Tensor>> {
    batch("linalg.inv_ex", a)?;
    let info = zero_pivots(a)?;
    if check_errors {
        refuse(&info, |n| Error::singular("linalg.inv", n))?;
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
        let x = solve(a, &b.unsqueeze(-1)?)?.squeeze(Some(&[-1]))?;
        // In PyTorch a batch of vectors has the layout of a matrix of them, by columns.
        return if x.ndim() > 1 { by_columns(&x) } else { Ok(x) };
    }
    match left {
        true => solve(a, b),
        false if b.ndim() < 2 => Err(Error::shape(op, "B must have at least 2 dimensions", &[b.shape()])),
        false => turned(&solve(&turned(&with_grad_layout(a, GradLayoutRule::RowMajor)?)?, &turned(b)?)?),
    }
}

fn solve_body(a: &Tensor, b: &Tensor, left: bool) -> Result<Tensor> {
    batch("linalg.solve", a)?;
    sided("linalg.solve", a, b, left, super::solve_matrices)
}

fn solve_ex_body(a: &Tensor, b: &Tensor, left: bool, check_errors: bool) -> Result<Vec<Tensor>> {
    batch("linalg.solve_ex", a)?;
    let info = zero_pivots(a)?;
    if check_errors {
        refuse(&info, |n| Error::singular("linalg.solve", n))?;
    }
    let (safe, singular) = regular(a, &info)?;
    let x = sided("linalg.solve_ex", &safe, b, left, |a, b| {
        select::r#where(&singular, Scalar::Float(f64::NAN), &super::solve_matrices(a, b)?)
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
        crate::ops::view::expand_to(t, &shape)
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
        false => {
            let (a, b) =
                (with_grad_layout(a, GradLayoutRule::RowMajor)?, with_grad_layout(b, GradLayoutRule::Columns)?);
            by_columns(&turned(&solve(&turned(&a)?, &turned(&b)?, !upper)?)?)
        }
    }
}

fn cholesky_solve_body(b: &Tensor, l: &Tensor, upper: bool) -> Result<Tensor> {
    let (l, b) = spread("cholesky_solve", l, b)?;
    let (first, second) = if upper { (adjoint(&l)?, l) } else { (l.clone(), adjoint(&l)?) };
    solve_triangle(&second, &solve_triangle(&first, &b, false, false)?, true, false)
}

fn cholesky_inverse_body(l: &Tensor, upper: bool) -> Result<Tensor> {
    batch("cholesky_inverse", l)?;
    let eye = crate::ops::create::identity(l.shape()[l.ndim() - 1], l.dtype(), l.device())?;
    cholesky_solve_body(&eye, l, upper)
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
    let lu = if left && !adjoint { lu.clone() } else { with_grad_layout(lu, GradLayoutRule::RowMajor)? };
    let (lu, b) = spread(op, &lu, &b)?;
    let lead = &b.shape()[..b.ndim() - 2];
    let wide: Shape = lead.iter().copied().chain([n]).collect();
    let order = crate::ops::view::expand_to(&order, &wide)?;
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

fn lu_solve_method_body(b: &Tensor, lu: &Tensor, pivots: &Tensor) -> Result<Tensor> {
    warn_once!("lu_solve is deprecated in favor of linalg.lu_solve, whose first arguments are the factors.");
    lu_solve_body(lu, pivots, b, true, false)
}

fn triangular_solve_body(
    b: &Tensor,
    a: &Tensor,
    upper: bool,
    transpose: bool,
    unitriangular: bool,
) -> Result<Vec<Tensor>> {
    warn_once!("triangular_solve is deprecated in favor of linalg.solve_triangular.");
    let (a, b) = spread("triangular_solve", a, b)?;
    let x = match transpose {
        true => solve_triangle(&turned(&with_grad_layout(&a, GradLayoutRule::RowMajor)?)?, &b, !upper, unitriangular)?,
        false => solve_triangle(&a, &b, upper, unitriangular)?,
    };
    // PyTorch's second result is made of both, with zeros for the gradient of `b`.
    Ok(vec![x, by_columns(&a)?.in_steps_of(&b.sum(None, false, None)?)?])
}

fn ldl_solve_body(ld: &Tensor, pivots: &Tensor, b: &Tensor, hermitian: bool) -> Result<Tensor> {
    let op = "linalg.ldl_solve";
    batch(op, ld)?;
    if pivots.dtype() != DType::I32 && pivots.dtype() != DType::I64 {
        return Err(Error::dtype(op, "Expected pivots to be integers", &[pivots.dtype()]));
    }
    if pivots.shape() != &ld.shape()[..ld.ndim() - 1] {
        let why = "Expected LD.shape[:-1] and pivots.shape to be the same";
        return Err(Error::shape(op, why, &[ld.shape(), pivots.shape()]));
    }
    // Of no such dimension it is an error of indices, as in PyTorch.
    shape::wrap_dim(op, -2, b.ndim())?;
    let (ld, b) = spread(op, ld, b)?;
    let pivots = crate::ops::view::expand_to(&pivots.cast(DType::I32)?, &b.shape()[..b.ndim() - 1])?;
    if b.numel() == 0 {
        return b.copy();
    }
    super::ldl_solve_matrices(&ld, &pivots, &b, hermitian)
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
    if b.ndim() != a.ndim() {
        let why = "input.dim() must be equal to other.dim(), or greater by one";
        return Err(Error::shape(op, why, &[a.shape(), b.shape()]));
    }
    if b.ndim() < 2 || b.shape()[b.ndim() - 2] != m {
        return Err(Error::shape(op, "input.size(-2) should match other.size(-2)", &[a.shape(), b.shape()]));
    }
    // By columns, as LAPACK takes the matrix.
    let (plain, a, b) =
        (a, &with_grad_layout(a, GradLayoutRule::Columns)?, with_grad_layout(&b, GradLayoutRule::RowMajor)?);
    let rtol = rcond.unwrap_or_else(|| rounding(a, m.max(n)));
    // The product by columns.
    let x = turned(&turned(&b)?.matmul(&turned(&super::pseudo_inverse(a, 0.0, rtol, false)?)?)?)?;
    let values = super::linalg_svdvals(&a.detach()?, None)?;
    let rank = above(&values, 0.0, rtol)?.sum(Some(&[-1]), false, None)?;
    let real = values.dtype();
    let none = |dtype| Tensor::full_of(&[0], Scalar::ZERO, dtype, a.device());
    let full = || -> Result<bool> {
        let ranks = crate::batching::bare(&rank).clone();
        Ok(ranks.numel() > 0 && ranks.amin(None, false)?.item()?.to_i64() == n as i64)
    };
    let residuals = match m > n && driver != "gelsy" && (driver == "gels" || full()?) {
        true => (with_grad_layout(plain, GradLayoutRule::RowMajor)?.matmul(&x)? - &b)?.abs()?.square()?.sum(
            Some(&[-2]),
            false,
            None,
        )?,
        // A part of the graph, as PyTorch's.
        false if x.requires_grad() => x.reshape(&[-1])?.narrow(0, 0, 0)?.abs()?,
        false => none(real)?,
    };
    let x = in_room_of(x, m)?;
    let x = if vector { x.squeeze(Some(&[-1]))? } else { x };
    Ok(vec![
        x,
        residuals,
        if driver == "gels" { none(DType::I64)? } else { rank },
        if matches!(driver, "gelsd" | "gelss") { values } else { none(real)? },
    ])
}

/// Solutions by columns, each in a column of so many elements: as in PyTorch, where they take the place of the right sides.
fn in_room_of(x: Tensor, rows: usize) -> Result<Tensor> {
    let n = x.shape()[x.ndim() - 2];
    if rows <= n || x.is_batched() {
        return Ok(x);
    }
    let columns = turned(&x)?;
    let mut rest = Shape::from_slice(columns.shape());
    rest[x.ndim() - 1] = rows - n;
    let rest = Tensor::full_of(&rest, Scalar::ZERO, x.dtype(), x.device())?;
    turned(&crate::ops::index::cat(&[columns, rest], -1)?.narrow(-1, 0, n as i64)?).map(Tensor::alone_on_storage)
}

fn tensorinv_body(a: &Tensor, ind: i64) -> Result<Tensor> {
    let op = "linalg.tensorinv";
    let Some(ind) = usize::try_from(ind).ok().filter(|&i| i > 0) else {
        return Err(Error::runtime(op, "Expected a strictly positive integer for 'ind'"));
    };
    if a.ndim() == 0 {
        return Err(Error::shape(op, "expected dimensions to invert over, got a tensor without any", &[a.shape()]));
    }
    let (first, last) = a.shape().split_at(ind.min(a.ndim()));
    let (m, n): (usize, usize) = (numel(first), numel(last));
    if m != n {
        let why = format!("Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), but got {n} != {m}");
        return Err(Error::shape(op, why, &[a.shape()]));
    }
    let shape: Shape = last.iter().chain(first).copied().collect();
    let inverse = crate::ops::view::reshape_to(a, &[m, n])?.inverse()?;
    let _name = crate::autograd::named("reshape_alias");
    crate::ops::view::reshape_to(&inverse, &shape)
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
    let (m, n): (usize, usize) = (b.numel(), numel(&result));
    if m != n || a.numel() != m * n {
        let why =
            "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == prod(self.shape[:other.ndim])";
        return Err(Error::shape(op, why, &[a.shape(), b.shape()]));
    }
    let flat = crate::ops::view::reshape_to(b, &[m, 1])?;
    let a = a.reshape(&[m as isize, n as isize])?;
    let solved = {
        let _name = crate::autograd::named("linalg_solve_ex");
        super::solve_matrices(&a, &flat)?
    };
    crate::ops::view::reshape_to(&solved, &result)
}
