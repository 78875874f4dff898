//! Processes that end with work pending, each a child of the test's own that runs one of its functions.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests.

mod common;

use std::process::{ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use mlx_ffi::{ops, Array, Dtype, Error};

const CHILD: &str = "LUCID_TEST_EXIT_CHILD";

/// Runs the test of this name in a process of its own, in which [`child`] is true.
fn run(name: &str) -> ExitStatus {
    // Its output is dropped: a child that is meant to panic would be read as a test that failed.
    let mut child = common::again()
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, name)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    for _ in 0..600 {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        thread::sleep(Duration::from_millis(100));
    }
    child.kill().unwrap();
    panic!("{name} hangs");
}

fn child(name: &str) -> bool {
    std::env::var(CHILD).is_ok_and(|v| v == name)
}

/// Products that take a while.
fn work() -> Array {
    let mut x = ops::full(&[160, 160], &Array::scalar(1e-3f32).unwrap(), Dtype::Float32).unwrap();
    for _ in 0..30 {
        x = ops::matmul(&x, &x).unwrap();
    }
    x
}

#[test]
fn work_is_pending() {
    if child("work_is_pending") {
        work().async_eval().unwrap();
        std::process::exit(3);
    }
    assert_eq!(run("work_is_pending").code(), Some(3));
}

#[test]
fn another_thread_evaluates() {
    if child("another_thread_evaluates") {
        for _ in 0..2 {
            thread::spawn(|| while work().async_eval().is_ok() {});
        }
        thread::sleep(Duration::from_millis(50));
        std::process::exit(4);
    }
    assert_eq!(run("another_thread_evaluates").code(), Some(4));
}

#[test]
fn evaluations_are_refused_while_the_process_exits() {
    extern "C" fn last() {
        let refused = work().async_eval() == Err(Error::Exiting) && work().eval() == Err(Error::Exiting);
        // SAFETY: ends the process, which is ending.
        unsafe { libc::_exit(if refused { 5 } else { 6 }) };
    }
    if child("evaluations_are_refused_while_the_process_exits") {
        // Before MLX is used, so that it runs after what MLX's first use registers.
        // SAFETY: a function that does not unwind.
        unsafe { libc::atexit(last) };
        work().async_eval().unwrap();
        std::process::exit(0);
    }
    assert_eq!(run("evaluations_are_refused_while_the_process_exits").code(), Some(5));
}

#[test]
fn a_forked_child_waits_for_nothing() {
    if child("a_forked_child_waits_for_nothing") {
        work().async_eval().unwrap();
        // SAFETY: the child ends at once.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: as above, by way of what was registered.
            unsafe { libc::exit(7) };
        }
        let mut status = 0;
        // SAFETY: a valid out-parameter.
        assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
        std::process::exit(libc::WEXITSTATUS(status) + 1);
    }
    assert_eq!(run("a_forked_child_waits_for_nothing").code(), Some(8));
}

#[test]
fn a_panic_ends_the_process() {
    if child("a_panic_ends_the_process") {
        work().async_eval().unwrap();
        panic!("meant");
    }
    assert_eq!(run("a_panic_ends_the_process").code(), Some(101));
}
