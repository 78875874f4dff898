//! Which cores the threads of a pool are woken on.
//!
//! Depends on `libc`. Linux wakes a thread on the core where it ran last, or on its waker's, unless it finds one that is idle;
//! and a virtual machine's core that has been asleep for a moment does not count as idle, since the host runs something
//! else on it. A thread that lands on the core of whoever waits for it is of no use until one of them is moved,
//! some milliseconds later. So a thread that went to sleep on the core of the one that calls it is kept off that core.
//! Invariant: a thread never gets a core that it was not allowed when it started, or by others since.

#[cfg(not(target_os = "linux"))]
pub use elsewhere::{yield_cores, Seat};
#[cfg(target_os = "linux")]
pub use linux::{yield_cores, Seat};

#[cfg(target_os = "linux")]
mod linux {
    use parking_lot::Mutex;
    use std::mem::{size_of, zeroed};
    use std::sync::atomic::{AtomicI32, Ordering};

    /// A thread of the pool.
    #[derive(Default)]
    pub struct Seat {
        /// Its number in the system, 0 while it has none.
        thread: AtomicI32,
        /// The core that it went to sleep on.
        core: AtomicI32,
        kept: Mutex<SavedMask>,
    }

    /// The core that a thread is kept off, and the sets of cores without it and with it.
    #[derive(Default)]
    struct SavedMask(Option<(usize, libc::cpu_set_t, libc::cpu_set_t)>);

    impl Seat {
        /// To be called by the thread before all else.
        pub fn take(&self) {
            // SAFETY: a system call without arguments.
            self.thread.store(unsafe { libc::gettid() }, Ordering::Relaxed);
        }

        /// To be called by the thread when it goes to sleep.
        pub fn leave(&self) {
            self.core.store(here(), Ordering::Relaxed);
        }

        /// Keeps the thread off a core, if there are others for it.
        fn avoid(&self, core: usize) {
            let thread = self.thread.load(Ordering::Relaxed);
            let mut kept = self.kept.lock();
            let Some(now) = allowed(thread) else { return };
            // What somebody else has allowed it since, holds.
            let all = match kept.0 {
                Some((_, without, all)) if same(&now, &without) => all,
                _ => now,
            };
            let mut without = all;
            // SAFETY: a core that the calling thread runs on is below the set's size.
            unsafe { libc::CPU_CLR(core, &mut without) };
            // SAFETY: counts the set's bits.
            if unsafe { libc::CPU_COUNT(&without) } == 0 {
                return;
            }
            // SAFETY: a set and its size; where the thread is gone, the call fails without effect.
            if unsafe { libc::sched_setaffinity(thread, size_of::<libc::cpu_set_t>(), &without) } == 0 {
                kept.0 = Some((core, without, all));
            }
        }
    }

    /// Sees to it that none of the threads that sleep is woken on the calling thread's core.
    pub fn yield_cores(seats: &[Seat]) {
        let core = here();
        for seat in seats.iter().filter(|seat| seat.core.load(Ordering::Relaxed) == core) {
            if let (Ok(core), true) = (usize::try_from(core), seat.thread.load(Ordering::Relaxed) != 0) {
                seat.avoid(core);
            }
        }
    }

    /// The calling thread's core; negative where the system does not tell.
    fn here() -> i32 {
        if cfg!(miri) {
            // Miri has no `sched_getcpu`.
            return -1;
        }
        // SAFETY: no arguments.
        unsafe { libc::sched_getcpu() }
    }

    /// The cores that a thread may run on; None where there are more than such a set holds.
    fn allowed(thread: i32) -> Option<libc::cpu_set_t> {
        // SAFETY: bits, for which 0 is a value.
        let mut set: libc::cpu_set_t = unsafe { zeroed() };
        // SAFETY: the call fills the set, whose size it is given.
        let code = unsafe { libc::sched_getaffinity(thread, size_of::<libc::cpu_set_t>(), &mut set) };
        (code == 0).then_some(set)
    }

    fn same(a: &libc::cpu_set_t, b: &libc::cpu_set_t) -> bool {
        // SAFETY: compares the bits.
        unsafe { libc::CPU_EQUAL(a, b) }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        fn cores(set: &libc::cpu_set_t) -> Vec<usize> {
            // SAFETY: below the set's size.
            (0..8 * size_of::<libc::cpu_set_t>()).filter(|&i| unsafe { libc::CPU_ISSET(i, set) }).collect()
        }

        #[test]
        fn a_thread_is_kept_off_one_core_among_those_it_may_have() {
            // A thread of its own, whose cores nobody else counts on.
            let work = || {
                let seat = Seat::default();
                seat.take();
                let thread = seat.thread.load(Ordering::Relaxed);
                let now = || cores(&allowed(thread).unwrap());
                let all = now();
                for &core in &all {
                    seat.avoid(core);
                    let want: Vec<usize> = all.iter().copied().filter(|&c| c != core || all.len() == 1).collect();
                    assert_eq!(now(), want);
                }
                // Somebody allows it one core only: there it stays.
                let only = *all.last().unwrap();
                // SAFETY: bits, for which 0 is a value.
                let mut one: libc::cpu_set_t = unsafe { zeroed() };
                // SAFETY: a core's number from such a set, and a set with its size.
                unsafe {
                    libc::CPU_SET(only, &mut one);
                    assert_eq!(libc::sched_setaffinity(thread, size_of::<libc::cpu_set_t>(), &one), 0);
                }
                for &core in &all {
                    seat.avoid(core);
                    assert_eq!(now(), [only]);
                }
                seat.leave();
                yield_cores(std::slice::from_ref(&seat));
                assert_eq!(now(), [only]);
            };
            std::thread::spawn(work).join().unwrap();
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod elsewhere {
    /// A thread of the pool, which the system places as it likes.
    #[derive(Default)]
    pub struct Seat {}

    impl Seat {
        /// To be called by the thread before all else. On macOS it asks for the class of work that somebody waits for: threads of
        /// none may be put on the slow cores, and the fast ones would wait for them at the end of each loop.
        pub fn take(&self) {
            #[cfg(target_os = "macos")]
            // SAFETY: changes the class of the calling thread alone; where it may not, nothing changes.
            unsafe {
                libc::pthread_set_qos_class_self_np(libc::qos_class_t::QOS_CLASS_USER_INITIATED, 0)
            };
        }
        /// Nothing to do.
        pub fn leave(&self) {}
    }

    /// Nothing to do.
    pub fn yield_cores(_: &[Seat]) {}

    #[cfg(all(test, target_os = "macos"))]
    mod tests {
        use super::Seat;

        #[test]
        fn a_thread_of_the_pool_has_the_class_user_initiated() {
            let work = || {
                Seat::default().take();
                let (mut class, mut priority) = (libc::qos_class_t::QOS_CLASS_UNSPECIFIED, 0);
                // SAFETY: the calling thread, and places for both answers.
                let status = unsafe { libc::pthread_get_qos_class_np(libc::pthread_self(), &mut class, &mut priority) };
                assert_eq!(
                    (status, class as u32, priority),
                    (0, libc::qos_class_t::QOS_CLASS_USER_INITIATED as u32, 0)
                );
            };
            std::thread::spawn(work).join().unwrap();
        }
    }
}
