//! Layers whose weights are quantised in groups: packed words, scales and biases, as
//! [`quantize_affine`](crate::ops::quantized::quantize_affine) makes them. PyTorch has none; mlx.nn's have the same format.

use super::module::located;
use super::options::{dtype_or_default, filled, options, parameter};
use super::{Embedding, Forward, Linear, Module, Place};
use crate::ops::{nn, quantized};
use crate::{DType, Device, Error, Result, Tensor};

/// A quantised matrix (rows, columns).
#[derive(Clone, Debug, Module)]
struct Packed {
    #[module(buffer)]
    weight: Tensor,
    #[module(buffer)]
    scales: Tensor,
    #[module(buffer)]
    biases: Tensor,
    group: i64,
    bits: i64,
}

impl Packed {
    fn blank([rows, columns]: [usize; 2], group: usize, bits: usize, dtype: DType, device: Device) -> Result<Packed> {
        const OP: &str = "quantize_affine";
        if !matches!(group, 32 | 64 | 128) || !matches!(bits, 2 | 3 | 4 | 5 | 6 | 8) {
            let why = format!(
                "group_size must be one of 32, 64, 128 and bits one of 2, 3, 4, 5, 6, 8, got group_size={group}, bits={bits}"
            );
            return Err(Error::value(OP, why));
        }
        if columns % group != 0 {
            let why = format!("rows of {columns} elements do not fall into groups of {group}");
            return Err(Error::value(OP, why));
        }
        Ok(Packed {
            weight: filled(&[rows, columns / 32 * bits], 0.0, DType::I32, device)?,
            scales: filled(&[rows, columns / group], 1.0, dtype, device)?,
            biases: filled(&[rows, columns / group], 0.0, dtype, device)?,
            group: group as i64,
            bits: bits as i64,
        })
    }

    /// The matrix, quantised.
    fn of(weight: &Tensor, group: usize, bits: usize) -> Result<Packed> {
        let &[rows, columns] = weight.shape() else {
            return Err(Error::shape("quantize_affine", "expected a matrix", &[weight.shape()]));
        };
        let mut made = Packed::blank([rows, columns], group, bits, weight.dtype(), weight.device())?;
        let parts = quantized::quantize_affine(&weight.detach()?, group as i64, bits as i64)?;
        if let [words, scales, biases] = parts.as_slice() {
            (made.weight, made.scales, made.biases) = (words.clone(), scales.clone(), biases.clone());
        }
        Ok(made)
    }

    fn product(&self, x: &Tensor) -> Result<Tensor> {
        quantized::quantized_matmul(x, &self.weight, &self.scales, &self.biases, true, self.group, self.bits)
    }

    fn dequantized(&self) -> Result<Tensor> {
        quantized::dequantize_affine(&self.weight, &self.scales, &self.biases, self.group, self.bits)
    }
}

/// [`Linear`] with a quantised weight: `x Wᵀ + bias`. The weight takes no gradient, the input and the bias do.
///
/// ```
/// use lucid::prelude::*;
/// # fn main() -> Result<()> {
/// let linear = nn::Linear::new(64, 8, Device::Cpu)?;
/// let small = nn::QuantizedLinear::of(&linear, 64, 8)?;
/// let x = Tensor::randn([2, 64])?;
/// let off = (small.forward(&x)? - linear.forward(&x)?)?.abs()?.max_all()?.item_f64()?;
/// assert!(off < 0.05);
/// assert_eq!(small.state_dict()?.into_keys().collect::<Vec<_>>(), ["bias", "biases", "scales", "weight"]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Module)]
pub struct QuantizedLinear {
    #[module(flatten)]
    packed: Packed,
    /// (out)
    pub bias: Option<Tensor>,
    place: Place,
}

options! {
    /// What a [`QuantizedLinear`] is made of. Its weight is zeros until a state dict is loaded.
    QuantizedLinearOptions for QuantizedLinear (
        /// Size of the input's last dimension, a multiple of the group's.
        in_features: usize, usize;
        /// Size of the output's.
        out_features: usize, usize;
    )
    /// Is a bias added? Default: true.
    bias: bool, bool = true;
    /// Neighbours of a row that share scale and bias: 32, 64 or 128. Default: 64.
    group_size: usize, usize = 64usize;
    /// Bits of an element: 2, 3, 4, 5, 6 or 8. Default: 4.
    bits: usize, usize = 4usize;
}

