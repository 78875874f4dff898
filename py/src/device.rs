//! `lucid.device`: one object per device, and the reading of what users write for one.

use crate::{engine_call, errors};
use lucid::Device;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyInt, PyString, PyTuple};
use std::cell::RefCell;
use std::sync::atomic::AtomicBool;

/// A device, where a tensor's elements are and its ops are computed.
///
/// `"gpu"` is whatever the installed MLX offers; `type` is then its real name. Tensors on `"meta"` have a shape, a dtype and
/// strides alone. A device is a context, too: within `with lucid.device("gpu"):` tensors are made there.
///
/// Args:
///     device (str, int or device, optional): `"cpu"`, `"gpu"`, `"metal"` (or `"mps"`), `"cuda"`, `"mlx"` or `"meta"`, with a
///         GPU's number (`":0"`) or without; or that number alone. Give it or `type`.
///     index (int, optional): the GPU's number. A process computes on one GPU, which the first number that is named chooses; 0
///         for other devices.
///     type (str, optional): `device` under PyTorch's other name.
///
/// Raises:
///     TypeError: neither or both of `device` and `type` are given.
///     RuntimeError: there is no such device, or the process computes on another GPU already.
///
/// Example:
///     >>> lucid.device("cpu")
///     device(type='cpu')
///     >>> lucid.zeros(2, device=lucid.device("meta")).is_meta
///     True
#[pyclass(name = "device", module = "lucid", frozen)]
pub struct PyDevice(pub Device);

#[pymethods]
impl PyDevice {
    #[new]
    #[pyo3(signature = (device=None, index=None, *, r#type=None))]
    fn new(
        py: Python<'_>,
        device: Option<&Bound<'_, PyAny>>,
        index: Option<i64>,
        r#type: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyDevice> {
        let ((Some(device), None) | (None, Some(device))) = (device, r#type) else {
            return Err(errors::type_error(py, "device(): expected one of `device` and `type`"));
        };
        let Some(given) = device_of(device)? else { return Err(wrong(device, "device")) };
        match index {
            None => Ok(PyDevice(given)),
            Some(index) => numbered(py, given, index).map(PyDevice),
        }
    }

    /// The real name: `cpu`, `metal`, `cuda`, `mlx` or `meta`.
    #[getter]
    fn r#type(&self) -> &'static str {
        self.0.name()
    }

    /// Always `None`: a process computes on one device of each kind.
    #[getter]
    fn index(&self) -> Option<usize> {
        None
    }

    fn __repr__(&self) -> String {
        format!("device(type='{}')", self.0)
    }

    fn __str__(&self) -> &'static str {
        self.0.name()
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<PyDevice>().is_ok_and(|d| d.get().0 == self.0)
    }

    fn __hash__(&self) -> u64 {
        0x6c75_6369_6400 + slot(self.0) as u64
    }

    /// `with device:` makes new tensors there, as `set_default_device` does, until the block ends. For the calling
    /// thread, as in PyTorch.
    fn __enter__<'py>(slf: &Bound<'py, Self>) -> Bound<'py, Self> {
        FORMER.with_borrow_mut(|former| former.push(lucid::default_device()));
        lucid::set_default_device(slf.get().0);
        slf.clone()
    }

    #[pyo3(signature = (*_exc))]
    fn __exit__(&self, _exc: &Bound<'_, PyTuple>) {
        if let Some(former) = FORMER.with_borrow_mut(Vec::pop) {
            lucid::set_default_device(former);
        }
    }

    /// Pickled by kind: a tensor saved on one machine's GPU is read to another's.
    fn __reduce__<'py>(&self, py: Python<'py>) -> (Bound<'py, pyo3::types::PyType>, (&'static str,)) {
        let name = match self.0 {
            Device::Cpu => "cpu",
            Device::Gpu => "gpu",
            Device::Meta => "meta",
        };
        (py.get_type::<PyDevice>(), (name,))
    }
}

thread_local! {
    /// What the default device was before each open `with device:` of this thread.
    static FORMER: RefCell<Vec<Device>> = const { RefCell::new(Vec::new()) };
}

/// The place of a device among all.
fn slot(device: Device) -> usize {
    match device {
        Device::Cpu => 0,
        Device::Gpu => 1,
        Device::Meta => 2,
    }
}

static OBJECTS: PyOnceLock<[Py<PyDevice>; 3]> = PyOnceLock::new();

/// The object of a device.
pub fn device_object(py: Python<'_>, device: Device) -> PyResult<&'static Py<PyDevice>> {
    let of = |device| Py::new(py, PyDevice(device));
    let make = || PyResult::Ok([of(Device::Cpu)?, of(Device::Gpu)?, of(Device::Meta)?]);
    Ok(&OBJECTS.get_or_try_init(py, make)?[slot(device)])
}

/// The device that an object names; `None` if it is not of a kind that can.
pub fn device_of(obj: &Bound<'_, PyAny>) -> PyResult<Option<Device>> {
    if let Ok(d) = obj.cast::<PyDevice>() {
        return Ok(Some(d.get().0));
    }
    if let Ok(text) = obj.cast::<PyString>() {
        return parse(obj.py(), &text.to_cow()?).map(Some);
    }
    match obj.is_instance_of::<PyInt>() && !obj.is_instance_of::<PyBool>() {
        true => numbered(obj.py(), Device::Gpu, obj.extract()?).map(Some),
        false => Ok(None),
    }
}

/// The device of this number.
fn numbered(py: Python<'_>, device: Device, index: i64) -> PyResult<Device> {
    let wrong =
        || errors::runtime_error(py, format!("device: there is one {device} device, with index 0; got {index}"));
    match (device, usize::try_from(index)) {
        (Device::Gpu, Ok(index)) => engine_call::quick(py, || Device::select_gpu(index))?,
        (_, Ok(0)) => {}
        _ => return Err(wrong()),
    }
    Ok(device)
}

/// The device of that name; warns once where it is another than the installed one.
pub fn parse(py: Python<'_>, text: &str) -> PyResult<Device> {
    static WARNED: AtomicBool = AtomicBool::new(false);
    let parsed = engine_call::quick(py, || Device::parse(text))?;
    if let Some(warning) = parsed.warning
        && lucid::warnings::due(&WARNED)
    {
        crate::warn::user(py, &warning)?;
    }
    Ok(parsed.device)
}

fn wrong(obj: &Bound<'_, PyAny>, op: &str) -> PyErr {
    let got = crate::args::kind_name(obj);
    errors::type_error(obj.py(), format!("{op}(): argument 'device' must be a device or str, not {got}"))
}

/// Adds the class.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(gpu_index, m)?)?;
    m.add_function(wrap_pyfunction!(gpu_count, m)?)?;
    m.add_class::<PyDevice>()
}

/// The number of the GPU that this process computes on.
#[pyfunction]
#[pyo3(name = "_gpu_index")]
fn gpu_index() -> usize {
    Device::gpu_index()
}

/// How many GPUs the installed MLX finds, or 1 where it has none and computes on its CPU stream.
#[pyfunction]
#[pyo3(name = "_gpu_count")]
fn gpu_count(py: Python<'_>) -> PyResult<usize> {
    engine_call::quick(py, Device::gpu_count)
}
