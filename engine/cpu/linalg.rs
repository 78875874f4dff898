//! Inverses and linear systems, matrix by matrix.
//!
//! Depends on `blas`. Inputs are copied first, as LAPACK works in place; what is a matrix is given column by column.

use super::blas::Lapack;
use super::factor;
use super::CpuArray;
use crate::fallible::scratch;
use crate::{DType, Error, Result};
use lucid_ir::backend::Array;
use lucid_ir::ops::linalg::LinalgOp;
use lucid_ir::Meta;
use num_complex::{Complex32, Complex64};
use std::ffi::c_int;

/// Calls a kernel for the dtype of what it reads.
macro_rules! factored {
    ($op:expr, $x:expr, $($f:ident)::+($($arg:expr),*)) => {
        match $x.dtype() {
            DType::F32 => $($f)::+::<f32>($($arg),*),
            DType::F64 => $($f)::+::<f64>($($arg),*),
            DType::C64 => $($f)::+::<Complex32>($($arg),*),
            DType::C128 => $($f)::+::<Complex64>($($arg),*),
            other => Err(Error::dtype($op.name(), "takes float32, float64, complex64 and complex128", &[other])),
        }
    };
}

pub(super) use factored;

/// Runs a primitive of the family.
///
/// # Errors
/// For matrices that cannot be factored, and dtypes that LAPACK has not.
pub fn linalg(op: &LinalgOp, inputs: &[&CpuArray], out: &Meta) -> Result<CpuArray> {
    match (op, inputs) {
        (LinalgOp::Inverse, [a]) => factored!(op, a, inverse(a, out)),
        (LinalgOp::SolveMatrices, [a, b]) => factored!(op, a, solve(a, b, out)),
        (LinalgOp::Eigenvalues, [a]) => factored!(op, a, factor::eigenvalues(a, out)),
        (LinalgOp::SingularValues, [a]) => factored!(op, a, factor::singular_values(a, out)),
        (LinalgOp::Exponential, [a]) => factored!(op, a, factor::exponential(a, out)),
        (LinalgOp::SolveTriangular { upper, unit }, [a, b]) => {
            factored!(op, a, factor::triangular(a, b, *upper, *unit, out))
        }
        (LinalgOp::PseudoInverse { atol, rtol, hermitian }, [a]) => {
            factored!(op, a, factor::pseudo_inverse(a, *atol, *rtol, *hermitian, out))
        }
        (LinalgOp::LdlSolve { hermitian }, [a, pivots, b]) => {
            factored!(op, a, factor::ldl_solve(a, pivots, b, *hermitian, out))
        }
        (LinalgOp::Permutation { n }, [pivots]) => permutations(pivots, *n, out),
        (op, x) => Err(Error::runtime(op.name(), format!("does not take {} arrays", x.len()))),
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
pub(super) fn sizes(op: &'static str, a: &CpuArray) -> Result<(usize, usize)> {
    let (n, lead) = (a.shape()[a.shape().len() - 1], &a.shape()[..a.shape().len() - 2]);
    if n >= c_int::MAX as usize {
        return Err(Error::runtime(op, format!("a matrix of {n} rows is too large for LAPACK")));
    }
    Ok((n, lead.iter().product()))
}

fn inverse<T: Lapack>(a: &CpuArray, out: &Meta) -> Result<CpuArray> {
    let (n, _) = sizes("inverse", a)?;
    let a = a.contiguous()?;
    let guard = a.read::<T>();
    let data = a.slice(&guard);
    let mut pivots = scratch(0, n);
    factor::by_columns(out, |out: &mut [T]| {
        for (matrix, rows) in out.chunks_mut((n * n).max(1)).zip(data.chunks((n * n).max(1))) {
            // The transpose's inverse by rows is the inverse by columns.
            factor::transpose(n, n, rows, matrix);
            match T::lu(n, matrix, &mut pivots) {
                0 => T::inverse(n, matrix, &pivots),
                pivot => return Err(Error::singular("inverse", pivot)),
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
    let (mut work, mut pivots) = (scratch(T::zero(), n * n), scratch(0, n));
    factor::by_columns(out, |out: &mut [T]| {
        for i in 0..if n * k > 0 { batch } else { 0 } {
            work.copy_from_slice(&left[i * n * n..(i + 1) * n * n]);
            match T::lu(n, &mut work, &mut pivots) {
                0 => {}
                pivot => return Err(Error::singular("solve", pivot)),
            }
            let columns = &mut out[i * n * k..(i + 1) * n * k];
            factor::transpose(n, k, &right[i * n * k..(i + 1) * n * k], columns);
            T::solve(n, k, &work, &pivots, columns);
        }
        Ok(())
    })
}
