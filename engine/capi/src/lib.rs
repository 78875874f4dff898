//! Lightning Core's C API, as `include/lightning_core.h` declares it. What it computes with and waits for is the engine;
//! what C hands over is checked before it is used. Nothing unwinds into C.

use parking_lot::Mutex;
use std::alloc::Layout;
use std::collections::BTreeMap;
use std::ffi::{c_char, c_void, CStr};
use std::sync::atomic::{AtomicI32, Ordering};

const SUCCESS: i32 = 0;
const INVALID_VALUE: i32 = 1;
const INVALID_POINTER: i32 = 2;
const OUT_OF_MEMORY: i32 = 3;
const NOT_AVAILABLE: i32 = 4;
const UNKNOWN: i32 = 5;

const CPU: i32 = 0;
const METAL: i32 = 1;
const CUDA: i32 = 2;

const SYNC_AUTO: i32 = 0;
const SYNC_NEVER: i32 = 2;

const ALIGNMENT: usize = 64;

/// The lengths of what `lcMalloc` gave, by address.
static MEMORY: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());
static POLICY: AtomicI32 = AtomicI32::new(SYNC_AUTO);

/// `lcBackendCapabilities`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Capabilities {
    backend: i32,
    built: i32,
    available: i32,
    compute: i32,
    memory: i32,
    sync: i32,
    profiling: i32,
    trace: i32,
    sync_policy: i32,
    memory_model: i32,
}

/// `lcBackendInterfaceContract`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Contract {
    backend: i32,
    version: u32,
    compute: u32,
    memory: u32,
    sync: u32,
    profiler: u32,
}

/// The result of `work`, or `otherwise` where it panics: unwinding into C is undefined.
fn guarded<T>(otherwise: T, work: impl FnOnce() -> T + std::panic::UnwindSafe) -> T {
    std::panic::catch_unwind(work).unwrap_or(otherwise)
}

/// The machine's GPU as a backend, or the CPU where it has none.
fn active() -> i32 {
    match lucid::Device::Gpu.name() {
        "metal" => METAL,
        "cuda" => CUDA,
        _ => CPU,
    }
}

fn is_backend(backend: i32) -> bool {
    matches!(backend, CPU | METAL | CUDA)
}

fn available(backend: i32) -> bool {
    backend == CPU || backend == active()
}

/// Writes `value` where C asks for it.
fn give<T: Copy>(to: *mut T, value: T) -> i32 {
    if to.is_null() || !to.is_aligned() {
        return INVALID_VALUE;
    }
    // SAFETY: not null and aligned; that it is memory of this type is the caller's promise, as the header says.
    unsafe { to.write(value) };
    SUCCESS
}

fn text(words: &'static CStr) -> *const c_char {
    words.as_ptr()
}

/// The name of the active backend.
#[unsafe(no_mangle)]
pub extern "C" fn lcBackendName() -> *const c_char {
    guarded(text(c"cpu"), || {
        text(match active() {
            METAL => c"metal",
            CUDA => c"cuda",
            _ => c"cpu",
        })
    })
}

/// 1 where Apple's GPU is there.
#[unsafe(no_mangle)]
pub extern "C" fn lcIsMetalAvailable() -> i32 {
    guarded(0, || i32::from(active() == METAL))
}

/// 1 where an NVIDIA GPU is there.
#[unsafe(no_mangle)]
pub extern "C" fn lcIsCudaAvailable() -> i32 {
    guarded(0, || i32::from(active() == CUDA))
}

/// How many devices a backend has: one or none.
#[unsafe(no_mangle)]
pub extern "C" fn lcGetDeviceCount(backend: i32, count: *mut i32) -> i32 {
    guarded(UNKNOWN, || if is_backend(backend) { give(count, i32::from(available(backend))) } else { INVALID_VALUE })
}

