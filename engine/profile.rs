//! Counting what engine calls cost: ops, operations recorded with MLX, copies, evaluations.
//!
//! Off, it is one relaxed load per op. [`start`] resets and turns it on; [`report`] gives the counts of all threads so far.

use crate::ops::Schema;
use mlx_ffi::counters::{self, Counts};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

static ON: AtomicBool = AtomicBool::new(false);
static STATE: Mutex<Option<State>> = Mutex::new(None);

struct State {
    ops: BTreeMap<&'static str, OpCount>,
    before: Counts,
}

/// What one op did while counting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpCount {
    /// How often it ran.
    pub calls: u64,
    /// Operations it recorded with MLX.
    pub mlx_ops: u64,
    /// Of these, calls of `contiguous`.
    pub contiguous: u64,
    /// Evaluations it caused.
    pub evaluations: u64,
}

/// All counts since [`start`].
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// By op's name.
    pub ops: BTreeMap<&'static str, OpCount>,
    /// Everything, calls outside of ops included.
    pub total: OpCount,
}

/// Starts counting from zero.
pub fn start() {
    *STATE.lock() = Some(State { ops: BTreeMap::new(), before: counters::process() });
    ON.store(true, Ordering::Relaxed);
}

/// Stops counting; [`report`] still answers.
pub fn stop() {
    ON.store(false, Ordering::Relaxed);
}

/// The counts since [`start`]; all zero before the first.
pub fn report() -> Report {
    let state = STATE.lock();
    let Some(state) = state.as_ref() else { return Report::default() };
    let ffi = counters::process() - state.before;
    let total = OpCount {
        calls: state.ops.values().map(|c| c.calls).sum(),
        mlx_ops: ffi.ops,
        contiguous: ffi.contiguous,
        evaluations: ffi.evaluations,
    };
    Report { ops: state.ops.clone(), total }
}

/// The calling thread's counts before an op, if anyone counts.
#[inline]
pub(crate) fn begin() -> Option<Counts> {
    ON.load(Ordering::Relaxed).then(counters::thread)
}

/// Books an op that [`begin`] saw.
#[inline]
pub(crate) fn end(begun: Option<Counts>, schema: &'static Schema) {
    if let Some(before) = begun {
        book(before, schema.name);
    }
}

#[cold]
fn book(before: Counts, name: &'static str) {
    let cost = counters::thread() - before;
    if let Some(state) = STATE.lock().as_mut() {
        let count = state.ops.entry(name).or_default();
        count.calls += 1;
        count.mlx_ops += cost.ops;
        count.contiguous += cost.contiguous;
        count.evaluations += cost.evaluations;
    }
}
