//! The engine's threads, and loops split over them.
//!
//! Whoever runs a loop takes pieces of it as well, so that one whose helpers are slow to wake is no slower than without
//! them. Threads wait for work awake for a moment, since the next op often follows at once; then they sleep. Depends on
//! parking_lot. Invariants: results do not depend on the number of threads, as long as each piece depends on its own range
//! only; a loop does not return before everybody has left it.

use super::affinity::{self, Seat};
use super::exit;
use parking_lot::{Condvar, Mutex, RwLock};
use std::any::Any;
use std::num::NonZeroUsize;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Elements of cheap work below which one thread does it.
pub const GRAIN: usize = 32 << 10;

/// How long a thread waits awake: some times what it takes to wake one that sleeps.
const AWAKE: Duration = Duration::from_micros(200);

/// Sleepers that one thread wakes, which takes it some µs each; those woken wake more.
const CALLS: usize = 2;

/// Threads that a pool has at most, whatever is asked for.
const MOST: usize = 1024;

static POOL: RwLock<Option<Arc<Pool>>> = RwLock::new(None);

/// A loop that is shared out.
struct PoolTask<'a> {
    f: &'a (dyn Fn(usize) + Sync),
    pieces: usize,
    /// How many pieces somebody has: whoever runs the loop has the first ones, its helpers the last. So each core gets about the
    /// same part of a tensor from op to op, and finds it in its caches.
    taken: AtomicUsize,
    /// How many of them helpers have.
    helped: AtomicUsize,
    /// Threads that are at it, beside the one that waits for it.
    helpers: AtomicUsize,
    waits: Thread,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl PoolTask<'_> {
    /// Takes pieces from the first on, as the one who runs the loop, until there are none.
    fn lead(&self) {
        let mut first = 0..;
        self.work(|| first.next().unwrap_or_default());
    }

    /// Takes pieces from the last on.
    fn help(&self) {
        self.work(|| self.pieces - 1 - self.helped.fetch_add(1, Ordering::Relaxed));
    }

    /// Takes pieces until there are none; `next` says which.
    fn work(&self, mut next: impl FnMut() -> usize) {
        let work = || {
            while self.taken.fetch_add(1, Ordering::Relaxed) < self.pieces {
                (self.f)(next());
            }
        };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
            // The other pieces are not begun any more.
            self.taken.store(self.pieces, Ordering::Relaxed);
            self.panic.lock().get_or_insert(panic);
        }
    }

    /// Pieces that nobody has.
    fn left(&self) -> usize {
        self.pieces.saturating_sub(self.taken.load(Ordering::Relaxed))
    }
}

