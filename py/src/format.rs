//! `lucid.memory_format`, and the methods that take one.

use crate::args::{kinds, optional, Arg, At};
use crate::tensor::{wrap, PyTensor};
use crate::{engine_call, errors, results};
use lucid::MemoryFormat;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyTuple};

/// In which order the dimensions of a tensor are in memory, such as `lucid.channels_last`.
#[pyclass(name = "memory_format", module = "lucid", frozen)]
pub struct PyMemoryFormat(pub MemoryFormat);

#[pymethods]
impl PyMemoryFormat {
    fn __repr__(&self) -> String {
        format!("lucid.{}", self.0.name())
    }

    /// Pickles as the global `lucid.<name>`, so that it stays one object.
    fn __reduce__(&self) -> &'static str {
        self.0.name()
    }
}

static OBJECTS: PyOnceLock<Vec<Py<PyMemoryFormat>>> = PyOnceLock::new();

/// The format that an object stands for.
pub fn format_of(obj: &Bound<'_, PyAny>) -> Option<MemoryFormat> {
    obj.cast::<PyMemoryFormat>().ok().map(|f| f.get().0)
}

/// The `memory_format=` of a hand-written function; what is not given, or `None`, is nothing.
pub fn given(op: &'static str, format: Arg<'_, '_>) -> PyResult<Option<MemoryFormat>> {
    optional::<kinds::OptFormat>(At { op, arg: "memory_format" }, format, None)
}

#[pymethods]
impl PyTensor {
    /// A copy in memory of its own; gradients pass through. By default its dimensions are in the order of the tensor's own
    /// (`preserve_format`), without gaps and repetitions.
    #[doc = lucid::op_doc!(python tensor_clone)]
    #[pyo3(signature = (*, memory_format=Arg::MISSING))]
    fn clone<'py>(&self, py: Python<'py>, memory_format: Arg<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        let format = given("clone", memory_format)?.unwrap_or(MemoryFormat::Preserve);
        let t = self.share();
        wrap(py, engine_call::op(py, crate::args::weight_of(&t), || t.copy_in(format))?)
    }

    /// The tensor itself where its elements are without gaps as the format says, row-major by default; else a copy.
    #[doc = lucid::op_doc!(python tensor_contiguous)]
    #[pyo3(signature = (*, memory_format=Arg::MISSING))]
    fn _contiguous<'py>(slf: &Bound<'py, Self>, memory_format: Arg<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        let format = given("contiguous", memory_format)?.unwrap_or(MemoryFormat::Contiguous);
        let py = slf.py();
        let t = slf.get().share();
        let made = engine_call::op(py, crate::args::weight_of(&t), || t.contiguous_in(format))?;
        results::same_or(slf, &t, made, |made| wrap(py, made))
    }

    /// This tensor, which a function made of `input` and nobody else has seen, as its result: no view, in the format that the
    /// strides of the input show, or row-major.
    #[pyo3(signature = (input, row_major=false))]
    fn _result_of<'py>(
        slf: &Bound<'py, Self>,
        input: &Bound<'py, PyTensor>,
        row_major: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (t, input) = (slf.get().share(), input.get().share());
        let shown =
            if row_major || input.ndim() != t.ndim() { MemoryFormat::Contiguous } else { input.suggested_format() };
        let made = engine_call::op(slf.py(), crate::args::weight_of(&t), || t.clone().result_of(&input, shown))?;
        let made = results::same_or(slf, &t, made, |made| wrap(slf.py(), made))?;
        match made.get_type().is(slf.get_type()) {
            true => Ok(made),
            // What a subclass's functions make is of the subclass.
            false => made.call_method1("as_subclass", (slf.get_type(),)),
        }
    }

    /// Are the elements without gaps as the format says, row-major by default?
    #[doc = lucid::op_doc!(python tensor_is_contiguous)]
    #[pyo3(signature = (*, memory_format=Arg::MISSING))]
    fn is_contiguous(&self, memory_format: Arg<'_, '_>) -> PyResult<bool> {
        let format = given("is_contiguous", memory_format)?.unwrap_or(MemoryFormat::Contiguous);
        let t = self.read();
        Ok(t.is_contiguous_in(format) && !t.is_sparse())
    }

    /// The dimensions from the outermost in memory to the innermost. With `ambiguity_check`, an error where strides or
    /// sizes of 1 leave that open; with a list of formats, where not exactly one of them is the tensor's.
    #[doc = lucid::op_doc!(python tensor_dim_order)]
    #[pyo3(signature = (*, ambiguity_check=None))]
    fn dim_order<'py>(
        &self,
        py: Python<'py>,
        ambiguity_check: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let t = self.read();
        let open = match ambiguity_check {
            None => false,
            Some(flag) if flag.is_instance_of::<PyBool>() => flag.is_truthy()? && t.has_open_order(),
            Some(list) => {
                let mut own = 0;
                for format in list.try_iter()? {
                    let format = format?;
                    let Some(format) = format_of(&format) else {
                        let got = crate::args::kind_name(&format);
                        let why =
                            format!("dim_order(): ambiguity_check must be a bool or a list of formats, not {got}");
                        return Err(errors::type_error(py, why));
                    };
                    own += usize::from(t.is_contiguous_in(format));
                }
                own != 1
            }
        };
        if open {
            let why =
                "The tensor does not have unique dim order, or cannot map to exact one of the given memory formats.";
            return Err(errors::runtime_error(py, why));
        }
        PyTuple::new(py, t.dim_order())
    }
}

/// Adds the class and its objects.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = m.py();
    m.add_class::<PyMemoryFormat>()?;
    let make = || MemoryFormat::ALL.iter().map(|&f| Py::new(py, PyMemoryFormat(f))).collect::<PyResult<Vec<_>>>();
    for object in OBJECTS.get_or_try_init(py, make)? {
        m.add(object.get().0.name(), object)?;
    }
    Ok(())
}
