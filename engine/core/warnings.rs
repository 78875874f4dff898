//! Warnings of ops: calls that work, and that PyTorch warns of.
//!
//! They go to standard error, or are kept for the embedding language, which fetches them behind each call: it may turn
//! a warning into an error, which is then the call's. Until one is given, a call pays for one relaxed load.

use crate::DType;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Are warnings kept?
static KEPT: AtomicBool = AtomicBool::new(false);
/// Is each warning given whenever there is a reason for it?
static ALWAYS: AtomicBool = AtomicBool::new(false);
/// How many are kept, of all threads.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// The warnings that are kept for a thread. With a thread end those that nobody took.
struct Here(RefCell<Vec<String>>);

impl Drop for Here {
    fn drop(&mut self) {
        WAITING.fetch_sub(self.0.get_mut().len(), Ordering::Relaxed);
    }
}

thread_local! {
    static HERE: Here = const { Here(RefCell::new(Vec::new())) };
}

/// From here on warnings are kept for [`take`].
pub fn keep() {
    KEPT.store(true, Ordering::Relaxed);
}

/// Says whether what is warned of once in a process is warned of each time.
pub fn set_always(always: bool) {
    ALWAYS.store(always, Ordering::Relaxed);
}

/// Is what is warned of once in a process warned of each time?
pub fn is_always() -> bool {
    ALWAYS.load(Ordering::Relaxed)
}

/// Is there a warning that was not taken, of any thread?
#[inline]
pub fn waiting() -> bool {
    WAITING.load(Ordering::Relaxed) != 0
}

/// The warnings that this thread's calls gave and nobody took, in order.
#[cold]
pub fn take() -> Vec<String> {
    let taken = HERE.with(|here| here.0.take());
    WAITING.fetch_sub(taken.len(), Ordering::Relaxed);
    taken
}

/// Is it time for a warning that a process gives once? `given` says whether it was given.
pub fn due(given: &AtomicBool) -> bool {
    !given.swap(true, Ordering::Relaxed) || is_always()
}

/// Gives a warning.
#[cold]
pub fn warn(text: String) {
    if !KEPT.load(Ordering::Relaxed) {
        eprintln!("warning: {text}");
        return;
    }
    WAITING.fetch_add(1, Ordering::Relaxed);
    HERE.with(|here| here.0.borrow_mut().push(text));
}

/// Gives a warning once in a process.
#[macro_export]
macro_rules! warn_once {
    ($($text:tt)*) => {{
        static GIVEN: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
        if $crate::warnings::due(&GIVEN) {
            $crate::warnings::warn(format!($($text)*));
        }
    }};
}
pub use warn_once;

/// Warns where a cast drops imaginary parts.
#[inline]
pub fn of_cast(from: DType, to: DType) {
    if from.is_complex() && !to.is_complex() && to != DType::Bool {
        warn_once!("Casting complex values to real discards the imaginary part");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_of_a_thread_that_ends_do_not_wait() {
        keep();
        let warned = std::thread::spawn(|| {
            warn("nobody takes this".into());
            waiting()
        });
        assert!(warned.join().unwrap());
        warn("this is taken".into());
        assert_eq!(take(), ["this is taken"]);
        assert!(take().is_empty());
    }
}
