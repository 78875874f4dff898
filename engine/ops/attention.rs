//! Scaled dot-product attention: what the row in `nn.rs` runs, its gradient, and its composition of other ops.
//!
//! The primitive takes query (B, H, L, E), key (B, K, S, E) and value (B, K, S, V), where K divides H, and a mask of four
//! dimensions, each full or 1. Its kernels are in `cpu/attention.rs` and `mlx/nn.rs`; neither keeps the (L, S) weights.
//! What it does not take (dropout, leading dimensions that broadcast, no elements) goes by the composition, which gives
//! the same results. Invariant: a query that may look nowhere gets zeros, and passes no gradient.

use super::nn::{dropout, schema, NnOp};
use super::view::{expand_to, reshape_to};
use crate::autograd::{requires_grad, Ctx, Grads, OpScope};
use crate::dispatch::{self, Meta, Prim};
use crate::shape::{self, Shape};
use crate::{DType, Device, Error, Result, Tensor};
use smallvec::SmallVec;

const OP: &str = "scaled_dot_product_attention";

/// The last dimension but `from_end`.
fn size(x: &Tensor, from_end: usize) -> usize {
    x.shape()[x.ndim() - 1 - from_end]
}

/// What comes before the last `n` dimensions.
fn lead(x: &Tensor, n: usize) -> &[usize] {
    &x.shape()[..x.ndim() - n]
}

fn check(q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>, causal: bool) -> Result<()> {
    schema::scaled_dot_product_attention.check(q.dtype())?;
    if k.dtype() != q.dtype() || v.dtype() != q.dtype() {
        let why = "expected query, key and value to have the same dtype; cast with .to()";
        return Err(Error::dtype(OP, why, &[q.dtype(), k.dtype(), v.dtype()]));
    }
    let shapes = [q.shape(), k.shape(), v.shape()];
    if shapes.iter().any(|s| s.len() < 2) {
        return Err(Error::shape(OP, "expected query, key and value to be at least 2 dimensional", &shapes));
    }
    if size(q, 0) != size(k, 0) {
        return Err(Error::shape(OP, "query and key must have the same last dimension", &shapes));
    }
    if size(k, 1) != size(v, 1) {
        return Err(Error::shape(OP, "key and value must have the same length, their last dimension but one", &shapes));
    }
    let Some(m) = mask else { return Ok(()) };
    if causal {
        return Err(Error::runtime(OP, "Explicit attn_mask should not be set when is_causal=True"));
    }
    if m.dtype() != q.dtype() && !matches!(m.dtype(), DType::Bool | DType::F32) {
        let why = "expected attn_mask dtype to be bool or float32 or to match the query's";
        return Err(Error::dtype(OP, why, &[m.dtype(), q.dtype()]));
    }
    Ok(())
}

/// Keys or values with each head repeated for the query's heads that share it.
fn for_heads(x: &Tensor, heads: usize) -> Result<Tensor> {
    let own = size(x, 2);
    if own == heads {
        return Ok(x.clone());
    }
    let mut wide = Shape::from_slice(lead(x, 2));
    wide.extend_from_slice(&[heads / own, size(x, 1), size(x, 0)]);
    let mut flat = Shape::from_slice(lead(x, 3));
    flat.extend_from_slice(&[heads, size(x, 1), size(x, 0)]);
    reshape_to(&expand_to(&x.unsqueeze(-3)?, &wide)?, &flat)
}

