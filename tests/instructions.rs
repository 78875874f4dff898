//! How many instructions a call takes before there is any work, counted by callgrind: what a clock on a busy machine hides.
//!
//! The test runs itself again under valgrind, which counts inside one function of many calls. Release builds on x86-64 Linux only; without valgrind it says so and passes.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

#[allow(dead_code)]
#[path = "../examples/dispatch.rs"]
mod dispatch;

use lucid::Device;
use std::process::Command;

const CALLS: u64 = 1000;
/// What may be added by another compiler, allocator or release of MLX.
const TOLERANCE: f64 = 1.2;

/// Instructions per call, its result dropped, with inputs that want gradients or not. When a change makes one smaller,
/// write the new number here.
const RECORDED: &[(&str, Device, bool, u64)] = &[
    ("add", Device::Gpu, false, 4950),
    ("relu", Device::Gpu, false, 5250),
    ("matmul", Device::Gpu, false, 4900),
    ("linear", Device::Gpu, false, 6000),
    ("reshape", Device::Gpu, false, 2550),
    ("add", Device::Cpu, false, 4600),
    ("sum", Device::Cpu, false, 3600),
    ("transpose", Device::Cpu, false, 1750),
    ("add", Device::Gpu, true, 8850),
    ("linear", Device::Gpu, true, 12950),
    ("add", Device::Cpu, true, 8400),
];

/// What callgrind knows by its name: the calls and nothing else.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn lucid_counted_calls(op: &dispatch::Op, inputs: &dispatch::Inputs) {
    for _ in 0..CALLS {
        (op.ours)(inputs).unwrap();
    }
}

/// Makes the calls that the environment asks for, if any.
#[test]
fn counted() {
    let Ok(asked) = std::env::var("LUCID_COUNT") else { return };
    let [name, device, grad] = asked.split(' ').collect::<Vec<_>>().try_into().unwrap();
    let device = if device == "gpu" { Device::Gpu } else { Device::Cpu };
    let op = dispatch::OPS.iter().find(|op| op.name == name).unwrap();
    lucid_counted_calls(op, &dispatch::inputs(device, grad == "true").unwrap());
}

/// Instructions of one call.
fn count(name: &str, device: Device, grad: bool) -> u64 {
    let place = if device == Device::Gpu { "gpu" } else { "cpu" };
    let done = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .args(["--collect-atstart=no", "--toggle-collect=lucid_counted_calls"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "counted", "--test-threads=1"])
        .env("LUCID_COUNT", format!("{name} {place} {grad}"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    let total = said.lines().find_map(|line| line.split("Collected :").nth(1));
    let total: u64 = total.unwrap_or_else(|| panic!("{said}")).trim().parse().unwrap();
    total / CALLS
}

#[test]
fn a_call_takes_no_more_instructions_than_recorded() {
    if cfg!(debug_assertions) {
        eprintln!("not counted: instructions are recorded for release builds");
        return;
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("not counted: there is no valgrind");
        return;
    }
    let mut over = Vec::new();
    for &(name, device, grad, recorded) in RECORDED {
        let found = count(name, device, grad);
        assert!(found > 100, "{name} on {device}: callgrind counted {found} instructions, which is too few to be true");
        let line = format!("{name} on {device}, gradient {grad}: {found} instructions, {recorded} recorded");
        println!("{line}");
        if found as f64 > recorded as f64 * TOLERANCE {
            over.push(line);
        }
    }
    assert!(over.is_empty(), "{over:#?}");
}
