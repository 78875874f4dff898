//! `x[…]` and `x[…] = …`.
//!
//! Integers, slices, `None`, `...` and single booleans give views; index tensors, lists and masks go through the engine's
//! `index` and `index_assign`, which writes in place. The Python part turns the key into [`Item`]s, the rest is engine calls alone.

use super::{wrap, PyTensor};
use crate::args::{operand_of, weight_of, At, HeldOperand};
use crate::create::is_sequence;
use crate::overrides::asked;
use crate::{create, engine_call, errors, results};
use lucid::ops::index::{beside, index};
use lucid::ops::scatter::{check_mask, index_assign};
use lucid::{DType, Device, Error, Operand, Result, Scalar, Tensor};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyComplex, PyEllipsis, PyFloat, PyInt, PySlice, PyString, PyTuple};

/// One part of a key.
enum Item {
    Int(i64),
    Slice { start: Option<i64>, stop: Option<i64>, step: i64 },
    New,
    Ellipsis,
    Bool(bool),
    Tensor(Tensor),
}

impl Item {
    /// How many dimensions it takes up.
    fn takes(&self) -> usize {
        match self {
            Item::Int(_) | Item::Slice { .. } => 1,
            Item::New | Item::Ellipsis | Item::Bool(_) => 0,
            Item::Tensor(t) if is_mask(t) => t.ndim(),
            Item::Tensor(_) => 1,
        }
    }
}

fn is_mask(t: &Tensor) -> bool {
    // uint8 counts as a mask, as PyTorch still has it.
    matches!(t.dtype(), DType::Bool | DType::U8)
}

fn key_items(x: &Tensor, key: &Bound<'_, PyAny>) -> PyResult<Vec<Item>> {
    if let Ok(parts) = key.cast::<PyTuple>() {
        return parts.iter().map(|p| item_of(x, &p)).collect();
    }
    let alone = key.is_instance_of::<PyTensor>() || key.is_instance_of::<PySlice>() || key.is_none();
    match if alone { None } else { standing_for_tuple(key)? } {
        Some(parts) => parts.iter().map(|p| item_of(x, p)).collect(),
        None => Ok(vec![item_of(x, key)?]),
    }
}

/// PyTorch's rule, NumPy's of old: a short sequence that holds a sequence, a tensor, a slice, `...` or `None` is a tuple of
/// indices, not one index of more dimensions.
fn standing_for_tuple<'py>(key: &Bound<'py, PyAny>) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
    // An array is one index, whatever its dimensions.
    if !is_sequence(key)? || key.len().is_ok_and(|n| n >= 32) || key.hasattr("__array__")? {
        return Ok(None);
    }
    let Ok(parts) = (0..key.len().unwrap_or(0)).map(|i| key.get_item(i)).collect::<PyResult<Vec<_>>>() else {
        return Ok(None);
    };
    let one = |p: &Bound<'_, PyAny>| {
        p.is_none()
            || p.is_instance_of::<PyTensor>()
            || p.is_instance_of::<PySlice>()
            || p.is_instance_of::<PyEllipsis>()
            || is_sequence(p).unwrap_or(false)
    };
    if !parts.iter().any(one) {
        return Ok(None);
    }
    let why = "Using a non-tuple sequence for multidimensional indexing is deprecated; use x[tuple(seq)] instead of x[seq], or \
        x[lucid.tensor(seq)] where one index of more dimensions is meant.";
    crate::warn::user(key.py(), why)?;
    Ok(Some(parts))
}

