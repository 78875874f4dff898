//! The backend of the device `meta`: arrays that have a shape, a dtype, strides and a version, and no memory.
//!
//! Every op infers its result before any kernel runs, so that a kernel here has nothing left to do but to say where the
//! result would be. Depends on the `ir` traits alone. Invariant: nothing reads elements; what has to is an error of the op.

use crate::ops::{
    binary::BinaryOp, compare::CompareOp, contract::ContractOp, conv::ConvOp, create::CreateOp, index::IndexOp,
    linalg::LinalgOp, loss::LossOp, nn::NnOp, norm::NormOp, pool::PoolOp, random::RandomOp, reduce::ReduceOp,
    scan::ScanOp, sort::SortOp, unary::UnaryOp, view::ViewOp,
};
use crate::optim::Step;
use crate::shape::Layout;
use crate::{autograd, DType, Error, MemoryStats, Result};
use lucid_ir::backend::{Array, Backend, Exposed, Results};
use lucid_ir::ops::decomposition::DecompositionOp;
use lucid_ir::ops::fft::FftOp;
use lucid_ir::ops::normalization::NormalizationOp;
use lucid_ir::ops::order::OrderOp;
use lucid_ir::ops::quantize::QuantizeOp;
use lucid_ir::ops::quantized::QuantizedOp;
use lucid_ir::ops::recurrent::RecurrentOp;
use lucid_ir::ops::reduce::Reduction;
use lucid_ir::ops::select::SelectOp;
use lucid_ir::Meta;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::Arc;

/// What stands for a storage: its size and its count of writes.
#[derive(Debug)]
struct Hollow {
    bytes: AtomicUsize,
    version: AtomicU32,
}

/// An array without memory.
#[derive(Clone, Debug)]
pub struct MetaArray {
    storage: Arc<Hollow>,
    layout: Layout,
    dtype: DType,
    apart: Option<Arc<AtomicU32>>,
}

impl MetaArray {
    /// A new row-major array of a result's shape and dtype.
    pub fn new(out: &Meta) -> MetaArray {
        let layout = Layout::contiguous(&out.shape);
        let bytes = layout.numel().saturating_mul(out.dtype.size());
        let storage = Arc::new(Hollow { bytes: AtomicUsize::new(bytes), version: AtomicU32::new(0) });
        MetaArray { storage, layout, dtype: out.dtype, apart: None }
    }
}

impl Array for MetaArray {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn dtype(&self) -> DType {
        self.dtype
    }

    fn version(&self) -> u32 {
        self.apart.as_deref().unwrap_or(&self.storage.version).load(Ordering::Acquire)
    }

    fn touch(&self) {
        self.apart.as_deref().unwrap_or(&self.storage.version).fetch_add(1, Ordering::Release);
    }

    fn apart(&self) -> MetaArray {
        MetaArray { apart: Some(Arc::default()), ..self.clone() }
    }

    fn shares_storage(&self, other: &MetaArray) -> bool {
        Arc::ptr_eq(&self.storage, &other.storage)
    }

    fn storage_key(&self) -> usize {
        Arc::as_ptr(&self.storage) as usize
    }

    fn is_unshared(&self) -> bool {
        Arc::strong_count(&self.storage) == 1
    }

    fn storage_numel(&self) -> usize {
        self.storage_bytes() / self.dtype.size()
    }

    fn storage_bytes(&self) -> usize {
        self.storage.bytes.load(Ordering::Acquire)
    }

    fn resize_storage(&self, bytes: usize) -> Result<bool> {
        self.storage.bytes.store(bytes, Ordering::Release);
        Ok(true)
    }
}

/// The backend without memory.
pub struct MetaBackend;

/// The error of what has to read elements, in the name of the op that a user called.
#[cold]
pub fn unreadable(op: &'static str) -> Box<Error> {
    let why = "cannot read the elements of a meta tensor: it has a shape and a dtype, and no data. Make the tensor on \
               the cpu or the gpu (for modules: to_empty(device=...), then load_state_dict)";
    Error::runtime(autograd::op_name().unwrap_or(op), why)
}

/// The error of an op whose result has as many elements as the values say.
#[cold]
pub fn shapeless(op: &'static str) -> Box<Error> {
    let why = "the shape of the result depends on the elements, and meta tensors have none";
    Error::not_implemented(autograd::op_name().unwrap_or(op), why)
}

/// The error of a move to a device with memory.
#[cold]
pub fn unmovable() -> Box<Error> {
    let op = match autograd::op_name() {
        None | Some("to_device") => "to",
        Some(op) => op,
    };
    let why =
        "Cannot copy out of meta tensor; no data! Use empty_like(..., device=...), or Module.to_empty(), to make \
               memory for it";
    Error::not_implemented(op, why)
}

/// The families whose kernels take a slice of arrays.
macro_rules! of_several {
    ($($family:ident $Op:ident;)*) => {
        $(fn $family(_: &$Op, _: &[&MetaArray], out: &Meta) -> Result<MetaArray> {
            Ok(MetaArray::new(out))
        })*
    };
}