#[allow(clippy::too_many_arguments)]
pub(super) fn body(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    mask: Option<&Tensor>,
    dropout_p: f64,
    causal: bool,
    scale: Option<f64>,
    gqa: bool,
) -> Result<Tensor> {
    check(q, k, v, mask, causal)?;
    if dropout_p > 1.0 {
        return Err(Error::runtime(
            OP,
            format!("dropout probability has to be between 0 and 1, but got dropout_p={dropout_p}"),
        ));
    }
    let scale = scale.unwrap_or(1.0 / (size(q, 0) as f64).sqrt());
    let mask = mask.map(|m| if m.dtype() == DType::Bool { Ok(m.clone()) } else { m.cast(q.dtype()) }).transpose()?;
    let (mut k, mut v) = (k.clone(), v.clone());
    if gqa {
        if q.ndim() < 3 || k.ndim() < 3 || v.ndim() < 3 {
            let why = "enable_gqa=True needs a dimension of heads, the last but two";
            return Err(Error::shape(OP, why, &[q.shape(), k.shape(), v.shape()]));
        }
        let (heads, of_key, of_value) = (size(q, 2), size(&k, 2), size(&v, 2));
        if of_key == 0 || of_value == 0 || heads % of_key != 0 || heads % of_value != 0 {
            let why = "Number of heads in key and value must divide the number of heads in query";
            return Err(Error::shape(OP, why, &[q.shape(), k.shape(), v.shape()]));
        }
        if of_key != of_value {
            (k, v) = (for_heads(&k, heads)?, for_heads(&v, heads)?);
        }
    }
    let shared = if gqa { 3 } else { 2 };
    let alike = q.ndim() == k.ndim()
        && lead(q, shared) == lead(&k, shared)
        && lead(&k, 2) == lead(&v, 2)
        && [q, &k, &v].iter().all(|x| x.numel() > 0);
    let plain = dropout_p <= 0.0 && alike && !mask.as_ref().is_some_and(requires_grad);
    OpScope::rename(
        OP,
        match (q.ndim(), q.dtype()) {
            (3, _) => "unbatched",
            (4, _) if plain && size(q, 0) == size(&v, 0) => "scaled_dot_product_flash_attention_for_cpu",
            (_, DType::F16 | DType::BF16) => "cast",
            (2, _) => "mm",
            _ => "unsafe_view",
        },
    );
    if dropout_p > 0.0 || !alike {
        if gqa {
            (k, v) = (for_heads(&k, size(q, 2))?, for_heads(&v, size(q, 2))?);
        }
        return by_parts(q, &k, &v, mask.as_ref(), dropout_p, causal, scale);
    }
    let y = fused(q, &k, &v, mask.as_ref(), causal, scale)?;
    // PyTorch's has the layout of the query where that has its numbers side by side: heads that were put first can be put back
    // in a view.
    let order: SmallVec<[usize; 4]> = q.layout().memory_order().into_iter().rev().collect();
    let turned = order.last() == Some(&3) && !order.is_sorted();
    match q.ndim() == 4 && size(q, 0) == size(&v, 0) && turned && !y.is_batched() {
        true => y.contiguous_by(&order),
        false => Ok(y),
    }
}

/// The last two dimensions, and what comes before them as two: a batch, and heads.
fn as_four(x: &Tensor) -> Result<Tensor> {
    let n = x.ndim();
    let batch = shape::numel(&x.shape()[..n.saturating_sub(3)]);
    let heads = if n > 2 { size(x, 2) } else { 1 };
    reshape_to(x, &[batch, heads, size(x, 1), size(x, 0)])
}

/// The primitive, on tensors that have the same leading dimensions, but for the keys' and values' heads.
fn fused(q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>, causal: bool, scale: f64) -> Result<Tensor> {
    let mut shape = Shape::from_slice(lead(q, 1));
    shape.push(size(v, 0));
    let mask = match mask {
        None => None,
        Some(m) => {
            let mut full = Shape::from_slice(lead(q, 1));
            full.push(size(k, 1));
            if shape::broadcast(OP, m.shape(), &full)? != full {
                let why = "attn_mask must be expandable to (..., L, S)";
                return Err(Error::shape(OP, why, &[m.shape(), &full]));
            }
            // More than one batch dimension becomes one only where the mask has them all.
            let m = if q.ndim() > 4 && m.ndim() > 3 { expand_to(m, &full)? } else { m.clone() };
            let mut wide = Shape::from_elem(1, 4usize.saturating_sub(m.ndim()));
            wide.extend_from_slice(m.shape());
            Some(if m.ndim() > 4 { as_four(&m)? } else { reshape_to(&m, &wide)? })
        }
    };
    let (q, k, v) = (as_four(q)?, as_four(k)?, as_four(v)?);
    let meta = Meta::new(&[q.shape()[0], q.shape()[1], q.shape()[2], v.shape()[3]], q.dtype());
    let prim = Prim::Nn(NnOp::Attention { causal, scale });
    let y = match &mask {
        Some(m) => dispatch::apply1(prim, &[&q, &k, &v, m], meta)?,
        None => dispatch::apply1(prim, &[&q, &k, &v], meta)?,
    };
    reshape_to(&y, &shape)
}

