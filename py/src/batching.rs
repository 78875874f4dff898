//! What `lucid.func` asks of the engine: levels of `vmap`, batched tensors, inputs to differentiate by.

use crate::args::{tensors_of, At};
use crate::engine_call;
use crate::tensor::{wrap, PyTensor};
use lucid::batching;
use pyo3::prelude::*;

type Object<'py> = PyResult<Bound<'py, PyAny>>;

/// Starts a level of `vmap` in this thread and gives its id. `alike`: samples differ in tangents alone.
#[pyfunction]
#[pyo3(signature = (size, randomness, alike=false))]
fn _vmap_enter(py: Python<'_>, size: usize, randomness: &str, alike: bool) -> PyResult<u64> {
    engine_call::quick(py, || Ok(batching::enter(size, randomness.parse()?, alike)))
}

/// Ends a level of `vmap`.
#[pyfunction]
fn _vmap_exit(level: u64) {
    batching::exit(level);
}

/// Levels that were left for a while.
#[pyclass(name = "_Suspended", module = "lucid", frozen)]
struct PySuspended(Vec<batching::Level>);

/// Leaves a level and those inside of it until `_vmap_resume`.
#[pyfunction]
fn _vmap_suspend(level: u64) -> PySuspended {
    PySuspended(batching::suspend(level))
}

/// Enters again what `_vmap_suspend` left.
#[pyfunction]
fn _vmap_resume(levels: &Bound<'_, PySuspended>) {
    batching::resume(levels.get().0.clone());
}

/// The tensor with dimension `dim` hidden from a level.
#[pyfunction]
fn _vmap_hide<'py>(py: Python<'py>, t: &Bound<'py, PyTensor>, dim: isize, level: u64) -> Object<'py> {
    let t = t.get().share();
    wrap(py, engine_call::quick(py, || batching::hide(&t, dim, level))?)
}

/// The tensor with what a level hides at `dim`.
#[pyfunction]
fn _vmap_show<'py>(py: Python<'py>, t: &Bound<'py, PyTensor>, dim: isize, level: u64) -> Object<'py> {
    let t = t.get().share();
    wrap(py, engine_call::quick(py, || batching::show(&t, level, dim))?)
}

/// The tensor with a level's dimension in front where only a tangent of it has that; `None` elsewhere.
#[pyfunction]
fn _vmap_spread<'py>(py: Python<'py>, t: &Bound<'py, PyTensor>, level: u64) -> PyResult<Option<Bound<'py, PyAny>>> {
    let t = t.get().share();
    engine_call::quick(py, || batching::spread(&t, level))?.map(|t| wrap(py, t)).transpose()
}

/// The depth, id and value of a batched tensor, or `None`.
#[pyfunction]
fn _vmap_parts<'py>(py: Python<'py>, t: &Bound<'py, PyTensor>) -> PyResult<Option<(usize, u64, Bound<'py, PyAny>)>> {
    let parts = batching::parts(&t.get().share());
    parts.map(|(level, value)| Ok((batching::depth_of(level), level, wrap(py, value)?))).transpose()
}

/// The ids, sizes and randomness of the levels that this thread is inside of, the outermost first.
#[pyfunction]
fn _vmap_active() -> Vec<(u64, usize, &'static str)> {
    batching::active().into_iter().map(|l| (l.id, l.size, l.randomness.name())).collect()
}

/// The ops that ran sample by sample since the last call, each named once in the process; or all that ever did.
#[pyfunction]
#[pyo3(signature = (all=false))]
fn _vmap_fallbacks(all: bool) -> Vec<&'static str> {
    batching::fallbacks(all)
}

/// The tensor as an input of a differentiation that starts here.
#[pyfunction]
fn _fresh<'py>(py: Python<'py>, t: &Bound<'py, PyTensor>) -> Object<'py> {
    let t = t.get().share();
    wrap(py, engine_call::quick(py, || batching::fresh(&t))?)
}

/// Does the history of `outputs`, and with `pushed` that of their tangents, lead to a leaf that is not retired?
#[pyfunction]
#[pyo3(signature = (outputs, pushed=false))]
fn _leads_elsewhere(outputs: &Bound<'_, PyAny>, pushed: bool) -> PyResult<bool> {
    let outputs = tensors_of(At { op: "grad", arg: "outputs" }, outputs.as_borrowed())?;
    Ok(lucid::autograd::leads_elsewhere(&outputs, pushed))
}

/// Says that the gradients of these inputs of a differentiation are not asked for beyond it.
#[pyfunction]
fn _retire(inputs: &Bound<'_, PyAny>) -> PyResult<()> {
    lucid::autograd::retire(&tensors_of(At { op: "grad", arg: "inputs" }, inputs.as_borrowed())?);
    Ok(())
}

/// Adds the functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(_vmap_enter, m)?)?;
    m.add_function(wrap_pyfunction!(_vmap_exit, m)?)?;
    m.add_class::<PySuspended>()?;
    m.add_function(wrap_pyfunction!(_vmap_suspend, m)?)?;
    m.add_function(wrap_pyfunction!(_vmap_resume, m)?)?;
    m.add_function(wrap_pyfunction!(_vmap_hide, m)?)?;
    m.add_function(wrap_pyfunction!(_vmap_show, m)?)?;
    m.add_function(wrap_pyfunction!(_vmap_spread, m)?)?;
    m.add_function(wrap_pyfunction!(_vmap_parts, m)?)?;
    m.add_function(wrap_pyfunction!(_vmap_active, m)?)?;
    m.add_function(wrap_pyfunction!(_vmap_fallbacks, m)?)?;
    m.add_function(wrap_pyfunction!(_fresh, m)?)?;
    m.add_function(wrap_pyfunction!(_retire, m)?)?;
    m.add_function(wrap_pyfunction!(_leads_elsewhere, m)?)
}
