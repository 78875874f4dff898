//! Signatures as `help` and editors show them: with the defaults of the op table, where the binding itself says `...`.
//!
//! Depends on the table's schemas. Invariant: names, order and kinds of parameters stay those of the binding.

use lucid::ops::{schemas, Schema};

/// What the bindings add to rows, and other names of parameters.
const NO_DEFAULT: [&str; 13] = [
    "out",
    "layout",
    "pin_memory",
    "axis",
    "axis0",
    "axis1",
    "keepdims",
    "split_size",
    "indices",
    "sections",
    "tensor_indices_or_sections",
    "tensor",
    "input2",
];

/// A row's default, a Rust expression, as Python writes the value.
fn literal(rust: &str) -> Option<String> {
    let bare: String = rust.chars().filter(|c| !c.is_whitespace()).collect();
    if let Some(inner) = bare.strip_prefix("Some(").and_then(|s| s.strip_suffix(')')) {
        return literal(inner);
    }
    if let Some(items) = bare.strip_prefix("&[").and_then(|s| s.strip_suffix(']')) {
        return Some(match items.split(',').count() {
            1 if !items.is_empty() => items.to_string(),
            _ => format!("({})", items.replace(',', ", ")),
        });
    }
    match bare.as_str() {
        "None" => Some("None".to_string()),
        "true" => Some("True".to_string()),
        "false" => Some("False".to_string()),
        "$crate::ops::NormOrder::Fro" => Some("'fro'".to_string()),
        "&$crate::ops::Spacing::Number($crate::Scalar::ONE)" => Some("1".to_string()),
        "&$crate::ops::DimPairs::Count(2)" => Some("2".to_string()),
        text if text.starts_with('"') || text.parse::<f64>().is_ok() => Some(text.to_string()),
        _ => None,
    }
}

fn row_of(name: &str) -> Option<&'static Schema> {
    let named = |wanted: &str| schemas().find(|s| s.name.trim_start_matches("r#") == wanted);
    named(name).or_else(|| named(name.strip_suffix('_')?))
}

/// The signature of the function or method of this name: required parameters without a default, others with theirs.
pub fn told(name: &str, signature: &str) -> String {
    let Some(row) = row_of(name) else {
        return signature
            .replace("requires_grad=...", "requires_grad=False")
            .replace("dtype=...", "dtype=None")
            .replace("device=...", "device=None");
    };
    let Some(inner) = signature.strip_prefix('(').and_then(|s| s.strip_suffix(')')) else {
        return signature.to_string();
    };
    let mut optional = inner.starts_with("*args");
    let mut keyword_only = false;
    let mut parts = Vec::new();
    for part in inner.split(", ").filter(|p| !p.is_empty()) {
        keyword_only |= part.starts_with('*');
        let Some(own) = part.strip_suffix("=...") else {
            parts.push(part.to_string());
            continue;
        };
        let default = match row.params.iter().find(|p| p.name == own) {
            Some(p) => p.default.map(literal),
            None if own == "requires_grad" => Some(Some("False".to_string())),
            None if NO_DEFAULT.contains(&own) => Some(Some("None".to_string())),
            None => Some(None),
        };
        let has_default = default.is_some();
        parts.push(match default {
            Some(Some(text)) => format!("{own}={text}"),
            None if !optional || keyword_only && !inner.starts_with("*args") => own.to_string(),
            // Sizes that may be listed, and what follows an optional parameter, has to keep a default.
            None => format!("{own}=None"),
            Some(None) => part.to_string(),
        });
        optional |= has_default;
    }
    format!("({})", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_pythons() {
        let all = ["- 1", "& [1]", "& [- 2, - 1]", "& []", "Some(6)", "true", "\"mean\"", "1e-5", "f(x)"];
        let told: Vec<_> = all.iter().map(|d| literal(d)).collect();
        let expected = ["-1", "1", "(-2, -1)", "()", "6", "True", "\"mean\"", "1e-5"];
        assert_eq!(told[..8], expected.map(|s| Some(s.to_string())));
        assert_eq!(told[8], None);
    }

    #[test]
    fn required_parameters_have_none() {
        let topk = told("topk", "(input=..., k=..., dim=..., largest=..., sorted=..., *, axis=..., out=...)");
        assert_eq!(topk, "(input, k, dim=-1, largest=True, sorted=True, *, axis=None, out=None)");
    }
}
