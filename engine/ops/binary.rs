//! Element-wise arithmetic on two tensors, with broadcasting and promotion.
//!
//! Kernels are in `cpu/elementwise.rs` and `gpu/elementwise.rs`. Both operands reach them in one dtype; the tape sums
//! gradients back to each operand's shape.

use super::macros::define_ops;
use super::{result_type, Operand};
use crate::dispatch::{self, Meta, Prim};
use crate::dtype::Category;
use crate::{autograd, shape, DType, Error, Result, Scalar, Tensor};
use num_complex::Complex64;

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! binary_ops {
    ($cb:ident) => { $cb! { "binary" BinaryOp :
        /// `input + alpha * other`. For `bool`, logical or.
        method add(other: Operand; alpha: Number = 1) -> Tensor {
            [old_numbers inplace] Keep Yes DTypes::ALL, Same,
            prim Add Nothing {|c, g| [Ok(g.clone()), Ok(g.clone())]},
            run add_scaled, torch "", samples ["N(3, 4), N(3, 4)", "N(3, 4), N(4)", "N(3, 1), N(1, 4)", "N(3, 4), 2.5", "N(3, 4), N(), alpha=2"],
            example [
                "assert_close(tensor([1, 2])?.add(&tensor([10, 20])?, 1)?, [11, 22]);",
                "assert_close(tensor([1.0, 2.0])?.add(5.0, 2)?, [11.0, 12.0]);",
            ]
        }
        /// `input - alpha * other`. Not for `bool`.
        method sub(other: Operand; alpha: Number = 1) -> Tensor {
            [old_numbers inplace] Keep Yes DTypes::NUMERIC, Same,
            prim Sub Nothing {|c, g| [Ok(g.clone()), -g]},
            run sub_scaled, torch "", samples ["N(3, 4), N(3, 4)", "N(3, 4), N(4)", "N(3, 4), 2.5", "N(3, 4), N(4), alpha=3"],
            example ["assert_close(tensor([10, 20])?.sub(&tensor([1, 2])?, 1)?, [9, 18]);"]
        }
        /// `input * other`. For `bool`, logical and.
        method mul(other: Operand) -> Tensor {
            [inplace] Keep Yes DTypes::ALL, Same,
            prim Mul Cross {|c, g| [g * &c.x(1)?.conjugated()?, g * &c.x(0)?.conjugated()?]},
            run binary[BinaryOp::Mul], torch "", samples ["N(3, 4), N(3, 4)", "N(3, 4), N(4)", "N(2, 1, 4), N(3, 1)", "N(3, 4), 3"],
            example ["assert_close(tensor([1.0, 2.0])?.mul(&tensor([[3.0], [4.0]])?)?, [[3.0, 6.0], [4.0, 8.0]]);"]
        }
        /// `input / other`, always in a floating dtype. `rounding_mode` may be `"trunc"` or `"floor"`, which keep integers.
        method div(other: Operand; rounding_mode: OptText = None) -> Tensor {
            [inplace] Keep Yes DTypes::ALL, Float,
            prim Div Quotient {|c, g| [
                g / &c.x(1)?.conjugated()?,
                (-g)? * &(c.x(0)? / &c.x(1)?.square()?)?.conjugated()?
            ]},
            run div_rounded, torch "", samples ["N(3, 4), P(3, 4)", "N(3, 4), P(4)", "N(3, 4), 2", "N(3, 4), P(3, 4), rounding_mode='floor'", "N(3, 4), P(4), rounding_mode='trunc'"],
            example [
                "assert_close(tensor([7, -7])?.div(2, None)?, [3.5, -3.5]);",
                r#"assert_close(tensor([7, -7])?.div(2, Some("floor"))?, [3, -4]);"#,
            ]
        }
        /// `floor(input / other)`. Integer division by zero raises. Its backward raises, as PyTorch's: `div` with
        /// `rounding_mode="floor"` has gradient 0.
        method floor_divide(other: Operand) -> Tensor {
            [inplace] Keep Yes DTypes::REAL, Same,
            prim FloorDivide Nothing {none},
            run floor_divide_body, torch "", samples ["I(-9, 9, 3, 4), I(1, 5, 3, 4)", "N(3, 4), 2"],
            example ["assert_close(tensor([7, -7])?.floor_divide(2)?, [3, -4]);"]
        }
        /// `input - other * floor(input / other)`: the divisor's sign, as Python's `%`.
        method remainder(other: Operand) -> Tensor {
            [inplace] Keep Yes DTypes::REAL, Same,
            prim Remainder Remainder {|c, g| [Ok(g.clone()), (-g)? * &c.x(0)?.div(&c.x(1)?, Some("floor"))?]},
            run binary[BinaryOp::Remainder], torch "", samples ["N(3, 4), P(3, 4)", "I(-9, 9, 3, 4), I(1, 5, 4)", "N(3, 4), 0.7"],
            example ["assert_close(tensor([7, -7])?.remainder(3)?, [1, 2]);"]
        }
        /// `input - other * trunc(input / other)`: the dividend's sign, as C's `fmod`.
        method fmod(other: Operand) -> Tensor {
            [inplace] Keep Yes DTypes::REAL, Same,
            prim Fmod Remainder {|c, g| [Ok(g.clone()), (-g)? * &c.x(0)?.div(&c.x(1)?, Some("trunc"))?]},
            run binary[BinaryOp::Fmod], torch "", samples ["N(3, 4), P(3, 4)", "I(-9, 9, 3, 4), I(1, 5, 4)"],
            example ["assert_close(tensor([7, -7])?.fmod(3)?, [1, -1]);"]
        }
        /// `input` to the power `exponent`. Integers take no negative number as exponent.
        method pow(exponent: Operand) -> Tensor {
            [inplace] FullGpu Yes DTypes::NUMERIC, Same,
            prim Pow Power {|c, g| [pow_grad_base(c, g), pow_grad_exponent(c, g)]},
            run pow_checked, torch "", samples ["P(3, 4), N(3, 4)", "N(3, 4), 2", "N(3, 4), 3", "P(3, 4), 0.5", "P(3, 4), -1.5", "N(3, 4), 0"],
            example ["assert_close(tensor([2.0, 3.0])?.pow(2)?, [4.0, 9.0]);"]
        }
        /// The larger of the two; NaN where either is. At a tie each gets half of the gradient, at a NaN each all of it.
        method maximum(other: Tensor) -> Tensor {
            [inplace] Keep Yes DTypes::ORDERED, Same,
            prim Maximum Inputs {|c, g| [
                tie_share(c, &c.x(0)?.lt(&c.x(1)?)?, g)? * g,
                tie_share(c, &c.x(1)?.lt(&c.x(0)?)?, g)? * g
            ]},
            run extremum[BinaryOp::Maximum], torch "", samples ["N(3, 4), N(3, 4)", "N(3, 4), N(4)"],
            example ["assert_close(tensor([1.0, 5.0])?.maximum(&tensor([3.0, 2.0])?)?, [3.0, 5.0]);"]
        }
        /// The smaller of the two; NaN where either is. At a tie each gets half of the gradient.
        method minimum(other: Tensor) -> Tensor {
            [inplace] Keep Yes DTypes::ORDERED, Same,
            prim Minimum Inputs {|c, g| [
                tie_share(c, &c.x(0)?.gt(&c.x(1)?)?, g)? * g,
                tie_share(c, &c.x(1)?.gt(&c.x(0)?)?, g)? * g
            ]},
            run extremum[BinaryOp::Minimum], torch "", samples ["N(3, 4), N(3, 4)", "N(3, 4), N(4)"],
            example ["assert_close(tensor([1.0, 5.0])?.minimum(&tensor([3.0, 2.0])?)?, [1.0, 2.0]);"]
        }
        /// The angle in radians of the point (`other`, `input`), in -π to π.
        method atan2(other: Tensor) -> Tensor {
            [inplace] PromoteGpu Yes DTypes::ORDERED, Float,
            prim Atan2 Inputs {|c, g| [
                g * &(c.x(1)? * &of_length(&c.x(0)?, &c.x(1)?)?)?,
                -&(g * &(c.x(0)? * &of_length(&c.x(0)?, &c.x(1)?)?)?)?
            ]},
            run extremum[BinaryOp::Atan2], torch "", samples ["N(3, 4), P(3, 4)", "N(3, 4), N(4)"],
            example ["assert_close(tensor([1.0, -1.0])?.atan2(&tensor([0.0, -1.0])?)?, [1.57080, -2.35619]);"]
        }
        /// `log(e^input + e^other)` without overflow.
        method logaddexp(other: Tensor) -> Tensor {
            [] Own Yes DTypes::INEXACT, Same,
            prim LogAddExp Inputs {|c, g| [
                g / &((c.x(1)? - &c.x(0)?)?.exp()? + 1.0)?,
                g / &((c.x(0)? - &c.x(1)?)?.exp()? + 1.0)?
            ]},
            run log_add_exp, torch "", samples ["N(3, 4), N(3, 4)", "N(3, 4), N(4)"],
            example ["assert_close(tensor([0.0, 1000.0])?.logaddexp(&tensor([0.0, 1000.0])?)?, [0.69315, 1000.69315]);"]
        }
        /// What goes back through [`relu`](super::unary::relu) from `grad` and its result `output`: `grad`, and 0 where
        /// `output <= 0`. Both have one shape.
        function relu_gradient(grad: Tensor, output: Tensor) -> Tensor {
            [] Own Yes DTypes::FLOAT, Same,
            prim ReluGradient Second {|c, v| [relu_gradient(v, &c.x(1)?), c.zeros(1)]},
            run extremum[BinaryOp::ReluGradient], torch "-", samples ["N(3, 4), N(3, 4)"],
            example [
                "let (grad, output) = (tensor([5.0, 6.0])?, tensor([-1.0, 2.0])?.relu()?);",
                "assert_close(relu_gradient(&grad, &output)?, [0.0, 6.0]);",
            ]
        }
        /// Bitwise and; for `bool`, logical and.
        method bitwise_and(other: Operand) -> Tensor {
            [inplace] Keep Yes DTypes::INTEGRAL, Same,
            prim BitwiseAnd Nothing {none},
            run binary[BinaryOp::BitwiseAnd], torch "", samples ["I(0, 99, 3, 4), I(0, 99, 4)", "I(0, 99, 3, 4), 6"],
            example ["assert_close(tensor([0b1100])?.bitwise_and(0b1010)?, [0b1000]);"]
        }
        /// Bitwise or; for `bool`, logical or.
        method bitwise_or(other: Operand) -> Tensor {
            [inplace] Keep Yes DTypes::INTEGRAL, Same,
            prim BitwiseOr Nothing {none},
            run binary[BinaryOp::BitwiseOr], torch "", samples ["I(0, 99, 3, 4), I(0, 99, 4)", "I(0, 99, 3, 4), 6"],
            example ["assert_close(tensor([0b1100])?.bitwise_or(0b1010)?, [0b1110]);"]
        }
        /// Bitwise exclusive or; for `bool`, logical exclusive or.
        method bitwise_xor(other: Operand) -> Tensor {
            [inplace] Keep Yes DTypes::INTEGRAL, Same,
            prim BitwiseXor Nothing {none},
            run binary[BinaryOp::BitwiseXor], torch "", samples ["I(0, 99, 3, 4), I(0, 99, 4)", "I(0, 99, 3, 4), 6"],
            example ["assert_close(tensor([0b1100])?.bitwise_xor(0b1010)?, [0b0110]);"]
        }
        /// Bits shifted up by `other`; 0 where `other` is negative or not below the width.
        method bitwise_left_shift(other: Operand) -> Tensor {
            [inplace] Keep Yes DTypes::INTEGER, Same,
            prim LeftShift Nothing {none},
            run binary[BinaryOp::LeftShift], torch "", samples ["I(0, 99, 3, 4), I(0, 5, 4)", "I(0, 99, 3, 4), 2"],
            example ["assert_close(tensor([1, 3])?.bitwise_left_shift(2)?, [4, 12]);"]
        }
        /// Bits shifted down by `other`, keeping the sign.
        method bitwise_right_shift(other: Operand) -> Tensor {
            [inplace] Keep Yes DTypes::INTEGER, Same,
            prim RightShift Nothing {none},
            run binary[BinaryOp::RightShift], torch "", samples ["I(0, 99, 3, 4), I(0, 5, 4)", "I(0, 99, 3, 4), 2"],
            example ["assert_close(tensor([8, -8])?.bitwise_right_shift(2)?, [2, -2]);"]
        }
        /// `√(input² + other²)` without overflow.
        method hypot(other: Tensor) -> Tensor {
            [inplace] Keep Yes DTypes::FLOAT, Same,
            prim Hypot Both {|c, g| [g * &(c.x(0)? / &c.out()?)?, g * &(c.x(1)? / &c.out()?)?]},
            run extremum[BinaryOp::Hypot], torch "", samples ["N(3, 4), N(3, 4)", "N(3, 4), N(4)"],
            example ["assert_close(tensor([3.0, 5.0])?.hypot(&tensor([4.0, 12.0])?)?, [5.0, 13.0]);"]
        }
        /// The next representable number after `input` towards `other`. The gradient is 1 for `input` where both differ, and 0
        /// for `other`.
        method nextafter(other: Tensor) -> Tensor {
            [inplace] Keep Yes DTypes::FLOAT, Same,
            prim NextAfter Inputs {|c, g| [g.where_else_zero(&c.x(0)?.ne(&c.x(1)?)?), g.zeros_like()]},
            run extremum[BinaryOp::NextAfter], torch "", samples ["N(3, 4), N(3, 4)", "N(3, 4), N(4)"],
            example [
                "let next = tensor([1.0f32])?.nextafter(&tensor([2.0f32])?)?;",
                "assert_eq!(next.to_vec::<f32>()?, [1.0 + f32::EPSILON]);",
            ]
        }
        /// The greatest common divisor, never negative; `gcd(0, 0)` is 0.
        method gcd(other: Tensor) -> Tensor {
            [inplace] Keep Yes DTypes::INTEGER, Same,
            prim Gcd Nothing {none},
            run extremum[BinaryOp::Gcd], torch "", samples ["I(-30, 30, 3, 4), I(-30, 30, 3, 4)", "I(0, 99, 3, 4), I(0, 99, 4)"],
            example ["assert_close(tensor([12, -9, 0])?.gcd(&tensor([18, 6, 0])?)?, [6, 3, 0]);"]
        }
        /// The least common multiple, never negative; 0 where either is 0.
        method lcm(other: Tensor) -> Tensor {
            [inplace] Keep Yes DTypes::INTEGER, Same,
            prim Lcm Nothing {none},
            run extremum[BinaryOp::Lcm], torch "", samples ["I(-30, 30, 3, 4), I(-30, 30, 3, 4)", "I(0, 99, 3, 4), I(0, 99, 4)"],
            example ["assert_close(tensor([4, -3, 0])?.lcm(&tensor([6, 5, 7])?)?, [12, 15, 0]);"]
        }
        /// The Hurwitz zeta function `Σ (other + k)^-input` over `k ≥ 0`; inf at its poles. It has a gradient to `other`
        /// only.
        method zeta(other: Operand) -> Tensor {
            [only_function] Keep Yes DTypes::ORDERED, Float,
            prim Zeta Remainder {|c, g| [
                Err(Error::runtime("zeta", "the derivative for 'input' is not implemented")),
                -&((g * &c.x(0)?)? * &zeta(&(c.x(0)? + 1.0)?, &c.x(1)?)?)?
            ]},
            run binary[BinaryOp::Zeta], torch "special.zeta", samples ["FIXED(P(3, 4, lo=1.5, hi=6.0)), P(3, 4)", "FIXED(P(3, 4, lo=1.5, hi=6.0)), 2.5"],
            example ["assert_close(tensor([2.0, 4.0])?.zeta(1.0)?, [1.64493, 1.08232]);"]
        }
        /// The regularized lower incomplete gamma function `P(input, other) = 1/Γ(a) ∫₀ˣ tᵃ⁻¹ e⁻ᵗ dt`; NaN where either is
        /// negative. It has a gradient to `other` only.
        method igamma(other: Tensor) -> Tensor {
            [inplace] Keep Yes DTypes::FLOAT, Same,
            prim Igamma Remainder {|c, g| [
                Err(Error::not_implemented("igamma", "the derivative for 'igamma: input' is not implemented.")),
                g * &gamma_density(c)?
            ]},
            run extremum[BinaryOp::Igamma], torch "", samples ["FIXED(P(3, 4, lo=0.3, hi=6.0)), P(3, 4)", "FIXED(P(4, lo=0.5, hi=300.0)), P(3, 4, lo=0.5, hi=300.0)"],
            example ["assert_close(tensor([1.0, 2.0])?.igamma(&tensor([1.0, 1.0])?)?, [0.63212, 0.26424]);"]
        }
        /// The regularized upper incomplete gamma function, `1 - P`. It has a gradient to `other` only.
        method igammac(other: Tensor) -> Tensor {
            [inplace] Keep Yes DTypes::FLOAT, Same,
            prim Igammac Remainder {|c, g| [
                Err(Error::not_implemented("igammac", "the derivative for 'igammac: input' is not implemented.")),
                -&(g * &gamma_density(c)?)?
            ]},
            run extremum[BinaryOp::Igammac], torch "", samples ["FIXED(P(3, 4, lo=0.3, hi=6.0)), P(3, 4)", "FIXED(P(4, lo=0.5, hi=300.0)), P(3, 4, lo=0.5, hi=300.0)"],
            example ["assert_close(tensor([1.0, 2.0])?.igammac(&tensor([1.0, 1.0])?)?, [0.36788, 0.73576]);"]
        }
        /// `other - alpha * input`.
        method rsub(other: Operand; alpha: Number = 1) -> Tensor {
            [no_out] Keep Yes DTypes::NUMERIC, Same,
            run rsub_scaled, torch "", samples ["N(3, 4), N(3, 4)", "N(3, 4), 2.5"],
            example ["assert_close(tensor([1, 2])?.rsub(10, 1)?, [9, 8]);"]
        }
        /// `input + value * tensor1 * tensor2`.
        method addcmul(tensor1: Tensor, tensor2: Tensor; value: Number = 1) -> Tensor {
            [old_numbers inplace] PromoteGpu Yes DTypes::NUMERIC, Same,
            run addcmul_body, torch "", samples ["N(3, 4), N(3, 4), N(4), value=0.5"],
            example [
                "let x = tensor([1.0, 1.0])?.addcmul(&tensor([2.0, 3.0])?, &tensor([4.0, 5.0])?, 0.5)?;",
                "assert_close(x, [5.0, 8.5]);",
            ]
        }
        /// `input + value * tensor1 / tensor2`.
        method addcdiv(tensor1: Tensor, tensor2: Tensor; value: Number = 1) -> Tensor {
            [old_numbers inplace] PromoteGpu Yes DTypes::INEXACT, Same,
            run addcdiv_body, torch "", samples ["N(3, 4), N(3, 4), P(4), value=0.5"],
            example [
                "let x = tensor([1.0, 1.0])?.addcdiv(&tensor([4.0, 6.0])?, &tensor([2.0, 3.0])?, 0.5)?;",
                "assert_close(x, [2.0, 2.0]);",
            ]
        }
        /// `input + weight * (end - input)`.
        method lerp(end: Tensor, weight: Operand) -> Tensor {
            [out_rule inplace] Keep Yes DTypes::INEXACT, Same,
            run lerp_body, torch "", samples ["N(3, 4), N(3, 4), 0.3", "N(3, 4), N(4), U(3, 4)"],
            example ["assert_close(tensor([0.0, 10.0])?.lerp(&tensor([4.0, 20.0])?, 0.25)?, [1.0, 12.5]);"]
        }
    }};
}
binary_ops!(define_ops);

