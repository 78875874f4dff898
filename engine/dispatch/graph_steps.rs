//! Steps of a graph, which the tape sees nothing of: primitives, and fused kernels.

use super::{arrays, communication, cpu_array, execute, transfer, Meta, Prim, Storage, Wrapped};
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

/// How many casts there are to be made at once.
pub(crate) fn most_casts(device: Device) -> usize {
    fn ask<B: Wrapped>() -> usize {
        B::most_casts()
    }
    with_backend!(device, ask())
}

/// Tensors of floats of one dtype in another one; nothing where they have to be cast one by one.
pub(crate) fn cast_all(inputs: &[&Tensor], dtype: DType, device: Device) -> Result<Option<Vec<Storage>>> {
    fn run<B: Wrapped>(inputs: &[&Tensor], dtype: DType) -> Result<Option<Vec<Storage>>> {
        let x: SmallVec<[&B::Array; 4]> = arrays::<B>("cast", inputs)?;
        Ok(B::cast_all(&x, dtype)?.map(|made| made.into_iter().map(B::wrap).collect()))
    }
    let begun = profile::begin();
    let made = with_backend!(device, run(inputs, dtype))?;
    profile::end_other(begun, "casts");
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

fn gpu_array(x: &Tensor) -> Option<&lucid_mlx::GpuArray> {
    GpuBackend::unwrap(x.storage())
}

/// A tensor of the GPU's array.
fn from_gpu(array: lucid_mlx::GpuArray) -> Tensor {
    Tensor::from_storage(GpuBackend::wrap(array))
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

/// A matrix and its bias, dense or packed.
#[derive(Clone, Copy)]
pub(crate) struct RowMatrix<'a> {
    pub weight: &'a Tensor,
    /// Scales, biases, group and bits of packed words.
    pub packed: Option<(&'a Tensor, &'a Tensor, usize, usize)>,
    pub bias: Option<&'a Tensor>,
}

impl<'a> RowMatrix<'a> {
    fn on_gpu(&self) -> Option<lucid_mlx::RowMatrix<'a>> {
        let packed = match self.packed {
            None => None,
            Some((scales, biases, group, bits)) => Some((gpu_array(scales)?, gpu_array(biases)?, group, bits)),
        };
        let bias = match self.bias {
            None => None,
            Some(bias) => Some(gpu_array(bias)?),
        };
        Some(lucid_mlx::RowMatrix { weight: gpu_array(self.weight)?, packed, bias })
    }
}

/// The product of a few rows (M, K) with a matrix, behind a norm, in one launch, which the tape sees nothing of; nothing where
/// the device has no such kernel.
pub(crate) fn row_product(x: &Tensor, norm: Option<(&Tensor, f64)>, matrix: RowMatrix<'_>) -> Result<Option<Tensor>> {
    let (Some(x), Some(matrix)) = (gpu_array(x), matrix.on_gpu()) else { return Ok(None) };
    let norm = match norm.map(|(weight, eps)| (gpu_array(weight), eps)) {
        None => None,
        Some((None, _)) => return Ok(None),
        Some((Some(weight), eps)) => Some((weight, eps)),
    };
    let begun = profile::begin();
    let made = lucid_mlx::row_product(x, norm, &matrix)?.map(from_gpu);
    if made.is_some() {
        profile::end_other(begun, "row_product");
    }
    Ok(made)
}

/// What a decoder's layer is made of.
pub(crate) struct DecoderLayer<'a> {
    /// Of queries, keys, values, behind attention, the gate, what it is multiplied with, and the last.
    pub matrices: [RowMatrix<'a>; 7],
    pub norms: [&'a Tensor; 2],
    pub eps: f64,
    pub gate: lucid_mlx::Gate,
    /// Heads of queries, of keys, and elements of a head.
    pub heads: [usize; 3],
    pub scale: f64,
    /// What earlier launches over these tensors found out.
    pub known: &'a lucid_mlx::KnownLayer,
}

/// A layer of a decoder over `x` (B, L, hidden), which writes keys and values behind `at` others and which the tape sees
/// nothing of; with `last_alone` that of the last tokens, (B, 1, hidden). Nothing where the device has no kernels for it.
pub(crate) fn decoder_layer(
    x: &Tensor,
    layer: &DecoderLayer<'_>,
    angles: [&Tensor; 2],
    buffers: [&Tensor; 2],
    at: usize,
    last_alone: bool,
) -> Result<Option<Tensor>> {
    let own = || {
        let mut matrices = layer.matrices.iter().map(RowMatrix::on_gpu);
        let mut next = || matrices.next().flatten();
        let layer = lucid_mlx::DecoderLayer {
            projections: [next()?, next()?, next()?],
            joined: next()?,
            gates: [next()?, next()?],
            last: next()?,
            norms: [gpu_array(layer.norms[0])?, gpu_array(layer.norms[1])?],
            eps: layer.eps,
            gate: layer.gate,
            heads: layer.heads,
            scale: layer.scale,
            known: layer.known,
        };
        Some((
            gpu_array(x)?,
            layer,
            [gpu_array(angles[0])?, gpu_array(angles[1])?],
            [gpu_array(buffers[0])?, gpu_array(buffers[1])?],
        ))
    };
    let Some((x, layer, angles, buffers)) = own() else { return Ok(None) };
    let begun = profile::begin();
    let made = lucid_mlx::decoder_layer(x, &layer, angles, buffers, at, last_alone)?.map(from_gpu);
    if made.is_some() {
        profile::end_other(begun, "decoder_layer");
    }
    Ok(made)
}

/// Has the GPU device kernels for layers of decoders?
pub(crate) fn runs_decoder_layers() -> bool {
    lucid_mlx::runs_decoder_layers()
}
