//! Reading tensors: single numbers, nested lists, bytes. These evaluate.

use super::{wrap, PyTensor};
use crate::{engine_call, errors, overrides};
use lucid::{with_dtype, Scalar, Tensor};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyComplex, PyList};
use std::sync::atomic::AtomicBool;

/// A number as Python's `bool`, `int`, `float` or `complex`.
#[inline]
pub fn scalar_object<'py>(py: Python<'py>, s: Scalar) -> PyResult<Bound<'py, PyAny>> {
    Ok(match s {
        Scalar::Bool(b) => b.into_pyobject(py)?.to_owned().into_any(),
        Scalar::Int(i) => i.into_pyobject(py)?.into_any(),
        Scalar::Wide(i) => i.into_pyobject(py)?.into_any(),
        Scalar::Float(f) => f.into_pyobject(py)?.into_any(),
        Scalar::Complex(re, im) => PyComplex::from_doubles(py, re, im).into_any(),
    })
}

/// Elements as nested lists.
fn nested<'py, T: Copy + Into<Scalar>>(py: Python<'py>, data: &[T], shape: &[usize]) -> PyResult<Bound<'py, PyAny>> {
    match shape {
        [] => scalar_object(py, data[0].into()),
        [_] => {
            let items: Vec<_> = data.iter().map(|&v| scalar_object(py, v.into())).collect::<PyResult<_>>()?;
            Ok(PyList::new(py, items)?.into_any())
        }
        [n, rest @ ..] => {
            let step: usize = rest.iter().product();
            let rows: Vec<_> =
                (0..*n).map(|i| nested(py, &data[i * step..(i + 1) * step], rest)).collect::<PyResult<_>>()?;
            Ok(PyList::new(py, rows)?.into_any())
        }
    }
}

impl PyTensor {
    /// The only element, for a conversion to a Python number.
    fn number(&self, py: Python<'_>) -> PyResult<Scalar> {
        let t = self.share();
        if t.numel() != 1 {
            return Err(errors::value_error(py, "only one element tensors can be converted to Python scalars"));
        }
        engine_call::long(py, move || t.item())
    }
}

/// The real part of a complex element that has no other.
fn real_alone(py: Python<'_>, to: &str, re: f64, im: f64) -> PyResult<f64> {
    match im == 0.0 {
        true => Ok(re),
        false => Err(errors::runtime_error(py, format!("{to}(): {re}{im:+}j has an imaginary part; take .real first"))),
    }
}

/// PyTorch's warning where a number is made of a tensor that requires a gradient.
///
/// # Errors
/// That warning, where a filter makes it one.
pub fn warn_of_number(py: Python<'_>) -> PyResult<()> {
    static GIVEN: AtomicBool = AtomicBool::new(false);
    let why = "Converting a tensor with requires_grad=True to a scalar cuts it off from the tape. Consider \
        tensor.detach() first.";
    crate::warn::once(py, &GIVEN, why)
}