/// The dtype that two operands are computed in.
fn common(a: &Tensor, b: Operand<'_>) -> DType {
    match b {
        Operand::Tensor(t) if t.dtype() == a.dtype() => t.dtype(),
        b => result_type([Operand::Tensor(a), b]),
    }
}

fn binary(op: BinaryOp, a: &Tensor, b: Operand<'_>) -> Result<Tensor> {
    binary_in(op, a, b, common(a, b))
}

/// [`binary`] of operands whose common dtype has been worked out.
fn binary_in(op: BinaryOp, a: &Tensor, b: Operand<'_>, common: DType) -> Result<Tensor> {
    let schema = op.schema();
    schema.check(common)?;
    let dtype = schema.result.of(common);
    if let Operand::Tensor(b) = b {
        // What most calls are: nothing to convert.
        if a.dtype() == dtype && b.dtype() == dtype {
            let shape = shape::broadcast(schema.name, a.shape(), b.shape())?;
            return dispatch::apply1(Prim::Binary(op), &[a, b], Meta { shape, dtype });
        }
    }
    // 16-bit floats are multiplied and divided by a number as float32, where 1e5 is finite and 1e-8 is not 0; a second
    // operand of one element is a number. So it is in PyTorch.
    let wide = matches!(op, BinaryOp::Mul | BinaryOp::Div | BinaryOp::FloorDivide) && dtype.is_half();
    let a = a.cast(dtype)?;
    let b = match b {
        Operand::Tensor(b) if wide && b.numel() == 1 && b.dtype() != dtype => b.cast(DType::F32)?,
        Operand::Tensor(b) => b.cast(dtype)?,
        Operand::Scalar(s) if wide && !s.is_exact(dtype) => Tensor::constant(s, DType::F32, a.device())?,
        Operand::Scalar(s) => Tensor::constant(s, dtype, a.device())?,
    };
    in_dtype(op, &a, &b, dtype)
}

