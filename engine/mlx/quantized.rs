//! Group-wise affine quantisation, through MLX's own quantised kernels.
//!
//! Depends on `array`, `bounds`, `host_kernel`, `row_product` and mlx-ffi. MLX's packed words are uint32, ours int32 of the same bits. On
//! MLX's CPU stream products run the CPU device's kernels. Invariant: indices are checked before MLX reads by them.

use super::array::GpuArray;
use super::bounds;
use super::convert::{self, ints};
use super::custom_kernel;
use super::emulator::Language;
use super::host_kernel;
use super::kernel_error::Made;
use super::row_product::{self, After, RowMatrix, Rows};
use super::value::Value;
use crate::shape::numel;
use crate::{DType, Error, Result};
use lucid_cpu::{CpuArray, CpuBackend};
use lucid_ir::backend::{Backend, Results};
use lucid_ir::ops::quantize::QuantizeOp;
use lucid_ir::ops::quantized::{Affine, QuantizedOp};
use lucid_ir::Meta;
use mlx_ffi::{ops, Array, Dtype};

const MODE: &str = "affine";
/// Rows from which on CUDA multiplies unpacked matrices: MLX's kernel for packed ones has no matrix units.
const UNPACKED: usize = 32;

/// Packed words, scales and biases.
pub(super) fn quantize(op: &QuantizeOp, x: &GpuArray, out: &[Meta]) -> Made<Results<GpuArray>> {
    let QuantizeOp::Affine { format } = op;
    let parts = if x.numel() == 0 {
        let zeros = |out: &Meta| Ok(ops::zeros(&ints(&out.shape)?, convert::dtype(out.dtype)?)?);
        out.iter().map(zeros).collect::<Made<Vec<Array>>>()?
    } else {
        let (group, bits) = sizes(*format)?;
        let mut parts = ops::quantize(&operand(x)?, group, bits, MODE, None)?;
        if let Some(packed) = parts.first_mut() {
            *packed = ops::view(packed, Dtype::Int32)?;
        }
        parts
    };
    if parts.len() != out.len() {
        return Err(Error::backend("quantize_affine", "MLX gave fewer than three results").into());
    }
    parts.into_iter().zip(out).map(|(part, out)| GpuArray::new(Value::plain(part), &out.shape, out.dtype)).collect()
}

pub(super) fn quantized(op: &QuantizedOp, inputs: &[&GpuArray], out: &Meta) -> Made<GpuArray> {
    if numel(&out.shape) == 0 || inputs[0].numel() == 0 {
        let zeros = ops::zeros(&ints(&out.shape)?, convert::dtype(out.dtype)?)?;
        return GpuArray::new(Value::plain(zeros), &out.shape, out.dtype);
    }
    let array = match (op, inputs) {
        (QuantizedOp::DequantizeAffine { format }, [w, scales, biases]) => {
            let (group, bits) = sizes(*format)?;
            let (scales, biases) = (operand(scales)?, operand(biases)?);
            let dtype = Some(convert::dtype(out.dtype)?);
            ops::dequantize(&words(w)?, &scales, Some(&biases), group, bits, MODE, None, dtype)?
        }
        (
            QuantizedOp::QuantizedMatmul { .. } | QuantizedOp::DynamicMatmul { .. } | QuantizedOp::GatherQmm { .. },
            _,
        ) if host_kernel::takes(out.dtype) => {
            if let (QuantizedOp::GatherQmm { .. }, [x, w, _, _, lhs, rhs]) = (op, inputs) {
                check(op, x, w, lhs, rhs)?;
            }
            let op = op.clone();
            let kernel = move |x: &[&CpuArray], out: &Meta| -> Result<CpuArray> { CpuBackend::quantized(&op, x, out) };
            return host_kernel::run(c"QuantizedProduct", inputs, out, kernel);
        }
        (QuantizedOp::QuantizedMatmul { format, transpose: true }, [x, w, scales, biases])
            if few_rows(x) && custom_kernel::language().is_some() =>
        {
            let of = Rows { rows: x.numel() / columns(x), columns: columns(x), dtype: x.element() };
            let matrix = RowMatrix { weight: w, packed: Some((scales, biases, format.group, format.bits)), bias: None };
            let made = row_product::products(&*x.value()?.logical()?, of, None, &[matrix], &After::Product)?;
            match made.and_then(|mut made| made.pop()) {
                Some(made) => ops::reshape(&made, &ints(&out.shape)?)?,
                None => product(x, w, [scales, biases], *format, true, out)?,
            }
        }
        (QuantizedOp::QuantizedMatmul { format, transpose }, [x, w, scales, biases]) => {
            product(x, w, [scales, biases], *format, *transpose, out)?
        }
        (QuantizedOp::DynamicMatmul { .. }, _) => {
            let why = "GPUs have no product with rounded activations; take quantized_matmul, or the cpu";
            return Err(Error::not_implemented(op.name(), why).into());
        }
        (QuantizedOp::GatherQmm { format, transpose }, [x, w, scales, biases, lhs, rhs]) => {
            check(op, x, w, lhs, rhs)?;
            let (group, bits) = sizes(*format)?;
            let (lhs, rhs) = (index(lhs)?, index(rhs)?);
            let (x, scales, biases) = (operand(x)?, operand(scales)?, operand(biases)?);
            let (w, biases, at) = (words(w)?, Some(&biases), (Some(&lhs), Some(&rhs)));
            ops::gather_qmm(&x, &w, &scales, biases, at.0, at.1, *transpose, group, bits, MODE, false)?
        }
        (op, x) => return Err(Error::runtime(op.name(), format!("does not take {} arrays", x.len())).into()),
    };
    GpuArray::new(Value::plain(array), &out.shape, out.dtype)
}

