//! Memory across Python's border: buffers shown as tensors, and DLPack capsules in both directions.
//!
//! One of the modules of this crate where `unsafe` is allowed; each block says why it is sound. What it promises to the engine
//! is that foreign memory stays while its owner does. Owners are Python objects, so that whichever thread drops a tensor,
//! PyO3 sees to it that they are released under the GIL. Invariant: a capsule is consumed once, a deleter runs once.
#![allow(unsafe_code)]
#![warn(unsafe_op_in_unsafe_fn)]

use crate::args::{kinds, required, Arg, At};
use crate::tensor::{wrap, PyTensor};
use crate::{engine_call, errors};
use lucid::interop::Export;
use lucid::{DType, Foreign, Owner, Tensor};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyMemoryView, PyTuple, PyType};
use smallvec::SmallVec;
use std::ffi::{c_void, CStr};
use std::panic::{catch_unwind, AssertUnwindSafe};

// ---- buffers ---------------------------------------------------------------------------------------------------------

/// A tensor that shows the memory behind a memoryview, with sizes and strides in elements, `offset` bytes into it.
#[pyfunction]
fn _show_buffer<'py>(
    view: &Bound<'py, PyMemoryView>,
    dtype: Arg<'_, 'py>,
    shape: Vec<usize>,
    strides: Vec<usize>,
    offset: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let py = view.py();
    let dtype = required::<kinds::Dtype>(py, At { op: "from_numpy", arg: "dtype" }, dtype)?;
    let buffer = PyUntypedBuffer::get(view.as_any())?;
    let extents = buffer.shape().iter().zip(buffer.strides());
    if buffer.suboffsets().is_some() || extents.clone().any(|(_, &s)| s < 0) {
        return Err(errors::value_error(
            py,
            "from_numpy(): a buffer with negative strides or pointers cannot be shown",
        ));
    }
    // What is between the first and the last element belongs to the buffer.
    let bytes = match buffer.item_count() {
        0 => 0,
        _ => extents.map(|(&n, &s)| (n - 1) * s as usize).sum::<usize>() + buffer.item_size(),
    };
    if offset > bytes {
        return Err(errors::value_error(py, format!("offset ({offset}) is outside of a buffer of {bytes} bytes")));
    }
    let (start, writable) = (buffer.buf_ptr().cast::<u8>().wrapping_add(offset), !buffer.readonly());
    buffer.release(py);
    let owner: Owner = Box::new(view.clone().unbind());
    // SAFETY: the view holds the exporter, which must not move or free its memory until the view is released; nobody else
    // has the view to release it. The bytes are those that the exporter described.
    let memory = unsafe { Foreign::new(start, bytes - offset, writable, owner) };
    wrap(py, engine_call::quick(py, || Tensor::from_foreign(memory, &shape, &strides, dtype))?)
}

/// Tensors that show float32 arrays which have elements and can be written to: as they are, or in `shape` where that is given
/// and they are row-major with as many elements. `None` where one is none of `class`, NumPy's array, or another array.
#[pyfunction]
#[pyo3(signature = (class, arrays, shape = None))]
fn _show_float32<'py>(
    class: &Bound<'py, PyType>,
    arrays: &Bound<'py, PyTuple>,
    shape: Option<Vec<usize>>,
) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
    let shown = arrays.iter().map(|x| match x.get_type().is(class) {
        true => show_float32(&x, shape.as_deref())?.map(|t| wrap(x.py(), t)).transpose(),
        false => Ok(None),
    });
    shown.collect()
}

/// One of [`_show_float32`].
pub fn show_float32(array: &Bound<'_, PyAny>, shape: Option<&[usize]>) -> PyResult<Option<Tensor>> {
    Ok(show_sized(array, shape)?.map(|(tensor, _)| tensor))
}

/// Sizes of an array.
pub type Sizes = SmallVec<[usize; 6]>;

