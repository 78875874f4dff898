//! Forward mode: levels, dual tensors, and what `lucid.autograd.Function` needs to carry tangents on.

use crate::engine_call;
use crate::tensor::{wrap, PyTensor};
use lucid::autograd;
use pyo3::prelude::*;

/// Opens the level.
#[pyfunction]
fn _enter_dual_level(py: Python<'_>) -> PyResult<()> {
    engine_call::quick(py, autograd::enter_dual_level)
}

/// Closes it; all tangents are gone.
#[pyfunction]
fn _exit_dual_level(py: Python<'_>) -> PyResult<()> {
    engine_call::quick(py, autograd::exit_dual_level)
}

/// Opens a level of this thread inside of those that are open, and gives its id.
#[pyfunction]
fn _open_level(py: Python<'_>, recorded: bool) -> PyResult<u64> {
    engine_call::quick(py, || autograd::open_level(recorded))
}

/// Closes a level of this thread; its tangents are gone.
#[pyfunction]
fn _close_level(level: u64) {
    autograd::close_level(level);
}

/// Puts the innermost level out of work in this thread until `_set_bound` gets what this gives.
#[pyfunction]
fn _leave_level() -> u64 {
    autograd::leave_level()
}

/// Puts back what `_leave_level` has left.
#[pyfunction]
fn _set_bound(bound: u64) {
    autograd::set_bound(bound);
}

/// The tensor cut off from the tape, with its tangents.
#[pyfunction]
fn _cut<'py>(py: Python<'py>, tensor: &Bound<'py, PyTensor>) -> PyResult<Bound<'py, PyAny>> {
    let t = tensor.get().share();
    wrap(py, engine_call::quick(py, || autograd::cut(&t))?)
}

/// A view of `primal` that carries `tangent`.
#[pyfunction]
fn _make_dual<'py>(
    py: Python<'py>,
    primal: &Bound<'py, PyTensor>,
    tangent: &Bound<'py, PyTensor>,
) -> PyResult<Bound<'py, PyAny>> {
    let (primal, tangent) = (primal.get().share(), tangent.get().share());
    wrap(py, engine_call::quick(py, || autograd::make_dual(&primal, &tangent))?)
}

/// The tensor without its tangent, and the tangent or `None`.
#[pyfunction]
fn _unpack_dual<'py>(
    py: Python<'py>,
    tensor: &Bound<'py, PyTensor>,
) -> PyResult<(Bound<'py, PyAny>, Option<Bound<'py, PyAny>>)> {
    let t = tensor.get().share();
    let (primal, tangent) = engine_call::quick(py, || autograd::unpack_dual(&t))?;
    Ok((wrap(py, primal)?, tangent.map(|v| wrap(py, v)).transpose()?))
}

/// The tangent that a tensor carries, or `None`.
#[pyfunction]
fn _tangent<'py>(py: Python<'py>, tensor: &Bound<'py, PyTensor>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let t = tensor.get().share();
    engine_call::quick(py, || t.tangent())?.map(|v| wrap(py, v)).transpose()
}

/// Gives a tensor that has none a tangent.
#[pyfunction]
fn _set_tangent(py: Python<'_>, tensor: &Bound<'_, PyTensor>, tangent: &Bound<'_, PyTensor>) -> PyResult<()> {
    let (t, tangent) = (tensor.get().share(), tangent.get().share());
    engine_call::quick(py, || autograd::set_tangent("jvp", &t, &tangent))
}

/// Can tensors carry tangents here and now?
#[pyfunction]
fn _forward_active() -> bool {
    autograd::forward_active()
}

/// Do ops of the calling thread carry tangents on?
#[pyfunction]
fn _is_fwd_grad_enabled() -> bool {
    autograd::forward_enabled()
}

/// Says whether ops of the calling thread carry tangents on, and gives the former answer.
#[pyfunction]
fn _set_fwd_grad_enabled(mode: bool) -> bool {
    autograd::set_forward_enabled(mode)
}

/// Adds the functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(_enter_dual_level, m)?)?;
    m.add_function(wrap_pyfunction!(_exit_dual_level, m)?)?;
    m.add_function(wrap_pyfunction!(_open_level, m)?)?;
    m.add_function(wrap_pyfunction!(_close_level, m)?)?;
    m.add_function(wrap_pyfunction!(_leave_level, m)?)?;
    m.add_function(wrap_pyfunction!(_set_bound, m)?)?;
    m.add_function(wrap_pyfunction!(_cut, m)?)?;
    m.add_function(wrap_pyfunction!(_make_dual, m)?)?;
    m.add_function(wrap_pyfunction!(_unpack_dual, m)?)?;
    m.add_function(wrap_pyfunction!(_tangent, m)?)?;
    m.add_function(wrap_pyfunction!(_set_tangent, m)?)?;
    m.add_function(wrap_pyfunction!(_forward_active, m)?)?;
    m.add_function(wrap_pyfunction!(_is_fwd_grad_enabled, m)?)?;
    m.add_function(wrap_pyfunction!(_set_fwd_grad_enabled, m)?)
}
