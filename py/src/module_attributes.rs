//! `Registered`: how a module's parameters, buffers and children are found as attributes.

use pyo3::exceptions::PyAttributeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyType};

/// A class attribute that gives what a module's instance has registered under a name: a parameter, buffer or submodule.
///
/// Without it the lookup would fail first and then ask `Module.__getattr__`, an exception made and dropped on every call of
/// a layer. An attribute of the instance's own comes before it, and where nothing is registered `__getattr__` is asked.
///
/// Args:
///     name (str): the name that it is registered under.
///
/// Example:
///     >>> layer = lucid.nn.Linear(2, 1)
///     >>> _ = layer(lucid.ones(2)), layer.weight
///     >>> [type(c.__dict__["weight"]).__name__ for c in type(layer).__mro__ if "weight" in c.__dict__]
///     ['Registered']
#[pyclass(module = "lucid._C", frozen)]
struct Registered {
    name: Py<PyString>,
}

#[pymethods]
impl Registered {
    #[new]
    fn new(name: Py<PyString>) -> Registered {
        Registered { name }
    }

    fn __get__<'py>(
        &self,
        instance: &Bound<'py, PyAny>,
        owner: Option<&Bound<'py, PyType>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = instance.py();
        let name = self.name.bind(py);
        if !instance.is_none() {
            let slots = instance.getattr(intern!(py, "__dict__"))?.cast_into::<PyDict>()?;
            for kind in [intern!(py, "_modules"), intern!(py, "_parameters"), intern!(py, "_buffers")] {
                if let Some(named) = slots.get_item(kind)?
                    && let Some(found) = named.cast::<PyDict>()?.get_item(name)?
                {
                    return Ok(found);
                }
            }
        }
        let class = owner.map_or_else(|| instance.get_type(), Clone::clone);
        Err(PyAttributeError::new_err(format!("type object '{}' has no attribute '{name}'", class.name()?)))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> (Bound<'py, PyType>, (Py<PyString>,)) {
        (slf.get_type(), (slf.get().name.clone_ref(slf.py()),))
    }
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<Registered>()
}