fn sizes(format: Affine) -> Made<(Option<i32>, Option<i32>)> {
    Ok((Some(convert::int(format.group)?), Some(convert::int(format.bits)?)))
}

fn columns(x: &GpuArray) -> usize {
    x.shape().last().copied().unwrap_or(0)
}

/// Are there so few rows that a matrix is read once for all of them?
fn few_rows(x: &GpuArray) -> bool {
    columns(x) > 0 && (1..=row_product::MOST_ROWS).contains(&(x.numel() / columns(x)))
}

/// The product with packed rows by MLX's kernel, or with the elements that they stand for where many rows make up for unpacking
/// them and the kernel is slow.
fn product(
    x: &GpuArray,
    w: &GpuArray,
    [scales, biases]: [&GpuArray; 2],
    format: Affine,
    transpose: bool,
    out: &Meta,
) -> Made<Array> {
    let columns = convert::int(columns(x))?;
    let x = operand(x)?;
    // MLX's kernels for CUDA raise an error for one row without a dimension of rows.
    let x = if x.ndim() == 1 { ops::reshape(&x, &[1, columns])? } else { x };
    let made = if transpose {
        product_of(&x, w, [scales, biases], (format.group, format.bits), out.dtype)?
    } else {
        let (group, bits) = sizes(format)?;
        let (scales, biases) = (operand(scales)?, operand(biases)?);
        ops::quantized_matmul(&x, &words(w)?, &scales, Some(&biases), false, group, bits, MODE)?
    };
    Ok(ops::reshape(&made, &ints(&out.shape)?)?)
}

/// The product of `x` with packed rows in groups of some elements of some bits.
pub(super) fn product_of(
    x: &Array,
    w: &GpuArray,
    [scales, biases]: [&GpuArray; 2],
    (group, bits): (usize, usize),
    dtype: DType,
) -> Made<Array> {
    let (group, bits) = (Some(convert::int(group)?), Some(convert::int(bits)?));
    let (scales, biases) = (operand(scales)?, operand(biases)?);
    let words = words(w)?;
    let rows = x.size() / x.shape().last().map_or(1, |&n| n.max(1) as usize);
    if w.ndim() == 2 && rows >= UNPACKED && custom_kernel::language() == Some(Language::Cuda) {
        let dtype = Some(convert::dtype(dtype)?);
        let elements = ops::dequantize(&words, &scales, Some(&biases), group, bits, MODE, None, dtype)?;
        return Ok(ops::matmul(x, &ops::swapaxes(&elements, -1, -2)?)?);
    }
    Ok(ops::quantized_matmul(x, &words, &scales, Some(&biases), true, group, bits, MODE)?)
}

fn check(op: &QuantizedOp, x: &GpuArray, w: &GpuArray, lhs: &GpuArray, rhs: &GpuArray) -> Made<()> {
    bounds::check(op.name(), lhs, x.shape()[0], 0, false)?;
    bounds::check(op.name(), rhs, w.shape()[0], 0, false)
}

/// What MLX's kernels read. Those for CUDA take any memory for row-major, or have no kernel for other; also by the strides of
/// dimensions of one element, which an array of its own shape keeps and a flat one does not have.
fn operand(x: &GpuArray) -> Made<Array> {
    let value = x.value()?;
    let array = value.logical()?;
    if custom_kernel::language() != Some(Language::Cuda) {
        return Ok(array.into_owned());
    }
    let made = ops::contiguous(&array, false)?;
    match x.shape().iter().rev().take(2).any(|&n| n == 1) {
        true => Ok(ops::reshape(&ops::reshape(&made, &[-1])?, &ints(x.shape())?)?),
        false => Ok(made),
    }
}

/// Packed words as MLX has them.
fn words(w: &GpuArray) -> Made<Array> {
    Ok(ops::view(&operand(w)?, Dtype::Uint32)?)
}

fn index(x: &GpuArray) -> Made<Array> {
    Ok(ops::astype(&operand(x)?, Dtype::Uint32)?)
}
