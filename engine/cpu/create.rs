//! New arrays from numbers.
//!
//! Depends on `simd` for memory and threads. Invariant: a range's elements are computed from their index, not by adding.

use super::simd::{fill, threads};
use super::CpuArray;
use crate::dtype::float8::{F8E4M3FN, F8E5M2};
use crate::dtype::{narrow, Element};
use crate::{with_dtype, Result, Scalar};
use half::{bf16, f16};
use lucid_ir::ops::create::{spaced_at, CreateOp};
use lucid_ir::Meta;
use num_complex::{Complex32, Complex64};

/// Elements that a number can be converted to.
pub trait FromScalar: Element {
    /// The nearest element; integers wrap.
    fn from_scalar(s: Scalar) -> Self;
    /// `start + i * step`, in integers where all are integers, else in double precision.
    fn at(start: Scalar, step: Scalar, i: usize) -> Self {
        match (start, step) {
            (Scalar::Int(_) | Scalar::Bool(_), Scalar::Int(_) | Scalar::Bool(_)) => {
                let (start, step) = (start.to_i64(), step.to_i64());
                Self::from_scalar(Scalar::Int(start.wrapping_add(step.wrapping_mul(i as i64))))
            }
            _ => Self::from_scalar(Scalar::Float(start.to_f64() + step.to_f64() * i as f64)),
        }
    }
}

macro_rules! from_scalar {
    ($($t:ty, $s:ident => $e:expr;)*) => {
        $(impl FromScalar for $t {
            fn from_scalar($s: Scalar) -> $t { $e }
        })*
    };
}
from_scalar! {
    bool, s => s.to_bool();
    u8, s => s.to_i64() as u8;
    i8, s => s.to_i64() as i8;
    i16, s => s.to_i64() as i16;
    i32, s => s.to_i64() as i32;
    i64, s => s.to_i64();
    u16, s => s.to_i64() as u16;
    u32, s => s.to_i64() as u32;
    u64, s => s.to_u64();
    F8E4M3FN, s => F8E4M3FN::from_f64(s.to_f64());
    F8E5M2, s => F8E5M2::from_f64(s.to_f64());
    f16, s => f16::from_f64(s.to_f64());
    bf16, s => bf16::from_f64(s.to_f64());
    f32, s => s.to_f64() as f32;
    f64, s => s.to_f64();
    Complex32, s => narrow(s.to_complex());
    Complex64, s => s.to_complex();
}

/// The kernels of the `create` family.
pub fn create(op: &CreateOp, out: &Meta) -> Result<CpuArray> {
    with_dtype!(out.dtype, T => CpuArray::build(&out.shape, |data: &mut [T]| {
        match op {
            CreateOp::Full { value } => {
                let value = T::from_scalar(*value);
                threads::for_chunks(data, 64, 4 * threads::GRAIN, |_, piece| fill(value, piece));
            }
            CreateOp::Arange { start, step } => {
                threads::for_chunks(data, 64, threads::GRAIN, |first, piece| {
                    piece.iter_mut().enumerate().for_each(|(i, x)| *x = T::at(*start, *step, first + i));
                });
            }
            CreateOp::Linspace { start, end, base } => {
                let n = out.shape[0];
                let at = |i| T::from_scalar(spaced_at(*start, *end, *base, n, i, out.dtype));
                threads::for_chunks(data, 64, threads::GRAIN, |first, piece| {
                    piece.iter_mut().enumerate().for_each(|(i, x)| *x = at(first + i));
                });
            }
            CreateOp::Eye => {
                data.fill(T::from_scalar(Scalar::ZERO));
                let (rows, columns) = (out.shape[0], out.shape[1]);
                let one = T::from_scalar(Scalar::ONE);
                (0..rows.min(columns)).for_each(|i| data[i * columns + i] = one);
            }
        }
        Ok(())
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::show;
    use crate::DType;

    fn make(op: CreateOp, shape: &[usize], dtype: DType) -> CpuArray {
        create(&op, &Meta { shape: shape.into(), dtype }).unwrap()
    }

    #[test]
    fn ranges_and_identities() {
        let range = CreateOp::Arange { start: Scalar::Int(5), step: Scalar::Int(-2) };
        assert_eq!(show::<i64>(&make(range.clone(), &[4], DType::I64)), [5, 3, 1, -1]);
        assert_eq!(show::<f16>(&make(range, &[2], DType::F16)), [f16::from_f32(5.0), f16::from_f32(3.0)]);
        let real = CreateOp::Arange { start: Scalar::Float(0.5), step: Scalar::Int(1) };
        assert_eq!(show::<i32>(&make(real, &[3], DType::I32)), [0, 1, 2]);
        assert_eq!(show::<u8>(&make(CreateOp::Eye, &[2, 3], DType::U8)), [1, 0, 0, 0, 1, 0]);
        assert_eq!(show::<u8>(&make(CreateOp::Eye, &[0, 3], DType::U8)), Vec::<u8>::new());
        let full = CreateOp::Full { value: Scalar::Float(2.5) };
        assert_eq!(show::<f64>(&make(full.clone(), &[], DType::F64)), [2.5]);
        assert_eq!(show::<bool>(&make(full, &[2], DType::Bool)), [true, true]);
    }
}
