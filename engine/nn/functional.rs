//! Functions of tensors that the caller has: what layers compute, with sizes as numbers or arrays and kinds as enums.
//!
//! Layers without parameters are functions already (`nn::MaxPool2d::new(2).padding(1).forward(&x)`); those here take the
//! parameters, too. Errors name the function, not a layer.
//!
//! ```
//! use lucid::prelude::*;
//! use nn::functional as F;
//! # fn main() -> Result<()> {
//! let (x, w) = (Tensor::randn(dims![2, 3, 8, 8])?, Tensor::randn(dims![4, 3, 3, 3])?);
//! let y = F::conv2d(&x, &w, None, F::Convolution::new().padding(1).stride(2))?;
//! assert_eq!(y.shape(), [2, 4, 4, 4]);
//! assert_eq!(F::max_pool2d(&y, 2)?.shape(), [2, 4, 2, 2]);
//! let (scores, classes) = (tensor!([[2.0, 0.0], [0.0, 2.0]])?, tensor!([0, 1])?);
//! assert_close(F::cross_entropy(&scores, &classes, Reduction::Sum)?, 0.253_856);
//! assert_close(F::gelu(&tensor!([1.0])?, nn::Approximate::Tanh)?, [0.841_192]);
//! # Ok(())
//! # }
//! ```

use super::options::dims;
use super::{Approximate, AttentionMask, AvgPool, Forward, MaxPool, Reduction, Size};
use crate::ops::{conv, loss, nn, norm};
use crate::{Error, Result, Tensor};

/// How a convolution goes over its input: by default step by step, without padding, all channels together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Convolution<const N: usize> {
    stride: Size<N>,
    padding: Size<N>,
    dilation: Size<N>,
    output_padding: Size<N>,
    groups: usize,
}

impl<const N: usize> Default for Convolution<N> {
    fn default() -> Self {
        let (one, none) = (Size([1; N]), Size([0; N]));
        Convolution { stride: one, padding: none, dilation: one, output_padding: none, groups: 1 }
    }
}

impl<const N: usize> Convolution<N> {
    /// PyTorch's defaults.
    pub fn new() -> Self {
        Self::default()
    }
    /// Steps between windows. Default: 1.
    #[must_use]
    pub fn stride(self, stride: impl Into<Size<N>>) -> Self {
        Convolution { stride: stride.into(), ..self }
    }
    /// Zeros added at both ends. Default: 0.
    #[must_use]
    pub fn padding(self, padding: impl Into<Size<N>>) -> Self {
        Convolution { padding: padding.into(), ..self }
    }
    /// Steps between a window's elements. Default: 1.
    #[must_use]
    pub fn dilation(self, dilation: impl Into<Size<N>>) -> Self {
        Convolution { dilation: dilation.into(), ..self }
    }
    /// Of a transposed convolution: what is added to the output's size. Default: 0.
    #[must_use]
    pub fn output_padding(self, output_padding: impl Into<Size<N>>) -> Self {
        Convolution { output_padding: output_padding.into(), ..self }
    }
    /// Channel groups that do not see each other. Default: 1.
    #[must_use]
    pub fn groups(self, groups: usize) -> Self {
        Convolution { groups, ..self }
    }
}

macro_rules! convolutions {
    ($($name:ident $transposed:ident $n:literal $input:literal;)*) => {$(
        #[doc = concat!("Convolution of ", $input, " with a weight (out, in / groups, window…) and a bias (out).")]
        ///
        /// # Errors
        /// For shapes that do not fit, and sizes out of range.
        pub fn $name(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, how: Convolution<$n>) -> Result<Tensor> {
            let (stride, padding, dilation) = (how.stride.signed(), how.padding.signed(), how.dilation.signed());
            conv::$name(x, weight, bias, &stride, &padding, &dilation, how.groups as i64)
        }

        #[doc = concat!("The transpose of [`", stringify!($name), "`], with a weight (in, out / groups, window…).")]
        ///
        /// # Errors
        /// For shapes that do not fit, and sizes out of range.
        pub fn $transposed(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, how: Convolution<$n>) -> Result<Tensor> {
            let (stride, padding, dilation) = (how.stride.signed(), how.padding.signed(), how.dilation.signed());
            let extra = how.output_padding.signed();
            conv::$transposed(x, weight, bias, &stride, &padding, &extra, how.groups as i64, &dilation)
        }
    )*};
}
convolutions! {
    conv1d conv_transpose1d 1 "sequences (batch, in, length)";
    conv2d conv_transpose2d 2 "images (batch, in, height, width)";
    conv3d conv_transpose3d 3 "volumes (batch, in, depth, height, width)";
}

