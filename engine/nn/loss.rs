//! Losses: of a prediction and a target, reduced to one number.

use super::module::located;
use super::options::reduced;
use super::{Module, Place, Reduction};
use crate::fallible::collected;
use crate::ops::compare::select::r#where;
use crate::ops::{loss as op, Integer, KlReduction};
use crate::{DType, Error, Result, Tensor};

/// A struct per loss, with PyTorch's defaults, a setter per field, and `forward`.
macro_rules! losses {
    ($(
        $(#[$doc:meta])*
        $Name:ident { $($(#[$fdoc:meta])* $field:ident: $Ty:ty, $Arg:ty = $default:expr;)* }
        ($($arg:ident),*) |$own:ident| $body:expr;
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Module)]
        pub struct $Name {
            #[module(skip)]
            reduction: Reduction,
            $(#[module(skip)] $field: $Ty,)*
            place: Place,
        }

        impl Default for $Name {
            fn default() -> Self {
                $Name { reduction: Reduction::Mean, $($field: $default,)* place: Place::default() }
            }
        }

        impl $Name {
            /// The loss with PyTorch's defaults: the mean.
            pub fn new() -> Self {
                Self::default()
            }
            /// How the elements become one number. Default: by their mean.
            #[must_use]
            pub fn reduction(mut self, reduction: Reduction) -> Self {
                self.reduction = reduction;
                self
            }
            $($(#[$fdoc])*
            #[must_use]
            pub fn $field(mut self, $field: $Arg) -> Self {
                self.$field = $field.into();
                self
            })*
            /// The loss.
            ///
            /// # Errors
            /// For shapes and dtypes that do not fit.
            pub fn forward(&self, $($arg: &Tensor),*) -> Result<Tensor> {
                let $own = self;
                located(self, || $body)
            }
        }
    )*};
}

fn same_shape(name: &'static str, a: &Tensor, b: &Tensor) -> Result<()> {
    match a.shape() == b.shape() {
        true => Ok(()),
        false => Err(Error::shape(name, "the shapes of input and target must be the same", &[a.shape(), b.shape()])),
    }
}

fn class_indices(name: &'static str, x: &Tensor, y: &Tensor) -> Result<()> {
    match x.ndim() == 2 && y.shape() == &x.shape()[..1] && y.dtype().is_integral() {
        true => Ok(()),
        false => {
            Err(Error::shape(name, "expected input (N, C) and a target (N) of class indices", &[x.shape(), y.shape()]))
        }
    }
}

losses! {
    /// `(x - y)²`.
    MseLoss {} (input, target) |own| op::mse_loss(input, target, own.reduction);
    /// `|x - y|`.
    L1Loss {} (input, target) |own| op::l1_loss(input, target, own.reduction);
    /// `(x - y)² / 2β` where the difference is below β, else `|x - y| - β/2`.
    SmoothL1Loss {
        /// β. Default: 1.
        beta: f64, f64 = 1.0;
    } (input, target) |own| op::smooth_l1_loss(input, target, own.reduction, own.beta);
    /// `(x - y)² / 2` where the difference is below δ, else `δ (|x - y| - δ/2)`.
    HuberLoss {
        /// δ. Default: 1.
        delta: f64, f64 = 1.0;
    } (input, target) |own| op::huber_loss(input, target, own.reduction, own.delta);
    /// `-log(softmax(x)[class])` of scores (N, C, …) and classes (N, …), or probabilities (N, C, …).
    ///
    /// ```
    /// use lucid::prelude::*;
    /// # fn main() -> Result<()> {
    /// let (scores, classes) = (tensor!([[2.0, 0.0], [0.0, 2.0]])?, tensor!([0, 1])?);
    /// let loss = nn::CrossEntropyLoss::new().label_smoothing(0.1).forward(&scores, &classes)?;
    /// assert!((loss.item_f64()? - 0.2269).abs() < 1e-4);
    /// assert_eq!(nn::CrossEntropyLoss::new().reduction(Reduction::None).forward(&scores, &classes)?.shape(), [2]);
    /// # Ok(())
    /// # }
    /// ```
    CrossEntropyLoss {
        /// A factor for each class. Default: none.
        weight: Option<Tensor>, impl Into<Option<Tensor>> = None;
        /// A class that counts nothing. Default: -100.
        ignore_index: i64, i64 = -100i64;
        /// Share of the uniform distribution in the target. Default: 0.
        label_smoothing: f64, f64 = 0.0;
    } (input, target) |own| {
        let weight = own.weight.as_ref();
        op::cross_entropy(input, target, weight, own.ignore_index, own.reduction, own.label_smoothing)
    };
    /// `-x[class]` of logarithms of probabilities (N, C, …) and classes (N, …).
    NllLoss {
        /// A factor for each class. Default: none.
        weight: Option<Tensor>, impl Into<Option<Tensor>> = None;
        /// A class that counts nothing. Default: -100.
        ignore_index: i64, i64 = -100i64;
    } (input, target) |own| op::nll_loss(input, target, own.weight.as_ref(), own.ignore_index, own.reduction);
    /// `-(y log x + (1 - y) log(1 - x))` of probabilities.
    BceLoss {
        /// A factor for each element. Default: none.
        weight: Option<Tensor>, impl Into<Option<Tensor>> = None;
    } (input, target) |own| op::binary_cross_entropy(input, target, own.weight.as_ref(), own.reduction);
    /// [`BceLoss`] of the sigmoid of scores, without its rounding.
    BceWithLogitsLoss {
        /// A factor for each element. Default: none.
        weight: Option<Tensor>, impl Into<Option<Tensor>> = None;
        /// A factor for what is positive. Default: none.
        pos_weight: Option<Tensor>, impl Into<Option<Tensor>> = None;
    } (input, target) |own| {
        let (weight, positive) = (own.weight.as_ref(), own.pos_weight.as_ref());
        op::binary_cross_entropy_with_logits(input, target, weight, own.reduction, positive)
    };
    /// `y (log y - x)` of logarithms of probabilities; `batch_mean` divides the sum by the number of samples.
    KlDivLoss {
        /// Is the target given by its logarithms, too? Default: false.
        log_target: bool, bool = false;
        /// Is the sum divided by the number of samples, as the definition has it? Default: false.
        batch_mean: bool, bool = false;
    } (input, target) |own| {
        match own.batch_mean {
            true => op::kl_div(input, target, KlReduction::BatchMean, own.log_target),
            false => op::kl_div(input, target, own.reduction, own.log_target),
        }
    };
    /// `eˣ - y x`, or `x - y log(x + eps)`: minus the logarithm of Poisson's distribution, without its constant.
    PoissonNllLoss {
        /// Is the input the logarithm of the rate? Default: true.
        log_input: bool, bool = true;
        /// Is Stirling's approximation of the constant added? Default: false.
        full: bool, bool = false;
        /// Added to the rate in its logarithm. Default: 1e-8.
        eps: f64, f64 = 1e-8;
    } (input, target) |own| {
        let loss = match own.log_input {
            true => (input.exp()? - &(target * input)?)?,
            false => (input - &(target * &(input + own.eps)?.log()?)?)?,
        };
        let loss = match own.full {
            true => {
                let stirling = (((target * &target.log()?)? - target)? + ((target * std::f64::consts::TAU)?.log()? * 0.5)?)?;
                (loss + &stirling.masked_fill(&target.le(1.0)?, 0.0)?)?
            }
            false => loss,
        };
        reduced(loss, own.reduction)
    };
    /// `½ (log v + (x - y)² / v)`: minus the logarithm of a normal distribution, without its constant.
    GaussianNllLoss {
        /// Is the constant added? Default: false.
        full: bool, bool = false;
        /// The least variance. Default: 1e-6.
        eps: f64, f64 = 1e-6;
    } (input, target, var) |own| {
        if var.lt(0.0)?.any(None, false)?.item_bool()? {
            return Err(Error::value("gaussian_nll_loss", "var has negative entry/entries"));
        }
        // The floor has no gradient of its own.
        let floor = var.detach()?.clamp(Some(own.eps.into()), None)?;
        let v = (var + &(floor - &var.detach()?)?)?;
        let loss = ((v.log()? + &((input - target)?.square()? / &v)?)? * 0.5)?;
        let loss = if own.full { (loss + 0.5 * std::f64::consts::TAU.ln())? } else { loss };
        reduced(loss, own.reduction)
    };
    /// `x` where y is 1, `max(0, margin - x)` where it is -1.
    HingeEmbeddingLoss {
        /// The margin. Default: 1.
        margin: f64, f64 = 1.0;
    } (input, target) |own| {
        let zeros = input.zeros_like()?;
        let far = r#where(&target.ne(1.0)?, &(own.margin - input)?.relu()?, &zeros)?;
        let near = r#where(&target.ne(-1.0)?, input, &zeros)?;
        reduced((far + &near)?, own.reduction)
    };
    /// `max(0, -y (x₁ - x₂) + margin)`.
    MarginRankingLoss {
        /// The margin. Default: 0.
        margin: f64, f64 = 0.0;
    } (input1, input2, target) |own| {
        let gap = ((-target)? * &(input1 - input2)?)?;
        reduced((gap + own.margin)?.relu()?, own.reduction)
    };
    /// `log(1 + e^(-y x))`.
    SoftMarginLoss {} (input, target) |own| {
        reduced(((-target)? * input)?.exp()?.log1p()?, own.reduction)
    };
    /// The mean over the classes of [`BceWithLogitsLoss`].
    MultiLabelSoftMarginLoss {
        /// A factor for each class. Default: none.
        weight: Option<Tensor>, impl Into<Option<Tensor>> = None;
    } (input, target) |own| {
        same_shape("multilabel_soft_margin_loss", input, target)?;
        let each = op::binary_cross_entropy_with_logits(input, target, own.weight.as_ref(), Reduction::None, None)?;
        reduced(each.mean(Some(&[-1]), false, None)?, own.reduction)
    };
    /// `Σ max(0, margin - x[y] + x[i])^p / C` over the other classes, of scores (N, C).
    MultiMarginLoss {
        /// p, 1 or 2. Default: 1.
        p: i64, i64 = 1i64;
        /// The margin. Default: 1.
        margin: f64, f64 = 1.0;
        /// A factor for each class. Default: none.
        weight: Option<Tensor>, impl Into<Option<Tensor>> = None;
    } (input, target) |own| {
        class_indices("multi_margin_loss", input, target)?;
        if own.p != 1 && own.p != 2 {
            return Err(Error::value("multi_margin_loss", format!("p must be 1 or 2, got {}", own.p)));
        }
        let place = target.unsqueeze(1)?;
        let gap = ((own.margin - &input.gather(1, &place)?)? + input)?.relu()?;
        let gap = if own.p == 2 { gap.square()? } else { gap };
        let gap = match &own.weight {
            Some(weight) => (gap * &weight.index_select(0, target)?.unsqueeze(1)?)?,
            None => gap,
        };
        let rest = crate::ops::nn::one_hot(target, input.shape()[1] as i64)?.eq(0.0)?.cast(gap.dtype())?;
        reduced((gap * &rest)?.mean(Some(&[1]), false, None)?, own.reduction)
    };
    /// `Σ max(0, 1 - x[j] + x[i]) / C` over listed labels j and other classes i, of scores (N, C) or (C) and lists of labels of
    /// that shape, each ended by -1.
    MultiLabelMarginLoss {} (input, target) |own| {
        const OP: &str = "multilabel_margin_loss";
        same_shape(OP, input, target)?;
        if !matches!(input.ndim(), 1 | 2) || target.dtype() != DType::I64 {
            let why = format!("expected scores (N, C) or (C) and int64 labels, got {}", target.dtype());
            return Err(Error::shape(OP, why, &[input.shape(), target.shape()]));
        }
        let alone = input.ndim() == 1;
        let rows = |t: &Tensor| if alone { t.unsqueeze(0) } else { Ok(t.clone()) };
        let (x, y) = (rows(input)?, rows(target)?);
        let classes = x.shape()[1];
        let listed = y.lt(0)?.cast(DType::I64)?.cumsum(1, None)?.eq(0)?;
        let labels = y.masked_fill(&listed.logical_not()?, 0)?;
        let places = crate::ops::create::arange_of(classes, x.device())?;
        let matches = labels.unsqueeze(2)?.eq(&places)?.logical_and(&listed.unsqueeze(2)?)?;
        let others = matches.any(Some(&[1]), false)?.logical_not()?;
        let gap = ((1.0 - &x.gather(1, &labels)?.unsqueeze(2)?)? + &x.unsqueeze(1)?)?.relu()?;
        let counted = listed.unsqueeze(2)?.logical_and(&others.unsqueeze(1)?)?;
        let loss = (gap.masked_fill(&counted.logical_not()?, 0.0)?.sum(Some(&[1, 2]), false, None)? / classes as f64)?;
        reduced(if alone { loss.squeeze(Some(&[0]))? } else { loss }, own.reduction)
    };
    /// `1 - cos(x₁, x₂)` where y is 1, `max(0, cos(x₁, x₂) - margin)` where it is -1.
    CosineEmbeddingLoss {
        /// The margin. Default: 0.
        margin: f64, f64 = 0.0;
    } (input1, input2, target) |own| {
        const EPS: f64 = 1e-12;
        let of = |a: &Tensor, b: &Tensor| (a * b)?.sum(Some(&[-1]), false, None);
        let square = |x: &Tensor| of(x, x)? + EPS;
        let cosine = (of(input1, input2)? / (square(input1)? * &square(input2)?)?.sqrt()?)?;
        let zeros = cosine.zeros_like()?;
        let near = r#where(&target.eq(1.0)?, &(1.0 - &cosine)?, &zeros)?;
        let far = r#where(&target.eq(-1.0)?, &(&cosine - own.margin)?.relu()?, &zeros)?;
        reduced((near + &far)?, own.reduction)
    };
    /// `max(0, |a - p| - |a - n| + margin)` of anchors, positives and negatives (N, D).
    TripletMarginLoss {
        /// The margin. Default: 1.
        margin: f64, f64 = 1.0;
        /// Which norm. Default: 2.
        p: f64, f64 = 2.0;
        /// Added to differences. Default: 1e-6.
        eps: f64, f64 = 1e-6;
        /// Is the distance from positive to negative taken where it is less? Default: false.
        swap: bool, bool = false;
    } (anchor, positive, negative) |own| {
        let distance = |a: &Tensor, b: &Tensor| super::distance::pairwise(a, b, own.p, own.eps, false);
        let (near, far) = (distance(anchor, positive)?, distance(anchor, negative)?);
        let far = if own.swap { far.minimum(&distance(positive, negative)?)? } else { far };
        reduced(((near - &far)? + own.margin)?.relu()?, own.reduction)
    };
}

/// Connectionist temporal classification (Graves et al., 2006): minus the logarithm of the probability of a target among
/// all its alignments.
#[derive(Clone, Debug, Default, Module)]
pub struct CtcLoss {
    blank: i64,
    #[module(skip)]
    reduction: Reduction,
    zero_infinity: bool,
    place: Place,
}

impl CtcLoss {
    /// The loss with PyTorch's defaults.
    pub fn new() -> CtcLoss {
        CtcLoss::default()
    }

    /// The blank class. Default: 0.
    #[must_use]
    pub fn blank(mut self, blank: impl Integer) -> CtcLoss {
        self.blank = blank.wide();
        self
    }

    /// How the losses become one number; the mean divides each by its target's length first. Default: by their mean.
    #[must_use]
    pub fn reduction(mut self, reduction: Reduction) -> CtcLoss {
        self.reduction = reduction;
        self
    }

    /// Are infinite losses taken for 0? Default: false.
    #[must_use]
    pub fn zero_infinity(mut self, on: bool) -> CtcLoss {
        self.zero_infinity = on;
        self
    }

    /// Logarithms of probabilities (T, N, C), targets (N, S) or all labels in a row, and the lengths of both (N).
    ///
    /// # Errors
    /// For shapes, lengths and classes that do not fit.
    pub fn forward(&self, log_probs: &Tensor, targets: &Tensor, inputs: &[usize], lengths: &[usize]) -> Result<Tensor> {
        located(self, || {
            // What is longer than any tensor is so, too, when it is cut off.
            let signed = |n: &[usize]| collected(n.iter().map(|&n| isize::try_from(n).unwrap_or(isize::MAX)));
            let (inputs, lengths) = (signed(inputs)?, signed(lengths)?);
            let how = (self.blank, self.reduction, self.zero_infinity);
            op::ctc_loss(log_probs, targets, &inputs, &lengths, how.0, how.1, how.2)
        })
    }
}
