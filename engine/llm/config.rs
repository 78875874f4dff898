//! What a decoder is made of: sizes and switches, read from `config.json` or from a GGUF file's metadata.
//!
//! Depends on `gguf` and `rope`. The keys are Hugging Face's; Python's `lucid.llm.Config` reads the same. Invariant: sizes are
//! positive and fit each other.

use super::gguf::{Header, Value};
use super::rope::Angles;
use crate::{Error, Result};
use serde_json::{json, Map, Value as Json};

const OP: &str = "llm";
/// The largest size that a configuration may have.
const MOST: u64 = 1 << 24;
/// What `model_type` may be.
pub const ARCHITECTURES: [&str; 9] =
    ["llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "gemma2", "gemma3_text", "phi3"];

/// What a gate goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x · sigmoid(x)`
    Silu,
    /// Through the error function.
    Gelu,
    /// Its form with `tanh`.
    GeluTanh,
}

/// Of a mixture of experts.
#[derive(Clone, Debug, PartialEq)]
pub struct Mixture {
    /// How many experts there are.
    pub experts: usize,
    /// How many of them a token goes through.
    pub chosen: usize,
    /// Elements between an expert's matrices.
    pub intermediate_size: usize,
    /// Are the shares of the chosen ones scaled to a sum of 1?
    pub normed: bool,
    /// Which layers have experts; the others have an MLP.
    pub layers: Vec<bool>,
}

/// Sizes and switches of a decoder-only transformer.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The architecture.
    pub model_type: String,
    /// Tokens.
    pub vocab_size: usize,
    /// Elements of a state.
    pub hidden_size: usize,
    /// Elements between the matrices of an MLP.
    pub intermediate_size: usize,
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Added to the mean square in norms.
    pub eps: f64,
    /// The rotations.
    pub rope: Angles,
    /// Those of layers with a window, where they are others (Gemma 3).
    pub local_rope: Option<Angles>,
    /// The most tokens of a text.
    pub context: usize,
    /// Are the embeddings the last layer's weights too?
    pub tied: bool,
    /// Have queries, keys and values a bias?
    pub qkv_bias: bool,
    /// Has attention's last matrix one?
    pub o_bias: bool,
    /// Have the MLP's?
    pub mlp_bias: bool,
    /// The gate's activation.
    pub activation: Activation,
    /// For each layer, how many tokens a token may look back at, itself included.
    pub windows: Vec<Option<usize>>,
    /// Are each head's queries and keys normed (Qwen 3, Gemma 3)?
    pub qk_norm: bool,
    /// Do norms multiply by 1 + weight (Gemma)?
    pub unit_offset: bool,
    /// Are there norms behind attention and MLP too (Gemma)?
    pub post_norms: bool,
    /// Are embeddings multiplied by √hidden_size (Gemma)?
    pub scale_embeddings: bool,
    /// Attention's scores go through `cap · tanh(score / cap)`.
    pub attention_cap: Option<f64>,
    /// And logits.
    pub logit_cap: Option<f64>,
    /// What scores are multiplied by.
    pub scale: f64,
    /// The experts, where there are some (Mixtral, Qwen 3 MoE).
    pub mixture: Option<Mixture>,
    /// Tokens that end a text.
    pub ends: Vec<u32>,
}

fn failed(why: impl Into<String>) -> Box<Error> {
    Error::value(OP, why)
}

/// A JSON object with checks.
struct Keys<'a>(&'a Json);

impl Keys<'_> {
    fn is(&self, key: &str) -> bool {
        self.0[key].as_bool() == Some(true)
    }

    fn size(&self, key: &str) -> Result<usize> {
        match self.0[key].as_u64() {
            Some(n) if (1..=MOST).contains(&n) => Ok(n as usize),
            _ => Err(failed(format!("config: {key} must be an integer from 1 to {MOST}, got {}", self.0[key]))),
        }
    }

    fn size_or(&self, key: &str, other: usize) -> Result<usize> {
        if self.0[key].is_null() {
            Ok(other)
        } else {
            self.size(key)
        }
    }

    /// A positive number; `None` where there is none.
    fn number(&self, key: &str) -> Result<Option<f64>> {
        let found = &self.0[key];
        match found.as_f64().filter(|x| x.is_finite() && *x > 0.0) {
            None if !found.is_null() => Err(failed(format!("config: {key} must be a positive number, got {found}"))),
            other => Ok(other),
        }
    }

    fn number_or(&self, key: &str, other: f64) -> Result<f64> {
        Ok(self.number(key)?.unwrap_or(other))
    }
}

