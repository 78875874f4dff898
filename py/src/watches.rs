//! Whether what a compiled function reaches is still there: looked at before every call, and so by identity alone, without a
//! step in Python.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use pyo3::{intern, Borrowed};

/// Are these objects the very same ones, in number too?
fn same<'a, 'py: 'a>(
    now: impl Iterator<Item = Bound<'py, PyAny>>,
    then: impl Iterator<Item = Borrowed<'a, 'py, PyAny>>,
) -> bool {
    now.zip(then).all(|(now, then)| now.is(then))
}

/// Is what one watch saw still there? See [`_unchanged`].
fn holds(watch: &Bound<'_, PyTuple>) -> PyResult<bool> {
    let py = watch.py();
    let kind = watch.get_borrowed_item(0)?;
    let owner = watch.get_borrowed_item(1)?;
    let then = watch.get_borrowed_item(2)?;
    let then = then.cast::<PyTuple>()?;
    let is = |name: &Bound<'_, PyString>, i: usize| -> PyResult<bool> {
        Ok(owner.getattr(name)?.is(then.get_borrowed_item(i)?))
    };
    Ok(match kind.cast::<PyString>()?.to_cow()?.as_ref() {
        "values" => {
            let owner = owner.cast::<PyDict>()?;
            owner.len() == then.len() && same(owner.iter().map(|(_, value)| value), then.iter_borrowed())
        }
        "items" => {
            let owner = owner.cast::<PyList>()?;
            owner.len() == then.len() && same(owner.iter(), then.iter_borrowed())
        }
        // Names, and what each stood for: nothing where it stood for nothing.
        "names" => {
            let (owner, names) = (owner.cast::<PyDict>()?, watch.get_borrowed_item(3)?);
            for (name, then) in names.cast::<PyTuple>()?.iter_borrowed().zip(then.iter_borrowed()) {
                match owner.get_item(name)? {
                    Some(now) if now.is(then) => {}
                    None if then.is_none() => {}
                    _ => return Ok(false),
                }
            }
            true
        }
        "cell" => is(intern!(py, "cell_contents"), 0)?,
        "function" => {
            is(intern!(py, "__code__"), 0)?
                && is(intern!(py, "__defaults__"), 1)?
                && is(intern!(py, "__kwdefaults__"), 2)?
        }
        "type" => owner.get_type().is(then.get_borrowed_item(0)?),
        other => return Err(PyTypeError::new_err(format!("no watch of this kind: {other}"))),
    })
}

/// Is all that watches saw still there? A watch is a tuple of what is looked at ("values" of a dict, "items" of a list, what
/// "names" stand for in a dict, a closure's "cell", a "function", the "type" of an object), the object, and what it held then;
/// of names, and the names.
#[pyfunction]
fn _unchanged(watches: &Bound<'_, PyList>) -> PyResult<bool> {
    for watch in watches.iter() {
        if !holds(watch.cast::<PyTuple>()?)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Adds the function.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(_unchanged, m)?)
}