fn capabilities(backend: i32) -> Capabilities {
    let gpu = backend != CPU;
    let here = i32::from(available(backend));
    Capabilities {
        backend,
        built: here,
        available: here,
        compute: 1,
        memory: i32::from(gpu),
        sync: 1,
        profiling: 1,
        trace: 1,
        sync_policy: 1,
        memory_model: i32::from(backend == CUDA),
    }
}

/// What a backend can do.
#[unsafe(no_mangle)]
pub extern "C" fn lcGetBackendCapabilities(backend: i32, to: *mut Capabilities) -> i32 {
    guarded(UNKNOWN, || if is_backend(backend) { give(to, capabilities(backend)) } else { INVALID_VALUE })
}

/// What the active backend can do.
#[unsafe(no_mangle)]
pub extern "C" fn lcGetActiveBackendCapabilities(to: *mut Capabilities) -> i32 {
    guarded(UNKNOWN, || give(to, capabilities(active())))
}

fn contract(backend: i32) -> Contract {
    // On the CPU nothing is brought anywhere or awaited; memory of an NVIDIA GPU is its own.
    let (memory, sync) = match backend {
        CPU => (4 | 8, 1 | 2),
        CUDA => (1 | 2 | 4, 1 | 2 | 4),
        _ => (1 | 2 | 4 | 8, 1 | 2 | 4),
    };
    Contract { backend, version: 1, compute: 0x1f, memory, sync, profiler: 0xf }
}

/// Which methods the interfaces of a backend have.
#[unsafe(no_mangle)]
pub extern "C" fn lcGetBackendInterfaceContract(backend: i32, to: *mut Contract) -> i32 {
    guarded(UNKNOWN, || if is_backend(backend) { give(to, contract(backend)) } else { INVALID_VALUE })
}

/// Which methods the interfaces of the active backend have.
#[unsafe(no_mangle)]
pub extern "C" fn lcGetActiveBackendInterfaceContract(to: *mut Contract) -> i32 {
    guarded(UNKNOWN, || give(to, contract(active())))
}

/// The backend for inference: the active one.
#[unsafe(no_mangle)]
pub extern "C" fn lcGetPreferredDeviceForInference() -> i32 {
    guarded(CPU, active)
}

/// The backend for training: the active one.
#[unsafe(no_mangle)]
pub extern "C" fn lcGetPreferredDeviceForTraining() -> i32 {
    guarded(CPU, active)
}

/// Where the active backend's memory is.
#[unsafe(no_mangle)]
pub extern "C" fn lcGetMemoryModel() -> i32 {
    guarded(0, || i32::from(active() == CUDA))
}

/// A memory model's name.
#[unsafe(no_mangle)]
pub extern "C" fn lcGetMemoryModelName(model: i32) -> *const c_char {
    text(match model {
        0 => c"host-managed-compat",
        1 => c"native-device",
        _ => c"unknown",
    })
}

/// The layout of `bytes` bytes; at least one, so that each address is one allocation's.
fn layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes.max(1), ALIGNMENT).ok()
}

/// Memory that the CPU and the engine see, zeroed.
#[unsafe(no_mangle)]
pub extern "C" fn lcMalloc(pointer: *mut *mut c_void, bytes: usize) -> i32 {
    guarded(UNKNOWN, || {
        if pointer.is_null() {
            return INVALID_VALUE;
        }
        let Some(layout) = layout(bytes) else {
            return OUT_OF_MEMORY;
        };
        // SAFETY: the layout's size is not 0.
        let memory = unsafe { std::alloc::alloc_zeroed(layout) };
        if memory.is_null() {
            return OUT_OF_MEMORY;
        }
        MEMORY.lock().insert(memory as usize, bytes);
        let status = give(pointer, memory.cast::<c_void>());
        if status != SUCCESS {
            lcFree(memory.cast());
        }
        status
    })
}