/// The windows of the layers.
fn windows(kind: &str, keys: &Keys<'_>, layers: usize) -> Result<Vec<Option<usize>>> {
    let json = keys.0;
    let window = if json["sliding_window"].is_null() { None } else { Some(keys.size("sliding_window")?) };
    if let Some(types) = json["layer_types"].as_array() {
        if types.len() != layers {
            return Err(failed(format!("config: layer_types must have {layers} entries, got {}", types.len())));
        }
        return Ok(types.iter().map(|t| window.filter(|_| t == "sliding_attention")).collect());
    }
    let pattern = keys.size_or("sliding_window_pattern", 6)?;
    let first = json["max_window_layers"].as_u64().unwrap_or(0);
    let has = |i: usize| match kind {
        "gemma2" => i.is_multiple_of(2),
        "gemma3_text" => !(i + 1).is_multiple_of(pattern),
        "mistral" | "mixtral" | "phi3" => true,
        "qwen2" | "qwen3" | "qwen3_moe" => keys.is("use_sliding_window") && i as u64 >= first,
        _ => false,
    };
    Ok((0..layers).map(|i| window.filter(|_| has(i))).collect())
}

/// The experts of architectures that have them.
fn mixture(kind: &str, keys: &Keys<'_>, layers: usize) -> Result<Option<Mixture>> {
    let json = keys.0;
    let own = if json["num_local_experts"].is_null() { "num_experts" } else { "num_local_experts" };
    if !matches!(kind, "mixtral" | "qwen3_moe") || json[own].is_null() || json[own] == 0 {
        return Ok(None);
    }
    let (experts, chosen) = (keys.size(own)?, keys.size("num_experts_per_tok")?);
    if chosen > experts {
        return Err(failed(format!("config: num_experts_per_tok must be from 1 to {experts}, got {chosen}")));
    }
    let step = if kind == "mixtral" { 1 } else { keys.size_or("decoder_sparse_step", 1)? };
    let dense = |i: usize| json["mlp_only_layers"].as_array().is_some_and(|list| list.contains(&i.into()));
    let sparse = |i: usize| (i + 1).is_multiple_of(step) && (kind == "mixtral" || !dense(i));
    Ok(Some(Mixture {
        experts,
        chosen,
        intermediate_size: keys.size_or("moe_intermediate_size", keys.size("intermediate_size")?)?,
        normed: kind == "mixtral" || keys.is("norm_topk_prob"),
        layers: (0..layers).map(sparse).collect(),
    }))
}

/// The base and the scaling of the rotations, and the base of layers with a window.
fn rotations(kind: &str, keys: &Keys<'_>) -> Result<(f64, Json, Option<f64>)> {
    let json = keys.0;
    let mut rope = &json["rope_parameters"];
    let mut local = None;
    let mut theta = keys.number_or("rope_theta", if kind == "gemma3_text" { 1e6 } else { 1e4 })?;
    if kind == "gemma3_text" {
        let own = Keys(&rope["sliding_attention"]).number("rope_theta")?;
        local = Some(own.map_or_else(|| keys.number_or("rope_local_base_freq", 1e4), Ok)?);
        rope = &rope["full_attention"];
    }
    theta = Keys(rope).number_or("rope_theta", theta)?;
    let scaled = rope["rope_type"].as_str().is_some_and(|t| t != "default");
    let mut scaling = match (&json["rope_scaling"], scaled) {
        (given @ Json::Object(_), _) => given.clone(),
        (_, true) => rope.clone(),
        _ => Json::Null,
    };
    const ORIGINAL: &str = "original_max_position_embeddings";
    if let Json::Object(map) = &mut scaling {
        if !map.contains_key(ORIGINAL) && !json[ORIGINAL].is_null() {
            map.insert(ORIGINAL.into(), json[ORIGINAL].clone());
        }
    }
    Ok((theta, scaling, local))
}

impl Config {
    /// Layers.
    pub fn layers(&self) -> usize {
        self.windows.len()
    }

