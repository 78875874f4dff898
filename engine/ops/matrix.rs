//! Functions of matrices under PyTorch's names: determinants, pseudoinverses and ranks, powers and products, norms.
//!
//! Made of the primitives in `ops/linalg` and of other ops; what has a gradient has it from these. Matrices are the last two
//! dimensions, those before them a batch. Complex ones are factored on the CPU alone.
#![allow(non_snake_case)]

mod norms;

use super::compare::select;
use super::linalg::solve::{regular, zero_pivots};
use super::linalg::{self, batch, first_of, matrices};
use super::macros::define_composites;
use super::{NormOrder, Operand, Triangle};
use crate::autograd;
use crate::shape::{self, Shape};
use crate::tensor::signed;
use crate::warnings::warn_once;
use crate::{DType, Error, Result, Scalar, Tensor};
use norms::{largest_of, linalg_norm_body, matrix_norm_body, nuclear_norm_body, vector_norm_body};

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! matrix_ops {
    ($cb:ident) => { $crate::rows! { $cb "matrix" :
        /// The determinant of each matrix. The gradient is that of its cofactors, also where the matrix is singular.
        function linalg_det(A: Tensor) -> Tensor {
            amp: Full, dtypes: FACTORED, result: Same,
            run: linalg::det, torch: "linalg.det",
            samples: ["REG(2, 3, 3)", "N(0, 0)"],
            example: ["assert_close(linalg_det(&tensor([[1.0, 2.0], [3.0, 4.0]])?)?, -2.0);"],
        }
        /// Sign and logarithm of the absolute value of the determinant of each matrix.
        function linalg_slogdet(A: Tensor) -> SignLogabsdet {
            amp: Full, dtypes: FACTORED, result: Same,
            run: linalg::slogdet, torch: "linalg.slogdet",
            samples: ["REG(2, 3, 3)", "REG(2, 2)"],
            example: [
                "let (sign, logabsdet) = linalg_slogdet(&tensor([[1.0, 2.0], [3.0, 4.0]])?)?;",
                "assert_close(sign, -1.0);",
                "assert_close(logabsdet, 2f64.ln());",
            ],
        }
        /// The pseudoinverse of each matrix: singular values up to the larger of `atol` and `rtol` times the largest
        /// count as 0. By default `rtol` is the larger side times the dtype's rounding. With `hermitian` the matrices
        /// are symmetric: the lower half is read, and the gradient is that of matrices that stay so.
        function linalg_pinv(
            A: Tensor; atol: OptOperand = None, rtol: OptOperand = None, hermitian: Bool = false
        ) -> Tensor {
            out: cast, amp: Full, dtypes: FACTORED, result: Same,
            run: pinv_body, torch: "linalg.pinv",
            samples: ["REG(3, 3)", "N(2, 4, 3)", "N(3, 5), rtol=1e-3", "N(0, 2)"],
            example: ["assert_close(linalg_pinv(&tensor([[2.0], [0.0]])?, None, None, false)?, [[0.5, 0.0]]);"],
        }
        /// The number of singular values above the tolerance that [`linalg_pinv`] has, as int64.
        function linalg_matrix_rank(
            A: Tensor; atol: OptOperand = None, rtol: OptOperand = None, hermitian: Bool = false
        ) -> Tensor {
            out: cast, flags: [no_gradient], amp: Full, dtypes: FACTORED, result: Index,
            run: matrix_rank_body, torch: "linalg.matrix_rank",
            samples: ["N(3, 3)", "N(2, 4, 3), atol=1.5", "N(3, 5), rtol=0.5", "SYM(3, 3), hermitian=True", "N(0, 2)"],
            example: ["assert_close(linalg_matrix_rank(&tensor([[1.0, 2.0], [2.0, 4.0]])?, None, None, false)?, 1);"],
        }
        /// The condition number in the norm `p`: `‖A‖ ‖A⁻¹‖`, by default the largest singular value over the smallest.
        function linalg_cond(A: Tensor, p: OptOrder = None) -> Tensor {
            out: cast, amp: Full, dtypes: FACTORED, result: Real,
            run: cond_body, torch: "linalg.cond",
            samples: [
                "REG(2, 3, 3)",
                "N(3, 4), -2",
                "REG(3, 3), 'fro'",
                "REG(3, 3), 'nuc'",
                "REG(3, 3), 1",
                "REG(3, 3), float('-inf')",
            ],
            example: ["assert_close(linalg_cond(&tensor([[4.0, 0.0], [0.0, 2.0]])?, None)?, 2.0);"],
        }
        /// Each square matrix to the power `n`; of negative powers the inverse's.
        method matrix_power(n: Int) -> Tensor {
            out: rule, flags: [steps], dtypes: NUMERIC, result: Same,
            run: matrix_power_body["matrix_power"],
            samples: ["N(3, 3), 3", "N(2, 2, 2), 0", "REG(3, 3), -2", "N(2, 2), 5", "N(2, 2), 1"],
            example: ["assert_close(tensor([[1.0, 1.0], [0.0, 1.0]])?.matrix_power(5)?, [[1.0, 5.0], [0.0, 1.0]]);"],
        }
        /// [`matrix_power`].
        function linalg_matrix_power(A: Tensor, n: Int) -> Tensor {
            out: rule, flags: [steps], dtypes: NUMERIC, result: Same,
            run: matrix_power_body["linalg.matrix_power"], torch: "linalg.matrix_power",
            samples: ["N(3, 3), 2", "REG(2, 2, 2), -1"],
            example: [
                "let made = linalg_matrix_power(&tensor([[2.0, 0.0], [0.0, 4.0]])?, -1)?;",
                "assert_close(made, [[0.5, 0.0], [0.0, 0.25]]);",
            ],
        }
        /// The exponential of each square matrix.
        method matrix_exp() -> Tensor {
            out: none, amp: Full, dtypes: INEXACT, result: Same,
            run: linalg::linalg_matrix_exp, node: "linalg_matrix_exp",
            samples: ["N(3, 3)", "N(2, 2, 2)"],
            example: ["assert_close(tensor([[0.0, 1.0], [0.0, 0.0]])?.matrix_exp()?, [[1.0, 1.0], [0.0, 1.0]]);"],
        }
        /// The pseudoinverse; singular values up to `rcond` times the largest count as 0.
        method pinverse(rcond: Float = 1e-15) -> Tensor {
            out: none, amp: Full, dtypes: FACTORED, result: Same,
            run: pinverse_body, node: "linalg_pinv",
            samples: ["REG(3, 3)", "N(4, 2)"],
            example: ["assert_close(tensor([[2.0], [0.0]])?.pinverse(1e-15)?, [[0.5, 0.0]]);"],
        }
        /// The product of two or more matrices, the first and the last of which may be vectors, in the order that costs
        /// least.
        function linalg_multi_dot(tensors: Tensors) -> Tensor {
            flags: [steps], amp: Low, dtypes: NUMERIC, result: Same,
            run: multi_dot_body, node: "view", torch: "linalg.multi_dot",
            samples: [
                "[N(2, 3), N(3, 4)]",
                "[N(2, 3), N(3, 4), N(4, 2), N(2, 5)]",
                "[N(3), N(3, 4), N(4)]",
                "[N(2, 3), N(3)]",
            ],
            example: [
                "let (a, b) = (tensor([[1.0, 2.0]])?, tensor([[3.0], [4.0]])?);",
                "assert_close(linalg_multi_dot(&[a, b, tensor([[2.0, 0.0]])?])?, [[22.0, 0.0]]);",
            ],
        }
        /// The powers 0 to `N - 1` (by default as many as elements) of the elements of each vector, one row for each
        /// element.
        function linalg_vander(x: Tensor; N: OptInt = None) -> Tensor {
            out: none, flags: [steps], dtypes: NUMERIC.less(DTypes::of(&[$crate::DType::F16, $crate::DType::BF16])),
            result: Sum,
            run: linalg_vander_body, node: "cat", torch: "linalg.vander",
            samples: ["N(3)", "N(2, 3), N=4", "N(4), N=2", "I(-3, 4, 4)"],
            example: ["assert_close(linalg_vander(&tensor([2, 3])?, Some(3))?, [[1, 2, 4], [1, 3, 9]]);"],
        }
        /// The powers of a vector's elements, one row for each, from the highest on, or with `increasing` from 0 on.
        function vander(x: Tensor, N: OptInt = None, increasing: Bool = false) -> Tensor {
            out: none, dtypes: NUMERIC, result: Sum,
            run: vander_body,
            samples: ["N(3)", "N(3), 5", "N(4), 2, True", "I(-3, 4, 4), increasing=True", "N(3), 1", "N(3), 0"],
            example: ["assert_close(vander(&tensor([2, 3])?, Some(3), false)?, [[4, 2, 1], [9, 3, 1]]);"],
        }
        /// The cross product of the 3 elements along `dim`, with broadcasting.
        function linalg_cross(input: Tensor, other: Tensor; dim: Dim = -1) -> Tensor {
            amp: PromoteGpu, dtypes: NUMERIC, result: Same,
            run: linalg_cross_body, torch: "linalg.cross",
            samples: ["N(3), N(3)", "N(2, 3), N(2, 3)", "N(3, 4), N(3, 1), dim=0", "N(2, 3, 2), N(2, 3, 1), dim=1"],
            example: ["assert_close(linalg_cross(&tensor([1, 0, 0])?, &tensor([0, 1, 0])?, -1)?, [0, 0, 1]);"],
        }
        /// The cross product along `dim`, by default the first dimension of size 3.
        method cross(other: Tensor, dim: OptDim = None) -> Tensor {
            amp: PromoteGpu, dtypes: NUMERIC, result: Same,
            run: cross_body, node: "linalg_cross",
            samples: ["N(3), N(3)", "N(4, 3), N(4, 3)", "N(3, 3), N(3, 3), 1", "N(3, 4), N(3, 1), 0"],
            example: ["assert_close(tensor([1, 0, 0])?.cross(&tensor([0, 1, 0])?, None)?, [0, 0, 1]);"],
        }
        /// The sum of the products along `dim`, with broadcasting; the first factors are conjugated.
        function linalg_vecdot(x: Tensor, y: Tensor; dim: Dim = -1) -> Tensor {
            flags: [steps], amp: Low, dtypes: INEXACT, result: Same,
            run: vecdot_body, torch: "linalg.vecdot",
            samples: ["N(3), N(3)", "N(2, 3), N(2, 3)", "N(3, 4), N(3, 1), dim=0", "N(2, 1, 3), N(4, 3)"],
            example: [
                "let made = linalg_vecdot(&tensor([[1.0, 2.0], [3.0, 4.0]])?, &tensor([10.0, 1.0])?, -1)?;",
                "assert_close(made, [12.0, 34.0]);",
            ],
        }
        /// The norm of the elements over `dim` (all by default), as vectors: `(Σ|x|^ord)^(1/ord)`, for ±∞ the largest
        /// and the smallest |x|, for 0 how many are not zero. Computed in `dtype` if given.
        function linalg_vector_norm(
            x: Tensor, ord: Number = 2, dim: OptDims = None, keepdim: Bool = false; dtype: OptDtype = None
        ) -> Tensor {
            out: own, amp: FullGpu, dtypes: INEXACT, result: Real,
            run: vector_norm_body, torch: "linalg.vector_norm",
            samples: [
                "N(3, 4)",
                "N(3, 4), 1, 1",
                "N(3, 4), 3, (0, 1), True",
                "N(3, 4), float('inf'), 0",
                "N(3, 4), 0, 1",
                "N(3, 4), -1, 1",
            ],
            example: ["assert_close(linalg_vector_norm(&tensor([3.0, -4.0])?, 2, None, false, None)?, 5.0);"],
        }
        /// The norm of each matrix of the dimensions `dim`: "fro" (Frobenius), "nuc" (the sum of the singular values),
        /// 2 or -2 (the largest or smallest of them), 1 or -1 (the largest or smallest sum of a column's |x|), ∞ or -∞
        /// (of a row's).
        function linalg_matrix_norm(
            A: Tensor, ord: SomeOrder = Some($crate::ops::NormOrder::Fro), dim: Sizes = &[-2, -1],
            keepdim: Bool = false; dtype: OptDtype = None
        ) -> Tensor {
            out: own, flags: [steps], amp: FullGpu, dtypes: INEXACT, result: Real,
            run: matrix_norm_body, torch: "linalg.matrix_norm",
            samples: [
                "N(3, 4)",
                "N(2, 3, 4), 'nuc'",
                "N(3, 4), 2, (1, 0), True",
                "N(3, 4), -2",
                "N(3, 4), 1",
                "N(2, 3, 4), -1, (0, 1)",
                "N(3, 4), float('inf'), (0, 1), True",
                "N(3, 4), -float('inf')",
            ],
            example: [
                "let order = Some(lucid::ops::NormOrder::Number(1.0));",
                "let made = linalg_matrix_norm(&tensor([[1.0, -2.0], [3.0, 4.0]])?, order, &[-2, -1], false, None)?;",
                "assert_close(made, 6.0);",
            ],
        }
        /// [`linalg_vector_norm`] or [`linalg_matrix_norm`]: of two dimensions with an `ord` the matrix norm, else the
        /// vector norm, by default 2, of all elements.
        function linalg_norm(
            input: Tensor, ord: OptOrder = None, dim: OptDims = None, keepdim: Bool = false; dtype: OptDtype = None
        ) -> Tensor {
            out: own, flags: [steps], amp: FullGpu, dtypes: INEXACT, result: Real,
            run: linalg_norm_body, node: "linalg_vector_norm", torch: "linalg.norm",
            samples: [
                "N(3, 4)",
                "N(2, 3, 4), dim=(0, 2)",
                "N(3, 4), 1",
                "N(4), 3",
                "N(2, 3, 4), 'nuc', (1, 2)",
                "N(3, 4), 'fro', keepdim=True",
                "N(2, 3, 4), float('inf'), 1",
            ],
            example: ["assert_close(linalg_norm(&tensor([[1.0, 2.0], [2.0, 4.0]])?, None, None, false, None)?, 5.0);"],
        }
        /// The sum of the singular values of each matrix of the two dimensions `dim`.
        function nuclear_norm(input: Tensor, dim: SomeDims = None, keepdim: Bool = false) -> Tensor {
            flags: [steps], amp: Full, dtypes: FACTORED, result: Real,
            run: nuclear_norm_body,
            samples: ["N(3, 4)", "N(2, 3, 4), (0, 2)", "N(3, 3), keepdim=True"],
            example: ["assert_close(nuclear_norm(&tensor([[3.0, 0.0], [0.0, -2.0]])?, None, false)?, 5.0);"],
        }
        /// [`diagonal`](crate::ops::view::diagonal) of the last two dimensions by default.
        function linalg_diagonal(A: Tensor; offset: Int = 0, dim1: Dim = -2, dim2: Dim = -1) -> Tensor {
            out: none, dtypes: ALL, result: Same,
            run: linalg_diagonal_body, node: "diagonal", torch: "linalg.diagonal",
            samples: ["N(2, 3, 4)", "N(3, 4), offset=1"],
            example: ["assert_close(linalg_diagonal(&tensor([[1, 2], [3, 4]])?, 0, -2, -1)?, [1, 4]);"],
        }
    }};
}
matrix_ops!(define_composites);

