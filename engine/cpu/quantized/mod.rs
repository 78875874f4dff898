//! Group-wise affine quantisation: packing, unpacking, and products that read packed rows.
//!
//! `pack` has the format, `product` the matrix products, plain Rust loops that `simd` compiles for the machine's vector
//! instructions, and `dynamic` those with activations of 8 bits, by the kernels of `simd::int8`. Invariant: packed elements are bit by bit those of MLX.

mod dynamic;
mod pack;
mod product;

use super::fused::with_float;
use super::simd::as_bytes;
use super::{index, CpuArray};
use crate::{Error, Result};
use lucid_ir::backend::{Array, Results};
use lucid_ir::ops::quantize::QuantizeOp;
use lucid_ir::ops::quantized::QuantizedOp;
use lucid_ir::Meta;

/// The kernel of the `quantize` family.
pub fn quantize(op: &QuantizeOp, x: &CpuArray, out: &[Meta]) -> Result<Results<CpuArray>> {
    let QuantizeOp::Affine { format } = op;
    with_float!("quantize_affine", x.dtype(), T => pack::quantize::<T>(x, *format, out))
}

/// The kernels of the `quantized` family.
pub fn quantized(op: &QuantizedOp, inputs: &[&CpuArray], out: &Meta) -> Result<CpuArray> {
    match (op, inputs) {
        (QuantizedOp::DequantizeAffine { format }, [w, scales, biases]) => {
            with_float!("dequantize_affine", out.dtype, T => pack::dequantize::<T>(w, scales, biases, *format, out))
        }
        (QuantizedOp::QuantizedMatmul { format, transpose }, [x, w, scales, biases]) => {
            with_float!("quantized_matmul", out.dtype, T => {
                let (x, w) = (x.contiguous()?, w.contiguous()?);
                let (scales, biases) = (scales.contiguous()?, biases.contiguous()?);
                let (xs, ws) = (x.read::<T>(), w.read::<i32>());
                let (ss, bs) = (scales.read::<T>(), biases.read::<T>());
                let shape = scales.shape();
                let matrix = pack::Rows {
                    bytes: as_bytes(w.slice(&ws)),
                    scales: scales.slice(&ss),
                    biases: biases.slice(&bs),
                    rows: shape[0],
                    columns: shape[1] * format.group,
                    format: *format,
                };
                CpuArray::build(&out.shape, |y: &mut [T]| {
                    product::product(x.slice(&xs), &matrix, *transpose, y);
                    Ok(())
                })
            })
        }
        (QuantizedOp::DynamicMatmul { packing, .. }, [x, w]) => {
            with_float!("dynamic_quantized_matmul", out.dtype, T => {
                let (x, w) = (x.contiguous()?, w.contiguous()?);
                let (xs, ws) = (x.read::<T>(), w.read::<u8>());
                let rows = w.shape()[0];
                dynamic::product::<T>(x.slice(&xs), *packing, w.slice(&ws), rows, None, out)
            })
        }
        (QuantizedOp::DynamicMatmul { packing, group }, [x, w, scales, biases]) => {
            with_float!("dynamic_quantized_matmul", out.dtype, T => {
                let (x, w) = (x.contiguous()?, w.contiguous()?);
                let (scales, biases) = (scales.contiguous()?, biases.contiguous()?);
                let (xs, ws) = (x.read::<T>(), w.read::<i32>());
                let (ss, bs) = (scales.read::<T>(), biases.read::<T>());
                let sides = dynamic::Sides { scales: scales.slice(&ss), biases: biases.slice(&bs), group: *group };
                let rows = w.shape()[0];
                dynamic::product(x.slice(&xs), *packing, as_bytes(w.slice(&ws)), rows, Some(sides), out)
            })
        }
        (QuantizedOp::GatherQmm { format, transpose }, [x, w, scales, biases, lhs, rhs]) => {
            with_float!("gather_qmm", out.dtype, T => {
                let (x, w) = (x.contiguous()?, w.contiguous()?);
                let (scales, biases) = (scales.contiguous()?, biases.contiguous()?);
                let (lhs, rhs) = (lhs.settled()?, rhs.settled()?);
                let (xs, ws) = (x.read::<T>(), w.read::<i32>());
                let (ss, bs) = (scales.read::<T>(), biases.read::<T>());
                let (ls, rs) = (lhs.read::<i64>(), rhs.read::<i64>());
                let (ls, rs) = (lhs.slice(&ls), rhs.slice(&rs));
                index::within("gather_qmm", ls, 1, x.shape()[0], 0)?;
                index::within("gather_qmm", rs, 1, w.shape()[0], 0)?;
                let (xs, bytes) = (x.slice(&xs), as_bytes(w.slice(&ws)));
                let (ss, bs) = (scales.slice(&ss), biases.slice(&bs));
                let shape = scales.shape();
                let (size, groups) = (x.shape()[1] * x.shape()[2], shape[1] * shape[2]);
                let packed = 4 * w.shape()[1] * w.shape()[2];
                let matrix = |i: usize| pack::Rows {
                    bytes: &bytes[i * packed..(i + 1) * packed],
                    scales: &ss[i * groups..(i + 1) * groups],
                    biases: &bs[i * groups..(i + 1) * groups],
                    rows: shape[1],
                    columns: shape[2] * format.group,
                    format: *format,
                };
                let each = out.shape[1] * out.shape[2];
                CpuArray::build(&out.shape, |y: &mut [T]| {
                    for ((y, &l), &r) in y.chunks_mut(each.max(1)).zip(ls).zip(rs) {
                        let x = &xs[l as usize * size..(l as usize + 1) * size];
                        product::product(x, &matrix(r as usize), *transpose, y);
                    }
                    Ok(())
                })
            })
        }
        (op, x) => Err(Error::runtime(op.name(), format!("does not take {} arrays", x.len()))),
    }
}
