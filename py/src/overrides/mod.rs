//! `__torch_function__`: who is asked before a function, a method or an attribute of a tensor does its work.
//!
//! [`wrap`] puts a look at the arguments' types before everything that is registered; [`asked`] is that look for operators,
//! which have slots of their own. Both come to [`call`]. Invariant: where all arguments are tensors, parameters or Python's
//! own objects, and no mode is on, nothing is looked up and nothing is kept.

mod default;
mod modes;
mod older;
mod property;
mod signature;
mod wrap;

use crate::errors;
use crate::tensor::PyTensor;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyNotImplemented, PyTuple, PyType};
use std::sync::atomic::AtomicBool;

type Object<'py> = PyResult<Bound<'py, PyAny>>;

/// The handler of an object that has one: what its class says, unless that is to leave it alone.
fn handler<'py>(object: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    if wrap::ordinary_kind(object) {
        return None;
    }
    // PyTorch's own tensors have handlers that know PyTorch's functions alone.
    if !object.is_instance_of::<PyTensor>() && is_of_pytorch(&object.get_type()) {
        return None;
    }
    // As in PyTorch, an error of a lookup says that there is none.
    let found = object.getattr_opt(pyo3::intern!(object.py(), "__torch_function__")).ok().flatten()?;
    (!default::leaves_alone(&found)).then_some(found)
}

/// Is the class, or one that it is derived from, PyTorch's?
fn is_of_pytorch(class: &Bound<'_, PyType>) -> bool {
    class.mro().iter().any(|base| {
        let module = base.getattr(pyo3::intern!(base.py(), "__module__")).and_then(|m| m.extract::<String>());
        module.is_ok_and(|m| m == "torch" || m.starts_with("torch."))
    })
}

/// Is it a function, method or attribute of PyTorch's, which asks our tensors' class what to do?
fn is_function_of_pytorch(function: &Bound<'_, PyAny>) -> bool {
    let py = function.py();
    fn part<'py>(object: &Bound<'py, PyAny>, name: &str) -> Option<Bound<'py, PyAny>> {
        object.getattr_opt(name).ok().flatten()
    }
    let named = |object: &Bound<'_, PyAny>| {
        let module = part(object, "__module__").or_else(|| part(object, "__name__"));
        let module = module.and_then(|m| m.extract::<String>().ok());
        module.is_some_and(|m| m == "torch" || m.starts_with("torch."))
    };
    let owned = |object: &Bound<'_, PyAny>| part(object, "__objclass__").is_some_and(|class| named(&class));
    // What a descriptor's `__get__` is bound to, or the class that functions in C are bound to.
    let bound = part(function, "__self__").filter(|bound| !bound.is(py.None().bind(py)));
    named(function) || owned(function) || bound.is_some_and(|bound| named(&bound) || owned(&bound))
}

/// The error of tensors of ours in PyTorch's function.
fn not_ours(py: Python<'_>, function: &Bound<'_, PyAny>) -> PyErr {
    let name = function.getattr("__name__").and_then(|n| n.extract::<String>()).unwrap_or_else(|_| "function".into());
    let why = format!(
        "PyTorch's {name} was called with a lucid.Tensor: use Lucid's function, with lucid.as_tensor(x) for each tensor x of \
         PyTorch's, or torch.from_dlpack(x) for each one of Lucid's"
    );
    errors::type_error(py, why)
}

/// `x.copy_(y)` of PyTorch's with a tensor of ours as `y`, which its `load_state_dict` calls; the other functions are refused.
fn of_pytorch<'py>(
    function: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    named: Option<&Bound<'py, PyDict>>,
) -> Object<'py> {
    let py = function.py();
    let is_copy = function.getattr("__name__").is_ok_and(|n| n.eq("copy_").unwrap_or(false));
    match args.get_item(0) {
        Ok(target) if is_copy && !target.is_instance_of::<PyTensor>() => {
            py.import("lucid._interop")?.getattr("copy_to_pytorch")?.call(args, named)
        }
        _ => Err(not_ours(py, function)),
    }
}

/// Refuses a tensor of PyTorch's as the other side of an operator, whose own operator would ask ours again.
#[cold]
pub fn refuse_pytorch(name: &str, other: &Bound<'_, PyAny>) -> PyResult<()> {
    let is_tensor = !other.is_instance_of::<PyTensor>()
        && is_of_pytorch(&other.get_type())
        && other.hasattr(pyo3::intern!(other.py(), "__torch_function__"))?;
    if !is_tensor {
        return Ok(());
    }
    let why = format!(
        "{name}: expected a lucid.Tensor or a number beside a lucid.Tensor, got a tensor of PyTorch's; convert it with \
         lucid.as_tensor(x)"
    );
    Err(errors::type_error(other.py(), why))
}

