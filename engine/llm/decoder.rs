//! A decoder-only transformer: Llama 2 and 3, SmolLM, Mistral, Qwen 2.5 and 3, Gemma 2 and 3 and Phi-3, without Python.
//!
//! Depends on `config`, `rope`, `sampling`, `weights` and the engine's ops. It infers; Python's `lucid.llm`, whose arithmetic
//! it shares below modules, trains too and has mixtures of experts. Invariant: a file of any bytes gives an error or a
//! model; positions beyond the context are an error.

use super::config::{Activation, Config};
use super::rope::{rotate, Angles};
use super::sampling::{draw, Settings};
use super::weights::{failed, of_folder, of_gguf, Matrix, Tensors};
use crate::nn::Approximate;
use crate::ops::index::cat;
use crate::ops::{nn, norm};
use crate::{no_grad, DType, Device, Error, Generator, Result, Scalar, Tensor};
use std::path::Path;

const OP: &str = "llm";
/// Tokens by which a cache grows at least.
const STEP: usize = 256;
/// Tokens of a prompt that go through the model at once.
const CHUNK: usize = 512;

/// The vectors of a norm.
struct Norm {
    weight: Tensor,
    eps: f64,
    /// Is the weight to be multiplied in float32?
    wide: bool,
}

impl Norm {
    fn of(tensors: &mut Tensors, name: &str, size: usize, config: &Config) -> Result<Norm> {
        let weight = tensors.take(&format!("{name}.weight"), &[size])?;
        let weight = match config.unit_offset {
            true => (weight.cast(DType::F32)? + 1.0)?,
            false => weight,
        };
        Ok(Norm { weight, eps: config.eps, wide: config.unit_offset })
    }

    fn apply(&self, x: &Tensor) -> Result<Tensor> {
        let size = [self.weight.numel() as isize];
        match self.wide {
            true => norm::rms_norm(&x.cast(DType::F32)?, &size, Some(&self.weight), Some(self.eps))?.cast(x.dtype()),
            false => norm::rms_norm(x, &size, Some(&self.weight), Some(self.eps)),
        }
    }
}

struct Layer {
    q: Matrix,
    k: Matrix,
    v: Matrix,
    o: Matrix,
    gate: Matrix,
    up: Matrix,
    down: Matrix,
    input_norm: Norm,
    post_norm: Norm,
    /// Before and behind the MLP (Gemma), where `post_norm` is behind attention.
    mlp_norms: Option<[Norm; 2]>,
    /// Of queries and keys.
    head_norms: Option<[Norm; 2]>,
}

impl Layer {
    fn of(t: &mut Tensors, c: &Config, number: usize) -> Result<Layer> {
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

    fn bytes(&self) -> usize {
        let all = [&self.q, &self.k, &self.v, &self.o, &self.gate, &self.up, &self.down];
        all.iter().map(|m| m.bytes()).sum()
    }
}

/// The keys and values of one layer, (1, heads, tokens, head_dim) each.
struct LayerCache {
    buffers: [Tensor; 2],
    /// The number of the first token in them.
    first: usize,
}

/// Keys and values of what a model has read.
#[derive(Default)]
pub struct Cache {
    layers: Vec<LayerCache>,
    length: usize,
}

impl Cache {
    /// How many tokens were read.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Was nothing read yet?
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Bytes of all buffers.
    pub fn bytes(&self) -> usize {
        self.layers.iter().flat_map(|l| &l.buffers).map(|t| t.numel() * t.dtype().size()).sum()
    }

