//! The look at the arguments' types, before every function of the module and every method and property of `Tensor`.
//!
//! PyO3's functions are given to Python anew, each behind a function of its own with the same convention: it compares types
//! and goes on. The Python objects keep their kind, name, signature and documentation. `unsafe` is allowed here, since these
//! are functions that Python calls; each block says why it is sound. Invariant: what is wrapped lives as long as the process.
#![allow(unsafe_code)]
#![warn(unsafe_op_in_unsafe_fn)]

use super::{call, modes, older, property, OverloadArgs};
use crate::tensor::PyTensor;
use pyo3::exceptions::{PySystemError, PyTypeError};
use pyo3::ffi::{self, PyObject, Py_ssize_t};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCFunction, PyDict, PyTuple, PyType};
use pyo3::PyTypeInfo;
use std::collections::HashMap;
use std::ffi::{c_int, c_void, CString};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

// ---- types -----------------------------------------------------------------------------------------------------------

/// `Tensor` itself, then classes that are left alone. None is ever freed.
static ORDINARY: [AtomicPtr<ffi::PyTypeObject>; 12] = [const { AtomicPtr::new(ptr::null_mut()) }; 12];
static ORDINARY_COUNT: AtomicUsize = AtomicUsize::new(0);

/// Adds a class whose instances are never asked.
pub fn add_ordinary(class: &Bound<'_, PyType>) {
    // The GIL is held: nobody else is adding.
    let n = ORDINARY_COUNT.load(Ordering::Relaxed);
    if n < ORDINARY.len() {
        ORDINARY[n].store(class.clone().into_ptr().cast(), Ordering::Relaxed);
        ORDINARY_COUNT.store(n + 1, Ordering::Relaxed);
    }
}

/// Is an object of this type handled here alone, whatever it holds?
///
/// # Safety
/// `kind` is the type of a live object.
#[inline(always)]
unsafe fn is_ordinary_kind(kind: *mut ffi::PyTypeObject) -> bool {
    if kind == ORDINARY[0].load(Ordering::Relaxed) {
        return true;
    }
    // SAFETY: as the caller says.
    unsafe { is_other_ordinary_kind(kind) }
}

/// # Safety
/// As [`is_ordinary_kind`].
#[inline(never)]
unsafe fn is_other_ordinary_kind(kind: *mut ffi::PyTypeObject) -> bool {
    const SEQUENCES: std::ffi::c_ulong = ffi::Py_TPFLAGS_TUPLE_SUBCLASS | ffi::Py_TPFLAGS_LIST_SUBCLASS;
    // SAFETY: the type of a live object is live.
    let flags = unsafe { ffi::PyType_GetFlags(kind) };
    // Only classes made at run time can have a handler: Python's own objects have none.
    if flags & ffi::Py_TPFLAGS_HEAPTYPE == 0 {
        return flags & SEQUENCES == 0;
    }
    let known = ORDINARY_COUNT.load(Ordering::Relaxed);
    ORDINARY[..known.min(ORDINARY.len())].iter().any(|o| o.load(Ordering::Relaxed) == kind)
}

/// # Safety
/// `object` is a live object, the GIL is held.
#[inline(always)]
pub(super) unsafe fn is_ordinary(object: *mut PyObject) -> bool {
    // SAFETY: as the caller says.
    unsafe { is_ordinary_kind(ffi::Py_TYPE(object)) || is_ordinary_sequence(object) }
}

/// A list or a tuple of nothing else.
///
/// # Safety
/// As [`is_ordinary`].
#[inline(never)]
unsafe fn is_ordinary_sequence(object: *mut PyObject) -> bool {
    // SAFETY: the object is live; places are below the sizes, and nothing runs in between that could change the list.
    unsafe {
        let plain = |item: *mut PyObject| {
            let kind = ffi::Py_TYPE(item);
            is_ordinary_kind(kind) || ffi::PyType_GetFlags(kind) & ffi::Py_TPFLAGS_HEAPTYPE == 0
        };
        if ffi::PyTuple_CheckExact(object) != 0 {
            (0..ffi::PyTuple_Size(object)).all(|i| plain(ffi::PyTuple_GetItem(object, i)))
        } else if ffi::PyList_CheckExact(object) != 0 {
            (0..ffi::PyList_Size(object)).all(|i| plain(ffi::PyList_GetItem(object, i)))
        } else {
            false
        }
    }
}

