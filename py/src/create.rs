//! Tensors from Python data: numbers, nested sequences, tensors; arrays and buffers go through `lucid._convert`.
//!
//! Nesting is walked with a depth limit, elements are gathered as [`Scalar`]s and written once in the final dtype.

use crate::args::{kinds, optional, scalar_of, Arg, At};
use crate::tensor::{wrap, PyTensor};
use crate::{engine_call, errors};
use half::{bf16, f16};
use lucid::dtype::float8::{F8E4M3FN, F8E5M2};
use lucid::dtype::{Category, Element};
use lucid::with_dtype;
use lucid::{DType, Device, Scalar, Tensor};
use num_complex::{Complex32, Complex64};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyComplex, PyDict, PyFloat, PyInt, PyList, PySet, PyString, PyTuple, PyType};
use std::sync::atomic::AtomicBool;

/// The deepest nesting of sequences taken.
const DEEPEST: usize = 64;

/// `dtype=` and `device=` of a hand-written function.
pub fn options(op: &'static str, dtype: Arg<'_, '_>, device: Arg<'_, '_>) -> PyResult<(Option<DType>, Option<Device>)> {
    let dtype = optional::<kinds::OptDtype>(At { op, arg: "dtype" }, dtype, None)?;
    let device = optional::<kinds::OptDevice>(At { op, arg: "device" }, device, None)?;
    Ok((dtype, device))
}

/// Elements and sizes of nested sequences.
#[derive(Default)]
struct Nested {
    shape: Vec<usize>,
    items: Vec<Scalar>,
    /// The dtypes of all elements, promoted.
    dtype: Option<DType>,
    /// The dtype that was asked for: what is no number may still give one of it.
    wanted: Option<DType>,
    /// An integer that only a real or bool element can hold.
    large: Option<String>,
}

/// Is it indexed by position: a list, a range, an array, text, or of a class with `__getitem__`? A dict is not, nor a set.
pub fn is_sequence(obj: &Bound<'_, PyAny>) -> PyResult<bool> {
    let class = obj.get_type();
    Ok(class.hasattr("__getitem__")? && class.hasattr("__len__")? && !obj.is_instance_of::<PyDict>())
}

fn sequence<'py>(obj: &Bound<'py, PyAny>) -> Option<Vec<Bound<'py, PyAny>>> {
    if let Ok(l) = obj.cast::<PyList>() {
        return Some(l.iter().collect());
    }
    if let Ok(t) = obj.cast::<PyTuple>() {
        return Some(t.iter().collect());
    }
    if obj.is_instance_of::<PyFloat>() || obj.is_instance_of::<PyInt>() {
        return None;
    }
    let is_range = obj.get_type().name().is_ok_and(|n| n == "range");
    if is_range {
        obj.try_iter().ok()?.collect::<PyResult<_>>().ok()
    } else {
        None
    }
}

impl Nested {
    fn gather(&mut self, obj: &Bound<'_, PyAny>, depth: usize) -> PyResult<()> {
        let py = obj.py();
        // The commonest elements first.
        if obj.is_exact_instance_of::<PyFloat>() {
            return self.leaf(py, depth, Scalar::Float(obj.extract()?), lucid::default_dtype());
        }
        if obj.is_exact_instance_of::<PyInt>()
            && let Ok(item) = obj.extract::<i64>()
        {
            return self.leaf(py, depth, Scalar::Int(item), DType::I64);
        }
        if let Some((item, dtype)) = numpy_number(obj)? {
            return self.leaf(py, depth, item, dtype);
        }
        if let Some(parts) = sequence(obj) {
            if depth >= DEEPEST {
                return Err(errors::value_error(
                    py,
                    format!("tensor(): the data is nested deeper than {DEEPEST} levels"),
                ));
            }
            self.enter(py, depth, parts.len())?;
            if parts.is_empty() {
                self.note(py, lucid::default_dtype())?;
            }
            return parts.iter().try_for_each(|p| self.gather(p, depth + 1));
        }
        if let Some(t) = self.nested_tensor(obj)? {
            // A tensor of one element is a number where the data has no more dimensions, whatever its own.
            let number = obj.is_instance_of::<PyTensor>() && t.numel() == 1 && self.shape.len() == depth;
            let t = if number { engine_call::quick(py, || t.reshape(()))? } else { t };
            let mut sizes = depth;
            for &n in t.shape() {
                self.enter(py, sizes, n)?;
                sizes += 1;
            }
            self.check_leaf(py, sizes)?;
            self.note(py, t.dtype())?;
            if t.requires_grad() && t.numel() > 0 {
                crate::tensor::warn_of_number(py)?;
            }
            if depth > 0 && !obj.is_instance_of::<PyTensor>() && t.ndim() > 0 {
                static GIVEN: AtomicBool = AtomicBool::new(false);
                let why =
                    "A tensor of a list of arrays is made slowly. Make one array of them first, by numpy.array().";
                crate::warn::once(py, &GIVEN, why)?;
            }
            return with_dtype!(t.dtype(), T => {
                let items = engine_call::long(py, || t.to_vec::<T>())?;
                self.items.extend(items.into_iter().map(Scalar::from));
                Ok(())
            });
        }
        let item = match scalar_of(obj.as_borrowed()) {
            Some(Ok(s)) => s,
            Some(Err(_)) => {
                self.large = Some(obj.to_string());
                Scalar::Float(obj.extract()?)
            }
            None => match self.other(obj, depth)? {
                Some(item) => item,
                None => return Ok(()),
            },
        };
        self.check_leaf(py, depth)?;
        let dtype = match (&item, &self.large) {
            (Scalar::Float(_), Some(_)) if obj.is_instance_of::<PyInt>() => DType::I64,
            _ => dtype_of_number(obj, item),
        };
        self.note(py, dtype)?;
        self.items.push(item);
        Ok(())
    }