/// Where a query may not look: `true` above the diagonal of (L, S).
fn later(q: &Tensor, k: &Tensor) -> Result<Tensor> {
    let (rows, cols) = (size(q, 1), size(k, 1));
    super::create::arange_of(rows, q.device())?.unsqueeze(1)?.lt(&super::create::arange_of(cols, q.device())?)
}

/// `softmax(scale · q kᵀ + mask)`; zeros in the rows that the mask hides altogether. No infinity goes into the softmax
/// of such a row, so that gradients of any order are zero there, not NaN.
fn weights(q: &Tensor, k: &Tensor, mask: Option<&Tensor>, causal: bool, scale: f64) -> Result<Tensor> {
    let scores = (q * scale)?.matmul(&k.transpose(-2, -1)?)?;
    if causal {
        return scores.masked_fill(&later(q, k)?, f64::NEG_INFINITY)?.softmax(-1, None);
    }
    let Some(m) = mask else { return scores.softmax(-1, None) };
    let hidden = match m.dtype() {
        DType::Bool => m.logical_not()?,
        _ => m.detach()?.eq(f64::NEG_INFINITY)?,
    };
    let blind = hidden.all(Some(&[-1]), true)?;
    let scores = match m.dtype() {
        DType::Bool => scores.masked_fill(&hidden, f64::NEG_INFINITY)?,
        _ => (scores + m)?,
    };
    scores.masked_fill(&blind, 0.0)?.softmax(-1, None)?.masked_fill(&blind, 0.0)
}

/// The same of other ops, with leading dimensions that broadcast, and with dropout of the weights. Of 16-bit floats in
/// float32, as in PyTorch.
fn by_parts(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    mask: Option<&Tensor>,
    dropout_p: f64,
    causal: bool,
    scale: f64,
) -> Result<Tensor> {
    let mut full = shape::broadcast(OP, lead(q, 2), lead(k, 2))?;
    shape::broadcast(OP, &full, lead(v, 2))?;
    if let Some(m) = mask {
        full.extend_from_slice(&[size(q, 1), size(k, 1)]);
        if shape::broadcast(OP, m.shape(), &full)? != full {
            return Err(Error::shape(OP, "attn_mask must be expandable to (..., L, S)", &[m.shape(), &full]));
        }
    }
    let of = |x: &Tensor| if x.dtype().is_half() { x.cast(DType::F32) } else { Ok(x.clone()) };
    let mask = mask.map(of).transpose()?;
    let shown = weights(&of(q)?, &of(k)?, mask.as_ref(), causal, scale)?;
    dropout(&shown, dropout_p.max(0.0), dropout_p > 0.0, None)?.matmul(&of(v)?)?.cast(q.dtype())
}

/// The gradient by a device's kernels, where it has them and nothing of it is recorded.
fn in_one_pass(c: &Ctx<'_>, g: &Tensor, causal: bool, scale: f64) -> Result<Option<Grads>> {
    let asked = [c.needs(0), c.needs(1), c.needs(2)];
    let saved = (0..c.len()).map(|i| c.x(i)).collect::<Result<SmallVec<[Tensor; 4]>>>()?;
    let inputs: SmallVec<[&Tensor; 5]> = std::iter::once(g).chain(&saved).collect();
    let followed = crate::autograd::grad_enabled() || inputs.iter().any(|t| crate::autograd::forward::carries(t));
    if g.device() != Device::Gpu || followed || crate::graph::recording() || c.len() > 3 && c.needs(3) {
        return Ok(None);
    }
    let made = dispatch::attention_gradients(&inputs, causal, scale, asked)?;
    Ok(made.map(|made| made.into_iter().chain((c.len() > 3).then_some(None)).collect()))
}

