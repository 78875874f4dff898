//! `lucid.metal.run_kernel`: kernels that the user writes.
//!
//! Depends on the engine's `metal`. Invariant: none; what a kernel does is its author's responsibility.
#![allow(unsafe_code)]

use crate::args::{tensors_of, At};
use crate::dtype::PyDType;
use crate::engine_call;
use pyo3::prelude::*;

/// One launch of a kernel in Metal's language; see `lucid.metal.run_kernel`.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
pub fn _metal_run_kernel<'py>(
    py: Python<'py>,
    source: &str,
    name: &str,
    inputs: &Bound<'py, PyAny>,
    shape: Vec<usize>,
    dtype: &Bound<'py, PyDType>,
    grid: Option<[i32; 3]>,
    group: Option<[i32; 3]>,
) -> PyResult<Bound<'py, PyAny>> {
    let inputs = tensors_of(At { op: "run_kernel", arg: "inputs" }, inputs.as_borrowed())?;
    let kernel = lucid::metal::Kernel { source, name, shape: &shape, dtype: dtype.get().0, grid, group };
    let inputs: Vec<_> = inputs.iter().collect();
    // SAFETY: no more than Python's `ctypes` can promise: the kernel is the user's, and the function's documentation says so.
    let made = engine_call::quick(py, || unsafe { lucid::metal::run_kernel(&kernel, &inputs) })?;
    crate::tensor::wrap(py, made)
}
