//! The GPU backend, over MLX's lazy arrays: Metal, CUDA, or MLX's own CPU stream.
//!
//! Depends on the op enums, `shape` and mlx-ffi, and through `host_kernel` on the CPU backend's kernels, which MLX's CPU stream runs
//! as nodes of its graph; on nothing else of the engine. Each file holds one family; here the trait's
//! methods are handed to them, and errors get the op's name. Invariants: an op records and does not compute, but where
//! its documentation says that it evaluates; what PyTorch and MLX answer differently is PyTorch's.

#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::unreachable))] // Tests may end for want of memory.
#![recursion_limit = "512"]

mod airy;
mod align;
mod arg_extremum;
mod array;
mod attention;
mod bessel;
mod bounds;
mod cast_kernel;
pub mod communication;
mod contract;
mod conv;
mod convert;
mod create;
mod cross_entropy;
mod ctc;
mod custom_kernel;
mod decode_kernels;
mod decoder_layer;
mod decomposition;
mod element_fn;
mod element_kernels;
mod elementwise;
pub mod emulator;
mod factor;
mod fft;
mod float8;
mod framed;
mod fused_kernel;
mod fused_linear;
mod gamma;
mod group_norm_kernels;
mod host_kernel;
mod index;
mod integer;
mod kernel_cache;
mod kernel_error;
pub mod kernel_name;
mod kernel_text;
mod layer_input_text;
mod layer_kernel;
mod layer_kernel_text;
mod layer_product_text;
mod layout_kernels;
pub mod lazy;
mod linalg;
mod loss;
mod lower;
mod max_pool;
pub mod metal;
mod nn;
mod norm_kernels;
mod normalization;
mod optim;
mod order;
mod pool;
mod pool_windows;
mod quantized;
mod random;
mod reduce;
mod rnn_layer;
mod rnn_sequence;
mod row_kernels;
mod row_product;
mod row_product_text;
mod scan;
mod softmax_kernels;
mod sort;
mod special;
mod value;
mod view;
mod written;

#[cfg(test)]
mod tests;

pub use array::GpuArray;
pub use attention::attention_gradients;
pub use create::{lent_from, set_lent_from};
pub use decoder_layer::{decoder_layer, DecoderLayer};
pub use host_kernel::set_hosting;
pub use layer_kernel::KnownLayer;
pub use lower::set_lowering;
pub use row_product::{is_wanted as runs_decoder_layers, row_product, Gate, RowMatrix};

use crate::shape::Layout;
use kernel_error::{Fault, Made};
use lucid_ir::backend::{Backend, Exposed, MemoryStats, Results};
use lucid_ir::fused::{ElementOp, FusedKernel};
use lucid_ir::ops::binary::BinaryOp;
use lucid_ir::ops::compare::CompareOp;
use lucid_ir::ops::contract::ContractOp;
use lucid_ir::ops::conv::ConvOp;
use lucid_ir::ops::create::CreateOp;
use lucid_ir::ops::decomposition::DecompositionOp;
use lucid_ir::ops::fft::FftOp;
use lucid_ir::ops::index::IndexOp;
use lucid_ir::ops::linalg::LinalgOp;
use lucid_ir::ops::loss::LossOp;
use lucid_ir::ops::nn::NnOp;
use lucid_ir::ops::norm::NormOp;
use lucid_ir::ops::normalization::NormalizationOp;
use lucid_ir::ops::order::OrderOp;
use lucid_ir::ops::pool::PoolOp;
use lucid_ir::ops::quantize::QuantizeOp;
use lucid_ir::ops::quantized::QuantizedOp;
use lucid_ir::ops::random::RandomOp;
use lucid_ir::ops::recurrent::RecurrentOp;
use lucid_ir::ops::reduce::{ReduceOp, Reduction};
use lucid_ir::ops::scan::ScanOp;
use lucid_ir::ops::select::SelectOp;
use lucid_ir::ops::sort::SortOp;
use lucid_ir::ops::unary::UnaryOp;
use lucid_ir::ops::view::ViewOp;
use lucid_ir::optim::Step;
use lucid_ir::Meta;
pub(crate) use lucid_ir::{dtype, fallible, shape, DType, Device, Error, Result, Scalar};
use mlx_ffi::device::{self, Kind};
use mlx_ffi::{graph, memory, transforms, Array, HostLease, Memory};
use smallvec::SmallVec;
use std::sync::Once;
use value::Value;

