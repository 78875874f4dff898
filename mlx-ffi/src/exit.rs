//! The end of the process: what was scheduled is computed before libraries are finalised. Depends on the stream and eval modules.
//!
//! A stream's thread that still multiplies while OpenBLAS's destructor unmaps its buffers ends the process by a signal.
//! Invariants: once the process exits nothing is scheduled any more; a forked child, which has no such thread, waits for nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::error::{check, Error, Result};
use crate::{eval, stream, sys};

static EXITING: AtomicBool = AtomicBool::new(false);

/// How long an evaluation that another thread has begun to schedule is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

extern "C" fn run() {
    finish();
}

/// Has the process's first thread, if it calls this, [`finish`] where it exits: before libraries undo what they made on first
/// use, which other threads may be in.
pub fn finish_with_thread() {
    // SAFETY: a function that does not unwind.
    unsafe { sys::lucid_before_exit(Some(run)) };
}

/// Registers [`finish`] with the C library; called once the stream exists, so that it runs before what MLX registered.
pub(crate) fn register() -> Result<()> {
    finish_with_thread();
    // SAFETY: a function that does not unwind.
    match unsafe { sys::lucid_at_exit(Some(run)) } {
        0 => Ok(()),
        _ => Err(Error::Mlx("this process has no memory left to note what is to be done at its end".into())),
    }
}

/// Has the process end with its own status where MLX destroys handles of CUDA, or waits for its streams, after the driver has
/// gone, which would abort it. The C library undoes things in the reverse order, so that what is noted last holds for all that
/// was made before; noting it again is harmless.
pub(crate) fn outlive_driver() -> Result<()> {
    // SAFETY: no arguments.
    match unsafe { sys::lucid_outlive_driver() } {
        0 => Ok(()),
        _ => Err(Error::Mlx("this process has no memory left to note what is to be done at its end".into())),
    }
}

/// An error once the process exits. Asked under the evaluation lock.
pub(crate) fn ensure_running() -> Result<()> {
    match EXITING.load(Ordering::Acquire) {
        false => Ok(()),
        true => Err(Error::Exiting),
    }
}

/// Waits until everything scheduled so far has been computed, and leaves errors to who evaluated. Does nothing where MLX is
/// not in use, in a forked child, and on a stream's own thread.
pub fn drain() {
    // SAFETY: no arguments; reads one word of the thread's.
    if stream::forked() || unsafe { sys::lucid_in_task() } {
        return;
    }
    // Python's own end comes before the C library's. Without memory for it the end may be by a signal.
    let _ = outlive_driver();
    wait_for_streams(true);
}

/// Waits for the CPU's streams, and for those of a GPU where `gpu`.
fn wait_for_streams(gpu: bool) {
    for stream in stream::existing() {
        // SAFETY: a valid handle that is never freed. What fails here has failed for who evaluated it, too.
        let _ = check(unsafe { sys::lucid_drain(stream, gpu) });
    }
}

/// Refuses new evaluations from now on, on every thread, and waits for those that were begun. The C library calls this when
/// the process exits; calling it again is harmless.
pub fn finish() {
    if stream::forked() {
        return;
    }
    EXITING.store(true, Ordering::Release);
    // SAFETY: no arguments; reads one word of the thread's.
    if unsafe { sys::lucid_in_task() } {
        return;
    }
    // Whoever holds the lock schedules; whoever gets it after us is refused.
    let start = Instant::now();
    while !eval::schedule_is_free() && start.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_micros(200));
    }
    // MLX keeps a GPU's command encoders with the thread, which the C library has destroyed by now. Work on a GPU needs no wait
    // here: what it runs in is not finalised under it.
    wait_for_streams(false);
}
