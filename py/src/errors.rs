//! The engine's errors as Python exceptions.
//!
//! Each class derives from `LucidError` and from the builtin that PyTorch raises in the same place; [`raise`] is the one
//! place that maps a variant to its class. Depends on the engine's `Error` only.

use crate::dtype::dtype_object;
use lucid::Error;
use pyo3::exceptions::*;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyTuple, PyType};

macro_rules! exceptions {
    (@first $base:ident) => { $base };
    (@first $base:ident $parent:ident) => { $parent };
    ($($(#[doc = $doc:literal])+ $field:ident $name:literal $(of $parent:ident)?: $($base:ty),+;)*) => {
        struct Classes {
            base: Py<PyType>,
            $($field: Py<PyType>,)*
        }

        impl Classes {
            fn new(py: Python<'_>) -> PyResult<Classes> {
                let doc = "What Lucid raises. Each subclass also derives from the builtin that PyTorch would raise.";
                let base = class(py, "LucidError", doc, &[py.get_type::<PyException>()])?;
                $(let $field = {
                    let bases = [exceptions!(@first base $($parent)?).bind(py).clone(), $(py.get_type::<$base>()),+];
                    class(py, $name, concat!($($doc, "\n"),+).trim(), &bases)?
                };)*
                Ok(Classes { $($field,)* base })
            }

            fn all(&self) -> impl Iterator<Item = (&'static str, &Py<PyType>)> {
                [("LucidError", &self.base), $(($name, &self.$field)),*].into_iter()
            }
        }
    };
}
exceptions! {
    /// Shapes that do not fit together, or do not fit the op.
    shape "ShapeMismatch": PyRuntimeError;
    /// Dtypes that differ where they must not, or do not fit. PyTorch raises a `RuntimeError` from most ops and a `TypeError`
    /// from others, such as `~` and `maximum`; this is both.
    dtype "DtypeMismatch": PyRuntimeError, PyTypeError;
    /// A dtype that the op is not made for. PyTorch raises a `NotImplementedError` where it has no kernel, and one of a
    /// `DtypeMismatch`'s kinds where it looks first; this is all of them.
    no_dtype "UnsupportedDtype" of dtype: PyNotImplementedError;
    /// Tensors of different devices in one op, or a device that the op or dtype does not exist on.
    device "DeviceMismatch": PyRuntimeError;
    /// A dimension or an element index out of range. PyTorch raises an `IndexError` from indexing and from most ops, and a
    /// `RuntimeError` from others, such as `gather`; this is both.
    index "IndexError": PyIndexError, PyRuntimeError;
    /// An argument of the right kind with a value that makes no sense.
    value "ValueError": PyValueError;
    /// An argument of the wrong kind.
    kind "TypeError": PyTypeError;
    /// A number beyond the range of its type.
    overflow "OverflowError": PyOverflowError;
    /// Something that the state of the tensors or of the graph forbids.
    runtime "RuntimeError": PyRuntimeError;
    /// A matrix that cannot be factored: singular, not positive-definite, or of numbers that are not finite.
    lin_alg "LinAlgError" of runtime: PyRuntimeError;
    /// A tensor needed by backward was changed in place after it was saved.
    version "VersionMismatch": PyRuntimeError;
    /// The GPU device was asked for and cannot be had.
    gpu "GpuNotAvailable": PyRuntimeError;
    /// An allocation failed.
    memory "OutOfMemory": PyRuntimeError, PyMemoryError;
    /// Sizes that a backend cannot count: MLX's numbers have 32 bits.
    limit "BackendLimit": PyRuntimeError;
    /// A combination that exists in PyTorch and not here.
    missing "NotImplementedError": PyNotImplementedError;
    /// A file could not be read or written, or is not what it should be.
    file "FileError": PyOSError;
    /// A file does not exist.
    no_file "FileNotFoundError": PyFileNotFoundError;
    /// A backend reported an error of its own.
    backend "BackendError": PyRuntimeError;
    /// Processes that compute together could not: one is gone, late, or does something else.
    distributed "DistBackendError" of backend: PyRuntimeError;
    /// A bug in Lucid: the engine panicked. The process stays usable.
    internal "InternalError": PyRuntimeError;
}

static CLASSES: PyOnceLock<Classes> = PyOnceLock::new();

fn classes(py: Python<'_>) -> PyResult<&'static Classes> {
    CLASSES.get_or_try_init(py, || Classes::new(py))
}

fn class(py: Python<'_>, name: &str, doc: &str, bases: &[Bound<'_, PyType>]) -> PyResult<Py<PyType>> {
    let dict = PyDict::new(py);
    dict.set_item("__doc__", doc)?;
    dict.set_item("__module__", "lucid.errors")?;
    let made = py.get_type::<PyType>().call1((name, PyTuple::new(py, bases)?, dict))?;
    Ok(made.cast_into::<PyType>()?.unbind())
}

/// Adds every exception class to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    classes(m.py())?.all().try_for_each(|(name, class)| m.add(name, class))
}

/// The Python exception of an engine error, with what the error names as attributes.
#[cold]
pub fn raise(py: Python<'_>, error: &Error) -> PyErr {
    build(py, error).unwrap_or_else(|e| e)
}

fn build(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let classes = classes(py)?;
    let (class, op) = match error {
        Error::ShapeMismatch { op, .. } => (&classes.shape, *op),
        Error::DtypeMismatch { op, .. } => (&classes.dtype, *op),
        Error::UnsupportedDtype { op, .. } => (&classes.no_dtype, *op),
        Error::DeviceMismatch { op, .. } => (&classes.device, *op),
        Error::IndexOutOfRange { op, .. } => (&classes.index, *op),
        Error::InvalidValue { op, .. } => (&classes.value, *op),
        Error::InvalidType { op, .. } => (&classes.kind, *op),
        Error::Runtime { op, .. } => (&classes.runtime, *op),
        Error::LinAlg { op, .. } => (&classes.lin_alg, *op),
        Error::VersionMismatch { op, .. } => (&classes.version, *op),
        Error::GpuNotAvailable(_) => (&classes.gpu, "device"),
        Error::OutOfMemory { .. } => (&classes.memory, ""),
        Error::BackendLimit { op, .. } => (&classes.limit, *op),
        Error::NotImplemented { op, .. } => (&classes.missing, *op),
        Error::Io { missing: true, .. } => (&classes.no_file, ""),
        Error::Io { .. } => (&classes.file, ""),
        Error::Distributed { op, .. } => (&classes.distributed, *op),
        Error::Backend { op, .. } => (&classes.backend, *op),
        // `Error` may grow; a new variant is still a LucidError.
        _ => (&classes.base, ""),
    };
    let value = class.bind(py).call1((error.to_string(),))?;
    value.setattr("op", op)?;
    match error {
        Error::ShapeMismatch { shapes, .. } => {
            let shapes: Vec<_> = shapes.iter().map(|s| PyTuple::new(py, s)).collect::<PyResult<_>>()?;
            value.setattr("shapes", PyList::new(py, shapes)?)?;
        }
        Error::DtypeMismatch { dtypes, .. } | Error::UnsupportedDtype { dtypes, .. } => {
            let dtypes: Vec<_> = dtypes.iter().map(|&d| dtype_object(py, d)).collect::<PyResult<_>>()?;
            value.setattr("dtypes", PyList::new(py, dtypes)?)?;
        }
        Error::DeviceMismatch { devices, .. } => {
            value.setattr("devices", PyList::new(py, devices.iter().map(|d| d.name()))?)?;
        }
        _ => {}
    }
    Ok(PyErr::from_value(value))
}

/// The exception for a panic that was caught.
#[cold]
pub fn panicked(py: Python<'_>, payload: &(dyn std::any::Any + Send)) -> PyErr {
    let text = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let message = format!("internal error, please report it: {}", text.unwrap_or("a panic without a message"));
    match classes(py).and_then(|c| c.internal.bind(py).call1((message,))) {
        Ok(value) => PyErr::from_value(value),
        Err(e) => e,
    }
}

macro_rules! raisers {
    ($($(#[$doc:meta])* $name:ident => $field:ident;)*) => {$(
        $(#[$doc])*
        #[cold]
        pub fn $name(py: Python<'_>, message: impl Into<String>) -> PyErr {
            match classes(py).and_then(|c| c.$field.bind(py).call1((message.into(),))) {
                Ok(value) => PyErr::from_value(value),
                Err(e) => e,
            }
        }
    )*};
}
raisers! {
    /// A `lucid.errors.TypeError`.
    type_error => kind;
    /// A `lucid.errors.ValueError`.
    value_error => value;
    /// A `lucid.errors.RuntimeError`.
    runtime_error => runtime;
    /// A `lucid.errors.IndexError`.
    index_error => index;
    /// A `lucid.errors.OverflowError`.
    overflow_error => overflow;
}
