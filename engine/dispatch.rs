//! The one place where both backends' arrays meet: storage, running a primitive, transfer between devices.
//!
//! Depends on the backends through [`Backend`] only. Invariant: the variants of `Repr` are private to this file, and all
//! arrays of one op are of one device.

use crate::autograd;
use crate::batching::{self, Batch};
use crate::graph;
use crate::layout_propagation::{
    as_first, as_images, as_indexed, by_columns, by_lanes, in_order, in_order_along, in_order_of_second, joined,
};
use crate::meta::{MetaArray, MetaBackend};
use crate::ops::OpRow;
use crate::ops::{binary::BinaryOp, index::IndexOp, pool::PoolOp, sort::SortOp, transfer::TransferOp, view::ViewOp};
use crate::output_donation;
use crate::profile;
use crate::shape::Layout;
use crate::sparse::{self, Coo};
use crate::{DType, Device, Error, Result, Tensor};
use lucid_cpu::{CpuArray, CpuBackend};
use lucid_ir::backend::{Array, Backend};
use lucid_mlx::{GpuArray, GpuBackend};
use smallvec::SmallVec;
use std::sync::Arc;

pub(crate) use crate::prim::{Meta, Metas, Prim};

/// A tensor's data on one device.
#[derive(Clone, Debug)]
pub(crate) struct Storage(Repr);

#[derive(Clone, Debug)]
enum Repr {
    Cpu(CpuArray),
    Gpu(GpuArray),
    /// Without memory.
    Meta(MetaArray),
    /// Inside of `vmap`: a tensor whose first dimension this one does not show.
    Batched(Arc<Batch>),
    /// Some elements with their indices.
    Sparse(Arc<Coo>),
}

macro_rules! on_device {
    ($storage:expr, $array:ident => $body:expr, $batch:ident => $batched:expr, $coo:ident => $sparse:expr) => {
        match &$storage.0 {
            Repr::Cpu($array) => $body,
            Repr::Gpu($array) => $body,
            Repr::Meta($array) => $body,
            Repr::Batched($batch) => $batched,
            Repr::Sparse($coo) => $sparse,
        }
    };
}

impl Storage {
    #[inline]
    pub(crate) fn layout(&self) -> &Layout {
        on_device!(self, a => a.layout(), b => &b.layout, s => &s.layout)
    }

    #[inline]
    pub(crate) fn dtype(&self) -> DType {
        on_device!(self, a => a.dtype(), b => b.value.dtype(), s => s.dtype)
    }

    #[inline]
    pub(crate) fn version(&self) -> u32 {
        on_device!(self, a => a.version(), b => b.value.version(), s => s.version())
    }

    /// Raises the version, as if the storage had been written.
    pub(crate) fn touch(&self) {
        on_device!(self, a => a.touch(), b => b.value.storage().touch(), s => s.touch())
    }

    /// The same storage seen with a count of writes of its own; only arrays have one.
    pub(crate) fn apart(&self) -> Storage {
        match &self.0 {
            Repr::Cpu(a) => Storage(Repr::Cpu(a.apart())),
            Repr::Gpu(a) => Storage(Repr::Gpu(a.apart())),
            Repr::Meta(a) => Storage(Repr::Meta(a.apart())),
            Repr::Batched(_) | Repr::Sparse(_) => self.clone(),
        }
    }

    pub(crate) fn storage_numel(&self) -> usize {
        on_device!(self, a => a.storage_numel(), b => b.value.storage_numel(), s => s.parts().values.storage_numel())
    }

    pub(crate) fn storage_bytes(&self) -> usize {
        on_device!(self, a => a.storage_bytes(), b => b.value.storage().storage_bytes(), s => s.parts().values.storage().storage_bytes())
    }

    /// Gives the storage another size; false where it cannot have it.
    pub(crate) fn resize(&self, bytes: usize) -> Result<bool> {
        graph::note_break("resize_", "a storage gets another size")?;
        on_device!(self, a => a.resize_storage(bytes), _b => Ok(false), _s => Ok(false))
    }

