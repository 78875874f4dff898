//! Decompositions of matrices, matrix by matrix; each gives its parts one behind the other, in one row per matrix.
//!
//! Depends on `blas`, and on `simd` for threads: a batch is split over the pool. Inputs are copied first, as LAPACK works in
//! place.

use super::blas::{gemm_here, Decompose, Gemm, Matrix};
use super::simd::threads;
use super::CpuArray;
use crate::dispatch::Meta;
use crate::{Error, Result};
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

/// Rows and columns of the matrices.
fn sizes(op: &'static str, a: &CpuArray) -> Result<(usize, usize)> {
    let (m, n) = match a.shape() {
        [.., m, n] => (*m, *n),
        _ => (0, 0),
    };
    // Workspaces are a few times as long as a side.
    if m.max(n) >= c_int::MAX as usize / 128 {
        return Err(Error::runtime(op, format!("a matrix of {m} by {n} is too large for LAPACK")));
    }
    Ok((m, n))
}

/// Calls `f(matrix, parts)` for every matrix and its row of `each` results.
fn per_matrix<T: Decompose>(
    op: &'static str,
    a: &CpuArray,
    out: &Meta,
    each: usize,
    f: impl Fn(usize, usize, &[T], &mut [T]) -> c_int + Sync,
) -> Result<CpuArray> {
    let (m, n) = sizes(op, a)?;
    let a = a.contiguous()?;
    let guard = a.read::<T>();
    let data = a.slice(&guard);
    let failed = AtomicBool::new(false);
    let y = CpuArray::build(&out.shape, |out: &mut [T]| {
        if m * n * each == 0 {
            out.fill(T::zero());
            return Ok(());
        }
        let cost = (m.min(n) * m.max(n) / each.max(1)).max(1);
        threads::for_chunks(out, each, threads::GRAIN / cost, |start, out| {
            for (i, out) in out.chunks_mut(each).enumerate() {
                let i = start / each + i;
                if f(m, n, &data[i * m * n..(i + 1) * m * n], out) != 0 {
                    failed.store(true, Ordering::Relaxed);
                }
            }
        });
        Ok(())
    })?;
    if failed.load(Ordering::Relaxed) {
        let why =
            "The algorithm failed to converge because the input matrix is ill-conditioned or contained non-finite \
                   values.";
        return Err(Error::runtime(op, why));
    }
    Ok(y)
}

/// `L` with zeros above its diagonal, and LAPACK's word on it: 0, or the order of the minor that is not positive.
pub fn cholesky<T: Decompose>(a: &CpuArray, out: &Meta) -> Result<CpuArray> {
    let (n, _) = sizes("linalg.cholesky", a)?;
    per_matrix::<T>("linalg.cholesky", a, out, n * n + 1, |n, _, a, out| {
        out[..n * n].copy_from_slice(a);
        let info = T::cholesky(n, &mut out[..n * n]);
        for i in 0..n {
            out[i * n + i + 1..(i + 1) * n].fill(T::zero());
        }
        out[n * n] = T::from(info).unwrap_or(T::zero());
        0
    })
}

/// `Q`, then `R`.
pub fn qr<T: Decompose>(a: &CpuArray, out: &Meta) -> Result<CpuArray> {
    let (m, n) = sizes("linalg.qr", a)?;
    let k = m.min(n);
    per_matrix::<T>("linalg.qr", a, out, m * k + k * n, |m, n, a, out| {
        let mut columns = transposed(m, n, a);
        let (q, r) = out.split_at_mut(m * k);
        let info = T::qr(m, n, &mut columns, r);
        (0..m * k).for_each(|i| q[i] = columns[i % k * m + i / k]);
        info
    })
}

fn transposed<T: Decompose>(m: usize, n: usize, a: &[T]) -> Vec<T> {
    (0..m * n).map(|i| a[i % m * n + i / m]).collect()
}

