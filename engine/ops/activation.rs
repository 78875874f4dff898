//! Activations beyond those that are primitives: limiting, shrinking and gated functions, each made of other ops.
//!
//! Sixteen-bit floats are computed in float32 and rounded once, as PyTorch does.

use super::compare::select::r#where;
use super::macros::define_composites;
use super::nn::{element, ElementFn};
use crate::shape::Sizes;
use crate::{DType, Error, Result, Scalar, Tensor};

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! activation_ops {
    ($cb:ident) => {
        $crate::rows! { $cb "activation" :
            /// `scale · (max(x, 0) + min(0, alpha (e^x - 1)))` with the constants of Klambauer et al. (2017).
            function selu(input: Tensor) -> Tensor {
                out: none, dtypes: FLOAT, result: Same,
                run: selu_body, node: |given| ("elu", given.in_place()),
                samples: ["N(3, 4)"],
                example: ["assert_close(selu(&tensor([-1.0, 1.0])?)?, [-1.11133, 1.05070]);"],
            }
            /// `max(x, 0) + min(0, alpha (e^(x/alpha) - 1))` (Barron, 2017).
            function celu(input: Tensor, alpha: Float = 1.0) -> Tensor {
                out: none, dtypes: FLOAT, result: Same,
                run: celu_body, node: |given| ("celu", given.in_place()),
                samples: ["N(3, 4)", "N(3, 4), 0.6"],
                example: ["assert_close(celu(&tensor([-1.0, 1.0])?, 2.0)?, [-0.78694, 1.0]);"],
            }
            /// `x · tanh(log(1 + e^x))` (Misra, 2019).
            function mish(input: Tensor) -> Tensor {
                dtypes: FLOAT, result: Same,
                run: mish_body, torch: "nn.functional.mish",
                samples: ["N(3, 4)"],
                example: ["assert_close(mish(&tensor([0.0, 1.0])?)?, [0.0, 0.86510]);"],
            }
            /// `x · min(max(x + 3, 0), 6) / 6` (Howard et al., 2019).
            function hardswish(input: Tensor) -> Tensor {
                dtypes: FLOAT, result: Same,
                run: hardswish_body, torch: "nn.functional.hardswish",
                samples: ["N(3, 4)", "P(4, lo=3.5, hi=5.0)"],
                example: ["assert_close(hardswish(&tensor([-4.0, 1.0, 4.0])?)?, [0.0, 0.66667, 4.0]);"],
            }
            /// `min(max(x + 3, 0), 6) / 6`.
            function hardsigmoid(input: Tensor) -> Tensor {
                dtypes: FLOAT, result: Same,
                run: hardsigmoid_body, torch: "nn.functional.hardsigmoid",
                samples: ["N(3, 4)", "P(4, lo=3.5, hi=5.0)"],
                example: ["assert_close(hardsigmoid(&tensor([-4.0, 0.0, 4.0])?)?, [0.0, 0.5, 1.0]);"],
            }
            /// `x` held within `min_val` to `max_val`. No gradient at the bounds themselves.
            function hardtanh(input: Tensor, min_val: Float = -1.0, max_val: Float = 1.0) -> Tensor {
                flags: [piecewise_linear], dtypes: REAL, result: Same,
                run: hardtanh_body, torch: "nn.functional.hardtanh",
                samples: ["N(3, 4)", "N(3, 4), -0.4, 0.7"],
                example: ["assert_close(hardtanh(&tensor([-2.0, 0.5, 2.0])?, -1.0, 1.0)?, [-1.0, 0.5, 1.0]);"],
            }
            /// `log(1 / (1 + e^-x))`, without overflow.
            function logsigmoid(input: Tensor) -> Tensor {
                amp: Own, dtypes: FLOAT, result: Same,
                run: logsigmoid_body, node: "log_sigmoid", torch: "nn.functional.logsigmoid",
                samples: ["N(3, 4)"],
                example: ["assert_close(logsigmoid(&tensor([0.0, -1000.0])?)?, [-0.69315, -1000.0]);"],
            }
            /// `x / (1 + |x|)`.
            function softsign(input: Tensor) -> Tensor {
                out: none, flags: [steps], dtypes: NOT_FLOAT8, result: Float,
                run: softsign_body, node: "div", torch: "nn.functional.softsign",
                samples: ["N(3, 4)"],
                example: ["assert_close(softsign(&tensor([-1.0, 3.0])?)?, [-0.5, 0.75]);"],
            }
            /// `x - tanh(x)`.
            function tanhshrink(input: Tensor) -> Tensor {
                out: none, flags: [steps], dtypes: NUMERIC, result: Float,
                run: tanhshrink_body, node: "sub", torch: "nn.functional.tanhshrink",
                samples: ["N(3, 4)"],
                example: ["assert_close(tanhshrink(&tensor([0.0, 1.0])?)?, [0.0, 0.23841]);"],
            }
            /// `x` where `|x| > lambd`, else 0.
            function hardshrink(input: Tensor, lambd: Float = 0.5) -> Tensor {
                flags: [piecewise_linear], dtypes: FLOAT, result: Same,
                run: hardshrink_body, torch: "nn.functional.hardshrink",
                samples: ["N(3, 4)", "N(3, 4), 0.9"],
                example: ["assert_close(hardshrink(&tensor([-1.0, 0.3, 1.0])?, 0.5)?, [-1.0, 0.0, 1.0]);"],
            }
            /// `x` moved towards 0 by `lambd`, and 0 within it.
            function softshrink(input: Tensor, lambd: Float = 0.5) -> Tensor {
                flags: [piecewise_linear], dtypes: FLOAT, result: Same,
                run: softshrink_body, torch: "nn.functional.softshrink",
                samples: ["N(3, 4)", "N(3, 4), 0.9"],
                example: ["assert_close(softshrink(&tensor([-1.0, 0.3, 1.0])?, 0.5)?, [-0.5, 0.0, 0.5]);"],
            }
            /// `x` where `x > threshold`, else `value`.
            function threshold(input: Tensor, threshold: Float, value: Float) -> Tensor {
                flags: [piecewise_linear], dtypes: REAL, result: Same,
                run: threshold_body, node: |given| ("threshold", given.in_place()), torch: "nn.functional.threshold",
                samples: ["N(3, 4), 0.2, 5.0"],
                example: ["assert_close(threshold(&tensor([1.0, 3.0])?, 2.0, -7.0)?, [-7.0, 3.0]);"],
            }
            /// `x` above 0, `weight · x` below; `weight` has one element, or one per channel (the second dimension).
            function prelu(input: Tensor, weight: Tensor) -> Tensor {
                out: none, flags: [piecewise_linear], amp: Low, dtypes: FLOAT, result: Same,
                run: prelu_body, node: "prelu_kernel", torch: "nn.functional.prelu",
                samples: ["N(3, 4), N(1)", "N(2, 3, 4), N(3)"],
                example: ["assert_close(prelu(&tensor([[-1.0, -1.0]])?, &tensor([0.1, 0.2])?)?, [[-0.1, -0.2]]);"],
            }
            /// The first half along `dim` times the sigmoid of the second (Dauphin et al., 2017).
            function glu(input: Tensor, dim: Dim = -1) -> Tensor {
                out: none, dtypes: FLOAT, result: Same,
                run: glu_body, torch: "nn.functional.glu",
                samples: ["N(3, 4)", "N(4, 3, 2), 0"],
                example: ["assert_close(glu(&tensor([4.0, 0.0])?, -1)?, [2.0]);"],
            }
        }
    };
}
activation_ops!(define_composites);

