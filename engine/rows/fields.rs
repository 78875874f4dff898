//! The labelled fields of a row.

use crate::{Mistake, Parsed};
use proc_macro::{Span, TokenStream, TokenTree};

/// Every field that a row may have.
const LABELS: &[&str] = &[
    "in_place",
    "python",
    "out",
    "call",
    "amp",
    "deterministic",
    "dtypes",
    "result",
    "primitive",
    "saves",
    "gradient",
    "run",
    "node",
    "torch",
    "flags",
    "samples",
    "example",
];

/// A row's fields, by label.
pub struct Fields {
    span: Span,
    found: Vec<(String, Span, Vec<TokenTree>)>,
}

impl Fields {
    /// The fields of a row's braces. A comma ends one where a label and a colon follow it.
    pub fn parse(span: Span, body: TokenStream) -> Parsed<Fields> {
        let tokens: Vec<TokenTree> = body.into_iter().collect();
        let mut found: Vec<(String, Span, Vec<TokenTree>)> = Vec::new();
        let mut i = 0;
        while i < tokens.len() {
            let (label, at) = match label_at(&tokens, i) {
                Some(label) => label,
                None => return Err(Mistake(tokens[i].span(), "a row is a list of `label: value`".into())),
            };
            if !LABELS.contains(&label.as_str()) {
                return Err(Mistake(
                    at,
                    format!("no field of a row is called `{label}`; there are {}", LABELS.join(", ")),
                ));
            }
            if found.iter().any(|(known, ..)| *known == label) {
                return Err(Mistake(at, format!("`{label}` is given twice")));
            }
            let start = i + 2;
            let mut end = start;
            while end < tokens.len() && !(is_punct(&tokens[end], ',') && ends_here(&tokens, end)) {
                end += 1;
            }
            if start == end {
                return Err(Mistake(at, format!("`{label}` has no value")));
            }
            found.push((label, at, tokens[start..end].to_vec()));
            i = end + 1;
        }
        Ok(Fields { span, found })
    }

    /// The value of a field, and nothing where the row leaves it out.
    pub fn optional(&mut self, label: &str) -> Option<Vec<TokenTree>> {
        let place = self.found.iter().position(|(known, ..)| known == label)?;
        Some(self.found.swap_remove(place).2)
    }

    /// The value of a field that every row has.
    pub fn required(&mut self, label: &str) -> Parsed<Vec<TokenTree>> {
        self.optional(label).ok_or_else(|| Mistake(self.span, format!("the row says no `{label}`")))
    }

    /// The word of a field, one of `words`; `default` where the row leaves it out.
    pub fn word(&mut self, label: &str, words: &[&str], default: &str) -> Parsed<String> {
        let Some(value) = self.optional(label) else { return Ok(default.into()) };
        match value.as_slice() {
            [TokenTree::Ident(word)] if words.contains(&word.to_string().as_str()) => Ok(word.to_string()),
            [first, ..] => Err(Mistake(first.span(), format!("`{label}` is one of {}", words.join(", ")))),
            [] => Err(Mistake(self.span, format!("`{label}` has no value"))),
        }
    }

    /// The words of a bracketed list, each one of `words`, in the order of `words`.
    pub fn flags(&mut self, label: &str, words: &[&'static str]) -> Parsed<Vec<&'static str>> {
        let Some(value) = self.optional(label) else { return Ok(Vec::new()) };
        let [TokenTree::Group(list)] = value.as_slice() else {
            return Err(Mistake(self.span, format!("`{label}` is a list in brackets")));
        };
        let mut given = Vec::new();
        for token in list.stream().into_iter().filter(|t| !is_punct(t, ',')) {
            let word = token.to_string();
            if !words.contains(&word.as_str()) || given.contains(&word) {
                return Err(Mistake(token.span(), format!("`{label}` lists, once each, some of {}", words.join(", "))));
            }
            given.push(word);
        }
        Ok(words.iter().copied().filter(|word| given.iter().any(|g| g == word)).collect())
    }
}

/// Is the token that character?
pub fn is_punct(token: &TokenTree, char: char) -> bool {
    matches!(token, TokenTree::Punct(p) if p.as_char() == char)
}

/// The label that starts at a place: a name, a colon and no second colon.
fn label_at(tokens: &[TokenTree], i: usize) -> Option<(String, Span)> {
    let (Some(TokenTree::Ident(name)), Some(colon)) = (tokens.get(i), tokens.get(i + 1)) else { return None };
    let path = tokens.get(i + 2).is_some_and(|t| is_punct(t, ':'))
        && matches!(colon, TokenTree::Punct(p) if p.spacing() == proc_macro::Spacing::Joint);
    (is_punct(colon, ':') && !path).then(|| (name.to_string(), name.span()))
}

/// Does the comma at a place end a field: is it the last token, or does a label follow?
fn ends_here(tokens: &[TokenTree], comma: usize) -> bool {
    comma + 1 == tokens.len() || label_at(tokens, comma + 1).is_some()
}
