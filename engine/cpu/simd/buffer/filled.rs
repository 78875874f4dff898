//! Buffers of elements that are written before anyone has the buffer, and bytes that are written in place.
//!
//! Depends on `buffer`. Invariant: every element is written before it can be read.

use super::{Block, Buffer, Memory, WriteGuard};
use crate::dtype::{DType, Element};
use crate::error::Result;
use std::ops::Range;
use std::slice;
use std::sync::Arc;

impl Buffer {
    /// A buffer of `len` elements that `fill` writes. It is made where it stays: of one that is filled and then moved, the small ops
    /// wait for what they have just stored to reach memory.
    #[inline]
    pub(crate) fn filled<T: Element>(len: usize, fill: impl FnOnce(&mut [T]) -> Result<()>) -> Result<Arc<Buffer>> {
        let block = Block::new(len, size_of::<T>(), T::DTYPE == DType::Bool)?;
        // SAFETY: the block is new, aligned for any element, and that long; every byte of it has a value, of `bool` 0.
        fill(unsafe { slice::from_raw_parts_mut(block.as_ptr().cast::<T>(), len) })?;
        Ok(Arc::new(Buffer::on(Memory::Own(block), T::DTYPE, len)))
    }

    /// Overwrites some of the bytes with those that `write` puts there; any but 0 is `true` in a `bool` buffer.
    ///
    /// # Errors
    /// As [`Buffer::write`], and what `write` returns.
    ///
    /// # Panics
    /// Where the buffer has no such bytes.
    pub fn overwrite_by(&self, span: Range<usize>, write: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<()> {
        let place = self.exclusive()?;
        // SAFETY: as in `read_bytes`, and the write lock makes this the only slice.
        let data = unsafe { slice::from_raw_parts_mut(place.ptr, self.bytes()) };
        let truths = if self.dtype == DType::Bool { self.bytes() } else { self.to_check(false) };
        let mut guard = WriteGuard { data, truths, place };
        write(&mut guard[span])
    }
}
