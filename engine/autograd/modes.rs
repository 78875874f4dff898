//! What the calling thread records: grad mode, inference mode, hooks on saved tensors, anomaly mode.
//!
//! All of it is one thread-local, so that an op that records nothing looks once. Anomaly mode belongs to the process.

use crate::{Result, Tensor};
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

/// Gives a saved tensor back.
#[derive(Clone)]
pub struct Unpack {
    /// Gives it.
    pub call: Arc<dyn Fn() -> Result<Tensor> + Send + Sync>,
    /// What that holds of an embedding language, for its garbage collector.
    pub host: Option<super::HostRef>,
}

/// Takes a tensor that the tape is about to save, and gives what will bring it back.
pub type Pack = Arc<dyn Fn(&Tensor) -> Result<Unpack> + Send + Sync>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Recording,
    Off,
    Inference,
}

thread_local! {
    static MODE: Cell<Mode> = const { Cell::new(Mode::Recording) };
    static PACKS: RefCell<Vec<SavedTensorHooks>> = const { RefCell::new(Vec::new()) };
    static TAPE: Tape = const { Tape { name: Cell::new(None), next: Cell::new(0) } };
    static LAYOUT: Cell<bool> = const { Cell::new(true) };
}

/// What each step of this thread's is made with, found by one look.
struct Tape {
    name: Cell<Option<OpCall>>,
    /// The number of the next step.
    next: Cell<u64>,
}

/// Must the first gradient of a leaf that this thread makes have the layout of the leaf?
#[doc(hidden)]
pub fn layout_enforced() -> bool {
    LAYOUT.get()
}

/// Says whether it must, and gives the former answer.
#[doc(hidden)]
pub fn set_layout_enforced(on: bool) -> bool {
    LAYOUT.replace(on)
}

/// What happens to tensors that the tape saves.
#[derive(Clone)]
pub enum SavedTensorHooks {
    /// They go through a hook.
    Hook(Pack),
    /// Hooks are refused, with this reason.
    Refused(String),
}

/// Does the calling thread record ops?
pub fn grad_enabled() -> bool {
    MODE.get() == Mode::Recording
}

/// Is the calling thread in inference mode?
pub fn inference_mode_enabled() -> bool {
    MODE.get() == Mode::Inference
}

/// Says whether the calling thread records ops, and gives the former answer. Within inference mode it stays off.
pub fn set_grad_enabled(on: bool) -> bool {
    let former = MODE.get();
    if former != Mode::Inference {
        MODE.set(if on { Mode::Recording } else { Mode::Off });
    }
    former == Mode::Recording
}

/// The mode of a thread, to be put back.
#[derive(Clone, Copy)]
pub struct Former(Mode);

/// Enters (or, with `false`, leaves) inference mode; recording goes on where it is left. The former mode goes to
/// [`restore_mode`].
pub fn set_inference_mode(on: bool) -> Former {
    Former(MODE.replace(if on { Mode::Inference } else { Mode::Recording }))
}

/// Puts back what [`set_inference_mode`] gave.
#[doc(hidden)]
pub fn restore_mode(former: Former) {
    MODE.set(former.0);
}

/// Puts the former mode back when dropped, on panics too.
struct Restore(Mode);
impl Drop for Restore {
    fn drop(&mut self) {
        MODE.set(self.0);
    }
}

/// Runs `f` with recording on or off in this thread.
pub(crate) fn with_grad<T>(on: bool, f: impl FnOnce() -> T) -> T {
    let _restore = Restore(MODE.get());
    set_grad_enabled(on);
    f()
}

/// Runs `f` without recording.
///
/// ```
/// # use lucid::{no_grad, Device, Tensor};
/// # fn main() -> lucid::Result<()> {
/// let w = Tensor::from_slice(&[1.0f32], &[1], Device::Cpu)?.requires_grad_(true)?;
/// assert!(!no_grad(|| &w * 2.0)?.requires_grad());
/// # Ok(())
/// # }
/// ```
pub fn no_grad<T>(f: impl FnOnce() -> T) -> T {
    with_grad(false, f)
}

/// Runs `f` with recording on.
pub fn enable_grad<T>(f: impl FnOnce() -> T) -> T {
    with_grad(true, f)
}

/// Adds what happens to tensors saved from now on in this thread; [`pop_packing`] takes it away again.
#[doc(hidden)]
pub fn push_packing(packing: SavedTensorHooks) {
    // Where that is an error, it is found when the graph is finished.
    let _ = crate::graph::note_break("saved_tensors_hooks", "hooks on saved tensors");
    PACKS.with_borrow_mut(|stack| stack.push(packing));
}

