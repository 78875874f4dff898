//! The one crossing from Python into the engine.
//!
//! Every call of the engine passes through here: panics become exceptions, errors are mapped, the GIL is released around
//! long work only (releasing costs more than a small op), and signals are looked at after it.

use crate::errors;
use pyo3::prelude::*;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// Elements from which a CPU op is worth releasing the GIL for.
pub const LARGE: usize = 1 << 15;

/// Runs a quick engine call with the GIL held.
#[inline]
pub fn quick<T>(py: Python<'_>, f: impl FnOnce() -> lucid::Result<T>) -> PyResult<T> {
    // Nothing of ours is left half-changed by a panic: locks are parking_lot's and do not poison, tensors are handles.
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(value)) if lucid::warnings::waiting() => crate::warn::deliver(py).map(|()| value),
        Ok(Ok(value)) => Ok(value),
        Ok(Err(e)) => Err(failed(py, &e)),
        Err(payload) => Err(errors::panicked(py, &*payload)),
    }
}

/// The exception for an error; warnings that came before it are given, and are no errors of their own.
#[cold]
fn failed(py: Python<'_>, e: &lucid::Error) -> PyErr {
    let raised = crate::autograd::take_raised().unwrap_or_else(|| errors::raise(py, e));
    if lucid::warnings::waiting() {
        let _ = crate::warn::deliver(py);
    }
    raised
}

/// Runs long work (evaluation, backward, transfers) without the GIL, then lets Python handle its signals.
pub fn long<T: Send>(py: Python<'_>, f: impl FnOnce() -> lucid::Result<T> + Send) -> PyResult<T> {
    let done = py.detach(|| catch_unwind(AssertUnwindSafe(f)));
    let value = match done {
        Ok(Ok(value)) => value,
        Ok(Err(e)) => return Err(failed(py, &e)),
        Err(payload) => return Err(errors::panicked(py, &*payload)),
    };
    if lucid::warnings::waiting() {
        crate::warn::deliver(py)?;
    }
    py.check_signals()?;
    Ok(value)
}

/// Runs an op: without the GIL where `weight` elements on the CPU make it long.
#[inline]
pub fn op<T: Send>(py: Python<'_>, weight: usize, f: impl FnOnce() -> lucid::Result<T> + Send) -> PyResult<T> {
    if weight < LARGE {
        quick(py, f)
    } else {
        long(py, f)
    }
}
