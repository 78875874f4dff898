//! The crate's error type and the one place where a C status becomes a `Result`. Depends on the bindings alone.
//! Invariant: a failed call's message is taken from the thread's slot exactly once, so that no later call sees it.

use std::os::raw::c_int;

use crate::sys;

/// What can go wrong in a call into MLX.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// MLX refused the call or failed in it; its message, verbatim.
    #[error("{0}")]
    Mlx(String),
    /// MLX could not get the memory it needed; its message, verbatim.
    #[error("{0}")]
    OutOfMemory(String),
    /// The array's value was asked for, but its evaluation failed earlier.
    #[error("the array has no value: its evaluation failed ({0})")]
    NotEvaluated(String),
    /// MLX was used before the process forked; evaluating in the child would hang.
    #[error("MLX was used before this process was forked and cannot evaluate here: start the process by spawning it")]
    ForkedProcess,
    /// The process exits: what was scheduled is still computed, and nothing else.
    #[error("this process is exiting: nothing can be evaluated any more")]
    Exiting,
    /// This process said, by [`forbid`](crate::forbid), that it must not use MLX; its reason.
    #[error("{0}")]
    Forbidden(&'static str),
    /// The MLX library that was loaded is not the one this crate was built against.
    #[error("MLX {expected} is needed but {found} was loaded: install mlx=={expected}")]
    VersionMismatch {
        /// The version this crate was built against.
        expected: &'static str,
        /// The version that the loaded library states.
        found: String,
    },
    /// A slice does not fit the shape and dtype it came with, or an array is not of the type it is read as.
    #[error("{0}")]
    Mismatch(String),
    /// A callback panicked; the panic's message.
    #[error("a callback panicked: {0}")]
    Panic(String),
}

/// The crate's result type.
pub type Result<T> = std::result::Result<T, Error>;

const PANIC_PREFIX: &str = "lucid callback panicked: ";
/// The message where MLX left none: of a build without MLX that is every one.
const SILENT: &str = if cfg!(feature = "gpu") {
    "MLX failed without a message"
} else {
    "this program was built without the feature `gpu` of the crate lucid"
};
const NO_PRIMITIVE: &str = "without a primitive";

/// Turns a status into a result. Every call that returns one goes through here.
#[inline(always)]
pub(crate) fn check(status: c_int) -> Result<()> {
    if status == 0 {
        Ok(())
    } else {
        Err(take())
    }
}

/// The calling thread's pending error, which is taken out of its slot.
#[cold]
#[inline(never)]
pub(crate) fn take() -> Error {
    let mut len = 0usize;
    // SAFETY: `len` is valid for writing; the pointer is null or names `len` bytes of this thread's slot, which stays
    // untouched until `lucid_error_clear` below, after the bytes were copied.
    let message = unsafe {
        let data = sys::lucid_error_message(&mut len);
        let message = if data.is_null() {
            SILENT.to_owned()
        } else {
            String::from_utf8_lossy(std::slice::from_raw_parts(data.cast::<u8>(), len)).into_owned()
        };
        sys::lucid_error_clear();
        message
    };
    classify(message)
}

/// Records a message as the calling thread's pending error, unless one is pending already.
pub(crate) fn set(error: &Error) {
    let message = match error {
        Error::Panic(message) => format!("{PANIC_PREFIX}{message}"),
        other => other.to_string(),
    };
    // SAFETY: the pointer names `len` bytes, which are copied during the call.
    unsafe { sys::lucid_error_set(message.as_ptr().cast(), message.len()) }
}

fn classify(message: String) -> Error {
    if let Some(panic) = message.strip_prefix(PANIC_PREFIX) {
        return Error::Panic(panic.to_owned());
    }
    // The last is what a thread that gets no memory for its stack is refused with.
    let lower = message.to_ascii_lowercase();
    let memory = [
        "unable to allocate",
        "attempting to allocate",
        "out of memory",
        "outofmemory",
        "bad_alloc",
        "resource temporarily unavailable",
    ];
    if memory.iter().any(|m| lower.contains(m)) || (lower.contains("malloc") && lower.contains("fail")) {
        Error::OutOfMemory(message)
    } else if lower.contains(NO_PRIMITIVE) {
        Error::NotEvaluated(message)
    } else {
        Error::Mlx(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_kept_verbatim_and_taken_once() {
        set(&Error::Mlx("100 %s %n %d of it".into()));
        set(&Error::Mlx("the second".into()));
        assert_eq!(take(), Error::Mlx("100 %s %n %d of it".into()));
        assert_eq!(take(), Error::Mlx("MLX failed without a message".into()));
    }

    #[test]
    fn kinds_are_told_from_messages() {
        assert!(matches!(classify("[malloc] Unable to allocate 8 bytes.".into()), Error::OutOfMemory(_)));
        assert!(matches!(classify("std::bad_alloc".into()), Error::OutOfMemory(_)));
        assert!(matches!(classify(format!("{PANIC_PREFIX}ouch")), Error::Panic(m) if m == "ouch"));
        assert!(matches!(classify("[matmul] shapes".into()), Error::Mlx(_)));
    }
}
