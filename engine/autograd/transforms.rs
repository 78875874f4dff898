//! Which function transform (`grad`, `vjp`, `jvp`) a thread is in, and what that refuses.
//!
//! The transforms themselves are the embedding language's. Each call of one has an id; ids are used once, and an inner call has
//! a larger one. A tensor knows the call that it was made in, so that a write to one from outside, whose derivative would be
//! lost, can be told from a write to one of the call's own.

use super::custom::Backward;
use super::modes::{packing, SavedTensorHooks};
use super::{custom, dual_level, forward, record, transform_leaf};
use crate::{batching, Error, Result, Tensor};
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

static NEXT: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static STATE: Cell<Transform> = const { Cell::new(Transform { call: 0, reverse: false, innermost: Mode::None, maps: 0 }) };
}

/// What the innermost transform does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    None,
    Reverse,
    Forward,
}

/// The transform that a thread is in.
#[derive(Clone, Copy)]
pub struct Transform {
    /// The id of the innermost call, 0 for none.
    call: u64,
    /// Is one of the calls in reverse mode?
    reverse: bool,
    innermost: Mode,
    /// How many levels of `vmap` it is inside of.
    maps: usize,
}

/// Begins a call of a transform, of reverse or of forward mode, and gives what [`leave_transform`] puts back.
///
/// # Errors
/// [`Error::Runtime`] for reverse mode where saved tensors go through hooks.
#[doc(hidden)]
pub fn enter_transform(reverse: bool) -> Result<Transform> {
    if reverse && matches!(packing(), Some(SavedTensorHooks::Hook(_))) {
        return Err(hooks_refused());
    }
    let former = STATE.get();
    let call = NEXT.fetch_add(1, Ordering::Relaxed);
    let innermost = if reverse { Mode::Reverse } else { Mode::Forward };
    STATE.set(Transform { call, reverse: reverse || former.reverse, innermost, maps: batching::depth() });
    Ok(former)
}

/// Ends what [`enter_transform`] began.
#[doc(hidden)]
pub fn leave_transform(former: Transform) {
    STATE.set(former);
}

/// The transform that this thread is in, for [`leave_transform`] to put back.
#[doc(hidden)]
pub fn current_transform() -> Transform {
    STATE.get()
}

/// The innermost call of a transform that the thread is in, 0 for none.
#[inline]
pub(super) fn current() -> u64 {
    STATE.get().call
}

/// Is a transform of reverse mode at work in this thread, and the tensor from outside of the innermost call? Then it may be
/// saved, also if it was made in inference mode.
pub(super) fn is_captured(t: &Tensor) -> bool {
    STATE.get().reverse && t.call() < current()
}

/// Refuses hooks on saved tensors where a transform of reverse mode is at work.
///
/// # Errors
/// [`Error::Runtime`] where one is.
#[doc(hidden)]
pub fn check_hooks() -> Result<()> {
    match STATE.get().reverse {
        true => Err(hooks_refused()),
        false => Ok(()),
    }
}

fn hooks_refused() -> Box<Error> {
    Error::runtime(
        "saved_tensors_hooks",
        "lucid.func.{grad, vjp, jacrev, hessian} don't yet support saved tensor hooks",
    )
}

/// Is a transform at work in this thread, `vmap` included?
#[doc(hidden)]
pub fn is_transformed() -> bool {
    current() != 0 || batching::is_active()
}

/// Refuses what is the tape's own business where a transform is at work, `vmap` included: `what` says how it is called.
///
/// # Errors
/// [`Error::Runtime`] where one is.
#[doc(hidden)]
pub fn check_untransformed(op: &'static str, what: &str) -> Result<()> {
    if !is_transformed() {
        return Ok(());
    }
    let why = format!(
        "{what} called inside a function transform, such as grad or vmap. This is not supported; use the transforms (grad, vjp, \
         jvp, jacrev, jacfwd, hessian) instead, or call it outside of the function being transformed"
    );
    Err(Error::runtime(op, why))
}

thread_local! {
    /// The calls whose inputs the backward passes running in this thread differentiate by, the innermost last.
    static CALLS: RefCell<Vec<SmallVec<[u64; 1]>>> = const { RefCell::new(Vec::new()) };
}

/// While it lives, the thread's innermost backward pass is one by these inputs.
pub(super) struct Differentiated;

impl Differentiated {
    pub(super) fn by(inputs: &[Tensor]) -> Differentiated {
        let calls = inputs.iter().map(Tensor::call).filter(|&call| call != 0).collect();
        CALLS.with_borrow_mut(|stack| stack.push(calls));
        Differentiated
    }
}

impl Drop for Differentiated {
    fn drop(&mut self) {
        drop(CALLS.with_borrow_mut(Vec::pop));
    }
}

/// Does the pass that runs in this thread differentiate by inputs of this call?
fn is_for(call: u64) -> bool {
    CALLS.with_borrow(|calls| calls.last().is_some_and(|calls| calls.contains(&call)))
}

