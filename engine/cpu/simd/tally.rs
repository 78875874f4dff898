//! How much live blocks hold, and how many were made: counters that small ops do not meet other threads at.
//!
//! Part of `alloc`. Small blocks are counted by the thread that makes or frees them, without a locked instruction, which costs
//! as much as the work of a small op; what a thread has counted goes into the process's counters when it exceeds [`MOST`], and
//! when the thread ends. Invariant: only its own thread writes a [`Tally`]; what all threads together hold is the process's
//! count and theirs. The peak misses at most [`MOST`] bytes for each thread but the one that asks.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;

/// The most bytes that a thread counts by itself.
const MOST: isize = 1 << 20;

static CURRENT: AtomicIsize = AtomicIsize::new(0);
static PEAK: AtomicIsize = AtomicIsize::new(0);
static MADE: AtomicUsize = AtomicUsize::new(0);
static THREADS: Mutex<Vec<Arc<Tally>>> = Mutex::new(Vec::new());

/// What one thread has counted.
#[derive(Default)]
struct Tally {
    /// Bytes in blocks that it made, less those in blocks that it freed.
    bytes: AtomicIsize,
    made: AtomicUsize,
}

/// The thread's tally, in the list of all while the thread lives.
struct Member(Arc<Tally>);

impl Member {
    #[cold]
    fn new() -> Member {
        let tally = Arc::new(Tally::default());
        THREADS.lock().push(Arc::clone(&tally));
        Member(tally)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut all = THREADS.lock();
        all.retain(|tally| !Arc::ptr_eq(tally, &self.0));
        CURRENT.fetch_add(self.0.bytes.load(Relaxed), Relaxed);
        MADE.fetch_add(self.0.made.load(Relaxed), Relaxed);
    }
}

thread_local! {
    static OWN: Member = Member::new();
}

/// Adds to what the thread has counted, and gives how many bytes that is then; `None` where the thread is about to end.
#[inline]
fn add(bytes: isize, made: usize) -> Option<isize> {
    let added = OWN.try_with(|Member(own)| {
        let held = own.bytes.load(Relaxed) + bytes;
        own.bytes.store(held, Relaxed);
        own.made.store(own.made.load(Relaxed) + made, Relaxed);
        held
    });
    added.ok()
}

/// Moves what the thread has counted to the process's counters.
#[cold]
fn hand_over() {
    let _ = OWN.try_with(|Member(own)| CURRENT.fetch_add(own.bytes.swap(0, Relaxed), Relaxed));
}

/// Raises the peak to what all threads hold.
#[cold]
fn raise_peak() {
    PEAK.fetch_max(held(), Relaxed);
}

/// What all threads hold.
fn held() -> isize {
    let all = THREADS.lock();
    CURRENT.load(Relaxed) + all.iter().map(|tally| tally.bytes.load(Relaxed)).sum::<isize>()
}

/// Counts a block of so many bytes; a small one is counted by the thread.
#[inline]
pub(super) fn made(bytes: usize, small: bool) {
    let bytes = bytes as isize;
    let own = match add(if small { bytes } else { 0 }, 1) {
        Some(own) => own,
        None => {
            MADE.fetch_add(1, Relaxed);
            CURRENT.fetch_add(if small { bytes } else { 0 }, Relaxed);
            0
        }
    };
    if !small {
        CURRENT.fetch_add(bytes, Relaxed);
    }
    if CURRENT.load(Relaxed) + own > PEAK.load(Relaxed) {
        raise_peak();
    }
    if own > MOST {
        hand_over();
    }
}

/// Counts that such a block is freed.
#[inline]
pub(super) fn freed(bytes: usize, small: bool) {
    let bytes = bytes as isize;
    match if small { add(-bytes, 0) } else { None } {
        Some(own) if own < -MOST => hand_over(),
        Some(_) => {}
        None => drop(CURRENT.fetch_sub(bytes, Relaxed)),
    }
}

/// Bytes that are held now, the most there have been, and the number of blocks made.
pub(super) fn counts() -> (usize, usize, usize) {
    let now = held().max(0);
    let peak = PEAK.fetch_max(now, Relaxed).max(now);
    let made = MADE.load(Relaxed) + THREADS.lock().iter().map(|tally| tally.made.load(Relaxed)).sum::<usize>();
    (now as usize, peak as usize, made)
}

/// Sets the peak to what is held now.
pub(super) fn reset_peak() {
    PEAK.store(held(), Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_threads_count_is_the_process_s_when_they_end() {
        let size = 300 << 20;
        let (before, _, blocks) = counts();
        // A thread that frees what another made, and ends.
        std::thread::spawn(move || (0..300).for_each(|_| made(1 << 20, true))).join().unwrap();
        let (now, peak, more) = counts();
        assert!(
            now >= before + size / 2 && peak >= now && more >= blocks + 300,
            "{before} {now} {peak} {blocks} {more}"
        );
        std::thread::spawn(move || (0..300).for_each(|_| freed(1 << 20, true))).join().unwrap();
        assert!(counts().0 < now - size / 2);
    }
}
