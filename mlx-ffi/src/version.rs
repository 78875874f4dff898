//! The version of the MLX library that is loaded, against the one this crate was built for. Depends on the bindings.
//! Invariant: the process-wide stream, and so any computation, exists only after this check passed.

use crate::error::{check, Error, Result};
use crate::sys;
use crate::vector::Text;

/// The MLX version this crate is built against.
pub const MLX_VERSION: &str = "0.32.2";

/// The version that the loaded MLX library states; an error if it is not [`MLX_VERSION`].
pub fn version() -> Result<String> {
    let mut text = Text::new();
    // SAFETY: the out-parameter is an owned string handle (null, which MLX fills).
    check(unsafe { sys::mlx_version(text.out()) })?;
    let found = text.to_string();
    // A wheel may append a local label or a development suffix to the release it is built from.
    let matches = found.strip_prefix(MLX_VERSION).is_some_and(|rest| rest.is_empty() || rest.starts_with('+'));
    if matches {
        Ok(found)
    } else {
        Err(Error::VersionMismatch { expected: MLX_VERSION, found })
    }
}