/// MLX.
#[derive(Debug)]
pub struct GpuBackend;

/// How much freed memory MLX's CPU allocator keeps. Its own limit, 32 MB, makes each larger temporary a fresh allocation.
const CPU_CACHE: usize = 1 << 30;

/// Sets MLX up for this process, before the first array.
fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if matches!(device::kind(), Ok(Kind::Cpu)) {
            // Without it MLX is slower, not wrong.
            let _ = memory::set_cache_limit(CPU_CACHE);
        }
    });
}

/// Are there kernels of the engine's own, on Metal, on CUDA or in an emulator?
pub fn runs_custom_kernels() -> bool {
    custom_kernel::room().is_some()
}

/// An inner result as the trait's, in the name of an op.
macro_rules! named {
    ($op:expr, $made:expr) => {
        $made.map_err(|e| Fault::of(e, $op.name()))
    };
}

impl Backend for GpuBackend {
    type Array = GpuArray;

    fn supports(dtype: DType) -> bool {
        !matches!(dtype, DType::F64 | DType::C128)
    }

    fn countable(op: &'static str, out: &Meta) -> Result<()> {
        crate::shape::countable(op, &out.shape)?;
        convert::countable(&out.shape).map_err(|e| e.of(op))
    }

    fn create(op: &CreateOp, out: &Meta) -> Result<GpuArray> {
        prepare();
        named!(op, create::create(op, out))
    }
    fn random(op: &RandomOp, out: &Meta) -> Result<GpuArray> {
        prepare();
        named!(op, random::random(op, out))
    }
    fn derivative(op: &RandomOp, inputs: &[&GpuArray], out: &Meta) -> Result<GpuArray> {
        named!(op, random::derivative(op, inputs, out))
    }
    fn cast(x: &GpuArray, dtype: DType) -> Result<GpuArray> {
        elementwise::cast(x, dtype).map_err(|e| e.of("to"))
    }
    fn unary(op: &UnaryOp, x: &GpuArray, out: &Meta) -> Result<GpuArray> {
        named!(op, elementwise::unary(op, x, out))
    }
    fn binary(op: &BinaryOp, a: &GpuArray, b: &GpuArray, out: &Meta) -> Result<GpuArray> {
        named!(op, elementwise::binary(op, a, b, out))
    }
    fn compare(op: &CompareOp, a: &GpuArray, b: &GpuArray, out: &Meta) -> Result<GpuArray> {
        named!(op, elementwise::compare(op, a, b, out))
    }
    fn select(op: &SelectOp, c: &GpuArray, a: &GpuArray, b: &GpuArray, out: &Meta) -> Result<GpuArray> {
        named!(op, elementwise::select(op, c, a, b, out))
    }
    fn reduce(op: &ReduceOp, how: &Reduction, x: &GpuArray, out: &Meta) -> Result<GpuArray> {
        named!(op, reduce::reduce(op, how, x, out))
    }
    fn scan(op: &ScanOp, inputs: &[&GpuArray], out: &Meta) -> Result<GpuArray> {
        named!(op, scan::scan(op, inputs, out))
    }
    fn view(op: &ViewOp, x: &GpuArray, layout: Layout) -> Result<GpuArray> {
        Ok(x.seen_as(op, layout))
    }
    fn index(op: &IndexOp, inputs: &[&GpuArray], out: &Meta) -> Result<GpuArray> {
        named!(op, index::index(op, inputs, out))
    }
    fn index_into(op: &IndexOp, dst: &GpuArray, rest: &[&GpuArray]) -> Result<()> {
        named!(op, index::index_into(op, dst, rest))
    }
    fn sort(op: &SortOp, inputs: &[&GpuArray], out: &Meta) -> Result<GpuArray> {
        named!(op, sort::sort(op, inputs, out))
    }
    fn order(op: &OrderOp, x: &GpuArray, out: &[Meta]) -> Result<Results<GpuArray>> {
        named!(op, order::order(op, x, out))
    }
    fn contract(op: &ContractOp, a: &GpuArray, b: &GpuArray, out: &Meta) -> Result<GpuArray> {
        named!(op, contract::contract(op, a, b, out))
    }
    fn linalg(op: &LinalgOp, inputs: &[&GpuArray], out: &Meta) -> Result<GpuArray> {
        named!(op, linalg::linalg(op, inputs, out))
    }
    fn decomposition(op: &DecompositionOp, inputs: &[&GpuArray], out: &[Meta]) -> Result<Results<GpuArray>> {
        named!(op, decomposition::decomposition(op, inputs, out))
    }
    fn fft(op: &FftOp, x: &GpuArray, out: &Meta) -> Result<GpuArray> {
        named!(op, fft::fft(op, x, out))
    }
    fn conv(op: &ConvOp, inputs: &[&GpuArray], out: &Meta) -> Result<GpuArray> {
        named!(op, conv::conv(op, inputs, out))
    }
    fn pool(op: &PoolOp, inputs: &[&GpuArray], out: &Meta) -> Result<GpuArray> {
        named!(op, pool::pool(op, inputs, out))
    }
    fn nn(op: &NnOp, inputs: &[&GpuArray], out: &Meta) -> Result<GpuArray> {
        named!(op, nn::nn(op, inputs, out))
    }
    fn normalization(op: &NormalizationOp, inputs: &[&GpuArray], out: &[Meta]) -> Result<Results<GpuArray>> {
        named!(op, normalization::normalization(op, inputs, out))
    }

