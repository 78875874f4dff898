//! Casts, and ops on one, two or three arrays element by element.
//!
//! They work on the physical arrays and hand the order of axes on. Depends on `align`, `array`, `convert` and mlx-ffi.
//! Invariant: results follow PyTorch where MLX differs (integer division and powers, `fmod`, `erfc`, booleans).

use super::airy;
use super::align::{agree, align};
use super::array::GpuArray;
use super::bessel;
use super::convert::{self, constant};
use super::element_kernels;
use super::float8;
use super::framed::Framed;
use super::gamma;
use super::host_kernel;
use super::kernel_error::Made;
use super::lower::{relu, relu_of};
use super::max_pool::Returned;
use super::row_kernels;
use super::special::{self, in_float32};
use super::value::{Ref, Value, ValueRange};
use crate::shape::Shape;
use crate::{DType, Error};
use lucid_cpu::{CpuArray, CpuBackend};
use lucid_ir::backend::Backend;
use lucid_ir::fused::ElementOp;
use lucid_ir::ops::binary::BinaryOp;
use lucid_ir::ops::compare::CompareOp;
use lucid_ir::ops::select::SelectOp;
use lucid_ir::ops::unary::UnaryOp;
use lucid_ir::Meta;
use mlx_ffi::{ops, Array};
use smallvec::smallvec;

/// The elements in another dtype.
pub(super) fn cast(x: &GpuArray, to: DType) -> Made<GpuArray> {
    let v = x.value()?;
    let array = cast_array(v.array()?, x.element(), to)?;
    let keeps = match v.known {
        ValueRange::Within(low, high) => {
            convert::integer_range(to).is_some_and(|(a, b)| to != DType::Bool && a <= low && high <= b)
        }
        // Rounding to the new dtype is not worth following.
        ValueRange::Constant(_) => to.is_float() && to.size() >= x.element().size(),
        ValueRange::Nothing => false,
    };
    let known = if keeps { v.known } else { ValueRange::Nothing };
    let value = Value::new(array, v.perm.clone()).knowing(known);
    drop(v);
    GpuArray::new(value, x.shape(), to)
}

/// An array in another dtype.
pub(super) fn cast_array(x: &Array, from: DType, to: DType) -> Made<Array> {
    if from == to {
        return Ok(x.clone());
    }
    if from.is_float8() {
        return cast_array(&float8::decode(x, from)?, DType::F32, to);
    }
    if to == DType::Bool {
        return Ok(ops::not_equal(x, &constant(0, from)?)?);
    }
    convert::astype(x, to)
}

pub(super) fn unary(op: &UnaryOp, x: &GpuArray, out: &Meta) -> Made<GpuArray> {
    let v = x.value()?;
    let made = match op {
        UnaryOp::Relu => relu_of(&v, x.element())?,
        op if x.element() == out.dtype && is_slow(op) && host_kernel::takes(out.dtype) => {
            Value::new(by_host(op, v.array()?, out.dtype)?, v.perm.clone())
        }
        _ => Value::new(unary_array(op, v.array()?, x.element())?, v.perm.clone()),
    };
    drop(v);
    GpuArray::new(made, &out.shape, out.dtype)
}

/// Does MLX's CPU stream call a function per element, several times slower than the CPU device's kernel? (Its `erf` makes -0 of
/// 0, too.)
fn is_slow(op: &UnaryOp) -> bool {
    use UnaryOp as U;
    matches!(
        op,
        U::Floor
            | U::Ceil
            | U::Trunc
            | U::Round
            | U::Expm1
            | U::Log1p
            | U::Exp2
            | U::Log2
            | U::Log10
            | U::Tan
            | U::Asin
            | U::Acos
            | U::Atan
            | U::Sinh
            | U::Cosh
            | U::Tanh
            | U::Asinh
            | U::Acosh
            | U::Atanh
            | U::Erf
            | U::Erfc
            | U::Erfinv
            | U::Sigmoid
            | U::Silu
            | U::Lgamma
            | U::Digamma
    )
}

