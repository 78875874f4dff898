//! From Python objects to the engine's arguments: one type per parameter kind of the op table.
//!
//! [`Kind::hold`] converts and keeps what must live through the call, [`Kind::lend`] gives the engine its view of that.
//! What cannot be converted is a TypeError naming op, argument, what was expected and what was given.

use crate::device::device_of;
use crate::dtype::dtype_of;
use crate::errors;
use crate::random::PyGenerator;
use crate::tensor::{Guard, PyTensor};
use lucid::{DType, Device, Scalar};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyComplex, PyFloat, PyInt, PyList, PyString, PyTuple};
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

/// Which argument of which op is being converted.
#[derive(Clone, Copy)]
pub struct At {
    pub op: &'static str,
    pub arg: &'static str,
}

/// The name of an object's type, for messages.
pub fn kind_name(obj: &Bound<'_, PyAny>) -> String {
    obj.get_type().name().map_or_else(|_| "object".into(), |n| n.to_string())
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
}

/// A kind that may have a default.
pub trait Preset: Kind {
    fn preset<'a>(default: Self::Lent<'static>) -> Self::Held<'a>;
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
    if obj.is_instance_of::<PyBool>() || obj.is_instance_of::<PyFloat>() {
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
        Tensor OptTensor Tensors Operand OptOperand Number OptNumber Int OptInt Float OptFloat Bool Dim OptDim Dims OptDims
        Sizes Sections DimPairs Dtype OptDtype OptDevice DeviceArg OptGenerator Text OptText OptFloats Bins OptOrder Spacing
        OptFormat
    }
}

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
fn tensor_of<'a>(obj: Borrowed<'a, '_, PyAny>) -> Option<Guard<'a>> {
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
            number_lead(py, a, b)
        }
        _ => Ok(None),
    }
}

#[cold]
fn number_lead<'py>(
    py: Python<'py>,
    first: Borrowed<'_, 'py, PyAny>,
    second: Borrowed<'_, 'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let (None, Some(other)) = (tensor_of(first), tensor_of(second)) else { return Ok(None) };
    let Some(Ok(s)) = scalar_of(first) else { return Ok(None) };
    let dtype = match s {
        Scalar::Bool(_) => DType::Bool,
        _ => lucid::ops::result_type([lucid::Operand::Scalar(s), lucid::Operand::Tensor(&other)]),
    };
    let device = other.device();
    crate::tensor::wrap(py, crate::cross::quick(py, || lucid::Tensor::full_of(&[], s, dtype, device))?).map(Some)
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
}
impl Preset for kinds::OptOperand {
    fn preset<'a>(_default: Self::Lent<'static>) -> Self::Held<'a> {
        None
    }
}

/// Kinds that are converted to a value which the engine takes by copy.
macro_rules! plain_kinds {
    ($($name:ident $ty:ty: |$at:ident, $obj:ident| $convert:expr;)*) => {$(
        impl Kind for kinds::$name {
            type Held<'a> = $ty;
            type Lent<'h> = $ty;
            #[inline]
            fn hold<'a>($at: At, $obj: Borrowed<'a, '_, PyAny>) -> PyResult<$ty> {
                $convert
            }
            #[inline]
            fn lend(held: &$ty) -> $ty {
                *held
            }
        }
        impl Preset for kinds::$name {
            #[inline]
            fn preset<'a>(default: Self::Lent<'static>) -> Self::Held<'a> {
                default
            }
        }
    )*};
}
plain_kinds! {
    Number Scalar: |at, obj| number(at, obj, "a number");
    OptNumber Option<Scalar>: |at, obj| or_none(obj, || number(at, obj, "a number or None"));
    Int i64: |at, obj| int_of(at, obj, "int");
    OptInt Option<i64>: |at, obj| or_none(obj, || int_of(at, obj, "int or None"));
    Float f64: |at, obj| float(at, obj, "float");
    OptFloat Option<f64>: |at, obj| or_none(obj, || float(at, obj, "float or None"));
    Bool bool: |at, obj| match obj.cast::<PyBool>() {
        Ok(b) => Ok(b.is_true()),
        Err(_) => Err(at.wrong(obj, "bool")),
    };
    Dim isize: |at, obj| int_of(at, obj, "int").map(|i| i as isize);
    OptDim Option<isize>: |at, obj| or_none(obj, || int_of(at, obj, "int or None").map(|i| i as isize));
    Dtype DType: |at, obj| dtype_of(&obj).ok_or_else(|| at.wrong(obj, "lucid.dtype"));
    OptDtype Option<DType>: |at, obj| or_none(obj, || dtype_of(&obj).ok_or_else(|| at.wrong(obj, "lucid.dtype or None")));
    DeviceArg Device: |at, obj| device_of(&obj)?.ok_or_else(|| at.wrong(obj, "a device or str"));
    OptFormat Option<lucid::MemoryFormat>: |at, obj| or_none(obj, || {
        crate::format::format_of(&obj).ok_or_else(|| at.wrong(obj, "lucid.memory_format or None"))
    });
    OptDevice Option<Device>: |at, obj| or_none(obj, || device_of(&obj)?.ok_or_else(|| at.wrong(obj, "a device, str or None")));
}