    pub(crate) fn storage_key(&self) -> usize {
        on_device!(self, a => a.storage_key(), b => b.value.storage_key(), s => Arc::as_ptr(s) as usize)
    }

    pub(crate) fn is_unshared(&self) -> bool {
        on_device!(self, a => a.is_unshared(), b => b.value.storage().is_unshared(), _s => false)
    }

    pub(crate) fn batched(batch: Batch) -> Storage {
        Storage(Repr::Batched(Arc::new(batch)))
    }

    /// What `vmap` knows of a tensor that it hides a dimension of.
    #[inline]
    pub(crate) fn batch(&self) -> Option<&Batch> {
        match &self.0 {
            Repr::Batched(batch) => Some(batch),
            Repr::Cpu(_) | Repr::Gpu(_) | Repr::Meta(_) | Repr::Sparse(_) => None,
        }
    }

    pub(crate) fn sparse(coo: Coo) -> Storage {
        Storage(Repr::Sparse(Arc::new(coo)))
    }

    /// What a sparse tensor holds.
    #[inline]
    pub(crate) fn coo(&self) -> Option<&Coo> {
        match &self.0 {
            Repr::Sparse(coo) => Some(coo),
            Repr::Cpu(_) | Repr::Gpu(_) | Repr::Meta(_) | Repr::Batched(_) => None,
        }
    }

    /// Is it an array of a backend?
    #[inline]
    pub(crate) fn is_array(&self) -> bool {
        match &self.0 {
            Repr::Cpu(_) | Repr::Gpu(_) | Repr::Meta(_) => true,
            Repr::Batched(_) | Repr::Sparse(_) => false,
        }
    }

    /// Is it an array of that device's backend?
    #[inline]
    fn is_array_on(&self, device: Device) -> bool {
        match &self.0 {
            Repr::Cpu(_) => device == Device::Cpu,
            Repr::Gpu(_) => device == Device::Gpu,
            Repr::Meta(_) => device == Device::Meta,
            Repr::Batched(_) | Repr::Sparse(_) => false,
        }
    }

    #[inline]
    pub(crate) fn device(&self) -> Device {
        match &self.0 {
            Repr::Cpu(_) => Device::Cpu,
            Repr::Gpu(_) => Device::Gpu,
            Repr::Meta(_) => Device::Meta,
            Repr::Batched(b) => b.value.device(),
            Repr::Sparse(s) => s.device,
        }
    }

    /// Notes that a gradient will need the elements, for a device that computes only what is needed.
    pub(crate) fn keep(&self) {
        if let Repr::Gpu(a) = &self.0 {
            a.keep();
        }
    }

    pub(crate) fn shares_storage(&self, other: &Storage) -> bool {
        match (&self.0, &other.0) {
            (Repr::Cpu(a), Repr::Cpu(b)) => a.shares_storage(b),
            (Repr::Gpu(a), Repr::Gpu(b)) => a.shares_storage(b),
            (Repr::Meta(a), Repr::Meta(b)) => a.shares_storage(b),
            (Repr::Batched(a), _) => a.value.storage().shares_storage(other),
            (_, Repr::Batched(b)) => self.shares_storage(b.value.storage()),
            (Repr::Sparse(a), Repr::Sparse(b)) => Arc::ptr_eq(a, b),
            (Repr::Cpu(_) | Repr::Gpu(_) | Repr::Meta(_) | Repr::Sparse(_), _) => false,
        }
    }
}

/// A backend and how its arrays are wrapped.
pub(crate) trait Wrapped: Backend {
    const DEVICE: Device;
    fn wrap(array: Self::Array) -> Storage;
    fn unwrap(storage: &Storage) -> Option<&Self::Array>;
}