    /// Adds a layer's keys and values; all that it has, and the number of the first token among them.
    fn update(&mut self, layer: usize, new: [Tensor; 2], window: Option<usize>) -> Result<([Tensor; 2], usize)> {
        let (start, count) = (self.length, new[0].shape()[2]);
        let end = start + count;
        if self.layers.len() <= layer {
            let buffers = [new[0].contiguous()?, new[1].contiguous()?];
            self.layers.push(LayerCache { buffers, first: start });
            return Ok((new, start));
        }
        let held = &mut self.layers[layer];
        if end - held.first > held.buffers[0].shape()[2] {
            // What no later token looks at is forgotten.
            let first = window.map_or(0, |w| (start + 1).saturating_sub(w)).max(held.first);
            let kept = start - first;
            let room = (2 * kept).max(kept + count).next_multiple_of(STEP);
            for buffer in &mut held.buffers {
                let mut shape = buffer.shape().to_vec();
                shape[2] = room - kept;
                let spare = Tensor::full_of(&shape, Scalar::Float(0.0), buffer.dtype(), buffer.device())?;
                *buffer = cat(&[buffer.narrow(2, (first - held.first) as i64, kept as i64)?, spare], 2)?;
            }
            held.first = first;
        }
        let at = (start - held.first) as i64;
        for (buffer, new) in held.buffers.iter().zip(&new) {
            buffer.narrow(2, at, count as i64)?.copy_(new)?;
        }
        let all = |t: &Tensor| t.narrow(2, 0, at + count as i64);
        Ok(([all(&held.buffers[0])?, all(&held.buffers[1])?], held.first))
    }
}

/// Cosines and sines for one call, and which tokens queries may look at.
struct Step {
    offset: usize,
    count: usize,
    device: Device,
    /// A mask for each window and first key that was asked for.
    masks: Vec<(Option<usize>, usize, Option<Tensor>)>,
}

impl Step {
    /// Which keys (S) each query (L) may look at, where causality alone does not say it.
    fn mask(&mut self, window: Option<usize>, first: usize) -> Result<Option<Tensor>> {
        if let Some((_, _, made)) = self.masks.iter().find(|m| m.0 == window && m.1 == first) {
            return Ok(made.clone());
        }
        let end = self.offset + self.count;
        let within = window.is_none_or(|w| end - first <= w);
        let made = match within && (self.offset == first || self.count == 1) {
            true => None,
            false => {
                let reach = window.unwrap_or(usize::MAX);
                let seen = |query: usize, key: usize| key <= query && query - key < reach;
                let mut mask = crate::fallible::with_capacity(self.count * (end - first))?;
                mask.extend((self.offset..end).flat_map(|query| (first..end).map(move |key| seen(query, key))));
                Some(Tensor::from_slice(&mask, &[self.count, end - first], self.device)?)
            }
        };
        self.masks.push((window, first, made.clone()));
        Ok(made)
    }
}

/// A language model.
///
/// # Examples
/// ```no_run
/// use lucid::{llm::decoder::{Cache, Decoder}, llm::sampling::Settings, Device};
/// let model = Decoder::load("model.gguf", Device::Cpu)?;
/// model.generate(&[1, 2, 3], 16, &Settings::default(), None, &mut Cache::default(), |token| {
///     println!("{token}");
///     Ok(true)
/// })?;
/// # lucid::Result::<()>::Ok(())
/// ```
pub struct Decoder {
    config: Config,
    embed: Matrix,
    layers: Vec<Layer>,
    norm: Norm,
    head: Option<Matrix>,
    device: Device,
}

impl Decoder {
    /// Of a folder with `config.json` and safetensors, or of a GGUF file.
    ///
    /// # Errors
    /// [`Error::Io`] for files that are missing or damaged, [`Error::InvalidValue`] for what does not fit together, and
    /// [`Error::NotImplemented`] for architectures that are not read here.
    pub fn load(path: impl AsRef<Path>, device: Device) -> Result<Decoder> {
        Decoder::load_with(path, device, false)
    }

    /// The same; if `rounds`, activations are rounded to 8 bits before products with quantised matrices of 4 or 8 bits and
    /// with ggml's blocks, which then stay as they are in the file. The CPU is much faster so.
    ///
    /// # Errors
    /// As [`load`](Decoder::load), and [`Error::InvalidValue`] where it is asked for on a GPU.
    pub fn load_with(path: impl AsRef<Path>, device: Device, rounds: bool) -> Result<Decoder> {
        let path = path.as_ref();
        if rounds && device != Device::Cpu {
            return Err(failed("activations of 8 bits are the CPU's"));
        }
        let of = if path.is_dir() { of_folder } else { of_gguf };
        let (config, mut tensors) = of(path, device, rounds)?;
        let (t, c) = (&mut tensors, &config);
        let embed = t.matrix("model.embed_tokens", c.vocab_size, c.hidden_size, false)?;
        let layers = (0..c.layers()).map(|i| Layer::of(t, c, i)).collect::<Result<Vec<_>>>()?;
        let norm = Norm::of(t, "model.norm", c.hidden_size, c)?;
        let head = match c.tied {
            true => {
                t.forget("lm_head.");
                None
            }
            false => Some(t.matrix("lm_head", c.vocab_size, c.hidden_size, false)?),
        };
        tensors.finish()?;
        config.rope.frequencies(0)?;
        Ok(Decoder { config, embed, layers, norm, head, device })
    }

