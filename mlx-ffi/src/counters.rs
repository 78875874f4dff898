//! Counts of calls into MLX, always on: a thread adds to counts of its own, a snapshot adds up all threads'. Depends on
//! nothing. Invariant: a thread's counts outlive it in the total.

use std::ops::Sub;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// How often MLX was called, since the process or thread started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Operations recorded: calls that make arrays from arrays.
    pub ops: u64,
    /// Of these, calls of `contiguous`.
    pub contiguous: u64,
    /// Evaluations requested, with and without waiting.
    pub evaluations: u64,
}

impl Sub for Counts {
    type Output = Counts;

    fn sub(self, rhs: Counts) -> Counts {
        Counts {
            ops: self.ops.wrapping_sub(rhs.ops),
            contiguous: self.contiguous.wrapping_sub(rhs.contiguous),
            evaluations: self.evaluations.wrapping_sub(rhs.evaluations),
        }
    }
}

/// One thread's counts: written by that thread alone, so that a plain load and store add one without a bus lock.
#[derive(Default)]
struct Local {
    ops: AtomicU64,
    contiguous: AtomicU64,
    evaluations: AtomicU64,
}

impl Local {
    fn read(&self) -> Counts {
        Counts {
            ops: self.ops.load(Ordering::Relaxed),
            contiguous: self.contiguous.load(Ordering::Relaxed),
            evaluations: self.evaluations.load(Ordering::Relaxed),
        }
    }
}

struct Registry {
    running: Vec<Arc<Local>>,
    finished: Counts,
}

static REGISTRY: Mutex<Registry> =
    Mutex::new(Registry { running: Vec::new(), finished: Counts { ops: 0, contiguous: 0, evaluations: 0 } });

struct Registered(Arc<Local>);

impl Registered {
    fn new() -> Self {
        let local = Arc::new(Local::default());
        REGISTRY.lock().unwrap_or_else(|e| e.into_inner()).running.push(Arc::clone(&local));
        Registered(local)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut registry = REGISTRY.lock().unwrap_or_else(|e| e.into_inner());
        registry.running.retain(|l| !Arc::ptr_eq(l, &self.0));
        let last = self.0.read();
        registry.finished.ops += last.ops;
        registry.finished.contiguous += last.contiguous;
        registry.finished.evaluations += last.evaluations;
    }
}

thread_local! {
    static LOCAL: Registered = Registered::new();
}

#[inline(always)]
fn add_one(field: impl Fn(&Local) -> &AtomicU64) {
    // A thread whose locals are gone already is ending: its last few calls go uncounted.
    let _ = LOCAL.try_with(|l| {
        let cell = field(&l.0);
        cell.store(cell.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    });
}

#[inline(always)]
pub(crate) fn count_op() {
    add_one(|l| &l.ops);
}

pub(crate) fn count_contiguous() {
    add_one(|l| &l.contiguous);
}

pub(crate) fn count_evaluation() {
    add_one(|l| &l.evaluations);
}

/// The calling thread's counts.
pub fn thread() -> Counts {
    LOCAL.try_with(|l| l.0.read()).unwrap_or_default()
}

/// All threads' counts, ended ones included.
pub fn process() -> Counts {
    let registry = REGISTRY.lock().unwrap_or_else(|e| e.into_inner());
    registry.running.iter().map(|l| l.read()).fold(registry.finished, |sum, c| Counts {
        ops: sum.ops + c.ops,
        contiguous: sum.contiguous + c.contiguous,
        evaluations: sum.evaluations + c.evaluations,
    })
}
