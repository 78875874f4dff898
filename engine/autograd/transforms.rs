//! Which function transform (`grad`, `vjp`, `jvp`) a thread is in, and what that refuses.
//!
//! The transforms themselves are the embedding language's. Each call of one has an id; ids are used once, and an inner call has
//! a larger one. A tensor knows the call that it was made in, so that a write to one from outside, whose derivative would be
//! lost, can be told from a write to one of the call's own.

use super::modes::{packing, Packing};
use crate::{Error, Result, Tensor};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

static NEXT: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static STATE: Cell<Transform> = const { Cell::new(Transform { call: 0, reverse: false }) };
}

/// The transform that a thread is in.
#[derive(Clone, Copy)]
pub struct Transform {
    /// The id of the innermost call, 0 for none.
    call: u64,
    /// Is one of the calls in reverse mode?
    reverse: bool,
}

/// Begins a call of a transform, of reverse or of forward mode, and gives what [`leave_transform`] puts back.
///
/// # Errors
/// [`Error::Runtime`] for reverse mode where saved tensors go through hooks.
pub fn enter_transform(reverse: bool) -> Result<Transform> {
    if reverse && matches!(packing(), Some(Packing::Hook(_))) {
        return Err(hooks_refused());
    }
    let former = STATE.get();
    let call = NEXT.fetch_add(1, Ordering::Relaxed);
    STATE.set(Transform { call, reverse: reverse || former.reverse });
    Ok(former)
}

/// Ends what [`enter_transform`] began.
pub fn leave_transform(former: Transform) {
    STATE.set(former);
}

/// The innermost call of a transform that the thread is in, 0 for none.
#[inline]
pub(super) fn current() -> u64 {
    STATE.get().call
}

/// Refuses hooks on saved tensors where a transform of reverse mode is at work.
///
/// # Errors
/// [`Error::Runtime`] where one is.
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

/// Refuses what is the tape's own business where a transform is at work, `vmap` included: `what` says how it is called.
///
/// # Errors
/// [`Error::Runtime`] where one is.
pub fn check_untransformed(op: &'static str, what: &str) -> Result<()> {
    if current() == 0 && !crate::batching::is_active() {
        return Ok(());
    }
    let why = format!(
        "{what} called inside a function transform, such as grad or vmap. This is not supported; use the transforms (grad, vjp, \
         jvp, jacrev, jacfwd, hessian) instead, or call it outside of the function being transformed"
    );
    Err(Error::runtime(op, why))
}

impl Tensor {
    /// Counts from now on as made in the transform that is at work: an input that it made of one from outside.
    pub fn adopt(&self) {
        self.0.auto.made_in.store(current(), Ordering::Relaxed);
    }

    /// Refuses a write in place where the tensor, or what it is a view of, is from outside of the transform that is at work.
    ///
    /// # Errors
    /// [`Error::Runtime`] for such a tensor.
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

    /// Refuses another tensor's data in this one's place inside of a transform.
    ///
    /// # Errors
    /// [`Error::Runtime`] where one is at work.
    pub fn refuse_new_data(&self) -> Result<()> {
        let why = match (current() != 0, self.is_batched()) {
            (true, _) => "mutating directly with `.data` inside a function transform is not allowed.",
            (_, true) => "mutating directly with `.data` under vmap transform is not allowed.",
            _ => return Ok(()),
        };
        Err(Error::runtime("data", why))
    }
}
