//! Allocation for buffers: 64-byte aligned blocks (with Accelerate, so on macOS, large ones are page-aligned), kept for reuse when freed, and
//! counted.
//!
//! Depends on `error` and `small`. A fresh large block costs a page fault per 4 KiB, more than an element-wise op on it; so freed
//! ones wait in size classes, up to a limit in bytes for all together; beyond it those go first whose size was not asked for
//! longest, so that the cache follows shapes that change. Invariant: the counters say what live buffers hold.

use super::{tally, thread_cache};
use crate::error::{Error, Result};
use crate::Device;
use parking_lot::Mutex;
use std::alloc::Layout;
use std::collections::BTreeMap;
use std::ptr::NonNull;

const ALIGN: usize = 64;
/// Smaller blocks are kept by the thread that freed them.
const CACHED_FROM: usize = thread_cache::BELOW;
/// What large blocks are aligned to: Metal uses memory in place where it starts on a page and fills whole ones.
const PAGE: usize = if cfg!(accelerate) { 16 << 10 } else { ALIGN };
/// The most that freed blocks may hold, unless set otherwise.
const CACHE_LIMIT: usize = 256 << 20;

static FREE: Mutex<Free> = Mutex::new(Free { classes: BTreeMap::new(), bytes: 0, limit: CACHE_LIMIT, asked: 0 });

/// Freed blocks by size.
struct Free {
    classes: BTreeMap<usize, Class>,
    bytes: usize,
    limit: usize,
    /// How often a block was asked for or given back.
    asked: u64,
}

/// Freed blocks of one size.
#[derive(Default)]
struct Class {
    blocks: Vec<Raw>,
    /// When one of this size was last asked for or given back.
    last: u64,
}

impl Free {
    /// The class of a size, which is in use now.
    fn class(&mut self, size: usize) -> &mut Class {
        self.asked += 1;
        let class = self.classes.entry(size).or_default();
        class.last = self.asked;
        class
    }

    fn take(&mut self, size: usize) -> Option<NonNull<u8>> {
        let raw = self.class(size).blocks.pop()?;
        self.bytes -= size;
        Some(raw.0)
    }

    fn give(&mut self, size: usize, block: NonNull<u8>) {
        if size > self.limit {
            return release(block, size);
        }
        self.class(size).blocks.push(Raw(block));
        self.bytes += size;
        self.trim();
    }

    /// Releases blocks until the limit holds.
    fn trim(&mut self) {
        while self.bytes > self.limit {
            // There are a few dozen sizes at most, and this runs where the cache is full.
            let Some(size) = self.classes.iter().min_by_key(|(_, c)| c.last).map(|(&size, _)| size) else { return };
            let Some(class) = self.classes.get_mut(&size) else { return };
            match class.blocks.pop() {
                Some(raw) => {
                    self.bytes -= size;
                    release(raw.0, size);
                }
                None => drop(self.classes.remove(&size)),
            }
        }
    }
}

struct Raw(NonNull<u8>);
// SAFETY: a freed block is plain memory that nothing refers to.
unsafe impl Send for Raw {}

/// What CPU tensors hold, for the whole process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Bytes in live buffers.
    pub current: usize,
    /// The most there have been since the last `reset_peak`.
    pub peak: usize,
    /// Bytes in freed blocks of 32 KiB and more that are kept for reuse. Of smaller ones each thread keeps 256 KiB at most, which
    /// are not counted.
    pub cached: usize,
    /// Allocations made, reused blocks included.
    pub allocations: usize,
}

/// The counters now.
pub fn stats() -> Stats {
    let cached = FREE.lock().bytes;
    let (current, peak, allocations) = tally::counts();
    Stats { current, peak, cached, allocations }
}

/// Sets the peak to what is held now.
pub fn reset_peak() {
    tally::reset_peak();
}

/// Gives freed blocks back to the system; of small ones those that this thread freed.
pub fn empty_cache() {
    thread_cache::clear();
    let mut free = FREE.lock();
    let limit = std::mem::replace(&mut free.limit, 0);
    free.trim();
    free.limit = limit;
}

/// Sets the most bytes that freed blocks may hold, and gives back what is beyond; returns the limit until now.
pub fn set_cache_limit(bytes: usize) -> usize {
    thread_cache::set_limit(bytes);
    let mut free = FREE.lock();
    let before = std::mem::replace(&mut free.limit, bytes);
    free.trim();
    before
}

/// An allocated piece of memory; freed when dropped.
pub struct Block {
    ptr: NonNull<u8>,
    /// What was asked for, in bytes, as far as it is counted.
    bytes: usize,
    /// What was allocated: 0 for no memory at all.
    size: usize,
}

// SAFETY: plain memory with one owner; who shares the block sees to who writes.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

/// The size class: an eighth of a power of two is the most that is wasted.
fn class(bytes: usize) -> Option<usize> {
    let step = if bytes < CACHED_FROM { ALIGN } else { (bytes.next_power_of_two() / 16).max(PAGE) };
    bytes.checked_next_multiple_of(step)
}

fn align(size: usize) -> usize {
    match size {
        CACHED_FROM.. => PAGE,
        _ => ALIGN,
    }
}

pub(super) fn release(ptr: NonNull<u8>, size: usize) {
    // SAFETY: the block was allocated with this size and alignment, and nothing refers to it any more.
    unsafe { std::alloc::dealloc(ptr.as_ptr(), Layout::from_size_align_unchecked(size, align(size))) };
}

