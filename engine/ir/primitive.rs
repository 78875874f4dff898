//! A primitive as a value, and what is known of its result before any kernel runs.
//!
//! What the tape records, the batching rules take apart and the backends run. Invariant: every family is named once, in
//! [`for_each_family`].

use crate::codec::{Arg, Codec};
use crate::ops::reduce::{ReduceOp, Reduction};
use crate::{shape::Shape, DType};
use smallvec::SmallVec;

/// Shape and dtype of a result, known before any kernel runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Sizes.
    pub shape: Shape,
    /// Element type.
    pub dtype: DType,
}

impl Meta {
    /// Of a shape and a dtype.
    pub fn new(shape: &[usize], dtype: DType) -> Meta {
        Meta { shape: Shape::from_slice(shape), dtype }
    }
}

/// Shapes and dtypes of a primitive's results, in order.
pub type Metas = SmallVec<[Meta; 3]>;

/// Calls a macro with the families whose primitives stand alone: variant of [`Prim`], module, enum. Reductions, which have
/// dimensions beside the op, are the one other family.
#[macro_export]
#[doc(hidden)]
macro_rules! for_each_family {
    ($cb:ident $($args:tt)*) => {
        $cb! { $($args)*
            Create create CreateOp;
            Random random RandomOp;
            Transfer transfer TransferOp;
            Unary unary UnaryOp;
            Binary binary BinaryOp;
            Compare compare CompareOp;
            Select select SelectOp;
            Scan scan ScanOp;
            View view ViewOp;
            Index index IndexOp;
            Sort sort SortOp;
            Order order OrderOp;
            Contract contract ContractOp;
            Linalg linalg LinalgOp;
            Decomposition decomposition DecompositionOp;
            Fft fft FftOp;
            Conv conv ConvOp;
            Pool pool PoolOp;
            Nn nn NnOp;
            Recurrent recurrent RecurrentOp;
            Norm norm NormOp;
            Normalization normalization NormalizationOp;
            Loss loss LossOp;
            Quantize quantize QuantizeOp;
            Quantized quantized QuantizedOp;
            Communication communication CommunicationOp;
        }
    };
}

macro_rules! define_prim {
    ($($Family:ident $module:ident $Op:ident;)*) => {
        /// A primitive with its arguments: all that, with its inputs, says what is computed.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Prim {
            $(
                #[doc = concat!("Of the family `", stringify!($module), "`.")]
                $Family($crate::ops::$module::$Op),
            )*
            /// Of the family `reduce`, over these dimensions.
            Reduce(ReduceOp, Reduction),
        }

        impl Prim {
            /// Has it several results, as those of its family have? Such primitives go through ways of their own, so that
            /// those of one result need no list.
            pub fn is_multi_output(&self) -> bool {
                matches!(
                    self,
                    Prim::Order(_)
                        | Prim::Decomposition(_)
                        | Prim::Recurrent(_)
                        | Prim::Normalization(_)
                        | Prim::Quantize(_)
                )
            }

            /// The name of the op's row in the table.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Prim::$Family(op) => op.name(),)*
                    Prim::Reduce(op, _) => op.name(),
                }
            }
        }

        impl Codec for Prim {
            fn encode(&self) -> Arg {
                match self {
                    $(Prim::$Family(op) => Arg::tag(stringify!($module), [op.encode()]),)*
                    Prim::Reduce(op, how) => Arg::tag("reduce", [op.encode(), how.encode()]),
                }
            }

            fn decode(arg: &Arg) -> Option<Prim> {
                match arg.tagged()? {
                    $((family, [op]) if family == stringify!($module) => Codec::decode(op).map(Prim::$Family),)*
                    ("reduce", [op, how]) => Some(Prim::Reduce(Codec::decode(op)?, Codec::decode(how)?)),
                    _ => None,
                }
            }
        }
    };
}
for_each_family!(define_prim);
