//! [`Scalar`]: a number that is not a tensor, and which dtypes hold it.
//!
//! Depends on `dtype`. Invariant: an integer keeps all its bits.

use crate::dtype::{Category, DType};
use crate::float8::{F8E4M3FN, F8E5M2};
use half::{bf16, f16};
use num_complex::{Complex32, Complex64};
use std::fmt;

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
            DType::U16 => (0.0, 65535.0),
            DType::U32 => (0.0, f64::from(u32::MAX)),
            DType::U64 if matches!(self, Scalar::Wide(_)) => return true,
            DType::U64 => (0.0, u64::MAX as f64),
            DType::F8E4M3FN | DType::F8E5M2 => return true,
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
            DType::F8E4M3FN | DType::F8E5M2 => true,
            DType::U8 if matches!(self, Scalar::Int(-255..0)) => true,
            DType::U16 if matches!(self, Scalar::Int(-65535..0)) => true,
            DType::U32 if matches!(self, Scalar::Int(-4_294_967_295..0)) => true,
            DType::U64 if matches!(self, Scalar::Int(..0)) => true,
            DType::U16 | DType::U32 | DType::U64 => self.fits(dtype),
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

    /// As an unsigned integer: negative numbers wrap, floats are truncated.
    pub fn to_u64(self) -> u64 {
        match self {
            Scalar::Wide(i) => i,
            Scalar::Float(f) | Scalar::Complex(f, _) if f > 0.0 => f as u64,
            other => other.to_i64() as u64,
        }
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
    u16 => Int as i64; u32 => Int as i64;
    f32 => Float as f64; f64 => Float as f64;
}

impl From<u64> for Scalar {
    fn from(v: u64) -> Scalar {
        i64::try_from(v).map_or(Scalar::Wide(v), Scalar::Int)
    }
}
impl From<F8E4M3FN> for Scalar {
    fn from(v: F8E4M3FN) -> Scalar {
        Scalar::Float(v.to_f64())
    }
}
impl From<F8E5M2> for Scalar {
    fn from(v: F8E5M2) -> Scalar {
        Scalar::Float(v.to_f64())
    }
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
