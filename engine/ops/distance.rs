//! Norms, distances and covariances.
//!
//! All are made of reductions and element-wise ops. Where the slope of a root or a power is infinite at 0 the argument is
//! replaced there, so that gradients are 0 and not NaN, as in PyTorch.

use super::compare::select;
use super::macros::define_composites;
use super::reduce::axes_of;
use crate::shape;
use crate::{autograd, DType, Error, Result, Scalar, Tensor};

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! metric_ops {
    ($cb:ident) => { $crate::rows! { $cb "metric" :
        /// The `p`-norm over `dim` (all by default), `(Σ|x|^p)^(1/p)`: for `p` = ∞ and -∞ the largest and smallest |x|,
        /// for 0 the number of elements that are not zero.
        method norm(p: Number = 2, dim: OptDims = None, keepdim: Bool = false; dtype: OptDtype = None) -> Tensor {
            python: function, out: own, amp: FullGpu, dtypes: INEXACT, result: Real,
            run: norm_body, node: "linalg_vector_norm",
            samples: [
                "N(3, 4)",
                "N(3, 4), 1, 1",
                "N(3, 4), 3, (0, 1), True",
                "N(3, 4), float('inf'), 0",
                "N(3, 4), -float('inf'), 0",
                "N(3, 4), 0, 1",
                "N(3, 4), 0.5, 1",
                "N(3, 4), -1, 1",
            ],
            example: [
                "let x = tensor([[3.0, -4.0], [0.0, 5.0]])?;",
                "assert_close(x.norm(2, Some(&[1]), false, None)?, [5.0, 5.0]);",
                "assert_close(x.norm(f64::INFINITY, None, false, None)?, 5.0);",
            ],
        }
        /// The `p`-norm of `input - other`.
        method dist(other: Tensor, p: Number = 2) -> Tensor {
            out: none, amp: FullGpu, dtypes: FLOAT, result: Same,
            run: dist_body,
            samples: ["N(3, 4), N(3, 4)", "N(3, 4), N(4), 1", "N(3), N(3), float('inf')", "N(3), N(3), 3.5"],
            example: ["assert_close(tensor([1.0, 2.0])?.dist(&tensor([4.0, 6.0])?, 2)?, 5.0);"],
        }
        /// The `p`-norms between each two rows of two (batches of) matrices. `compute_mode` says where for `p` = 2 the
        /// matrix product is used, which is faster and less exact: by default above 25 rows.
        function cdist(x1: Tensor, x2: Tensor, p: Float = 2.0, compute_mode: OptText = None) -> Tensor {
            out: none, amp: Full, dtypes: FLOAT, result: Same,
            run: cdist_body,
            samples: [
                "N(3, 4), N(2, 4)",
                "N(2, 3, 4), N(5, 4), 1.0",
                "N(3, 4), N(2, 4), 3.0",
                "N(3, 4), N(2, 4), float('inf')",
                "N(30, 2), N(2, 2)",
                "N(3, 0), N(2, 0)",
                "N(0, 4), N(2, 4)",
            ],
            example: [
                "let (a, b) = (tensor([[0.0, 0.0]])?, tensor([[3.0, 4.0], [1.0, 0.0]])?);",
                "assert_close(cdist(&a, &b, 2.0, None)?, [[5.0, 1.0]]);",
            ],
        }
        /// The slices of dimension `dim` whose `p`-norm is above `maxnorm`, scaled down to it; the others as they are.
        method renorm(p: Float, dim: Dim, maxnorm: Float) -> Tensor {
            in_place: yes, amp: FullGpu, dtypes: FLOAT, result: Same,
            run: renorm_body,
            samples: ["N(3, 4), 2, 0, 1.0", "N(3, 4), 1, 1, 2.0", "N(2, 3, 4), 2, -1, 1.5"],
            example: [
                "assert_close(tensor([[3.0, 4.0], [0.3, 0.4]])?.renorm(2.0, 0, 1.0)?, [[0.6, 0.8], [0.3, 0.4]]);",
            ],
        }
        /// The covariance matrix of variables in rows, observed in columns, over `n - correction`; `fweights` count
        /// observations, `aweights` weigh them.
        method cov(; correction: Int = 1, fweights: OptTensor = None, aweights: OptTensor = None) -> Tensor {
            out: none, flags: [steps], dtypes: NUMERIC, result: Float,
            run: cov_body, node: "squeeze",
            samples: [
                "N(3, 5)",
                "N(5)",
                "N(3, 5), correction=0",
                "N(3, 5), fweights=I(1, 4, 5)",
                "N(3, 5), aweights=FIXED(P(5))",
                "N(2, 5), fweights=I(1, 4, 5), aweights=FIXED(P(5))",
            ],
            example: [
                "let made = tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])?.cov(1, None, None)?;",
                "assert_close(made, [[1.0, -1.0], [-1.0, 1.0]]);",
            ],
        }
        /// The correlation coefficients of variables in rows, observed in columns (Pearson).
        method corrcoef() -> Tensor {
            out: none, flags: [steps], dtypes: NUMERIC, result: Float,
            run: corrcoef_body, node: ("clamp", 1),
            samples: ["N(3, 5)", "N(2, 6)"],
            example: [
                "assert_close(tensor([[1.0, 2.0, 3.0], [6.0, 4.0, 2.0]])?.corrcoef()?, [[1.0, -1.0], [-1.0, 1.0]]);",
            ],
        }
    }};
}
metric_ops!(define_composites);

