//! What classes inherit: `Tensor.__torch_function__`, which gives results the class of whom it was asked for, and the
//! handler of classes that are left alone, such as `Parameter`.

use super::{modes, wrap, Object};
use crate::errors;
use crate::tensor::{subclassed, PyTensor};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyNotImplemented, PyTuple, PyType};

static LEFT_ALONE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Is it the handler of classes that are left alone?
pub fn leaves_alone(handler: &Bound<'_, PyAny>) -> bool {
    LEFT_ALONE.get(handler.py()).is_some_and(|h| handler.is(h))
}

/// The handler of classes that are not asked: calls the function.
#[pyfunction]
#[pyo3(signature = (*args))]
fn _disabled_torch_function_impl<'py>(args: &Bound<'py, PyTuple>) -> Object<'py> {
    let wrong = |_| {
        let why = "_disabled_torch_function_impl() takes a class, a function, types, arguments and maybe named ones";
        errors::type_error(args.py(), why)
    };
    // A class's attribute that is a builtin is not bound: with or without the class it is called the same.
    let from =
        args.len().saturating_sub(4).min(usize::from(args.get_item(0).is_ok_and(|a| a.is_instance_of::<PyType>())));
    let function = args.get_item(from).map_err(wrong)?;
    let positional = args.get_item(from + 2).map_err(wrong)?;
    let named = args.get_item(from + 3).ok().filter(|k| !k.is_none());
    if super::is_function_of_pytorch(&function) {
        let positional = PyTuple::new(args.py(), positional.try_iter()?.collect::<PyResult<Vec<_>>>()?)?;
        return super::of_pytorch(&function, &positional, named.as_ref().map(|k| k.cast::<PyDict>()).transpose()?);
    }
    let _quiet = modes::quiet();
    function.call(
        &positional.try_iter()?.collect::<PyResult<Vec<_>>>().and_then(|a| PyTuple::new(args.py(), a))?,
        named.as_ref().map(|k| k.cast::<PyDict>()).transpose()?,
    )
}

/// Leaves a class alone: nobody looks for a handler at its instances, and what is computed from them, if they are tensors,
/// is plain tensors. For Lucid's own classes. Gives the class back.
#[pyfunction]
#[pyo3(signature = (class_))]
fn _left_alone<'py>(class_: &Bound<'py, PyType>) -> PyResult<Bound<'py, PyType>> {
    let class = class_;
    if let Some(handler) = LEFT_ALONE.get(class.py())
        && class.is_subclass_of::<PyTensor>()?
    {
        class.setattr("__torch_function__", handler)?;
    }
    wrap::add_ordinary(class);
    Ok(class.clone())
}

/// A result as an instance of the class, and so what is in lists and tuples.
fn converted<'py>(result: Bound<'py, PyAny>, class: &Bound<'py, PyType>) -> Object<'py> {
    let py = result.py();
    if let Ok(t) = result.cast::<PyTensor>() {
        return match result.is_instance(class)? {
            true => Ok(result),
            false => subclassed(t, class),
        };
    }
    let items: Vec<Bound<'py, PyAny>> = if let Ok(items) = result.cast::<PyTuple>() {
        items.iter().collect()
    } else if let Ok(items) = result.cast::<PyList>() {
        items.iter().collect()
    } else {
        return Ok(result);
    };
    let made = items.iter().map(|item| converted(item.clone(), class)).collect::<PyResult<Vec<_>>>()?;
    if made.iter().zip(&items).all(|(a, b)| a.is(b)) {
        return Ok(result);
    }
    match result.getattr_opt("_make")? {
        Some(make) => make.call1((made,)),
        None => result.get_type().call1((PyList::new(py, made)?,)),
    }
}

/// Attributes whose values are given as they are: others have them, too.
const AS_THEY_ARE: [&str; 2] = ["grad", "_base"];

fn is_as_it_is(function: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = function.py();
    if function.is_instance_of::<pyo3::types::PyCFunction>() {
        return Ok(false);
    }
    let class = py.get_type::<PyTensor>();
    for name in AS_THEY_ARE {
        if function.eq(class.getattr(name)?.getattr("__get__")?)? {
            return Ok(true);
        }
    }
    Ok(false)
}

#[pymethods]
impl PyTensor {
    /// Calls `func` and makes tensors among its results instances of this class: what functions, methods, operators and
    /// attributes do where a subclass of `Tensor` is among the arguments.
    ///
    /// A subclass that defines it is asked instead, with the public function that was called, the classes among the
    /// arguments that are asked, and the arguments; `super().__torch_function__(func, types, args, kwargs)` is this one.
    /// It gives `NotImplemented` where one of `types` is no base of this class, as PyTorch does.
    #[classmethod]
    #[pyo3(signature = (func, types, args=None, kwargs=None))]
    fn __torch_function__<'py>(
        cls: &Bound<'py, PyType>,
        func: &Bound<'py, PyAny>,
        types: &Bound<'py, PyAny>,
        args: Option<&Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> Object<'py> {
        let py = cls.py();
        if super::is_function_of_pytorch(func) {
            let args = args.map_or(Ok(PyTuple::empty(py)), |args| {
                PyTuple::new(py, args.try_iter()?.collect::<PyResult<Vec<_>>>()?)
            })?;
            return super::of_pytorch(func, &args, kwargs);
        }
        for kind in types.try_iter()? {
            if !cls.is_subclass(&kind?)? {
                return Ok(PyNotImplemented::get(py).to_owned().into_any());
            }
        }
        let args = match args {
            None => PyTuple::empty(py),
            Some(args) => PyTuple::new(py, args.try_iter()?.collect::<PyResult<Vec<_>>>()?)?,
        };
        let _quiet = modes::quiet();
        let result = func.call(args, kwargs)?;
        match cls.is(py.get_type::<PyTensor>()) || is_as_it_is(func)? {
            true => Ok(result),
            false => converted(result, cls),
        }
    }
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(_left_alone, m)?)?;
    let handler = wrap_pyfunction!(_disabled_torch_function_impl, m)?;
    LEFT_ALONE.get_or_init(m.py(), || handler.clone().into_any().unbind());
    m.add_function(handler)
}