    /// Takes an element of that dtype.
    fn leaf(&mut self, py: Python<'_>, depth: usize, item: Scalar, dtype: DType) -> PyResult<()> {
        self.check_leaf(py, depth)?;
        self.note(py, dtype)?;
        self.items.push(item);
        Ok(())
    }

    /// What is none of Python's numbers or lists: another sequence, gathered, or what gives a number of the dtype wanted.
    fn other(&mut self, obj: &Bound<'_, PyAny>, depth: usize) -> PyResult<Option<Scalar>> {
        let py = obj.py();
        if obj.is_instance_of::<PyString>() {
            // A text is a sequence of texts, without end; sizes are PyTorch's first look, along the first elements.
            let first = self.items.is_empty() && self.shape.len() == depth && obj.len()? > 0;
            return Err(match first {
                true => errors::value_error(py, "tensor(): too many dimensions 'str'"),
                false => invalid(obj),
            });
        }
        if obj.is_instance_of::<PyBytes>() && self.wanted.is_none() {
            return Err(invalid(obj));
        }
        if is_sequence(obj)? && !obj.hasattr("__array__")? {
            let parts: Vec<_> = (0..obj.len()?).map(|i| obj.get_item(i)).collect::<PyResult<_>>()?;
            self.gather(PyList::new(py, parts)?.as_any(), depth)?;
            return Ok(None);
        }
        match self.wanted.map(DType::category) {
            None if obj.is_none() => Err(errors::runtime_error(py, "Could not infer dtype of NoneType")),
            None if obj.hasattr("__array__")? => foreign(obj, None, None).and(Err(uninferred(obj))),
            None => Err(uninferred(obj)),
            Some(Category::Float) => obj.extract().map(|f| Some(Scalar::Float(f))),
            Some(Category::Complex) => {
                let number = py.get_type::<PyComplex>().call1((obj,))?;
                Ok(scalar_of(number.as_borrowed()).and_then(Result::ok))
            }
            Some(Category::Integer | Category::Bool) => obj.extract().map(|i| Some(Scalar::Int(i))),
        }
    }

    /// A tensor or array among the data.
    fn nested_tensor(&self, obj: &Bound<'_, PyAny>) -> PyResult<Option<Tensor>> {
        if let Ok(t) = obj.cast::<PyTensor>() {
            return Ok(Some(t.get().share()));
        }
        match obj.hasattr("__array__")? && obj.getattr("ndim").is_ok_and(|n| n.extract::<usize>().is_ok_and(|n| n > 0))
        {
            true => foreign(obj, None, None).map(Some),
            false => Ok(None),
        }
    }

    fn enter(&mut self, py: Python<'_>, depth: usize, n: usize) -> PyResult<()> {
        match self.shape.get(depth) {
            _ if self.is_empty() => Ok(()),
            Some(&seen) if seen != n => {
                let why = format!("expected sequence of length {seen} at dim {depth} (got {n})");
                Err(errors::value_error(py, why))
            }
            Some(_) => Ok(()),
            None if self.items.is_empty() && depth == self.shape.len() => {
                self.shape.push(n);
                Ok(())
            }
            None => Err(errors::type_error(py, format!("tensor(): expected a number at dim {depth}, got a sequence"))),
        }
    }