/// `√x` with the slope 0 where `x` is 0.
fn root(x: &Tensor) -> Result<Tensor> {
    if !autograd::is_followed(x) {
        return x.sqrt();
    }
    let zero = x.detach()?.eq(0)?;
    let safe = select::r#where(&zero, Scalar::ONE, x)?.sqrt()?;
    safe.where_else_zero(&zero.logical_not()?)
}

/// The norm of numbers that are real and floating.
fn p_norm(x: &Tensor, p: f64, dims: Option<&[isize]>, keepdim: bool) -> Result<Tensor> {
    if p == 2.0 && x.dtype().is_float() && !x.is_sparse() {
        return root(&super::reduce::sum_of_squares(x, dims, keepdim)?);
    }
    let size = x.abs()?;
    if p.is_infinite() {
        // Of no elements the largest is 0, as in PyTorch; the smallest is refused below.
        let axes = axes_of("norm", dims, x)?;
        if p > 0.0 && axes.iter().any(|&a| x.shape()[a] == 0) {
            return size.sum(dims, keepdim, None);
        }
        return if p > 0.0 { size.amax(dims, keepdim) } else { size.amin(dims, keepdim) };
    }
    if p == 0.0 {
        let count = x.detach()?.ne(0)?.cast(size.dtype())?.sum(dims, keepdim, None)?;
        if !crate::autograd::is_followed(x) {
            return Ok(count);
        }
        // The gradient is there, and 0.
        let no = Tensor::full_of(&[], Scalar::Bool(false), DType::Bool, x.device())?;
        return count + &size.where_else_zero(&no)?.sum(dims, keepdim, None)?;
    }
    if p == 1.0 {
        return size.sum(dims, keepdim, None);
    }
    if p == 2.0 {
        return root(&size.square()?.sum(dims, keepdim, None)?);
    }
    let zero = size.detach()?.eq(0)?;
    if p < 0.0 {
        // A zero makes the norm 0, and the gradient of all it is made of, unless there is a NaN as well.
        let sum = select::r#where(&zero, Scalar::ONE, &size)?.pow(p)?.sum(dims, keepdim, None)?;
        let axes: Vec<isize> = axes_of("norm", dims, x)?.iter().map(|&a| a as isize).collect();
        let kept = zero.any(Some(&axes), keepdim)?.logical_not()?.logical_or(&sum.detach()?.isnan()?)?;
        return select::r#where(&kept, &sum, Scalar::ONE)?.pow(1.0 / p)?.where_else_zero(&kept);
    }
    let powers = select::r#where(&zero, Scalar::ONE, &size)?.pow(p)?.where_else_zero(&zero.logical_not()?)?;
    let sum = powers.sum(dims, keepdim, None)?;
    let none = sum.detach()?.eq(0)?;
    let y = select::r#where(&none, Scalar::ONE, &sum)?.pow(1.0 / p)?;
    y.where_else_zero(&none.logical_not()?)
}

