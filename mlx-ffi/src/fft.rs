//! Fourier transforms. Depends on the wrapping macro alone; its invariant holds here.

use crate::call::wrap;
use crate::sys;

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
