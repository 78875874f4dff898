//! The optimizers: what a step is ([`step`]) and the formulas of all whose elements step on their own ([`rules`]), stated once
//! over an [`algebra`] that both backends and the tape implement.

pub mod algebra;
pub mod rules;
pub mod step;

pub use step::Step;
