//! Attention of several heads.

use super::module::located;
use super::options::{dtype_or_default, filled, options};
use super::{field, init, Linear, Module, Place};
use crate::ops::nn;
use crate::shape::numel;
use crate::{DType, Device, Error, Result, Tensor};

/// Attention of several heads (Vaswani et al., 2017), with PyTorch's names: `in_proj_weight`, `in_proj_bias`, `out_proj`.
#[derive(Clone, Debug, Module)]
pub struct MultiheadAttention {
    /// (3 · embed, embed): the projections of queries, keys and values.
    pub in_proj_weight: Option<Tensor>,
    /// (embed, embed), where keys or values have other sizes than queries.
    pub q_proj_weight: Option<Tensor>,
    /// (embed, kdim)
    pub k_proj_weight: Option<Tensor>,
    /// (embed, vdim)
    pub v_proj_weight: Option<Tensor>,
    /// (3 · embed)
    pub in_proj_bias: Option<Tensor>,
    /// The projection of what the heads give.
    pub out_proj: Linear,
    embed: usize,
    heads: usize,
    dropout: f64,
    batch_first: bool,
    training: bool,
    place: Place,
}

options! {
    /// What a [`MultiheadAttention`] is made of.
    MultiheadAttentionOptions for MultiheadAttention (
        /// Size of queries and results.
        embed_dim: usize, usize;
        /// How many heads; they divide the size.
        num_heads: usize, usize;
    )
    /// Probability with which weights are zeroed in training. Default: 0.
    dropout: f64, f64 = 0.0;
    /// Are biases added? Default: true.
    bias: bool, bool = true;
    /// Size of the keys. Default: as the queries.
    kdim: Option<usize>, usize = None;
    /// Size of the values. Default: as the queries.
    vdim: Option<usize>, usize = None;
    /// Are sequences (N, L, E) rather than (L, N, E)? Default: false.
    batch_first: bool, bool = false;
}

impl MultiheadAttentionOptions {
    fn make(&self, device: Device) -> Result<MultiheadAttention> {
        let (e, dtype) = (self.embed_dim, dtype_or_default(self.dtype));
        if e == 0 || self.num_heads == 0 || !e.is_multiple_of(self.num_heads) {
            let why = format!("embed_dim {e} must be above 0 and divisible by num_heads {}", self.num_heads);
            return Err(Error::value("multi_head_attention", why));
        }
        if !(0.0..=1.0).contains(&self.dropout) {
            let why = format!("dropout has to be between 0 and 1, but got {}", self.dropout);
            return Err(Error::value("multi_head_attention", why));
        }
        let weight = |rows: usize, columns: usize| {
            let w = filled(&[rows, columns], 0.0, dtype, device)?;
            init::xavier_uniform(&w, 1.0)?;
            w.requires_grad_(true)
        };
        let (k, v) = (self.kdim.unwrap_or(e), self.vdim.unwrap_or(e));
        let same = k == e && v == e;
        let alone = |columns: usize| (!same).then(|| weight(e, columns)).transpose();
        let out_proj = field("out_proj", Linear::options(e, e).bias(self.bias).dtype(dtype).build(device))?;
        if let Some(bias) = &out_proj.bias {
            init::zeros(bias)?;
        }
        let in_proj_bias =
            self.bias.then(|| super::options::parameter(&[numel(&[3, e])], 0.0, dtype, device)).transpose()?;
        Ok(MultiheadAttention {
            in_proj_weight: same.then(|| weight(numel(&[3, e]), e)).transpose()?,
            q_proj_weight: alone(e)?,
            k_proj_weight: alone(k)?,
            v_proj_weight: alone(v)?,
            in_proj_bias,
            out_proj,
            embed: e,
            heads: self.num_heads,
            dropout: self.dropout,
            batch_first: self.batch_first,
            training: true,
            place: Place::default(),
        })
    }
}

