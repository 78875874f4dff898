//! Optimizer steps: all parameters of a step in one call.
//!
//! `_optimizer_step` and `_matrix_step` take batches of parameters; the functions of L-BFGS take all of them as one vector.

use crate::args::{tensors_of, At};
use crate::tensor::{wrap, PyTensor};
use crate::{engine_call, errors};
use lucid::optim::lbfgs::{self, History};
use lucid::optim::{MatrixStep, Step};
use lucid::{no_grad, Tensor};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// Batches as Python gives them: the kind of step, its options as numbers, and lists by kind of tensor.
fn batches_of<S>(
    py: Python<'_>,
    batches: &Bound<'_, PyList>,
    parse: impl Fn(&str, &mut dyn FnMut(&'static str) -> Result<f64, Failed>) -> Result<S, Failed>,
    name: impl Fn(&S) -> &'static str,
) -> PyResult<Vec<(S, Vec<Vec<Tensor>>)>> {
    let mut steps = Vec::new();
    for batch in batches.iter() {
        let (kind, options, lists) = batch.extract::<(String, Bound<'_, PyDict>, Bound<'_, PyList>)>()?;
        let mut option = |name: &'static str| match options.get_item(name) {
            Ok(Some(value)) => value.extract::<f64>().map_err(Failed::Python),
            Ok(None) => Err(Failed::Python(errors::type_error(py, format!("{kind} step without option '{name}'")))),
            Err(e) => Err(Failed::Python(e)),
        };
        let step = parse(&kind, &mut option).map_err(|e| e.raise(py))?;
        let at = At { op: name(&step), arg: "tensors" };
        let lists: Vec<Vec<Tensor>> =
            lists.iter().map(|list| tensors_of(at, list.as_borrowed())).collect::<PyResult<_>>()?;
        let n = lists.first().map_or(0, Vec::len);
        if let Some(odd) = lists.iter().find(|l| l.len() != n) {
            let why = format!("{}: lists of different lengths, {n} and {}", at.op, odd.len());
            return Err(errors::value_error(py, why));
        }
        steps.push((step, (0..n).map(|i| lists.iter().map(|l| l[i].clone()).collect()).collect()));
    }
    Ok(steps)
}

/// Optimizer steps over any number of parameters, in one call. Each batch is the kind of step, its options as numbers,
/// and lists by kind: parameters, gradients, and the state in the step's order. With `differentiable` the tape records.
#[pyfunction]
#[pyo3(signature = (batches, differentiable=false))]
fn _optimizer_step(py: Python<'_>, batches: &Bound<'_, PyList>, differentiable: bool) -> PyResult<()> {
    let steps = batches_of(py, batches, |kind, option| Step::parse(kind, option), Step::name)?;
    let run = if differentiable { lucid::optim::run_steps_recorded } else { lucid::optim::run_steps };
    engine_call::long(py, || run(&steps))
}

/// The same for steps that look at a parameter as a matrix.
#[pyfunction]
fn _matrix_step(py: Python<'_>, batches: &Bound<'_, PyList>) -> PyResult<()> {
    let steps = batches_of(py, batches, |kind, option| MatrixStep::parse(kind, option), MatrixStep::name)?;
    engine_call::long(py, || lucid::optim::run_matrix_steps(&steps))
}

/// An error of either side.
enum Failed {
    Python(PyErr),
    Engine(Box<lucid::Error>),
}

impl From<Box<lucid::Error>> for Failed {
    fn from(e: Box<lucid::Error>) -> Failed {
        Failed::Engine(e)
    }
}

impl Failed {
    fn raise(self, py: Python<'_>) -> PyErr {
        match self {
            Failed::Python(e) => e,
            Failed::Engine(e) => errors::raise(py, &e),
        }
    }
}

// ---- L-BFGS ----------------------------------------------------------------------------------------------------------

const PARAMS: At = At { op: "LBFGS", arg: "params" };

fn listed<'py>(py: Python<'py>, tensors: Vec<Tensor>) -> PyResult<Bound<'py, PyList>> {
    PyList::new(py, tensors.into_iter().map(|t| wrap(py, t)).collect::<PyResult<Vec<_>>>()?)
}

