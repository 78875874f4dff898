//! Element-wise primitives in terms of the smallest set.
//!
//! Depends on that set's ops alone. Optional: an op that has no rule here stays as it is. Invariant: nothing here is called that is not of [`SMALLEST`](super::SMALLEST), a cast or
//! a constant.

use crate::dispatch::Prim;
use crate::{DType, Result, Scalar, Tensor};
use lucid_ir::ops::{binary::BinaryOp, compare::CompareOp, select::SelectOp, unary::UnaryOp};
use lucid_ir::Meta;
use std::f64::consts::{FRAC_PI_2, LN_2, LOG10_2, LOG2_E};

/// A number in the shape and dtype of a tensor.
pub(super) fn fill(like: &Tensor, value: f64) -> Result<Tensor> {
    crate::ops::create::full_like(like, Scalar::Float(value), None, None, None)
}

pub(super) fn neg(x: &Tensor) -> Result<Tensor> {
    x * -1.0
}

pub(super) fn sub(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    a + &neg(b)?
}

pub(super) fn div(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    a * &b.reciprocal()?
}

pub(super) fn exp(x: &Tensor) -> Result<Tensor> {
    (x * LOG2_E)?.exp2()
}

pub(super) fn log(x: &Tensor) -> Result<Tensor> {
    x.log2()? * LN_2
}

/// 1 where the first is less than the second, else 0, in that dtype.
pub(super) fn less(a: &Tensor, b: &Tensor, dtype: DType) -> Result<Tensor> {
    a.lt(b)?.cast(dtype)
}

/// 1 − x.
pub(super) fn not(x: &Tensor) -> Result<Tensor> {
    &neg(x)? + 1.0
}

pub(super) fn zero(like: &Tensor) -> Result<Tensor> {
    fill(like, 0.0)
}

/// 1 where both are equal. NaN is equal to nothing: it is neither below 1 nor above 0.
pub(super) fn equal(a: &Tensor, b: &Tensor, dtype: DType) -> Result<Tensor> {
    let same = (&not(&less(a, b, dtype)?)? * &not(&less(b, a, dtype)?)?)?;
    &(&same * &number(a, dtype)?)? * &number(b, dtype)?
}

/// 1 where it is no NaN.
pub(super) fn number(x: &Tensor, dtype: DType) -> Result<Tensor> {
    if !x.dtype().is_float() {
        return fill(&x.cast(dtype)?, 1.0);
    }
    let (below, above) = (less(x, &fill(x, 1.0)?, dtype)?, less(&zero(x)?, x, dtype)?);
    // 1 − (1 − below)(1 − above)
    not(&(&not(&below)? * &not(&above)?)?)
}

/// `c·a + (1 − c)·b`, where `c` is 0 or 1, of the bits: an infinity or NaN that is not chosen leaves no trace.
pub(super) fn choose(c: &Tensor, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let bits = match a.dtype().size() {
        2 => DType::I16,
        4 => DType::I32,
        _ => DType::I64,
    };
    let c = c.cast(bits)?;
    let other = (&(&c * -1)? + 1)?;
    let chosen = (&(&c * &a.view_dtype(bits)?)? + &(&other * &b.view_dtype(bits)?)?)?;
    chosen.view_dtype(a.dtype())
}

pub(super) fn floor(x: &Tensor) -> Result<Tensor> {
    let one = fill(x, 1.0)?;
    sub(x, &x.remainder(&one)?)
}

pub(super) fn absolute(x: &Tensor) -> Result<Tensor> {
    let negative = less(x, &zero(x)?, x.dtype())?;
    x * &(&(&negative * -2.0)? + 1.0)?
}

fn truncated(x: &Tensor) -> Result<Tensor> {
    let negative = less(x, &zero(x)?, x.dtype())?;
    choose(&negative, &neg(&floor(&neg(x)?)?)?, &floor(x)?)
}

pub(super) fn sigmoid(x: &Tensor) -> Result<Tensor> {
    (&exp(&neg(x)?)? + 1.0)?.reciprocal()
}