/// What a call of attention may be told.
#[derive(Clone, Copy, Debug, Default)]
pub struct AttentionMask<'a> {
    /// (L, S) or (N · heads, L, S): true where a query must not see a key, or numbers to add to the scores.
    pub attn_mask: Option<&'a Tensor>,
    /// (N, S): true where a key is padding, or numbers to add.
    pub key_padding_mask: Option<&'a Tensor>,
    /// May queries see no later keys? `attn_mask` is not needed then.
    pub is_causal: bool,
}

impl AttentionMask<'_> {
    /// Queries see no later keys.
    pub fn causal() -> Self {
        AttentionMask { is_causal: true, ..AttentionMask::default() }
    }
}

/// A mask as numbers to add to scores.
fn additive(mask: &Tensor, like: &Tensor) -> Result<Tensor> {
    if mask.dtype() == DType::Bool {
        let zeros = filled(mask.shape(), 0.0, like.dtype(), mask.device())?;
        return zeros.masked_fill(mask, f64::NEG_INFINITY);
    }
    if !mask.dtype().is_float() {
        return Err(Error::dtype("multi_head_attention", "masks are of bool or floating dtype", &[mask.dtype()]));
    }
    mask.cast(like.dtype())
}

impl MultiheadAttention {
    /// Queries (L, N, E), keys (S, N, kdim) and values (S, N, vdim), or without N, or batch first, to (L, N, E).
    ///
    /// # Errors
    /// For shapes that do not fit.
    pub fn forward(&self, query: &Tensor, key: &Tensor, value: &Tensor, mask: AttentionMask<'_>) -> Result<Tensor> {
        Ok(self.run(query, key, value, mask, false)?.0)
    }

    /// [`forward`](MultiheadAttention::forward), and the weights (N, L, S), averaged over the heads.
    ///
    /// # Errors
    /// For shapes that do not fit.
    pub fn with_weights(
        &self,
        query: &Tensor,
        key: &Tensor,
        value: &Tensor,
        mask: AttentionMask<'_>,
    ) -> Result<(Tensor, Tensor)> {
        let (out, weights) = self.run(query, key, value, mask, true)?;
        let weights = weights.ok_or_else(|| Error::runtime("multi_head_attention", "the weights are missing"))?;
        Ok((out, weights))
    }

    fn run(
        &self,
        query: &Tensor,
        key: &Tensor,
        value: &Tensor,
        mask: AttentionMask<'_>,
        show: bool,
    ) -> Result<(Tensor, Option<Tensor>)> {
        located(self, || {
            let shapes = [query.shape(), key.shape(), value.shape()];
            let bad = |why: String| Err(Error::shape("multi_head_attention", why, &shapes));
            if !matches!(query.ndim(), 2 | 3) || key.ndim() != query.ndim() || value.ndim() != query.ndim() {
                return bad("query, key and value should all be unbatched 2-D or all batched 3-D".into());
            }
            let alone = query.ndim() == 2;
            let front = |x: &Tensor| match (alone, self.batch_first) {
                (true, _) => x.unsqueeze(0),
                (false, true) => Ok(x.clone()),
                (false, false) => x.transpose(0, 1),
            };
            let (q, k, v) = (front(query)?, front(key)?, front(value)?);
            let (n, length, keys) = (q.shape()[0], q.shape()[1], k.shape()[1]);
            if q.shape()[2] != self.embed {
                return bad(format!("was expecting embedding dimension of {}", self.embed));
            }
            if k.shape()[..2] != v.shape()[..2] || k.shape()[0] != n {
                return bad("key's sequence and batch sizes do not match value's or query's".into());
            }
            let (q, k, v) = self.projected(&q, &k, &v)?;
            let split = |x: &Tensor, steps: usize| {
                let shape = [n as isize, steps as isize, self.heads as isize, (self.embed / self.heads) as isize];
                x.reshape(&shape)?.transpose(1, 2)
            };
            let (q, k, v) = (split(&q, length)?, split(&k, keys)?, split(&v, keys)?);
            let merged = self.mask(mask, &q, keys, alone)?;
            // The kernel's own causal mask serves where it is the only one and no weights are shown.
            let causal = mask.is_causal && merged.is_none() && !show;
            let merged = match (mask.is_causal && !causal, merged) {
                (false, merged) => merged,
                (true, merged) => {
                    let ones = filled(&[length, keys], 1.0, DType::F32, q.device())?;
                    let later = additive(&ones.triu(1)?.gt(0.0)?, &q)?;
                    Some(match merged {
                        Some(mask) => (mask + &later)?,
                        None => later,
                    })
                }
            };
            let dropout = if self.training { self.dropout } else { 0.0 };
            let (mixed, shown) = if show {
                let scale = 1.0 / ((self.embed / self.heads) as f64).sqrt();
                let scores = (&q * scale)?.matmul(&k.transpose(-2, -1)?)?;
                let scores = match &merged {
                    Some(mask) => (scores + mask)?,
                    None => scores,
                };
                let weights = nn::dropout(&scores.softmax(-1, None)?, dropout, dropout > 0.0, None)?;
                (weights.matmul(&v)?, Some(weights.mean(Some(&[1]), false, None)?))
            } else {
                let made = nn::scaled_dot_product_attention(&q, &k, &v, merged.as_ref(), dropout, causal, None, false)?;
                (made, None)
            };
            let rows = mixed.transpose(1, 2)?.reshape(&[n as isize, length as isize, self.embed as isize])?;
            let out = nn::linear(&rows, &self.out_proj.weight, self.out_proj.bias.as_ref())?;
            match (alone, self.batch_first) {
                (true, _) => Ok((out.squeeze(Some(&[0]))?, shown.map(|w| w.squeeze(Some(&[0]))).transpose()?)),
                (false, true) => Ok((out, shown)),
                (false, false) => Ok((out.transpose(0, 1)?, shown)),
            }
        })
    }

