//! The CPU device's kernels on MLX's CPU stream: one node of the graph for a whole op, where MLX's own are several times slower,
//! convolutions and pools above all, for which it copies every window of an image.
//!
//! Depends on the CPU backend and mlx-ffi. A node reads and writes MLX's memory and waits for nothing. Metal and CUDA have
//! no such nodes. Invariant: the primitives that a kernel stands for stay beside it, as its reference and for all other
//! devices.

use super::array::GpuArray;
use super::convert::{self, ints};
use super::emulator;
use super::kernel_error::Made;
use super::{lower, Value};
use crate::{DType, Error, Result};
use lucid_cpu::{CpuArray, CpuBackend};
use lucid_ir::backend::Backend;
use lucid_ir::Meta;
use mlx_ffi::device::{self, Kind};
use mlx_ffi::host::{self, Function};
use mlx_ffi::{Array, Dtype};
use smallvec::SmallVec;
use std::cell::Cell;
use std::ffi::CStr;

thread_local! {
    static ON: Cell<bool> = const { Cell::new(true) };
}

/// Turns the CPU device's kernels on MLX's CPU stream on or off for what this thread records, for comparing them with MLX's own.
pub fn set_hosting(on: bool) {
    // A thread that is ending records nothing.
    let _ = ON.try_with(|o| o.set(on));
}

/// Does the CPU device's kernel compute on elements of this dtype?
pub fn takes(dtype: DType) -> bool {
    let floating = matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
    let on = || ON.try_with(Cell::get).unwrap_or(false);
    // An emulator stands for a GPU, which has no such kernels.
    let emulated = || emulator::language().is_some();
    floating && lower::is_on() && on() && !emulated() && device::kind().is_ok_and(|kind| kind == Kind::Cpu)
}

/// Elements from which a sum is long: MLX's CPU stream adds one after the other, and what is small beside the sum is lost.
const LONG: usize = 1024;

/// Is this a sum of so many elements that MLX's CPU stream is not to add them up?
pub(super) fn takes_sum(terms: usize, dtype: DType) -> bool {
    terms >= LONG && (takes(dtype) || dtype == DType::C64 && takes(DType::F32))
}

/// What the kernel makes of the inputs, under this name in graphs.
pub(super) fn run(
    name: &'static CStr,
    inputs: &[&GpuArray],
    out: &Meta,
    kernel: impl Fn(&[&CpuArray], &Meta) -> Result<CpuArray> + Send + Sync + 'static,
) -> Made<GpuArray> {
    let held = inputs.iter().map(|x| x.value()).collect::<Made<SmallVec<[_; 4]>>>()?;
    let arrays = held.iter().map(|v| v.logical()).collect::<Made<SmallVec<[_; 4]>>>()?;
    let dtypes = inputs.iter().map(|x| x.element()).collect();
    let refs: SmallVec<[&Array; 4]> = arrays.iter().map(|a| &**a).collect();
    let to = (&*ints(&out.shape)?, convert::dtype(out.dtype)?);
    let meta = out.clone();
    let made = nodes(name, &refs, dtypes, &[to], move |x| Ok(vec![kernel(x, &meta)?]))?;
    let array = made.into_iter().next().ok_or_else(|| Error::backend("hosted", "a node without an output"))?;
    GpuArray::new(Value::plain(array), &out.shape, out.dtype)
}

/// What the kernel makes of arrays with these dtypes: one array for each shape and dtype.
pub(super) fn nodes(
    name: &'static CStr,
    inputs: &[&Array],
    dtypes: SmallVec<[DType; 4]>,
    outputs: &[(&[i32], Dtype)],
    kernel: impl Fn(&[&CpuArray]) -> Result<Vec<CpuArray>> + Send + Sync + 'static,
) -> Made<Vec<Array>> {
    let function: Function = Box::new(move |inputs, put| {
        let computed = || -> Result<Vec<CpuArray>> {
            let each = inputs.into_iter().zip(&dtypes).map(|(input, &dtype)| CpuArray::input(input, dtype));
            let each = each.collect::<Result<Vec<CpuArray>>>()?;
            kernel(&each.iter().collect::<Vec<_>>())
        };
        for (i, made) in computed().map_err(|e| e.to_string())?.iter().enumerate() {
            let mut taken = Ok(());
            CpuBackend::with_bytes(made, &mut |bytes| taken = put(i, bytes)).map_err(|e| e.to_string())?;
            taken.map_err(|e| e.to_string())?;
        }
        Ok(())
    });
    Ok(host::node(name, function, inputs, outputs)?)
}
