//! A family's rows: what they say, and the fixed form that other macros read.

use crate::fields::{is_punct, Fields};
use crate::{Mistake, Parsed};
use proc_macro::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};

/// Words that a row's `flags` may list, in the order in which they are handed on.
const FLAGS: &[&str] = &["no_gradient", "steps", "piecewise_linear", "old_numbers", "internal"];
const IN_PLACE: &[&str] = &["yes", "of_reals", "of_doubles", "body", "comparison", "unrecorded", "view"];
const PYTHON: &[&str] = &["function", "method", "in_place"];
const CALL: &[&str] = &["creates", "variadic"];
/// Families of which PyTorch's functions do not write to `out=`.
const WITHOUT_OUT: &[&str] = &["view", "transfer", "conv", "pool", "norm", "loss", "quantized"];

/// The rows of one family, for a macro.
pub struct Family {
    callback: TokenTree,
    name: TokenTree,
    primitives: Option<TokenTree>,
    rows: Vec<TokenStream>,
}

/// What every row of a family shares: form, signature and body.
struct Shared {
    form: TokenTree,
    signature: TokenTree,
    run: Vec<TokenTree>,
}

/// Reads tokens one by one.
struct Cursor {
    tokens: Vec<TokenTree>,
    next: usize,
}

impl Cursor {
    fn peek(&self) -> Option<&TokenTree> {
        self.tokens.get(self.next)
    }

    fn take(&mut self, what: &str) -> Parsed<TokenTree> {
        let token = self.tokens.get(self.next).cloned();
        self.next += 1;
        token.ok_or_else(|| {
            Mistake(self.tokens.last().map_or_else(Span::call_site, TokenTree::span), format!("{what} is missing"))
        })
    }

    fn punct(&mut self, char: char) -> Parsed<()> {
        let token = self.take(&format!("`{char}`"))?;
        if is_punct(&token, char) {
            Ok(())
        } else {
            Err(Mistake(token.span(), format!("`{char}` is expected here")))
        }
    }

    fn group(&mut self, delimiter: Delimiter, what: &str) -> Parsed<Group> {
        match self.take(what)? {
            TokenTree::Group(group) if group.delimiter() == delimiter => Ok(group),
            other => Err(Mistake(other.span(), format!("{what} is expected here"))),
        }
    }

    /// Tokens up to that character, which is taken too.
    fn until(&mut self, char: char) -> Parsed<Vec<TokenTree>> {
        let mut taken = Vec::new();
        loop {
            let token = self.take(&format!("`{char}`"))?;
            if is_punct(&token, char) {
                return Ok(taken);
            }
            taken.push(token);
        }
    }
}

impl Family {
    /// `cb "family" Enum, each form (signature) run path : rows`, without an enum for a family of compositions.
    pub fn parse(input: TokenStream) -> Parsed<Family> {
        let mut at = Cursor { tokens: input.into_iter().collect(), next: 0 };
        let callback = at.take("the macro that reads the rows")?;
        let name = at.take("the family's name")?;
        let family = name.to_string().trim_matches('"').to_string();
        let primitives = match at.peek() {
            Some(TokenTree::Ident(_)) => Some(at.take("the enum of primitives")?),
            _ => None,
        };
        let shared = if at.peek().is_some_and(|t| is_punct(t, ',')) {
            at.punct(',')?;
            at.take("`each`")?;
            let form = at.take("`method` or `function`")?;
            let signature = TokenTree::Group(at.group(Delimiter::Parenthesis, "a signature")?);
            at.take("`run`")?;
            let run = at.until(':')?;
            Some(Shared { form, signature, run })
        } else {
            at.punct(':')?;
            None
        };
        let mut rows = Vec::new();
        while at.peek().is_some() {
            rows.push(row(&mut at, &family, primitives.as_ref(), shared.as_ref())?);
        }
        Ok(Family { callback, name, primitives, rows })
    }

