//! Functions of `lucid` without a row of their own: dtype arithmetic, process-wide settings,
//! evaluation, counting, files.

use crate::args::{kinds, required, tensors_of, Arg, At};
use crate::device::{device_object, device_of, PyDevice};
use crate::dtype::{dtype_object, dtype_of, PyDType};
use crate::tensor::PyTensor;
use crate::{engine_call, errors};
use lucid::{DType, Device};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict, PyTuple};
use std::collections::BTreeMap;

type Object<'py> = PyResult<Bound<'py, PyAny>>;

// ---- methods as functions -------------------------------------------------------------------------------------------------------

macro_rules! by_method {
    ($($(#[$doc:meta])* $name:ident $method:literal;)*) => {$(
        $(#[$doc])*
        #[pyfunction]
        #[pyo3(signature = (input, *args, **kwargs))]
        fn $name<'py>(input: &Bound<'py, PyTensor>, args: &Bound<'py, PyTuple>, kwargs: Option<&Bound<'py, PyDict>>) -> Object<'py> {
            input.call_method($method, args, kwargs)
        }
    )*};
}
by_method! {
    /// Number of elements.
    #[doc = lucid::op_doc!(python numel)]
    numel "numel";
    /// Is the only element anything but zero?
    #[doc = lucid::op_doc!(python is_nonzero)]
    is_nonzero "is_nonzero";
    /// The tensor under another shape of as many elements, without a copy.
    #[doc = lucid::op_doc!(python view_of)]
    view "view";
    /// Dimensions of size 1 repeated to the given sizes.
    #[doc = lucid::op_doc!(python expand_of)]
    expand "expand";
    /// The tensor repeated along each dimension; a copy.
    #[doc = lucid::op_doc!(python repeat_of)]
    repeat "repeat";
    /// A copy in memory of its own.
    #[doc = lucid::op_doc!(python clone)]
    clone "clone";
    /// Row-major in memory, or as `memory_format` says.
    #[doc = lucid::op_doc!(python contiguous_of)]
    contiguous "contiguous";
    /// Can the dtype hold negative numbers?
    #[doc = lucid::op_doc!(python is_signed)]
    is_signed "is_signed";
    /// Do both have the same sizes?
    #[doc = lucid::op_doc!(python is_same_size)]
    is_same_size "is_same_size";
    /// All elements in one dimension.
    #[doc = lucid::op_doc!(python ravel)]
    ravel "ravel";
    /// Is the dtype a real floating-point type?
    #[doc = lucid::op_doc!(python is_floating_point)]
    is_floating_point "is_floating_point";
    /// Is the dtype complex?
    #[doc = lucid::op_doc!(python is_complex)]
    is_complex "is_complex";
    /// The same storage, cut off from the tape.
    #[doc = lucid::op_doc!(python detach)]
    detach "detach";
    /// Cuts the tensor off from the tape, and gives it back.
    #[doc = lucid::op_doc!(python detach_)]
    detach_ "detach_";
    /// Writes one number over the elements.
    #[doc = lucid::op_doc!(python fill_)]
    fill_ "fill_";
    /// Writes zeros over the elements.
    #[doc = lucid::op_doc!(python zero_)]
    zero_ "zero_";
    /// Gives the tensor the sizes of `the_template`.
    #[doc = lucid::op_doc!(python resize_as_)]
    resize_as_ "resize_as_";
    /// Was it made in inference mode?
    #[doc = lucid::op_doc!(python is_inference)]
    is_inference "is_inference";
}

/// Is it a tensor?
#[doc = lucid::op_doc!(python is_tensor)]
#[pyfunction]
fn is_tensor(obj: &Bound<'_, PyAny>) -> bool {
    obj.is_instance_of::<PyTensor>()
}

// ---- dtypes ----------------------------------------------------------------------------------------------------------

fn dtype_arg(op: &'static str, arg: &'static str, obj: &Bound<'_, PyAny>) -> PyResult<DType> {
    dtype_of(obj).ok_or_else(|| {
        let got = crate::args::kind_name(obj);
        errors::type_error(obj.py(), format!("{op}(): argument '{arg}' must be lucid.dtype, not {got}"))
    })
}

