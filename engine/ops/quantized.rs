//! Group-wise affine quantisation in MLX's packed layout, and products with what it makes.
//!
//! The products are primitives (`cpu/quantized/`, `mlx/quantized.rs`). Packed words are int32: MLX
//! has them as uint32, with the same bits. Invariant: kernels see scales and biases in the dtype of what they belong
//! to, and shapes that fit.

use super::create::arange_of;
use super::macros::define_ops;
pub use super::quantize::quantize_affine;
use super::view::{expand_to, reshape_to};
use crate::autograd::{Ctx, Grads};
use crate::dispatch::{self, Meta, Prim};
use crate::shape::{self, Shape};
use crate::{DType, Error, Result, Scalar, Tensor};
pub use lucid_ir::ops::quantized::*;
use lucid_ir::quantized_ops;

quantized_ops!(define_ops);

/// The elements in a row of a packed matrix; scales and biases must fit it.
fn columns(op: &'static str, w: &Tensor, scales: &Tensor, biases: &Tensor, format: Affine) -> Result<usize> {
    if w.dtype() != DType::I32 {
        let why = "expected packed weights of dtype int32, as quantize_affine makes them";
        return Err(Error::dtype(op, why, &[w.dtype()]));
    }
    for x in [scales, biases] {
        schema::dequantize_affine.check(x.dtype())?;
    }
    if scales.dtype() != biases.dtype() {
        return Err(Error::dtype(
            op,
            "expected scales and biases of the same dtype",
            &[scales.dtype(), biases.dtype()],
        ));
    }
    let shapes = [w.shape(), scales.shape(), biases.shape()];
    let fits = w.ndim() >= 2 && scales.shape() == biases.shape() && scales.ndim() == w.ndim();
    let fits = fits && {
        let last = w.ndim() - 1;
        let (words, groups) = (w.shape()[last], scales.shape()[last]);
        w.shape()[..last] == scales.shape()[..last]
            && groups > 0
            && groups.checked_mul(format.group).is_some_and(|n| format.words(n) == words)
    };
    match fits {
        true => Ok(scales.shape()[w.ndim() - 1] * format.group),
        false => {
            let why = format!(
                "w (…, N, K*bits/32), scales and biases (…, N, K/group_size) do not fit together for bits={} and group_size={}",
                format.bits, format.group
            );
            Err(Error::shape(op, why, &shapes))
        }
    }
}

fn dequantize_body(w: &Tensor, scales: &Tensor, biases: &Tensor, group: i64, bits: i64) -> Result<Tensor> {
    let format = Affine::of("dequantize_affine", group, bits)?;
    let n = columns("dequantize_affine", w, scales, biases, format)?;
    let mut shape = Shape::from_slice(&w.shape()[..w.ndim() - 1]);
    shape.push(n);
    let prim = Prim::Quantized(QuantizedOp::DequantizeAffine { format });
    dispatch::apply1(prim, &[w, scales, biases], Meta::new(&shape, scales.dtype()))
}

/// The columns of a product with matrices of rows `w`, where `x` has as many columns as they need.
fn product_columns(
    op: &'static str,
    x: &Tensor,
    w: &Tensor,
    columns: usize,
    transpose: bool,
    least: usize,
) -> Result<usize> {
    schema::quantized_matmul.check(x.dtype())?;
    let rows = w.shape()[w.ndim() - 2];
    let (inner, outer) = if transpose { (columns, rows) } else { (rows, columns) };
    if x.ndim() < least || x.shape()[x.ndim() - 1] != inner {
        let why = format!(
            "expected x of at least {least} dimensions, the last of size {inner}, for rows ({rows}, {columns})"
        );
        return Err(Error::shape(op, why, &[x.shape(), w.shape()]));
    }
    Ok(outer)
}

#[allow(clippy::too_many_arguments)]
fn matmul_body(
    x: &Tensor,
    w: &Tensor,
    scales: &Tensor,
    biases: &Tensor,
    transpose: bool,
    group: i64,
    bits: i64,
) -> Result<Tensor> {
    const OP: &str = "quantized_matmul";
    let format = Affine::of(OP, group, bits)?;
    let n = columns(OP, w, scales, biases, format)?;
    if w.ndim() != 2 {
        return Err(Error::shape(OP, "expected one quantised matrix; gather_qmm takes several", &[w.shape()]));
    }
    let outer = product_columns(OP, x, w, n, transpose, 1)?;
    product(x, [w, scales, biases], outer, format, transpose)
}