    /// No element has a place then, and PyTorch does not look at the others' sizes.
    fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    fn check_leaf(&self, py: Python<'_>, depth: usize) -> PyResult<()> {
        match depth == self.shape.len() || self.is_empty() {
            true => Ok(()),
            false => Err(errors::type_error(py, format!("tensor(): expected a sequence at dim {depth}, got a number"))),
        }
    }

    /// Takes an element's dtype into account: what brings its own is promoted with those of Python's numbers.
    fn note(&mut self, py: Python<'_>, dtype: DType) -> PyResult<()> {
        if self.wanted.is_none() && self.dtype != Some(dtype) {
            let seen = self.dtype.map_or(Ok(dtype), |seen| seen.promote(dtype));
            self.dtype = Some(seen.map_err(|e| errors::raise(py, &e))?);
        }
        Ok(())
    }
}

/// The value and dtype of one of NumPy's commonest scalars.
fn numpy_number(obj: &Bound<'_, PyAny>) -> PyResult<Option<(Scalar, DType)>> {
    static TYPES: PyOnceLock<Vec<(Py<PyType>, DType)>> = PyOnceLock::new();
    let (py, class) = (obj.py(), obj.get_type());
    let types = match TYPES.get(py) {
        Some(types) => types,
        None => {
            // NumPy is not imported for this: where there is a scalar of it, it is there.
            let is_numpy = |name: Bound<'_, PyString>| name.to_str().is_ok_and(|name| name == "numpy");
            if obj.is_instance_of::<PyList>() || !class.module().is_ok_and(is_numpy) {
                return Ok(None);
            }
            let numpy = py.import("numpy")?;
            let known =
                [("float32", DType::F32), ("float64", DType::F64), ("int64", DType::I64), ("int32", DType::I32)];
            let types = known
                .into_iter()
                .map(|(name, dtype)| Ok((numpy.getattr(name)?.cast_into::<PyType>()?.unbind(), dtype)))
                .collect::<PyResult<Vec<_>>>()?;
            TYPES.get_or_init(py, || types)
        }
    };
    let Some((_, dtype)) = types.iter().find(|(known, _)| known.bind(py).is(&class)) else { return Ok(None) };
    Ok(Some(match dtype.is_float() {
        true => (Scalar::Float(obj.extract()?), *dtype),
        false => (Scalar::Int(obj.extract()?), *dtype),
    }))
}

/// What is neither number nor sequence.
fn uninferred(obj: &Bound<'_, PyAny>) -> PyErr {
    let got = crate::args::kind_name(obj);
    errors::runtime_error(obj.py(), format!("tensor(): Could not infer dtype of {got}"))
}

fn invalid(obj: &Bound<'_, PyAny>) -> PyErr {
    errors::type_error(obj.py(), format!("tensor(): invalid data type '{}'", crate::args::kind_name(obj)))
}

/// The dtype of a number among the data.
fn dtype_of_number(obj: &Bound<'_, PyAny>, number: Scalar) -> DType {
    // NumPy's numbers bring their own; its float64 is a Python float too.
    let exact = obj.is_exact_instance_of::<PyInt>() || obj.is_exact_instance_of::<PyFloat>();
    let own = || obj.getattr("dtype").ok()?.getattr("name").ok()?.extract::<String>().ok();
    let own = if exact { None } else { own().and_then(|name| DType::from_name(&name)) };
    own.unwrap_or_else(|| match number.category() {
        Category::Float => lucid::default_dtype(),
        Category::Complex => lucid::default_dtype().to_complex(),
        Category::Integer => DType::I64,
        Category::Bool => DType::Bool,
    })
}

/// A number as an element; `None` where it is out of the dtype's range.
trait FromScalar: Element {
    fn from_scalar(s: Scalar) -> Option<Self>;
}

