//! What a backend does: the small set of families that both implement.
//!
//! A backend sees its own array type only. Shapes, dtypes and arguments have been checked before; operands have been
//! promoted to one dtype, and broadcast only by shape. Results are new arrays, never views, unless said.

use crate::fused::{ElementOp, FusedKernel};
use crate::ops::binary::BinaryOp;
use crate::ops::compare::CompareOp;
use crate::ops::contract::ContractOp;
use crate::ops::conv::ConvOp;
use crate::ops::create::CreateOp;
use crate::ops::decomposition::DecompositionOp;
use crate::ops::fft::FftOp;
use crate::ops::index::IndexOp;
use crate::ops::linalg::LinalgOp;
use crate::ops::loss::LossOp;
use crate::ops::nn::NnOp;
use crate::ops::norm::NormOp;
use crate::ops::normalization::NormalizationOp;
use crate::ops::order::OrderOp;
use crate::ops::pool::PoolOp;
use crate::ops::quantize::QuantizeOp;
use crate::ops::quantized::QuantizedOp;
use crate::ops::random::RandomOp;
use crate::ops::recurrent::RecurrentOp;
use crate::ops::reduce::{ReduceOp, Reduction};
use crate::ops::scan::ScanOp;
use crate::ops::select::SelectOp;
use crate::ops::sort::SortOp;
use crate::ops::unary::UnaryOp;
use crate::ops::view::ViewOp;
use crate::optim::Step;
use crate::shape::Layout;
use crate::Meta;
use crate::{DType, Result};
use smallvec::SmallVec;

/// What keeps memory alive that is not the engine's; dropped when no tensor shows the memory any more.
pub type Owner = Box<dyn std::any::Any + Send + Sync>;

/// Bytes and counts of a device's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Bytes in use by arrays.
    pub current: usize,
    /// The most bytes in use since the last reset.
    pub peak: usize,
    /// Bytes kept for reuse.
    pub cached: usize,
    /// Allocations since the start.
    pub allocations: u64,
}

/// A storage's memory, for others to look at.
pub struct Exposed {
    /// Where its first element is.
    pub address: usize,
    /// May others write there?
    pub writable: bool,
    /// Keeps it.
    pub owner: Owner,
}

/// One array of a backend.
pub trait Array: Clone + Send + Sync + std::fmt::Debug {
    /// Shape, and strides as PyTorch reports them.
    fn layout(&self) -> &Layout;
    /// Are the elements in row-major order without gaps?
    #[inline]
    fn is_contiguous(&self) -> bool {
        self.layout().is_contiguous()
    }
    /// Element type.
    fn dtype(&self) -> DType;
    /// How often the storage was written in place; shared by all views.
    fn version(&self) -> u32;
    /// Raises the version, as if the storage had been written.
    fn touch(&self);
    /// The same elements, with a count of writes of its own that what is seen through it shares (PyTorch's `x.data`).
    fn apart(&self) -> Self;
    /// Are both in one storage?
    fn shares_storage(&self, other: &Self) -> bool;
    /// A number that arrays have in common exactly when they are in one storage, while one of them lives.
    fn storage_key(&self) -> usize;
    /// Is this array the only one on its storage?
    fn is_unshared(&self) -> bool;
    /// Number of elements of the storage.
    fn storage_numel(&self) -> usize;
    /// Size of the storage in bytes.
    fn storage_bytes(&self) -> usize;
    /// Gives the storage another size: the first bytes as they were, zeros behind them. False where it cannot have it.
    fn resize_storage(&self, bytes: usize) -> Result<bool>;
}

/// The results of a primitive that has several, in order.
pub type Results<A> = SmallVec<[A; 3]>;

/// The families of kernels.
pub trait Backend {
    /// Its arrays.
    type Array: Array;

    /// Does it have this dtype at all?
    fn supports(dtype: DType) -> bool;

