//! Whose memory a buffer's is: the engine's own, somebody else's, a segment that other processes map too, or an array's of
//! the GPU device.
//!
//! Depends on `alloc`, `shared` and mlx-ffi's [`HostLease`]. Invariant: the address stays valid, for as many bytes as the buffer asked for, until
//! the [`Memory`] is dropped.

use super::alloc::Block;
use super::shared_memory::Segment;
use mlx_ffi::HostLease;
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// What keeps memory alive that is not the engine's; dropped when no tensor shows the memory any more.
pub type Owner = Box<dyn Any + Send + Sync>;

/// Memory that somebody else allocated, such as a NumPy array's, for tensors to show without a copy.
///
/// Made by [`Foreign::new`], the one promise that has to be kept; [`lucid::Tensor::from_foreign`] checks the rest.
pub struct Foreign {
    ptr: *mut u8,
    bytes: usize,
    writable: bool,
    owner: Owner,
}

// SAFETY: the promise of `Foreign::new` holds on every thread, and the owner may cross threads.
unsafe impl Send for Foreign {}
// SAFETY: as above.
unsafe impl Sync for Foreign {}

impl Foreign {
    /// `bytes` bytes from `ptr` on, alive as long as `owner` is.
    ///
    /// # Safety
    /// Until the owner is dropped, the memory must be readable (where `writable`, writable too) from every thread and every
    /// byte of it must have a value. Others may change it only while no op of the engine works on it; what they put into the
    /// elements of a Boolean tensor must be 0 or 1.
    pub unsafe fn new(ptr: *mut u8, bytes: usize, writable: bool, owner: Owner) -> Foreign {
        Foreign { ptr, bytes, writable, owner }
    }

    /// The memory that an input of a node of MLX's CPU stream reaches over, to read.
    pub(crate) fn input(input: mlx_ffi::host::Input) -> Foreign {
        let (ptr, bytes) = input.memory();
        Foreign { ptr: ptr.cast_mut(), bytes, writable: false, owner: Box::new(input) }
    }

    /// How many bytes there are.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where the first one is.
    pub fn address(&self) -> usize {
        self.ptr as usize
    }

    /// May tensors on it be written to?
    pub fn writable(&self) -> bool {
        self.writable
    }

    /// The bytes, to read.
    pub fn as_bytes(&self) -> &[u8] {
        if self.bytes == 0 {
            return &[];
        }
        // SAFETY: readable and initialised, as promised to `new`; the slice borrows `self`, which holds the owner.
        unsafe { std::slice::from_raw_parts(self.ptr, self.bytes) }
    }
}

impl fmt::Debug for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Foreign({} bytes at {:?})", self.bytes, self.ptr)
    }
}

/// Elements that an MLX array can be made of without a copy.
pub enum Offer<'a> {
    /// They are such an array's already, with these values.
    Again(&'a HostLease, &'a [u8]),
    /// They are in memory of the engine's, with these values now.
    New(mlx_ffi::Memory, &'a [u8]),
}

/// What a buffer's elements are in.
pub(super) enum Memory {
    Own(Block),
    Foreign(Foreign),
    Shared(Segment),
    /// The engine's own, offered to MLX, which may keep it.
    Kept(Arc<Block>),
    /// The engine's own, most of it zeros that the system has not given pages to: what a storage was that has shrunk.
    Hollow(Vec<u128>),
    /// An MLX array's too: copied before it is written, unless that array is held here alone.
    Lent(HostLease),
}

impl Memory {
    pub(super) fn as_ptr(&self) -> *mut u8 {
        match self {
            Memory::Own(b) => b.as_ptr(),
            Memory::Kept(b) => b.as_ptr(),
            Memory::Foreign(f) => f.ptr,
            Memory::Shared(s) => s.as_ptr(),
            Memory::Hollow(v) => v.as_ptr().cast_mut().cast(),
            Memory::Lent(l) => l.as_ptr(),
        }
    }

    /// May it be exchanged for memory of another size?
    pub(super) fn is_resizable(&self) -> bool {
        !matches!(self, Memory::Foreign(_) | Memory::Shared(_))
    }

    pub(super) fn writable(&self) -> bool {
        match self {
            Memory::Own(_) | Memory::Kept(_) | Memory::Shared(_) | Memory::Hollow(_) | Memory::Lent(_) => true,
            Memory::Foreign(f) => {
                let _kept_alive = &f.owner;
                f.writable
            }
        }
    }
}
