//! Layers, with PyTorch's parameter names, shapes and initial values, so that state dicts move both ways.
//!
//! A model is a struct of layers with `#[derive(Module)]`; what maps one tensor to another implements [`Forward`], too.
//! Layers are made by `new`, with PyTorch's defaults, or by `options`, which names what differs:
//!
//! ```
//! use lucid::prelude::*;
//!
//! #[derive(Module)]
//! struct LeNet {
//!     conv1: nn::Conv2d,
//!     conv2: nn::Conv2d,
//!     fc: nn::Linear,
//! }
//!
//! impl LeNet {
//!     fn new(on: Device) -> Result<LeNet> {
//!         Ok(LeNet {
//!             conv1: nn::Conv2d::options(1, 6, 5).padding(2).build(on)?,
//!             conv2: nn::Conv2d::new(6, 16, 5, on)?,
//!             fc: nn::Linear::new(400, 10, on)?,
//!         })
//!     }
//! }
//!
//! impl Forward for LeNet {
//!     fn forward(&self, x: &Tensor) -> Result<Tensor> {
//!         let pool = nn::MaxPool2d::new(2);
//!         let x = pool.forward(&self.conv1.forward(x)?.relu()?)?;
//!         let x = pool.forward(&self.conv2.forward(&x)?.relu()?)?;
//!         self.fc.forward(&x.flatten(1, -1)?)
//!     }
//! }
//!
//! # fn main() -> Result<()> {
//! let model = LeNet::new(Device::Cpu)?;
//! assert_eq!(model.forward(&Tensor::randn(dims![2, 1, 28, 28])?)?.shape(), [2, 10]);
//! assert!(model.state_dict()?.contains_key("conv1.weight"));
//! # Ok(())
//! # }
//! ```
//!
//! | area | layers |
//! |---|---|
//! | linear | [`Linear`], [`FusedLinear`], [`QuantizedLinear`], [`Bilinear`], [`Identity`], [`Flatten`], [`Unflatten`] |
//! | convolutions | [`Conv1d`], [`Conv2d`], [`Conv3d`], [`ConvTranspose1d`], [`ConvTranspose2d`], [`ConvTranspose3d`], [`Unfold`], [`Fold`] |
//! | pools | [`MaxPool2d`], [`AvgPool2d`], [`LpPool2d`], [`AdaptiveAvgPool2d`], [`AdaptiveMaxPool2d`], [`MaxUnpool2d`], each in 1 to 3 dimensions; [`FractionalMaxPool2d`] |
//! | norms | [`BatchNorm2d`], [`InstanceNorm2d`] in 1 to 3 dimensions, [`LayerNorm`], [`RmsNorm`], [`GroupNorm`], [`LocalResponseNorm`], [`CrossMapLrn2d`] |
//! | dropout | [`Dropout`], [`Dropout1d`], [`Dropout2d`], [`Dropout3d`], [`AlphaDropout`], [`FeatureAlphaDropout`] |
//! | tables | [`Embedding`], [`EmbeddingBag`], [`QuantizedEmbedding`] |
//! | positions | [`RotaryEmbedding`], [`SinusoidalEmbedding`], [`SinusoidalEmbedding2d`], [`TimestepEmbedding`] |
//! | sequences | [`Rnn`], [`Lstm`], [`Gru`], their cells, [`MultiheadAttention`], [`Transformer`] and its parts |
//! | activations | [`Relu`], [`Gelu`], [`Silu`], [`Softmax`] and all others; closures do as well |
//! | images | [`Upsample`], [`PixelShuffle`], [`ChannelShuffle`], [`ZeroPad2d`], [`ReflectionPad2d`], [`ReplicationPad2d`], [`CircularPad2d`] |
//! | losses | [`CrossEntropyLoss`], [`MseLoss`], [`CtcLoss`], [`AdaptiveLogSoftmaxWithLoss`] and all others |
//! | functions | [`functional`], of tensors that the caller has |
//! | containers | [`Sequential`], `Vec`, arrays, `Option`, `BTreeMap`, [`ParameterList`], [`ParameterDict`] |

mod activation;
mod adaptive;
mod attention;
mod container;
mod conv;
mod distance;
mod dropout;
mod embedding;
mod fractional;
pub mod functional;
pub mod init;
mod linear;
mod loss;
mod loss_composed;
mod module;
mod norm;
mod options;
mod padding;
mod pool;
mod positions;
mod quantized;
mod rnn;
mod sync_norm;
#[cfg(test)]
mod tests;
mod transformer;
mod upsampling;

pub use activation::*;
pub use adaptive::{AdaptiveLogSoftmaxWithLoss, AdaptiveLogSoftmaxWithLossOptions};
pub use attention::{AttentionMask, MultiheadAttention, MultiheadAttentionOptions};
pub use container::{Flatten, Identity, ParameterDict, ParameterList, Sequential, Unflatten};
pub use conv::*;
pub use distance::{CosineSimilarity, PairwiseDistance};
pub use dropout::*;
pub use embedding::{BagMode, Embedding, EmbeddingBag, EmbeddingBagOptions, EmbeddingOptions};
pub use fractional::{FractionalMaxPool, FractionalMaxPool2d, FractionalMaxPool3d};
pub use linear::*;
pub use loss::*;
pub use loss_composed::{LinearCrossEntropyLoss, LinearCrossEntropyLossOptions, TripletMarginWithDistanceLoss};
pub use lucid_derive::Module;
pub use module::{field, located, parameter, Forward, Mismatch, Module, Name, Place, Slot, SlotMut, StateDict};
pub use norm::*;
pub use options::{Approximate, Nonlinearity, Padding, PaddingMode, Reduction, Size};
pub use padding::*;
pub use pool::*;
pub use positions::*;
pub use quantized::*;
pub use rnn::*;
pub use sync_norm::{SyncBatchNorm, SyncBatchNormOptions};
pub use transformer::*;
pub use upsampling::*;
