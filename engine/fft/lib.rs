//! Fast Fourier transforms of strided memory: complex to complex, real to complex, complex to real, along the last
//! dimensions, of any length.
//!
//! The one-dimensional transforms are those of `rustfft` (AVX, NEON or plain code, by what the processor has); here
//! they are planned, cached, and run over many lanes, which are gathered block by block so that they stay in cache. It
//! is a crate of its own so that it is optimised in every build: generic code is compiled where it is used. Depends on
//! `lucid-core` for its allocations, and knows no arrays. `unsafe` is in `columns`, `butterfly` and `batch` alone. Invariant: a
//! length that comes from outside allocates through `fallible`, or after it has been asked whether there is room.

#![deny(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods))] // Tests may end for want of memory.

mod batch;
mod butterfly;
mod columns;
mod lanes;
mod plans;
mod real;
mod transform;

pub use plans::Real;
pub use real::{complex_to_real, real_to_complex};
pub use transform::complex_to_complex;

/// Runs a function for every number below a count, on as many threads as it likes.
pub type Pool<'a> = &'a (dyn Fn(usize, &(dyn Fn(usize) + Sync)) + Sync);

/// Elements of memory, as a layout shows them: sizes and strides, outermost dimension first.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a, T> {
    /// The memory.
    pub data: &'a [T],
    /// Where the first element is.
    pub offset: usize,
    /// The sizes.
    pub shape: &'a [usize],
    /// The strides, in elements.
    pub strides: &'a [usize],
}

#[cfg(test)]
mod tests;
