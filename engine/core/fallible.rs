//! Vectors whose length comes from outside: where there is no memory for them, this is `OutOfMemory` and no abort.
//!
//! Depends on `error`. Functions that can report an error use [`filled`], [`copied`], [`collected`] and [`with_capacity`]. Kernels
//! need memory to work in deep inside of parallel loops, where nothing can be reported: [`scratch`] and its kin unwind with the
//! error, and [`kernel`], which every kernel of the CPU runs in, makes a result of it. Invariant: nobody but [`raise`] unwinds
//! with an [`Error`], and no call of it is outside of [`kernel`].
#![allow(clippy::disallowed_methods)] // Memory is reserved before a vector gets its length.

use crate::error::{Error, Result};
use crate::Device;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};

/// The error of an allocation of `len` elements of `width` bytes.
#[cold]
pub fn out_of_memory(len: usize, width: usize) -> Box<Error> {
    let why = match len.checked_mul(width) {
        Some(bytes) => format!("cannot allocate {bytes} bytes; free tensors or use smaller ones"),
        None => format!("cannot allocate {len} elements of {width} bytes; free tensors or use smaller ones"),
    };
    Box::new(Error::OutOfMemory { device: Device::Cpu, why: why.into() })
}

/// An empty vector with room for `len` elements.
pub fn with_capacity<T>(len: usize) -> Result<Vec<T>> {
    let mut out = Vec::new();
    out.try_reserve_exact(len).map_err(|_| out_of_memory(len, size_of::<T>()))?;
    Ok(out)
}

/// A vector of `len` clones.
pub fn filled<T: Clone>(value: T, len: usize) -> Result<Vec<T>> {
    let mut out = with_capacity(len)?;
    out.resize(len, value);
    Ok(out)
}

/// A vector of a slice's elements.
pub fn copied<T: Clone>(from: &[T]) -> Result<Vec<T>> {
    let mut out = with_capacity(from.len())?;
    out.extend_from_slice(from);
    Ok(out)
}

/// A vector of what an iterator yields.
pub fn collected<T>(from: impl IntoIterator<Item = T>) -> Result<Vec<T>> {
    let mut from = from.into_iter();
    let mut out = with_capacity(from.size_hint().0)?;
    while let Some(next) = from.next() {
        if out.len() == out.capacity() {
            let more = from.size_hint().0.saturating_add(1);
            out.try_reserve(more).map_err(|_| out_of_memory(out.len().saturating_add(more), size_of::<T>()))?;
        }
        out.push(next);
    }
    Ok(out)
}

/// Gives a vector `len` elements; new ones are zero.
pub fn grow<T: Clone + Default>(vector: &mut Vec<T>, len: usize) -> Result<()> {
    let more = len.saturating_sub(vector.len());
    vector.try_reserve_exact(more).map_err(|_| out_of_memory(len, size_of::<T>()))?;
    vector.resize(len, T::default());
    Ok(())
}

/// What a tensor takes of memory at most, with its node and Python's object.
pub const TENSOR: usize = 1024;

/// An error where there is no memory for `count` objects of `each` bytes, which are going to be made one by one.
///
/// # Errors
/// `OutOfMemory`.
#[doc(hidden)]
pub fn ensure_room(count: usize, each: usize) -> Result<()> {
    // So few always fit.
    if count < 4096 {
        return Ok(());
    }
    let bytes = count.checked_mul(each).ok_or_else(|| out_of_memory(count, each))?;
    with_capacity::<u8>(bytes).map(drop)
}

/// The value, or unwinds with the error to the [`kernel`] around it.
pub fn raise<T>(made: Result<T>) -> T {
    made.unwrap_or_else(|error| resume_unwind(error))
}

/// [`filled`], in a kernel.
pub fn scratch<T: Clone>(value: T, len: usize) -> Vec<T> {
    raise(filled(value, len))
}

/// [`copied`], in a kernel.
pub fn scratch_of<T: Clone>(from: &[T]) -> Vec<T> {
    raise(copied(from))
}

/// [`collected`], in a kernel.
pub fn scratch_from<T>(from: impl IntoIterator<Item = T>) -> Vec<T> {
    raise(collected(from))
}

/// [`with_capacity`], in a kernel.
pub fn scratch_room<T>(len: usize) -> Vec<T> {
    raise(with_capacity(len))
}

/// Gives a vector `len` elements, in a kernel; new ones are clones of `value`.
pub fn scratch_resize<T: Clone>(vector: &mut Vec<T>, len: usize, value: T) {
    let more = len.saturating_sub(vector.len());
    if vector.try_reserve_exact(more).is_err() {
        raise::<()>(Err(out_of_memory(len, size_of::<T>())));
    }
    vector.resize(len, value);
}

/// Makes room for so many elements more, in a kernel.
pub fn scratch_reserve<T>(vector: &mut Vec<T>, more: usize) {
    if vector.try_reserve(more).is_err() {
        raise::<()>(Err(out_of_memory(vector.len().saturating_add(more), size_of::<T>())));
    }
}

/// Runs a kernel: where it finds no memory to work in, this is its error.
pub fn kernel<R>(f: impl FnOnce() -> Result<R>) -> Result<R> {
    // What is half done is dropped on the way, or is an in-place write that the error tells of.
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(result) => result,
        Err(payload) => match payload.downcast::<Error>() {
            Ok(error) => Err(error),
            Err(other) => resume_unwind(other),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_much_is_an_error() {
        // Miri ends where its memory does, so there it is more than there are addresses.
        let most = if cfg!(miri) { usize::MAX } else { isize::MAX as usize / 8 };
        assert!(filled(0u64, most).is_err_and(|e| e.to_string().contains("out of memory")));
        assert!(with_capacity::<u64>(usize::MAX).is_err());
        assert!(collected((0..most).map(|i| i as u64)).is_err());
        assert!(kernel(|| Ok(scratch(0u64, most))).is_err_and(|e| matches!(*e, Error::OutOfMemory { .. })));
        assert_eq!(kernel(|| Ok(scratch(7, 2))).unwrap(), [7, 7]);
        assert_eq!(collected((0..9).filter(|i| i % 2 == 0)).unwrap(), [0, 2, 4, 6, 8]);
    }

    #[test]
    fn other_panics_pass() {
        let other = catch_unwind(|| kernel(|| -> Result<()> { resume_unwind(Box::new("another")) }));
        assert_eq!(other.unwrap_err().downcast_ref::<&str>(), Some(&"another"));
    }
}
