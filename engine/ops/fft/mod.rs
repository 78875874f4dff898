//! Fourier transforms: the primitives' bodies and gradients.
//!
//! All three primitives are linear, so that they save nothing, and each is made the gradient of another by the
//! formula of the adjoint. `transforms` has the functions of `lucid.fft`, `stft` those of short times. Kernels are in
//! `cpu/fft.rs` (`lucid-fft`) and `mlx/fft.rs`.

pub mod stft;
pub mod transforms;

use super::macros::define_ops;
use crate::autograd::Ctx;
use crate::dispatch::{self, Meta, Prim};
use crate::shape::{self, Axes};
use crate::{Error, Result, Scalar, Tensor};
use lucid_ir::fft_ops;
pub use lucid_ir::ops::fft::*;

fft_ops!(define_ops);

/// What a transform is multiplied by.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Normalization {
    Nothing,
    RootN,
    N,
}

impl Normalization {
    /// By PyTorch's number.
    fn of(op: &'static str, number: i64) -> Result<Normalization> {
        match number {
            0 => Ok(Normalization::Nothing),
            1 => Ok(Normalization::RootN),
            2 => Ok(Normalization::N),
            other => Err(Error::runtime(op, format!("Unsupported normalization type {other}; it is 0, 1 or 2"))),
        }
    }

    /// The factor, where elements of these sizes are transformed together.
    fn scale(self, sizes: impl Iterator<Item = usize>) -> f64 {
        let n: f64 = sizes.map(|n| n as f64).product();
        match self {
            Normalization::Nothing => 1.0,
            Normalization::RootN => 1.0 / n.sqrt(),
            Normalization::N => 1.0 / n,
        }
    }
}

fn c2c_body(x: &Tensor, dim: &[isize], normalization: i64, forward: bool) -> Result<Tensor> {
    let op = "_fft_c2c";
    schema::_fft_c2c.check(x.dtype())?;
    c2c(x, axes_of(op, dim, x)?, Normalization::of(op, normalization)?, forward)
}

fn r2c_body(x: &Tensor, dim: &[isize], normalization: i64, onesided: bool) -> Result<Tensor> {
    let op = "_fft_r2c";
    schema::_fft_r2c.check(x.dtype())?;
    let axes = axes_of(op, dim, x)?;
    if axes.is_empty() {
        return Err(Error::runtime(op, "must transform at least one axis"));
    }
    r2c(x, axes, Normalization::of(op, normalization)?, onesided)
}

fn c2r_body(x: &Tensor, dim: &[isize], normalization: i64, last_dim_size: i64) -> Result<Tensor> {
    let op = "_fft_c2r";
    schema::_fft_c2r.check(x.dtype())?;
    let axes = axes_of(op, dim, x)?;
    let Some(&last) = axes.last() else { return Err(Error::runtime(op, "must transform at least one axis")) };
    let n = points(op, last_dim_size)?;
    if x.shape()[last] != n / 2 + 1 {
        let why = format!("expected {} elements along dimension {last} for last_dim_size={n}", n / 2 + 1);
        return Err(Error::shape(op, why, &[x.shape()]));
    }
    c2r(x, axes, Normalization::of(op, normalization)?, n)
}

/// The dimensions that are named, none of them twice, each with elements.
fn axes_of(op: &'static str, dim: &[isize], x: &Tensor) -> Result<Axes> {
    let axes = shape::wrap_own_dims(op, dim, x.ndim())?;
    axes.iter().try_for_each(|&axis| points(op, x.shape()[axis] as i64).map(drop))?;
    Ok(axes)
}

/// A number of elements to transform.
fn points(op: &'static str, n: i64) -> Result<usize> {
    usize::try_from(n).ok().filter(|&n| n > 0).ok_or_else(|| {
        Error::runtime(op, format!("Invalid number of data points ({n}) specified; a transform is of 1 or more"))
    })
}

fn run(op: FftOp, x: &Tensor) -> Result<Tensor> {
    let dtype = match op {
        FftOp::ComplexToComplex { .. } => x.dtype(),
        FftOp::RealToComplex { .. } => x.dtype().to_complex(),
        FftOp::ComplexToReal { .. } => x.dtype().to_real(),
    };
    let meta = Meta { shape: op.shape(x.shape()), dtype };
    dispatch::apply1(Prim::Fft(op), &[x], meta)
}

fn c2c(x: &Tensor, axes: Axes, normalization: Normalization, forward: bool) -> Result<Tensor> {
    if axes.is_empty() {
        return x.copy();
    }
    let scale = normalization.scale(axes.iter().map(|&axis| x.shape()[axis]));
    run(FftOp::ComplexToComplex { axes, inverse: !forward, scale }, x)
}

fn r2c(x: &Tensor, axes: Axes, normalization: Normalization, onesided: bool) -> Result<Tensor> {
    let scale = normalization.scale(axes.iter().map(|&axis| x.shape()[axis]));
    run(FftOp::RealToComplex { axes, onesided, scale }, x)
}

/// Along all dimensions but the last the numbers are complex on both sides.
fn c2r(x: &Tensor, axes: Axes, normalization: Normalization, n: usize) -> Result<Tensor> {
    let Some((_, others)) = axes.split_last() else { return x.copy() };
    let scale = normalization.scale(others.iter().map(|&axis| x.shape()[axis]).chain([n]));
    run(FftOp::ComplexToReal { axes, n, scale }, x)
}

/// The adjoint: the transform with the other sign, times the same factor.
fn c2c_gradient(g: &Tensor, axes: &Axes, inverse: bool, scale: f64) -> Result<Tensor> {
    run(FftOp::ComplexToComplex { axes: axes.clone(), inverse: !inverse, scale }, g)
}

/// The real part of the adjoint. Of halves, the transform to real numbers adds each element to its conjugate, so that
/// those which have one there are taken by half.
fn r2c_gradient(c: &Ctx<'_>, g: &Tensor, axes: &Axes, onesided: bool, scale: f64) -> Result<Tensor> {
    if !onesided {
        return super::complex::real(&c2c_gradient(g, axes, false, scale)?);
    }
    let Some(&axis) = axes.last() else { return g.copy() };
    let n = c.shape(0)[axis];
    run(FftOp::ComplexToReal { axes: axes.clone(), n, scale }, &weighted(g, axis, n, 0.5)?)
}

/// The adjoint: elements that stand for their conjugates too count twice.
fn c2r_gradient(g: &Tensor, axes: &Axes, n: usize, scale: f64) -> Result<Tensor> {
    let Some(&axis) = axes.last() else { return g.copy() };
    weighted(&run(FftOp::RealToComplex { axes: axes.clone(), onesided: true, scale }, g)?, axis, n, 2.0)
}

/// Half a spectrum of `n` elements, with those of which there is a conjugate in the other half multiplied by
/// `weight`.
fn weighted(x: &Tensor, axis: usize, n: usize, weight: f64) -> Result<Tensor> {
    let (dtype, device) = (x.dtype().to_real(), x.device());
    let paired = (n - 1) / 2;
    if paired == 0 {
        return Ok(x.clone());
    }
    let full = |len: usize, weight: f64| Tensor::full_of(&[len], Scalar::Float(weight), dtype, device);
    let weights = super::index::cat(&[full(1, 1.0)?, full(paired, weight)?, full(n / 2 - paired, 1.0)?], 0)?;
    let mut shape = shape::Shape::from_elem(1, x.ndim());
    shape[axis] = n / 2 + 1;
    x * &super::view::reshape_to(&weights, &shape)?
}
