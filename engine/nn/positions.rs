//! Encodings of positions as modules. None is in PyTorch.

use super::module::located;
use super::{Forward, Linear, Module, Place};
use crate::ops::{create, index, PadMode};
use crate::{DType, Device, Error, Result, Tensor};

/// Numbers 0, 1, … as float32.
fn counted(count: usize, device: Device) -> Result<Tensor> {
    create::arange_of(count, device)?.cast(DType::F32)
}

/// Sines, then cosines, of positions (…) at `dim / 2` frequencies from 1 down to `1 / max_period`: (…, dim). An odd `dim` ends
/// with zeros.
fn sinusoids(positions: &Tensor, dim: usize, max_period: f64) -> Result<Tensor> {
    if dim == 0 {
        return Err(Error::value("sinusoidal_embedding", "dim must be positive, got 0"));
    }
    let half = dim / 2;
    let frequencies = (counted(half, positions.device())? * (-max_period.ln() / half.max(1) as f64))?.exp()?;
    let angles = (positions.cast(DType::F32)?.unsqueeze(-1)? * &frequencies)?;
    let made = index::cat(&[angles.sin()?, angles.cos()?], -1)?;
    match dim % 2 {
        0 => Ok(made),
        _ => made.pad(&[0, 1], PadMode::Constant, None),
    }
}

/// Rotates queries and keys (…, length, head_dim) by their positions (Su et al., 2021).
///
/// ```
/// use lucid::prelude::*;
/// # fn main() -> Result<()> {
/// let rope = nn::RotaryEmbedding::new(4, Device::Cpu)?;
/// let x = tensor!([[1.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]])?;
/// assert_close(rope.forward(&x)?.i((1, 0))?, 1f64.cos());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Module)]
pub struct RotaryEmbedding {
    #[module(constant)]
    inv_freq: Tensor,
    interleaved: bool,
    place: Place,
}

impl RotaryEmbedding {
    /// For heads of an even size, with base 10000.
    ///
    /// # Errors
    /// For an odd size, and where the device has no room.
    pub fn new(head_dim: usize, device: Device) -> Result<RotaryEmbedding> {
        RotaryEmbedding::with_base(head_dim, 10000.0, device)
    }

    /// `base`: the slowest rotation's period over 2π.
    ///
    /// # Errors
    /// For an odd size, and where the device has no room.
    pub fn with_base(head_dim: usize, base: f64, device: Device) -> Result<RotaryEmbedding> {
        let made = || {
            if head_dim == 0 || head_dim % 2 == 1 {
                let why = format!("head_dim must be even and positive, got {head_dim}");
                return Err(Error::value("rotary_embedding", why));
            }
            (counted(head_dim / 2, device)? * (-2.0 * base.ln() / head_dim as f64))?.exp()
        };
        let inv_freq = made().map_err(|e| e.in_module("RotaryEmbedding"))?;
        Ok(RotaryEmbedding { inv_freq, interleaved: false, place: Place::default() })
    }

    /// Are neighbours pairs, rather than element i and element i + head_dim / 2? Default: false.
    #[must_use]
    pub fn interleaved(mut self, on: bool) -> RotaryEmbedding {
        self.interleaved = on;
        self
    }

    /// Cosines and sines (…, head_dim / 2) of the angles at positions (…).
    ///
    /// # Errors
    /// For positions on another device.
    pub fn cos_sin(&self, positions: &Tensor) -> Result<(Tensor, Tensor)> {
        located(self, || {
            let angles = (positions.cast(self.inv_freq.dtype())?.unsqueeze(-1)? * &self.inv_freq)?;
            Ok((angles.cos()?, angles.sin()?))
        })
    }

    /// (…, length, head_dim) rotated by positions (length) or (N, length), the latter of (N, heads, length, head_dim).
    ///
    /// # Errors
    /// For shapes that do not fit.
    pub fn at(&self, x: &Tensor, positions: &Tensor) -> Result<Tensor> {
        located(self, || {
            let half = self.inv_freq.shape()[0];
            if x.ndim() < 2 || x.shape()[x.ndim() - 1] != 2 * half {
                let why = format!("expected (…, length, {})", 2 * half);
                return Err(Error::shape("rotary_embedding", why, &[x.shape()]));
            }
            let (mut cos, mut sin) = self.cos_sin(positions)?;
            if positions.ndim() == 2 && x.ndim() == 4 {
                (cos, sin) = (cos.unsqueeze(1)?, sin.unsqueeze(1)?);
            }
            let (cos, sin) = (cos.cast(x.dtype())?, sin.cast(x.dtype())?);
            let n = half as i64;
            let pairs = if self.interleaved { Some(x.unflatten(-1, &[n as isize, 2])?) } else { None };
            let (a, b) = match &pairs {
                Some(pairs) => (pairs.select(-1, 0)?, pairs.select(-1, 1)?),
                None => (x.narrow(-1, 0, n)?, x.narrow(-1, n, n)?),
            };
            let rotated = [((&a * &cos)? - &(&b * &sin)?)?, ((&a * &sin)? + &(&b * &cos)?)?];
            match pairs {
                Some(_) => index::stack(&rotated, -1)?.flatten(-2, -1),
                None => index::cat(&rotated, -1),
            }
        })
    }
}