    /// The sizes.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Bytes of the matrices.
    pub fn bytes(&self) -> usize {
        let ends = self.embed.bytes() + self.head.as_ref().map_or(0, Matrix::bytes);
        ends + self.layers.iter().map(Layer::bytes).sum::<usize>()
    }

    /// The logits (vocab_size) after tokens, which come behind what the cache has.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] for no tokens, tokens outside of the vocabulary, and what exceeds the model's context.
    pub fn logits(&self, tokens: &[u32], cache: &mut Cache) -> Result<Tensor> {
        let (most, end) = (self.config.vocab_size, cache.length + tokens.len());
        if tokens.is_empty() || tokens.iter().any(|&t| t as usize >= most) {
            return Err(failed(format!("tokens must be at least one, each below {most}")));
        }
        if end > self.config.context {
            return Err(failed(format!("{end} tokens do not fit into the model's context of {}", self.config.context)));
        }
        let mut last = None;
        for part in tokens.chunks(CHUNK) {
            let made = no_grad(|| self.forward(part, cache));
            match made {
                Ok(logits) => last = Some(logits),
                Err(e) => {
                    // Layers that were updated are ahead of those that were not.
                    *cache = Cache::default();
                    return Err(e);
                }
            }
        }
        last.ok_or_else(|| failed("there are no tokens"))
    }

    /// Cosines and sines (L, dim / 2) of positions.
    fn angles(&self, rope: &Angles, offset: usize, count: usize, dtype: DType) -> Result<[Tensor; 2]> {
        let (table, factor) = rope.frequencies(offset + count)?;
        let table: Vec<f32> = table.into_iter().map(|f| f as f32).collect();
        let table = Tensor::from_slice(&table, &[1, table.len()], self.device)?;
        let positions: Vec<f32> = (offset..offset + count).map(|p| p as f32).collect();
        let angles = (Tensor::from_slice(&positions, &[count, 1], self.device)? * &table)?;
        let scaled = |t: Tensor| if factor == 1.0 { t.cast(dtype) } else { (t * factor)?.cast(dtype) };
        Ok([scaled(angles.cos()?)?, scaled(angles.sin()?)?])
    }

    fn forward(&self, tokens: &[u32], cache: &mut Cache) -> Result<Tensor> {
        let c = &self.config;
        let (offset, count) = (cache.length, tokens.len());
        let numbers: Vec<i64> = tokens.iter().map(|&t| t.into()).collect();
        let numbers = Tensor::from_slice(&numbers, &[count], self.device)?;
        let mut x = self.embed.rows(&numbers)?.reshape(&[1, count as isize, c.hidden_size as isize])?;
        if c.scale_embeddings {
            let by = Scalar::Float((c.hidden_size as f64).sqrt());
            x = (&x * &Tensor::full_of(&[], by, x.dtype(), self.device)?)?;
        }
        let whole = self.angles(&c.rope, offset, count, x.dtype())?;
        let local = c.local_rope.as_ref().map(|rope| self.angles(rope, offset, count, x.dtype())).transpose()?;
        let mut step = Step { offset, count, device: self.device, masks: Vec::new() };
        for (i, layer) in self.layers.iter().enumerate() {
            let angles = c.windows[i].and(local.as_ref()).unwrap_or(&whole);
            let y = self.attend(layer, i, &layer.input_norm.apply(&x)?, angles, &mut step, cache)?;
            match &layer.mlp_norms {
                None => {
                    x = (&x + &y)?;
                    x = (&x + &self.mlp(layer, &layer.post_norm.apply(&x)?)?)?;
                }
                Some([before, behind]) => {
                    x = (&x + &layer.post_norm.apply(&y)?)?;
                    x = (&x + &behind.apply(&self.mlp(layer, &before.apply(&x)?)?)?)?;
                }
            }
        }
        cache.length += count;
        let x = self.norm.apply(&x.narrow(1, count as i64 - 1, 1)?)?;
        let logits = self.head.as_ref().unwrap_or(&self.embed).product(&x)?.reshape(&[-1])?;
        match c.logit_cap {
            None => Ok(logits),
            Some(cap) => (logits / cap)?.tanh()? * cap,
        }
    }

    fn mlp(&self, layer: &Layer, x: &Tensor) -> Result<Tensor> {
        let gate = layer.gate.product(x)?;
        let gate = match self.config.activation {
            Activation::Silu => gate.silu()?,
            Activation::Gelu => nn::gelu(&gate, Approximate::None)?,
            Activation::GeluTanh => nn::gelu(&gate, Approximate::Tanh)?,
        };
        layer.down.product(&(&gate * &layer.up.product(x)?)?)
    }