/// Is nobody asked because of this object, and no mode on?
#[inline]
pub fn ordinary(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: a bound object is live, and the GIL is held.
    modes::none_anywhere() && unsafe { is_ordinary(object.as_ptr()) }
}

/// Has the object's type no handler?
pub fn ordinary_kind(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: a bound object is live.
    unsafe { is_ordinary_kind(ffi::Py_TYPE(object.as_ptr())) }
}

// ---- functions and methods -------------------------------------------------------------------------------------------

/// A function that is wrapped: PyO3's, and the object that Python has.
struct Entry {
    inner: AtomicPtr<c_void>,
    public: AtomicPtr<PyObject>,
}

impl Entry {
    const fn empty() -> Entry {
        Entry { inner: AtomicPtr::new(ptr::null_mut()), public: AtomicPtr::new(ptr::null_mut()) }
    }
}

/// Gives what a call comes to: an answer, an error, or the wrapped function's result where nobody is asked.
///
/// # Safety
/// The GIL is held.
pub(super) unsafe fn settle(
    ask: impl for<'py> FnOnce(Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>>,
    go_on: impl FnOnce() -> *mut PyObject,
) -> *mut PyObject {
    // SAFETY: as the caller says.
    let py = unsafe { Python::assume_attached() };
    match catch_unwind(AssertUnwindSafe(|| ask(py))) {
        Ok(Ok(None)) => go_on(),
        Ok(Ok(Some(answer))) => answer.into_ptr(),
        Ok(Err(e)) => {
            e.restore(py);
            ptr::null_mut()
        }
        Err(payload) => {
            crate::errors::panicked(py, &*payload).restore(py);
            ptr::null_mut()
        }
    }
}

/// Functions that modes are asked about and classes are not: what they take is data.
const MODES_ONLY: [&str; 3] = ["tensor", "as_tensor", "full"];

/// The method that makes instances of classes, and of `Tensor` from theirs.
const NEVER: &str = "as_subclass";

/// Asks for a function or a method. `slf` is the module or the tensor.
///
/// # Safety
/// `slf` is live, `public` too, the GIL is held.
unsafe fn ask<'py>(
    py: Python<'py>,
    public: *mut PyObject,
    slf: *mut PyObject,
    positional: &[Bound<'py, PyAny>],
    named: Option<&Bound<'py, PyDict>>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    // SAFETY: as the caller says.
    let (function, slf) = unsafe { (Bound::from_borrowed_ptr(py, public), Bound::from_borrowed_ptr(py, slf)) };
    let own = slf.is_instance_of::<PyTensor>().then_some(&slf);
    let values: Vec<_> = named.map(|n| n.values().iter().collect()).unwrap_or_default();
    let all = own.into_iter().chain(positional);
    let asked = match MODES_ONLY.contains(&function.getattr("__name__")?.extract::<String>()?.as_str()) {
        true => OverloadArgs::of(std::iter::empty())?,
        false => OverloadArgs::of(all.clone().chain(&values))?,
    };
    let Some(asked) = asked else { return Ok(None) };
    static PUBLIC: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let function = match own {
        Some(_) => function,
        None => PUBLIC.import(py, "lucid._public_names", "public")?.call1((function,))?,
    };
    call(&function, asked, &PyTuple::new(py, all.collect::<Vec<_>>())?, named).map(Some)
}

/// # Safety
/// Python calls it, as its convention says; `entry` is filled.
#[inline(never)]
unsafe fn is_ordinary_call(
    slf: *mut PyObject,
    args: *const *mut PyObject,
    count: Py_ssize_t,
    names: *mut PyObject,
) -> bool {
    // SAFETY: Python gives `count` positional arguments and one for each name.
    unsafe {
        let named = if names.is_null() { 0 } else { ffi::PyTuple_Size(names) };
        modes::none_anywhere() && is_ordinary(slf) && (0..count + named).all(|i| is_ordinary(*args.offset(i)))
    }
}

/// # Safety
/// As [`is_ordinary_call`].
#[allow(clippy::type_complexity)]
unsafe fn taken_apart<'py>(
    py: Python<'py>,
    args: *const *mut PyObject,
    count: Py_ssize_t,
    names: *mut PyObject,
) -> PyResult<(Vec<Bound<'py, PyAny>>, Option<Bound<'py, PyDict>>)> {
    // SAFETY: Python gives `count` positional arguments and one for each name, all live during the call.
    unsafe {
        let at = |i: Py_ssize_t| Bound::from_borrowed_ptr(py, *args.offset(i));
        let positional: Vec<_> = (0..count).map(at).collect();
        if names.is_null() {
            return Ok((positional, None));
        }
        let named = PyDict::new(py);
        let names = Bound::from_borrowed_ptr(py, names).cast_into::<PyTuple>()?;
        for (i, name) in names.iter().enumerate() {
            named.set_item(name, at(count + i as Py_ssize_t))?;
        }
        Ok((positional, Some(named)))
    }
}