/// The dtype of an operation on tensors of these dtypes.
#[doc = lucid::op_doc!(python promote_types)]
#[pyfunction]
fn promote_types(type1: &Bound<'_, PyAny>, type2: &Bound<'_, PyAny>) -> PyResult<&'static Py<PyDType>> {
    let (a, b) = (dtype_arg("promote_types", "type1", type1)?, dtype_arg("promote_types", "type2", type2)?);
    let py = type1.py();
    dtype_object(py, a.promote(b).map_err(|e| errors::raise(py, &e))?)
}

/// The dtype of an operation on these tensors or numbers, which also go by the names that PyTorch's overloads give them:
/// `tensor` and `other`, `scalar` and `tensor`, `scalar1` and `scalar2`.
#[doc = lucid::op_doc!(python result_type)]
#[pyfunction]
#[pyo3(signature = (tensor1=Arg::MISSING, tensor2=Arg::MISSING, *, tensor=Arg::MISSING, other=Arg::MISSING, scalar=Arg::MISSING, scalar1=Arg::MISSING, scalar2=Arg::MISSING))]
#[allow(clippy::too_many_arguments)]
fn result_type<'py>(
    py: Python<'py>,
    tensor1: Arg<'_, 'py>,
    tensor2: Arg<'_, 'py>,
    tensor: Arg<'_, 'py>,
    other: Arg<'_, 'py>,
    scalar: Arg<'_, 'py>,
    scalar1: Arg<'_, 'py>,
    scalar2: Arg<'_, 'py>,
) -> PyResult<&'static Py<PyDType>> {
    // It does not matter which comes first.
    let all = [tensor1, tensor2, tensor, other, scalar, scalar1, scalar2];
    let mut given = all.into_iter().filter(|a| a.0.is_some());
    let (first, second) = (given.next().unwrap_or(Arg::MISSING), given.next().unwrap_or(Arg::MISSING));
    if given.next().is_some() {
        return Err(errors::type_error(py, "result_type() takes two tensors or numbers, got more"));
    }
    let a = required::<kinds::Operand>(py, At { op: "result_type", arg: "tensor1" }, first)?;
    let b = required::<kinds::Operand>(py, At { op: "result_type", arg: "tensor2" }, second)?;
    dtype_object(py, lucid::ops::result_type([a.lend(), b.lend()]).map_err(|e| errors::raise(py, &e))?)
}

/// May a value of one dtype be stored in the other without a step down in category?
#[doc = lucid::op_doc!(python can_cast)]
#[pyfunction]
#[pyo3(signature = (from_, to))]
fn can_cast(from_: &Bound<'_, PyAny>, to: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(dtype_arg("can_cast", "from_", from_)?.can_cast(dtype_arg("can_cast", "to", to)?))
}

// ---- settings --------------------------------------------------------------------------------------------------------

