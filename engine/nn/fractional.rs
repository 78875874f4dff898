//! Max-pooling over windows at random steps (Graham, 2014).

use super::module::located;
use super::options::dims;
use super::{Forward, Module, Place, Size};
use crate::ops::{create, index, random};
use crate::shape::numel;
use crate::{DType, Error, Result, Tensor};

const OP: &str = "fractional_max_pool";

/// The wanted sizes.
#[derive(Clone, Copy, Debug)]
enum Target<const N: usize> {
    Sizes([usize; N]),
    Ratios([f64; N]),
}

/// The largest element of windows at random steps that give the wanted sizes, of N spatial dimensions.
///
/// ```
/// use lucid::prelude::*;
/// # fn main() -> Result<()> {
/// let pool = nn::FractionalMaxPool2d::sizes(2, 5)?;
/// assert_eq!(pool.forward(&Tensor::rand([1, 1, 8, 8])?)?.shape(), [1, 1, 5, 5]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Module)]
pub struct FractionalMaxPool<const N: usize> {
    #[module(skip)]
    kernel_size: Size<N>,
    #[module(skip)]
    target: Target<N>,
    #[module(skip)]
    samples: Option<Tensor>,
    place: Place,
}

/// Over (…, height, width).
pub type FractionalMaxPool2d = FractionalMaxPool<2>;
/// Over (…, depth, height, width).
pub type FractionalMaxPool3d = FractionalMaxPool<3>;

impl<const N: usize> FractionalMaxPool<N> {
    /// Windows of a size that give `output_size`.
    ///
    /// # Errors
    /// For sizes below 1.
    pub fn sizes(kernel_size: impl Into<Size<N>>, output_size: impl Into<Size<N>>) -> Result<Self> {
        let sizes = output_size.into().lengths("output_size", 1).map_err(|e| e.in_module("FractionalMaxPool"))?;
        Self::of(kernel_size.into(), Target::Sizes(sizes))
    }

    /// Windows of a size that give the input's sizes times `output_ratio`, each within 0 to 1.
    ///
    /// # Errors
    /// For ratios that are not.
    pub fn ratios(kernel_size: impl Into<Size<N>>, output_ratio: [f64; N]) -> Result<Self> {
        if output_ratio.iter().any(|&ratio| !(ratio > 0.0 && ratio < 1.0)) {
            let why = format!("output_ratio must be between 0 and 1, got {output_ratio:?}");
            return Err(Error::value(OP, why).in_module("FractionalMaxPool"));
        }
        Self::of(kernel_size.into(), Target::Ratios(output_ratio))
    }

    fn of(kernel_size: Size<N>, target: Target<N>) -> Result<Self> {
        kernel_size.lengths("kernel_size", 1).map_err(|e| e.in_module("FractionalMaxPool"))?;
        Ok(FractionalMaxPool { kernel_size, target, samples: None, place: Place::default() })
    }

    /// Numbers from 0 to 1 (N, channels, dimensions) that are taken for the random ones.
    #[must_use]
    pub fn random_samples(mut self, samples: Tensor) -> Self {
        self.samples = Some(samples);
        self
    }

    /// Where the windows of a dimension begin, for each channel: (N, channels, out).
    fn begins(&self, x: &Tensor, u: &Tensor, [size, out, k]: [usize; 3]) -> Result<Tensor> {
        let lead = [x.shape()[0] as isize, x.shape()[1] as isize, 1];
        let last = create::full(&lead, (size - k) as i64, Some(DType::I64), Some(x.device()))?;
        if out == 1 {
            return Ok(last);
        }
        let alpha = (size - k) as f64 / (out - 1) as f64;
        let steps = create::arange_of(out - 1, x.device())?.cast(u.dtype())?;
        let u = u.unsqueeze(-1)?;
        let begins = (((steps + &u)? * alpha)?.cast(DType::I64)? - &(u * alpha)?.cast(DType::I64)?)?;
        index::cat(&[begins, last], 2)
    }

