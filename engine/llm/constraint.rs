//! Output that keeps to a JSON schema, a regular expression or a grammar: which tokens may come next, by `llguidance`.
//!
//! Depends on `tokenizer` for the bytes of tokens. Invariant: what a schema or grammar says, however large, gives an
//! error or a mask; the crate's own limits bound both.

use super::tokenizer::Tokenizer;
use crate::{Error, Result};
use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use std::sync::Arc;

const OP: &str = "constraint";
/// Bytes of the longest token that a constraint may allow.
const LONGEST: usize = 1024;

fn failed(what: &str, e: impl std::fmt::Display) -> Box<Error> {
    Error::value(OP, format!("{what}: {e}"))
}

/// A vocabulary, ready for constraints.
pub struct Vocabulary {
    factory: ParserFactory,
    size: usize,
    end: u32,
}

/// What the output keeps to.
#[derive(Clone, Copy, Debug)]
pub enum Rule<'a> {
    /// A JSON schema, as text.
    JsonSchema(&'a str),
    /// A regular expression that the whole output matches.
    Regex(&'a str),
    /// A context-free grammar in Lark's notation.
    Lark(&'a str),
}

impl Vocabulary {
    /// Of a tokenizer, for a model whose logits are of `size` tokens and whose output `end` ends.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] where `end` is no token, or the vocabulary is not understood.
    pub fn new(tokenizer: &Tokenizer, size: usize, end: u32) -> Result<Vocabulary> {
        if end as usize >= size {
            return Err(Error::value(OP, format!("the end token {end} is outside of the {size} tokens")));
        }
        // Tokens without bytes, or with those of no text, are never allowed.
        let mut words: Vec<Vec<u8>> = tokenizer.token_bytes(size)?.into_iter().map(Option::unwrap_or_default).collect();
        words.iter_mut().filter(|w| w.len() > LONGEST).for_each(Vec::clear);
        words[end as usize] = [&[TokTrie::SPECIAL_TOKEN_MARKER][..], b"<end>"].concat();
        let trie = TokTrie::from(&TokRxInfo::new(size as u32, end), &words);
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let mut factory = ParserFactory::new_simple(&env).map_err(|e| failed("the vocabulary is not understood", e))?;
        factory.quiet();
        Ok(Vocabulary { factory, size, end })
    }

    /// A constraint at its start.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] for a rule that is damaged, too large, or asks for what is not supported.
    pub fn constraint(&self, rule: Rule<'_>) -> Result<Constraint> {
        let grammar = match rule {
            Rule::JsonSchema(text) => {
                let schema = serde_json::from_str(text).map_err(|e| failed("the JSON schema is no JSON", e))?;
                TopLevelGrammar::from_json_schema(schema)
            }
            Rule::Regex(text) => TopLevelGrammar::from_regex(text),
            Rule::Lark(text) => TopLevelGrammar::from_lark(text.to_string()),
        };
        let parser = self.factory.create_parser(grammar).map_err(|e| failed("the rule is not understood", e))?;
        Ok(Constraint { matcher: Matcher::new(Ok(parser)), size: self.size, end: self.end })
    }
}

/// Output under a rule, so far.
pub struct Constraint {
    matcher: Matcher,
    size: usize,
    end: u32,
}

impl Constraint {
    /// For each token, may it come next? The end token may where the output is complete.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] where the rule's limits are exceeded.
    pub fn allowed(&mut self) -> Result<Vec<bool>> {
        let mask = self.matcher.compute_mask_or_eos().map_err(|e| failed("no mask", e))?;
        Ok((0..self.size as u32).map(|token| mask.is_allowed(token)).collect())
    }

    /// Takes the token that was chosen.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] for one that was not allowed.
    pub fn take(&mut self, token: u32) -> Result<()> {
        if token == self.end && self.is_complete() && !self.matcher.is_error() {
            // Nothing could follow, so that the rule has ended by itself.
            return Ok(());
        }
        self.matcher.consume_token(token).map_err(|e| failed("a token that the rule does not allow", e))
    }

    /// Must the output end here?
    pub fn is_complete(&self) -> bool {
        self.matcher.is_stopped()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tokens are the printable bytes, and the last one is the end.
    fn vocabulary() -> Vocabulary {
        let vocab: serde_json::Map<String, serde_json::Value> =
            (32u8..127).map(|b| (char::from(b).to_string(), (b - 32).into())).collect();
        let json = serde_json::json!({
            "version": "1.0", "added_tokens": [], "decoder": null, "pre_tokenizer": null, "normalizer": null,
            "model": {"type": "BPE", "vocab": vocab, "merges": []},
        });
        let tokenizer = Tokenizer::from_json(json.to_string().as_bytes()).unwrap();
        Vocabulary::new(&tokenizer, 96, 95).unwrap()
    }

    fn accepts(vocabulary: &Vocabulary, rule: Rule<'_>, text: &str) -> bool {
        let mut constraint = vocabulary.constraint(rule).unwrap();
        for byte in text.bytes().map(|b| b - 32).chain([95]) {
            if !constraint.allowed().unwrap()[byte as usize] {
                return false;
            }
            constraint.take(byte.into()).unwrap();
        }
        constraint.is_complete()
    }

    #[test]
    fn rules_hold() {
        let vocabulary = vocabulary();
        let schema = Rule::JsonSchema(
            r#"{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": false}"#,
        );
        assert!(accepts(&vocabulary, schema, r#"{"a": 12}"#) && !accepts(&vocabulary, schema, r#"{"a": "x"}"#));
        assert!(!accepts(&vocabulary, schema, "{}") && !accepts(&vocabulary, schema, r#"{"a": 1} "x"#));
        assert!(
            accepts(&vocabulary, Rule::Regex("(ab)+c?"), "ababc") && !accepts(&vocabulary, Rule::Regex("(ab)+"), "aba")
        );
        let grammar = Rule::Lark("start: \"(\" start \")\" | \"x\"");
        assert!(accepts(&vocabulary, grammar, "((x))") && !accepts(&vocabulary, grammar, "((x)"));
        for rule in [
            Rule::JsonSchema("{"),
            Rule::JsonSchema(r#"{"type": "nothing"}"#),
            Rule::Regex("("),
            Rule::Lark("start: y"),
        ] {
            assert!(vocabulary.constraint(rule).is_err(), "{rule:?}");
        }
        assert!(vocabulary.constraint(schema).unwrap().take(0).is_err());
    }
}
