//! What changes a tensor's own sizes, strides or storage: `resize_`, `set_`; and new tensors of given strides.
//!
//! The in-place forms of views come from the op table. All put another engine tensor into the same Python object.

use super::{wrap, PyTensor};
use crate::args::{kinds, optional, required, Arg, At, Flag};
use crate::create::options;
use crate::{engine_call, errors, results};
use lucid::{MemoryFormat, Tensor};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

type Object<'py> = PyResult<Bound<'py, PyAny>>;

/// Lets the engine change a handle, and puts that into the object.
fn change<'py>(
    slf: &Bound<'py, PyTensor>,
    f: impl FnOnce(&mut Tensor) -> lucid::Result<()> + Send,
) -> PyResult<Bound<'py, PyTensor>> {
    let mut t = slf.get().share();
    engine_call::quick(slf.py(), || f(&mut t))?;
    slf.get().replace(slf.py(), t);
    Ok(slf.clone())
}

#[pymethods]
impl PyTensor {
    /// Gives the tensor other sizes, row-major or as `memory_format` says. Where its storage has too few elements it gets
    /// another one, which begins with the old elements and has zeros after them (PyTorch lets these be anything); views stay
    /// on the old one.
    #[doc = lucid::op_doc!(python tensor_resize_)]
    #[pyo3(signature = (*size, memory_format=Arg::MISSING))]
    fn resize_<'py>(
        slf: &Bound<'py, Self>,
        size: &Bound<'py, PyTuple>,
        memory_format: Arg<'_, 'py>,
    ) -> PyResult<Bound<'py, Self>> {
        let format = crate::format::given("resize_", memory_format)?.unwrap_or(MemoryFormat::Contiguous);
        let size = crate::ops::listed(At { op: "resize_", arg: "size" }, size, Arg::MISSING)?;
        change(slf, move |t| t.resize_in(&size, format))
    }

    /// `resize_` with the sizes of another tensor.
    #[doc = lucid::op_doc!(python tensor_resize_as_)]
    #[pyo3(signature = (the_template, *, memory_format=Arg::MISSING))]
    fn resize_as_<'py>(
        slf: &Bound<'py, Self>,
        the_template: &Bound<'py, PyTensor>,
        memory_format: Arg<'_, 'py>,
    ) -> PyResult<Bound<'py, Self>> {
        let format = match crate::format::given("resize_as_", memory_format)? {
            Some(MemoryFormat::Preserve) => the_template.get().read().suggested_format(),
            given => given.unwrap_or(MemoryFormat::Contiguous),
        };
        let size: Vec<isize> = the_template.get().read().shape().iter().map(|&n| n as isize).collect();
        change(slf, move |t| t.resize_in(&size, format))
    }

    /// Makes the tensor show the storage of another tensor, or one that `untyped_storage()` gave, under the given offset, sizes
    /// and strides; without arguments, nothing. The dtype stays, and must be the source's.
    #[doc = lucid::op_doc!(python tensor_set_)]
    #[pyo3(signature = (source=None, storage_offset=Arg::MISSING, size=Arg::MISSING, stride=Arg::MISSING))]
    fn set_<'py>(
        slf: &Bound<'py, Self>,
        source: Option<&Bound<'py, PyAny>>,
        storage_offset: Arg<'_, 'py>,
        size: Arg<'_, 'py>,
        stride: Arg<'_, 'py>,
    ) -> PyResult<Bound<'py, Self>> {
        let (py, op) = (slf.py(), "set_");
        let (dtype, device) = {
            let t = slf.get().read();
            (t.dtype(), t.device())
        };
        let Some(source) = source else {
            let empty = engine_call::quick(py, || Tensor::full_of(&[0], lucid::Scalar::ZERO, dtype, device))?;
            return change(slf, move |t| t.set_(&empty));
        };
        let whole = || match source.cast::<PyTensor>() {
            Ok(t) => Ok(t.get().share()),
            Err(_) => of_storage(source, dtype)?.ok_or_else(|| {
                let got = crate::args::kind_name(source);
                let why = format!("set_(): argument 'source' must be a Tensor or UntypedStorage, not {got}");
                errors::type_error(py, why)
            }),
        };
        if size.0.is_none() {
            let whole = whole()?;
            return change(slf, move |t| t.set_(&whole));
        }
        let offset = optional::<kinds::Int>(At { op, arg: "storage_offset" }, storage_offset, 0)?;
        let size = required::<kinds::Sizes>(py, At { op, arg: "size" }, size)?;
        let steps = match stride.0 {
            Some(_) => required::<kinds::Sizes>(py, At { op, arg: "stride" }, stride)?.to_vec(),
            None => row_major_strides(&size),
        };
        let whole = match (whole()?, reach(&size, &steps, offset)) {
            // A storage that is too short, and that no tensor shows, gets longer.
            (t, Some(n)) if n > t.storage_numel() && !source.is_instance_of::<PyTensor>() => {
                drop(t);
                source.call_method0("untyped")?.call_method1("resize_", (n.saturating_mul(dtype.size()),))?;
                whole()?
            }
            (t, _) => t,
        };
        change(slf, move |t| t.set_(&whole.detach()?.as_strided(&size, &steps, Some(offset))?))
    }

    /// Writes one number over the diagonal; with `wrap` that of a tall matrix begins again after each block of columns.
    #[doc = lucid::op_doc!(python tensor_fill_diagonal_)]
    #[pyo3(signature = (fill_value, wrap=Arg::MISSING))]
    fn fill_diagonal_<'py>(
        slf: &Bound<'py, Self>,
        fill_value: Arg<'_, 'py>,
        wrap: Arg<'_, 'py>,
    ) -> PyResult<Bound<'py, Self>> {
        let op = "fill_diagonal_";
        let value = required::<kinds::Number>(slf.py(), At { op, arg: "fill_value" }, fill_value)?;
        let wrap = optional::<kinds::Bool>(At { op, arg: "wrap" }, wrap, false)?;
        let t = slf.get().share();
        engine_call::quick(slf.py(), || t.fill_diagonal_(value, wrap))?;
        Ok(slf.clone())
    }

    /// A tensor of the given sizes and strides, by default in this tensor's dtype and on its device. Its elements are zeros.
    #[doc = lucid::op_doc!(python tensor_new_empty_strided)]
    #[pyo3(signature = (size, stride, *, dtype=Arg::MISSING, device=Arg::MISSING, layout=Arg::MISSING, pin_memory=Arg::MISSING, requires_grad=Flag::OFF))]
    #[allow(clippy::too_many_arguments)]
    fn new_empty_strided<'py>(
        &self,
        py: Python<'py>,
        size: Arg<'_, 'py>,
        stride: Arg<'_, 'py>,
        dtype: Arg<'_, 'py>,
        device: Arg<'_, 'py>,
        layout: Arg<'_, 'py>,
        pin_memory: Arg<'_, 'py>,
        requires_grad: Flag,
    ) -> Object<'py> {
        crate::sparse::check_dense(py, "new_empty_strided", layout, pin_memory)?;
        let op = "new_empty_strided";
        let (dtype, device) = options(op, dtype, device)?;
        let (own_dtype, own_device) = {
            let t = self.read();
            (t.dtype(), t.device())
        };
        let size = required::<kinds::Sizes>(py, At { op, arg: "size" }, size)?;
        let stride = required::<kinds::Sizes>(py, At { op, arg: "stride" }, stride)?;
        let (dtype, device) = (dtype.unwrap_or(own_dtype), device.unwrap_or(own_device));
        let made =
            engine_call::quick(py, || lucid::ops::create::empty_strided(&size, &stride, Some(dtype), Some(device)))?;
        results::leaf(py, made, requires_grad.0)
    }

    /// Makes a tensor of sizes or data, as `Tensor(...)` does, in this tensor's dtype and on its device.
    #[doc = lucid::op_doc!(python tensor_new)]
    #[pyo3(name = "new", signature = (*args, device=Arg::MISSING))]
    fn new_of<'py>(slf: &Bound<'py, Self>, args: &Bound<'py, PyTuple>, device: Arg<'_, 'py>) -> Object<'py> {
        let py = slf.py();
        let (_, device) = options("new", Arg::MISSING, device)?;
        let (own_dtype, own_device) = {
            let t = slf.get().read();
            (t.dtype(), t.device())
        };
        let t = super::constructed(py, "new", args, own_dtype, device.unwrap_or(own_device))?;
        wrap(py, t)
    }
}

