//! From Python objects to the engine's arguments: one type per parameter kind of the op table.
//!
//! [`Kind::hold`] converts and keeps what must live through the call, [`Kind::lend`] gives the engine its view of that.
//! What cannot be converted is a TypeError naming op, argument, what was expected and what was given.

mod operands;
mod values;

pub use values::sizes_of;

pub use operands::{lead, operand_of, sublists, tensors_of, weight_of, HeldOperand};

use crate::errors;
use crate::tensor::PyTensor;
use lucid::ops::out::Given;
use lucid::Scalar;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyComplex, PyFloat, PyInt, PyList, PyTuple};
use pyo3::{Borrowed, PyTypeInfo};
use smallvec::SmallVec;

/// Sizes or dimensions, as the engine takes them.
pub type Ints = SmallVec<[isize; 6]>;

/// An argument as it came, or nothing.
#[derive(Clone, Copy)]
pub struct Arg<'a, 'py>(pub Option<Borrowed<'a, 'py, PyAny>>);

impl Arg<'_, '_> {
    /// The argument was not given.
    pub const MISSING: Arg<'static, 'static> = Arg(None);
}

impl<'a, 'py> FromPyObject<'a, 'py> for Arg<'a, 'py> {
    type Error = PyErr;
    #[inline]
    fn extract(obj: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        Ok(Arg(Some(obj)))
    }
}

/// `requires_grad` of PyTorch's own functions, for which `None` stands for False.
#[derive(Clone, Copy)]
pub struct Flag(pub bool, bool);

impl Flag {
    /// What is not given.
    pub const OFF: Flag = Flag(false, false);

