//! What the integration tests share.
#![allow(dead_code)]

use lucid::{Device, Result, Tensor};
use std::process::Command;

/// Both devices: every test of semantics runs on each.
pub const DEVICES: [Device; 2] = [Device::Cpu, Device::Gpu];

/// A float32 tensor of the given elements.
pub fn tensor(data: &[f32], shape: &[usize], device: Device) -> Result<Tensor> {
    Tensor::from_slice(data, shape, device)
}

/// 0, 1, 2, … as float32.
pub fn counting(shape: &[usize], device: Device) -> Result<Tensor> {
    let n: usize = shape.iter().product();
    tensor(&(0..n).map(|i| i as f32).collect::<Vec<_>>(), shape, device)
}

/// The elements as float32.
pub fn values(t: &Tensor) -> Result<Vec<f32>> {
    t.cast(lucid::DType::F32)?.to_vec::<f32>()
}

/// Does an emulator run the programs, ten times as slow as the machine (tools/cross/arm64.py)?
pub fn is_emulated() -> bool {
    std::env::var_os("LUCID_TEST_RUNNER").is_some()
}

/// This test program once more, by what `LUCID_TEST_RUNNER` says where an emulator runs the first.
#[allow(clippy::unwrap_used)] // A helper of tests.
pub fn again() -> Command {
    let program = std::env::current_exe().unwrap();
    let runner = std::env::var("LUCID_TEST_RUNNER").unwrap_or_default();
    let mut words = runner.split_whitespace().map(std::ffi::OsString::from).chain([program.into()]);
    let mut command = Command::new(words.next().unwrap());
    command.args(words);
    command
}

/// The process's resident memory in bytes, where the system tells it.
pub fn resident_bytes() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse::<usize>().ok().map(|kb| kb * 1024)
}
