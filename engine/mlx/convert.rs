//! Between the engine's terms and MLX's: dtypes, shapes, numbers.
//!
//! Depends on mlx-ffi. Invariant: a shape that MLX's 32-bit sizes cannot hold is an error, never cut short.

use super::float8;
use super::kernel_error::Made;
use crate::dtype::float8::{F8E4M3FN, F8E5M2};
use crate::dtype::narrow;
use crate::shape::numel;
use crate::{DType, Error, Scalar};
use half::{bf16, f16};
use mlx_ffi::{ops, Array, Dtype};
use num_complex::Complex32;
use smallvec::SmallVec;
use std::cell::RefCell;

/// Sizes or positions as MLX takes them.
pub(super) type Ints = SmallVec<[i32; 8]>;

/// Elements of MLX's own dtype in another one. By way of numbers from truth values to complex numbers: MLX makes 1 + 1j of what is true on
/// CUDA.
pub(super) fn astype(x: &Array, to: DType) -> Made<Array> {
    if to.is_float8() {
        return float8::encode(&ops::astype(x, Dtype::Float32)?, to);
    }
    let to = dtype(to)?;
    if x.dtype() == Dtype::Bool && to == Dtype::Complex64 {
        return Ok(ops::astype(&ops::astype(x, Dtype::Float32)?, to)?);
    }
    Ok(ops::astype(x, to)?)
}

/// MLX's name of a dtype.
#[inline]
pub(super) fn dtype(dtype: DType) -> Made<Dtype> {
    Ok(match dtype {
        DType::Bool => Dtype::Bool,
        DType::U8 => Dtype::Uint8,
        DType::I8 => Dtype::Int8,
        DType::I16 => Dtype::Int16,
        DType::I32 => Dtype::Int32,
        DType::I64 => Dtype::Int64,
        DType::U16 => Dtype::Uint16,
        DType::U32 => Dtype::Uint32,
        DType::U64 => Dtype::Uint64,
        // Their bits: MLX has no such numbers.
        DType::F8E4M3FN | DType::F8E5M2 => Dtype::Uint8,
        DType::F16 => Dtype::Float16,
        DType::BF16 => Dtype::Bfloat16,
        DType::F32 => Dtype::Float32,
        DType::C64 => Dtype::Complex64,
        DType::F64 | DType::C128 => {
            let single = dtype.to_single();
            let why = format!("the GPU device has no {dtype}; use {single}, or keep the tensor on the cpu");
            return Err(Error::dtype("gpu", why, &[dtype]).into());
        }
    })
}

/// Sizes as MLX takes them.
pub(super) fn ints(sizes: &[usize]) -> Made<Ints> {
    let mut made = Ints::from_elem(0, sizes.len());
    for (to, &n) in made.iter_mut().zip(sizes) {
        *to = int(n)?;
    }
    Ok(made)
}

/// A size as MLX takes it.
pub(super) fn int(n: usize) -> Made<i32> {
    i32::try_from(n).map_err(|_| beyond(format!("a size of {n}")).into())
}

/// The error for what MLX's 32-bit numbers cannot hold.
#[cold]
fn beyond(what: String) -> Box<Error> {
    let why = format!("the GPU device counts up to {}, which {what} exceeds; split it, or use the cpu", i32::MAX);
    Error::limit("gpu", why)
}

/// An error where an array of these sizes has more elements than MLX's kernels count, whose positions are 32-bit numbers.
#[inline]
pub(super) fn countable(shape: &[usize]) -> Made<()> {
    let n = numel(shape);
    if n <= i32::MAX as usize {
        return Ok(());
    }
    Err(beyond(format!("a tensor of shape {shape:?} with {n} elements")).into())
}

/// How many constants a thread keeps.
const KEPT: usize = 64;

/// A constant by its dtype, whether it was given as a float, and the bits it was given in.
type ConvertedArray = (DType, bool, u64, Array);

thread_local! {
    static CONSTANTS: RefCell<[Option<ConvertedArray>; KEPT]> = const { RefCell::new([const { None }; KEPT]) };
}

