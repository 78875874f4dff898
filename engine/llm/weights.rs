//! A model's weights: of Hugging Face's folders, sharded or not, of mlx-community's quantised ones, and of GGUF files.
//!
//! Depends on `blocks`, `config`, `gguf` and `io`. Names are Hugging Face's. Invariant: every tensor of a file is used, and
//! has the shape that the configuration says; anything else is an error.

use super::blocks::{self, Kind};
use super::config::Config;
use super::gguf::Gguf;
use crate::dispatch::RowMatrix;
use crate::io::{header, header_len};
use crate::ops::index::stack;
use crate::ops::quantized::Packing;
use crate::ops::{nn, quantized};
use crate::{DType, Device, Error, Result, Tensor};
use serde_json::{json, Value as Json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

const OP: &str = "llm";
/// Blocks that are kept as they are where activations are rounded.
const KEPT: [Kind; 5] = [Kind::Q4_0, Kind::Q8_0, Kind::Q4_K, Kind::Q5_K, Kind::Q6_K];
/// Bytes that a file of settings may have.
const LONGEST: u64 = 1 << 28;

pub(super) fn failed(why: impl Into<String>) -> Box<Error> {
    Error::value(OP, why)
}

/// A matrix (rows, columns), and a bias (rows).
#[derive(Debug)]
pub struct Matrix {
    weight: Weight,
    bias: Option<Tensor>,
}

#[derive(Debug)]
enum Weight {
    Dense(Tensor),
    /// Packed words, scales and biases.
    Affine {
        parts: [Tensor; 3],
        group: i64,
        bits: i64,
        /// Are activations rounded to 8 bits for it?
        rounds: bool,
    },
    /// ggml's blocks as bytes (rows, bytes of a row), for which activations are rounded.
    Blocks {
        bytes: Tensor,
        kind: Kind,
        columns: usize,
    },
}

impl Matrix {
    /// `x Wᵀ + b`.
    ///
    /// # Errors
    /// For shapes that do not fit.
    pub fn product(&self, x: &Tensor) -> Result<Tensor> {
        match &self.weight {
            Weight::Dense(w) => nn::linear(x, w, self.bias.as_ref()),
            Weight::Affine { parts: [w, scales, biases], group, bits, rounds: false } => {
                self.biased(quantized::quantized_matmul(x, w, scales, biases, true, *group, *bits)?)
            }
            Weight::Affine { parts: [w, scales, biases], group, bits, rounds: true } => {
                let packing = if *bits == 4 { Packing::Affine4 } else { Packing::Affine8 };
                let sides = (Some(scales), Some(biases));
                self.biased(quantized::dynamic_quantized_matmul(x, w, packing, sides.0, sides.1, *group)?)
            }
            Weight::Blocks { bytes, kind, .. } => {
                let packing = Packing::of("dynamic_quantized_matmul", kind.name())?;
                self.biased(quantized::dynamic_quantized_matmul(x, bytes, packing, None, None, 32)?)
            }
        }
    }

    /// What a launch over a few rows takes of it; `None` where activations are rounded.
    pub(super) fn row_matrix(&self) -> Option<RowMatrix<'_>> {
        let bias = self.bias.as_ref();
        match &self.weight {
            Weight::Dense(weight) => Some(RowMatrix { weight, packed: None, bias }),
            Weight::Affine { parts: [weight, scales, biases], group, bits, rounds: false } => {
                Some(RowMatrix { weight, packed: Some((scales, biases, *group as usize, *bits as usize)), bias })
            }
            Weight::Affine { .. } | Weight::Blocks { .. } => None,
        }
    }

    fn biased(&self, y: Tensor) -> Result<Tensor> {
        self.bias.as_ref().map_or(Ok(y.clone()), |bias| &y + bias)
    }

    /// Rows by their numbers, as floats.
    ///
    /// # Errors
    /// For numbers that there are no rows of.
    pub fn rows(&self, numbers: &Tensor) -> Result<Tensor> {
        match &self.weight {
            Weight::Dense(w) => w.index_select(0, numbers),
            Weight::Affine { parts, group, bits, .. } => {
                let of = |t: &Tensor| t.index_select(0, numbers);
                quantized::dequantize_affine(&of(&parts[0])?, &of(&parts[1])?, &of(&parts[2])?, *group, *bits)
            }
            Weight::Blocks { bytes, kind, columns } => {
                let rows = bytes.index_select(0, numbers)?.reshape(&[-1])?;
                blocks::dequantize(&rows, *kind, &[numbers.numel(), *columns])
            }
        }
    }

    /// Of several matrices, that of an expert.
    ///
    /// # Errors
    /// For a number that there is none of.
    pub fn expert(&self, number: usize) -> Result<Matrix> {
        let of = |t: &Tensor| t.select(0, number as i64);
        let weight = match &self.weight {
            Weight::Dense(w) => Weight::Dense(of(w)?),
            &Weight::Affine { parts: [ref w, ref scales, ref biases], group, bits, rounds } => {
                Weight::Affine { parts: [of(w)?, of(scales)?, of(biases)?], group, bits, rounds }
            }
            &Weight::Blocks { ref bytes, kind, columns } => Weight::Blocks { bytes: of(bytes)?, kind, columns },
        };
        Ok(Matrix { weight, bias: None })
    }

    /// Of several packed matrices, the products of row `rows[i]` of `x` (N, columns) with that of expert `experts[i]`; `None`
    /// where they are not packed, or activations are rounded.
    ///
    /// # Errors
    /// For shapes that do not fit.
    pub fn gathered(&self, x: &Tensor, experts: &Tensor, rows: &Tensor) -> Result<Option<Tensor>> {
        let Weight::Affine { parts: [w, scales, biases], group, bits, rounds: false } = &self.weight else {
            return Ok(None);
        };
        let x = x.unsqueeze(1)?;
        let made = quantized::gather_qmm(&x, w, scales, biases, experts, Some(rows), true, *group, *bits)?;
        made.select(-2, 0).map(Some)
    }

    /// Are its elements packed words?
    pub(super) fn is_packed(&self) -> bool {
        matches!(self.weight, Weight::Affine { .. })
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        let of = |t: &Tensor| t.numel() * t.dtype().size();
        let weight = match &self.weight {
            Weight::Dense(w) => of(w),
            Weight::Affine { parts, .. } => parts.iter().map(of).sum(),
            Weight::Blocks { bytes, .. } => of(bytes),
        };
        weight + self.bias.as_ref().map_or(0, of)
    }
}

