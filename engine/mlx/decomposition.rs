//! Decompositions of matrices by MLX, each part in an array of its own.
//!
//! MLX has these on its CPU only, also where it has a GPU, and fails on numbers that are not finite only when the result is
//! evaluated: those are looked for first where it would, which evaluates. Depends on `convert`, `factor` and mlx-ffi, and for what
//! MLX has not on the CPU backend. All are of float32.

use super::array::GpuArray;
use super::convert::{self, constant, int, ints, Ints};
use super::factor::{number, refuse_infinite, sizes};
use super::kernel_error::Made;
use super::linalg::{matrices, read_back, sent};
use super::value::Value;
use crate::shape::numel;
use crate::{DType, Error, Scalar};
use lucid_cpu::CpuBackend;
use lucid_ir::backend::{Backend, Results};
use lucid_ir::ops::decomposition::DecompositionOp;
use lucid_ir::Meta;
use mlx_ffi::{linalg as mlx, ops, Array, Dtype};
use smallvec::{smallvec, SmallVec};

type Parts = SmallVec<[Array; 3]>;

pub(super) fn decomposition(op: &DecompositionOp, x: &[&GpuArray], out: &[Meta]) -> Made<Results<GpuArray>> {
    let &[x] = x else {
        return Err(Error::runtime(op.name(), format!("takes one array, got {}", x.len())).into());
    };
    if x.element() == DType::C64 {
        let why = "MLX factors no complex matrices; move them with .to(\"cpu\")";
        return Err(Error::dtype(op.name(), why, &[DType::C64]).into());
    }
    let parts: Parts = match op {
        DecompositionOp::DeterminantParts => determinant(&matrices(x)?, out)?,
        _ if x.numel() == 0 => {
            let zeros = |out: &Meta| Ok(ops::zeros(&ints(&out.shape)?, convert::dtype(out.dtype)?)?);
            out.iter().map(zeros).collect::<Made<_>>()?
        }
        DecompositionOp::CholeskyParts => cholesky(&matrices(x)?)?,
        DecompositionOp::QrParts => qr(&matrices(x)?)?,
        DecompositionOp::EighParts => eigh(&matrices(x)?)?,
        DecompositionOp::EigParts { vectors } => eig(&matrices(x)?, *vectors)?,
        DecompositionOp::SvdParts { full } => Parts::from(svd(&matrices(x)?, *full)?),
        DecompositionOp::LuParts => lu(&matrices(x)?)?,
        DecompositionOp::ReflectorParts | DecompositionOp::LdlParts { .. } => return on_the_host(op, x, out),
    };
    if parts.len() != out.len() {
        let why = format!("MLX gave {} parts, not {}", parts.len(), out.len());
        return Err(Error::runtime(op.name(), why).into());
    }
    parts.into_iter().zip(out).map(|(part, out)| GpuArray::new(Value::plain(part), &out.shape, out.dtype)).collect()
}

/// What MLX has not is computed where MLX's own factorisations are, on the host.
fn on_the_host(op: &DecompositionOp, x: &GpuArray, out: &[Meta]) -> Made<Results<GpuArray>> {
    let made = CpuBackend::decomposition(op, &[&read_back(x)?], out)?;
    made.iter().zip(out).map(|(part, out)| sent(op.name(), part, out)).collect()
}

/// The diagonals, as a last dimension.
fn diagonal(a: &Array) -> Made<Array> {
    let last = int(a.ndim())?;
    Ok(ops::diagonal(a, 0, last - 2, last - 1)?)
}

/// Where the first of the marked ones is, from 1 on, or 0: int32, without the last dimension.
fn first_of(marked: &Array) -> Made<Array> {
    let axis = int(marked.ndim())? - 1;
    let marked = ops::astype(marked, Dtype::Int32)?;
    let first = ops::add(&ops::astype(&ops::argmax_axis(&marked, axis, false)?, Dtype::Int32)?, &Array::scalar(1i32)?)?;
    Ok(ops::multiply(&first, &ops::max_axes(&marked, &[axis], false)?)?)
}

fn determinant(a: &Array, out: &[Meta]) -> Made<Parts> {
    let full = |n: Scalar| -> Made<Array> {
        let Meta { shape, dtype } = &out[0];
        Ok(ops::full(&ints(shape)?, &constant(n, *dtype)?, convert::dtype(*dtype)?)?)
    };
    let (sign, log) = match a.shape() {
        [.., 0] => (full(Scalar::ONE)?, full(Scalar::ZERO)?),
        _ if numel(&out[0].shape) == 0 => (full(Scalar::ONE)?, full(Scalar::ZERO)?),
        _ => mlx::slogdet(a)?,
    };
    let det = ops::multiply(&sign, &ops::exp(&log)?)?;
    Ok(smallvec![sign, log, det])
}

/// LAPACK stops at the first pivot that is not positive and leaves it in its place.
fn cholesky(a: &Array) -> Made<Parts> {
    let l = mlx::cholesky(a, false)?;
    let bad = ops::logical_not(&ops::greater(&diagonal(&l)?, &number(0.0)?)?)?;
    Ok(smallvec![ops::tril(&l, 0)?, first_of(&bad)?])
}

fn qr(a: &Array) -> Made<Parts> {
    let (q, r) = mlx::qr(a)?;
    Ok(smallvec![q, r])
}

fn eigh(a: &Array) -> Made<Parts> {
    refuse_infinite("linalg.eigh", &ops::tril(a, 0)?)?;
    let (values, vectors) = mlx::eigh(a, "L")?;
    Ok(smallvec![values, vectors])
}

/// Complex eigenvalues of any matrices, then, if asked, their vectors.
fn eig(a: &Array, vectors: bool) -> Made<Parts> {
    refuse_infinite("linalg.eig", a)?;
    if !vectors {
        return Ok(smallvec![mlx::eigvals(a)?]);
    }
    let (values, vectors) = mlx::eig(a)?;
    Ok(smallvec![values, vectors])
}

/// `U`, the singular values and `Vᵀ`, with `full` all columns of U and V.
pub(super) fn svd(a: &Array, full: bool) -> Made<[Array; 3]> {
    refuse_infinite("linalg.svd", a)?;
    let parts = <[Array; 3]>::try_from(mlx::svd(a, true)?);
    let [u, s, vt] = parts.map_err(|_| Error::runtime("linalg.svd", "MLX gave other parts than three"))?;
    if full {
        return Ok([u, s, vt]);
    }
    let (lead, m, n) = sizes(a);
    let k = m.min(n);
    let cut = |x: &Array, rows: i32, columns: i32| -> Made<Array> {
        let mut stop = lead.clone();
        stop.extend([rows, columns]);
        Ok(ops::slice(x, &Ints::from_elem(0, stop.len()), &stop, &Ints::from_elem(1, stop.len()))?)
    };
    Ok([cut(&u, m, k)?, s, cut(&vt, k, n)?])
}

fn lu(a: &Array) -> Made<Parts> {
    let (lu, pivots) = mlx::lu_factor(a)?;
    let zero = ops::equal(&diagonal(&lu)?, &number(0.0)?)?;
    let pivots = ops::add(&ops::astype(&pivots, Dtype::Int32)?, &Array::scalar(1i32)?)?;
    Ok(smallvec![lu, pivots, first_of(&zero)?])
}