impl Wrapped for CpuBackend {
    const DEVICE: Device = Device::Cpu;
    fn wrap(array: CpuArray) -> Storage {
        Storage(Repr::Cpu(array))
    }
    fn unwrap(storage: &Storage) -> Option<&CpuArray> {
        match &storage.0 {
            Repr::Cpu(a) => Some(a),
            Repr::Gpu(_) | Repr::Meta(_) | Repr::Batched(_) | Repr::Sparse(_) => None,
        }
    }
}

impl Wrapped for GpuBackend {
    const DEVICE: Device = Device::Gpu;
    fn wrap(array: GpuArray) -> Storage {
        Storage(Repr::Gpu(array))
    }
    fn unwrap(storage: &Storage) -> Option<&GpuArray> {
        match &storage.0 {
            Repr::Gpu(a) => Some(a),
            Repr::Cpu(_) | Repr::Meta(_) | Repr::Batched(_) | Repr::Sparse(_) => None,
        }
    }
}

impl Wrapped for MetaBackend {
    const DEVICE: Device = Device::Meta;
    fn wrap(array: MetaArray) -> Storage {
        Storage(Repr::Meta(array))
    }
    fn unwrap(storage: &Storage) -> Option<&MetaArray> {
        match &storage.0 {
            Repr::Meta(a) => Some(a),
            Repr::Cpu(_) | Repr::Gpu(_) | Repr::Batched(_) | Repr::Sparse(_) => None,
        }
    }
}

/// Calls `$f::<B>(…)` with the backend of a device.
macro_rules! with_backend {
    ($device:expr, $f:ident($($arg:expr),*)) => {
        match $device {
            Device::Cpu => $f::<CpuBackend>($($arg),*),
            Device::Gpu => $f::<GpuBackend>($($arg),*),
            Device::Meta => $f::<MetaBackend>($($arg),*),
        }
    };
}

mod bytes;
mod communication;
mod evaluation;
mod graph_steps;
pub(crate) mod memory;
mod multi_output;
mod stored;
use bytes::transfer;
pub(crate) use bytes::{expose, fits_in_place, from_bytes, to_bytes};
pub use communication::set_rehearsing;
pub use evaluation::primitives;
pub(crate) use evaluation::{eval, steps};
pub(crate) use graph_steps::{
    attention_gradients, cast_all, decoder_layer, fuses, in_one_pass, most_casts, row_product, run, run_fused,
    runs_custom_kernels, runs_decoder_layers, DecoderLayer, RowMatrix,
};
pub(crate) use lucid_mlx::{Gate, KnownLayer};
pub use memory::{empty_cache, memory_stats, reset_peak_memory_stats, set_cache_limit};
pub(crate) use multi_output::{apply_multi, run_multi};
pub(crate) use stored::index_into;

/// The arrays of an op's inputs, all on `B`'s device.
#[inline]
fn arrays<'a, B: Wrapped>(op: &'static str, inputs: &[&'a Tensor]) -> Result<SmallVec<[&'a B::Array; 4]>>
where
    B::Array: 'a,
{
    let mut arrays = SmallVec::new();
    for t in inputs {
        match B::unwrap(t.storage()) {
            Some(array) => arrays.push(array),
            None => return Err(device_mismatch(op, inputs)),
        }
    }
    Ok(arrays)
}

/// Why an op cannot take these tensors together.
#[cold]
fn device_mismatch(op: &'static str, inputs: &[&Tensor]) -> Box<Error> {
    if let Some(refused) = batching::refuse(op, inputs).or_else(|| sparse::refuse(op, inputs)) {
        return refused;
    }
    let devices: Vec<Device> = inputs.iter().map(|t| t.device()).collect();
    Error::device(op, "Expected all tensors to be on the same device; move one with .to()", &devices)
}

#[inline]
fn refuse_dtype<B: Wrapped>(op: &'static str, dtype: DType) -> Result<()> {
    if B::supports(dtype) {
        return Ok(());
    }
    let (device, single) = (B::DEVICE, dtype.to_single());
    let why = format!("the {device} device has no {dtype}; use {single}, or keep the tensor on the cpu");
    Err(Error::dtype(op, why, &[dtype]))
}