/// The CPU device's kernel of a function.
fn by_host(op: &UnaryOp, x: &Array, dtype: DType) -> Made<Array> {
    let shape: Shape = x.shape().iter().map(|&n| n as usize).collect();
    let (meta, name, op) = (Meta::new(&shape, dtype), op.name(), op.clone());
    let to = (x.shape(), convert::dtype(dtype)?);
    let kernel = move |x: &[&CpuArray]| Ok(vec![CpuBackend::unary(&op, x[0], &meta)?]);
    let made = host_kernel::nodes(c"LucidUnary", &[x], smallvec![dtype], &[to], kernel)?;
    made.into_iter().next().ok_or_else(|| Error::backend(name, "a node without an output").into())
}

fn unary_array(op: &UnaryOp, x: &Array, dtype: DType) -> Made<Array> {
    let real = !dtype.is_complex();
    let number = |n: f64| constant(n, dtype);
    Ok(match op {
        UnaryOp::Neg => ops::negative(x)?,
        UnaryOp::Abs if dtype == DType::U8 => x.clone(),
        UnaryOp::Abs => ops::abs(x)?,
        UnaryOp::Sign if dtype == DType::Bool => x.clone(),
        UnaryOp::Sign => ops::sign(x)?,
        UnaryOp::Conj if real => x.clone(),
        UnaryOp::Conj => ops::conjugate(x)?,
        UnaryOp::Exp => ops::exp(x)?,
        UnaryOp::Exp2 => ops::power(&number(2.0)?, x)?,
        UnaryOp::Expm1 if !real => complex_expm1(x)?,
        UnaryOp::Expm1 => ops::expm1(x)?,
        UnaryOp::Log => ops::log(x)?,
        UnaryOp::Log2 => ops::log2(x)?,
        UnaryOp::Log10 => ops::log10(x)?,
        UnaryOp::Log1p => ops::log1p(x)?,
        UnaryOp::Sqrt => ops::sqrt(x)?,
        UnaryOp::Rsqrt => ops::rsqrt(x)?,
        UnaryOp::Square => ops::square(x)?,
        UnaryOp::Reciprocal => ops::divide(&number(1.0)?, x)?,
        UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Trunc | UnaryOp::Round if dtype.is_integral() => x.clone(),
        UnaryOp::Floor => ops::floor(x)?,
        UnaryOp::Ceil => ops::ceil(x)?,
        UnaryOp::Trunc => ops::trunc(x)?,
        UnaryOp::Round => ops::round(x, 0)?,
        UnaryOp::Sin => ops::sin(x)?,
        UnaryOp::Cos => ops::cos(x)?,
        UnaryOp::Tan => ops::tan(x)?,
        UnaryOp::Asin => ops::arcsin(x)?,
        UnaryOp::Acos => ops::arccos(x)?,
        UnaryOp::Atan => ops::arctan(x)?,
        UnaryOp::Sinh => ops::sinh(x)?,
        UnaryOp::Cosh => ops::cosh(x)?,
        UnaryOp::Tanh => ops::tanh(x)?,
        UnaryOp::Asinh | UnaryOp::Acosh | UnaryOp::Atanh if !real => complex_hyperbolic(op, x)?,
        UnaryOp::Asinh => ops::arcsinh(x)?,
        UnaryOp::Acosh => ops::arccosh(x)?,
        UnaryOp::Atanh => ops::arctanh(x)?,
        UnaryOp::Erf => ops::erf(x)?,
        UnaryOp::Erfc => in_float32(x, dtype, |x| erfc(x, false))?,
        UnaryOp::Erfinv => ops::erfinv(x)?,
        UnaryOp::Sigmoid if !real => {
            let one = number(1.0)?;
            ops::divide(&one, &ops::add(&one, &ops::exp(&ops::negative(x)?)?)?)?
        }
        UnaryOp::Sigmoid => ops::sigmoid(x)?,
        UnaryOp::Relu => relu(x, dtype)?,
        UnaryOp::Silu if !real => ops::divide(x, &ops::add(&number(1.0)?, &ops::exp(&ops::negative(x)?)?)?)?,
        UnaryOp::Silu => match element_kernels::run(&ElementOp::Unary(UnaryOp::Silu), &[x])? {
            Some(made) => made,
            None => ops::multiply(x, &ops::sigmoid(x)?)?,
        },
        UnaryOp::Lgamma => in_float32(x, dtype, special::lgamma)?,
        UnaryOp::Digamma => in_float32(x, dtype, special::digamma)?,
        UnaryOp::I0 => in_float32(x, dtype, |x| special::bessel(0, x))?,
        UnaryOp::I0e => in_float32(x, dtype, |x| special::bessel_scaled(0, x))?,
        UnaryOp::I1 => in_float32(x, dtype, |x| special::bessel(1, x))?,
        UnaryOp::I1e => in_float32(x, dtype, |x| special::bessel_scaled(1, x))?,
        UnaryOp::Erfcx => in_float32(x, dtype, |x| erfc(x, true))?,
        UnaryOp::Entr => in_float32(x, dtype, bessel::entropy)?,
        UnaryOp::Ndtri => in_float32(x, dtype, bessel::normal_quantile)?,
        UnaryOp::J0 => in_float32(x, dtype, |x| bessel::first(0, x))?,
        UnaryOp::J1 => in_float32(x, dtype, |x| bessel::first(1, x))?,
        UnaryOp::Y0 => in_float32(x, dtype, |x| bessel::second(0, x))?,
        UnaryOp::Y1 => in_float32(x, dtype, |x| bessel::second(1, x))?,
        UnaryOp::K0 => in_float32(x, dtype, |x| bessel::modified(0, x, false))?,
        UnaryOp::K1 => in_float32(x, dtype, |x| bessel::modified(1, x, false))?,
        UnaryOp::K0e => in_float32(x, dtype, |x| bessel::modified(0, x, true))?,
        UnaryOp::K1e => in_float32(x, dtype, |x| bessel::modified(1, x, true))?,
        UnaryOp::AiryAi => in_float32(x, dtype, airy::ai)?,
        UnaryOp::Exponent => in_float32(x, dtype, |x| Ok(special::frexp(x)?.0))?,
        UnaryOp::Mantissa => in_float32(x, dtype, |x| Ok(special::frexp(x)?.1))?,
        UnaryOp::SignBit if dtype.is_float() => special::sign_bit(x, dtype)?,
        UnaryOp::SignBit => ops::less(x, &constant(0, dtype)?)?,
        UnaryOp::LogicalNot | UnaryOp::BitwiseNot if dtype == DType::Bool => ops::logical_not(x)?,
        UnaryOp::LogicalNot => ops::equal(x, &constant(0, dtype)?)?,
        UnaryOp::BitwiseNot => ops::bitwise_invert(x)?,
        UnaryOp::IsNan => ops::isnan(x)?,
        UnaryOp::IsInf if real => ops::isinf(x)?,
        UnaryOp::IsInf => ops::logical_or(&ops::isinf(&ops::real(x)?)?, &ops::isinf(&ops::imag(x)?)?)?,
        UnaryOp::IsFinite if real => ops::isfinite(x)?,
        UnaryOp::IsFinite => ops::logical_and(&ops::isfinite(&ops::real(x)?)?, &ops::isfinite(&ops::imag(x)?)?)?,
    })
}

