//! Decompositions of matrices by MLX; each gives its parts one behind the other, in one row per matrix, and those that are
//! matrices column by column.
//!
//! MLX has these on its CPU only, also where it has a GPU, and fails on numbers that are not finite only when the result is
//! evaluated: those are looked for first where it would, which evaluates. Depends on `convert` and mlx-ffi. All are of float32.

use super::convert::{constant, int, Ints};
use super::kernel_error::Made;
use crate::{DType, Error};
use mlx_ffi::{linalg as mlx, ops, Array, Dtype};

fn number(n: f64) -> Made<Array> {
    constant(n, DType::F32)
}

/// Sizes before the matrices, and those of the matrices.
fn sizes(a: &Array) -> (Ints, i32, i32) {
    let shape = a.shape();
    let n = shape.len();
    (Ints::from_slice(&shape[..n - 2]), shape[n - 2], shape[n - 1])
}

/// The matrices with rows and columns exchanged.
fn turned(a: &Array) -> Made<Array> {
    let last = int(a.ndim())?;
    Ok(ops::swapaxes(a, last - 2, last - 1)?)
}

/// The parts, flat, one behind the other; matrices by columns.
fn packed(lead: &Ints, parts: &[&Array]) -> Made<Array> {
    let flat = |part: &&Array| -> Made<Array> {
        let mut shape = lead.clone();
        shape.push(part.shape()[lead.len()..].iter().product());
        Ok(match part.shape().len() - lead.len() {
            2 => ops::reshape(&turned(part)?, &shape)?,
            _ => ops::reshape(part, &shape)?,
        })
    };
    let flat = parts.iter().map(flat).collect::<Made<Vec<_>>>()?;
    Ok(ops::concatenate_axis(&flat.iter().collect::<Vec<_>>(), int(lead.len())?)?)
}

/// What every op that could fail on them does about numbers that are not finite.
fn refuse_infinite(op: &'static str, a: &Array) -> Made<()> {
    let axes: Vec<i32> = (0..a.ndim() as i32).collect();
    if ops::all_axes(&ops::isfinite(a)?, &axes, false)?.item::<bool>()? {
        return Ok(());
    }
    let why =
        "The algorithm failed to converge because the input matrix is ill-conditioned or contained non-finite values.";
    Err(Error::lin_alg(op, why).into())
}

/// The diagonals, as a last dimension.
fn diagonal(a: &Array) -> Made<Array> {
    let last = int(a.ndim())?;
    Ok(ops::diagonal(a, 0, last - 2, last - 1)?)
}

/// LAPACK stops at the first pivot that is not positive and leaves it in its place.
pub(super) fn cholesky(a: &Array) -> Made<Array> {
    let (lead, n, _) = sizes(a);
    let l = mlx::cholesky(a, false)?;
    let bad = ops::logical_not(&ops::greater(&diagonal(&l)?, &number(0.0)?)?)?;
    let axis = int(lead.len())?;
    let first = ops::add(&ops::argmax_axis(&ops::astype(&bad, Dtype::Int32)?, axis, true)?, &Array::scalar(1u32)?)?;
    let info = ops::where_(&ops::any_axes(&bad, &[axis], true)?, &ops::astype(&first, Dtype::Float32)?, &number(0.0)?)?;
    let _ = n;
    packed(&lead, &[&ops::tril(&l, 0)?, &info])
}

pub(super) fn qr(a: &Array) -> Made<Array> {
    let (q, r) = mlx::qr(a)?;
    packed(&sizes(a).0, &[&q, &r])
}

pub(super) fn eigh(a: &Array) -> Made<Array> {
    refuse_infinite("linalg.eigh", &ops::tril(a, 0)?)?;
    let (values, vectors) = mlx::eigh(a, "L")?;
    packed(&sizes(a).0, &[&values, &vectors])
}

pub(super) fn eigenvalues(a: &Array) -> Made<Array> {
    refuse_infinite("linalg.eigh", &ops::tril(a, 0)?)?;
    Ok(mlx::eigvalsh(a, "L")?)
}

/// Complex eigenvalues of any matrices, then, if asked, their vectors.
pub(super) fn eig(a: &Array, vectors: bool) -> Made<Array> {
    refuse_infinite("linalg.eig", a)?;
    if !vectors {
        return Ok(mlx::eigvals(a)?);
    }
    let (values, vectors) = mlx::eig(a)?;
    packed(&sizes(a).0, &[&values, &vectors])
}

pub(super) fn svd(a: &Array, full: bool) -> Made<Array> {
    refuse_infinite("linalg.svd", a)?;
    let parts = mlx::svd(a, true)?;
    let (lead, m, n) = sizes(a);
    let [u, s, vt] = parts.as_slice() else {
        return Err(Error::runtime("linalg.svd", "MLX gave other parts than three").into());
    };
    if full {
        return packed(&lead, &[u, s, vt]);
    }
    let k = m.min(n);
    let cut = |x: &Array, rows: i32, columns: i32| -> Made<Array> {
        let mut stop = lead.clone();
        stop.extend([rows, columns]);
        Ok(ops::slice(x, &Ints::from_elem(0, stop.len()), &stop, &Ints::from_elem(1, stop.len()))?)
    };
    packed(&lead, &[&cut(u, m, k)?, s, &cut(vt, k, n)?])
}

/// The symmetric matrices whose lower halves these are.
pub(super) fn both_halves(a: &Array) -> Made<Array> {
    Ok(ops::add(&ops::tril(a, 0)?, &turned(&ops::tril(a, -1)?)?)?)
}

