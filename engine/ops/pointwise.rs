//! Element-wise functions made of other ops: rounding, replacing, limiting, special functions in closed form.
//!
//! No kernels of their own, so no gradient rules either. 16-bit floats are computed in float32 and rounded once. Where a
//! branch that was not taken would give NaN in a gradient, its argument is replaced first.

use super::compare::select::{clamp, r#where};
use super::macros::define_composites;
use super::view::{view_as_complex, view_as_real};
use super::{result_type, Operand};
use crate::{autograd, DType, Device, Error, Result, Scalar, Tensor};
use std::f64::consts::{FRAC_1_SQRT_2, LN_2, PI};

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! pointwise_ops {
    ($cb:ident) => {
        $crate::rows! { $cb "pointwise" :
            /// The tensor itself; an error for `bool`, which has no sign.
            method positive() -> Tensor {
                out: none, dtypes: NUMERIC, result: Same,
                run: positive_body,
                samples: ["N(3, 4)"],
                example: ["assert_close(tensor([1.0, -2.0])?.positive()?, [1.0, -2.0]);"],
            }
            /// The nearest integer, halves to even; with `decimals` the nearest multiple of `10^-decimals`. Its
            /// gradient is 0.
            method round(; decimals: Int = 0) -> Tensor {
                in_place: yes, out: own, dtypes: REAL.and(DTypes::UNSIGNED), result: Same,
                run: round_body, node: |given| ("round", given.has("decimals")),
                samples: ["N(3, 4)", "N(3, 4), decimals=2", "N(3, 4), decimals=-1"],
                example: [
                    "assert_close(tensor([0.5, 1.5, 2.6])?.round(0)?, [0.0, 2.0, 3.0]);",
                    "assert_close(tensor([1.256])?.round(2)?, [1.26]);",
                ],
            }
            /// The part behind the point, `x - trunc(x)`, with the sign of `x`.
            method frac() -> Tensor {
                in_place: yes, out: own, dtypes: FLOAT, result: Same,
                run: frac_body,
                samples: ["N(3, 4)"],
                example: ["assert_close(tensor([1.25, -1.25])?.frac()?, [0.25, -0.25]);"],
            }
            /// The product `x · x · x`. PyTorch has no such function.
            method cube() -> Tensor {
                in_place: yes, flags: [internal], dtypes: NUMERIC, result: Same,
                run: cube_body, torch: "-",
                samples: ["N(3, 4)"],
                example: ["assert_close(tensor([2, -3])?.cube()?, [8, -27]);"],
            }
            /// NaN as `nan` (0), inf as `posinf` (the largest number of the dtype), -inf as `neginf` (the smallest). Of
            /// complex numbers each part. No gradient flows where an element was replaced.
            method nan_to_num(nan: OptFloat = None, posinf: OptFloat = None, neginf: OptFloat = None) -> Tensor {
                in_place: yes, out: own, dtypes: NOT_FLOAT8, result: Same,
                run: nan_to_num_body,
                samples: ["N(3, 4)", "N(3, 4), 1.0, 2.0, -3.0", "N(3, 4), posinf=5.0"],
                example: [
                    "let x = tensor([f64::NAN, f64::INFINITY, f64::NEG_INFINITY])?;",
                    "assert_close(x.nan_to_num(None, Some(9.0), Some(-9.0))?, [0.0, 9.0, -9.0]);",
                ],
            }
            /// `sin(πx) / (πx)`, 1 at 0.
            method sinc() -> Tensor {
                in_place: yes, amp: Own, dtypes: NOT_FLOAT8, result: Float,
                run: sinc_body,
                samples: ["N(3, 4)"],
                example: ["assert_close(tensor([0.0, 0.5, 1.0])?.sinc()?, [1.0, 0.63662, 0.0]);"],
            }
            /// The spherical Bessel function of the first kind, of order 0: `sin(x) / x`, 1 at 0 and 0 at infinities.
            /// No gradient, as in PyTorch.
            method spherical_bessel_j0() -> Tensor {
                python: function, flags: [no_gradient], amp: Own, dtypes: ORDERED, result: Float,
                run: spherical_bessel_j0_body, torch: "special.spherical_bessel_j0",
                samples: ["N(3, 4)", "P(3, 4, lo=-0.5, hi=9.0)"],
                example: ["assert_close(tensor([0.0, 0.5, 2.0])?.spherical_bessel_j0()?, [1.0, 0.95885, 0.45465]);"],
            }
            /// 0 below zero, 1 above, `values` at zero. Both need one dtype. Differs from a comparison for NaN: 0.
            /// It has no derivative: backward raises.
            method heaviside(values: Tensor) -> Tensor {
                in_place: yes, out: own, flags: [no_gradient], dtypes: ORDERED, result: Same,
                run: heaviside_body,
                samples: ["N(3, 4), N(3, 4)", "I(-1, 2, 3, 4), I(0, 9, 4)"],
                example: ["assert_close(tensor([-2.0, 0.0, 2.0])?.heaviside(&tensor(0.5)?)?, [0.0, 0.5, 1.0]);"],
            }
            /// `input · log(other)`, 0 where `input` is 0 and `other` is not NaN.
            method xlogy(other: Operand) -> Tensor {
                in_place: yes, amp: Own, dtypes: ORDERED, result: Float,
                run: xlogy_body, node: |given| ("xlogy", if given.led() { 1 } else { 2 * given.number("other") }),
                samples: ["N(3, 4), P(3, 4)", "N(3, 4), P(4)", "P(3, 4), 2.0"],
                example: ["assert_close(tensor([0.0, 2.0])?.xlogy(&tensor([0.0, 3.0])?)?, [0.0, 2.19722]);"],
            }
            /// `input · log1p(other)`, 0 where `input` is 0 and `other` is not NaN.
            method xlog1py(other: Operand) -> Tensor {
                python: function, amp: Own, dtypes: ORDERED, result: Float,
                run: xlog1py_body, node: |given| ("special_xlog1py", 2 * given.number("other")),
                torch: "special.xlog1py",
                samples: ["N(3, 4), P(3, 4)", "N(3, 4), P(4)", "P(3, 4), 2.0"],
                example: ["assert_close(tensor([0.0, 2.0])?.xlog1py(&tensor([-1.0, 1.0])?)?, [0.0, 1.38629]);"],
            }
            /// `log(x / (1 - x))`; with `eps`, `x` is first brought into `eps` to `1 - eps`, outside of which the
            /// gradient is 0.
            method logit(eps: OptFloat = None) -> Tensor {
                in_place: yes, amp: Own, dtypes: ORDERED, result: Float,
                run: logit_body,
                samples: ["P(3, 4, lo=0.1, hi=0.9)", "P(3, 4, lo=0.05, hi=0.95), 0.1"],
                example: [
                    "assert_close(tensor([0.5, 0.73106])?.logit(None)?, [0.0, 1.00001]);",
                    "assert_close(tensor([0.0, 1.0])?.logit(Some(0.5))?, [0.0, 0.0]);",
                ],
            }
            /// The normal distribution's share up to `x`: `erfc(-x / √2) / 2`.
            method ndtr() -> Tensor {
                python: function, amp: Own, dtypes: ORDERED, result: Float,
                run: ndtr_body, node: ("mul", 1), torch: "special.ndtr",
                samples: ["N(3, 4)", "P(3, 4, lo=-20.0, hi=8.0)"],
                example: ["assert_close(tensor([0.0, 1.0])?.ndtr()?, [0.5, 0.84134]);"],
            }
            /// The logarithm of [`ndtr`], by the scaled complementary error function where that is small.
            method log_ndtr() -> Tensor {
                python: function, amp: Own, dtypes: ORDERED, result: Float,
                run: log_ndtr_body, node: "special_log_ndtr", torch: "special.log_ndtr",
                samples: ["N(3, 4)", "P(3, 4, lo=-20.0, hi=8.0)"],
                example: ["assert_close(tensor([0.0, 1.0])?.log_ndtr()?, [-0.69315, -0.17275]);"],
            }
            /// `log2(2^input + 2^other)` without overflow.
            method logaddexp2(other: Tensor) -> Tensor {
                amp: Own, dtypes: FLOAT, result: Same,
                run: logaddexp2_body,
                samples: ["N(3, 4), N(3, 4)", "N(3, 4), N(4)"],
                example: ["assert_close(tensor([0.0, 3.0])?.logaddexp2(&tensor([0.0, 3.0])?)?, [1.0, 4.0]);"],
            }
            /// `input` to the power `exponent`, in float64 (complex numbers in complex64, where PyTorch takes
            /// complex128). The GPU device has no float64; there it is computed in float32.
            method float_power(exponent: Operand) -> Tensor {
                in_place: of_doubles, out: own, flags: [steps], dtypes: NOT_FLOAT8, result: Own,
                run: float_power_body, node: |given| ("pow", if given.led() { 2 } else { given.tensor("exponent") }),
                samples: ["P(3, 4), N(3, 4)", "N(3, 4), 2", "P(3, 4), 0.5"],
                example: ["assert_close(tensor([2, 4])?.float_power(-1)?, [0.5, 0.25]);"],
            }
            /// The larger of the two; where one is NaN, the other. At a tie the gradient goes to `input`.
            method fmax(other: Tensor) -> Tensor {
                dtypes: ORDERED.and(DTypes::UNSIGNED), result: Same,
                run: fmax_body,
                samples: ["N(3, 4), N(3, 4)", "N(3, 4), N(4)"],
                example: ["assert_close(tensor([1.0, f64::NAN])?.fmax(&tensor([3.0, 2.0])?)?, [3.0, 2.0]);"],
            }
            /// The smaller of the two; where one is NaN, the other. At a tie the gradient goes to `input`.
            method fmin(other: Tensor) -> Tensor {
                dtypes: ORDERED.and(DTypes::UNSIGNED), result: Same,
                run: fmin_body,
                samples: ["N(3, 4), N(3, 4)", "N(3, 4), N(4)"],
                example: ["assert_close(tensor([1.0, f64::NAN])?.fmin(&tensor([3.0, 2.0])?)?, [1.0, 2.0]);"],
            }
            /// The magnitude of `input` with the sign of `other`, that of -0.0 too. The gradient at 0 is 0.
            method copysign(other: Operand) -> Tensor {
                in_place: yes, dtypes: ORDERED.and(DTypes::UNSIGNED), result: Float,
                run: copysign_body, node: |given| ("copysign", given.number("other")),
                samples: ["N(3, 4), N(3, 4)", "N(3, 4), N(4)", "N(3, 4), -2.0"],
                example: ["assert_close(tensor([1.0, -2.0])?.copysign(-0.0)?, [-1.0, -2.0]);"],
            }
            /// `input · 2^other`.
            method ldexp(other: Tensor) -> Tensor {
                in_place: yes, dtypes: NOT_FLOAT8, result: Float,
                run: ldexp_body,
                samples: ["N(3, 4), I(-3, 4, 3, 4)", "N(3, 4), N(4)"],
                example: ["assert_close(tensor([1.0, 3.0])?.ldexp(&tensor([2, -1])?)?, [4.0, 1.5]);"],
            }
            /// Mantissa and exponent of each element: `input = mantissa · 2^exponent` with `½ ≤ |mantissa| < 1` and an
            /// int32 exponent. Zero, infinities and NaN are their own mantissa, with exponent 0.
            method frexp() -> MantissaExponent {
                out: own, dtypes: FLOAT, result: Same,
                run: frexp_body,
                samples: ["N(3, 4)"],
                example: [
                    "let (mantissa, exponent) = tensor([6.0, 0.5])?.frexp()?;",
                    "assert_close(mantissa, [0.75, 0.5]);",
                    "assert_close(exponent, [3, 0]);",
                ],
            }
            /// Degrees from radians.
            method rad2deg() -> Tensor {
                in_place: yes, dtypes: ORDERED, result: Float,
                run: rad2deg_body,
                samples: ["N(3, 4)"],
                example: ["assert_close(tensor([std::f64::consts::PI])?.rad2deg()?, [180.0]);"],
            }
            /// Radians from degrees.
            method deg2rad() -> Tensor {
                in_place: yes, dtypes: ORDERED, result: Float,
                run: deg2rad_body,
                samples: ["N(3, 4)"],
                example: ["assert_close(tensor([180.0])?.deg2rad()?, [std::f64::consts::PI]);"],
            }
            /// Each element or `min`, whichever is larger.
            method clamp_min(min: Operand) -> Tensor {
                in_place: yes, out: rule, dtypes: ORDERED, result: Same,
                run: clamp_min_body, node: |given| ("clamp_min", given.tensor("min")),
                samples: ["N(3, 4), -0.1", "N(3, 4), N(4)"],
                example: ["assert_close(tensor([-1.0, 2.0])?.clamp_min(0.0)?, [0.0, 2.0]);"],
            }
            /// Each element or `max`, whichever is smaller.
            method clamp_max(max: Operand) -> Tensor {
                in_place: yes, out: rule, dtypes: ORDERED, result: Same,
                run: clamp_max_body, node: |given| ("clamp_max", given.tensor("max")),
                samples: ["N(3, 4), 0.1", "N(3, 4), N(4)"],
                example: ["assert_close(tensor([-1.0, 2.0])?.clamp_max(0.0)?, [-1.0, 0.0]);"],
            }
            /// True where the element is inf.
            method isposinf() -> Tensor {
                out: own, flags: [no_gradient], dtypes: ORDERED, result: Bool,
                run: isposinf_body,
                samples: ["N(3, 4)"],
                example: ["assert_close(tensor([f64::INFINITY, f64::NEG_INFINITY])?.isposinf()?, [true, false]);"],
            }
            /// True where the element is -inf.
            method isneginf() -> Tensor {
                out: own, flags: [no_gradient], dtypes: ORDERED, result: Bool,
                run: isneginf_body,
                samples: ["N(3, 4)"],
                example: ["assert_close(tensor([f64::INFINITY, f64::NEG_INFINITY])?.isneginf()?, [false, true]);"],
            }
            /// The derivative of order `n` of [`digamma`](crate::ops::unary::digamma): `(-1)^(n+1) n! ζ(n+1, x)`.
            function polygamma(n: Int, input: Tensor) -> Tensor {
                dtypes: ORDERED, result: Float,
                run: polygamma_body,
                samples: ["0, P(3, 4)", "1, P(3, 4)", "2, N(3, 4)", "3, P(3, 4)"],
                example: ["assert_close(polygamma(1, &tensor([1.0, 2.0])?)?, [1.64493, 0.64493]);"],
            }
            /// The logarithm of the multivariate gamma function of dimension `p`: `Σ lgamma(x - i/2) + p(p-1)/4 log π`.
            method mvlgamma(p: Int) -> Tensor {
                in_place: yes, amp: Own, dtypes: REAL, result: Float,
                run: mvlgamma_body,
                samples: ["P(3, 4, lo=2.1, hi=4.0), 3", "P(3, 4), 1"],
                example: ["assert_close(tensor([2.0, 3.0])?.mvlgamma(2)?, [0.45158, 1.55019]);"],
            }
        }
    };
}
pointwise_ops!(define_composites);

/// A function of several steps, in float32 for 16-bit floats; integers become the default float.
fn wide(schema: &super::Schema, x: &Tensor, f: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    schema.check(x.dtype())?;
    match x.dtype() {
        DType::F16 | DType::BF16 => f(&x.cast(DType::F32)?)?.cast(x.dtype()),
        d if d.is_integral() => f(&x.cast(crate::default_dtype())?),
        _ => f(x),
    }
}

/// Both operands as tensors of the dtype in which the op computes, and the dtype of its result.
fn wide2(schema: &super::Schema, a: &Tensor, b: Operand<'_>) -> Result<(Tensor, Tensor, DType)> {
    let common = result_type([Operand::Tensor(a), b])?;
    schema.check(common)?;
    let out = schema.result.of(common);
    let dtype = if out.is_half() { DType::F32 } else { out };
    let b = match b {
        Operand::Tensor(b) => b.cast(dtype)?,
        Operand::Scalar(s) => Tensor::constant(s, dtype, a.device())?,
    };
    Ok((a.cast(dtype)?, b, out))
}

fn positive_body(x: &Tensor) -> Result<Tensor> {
    if x.dtype() == DType::Bool {
        return Err(Error::runtime("positive", "The `+` operator, on a bool tensor is not supported."));
    }
    Ok(x.clone())
}

fn round_body(x: &Tensor, decimals: i64) -> Result<Tensor> {
    if decimals == 0 {
        return x.rint();
    }
    if x.dtype().is_integral() {
        let why = format!("not implemented for {} with decimals={decimals}", x.dtype());
        return Err(Error::dtype("round", why, &[x.dtype()]));
    }
    wide(&schema::round, x, |x| {
        let ten = 10f64.powi(decimals.unsigned_abs().min(400) as i32);
        match decimals > 0 {
            true => (x * ten)?.rint()? / ten,
            false => (x / ten)?.rint()? * ten,
        }
    })
}

fn frac_body(x: &Tensor) -> Result<Tensor> {
    schema::frac.check(x.dtype())?;
    // What is taken away is constant between integers, and so is no part of the gradient.
    x - &x.detach()?.trunc()?
}

fn cube_body(x: &Tensor) -> Result<Tensor> {
    schema::cube.check(x.dtype())?;
    &(x * x)? * x
}

/// The largest finite number of a floating dtype.
fn largest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 65504.0,
        DType::BF16 => half::bf16::MAX.to_f64(),
        DType::F64 => f64::MAX,
        _ => f64::from(f32::MAX),
    }
}

