//! Tensors, and what stands in for one: a number, or a list of tensors. Depends on the parent's kinds.

use super::{int_of, kind_name, kinds, scalar_of, Arg, At, Kind, Preset, TooLarge};
use crate::errors;
use crate::tensor::{Guard, PyTensor};
use lucid::ops::out::Given;
use lucid::{DType, Device, Scalar};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use pyo3::Borrowed;

/// Elements that a tensor counts for: those on the CPU.
#[inline]
pub fn weight_of(t: &lucid::Tensor) -> usize {
    if t.device() == Device::Cpu {
        t.numel()
    } else {
        0
    }
}

#[inline]
pub(super) fn tensor_of<'a>(obj: Borrowed<'a, '_, PyAny>) -> Option<Guard<'a>> {
    obj.cast::<PyTensor>().ok().map(|t| t.get().read())
}

impl Kind for kinds::Tensor {
    type Held<'a> = Guard<'a>;
    type Lent<'h> = &'h lucid::Tensor;
    #[inline]
    fn hold<'a>(at: At, obj: Borrowed<'a, '_, PyAny>) -> PyResult<Guard<'a>> {
        tensor_of(obj).ok_or_else(|| at.wrong(obj, "Tensor"))
    }
    #[inline]
    fn lend<'h>(held: &'h Guard<'_>) -> &'h lucid::Tensor {
        held
    }
    #[inline]
    fn weight(held: &Guard<'_>) -> usize {
        weight_of(held)
    }
    fn gather(held: &Guard<'_>, tensors: &mut Vec<lucid::Tensor>) {
        tensors.push(lucid::Tensor::clone(held));
    }
    fn given(held: &Guard<'_>) -> Given {
        Given::tensor(held)
    }
}

impl Kind for kinds::OptTensor {
    type Held<'a> = Option<Guard<'a>>;
    type Lent<'h> = Option<&'h lucid::Tensor>;
    fn hold<'a>(at: At, obj: Borrowed<'a, '_, PyAny>) -> PyResult<Self::Held<'a>> {
        match obj.is_none() {
            true => Ok(None),
            false => tensor_of(obj).map(Some).ok_or_else(|| at.wrong(obj, "Tensor or None")),
        }
    }
    fn lend<'h>(held: &'h Self::Held<'_>) -> Self::Lent<'h> {
        held.as_deref()
    }
    fn gather(held: &Self::Held<'_>, tensors: &mut Vec<lucid::Tensor>) {
        tensors.extend(held.as_deref().cloned());
    }
}
impl Preset for kinds::OptTensor {
    fn preset<'a>(_default: Self::Lent<'static>) -> Self::Held<'a> {
        None
    }
}

impl Kind for kinds::Tensors {
    type Held<'a> = Vec<lucid::Tensor>;
    type Lent<'h> = &'h [lucid::Tensor];
    fn hold<'a>(at: At, obj: Borrowed<'a, '_, PyAny>) -> PyResult<Self::Held<'a>> {
        // Its rows are rarely what was meant.
        if obj.is_instance_of::<PyTensor>() {
            return Err(at.wrong(obj, "a tuple of Tensors"));
        }
        tensors_of(at, obj)
    }
    fn lend<'h>(held: &'h Self::Held<'_>) -> Self::Lent<'h> {
        held
    }
    fn weight(held: &Self::Held<'_>) -> usize {
        held.iter().map(weight_of).sum()
    }
    fn gather(held: &Self::Held<'_>, tensors: &mut Vec<lucid::Tensor>) {
        tensors.extend_from_slice(held);
    }
    fn given(held: &Self::Held<'_>) -> Given {
        Given::Tensors(held.len())
    }
}

/// A sequence of tensors: a list, a tuple, or what else can be iterated (a tensor gives its rows).
pub fn tensors_of(at: At, obj: Borrowed<'_, '_, PyAny>) -> PyResult<Vec<lucid::Tensor>> {
    const EXPECTED: &str = "a sequence of Tensors";
    let one = |o: Bound<'_, PyAny>| match tensor_of(o.as_borrowed()) {
        Some(t) => Ok(t.clone()),
        None => Err(at.wrong(obj, &format!("{EXPECTED} (found {} in it)", kind_name(&o)))),
    };
    if obj.is_instance_of::<PyString>() {
        return Err(at.wrong(obj, EXPECTED));
    }
    let items = obj.try_iter().map_err(|_| at.wrong(obj, EXPECTED))?;
    items.map(|o| one(o?)).collect()
}

