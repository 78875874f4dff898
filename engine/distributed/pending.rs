//! Collectives on the GPU device that were called and whose results nobody has waited for.
//!
//! Depends on `group` alone. Such a collective returns at once with a lazy array, whose elements the group's thread
//! brings. Whoever evaluates anything waits for them first, outside of MLX's locks: a stream that waited for a process
//! would keep the group's own thread, which evaluates what is sent, from MLX. What reads the result of one that failed is
//! not evaluated at all. Invariant: collectives are numbered in the order of the calls, and a group's thread waits only
//! for lower numbers than its own, so that two never wait for one another.

use super::work::Work;
use crate::Tensor;
use mlx_ffi::distributed as mlx;
use parking_lot::Mutex;
use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::time::{Duration, Instant};

/// One that was called.
#[derive(Clone)]
struct Entry {
    number: u64,
    /// The name of its node, which those of its group have in common.
    node: &'static CStr,
    work: Work<Tensor>,
}

#[derive(Default)]
struct State {
    pending: Vec<Entry>,
    /// Why groups cannot go on, by the name of their nodes.
    failed: HashMap<&'static CStr, String>,
    nodes: HashMap<String, &'static CStr>,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);

thread_local! {
    /// The number below which this thread waits for collectives.
    static BELOW: Cell<u64> = const { Cell::new(u64::MAX) };
}

impl State {
    /// Forgets what is done, and notes what failed.
    fn settle(&mut self) {
        let State { pending, failed, .. } = self;
        pending.retain(|entry| {
            if !entry.work.is_completed() {
                return true;
            }
            if let Err(e) = entry.work.wait(None) {
                failed.entry(entry.node).or_insert_with(|| e.to_string());
            }
            false
        });
        mlx::expect_arrivals(!pending.is_empty() || !failed.is_empty());
    }
}

fn with<T>(f: impl FnOnce(&mut State) -> T) -> T {
    f(STATE.lock().get_or_insert_default())
}

/// Runs a group's operation of this number.
pub(super) fn at<T>(number: u64, run: impl FnOnce() -> T) -> T {
    BELOW.set(number);
    let made = run();
    BELOW.set(u64::MAX);
    made
}

/// The name of the nodes of a group. It stays for good, as long as the process.
pub(super) fn node_of(group: &str) -> &'static CStr {
    with(|state| {
        if let Some(known) = state.nodes.get(group) {
            return *known;
        }
        let text: String = group.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let made = CString::new(format!("Collective {text}"))
            .map_or(c"Collective", |name| &*Box::leak(name.into_boxed_c_str()));
        state.nodes.insert(group.to_owned(), made);
        made
    })
}

/// Has evaluations wait for a collective.
pub(super) fn expect(node: &'static CStr, work: &Work<Tensor>) {
    mlx::set_arrivals(arrivals);
    with(|state| {
        state.pending.push(Entry { number: work.number(), node, work: work.clone() });
        state.settle();
    });
}

/// Waits for the collectives that were called before, and refuses to evaluate what reads one that failed.
fn arrivals(names: &dyn Fn() -> mlx_ffi::Result<String>) -> mlx_ffi::Result<()> {
    let failed = |why: &str| Err(mlx_ffi::Error::Mlx(format!("{}{why}", mlx::MARK)));
    let below = BELOW.get();
    loop {
        let next = with(|state| {
            state.settle();
            state.pending.iter().find(|entry| entry.number < below).cloned()
        });
        let Some(Entry { work, .. }) = next else { break };
        // A thread of a group asks nobody: who could answer may wait for it.
        let waited = if below == u64::MAX { work.wait_interruptible() } else { work.wait(None) };
        if let (Err(e), false) = (waited, work.is_completed()) {
            return failed(&e.to_string());
        }
    }
    let broken = with(|state| state.failed.clone());
    if broken.is_empty() {
        return Ok(());
    }
    let names = names()?;
    let read = |node: &&CStr| names.lines().any(|name| name.as_bytes() == node.to_bytes());
    match broken.iter().find(|(node, _)| read(node)) {
        Some((_, why)) => failed(why),
        None => Ok(()),
    }
}

/// Waits until none is under way, for so long at most.
pub(super) fn drain(at_most: Duration) {
    let until = Instant::now().checked_add(at_most);
    for Entry { work, .. } in with(|state| state.pending.clone()) {
        let left = until.map_or(at_most, |until| until.saturating_duration_since(Instant::now()));
        let _ = work.wait(Some(left));
    }
}