macro_rules! from_scalar {
    ($($ty:ty: |$s:ident| $e:expr;)*) => {
        $(impl FromScalar for $ty {
            fn from_scalar($s: Scalar) -> Option<Self> { $e }
        })*
    };
}
from_scalar! {
    bool: |s| Some(s.to_bool());
    // Negative numbers wrap, as in PyTorch.
    u8: |s| exact_int(s, -255, 255).map(|i| i as u8);
    i8: |s| exact_int(s, i8::MIN.into(), i8::MAX.into()).map(|i| i as i8);
    i16: |s| exact_int(s, i16::MIN.into(), i16::MAX.into()).map(|i| i as i16);
    i32: |s| exact_int(s, i32::MIN.into(), i32::MAX.into()).map(|i| i as i32);
    i64: |s| exact_int(s, i64::MIN, i64::MAX);
    u16: |s| exact_int(s, -i64::from(u16::MAX), u16::MAX.into()).map(|i| i as u16);
    u32: |s| exact_int(s, -i64::from(u32::MAX), u32::MAX.into()).map(|i| i as u32);
    u64: |s| s.converts(DType::U64).then(|| s.to_u64());
    F8E4M3FN: |s| real(s).map(F8E4M3FN::from_f64);
    F8E5M2: |s| real(s).map(F8E5M2::from_f64);
    f16: |s| real(s).map(f16::from_f64);
    bf16: |s| real(s).map(bf16::from_f64);
    f32: |s| real(s).map(|f| f as f32);
    f64: |s| real(s);
    Complex32: |s| Some(Complex32::new(s.to_complex().re as f32, s.to_complex().im as f32));
    Complex64: |s| Some(s.to_complex());
}

fn exact_int(s: Scalar, least: i64, most: i64) -> Option<i64> {
    let i = match s {
        // 2^63 itself is no i64.
        Scalar::Float(f) => {
            (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&f).then_some(f as i64)?
        }
        Scalar::Complex(..) => return None,
        s => s.to_i64(),
    };
    (least..=most).contains(&i).then_some(i)
}

fn real(s: Scalar) -> Option<f64> {
    match s {
        Scalar::Complex(_, im) if im != 0.0 => None,
        s => Some(s.to_f64()),
    }
}

/// A tensor of Python data, cut off from everything.
pub fn tensor_of(data: &Bound<'_, PyAny>, dtype: Option<DType>, device: Option<Device>) -> PyResult<Tensor> {
    let py = data.py();
    if let Ok(t) = data.cast::<PyTensor>() {
        let t = t.get().share();
        let t = engine_call::quick(py, || t.detach())?;
        let made = crate::tensor::converted(py, &t, dtype, device, true, None)?;
        return Ok(made.unwrap_or(t));
    }
    // A NumPy scalar or 0-d array is a number to Python, but brings its own dtype.
    let array = data.hasattr("__array__")?;
    let number = !array && scalar_of(data.as_borrowed()).is_some();
    if !number && (array || sequence(data).is_none()) {
        return foreign(data, dtype, device);
    }
    let mut nested = Nested { wanted: dtype, ..Nested::default() };
    nested.gather(data, 0)?;
    if nested.is_empty() {
        nested.items.clear();
    }
    let dtype = dtype.or(nested.dtype).unwrap_or(lucid::default_dtype());
    let device = device.unwrap_or(lucid::default_device());
    let complex = nested.items.iter().any(|s| matches!(s, Scalar::Complex(..)));
    let out_of_range = || match complex && !dtype.is_complex() {
        true => errors::type_error(py, format!("tensor(): a complex number is no element of {dtype}")),
        false => errors::runtime_error(py, format!("value cannot be converted to type {dtype} without overflow")),
    };
    if dtype == DType::U64 {
        let integers = nested.items.iter().all(|s| s.category() <= Category::Integer);
        return match nested.items.iter().any(|s| matches!(s, Scalar::Int(..0))) {
            _ if nested.large.is_some() => {
                Err(errors::overflow_error(py, "tensor(): int too big to convert to uint64"))
            }
            _ if !integers => Err(errors::type_error(py, "tensor(): an integer is required for uint64")),
            true => Err(errors::overflow_error(py, "tensor(): can't convert a negative int to uint64")),
            false => {
                let items: Vec<u64> = nested.items.iter().map(|s| s.to_u64()).collect();
                engine_call::op(py, items.len(), || Tensor::from_slice(&items, &nested.shape, device))
            }
        };
    }
    if dtype.is_integral() && dtype != DType::Bool {
        let wide = nested.items.iter().find(|s| matches!(s, Scalar::Wide(_)));
        if let Some(wide) = nested.large.or_else(|| wide.map(ToString::to_string)) {
            return Err(errors::value_error(py, format!("tensor(): {wide} does not fit into 64 bits")));
        }
    }
    with_dtype!(dtype, T => {
        let items: Option<Vec<T>> = nested.items.iter().map(|&s| T::from_scalar(s)).collect();
        let items = items.ok_or_else(out_of_range)?;
        engine_call::op(py, items.len(), || Tensor::from_slice(&items, &nested.shape, device))
    })
}

