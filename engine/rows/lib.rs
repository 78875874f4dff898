//! The grammar of the op table's rows: labelled fields in any order, checked, with defaults, made into one fixed form.
//!
//! `rows!` stands between a family's macro (`unary_ops!` and so on) and the macro that reads its rows (`$cb`): the one that
//! makes primitives in `lucid-ir`, functions and schemas in `lucid`, bindings in `py/`. Those see every field in one order, so
//! none of them knows which fields a row left out. A row reads
//!
//! ```text
//! /// Documentation.
//! method name(p: Kind, q: Kind = default; k: Kind = default) -> Result {
//!     in_place: yes, amp: Full, dtypes: FLOAT, result: Same,
//!     primitive: Variant { payload: Type }, saves: Inputs, gradient: |c, g| [gradient of input 0, …],
//!     run: path[extra arguments],
//!     samples: ["arguments", …],
//!     example: ["line of Rust", …],
//! }
//! ```
//!
//! `method` rows have a first parameter `input: Tensor` that is not written; `function` rows have none. A family whose rows
//! share a signature says it once, `"unary" UnaryOp, each method () run unary :`, and its rows read `name = Variant { … }`.
//!
//! | field | says | values | where absent |
//! |---|---|---|---|
//! | `in_place` | the form `name_` | `yes`: writes the result; `of_reals`: refuses complex tensors; `of_doubles`: refuses narrower than float64; `body`: the body takes a `Target` first and writes by itself; `comparison`: the tape has the result as made of both operands; `unrecorded`: the tape does not see the write; `view`: the tensor becomes the view | none |
//! | `python` | which forms Python has | `function`, `method`, `in_place` alone | all |
//! | `out` | `out=` in Python | `none`; `own`, `cast`: the dtypes that it takes; `rule`: by the function of the row's name in `ops::out`; `with(p)`: only where parameter `p` is given | by the family |
//! | `call` | how Python calls it | `creates`: makes new tensors, with `requires_grad`; `variadic`: tensors one by one | as the signature says |
//! | `amp` | the autocast policy, a variant of `Amp` | | `Keep` |
//! | `deterministic` | are results the same bits again? | `Yes`, `Seeded`, `No("why")` | `Yes` |
//! | `dtypes` | a set of dtypes, a constant of `DTypes` or an expression of such | | required |
//! | `result` | the result's dtype, a variant of `ResultDType` | | required |
//! | `primitive` | the variant of the family's enum, with its payload | | a composition |
//! | `saves` | what the tape keeps, a variant of `Saves` | | `Nothing` |
//! | `gradient` | the rule: one per input, or `all` and the whole list, or `none` | | required of primitives |
//! | `run` | the body, and arguments that it takes first | | required |
//! | `node` | the step's name in PyTorch's graph, where it is not the op's: `"view"`, or `\|given\| ("view", 1)` with the number of the overload | | the op's |
//! | `torch` | PyTorch's path, or `"-"` where it has none; one of another module (`special.i0e`) puts the function there and not into `lucid` | | the op's |
//! | `flags` | any of: `no_gradient`; `steps`: the graph shows the ops that it is made of; `piecewise_linear`: the gradient of its gradient is zeros; `old_numbers`: PyTorch still takes numbers of keywords by position; `internal`: for the engine and the package alone, `lucid` does not show it | | none |
//! | `samples` | arguments that tests call it with | | required |
//! | `example` | lines of its doc test | | required |

mod fields;
mod row;

use proc_macro::{Delimiter, Group, Ident, Literal, Punct, Spacing, Span, TokenStream, TokenTree};
use row::Family;

/// A mistake in a row, at its place.
struct Mistake(Span, String);

type Parsed<T> = Result<T, Mistake>;

/// Checks the rows of a family and hands them to a macro in their one fixed form.
#[proc_macro]
pub fn rows(input: TokenStream) -> TokenStream {
    match Family::parse(input) {
        Ok(family) => family.emit(),
        Err(Mistake(span, why)) => compile_error(span, &why),
    }
}

/// `compile_error!("why");`, shown at `span`.
fn compile_error(span: Span, why: &str) -> TokenStream {
    let mut text = Literal::string(why);
    text.set_span(span);
    let args = Group::new(Delimiter::Parenthesis, TokenStream::from(TokenTree::Literal(text)));
    let mut tokens = [
        TokenTree::Ident(Ident::new("compile_error", span)),
        TokenTree::Punct(Punct::new('!', Spacing::Alone)),
        TokenTree::Group(args),
        TokenTree::Punct(Punct::new(';', Spacing::Alone)),
    ];
    for token in &mut tokens {
        token.set_span(span);
    }
    tokens.into_iter().collect()
}
