//! Tokenizers: a `tokenizer.json` of Hugging Face, or the vocabulary in a GGUF file, by the `tokenizers` crate.
//!
//! A GGUF vocabulary is written down as the `tokenizer.json` that says the same: byte-level BPE with its merges
//! (`gpt2`), or SentencePiece's BPE (`llama`), whose merges are the pairs that make a piece, the better piece first.
//! Depends on `gguf`.

use super::gguf::Value;
use crate::{Error, Result};
use serde_json::{json, Map, Value as Json};
use std::collections::{BTreeMap, HashMap};

const OP: &str = "tokenizer";

/// Splits of text before BPE, by GGUF's `tokenizer.ggml.pre`.
const LLAMA3: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const QWEN2: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

/// Text to numbers of tokens and back.
///
/// # Examples
/// ```no_run
/// let tokenizer = lucid::llm::tokenizer::Tokenizer::from_json(&std::fs::read("tokenizer.json").unwrap())?;
/// let ids = tokenizer.encode("Hello", true)?;
/// assert_eq!(tokenizer.decode(&ids, true)?, "Hello");
/// # lucid::Result::<()>::Ok(())
/// ```
#[derive(Clone, Debug)]
pub struct Tokenizer(tokenizers::Tokenizer);

fn failed(what: &str, e: impl std::fmt::Display) -> Box<Error> {
    Error::value(OP, format!("{what}: {e}"))
}

impl Tokenizer {
    /// Of the bytes of a `tokenizer.json`.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] where they are none.
    pub fn from_json(bytes: &[u8]) -> Result<Tokenizer> {
        tokenizers::Tokenizer::from_bytes(bytes).map(Tokenizer).map_err(|e| failed("not a tokenizer.json", e))
    }

    /// Of the metadata of a GGUF file.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] where it has no vocabulary, or one of a kind that is not read.
    pub fn from_gguf(metadata: &BTreeMap<String, Value>) -> Result<Tokenizer> {
        let json = tokenizer_json(metadata)?;
        let bytes = serde_json::to_vec(&json).map_err(|e| failed("a vocabulary without a JSON form", e))?;
        Tokenizer::from_json(&bytes)
    }

    /// The tokens of a text; with `special` those that the model puts around it too.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] where the vocabulary cannot write the text.
    pub fn encode(&self, text: &str, special: bool) -> Result<Vec<u32>> {
        let made = self.0.encode_fast(text, special).map_err(|e| failed("the text cannot be encoded", e))?;
        Ok(made.get_ids().to_vec())
    }

    /// The text of tokens, without special ones if `skip_special`. What is not UTF-8 is U+FFFD.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] where the decoder fails.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String> {
        self.0.decode(ids, skip_special).map_err(|e| failed("the tokens cannot be decoded", e))
    }

    /// The number of a token.
    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        self.0.token_to_id(token)
    }

    /// The token of a number.
    pub fn id_to_token(&self, id: u32) -> Option<String> {
        self.0.id_to_token(id)
    }

    /// The bytes of every token, by number; `None` for special ones and for numbers without a token.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] where the tokenizer has no JSON form, [`Error::OutOfMemory`].
    pub fn token_bytes(&self, count: usize) -> Result<Vec<Option<Vec<u8>>>> {
        let json: Json = serde_json::from_str(&self.to_json()?).map_err(|e| failed("a damaged tokenizer", e))?;
        let byte_level = json["decoder"].to_string().contains("\"ByteLevel\"");
        let letters: HashMap<char, u8> = byte_letters();
        let added = self.0.get_added_tokens_decoder();
        let mut out = crate::fallible::with_capacity(count)?;
        for id in 0..count as u32 {
            let own = added.get(&id);
            let Some(token) = self.id_to_token(id).filter(|_| !own.is_some_and(|t| t.special)) else {
                out.push(None);
                continue;
            };
            let hex = token.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
            out.push(Some(match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
                _ if own.is_some() => token.into_bytes(),
                _ if byte_level => token.chars().filter_map(|c| letters.get(&c).copied()).collect(),
                Some(byte) => vec![byte],
                None => token.replace('▁', " ").into_bytes(),
            }));
        }
        Ok(out)
    }

    /// How many tokens there are, with added ones.
    pub fn vocab_size(&self) -> usize {
        self.0.get_vocab_size(true)
    }

    /// The `tokenizer.json`.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] where it has no JSON form.
    pub fn to_json(&self) -> Result<String> {
        self.0.to_string(false).map_err(|e| failed("the tokenizer cannot be written", e))
    }
}