/// An op of two tensors that gives `dtype`, whatever theirs: where one is a 16-bit float, rounded once.
fn in_dtype(op: BinaryOp, a: &Tensor, b: &Tensor, dtype: DType) -> Result<Tensor> {
    let shape = shape::broadcast(op.schema().name, a.shape(), b.shape())?;
    dispatch::apply1(Prim::Binary(op), &[a, b], Meta { shape, dtype })
}

/// `x^(a-1) e^-x / Γ(a)`, the slope of the incomplete gamma function.
fn gamma_density(c: &crate::autograd::Ctx<'_>) -> Result<Tensor> {
    let (a, x) = (c.x(0)?, c.x(1)?);
    (((&a - 1)? * &x.log()?)? - &(&x + &a.lgamma()?)?)?.exp()
}

fn extremum(op: BinaryOp, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    binary(op, a, Operand::Tensor(b))
}

/// The factor, which the dtype has to have room for.
pub(super) fn representable(op: &'static str, factor: Scalar, dtype: DType) -> Result<Scalar> {
    match factor.converts(dtype) {
        true => Ok(factor),
        false => {
            Err(Error::runtime(op, format!("value {factor} cannot be converted to type {dtype} without overflow")))
        }
    }
}

/// `b * alpha` for a sum in `common`; `None` where alpha is 1.
fn scaled(
    name: &'static str,
    b: Operand<'_>,
    alpha: Scalar,
    common: DType,
    device: crate::Device,
) -> Result<Option<Tensor>> {
    if alpha == Scalar::ONE {
        return Ok(None);
    }
    let refused = match (common.category(), alpha.category()) {
        (Category::Integer | Category::Float | Category::Complex, Category::Bool) => {
            Some("Boolean alpha only supported for Boolean results")
        }
        (Category::Bool | Category::Integer, Category::Float | Category::Complex) => {
            Some("For integral input tensors, argument alpha must not be a floating point number")
        }
        (Category::Float, Category::Complex) => {
            Some("For non-complex input tensors, argument alpha must not be a complex number")
        }
        _ => None,
    };
    if let Some(why) = refused {
        return Err(Error::runtime(name, format!("{why}, got {alpha}")));
    }
    let alpha = match common {
        DType::Bool => Scalar::Bool(alpha.to_bool()),
        _ => representable(name, alpha, common)?,
    };
    let product = match b {
        // A number of a higher category than `b` must not say the dtype.
        Operand::Tensor(b) => times(&b.cast(common)?, alpha)?,
        Operand::Scalar(s) => Tensor::constant(s, super::scalar_dtype(s), device)?.mul(alpha)?,
    };
    Ok(Some(product))
}

