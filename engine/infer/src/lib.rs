//! The C API of exported models, as `include/lucid_infer.h` declares it: what `lucid.export` wrote is loaded by
//! [`lucid::graph::load`] and run. What C hands over is checked before it is used; nothing unwinds into C.
//!
//! A model that C holds is a number, never an address: one that was freed is refused, and one that others run lives on until
//! they end.

use lucid::graph::{load, Exported, Extent, Spec};
use lucid::{DType, Device, Error, Tensor};
use parking_lot::Mutex;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{c_char, c_void, CStr, CString};
use std::fmt::Display;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

const ABI: u32 = 1;
const MAX_DIMS: usize = 8;

const OK: i32 = 0;
const INVALID_VALUE: i32 = 1;
const INVALID_MODEL: i32 = 2;
const IO: i32 = 3;
const OUT_OF_MEMORY: i32 = 4;
const FAILED: i32 = 5;

static MODELS: Mutex<BTreeMap<usize, Arc<Exported>>> = Mutex::new(BTreeMap::new());
static MADE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// `lucid_infer_tensor`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Elements {
    dtype: i32,
    ndim: i32,
    shape: [i64; MAX_DIMS],
    data: *mut c_void,
    bytes: usize,
}

/// `lucid_infer_model`, which C knows the name of alone.
#[repr(C)]
pub struct Model {
    _private: [u8; 0],
}

/// What failed: the status, and a sentence.
struct Failure(i32, String);

type Outcome<T> = Result<T, Failure>;

impl From<Box<Error>> for Failure {
    fn from(error: Box<Error>) -> Failure {
        let status = match &*error {
            Error::Io { .. } => IO,
            Error::OutOfMemory { .. } => OUT_OF_MEMORY,
            Error::ShapeMismatch { .. } | Error::DtypeMismatch { .. } | Error::InvalidValue { .. } => INVALID_VALUE,
            _ => FAILED,
        };
        Failure(status, error.to_string())
    }
}

fn failure<T>(status: i32, why: impl Display) -> Outcome<T> {
    Err(Failure(status, why.to_string()))
}

/// Does the work; what fails, or panics, is noted for `lucid_infer_last_error`.
fn guarded<T>(work: impl FnOnce() -> Outcome<T>) -> Result<T, i32> {
    let done = catch_unwind(AssertUnwindSafe(work));
    let Failure(status, why) = match done {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(failed)) => failed,
        Err(_) => Failure(FAILED, "an invariant of the engine does not hold; this is a defect".into()),
    };
    let text = CString::new(why.replace('\0', " ")).unwrap_or_default();
    LAST.with(|last| last.replace(text));
    Err(status)
}

fn status(work: impl FnOnce() -> Outcome<()>) -> i32 {
    guarded(work).err().unwrap_or(OK)
}

fn found(model: *const Model) -> Outcome<Arc<Exported>> {
    let known = MODELS.lock().get(&model.addr()).map(Arc::clone);
    known.map_or_else(|| failure(INVALID_MODEL, "the model was freed, or lucid_infer_load did not give it"), Ok)
}

/// What C's pointer shows, which must be `n` tensors.
fn listed<'a>(at: *const Elements, n: usize, what: &str) -> Outcome<&'a [Elements]> {
    if n == 0 {
        return Ok(&[]);
    }
    if at.is_null() || !at.is_aligned() {
        return failure(INVALID_VALUE, format!("the {what} are a null pointer, or not aligned"));
    }
    // SAFETY: not null and aligned; that there are n of them is the caller's promise, as the header says.
    Ok(unsafe { std::slice::from_raw_parts(at, n) })
}

/// The sizes of a tensor of C's, and its dtype.
fn described(tensor: &Elements) -> Outcome<(Vec<usize>, DType)> {
    let dtype = usize::try_from(tensor.dtype).ok().and_then(|i| DType::ALL.get(i).copied());
    let ndim = usize::try_from(tensor.ndim).ok().filter(|&n| n <= MAX_DIMS);
    let sizes = ndim.and_then(|n| tensor.shape[..n].iter().map(|&size| usize::try_from(size).ok()).collect());
    match (sizes, dtype) {
        (Some(sizes), Some(dtype)) => Ok((sizes, dtype)),
        (_, None) => failure(INVALID_VALUE, format!("there is no dtype {}", tensor.dtype)),
        _ => failure(INVALID_VALUE, format!("{} sizes {:?} are no shape", tensor.ndim, tensor.shape)),
    }
}