/// Tensors by name, which are taken out one by one.
#[derive(Default)]
pub struct Tensors {
    named: BTreeMap<String, Tensor>,
    /// Are activations rounded to 8 bits?
    rounds: bool,
}

impl Tensors {
    /// Of tensors that are in memory, under Hugging Face's names.
    pub fn of_named(named: BTreeMap<String, Tensor>) -> Tensors {
        Tensors { named, rounds: false }
    }

    /// A tensor of that shape.
    ///
    /// # Errors
    /// Where it is missing or has another one.
    pub fn take(&mut self, name: &str, shape: &[usize]) -> Result<Tensor> {
        let found = self.named.remove(name).ok_or_else(|| failed(format!("load: the tensor {name} is missing")))?;
        match found.shape() == shape {
            true => Ok(found),
            false => Err(failed(format!("load: {name} has shape {:?}, expected {shape:?}", found.shape()))),
        }
    }

    /// A matrix, dense or packed, with a bias where it is said to have one.
    ///
    /// # Errors
    /// As [`take`](Tensors::take).
    pub fn matrix(&mut self, name: &str, rows: usize, columns: usize, bias: bool) -> Result<Matrix> {
        let bias = if bias { Some(self.take(&format!("{name}.bias"), &[rows])?) } else { None };
        Ok(Matrix { weight: self.weight(name, &[rows, columns])?, bias })
    }

