//! What is made of decompositions of matrices by MLX: values alone, inverses, solutions, exponentials.
//!
//! MLX has these on its CPU only, also where it has a GPU, and fails on numbers that are not finite only when the result is
//! evaluated: those are looked for first where it would, which evaluates. Depends on `convert` and mlx-ffi. All are of float32.

use super::convert::{constant, int, Ints};
use super::decomposition;
use super::kernel_error::Made;
use crate::{DType, Error};
use mlx_ffi::{linalg as mlx, ops, Array, Dtype};

pub(super) fn number(n: f64) -> Made<Array> {
    constant(n, DType::F32)
}

/// Sizes before the matrices, and those of the matrices.
pub(super) fn sizes(a: &Array) -> (Ints, i32, i32) {
    let shape = a.shape();
    let n = shape.len();
    (Ints::from_slice(&shape[..n - 2]), shape[n - 2], shape[n - 1])
}

/// The matrices with rows and columns exchanged.
pub(super) fn transposed(a: &Array) -> Made<Array> {
    let last = int(a.ndim())?;
    Ok(ops::swapaxes(a, last - 2, last - 1)?)
}

/// What every op that could fail on them does about numbers that are not finite.
pub(super) fn refuse_infinite(op: &'static str, a: &Array) -> Made<()> {
    let axes: Vec<i32> = (0..a.ndim() as i32).collect();
    if ops::all_axes(&ops::isfinite(a)?, &axes, false)?.item::<bool>()? {
        return Ok(());
    }
    let why =
        "The algorithm failed to converge because the input matrix is ill-conditioned or contained non-finite values.";
    Err(Error::lin_alg(op, why).into())
}

pub(super) fn eigenvalues(a: &Array) -> Made<Array> {
    refuse_infinite("linalg.eigh", &ops::tril(a, 0)?)?;
    Ok(mlx::eigvalsh(a, "L")?)
}

/// `V S⁺ Uᵀ`, without the singular values that are no larger than the tolerance.
pub(super) fn pseudo_inverse(a: &Array, atol: f64, rtol: f64) -> Made<Array> {
    let [u, s, vt] = decomposition::svd(a, false)?;
    let row = int(sizes(a).0.len())?;
    let s = ops::expand_dims(&s, -1)?;
    let least = ops::multiply(&ops::max_axes(&s, &[row], true)?, &number(rtol)?)?;
    let kept = ops::greater(&s, &ops::maximum(&least, &number(atol)?)?)?;
    let by = ops::where_(&kept, &ops::divide(&number(1.0)?, &s)?, &number(0.0)?)?;
    Ok(ops::matmul(&transposed(&vt)?, &ops::multiply(&transposed(&u)?, &by)?)?)
}

/// The symmetric matrices whose lower halves these are.
pub(super) fn both_halves(a: &Array) -> Made<Array> {
    Ok(ops::add(&ops::tril(a, 0)?, &transposed(&ops::tril(a, -1)?)?)?)
}

pub(super) fn singular_values(a: &Array) -> Made<Array> {
    refuse_infinite("linalg.svd", a)?;
    let mut parts = mlx::svd(a, false)?;
    parts.pop().ok_or_else(|| Error::runtime("linalg.svd", "MLX gave no singular values").into())
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