/// The index tensor of a sequence: a mask where it holds truths or bytes, else int64, to which PyTorch casts all others.
fn index_of(x: &Tensor, part: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    let py = part.py();
    let array = part.hasattr("__array__")?;
    // An array of a dtype that no tensor has may still hold integers.
    let unsigned = |d: Bound<'_, PyAny>| -> PyResult<bool> {
        Ok(d.getattr("kind")?.eq("u")? && d.getattr("itemsize")?.extract::<usize>()? > 1)
    };
    // Cast where it is: not every device has every dtype.
    let here = Some(Device::Cpu);
    let t = match array && part.getattr("dtype").and_then(unsigned).unwrap_or(false) {
        true => create::tensor_of(&part.call_method1("astype", ("int64",))?, None, here)?,
        false => create::tensor_of(part, None, here)?,
    };
    let t = match t.dtype() {
        DType::I64 | DType::Bool | DType::U8 => t,
        // The elements again, for what is no number or too large.
        _ if !array && t.numel() > 0 => create::tensor_of(part, Some(DType::I64), here)?,
        _ => engine_call::quick(py, || t.cast(DType::I64))?,
    };
    engine_call::quick(py, || t.to_device(x.device()))
}

fn item_of(x: &Tensor, part: &Bound<'_, PyAny>) -> PyResult<Item> {
    let py = part.py();
    if part.is_none() {
        return Ok(Item::New);
    }
    if let Ok(b) = part.cast::<PyBool>() {
        return Ok(Item::Bool(b.is_true()));
    }
    if part.is_instance_of::<PyInt>() {
        return part
            .extract()
            .map(Item::Int)
            .map_err(|_| errors::value_error(py, format!("index {part} does not fit into 64 bits")));
    }
    if let Ok(slice) = part.cast::<PySlice>() {
        let end = |name: &str| -> PyResult<Option<i64>> {
            let v = slice.getattr(name)?;
            if v.is_none() {
                Ok(None)
            } else {
                slice_end(&v).map(Some)
            }
        };
        let step = end("step")?.unwrap_or(1);
        if step < 1 {
            return Err(errors::value_error(py, "slice step must be positive"));
        }
        return Ok(Item::Slice { start: end("start")?, stop: end("stop")?, step });
    }
    if part.is_instance_of::<PyEllipsis>() {
        return Ok(Item::Ellipsis);
    }
    let given = match part.cast::<PyTensor>() {
        Ok(t) => Some(t.get().share()),
        Err(_) if part.is_instance_of::<PyString>() || part.is_instance_of::<PyBytes>() => {
            // It might be meant as a tensor's data, of which PyTorch complains.
            return Err(errors::type_error(py, invalid(part)));
        }
        Err(_) if is_sequence(part)? => Some(index_of(x, part)?),
        Err(_) => None,
    };
    if let Some(t) = given {
        // Within `vmap` one number for each sample gathers, and a truth for each says where a number is written; as an index
        // truths would give results of different shapes, which is refused later.
        let gathers = t.is_batched() && t.dtype() != DType::U8;
        if t.ndim() == 0 && t.dtype().is_integral() && !gathers {
            let t2 = t.clone();
            return Ok(match engine_call::long(py, move || t2.item())? {
                Scalar::Bool(b) => Item::Bool(b),
                s if t.dtype() == DType::U8 => Item::Bool(s.to_bool()),
                s => Item::Int(s.to_i64()),
            });
        }
        if t.dtype() == DType::U8 {
            crate::warn::user(
                py,
                "indexing with dtype lucid.uint8 is now deprecated, please use a dtype lucid.bool instead.",
            )?;
        }
        return Ok(Item::Tensor(t));
    }
    // Whatever has an `__index__`, NumPy's integers among them.
    part.extract().map(Item::Int).map_err(|_| errors::index_error(py, invalid(part)))
}

fn invalid(part: &Bound<'_, PyAny>) -> String {
    let got = crate::args::kind_name(part);
    format!(
        "only integers, slices (`:`), ellipsis (`...`), None and integer or bool tensors are valid indices (got {got})"
    )
}

/// An end of a slice: beyond 64 bits is beyond every tensor.
fn slice_end(v: &Bound<'_, PyAny>) -> PyResult<i64> {
    match v.extract::<i64>() {
        Ok(i) => Ok(i),
        Err(_) if v.is_instance_of::<PyInt>() => Ok(if v.lt(0)? { i64::MIN } else { i64::MAX }),
        Err(_) => {
            let why = "slice indices must be integers or None or have an __index__ method";
            Err(errors::type_error(v.py(), why))
        }
    }
}

