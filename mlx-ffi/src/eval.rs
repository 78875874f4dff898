//! Evaluation: scheduling under one lock, waiting under another. Depends on the stream module and the shim.
//!
//! Scheduling walks the graph, detaches what it schedules and is not safe from two threads at once, so it is locked.
//! Waiting can take long and changes nothing that a builder of graphs sees, so it leaves that lock free; a second lock
//! keeps waits in turn, since MLX hands an error of the stream to the first who asks and then forgets it.
//! Lock order: wait lock, then evaluation lock. Invariant: no callback runs, and no array is dropped, under either.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, TryLockError};

use smallvec::SmallVec;

use crate::counters;
use crate::error::{check, Result};
use crate::exit::ensure_running;
use crate::stream::{ensure_not_forked, forked};
use crate::vector::Text;
use crate::{sys, Array};

static SCHEDULE: Mutex<()> = Mutex::new(());
static WAIT: Mutex<()> = Mutex::new(());
static SIBLINGS: AtomicBool = AtomicBool::new(false);
/// The largest array that may be allocated, where MLX itself does not check, and whether a larger one was recorded.
static LARGEST: AtomicUsize = AtomicUsize::new(usize::MAX);
static OVERSIZED: AtomicBool = AtomicBool::new(false);

/// Is something on its way from other processes, or did not come; and what looks after it.
static EXPECTED: AtomicBool = AtomicBool::new(false);
static ARRIVALS: OnceLock<Arrivals> = OnceLock::new();

/// What is called before an evaluation, with what gives the names of the primitives that it would run, one in each line.
pub(crate) type Arrivals = fn(&dyn Fn() -> Result<String>) -> Result<()>;

pub(crate) fn set_arrivals(arrivals: Arrivals) {
    let _ = ARRIVALS.set(arrivals);
}

pub(crate) fn expect_arrivals(expected: bool) {
    EXPECTED.store(expected, Ordering::Release);
}

#[inline(always)]
fn await_arrivals(handles: &[sys::mlx_array]) -> Result<()> {
    if !EXPECTED.load(Ordering::Acquire) {
        return Ok(());
    }
    let names = || {
        let mut names = Text::new();
        let _lock = schedule_lock();
        // SAFETY: as of `schedule`, and an out-parameter for the shim to fill; the lock keeps the graph as it is.
        check(unsafe { sys::lucid_graph_primitives(names.out(), handles.as_ptr(), handles.len()) })?;
        Ok(names.to_string())
    };
    ARRIVALS.get().map_or(Ok(()), |arrivals| arrivals(&names))
}

type Handles = SmallVec<[sys::mlx_array; 8]>;

/// The lock around whatever reads or changes the evaluation state of arrays.
pub(crate) fn schedule_lock() -> MutexGuard<'static, ()> {
    SCHEDULE.lock().unwrap_or_else(|e| e.into_inner())
}

/// Is nobody scheduling at this moment?
pub(crate) fn schedule_is_free() -> bool {
    !matches!(SCHEDULE.try_lock(), Err(TryLockError::WouldBlock))
}

/// The lock around waiting for the stream.
pub(crate) fn wait_lock() -> MutexGuard<'static, ()> {
    WAIT.lock().unwrap_or_else(|e| e.into_inner())
}

/// Says that primitives with several outputs may exist from now on. Their outputs refer to one another, and dropping
/// one while another thread detaches them is a race in MLX; dropping takes the lock once such arrays can exist.
#[inline]
pub(crate) fn expect_siblings() {
    SIBLINGS.store(true, Ordering::Relaxed);
}

/// Sets the size that no array may exceed, for a device on which MLX does not notice that it got no memory.
pub(crate) fn set_largest(bytes: usize) {
    LARGEST.store(bytes, Ordering::Relaxed);
}

/// Notes the size of a new array, so that evaluations look for oversized ones only once there can be one.
#[inline(always)]
pub(crate) fn note_size(bytes: usize) {
    if bytes > LARGEST.load(Ordering::Relaxed) {
        OVERSIZED.store(true, Ordering::Relaxed);
    }
}

