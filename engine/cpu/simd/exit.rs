//! The end of the process: nobody is inside of OpenBLAS when its destructor gives its buffers back to the system.
//!
//! Depends on mlx-ffi, whose streams compute by these kernels too and are waited for first. Invariants: once the gate is
//! closed only the thread that ends the process passes it, others stop there for good; a forked child closes nothing.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Once;
use std::time::Duration;

/// Counters that threads are spread over, so that they rarely meet at one.
const COUNTERS: usize = 16;

#[derive(Default)]
#[repr(align(64))]
struct Counter(AtomicUsize);

static INSIDE: [Counter; COUNTERS] = [const { Counter(AtomicUsize::new(0)) }; COUNTERS];
static CLOSED: AtomicBool = AtomicBool::new(false);
static PROCESS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// How often this thread has entered and not left.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    static COUNTER: Cell<usize> = const { Cell::new(usize::MAX) };
    /// Does this thread end the process?
    static ENDS: Cell<bool> = const { Cell::new(false) };
}

/// A thread's stay inside of OpenBLAS.
#[derive(Debug)]
pub struct Inside(());

impl Drop for Inside {
    fn drop(&mut self) {
        let depth = DEPTH.get() - 1;
        DEPTH.set(depth);
        if depth == 0 {
            INSIDE[COUNTER.get()].0.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// To be held around every call of OpenBLAS.
pub fn enter() -> Inside {
    if DEPTH.get() == 0 {
        if COUNTER.get() == usize::MAX {
            register();
            static NEXT: AtomicUsize = AtomicUsize::new(0);
            COUNTER.set(NEXT.fetch_add(1, Ordering::Relaxed) % COUNTERS);
        }
        let counter = &INSIDE[COUNTER.get()].0;
        counter.fetch_add(1, Ordering::SeqCst);
        if CLOSED.load(Ordering::SeqCst) && !ENDS.get() {
            counter.fetch_sub(1, Ordering::SeqCst);
            loop {
                std::thread::park();
            }
        }
    }
    DEPTH.set(DEPTH.get() + 1);
    Inside(())
}

/// Is the gate closed: does the process end?
#[inline]
pub fn is_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}

#[cold]
fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        PROCESS.store(std::process::id() as usize, Ordering::Relaxed);
        if cfg!(miri) {
            // Miri has no `atexit`, nor an OpenBLAS whose buffers anybody would miss.
            return;
        }
        // SAFETY: a function that does not unwind. Where there is no memory left to note it, the process ends as before.
        unsafe { libc::atexit(close) };
    });
}

extern "C" fn close() {
    // A forked child has none of the threads that were inside.
    if PROCESS.load(Ordering::Relaxed) != std::process::id() as usize {
        return;
    }
    mlx_ffi::finish();
    ENDS.set(true);
    CLOSED.store(true, Ordering::SeqCst);
    // The thread itself is inside where a signal's handler ends the process.
    let own = (DEPTH.get() > 0).then(|| COUNTER.get());
    let busy = |(i, c): (usize, &Counter)| c.0.load(Ordering::SeqCst) > usize::from(own == Some(i));
    while INSIDE.iter().enumerate().any(busy) {
        std::thread::sleep(Duration::from_micros(200));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stay_within_a_stay_counts_once() {
        let count = || INSIDE[COUNTER.get()].0.load(Ordering::SeqCst);
        let outer = enter();
        let before = count();
        drop(enter());
        assert_eq!((count(), DEPTH.get()), (before, 1));
        drop(outer);
        assert_eq!(DEPTH.get(), 0);
    }
}