impl Block {
    /// Memory for `len` elements of `width` bytes with arbitrary contents, or zeros.
    pub fn new(len: usize, width: usize, zeroed: bool) -> Result<Block> {
        let mut block = Block::uncounted(len, width)?;
        if block.size == 0 {
            return Ok(block);
        }
        if zeroed {
            // SAFETY: the block has that size.
            unsafe { block.ptr.as_ptr().write_bytes(0, block.size) };
        }
        block.bytes = len * width;
        tally::made(block.bytes, block.size < CACHED_FROM);
        Ok(block)
    }

    /// Memory to work in, with arbitrary contents, which the counters do not see.
    pub fn uncounted(len: usize, width: usize) -> Result<Block> {
        let out_of_memory = |what: String| {
            let why = format!("cannot allocate {what}; free tensors or use smaller ones");
            Box::new(Error::OutOfMemory { device: Device::Cpu, why: why.into() })
        };
        let bytes = len.checked_mul(width).filter(|&b| b <= isize::MAX as usize / 2);
        let Some((bytes, size)) = bytes.and_then(|b| Some((b, class(b)?))) else {
            return Err(out_of_memory(format!("{len} elements of {width} bytes")));
        };
        if bytes == 0 {
            return Ok(Block { ptr: dangling(), bytes: 0, size: 0 });
        }
        let reused = if size < CACHED_FROM { thread_cache::take(size) } else { FREE.lock().take(size) };
        let ptr = match reused {
            Some(ptr) => ptr,
            None => {
                let layout = Layout::from_size_align(size, align(size));
                let layout = layout.map_err(|_| out_of_memory(format!("{bytes} bytes")))?;
                // SAFETY: the size is not 0.
                let get = || NonNull::new(unsafe { std::alloc::alloc(layout) });
                let ptr = get().or_else(|| {
                    empty_cache();
                    get()
                });
                ptr.ok_or_else(|| out_of_memory(format!("{bytes} bytes")))?
            }
        };
        freeze(ptr, size);
        Ok(Block { ptr, bytes: 0, size })
    }

    pub fn as_ptr(&self) -> *mut u8 {
        self.ptr.as_ptr()
    }

    /// Can a GPU that shares the machine's memory use it in place?
    pub fn fills_pages(&self) -> bool {
        self.size >= CACHED_FROM && self.bytes.is_multiple_of(PAGE)
    }
}

/// An aligned address for buffers without elements.
fn dangling() -> NonNull<u8> {
    #[repr(align(64))]
    struct Aligned;
    NonNull::<Aligned>::dangling().cast()
}

/// Makes fresh memory hold arbitrary but fixed bytes, as far as the compiler can tell.
fn freeze(ptr: NonNull<u8>, size: usize) {
    if cfg!(miri) {
        // Miri runs no assembly. It gets bytes that are no zeros, so that who relies on zeros is found.
        // SAFETY: the block has that size.
        unsafe { ptr.as_ptr().write_bytes(0xa5, size) };
        return;
    }
    // SAFETY: no instruction at all. The compiler must assume that it wrote to the memory, which is thereby initialised:
    // reading an element before it is written gives some number, not undefined behaviour.
    unsafe { std::arch::asm!("/* {0} */", in(reg) ptr.as_ptr(), options(nostack, preserves_flags)) };
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.size == 0 {
            return;
        }
        if self.bytes > 0 {
            tally::freed(self.bytes, self.size < CACHED_FROM);
        }
        match self.size {
            CACHED_FROM.. => FREE.lock().give(self.size, self.ptr),
            size => thread_cache::give(self.ptr, size),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_waste_at_most_an_eighth() {
        for bytes in [1, 63, 64, 65, 40_000, 1 << 20, (1 << 20) + 1, 123_456_789] {
            let size = class(bytes).unwrap();
            assert!(
                size >= bytes && size & (align(size) - 1) == 0 && size - bytes <= (bytes / 8).max(align(size)),
                "{bytes} {size}"
            );
        }
    }

    #[test]
    fn freed_blocks_are_reused_and_given_back() {
        let size = 3 << 20;
        let block = Block::new(size, 1, false).unwrap();
        let first = block.as_ptr();
        drop(block);
        assert!(stats().cached >= size);
        let again = Block::new(size - 100, 1, true).unwrap();
        assert_eq!(again.as_ptr(), first);
        assert!(stats().current >= size - 100 && stats().peak >= stats().current);
    }

    #[test]
    fn a_full_cache_lets_go_of_what_was_not_asked_for_longest() {
        let mut free = Free { classes: BTreeMap::new(), bytes: 0, limit: 4 * CACHED_FROM, asked: 0 };
        let fresh = |size| {
            let mut block = Block::new(size, 1, false).unwrap();
            let ptr = std::mem::replace(&mut block.ptr, dangling());
            tally::freed(std::mem::take(&mut block.bytes), false);
            block.size = 0;
            ptr
        };
        let (small, large) = (CACHED_FROM, 2 * CACHED_FROM);
        free.give(small, fresh(small));
        free.give(large, fresh(large));
        free.give(small, fresh(small));
        assert_eq!(free.bytes, 4 * CACHED_FROM);
        // The large one is the oldest now.
        free.give(small, fresh(small));
        assert_eq!(free.bytes, 3 * CACHED_FROM);
        assert!(free.take(large).is_none());
        // Larger than the limit: the others stay.
        free.give(8 * CACHED_FROM, fresh(8 * CACHED_FROM));
        assert_eq!(free.bytes, 3 * CACHED_FROM);
        free.limit = 0;
        free.trim();
        assert_eq!((free.bytes, free.classes.values().map(|c| c.blocks.len()).sum::<usize>()), (0, 0));
    }
}