/// Schedules; the caller holds the lock and keeps the handles valid.
unsafe fn schedule(handles: &[sys::mlx_array], waiter: *mut sys::lucid_waiter) -> Result<()> {
    ensure_running()?;
    counters::count_evaluation();
    // SAFETY: as the caller promises; the waiter is null or valid for writing.
    unsafe {
        if OVERSIZED.load(Ordering::Relaxed) {
            let largest = LARGEST.load(Ordering::Relaxed);
            check(sys::lucid_refuse_larger(handles.as_ptr(), handles.len(), largest))?;
        }
        check(sys::lucid_schedule(handles.as_ptr(), handles.len(), waiter))
    }
}

/// The guard to hold while arrays are freed.
#[inline(always)]
pub(crate) fn drop_guard() -> Option<MutexGuard<'static, ()>> {
    // Relaxed is enough: whoever holds an array derived from such a primitive got it from the thread that made it, by
    // some synchronisation that orders the store before this load.
    if SIBLINGS.load(Ordering::Relaxed) {
        slow_drop_guard()
    } else {
        None
    }
}

#[cold]
fn slow_drop_guard() -> Option<MutexGuard<'static, ()>> {
    // In a forked child the lock may be held by a thread that does not exist here.
    (!forked()).then(schedule_lock)
}

/// Evaluates the arrays and waits for them.
pub(crate) fn eval(arrays: &[&Array]) -> Result<()> {
    let handles: Handles = arrays.iter().map(|a| a.raw()).collect();
    eval_raw(&handles)
}

pub(crate) fn eval_raw(handles: &[sys::mlx_array]) -> Result<()> {
    ensure_not_forked()?;
    await_arrivals(handles)?;
    let mut waiter = sys::lucid_waiter { ctx: std::ptr::null_mut() };
    {
        let _lock = schedule_lock();
        // SAFETY: the handles are valid while their owners are borrowed by the caller; the lock is held.
        unsafe { schedule(handles, &mut waiter)? };
    }
    if waiter.ctx.is_null() {
        // All were available, or constants.
        return Ok(());
    }
    let _waiting = wait_lock();
    // SAFETY: the waiter is what schedule returned and is consumed here; it shares no array with other threads.
    let waited = check(unsafe { sys::lucid_wait(waiter) });
    let _lock = schedule_lock();
    // SAFETY: as above, under both locks.
    let settled = check(unsafe { sys::lucid_settle(handles.as_ptr(), handles.len(), waited.is_err()) });
    waited.and(settled)
}

/// An array of a stream that nobody else waits for, whose evaluation has begun.
pub(crate) struct Begun {
    array: Array,
    waiter: sys::lucid_waiter,
}

/// Has such an array evaluated. Where nobody waits for it, it goes on by itself.
pub(crate) fn begin_apart(array: Array) -> Result<Begun> {
    ensure_not_forked()?;
    let handles = [array.raw()];
    await_arrivals(&handles)?;
    let mut waiter = sys::lucid_waiter { ctx: std::ptr::null_mut() };
    let _lock = schedule_lock();
    // SAFETY: the handle is valid while its owner is borrowed; the lock is held.
    unsafe { schedule(&handles, &mut waiter)? };
    Ok(Begun { array, waiter })
}

impl Begun {
    /// Waits for it, outside of the lock that waits are in turn under: it may take as long as another process does.
    pub(crate) fn wait(mut self) -> Result<Array> {
        let waiter = std::mem::replace(&mut self.waiter, sys::lucid_waiter { ctx: std::ptr::null_mut() });
        let array = self.array.clone();
        if waiter.ctx.is_null() {
            return Ok(array);
        }
        let handles = [array.raw()];
        // SAFETY: the waiter is what schedule returned and is consumed here; errors of its stream are for this thread
        // alone.
        let waited = check(unsafe { sys::lucid_wait(waiter) });
        let _lock = schedule_lock();
        // SAFETY: as above, under the lock.
        let settled = check(unsafe { sys::lucid_settle(handles.as_ptr(), handles.len(), waited.is_err()) });
        waited.and(settled).map(|()| array)
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        // SAFETY: what schedule returned, or null, which nobody has any more.
        unsafe { sys::lucid_waiter_free(self.waiter) };
    }
}

/// Schedules the arrays without waiting for them.
pub(crate) fn async_eval(arrays: &[&Array]) -> Result<()> {
    ensure_not_forked()?;
    let handles: Handles = arrays.iter().map(|a| a.raw()).collect();
    await_arrivals(&handles)?;
    let _lock = schedule_lock();
    // SAFETY: the handles are valid while their owners are borrowed by the caller; the lock is held.
    unsafe { schedule(&handles, std::ptr::null_mut()) }
}