/// `b * alpha`; of 16-bit floats as float32, for a sum that is rounded once.
fn times(b: &Tensor, alpha: Scalar) -> Result<Tensor> {
    match b.dtype().is_half() {
        true => in_dtype(BinaryOp::Mul, b, &Tensor::constant(alpha, b.dtype(), b.device())?, DType::F32),
        false => b.mul(alpha),
    }
}

/// A sum or difference with such a product.
fn with_product(op: BinaryOp, a: &Tensor, product: &Tensor, common: DType) -> Result<Tensor> {
    match common.is_half() {
        true => in_dtype(op, a, product, common),
        false => binary_in(op, a, product.into(), common),
    }
}

/// `a + alpha · b`, or the difference.
fn sum_scaled(op: BinaryOp, a: &Tensor, b: Operand<'_>, alpha: Scalar) -> Result<Tensor> {
    let dtype = common(a, b);
    match scaled(op.schema().name, b, alpha, dtype, a.device())? {
        Some(product) => with_product(op, a, &product, dtype),
        None => binary_in(op, a, b, dtype),
    }
}

fn add_scaled(a: &Tensor, b: Operand<'_>, alpha: Scalar) -> Result<Tensor> {
    sum_scaled(BinaryOp::Add, a, b, alpha)
}

/// A truth value has no difference to anything.
fn refuse_bool(name: &'static str, a: &Tensor, b: Operand<'_>) -> Result<()> {
    let truth = match b {
        Operand::Tensor(b) => b.dtype() == DType::Bool,
        Operand::Scalar(s) => s.category() == Category::Bool,
    };
    if a.dtype() != DType::Bool && !truth {
        return Ok(());
    }
    let why =
        "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, \
               use the `~` or `logical_not()` operator instead.";
    Err(Error::dtype(name, why, &[a.dtype()]))
}

