//! Element types and PyTorch's promotion rules.
//!
//! Depends on `float8`, and on `error` for its errors. Invariant: `promote` is commutative, and associative where it gives a
//! dtype.

pub use crate::float8;
use crate::{Error, Result};
use num_complex::{Complex, Complex64};
use std::fmt;

macro_rules! dtypes {
    (computed { $( $(#[$doc:meta])* $var:ident $name:literal $ty:ty, $size:literal, $alias:literal; )* }
     stored { $( $(#[$stored_doc:meta])* $stored:ident $stored_name:literal $stored_ty:ty, $stored_size:literal, $stored_alias:literal; )* }
    ) => {
        dtypes! { @all
            $( $(#[$doc])* $var $name $ty, $size, $alias; )*
            $( $(#[$stored_doc])* $stored $stored_name $stored_ty, $stored_size, $stored_alias; )*
        }

        impl DType {
            /// Is it moved and converted by kernels, but computed with in another dtype?
            #[inline]
            pub const fn is_stored_only(self) -> bool {
                matches!(self, $(DType::$stored)|*)
            }
        }

        impl DTypes {
            /// What kernels compute in.
            pub const COMPUTED: DTypes = DTypes::of(&[$(DType::$var),*]);
        }

        /// Runs `$body` with the type alias `$T` bound to the Rust type of a [`DType`] that kernels compute in; `$other` for any
        /// other.
        #[macro_export]
        macro_rules! with_computed_dtype {
            ($dt:expr, $T:ident => $body:expr, $refused:ident => $other:expr) => {
                match $dt {
                    $($crate::DType::$var => { type $T = $crate::dtype::element::$var; $body })*
                    $refused @ ($($crate::DType::$stored)|*) => $other,
                }
            };
        }
    };
    (@all $( $(#[$doc:meta])* $var:ident $name:literal $ty:ty, $size:literal, $alias:literal; )*) => {
        /// The type of a tensor's elements.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum DType { $( $(#[$doc])* $var, )* }

        impl DType {
            /// Every dtype, in declaration order.
            pub const ALL: &'static [DType] = &[$(DType::$var),*];

            /// PyTorch's name, such as `float32`.
            pub const fn name(self) -> &'static str {
                match self { $(DType::$var => $name,)* }
            }

            /// Bytes per element.
            #[inline]
            pub const fn size(self) -> usize {
                match self { $(DType::$var => $size,)* }
            }

            /// The dtype of that name (`float32`, or its short form `float`).
            pub fn from_name(name: &str) -> Option<DType> {
                match name { $($name | $alias => Some(DType::$var),)* _ => None }
            }
        }

        $(impl sealed::Sealed for $ty {}
        impl Element for $ty {
            const DTYPE: DType = DType::$var;
        })*

        /// The Rust type of each dtype's elements, under the dtype's name.
        pub mod element {
            $(#[doc = concat!("An element of `", $name, "`.")]
            pub type $var = $ty;)*
        }

        /// Runs `$body` with the type alias `$T` bound to the Rust type of a [`DType`].
        #[macro_export]
        macro_rules! with_dtype {
            ($dt:expr, $T:ident => $body:expr) => {
                match $dt { $($crate::DType::$var => { type $T = $crate::dtype::element::$var; $body })* }
            };
        }
    };
}

mod sealed {
    /// Only the types of the dtype list are elements: memory is read by [`super::Element::DTYPE`].
    pub trait Sealed {}
}

/// A Rust type that can be a tensor's element. No other crate can add one.
pub trait Element: sealed::Sealed + Copy + Send + Sync + fmt::Debug + Default + PartialEq + 'static {
    /// The dtype this type stands for.
    const DTYPE: DType;
}

dtypes! {
    computed {
        /// One byte holding 0 or 1.
        Bool "bool" bool, 1, "bool_";
        /// Unsigned 8-bit integer.
        U8 "uint8" u8, 1, "byte";
        /// Signed 8-bit integer.
        I8 "int8" i8, 1, "char";
        /// Signed 16-bit integer.
        I16 "int16" i16, 2, "short";
        /// Signed 32-bit integer.
        I32 "int32" i32, 4, "int";
        /// Signed 64-bit integer.
        I64 "int64" i64, 8, "long";
        /// IEEE half precision.
        F16 "float16" half::f16, 2, "half";
        /// Brain float: float32's exponent, 8 bits of precision.
        BF16 "bfloat16" half::bf16, 2, "bf16";
        /// IEEE single precision.
        F32 "float32" f32, 4, "float";
        /// IEEE double precision. CPU only.
        F64 "float64" f64, 8, "double";
        /// Two float32: real and imaginary part.
        C64 "complex64" num_complex::Complex32, 8, "cfloat";
        /// Two float64: real and imaginary part. CPU only.
        C128 "complex128" num_complex::Complex64, 16, "cdouble";
    }
    stored {
        /// Unsigned 16-bit integer.
        U16 "uint16" u16, 2, "ushort";
        /// Unsigned 32-bit integer.
        U32 "uint32" u32, 4, "uint";
        /// Unsigned 64-bit integer.
        U64 "uint64" u64, 8, "ulong";
        /// Float of 8 bits, 3 of them precision, without infinities.
        F8E4M3FN "float8_e4m3fn" crate::float8::F8E4M3FN, 1, "e4m3fn";
        /// Float of 8 bits, 2 of them precision.
        F8E5M2 "float8_e5m2" crate::float8::F8E5M2, 1, "e5m2";
    }
}

/// PyTorch's dtype categories, in promotion order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Category {
    /// `bool`.
    Bool,
    /// Signed and unsigned integers.
    Integer,
    /// Real floating point.
    Float,
    /// Complex.
    Complex,
}

impl DType {
    /// The promotion category.
    #[inline]
    pub const fn category(self) -> Category {
        match self {
            DType::Bool => Category::Bool,
            DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64 => Category::Integer,
            DType::U16 | DType::U32 | DType::U64 => Category::Integer,
            DType::F16 | DType::BF16 | DType::F32 | DType::F64 | DType::F8E4M3FN | DType::F8E5M2 => Category::Float,
            DType::C64 | DType::C128 => Category::Complex,
        }
    }

    /// True for real floating dtypes.
    #[inline]
    pub const fn is_float(self) -> bool {
        matches!(self.category(), Category::Float)
    }

    /// True for floating dtypes of 16 bits.
    #[inline]
    pub const fn is_half(self) -> bool {
        matches!(self, DType::F16 | DType::BF16)
    }

    /// True for floats of 8 bits.
    #[inline]
    pub const fn is_float8(self) -> bool {
        matches!(self, DType::F8E4M3FN | DType::F8E5M2)
    }

    /// True for complex dtypes.
    #[inline]
    pub const fn is_complex(self) -> bool {
        matches!(self, DType::C64 | DType::C128)
    }

    /// The complex dtype whose parts hold this dtype's numbers; of float16 and bfloat16, which have none, and of
    /// integers complex64.
    pub const fn to_complex(self) -> DType {
        match self {
            DType::F64 | DType::C128 => DType::C128,
            DType::Bool | DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64 => DType::C64,
            DType::F16 | DType::BF16 | DType::F32 | DType::C64 => DType::C64,
            DType::U16 | DType::U32 | DType::U64 | DType::F8E4M3FN | DType::F8E5M2 => DType::C64,
        }
    }

    /// The dtype of a complex dtype's parts; any other dtype itself.
    #[inline]
    pub const fn to_real(self) -> DType {
        match self {
            DType::C64 => DType::F32,
            DType::C128 => DType::F64,
            DType::Bool | DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64 => self,
            DType::F16 | DType::BF16 | DType::F32 | DType::F64 => self,
            DType::U16 | DType::U32 | DType::U64 | DType::F8E4M3FN | DType::F8E5M2 => self,
        }
    }

    /// What a device without double precision has in this dtype's place.
    pub const fn to_single(self) -> DType {
        match self {
            DType::F64 => DType::F32,
            DType::C128 => DType::C64,
            DType::Bool | DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64 => self,
            DType::F16 | DType::BF16 | DType::F32 | DType::C64 => self,
            DType::U16 | DType::U32 | DType::U64 | DType::F8E4M3FN | DType::F8E5M2 => self,
        }
    }

    /// True for integers, and `bool` too.
    #[inline]
    pub const fn is_integral(self) -> bool {
        matches!(self.category(), Category::Bool | Category::Integer)
    }

    /// True where gradients can flow.
    pub const fn is_differentiable(self) -> bool {
        matches!(self.category(), Category::Float | Category::Complex)
    }

    /// True for unsigned integers, `bool` not among them.
    pub const fn is_unsigned(self) -> bool {
        matches!(self, DType::U8 | DType::U16 | DType::U32 | DType::U64)
    }

    /// The dtype that kernels compute in for this one: int64 for unsigned integers of 16 bits and more, float32 for floats of
    /// 8 bits, any other itself.
    #[inline]
    pub const fn computed_in(self) -> DType {
        match self {
            DType::U16 | DType::U32 | DType::U64 => DType::I64,
            DType::F8E4M3FN | DType::F8E5M2 => DType::F32,
            DType::Bool | DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64 => self,
            DType::F16 | DType::BF16 | DType::F32 | DType::F64 | DType::C64 | DType::C128 => self,
        }
    }

    /// The dtype of the same size whose bits kernels move in this one's place.
    pub const fn moved_as(self) -> DType {
        match self {
            DType::U16 => DType::I16,
            DType::U32 => DType::I32,
            DType::U64 => DType::I64,
            DType::F8E4M3FN | DType::F8E5M2 => DType::U8,
            DType::Bool | DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64 => self,
            DType::F16 | DType::BF16 | DType::F32 | DType::F64 | DType::C64 | DType::C128 => self,
        }
    }

    /// The dtype of the result of an operation on tensors of these dtypes (PyTorch's table).
    ///
    /// # Errors
    /// [`Error::DtypeMismatch`] where PyTorch has none either: floats of 8 bits beside any other dtype, unsigned integers of 16
    /// bits and more beside what is not a float.
    ///
    /// # Examples
    /// ```
    /// use lucid::DType;
    /// assert_eq!(DType::U8.promote(DType::I8)?, DType::I16);
    /// assert_eq!(DType::I64.promote(DType::F16)?, DType::F16);
    /// assert!(DType::U16.promote(DType::I32).is_err());
    /// # lucid::Result::<()>::Ok(())
    /// ```
    #[inline]
    pub fn promote(self, other: DType) -> Result<DType> {
        use DType::*;
        let (lo, hi) = if self <= other { (self, other) } else { (other, self) };
        Ok(match (lo, hi) {
            (a, b) if a == b => a,
            (F16 | BF16 | F32 | F64, U16 | U32 | U64) => lo,
            (_, hi) if hi.is_stored_only() => return Err(self.refuse_promotion(other)),
            (U8, I8) => I16,
            (F16, BF16) => F32,
            (F64, C64) => C128,
            (_, hi) => hi,
        })
    }

    #[cold]
    fn refuse_promotion(self, other: DType) -> Box<Error> {
        let kinds = match self.is_float8() || other.is_float8() {
            true => "Float8 Types",
            false => "uint16, uint32, uint64 types",
        };
        let why = format!(
            "Promotion for {kinds} is not supported, attempted to promote {self} and {other}; convert one with .to()"
        );
        Error::dtype("promote_types", why, &[self, other])
    }

    /// Is a value of this dtype storable in `to` without changing category downwards (PyTorch's `can_cast`)?
    pub fn can_cast(self, to: DType) -> bool {
        if to == DType::Bool {
            return self == DType::Bool;
        }
        self.category() <= to.category()
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A set of dtypes, as the op table declares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DTypes(u32);

impl DTypes {
    /// No dtype at all.
    pub const NONE: DTypes = DTypes(0);
    /// Every dtype.
    pub const ALL: DTypes = DTypes::of(DType::ALL);
    /// Unsigned integers that are computed with as int64.
    pub const UNSIGNED: DTypes = DTypes::of(&[DType::U16, DType::U32, DType::U64]);
    /// Floats of 8 bits, which are computed with as float32.
    pub const FLOAT8: DTypes = DTypes::of(&[DType::F8E4M3FN, DType::F8E5M2]);
    /// Every dtype but the floats of 8 bits.
    pub const NOT_FLOAT8: DTypes = DTypes::ALL.less(DTypes::FLOAT8);
    /// Only `bool`.
    pub const BOOL: DTypes = DTypes::of(&[DType::Bool]);
    /// Integers that are computed with, without `bool`.
    pub const INTEGER: DTypes = DTypes::of(&[DType::U8, DType::I8, DType::I16, DType::I32, DType::I64]);
    /// Integers and `bool`.
    pub const INTEGRAL: DTypes = DTypes::BOOL.and(DTypes::INTEGER);
    /// Real floating dtypes that are computed with.
    pub const FLOAT: DTypes = DTypes::of(&[DType::F16, DType::BF16, DType::F32, DType::F64]);
    /// What windows are averaged in.
    pub const AVERAGED: DTypes = DTypes::FLOAT.and(DTypes::of(&[DType::I64]));
    /// float32 and float64: what matrices are factored in.
    pub const WIDE: DTypes = DTypes::of(&[DType::F32, DType::F64]);
    /// complex64 and complex128.
    pub const COMPLEX: DTypes = DTypes::of(&[DType::C64, DType::C128]);
    /// What LAPACK factors: real and complex numbers, their parts float32 or float64.
    pub const FACTORED: DTypes = DTypes::WIDE.and(DTypes::COMPLEX);
    /// Floating and complex.
    pub const INEXACT: DTypes = DTypes::FLOAT.and(DTypes::COMPLEX);
    /// Integers and floats, neither `bool` nor complex.
    pub const REAL: DTypes = DTypes::INTEGER.and(DTypes::FLOAT);
    /// `bool`, integers and floats: what has an order.
    pub const ORDERED: DTypes = DTypes::BOOL.and(DTypes::REAL);
    /// What is computed with, but for `bool`.
    pub const NUMERIC: DTypes = DTypes::REAL.and(DTypes::COMPLEX);

    /// The set of the listed dtypes.
    pub const fn of(list: &[DType]) -> DTypes {
        let (mut bits, mut i) = (0, 0);
        while i < list.len() {
            bits |= 1 << (list[i] as u32);
            i += 1;
        }
        DTypes(bits)
    }

    /// The union of two sets.
    pub const fn and(self, other: DTypes) -> DTypes {
        DTypes(self.0 | other.0)
    }

    /// This set less the other.
    pub const fn less(self, other: DTypes) -> DTypes {
        DTypes(self.0 & !other.0)
    }

    /// Membership.
    pub const fn has(self, dtype: DType) -> bool {
        self.0 & (1 << (dtype as u32)) != 0
    }

    /// The members, in declaration order.
    pub fn iter(self) -> impl Iterator<Item = DType> {
        DType::ALL.iter().copied().filter(move |d| self.has(*d))
    }
}

/// The parts of complex elements.
pub trait Part: num_traits::Float + Into<f64> {
    /// Rounded from double precision.
    fn of(x: f64) -> Self;
}
impl Part for f32 {
    fn of(x: f64) -> f32 {
        x as f32
    }
}
impl Part for f64 {
    fn of(x: f64) -> f64 {
        x
    }
}

/// A complex number in double precision.
pub fn wide<P: Part>(z: Complex<P>) -> Complex64 {
    Complex64::new(z.re.into(), z.im.into())
}

/// Rounded from double precision.
pub fn narrow<P: Part>(z: Complex64) -> Complex<P> {
    Complex::new(P::of(z.re), P::of(z.im))
}