    fn recurrent(op: &RecurrentOp, inputs: &[&GpuArray], out: &[Meta]) -> Result<Results<GpuArray>> {
        named!(op, rnn_layer::recurrent(op, inputs, out))
    }
    fn norm(op: &NormOp, inputs: &[&GpuArray], out: &Meta) -> Result<GpuArray> {
        named!(op, nn::norm(op, inputs, out))
    }
    fn loss(op: &LossOp, inputs: &[&GpuArray], out: &Meta) -> Result<GpuArray> {
        named!(op, loss::loss(op, inputs, out))
    }
    fn quantize(op: &QuantizeOp, x: &GpuArray, out: &[Meta]) -> Result<Results<GpuArray>> {
        named!(op, quantized::quantize(op, x, out))
    }
    fn quantized(op: &QuantizedOp, inputs: &[&GpuArray], out: &Meta) -> Result<GpuArray> {
        named!(op, quantized::quantized(op, inputs, out))
    }

    fn fuses(op: &ElementOp, inputs: &[DType], out: DType) -> bool {
        fused_kernel::fuses(op, inputs, out)
    }
    fn fused(kernel: &FusedKernel, inputs: &[&GpuArray]) -> Result<Option<Vec<GpuArray>>> {
        fused_kernel::fused(kernel, inputs).map_err(|e| e.of("fused"))
    }

    fn most_casts() -> usize {
        cast_kernel::most()
    }
    fn cast_all(inputs: &[&GpuArray], dtype: DType) -> Result<Option<Vec<GpuArray>>> {
        cast_kernel::cast_all(inputs, dtype).map_err(|e| e.of("cast"))
    }

    fn copy(x: &GpuArray) -> Result<GpuArray> {
        // MLX's arrays do not change, so a storage of its own is all that a copy needs.
        let copied = || -> Made<GpuArray> {
            let v = x.value()?;
            let value = Value::new(v.array()?.clone(), v.perm.clone()).knowing(v.known);
            drop(v);
            GpuArray::new(value, x.shape(), x.element())
        };
        copied().map_err(|e| e.of("clone"))
    }
    fn nonzero(x: &GpuArray) -> Result<GpuArray> {
        create::nonzero(x).map_err(|e| e.of("nonzero"))
    }
    fn assign(dst: &GpuArray, src: &GpuArray, _spent: bool) -> Result<()> {
        let assigned = || -> Made<()> {
            let value = src.value()?.clone();
            dst.replace(value)
        };
        assigned().map_err(|e| e.of("copy_"))
    }
    fn steps(batches: &[(Step, Vec<Vec<&GpuArray>>)]) -> Result<()> {
        optim::steps(batches).map_err(|e| e.of("step"))
    }

