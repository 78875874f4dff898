//! Normalisation layers.

use super::module::located;
use super::options::{dtype_or_default, filled, options, parameter};
use super::{Forward, Module, Place};
use crate::ops::{norm, pool, PadMode};
use crate::shape::numel;
use crate::{no_grad, DType, Device, Error, Result, Tensor};

/// Scale and shift of `count` channels, where they are wanted.
pub(super) fn affine(
    count: usize,
    wanted: bool,
    dtype: DType,
    device: Device,
) -> Result<(Option<Tensor>, Option<Tensor>)> {
    if !wanted {
        return Ok((None, None));
    }
    Ok((Some(parameter(&[count], 1.0, dtype, device)?), Some(parameter(&[count], 0.0, dtype, device)?)))
}

/// Running mean, variance and the number of batches, as buffers.
#[derive(Clone, Debug, Module)]
pub(super) struct Running {
    #[module(buffer)]
    running_mean: Tensor,
    #[module(buffer)]
    running_var: Tensor,
    #[module(buffer)]
    num_batches_tracked: Tensor,
}

impl Running {
    pub(super) fn new(count: usize, dtype: DType, device: Device) -> Result<Running> {
        Ok(Running {
            running_mean: filled(&[count], 0.0, dtype, device)?,
            running_var: filled(&[count], 1.0, dtype, device)?,
            num_batches_tracked: Tensor::full_of(&[], 0.into(), DType::I64, device)?,
        })
    }

    /// Mean and variance.
    pub(super) fn moments(&self) -> (&Tensor, &Tensor) {
        (&self.running_mean, &self.running_var)
    }

    /// Takes in a batch's mean and variance.
    pub(super) fn take(&self, mean: &Tensor, var: &Tensor, share: f64) -> Result<()> {
        no_grad(|| {
            for (own, new) in [(&self.running_mean, mean), (&self.running_var, var)] {
                own.lerp_(&new.cast(own.dtype())?, share)?;
            }
            Ok(())
        })
    }

    /// Counts a batch, and gives the share that it has in the means.
    pub(super) fn share(&self, momentum: Option<f64>) -> Result<f64> {
        no_grad(|| self.num_batches_tracked.copy_(&(&self.num_batches_tracked + 1)?))?;
        match momentum {
            Some(share) => Ok(share),
            None => Ok(1.0 / self.num_batches_tracked.item_f64()?),
        }
    }
}

fn check_dims(op: &'static str, x: &Tensor, allowed: &[usize]) -> Result<()> {
    match allowed.contains(&x.ndim()) {
        true => Ok(()),
        false => {
            let mut list: Vec<String> = allowed.iter().map(|n| format!("{n}D")).collect();
            list.dedup();
            Err(Error::shape(
                op,
                format!("expected {} input (got {}D input)", list.join(" or "), x.ndim()),
                &[x.shape()],
            ))
        }
    }
}

/// Normalisation of each channel over the batch (Ioffe and Szegedy, 2015), with running means for evaluation.
#[derive(Clone, Debug, Module)]
pub struct BatchNorm<const N: usize> {
    /// (channels)
    pub weight: Option<Tensor>,
    /// (channels)
    pub bias: Option<Tensor>,
    #[module(flatten)]
    running: Option<Running>,
    #[module(skip)]
    options: BatchNormOptions<N>,
    training: bool,
    place: Place,
}

/// Over (batch, channels) or (batch, channels, length).
pub type BatchNorm1d = BatchNorm<1>;
/// Over (batch, channels, height, width).
pub type BatchNorm2d = BatchNorm<2>;
/// Over (batch, channels, depth, height, width).
pub type BatchNorm3d = BatchNorm<3>;

