//! Freed small blocks, each thread's own: the system's allocator is slow to align what is small, and the result of a small op
//! is freed as soon as the next one has read it.
//!
//! A list per size, linked through the blocks themselves. Part of `alloc`. Invariant: a block in a list has that list's
//! size and nothing refers to it; a thread keeps at most [`MOST`] bytes, and releases all that it keeps where that is not
//! enough, so that shapes which are not used any more make room, and where it ends.

use super::alloc::release;
use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Sizes are multiples of this.
const STEP: usize = 64;
/// Smaller blocks than this are kept.
pub(super) const BELOW: usize = 32 << 10;
/// The most bytes that a thread keeps.
const MOST: usize = 256 << 10;

static LIMIT: AtomicUsize = AtomicUsize::new(MOST);

struct Lists {
    first: [Option<NonNull<u8>>; BELOW / STEP],
    bytes: usize,
}

thread_local! {
    static LISTS: UnsafeCell<Lists> = const { UnsafeCell::new(Lists { first: [None; BELOW / STEP], bytes: 0 }) };
}

/// Sets the most bytes that a thread may keep from now on, [`MOST`] at most.
pub(super) fn set_limit(bytes: usize) {
    LIMIT.store(bytes.min(MOST), Relaxed);
}

/// A block of this size that the thread has kept. The size is a multiple of [`STEP`] below [`BELOW`].
#[inline]
pub(super) fn take(size: usize) -> Option<NonNull<u8>> {
    let taken = LISTS.try_with(|lists| {
        // SAFETY: the thread's own, and nothing that runs meanwhile comes back here.
        let lists = unsafe { &mut *lists.get() };
        let first = &mut lists.first[size / STEP];
        let block = (*first)?;
        // SAFETY: a block in a list holds the address of the next one.
        *first = unsafe { block.cast::<Option<NonNull<u8>>>().read() };
        lists.bytes -= size;
        Some(block)
    });
    taken.ok().flatten()
}

/// Keeps a block of this size, to which nothing refers any more, or releases it.
#[inline]
pub(super) fn give(block: NonNull<u8>, size: usize) {
    let kept = LISTS.try_with(|lists| {
        // SAFETY: as in `take`.
        let lists = unsafe { &mut *lists.get() };
        if lists.bytes + size > LIMIT.load(Relaxed) {
            lists.clear();
        }
        if size > LIMIT.load(Relaxed) {
            return false;
        }
        let first = &mut lists.first[size / STEP];
        // SAFETY: the block is aligned for an address and has room for one.
        unsafe { block.cast::<Option<NonNull<u8>>>().write(*first) };
        *first = Some(block);
        lists.bytes += size;
        true
    });
    // A thread whose locals are gone keeps nothing.
    if !kept.unwrap_or(false) {
        release(block, size);
    }
}

/// Releases what the calling thread keeps.
pub(super) fn clear() {
    // SAFETY: as in `take`.
    let _ = LISTS.try_with(|lists| unsafe { &mut *lists.get() }.clear());
}

impl Lists {
    #[cold]
    fn clear(&mut self) {
        for (i, first) in self.first.iter_mut().enumerate() {
            while let Some(block) = *first {
                // SAFETY: as in `take`.
                *first = unsafe { block.cast::<Option<NonNull<u8>>>().read() };
                release(block, i * STEP);
            }
        }
        self.bytes = 0;
    }
}

impl Drop for Lists {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::super::alloc::Block;
    use super::*;

    fn kept() -> usize {
        // SAFETY: as in `take`.
        LISTS.with(|lists| unsafe { &*lists.get() }.bytes)
    }

    #[test]
    fn a_thread_keeps_what_it_frees_up_to_a_limit() {
        let test = || {
            let fresh = |size| Block::new(size, 1, false).unwrap();
            let (a, b) = (fresh(100), fresh(128));
            let (first, second) = (a.as_ptr(), b.as_ptr());
            drop(a);
            drop(b);
            assert_eq!(kept(), 256);
            let again = [fresh(64), fresh(120), fresh(65), fresh(128)];
            assert_eq!((again[1].as_ptr(), again[2].as_ptr(), kept()), (second, first, 0));
            drop(again);
            assert_eq!(kept(), 64 + 3 * 128);
            clear();
            assert_eq!(kept(), 0);
            let large = BELOW - STEP;
            let blocks: Vec<Block> = (0..=MOST / large).map(|_| fresh(large)).collect();
            drop(blocks);
            assert_eq!(kept(), large, "all that was kept made room for the last one");
        };
        std::thread::spawn(test).join().unwrap();
    }
}