    fn projected(&self, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<(Tensor, Tensor, Tensor)> {
        let e = self.embed as i64;
        let bias = |i: i64| self.in_proj_bias.as_ref().map(|b| b.narrow(0, i * e, e)).transpose();
        let weights = match (&self.in_proj_weight, &self.q_proj_weight, &self.k_proj_weight, &self.v_proj_weight) {
            (Some(w), ..) => [w.narrow(0, 0, e)?, w.narrow(0, e, e)?, w.narrow(0, 2 * e, e)?],
            (None, Some(q), Some(k), Some(v)) => [q.clone(), k.clone(), v.clone()],
            _ => return Err(Error::runtime("multi_head_attention", "a projection is missing")),
        };
        let [wq, wk, wv] = &weights;
        let own = |x: &Tensor, w: &Tensor, i: i64| nn::linear(x, w, bias(i)?.as_ref());
        Ok((own(q, wq, 0)?, own(k, wk, 1)?, own(v, wv, 2)?))
    }

    /// Both masks as one to add to the scores (N, heads, L, S).
    fn mask(&self, mask: AttentionMask<'_>, q: &Tensor, keys: usize, alone: bool) -> Result<Option<Tensor>> {
        let (n, length) = (q.shape()[0], q.shape()[2]);
        let bad = |what: &str, wanted: &str, t: &Tensor| {
            Err(Error::shape("multi_head_attention", format!("{what} should be of shape {wanted}"), &[t.shape()]))
        };
        let mut total = match mask.attn_mask {
            None => None,
            Some(m) if m.shape() == [length, keys] => Some(additive(m, q)?),
            Some(m) if m.shape() == [numel(&[n, self.heads]), length, keys] => {
                let shape = [n as isize, self.heads as isize, length as isize, keys as isize];
                Some(additive(m, q)?.reshape(&shape)?)
            }
            Some(m) => return bad("attn_mask", &format!("({length}, {keys}) or (N · heads, {length}, {keys})"), m),
        };
        if let Some(m) = mask.key_padding_mask {
            let own = if alone { m.unsqueeze(0)? } else { m.clone() };
            if own.shape() != [n, keys] {
                return bad("key_padding_mask", &format!("({n}, {keys})"), m);
            }
            let hidden = additive(&own, q)?.reshape(&[n as isize, 1, 1, keys as isize])?;
            total = Some(match total {
                Some(mask) => (mask + &hidden)?,
                None => hidden,
            });
        }
        Ok(total)
    }
}
