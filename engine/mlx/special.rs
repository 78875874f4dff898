//! Special functions that MLX has not, from its arithmetic, in float32.
//!
//! Depends on `convert`, `elementwise::cast_array` and mlx-ffi. Invariants: relative errors of a few float32 roundings away
//! from zeros of the functions; the number of operations does not depend on the elements.

use super::convert::constant;
use super::elementwise::cast_array;
use super::kernel_error::Made;
use crate::DType;
use mlx_ffi::{ops, Array, Dtype};
use std::f64::consts::{PI, TAU};

pub(super) fn number(n: f64) -> Made<Array> {
    constant(n, DType::F32)
}

pub(super) fn choose(c: &Array, a: &Array, b: &Array) -> Made<Array> {
    Ok(ops::where_(c, a, b)?)
}

/// A line of numbers, to broadcast along a last dimension.
pub(super) fn line(numbers: &[f64]) -> Made<Array> {
    let arrays = numbers.iter().map(|&n| number(n)).collect::<Made<Vec<_>>>()?;
    Ok(ops::stack_axis(&arrays.iter().collect::<Vec<_>>(), 0)?)
}

/// Horner's rule, highest coefficient first.
pub(super) fn poly(x: &Array, coefficients: &[f64]) -> Made<Array> {
    let mut y = number(coefficients[0])?;
    for &c in &coefficients[1..] {
        y = ops::add(&ops::multiply(&y, x)?, &number(c)?)?;
    }
    Ok(y)
}

/// A function computed in float32, whatever float it is asked for.
pub(super) fn in_float32(x: &Array, dtype: DType, f: impl FnOnce(&Array) -> Made<Array>) -> Made<Array> {
    cast_array(&f(&cast_array(x, dtype, DType::F32)?)?, DType::F32, dtype)
}

/// `x - round(x)`: where the sine of πx is taken of, so that it is 0 at every integer.
fn around(x: &Array) -> Made<Array> {
    Ok(ops::subtract(x, &ops::round(x, 0)?)?)
}

/// `log |Γ(x)|`: Stirling's series from 8 on, reached by the recurrence, and the reflection below ½.
pub(super) fn lgamma(x: &Array) -> Made<Array> {
    let half = number(0.5)?;
    let low = ops::less(x, &half)?;
    let y = choose(&low, &ops::subtract(&number(1.0)?, x)?, x)?;
    let (mut product, eight) = (number(1.0)?, number(8.0)?);
    let small = ops::less(&y, &eight)?;
    for k in 0..8 {
        product = ops::multiply(&product, &ops::add(&y, &number(f64::from(k))?)?)?;
    }
    let z = choose(&small, &ops::add(&y, &eight)?, &y)?;
    let inverse = ops::divide(&number(1.0)?, &z)?;
    let series = ops::multiply(
        &inverse,
        &poly(&ops::square(&inverse)?, &[-1.0 / 1680.0, 1.0 / 1260.0, -1.0 / 360.0, 1.0 / 12.0])?,
    )?;
    let log = ops::log(&z)?;
    // (z - ½) log z - z, with z taken out so that nothing is lost between large numbers.
    let stirling = ops::add(
        &ops::subtract(&ops::multiply(&ops::subtract(&z, &half)?, &log)?, &z)?,
        &ops::add(&series, &number(TAU.ln() / 2.0)?)?,
    )?;
    let right = ops::subtract(&stirling, &choose(&small, &ops::log(&product)?, &number(0.0)?)?)?;
    let sine = ops::abs(&ops::sin(&ops::multiply(&around(x)?, &number(PI)?)?)?)?;
    let left = ops::subtract(&ops::subtract(&number(PI.ln())?, &ops::log(&sine)?)?, &right)?;
    let value = choose(&low, &left, &right)?;
    let pole = ops::logical_and(&ops::less_equal(x, &number(0.0)?)?, &ops::equal(x, &ops::floor(x)?)?)?;
    choose(&ops::logical_or(&pole, &ops::isinf(x)?)?, &number(f64::INFINITY)?, &value)
}