/// The objects with a handler among arguments and in their lists and tuples, one per class, subclasses before their bases.
#[derive(Default)]
struct OverloadArgs<'py>(Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)>);

impl<'py> OverloadArgs<'py> {
    fn see(&mut self, object: &Bound<'py, PyAny>) -> PyResult<()> {
        match handler(object) {
            Some(handler) => self.add(object, handler),
            None => Ok(()),
        }
    }

    fn add(&mut self, object: &Bound<'py, PyAny>, handler: Bound<'py, PyAny>) -> PyResult<()> {
        let class = object.get_type();
        if self.0.iter().any(|(known, _)| known.get_type().is(&class)) {
            return Ok(());
        }
        let mut place = self.0.len();
        for (i, (known, _)) in self.0.iter().enumerate() {
            if class.is_subclass(&known.get_type())? {
                place = i;
                break;
            }
        }
        self.0.insert(place, (object.clone(), handler));
        Ok(())
    }

    /// The argument, or what is in it.
    fn look(&mut self, object: &Bound<'py, PyAny>) -> PyResult<()> {
        self.see(object)?;
        if let Ok(items) = object.cast::<PyTuple>() {
            items.iter_borrowed().try_for_each(|item| self.see(&item))
        } else if let Ok(items) = object.cast::<PyList>() {
            items.iter().try_for_each(|item| self.see(&item))
        } else {
            Ok(())
        }
    }

    /// Whom a call with these arguments asks; `None` where it asks nobody.
    fn of<'a>(arguments: impl Iterator<Item = &'a Bound<'py, PyAny>>) -> PyResult<Option<OverloadArgs<'py>>>
    where
        'py: 'a,
    {
        let mut asked = OverloadArgs::default();
        if modes::subclasses_are_asked() {
            for argument in arguments {
                asked.look(argument)?;
            }
        }
        Ok((!asked.0.is_empty() || modes::is_on()).then_some(asked))
    }
}

/// The name of a function as messages have it.
fn shown(function: &Bound<'_, PyAny>) -> String {
    let part = |name: &str| function.getattr(name).ok().and_then(|n| n.extract::<String>().ok());
    let name = part("__qualname__").or_else(|| part("__name__")).unwrap_or_else(|| function.to_string());
    match part("__module__") {
        Some(module) => format!("{}.{name}", module.replace("lucid._C", "lucid")),
        None => format!("lucid.{name}"),
    }
}

const PLAIN: &str =
    "Defining your `__torch_function__` as a plain method is deprecated, please define it as a classmethod.";

/// Is the handler a method of the object, and not of its class?
fn is_plain(object: &Bound<'_, PyAny>, handler: &Bound<'_, PyAny>) -> bool {
    let owner = handler.getattr_opt(pyo3::intern!(object.py(), "__self__"));
    owner.ok().flatten().is_some_and(|owner| owner.is(object))
}

/// [`answer`], with a warning where a handler is an object's own method.
fn call<'py>(
    function: &Bound<'py, PyAny>,
    asked: OverloadArgs<'py>,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> Object<'py> {
    static GIVEN: AtomicBool = AtomicBool::new(false);
    if asked.0.iter().any(|(object, handler)| is_plain(object, handler)) {
        crate::warn::once(function.py(), &GIVEN, PLAIN)?;
    }
    answer(function, asked, args, kwargs)
}

/// Asks the innermost mode, then each object's handler, and gives the first answer.
fn answer<'py>(
    function: &Bound<'py, PyAny>,
    asked: OverloadArgs<'py>,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> Object<'py> {
    let py = function.py();
    let types = PyTuple::new(py, asked.0.iter().map(|(object, _)| object.get_type()))?;
    let empty = PyDict::new(py);
    let arguments = (function, types, args, kwargs.unwrap_or(&empty));
    let mut mode = None;
    if let Some(suspended) = modes::suspend() {
        let answer = suspended.mode(py).call_method1("__torch_function__", arguments.clone())?;
        if !answer.is(PyNotImplemented::get(py)) {
            return Ok(answer);
        }
        mode = Some(suspended.mode(py).repr()?.to_string());
    }
    for (_, handler) in &asked.0 {
        let answer = handler.call1(arguments.clone())?;
        if !answer.is(PyNotImplemented::get(py)) {
            return Ok(answer);
        }
    }
    let mut why = format!(
        "Multiple dispatch failed for '{}'; all __torch_function__ handlers returned NotImplemented:\n",
        shown(function)
    );
    if let Some(mode) = mode {
        why.push_str(&format!("\n  - mode object {mode}"));
    }
    for (object, _) in &asked.0 {
        let what = if object.is_instance_of::<PyTensor>() { "tensor subclass" } else { "class" };
        why.push_str(&format!("\n  - {what} {}", object.get_type().repr()?));
    }
    Err(errors::type_error(py, why))
}