/// `log(e^a + e^b)`; of complex numbers the one with the larger real part is taken out.
fn log_add_exp(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let dtype = result_type([Operand::Tensor(a), b.into()]);
    if !dtype.is_complex() {
        return extremum(BinaryOp::LogAddExp, a, b);
    }
    let (a, b) = (a.cast(dtype)?, b.cast(dtype)?);
    let select = super::compare::select::r#where;
    let (still_a, still_b) = (a.detach()?, b.detach()?);
    let (ra, rb) = (super::complex::real(&still_a)?, super::complex::real(&still_b)?);
    let first = ra.ge(&rb)?;
    // What is decided by infinities: nothing is added to one, and beside -inf the other one stays.
    let (high, low) = (ra.maximum(&rb)?, ra.minimum(&rb)?);
    let decided = high.isinf()?.logical_or(&low.isinf()?)?;
    let zero = |x: &Tensor| x.filled(&decided, 0.0);
    let top = zero(&select(&first, &still_a, &still_b)?)?;
    let usual = (((zero(&a)? - &top)?.exp()? + &(zero(&b)? - &top)?.exp()?)?.log()? + &top)?;
    let even = ra.eq(&rb)?;
    let sum = (still_a.exp()? + &still_b.exp()?)?.log()?;
    let larger = select(&first, &a, &b)?;
    let larger = select(&even.logical_and(&ra.lt(0)?)?, &b, &larger)?;
    let edge = select(&even.logical_and(&ra.gt(0)?)?, &sum, &larger)?;
    let nan = still_a.isnan()?.logical_or(&still_b.isnan()?)?;
    let none = Tensor::constant(Scalar::Complex(f64::NAN, f64::NAN), dtype, a.device())?;
    select(&nan, &none, &select(&decided, &edge, &usual)?)
}

