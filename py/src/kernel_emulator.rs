//! The engine's kernels seen from tests: their names, and an emulator in MLX's place.

use crate::errors;
use lucid::kernel_emulator::{Emulator, Language, KERNEL_NAMES};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::Arc;

/// The names of all kernels that the engine writes.
#[pyfunction]
pub fn _kernel_names() -> Vec<&'static str> {
    KERNEL_NAMES.to_vec()
}

/// Hands custom kernels, written in this language (`"metal"` or `"cuda"`), to a function instead of MLX; `None` ends it. The
/// function takes the kernel's name, header and body, its inputs (name, dtype, shape, bytes), its outputs (name, dtype,
/// shape), the grid and the group, and gives the bytes of each output.
#[pyfunction]
#[pyo3(signature = (language, run))]
pub fn _emulate_kernels(py: Python<'_>, language: Option<&str>, run: Option<Py<PyAny>>) -> PyResult<()> {
    let language = match language {
        None => None,
        Some("metal") => Some(Language::Metal),
        Some("cuda") => Some(Language::Cuda),
        Some(other) => return Err(errors::value_error(py, format!("_emulate_kernels: no language {other:?}"))),
    };
    lucid::kernel_emulator::set_emulator(language.zip(run).map(|(language, run)| (language, emulator(run))));
    Ok(())
}

/// The Python function as the engine takes it.
fn emulator(run: Py<PyAny>) -> Emulator {
    Arc::new(move |launch| {
        let called = |py: Python<'_>| -> PyResult<Vec<Vec<u8>>> {
            let inputs: Vec<_> =
                launch.inputs.iter().map(|x| (x.name, x.dtype, &x.shape, PyBytes::new(py, &x.bytes))).collect();
            let outputs: Vec<_> = launch.outputs.iter().map(|x| (x.name, x.dtype, &x.shape)).collect();
            let given = (launch.name, launch.header, launch.body, inputs, outputs, launch.grid, launch.thread_group);
            run.call1(py, given)?.extract(py)
        };
        Python::attach(called).map_err(|e| e.to_string())
    })
}
