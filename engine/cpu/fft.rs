//! Fourier transforms, by `lucid-fft`: its plans are those of `rustfft` on every processor, Apple's too.
//!
//! Depends on `simd` for memory and threads. Half-precision numbers have no transforms, as in PyTorch.

use super::simd::threads;
use super::{CpuArray, DType, Element, Error, Result};
use lucid_fft::{complex_to_complex, complex_to_real, real_to_complex, Real, Source};
use lucid_ir::ops::fft::FftOp;
use lucid_ir::Meta;
use num_complex::Complex;

/// Runs a transform along the last dimensions.
pub(super) fn fft(op: &FftOp, x: &CpuArray, out: &Meta) -> Result<CpuArray> {
    match out.dtype.to_real() {
        DType::F32 => transformed::<f32>(op, x, out),
        DType::F64 => transformed::<f64>(op, x, out),
        _ => {
            let why = "Fourier transforms are computed in float32, float64, complex64 and complex128";
            Err(Error::dtype(op.name(), why, &[x.dtype]))
        }
    }
}

fn transformed<T: Real + Element>(op: &FftOp, x: &CpuArray, out: &Meta) -> Result<CpuArray>
where
    Complex<T>: Element,
{
    let pool = &|tasks: usize, f: &(dyn Fn(usize) + Sync)| threads::each_piece(tasks, f);
    match *op {
        FftOp::ComplexToComplex { inverse, scale, .. } => CpuArray::build(&out.shape, |made: &mut [Complex<T>]| {
            complex_to_complex(source(x, &x.read()), made, op.count(), inverse, scale, pool)
        }),
        FftOp::RealToComplex { onesided, scale, .. } => CpuArray::build(&out.shape, |made: &mut [Complex<T>]| {
            real_to_complex(source(x, &x.read()), made, op.count(), onesided, scale, pool)
        }),
        FftOp::ComplexToReal { n, scale, .. } => CpuArray::build(&out.shape, |made: &mut [T]| {
            complex_to_real(source(x, &x.read::<Complex<T>>()), made, op.count(), n, scale, pool)
        }),
    }
}

/// The elements as the library takes them.
fn source<'a, T>(x: &'a CpuArray, data: &'a [T]) -> Source<'a, T> {
    Source { data, offset: x.layout.offset, shape: &x.layout.shape, strides: &x.layout.strides }
}