    /// Runs a primitive of the family `create`.
    fn create(op: &CreateOp, out: &Meta) -> Result<Self::Array>;
    /// Runs a primitive of the family `random`.
    fn random(op: &RandomOp, out: &Meta) -> Result<Self::Array>;
    /// What samples change by with their parameters: the ops of the `random` family that take arrays.
    fn derivative(op: &RandomOp, inputs: &[&Self::Array], out: &Meta) -> Result<Self::Array>;
    /// The elements in another dtype.
    fn cast(x: &Self::Array, dtype: DType) -> Result<Self::Array>;
    /// Runs a primitive of the family `unary`.
    fn unary(op: &UnaryOp, x: &Self::Array, out: &Meta) -> Result<Self::Array>;
    /// Runs a primitive of the family `binary`.
    fn binary(op: &BinaryOp, a: &Self::Array, b: &Self::Array, out: &Meta) -> Result<Self::Array>;
    /// The same where an operand's dtype is not the result's: 16-bit floats beside float32, or on the way to it, are computed in
    /// float32 and rounded once.
    fn binary_rounded(op: &BinaryOp, a: &Self::Array, b: &Self::Array, out: &Meta) -> Result<Self::Array> {
        let (a, b) = (Self::cast(a, DType::F32)?, Self::cast(b, DType::F32)?);
        let wide = Meta { shape: out.shape.clone(), dtype: DType::F32 };
        Self::cast(&Self::binary(op, &a, &b, &wide)?, out.dtype)
    }
    /// The same where `x`, row-major and of the result's shape and dtype, is not needed any more: the result may be written
    /// over it, which then is what is given back. Nothing is written where an error is.
    fn unary_over(op: &UnaryOp, x: &Self::Array, out: &Meta) -> Result<Self::Array> {
        Self::unary(op, x, out)
    }
    /// The same, of `a`.
    fn binary_over(op: &BinaryOp, a: &Self::Array, b: &Self::Array, out: &Meta) -> Result<Self::Array> {
        Self::binary(op, a, b, out)
    }
    /// Runs a primitive of the family `compare`.
    fn compare(op: &CompareOp, a: &Self::Array, b: &Self::Array, out: &Meta) -> Result<Self::Array>;
    /// Runs a primitive of the family `select`.
    fn select(op: &SelectOp, c: &Self::Array, a: &Self::Array, b: &Self::Array, out: &Meta) -> Result<Self::Array>;
    /// Runs a primitive of the family `reduce`.
    fn reduce(op: &ReduceOp, how: &Reduction, x: &Self::Array, out: &Meta) -> Result<Self::Array>;
    /// Runs a primitive of the family `scan`.
    fn scan(op: &ScanOp, inputs: &[&Self::Array], out: &Meta) -> Result<Self::Array>;
    /// A view: shares `x`'s storage. `layout` is what `op` makes of `x`'s.
    fn view(op: &ViewOp, x: &Self::Array, layout: Layout) -> Result<Self::Array>;
    /// Runs a primitive of the family `index`.
    fn index(op: &IndexOp, inputs: &[&Self::Array], out: &Meta) -> Result<Self::Array>;
    /// What `op` writes into its first input, written over `dst` itself; raises the storage's version.
    fn index_into(op: &IndexOp, dst: &Self::Array, rest: &[&Self::Array]) -> Result<()>;
    /// Runs a primitive of the family `sort`.
    fn sort(op: &SortOp, inputs: &[&Self::Array], out: &Meta) -> Result<Self::Array>;
    /// Values and indices of a primitive of the family `order`, with the shapes and dtypes of `out`.
    fn order(op: &OrderOp, x: &Self::Array, out: &[Meta]) -> Result<Results<Self::Array>>;
    /// Runs a primitive of the family `contract`.
    fn contract(op: &ContractOp, a: &Self::Array, b: &Self::Array, out: &Meta) -> Result<Self::Array>;
    /// Matrices are square, in the last two dimensions; batches are of one shape.
    fn linalg(op: &LinalgOp, inputs: &[&Self::Array], out: &Meta) -> Result<Self::Array>;
    /// The parts of matrices in the last two dimensions, one array per entry of `out`; matrices may come column by column.
    fn decomposition(op: &DecompositionOp, inputs: &[&Self::Array], out: &[Meta]) -> Result<Results<Self::Array>>;
    /// The dimensions that are transformed are the last ones, in order; the shape along each is at least 1.
    fn fft(op: &FftOp, x: &Self::Array, out: &Meta) -> Result<Self::Array>;
    /// The third input of a forward convolution is its bias, if any.
    fn conv(op: &ConvOp, inputs: &[&Self::Array], out: &Meta) -> Result<Self::Array>;
    /// Runs a primitive of the family `pool`.
    fn pool(op: &PoolOp, inputs: &[&Self::Array], out: &Meta) -> Result<Self::Array>;
    /// An error where the backend cannot count the elements of a result.
    fn countable(op: &'static str, out: &Meta) -> Result<()> {
        crate::shape::countable(op, &out.shape)
    }
    /// Runs a primitive of the family `nn`.
    fn nn(op: &NnOp, inputs: &[&Self::Array], out: &Meta) -> Result<Self::Array>;
    /// All steps of a recurrent layer, or of its gradient.
    fn recurrent(op: &RecurrentOp, inputs: &[&Self::Array], out: &[Meta]) -> Result<Results<Self::Array>>;
    /// Runs a primitive of the family `norm`.
    fn norm(op: &NormOp, inputs: &[&Self::Array], out: &Meta) -> Result<Self::Array>;
    /// Runs a primitive of the family `normalization`: arrays are as its `results` says.
    fn normalization(op: &NormalizationOp, inputs: &[&Self::Array], out: &[Meta]) -> Result<Results<Self::Array>>;
    /// Checks that targets are classes, or what is ignored.
    fn loss(op: &LossOp, inputs: &[&Self::Array], out: &Meta) -> Result<Self::Array>;
    /// Packed words, scales and biases of matrices.
    fn quantize(op: &QuantizeOp, x: &Self::Array, out: &[Meta]) -> Result<Results<Self::Array>>;
    /// Runs a primitive of the family `quantized`: packed words are int32, indices int64.
    fn quantized(op: &QuantizedOp, inputs: &[&Self::Array], out: &Meta) -> Result<Self::Array>;

