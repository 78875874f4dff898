//! Determinants, inverses and linear systems, matrix by matrix.
//!
//! Depends on `blas`. Inputs are copied row-major first: LAPACK works in place.

use super::blas::Lapack;
use super::factor;
use super::CpuArray;
use crate::dispatch::Meta;
use crate::ops::linalg::LinalgOp;
use crate::{DType, Error, Result};
use std::ffi::c_int;

pub fn linalg(op: &LinalgOp, inputs: &[&CpuArray], out: &Meta) -> Result<CpuArray> {
    match (op, out.dtype, inputs) {
        (LinalgOp::DeterminantParts, DType::F32, [a]) => determinant::<f32>(a, out),
        (LinalgOp::DeterminantParts, DType::F64, [a]) => determinant::<f64>(a, out),
        (LinalgOp::Inverse, DType::F32, [a]) => inverse::<f32>(a, out),
        (LinalgOp::Inverse, DType::F64, [a]) => inverse::<f64>(a, out),
        (LinalgOp::SolveMatrices, DType::F32, [a, b]) => solve::<f32>(a, b, out),
        (LinalgOp::SolveMatrices, DType::F64, [a, b]) => solve::<f64>(a, b, out),
        (LinalgOp::CholeskyParts, DType::F32, [a]) => factor::cholesky::<f32>(a, out),
        (LinalgOp::CholeskyParts, DType::F64, [a]) => factor::cholesky::<f64>(a, out),
        (LinalgOp::QrParts, DType::F32, [a]) => factor::qr::<f32>(a, out),
        (LinalgOp::QrParts, DType::F64, [a]) => factor::qr::<f64>(a, out),
        (LinalgOp::EighParts, DType::F32, [a]) => factor::eigh::<f32>(a, true, out),
        (LinalgOp::EighParts, DType::F64, [a]) => factor::eigh::<f64>(a, true, out),
        (LinalgOp::Eigenvalues, DType::F32, [a]) => factor::eigh::<f32>(a, false, out),
        (LinalgOp::Eigenvalues, DType::F64, [a]) => factor::eigh::<f64>(a, false, out),
        (LinalgOp::SvdParts { full }, DType::F32, [a]) => factor::svd::<f32>(a, Some(*full), out),
        (LinalgOp::SvdParts { full }, DType::F64, [a]) => factor::svd::<f64>(a, Some(*full), out),
        (LinalgOp::SingularValues, DType::F32, [a]) => factor::svd::<f32>(a, None, out),
        (LinalgOp::SingularValues, DType::F64, [a]) => factor::svd::<f64>(a, None, out),
        (LinalgOp::LuParts, DType::F32, [a]) => factor::lu::<f32>(a, out),
        (LinalgOp::LuParts, DType::F64, [a]) => factor::lu::<f64>(a, out),
        (LinalgOp::Exponential, DType::F32, [a]) => factor::exponential::<f32>(a, out),
        (LinalgOp::Exponential, DType::F64, [a]) => factor::exponential::<f64>(a, out),
        (LinalgOp::SolveTriangular { upper, unit }, DType::F32, [a, b]) => {
            factor::triangular::<f32>(a, b, *upper, *unit, out)
        }
        (LinalgOp::SolveTriangular { upper, unit }, DType::F64, [a, b]) => {
            factor::triangular::<f64>(a, b, *upper, *unit, out)
        }
        (LinalgOp::PseudoInverse { atol, rtol }, DType::F32, [a]) => {
            factor::pseudo_inverse::<f32>(a, *atol, *rtol, out)
        }
        (LinalgOp::PseudoInverse { atol, rtol }, DType::F64, [a]) => {
            factor::pseudo_inverse::<f64>(a, *atol, *rtol, out)
        }
        (LinalgOp::Permutation { n }, DType::I64, [pivots]) => permutations(pivots, *n, out),
        _ => Err(Error::dtype(op.schema().name, "takes float32 and float64", &[out.dtype])),
    }
}

fn permutations(pivots: &CpuArray, n: usize, out: &Meta) -> Result<CpuArray> {
    let pivots = pivots.contiguous()?;
    let guard = pivots.read::<i64>();
    let each = pivots.shape().last().copied().unwrap_or(0);
    let found = factor::permutations(pivots.slice(&guard), each, n)?;
    CpuArray::build(&out.shape, |out: &mut [i64]| {
        out.copy_from_slice(&found);
        Ok(())
    })
}