fn norm_body(x: &Tensor, p: Scalar, dim: Option<&[isize]>, keepdim: bool, dtype: Option<DType>) -> Result<Tensor> {
    if p.to_f64() != 0.0 || !autograd::is_followed(x) {
        return normed(x, p, dim, keepdim, dtype);
    }
    let count = normed(&x.detach()?, p, dim, keepdim, dtype)?;
    // What PyTorch's pairwise_distance calls is the older norm.
    let older = matches!(autograd::op_name(), Some("pairwise_distance"));
    let name = if older { "NormBackward1" } else { "LinalgVectorNormBackward0" };
    autograd::leading_nowhere(&count, name, &[x])?;
    Ok(count)
}

/// Refuses a norm's `dtype` that would lose something of the input: it is no narrower, and complex as the input is.
pub(crate) fn check_norm_dtype(op: &'static str, x: &Tensor, dtype: Option<DType>) -> Result<()> {
    let (has, Some(wants)) = (x.dtype(), dtype) else { return Ok(()) };
    if !has.is_float() && !has.is_complex() {
        let why = format!("Expected a floating point or complex tensor as input. Got {has}");
        return Err(Error::not_implemented(op, why));
    }
    let why = match (has.is_complex(), wants.is_complex()) {
        _ if !wants.is_float() && !wants.is_complex() => "should be floating point or complex",
        (true, false) => "should be complex for complex inputs",
        (false, true) => "should be real for real inputs",
        _ if has.promote(wants)? != wants => "should hold that of the input without narrowing",
        _ => return Ok(()),
    };
    Err(Error::runtime(op, format!("dtype {why}, but got {wants} for {has}")))
}

fn normed(x: &Tensor, p: Scalar, dim: Option<&[isize]>, keepdim: bool, dtype: Option<DType>) -> Result<Tensor> {
    check_norm_dtype("linalg.vector_norm", x, dtype)?;
    let x = match dtype {
        Some(dtype) => x.cast(dtype)?,
        None => x.clone(),
    };
    schema::norm.check(x.dtype())?;
    if x.dtype().is_half() {
        return p_norm(&x.cast(DType::F32)?, p.to_f64(), dim, keepdim)?.cast(x.dtype());
    }
    p_norm(&x, p.to_f64(), dim, keepdim)
}

fn dist_body(x: &Tensor, other: &Tensor, p: Scalar) -> Result<Tensor> {
    normed(&(x - other)?, p, None, false, None)
}

