//! The budget of what may wait in the lazy graph.
//!
//! Each thread counts the ops and bytes that it recorded, and keeps weak references to the cells they went to. When a
//! limit is passed, what is still alive and not computed is evaluated, asynchronously and in one call, so that a loop
//! that never evaluates has flat memory. Depends on `array` and mlx-ffi. Invariant: a cell that may be pending is in some
//! thread's list, or in the list that ended threads leave behind.

use super::array::Cell;
use super::conv::settle_into;
use super::kernel_error::Made;
use super::lower::Origin;
use super::value::Perm;
use mlx_ffi::device::Kind;
use mlx_ffi::{ops, transforms, Array, Dtype};
use parking_lot::Mutex;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// How much may wait before it is evaluated, per thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Ops recorded.
    pub ops: usize,
    /// Bytes of their results.
    pub bytes: usize,
}

static MAX_OPS: AtomicUsize = AtomicUsize::new(2048);
static MAX_BYTES: AtomicUsize = AtomicUsize::new(512 << 20);
static LEFT_BEHIND: Mutex<Vec<Weak<Cell>>> = Mutex::new(Vec::new());

/// The limits in force.
pub fn limits() -> Limits {
    Limits { ops: MAX_OPS.load(Ordering::Relaxed), bytes: MAX_BYTES.load(Ordering::Relaxed) }
}

/// Sets the limits; at least one op and one byte.
pub fn set_limits(limits: Limits) {
    MAX_OPS.store(limits.ops.max(1), Ordering::Relaxed);
    MAX_BYTES.store(limits.bytes.max(1), Ordering::Relaxed);
}

/// Storages whose elements should be in another order, which is brought about beside the next evaluation: graphs that are
/// built before it use them as they are.
static WISHES: Mutex<Vec<(Weak<Cell>, Perm)>> = Mutex::new(Vec::new());
static WISHED: AtomicBool = AtomicBool::new(false);

/// Asks for a storage's elements to be moved into an order of axes.
pub(super) fn wish(cell: &Arc<Cell>, perm: Perm) {
    let mut wishes = WISHES.lock();
    if !wishes.iter().any(|(w, _)| w.as_ptr() == Arc::as_ptr(cell)) {
        wishes.push((Arc::downgrade(cell), perm));
        WISHED.store(true, Ordering::Release);
    }
}

/// Grants what was wished, and gives back the arrays to evaluate for it.
pub(super) fn granted() -> Made<Vec<Array>> {
    if !WISHED.swap(false, Ordering::AcqRel) {
        return Ok(Vec::new());
    }
    let wishes = std::mem::take(&mut *WISHES.lock());
    let mut arrays = Vec::new();
    for (weak, perm) in wishes {
        let Some(cell) = weak.upgrade() else { continue };
        let (was, value) = {
            let held = cell.value();
            if held.perm.as_ref() == Some(&perm) {
                continue;
            }
            (held.array()?.id(), settle_into(&held, perm)?)
        };
        arrays.push(value.array()?.clone());
        cell.restate(was, value);
    }
    Ok(arrays)
}

#[derive(Default)]
struct Pending {
    cells: Vec<Weak<Cell>>,
    ops: usize,
    bytes: usize,
    /// The list's length after it was last looked through.
    kept: usize,
    /// A smaller budget than that of all, if any: see [`FIRST_BYTES`].
    budget: Option<usize>,
}

/// After an evaluation that somebody waited for a GPU has nothing to do. It begins once so much is recorded, instead of waiting
/// for a whole budget, and budgets double from there on: while one is recorded, the one before is computed.
const FIRST_BYTES: usize = 32 << 20;
/// And so many ops: whoever asks for each op's result has nothing to record beside it, and a start of its own costs more than that.
const FIRST_OPS: usize = 4;

impl Drop for Pending {
    fn drop(&mut self) {
        LEFT_BEHIND.lock().append(&mut self.cells);
    }
}

thread_local! {
    static PENDING: RefCell<Pending> = RefCell::new(Pending::default());
    /// Arrays that are made by the last two evaluations that were started, the later one last.
    static BEFORE: RefCell<[Option<Array>; 2]> = const { RefCell::new([None, None]) };
}

/// Results of fewer bytes are recorded without asking whether there is room for them.
const ASKED_FROM: usize = 256 << 20;

/// Is there room for a result? MLX's CPU stream does not look whether it got the memory that it writes to, so a result
/// that is too large must not be recorded.
#[cold]
fn ask_for(bytes: usize) -> Made<()> {
    if mlx_ffi::device::kind()? != Kind::Cpu {
        return Ok(());
    }
    let mut room = Vec::<u8>::new();
    let refused = room.try_reserve_exact(bytes).is_err();
    std::hint::black_box(&room);
    match refused {
        true => Err(mlx_ffi::Error::OutOfMemory(format!("{bytes} bytes for one tensor")).into()),
        false => Ok(()),
    }
}

/// Counts one recorded op whose result went to `cell`, and evaluates what waits if that is too much.
#[inline]
pub(super) fn note(cell: &Arc<Cell>, bytes: usize) -> Made<()> {
    if bytes >= ASKED_FROM {
        ask_for(bytes)?;
    }
    // A thread whose locals are gone is ending: its last cells are evaluated by who reads them.
    let full = PENDING.try_with(|p| {
        let p = &mut *p.borrow_mut();
        // Short-lived results leave at once, so that their memory is used again while it is warm.
        for back in 1..=2 {
            if let Some(i) = p.cells.len().checked_sub(back).filter(|&i| p.cells[i].strong_count() == 0) {
                p.cells.swap_remove(i);
            }
        }
        p.cells.push(Arc::downgrade(cell));
        p.ops += 1;
        p.bytes += bytes;
        let budget = p.budget.filter(|_| p.ops >= FIRST_OPS).unwrap_or(usize::MAX);
        let most = budget.min(MAX_BYTES.load(Ordering::Relaxed));
        p.ops >= MAX_OPS.load(Ordering::Relaxed) || p.bytes >= most
    });
    if full.unwrap_or(false) {
        flush()
    } else {
        Ok(())
    }
}