/// The dtype of new floating tensors.
#[pyfunction]
fn get_default_dtype(py: Python<'_>) -> PyResult<&'static Py<PyDType>> {
    dtype_object(py, lucid::default_dtype())
}

/// Sets the dtype of new floating tensors.
#[doc = lucid::op_doc!(python set_default_dtype)]
#[pyfunction]
fn set_default_dtype(d: &Bound<'_, PyAny>) -> PyResult<()> {
    let dtype = dtype_arg("set_default_dtype", "d", d)?;
    engine_call::quick(d.py(), || lucid::set_default_dtype(dtype))
}

fn device_arg(op: &'static str, obj: &Bound<'_, PyAny>) -> PyResult<Device> {
    device_of(obj)?.ok_or_else(|| {
        let got = crate::args::kind_name(obj);
        errors::type_error(obj.py(), format!("{op}(): argument 'device' must be a device or str, not {got}"))
    })
}

/// Where new tensors are made.
#[pyfunction]
fn get_default_device(py: Python<'_>) -> PyResult<&'static Py<PyDevice>> {
    device_object(py, lucid::default_device())
}

/// Sets where new tensors are made; `None` is the CPU.
#[doc = lucid::op_doc!(python set_default_device)]
#[pyfunction]
fn set_default_device(device: &Bound<'_, PyAny>) -> PyResult<()> {
    lucid::set_default_device(if device.is_none() { Device::Cpu } else { device_arg("set_default_device", device)? });
    Ok(())
}

/// Sets how many threads CPU kernels use; of more than 1024 they use 1024, which `get_num_threads` tells then.
#[doc = lucid::op_doc!(python set_num_threads)]
#[pyfunction]
fn set_num_threads(py: Python<'_>, num: &Bound<'_, PyAny>) -> PyResult<()> {
    match crate::tensor::int_arg("set_num_threads", "num", num)? {
        n if n > i64::from(i32::MAX) => {
            Err(errors::value_error(py, format!("set_num_threads expects an integer of 32 bits, got {n}")))
        }
        n if n > 0 => {
            lucid::set_num_threads(n as usize);
            Ok(())
        }
        n => Err(errors::runtime_error(py, format!("set_num_threads expects a positive integer, got {n}"))),
    }
}

/// How many threads CPU kernels use.
#[pyfunction]
fn get_num_threads() -> usize {
    lucid::get_num_threads()
}

/// 0: ops that are not deterministic run; 1: they warn; 2: they are errors.
#[pyfunction]
fn _set_deterministic(mode: u8) {
    use lucid::determinism::{set_mode, Mode};
    set_mode([Mode::Free, Mode::Warn, Mode::Refuse][usize::from(mode.min(2))]);
}

/// In which order `einsum` multiplies: 0 from left to right, 1 automatic, 2 greedy, 3 optimal; a number sets it.
#[pyfunction]
#[pyo3(signature = (order=None))]
fn _einsum_order(order: Option<u8>) -> u8 {
    use lucid::einsum_order::{set_strategy, strategy, Strategy};
    if let Some(order) = order {
        let strategies = [Strategy::LeftToRight, Strategy::Auto, Strategy::Greedy, Strategy::Optimal];
        set_strategy(strategies[usize::from(order.min(3))]);
    }
    strategy() as u8
}

/// The mode that was set.
#[pyfunction]
fn _get_deterministic() -> u8 {
    lucid::determinism::mode() as u8
}

/// Is what is warned of once in a process warned of each time? `always` sets it.
#[pyfunction]
#[pyo3(signature = (always=None))]
fn _warn_always(always: Option<bool>) -> bool {
    if let Some(always) = always {
        lucid::warnings::set_always(always);
    }
    lucid::warnings::is_always()
}

/// Is it a storage?
#[doc = lucid::op_doc!(python is_storage)]
#[pyfunction]
fn is_storage(obj: &Bound<'_, PyAny>) -> bool {
    obj.get_type().name().is_ok_and(|n| n == "UntypedStorage" || n == "TypedStorage")
}

// ---- evaluation and memory -------------------------------------------------------------------------------------------

/// Computes what is pending for all of these tensors in one pass.
#[pyfunction]
#[pyo3(signature = (tensors, wait=true))]
fn _eval(py: Python<'_>, tensors: &Bound<'_, PyAny>, wait: bool) -> PyResult<()> {
    let tensors = tensors_of(At { op: "eval", arg: "tensors" }, tensors.as_borrowed())?;
    engine_call::long(py, || lucid::eval(&tensors.iter().collect::<Vec<_>>(), wait))
}

/// Waits until the GPU device has done all that was started; the CPU works at once.
#[pyfunction]
#[pyo3(signature = (device=None))]
fn _synchronize(py: Python<'_>, device: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    match device.filter(|d| !d.is_none()).map(|d| device_arg("synchronize", d)).transpose()? {
        Some(Device::Cpu | Device::Meta) => Ok(()),
        Some(Device::Gpu) | None => {
            py.detach(mlx_ffi::synchronize).map_err(|e| errors::runtime_error(py, e.to_string()))?;
            py.check_signals()
        }
    }
}

/// Waits for what the GPU device was given, whether it failed or not.
#[pyfunction]
fn _drain(py: Python<'_>) {
    py.detach(mlx_ffi::drain);
}

/// Has Python wait for the GPU device when it exits, while everything that was given to it is still there.
pub fn register_exit(m: &Bound<'_, PyModule>) -> PyResult<()> {
    mlx_ffi::finish_with_thread();
    m.py().import("atexit")?.call_method1("register", (wrap_pyfunction!(_drain, m)?,)).map(drop)
}

/// An ImportError where the MLX library that was loaded is of another version than the engine was built for.
#[pyfunction]
fn _check_mlx() -> PyResult<()> {
    mlx_ffi::version().map(drop).map_err(|e| pyo3::exceptions::PyImportError::new_err(e.to_string()))
}

/// Makes every use of the GPU in this process an error; in the worker processes of a data loader.
#[pyfunction]
fn _forbid_gpu() {
    mlx_ffi::forbid(
        "the GPU device cannot be used in a data loader's worker process; move the batch in the main process",
    );
}

/// Has this process used MLX?
#[pyfunction]
fn _gpu_in_use() -> bool {
    mlx_ffi::in_use()
}

/// Bytes in use (`current`, `peak`, `cached`) and `allocations` of a device.
#[doc = lucid::op_doc!(python memory_stats)]
#[pyfunction]
#[pyo3(signature = (device=None))]
fn memory_stats<'py>(py: Python<'py>, device: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyDict>> {
    let device = device.map_or(Ok(lucid::default_device()), |d| device_arg("memory_stats", d))?;
    let stats = lucid::memory_stats(device);
    let dict = PyDict::new(py);
    dict.set_item("current", stats.current)?;
    dict.set_item("peak", stats.peak)?;
    dict.set_item("cached", stats.cached)?;
    dict.set_item("allocations", stats.allocations)?;
    Ok(dict)
}

/// Makes the peak that `memory_stats` reports the current use.
#[doc = lucid::op_doc!(python reset_peak_memory_stats)]
#[pyfunction]
#[pyo3(signature = (device=None))]
fn reset_peak_memory_stats(device: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    let device = device.map_or(Ok(lucid::default_device()), |d| device_arg("reset_peak_memory_stats", d))?;
    lucid::reset_peak_memory_stats(device);
    Ok(())
}

/// Gives memory kept for reuse back to the system.
#[doc = lucid::op_doc!(python empty_cache)]
#[pyfunction]
#[pyo3(signature = (device=None))]
fn empty_cache(py: Python<'_>, device: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    let device = device.map_or(Ok(lucid::default_device()), |d| device_arg("empty_cache", d))?;
    engine_call::long(py, || lucid::empty_cache(device))
}

/// Sets the most bytes of freed memory that a device keeps for reuse (256 MiB on the cpu at first), and gives back what is
/// beyond. Returns the limit until now.
#[doc = lucid::op_doc!(python set_cache_limit)]
#[pyfunction]
#[pyo3(signature = (bytes, device=None))]
fn set_cache_limit(py: Python<'_>, bytes: usize, device: Option<&Bound<'_, PyAny>>) -> PyResult<usize> {
    const OP: &str = "set_cache_limit";
    let device = device.map_or(Ok(lucid::default_device()), |d| device_arg(OP, d))?;
    engine_call::long(py, || lucid::set_cache_limit(device, bytes))
}

/// How many ops and bytes may wait on the GPU, per thread, before they are evaluated.
#[pyfunction]
fn lazy_limits() -> (usize, usize) {
    let limits = lucid::lazy::limits();
    (limits.ops, limits.bytes)
}

/// Sets how many ops and bytes may wait on the GPU, per thread; what is not given stays.
#[pyfunction]
#[pyo3(signature = (*, ops=None, bytes=None))]
fn set_lazy_limits(ops: Option<usize>, bytes: Option<usize>) {
    let now = lucid::lazy::limits();
    lucid::lazy::set_limits(lucid::lazy::Limits { ops: ops.unwrap_or(now.ops), bytes: bytes.unwrap_or(now.bytes) });
}

/// From how many bytes on memory is shared between the devices instead of copied; sets it where a number is given.
#[pyfunction]
#[pyo3(signature = (bytes=None))]
fn _zero_copy_threshold(bytes: Option<usize>) -> usize {
    if let Some(bytes) = bytes {
        lucid::lazy::set_lent_from(bytes);
    }
    lucid::lazy::lent_from()
}

/// Do 64-bit floats become 32-bit ones on the GPU device? Sets it where a choice is given.
#[pyfunction]
#[pyo3(signature = (downcast=None))]
fn _float64_downcast(downcast: Option<bool>) -> bool {
    if let Some(on) = downcast {
        lucid::float64::set_downcast(on);
    }
    lucid::float64::is_downcast()
}

/// Turns the GPU's lowerings on or off, for comparing both.
#[pyfunction]
fn set_lowering(on: bool) {
    lucid::lazy::set_lowering(on);
}

/// Turns the CPU device's kernels on MLX's CPU stream on or off, for comparing both.
#[pyfunction]
fn set_hosting(on: bool) {
    lucid::lazy::set_hosting(on);
}

/// The MLX primitives that evaluating these tensors would run, by name.
#[pyfunction]
#[pyo3(signature = (*tensors))]
fn primitives<'py>(py: Python<'py>, tensors: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyDict>> {
    let tensors = tensors_of(At { op: "primitives", arg: "tensors" }, tensors.as_any().as_borrowed())?;
    let counts = engine_call::long(py, || lucid::lazy::primitives(&tensors.iter().collect::<Vec<_>>()))?;
    counts.into_py_dict(py)
}

/// The same, each with the dtypes of its inputs and of an output: lines such as `Add float32 float32 > float32`.
#[pyfunction]
#[pyo3(signature = (*tensors))]
fn _graph_nodes(py: Python<'_>, tensors: &Bound<'_, PyTuple>) -> PyResult<Vec<String>> {
    let tensors = tensors_of(At { op: "primitives", arg: "tensors" }, tensors.as_any().as_borrowed())?;
    engine_call::long(py, || lucid::lazy::graph_nodes(&tensors.iter().collect::<Vec<_>>()))
}

// ---- counting --------------------------------------------------------------------------------------------------------

#[pyfunction]
fn _profile_start() {
    lucid::profile::start();
}

/// The frames of the calling Python code, the innermost first, as PyTorch's profiler writes them.
fn stack() -> Vec<String> {
    Python::attach(|py| -> PyResult<Vec<String>> {
        let mut frames = Vec::new();
        let mut frame = py.import("sys")?.call_method0("_getframe")?;
        while !frame.is_none() {
            let code = frame.getattr("f_code")?;
            let (file, name) = (code.getattr("co_filename")?, code.getattr("co_name")?);
            frames.push(format!("{file}({}): {name}", frame.getattr("f_lineno")?));
            frame = frame.getattr("f_back")?;
        }
        Ok(frames)
    })
    .unwrap_or_default()
}

#[pyfunction]
fn _profile_start_trace(memory: bool, shapes: bool, stacks: bool) {
    lucid::profile::set_stack(stack);
    lucid::profile::start_trace(lucid::profile::Traced { memory, shapes, stacks });
}

/// Nanoseconds since the trace began, and a number of the calling thread.
#[pyfunction]
fn _profile_now() -> (u64, u64) {
    (lucid::profile::now(), lucid::profile::thread())
}

/// ((name, category, thread, start, duration, MLX operations, evaluations, bytes), shapes, shape of the result, stack) of each
/// event, and how many are missing.
#[pyfunction]
fn _profile_take_trace(py: Python<'_>) -> PyResult<(Vec<Bound<'_, PyTuple>>, u64)> {
    let (events, dropped) = lucid::profile::take_trace();
    let row = |e: &lucid::profile::Event| {
        let what = (e.name, e.family, e.thread, e.start, e.duration, e.mlx_ops, e.evaluations, e.memory);
        (what, &e.shapes, &e.made, &e.stack).into_pyobject(py)
    };
    Ok((events.iter().map(row).collect::<PyResult<_>>()?, dropped))
}

#[pyfunction]
fn _profile_stop() {
    lucid::profile::stop();
}

/// The counts since the start: one dict per op, and their total.
#[pyfunction]
fn _profile_report(py: Python<'_>) -> PyResult<(Bound<'_, PyDict>, Bound<'_, PyDict>)> {
    let report = lucid::profile::report();
    let count = |c: &lucid::profile::OpCount| -> PyResult<Bound<'_, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item("calls", c.calls)?;
        dict.set_item("mlx_ops", c.mlx_ops)?;
        dict.set_item("contiguous", c.contiguous)?;
        dict.set_item("evaluations", c.evaluations)?;
        Ok(dict)
    };
    let ops = PyDict::new(py);
    for (name, c) in &report.ops {
        ops.set_item(name, count(c)?)?;
    }
    Ok((ops, count(&report.total)?))
}

