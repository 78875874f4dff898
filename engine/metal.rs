//! Apple's GPU by name: what it is called, and kernels in its own language, or in CUDA's.
//!
//! Depends on the dispatch. Everything here is [`Error::GpuNotAvailable`] where MLX has not the GPU.
#![allow(unsafe_code)] // The user's promise is handed on.

pub use lucid_mlx::metal::{Kernel, Language};

use crate::{dispatch, Error, Result, Tensor};
use mlx_ffi::device::{self, Kind};

/// The GPU's name, such as "Apple M3 Max".
///
/// # Errors
/// [`Error::GpuNotAvailable`] where MLX has no Metal.
pub fn device_name() -> Result<String> {
    let missing = |why: String| Box::new(Error::GpuNotAvailable(format!("get_device_name: {why}").into()));
    if !matches!(device::kind(), Ok(Kind::Metal)) {
        return Err(missing("the installed MLX has no Metal device".into()));
    }
    let info = device::info().map_err(|e| missing(e.to_string()))?;
    Ok(info.name.or(info.architecture).unwrap_or_else(|| "metal".into()))
}

/// Runs a Metal or CUDA kernel once over tensors of the GPU device, lazily as any op. Inputs are handed over row-major; the output is
/// new. There is no gradient.
///
/// # Errors
/// [`Error::GpuNotAvailable`] where MLX has not the language's GPU, [`Error::DeviceMismatch`] for an input elsewhere,
/// [`Error::InvalidValue`] where inputs and the function's parameters do not match or an input requires a gradient.
///
/// # Safety
/// The kernel, launched so over these arrays, must read and write no element outside of them: nobody checks what it does.
pub unsafe fn run_kernel(kernel: &Kernel<'_>, inputs: &[&Tensor]) -> Result<Tensor> {
    if crate::grad_enabled() && inputs.iter().any(|x| x.requires_grad()) {
        return Err(Error::value(
            "run_kernel",
            "has no gradient: pass x.detach(), or run it under no_grad".to_string(),
        ));
    }
    let own = dispatch::gpu_arrays("run_kernel", inputs)?;
    // SAFETY: the caller's promise.
    unsafe { lucid_mlx::metal::run_kernel(kernel, &own) }.map(dispatch::of_gpu_array)
}