/// Does the device compute what is recorded beside the processor? On Metal nobody has measured what that takes.
fn starts_early() -> bool {
    mlx_ffi::device::kind().is_ok_and(|kind| kind == Kind::Cuda)
}

/// Starts computing these arrays. What cannot be started, again and again, is the error of who reads it, not of the op that is
/// recorded now: where the whole cannot, each is started by itself. An error that does not come back is of what was started
/// before, and is told here, for whoever reads that would not see it; so is what concerns all: a lack of memory, a fork, an exit.
fn start(arrays: &[&Array]) -> Made<()> {
    use mlx_ffi::Error::{Mlx, NotEvaluated, Panic};
    let Err(first) = transforms::async_eval(arrays) else { return Ok(()) };
    let mut stray = Some(first);
    for array in arrays {
        let Err(once) = transforms::async_eval(&[array]) else { continue };
        let twice = transforms::async_eval(&[array]);
        match twice {
            Err(Mlx(_) | NotEvaluated(_) | Panic(_)) | Ok(()) => {}
            Err(of_all) => return Err(of_all.into()),
        }
        let again = twice.err().map(|e| e.to_string());
        if again.as_ref() != Some(&once.to_string()) {
            stray = Some(once);
        } else if again == stray.as_ref().map(ToString::to_string) {
            stray = None;
        }
    }
    stray.map_or(Ok(()), |e| Err(e.into()))
}

/// Starts computing all that waits and is still alive.
#[cold]
fn flush() -> Made<()> {
    let Ok(mut pending) = PENDING.try_with(RefCell::take) else { return Ok(()) };
    let doubled = pending.budget.map(|bytes| bytes.saturating_mul(2));
    let mut cells = std::mem::take(&mut pending.cells);
    cells.append(&mut LEFT_BEHIND.lock());
    let alive: Vec<Arc<Cell>> = cells.iter().filter_map(Weak::upgrade).collect();
    drop(cells);
    let (mut arrays, mut later) = (Vec::new(), Vec::new());
    for cell in &alive {
        let value = cell.value();
        match value.origin().filter(|_| value.ready().is_none()).and_then(Origin::stands_on) {
            // What may never be asked for waits on.
            Some(below) => {
                arrays.extend(below.into_iter().cloned());
                later.push(Arc::downgrade(cell));
            }
            None => arrays.push(value.array()?.clone()),
        }
    }
    let mut arrays: Vec<&Array> = arrays.iter().filter(|a| !a.is_evaluated()).collect();
    if !arrays.is_empty() {
        // What runs ahead of a GPU holds memory: no further than two budgets, of which the GPU has one to work on while the
        // other is recorded. MLX's CPU stream is not waited for: there a budget may take seconds.
        let before = BEFORE.try_with(|b| std::mem::take(&mut b.borrow_mut()[0])).ok().flatten();
        if let Some(before) = before.filter(|_| mlx_ffi::device::kind().is_ok_and(|kind| kind != Kind::Cpu)) {
            transforms::eval(&[&before])?;
        }
        // Done when all of this evaluation is, and holds no memory to speak of.
        let end = ops::zeros(&[1], Dtype::Float32)?;
        arrays.push(&end);
        start(&arrays)?;
        let _ = BEFORE.try_with(|b| {
            let mut b = b.borrow_mut();
            b[0] = b[1].replace(end.clone());
        });
    }
    alive.iter().for_each(|c| c.forget_origin());
    let _ = PENDING.try_with(|p| {
        let p = &mut *p.borrow_mut();
        p.cells.append(&mut later);
        p.budget = doubled.filter(|&bytes| bytes < MAX_BYTES.load(Ordering::Relaxed));
    });
    Ok(())
}

/// After an evaluation that somebody asked for, and perhaps waited for: drops from the list what no longer waits.
pub(super) fn settle(waited: bool) {
    if waited && starts_early() {
        let _ = PENDING.try_with(|p| p.borrow_mut().budget = Some(FIRST_BYTES));
    }
    let due = |p: &RefCell<Pending>| {
        let p = p.borrow();
        // Long lists are looked through when they have doubled, so that the cost per op stays bounded.
        p.cells.len() >= 2 * p.kept
    };
    if !PENDING.try_with(due).unwrap_or(false) {
        return;
    }
    let Ok(mut pending) = PENDING.try_with(RefCell::take) else { return };
    // Cells may be dropped here, so the list is out of its place meanwhile.
    pending.cells.retain(|weak| match weak.upgrade() {
        None => false,
        Some(cell) => {
            let done = cell.value().is_settled();
            if done {
                cell.forget_origin();
            }
            !done
        }
    });
    pending.kept = pending.cells.len();
    if pending.cells.is_empty() {
        (pending.ops, pending.bytes) = (0, 0);
    }
    let _ = PENDING.try_with(|p| {
        let mut p = p.borrow_mut();
        debug_assert!(p.cells.is_empty());
        std::mem::swap(&mut *p, &mut pending);
    });
}

/// How many ops this thread has recorded since nothing waited.
#[cfg(test)]
pub(super) fn waiting() -> usize {
    PENDING.with(|p| p.borrow().ops)
}
