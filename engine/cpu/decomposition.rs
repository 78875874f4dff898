//! Decompositions of matrices, matrix by matrix, each part in an array of its own; parts that are matrices are column by column.
//!
//! Depends on `blas`, and on `simd` for threads: a batch is split over the pool. Inputs are copied first, as LAPACK works in
//! place; where a part has room for the copy, it is made there.

use super::blas::{Decompose, Eigen, Lapack, Packed};
use super::factor::{ensure_converged, is_nan, lower_half, sizes, transpose, transposed};
use super::linalg::factored;
use super::simd::threads::{self, Batched};
use super::{factor, CpuArray};
use crate::dtype::Element;
use crate::fallible::{scratch, scratch_of};
use crate::shape::numel;
use crate::{DType, Error, Result};
use lucid_ir::backend::{Array, Results};
use lucid_ir::ops::decomposition::DecompositionOp;
use lucid_ir::Meta;
use num_complex::{Complex, Complex32, Complex64};
use num_traits::{Float, NumCast, Zero};
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs a primitive of the family.
///
/// # Errors
/// For matrices that cannot be factored, and dtypes that LAPACK has not.
pub fn decomposition(op: &DecompositionOp, inputs: &[&CpuArray], out: &[Meta]) -> Result<Results<CpuArray>> {
    let &[a] = inputs else {
        return Err(Error::runtime(op.name(), format!("takes one array, got {}", inputs.len())));
    };
    match op {
        DecompositionOp::DeterminantParts => factored!(op, a, determinant(a, out)),
        DecompositionOp::CholeskyParts => factored!(op, a, cholesky(a, out)),
        DecompositionOp::QrParts => factored!(op, a, qr(a, out)),
        DecompositionOp::EighParts => factored!(op, a, eigh(a, out)),
        DecompositionOp::EigParts { vectors } => factored!(op, a, eig(a, *vectors, out)),
        DecompositionOp::SvdParts { full } => factored!(op, a, svd(a, *full, out)),
        DecompositionOp::LuParts => factored!(op, a, lu(a, out)),
        DecompositionOp::ReflectorParts => factored!(op, a, reflectors(a, out)),
        DecompositionOp::LdlParts { hermitian } => factored!(op, a, ldl(a, *hermitian, out)),
    }
}

/// A part of `a`'s matrices, its elements written by `fill`; nothing where there is no such part.
fn part<T: Element>(
    a: &CpuArray,
    out: Option<&Meta>,
    fill: impl FnOnce(&mut [T]) -> Result<()>,
) -> Result<Option<CpuArray>> {
    match out {
        Some(out) if out.shape.len() == a.shape().len() => factor::by_columns(out, fill).map(Some),
        Some(out) => CpuArray::build(&out.shape, fill).map(Some),
        None => fill(&mut []).map(|()| None),
    }
}

/// Up to three parts, written together; those that `out` does not have are empty.
fn parts<A: Element, B: Element, C: Element>(
    a: &CpuArray,
    out: &[Meta],
    fill: impl FnOnce(&mut [A], &mut [B], &mut [C]) -> Result<()>,
) -> Result<Results<CpuArray>> {
    let (mut second, mut third) = (None, None);
    let first = part(a, out.first(), |x| {
        second = part(a, out.get(1), |y| {
            third = part(a, out.get(2), |z| fill(x, y, z))?;
            Ok(())
        })?;
        Ok(())
    })?;
    Ok(first.into_iter().chain(second).chain(third).collect())
}

/// How many elements of each part a matrix of `a` has.
fn sizes_of(a: &CpuArray, out: &[Meta]) -> [usize; 3] {
    let lead = a.shape().len() - 2;
    [0, 1, 2].map(|i| out.get(i).map_or(0, |out| numel(&out.shape[lead..])))
}

