//! [`HostLease`]: memory that an array and the host use together. Depends on arrays. Invariant: while one exists, MLX keeps
//! the memory and writes nothing into it, for MLX reuses an array's memory only where nobody else holds the array.

use std::any::Any;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::device::{self, Kind};
use crate::error::Result;
use crate::{sys, Array, Dtype};

/// The elements of an evaluated array, in row-major order, where the host can use them for as long as this exists.
#[derive(Debug)]
pub struct HostLease {
    array: Array,
    data: NonNull<u8>,
    len: usize,
}

// SAFETY: the address is of plain memory that the array keeps on every thread; what may be done there `alone` says.
unsafe impl Send for HostLease {}
// SAFETY: as above.
unsafe impl Sync for HostLease {}

/// Memory of the host's that MLX may use in place.
pub struct Memory {
    data: NonNull<u8>,
    len: usize,
    owner: Arc<dyn Any + Send + Sync>,
}

impl Memory {
    /// `len` bytes from `data` on, alive as long as `owner` is.
    ///
    /// # Safety
    /// The memory must be readable and writable until the owner is dropped, and not be written by others while MLX has an
    /// array on it. MLX writes into it once no handle of that array is left but its own.
    pub unsafe fn new(data: NonNull<u8>, len: usize, owner: Arc<dyn Any + Send + Sync>) -> Memory {
        Memory { data, len, owner }
    }
}

impl HostLease {
    /// Evaluates the array and keeps its elements in place. `None` where the host has to copy them: there are none, they
    /// are not in row-major order, most of the memory they keep is not theirs, or it is an NVIDIA GPU's.
    pub fn of(array: Array) -> Result<Option<HostLease>> {
        let len = array.nbytes();
        if device::kind()? == Kind::Cuda || len == 0 {
            return Ok(None);
        }
        let Some(data) = array.address()?.and_then(|address| NonNull::new(address as *mut u8)) else { return Ok(None) };
        // SAFETY: the handle is valid and its array available.
        let buffer = unsafe { sys::lucid_array_buffer_size(array.raw()) };
        Ok((buffer / 2 <= len).then_some(HostLease { array, data, len }))
    }

    /// An array of the bytes of that memory, in place if MLX can take it so: where it is Apple's GPU's too. Otherwise MLX has
    /// copied them, and dropped its share of the owner, when this returns.
    pub fn over(memory: Memory, shape: &[i32], dtype: Dtype) -> Result<HostLease> {
        extern "C" fn release(owner: *mut c_void) {
            // SAFETY: what `Box::into_raw` gave below, once. Dropping the owner's own memory cannot unwind.
            drop(unsafe { Box::from_raw(owner.cast::<Arc<dyn Any + Send + Sync>>()) });
        }
        let Memory { data, len, owner } = memory;
        let size = shape.iter().try_fold(dtype.size(), |n, &d| usize::try_from(d).ok().and_then(|d| n.checked_mul(d)));
        if size != Some(len) || len == 0 {
            let why = format!("{len} bytes do not make an array of shape {shape:?} and {dtype}");
            return Err(crate::Error::Mismatch(why));
        }
        let owner = Box::into_raw(Box::new(owner));
        // SAFETY: as many bytes as the shape and dtype say, valid until `release` is called, which MLX does once.
        let raw = unsafe {
            sys::mlx_array_new_data_managed_payload(
                data.as_ptr().cast(),
                shape.as_ptr(),
                shape.len() as i32,
                dtype.raw(),
                owner.cast(),
                Some(release),
            )
        };
        let array = Array::own(raw)?;
        Ok(HostLease { array, data, len })
    }

    /// The array.
    pub fn array(&self) -> &Array {
        &self.array
    }

    /// Where the elements are. To be written only while [`HostLease::alone`].
    pub fn as_ptr(&self) -> *mut u8 {
        self.data.as_ptr()
    }

    /// How many bytes there are.
    pub fn bytes(&self) -> usize {
        self.len
    }

    /// Has nobody else the array or its memory, MLX's own work under way included? Stays so until [`HostLease::array`] is
    /// cloned.
    pub fn alone(&self) -> bool {
        // SAFETY: the handle is valid; the call reads two counters.
        unsafe { sys::lucid_array_is_unshared(self.array.raw()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops;

    #[test]
    fn memory_is_shared_with_an_array() {
        let x = Array::from_slice(&[1f32, 2.0, 3.0], &[3]).unwrap();
        let y = ops::add(&x, &x).unwrap();
        let lease = HostLease::of(y.clone()).unwrap().unwrap();
        assert_eq!((lease.as_ptr() as usize, lease.bytes()), (y.address().unwrap().unwrap(), 12));
        assert!(!lease.alone());
        // MLX may not reuse what is lent for a result.
        let z = ops::add(&y, &x).unwrap();
        drop(y);
        z.eval().unwrap();
        assert_ne!(z.address().unwrap(), Some(lease.as_ptr() as usize));
        assert_eq!(lease.array().to_vec::<f32>().unwrap(), [2.0, 4.0, 6.0]);
        drop(z);
        assert!(lease.alone());
    }

    #[test]
    fn a_small_part_is_not_lent() {
        let x = Array::from_slice(&[0f32; 4096], &[4096]).unwrap();
        let part = ops::slice(&x, &[0], &[16], &[1]).unwrap();
        assert!(HostLease::of(part).unwrap().is_none());
        assert!(HostLease::of(ops::slice(&x, &[0], &[0], &[1]).unwrap()).unwrap().is_none());
        let turned = ops::transpose_axes(&ops::reshape(&x, &[64, 64]).unwrap(), &[1, 0]).unwrap();
        assert!(HostLease::of(turned).unwrap().is_none());
    }

    #[test]
    fn memory_that_is_not_taken_is_given_back() {
        let owner: Arc<Vec<u8>> = Arc::new([1f32, 2.0].iter().flat_map(|x| x.to_ne_bytes()).collect());
        // SAFETY: the vector is not touched as long as anyone holds it.
        let memory = || unsafe { Memory::new(NonNull::from(&owner[0]), 8, owner.clone()) };
        let x = HostLease::over(memory(), &[2], crate::Dtype::Float32).unwrap();
        // An address that is no page's is never taken in place.
        assert_eq!((x.array().to_vec::<f32>().unwrap(), Arc::strong_count(&owner)), (vec![1.0, 2.0], 1));
        assert!(HostLease::over(memory(), &[3], crate::Dtype::Float32).is_err());
        assert_eq!(Arc::strong_count(&owner), 1);
    }
}
