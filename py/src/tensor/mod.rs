//! `lucid.Tensor`, the class itself.
//!
//! Ops come from the table (`ops.rs`); here and in the modules below is what has no row: properties, operators, indexing,
//! conversion, reading, gradients. Invariant: a reader may wait for the GIL, so who writes under the lock ([`PyTensor::replace`]) holds no GIL.

mod convert;
mod data;
mod grad;
mod index;
mod memory;
mod methods;
mod operators;
mod restride;
mod transposed;

use crate::args::{int_of, Arg, At};
use crate::device::{device_object, PyDevice};
use crate::dtype::{dtype_object, PyDType};
use crate::{engine_call, errors, overrides};
use lucid::Tensor;
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyTuple, PyType, PyWeakrefMethods, PyWeakrefReference};
use std::sync::Arc;
use std::time::Duration;

pub use convert::converted;
pub use data::{nonzero_of, scalar_object, warn_of_number};
pub use memory::shown;
pub use methods::subclassed;

/// A tensor, read; the engine's methods work on it directly.
pub type Guard<'a> = RwLockReadGuard<'a, Tensor>;

/// A multi-dimensional array of numbers on one device, with the graph of its computation where gradients are asked for.
///
/// `lucid.tensor` makes one of data, with the dtype of the data. A subclass's instances give instances of it, as in PyTorch,
/// and a class with a `__torch_function__` of its own is asked for each op (see `lucid.overrides`).
///
/// Args:
///     args (int, sequence or Tensor): sizes, for a tensor that is not initialized; or one nested sequence of numbers, or one
///         tensor. Default: no elements.
///     dtype (dtype, optional): the elements' dtype. Default: the default dtype, float32 at first.
///     device (device or str, optional): where it is. Default: the default device, the CPU at first.
///     requires_grad (bool, optional): whether a backward pass computes its gradient. Default: False.
///
/// Raises:
///     TypeError: the arguments are neither sizes nor data.
///
/// Example:
///     >>> lucid.Tensor(2, 3).shape
///     lucid.Size([2, 3])
///     >>> lucid.Tensor([1, 2])
///     tensor([1., 2.])
// Behind a lock only because `x.data = y` puts another tensor into the same Python object.
#[pyclass(name = "Tensor", module = "lucid", subclass, dict, weakref, frozen)]
pub struct PyTensor {
    tensor: RwLock<Tensor>,
    /// Never locked while Python code may run.
    others: Mutex<Others>,
    /// Python allocates an object as zeros, lists it with its collector, and may collect before the fields are written: while
    /// it makes the object's dictionary.
    initialised: bool,
}

/// The objects of tensors that this one leads to, so that it gives the same ones each time.
#[derive(Default)]
struct Others {
    /// What `grad` gave last.
    grad: Option<Py<PyTensor>>,
    /// The hooks on its gradient, an `OrderedDict`, once there was one.
    hooks: Option<Py<PyAny>>,
    /// What it is a view of, which lives on with it, as PyTorch's does.
    base: Option<Py<PyTensor>>,
}

impl PyTensor {
    pub fn new(t: Tensor) -> PyTensor {
        PyTensor::same(lucid::autograd::handed_out(t))
    }

    /// The object of that very tensor, which the engine has too.
    fn same(t: Tensor) -> PyTensor {
        PyTensor { tensor: RwLock::new(t), others: Mutex::default(), initialised: true }
    }

    #[inline]
    pub fn read(&self) -> Guard<'_> {
        self.tensor.read()
    }

    /// The tensor, where no thread works on it without the GIL: else what it owns could change between two looks of a
    /// collector, which would then take what is used for garbage.
    fn alone(&self) -> Option<RwLockWriteGuard<'_, Tensor>> {
        // Who replaces the tensor has the lock for a moment, who reads it may have it for long.
        self.tensor.try_write().or_else(|| self.tensor.try_write_for(Duration::from_micros(50)))
    }

    /// The handle on the engine's tensor, for work without the GIL.
    pub fn share(&self) -> Tensor {
        self.tensor.read().clone()
    }
}

