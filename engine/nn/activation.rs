//! Activations as modules. `|x: &Tensor| x.relu()` does as well; these have the names of PyTorch's, and errors say where they are.

use super::module::located;
use super::options::{dtype_or_default, options, parameter};
use super::{Approximate, Forward, Module, Place};
use crate::ops::arguments::Setting;
use crate::ops::{activation as op, nn, random};
use crate::{Device, Error, Result, Tensor};

macro_rules! plain {
    ($($(#[$doc:meta])* $Name:ident |$x:ident| $body:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Default, Module)]
        pub struct $Name {
            place: Place,
        }

        impl $Name {
            /// The activation.
            pub fn new() -> Self {
                Self::default()
            }
        }

        impl Forward for $Name {
            fn forward(&self, $x: &Tensor) -> Result<Tensor> {
                located(self, || $body)
            }
        }
    )*};
}
plain! {
    /// `max(x, 0)`.
    Relu |x| x.relu();
    /// `min(max(x, 0), 6)`.
    Relu6 |x| nn::relu6(x);
    /// `1 / (1 + e⁻ˣ)`.
    Sigmoid |x| x.sigmoid();
    /// The hyperbolic tangent.
    Tanh |x| x.tanh();
    /// `x sigmoid(x)`.
    Silu |x| x.silu();
    /// `x tanh(softplus(x))`.
    Mish |x| op::mish(x);
    /// `x relu6(x + 3) / 6`.
    Hardswish |x| op::hardswish(x);
    /// `relu6(x + 3) / 6`.
    Hardsigmoid |x| op::hardsigmoid(x);
    /// The scaled `elu` that keeps mean and variance.
    Selu |x| op::selu(x);
    /// `log(sigmoid(x))`.
    LogSigmoid |x| op::logsigmoid(x);
    /// `x / (1 + |x|)`.
    Softsign |x| op::softsign(x);
    /// `x - tanh(x)`.
    Tanhshrink |x| op::tanhshrink(x);
    /// `softmax` over the channels of (N, C, H, W) or (C, H, W).
    Softmax2d |x| {
        if !matches!(x.ndim(), 3 | 4) {
            return Err(Error::shape("softmax2d", "requires a 3D or 4D tensor as input", &[x.shape()]));
        }
        x.softmax(-3, None)
    };
}

/// A struct per activation with settings: PyTorch's defaults, and a setter per field.
macro_rules! settable {
    ($($(#[$doc:meta])* $Name:ident { $($(#[$fdoc:meta])* $field:ident: $Ty:ty = $default:expr;)* } |$own:ident, $x:ident| $body:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Module)]
        pub struct $Name {
            $(#[module(skip)] $field: $Ty,)*
            place: Place,
        }

        impl Default for $Name {
            fn default() -> Self {
                $Name { $($field: $default,)* place: Place::default() }
            }
        }

        impl $Name {
            /// The activation with PyTorch's defaults.
            pub fn new() -> Self {
                Self::default()
            }
            $($(#[$fdoc])*
            #[must_use]
            pub fn $field(mut self, $field: impl Setting<$Ty>) -> Self {
                self.$field = $field.set();
                self
            })*
        }

        impl Forward for $Name {
            fn forward(&self, $x: &Tensor) -> Result<Tensor> {
                let $own = self;
                located(self, || $body)
            }
        }
    )*};
}
settable! {
    /// `x Φ(x)`.
    Gelu {
        /// How it is computed. Default: by the error function.
        approximate: Approximate = Approximate::None;
    } |own, x| nn::gelu(x, own.approximate);
    /// `x`, below 0 times a slope.
    LeakyRelu {
        /// The slope. Default: 0.01.
        negative_slope: f64 = 0.01;
    } |own, x| nn::leaky_relu(x, own.negative_slope);
    /// `x`, below 0 `α (eˣ - 1)`.
    Elu {
        /// α. Default: 1.
        alpha: f64 = 1.0;
    } |own, x| nn::elu(x, own.alpha);
    /// `max(0, x) + min(0, α (e^(x/α) - 1))`.
    Celu {
        /// α. Default: 1.
        alpha: f64 = 1.0;
    } |own, x| op::celu(x, own.alpha);
    /// `x` between two numbers.
    Hardtanh {
        /// The least. Default: -1.
        min_val: f64 = -1.0;
        /// The most. Default: 1.
        max_val: f64 = 1.0;
    } |own, x| op::hardtanh(x, own.min_val, own.max_val);
    /// `log(1 + e^(βx)) / β`.
    Softplus {
        /// β. Default: 1.
        beta: f64 = 1.0;
        /// Above this βx it is `x`. Default: 20.
        threshold: f64 = 20.0;
    } |own, x| nn::softplus(x, own.beta, own.threshold);
    /// `x` moved by λ towards 0.
    Softshrink {
        /// λ. Default: 0.5.
        lambd: f64 = 0.5;
    } |own, x| op::softshrink(x, own.lambd);
    /// `x`, within ±λ 0.
    Hardshrink {
        /// λ. Default: 0.5.
        lambd: f64 = 0.5;
    } |own, x| op::hardshrink(x, own.lambd);
    /// `x` above a threshold, else a number.
    Threshold {
        /// The threshold. Default: 0.
        threshold: f64 = 0.0;
        /// What stands for the others. Default: 0.
        value: f64 = 0.0;
    } |own, x| op::threshold(x, own.threshold, own.value);
    /// Half of a dimension times the sigmoid of the other half.
    Glu {
        /// Which. Default: the last.
        dim: isize = -1;
    } |own, x| op::glu(x, own.dim);
    /// Numbers from 0 to 1 whose sum along a dimension is 1.
    Softmax {
        /// Which. Default: the last.
        dim: isize = -1;
    } |own, x| x.softmax(own.dim, None);
    /// [`Softmax`] of `-x`.
    Softmin {
        /// Which. Default: the last.
        dim: isize = -1;
    } |own, x| (-x)?.softmax(own.dim, None);
    /// The logarithm of [`Softmax`].
    LogSoftmax {
        /// Which. Default: the last.
        dim: isize = -1;
    } |own, x| x.log_softmax(own.dim, None);
}

/// `x`, below 0 times a slope that is learned.
#[derive(Clone, Debug, Module)]
pub struct PRelu {
    /// (1) or (channels)
    pub weight: Tensor,
    place: Place,
}

options! {
    /// What a [`PRelu`] is made of.
    PReluOptions for PRelu (
        /// 1, or the number of channels.
        num_parameters: usize, usize;
    )
    /// The slope at first. Default: 0.25.
    init: f64, f64 = 0.25;
}

impl PReluOptions {
    fn make(&self, device: Device) -> Result<PRelu> {
        let weight = parameter(&[self.num_parameters], self.init, dtype_or_default(self.dtype), device)?;
        Ok(PRelu { weight, place: Place::default() })
    }
}

impl Forward for PRelu {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        located(self, || op::prelu(x, &self.weight))
    }
}

/// `x`, below 0 times a slope that is random in training and their mean otherwise (Xu et al., 2015).
#[derive(Clone, Debug, Module)]
pub struct RRelu {
    lower: f64,
    upper: f64,
    training: bool,
    place: Place,
}

impl Default for RRelu {
    fn default() -> RRelu {
        RRelu { lower: 1.0 / 8.0, upper: 1.0 / 3.0, training: true, place: Place::default() }
    }
}

impl RRelu {
    /// With slopes from `lower` to `upper`.
    ///
    /// # Errors
    /// Where they are not in order.
    pub fn new(lower: f64, upper: f64) -> Result<RRelu> {
        if lower <= upper {
            return Ok(RRelu { lower, upper, ..RRelu::default() });
        }
        let why = format!("lower bound should be at most the upper one, got {lower}, {upper}");
        Err(Error::value("rrelu", why).in_module("RRelu"))
    }
}

impl Forward for RRelu {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        located(self, || {
            if !self.training {
                return nn::leaky_relu(x, (self.lower + self.upper) / 2.0);
            }
            let slope = ((random::rand_like(x, None, None, None, None)? * (self.upper - self.lower))? + self.lower)?;
            crate::ops::compare::select::r#where(&x.le(0.0)?, &(x * &slope)?, x)
        })
    }
}