    /// The matrices of all experts of a layer, each (rows, columns), as one tensor or as one for each expert.
    ///
    /// # Errors
    /// As [`take`](Tensors::take).
    pub fn experts(&mut self, mlp: &str, part: &str, [count, rows, columns]: [usize; 3]) -> Result<Matrix> {
        let (first, name) = (format!("{mlp}.experts.0.{part}."), format!("{mlp}.{part}"));
        let kinds: Vec<String> = self.named.keys().filter_map(|n| n.strip_prefix(&first)).map(String::from).collect();
        for kind in kinds {
            let named = |i: usize| format!("{mlp}.experts.{i}.{part}.{kind}");
            let parts = (0..count).map(|i| self.named.remove(&named(i)).ok_or(i)).collect::<Result<Vec<_>, _>>();
            let parts = parts.map_err(|i| failed(format!("load: the tensor {} is missing", named(i))))?;
            self.named.insert(format!("{name}.{kind}"), stack(&parts, 0)?);
        }
        Ok(Matrix { weight: self.weight(&name, &[count, rows, columns])?, bias: None })
    }

    /// What is multiplied with, of a matrix (rows, columns) or of several.
    fn weight(&mut self, name: &str, shape: &[usize]) -> Result<Weight> {
        let (&columns, lead) = shape.split_last().unwrap_or((&0, &[]));
        for kind in KEPT {
            let Some(bytes) = self.named.remove(&format!("{name}.{}", kind.name())) else { continue };
            let leads = bytes.shape().split_last().map(|(_, leads)| leads);
            if Some(bytes.numel()) != kind.bytes_of(shape) || leads != Some(lead) {
                return Err(failed(format!("load: {name} has {} bytes, which do not fit {shape:?}", bytes.numel())));
            }
            return Ok(Weight::Blocks { bytes, kind, columns });
        }
        let Some(scales) = self.named.remove(&format!("{name}.scales")) else {
            let weight = self.take(&format!("{name}.weight"), shape)?;
            if !weight.dtype().is_float() {
                return Err(failed(format!("load: {name}.weight holds {}, which no weight does", weight.dtype())));
            }
            return Ok(Weight::Dense(weight));
        };
        let groups = scales.shape().last().copied().unwrap_or(0);
        let group = if groups > 0 && columns.is_multiple_of(groups) { columns / groups } else { 0 };
        let of = |last: usize| [lead, &[last]].concat();
        let biases = self.take(&format!("{name}.biases"), &of(groups))?;
        let weight = self.named.remove(&format!("{name}.weight"));
        let weight = weight.ok_or_else(|| failed(format!("load: the tensor {name}.weight is missing")))?;
        let words = weight.shape().last().copied().unwrap_or(0);
        let bits = 32 * words / columns;
        let fits = [32, 64, 128].contains(&group) && bits * columns == 32 * words;
        if !fits || scales.shape() != of(groups) || weight.shape() != of(words) || weight.dtype() != DType::I32 {
            return Err(failed(format!("load: {name} is quantised in a way that does not fit {shape:?}")));
        }
        let (parts, rounds) = ([weight, scales, biases], self.rounds && matches!(bits, 4 | 8));
        Ok(Weight::Affine { parts, group: group as i64, bits: bits as i64, rounds })
    }

    /// Forgets tensors whose names begin so.
    pub fn forget(&mut self, prefix: &str) {
        self.named.retain(|name, _| !name.starts_with(prefix));
    }

    /// # Errors
    /// Where tensors are left.
    pub fn finish(self) -> Result<()> {
        let left: Vec<_> = self.named.into_keys().take(5).collect();
        match left.is_empty() {
            true => Ok(()),
            false => Err(failed(format!("load: there are tensors {left:?} that the model has not"))),
        }
    }

