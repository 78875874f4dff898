//! [`SyncBatchNorm`]: a batch norm over the batches of several processes.

use super::module::located;
use super::norm::{affine, Running};
use super::options::{dtype_or_default, options};
use super::{Forward, Module, Place};
use crate::distributed::{all_reduce, Group, Reduce};
use crate::ops::{index::cat, norm};
use crate::{DType, Device, Error, Result, Tensor};

/// A [`BatchNorm`](super::BatchNorm) of any number of dimensions, by the statistics of the batches of all members of a group, which may
/// be of different lengths; gradients are summed over the members, too. Without a group, with one of one member, and in evaluation
/// it is a batch norm. PyTorch's `SyncBatchNorm`, with its parameter names.
///
/// ```
/// use lucid::prelude::*;
/// # fn main() -> Result<()> {
/// let norm = nn::SyncBatchNorm::new(3, Device::Cpu)?; // `options(3).group(group)` where there are several processes
/// assert_eq!(norm.forward(&Tensor::randn((2, 3, 4))?)?.shape(), [2, 3, 4]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Module)]
pub struct SyncBatchNorm {
    /// (channels)
    pub weight: Option<Tensor>,
    /// (channels)
    pub bias: Option<Tensor>,
    #[module(flatten)]
    running: Option<Running>,
    #[module(skip)]
    options: SyncBatchNormOptions,
    training: bool,
    place: Place,
}

options! {
    /// What a [`SyncBatchNorm`] is made of.
    SyncBatchNormOptions for SyncBatchNorm (
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
    /// The processes. Default: this one alone.
    group: Option<Group>, impl Into<Option<Group>> = None;
}

impl SyncBatchNormOptions {
    fn make(&self, device: Device) -> Result<SyncBatchNorm> {
        let dtype = dtype_or_default(self.dtype);
        let (weight, bias) = affine(self.num_features, self.affine, dtype, device)?;
        let running = self.track_running_stats.then(|| Running::new(self.num_features, dtype, device)).transpose()?;
        Ok(SyncBatchNorm { weight, bias, running, options: self.clone(), training: true, place: Place::default() })
    }
}

impl SyncBatchNorm {
    /// By the batches of all members.
    fn over(&self, group: &Group, input: &Tensor, share: f64) -> Result<Tensor> {
        let dims: Vec<usize> = (0..input.ndim()).filter(|&dim| dim != 1).collect();
        // Sums of float32, of the inputs and then of the squares about their mean.
        let wide = matches!(input.dtype(), DType::F32 | DType::F64);
        let x = if wide { input.clone() } else { input.cast(DType::F32)? };
        let channels = self.options.num_features;
        let shape: Vec<usize> = (0..input.ndim()).map(|dim| if dim == 1 { channels } else { 1 }).collect();
        let own = Tensor::full_of(&[1], ((input.numel() / channels.max(1)) as f64).into(), x.dtype(), x.device())?;
        let sums = all_reduce(&cat(&[x.sum_over(&dims)?, own], 0)?, group, Reduce::Sum)?;
        let count = sums.narrow(0, channels, 1)?;
        let mean = (sums.narrow(0, 0, channels)? / &count)?;
        let centred = (&x - &mean.reshape(&shape)?)?;
        let var = (all_reduce(&centred.square()?.sum_over(&dims)?, group, Reduce::Sum)? / &count)?;
        let mut out = (centred * &(&var + self.options.eps)?.rsqrt()?.reshape(&shape)?)?;
        if let Some(weight) = &self.weight {
            out = (out * &weight.reshape(&shape)?)?;
        }
        if let Some(bias) = &self.bias {
            out = (out + &bias.reshape(&shape)?)?;
        }
        if let Some(running) = &self.running {
            let n = count.item_f64()?;
            running.take(&mean, &(&var * (n / (n - 1.0).max(1.0)))?, share)?;
        }
        out.cast(input.dtype())
    }
}

impl Forward for SyncBatchNorm {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        located(self, || {
            if input.ndim() < 2 || input.shape()[1] != self.options.num_features {
                let why = format!("expected (batch, {}, …)", self.options.num_features);
                return Err(Error::shape("sync_batch_norm", why, &[input.shape()]));
            }
            if !input.dtype().is_float() {
                return Err(Error::dtype("sync_batch_norm", "takes floats", &[input.dtype()]));
            }
            let share = match &self.running {
                Some(running) if self.training => running.share(self.options.momentum)?,
                _ => 0.0,
            };
            match &self.options.group {
                Some(group) if self.training && group.size() > 1 => self.over(group, input, share),
                _ => {
                    let batch = self.training || self.running.is_none();
                    let (mean, var) = self.running.as_ref().map(Running::moments).unzip();
                    let (weight, bias) = (self.weight.as_ref(), self.bias.as_ref());
                    norm::batch_norm(input, mean, var, weight, bias, batch, share, self.options.eps)
                }
            }
        })
    }
}
