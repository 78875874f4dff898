//! Transformers: encoder and decoder layers, stacks of them, and both together (Vaswani et al., 2017).

use super::attention::AttentionMask;
use super::module::located;
use super::options::{filled, options};
use super::{field, init, Approximate, Dropout, Forward, LayerNorm, Linear, Module, MultiheadAttention, Place};
use crate::fallible::ensure_room;
use crate::ops::nn;
use crate::{DType, Device, Error, Result, Tensor};

/// What the feed-forward part of a layer goes through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FeedForward {
    /// `max(x, 0)`.
    #[default]
    Relu,
    /// `x Φ(x)`.
    Gelu,
}

impl FeedForward {
    pub(super) fn run(self, x: &Tensor) -> Result<Tensor> {
        match self {
            FeedForward::Relu => x.relu(),
            FeedForward::Gelu => nn::gelu(x, Approximate::None),
        }
    }
}

macro_rules! layer_options {
    ($(#[$doc:meta])* $Options:ident $Layer:ident $($more:tt)*) => {
        options! {
            $(#[$doc])*
            $Options for $Layer (
                /// Size of the inputs.
                d_model: usize, usize;
                /// Heads of the attention.
                nhead: usize, usize;
            )
            /// Size of the feed-forward part. Default: 2048.
            dim_feedforward: usize, usize = 2048usize;
            /// Probability of dropout. Default: 0.1.
            dropout: f64, f64 = 0.1;
            /// What the feed-forward part goes through. Default: relu.
            activation: FeedForward, FeedForward = FeedForward::Relu;
            /// Added to variances. Default: 1e-5.
            layer_norm_eps: f64, f64 = 1e-5;
            /// Are sequences (N, L, E) rather than (L, N, E)? Default: false.
            batch_first: bool, bool = false;
            /// Do layers normalise first, not last? Default: false.
            norm_first: bool, bool = false;
            /// Are biases added? Default: true.
            bias: bool, bool = true;
            $($more)*
        }

        // Of the three kinds of layers not each has all parts.
        #[allow(dead_code)]
        impl $Options {
            fn attention(&self, device: Device) -> Result<MultiheadAttention> {
                let mut options = MultiheadAttention::options(self.d_model, self.nhead)
                    .dropout(self.dropout)
                    .bias(self.bias)
                    .batch_first(self.batch_first);
                options.dtype = self.dtype;
                options.build(device)
            }
            fn linear(&self, inputs: usize, outputs: usize, device: Device) -> Result<Linear> {
                let mut options = Linear::options(inputs, outputs).bias(self.bias);
                options.dtype = self.dtype;
                options.build(device)
            }
            fn norm(&self, device: Device) -> Result<LayerNorm> {
                let mut options = LayerNorm::options(self.d_model).eps(self.layer_norm_eps).bias(self.bias);
                options.dtype = self.dtype;
                options.build(device)
            }
            fn drop(&self) -> Result<Dropout> {
                Dropout::new(self.dropout)
            }
        }
    };
}

/// Self-attention and a feed-forward part, each with a shortcut and a norm.
#[derive(Clone, Debug, Module)]
pub struct TransformerEncoderLayer {
    self_attn: MultiheadAttention,
    linear1: Linear,
    dropout: Dropout,
    linear2: Linear,
    norm1: LayerNorm,
    norm2: LayerNorm,
    dropout1: Dropout,
    dropout2: Dropout,
    #[module(skip)]
    activation: FeedForward,
    norm_first: bool,
    place: Place,
}

layer_options! {
    /// What a [`TransformerEncoderLayer`] is made of.
    TransformerEncoderLayerOptions TransformerEncoderLayer
}

impl TransformerEncoderLayerOptions {
    fn make(&self, device: Device) -> Result<TransformerEncoderLayer> {
        Ok(TransformerEncoderLayer {
            self_attn: field("self_attn", self.attention(device))?,
            linear1: field("linear1", self.linear(self.d_model, self.dim_feedforward, device))?,
            dropout: field("dropout", self.drop())?,
            linear2: field("linear2", self.linear(self.dim_feedforward, self.d_model, device))?,
            norm1: field("norm1", self.norm(device))?,
            norm2: field("norm2", self.norm(device))?,
            dropout1: field("dropout1", self.drop())?,
            dropout2: field("dropout2", self.drop())?,
            activation: self.activation,
            norm_first: self.norm_first,
            place: Place::default(),
        })
    }
}

impl TransformerEncoderLayer {
    /// (L, N, E), or batch first, to the same.
    ///
    /// # Errors
    /// For shapes that do not fit.
    pub fn forward(&self, src: &Tensor, mask: AttentionMask<'_>) -> Result<Tensor> {
        let attend = |x: &Tensor| self.dropout1.forward(&self.self_attn.forward(x, x, x, mask)?);
        let feed = |x: &Tensor| {
            let wide = self.dropout.forward(&self.activation.run(&self.linear1.forward(x)?)?)?;
            self.dropout2.forward(&self.linear2.forward(&wide)?)
        };
        located(self, || {
            if self.norm_first {
                let x = (src + &attend(&self.norm1.forward(src)?)?)?;
                return &x + &feed(&self.norm2.forward(&x)?)?;
            }
            let x = self.norm1.forward(&(src + &attend(src)?)?)?;
            self.norm2.forward(&(&x + &feed(&x)?)?)
        })
    }
}

/// Self-attention, attention to an encoder's memory, and a feed-forward part.
#[derive(Clone, Debug, Module)]
pub struct TransformerDecoderLayer {
    self_attn: MultiheadAttention,
    multihead_attn: MultiheadAttention,
    linear1: Linear,
    dropout: Dropout,
    linear2: Linear,
    norm1: LayerNorm,
    norm2: LayerNorm,
    norm3: LayerNorm,
    dropout1: Dropout,
    dropout2: Dropout,
    dropout3: Dropout,
    #[module(skip)]
    activation: FeedForward,
    norm_first: bool,
    place: Place,
}

layer_options! {
    /// What a [`TransformerDecoderLayer`] is made of.
    TransformerDecoderLayerOptions TransformerDecoderLayer
}

impl TransformerDecoderLayerOptions {
    fn make(&self, device: Device) -> Result<TransformerDecoderLayer> {
        Ok(TransformerDecoderLayer {
            self_attn: field("self_attn", self.attention(device))?,
            multihead_attn: field("multihead_attn", self.attention(device))?,
            linear1: field("linear1", self.linear(self.d_model, self.dim_feedforward, device))?,
            dropout: field("dropout", self.drop())?,
            linear2: field("linear2", self.linear(self.dim_feedforward, self.d_model, device))?,
            norm1: field("norm1", self.norm(device))?,
            norm2: field("norm2", self.norm(device))?,
            norm3: field("norm3", self.norm(device))?,
            dropout1: field("dropout1", self.drop())?,
            dropout2: field("dropout2", self.drop())?,
            dropout3: field("dropout3", self.drop())?,
            activation: self.activation,
            norm_first: self.norm_first,
            place: Place::default(),
        })
    }
}

impl TransformerDecoderLayer {
    /// The target (T, N, E) and the memory (S, N, E), or batch first, to the target's shape.
    ///
    /// # Errors
    /// For shapes that do not fit.
    pub fn forward(
        &self,
        tgt: &Tensor,
        memory: &Tensor,
        tgt_mask: AttentionMask<'_>,
        memory_mask: AttentionMask<'_>,
    ) -> Result<Tensor> {
        let attend = |x: &Tensor| self.dropout1.forward(&self.self_attn.forward(x, x, x, tgt_mask)?);
        let look = |x: &Tensor| self.dropout2.forward(&self.multihead_attn.forward(x, memory, memory, memory_mask)?);
        let feed = |x: &Tensor| {
            let wide = self.dropout.forward(&self.activation.run(&self.linear1.forward(x)?)?)?;
            self.dropout3.forward(&self.linear2.forward(&wide)?)
        };
        located(self, || {
            if self.norm_first {
                let x = (tgt + &attend(&self.norm1.forward(tgt)?)?)?;
                let x = (&x + &look(&self.norm2.forward(&x)?)?)?;
                return &x + &feed(&self.norm3.forward(&x)?)?;
            }
            let x = self.norm1.forward(&(tgt + &attend(tgt)?)?)?;
            let x = self.norm2.forward(&(&x + &look(&x)?)?)?;
            self.norm3.forward(&(&x + &feed(&x)?)?)
        })
    }
}

/// Encoder layers on top of each other.
#[derive(Clone, Debug, Module)]
pub struct TransformerEncoder {
    layers: Vec<TransformerEncoderLayer>,
    norm: Option<LayerNorm>,
    place: Place,
}

impl TransformerEncoder {
    /// `count` layers of these options, and a norm at the end if given. PyTorch's layers begin as copies of one; these are
    /// drawn one by one.
    ///
    /// # Errors
    /// As the layers' `build`.
    pub fn new(
        layer: &TransformerEncoderLayerOptions,
        count: usize,
        norm: Option<LayerNorm>,
        device: Device,
    ) -> Result<TransformerEncoder> {
        ensure_room(count, size_of::<TransformerEncoderLayer>())?;
        let layers =
            (0..count).map(|i| field("layers", field(&i.to_string(), layer.build(device)))).collect::<Result<_>>()?;
        Ok(TransformerEncoder { layers, norm, place: Place::default() })
    }

    /// (L, N, E), or batch first, to the same.
    ///
    /// # Errors
    /// For shapes that do not fit.
    pub fn forward(&self, src: &Tensor, mask: AttentionMask<'_>) -> Result<Tensor> {
        let x = self.layers.iter().try_fold(src.clone(), |x, layer| layer.forward(&x, mask))?;
        self.norm.as_ref().map_or(Ok(x.clone()), |norm| norm.forward(&x))
    }
}

/// Decoder layers on top of each other.
#[derive(Clone, Debug, Module)]
pub struct TransformerDecoder {
    layers: Vec<TransformerDecoderLayer>,
    norm: Option<LayerNorm>,
    place: Place,
}

impl TransformerDecoder {
    /// `count` layers of these options, and a norm at the end if given.
    ///
    /// # Errors
    /// As the layers' `build`.
    pub fn new(
        layer: &TransformerDecoderLayerOptions,
        count: usize,
        norm: Option<LayerNorm>,
        device: Device,
    ) -> Result<TransformerDecoder> {
        ensure_room(count, size_of::<TransformerDecoderLayer>())?;
        let layers =
            (0..count).map(|i| field("layers", field(&i.to_string(), layer.build(device)))).collect::<Result<_>>()?;
        Ok(TransformerDecoder { layers, norm, place: Place::default() })
    }

    /// The target (T, N, E) and the memory (S, N, E), or batch first, to the target's shape.
    ///
    /// # Errors
    /// For shapes that do not fit.
    pub fn forward(
        &self,
        tgt: &Tensor,
        memory: &Tensor,
        tgt_mask: AttentionMask<'_>,
        memory_mask: AttentionMask<'_>,
    ) -> Result<Tensor> {
        let step = |x: Tensor, layer: &TransformerDecoderLayer| layer.forward(&x, memory, tgt_mask, memory_mask);
        let x = self.layers.iter().try_fold(tgt.clone(), step)?;
        self.norm.as_ref().map_or(Ok(x.clone()), |norm| norm.forward(&x))
    }
}

/// An encoder and a decoder.
#[derive(Clone, Debug, Module)]
pub struct Transformer {
    encoder: TransformerEncoder,
    decoder: TransformerDecoder,
    batch_first: bool,
    place: Place,
}

layer_options! {
    /// What a [`Transformer`] is made of.
    TransformerOptions Transformer
    /// Layers of the encoder. Default: 6.
    num_encoder_layers: usize, usize = 6usize;
    /// Layers of the decoder. Default: 6.
    num_decoder_layers: usize, usize = 6usize;
}

impl TransformerOptions {
    fn make(&self, device: Device) -> Result<Transformer> {
        let mut encoder = TransformerEncoderLayer::options(self.d_model, self.nhead);
        let mut decoder = TransformerDecoderLayer::options(self.d_model, self.nhead);
        macro_rules! same {
            ($($field:ident)*) => {$(
                encoder.$field = self.$field;
                decoder.$field = self.$field;
            )*};
        }
        same!(dim_feedforward dropout activation layer_norm_eps batch_first norm_first bias dtype);
        let norm = || field("norm", self.norm(device)).map(Some);
        let encoder = || TransformerEncoder::new(&encoder, self.num_encoder_layers, norm()?, device);
        let decoder = || TransformerDecoder::new(&decoder, self.num_decoder_layers, norm()?, device);
        let made = Transformer {
            encoder: field("encoder", encoder())?,
            decoder: field("decoder", decoder())?,
            batch_first: self.batch_first,
            place: Place::default(),
        };
        made.parameters().iter().filter(|p| p.ndim() > 1).try_for_each(|p| init::xavier_uniform(p, 1.0))?;
        Ok(made)
    }
}

impl Transformer {
    /// The source (S, N, E) and the target (T, N, E), or batch first, to the target's shape.
    ///
    /// # Errors
    /// For shapes that do not fit.
    pub fn forward(
        &self,
        src: &Tensor,
        tgt: &Tensor,
        src_mask: AttentionMask<'_>,
        tgt_mask: AttentionMask<'_>,
        memory_mask: AttentionMask<'_>,
    ) -> Result<Tensor> {
        located(self, || {
            let batch = usize::from(!self.batch_first);
            if src.ndim() != tgt.ndim() || (src.ndim() == 3 && src.shape()[batch] != tgt.shape()[batch]) {
                let why = "the batch number of src and tgt must be equal";
                return Err(Error::shape("transformer", why, &[src.shape(), tgt.shape()]));
            }
            let memory = self.encoder.forward(src, src_mask)?;
            self.decoder.forward(tgt, &memory, tgt_mask, memory_mask)
        })
    }

    /// What hides later steps: (size, size) of 0 and -∞.
    ///
    /// # Errors
    /// Where the device has no room.
    pub fn causal_mask(size: usize, device: Device) -> Result<Tensor> {
        filled(&[size, size], f64::NEG_INFINITY, DType::F32, device)?.triu(1)
    }
}