/// What the view part of a key shows, and what is left to gather by: dimensions with their index tensors or masks.
struct Resolved {
    view: Tensor,
    dims: Vec<isize>,
    tensors: Vec<Tensor>,
}

fn resolve(x: &Tensor, items: Vec<Item>) -> Result<Resolved> {
    let fail = |why: String| Err(Box::new(Error::IndexOutOfRange { op: "index", why: why.into() }));
    let taken: usize = items.iter().map(Item::takes).sum();
    if taken > x.ndim() {
        return fail(format!("too many indices for tensor of dimension {}", x.ndim()));
    }
    let mut r = Resolved { view: x.clone(), dims: Vec::new(), tensors: Vec::new() };
    let (mut dim, lone) = (0isize, items.len() == 1);
    for item in items {
        // Each `...` skips as many dimensions as one alone would: two leave none for what follows, as in PyTorch.
        let (needed, ndim) = (item.takes(), r.view.ndim());
        if dim as usize + needed > ndim && !matches!(item, Item::Ellipsis) {
            let why = format!(
                "Dimension out of range (expected to be in range of [-{ndim}, {}], but got {dim})",
                ndim as isize - 1
            );
            return fail(why);
        }
        match item {
            Item::Int(i) => {
                let n = r.view.shape()[dim as usize] as i64;
                if i < -n || i >= n {
                    return fail(format!("index {i} is out of bounds for dimension {dim} with size {n}"));
                }
                r.view = r.view.select(dim, i)?;
            }
            // As in PyTorch all of a dimension takes no step, beside others.
            Item::Slice { start: None | Some(0), stop, step: 1 }
                if !lone && stop.is_none_or(|stop| stop >= r.view.shape()[dim as usize] as i64) =>
            {
                dim += 1;
            }
            Item::Slice { start, stop, step } => {
                r.view = slice(&r.view, dim, start, stop, step)?;
                dim += 1;
            }
            Item::New => {
                r.view = r.view.unsqueeze(dim)?;
                dim += 1;
            }
            Item::Ellipsis => dim += (x.ndim() - taken) as isize,
            Item::Bool(b) => {
                r.view = r.view.unsqueeze(dim)?;
                r.dims.push(dim);
                let count = isize::from(b);
                r.tensors.push(lucid::ops::create::zeros(&[count], Some(DType::I64), Some(x.device()))?);
                dim += 1;
            }
            Item::Tensor(t) if is_mask(&t) => {
                check_mask("index", &r.view, dim as usize, &t)?;
                for places in t.nonzero()?.unbind(1)? {
                    r.dims.push(dim);
                    r.tensors.push(places);
                    dim += 1;
                }
            }
            Item::Tensor(t) => {
                r.dims.push(dim);
                r.tensors.push(t);
                dim += 1;
            }
        }
    }
    Ok(r)
}

fn slice(x: &Tensor, dim: isize, start: Option<i64>, stop: Option<i64>, step: i64) -> Result<Tensor> {
    let s = lucid::ops::index::slice_of("slice", x, dim as usize, start, stop, step)?;
    lucid::ops::index::sliced(x, s)
}