/// A job, which lives until it is taken off the list and its helpers have left.
#[derive(Clone, Copy, PartialEq)]
struct PostedTask(*const PoolTask<'static>);
// SAFETY: what a job refers to can be used by all threads.
unsafe impl Send for PostedTask {}

#[derive(Default)]
struct List {
    jobs: Vec<PostedTask>,
    sleepers: usize,
    /// Are the threads to end?
    over: bool,
}

/// What a pool and its threads share.
#[derive(Default)]
struct ThreadPool {
    list: Mutex<List>,
    wake: Condvar,
    /// Changes with every job that is posted, so that a thread can wait for one without the lock.
    posts: AtomicUsize,
    seats: Vec<Seat>,
}

impl ThreadPool {
    /// What a thread of the pool does.
    fn serve(&self, seat: &Seat) {
        seat.take();
        loop {
            let posts = self.posts.load(Ordering::Acquire);
            if let Some(job) = self.join() {
                // SAFETY: the thread is counted among the helpers, for whom the job waits.
                let job = unsafe { &*job.0 };
                job.help();
                // After the last one has left, the job may be gone.
                let waits = job.waits.clone();
                if job.helpers.fetch_sub(1, Ordering::Release) == 1 {
                    waits.unpark();
                }
                continue;
            }
            if await_awake(|| self.posts.load(Ordering::Acquire) != posts) {
                continue;
            }
            let mut list = self.list.lock();
            if list.over {
                return;
            }
            if self.posts.load(Ordering::Acquire) == posts {
                list.sleepers += 1;
                seat.leave();
                self.wake.wait(&mut list);
                list.sleepers -= 1;
            }
        }
    }

    /// A job that has pieces left, with the calling thread among its helpers.
    fn join(&self) -> Option<PostedTask> {
        // Whoever ends the process is not to wait for helpers that stop at BLAS's gate.
        if exit::is_closed() {
            return None;
        }
        let list = self.list.lock();
        // SAFETY: jobs on the list live, and leave it under its lock.
        let mut jobs = list.jobs.iter().map(|job| unsafe { &*job.0 });
        let job = jobs.find(|job| job.left() > 0)?;
        job.helpers.fetch_add(1, Ordering::Relaxed);
        let posted = PostedTask(job);
        let wanted = list.sleepers.min(job.left()).min(CALLS);
        drop(list);
        self.call(wanted);
        Some(posted)
    }

    /// Runs `f` for every number below `pieces`, with whoever is free.
    fn run(&self, pieces: usize, f: &(dyn Fn(usize) + Sync)) {
        let job = PoolTask {
            f,
            pieces,
            taken: AtomicUsize::new(0),
            helped: AtomicUsize::new(0),
            helpers: AtomicUsize::new(0),
            waits: std::thread::current(),
            panic: Mutex::new(None),
        };
        let posted = PostedTask((&raw const job).cast());
        let wanted = {
            let mut list = self.list.lock();
            list.jobs.push(posted);
            self.posts.fetch_add(1, Ordering::Release);
            list.sleepers.min(pieces - 1).min(CALLS)
        };
        if wanted > 0 {
            affinity::yield_cores(&self.seats);
        }
        self.call(wanted);
        job.lead();
        self.list.lock().jobs.retain(|&job| job != posted);
        // Nobody can join any more.
        let left = || job.helpers.load(Ordering::Acquire) == 0;
        if !await_awake(left) {
            while !left() {
                std::thread::park();
            }
        }
        let panic = job.panic.lock().take();
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Wakes so many.
    fn call(&self, sleepers: usize) {
        for _ in 0..sleepers {
            self.wake.notify_one();
        }
    }

    fn end(&self) {
        self.list.lock().over = true;
        self.posts.fetch_add(1, Ordering::Release);
        self.wake.notify_all();
    }
}

/// Waits a moment for something, awake; did it come?
fn await_awake(came: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    loop {
        for _ in 0..8 {
            if came() {
                return true;
            }
            std::hint::spin_loop();
        }
        if start.elapsed() > AWAKE {
            return came();
        }
    }
}

struct Pool {
    threads: usize,
    /// The process it was made in: threads do not survive a fork.
    process: u32,
    /// None where the calling thread is all there is.
    team: Option<Arc<ThreadPool>>,
}

impl Pool {
    fn new(threads: usize) -> Arc<Pool> {
        let seats = (1..threads).map(|_| Seat::default()).collect();
        let team = Arc::new(ThreadPool { seats, ..ThreadPool::default() });
        let started = (1..threads).take_while(|&i| {
            let team = team.clone();
            // Where the system refuses to start more, there are fewer.
            let serve = move || team.serve(&team.seats[i - 1]);
            std::thread::Builder::new().name(format!("lucid-cpu-{i}")).spawn(serve).is_ok()
        });
        let team = (started.count() > 0).then_some(team);
        Arc::new(Pool { threads, process: std::process::id(), team })
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Some(team) = &self.team {
            team.end();
        }
    }
}

fn pool() -> Arc<Pool> {
    if let Some(pool) = &*POOL.read()
        && pool.process == std::process::id()
    {
        return pool.clone();
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
    let set = set.ok().and_then(|v| v.trim().parse().ok()).filter(|&n: &usize| n > 0).map(|n| n.min(MOST));
    set.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, NonZeroUsize::get))
}

/// The number of threads that CPU ops use.
pub fn num_threads() -> usize {
    pool().threads
}

/// Sets the number of threads that CPU ops use, from 1 to [`MOST`]. Work that has begun keeps its threads.
pub fn set_num_threads(threads: usize) {
    let pool = Pool::new(threads.clamp(1, MOST));
    let old = POOL.write().replace(pool);
    match old {
        // After a fork: one of its threads, which are not there, may have had its lock.
        Some(old) if old.process != std::process::id() => std::mem::forget(old),
        // Dropped outside the lock: the last user of a pool waits for its threads.
        old => drop(old),
    }
}

/// Runs `f` for every number below `pieces`, over the pool.
///
/// # Panics
/// As `f` does, once all threads have left it.
pub fn each_piece(pieces: usize, f: &(dyn Fn(usize) + Sync)) {
    let pool = pool();
    match &pool.team {
        Some(team) if pieces > 1 => team.run(pieces, f),
        _ => (0..pieces).for_each(f),
    }
}

/// How long each piece of `n` elements is: a multiple of `unit`, at least `grain`, and a few pieces per thread.
pub fn piece_size(n: usize, unit: usize, grain: usize) -> usize {
    let least = grain.max(unit).max(1);
    // Most calls are of so few elements, and a division takes as long as their work.
    if n < least.saturating_mul(2) {
        return n.max(1);
    }
    let (unit, pieces) = (unit.max(1), n / least);
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
        // SAFETY: the pieces are inside `out`, which is borrowed for the call, and do not overlap; each is made once.
        let piece = unsafe { std::slice::from_raw_parts_mut(base.get().add(start), size.min(n - start)) };
        f(start, piece);
    });
}