/// `einsum`'s other form as an equation: tensors, each with the list of its dimensions' numbers, and maybe the result's.
pub fn sublists(
    op: &'static str,
    first: Borrowed<'_, '_, PyAny>,
    rest: &Bound<'_, PyTuple>,
) -> PyResult<(String, Vec<lucid::Tensor>)> {
    let py = first.py();
    let term = |list: &Bound<'_, PyAny>| -> PyResult<String> {
        let mut text = String::new();
        for item in list.try_iter()? {
            let item = item?;
            if item.is(pyo3::types::PyEllipsis::get(py)) {
                text.push_str("...");
                continue;
            }
            let n = int_of(At { op, arg: "sublist" }, item.as_borrowed(), "a list of ints and ...")?;
            match u8::try_from(n) {
                Ok(n @ 0..=25) => text.push(char::from(b'A' + n)),
                Ok(n @ 26..=51) => text.push(char::from(b'a' + n - 26)),
                _ => {
                    let why = format!("{op}(): not a valid subscript: {n}; it must be within the range [0, 52)");
                    return Err(errors::value_error(py, why));
                }
            }
        }
        Ok(text)
    };
    let all: Vec<Bound<'_, PyAny>> = std::iter::once(first.to_owned()).chain(rest.iter()).collect();
    let (mut terms, mut tensors, mut output) = (Vec::new(), Vec::new(), None);
    for pair in all.chunks(2) {
        match pair {
            [x, list] => {
                let at = At { op, arg: "operands" };
                let x = tensor_of(x.as_borrowed()).ok_or_else(|| at.wrong(x.as_borrowed(), "Tensor"))?;
                tensors.push(x.clone());
                terms.push(term(list)?);
            }
            [list] => output = Some(term(list)?),
            _ => {}
        }
    }
    let mut equation = terms.join(",");
    if let Some(output) = output {
        equation.push_str("->");
        equation.push_str(&output);
    }
    Ok((equation, tensors))
}

/// A tensor or a number, held.
pub enum HeldOperand<'a> {
    Tensor(Guard<'a>),
    Scalar(Scalar),
}

impl HeldOperand<'_> {
    #[inline]
    pub fn lend(&self) -> lucid::Operand<'_> {
        match self {
            HeldOperand::Tensor(t) => lucid::Operand::Tensor(t),
            HeldOperand::Scalar(s) => lucid::Operand::Scalar(*s),
        }
    }

    #[inline]
    pub fn weight(&self) -> usize {
        match self {
            HeldOperand::Tensor(t) => weight_of(t),
            HeldOperand::Scalar(_) => 0,
        }
    }
}

/// Those of the ops on two operands that take no number first.
const TENSOR_FIRST: [&str; 14] = [
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "logical_and",
    "logical_or",
    "logical_xor",
    "fmod",
    "clamp_min",
    "clamp_max",
    "copysign",
    "rsub",
];

/// Those that PyTorch runs on two numbers.
const NUMBERS: [&str; 5] = ["add", "sub", "mul", "div", "floor_divide"];

/// The first of two operands as a tensor, where it is a number and the second a tensor; nothing where it is a tensor.
#[inline]
pub fn lead<'py>(
    py: Python<'py>,
    op: &'static str,
    first: Arg<'_, 'py>,
    second: Arg<'_, 'py>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    match (first.0, second.0) {
        (Some(a), Some(b)) if a.cast_exact::<PyTensor>().is_err() && !TENSOR_FIRST.contains(&op) => {
            number_lead(py, op, a, b)
        }
        _ => Ok(None),
    }
}

