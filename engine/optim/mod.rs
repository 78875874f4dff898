//! Optimizers: all parameters of a step in one backend call.
//!
//! [`Step`] is what the backends implement (`cpu/optim.rs`, `gpu/optim.rs`); [`Sgd`] and [`Adam`] keep the state.

/// One optimizer step, as the backends see it. The arrays of each parameter are listed in the variant's order.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Arrays: parameter, gradient, and the momentum buffer where `momentum` is not 0.
    ///
    /// `b = momentum · b + (1 - dampening) · g` (or `b = g` at the first step), then `p -= lr · b` (with Nesterov,
    /// `p -= lr · (g + momentum · b)`).
    Sgd {
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
    },
    /// Arrays: parameter, gradient, first moment, second moment, and its maximum where `amsgrad`.
    ///
    /// `m = β₁ m + (1 - β₁) g`, `v = β₂ v + (1 - β₂) g²`, `p -= lr / (1 - β₁ᵗ) · m / (√v / √(1 - β₂ᵗ) + eps)`
    /// (Kingma and Ba, 2015).
    Adam {
        /// Learning rate.
        lr: f64,
        /// Decay rates of the moments.
        betas: (f64, f64),
        /// Added to the denominator.
        eps: f64,
        /// Penalty.
        weight_decay: f64,
        /// Does the penalty shrink the parameter directly (AdamW; Loshchilov and Hutter, 2019)?
        decoupled: bool,
        /// Divide by the largest second moment so far (Reddi et al., 2018)?
        amsgrad: bool,
        /// Ascend instead?
        maximize: bool,
        /// Which step this is, from 1.
        t: u64,
    },
}