/// The Python object of a new tensor.
#[inline]
pub fn wrap(py: Python<'_>, t: Tensor) -> PyResult<Bound<'_, PyAny>> {
    Bound::new(py, PyTensor::new(t)).map(Bound::into_any)
}

/// The Python object of a tensor that had one: that one while anybody has it.
pub fn object_of(py: Python<'_>, t: Tensor) -> PyResult<Bound<'_, PyAny>> {
    let known = t.object();
    if let Some(weak) = known.as_ref().and_then(|known| known.downcast_ref::<Py<PyWeakrefReference>>())
        && let Some(object) = weak.bind(py).upgrade()
        && object.cast::<PyTensor>().is_ok_and(|object| object.get().read().is_same(&t))
    {
        return Ok(object);
    }
    t.mark_handed_out();
    let made = Bound::new(py, PyTensor::same(t))?;
    know_object(&made)?;
    Ok(made.into_any())
}

/// Lets [`object_of`] find the object of the tensor from now on.
fn know_object(object: &Bound<'_, PyTensor>) -> PyResult<()> {
    let weak = PyWeakrefReference::new(object)?.unbind();
    object.get().read().set_object(Arc::new(weak));
    Ok(())
}

/// Sets whether a gradient is asked for. The node that adds to a leaf then knows its object.
pub fn asks_for_grad(object: &Bound<'_, PyTensor>, asks: bool) -> PyResult<()> {
    let t = object.get().share();
    engine_call::quick(object.py(), || t.requires_grad_(asks))?;
    if asks && t.is_leaf() && t.object().is_none() {
        know_object(object)?;
    }
    Ok(())
}

/// A `lucid.Size`.
pub fn size_object<'py>(py: Python<'py>, sizes: &[usize]) -> PyResult<Bound<'py, PyAny>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    static NEW: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let class = CLASS.import(py, "lucid._size", "Size")?;
    // These are integers: the class's own look at them is passed by.
    let new = NEW.get_or_try_init(py, || py.get_type::<PyTuple>().getattr("__new__").map(Bound::unbind))?;
    new.bind(py).call1((class, PyTuple::new(py, sizes)?))
}

#[pymethods]
impl PyTensor {
    /// An alias of a tensor, or a tensor of the given data or sizes, as PyTorch's constructor has it.
    #[new]
    #[pyo3(signature = (*args, dtype=Arg::MISSING, device=Arg::MISSING, requires_grad=false))]
    fn new_py(
        py: Python<'_>,
        args: &Bound<'_, PyTuple>,
        dtype: Arg<'_, '_>,
        device: Arg<'_, '_>,
        requires_grad: bool,
    ) -> PyResult<PyTensor> {
        let (dtype, device) = crate::create::options("Tensor", dtype, device)?;
        let dtype = dtype.unwrap_or(lucid::default_dtype());
        let device_or = device.unwrap_or(lucid::default_device());
        let t = constructed(py, "Tensor", args, dtype, device_or)?;
        if requires_grad {
            engine_call::quick(py, || t.requires_grad_(true))?;
        }
        Ok(PyTensor::new(t))
    }

