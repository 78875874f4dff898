//! Lucid: tensors, automatic differentiation and training with PyTorch's semantics.
//!
//! Two devices: `cpu` (Accelerate on Apple, OpenBLAS and SIMD kernels elsewhere) and one GPU, MLX's lazy arrays. Ops are
//! declared once, in [`ops`]; both backends implement one trait; the tape is written in tensor ops and so can be
//! differentiated again.
//!
//! ```
//! use lucid::{Device, Tensor};
//! # fn main() -> lucid::Result<()> {
//! let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0], &[3], Device::Cpu)?.requires_grad_(true)?;
//! let y = x.square()?.sum(None, false, None)?;
//! y.backward()?;
//! assert_eq!(x.grad().unwrap().to_vec::<f32>()?, [2.0, 4.0, 6.0]);
//! # Ok(())
//! # }
//! ```
#![recursion_limit = "512"]
// `unsafe` is in the rooms alone that the README lists; each says so in its first lines.
#![deny(unsafe_code)]
// Tests may panic, and their lengths are their own.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::unreachable))]

pub mod autocast;
pub mod autograd;
pub mod batching;
pub mod determinism;
mod dispatch;
mod format;
pub mod graph;
mod in_place;
pub mod interop;
pub mod io;
mod literal;
mod meta;
pub mod metal;
pub mod nn;
pub mod ops;
pub mod optim;
mod ordered;
mod over;
mod prim;
pub mod profile;
mod restride;
mod sparse;
mod tensor;
pub mod testing;
pub mod warnings;

pub use autograd::{enable_grad, grad_enabled, no_grad, set_grad_enabled};
pub use dispatch::{empty_cache, memory_stats, reset_peak_memory_stats, set_cache_limit};
pub use literal::{tensor, Nested};
#[doc(hidden)]
pub use lucid_core::fallible::ensure_room;
pub use lucid_core::{
    default_device, default_dtype, dtype, manual_seed, random, set_default_device, set_default_dtype, shape, DType,
    Device, Element, Error, Generator, MemoryFormat, Parsed, Result, Scalar,
};
pub(crate) use lucid_core::{fallible, with_dtype};
pub use lucid_cpu::{Foreign, Owner};
pub use lucid_ir::backend::MemoryStats;
#[doc(hidden)]
pub use lucid_ir::{
    binary_ops, compare_ops, contract_ops, conv_ops, create_ops, index_ops, linalg_ops, loss_ops, nn_ops, norm_ops,
    pool_ops, random_ops, reduce_ops, scan_ops, select_ops, sort_ops, transfer_ops, unary_ops, view_ops,
};
pub use ops::Operand;
pub use tensor::{eval, Tensor};

/// Sets how many threads CPU kernels use: at least 1 and at most 1024, whatever is asked for.
pub fn set_num_threads(n: usize) {
    lucid_cpu::set_num_threads(n);
}

/// Has BLAS map the memory that it works in on this thread, so that a limit of memory that comes later is an error of the calls
/// that need more, and not the end of the process.
pub fn prepare_blas() {
    lucid_cpu::prepare_blas();
}

/// How many threads CPU kernels use.
pub fn get_num_threads() -> usize {
    lucid_cpu::num_threads()
}

/// Running custom kernels, in Metal's and CUDA's languages, where there is no GPU.
pub mod kernel_emulator {
    pub use lucid_mlx::emulator::{set_emulator, Emulator, KernelInput, KernelLaunch, KernelOutput, Language};
}

/// Settings of the GPU's lazy graph.
pub mod lazy {
    pub use crate::dispatch::primitives;
    pub use lucid_mlx::lazy::{limits, set_limits, Limits};
    pub use lucid_mlx::{set_hosting, set_lowering};

    use crate::dispatch::Wrapped;
    use crate::{Result, Tensor};
    use lucid_mlx::{GpuArray, GpuBackend};

    /// As [`primitives`], each with the dtypes of its inputs and of an output: lines such as `Add float32 float32 > float32`.
    ///
    /// # Errors
    /// Where MLX reports one.
    pub fn graph_nodes(tensors: &[&Tensor]) -> Result<Vec<String>> {
        let own: Vec<&GpuArray> = tensors.iter().filter_map(|t| GpuBackend::unwrap(t.storage())).collect();
        lucid_mlx::graph_nodes(&own)
    }
}
