//! `lucid.Generator`, and the process's own.

use crate::device::{device_object, device_of, PyDevice};
use crate::{engine_call, errors};
use lucid::{DType, Device, Generator, Tensor};
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::tensor::{wrap, PyTensor};

/// A source of random numbers: the same seed gives the same numbers on every device.
///
/// Args:
///     device (device or str, optional): the only device that it draws on. Default: any, unlike PyTorch.
///     seed (int, optional): where it starts, as after `manual_seed`; not in PyTorch. Default: PyTorch's, 67280421310721.
///
/// Raises:
///     TypeError: `device` is no device.
///     ValueError: `seed` is out of the range of 64 bits.
///
/// Example:
///     >>> g = lucid.Generator(seed=7)
///     >>> x = lucid.rand(2, generator=g)
///     >>> lucid.equal(x, lucid.rand(2, generator=g.manual_seed(7)))
///     True
#[pyclass(name = "Generator", module = "lucid", frozen)]
pub struct PyGenerator(pub Generator);

#[pymethods]
impl PyGenerator {
    #[new]
    #[pyo3(signature = (device=None, *, seed=None))]
    fn new(
        py: Python<'_>,
        device: Option<&Bound<'_, PyAny>>,
        seed: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyGenerator> {
        let made = match device.map(device_of).transpose()? {
            None => Generator::new(),
            Some(Some(device)) => Generator::on(device),
            Some(None) => return Err(errors::type_error(py, "Generator(): argument 'device' must be a device or str")),
        };
        if let Some(seed) = seed {
            made.manual_seed(seed_of(seed)?);
        }
        Ok(PyGenerator(made))
    }

    /// Starts anew from a seed, and gives the generator back.
    fn manual_seed<'py>(slf: &Bound<'py, Self>, seed: &Bound<'_, PyAny>) -> PyResult<Bound<'py, Self>> {
        slf.get().0.manual_seed(seed_of(seed)?);
        Ok(slf.clone())
    }

    /// Starts anew from a seed of the system's entropy, and gives the seed.
    fn seed(&self) -> u64 {
        self.0.seed()
    }

    /// The seed it started from.
    fn initial_seed(&self) -> u64 {
        self.0.initial_seed()
    }

    /// Its state, as a tensor of bytes.
    fn get_state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        state_tensor(py, &self.0)
    }

    /// Goes on from a state that `get_state` gave. Gives the generator back.
    fn set_state<'py>(slf: &Bound<'py, Self>, state: &Bound<'py, PyTensor>) -> PyResult<Bound<'py, Self>> {
        set_state(slf.py(), &slf.get().0, state)?;
        Ok(slf.clone())
    }

    /// A generator of its own in the same state.
    fn clone_state(&self) -> PyGenerator {
        PyGenerator(self.0.clone_state())
    }

    /// The device it was made for: the CPU where none was named.
    #[getter]
    fn device(&self, py: Python<'_>) -> PyResult<&'static Py<PyDevice>> {
        device_object(py, self.0.device().unwrap_or(Device::Cpu))
    }

    #[allow(clippy::type_complexity)]
    fn __reduce__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyType>, (Option<&'static Py<PyDevice>>,), Bound<'py, PyAny>)> {
        let device = self.0.device().map(|d| device_object(py, d)).transpose()?;
        Ok((py.get_type::<PyGenerator>(), (device,), self.get_state(py)?))
    }

    fn __setstate__(&self, py: Python<'_>, state: &Bound<'_, PyTensor>) -> PyResult<()> {
        set_state(py, &self.0, state)
    }
}

/// A seed: any integer of 64 bits, negative ones by their two's complement, as in PyTorch.
fn seed_of(seed: &Bound<'_, PyAny>) -> PyResult<u64> {
    let py = seed.py();
    let number = seed.call_method0("__int__").map_err(|_| {
        let got = crate::args::kind_name(seed);
        errors::type_error(py, format!("manual_seed(): argument 'seed' must be int, not {got}"))
    })?;
    number.extract::<u64>().or_else(|_| number.extract::<i64>().map(|s| s as u64)).map_err(|_| {
        errors::value_error(py, format!("Overflow when unpacking long: seed {number} does not fit into 64 bits"))
    })
}

fn state_tensor<'py>(py: Python<'py>, generator: &Generator) -> PyResult<Bound<'py, PyAny>> {
    let state = generator.get_state();
    wrap(py, engine_call::quick(py, || Tensor::from_slice(&state, &[state.len()], Device::Cpu))?)
}

fn set_state(py: Python<'_>, generator: &Generator, state: &Bound<'_, PyTensor>) -> PyResult<()> {
    let state = state.get().share();
    if state.dtype() != DType::U8 {
        return Err(errors::type_error(py, format!("RNG state must be a uint8 tensor, got {}", state.dtype())));
    }
    engine_call::long(py, || generator.set_state(&state.to_bytes()?))
}

/// Seeds the process's generator, and gives it.
#[doc = lucid::op_doc!(python manual_seed)]
#[pyfunction]
fn manual_seed(seed: &Bound<'_, PyAny>) -> PyResult<PyGenerator> {
    lucid::manual_seed(seed_of(seed)?);
    Ok(PyGenerator(lucid::random::default_generator().clone()))
}

/// Seeds the process's generator from the system's entropy, and gives the seed.
#[pyfunction]
fn seed() -> u64 {
    lucid::random::default_generator().seed()
}

/// The seed that the process's generator started from.
#[pyfunction]
fn initial_seed() -> u64 {
    lucid::random::default_generator().initial_seed()
}

/// The state of the process's generator, as a tensor of bytes.
#[pyfunction]
fn get_rng_state(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    state_tensor(py, lucid::random::default_generator())
}

/// Goes on from a state that `get_rng_state` gave.
#[doc = lucid::op_doc!(python set_rng_state)]
#[pyfunction]
fn set_rng_state(py: Python<'_>, new_state: &Bound<'_, PyTensor>) -> PyResult<()> {
    set_state(py, lucid::random::default_generator(), new_state)
}

/// Adds the class.
pub fn register_class(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyGenerator>()?;
    m.add("default_generator", PyGenerator(lucid::random::default_generator().clone()))
}

/// Adds the functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(manual_seed, m)?)?;
    m.add_function(wrap_pyfunction!(seed, m)?)?;
    m.add_function(wrap_pyfunction!(initial_seed, m)?)?;
    m.add_function(wrap_pyfunction!(get_rng_state, m)?)?;
    m.add_function(wrap_pyfunction!(set_rng_state, m)?)
}