fn sub_scaled(a: &Tensor, b: Operand<'_>, alpha: Scalar) -> Result<Tensor> {
    refuse_bool("sub", a, b)?;
    sum_scaled(BinaryOp::Sub, a, b, alpha)
}

fn rsub_scaled(a: &Tensor, b: Operand<'_>, alpha: Scalar) -> Result<Tensor> {
    refuse_bool("rsub", a, b)?;
    let dtype = common(a, b);
    let number;
    let b = match b {
        Operand::Tensor(b) => b,
        Operand::Scalar(s) => {
            number = Tensor::constant(s, dtype, a.device())?;
            &number
        }
    };
    match scaled("rsub", Operand::Tensor(a), alpha, a.dtype(), a.device())? {
        Some(product) => with_product(BinaryOp::Sub, b, &product, dtype),
        None => binary_in(BinaryOp::Sub, b, a.into(), dtype),
    }
}

/// A function that is steps, with gradient 0 everywhere.
fn stepped(a: &Tensor, b: Operand<'_>, run: impl Fn(&Tensor, Operand<'_>) -> Result<Tensor>) -> Result<Tensor> {
    let other = if let Operand::Tensor(b) = b { Some(b) } else { None };
    if !autograd::is_followed(a) && !other.is_some_and(autograd::is_followed) {
        return run(a, b);
    }
    let still = other.map(Tensor::detach).transpose()?;
    let q = run(&a.detach()?, still.as_ref().map_or(b, Operand::Tensor))?.in_steps_of(a)?;
    other.map_or(Ok(q.clone()), |b| q.in_steps_of(b))
}

