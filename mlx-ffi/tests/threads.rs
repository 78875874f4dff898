//! Threads, forks, and what must not grow: any thread may build, evaluate and drop any array.

// A test may panic, and its lengths are its own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

mod common;

use std::sync::{Arc, Barrier};
use std::thread;

use mlx_ffi::{memory, ops, transforms, Array, Dtype, Error};

fn chain(seed: f32, length: usize) -> Array {
    let one = Array::scalar(seed).unwrap();
    let mut x = ops::ones(&[16, 16], Dtype::Float32).unwrap();
    for _ in 0..length {
        x = ops::add(&x, &one).unwrap();
    }
    x
}

#[test]
fn eight_threads_evaluate_one_graph() {
    for _ in 0..50 {
        let shared = chain(1.0, 50);
        let barrier = Arc::new(Barrier::new(8));
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let (x, barrier) = (shared.clone(), Arc::clone(&barrier));
                thread::spawn(move || {
                    barrier.wait();
                    assert_eq!(x.to_vec::<f32>().unwrap(), [51.0; 256]);
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
    }
}

#[test]
fn eight_threads_evaluate_many_graphs() {
    let base = chain(1.0, 20);
    let threads: Vec<_> = (0..8)
        .map(|n| {
            let base = base.clone();
            thread::spawn(move || {
                for round in 0..100 {
                    let x = ops::add(&base, &chain(n as f32, 10)).unwrap();
                    // Several outputs of one primitive, some dropped while others evaluate.
                    let parts = ops::split(&x, 4, 0).unwrap();
                    let sum = ops::sum(&parts[round % 4], false).unwrap();
                    drop(parts);
                    sum.async_eval().unwrap();
                    assert_eq!(sum.item::<f32>().unwrap(), 64.0 * (22.0 + 10.0 * n as f32));
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
}

#[test]
fn siblings_are_dropped_and_evaluated_on_different_threads() {
    for _ in 0..200 {
        let parts = ops::split(&chain(1.0, 5), 8, 0).unwrap();
        let threads: Vec<_> = parts
            .into_iter()
            .enumerate()
            .map(|(i, part)| {
                thread::spawn(move || {
                    if i % 2 == 0 {
                        assert_eq!(part.to_vec::<f32>().unwrap(), [6.0; 32]);
                    }
                    drop(part);
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
    }
}

#[test]
fn an_array_evaluates_on_another_thread_than_its_own() {
    let x = thread::spawn(|| chain(2.0, 3)).join().unwrap();
    assert_eq!(thread::spawn(move || x.to_vec::<f32>().unwrap()[0]).join().unwrap(), 7.0);
}

#[cfg(target_os = "linux")]
#[test]
fn evaluating_threads_leave_no_threads_behind() {
    // Alone in a process: the harness's own threads come and go.
    if std::env::var_os("LUCID_TEST_LEAK").is_none() {
        let status = common::again()
            .args(["--exact", "evaluating_threads_leave_no_threads_behind", "--test-threads=1"])
            .env("LUCID_TEST_LEAK", "1")
            .status()
            .unwrap();
        assert!(status.success());
        return;
    }
    let count = || -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|l| l.starts_with("Threads:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    let work = || thread::spawn(|| assert_eq!(chain(1.0, 5).to_vec::<f32>().unwrap()[0], 6.0)).join().unwrap();
    work();
    let before = count();
    (0..50).for_each(|_| work());
    assert!(count() <= before + 1, "{before} threads became {}", count());
}

#[test]
fn dropped_arrays_free_their_memory() {
    if std::env::var_os("LUCID_TEST_MEMORY").is_none() {
        let status = common::again()
            .args(["--exact", "dropped_arrays_free_their_memory", "--test-threads=1"])
            .env("LUCID_TEST_MEMORY", "1")
            .status()
            .unwrap();
        assert!(status.success());
        return;
    }
    let work = || {
        let x = chain(1.0, 20);
        let parts = ops::split(&x, 2, 0).unwrap();
        transforms::eval(&[&parts[0], &x]).unwrap();
        assert!(ops::add(&x, &ops::ones(&[3], Dtype::Float32).unwrap()).is_err());
    };
    work();
    mlx_ffi::synchronize().unwrap();
    let before = memory::active().unwrap();
    (0..200).for_each(|_| work());
    mlx_ffi::synchronize().unwrap();
    assert_eq!(memory::active().unwrap(), before);
    memory::clear_cache().unwrap();
    assert_eq!(memory::cache().unwrap(), 0);
    memory::reset_peak().unwrap();
    assert!(memory::peak().unwrap() <= before.max(1 << 20));
}

#[test]
fn a_long_chain_is_built_evaluated_and_dropped() {
    let x = chain(1.0, 200_000);
    x.eval().unwrap();
    drop(x);
    let unused = chain(1.0, 200_000);
    drop(unused);
}

#[test]
fn what_is_never_evaluated_ends_whatever_hangs_on_it() {
    let base = chain(1.0, 3);
    // Each node twice an input of the next, each beside a part that lives on, and each beside pieces of one node.
    let mut doubled = base.clone();
    let mut kept = Vec::new();
    let mut cut = base.clone();
    for _ in 0..20_000 {
        doubled = ops::add(&doubled, &doubled).unwrap();
        let part = ops::add(&base, &base).unwrap();
        kept.push(part.clone());
        let pieces = ops::split(&ops::add(&cut, &part).unwrap(), 2, 0).unwrap();
        cut = ops::concatenate_axis(&[&pieces[1], &pieces[0]], 0).unwrap();
    }
    drop(doubled);
    drop(cut);
    assert_eq!(kept[19_999].to_vec::<f32>().unwrap(), [8.0; 256]);
    drop(kept);
    // Threads that release one chain's ends at once.
    let ends: Vec<Array> = (0..8).map(|_| chain(1.0, 10)).collect();
    for _ in 0..200 {
        let shared = chain(2.0, 100);
        let barrier = Arc::new(Barrier::new(8));
        let threads: Vec<_> = ends
            .iter()
            .map(|end| {
                let (mine, barrier) = (ops::add(&shared, end).unwrap(), Arc::clone(&barrier));
                thread::spawn(move || {
                    barrier.wait();
                    drop(mine);
                })
            })
            .collect();
        drop(shared);
        threads.into_iter().for_each(|t| t.join().unwrap());
    }
    assert_eq!(base.to_vec::<f32>().unwrap(), [4.0; 256]);
}

#[cfg(unix)]
#[test]
fn a_forked_child_gets_an_error_instead_of_hanging() {
    // Alone in a process: forking a test harness with other tests running would be unsound by itself.
    if std::env::var_os("LUCID_TEST_FORK").is_none() {
        let status = common::again()
            .args(["--exact", "a_forked_child_gets_an_error_instead_of_hanging", "--test-threads=1"])
            .env("LUCID_TEST_FORK", "1")
            .status()
            .unwrap();
        assert!(status.success());
        return;
    }
    let x = chain(1.0, 3);
    x.eval().unwrap();
    let y = chain(1.0, 3);
    // SAFETY: the child only calls into this crate and leaves with `_exit`; an alarm ends it if it hangs.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: plain system calls.
        unsafe { libc::alarm(20) };
        let forked = |r: Result<(), Error>| matches!(r, Err(Error::ForkedProcess));
        let fine = forked(y.eval())
            && forked(y.async_eval())
            && forked(y.read(|_| ()))
            && forked(x.read(|_| ()))
            && forked(transforms::eval(&[&x, &y]))
            && forked(mlx_ffi::synchronize());
        drop(y);
        // SAFETY: leaves the child without running the parent's destructors.
        unsafe { libc::_exit(if fine { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    assert_eq!(status, 0, "the child failed or hung");
    assert_eq!(y.to_vec::<f32>().unwrap()[0], 4.0);
}