    /// An instance of a subclass on the storage of `data`, as a leaf. What `nn.Parameter` is made by.
    #[staticmethod]
    #[pyo3(signature = (cls, data, requires_grad=false))]
    fn _make_subclass<'py>(
        cls: &Bound<'py, PyType>,
        data: &Bound<'py, PyTensor>,
        requires_grad: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = cls.py();
        let made = py.get_type::<PyTensor>().call_method1("__new__", (cls, data))?;
        if requires_grad {
            asks_for_grad(made.cast::<PyTensor>()?, true)?;
        }
        Ok(made)
    }

    /// Sizes, one per dimension.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        size_object(py, self.read().shape())
    }

    /// The sizes, or the size of one dimension.
    #[doc = lucid::op_doc!(python tensor_size)]
    #[pyo3(signature = (dim=None))]
    fn size<'py>(&self, py: Python<'py>, dim: Option<isize>) -> PyResult<Bound<'py, PyAny>> {
        let t = self.read();
        match dim {
            None => size_object(py, t.shape()),
            Some(d) => Ok(t.shape()[axis(py, "size", d, t.ndim())?].into_pyobject(py)?.into_any()),
        }
    }

    /// Steps in elements between neighbours, per dimension or along one.
    #[doc = lucid::op_doc!(python tensor_stride)]
    #[pyo3(signature = (dim=None))]
    fn stride<'py>(&self, py: Python<'py>, dim: Option<isize>) -> PyResult<Bound<'py, PyAny>> {
        let t = self.read();
        match dim {
            None => Ok(PyTuple::new(py, t.strides())?.into_any()),
            Some(d) => Ok(t.strides()[axis(py, "stride", d, t.ndim())?].into_pyobject(py)?.into_any()),
        }
    }

    /// Index of the first element in the storage.
    fn storage_offset(&self) -> usize {
        self.read().storage_offset()
    }

    /// Number of elements.
    fn numel(&self) -> usize {
        self.read().numel()
    }

    /// Number of elements.
    fn nelement(&self) -> usize {
        self.read().numel()
    }

    /// Number of dimensions.
    #[getter]
    fn ndim(&self) -> usize {
        self.read().ndim()
    }

    /// Number of dimensions.
    fn dim(&self) -> usize {
        self.read().ndim()
    }

    /// Number of dimensions.
    fn ndimension(&self) -> usize {
        self.read().ndim()
    }

    /// Element type.
    #[getter]
    fn dtype(&self, py: Python<'_>) -> PyResult<&'static Py<PyDType>> {
        dtype_object(py, self.read().dtype())
    }

    /// Where it lives.
    #[getter(device)]
    fn device_of(&self, py: Python<'_>) -> PyResult<&'static Py<PyDevice>> {
        device_object(py, self.read().device())
    }

    /// Index of the device: -1 for the CPU.
    fn get_device(&self) -> i32 {
        if self.read().device() == lucid::Device::Cpu {
            -1
        } else {
            0
        }
    }

    /// Bytes per element.
    fn element_size(&self) -> usize {
        self.read().dtype().size()
    }

    /// Bytes per element.
    #[getter]
    fn itemsize(&self) -> usize {
        self.read().dtype().size()
    }

    /// Bytes of all elements.
    #[getter]
    fn nbytes(&self) -> usize {
        let t = self.read();
        t.numel() * t.dtype().size()
    }

    /// How often the storage was written in place. Tensors made in inference mode do not say.
    #[getter]
    fn _version(&self, py: Python<'_>) -> PyResult<u32> {
        let t = self.read();
        match t.is_inference() {
            true => Err(crate::errors::runtime_error(py, "Inference tensors do not track version counter.")),
            false => Ok(t.version()),
        }
    }

    /// Is the dtype a real floating-point type?
    fn is_floating_point(&self) -> bool {
        self.read().dtype().is_float()
    }

    /// Is the dtype complex?
    fn is_complex(&self) -> bool {
        self.read().dtype().is_complex()
    }

    /// Can the dtype hold negative numbers?
    fn is_signed(&self) -> bool {
        let dtype = self.read().dtype();
        dtype != lucid::DType::Bool && !dtype.is_unsigned()
    }

    /// Is it on a Metal GPU?
    #[getter]
    fn is_metal(&self) -> bool {
        self.read().device().name() == "metal"
    }

    /// Is it on a Metal GPU? PyTorch's word for it.
    #[getter]
    fn is_mps(&self) -> bool {
        self.is_metal()
    }

    /// Is it on a CUDA GPU?
    #[getter]
    fn is_cuda(&self) -> bool {
        self.read().device().name() == "cuda"
    }

    /// Is it on a device of Intel's? There is none here.
    #[getter]
    fn is_xpu(&self) -> bool {
        false
    }

    /// Is it on a device of XLA's? There is none here.
    #[getter]
    fn is_xla(&self) -> bool {
        false
    }

    /// Notes that a stream uses the memory: nothing to note, there is one queue, and what it still uses is kept.
    #[doc = lucid::op_doc!(python tensor_record_stream)]
    fn record_stream(&self, stream: &Bound<'_, PyAny>) {
        let _ = stream;
    }

    /// Is it without memory, on the device `meta`?
    #[getter]
    fn is_meta(&self) -> bool {
        self.read().device() == lucid::Device::Meta
    }

    /// Are its elements quantized? There are no such tensors here.
    #[getter]
    fn is_quantized(&self) -> bool {
        false
    }

    /// Is it a list of tensors? There are no such tensors here.
    #[getter]
    fn is_nested(&self) -> bool {
        false
    }

    /// Is it on the CPU?
    #[getter]
    fn is_cpu(&self) -> bool {
        self.read().device() == lucid::Device::Cpu
    }

    /// Do both have the same sizes?
    #[doc = lucid::op_doc!(python tensor_is_same_size)]
    fn is_same_size(&self, other: &Bound<'_, PyTensor>) -> bool {
        self.read().shape() == other.get().read().shape()
    }

    /// Do both show the same storage?
    fn _shares_storage(&self, other: &Bound<'_, PyTensor>) -> bool {
        let other = other.get().share();
        self.read().shares_storage(&other)
    }

    fn __hash__(slf: &Bound<'_, Self>) -> isize {
        // Objects are aligned to 16 bytes.
        (slf.as_ptr() as isize) >> 4
    }

    fn __len__(slf: &Bound<'_, Self>) -> PyResult<usize> {
        let py = slf.py();
        if let Some(answer) = overrides::asked(slf, "__len__", &[])? {
            return answer.extract();
        }
        match slf.get().read().shape().first() {
            Some(&n) => Ok(n),
            None => Err(errors::type_error(py, "len() of a 0-d tensor")),
        }
    }

    /// The elements along the first dimension, last first.
    fn __reversed__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let t = slf.get().share();
        match t.ndim() {
            0 => Ok(slf.clone().into_any()),
            _ => wrap(py, engine_call::quick(py, || t.flip(&[0]))?),
        }
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let t = slf.get().share();
        if t.ndim() == 0 {
            return Err(errors::type_error(py, "iteration over a 0-d tensor"));
        }
        // As in PyTorch, it is `unbind` that is asked for.
        if !overrides::is_ordinary(slf) {
            return Ok(slf.call_method1("unbind", (0,))?.try_iter()?.into_any());
        }
        let rows = engine_call::quick(py, || t.unbind(0))?;
        let rows: Vec<_> = rows.into_iter().map(|r| wrap(py, r)).collect::<PyResult<_>>()?;
        let rows = crate::results::made_of(slf, &t, PyTuple::new(py, rows)?.into_any());
        Ok(rows.try_iter()?.into_any())
    }

    fn __repr__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        static REPR: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let py = slf.py();
        if let Some(answer) = overrides::asked(slf, "__repr__", &[])? {
            return Ok(answer);
        }
        REPR.import(py, "lucid._repr", "tensor_repr")?.call1((slf,))
    }

    /// A number's format for one element, else as `str`.
    fn __format__<'py>(slf: &Bound<'py, Self>, spec: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        if slf.get().read().ndim() == 0 {
            return slf.get().item(py)?.call_method1("__format__", (spec,));
        }
        match spec.is_empty()? {
            true => Ok(slf.str()?.into_any()),
            false => Err(errors::type_error(py, "unsupported format string passed to Tensor.__format__")),
        }
    }

    fn __deepcopy__<'py>(slf: &Bound<'py, Self>, memo: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        static COPY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        COPY.import(slf.py(), "lucid._convert", "deepcopy")?.call1((slf, memo))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        static REDUCE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        REDUCE.import(slf.py(), "lucid._convert", "reduce_tensor")?.call1((slf,))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if !self.initialised {
            return Ok(());
        }
        if let Some(others) = self.others.try_lock() {
            visit.call(&others.grad)?;
            visit.call(&others.hooks)?;
            visit.call(&others.base)?;
        }
        match self.alone() {
            Some(own) => crate::autograd::visit_tensor(&own, &visit),
            None => Ok(()),
        }
    }

    fn __clear__(&self) {
        if let Some(own) = self.alone() {
            lucid::autograd::clear_tensor_hosts(&own);
        }
        let others = std::mem::take(&mut *self.others.lock());
        drop(others);
    }

    /// NumPy leaves operators with tensors to the tensor.
    #[classattr]
    #[pyo3(name = "__array_priority__")]
    const ARRAY_PRIORITY: i64 = 1000;
}

