//! Layers for Rust programs, with PyTorch's parameter names, shapes and initial values.
//!
//! A layer is a struct of tensors with a [`Module`] in front; models implement the trait by calling their layers'.

use crate::ops::{conv, nn, norm, pool};
use crate::{no_grad, DType, Device, Error, Result, Tensor};
use std::collections::BTreeMap;
use std::path::Path;

/// Something with parameters that maps a tensor to another.
pub trait Module {
    /// The output for an input.
    ///
    /// # Errors
    /// What the ops report, such as shapes that do not fit.
    fn forward(&self, input: &Tensor) -> Result<Tensor>;

    /// The parameters, with names that are unique within the module.
    fn named_parameters(&self) -> Vec<(String, Tensor)>;

    /// The parameters.
    fn parameters(&self) -> Vec<Tensor> {
        self.named_parameters().into_iter().map(|(_, t)| t).collect()
    }

    /// Writes the parameters to a safetensors file.
    ///
    /// # Errors
    /// As [`crate::io::save`].
    fn save(&self, path: &Path) -> Result<()> {
        crate::io::save(path, &self.named_parameters().into_iter().collect())
    }

    /// Reads the parameters from a safetensors file; every name must be there with its shape.
    ///
    /// # Errors
    /// As [`crate::io::load`], and [`Error::Runtime`] listing every name that is missing, unknown or of another shape.
    fn load(&self, path: &Path) -> Result<()> {
        let own: BTreeMap<String, Tensor> = self.named_parameters().into_iter().collect();
        let file = crate::io::load(path, Device::Cpu)?;
        let mut wrong: Vec<String> = Vec::new();
        wrong.extend(own.keys().filter(|n| !file.contains_key(*n)).map(|n| format!("missing {n}")));
        wrong.extend(file.keys().filter(|n| !own.contains_key(*n)).map(|n| format!("unexpected {n}")));
        for (name, t) in &own {
            match file.get(name) {
                Some(f) if f.shape() != t.shape() => {
                    wrong.push(format!("{name} is {:?} in the file and {:?} here", f.shape(), t.shape()));
                }
                _ => {}
            }
        }
        if !wrong.is_empty() {
            return Err(Error::runtime("load", format!("{}: {}", path.display(), wrong.join("; "))));
        }
        no_grad(|| own.iter().try_for_each(|(name, t)| t.copy_(&file[name])))
    }
}

/// Prefixes the names of a layer's parameters, for a model that holds it.
pub fn prefixed(prefix: &str, layer: &dyn Module) -> Vec<(String, Tensor)> {
    layer.named_parameters().into_iter().map(|(name, t)| (format!("{prefix}.{name}"), t)).collect()
}

/// PyTorch's initial values: uniform in ±1/√fan_in.
fn uniform(shape: &[usize], fan_in: usize, device: Device) -> Result<Tensor> {
    let bound = 1.0 / (fan_in.max(1) as f64).sqrt();
    let t = Tensor::full_of(shape, 0.0.into(), DType::F32, device)?;
    t.uniform_(-bound, bound, None)?;
    t.requires_grad_(true)
}

fn weight_and_bias(weight: &Tensor, bias: Option<&Tensor>) -> Vec<(String, Tensor)> {
    let named = [("weight", Some(weight)), ("bias", bias)];
    named.into_iter().filter_map(|(name, t)| Some((name.to_string(), t?.clone()))).collect()
}

/// `x weightᵀ + bias`: (…, in) to (…, out).
#[derive(Clone, Debug)]
pub struct Linear {
    /// (out, in)
    pub weight: Tensor,
    /// (out)
    pub bias: Option<Tensor>,
}

impl Linear {
    /// A layer with random weights in float32.
    ///
    /// # Errors
    /// Where the device has no room.
    pub fn new(in_features: usize, out_features: usize, device: Device) -> Result<Linear> {
        Ok(Linear {
            weight: uniform(&[out_features, in_features], in_features, device)?,
            bias: Some(uniform(&[out_features], in_features, device)?),
        })
    }
}