/// `donated`: may the result of an element-wise primitive be written over the first input, which nobody reads again?
#[inline]
fn execute<B: Wrapped>(prim: &Prim, inputs: &[&Tensor], out: &Meta, donated: bool) -> Result<Storage> {
    if let (Prim::Binary(op), &[a, b]) = (prim, inputs)
        && a.dtype() == out.dtype
        && b.dtype() == out.dtype
        && !out.dtype.is_stored_only()
        && let (Some(x), Some(y)) = (B::unwrap(a.storage()), B::unwrap(b.storage()))
        && x.is_contiguous()
        && y.is_contiguous()
    {
        return side_by_side::<B>(op, [x, y], inputs, out, donated);
    }
    execute_any::<B>(prim, inputs, out, donated)
}

/// [`execute`] of two row-major arrays of the result's dtype, as the operands of most small ops are: for them finding the way
/// through all primitives would take as long as the work.
fn side_by_side<B: Wrapped>(
    op: &BinaryOp,
    [x, y]: [&B::Array; 2],
    inputs: &[&Tensor],
    out: &Meta,
    donated: bool,
) -> Result<Storage> {
    let name = op.name();
    refuse_dtype::<B>(name, out.dtype)?;
    B::countable(name, out)?;
    let over = B::DEVICE == Device::Cpu && (donated || output_donation::accepts(name, inputs, out));
    let array = if over { B::binary_over(op, x, y, out) } else { B::binary(op, x, y, out) };
    array.map(B::wrap)
}