/// The logarithmic derivative of the gamma function, with PyTorch's values at the poles.
pub(super) fn digamma(x: &Array) -> Made<Array> {
    let (zero, one) = (number(0.0)?, number(1.0)?);
    let low = ops::less(x, &zero)?;
    let mut y = choose(&low, &ops::subtract(&one, x)?, x)?;
    let mut sum = zero.clone();
    let small = ops::less(&y, &number(8.0)?)?;
    for k in 0..8 {
        sum = ops::add(&sum, &ops::divide(&one, &ops::add(&y, &number(f64::from(k))?)?)?)?;
    }
    sum = choose(&small, &sum, &zero)?;
    y = choose(&small, &ops::add(&y, &number(8.0)?)?, &y)?;
    let inverse = ops::divide(&one, &y)?;
    let z = ops::square(&inverse)?;
    let tail = ops::multiply(&z, &poly(&z, &[1.0 / 132.0, -1.0 / 240.0, 1.0 / 252.0, -1.0 / 120.0, 1.0 / 12.0])?)?;
    let half = ops::multiply(&inverse, &number(0.5)?)?;
    let right = ops::subtract(&ops::subtract(&ops::subtract(&ops::log(&y)?, &half)?, &tail)?, &sum)?;
    let angle = ops::multiply(&around(x)?, &number(PI)?)?;
    let left = ops::subtract(&right, &ops::divide(&number(PI)?, &ops::tan(&angle)?)?)?;
    let whole = ops::logical_and(&low, &ops::equal(x, &ops::trunc(x)?)?)?;
    let value = choose(&whole, &number(f64::NAN)?, &choose(&low, &left, &right)?)?;
    // 1 / x keeps the sign of zero.
    choose(&ops::equal(x, &zero)?, &ops::negative(&ops::divide(&one, x)?)?, &value)
}

/// `e^-|x| I_n(x)` for n = 0 or 1 (Abramowitz and Stegun, 9.8.1 to 9.8.4).
pub(super) fn bessel_scaled(n: u8, x: &Array) -> Made<Array> {
    const NEAR: [[f64; 7]; 2] = [
        [0.0045813, 0.0360768, 0.2659732, 1.2067492, 3.0899424, 3.5156229, 1.0],
        [0.00032411, 0.00301532, 0.02658733, 0.15084934, 0.51498869, 0.87890594, 0.5],
    ];
    const FAR: [[f64; 9]; 2] = [
        [0.00392377, -0.01647633, 0.02635537, -0.02057706, 0.00916281, -0.00157565, 0.00225319, 0.01328592, 0.39894228],
        [
            -0.00420059,
            0.01787654,
            -0.02895312,
            0.02282967,
            -0.01031555,
            0.00163801,
            -0.00362018,
            -0.03988024,
            0.39894228,
        ],
    ];
    let n = usize::from(n);
    let a = ops::abs(x)?;
    let bound = number(3.75)?;
    let near = ops::less(&a, &bound)?;
    let t = ops::divide(&ops::minimum(&a, &bound)?, &bound)?;
    let series = ops::multiply(&poly(&ops::square(&t)?, &NEAR[n])?, &ops::exp(&ops::negative(&a)?)?)?;
    let series = if n == 0 { series } else { ops::multiply(&series, &a)? };
    let t = ops::divide(&bound, &ops::maximum(&a, &bound)?)?;
    let tail = ops::multiply(&poly(&t, &FAR[n])?, &ops::rsqrt(&a)?)?;
    let y = choose(&near, &series, &tail)?;
    Ok(if n == 0 { y } else { ops::multiply(&y, &ops::sign(x)?)? })
}

/// The same without the scaling factor, put back in two halves so that it overflows only where the result does.
pub(super) fn bessel(n: u8, x: &Array) -> Made<Array> {
    let half = ops::exp(&ops::multiply(&ops::abs(x)?, &number(0.5)?)?)?;
    Ok(ops::multiply(&ops::multiply(&bessel_scaled(n, x)?, &half)?, &half)?)
}