options! {
    /// What a [`BatchNorm`] is made of.
    BatchNormOptions[const N: usize][N] for BatchNorm (
        /// Channels.
        num_features: usize, usize;
    )
    /// Added to the variance. Default: 1e-5.
    eps: f64, f64 = 1e-5;
    /// The new batch's share in the running means; `None` weights all batches alike. Default: 0.1.
    momentum: Option<f64>, impl Into<Option<f64>> = Some(0.1);
    /// Are there a weight and a bias? Default: true.
    affine: bool, bool = true;
    /// Are there running means? Default: true.
    track_running_stats: bool, bool = true;
}

impl<const N: usize> BatchNormOptions<N> {
    fn make(&self, device: Device) -> Result<BatchNorm<N>> {
        let dtype = dtype_or_default(self.dtype);
        let (weight, bias) = affine(self.num_features, self.affine, dtype, device)?;
        let running = self.track_running_stats.then(|| Running::new(self.num_features, dtype, device)).transpose()?;
        Ok(BatchNorm { weight, bias, running, options: self.clone(), training: true, place: Place::default() })
    }
}

impl<const N: usize> Forward for BatchNorm<N> {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        located(self, || {
            check_dims("batch_norm", input, &if N == 1 { [2, 3] } else { [N + 2; 2] })?;
            let batch = self.training || self.running.is_none();
            let share = match &self.running {
                Some(running) if self.training => running.share(self.options.momentum)?,
                _ => 0.0,
            };
            let (mean, var) = match &self.running {
                Some(r) => (Some(&r.running_mean), Some(&r.running_var)),
                None => (None, None),
            };
            let (weight, bias) = (self.weight.as_ref(), self.bias.as_ref());
            norm::batch_norm(input, mean, var, weight, bias, batch, share, self.options.eps)
        })
    }
}

/// Normalisation of each channel of each sample (Ulyanov et al., 2016).
#[derive(Clone, Debug, Module)]
pub struct InstanceNorm<const N: usize> {
    /// (channels)
    pub weight: Option<Tensor>,
    /// (channels)
    pub bias: Option<Tensor>,
    #[module(flatten)]
    running: Option<Running>,
    #[module(skip)]
    options: InstanceNormOptions<N>,
    training: bool,
    place: Place,
}

/// Over (batch, channels, length).
pub type InstanceNorm1d = InstanceNorm<1>;
/// Over (batch, channels, height, width).
pub type InstanceNorm2d = InstanceNorm<2>;
/// Over (batch, channels, depth, height, width).
pub type InstanceNorm3d = InstanceNorm<3>;

options! {
    /// What an [`InstanceNorm`] is made of.
    InstanceNormOptions[const N: usize][N] for InstanceNorm (
        /// Channels.
        num_features: usize, usize;
    )
    /// Added to the variance. Default: 1e-5.
    eps: f64, f64 = 1e-5;
    /// The new batch's share in the running means. Default: 0.1.
    momentum: f64, f64 = 0.1;
    /// Are there a weight and a bias? Default: false.
    affine: bool, bool = false;
    /// Are there running means? Default: false.
    track_running_stats: bool, bool = false;
}

impl<const N: usize> InstanceNormOptions<N> {
    fn make(&self, device: Device) -> Result<InstanceNorm<N>> {
        let dtype = dtype_or_default(self.dtype);
        let (weight, bias) = affine(self.num_features, self.affine, dtype, device)?;
        let running = self.track_running_stats.then(|| Running::new(self.num_features, dtype, device)).transpose()?;
        Ok(InstanceNorm { weight, bias, running, options: self.clone(), training: true, place: Place::default() })
    }
}

impl<const N: usize> Forward for InstanceNorm<N> {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        located(self, || {
            check_dims("instance_norm", input, &[N + 1, N + 2])?;
            if input.ndim() == N + 1 {
                return self.run(&input.unsqueeze(0)?)?.squeeze(Some(&[0]));
            }
            self.run(input)
        })
    }
}

