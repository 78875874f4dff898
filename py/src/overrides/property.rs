//! The look at the arguments' types before every property of `Tensor`.
//!
//! As [`wrap`](super::wrap) does for functions: `unsafe` is allowed here, since these are functions that Python calls; each block
//! says why it is sound. Invariant: what is wrapped lives as long as the process.
#![allow(unsafe_code)]
#![warn(unsafe_op_in_unsafe_fn)]

use super::wrap::{is_ordinary, lasting, settle};
use super::{call, modes, OverloadArgs};
use crate::tensor::PyTensor;
use pyo3::exceptions::PySystemError;
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3::PyTypeInfo;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A property that is wrapped.
struct Property {
    inner: *mut PyObject,
    get: ffi::descrgetfunc,
    set: ffi::descrsetfunc,
    public: AtomicPtr<PyObject>,
}

/// Asks for a property: `Tensor.name.__get__` and the like are the functions.
///
/// # Safety
/// The GIL is held; the objects are live.
unsafe fn ask_property<'py>(
    py: Python<'py>,
    property: &Property,
    name: &str,
    slf: *mut PyObject,
    value: Option<*mut PyObject>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    // SAFETY: as the caller says.
    let (slf, value, public) = unsafe {
        let value = value.map(|v| Bound::from_borrowed_ptr(py, v));
        let public = Bound::from_borrowed_ptr(py, property.public.load(Ordering::Relaxed));
        (Bound::from_borrowed_ptr(py, slf), value, public)
    };
    // As in PyTorch, the class of a value that is set does not matter.
    let Some(asked) = OverloadArgs::of(std::iter::once(&slf))? else { return Ok(None) };
    call(
        &public.getattr(name)?,
        asked,
        &PyTuple::new(py, std::iter::once(&slf).chain(&value).collect::<Vec<_>>())?,
        None,
    )
    .map(Some)
}

unsafe extern "C" fn get(slf: *mut PyObject, closure: *mut c_void) -> *mut PyObject {
    // SAFETY: the closure is a property that is never freed; its getter is called as Python would.
    unsafe {
        let property = &*closure.cast::<Property>();
        let go_on = || (property.get)(property.inner, slf, ffi::Py_TYPE(slf).cast());
        match modes::none_anywhere() && is_ordinary(slf) {
            true => go_on(),
            false => settle(|py| ask_property(py, property, "__get__", slf, None), go_on),
        }
    }
}

unsafe extern "C" fn set(slf: *mut PyObject, value: *mut PyObject, closure: *mut c_void) -> c_int {
    // SAFETY: as in `get`; no value means that the attribute is deleted.
    unsafe {
        let property = &*closure.cast::<Property>();
        if modes::none_anywhere() && is_ordinary(slf) {
            return (property.set)(property.inner, slf, value);
        }
        let (name, given) = if value.is_null() { ("__delete__", None) } else { ("__set__", Some(value)) };
        let none = || match (property.set)(property.inner, slf, value) {
            0 => Python::assume_attached().None().into_ptr(),
            _ => ptr::null_mut(),
        };
        let answer = settle(|py| ask_property(py, property, name, slf, given), none);
        match answer.is_null() {
            true => -1,
            false => {
                ffi::Py_DECREF(answer);
                0
            }
        }
    }
}

/// The property with the look before it.
pub(super) fn wrapped<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let name: String = object.getattr("__name__")?.extract()?;
    // SAFETY: the slots of a property's type are functions of these types, if they are there; what the definition holds
    // is never freed.
    unsafe {
        let kind = ffi::Py_TYPE(object.as_ptr());
        let get_slot = ffi::PyType_GetSlot(kind, ffi::Py_tp_descr_get);
        let set_slot = ffi::PyType_GetSlot(kind, ffi::Py_tp_descr_set);
        if get_slot.is_null() || set_slot.is_null() {
            return Err(PySystemError::new_err(format!("{name} is no property")));
        }
        let property: &'static Property = Box::leak(Box::new(Property {
            inner: object.clone().into_ptr(),
            get: std::mem::transmute::<*mut c_void, ffi::descrgetfunc>(get_slot),
            set: std::mem::transmute::<*mut c_void, ffi::descrsetfunc>(set_slot),
            public: AtomicPtr::new(ptr::null_mut()),
        }));
        let definition = Box::into_raw(Box::new(ffi::PyGetSetDef {
            name: lasting(name)?,
            get: Some(get),
            set: Some(set),
            doc: lasting(object.getattr("__doc__")?.extract::<Option<String>>()?.unwrap_or_default())?,
            closure: ptr::from_ref(property).cast_mut().cast(),
        }));
        let made = Bound::from_owned_ptr_or_err(py, ffi::PyDescr_NewGetSet(PyTensor::type_object_raw(py), definition))?;
        property.public.store(made.clone().into_ptr(), Ordering::Relaxed);
        Ok(made)
    }
}