/// What PyTorch's constructor makes of its arguments: an alias of a tensor, or a tensor of the given data or sizes.
fn constructed(
    py: Python<'_>,
    op: &'static str,
    args: &Bound<'_, PyTuple>,
    dtype: lucid::DType,
    device: lucid::Device,
) -> PyResult<Tensor> {
    let first = || args.get_item(0);
    match args.len() {
        0 => engine_call::quick(py, || Tensor::full_of(&[0], lucid::Scalar::ZERO, dtype, device)),
        1 if first()?.is_instance_of::<PyTensor>() => {
            let t = first()?.cast::<PyTensor>()?.get().share();
            engine_call::quick(py, || t.detach())
        }
        1 if first()?.get_type().name()? == "Size" => {
            let sizes = crate::args::ints_of(At { op, arg: "size" }, first()?.as_borrowed(), "int")?;
            engine_call::quick(py, || lucid::ops::create::empty(&sizes, Some(dtype), Some(device), None))
        }
        1 if first()?.hasattr("_tensor")? => restride::of_storage(&first()?, dtype)?
            .map_or_else(|| crate::create::tensor_of(&first()?, Some(dtype), Some(device)), Ok),
        1 if !is_size(&first()?)? => {
            let one = first()?;
            // One number is neither data nor a size, unless it is an integer.
            let number = one.is_none() || one.is_instance_of::<pyo3::types::PyFloat>();
            if number || one.is_instance_of::<pyo3::types::PyComplex>() {
                let got = crate::args::kind_name(&one);
                return Err(errors::type_error(py, format!("{op}(): data must be a sequence (got {got})")));
            }
            crate::create::tensor_of(&first()?, Some(dtype), Some(device))
        }
        _ => {
            let sizes = crate::args::ints_of(At { op, arg: "size" }, args.as_any().as_borrowed(), "int")?;
            engine_call::quick(py, || lucid::ops::create::empty(&sizes, Some(dtype), Some(device), None))
        }
    }
}

/// Is it an integer, Python's or NumPy's?
fn is_size(obj: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(obj.is_instance_of::<pyo3::types::PyInt>()
        || obj.hasattr("__index__")? && !crate::create::is_sequence(obj)? && obj.extract::<i64>().is_ok())
}

/// A dimension from 0 on, or an IndexError.
fn axis(py: Python<'_>, op: &'static str, dim: isize, ndim: usize) -> PyResult<usize> {
    if ndim == 0 {
        let why = format!("{op}: Dimension specified as {dim} but tensor has no dimensions");
        return Err(errors::index_error(py, why));
    }
    engine_call::quick(py, || lucid::shape::wrap_dim(op, dim, ndim))
}

/// An integer argument of a hand-written method.
pub fn int_arg(op: &'static str, arg: &'static str, obj: &Bound<'_, PyAny>) -> PyResult<i64> {
    int_of(At { op, arg }, obj.as_borrowed(), "int")
}

/// Adds the class.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyTensor>()?;
    memory::register(m)
}