    /// Puts a tensor under our names: of fused ones the parts.
    fn put(&mut self, name: &str, tensor: &Tensor, config: &Config) -> Result<()> {
        let mut own = name.replace(".block_sparse_moe.", ".mlp.").replace(".mlp.switch_mlp.", ".mlp.");
        if own.contains(".mlp.experts.") {
            for (theirs, ours) in [(".w1.", ".gate_proj."), (".w3.", ".up_proj."), (".w2.", ".down_proj.")] {
                own = own.replace(theirs, ours);
            }
        }
        let name = own.as_str();
        let (q, kv) = (config.heads * config.head_dim, config.kv_heads * config.head_dim);
        let half = config.intermediate_size;
        let parts: &[(&str, usize, usize)] = if name.contains(".qkv_proj.") {
            &[("q_proj", 0, q), ("k_proj", q, kv), ("v_proj", q + kv, kv)]
        } else if name.contains(".mlp.gate_up_proj.") {
            &[("gate_proj", 0, half), ("up_proj", half, half)]
        } else {
            &[]
        };
        let mut insert = |name: String, tensor: Tensor| match self.named.insert(name.clone(), tensor) {
            None => Ok(()),
            Some(_) => Err(failed(format!("load: the tensor {name} is there twice"))),
        };
        if parts.is_empty() {
            return insert(name.into(), tensor.clone());
        }
        let rows: usize = parts.iter().map(|p| p.2).sum();
        if tensor.shape().first() != Some(&rows) {
            return Err(failed(format!("load: {name} has shape {:?}, expected {rows} rows", tensor.shape())));
        }
        let fused = if parts.len() == 3 { "qkv_proj" } else { "gate_up_proj" };
        for &(part, at, len) in parts {
            insert(name.replace(fused, part), tensor.narrow(0, at as i64, len as i64)?.contiguous()?)?;
        }
        Ok(())
    }
}

/// A JSON object of a file.
///
/// # Errors
/// [`Error::Io`] naming the file.
pub fn read_json(path: &Path) -> Result<Json> {
    let size = std::fs::metadata(path).map_err(|e| Error::io(path, e))?.len();
    if size > LONGEST {
        return Err(Error::file(path, format!("larger than {LONGEST} bytes")));
    }
    let text = std::fs::read(path).map_err(|e| Error::io(path, e))?;
    let json: Json =
        serde_json::from_slice(&text).map_err(|e| Error::file(path, format!("not readable as JSON: {e}")))?;
    match json.is_object() {
        true => Ok(json),
        false => Err(Error::file(path, "expected a JSON object")),
    }
}

fn shards(folder: &Path) -> Result<Vec<PathBuf>> {
    let index = folder.join("model.safetensors.index.json");
    let mut found: Vec<String> = Vec::new();
    if index.exists() {
        let json = read_json(&index)?;
        let names = json["weight_map"].as_object().map(|map| map.values().map(Json::as_str));
        let names: Option<Vec<&str>> = names.and_then(|n| n.collect());
        let bad = || Error::file(&index, "has no weight_map of names");
        found = names.ok_or_else(bad)?.into_iter().map(String::from).collect();
        if let Some(odd) = found.iter().find(|n| Path::new(n).file_name().is_none_or(|f| f != n.as_str())) {
            return Err(Error::file(&index, format!("{odd:?} is no file of the folder")));
        }
    } else {
        for entry in std::fs::read_dir(folder).map_err(|e| Error::io(folder, e))? {
            let name = entry.map_err(|e| Error::io(folder, e))?.file_name();
            found.extend(name.to_str().filter(|n| n.ends_with(".safetensors")).map(String::from));
        }
        if found.iter().any(|n| n.starts_with("model")) {
            found.retain(|n| n.starts_with("model"));
        }
    }
    found.sort();
    found.dedup();
    let paths: Vec<PathBuf> = found.iter().map(|name| folder.join(name)).collect();
    match paths.iter().find(|p| !p.exists()) {
        Some(missing) => Err(Error::file(missing, "this shard is missing")),
        None if paths.is_empty() => Err(Error::file(folder, "there are no safetensors files")),
        None => Ok(paths),
    }
}

/// Calls `each` with every tensor of a safetensors file; uint32, which this crate has not, as int32 of the same bits.
fn read_shard(path: &Path, device: Device, mut each: impl FnMut(&str, Tensor) -> Result<()>) -> Result<()> {
    let io = |e| Error::io(path, e);
    let mut file = File::open(path).map_err(io)?;
    let size = file.metadata().map_err(io)?.len();
    let mut head = crate::fallible::filled(0u8, 8.min(size as usize))?;
    file.read_exact(&mut head).map_err(io)?;
    let len = header_len(path, &head, size)?;
    let mut rest = crate::fallible::filled(0u8, len - head.len())?;
    file.read_exact(&mut rest).map_err(io)?;
    let words = rest.windows(5).enumerate().filter(|(_, w)| w == b"\"U32\"").map(|(i, _)| i).collect::<Vec<_>>();
    words.into_iter().for_each(|i| rest[i + 1] = b'I');
    head.extend_from_slice(&rest);
    for entry in header(path, &head, size)?.entries {
        let mut bytes = crate::fallible::filled(0u8, entry.len)?;
        file.seek(SeekFrom::Start(entry.start as u64)).map_err(io)?;
        file.read_exact(&mut bytes).map_err(io)?;
        each(&entry.name, Tensor::of_bytes(&bytes, &entry.shape, entry.dtype, device)?)?;
    }
    Ok(())
}