impl QuantizedLinearOptions {
    fn make(&self, device: Device) -> Result<QuantizedLinear> {
        let (dtype, sizes) = (dtype_or_default(self.dtype), [self.out_features, self.in_features]);
        let packed = Packed::blank(sizes, self.group_size, self.bits, dtype, device)?;
        let bias = self.bias.then(|| parameter(&[self.out_features], 0.0, dtype, device)).transpose()?;
        Ok(QuantizedLinear { packed, bias, place: Place::default() })
    }
}

impl QuantizedLinear {
    /// The layer with a linear layer's weight quantised, and its bias.
    ///
    /// # Errors
    /// For sizes that do not fall into groups.
    pub fn of(linear: &Linear, group_size: usize, bits: usize) -> Result<QuantizedLinear> {
        let packed = Packed::of(&linear.weight, group_size, bits).map_err(|e| e.in_module("QuantizedLinear"))?;
        Ok(QuantizedLinear { packed, bias: linear.bias.clone(), place: Place::default() })
    }

    /// The weight as floats.
    ///
    /// # Errors
    /// Where the device has no room.
    pub fn dequantize(&self) -> Result<Tensor> {
        located(self, || self.packed.dequantized())
    }
}

impl Forward for QuantizedLinear {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        located(self, || {
            let made = self.packed.product(x)?;
            match &self.bias {
                Some(bias) => made + bias,
                None => Ok(made),
            }
        })
    }
}

/// [`Embedding`] with a quantised table: integers (…) to (…, embedding_dim). Only the rows that are looked up are dequantised.
#[derive(Clone, Debug, Module)]
pub struct QuantizedEmbedding {
    #[module(flatten)]
    packed: Packed,
    place: Place,
}

options! {
    /// What a [`QuantizedEmbedding`] is made of. Its table is zeros until a state dict is loaded.
    QuantizedEmbeddingOptions for QuantizedEmbedding (
        /// How many rows.
        num_embeddings: usize, usize;
        /// How long each is, a multiple of the group's size.
        embedding_dim: usize, usize;
    )
    /// Neighbours of a row that share scale and bias: 32, 64 or 128. Default: 64.
    group_size: usize, usize = 64usize;
    /// Bits of an element: 2, 3, 4, 5, 6 or 8. Default: 4.
    bits: usize, usize = 4usize;
}

impl QuantizedEmbeddingOptions {
    fn make(&self, device: Device) -> Result<QuantizedEmbedding> {
        let (dtype, sizes) = (dtype_or_default(self.dtype), [self.num_embeddings, self.embedding_dim]);
        let packed = Packed::blank(sizes, self.group_size, self.bits, dtype, device)?;
        Ok(QuantizedEmbedding { packed, place: Place::default() })
    }
}

impl QuantizedEmbedding {
    /// The layer with an embedding's table quantised.
    ///
    /// # Errors
    /// For sizes that do not fall into groups.
    pub fn of(embedding: &Embedding, group_size: usize, bits: usize) -> Result<QuantizedEmbedding> {
        let packed = Packed::of(&embedding.weight, group_size, bits).map_err(|e| e.in_module("QuantizedEmbedding"))?;
        Ok(QuantizedEmbedding { packed, place: Place::default() })
    }

    /// `x Tᵀ` with the table `T`: (…, embedding_dim) to (…, num_embeddings), for models that tie it to their output.
    ///
    /// # Errors
    /// For shapes that do not fit.
    pub fn as_linear(&self, x: &Tensor) -> Result<Tensor> {
        located(self, || self.packed.product(x))
    }
}

impl Forward for QuantizedEmbedding {
    fn forward(&self, indices: &Tensor) -> Result<Tensor> {
        located(self, || {
            let Packed { weight, scales, biases, group, bits } = &self.packed;
            let flat = indices.flatten(0, -1)?;
            let rows = |t: &Tensor| nn::embedding(&flat, t, None, false);
            let (scales, biases) = (rows(scales)?, rows(biases)?);
            let words = weight.index_select(0, &flat)?;
            let made = quantized::dequantize_affine(&words, &scales, &biases, *group, *bits)?;
            let mut shape = super::options::dims(indices.shape());
            shape.push(made.shape()[1] as isize);
            made.reshape(&shape)
        })
    }
}