/// Eigenvalues, then, if asked, the eigenvectors as columns.
pub fn eigh<T: Decompose>(a: &CpuArray, vectors: bool, out: &Meta) -> Result<CpuArray> {
    let (n, _) = sizes("linalg.eigh", a)?;
    let each = if vectors { n + n * n } else { n };
    per_matrix::<T>("linalg.eigh", a, out, each, |n, _, a, out| {
        if lower_half(n, a).any(|x| !x.is_finite()) {
            return 1;
        }
        let mut rows = a.to_vec();
        let info = T::eigh(n, vectors, &mut rows, &mut out[..n]);
        if vectors {
            (0..n * n).for_each(|i| out[n + i] = rows[i % n * n + i / n]);
        }
        info
    })
}

fn lower_half<T: Decompose>(n: usize, a: &[T]) -> impl Iterator<Item = T> + '_ {
    a.iter().enumerate().filter(move |(i, _)| i % n <= i / n).map(|(_, &x)| x)
}

/// Singular values alone, or `U`, the singular values and `Vᵀ`, with `full` all columns of U and V.
pub fn svd<T: Decompose>(a: &CpuArray, vectors: Option<bool>, out: &Meta) -> Result<CpuArray> {
    let (m, n) = sizes("linalg.svd", a)?;
    let k = m.min(n);
    let (job, ku, kv) = match vectors {
        Some(true) => (b'A', m, n),
        Some(false) => (b'S', k, k),
        None => (b'N', 0, 0),
    };
    per_matrix::<T>("linalg.svd", a, out, m * ku + k + kv * n, |m, n, a, out| {
        if a.iter().any(|x| !x.is_finite()) {
            return 1;
        }
        let (u, rest) = out.split_at_mut(m * ku);
        let (s, vt) = rest.split_at_mut(k);
        T::svd(job, m, n, &mut a.to_vec(), s, u, vt)
    })
}

/// `V S⁺ Uᵀ`, without the singular values that are no larger than the tolerance.
pub fn pseudo_inverse<T: Decompose + Gemm>(a: &CpuArray, atol: f64, rtol: f64, out: &Meta) -> Result<CpuArray> {
    let (m, n) = sizes("linalg.pinv", a)?;
    let k = m.min(n);
    per_matrix::<T>("linalg.pinv", a, out, m * n, |m, n, a, out| {
        if a.iter().any(|x| !x.is_finite()) {
            return 1;
        }
        let (mut u, mut s, mut vt) = (vec![T::zero(); m * k], vec![T::zero(); k], vec![T::zero(); k * n]);
        let info = T::svd(b'S', m, n, &mut a.to_vec(), &mut s, &mut u, &mut vt);
        let number = |x: f64| T::from(x).unwrap_or(T::zero());
        let least = number(atol).max(number(rtol) * s[0]);
        for (s, row) in s.iter().zip(vt.chunks_mut(n)) {
            let by = if *s > least { T::one() / *s } else { T::zero() };
            row.iter_mut().for_each(|x| *x *= by);
        }
        let turned = |data, ld| Matrix { data, ld, trans: true };
        gemm_here(n, m, k, turned(&vt, n), turned(&u, k), out);
        info
    })
}

/// `L` below and `U` from the diagonal on, in one matrix; the rows exchanged, from 1 on; the first pivot that is zero, or 0.
pub fn lu<T: Decompose>(a: &CpuArray, out: &Meta) -> Result<CpuArray> {
    let (m, n) = sizes("linalg.lu", a)?;
    let k = m.min(n);
    per_matrix::<T>("linalg.lu", a, out, m * n + k + 1, |m, n, a, out| {
        let (mut columns, mut pivots) = (transposed(m, n, a), vec![0; k]);
        let info = T::lu_columns(m, n, &mut columns, &mut pivots);
        (0..m * n).for_each(|i| out[i] = columns[i % n * m + i / n]);
        for (o, p) in out[m * n..].iter_mut().zip(pivots.iter().chain([&info])) {
            *o = T::from(*p).unwrap_or(T::zero());
        }
        0
    })
}