/// What a storage of the package holds, as elements of a dtype; `None` for anything else.
///
/// # Errors
/// For a storage of elements of another dtype.
pub fn of_storage(source: &Bound<'_, PyAny>, dtype: lucid::DType) -> PyResult<Option<Tensor>> {
    let py = source.py();
    let Ok(held) = source.getattr("_tensor") else { return Ok(None) };
    let Ok(held) = held.cast::<PyTensor>() else { return Ok(None) };
    let t = held.get().share();
    if source.hasattr("_dtype")? && t.dtype() != dtype {
        let why = format!(
            "Expected a Storage of type {dtype} or an UntypedStorage, but got type {} for argument 1 'storage'",
            t.dtype()
        );
        return Err(errors::runtime_error(py, why));
    }
    let elements = engine_call::quick(py, || {
        // Of bytes at the end that make no element, nothing is shown.
        let bytes = t.view_dtype(lucid::DType::U8)?;
        let whole = bytes.numel() / dtype.size() * dtype.size();
        if t.dtype() == dtype {
            Ok(t)
        } else {
            bytes.narrow(0, 0, whole as i64)?.view_dtype(dtype)
        }
    })?;
    Ok(Some(elements))
}

/// How many elements of a storage are needed to show sizes under strides from an offset on.
fn reach(size: &[isize], steps: &[isize], offset: i64) -> Option<usize> {
    let offset = usize::try_from(offset).ok()?;
    size.iter().zip(steps).try_fold(offset.checked_add(1)?, |sum, (&n, &s)| {
        let last = usize::try_from(n).ok()?.checked_sub(1)?;
        last.checked_mul(usize::try_from(s).ok()?)?.checked_add(sum)
    })
}

fn row_major_strides(size: &[isize]) -> Vec<isize> {
    let mut steps: Vec<isize> = size.iter().map(|_| 1).collect();
    for i in (1..size.len()).rev() {
        steps[i - 1] = steps[i].saturating_mul(size[i].max(1));
    }
    steps
}
