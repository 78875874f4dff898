//! Tensors that another process lent.
//!
//! Depends on the engine's `interop`. Invariant: none; who writes when is the care of both processes.
#![allow(unsafe_code)]

use crate::args::{kinds, required, Arg, At};
use crate::engine_call;
use crate::tensor::wrap;
use lucid::interop::Handle;
use lucid::shape::Layout;
use lucid::Tensor;
use pyo3::prelude::*;

/// The tensor that another process lent, from what `_lend` gave there.
#[pyfunction]
pub fn _from_shared<'py>(
    py: Python<'py>,
    name: String,
    storage_numel: usize,
    offset: usize,
    shape: Vec<usize>,
    strides: Vec<usize>,
    dtype: Arg<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let dtype = required::<kinds::Dtype>(py, At { op: "from_shared", arg: "dtype" }, dtype)?;
    let layout = Layout { shape: shape.into(), strides: strides.into(), offset };
    let handle = Handle { name, dtype, storage_numel, layout };
    // SAFETY: the handle came from `_lend` of a process of the same program, whose tensors keep their sizes; that ops of one process
    // and writes of another are kept apart is the program's care, as the documentation of `share_memory_` says.
    wrap(py, engine_call::quick(py, || unsafe { Tensor::from_shared(&handle) })?)
}
