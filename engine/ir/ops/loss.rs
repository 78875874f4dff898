//! Losses: the rows of the family, and the primitives and arguments that they make.

use super::macros::define_primitives;
use lucid_core::{Error, Result};
use std::sync::Arc;

/// How the losses of a batch are put together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reduction {
    /// They are not: one loss per element.
    None,
    /// Added up.
    Sum,
    /// Added up and divided by how many count.
    #[default]
    Mean,
}

/// Which sequences [`LossOp::Ctc`] aligns: how long the inputs and the labels of each are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alignment {
    /// Steps of each input.
    pub inputs: Arc<[usize]>,
    /// Labels of each.
    pub labels: Arc<[usize]>,
    /// The class between labels.
    pub blank: usize,
    /// Have those that cannot be aligned no gradient?
    pub zero_infinity: bool,
}

impl Alignment {
    /// The steps, sequences and classes of `log_probs`, and the room for labels, where the shapes are those of these sequences.
    /// Whatever is in front of the last three dimensions, and of the last two of `targets`, is a batch of such.
    pub fn sizes(&self, log_probs: &[usize], targets: &[usize]) -> Option<[usize; 4]> {
        let (&[ref lead @ .., steps, count, classes], &[ref also @ .., rows, room]) = (log_probs, targets) else {
            return None;
        };
        let fits = lead == also
            && rows == count
            && self.inputs.len() == count
            && self.labels.len() == count
            && self.inputs.iter().all(|&n| n <= steps)
            && self.labels.iter().all(|&n| n <= room)
            && self.blank < classes;
        fits.then_some([steps, count, classes, room])
    }
}

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! loss_ops {
    ($cb:ident) => { $crate::rows! { $cb "loss" LossOp :
        /// `(input - target)²`.
        function mse_loss(input: Tensor, target: Tensor; reduction: Text = "mean") -> Tensor {
            amp: Full, dtypes: FLOAT, result: Same,
            run: mse_body, torch: "nn.functional.mse_loss",
            samples: ["N(3, 4), N(3, 4)", "N(3, 4), N(3, 4), reduction='sum'", "N(3, 4), N(3, 4), reduction='none'"],
            example: ["assert_close(mse_loss(&tensor([1.0, 2.0])?, &tensor([1.0, 4.0])?, Reduction::Mean)?, 2.0);"],
        }
        /// `|input - target|`; of complex numbers too.
        function l1_loss(input: Tensor, target: Tensor; reduction: Text = "mean") -> Tensor {
            flags: [steps], amp: Full, dtypes: INEXACT, result: Real,
            run: l1_body, node: "mean", torch: "nn.functional.l1_loss",
            samples: ["N(3, 4), N(3, 4)", "N(3, 4), N(3, 4), reduction='none'"],
            example: ["assert_close(l1_loss(&tensor([1.0, 2.0])?, &tensor([1.0, 4.0])?, Reduction::Sum)?, 2.0);"],
        }
        /// Quadratic below `beta`, linear above, with slope 1 (Girshick, 2015).
        function smooth_l1_loss(input: Tensor, target: Tensor; reduction: Text = "mean", beta: Float = 1.0) -> Tensor {
            amp: Full, dtypes: FLOAT, result: Same,
            run: smooth_l1_body, torch: "nn.functional.smooth_l1_loss",
            samples: ["N(3, 4), N(3, 4)", "N(3, 4), N(3, 4), beta=0.5, reduction='sum'"],
            example: [
                "let made = smooth_l1_loss(&tensor([0.0, 0.0])?, &tensor([0.5, 3.0])?, Reduction::None, 1.0)?;",
                "assert_close(made, [0.125, 2.5]);",
            ],
        }
        /// Quadratic below `delta`, linear above, with slope `delta` (Huber, 1964).
        function huber_loss(input: Tensor, target: Tensor; reduction: Text = "mean", delta: Float = 1.0) -> Tensor {
            amp: Full, dtypes: FLOAT, result: Same,
            run: huber_body, torch: "nn.functional.huber_loss",
            samples: ["N(3, 4), N(3, 4)", "N(3, 4), N(3, 4), delta=0.5"],
            example: [
                "let made = huber_loss(&tensor([0.0, 0.0])?, &tensor([1.0, 3.0])?, Reduction::None, 2.0)?;",
                "assert_close(made, [0.5, 4.0]);",
            ],
        }
        /// The negative log-likelihood of class indices `target` (N, …) under log-probabilities (N, C, …). Targets
        /// equal to `ignore_index` count nothing; the mean is weighted by the classes' `weight`, which takes no
        /// gradient: one that requires it raises.
        function nll_loss(
            input: Tensor, target: Tensor, weight: OptTensor = None; ignore_index: Int = -100, reduction: Text = "mean"
        ) -> Tensor {
            flags: [piecewise_linear], amp: Full, dtypes: FLOAT, result: Same,
            primitive: Nll { ignore: i64, reduction: Reduction }, saves: Second,
            gradient: |c, g| [nll_spread(g, &c.x(1)?, last(c.shape(0)), *ignore, *reduction)],
            run: nll_body, torch: "nn.functional.nll_loss",
            samples: [
                "N(3, 5), I(0, 5, 3)",
                "N(3, 5), I(0, 5, 3), ignore_index=1, reduction='sum'",
                "N(3, 5), I(0, 5, 3), reduction='none'",
                "N(2, 5, 4), I(0, 5, 2, 4), FIXED(P(5)), reduction='sum'",
                "N(5), I(0, 5)",
            ],
            example: [
                "let log_probabilities = tensor([[-1.0, -2.0], [-3.0, -4.0]])?;",
                "assert_close(nll_loss(&log_probabilities, &tensor([0, 1])?, None, -100, Reduction::Mean)?, 2.5);",
            ],
        }
        /// The gradient through [`nll_loss`] of (…, N, C) with N `target`s from `grad`, which has the loss's shape:
        /// its share of `grad` with the other sign at each target that is not ignored, and zeros elsewhere.
        function nll_loss_gradient(
            grad: Tensor, target: Tensor, classes: Int, ignore_index: Int, reduction: Text
        ) -> Tensor {
            flags: [internal], amp: Own, dtypes: FLOAT, result: Same,
            primitive: NllGradient { classes: usize, ignore: i64, reduction: Reduction }, saves: Second,
            gradient: |c, v| [nll_of_rows(v, &c.x(1)?, *ignore, *reduction)],
            run: nll_gradient_body, torch: "-",
            samples: [
                "N(), I(0, 5, 3), 5, -100, 'mean'",
                "N(), I(0, 5, 3), 5, 1, 'sum'",
                "N(3), I(0, 5, 3), 5, -100, 'none'",
            ],
            example: [
                "let made = nll_loss_gradient(&tensor(1.0)?, &tensor([0, 1])?, 2, -100, Reduction::Mean)?;",
                "assert_close(made, [[-0.5, 0.0], [0.0, -0.5]]);",
            ],
        }
        /// [`nll_loss`] of the log-softmax of logits (N, C, …); `target` may also be class probabilities of input's
        /// shape.
        function cross_entropy(
            input: Tensor, target: Tensor, weight: OptTensor = None; ignore_index: Int = -100, reduction: Text = "mean",
            label_smoothing: Float = 0.0
        ) -> Tensor {
            amp: Full, dtypes: FLOAT, result: Same,
            run: cross_entropy_body, node: "nll_loss", torch: "nn.functional.cross_entropy",
            samples: [
                "N(3, 5), I(0, 5, 3)",
                "N(3, 5), I(0, 5, 3), FIXED(P(5))",
                "N(2, 5, 4), I(0, 5, 2, 4), label_smoothing=0.1",
                "N(3, 5), U(3, 5)",
                "N(3, 5), I(0, 5, 3), ignore_index=1, reduction='none'",
            ],
            example: [
                "let logits = tensor([[0.0, 0.0], [0.0, 3f64.ln()]])?;",
                "let made = cross_entropy(&logits, &tensor([0, 1])?, None, -100, Reduction::None, 0.0)?;",
                "assert_close(made, [0.69315, 0.28768]);",
            ],
        }
        /// `-(t log p + (1 - t) log(1 - p))`, each logarithm held above -100. A `weight` that requires a gradient
        /// raises.
        function binary_cross_entropy(
            input: Tensor, target: Tensor, weight: OptTensor = None; reduction: Text = "mean"
        ) -> Tensor {
            amp: Full, dtypes: FLOAT, result: Same,
            run: bce_body, torch: "nn.functional.binary_cross_entropy",
            samples: ["P(3, 4, lo=0.1, hi=0.9), FIXED(P(3, 4, lo=0.1, hi=0.9))"],
            example: [
                "let made = binary_cross_entropy(&tensor([0.5, 1.0])?, &tensor([1.0, 0.0])?, None, Reduction::None)?;",
                "assert_close(made, [0.69315, 100.0]);",
            ],
        }
        /// [`binary_cross_entropy`] of the sigmoid of logits, without overflow; `pos_weight` weighs the positive part.
        /// A weight that requires a gradient raises.
        function binary_cross_entropy_with_logits(
            input: Tensor, target: Tensor, weight: OptTensor = None; reduction: Text = "mean",
            pos_weight: OptTensor = None
        ) -> Tensor {
            amp: Full, dtypes: FLOAT, result: Same,
            run: bce_logits_body, torch: "nn.functional.binary_cross_entropy_with_logits",
            samples: [
                "N(3, 4), P(3, 4, lo=0.1, hi=0.9)",
                "N(3, 4), P(3, 4, lo=0.1, hi=0.9), FIXED(P(4)), pos_weight=FIXED(P(4))",
            ],
            example: [
                "let (logits, target) = (tensor([0.0, 1000.0])?, tensor([1.0, 0.0])?);",
                "let made = binary_cross_entropy_with_logits(&logits, &target, None, Reduction::None, None)?;",
                "assert_close(made, [0.69315, 1000.0]);",
            ],
        }
        /// `(1 - target) input + log(1 + e^-input)` of each element: [`binary_cross_entropy_with_logits`] without
        /// weights, before it is reduced. Both have one shape.
        function bce_logits_terms(input: Tensor, target: Tensor) -> Tensor {
            flags: [internal], amp: Own, dtypes: FLOAT, result: Same,
            primitive: BceLogits, saves: Inputs,
            gradient: |c, g| [bce_logits_back(g, &c.x(0)?, &c.x(1)?), -&(g * &c.x(0)?)?],
            run: bce_logits_terms_body, torch: "-",
            samples: ["N(3, 4), P(3, 4, lo=0.1, hi=0.9)"],
            example: [
                "assert_close(bce_logits_terms(&tensor([0.0, 1000.0])?, &tensor([1.0, 0.0])?)?, [0.69315, 1000.0]);",
            ],
        }
        /// The gradient through [`bce_logits_terms`] from `grad` to its input: `grad (sigmoid(input) - target)`.
        function bce_logits_gradient(grad: Tensor, input: Tensor, target: Tensor) -> Tensor {
            flags: [internal], amp: Own, dtypes: FLOAT, result: Same,
            primitive: BceLogitsGradient, saves: Inputs,
            gradient: |c, v| [
                bce_logits_back(v, &c.x(1)?, &c.x(2)?),
                v * &(c.x(0)? * &bell(&c.x(1)?)?)?,
                -&(v * &c.x(0)?)?,
            ],
            run: bce_logits_gradient_body, torch: "-",
            samples: ["N(3, 4), N(3, 4), P(3, 4, lo=0.1, hi=0.9)"],
            example: ["assert_close(bce_logits_gradient(&tensor([2.0])?, &tensor([0.0])?, &tensor([1.0])?)?, [-1.0]);"],
        }
        /// The negative log-likelihood of label sequences under `log_probs` (T, N, C), summed over all alignments
        /// (Graves et al., 2006). `targets` are (N, S), padded, or all labels in a row, without `blank`; the mean
        /// divides each loss by its target's length first. `zero_infinity` takes losses of sequences that cannot be
        /// aligned for 0.
        function ctc_loss(
            log_probs: Tensor, targets: Tensor, input_lengths: Dims, target_lengths: Dims; blank: Int = 0,
            reduction: Text = "mean", zero_infinity: Bool = false
        ) -> Tensor {
            flags: [steps], amp: Full, dtypes: FLOAT, result: Same,
            primitive: Ctc { alignment: $crate::ops::loss::Alignment }, saves: Inputs,
            gradient: |c, g| [ctc_back(g, &c.x(0)?, &c.x(1)?, alignment)],
            run: ctc_body, torch: "nn.functional.ctc_loss",
            samples: [],
            example: [
                "let log_probs = tensor([[[0.0, 0.0, 0.0]]])?.log_softmax(2, None)?.repeat(&[4, 1, 1])?;",
                "let loss = ctc_loss(&log_probs, &tensor([[1, 2]])?, &[4], &[2], 0, Reduction::Mean, false)?;",
                "assert_close(loss, 0.8432);",
            ],
        }
        /// The gradient through [`ctc_loss`] before it is reduced, from `grad` (N) to `log_probs`: the probabilities
        /// less those of each label among all alignments. `targets` are (N, S).
        function ctc_loss_gradient(
            grad: Tensor, log_probs: Tensor, targets: Tensor, input_lengths: Dims, target_lengths: Dims, blank: Int,
            zero_infinity: Bool
        ) -> Tensor {
            flags: [internal], amp: Own, dtypes: FLOAT, result: Same,
            primitive: CtcGradient { alignment: $crate::ops::loss::Alignment }, saves: Inputs,
            gradient: |c, v| [ctc_total(v, &c.x(0)?, &c.x(1)?, &c.x(2)?, alignment), ctc_once()],
            run: ctc_gradient_body, torch: "-",
            samples: [],
            example: [
                "let log_probs = tensor([[[-0.5, -1.0]], [[-0.25, -2.0]]])?;",
                "let made = ctc_loss_gradient(&tensor([1.0])?, &log_probs, &tensor([[1]])?, &[2], &[1], 0, false)?;",
                "assert_eq!(made.shape(), log_probs.shape());",
            ],
        }
        /// `target (log target - input)` for log-probabilities `input`; `log_target` says that the target is one too.
        function kl_div(input: Tensor, target: Tensor; reduction: Text = "mean", log_target: Bool = false) -> Tensor {
            flags: [steps], amp: Full, dtypes: FLOAT, result: Same,
            run: kl_div_body, torch: "nn.functional.kl_div",
            samples: ["N(3, 4), P(3, 4), reduction='sum'", "N(3, 4), N(3, 4), log_target=True, reduction='batchmean'"],
            example: [
                "let log_half = tensor([-0.69315, -0.69315])?;",
                "assert_close(kl_div(&log_half, &tensor([0.25, 0.75])?, Reduction::Sum, false)?, 0.13081);",
            ],
        }
    }};
}
loss_ops!(define_primitives);

impl Reduction {
    /// PyTorch's name of it.
    pub fn name(self) -> &'static str {
        match self {
            Reduction::None => "none",
            Reduction::Sum => "sum",
            Reduction::Mean => "mean",
        }
    }

    /// The one of that name.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] for any other.
    #[doc(hidden)]
    pub fn of(op: &'static str, text: &str) -> Result<Reduction> {
        match text {
            "none" => Ok(Reduction::None),
            "sum" => Ok(Reduction::Sum),
            "mean" => Ok(Reduction::Mean),
            other => Err(Error::value(op, format!("{other} is not a valid value for reduction (mean, sum or none)"))),
        }
    }
}
