//! Losses that are made of another module: of a linear layer, and of a distance.

use super::module::located;
use super::options::{options, reduced};
use super::{field, Forward, Linear, Module, PairwiseDistance, Place, Reduction};
use crate::ops::loss as op;
use crate::shape::numel;
use crate::{Device, Error, Result, Tensor};
use std::fmt;
use std::sync::Arc;

/// [`CrossEntropyLoss`](super::CrossEntropyLoss) of a linear layer's scores: (N, in) and classes (N), or (N, d₁, …) with
/// `places`. The layer is the part `linear`.
///
/// ```
/// use lucid::prelude::*;
/// # fn main() -> Result<()> {
/// let loss = nn::LinearCrossEntropyLoss::new(3, 4, Device::Cpu)?;
/// assert_eq!(loss.forward(&Tensor::ones([2, 3])?, &tensor!([0, 3])?)?.ndim(), 0);
/// assert_eq!(loss.state_dict()?.into_keys().collect::<Vec<_>>(), ["linear.weight"]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Module)]
pub struct LinearCrossEntropyLoss {
    linear: Linear,
    #[module(buffer)]
    weight: Option<Tensor>,
    #[module(skip)]
    options: LinearCrossEntropyLossOptions,
    place: Place,
}

options! {
    /// What a [`LinearCrossEntropyLoss`] is made of.
    LinearCrossEntropyLossOptions for LinearCrossEntropyLoss (
        /// Size of the inputs.
        in_features: usize, usize;
        /// How many classes.
        num_classes: usize, usize;
    )
    /// Sizes (d₁, …) of the places that each have a loss. Default: one place.
    places: Vec<usize>, impl Into<Vec<usize>> = Vec::new();
    /// Has the layer a bias? Default: false.
    bias: bool, bool = false;
    /// How the elements become one number. Default: by their mean.
    reduction: Reduction, Reduction = Reduction::Mean;
    /// A factor for each class. Default: none.
    weight: Option<Tensor>, Tensor = None;
    /// A class that counts nothing. Default: -100.
    ignore_index: i64, i64 = -100i64;
    /// Share of the uniform distribution in the target. Default: 0.
    label_smoothing: f64, f64 = 0.0;
}

impl LinearCrossEntropyLossOptions {
    fn make(&self, device: Device) -> Result<LinearCrossEntropyLoss> {
        const OP: &str = "linear_cross_entropy";
        if let Some(weight) = self.weight.as_ref().filter(|w| w.shape() != [self.num_classes]) {
            let why = format!("expected weight of shape [{}]", self.num_classes);
            return Err(Error::shape(OP, why, &[weight.shape()]));
        }
        if !(0.0..=1.0).contains(&self.label_smoothing) {
            let why = format!("label_smoothing has to be between 0 and 1, got {}", self.label_smoothing);
            return Err(Error::value(OP, why));
        }
        let outputs = numel(&[&[self.num_classes], &self.places[..]].concat());
        let mut linear = Linear::options(self.in_features, outputs).bias(self.bias);
        linear.dtype = self.dtype;
        let weight = self.weight.as_ref().map(|w| w.to_device(device)).transpose()?;
        let linear = field("linear", linear.build(device))?;
        Ok(LinearCrossEntropyLoss { linear, weight, options: self.clone(), place: Place::default() })
    }
}

impl LinearCrossEntropyLoss {
    /// The loss of inputs (N, in) or (in), and classes or probabilities.
    ///
    /// # Errors
    /// For shapes and dtypes that do not fit.
    pub fn forward(&self, input: &Tensor, target: &Tensor) -> Result<Tensor> {
        located(self, || {
            let own = &self.options;
            if !matches!(input.ndim(), 1 | 2) || (input.ndim() == 1 && !own.places.is_empty()) {
                let why = "expected inputs (N, in), or (in) for one place";
                return Err(Error::shape("linear_cross_entropy", why, &[input.shape()]));
            }
            let mut shape = super::options::dims(&input.shape()[..input.ndim() - 1]);
            shape.push(own.num_classes as isize);
            shape.extend(super::options::dims(&own.places));
            let scores = self.linear.forward(input)?.reshape(&shape)?;
            let weight = self.weight.as_ref();
            op::cross_entropy(&scores, target, weight, own.ignore_index, own.reduction, own.label_smoothing)
        })
    }
}

/// Distances of two tensors' rows.
type Distance = Arc<dyn Fn(&Tensor, &Tensor) -> Result<Tensor> + Send + Sync>;

/// `max(0, d(a, p) - d(a, n) + margin)` of anchors, positives and negatives, with any distance.
///
/// ```
/// use lucid::prelude::*;
/// # fn main() -> Result<()> {
/// let loss = nn::TripletMarginWithDistanceLoss::new(|a, b| (a - b)?.abs()?.max_over(-1));
/// let (a, n) = (Tensor::zeros([1, 2])?, tensor!([[0.3, 0.4]])?);
/// assert_close(loss.forward(&a, &a, &n)?, 0.6);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Module)]
pub struct TripletMarginWithDistanceLoss {
    #[module(skip)]
    distance: Distance,
    margin: f64,
    swap: bool,
    #[module(skip)]
    reduction: Reduction,
    place: Place,
}

impl fmt::Debug for TripletMarginWithDistanceLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { margin, swap, reduction, .. } = self;
        write!(f, "TripletMarginWithDistanceLoss {{ margin: {margin}, swap: {swap}, reduction: {reduction:?} }}")
    }
}

impl Default for TripletMarginWithDistanceLoss {
    /// With [`PairwiseDistance`].
    fn default() -> Self {
        let distance = PairwiseDistance::new();
        Self::new(move |a, b| distance.forward(a, b))
    }
}

impl TripletMarginWithDistanceLoss {
    /// With a distance of its own.
    pub fn new(distance: impl Fn(&Tensor, &Tensor) -> Result<Tensor> + Send + Sync + 'static) -> Self {
        let distance = Arc::new(distance);
        let (margin, swap, reduction) = (1.0, false, Reduction::Mean);
        TripletMarginWithDistanceLoss { distance, margin, swap, reduction, place: Place::default() }
    }

    /// The margin, above 0. Default: 1.
    #[must_use]
    pub fn margin(mut self, margin: f64) -> Self {
        self.margin = margin;
        self
    }

    /// Is the distance from positive to negative taken where it is less? Default: false.
    #[must_use]
    pub fn swap(mut self, on: bool) -> Self {
        self.swap = on;
        self
    }

    /// How the elements become one number. Default: by their mean.
    #[must_use]
    pub fn reduction(mut self, reduction: Reduction) -> Self {
        self.reduction = reduction;
        self
    }

    /// The loss.
    ///
    /// # Errors
    /// For a margin that is not above 0, and what the distance reports.
    pub fn forward(&self, anchor: &Tensor, positive: &Tensor, negative: &Tensor) -> Result<Tensor> {
        located(self, || {
            if self.margin.is_nan() || self.margin <= 0.0 {
                let why = format!("expected margin to be greater than 0, got {} instead", self.margin);
                return Err(Error::value("triplet_margin_with_distance_loss", why));
            }
            let (near, far) = ((self.distance)(anchor, positive)?, (self.distance)(anchor, negative)?);
            let far = if self.swap { far.minimum(&(self.distance)(positive, negative)?)? } else { far };
            reduced(((near - &far)? + self.margin)?.relu()?, self.reduction)
        })
    }
}