/// `e^z - 1` from its parts: `e^x cos y - 1 = (e^x - 1) cos y - 2 sin²(y/2)`.
fn complex_expm1(z: &Array) -> Made<Array> {
    let (x, y) = (ops::real(z)?, ops::imag(z)?);
    let half = ops::square(&ops::sin(&ops::multiply(&y, &constant(0.5, DType::F32)?)?)?)?;
    let re = ops::multiply(&ops::expm1(&x)?, &ops::cos(&y)?)?;
    let re = ops::subtract(&re, &ops::multiply(&half, &constant(2.0, DType::F32)?)?)?;
    let im = ops::multiply(&ops::exp(&x)?, &ops::sin(&y)?)?;
    of_parts(&re, &im)
}

fn of_parts(re: &Array, im: &Array) -> Made<Array> {
    let ndim = re.ndim() as i32;
    let parts = ops::concatenate_axis(&[&ops::expand_dims(re, ndim)?, &ops::expand_dims(im, ndim)?], ndim)?;
    Ok(ops::reshape(&ops::view(&parts, mlx_ffi::Dtype::Complex64)?, re.shape())?)
}

/// The inverse hyperbolic functions of complex numbers, which MLX lacks on CUDA, by a quarter turn in the plane:
/// `asinh z = i asin(-iz)`, `atanh z = i atan(-iz)`, and `acosh z` is `acos z` turned to where the real part is positive.
fn complex_hyperbolic(op: &UnaryOp, z: &Array) -> Made<Array> {
    let (x, y) = (ops::real(z)?, ops::imag(z)?);
    if *op == UnaryOp::Acosh {
        let w = ops::arccos(z)?;
        let (a, b) = (ops::real(&w)?, ops::imag(&w)?);
        let below = special::sign_bit(&y, DType::F32)?;
        let re = ops::where_(&below, &b, &ops::negative(&b)?)?;
        let im = ops::where_(&below, &ops::negative(&a)?, &a)?;
        return of_parts(&re, &im);
    }
    let turned = of_parts(&y, &ops::negative(&x)?)?;
    let w = if *op == UnaryOp::Asinh { ops::arcsin(&turned)? } else { ops::arctan(&turned)? };
    of_parts(&ops::negative(&ops::imag(&w)?)?, &ops::real(&w)?)
}

