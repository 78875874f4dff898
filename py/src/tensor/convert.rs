//! Changing dtype and device: `to` in all of its forms, and its short forms.

use super::{wrap, PyTensor};
use crate::args::{weight_of, Arg};
use crate::device::device_of;
use crate::dtype::{dtype_object, dtype_of};
use crate::{engine_call, errors};
use lucid::{DType, Device, MemoryFormat, Tensor};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyTuple};

/// A tensor with another dtype, on another device and in another memory format, where these are given; nothing where
/// nothing changes.
pub fn converted(
    py: Python<'_>,
    t: &Tensor,
    dtype: Option<DType>,
    device: Option<Device>,
    copy: bool,
    format: Option<MemoryFormat>,
) -> PyResult<Option<Tensor>> {
    let (dtype, device) = (dtype.unwrap_or(t.dtype()), device.unwrap_or(t.device()));
    let (casts, moves) = (dtype != t.dtype(), device != t.device());
    let format = format.unwrap_or(MemoryFormat::Preserve);
    if !(casts || moves || copy) && (format == MemoryFormat::Preserve || t.suggested_format() == format) {
        return Ok(None);
    }
    let weight = if moves { engine_call::LARGE } else { weight_of(t) };
    let t = t.clone();
    engine_call::op(py, weight, move || t.copy_to(dtype, device, format)).map(Some)
}

fn convert<'py>(
    slf: &Bound<'py, PyTensor>,
    dtype: Option<DType>,
    device: Option<Device>,
    copy: bool,
    format: Option<MemoryFormat>,
) -> PyResult<Bound<'py, PyAny>> {
    let t = slf.get().share();
    match converted(slf.py(), &t, dtype, device, copy, format)? {
        Some(t) => wrap(slf.py(), t),
        None => Ok(slf.clone().into_any()),
    }
}

