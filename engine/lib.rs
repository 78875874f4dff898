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

pub mod autocast;
pub mod autograd;
mod backend;
pub mod batching;
mod cpu;
pub mod determinism;
mod device;
mod dispatch;
pub mod dtype;
mod error;
mod format;
mod gpu;
mod in_place;
pub mod interop;
pub mod io;
mod literal;
pub mod metal;
pub mod nn;
pub mod ops;
pub mod optim;
mod ordered;
mod over;
mod prim;
pub mod profile;
pub mod random;
mod restride;
pub mod shape;
mod sparse;
mod tensor;
pub mod testing;
pub mod warnings;

pub use autograd::{enable_grad, grad_enabled, no_grad, set_grad_enabled};
pub use backend::MemoryStats;
pub use cpu::{Foreign, Owner};
pub use device::{Device, Parsed};
pub use dispatch::{empty_cache, memory_stats, reset_peak_memory_stats, set_cache_limit};
pub(crate) use dtype::with_dtype;
pub use dtype::{DType, Element, Scalar};
pub use error::{Error, Result};
pub use format::MemoryFormat;
pub use literal::{tensor, Nested};
pub use ops::Operand;
pub use random::{manual_seed, Generator};
pub use tensor::{eval, Tensor};

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, Ordering};

static DEFAULT_DTYPE: AtomicU8 = AtomicU8::new(DType::F32 as u8);

thread_local! {
    static DEFAULT_DEVICE: Cell<Device> = const { Cell::new(Device::Cpu) };
}

/// The dtype of new floating tensors; float32 unless set.
pub fn default_dtype() -> DType {
    DType::ALL[DEFAULT_DTYPE.load(Ordering::Relaxed) as usize]
}

/// Sets the dtype of new floating tensors.
///
/// # Errors
/// [`Error::InvalidType`] for a dtype that is not floating.
pub fn set_default_dtype(dtype: DType) -> Result<()> {
    if !dtype.is_float() {
        let why = format!("only floating-point types are supported as the default type, got {dtype}");
        return Err(Error::kind("set_default_dtype", why));
    }
    DEFAULT_DTYPE.store(dtype as u8, Ordering::Relaxed);
    Ok(())
}

/// Where the calling thread makes new tensors; the CPU unless set.
pub fn default_device() -> Device {
    DEFAULT_DEVICE.get()
}

/// Sets where the calling thread makes new tensors. Others start with the CPU, as in PyTorch.
pub fn set_default_device(device: Device) {
    DEFAULT_DEVICE.set(device);
}

/// Sets how many threads CPU kernels use: at least 1 and at most 1024, whatever is asked for.
pub fn set_num_threads(n: usize) {
    cpu::set_num_threads(n);
}

/// How many threads CPU kernels use.
pub fn get_num_threads() -> usize {
    cpu::num_threads()
}

/// Settings of the GPU's lazy graph.
pub mod lazy {
    pub use crate::dispatch::primitives;
    pub use crate::gpu::lazy::{limits, set_limits, Limits};
    pub use crate::gpu::{set_hosting, set_lowering};
}
