//! What turns rows into primitives, and what spells out rows that share a signature.
//!
//! A row reads as `define_ops` in the engine says; [`define_primitives`] sees of it what a primitive is made of.

/// The enum of a family's primitives, each with the name of its row.
macro_rules! define_primitives {
    ($family:literal $Enum:ident :
        $(
            $(#[doc = $doc:literal])+
            $form:ident $name:ident $sig:tt -> $ret:ident {
                [$($flag:ident)*] $amp:ident $det:tt $dtypes:expr, $result:ident,
                $(prim $Var:ident $({ $($pf:ident : $pt:ty),* $(,)? })? $saves:ident $grad:tt,)?
                run $run:path $([$($extra:expr),*])?,
                torch $torch:tt,
                samples $samples:tt,
                example $example:tt
            }
        )*
    ) => {
        #[doc = concat!("The primitives of the `", $family, "` family.")]
        #[derive(Clone, Debug, PartialEq)]
        pub enum $Enum {
            $($(
                #[doc = concat!("`", stringify!($name), "`")]
                $Var $({ $(#[doc = stringify!($pf)] $pf: $pt),* })?,
            )?)*
        }

        impl $Enum {
            /// The name of the op's row in the table.
            pub fn name(&self) -> &'static str {
                match *self {
                    $($( $Enum::$Var $({ $($pf: _),* })? => $crate::ops::macros::plain(stringify!($name)), )?)*
                }
            }
        }

        impl $crate::codec::Codec for $Enum {
            fn encode(&self) -> $crate::codec::Arg {
                match self {
                    $($( $Enum::$Var $({ $($pf),* })? => $crate::codec::Arg::tag(
                        $crate::ops::macros::plain(stringify!($name)),
                        [$($($crate::codec::Codec::encode($pf)),*)?],
                    ), )?)*
                }
            }

            #[allow(unused_mut)]
            fn decode(arg: &$crate::codec::Arg) -> Option<$Enum> {
                let (name, rest) = arg.tagged()?;
                let mut rest = rest.iter();
                let made = match name {
                    $($( _ if name == $crate::ops::macros::plain(stringify!($name)) => {
                        $Enum::$Var $({ $($pf: $crate::codec::Codec::decode(rest.next()?)?),* })?
                    } )?)*
                    _ => return None,
                };
                rest.next().is_none().then_some(made)
            }
        }
    };
}

/// Spells out the shared signature of a family's rows, then calls `$cb` with them.
///
/// A row reads `name = Variant [flags] Amp DTYPES, ResultDType, Saves {gradient}, samples […], example […];`, with
/// `torch "path",` before the samples where PyTorch's name is another.
#[macro_export]
#[doc(hidden)]
macro_rules! define_uniform {
    ($cb:ident $family:literal $Enum:ident $form:ident $sig:tt run $run:path :
        $(
            $(#[doc = $doc:literal])+
            $name:ident = $Var:ident [$($flag:ident)*] $amp:ident $dtypes:expr, $result:ident, $saves:ident $grad:tt,
            $(torch $torch:literal,)? samples $samples:tt, example $example:tt;
        )*
    ) => {
        $cb! { $family $Enum :
            $(
                $(#[doc = $doc])+
                $form $name $sig -> Tensor {
                    [$($flag)*] $amp Yes $dtypes, $result,
                    prim $Var $saves $grad,
                    run $run [$Enum::$Var],
                    torch ($($torch)?),
                    samples $samples,
                    example $example
                }
            )*
        }
    };
}

/// A name without the `r#` of one that is also a keyword.
pub const fn plain(name: &'static str) -> &'static str {
    match name.as_bytes() {
        [b'r', b'#', ..] => name.split_at(2).1,
        _ => name,
    }
}

pub(crate) use define_primitives;
