//! Arrays that travel between processes. Depends on `convert` and mlx-ffi's groups.
//!
//! Invariant: unlike other families these compute at once: another process waits for it.

use super::kernel_error::Made;
use super::value::Value;
use super::{convert, lazy, GpuArray};
use crate::dtype::DType;
use crate::Result;
use lucid_ir::Meta;
use mlx_ffi::{Array, Dtype};

fn sizes(shape: &[usize]) -> Made<convert::Ints> {
    convert::countable(shape)?;
    Ok(shape.iter().map(|&n| n as i32).collect())
}

/// Sets MLX up, which waits for all of its streams: before there is one that waits for another process.
pub fn prepare() {
    super::prepare();
}

/// What a collective makes of an array. Evaluates.
///
/// # Errors
/// What the collective reports.
pub fn communicate(
    op: &'static str,
    x: &GpuArray,
    out: &Meta,
    collective: impl FnOnce(&Array) -> mlx_ffi::Result<Array>,
) -> Result<GpuArray> {
    let made = || -> Made<GpuArray> {
        let logical = x.value()?.logical()?.into_owned();
        let made = collective(&logical)?;
        lazy::settle();
        GpuArray::new(Value::plain(made), &out.shape, out.dtype)
    };
    made().map_err(|e| e.of(op))
}

/// An array that another process sends.
///
/// # Errors
/// What receiving it reports.
pub fn receive(
    op: &'static str,
    out: &Meta,
    collective: impl FnOnce(&[i32], Dtype) -> mlx_ffi::Result<Array>,
) -> Result<GpuArray> {
    let made = || -> Made<GpuArray> {
        let made = collective(&sizes(&out.shape)?, convert::dtype(out.dtype)?)?;
        GpuArray::new(Value::plain(made), &out.shape, out.dtype)
    };
    made().map_err(|e| e.of(op))
}

/// What a collective makes of float64 elements, which the GPU device has not, and MLX's CPU stream has.
///
/// # Errors
/// What the collective reports.
pub fn communicate_f64(
    op: &'static str,
    bytes: &[u8],
    collective: impl FnOnce(&Array) -> mlx_ffi::Result<Array>,
) -> Result<Vec<u8>> {
    let made = || -> Made<Vec<u8>> {
        let n = sizes(&[bytes.len() / DType::F64.size()])?;
        let x = Array::from_bytes(bytes, &n, Dtype::Float64)?;
        Ok(collective(&x)?.read(<[u8]>::to_vec)?)
    };
    made().map_err(|e| e.of(op))
}
