//! Warnings that Python's `warnings` gives, at the line of the user's program that led to them.

use pyo3::exceptions::PyUserWarning;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::type_object::PyTypeInfo;
use std::sync::atomic::AtomicBool;

/// Gives a warning of a category.
///
/// # Errors
/// The warning, where a filter makes it one.
#[cold]
pub fn of<C: PyTypeInfo>(py: Python<'_>, text: &str) -> PyResult<()> {
    static WARN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    WARN.import(py, "lucid._warnings", "warn")?.call1((text, py.get_type::<C>())).map(drop)
}

/// Gives a warning for users.
///
/// # Errors
/// As [`of`].
#[cold]
pub fn user(py: Python<'_>, text: &str) -> PyResult<()> {
    of::<PyUserWarning>(py, text)
}

/// Gives a warning for users once in a process; `given` says whether it was.
///
/// # Errors
/// As [`of`].
pub fn once(py: Python<'_>, given: &AtomicBool, text: &str) -> PyResult<()> {
    if lucid::warnings::due(given) {
        user(py, text)?;
    }
    Ok(())
}

/// Gives the warnings of the engine's call that has just ended.
///
/// # Errors
/// As [`of`]: the first that is one; what is behind it is not given.
#[cold]
#[inline(never)]
pub fn deliver(py: Python<'_>) -> PyResult<()> {
    lucid::warnings::take().iter().try_for_each(|text| user(py, text))
}
