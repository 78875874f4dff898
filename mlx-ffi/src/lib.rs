//! MLX's lazy arrays for Rust: raw bindings generated over mlx-c, which stay private, and the safe layer over them.
//!
//! What the rest of the crate relies on:
//! - one owner per handle ([`Array`] and its like), one place that turns a status into a [`Result`];
//! - one process-wide stream that every thread uses, and a lock around evaluation, so that any thread may build,
//!   evaluate and drop any array;
//! - nothing reads an array that has not been evaluated: [`Array::read`] and [`Array::item`] evaluate first;
//! - no panic crosses into C++, and none is caused by what a caller passes: a bad call is an [`Error`].
//!
//! Names and arguments in [`ops`], [`random`], [`linalg`], [`fft`] and [`fast`] are those of MLX's own functions, whose
//! documentation holds for them; `_axis` and `_axes` variants stand for what is one optional argument in Python.
//!
//! # Finding `libmlx` at run time
//!
//! This crate's and the root crate's own tests, examples and benches carry a run path. A program of yours gets one
//! from three lines in its build script's `main`, with `lucid` among its dependencies:
//!
//! ```no_run
//! for arg in std::env::var("DEP_LUCID_LINK_ARGS").unwrap_or_default().split(';').filter(|a| !a.is_empty()) {
//!     println!("cargo:rustc-link-arg={arg}");
//! }
//! ```
//!
//! (`DEP_MLX_LINK_ARGS` where this crate itself is the dependency.)

#![warn(missing_docs, unsafe_op_in_unsafe_fn)]

mod array;
mod call;
pub mod compile;
pub mod counters;
pub mod cuda;
pub mod device;
pub mod distributed;
mod dtype;
mod element;
mod error;
mod eval;
mod exit;
pub mod fast;
pub mod fft;
pub mod graph;
pub mod host;
mod host_lease;
pub mod linalg;
pub mod memory;
pub mod nccl;
pub mod ops;
mod primitive;
pub mod random;
mod stream;
pub mod transforms;
mod vector;
mod version;

pub use array::Array;
pub use dtype::Dtype;
pub use element::Element;
pub use error::{Error, Result};
pub use exit::{drain, finish, finish_with_thread};
pub use host_lease::{HostLease, Memory};
pub use primitive::{share_primitives, Primitive};
pub use stream::{ensure_allowed, forbid, in_use, synchronize};
pub use version::{version, MLX_VERSION};

/// The generated bindings. Nothing outside this crate sees them.
#[allow(
    dead_code,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unsafe_op_in_unsafe_fn,
    unused_variables,
    clippy::all
)]
mod sys {
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}
