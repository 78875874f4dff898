//! `lucid._C`: the engine as a Python extension module.
//!
//! `args`, `cross` and `errors` are the crossing: conversion, call, exceptions. `ops` makes functions and methods from the
//! op table; the rest is what has no row. `overrides` asks subclasses before all of them. `unsafe` is in `dlpack`, `blas` and
//! `overrides::wrap` alone: PyO3 does what else needs it.

#![recursion_limit = "512"]

mod aliases;
mod args;
mod autocast;
mod autograd;
mod batching;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod blas;
mod create;
mod device;
mod distributed;
mod dlpack;
mod dtype;
mod engine_call;
mod errors;
mod format;
mod functions;
mod graph;
mod graph_file;
mod kernel_emulator;
mod lightning;
mod llm;
mod llm_decoder;
mod llm_serve;
mod metal;
mod module_attributes;
mod ops;
mod optim;
mod out;
mod overloads;
mod overrides;
mod random;
mod results;
mod sampling;
mod schema;
mod shared;
mod sparse;
mod tensor;
mod warn;
mod watches;

use pyo3::prelude::*;
use pyo3::types::PyList;

#[pymodule(name = "_C", gil_used = true)]
fn extension(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    lucid::warnings::keep();
    lucid::prepare_blas();
    errors::register(m)?;
    dtype::register(m)?;
    format::register(m)?;
    device::register(m)?;
    tensor::register(m)?;
    random::register_class(m)?;
    ops::register(m)?;
    create::register(m)?;
    functions::register(m)?;
    overloads::register(m)?;
    sampling::register(m)?;
    sparse::register(m)?;
    aliases::register(m)?;
    // What comes after it is asked of no class: settings, and what only Lucid's own Python code calls.
    overrides::register(m)?;
    functions::register_settings(m)?;
    random::register(m)?;
    module_attributes::register(m)?;
    autograd::register(m)?;
    autocast::register(m)?;
    batching::register(m)?;
    dlpack::register(m)?;
    lightning::register(m)?;
    distributed::register(m)?;
    m.add_function(wrap_pyfunction!(metal::_metal_run_kernel, m)?)?;
    m.add_function(wrap_pyfunction!(kernel_emulator::_emulate_kernels, m)?)?;
    m.add_function(wrap_pyfunction!(kernel_emulator::_kernel_names, m)?)?;
    m.add_function(wrap_pyfunction!(shared::_from_shared, m)?)?;
    optim::register(m)?;
    graph::register(m)?;
    graph_file::register(m)?;
    watches::register(m)?;
    schema::register(m)?;
    llm::register(m)?;
    llm_decoder::register(m)?;
    llm_serve::register(m)?;
    functions::register_exit(m)?;
    publish(m)
}

/// Sets `__all__` of the module to what `lucid` itself shows.
fn publish(m: &Bound<'_, PyModule>) -> PyResult<()> {
    // Under `lucid.errors` only, or for `lucid.optim`, `lucid.nn` and tests.
    let mut hidden = vec!["primitives", "lazy_limits", "set_lazy_limits", "set_lowering", "set_hosting"];
    hidden.extend(["IndexError", "ValueError", "TypeError", "OverflowError", "RuntimeError", "NotImplementedError"]);
    hidden.extend(["FileNotFoundError", "DistBackendError", "DisableTorchFunction", "DisableTorchFunctionSubclass"]);
    hidden.extend(lucid::ops::schemas().filter(|s| !schema::is_top(s)).map(|s| s.name.trim_start_matches("r#")));
    let names: Vec<String> = m.dict().keys().iter().map(|k| k.extract()).collect::<PyResult<_>>()?;
    let public = names.into_iter().filter(|n| !n.starts_with('_') && !hidden.contains(&n.as_str()));
    m.setattr("__all__", PyList::new(m.py(), public)?)
}
