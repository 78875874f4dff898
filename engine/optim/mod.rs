//! Optimizers and schedules, with PyTorch's defaults, arithmetic and state: all parameters of a step in one backend call.
//!
//! | | |
//! |---|---|
//! | optimizers | [`Sgd`], [`Adam`], [`AdamW`], [`Adamax`], [`NAdam`], [`RAdam`], [`SparseAdam`], [`Adagrad`], [`Adadelta`], [`RmsProp`], [`Rprop`], [`Asgd`], [`Lion`], [`Muon`], [`Adafactor`], [`Lbfgs`] |
//! | schedules | [`StepLr`], [`MultiStepLr`], [`ConstantLr`], [`LinearLr`], [`ExponentialLr`], [`PolynomialLr`], [`CosineAnnealingLr`], [`CosineAnnealingWarmRestarts`], [`CyclicLr`], [`OneCycleLr`], [`NoamLr`], [`SwaLr`], [`MultiplicativeLr`], [`SequentialLr`], [`ChainedLr`], closures, [`ReduceLrOnPlateau`] |
//! | gradients | [`clip_grad_norm`], [`clip_grad_value`], [`GradScaler`] |
//! | averages | [`Average`]: EMA and SWA |
//!
//! `step` declares the kinds of step and runs them; the rules of their elements are in `lucid_ir`, over an `algebra` that both
//! backends and the tape implement. `matrix` and `lbfgs` have the steps that are made of tensor ops.

mod algebra;
mod clip;
mod kinds;
#[doc(hidden)]
pub mod lbfgs;
#[doc(hidden)]
pub mod matrix;
mod optimizer;
mod options;
mod quasi_newton;
mod schedule;
#[doc(hidden)]
pub mod step;
#[cfg(test)]
mod tests;

pub use clip::{clip_grad_norm, clip_grad_value, Average, GradScaler};
#[doc(hidden)]
pub use matrix::{run_matrix_steps, MatrixBatch, MatrixStep};
pub use optimizer::{Counts, Kind, Optimizer, ParamGroup, Stepper};
pub use options::*;
pub use quasi_newton::{Lbfgs, LineSearch};
pub use schedule::*;
#[doc(hidden)]
pub use step::{run_steps, run_steps_recorded, Batch, Step};