/// The configuration and the tensors of a folder with `config.json` and safetensors; `rounds` says that activations are
/// rounded to 8 bits.
///
/// # Errors
/// [`Error::Io`] for files that are missing or damaged, and as [`Config::from_json`].
pub fn of_folder(folder: &Path, device: Device, rounds: bool) -> Result<(Config, Tensors)> {
    let json = read_json(&folder.join("config.json"))?;
    let config = Config::from_json(&json)?;
    let settings = &json["quantization"];
    let mode = settings["mode"].as_str().unwrap_or("affine");
    if mode != "affine" || (settings.is_null() && !json["quantization_config"].is_null()) {
        let method = json["quantization_config"]["quant_method"].as_str().unwrap_or(mode);
        let why = format!(
            "{}: quantised as {method:?}, which is not read; MLX's affine format and GGUF are",
            folder.display()
        );
        return Err(Error::not_implemented(OP, why));
    }
    let mut tensors = Tensors { rounds, ..Tensors::default() };
    for path in shards(folder)? {
        read_shard(&path, device, |name, tensor| {
            if name.ends_with("rotary_emb.inv_freq") {
                return Ok(());
            }
            let mut name = name.to_string();
            if config.model_type == "gemma3_text" {
                // Of a model that sees too, the decoder.
                if name.contains("vision_tower.") || name.contains("multi_modal_projector.") {
                    return Ok(());
                }
                let own = name.strip_prefix("language_model.").unwrap_or(&name);
                name = own.replacen("model.language_model.", "model.", 1);
            }
            tensors.put(&name, &tensor, &config)
        })?;
    }
    Ok((config, tensors))
}

/// The same of a GGUF file; its blocks stay quantised.
///
/// # Errors
/// As [`of_folder`].
pub fn of_gguf(path: &Path, device: Device, rounds: bool) -> Result<(Config, Tensors)> {
    let mut file = Gguf::open(path)?;
    let mut config = Config::from_gguf(file.header())?;
    let permuted = matches!(config.model_type.as_str(), "llama" | "mistral" | "mixtral");
    let entries = file.header().entries.clone();
    let mut tensors = Tensors { rounds, ..Tensors::default() };
    let mut longrope = BTreeMap::new();
    for entry in &entries {
        let name = entry.name.as_str();
        if name.starts_with("rope_f") {
            let factors: Vec<f32> = file.tensor(name)?.cast(DType::F32)?.to_vec()?;
            if factors.len() != config.rope.dim / 2 || !factors.iter().all(|&f| f > 0.0) {
                let why =
                    format!("{name} has {} factors, expected {} positive ones", factors.len(), config.rope.dim / 2);
                return Err(Error::file(path, why));
            }
            longrope.insert(name.to_string(), factors);
            continue;
        }
        let ours = our_name(name, config.post_norms)
            .ok_or_else(|| failed(format!("load: there is a tensor {name} that the model has not")))?;
        let fused = config.model_type == "phi3" && ours.ends_with("mlp.up_proj.weight");
        let ours = if fused { ours.replace("up_proj", "gate_up_proj") } else { ours };
        let heads = match &ours {
            n if permuted && n.contains(".q_proj.") => Some(config.heads),
            n if permuted && n.contains(".k_proj.") => Some(config.kv_heads),
            _ => None,
        };
        let placed = |t: Tensor| heads.map_or(Ok(t.clone()), |h| unpermuted(&t, h)).and_then(|t| t.to(device));
        // Experts' matrices are one tensor.
        let matrix = entry.shape.len() == 2 || entry.shape.len() == 3 && ours.contains(".mlp.");
        if rounds && matrix && KEPT.contains(&entry.kind) {
            let (entry, bytes) = file.bytes(name)?;
            let lead = &entry.shape[..entry.shape.len() - 1];
            let shape = [lead, &[bytes.len() / lead.iter().product::<usize>().max(1)]].concat();
            let name = format!("{}{}", ours.trim_end_matches("weight"), entry.kind.name());
            tensors.put(&name, &placed(Tensor::of_bytes(&bytes, &shape, DType::U8, Device::Cpu)?)?, &config)?;
            continue;
        }
        if !(matrix && blocks::repacked_bits(entry.kind).is_some()) {
            tensors.put(&ours, &placed(file.tensor(name)?.cast(DType::F32)?)?, &config)?;
            continue;
        }
        let (entry, bytes) = file.bytes(name)?;
        let raw = Tensor::of_bytes(&bytes, &[bytes.len()], DType::U8, Device::Cpu)?;
        let lead = ours.trim_end_matches("weight");
        for (part, t) in ["weight", "scales", "biases"].iter().zip(blocks::repack(&raw, entry.kind, &entry.shape)?) {
            tensors.put(&format!("{lead}{part}"), &placed(t)?, &config)?;
        }
    }
    if let Some(factors) = longrope.get("rope_freqs.weight") {
        let plain = json!({"rope_type": "longrope", "original_max_position_embeddings": u32::MAX,
                           "short_factor": factors, "long_factor": factors, "attention_factor": 1.0});
        config.rope.scaling = plain;
    }
    let (short, long) = (longrope.get("rope_factors_short.weight"), longrope.get("rope_factors_long.weight"));
    if let (Some(short), Some(long), Json::Object(map)) = (short, long, &mut config.rope.scaling) {
        map.insert("rope_type".into(), "longrope".into());
        map.insert("short_factor".into(), json!(short));
        map.insert("long_factor".into(), json!(long));
    }
    Ok((config, tensors))
}