// ---- ranks -----------------------------------------------------------------------------------------------------------

/// What rounding makes of zero singular values, over the largest one.
pub(super) fn rounding(a: &Tensor, side: usize) -> f64 {
    let one = if a.dtype().to_real() == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
    one * side as f64
}

/// Is it a tolerance for each matrix?
fn several(tolerance: Option<Operand<'_>>) -> bool {
    matches!(tolerance, Some(Operand::Tensor(t)) if t.numel() != 1 || t.ndim() > 0)
}

/// The least singular value that counts, one for each matrix, of tolerances that may be so too: those of the last
/// dimension of `values`, which is kept with one element.
fn least(
    op: &'static str,
    a: &Tensor,
    values: &Tensor,
    atol: Option<Operand<'_>>,
    rtol: Option<Operand<'_>>,
) -> Result<Tensor> {
    let given = |name, o: Option<Operand<'_>>| -> Result<Option<Tensor>> {
        Ok(Some(match o {
            None => return Ok(None),
            Some(Operand::Scalar(s)) => Tensor::constant(s, values.dtype(), a.device())?,
            Some(Operand::Tensor(t)) if t.dtype().is_complex() => {
                return Err(Error::runtime(op, format!("{name} tensor of complex type is not supported")));
            }
            Some(Operand::Tensor(t)) => t.detach()?.cast(values.dtype())?,
        }))
    };
    let (_, m, n) = matrices(op, a)?;
    let (atol, rtol) = (given("atol", atol)?, given("rtol", rtol)?);
    let absolute = match &atol {
        Some(atol) => atol.clone(),
        None => Tensor::constant(Scalar::ZERO, values.dtype(), a.device())?,
    };
    let relative = match rtol {
        Some(rtol) => rtol,
        None => {
            let usual = Scalar::Float(rounding(a, m.max(n)));
            select::r#where(&absolute.gt(0)?, Scalar::ZERO, usual)?.cast(values.dtype())?
        }
    };
    let largest = largest_of(&values.detach()?, -1, false)?;
    (relative * &largest)?.maximum(&absolute)?.unsqueeze(-1)
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
pub(super) fn above(values: &Tensor, atol: f64, rtol: f64) -> Result<Tensor> {
    if values.shape()[values.ndim() - 1] == 0 {
        return values.gt(0);
    }
    let least = (values.amax(Some(&[-1]), true)? * rtol)?.clamp_min(atol)?;
    values.gt(&least)
}

