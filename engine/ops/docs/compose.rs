//! Makes `op_doc!` of the texts in this folder: the documentation of each op beyond its row's summary, for rustdoc and for
//! Python's docstrings. Part of the root package's build script.
//!
//! A text file is a list of entries. An entry's head is at the start of a line and its body is indented by four spaces:
//!
//! ```text
//! clamp(input: Tensor, min: Tensor or number?, max: Tensor or number? | out: Tensor?)
//!     A formula or a remark.
//!     min: the lower bound; none by default.
//!     Returns: a tensor of the shape that all broadcast to.
//!     Raises ValueError: neither bound is given.
//!     >>> lucid.clamp(lucid.tensor([-2.0, 0.5]), min=0.0)
//!     tensor([0.0000, 0.5000])
//! ```
//!
//! The head names the parameters of the row and their types, optional ones with a `?` or a default; those after `|` exist in Python alone. A
//! parameter, `Returns` or `Raises` that an entry leaves out is taken from the entry `shared` of its file, then from
//! `arguments.txt`. A name without a description stops the build.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// One entry of a text file.
#[derive(Default)]
struct Entry {
    /// Names and types.
    parameters: Vec<(String, String)>,
    python_only: Vec<(String, String)>,
    remarks: Vec<String>,
    arguments: BTreeMap<String, String>,
    returns: Option<String>,
    raises: Vec<String>,
    example: Vec<String>,
}

type Entries = BTreeMap<String, Entry>;

/// The source of `op_doc!`, from the text files of a folder.
pub fn macro_source(folder: &Path) -> Result<String, String> {
    let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .map_err(failed)?
        .filter_map(|f| f.ok().map(|f| f.path()))
        .filter(|p| p.extension().is_some_and(|e| e == "txt"))
        .collect();
    files.sort();
    let read = |path: &Path| std::fs::read_to_string(path).map_err(failed).and_then(|text| parse(&text));
    let mut common = read(&folder.join("arguments.txt"))?;
    let common = common.remove("shared").unwrap_or_default();
    let mut source = String::from(
        "/// The documentation of an op beyond its summary, in the form of one language.\n#[doc(hidden)]\n#[macro_export]\nmacro_rules! op_doc {\n",
    );
    for path in files.iter().filter(|p| !p.ends_with("arguments.txt")) {
        let mut entries = read(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let shared = entries.remove("shared").unwrap_or_default();
        for (name, entry) in &entries {
            let whole = Whole::new(name, entry, [&shared, &common])?;
            let ident = if KEYWORDS.contains(&name.as_str()) { format!("r#{name}") } else { name.clone() };
            for (form, text) in
                [("rust", whole.rust()), ("python", whole.python(false)), ("in_place", whole.python(true))]
            {
                let _ = writeln!(source, "    ({form} {ident}) => {{ {text:?} }};");
            }
        }
    }
    source.push_str("    ($form:ident $name:ident) => { \"\" };\n}\n");
    Ok(source)
}

/// Names of ops that Rust has as keywords.
const KEYWORDS: &[&str] = &["where", "type", "move", "match", "mod"];

fn parse(text: &str) -> Result<Entries, String> {
    let mut entries = Entries::new();
    let mut name = String::new();
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        if line.is_empty() {
            continue;
        }
        let Some(body) = line.strip_prefix("    ") else {
            let (entry_name, entry) = head(line);
            if entries.insert(entry_name.clone(), entry).is_some() {
                return Err(format!("two entries {entry_name:?}"));
            }
            name = entry_name;
            continue;
        };
        let entry = entries.get_mut(&name).ok_or_else(|| format!("no head before {line:?}"))?;
        body_line(entry, body);
    }
    Ok(entries)
}

fn head(line: &str) -> (String, Entry) {
    let (name, rest) = line.split_once('(').unwrap_or((line, ""));
    let rest = rest.trim_end().trim_end_matches(')');
    let (own, python_only) = rest.split_once('|').unwrap_or((rest, ""));
    let entry = Entry { parameters: typed(own), python_only: typed(python_only), ..Entry::default() };
    (name.trim().to_string(), entry)
}

/// The names and types of a list `input: Tensor, dim: int?`.
fn typed(list: &str) -> Vec<(String, String)> {
    let pairs = list.split(',').filter_map(|p| p.split_once(':'));
    pairs
        .map(|(name, kind)| {
            let kind = kind.trim();
            let kind = match (kind.strip_suffix('?'), kind.split_once(" = ")) {
                (Some(of), _) => format!("{of}, optional"),
                (None, Some((of, default))) => format!("{of}, default: {default}"),
                (None, None) => kind.to_string(),
            };
            (name.trim().to_string(), kind)
        })
        .collect()
}

