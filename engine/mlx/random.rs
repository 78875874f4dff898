//! Random arrays, by the recipe in `crate::random`, from MLX's threefry bits.
//!
//! Depends on `convert` and mlx-ffi. Invariant: bits, and what is made of them exactly, are the CPU backend's.

use super::array::GpuArray;
use super::convert::{int, ints};
use super::elementwise::cast_array;
use super::kernel_error::Made;
use super::value::{Value, ValueRange};
use crate::shape::numel;
use crate::{DType, Error};
use lucid_cpu::CpuBackend;
use lucid_ir::backend::Backend;
use lucid_ir::ops::random::{uniform_bits, RandomOp};
use lucid_ir::random::Key;
use lucid_ir::Meta;
use mlx_ffi::{ops, random, Array, Dtype};

pub(super) fn random(op: &RandomOp, out: &Meta) -> Made<GpuArray> {
    let mut known = ValueRange::Nothing;
    let (drawn, dtype) = match *op {
        RandomOp::Uniform { key } => {
            float(out.dtype)?;
            let bits = uniform_bits(out.dtype);
            let scale = Array::scalar(1.0f32 / (1u32 << bits) as f32)?;
            (ops::multiply(&high_bits(key, bits, out)?, &scale)?, DType::F32)
        }
        RandomOp::Normal { key } => {
            float(out.dtype)?;
            let x = ops::multiply(&high_bits(key, 24, out)?, &Array::scalar(1.0f32 / (1u32 << 23) as f32)?)?;
            let x = ops::subtract(&x, &Array::scalar(1.0f32 - f32::EPSILON / 2.0)?)?;
            (ops::multiply(&ops::erfinv(&x)?, &Array::scalar(std::f32::consts::SQRT_2)?)?, DType::F32)
        }
        RandomOp::Integers { key, low, high } => {
            let range = (high as u64).wrapping_sub(low as u64);
            if range != 0 {
                known = ValueRange::Within(low, high.wrapping_sub(1));
            }
            (integers(key, low, range, out)?, DType::I64)
        }
        _ => return Err(Error::runtime(op.name(), "takes arrays").into()),
    };
    let value = Value::plain(cast_array(&drawn, dtype, out.dtype)?);
    let value = if out.dtype == DType::I64 { value.knowing(known) } else { value };
    GpuArray::new(value, &out.shape, out.dtype)
}

/// Derivatives of samples need float64 on the way, which MLX's devices do not have: the host computes them.
pub(super) fn derivative(op: &RandomOp, x: &[&GpuArray], out: &Meta) -> Made<GpuArray> {
    super::linalg::host_computed(op.name(), x, out, |x| CpuBackend::derivative(op, x, out))
}

fn float(dtype: DType) -> Made<()> {
    match dtype.is_float() {
        true => Ok(()),
        false => Err(Error::dtype("random", "expected a floating dtype", &[dtype]).into()),
    }
}

fn key_array(key: Key) -> Made<Array> {
    Ok(Array::from_slice(&key.0, &[2])?)
}

/// The upper bits, at most 24, of a word for each element, as float32.
fn high_bits(key: Key, bits: u32, out: &Meta) -> Made<Array> {
    let n = numel(&out.shape);
    if n == 0 {
        return Ok(ops::zeros(&ints(&out.shape)?, Dtype::Float32)?);
    }
    // Drawn flat: the order of words follows the number of elements alone.
    let words = random::bits(&[int(n)?], 4, &key_array(key)?)?;
    let words = if out.shape.len() == 1 { words } else { ops::reshape(&words, &ints(&out.shape)?)? };
    Ok(ops::astype(&ops::right_shift(&words, &Array::scalar(32 - bits)?)?, Dtype::Float32)?)
}

/// `low + w % range` for a 64-bit word `w` for each element, or the word itself for a range of 0.
fn integers(key: Key, low: i64, range: u64, out: &Meta) -> Made<Array> {
    let n = numel(&out.shape);
    if n == 0 {
        return Ok(ops::zeros(&ints(&out.shape)?, Dtype::Int64)?);
    }
    let words = random::bits(&[2, int(n)?], 4, &key_array(key)?)?;
    let wide = ops::astype(&words, Dtype::Uint64)?;
    let row = |i: i32| ops::slice(&wide, &[i, 0], &[i + 1, n as i32], &[1, 1]);
    let w = ops::bitwise_or(&ops::left_shift(&row(0)?, &Array::scalar(32u64)?)?, &row(1)?)?;
    let w = match range {
        0 => w,
        range => ops::add(&ops::remainder(&w, &Array::scalar(range)?)?, &Array::scalar(low as u64)?)?,
    };
    // Modulo 2^64 signed and unsigned are the same bits.
    let x = ops::view(&w, Dtype::Int64)?;
    Ok(ops::reshape(&x, &ints(&out.shape)?)?)
}
