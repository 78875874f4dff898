//! Fourier transforms: MLX's own, and on its CPU stream the CPU device's kernels where there are elements enough for them
//! to be faster.
//!
//! MLX scales by the number of elements or its root; any other factor is a product of its own. Depends on `array`,
//! `host_kernel` and mlx-ffi.

use super::array::GpuArray;
use super::convert::{self, constant, ints};
use super::host_kernel;
use super::kernel_error::Made;
use super::value::Value;
use crate::shape::numel;
use crate::DType;
use lucid_cpu::CpuBackend;
use lucid_ir::backend::Backend;
use lucid_ir::ops::fft::FftOp;
use lucid_ir::Meta;
use mlx_ffi::device::Kind;
use mlx_ffi::fft::{transform, Direction, Norm};
use mlx_ffi::{ops, Array, Dtype};

/// Elements from which on the CPU device's kernels are faster than MLX's: theirs wait for a node of the host's.
const HOSTED: usize = 2048;

pub(super) fn fft(op: &FftOp, x: &GpuArray, out: &Meta) -> Made<GpuArray> {
    if numel(&out.shape) == 0 {
        let empty = ops::zeros(&ints(&out.shape)?, convert::dtype(out.dtype)?)?;
        return GpuArray::new(Value::plain(empty), &out.shape, out.dtype);
    }
    if numel(x.shape()) >= HOSTED && host_kernel::takes(DType::F32) {
        let op = op.clone();
        return host_kernel::run(c"LucidFft", &[x], out, move |x, out| CpuBackend::fft(&op, x[0], out));
    }
    let a = aligned(op, x.value()?.logical()?.into_owned())?;
    let ndim = x.ndim();
    // The sizes along which elements are transformed together: those of the longer of the two sides.
    let longer = if matches!(op, FftOp::ComplexToReal { .. }) { &out.shape } else { x.shape() };
    let sizes = &longer[ndim - op.count()..];
    let (norm, factor) = scaling(op.scale(), numel(sizes), op.is_inverse());
    let (a, direction) = match op {
        FftOp::ComplexToComplex { inverse: false, .. } => (a, Direction::Forward),
        FftOp::ComplexToComplex { inverse: true, .. } => (a, Direction::Inverse),
        FftOp::RealToComplex { onesided: true, .. } => (a, Direction::Real),
        FftOp::RealToComplex { onesided: false, .. } => (ops::astype(&a, Dtype::Complex64)?, Direction::Forward),
        FftOp::ComplexToReal { .. } => (a, Direction::ToReal),
    };
    let array = transform(direction, &a, &ints(sizes)?, norm)?;
    GpuArray::new(Value::plain(scaled(array, factor, out.dtype)?), &out.shape, out.dtype)
}

/// cuFFT takes real numbers where a complex one could be, and refuses others: those are copied, by way of complex ones, since what
/// computes in one dtype may write over its operand and so begin where that does.
fn aligned(op: &FftOp, a: Array) -> Made<Array> {
    let halves = matches!(op, FftOp::RealToComplex { onesided: true, .. });
    if halves && mlx_ffi::device::kind()? == Kind::Cuda && a.may_begin_odd()? {
        return Ok(ops::real(&ops::astype(&a, Dtype::Complex64)?)?);
    }
    Ok(a)
}

/// MLX's scaling that is nearest, and the factor that is left.
fn scaling(scale: f64, n: usize, inverse: bool) -> (Norm, f64) {
    let n = n as f64;
    let (plain, whole) = if inverse { (Norm::Forward, Norm::Backward) } else { (Norm::Backward, Norm::Forward) };
    match scale {
        s if s == 1.0 / n && n > 1.0 => (whole, 1.0),
        s if s == 1.0 / n.sqrt() && n > 1.0 => (Norm::Ortho, 1.0),
        s => (plain, s),
    }
}

fn scaled(array: Array, factor: f64, dtype: DType) -> Made<Array> {
    match factor {
        1.0 => Ok(array),
        _ => Ok(ops::multiply(&array, &constant(factor, dtype.to_real())?)?),
    }
}
