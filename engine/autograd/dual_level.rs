//! Levels of forward mode: which tangents count where, and what is at work in a thread.
//!
//! One level may be open for all threads, as PyTorch has it, and each thread has a stack of its own, for transforms that nest.
//! Ids are used once, and an inner level has a larger one, so that a bound says which levels are at work.

use super::{forward, modes};
use crate::{Error, Result};
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The id of the level that all threads share, 0 for none. Ids are used once; an inner level has a larger one.
static LEVEL: AtomicU64 = AtomicU64::new(0);
static NEXT: AtomicU64 = AtomicU64::new(1);
/// How many levels are open, in whichever thread.
static OPEN: AtomicUsize = AtomicUsize::new(0);
/// Do a thread's ops carry tangents on?
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Yes, but not in inference mode.
    Usual,
    Off,
    /// Yes, in inference mode too: a level was opened inside of it.
    On,
}

thread_local! {
    static MODE: Cell<Mode> = const { Cell::new(Mode::Usual) };
    /// The levels that this thread has opened for itself, the outermost first, the modes around them, and whether their
    /// tangents are always recorded.
    static LEVELS: RefCell<Vec<(u64, Mode, bool)>> = const { RefCell::new(Vec::new()) };
    /// Levels from this one on are not at work.
    static BOUND: Cell<u64> = const { Cell::new(u64::MAX) };
}

/// Opens a level: from now on tensors can be given tangents, which ops carry on.
///
/// # Errors
/// [`Error::Runtime`] where one is open already; levels that nest are made by [`open_level`].
pub fn enter_dual_level() -> Result<()> {
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    let free = LEVELS.with_borrow(Vec::is_empty);
    if !free || LEVEL.compare_exchange(0, id, Ordering::AcqRel, Ordering::Acquire).is_err() {
        return Err(nested("enter_dual_level"));
    }
    OPEN.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Opens a level of the calling thread alone, inside of those that are open, and gives its id for [`close_level`]. Ops carry
/// its tangents on, also where they were told not to before. `recorded`: the tape follows what tangents are made of also
/// where a function says that nothing is recorded, since it is not the function's to say.
///
/// # Errors
/// [`Error::Runtime`] where the level for all threads is open: PyTorch has no other inside of it.
#[doc(hidden)]
pub fn open_level(recorded: bool) -> Result<u64> {
    if LEVEL.load(Ordering::Acquire) != 0 {
        return Err(nested("open_level"));
    }
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    let mode = if modes::inference_mode_enabled() { Mode::On } else { Mode::Usual };
    LEVELS.with_borrow_mut(|levels| levels.push((id, MODE.replace(mode), recorded)));
    OPEN.fetch_add(1, Ordering::Relaxed);
    Ok(id)
}

fn nested(op: &'static str) -> Box<Error> {
    Error::runtime(op, "Nested forward mode AD is not supported at the moment")
}

/// Closes a level of this thread, and those inside of it that are still open; their tangents are gone.
#[doc(hidden)]
pub fn close_level(id: u64) {
    let closed = LEVELS.with_borrow_mut(|levels| match levels.iter().position(|l| l.0 == id) {
        Some(at) => levels.split_off(at),
        None => Vec::new(),
    });
    if let Some(&(_, mode, _)) = closed.first() {
        MODE.set(mode);
    }
    OPEN.fetch_sub(closed.len(), Ordering::Relaxed);
    closed.into_iter().for_each(|(level, ..)| forward::forget(level));
}

/// The innermost level at work in this thread, 0 for none.
pub(super) fn current() -> u64 {
    let bound = BOUND.get();
    let own = LEVELS.with_borrow(|levels| levels.iter().rev().map(|l| l.0).find(|&level| level < bound));
    let shared = LEVEL.load(Ordering::Acquire);
    own.unwrap_or(0).max(if shared < bound { shared } else { 0 })
}

/// Runs `f` with the levels below `bound` alone at work.
pub(super) fn below<T>(bound: u64, f: impl FnOnce() -> T) -> T {
    struct Restore(u64);
    impl Drop for Restore {
        fn drop(&mut self) {
            BOUND.set(self.0);
        }
    }
    let _restore = Restore(BOUND.replace(bound));
    f()
}

/// Runs `f` with no level at work: what it makes and writes carries no tangents on.
pub(crate) fn without<T>(f: impl FnOnce() -> T) -> T {
    below(0, f)
}

/// Runs `f` at the levels around the current one, as what computes a tangent of the current one has to.
pub(super) fn around<T>(f: impl FnOnce() -> T) -> T {
    below(current(), f)
}

/// The same for what makes a tangent of the current level, recorded where the level has it so.
pub(super) fn around_tangents<T>(f: impl FnOnce() -> T) -> T {
    let current = current();
    let recorded = LEVELS.with_borrow(|levels| levels.iter().any(|&(id, _, recorded)| id == current && recorded));
    modes::with_grad(recorded || modes::grad_enabled(), || below(current, f))
}

/// Runs `f` once with each level at work as the current one, the innermost first.
pub(super) fn at_each(mut f: impl FnMut() -> Result<()>) -> Result<()> {
    let mut level = current();
    while level != 0 {
        below(level + 1, &mut f)?;
        level = below(level, current);
    }
    Ok(())
}

/// Puts the current level out of work in this thread, and gives what [`set_bound`] needs to put it back.
#[doc(hidden)]
pub fn leave_level() -> u64 {
    BOUND.replace(current())
}

/// Puts back what [`leave_level`] has left.
#[doc(hidden)]
pub fn set_bound(bound: u64) {
    BOUND.set(bound);
}

/// Closes the level; all tangents are gone.
///
/// # Errors
/// [`Error::Runtime`] where none is open.
pub fn exit_dual_level() -> Result<()> {
    let level = LEVEL.swap(0, Ordering::AcqRel);
    if level == 0 {
        let why = "Trying to exit a forward AD level but no level exists, make sure to enter_dual_level() first.";
        return Err(Error::runtime("exit_dual_level", why));
    }
    OPEN.fetch_sub(1, Ordering::Relaxed);
    forward::forget(level);
    Ok(())
}

/// Do ops of this thread carry tangents on, if a level is open? Not in inference mode.
pub fn forward_enabled() -> bool {
    match MODE.get() {
        Mode::Usual => !modes::inference_mode_enabled(),
        Mode::Off => false,
        Mode::On => true,
    }
}

/// Says whether ops of this thread carry tangents on, and gives the former answer.
#[doc(hidden)]
pub fn set_forward_enabled(on: bool) -> bool {
    let former = forward_enabled();
    MODE.set(if on { Mode::Usual } else { Mode::Off });
    former
}

/// Can any tensor carry a tangent here and now?
#[inline]
pub(crate) fn active() -> bool {
    OPEN.load(Ordering::Relaxed) != 0 && forward_enabled() && current() != 0
}

/// Is a level open whose tangents ops of this thread carry on?
#[doc(hidden)]
pub fn forward_active() -> bool {
    active()
}

/// Is this level open, at work or not?
pub(super) fn is_open(level: u64) -> bool {
    level == LEVEL.load(Ordering::Acquire) || LEVELS.with_borrow(|levels| levels.iter().any(|l| l.0 == level))
}
