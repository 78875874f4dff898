//! What becomes of 64-bit floats on the GPU device, which has none: an error, or float32 with one warning.
//!
//! Depends on the warnings. Invariant: asked where a tensor comes to the device (creation, transfer, cast), nowhere else.

use crate::{warnings, DType, Device};
use std::sync::atomic::{AtomicBool, Ordering};

static DOWNCAST: AtomicBool = AtomicBool::new(false);

/// Sets whether float64 and complex128 become float32 and complex64 on the GPU device. At first they are an error.
///
/// # Examples
/// ```
/// use lucid::{float64, tensor, DType, Device};
/// let x = tensor([1.0, 2.0])?.cast(DType::F64)?;
/// float64::set_downcast(true);
/// assert_eq!(x.to_device(Device::Gpu)?.dtype(), DType::F32);
/// float64::set_downcast(false);
/// assert!(x.to_device(Device::Gpu).is_err());
/// # Ok::<(), Box<lucid::Error>>(())
/// ```
pub fn set_downcast(on: bool) {
    DOWNCAST.store(on, Ordering::Relaxed);
}

/// Do 64-bit floats become 32-bit ones on the GPU device?
pub fn is_downcast() -> bool {
    DOWNCAST.load(Ordering::Relaxed)
}

/// The dtype that a tensor of `dtype` has on the device by the policy; warns once where it is another.
#[inline]
pub(crate) fn on_device(dtype: DType, device: Device) -> DType {
    if !matches!(dtype, DType::F64 | DType::C128) || device == Device::Cpu || !is_downcast() {
        return dtype;
    }
    let single = dtype.to_single();
    warnings::warn_once!(
        "{dtype} becomes {single} on the GPU device, which has no 64-bit floats (set_float64_policy(\"downcast\"))"
    );
    single
}