/// What a call comes to that the function refused: with its arguments in the row's order, if they were in an older one.
///
/// # Safety
/// As [`is_ordinary_call`]; an error is set.
#[cold]
unsafe fn refused(
    entry: &Entry,
    slf: *mut PyObject,
    args: *const *mut PyObject,
    count: Py_ssize_t,
    names: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: as the caller says.
    unsafe {
        settle(
            |py| {
                let error = PyErr::fetch(py);
                if !error.is_instance_of::<PyTypeError>(py) {
                    return Err(error);
                }
                let (positional, named) = taken_apart(py, args, count, names)?;
                let (public, slf) = (entry.public.load(Ordering::Relaxed), Bound::from_borrowed_ptr(py, slf));
                let function = Bound::from_borrowed_ptr(py, public);
                let own = slf.is_instance_of::<PyTensor>().then_some(&slf);
                match older::arranged(&function, own, &positional, named.as_ref())? {
                    Some((args, kwargs)) => function.call(args, Some(&kwargs)).map(Some),
                    None => Err(error),
                }
            },
            ptr::null_mut,
        )
    }
}

/// # Safety
/// As [`is_ordinary_call`].
#[cold]
unsafe fn ask_fast(
    entry: &Entry,
    inner: ffi::PyCFunctionFastWithKeywords,
    slf: *mut PyObject,
    args: *const *mut PyObject,
    count: Py_ssize_t,
    names: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: Python gives `count` positional arguments and one for each name, all live during the call.
    unsafe {
        settle(
            |py| {
                let (positional, named) = taken_apart(py, args, count, names)?;
                ask(py, entry.public.load(Ordering::Relaxed), slf, &positional, named.as_ref())
            },
            || match inner(slf, args, count, names) {
                made if made.is_null() => refused(entry, slf, args, count, names),
                made => made,
            },
        )
    }
}

/// The function before one that takes an array of arguments.
unsafe extern "C" fn fast<const R: usize, const C: usize>(
    slf: *mut PyObject,
    args: *const *mut PyObject,
    count: Py_ssize_t,
    names: *mut PyObject,
) -> *mut PyObject {
    let entry = &FAST[R * WIDTH + C];
    // SAFETY: it was filled with a function of this convention before Python had this one; the rest is passed on.
    unsafe {
        let inner =
            std::mem::transmute::<*mut c_void, ffi::PyCFunctionFastWithKeywords>(entry.inner.load(Ordering::Relaxed));
        match is_ordinary_call(slf, args, count, names) {
            true => match inner(slf, args, count, names) {
                made if made.is_null() => refused(entry, slf, args, count, names),
                made => made,
            },
            false => ask_fast(entry, inner, slf, args, count, names),
        }
    }
}

/// The function before one without arguments.
unsafe extern "C" fn bare<const R: usize, const C: usize>(slf: *mut PyObject, none: *mut PyObject) -> *mut PyObject {
    let entry = &BARE[R * WIDTH + C];
    // SAFETY: as in `fast`.
    unsafe {
        let inner = std::mem::transmute::<*mut c_void, ffi::PyCFunction>(entry.inner.load(Ordering::Relaxed));
        match modes::none_anywhere() && is_ordinary(slf) {
            true => inner(slf, none),
            false => settle(|py| ask(py, entry.public.load(Ordering::Relaxed), slf, &[], None), || inner(slf, none)),
        }
    }
}

/// The function before one that takes a tuple and a dict.
unsafe extern "C" fn packed<const R: usize, const C: usize>(
    slf: *mut PyObject,
    args: *mut PyObject,
    kwargs: *mut PyObject,
) -> *mut PyObject {
    let entry = &PACKED[R * WIDTH + C];
    // SAFETY: as in `fast`.
    unsafe {
        let inner =
            std::mem::transmute::<*mut c_void, ffi::PyCFunctionWithKeywords>(entry.inner.load(Ordering::Relaxed));
        if modes::none_anywhere() && is_ordinary(slf) && kwargs.is_null() && holds_ordinary(args) {
            return inner(slf, args, kwargs);
        }
        settle(
            |py| {
                let positional: Vec<_> = Bound::from_borrowed_ptr(py, args).cast_into::<PyTuple>()?.iter().collect();
                let named = Bound::from_borrowed_ptr_or_opt(py, kwargs).map(|k| k.cast_into::<PyDict>()).transpose()?;
                ask(py, entry.public.load(Ordering::Relaxed), slf, &positional, named.as_ref())
            },
            || inner(slf, args, kwargs),
        )
    }
}