/// One of [`_show_float32`], with the array's own sizes.
pub fn show_sized(array: &Bound<'_, PyAny>, shape: Option<&[usize]>) -> PyResult<Option<(Tensor, Sizes)>> {
    const SIZE: usize = size_of::<f32>();
    let py = array.py();
    // An array of dates, say, has no buffer to show.
    let Ok(buffer) = PyUntypedBuffer::get(array) else { return Ok(None) };
    let (count, start) = (buffer.item_count(), buffer.buf_ptr().cast::<u8>());
    let float32 = buffer.format().to_bytes() == b"f" && start.addr() % SIZE == 0;
    if !float32 || buffer.readonly() || count == 0 || buffer.suboffsets().is_some() {
        return Ok(None);
    }
    let (own, mut strides) = (Sizes::from_slice(buffer.shape()), Sizes::new());
    for &stride in buffer.strides() {
        match usize::try_from(stride) {
            Ok(stride) if stride % SIZE == 0 => strides.push(stride / SIZE),
            _ => return Ok(None),
        }
    }
    let shape = shape.unwrap_or(&own);
    if *shape != *own {
        let wanted = shape.iter().try_fold(1usize, |product, &n| product.checked_mul(n));
        if wanted != Some(count) || !buffer.is_c_contiguous() {
            return Ok(None);
        }
        strides = lucid::shape::contiguous_strides(shape).as_slice().into();
    }
    buffer.release(py);
    let last = shape.iter().zip(&strides).map(|(&n, &s)| (n - 1) * s).sum::<usize>();
    let owner: Owner = Box::new(array.clone().unbind());
    // SAFETY: the array said that these elements are its own and may be written to. It keeps them where they are while somebody
    // has it, as the owner does: what DLPack promises of NumPy's arrays is no more than that either.
    let memory = unsafe { Foreign::new(start, (last + 1) * SIZE, true, owner) };
    let tensor = engine_call::quick(py, || Tensor::from_foreign(memory, shape, &strides, DType::F32))?;
    Ok(Some((tensor, own)))
}

/// Copies a tensor's elements to a float32 array of as many; false where it is none of `class`, NumPy's array, that can be
/// written to.
#[pyfunction]
fn _fill_float32(class: &Bound<'_, PyType>, array: &Bound<'_, PyAny>, tensor: &Bound<'_, PyTensor>) -> PyResult<bool> {
    let t = tensor.get().share();
    if !array.get_type().is(class) {
        return Ok(false);
    }
    let Some(shown) = show_float32(array, Some(t.shape()))? else { return Ok(false) };
    engine_call::op(array.py(), t.numel(), || shown.copy_(&t))?;
    Ok(true)
}

// ---- the standard's structures ---------------------------------------------------------------------------------------

const CPU: i32 = 1;
const CUDA_HOST: i32 = 3;
const READ_ONLY: u64 = 1;
const IS_COPIED: u64 = 2;

#[repr(C)]
#[derive(Clone, Copy)]
struct Device {
    kind: i32,
    index: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct DataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

/// `DLTensor`.
#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device: Device,
    ndim: i32,
    dtype: DataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// `DLManagedTensor`, as before version 1.
#[repr(C)]
struct Plain {
    tensor: DlTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Plain)>,
}

/// `DLManagedTensorVersioned`. Its first three fields are those of every later version.
#[repr(C)]
struct Versioned {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    flags: u64,
    tensor: DlTensor,
}

/// What differs between the two kinds of capsule.
trait Managed: Sized + 'static {
    const NAME: &'static CStr;
    const USED: &'static CStr;
    fn new(tensor: DlTensor, flags: u64, context: *mut c_void) -> Self;
    /// Sets what points into the box that holds it.
    fn point(&mut self, context: *mut c_void, shape: *mut i64, strides: *mut i64);
    fn context(&self) -> *mut c_void;
    fn deleter(&self) -> Option<unsafe extern "C" fn(*mut Self)>;
    /// The tensor and its flags, where the version is one that is known here.
    fn known(&self) -> Result<(&DlTensor, u64), String>;
}

impl Managed for Plain {
    const NAME: &'static CStr = c"dltensor";
    const USED: &'static CStr = c"used_dltensor";
    fn new(tensor: DlTensor, _flags: u64, context: *mut c_void) -> Plain {
        Plain { tensor, context, deleter: Some(delete_exported::<Plain>) }
    }
    fn point(&mut self, context: *mut c_void, shape: *mut i64, strides: *mut i64) {
        self.context = context;
        (self.tensor.shape, self.tensor.strides) = (shape, strides);
    }
    fn context(&self) -> *mut c_void {
        self.context
    }
    fn deleter(&self) -> Option<unsafe extern "C" fn(*mut Plain)> {
        self.deleter
    }
    fn known(&self) -> Result<(&DlTensor, u64), String> {
        Ok((&self.tensor, 0))
    }
}

