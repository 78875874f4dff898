//! Autocast's state and the unscaling of gradients, for `lucid.amp`.

use crate::args::{tensors_of, At};
use crate::device::device_of;
use crate::dtype::{dtype_object, dtype_of, PyDType};
use crate::tensor::{wrap, PyTensor};
use crate::{engine_call, errors};
use lucid::{autocast, Device};
use pyo3::prelude::*;

fn device(obj: &Bound<'_, PyAny>) -> PyResult<Device> {
    device_of(obj)?.ok_or_else(|| errors::type_error(obj.py(), "autocast: expected a device type".to_string()))
}

/// Is autocast on for the device, on this thread?
#[pyfunction]
fn _autocast_enabled(device_type: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(autocast::is_enabled(device(device_type)?))
}

/// Turns autocast on or off for the device.
#[pyfunction]
fn _set_autocast_enabled(device_type: &Bound<'_, PyAny>, enabled: bool) -> PyResult<()> {
    autocast::set_enabled(device(device_type)?, enabled);
    Ok(())
}

/// The device's low-precision dtype.
#[pyfunction]
fn _autocast_dtype(device_type: &Bound<'_, PyAny>) -> PyResult<&'static Py<PyDType>> {
    dtype_object(device_type.py(), autocast::dtype(device(device_type)?))
}

/// Sets the device's low-precision dtype.
#[pyfunction]
fn _set_autocast_dtype(device_type: &Bound<'_, PyAny>, dtype: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = dtype.py();
    let Some(dtype) = dtype_of(dtype) else {
        return Err(errors::type_error(py, "autocast: dtype must be a lucid.dtype".to_string()));
    };
    let device = device(device_type)?;
    engine_call::quick(py, || autocast::set_dtype(device, dtype))
}

/// Are casts of leaves kept until the outermost block ends?
#[pyfunction]
fn _autocast_cache_enabled() -> bool {
    autocast::is_cache_enabled()
}

/// Says whether casts of leaves are kept.
#[pyfunction]
fn _set_autocast_cache_enabled(enabled: bool) {
    autocast::set_cache_enabled(enabled);
}

/// Forgets kept casts.
#[pyfunction]
fn _clear_autocast_cache() {
    autocast::clear_cache();
}

/// Notes that a block begins.
#[pyfunction]
fn _autocast_enter() {
    autocast::enter();
}

/// Notes that a block ends; gives how many are left.
#[pyfunction]
fn _autocast_exit() -> usize {
    autocast::exit()
}

/// Multiplies the gradients by the inverse scale in place; per device of theirs 1 where any was not finite, else 0.
#[pyfunction]
fn _unscale_<'py>(
    py: Python<'py>,
    grads: &Bound<'py, PyAny>,
    inverse: &Bound<'py, PyTensor>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let grads = tensors_of(At { op: "unscale_", arg: "grads" }, grads.as_borrowed())?;
    let inverse = inverse.get().read().clone();
    let found = engine_call::long(py, || autocast::unscale_(&grads, &inverse))?;
    found.into_iter().map(|t| Ok(wrap(py, t)?.into_any())).collect()
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    macro_rules! add {
        ($($name:ident)*) => { $(m.add_function(wrap_pyfunction!($name, m)?)?;)* };
    }
    add! {
        _autocast_enabled _set_autocast_enabled _autocast_dtype _set_autocast_dtype _autocast_cache_enabled
        _set_autocast_cache_enabled _clear_autocast_cache _autocast_enter _autocast_exit _unscale_
    }
    Ok(())
}
