//! Attention, and the gradient through it.
//!
//! Depends on `softmax_kernels` and mlx-ffi's fused attention. Invariant: a query that may look nowhere gets zeros, and passes
//! no gradient; whole weights (L, S) live no longer than a step of it.

use super::array::GpuArray;
use super::convert::{self, constant, int};
use super::custom_kernel;
use super::emulator::Language;
use super::factor::transposed;
use super::kernel_error::{Fault, Made};
use super::layout_kernels::row_major;
use super::softmax_kernels;
use super::value::Value;
use crate::{DType, Result};
use lucid_ir::Meta;
use mlx_ffi::device::{self, Kind};
use mlx_ffi::{fast, ops, Array, Dtype};

/// Queries from which on two products and a kernel between them beat MLX's attention in float32, for which CUDA has no
/// fused one.
const QUERIES: usize = 16;

/// The weights of all queries over all keys; `None` where a kernel of our own cannot take them.
fn weights(q: &Array, k: &Array, mask: Option<&Array>, causal: bool, scale: f64) -> Made<Option<Array>> {
    softmax_kernels::weights(&ops::matmul(q, &transposed(k)?)?, mask, causal, scale)
}

/// As two products, where that is the quicker way. Heads are brought one after the other: MLX runs a product for each batch of
/// them where they are strided views of one projection.
fn by_products(x: [&Value; 3], mask: Option<&GpuArray>, causal: bool, quick: bool, scale: f64) -> Made<Option<Array>> {
    let [q, k, v] = x;
    let cuda = custom_kernel::language() == Some(Language::Cuda) && custom_kernel::room().is_some();
    if !cuda || !quick {
        return Ok(None);
    }
    let mask = mask.map(|m| Ok::<Array, Fault>(m.value()?.logical()?.into_owned())).transpose()?;
    match weights(&row_major(q)?, &row_major(k)?, mask.as_ref(), causal, scale)? {
        Some(p) => Ok(Some(ops::matmul(&p, &row_major(v)?)?)),
        None => Ok(None),
    }
}

/// MLX's fused attention. Its causal mask ends in the lower right corner and its masks leave rows that see nothing
/// undefined, so other causal masks are spelled out, and such rows are set to zero.
pub(super) fn attention(
    x: [&GpuArray; 3],
    mask: Option<&GpuArray>,
    causal: bool,
    scale: f64,
    out: &Meta,
) -> Made<Array> {
    let (length, keys) = (x[0].shape()[2], x[1].shape()[2]);
    if device::kind()? == Kind::Cpu {
        // There the scores are an array.
        convert::countable(&[out.shape[0], out.shape[1], length, keys])?;
    }
    let values = [x[0].value()?, x[1].value()?, x[2].value()?];
    let alike = x[0].shape()[1] == x[1].shape()[1] && x[0].element() == DType::F32;
    let quick = alike && length >= QUERIES;
    if let Some(made) = by_products([&values[0], &values[1], &values[2]], mask, causal, quick, scale)? {
        return Ok(made);
    }
    let (q, k, v) = (values[0].logical()?, values[1].logical()?, values[2].logical()?);
    let run = |how: &str, mask: Option<&Array>| {
        fast::scaled_dot_product_attention(&q, &k, &v, scale as f32, how, mask, None, false)
    };
    let Some(mask) = mask else {
        return Ok(match causal {
            true if length == keys => run("causal", None)?,
            true => run("array", Some(&ops::tri(int(length)?, int(keys)?, 0, Dtype::Bool)?))?,
            false => run("", None)?,
        });
    };
    let mask = mask.value()?;
    let mask = mask.logical()?;
    let open = match mask.dtype() {
        Dtype::Bool => ops::any_axis(&mask, -1, true)?,
        _ => ops::any_axis(&ops::logical_not(&ops::isneginf(&mask)?)?, -1, true)?,
    };
    let y = run("array", Some(&mask))?;
    Ok(ops::where_(&open, &y, &constant(0.0, out.dtype)?)?)
}

/// The gradient through attention of `x`, query, key and value, from `g`, to those of them that are `asked` for: with the
/// weights `P`, made again, `dV = Pᵀ g`, `dS = scale P (g Vᵀ - sum(P g Vᵀ))`, `dQ = dS K`, `dKᵀ = Qᵀ dS`, which comes transposed
/// as PyTorch's. `None` where no kernel of our own can take it.
pub fn attention_gradients(
    g: &GpuArray,
    x: [&GpuArray; 3],
    mask: Option<&GpuArray>,
    causal: bool,
    scale: f64,
    asked: [bool; 3],
) -> Result<Option<[Option<GpuArray>; 3]>> {
    let recorded = || -> Made<Option<[Option<GpuArray>; 3]>> {
        let alike = x[0].shape()[1] == x[1].shape()[1] && x.iter().all(|x| x.element() == g.element() && x.numel() > 0);
        if !alike || g.numel() == 0 || custom_kernel::room().is_none() {
            return Ok(None);
        }
        let logical = |x: &GpuArray| row_major(&*x.value()?);
        let (g, [q, k, v]) = (logical(g)?, [logical(x[0])?, logical(x[1])?, logical(x[2])?]);
        let mask = mask.map(logical).transpose()?;
        let Some(p) = weights(&q, &k, mask.as_ref(), causal, scale)? else { return Ok(None) };
        let made = |array: Array, like: &GpuArray| GpuArray::new(Value::plain(array), like.shape(), like.element());
        let to_value = match asked[2] {
            true => Some(made(ops::matmul(&transposed(&p)?, &g)?, x[2])?),
            false => None,
        };
        let [mut to_query, mut to_key] = [None, None];
        if asked[0] || asked[1] {
            let to_weights = ops::matmul(&g, &transposed(&v)?)?;
            let Some(to_scores) = softmax_kernels::back(&to_weights, &p, false, scale)? else { return Ok(None) };
            if asked[0] {
                to_query = Some(made(ops::matmul(&to_scores, &k)?, x[0])?);
            }
            if asked[1] {
                let array = ops::matmul(&transposed(&q)?, &to_scores)?;
                let [b, h, s, e] = [0, 1, 2, 3].map(|i| x[1].shape()[i]);
                to_key = Some(GpuArray::new(Value::plain(array), &[b, h, e, s], x[1].element())?);
            }
        }
        Ok(Some([to_query, to_key, to_value]))
    };
    recorded().map_err(|e| e.of("scaled_dot_product_attention"))
}