/// `x` of `A x = B` for triangular `A`.
pub fn triangular<T: Decompose>(a: &CpuArray, b: &CpuArray, upper: bool, unit: bool, out: &Meta) -> Result<CpuArray> {
    let (n, _) = sizes("linalg.solve_triangular", a)?;
    let (_, k) = sizes("linalg.solve_triangular", b)?;
    let (a, b) = (a.contiguous()?, b.contiguous()?);
    let (left, right) = (a.read::<T>(), b.read::<T>());
    let (left, right) = (a.slice(&left), b.slice(&right));
    CpuArray::build(&out.shape, |out: &mut [T]| {
        out.copy_from_slice(right);
        if n * k == 0 {
            return Ok(());
        }
        threads::for_chunks(out, n * k, threads::GRAIN / n, |start, out| {
            for (i, out) in out.chunks_mut(n * k).enumerate() {
                let i = start / (n * k) + i;
                T::triangular(n, k, upper, unit, &left[i * n * n..(i + 1) * n * n], out);
            }
        });
        Ok(())
    })
}

/// The exponential: of the matrix over a power of 2, by as many terms of the series as the precision can see, then squared
/// back.
pub fn exponential<T: Decompose + Gemm>(a: &CpuArray, out: &Meta) -> Result<CpuArray> {
    let (n, _) = sizes("linalg.matrix_exp", a)?;
    // 0.5^14 / 14! is below float64's rounding, 0.5^9 / 9! below float32's.
    let terms = if T::DTYPE == crate::DType::F64 { 14 } else { 9 };
    per_matrix::<T>("linalg.matrix_exp", a, out, n * n, |n, _, a, out| {
        let number = |x: f64| T::from(x).unwrap_or(T::zero());
        let norm = (0..n).map(|j| (0..n).fold(T::zero(), |t, i| t + a[i * n + j].abs())).fold(T::zero(), T::max);
        if a.iter().any(|x| !x.is_finite()) {
            out.fill(T::nan());
            return 0;
        }
        let (mut squarings, mut scale, half) = (0, T::one(), number(0.5));
        while norm * scale > half {
            squarings += 1;
            scale *= half;
        }
        let small: Vec<T> = a.iter().map(|&x| x * scale).collect();
        let mut product = vec![T::zero(); n * n];
        let identity = |out: &mut [T]| {
            out.fill(T::zero());
            (0..n).for_each(|i| out[i * n + i] = T::one());
        };
        let product_of = |a: &[T], b: &[T], c: &mut [T]| {
            let matrix = |data| Matrix { data, ld: n, trans: false };
            gemm_here(n, n, n, matrix(a), matrix(b), c);
        };
        identity(out);
        for k in (1..=terms).rev() {
            product_of(&small, out, &mut product);
            identity(out);
            let by = number(1.0 / f64::from(k));
            out.iter_mut().zip(&product).for_each(|(o, &p)| *o = *o + p * by);
        }
        for _ in 0..squarings {
            product_of(out, out, &mut product);
            out.copy_from_slice(&product);
        }
        0
    })
}

/// The order of rows that exchanging each with the one its pivot names, from 1 on, leads to.
pub fn permutation(pivots: &[i64], n: usize) -> Option<Vec<i64>> {
    let mut order: Vec<i64> = (0..n as i64).collect();
    for (i, &p) in pivots.iter().enumerate() {
        let to = usize::try_from(p).ok()?.checked_sub(1).filter(|&to| to < n && i < n)?;
        order.swap(i, to);
    }
    Some(order)
}

/// [`permutation`] of each row of pivots.
pub fn permutations(pivots: &[i64], each: usize, n: usize) -> Result<Vec<i64>> {
    let mut found = Vec::with_capacity(pivots.len() / each.max(1) * n);
    for pivots in pivots.chunks(each.max(1)) {
        match permutation(pivots, n) {
            Some(order) => found.extend(order),
            None => {
                let why = format!("Pivots given to lu_solve must all be greater or equal to 1, and at most {n}.");
                return Err(Error::runtime("linalg.lu_solve", why));
            }
        }
    }
    Ok(found)
}