fn or_none<T>(obj: Borrowed<'_, '_, PyAny>, convert: impl FnOnce() -> PyResult<T>) -> PyResult<Option<T>> {
    if obj.is_none() {
        Ok(None)
    } else {
        convert().map(Some)
    }
}

fn number(at: At, obj: Borrowed<'_, '_, PyAny>, expected: &str) -> PyResult<Scalar> {
    match scalar_of(obj) {
        Some(Ok(s)) => Ok(s),
        Some(Err(TooLarge)) => Err(at.too_large(obj)),
        // A tensor of one element counts as its number, as in PyTorch; that evaluates.
        None => match tensor_of(obj) {
            Some(t) if t.numel() == 1 && !t.requires_grad() => {
                let t = t.clone();
                crate::cross::long(obj.py(), || t.item())
            }
            _ => Err(at.wrong(obj, expected)),
        },
    }
}

fn float(at: At, obj: Borrowed<'_, '_, PyAny>, expected: &str) -> PyResult<f64> {
    match number(at, obj, expected)? {
        Scalar::Complex(..) => Err(at.wrong(obj, expected)),
        s => Ok(s.to_f64()),
    }
}

/// Kinds that are lists of integers.
macro_rules! list_kinds {
    ($($name:ident $expected:literal;)*) => {$(
        impl Kind for kinds::$name {
            type Held<'a> = Ints;
            type Lent<'h> = &'h [isize];
            #[inline]
            fn hold<'a>(at: At, obj: Borrowed<'a, '_, PyAny>) -> PyResult<Ints> {
                ints_of(at, obj, $expected)
            }
            #[inline]
            fn lend(held: &Ints) -> &[isize] {
                held
            }
        }
        impl Preset for kinds::$name {
            fn preset<'a>(default: Self::Lent<'static>) -> Self::Held<'a> {
                Ints::from_slice(default)
            }
        }
    )*};
}
list_kinds! {
    Dims "int or a tuple of ints";
    Sizes "int or a tuple of ints";
}

/// One integer or several, told apart.
pub enum HeldSections {
    Count(i64),
    List(Ints),
}

impl Kind for kinds::Sections {
    type Held<'a> = HeldSections;
    type Lent<'h> = lucid::ops::Sections<'h>;
    fn hold<'a>(at: At, obj: Borrowed<'a, '_, PyAny>) -> PyResult<HeldSections> {
        const EXPECTED: &str = "int, a tuple of ints or a tensor of them";
        if let Some(t) = tensor_of(obj).filter(|t| t.ndim() == 1 && t.dtype().is_integral()) {
            let t = t.clone();
            let list = crate::cross::long(obj.py(), || t.cast(DType::I64)?.to_vec::<i64>())?;
            return Ok(HeldSections::List(list.into_iter().map(|i| i as isize).collect()));
        }
        if obj.is_instance_of::<PyTuple>() || obj.is_instance_of::<PyList>() {
            return ints_of(at, obj, EXPECTED).map(HeldSections::List);
        }
        int_of(at, obj, EXPECTED).map(HeldSections::Count)
    }
    fn lend<'h>(held: &'h HeldSections) -> lucid::ops::Sections<'h> {
        match held {
            HeldSections::Count(n) => lucid::ops::Sections::Count(*n),
            HeldSections::List(list) => lucid::ops::Sections::List(list),
        }
    }
}