// ---- files -----------------------------------------------------------------------------------------------------------

pub fn path_of(path: &Bound<'_, PyAny>) -> PyResult<std::path::PathBuf> {
    path.extract().map_err(|_| {
        let got = crate::args::kind_name(path);
        errors::type_error(path.py(), format!("expected str or os.PathLike as the file's path, not {got}"))
    })
}

/// Writes a dict of tensors and one of texts as a safetensors file. The target is always the old file or the new one, whole.
#[pyfunction]
fn _save_safetensors(
    tensors: &Bound<'_, PyDict>,
    path: &Bound<'_, PyAny>,
    metadata: BTreeMap<String, String>,
) -> PyResult<()> {
    let path = path_of(path)?;
    let mut map = BTreeMap::new();
    for (name, t) in tensors.iter() {
        let at = At { op: "save_safetensors", arg: "tensors" };
        let name: String = required::<kinds::Text>(tensors.py(), at, Arg(Some(name.as_borrowed())))?;
        let t = required::<kinds::Tensor>(tensors.py(), at, Arg(Some(t.as_borrowed())))?.clone();
        map.insert(name, t);
    }
    engine_call::long(tensors.py(), || lucid::io::save_with(&path, &map, &metadata))
}

/// How many bytes the header of a safetensors file has, with the eight before it.
#[pyfunction]
fn _safetensors_header_len(path: &Bound<'_, PyAny>, prefix: &[u8], file_len: u64) -> PyResult<usize> {
    let py = path.py();
    let path = path_of(path)?;
    engine_call::quick(py, || lucid::io::header_len(&path, prefix, file_len))
}