    /// The flag; `range` alone, which PyTorch keeps for older code, takes no `None`.
    pub fn of(self, py: Python<'_>, op: &'static str) -> PyResult<bool> {
        match self.1 && op == "range" {
            true => Err(errors::type_error(py, "range(): argument 'requires_grad' must be bool, not NoneType")),
            false => Ok(self.0),
        }
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Flag {
    type Error = PyErr;
    fn extract(obj: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if obj.is_none() {
            return Ok(Flag(false, true));
        }
        obj.extract::<bool>().map(|b| Flag(b, false))
    }
}

/// Which argument of which op is being converted.
#[derive(Clone, Copy)]
pub struct At {
    pub op: &'static str,
    pub arg: &'static str,
}

/// The name of an object's type, for messages.
pub fn kind_name(obj: &Bound<'_, PyAny>) -> String {
    let name = obj.get_type().name().map_or_else(|_| "object".into(), |n| n.to_string());
    if name == "AbsentDtype" {
        // The name of a dtype that is not there, with what it is not.
        return obj.getattr("sentence").and_then(|text| text.extract()).unwrap_or(name);
    }
    match name == "Tensor" && !obj.is_instance_of::<PyTensor>() {
        // A tensor of another library's, by the name of which alone nobody would see what is wrong.
        true => obj.get_type().fully_qualified_name().map_or(name, |n| format!("{n} (see lucid.as_tensor)")),
        false => name,
    }
}

impl At {
    #[cold]
    fn wrong(self, obj: Borrowed<'_, '_, PyAny>, expected: &str) -> PyErr {
        let (op, arg) = (self.op.trim_start_matches("r#"), self.arg.trim_start_matches("r#"));
        let message = format!("{op}(): argument '{arg}' must be {expected}, not {}", kind_name(&obj));
        errors::type_error(obj.py(), message)
    }

    #[cold]
    fn too_large(self, obj: Borrowed<'_, '_, PyAny>) -> PyErr {
        let (op, arg) = (self.op.trim_start_matches("r#"), self.arg.trim_start_matches("r#"));
        let why = format!("{op}(): argument '{arg}' is too large for 64 bits: {}", *obj);
        match op {
            "__setitem__" => errors::value_error(obj.py(), why),
            _ => errors::overflow_error(obj.py(), why),
        }
    }

    /// An integer argument, rather than a number, is a ValueError in PyTorch.
    #[cold]
    fn too_large_int(self, obj: Borrowed<'_, '_, PyAny>) -> PyErr {
        let (op, arg) = (self.op.trim_start_matches("r#"), self.arg.trim_start_matches("r#"));
        errors::value_error(obj.py(), format!("{op}(): argument '{arg}' is too large for 64 bits: {}", *obj))
    }

    #[cold]
    pub fn missing(self, py: Python<'_>) -> PyErr {
        let (op, arg) = (self.op.trim_start_matches("r#"), self.arg.trim_start_matches("r#"));
        errors::type_error(py, format!("{op}() missing required argument '{arg}'"))
    }
}

impl At {
    /// The argument was given by position and by name.
    #[cold]
    pub fn twice(self, py: Python<'_>) -> PyErr {
        let (op, arg) = (self.op.trim_start_matches("r#"), self.arg.trim_start_matches("r#"));
        errors::type_error(py, format!("{op}() got multiple values for argument '{arg}'"))
    }

    /// The argument under its own name or another one, not both.
    #[inline]
    pub fn either<'a, 'py>(self, py: Python<'py>, own: Arg<'a, 'py>, other: Arg<'a, 'py>) -> PyResult<Arg<'a, 'py>> {
        match (own.0, other.0) {
            (_, None) => Ok(own),
            (None, Some(_)) => Ok(other),
            (Some(_), Some(_)) => Err(self.twice(py)),
        }
    }
}

/// A parameter kind of the op table.
pub trait Kind {
    /// What is kept during the call.
    type Held<'a>;
    /// What the engine takes.
    type Lent<'h>;
    fn hold<'a>(at: At, obj: Borrowed<'a, '_, PyAny>) -> PyResult<Self::Held<'a>>;
    fn lend<'h>(held: &'h Self::Held<'_>) -> Self::Lent<'h>;
    /// Elements on the CPU that the op will read or make, as far as this argument says.
    #[inline]
    fn weight(_held: &Self::Held<'_>) -> usize {
        0
    }
    /// Adds the tensors of the argument, for what must be looked at where a call writes to another one.
    #[inline]
    fn gather(_held: &Self::Held<'_>, _tensors: &mut Vec<lucid::Tensor>) {}
    /// What the rule for `out=` sees of the argument.
    #[inline]
    fn given(_held: &Self::Held<'_>) -> Given {
        Given::Other
    }
}

/// A kind that may have a default.
pub trait Preset: Kind {
    fn preset<'a>(default: Self::Lent<'static>) -> Self::Held<'a>;
}

/// Kinds of what may be left out but not be `None`; otherwise they are the kinds that take that.
macro_rules! some_kinds {
    ($($name:ident $of:ident $expected:literal;)*) => {$(
        impl Kind for kinds::$name {
            type Held<'a> = <kinds::$of as Kind>::Held<'a>;
            type Lent<'h> = <kinds::$of as Kind>::Lent<'h>;
            #[inline]
            fn hold<'a>(at: At, obj: Borrowed<'a, '_, PyAny>) -> PyResult<Self::Held<'a>> {
                match obj.is_none() {
                    true => Err(at.wrong(obj, $expected)),
                    false => <kinds::$of as Kind>::hold(at, obj),
                }
            }
            #[inline]
            fn lend<'h>(held: &'h Self::Held<'_>) -> Self::Lent<'h> {
                <kinds::$of as Kind>::lend(held)
            }
            #[inline]
            fn weight(held: &Self::Held<'_>) -> usize {
                <kinds::$of as Kind>::weight(held)
            }
            #[inline]
            fn gather(held: &Self::Held<'_>, tensors: &mut Vec<lucid::Tensor>) {
                <kinds::$of as Kind>::gather(held, tensors);
            }
            #[inline]
            fn given(held: &Self::Held<'_>) -> Given {
                <kinds::$of as Kind>::given(held)
            }
        }
        impl Preset for kinds::$name {
            #[inline]
            fn preset<'a>(default: Self::Lent<'static>) -> Self::Held<'a> {
                <kinds::$of as Preset>::preset(default)
            }
        }
    )*};
}
some_kinds! {
    SomeTensor OptTensor "Tensor";
    SomeOperand OptOperand "Tensor or a number";
    SomeNumber OptNumber "a number";
    SomeInt OptInt "int";
    SomeDim OptDim "int";
    SomeDims OptDims "int or a tuple of ints";
    SomeOrder OptOrder "a number or str";
    SomeText OptText "str";
}

/// Converts an argument that must be there.
#[inline]
pub fn required<'a, K: Kind>(py: Python<'_>, at: At, arg: Arg<'a, '_>) -> PyResult<K::Held<'a>> {
    match arg.0 {
        Some(obj) => K::hold(at, obj),
        None => Err(at.missing(py)),
    }
}

/// Converts an argument that has a default.
#[inline]
pub fn optional<'a, K: Preset>(at: At, arg: Arg<'a, '_>, default: K::Lent<'static>) -> PyResult<K::Held<'a>> {
    match arg.0 {
        Some(obj) => K::hold(at, obj),
        None => Ok(K::preset(default)),
    }
}

// ---- numbers ---------------------------------------------------------------------------------------------------------