/// `1 - erf(x)` without cancellation: a Chebyshev fit of relative error 1.2e-7 everywhere (Press et al., Numerical
/// Recipes, 6.2), since MLX has no `erfc`. `scaled` by `e^(x²)`, where the fit is without its exponential.
pub(super) fn erfc(x: &Array, scaled: bool) -> Made<Array> {
    const FIT: [f64; 10] = [
        -1.26551223,
        1.00002368,
        0.37409196,
        0.09678418,
        -0.18628806,
        0.27886807,
        -1.13520398,
        1.48851587,
        -0.82215223,
        0.17087277,
    ];
    let wide = DType::F32;
    let number = |n: f64| constant(n, wide);
    let a = ops::abs(x)?;
    let one = number(1.0)?;
    let t = ops::divide(&one, &ops::add(&one, &ops::multiply(&a, &number(0.5)?)?)?)?;
    let mut sum = number(FIT[9])?;
    for &c in FIT[..9].iter().rev() {
        sum = ops::add(&ops::multiply(&sum, &t)?, &number(c)?)?;
    }
    let negative = ops::less(x, &number(0.0)?)?;
    if scaled {
        let tail = ops::multiply(&t, &ops::exp(&sum)?)?;
        let twice = ops::multiply(&ops::exp(&ops::square(&a)?)?, &number(2.0)?)?;
        return Ok(ops::where_(&negative, &ops::subtract(&twice, &tail)?, &tail)?);
    }
    let tail = ops::multiply(&t, &ops::exp(&ops::subtract(&sum, &ops::square(&a)?)?)?)?;
    let y = ops::where_(&negative, &ops::subtract(&number(2.0)?, &tail)?, &tail)?;
    // inf - inf inside of the exponent
    Ok(ops::where_(&ops::isposinf(&a)?, &ops::where_(&negative, &number(2.0)?, &number(0.0)?)?, &y)?)
}

/// A number as an array of the other operand's shape: MLX would make one for each op, and these are kept.
#[inline]
fn spread<'a>(v: &'a Value, like: &Array) -> Made<Ref<'a>> {
    let array = v.array()?;
    if v.known == ValueRange::Nothing || array.ndim() > 0 || like.ndim() == 0 {
        return Ok(Ref::Held(array));
    }
    Ok(Ref::Fresh(convert::spread(array, like)?))
}

pub(super) fn binary(op: &BinaryOp, a: &GpuArray, b: &GpuArray, out: &Meta) -> Made<GpuArray> {
    let (x, y) = (a.value()?, b.value()?);
    let fused = match op {
        BinaryOp::ReluGradient => Returned::clipped(&x, &y)?,
        BinaryOp::Add if a.shape() == b.shape() => Framed::sum(&x, &y)?,
        _ => None,
    };
    let made = if let Some(made) = fused {
        made
    } else if agree(&x, &y)? {
        let perm = x.perm.as_ref().or(y.perm.as_ref()).cloned();
        let (p, q) = (spread(&x, y.array()?)?, spread(&y, x.array()?)?);
        Value::new(binary_array(op, &p, &q, y.known, out.dtype)?, perm)
    } else {
        let (arrays, perm) = align(&[&x, &y], out.shape.len())?;
        Value::new(binary_array(op, &arrays[0], &arrays[1], y.known, out.dtype)?, perm)
    };
    drop((x, y));
    GpuArray::new(made, &out.shape, out.dtype)
}