    /// The maxima, and their flat places in the space of each channel, for [`MaxUnpool`](super::MaxUnpool).
    ///
    /// # Errors
    /// For shapes that do not fit.
    pub fn with_indices(&self, x: &Tensor) -> Result<(Tensor, Tensor)> {
        located(self, || {
            if x.ndim() != N + 1 && x.ndim() != N + 2 {
                return Err(Error::shape(OP, format!("expected {}D or {}D tensor", N + 1, N + 2), &[x.shape()]));
            }
            let alone = x.ndim() == N + 1;
            let x = if alone { x.unsqueeze(0)? } else { x.clone() };
            let window = self.kernel_size.lengths("kernel_size", 1)?;
            let space = &x.shape()[2..];
            let mut sizes = [0; N];
            for (i, size) in sizes.iter_mut().enumerate() {
                *size = match self.target {
                    Target::Sizes(sizes) => sizes[i],
                    Target::Ratios(ratios) => (space[i] as f64 * ratios[i]) as usize,
                };
                if *size < 1 || *size - 1 + window[i] > space[i] {
                    let why = format!("window {} with output {size} is too large for size {}", window[i], space[i]);
                    return Err(Error::shape(OP, why, &[x.shape()]));
                }
            }
            let count = [x.shape()[0] as isize, x.shape()[1] as isize, N as isize];
            let samples = match &self.samples {
                Some(samples) => samples.narrow(0, 0, count[0] as i64)?,
                None => random::rand(&count, None, Some(x.dtype()), Some(x.device()))?,
            };
            if samples.shape() != count.map(|n| n as usize) {
                let why = "expected random samples (N, channels, dimensions)";
                return Err(Error::shape(OP, why, &[samples.shape(), x.shape()]));
            }
            // Flat places (N, channels, out…, window…), one dimension after the other.
            let mut flat: Option<Tensor> = None;
            for i in 0..N {
                // PyTorch's samples list the last dimension first for images, and the first one first for volumes.
                let at = if N == 2 { 1 - i } else { i };
                let begins = self.begins(&x, &samples.select(2, at as i64)?, [space[i], sizes[i], window[i]])?;
                let places = (begins.unsqueeze(-1)? + &create::arange_of(window[i], x.device())?)?;
                let mut view = dims(&x.shape()[..2]);
                view.extend((0..2 * N).map(|d| match d {
                    d if d == i => sizes[i] as isize,
                    d if d == N + i => window[i] as isize,
                    _ => 1,
                }));
                let places = places.reshape(&view)?;
                flat = Some(match flat {
                    Some(flat) => ((flat * space[i] as i64)? + &places)?,
                    None => places,
                });
            }
            let flat = flat.ok_or_else(|| Error::value(OP, "there are no spatial dimensions"))?;
            let (outputs, elements) = (numel(&sizes), numel(&window));
            let lead = dims(&x.shape()[..2]);
            let shaped = |rest: &[usize]| lead.iter().copied().chain(dims(rest)).collect::<Vec<isize>>();
            let flat = flat.reshape(&shaped(&[outputs * elements]))?;
            let values = x.flatten(2, -1)?.gather(2, &flat)?.reshape(&shaped(&[outputs, elements]))?;
            let (best, chosen) = crate::ops::order::max_dim(&values, -1, false)?;
            let flat = flat.reshape(&shaped(&[outputs, elements]))?;
            let places = flat.gather(-1, &chosen.unsqueeze(-1)?)?.squeeze(Some(&[-1]))?;
            let back = |t: Tensor| {
                let t = t.reshape(&shaped(&sizes))?;
                if alone {
                    t.squeeze(Some(&[0]))
                } else {
                    Ok(t)
                }
            };
            Ok((back(best)?, back(places)?))
        })
    }
}

impl<const N: usize> Forward for FractionalMaxPool<N> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(self.with_indices(x)?.0)
    }
}
