//! A layer of a decoder: its matrices and norms, and the products of rows that it is made of, each with what precedes and
//! follows it. Few rows on a GPU take one launch each.
//!
//! Depends on `config`, `rope`, `weights` and the engine's ops. Invariant: what one launch gives is what the ops that it
//! stands for give, but for the roundings between them.

use super::config::{Activation, Config};
use super::experts::Experts;
use super::rope::rotate;
use super::weights::{Matrix, Tensors};
use crate::dispatch::{self, DecoderLayer, Gate, KnownLayer};
use crate::nn::Approximate;
use crate::ops::{nn, norm};
use crate::{DType, Result, Tensor};
use smallvec::SmallVec;

/// The vectors of a norm.
pub(super) struct Norm {
    pub(super) weight: Tensor,
    pub(super) eps: f64,
    /// Is the weight to be multiplied in float32?
    pub(super) wide: bool,
}

impl Norm {
    pub(super) fn of(tensors: &mut Tensors, name: &str, size: usize, config: &Config) -> Result<Norm> {
        let weight = tensors.take(&format!("{name}.weight"), &[size])?;
        let weight = match config.unit_offset {
            true => (weight.cast(DType::F32)? + 1.0)?,
            false => weight,
        };
        Ok(Norm { weight, eps: config.eps, wide: config.unit_offset })
    }

    pub(super) fn apply(&self, x: &Tensor) -> Result<Tensor> {
        let size = [self.weight.numel() as isize];
        match self.wide {
            true => norm::rms_norm(&x.cast(DType::F32)?, &size, Some(&self.weight), Some(self.eps))?.cast(x.dtype()),
            false => norm::rms_norm(x, &size, Some(&self.weight), Some(self.eps)),
        }
    }
}

/// What follows attention.
pub(super) enum Mlp {
    /// Gate, up and down.
    Dense([Matrix; 3]),
    Experts(Experts),
}

pub(super) struct Layer {
    pub(super) q: Matrix,
    pub(super) k: Matrix,
    pub(super) v: Matrix,
    pub(super) o: Matrix,
    pub(super) mlp: Mlp,
    pub(super) input_norm: Norm,
    pub(super) post_norm: Norm,
    /// Before and behind the MLP (Gemma), where `post_norm` is behind attention.
    pub(super) mlp_norms: Option<[Norm; 2]>,
    /// Of queries and keys.
    pub(super) head_norms: Option<[Norm; 2]>,
    /// Of launches of the whole layer.
    known: KnownLayer,
}

impl Layer {
    pub(super) fn of(t: &mut Tensors, c: &Config, number: usize) -> Result<Layer> {
        let name = |part: &str| format!("model.layers.{number}.{part}");
        let (q, kv, h, inner) = (c.heads * c.head_dim, c.kv_heads * c.head_dim, c.hidden_size, c.intermediate_size);
        let norm = |t: &mut Tensors, part: &str, size| Norm::of(t, &name(part), size, c);
        Ok(Layer {
            input_norm: norm(t, "input_layernorm", h)?,
            post_norm: norm(t, "post_attention_layernorm", h)?,
            mlp_norms: match c.post_norms {
                true => Some([norm(t, "pre_feedforward_layernorm", h)?, norm(t, "post_feedforward_layernorm", h)?]),
                false => None,
            },
            head_norms: match c.qk_norm {
                true => Some([norm(t, "self_attn.q_norm", c.head_dim)?, norm(t, "self_attn.k_norm", c.head_dim)?]),
                false => None,
            },
            q: t.matrix(&name("self_attn.q_proj"), q, h, c.qkv_bias)?,
            k: t.matrix(&name("self_attn.k_proj"), kv, h, c.qkv_bias)?,
            v: t.matrix(&name("self_attn.v_proj"), kv, h, c.qkv_bias)?,
            o: t.matrix(&name("self_attn.o_proj"), h, q, c.o_bias)?,
            mlp: match c.mixture.as_ref().filter(|m| m.layers.get(number) == Some(&true)) {
                Some(mixture) => Mlp::Experts(Experts::of(t, mixture, &name("mlp"), h)?),
                None => Mlp::Dense([
                    t.matrix(&name("mlp.gate_proj"), inner, h, c.mlp_bias)?,
                    t.matrix(&name("mlp.up_proj"), inner, h, c.mlp_bias)?,
                    t.matrix(&name("mlp.down_proj"), h, inner, c.mlp_bias)?,
                ]),
            },
            known: KnownLayer::default(),
        })
    }

    /// Is a matrix of it packed?
    pub(super) fn is_packed(&self) -> bool {
        self.q.is_packed()
    }

    pub(super) fn bytes(&self) -> usize {
        let attention = [&self.q, &self.k, &self.v, &self.o].iter().map(|m| m.bytes()).sum::<usize>();
        attention
            + match &self.mlp {
                Mlp::Dense(matrices) => matrices.iter().map(Matrix::bytes).sum(),
                Mlp::Experts(experts) => experts.bytes(),
            }
    }
}

