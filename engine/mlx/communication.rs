//! Arrays that travel between processes. Depends on `convert` and mlx-ffi's groups.
//!
//! Invariant: what runs here computes at once, on the thread of a group: another process waits for it.

use super::kernel_error::{Fault, Made};
use super::value::Value;
use super::{convert, lazy, GpuArray};
use crate::dtype::DType;
use crate::Result;
use lucid_cpu::{CpuArray, CpuBackend};
use lucid_ir::backend::{Array as _, Backend};
use lucid_ir::Meta;
use mlx_ffi::distributed::Travelling;
use mlx_ffi::host::{self, Function};
use mlx_ffi::{Array, Dtype};
use std::ffi::CStr;

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
        lazy::settle(false);
        GpuArray::new(Value::plain(made), &out.shape, out.dtype)
    };
    made().map_err(|e| e.of(op))
}

/// An array's elements in row-major order.
///
/// # Errors
/// What MLX reports.
pub fn array_of(op: &'static str, x: &GpuArray) -> Result<Array> {
    let made = || -> Made<Array> { Ok(x.value()?.logical()?.into_owned()) };
    made().map_err(|e| e.of(op))
}

/// Begins a collective.
///
/// # Errors
/// What it reports.
pub fn begun(op: &'static str, collective: impl FnOnce() -> mlx_ffi::Result<Travelling>) -> Result<Travelling> {
    collective().map_err(|e| Fault::from(e).of(op))
}

/// Waits for what a collective makes of an array.
///
/// # Errors
/// What the collective reports.
pub fn arrived(op: &'static str, travelling: Travelling, out: &Meta) -> Result<GpuArray> {
    let made = || -> Made<GpuArray> {
        let made = travelling.wait()?;
        lazy::settle(false);
        GpuArray::new(Value::plain(made), &out.shape, out.dtype)
    };
    made().map_err(|e| e.of(op))
}

/// The elements that an array shows now, in a storage of their own: what is written to it later is not seen.
///
/// # Errors
/// What MLX reports.
pub fn snapshot(op: &'static str, x: &GpuArray) -> Result<GpuArray> {
    let made = || -> Made<GpuArray> {
        let logical = x.value()?.logical()?.into_owned();
        GpuArray::new(Value::plain(logical), &x.layout().shape, x.dtype())
    };
    made().map_err(|e| e.of(op))
}

/// A lazy array of elements that `arrived` gives, on the host, when it is evaluated: a node of this name. `arrived` must hold no arrays of MLX's.
///
/// # Errors
/// What recording it reports; what `arrived` reports, evaluating it does.
pub fn arriving(
    op: &'static str,
    name: &'static CStr,
    out: &Meta,
    arrived: impl Fn() -> Result<CpuArray> + Send + Sync + 'static,
) -> Result<GpuArray> {
    let made = || -> Made<GpuArray> {
        let function: Function = Box::new(move |_, put| {
            let told = |e: Box<crate::Error>| format!("{}{e}", mlx_ffi::distributed::MARK);
            let mut taken = Ok(());
            let mut hand = |bytes: &[u8]| taken = put(0, bytes);
            CpuBackend::with_bytes(&arrived().map_err(told)?, &mut hand).map_err(told)?;
            taken.map_err(|e| e.to_string())
        });
        let array = host::source(name, function, &sizes(&out.shape)?, convert::dtype(out.dtype)?)?;
        GpuArray::new(Value::plain(array), &out.shape, out.dtype)
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