/// Takes the last of [`push_packing`] away.
#[doc(hidden)]
pub fn pop_packing() {
    let popped = PACKS.with_borrow_mut(Vec::pop);
    drop(popped);
}

/// What happens to tensors saved now.
#[doc(hidden)]
pub fn packing() -> Option<SavedTensorHooks> {
    PACKS.with_borrow(|stack| stack.last().cloned())
}

/// Runs `f` without hooks on what the tape saves: for steps that are done with before the user sees anything of them.
pub(crate) fn unpacked<T>(f: impl FnOnce() -> T) -> T {
    struct Restore(Vec<SavedTensorHooks>);
    impl Drop for Restore {
        fn drop(&mut self) {
            PACKS.set(std::mem::take(&mut self.0));
        }
    }
    let _restore = Restore(PACKS.take());
    f()
}

/// While it lives, what the thread records is named after one op, whatever primitives that op is made of. Of several the
/// first counts: it is the one that the user called.
pub struct OpScope(Option<OpCall>);

/// An op that was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpCall {
    pub(crate) name: &'static str,
    /// Which arguments it got, as `naming!` of the op table says them.
    pub(crate) given: u64,
    /// The number of the first step that could be its own: the same for all steps of one call, and for no other's.
    pub(crate) since: u64,
}

impl OpScope {
    #[inline]
    pub(crate) fn of(name: &'static str, given: u64) -> OpScope {
        TAPE.with(|tape| {
            let former = tape.name.get();
            match former {
                None => tape.name.set(Some(OpCall { name, given, since: tape.next.get() })),
                // A row that piecewise_linear does so within a step of another name, too.
                Some(first) if given & piecewise_linear(true) != 0 => {
                    tape.name.set(Some(OpCall { given: first.given | piecewise_linear(true), ..first }));
                }
                Some(_) => {}
            }
            OpScope(former)
        })
    }

    /// For an op that PyTorch makes of steps that can be seen: where nothing has a name yet it has none either, and those that it
    /// calls have their own.
    #[inline]
    pub(crate) fn steps() -> OpScope {
        OpScope(TAPE.with(|tape| tape.name.get()))
    }

    /// What follows is a step of its own, of the name `to`, where one of `from` was called; with `None` those that are called
    /// have their own names.
    pub(crate) fn apart(from: &[&str], to: Option<&'static str>) -> OpScope {
        TAPE.with(|tape| {
            let former = tape.name.get();
            if former.is_some_and(|called| from.contains(&called.name)) {
                // A number is left out, by which its steps are told apart from the others.
                let since = tape.next.get() + 1;
                tape.next.set(since);
                tape.name.set(to.map(|name| OpCall { name, given: 0, since }));
            }
            OpScope(former)
        })
    }

    /// Did nothing have a name before?
    #[inline]
    pub(crate) fn is_outermost(&self) -> bool {
        self.0.is_none()
    }

    /// Names what was called by `from` after another op, one of those that PyTorch makes it of.
    pub(crate) fn rename(from: &str, to: &'static str) {
        change(from, |called| OpCall { name: to, ..called });
    }

    /// Says of what was called by `from` that it is piecewise linear, as the rows are that always are.
    pub(crate) fn mark_piecewise_linear(from: &str) {
        change(from, |called| OpCall { given: called.given | piecewise_linear(true), ..called });
    }

    /// Nothing is named: for gradient rules, whose ops are called by nobody.
    pub(crate) fn none() -> OpScope {
        OpScope(TAPE.with(|tape| tape.name.replace(None)))
    }
}

/// Changes what is said of what was called by `from`.
fn change(from: &str, f: impl FnOnce(OpCall) -> OpCall) {
    TAPE.with(|tape| {
        if let Some(called) = tape.name.get().filter(|called| called.name == from) {
            tape.name.set(Some(f(called)));
        }
    });
}

impl Drop for OpScope {
    #[inline]
    fn drop(&mut self) {
        TAPE.with(|tape| tape.name.set(self.0));
    }
}

thread_local! {
    static GRAD_LAYOUT: Cell<GradLayoutRule> = const { Cell::new(GradLayoutRule::AsMade) };
}

/// The layout of the gradients of recorded inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GradLayoutRule {
    /// As the rules make them.
    AsMade,
    /// Each element in a place of its own, without gaps.
    Dense,
    /// Row-major.
    RowMajor,
    /// Matrices by columns, one after the other.
    Columns,
    /// As the input does, row-major where that has gaps or repetitions.
    AsInput,
}

