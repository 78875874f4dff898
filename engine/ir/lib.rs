//! What the backends and the tape have in common: the op table's primitives with their arguments, the traits that a backend
//! implements, and the optimizers' formulas.
//!
//! Depends on `lucid-core`. The rows of the op table that make primitives are in [`ops`]; the crate `lucid` makes functions,
//! gradients and schemas of the same rows.

#![deny(unsafe_code)]

pub mod backend;
pub mod codec;
pub mod fused;
pub mod ops;
pub mod optim;
mod primitive;

pub use lucid_core::*;
#[doc(hidden)]
pub use lucid_rows::rows;
pub use primitive::{Meta, Metas, Prim};