/// `Σ (q + k)^-s`, for `q > 0`.
fn zeta_right(s: &Array, q: &Array) -> Made<Array> {
    const CORRECTIONS: [f64; 4] = [1.0 / 12.0, -1.0 / 720.0, 1.0 / 30_240.0, -1.0 / 1_209_600.0];
    let minus = ops::negative(s)?;
    let mut sum = ops::power(q, &minus)?;
    for k in 1..8 {
        sum = ops::add(&sum, &ops::power(&ops::add(q, &number(f64::from(k))?)?, &minus)?)?;
    }
    let a = ops::add(q, &number(8.0)?)?;
    let b = ops::power(&a, &minus)?;
    let one = number(1.0)?;
    let tail = ops::add(&ops::divide(&a, &ops::subtract(s, &one)?)?, &number(0.5)?)?;
    let mut rest = tail;
    let mut factor = ops::divide(s, &a)?;
    for (k, &c) in CORRECTIONS.iter().enumerate() {
        rest = ops::add(&rest, &ops::multiply(&factor, &number(c)?)?)?;
        let k = 2.0 * k as f64;
        let up = ops::multiply(&ops::add(s, &number(k + 1.0)?)?, &ops::add(s, &number(k + 2.0)?)?)?;
        factor = ops::divide(&ops::multiply(&factor, &up)?, &ops::square(&a)?)?;
    }
    // Where the first term that was left out is 0, its factors may be infinite.
    let rest = ops::multiply(&b, &rest)?;
    let rest = choose(&ops::equal(&b, &number(0.0)?)?, &number(0.0)?, &rest)?;
    Ok(ops::add(&sum, &rest)?)
}

/// The Hurwitz zeta function `ζ(s, q)`.
pub(super) fn zeta(s: &Array, q: &Array) -> Made<Array> {
    let (zero, one) = (number(0.0)?, number(1.0)?);
    let low = ops::less_equal(q, &zero)?;
    let floor = ops::floor(q)?;
    let f = choose(&low, &ops::subtract(q, &floor)?, q)?;
    let right = zeta_right(s, &f)?;
    let rest = ops::subtract(&one, &ops::subtract(q, &floor)?)?;
    let left = ops::subtract(&zeta_right(s, &rest)?, &zeta_right(s, &ops::subtract(&one, q)?)?)?;
    let even = ops::equal(&ops::remainder(s, &number(2.0)?)?, &zero)?;
    let both = ops::add(&right, &choose(&even, &left, &ops::negative(&left)?)?)?;
    let value = choose(&low, &both, &right)?;
    let pole = ops::logical_and(&low, &ops::equal(q, &floor)?)?;
    let broken = ops::logical_and(&low, &ops::not_equal(s, &ops::floor(s)?)?)?;
    let last = ops::isinf(s)?;
    // Beside q = 1, of whose terms the first is 1 and the others are 0, PyTorch comes to ∞ · 0.
    let broken = ops::logical_or(&broken, &ops::logical_and(&last, &ops::greater(q, &one)?)?)?;
    let broken = ops::logical_or(&broken, &ops::logical_or(&ops::isposinf(q)?, &ops::isnan(s)?)?)?;
    let value = choose(&broken, &number(f64::NAN)?, &value)?;
    let value = choose(&ops::logical_and(&last, &ops::equal(q, &one)?)?, &one, &value)?;
    let (first, unknown) = (ops::equal(s, &one)?, ops::isnan(q)?);
    let above = ops::logical_or(&pole, &ops::logical_and(&last, &low)?)?;
    let value = choose(&above, &number(f64::INFINITY)?, &value)?;
    let value = choose(&ops::logical_or(&ops::less(s, &one)?, &unknown)?, &number(f64::NAN)?, &value)?;
    choose(&first, &number(f64::INFINITY)?, &value)
}

/// MLX's integer dtype of the same size as a float's.
fn bits_of(dtype: DType) -> Dtype {
    if dtype.size() == 2 {
        Dtype::Int16
    } else {
        Dtype::Int32
    }
}