impl Managed for Versioned {
    const NAME: &'static CStr = c"dltensor_versioned";
    const USED: &'static CStr = c"used_dltensor_versioned";
    fn new(tensor: DlTensor, flags: u64, context: *mut c_void) -> Versioned {
        Versioned { major: 1, minor: 0, context, deleter: Some(delete_exported::<Versioned>), flags, tensor }
    }
    fn point(&mut self, context: *mut c_void, shape: *mut i64, strides: *mut i64) {
        self.context = context;
        (self.tensor.shape, self.tensor.strides) = (shape, strides);
    }
    fn context(&self) -> *mut c_void {
        self.context
    }
    fn deleter(&self) -> Option<unsafe extern "C" fn(*mut Versioned)> {
        self.deleter
    }
    fn known(&self) -> Result<(&DlTensor, u64), String> {
        match self.major {
            1 => Ok((&self.tensor, self.flags)),
            other => Err(format!("a capsule of DLPack {other}.{} cannot be read; versions 0 and 1 can", self.minor)),
        }
    }
}

fn code_of(dtype: DType) -> DataType {
    let code = match dtype {
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => 0,
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => 1,
        DType::F16 | DType::F32 | DType::F64 => 2,
        DType::BF16 => 4,
        DType::C64 | DType::C128 => 5,
        DType::Bool => 6,
        DType::F8E4M3FN => 10,
        DType::F8E5M2 => 12,
    };
    DataType { code, bits: (dtype.size() * 8) as u8, lanes: 1 }
}

fn dtype_of(given: DataType) -> Option<DType> {
    let same = |d: DType| {
        let own = code_of(d);
        (own.code, own.bits, own.lanes) == (given.code, given.bits, given.lanes)
    };
    DType::ALL.iter().copied().find(|&d| same(d))
}

// ---- out -------------------------------------------------------------------------------------------------------------

/// All that a capsule points to.
struct Exported<M> {
    managed: M,
    shape: Box<[i64]>,
    strides: Box<[i64]>,
    _owner: Owner,
}

/// The deleter of what is exported here.
///
/// # Safety
/// `managed` is null or points to the `managed` of an [`Exported`] that was made by [`export`], and is deleted once.
unsafe extern "C" fn delete_exported<M: Managed>(managed: *mut M) {
    // A panic must not unwind into C.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        if !managed.is_null() {
            // SAFETY: the context is the box that `export` leaked; the caller deletes once.
            drop(unsafe { Box::from_raw((*managed).context().cast::<Exported<M>>()) });
        }
    }));
}

/// The destructor of the capsules made here: deletes what nobody has consumed.
unsafe extern "C" fn drop_capsule<M: Managed>(capsule: *mut ffi::PyObject) {
    // SAFETY: called by Python with the capsule, under the GIL. While it has its first name it holds what `export` put
    // there, and nobody else has taken that over.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, M::NAME.as_ptr()) == 1 {
            let managed = ffi::PyCapsule_GetPointer(capsule, M::NAME.as_ptr()).cast::<M>();
            delete_exported(managed);
        }
    }
}

fn export<'py, M: Managed>(py: Python<'py>, e: Export, copied: bool) -> PyResult<Bound<'py, PyAny>> {
    let signed = |v: &[usize]| v.iter().map(|&n| n as i64).collect::<Box<[i64]>>();
    let flags = if e.writable { 0 } else { READ_ONLY } | if copied { IS_COPIED } else { 0 };
    let tensor = DlTensor {
        data: e.address as *mut c_void,
        device: Device { kind: CPU, index: 0 },
        ndim: e.shape.len() as i32,
        dtype: code_of(e.dtype),
        shape: std::ptr::null_mut(),
        strides: std::ptr::null_mut(),
        byte_offset: 0,
    };
    let managed = M::new(tensor, flags, std::ptr::null_mut());
    let exported = Exported { managed, shape: signed(&e.shape), strides: signed(&e.strides), _owner: e.owner };
    let exported = Box::into_raw(Box::new(exported));
    // SAFETY: a box that was just leaked: valid, and nobody else has it. Pointers into it stay right, it never moves.
    let pointer = unsafe {
        let inside = &mut *exported;
        let (shape, strides) = (inside.shape.as_mut_ptr(), inside.strides.as_mut_ptr());
        inside.managed.point(exported.cast(), shape, strides);
        (&raw mut (*exported).managed).cast::<c_void>()
    };
    // SAFETY: the pointer is not null, the name is static, and the destructor fits both.
    unsafe {
        let capsule = ffi::PyCapsule_New(pointer, M::NAME.as_ptr(), Some(drop_capsule::<M>));
        match Bound::from_owned_ptr_or_err(py, capsule) {
            Ok(capsule) => Ok(capsule),
            Err(e) => {
                delete_exported(pointer.cast::<M>());
                Err(e)
            }
        }
    }
}