/// Calls `f(rows, columns, matrix, its parts)` for every matrix.
fn per_matrix<T: Decompose, A: Element + Zero, B: Element + Zero, C: Element + Zero>(
    op: &'static str,
    a: &CpuArray,
    out: &[Meta],
    f: impl Fn(usize, usize, &[T], &mut [A], &mut [B], &mut [C]) -> c_int + Sync,
) -> Result<Results<CpuArray>> {
    let (m, n) = sizes(op, a)?;
    let count = numel(&a.shape()[..a.shape().len() - 2]);
    let each = sizes_of(a, out);
    let a = a.contiguous()?;
    let guard = a.read::<T>();
    let data = a.slice(&guard);
    let failed = AtomicBool::new(false);
    let made = parts(&a, out, |x: &mut [A], y: &mut [B], z: &mut [C]| {
        if m * n == 0 {
            x.fill(A::zero());
            y.fill(B::zero());
            z.fill(C::zero());
            return Ok(());
        }
        let all = (Batched(x, each[0]), Batched(y, each[1]), Batched(z, each[2]));
        threads::for_batches(count, (threads::GRAIN / (m * n)).max(1), all, |start, x, y, z| {
            for i in 0..(x.len() / each[0].max(1)) {
                let of = (start + i) * m * n..(start + i + 1) * m * n;
                let x = &mut x[i * each[0]..(i + 1) * each[0]];
                let y = &mut y[i * each[1]..(i + 1) * each[1]];
                let z = &mut z[i * each[2]..(i + 1) * each[2]];
                if f(m, n, &data[of], x, y, z) != 0 {
                    failed.store(true, Ordering::Relaxed);
                }
            }
        });
        Ok(())
    })?;
    ensure_converged(&failed, op)?;
    Ok(made)
}

/// Sign, logarithm of the absolute value, and value, from the LU factors.
fn determinant<T: Lapack>(a: &CpuArray, out: &[Meta]) -> Result<Results<CpuArray>>
where
    T::Real: Element,
{
    let (n, _) = super::linalg::sizes("det", a)?;
    let a = a.contiguous()?;
    let guard = a.read::<T>();
    let data = a.slice(&guard);
    let (mut work, mut pivots) = (scratch(T::zero(), n * n), scratch(0, n));
    parts(&a, out, |signs: &mut [T], logs: &mut [T::Real], values: &mut [T]| {
        for (i, ((to_sign, to_log), to_value)) in signs.iter_mut().zip(logs).zip(values).enumerate() {
            work.copy_from_slice(&data[i * n * n..(i + 1) * n * n]);
            if n > 0 {
                T::lu(n, &mut work, &mut pivots);
            }
            let (mut sign, mut log, mut det) = (T::one(), T::Real::zero(), T::one());
            let number = |x: T::Real| <T as NumCast>::from(x).unwrap_or(T::zero());
            for (j, &pivot) in pivots.iter().enumerate() {
                let u = work[j * n + j];
                let flipped = pivot as usize != j + 1;
                let one = if u.is_nan() {
                    u
                } else if u == T::zero() {
                    T::zero()
                } else if u.im() == T::Real::zero() {
                    number(u.re().signum())
                } else {
                    u / number(u.abs())
                };
                sign *= if flipped { -one } else { one };
                log = log + Float::ln(u.abs());
                det *= if flipped { -u } else { u };
            }
            // The sign of a singular matrix is 0, not -0.
            (*to_sign, *to_log, *to_value) = (sign + T::zero(), log, det + T::zero());
        }
        Ok(())
    })
}

/// `L` with zeros above its diagonal, and LAPACK's word on it: 0, or the order of the minor that is not positive.
fn cholesky<T: Decompose>(a: &CpuArray, out: &[Meta]) -> Result<Results<CpuArray>> {
    per_matrix("linalg.cholesky", a, out, |n, _, a: &[T], l: &mut [T], info: &mut [i32], _: &mut [i32]| {
        let mut rows = scratch_of(a);
        let found = T::cholesky(n, &mut rows);
        (0..n * n).for_each(|i| l[i] = if i / n <= i % n { rows[i % n * n + i / n] } else { T::zero() });
        // OpenBLAS takes NaN for positive; LAPACK names the first one.
        let nan = || (0..n).find(|&i| is_nan(l[i * n + i])).map_or(0, |i| i as i32 + 1);
        info[0] = if found == 0 { nan() } else { found };
        0
    })
}