fn nan_to_num_body(x: &Tensor, nan: Option<f64>, posinf: Option<f64>, neginf: Option<f64>) -> Result<Tensor> {
    schema::nan_to_num.check(x.dtype())?;
    if x.dtype().is_integral() {
        return x.copy();
    }
    if x.dtype().is_complex() {
        let parts = nan_to_num_body(&view_as_real(x)?, nan, posinf, neginf)?;
        return view_as_complex(&parts);
    }
    let top = largest(x.dtype());
    let numbers = [nan.unwrap_or(0.0), posinf.unwrap_or(top), neginf.unwrap_or(-top)];
    super::nn::element(x, super::nn::ElementFn::NanToNum, numbers)
}

fn sinc_body(x: &Tensor) -> Result<Tensor> {
    wide(&schema::sinc, x, |x| {
        let zero = x.eq(0)?;
        let angle = (x.filled(&zero, 1.0)? * PI)?;
        (angle.sin()? / &angle)?.filled(&zero, 1.0)
    })
}

fn spherical_bessel_j0_body(x: &Tensor) -> Result<Tensor> {
    // 1 / (2k + 1)! with their signs, from k = 6 down to 1.
    const SERIES: [f64; 6] =
        [1.0 / 6_227_020_800.0, -1.0 / 39_916_800.0, 1.0 / 362_880.0, -1.0 / 5_040.0, 1.0 / 120.0, -1.0 / 6.0];
    wide(&schema::spherical_bessel_j0, &x.detach()?, |x| {
        let (near, far) = (x.abs()?.lt(0.5)?, x.isinf()?);
        let square = x.filled(&near.logical_not()?, 0.0)?.square()?;
        let mut y = (&square * SERIES[0])?;
        for k in &SERIES[1..] {
            y = ((y + *k)? * &square)?;
        }
        let angle = x.filled(&near.logical_or(&far)?, 1.0)?;
        r#where(&near, &(y + 1.0)?, &(angle.sin()? / &angle)?.filled(&far, 0.0)?)
    })
}

