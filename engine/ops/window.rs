//! Windows for spectral analysis: short weights that fall off to both sides.
//!
//! With `periodic` a window of `n` is the first `n` of a symmetric one of `n + 1`, so that copies of it go on into each
//! other. All are computed in float32 (float64 where asked for) and rounded once. Sources: Harris, "On the use of windows for
//! harmonic analysis with the discrete Fourier transform" (1978); Kaiser and Schafer (1980).

use super::macros::define_composites;
use crate::{DType, Device, Error, Result, Scalar, Tensor};
use std::f64::consts::TAU;

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! window_ops {
    ($cb:ident) => { $crate::rows! { $cb "create" :
        /// The triangle `1 - |2k / m - 1|`, with `m = window_length` if `periodic`, else one less.
        function bartlett_window(
            window_length: Int, periodic: Bool = true; dtype: OptDtype = None, device: OptDevice = None
        ) -> Tensor {
            call: creates, out: none, dtypes: FLOAT, result: Own,
            run: bartlett_body,
            samples: ["6", "5, False", "1", "0", "4, dtype=DT.float64"],
            example: ["assert_close(bartlett_window(4, true, None, None)?, [0.0, 0.5, 1.0, 0.5]);"],
        }
        /// `0.42 - 0.5 cos(2πk / m) + 0.08 cos(4πk / m)`, with `m = window_length` if `periodic`, else one less.
        function blackman_window(
            window_length: Int, periodic: Bool = true; dtype: OptDtype = None, device: OptDevice = None
        ) -> Tensor {
            call: creates, out: none, dtypes: FLOAT, result: Own,
            run: blackman_body,
            samples: ["6", "5, False", "1", "0", "4, dtype=DT.float64"],
            example: ["assert_close(blackman_window(4, true, None, None)?, [0.0, 0.34, 1.0, 0.34]);"],
        }
        /// `alpha - beta cos(2πk / m)`, with `m = window_length` if `periodic`, else one less.
        function hamming_window(
            window_length: Int, periodic: Bool = true, alpha: Float = 0.54, beta: Float = 0.46; dtype: OptDtype = None,
            device: OptDevice = None
        ) -> Tensor {
            call: creates, out: none, dtypes: FLOAT, result: Own,
            run: hamming_body["hamming_window"],
            samples: ["6", "5, False", "7, True, 0.5", "7, False, 0.5, 0.4", "1", "0", "4, dtype=DT.float64"],
            example: ["assert_close(hamming_window(4, true, 0.54, 0.46, None, None)?, [0.08, 0.54, 1.0, 0.54]);"],
        }
        /// `sin²(πk / m)`, with `m = window_length` if `periodic`, else one less.
        function hann_window(
            window_length: Int, periodic: Bool = true; dtype: OptDtype = None, device: OptDevice = None
        ) -> Tensor {
            call: creates, out: none, dtypes: FLOAT, result: Own,
            run: hann_body,
            samples: ["6", "5, False", "1", "0", "4, dtype=DT.float64"],
            example: [
                "assert_close(hann_window(4, true, None, None)?, [0.0, 0.5, 1.0, 0.5]);",
                "assert_close(hann_window(5, false, None, None)?, [0.0, 0.5, 1.0, 0.5, 0.0]);",
            ],
        }
        /// `i0(beta √(1 - (2k / m - 1)²)) / i0(beta)`, with `m = window_length` if `periodic`, else one less. The
        /// larger `beta`, the lower the side lobes and the wider the main one.
        function kaiser_window(
            window_length: Int, periodic: Bool = true, beta: Float = 12.0; dtype: OptDtype = None,
            device: OptDevice = None
        ) -> Tensor {
            call: creates, out: none, dtypes: FLOAT, result: Own,
            run: kaiser_body,
            samples: ["6", "5, False", "7, True, 3.0", "1", "0", "4, dtype=DT.float64"],
            example: ["assert_close(kaiser_window(3, false, 2.0, None, None)?, [0.43868, 1.0, 0.43868]);"],
        }
    }};
}
window_ops!(define_composites);

/// The window `f` of the places `k / m`, in the dtype that is asked for.
fn window(
    op: &'static str,
    length: i64,
    periodic: bool,
    dtype: Option<DType>,
    device: Option<Device>,
    f: impl FnOnce(&Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    let dtype = dtype.unwrap_or(crate::default_dtype());
    if !dtype.is_float() {
        return Err(Error::runtime(op, format!("expects floating point dtypes, got {dtype}")));
    }
    if length < 0 {
        return Err(Error::runtime(op, format!("requires non-negative window_length, got window_length={length}")));
    }
    let size = super::create::sizes(op, &[length as isize])?;
    let device = device.unwrap_or(crate::default_device());
    if length <= 1 {
        return Tensor::full_of(&size, Scalar::ONE, dtype, device);
    }
    let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let places = super::create::arange(0, Some(length.into()), 1, Some(wide), Some(device))?;
    let m = if periodic { length } else { length - 1 };
    f(&places.div(m as f64, None)?)?.cast(dtype)
}

fn bartlett_body(n: i64, periodic: bool, dtype: Option<DType>, device: Option<Device>) -> Result<Tensor> {
    window("bartlett_window", n, periodic, dtype, device, |x| 1.0 - &((x * 2.0)? - 1.0)?.abs()?)
}

fn blackman_body(n: i64, periodic: bool, dtype: Option<DType>, device: Option<Device>) -> Result<Tensor> {
    window("blackman_window", n, periodic, dtype, device, |x| {
        let (once, twice) = ((x * TAU)?.cos()?, (x * (2.0 * TAU))?.cos()?);
        ((twice * 0.08)? - &(once * 0.5)?)? + 0.42
    })
}

fn hamming_body(
    op: &'static str,
    n: i64,
    periodic: bool,
    alpha: f64,
    beta: f64,
    dtype: Option<DType>,
    device: Option<Device>,
) -> Result<Tensor> {
    window(op, n, periodic, dtype, device, |x| ((x * TAU)?.cos()? * -beta)? + alpha)
}

fn hann_body(n: i64, periodic: bool, dtype: Option<DType>, device: Option<Device>) -> Result<Tensor> {
    hamming_body("hann_window", n, periodic, 0.5, 0.5, dtype, device)
}

fn kaiser_body(n: i64, periodic: bool, beta: f64, dtype: Option<DType>, device: Option<Device>) -> Result<Tensor> {
    window("kaiser_window", n, periodic, dtype, device, |x| {
        let inside = (1.0 - &((x * 2.0)? - 1.0)?.square()?)?;
        let whole = Tensor::constant(Scalar::Float(beta), x.dtype(), x.device())?.i0()?;
        (inside.clamp_min(0.0)?.sqrt()? * beta)?.i0()?.div(&whole, None)
    })
}
