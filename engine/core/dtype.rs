//! Element types, scalars and PyTorch's promotion rules.
//!
//! Depends on nothing else in the engine. Invariant: `promote` is commutative and associative over tensors' dtypes.

use half::{bf16, f16};
use num_complex::{Complex, Complex32, Complex64};
use std::fmt;

macro_rules! dtypes {
    ($( $(#[$doc:meta])* $var:ident $name:literal $ty:ty, $size:literal, $alias:literal; )*) => {
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

        /// Runs `$body` with the type alias `$T` bound to the Rust type of a [`DType`].
        #[macro_export]
        macro_rules! with_dtype {
            ($dt:expr, $T:ident => $body:expr) => {
                match $dt { $($crate::DType::$var => { type $T = $ty; $body })* }
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
            DType::F16 | DType::BF16 | DType::F32 | DType::F64 => Category::Float,
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
        }
    }

    /// What a device without double precision has in this dtype's place.
    pub const fn to_single(self) -> DType {
        match self {
            DType::F64 => DType::F32,
            DType::C128 => DType::C64,
            DType::Bool | DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64 => self,
            DType::F16 | DType::BF16 | DType::F32 | DType::C64 => self,
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

    /// The dtype of the result of an operation on tensors of these dtypes (PyTorch's table).
    ///
    /// # Examples
    /// ```
    /// use lucid::DType;
    /// assert_eq!(DType::U8.promote(DType::I8), DType::I16);
    /// assert_eq!(DType::I64.promote(DType::F16), DType::F16);
    /// # lucid::Result::<()>::Ok(())
    /// ```
    #[inline]
    pub fn promote(self, other: DType) -> DType {
        use DType::*;
        let (lo, hi) = if self <= other { (self, other) } else { (other, self) };
        match (lo, hi) {
            (a, b) if a == b => a,
            (U8, I8) => I16,
            (F16, BF16) => F32,
            (F64, C64) => C128,
            (_, hi) => hi,
        }
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
pub struct DTypes(u16);

impl DTypes {
    /// No dtype at all.
    pub const NONE: DTypes = DTypes(0);
    /// Every dtype.
    pub const ALL: DTypes = DTypes((1 << 12) - 1);
    /// Only `bool`.
    pub const BOOL: DTypes = DTypes::of(&[DType::Bool]);
    /// Integers without `bool`.
    pub const INTEGER: DTypes = DTypes::of(&[DType::U8, DType::I8, DType::I16, DType::I32, DType::I64]);
    /// Integers and `bool`.
    pub const INTEGRAL: DTypes = DTypes::BOOL.and(DTypes::INTEGER);
    /// Real floating dtypes.
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
    /// All but `bool`.
    pub const NUMERIC: DTypes = DTypes::REAL.and(DTypes::COMPLEX);

    /// The set of the listed dtypes.
    pub const fn of(list: &[DType]) -> DTypes {
        let (mut bits, mut i) = (0, 0);
        while i < list.len() {
            bits |= 1 << (list[i] as u16);
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
        self.0 & (1 << (dtype as u16)) != 0
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

/// A number that is not a tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// A Boolean.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// An integer beyond int64, below 2^64. Integer dtypes take its low bits, where they take it at all.
    Wide(u64),
    /// A real number.
    Float(f64),
    /// A complex number: real and imaginary part.
    Complex(f64, f64),
}

impl Scalar {
    /// Would this number change the category of a tensor of that dtype?
    pub fn outranks(self, dtype: DType) -> bool {
        self.category() > dtype.category()
    }

    /// The number one, as an integer: it promotes nothing.
    pub const ONE: Scalar = Scalar::Int(1);
    /// The number zero, as an integer.
    pub const ZERO: Scalar = Scalar::Int(0);

    /// The promotion category.
    pub const fn category(self) -> Category {
        match self {
            Scalar::Bool(_) => Category::Bool,
            Scalar::Int(_) | Scalar::Wide(_) => Category::Integer,
            Scalar::Float(_) => Category::Float,
            Scalar::Complex(..) => Category::Complex,
        }
    }

    /// The real part as a float.
    pub fn to_f64(self) -> f64 {
        match self {
            Scalar::Bool(b) => f64::from(u8::from(b)),
            Scalar::Int(i) => i as f64,
            Scalar::Wide(i) => i as f64,
            Scalar::Float(f) => f,
            Scalar::Complex(re, _) => re,
        }
    }

    /// As a complex number, with an imaginary part of 0 where there is none.
    pub fn to_complex(self) -> Complex64 {
        match self {
            Scalar::Complex(re, im) => Complex64::new(re, im),
            real => Complex64::new(real.to_f64(), 0.0),
        }
    }

    /// The real part as an integer (floats are truncated).
    pub fn to_i64(self) -> i64 {
        match self {
            Scalar::Bool(b) => i64::from(b),
            Scalar::Int(i) => i,
            Scalar::Wide(i) => i as i64,
            Scalar::Float(f) | Scalar::Complex(f, _) => f as i64,
        }
    }

    /// Is the number within the range of an integer dtype? Always so for the others.
    pub fn fits(self, dtype: DType) -> bool {
        let (low, high) = match dtype {
            DType::U8 => (0.0, 255.0),
            DType::I8 => (-128.0, 127.0),
            DType::I16 => (-32768.0, 32767.0),
            DType::I32 => (f64::from(i32::MIN), f64::from(i32::MAX)),
            DType::I64 => (i64::MIN as f64, i64::MAX as f64),
            DType::Bool | DType::F16 | DType::BF16 | DType::F32 | DType::F64 => return true,
            DType::C64 | DType::C128 => return true,
        };
        !matches!(self, Scalar::Wide(_)) && (low..=high).contains(&self.to_f64().trunc())
    }

    /// Can an element of `dtype` be made of the number, as PyTorch checks where it is written: within the dtype's range, bytes
    /// with negative numbers that wrap, real where the dtype is? Infinities and NaN are floats of any width.
    pub fn converts(self, dtype: DType) -> bool {
        let parts = match self {
            Scalar::Complex(re, im) if dtype.is_complex() => [re, im],
            Scalar::Complex(_, im) if im != 0.0 && dtype != DType::Bool => return false,
            real => [real.to_f64(), 0.0],
        };
        let within = |ends: fn(f64) -> bool| parts.iter().all(|&part| !part.is_finite() || ends(part));
        match dtype {
            DType::F16 => within(|part| half::f16::from_f64(part).is_finite()),
            DType::BF16 => within(|part| half::bf16::from_f64(part).is_finite()),
            DType::F32 | DType::C64 => within(|part| (part as f32).is_finite() && part.abs() <= f64::from(f32::MAX)),
            DType::U8 if matches!(self, Scalar::Int(-255..0)) => true,
            DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::Bool => self.fits(dtype),
            DType::F64 | DType::C128 => self.fits(dtype),
        }
    }

    /// Whether a floating dtype of 16 bits holds the number as it is; true of other dtypes.
    pub fn is_exact(self, dtype: DType) -> bool {
        let (wide, narrow) = match dtype {
            DType::F16 => (self.to_f64(), half::f16::from_f64(self.to_f64()).to_f64()),
            DType::BF16 => (self.to_f64(), half::bf16::from_f64(self.to_f64()).to_f64()),
            _ => return true,
        };
        wide == narrow || wide.is_nan()
    }

    /// Truth: anything but zero, NaN included.
    pub fn to_bool(self) -> bool {
        match self {
            Scalar::Bool(b) => b,
            Scalar::Int(i) => i != 0,
            Scalar::Wide(i) => i != 0,
            Scalar::Float(f) => f != 0.0,
            Scalar::Complex(re, im) => re != 0.0 || im != 0.0,
        }
    }
}

macro_rules! scalar_from {
    ($($ty:ty => $var:ident as $wide:ty;)*) => {
        $(impl From<$ty> for Scalar {
            fn from(v: $ty) -> Scalar { Scalar::$var(v as $wide) }
        })*
    };
}
scalar_from! {
    bool => Bool as bool;
    u8 => Int as i64; i8 => Int as i64; i16 => Int as i64; i32 => Int as i64; i64 => Int as i64; usize => Int as i64;
    f32 => Float as f64; f64 => Float as f64;
}

impl From<f16> for Scalar {
    fn from(v: f16) -> Scalar {
        Scalar::Float(v.to_f64())
    }
}
impl From<bf16> for Scalar {
    fn from(v: bf16) -> Scalar {
        Scalar::Float(v.to_f64())
    }
}
impl From<Complex32> for Scalar {
    fn from(v: Complex32) -> Scalar {
        Scalar::Complex(v.re.into(), v.im.into())
    }
}
impl From<Complex64> for Scalar {
    fn from(v: Complex64) -> Scalar {
        Scalar::Complex(v.re, v.im)
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Bool(b) => write!(f, "{b}"),
            Scalar::Int(i) => write!(f, "{i}"),
            Scalar::Wide(i) => write!(f, "{i}"),
            Scalar::Float(x) => write!(f, "{x}"),
            Scalar::Complex(re, im) => write!(f, "({re}{im:+}j)"),
        }
    }
}