fn floor_divide_body(a: &Tensor, b: Operand<'_>) -> Result<Tensor> {
    let y = binary(BinaryOp::FloorDivide, a, b)?;
    let refusal = || Error::runtime("floor_divide", "derivative for aten::floor_divide is not implemented");
    let refuse = |inputs: &[&Tensor]| autograd::refusing("floor_divide", &y, "NotImplemented", inputs, refusal);
    match b {
        Operand::Tensor(b) => refuse(&[a, b])?,
        Operand::Scalar(_) => refuse(&[a])?,
    }
    Ok(y)
}

fn div_rounded(a: &Tensor, b: Operand<'_>, rounding_mode: Option<&str>) -> Result<Tensor> {
    match rounding_mode {
        None => binary(BinaryOp::Div, a, b),
        Some("floor") => stepped(a, b, |a, b| binary(BinaryOp::FloorDivide, a, b)),
        Some("trunc") => {
            let common = result_type([Operand::Tensor(a), b]);
            let q = match common.is_integral() {
                // (a - fmod(a, b)) is a multiple of b, so the floor is exact.
                true => binary(BinaryOp::FloorDivide, &a.sub(&a.fmod(b)?, 1)?, b)?,
                // Not of the quotient: by 0 the gradient of what is steps would be `0 · ∞`.
                false => stepped(a, b, |a, b| binary(BinaryOp::Div, a, b)?.trunc())?,
            };
            Ok(q)
        }
        Some(other) => {
            let why = format!("div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '{other}'");
            Err(Error::runtime("div", why))
        }
    }
}

fn pow_checked(a: &Tensor, exponent: Operand<'_>) -> Result<Tensor> {
    if let Operand::Scalar(s) = exponent {
        // Of truth values only false to the power of true is false.
        if let (DType::Bool, Scalar::Bool(e)) = (a.dtype(), s) {
            return if e { a.copy() } else { a.logical_or(true) };
        }
        if a.dtype().is_integral() && s.category() < Category::Float && s.to_i64() < 0 {
            return Err(Error::runtime("pow", "Integers to negative integer powers are not allowed."));
        }
        // PyTorch takes roots here, which differ for -0 and -inf; not in float16.
        if a.dtype() != DType::F16 && !a.dtype().is_integral() && s.category() <= Category::Float {
            match s.to_f64() {
                0.5 => return root(a, s, Tensor::sqrt),
                -0.5 => return root(a, s, Tensor::rsqrt),
                _ => {}
            }
        }
        // As a number 0 makes 1 of everything, of complex zeros too.
        let dtype = result_type([Operand::Tensor(a), exponent]);
        if s.to_complex() == Complex64::default() && (dtype.is_complex() || autograd::is_followed(a)) {
            return super::create::ones_like(&a.detach()?, Some(dtype), None, None)?.in_steps_of(a);
        }
        if s.to_f64() == 2.0 && a.dtype() != DType::Bool && !s.outranks(a.dtype()) {
            return a.square();
        }
    }
    binary(BinaryOp::Pow, a, exponent)
}

/// A root for a power. Its gradient is that of the power, which needs the base: the result may be written in place.
fn root(a: &Tensor, exponent: Scalar, take: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    if !autograd::is_followed(a) || a.is_batched() || a.is_sparse() {
        return take(a);
    }
    let value = autograd::with_grad(false, || take(&a.detach()?))?;
    let exponent = Tensor::constant(exponent, a.dtype(), a.device())?;
    autograd::record(Prim::Binary(BinaryOp::Pow), &[a, &exponent], value.storage().clone())
}

/// `g · e · x^(e-1)`, and 0 where the exponent is 0 (also at x = 0).
fn pow_grad_base(c: &crate::autograd::Ctx<'_>, g: &Tensor) -> Result<Tensor> {
    let (x, e) = (c.x(0)?, c.x(1)?);
    // Of an exponent that is a number the power is as in the forward pass, where some are roots.
    let power = match e.number() {
        Some(Scalar::Complex(re, im)) => x.pow(Scalar::Complex(re - 1.0, im))?,
        Some(number) => x.pow(number.to_f64() - 1.0)?,
        None => x.pow(&(&e - 1)?)?,
    };
    let slope = (&e * &power)?.conjugated()?;
    (g * &slope)?.where_else_zero(&e.ne(0)?)
}

/// `g · x^e · ln x`, and 0 where x is 0 and the exponent is not negative.
fn pow_grad_exponent(c: &crate::autograd::Ctx<'_>, g: &Tensor) -> Result<Tensor> {
    let (x, e) = (c.x(0)?, c.x(1)?);
    let flat = x.eq(0)?.logical_and(&super::complex::real(&e.detach()?)?.ge(0)?)?;
    let slope = (c.out()? * &x.log()?)?.conjugated()?;
    (g * &slope)?.where_else_zero(&flat.logical_not()?)
}

/// 1 where this side won, 1/2 at a tie, 0 elsewhere.
fn tie_share(c: &crate::autograd::Ctx<'_>, lost: &Tensor, g: &Tensor) -> Result<Tensor> {
    let tie = c.x(0)?.eq(&c.x(1)?)?;
    (1.0 - &lost.cast(g.dtype())?)? - &(tie.cast(g.dtype())? * 0.5)?
}

