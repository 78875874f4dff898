//! The dtype of new floating tensors, of a process, and the device of new tensors, of a thread.

use crate::{DType, Device, Error, Result};
use std::cell::Cell;
use std::sync::atomic::{AtomicU8, Ordering};

static DEFAULT_DTYPE: AtomicU8 = AtomicU8::new(DType::F32 as u8);

thread_local! {
    static DEFAULT_DEVICE: Cell<Device> = const { Cell::new(Device::Cpu) };
}

/// The dtype of new floating tensors; float32 unless set.
#[inline]
pub fn default_dtype() -> DType {
    DType::ALL[DEFAULT_DTYPE.load(Ordering::Relaxed) as usize]
}

/// Sets the dtype of new floating tensors.
///
/// # Errors
/// [`Error::InvalidType`] for a dtype that is not floating.
pub fn set_default_dtype(dtype: DType) -> Result<()> {
    if !dtype.is_float() || dtype.is_stored_only() {
        let why = format!("only floating-point types are supported as the default type, got {dtype}");
        return Err(Error::kind("set_default_dtype", why));
    }
    DEFAULT_DTYPE.store(dtype as u8, Ordering::Relaxed);
    Ok(())
}

/// Where the calling thread makes new tensors; the CPU unless set.
#[inline]
pub fn default_device() -> Device {
    DEFAULT_DEVICE.get()
}

/// Sets where the calling thread makes new tensors. Others start with the CPU, as in PyTorch.
pub fn set_default_device(device: Device) {
    DEFAULT_DEVICE.set(device);
}
