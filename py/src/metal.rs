//! `lucid.metal.run_kernel` and `lucid.cuda.run_kernel`: kernels that the user writes.
//!
//! Depends on the engine's `metal`. Invariant: none; what a kernel does is its author's responsibility.
#![allow(unsafe_code)]

use crate::args::{tensors_of, At};
use crate::dtype::PyDType;
use crate::engine_call;
use pyo3::prelude::*;

/// One launch of a kernel in Metal's language, or with `cuda` in CUDA's; see `lucid.metal.run_kernel`.
#[pyfunction]
#[pyo3(signature = (source, name, inputs, shape, dtype, grid, group, cuda=false))]
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
    cuda: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let language = if cuda { lucid::metal::Language::Cuda } else { lucid::metal::Language::Metal };
    let inputs = tensors_of(At { op: "run_kernel", arg: "inputs" }, inputs.as_borrowed())?;
    let kernel = lucid::metal::Kernel { language, source, name, shape: &shape, dtype: dtype.get().0, grid, group };
    let inputs: Vec<_> = inputs.iter().collect();
    // SAFETY: no more than Python's `ctypes` can promise: the kernel is the user's, and the function's documentation says so.
    let made = engine_call::quick(py, || unsafe { lucid::metal::run_kernel(&kernel, &inputs) })?;
    crate::tensor::wrap(py, made)
}
