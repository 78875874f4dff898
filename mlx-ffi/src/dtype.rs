//! Element types. Depends on the bindings alone. Invariant: the discriminants are mlx-c's.

use std::fmt;

use crate::sys;

macro_rules! dtypes {
    ($($(#[$doc:meta])* $name:ident = $c:ident, $text:literal, $bytes:literal;)*) => {
        /// An MLX element type.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum Dtype {
            $($(#[$doc])* $name = sys::$c as u32,)*
        }

        impl Dtype {
            /// Every element type, in MLX's order.
            pub const ALL: &'static [Dtype] = &[$(Dtype::$name,)*];

            /// MLX's name for it.
            pub const fn name(self) -> &'static str {
                match self { $(Dtype::$name => $text,)* }
            }

            /// The size of one element in bytes.
            pub const fn size(self) -> usize {
                match self { $(Dtype::$name => $bytes,)* }
            }

            #[inline]
            pub(crate) fn from_raw(raw: sys::mlx_dtype) -> Dtype {
                match raw {
                    $(sys::$c => Dtype::$name,)*
                    // The build pins MLX's version and its enum; the loaded library's version is checked too.
                    #[allow(clippy::unreachable)]
                    _ => unreachable!("MLX has no element type {raw}"),
                }
            }

            #[inline(always)]
            pub(crate) fn raw(self) -> sys::mlx_dtype {
                self as u32 as sys::mlx_dtype
            }
        }
    };
}

dtypes! {
    /// Booleans, one byte each.
    Bool = MLX_BOOL, "bool", 1;
    /// Unsigned, 8 bits.
    Uint8 = MLX_UINT8, "uint8", 1;
    /// Unsigned, 16 bits.
    Uint16 = MLX_UINT16, "uint16", 2;
    /// Unsigned, 32 bits.
    Uint32 = MLX_UINT32, "uint32", 4;
    /// Unsigned, 64 bits.
    Uint64 = MLX_UINT64, "uint64", 8;
    /// Signed, 8 bits.
    Int8 = MLX_INT8, "int8", 1;
    /// Signed, 16 bits.
    Int16 = MLX_INT16, "int16", 2;
    /// Signed, 32 bits.
    Int32 = MLX_INT32, "int32", 4;
    /// Signed, 64 bits.
    Int64 = MLX_INT64, "int64", 8;
    /// IEEE half precision.
    Float16 = MLX_FLOAT16, "float16", 2;
    /// IEEE single precision.
    Float32 = MLX_FLOAT32, "float32", 4;
    /// IEEE double precision; MLX computes it on its CPU stream only.
    Float64 = MLX_FLOAT64, "float64", 8;
    /// The upper half of single precision.
    Bfloat16 = MLX_BFLOAT16, "bfloat16", 2;
    /// A pair of single-precision numbers.
    Complex64 = MLX_COMPLEX64, "complex64", 8;
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