/// The entries of a safetensors file, and its texts.
type Header<'py> = (Vec<Bound<'py, PyTuple>>, BTreeMap<String, String>);

/// The tensors of a safetensors file, as (name, dtype, shape, start, bytes) in its order, and its texts.
#[pyfunction]
fn _safetensors_header<'py>(path: &Bound<'py, PyAny>, head: &[u8], file_len: u64) -> PyResult<Header<'py>> {
    let py = path.py();
    let path = path_of(path)?;
    let header = engine_call::quick(py, || lucid::io::header(&path, head, file_len))?;
    let entry = |e: &lucid::io::Entry| {
        let shape = PyTuple::new(py, &e.shape)?;
        (e.name.as_str(), dtype_object(py, e.dtype)?, shape, e.start, e.len).into_pyobject(py)
    };
    Ok((header.entries.iter().map(entry).collect::<PyResult<_>>()?, header.metadata))
}

/// What MLX says of the GPU of this number, or of this process's own: `name`, `total_memory`, `free_memory` and `compute_capability`, `None` where it does not.
#[pyfunction]
#[pyo3(signature = (index=None))]
fn _gpu_info(py: Python<'_>, index: Option<usize>) -> PyResult<Bound<'_, PyDict>> {
    let own = mlx_ffi::device::index;
    // A rank names its only GPU by a number that no GPU of its has.
    let number = index.filter(|&i| i < mlx_ffi::device::count().unwrap_or(1)).unwrap_or_else(own);
    let info = mlx_ffi::device::info_of(number).map_err(|e| errors::runtime_error(py, e.to_string()))?;
    let dict = PyDict::new(py);
    dict.set_item("name", info.name.or(info.architecture))?;
    dict.set_item("total_memory", info.total_memory)?;
    dict.set_item("free_memory", info.free_memory)?;
    dict.set_item("compute_capability", info.compute_capability)?;
    Ok(dict)
}

macro_rules! add {
    ($m:ident $($name:ident)*) => { $($m.add_function(wrap_pyfunction!($name, $m)?)?;)* };
}

/// Adds the functions of tensors. Those that share an op's name come after the table's and take its place.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    add! { m
        numel is_nonzero view expand repeat clone contiguous is_signed is_same_size ravel is_floating_point is_complex
        detach detach_ fill_ zero_ resize_as_ is_inference result_type
    }
    Ok(())
}

/// Adds what is no function of tensors.
pub fn register_settings(m: &Bound<'_, PyModule>) -> PyResult<()> {
    add! { m
        is_tensor is_storage promote_types can_cast _warn_always _einsum_order _set_deterministic _get_deterministic
        get_default_dtype set_default_dtype get_default_device set_default_device set_num_threads get_num_threads
        _eval _synchronize _check_mlx _forbid_gpu _gpu_in_use memory_stats reset_peak_memory_stats empty_cache set_cache_limit lazy_limits set_lazy_limits _zero_copy_threshold _float64_downcast set_lowering set_hosting primitives _graph_nodes _profile_start _profile_start_trace _profile_now _profile_take_trace _profile_stop _profile_report
        _gpu_info _save_safetensors _safetensors_header_len _safetensors_header
    }
    Ok(())
}
