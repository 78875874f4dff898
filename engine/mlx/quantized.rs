//! Group-wise affine quantisation, through MLX's own quantised kernels.
//!
//! Depends on `array`, `bounds`, `host_kernel` and mlx-ffi. MLX's packed words are uint32, ours int32 of the same bits. On
//! MLX's CPU stream products run the CPU device's kernels. Invariant: indices are checked before MLX reads by them.

use super::array::GpuArray;
use super::bounds;
use super::convert::{self, ints};
use super::host_kernel;
use super::kernel_error::Made;
use super::value::Value;
use crate::shape::numel;
use crate::{Error, Result};
use lucid_cpu::{CpuArray, CpuBackend};
use lucid_ir::backend::Backend;
use lucid_ir::ops::quantized::{Affine, Part, QuantizedOp};
use lucid_ir::Meta;
use mlx_ffi::{ops, Array, Dtype};

const MODE: &str = "affine";

pub(super) fn quantized(op: &QuantizedOp, inputs: &[&GpuArray], out: &Meta) -> Made<GpuArray> {
    if numel(&out.shape) == 0 || inputs[0].numel() == 0 {
        let zeros = ops::zeros(&ints(&out.shape)?, convert::dtype(out.dtype)?)?;
        return GpuArray::new(Value::plain(zeros), &out.shape, out.dtype);
    }
    let array = match (op, inputs) {
        (QuantizedOp::QuantizePart { format, part }, [x]) => quantize(x, *format, *part)?,
        (QuantizedOp::DequantizeAffine { format }, [w, scales, biases]) => {
            let (group, bits) = sizes(*format)?;
            let (scales, biases) = (scales.value()?, biases.value()?);
            let (scales, biases) = (scales.logical()?, biases.logical()?);
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
        (QuantizedOp::QuantizedMatmul { format, transpose }, [x, w, scales, biases]) => {
            let (group, bits) = sizes(*format)?;
            let (x, scales, biases) = (x.value()?, scales.value()?, biases.value()?);
            let (x, scales, biases) = (x.logical()?, scales.logical()?, biases.logical()?);
            ops::quantized_matmul(&x, &words(w)?, &scales, Some(&biases), *transpose, group, bits, MODE)?
        }
        (QuantizedOp::DynamicMatmul { .. }, _) => {
            let why = "GPUs have no product with rounded activations; take quantized_matmul, or the cpu";
            return Err(Error::not_implemented(op.name(), why).into());
        }
        (QuantizedOp::GatherQmm { format, transpose }, [x, w, scales, biases, lhs, rhs]) => {
            check(op, x, w, lhs, rhs)?;
            let (group, bits) = sizes(*format)?;
            let (lhs, rhs) = (index(lhs)?, index(rhs)?);
            let (x, scales, biases) = (x.value()?, scales.value()?, biases.value()?);
            let (x, scales, biases) = (x.logical()?, scales.logical()?, biases.logical()?);
            let (w, biases, at) = (words(w)?, Some(&*biases), (Some(&lhs), Some(&rhs)));
            ops::gather_qmm(&x, &w, &scales, biases, at.0, at.1, *transpose, group, bits, MODE, false)?
        }
        (op, x) => return Err(Error::runtime(op.name(), format!("does not take {} arrays", x.len())).into()),
    };
    GpuArray::new(Value::plain(array), &out.shape, out.dtype)
}

fn sizes(format: Affine) -> Made<(Option<i32>, Option<i32>)> {
    Ok((Some(convert::int(format.group)?), Some(convert::int(format.bits)?)))
}

fn check(op: &QuantizedOp, x: &GpuArray, w: &GpuArray, lhs: &GpuArray, rhs: &GpuArray) -> Made<()> {
    bounds::check(op.name(), lhs, x.shape()[0], 0, false)?;
    bounds::check(op.name(), rhs, w.shape()[0], 0, false)
}

/// Packed words as MLX has them.
fn words(w: &GpuArray) -> Made<Array> {
    let value = w.value()?;
    let array = value.logical()?;
    Ok(ops::view(&array, Dtype::Uint32)?)
}

fn index(x: &GpuArray) -> Made<Array> {
    let value = x.value()?;
    let array = value.logical()?;
    Ok(ops::astype(&array, Dtype::Uint32)?)
}

fn quantize(x: &GpuArray, format: Affine, part: Part) -> Made<Array> {
    let (group, bits) = sizes(format)?;
    let value = x.value()?;
    let array = value.logical()?;
    let mut parts = ops::quantize(&array, group, bits, MODE, None)?.into_iter();
    let missing = || Error::backend("quantize_affine", "MLX gave fewer than three results");
    let made = parts.nth(part as usize).ok_or_else(missing)?;
    match part {
        Part::Packed => Ok(ops::view(&made, Dtype::Int32)?),
        Part::Scales | Part::Biases => Ok(made),
    }
}
