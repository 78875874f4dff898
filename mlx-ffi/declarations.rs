//! Reads the declarations of mlx-c's headers without a C compiler, and writes functions of Rust in their place that fail: what
//! the bindings are where there is no MLX. A status is 1, which the safe layer reports as "built without the feature gpu";
//! everything else is zeros, which for a handle is the null one.
//!
//! It knows the C that these headers are written in: handles as structures of plain fields, enumerations, functions, and
//! pointers to functions.

use std::fs;
use std::path::Path;

type Outcome<T> = Result<T, String>;

const HEAD: &str =
    "#[repr(C)]\n#[derive(Debug, Copy, Clone)]\npub struct mlx_complex64_t {\n    pub re: f32,\n    pub im: f32,\n}\n";

/// The bindings of every header of a folder and of one more.
pub fn stand_ins(folder: &Path, shim: &Path) -> Outcome<String> {
    let read = |path: &Path| fs::read_to_string(path).map_err(|e| format!("cannot read {}: {e}", path.display()));
    let entries = fs::read_dir(folder).map_err(|e| format!("cannot read {}: {e}", folder.display()))?;
    let mut headers: Vec<_> = entries.flatten().map(|e| e.path()).collect();
    headers.retain(|p| p.extension().is_some_and(|e| e == "h") && p.file_name().is_some_and(|n| n != "half.h"));
    headers.sort();
    let mut text = HEAD.to_string();
    for path in headers.iter().map(|p| p.as_path()).chain([shim]) {
        for statement in statements(&tokens(&read(path)?)) {
            text += &item(statement).map_err(|e| format!("{}: {e}: {}", path.display(), statement.join(" ")))?;
        }
    }
    Ok(text)
}

/// The words and signs of a header, without comments, directives and what they say to C++ alone.
fn tokens(text: &str) -> Vec<String> {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("/*") {
        plain += before;
        rest = behind.split_once("*/").map_or("", |(_, behind)| behind);
    }
    plain += rest;
    let mut found: Vec<String> = Vec::new();
    let mut continued = false;
    for line in plain.lines() {
        let directive = continued || line.trim_start().starts_with('#');
        continued = directive && line.ends_with('\\');
        if directive || line.trim_start().starts_with("extern \"C\"") {
            continue;
        }
        let mut word = String::new();
        for c in line.split("//").next().unwrap_or_default().chars().chain([' ']) {
            if c.is_alphanumeric() || c == '_' {
                word.push(c);
                continue;
            }
            if !word.is_empty() {
                found.push(std::mem::take(&mut word));
            }
            if !c.is_whitespace() {
                found.push(c.to_string());
            }
        }
    }
    found
}

