//! The primitives of decompositions, each with its parts as results of one run and of one node of the tape.
//!
//! Kernels are in `cpu/decomposition.rs` (LAPACK) and `mlx/decomposition.rs` (MLX's factorisations, which run on its CPU).

use super::gradients::{
    cholesky_gradient, determinant_gradient, eig_gradient, eigh_gradient, lu_gradient, qr_gradient, svd_gradient,
};
use super::{batch, matrices};
use crate::dispatch::{self, Prim};
use crate::ops::macros::define_ops;
use crate::{Error, Result, Tensor};
use lucid_ir::decomposition_ops;
pub use lucid_ir::ops::decomposition::*;
use smallvec::SmallVec;

decomposition_ops!(define_ops);

/// The parts of matrices that have been checked, in the name of the op that was called.
fn parts_of(name: &'static str, op: DecompositionOp, a: &Tensor) -> Result<Vec<Tensor>> {
    let metas = op.results(a.shape(), a.dtype());
    let metas = metas.ok_or_else(|| Error::shape(name, "A must be batches of square matrices", &[a.shape()]))?;
    dispatch::apply_multi(Prim::Decomposition(op), &[a], &metas).map(SmallVec::into_vec)
}

pub(super) fn determinant_parts_body(name: &'static str, a: &Tensor) -> Result<Vec<Tensor>> {
    batch(name, a)?;
    parts_of(name, DecompositionOp::DeterminantParts, a)
}

fn cholesky_parts_body(a: &Tensor) -> Result<Vec<Tensor>> {
    batch("linalg.cholesky", a)?;
    parts_of("linalg.cholesky", DecompositionOp::CholeskyParts, a)
}

fn qr_parts_body(a: &Tensor) -> Result<Vec<Tensor>> {
    matrices("linalg.qr", a)?;
    parts_of("linalg.qr", DecompositionOp::QrParts, a)
}

fn eigh_parts_body(a: &Tensor) -> Result<Vec<Tensor>> {
    batch("linalg.eigh", a)?;
    parts_of("linalg.eigh", DecompositionOp::EighParts, a)
}

fn eig_parts_body(a: &Tensor, vectors: bool) -> Result<Vec<Tensor>> {
    schema::eig_parts.check(a.dtype())?;
    batch("linalg.eig", a)?;
    parts_of("linalg.eig", DecompositionOp::EigParts { vectors }, a)
}

fn svd_parts_body(a: &Tensor, full: bool) -> Result<Vec<Tensor>> {
    matrices("linalg.svd", a)?;
    parts_of("linalg.svd", DecompositionOp::SvdParts { full }, a)
}

fn lu_parts_body(a: &Tensor) -> Result<Vec<Tensor>> {
    matrices("linalg.lu", a)?;
    parts_of("linalg.lu", DecompositionOp::LuParts, a)
}

fn reflector_parts_body(a: &Tensor) -> Result<Vec<Tensor>> {
    matrices("geqrf", a)?;
    parts_of("geqrf", DecompositionOp::ReflectorParts, a)
}

fn ldl_parts_body(a: &Tensor, hermitian: bool) -> Result<Vec<Tensor>> {
    batch("linalg.ldl_factor", a)?;
    parts_of("linalg.ldl_factor", DecompositionOp::LdlParts { hermitian }, a)
}