fn cdist_body(x1: &Tensor, x2: &Tensor, p: f64, mode: Option<&str>) -> Result<Tensor> {
    let op = "cdist";
    schema::cdist.check(x1.dtype())?;
    if x1.dtype() != x2.dtype() {
        return Err(Error::dtype(op, "X1 and X2 must have the same dtype", &[x1.dtype(), x2.dtype()]));
    }
    if x1.ndim() < 2 || x2.ndim() < 2 {
        let why = format!("only supports at least 2D tensors, X1 got: {}D, X2 got: {}D", x1.ndim(), x2.ndim());
        return Err(Error::shape(op, why, &[x1.shape(), x2.shape()]));
    }
    let (n, m) = (x1.shape()[x1.ndim() - 1], x2.shape()[x2.ndim() - 1]);
    if n != m {
        let why = format!("X1 and X2 must have the same number of columns. X1: {n} X2: {m}");
        return Err(Error::shape(op, why, &[x1.shape(), x2.shape()]));
    }
    if p.is_nan() || p < 0.0 {
        return Err(Error::runtime(op, "only supports non-negative p values"));
    }
    let (rows1, rows2) = (x1.shape()[x1.ndim() - 2], x2.shape()[x2.ndim() - 2]);
    let product = match mode {
        None | Some("use_mm_for_euclid_dist_if_necessary") => rows1 > 25 || rows2 > 25,
        Some("use_mm_for_euclid_dist") => true,
        Some("donot_use_mm_for_euclid_dist") => false,
        Some(other) => return Err(Error::value(op, format!("{other} is not a valid value for compute_mode"))),
    };
    if x1.dtype().is_half() && p == 2.0 && product {
        // Squares of 16 bits are soon infinite.
        return cdist_body(&x1.cast(DType::F32)?, &x2.cast(DType::F32)?, p, mode)?.cast(x1.dtype());
    }
    if p == 2.0 && product && n > 0 {
        let square = |x: &Tensor| x.square()?.sum(Some(&[-1]), true, None);
        let both = (square(x1)? + &square(x2)?.transpose(-2, -1)?)?;
        let squares = (both - &(x1.matmul(&x2.transpose(-2, -1)?)? * 2.0)?)?;
        return root(&squares.clamp(Some(super::Operand::Scalar(Scalar::ZERO)), None)?);
    }
    let gap = (x1.unsqueeze(-2)? - &x2.unsqueeze(-3)?)?;
    let far = normed(&gap, Scalar::Float(p), Some(&[-1]), false, None)?;
    if p != f64::INFINITY || n == 0 || !crate::autograd::is_followed(&gap) {
        return Ok(far);
    }
    // PyTorch gives each of several largest differences the whole gradient, not its share.
    let (size, far) = (gap.abs()?, far.detach()?);
    let top = size.detach()?.eq(&far.unsqueeze(-1)?)?.logical_and(&far.isfinite()?.unsqueeze(-1)?)?;
    &(&size - &far.unsqueeze(-1)?)?.where_else_zero(&top)?.sum(Some(&[-1]), false, None)? + &far
}

