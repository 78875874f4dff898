//! A layer of a decoder: its matrices and norms, and the products of rows that it is made of, each with what precedes and
//! follows it. Few rows on a GPU take one launch each.
//!
//! Depends on `config`, `rope`, `weights` and the engine's ops. Invariant: what one launch gives is what the ops that it
//! stands for give, but for the roundings between them.

use super::config::{Activation, Config};
use super::rope::rotate;
use super::weights::{Matrix, Tensors};
use crate::dispatch::{self, After, Gate};
use crate::nn::Approximate;
use crate::ops::{nn, norm};
use crate::{DType, Device, Result, Tensor};
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

pub(super) struct Layer {
    pub(super) q: Matrix,
    pub(super) k: Matrix,
    pub(super) v: Matrix,
    pub(super) o: Matrix,
    pub(super) gate: Matrix,
    pub(super) up: Matrix,
    pub(super) down: Matrix,
    pub(super) input_norm: Norm,
    pub(super) post_norm: Norm,
    /// Before and behind the MLP (Gemma), where `post_norm` is behind attention.
    pub(super) mlp_norms: Option<[Norm; 2]>,
    /// Of queries and keys.
    pub(super) head_norms: Option<[Norm; 2]>,
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
            gate: t.matrix(&name("mlp.gate_proj"), inner, h, c.mlp_bias)?,
            up: t.matrix(&name("mlp.up_proj"), inner, h, c.mlp_bias)?,
            down: t.matrix(&name("mlp.down_proj"), h, inner, c.mlp_bias)?,
        })
    }

    pub(super) fn bytes(&self) -> usize {
        let all = [&self.q, &self.k, &self.v, &self.o, &self.gate, &self.up, &self.down];
        all.iter().map(|m| m.bytes()).sum()
    }
}

/// A norm that a launch takes up, or that goes before it.
fn taken<'a>(norm: &'a Norm, x: &Tensor) -> Option<(&'a Tensor, f64)> {
    (!norm.wide && norm.weight.dtype() == x.dtype()).then_some((&norm.weight, norm.eps))
}

/// Products of a few rows (M, K) in one launch, behind the norm; nothing where ops are what there is.
fn launched(
    x: &Tensor,
    norm: Option<&Norm>,
    matrices: &[&Matrix],
    after: &After<'_>,
) -> Result<Option<SmallVec<[Tensor; 3]>>> {
    if x.device() != Device::Gpu || crate::graph::recording() || crate::autograd::grad_enabled() {
        return Ok(None);
    }
    let parts = matrices.iter().map(|m| m.row_matrix()).collect::<Option<SmallVec<[_; 3]>>>();
    let Some(parts) = parts else { return Ok(None) };
    match norm.map(|norm| (taken(norm, x), norm)) {
        None => dispatch::row_products(x, None, &parts, after),
        Some((Some(norm), _)) => dispatch::row_products(x, Some(norm), &parts, after),
        Some((None, norm)) => dispatch::row_products(&norm.apply(x)?, None, &parts, after),
    }
}

impl Layer {
    /// Queries, keys and values (B, heads, L, head_dim) of `x` (B, L, hidden_size), rotated by cosines and sines
    /// (L, dim / 2).
    pub(super) fn heads(&self, c: &Config, x: &Tensor, [cos, sin]: [&Tensor; 2]) -> Result<[Tensor; 3]> {
        let (batch, length) = (x.shape()[0], x.shape()[1]);
        let rows = x.reshape(&[(batch * length) as isize, c.hidden_size as isize])?;
        let matrices = [&self.q, &self.k, &self.v];
        let split = |y: &Tensor, heads: usize| -> Result<Tensor> {
            let y = y.reshape(&[batch as isize, length as isize, heads as isize, c.head_dim as isize])?;
            y.transpose(1, 2)
        };
        let counts = [c.heads, c.kv_heads, c.kv_heads];
        let whole = 2 * cos.numel() == c.head_dim && self.head_norms.is_none();
        let turned = match whole {
            true => launched(&rows, Some(&self.input_norm), &matrices, &After::Rotated(c.head_dim, [cos, sin]))?,
            false => None,
        };
        if let Some([q, k, v]) = turned.as_deref() {
            return Ok([split(q, counts[0])?, split(k, counts[1])?, split(v, counts[2])?]);
        }
        let made = match launched(&rows, Some(&self.input_norm), &matrices, &After::Kept(None))? {
            Some(made) => made,
            None => {
                let rows = self.input_norm.apply(&rows)?;
                matrices.iter().map(|m| m.product(&rows)).collect::<Result<_>>()?
            }
        };
        let of = |at: usize, norm: Option<&Norm>| -> Result<Tensor> {
            let y = made[at].reshape(&[batch as isize, length as isize, counts[at] as isize, c.head_dim as isize])?;
            norm.map_or(Ok(y.clone()), |norm| norm.apply(&y))?.transpose(1, 2)
        };
        let [q_norm, k_norm] = match &self.head_norms {
            Some([q, k]) => [Some(q), Some(k)],
            None => [None, None],
        };
        Ok([rotate(&of(0, q_norm)?, cos, sin)?, rotate(&of(1, k_norm)?, cos, sin)?, of(2, None)?])
    }

