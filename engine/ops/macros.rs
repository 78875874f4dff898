//! What turns the table's rows into code.
//!
//! `define_ops!` takes the rows of one family, `define_composites!` those of one without primitives. `lucid_ir` makes the
//! primitives of the same rows, and `py/` the bindings, so the rows stay the one list.

mod given;
mod in_place;

/// Rust items from the rows of a family, in the form that `rows!` hands on (`engine/rows`, which says what a row may say).
///
/// The lines of `example` are the doc test of the Rust method, or of the function where there is none; [`example`] says
/// what they see.
macro_rules! define_ops {
    ($family:literal $Enum:ident : $($rows:tt)*) => {
        $crate::ops::macros::define_op_row! { $Enum $($rows)* }
        $crate::ops::macros::define_rows! { $family $($rows)* }
    };
}

/// The same for a family without primitives.
macro_rules! define_composites {
    ($family:literal : $($rows:tt)*) => {
        $crate::ops::macros::define_rows! { $family $($rows)* }
    };
}

/// Rows and gradients of a family's primitives.
macro_rules! define_op_row {
    ($Enum:ident
        $(
            $(#[doc = $doc:literal])+
            $form:ident $name:ident $sig:tt -> $ret:ident {
                $flags:tt $call:ident $in_place:ident $python:ident $out:tt $out_dtype:ident
                $amp:ident $det:tt $dtypes:expr, $result:ident,
                $(prim $Var:ident $({ $($pf:ident : $pt:ty),* $(,)? })? $saves:ident $grad:tt,)?
                run $run:path $([$($extra:expr),*])?,
                node $node:tt, torch $torch:tt, samples $samples:tt, example $example:tt
            }
        )*
    ) => {
        impl $crate::ops::OpRow for $Enum {
            fn schema(&self) -> &'static $crate::ops::Schema {
                match *self {
                    $($( $Enum::$Var $({ $($pf: _),* })? => &schema::$name, )?)*
                }
            }

            #[allow(unused_variables)]
            fn gradient(&self, ctx: &$crate::autograd::Ctx<'_>) -> $crate::Result<$crate::autograd::Grads> {
                match *self {
                    $($( $Enum::$Var $({ $(ref $pf),* })? => $crate::ops::macros::gradient!($grad, ctx), )?)*
                }
            }
        }
    };
}