macro_rules! shortcuts {
    ($($(#[$doc:meta])* $name:ident $dtype:ident;)*) => {
        #[pymethods]
        impl PyTensor {
            $($(#[$doc])*
            #[pyo3(signature = (*, memory_format=Arg::MISSING))]
            fn $name<'py>(slf: &Bound<'py, Self>, memory_format: Arg<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
                let format = crate::format::given(stringify!($name), memory_format)?;
                convert(slf, Some(DType::$dtype), None, false, format)
            })*
        }
    };
}
shortcuts! {
    /// As float32.
    #[doc = lucid::op_doc!(python tensor_convert)]
    float F32;
    /// As float64.
    #[doc = lucid::op_doc!(python tensor_convert)]
    double F64;
    /// As float16.
    #[doc = lucid::op_doc!(python tensor_convert)]
    half F16;
    /// As bfloat16.
    #[doc = lucid::op_doc!(python tensor_convert)]
    bfloat16 BF16;
    /// As int8.
    #[doc = lucid::op_doc!(python tensor_convert)]
    char I8;
    /// As uint8.
    #[doc = lucid::op_doc!(python tensor_convert)]
    byte U8;
    /// As int16.
    #[doc = lucid::op_doc!(python tensor_convert)]
    short I16;
    /// As int32.
    #[doc = lucid::op_doc!(python tensor_convert)]
    int I32;
    /// As int64.
    #[doc = lucid::op_doc!(python tensor_convert)]
    long I64;
    /// As bool.
    #[doc = lucid::op_doc!(python tensor_convert)]
    bool Bool;
    /// As complex64.
    #[doc = lucid::op_doc!(python tensor_convert)]
    cfloat C64;
    /// As complex128.
    #[doc = lucid::op_doc!(python tensor_convert)]
    cdouble C128;
}

#[pymethods]
impl PyTensor {
    /// The tensor with another dtype, on another device, or both: `to(dtype)`, `to(device)`, `to(device, dtype)`,
    /// `to(other)`. Itself where nothing changes, unless `copy`. The result's dimensions are in memory as `memory_format`
    /// says, by default in the order of the tensor's own.
    #[doc = lucid::op_doc!(python tensor_to)]
    #[pyo3(signature = (*args, dtype=Arg::MISSING, device=Arg::MISSING, tensor=None, non_blocking=false, copy=false, memory_format=Arg::MISSING))]
    #[allow(clippy::too_many_arguments)]
    fn to<'py>(
        slf: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        dtype: Arg<'_, 'py>,
        device: Arg<'_, 'py>,
        tensor: Option<&Bound<'py, PyTensor>>,
        non_blocking: bool,
        copy: bool,
        memory_format: Arg<'_, 'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = non_blocking;
        let format = crate::format::given("to", memory_format)?;
        let (mut dtype, mut device) = crate::create::options("to", dtype, device)?;
        if let Some(tensor) = tensor {
            let t = tensor.get().read();
            (dtype, device) = (Some(t.dtype()), Some(t.device()));
        }
        let mut copy = copy;
        let mut flags = 0;
        for arg in args.iter() {
            if let Some(d) = dtype_of(&arg) {
                dtype = Some(d);
            } else if let Ok(other) = arg.cast::<PyTensor>() {
                let other = other.get().read();
                (dtype, device) = (Some(other.dtype()), Some(other.device()));
            } else if let Ok(flag) = arg.cast::<PyBool>() {
                // (…, non_blocking, copy)
                flags += 1;
                copy |= flags == 2 && flag.is_true();
            } else if arg.is_none() {
            } else if let Some(d) = device_of(&arg)? {
                device = Some(d);
            } else {
                let got = crate::args::kind_name(&arg);
                let why =
                    format!("to() received an invalid argument: expected a dtype, device, str or Tensor, not {got}");
                return Err(errors::type_error(slf.py(), why));
            }
        }
        convert(slf, dtype, device, copy, format)
    }

    /// On the CPU.
    #[doc = lucid::op_doc!(python tensor_move)]
    #[pyo3(signature = (*, memory_format=Arg::MISSING))]
    fn cpu<'py>(slf: &Bound<'py, Self>, memory_format: Arg<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        let format = crate::format::given("cpu", memory_format)?;
        convert(slf, None, Some(Device::Cpu), false, format)
    }

    /// On the GPU device.
    #[doc = lucid::op_doc!(python tensor_move)]
    #[pyo3(signature = (*, memory_format=Arg::MISSING))]
    fn gpu<'py>(slf: &Bound<'py, Self>, memory_format: Arg<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        let format = crate::format::given("gpu", memory_format)?;
        convert(slf, None, Some(Device::Gpu), false, format)
    }

    /// On the GPU device, which is a Metal one on Apple Silicon; elsewhere it warns once.
    #[doc = lucid::op_doc!(python tensor_move)]
    #[pyo3(signature = (*, memory_format=Arg::MISSING))]
    fn metal<'py>(slf: &Bound<'py, Self>, memory_format: Arg<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        let format = crate::format::given("metal", memory_format)?;
        let device = crate::device::parse(slf.py(), "metal")?;
        convert(slf, None, Some(device), false, format)
    }

    /// On the GPU device, which is a CUDA one where MLX offers that; elsewhere it warns once.
    #[doc = lucid::op_doc!(python tensor_cuda)]
    #[pyo3(signature = (device=None, non_blocking=false, *, memory_format=Arg::MISSING))]
    fn cuda<'py>(
        slf: &Bound<'py, Self>,
        device: Option<&Bound<'py, PyAny>>,
        non_blocking: bool,
        memory_format: Arg<'_, 'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = non_blocking; // Every copy of Lucid's waits for nothing but itself.
        let format = crate::format::given("cuda", memory_format)?;
        let named = device.map(device_of).transpose()?;
        let device = match named {
            Some(Some(Device::Gpu)) | None => crate::device::parse(slf.py(), "cuda")?,
            _ => return Err(errors::runtime_error(slf.py(), "cuda(): Invalid device, must be cuda device")),
        };
        convert(slf, None, Some(device), false, format)
    }

    /// The older name of dtype and device (`lucid.FloatTensor`), or with an argument the tensor as that dtype; such a
    /// name, or the type of that name, says the device too.
    #[doc = lucid::op_doc!(python tensor_type)]
    #[pyo3(signature = (dtype=None))]
    fn r#type<'py>(slf: &Bound<'py, Self>, dtype: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let types = || py.import("lucid._tensor_types");
        let Some(given) = dtype else {
            let (dtype, device) = {
                let t = slf.get().read();
                (t.dtype(), t.device())
            };
            return types()?.call_method1("name_of", (dtype_object(py, dtype)?, device.name()));
        };
        if let Some(dtype) = dtype_of(given) {
            return convert(slf, Some(dtype), None, false, None);
        }
        if let Some((dtype, device)) =
            types()?.call_method1("parse", (given,))?.extract::<Option<(Bound<'_, PyAny>, String)>>()?
        {
            return convert(slf, dtype_of(&dtype), Some(crate::device::parse(py, &device)?), false, None);
        }
        let got = crate::args::kind_name(given);
        Err(errors::type_error(py, format!("type(): argument 'dtype' must be lucid.dtype or a name of one, not {got}")))
    }

    /// With the other's dtype and device.
    #[doc = lucid::op_doc!(python tensor_like)]
    fn type_as<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyTensor>) -> PyResult<Bound<'py, PyAny>> {
        let (dtype, device) = {
            let other = other.get().read();
            (other.dtype(), other.device())
        };
        convert(slf, Some(dtype), Some(device), false, None)
    }
}