/// [`execute`] of any primitive.
#[inline(never)]
fn execute_any<B: Wrapped>(prim: &Prim, inputs: &[&Tensor], out: &Meta, donated: bool) -> Result<Storage> {
    if stored::applies(prim, inputs, out) {
        return stored::run::<B>(prim, inputs, out);
    }
    let name = prim.name();
    let x = arrays::<B>(name, inputs)?;
    refuse_dtype::<B>(name, out.dtype)?;
    B::countable(name, out)?;
    let samples = matches!(prim, Prim::Random(op) if op.is_sample());
    let over = || B::DEVICE == Device::Cpu && (donated || output_donation::accepts(name, inputs, out));
    let array = match (prim, x.as_slice()) {
        (Prim::Create(op), []) => B::create(op, out),
        (Prim::Random(op), []) => B::random(op, out),
        // What is recorded is the sample, which has been drawn.
        (Prim::Random(_), [_, drawn]) if samples => B::copy(drawn),
        (Prim::Random(op), x) => B::derivative(op, x, out),
        (Prim::Transfer(TransferOp::Cast { dtype }), [x]) => in_order::<B>(&[x], out, |x, _| B::cast(x[0], *dtype)),
        (Prim::Transfer(TransferOp::Copy), [x]) => B::copy(x),
        (Prim::Unary(op), [x]) if over() => B::unary_over(op, x, out),
        (Prim::Unary(op), [x]) => in_order::<B>(&[x], out, |x, out| B::unary(op, x[0], out)),
        (Prim::Binary(op), [a, b]) if inputs.iter().any(|t| t.dtype() != out.dtype) => {
            in_order::<B>(&[a, b], out, |x, out| B::binary_rounded(op, x[0], x[1], out))
        }
        (Prim::Binary(op), [a, b]) if over() => B::binary_over(op, a, b, out),
        // The differentiable result comes first in PyTorch.
        (Prim::Binary(op @ BinaryOp::ReluGradient), [g, y]) => {
            in_order::<B>(&[y, g], out, |x, out| B::binary(op, x[1], x[0], out))
        }
        (Prim::Binary(op), [a, b]) => in_order::<B>(&[a, b], out, |x, out| B::binary(op, x[0], x[1], out)),
        (Prim::Compare(op), [a, b]) => in_order::<B>(&[a, b], out, |x, out| B::compare(op, x[0], x[1], out)),
        (Prim::Select(op), [c, a, b]) => in_order::<B>(&[c, a, b], out, |x, out| B::select(op, x[0], x[1], x[2], out)),
        (Prim::Reduce(op, how), [x]) => B::reduce(op, how, x, out),
        (Prim::Scan(op), x) => B::scan(op, x, out),
        (Prim::Index(IndexOp::Flip { axes }), [x]) => in_order_along::<B>(&[x], out, |x, out, at| {
            let axes = axes.iter().map(|&axis| at.map_or(axis, |at| at[axis])).collect();
            B::index(&IndexOp::Flip { axes }, x, out)
        }),
        (Prim::Index(IndexOp::Concat { axis }), x) => joined::<B>(*axis, x, out),
        (Prim::Index(op @ IndexOp::Index { axes, strict: false }), x) => {
            B::index(op, x, out).and_then(|made| as_indexed::<B>(axes, x, made))
        }
        (Prim::Index(op @ (IndexOp::IndexPut { strict: false, .. } | IndexOp::SliceScatter { .. })), x) => {
            B::index(op, x, out).and_then(|made| as_first::<B>(x, made))
        }
        (Prim::Index(op), x) => B::index(op, x, out),
        (Prim::Sort(SortOp::ArgSort { axis, descending }), [x]) => in_order_along::<B>(&[x], out, |x, out, at| {
            let axis = at.map_or(*axis, |at| at[*axis]);
            B::sort(&SortOp::ArgSort { axis, descending: *descending }, x, out)
        }),
        (Prim::Sort(op), x) => B::sort(op, x, out),
        (Prim::Contract(op), [a, b]) => B::contract(op, a, b, out),
        (Prim::Linalg(op), x) if op.gives_columns() => B::linalg(op, x, out).and_then(by_columns::<B>),
        (Prim::Linalg(op), x) => B::linalg(op, x, out),
        (Prim::Fft(op), [x]) => by_lanes::<B>(op, x, out),
        (Prim::Conv(op), x) => B::conv(op, x, out).and_then(|made| as_images::<B>(x, made)),
        // Means over volumes are row-major in PyTorch.
        (Prim::Pool(op @ (PoolOp::Average { .. } | PoolOp::AverageSpread { .. })), x) if out.shape.len() > 4 => {
            B::pool(op, x, out)
        }
        (Prim::Pool(op), x) => B::pool(op, x, out).and_then(|made| as_images::<B>(&x[..1], made)),
        (Prim::Nn(op), x) if op.is_led_by_second() => in_order_of_second::<B>(x, out, |x, out| B::nn(op, x, out)),
        (Prim::Nn(op), x) if op.is_by_element() => in_order::<B>(x, out, |x, out| B::nn(op, x, out)),
        (Prim::Nn(op), x) => B::nn(op, x, out),
        (Prim::Norm(op), x) => B::norm(op, x, out),
        (Prim::Loss(op), x) => B::loss(op, x, out),
        (Prim::Quantized(op), x) => B::quantized(op, x, out),
        (prim, x) => Err(Error::runtime(name, format!("{prim:?} does not take {} arrays", x.len()))),
    };
    array.map(B::wrap)
}

/// The inputs of an element-wise op on another device than the CPU, where CPU tensors without dimensions are numbers, as in
/// PyTorch; any other mix is refused.
#[cold]
fn promote_scalars(prim: &Prim, inputs: &[&Tensor]) -> Result<SmallVec<[Tensor; 4]>> {
    let by_element = matches!(prim, Prim::Binary(_) | Prim::Compare(_) | Prim::Select(_));
    let target = inputs.iter().map(|t| t.device()).find(|&device| device != Device::Cpu).unwrap_or(Device::Cpu);
    let moved = |t: &&Tensor| match t.device() {
        device if device == target => Ok((*t).clone()),
        Device::Cpu if by_element && t.ndim() == 0 => t.to_device(target),
        Device::Cpu | Device::Gpu | Device::Meta => Err(device_mismatch(prim.name(), inputs)),
    };
    inputs.iter().map(moved).collect()
}