    /// Of a `config.json`.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] naming the key that is missing or wrong, [`Error::NotImplemented`] for architectures that
    /// are not read here.
    pub fn from_json(json: &Json) -> Result<Config> {
        if json["model_type"] == "gemma3" && json["text_config"].is_object() {
            // A model that sees too; its decoder is what is read.
            let mut own = json["text_config"].clone();
            own["model_type"] = "gemma3_text".into();
            if !json["eos_token_id"].is_null() {
                own["eos_token_id"] = json["eos_token_id"].clone();
            }
            return Config::from_json(&own);
        }
        let kind = json["model_type"].as_str().unwrap_or("");
        if !ARCHITECTURES.contains(&kind) {
            let all = ARCHITECTURES.join(", ");
            let why = format!("model_type {kind:?} is not read in Rust; {all} are, and Python's lucid.llm reads more");
            return Err(Error::not_implemented(OP, why));
        }
        let keys = Keys(json);
        let gemma = kind.starts_with("gemma");
        let (hidden_size, heads) = (keys.size("hidden_size")?, keys.size("num_attention_heads")?);
        let layers = keys.size("num_hidden_layers")?;
        let kv_heads = keys.size_or("num_key_value_heads", heads)?;
        let head_dim = keys.size_or("head_dim", hidden_size / heads)?;
        if !heads.is_multiple_of(kv_heads) || head_dim == 0 {
            return Err(failed(format!("config: {heads} query heads do not share {kv_heads} key heads")));
        }
        let (theta, scaling, local) = rotations(kind, &keys)?;
        let positions = keys.size_or("max_position_embeddings", 2048)?;
        let partial = match kind {
            "phi3" => {
                let own = Keys(&json["rope_parameters"]).number("partial_rotary_factor")?;
                own.map_or_else(|| keys.number_or("partial_rotary_factor", 1.0), Ok)?
            }
            _ => 1.0,
        };
        let dim = (head_dim as f64 * partial) as usize;
        if dim == 0 || !dim.is_multiple_of(2) || dim > head_dim {
            return Err(failed(format!("config: {dim} elements of heads of {head_dim} cannot be rotated in pairs")));
        }
        let rope = Angles { dim, theta, context: positions, scaling };
        let longer = match rope.kind() {
            "dynamic" => Keys(&rope.scaling).number_or("factor", 1.0)?.max(1.0),
            _ => 1.0,
        };
        let local_rope = local.map(|theta| Angles { theta, scaling: Json::Null, ..rope.clone() });
        let activation = json["hidden_activation"].as_str().or(json["hidden_act"].as_str()).unwrap_or("silu");
        let activation = match activation {
            "silu" => Activation::Silu,
            "gelu" => Activation::Gelu,
            "gelu_pytorch_tanh" => Activation::GeluTanh,
            other => return Err(failed(format!("config: hidden_act {other:?} is not known; silu and gelu are"))),
        };
        let cap = |key: &str, default: f64| match &json[key] {
            Json::Null if json.get(key).is_none() && kind == "gemma2" => Ok(Some(default)),
            _ if gemma => keys.number(key),
            _ => Ok(None),
        };
        let scalar = match gemma {
            true => keys.number_or("query_pre_attn_scalar", 256.0)?,
            false => head_dim as f64,
        };
        let bias = keys.is("attention_bias");
        let end = |v: &Json| v.as_u64().and_then(|n| u32::try_from(n).ok());
        let ends = match &json["eos_token_id"] {
            Json::Array(list) => list.iter().filter_map(end).collect(),
            one => end(one).into_iter().collect(),
        };
        Ok(Config {
            model_type: kind.into(),
            vocab_size: keys.size("vocab_size")?,
            hidden_size,
            intermediate_size: keys.size("intermediate_size")?,
            heads,
            kv_heads,
            head_dim,
            eps: keys.number_or("rms_norm_eps", 1e-6)?,
            context: (positions as f64 * longer) as usize,
            rope,
            local_rope,
            tied: json["tie_word_embeddings"].as_bool().unwrap_or(gemma),
            qkv_bias: kind == "qwen2" || bias,
            o_bias: bias && !matches!(kind, "qwen2" | "mistral" | "mixtral" | "phi3"),
            mlp_bias: keys.is("mlp_bias"),
            activation,
            windows: windows(kind, &keys, layers)?,
            qk_norm: matches!(kind, "qwen3" | "qwen3_moe" | "gemma3_text"),
            unit_offset: gemma,
            post_norms: gemma,
            scale_embeddings: gemma,
            attention_cap: cap("attn_logit_softcapping", 50.0)?,
            logit_cap: cap("final_logit_softcapping", 30.0)?,
            scale: scalar.powf(-0.5),
            mixture: mixture(kind, &keys, layers)?,
            ends,
        })
    }