/// A tensor of an array or buffer, made by `lucid._convert`.
fn foreign(data: &Bound<'_, PyAny>, dtype: Option<DType>, device: Option<Device>) -> PyResult<Tensor> {
    static FROM: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = data.py();
    if data.is_instance_of::<PyDict>() || data.is_instance_of::<PySet>() {
        return Err(uninferred(data));
    }
    if data.is_instance_of::<PyString>() || data.is_instance_of::<PyBytes>() {
        return Err(invalid(data));
    }
    let made = FROM.import(py, "lucid._convert", "from_foreign")?.call1((data,))?;
    let t = made.cast::<PyTensor>()?.get().share();
    Ok(crate::tensor::converted(py, &t, dtype, Some(device.unwrap_or(lucid::default_device())), false, None)?
        .unwrap_or(t))
}

/// PyTorch's warning where a tensor is given as data for another.
///
/// # Errors
/// That warning, where a filter makes it one.
pub fn warn_of_copy(data: &Bound<'_, PyAny>, function: &str) -> PyResult<()> {
    if !data.is_instance_of::<PyTensor>() {
        return Ok(());
    }
    let text = format!(
        "To make a tensor of a tensor, it is recommended to use source.detach().clone() or \
         source.detach().clone().requires_grad_(True), rather than {function}(source)."
    );
    crate::warn::user(data.py(), &text)
}

/// A tensor that copies `data`: numbers, nested sequences of them, arrays, buffers, tensors. The dtype follows from the data
/// unless given.
#[doc = lucid::op_doc!(python tensor)]
#[pyfunction]
#[pyo3(signature = (data, *, dtype=Arg::MISSING, device=Arg::MISSING, requires_grad=false, pin_memory=false))]
fn tensor<'py>(
    data: &Bound<'py, PyAny>,
    dtype: Arg<'_, 'py>,
    device: Arg<'_, 'py>,
    requires_grad: bool,
    pin_memory: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let _ = pin_memory;
    let (dtype, device) = options("tensor", dtype, device)?;
    warn_of_copy(data, "lucid.tensor")?;
    // A tensor stays on its device.
    let device = device.or_else(|| data.cast::<PyTensor>().ok().map(|t| t.get().read().device()));
    crate::results::leaf(data.py(), tensor_of(data, dtype, device)?, requires_grad)
}

/// `data` as a tensor: a tensor itself where dtype and device are right already, the memory of a NumPy
/// array shared where they are, else a copy.
#[doc = lucid::op_doc!(python as_tensor)]
#[pyfunction]
#[pyo3(signature = (data, dtype=Arg::MISSING, device=Arg::MISSING))]
fn as_tensor<'py>(data: &Bound<'py, PyAny>, dtype: Arg<'_, 'py>, device: Arg<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    let (dtype, device) = options("as_tensor", dtype, device)?;
    if let Ok(t) = data.cast::<PyTensor>() {
        let t = t.get().share();
        return match crate::tensor::converted(data.py(), &t, dtype, device, false, None)? {
            Some(t) => wrap(data.py(), t),
            None => Ok(data.clone()),
        };
    }
    let plain = sequence(data).is_some() || (!data.hasattr("__array__")? && scalar_of(data.as_borrowed()).is_some());
    let refused = data.is_none() || data.is_instance_of::<PyString>() || data.is_instance_of::<PyDict>();
    if plain || refused || data.is_instance_of::<PyBytes>() {
        return wrap(data.py(), tensor_of(data, dtype, device)?);
    }
    let shown = crate::tensor::shown(data)?;
    let t = shown.cast::<PyTensor>()?.get().share();
    let device = device.unwrap_or(lucid::default_device());
    match crate::tensor::converted(data.py(), &t, dtype, Some(device), false, None)? {
        Some(t) => wrap(data.py(), t),
        None => Ok(shown),
    }
}

/// A tensor of row-major bytes in the machine's byte order.
#[pyfunction]
fn _from_bytes<'py>(
    py: Python<'py>,
    bytes: &Bound<'py, PyBytes>,
    shape: Vec<usize>,
    dtype: Arg<'_, 'py>,
    device: Arg<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let (dtype, device) = options("from_bytes", dtype, device)?;
    let (dtype, device) = (dtype.unwrap_or(DType::U8), device.unwrap_or(Device::Cpu));
    let bytes = bytes.as_bytes();
    wrap(py, engine_call::op(py, bytes.len(), || Tensor::from_bytes(bytes, &shape, dtype, device))?)
}

/// Adds the functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(tensor, m)?)?;
    m.add_function(wrap_pyfunction!(as_tensor, m)?)?;
    m.add_function(wrap_pyfunction!(_from_bytes, m)?)
}
