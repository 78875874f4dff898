//! Trees of plain values as JSON, exactly: reals as the shortest decimal text that gives them back.

use lucid_ir::codec::{Arg, Form, Polynomial};
use serde_json::{json, Map, Value};

/// As JSON text.
pub(super) fn to_json(arg: &Arg) -> String {
    tree(arg).to_string()
}

fn tree(arg: &Arg) -> Value {
    match arg {
        Arg::Null => Value::Null,
        Arg::Bool(b) => Value::Bool(*b),
        Arg::Int(n) => json!(n),
        Arg::Float(x) => json!({ "real": format!("{x:?}") }),
        Arg::Str(text) => Value::String(text.clone()),
        Arg::List(list) => Value::Array(list.iter().map(tree).collect()),
        Arg::Size { formula, form } => {
            let terms: Vec<Value> = formula.terms.iter().map(|(factor, of)| json!([factor, of.to_vec()])).collect();
            let form = match form {
                Form::Int => "int",
                Form::Real => "real",
                Form::Inverse => "inverse",
            };
            json!({ "size": terms, "form": form })
        }
    }
}

/// Of JSON text; `None` where it is damaged.
pub(super) fn from_json(text: &str) -> Option<Arg> {
    arg(&serde_json::from_str(text).ok()?)
}

fn arg(value: &Value) -> Option<Arg> {
    Some(match value {
        Value::Null => Arg::Null,
        Value::Bool(b) => Arg::Bool(*b),
        Value::Number(n) => Arg::Int(n.as_i64()?),
        Value::String(text) => Arg::Str(text.clone()),
        Value::Array(list) => Arg::List(list.iter().map(arg).collect::<Option<_>>()?),
        Value::Object(map) => return object(map),
    })
}

fn object(map: &Map<String, Value>) -> Option<Arg> {
    if let Some(text) = map.get("real") {
        return (map.len() == 1).then_some(Arg::Float(text.as_str()?.parse().ok()?));
    }
    let form = match map.get("form")?.as_str()? {
        "int" => Form::Int,
        "real" => Form::Real,
        "inverse" => Form::Inverse,
        _ => return None,
    };
    let term = |value: &Value| {
        let [factor, of] = value.as_array()?.as_slice() else { return None };
        let of = of.as_array()?.iter().map(|symbol| u8::try_from(symbol.as_u64()?).ok()).collect::<Option<_>>()?;
        Some((factor.as_i64()?, of))
    };
    let terms = map.get("size")?.as_array()?.iter().map(term).collect::<Option<_>>()?;
    Some(Arg::Size { formula: Polynomial { terms }, form })
}
