//! The engine's thread pool, and loops split over it.
//!
//! Depends on rayon. A parallel region costs some 7 µs, so small work stays on the calling thread. Invariant: results do
//! not depend on the number of threads, as long as each piece depends on its own range only.

use parking_lot::RwLock;
use rayon::prelude::*;
use std::num::NonZeroUsize;
use std::sync::Arc;

/// Elements of cheap work below which one thread does it.
pub const GRAIN: usize = 32 << 10;

static POOL: RwLock<Option<Arc<Pool>>> = RwLock::new(None);

struct Pool {
    threads: usize,
    /// The process it was made in: threads do not survive a fork.
    process: u32,
    /// None for one thread, or where the system refused to start more.
    rayon: Option<rayon::ThreadPool>,
}

impl Pool {
    fn new(threads: usize) -> Arc<Pool> {
        let named = |i| format!("lucid-cpu-{i}");
        let build = || rayon::ThreadPoolBuilder::new().num_threads(threads).thread_name(named).build().ok();
        let rayon = if threads > 1 { build() } else { None };
        Arc::new(Pool { threads, process: std::process::id(), rayon })
    }
}

fn pool() -> Arc<Pool> {
    if let Some(pool) = &*POOL.read() {
        if pool.process == std::process::id() {
            return pool.clone();
        }
    }
    let mut slot = POOL.write();
    let threads = match slot.take() {
        Some(old) if old.process == std::process::id() => {
            *slot = Some(old.clone());
            return old;
        }
        // After a fork: waiting for threads that are not there would hang.
        Some(old) => {
            let threads = old.threads;
            std::mem::forget(old);
            threads
        }
        None => default_threads(),
    };
    let pool = Pool::new(threads);
    *slot = Some(pool.clone());
    pool
}

fn default_threads() -> usize {
    let set = std::env::var("LUCID_NUM_THREADS").or_else(|_| std::env::var("OMP_NUM_THREADS"));
    let set = set.ok().and_then(|v| v.trim().parse().ok()).filter(|&n: &usize| n > 0);
    set.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, NonZeroUsize::get))
}

/// The number of threads that CPU ops use.
pub fn num_threads() -> usize {
    pool().threads
}

/// Sets the number of threads that CPU ops use, at least 1. Work that has begun keeps its threads.
pub fn set_num_threads(threads: usize) {
    let pool = Pool::new(threads.max(1));
    let old = POOL.write().replace(pool);
    // Dropped outside the lock: the last user of a pool waits for its threads.
    drop(old);
}

/// Runs `f` for every number below `pieces`, over the pool. Not generic, so that rayon is compiled once.
fn each_piece(pieces: usize, f: &(dyn Fn(usize) + Sync)) {
    let pool = pool();
    match &pool.rayon {
        Some(rayon) if pieces > 1 => rayon.install(|| (0..pieces).into_par_iter().for_each(f)),
        _ => (0..pieces).for_each(f),
    }
}

/// How long each piece of `n` elements is: a multiple of `unit`, at least `grain`, and a few pieces per thread.
fn piece_size(n: usize, unit: usize, grain: usize) -> usize {
    let (unit, pieces) = (unit.max(1), n / grain.max(unit).max(1));
    if pieces < 2 {
        return n.max(1);
    }
    n.div_ceil(pieces.min(4 * num_threads())).next_multiple_of(unit)
}

/// A pointer that pieces of a slice are cut from.
struct Base<T>(*mut T);
// SAFETY: each thread gets another part of the slice, whose elements can be sent.
unsafe impl<T: Send> Sync for Base<T> {}

impl<T> Base<T> {
    fn get(&self) -> *mut T {
        self.0
    }
}

/// Runs `f(index of the first element, piece)` over pieces of `out`, each a multiple of `unit` long (but for the last)
/// and at least `grain`.
pub fn for_chunks<T: Send>(out: &mut [T], unit: usize, grain: usize, f: impl Fn(usize, &mut [T]) + Sync) {
    let n = out.len();
    let size = piece_size(n, unit, grain);
    if size >= n {
        return f(0, out);
    }
    let base = Base(out.as_mut_ptr());
    each_piece(n.div_ceil(size), &|i| {
        let start = i * size;
        // SAFETY: the pieces lie inside `out`, which is borrowed for the call, and do not overlap; each is made once.
        let piece = unsafe { std::slice::from_raw_parts_mut(base.get().add(start), size.min(n - start)) };
        f(start, piece);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_everything_once() {
        for threads in [1, 3] {
            set_num_threads(threads);
            assert_eq!(num_threads(), threads);
            for n in [0, 1, 1000, 1003] {
                let mut out = vec![0; n];
                for_chunks(&mut out, 7, 10, |start, piece| {
                    assert_eq!(start % 7, 0);
                    piece.iter_mut().enumerate().for_each(|(i, x)| *x += start + i + 1);
                });
                assert!(out.iter().enumerate().all(|(i, &x)| x == i + 1));
            }
        }
    }
}