fn heaviside_body(x: &Tensor, values: &Tensor) -> Result<Tensor> {
    if x.dtype() != values.dtype() {
        let why = "heaviside is not yet implemented for tensors with different dtypes.";
        return Err(Error::dtype("heaviside", why, &[x.dtype(), values.dtype()]));
    }
    schema::heaviside.check(x.dtype())?;
    let (still, at_zero) = (x.detach()?, values.detach()?);
    let y = r#where(&still.eq(0)?, &at_zero, &still.gt(0)?.cast(x.dtype())?)?;
    let refusal = || Error::runtime("heaviside", "derivative for aten::heaviside is not implemented");
    autograd::refusing("heaviside", &y, "NotImplemented", &[x, values], refusal)?;
    Ok(y)
}

/// `x log y`, or `x log1p y` where `one`, made 0 at `x = 0`; where the logarithm is infinite or NaN there, it is not taken.
fn x_log(a: &Tensor, b: &Tensor, one: bool) -> Result<Tensor> {
    let edge = if one { -1.0 } else { 0.0 };
    let unsafe_log = b.le(edge)?.logical_or(&b.isposinf()?)?;
    let zero = a.eq(0)?;
    let flat = zero.logical_and(&unsafe_log)?;
    let held = r#where(&flat, 1.0, b)?;
    let log = if one { held.log1p()? } else { held.log()? };
    let y = r#where(&flat, 0.0, &(a * &log)?)?;
    if !crate::autograd::is_followed(b) {
        return Ok(y);
    }
    // The rule of PyTorch has a/b for `b`: NaN where both are 0. The root adds 0, and its gradient there is NaN.
    let elsewhere = zero.logical_and(&b.eq(edge)?)?.logical_not()?;
    let root = (r#where(&elsewhere, 0.0, &(b - edge)?)? * 0.0)?.sqrt()?;
    y + &r#where(&elsewhere, 0.0, &root)?
}

fn xlogy_body(a: &Tensor, b: Operand<'_>) -> Result<Tensor> {
    let (a, b, out) = wide2(&schema::xlogy, a, b)?;
    x_log(&a, &b, false)?.cast(out)
}

fn xlog1py_body(a: &Tensor, b: Operand<'_>) -> Result<Tensor> {
    let (a, b, out) = wide2(&schema::xlog1py, a, b)?;
    x_log(&a, &b, true)?.cast(out)
}

fn logit_body(x: &Tensor, eps: Option<f64>) -> Result<Tensor> {
    wide(&schema::logit, x, |x| {
        // Not of the quotient, which has no gradient at 0 and 1.
        let difference = |x: &Tensor| x.log()? - &(-x)?.log1p()?;
        match eps.filter(|eps| *eps >= 0.0 || eps.is_nan()) {
            // Of bounds that cross, PyTorch looks at the lower one first. NaN, and a bound that is NaN, bring nothing within.
            Some(eps) => {
                let below = r#where(&x.gt(1.0 - eps)?, Scalar::Float(1.0 - eps), x)?;
                difference(&r#where(&x.lt(eps)?, Scalar::Float(eps), &below)?)
            }
            // The rule has NaN for what the function has no value of, where those of the logarithms have numbers.
            None if x.requires_grad() => {
                let still = x.detach()?;
                let outside = still.lt(0)?.logical_or(&still.gt(1)?)?;
                let factor = Tensor::constant(f64::NAN.into(), x.dtype(), x.device())?;
                difference(x)? * &r#where(&outside, &factor, Scalar::ONE)?
            }
            None => difference(x),
        }
    })
}

fn ndtr_body(x: &Tensor) -> Result<Tensor> {
    wide(&schema::ndtr, x, |x| (x * -FRAC_1_SQRT_2)?.erfc()? * 0.5)
}

/// Below -1 the tail is `erfcx(-x / √2) / 2 · e^(-x² / 2)`; each branch gets numbers that it can take.
fn log_ndtr_body(x: &Tensor) -> Result<Tensor> {
    wide(&schema::log_ndtr, x, |x| {
        let tail = x.detach()?.lt(-1.0)?;
        let low = r#where(&tail, x, Scalar::Float(-1.0))?;
        // Halved before the product, whose factor's square may overflow.
        let low = (((&low * -FRAC_1_SQRT_2)?.erfcx()? * 0.5)?.log()? - &(&low * &(&low * 0.5)?)?)?;
        let high = r#where(&tail, Scalar::ZERO, x)?;
        let high = ((&high * FRAC_1_SQRT_2)?.erfc()? * -0.5)?.log1p()?;
        r#where(&tail, &low, &high)
    })
}

fn logaddexp2_body(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let (a, b, out) = wide2(&schema::logaddexp2, a, b.into())?;
    ((a * LN_2)?.logaddexp(&(b * LN_2)?)? * (1.0 / LN_2))?.cast(out)
}

fn float_power_body(x: &Tensor, exponent: Operand<'_>) -> Result<Tensor> {
    let dtype = match (result_type([Operand::Tensor(x), exponent])?, x.device()) {
        (d, Device::Cpu | Device::Meta) if d.is_complex() => DType::C128,
        (d, Device::Gpu) if d.is_complex() => DType::C64,
        (_, Device::Cpu | Device::Meta) => DType::F64,
        (_, Device::Gpu) => DType::F32,
    };
    let x = x.cast(dtype)?;
    match exponent {
        Operand::Tensor(e) => x.pow(&e.cast(dtype)?),
        Operand::Scalar(e) => x.pow(e),
    }
}

fn fmax_body(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    schema::fmax.check(result_type([Operand::Tensor(a), b.into()])?)?;
    fmax_of(a, b, Tensor::maximum)
}

fn fmin_body(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    schema::fmin.check(result_type([Operand::Tensor(a), b.into()])?)?;
    fmax_of(a, b, Tensor::minimum)
}

/// The extremum of two, or the other one where one is NaN; of two the first.
fn fmax_of(a: &Tensor, b: &Tensor, of: impl Fn(&Tensor, &Tensor) -> Result<Tensor>) -> Result<Tensor> {
    let found = of(a, b)?;
    match found.dtype().is_float() {
        true => r#where(&b.isnan()?, a, &r#where(&a.isnan()?, b, &found)?),
        false => Ok(found),
    }
}

fn copysign_body(x: &Tensor, other: Operand<'_>) -> Result<Tensor> {
    let common = result_type([Operand::Tensor(x), other])?;
    schema::copysign.check(common)?;
    let dtype = schema::copysign.result.of(common);
    let x = x.cast(dtype)?;
    match other {
        Operand::Tensor(t) if t.dtype() == dtype && !autograd::is_followed(&x) && !autograd::is_followed(t) => {
            return super::binary::with_sign(&x, t);
        }
        _ => {}
    }
    let size = x.abs()?;
    match other {
        // A product, since PyTorch's gradient is one with the sign, which is made of `other`.
        Operand::Tensor(t) if autograd::is_followed(t) => {
            let sign = r#where(&t.detach()?.signbit()?, Scalar::Float(-1.0), Scalar::ONE)?.cast(dtype)?;
            &size * &sign.in_steps_of(t)?
        }
        Operand::Tensor(t) => r#where(&t.signbit()?, &(-&size)?, &size),
        Operand::Scalar(s) if s.to_f64().is_sign_negative() => -&size,
        Operand::Scalar(_) => Ok(size),
    }
}

fn ldexp_body(x: &Tensor, other: &Tensor) -> Result<Tensor> {
    // An integer exponent does not widen a 16-bit float.
    let dtype = match (other.dtype().is_integral(), x.dtype().is_integral()) {
        (true, false) => x.dtype(),
        (true, true) => crate::default_dtype(),
        (false, _) => other.dtype(),
    };
    if !other.dtype().is_integral() {
        return x * &other.cast(dtype)?.exp2()?;
    }
    // In steps that are powers of the dtype: the whole may be beyond it where the result is not.
    let far = match dtype {
        DType::F64 => 700,
        DType::F16 => 14,
        _ => 100,
    };
    let wide = other.cast(DType::I64)?;
    let first = clamp(&wide, Some((-far).into()), Some(far.into()))?;
    let rest = (&wide - &first)?;
    let second = clamp(&rest, Some((-far).into()), Some(far.into()))?;
    let third = clamp(&(rest - &second)?, Some((-far).into()), Some(far.into()))?;
    let power = |e: &Tensor| e.cast(dtype)?.exp2();
    ((x * &power(&first)?)? * &power(&second)?)? * &power(&third)?
}

fn frexp_body(x: &Tensor) -> Result<(Tensor, Tensor)> {
    schema::frexp.check(x.dtype())?;
    Ok((super::unary::frexp_mantissa(x)?, super::unary::frexp_exponent(&x.detach()?)?.cast(DType::I32)?))
}

fn rad2deg_body(x: &Tensor) -> Result<Tensor> {
    schema::rad2deg.check(x.dtype())?;
    x * (180.0 / PI)
}

fn deg2rad_body(x: &Tensor) -> Result<Tensor> {
    schema::deg2rad.check(x.dtype())?;
    x * (PI / 180.0)
}

fn clamp_min_body(x: &Tensor, min: Operand<'_>) -> Result<Tensor> {
    clamp(x, Some(min), None)
}

fn clamp_max_body(x: &Tensor, max: Operand<'_>) -> Result<Tensor> {
    clamp(x, None, Some(max))
}

fn isposinf_body(x: &Tensor) -> Result<Tensor> {
    schema::isposinf.check(x.dtype())?;
    // No integer is: as with NaN, nothing is looked at.
    if x.dtype().is_integral() {
        return x.isnan();
    }
    x.eq(f64::INFINITY)
}

fn isneginf_body(x: &Tensor) -> Result<Tensor> {
    schema::isneginf.check(x.dtype())?;
    // No integer is: as with NaN, nothing is looked at.
    if x.dtype().is_integral() {
        return x.isnan();
    }
    x.eq(f64::NEG_INFINITY)
}

fn polygamma_body(n: i64, x: &Tensor) -> Result<Tensor> {
    if n < 0 {
        return Err(Error::runtime("polygamma", "polygamma(n, x) does not support negative n."));
    }
    if n == 0 {
        return x.digamma();
    }
    wide(&schema::polygamma, x, |x| {
        let size = libm::tgamma(n as f64 + 1.0);
        let order = Tensor::constant(Scalar::Float(n as f64 + 1.0), x.dtype(), x.device())?;
        let y = (super::binary::zeta(&order, x)? * if n % 2 == 0 { -size } else { size })?;
        match n {
            // PyTorch's trigamma ends at 0, where its zeta, of which it makes the others, gives NaN.
            1 => y.filled(&x.detach()?.eq(f64::INFINITY)?, 0.0),
            _ => Ok(y),
        }
    })
}

impl Tensor {
    /// In-place form of [`polygamma`]: the derivative of order `n` of `digamma` is written to `self`.
    pub fn polygamma_(&self, n: i64) -> Result<()> {
        let read = crate::autograd::rewritten(self);
        let value = polygamma(n, &read.as_ref().unwrap_or(self).copy()?)?;
        self.write_in_place("polygamma_", value)
    }
}

fn mvlgamma_body(x: &Tensor, p: i64) -> Result<Tensor> {
    if p < 1 {
        return Err(Error::runtime("mvlgamma", format!("p has to be greater than or equal to 1, got {p}")));
    }
    if p > 1 << 16 {
        return Err(Error::runtime("mvlgamma", format!("p has to be at most {}, got {p}", 1 << 16)));
    }
    schema::mvlgamma.check(x.dtype())?;
    // Also of 16-bit floats each step is rounded, as by PyTorch: it decides which arguments are poles.
    let x = if x.dtype().is_integral() { x.cast(crate::default_dtype())? } else { x.clone() };
    let halves = (super::create::arange_of(p as usize, x.device())?.cast(x.dtype())? * 0.5)?;
    // From 0 on, so that no zero is negative: its sign decides the gradient's.
    let sum = (&x.unsqueeze(-1)? + &((-&halves)? + 0.0)?)?.lgamma()?.sum(Some(&[-1]), false, None)?;
    sum + (p as f64 * (p as f64 - 1.0) / 4.0 * PI.ln())
}