fn pinv_body(a: &Tensor, atol: Option<Operand<'_>>, rtol: Option<Operand<'_>>, hermitian: bool) -> Result<Tensor> {
    for (name, o) in [("atol", atol), ("rtol", rtol)] {
        if let Some(Operand::Tensor(t)) = o {
            autograd::refuse_recorded("linalg.pinv", "linalg_pinv", name, Some(t))?;
        }
    }
    if several(atol) || several(rtol) {
        return pinv_of_each(a, atol, rtol, hermitian);
    }
    let (atol, rtol) = tolerances("linalg.pinv", a, atol, rtol)?;
    if hermitian {
        batch("linalg.pinv", a)?;
    }
    linalg::pseudo_inverse(a, atol, rtol, hermitian)
}

/// The pseudo-inverse by tolerances of each matrix: `V S⁺ Uᴴ`, with its gradient from that of the factors.
fn pinv_of_each(a: &Tensor, atol: Option<Operand<'_>>, rtol: Option<Operand<'_>>, hermitian: bool) -> Result<Tensor> {
    let op = "linalg.pinv";
    matrices(op, a)?;
    let inverse = |values: &Tensor, sizes: &Tensor| {
        let kept = sizes.gt(&least(op, a, sizes, atol, rtol)?)?;
        select::r#where(&kept, &values.reciprocal()?, Scalar::ZERO)?.unsqueeze(-2)
    };
    if hermitian {
        batch(op, a)?;
        let [values, vectors] = first_of(linalg::factor::linalg_eigh(a, Triangle::Lower)?)?;
        let scaled = (&vectors * &inverse(&values, &values.abs()?)?)?;
        return scaled.matmul(&vectors.transpose(-2, -1)?.conj_physical()?);
    }
    let [u, values, vh] = first_of(linalg::factor::linalg_svd(a, false, None)?)?;
    let v = vh.transpose(-2, -1)?.conj_physical()?;
    (v * &inverse(&values, &values)?)?.matmul(&u.transpose(-2, -1)?.conj_physical()?)
}

