//! Fourier transforms. Depends on the wrapping macro and on primitives that are kept; their invariants hold here.

use smallvec::SmallVec;

use crate::call::wrap;
use crate::error::{Error, Result};
use crate::primitive::KeptLast;
use crate::{sys, Array, Dtype};

/// Which direction of a transform is scaled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Norm {
    /// The inverse, by 1/n.
    #[default]
    Backward,
    /// Both, by 1/√n.
    Ortho,
    /// The forward, by 1/n.
    Forward,
}

impl Norm {
    pub(crate) fn raw(self) -> sys::mlx_fft_norm {
        match self {
            Norm::Backward => sys::MLX_FFT_NORM_BACKWARD,
            Norm::Ortho => sys::MLX_FFT_NORM_ORTHO,
            Norm::Forward => sys::MLX_FFT_NORM_FORWARD,
        }
    }
}

wrap! {
    fft = mlx_fft_fft(a: arr, n: int, axis: int, norm: norm);
    ifft = mlx_fft_ifft(a: arr, n: int, axis: int, norm: norm);
    rfft = mlx_fft_rfft(a: arr, n: int, axis: int, norm: norm);
    irfft = mlx_fft_irfft(a: arr, n: int, axis: int, norm: norm);
    fft2 = mlx_fft_fft2(a: arr, n: ints, axes: ints, norm: norm);
    ifft2 = mlx_fft_ifft2(a: arr, n: ints, axes: ints, norm: norm);
    rfft2 = mlx_fft_rfft2(a: arr, n: ints, axes: ints, norm: norm);
    irfft2 = mlx_fft_irfft2(a: arr, n: ints, axes: ints, norm: norm);
    fftn = mlx_fft_fftn(a: arr, n: ints, axes: ints, norm: norm);
    ifftn = mlx_fft_ifftn(a: arr, n: ints, axes: ints, norm: norm);
    rfftn = mlx_fft_rfftn(a: arr, n: ints, axes: ints, norm: norm);
    irfftn = mlx_fft_irfftn(a: arr, n: ints, axes: ints, norm: norm);
    fftfreq = mlx_fft_fftfreq(n: int, d: f64);
    rfftfreq = mlx_fft_rfftfreq(n: int, d: f64);
    fftshift = mlx_fft_fftshift(a: arr, axes: ints);
    ifftshift = mlx_fft_ifftshift(a: arr, axes: ints);
}

/// What is transformed to what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Complex numbers, forward.
    Forward,
    /// Complex numbers, back.
    Inverse,
    /// Real numbers to the half of their spectrum.
    Real,
    /// The half of a spectrum to real numbers.
    ToReal,
}

impl Direction {
    fn input(self) -> Dtype {
        match self {
            Direction::Real => Dtype::Float32,
            _ => Dtype::Complex64,
        }
    }
}

/// The transform of `a`, complex64 or for [`Direction::Real`] float32, along its last dimensions. `n` has the sizes of these
/// together, those of the longer side, and `a` has them, or for [`Direction::ToReal`] `n / 2 + 1` in the last.
///
/// # Errors
/// [`Error::Mismatch`] for other dtypes and sizes.
pub fn transform(direction: Direction, a: &Array, n: &[i32], norm: Norm) -> Result<Array> {
    static KEPT: [[KeptLast; 3]; 4] = [const { [const { KeptLast::new() }; 3] }; 4];
    let given = a.shape();
    let mut shape: SmallVec<[i32; 8]> = SmallVec::from_slice(given);
    let first = shape.len().checked_sub(n.len());
    let (Some(first), Some((&last, others)), Some(end)) = (first, n.split_last(), shape.last_mut()) else {
        return Err(Error::Mismatch(format!("transforms along {} dimensions of an array of {}", n.len(), given.len())));
    };
    let half = last / 2 + 1;
    let taken = if direction == Direction::ToReal { half } else { last };
    if a.dtype() != direction.input() || given[first..].split_last() != Some((&taken, others)) || taken < 1 {
        let why = format!("{direction:?} transform of {n:?} elements does not take {:?} of {given:?}", a.dtype());
        return Err(Error::Mismatch(why));
    }
    match direction {
        Direction::Real => *end = half,
        Direction::ToReal => *end = last,
        Direction::Forward | Direction::Inverse => {}
    }
    let axes: SmallVec<[i32; 8]> = (0..n.len() as i32).map(|i| i - n.len() as i32).collect();
    let call = match direction {
        Direction::Forward => sys::mlx_fft_fftn,
        Direction::Inverse => sys::mlx_fft_ifftn,
        Direction::Real => sys::mlx_fft_rfftn,
        Direction::ToReal => sys::mlx_fft_irfftn,
    };
    // The scale of one element alone is 1, for which MLX makes no product: nothing is learned from those.
    let count = if n.iter().all(|&n| n == 1) { 0 } else { n.len() };
    KEPT[direction as usize][norm as usize].shaped(a, count, &shape, |out, stream| {
        // SAFETY: valid handles, live slices and a null out-parameter for MLX to fill.
        unsafe { call(out, a.raw(), n.as_ptr(), n.len(), axes.as_ptr(), axes.len(), norm.raw(), stream) }
    })
}
