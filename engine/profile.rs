//! Counting what engine calls cost: ops, operations recorded with MLX, copies, evaluations; and, traced, when each ran.
//!
//! Off, it is one relaxed load per op. [`start`] resets and turns it on; [`report`] gives the counts of all threads so far.

use crate::ops::Schema;
use crate::{Device, Tensor};
use mlx_ffi::counters::{self, Counts};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::OnceLock;
use std::time::Instant;

static ON: AtomicBool = AtomicBool::new(false);
static TRACED: AtomicBool = AtomicBool::new(false);
static MEMORY: AtomicBool = AtomicBool::new(false);
static SHAPES: AtomicBool = AtomicBool::new(false);
static STACKS: AtomicBool = AtomicBool::new(false);
static STACK: OnceLock<fn() -> Vec<String>> = OnceLock::new();
static STATE: Mutex<Option<State>> = Mutex::new(None);
/// The most events that are kept; of the rest only the number is.
const MOST_EVENTS: usize = 1 << 20;

struct State {
    ops: BTreeMap<&'static str, OpCount>,
    before: Counts,
    began: Instant,
    events: Vec<Event>,
    dropped: u64,
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

/// One run of an op, of an evaluation (`eval`), or of a reading (`read`), which evaluates what it reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The op's name.
    pub name: &'static str,
    /// The op's family.
    pub family: &'static str,
    /// A number of the thread.
    pub thread: u64,
    /// When it began, in nanoseconds since the trace did.
    pub start: u64,
    /// How long it took, in nanoseconds. For the GPU that is recording it, unless it evaluates.
    pub duration: u64,
    /// Operations it recorded with MLX.
    pub mlx_ops: u64,
    /// Evaluations it caused.
    pub evaluations: u64,
    /// Bytes in use after it less those before, on both devices; 0 where memory is not traced.
    pub memory: i64,
    /// The shapes of its tensors, where they are traced.
    pub shapes: Vec<Vec<usize>>,
    /// The shape of its result, where they are traced.
    pub made: Vec<usize>,
    /// Where it was called, the innermost frame first, where stacks are traced.
    pub stack: Vec<String>,
}

/// What a trace keeps of each op beside its times.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traced {
    /// How much it allocated.
    pub memory: bool,
    /// The shapes of its tensors.
    pub shapes: bool,
    /// Where it was called, if [`set_stack`] said how to find out.
    pub stacks: bool,
}

/// How to find out where an op was called, the innermost frame first. Only the first setting counts.
pub fn set_stack(stack: fn() -> Vec<String>) {
    let _ = STACK.set(stack);
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
    TRACED.store(false, Ordering::Relaxed);
    begin_anew();
}

/// The same, keeping when each op ran, and what `keep` says.
pub fn start_trace(keep: Traced) {
    begin_anew();
    MEMORY.store(keep.memory, Ordering::Relaxed);
    SHAPES.store(keep.shapes, Ordering::Relaxed);
    STACKS.store(keep.stacks, Ordering::Relaxed);
    TRACED.store(true, Ordering::Relaxed);
}

fn begin_anew() {
    let (ops, before, began) = (BTreeMap::new(), counters::process(), Instant::now());
    *STATE.lock() = Some(State { ops, before, began, events: Vec::new(), dropped: 0 });
    ON.store(true, Ordering::Relaxed);
}

/// Stops counting; [`report`] and [`take_trace`] still answer.
pub fn stop() {
    ON.store(false, Ordering::Relaxed);
    TRACED.store(false, Ordering::Relaxed);
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

/// The events since [`start_trace`] or the last call, in the order they ended, and how many were too many to keep.
pub fn take_trace() -> (Vec<Event>, u64) {
    match STATE.lock().as_mut() {
        Some(state) => (std::mem::take(&mut state.events), std::mem::take(&mut state.dropped)),
        None => (Vec::new(), 0),
    }
}

/// Nanoseconds since the counting began: the clock of [`Event::start`].
pub fn now() -> u64 {
    STATE.lock().as_ref().map_or(0, |s| s.began.elapsed().as_nanos() as u64)
}

/// A number of the calling thread, as in [`Event::thread`].
pub fn thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local!(static OWN: u64 = NEXT.fetch_add(1, Ordering::Relaxed));
    OWN.with(|n| *n)
}

/// What there was before an op.
pub(crate) struct Begun {
    counts: Counts,
    traced: Option<At>,
}

struct At {
    time: Instant,
    memory: i64,
    stack: Vec<String>,
}

fn memory() -> i64 {
    if !MEMORY.load(Ordering::Relaxed) {
        return 0;
    }
    // Asking MLX would start it.
    let gpu = if mlx_ffi::in_use() { crate::memory_stats(Device::Gpu).current } else { 0 };
    (crate::memory_stats(Device::Cpu).current + gpu) as i64
}

/// Does anyone count?
#[inline]
pub(crate) fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// The calling thread's counts before an op, if anyone counts.
#[inline]
pub(crate) fn begin() -> Option<Begun> {
    ON.load(Ordering::Relaxed).then(look)
}

#[cold]
fn look() -> Begun {
    let traced = TRACED.load(Ordering::Relaxed).then(|| {
        // Asked for outside of the lock: it may wait for the interpreter's.
        let stack = STACK.get().filter(|_| STACKS.load(Ordering::Relaxed)).map_or_else(Vec::new, |stack| stack());
        At { time: Instant::now(), memory: memory(), stack }
    });
    Begun { counts: counters::thread(), traced }
}

/// Books an op on these tensors, with a result of this shape, that [`begin`] saw.
#[inline]
pub(crate) fn end<'a>(
    begun: Option<Begun>,
    schema: impl FnOnce() -> &'static Schema,
    inputs: impl IntoIterator<Item = &'a Tensor>,
    made: &[usize],
) {
    if let Some(before) = begun {
        let shapes = match before.traced.is_some() && SHAPES.load(Ordering::Relaxed) {
            true => (inputs.into_iter().map(|t| t.shape().to_vec()).collect(), made.to_vec()),
            false => (Vec::new(), Vec::new()),
        };
        let schema = schema();
        book(before, schema.name, schema.family, true, shapes);
    }
}

/// Books what is no op, an evaluation or a reading: an event only.
#[inline]
pub(crate) fn end_other(begun: Option<Begun>, name: &'static str) {
    if let Some(before) = begun {
        book(before, name, name, false, (Vec::new(), Vec::new()));
    }
}

/// Shapes of the tensors and of the result.
type Shapes = (Vec<Vec<usize>>, Vec<usize>);

#[cold]
fn book(before: Begun, name: &'static str, family: &'static str, counted: bool, (shapes, made): Shapes) {
    let cost = counters::thread() - before.counts;
    let traced = before.traced.map(|at| (at.time.elapsed().as_nanos() as u64, memory() - at.memory, at));
    if let Some(state) = STATE.lock().as_mut() {
        if counted {
            let count = state.ops.entry(name).or_default();
            count.calls += 1;
            count.mlx_ops += cost.ops;
            count.contiguous += cost.contiguous;
            count.evaluations += cost.evaluations;
        }
        let Some((duration, memory, At { time, stack, .. })) = traced else { return };
        if state.events.len() >= MOST_EVENTS {
            state.dropped += 1;
            return;
        }
        let start = time.saturating_duration_since(state.began).as_nanos() as u64;
        let (mlx_ops, evaluations, thread) = (cost.ops, cost.evaluations, thread());
        let event = Event { name, family, thread, start, duration, mlx_ops, evaluations, memory, shapes, made, stack };
        state.events.push(event);
    }
}
