//! Lucid: tensors, automatic differentiation and training with PyTorch's semantics.
//!
//! Two devices: `cpu` (Accelerate on Apple, OpenBLAS and SIMD kernels elsewhere) and one GPU, MLX's lazy arrays. Ops are
//! declared once, in [`ops`], and are methods of [`Tensor`]; layers are in [`nn`], optimizers and schedules in [`optim`], data in
//! [`data`], files in [`checkpoint`], derivatives and batches of functions in [`func`]. This page goes from a tensor to a model
//! that is trained and saved; [`coming_from`] is for those who know another framework.
//!
//! # Tensors
//!
//! ```
//! use lucid::prelude::*;
//! # fn main() -> Result<()> {
//! let x = tensor!([[1.0, 2.0], [3.0, 4.0]])?;
//! let y = ((&x * 2.0)? + &x)?; // every op gives a Result; nothing panics
//! assert_eq!(y.shape(), [2, 2]);
//! assert_close(y.i((.., 1))?, [6.0, 12.0]); // Python's y[:, 1]
//! assert_close(y.sum_over(0)?, [12.0, 18.0]);
//! assert_close(x.matmul(&x)?.mean_all()?, 13.5);
//! assert_eq!(tensor!([1, 2])?.to_string(), "tensor([1, 2])");
//! # Ok(())
//! # }
//! ```
//!
//! # Gradients
//!
//! ```
//! use lucid::prelude::*;
//! # fn main() -> Result<()> {
//! let x = tensor!([1.0, 2.0, 3.0])?.requires_grad_(true)?;
//! x.square()?.sum_all()?.backward()?;
//! assert_close(x.grad().unwrap(), [2.0, 4.0, 6.0]);
//! # Ok(())
//! # }
//! ```
//!
//! # A model, trained and saved
//!
//! ```
//! use lucid::data::TensorDataset;
//! use lucid::prelude::*;
//!
//! #[derive(Module)]
//! struct Mlp {
//!     hidden: nn::Linear,
//!     out: nn::Linear,
//! }
//!
//! impl Mlp {
//!     fn new(on: Device) -> Result<Mlp> {
//!         Ok(Mlp { hidden: nn::Linear::new(2, 16, on)?, out: nn::Linear::new(16, 1, on)? })
//!     }
//! }
//!
//! impl Forward for Mlp {
//!     fn forward(&self, x: &Tensor) -> Result<Tensor> {
//!         self.out.forward(&self.hidden.forward(x)?.tanh()?)
//!     }
//! }
//!
//! # fn main() -> Result<()> {
//! lucid::manual_seed(0);
//! let x = Tensor::randn(dims![64, 2])?;
//! let y = (x.i((.., 0..1))? * x.i((.., 1..2))?)?; // what it is to learn: a product
//! let loader = DataLoader::new(TensorDataset::new([x, y])?, 16).shuffle(0);
//!
//! let mut model = Mlp::new(Device::Cpu)?;
//! let mut adam = optim::Adam::new(model.parameters(), 1e-2);
//! let criterion = nn::MseLoss::new();
//! let mut losses = Vec::new();
//! for _epoch in 0..20 {
//!     for batch in loader.iter()? {
//!         let [x, y] = batch?;
//!         let loss = criterion.forward(&model.forward(&x)?, &y)?;
//!         loss.eval()?; // on the GPU this runs the lazy forward graph
//!         adam.zero_grad()?;
//!         loss.backward()?;
//!         adam.step()?;
//!         losses.push(loss.item_f64()?);
//!     }
//! }
//! assert!(losses[losses.len() - 1] < losses[0]);
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("run.safetensors");
//! let run = checkpoint::joined([("model", &model.state_dict()?), ("adam", &adam.state_dict()?)])?;
//! checkpoint::save(&path, &run)?; // replaced in one step: the old file or the new one, whole
//! let run = checkpoint::load(&path, Device::Cpu)?; // reads PyTorch's .pt files, too
//! model.load_state_dict(&checkpoint::section(&run, "model"))?;
//! adam.load_state_dict(&checkpoint::section(&run, "adam"))?;
//! model.eval();
//! # Ok(())
//! # }
//! ```
//!
//! Parameters have PyTorch's names, so that a model that was trained in Python runs here, and the other way round. An error
//! of a layer says where the layer is: `encoder.layers.3.self_attn: multi_head_attention: …`.
//!
//! # In `Cargo.toml`
//!
//! ```toml
//! [dependencies]
//! lucid = { git = "https://…", rev = "…" }
//! ```
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `gpu` | yes | the GPU device: MLX. Without it nothing of MLX is compiled, linked or needed, and [`Device::Gpu`] is an error |
//! | `safetensors` | yes | safetensors files. Without it checkpoints are read from `.pt` files alone |
//! | `image` | | [`data`]'s `ImageFolder` and `read_image`: PNG and JPEG |
//! | `llm` | | tokenizers and chat templates, in [`llm`] |
//!
//! The CPU is always there: what goes to a device or comes from it goes through it. `examples/embed` has the build script of
//! three lines that lets a program run without `LD_LIBRARY_PATH`; `docs/rust.md` tells how MLX and OpenBLAS are found.
#![recursion_limit = "512"]
// `unsafe` is in the rooms alone that the README lists; each says so in its first lines.
#![deny(unsafe_code)]
// Tests may panic, and their lengths are their own.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::unreachable))]
#![cfg_attr(docsrs, feature(doc_cfg))]