/// A tensor with the elements of one of C's.
fn taken(tensor: &Elements, spec: &Spec) -> Outcome<Tensor> {
    let (shape, dtype) = described(tensor).map_err(|f| Failure(f.0, format!("input {:?}: {}", spec.name, f.1)))?;
    let size = shape.iter().try_fold(dtype.size(), |size, &n| size.checked_mul(n));
    if size != Some(tensor.bytes) || tensor.data.is_null() && size != Some(0) {
        let why = format!("{} bytes for {dtype} of shape {shape:?}, or a null pointer", tensor.bytes);
        return failure(INVALID_VALUE, format!("input {:?}: {why}", spec.name));
    }
    let bytes: &[u8] = match tensor.bytes {
        0 => &[],
        // SAFETY: not null, and bytes have no alignment; that there are as many is the caller's promise.
        n => unsafe { std::slice::from_raw_parts(tensor.data.cast(), n) },
    };
    if dtype == DType::Bool && bytes.iter().any(|&b| b > 1) {
        return failure(INVALID_VALUE, format!("input {:?}: a bool is neither 0 nor 1", spec.name));
    }
    Ok(Tensor::from_bytes(bytes, &shape, dtype, Device::Cpu)?)
}

/// Memory that C frees by `lucid_infer_release`.
struct Given(*mut c_void);

impl Given {
    fn new(bytes: usize) -> Outcome<Given> {
        // SAFETY: takes a number.
        let at = unsafe { libc::malloc(bytes.max(1)) };
        if at.is_null() {
            return failure(OUT_OF_MEMORY, format!("there is no memory for {bytes} bytes of a result"));
        }
        Ok(Given(at))
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        // SAFETY: malloc gave it, or it is null.
        unsafe { libc::free(self.0) }
    }
}

fn run(model: *const Model, inputs: (*const Elements, usize), outputs: (*mut Elements, usize)) -> Outcome<()> {
    let exported = found(model)?;
    let (specs, results) = (exported.inputs(), exported.outputs());
    if inputs.1 != specs.len() || outputs.1 != results.len() {
        let why = format!("the model has {} inputs and {} outputs", specs.len(), results.len());
        return failure(INVALID_VALUE, format!("{why}, got {} and {}", inputs.1, outputs.1));
    }
    let wanted = listed(outputs.0, outputs.1, "outputs")?.to_vec();
    let given = listed(inputs.0, inputs.1, "inputs")?;
    let tensors = given.iter().zip(specs).map(|(t, spec)| taken(t, spec)).collect::<Outcome<Vec<_>>>()?;
    let made = exported.run(&tensors)?;
    if made.len() != wanted.len() {
        return failure(FAILED, format!("the model gave {} results", made.len()));
    }
    // All that can fail comes first, so that nothing is written where something does.
    let mut whole = Vec::new();
    for (i, (t, slot)) in made.iter().zip(&wanted).enumerate() {
        let bytes = t.to_bytes()?;
        if t.ndim() > MAX_DIMS {
            return failure(INVALID_VALUE, format!("output {i} has {} dimensions", t.ndim()));
        }
        let own = match slot.data.is_null() {
            true => Some(Given::new(bytes.len())?),
            false if slot.bytes < bytes.len() => {
                return failure(OUT_OF_MEMORY, format!("output {i} needs {} bytes, got {}", bytes.len(), slot.bytes));
            }
            false => None,
        };
        whole.push((bytes, own));
    }
    for (i, ((bytes, own), t)) in whole.into_iter().zip(&made).enumerate() {
        let data = own.as_ref().map_or(wanted[i].data, |own| own.0);
        std::mem::forget(own);
        let mut shape = [0; MAX_DIMS];
        shape.iter_mut().zip(t.shape()).for_each(|(to, &n)| *to = i64::try_from(n).unwrap_or(i64::MAX));
        let (dtype, ndim) = (number_of(t.dtype()), i32::try_from(t.ndim()).unwrap_or(i32::MAX));
        let told = Elements { dtype, ndim, shape, data, bytes: bytes.len() };
        // SAFETY: `data` has as many bytes, by malloc or by the caller's word, and overlaps no memory of ours; `listed` looked
        // at the outputs' pointer, of which i is inside.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), data.cast::<u8>(), bytes.len());
            outputs.0.add(i).write(told);
        }
    }
    Ok(())
}

/// The number that C knows a dtype by.
fn number_of(dtype: DType) -> i32 {
    DType::ALL.iter().position(|&d| d == dtype).and_then(|i| i32::try_from(i).ok()).unwrap_or(-1)
}

