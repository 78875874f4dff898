//! The process-wide stream that every operation uses, made on first use. Depends on the device and version modules.
//!
//! MLX binds a default stream to its thread: an array built on one thread cannot be evaluated on another, and each
//! thread that evaluates leaves an OS thread behind. One stream from `mlx_stream_new_thread_unsafe` has neither fault,
//! given that evaluation is serialised (see `eval`). Invariant: a stream handle, once published, is never freed.

use std::os::raw::c_void;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, OnceLock};

use crate::device::{self, Kind};
use crate::error::{self, check, Error, Result};
use crate::sys;

static MAIN: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static CPU: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static MAKING: Mutex<()> = Mutex::new(());
/// Why this process must not use MLX.
static FORBIDDEN: OnceLock<&'static str> = OnceLock::new();

/// Makes every first use of MLX in this process an error with this reason; without effect where MLX is in use already.
pub fn forbid(why: &'static str) {
    let _ = FORBIDDEN.set(why);
}

/// Was MLX used in this process: does its stream exist?
pub fn in_use() -> bool {
    !MAIN.load(Ordering::Acquire).is_null()
}

/// Runs something that has to come before MLX's stream exists; `None` where it does already.
pub(crate) fn before_use<R>(run: impl FnOnce() -> R) -> Option<R> {
    let _making = MAKING.lock().unwrap_or_else(|e| e.into_inner());
    (!in_use()).then(run)
}

/// An error in a process that has forbidden itself MLX and does not use it yet.
pub fn ensure_allowed() -> Result<()> {
    match FORBIDDEN.get() {
        Some(why) if !in_use() => Err(Error::Forbidden(why)),
        _ => Ok(()),
    }
}

/// The stream of the device that MLX offers.
#[inline(always)]
pub(crate) fn stream() -> Result<sys::mlx_stream> {
    let ctx = MAIN.load(Ordering::Acquire);
    if ctx.is_null() {
        return make_main();
    }
    Ok(sys::mlx_stream { ctx })
}

/// A stream on MLX's CPU, for what MLX implements only there; the main stream where that is the CPU's.
#[inline]
pub(crate) fn cpu_stream() -> Result<sys::mlx_stream> {
    let ctx = CPU.load(Ordering::Acquire);
    if ctx.is_null() {
        return make_cpu();
    }
    Ok(sys::mlx_stream { ctx })
}

/// An error in a child that was forked after MLX was used: its worker threads do not exist there.
#[inline]
pub(crate) fn ensure_not_forked() -> Result<()> {
    match FORBIDDEN.get() {
        _ if !forked() => Ok(()),
        Some(why) => Err(Error::Forbidden(why)),
        None => Err(Error::ForkedProcess),
    }
}

/// The streams that were made.
pub(crate) fn existing() -> impl Iterator<Item = sys::mlx_stream> {
    let (main, cpu) = (MAIN.load(Ordering::Acquire), CPU.load(Ordering::Acquire));
    let made = [main, if cpu == main { std::ptr::null_mut() } else { cpu }];
    made.into_iter().filter(|ctx| !ctx.is_null()).map(|ctx| sys::mlx_stream { ctx })
}

/// Asked at every drop of an array, so that it must not be a call of the system.
#[inline]
pub(crate) fn forked() -> bool {
    // SAFETY: no arguments; reads one word.
    unsafe { sys::lucid_forked() }
}

/// Waits until everything scheduled so far has been computed.
pub fn synchronize() -> Result<()> {
    ensure_not_forked()?;
    let main = stream()?;
    let cpu = CPU.load(Ordering::Acquire);
    let _waiting = crate::eval::wait_lock();
    // SAFETY: both are valid handles that are never freed; waiting changes no array.
    unsafe {
        check(sys::mlx_synchronize(main))?;
        if !cpu.is_null() && cpu != main.ctx {
            check(sys::mlx_synchronize(sys::mlx_stream { ctx: cpu }))?;
        }
    }
    Ok(())
}

#[cold]
fn make_main() -> Result<sys::mlx_stream> {
    let making = MAKING.lock().unwrap_or_else(|e| e.into_inner());
    let ctx = MAIN.load(Ordering::Acquire);
    if !ctx.is_null() {
        return Ok(sys::mlx_stream { ctx });
    }
    if let Some(why) = FORBIDDEN.get() {
        return Err(Error::Forbidden(why));
    }
    crate::version::version()?;
    // Loading MLX in the parent and first computing in a forked child is fine; the reverse is not.
    // SAFETY: no arguments.
    if unsafe { sys::lucid_note_forks() } != 0 {
        return Err(Error::Mlx("this process has no memory left to note its forks".into()));
    }
    let kind = device::kind()?;
    if kind == Kind::Cuda {
        crate::exit::outlive_driver()?;
        // SAFETY: no arguments; under the lock, before the first stream.
        check(unsafe { sys::lucid_make_scheduler() })?;
    }
    let on_cpu = kind == Kind::Cpu;
    if on_cpu {
        // What is larger than the machine's memory may be granted all the same, and ends the process when it is written.
        crate::eval::set_largest(device::host_memory().unwrap_or(usize::MAX));
        // SAFETY: no arguments; under the lock, before the first evaluation.
        unsafe { sys::lucid_check_allocations() };
    }
    let made = make_on(on_cpu)?;
    crate::exit::register()?;
    MAIN.store(made.ctx, Ordering::Release);
    drop(making);
    Ok(made)
}

#[cold]
fn make_cpu() -> Result<sys::mlx_stream> {
    let main = stream()?;
    let on_cpu = device::kind()? == Kind::Cpu;
    let _making = MAKING.lock().unwrap_or_else(|e| e.into_inner());
    let ctx = CPU.load(Ordering::Acquire);
    if !ctx.is_null() {
        return Ok(sys::mlx_stream { ctx });
    }
    let made = if on_cpu { main } else { make_on(true)? };
    CPU.store(made.ctx, Ordering::Release);
    Ok(made)
}

fn make_on(cpu: bool) -> Result<sys::mlx_stream> {
    let device = device::Handle::new(if cpu { sys::MLX_CPU } else { sys::MLX_GPU })?;
    // SAFETY: a valid device handle.
    let made = unsafe { sys::mlx_stream_new_thread_unsafe(device.raw()) };
    if made.ctx.is_null() {
        return Err(error::take());
    }
    Ok(made)
}