    /// The call of the macro, with the rows in their fixed form.
    pub fn emit(self) -> TokenStream {
        let mut inside: Vec<TokenTree> = vec![self.name];
        inside.extend(self.primitives);
        inside.extend(tokens(":"));
        let mut inside: TokenStream = inside.into_iter().collect();
        inside.extend(self.rows);
        let mut call: TokenStream = TokenStream::from(self.callback);
        call.extend(tokens("!"));
        call.extend([TokenTree::Group(Group::new(Delimiter::Brace, inside))]);
        call
    }
}

/// Source text as tokens.
fn tokens(source: &str) -> TokenStream {
    source.parse().unwrap_or_default()
}

/// A bracketed group of tokens.
fn wrapped(delimiter: Delimiter, inside: impl IntoIterator<Item = TokenTree>) -> TokenTree {
    TokenTree::Group(Group::new(delimiter, inside.into_iter().collect()))
}

fn word(text: &str) -> TokenTree {
    TokenTree::Ident(Ident::new(text, Span::call_site()))
}

/// One row, in its fixed form:
///
/// ```text
/// docs form name (signature) -> Result {
///     [flags] call in_place python [out] out_dtype amp determinism dtypes, result,
///     prim Variant { payload } Saves {gradient},      (of primitives)
///     run path [arguments], node (name), torch (path), samples […], example […]
/// }
/// ```
fn row(at: &mut Cursor, family: &str, primitives: Option<&TokenTree>, shared: Option<&Shared>) -> Parsed<TokenStream> {
    let mut made: Vec<TokenTree> = Vec::new();
    while at.peek().is_some_and(|t| is_punct(t, '#')) {
        made.push(at.take("a doc comment")?);
        made.push(at.take("a doc comment")?);
    }
    let (name, head, variant) = match shared {
        Some(shared) => {
            let name = at.take("the op's name")?;
            at.punct('=')?;
            let variant = at.take("the primitive")?;
            let arrow = tokens("-> Tensor");
            let head = [shared.form.clone(), name.clone(), shared.signature.clone()].into_iter().chain(arrow).collect();
            (name, head, Some(variant))
        }
        None => {
            let form = at.take("`method` or `function`")?;
            if !matches!(form.to_string().as_str(), "method" | "function") {
                return Err(Mistake(form.span(), "a row begins with `method` or `function`".into()));
            }
            let name = at.take("the op's name")?;
            let mut head: Vec<TokenTree> = vec![form, name.clone()];
            head.push(TokenTree::Group(at.group(Delimiter::Parenthesis, "a signature")?));
            at.punct('-')?;
            at.punct('>')?;
            head.extend(tokens("->"));
            head.push(at.take("the result")?);
            (name, head, None)
        }
    };
    let body = at.group(Delimiter::Brace, "the row's fields in braces")?;
    let mut fields = Fields::parse(name.span(), body.stream())?;
    made.extend(head);
    made.push(wrapped(Delimiter::Brace, fixed(&mut fields, &name, family, primitives, shared, variant)?));
    Ok(made.into_iter().collect())
}

/// The fields in their fixed order.
fn fixed(
    fields: &mut Fields,
    name: &TokenTree,
    family: &str,
    primitives: Option<&TokenTree>,
    shared: Option<&Shared>,
    variant: Option<TokenTree>,
) -> Parsed<Vec<TokenTree>> {
    let mut made = policy(fields, family)?;
    made.extend(rule(fields, name, variant.clone())?);
    made.push(word("run"));
    match (shared, primitives, variant) {
        (Some(shared), Some(primitives), Some(variant)) => {
            made.extend(shared.run.iter().cloned());
            made.push(wrapped(
                Delimiter::Bracket,
                [primitives.clone()].into_iter().chain(tokens("::")).chain([variant]),
            ));
            if fields.optional("run").is_some() {
                return Err(Mistake(name.span(), "the family says `run` for all its rows".into()));
            }
        }
        _ => made.extend(fields.required("run")?),
    }
    made.extend(tokens(", node"));
    let node = fields.optional("node");
    let is_rule = node.as_ref().is_some_and(|n| n.first().is_some_and(|t| is_punct(t, '|')));
    let delimiter = if is_rule { Delimiter::Brace } else { Delimiter::Parenthesis };
    made.push(wrapped(delimiter, node.unwrap_or_default()));
    made.extend(tokens(", torch"));
    made.push(wrapped(Delimiter::Parenthesis, fields.optional("torch").unwrap_or_default()));
    for label in ["samples", "example"] {
        made.extend(tokens(","));
        made.push(word(label));
        made.extend(fields.required(label)?);
    }
    Ok(made)
}

