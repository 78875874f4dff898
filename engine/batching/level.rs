//! The levels of `vmap` that a thread is inside of, and which ops had no batching rule.

use crate::{Error, Result};
use parking_lot::Mutex;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

/// What random ops do at a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Randomness {
    /// They are refused.
    Error,
    /// Each sample has numbers of its own.
    Different,
    /// All samples have the same numbers.
    Same,
}

impl Randomness {
    const ALL: [Randomness; 3] = [Randomness::Error, Randomness::Different, Randomness::Same];

    /// What `vmap` takes for it.
    pub const fn name(self) -> &'static str {
        match self {
            Randomness::Error => "error",
            Randomness::Different => "different",
            Randomness::Same => "same",
        }
    }
}

impl std::str::FromStr for Randomness {
    type Err = Box<Error>;

    fn from_str(text: &str) -> Result<Randomness> {
        Randomness::ALL.into_iter().find(|r| r.name() == text).ok_or_else(|| {
            let why = format!("Only allowed values for randomness are 'error', 'different', or 'same'. Got {text}");
            Error::runtime("vmap", why)
        })
    }
}

/// A `vmap` that is running.
#[derive(Clone, Copy, Debug)]
pub struct Level {
    /// Its id.
    pub id: u64,
    /// How many samples there are.
    pub size: usize,
    /// What random ops do.
    pub randomness: Randomness,
    /// Are all values the same for all samples, and only tangents are not? Then what is differentiated by inside is no batch.
    pub alike: bool,
}

thread_local! {
    static LEVELS: RefCell<Vec<Level>> = const { RefCell::new(Vec::new()) };
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Ids are unique in the process, so that a tensor that outlives its level is never taken for one of another.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Starts a level in this thread, inside of those that are running, and gives its id.
pub fn enter(size: usize, randomness: Randomness, alike: bool) -> u64 {
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    LEVELS.with_borrow_mut(|levels| {
        levels.push(Level { id, size, randomness, alike });
        DEPTH.set(levels.len());
    });
    id
}

/// Ends a level, and those inside of it that are still running.
pub fn exit(id: u64) {
    LEVELS.with_borrow_mut(|levels| {
        if let Some(at) = levels.iter().position(|l| l.id == id) {
            levels.truncate(at);
        }
        DEPTH.set(levels.len());
    });
}

/// Leaves a level and those inside of it for a while: what runs before [`resume`] is outside of them.
pub fn suspend(id: u64) -> Vec<Level> {
    LEVELS.with_borrow_mut(|levels| {
        let at = levels.iter().position(|l| l.id == id).unwrap_or(levels.len());
        let left = levels.split_off(at);
        DEPTH.set(levels.len());
        left
    })
}

/// Enters again the levels that [`suspend`] left.
pub fn resume(left: Vec<Level>) {
    LEVELS.with_borrow_mut(|levels| {
        levels.extend(left);
        DEPTH.set(levels.len());
    });
}

/// Is this thread inside of `vmap`?
#[inline]
pub fn is_active() -> bool {
    DEPTH.get() > 0
}

/// How many levels this thread is inside of.
pub(crate) fn depth() -> usize {
    DEPTH.get()
}

/// The levels that this thread is inside of, the outermost first.
pub fn active() -> Vec<Level> {
    LEVELS.with_borrow(Clone::clone)
}

/// How many levels deep a level is, from 1; 0 where it is not running in this thread.
pub fn depth_of(id: u64) -> usize {
    LEVELS.with_borrow(|levels| levels.iter().position(|l| l.id == id).map_or(0, |i| i + 1))
}

/// A running level.
pub(crate) fn find(op: &'static str, id: u64) -> Result<Level> {
    LEVELS.with_borrow(|levels| levels.iter().rev().find(|l| l.id == id).copied()).ok_or_else(|| {
        let why = "a tensor of a vmap that has ended (or runs in another thread) was used; return it from the mapped \
                   function instead of keeping it";
        Error::runtime(op, why)
    })
}

/// Ops that ran sample by sample: those told of, and those not yet.
static FALLBACKS: Mutex<(BTreeSet<&'static str>, Vec<&'static str>)> = Mutex::new((BTreeSet::new(), Vec::new()));

pub(crate) fn note_fallback(op: &'static str) {
    let mut noted = FALLBACKS.lock();
    if noted.0.insert(op) {
        noted.1.push(op);
    }
}

/// The ops that ran sample by sample, for want of a batching rule: those not told of yet, each of which is named once in
/// the process, or all.
pub fn fallbacks(all: bool) -> Vec<&'static str> {
    let mut noted = FALLBACKS.lock();
    match all {
        true => noted.0.iter().copied().collect(),
        false => std::mem::take(&mut noted.1),
    }
}