fn renorm_body(x: &Tensor, p: f64, dim: isize, maxnorm: f64) -> Result<Tensor> {
    let op = "renorm";
    if p.is_nan() || p <= 0.0 {
        return Err(Error::runtime(op, "non-positive-norm not supported"));
    }
    if maxnorm < 0.0 || maxnorm.is_nan() {
        return Err(Error::runtime(op, format!("expected maxnorm to be >= 0 but got {maxnorm}")));
    }
    if x.ndim() < 2 {
        let why = format!("input needs at least 2 dimensions, got {} dimensions", x.ndim());
        return Err(Error::shape(op, why, &[x.shape()]));
    }
    let axis = shape::wrap_dim(op, dim, x.ndim())?;
    let over: Vec<isize> = (0..x.ndim()).filter(|&d| d != axis).map(|d| d as isize).collect();
    let size = |x: &Tensor| norm_body(x, Scalar::Float(p), Some(&over), true, None);
    let norm = size(&x.detach()?)?;
    // What is within the bound, or has no norm, is not scaled, and must not meet a division by 0 or NaN.
    let over = norm.gt(maxnorm)?;
    let norm = match crate::autograd::is_followed(x) {
        true => size(&select::r#where(&over, x, Scalar::ONE)?)?,
        false => norm,
    };
    let scale = (maxnorm / (&norm.filled(&over.logical_not()?, 1.0)? + 1e-7)?)?;
    &x.contiguous()? * &select::r#where(&over, &scale, Scalar::ONE)?
}

/// Weights of observations, checked.
fn weights(name: &str, w: &Tensor, observations: usize, integral: bool) -> Result<()> {
    let op = "cov";
    if w.ndim() > 1 || w.numel() != observations {
        let why = format!("expected {name} to have one dimension and the same numel as there are observations");
        return Err(Error::shape(op, why, &[w.shape(), &[observations]]));
    }
    if w.dtype().is_integral() != integral || w.dtype() == DType::Bool || w.dtype().is_complex() {
        let kind = if integral { "integral" } else { "floating point" };
        return Err(Error::dtype(op, format!("expected {name} to have {kind} dtype"), &[w.dtype()]));
    }
    // Under vmap the answer would differ between samples; there, as in PyTorch, nothing is read.
    let negative = w.detach()?.lt(0)?.any(None, false)?.item_bool();
    if observations > 0 && matches!(negative, Ok(true)) {
        return Err(Error::runtime(op, format!("{name} cannot be negative")));
    }
    Ok(())
}

fn cov_body(x: &Tensor, correction: i64, fweights: Option<&Tensor>, aweights: Option<&Tensor>) -> Result<Tensor> {
    let op = "cov";
    if x.dtype() == DType::Bool {
        return Err(Error::not_implemented(op, "bool dtype is not supported for input"));
    }
    if x.ndim() > 2 {
        let why = format!("expected input to have two or fewer dimensions but got an input with {}", x.ndim());
        return Err(Error::shape(op, why, &[x.shape()]));
    }
    let x = if x.dtype().is_integral() { x.cast(crate::default_dtype())? } else { x.clone() };
    let x = if x.ndim() < 2 { x.reshape(&[1, -1])? } else { x };
    let n = x.shape()[1];
    let float = x.dtype().to_real();
    let mut w: Option<Tensor> = None;
    for (name, given, integral) in [("fweights", fweights, true), ("aweights", aweights, false)] {
        let Some(given) = given else { continue };
        weights(name, given, n, integral)?;
        let given = given.reshape(&[-1])?;
        w = Some(match w {
            None => given,
            Some(w) => (w * &given)?,
        });
    }
    let (average, freedom) = match &w {
        None => (
            (x.sum(Some(&[1]), false, None)? / &Tensor::full_of(&[], Scalar::Float(n as f64), float, x.device())?)?,
            Tensor::full_of(&[], Scalar::Float(n as f64 - correction as f64), float, x.device())?,
        ),
        Some(w) => {
            let total = w.sum(None, false, None)?;
            let average = ((&x * w)?.sum(Some(&[1]), false, None)? / &total)?;
            let weight_sum = match aweights {
                Some(a) => ((w * &a.reshape(&[-1])?)?.sum(None, false, None)? / &total)?,
                None => Tensor::full_of(&[], Scalar::ONE, float, x.device())?,
            };
            (average, (total - &(weight_sum * correction as f64)?)?)
        }
    };
    let centred = (x - &average.unsqueeze(1)?)?;
    let weighted = w.map_or(Ok(centred.clone()), |w| &centred * &w)?;
    let product = centred.matmul(&weighted.t()?.conj_physical()?)?;
    // Where no degrees of freedom are left it is divided by 0, with a warning.
    if !matches!(freedom.detach()?.gt(0)?.all(None, false)?.item_bool(), Ok(true) | Err(_)) {
        crate::warnings::warn(
            "cov(): degrees of freedom is <= 0. The correction should be less than the number of observations.".into(),
        );
    }
    let freedom = freedom.clamp(Some(super::Operand::Scalar(Scalar::ZERO)), None)?;
    let freedom = freedom.cast(product.dtype())?;
    (product / &freedom)?.squeeze(None)
}

fn corrcoef_body(x: &Tensor) -> Result<Tensor> {
    if x.ndim() > 2 {
        let why = format!("expected input to have two or fewer dimensions but got an input with {}", x.ndim());
        return Err(Error::shape("corrcoef", why, &[x.shape()]));
    }
    let c = cov_body(x, 1, None, None)?;
    if c.ndim() == 0 {
        // 1, or NaN where there is no variance.
        return c.div(&c, None);
    }
    let deviation = c.diagonal(0, 0, 1)?.sqrt()?;
    let c = ((c / &deviation.view(&[-1, 1])?)? / &deviation.view(&[1, -1])?)?;
    match c.dtype().is_complex() {
        true => Ok(c),
        false => c.clamp(Some(super::Operand::Scalar(Scalar::Int(-1))), Some(super::Operand::Scalar(Scalar::ONE))),
    }
}
