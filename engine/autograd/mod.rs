//! The dynamic tape: what was computed from what, and the gradients that follow.
//!
//! `node` is the graph, `record` writes it while ops run, `run` walks it backwards. Rules stand in the op table and are
//! written in tensor ops, so with `create_graph` the walk is itself recorded. No walk and no drop recurses.

mod node;
mod record;
mod run;

pub use node::Hook;
pub(crate) use node::{Auto, Ctx, Edge, Grads};
pub(crate) use record::{check_in_place, edge_of, record, record_view, record_write, requires_grad};
pub use run::{backward, grad, leads_elsewhere, retire, Keep};

use std::cell::Cell;

thread_local! {
    static GRAD_ENABLED: Cell<bool> = const { Cell::new(true) };
}

/// Does the calling thread record ops?
pub fn grad_enabled() -> bool {
    GRAD_ENABLED.get()
}

/// Says whether the calling thread records ops, and gives the former answer.
pub fn set_grad_enabled(on: bool) -> bool {
    GRAD_ENABLED.replace(on)
}

/// Puts the former mode back when dropped, on panics too.
struct Restore(bool);
impl Drop for Restore {
    fn drop(&mut self) {
        GRAD_ENABLED.set(self.0);
    }
}

/// Runs `f` with recording on or off in this thread.
pub(crate) fn with_grad<T>(on: bool, f: impl FnOnce() -> T) -> T {
    let _restore = Restore(set_grad_enabled(on));
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
