//! Linear and bilinear layers.

use super::module::located;
use super::options::{dtype_or_default, options, uniform};
use super::{FeedForward, Forward, Module, Place};
use crate::ops::nn;
use crate::{Device, Error, Result, Tensor};

/// `x weightᵀ + bias`: (…, in) to (…, out).
#[derive(Clone, Debug, Module)]
pub struct Linear {
    /// (out, in)
    pub weight: Tensor,
    /// (out)
    pub bias: Option<Tensor>,
    place: Place,
}

options! {
    /// What a [`Linear`] is made of.
    LinearOptions for Linear (
        /// Size of the input's last dimension.
        in_features: usize, usize;
        /// Size of the output's.
        out_features: usize, usize;
    )
    /// Is a bias added? Default: true.
    bias: bool, bool = true;
}

impl LinearOptions {
    fn make(&self, device: Device) -> Result<Linear> {
        let dtype = dtype_or_default(self.dtype);
        let bound = 1.0 / (self.in_features.max(1) as f64).sqrt();
        let weight = uniform(&[self.out_features, self.in_features], bound, dtype, device)?;
        let bias = self.bias.then(|| uniform(&[self.out_features], bound, dtype, device)).transpose()?;
        Ok(Linear { weight, bias, place: Place::default() })
    }
}

impl Forward for Linear {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        located(self, || nn::linear(input, &self.weight, self.bias.as_ref()))
    }
}

/// [`Linear`] followed by an activation. On the GPU device MLX's lazy graph fuses them. PyTorch has none.
#[derive(Clone, Debug, Module)]
pub struct FusedLinear {
    #[module(flatten)]
    linear: Linear,
    #[module(skip)]
    activation: FeedForward,
    place: Place,
}

options! {
    /// What a [`FusedLinear`] is made of.
    FusedLinearOptions for FusedLinear (
        /// Size of the input's last dimension.
        in_features: usize, usize;
        /// Size of the output's.
        out_features: usize, usize;
    )
    /// Is a bias added? Default: true.
    bias: bool, bool = true;
    /// What the sums go through. Default: relu.
    activation: FeedForward, FeedForward = FeedForward::Relu;
}

impl FusedLinearOptions {
    fn make(&self, device: Device) -> Result<FusedLinear> {
        let mut linear = Linear::options(self.in_features, self.out_features).bias(self.bias);
        linear.dtype = self.dtype;
        Ok(FusedLinear { linear: linear.make(device)?, activation: self.activation, place: Place::default() })
    }
}

impl Forward for FusedLinear {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let Linear { weight, bias, .. } = &self.linear;
        located(self, || self.activation.run(&nn::linear(input, weight, bias.as_ref())?))
    }
}

/// `x₁ᵀ weight[k] x₂ + bias[k]` for every output k.
#[derive(Clone, Debug, Module)]
pub struct Bilinear {
    /// (out, in₁, in₂)
    pub weight: Tensor,
    /// (out)
    pub bias: Option<Tensor>,
    place: Place,
}

options! {
    /// What a [`Bilinear`] is made of.
    BilinearOptions for Bilinear (
        /// Size of the first input's last dimension.
        in1_features: usize, usize;
        /// Size of the second input's.
        in2_features: usize, usize;
        /// Size of the output's.
        out_features: usize, usize;
    )
    /// Is a bias added? Default: true.
    bias: bool, bool = true;
}

impl BilinearOptions {
    fn make(&self, device: Device) -> Result<Bilinear> {
        if self.in1_features == 0 {
            return Err(Error::value("bilinear", "in1_features must be > 0, but got 0"));
        }
        let (dtype, bound) = (dtype_or_default(self.dtype), 1.0 / (self.in1_features as f64).sqrt());
        let shape = [self.out_features, self.in1_features, self.in2_features];
        let bias = self.bias.then(|| uniform(&[self.out_features], bound, dtype, device)).transpose()?;
        Ok(Bilinear { weight: uniform(&shape, bound, dtype, device)?, bias, place: Place::default() })
    }
}

impl Bilinear {
    /// (…, in₁) and (…, in₂) to (…, out).
    ///
    /// # Errors
    /// For shapes that do not fit.
    pub fn forward(&self, x1: &Tensor, x2: &Tensor) -> Result<Tensor> {
        located(self, || {
            let operands = [x1.clone(), self.weight.clone(), x2.clone()];
            let y = crate::ops::einsum::einsum("...i,kij,...j->...k", &operands)?;
            match &self.bias {
                Some(bias) => y + bias,
                None => Ok(y),
            }
        })
    }
}