/// A function of several steps, in float32 for 16-bit floats.
fn wide(x: &Tensor, f: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    match x.dtype() {
        DType::F16 | DType::BF16 => f(&x.cast(DType::F32)?)?.cast(x.dtype()),
        d if d.is_integral() => f(&x.cast(crate::default_dtype())?),
        _ => f(x),
    }
}

fn selu_body(x: &Tensor) -> Result<Tensor> {
    schema::selu.check(x.dtype())?;
    element(x, ElementFn::Elu, [1.673_263_242_354_377_2, 1.050_700_987_355_480_5, 1.0])
}

fn celu_body(x: &Tensor, alpha: f64) -> Result<Tensor> {
    schema::celu.check(x.dtype())?;
    if alpha == 0.0 {
        return Err(Error::runtime("celu", "ZeroDivisionError: alpha cannot be 0 for CELU"));
    }
    element(x, ElementFn::Elu, [alpha, 1.0, 1.0 / alpha])
}

fn mish_body(x: &Tensor) -> Result<Tensor> {
    schema::mish.check(x.dtype())?;
    element(x, ElementFn::Mish, [0.0; 3])
}

fn hardswish_body(x: &Tensor) -> Result<Tensor> {
    schema::hardswish.check(x.dtype())?;
    element(x, ElementFn::Hardswish, [0.0; 3])
}

fn hardsigmoid_body(x: &Tensor) -> Result<Tensor> {
    schema::hardsigmoid.check(x.dtype())?;
    element(x, ElementFn::Hardsigmoid, [0.0; 3])
}

fn constant(value: f64, like: &Tensor) -> Result<Tensor> {
    Tensor::constant(Scalar::Float(value), like.dtype(), like.device())
}