    /// What attention gave (B, heads, L, head_dim) through its last matrix: added to `x` (B, L, hidden_size) if asked for.
    pub(super) fn joined(&self, attended: &Tensor, x: &Tensor, added: bool) -> Result<Tensor> {
        let (shape, rows) = (x.shape(), x.shape()[0] * x.shape()[1]);
        let flat = attended.transpose(1, 2)?.reshape(&[rows as isize, -1])?;
        self.last(&self.o, &flat, x, added)?.reshape(&shape.iter().map(|&n| n as isize).collect::<SmallVec<[_; 3]>>())
    }

    /// What follows attention, to the layer's end.
    pub(super) fn behind(&self, c: &Config, attended: &Tensor, x: &Tensor) -> Result<Tensor> {
        match &self.mlp_norms {
            None => {
                let x = self.joined(attended, x, true)?;
                self.mlp(c, &x, &self.post_norm, true)
            }
            Some([before, behind]) => {
                let x = (x + &self.post_norm.apply(&self.joined(attended, x, false)?)?)?;
                &x + &behind.apply(&self.mlp(c, &x, before, false)?)?
            }
        }
    }

    /// The product of rows with a matrix, added to `x` if asked for.
    fn last(&self, matrix: &Matrix, rows: &Tensor, x: &Tensor, added: bool) -> Result<Tensor> {
        let x = x.reshape(&[rows.shape()[0] as isize, -1])?;
        let after = After::Kept(added.then_some(&x));
        if let Some([made]) = launched(rows, None, &[matrix], &after)?.as_deref() {
            return Ok(made.clone());
        }
        let made = matrix.product(rows)?;
        if added {
            &x + &made
        } else {
            Ok(made)
        }
    }

    /// The MLP of `x` (B, L, hidden_size) behind a norm, added to `x` if asked for.
    pub(super) fn mlp(&self, c: &Config, x: &Tensor, norm: &Norm, added: bool) -> Result<Tensor> {
        let rows = x.reshape(&[(x.shape()[0] * x.shape()[1]) as isize, c.hidden_size as isize])?;
        let gate = match c.activation {
            Activation::Silu => Some(Gate::Silu),
            Activation::GeluTanh => Some(Gate::GeluTanh),
            Activation::Gelu => None,
        };
        let made = match gate {
            Some(gate) => launched(&rows, Some(norm), &[&self.gate, &self.up], &After::Gated(gate))?,
            None => None,
        };
        let inner = match made.as_deref() {
            Some([inner]) => inner.clone(),
            _ => {
                let rows = norm.apply(&rows)?;
                let gate = self.gate.product(&rows)?;
                let gate = match c.activation {
                    Activation::Silu => gate.silu()?,
                    Activation::Gelu => nn::gelu(&gate, Approximate::None)?,
                    Activation::GeluTanh => nn::gelu(&gate, Approximate::Tanh)?,
                };
                (&gate * &self.up.product(&rows)?)?
            }
        };
        let y = self.last(&self.down, &inner, x, added)?;
        y.reshape(&x.shape().iter().map(|&n| n as isize).collect::<SmallVec<[_; 3]>>())
    }
}

/// The products of the last rows `x` (M, hidden_size) with the vocabulary's matrix, behind the last norm.
pub(super) fn logits(x: &Tensor, norm: &Norm, matrix: &Matrix) -> Result<Tensor> {
    match launched(x, Some(norm), &[matrix], &After::Kept(None))?.as_deref() {
        Some([made]) => Ok(made.clone()),
        _ => matrix.product(&norm.apply(x)?),
    }
}