/// A slice that holds so many elements for each thing of a batch.
pub struct Batched<'a, T>(pub &'a mut [T], pub usize);

/// Runs `f(first thing, pieces of the three slices)` over `count` things, at least `grain` together.
///
/// # Panics
/// If a slice is too short.
pub fn for_batches<A: Send, B: Send, C: Send>(
    count: usize,
    grain: usize,
    (a, b, c): (Batched<'_, A>, Batched<'_, B>, Batched<'_, C>),
    f: impl Fn(usize, &mut [A], &mut [B], &mut [C]) + Sync,
) {
    let each = (a.1, b.1, c.1);
    let (a, b, c) = (&mut a.0[..count * each.0], &mut b.0[..count * each.1], &mut c.0[..count * each.2]);
    let size = piece_size(count, 1, grain);
    if size >= count {
        return f(0, a, b, c);
    }
    let bases = (Base(a.as_mut_ptr()), Base(b.as_mut_ptr()), Base(c.as_mut_ptr()));
    each_piece(count.div_ceil(size), &|i| {
        let start = i * size;
        let n = size.min(count - start);
        // SAFETY: the slices hold `count` things, of which this piece has `n` from `start` on; they are borrowed for the call, and
        // the pieces do not overlap; each is made once.
        let pieces = unsafe {
            (
                std::slice::from_raw_parts_mut(bases.0.get().add(start * each.0), n * each.0),
                std::slice::from_raw_parts_mut(bases.1.get().add(start * each.1), n * each.1),
                std::slice::from_raw_parts_mut(bases.2.get().add(start * each.2), n * each.2),
            )
        };
        f(start, pieces.0, pieces.1, pieces.2);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::many;

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

    #[test]
    fn batches_cover_every_slice_once() {
        for threads in [1, 3] {
            set_num_threads(threads);
            for count in [0, 1, 10, 1003] {
                let (mut a, mut b, mut none) = (vec![0; count * 3], vec![0u8; count], [0i64; 0]);
                let all = (Batched(&mut a, 3), Batched(&mut b, 1), Batched(&mut none, 0));
                for_batches(count, 4, all, |start, a, b, none| {
                    assert_eq!((a.len(), none.len()), (b.len() * 3, 0));
                    a.iter_mut().enumerate().for_each(|(i, x)| *x += start * 3 + i + 1);
                    b.iter_mut().for_each(|x| *x += 1);
                });
                assert!(a.iter().enumerate().all(|(i, &x)| x == i + 1) && b.iter().all(|&x| x == 1));
            }
        }
    }

    #[test]
    fn loops_in_loops_and_from_many_threads() {
        const ROUNDS: usize = many(100, 5);
        let pool = Pool::new(4);
        let team = pool.team.as_ref().unwrap();
        let count = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        team.run(5, &|i| {
                            team.run(3, &|j| {
                                count.fetch_add(10 * i + j, Ordering::Relaxed);
                            });
                        });
                    }
                });
            }
        });
        assert_eq!(count.into_inner(), 3 * ROUNDS * (3 * 100 + 5 * 3));
        assert!(team.list.lock().jobs.is_empty());
        // Sleepers wake again.
        std::thread::sleep(4 * AWAKE);
        let count = AtomicUsize::new(0);
        team.run(1000, &|i| {
            count.fetch_add(i, Ordering::Relaxed);
        });
        assert_eq!(count.into_inner(), 499_500);
    }

    #[test]
    fn a_panic_comes_out_after_all_have_left() {
        let pool = Pool::new(3);
        let team = pool.team.as_ref().unwrap();
        for bad in [0, 7, 19] {
            let inside = AtomicUsize::new(0);
            let run = || {
                team.run(20, &|i| {
                    inside.fetch_add(1, Ordering::Relaxed);
                    std::thread::yield_now();
                    inside.fetch_sub(1, Ordering::Relaxed);
                    assert!(i != bad, "piece {bad}");
                });
            };
            let panic = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
            assert_eq!(panic.downcast_ref::<String>(), Some(&format!("piece {bad}")));
            assert_eq!(inside.into_inner(), 0);
        }
        // The pool is as it was.
        let count = AtomicUsize::new(0);
        team.run(10, &|_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(count.into_inner(), 10);
    }

    #[test]
    fn threads_end_with_their_pool() {
        let pool = Pool::new(3);
        let team = Arc::downgrade(pool.team.as_ref().unwrap());
        pool.team.as_ref().unwrap().run(8, &|_| ());
        drop(pool);
        while team.strong_count() > 0 {
            std::thread::yield_now();
        }
    }
}