impl<const N: usize> InstanceNorm<N> {
    /// Samples count as channels of one batch; what the batch norm keeps of each is averaged over the samples.
    fn run(&self, x: &Tensor) -> Result<Tensor> {
        let (samples, channels) = (x.shape()[0], x.shape()[1]);
        if channels != self.options.num_features {
            let why = format!("expected input's channels to match num_features {}", self.options.num_features);
            return Err(Error::shape("instance_norm", why, &[x.shape()]));
        }
        let space = numel(&x.shape()[2..]);
        if self.training && space <= 1 {
            let why = "expected more than 1 spatial element when training";
            return Err(Error::shape("instance_norm", why, &[x.shape()]));
        }
        let mut flat = super::options::dims(x.shape());
        (flat[0], flat[1]) = (1, (samples * channels) as isize);
        let each = |t: Option<&Tensor>| t.map(|t| t.repeat(&[samples as isize])).transpose();
        let running = self.running.as_ref();
        let (mean, var) = (each(running.map(|r| &r.running_mean))?, each(running.map(|r| &r.running_var))?);
        let (weight, bias) = (each(self.weight.as_ref())?, each(self.bias.as_ref())?);
        let batch = self.training || running.is_none();
        let y = norm::batch_norm(
            &x.reshape(&flat)?,
            mean.as_ref(),
            var.as_ref(),
            weight.as_ref(),
            bias.as_ref(),
            batch,
            self.options.momentum,
            self.options.eps,
        )?;
        if let (Some(running), Some(mean), Some(var), true) = (running, mean, var, self.training) {
            let average = |t: Tensor| t.reshape(&[samples as isize, channels as isize])?.mean(Some(&[0]), false, None);
            no_grad(|| {
                running.share(Some(0.0))?;
                running.running_mean.copy_(&average(mean)?)?;
                running.running_var.copy_(&average(var)?)
            })?;
        }
        y.reshape(&super::options::dims(x.shape()))
    }
}

/// Normalisation over the last dimensions (Ba et al., 2016).
#[derive(Clone, Debug, Module)]
pub struct LayerNorm {
    /// The normalised shape.
    pub weight: Option<Tensor>,
    /// The normalised shape.
    pub bias: Option<Tensor>,
    shape: Vec<usize>,
    eps: f64,
    place: Place,
}

/// The sizes of the last dimensions: of one number for the last alone, or a list.
#[derive(Clone, Debug)]
pub struct Shape(Vec<usize>);

impl From<usize> for Shape {
    fn from(n: usize) -> Shape {
        Shape(vec![n])
    }
}
impl From<i32> for Shape {
    /// A negative size becomes one that no tensor has, which the layer refuses.
    fn from(n: i32) -> Shape {
        Shape(vec![usize::try_from(n).unwrap_or(usize::MAX)])
    }
}
impl From<&[usize]> for Shape {
    fn from(list: &[usize]) -> Shape {
        Shape(list.to_vec())
    }
}
impl<const N: usize> From<[usize; N]> for Shape {
    fn from(list: [usize; N]) -> Shape {
        Shape(list.to_vec())
    }
}

impl Shape {
    fn checked(&self, op: &'static str) -> Result<&[usize]> {
        match self.0.is_empty() || self.0.iter().any(|&n| n > i32::MAX as usize) {
            true => Err(Error::value(op, format!("normalized_shape must be of sizes below 2³¹, got {:?}", self.0))),
            false => Ok(&self.0),
        }
    }
}

options! {
    /// What a [`LayerNorm`] is made of.
    LayerNormOptions for LayerNorm (
        /// Sizes of the last dimensions.
        normalized_shape: Shape, impl Into<Shape>;
    )
    /// Added to the variance. Default: 1e-5.
    eps: f64, f64 = 1e-5;
    /// Are there a weight and a bias? Default: true.
    elementwise_affine: bool, bool = true;
    /// Is there a bias beside the weight? Default: true.
    bias: bool, bool = true;
}

