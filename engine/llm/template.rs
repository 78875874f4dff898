//! Chat templates: the Jinja text of a tokenizer, with the messages of a conversation, gives a prompt.
//!
//! Depends on `minijinja` with Python's methods of strings and lists. Invariant: a template of any text ends, with a
//! prompt or an error: steps, nesting and the length of what it writes are limited.

use crate::{Error, Result};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Value};
use minijinja::{Environment, ErrorKind, UndefinedBehavior};

const OP: &str = "apply_chat_template";
/// Instructions that a template may run.
const FUEL: u64 = 10_000_000;
const DEEPEST: usize = 200;
/// Bytes of a template, and of what it writes.
const LONGEST: usize = 16 << 20;

fn raise(text: String) -> std::result::Result<Value, minijinja::Error> {
    Err(minijinja::Error::new(ErrorKind::InvalidOperation, text))
}

/// JSON as Python's `json.dumps` writes it.
fn tojson(value: Value, options: Kwargs) -> std::result::Result<Value, minijinja::Error> {
    let indent: Option<usize> = options.get("indent")?;
    let _: Option<bool> = options.get("ensure_ascii")?;
    let _: Option<bool> = options.get("sort_keys")?;
    options.assert_all_used()?;
    let failed = |e: serde_json::Error| minijinja::Error::new(ErrorKind::BadSerialization, e.to_string());
    let made = match indent {
        Some(n) if n > 64 => return raise(format!("tojson: an indent of {n} is too wide")),
        Some(n) => {
            let spaces = " ".repeat(n);
            let style = serde_json::ser::PrettyFormatter::with_indent(spaces.as_bytes());
            let mut out = Vec::new();
            let mut writer = serde_json::Serializer::with_formatter(&mut out, style);
            serde::Serialize::serialize(&value, &mut writer).map_err(failed)?;
            String::from_utf8_lossy(&out).into_owned()
        }
        None => {
            let mut out = Vec::new();
            let mut writer = serde_json::Serializer::with_formatter(&mut out, Spaced);
            serde::Serialize::serialize(&value, &mut writer).map_err(failed)?;
            String::from_utf8_lossy(&out).into_owned()
        }
    };
    Ok(Value::from_safe_string(made))
}

/// A space after commas and colons.
struct Spaced;
impl serde_json::ser::Formatter for Spaced {
    fn begin_array_value<W: ?Sized + std::io::Write>(&mut self, writer: &mut W, first: bool) -> std::io::Result<()> {
        if first {
            Ok(())
        } else {
            writer.write_all(b", ")
        }
    }
    fn begin_object_key<W: ?Sized + std::io::Write>(&mut self, writer: &mut W, first: bool) -> std::io::Result<()> {
        if first {
            Ok(())
        } else {
            writer.write_all(b", ")
        }
    }
    fn begin_object_value<W: ?Sized + std::io::Write>(&mut self, writer: &mut W) -> std::io::Result<()> {
        writer.write_all(b": ")
    }
}

/// Collects what a template writes, up to [`LONGEST`] bytes.
struct Limited(Vec<u8>);
impl std::io::Write for Limited {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + data.len() > LONGEST {
            return Err(std::io::Error::other(format!("the prompt is longer than {LONGEST} bytes")));
        }
        self.0.extend_from_slice(data);
        Ok(data.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The prompt that `template` makes of `variables`, a JSON object such as
/// `{"messages": [{"role": "user", "content": "Hello"}], "add_generation_prompt": true, "bos_token": "<s>"}`.
///
/// # Errors
/// [`Error::InvalidValue`] with the template's line where it is no template, raises, or takes too long.
///
/// # Examples
/// ```
/// let template = "{% for m in messages %}[{{ m.role }}] {{ m.content.strip() }}\n{% endfor %}";
/// let made = lucid::llm::template::render(template, r#"{"messages": [{"role": "user", "content": " Hello "}]}"#)?;
/// assert_eq!(made, "[user] Hello\n");
/// # lucid::Result::<()>::Ok(())
/// ```
pub fn render(template: &str, variables: &str) -> Result<String> {
    if template.len() > LONGEST || variables.len() > LONGEST {
        return Err(Error::value(OP, format!("a template or messages of more than {LONGEST} bytes")));
    }
    let variables: Value =
        serde_json::from_str(variables).map_err(|e| Error::value(OP, format!("the messages are no JSON: {e}")))?;
    let mut env = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    env.set_syntax(syntax.map_err(|e| Error::value(OP, e.to_string()))?);
    env.set_undefined_behavior(UndefinedBehavior::Lenient);
    env.set_recursion_limit(DEEPEST);
    env.set_fuel(Some(FUEL));
    env.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    env.add_function("raise_exception", raise);
    env.add_filter("tojson", tojson);
    let failed = |e: minijinja::Error| {
        let line = e.line().map(|n| format!(" (line {n})")).unwrap_or_default();
        Error::value(OP, format!("the chat template failed{line}: {e}"))
    };
    env.add_template("chat", template).map_err(failed)?;
    let mut out = Limited(Vec::new());
    env.get_template("chat").map_err(failed)?.render_captured_to(variables, &mut out).map_err(failed)?;
    String::from_utf8(out.0).map_err(|_| Error::value(OP, "the chat template wrote what is not UTF-8"))
}
