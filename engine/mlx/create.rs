//! New arrays: constants, ranges, and the way in from bytes and out again.
//!
//! Depends on `array`, `convert` and mlx-ffi. Invariant: bytes are in row-major order, whatever the physical order is.

use super::array::GpuArray;
use super::convert::{self, constant, int, integer_range, integers, ints};
use super::kernel_error::Made;
use super::lazy;
use super::reduce::as_dtype;
use super::value::{Value, ValueRange};
use crate::dtype::float8::{F8E4M3FN, F8E5M2};
use crate::dtype::narrow;
use crate::shape::numel;
use crate::{DType, Scalar};
use half::{bf16, f16};
use lucid_ir::ops::create::{spaced_at, CreateOp};
use lucid_ir::Meta;
use mlx_ffi::{ops, Array, Dtype, HostLease};
use num_complex::Complex32;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Index arrays up to this many elements have their range noted when they come in.
const SMALL: usize = 1 << 16;
/// Results of fewer bytes are copied to the host, not lent, unless it is set.
pub const LENT_FROM: usize = 32 << 10;

static LENT: AtomicUsize = AtomicUsize::new(LENT_FROM);

/// From how many bytes on an array is shown to the host in place.
pub fn lent_from() -> usize {
    LENT.load(Ordering::Relaxed)
}

/// Sets from how many bytes on an array is shown to the host in place.
pub fn set_lent_from(bytes: usize) {
    LENT.store(bytes, Ordering::Relaxed);
}

pub(super) fn create(op: &CreateOp, out: &Meta) -> Made<GpuArray> {
    let value = match op {
        CreateOp::Full { value } => {
            let one = constant(*value, out.dtype)?;
            let array = if out.shape.is_empty() {
                one
            } else {
                ops::full(&ints(&out.shape)?, &one, convert::dtype(out.dtype)?)?
            };
            Value::plain(array).knowing(known_of(*value, out.dtype))
        }
        CreateOp::Arange { start, step } => arange(*start, *step, out)?,
        CreateOp::Linspace { start, end, base } => {
            let n = out.shape[0];
            let mut bytes = room(out)?;
            (0..n).for_each(|i| push(&mut bytes, spaced_at(*start, *end, *base, n, i, out.dtype), out.dtype));
            Value::plain(Array::from_bytes(&bytes, &[int(n)?], convert::dtype(out.dtype)?)?)
        }
        CreateOp::Eye => {
            // MLX scatters the ones, which on CUDA and Metal it does in few dtypes.
            let eye = ops::eye(int(out.shape[0])?, int(out.shape[1])?, 0, Dtype::Float32)?;
            Value::plain(as_dtype(eye, out.dtype)?)
        }
    };
    GpuArray::new(value, &out.shape, out.dtype)
}

fn known_of(value: Scalar, dtype: DType) -> ValueRange {
    match integer_range(dtype) {
        Some((low, high)) => match value.to_i64() {
            _ if dtype == DType::Bool => ValueRange::Nothing,
            i if low <= i && i <= high => ValueRange::Within(i, i),
            _ => ValueRange::Nothing,
        },
        None if dtype.is_complex() || dtype.is_stored_only() => ValueRange::Nothing,
        None => ValueRange::Constant(value.to_f64()),
    }
}

fn arange(start: Scalar, step: Scalar, out: &Meta) -> Made<Value> {
    const EXACT: i64 = 1 << 53;
    let n = out.shape[0];
    let real = out.dtype.is_float() || [start, step].iter().any(|s| matches!(s, Scalar::Float(_)));
    if !real {
        let (a, s) = (start.to_i64(), step.to_i64());
        let last = i128::from(a) + i128::from(s) * (n as i128 - 1).max(0);
        if a.abs() < EXACT && s.abs() < EXACT && last.abs() < i128::from(EXACT) && n > 0 {
            let last = last as i64;
            // Half a step beyond the last: the count cannot be rounded to another.
            let stop = last as f64 + s as f64 / 2.0;
            let array = ops::arange(a as f64, stop, s as f64, convert::dtype(out.dtype)?)?;
            let fits = integer_range(out.dtype).is_some_and(|(low, high)| low <= a.min(last) && a.max(last) <= high);
            let known = if fits { ValueRange::Within(a.min(last), a.max(last)) } else { ValueRange::Nothing };
            return Ok(Value::plain(array).knowing(known));
        }
    }
    // MLX adds up the steps; PyTorch multiplies in double precision and rounds once. Ranges of floats are short.
    let (a, s) = (start.to_f64(), step.to_f64());
    let (wide_a, wide_s) = (start.to_i64(), step.to_i64());
    let at = |i: usize| {
        if real {
            Scalar::Float(a + s * i as f64)
        } else {
            Scalar::Int(wide_a.wrapping_add(wide_s.wrapping_mul(i as i64)))
        }
    };
    let mut bytes = room(out)?;
    for i in 0..n {
        push(&mut bytes, at(i), out.dtype);
    }
    Ok(Value::plain(Array::from_bytes(&bytes, &[int(n)?], convert::dtype(out.dtype)?)?))
}