impl LayerNormOptions {
    fn make(&self, device: Device) -> Result<LayerNorm> {
        let (dtype, shape) = (dtype_or_default(self.dtype), self.normalized_shape.checked("layer_norm")?);
        let own = |wanted: bool, v: f64| wanted.then(|| parameter(shape, v, dtype, device)).transpose();
        Ok(LayerNorm {
            weight: own(self.elementwise_affine, 1.0)?,
            bias: own(self.elementwise_affine && self.bias, 0.0)?,
            shape: shape.to_vec(),
            eps: self.eps,
            place: Place::default(),
        })
    }
}

impl Forward for LayerNorm {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        located(self, || {
            let shape = super::options::dims(&self.shape);
            norm::layer_norm(input, &shape, self.weight.as_ref(), self.bias.as_ref(), self.eps)
        })
    }
}

/// Division by the root of the mean square over the last dimensions (Zhang and Sennrich, 2019).
#[derive(Clone, Debug, Module)]
pub struct RmsNorm {
    /// The normalised shape.
    pub weight: Option<Tensor>,
    shape: Vec<usize>,
    eps: Option<f64>,
    place: Place,
}

options! {
    /// What an [`RmsNorm`] is made of.
    RmsNormOptions for RmsNorm (
        /// Sizes of the last dimensions.
        normalized_shape: Shape, impl Into<Shape>;
    )
    /// Added to the mean square; `None` is the dtype's own. Default: `None`.
    eps: Option<f64>, impl Into<Option<f64>> = None;
    /// Is there a weight? Default: true.
    elementwise_affine: bool, bool = true;
}

impl RmsNormOptions {
    fn make(&self, device: Device) -> Result<RmsNorm> {
        let (dtype, shape) = (dtype_or_default(self.dtype), self.normalized_shape.checked("rms_norm")?);
        let weight = self.elementwise_affine.then(|| parameter(shape, 1.0, dtype, device)).transpose()?;
        Ok(RmsNorm { weight, shape: shape.to_vec(), eps: self.eps, place: Place::default() })
    }
}

impl Forward for RmsNorm {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        located(self, || norm::rms_norm(input, &super::options::dims(&self.shape), self.weight.as_ref(), self.eps))
    }
}

/// Normalisation over groups of channels (Wu and He, 2018).
#[derive(Clone, Debug, Module)]
pub struct GroupNorm {
    /// (channels)
    pub weight: Option<Tensor>,
    /// (channels)
    pub bias: Option<Tensor>,
    groups: usize,
    eps: f64,
    place: Place,
}

options! {
    /// What a [`GroupNorm`] is made of.
    GroupNormOptions for GroupNorm (
        /// Into how many groups the channels are divided.
        num_groups: usize, usize;
        /// Channels.
        num_channels: usize, usize;
    )
    /// Added to the variance. Default: 1e-5.
    eps: f64, f64 = 1e-5;
    /// Are there a weight and a bias? Default: true.
    affine: bool, bool = true;
}

impl GroupNormOptions {
    fn make(&self, device: Device) -> Result<GroupNorm> {
        if self.num_groups == 0 || !self.num_channels.is_multiple_of(self.num_groups) {
            let why =
                format!("num_channels ({}) must be divisible by num_groups ({})", self.num_channels, self.num_groups);
            return Err(Error::value("group_norm", why));
        }
        let (weight, bias) = affine(self.num_channels, self.affine, dtype_or_default(self.dtype), device)?;
        Ok(GroupNorm { weight, bias, groups: self.num_groups, eps: self.eps, place: Place::default() })
    }
}

impl Forward for GroupNorm {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let (weight, bias) = (self.weight.as_ref(), self.bias.as_ref());
        located(self, || norm::group_norm(input, self.groups as i64, weight, bias, self.eps))
    }
}

/// Division by what neighbouring channels have (Krizhevsky et al., 2012): `x / (k + α · mean(x²))^β`.
#[derive(Clone, Debug, Module)]
pub struct LocalResponseNorm {
    /// How many channels count.
    pub size: usize,
    /// α. Default: 1e-4.
    pub alpha: f64,
    /// β. Default: 0.75.
    pub beta: f64,
    /// k. Default: 1.
    pub k: f64,
    place: Place,
}