/// `V S⁺ Uᵀ`, without the singular values that are no larger than the tolerance.
pub(super) fn pseudo_inverse(a: &Array, atol: f64, rtol: f64) -> Made<Array> {
    let (lead, m, n) = sizes(a);
    let k = m.min(n);
    let parts = svd(a, false)?;
    let part = |from: i32, shape: &[i32]| -> Made<Array> {
        let (mut start, mut stop) = (Ints::from_elem(0, lead.len() + 1), Ints::from_slice(parts.shape()));
        start[lead.len()] = from;
        stop[lead.len()] = from + shape.iter().product::<i32>();
        let flat = ops::slice(&parts, &start, &stop, &Ints::from_elem(1, lead.len() + 1))?;
        let whole: Ints = lead.iter().chain(shape).copied().collect();
        Ok(ops::reshape(&flat, &whole)?)
    };
    let (ut, s, v) = (part(0, &[k, m])?, part(m * k, &[k, 1])?, part(m * k + k, &[n, k])?);
    let row = int(lead.len())?;
    let least = ops::multiply(&ops::max_axes(&s, &[row], true)?, &number(rtol)?)?;
    let kept = ops::greater(&s, &ops::maximum(&least, &number(atol)?)?)?;
    let by = ops::where_(&kept, &ops::divide(&number(1.0)?, &s)?, &number(0.0)?)?;
    Ok(ops::matmul(&v, &ops::multiply(&ut, &by)?)?)
}

pub(super) fn singular_values(a: &Array) -> Made<Array> {
    refuse_infinite("linalg.svd", a)?;
    let mut parts = mlx::svd(a, false)?;
    parts.pop().ok_or_else(|| Error::runtime("linalg.svd", "MLX gave no singular values").into())
}

pub(super) fn lu(a: &Array) -> Made<Array> {
    let (lead, ..) = sizes(a);
    let (lu, pivots) = mlx::lu_factor(a)?;
    let axis = int(lead.len())?;
    let zero = ops::equal(&diagonal(&lu)?, &number(0.0)?)?;
    let one = number(1.0)?;
    let first = ops::argmax_axis(&ops::astype(&zero, Dtype::Int32)?, axis, true)?;
    let first = ops::add(&ops::astype(&first, Dtype::Float32)?, &one)?;
    let info = ops::where_(&ops::any_axes(&zero, &[axis], true)?, &first, &number(0.0)?)?;
    packed(&lead, &[&lu, &ops::add(&ops::astype(&pivots, Dtype::Float32)?, &one)?, &info])
}

/// MLX inverts the triangle, and fails where its diagonal has a zero: the result is NaN there.
pub(super) fn triangular(a: &Array, b: &Array, upper: bool, unit: bool) -> Made<Array> {
    let (.., n) = sizes(a);
    let eye = ops::eye(n, n, 0, Dtype::Float32)?;
    let on = ops::equal(&eye, &number(1.0)?)?;
    let a = if upper { ops::triu(a, 0)? } else { ops::tril(a, 0)? };
    if unit {
        return Ok(mlx::solve_triangular(&ops::where_(&on, &eye, &a)?, b, upper)?);
    }
    let zero = ops::logical_and(&on, &ops::equal(&a, &number(0.0)?)?)?;
    let x = mlx::solve_triangular(&ops::where_(&zero, &eye, &a)?, b, upper)?;
    let last = int(a.ndim())?;
    let broken = ops::any_axes(&zero, &[last - 2, last - 1], true)?;
    Ok(ops::where_(&broken, &number(f64::NAN)?, &x)?)
}

/// As on the CPU: how often to square is read off the largest matrix, which evaluates.
pub(super) fn exponential(a: &Array) -> Made<Array> {
    let (.., n) = sizes(a);
    let last = int(a.ndim())?;
    let finite = ops::isfinite(a)?;
    let a = ops::where_(&finite, a, &number(0.0)?)?;
    // Sums of finite elements may be infinite: they are taken of less.
    let less = 2f64.powi(-32);
    let sums = ops::sum_axes(&ops::multiply(&ops::abs(&a)?, &number(less)?)?, &[last - 2], false)?;
    let axes: Vec<i32> = (0..sums.ndim() as i32).collect();
    let norm = f64::from(ops::max_axes(&sums, &axes, false)?.item::<f32>()?) / less;
    let squarings = if norm > 0.5 { (norm / 0.5).log2().ceil() } else { 0.0 };
    // In two steps, as the whole may be less than the smallest number.
    let part = (squarings / 2.0).floor();
    let small = ops::multiply(&a, &number(0.5f64.powf(part))?)?;
    let small = ops::multiply(&small, &number(0.5f64.powf(squarings - part))?)?;
    let eye = ops::eye(n, n, 0, Dtype::Float32)?;
    let mut y = ops::broadcast_to(&eye, a.shape())?;
    for k in (1..=9).rev() {
        let next = ops::multiply(&ops::matmul(&small, &y)?, &number(1.0 / f64::from(k))?)?;
        y = ops::add(&next, &eye)?;
    }
    for _ in 0..squarings as u32 {
        y = ops::matmul(&y, &y)?;
    }
    let sound = ops::all_axes(&finite, &[last - 2, last - 1], true)?;
    Ok(ops::where_(&sound, &y, &number(f64::NAN)?)?)
}
