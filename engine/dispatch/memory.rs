//! What a device's memory is asked and told.
//!
//! Depends on the backends through [`Backend`](lucid_ir::backend::Backend) only.

use super::Wrapped;
use crate::meta::MetaBackend;
use crate::{Device, Result};
use lucid_cpu::CpuBackend;
use lucid_ir::backend::MemoryStats;
use lucid_mlx::GpuBackend;

/// Memory in use on a device.
pub fn memory_stats(device: Device) -> MemoryStats {
    fn run<B: Wrapped>() -> MemoryStats {
        B::memory()
    }
    with_backend!(device, run())
}

/// Makes the peak that [`memory_stats`] reports the current use.
pub fn reset_peak_memory_stats(device: Device) {
    fn run<B: Wrapped>() {
        B::reset_peak_memory();
    }
    with_backend!(device, run());
}

/// Gives memory kept for reuse back to the system.
///
/// # Errors
/// Where the device reports one.
pub fn empty_cache(device: Device) -> Result<()> {
    fn run<B: Wrapped>() -> Result<()> {
        B::empty_cache()
    }
    with_backend!(device, run())
}

/// Sets the most bytes of freed memory that a device keeps for reuse, and gives back what is beyond. Returns the limit
/// until now.
///
/// # Errors
/// Where the device reports one.
pub fn set_cache_limit(device: Device, bytes: usize) -> Result<usize> {
    fn run<B: Wrapped>(bytes: usize) -> Result<usize> {
        B::set_cache_limit(bytes)
    }
    with_backend!(device, run(bytes))
}