/// The sign bit of floats.
pub(super) fn sign_bit(x: &Array, dtype: DType) -> Made<Array> {
    let (bits, kind) = if dtype.size() == 2 { (Dtype::Int16, DType::I16) } else { (Dtype::Int32, DType::I32) };
    let whole = view_as(x, bits)?;
    Ok(ops::less(&whole, &constant(0, kind)?)?)
}

/// The elements' bits as another type of the same size.
fn view_as(x: &Array, dtype: Dtype) -> Made<Array> {
    Ok(ops::view(x, dtype)?)
}

/// Exponent and mantissa of float32 numbers: `x = m 2^e`. A subnormal is made normal first.
pub(super) fn frexp(x: &Array) -> Made<(Array, Array)> {
    let whole = |n: i64| constant(n, DType::I32);
    let size = ops::abs(x)?;
    let tiny = ops::less(&size, &number(f64::from(f32::MIN_POSITIVE))?)?;
    let normal = choose(&tiny, &ops::multiply(x, &number(16_777_216.0)?)?, x)?;
    let bits = view_as(&normal, Dtype::Int32)?;
    let field = ops::bitwise_and(&ops::right_shift(&bits, &whole(23)?)?, &whole(255)?)?;
    let e = ops::subtract(&field, &ops::where_(&tiny, &whole(126 + 24)?, &whole(126)?)?)?;
    let kept = ops::bitwise_and(&bits, &whole(!(255 << 23))?)?;
    let m = view_as(&ops::bitwise_or(&kept, &whole(126 << 23)?)?, Dtype::Float32)?;
    let itself = ops::logical_not(&ops::logical_and(&ops::isfinite(x)?, &ops::not_equal(x, &number(0.0)?)?)?)?;
    let e = ops::where_(&itself, &number(0.0)?, &ops::astype(&e, Dtype::Float32)?)?;
    Ok((e, choose(&itself, x, &m)?))
}

/// The number next to `a` on the way to `b`, by counting bits.
pub(super) fn next_after(a: &Array, b: &Array, dtype: DType) -> Made<Array> {
    let (bits, float) = (bits_of(dtype), super::convert::dtype(dtype)?);
    let kind = if dtype.size() == 2 { DType::I16 } else { DType::I32 };
    let zero = constant(0.0, dtype)?;
    // Away from zero the magnitude's bits count up, else down.
    let grows = ops::equal(&ops::greater(b, a)?, &ops::greater(a, &zero)?)?;
    let step = ops::where_(&grows, &constant(1, kind)?, &constant(-1, kind)?)?;
    let counted = view_as(&ops::add(&view_as(a, bits)?, &step)?, float)?;
    let least = view_as(&ops::broadcast_to(&constant(1, kind)?, counted.shape())?, float)?;
    let least = ops::where_(&ops::greater(b, &zero)?, &least, &ops::negative(&least)?)?;
    let moved = ops::where_(&ops::equal(a, &zero)?, &least, &counted)?;
    let moved = ops::where_(&ops::equal(a, b)?, b, &moved)?;
    let nan = ops::logical_or(&ops::isnan(a)?, &ops::isnan(b)?)?;
    Ok(ops::where_(&nan, &ops::add(a, b)?, &moved)?)
}

/// `√(a² + b²)` without overflow.
pub(super) fn hypot(a: &Array, b: &Array) -> Made<Array> {
    let (a, b) = (ops::abs(a)?, ops::abs(b)?);
    let (large, small) = (ops::maximum(&a, &b)?, ops::minimum(&a, &b)?);
    let zero = number(0.0)?;
    let safe = choose(&ops::equal(&large, &zero)?, &number(1.0)?, &large)?;
    let r = ops::divide(&small, &safe)?;
    let y = ops::multiply(&large, &ops::sqrt(&ops::add(&ops::square(&r)?, &number(1.0)?)?)?)?;
    choose(&ops::logical_or(&ops::isinf(&a)?, &ops::isinf(&b)?)?, &number(f64::INFINITY)?, &y)
}