/// # Safety
/// `args` is a live tuple.
unsafe fn holds_ordinary(args: *mut PyObject) -> bool {
    // SAFETY: places are below the size.
    unsafe { (0..ffi::PyTuple_Size(args)).all(|i| is_ordinary(ffi::PyTuple_GetItem(args, i))) }
}

/// How many wrappers there are in a row of the tables below. A wrapper knows its function by its own place alone.
const WIDTH: usize = 32;

macro_rules! table {
    ($entries:ident $calls:ident: $kind:ty = $wrapper:ident [$($row:literal)*]) => {
        static $entries: [Entry; [$($row),*].len() * WIDTH] = [const { Entry::empty() }; [$($row),*].len() * WIDTH];
        static $calls: [[$kind; WIDTH]; [$($row),*].len()] = [$(table! { @row $wrapper $row }),*];
    };
    (@row $wrapper:ident $row:literal) => {
        table! { @cells $wrapper $row [
            0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
        ] }
    };
    (@cells $wrapper:ident $row:literal [$($cell:literal)*]) => { [$($wrapper::<$row, $cell>),*] };
}
table! { FAST FAST_CALLS: ffi::PyCFunctionFastWithKeywords = fast [
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43
] }
table! { BARE BARE_CALLS: ffi::PyCFunction = bare [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15] }
table! { PACKED PACKED_CALLS: ffi::PyCFunctionWithKeywords = packed [0 1 2 3] }

/// A C string that lives as long as the process.
pub(super) fn lasting(text: String) -> PyResult<*const std::ffi::c_char> {
    Ok(CString::new(text)?.into_raw())
}

/// The documentation as Python reads it: the signature first, where there is one.
fn documentation(object: &Bound<'_, PyAny>, name: &str) -> PyResult<*const std::ffi::c_char> {
    let text = |attribute: &str| -> PyResult<Option<String>> { object.getattr(attribute)?.extract() };
    lasting(match text("__text_signature__")? {
        Some(own) => {
            format!("{name}{}\n--\n\n{}", super::signature::told(name, &own), text("__doc__")?.unwrap_or_default())
        }
        None => text("__doc__")?.unwrap_or_default(),
    })
}

/// Hands out places in the tables.
#[derive(Default)]
struct Places {
    fast: usize,
    bare: usize,
    packed: usize,
}