/// Room on the host for the bytes of a result.
fn room(out: &Meta) -> Made<Vec<u8>> {
    let wanted = numel(&out.shape).saturating_mul(out.dtype.size());
    let mut bytes = Vec::new();
    match bytes.try_reserve_exact(wanted) {
        Ok(()) => Ok(bytes),
        Err(_) => Err(mlx_ffi::Error::OutOfMemory(format!("{wanted} bytes on the host")).into()),
    }
}

/// Appends a number in a dtype.
fn push(bytes: &mut Vec<u8>, x: Scalar, dtype: DType) {
    match dtype {
        DType::Bool => bytes.push(u8::from(x.to_bool())),
        DType::U8 | DType::I8 => bytes.push(x.to_i64() as u8),
        DType::I16 => bytes.extend((x.to_i64() as i16).to_ne_bytes()),
        DType::I32 => bytes.extend((x.to_i64() as i32).to_ne_bytes()),
        DType::I64 => bytes.extend(x.to_i64().to_ne_bytes()),
        DType::U16 => bytes.extend((x.to_i64() as u16).to_ne_bytes()),
        DType::U32 => bytes.extend((x.to_i64() as u32).to_ne_bytes()),
        DType::U64 => bytes.extend(x.to_u64().to_ne_bytes()),
        DType::F8E4M3FN => bytes.push(F8E4M3FN::from_f64(x.to_f64()).to_bits()),
        DType::F8E5M2 => bytes.push(F8E5M2::from_f64(x.to_f64()).to_bits()),
        DType::F16 => bytes.extend(f16::from_f64(x.to_f64()).to_ne_bytes()),
        DType::BF16 => bytes.extend(bf16::from_f64(x.to_f64()).to_ne_bytes()),
        DType::F32 => bytes.extend((x.to_f64() as f32).to_ne_bytes()),
        DType::F64 => bytes.extend(x.to_f64().to_ne_bytes()),
        DType::C64 => {
            let z: Complex32 = narrow(x.to_complex());
            bytes.extend(z.re.to_ne_bytes().into_iter().chain(z.im.to_ne_bytes()));
        }
        DType::C128 => {
            let z = x.to_complex();
            bytes.extend(z.re.to_ne_bytes().into_iter().chain(z.im.to_ne_bytes()));
        }
    }
}

/// A new array from row-major bytes.
pub(super) fn from_bytes(bytes: &[u8], out: &Meta) -> Made<GpuArray> {
    mlx_ffi::ensure_allowed()?;
    let array = Array::from_bytes(bytes, &ints(&out.shape)?, convert::dtype(out.dtype)?)?;
    GpuArray::new(Value::plain(array).knowing(known_of_bytes(bytes, out)), &out.shape, out.dtype)
}

fn known_of_bytes(bytes: &[u8], out: &Meta) -> ValueRange {
    match numel(&out.shape) <= SMALL && out.dtype != DType::Bool {
        true => range_of(bytes, out.dtype),
        false => ValueRange::Nothing,
    }
}

/// A new array of elements that the host has too: in place where MLX can, which then is what comes back beside it.
pub(super) fn over(memory: mlx_ffi::Memory, bytes: &[u8], out: &Meta) -> Made<(GpuArray, HostLease)> {
    mlx_ffi::ensure_allowed()?;
    let known = known_of_bytes(bytes, out);
    let lease = HostLease::over(memory, &ints(&out.shape)?, convert::dtype(out.dtype)?)?;
    let value = Value::plain(lease.array().clone()).knowing(known);
    Ok((GpuArray::new(value, &out.shape, out.dtype)?, lease))
}

