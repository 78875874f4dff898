//! Softmax over many classes, the rare ones in clusters with smaller projections (Grave et al., 2017).

use super::module::located;
use super::options::options;
use super::{field, Forward, Linear, Module, Place, Sequential};
use crate::ops::index;
use crate::{DType, Device, Error, Result, Tensor};

/// Log-probabilities of `n_classes` classes, sorted from frequent to rare, in clusters. All clusters are computed for every
/// input.
///
/// ```
/// use lucid::prelude::*;
/// # fn main() -> Result<()> {
/// let loss = nn::AdaptiveLogSoftmaxWithLoss::new(8, 20, [5, 10], Device::Cpu)?;
/// let (each, mean) = loss.forward(&Tensor::randn([4, 8])?, &tensor!([0, 6, 12, 19])?)?;
/// assert_eq!(each.shape(), [4]);
/// assert!(mean.item_f64()? > 0.0);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Module)]
pub struct AdaptiveLogSoftmaxWithLoss {
    head: Linear,
    tail: Vec<Sequential>,
    #[module(skip)]
    cutoffs: Vec<usize>,
    place: Place,
}

/// Where clusters begin.
type Cutoffs = Vec<usize>;

options! {
    /// What an [`AdaptiveLogSoftmaxWithLoss`] is made of.
    AdaptiveLogSoftmaxWithLossOptions for AdaptiveLogSoftmaxWithLoss (
        /// Size of the inputs.
        in_features: usize, usize;
        /// How many classes.
        n_classes: usize, usize;
        /// Where the clusters begin, rising; the classes below the first one are the head's own.
        cutoffs: Cutoffs, impl Into<Cutoffs>;
    )
    /// By how much each cluster's projection is smaller than the one before. Default: 4.
    div_value: f64, f64 = 4.0;
    /// Has the head a bias? Default: false.
    head_bias: bool, bool = false;
}

impl AdaptiveLogSoftmaxWithLossOptions {
    fn make(&self, device: Device) -> Result<AdaptiveLogSoftmaxWithLoss> {
        const OP: &str = "adaptive_log_softmax_with_loss";
        let mut cutoffs = self.cutoffs.clone();
        let rises = cutoffs.windows(2).all(|w| w[0] < w[1]);
        if !rises || cutoffs.first().is_none_or(|&c| c == 0) || cutoffs.last().is_none_or(|&c| c >= self.n_classes) {
            let why = "cutoffs should be unique, positive integers in increasing order, each between 1 and n_classes-1";
            return Err(Error::value(OP, why));
        }
        if self.div_value.is_nan() || self.div_value <= 0.0 {
            return Err(Error::value(OP, format!("div_value must be above 0, got {}", self.div_value)));
        }
        let linear = |inputs: usize, outputs: usize, bias: bool| {
            let mut options = Linear::options(inputs, outputs).bias(bias);
            options.dtype = self.dtype;
            options.build(device)
        };
        let head = field("head", linear(self.in_features, cutoffs[0] + cutoffs.len(), self.head_bias))?;
        cutoffs.push(self.n_classes);
        let mut tail = Vec::new();
        for (i, pair) in cutoffs.windows(2).enumerate() {
            let hidden = (self.in_features as f64 / self.div_value.powi(i as i32 + 1)).floor() as usize;
            let made = || {
                let inner = field("0", linear(self.in_features, hidden, false))?;
                let outer = field("1", linear(hidden, pair[1] - pair[0], false))?;
                Ok(Sequential::new().add(inner).add(outer))
            };
            tail.push(field("tail", field(&i.to_string(), made()))?);
        }
        Ok(AdaptiveLogSoftmaxWithLoss { head, tail, cutoffs, place: Place::default() })
    }
}

impl AdaptiveLogSoftmaxWithLoss {
    /// Log-probabilities of the classes (N) under inputs (N, in_features), or both without N; and their negative mean.
    ///
    /// # Errors
    /// For shapes that do not fit, and classes out of range.
    pub fn forward(&self, input: &Tensor, target: &Tensor) -> Result<(Tensor, Tensor)> {
        located(self, || {
            const OP: &str = "adaptive_log_softmax_with_loss";
            let fits = match target.ndim() {
                0 => input.ndim() == 1,
                1 => input.ndim() == 2 && input.shape()[0] == target.shape()[0],
                _ => false,
            };
            if !fits {
                let why = "expected input (N, in_features) and target (N), or both without N";
                return Err(Error::shape(OP, why, &[input.shape(), target.shape()]));
            }
            let alone = target.ndim() == 0;
            let (x, y) = match alone {
                true => (input.unsqueeze(0)?, target.unsqueeze(0)?),
                false => (input.clone(), target.clone()),
            };
            let classes = self.cutoffs.last().copied().unwrap_or(0) as i64;
            let y = y.cast(DType::I64)?;
            if y.to_vec::<i64>()?.iter().any(|&class| class < 0 || class >= classes) {
                return Err(Error::index(OP, format!("target values should be in [0, {}]", classes - 1)));
            }
            let each = self.log_prob(&x)?.gather(1, &y.unsqueeze(1)?)?.squeeze(Some(&[1]))?;
            let loss = (-&each)?.mean(None, false, None)?;
            Ok((if alone { each.squeeze(Some(&[0]))? } else { each }, loss))
        })
    }

    /// Log-probabilities of all classes: (N, in_features) to (N, n_classes).
    ///
    /// # Errors
    /// For shapes that do not fit.
    pub fn log_prob(&self, input: &Tensor) -> Result<Tensor> {
        located(self, || {
            if input.ndim() != 2 {
                return Err(Error::shape("log_prob", "expected (N, in_features)", &[input.shape()]));
            }
            let first = self.cutoffs.first().copied().unwrap_or(0) as i64;
            let head = self.head.forward(input)?.log_softmax(1, None)?;
            let mut parts = vec![head.narrow(1, 0, first)?];
            for (i, cluster) in self.tail.iter().enumerate() {
                let own = cluster.forward(input)?.log_softmax(1, None)?;
                parts.push((own + &head.narrow(1, first + i as i64, 1)?)?);
            }
            index::cat(&parts, 1)
        })
    }

    /// The most probable class of each input: (N, in_features) to (N).
    ///
    /// # Errors
    /// For shapes that do not fit.
    pub fn predict(&self, input: &Tensor) -> Result<Tensor> {
        let all = self.log_prob(input)?;
        located(self, || all.argmax(1, false))
    }
}