/// A capsule of a tensor's elements in place. Evaluates. What cannot be written goes out only in versioned capsules,
/// which can say so.
#[pyfunction]
fn _to_dlpack<'py>(tensor: &Bound<'py, PyTensor>, versioned: bool, copied: bool) -> PyResult<Bound<'py, PyAny>> {
    let (py, t) = (tensor.py(), tensor.get().share());
    let e = engine_call::long(py, || t.export())?;
    match versioned {
        true => export::<Versioned>(py, e, copied),
        false if e.writable || e.address == 0 => export::<Plain>(py, e, copied),
        false => Err(PyBufferError::new_err(
            "Can't export a read-only tensor without a version: pass max_version=(1, 0), or copy=True",
        )),
    }
}

// ---- in --------------------------------------------------------------------------------------------------------------

/// The name of capsules that hold a consumed tensor until its deleter is due.
const OWNED: &CStr = c"lucid_dltensor";

/// The destructor of such a capsule: calls the producer's deleter.
unsafe extern "C" fn drop_owned<M: Managed>(capsule: *mut ffi::PyObject) {
    // SAFETY: called by Python with a capsule made by `import`, under the GIL; its pointer is the producer's tensor, which
    // was taken over from the producer's capsule and is deleted here only.
    unsafe {
        let managed = ffi::PyCapsule_GetPointer(capsule, OWNED.as_ptr()).cast::<M>();
        if !managed.is_null()
            && let Some(delete) = (*managed).deleter()
        {
            delete(managed);
        }
    }
}

fn refuse(why: impl Into<String>) -> PyErr {
    PyBufferError::new_err(why.into())
}

/// What a `DLTensor` says, checked.
struct Described {
    address: *mut u8,
    bytes: usize,
    shape: Vec<usize>,
    strides: Vec<usize>,
    dtype: DType,
}

fn describe(t: &DlTensor) -> PyResult<Described> {
    if !matches!(t.device.kind, CPU | CUDA_HOST) {
        let kind = t.device.kind;
        return Err(refuse(format!(
            "from_dlpack: memory of DLPack's device type {kind} cannot be shared, only the CPU's; move it there first"
        )));
    }
    let DataType { code, bits, lanes } = t.dtype;
    let dtype = dtype_of(t.dtype).ok_or_else(|| {
        refuse(format!(
            "from_dlpack: there is no dtype for DLPack's type code {code} with {bits} bits and {lanes} lanes"
        ))
    })?;
    let ndim = usize::try_from(t.ndim).map_err(|_| refuse("from_dlpack: a negative number of dimensions"))?;
    let list = |p: *mut i64| -> PyResult<Vec<i64>> {
        match (ndim, p.is_null()) {
            (0, _) => Ok(Vec::new()),
            (_, true) => Err(refuse("from_dlpack: sizes are missing")),
            // SAFETY: by the standard there are `ndim` numbers.
            (_, false) => Ok(unsafe { std::slice::from_raw_parts(p, ndim) }.to_vec()),
        }
    };
    let unsigned = |v: Vec<i64>, what: &str| -> PyResult<Vec<usize>> {
        let fail = || refuse(format!("from_dlpack: negative {what} {v:?} cannot be shown; copy the array first"));
        v.iter().map(|&n| usize::try_from(n).map_err(|_| fail())).collect()
    };
    let shape = unsigned(list(t.shape)?, "sizes")?;
    let strides = match t.strides.is_null() {
        true => lucid::shape::contiguous_strides_checked(&shape)
            .ok_or_else(|| refuse(format!("from_dlpack: sizes {shape:?} overflow")))?
            .to_vec(),
        false => {
            let given = list(t.strides)?;
            // Strides of dimensions with at most one element say nothing, and may be anything.
            let used = given.iter().zip(&shape).map(|(&s, &n)| if n > 1 { s } else { s.max(0) }).collect();
            unsigned(used, "strides")?
        }
    };
    let empty = shape.contains(&0);
    let span = shape.iter().zip(&strides).try_fold(1usize, |span, (&n, &s)| match empty {
        true => Some(0),
        false => (n - 1).checked_mul(s).and_then(|reach| span.checked_add(reach)),
    });
    let bytes = span.and_then(|n| n.checked_mul(dtype.size())).filter(|&b| b <= isize::MAX as usize);
    let bytes =
        bytes.ok_or_else(|| refuse(format!("from_dlpack: sizes {shape:?} with strides {strides:?} overflow")))?;
    let offset = usize::try_from(t.byte_offset).map_err(|_| refuse("from_dlpack: the offset overflows"))?;
    if t.data.is_null() && !empty {
        return Err(refuse("from_dlpack: there is no memory behind the elements"));
    }
    let address = t.data.cast::<u8>().wrapping_add(offset);
    Ok(Described { address, bytes: if empty { 0 } else { bytes }, shape, strides, dtype })
}