/// Does the history of `t` lead to a leaf that another call than this one, the innermost, differentiates by, or none?
fn leads_out_of(call: u64, t: &Tensor) -> bool {
    transform_leaf::source(t).is_some_and(|(found, _)| found != call)
}

impl Tensor {
    /// Counts from now on as made in the transform that is at work: an input that it made of one from outside.
    #[doc(hidden)]
    pub fn adopt(&self) {
        for t in [self, batching::bare(self)] {
            t.0.auto.made_in.store(current(), Ordering::Relaxed);
        }
    }

    /// Refuses a write in place where the tensor, or what it is a view of, is from outside of the transform that is at work.
    ///
    /// # Errors
    /// [`Error::Runtime`] for such a tensor.
    #[doc(hidden)]
    pub fn refuse_captured(&self, op: &'static str) -> Result<()> {
        let call = current();
        if call == 0 {
            return Ok(());
        }
        if self.0.auto.made_in.load(Ordering::Relaxed) >= call {
            return Ok(());
        }
        let why = "During a grad (vjp, jvp, grad, etc) transform, the function provided attempted to call an in-place operation that \
                   would mutate a captured Tensor. This is not supported; please rewrite the function being transformed to \
                   explicitly accept the mutated Tensor(s) as inputs.";
        Err(Error::runtime(op, why))
    }

    /// The transform that it was made in.
    pub(super) fn call(&self) -> u64 {
        self.0.auto.made_in.load(Ordering::Relaxed)
    }

    /// The same storage, cut off from what the innermost transform differentiates by: from the tape where none is at work, else
    /// from that transform's inputs or tangents alone, while those around it follow it on. Its [`version`](Tensor::version) is its
    /// own: writes through it are seen by both, but a gradient that needs what was there does not notice them.
    ///
    /// # Errors
    /// [`Error::Runtime`] inside of `vmap`, and as [`Tensor::detach`].
    #[doc(hidden)]
    pub fn data(&self) -> Result<Tensor> {
        let state = STATE.get();
        if batching::depth() > state.maps && self.is_batched() {
            return Err(Error::runtime("data", "accessing `data` under vmap transform is not allowed"));
        }
        self.data_in(state)
    }

    fn data_in(&self, state: Transform) -> Result<Tensor> {
        if let Some(batch) = self.storage().batch() {
            let data = batch.with(batch.value.data_in(state)?);
            data.0.auto.made_where(&self.0.auto);
            return Ok(data);
        }
        let data = self.detach()?;
        let data = Tensor::with_auto(data.storage().apart(), self.0.auto.cut_off());
        self.cut_innermost(state, &data)?;
        Ok(data)
    }

    /// Gives `to`, which has no history, what of this tensor's the transforms around the innermost one follow.
    fn cut_innermost(&self, state: Transform, to: &Tensor) -> Result<()> {
        match state.innermost {
            _ if self.is_sparse() => Ok(()),
            Mode::None => Ok(()),
            // What was made outside of all calls is cut off there.
            Mode::Forward if self.call() == 0 => Ok(()),
            Mode::Forward => {
                to.0.auto.set_edge(record::edge_of(self));
                dual_level::around(|| forward::copy_tangents(self, to))
            }
            Mode::Reverse => {
                // What is from outside of the call is cut off where it was made.
                let call = state.call.min(self.call());
                if call == 0 {
                    return Ok(());
                }
                if leads_out_of(call, self) {
                    // The pass that is this call's own goes no further; all others do.
                    let backward: Backward = Arc::new(move |_, g| {
                        let g = g.first().cloned().flatten().filter(|_| !is_for(call));
                        Ok([g].into_iter().collect())
                    });
                    custom::step(to, "AliasBackward0", &[self], backward)?;
                }
                forward::copy_tangents(self, to)
            }
        }
    }

    /// Cuts this tensor off in place, as [`Tensor::data`] is cut off.
    ///
    /// # Errors
    /// [`Error::Runtime`] for a view that is on the tape: its base would put it back.
    pub fn detach_(&self) -> Result<()> {
        if batching::bare(self).0.auto.view.as_ref().is_some_and(|view| !view.itself) {
            return Err(Error::runtime("detach_", "Can't detach views in-place. Use detach() instead."));
        }
        let own = batching::bare(self);
        let rest = own.data_in(STATE.get())?;
        own.0.auto.set_edge(rest.0.auto.own_edge());
        forward::take_tangents(&rest, own);
        Ok(())
    }

    /// Refuses another tensor's data in this one's place inside of a transform.
    ///
    /// # Errors
    /// [`Error::Runtime`] where one is at work.
    #[doc(hidden)]
    pub fn refuse_new_data(&self) -> Result<()> {
        let why = match (current() != 0, self.is_batched()) {
            (true, _) => "mutating directly with `.data` inside a function transform is not allowed.",
            (_, true) => "mutating directly with `.data` under vmap transform is not allowed.",
            _ => return Ok(()),
        };
        Err(Error::runtime("data", why))
    }
}