    /// May an element-wise op of these dtypes be an instruction of a fused kernel?
    fn fuses(op: &ElementOp, inputs: &[DType], out: DType) -> bool {
        let _ = (op, inputs, out);
        false
    }
    /// The outputs of a fused kernel; nothing where the ops have to be run one by one.
    fn fused(kernel: &FusedKernel, inputs: &[&Self::Array]) -> Result<Option<Vec<Self::Array>>> {
        let _ = (kernel, inputs);
        Ok(None)
    }

    /// How many arrays [`Backend::cast_all`] takes at once: none where casts are best made one by one.
    fn most_casts() -> usize {
        0
    }
    /// Arrays of floats of one dtype in another one; nothing where they have to be cast one by one.
    fn cast_all(inputs: &[&Self::Array], dtype: DType) -> Result<Option<Vec<Self::Array>>> {
        let _ = (inputs, dtype);
        Ok(None)
    }

    /// A row-major copy in a storage of its own.
    fn copy(x: &Self::Array) -> Result<Self::Array>;
    /// Indices of the elements that are not zero, (count, ndim) int64. Evaluates.
    fn nonzero(x: &Self::Array) -> Result<Self::Array>;
    /// Writes `src`, of the same shape and dtype, over the elements of `dst`'s storage that `dst` shows, and raises the
    /// storage's version. `src` may share the storage. A `donated` one nobody reads again: its memory may be taken.
    fn assign(dst: &Self::Array, src: &Self::Array, donated: bool) -> Result<()>;
    /// Optimizer steps: per step and parameter its arrays, as [`Step`] says, all contiguous.
    fn steps(batches: &[(Step, Vec<Vec<&Self::Array>>)]) -> Result<()>;

    /// A new array from row-major bytes in native order.
    fn from_bytes(bytes: &[u8], out: &Meta) -> Result<Self::Array>;
    /// Hands over the elements as row-major bytes in native order, in place if they are in that order. Evaluates.
    fn with_bytes(x: &Self::Array, f: &mut dyn FnMut(&[u8])) -> Result<()>;
    /// Computes what is pending for these arrays; waits unless told not to.
    fn eval(arrays: &[&Self::Array], wait: bool) -> Result<()>;

    /// Where the storage of `x` begins, with its elements in the order that layouts mean. With `apart` it gets memory of its
    /// own, if it shares it with another storage that was asked for. Evaluates.
    fn expose(x: &Self::Array, apart: bool) -> Result<Exposed>;

    /// The device's memory.
    fn memory() -> MemoryStats;
    /// Starts the peak anew.
    fn reset_peak_memory();
    /// Frees what is kept for reuse.
    ///
    /// # Errors
    /// What the backend reports.
    fn empty_cache() -> Result<()>;
    /// Sets the most bytes that are kept for reuse; returns the limit until now.
    fn set_cache_limit(bytes: usize) -> Result<usize>;
}