/// All gradients as one vector, and its largest element by size.
#[pyfunction]
fn _lbfgs_gradient<'py>(
    py: Python<'py>,
    params: &Bound<'py, PyAny>,
    negate: bool,
) -> PyResult<(Bound<'py, PyAny>, f64)> {
    let params = tensors_of(PARAMS, params.as_borrowed())?;
    let (flat, largest) = engine_call::long(py, || {
        let flat = lbfgs::flat_gradient(&params, negate)?;
        let [_, _, largest, _] = lbfgs::measures(&flat, &flat)?;
        Ok((flat, largest))
    })?;
    Ok((wrap(py, flat)?, largest))
}

/// A direction with what it was made of: itself, the changes, steps, inverses and scale that it leaves, the factors, and
/// `lbfgs::measures`.
type Direction<'py> =
    (Bound<'py, PyAny>, [Bound<'py, PyList>; 3], Option<Bound<'py, PyAny>>, Bound<'py, PyList>, [f64; 4]);

/// The next direction for a gradient. `last` is the gradient before, the last direction and its length; `history` has
/// changes, steps and inverses.
#[pyfunction]
fn _lbfgs_direction<'py>(
    py: Python<'py>,
    flat: &Bound<'py, PyTensor>,
    last: Option<(Bound<'py, PyTensor>, Bound<'py, PyTensor>, f64)>,
    history: [Bound<'py, PyAny>; 3],
    scale: Option<Bound<'py, PyTensor>>,
    size: usize,
) -> PyResult<Direction<'py>> {
    let at = At { op: "LBFGS", arg: "history" };
    let [changes, steps, inverses] = history;
    let mut history = History {
        changes: tensors_of(at, changes.as_borrowed())?,
        steps: tensors_of(at, steps.as_borrowed())?,
        inverses: tensors_of(at, inverses.as_borrowed())?,
        scale: scale.map(|t| t.get().read().clone()),
    };
    let flat = flat.get().read().clone();
    let last = last.map(|(before, d, length)| (before.get().read().clone(), d.get().read().clone(), length));
    let (d, factors, measures, history) = engine_call::long(py, || {
        no_grad(|| {
            if let Some((before, d, length)) = &last {
                history.remember((&flat - before)?, (d * *length)?, size)?;
            }
            let (d, factors) = history.direction(&flat)?;
            let measures = lbfgs::measures(&flat, &d)?;
            Ok((d, factors, measures, history))
        })
    })?;
    let lists = [listed(py, history.changes)?, listed(py, history.steps)?, listed(py, history.inverses)?];
    let scale = history.scale.map(|t| wrap(py, t)).transpose()?;
    Ok((wrap(py, d)?, lists, scale, listed(py, factors)?, measures))
}

/// Moves the parameters along a direction, in place.
#[pyfunction]
fn _lbfgs_move(py: Python<'_>, params: &Bound<'_, PyAny>, d: &Bound<'_, PyTensor>, length: f64) -> PyResult<()> {
    let (params, d) = (tensors_of(PARAMS, params.as_borrowed())?, d.get().read().clone());
    engine_call::long(py, || lbfgs::move_along(&params, &d, length))
}

/// The gradient where the parameters are, its slope along `d` and its largest element by size; then moves back to `start`.
#[pyfunction]
fn _lbfgs_probe<'py>(
    py: Python<'py>,
    params: &Bound<'py, PyAny>,
    start: &Bound<'py, PyAny>,
    d: &Bound<'py, PyTensor>,
    negate: bool,
) -> PyResult<(Bound<'py, PyAny>, f64, f64)> {
    let (params, start) = (tensors_of(PARAMS, params.as_borrowed())?, tensors_of(PARAMS, start.as_borrowed())?);
    let d = d.get().read().clone();
    let (flat, slope, largest) = engine_call::long(py, || {
        let flat = lbfgs::flat_gradient(&params, negate)?;
        let [slope, _, largest, _] = lbfgs::measures(&flat, &d)?;
        lbfgs::move_back(&params, &start)?;
        Ok((flat, slope, largest))
    })?;
    Ok((wrap(py, flat)?, slope, largest))
}

/// Adds the functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    macro_rules! add {
        ($($name:ident)*) => { $(m.add_function(wrap_pyfunction!($name, m)?)?;)* };
    }
    add! { _lbfgs_direction _lbfgs_gradient _lbfgs_move _lbfgs_probe _matrix_step _optimizer_step }
    Ok(())
}
