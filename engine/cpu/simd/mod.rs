//! What the CPU kernels stand on: memory, threads, and loops that LLVM vectorises for the machine's instruction set.
//!
//! May depend on `dtype`, `error` and mlx-ffi's shared memory and exit only, and is, with `blas`, the one place on the CPU side where `unsafe` is allowed.
//! Invariant: everything public here is safe to call with any arguments, but for functions marked `unsafe`.
#![allow(unsafe_code)] // Memory, threads and vector instructions.

mod affinity;
pub mod alloc;
#[cfg(accelerate)]
mod apple;
mod arith;
mod buffer;
mod bytes;
mod dispatch;
pub mod exit;
mod extremes;
mod guards;
mod half;
mod half_loops;
pub mod int8;
mod lanes;
mod math;
mod math32;
mod math32_erf;
mod math64;
mod math64_erf;
mod memory;
mod offsets;
mod reduce;
mod remainder;
pub mod shared_memory;
mod strips;
mod tally;
mod thread_cache;
pub mod threads;
pub mod tile;
#[cfg(target_arch = "x86_64")]
#[cfg_attr(accelerate, allow(dead_code))] // Our own products, which alone use some of it, are Accelerate's there.
pub mod transpose;
mod word;

pub use arith::{Arith, Float};
pub use buffer::Buffer;
pub use bytes::{as_bytes, from_bytes};
pub use dispatch::{
    accumulate, call1, call2, fill, light1, light1_over, light2, light2_over, light2_symmetric, map1, map2, over_rows,
    run, run_light, Arg, Map1, Map2, Rows, Task,
};
pub use extremes::{arg_extremum, arg_row, extrema, extreme_rows, extremum, Better, BetterNumber, Extreme};
pub use guards::{read_only, ReadGuard, WriteGuard};
pub use half::{Narrow, Wide, Widen};
pub use half_loops::Half;
pub use math::{kernel, kernel::Exp as Exponential, Math, Real};
pub use memory::{Foreign, Offer, Owner};
pub use reduce::{join, product, sum, sum_of, sum_rows, sums, sums_of_squares, Sum};
pub use remainder::{integer_quotients, quotients, Quotient};
pub use strips::{for_strips, Strip};
pub(crate) use word::with_word;
pub use word::{Choice, Word};

#[cfg(test)]
mod tests;
