//! [`Step`]: one optimizer step as the backends see it, declared once.

use super::rules::{Rule, Visit};

/// Makes an enum of steps, one struct of options per kind, and `parse`.
#[macro_export]
#[doc(hidden)]
macro_rules! define_steps {
    ($Enum:ident $(
        $(#[doc = $doc:literal])+
        $Kind:ident $name:literal { $($(#[doc = $fdoc:literal])+ $field:ident: $ty:ident,)* }
    )*) => {
        /// One optimizer step with its options.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum $Enum {
            $($(#[doc = $doc])+ $Kind($Kind),)*
        }

        $(
            $(#[doc = $doc])+
            #[derive(Clone, Copy, Debug, PartialEq)]
            pub struct $Kind { $($(#[doc = $fdoc])+ pub $field: $ty,)* }

            impl From<$Kind> for $Enum {
                fn from(s: $Kind) -> $Enum {
                    $Enum::$Kind(s)
                }
            }
        )*

        impl $Enum {
            /// The name of the kind, as in errors and for `parse`.
            pub fn name(&self) -> &'static str {
                match self { $($Enum::$Kind(_) => $name,)* }
            }

            /// A step by name; `option` gives each option as a number, truth as anything but 0.
            ///
            /// # Errors
            /// For a name that is none, and what `option` reports.
            pub fn parse<E: From<Box<$crate::Error>>>(name: &str, mut option: impl FnMut(&'static str) -> std::result::Result<f64, E>) -> std::result::Result<$Enum, E> {
                match name {
                    $($name => Ok($Enum::$Kind($Kind { $($field: <$ty as $crate::optim::step::Parsed>::of(option(stringify!($field))?),)* })),)*
                    other => Err($crate::Error::value("optimizer step", format!("there is no step named {other:?}")).into()),
                }
            }
        }
    };
}

/// An option as a number.
pub trait Parsed {
    /// The option that the number stands for.
    fn of(x: f64) -> Self;
}
impl Parsed for f64 {
    fn of(x: f64) -> f64 {
        x
    }
}
impl Parsed for bool {
    fn of(x: f64) -> bool {
        x != 0.0
    }
}

define_steps! { Step
    /// State: the momentum buffer, where `momentum` is not 0.
    ///
    /// `b = momentum · b + (1 - dampening) · g` (or `b = g` at the first step), then `p -= lr · b` (with Nesterov,
    /// `p -= lr · (g + momentum · b)`).
    Sgd "sgd" {
        /// Learning rate.
        lr: f64,
        /// Momentum.
        momentum: f64,
        /// Dampening of the gradient's entry into the buffer.
        dampening: f64,
        /// L2 penalty, added to the gradient.
        weight_decay: f64,
        /// Nesterov's momentum?
        nesterov: bool,
        /// Ascend instead?
        maximize: bool,
        /// Is this the buffers' first step?
        first: bool,
    }
    /// State: first moment, second moment, and its maximum where `amsgrad`.
    ///
    /// `m = β₁ m + (1 - β₁) g`, `v = β₂ v + (1 - β₂) g²`, `p -= lr / (1 - β₁ᵗ) · m / (√v / √(1 - β₂ᵗ) + eps)`
    /// (Kingma and Ba, 2015).
    Adam "adam" {
        /// Learning rate.
        lr: f64,
        /// Decay rate of the first moment.
        beta1: f64,
        /// Decay rate of the second moment.
        beta2: f64,
        /// Added to the denominator.
        eps: f64,
        /// Penalty.
        weight_decay: f64,
        /// Does the penalty shrink the parameter directly (AdamW; Loshchilov and Hutter, 2019)?
        decoupled_weight_decay: bool,
        /// Divide by the largest second moment so far (Reddi et al., 2018)?
        amsgrad: bool,
        /// Ascend instead?
        maximize: bool,
        /// Which step this is, from 1.
        t: f64,
    }
    /// State: first moment, second moment. Adam on the rows of a sparse gradient: others stay, and so do their moments.
    ///
    /// `m += (1 - β₁) (g - m)`, `v += (1 - β₂) (g² - v)`, `p -= lr · √(1 - β₂ᵗ) / (1 - β₁ᵗ) · m / (√v + eps)`.
    SparseAdam "sparse_adam" {
        /// Learning rate.
        lr: f64,
        /// Decay rate of the first moment.
        beta1: f64,
        /// Decay rate of the second moment.
        beta2: f64,
        /// Added to the denominator.
        eps: f64,
        /// Ascend instead?
        maximize: bool,
        /// Which step this is, from 1.
        t: f64,
    }
    /// State: the sum of squares.
    ///
    /// `s += g²`, `p -= lr / (1 + (t - 1) · lr_decay) · g / (√s + eps)` (Duchi et al., 2011).
    Adagrad "adagrad" {
        /// Learning rate.
        lr: f64,
        /// Decay of the learning rate.
        lr_decay: f64,
        /// L2 penalty.
        weight_decay: f64,
        /// Added to the denominator.
        eps: f64,
        /// Ascend instead?
        maximize: bool,
        /// Which step this is, from 1.
        t: f64,
    }
    /// State: the mean square of gradients, and that of changes.
    ///
    /// `s = ρ s + (1 - ρ) g²`, `d = √(u + eps) / √(s + eps) · g`, `u = ρ u + (1 - ρ) d²`, `p -= lr · d` (Zeiler, 2012).
    Adadelta "adadelta" {
        /// Learning rate.
        lr: f64,
        /// Decay rate of the means.
        rho: f64,
        /// Added below the roots.
        eps: f64,
        /// L2 penalty.
        weight_decay: f64,
        /// Ascend instead?
        maximize: bool,
    }
    /// State: the first moment, and the infinity norm.
    ///
    /// `u = max(β₂ u, |g| + eps)`, `p -= lr / (1 - β₁ᵗ) · m / u` (Kingma and Ba, 2015).
    Adamax "adamax" {
        /// Learning rate.
        lr: f64,
        /// Decay rate of the first moment.
        beta1: f64,
        /// Decay rate of the norm.
        beta2: f64,
        /// Added to the gradient's magnitude.
        eps: f64,
        /// L2 penalty.
        weight_decay: f64,
        /// Ascend instead?
        maximize: bool,
        /// Which step this is, from 1.
        t: f64,
    }
    /// State: first and second moment. Adam with Nesterov's momentum (Dozat, 2016).
    NAdam "nadam" {
        /// Learning rate.
        lr: f64,
        /// Decay rate of the first moment.
        beta1: f64,
        /// Decay rate of the second moment.
        beta2: f64,
        /// Added to the denominator.
        eps: f64,
        /// Penalty.
        weight_decay: f64,
        /// Does the penalty shrink the parameter directly?
        decoupled_weight_decay: bool,
        /// Ascend instead?
        maximize: bool,
        /// This step's momentum.
        mu: f64,
        /// The next step's momentum.
        mu_next: f64,
        /// The product of the momenta so far, this step's included.
        mu_product: f64,
        /// Which step this is, from 1.
        t: f64,
    }
    /// State: first and second moment. Adam whose rate follows how well the variance is known (Liu et al., 2020).
    RAdam "radam" {
        /// Learning rate.
        lr: f64,
        /// Decay rate of the first moment.
        beta1: f64,
        /// Decay rate of the second moment.
        beta2: f64,
        /// Added to the denominator.
        eps: f64,
        /// Penalty.
        weight_decay: f64,
        /// Does the penalty shrink the parameter directly?
        decoupled_weight_decay: bool,
        /// Ascend instead?
        maximize: bool,
        /// Which step this is, from 1.
        t: f64,
    }
    /// State: the mean square, the mean gradient where `centered`, and the momentum buffer where `momentum` is above 0.
    ///
    /// `s = α s + (1 - α) g²`, `p -= lr · g / (√s + eps)` (Hinton, 2012).
    RmsProp "rmsprop" {
        /// Learning rate.
        lr: f64,
        /// Decay rate of the means.
        alpha: f64,
        /// Added to the denominator.
        eps: f64,
        /// L2 penalty.
        weight_decay: f64,
        /// Momentum.
        momentum: f64,
        /// Divide by the root of the variance (Graves, 2013)?
        centered: bool,
        /// Ascend instead?
        maximize: bool,
    }
    /// State: the last gradient, and each element's step size (Riedmiller and Braun, 1993).
    Rprop "rprop" {
        /// Factor of the step size where the gradient's sign turned.
        eta_minus: f64,
        /// Factor where it stayed.
        eta_plus: f64,
        /// Smallest step.
        step_min: f64,
        /// Largest step.
        step_max: f64,
        /// Ascend instead?
        maximize: bool,
    }
    /// State: the average of the parameter over the steps (Polyak and Juditsky, 1992).
    Asgd "asgd" {
        /// This step's rate.
        eta: f64,
        /// Decay.
        lambd: f64,
        /// This step's share in the average.
        mu: f64,
        /// L2 penalty.
        weight_decay: f64,
        /// Ascend instead?
        maximize: bool,
    }
    /// State: the momentum. `p -= lr · (sign(β₁ m + (1 - β₁) g) + weight_decay · p)`, `m = β₂ m + (1 - β₂) g`
    /// (Chen et al., 2023).
    Lion "lion" {
        /// Learning rate.
        lr: f64,
        /// The momentum's share in the direction.
        beta1: f64,
        /// Decay rate of the momentum.
        beta2: f64,
        /// Penalty, which shrinks the parameter directly.
        weight_decay: f64,
        /// Ascend instead?
        maximize: bool,
    }
}

struct States;
impl Visit for States {
    type Out = usize;
    fn rule<R: Rule, const S: usize>(self, _: R) -> usize {
        S
    }
}

impl Step {
    /// How many arrays each parameter brings: itself, its gradient, and its state.
    pub fn arity(&self) -> usize {
        2 + self.visit(States)
    }
}