/// The letters by which byte-level BPE writes bytes: printable ones are themselves, the others follow from U+0100 on.
fn byte_letters() -> HashMap<char, u8> {
    let mut next = 256u32;
    let letter = |byte: u8| match byte {
        b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF => char::from(byte),
        _ => {
            next += 1;
            char::from_u32(next - 1).unwrap_or('\u{fffd}')
        }
    };
    let letters: Vec<char> = (0..=255).map(letter).collect();
    letters.into_iter().zip(0..=255).collect()
}

fn list<'a>(metadata: &'a BTreeMap<String, Value>, key: &str) -> Result<&'a [Value]> {
    match metadata.get(key) {
        Some(Value::List(list)) => Ok(list),
        Some(_) => Err(Error::value(OP, format!("the GGUF key {key} is not a list"))),
        None => Err(Error::value(OP, format!("the GGUF file has no {key}"))),
    }
}

fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str> {
    match value {
        Value::Text(text) => Ok(text),
        _ => Err(Error::value(OP, format!("the GGUF key {key} holds something else than text"))),
    }
}

fn texts<'a>(metadata: &'a BTreeMap<String, Value>, key: &str) -> Result<Vec<&'a str>> {
    list(metadata, key)?.iter().map(|v| text(v, key)).collect()
}

fn number(value: &Value) -> Option<f64> {
    match *value {
        Value::Unsigned(n) => Some(n as f64),
        Value::Signed(n) => Some(n as f64),
        Value::Float(x) => Some(x),
        Value::Bool(_) | Value::Text(_) | Value::List(_) => None,
    }
}

fn tokenizer_json(metadata: &BTreeMap<String, Value>) -> Result<Json> {
    let tokens = texts(metadata, "tokenizer.ggml.tokens")?;
    let model = metadata.get("tokenizer.ggml.model").map(|v| text(v, "tokenizer.ggml.model")).transpose()?;
    let mut vocab = Map::new();
    for (id, token) in tokens.iter().enumerate() {
        if vocab.insert((*token).to_string(), id.into()).is_some() {
            return Err(Error::value(OP, format!("the GGUF vocabulary has the token {token:?} twice")));
        }
    }
    let kinds: Vec<u64> = match metadata.get("tokenizer.ggml.token_type") {
        Some(Value::List(kinds)) => kinds.iter().map(|k| number(k).map_or(1, |n| n as u64)).collect(),
        _ => Vec::new(),
    };
    // 2 unknown, 3 control, 4 user defined, 6 byte.
    let added: Vec<Json> = tokens
        .iter()
        .enumerate()
        .filter(|&(id, _)| matches!(kinds.get(id), Some(2..=4)))
        .map(|(id, token)| {
            json!({"id": id, "content": token, "special": kinds.get(id) != Some(&4), "single_word": false,
                   "lstrip": false, "rstrip": false, "normalized": false})
        })
        .collect();
    let mut out = match model {
        Some("gpt2") => byte_level(metadata, vocab)?,
        Some("llama") => sentence_piece(metadata, &tokens, vocab)?,
        other => {
            let why = format!("a GGUF vocabulary of the kind {other:?} is not read; gpt2 and llama are");
            return Err(Error::value(OP, why));
        }
    };
    out["version"] = "1.0".into();
    out["added_tokens"] = added.into();
    out["post_processor"] = around(metadata, &tokens, model == Some("llama"))?;
    Ok(out)
}

