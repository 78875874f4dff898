//! Where a tensor's elements are: addresses, storages, memory that other libraries and processes see.

use super::{wrap, PyTensor};
use crate::{engine_call, errors};
use lucid::shape::Layout;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

/// A function of the package's Python part, looked up once.
macro_rules! python {
    ($py:expr, $module:literal, $name:literal) => {{
        static FOUND: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        FOUND.import($py, $module, $name)
    }};
}

#[pymethods]
impl PyTensor {
    /// The address of the first element: equal for views at one offset of one storage, 0 where there are no elements.
    /// Evaluates. On the GPU device it is where the host sees the elements, until the next in-place write.
    fn data_ptr(&self, py: Python<'_>) -> PyResult<usize> {
        let t = self.share();
        engine_call::long(py, || t.data_ptr())
    }

    /// The storage that the tensor shows, as bytes.
    fn untyped_storage<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        python!(slf.py(), "lucid._storage", "UntypedStorage")?.call_method1("_of", (slf,))
    }

    /// Is the tensor in memory that other processes can map? On the GPU device it never is.
    fn is_shared(&self) -> bool {
        self.read().is_shared()
    }

    /// Moves the storage to memory that other processes can map, and gives the tensor back. On the GPU device it does
    /// nothing, as in PyTorch for CUDA.
    fn share_memory_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        let t = slf.get().share();
        if t.device() == lucid::Device::Cpu {
            // Makes other processes get handles instead of copies.
            python!(slf.py(), "lucid.multiprocessing", "init_reductions")?.call0()?;
            engine_call::long(slf.py(), || t.share_memory())?;
        }
        Ok(slf.clone())
    }

    /// The storage that the tensor shows, in elements of its dtype.
    fn storage<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        python!(slf.py(), "lucid._storage", "TypedStorage")?.call_method1("_of", (slf,))
    }

    /// Does the tensor show the same storage as `tensor`, with the same offset, sizes and strides?
    #[doc = lucid::op_doc!(python tensor_is_set_to)]
    fn is_set_to(&self, tensor: &Bound<'_, PyTensor>) -> bool {
        let (a, b) = (self.share(), tensor.get().share());
        a.shares_storage(&b)
            && (a.shape(), a.strides(), a.storage_offset()) == (b.shape(), b.strides(), b.storage_offset())
    }

    /// Number of elements that the storage has.
    fn _storage_numel(&self) -> usize {
        self.read().storage_numel()
    }

    /// Size of the storage in bytes.
    fn _storage_nbytes(&self) -> usize {
        self.read().storage_bytes()
    }

    /// Gives the storage another size in bytes, for all tensors on it; false where it cannot have it.
    fn _resize_storage(&self, py: Python<'_>, bytes: usize) -> PyResult<bool> {
        let t = self.share();
        engine_call::long(py, || t.resize_storage(bytes))
    }

    /// May the storage get another size?
    fn _is_resizable(&self) -> bool {
        self.read().is_resizable()
    }

    /// Says that an array of another library shows the memory: the storage keeps its size from now on.
    fn _hold_storage(&self) {
        self.read().hold_storage();
    }

    /// What identifies the storage, while a tensor on it lives.
    fn _storage_key(&self) -> (u8, usize) {
        let t = self.read();
        (u8::from(t.device() != lucid::Device::Cpu), t.storage_key())
    }

    /// The whole storage as a vector, cut off from the tape.
    fn _storage_vector<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let t = self.share();
        wrap(py, engine_call::quick(py, || t.storage_vector())?)
    }

    /// Does this tensor alone show its storage?
    fn _storage_is_unshared(&self) -> bool {
        self.read().storage_is_unshared()
    }

    /// May the elements be written to?
    fn _is_writable(&self) -> bool {
        self.read().is_writable()
    }

    /// What one other process needs to map the elements: name, number of elements of the storage, offset, sizes, strides.
    #[allow(clippy::type_complexity)]
    fn _lend(&self, py: Python<'_>) -> PyResult<(String, usize, usize, Vec<usize>, Vec<usize>)> {
        let t = self.share();
        let h = engine_call::long(py, || t.lend())?;
        let Layout { shape, strides, offset } = h.layout;
        Ok((h.name, h.storage_numel, offset, shape.to_vec(), strides.to_vec()))
    }

    /// DLPack's protocol: a capsule of the elements in place.
    #[pyo3(signature = (**kwargs))]
    fn __dlpack__<'py>(slf: &Bound<'py, Self>, kwargs: Option<&Bound<'py, PyDict>>) -> PyResult<Bound<'py, PyAny>> {
        python!(slf.py(), "lucid.utils.dlpack", "_export")?.call((slf,), kwargs)
    }

    /// DLPack's protocol: the kind and number of the device. Elements are always seen in the host's memory.
    fn __dlpack_device__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        python!(slf.py(), "lucid.utils.dlpack", "_device")?.call0()
    }

    /// A table for notebooks.
    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        python!(slf.py(), "lucid._repr", "tensor_html")?.call1((slf,))
    }

    /// What NumPy's functions give where a tensor is among their arguments.
    #[pyo3(signature = (array, context=None, return_scalar=false))]
    fn __array_wrap__<'py>(
        &self,
        array: &Bound<'py, PyAny>,
        context: Option<&Bound<'py, PyAny>>,
        return_scalar: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        python!(array.py(), "lucid._convert", "wrap_array")?.call1((array, context, return_scalar))
    }
}

/// Removes what only this process shares; for when it ends.
#[pyfunction]
fn _release_shared_memory() {
    lucid::interop::release_shared_memory();
}

/// `data` as a tensor on the CPU: what `as_tensor` does with arrays, whose memory it shares, and buffers.
pub fn shown<'py>(data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let made = python!(data.py(), "lucid._convert", "as_tensor")?.call1((data,))?;
    if made.is_instance_of::<PyTensor>() {
        return Ok(made);
    }
    Err(errors::type_error(data.py(), "as_tensor(): the data did not make a tensor"))
}

/// Adds the functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(_release_shared_memory, m)?)
}
