//! Linear algebra. Depends on the wrapping macro. The factorisations exist on MLX's CPU only and run on a stream of it,
//! where MLX has a GPU too; products and norms run on the device. MLX reports a matrix that cannot be factored when the
//! result is evaluated, if at all: check for what you need to know.

use crate::call::{c_text, wrap};
use crate::error::Result;
use crate::{counters, eval, stream, sys, Array};

wrap! {
    cholesky = mlx_linalg_cholesky(a: arr, upper: flag) on cpu;
    cholesky_inv = mlx_linalg_cholesky_inv(a: arr, upper: flag) on cpu;
    cross = mlx_linalg_cross(a: arr, b: arr, axis: int);
    det = mlx_linalg_det(a: arr) on cpu;
    inv = mlx_linalg_inv(a: arr) on cpu;
    pinv = mlx_linalg_pinv(a: arr) on cpu;
    tri_inv = mlx_linalg_tri_inv(a: arr, upper: flag) on cpu;
    solve = mlx_linalg_solve(a: arr, b: arr) on cpu;
    solve_triangular = mlx_linalg_solve_triangular(a: arr, b: arr, upper: flag) on cpu;
    eigvals = mlx_linalg_eigvals(a: arr) on cpu;
    eigvalsh = mlx_linalg_eigvalsh(a: arr, uplo: text) on cpu;
    /// Eigenvalues, then eigenvectors in columns.
    pair eig = mlx_linalg_eig(a: arr) on cpu;
    /// Eigenvalues in ascending order, then eigenvectors in columns.
    pair eigh = mlx_linalg_eigh(a: arr, uplo: text) on cpu;
    /// Q, then R.
    pair qr = mlx_linalg_qr(a: arr) on cpu;
    /// Sign, then logarithm of the absolute determinant.
    pair slogdet = mlx_linalg_slogdet(a: arr) on cpu;
    /// L and U in one matrix, then the pivots.
    pair lu_factor = mlx_linalg_lu_factor(a: arr) on cpu;
    /// Permutation, L, U.
    vec lu = mlx_linalg_lu(a: arr) on cpu;
    /// U, singular values and the adjoint of V, or the singular values alone.
    vec svd = mlx_linalg_svd(a: arr, compute_uv: flag) on cpu;
}

/// The axes as mlx-c wants them: a null pointer for "all".
fn optional_axes(axes: Option<&[i32]>) -> (*const i32, usize) {
    axes.map_or((std::ptr::null(), 0), |a| (a.as_ptr(), a.len()))
}

/// MLX's `norm` of numeric order over the axes (one: vectors, two: matrices, none: the flattened array).
pub fn norm(a: &Array, ord: f64, axes: Option<&[i32]>, keepdims: bool) -> Result<Array> {
    let (data, len) = optional_axes(axes);
    let stream = stream::stream()?;
    counters::count_op();
    // SAFETY: valid handles, a live slice or null, a null out-parameter for MLX to fill.
    Array::build(|out| unsafe { sys::mlx_linalg_norm(out, a.raw(), ord, data, len, keepdims, stream) })
}

/// MLX's `norm` of order `"fro"` or `"nuc"` over two axes.
pub fn norm_matrix(a: &Array, ord: &str, axes: Option<&[i32]>, keepdims: bool) -> Result<Array> {
    let (data, len) = optional_axes(axes);
    let ord = c_text(ord)?;
    // The nuclear norm is a sum of singular values, which MLX finds on its CPU.
    let stream = if ord.as_bytes() == b"nuc" { stream::cpu_stream()? } else { stream::stream()? };
    eval::expect_siblings();
    counters::count_op();
    // SAFETY: valid handles, a live slice or null, a null out-parameter for MLX to fill.
    Array::build(|out| unsafe { sys::mlx_linalg_norm_matrix(out, a.raw(), ord.as_ptr(), data, len, keepdims, stream) })
}

/// MLX's `norm` of order 2 (Frobenius for matrices) over the axes.
pub fn norm_l2(a: &Array, axes: Option<&[i32]>, keepdims: bool) -> Result<Array> {
    let (data, len) = optional_axes(axes);
    let stream = stream::stream()?;
    counters::count_op();
    // SAFETY: valid handles, a live slice or null, a null out-parameter for MLX to fill.
    Array::build(|out| unsafe { sys::mlx_linalg_norm_l2(out, a.raw(), data, len, keepdims, stream) })
}