/// Writes what a spec says where C asks for it.
fn tell(specs: &[Spec], index: i32, to: *mut Elements, name: *mut c_char, room: usize) -> Outcome<()> {
    let Some(spec) = usize::try_from(index).ok().and_then(|i| specs.get(i)) else {
        return failure(INVALID_VALUE, format!("there is no tensor {index} of {}", specs.len()));
    };
    if to.is_null() || !to.is_aligned() {
        return failure(INVALID_VALUE, "the tensor is a null pointer, or not aligned");
    }
    if spec.sizes.len() > MAX_DIMS {
        return failure(INVALID_VALUE, format!("{:?} has {} dimensions", spec.name, spec.sizes.len()));
    }
    let text = spec.name.as_bytes();
    if !name.is_null() && text.len() >= room {
        return failure(INVALID_VALUE, format!("the name needs {} bytes, got {room}", text.len() + 1));
    }
    let mut shape = [0; MAX_DIMS];
    for (to, extent) in shape.iter_mut().zip(&spec.sizes) {
        *to = match extent {
            Extent::Fixed(n) => i64::try_from(*n).unwrap_or(i64::MAX),
            Extent::Symbol(_) => -1,
        };
    }
    let ndim = i32::try_from(spec.sizes.len()).unwrap_or(i32::MAX);
    let told = Elements { dtype: number_of(spec.dtype), ndim, shape, data: null_mut(), bytes: 0 };
    // SAFETY: `to` is not null and aligned, `name` has `room` bytes, more than the text; both are the caller's promise.
    unsafe {
        to.write(told);
        if !name.is_null() {
            std::ptr::copy_nonoverlapping(text.as_ptr(), name.cast::<u8>(), text.len());
            name.add(text.len()).write(0);
        }
    }
    Ok(())
}

fn opened(path: *const c_char) -> Outcome<usize> {
    if path.is_null() {
        return failure(INVALID_VALUE, "the path is a null pointer");
    }
    // SAFETY: not null; that it ends in a zero is the caller's promise.
    let text = unsafe { CStr::from_ptr(path) };
    let Ok(text) = text.to_str() else {
        return failure(IO, "the path is no UTF-8");
    };
    let exported = load(text)?;
    // Numbers that are no addresses of anything, and never come twice.
    let number = 0x1000 + 16 * MADE.fetch_add(1, Ordering::Relaxed);
    MODELS.lock().insert(number, Arc::new(exported));
    Ok(number)
}

fn release(tensor: *mut Elements) {
    if tensor.is_null() || !tensor.is_aligned() {
        return;
    }
    // SAFETY: the caller's tensor, whose data `lucid_infer_run` allocated or which is null, as the header says.
    unsafe {
        libc::free((*tensor).data);
        (*tensor).data = null_mut();
        (*tensor).bytes = 0;
    }
}

/// The version of the ABI.
#[unsafe(no_mangle)]
pub extern "C" fn lucid_infer_abi_version() -> u32 {
    ABI
}

/// A model from a file, or null.
#[unsafe(no_mangle)]
pub extern "C" fn lucid_infer_load(path: *const c_char) -> *mut Model {
    std::ptr::without_provenance_mut(guarded(|| opened(path)).unwrap_or(0))
}

/// Gives a model back.
#[unsafe(no_mangle)]
pub extern "C" fn lucid_infer_free(model: *mut Model) -> i32 {
    status(|| {
        if model.is_null() {
            return Ok(());
        }
        // Found first, so that it is dropped, if this is the last of it, without the lock.
        let last = found(model)?;
        let removed = MODELS.lock().remove(&model.addr());
        drop((last, removed));
        Ok(())
    })
}

/// How many tensors go in.
#[unsafe(no_mangle)]
pub extern "C" fn lucid_infer_input_count(model: *const Model) -> i32 {
    guarded(|| Ok(i32::try_from(found(model)?.inputs().len()).unwrap_or(i32::MAX))).unwrap_or(-1)
}

/// How many tensors come out.
#[unsafe(no_mangle)]
pub extern "C" fn lucid_infer_output_count(model: *const Model) -> i32 {
    guarded(|| Ok(i32::try_from(found(model)?.outputs().len()).unwrap_or(i32::MAX))).unwrap_or(-1)
}

/// What an input is.
#[unsafe(no_mangle)]
pub extern "C" fn lucid_infer_input(
    model: *const Model,
    index: i32,
    tensor: *mut Elements,
    name: *mut c_char,
    name_bytes: usize,
) -> i32 {
    status(|| tell(found(model)?.inputs(), index, tensor, name, name_bytes))
}

/// What an output is.
#[unsafe(no_mangle)]
pub extern "C" fn lucid_infer_output(
    model: *const Model,
    index: i32,
    tensor: *mut Elements,
    name: *mut c_char,
    name_bytes: usize,
) -> i32 {
    status(|| tell(found(model)?.outputs(), index, tensor, name, name_bytes))
}

/// Runs a model.
#[unsafe(no_mangle)]
pub extern "C" fn lucid_infer_run(
    model: *const Model,
    inputs: *const Elements,
    input_count: usize,
    outputs: *mut Elements,
    output_count: usize,
) -> i32 {
    status(|| run(model, (inputs, input_count), (outputs, output_count)))
}

/// Frees what `lucid_infer_run` allocated for a tensor.
#[unsafe(no_mangle)]
pub extern "C" fn lucid_infer_release(tensor: *mut Elements) {
    release(tensor);
}

/// What failed last in this thread.
#[unsafe(no_mangle)]
pub extern "C" fn lucid_infer_last_error() -> *const c_char {
    LAST.with(|last| last.borrow().as_ptr())
}