/// Runs a primitive of one result and records it on the tape where a gradient may be asked for.
pub(crate) fn apply1(prim: Prim, inputs: &[&Tensor], meta: Meta) -> Result<Tensor> {
    let device = inputs[0].storage().device();
    if !inputs.iter().all(|t| t.storage().is_array_on(device)) {
        return match inputs.iter().any(|t| t.is_batched()) {
            true => batching::apply(prim, inputs, meta),
            false if inputs.iter().all(|t| t.storage().is_array()) => {
                let promoted = promote_scalars(&prim, inputs)?;
                apply1(prim, &promoted.iter().collect::<SmallVec<[&Tensor; 4]>>(), meta)
            }
            false => {
                graph::note_break(prim.name(), "sparse tensors")?;
                sparse::apply(prim, inputs, meta)
            }
        };
    }
    crate::determinism::check(|| prim.schema(), device)?;
    let begun = profile::begin();
    let storage = match prim {
        Prim::Transfer(TransferOp::Move { device }) => transfer(inputs[0], device)?,
        Prim::Communication(ref op) => communication::run(op, inputs, &meta)?,
        _ => with_backend!(device, execute(&prim, inputs, &meta, false))?,
    };
    if graph::recording() {
        graph::note_op(&prim, inputs, &storage, &meta);
    }
    profile::end(begun, || prim.schema(), inputs.iter().copied(), &meta.shape);
    debug_assert_eq!(storage.layout().shape, meta.shape, "{prim:?}");
    debug_assert_eq!(storage.dtype(), meta.dtype, "{prim:?}");
    match autograd::is_recorded(inputs, storage.dtype()) {
        true => autograd::record(prim, inputs, storage),
        false => Ok(Tensor::from_storage(storage)),
    }
}

/// [`apply1`] of arithmetic on few float32 side by side on the CPU, which nobody records, counts or allows to be written over an
/// operand: deciding that among all primitives, kernels and devices takes longer than the work. `None` of anything else.
#[inline]
pub(crate) fn few(op: &BinaryOp, a: &Tensor, b: &Tensor) -> Option<Result<Tensor>> {
    let (Repr::Cpu(x), Repr::Cpu(y)) = (&a.storage().0, &b.storage().0) else { return None };
    if graph::recording()
        || profile::is_on()
        || autograd::is_recorded(&[a, b], DType::F32)
        || output_donation::offers(a)
    {
        return None;
    }
    let made = lucid_cpu::few(op, x, y)?;
    Some(made.map(|array| Tensor::from_storage(Storage(Repr::Cpu(array)))))
}

/// Runs a primitive without inputs.
pub(crate) fn create(prim: Prim, mut meta: Meta, device: Device) -> Result<Tensor> {
    meta.dtype = crate::float64::on_device(meta.dtype, device);
    if matches!(prim, Prim::Random(_)) && batching::is_active() {
        return batching::draw(prim, meta, device);
    }
    create_plain(prim, meta, device)
}

/// [`create`], whatever `vmap` says.
pub(crate) fn create_plain(prim: Prim, meta: Meta, device: Device) -> Result<Tensor> {
    let begun = profile::begin();
    let storage = with_backend!(device, execute(&prim, &[], &meta, false))?;
    if graph::recording() {
        graph::note_op(&prim, &[], &storage, &meta);
    }
    profile::end(begun, || prim.schema(), [], &meta.shape);
    Ok(Tensor::from_storage(storage))
}

/// A row-major copy of an array, in a storage of its own.
pub(crate) fn copied_storage(x: &Tensor) -> Result<Storage> {
    fn run<B: Wrapped>(x: &Tensor) -> Result<Storage> {
        B::copy(arrays::<B>("copy", &[x])?[0]).map(B::wrap)
    }
    with_backend!(x.device(), run(x))
}

