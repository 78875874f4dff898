//! Inverses and linear systems, by MLX's factorisations.
//!
//! MLX has these on its CPU only, also where it has a GPU: it moves the matrices itself. Whether a matrix is singular is
//! read back before it is inverted, as MLX would only fail when the result is evaluated.

use super::array::GpuArray;
use super::convert::{self, ints};
use super::factor;
use super::kernel_error::Made;
use super::value::Value;
use crate::shape::numel;
use crate::{DType, Error};
use lucid_cpu::{CpuArray, CpuBackend};
use lucid_ir::backend::Backend;
use lucid_ir::ops::linalg::LinalgOp;
use lucid_ir::Meta;
use mlx_ffi::{linalg as mlx, ops, Array};

pub(super) fn linalg(op: &LinalgOp, x: &[&GpuArray], out: &Meta) -> Made<GpuArray> {
    if x.iter().any(|x| x.element() == DType::C64) {
        let why = "MLX factors no complex matrices; move them with .to(\"cpu\")";
        return Err(Error::dtype(op.name(), why, &[DType::C64]).into());
    }
    let array = match op {
        _ if numel(&out.shape) == 0 => ops::zeros(&ints(&out.shape)?, convert::dtype(out.dtype)?)?,
        LinalgOp::Inverse => {
            let a = matrices(x[0])?;
            refuse_singular("inverse", &a)?;
            mlx::inv(&a)?
        }
        LinalgOp::SolveMatrices => {
            let (a, b) = (matrices(x[0])?, matrices(x[1])?);
            refuse_singular("solve", &a)?;
            mlx::solve(&a, &b)?
        }
        _ if x[0].numel() == 0 => ops::zeros(&ints(&out.shape)?, convert::dtype(out.dtype)?)?,
        LinalgOp::Eigenvalues => factor::eigenvalues(&matrices(x[0])?)?,
        LinalgOp::SingularValues => factor::singular_values(&matrices(x[0])?)?,
        LinalgOp::Exponential => factor::exponential(&matrices(x[0])?)?,
        LinalgOp::SolveTriangular { upper, unit } => {
            factor::triangular(&matrices(x[0])?, &matrices(x[1])?, *upper, *unit)?
        }
        LinalgOp::PseudoInverse { atol, rtol, hermitian } => {
            let a = matrices(x[0])?;
            factor::pseudo_inverse(&if *hermitian { factor::both_halves(&a)? } else { a }, *atol, *rtol)?
        }
        LinalgOp::Permutation { .. } | LinalgOp::LdlSolve { .. } => return on_the_host(op, x, out),
    };
    GpuArray::new(Value::plain(array), &out.shape, out.dtype)
}

/// What MLX has not is computed where MLX's own factorisations are, on the host.
fn on_the_host(op: &LinalgOp, x: &[&GpuArray], out: &Meta) -> Made<GpuArray> {
    host_computed(op.name(), x, out, |x| CpuBackend::linalg(op, x, out))
}

/// What a kernel of the CPU backend makes of what the arrays hold, which is read back.
pub(super) fn host_computed(
    name: &'static str,
    x: &[&GpuArray],
    out: &Meta,
    kernel: impl FnOnce(&[&CpuArray]) -> crate::Result<CpuArray>,
) -> Made<GpuArray> {
    let host = x.iter().map(|x| read_back(x)).collect::<Made<Vec<_>>>()?;
    sent(name, &kernel(&host.iter().collect::<Vec<_>>())?, out)
}

/// The same elements on the host.
pub(super) fn read_back(x: &GpuArray) -> Made<CpuArray> {
    let bytes = super::create::with_bytes(x, <[u8]>::to_vec)?;
    Ok(lucid_cpu::copy::from_bytes(&bytes, &Meta::new(x.shape(), x.element()))?)
}

/// What the host has computed.
pub(super) fn sent(name: &'static str, y: &CpuArray, out: &Meta) -> Made<GpuArray> {
    let mut made = None;
    lucid_cpu::copy::with_bytes(y, &mut |bytes| made = Some(super::create::from_bytes(bytes, out)))?;
    made.unwrap_or_else(|| Err(Error::runtime(name, "gave nothing").into()))
}

pub(super) fn matrices(x: &GpuArray) -> Made<Array> {
    Ok(Array::clone(&*x.value()?.logical()?))
}

fn refuse_singular(op: &'static str, a: &Array) -> Made<()> {
    let (sign, _) = mlx::slogdet(a)?;
    let zero = ops::equal(&sign, &ops::zeros(&[], sign.dtype())?)?;
    let axes: Vec<i32> = (0..sign.shape().len() as i32).collect();
    let zero = if axes.is_empty() { zero } else { ops::any_axes(&zero, &axes, false)? };
    if zero.item::<bool>()? {
        let why = "the inversion could not be completed because an input matrix is singular.";
        return Err(Error::lin_alg(op, why).into());
    }
    Ok(())
}