/// Gives memory back.
#[unsafe(no_mangle)]
pub extern "C" fn lcFree(pointer: *mut c_void) -> i32 {
    guarded(UNKNOWN, || {
        if pointer.is_null() {
            return SUCCESS;
        }
        let Some(bytes) = MEMORY.lock().remove(&(pointer as usize)) else {
            return INVALID_POINTER;
        };
        let Some(layout) = layout(bytes) else {
            return UNKNOWN;
        };
        // SAFETY: the registry had the address, so `lcMalloc` gave it with this layout and nobody freed it since.
        unsafe { std::alloc::dealloc(pointer.cast(), layout) };
        SUCCESS
    })
}

/// Is the range within one allocation of `lcMalloc`?
fn within(memory: &BTreeMap<usize, usize>, address: usize, bytes: usize) -> bool {
    memory.range(..=address).next_back().is_some_and(|(start, length)| {
        let offset = address - start;
        offset <= *length && bytes <= length - offset
    })
}

/// Copies bytes; the ranges may overlap.
#[unsafe(no_mangle)]
pub extern "C" fn lcMemcpy(to: *mut c_void, from: *const c_void, bytes: usize, kind: i32) -> i32 {
    guarded(UNKNOWN, || {
        if !(0..=3).contains(&kind) {
            return INVALID_VALUE;
        }
        if bytes == 0 {
            return SUCCESS;
        }
        if to.is_null() || from.is_null() || bytes > isize::MAX as usize {
            return INVALID_VALUE;
        }
        // Held over the copy, so that nobody frees what is read or written.
        let memory = MEMORY.lock();
        let (to_device, from_device) = (kind == 1 || kind == 3, kind == 2 || kind == 3);
        if (to_device && !within(&memory, to as usize, bytes))
            || (from_device && !within(&memory, from as usize, bytes))
        {
            return INVALID_POINTER;
        }
        // SAFETY: a device's range is within one live allocation; for a host's the caller answers, as the header says.
        unsafe { std::ptr::copy(from.cast::<u8>(), to.cast::<u8>(), bytes) };
        SUCCESS
    })
}

/// Waits until the engine has done all that was started.
#[unsafe(no_mangle)]
pub extern "C" fn lcDeviceSynchronize() -> i32 {
    guarded(UNKNOWN, || if mlx_ffi::synchronize().is_ok() { SUCCESS } else { NOT_AVAILABLE })
}

fn is_policy(policy: i32) -> bool {
    (SYNC_AUTO..=SYNC_NEVER).contains(&policy)
}

/// Sets the policy that `lcApplyDefaultSyncPolicy` follows.
#[unsafe(no_mangle)]
pub extern "C" fn lcSetDefaultSyncPolicy(policy: i32) -> i32 {
    if !is_policy(policy) {
        return INVALID_VALUE;
    }
    POLICY.store(policy, Ordering::Relaxed);
    SUCCESS
}

/// The policy that is set.
#[unsafe(no_mangle)]
pub extern "C" fn lcGetDefaultSyncPolicy() -> i32 {
    POLICY.load(Ordering::Relaxed)
}

/// Waits as a policy says.
#[unsafe(no_mangle)]
pub extern "C" fn lcApplySyncPolicy(policy: i32) -> i32 {
    match policy {
        SYNC_NEVER => SUCCESS,
        _ if is_policy(policy) => lcDeviceSynchronize(),
        _ => INVALID_VALUE,
    }
}

/// Waits as the policy that is set says.
#[unsafe(no_mangle)]
pub extern "C" fn lcApplyDefaultSyncPolicy() -> i32 {
    lcApplySyncPolicy(lcGetDefaultSyncPolicy())
}

/// An error's meaning.
#[unsafe(no_mangle)]
pub extern "C" fn lcGetErrorString(error: i32) -> *const c_char {
    text(match error {
        SUCCESS => c"success",
        INVALID_VALUE => c"an argument is not one of those allowed, or a pointer is null",
        INVALID_POINTER => c"memory that lcMalloc did not give, that was freed, or a range beyond its end",
        OUT_OF_MEMORY => c"out of memory",
        NOT_AVAILABLE => c"the backend is not on this machine",
        UNKNOWN => c"an error inside the library",
        _ => c"no error of this number",
    })
}