/// What goes before and after a text.
fn around(metadata: &BTreeMap<String, Value>, tokens: &[&str], by_default: bool) -> Result<Json> {
    let side = |adds: &str, key: &str, default: bool| -> Result<Option<(String, u64)>> {
        let asked = match metadata.get(adds) {
            Some(&Value::Bool(asked)) => asked,
            _ => default,
        };
        let Some(&Value::Unsigned(id)) = metadata.get(key) else { return Ok(None) };
        match tokens.get(id as usize) {
            _ if !asked => Ok(None),
            Some(token) => Ok(Some(((*token).to_string(), id))),
            None => Err(Error::value(OP, format!("the GGUF key {key} is {id}, outside of the vocabulary"))),
        }
    };
    let before = side("tokenizer.ggml.add_bos_token", "tokenizer.ggml.bos_token_id", by_default)?;
    let after = side("tokenizer.ggml.add_eos_token", "tokenizer.ggml.eos_token_id", false)?;
    if before.is_none() && after.is_none() {
        return Ok(Json::Null);
    }
    let mut special = Map::new();
    let piece = |found: &Option<(String, u64)>, kind: u64| {
        found.iter().map(|(t, _)| json!({"SpecialToken": {"id": t, "type_id": kind}})).collect::<Vec<_>>()
    };
    for (token, id) in before.iter().chain(&after) {
        special.insert(token.clone(), json!({"id": token, "ids": [id], "tokens": [token]}));
    }
    let (a, b) = (json!({"Sequence": {"id": "A", "type_id": 0}}), json!({"Sequence": {"id": "B", "type_id": 1}}));
    let single = [piece(&before, 0), vec![a.clone()], piece(&after, 0)].concat();
    let pair = [piece(&before, 0), vec![a], piece(&before, 1), vec![b], piece(&after, 1)].concat();
    Ok(json!({"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}))
}

fn byte_level(metadata: &BTreeMap<String, Value>, vocab: Map<String, Json>) -> Result<Json> {
    let pre = match metadata.get("tokenizer.ggml.pre") {
        Some(Value::Text(pre)) => pre.as_str(),
        _ => "default",
    };
    let split = |pattern: &str| json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
    let digits = json!({"type": "Digits", "individual_digits": true});
    let bytes = |regex: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": regex});
    let before = match pre {
        "llama3" | "llama-v3" | "llama-bpe" => vec![split(LLAMA3), bytes(false)],
        "qwen2" | "qwen3" | "deepseek-r1-qwen" => vec![split(QWEN2), bytes(false)],
        "smollm" | "starcoder" | "refact" | "command-r" => vec![digits, bytes(true)],
        "default" | "gpt-2" | "phi-2" => vec![bytes(true)],
        other => {
            return Err(Error::value(OP, format!("the GGUF vocabulary splits text as {other:?}, unknown here")));
        }
    };
    let mut merges = Vec::new();
    for merge in texts(metadata, "tokenizer.ggml.merges")? {
        let (left, right) =
            merge.split_once(' ').ok_or_else(|| Error::value(OP, format!("the GGUF merge {merge:?} is not a pair")))?;
        merges.push(json!([left, right]));
    }
    Ok(json!({
        "normalizer": if pre.starts_with("qwen") { json!({"type": "NFC"}) } else { Json::Null },
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": before},
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
        "model": {"type": "BPE", "vocab": vocab, "merges": merges, "ignore_merges": pre == "llama-bpe"},
    }))
}

fn sentence_piece(metadata: &BTreeMap<String, Value>, tokens: &[&str], vocab: Map<String, Json>) -> Result<Json> {
    let scores: Vec<f64> = list(metadata, "tokenizer.ggml.scores")?.iter().map(|s| number(s).unwrap_or(0.0)).collect();
    if scores.len() != tokens.len() {
        let why = format!("the GGUF vocabulary has {} tokens and {} scores", tokens.len(), scores.len());
        return Err(Error::value(OP, why));
    }
    let ids: HashMap<&str, usize> = tokens.iter().enumerate().map(|(id, t)| (*t, id)).collect();
    let mut merges = Vec::new();
    for (id, token) in tokens.iter().enumerate() {
        // Longer ones are texts that no merge makes.
        if token.len() > 256 {
            continue;
        }
        let mut own = Vec::new();
        for (at, _) in token.char_indices().skip(1) {
            let (left, right) = token.split_at(at);
            if let (Some(&l), Some(&r)) = (ids.get(left), ids.get(right)) {
                own.push((l, r));
            }
        }
        own.sort_unstable();
        merges.extend(own.into_iter().map(|(l, r)| (scores[id], tokens[l], tokens[r])));
    }
    merges.sort_by(|a, b| b.0.total_cmp(&a.0));
    let merges: Vec<Json> = merges.into_iter().map(|(_, l, r)| json!([l, r])).collect();
    let prefix = !matches!(metadata.get("tokenizer.ggml.add_space_prefix"), Some(Value::Bool(false)));
    let mut before = vec![json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"})];
    let mut after = vec![
        json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    if prefix {
        before.insert(0, json!({"type": "Prepend", "prepend": "▁"}));
        after.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    let unknown = match metadata.get("tokenizer.ggml.unknown_token_id") {
        Some(&Value::Unsigned(id)) => tokens.get(id as usize).copied(),
        _ => tokens.first().copied(),
    };
    Ok(json!({
        "normalizer": {"type": "Sequence", "normalizers": before},
        "pre_tokenizer": null,
        "decoder": {"type": "Sequence", "decoders": after},
        "model": {"type": "BPE", "vocab": vocab, "merges": merges, "unk_token": unknown, "fuse_unk": true,
                  "byte_fallback": true},
    }))
}