fn hardtanh_body(x: &Tensor, low: f64, high: f64) -> Result<Tensor> {
    schema::hardtanh.check(x.dtype())?;
    if low > high {
        return Err(Error::value("hardtanh", "min_val cannot be greater than max_val"));
    }
    if x.dtype().is_float() && !low.is_nan() && !high.is_nan() {
        return element(x, ElementFn::Hardtanh, [low, high, 0.0]);
    }
    let (low, high) = if x.dtype().is_integral() { (low.trunc(), high.trunc()) } else { (low, high) };
    let above = r#where(&x.le(low)?, &constant(low, x)?, x)?;
    let y = r#where(&x.ge(high)?, &constant(high, x)?, &above)?;
    match x.dtype().is_float() && (low.is_nan() || high.is_nan()) {
        // Nothing is within such bounds, but the gradient goes where no other bound is met, as in PyTorch.
        true => y + f64::NAN,
        false => Ok(y),
    }
}

fn logsigmoid_body(x: &Tensor) -> Result<Tensor> {
    schema::logsigmoid.check(x.dtype())?;
    // PyTorch's is row-major.
    element(&x.contiguous()?, ElementFn::LogSigmoid, [0.0; 3])
}

/// `log(1 + e^x)`, without overflow and with its gradients everywhere: made of `|x|` it had none at 0.
pub(super) fn one_plus_exp(x: &Tensor) -> Result<Tensor> {
    x.logaddexp(&constant(0.0, x)?)
}

fn softsign_body(x: &Tensor) -> Result<Tensor> {
    schema::softsign.check(x.dtype())?;
    wide(x, |x| x / &(x.abs()? + 1.0)?)
}

fn tanhshrink_body(x: &Tensor) -> Result<Tensor> {
    schema::tanhshrink.check(x.dtype())?;
    wide(x, |x| x - &x.tanh()?)
}

fn hardshrink_body(x: &Tensor, lambd: f64) -> Result<Tensor> {
    schema::hardshrink.check(x.dtype())?;
    element(x, ElementFn::Hardshrink, [lambd, 0.0, 0.0])
}

fn softshrink_body(x: &Tensor, lambd: f64) -> Result<Tensor> {
    schema::softshrink.check(x.dtype())?;
    // Infinity is as far as a dtype goes.
    if !Scalar::Float(lambd).converts(x.dtype()) || !lambd.is_finite() || lambd < 0.0 {
        let why = format!("lambda must be in the range of {} and not negative, but found {lambd}", x.dtype());
        return Err(Error::runtime("softshrink", why));
    }
    element(x, ElementFn::Softshrink, [lambd, 0.0, 0.0])
}

fn threshold_body(x: &Tensor, threshold: f64, value: f64) -> Result<Tensor> {
    schema::threshold.check(x.dtype())?;
    if !x.dtype().is_integral() {
        return element(x, ElementFn::Threshold, [threshold, value, 0.0]);
    }
    let within = |v: f64| super::binary::representable("threshold", Scalar::Float(v.trunc()), x.dtype());
    let (threshold, value) = (within(threshold)?, within(value)?);
    x.filled(&x.le(threshold)?, value.to_f64())
}

fn prelu_body(x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    schema::prelu.check(x.dtype())?;
    if weight.dtype() != x.dtype() {
        let why = "Type promoting not supported: input and weight must have the same dtype";
        return Err(Error::dtype("prelu", why, &[x.dtype(), weight.dtype()]));
    }
    let apart = crate::autograd::OpScope::apart(&["prelu"], None);
    let weight = match weight.numel() {
        _ if weight.ndim() > 1 => {
            return Err(Error::shape("prelu", "weight needs to be a scalar or 1D tensor", &[weight.shape()]));
        }
        1 => weight.reshape(())?,
        n => {
            let channels = if x.ndim() > 1 { x.shape()[1] } else { 1 };
            if n != channels {
                let why = format!(
                    "Mismatch of parameter numbers and input channel size. Found parameter numbers = {n} and channel size = {channels}."
                );
                return Err(Error::shape("prelu", why, &[x.shape(), weight.shape()]));
            }
            let mut wide = Sizes::from_elem(1, x.ndim());
            wide[1] = -1;
            weight.reshape(&wide)?
        }
    };
    drop(apart);
    r#where(&x.gt(0)?, x, &(x * &weight)?)
}

fn glu_body(x: &Tensor, dim: isize) -> Result<Tensor> {
    schema::glu.check(x.dtype())?;
    if x.ndim() == 0 {
        return Err(Error::runtime("glu", "does not support 0-dimensional tensors"));
    }
    let axis = crate::shape::wrap_dim("glu", dim, x.ndim())?;
    let n = x.shape()[axis];
    if !n.is_multiple_of(2) {
        let why = format!("Halving dimension must be even, but dimension {axis} is size {n}");
        return Err(Error::shape("glu", why, &[x.shape()]));
    }
    let half = (n / 2) as i64;
    wide(x, |x| x.narrow(axis as isize, 0, half)? * &x.narrow(axis as isize, half, half)?.sigmoid()?)
}