impl Backend for MetaBackend {
    type Array = MetaArray;

    fn supports(_: DType) -> bool {
        true
    }

    of_several! {
        derivative RandomOp;
        scan ScanOp;
        index IndexOp;
        sort SortOp;
        linalg LinalgOp;
        conv ConvOp;
        pool PoolOp;
        nn NnOp;
        norm NormOp;
        loss LossOp;
        quantized QuantizedOp;
    }

    fn quantize(_: &QuantizeOp, _: &MetaArray, out: &[Meta]) -> Result<Results<MetaArray>> {
        Ok(out.iter().map(MetaArray::new).collect())
    }

    fn recurrent(_: &RecurrentOp, _: &[&MetaArray], out: &[Meta]) -> Result<Results<MetaArray>> {
        Ok(out.iter().map(MetaArray::new).collect())
    }

    fn normalization(_: &NormalizationOp, _: &[&MetaArray], out: &[Meta]) -> Result<Results<MetaArray>> {
        Ok(out.iter().map(MetaArray::new).collect())
    }

    fn order(_: &OrderOp, _: &MetaArray, out: &[Meta]) -> Result<Results<MetaArray>> {
        Ok(out.iter().map(MetaArray::new).collect())
    }

    fn decomposition(_: &DecompositionOp, _: &[&MetaArray], out: &[Meta]) -> Result<Results<MetaArray>> {
        Ok(out.iter().map(MetaArray::new).collect())
    }

    fn fft(_: &FftOp, _: &MetaArray, out: &Meta) -> Result<MetaArray> {
        Ok(MetaArray::new(out))
    }

    fn create(_: &CreateOp, out: &Meta) -> Result<MetaArray> {
        Ok(MetaArray::new(out))
    }

    fn random(_: &RandomOp, out: &Meta) -> Result<MetaArray> {
        Ok(MetaArray::new(out))
    }

    fn cast(x: &MetaArray, dtype: DType) -> Result<MetaArray> {
        Ok(MetaArray::new(&Meta::new(&x.layout.shape, dtype)))
    }

    fn unary(_: &UnaryOp, _: &MetaArray, out: &Meta) -> Result<MetaArray> {
        Ok(MetaArray::new(out))
    }

    fn binary(_: &BinaryOp, _: &MetaArray, _: &MetaArray, out: &Meta) -> Result<MetaArray> {
        Ok(MetaArray::new(out))
    }

    fn compare(_: &CompareOp, _: &MetaArray, _: &MetaArray, out: &Meta) -> Result<MetaArray> {
        Ok(MetaArray::new(out))
    }

    fn select(_: &SelectOp, _: &MetaArray, _: &MetaArray, _: &MetaArray, out: &Meta) -> Result<MetaArray> {
        Ok(MetaArray::new(out))
    }

    fn reduce(_: &ReduceOp, _: &Reduction, _: &MetaArray, out: &Meta) -> Result<MetaArray> {
        Ok(MetaArray::new(out))
    }

    fn view(op: &ViewOp, x: &MetaArray, layout: Layout) -> Result<MetaArray> {
        Ok(MetaArray { layout, dtype: op.dtype(x.dtype), ..x.clone() })
    }

    fn index_into(_: &IndexOp, dst: &MetaArray, _: &[&MetaArray]) -> Result<()> {
        dst.touch();
        Ok(())
    }

    fn contract(_: &ContractOp, _: &MetaArray, _: &MetaArray, out: &Meta) -> Result<MetaArray> {
        Ok(MetaArray::new(out))
    }

    fn copy(x: &MetaArray) -> Result<MetaArray> {
        Ok(MetaArray::new(&Meta::new(&x.layout.shape, x.dtype)))
    }

    fn nonzero(_: &MetaArray) -> Result<MetaArray> {
        Err(shapeless("nonzero"))
    }

    fn assign(dst: &MetaArray, _: &MetaArray, _: bool) -> Result<()> {
        dst.touch();
        Ok(())
    }

    fn steps(batches: &[(Step, Vec<Vec<&MetaArray>>)]) -> Result<()> {
        batches.iter().flat_map(|(_, lists)| lists).filter_map(|list| list.first()).for_each(|p| p.touch());
        Ok(())
    }

    fn from_bytes(_: &[u8], out: &Meta) -> Result<MetaArray> {
        Ok(MetaArray::new(out))
    }

    fn with_bytes(_: &MetaArray, _: &mut dyn FnMut(&[u8])) -> Result<()> {
        Err(unreadable("to_bytes"))
    }

    fn eval(_: &[&MetaArray], _: bool) -> Result<()> {
        Ok(())
    }

    fn expose(_: &MetaArray, _: bool) -> Result<Exposed> {
        Err(unreadable("data_ptr"))
    }

    fn memory() -> MemoryStats {
        MemoryStats::default()
    }

    fn reset_peak_memory() {}

    fn empty_cache() -> Result<()> {
        Ok(())
    }

    fn set_cache_limit(_: usize) -> Result<usize> {
        Ok(0)
    }
}