    /// Of a GGUF file's header.
    ///
    /// # Errors
    /// As [`from_json`](Config::from_json).
    pub fn from_gguf(header: &Header) -> Result<Config> {
        let metadata = &header.metadata;
        let text = |key: &str| match metadata.get(key) {
            Some(Value::Text(text)) => Some(text.as_str()),
            _ => None,
        };
        let name = text("general.architecture").unwrap_or("");
        let kind = match name {
            "gemma3" => "gemma3_text",
            "qwen3moe" => "qwen3_moe",
            other => other,
        };
        let plain = |value: Option<&Value>| match value {
            Some(Value::Unsigned(n)) => Json::from(*n),
            Some(Value::Signed(n)) => Json::from(*n),
            Some(Value::Float(x)) => Json::from(*x),
            _ => Json::Null,
        };
        let number = |key: &str| plain(metadata.get(&format!("{name}.{key}")));
        let has = |tensor: &str| header.entries.iter().any(|e| e.name == tensor);
        let mut made = Map::new();
        made.insert("model_type".into(), kind.into());
        for (ours, theirs) in [
            ("hidden_size", "embedding_length"),
            ("intermediate_size", "feed_forward_length"),
            ("num_hidden_layers", "block_count"),
            ("num_attention_heads", "attention.head_count"),
            ("num_key_value_heads", "attention.head_count_kv"),
            ("head_dim", "attention.key_length"),
            ("rms_norm_eps", "attention.layer_norm_rms_epsilon"),
            ("rope_theta", "rope.freq_base"),
            ("max_position_embeddings", "context_length"),
            ("sliding_window", "attention.sliding_window"),
            ("attn_logit_softcapping", "attn_logit_softcapping"),
            ("final_logit_softcapping", "final_logit_softcapping"),
            ("rope_local_base_freq", "rope.freq_base_swa"),
            ("num_experts", "expert_count"),
            ("num_experts_per_tok", "expert_used_count"),
            ("moe_intermediate_size", "expert_feed_forward_length"),
        ] {
            // What is 0 there is not used.
            let found = number(theirs);
            if !found.is_null() && found != 0 {
                made.insert(ours.into(), found);
            }
        }
        let vocab = match metadata.get("tokenizer.ggml.tokens") {
            Some(Value::List(tokens)) => tokens.len().into(),
            _ => number("vocab_size"),
        };
        made.insert("vocab_size".into(), vocab);
        let ends = ["eos", "eot"].map(|end| plain(metadata.get(&format!("tokenizer.ggml.{end}_token_id"))));
        made.insert("eos_token_id".into(), ends.into_iter().filter(|e| !e.is_null()).collect::<Vec<_>>().into());
        made.insert("tie_word_embeddings".into(), (!has("output.weight")).into());
        let original = number("rope.scaling.original_context_length");
        match text(&format!("{name}.rope.scaling.type")) {
            Some(scaling @ ("linear" | "yarn")) => {
                let factor = number("rope.scaling.factor");
                let mut scaling =
                    json!({"rope_type": scaling, "factor": if factor.is_null() { 1.0.into() } else { factor }});
                if !original.is_null() && original != 0 {
                    scaling["original_max_position_embeddings"] = original;
                }
                made.insert("rope_scaling".into(), scaling);
            }
            // The factors are tensors of the file, which make it longrope when they are read.
            _ if kind == "phi3" && !original.is_null() && original != 0 => {
                let attention = number("rope.scaling.attn_factor");
                let scaling = json!({"rope_type": "default", "original_max_position_embeddings": original,
                                     "attention_factor": attention});
                made.insert("rope_scaling".into(), scaling);
            }
            _ => {}
        }
        let heads = number("attention.head_count").as_f64().unwrap_or(1.0);
        let hidden = number("embedding_length").as_f64().unwrap_or(0.0);
        let head_dim = number("attention.key_length").as_f64().unwrap_or(hidden / heads);
        if kind.starts_with("gemma") {
            let big =
                matches!((kind, number("block_count").as_u64()), ("gemma2", Some(46)) | ("gemma3_text", Some(62)));
            made.insert("query_pre_attn_scalar".into(), (if big { hidden / heads } else { head_dim }).into());
            made.insert("hidden_act".into(), "gelu_pytorch_tanh".into());
        }
        if kind == "llama" && made.contains_key("num_experts") {
            made.insert("model_type".into(), "mixtral".into());
        } else if kind == "llama" && made.contains_key("sliding_window") {
            // A file of Mistral.
            made.insert("model_type".into(), "mistral".into());
        }
        if let (None, Some(size)) = (made.get("intermediate_size"), made.get("moe_intermediate_size").cloned()) {
            made.insert("intermediate_size".into(), size);
        }
        let mut config = Config::from_json(&Json::Object(made))?;
        if let Some(dim) = number("rope.dimension_count").as_u64() {
            if dim == 0 || !dim.is_multiple_of(2) || dim > config.head_dim as u64 {
                return Err(failed(format!(
                    "config: {dim} elements of heads of {} cannot be rotated",
                    config.head_dim
                )));
            }
            config.rope.dim = dim as usize;
        }
        config.qkv_bias = has("blk.0.attn_q.bias");
        config.o_bias = has("blk.0.attn_output.bias");
        config.qk_norm = has("blk.0.attn_q_norm.weight");
        if let Some(mixture) = &mut config.mixture {
            let sparse = |i: usize| has(&format!("blk.{i}.ffn_gate_inp.weight"));
            mixture.layers = (0..mixture.layers.len()).map(sparse).collect();
            mixture.normed = true;
        }
        // Gemma's files have the 1 in their weights.
        config.unit_offset = false;
        Ok(config)
    }
}