impl LocalResponseNorm {
    /// Over `size` channels.
    pub fn new(size: usize) -> LocalResponseNorm {
        LocalResponseNorm { size, alpha: 1e-4, beta: 0.75, k: 1.0, place: Place::default() }
    }

    /// The same with another α.
    pub fn alpha(self, alpha: f64) -> LocalResponseNorm {
        LocalResponseNorm { alpha, ..self }
    }
}

impl Forward for LocalResponseNorm {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        located(self, || {
            if input.ndim() < 3 || self.size == 0 {
                let why = format!("expected 3D or higher dimensionality input and a size above 0, got {}", self.size);
                return Err(Error::shape("local_response_norm", why, &[input.shape()]));
            }
            let (samples, channels) = (input.shape()[0] as isize, input.shape()[1] as isize);
            let squares = input.square()?.reshape(&[samples, 1, channels, -1])?;
            let (before, after) = ((self.size / 2) as isize, ((self.size - 1) / 2) as isize);
            let padded = squares.pad(&[0, 0, before, after], PadMode::Constant, None)?;
            let means = pool::avg_pool2d(&padded, &[self.size as isize, 1], Some(&[1, 1]), &[0], false, true, None)?;
            let means = means.reshape(&super::options::dims(input.shape()))?;
            input / &((means * self.alpha)? + self.k)?.pow(self.beta)?
        })
    }
}

/// `x / (k + α / size · Σ x²)^β` over the channels around each of (N, C, H, W), as PyTorch's `CrossMapLRN2d` computes it: an even
/// `size` looks at one channel less, and the first channel counts for all after it.
#[derive(Clone, Debug, Module)]
pub struct CrossMapLrn2d {
    size: usize,
    alpha: f64,
    beta: f64,
    k: f64,
    place: Place,
}

impl CrossMapLrn2d {
    /// Over so many channels.
    pub fn new(size: usize) -> CrossMapLrn2d {
        CrossMapLrn2d { size, alpha: 1e-4, beta: 0.75, k: 1.0, place: Place::default() }
    }

    /// The factor of the mean square. Default: 1e-4.
    #[must_use]
    pub fn alpha(mut self, alpha: f64) -> CrossMapLrn2d {
        self.alpha = alpha;
        self
    }

    /// The exponent. Default: 0.75.
    #[must_use]
    pub fn beta(mut self, beta: f64) -> CrossMapLrn2d {
        self.beta = beta;
        self
    }

    /// What is added. Default: 1.
    #[must_use]
    pub fn k(mut self, k: f64) -> CrossMapLrn2d {
        self.k = k;
        self
    }
}

impl Forward for CrossMapLrn2d {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        located(self, || {
            check_dims("cross_map_lrn2d", x, &[4])?;
            let (channels, around) = (x.shape()[1], self.size.saturating_sub(1) / 2);
            if self.size == 0 {
                return Err(Error::value("cross_map_lrn2d", "size must be positive, got 0"));
            }
            let squares = x.square()?;
            // Channels that are farther away than there are any add nothing.
            let reach = around.min(channels) as i64;
            let padded = squares.pad(&[0, 0, 0, 0, reach as isize, reach as isize], PadMode::Constant, None)?;
            let mut total = padded.narrow(1, 0, channels as i64)?;
            for i in 1..=2 * reach {
                total = (total + &padded.narrow(1, i, channels as i64)?)?;
            }
            if around + 1 < channels {
                let after = channels - around - 1;
                let first = squares.narrow(1, 0, 1)?.expand(&[-1, after as isize, -1, -1])?;
                total = (total + &first.pad(&[0, 0, 0, 0, around as isize + 1, 0], PadMode::Constant, None)?)?;
            }
            x / &((total * (self.alpha / self.size as f64))? + self.k)?.pow(self.beta)?
        })
    }
}