impl Places {
    /// The definition of the wrapper of a function that Python could call: one of PyO3's, or a method bound to a tensor.
    fn define(
        &mut self,
        key: &str,
        object: &Bound<'_, PyAny>,
        bound: &Bound<'_, PyCFunction>,
    ) -> PyResult<(&'static Entry, *mut ffi::PyMethodDef)> {
        let py = object.py();
        let own: String = object.getattr("__name__")?.extract()?;
        // What stands for a row's own method has another name in Rust.
        let name = if own.starts_with('_') { key.to_string() } else { own };
        // SAFETY: it is such a function.
        let (inner, flags) =
            unsafe { (ffi::PyCFunction_GetFunction(bound.as_ptr()), ffi::PyCFunction_GetFlags(bound.as_ptr())) };
        let inner = inner.ok_or_else(|| PyErr::fetch(py))?;
        let full = || PySystemError::new_err(format!("no place is left to wrap {name}: overrides/wrap.rs has too few"));
        const FAST_FLAGS: c_int = ffi::METH_FASTCALL | ffi::METH_KEYWORDS;
        const PACKED_FLAGS: c_int = ffi::METH_VARARGS | ffi::METH_KEYWORDS;
        let (entry, ml_meth) = match flags {
            FAST_FLAGS => {
                let i = self.fast;
                self.fast += 1;
                let call = FAST_CALLS.get(i / WIDTH).ok_or_else(full)?[i % WIDTH];
                (&FAST[i], ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: call })
            }
            ffi::METH_NOARGS => {
                let i = self.bare;
                self.bare += 1;
                let call = BARE_CALLS.get(i / WIDTH).ok_or_else(full)?[i % WIDTH];
                (&BARE[i], ffi::PyMethodDefPointer { PyCFunction: call })
            }
            PACKED_FLAGS => {
                let i = self.packed;
                self.packed += 1;
                let call = PACKED_CALLS.get(i / WIDTH).ok_or_else(full)?[i % WIDTH];
                (&PACKED[i], ffi::PyMethodDefPointer { PyCFunctionWithKeywords: call })
            }
            _ => return Err(PySystemError::new_err(format!("{name} has a calling convention that is not known"))),
        };
        entry.inner.store(inner as *mut c_void, Ordering::Relaxed);
        let ml_name = lasting(name.clone())?;
        let ml_doc = documentation(object, &name)?;
        Ok((entry, Box::into_raw(Box::new(ffi::PyMethodDef { ml_name, ml_meth, ml_flags: flags, ml_doc }))))
    }

    fn function<'py>(&mut self, key: &str, object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = object.py();
        let (entry, definition) = self.define(key, object, object.cast::<PyCFunction>()?)?;
        let module = object.getattr("__module__")?;
        // SAFETY: the definition is never freed, and Python counts the two objects itself.
        let made = unsafe {
            let slf = ffi::PyCFunction_GetSelf(object.as_ptr());
            Bound::from_owned_ptr_or_err(py, ffi::PyCFunction_NewEx(definition, slf, module.as_ptr()))?
        };
        entry.public.store(made.clone().into_ptr(), Ordering::Relaxed);
        Ok(made)
    }

    fn method<'py>(
        &mut self,
        key: &str,
        object: &Bound<'py, PyAny>,
        some: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = object.py();
        let bound = object.call_method1("__get__", (some,))?;
        let (entry, definition) = self.define(key, object, bound.cast::<PyCFunction>()?)?;
        // SAFETY: the definition is never freed, and its function takes what PyO3's took as a method of this class.
        let made = unsafe {
            let class = PyTensor::type_object_raw(py);
            Bound::from_owned_ptr_or_err(py, ffi::PyDescr_NewMethod(class, definition))?
        };
        entry.public.store(made.clone().into_ptr(), Ordering::Relaxed);
        Ok(made)
    }
}

// ---- all of them -----------------------------------------------------------------------------------------------------

/// What a module has of each kind: by the kind's name, since the types of descriptors have no safe one.
fn kind_of(object: &Bound<'_, PyAny>) -> PyResult<String> {
    object.get_type().name()?.extract()
}

/// Wraps the public functions of the module, and the methods and properties of `Tensor`. What had two names has them still.
pub fn everything(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = m.py();
    let class = py.get_type::<PyTensor>();
    add_ordinary(&class);
    for name in ["dtype", "device", "memory_format", "layout", "Generator"] {
        add_ordinary(m.getattr(name)?.cast::<PyType>()?);
    }
    let some =
        crate::tensor::wrap(py, crate::engine_call::quick(py, || lucid::ops::create::empty(&[0], None, None, None))?)?;
    let mut places = Places::default();
    let mut made: HashMap<usize, Bound<'_, PyAny>> = HashMap::new();
    let own = class.getattr("__dict__")?.call_method0("copy")?.cast_into::<PyDict>()?;
    for (name, object) in own.iter() {
        let kind = kind_of(&object)?;
        let text: String = name.extract()?;
        let dunder = text.starts_with("__");
        // Methods with an underscore are what Lucid's own code calls.
        let asked_about = dunder || !text.starts_with('_') && text != NEVER;
        let new = match (made.get(&(object.as_ptr() as usize)), kind.as_str()) {
            (Some(known), _) => known.clone(),
            (None, "method_descriptor") if asked_about => places.method(&text, &object, &some)?,
            (None, "getset_descriptor") if !dunder => property::wrapped(&object)?,
            _ => continue,
        };
        class.setattr(name.cast::<pyo3::types::PyString>()?, &new)?;
        made.insert(object.as_ptr() as usize, new);
    }
    for (name, object) in m.dict().copy()?.iter() {
        let name: String = name.extract()?;
        let new = match (made.get(&(object.as_ptr() as usize)), kind_of(&object)?.as_str()) {
            (Some(known), _) => known.clone(),
            (None, "builtin_function_or_method") if !name.starts_with('_') => places.function(&name, &object)?,
            _ => continue,
        };
        m.setattr(name.as_str(), &new)?;
        made.insert(object.as_ptr() as usize, new);
    }
    Ok(())
}