/// `Q` and `R`.
fn qr<T: Decompose>(a: &CpuArray, out: &[Meta]) -> Result<Results<CpuArray>> {
    per_matrix("linalg.qr", a, out, |m, n, a: &[T], q: &mut [T], r: &mut [T], _: &mut [i32]| {
        if m >= n {
            transpose(m, n, a, q);
            return T::qr(m, n, q, r);
        }
        let mut columns = transposed(m, n, a);
        let info = T::qr(m, n, &mut columns, r);
        q.copy_from_slice(&columns[..m * m]);
        info
    })
}

/// The eigenvalues of symmetric or Hermitian matrices, and the eigenvectors as columns.
fn eigh<T: Decompose>(a: &CpuArray, out: &[Meta]) -> Result<Results<CpuArray>>
where
    T::Real: Element,
{
    per_matrix("linalg.eigh", a, out, |n, _, a: &[T], values: &mut [T::Real], vectors: &mut [T], _: &mut [i32]| {
        if lower_half(n, a).any(|x| !x.is_finite()) {
            return 1;
        }
        vectors.copy_from_slice(a);
        let info = T::eigh(n, true, vectors, values);
        vectors.iter_mut().for_each(|v| *v = v.conj());
        info
    })
}

/// Eigenvalues of any matrices, then, if asked, the eigenvectors as columns.
fn eig<T: Eigen>(a: &CpuArray, vectors: bool, out: &[Meta]) -> Result<Results<CpuArray>>
where
    Complex<T::Real>: Element,
{
    let one = |n: usize, a: &[T], values: &mut [Complex<T::Real>], columns: &mut [Complex<T::Real>]| {
        if a.iter().any(|x| !x.is_finite()) {
            return 1;
        }
        T::eig(n, &mut transposed(n, n, a), values, vectors.then_some(columns))
    };
    per_matrix("linalg.eig", a, out, |n, _, a: &[T], values: &mut [_], columns: &mut [_], _: &mut [i32]| {
        one(n, a, values, columns)
    })
}

/// `U`, the singular values and `Vᴴ`, with `full` all columns of U and V.
fn svd<T: Decompose>(a: &CpuArray, full: bool, out: &[Meta]) -> Result<Results<CpuArray>>
where
    T::Real: Element,
{
    let job = if full { b'A' } else { b'S' };
    per_matrix("linalg.svd", a, out, |m, n, a: &[T], u: &mut [T], s: &mut [T::Real], vt: &mut [T]| {
        if a.iter().any(|x| !x.is_finite()) {
            return 1;
        }
        // The columns are the rows of the transpose, `conj(V) S Uᵀ`; its factors by rows are those of the matrix by columns.
        T::svd(job, n, m, &mut transposed(m, n, a), s, vt, u)
    })
}

/// `L` below and `U` from the diagonal on, in one matrix; the rows exchanged, from 1 on; the first pivot that is zero, or 0.
fn lu<T: Decompose>(a: &CpuArray, out: &[Meta]) -> Result<Results<CpuArray>> {
    per_matrix("linalg.lu", a, out, |m, n, a: &[T], columns: &mut [T], pivots: &mut [i32], info: &mut [i32]| {
        transpose(m, n, a, columns);
        info[0] = T::lu_columns(m, n, columns, pivots);
        0
    })
}

/// `R` and the vectors of the reflections in one matrix, then their factors.
fn reflectors<T: Decompose + Packed>(a: &CpuArray, out: &[Meta]) -> Result<Results<CpuArray>> {
    per_matrix("geqrf", a, out, |m, n, a: &[T], columns: &mut [T], tau: &mut [T], _: &mut [i32]| {
        transpose(m, n, a, columns);
        T::reflections(m, n, columns, tau)
    })
}

/// `L` and `D` in the lower half of one matrix; pivots; the first block of `D` that is zero, or 0.
fn ldl<T: Decompose + Packed>(a: &CpuArray, hermitian: bool, out: &[Meta]) -> Result<Results<CpuArray>> {
    let op = "linalg.ldl_factor";
    per_matrix(op, a, out, |n, _, a: &[T], columns: &mut [T], pivots: &mut [i32], info: &mut [i32]| {
        transpose(n, n, a, columns);
        info[0] = T::ldl(n, hermitian, columns, pivots);
        (0..n * n).filter(|i| i % n < i / n).for_each(|i| columns[i] = T::zero());
        0
    })
}