impl Kind for kinds::DimPairs {
    type Held<'a> = std::borrow::Cow<'static, lucid::ops::DimPairs>;
    type Lent<'h> = &'h lucid::ops::DimPairs;
    fn hold<'a>(at: At, obj: Borrowed<'a, '_, PyAny>) -> PyResult<Self::Held<'a>> {
        use lucid::ops::DimPairs;
        const EXPECTED: &str = "int or a pair of lists of ints";
        let pairs = match obj.is_instance_of::<PyTuple>() || obj.is_instance_of::<PyList>() {
            true => {
                let parts: Vec<Bound<'_, PyAny>> = obj.try_iter()?.collect::<PyResult<_>>()?;
                let [a, b] = parts.as_slice() else { return Err(at.wrong(obj, EXPECTED)) };
                let list = |o: &Bound<'_, PyAny>| ints_of(at, o.as_borrowed(), EXPECTED).map(|l| l.to_vec());
                DimPairs::Lists(list(a)?, list(b)?)
            }
            false => DimPairs::Count(int_of(at, obj, EXPECTED)?),
        };
        Ok(std::borrow::Cow::Owned(pairs))
    }
    fn lend<'h>(held: &'h Self::Held<'_>) -> Self::Lent<'h> {
        held
    }
}
impl Preset for kinds::DimPairs {
    fn preset<'a>(default: Self::Lent<'static>) -> Self::Held<'a> {
        std::borrow::Cow::Borrowed(default)
    }
}

/// One number, or for each dimension a number or a vector of coordinates.
impl Kind for kinds::Spacing {
    type Held<'a> = std::borrow::Cow<'static, lucid::ops::Spacing>;
    type Lent<'h> = &'h lucid::ops::Spacing;
    fn hold<'a>(at: At, obj: Borrowed<'a, '_, PyAny>) -> PyResult<Self::Held<'a>> {
        use lucid::ops::Spacing;
        const EXPECTED: &str = "a number, a sequence of numbers or of Tensors, or None";
        if obj.is_none() {
            return Ok(std::borrow::Cow::Owned(Spacing::Number(lucid::Scalar::ONE)));
        }
        if !(obj.is_instance_of::<PyTuple>() || obj.is_instance_of::<PyList>()) {
            return Ok(std::borrow::Cow::Owned(Spacing::Number(number(at, obj, EXPECTED)?)));
        }
        let parts: Vec<Bound<'_, PyAny>> = obj.try_iter()?.collect::<PyResult<_>>()?;
        let spacing = match parts.first().is_some_and(|p| p.is_instance_of::<PyTensor>()) {
            true => Spacing::Points(tensors_of(at, obj)?),
            false => {
                Spacing::Numbers(parts.iter().map(|p| number(at, p.as_borrowed(), EXPECTED)).collect::<PyResult<_>>()?)
            }
        };
        Ok(std::borrow::Cow::Owned(spacing))
    }
    fn lend<'h>(held: &'h Self::Held<'_>) -> Self::Lent<'h> {
        held
    }
}
impl Preset for kinds::Spacing {
    fn preset<'a>(default: Self::Lent<'static>) -> Self::Held<'a> {
        std::borrow::Cow::Borrowed(default)
    }
}

impl Kind for kinds::OptDims {
    type Held<'a> = Option<Ints>;
    type Lent<'h> = Option<&'h [isize]>;
    fn hold<'a>(at: At, obj: Borrowed<'a, '_, PyAny>) -> PyResult<Option<Ints>> {
        or_none(obj, || ints_of(at, obj, "int, a tuple of ints or None"))
    }
    fn lend(held: &Option<Ints>) -> Option<&[isize]> {
        held.as_deref()
    }
}
impl Preset for kinds::OptDims {
    fn preset<'a>(default: Self::Lent<'static>) -> Self::Held<'a> {
        default.map(Ints::from_slice)
    }
}

impl Kind for kinds::OptFloats {
    type Held<'a> = Option<Vec<f64>>;
    type Lent<'h> = Option<&'h [f64]>;
    fn hold<'a>(at: At, obj: Borrowed<'a, '_, PyAny>) -> PyResult<Self::Held<'a>> {
        const EXPECTED: &str = "a sequence of floats or None";
        or_none(obj, || {
            let items = obj.try_iter().map_err(|_| at.wrong(obj, EXPECTED))?;
            items.map(|o| float(at, o?.as_borrowed(), EXPECTED)).collect()
        })
    }
    fn lend<'h>(held: &'h Self::Held<'_>) -> Self::Lent<'h> {
        held.as_deref()
    }
}
impl Preset for kinds::OptFloats {
    fn preset<'a>(_default: Self::Lent<'static>) -> Self::Held<'a> {
        None
    }
}

