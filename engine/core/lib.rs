//! What everything else in Lucid stands on: dtypes and scalars, devices, errors, shapes and strides, memory formats, random
//! keys, warnings, and the defaults that a process or thread sets.
//!
//! The lowest layer of the engine: it depends on `mlx-ffi` alone, for the GPU device's real name. Users see it through the
//! crate `lucid`.

#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::unreachable))] // Tests may end for want of memory.
#![deny(unsafe_code)]

mod defaults;
pub mod device;
pub mod dtype;
pub mod error;
pub mod fallible;
pub mod float8;
pub mod memory_format;
pub mod random;
pub mod scalar;
pub mod shape;
mod trace;
pub mod warnings;

pub use defaults::{default_device, default_dtype, set_default_device, set_default_dtype};
pub use device::{Device, Parsed};
pub use dtype::{DType, Element};
pub use error::{Error, Result};
pub use memory_format::MemoryFormat;
pub use random::{manual_seed, Generator};
pub use scalar::Scalar;
