//! PyTorch's older overloads, with the numbers of keywords by position: `add(x, 2, y)`, `addmm(beta, x, alpha, a, b)`.
//!
//! They have more positional arguments than the row's own signature, so a call is looked at here only after that has refused
//! it. The table says which rows have them.

use crate::args::scalar_of;
use crate::tensor::PyTensor;
use lucid::ops::Schema;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::sync::atomic::AtomicBool;

/// The arguments of a call as Python takes them.
type Arguments<'py> = (Bound<'py, PyTuple>, Bound<'py, PyDict>);

/// The row of a function or method, by its name, where PyTorch has older overloads of it.
fn row(name: &str) -> Option<&'static Schema> {
    let of = |s: &&Schema| s.name == name || s.in_place && name.strip_suffix('_') == Some(s.name);
    lucid::ops::schemas().filter(|s| s.old_numbers).find(of)
}

/// The older orders of a row's parameters: one number stands after the tensor, of two the first stands before it, and the
/// second may be left out. The tensor of a method is not among them.
fn orders(row: &Schema, method: bool) -> Vec<Vec<&'static str>> {
    let named = |keyword: bool| row.params.iter().filter(move |p| p.keyword_only == keyword).map(|p| p.name);
    let numbers: Vec<_> = named(true).collect();
    let input = named(false).take(usize::from(!method));
    let rest = || named(false).skip(1);
    match numbers[..] {
        [alpha] => vec![input.chain([alpha]).chain(rest()).collect()],
        [beta, alpha] => {
            let head: Vec<_> = [beta].into_iter().chain(input).collect();
            let long = head.iter().copied().chain([alpha]).chain(rest()).collect();
            vec![long, head.into_iter().chain(rest()).collect()]
        }
        _ => Vec::new(),
    }
}

/// The arguments under their names, where they are those of one older order; `slf` is the tensor of a method.
fn fit<'py>(
    row: &Schema,
    order: &[&'static str],
    slf: Option<&Bound<'py, PyAny>>,
    positional: &[Bound<'py, PyAny>],
    named: Option<&Bound<'py, PyDict>>,
) -> PyResult<Option<Arguments<'py>>> {
    let Some(py) = slf.into_iter().chain(positional).next().map(|a| a.py()) else { return Ok(None) };
    if positional.len() > order.len() {
        return Ok(None);
    }
    let all = PyDict::new(py);
    for (name, value) in order.iter().zip(positional) {
        all.set_item(name, value)?;
    }
    for (name, value) in named.into_iter().flat_map(|n| n.iter()) {
        let key: String = name.extract()?;
        // Functions write to `out`, too.
        if all.contains(&name)? || !(order.contains(&key.as_str()) || key == "out" && slf.is_none()) {
            return Ok(None);
        }
        all.set_item(name, value)?;
    }
    let keywords = PyDict::new(py);
    let mut places: Vec<_> = slf.into_iter().cloned().collect();
    for name in order {
        let Some(value) = all.get_item(name)? else { return Ok(None) };
        let tensor = value.cast::<PyTensor>().ok();
        let number = scalar_of(value.as_borrowed()).is_some() || tensor.is_some_and(|t| t.get().read().ndim() == 0);
        match row.params.iter().find(|p| p.name == *name) {
            Some(p) if p.keyword_only && number => keywords.set_item(name, value)?,
            Some(p) if !p.keyword_only && (tensor.is_some() || p.kind == "Operand" || p.name == "input") => {
                places.push(value);
            }
            _ => return Ok(None),
        }
    }
    if let Some(out) = all.get_item("out")? {
        keywords.set_item("out", out)?;
    }
    Ok(Some((PyTuple::new(py, places)?, keywords)))
}

/// The arguments of a call in an older order as the function takes them; `None` where they are in none. Warns, once in a
/// process, as PyTorch does.
///
/// # Errors
/// That warning, where a filter makes it one.
pub fn arranged<'py>(
    function: &Bound<'py, PyAny>,
    slf: Option<&Bound<'py, PyAny>>,
    positional: &[Bound<'py, PyAny>],
    named: Option<&Bound<'py, PyDict>>,
) -> PyResult<Option<Arguments<'py>>> {
    static WARNED: AtomicBool = AtomicBool::new(false);
    let name: String = function.getattr("__name__")?.extract()?;
    let Some(row) = row(&name) else { return Ok(None) };
    for order in orders(row, slf.is_some()) {
        let Some(found) = fit(row, &order, slf, positional, named)? else { continue };
        if lucid::warnings::due(&WARNED) {
            let own = row.params.iter().filter(|p| slf.is_none() || p.name != "input");
            let own: Vec<_> =
                own.map(|p| if p.keyword_only { format!("{}=1", p.name) } else { p.name.into() }).collect();
            let (order, own) = (order.join(", "), own.join(", "));
            let text = format!("This overload of {name} is deprecated: {name}({order}). Use {name}({own}) instead, with the numbers as keywords.");
            crate::warn::user(function.py(), &text)?;
        }
        return Ok(Some(found));
    }
    Ok(None)
}