/// `x[key]`.
fn get<'py>(slf: &Bound<'py, PyTensor>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = slf.py();
    if key.is_exact_instance_of::<PyInt>() {
        let x = slf.get().read();
        return match key.extract::<i64>() {
            Ok(i) if x.ndim() > 0 => {
                let n = x.shape()[0] as i64;
                if i < -n || i >= n {
                    return Err(errors::index_error(
                        py,
                        format!("index {i} is out of bounds for dimension 0 with size {n}"),
                    ));
                }
                Ok(results::made_of(slf, &x, wrap(py, engine_call::quick(py, || x.select(0, i))?)?))
            }
            Ok(_) => Err(errors::index_error(py, "invalid index of a 0-dim tensor; use tensor.item() for its number")),
            Err(_) => Err(errors::value_error(py, format!("index {key} does not fit into 64 bits"))),
        };
    }
    let x = slf.get().share();
    let items = key_items(&x, key)?;
    let masks = items.iter().any(|i| matches!(i, Item::Tensor(t) if is_mask(t)));
    let weight = if masks { engine_call::LARGE } else { weight_of(&x) };
    let y = engine_call::op(py, weight, || {
        let r = resolve(&x, items)?;
        if r.dims.is_empty() {
            // `x[...]` is another tensor, too.
            if r.view.is_same(&x) {
                x.alias()
            } else {
                Ok(r.view)
            }
        } else {
            index(&r.view, &r.dims, &r.tensors)
        }
    })?;
    Ok(results::made_of(slf, &x, wrap(py, y)?))
}

/// `x[key] = value`.
fn set(slf: &Bound<'_, PyTensor>, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = slf.py();
    let x = slf.get().share();
    engine_call::quick(py, || x.refuse_captured("__setitem__"))?;
    let wrong = || {
        let got = crate::args::kind_name(value);
        errors::type_error(py, format!("can't assign a {got} to a {} tensor", x.dtype()))
    };
    // Python's numbers and NumPy's integers, as in PyTorch: arrays and NumPy's other numbers go through a tensor.
    let number = value.is_instance_of::<PyFloat>()
        || value.is_instance_of::<PyBool>()
        || value.is_instance_of::<PyComplex>()
        || value.hasattr("__index__")? && !is_sequence(value)?;
    if !number && !value.is_instance_of::<PyTensor>() {
        return Err(wrong());
    }
    let Some(value) = operand_of(At { op: "__setitem__", arg: "value" }, value.as_borrowed())? else {
        return Err(wrong());
    };
    if let HeldOperand::Scalar(Scalar::Wide(i)) = value {
        return Err(errors::value_error(py, format!("__setitem__(): {i} does not fit into int64")));
    }
    let mut items = key_items(&x, key)?;
    // A truth alone that is no tensor is no index: it writes all, as `None` does, or nothing.
    if let Ok(truth) = key.cast::<PyBool>() {
        if !truth.is_true() {
            return Ok(());
        }
        items = vec![Item::New];
    }
    let heavy = items.iter().any(|i| matches!(i, Item::Tensor(_)));
    let weight = if heavy { engine_call::LARGE } else { weight_of(&x) };
    // Cloned, so that no lock is held while the GIL is waited for.
    let value = match value {
        HeldOperand::Tensor(t) => Value::Tensor(t.clone()),
        HeldOperand::Scalar(s) => Value::Scalar(s),
    };
    engine_call::op(py, weight, || assign(&x, items, &value))
}

enum Value {
    Tensor(Tensor),
    Scalar(Scalar),
}

