//! Steps of a graph, which the tape sees nothing of: primitives, and fused kernels.

use super::{arrays, communication, cpu_array, execute, of_cpu_array, transfer, Meta, Prim, Storage, Wrapped};
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
        Prim::Communication(op) => communication::run(op, inputs, meta)?,
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
    let begun = profile::begin();
    let made = match (inputs.map(cpu_array), inputs.map(gpu_array)) {
        ([Some(g), Some(x), Some(w)], _) => Some(lucid_cpu::affine_gradients(g, x, w, dims, eps)?.map(of_cpu_array)),
        (_, [Some(g), Some(x), Some(w)]) => lucid_mlx::affine_gradients(g, x, w, dims, eps)?.map(|m| m.map(from_gpu)),
        _ => None,
    };
    if made.is_some() {
        profile::end_other(begun, "normalize_affine_gradient");
    }
    Ok(made)
}

fn gpu_array(x: &Tensor) -> Option<&lucid_mlx::GpuArray> {
    GpuBackend::unwrap(x.storage())
}

/// A tensor of the GPU's array.
fn from_gpu(array: lucid_mlx::GpuArray) -> Tensor {
    Tensor::from_storage(GpuBackend::wrap(array))
}

/// The means and variances of channels (N, C, …), each (C), in one pass, which the tape sees nothing of; nothing where the
/// device has none.
pub(crate) fn channel_moments(x: &Tensor) -> Result<Option<[Tensor; 2]>> {
    let Some(x) = gpu_array(x) else { return Ok(None) };
    let begun = profile::begin();
    let made = lucid_mlx::channel_moments(x)?.map(|made| made.map(from_gpu));
    if made.is_some() {
        profile::end_other(begun, "channel_moments");
    }
    Ok(made)
}

/// The gradient through attention from a gradient, query, key, value and perhaps a mask, to those of the three that are asked
/// for, which the tape sees nothing of; nothing where the device has no such kernels.
pub(crate) fn attention_gradients(
    inputs: &[&Tensor],
    causal: bool,
    scale: f64,
    asked: [bool; 3],
) -> Result<Option<[Option<Tensor>; 3]>> {
    let arrays: Option<SmallVec<[&lucid_mlx::GpuArray; 5]>> = inputs.iter().map(|x| gpu_array(x)).collect();
    let Some([g, q, k, v, rest @ ..]) = arrays.as_deref() else { return Ok(None) };
    let begun = profile::begin();
    let made = lucid_mlx::attention_gradients(g, [q, k, v], rest.first().copied(), causal, scale, asked)?;
    if made.is_some() {
        profile::end_other(begun, "scaled_dot_product_attention_gradient");
    }
    let Some(made) = made else { return Ok(None) };
    let [to_query, to_key, to_value] = made.map(|m| m.map(from_gpu));
    let to_key = to_key.map(|t| t.transpose(-2, -1)).transpose()?;
    Ok(Some([to_query, to_key, to_value]))
}

/// Has the GPU device kernels of the engine's own?
pub(crate) fn runs_custom_kernels() -> bool {
    lucid_mlx::runs_custom_kernels()
}

/// A matrix and its bias for [`row_products`].
pub(crate) struct RowMatrix<'a> {
    pub weight: &'a Tensor,
    /// Scales, biases, group and bits of packed words.
    pub packed: Option<(&'a Tensor, &'a Tensor, usize, usize)>,
    pub bias: Option<&'a Tensor>,
}

/// What follows products of rows: see [`row_products`].
pub(crate) enum After<'a> {
    /// Nothing, or a sum with this.
    Kept(Option<&'a Tensor>),
    Gated(lucid_mlx::Gate),
    /// Heads of this many elements, turned by cosines and sines.
    Rotated(usize, [&'a Tensor; 2]),
}

/// Products of a few rows (M, K) with matrices, the norm before and what follows in one launch, which the tape sees nothing
/// of; nothing where the device has no such kernel.
pub(crate) fn row_products(
    x: &Tensor,
    norm: Option<(&Tensor, f64)>,
    matrices: &[RowMatrix<'_>],
    after: &After<'_>,
) -> Result<Option<SmallVec<[Tensor; 3]>>> {
    let Some(x) = gpu_array(x) else { return Ok(None) };
    let norm = match norm {
        None => None,
        Some((weight, eps)) => match gpu_array(weight) {
            None => return Ok(None),
            Some(weight) => Some((weight, eps)),
        },
    };
    let mut own: SmallVec<[lucid_mlx::RowMatrix<'_>; 3]> = SmallVec::new();
    for m in matrices {
        let bias = m.bias.map(gpu_array);
        let packed = m.packed.map(|(s, b, group, bits)| Some((gpu_array(s)?, gpu_array(b)?, group, bits)));
        let (Some(weight), false, false) =
            (gpu_array(m.weight), matches!(bias, Some(None)), matches!(packed, Some(None)))
        else {
            return Ok(None);
        };
        own.push(lucid_mlx::RowMatrix { weight, packed: packed.flatten(), bias: bias.flatten() });
    }
    let after = match after {
        After::Kept(None) => lucid_mlx::After::Kept(None),
        After::Kept(Some(more)) => match gpu_array(more) {
            None => return Ok(None),
            more => lucid_mlx::After::Kept(more),
        },
        After::Gated(gate) => lucid_mlx::After::Gated(*gate),
        After::Rotated(head, [cos, sin]) => match (gpu_array(cos), gpu_array(sin)) {
            (Some(cos), Some(sin)) => lucid_mlx::After::Rotated { head: *head, cos, sin },
            _ => return Ok(None),
        },
    };
    let begun = profile::begin();
    let made = lucid_mlx::row_products(x, norm, &own, &after)?;
    if made.is_some() {
        profile::end_other(begun, "row_products");
    }
    Ok(made.map(|made| made.into_iter().map(from_gpu).collect()))
}