/// A 0-d array of one number; those used lately are kept.
pub(super) fn constant(value: impl Into<Scalar>, dtype: DType) -> Made<Array> {
    let value = value.into();
    let bits = match value {
        Scalar::Bool(b) => u64::from(b),
        Scalar::Int(i) => i as u64,
        Scalar::Float(f) => f.to_bits(),
        Scalar::Wide(_) | Scalar::Complex(..) => return scalar(value, dtype),
    };
    // Numbers of different kinds may share bits: the kind is part of the key, beside all of these.
    let float = matches!(value, Scalar::Float(_));
    let slot =
        ((bits.rotate_left(1) ^ u64::from(float)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58) as usize ^ dtype as usize;
    let kept = CONSTANTS.try_with(|c| match &c.borrow()[slot % KEPT] {
        Some((d, f, b, array)) if (*d, *f, *b) == (dtype, float, bits) => Some(array.clone()),
        _ => None,
    });
    if let Ok(Some(array)) = kept {
        return Ok(array);
    }
    let array = scalar(value, dtype)?;
    // A thread that is ending keeps nothing.
    let _ = CONSTANTS.try_with(|c| c.borrow_mut()[slot % KEPT].replace((dtype, float, bits, array.clone())));
    Ok(array)
}

/// How many of them are kept in shapes of other arrays.
const SPREAD: usize = 256;

/// A 0-d array, the shape it was broadcast to, and the result. The first is kept so that its id stays taken.
type Spread = (Array, Ints, Array);

thread_local! {
    static SPREADS: RefCell<[Option<Spread>; SPREAD]> = const { RefCell::new([const { None }; SPREAD]) };
}

/// A constant in the shape of another array; those used lately are kept, so that after its first evaluation it costs no
/// operation.
pub(super) fn spread(number: &Array, like: &Array) -> Made<Array> {
    let (id, shape) = (number.id(), like.shape());
    let key = shape.iter().fold(id as u64, |h, &n| (h.rotate_left(7) ^ n as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let slot = (key >> 56) as usize % SPREAD;
    let kept = SPREADS.try_with(|s| match &s.borrow()[slot] {
        Some((n, to, spread)) if n.id() == id && to.as_slice() == shape => Some(spread.clone()),
        _ => None,
    });
    if let Ok(Some(array)) = kept {
        return Ok(array);
    }
    let array = ops::broadcast_to(number, shape)?;
    let _ = SPREADS.try_with(|s| s.borrow_mut()[slot].replace((number.clone(), shape.into(), array.clone())));
    Ok(array)
}

fn scalar(value: Scalar, to: DType) -> Made<Array> {
    Ok(match to {
        DType::Bool => Array::scalar(value.to_bool())?,
        DType::U8 => Array::scalar(value.to_i64() as u8)?,
        DType::I8 => Array::scalar(value.to_i64() as i8)?,
        DType::I16 => Array::scalar(value.to_i64() as i16)?,
        DType::I32 => Array::scalar(value.to_i64() as i32)?,
        DType::I64 => Array::scalar(value.to_i64())?,
        DType::U16 => Array::scalar(value.to_i64() as u16)?,
        DType::U32 => Array::scalar(value.to_i64() as u32)?,
        DType::U64 => Array::scalar(value.to_u64())?,
        DType::F8E4M3FN => Array::scalar(F8E4M3FN::from_f64(value.to_f64()).to_bits())?,
        DType::F8E5M2 => Array::scalar(F8E5M2::from_f64(value.to_f64()).to_bits())?,
        DType::F16 => Array::scalar(f16::from_f64(value.to_f64()))?,
        DType::BF16 => Array::scalar(bf16::from_f64(value.to_f64()))?,
        DType::F32 => Array::scalar(value.to_f64() as f32)?,
        DType::C64 => {
            let z: Complex32 = narrow(value.to_complex());
            Array::scalar(z)?
        }
        DType::F64 | DType::C128 => {
            return Err(dtype(to).err().unwrap_or_else(|| Error::dtype("gpu", "no such dtype", &[to]).into()));
        }
    })
}

/// The smallest and the largest number of an integer dtype.
pub(super) fn integer_range(dtype: DType) -> Option<(i64, i64)> {
    match dtype {
        DType::Bool => Some((0, 1)),
        DType::U8 => Some((0, 255)),
        DType::I8 => Some((i8::MIN.into(), i8::MAX.into())),
        DType::I16 => Some((i16::MIN.into(), i16::MAX.into())),
        DType::I32 => Some((i32::MIN.into(), i32::MAX.into())),
        DType::I64 => Some((i64::MIN, i64::MAX)),
        DType::U16 => Some((0, u16::MAX.into())),
        DType::U32 => Some((0, u32::MAX.into())),
        // Its numbers are not all int64's.
        DType::U64 | DType::F8E4M3FN | DType::F8E5M2 => None,
        DType::F16 | DType::BF16 | DType::F32 | DType::F64 | DType::C64 | DType::C128 => None,
    }
}

/// The integers in row-major bytes of an integer dtype; `None` for other dtypes.
pub(super) fn integers<'a>(bytes: &'a [u8], dtype: DType) -> Option<Box<dyn Iterator<Item = i64> + 'a>> {
    Some(match dtype {
        DType::Bool | DType::U8 => Box::new(bytes.iter().map(|&b| i64::from(b))),
        DType::I8 => Box::new(bytes.iter().map(|&b| i64::from(b as i8))),
        DType::I16 => Box::new(bytes.chunks_exact(2).map(|b| i64::from(i16::from_ne_bytes([b[0], b[1]])))),
        DType::U16 => Box::new(bytes.chunks_exact(2).map(|b| i64::from(u16::from_ne_bytes([b[0], b[1]])))),
        DType::U32 => Box::new(bytes.chunks_exact(4).map(|b| i64::from(u32::from_ne_bytes([b[0], b[1], b[2], b[3]])))),
        DType::U64 | DType::F8E4M3FN | DType::F8E5M2 => return None,
        DType::I32 => Box::new(bytes.chunks_exact(4).map(|b| i64::from(i32::from_ne_bytes([b[0], b[1], b[2], b[3]])))),
        DType::I64 => Box::new(
            bytes.chunks_exact(8).map(|b| i64::from_ne_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]])),
        ),
        DType::F16 | DType::BF16 | DType::F32 | DType::F64 | DType::C64 | DType::C128 => return None,
    })
}
