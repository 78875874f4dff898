//! What turns rows into primitives. What a row may say is in the crate `lucid-rows`, whose `rows!` hands them on in the form
//! that [`define_primitives`] reads.

/// The enum of a family's primitives, each with the name of its row.
macro_rules! define_primitives {
    ($family:literal $Enum:ident :
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

/// A name without the `r#` of one that is also a keyword.
pub const fn plain(name: &'static str) -> &'static str {
    match name.as_bytes() {
        [b'r', b'#', ..] => name.split_at(2).1,
        _ => name,
    }
}

pub(crate) use define_primitives;