/// A new array of the elements that a host's array borrows from MLX.
pub(super) fn again(lease: &HostLease, bytes: &[u8], out: &Meta) -> Made<GpuArray> {
    let array = ops::reshape(lease.array(), &ints(&out.shape)?)?;
    GpuArray::new(Value::plain(array).knowing(known_of_bytes(bytes, out)), &out.shape, out.dtype)
}

/// The elements in place, for the host to use. Evaluates. `None` where it has to copy them, or they are so few that a
/// copy costs nothing.
pub(super) fn lend(x: &GpuArray) -> Made<Option<HostLease>> {
    if x.numel() * x.element().size() < lent_from() {
        return Ok(None);
    }
    let logical = x.value()?.logical()?.into_owned();
    let lease = HostLease::of(logical)?;
    lazy::settle(true);
    Ok(lease)
}

/// The range of integers that bytes hold.
pub(super) fn range_of(bytes: &[u8], dtype: DType) -> ValueRange {
    let Some(all) = integers(bytes, dtype) else { return ValueRange::Nothing };
    let range = all.fold(None, |r: Option<(i64, i64)>, x| Some(r.map_or((x, x), |(a, b)| (a.min(x), b.max(x)))));
    range.map_or(ValueRange::Nothing, |(a, b)| ValueRange::Within(a, b))
}

/// Copies the elements to as many row-major bytes. Evaluates.
pub(super) fn copy_to(x: &GpuArray, out: &mut [u8]) -> Made<()> {
    let logical = x.value()?.logical()?.into_owned();
    logical.copy_to(out)?;
    lazy::settle(true);
    Ok(())
}

/// Hands over the elements as row-major bytes, in MLX's own memory where they have that layout and the host uses it. Evaluates.
pub(super) fn with_bytes<R>(x: &GpuArray, f: impl FnOnce(&[u8]) -> R) -> Made<R> {
    let logical = x.value()?.logical()?.into_owned();
    let result = logical.read(f)?;
    lazy::settle(true);
    Ok(result)
}

/// The indices of elements that are not zero, in columns. Evaluates.
pub(super) fn nonzero(x: &GpuArray) -> Made<GpuArray> {
    let bytes = with_bytes(x, <[u8]>::to_vec)?;
    let size = x.element().size();
    let places: Vec<usize> =
        (0..x.numel()).filter(|i| !is_zero(&bytes[i * size..(i + 1) * size], x.element())).collect();
    let mut found = crate::fallible::filled(0, places.len() * x.ndim())?;
    for (at, place) in places.iter().enumerate() {
        let mut rest = *place;
        for (axis, &n) in x.shape().iter().enumerate().rev() {
            found[axis * places.len() + at] = (rest % n) as i64;
            rest /= n;
        }
    }
    let known = ValueRange::Within(0, x.shape().iter().max().map_or(0, |&n| n as i64 - 1));
    let array = Array::from_slice(&found, &[int(x.ndim())?, int(places.len())?])?;
    GpuArray::new(Value::plain(array).knowing(known), &[x.ndim(), places.len()], DType::I64)
}

/// Is the number zero, of either sign?
fn is_zero(bytes: &[u8], dtype: DType) -> bool {
    let top = |half: &[u8]| half.iter().enumerate().all(|(i, &b)| b == 0 || (b == 0x80 && i + 1 == half.len()));
    match dtype {
        DType::Bool | DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64 => bytes.iter().all(|&b| b == 0),
        // The sign is the last byte's highest bit: all that MLX runs on is little-endian.
        DType::U16 | DType::U32 | DType::U64 => bytes.iter().all(|&b| b == 0),
        DType::F16 | DType::BF16 | DType::F32 | DType::F64 | DType::F8E4M3FN | DType::F8E5M2 => top(bytes),
        DType::C64 => top(&bytes[..4]) && top(&bytes[4..]),
        DType::C128 => top(&bytes[..8]) && top(&bytes[8..]),
    }
}
