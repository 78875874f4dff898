//! MLX's allocator: what it holds, its limits, its cache. All sizes in bytes, of the device that MLX offers. Depends on
//! the bindings. Invariant: none.

use crate::error::{check, Result};
use crate::sys;

macro_rules! readings {
    ($($(#[$doc:meta])* $name:ident = $c:ident;)*) => {$(
        $(#[$doc])*
        pub fn $name() -> Result<usize> {
            let mut bytes = 0usize;
            // SAFETY: a valid out-parameter.
            check(unsafe { sys::$c(&mut bytes) })?;
            Ok(bytes)
        }
    )*};
}

readings! {
    /// Memory in use by arrays, the cache apart.
    active = mlx_get_active_memory;
    /// The most that was in use since the start or the last [`reset_peak`].
    peak = mlx_get_peak_memory;
    /// Freed memory kept for reuse.
    cache = mlx_get_cache_memory;
    /// The limit beyond which allocation waits for running work, or fails.
    limit = mlx_get_memory_limit;
}

/// Sets the limit of memory in use; returns the previous one.
pub fn set_limit(bytes: usize) -> Result<usize> {
    set(sys::mlx_set_memory_limit, bytes)
}

/// Sets how much freed memory is kept for reuse; returns the previous limit. MLX's default on its CPU stream is 32 MB,
/// which makes every larger temporary a fresh allocation.
pub fn set_cache_limit(bytes: usize) -> Result<usize> {
    set(sys::mlx_set_cache_limit, bytes)
}

/// Sets how much memory is kept resident (Metal only); returns the previous limit.
pub fn set_wired_limit(bytes: usize) -> Result<usize> {
    set(sys::mlx_set_wired_limit, bytes)
}

fn set(call: unsafe extern "C" fn(*mut usize, usize) -> std::os::raw::c_int, bytes: usize) -> Result<usize> {
    let mut previous = 0usize;
    // SAFETY: the functions passed write one size.
    check(unsafe { call(&mut previous, bytes) })?;
    Ok(previous)
}

/// Gives the cache back to the system.
pub fn clear_cache() -> Result<()> {
    // SAFETY: no arguments.
    check(unsafe { sys::mlx_clear_cache() })
}

/// Starts [`peak`] anew.
pub fn reset_peak() -> Result<()> {
    // SAFETY: no arguments.
    check(unsafe { sys::mlx_reset_peak_memory() })
}
