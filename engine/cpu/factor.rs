//! What is made of decompositions of matrices, matrix by matrix: values alone, inverses, solutions, exponentials.
//!
//! Depends on `blas`, and on `simd` for threads: a batch is split over the pool. Inputs are copied first, as LAPACK works in
//! place.

use super::blas::{gemm_here, Decompose, Gemm, Matrix, Packed, Product};
use super::simd::threads;
use super::CpuArray;
use crate::dtype::Element;
use crate::fallible::{scratch, scratch_from, scratch_of, scratch_room};
use crate::shape::Layout;
use crate::{Error, Result};
use lucid_ir::Meta;
use num_traits::{Float, NumCast, Zero};
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

/// Rows and columns of the matrices.
pub(super) fn sizes(op: &'static str, a: &CpuArray) -> Result<(usize, usize)> {
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
fn per_matrix<T: Decompose, O: Element + Zero>(
    op: &'static str,
    a: &CpuArray,
    out: &Meta,
    each: usize,
    f: impl Fn(usize, usize, &[T], &mut [O]) -> c_int + Sync,
) -> Result<CpuArray> {
    let (m, n) = sizes(op, a)?;
    let a = a.contiguous()?;
    let guard = a.read::<T>();
    let data = a.slice(&guard);
    let failed = AtomicBool::new(false);
    let y = CpuArray::build(&out.shape, |out: &mut [O]| {
        if m * n * each == 0 {
            out.fill(O::zero());
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
    ensure_converged(&failed, op)?;
    Ok(y)
}

/// An error where an iteration of LAPACK's did not end in a result.
pub(super) fn ensure_converged(failed: &AtomicBool, op: &'static str) -> Result<()> {
    if failed.load(Ordering::Relaxed) {
        let why =
            "The algorithm failed to converge because the input matrix is ill-conditioned or contained non-finite \
                   values.";
        return Err(Error::lin_alg(op, why));
    }
    Ok(())
}

/// Is the number, or a part of it, NaN?
pub(super) fn is_nan<T: PartialEq + Copy>(x: T) -> bool {
    let same = x;
    x != same
}

/// The columns of `m` rows of `n`.
pub(super) fn transposed<T: Copy>(m: usize, n: usize, a: &[T]) -> Vec<T> {
    scratch_from((0..m * n).map(|i| a[i % m * n + i / m]))
}

/// [`transposed`], into `out`.
pub fn transpose<T: Copy>(m: usize, n: usize, a: &[T], out: &mut [T]) {
    (0..m * n).for_each(|i| out[i] = a[i % m * n + i / m]);
}

/// Matrices of the sizes in `out` of which `fill` writes the columns, one after the other.
pub fn by_columns<T: Element>(out: &Meta, fill: impl FnOnce(&mut [T]) -> Result<()>) -> Result<CpuArray> {
    let (mut shape, last) = (out.shape.clone(), out.shape.len() - 1);
    shape.swap(last - 1, last);
    let mut layout = Layout::contiguous(&shape);
    layout.shape.swap(last - 1, last);
    layout.strides.swap(last - 1, last);
    Ok(CpuArray::build(&shape, fill)?.with_layout(layout))
}

/// A real number, or what stands for it among complex ones.
pub(super) fn number<T: Decompose>(x: impl num_traits::ToPrimitive) -> T {
    <T as NumCast>::from(x).unwrap_or(T::zero())
}

/// The eigenvalues of symmetric or Hermitian matrices.
pub fn eigenvalues<T: Decompose>(a: &CpuArray, out: &Meta) -> Result<CpuArray> {
    let (n, _) = sizes("linalg.eigh", a)?;
    per_matrix::<T, T::Real>("linalg.eigh", a, out, n, |n, _, a, out| {
        if lower_half(n, a).any(|x| !x.is_finite()) {
            return 1;
        }
        T::eigh(n, false, &mut scratch_of(a), out)
    })
}

pub(super) fn lower_half<T: Decompose>(n: usize, a: &[T]) -> impl Iterator<Item = T> + '_ {
    a.iter().enumerate().filter(move |(i, _)| i % n <= i / n).map(|(_, &x)| x)
}

/// Singular values alone.
pub fn singular_values<T: Decompose>(a: &CpuArray, out: &Meta) -> Result<CpuArray> {
    let (m, n) = sizes("linalg.svd", a)?;
    per_matrix::<T, T::Real>("linalg.svd", a, out, m.min(n), |m, n, a, out| {
        if a.iter().any(|&x| is_nan(x)) {
            return 1;
        }
        if a.iter().any(|x| !x.is_finite()) {
            // As LAPACK has it, which tells by NaN that it found none.
            out.fill(T::Real::nan());
            return 0;
        }
        T::svd(b'N', m, n, &mut scratch_of(a), out, &mut [], &mut [])
    })
}

/// `V S⁺ Uᴴ`, without the singular values that are no larger than the tolerance.
pub fn pseudo_inverse<T: Decompose + Gemm>(
    a: &CpuArray,
    atol: f64,
    rtol: f64,
    hermitian: bool,
    out: &Meta,
) -> Result<CpuArray> {
    let (m, n) = sizes("linalg.pinv", a)?;
    let k = m.min(n);
    per_matrix::<T, T>("linalg.pinv", a, out, m * n, |m, n, a, out| {
        if a.iter().any(|x| !x.is_finite()) {
            return 1;
        }
        let (mut u, mut s, mut vt) =
            (scratch(T::zero(), m * k), scratch(T::Real::zero(), k), scratch(T::zero(), k * n));
        let mut a = scratch_of(a);
        if hermitian {
            // The lower half alone is read, and of the diagonal the real part.
            (0..n * n).filter(|i| i % n > i / n).for_each(|i| a[i] = a[i % n * n + i / n].conj());
            (0..n).for_each(|i| a[i * n + i] = number(a[i * n + i].re()));
        }
        let info = T::svd(b'S', m, n, &mut a, &mut s, &mut u, &mut vt);
        let real = |x: f64| <T::Real as NumCast>::from(x).unwrap_or(T::Real::zero());
        let least = real(atol).max(real(rtol) * s[0]);
        for (s, row) in s.iter().zip(vt.chunks_mut(n)) {
            let by = if *s > least { T::one() / number(*s) } else { T::zero() };
            row.iter_mut().for_each(|x| *x = x.conj() * by);
        }
        u.iter_mut().for_each(|x| *x = x.conj());
        let transposed = |data, ld| Matrix { data, ld, trans: true };
        gemm_here(&Product::of([n, m, k], transposed(&vt, n), transposed(&u, k)), out);
        info
    })
}

/// `x` of `A x = B` from what [`ldl`] gave.
pub fn ldl_solve<T: Decompose + Packed>(
    a: &CpuArray,
    pivots: &CpuArray,
    b: &CpuArray,
    hermitian: bool,
    out: &Meta,
) -> Result<CpuArray> {
    let op = "linalg.ldl_solve";
    let ((n, _), (_, k)) = (sizes(op, a)?, sizes(op, b)?);
    let (a, pivots, b) = (a.contiguous()?, pivots.settled()?, b.contiguous()?);
    let (factors, rows, right) = (a.read::<T>(), pivots.read::<i32>(), b.read::<T>());
    let (factors, rows, right) = (a.slice(&factors), pivots.slice(&rows), b.slice(&right));
    by_columns(out, |out: &mut [T]| {
        for (i, columns) in out.chunks_mut((n * k).max(1)).enumerate() {
            let of = i * n * n..(i + 1) * n * n;
            transpose(n, k, &right[i * n * k..(i + 1) * n * k], columns);
            let pivots = &rows[i * n..(i + 1) * n];
            if !T::ldl_solve(n, k, hermitian, &transposed(n, n, &factors[of]), pivots, columns) {
                return Err(Error::runtime(op, "the pivots are not those of a factorization by ldl_factor"));
            }
        }
        Ok(())
    })
}

/// `x` of `A x = B` for triangular `A`.
pub fn triangular<T: Decompose>(a: &CpuArray, b: &CpuArray, upper: bool, unit: bool, out: &Meta) -> Result<CpuArray> {
    let (n, _) = sizes("linalg.solve_triangular", a)?;
    let (_, k) = sizes("linalg.solve_triangular", b)?;
    let (a, b) = (a.contiguous()?, b.contiguous()?);
    let (left, right) = (a.read::<T>(), b.read::<T>());
    let (left, right) = (a.slice(&left), b.slice(&right));
    by_columns(out, |out: &mut [T]| {
        if n * k == 0 {
            return Ok(());
        }
        threads::for_chunks(out, n * k, threads::GRAIN / n, |start, out| {
            for (i, out) in out.chunks_mut(n * k).enumerate() {
                let i = start / (n * k) + i;
                transpose(n, k, &right[i * n * k..(i + 1) * n * k], out);
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
    let terms = if T::DTYPE == crate::DType::F64 { 14u8 } else { 9 };
    per_matrix::<T, T>("linalg.matrix_exp", a, out, n * n, |n, _, a, out| {
        let norm = |scale: T| {
            let sum = |j: usize| (0..n).fold(T::Real::zero(), |t, i| t + (a[i * n + j] * scale).abs());
            (0..n).map(sum).fold(T::Real::zero(), Float::max)
        };
        if a.iter().any(|x| !x.is_finite()) {
            out.fill(number(f64::NAN));
            return 0;
        }
        let half = <T::Real as NumCast>::from(0.5).unwrap_or(T::Real::zero());
        let (mut squarings, mut size, mut scale) = (0, norm(T::one()), T::one());
        while size > half {
            squarings += 1;
            scale *= number(0.5);
            // Finite elements may have a sum that is not.
            size = if size.is_finite() { size * half } else { norm(scale) };
        }
        let small: Vec<T> = scratch_from(a.iter().map(|&x| x * scale));
        let mut product = scratch(T::zero(), n * n);
        let identity = |out: &mut [T]| {
            out.fill(T::zero());
            (0..n).for_each(|i| out[i * n + i] = T::one());
        };
        let product_of = |a: &[T], b: &[T], c: &mut [T]| {
            let matrix = |data| Matrix { data, ld: n, trans: false };
            gemm_here(&Product::of([n, n, n], matrix(a), matrix(b)), c);
        };
        identity(out);
        for k in (1..=terms).rev() {
            product_of(&small, out, &mut product);
            identity(out);
            let by = T::one() / number(k);
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
    let mut order: Vec<i64> = scratch_from(0..n as i64);
    for (i, &p) in pivots.iter().enumerate() {
        let to = usize::try_from(p).ok()?.checked_sub(1).filter(|&to| to < n && i < n)?;
        order.swap(i, to);
    }
    Some(order)
}

/// [`permutation`] of each row of pivots.
pub fn permutations(pivots: &[i64], each: usize, n: usize) -> Result<Vec<i64>> {
    let mut found = scratch_room(pivots.len() / each.max(1) * n);
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
