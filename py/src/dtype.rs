//! `lucid.dtype`: one object per element type, compared by identity.

use lucid::DType;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyComplex, PyFloat, PyInt, PyType};

/// A tensor's element type, such as `lucid.float32`.
#[pyclass(name = "dtype", module = "lucid", frozen)]
pub struct PyDType(pub DType);

#[pymethods]
impl PyDType {
    /// Is it a real floating-point type?
    #[getter]
    fn is_floating_point(&self) -> bool {
        self.0.is_float()
    }

    /// Is it complex?
    #[getter]
    fn is_complex(&self) -> bool {
        self.0.is_complex()
    }

    /// Can it hold negative numbers?
    #[getter]
    fn is_signed(&self) -> bool {
        self.0 != DType::Bool && !self.0.is_unsigned()
    }

    /// Bytes per element.
    #[getter]
    fn itemsize(&self) -> usize {
        self.0.size()
    }

    /// The real type of the same precision.
    fn to_real(&self, py: Python<'_>) -> PyResult<Py<PyDType>> {
        dtype_object(py, self.0.to_real()).map(|d| d.clone_ref(py))
    }

    /// The complex type of the same precision; complex64 where there is none.
    fn to_complex(&self, py: Python<'_>) -> PyResult<Py<PyDType>> {
        dtype_object(py, self.0.to_complex()).map(|d| d.clone_ref(py))
    }

    fn __repr__(&self) -> String {
        format!("lucid.{}", self.0.name())
    }

    /// Pickles as the global `lucid.<name>`, so that it stays one object.
    fn __reduce__(&self) -> &'static str {
        self.0.name()
    }
}

static OBJECTS: PyOnceLock<Vec<Py<PyDType>>> = PyOnceLock::new();

/// The object of a dtype.
pub fn dtype_object(py: Python<'_>, dtype: DType) -> PyResult<&'static Py<PyDType>> {
    let make = || DType::ALL.iter().map(|&d| Py::new(py, PyDType(d))).collect::<PyResult<Vec<_>>>();
    Ok(&OBJECTS.get_or_try_init(py, make)?[dtype as usize])
}

/// The dtype that an object stands for: a `lucid.dtype`, or one of Python's `bool`, `int`, `float`, `complex`.
pub fn dtype_of(obj: &Bound<'_, PyAny>) -> Option<DType> {
    if let Ok(d) = obj.cast::<PyDType>() {
        return Some(d.get().0);
    }
    let class = obj.cast::<PyType>().ok()?;
    let py = obj.py();
    let builtins = [
        (py.get_type::<PyFloat>(), DType::F64),
        (py.get_type::<PyInt>(), DType::I64),
        (py.get_type::<PyBool>(), DType::Bool),
        (py.get_type::<PyComplex>(), DType::C128),
    ];
    builtins.iter().find(|(b, _)| class.is(b)).map(|&(_, d)| d)
}

/// PyTorch's other names of dtypes.
const ALIASES: &[(&str, DType)] = &[
    ("bool_", DType::Bool),
    ("half", DType::F16),
    ("float", DType::F32),
    ("double", DType::F64),
    ("short", DType::I16),
    ("int", DType::I32),
    ("long", DType::I64),
    ("cfloat", DType::C64),
    ("cdouble", DType::C128),
];

/// Adds the dtypes under their names.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyDType>()?;
    let all = DType::ALL.iter().map(|&d| (d.name(), d)).chain(ALIASES.iter().copied());
    for (name, dtype) in all {
        m.add(name, dtype_object(m.py(), dtype)?)?;
    }
    Ok(())
}
