//! A decoder-only transformer: Llama 2 and 3, SmolLM, Mistral, Mixtral, Qwen 2.5 and 3, Gemma 2 and 3 and Phi-3,
//! without Python.
//!
//! Depends on `cache`, `config`, `rope`, `sampling`, `weights` and the engine's ops. It infers; Python's `lucid.llm`, whose
//! arithmetic it shares below modules, trains too. Invariant: a file of any bytes gives an error or a model; positions beyond
//! the context are an error.

pub use super::cache::Cache;
use super::cache::Step;
use super::config::Config;
use super::layer::{logits, Layer, Norm};
use super::rope::Angles;
use super::sampling::{draw, Settings};
use super::weights::{failed, of_folder, of_gguf, Matrix, Tensors};
use crate::dispatch;
use crate::ops::nn;
use crate::{no_grad, DType, Device, Generator, Result, Scalar, Tensor};
use parking_lot::Mutex;
use std::path::Path;

/// Tokens of a prompt that go through the model at once.
const CHUNK: usize = 512;
/// Positions by which the table of rotations grows.
const TABLE: usize = 1024;
/// Layers of a prompt that a GPU is given at once.
const BEGUN: usize = 4;

/// Has the GPU device kernels for whole layers?
pub fn runs_decoder_layers() -> bool {
    dispatch::runs_decoder_layers()
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
    /// Cosines and sines of positions, of both rotations.
    tables: Mutex<[Option<[Tensor; 2]>; 2]>,
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
        let (config, tensors) = of(path, device, rounds)?;
        Decoder::of_tensors(config, tensors, device)
    }

    /// Of tensors on a device, whose memory it shares.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] for tensors that are missing, left over or of other shapes.
    pub fn of_tensors(config: Config, mut tensors: Tensors, device: Device) -> Result<Decoder> {
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
        Ok(Decoder { config, embed, layers, norm, head, device, tables: Mutex::default() })
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
        self.logits_of(&[tokens], cache)?.reshape(&[-1])
    }

    /// The logits (L, vocab_size) after each of a few tokens of one text.
    pub(super) fn logits_of_each(&self, tokens: &[u32], cache: &mut Cache) -> Result<Tensor> {
        self.logits_from(&[tokens], cache, true)
    }

    /// The logits (B, vocab_size) after tokens of each of B texts, as many of each, which come behind what the cache has.
    pub(super) fn logits_of(&self, texts: &[&[u32]], cache: &mut Cache) -> Result<Tensor> {
        self.logits_from(texts, cache, false)
    }

    /// The same, or with `each` (B·L, vocab_size) after each of the last tokens that go through the model at once.
    fn logits_from(&self, texts: &[&[u32]], cache: &mut Cache, each: bool) -> Result<Tensor> {
        let (most, count) = (self.config.vocab_size, texts.first().map_or(0, |text| text.len()));
        let end = cache.len() + count;
        if count == 0 || texts.iter().any(|text| text.len() != count || text.iter().any(|&t| t as usize >= most)) {
            return Err(failed(format!("tokens must be at least one, each below {most}")));
        }
        if end > self.config.context {
            return Err(failed(format!("{end} tokens do not fit into the model's context of {}", self.config.context)));
        }
        if cache.texts().is_some_and(|held| held != texts.len()) {
            let (held, given) = (cache.texts().unwrap_or(0), texts.len());
            return Err(failed(format!("the cache has {held} texts, and there are tokens of {given}")));
        }
        let mut last = None;
        for at in (0..count).step_by(CHUNK) {
            let parts: Vec<&[u32]> = texts.iter().map(|text| &text[at..count.min(at + CHUNK)]).collect();
            let made = no_grad(|| self.forward(&parts, cache, each));
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
        let table = Tensor::of_elements(&table, &[1, table.len()], self.device)?;
        let positions: Vec<f32> = (offset..offset + count).map(|p| p as f32).collect();
        let angles = (Tensor::of_elements(&positions, &[count, 1], self.device)? * &table)?;
        let scaled = |t: Tensor| if factor == 1.0 { t.cast(dtype) } else { (t * factor)?.cast(dtype) };
        Ok([scaled(angles.cos()?)?, scaled(angles.sin()?)?])
    }

    /// The first layer's input (N, hidden_size).
    fn embedded(&self, tokens: &Tensor) -> Result<Tensor> {
        let x = self.embed.rows(tokens)?;
        match self.config.scale_embeddings {
            false => Ok(x),
            true => {
                let by = Scalar::Float((self.config.hidden_size as f64).sqrt());
                &x * &Tensor::full_of(&[], by, x.dtype(), self.device)?
            }
        }
    }

    /// Cosines and sines (count, dim / 2), float32, of positions from `at` on: views of a table where the length of the
    /// text does not matter. `which` tells the table.
    fn angles_at(&self, rope: &Angles, at: usize, count: usize, which: usize) -> Result<[Tensor; 2]> {
        if rope.limit()?.is_some() {
            return self.angles(rope, at, count, DType::F32);
        }
        let mut tables = self.tables.lock();
        let end = at + count;
        let held = tables[which].as_ref().filter(|t| t[0].shape()[0] >= end);
        let table = match held {
            Some(table) => table.clone(),
            None => {
                let made = self.angles(rope, 0, end.next_multiple_of(TABLE), DType::F32)?;
                crate::eval(&[&made[0], &made[1]], true)?;
                tables[which] = Some(made.clone());
                made
            }
        };
        let rows = |t: &Tensor| t.narrow(0, at as i64, count as i64);
        Ok([rows(&table[0])?, rows(&table[1])?])
    }

    fn forward(&self, texts: &[&[u32]], cache: &mut Cache, each: bool) -> Result<Tensor> {
        let c = &self.config;
        let (offset, batch, count) = (cache.len(), texts.len(), texts.first().map_or(0, |text| text.len()));
        let numbers: Vec<i64> = texts.iter().flat_map(|text| text.iter().map(|&t| t.into())).collect();
        let numbers = Tensor::of_elements(&numbers, &[batch * count], self.device)?;
        let mut x = self.embedded(&numbers)?.reshape(&[batch as isize, count as isize, c.hidden_size as isize])?;
        let whole = self.angles(&c.rope, offset, count, x.dtype())?;
        let local = c.local_rope.as_ref().map(|rope| self.angles(rope, offset, count, x.dtype())).transpose()?;
        let mut step = Step::new(offset, count, cache.padding().to_vec(), self.device);
        let mut attend =
            |i: usize, layer: &Layer, x: &Tensor, angles: [&Tensor; 2], cache: &mut Cache| -> Result<Tensor> {
                let [q, k, v] = layer.projected(c, x, angles)?;
                let window = c.windows[i];
                let ([k, v], first) = cache.update(i, [k, v], window)?;
                let mask = step.mask(window, first)?;
                self.attended([&q, &k, &v], mask.as_ref(), mask.is_none() && count > 1)
            };
        for (i, layer) in self.layers.iter().enumerate() {
            let angles = c.windows[i].and(local.as_ref()).unwrap_or(&whole).each_ref();
            let made = attend(i, layer, &x, angles, cache)?;
            x = layer.behind(c, &made, &x)?;
        }
        cache.advance(count);
        let x = if each { x } else { x.narrow(1, count as i64 - 1, 1)? };
        self.ended(&x.reshape(&[-1, c.hidden_size as isize])?)
    }

    /// The logits (M, vocab_size) of the last layer's states (M, hidden_size).
    fn ended(&self, x: &Tensor) -> Result<Tensor> {
        let logits = logits(x, &self.norm, self.head.as_ref().unwrap_or(&self.embed))?;
        match self.config.logit_cap {
            None => Ok(logits),
            Some(cap) => (logits / cap)?.tanh()? * cap,
        }
    }

    /// Attention of queries to keys and values.
    fn attended(&self, [q, k, v]: [&Tensor; 3], mask: Option<&Tensor>, causal: bool) -> Result<Tensor> {
        match self.config.attention_cap {
            None => nn::scaled_dot_product_attention(q, k, v, mask, 0.0, causal, Some(self.config.scale), true),
            Some(cap) => self.capped([q, k, v], mask, causal, cap),
        }
    }

    /// The logits (B, vocab_size) after the last of more tokens (B, L) of each of B texts, which come behind `at` others in
    /// the layers' keys and values (B, heads, room, head_dim), two for each layer, and are written there. Nothing where a
    /// layer sees a window alone that is shorter than the text, and for several tokens where the device has no kernels for
    /// layers.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] for buffers that do not fit, and what the ops report.
    pub fn step(&self, tokens: &Tensor, buffers: &[[Tensor; 2]], at: usize) -> Result<Option<Tensor>> {
        let c = &self.config;
        let &[batch, length] = tokens.shape() else { return Ok(None) };
        let end = at + length;
        if c.windows.iter().flatten().any(|&w| end > w) || length > 1 && !dispatch::runs_decoder_layers() {
            return Ok(None);
        }
        let room = buffers.first().and_then(|b| b[0].shape().get(2).copied()).unwrap_or(0);
        let shape = [batch, c.kv_heads, room, c.head_dim];
        if buffers.len() != c.layers() || buffers.iter().flatten().any(|b| b.shape() != shape) || end > room {
            let why = format!("step: {} layers need keys and values {shape:?} with room for {end} tokens", c.layers());
            return Err(failed(why));
        }
        no_grad(|| {
            let x = self.embedded(&tokens.reshape(&[-1])?)?;
            let mut x = x.reshape(&[batch as isize, length as isize, c.hidden_size as isize])?;
            let whole = self.angles_at(&c.rope, at, length, 0)?;
            let local = c.local_rope.as_ref().map(|rope| self.angles_at(rope, at, length, 1)).transpose()?;
            let mut mask = None;
            // What packed matrices unpack to is in memory from when it is begun: that of two parts at most.
            let waits = self.layers.iter().any(Layer::is_packed);
            let mut before = None;
            for (i, layer) in self.layers.iter().enumerate() {
                let angles = c.windows[i].and(local.as_ref()).unwrap_or(&whole).each_ref();
                let last = i + 1 == self.layers.len();
                if let Some(made) = layer.launched(c, &x, angles, buffers[i].each_ref(), at, last)? {
                    x = made;
                    // A prompt's first layers are computed while the next are recorded.
                    if length > 1 && !last && (i + 1).is_multiple_of(BEGUN) {
                        crate::eval(&[&x], false)?;
                        if let Some(before) = before.replace(x.clone()).filter(|_| waits) {
                            crate::eval(&[&before], true)?;
                        }
                    }
                    continue;
                }
                let [q, k, v] = layer.projected(c, &x, angles)?;
                for (buffer, new) in buffers[i].iter().zip([&k, &v]) {
                    buffer.narrow(2, at as i64, length as i64)?.copy_(new)?;
                }
                if mask.is_none() && length > 1 {
                    let mut step = Step::new(at, length, Vec::new(), self.device);
                    mask = step.mask(Some(end), 0)?;
                }
                let all = |t: &Tensor| t.narrow(2, 0, end as i64);
                let causal = length > 1 && mask.is_none();
                let held = [&all(&buffers[i][0])?, &all(&buffers[i][1])?];
                let made = self.attended([&q, held[0], held[1]], mask.as_ref(), causal)?;
                x = layer.behind(c, &made, &x)?;
            }
            let x = x.narrow(1, x.shape()[1] as i64 - 1, 1)?;
            self.ended(&x.reshape(&[batch as isize, c.hidden_size as isize])?).map(Some)
        })
    }

    /// Attention whose scores go through `cap · tanh(score / cap)`.
    fn capped(&self, [q, k, v]: [&Tensor; 3], mask: Option<&Tensor>, causal: bool, cap: f64) -> Result<Tensor> {
        let c = &self.config;
        // Queries that share a key's head lie beside each other.
        let (batch, count, keys) = (q.shape()[0], q.shape()[2], k.shape()[2]);
        let shared = (c.heads / c.kv_heads) as isize;
        let q = q.reshape(&[batch as isize, c.kv_heads as isize, shared, count as isize, c.head_dim as isize])?;
        let scores = (q.matmul(&k.unsqueeze(2)?.transpose(-1, -2)?)? * c.scale)?;
        let mut scores = ((scores / cap)?.tanh()? * cap)?.cast(DType::F32)?;
        let seen;
        let mask = match (mask, causal) {
            (None, true) => {
                let below = (0..count).flat_map(|q| (0..keys).map(move |k| k <= q)).collect::<Vec<_>>();
                seen = Tensor::of_elements(&below, &[count, keys], self.device)?;
                Some(&seen)
            }
            (mask, _) => mask,
        };
        if let Some(mask) = mask {
            // One for each text, (B, 1, L, S), goes for all heads that share a key's.
            let mask = if mask.ndim() == 4 { mask.unsqueeze(1)? } else { mask.clone() };
            scores = scores.masked_fill(&mask.logical_not()?, -1e30)?;
        }
        let made = scores.softmax(-1, None)?.cast(v.dtype())?.matmul(&v.unsqueeze(2)?)?;
        made.reshape(&[batch as isize, c.heads as isize, count as isize, c.head_dim as isize])
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
        self.ensure_room(cache.len() + prompt.len(), most)?;
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

    /// Do so many tokens behind others fit into the context?
    pub(super) fn ensure_room(&self, held: usize, most: usize) -> Result<()> {
        let (all, context) = (held.saturating_add(most), self.config.context);
        match all > context {
            true => Err(failed(format!(
                "{all} tokens, {most} of them new, do not fit into the model's context of {context}"
            ))),
            false => Ok(()),
        }
    }
}