fn body_line(entry: &mut Entry, body: &str) {
    if body.starts_with(">>>") || body.starts_with("...") || !entry.example.is_empty() {
        entry.example.push(body.to_string());
    } else if let Some(text) = body.strip_prefix("Returns: ") {
        entry.returns = Some(text.to_string());
    } else if let Some(text) = body.strip_prefix("Raises ") {
        entry.raises.push(text.to_string());
    } else if let Some((name, text)) = argument(body) {
        entry.arguments.insert(name.to_string(), text.to_string());
    } else {
        entry.remarks.push(body.to_string());
    }
}

/// The name and the description of a line `name: …`.
fn argument(body: &str) -> Option<(&str, &str)> {
    let (name, text) = body.split_once(": ")?;
    let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then_some((name, text))
}

/// An entry with what it shares filled in.
struct Whole<'a> {
    remarks: &'a [String],
    /// Name, type, description, and is it Python's alone?
    arguments: Vec<(&'a str, &'a str, &'a str, bool)>,
    returns: &'a str,
    raises: Vec<&'a str>,
    example: &'a [String],
}

impl<'a> Whole<'a> {
    fn new(name: &'a str, entry: &'a Entry, shared: [&'a Entry; 2]) -> Result<Whole<'a>, String> {
        let all = || [entry, shared[0], shared[1]].into_iter();
        let own = entry.parameters.iter().map(|p| (p, false));
        let mut arguments = Vec::new();
        for ((p, kind), python_only) in own.chain(entry.python_only.iter().map(|p| (p, true))) {
            let about = all().find_map(|e| e.arguments.get(p)).ok_or_else(|| format!("{name}: no text for {p}"))?;
            arguments.push((p.as_str(), kind.as_str(), about.as_str(), python_only));
        }
        if let Some(other) = entry.arguments.keys().find(|k| !arguments.iter().any(|a| a.0 == *k)) {
            return Err(format!("{name}: no parameter {other}"));
        }
        let returns = all().find_map(|e| e.returns.as_deref()).ok_or_else(|| format!("{name}: no Returns"))?;
        let raises: Vec<&str> =
            all().map(|e| &e.raises).find(|r| !r.is_empty()).into_iter().flatten().map(|r| &**r).collect();
        Ok(Whole { remarks: &entry.remarks, arguments, returns, raises, example: &entry.example })
    }

    fn rust(&self) -> String {
        let mut text = String::new();
        for line in self.remarks {
            let _ = write!(text, "\n\n {line}");
        }
        text.push_str("\n\n # Arguments\n");
        for (name, _, about, _) in self.arguments.iter().filter(|a| !a.3) {
            let _ = write!(text, "\n - `{name}`: {about}");
        }
        let _ = write!(text, "\n\n # Returns\n\n {}", self.returns.trim_start_matches("Tensor: "));
        if !self.raises.is_empty() {
            text.push_str("\n\n # Errors\n");
            for line in &self.raises {
                let _ = write!(text, "\n - {line}");
            }
        }
        text.push('\n');
        // Brackets are shapes and intervals here, no links.
        text.replace('[', "\\[")
    }

    fn python(&self, in_place: bool) -> String {
        let mut text: String = self.remarks.iter().map(|line| format!("\n{line}\n")).collect();
        let arguments: Vec<_> = self.arguments.iter().filter(|a| !in_place || a.0 != "input" && !a.3).collect();
        if !arguments.is_empty() {
            text.push_str("\nArgs:");
            for (name, kind, about, _) in arguments {
                let _ = write!(text, "\n    {name} ({kind}): {about}");
            }
            text.push('\n');
        }
        let returns = if in_place { "Tensor: the tensor itself, which holds the result." } else { self.returns };
        let _ = write!(text, "\nReturns:\n    {returns}\n\nRaises:");
        for line in &self.raises {
            let _ = write!(text, "\n    {line}");
        }
        if in_place {
            text.push_str("\n    RuntimeError: the result's shape or dtype is not the tensor's, or it is a leaf that requires gradients.");
        }
        if !self.example.is_empty() {
            let of = if in_place { " of the form that makes a new tensor" } else { "" };
            let _ = write!(text, "\n\nExample{of}:");
            for line in self.example {
                let _ = write!(text, "\n    {line}");
            }
        }
        text
    }
}