// Derived code names this crate by its name, here too.
extern crate self as lucid;

// `op_doc!`, which the build script makes of engine/ops/docs.
include!(concat!(env!("OUT_DIR"), "/op_docs.rs"));

pub mod autocast;
pub mod autograd;
#[doc(hidden)]
pub mod batching;
pub mod checkpoint;
mod compat;
mod convenience;
pub mod data;
pub mod determinism;
mod dispatch;
mod display;
pub mod distributed;
pub mod einsum_order;
pub mod float64;
mod format;
pub mod func;
pub mod graph;
mod in_place;
pub mod indexing;
mod inplace_views;
#[doc(hidden)]
pub mod interop;
pub mod io;
mod layout_propagation;
mod literal;
pub mod llm;
mod meta;
pub mod metal;
pub mod nn;
pub mod ops;
pub mod optim;
mod output_donation;
pub mod prelude;
mod prim;
pub mod profile;
mod sparse;
mod tensor;
pub mod testing;
pub mod warnings;

pub use autograd::{enable_grad, grad_enabled, no_grad, set_grad_enabled};
pub use dispatch::{empty_cache, memory_stats, reset_peak_memory_stats, set_cache_limit};
pub use literal::{tensor, Nested};
pub(crate) use lucid_core::fallible;
#[doc(hidden)]
pub use lucid_core::fallible::ensure_room;
#[doc(hidden)]
pub use lucid_core::with_dtype;
pub use lucid_core::{
    default_device, default_dtype, dtype, error, manual_seed, random, set_default_device, set_default_dtype, shape,
    DType, Device, Element, Error, Generator, MemoryFormat, Parsed, Result, Scalar,
};
pub use lucid_cpu::{Foreign, Owner};
pub use lucid_ir::backend::MemoryStats;
#[doc(hidden)]
pub use lucid_ir::ops::binary::BinaryOp;
#[doc(hidden)]
pub use lucid_ir::{
    binary_ops, communication_ops, compare_ops, contract_ops, conv_ops, create_ops, decomposition_ops, fft_ops,
    index_ops, linalg_ops, loss_ops, nn_ops, norm_ops, normalization_ops, order_ops, pool_ops, quantize_ops,
    quantized_ops, random_ops, recurrent_ops, reduce_ops, rows, scan_ops, select_ops, sort_ops, transfer_ops,
    unary_ops, view_ops,
};
pub use ops::Operand;
pub use tensor::{eval, Tensor};