/// Schemas, functions and methods of a family's rows.
macro_rules! define_rows {
    ($family:literal
        $(
            $(#[doc = $doc:literal])+
            $form:ident $name:ident $sig:tt -> $ret:ident {
                [$($flag:ident)*] $call:ident $in_place:ident $python:ident $out:tt $out_dtype:ident
                $amp:ident $det:tt $dtypes:expr, $result:ident,
                $(prim $Var:ident $({ $($pf:ident : $pt:ty),* $(,)? })? $saves:ident $grad:tt,)?
                run $run:path $([$($extra:expr),*])?,
                node $node:tt, torch $torch:tt,
                samples [$($sample:literal),* $(,)?],
                example [$($example:literal),+ $(,)?]
            }
        )*
    ) => {
        /// The family's rows as constants, by name.
        #[allow(non_upper_case_globals, unused_imports)]
        pub(crate) mod schema {
            use $crate::dtype::DTypes;
            use $crate::ops::schema::*;
            $(
                #[doc = concat!("[`", stringify!($name), "`](super::", stringify!($name), ")")]
                pub(crate) const $name: Schema = $crate::ops::macros::schema_of!{
                    $form $family $name $sig $ret [$($flag)*] $call $in_place $python $out_dtype $amp $det $dtypes, $result,
                    [$($Var $saves $grad)?] $node $torch [$($sample),*] concat!($($doc, "\n"),+)
                };
            )*
        }

        /// Every row of the family.
        pub const SCHEMAS: &[$crate::ops::Schema] = &[$(schema::$name),*];

        $(
            $crate::ops::macros::define_fn!{
                $form [$(#[doc = $doc])+ #[doc = op_doc!(rust $name)]] [$($example),+] $name $sig $ret [$($flag)*] $in_place $amp $run [$($($extra),*)?]
            }
        )*
    };
}

/// A gradient rule: `{|c, g| [..]}` gives each listed gradient where it is needed; `{none}` refuses.
/// `{|c, g| all expr}` is for a rule that makes the whole list itself.
macro_rules! gradient {
    ({none}, $ctx:ident) => { $ctx.not_differentiable() };
    ({|$c:ident, $g:ident| all $e:expr}, $ctx:ident) => {{
        let $c = $ctx;
        let $g = $ctx.g();
        $e
    }};
    ({|$c:ident, $g:ident| [$($e:expr),* $(,)?]}, $ctx:ident) => {{
        let $c = $ctx;
        let $g = $ctx.g();
        let mut grads = $crate::autograd::Grads::new();
        $(
            let wanted = $c.needs(grads.len());
            grads.push(if wanted { let made: $crate::Result<$crate::Tensor> = $e; Some(made?) } else { None });
        )*
        Ok(grads)
    }};
}

macro_rules! schema_of {
    (
        $form:ident $family:literal $name:ident ($($p:ident: $k:ident $(= $d:expr)?),* $(; $($kp:ident: $kk:ident = $kd:expr),* $(,)?)?) $ret:ident
        [$($flag:ident)*] $call:ident $in_place:ident $python:ident $out_dtype:ident $amp:ident $det:tt $dtypes:expr, $result:ident,
        [$($Var:ident $saves:ident $grad:tt)?] $node:tt $torch:tt [$($sample:literal),*] $doc:expr
    ) => {
        Schema {
            name: $crate::ops::macros::plain(stringify!($name)),
            family: $family,
            version: 1,
            amp: Amp::$amp,
            determinism: $crate::ops::macros::determinism!($det),
            dtypes: $dtypes,
            result: ResultDType::$result,
            out: $crate::ops::macros::out_dtype!($out_dtype OutDType::of($family, ResultDType::$result,
                $crate::ops::macros::params!($form [$(Param {
                    name: $crate::ops::macros::plain(stringify!($p)),
                    kind: stringify!($k),
                    default: None,
                    keyword_only: false,
                },)* $($(Param {
                    name: $crate::ops::macros::plain(stringify!($kp)),
                    kind: stringify!($kk),
                    default: None,
                    keyword_only: true,
                },)*)?]))),
            out_rule: $crate::ops::macros::out_rule!($out_dtype $name),
            saves: $crate::ops::macros::first!([$(Saves::$saves)?] Saves::Nothing),
            method: $crate::ops::macros::has!(method [$form]) && $crate::ops::macros::has!($python [all method]),
            in_place: !$crate::ops::macros::has!($in_place [none]),
            old_numbers: $crate::ops::macros::has!(old_numbers [$($flag)*]),
            internal: $crate::ops::macros::has!(internal [$($flag)*]),
            primitive: $crate::ops::macros::first!([$({ let _ = stringify!($Var); true })?] false),
            differentiable: $crate::ops::macros::first!([$($crate::ops::macros::differs!($grad))?]
                !$crate::ops::macros::has!(no_gradient [$($flag)*]) && !$crate::ops::macros::has!($call [creates])),
            node: $crate::ops::macros::node!($node),
            params: $crate::ops::macros::params!($form [$(Param {
                name: $crate::ops::macros::plain(stringify!($p)),
                kind: stringify!($k),
                default: $crate::ops::macros::first!([$(Some(stringify!($d)))?] None),
                keyword_only: false,
            },)* $($(Param {
                name: $crate::ops::macros::plain(stringify!($kp)),
                kind: stringify!($kk),
                default: Some(stringify!($kd)),
                keyword_only: true,
            },)*)?]),
            returns: stringify!($ret),
            torch: $crate::ops::macros::torch_name($crate::ops::macros::torch_path!($torch), stringify!($name)),
            samples: &[$($sample),*],
            doc: $doc,
        }
    };
}

/// Which dtypes `out=` takes, by the row's word, or else by the rule of its family.
macro_rules! out_dtype {
    (cast $family:expr) => {
        OutDType::Cast
    };
    (own $family:expr) => {
        OutDType::Own
    };
    ($auto:ident $family:expr) => {
        $family
    };
}

/// The rule for `out=` of a row that has one of its own.
macro_rules! out_rule {
    (rule $name:ident) => {
        Some($crate::ops::out::$name)
    };
    ($other:ident $name:ident) => {
        None
    };
}

/// The step's name in PyTorch's graph.
macro_rules! node {
    (()) => {
        NodeName::Own
    };
    (($name:literal)) => {
        NodeName::Is($name, 0)
    };
    ((($name:literal, $overload:literal))) => {
        NodeName::Is($name, $overload)
    };
    ({$rule:expr}) => {
        NodeName::By($rule)
    };
}

macro_rules! determinism {
    (Yes) => {
        Determinism::Yes
    };
    (Seeded) => {
        Determinism::Seeded
    };
    ([$why:literal]) => {
        Determinism::No($why)
    };
}
macro_rules! differs {
    ({none}) => {
        false
    };
    ($other:tt) => {
        true
    };
}
macro_rules! torch_path {
    (()) => {
        ""
    };
    (($torch:literal)) => {
        $torch
    };
    ($torch:literal) => {
        $torch
    };
}
macro_rules! params {
    (method [$($rest:tt)*]) => {
        &[Param { name: "input", kind: "Tensor", default: None, keyword_only: false }, $($rest)*]
    };
    (function [$($rest:tt)*]) => { &[$($rest)*] };
}
macro_rules! first {
    ([$a:expr] $b:expr) => {
        $a
    };
    ([] $b:expr) => {
        $b
    };
}
/// Is the word in the list? A `const`-friendly search over identifiers.
macro_rules! has {
    ($word:ident [$($item:ident)*]) => {{
        const WORD: &str = stringify!($word);
        const LIST: &[&str] = &[$(stringify!($item)),*];
        $crate::ops::macros::contains(LIST, WORD)
    }};
}

/// PyTorch's name: the row's own where none is given.
pub(crate) const fn torch_name(torch: &'static str, name: &'static str) -> &'static str {
    if torch.is_empty() {
        plain(name)
    } else {
        torch
    }
}

pub(crate) const fn contains(list: &[&str], word: &str) -> bool {
    let mut i = 0;
    while i < list.len() {
        let (a, b) = (list[i].as_bytes(), word.as_bytes());
        let mut same = a.len() == b.len();
        let mut j = 0;
        while same && j < a.len() {
            same = a[j] == b[j];
            j += 1;
        }
        if same {
            return true;
        }
        i += 1;
    }
    false
}

/// The function of a row, its `Tensor` method, and its in-place form. What programs give is converted once, so that the code of
/// an op is made once, whatever types it is called with.
macro_rules! define_fn {
    (method [$($doc:tt)*] [$($example:literal),+] $name:ident ($($p:ident: $k:ident $(= $d:expr)?),* $(; $($kp:ident: $kk:ident = $kd:expr),* $(,)?)?)
        $ret:ident [$($flag:ident)*] $in_place:ident $amp:ident $run:path [$($extra:expr),*]
    ) => {
        $($doc)*
        #[doc = ""]
        #[doc = concat!(" The method [`Tensor::", stringify!($name), "`](crate::Tensor::", stringify!($name), ") is the same, and has an example.")]
        #[allow(clippy::too_many_arguments, clippy::extra_unused_lifetimes)]
        pub fn $name<'op>(input: &$crate::Tensor, $($p: $crate::ops::macros::given!($name $k $p),)* $($($kp: $crate::ops::macros::given!($name $kk $kp)),*)?)
            -> $crate::Result<$crate::ops::results::$ret>
        {
            #[allow(clippy::too_many_arguments, clippy::redundant_closure_call, non_snake_case)]
            fn computed(input: &$crate::Tensor, $($p: $crate::ops::kinds::$k,)* $($($kp: $crate::ops::kinds::$kk),*)?)
                -> $crate::Result<$crate::ops::results::$ret>
            {
                let _name = $crate::compat::call_macros::naming!([$($flag)*] $name $(, $p: $k)* $($(, $kp: $kk)*)?);
                let made = (|| {
                    $crate::ops::macros::with_autocast!{ $amp $run [$($extra),*] input: Tensor $(, $p: $k)* $($(, $kp: $kk)*)? }
                    $run($($extra,)* input, $($p,)* $($($kp),*)?)
                })();
                $crate::compat::call_macros::tell_call!{ made $ret _name $name [input] $(($p $k $($d)?))* $($(($kp $kk $kd))*)? }
                made.map_err(|e| $crate::autograd::before($crate::ops::macros::plain(stringify!($name)), e, input))
            }
            $(let $p = $crate::ops::macros::held!($name $k $p $p);)*
            $($(let $kp = $crate::ops::macros::held!($name $kk $kp $kp);)*)?
            computed(input, $($crate::ops::macros::lent!($k $p),)* $($($crate::ops::macros::lent!($kk $kp)),*)?)
        }
        impl $crate::Tensor {
            $($doc)*
            #[doc = $crate::ops::macros::example!($($example),+)]
            #[allow(clippy::too_many_arguments, clippy::extra_unused_lifetimes)]
            pub fn $name<'op>(&self, $($p: $crate::ops::macros::given!($name $k $p),)* $($($kp: $crate::ops::macros::given!($name $kk $kp)),*)?)
                -> $crate::Result<$crate::ops::results::$ret>
            {
                self::$name(self, $($p,)* $($($kp),*)?)
            }
        }
        $crate::ops::macros::define_in_place!{
            $in_place $name ($run) ($($p: $k,)* $($($kp: $kk,)*)?)
        }
    };
    (function [$($doc:tt)*] [$($example:literal),+] $name:ident ($($p:ident: $k:ident $(= $d:expr)?),* $(; $($kp:ident: $kk:ident = $kd:expr),* $(,)?)?)
        $ret:ident [$($flag:ident)*] $in_place:ident $amp:ident $run:path [$($extra:expr),*]
    ) => {
        $($doc)*
        #[doc = $crate::ops::macros::example!($($example),+)]
        #[allow(clippy::too_many_arguments, clippy::extra_unused_lifetimes)]
        pub fn $name<'op>($($p: $crate::ops::macros::given!($name $k $p),)* $($($kp: $crate::ops::macros::given!($name $kk $kp)),*)?)
            -> $crate::Result<$crate::ops::results::$ret>
        {
            #[allow(clippy::too_many_arguments, clippy::redundant_closure_call, non_snake_case)]
            fn computed($($p: $crate::ops::kinds::$k,)* $($($kp: $crate::ops::kinds::$kk),*)?)
                -> $crate::Result<$crate::ops::results::$ret>
            {
                let _name = $crate::compat::call_macros::naming!([$($flag)*] $name $(, $p: $k)* $($(, $kp: $kk)*)?);
                let made = (|| {
                    $crate::ops::macros::with_autocast!{ $amp $run [$($extra),*] $($p: $k),* $(, $($kp: $kk),*)? }
                    $run($($extra,)* $($p,)* $($($kp),*)?)
                })();
                $crate::compat::call_macros::tell_call!{ made $ret _name $name [] $(($p $k $($d)?))* $($(($kp $kk $kd))*)? }
                made
            }
            $(let $p = $crate::ops::macros::held!($name $k $p $p);)*
            $($(let $kp = $crate::ops::macros::held!($name $kk $kp $kp);)*)?
            computed($($crate::ops::macros::lent!($k $p),)* $($($crate::ops::macros::lent!($kk $kp)),*)?)
        }
    };
}

/// A row's example as a doc test. Its lines see the functions of the row's own module, `tensor`, `assert_close` and the types
/// of arguments, and may use `?`. Edition 2024 puts all of them into one program, where each is a function.
macro_rules! example {
    ($($line:literal),+) => {
        concat!(
            "\n # Examples\n ```\n",
            " # use lucid::{tensor, testing::assert_close, DType, Device, Error, Generator, MemoryFormat, Scalar, Tensor};\n",
            " # use lucid::{nn::{Approximate, Nonlinearity, Reduction}, ops::arguments::*};\n",
            " # use ", module_path!(), "::*;\n",
            $(" ", $line, "\n",)+
            " # lucid::Result::<()>::Ok(())\n ```"
        )
    };
}

/// Where autocast is on, runs the op with its inputs cast, and autocast off inside. Rows that keep their inputs
/// have no code for it.
macro_rules! with_autocast {
    (Keep $($rest:tt)*) => {};
    ($amp:ident $run:path [$($extra:expr),*] $($p:ident: $k:ident),* $(,)?) => {
        if $crate::autocast::active() {
            #[allow(unused_mut)]
            let mut casts = $crate::autocast::Casts::new($crate::ops::schema::Amp::$amp);
            $(
                $crate::ops::macros::look!($k $p casts);
            )*
            $(let $p = $crate::ops::macros::hold!($k $p casts);)*
            let _inside = casts.inside();
            return $run($($extra,)* $($crate::ops::macros::lend!($k $p)),*);
        }
    };
}

/// Notes the dtypes of an argument's tensors.
macro_rules! look {
    (Tensor $p:ident $casts:ident) => {
        $crate::autocast::Castable::look(&$p, &mut $casts)
    };
    (OptTensor $p:ident $casts:ident) => {
        $crate::autocast::Castable::look(&$p, &mut $casts)
    };
    (Tensors $p:ident $casts:ident) => {
        $crate::autocast::Castable::look(&$p, &mut $casts)
    };
    (Operand $p:ident $casts:ident) => {
        $crate::autocast::Castable::look(&$p, &mut $casts)
    };
    (OptOperand $p:ident $casts:ident) => {
        $crate::autocast::Castable::look(&$p, &mut $casts)
    };
    (SomeTensor $p:ident $casts:ident) => {
        $crate::ops::macros::look!(OptTensor $p $casts)
    };
    (SomeOperand $p:ident $casts:ident) => {
        $crate::ops::macros::look!(OptOperand $p $casts)
    };
    ($other:ident $p:ident $casts:ident) => {};
}

/// An argument with its tensors cast, to be lent.
macro_rules! hold {
    (Tensor $p:ident $casts:ident) => {
        $crate::autocast::Castable::hold($p, $casts)?
    };
    (OptTensor $p:ident $casts:ident) => {
        $crate::autocast::Castable::hold($p, $casts)?
    };
    (Tensors $p:ident $casts:ident) => {
        $crate::autocast::Castable::hold($p, $casts)?
    };
    (Operand $p:ident $casts:ident) => {
        $crate::autocast::Castable::hold($p, $casts)?
    };
    (OptOperand $p:ident $casts:ident) => {
        $crate::autocast::Castable::hold($p, $casts)?
    };
    (SomeTensor $p:ident $casts:ident) => {
        $crate::ops::macros::hold!(OptTensor $p $casts)
    };
    (SomeOperand $p:ident $casts:ident) => {
        $crate::ops::macros::hold!(OptOperand $p $casts)
    };
    ($other:ident $p:ident $casts:ident) => {
        $p
    };
}

/// An argument as the op takes it, from what `hold` gave.
macro_rules! lend {
    (Tensor $p:ident) => {
        &$p
    };
    (OptTensor $p:ident) => {
        $p.as_ref()
    };
    (Tensors $p:ident) => {
        &$p
    };
    (Operand $p:ident) => {
        $p.lend()
    };
    (OptOperand $p:ident) => {
        $p.as_ref().map($crate::autocast::HeldOperand::lend)
    };
    (SomeTensor $p:ident) => {
        $crate::ops::macros::lend!(OptTensor $p)
    };
    (SomeOperand $p:ident) => {
        $crate::ops::macros::lend!(OptOperand $p)
    };
    ($other:ident $p:ident) => {
        $p
    };
}

pub(crate) use lucid_ir::ops::macros::plain;

pub(crate) use given::{again, given, held, lent, word};
pub(crate) use in_place::{apart, define_in_place, in_place_method};
pub(crate) use {
    define_composites, define_fn, define_op_row, define_ops, define_rows, determinism, differs, example, first,
    gradient, has, hold, lend, look, node, out_dtype, out_rule, params, schema_of, torch_path, with_autocast,
};