/// Flags, forms, autocast, determinism and dtypes.
fn policy(fields: &mut Fields, family: &str) -> Parsed<Vec<TokenTree>> {
    let flags = fields.flags("flags", FLAGS)?;
    let mut made = vec![wrapped(Delimiter::Bracket, flags.into_iter().map(word))];
    made.push(word(&fields.word("call", CALL, "plain")?));
    made.push(word(&fields.word("in_place", IN_PLACE, "none")?));
    made.push(word(&fields.word("python", PYTHON, "all")?));
    let mut out: Vec<TokenTree> = if WITHOUT_OUT.contains(&family) { Vec::new() } else { vec![word("out")] };
    let mut dtype = "auto".to_string();
    if let Some(value) = fields.optional("out") {
        match value.as_slice() {
            [TokenTree::Ident(how)] if how.to_string() == "none" => out.clear(),
            [TokenTree::Ident(how)] if matches!(how.to_string().as_str(), "own" | "cast" | "rule") => {
                out = vec![word("out")];
                dtype = how.to_string();
            }
            [TokenTree::Ident(how), TokenTree::Group(which)] if how.to_string() == "with" => {
                out = [word("out")].into_iter().chain(which.stream()).collect();
            }
            [first, ..] => {
                return Err(Mistake(first.span(), "`out` is one of none, own, cast, rule, with(parameter)".into()))
            }
            [] => {}
        }
    }
    made.push(wrapped(Delimiter::Bracket, out));
    made.push(word(&dtype));
    match fields.optional("amp") {
        Some(amp) => made.extend(amp),
        None => made.push(word("Keep")),
    }
    match fields.optional("deterministic").as_deref() {
        None => made.push(word("Yes")),
        Some([TokenTree::Ident(no), TokenTree::Group(why)]) if no.to_string() == "No" => {
            made.push(wrapped(Delimiter::Bracket, why.stream()));
        }
        Some(word) => made.extend(word.iter().cloned()),
    }
    made.extend(tokens("DTypes::"));
    made.extend(fields.required("dtypes")?);
    made.extend(tokens(","));
    made.extend(fields.required("result")?);
    made.extend(tokens(","));
    Ok(made)
}

/// The primitive with what the tape saves and the gradient rule; nothing of a composition.
fn rule(fields: &mut Fields, name: &TokenTree, variant: Option<TokenTree>) -> Parsed<Vec<TokenTree>> {
    let primitive = match variant {
        Some(variant) => Some(vec![variant]),
        None => fields.optional("primitive"),
    };
    let (saves, gradient) = (fields.optional("saves"), fields.optional("gradient"));
    let Some(primitive) = primitive else {
        return match saves.or(gradient) {
            Some(_) => Err(Mistake(
                name.span(),
                "a composition has no `saves` and no `gradient`: it says no `primitive`".into(),
            )),
            None => Ok(Vec::new()),
        };
    };
    let Some(gradient) = gradient else {
        return Err(Mistake(name.span(), "a primitive says its `gradient`, or `gradient: none`".into()));
    };
    let mut made = vec![word("prim")];
    made.extend(primitive);
    made.extend(saves.unwrap_or_else(|| vec![word("Nothing")]));
    made.push(wrapped(Delimiter::Brace, gradient));
    made.extend(tokens(","));
    Ok(made)
}
