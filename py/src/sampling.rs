//! Random functions and methods with several of PyTorch's signatures, which one row cannot state.
//!
//! Depends on `overloads::Call` for the arguments. The engine's ops are in its `random` family.

use crate::args::{kinds, optional, required, weight_of, Arg, At, HeldOperand, Kind};
use crate::ops::made_new;
use crate::overloads::Call;
use crate::tensor::PyTensor;
use crate::{engine_call, errors};
use lucid::ops::random;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyFloat, PyList, PyTuple};

type Object<'py> = PyResult<Bound<'py, PyAny>>;

/// `generator`, `dtype` and `device`.
macro_rules! options {
    ($call:ident) => {
        (
            optional::<kinds::OptGenerator>($call.at("generator"), $call.arg("generator"), None)?,
            optional::<kinds::OptDtype>($call.at("dtype"), $call.arg("dtype"), None)?,
            optional::<kinds::OptDevice>($call.at("device"), $call.arg("device"), None)?,
        )
    };
}

/// The bounds of a range of which the lower one may be left out: `f(high)`, `f(low, high)`.
fn bounds(call: &mut Call<'_>, low: usize) -> PyResult<(i64, i64)> {
    if call.given[low + 1].is_none() {
        call.given[low + 1] = call.given[low].take();
    }
    let py = call.py;
    let from = optional::<kinds::OptInt>(call.at("low"), call.arg("low"), None)?;
    Ok((from.unwrap_or(0), required::<kinds::Int>(py, call.at("high"), call.arg("high"))?))
}

/// Integers from `low` (0 where not given) to before `high`, evenly spread: `randint(high, size)` or
/// `randint(low, high, size)`.
#[doc = lucid::op_doc!(python randint_of)]
#[pyfunction]
#[pyo3(signature = (*args, **kwargs))]
fn randint<'py>(args: &Bound<'py, PyTuple>, kwargs: Option<&Bound<'py, PyDict>>) -> Object<'py> {
    const NAMES: &[&str] =
        &["low", "high", "size", "generator", "dtype", "device", "out", "requires_grad", "layout", "pin_memory"];
    let mut call = Call::read("randint", (NAMES, 3), None, args, kwargs)?;
    let py = call.py;
    crate::sparse::check_dense(py, "randint", call.arg("layout"), call.arg("pin_memory"))?;
    let listed = |o: &Bound<'_, PyAny>| o.is_instance_of::<PyTuple>() || o.is_instance_of::<PyList>();
    if call.given[2].is_none() && call.given[1].as_ref().is_some_and(listed) {
        call.given[2] = call.given[1].take();
    }
    let size = required::<kinds::Sizes>(py, call.at("size"), call.arg("size"))?;
    let (low, high) = bounds(&mut call, 0)?;
    let (generator, dtype, device) = options!(call);
    let size = <kinds::Sizes as Kind>::lend(&size);
    let made = engine_call::op(py, 0, || random::randint(low, high, size, generator.as_ref(), dtype, device))?;
    made_new(py, "randint", made, call.arg("out"), call.loose("requires_grad")?)
}

/// `randint` in the tensor's shape, dtype and device, where not given: `randint_like(input, high)` or
/// `randint_like(input, low, high)`.
#[doc = lucid::op_doc!(python randint_like_of)]
#[pyfunction]
#[pyo3(signature = (*args, **kwargs))]
fn randint_like<'py>(args: &Bound<'py, PyTuple>, kwargs: Option<&Bound<'py, PyDict>>) -> Object<'py> {
    const NAMES: &[&str] = &[
        "input",
        "low",
        "high",
        "generator",
        "dtype",
        "device",
        "memory_format",
        "requires_grad",
        "layout",
        "pin_memory",
    ];
    let mut call = Call::read("randint_like", (NAMES, 3), None, args, kwargs)?;
    let (py, t) = (call.py, call.tensor("input")?);
    crate::sparse::check_dense(py, "randint_like", call.arg("layout"), call.arg("pin_memory"))?;
    let (low, high) = bounds(&mut call, 1)?;
    let (generator, dtype, device) = options!(call);
    let format = crate::format::given("randint_like", call.arg("memory_format"))?;
    let run = || random::randint_like(&t, low, high, generator.as_ref(), dtype, device, format);
    let made = engine_call::op(py, weight_of(&t), run)?;
    made_new(py, "randint_like", made, Arg::MISSING, call.loose("requires_grad")?)
}