macro_rules! pools {
    ($($name:ident $Pool:ident $n:literal $what:literal;)*) => {$(
        #[doc = concat!("The ", $what, " of each window; windows do not overlap. The layer has the other options.")]
        ///
        /// # Errors
        /// For shapes that do not fit.
        pub fn $name(x: &Tensor, kernel_size: impl Into<Size<$n>>) -> Result<Tensor> {
            $Pool::<$n>::new(kernel_size).forward(x)
        }
    )*};
}
pools! {
    max_pool1d MaxPool 1 "largest element";
    max_pool2d MaxPool 2 "largest element";
    max_pool3d MaxPool 3 "largest element";
    avg_pool1d AvgPool 1 "mean";
    avg_pool2d AvgPool 2 "mean";
    avg_pool3d AvgPool 3 "mean";
}

macro_rules! losses {
    ($($(#[$doc:meta])* $name:ident |$x:ident, $y:ident, $reduction:ident| $body:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        /// For shapes and dtypes that do not fit.
        pub fn $name($x: &Tensor, $y: &Tensor, reduction: Reduction) -> Result<Tensor> {
            let $reduction = reduction;
            $body
        }
    )*};
}
losses! {
    /// `-log(softmax(x)[class])` of scores (N, C, …) and classes (N, …), or probabilities (N, C, …).
    cross_entropy |x, y, by| loss::cross_entropy(x, y, None, -100, by, 0.0);
    /// `-x[class]` of logarithms of probabilities (N, C, …) and classes (N, …).
    nll_loss |x, y, by| loss::nll_loss(x, y, None, -100, by);
    /// `(x - y)²`.
    mse_loss |x, y, by| loss::mse_loss(x, y, by);
    /// `|x - y|`.
    l1_loss |x, y, by| loss::l1_loss(x, y, by);
    /// `(x - y)² / 2` where the difference is below 1, else `|x - y| - 1/2`.
    smooth_l1_loss |x, y, by| loss::smooth_l1_loss(x, y, by, 1.0);
    /// `-(y log x + (1 - y) log(1 - x))` of probabilities.
    binary_cross_entropy |x, y, by| loss::binary_cross_entropy(x, y, None, by);
    /// [`binary_cross_entropy`] of `sigmoid(x)`, without its overflows.
    binary_cross_entropy_with_logits |x, y, by| loss::binary_cross_entropy_with_logits(x, y, None, by, None);
    /// `y (log y - x)` of logarithms of probabilities `x` and probabilities `y`. The mean is over all elements.
    kl_div |x, y, by| loss::kl_div(x, y, by, false);
}

/// `x weightᵀ + bias`: (…, in) to (…, out).
///
/// # Errors
/// For shapes that do not fit.
pub fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    nn::linear(x, weight, bias)
}

/// The rows of a table (count, size) that integers name.
///
/// # Errors
/// [`Error::IndexOutOfRange`] for a row that is not there.
pub fn embedding(indices: &Tensor, weight: &Tensor) -> Result<Tensor> {
    nn::embedding(indices, weight, None, false)
}

/// `x Φ(x)`.
///
/// # Errors
/// For dtypes that are not floating.
pub fn gelu(x: &Tensor, approximate: Approximate) -> Result<Tensor> {
    nn::gelu(x, approximate)
}

/// Zeroes elements with probability `p` and divides the others by `1 - p`, where `training`.
///
/// # Errors
/// For a probability outside of 0 to 1.
pub fn dropout(x: &Tensor, p: f64, training: bool) -> Result<Tensor> {
    nn::dropout(x, p, training, None)
}

/// Mean 0 and variance 1 over the last dimensions, which have the sizes `shape`, then scale and shift.
///
/// # Errors
/// For shapes that do not fit.
pub fn layer_norm(
    x: &Tensor,
    shape: &[usize],
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    eps: f64,
) -> Result<Tensor> {
    norm::layer_norm(x, &dims(shape), weight, bias, eps)
}

/// `softmax(q kᵀ / √E + mask) v` of queries (…, L, E), keys (…, S, E) and values (…, S, Ev), without dropout.
///
/// ```
/// use lucid::prelude::*;
/// # fn main() -> Result<()> {
/// let x = Tensor::randn(dims![2, 4, 5, 8])?;
/// let y = nn::functional::attention(&x, &x, &x, nn::AttentionMask::causal())?;
/// assert_close(y.i((.., .., 0))?, x.i((.., .., 0))?); // the first step sees itself alone
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// For shapes that do not fit, and a padding mask: add it to `attn_mask`, broadcast to (…, L, S).
pub fn attention(query: &Tensor, key: &Tensor, value: &Tensor, mask: AttentionMask<'_>) -> Result<Tensor> {
    if mask.key_padding_mask.is_some() {
        return Err(Error::value(
            "attention",
            "key_padding_mask is of layers; add it to attn_mask, broadcast to (…, L, S)",
        ));
    }
    nn::scaled_dot_product_attention(query, key, value, mask.attn_mask, 0.0, mask.is_causal, None, false)
}
