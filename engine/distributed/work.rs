//! Operations that were begun, to be waited for.
//!
//! Depends on errors alone. Invariant: a wait ends when the result is there, when its time is over, or when the program asks.

use crate::{Error, Result};
use parking_lot::{Condvar, Mutex};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

static INTERRUPT: OnceLock<fn() -> bool> = OnceLock::new();

/// How often who waits looks whether the program wants it to stop.
const LOOK: Duration = Duration::from_millis(100);

/// Says how to find out whether the program wants a wait to end, such as by Ctrl-C. Only the first setting counts.
pub fn set_interrupt(asked: fn() -> bool) {
    let _ = INTERRUPT.set(asked);
}

/// An operation that was begun.
pub struct Work<T> {
    pub(super) done: Arc<(Mutex<Option<Result<T>>>, Condvar)>,
    pub(super) op: &'static str,
    /// Operations are numbered in the order of the calls.
    pub(super) number: u64,
}

impl<T> Clone for Work<T> {
    fn clone(&self) -> Self {
        Work { done: Arc::clone(&self.done), op: self.op, number: self.number }
    }
}

impl<T: Clone> Work<T> {
    /// One that is done already.
    pub(super) fn finished(op: &'static str, value: Result<T>) -> Work<T> {
        Work { done: Arc::new((Mutex::new(Some(value)), Condvar::new())), op, number: 0 }
    }

    /// Is it done, or has it failed?
    pub fn is_completed(&self) -> bool {
        self.done.0.lock().is_some()
    }

    /// Waits for its result; for so long at most, if a time is given.
    ///
    /// # Errors
    /// What went wrong, or that it took longer.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<T> {
        let until = timeout.and_then(|t| Instant::now().checked_add(t));
        let mut done = self.done.0.lock();
        loop {
            if let Some(result) = &*done {
                return result.clone();
            }
            match until {
                None => self.done.1.wait(&mut done),
                Some(until) if Instant::now() >= until => {
                    return Err(Error::distributed(self.op, "not done within the time given to wait()"));
                }
                Some(until) => drop(self.done.1.wait_until(&mut done, until)),
            }
        }
    }
}

impl<T: Clone> Work<T> {
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Waits for its result, or until the program wants the wait to end.
    pub(super) fn wait_interruptible(&self) -> Result<T> {
        loop {
            let waited = self.wait(Some(LOOK));
            if self.is_completed() {
                return self.wait(None);
            }
            if INTERRUPT.get().is_some_and(|asked| asked()) {
                return waited;
            }
        }
    }
}