impl Forward for RotaryEmbedding {
    /// (…, length, head_dim) rotated by positions from 0 on.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let length = x.shape().iter().rev().nth(1).copied().unwrap_or(0);
        self.at(x, &located(self, || create::arange_of(length, x.device()))?)
    }
}

macro_rules! sinusoidal {
    ($($(#[$doc:meta])* $Name:ident |$own:ident, $x:ident| $body:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Module)]
        pub struct $Name {
            dim: usize,
            max_period: f64,
            place: Place,
        }

        impl $Name {
            /// Of so many features.
            pub fn new(dim: usize) -> Self {
                $Name { dim, max_period: 10000.0, place: Place::default() }
            }

            /// The longest period over 2π. Default: 10000.
            #[must_use]
            pub fn max_period(mut self, max_period: f64) -> Self {
                self.max_period = max_period;
                self
            }
        }

        impl Forward for $Name {
            fn forward(&self, $x: &Tensor) -> Result<Tensor> {
                let $own = self;
                located(self, || $body)
            }
        }
    )*};
}
sinusoidal! {
    /// Sines and cosines of positions (…): (…, dim).
    SinusoidalEmbedding |own, positions| sinusoids(positions, own.dim, own.max_period);
    /// Adds sinusoids of row and column to images (N, dim, H, W); `dim` is a multiple of 4.
    SinusoidalEmbedding2d |own, x| {
        if !own.dim.is_multiple_of(4) {
            let why = format!("dim must be divisible by 4, got {}", own.dim);
            return Err(Error::value("sinusoidal_embedding_2d", why));
        }
        if x.ndim() < 3 {
            return Err(Error::shape("sinusoidal_embedding_2d", "expected images (…, dim, H, W)", &[x.shape()]));
        }
        let [height, width] = [2, 1].map(|back| x.shape()[x.ndim() - back]);
        let line = |n: usize| sinusoids(&create::arange_of(n, x.device())?, own.dim / 2, own.max_period);
        let shape = [height as isize, width as isize, (own.dim / 2) as isize];
        let rows = line(height)?.unsqueeze(1)?.expand(&shape)?;
        let columns = line(width)?.unsqueeze(0)?.expand(&shape)?;
        x + &index::cat(&[rows, columns], -1)?.permute(&[2, 0, 1])?.cast(x.dtype())?
    };
}

/// Sinusoids of time steps (N) through two linear maps with a silu between: (N, out_dim), as diffusion models do.
#[derive(Clone, Debug, Module)]
pub struct TimestepEmbedding {
    /// dim to out_dim.
    pub linear1: Linear,
    /// out_dim to out_dim.
    pub linear2: Linear,
    dim: usize,
    max_period: f64,
    place: Place,
}

impl TimestepEmbedding {
    /// Of sinusoids of size `dim` to `4 · dim` features.
    ///
    /// # Errors
    /// Where the device has no room.
    pub fn new(dim: usize, device: Device) -> Result<TimestepEmbedding> {
        TimestepEmbedding::with_sizes(dim, dim.saturating_mul(4), device)
    }

    /// Of sinusoids of size `dim` to `out_dim` features.
    ///
    /// # Errors
    /// Where the device has no room.
    pub fn with_sizes(dim: usize, out_dim: usize, device: Device) -> Result<TimestepEmbedding> {
        let linear1 = super::field("linear1", Linear::new(dim, out_dim, device))?;
        let linear2 = super::field("linear2", Linear::new(out_dim, out_dim, device))?;
        Ok(TimestepEmbedding { linear1, linear2, dim, max_period: 10000.0, place: Place::default() })
    }

    /// The longest period over 2π. Default: 10000.
    #[must_use]
    pub fn max_period(mut self, max_period: f64) -> TimestepEmbedding {
        self.max_period = max_period;
        self
    }
}

impl Forward for TimestepEmbedding {
    fn forward(&self, timesteps: &Tensor) -> Result<Tensor> {
        located(self, || {
            let made = sinusoids(timesteps, self.dim, self.max_period)?.cast(self.linear1.weight.dtype())?;
            self.linear2.forward(&self.linear1.forward(&made)?.silu()?)
        })
    }
}
