//! What is no tensor: numbers, sizes, dimensions, dtypes, devices, texts, generators. Depends on the parent's kinds.

use super::operands::{tensor_of, tensors_of};
use super::{int_of, ints_of, kinds, scalar_of, At, Ints, Kind, Preset, TooLarge};
use crate::device::device_of;
use crate::dtype::dtype_of;
use crate::errors;
use crate::random::PyGenerator;
use crate::tensor::PyTensor;
use lucid::ops::out::Given;
use lucid::{DType, Device, Scalar};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyList, PyString, PyTuple};
use pyo3::Borrowed;

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
            /// An integer may be how many elements are made, as `randperm` takes it.
            #[inline]
            fn weight(held: &$ty) -> usize {
                (held as &dyn std::any::Any).downcast_ref::<i64>().map_or(0, |&n| usize::try_from(n).unwrap_or(0))
            }
            fn given(held: &$ty) -> Given {
                (held as &dyn std::any::Any).downcast_ref::<i64>().map_or(Given::Other, |n| Given::Int(*n))
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
/// An integer tensor without dimensions, which PyTorch takes for a dimension.
fn is_index(obj: Borrowed<'_, '_, PyAny>) -> Option<bool> {
    let t = obj.cast::<PyTensor>().ok()?.get().share();
    Some(t.ndim() == 0 && t.dtype().is_integral() && t.dtype() != DType::Bool)
}

fn dim_of(at: At, obj: Borrowed<'_, '_, PyAny>, expected: &str) -> PyResult<isize> {
    match is_index(obj) {
        Some(false) => Err(at.wrong(obj, expected)),
        _ => int_of(at, obj, expected).map(|i| i as isize),
    }
}

/// Where a slice begins: an integer, or a tensor that holds one.
fn start(at: At, obj: Borrowed<'_, '_, PyAny>) -> PyResult<i64> {
    match is_index(obj) {
        Some(false) => {
            let why = format!("{}(): {} must be an 0-dim integral Tensor.", at.op, at.arg);
            Err(errors::runtime_error(obj.py(), why))
        }
        _ => int_of(at, obj, "int"),
    }
}

plain_kinds! {
    Number Scalar: |at, obj| number(at, obj, "a number");
    OptNumber Option<Scalar>: |at, obj| or_none(obj, || number(at, obj, "a number or None"));
    Int i64: |at, obj| int_of(at, obj, "int");
    Start i64: |at, obj| start(at, obj);
    OptInt Option<i64>: |at, obj| or_none(obj, || int_of(at, obj, "int or None"));
    Float f64: |at, obj| float(at, obj, "float");
    OptFloat Option<f64>: |at, obj| or_none(obj, || float(at, obj, "float or None"));
    Bool bool: |at, obj| match obj.cast::<PyBool>() {
        Ok(b) => Ok(b.is_true()),
        Err(_) => Err(at.wrong(obj, "bool")),
    };
    OptBool Option<bool>: |at, obj| or_none(obj, || <kinds::Bool as Kind>::hold(at, obj));
    Whether bool: |at, obj| match obj.is_none() {
        true => Ok(false),
        false => <kinds::Bool as Kind>::hold(at, obj),
    };
    Dim isize: |at, obj| dim_of(at, obj, "int");
    OptDim Option<isize>: |at, obj| or_none(obj, || dim_of(at, obj, "int or None"));
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
        // A 0-d tensor counts as its number, as in PyTorch; that evaluates.
        None => match tensor_of(obj) {
            Some(t) if t.ndim() == 0 && !t.requires_grad() => {
                let t = t.clone();
                crate::engine_call::long(obj.py(), || t.item())
            }
            _ => Err(at.wrong(obj, expected)),
        },
    }
}

fn float(at: At, obj: Borrowed<'_, '_, PyAny>, expected: &str) -> PyResult<f64> {
    if let Some(Err(TooLarge)) = scalar_of(obj) {
        // An integer beyond 64 bits is a number like others here, unless it is beyond those, too.
        return obj.extract::<f64>();
    }
    match number(at, obj, expected)? {
        Scalar::Complex(..) => Err(at.wrong(obj, expected)),
        s => Ok(s.to_f64()),
    }
}

/// The elements of a tensor of these sizes, where they are very many: views of large tensors are made of sizes, too.
#[inline]
fn made_of(sizes: &[isize]) -> usize {
    let n = sizes.iter().fold(1usize, |n, &size| n.saturating_mul(usize::try_from(size).unwrap_or(1)));
    if n < 1 << 20 {
        0
    } else {
        n
    }
}

/// Kinds that are lists of integers.
macro_rules! list_kinds {
    ($($name:ident $expected:literal, $convert:ident;)*) => {$(
        impl Kind for kinds::$name {
            type Held<'a> = Ints;
            type Lent<'h> = &'h [isize];
            #[inline]
            fn hold<'a>(at: At, obj: Borrowed<'a, '_, PyAny>) -> PyResult<Ints> {
                $convert(at, obj, $expected)
            }
            #[inline]
            fn lend(held: &Ints) -> &[isize] {
                held
            }
            #[inline]
            fn weight(held: &Ints) -> usize {
                made_of(held)
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
    Dims "int or a tuple of ints", ints_of;
    Sizes "a tuple of ints", sizes_of;
}

/// A sequence of integers: what takes one integer too says `Dims`, and methods take them one by one.
pub fn sizes_of(at: At, obj: Borrowed<'_, '_, PyAny>, expected: &str) -> PyResult<Ints> {
    match obj.is_instance_of::<PyTuple>() || obj.is_instance_of::<PyList>() {
        true => ints_of(at, obj, expected),
        false => Err(at.wrong(obj, expected)),
    }
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
            let list = crate::engine_call::long(obj.py(), || t.cast(DType::I64)?.to_vec::<i64>())?;
            return Ok(HeldSections::List(list.into_iter().map(|i| i as isize).collect()));
        }
        if obj.is_instance_of::<PyTuple>() || obj.is_instance_of::<PyList>() {
            return ints_of(at, obj, EXPECTED).map(HeldSections::List);
        }
        if let Some(t) = tensor_of(obj).filter(|t| t.ndim() > 1 || !t.dtype().is_integral()) {
            let (op, got) = (at.op, format!("{} dimensions and dtype {}", t.ndim(), t.dtype()));
            let why = format!("{op}(): a tensor of sections or indices must have at most one dimension, and be of integers, but got one with {got}");
            return Err(errors::runtime_error(obj.py(), why));
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
                let [a, b] = parts.as_slice() else {
                    let why = format!("{}(): '{}' must be {EXPECTED}, not {} of them", at.op, at.arg, parts.len());
                    return Err(errors::value_error(obj.py(), why));
                };
                let list = |o: &Bound<'_, PyAny>| sizes_of(at, o.as_borrowed(), EXPECTED).map(|l| l.to_vec());
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
    fn given(held: &Option<Ints>) -> Given {
        held.as_ref().map_or(Given::Missing, |_| Given::Other)
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
                crate::engine_call::quick(o.py(), || lucid::Tensor::full_of(&[], n.into(), DType::I64, Device::Cpu))
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
        // As PyTorch, which looks for it among those it knows.
        Err(_) if at.arg == "reduction" => {
            Err(errors::value_error(obj.py(), format!("{}(): {} is not a valid value for reduction", at.op, *obj)))
        }
        Err(_) => Err(at.wrong(obj, expected)),
    }
}
