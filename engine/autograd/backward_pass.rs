//! The backward passes that run in a thread: what each will reach, and what it calls at its end.

use super::node::Node;
use crate::{Error, Result};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

/// Hashes an address by a multiplication: nodes are looked up once per edge.
#[derive(Default)]
pub(super) struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.write_usize(b as usize);
        }
    }
    fn write_usize(&mut self, n: usize) {
        self.0 = (self.0 ^ n as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_right(23);
    }
}

pub(super) type Build = BuildHasherDefault<AddressHasher>;
pub(super) type ByNode<T> = HashMap<*const Node, T, Build>;

pub(super) fn key(node: &Arc<Node>) -> *const Node {
    Arc::as_ptr(node)
}

thread_local! {
    /// The nodes that the passes running in this thread will reach, the innermost last, and how many passes there were. Then the
    /// running ones' numbers, and whether chosen gradients alone are asked of them.
    static REACHED: RefCell<Vec<HashSet<*const Node, Build>>> = const { RefCell::new(Vec::new()) };
    static PASSES: Cell<u64> = const { Cell::new(0) };
    static PASS: RefCell<Vec<(u64, bool)>> = const { RefCell::new(Vec::new()) };
}

/// What a backward pass does when all gradients are there.
pub type Callback = Box<dyn FnOnce() -> Result<()>>;

thread_local! {
    /// What the passes running in this thread do at their end, the innermost last.
    static CALLBACKS: RefCell<Vec<Vec<Callback>>> = const { RefCell::new(Vec::new()) };
}

/// Has `call` called when the backward pass that runs in this thread has made all its gradients; its error is the pass's.
///
/// # Errors
/// [`Error::Runtime`] where no pass runs.
pub fn queue_callback(call: Callback) -> Result<()> {
    CALLBACKS.with_borrow_mut(|stack| match stack.last_mut() {
        Some(own) => {
            own.push(call);
            Ok(())
        }
        None => Err(Error::runtime("queue_callback", "Final callbacks can only be installed during backward pass.")),
    })
}

/// Calls what was queued in the innermost pass, and what that queues.
pub(super) fn call_back() -> Result<()> {
    loop {
        let queued = CALLBACKS.with_borrow_mut(|stack| stack.last_mut().map(std::mem::take)).unwrap_or_default();
        if queued.is_empty() {
            return Ok(());
        }
        queued.into_iter().try_for_each(|call| call())?;
    }
}

/// A pass that runs in this thread.
pub(super) struct Pass;

impl Pass {
    pub(super) fn begin(reached: HashSet<*const Node, Build>, chosen: bool) -> Pass {
        PASSES.set(PASSES.get() + 1);
        PASS.with_borrow_mut(|passes| passes.push((PASSES.get(), chosen)));
        CALLBACKS.with_borrow_mut(|stack| stack.push(Vec::new()));
        REACHED.with_borrow_mut(|stack| stack.push(reached));
        Pass
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        PASS.with_borrow_mut(Vec::pop);
        drop(CALLBACKS.with_borrow_mut(Vec::pop));
        drop(REACHED.with_borrow_mut(Vec::pop));
    }
}

/// The number of the pass that runs in this thread, 0 where none does.
pub fn current_pass() -> u64 {
    PASS.with_borrow(|passes| passes.last().map_or(0, |&(number, _)| number))
}

/// Does a pass run in this thread, be it around others, that is asked for chosen gradients alone?
pub fn chosen_alone() -> bool {
    PASS.with_borrow(|passes| passes.iter().any(|&(_, chosen)| chosen))
}

/// Will the pass that runs in this thread reach the node?
pub(crate) fn reaches(node: &Arc<Node>) -> Option<bool> {
    REACHED.with_borrow(|stack| stack.last().map(|reached| reached.contains(&key(node))))
}