fn pinverse_body(a: &Tensor, rcond: f64) -> Result<Tensor> {
    matrices("pinverse", a)?;
    linalg::pseudo_inverse(a, 0.0, rcond, false)
}

fn matrix_rank_body(
    a: &Tensor,
    atol: Option<Operand<'_>>,
    rtol: Option<Operand<'_>>,
    hermitian: bool,
) -> Result<Tensor> {
    let op = "linalg.matrix_rank";
    matrices(op, a)?;
    let a = &a.detach()?;
    let values = match hermitian {
        true => linalg::linalg_eigvalsh(a, Triangle::Lower)?.abs()?,
        false => linalg::linalg_svdvals(a, None)?,
    };
    if several(atol) || several(rtol) {
        return values.gt(&least(op, a, &values, atol, rtol)?)?.sum(Some(&[-1]), false, None);
    }
    let (atol, rtol) = tolerances(op, a, atol, rtol)?;
    above(&values, atol, rtol)?.sum(Some(&[-1]), false, None)
}

fn cond_body(a: &Tensor, p: Option<NormOrder>) -> Result<Tensor> {
    let op = "linalg.cond";
    let (_, m, n) = matrices(op, a)?;
    if let Some(NormOrder::Number(other)) =
        p.filter(|p| matches!(p, NormOrder::Number(v) if ![1.0, 2.0, f64::INFINITY].contains(&v.abs())))
    {
        return Err(Error::value(op, format!("linalg.cond got an invalid norm type: {other}")));
    }
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
        let _name = crate::autograd::named(op);
        let y = super::view::expand_to(&eye, a.shape())?.copy()?;
        // The gradient is there, and 0.
        return y.in_steps_of(a);
    }
    let mut square = if n < 0 { a.inverse()? } else { a.clone() };
    let (mut left, mut y) = (n.unsigned_abs(), None);
    loop {
        if left & 1 == 1 {
            y = Some(match y {
                None => square.clone(),
                Some(y) if n == 3 => square.matmul(&y)?,
                Some(y) => y.matmul(&square)?,
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
    let y = super::einsum::product_of(&all)?;
    let rows = (first.ndim() > 1).then(|| y.shape()[0] as isize);
    let columns = (last.ndim() > 1).then(|| y.shape()[1] as isize);
    y.view(&rows.into_iter().chain(columns).collect::<Vec<_>>())
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
    let repeated = x.cast(dtype)?.unsqueeze(-1)?.expand(&signed(&shape))?;
    super::index::cat(&[ones, repeated.cumprod(-1, None)?], -1)
}

fn linalg_vander_body(x: &Tensor, n: Option<i64>) -> Result<Tensor> {
    let op = "linalg.vander";
    schema::linalg_vander.check(x.dtype())?;
    if x.ndim() == 0 {
        return linalg_vander_body(&x.reshape(&[1])?, Some(n.unwrap_or(1)));
    }
    match n.unwrap_or(x.shape()[x.ndim() - 1] as i64) {
        n if n <= 1 => Err(Error::runtime(op, "N must be greater than 1.")),
        n => powers(x, n as usize),
    }
}

fn vander_body(x: &Tensor, n: Option<i64>, increasing: bool) -> Result<Tensor> {
    let x = &if x.dtype() == DType::Bool { x.cast(DType::I64)? } else { x.clone() };
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
    schema::linalg_cross.check(a.dtype())?;
    if a.dtype() != b.dtype() {
        let why = format!("expected scalar type {} but found {}", a.dtype(), b.dtype());
        return Err(Error::dtype(op, why, &[a.dtype(), b.dtype()]));
    }
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
        Some(dim) => {
            shape::wrap_dim("cross", dim, a.ndim().max(b.ndim()))?;
            dim
        }
        None => match a.shape().iter().position(|&n| n == 3) {
            Some(axis) => {
                warn_once!(
                    "Using cross without the dim argument is deprecated. Please pass dim, or use linalg.cross, whose dim is -1 by default."
                );
                axis as isize
            }
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
    if x.ndim() == 1 && y.ndim() == 1 {
        return x.vdot(y);
    }
    (x.conjugated()? * y)?.sum(Some(&[dim]), false, Some(x.dtype()))
}

fn linalg_diagonal_body(a: &Tensor, offset: i64, dim1: isize, dim2: isize) -> Result<Tensor> {
    a.diagonal(offset, dim1, dim2)
}

// ---- norms -----------------------------------------------------------------------------------------------------------
