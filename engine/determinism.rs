//! The switch that refuses ops which may give other numbers when they run again.
//!
//! The op table says which these are. On the CPU all ops give the same numbers, so only the GPU device asks.

use crate::ops::schema::{Determinism, Schema};
use crate::{Device, Error, Result};
use std::sync::atomic::{AtomicU8, Ordering};

/// What happens when such an op is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It runs.
    Free,
    /// It runs, after a warning.
    Warn,
    /// It is an error.
    Refuse,
}

static MODE: AtomicU8 = AtomicU8::new(0);

/// Sets what happens.
pub fn set_mode(mode: Mode) {
    MODE.store(mode as u8, Ordering::Relaxed);
}

/// What happens now.
pub fn mode() -> Mode {
    match MODE.load(Ordering::Relaxed) {
        0 => Mode::Free,
        1 => Mode::Warn,
        _ => Mode::Refuse,
    }
}

/// Refuses the op, or warns, where that is wanted.
#[inline]
pub(crate) fn check(schema: impl FnOnce() -> &'static Schema, device: Device) -> Result<()> {
    match MODE.load(Ordering::Relaxed) {
        0 => Ok(()),
        _ => look(schema(), device),
    }
}

#[cold]
fn look(schema: &'static Schema, device: Device) -> Result<()> {
    match schema.determinism {
        Determinism::No(why) if device == Device::Gpu => refuse(schema.name, why),
        _ => Ok(()),
    }
}

#[cold]
fn refuse(op: &'static str, why: &str) -> Result<()> {
    let text = format!(
        "{op} does not have a deterministic implementation on this device ({why}), but you set \
         'use_deterministic_algorithms(True)'"
    );
    if mode() == Mode::Refuse {
        return Err(Error::runtime(op, text));
    }
    crate::warnings::warn(text);
    Ok(())
}