    fn from_bytes(bytes: &[u8], out: &Meta) -> Result<GpuArray> {
        prepare();
        create::from_bytes(bytes, out).map_err(|e| e.of("tensor"))
    }
    fn with_bytes(x: &GpuArray, f: &mut dyn FnMut(&[u8])) -> Result<()> {
        create::with_bytes(x, f).map_err(|e| e.of("to_bytes"))
    }
    fn eval(arrays: &[&GpuArray], wait: bool) -> Result<()> {
        let evaluated = || -> Made<()> {
            let granted = lazy::granted()?;
            let held = arrays.iter().map(|a| a.value()).collect::<Made<SmallVec<[_; 8]>>>()?;
            let arrays = held.iter().map(|v| v.array()).collect::<Made<SmallVec<[_; 8]>>>()?;
            let refs: SmallVec<[&Array; 8]> = arrays.into_iter().chain(&granted).collect();
            if wait {
                transforms::eval(&refs)?
            } else {
                transforms::async_eval(&refs)?
            }
            lazy::settle(wait);
            Ok(())
        };
        evaluated().map_err(|e| e.of("eval"))
    }

    fn expose(x: &GpuArray, apart: bool) -> Result<Exposed> {
        x.expose(apart).map_err(|e| e.of("data_ptr"))
    }

    fn memory() -> MemoryStats {
        let read = |f: fn() -> mlx_ffi::Result<usize>| f().unwrap_or_default();
        // MLX does not say how often it allocated.
        MemoryStats {
            current: read(memory::active),
            peak: read(memory::peak),
            cached: read(memory::cache),
            allocations: 0,
        }
    }
    fn reset_peak_memory() {
        // It fails only where MLX cannot be used at all, which every op reports.
        let _ = memory::reset_peak();
    }
    fn empty_cache() -> Result<()> {
        memory::clear_cache().map_err(|e| Fault::from(e).of("empty_cache"))
    }
    fn set_cache_limit(bytes: usize) -> Result<usize> {
        memory::set_cache_limit(bytes).map_err(|e| Fault::from(e).of("set_cache_limit"))
    }
}

/// Do the host and the device use the same memory? Where not, nothing is shown in place and all is copied: an NVIDIA GPU's
/// memory is MLX's to show to the host, but page by page.
pub fn shares_memory() -> bool {
    !mlx_ffi::device::copies_by_device()
}

/// Copies the elements to as many row-major bytes. Evaluates.
pub fn copy_to(x: &GpuArray, out: &mut [u8]) -> Result<()> {
    create::copy_to(x, out).map_err(|e| e.of("to"))
}

/// The elements in place, for the host to use; `None` where it has to copy them. Evaluates.
pub fn lend(x: &GpuArray) -> Result<Option<HostLease>> {
    create::lend(x).map_err(|e| e.of("to"))
}

/// A new array of the elements that [`lend`] lent.
pub fn again(lasting: &HostLease, bytes: &[u8], out: &Meta) -> Result<GpuArray> {
    create::again(lasting, bytes, out).map_err(|e| e.of("to"))
}

/// A new array of the host's elements, in place where MLX can, and what keeps MLX from reusing their memory.
pub fn over(memory: Memory, bytes: &[u8], out: &Meta) -> Result<(GpuArray, HostLease)> {
    prepare();
    create::over(memory, bytes, out).map_err(|e| e.of("to"))
}

/// The MLX primitives that evaluating the arrays together would run, by name, the most frequent first.
pub fn primitives(arrays: &[&GpuArray]) -> Result<Vec<(String, usize)>> {
    looked(arrays, graph::primitives)
}

/// The same with the dtypes of inputs and an output: lines such as `Add float32 float32 > float32`.
pub fn graph_nodes(arrays: &[&GpuArray]) -> Result<Vec<String>> {
    looked(arrays, graph::nodes)
}

/// What a look at the graph below the arrays finds.
fn looked<T>(arrays: &[&GpuArray], look: impl Fn(&[&Array]) -> mlx_ffi::Result<T>) -> Result<T> {
    let listed = || -> Made<T> {
        let held = arrays.iter().map(|a| a.value()).collect::<Made<SmallVec<[_; 8]>>>()?;
        let refs = held.iter().map(|v| v.array()).collect::<Made<SmallVec<[_; 8]>>>()?;
        Ok(look(&refs)?)
    };
    listed().map_err(|e| e.of("primitives"))
}