/// A view of an array.
pub(crate) fn run_view(op: &ViewOp, x: &Tensor, layout: Layout) -> Result<Storage> {
    fn run<B: Wrapped>(op: &ViewOp, x: &Tensor, layout: Layout) -> Result<Storage> {
        if let ViewOp::Recast { dtype, .. } = op {
            refuse_dtype::<B>("view", *dtype)?;
        }
        B::view(op, arrays::<B>(op.name(), &[x])?[0], layout).map(B::wrap)
    }
    with_backend!(x.device(), run(op, x, layout))
}

/// A view of `x`, whose layout has been worked out.
pub(crate) fn view(op: ViewOp, x: &Tensor, mut layout: Layout) -> Result<Tensor> {
    if let Some(batch) = x.storage().batch() {
        return batching::view(op, batch, layout);
    }
    if x.is_sparse() {
        return sparse::view(&op, x);
    }
    // Kernels start from the offset, also where there is no element.
    if layout.offset > 0 && layout.numel() == 0 {
        layout.offset = layout.offset.min(x.storage().storage_bytes() / op.dtype(x.dtype()).size());
    }
    let begun = profile::begin();
    let storage = run_view(&op, x, layout)?;
    if graph::recording() {
        graph::note_view(&op, x, &storage);
    }
    profile::end(begun, || op.schema(), [x], &storage.layout().shape);
    autograd::record_view(op, x, storage)
}

/// The CPU's array of a tensor; `None` for one on the GPU.
pub(crate) fn cpu_array(x: &Tensor) -> Option<&CpuArray> {
    CpuBackend::unwrap(x.storage())
}

/// A tensor of the CPU's array.
pub(crate) fn of_cpu_array(array: CpuArray) -> Tensor {
    Tensor::from_storage(CpuBackend::wrap(array))
}

/// Indices of the elements that are not zero, one column each. Evaluates.
pub(crate) fn nonzero(x: &Tensor) -> Result<Tensor> {
    fn run<B: Wrapped>(x: &Tensor) -> Result<Storage> {
        B::nonzero(arrays::<B>("nonzero", &[x])?[0]).map(B::wrap)
    }
    graph::note_break("nonzero", "the shape of the result depends on the elements")?;
    let begun = profile::begin();
    let storage = with_backend!(x.device(), run(x))?;
    profile::end(begun, || &crate::ops::index::schema::nonzero, [x], &[]);
    Ok(Tensor::from_storage(storage))
}

/// Writes `src` over what `dst` shows of its storage; the tape is the caller's business. Nobody reads a `donated` source again.
pub(crate) fn assign(op: &'static str, dst: &Tensor, src: &Tensor, donated: bool) -> Result<()> {
    fn run<B: Wrapped>(op: &'static str, dst: &Tensor, src: &Tensor, donated: bool) -> Result<()> {
        let x = arrays::<B>(op, &[dst, src])?;
        B::assign(x[0], x[1], donated)
    }
    if dst.device() != src.device() {
        return bytes::bring(op, dst, src);
    }
    let recorded = graph::recording();
    with_backend!(dst.device(), run(op, dst, src, donated && !recorded))?;
    if recorded {
        graph::note_assign(dst, src);
    }
    Ok(())
}

/// The GPU device's arrays of tensors.
pub(crate) fn gpu_arrays<'a>(op: &'static str, tensors: &[&'a Tensor]) -> Result<SmallVec<[&'a GpuArray; 4]>> {
    graph::note_break(op, "a kernel of the program's own")?;
    arrays::<GpuBackend>(op, tensors)
}

/// A tensor of the GPU device's array.
pub(crate) fn of_gpu_array(array: GpuArray) -> Tensor {
    Tensor::from_storage(GpuBackend::wrap(array))
}