/// With the weights `P`, made again: `dV = Pᵀ g`, `dS = P (g Vᵀ - sum(P g Vᵀ))`, `dQ = scale dS K`, `dK = scale dSᵀ Q`,
/// and `dS` for the mask. The rows of all heads that share a key stand below each other, so that one product sums them.
///
/// Of 16-bit floats the CPU computes it in float32, as the forward pass, so that scores beyond 65504 are no infinities; on
/// a GPU products of 16 bits are what makes it fast.
pub(super) fn gradient(c: &Ctx<'_>, g: &Tensor, causal: bool, scale: f64) -> Result<Grads> {
    if let Some(grads) = in_one_pass(c, g, causal, scale)? {
        return Ok(grads);
    }
    // A graph holds steps of `dispatch` alone, and knows of the pass.
    let plain = g.device() == Device::Gpu && c.len() == 3 && !crate::autograd::grad_enabled();
    let recorded = match plain && crate::graph::recording() {
        true => crate::graph::recorded_values([g, &c.x(0)?, &c.x(1)?, &c.x(2)?]),
        false => None,
    };
    let wide = g.dtype().is_half() && g.device() == Device::Cpu;
    let of = |x: Tensor| if wide && x.dtype().is_half() { x.cast(DType::F32) } else { Ok(x) };
    let g = &of(g.clone())?;
    let (q, k, v) = (of(c.x(0)?)?, of(c.x(1)?)?, of(c.x(2)?)?);
    let mask = if c.len() > 3 { Some(of(c.x(3)?)?) } else { None };
    let full = [q.shape()[0], q.shape()[1], q.shape()[2], k.shape()[2]];
    let shared = q.shape()[1] != k.shape()[1];
    let below = |x: &Tensor| match shared {
        true => reshape_to(x, &[x.shape()[0], k.shape()[1], full[1] / k.shape()[1] * full[2], size(x, 0)]),
        false => Ok(x.clone()),
    };
    let mask = match (mask, causal && shared) {
        (Some(m), _) if shared => Some(below(&expand_to(&m, &[m.shape()[0], full[1], full[2], full[3]])?)?),
        (mask, false) => mask,
        (_, true) => Some(below(&expand_to(&later(&q, &k)?.logical_not()?, &full)?)?),
    };
    let (q2, g2) = (below(&q)?, below(g)?);
    let p = weights(&q2, &k, mask.as_ref(), causal && !shared, scale)?;
    let dp = g2.matmul(&v.transpose(-2, -1)?)?;
    let ds = super::nn::softmax_back(&dp, &p, p.ndim() - 1, false)?;
    let mut grads = Grads::new();
    grads.push(match c.needs(0) {
        true => Some(reshape_to(&(ds.matmul(&k)? * scale)?, q.shape())?),
        false => None,
    });
    // As PyTorch gives it: the keys are transposed for the product of its gradient.
    let of_keys = || (q2.transpose(-2, -1)?.matmul(&ds)? * scale)?.transpose(-2, -1);
    grads.push(if c.needs(1) { Some(of_keys()?) } else { None });
    grads.push(if c.needs(2) { Some(p.transpose(-2, -1)?.matmul(&g2)?) } else { None });
    if c.len() > 3 {
        grads.push(if c.needs(3) { Some(reshape_to(&ds, &full)?) } else { None });
    }
    if let (Some(inputs), [to_query, to_key, to_value]) = (recorded, &grads[..]) {
        let outputs = [to_query.as_ref(), to_key.as_ref(), to_value.as_ref()];
        crate::graph::note_composite(crate::graph::OnePass::AttentionGradient { causal, scale }, &inputs, &outputs);
    }
    Ok(grads)
}
