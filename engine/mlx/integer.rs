//! Integer arithmetic where MLX and PyTorch part: division, remainders, powers, shifts.
//!
//! Depends on `convert` and mlx-ffi. Division by zero is an error, as on the CPU; to find it, a divisor that is not known
//! is evaluated. Invariant: no kernel divides by zero, or the smallest integer by -1 (both end the process on a CPU), or
//! shifts by more than the width.

use super::convert::{constant, integer_range};
use super::kernel_error::Made;
use super::value::ValueRange;
use crate::{DType, Error};
use mlx_ffi::{ops, transforms, Array, Dtype};

/// What a divisor is: free of zeros it is for certain.
struct Divisor {
    may_be_minus_one: bool,
}

fn check_divisor(op: &'static str, a: &Array, b: &Array, known: ValueRange, dtype: DType) -> Made<Divisor> {
    let fail = || Error::runtime(op, "ZeroDivisionError: integer division or modulo by zero");
    // Of nothing no quotient is taken.
    if a.size() == 0 || b.size() == 0 {
        return Ok(Divisor { may_be_minus_one: false });
    }
    match known {
        ValueRange::Within(0, 0) => return Err(fail().into()),
        ValueRange::Within(low, high) if low > 0 || high < -1 => return Ok(Divisor { may_be_minus_one: false }),
        ValueRange::Within(..) | ValueRange::Constant(_) | ValueRange::Nothing => {}
    }
    let zero = ops::any(&ops::equal(b, &constant(0, dtype)?)?, false)?;
    let signed = dtype != DType::U8;
    let minus = if signed { ops::any(&ops::equal(b, &constant(-1, dtype)?)?, false)? } else { zero.clone() };
    transforms::eval(&[&zero, &minus])?;
    if zero.item::<bool>()? {
        return Err(fail().into());
    }
    Ok(Divisor { may_be_minus_one: signed && minus.item::<bool>()? })
}

/// The quotient rounded to zero of a divisor without zeros.
fn quotient(a: &Array, b: &Array, divisor: &Divisor, dtype: DType) -> Made<Array> {
    if !divisor.may_be_minus_one {
        return Ok(ops::floor_divide(a, b)?);
    }
    let minus = ops::equal(b, &constant(-1, dtype)?)?;
    let safe = ops::where_(&minus, &constant(1, dtype)?, b)?;
    Ok(ops::where_(&minus, &ops::negative(a)?, &ops::floor_divide(a, &safe)?)?)
}

/// The remainder with the divisor's sign.
fn modulo(a: &Array, b: &Array, divisor: &Divisor, dtype: DType) -> Made<Array> {
    if !divisor.may_be_minus_one {
        return Ok(ops::remainder(a, b)?);
    }
    let minus = ops::equal(b, &constant(-1, dtype)?)?;
    Ok(ops::remainder(a, &ops::where_(&minus, &constant(1, dtype)?, b)?)?)
}

pub(super) fn floor_divide(a: &Array, b: &Array, known: ValueRange, dtype: DType) -> Made<Array> {
    let divisor = check_divisor("floor_divide", a, b, known, dtype)?;
    let q = quotient(a, b, &divisor, dtype)?;
    if dtype == DType::U8 {
        return Ok(q);
    }
    // The quotient was rounded to zero; it is one too large where something is left and the signs differ.
    let zero = constant(0, dtype)?;
    let rest = ops::subtract(a, &ops::multiply(&q, b)?)?;
    let apart = ops::not_equal(&ops::less(&rest, &zero)?, &ops::less(b, &zero)?)?;
    let below = ops::logical_and(&ops::not_equal(&rest, &zero)?, &apart)?;
    Ok(ops::where_(&below, &ops::subtract(&q, &constant(1, dtype)?)?, &q)?)
}

pub(super) fn remainder(a: &Array, b: &Array, known: ValueRange, dtype: DType) -> Made<Array> {
    let divisor = check_divisor("remainder", a, b, known, dtype)?;
    modulo(a, b, &divisor, dtype)
}

pub(super) fn fmod(a: &Array, b: &Array, known: ValueRange, dtype: DType) -> Made<Array> {
    let divisor = check_divisor("fmod", a, b, known, dtype)?;
    if dtype == DType::U8 {
        return modulo(a, b, &divisor, dtype);
    }
    Ok(ops::subtract(a, &ops::multiply(&quotient(a, b, &divisor, dtype)?, b)?)?)
}