#[cold]
fn number_lead<'py>(
    py: Python<'py>,
    op: &'static str,
    first: Borrowed<'_, 'py, PyAny>,
    second: Borrowed<'_, 'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let (None, other) = (tensor_of(first), tensor_of(second)) else { return Ok(None) };
    let Some(Ok(s)) = scalar_of(first) else { return Ok(None) };
    let Some(other) = other else {
        let Some(Ok(t)) = scalar_of(second).filter(|_| NUMBERS.contains(&op)) else { return Ok(None) };
        if matches!((s, t), (Scalar::Wide(_), Scalar::Int(_)) | (Scalar::Int(_), Scalar::Wide(_))) {
            let why = format!("{op}(): a number beyond int64 goes with none below it: {} and {}", *first, *second);
            return Err(errors::runtime_error(py, why));
        }
        let dtype = match s {
            Scalar::Bool(_) => DType::Bool,
            _ => lucid::ops::result_type([lucid::Operand::Scalar(s), lucid::Operand::Scalar(t)])
                .map_err(|e| crate::errors::raise(py, &e))?,
        };
        let made = crate::engine_call::quick(py, || lucid::Tensor::full_of(&[], s, dtype, lucid::Device::Cpu))?;
        return crate::tensor::wrap(py, made).map(Some);
    };
    // A quotient is no whole number, so that one beyond int64 need not wrap around.
    let s = match s {
        Scalar::Wide(n) if matches!(op, "div" | "divide" | "true_divide") => Scalar::Float(n as f64),
        s => s,
    };
    let dtype = match s {
        Scalar::Bool(_) => DType::Bool,
        _ => lucid::ops::result_type([lucid::Operand::Scalar(s), lucid::Operand::Tensor(&other)])
            .map_err(|e| crate::errors::raise(py, &e))?,
    };
    let device = other.device();
    crate::tensor::wrap(py, crate::engine_call::quick(py, || lucid::Tensor::full_of(&[], s, dtype, device))?).map(Some)
}

/// A tensor or a number, if the object is one.
#[inline]
pub fn operand_of<'a>(at: At, obj: Borrowed<'a, '_, PyAny>) -> PyResult<Option<HeldOperand<'a>>> {
    // The exact type first: it is one comparison of pointers.
    if let Ok(t) = obj.cast_exact::<PyTensor>() {
        return Ok(Some(HeldOperand::Tensor(t.get().read())));
    }
    match scalar_of(obj) {
        Some(Ok(s)) => Ok(Some(HeldOperand::Scalar(s))),
        Some(Err(TooLarge)) => Err(at.too_large(obj)),
        None => Ok(tensor_of(obj).map(HeldOperand::Tensor)),
    }
}

impl Kind for kinds::Operand {
    type Held<'a> = HeldOperand<'a>;
    type Lent<'h> = lucid::Operand<'h>;
    #[inline]
    fn hold<'a>(at: At, obj: Borrowed<'a, '_, PyAny>) -> PyResult<HeldOperand<'a>> {
        operand_of(at, obj)?.ok_or_else(|| at.wrong(obj, "Tensor or a number"))
    }
    #[inline]
    fn lend<'h>(held: &'h HeldOperand<'_>) -> lucid::Operand<'h> {
        held.lend()
    }
    #[inline]
    fn weight(held: &HeldOperand<'_>) -> usize {
        held.weight()
    }
    fn gather(held: &HeldOperand<'_>, tensors: &mut Vec<lucid::Tensor>) {
        if let HeldOperand::Tensor(t) = held {
            tensors.push(lucid::Tensor::clone(t));
        }
    }
    fn given(held: &HeldOperand<'_>) -> Given {
        match held {
            HeldOperand::Tensor(t) => Given::tensor(t),
            HeldOperand::Scalar(_) => Given::Other,
        }
    }
}

impl Kind for kinds::OptOperand {
    type Held<'a> = Option<HeldOperand<'a>>;
    type Lent<'h> = Option<lucid::Operand<'h>>;
    fn hold<'a>(at: At, obj: Borrowed<'a, '_, PyAny>) -> PyResult<Self::Held<'a>> {
        match obj.is_none() {
            true => Ok(None),
            false => operand_of(at, obj)?.map(Some).ok_or_else(|| at.wrong(obj, "Tensor, a number or None")),
        }
    }
    fn lend<'h>(held: &'h Self::Held<'_>) -> Self::Lent<'h> {
        held.as_ref().map(HeldOperand::lend)
    }
    fn given(held: &Self::Held<'_>) -> Given {
        held.as_ref().map_or(Given::Missing, <kinds::Operand as Kind>::given)
    }
}
impl Preset for kinds::OptOperand {
    fn preset<'a>(_default: Self::Lent<'static>) -> Self::Held<'a> {
        None
    }
}