impl Layer {
    /// The layer's result for `x` (B, L, hidden_size) by a device's kernels, which write keys and values (B, kv_heads, room,
    /// head_dim) behind `at` others; with `last_alone` that of the last tokens, (B, 1, hidden_size). Nothing where there are
    /// none for it.
    pub(super) fn launched(
        &self,
        c: &Config,
        x: &Tensor,
        angles: [&Tensor; 2],
        buffers: [&Tensor; 2],
        at: usize,
        last_alone: bool,
    ) -> Result<Option<Tensor>> {
        let gate = match c.activation {
            Activation::Silu => Gate::Silu,
            Activation::GeluTanh => Gate::GeluTanh,
            Activation::Gelu => return Ok(None),
        };
        let plain = self.mlp_norms.is_none() && self.head_norms.is_none() && !self.input_norm.wide;
        let Mlp::Dense([gated, up, down]) = &self.mlp else { return Ok(None) };
        let all = [&self.q, &self.k, &self.v, &self.o, gated, up, down];
        let parts = all.iter().map(|m| m.row_matrix()).collect::<Option<SmallVec<[_; 7]>>>();
        let matrices = parts.and_then(|parts| parts.into_inner().ok());
        let (Some(matrices), true, false) = (matrices, plain && c.attention_cap.is_none(), is_followed()) else {
            return Ok(None);
        };
        let layer = DecoderLayer {
            matrices,
            norms: [&self.input_norm.weight, &self.post_norm.weight],
            eps: self.input_norm.eps,
            gate,
            heads: [c.heads, c.kv_heads, c.head_dim],
            scale: c.scale,
            known: &self.known,
        };
        dispatch::decoder_layer(x, &layer, angles, buffers, at, last_alone)
    }

    /// Queries, keys and values (B, heads, L, head_dim) of `x` (B, L, hidden_size), rotated by cosines and sines
    /// (L, dim / 2).
    pub(super) fn projected(&self, c: &Config, x: &Tensor, [cos, sin]: [&Tensor; 2]) -> Result<[Tensor; 3]> {
        let x = self.input_norm.apply(x)?;
        let [batch, length] = [x.shape()[0] as isize, x.shape()[1] as isize];
        let heads = |matrix: &Matrix, heads: usize, norm: Option<&Norm>| -> Result<Tensor> {
            let y = matrix.product(&x)?.reshape(&[batch, length, heads as isize, c.head_dim as isize])?;
            norm.map_or(Ok(y.clone()), |norm| norm.apply(&y))?.transpose(1, 2)
        };
        let [q_norm, k_norm] = match &self.head_norms {
            Some([q, k]) => [Some(q), Some(k)],
            None => [None, None],
        };
        let (q, k) = (heads(&self.q, c.heads, q_norm)?, heads(&self.k, c.kv_heads, k_norm)?);
        Ok([rotate(&q, cos, sin)?, rotate(&k, cos, sin)?, heads(&self.v, c.kv_heads, None)?])
    }

    /// What follows attention, which gave (B, heads, L, head_dim), to the layer's end.
    pub(super) fn behind(&self, c: &Config, attended: &Tensor, x: &Tensor) -> Result<Tensor> {
        let [batch, length] = [x.shape()[0] as isize, x.shape()[1] as isize];
        let y =
            self.o.product(&attended.transpose(1, 2)?.reshape(&[batch, length, (c.heads * c.head_dim) as isize])?)?;
        match &self.mlp_norms {
            None => {
                let x = (x + &y)?;
                &x + &self.mlp(c, &self.post_norm.apply(&x)?)?
            }
            Some([before, behind]) => {
                let x = (x + &self.post_norm.apply(&y)?)?;
                &x + &behind.apply(&self.mlp(c, &before.apply(&x)?)?)?
            }
        }
    }

    fn mlp(&self, c: &Config, x: &Tensor) -> Result<Tensor> {
        match &self.mlp {
            Mlp::Dense([gate, up, down]) => {
                down.product(&(&activated(&gate.product(x)?, c.activation)? * &up.product(x)?)?)
            }
            Mlp::Experts(experts) => experts.forward(x, c.activation),
        }
    }
}

/// The gate's activation.
pub(super) fn activated(gate: &Tensor, activation: Activation) -> Result<Tensor> {
    match activation {
        Activation::Silu => gate.silu(),
        Activation::Gelu => nn::gelu(gate, Approximate::None),
        Activation::GeluTanh => nn::gelu(gate, Approximate::Tanh),
    }
}

/// Does a tape or a graph want to see each op?
fn is_followed() -> bool {
    crate::graph::recording() || crate::autograd::grad_enabled()
}

/// The products of the last rows `x` (M, hidden_size) with the vocabulary's matrix, behind the last norm.
pub(super) fn logits(x: &Tensor, norm: &Norm, matrix: &Matrix) -> Result<Tensor> {
    let plain = !norm.wide && norm.weight.dtype() == x.dtype() && !is_followed();
    if let (Some(parts), true) = (matrix.row_matrix(), plain)
        && let Some(made) = dispatch::row_product(x, Some((&norm.weight, norm.eps)), parts)?
    {
        return Ok(made);
    }
    matrix.product(&norm.apply(x)?)
}
