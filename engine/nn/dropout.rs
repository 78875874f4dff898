//! Dropout layers: they act in training mode alone.

use super::module::located;
use super::{Forward, Module, Place};
use crate::ops::{nn, random};
use crate::{Error, Result, Tensor};

fn checked(p: f64) -> Result<f64> {
    match (0.0..=1.0).contains(&p) {
        true => Ok(p),
        false => Err(Error::value("dropout", format!("dropout probability has to be between 0 and 1, but got {p}"))),
    }
}

macro_rules! dropouts {
    ($($(#[$doc:meta])* $Name:ident $([$n:tt])?;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Module)]
        pub struct $Name $(<const $n: usize>)? {
            /// The probability.
            pub p: f64,
            training: bool,
            place: Place,
        }

        impl $(<const $n: usize>)? $Name $(<$n>)? {
            /// With this probability.
            ///
            /// # Errors
            /// For a probability outside of 0 to 1.
            pub fn new(p: f64) -> Result<Self> {
                let p = checked(p).map_err(|e| e.in_module(stringify!($Name)))?;
                Ok($Name { p, training: true, place: Place::default() })
            }

            /// Does the layer change anything?
            fn acts(&self) -> bool {
                self.training && self.p > 0.0
            }
        }
    )*};
}
dropouts! {
    /// Zeroes elements with probability `p`, and scales the others by 1/(1-p) (Srivastava et al., 2014).
    Dropout;
    /// Zeroes whole channels (Tompson et al., 2015) of N spatial dimensions.
    ChannelDropout[N];
    /// Sets elements to selu's lowest value, keeping mean 0 and variance 1 (Klambauer et al., 2017).
    AlphaDropout;
    /// [`AlphaDropout`] of whole channels.
    FeatureAlphaDropout;
}

/// Of (batch, channels, length).
pub type Dropout1d = ChannelDropout<1>;
/// Of (batch, channels, height, width).
pub type Dropout2d = ChannelDropout<2>;
/// Of (batch, channels, depth, height, width).
pub type Dropout3d = ChannelDropout<3>;

impl Forward for Dropout {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        located(self, || if self.acts() { nn::dropout(x, self.p, true, None) } else { Ok(x.clone()) })
    }
}

/// 1 where a random number is kept, else 0, for the dimensions up to the channels.
fn kept(x: &Tensor, lead: usize, p: f64) -> Result<Tensor> {
    let mut shape = super::options::dims(x.shape());
    shape.iter_mut().skip(lead).for_each(|n| *n = 1);
    random::rand(&shape, None, None, Some(x.device()))?.ge(p)?.cast(x.dtype())
}

impl<const N: usize> Forward for ChannelDropout<N> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        located(self, || {
            if x.ndim() != N + 1 && x.ndim() != N + 2 {
                let why = format!("expected {}D or {}D input", N + 1, N + 2);
                return Err(Error::shape("dropout", why, &[x.shape()]));
            }
            if !self.acts() {
                return Ok(x.clone());
            }
            let kept = kept(x, x.ndim() - N, self.p)?;
            match self.p < 1.0 {
                true => x * &(kept * (1.0 / (1.0 - self.p)))?,
                false => x * 0.0,
            }
        })
    }
}

/// Where selu ends far below zero.
const ALPHA: f64 = -1.758_099_340_847_376_6;

fn alpha(x: &Tensor, lead: usize, p: f64) -> Result<Tensor> {
    if p == 1.0 {
        return x * 0.0;
    }
    let a = 1.0 / ((ALPHA * ALPHA * p + 1.0) * (1.0 - p)).sqrt();
    let kept = kept(x, lead, p)?;
    let shift = ((((1.0 - &kept)?) * (ALPHA * a))? - ALPHA * a * p)?;
    (x * &(kept * a)?)? + shift
}

impl Forward for AlphaDropout {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        located(self, || if self.acts() { alpha(x, x.ndim(), self.p) } else { Ok(x.clone()) })
    }
}

impl Forward for FeatureAlphaDropout {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        located(self, || if self.acts() { alpha(x, 2, self.p) } else { Ok(x.clone()) })
    }
}