/// Rows in the order of halves that are rotated together; GGUF's `llama` has pairs beside each other.
fn unpermuted(x: &Tensor, heads: usize) -> Result<Tensor> {
    let shape: Vec<isize> = x.shape().iter().map(|&n| n as isize).collect();
    let (Some((&rows, rest)), heads) = (shape.split_first(), heads as isize) else { return Ok(x.clone()) };
    if rows % (2 * heads) != 0 {
        return Err(failed(format!("load: {rows} rows of queries or keys do not fall into {heads} heads")));
    }
    let split = [&[heads, rows / heads / 2, 2], rest].concat();
    x.reshape(&split)?.transpose(1, 2)?.reshape(&shape)?.contiguous()
}

/// Our name of a tensor in a GGUF file.
fn our_name(name: &str, post_norms: bool) -> Option<String> {
    let (base, kind) = name.rsplit_once('.')?;
    let top = match base {
        "token_embd" => Some("model.embed_tokens"),
        "output_norm" => Some("model.norm"),
        "output" => Some("lm_head"),
        _ => None,
    };
    if let Some(top) = top {
        return Some(format!("{top}.{kind}"));
    }
    let (layer, part) = base.strip_prefix("blk.")?.split_once('.')?;
    let part = match part {
        "attn_norm" => "input_layernorm",
        "attn_q" => "self_attn.q_proj",
        "attn_k" => "self_attn.k_proj",
        "attn_v" => "self_attn.v_proj",
        "attn_qkv" => "self_attn.qkv_proj",
        "attn_output" => "self_attn.o_proj",
        "attn_q_norm" => "self_attn.q_norm",
        "attn_k_norm" => "self_attn.k_norm",
        "ffn_norm" if post_norms => "pre_feedforward_layernorm",
        "post_attention_norm" if post_norms => "post_attention_layernorm",
        "post_ffw_norm" if post_norms => "post_feedforward_layernorm",
        "ffn_norm" => "post_attention_layernorm",
        "ffn_gate" | "ffn_gate_exps" => "mlp.gate_proj",
        "ffn_up" | "ffn_up_exps" => "mlp.up_proj",
        "ffn_down" | "ffn_down_exps" => "mlp.down_proj",
        "ffn_gate_inp" => "mlp.gate",
        _ => return None,
    };
    Some(format!("model.layers.{layer}.{part}.{kind}"))
}