#[pymethods]
impl PyTensor {
    /// The only element as a Python number.
    pub fn item<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let t = self.share();
        scalar_object(py, engine_call::long(py, move || t.item())?)
    }

    /// The elements as nested lists of Python numbers.
    fn tolist<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let t = self.share();
        with_dtype!(t.dtype(), T => {
            // A number of Python's, and its place in a list.
            let data = engine_call::long(py, || lucid::ensure_room(t.numel(), 48).and_then(|()| t.to_vec::<T>()))?;
            nested(py, &data, t.shape())
        })
    }

    /// Computes what is pending for this tensor, and gives it back.
    fn eval<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        let t = slf.get().share();
        engine_call::long(slf.py(), || t.eval())?;
        Ok(slf.clone())
    }

    /// A NumPy array that shows the tensor's memory: writes to either are seen by both. A tensor that requires gradients is a
    /// RuntimeError, one on the GPU device or of bfloat16 a TypeError; `force` detaches and copies from the GPU device.
    #[doc = lucid::op_doc!(python tensor_numpy)]
    #[pyo3(signature = (*, force=false))]
    fn numpy<'py>(slf: &Bound<'py, Self>, force: bool) -> PyResult<Bound<'py, PyAny>> {
        static NUMPY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        NUMPY.import(slf.py(), "lucid._convert", "to_numpy")?.call1((slf, force))
    }

    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        slf: &Bound<'py, Self>,
        dtype: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        static ARRAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        ARRAY.import(slf.py(), "lucid._convert", "to_array")?.call1((slf, dtype, copy))
    }

    /// The elements' bytes in row-major order and the machine's byte order.
    fn _bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let t = self.share();
        let bytes = engine_call::long(py, || t.to_bytes())?;
        PyBytes::new_with(py, bytes.len(), |to| {
            to.copy_from_slice(&bytes);
            Ok(())
        })
    }

    fn __bool__(slf: &Bound<'_, Self>) -> PyResult<bool> {
        let py = slf.py();
        if let Some(answer) = overrides::asked(slf, "__bool__", &[])? {
            return answer.extract();
        }
        match slf.get().read().numel() {
            _ if slf.get().read().is_batched() => {
                return Err(errors::runtime_error(py, lucid::batching::CONTROL_FLOW));
            }
            1 => {}
            0 => return Err(errors::runtime_error(py, "Boolean value of Tensor with no values is ambiguous")),
            _ => {
                return Err(errors::runtime_error(py, "Boolean value of Tensor with more than one value is ambiguous"))
            }
        }
        Ok(slf.get().number(py)?.to_bool())
    }

    fn __int__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        if let Some(answer) = overrides::asked(slf, "__int__", &[])? {
            return Ok(answer);
        }
        match slf.get().number(py)? {
            Scalar::Float(f) => f.into_pyobject(py)?.call_method0("__int__"),
            Scalar::Complex(re, im) => real_alone(py, "int", re, im)?.into_pyobject(py)?.call_method0("__int__"),
            s => Ok(s.to_i64().into_pyobject(py)?.into_any()),
        }
    }

    fn __float__(slf: &Bound<'_, Self>) -> PyResult<f64> {
        let py = slf.py();
        if let Some(answer) = overrides::asked(slf, "__float__", &[])? {
            return answer.extract();
        }
        if slf.get().read().requires_grad() {
            warn_of_number(py)?;
        }
        match slf.get().number(py)? {
            Scalar::Complex(re, im) => real_alone(py, "float", re, im),
            s => Ok(s.to_f64()),
        }
    }

    fn __complex__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyComplex>> {
        let py = slf.py();
        if let Some(answer) = overrides::asked(slf, "__complex__", &[])? {
            return Ok(answer.cast_into()?);
        }
        Ok(match slf.get().number(py)? {
            Scalar::Complex(re, im) => PyComplex::from_doubles(py, re, im),
            s => PyComplex::from_doubles(py, s.to_f64(), 0.0),
        })
    }

    fn __index__(slf: &Bound<'_, Self>) -> PyResult<i64> {
        let py = slf.py();
        if let Some(answer) = overrides::asked(slf, "__index__", &[])? {
            return answer.extract();
        }
        let integral = {
            let t = slf.get().read();
            t.dtype().is_integral() && t.numel() == 1
        };
        match integral {
            true => Ok(slf.get().number(py)?.to_i64()),
            false => {
                Err(errors::type_error(py, "only integer tensors of a single element can be converted to an index"))
            }
        }
    }

    /// The indices of the elements that are not zero: one row each, or with `as_tuple` one vector per dimension.
    #[doc = lucid::op_doc!(python tensor_nonzero)]
    #[pyo3(signature = (*, as_tuple=false))]
    fn _nonzero<'py>(&self, py: Python<'py>, as_tuple: bool) -> PyResult<Bound<'py, PyAny>> {
        nonzero_of(py, self.share(), as_tuple)
    }
}

/// `nonzero` in both of its forms.
pub fn nonzero_of(py: Python<'_>, t: Tensor, as_tuple: bool) -> PyResult<Bound<'_, PyAny>> {
    if !as_tuple {
        let y = engine_call::long(py, || t.nonzero())?;
        return wrap(py, y);
    }
    let parts = engine_call::long(py, || {
        let t = if t.ndim() == 0 { t.reshape(&[1])? } else { t };
        t.nonzero()?.unbind(1)
    })?;
    let parts: Vec<_> = parts.into_iter().map(|p| wrap(py, p)).collect::<PyResult<_>>()?;
    Ok(pyo3::types::PyTuple::new(py, parts)?.into_any())
}