    fn attend(
        &self,
        layer: &Layer,
        number: usize,
        x: &Tensor,
        [cos, sin]: &[Tensor; 2],
        step: &mut Step,
        cache: &mut Cache,
    ) -> Result<Tensor> {
        let c = &self.config;
        let count = step.count as isize;
        let heads = |matrix: &Matrix, heads: usize, norm: Option<&Norm>| -> Result<Tensor> {
            let y = matrix.product(x)?.reshape(&[1, count, heads as isize, c.head_dim as isize])?;
            norm.map_or(Ok(y.clone()), |norm| norm.apply(&y))?.transpose(1, 2)
        };
        let [q_norm, k_norm] = match &layer.head_norms {
            Some([q, k]) => [Some(q), Some(k)],
            None => [None, None],
        };
        let q = rotate(&heads(&layer.q, c.heads, q_norm)?, cos, sin)?;
        let k = rotate(&heads(&layer.k, c.kv_heads, k_norm)?, cos, sin)?;
        let v = heads(&layer.v, c.kv_heads, None)?;
        let window = c.windows[number];
        let ([k, v], first) = cache.update(number, [k, v], window)?;
        let mask = step.mask(window, first)?;
        let causal = mask.is_none() && count > 1;
        let made = match c.attention_cap {
            None => {
                let (mask, scale) = (mask.as_ref(), Some(c.scale));
                nn::scaled_dot_product_attention(&q, &k, &v, mask, 0.0, causal, scale, true)?
            }
            Some(cap) => self.capped([&q, &k, &v], mask.as_ref(), causal, cap)?,
        };
        let made = made.transpose(1, 2)?.reshape(&[1, count, (c.heads * c.head_dim) as isize])?;
        layer.o.product(&made)
    }

    /// Attention whose scores go through `cap · tanh(score / cap)`.
    fn capped(&self, [q, k, v]: [&Tensor; 3], mask: Option<&Tensor>, causal: bool, cap: f64) -> Result<Tensor> {
        let c = &self.config;
        // Queries that share a key's head lie beside each other.
        let (count, keys) = (q.shape()[2], k.shape()[2]);
        let shared = (c.heads / c.kv_heads) as isize;
        let q = q.reshape(&[1, c.kv_heads as isize, shared, count as isize, c.head_dim as isize])?;
        let scores = (q.matmul(&k.unsqueeze(2)?.transpose(-1, -2)?)? * c.scale)?;
        let mut scores = ((scores / cap)?.tanh()? * cap)?.cast(DType::F32)?;
        let seen;
        let mask = match (mask, causal) {
            (None, true) => {
                let below = (0..count).flat_map(|q| (0..keys).map(move |k| k <= q)).collect::<Vec<_>>();
                seen = Tensor::from_slice(&below, &[count, keys], self.device)?;
                Some(&seen)
            }
            (mask, _) => mask,
        };
        if let Some(mask) = mask {
            scores = scores.masked_fill(&mask.logical_not()?, -1e30)?;
        }
        let made = scores.softmax(-1, None)?.cast(v.dtype())?.matmul(&v.unsqueeze(2)?)?;
        made.reshape(&[1, c.heads as isize, count as isize, c.head_dim as isize])
    }

    /// Goes on with a prompt: calls `each` with every new token until it says false, a token ends the text, or there are
    /// `most`.
    ///
    /// # Errors
    /// As [`logits`](Decoder::logits), for settings that are not possible, and what `each` reports.
    pub fn generate(
        &self,
        prompt: &[u32],
        most: usize,
        settings: &Settings,
        generator: Option<&Generator>,
        cache: &mut Cache,
        mut each: impl FnMut(u32) -> Result<bool>,
    ) -> Result<()> {
        settings.check()?;
        let all = (cache.length + prompt.len()).saturating_add(most);
        if all > self.config.context {
            let why = format!(
                "{all} tokens, {most} of them new, do not fit into the model's context of {}",
                self.config.context
            );
            return Err(Error::value(OP, why));
        }
        let mut logits = self.logits(prompt, cache)?;
        for left in (0..most).rev() {
            let rows = logits.reshape(&[1, -1])?;
            let chosen = no_grad(|| draw(&rows, settings, generator))?;
            let Some(&token) = chosen.first() else { break };
            if !each(token)? || self.config.ends.contains(&token) || left == 0 {
                break;
            }
            logits = self.logits(&[token], cache)?;
        }
        Ok(())
    }
}
