//! The optimizers' options, with PyTorch's defaults; what their steps are made of is in `kinds`.

use super::optimizer::{Saved, Stepper};
use crate::{Error, Result, Tensor};

/// Option structs with setters, and the optimizer as a type.
macro_rules! optimizers {
    ($(
        $(#[$doc:meta])*
        $Name:ident $Options:ident $name:literal lr $lr:literal {
            $($(#[$fdoc:meta])* $field:ident: $Ty:ty = $default:expr;)*
        }
    )*) => {$(
        #[doc = concat!("The options of [`", stringify!($Name), "`].")]
        #[derive(Clone, Debug, PartialEq)]
        pub struct $Options {
            /// Learning rate.
            pub lr: f64,
            $($(#[$fdoc])* pub $field: $Ty,)*
        }

        impl Default for $Options {
            fn default() -> Self {
                $Options { lr: $lr, $($field: $default,)* }
            }
        }

        impl $Options {
            /// Learning rate.
            #[must_use]
            pub fn lr(mut self, lr: f64) -> Self {
                self.lr = lr;
                self
            }
            $($(#[$fdoc])*
            #[must_use]
            pub fn $field(mut self, $field: $Ty) -> Self {
                self.$field = $field;
                self
            })*
            /// The optimizer of these parameters; [`Stepper::group`] adds others.
            pub fn build(self, params: impl IntoIterator<Item = Tensor>) -> $Name {
                Stepper::of(params, self)
            }
            pub(super) fn all_saved(&self) -> Vec<(&'static str, Vec<f64>)> {
                vec![("lr", self.lr.save()), $((stringify!($field), self.$field.save()),)*]
            }
            pub(super) fn load_one(&mut self, name: &str, numbers: &[f64]) -> bool {
                match name {
                    "lr" => f64::load(numbers).map(|x| self.lr = x).is_some(),
                    $(stringify!($field) => <$Ty as Saved>::load(numbers).map(|x| self.$field = x).is_some(),)*
                    _ => false,
                }
            }
            /// Refuses a rate or a penalty that is no number from 0 on.
            pub(super) fn check_rate(&self) -> Result<()> {
                within($name, "lr", self.lr, 0.0, f64::INFINITY)
            }
        }

        $(#[$doc])*
        pub type $Name = Stepper<$Options>;

        impl $Name {
            #[doc = concat!("The options, to change and [`build`](", stringify!($Options), "::build).")]
            pub fn options() -> $Options {
                $Options::default()
            }
            #[doc = concat!("The optimizer with PyTorch's defaults; [`options`](", stringify!($Name), "::options) sets others: `options().lr(0.1).build(params)`.")]
            pub fn new(params: impl IntoIterator<Item = Tensor>, lr: f64) -> Self {
                $Options::default().lr(lr).build(params)
            }
        }
    )*};
}

/// Refuses a number outside of `low..high`, the lower end included.
pub(super) fn within(name: &'static str, option: &str, x: f64, low: f64, high: f64) -> Result<()> {
    match x >= low && (x < high || high == f64::INFINITY) {
        true => Ok(()),
        false => Err(Error::value(name, format!("invalid {option} value: {x}; it is from {low} to below {high}"))),
    }
}

optimizers! {
    /// Stochastic gradient descent, with momentum as PyTorch has it.
    ///
    /// ```
    /// use lucid::prelude::*;
    /// # fn main() -> Result<()> {
    /// let w = tensor!([1.0])?.requires_grad_(true)?;
    /// let mut sgd = optim::Sgd::options().lr(0.1).momentum(0.9).build([w.clone()]);
    /// (&w * &w)?.sum_all()?.backward()?;
    /// sgd.step()?;
    /// assert_eq!(w.to_vec::<f32>()?, [0.8]);
    /// # Ok(())
    /// # }
    /// ```
    Sgd SgdOptions "sgd" lr 1e-3 {
        /// Momentum. Default: 0.
        momentum: f64 = 0.0;
        /// How much less of the gradient the momentum takes. Default: 0.
        dampening: f64 = 0.0;
        /// L2 penalty. Default: 0.
        weight_decay: f64 = 0.0;
        /// Nesterov's momentum? Default: false.
        nesterov: bool = false;
        /// Ascend instead? Default: false.
        maximize: bool = false;
    }
    /// Adam (Kingma and Ba, 2015).
    Adam AdamOptions "adam" lr 1e-3 {
        /// Decay rates of the moments. Default: (0.9, 0.999).
        betas: (f64, f64) = (0.9, 0.999);
        /// Added to the denominator. Default: 1e-8.
        eps: f64 = 1e-8;
        /// Penalty. Default: 0.
        weight_decay: f64 = 0.0;
        /// Is the second moment the largest so far (Reddi et al., 2018)? Default: false.
        amsgrad: bool = false;
        /// Ascend instead? Default: false.
        maximize: bool = false;
        /// Does the penalty shrink parameters directly? Default: false.
        decoupled_weight_decay: bool = false;
    }
    /// AdamW (Loshchilov and Hutter, 2019): Adam whose penalty shrinks parameters directly.
    AdamW AdamWOptions "adamw" lr 1e-3 {
        /// Decay rates of the moments. Default: (0.9, 0.999).
        betas: (f64, f64) = (0.9, 0.999);
        /// Added to the denominator. Default: 1e-8.
        eps: f64 = 1e-8;
        /// Penalty. Default: 0.01.
        weight_decay: f64 = 0.01;
        /// Is the second moment the largest so far? Default: false.
        amsgrad: bool = false;
        /// Ascend instead? Default: false.
        maximize: bool = false;
    }
    /// Adam over the rows that sparse gradients have.
    SparseAdam SparseAdamOptions "sparse_adam" lr 1e-3 {
        /// Decay rates of the moments. Default: (0.9, 0.999).
        betas: (f64, f64) = (0.9, 0.999);
        /// Added to the denominator. Default: 1e-8.
        eps: f64 = 1e-8;
        /// Ascend instead? Default: false.
        maximize: bool = false;
    }
    /// Adagrad (Duchi et al., 2011).
    Adagrad AdagradOptions "adagrad" lr 1e-2 {
        /// How fast the rate falls. Default: 0.
        lr_decay: f64 = 0.0;
        /// L2 penalty. Default: 0.
        weight_decay: f64 = 0.0;
        /// The sum of squares at first. Default: 0.
        initial_accumulator_value: f64 = 0.0;
        /// Added to the denominator. Default: 1e-10.
        eps: f64 = 1e-10;
        /// Ascend instead? Default: false.
        maximize: bool = false;
    }
    /// Adadelta (Zeiler, 2012).
    Adadelta AdadeltaOptions "adadelta" lr 1.0 {
        /// Decay rate of the means. Default: 0.9.
        rho: f64 = 0.9;
        /// Added to the means. Default: 1e-6.
        eps: f64 = 1e-6;
        /// L2 penalty. Default: 0.
        weight_decay: f64 = 0.0;
        /// Ascend instead? Default: false.
        maximize: bool = false;
    }
    /// Adam by the largest gradient (Kingma and Ba, 2015).
    Adamax AdamaxOptions "adamax" lr 2e-3 {
        /// Decay rates. Default: (0.9, 0.999).
        betas: (f64, f64) = (0.9, 0.999);
        /// Added to the denominator. Default: 1e-8.
        eps: f64 = 1e-8;
        /// L2 penalty. Default: 0.
        weight_decay: f64 = 0.0;
        /// Ascend instead? Default: false.
        maximize: bool = false;
    }
    /// Adam with Nesterov's momentum (Dozat, 2016).
    NAdam NAdamOptions "nadam" lr 2e-3 {
        /// Decay rates of the moments. Default: (0.9, 0.999).
        betas: (f64, f64) = (0.9, 0.999);
        /// Added to the denominator. Default: 1e-8.
        eps: f64 = 1e-8;
        /// Penalty. Default: 0.
        weight_decay: f64 = 0.0;
        /// How fast the momentum approaches β₁. Default: 4e-3.
        momentum_decay: f64 = 4e-3;
        /// Does the penalty shrink parameters directly? Default: false.
        decoupled_weight_decay: bool = false;
        /// Ascend instead? Default: false.
        maximize: bool = false;
    }
    /// Adam whose rate follows how well the variance is known (Liu et al., 2020).
    RAdam RAdamOptions "radam" lr 1e-3 {
        /// Decay rates of the moments. Default: (0.9, 0.999).
        betas: (f64, f64) = (0.9, 0.999);
        /// Added to the denominator. Default: 1e-8.
        eps: f64 = 1e-8;
        /// Penalty. Default: 0.
        weight_decay: f64 = 0.0;
        /// Does the penalty shrink parameters directly? Default: false.
        decoupled_weight_decay: bool = false;
        /// Ascend instead? Default: false.
        maximize: bool = false;
    }
    /// Division by the root of the mean square (Hinton, 2012).
    RmsProp RmsPropOptions "rmsprop" lr 1e-2 {
        /// Decay rate of the means. Default: 0.99.
        alpha: f64 = 0.99;
        /// Added to the denominator. Default: 1e-8.
        eps: f64 = 1e-8;
        /// L2 penalty. Default: 0.
        weight_decay: f64 = 0.0;
        /// Momentum. Default: 0.
        momentum: f64 = 0.0;
        /// Divide by the root of the variance? Default: false.
        centered: bool = false;
        /// Ascend instead? Default: false.
        maximize: bool = false;
    }
    /// Resilient backpropagation (Riedmiller and Braun, 1993): by the gradient's signs.
    Rprop RpropOptions "rprop" lr 1e-2 {
        /// Factors of the step where the sign turned, and where it stayed. Default: (0.5, 1.2).
        etas: (f64, f64) = (0.5, 1.2);
        /// Least and largest step. Default: (1e-6, 50).
        step_sizes: (f64, f64) = (1e-6, 50.0);
        /// Ascend instead? Default: false.
        maximize: bool = false;
    }
    /// Averaged gradient descent (Polyak and Juditsky, 1992); the averages are its state, `ax`.
    Asgd AsgdOptions "asgd" lr 1e-2 {
        /// Decay. Default: 1e-4.
        lambd: f64 = 1e-4;
        /// Power of the rate's decay. Default: 0.75.
        alpha: f64 = 0.75;
        /// From which step on it averages. Default: 1e6.
        t0: f64 = 1e6;
        /// L2 penalty. Default: 0.
        weight_decay: f64 = 0.0;
        /// Ascend instead? Default: false.
        maximize: bool = false;
    }
    /// Lion (Chen et al., 2023): by the sign of the momentum.
    Lion LionOptions "lion" lr 1e-4 {
        /// The momentum's share in the direction, and its decay rate. Default: (0.9, 0.99).
        betas: (f64, f64) = (0.9, 0.99);
        /// Penalty, which shrinks parameters directly. Default: 0.
        weight_decay: f64 = 0.0;
        /// Ascend instead? Default: false.
        maximize: bool = false;
    }
    /// Muon (Jordan et al., 2024): momentum made orthogonal, for matrices.
    Muon MuonOptions "muon" lr 1e-3 {
        /// Penalty, which shrinks parameters directly. Default: 0.1.
        weight_decay: f64 = 0.1;
        /// Momentum. Default: 0.95.
        momentum: f64 = 0.95;
        /// Nesterov's momentum? Default: true.
        nesterov: bool = true;
        /// Least norm to divide by. Default: 1e-7.
        eps: f64 = 1e-7;
        /// Iterations of the polynomial. Default: 5.
        ns_steps: f64 = 5.0;
        /// Is the rate that of AdamW, by the larger side? Default: by the ratio of the sides.
        match_rms_adamw: bool = false;
    }
    /// Adafactor (Shazeer and Stern, 2018): second moments of matrices as a row and a column.
    Adafactor AdafactorOptions "adafactor" lr 1e-2 {
        /// The second moment takes `t^beta2_decay` of the new square. Default: -0.8.
        beta2_decay: f64 = -0.8;
        /// Least root of a second moment. Default: the dtype's.
        eps1: Option<f64> = None;
        /// Least size of a parameter. Default: 1e-3.
        eps2: f64 = 1e-3;
        /// Largest root mean square of an update. Default: 1.
        d: f64 = 1.0;
        /// Penalty, which shrinks parameters directly. Default: 0.
        weight_decay: f64 = 0.0;
        /// Ascend instead? Default: false.
        maximize: bool = false;
    }
}