/// Calls a function by the handlers of `relevant_args`: a mode's first, then those of the objects.
#[doc = lucid::op_doc!(python handle_torch_function)]
#[pyfunction]
#[pyo3(signature = (public_api, relevant_args, /, *args, **kwargs))]
fn _handle_torch_function<'py>(
    public_api: &Bound<'py, PyAny>,
    relevant_args: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> Object<'py> {
    let mut asked = OverloadArgs::default();
    if modes::subclasses_are_asked() {
        for object in relevant_args.try_iter()? {
            let object = object?;
            // As in PyTorch, functions in Python name `Tensor` among the classes, too, and it leaves the call to the others.
            match object.is_exact_instance_of::<PyTensor>() {
                true => asked.add(&object, object.getattr(pyo3::intern!(object.py(), "__torch_function__"))?)?,
                false => asked.see(&object)?,
            }
        }
    }
    // PyTorch's functions in Python warn of it each time, and otherwise.
    for _ in asked.0.iter().filter(|(object, handler)| is_plain(object, handler)) {
        crate::warn::of::<pyo3::exceptions::PyDeprecationWarning>(public_api.py(), PLAIN)?;
    }
    answer(public_api, asked, args, kwargs)
}

/// What `__torch_function__` makes of a slot's call; `None` where nobody is asked. The name is that of the attribute of
/// `Tensor` that stands for it.
#[inline]
pub fn asked<'py>(
    slf: &Bound<'py, PyTensor>,
    name: &str,
    others: &[&Bound<'py, PyAny>],
) -> PyResult<Option<Bound<'py, PyAny>>> {
    if wrap::ordinary(slf.as_any()) && others.iter().all(|o| wrap::ordinary(o)) {
        return Ok(None);
    }
    ask(slf, name, others)
}

#[cold]
fn ask<'py>(
    slf: &Bound<'py, PyTensor>,
    name: &str,
    others: &[&Bound<'py, PyAny>],
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = slf.py();
    let all = || std::iter::once(slf.as_any()).chain(others.iter().copied());
    let Some(asked) = OverloadArgs::of(all())? else { return Ok(None) };
    let function = py.get_type::<PyTensor>().getattr(name)?;
    call(&function, asked, &PyTuple::new(py, all().collect::<Vec<_>>())?, None).map(Some)
}

/// [`asked`] for a two-sided operator: a TypeError becomes `NotImplemented`, so that Python asks the other side.
#[inline]
pub fn asked_operator<'py>(
    slf: &Bound<'py, PyTensor>,
    name: &str,
    other: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    if wrap::ordinary(slf.as_any()) && wrap::ordinary(other) {
        return Ok(None);
    }
    refuse_pytorch(name, other)?;
    match ask(slf, name, &[other]) {
        Err(e) if e.is_instance_of::<pyo3::exceptions::PyTypeError>(slf.py()) => {
            Ok(Some(PyNotImplemented::get(slf.py()).to_owned().into_any()))
        }
        answer => answer,
    }
}

/// Has the object's class nothing to say? Then it is handled here alone.
pub fn is_ordinary(object: &Bound<'_, PyAny>) -> bool {
    wrap::ordinary(object)
}

/// Is anyone asked where these are arguments?
#[pyfunction]
fn _has_torch_function(relevant_args: &Bound<'_, PyAny>) -> PyResult<bool> {
    if let Ok(items) = relevant_args.cast::<PyTuple>()
        && items.iter_borrowed().all(|item| wrap::ordinary(&item))
    {
        return Ok(false);
    }
    let relevant = relevant_args.try_iter()?.collect::<PyResult<Vec<_>>>()?;
    let own = relevant.iter().any(|object| handler(object).is_some());
    Ok(modes::is_on() || own && modes::subclasses_are_asked())
}

/// Has its class a `__torch_function__` of a kind that is asked?
#[pyfunction]
fn _overrides(object: &Bound<'_, PyAny>) -> bool {
    handler(object).is_some()
}

/// Set once all is wrapped: the tables hold the functions of one module.
static WRAPPED: PyOnceLock<()> = PyOnceLock::new();

/// Puts the look at the arguments before all that is registered so far: what the module adds later is not asked for.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = m.py();
    modes::register(m)?;
    default::register(m)?;
    if WRAPPED.set(py, ()).is_ok() {
        wrap::everything(m)?;
    }
    m.add_function(wrap_pyfunction!(_has_torch_function, m)?)?;
    m.add_function(wrap_pyfunction!(_overrides, m)?)?;
    m.add_function(wrap_pyfunction!(_handle_torch_function, m)?)
}