/// `2σ(2x) − 1`.
pub(super) fn tanh(x: &Tensor) -> Result<Tensor> {
    &(&sigmoid(&(x * 2.0)?)? * 2.0)? + -1.0
}

fn cos(x: &Tensor) -> Result<Tensor> {
    (x + FRAC_PI_2)?.sin()
}

/// 1 where a number is odd.
fn odd(x: &Tensor) -> Result<Tensor> {
    let two = fill(x, 2.0)?;
    equal(&x.remainder(&two)?, &fill(x, 1.0)?, x.dtype())
}

/// `|a|^b`, negative where `a` is and `b` is odd; what a base of 0 gives follows from `log2(0) = −∞`.
fn power(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let size = (b * &absolute(a)?.log2()?)?.exp2()?;
    let negative = less(a, &zero(a)?, a.dtype())?;
    size * &(&(&(&negative * &odd(b)?)? * -2.0)? + 1.0)?
}

pub(super) fn maximum(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    choose(&less(a, b, a.dtype())?, b, a)
}

pub(super) fn expand(prim: &Prim, x: &[Tensor], meta: &Meta) -> Result<Option<Tensor>> {
    match (prim, x) {
        (Prim::Unary(op), [x]) => unary(op, x),
        (Prim::Binary(op), [a, b]) if a.dtype() == b.dtype() && a.dtype() == meta.dtype => binary(op, a, b),
        (Prim::Compare(op), [a, b]) if a.dtype() == b.dtype() => compare(op, a, b).map(Some),
        (Prim::Select(SelectOp::Where), [c, a, b]) if a.dtype() == b.dtype() && a.dtype().is_float() => {
            choose(&c.cast(a.dtype())?, a, b).map(Some)
        }
        _ => Ok(None),
    }
}

fn unary(op: &UnaryOp, x: &Tensor) -> Result<Option<Tensor>> {
    let dtype = x.dtype();
    if !dtype.is_float() {
        return Ok(None);
    }
    let truth = |c: Tensor| c.cast(DType::Bool);
    let made = match op {
        UnaryOp::Neg => neg(x),
        UnaryOp::Abs => absolute(x),
        UnaryOp::Sign => sub(&less(&zero(x)?, x, dtype)?, &less(x, &zero(x)?, dtype)?),
        UnaryOp::Exp => exp(x),
        UnaryOp::Expm1 => &exp(x)? + -1.0,
        UnaryOp::Log => log(x),
        UnaryOp::Log10 => x.log2()? * LOG10_2,
        UnaryOp::Log1p => log(&(x + 1.0)?),
        UnaryOp::Rsqrt => x.sqrt()?.reciprocal(),
        UnaryOp::Square => x * x,
        UnaryOp::Floor => floor(x),
        UnaryOp::Ceil => neg(&floor(&neg(x)?)?),
        UnaryOp::Trunc => truncated(x),
        UnaryOp::Round => {
            // Half-way cases go to the even neighbour.
            let up = floor(&(x + 0.5)?)?;
            let half = equal(&up, &(x + 0.5)?, dtype)?;
            sub(&up, &(&half * &odd(&up)?)?)
        }
        UnaryOp::Cos => cos(x),
        UnaryOp::Tan => div(&x.sin()?, &cos(x)?),
        UnaryOp::Sinh => sub(&exp(x)?, &exp(&neg(x)?)?)? * 0.5,
        UnaryOp::Cosh => (&exp(x)? + &exp(&neg(x)?)?)? * 0.5,
        UnaryOp::Tanh => tanh(x),
        UnaryOp::Asinh => {
            let size = absolute(x)?;
            let made = log(&(&size + &(&(x * x)? + 1.0)?.sqrt()?)?)?;
            let negative = less(x, &zero(x)?, dtype)?;
            made * &(&(&negative * -2.0)? + 1.0)?
        }
        UnaryOp::Acosh => log(&(x + &(&(x * x)? + -1.0)?.sqrt()?)?),
        UnaryOp::Atanh => log(&div(&(x + 1.0)?, &not(x)?)?)? * 0.5,
        UnaryOp::Sigmoid => sigmoid(x),
        UnaryOp::Relu => x * &less(&zero(x)?, x, dtype)?,
        UnaryOp::Silu => x * &sigmoid(x)?,
        UnaryOp::LogicalNot => truth(equal(x, &zero(x)?, dtype)?),
        UnaryOp::IsNan => truth(not(&number(x, dtype)?)?),
        UnaryOp::IsInf | UnaryOp::IsFinite => {
            let most = if dtype == DType::F64 { f64::MAX } else { f64::from(f32::MAX) };
            let above = less(&fill(x, most)?, x, dtype)?;
            let below = less(x, &fill(x, -most)?, dtype)?;
            let infinite = (&above + &below)?;
            match op {
                UnaryOp::IsInf => truth(infinite),
                _ => truth((&not(&infinite)? * &number(x, dtype)?)?),
            }
        }
        // Of the smallest set itself, or without a rule, which `reason` says.
        _ => return Ok(None),
    };
    made.map(Some)
}