fn import<M: Managed>(capsule: &Bound<'_, PyCapsule>) -> PyResult<(Tensor, bool)> {
    let py = capsule.py();
    // SAFETY: the capsule has this name (the caller looked), so by the standard its pointer is a managed tensor that
    // nobody has consumed.
    let managed = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), M::NAME.as_ptr()).cast::<M>() };
    if managed.is_null() {
        return Err(PyErr::fetch(py));
    }
    // SAFETY: as above; the producer does not change it while the capsule lives.
    let (tensor, flags) = unsafe { &*managed }.known().map_err(refuse)?;
    let d = describe(tensor)?;
    // From here on the tensor is ours: the producer's capsule is renamed, and one of ours holds it.
    // SAFETY: the pointer is not null, the name is static, and the destructor fits both.
    let owner = unsafe {
        let owner = ffi::PyCapsule_New(managed.cast(), OWNED.as_ptr(), Some(drop_owned::<M>));
        let owner = Bound::from_owned_ptr_or_err(py, owner)?;
        if ffi::PyCapsule_SetName(capsule.as_ptr(), M::USED.as_ptr()) != 0 {
            // Both would delete it: ours must not.
            ffi::PyCapsule_SetDestructor(owner.as_ptr(), None);
            return Err(PyErr::fetch(py));
        }
        owner
    };
    let writable = flags & READ_ONLY == 0;
    // SAFETY: by the standard the memory stays until the deleter is called, which the owner does when it is dropped.
    let memory = unsafe { Foreign::new(d.address, d.bytes, writable, Box::new(owner.unbind())) };
    let made = engine_call::quick(py, || Tensor::from_foreign(memory, &d.shape, &d.strides, d.dtype))?;
    Ok((made, flags & IS_COPIED != 0))
}

/// A tensor that shows the memory of a capsule, which is consumed, and whether the producer had copied.
#[pyfunction]
fn _from_dlpack<'py>(capsule: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyAny>, bool)> {
    let py = capsule.py();
    let Ok(capsule) = capsule.cast::<PyCapsule>() else {
        let got = crate::args::kind_name(capsule);
        return Err(errors::type_error(
            py,
            format!("from_dlpack(): expected an object with __dlpack__ or a capsule, not {got}"),
        ));
    };
    let named = |name: &CStr| capsule.is_valid_checked(Some(name));
    let (made, copied) = if named(Versioned::NAME) {
        import::<Versioned>(capsule)?
    } else if named(Plain::NAME) {
        import::<Plain>(capsule)?
    } else {
        let why = "from_dlpack received an invalid capsule. Note that DLTensor capsules can be consumed only once, so you might have already constructed a tensor from it once.";
        return Err(errors::runtime_error(py, why));
    };
    Ok((wrap(py, made)?, copied))
}

/// Adds the functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(_show_buffer, m)?)?;
    m.add_function(wrap_pyfunction!(_show_float32, m)?)?;
    m.add_function(wrap_pyfunction!(_fill_float32, m)?)?;
    m.add_function(wrap_pyfunction!(_to_dlpack, m)?)?;
    m.add_function(wrap_pyfunction!(_from_dlpack, m)?)
}
