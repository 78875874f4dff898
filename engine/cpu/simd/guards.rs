//! Guards of a buffer's elements: slices that live as long as its lock is held.
//!
//! Depends on `buffer`'s place and `fallible`. Invariant: a guard that writes leaves 0 or 1 where a `bool` is.

use super::buffer::Place;
use crate::error::{Error, Result};
use crate::fallible::out_of_memory;
use parking_lot::{RwLockReadGuard, RwLockWriteGuard};
use std::ops::{Deref, DerefMut};
use std::slice;

/// The error of a write to memory that must not be written to.
#[cold]
pub fn read_only(op: &'static str) -> Box<Error> {
    let why =
        "the tensor shows memory that is not writable, such as a read-only array's or that of bytes; clone() it first";
    Error::runtime(op, why)
}

/// A vector of zeros, which takes no memory until it is written to.
///
/// # Safety
/// Zeros must make a `T`.
pub(super) unsafe fn zeroed<T>(len: usize) -> Result<Vec<T>> {
    let layout = std::alloc::Layout::array::<T>(len).ok();
    let at = match layout {
        Some(layout) if layout.size() == 0 => return Ok(Vec::new()),
        // SAFETY: the size is not 0.
        Some(layout) => unsafe { std::alloc::alloc_zeroed(layout) },
        None => std::ptr::null_mut(),
    };
    if at.is_null() {
        return Err(out_of_memory(len, size_of::<T>()));
    }
    // SAFETY: allocated by the global allocator for so many elements, all of which zeros make.
    Ok(unsafe { Vec::from_raw_parts(at.cast(), len, len) })
}

/// Elements where they are, or a copy of those that others may make what no `bool` is.
pub(super) enum Elements<'a, T> {
    Here(&'a [T]),
    Copied(Vec<T>),
}

/// A buffer's elements, to read.
pub struct ReadGuard<'a, T> {
    data: Elements<'a, T>,
    _place: RwLockReadGuard<'a, Place>,
}

impl<'a, T> ReadGuard<'a, T> {
    pub(super) fn new(data: Elements<'a, T>, place: RwLockReadGuard<'a, Place>) -> ReadGuard<'a, T> {
        ReadGuard { data, _place: place }
    }
}

impl<T> Deref for ReadGuard<'_, T> {
    type Target = [T];
    #[inline]
    fn deref(&self) -> &[T] {
        match &self.data {
            Elements::Here(data) => data,
            Elements::Copied(data) => data,
        }
    }
}

/// A buffer's elements, to write.
pub struct WriteGuard<'a, T> {
    pub(super) data: &'a mut [T],
    /// How many bytes of the place must be 0 or 1 again at the end.
    pub(super) truths: usize,
    pub(super) place: RwLockWriteGuard<'a, Place>,
}

impl<T> Deref for WriteGuard<'_, T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        self.data
    }
}

impl<T> Drop for WriteGuard<'_, T> {
    fn drop(&mut self) {
        if self.truths > 0 {
            // SAFETY: so many bytes are there, the lock is still held, and nobody looks at the elements any more.
            let bytes = unsafe { slice::from_raw_parts_mut(self.place.ptr, self.truths) };
            bytes.iter_mut().for_each(|b| *b = u8::from(*b != 0));
        }
    }
}

impl<T> DerefMut for WriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.data
    }
}