fn product(x: &Tensor, [w, scales, biases]: [&Tensor; 3], outer: usize, format: Affine, t: bool) -> Result<Tensor> {
    let mut shape = Shape::from_slice(&x.shape()[..x.ndim() - 1]);
    shape.push(outer);
    let prim = Prim::Quantized(QuantizedOp::QuantizedMatmul { format, transpose: t });
    let inputs = [x, w, &scales.cast(x.dtype())?, &biases.cast(x.dtype())?];
    dispatch::apply1(prim, &inputs, Meta::new(&shape, x.dtype()))
}

/// The other product with the same matrix: `dx = g W` of `y = x Wᵀ`.
fn quantized_gradient(c: &Ctx<'_>, g: &Tensor, format: Affine, transpose: bool) -> Result<Grads> {
    if c.needs(2) || c.needs(3) {
        return c.not_differentiable();
    }
    let mut grads = Grads::new();
    grads.push(match c.needs(0) {
        true => {
            let inner = c.shape(0).last().copied().unwrap_or(1);
            Some(product(g, [&c.x(1)?, &c.x(2)?, &c.x(3)?], inner, format, !transpose)?)
        }
        false => None,
    });
    Ok(grads)
}

fn dynamic_body(
    x: &Tensor,
    w: &Tensor,
    packing: &str,
    scales: Option<&Tensor>,
    biases: Option<&Tensor>,
    group: i64,
) -> Result<Tensor> {
    const OP: &str = "dynamic_quantized_matmul";
    let packing = Packing::of(OP, packing)?;
    schema::dynamic_quantized_matmul.check(x.dtype())?;
    if w.ndim() != 2 {
        return Err(Error::shape(OP, "expected one quantised matrix", &[w.shape()]));
    }
    let format = Affine::of(OP, group, packing.bits().min(8) as i64)?;
    let (n, outer) = match (packing.block(), scales, biases) {
        (None, Some(scales), Some(biases)) => {
            let n = columns(OP, w, scales, biases, format)?;
            (n, product_columns(OP, x, w, n, true, 1)?)
        }
        (Some((elements, bytes)), None, None) => {
            if w.dtype() != DType::U8 {
                return Err(Error::dtype(OP, "expected blocks as bytes, dtype uint8", &[w.dtype()]));
            }
            if !w.shape()[1].is_multiple_of(bytes) {
                let why = format!("rows are no whole blocks of {bytes} bytes");
                return Err(Error::shape(OP, why, &[w.shape()]));
            }
            let n = w.shape()[1] / bytes * elements;
            (n, product_columns(OP, x, w, n, true, 1)?)
        }
        _ => return Err(Error::value(OP, "scales and biases belong to affine4 and affine8, and to them alone")),
    };
    if n == 0 {
        return Err(Error::shape(OP, "rows have no elements", &[w.shape()]));
    }
    let mut shape = Shape::from_slice(&x.shape()[..x.ndim() - 1]);
    shape.push(outer);
    let prim = Prim::Quantized(QuantizedOp::DynamicMatmul { packing, group: format.group });
    let meta = Meta::new(&shape, x.dtype());
    match (scales, biases) {
        (Some(s), Some(b)) => dispatch::apply1(prim, &[x, w, &s.cast(x.dtype())?, &b.cast(x.dtype())?], meta),
        _ => dispatch::apply1(prim, &[x, w], meta),
    }
}