/// A number as the engine sees it; `None` if the object is none. NumPy's scalars are numbers too.
#[inline]
pub fn scalar_of(obj: Borrowed<'_, '_, PyAny>) -> Option<Result<Scalar, TooLarge>> {
    let py = obj.py();
    let class = obj.get_type();
    if class.is(PyFloat::type_object(py)) {
        return obj.extract::<f64>().ok().map(|f| Ok(Scalar::Float(f)));
    }
    if class.is(PyInt::type_object(py)) {
        return Some(integer(&obj));
    }
    slow_scalar(obj)
}

/// An integer beyond 64 bits.
pub struct TooLarge;

/// An integer as a number: beyond int64 it is one up to 2^64.
#[inline]
fn integer(obj: &Bound<'_, PyAny>) -> Result<Scalar, TooLarge> {
    match obj.extract::<i64>() {
        Ok(i) => Ok(Scalar::Int(i)),
        Err(_) => obj.extract::<u64>().map(Scalar::Wide).map_err(|_| TooLarge),
    }
}

#[inline(never)]
fn slow_scalar(obj: Borrowed<'_, '_, PyAny>) -> Option<Result<Scalar, TooLarge>> {
    if let Ok(b) = obj.cast::<PyBool>() {
        return Some(Ok(Scalar::Bool(b.is_true())));
    }
    if obj.is_instance_of::<PyFloat>() {
        return obj.extract::<f64>().ok().map(|f| Ok(Scalar::Float(f)));
    }
    if let Ok(c) = obj.cast::<PyComplex>() {
        return Some(Ok(Scalar::Complex(
            c.getattr("real").ok()?.extract().ok()?,
            c.getattr("imag").ok()?.extract().ok()?,
        )));
    }
    if obj.is_instance_of::<PyInt>() {
        return Some(integer(&obj));
    }
    // What else counts as a number, without a look at NumPy itself: its scalars have a `dtype` and no dimensions.
    let kind = obj.getattr("dtype").ok()?.getattr("kind").ok()?.extract::<String>().ok()?;
    if obj.getattr("ndim").ok()?.extract::<usize>().ok()? != 0 {
        return None;
    }
    let item = obj.call_method0("item").ok()?;
    match kind.as_str() {
        "b" => item.extract::<bool>().ok().map(|b| Ok(Scalar::Bool(b))),
        "i" | "u" => Some(integer(&item)),
        "f" => item.extract::<f64>().ok().map(|f| Ok(Scalar::Float(f))),
        "c" => slow_scalar(item.as_borrowed()),
        _ => None,
    }
}

/// An integer: a Python `int`, what has `__index__`, or an integer tensor of one element.
pub fn int_of(at: At, obj: Borrowed<'_, '_, PyAny>, expected: &str) -> PyResult<i64> {
    if obj.is_exact_instance_of::<PyInt>() {
        return obj.extract::<i64>().map_err(|_| at.too_large_int(obj));
    }
    let truth = obj.cast::<PyTensor>().is_ok_and(|t| t.get().read().dtype() == lucid::DType::Bool);
    if truth || obj.is_instance_of::<PyBool>() || obj.is_instance_of::<PyFloat>() {
        return Err(at.wrong(obj, expected));
    }
    match obj.extract::<i64>() {
        Ok(i) => Ok(i),
        Err(e) if e.is_instance_of::<pyo3::exceptions::PyOverflowError>(obj.py()) => Err(at.too_large_int(obj)),
        Err(_) => Err(at.wrong(obj, expected)),
    }
}

/// One integer or a sequence of integers.
pub fn ints_of(at: At, obj: Borrowed<'_, '_, PyAny>, expected: &str) -> PyResult<Ints> {
    let one = |o: &Bound<'_, PyAny>| int_of(at, o.as_borrowed(), expected).map(|i| i as isize);
    if let Ok(items) = obj.cast::<PyTuple>() {
        return items.iter_borrowed().map(|o| one(&o)).collect();
    }
    if let Ok(items) = obj.cast::<PyList>() {
        return items.iter().map(|o| one(&o)).collect();
    }
    Ok(SmallVec::from_elem(one(&obj)?, 1))
}

// ---- the kinds -------------------------------------------------------------------------------------------------------

/// Marker types named as the op table names its parameter kinds.
pub mod kinds {
    macro_rules! markers { ($($name:ident)*) => { $(pub struct $name;)* } }
    markers! {
        Tensor OptTensor Tensors Operand OptOperand Number OptNumber Int Start OptInt OptBool Float OptFloat Bool Dim OptDim Dims OptDims
        Sizes Sections DimPairs Dtype OptDtype OptDevice DeviceArg OptGenerator Text OptText OptFloats Bins OptOrder Spacing
        OptFormat SomeTensor SomeOperand SomeNumber SomeInt SomeDim SomeDims SomeOrder SomeText Whether
    }
}
