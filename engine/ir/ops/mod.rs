//! The rows of the op table, one file per family that has primitives, with the primitives and arguments that they make.
//!
//! A row states all of an op: signature, policy, dtypes, gradient, samples and an example ([`macros`] says how to read one).
//! Bodies are in the engine's `ops/<family>.rs`, kernels in `cpu/` and `mlx/`; families without primitives have their rows in
//! the engine.

pub mod macros;

pub mod binary;
pub mod communication;
pub mod compare;
pub mod contract;
pub mod conv;
pub mod create;
pub mod decomposition;
pub mod fft;
pub mod index;
pub mod linalg;
pub mod loss;
pub mod nn;
pub mod norm;
pub mod normalization;
pub mod order;
pub mod pool;
pub mod quantize;
pub mod quantized;
pub mod random;
pub mod recurrent;
pub mod reduce;
pub mod scan;
pub mod select;
pub mod sort;
pub mod transfer;
pub mod unary;
pub mod view;