/// As if `x` had not been rounded.
fn dynamic_gradient(c: &Ctx<'_>, g: &Tensor, packing: Packing, group: usize) -> Result<Grads> {
    let Some((elements, bytes)) = packing.block() else {
        return quantized_gradient(c, g, Affine { group, bits: packing.bits() }, true);
    };
    let mut grads = Grads::new();
    grads.push(match c.needs(0) {
        true => {
            let w = c.x(1)?;
            let shape = [w.shape()[0], w.shape()[1] / bytes * elements];
            let name = Packing::ALL.iter().find(|(p, _)| *p == packing).map_or("", |(_, name)| name);
            let kind = crate::llm::blocks::Kind::of_name(name)
                .ok_or_else(|| Error::runtime("dynamic_quantized_matmul", "no such blocks"))?;
            let dense = crate::llm::blocks::dequantize(&w.to(crate::Device::Cpu)?, kind, &shape)?;
            Some(g.matmul(&dense.cast(g.dtype())?.to(g.device())?)?)
        }
        false => None,
    });
    Ok(grads)
}

/// As many indices as there are pairs, of int64.
fn indices(op: &'static str, x: &Tensor, shape: &[usize]) -> Result<Tensor> {
    if !matches!(x.dtype(), DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64) {
        return Err(Error::dtype(op, "expected integer indices", &[x.dtype()]));
    }
    reshape_to(&expand_to(&x.cast(DType::I64)?, shape)?, &[shape::numel(shape)])
}

#[allow(clippy::too_many_arguments)]
fn gather_body(
    x: &Tensor,
    w: &Tensor,
    scales: &Tensor,
    biases: &Tensor,
    rhs: &Tensor,
    lhs: Option<&Tensor>,
    transpose: bool,
    group: i64,
    bits: i64,
) -> Result<Tensor> {
    const OP: &str = "gather_qmm";
    let format = Affine::of(OP, group, bits)?;
    let n = columns(OP, w, scales, biases, format)?;
    if w.ndim() != 3 {
        return Err(Error::shape(OP, "expected w of shape (E, N, K*bits/32)", &[w.shape()]));
    }
    let outer = product_columns(OP, x, w, n, transpose, 2)?;
    let lead = x.ndim() - 2;
    let (rows, inner) = (x.shape()[lead], x.shape()[lead + 1]);
    let count = shape::numel(&x.shape()[..lead]);
    let all;
    let lhs = match lhs {
        Some(lhs) => lhs,
        None => {
            all = reshape_to(&arange_of(count, x.device())?, &x.shape()[..lead])?;
            &all
        }
    };
    let mut shape = shape::broadcast(OP, lhs.shape(), rhs.shape())?;
    let (lhs, rhs) = (indices(OP, lhs, &shape)?, indices(OP, rhs, &shape)?);
    let x = reshape_to(x, &[count, rows, inner])?;
    let made = gather(&x, [w, scales, biases], &lhs, &rhs, outer, format, transpose)?;
    shape.extend_from_slice(&[rows, outer]);
    reshape_to(&made, &shape)
}

fn gather(
    x: &Tensor,
    [w, scales, biases]: [&Tensor; 3],
    lhs: &Tensor,
    rhs: &Tensor,
    outer: usize,
    format: Affine,
    transpose: bool,
) -> Result<Tensor> {
    let meta = Meta::new(&[lhs.numel(), x.shape()[1], outer], x.dtype());
    let prim = Prim::Quantized(QuantizedOp::GatherQmm { format, transpose });
    let inputs = [x, w, &scales.cast(x.dtype())?, &biases.cast(x.dtype())?, lhs, rhs];
    dispatch::apply1(prim, &inputs, meta)
}

/// Each pair's other product, added to the matrix of `x` that it took.
fn gather_gradient(c: &Ctx<'_>, g: &Tensor, format: Affine, transpose: bool) -> Result<Grads> {
    if c.needs(2) || c.needs(3) {
        return c.not_differentiable();
    }
    let mut grads = Grads::new();
    grads.push(match c.needs(0) {
        true => {
            let of = c.shape(0);
            let (lhs, rhs) = (c.x(4)?, c.x(5)?);
            let each = arange_of(lhs.numel(), g.device())?;
            let parts = gather(g, [&c.x(1)?, &c.x(2)?, &c.x(3)?], &each, &rhs, of[2], format, !transpose)?;
            Some(Tensor::full_of(of, Scalar::Float(0.0), g.dtype(), g.device())?.index_add(
                0,
                &lhs,
                &parts,
                Scalar::ONE,
            )?)
        }
        false => None,
    });
    Ok(grads)
}
