//! How many instructions a call takes before there is any work, counted by callgrind: what a clock on a busy machine hides.
//!
//! The test runs itself again under valgrind, which counts inside one function of many calls. Release builds on x86-64 Linux only; without valgrind it says so and passes.

// A test may panic, and its lengths are its own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

#[allow(dead_code)]
#[path = "../examples/dispatch.rs"]
mod dispatch;

use lucid::{Device, Result, Tensor};
use std::process::Command;

const CALLS: u64 = 1000;
/// What may be added by another compiler, allocator or release of MLX.
const TOLERANCE: f64 = 1.2;

/// Instructions per call, its result dropped, with inputs that want gradients or not. When a change makes one smaller,
/// write the new number here.
const RECORDED: &[(&str, Device, bool, u64)] = &[
    ("add", Device::Gpu, false, 3600),
    ("relu", Device::Gpu, false, 3660),
    ("matmul", Device::Gpu, false, 3460),
    ("linear", Device::Gpu, false, 4650),
    ("reshape", Device::Gpu, false, 2420),
    ("sum", Device::Gpu, false, 4620),
    ("add", Device::Cpu, false, 4200),
    ("sum", Device::Cpu, false, 2740),
    ("transpose", Device::Cpu, false, 1750),
    ("add", Device::Gpu, true, 6530),
    ("linear", Device::Gpu, true, 10120),
    ("add", Device::Cpu, true, 7150),
];

/// A loop over two operands, and what it is called with.
type Loop = fn(&Tensor, &Tensor) -> Result<Tensor>;

/// Loops over `ROWS` rows of `WIDTH` elements and one such row, with the most instructions that an element may take. A kernel that
/// is not compiled for the instruction set's vectors takes four times as many and more.
const LOOPS: &[(&str, Loop, u64)] = &[
    ("add row", |x, row| x + row, 2),
    ("divide by row", |x, row| x / row, 2),
    ("pow of row", |x, row| x.pow(row), 50),
];
const ROWS: usize = 64;
const WIDTH: usize = 256;

/// What callgrind knows by its name: the calls and nothing else.
#[unsafe(no_mangle)]
#[inline(never)]
fn lucid_counted_calls(calls: u64, call: &dyn Fn() -> Result<Tensor>) {
    for _ in 0..calls {
        call().unwrap();
    }
}

/// Makes the calls that the environment asks for, if any.
#[test]
fn counted() {
    let Ok(asked) = std::env::var("LUCID_COUNT") else { return };
    if let Some((_, go, _)) = LOOPS.iter().find(|(name, ..)| *name == asked) {
        let row: [f32; WIDTH] = std::array::from_fn(|i| 1.0 + i as f32 / 256.0);
        let (x, row) = (lucid::tensor([row; ROWS]).unwrap(), lucid::tensor(row).unwrap());
        return lucid_counted_calls(1, &|| go(&x, &row));
    }
    let [name, device, grad] = asked.split(' ').collect::<Vec<_>>().try_into().unwrap();
    let device = if device == "gpu" { Device::Gpu } else { Device::Cpu };
    let op = dispatch::OPS.iter().find(|op| op.name == name).unwrap();
    let inputs = dispatch::inputs(device, grad == "true").unwrap();
    lucid_counted_calls(CALLS, &|| (op.ours)(&inputs));
}

/// Instructions of what is asked for.
fn count(asked: &str) -> u64 {
    let done = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .args(["--collect-atstart=no", "--toggle-collect=lucid_counted_calls"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "counted", "--test-threads=1"])
        .env("LUCID_COUNT", asked)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    let total = said.lines().find_map(|line| line.split("Collected :").nth(1));
    total.unwrap_or_else(|| panic!("{said}")).trim().parse().unwrap()
}

/// Whether instructions can be counted; says why not.
fn can_count() -> bool {
    if cfg!(debug_assertions) {
        eprintln!("not counted: instructions are recorded for release builds");
        return false;
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("not counted: there is no valgrind");
        return false;
    }
    true
}

#[test]
fn loops_are_compiled_for_vectors() {
    if !can_count() || !std::is_x86_feature_detected!("avx2") {
        return;
    }
    for (name, _, most) in LOOPS {
        let found = count(name) / (ROWS * WIDTH) as u64;
        println!("{name}: {found} instructions for an element, {most} at most");
        assert!(found <= *most, "{name} takes {found} instructions for an element, {most} at most");
    }
}

#[test]
fn a_call_takes_no_more_instructions_than_recorded() {
    if !can_count() {
        return;
    }
    let mut over = Vec::new();
    for &(name, device, grad, recorded) in RECORDED {
        let place = if device == Device::Gpu { "gpu" } else { "cpu" };
        let found = count(&format!("{name} {place} {grad}")) / CALLS;
        assert!(found > 100, "{name} on {device}: callgrind counted {found} instructions, which is too few to be true");
        let line = format!("{name} on {device}, gradient {grad}: {found} instructions, {recorded} recorded");
        println!("{line}");
        if found as f64 > recorded as f64 * TOLERANCE {
            over.push(line);
        }
    }
    assert!(over.is_empty(), "{over:#?}");
}