#[inline]
fn binary_array(op: &BinaryOp, a: &Array, b: &Array, known: ValueRange, dtype: DType) -> Made<Array> {
    let logical = dtype == DType::Bool;
    Ok(match op {
        BinaryOp::Add if logical => ops::logical_or(a, b)?,
        BinaryOp::Add => ops::add(a, b)?,
        BinaryOp::Sub => ops::subtract(a, b)?,
        BinaryOp::Mul if logical => ops::logical_and(a, b)?,
        BinaryOp::Mul => ops::multiply(a, b)?,
        BinaryOp::Div => ops::divide(a, b)?,
        BinaryOp::FloorDivide if dtype.is_integral() => super::integer::floor_divide(a, b, known, dtype)?,
        BinaryOp::FloorDivide => floor_divide(a, b, dtype)?,
        BinaryOp::Remainder if dtype.is_integral() => super::integer::remainder(a, b, known, dtype)?,
        BinaryOp::Remainder => ops::remainder(a, b)?,
        BinaryOp::Fmod if dtype.is_integral() => super::integer::fmod(a, b, known, dtype)?,
        BinaryOp::Fmod => fmod(a, b)?,
        BinaryOp::Pow if dtype.is_integral() => super::integer::power(a, b, known, dtype)?,
        BinaryOp::Pow => power(a, b, known, dtype)?,
        BinaryOp::Maximum if logical => ops::logical_or(a, b)?,
        BinaryOp::Maximum => ops::maximum(a, b)?,
        BinaryOp::Minimum if logical => ops::logical_and(a, b)?,
        BinaryOp::Minimum => ops::minimum(a, b)?,
        BinaryOp::Atan2 => ops::arctan2(a, b)?,
        BinaryOp::LogAddExp => ops::logaddexp(a, b)?,
        BinaryOp::Hypot => both_in_float32(a, b, dtype, special::hypot)?,
        BinaryOp::NextAfter => special::next_after(a, b, dtype)?,
        BinaryOp::CopySign => {
            let size = ops::abs(a)?;
            ops::where_(&special::sign_bit(b, dtype)?, &ops::negative(&size)?, &size)?
        }
        BinaryOp::Gcd => super::integer::gcd(a, b, dtype)?,
        BinaryOp::Lcm => super::integer::lcm(a, b, dtype)?,
        BinaryOp::Zeta => both_in_float32(a, b, dtype, special::zeta)?,
        BinaryOp::Igamma => both_in_float32(a, b, dtype, |a, x| gamma::igamma(a, x, false))?,
        BinaryOp::Igammac => both_in_float32(a, b, dtype, |a, x| gamma::igamma(a, x, true))?,
        BinaryOp::ReluGradient => match row_kernels::relu_back(a, b)? {
            Some(made) => made,
            None => ops::where_(&ops::less_equal(b, &constant(0, dtype)?)?, &constant(0, dtype)?, a)?,
        },
        BinaryOp::BitwiseAnd => ops::bitwise_and(a, b)?,
        BinaryOp::BitwiseOr => ops::bitwise_or(a, b)?,
        // MLX's own gives its first operand where it writes the result over it.
        BinaryOp::BitwiseXor if logical => ops::not_equal(a, b)?,
        BinaryOp::BitwiseXor => ops::bitwise_xor(a, b)?,
        BinaryOp::LeftShift => super::integer::left_shift(a, b, known, dtype)?,
        BinaryOp::RightShift => super::integer::right_shift(a, b, known, dtype)?,
    })
}

/// A function of two numbers computed in float32, whatever float it is asked for.
fn both_in_float32(a: &Array, b: &Array, dtype: DType, f: fn(&Array, &Array) -> Made<Array>) -> Made<Array> {
    in_float32(a, dtype, |a| f(a, &cast_array(b, dtype, DType::F32)?))
}

/// C's `fmod`. MLX's remainder is exact for positive operands; the dividend's sign is put back.
fn fmod(a: &Array, b: &Array) -> Made<Array> {
    Ok(ops::multiply(&ops::sign(a)?, &ops::remainder(&ops::abs(a)?, &ops::abs(b)?)?)?)
}

/// PyTorch's floor division of floats: `(a - mod) / b` is a whole number but for rounding, where `floor(a / b)` may
/// have been rounded up to the next one.
fn floor_divide(a: &Array, b: &Array, dtype: DType) -> Made<Array> {
    let zero = constant(0.0, dtype)?;
    let m = fmod(a, b)?;
    let q = ops::divide(&ops::subtract(a, &m)?, b)?;
    let apart = ops::not_equal(&ops::less(&m, &zero)?, &ops::less(b, &zero)?)?;
    let below = ops::logical_and(&ops::not_equal(&m, &zero)?, &apart)?;
    let q = ops::round(&ops::where_(&below, &ops::subtract(&q, &constant(1.0, dtype)?)?, &q)?, 0)?;
    Ok(ops::where_(&ops::equal(b, &zero)?, &ops::divide(a, b)?, &q)?)
}

