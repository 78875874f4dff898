//! Owners of mlx-c's vectors and strings. Depends on the array type. Invariant: a handle made here is freed here, once.

use std::ffi::CStr;
use std::fmt;

use smallvec::SmallVec;

use crate::error::{self, check, Result};
use crate::{sys, Array};

/// An `mlx_vector_array`.
pub(crate) struct Arrays(sys::mlx_vector_array);

impl Arrays {
    /// A null handle, for MLX to fill.
    pub(crate) fn new() -> Self {
        Arrays(sys::mlx_vector_array { ctx: std::ptr::null_mut() })
    }

    /// A vector that holds copies of the handles.
    pub(crate) fn from_refs(arrays: &[&Array]) -> Result<Self> {
        let raw: SmallVec<[sys::mlx_array; 8]> = arrays.iter().map(|a| a.raw()).collect();
        Self::from_raw_slice(&raw)
    }

    /// A vector that holds copies of the handles.
    pub(crate) fn from_owned(arrays: &[Array]) -> Result<Self> {
        let raw: SmallVec<[sys::mlx_array; 8]> = arrays.iter().map(Array::raw).collect();
        Self::from_raw_slice(&raw)
    }

    fn from_raw_slice(raw: &[sys::mlx_array]) -> Result<Self> {
        // SAFETY: the pointer names `len` valid handles; MLX copies them.
        let vector = unsafe { sys::mlx_vector_array_new_data(raw.as_ptr(), raw.len()) };
        if vector.ctx.is_null() {
            return Err(error::take());
        }
        Ok(Arrays(vector))
    }

    pub(crate) fn raw(&self) -> sys::mlx_vector_array {
        self.0
    }

    pub(crate) fn out(&mut self) -> *mut sys::mlx_vector_array {
        &mut self.0
    }

    /// Gives the handle away, to a callee that frees it.
    pub(crate) fn into_raw(self) -> sys::mlx_vector_array {
        let raw = self.0;
        std::mem::forget(self);
        raw
    }

    /// The elements, each with a handle of its own.
    pub(crate) fn to_vec(&self) -> Result<Vec<Array>> {
        to_vec(self.0)
    }
}

/// The elements of a borrowed vector, each with a handle of its own.
pub(crate) fn to_vec(vector: sys::mlx_vector_array) -> Result<Vec<Array>> {
    if vector.ctx.is_null() {
        return Ok(Vec::new());
    }
    // SAFETY: the handle is valid for the duration of this function, as its owner is borrowed or a callback's argument.
    let len = unsafe { sys::mlx_vector_array_size(vector) };
    (0..len)
        // SAFETY: the index is in range and the out-parameter a null handle, which MLX fills.
        .map(|i| Array::build(|out| unsafe { sys::mlx_vector_array_get(out, vector, i) }))
        .collect()
}

impl Drop for Arrays {
    fn drop(&mut self) {
        if !self.0.ctx.is_null() {
            let _guard = crate::eval::drop_guard();
            // SAFETY: owned, freed once.
            unsafe { sys::mlx_vector_array_free(self.0) };
        }
    }
}

/// An `mlx_string`.
pub(crate) struct Text(sys::mlx_string);

impl Text {
    /// A null handle, for MLX to fill.
    pub(crate) fn new() -> Self {
        Text(sys::mlx_string { ctx: std::ptr::null_mut() })
    }

    pub(crate) fn out(&mut self) -> *mut sys::mlx_string {
        &mut self.0
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.ctx.is_null() {
            return Ok(());
        }
        // SAFETY: the handle is valid; its data is a terminated string that lives as long as the handle.
        let text = unsafe { CStr::from_ptr(sys::mlx_string_data(self.0)) };
        f.write_str(&text.to_string_lossy())
    }
}

impl Drop for Text {
    fn drop(&mut self) {
        if !self.0.ctx.is_null() {
            // SAFETY: owned, freed once.
            unsafe { sys::mlx_string_free(self.0) };
        }
    }
}

/// An `mlx_vector_string`.
pub(crate) struct Texts(sys::mlx_vector_string);

impl Texts {
    pub(crate) fn new(texts: &[&str]) -> Result<Self> {
        // SAFETY: no arguments.
        let vector = Texts(unsafe { sys::mlx_vector_string_new() });
        for text in texts {
            let text = crate::call::c_text(text)?;
            // SAFETY: a valid handle and a terminated string, which is copied.
            check(unsafe { sys::mlx_vector_string_append_value(vector.0, text.as_ptr()) })?;
        }
        Ok(vector)
    }

    pub(crate) fn raw(&self) -> sys::mlx_vector_string {
        self.0
    }
}

impl Drop for Texts {
    fn drop(&mut self) {
        if !self.0.ctx.is_null() {
            // SAFETY: owned, freed once.
            unsafe { sys::mlx_vector_string_free(self.0) };
        }
    }
}
