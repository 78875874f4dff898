//! Floats of 8 bits, which MLX has not: arrays of their bits, and how they become float32 and come of it.
//!
//! Depends on mlx-ffi. Invariant: the bits are those that the host computes in [`float8`](crate::dtype::float8).

use super::kernel_error::Made;
use crate::DType;
use mlx_ffi::{ops, Array, Dtype};

/// The numbers that bits stand for, as float32.
pub(super) fn decode(bits: &Array, from: DType) -> Made<Array> {
    let word = |bits: u16| Array::scalar(bits);
    let wide = ops::astype(bits, Dtype::Uint16)?;
    let number = |bits: &Array| ops::astype(&ops::view(bits, Dtype::Float16)?, Dtype::Float32);
    if from == DType::F8E5M2 {
        // The upper half of a float16.
        return Ok(number(&ops::left_shift(&wide, &word(8)?)?)?);
    }
    let sign = ops::left_shift(&ops::bitwise_and(&wide, &word(0x80)?)?, &word(8)?)?;
    let size = ops::bitwise_and(&wide, &word(0x7f)?)?;
    let half = ops::bitwise_or(&ops::left_shift(&size, &word(7)?)?, &sign)?;
    // The exponents of float16 are biased by 8 more.
    let made = ops::multiply(&number(&half)?, &Array::scalar(256f32)?)?;
    Ok(ops::where_(&ops::equal(&size, &word(0x7f)?)?, &Array::scalar(f32::NAN)?, &made)?)
}

/// The bits of the nearest numbers to float32 elements, ties to the even one.
pub(super) fn encode(x: &Array, to: DType) -> Made<Array> {
    // Bits of precision, the exponent's bias, what the largest number is below, and what stands for what is not below it.
    let (precision, bias, limit, top) = match to {
        DType::F8E5M2 => (2u32, 15u32, 65536f32.to_bits(), 0x7cu32),
        _ => (3, 7, 448f32.to_bits(), 0x7e),
    };
    let word = |bits: u32| Array::scalar(bits);
    let bits = ops::view(x, Dtype::Uint32)?;
    let sign = ops::bitwise_and(&ops::right_shift(&bits, &word(24)?)?, &word(0x80)?)?;
    let size = ops::bitwise_and(&bits, &word(0x7fff_ffff)?)?;
    let odd = ops::bitwise_and(&ops::right_shift(&size, &word(23 - precision)?)?, &word(1)?)?;
    let half = (1u32 << (22 - precision)) - 1;
    let rebiased = ops::add(&size, &word(half.wrapping_sub((127 - bias) << 23))?)?;
    let normal = ops::right_shift(&ops::add(&rebiased, &odd)?, &word(23 - precision)?)?;
    // The sum with this number rounds to a multiple of the smallest subnormal.
    let unit = (128 - bias + 23 - precision) << 23;
    let sum = ops::add(&ops::view(&size, Dtype::Float32)?, &Array::scalar(f32::from_bits(unit))?)?;
    let subnormal = ops::subtract(&ops::view(&sum, Dtype::Uint32)?, &word(unit)?)?;
    let made = ops::where_(&ops::less(&size, &word((128 - bias) << 23)?)?, &subnormal, &normal)?;
    let made = ops::where_(&ops::less(&size, &word(limit)?)?, &made, &word(top)?)?;
    let made = ops::where_(&ops::less(&word(0x7f80_0000)?, &size)?, &word(0x7f)?, &made)?;
    Ok(ops::astype(&ops::bitwise_or(&made, &sign)?, Dtype::Uint8)?)
}