/// What programs of other frameworks are called here.
///
/// | | here | candle | burn | tch |
/// |---|---|---|---|---|
/// | a tensor | `tensor!([1.0, 2.0])?` | `Tensor::new(&[1f32, 2.], &dev)?` | `Tensor::from_data(…, &dev)` | `Tensor::from_slice(…)` |
/// | from a vector | `Tensor::from_vec(v, (2, 3), dev)?` | `Tensor::from_vec(v, (2, 3), &dev)?` | `TensorData::new(v, [2, 3])` | `Tensor::from_slice(&v).view([2, 3])` |
/// | a number of one | `x.to_scalar::<f32>()?` | `x.to_scalar::<f32>()?` | `x.into_scalar()` | `x.double_value(&[])` |
/// | a size | `x.size(-1)?`, `x.shape()[1]` | `x.dim(1)?` | `x.dims()[1]` | `x.size()[1]` |
/// | the largest and where | `x.max_dim(1, false)?` | `x.max(1)?`, `x.argmax(1)?` | `x.max_dim_with_indices(1)` | `x.max_dim(1, false)` |
/// | a mean over some | `x.mean_over([2, 3])?` | `x.mean((2, 3))?` | `x.mean_dim(1)` | `x.mean_dim(&[2, 3][..], false, kind)` |
/// | sum of squares | `(&x * &x)?.sum_all()?` | `x.sqr()?.sum_all()?` | `x.powf_scalar(2.0).sum()` | `x.square().sum(kind)` |
/// | a part | `x.i((.., 1..3))?` | `x.i((.., 1..3))?` | `x.slice([0..n, 1..3])` | `x.i((.., 1..3))` |
/// | gradients | `y.backward()?; x.grad()` | `let g = y.backward()?; g.get(&x)` | `y.backward(); x.grad(&g)` | `y.backward(); x.grad()` |
/// | a layer | `nn::Linear::new(4, 2, on)?` | `linear(4, 2, vb.pp("fc"))?` | `LinearConfig::new(4, 2).init(&dev)` | `nn::linear(&vs / "fc", 4, 2, cfg)` |
/// | a model | `#[derive(Module)]` | parameters by hand, in a `VarMap` | `#[derive(Module)]` | a `VarStore` |
/// | chaining | `Sequential::new().add(…)` | `seq().add(…)` | by hand | `nn::seq().add(…)` |
/// | a parameter of its own | `nn::parameter(Tensor::ones(3)?)?` | `vb.get(3, "gain")?` | `Param::from_tensor(…)` | `vs.ones("gain", &[3])` |
/// | a schedule | `Scheduler::new(StepLr::new(5), &mut adam)`, `.step(&mut adam)` | by hand | `scheduler.step()` | by hand |
/// | a step | `adam.step()?` | `adam.step(&grads)?` | `model = adam.step(lr, model, grads)` | `adam.step()` |
/// | training mode | `model.train()`, `model.eval()` | an argument of `forward_t` | the device: `dev.autodiff()` | an argument of `forward_t` |
/// | devices | `model.to(Device::Gpu)?` | at the start, of the `VarBuilder` | `model.to_device(&dev)` | of the `VarStore` |
/// | weights | `model.load(path)?`, of `.safetensors` or `.pt` | `VarBuilder::from_mmaped_safetensors` | a record or a store | `vs.load(path)` |
/// | errors | `lucid::Error`, typed, with op, shapes and path | `candle_core::Error` | panics | `TchError`, or panics |
///
/// From candle: there is no variable store; parameters are tensors that require a gradient, and their names are the fields'. In
/// place of `DType::F32` at every constructor there is [`set_default_dtype`], and `.dtype(…)` of the options.
///
/// From burn: a tensor records gradients where it asks for them, not where its device does, and an optimizer changes parameters
/// in place. Ranks are not in types, so a shape that does not fit is a [`Result`], neither an error of the compiler nor a panic.
///
/// From tch: ops give a [`Result`] in both forms; there is no `f_` prefix. Sizes are of any integer type
/// in ops, and `usize` in shapes.
///
/// From ndarray: `Tensor::from_slice(array.as_slice().unwrap(), array.shape(), Device::Cpu)?` and
/// `Array::from_shape_vec(t.shape(), t.to_vec()?)` go there and back.
pub mod coming_from {}

/// Sets how many threads CPU kernels use: at least 1 and at most 1024, whatever is asked for.
pub fn set_num_threads(n: usize) {
    lucid_cpu::set_num_threads(n);
}

/// Has BLAS map the memory that it works in on this thread, so that a limit of memory that comes later is an error of the calls
/// that need more, and not the end of the process.
pub fn prepare_blas() {
    lucid_cpu::prepare_blas();
}

/// How many threads CPU kernels use.
pub fn get_num_threads() -> usize {
    lucid_cpu::num_threads()
}

/// Running custom kernels, in Metal's and CUDA's languages, where there is no GPU.
pub mod kernel_emulator {
    pub use lucid_mlx::emulator::{set_emulator, Emulator, KernelInput, KernelLaunch, KernelOutput, Language};
    pub use lucid_mlx::kernel_name::KERNEL_NAMES;
}

/// Settings of the GPU's lazy graph.
pub mod lazy {
    pub use crate::dispatch::primitives;
    pub use lucid_mlx::lazy::{limits, set_limits, Limits};
    pub use lucid_mlx::{lent_from, set_lent_from};
    pub use lucid_mlx::{set_hosting, set_lowering};

    use crate::dispatch::Wrapped;
    use crate::{Result, Tensor};
    use lucid_mlx::{GpuArray, GpuBackend};

    /// As [`primitives`], each with the dtypes of its inputs and of an output: lines such as `Add float32 float32 > float32`.
    ///
    /// # Errors
    /// Where MLX reports one.
    pub fn graph_nodes(tensors: &[&Tensor]) -> Result<Vec<String>> {
        let own: Vec<&GpuArray> = tensors.iter().filter_map(|t| GpuBackend::unwrap(t.storage())).collect();
        lucid_mlx::graph_nodes(&own)
    }
}
