//! What the CPU kernels stand on: memory, threads, and loops that LLVM vectorises for the machine's instruction set.
//!
//! May depend on `dtype` and `error` only, and is, with `blas`, the one place on the CPU side where `unsafe` is allowed.
//! Invariant: everything public here is safe to call with any arguments, but for functions marked `unsafe`.

pub mod alloc;
#[cfg(target_os = "macos")]
mod apple;
mod buffer;
mod dispatch;
mod half;
mod math;
mod math32;
mod math64;
mod reduce;
pub mod threads;

pub use buffer::{Buffer, ReadGuard, WriteGuard};
pub use dispatch::{accumulate, map1, map2, map3, run, Arg, Map1, Map2, Map3, Task};
pub use half::Wide;
pub use math::{Math, Real, Widened};
pub use reduce::{arg_extremum, arg_row, dot, extremum, product, sum, sum_rows, Better, Extreme, Sum};

#[cfg(test)]
mod tests;
