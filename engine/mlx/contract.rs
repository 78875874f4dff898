//! Matrix products.
//!
//! Depends on `array`, `convert` and mlx-ffi. Invariant: integer products wrap as PyTorch's do (MLX has none of them).

use super::array::GpuArray;
use super::convert::{self, int, ints, Ints};
use super::custom_kernel;
use super::emulator::Language;
use super::host_kernel;
use super::kernel_error::Made;
use super::value::Value;
use crate::shape::numel;
use lucid_cpu::CpuBackend;
use lucid_ir::backend::Backend;
use lucid_ir::ops::contract::ContractOp;
use lucid_ir::Meta;
use mlx_ffi::{ops, Array, Dtype};

/// Elements of the products held at once when integers are multiplied.
const AT_ONCE: usize = 1 << 24;

pub(super) fn contract(op: &ContractOp, a: &GpuArray, b: &GpuArray, out: &Meta) -> Made<GpuArray> {
    match op {
        // MLX's CPU stream multiplies 16-bit floats one by one.
        ContractOp::MatMul { .. } if out.dtype.is_half() && numel(&out.shape) > 0 && host_kernel::takes(out.dtype) => {
            let op = op.clone();
            host_kernel::run(c"LucidMatmul", &[a, b], out, move |x, out| CpuBackend::contract(&op, x[0], x[1], out))
        }
        ContractOp::MatMul { .. } => {
            let array = matmul(a, b, out)?;
            GpuArray::new(Value::plain(array), &out.shape, out.dtype)
        }
    }
}

fn matmul(a: &GpuArray, b: &GpuArray, out: &Meta) -> Made<Array> {
    let inner = a.shape()[a.ndim() - 1];
    if numel(&out.shape) == 0 || inner == 0 {
        return Ok(ops::zeros(&ints(&out.shape)?, convert::dtype(out.dtype)?)?);
    }
    // Both are broadcast to the batches of the result.
    let batches = &out.shape[..out.shape.len().saturating_sub(2)];
    for x in [a, b] {
        let matrix = &x.shape()[x.ndim().saturating_sub(2)..];
        if numel(batches).saturating_mul(numel(matrix)) > i32::MAX as usize {
            convert::countable(&[batches, matrix].concat())?;
        }
    }
    let (x, y) = (a.value()?, b.value()?);
    let (x, y) = (x.logical()?, y.logical()?);
    if out.dtype.is_integral() {
        return integer_product(&x, &y, inner, numel(&out.shape), out);
    }
    product(&x, &y)
}

/// What cuBLAS wants sizes of 16-bit matrices to be multiples of: it reads 16 bytes at a time, and is several times slower
/// where rows do not begin at such places.
const ALIGNED: i32 = 8;
/// The smallest dimension of products that are worth the copies.
const WORTH: i32 = 256;

/// A product of floats. 16-bit matrices whose sizes are not aligned (a vocabulary of 50257) are filled up with zeros on CUDA.
pub(super) fn product(x: &Array, y: &Array) -> Made<Array> {
    let half = matches!(x.dtype(), Dtype::Float16 | Dtype::Bfloat16) && x.dtype() == y.dtype();
    let (rows, columns) = (x.shape(), y.shape());
    let (&[.., m, k], &[_, n]) = (rows, columns) else { return Ok(ops::matmul(x, y)?) };
    let uneven = |size: &i32| size % ALIGNED != 0;
    let flat = x.ndim() == 2;
    let large = k.min(n) >= WORTH && x.size() / k as usize >= WORTH as usize;
    let wanted = [k, n].iter().any(uneven) || flat && uneven(&m);
    if !half || !large || !wanted || custom_kernel::language() != Some(Language::Cuda) {
        return Ok(ops::matmul(x, y)?);
    }
    let missing = |size: i32| (ALIGNED - size % ALIGNED) % ALIGNED;
    let filled = |a: &Array, below: i32, right: i32| -> Made<Array> {
        if (below, right) == (0, 0) {
            return Ok(a.clone());
        }
        let last = int(a.ndim())? - 1;
        Ok(ops::pad(a, &[last - 1, last], &[0, 0], &[below, right], &ops::zeros(&[], a.dtype())?, "constant")?)
    };
    let below = if flat { missing(m) } else { 0 };
    let made = ops::matmul(&filled(x, below, missing(k))?, &filled(y, missing(k), missing(n))?)?;
    let mut stop = Ints::from_slice(rows);
    stop[rows.len() - 1] = n;
    let shown = ops::slice(&made, &Ints::from_elem(0, rows.len()), &stop, &Ints::from_elem(1, rows.len()))?;
    // Row-major, since what is made of strided rows is slower by more than this copy.
    Ok(ops::contiguous(&shown, false)?)
}

/// Sums of element-wise products, over pieces of the inner dimension.
fn integer_product(x: &Array, y: &Array, inner: usize, outer: usize, out: &Meta) -> Made<Array> {
    let (left, right) = (ops::expand_dims(x, -1)?, ops::expand_dims(y, -3)?);
    let piece = (AT_ONCE / outer.max(1)).clamp(1, inner);
    let cut = |a: &Array, axis: usize, from: usize, to: usize| -> Made<Array> {
        let (mut start, mut stop) = (Ints::from_elem(0, a.ndim()), Ints::from_slice(a.shape()));
        (start[axis], stop[axis]) = (int(from)?, int(to)?);
        Ok(ops::slice(a, &start, &stop, &Ints::from_elem(1, a.ndim()))?)
    };
    let mut sum: Option<Array> = None;
    for from in (0..inner).step_by(piece) {
        let to = (from + piece).min(inner);
        let (l, r) = (cut(&left, left.ndim() - 2, from, to)?, cut(&right, right.ndim() - 2, from, to)?);
        let part = ops::sum_axis(&ops::multiply(&l, &r)?, -2, false)?;
        let part = ops::astype(&part, convert::dtype(out.dtype)?)?;
        sum = Some(match sum {
            None => part,
            Some(s) => ops::add(&s, &part)?,
        });
    }
    match sum {
        Some(s) => Ok(s),
        None => Ok(ops::zeros(&ints(&out.shape)?, convert::dtype(out.dtype)?)?),
    }
}