/// Powers of floats; the exponents that PyTorch singles out are singled out here too.
fn power(a: &Array, b: &Array, exponent: ValueRange, dtype: DType) -> Made<Array> {
    // A 0-d exponent leaves the shape to the base.
    let ValueRange::Constant(e) = exponent else { return Ok(ops::power(a, b)?) };
    if b.size() > 1 && b.shape() != a.shape() {
        return Ok(ops::power(a, b)?);
    }
    let one = || constant(1.0, dtype);
    Ok(match e {
        1.0 => a.clone(),
        2.0 => ops::square(a)?,
        3.0 => ops::multiply(&ops::square(a)?, a)?,
        -1.0 => ops::divide(&one()?, a)?,
        -2.0 => ops::divide(&one()?, &ops::square(a)?)?,
        _ => ops::power(a, b)?,
    })
}

pub(super) fn compare(op: &CompareOp, a: &GpuArray, b: &GpuArray, out: &Meta) -> Made<GpuArray> {
    let (x, y) = (a.value()?, b.value()?);
    let dtype = a.element();
    let made = if agree(&x, &y)? {
        let perm = x.perm.as_ref().or(y.perm.as_ref()).cloned();
        let (p, q) = (spread(&x, y.array()?)?, spread(&y, x.array()?)?);
        Value::new(compare_array(op, &p, &q, dtype)?, perm)
    } else {
        let (arrays, perm) = align(&[&x, &y], out.shape.len())?;
        Value::new(compare_array(op, &arrays[0], &arrays[1], dtype)?, perm)
    };
    drop((x, y));
    GpuArray::new(made, &out.shape, DType::Bool)
}

fn compare_array(op: &CompareOp, a: &Array, b: &Array, dtype: DType) -> Made<Array> {
    // MLX casts to bool by itself; of complex numbers that would take the real part.
    let truth = |x: &Array| if dtype.is_complex() { cast_array(x, dtype, DType::Bool) } else { Ok(x.clone()) };
    Ok(match op {
        CompareOp::Eq => ops::equal(a, b)?,
        CompareOp::Ne => ops::not_equal(a, b)?,
        CompareOp::Lt => ops::less(a, b)?,
        CompareOp::Le => ops::less_equal(a, b)?,
        CompareOp::Gt => ops::greater(a, b)?,
        CompareOp::Ge => ops::greater_equal(a, b)?,
        CompareOp::And => ops::logical_and(&truth(a)?, &truth(b)?)?,
        CompareOp::Or => ops::logical_or(&truth(a)?, &truth(b)?)?,
        CompareOp::Xor => ops::not_equal(&cast_array(a, dtype, DType::Bool)?, &cast_array(b, dtype, DType::Bool)?)?,
    })
}

pub(super) fn select(op: &SelectOp, c: &GpuArray, a: &GpuArray, b: &GpuArray, out: &Meta) -> Made<GpuArray> {
    match op {
        SelectOp::Where => {
            let (c, x, y) = (c.value()?, a.value()?, b.value()?);
            let known = union(x.known, y.known);
            let made = if c.perm.is_none() && x.perm.is_none() && y.perm.is_none() {
                Value::plain(ops::where_(c.array()?, &*spread(&x, c.array()?)?, &*spread(&y, c.array()?)?)?)
            } else {
                let (arrays, perm) = align(&[&c, &x, &y], out.shape.len())?;
                Value::new(ops::where_(&arrays[0], &arrays[1], &arrays[2])?, perm)
            };
            drop((c, x, y));
            GpuArray::new(made.knowing(known), &out.shape, out.dtype)
        }
    }
}

/// What is known of elements taken from either.
pub(super) fn union(a: ValueRange, b: ValueRange) -> ValueRange {
    match (a, b) {
        (ValueRange::Within(a, b), ValueRange::Within(c, d)) => ValueRange::Within(a.min(c), b.max(d)),
        (ValueRange::Nothing | ValueRange::Constant(_) | ValueRange::Within(..), _) => ValueRange::Nothing,
    }
}