/// A factor as PyTorch applies it to integers: without its fraction.
pub(crate) fn within(x: &Tensor, factor: Scalar) -> Scalar {
    if x.dtype().is_integral() {
        Scalar::Int(factor.to_i64())
    } else {
        factor
    }
}

/// `1 / (y² + x²)`, and 0 at the origin, where an angle has no gradient.
fn of_length(y: &Tensor, x: &Tensor) -> Result<Tensor> {
    let square = (y.square()? + &x.square()?)?;
    let origin = square.detach()?.eq(0)?;
    square.filled(&origin, 1.0)?.reciprocal()?.filled(&origin, 0.0)
}

fn addcmul_body(x: &Tensor, a: &Tensor, b: &Tensor, value: Scalar) -> Result<Tensor> {
    let dtype = result_type([Operand::Tensor(x), a.into(), b.into()]);
    schema::addcmul.check(dtype)?;
    if dtype.is_half() {
        return added(x, BinaryOp::Mul, a, b, value, dtype);
    }
    let value =
        if dtype.is_integral() { Scalar::Int(representable("addcmul", value, dtype)?.to_i64()) } else { number(value) };
    x.add(&(a * b)?, value)
}

/// `x + value · (a op b)` of 16-bit floats, rounded once.
fn added(x: &Tensor, op: BinaryOp, a: &Tensor, b: &Tensor, value: Scalar, dtype: DType) -> Result<Tensor> {
    let part = in_dtype(op, a, b, DType::F32)?;
    let part = if value == Scalar::ONE { part } else { part.mul(number(value))? };
    in_dtype(BinaryOp::Add, x, &part, dtype)
}

fn addcdiv_body(x: &Tensor, a: &Tensor, b: &Tensor, value: Scalar) -> Result<Tensor> {
    if a.dtype().is_integral() && b.dtype().is_integral() {
        let why = "Integer division with addcdiv is no longer supported; cast one of the tensors to a floating \
                   dtype, or add div(a, b, rounding_mode)";
        return Err(Error::dtype("addcdiv", why, &[a.dtype(), b.dtype()]));
    }
    let dtype = result_type([Operand::Tensor(x), a.into(), b.into()]);
    if dtype.is_half() {
        return added(x, BinaryOp::Div, a, b, value, dtype);
    }
    x.add(&(a / b)?, number(value))
}

/// A flag as the number that it stands for, which `add` would refuse.
fn number(value: Scalar) -> Scalar {
    match value {
        Scalar::Bool(b) => Scalar::Int(i64::from(b)),
        other => other,
    }
}

fn lerp_body(x: &Tensor, end: &Tensor, weight: Operand<'_>) -> Result<Tensor> {
    // A weight without dimensions is a number.
    let weight_dtype = match weight {
        Operand::Tensor(w) if w.ndim() > 0 => w.dtype(),
        Operand::Tensor(_) | Operand::Scalar(_) => x.dtype(),
    };
    for (name, dtype) in [("end", end.dtype()), ("weight", weight_dtype)] {
        if dtype != x.dtype() {
            let why = format!("expected dtype {} for `{name}` but got dtype {dtype}", x.dtype());
            return Err(Error::dtype("lerp", why, &[x.dtype(), dtype]));
        }
    }
    schema::lerp.check(x.dtype())?;
    // Of 16-bit floats all but the last step is in float32.
    let inside = if x.dtype().is_half() { DType::F32 } else { x.dtype() };
    if let Operand::Scalar(w) = weight {
        super::create::check_held("lerp", w, inside)?;
    }
    let cast = match weight {
        Operand::Tensor(w) => Some(w.cast(inside)?),
        Operand::Scalar(_) => None,
    };
    let weight = cast.as_ref().map_or(weight, Operand::Tensor);
    let way = in_dtype(BinaryOp::Sub, end, x, inside)?;
    let near = |w: Operand<'_>| in_dtype(BinaryOp::Add, x, &way.mul(w)?, x.dtype());
    let far = |w: Operand<'_>| {
        let rest = match w {
            Operand::Tensor(w) => w.mul(-1)?.add(1, Scalar::ONE)?,
            Operand::Scalar(w) => Tensor::constant(w, inside, x.device())?.mul(-1)?.add(1, Scalar::ONE)?,
        };
        in_dtype(BinaryOp::Sub, end, &(&way * &rest)?, x.dtype())
    };
    // From the nearer end, so that both ends are met exactly.
    match weight {
        Operand::Scalar(Scalar::Complex(re, im)) if re.hypot(im) < 0.5 => near(weight),
        Operand::Scalar(Scalar::Complex(..)) => far(weight),
        Operand::Scalar(w) if w.to_f64().abs() < 0.5 => near(weight),
        Operand::Scalar(_) => far(weight),
        Operand::Tensor(w) => {
            super::compare::select::r#where(&w.detach()?.abs()?.lt(0.5)?, &near(weight)?, &far(weight)?)
        }
    }
}
