//! Closures that MLX calls back into, and `compile`, which fuses what they record. Depends on the vector owners.
//! Invariant: a panic in a callback is caught before it reaches C++ and comes back as [`Error::Panic`].

use std::any::Any;
use std::marker::PhantomData;
use std::os::raw::{c_int, c_void};
use std::panic::{catch_unwind, AssertUnwindSafe};

use crate::error::{self, check, Error, Result};
use crate::vector::{self, Arrays};
use crate::{counters, eval, sys, Array};

/// A function from arrays to arrays that MLX can call.
///
/// MLX keeps compiled functions per thread, so a closure stays on the thread that made it.
pub struct Closure {
    raw: sys::mlx_closure,
    bound: PhantomData<*const ()>,
}

type Callback = dyn Fn(&[Array]) -> Result<Vec<Array>> + Send + Sync;

/// Runs a callback's body, keeping panics and errors in the thread's slot; 0 is success.
pub(crate) fn guard(body: impl FnOnce() -> Result<()>) -> c_int {
    let outcome = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| Err(Error::Panic(panic_text(&*panic))));
    match outcome {
        Ok(()) => 0,
        Err(e) => {
            error::set(&e);
            1
        }
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

unsafe extern "C" fn call(out: *mut sys::mlx_vector_array, inputs: sys::mlx_vector_array, data: *mut c_void) -> c_int {
    guard(|| {
        // SAFETY: `data` is the box made in `Closure::new`, alive until `free` is called.
        let callback = unsafe { &*data.cast::<Box<Callback>>() };
        let results = Arrays::from_owned(&callback(&vector::to_vec(inputs)?)?)?;
        // SAFETY: mlx-c passes a null handle here, reads it after a zero status and frees it in any case.
        unsafe { *out = results.into_raw() };
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn free(data: *mut c_void) {
    // SAFETY: MLX calls this once, with the box made in `Closure::new`.
    let callback = unsafe { Box::from_raw(data.cast::<Box<Callback>>()) };
    // A destructor that panics must not unwind into C++; there is nobody to tell.
    let _ = catch_unwind(AssertUnwindSafe(move || drop(callback)));
}

impl Closure {
    /// Wraps a function. It may be called at any time while the closure, or a graph it took part in, lives.
    pub fn new(f: impl Fn(&[Array]) -> Result<Vec<Array>> + Send + Sync + 'static) -> Result<Closure> {
        let boxed: Box<Box<Callback>> = Box::new(Box::new(f));
        let data = Box::into_raw(boxed).cast::<c_void>();
        // SAFETY: the callbacks match the data's type; MLX owns the data from here on and frees it through `free`.
        let raw = unsafe { sys::mlx_closure_new_func_payload(Some(call), data, Some(free)) };
        Closure::own(raw)
    }

    fn own(raw: sys::mlx_closure) -> Result<Closure> {
        if raw.ctx.is_null() {
            return Err(error::take());
        }
        Ok(Closure { raw, bound: PhantomData })
    }

    pub(crate) fn build(call: impl FnOnce(*mut sys::mlx_closure) -> c_int) -> Result<Closure> {
        let mut raw = sys::mlx_closure { ctx: std::ptr::null_mut() };
        check(call(&mut raw))?;
        Closure::own(raw)
    }

    pub(crate) fn raw(&self) -> sys::mlx_closure {
        self.raw
    }

    /// Calls the function.
    pub fn call(&self, inputs: &[&Array]) -> Result<Vec<Array>> {
        crate::stream::stream()?;
        counters::count_op();
        eval::expect_siblings();
        let inputs = Arrays::from_refs(inputs)?;
        let mut out = Arrays::new();
        // SAFETY: valid handles and a null out-parameter for MLX to fill.
        check(unsafe { sys::mlx_closure_apply(out.out(), self.raw, inputs.raw()) })?;
        out.to_vec()
    }
}

impl Drop for Closure {
    fn drop(&mut self) {
        // SAFETY: owned, freed once.
        unsafe { sys::mlx_closure_free(self.raw) };
    }
}

/// MLX's `compile`: the function, traced on its first call for each combination of shapes and dtypes (or only once per
/// number of dimensions if `shapeless`), simplified and fused. On MLX's CPU stream fusing calls a C++ compiler.
pub fn compile(f: &Closure, shapeless: bool) -> Result<Closure> {
    eval::expect_siblings();
    // SAFETY: a valid handle and a null out-parameter for MLX to fill.
    Closure::build(|out| unsafe { sys::mlx_compile(out, f.raw, shapeless) })
}

/// How far compiled functions are optimised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Not at all: the function is called as it is.
    Disabled,
    /// Traced, not simplified.
    NoSimplify,
    /// Traced and simplified, not fused.
    NoFuse,
    /// Fully.
    Enabled,
}

/// Sets how far compiled functions are optimised, for the process.
pub fn set_mode(mode: Mode) -> Result<()> {
    let mode = match mode {
        Mode::Disabled => sys::MLX_COMPILE_MODE_DISABLED,
        Mode::NoSimplify => sys::MLX_COMPILE_MODE_NO_SIMPLIFY,
        Mode::NoFuse => sys::MLX_COMPILE_MODE_NO_FUSE,
        Mode::Enabled => sys::MLX_COMPILE_MODE_ENABLED,
    };
    // SAFETY: a plain argument.
    check(unsafe { sys::mlx_set_compile_mode(mode) })
}
