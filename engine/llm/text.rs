//! A model's texts: its tokenizer and chat template, from a folder or a GGUF file, and tokens as text while they come.
//!
//! Depends on `gguf`, `template` and `tokenizer`.

use super::gguf::{Gguf, Value};
use super::template::render;
use super::tokenizer::Tokenizer;
use super::weights::read_json;
use crate::{Error, Result};
use serde_json::{Map, Value as Json};
use std::path::Path;

const OP: &str = "apply_chat_template";
/// Tokens that a character's bytes may be spread over.
const PENDING: usize = 8;

/// Texts to tokens and back, and conversations to prompts.
pub struct Texts {
    /// The tokenizer.
    pub tokenizer: Tokenizer,
    /// Special tokens, which templates write: `bos_token` and others.
    special: Map<String, Json>,
    template: Option<String>,
}

impl Texts {
    /// Of a folder with `tokenizer.json`, or of a GGUF file.
    ///
    /// # Errors
    /// [`Error::Io`] for files that are missing, [`Error::InvalidValue`] for a tokenizer that is damaged.
    pub fn load(path: impl AsRef<Path>) -> Result<Texts> {
        let path = path.as_ref();
        if !path.is_dir() {
            return Texts::of_gguf(path);
        }
        let file = path.join("tokenizer.json");
        let tokenizer = Tokenizer::from_json(&std::fs::read(&file).map_err(|e| Error::io(&file, e))?)?;
        let place = path.join("tokenizer_config.json");
        let settings = if place.exists() { read_json(&place)? } else { Json::Null };
        let mut special = Map::new();
        for name in ["bos_token", "eos_token", "unk_token", "pad_token"] {
            let found = settings[name].as_str().or(settings[name]["content"].as_str());
            special.extend(found.map(|text| (name.to_string(), text.into())));
        }
        let place = path.join("chat_template.jinja");
        let template = match &settings["chat_template"] {
            _ if place.exists() => Some(std::fs::read_to_string(&place).map_err(|e| Error::io(&place, e))?),
            Json::Array(list) => {
                list.iter().find(|t| t["name"] == "default").and_then(|t| t["template"].as_str()).map(String::from)
            }
            one => one.as_str().map(String::from),
        };
        Ok(Texts { tokenizer, special, template })
    }

    fn of_gguf(path: &Path) -> Result<Texts> {
        let file = Gguf::open(path)?;
        let metadata = &file.header().metadata;
        let mut special = Map::new();
        let tokens = match metadata.get("tokenizer.ggml.tokens") {
            Some(Value::List(tokens)) => tokens.as_slice(),
            _ => &[],
        };
        for (name, key) in
            [("bos_token", "bos"), ("eos_token", "eos"), ("pad_token", "padding"), ("unk_token", "unknown")]
        {
            if let Some(&Value::Unsigned(n)) = metadata.get(&format!("tokenizer.ggml.{key}_token_id")) {
                if let Some(Value::Text(text)) = usize::try_from(n).ok().and_then(|n| tokens.get(n)) {
                    special.insert(name.into(), text.as_str().into());
                }
            }
        }
        let template = match metadata.get("tokenizer.chat_template") {
            Some(Value::Text(text)) => Some(text.clone()),
            _ => None,
        };
        Ok(Texts { tokenizer: Tokenizer::from_gguf(metadata)?, special, template })
    }

    /// Is there a chat template?
    pub fn chats(&self) -> bool {
        self.template.is_some()
    }

    /// The tokens of a conversation: `(role, content)` each, the oldest first, and what begins the model's answer.
    ///
    /// # Errors
    /// Where there is no template, and as [`render`].
    pub fn conversation(&self, messages: &[(&str, &str)]) -> Result<Vec<u32>> {
        let why = || Error::value(OP, "the model has no chat template");
        let template = self.template.as_deref().ok_or_else(why)?;
        let listed: Vec<Json> =
            messages.iter().map(|(role, content)| serde_json::json!({"role": role, "content": content})).collect();
        let mut variables = self.special.clone();
        variables.insert("messages".into(), listed.into());
        variables.insert("add_generation_prompt".into(), true.into());
        // The template writes the tokens that begin a text.
        self.tokenizer.encode(&render(template, &Json::Object(variables).to_string())?, false)
    }

    /// Decodes tokens one by one.
    pub fn stream(&self) -> TextStream<'_> {
        TextStream { tokenizer: &self.tokenizer, tokens: Vec::new(), start: 0, shown: 0 }
    }
}

/// The text of tokens as they come: whole characters only.
pub struct TextStream<'a> {
    tokenizer: &'a Tokenizer,
    tokens: Vec<u32>,
    start: usize,
    shown: usize,
}

impl TextStream<'_> {
    /// What a token adds to the text, perhaps nothing yet.
    ///
    /// # Errors
    /// As [`Tokenizer::decode`].
    pub fn add(&mut self, token: u32) -> Result<String> {
        self.tokens.push(token);
        let new = self.new_text()?;
        if new.is_empty() || (new.ends_with('\u{fffd}') && self.tokens.len() - self.shown < PENDING) {
            return Ok(String::new());
        }
        // The tokens shown last stay: what follows may be written differently after them.
        (self.start, self.shown) = (self.shown, self.tokens.len());
        Ok(new)
    }

    /// What is left.
    ///
    /// # Errors
    /// As [`Tokenizer::decode`].
    pub fn finish(&mut self) -> Result<String> {
        let new = self.new_text()?;
        (self.start, self.shown) = (self.tokens.len(), self.tokens.len());
        Ok(new)
    }

    fn new_text(&self) -> Result<String> {
        let before = self.tokenizer.decode(&self.tokens[self.start..self.shown], true)?;
        let after = self.tokenizer.decode(&self.tokens[self.start..], true)?;
        Ok(after.get(before.len()..).unwrap_or("").to_string())
    }
}