fn assign(x: &Tensor, mut items: Vec<Item>, value: &Value) -> Result<()> {
    // One mask and one number need no count of the mask's elements, and so no evaluation.
    if let ([Item::Tensor(mask)], true) = (items.as_slice(), matches!(value, Value::Scalar(_)))
        && mask.dtype() == DType::Bool
        && mask.ndim() <= x.ndim()
        && x.shape()[..mask.ndim()] == *mask.shape()
    {
        let Some(Item::Tensor(mask)) = items.pop() else { return Ok(()) };
        return fill_where(x, &mask, value);
    }
    // PyTorch fills where one mask is all that gathers, and filling casts; what else is put has to have the dtype.
    let fills = match value {
        Value::Tensor(t) if t.numel() == 1 => {
            let mut gather = items.iter().filter(|i| matches!(i, Item::Tensor(_) | Item::Bool(_)));
            matches!((gather.next(), gather.next()), (Some(Item::Tensor(m)), None) if is_mask(m))
        }
        _ => false,
    };
    let r = resolve(x, items)?;
    if r.dims.is_empty() {
        return match value {
            Value::Scalar(s) => r.view.fill_(*s),
            Value::Tensor(t) => {
                let mut t = fitting(t, r.view.ndim())?;
                // Of what it shares memory with, PyTorch sees it repeated: an element of the tensor itself is not refused.
                if t.shape() != r.view.shape() && t.shares_storage(&r.view) {
                    t = t.expand(&super::methods::signed(r.view.shape()))?;
                }
                r.view.copy_(&t)
            }
        };
    }
    let other = |(a, &n): (usize, &usize)| n == 0 && r.dims != [a as isize];
    let lent = |t: &Tensor| match fills && (x.dtype().is_complex() || !t.dtype().is_complex()) {
        true => t.cast(x.dtype()),
        false => Ok(t.clone()),
    };
    let values = match value {
        // As in PyTorch one index and a number fill, and an index into nothing is not looked at.
        Value::Scalar(s) if r.dims.len() == 1 && r.view.shape().iter().enumerate().any(other) => {
            number(*s, x)?;
            return r.view.fill_(*s);
        }
        Value::Scalar(s) => number(*s, x)?,
        Value::Tensor(t) if t.ndim() == 0 => lent(&t.to_device(x.device())?)?,
        Value::Tensor(t) => {
            if t.device() != x.device() {
                let why = "the value and the tensor assigned to must be on one device; move one with .to()".into();
                return Err(Box::new(Error::DeviceMismatch {
                    op: "index_put",
                    why,
                    devices: vec![x.device(), t.device()],
                }));
            }
            let index_ndim = r.tensors.iter().map(Tensor::ndim).max().unwrap_or(0);
            lent(&fitting(t, r.view.ndim() - r.dims.len() + index_ndim)?)?
        }
    };
    index_assign(&r.view, &r.dims, &r.tensors, &values)
}

/// A number as an element of `x`, where it can be one.
fn number(s: lucid::Scalar, x: &Tensor) -> Result<Tensor> {
    match s.converts(x.dtype()) {
        true => Tensor::full_of(&[], s, x.dtype(), x.device()),
        false => {
            let why = format!("value {s} cannot be converted to {} without overflow", x.dtype());
            Err(Box::new(Error::Runtime { op: "index_put", why: why.into() }))
        }
    }
}

fn fill_where(x: &Tensor, mask: &Tensor, value: &Value) -> Result<()> {
    let mut sizes: Vec<isize> = mask.shape().iter().map(|&n| n as isize).collect();
    while sizes.len() < x.ndim() {
        sizes.push(1);
    }
    let mask = beside(x, mask)?.reshape(&sizes)?;
    match value {
        Value::Scalar(s) => {
            let fill = number(*s, x)?;
            x.masked_fill_(&mask, Operand::Tensor(&fill))
        }
        Value::Tensor(t) => x.masked_fill_(&mask, Operand::Tensor(t)),
    }
}

/// A value less its leading dimensions of size 1 that the place written to has not.
fn fitting(value: &Tensor, ndim: usize) -> Result<Tensor> {
    let extra = value.ndim().saturating_sub(ndim);
    match value.shape()[..extra].iter().all(|&n| n == 1) {
        true if extra > 0 => value.reshape(&value.shape()[extra..].iter().map(|&n| n as isize).collect::<Vec<_>>()),
        _ => Ok(value.clone()),
    }
}

#[pymethods]
impl PyTensor {
    fn __getitem__<'py>(slf: &Bound<'py, Self>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        match asked(slf, "__getitem__", &[key])? {
            Some(answer) => Ok(answer),
            None => get(slf, key),
        }
    }

    fn __setitem__(slf: &Bound<'_, Self>, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        match asked(slf, "__setitem__", &[key, value])? {
            Some(_) => Ok(()),
            None => set(slf, key, value),
        }
    }

    /// A tensor has as many elements as its shape says.
    fn __delitem__(slf: &Bound<'_, Self>, _key: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(errors::type_error(slf.py(), "Tensor does not support deleting items"))
    }
}
