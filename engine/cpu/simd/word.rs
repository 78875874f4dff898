//! [`Word`]: elements as plain words of their size, for code that only moves them.
//!
//! Depends on `dtype`. Invariant: a word's size is that of each dtype it fits, and any bits make one (but for `bool`, which
//! stands for itself only).

use crate::dtype::DType;

/// Elements of which one of two is taken without a branch: on conditions without a pattern that costs tens of cycles, and of an
/// `if` the compiler makes one, with the reads in its arms.
pub trait Choice: Copy {
    /// `c ? a : b`
    fn choose(c: bool, a: Self, b: Self) -> Self;
}

macro_rules! choices {
    ($($w:ident)*) => {$(
        impl Choice for $w {
            #[inline(always)]
            fn choose(c: bool, a: $w, b: $w) -> $w {
                b ^ ((a ^ b) & $w::from(c).wrapping_neg())
            }
        }
        impl Choice for [$w; 2] {
            #[inline(always)]
            fn choose(c: bool, a: [$w; 2], b: [$w; 2]) -> [$w; 2] {
                [$w::choose(c, a[0], b[0]), $w::choose(c, a[1], b[1])]
            }
        }
    )*};
}
choices!(u8 u16 u32 u64);

impl Choice for bool {
    #[inline(always)]
    fn choose(c: bool, a: bool, b: bool) -> bool {
        b ^ ((a ^ b) & c)
    }
}

impl Choice for f32 {
    #[inline(always)]
    fn choose(c: bool, a: f32, b: f32) -> f32 {
        f32::from_bits(u32::choose(c, a.to_bits(), b.to_bits()))
    }
}

/// What elements are moved as: one type per size, and `bool` for itself. (Five instead of eleven copies of such code.)
pub trait Word: sealed::Sealed + Choice + Default + Send + Sync + 'static {
    /// May elements of that dtype be moved as this type?
    fn fits(dtype: DType) -> bool;
}

mod sealed {
    /// Implemented here only: the `unsafe` code above relies on `fits`.
    pub trait Sealed {}
}

macro_rules! words {
    ($($w:ty: $($D:ident)|+;)*) => {
        $(
            impl sealed::Sealed for $w {}
            impl Word for $w {
                fn fits(dtype: DType) -> bool { matches!(dtype, $(DType::$D)|+) }
            }
        )*

        /// Runs `$body` with the type alias `$W` bound to the [`Word`] of a dtype.
        macro_rules! with_word {
            ($dtype:expr, $W:ident => $body:expr) => {
                match $dtype { $($(crate::DType::$D)|+ => { type $W = $w; $body })* }
            };
        }
    };
}
words! {
    bool: Bool;
    u8: U8 | I8 | F8E4M3FN | F8E5M2;
    u16: I16 | F16 | BF16 | U16;
    u32: I32 | F32 | U32;
    u64: I64 | F64 | U64;
    // Aligned as float32, whose memory may be seen as complex64.
    [u32; 2]: C64;
    [u64; 2]: C128;
}
#[allow(clippy::single_component_path_imports)] // Puts the macro on this module's path.
pub(crate) use with_word;