/// The statements, each up to a semicolon that is in no braces. A brace that closes none was C++'s.
fn statements(tokens: &[String]) -> Vec<&[String]> {
    let (mut found, mut start, mut depth) = (Vec::new(), 0, 0usize);
    for (i, token) in tokens.iter().enumerate() {
        match token.as_str() {
            "{" => depth += 1,
            "}" if depth == 0 => start = i + 1,
            "}" => depth -= 1,
            ";" if depth == 0 => {
                found.push(&tokens[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    found
}

fn item(statement: &[String]) -> Outcome<String> {
    let words: Vec<&str> = statement.iter().map(String::as_str).collect();
    // Of files and of halves, for which the shim has others, what C calls a complex number, and any number of arguments.
    let left_out = |w: &&str| {
        *w == "FILE"
            || w.starts_with("mlx_io_")
            || w.starts_with("mlx_load")
            || w.starts_with("mlx_save")
            || w.ends_with("float16")
            || w.ends_with("float16_t")
            || w.contains("omplex") && w.starts_with('_')
            || *w == "."
    };
    match words.as_slice() {
        [] | ["static", ..] => Ok(String::new()),
        words if words.iter().any(left_out) => Ok(String::new()),
        ["typedef", "struct", name, "{", fields @ .., "}", alias] => {
            let mut text = format!("#[repr(C)]\n#[derive(Debug, Copy, Clone)]\npub struct {name} {{\n");
            for field in fields.split(|w| *w == ";").filter(|f| !f.is_empty()) {
                let (name, kind) = declared(field)?;
                text += &format!("    pub {name}: {kind},\n");
            }
            Ok(format!("{text}}}\npub type {alias} = {name};\n"))
        }
        ["typedef", "enum", name, "{", members @ .., "}", alias] => {
            let mut text = format!("pub type {name} = ::std::os::raw::c_uint;\npub type {alias} = {name};\n");
            let mut next = 0u32;
            for member in members.split(|w| *w == ",").filter(|m| !m.is_empty()) {
                if let [_, "=", value] = member {
                    next = value.parse().map_err(|_| format!("no number: {value}"))?;
                }
                text += &format!("pub const {}: {name} = {next};\n", member[0]);
                next += 1;
            }
            Ok(text)
        }
        ["typedef", rest @ ..] => declared(rest).map(|(name, kind)| format!("pub type {name} = {kind};\n")),
        [result @ .., ")"] => {
            let open = result.iter().position(|w| *w == "(").ok_or("no parameters")?;
            let (name, kind) = declared(&result[..open])?;
            let parameters = parameters(&result[open + 1..])?;
            let list: Vec<String> = parameters.iter().enumerate().map(|(i, kind)| format!("_{i}: {kind}")).collect();
            let body = match kind.as_str() {
                "()" => "",
                "::std::os::raw::c_int" => "1",
                _ => "\n    // SAFETY: numbers, truth values, pointers and structures of these may be zeros.\n    unsafe { ::std::mem::zeroed() }\n",
            };
            Ok(format!("pub unsafe extern \"C\" fn {name}({}) -> {kind} {{ {body} }}\n", list.join(", ")))
        }
        _ => Err("a declaration of another form than expected; build with the feature gpu".to_string()),
    }
}

/// The types of parameters, between the parentheses.
fn parameters(words: &[&str]) -> Outcome<Vec<String>> {
    if words.is_empty() || words == ["void"] {
        return Ok(Vec::new());
    }
    let (mut found, mut start, mut depth) = (Vec::new(), 0, 0usize);
    for (i, word) in words.iter().chain([&","]).enumerate() {
        match *word {
            "(" => depth += 1,
            ")" => depth = depth.saturating_sub(1),
            "," if depth == 0 => {
                found.push(declared(&words[start..i])?.1);
                start = i + 1;
            }
            _ => {}
        }
    }
    Ok(found)
}

/// The name, empty where there is none, and the type of a field, a parameter, a function or a `typedef`.
fn declared(words: &[&str]) -> Outcome<(String, String)> {
    if let Some(at) = words.windows(2).position(|w| w == ["(", "*"]) {
        let result = declared(&words[..at])?.1;
        let close = at + words[at..].iter().position(|w| *w == ")").ok_or("an open parenthesis")?;
        let list = words.get(close + 2..words.len() - 1).ok_or("no parameters")?;
        let kind = format!("Option<unsafe extern \"C\" fn({}) -> {result}>", parameters(list)?.join(", "));
        return Ok((words[at + 2..close].concat(), kind));
    }
    let mut words = words;
    let array = matches!(words, [.., "]"]);
    if let (true, Some(open)) = (array, words.iter().position(|w| *w == "[")) {
        words = &words[..open];
    }
    let mut base = String::new();
    let (mut name, mut kind, mut constant) = (String::new(), None::<String>, false);
    for word in words {
        match *word {
            "const" => constant = true,
            "*" => {
                let inner = kind.take().unwrap_or_else(|| rust(&base));
                let inner = if inner == "()" { "::std::os::raw::c_void".to_string() } else { inner };
                kind = Some(format!("*{} {inner}", if constant { "const" } else { "mut" }));
                constant = false;
            }
            "struct" | "enum" => {}
            _ if base.is_empty()
                || matches!(base.as_str(), "unsigned" | "long" | "signed")
                    && matches!(*word, "int" | "char" | "long") =>
            {
                base = format!("{base} {word}").trim().to_string();
            }
            _ => name = (*word).to_string(),
        }
    }
    let mut kind = kind.unwrap_or_else(|| rust(&base));
    if array {
        kind = format!("*{} {kind}", if constant { "const" } else { "mut" });
    }
    Ok((if name == "type" { "type_".to_string() } else { name }, kind))
}

/// Rust's name of a C type.
fn rust(base: &str) -> String {
    match base {
        "void" => "()",
        "int" => "::std::os::raw::c_int",
        "unsigned int" | "unsigned" => "::std::os::raw::c_uint",
        "char" => "::std::os::raw::c_char",
        "float" => "f32",
        "double" => "f64",
        "size_t" | "uintptr_t" => "usize",
        "ptrdiff_t" | "intptr_t" => "isize",
        "int8_t" => "i8",
        "int16_t" => "i16",
        "int32_t" => "i32",
        "int64_t" => "i64",
        "uint8_t" => "u8",
        "uint16_t" => "u16",
        "uint32_t" => "u32",
        "uint64_t" => "u64",
        other => other,
    }
    .to_string()
}