fn binary(op: &BinaryOp, a: &Tensor, b: &Tensor) -> Result<Option<Tensor>> {
    let dtype = a.dtype();
    let made = match op {
        BinaryOp::Sub => sub(a, b),
        BinaryOp::Div => div(a, b),
        BinaryOp::FloorDivide => div(&sub(a, &a.remainder(b)?)?, b).and_then(|q| floor(&(&q + 0.5)?)),
        BinaryOp::Fmod => {
            // The remainder of the sizes, with the sign of the first.
            let negative = less(a, &zero(a)?, dtype)?;
            let sign = (&(&negative * -2.0)? + 1.0)?;
            &absolute(a)?.remainder(&absolute(b)?)? * &sign
        }
        BinaryOp::Pow => power(a, b),
        BinaryOp::Maximum => maximum(a, b),
        BinaryOp::Minimum => choose(&less(a, b, dtype)?, a, b),
        BinaryOp::LogAddExp => {
            let most = maximum(a, b)?;
            &most + &log(&(&exp(&sub(a, &most)?)? + &exp(&sub(b, &most)?)?)?)?
        }
        BinaryOp::Hypot => (&(a * a)? + &(b * b)?)?.sqrt(),
        BinaryOp::ReluGradient => a * &less(&zero(b)?, b, dtype)?,
        // As above.
        _ => return Ok(None),
    };
    made.map(Some)
}

fn compare(op: &CompareOp, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    // 0 and 1 of bool are compared as numbers.
    let (a, b) = match a.dtype() {
        DType::Bool => (a.cast(DType::F32)?, b.cast(DType::F32)?),
        _ => (a.clone(), b.clone()),
    };
    let (a, b) = (&a, &b);
    let dtype = DType::F32;
    let truth = |t: &Tensor| not(&equal(t, &zero(t)?, dtype)?);
    let either = |a: Tensor, b: Tensor| not(&(&not(&a)? * &not(&b)?)?);
    let made = match op {
        CompareOp::Lt => less(a, b, dtype)?,
        CompareOp::Gt => less(b, a, dtype)?,
        CompareOp::Eq => equal(a, b, dtype)?,
        CompareOp::Ne => not(&equal(a, b, dtype)?)?,
        CompareOp::Le => either(less(a, b, dtype)?, equal(a, b, dtype)?)?,
        CompareOp::Ge => either(less(b, a, dtype)?, equal(a, b, dtype)?)?,
        CompareOp::And => (&truth(a)? * &truth(b)?)?,
        CompareOp::Or => either(truth(a)?, truth(b)?)?,
        CompareOp::Xor => {
            let (a, b) = (truth(a)?, truth(b)?);
            (&(&a * &not(&b)?)? + &(&not(&a)? * &b)?)?
        }
    };
    made.cast(DType::Bool)
}