impl Module for Linear {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        nn::linear(input, &self.weight, self.bias.as_ref())
    }
    fn named_parameters(&self) -> Vec<(String, Tensor)> {
        weight_and_bias(&self.weight, self.bias.as_ref())
    }
}

/// 2-D convolution: (N, in, H, W) to (N, out, H', W').
#[derive(Clone, Debug)]
pub struct Conv2d {
    /// (out, in / groups, window height, window width)
    pub weight: Tensor,
    /// (out)
    pub bias: Option<Tensor>,
    /// Steps between windows.
    pub stride: [isize; 2],
    /// Zeros added at both ends.
    pub padding: [isize; 2],
    /// Steps between a window's elements.
    pub dilation: [isize; 2],
    /// Channel groups.
    pub groups: i64,
}

impl Conv2d {
    /// A layer with a square window and random weights in float32; set the other fields as needed.
    ///
    /// # Errors
    /// Where the device has no room.
    pub fn new(in_channels: usize, out_channels: usize, window: usize, device: Device) -> Result<Conv2d> {
        let fan_in = in_channels * window * window;
        Ok(Conv2d {
            weight: uniform(&[out_channels, in_channels, window, window], fan_in, device)?,
            bias: Some(uniform(&[out_channels], fan_in, device)?),
            stride: [1, 1],
            padding: [0, 0],
            dilation: [1, 1],
            groups: 1,
        })
    }
}

impl Module for Conv2d {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        conv::conv2d(x, &self.weight, self.bias.as_ref(), &self.stride, &self.padding, &self.dilation, self.groups)
    }
    fn named_parameters(&self) -> Vec<(String, Tensor)> {
        weight_and_bias(&self.weight, self.bias.as_ref())
    }
}

/// The largest element of each square window.
#[derive(Clone, Copy, Debug)]
pub struct MaxPool2d {
    /// Window size, and the step between windows.
    pub window: isize,
}

impl Module for MaxPool2d {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        pool::max_pool2d(x, &[self.window], None, &[0], &[1], false)
    }
    fn named_parameters(&self) -> Vec<(String, Tensor)> {
        Vec::new()
    }
}

/// Normalisation over the last dimension.
#[derive(Clone, Debug)]
pub struct LayerNorm {
    /// (features)
    pub weight: Tensor,
    /// (features)
    pub bias: Tensor,
    /// Added to the variance.
    pub eps: f64,
}

impl LayerNorm {
    /// A layer that starts as plain normalisation, in float32.
    ///
    /// # Errors
    /// Where the device has no room.
    pub fn new(features: usize, device: Device) -> Result<LayerNorm> {
        let filled = |v: f64| Tensor::full_of(&[features], v.into(), DType::F32, device)?.requires_grad_(true);
        Ok(LayerNorm { weight: filled(1.0)?, bias: filled(0.0)?, eps: 1e-5 })
    }
}

impl Module for LayerNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let shape = [self.weight.numel() as isize];
        norm::layer_norm(x, &shape, Some(&self.weight), Some(&self.bias), self.eps)
    }
    fn named_parameters(&self) -> Vec<(String, Tensor)> {
        weight_and_bias(&self.weight, Some(&self.bias))
    }
}

/// Rows of a table, by index.
#[derive(Clone, Debug)]
pub struct Embedding {
    /// (count, size)
    pub weight: Tensor,
}

impl Embedding {
    /// A table of normal numbers in float32.
    ///
    /// # Errors
    /// Where the device has no room.
    pub fn new(count: usize, size: usize, device: Device) -> Result<Embedding> {
        let weight = Tensor::full_of(&[count, size], 0.0.into(), DType::F32, device)?;
        weight.normal_(0.0, 1.0, None)?;
        Ok(Embedding { weight: weight.requires_grad_(true)? })
    }
}

impl Module for Embedding {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        nn::embedding(input, &self.weight, None, false)
    }
    fn named_parameters(&self) -> Vec<(String, Tensor)> {
        weight_and_bias(&self.weight, None)
    }
}