/// Numbers of bins, or their edges: one number, or for each dimension a number or a tensor. Numbers become 0-d tensors.
impl Kind for kinds::Bins {
    type Held<'a> = Vec<lucid::Tensor>;
    type Lent<'h> = &'h [lucid::Tensor];
    fn hold<'a>(at: At, obj: Borrowed<'a, '_, PyAny>) -> PyResult<Self::Held<'a>> {
        const EXPECTED: &str = "int, or a sequence of ints or Tensors";
        let one = |o: Borrowed<'_, '_, PyAny>| match tensor_of(o) {
            Some(t) => Ok(t.clone()),
            None => {
                let n = int_of(at, o, EXPECTED)?;
                crate::cross::quick(o.py(), || lucid::Tensor::full_of(&[], n.into(), DType::I64, Device::Cpu))
            }
        };
        match obj.is_instance_of::<PyTuple>() || obj.is_instance_of::<PyList>() {
            true => obj.try_iter()?.map(|o| one(o?.as_borrowed())).collect(),
            false => Ok(vec![one(obj)?]),
        }
    }
    fn lend<'h>(held: &'h Self::Held<'_>) -> Self::Lent<'h> {
        held
    }
}
impl Preset for kinds::Bins {
    fn preset<'a>(default: Self::Lent<'static>) -> Self::Held<'a> {
        default.to_vec()
    }
}

impl Kind for kinds::OptGenerator {
    type Held<'a> = Option<lucid::Generator>;
    type Lent<'h> = Option<&'h lucid::Generator>;
    fn hold<'a>(at: At, obj: Borrowed<'a, '_, PyAny>) -> PyResult<Self::Held<'a>> {
        or_none(obj, || match obj.cast::<PyGenerator>() {
            Ok(g) => Ok(g.get().0.clone()),
            Err(_) => Err(at.wrong(obj, "Generator or None")),
        })
    }
    fn lend<'h>(held: &'h Self::Held<'_>) -> Self::Lent<'h> {
        held.as_ref()
    }
}
impl Preset for kinds::OptGenerator {
    fn preset<'a>(_default: Self::Lent<'static>) -> Self::Held<'a> {
        None
    }
}

impl Kind for kinds::Text {
    type Held<'a> = String;
    type Lent<'h> = &'h str;
    fn hold<'a>(at: At, obj: Borrowed<'a, '_, PyAny>) -> PyResult<String> {
        text(at, obj, "str")
    }
    fn lend(held: &String) -> &str {
        held
    }
}
impl Preset for kinds::Text {
    fn preset<'a>(default: Self::Lent<'static>) -> Self::Held<'a> {
        default.into()
    }
}

impl Kind for kinds::OptText {
    type Held<'a> = Option<String>;
    type Lent<'h> = Option<&'h str>;
    fn hold<'a>(at: At, obj: Borrowed<'a, '_, PyAny>) -> PyResult<Option<String>> {
        or_none(obj, || text(at, obj, "str or None"))
    }
    fn lend(held: &Option<String>) -> Option<&str> {
        held.as_deref()
    }
}
impl Preset for kinds::OptText {
    fn preset<'a>(default: Self::Lent<'static>) -> Self::Held<'a> {
        default.map(Into::into)
    }
}

/// A norm's order: a number, or one of the names.
impl Kind for kinds::OptOrder {
    type Held<'a> = Option<lucid::ops::NormOrder>;
    type Lent<'h> = Option<lucid::ops::NormOrder>;
    fn hold<'a>(at: At, obj: Borrowed<'a, '_, PyAny>) -> PyResult<Self::Held<'a>> {
        or_none(obj, || {
            let Ok(name) = obj.cast::<PyString>() else {
                return float(at, obj, "a number, 'fro', 'nuc' or None").map(lucid::ops::NormOrder::Number);
            };
            match name.extract::<String>()?.as_str() {
                "fro" => Ok(lucid::ops::NormOrder::Fro),
                "nuc" => Ok(lucid::ops::NormOrder::Nuc),
                other => {
                    let why = format!("Order {other} not supported; it is a number, 'fro' or 'nuc'");
                    Err(errors::runtime_error(obj.py(), why))
                }
            }
        })
    }
    fn lend<'h>(held: &'h Self::Held<'_>) -> Self::Lent<'h> {
        *held
    }
}
impl Preset for kinds::OptOrder {
    fn preset<'a>(default: Self::Lent<'static>) -> Self::Held<'a> {
        default
    }
}

fn text(at: At, obj: Borrowed<'_, '_, PyAny>, expected: &str) -> PyResult<String> {
    match obj.cast::<PyString>() {
        Ok(s) => s.extract(),
        Err(_) => Err(at.wrong(obj, expected)),
    }
}