/// Side of the square matrices, and how many there are.
fn sizes(op: &'static str, a: &CpuArray) -> Result<(usize, usize)> {
    let (n, lead) = (a.shape()[a.shape().len() - 1], &a.shape()[..a.shape().len() - 2]);
    if n >= c_int::MAX as usize {
        return Err(Error::runtime(op, format!("a matrix of {n} rows is too large for LAPACK")));
    }
    Ok((n, lead.iter().product()))
}

fn determinant<T: Lapack>(a: &CpuArray, out: &Meta) -> Result<CpuArray> {
    let (n, _) = sizes("det", a)?;
    let a = a.contiguous()?;
    let guard = a.read::<T>();
    let data = a.slice(&guard);
    let (mut work, mut pivots) = (vec![T::zero(); n * n], vec![0; n]);
    CpuArray::build(&out.shape, |out: &mut [T]| {
        for (i, parts) in out.chunks_mut(3).enumerate() {
            work.copy_from_slice(&data[i * n * n..(i + 1) * n * n]);
            if n > 0 {
                T::lu(n, &mut work, &mut pivots);
            }
            let (mut sign, mut log, mut det) = (T::one(), T::zero(), T::one());
            for (j, &pivot) in pivots.iter().enumerate() {
                let u = work[j * n + j];
                let flipped = pivot as usize != j + 1;
                let one = if u.is_nan() {
                    u
                } else if u == T::zero() {
                    T::zero()
                } else {
                    u.signum()
                };
                sign *= if flipped { -one } else { one };
                log = log + u.abs().ln();
                det *= if flipped { -u } else { u };
            }
            // The sign of a singular matrix is 0, not -0.
            (parts[0], parts[1], parts[2]) = (sign + T::zero(), log, det + T::zero());
        }
        Ok(())
    })
}

fn singular(op: &'static str, pivot: usize) -> Box<Error> {
    let why = format!(
        "The diagonal element {pivot} is zero, the inversion could not be completed because the input matrix is singular."
    );
    Error::runtime(op, why)
}

fn inverse<T: Lapack>(a: &CpuArray, out: &Meta) -> Result<CpuArray> {
    let (n, _) = sizes("inverse", a)?;
    let a = a.contiguous()?;
    let guard = a.read::<T>();
    let data = a.slice(&guard);
    let mut pivots = vec![0; n];
    CpuArray::build(&out.shape, |out: &mut [T]| {
        out.copy_from_slice(data);
        for matrix in out.chunks_mut((n * n).max(1)) {
            match T::lu(n, matrix, &mut pivots) {
                0 => T::inverse(n, matrix, &pivots),
                pivot => return Err(singular("inverse", pivot)),
            }
        }
        Ok(())
    })
}

fn solve<T: Lapack>(a: &CpuArray, b: &CpuArray, out: &Meta) -> Result<CpuArray> {
    let (n, batch) = sizes("solve", a)?;
    let k = out.shape[out.shape.len() - 1];
    let (a, b) = (a.contiguous()?, b.contiguous()?);
    let (left, right) = (a.read::<T>(), b.read::<T>());
    let (left, right) = (a.slice(&left), b.slice(&right));
    let (mut work, mut pivots, mut columns) = (vec![T::zero(); n * n], vec![0; n], vec![T::zero(); n * k]);
    CpuArray::build(&out.shape, |out: &mut [T]| {
        for i in 0..if n * k > 0 { batch } else { 0 } {
            work.copy_from_slice(&left[i * n * n..(i + 1) * n * n]);
            match T::lu(n, &mut work, &mut pivots) {
                0 => {}
                pivot => return Err(singular("solve", pivot)),
            }
            let (rows, out) = (&right[i * n * k..(i + 1) * n * k], &mut out[i * n * k..(i + 1) * n * k]);
            (0..n * k).for_each(|j| columns[j % k * n + j / k] = rows[j]);
            T::solve(n, k, &work, &pivots, &mut columns);
            (0..n * k).for_each(|j| out[j] = columns[j % k * n + j / k]);
        }
        Ok(())
    })
}
