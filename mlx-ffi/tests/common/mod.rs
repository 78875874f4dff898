//! What the tests share that start themselves again.
#![allow(clippy::unwrap_used)] // Helpers of tests.

use std::process::Command;

/// This test program once more, by what `LUCID_TEST_RUNNER` says where an emulator runs the first (tools/cross/arm64.py).
pub fn again() -> Command {
    let program = std::env::current_exe().unwrap();
    let runner = std::env::var("LUCID_TEST_RUNNER").unwrap_or_default();
    let mut words = runner.split_whitespace();
    match words.next() {
        None => Command::new(program),
        Some(emulator) => {
            let mut command = Command::new(emulator);
            command.args(words).arg(program);
            command
        }
    }
}