/// Integer powers. To negative ones, 1 and -1 have inverses; other bases give 0.
pub(super) fn power(a: &Array, b: &Array, known: ValueRange, dtype: DType) -> Made<Array> {
    if dtype == DType::U8 || matches!(known, ValueRange::Within(low, _) if low >= 0) {
        return Ok(ops::power(a, b)?);
    }
    let (zero, one) = (constant(0, dtype)?, constant(1, dtype)?);
    let plain = ops::power(a, &ops::maximum(b, &zero)?)?;
    let odd = ops::bitwise_and(b, &one)?;
    let sign = ops::subtract(&one, &ops::add(&odd, &odd)?)?;
    let of_minus = ops::where_(&ops::equal(a, &constant(-1, dtype)?)?, &sign, &zero)?;
    let inverse = ops::where_(&ops::equal(a, &one)?, &one, &of_minus)?;
    Ok(ops::where_(&ops::less(b, &zero)?, &inverse, &plain)?)
}

/// Euclid's algorithm, as many steps as the widest numbers may need: `log_φ 2` per bit. Of magnitudes, which are unsigned:
/// the lowest number has no other, and divided by -1 it ends the process. A divisor that has become 0 stays so.
pub(super) fn gcd(a: &Array, b: &Array, dtype: DType) -> Made<Array> {
    let unsigned = match dtype {
        DType::I8 => Dtype::Uint8,
        DType::I16 => Dtype::Uint16,
        DType::I32 => Dtype::Uint32,
        DType::I64 => Dtype::Uint64,
        _ => super::convert::dtype(dtype)?,
    };
    let size = |x: &Array| if dtype == DType::U8 { Ok(x.clone()) } else { ops::astype(&ops::abs(x)?, unsigned) };
    let of = |value: i64| -> Made<Array> { Ok(ops::astype(&constant(value, DType::U8)?, unsigned)?) };
    let (zero, one) = (of(0)?, of(1)?);
    let (mut a, mut b) = (size(a)?, size(b)?);
    for _ in 0..bits(dtype) * 3 / 2 {
        let done = ops::equal(&b, &zero)?;
        let rest = ops::remainder(&a, &ops::where_(&done, &one, &b)?)?;
        (a, b) = (ops::where_(&done, &a, &b)?, ops::where_(&done, &zero, &rest)?);
    }
    Ok(ops::astype(&a, super::convert::dtype(dtype)?)?)
}

/// `|a / gcd · b|`, 0 where both are. Of narrow types in 32 bits, cut off at the end, as C computes it.
pub(super) fn lcm(a: &Array, b: &Array, dtype: DType) -> Made<Array> {
    if matches!(dtype, DType::I8 | DType::I16) {
        let wide = |x: &Array| ops::astype(x, Dtype::Int32);
        return Ok(ops::astype(&lcm(&wide(a)?, &wide(b)?, DType::I32)?, super::convert::dtype(dtype)?)?);
    }
    let g = gcd(a, b, dtype)?;
    let (zero, one) = (constant(0, dtype)?, constant(1, dtype)?);
    let none = ops::equal(&g, &zero)?;
    let part = ops::floor_divide(a, &ops::where_(&none, &one, &g)?)?;
    let product = ops::multiply(&part, b)?;
    let size = if dtype == DType::U8 { product } else { ops::abs(&product)? };
    Ok(ops::where_(&none, &zero, &size)?)
}

fn bits(dtype: DType) -> i64 {
    8 * dtype.size() as i64
}

fn always_inside(known: ValueRange, dtype: DType) -> bool {
    matches!(known, ValueRange::Within(low, high) if low >= 0 && high < bits(dtype))
}

/// 1 where the shift is within the width.
fn inside(b: &Array, dtype: DType) -> Made<Array> {
    let (low, high) = (constant(0, dtype)?, constant(bits(dtype), dtype)?);
    Ok(ops::logical_and(&ops::greater_equal(b, &low)?, &ops::less(b, &high)?)?)
}

pub(super) fn left_shift(a: &Array, b: &Array, known: ValueRange, dtype: DType) -> Made<Array> {
    if always_inside(known, dtype) {
        return Ok(ops::left_shift(a, b)?);
    }
    let (inside, zero) = (inside(b, dtype)?, constant(0, dtype)?);
    let safe = ops::where_(&inside, b, &zero)?;
    Ok(ops::where_(&inside, &ops::left_shift(a, &safe)?, &zero)?)
}

pub(super) fn right_shift(a: &Array, b: &Array, known: ValueRange, dtype: DType) -> Made<Array> {
    if always_inside(known, dtype) {
        return Ok(ops::right_shift(a, b)?);
    }
    let inside = inside(b, dtype)?;
    if integer_range(dtype).is_some_and(|(low, _)| low == 0) {
        let zero = constant(0, dtype)?;
        let shifted = ops::right_shift(a, &ops::where_(&inside, b, &zero)?)?;
        return Ok(ops::where_(&inside, &shifted, &zero)?);
    }
    // Beyond the width only the sign is left.
    Ok(ops::right_shift(a, &ops::where_(&inside, b, &constant(bits(dtype) - 1, dtype)?)?)?)
}
