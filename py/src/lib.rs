//! `lucid._C`: the engine as a Python extension module.
//!
//! `args`, `cross` and `errors` are the crossing: conversion, call, exceptions. `ops` makes functions and methods from the
//! op table; the rest is what has no row. No `unsafe` anywhere: PyO3 does what needs it.

mod aliases;
mod args;
mod autograd;
mod create;
mod cross;
mod device;
mod dtype;
mod errors;
mod functions;
mod ops;
mod random;
mod results;
mod schema;
mod tensor;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use schema::Place;

#[pymodule(gil_used = true)]
#[allow(non_snake_case)]
fn _C(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    errors::register(m)?;
    dtype::register(m)?;
    device::register(m)?;
    tensor::register(m)?;
    random::register(m)?;
    ops::register(m)?;
    create::register(m)?;
    autograd::register(m)?;
    functions::register(m)?;
    schema::register(m)?;
    aliases::register(m)?;
    publish(m)
}

/// Sets `__all__` of the module to what `lucid` itself shows, and makes the submodule `functional` of what belongs to
/// `lucid.nn.functional`.
fn publish(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = m.py();
    let functional = PyModule::new(py, "lucid._C.functional")?;
    let mut hidden: Vec<&str> = vec!["IndexError", "ValueError", "TypeError", "OverflowError", "RuntimeError", "NotImplementedError", "FileNotFoundError"];
    hidden.extend(["sgd_step", "adam_step"]);
    for s in lucid::ops::schemas() {
        let name = s.name.trim_start_matches("r#");
        match schema::place(s) {
            Place::Top => continue,
            Place::Functional => functional.add(name, m.getattr(name)?)?,
            Place::Internal => {}
        }
        hidden.push(name);
    }
    let public: Vec<String> = m.dict().keys().iter().map(|k| k.extract()).collect::<PyResult<_>>()?;
    let public = public.into_iter().filter(|n| !n.starts_with('_') && !hidden.contains(&n.as_str()));
    m.setattr("__all__", PyList::new(py, public)?)?;
    m.setattr("functional", &functional)?;
    let modules = py.import("sys")?.getattr("modules")?.cast_into::<PyDict>()?;
    modules.set_item("lucid._C.functional", &functional)
}
