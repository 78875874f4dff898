//! Floats of 8 bits, which MLX has not: arrays of their bits, and how they become float32 and come of it.
//!
//! Depends on mlx-ffi and on the engine's own [`float8`](crate::dtype::float8). Invariant: the bits are those that the host
//! computes.

use super::kernel_error::Made;
use crate::dtype::float8::{F8E4M3FN, F8E5M2};
use crate::DType;
use mlx_ffi::{ops, Array, Dtype};

/// The numbers that bits stand for, as float32.
pub(super) fn decode(bits: &Array, from: DType) -> Made<Array> {
    let number = |bits: u8| match from {
        DType::F8E5M2 => F8E5M2::from_bits(bits).to_f32(),
        _ => F8E4M3FN::from_bits(bits).to_f32(),
    };
    let table: [f32; 256] = std::array::from_fn(|bits| number(bits as u8));
    let table = Array::from_slice(&table, &[256])?;
    // SAFETY: a byte is below the table's length.
    Ok(unsafe { ops::take_axis(&table, &ops::astype(bits, Dtype::Uint32)?, 0) }?)
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
