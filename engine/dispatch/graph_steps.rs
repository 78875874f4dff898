//! Steps of a graph, which the tape sees nothing of: primitives, and fused kernels.

use super::{arrays, cpu_array, execute, of_cpu_array, transfer, Meta, Prim, Storage, Wrapped};
use crate::meta::MetaBackend;
use crate::ops::OpRow;
use crate::shape::Layout;
use crate::{profile, DType, Device, Result, Tensor};
use lucid_cpu::CpuBackend;
use lucid_ir::fused::{ElementOp, FusedKernel, Instruction, Operand};
use lucid_ir::ops::transfer::TransferOp;
use lucid_mlx::GpuBackend;
use smallvec::SmallVec;

/// Runs a primitive of a graph on arrays of one device; the tape sees nothing of it. `donated` as in [`execute`].
pub(crate) fn run(prim: &Prim, inputs: &[&Tensor], meta: &Meta, device: Device, donated: bool) -> Result<Storage> {
    crate::determinism::check(|| prim.schema(), device)?;
    let begun = profile::begin();
    let storage = match prim {
        Prim::Transfer(TransferOp::Move { device }) => transfer(inputs[0], *device)?,
        _ => with_backend!(device, execute(prim, inputs, meta, donated))?,
    };
    profile::end(begun, || prim.schema(), inputs.iter().copied(), &meta.shape);
    Ok(storage)
}

/// May an element-wise op of these dtypes be an instruction of a fused kernel there?
pub(crate) fn fuses(device: Device, op: &ElementOp, inputs: &[DType], out: DType) -> bool {
    fn ask<B: Wrapped>(op: &ElementOp, inputs: &[DType], out: DType) -> bool {
        B::fuses(op, inputs, out)
    }
    with_backend!(device, ask(op, inputs, out))
}

/// The outputs of a fused kernel; nothing where its ops have to be run one by one.
pub(crate) fn run_fused(kernel: &FusedKernel, inputs: &[&Tensor], device: Device) -> Result<Option<Vec<Storage>>> {
    fn run<B: Wrapped>(kernel: &FusedKernel, inputs: &[&Tensor]) -> Result<Option<Vec<Storage>>> {
        let x: SmallVec<[&B::Array; 4]> = arrays::<B>("fused", inputs)?;
        Ok(B::fused(kernel, &x)?.map(|made| made.into_iter().map(B::wrap).collect()))
    }
    let begun = profile::begin();
    let made = with_backend!(device, run(kernel, inputs))?;
    profile::end_other(begun, "fused");
    Ok(made)
}

/// Elements from which a pass less over memory is worth what a fused kernel takes to set up.
const MANY: usize = 1 << 12;

/// Element-wise ops over float32 tensors of one shape in one pass, which the tape sees nothing of; nothing where something
/// follows what is computed, or where they are better run one by one. Tensors of one element are numbers for all.
pub(crate) fn in_one_pass(inputs: &[&Tensor], ops: &[(ElementOp, &[Operand])]) -> Result<Option<Tensor>> {
    let Some(first) = inputs.first().filter(|x| x.numel() >= MANY) else { return Ok(None) };
    let layout = first.layout();
    let fits = |x: &&Tensor| {
        let same = x.numel() == 1 || x.shape() == first.shape() && x.layout().is_contiguous();
        same && x.dtype() == DType::F32 && !crate::autograd::is_followed(x) && cpu_array(x).is_some()
    };
    if crate::graph::is_recording() || !inputs.iter().all(fits) {
        return Ok(None);
    }
    let instructions: Vec<Instruction> =
        ops.iter().map(|(op, args)| Instruction { op: op.clone(), args: (*args).into(), dtype: DType::F32 }).collect();
    let last = instructions.len().saturating_sub(1) as u16;
    let dtypes = inputs.iter().map(|_| DType::F32).collect();
    let layout = Layout { offset: 0, ..layout.clone() };
    let kernel = FusedKernel::new(&layout, dtypes, instructions, [last].into());
    let made = run_fused(&kernel, inputs, Device::Cpu)?;
    Ok(made.and_then(|made| made.into_iter().next()).map(Tensor::from_storage))
}

/// The gradient through `normalize_affine` from a gradient, the input and the weight, in one pass; nothing where the device
/// has none.
pub(crate) fn norm_gradients(inputs: &[&Tensor; 3], dims: usize, eps: f64) -> Result<Option<[Tensor; 3]>> {
    let [Some(g), Some(x), Some(w)] = inputs.map(cpu_array) else { return Ok(None) };
    let begun = profile::begin();
    let made = lucid_cpu::affine_gradients(g, x, w, dims, eps)?;
    profile::end_other(begun, "normalize_affine_gradient");
    Ok(Some(made.map(of_cpu_array)))
}