#[pymethods]
impl PyTensor {
    /// Fills with integers, evenly spread: `random_()` from 0 to the largest one of the dtype (for floats, the largest up
    /// to which they hold all integers), `random_(to)` to before `to`, `random_(from, to)` from `from`, which may be
    /// without an end where `to` is None.
    #[doc = lucid::op_doc!(python tensor_random_)]
    #[pyo3(signature = (*args, **kwargs))]
    fn random_<'py>(
        slf: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, Self>> {
        const NAMES: &[&str] = &["input", "from", "to", "generator"];
        let mut call = Call::read("random_", (NAMES, 3), Some(slf), args, kwargs)?;
        let py = call.py;
        if call.given[1].is_some() && call.given[2].is_none() {
            // One bound alone is the upper one.
            call.given[2] = call.given[1].take();
            if !call.has("to") {
                return Err(errors::type_error(py, "random_(): argument 'to' must be int, not NoneType"));
            }
        }
        let from = match call.given[1] {
            Some(_) => Some(required::<kinds::Int>(py, call.at("from"), call.arg("from"))?),
            None => None,
        };
        let to = optional::<kinds::OptInt>(call.at("to"), call.arg("to"), None)?;
        let generator = optional::<kinds::OptGenerator>(call.at("generator"), call.arg("generator"), None)?;
        let t = slf.get().share();
        engine_call::op(py, weight_of(&t), || t.random_(from, to, generator.as_ref()))?;
        Ok(slf.clone())
    }

    /// Fills with 1 with a probability of `p`, else with 0. `p` is a number, or a tensor that expands to this one's shape.
    #[doc = lucid::op_doc!(python tensor_bernoulli_)]
    #[pyo3(signature = (p=Arg::MISSING, *, generator=Arg::MISSING))]
    fn bernoulli_<'py>(slf: &Bound<'py, Self>, p: Arg<'_, 'py>, generator: Arg<'_, 'py>) -> PyResult<Bound<'py, Self>> {
        const OP: &str = "bernoulli_";
        let p = match p.0 {
            Some(_) => required::<kinds::Operand>(slf.py(), At { op: OP, arg: "p" }, p)?,
            None => HeldOperand::Scalar(0.5.into()),
        };
        let generator = optional::<kinds::OptGenerator>(At { op: OP, arg: "generator" }, generator, None)?;
        let t = slf.get().share();
        engine_call::op(slf.py(), weight_of(&t).max(p.weight()), || t.bernoulli_(p.lend(), generator.as_ref()))?;
        Ok(slf.clone())
    }
}

static BERNOULLI: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// 1 with the probability that the tensor's element gives, or `p` where that is given, else 0. A number as the first argument
/// is the probability of all elements of a new tensor of shape `size` (not in PyTorch).
#[doc = lucid::op_doc!(python bernoulli_of)]
#[pyfunction]
#[pyo3(signature = (*args, **kwargs))]
#[pyo3(text_signature = "(input, p=None, *, size=None, generator=None, dtype=None, device=None, out=None)")]
fn bernoulli<'py>(args: &Bound<'py, PyTuple>, kwargs: Option<&Bound<'py, PyDict>>) -> Object<'py> {
    const NAMES: &[&str] = &["p", "size", "generator", "dtype", "device"];
    let py = args.py();
    let sized = kwargs.map_or(Ok(false), |named| named.contains("size"))?;
    let number = args.get_item(0).is_ok_and(|a| !a.is_instance_of::<PyTensor>() && a.is_instance_of::<PyFloat>());
    if !sized && !number {
        let row =
            BERNOULLI.get(py).ok_or_else(|| errors::runtime_error(py, "bernoulli(): the module is not complete"))?;
        return row.bind(py).call(args, kwargs);
    }
    let call = Call::read("bernoulli", (NAMES, 2), None, args, kwargs)?;
    let p = required::<kinds::Float>(py, call.at("p"), call.arg("p"))?;
    let size = required::<kinds::Sizes>(py, call.at("size"), call.arg("size"))?;
    let (generator, dtype, device) = options!(call);
    let size = <kinds::Sizes as Kind>::lend(&size);
    let made = engine_call::op(py, 0, || {
        lucid::ops::create::empty(size, dtype, device, None)?.bernoulli(Some(p), generator.as_ref())
    })?;
    crate::tensor::wrap(py, made)
}

/// Adds the functions, which take the place of the table's.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let row = m.getattr("bernoulli")?;
    BERNOULLI.get_or_init(m.py(), || row.unbind());
    m.add_function(wrap_pyfunction!(bernoulli, m)?)?;
    m.add_function(wrap_pyfunction!(randint, m)?)?;
    m.add_function(wrap_pyfunction!(randint_like, m)?)
}