/// While it lives, gradients of the inputs of what the thread records are brought to have that layout: for ops made of others whose
/// rules give them otherwise than PyTorch's one rule does. Nothing is copied where they have that layout already.
pub(crate) struct GradLayoutGuard(GradLayoutRule);

impl GradLayoutGuard {
    pub(crate) fn set(rule: GradLayoutRule) -> GradLayoutGuard {
        GradLayoutGuard(GRAD_LAYOUT.replace(rule))
    }
}

impl Drop for GradLayoutGuard {
    fn drop(&mut self) {
        GRAD_LAYOUT.set(self.0);
    }
}

/// The tensor itself, or, where a gradient may come back to it, a view of all of it that has the gradient brought to have that layout.
pub(crate) fn with_grad_layout(t: &Tensor, rule: GradLayoutRule) -> Result<Tensor> {
    if !(grad_enabled() && t.requires_grad()) {
        return Ok(t.clone());
    }
    let _layout = GradLayoutGuard::set(rule);
    crate::ops::view::permute_axes(t, &(0..t.ndim()).collect::<crate::shape::Axes>())
}

/// What a [`GradLayoutGuard`] says.
#[inline]
pub(super) fn grad_layout_rule() -> GradLayoutRule {
    GRAD_LAYOUT.get()
}

/// Names what is recorded while the guard lives after an op that is no row of its own.
#[doc(hidden)]
pub fn named(op: &'static str) -> OpScope {
    OpScope::of(op, 0)
}

/// The mark of a call with a number before a tensor, `2 ** x`; the tensor is marked, too.
pub(crate) const LED: u64 = (1 << 63) | 1;

/// The mark of an op that is linear but for piecewise_linear, so that its gradient depends on its inputs at the piecewise_linear alone.
pub(crate) const fn piecewise_linear(it_does: bool) -> u64 {
    (it_does as u64) << 62
}

/// Names what is recorded while the guard lives after an op whose first argument was a number.
#[doc(hidden)]
pub fn led_by_number(op: &'static str) -> OpScope {
    OpScope::of(op, LED)
}

/// The op that a [`OpScope`] names.
pub(crate) fn op_name() -> Option<&'static str> {
    called().map(|called| called.name)
}

/// The call that is at work.
pub(crate) fn called() -> Option<OpCall> {
    TAPE.with(|tape| tape.name.get())
}

/// The call that is at work, and a number for a step of it.
pub(super) fn numbered() -> (Option<OpCall>, u64) {
    TAPE.with(|tape| (tape.name.get(), tape.next.replace(tape.next.get() + 1)))
}

/// The number that this thread's next step gets.
pub(super) fn next_number() -> u64 {
    TAPE.with(|tape| tape.next.get())
}

// ---- anomaly mode ----------------------------------------------------------------------------------------------------

/// Bit 0: ops remember where they were called. Bit 1: then, gradients are searched for NaN.
static ANOMALY: AtomicU8 = AtomicU8::new(2);

/// How the embedding language says where an op was called, and hears of a failed backward.
pub struct Tracer {
    /// The calling place, as text.
    pub trace: fn() -> Option<String>,
    /// OpCall with the op's name and its calling place when its gradient fails.
    pub report: fn(&str, Option<&str>),
}

static TRACER: OnceLock<Tracer> = OnceLock::new();

/// Says how calling places are found. Once in a process; later calls do nothing.
#[doc(hidden)]
pub fn set_tracer(tracer: Tracer) {
    let _ = TRACER.set(tracer);
}

/// Anomaly mode: every recorded op remembers where it was called, and a backward pass that fails, or makes NaN where
/// `check_nan`, names that op. Slow, and evaluates every gradient. Belongs to the process, as in PyTorch.
pub fn set_detect_anomaly(on: bool, check_nan: bool) {
    ANOMALY.store(u8::from(on) | u8::from(check_nan) << 1, Ordering::Relaxed);
}

/// Is anomaly mode on, and does it look for NaN where it is?
pub fn anomaly() -> (bool, bool) {
    let mode = ANOMALY.load(Ordering::Relaxed);
    (mode & 1 != 0, mode & 2 != 0)
}

/// Where the current op was called, in anomaly mode.
pub(crate) fn trace() -> Option<String> {
    (TRACER.get()?.trace)()
}

/// Tells of a failed gradient.
pub(crate) fn report(name: &str, trace: Option<&str>) {
    if let Some(tracer) = TRACER.get() {
        (tracer.report)(name, trace);
    }
}
