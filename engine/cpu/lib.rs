//! The CPU backend: strided arrays over shared buffers, Accelerate or OpenBLAS and our own vector kernels.
//!
//! One file per family of kernels, over `strided` (walking any layout), `simd` (loops, memory, threads) and `blas`.
//! `unsafe` is in the last two only. Invariant: a layout never reaches outside of its buffer.

#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::unreachable))] // Tests may end for want of memory.
#![recursion_limit = "512"]

pub mod airy;
mod attention;
mod batch_norm;
mod batch_norm_columns;
mod bessel;
mod bessel_lanes;
pub(crate) mod blas;
mod cast;
mod chebyshev;
mod compare;
mod complex;
mod conv;
pub mod copy;
mod create;
mod ctc;
mod decomposition;
mod element_fn;
mod elementwise;
mod embedding;
pub(crate) mod factor;
mod fft;
mod fused;
mod fused_loop;
mod gamma;
mod group_norm;
mod group_norm_columns;
mod index;
mod index_plan;
pub mod linalg;
mod loss;
mod matmul;
mod norm;
mod numbers;
mod optim;
mod order;
mod pool;
pub mod quadrature;
mod quantized;
mod random;
mod reduce;
mod reparameterized;
mod rnn_layer;
mod scan;
mod scatter;
mod search;
pub(crate) mod simd;
mod softmax_backward;
mod sort;
mod special;
mod strided;
#[cfg(test)]
pub(crate) mod tests;

use crate::fallible::kernel;
use crate::shape::{Axes, Layout, Shape, Strides};
pub use blas::prepare as prepare_blas;
pub use elementwise::{arithmetic_into, few};
use lucid_ir::backend::{Array, Backend, Exposed, MemoryStats, Results};
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
pub(crate) use lucid_ir::{
    dtype, error, fallible, shape, with_computed_dtype, with_dtype, DType, Device, Element, Error, Result, Scalar,
};
pub use matmul::matmul_into;
pub use simd::shared_memory::release_names;
pub use simd::threads::{num_threads, set_num_threads};
pub use simd::{as_bytes, from_bytes};
pub use simd::{Buffer, Offer};
pub use simd::{Foreign, Owner};
use simd::{ReadGuard, Word, WriteGuard};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use strided::Source;

/// An array of the CPU backend: a view of a buffer.
#[derive(Clone, Debug)]
pub struct CpuArray {
    buffer: Arc<Buffer>,
    layout: Layout,
    /// The buffer's, or what a view sees it as; the layout counts elements of this one.
    dtype: DType,
    /// The count of writes that it goes by where that is not the buffer's.
    apart: Option<Arc<AtomicU32>>,
}

impl CpuArray {
    /// A new row-major array, its elements written by `fill`.
    #[inline]
    pub fn build<T: Element>(shape: &[usize], fill: impl FnOnce(&mut [T]) -> Result<()>) -> Result<CpuArray> {
        let layout = Layout::contiguous(shape);
        let buffer = Buffer::filled(layout.numel(), fill)?;
        Ok(CpuArray { buffer, layout, dtype: T::DTYPE, apart: None })
    }

    /// New row-major arrays of one type, written together.
    fn build_several<T: Element, F: FnOnce(&mut [&mut [T]]) -> Result<()>>(
        out: &[Meta],
        mut begun: Vec<&mut [T]>,
        fill: F,
    ) -> Result<Results<CpuArray>> {
        let Some((last, rest)) = out.split_last() else { return fill(&mut begun).map(|()| Results::new()) };
        let mut made = Results::new();
        let own = CpuArray::build(&last.shape, |own: &mut [T]| {
            let all = std::iter::once(own).chain(begun.iter_mut().map(|part| &mut **part)).collect();
            made = CpuArray::build_several(rest, all, fill)?;
            Ok(())
        })?;
        made.push(own);
        Ok(made)
    }

    /// The same for code that only moves elements: they are words of the dtype's size.
    pub fn build_words<W: Word>(
        shape: &[usize],
        dtype: DType,
        fill: impl FnOnce(&mut [W]) -> Result<()>,
    ) -> Result<CpuArray> {
        let layout = Layout::contiguous(shape);
        let mut buffer = Buffer::uninit(dtype, layout.numel())?;
        fill(buffer.words_mut::<W>())?;
        Ok(CpuArray { buffer: Arc::new(buffer), layout, dtype, apart: None })
    }

    /// The sizes.
    pub fn shape(&self) -> &[usize] {
        &self.layout.shape
    }

    /// The number of elements.
    pub fn numel(&self) -> usize {
        self.layout.numel()
    }

    /// The buffer behind it.
    pub fn buffer(&self) -> &Arc<Buffer> {
        &self.buffer
    }

    /// The elements of the whole buffer, to read; `layout` says which of them are the array's.
    ///
    /// # Panics
    /// If `T` is not the dtype.
    pub fn read<T: Element>(&self) -> ReadGuard<'_, T> {
        self.buffer.read_span(self.reach_of(T::DTYPE == DType::Bool))
    }

    /// The elements of the whole buffer, to write those of the array; see [`Buffer::write`].
    ///
    /// # Errors
    /// As [`Buffer::write`].
    ///
    /// # Panics
    /// If `T` is not the dtype.
    pub fn write<T: Element>(&self) -> Result<WriteGuard<'_, T>> {
        self.buffer.write_span(self.reach_of(T::DTYPE == DType::Bool))
    }

    /// [`reach`](CpuArray::reach) for what may be `bool`; for other elements a guard shows all of the buffer in any case.
    #[inline]
    fn reach_of(&self, truth: bool) -> std::ops::Range<usize> {
        if truth {
            self.reach()
        } else {
            0..0
        }
    }

    /// From the first element to the last, as places in the buffer.
    fn reach(&self) -> std::ops::Range<usize> {
        self.layout.offset..self.layout.span().max(self.layout.offset)
    }

    /// The same as words of the dtype's size, for code that only moves them (see [`simd::with_word`]).
    ///
    /// # Panics
    /// If `W` does not fit the dtype.
    pub fn read_words<W: Word>(&self) -> ReadGuard<'_, W> {
        self.buffer.read_words::<W>(self.reach_of(W::fits(DType::Bool)))
    }

    /// The array's elements in what a guard shows, under the shape of a result.
    pub fn source<'a, T: Copy>(&self, guard: &'a ReadGuard<'_, T>, shape: &[usize]) -> Source<'a, T> {
        Source::new(guard, &self.layout, shape)
    }

    /// Itself where its elements are row-major without gaps, else a copy that does.
    pub fn contiguous(&self) -> Result<CpuArray> {
        if self.layout.is_contiguous() {
            return Ok(self.clone());
        }
        copy::copy(self)
    }

    /// The same, in memory that nobody else writes to: what was checked of the elements holds as long as they are used.
    fn settled(&self) -> Result<CpuArray> {
        match self.buffer.is_open() {
            true => copy::copy(self),
            false => self.contiguous(),
        }
    }

    /// Itself, or a row-major copy of a large array whose rows are not dense: gathering those costs more than the copy.
    fn packed(&self) -> Result<CpuArray> {
        let Layout { shape, strides, .. } = &self.layout;
        let inner = shape.iter().zip(strides).rev().find(|&(&n, _)| n > 1);
        match inner {
            Some((_, &s)) if s > 1 && self.numel() >= simd::threads::GRAIN => copy::copy(self),
            _ => Ok(self.clone()),
        }
    }

    /// A copy, or the array itself, in the order in which a layout without gaps shows elements of memory.
    fn ordered_as(&self, layout: &Layout) -> Result<CpuArray> {
        let Some((order, back)) = layout.permuted() else { return self.contiguous() };
        let permuted = |x: &CpuArray, axes: &[usize]| x.with_layout(x.layout.permuted_by(axes));
        Ok(permuted(&permuted(self, &order).contiguous()?, &back))
    }

    /// An array of the elements that a layout shows of a buffer.
    ///
    /// # Errors
    /// `InvalidValue` where the layout reaches beyond the buffer.
    pub fn on(buffer: Buffer, layout: Layout) -> Result<CpuArray> {
        if layout.span() > buffer.len() {
            let why = format!("{layout:?} reaches beyond {} elements", buffer.len());
            return Err(Error::value("from_foreign", why));
        }
        let dtype = buffer.dtype();
        Ok(CpuArray { buffer: Arc::new(buffer), layout, dtype, apart: None })
    }

    /// An array of an MLX array's elements in place; `None` where they have to be copied.
    pub fn lent(lasting: mlx_ffi::HostLease, out: &Meta) -> Option<CpuArray> {
        let buffer = Arc::new(Buffer::lent(lasting, out.dtype)?);
        let layout = Layout::contiguous(&out.shape);
        (buffer.len() == layout.numel()).then_some(CpuArray { buffer, layout, dtype: out.dtype, apart: None })
    }

    /// An array of the elements that a node of MLX's CPU stream gets.
    ///
    /// # Errors
    /// `InvalidValue` where they are not aligned, or are not what a dtype's elements may be.
    pub fn input(input: mlx_ffi::host::Input, dtype: DType) -> Result<CpuArray> {
        let shape: Shape = input.shape().iter().map(|&n| n as usize).collect();
        let strides: Strides = input.strides().iter().map(|s| s.unsigned_abs() as usize).collect();
        let reversed = |i: &usize| shape[*i] > 1 && input.strides()[*i] < 0;
        let flipped: Axes = (0..shape.len()).filter(reversed).collect();
        let foreign = Foreign::input(input);
        let len = foreign.bytes() / dtype.size();
        let array = CpuArray::on(Buffer::foreign(foreign, dtype, len)?, Layout { shape, strides, offset: 0 })?;
        if flipped.is_empty() {
            return Ok(array);
        }
        // From the lowest address on, axes with negative strides are seen from their other end.
        let out = Meta::new(array.shape(), dtype);
        CpuBackend::index(&IndexOp::Flip { axes: flipped }, &[&array], &out)
    }

    /// The whole buffer, for [`Buffer::offer`], where it is what the array shows, in its own layout.
    pub fn whole(&self) -> Option<&Buffer> {
        let all = self.numel() == self.buffer.len() && self.layout.offset == 0 && self.layout.is_contiguous();
        (all && self.dtype == self.buffer.dtype()).then_some(&*self.buffer)
    }

    /// The array seen under another layout of the same buffer.
    fn with_layout(&self, layout: Layout) -> CpuArray {
        self.seen_as(layout, self.dtype)
    }

    /// The same, its elements those of another dtype that the buffer can be seen as.
    fn seen_as(&self, layout: Layout, dtype: DType) -> CpuArray {
        // A view of nothing may start beyond its storage.
        debug_assert!(layout.numel() == 0 || layout.span() * dtype.size() <= self.buffer.bytes());
        CpuArray { buffer: self.buffer.clone(), layout, dtype, apart: self.apart.clone() }
    }

    /// A row-major array's elements in what a guard lets write.
    ///
    /// # Panics
    /// If the array is not contiguous.
    pub fn slice_mut<'a, T>(&self, guard: &'a mut WriteGuard<'_, T>) -> &'a mut [T] {
        assert!(self.layout.is_contiguous(), "a kernel needs contiguous elements");
        &mut guard[self.layout.offset..self.layout.offset + self.numel()]
    }

    /// A row-major array's elements in what a guard shows.
    ///
    /// # Panics
    /// If the array is not contiguous.
    pub fn slice<'a, T: Copy>(&self, guard: &'a ReadGuard<'_, T>) -> &'a [T] {
        assert!(self.layout.is_contiguous(), "a kernel needs contiguous elements");
        &guard[self.layout.offset..self.layout.offset + self.numel()]
    }
}

impl Array for CpuArray {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn dtype(&self) -> DType {
        self.dtype
    }

    fn version(&self) -> u32 {
        self.apart.as_ref().map_or_else(|| self.buffer.version(), |writes| writes.load(Ordering::Acquire))
    }

    fn touch(&self) {
        match &self.apart {
            Some(writes) => drop(writes.fetch_add(1, Ordering::Release)),
            None => self.buffer.bump_version(),
        }
    }

    fn apart(&self) -> CpuArray {
        CpuArray { apart: Some(Arc::default()), ..self.clone() }
    }

    fn shares_storage(&self, other: &CpuArray) -> bool {
        Arc::ptr_eq(&self.buffer, &other.buffer)
    }

    fn storage_key(&self) -> usize {
        Arc::as_ptr(&self.buffer) as usize
    }

    fn is_unshared(&self) -> bool {
        Arc::strong_count(&self.buffer) == 1
    }

    fn storage_numel(&self) -> usize {
        self.buffer.stated() / self.dtype.size()
    }

    fn storage_bytes(&self) -> usize {
        self.buffer.stated()
    }

    fn resize_storage(&self, bytes: usize) -> Result<bool> {
        self.buffer.resize(bytes)
    }
}

/// The CPU backend.
pub struct CpuBackend;

impl Backend for CpuBackend {
    type Array = CpuArray;

    fn supports(_: DType) -> bool {
        true
    }

    fn create(op: &CreateOp, out: &Meta) -> Result<CpuArray> {
        kernel(|| create::create(op, out))
    }

    fn random(op: &RandomOp, out: &Meta) -> Result<CpuArray> {
        kernel(|| random::random(op, out))
    }

    fn derivative(op: &RandomOp, inputs: &[&CpuArray], out: &Meta) -> Result<CpuArray> {
        kernel(|| reparameterized::derivative(op, inputs, out))
    }

    fn cast(x: &CpuArray, dtype: DType) -> Result<CpuArray> {
        kernel(|| cast::cast(x, dtype))
    }

    fn unary(op: &UnaryOp, x: &CpuArray, _: &Meta) -> Result<CpuArray> {
        kernel(|| elementwise::unary(op, x, false))
    }

    fn unary_over(op: &UnaryOp, x: &CpuArray, _: &Meta) -> Result<CpuArray> {
        kernel(|| elementwise::unary(op, x, x.buffer.writable()))
    }

    fn binary(op: &BinaryOp, a: &CpuArray, b: &CpuArray, out: &Meta) -> Result<CpuArray> {
        kernel(|| elementwise::binary(op, a, b, out, false))
    }

    fn binary_rounded(op: &BinaryOp, a: &CpuArray, b: &CpuArray, out: &Meta) -> Result<CpuArray> {
        kernel(|| elementwise::binary_rounded(op, a, b, out))
    }

    fn binary_over(op: &BinaryOp, a: &CpuArray, b: &CpuArray, out: &Meta) -> Result<CpuArray> {
        kernel(|| elementwise::binary(op, a, b, out, a.buffer.writable() && !a.buffer.overlaps(&b.buffer)))
    }

    fn compare(op: &CompareOp, a: &CpuArray, b: &CpuArray, out: &Meta) -> Result<CpuArray> {
        kernel(|| compare::compare(op, a, b, out))
    }

    fn select(op: &SelectOp, c: &CpuArray, a: &CpuArray, b: &CpuArray, out: &Meta) -> Result<CpuArray> {
        kernel(|| compare::select(op, c, a, b, out))
    }

    fn reduce(op: &ReduceOp, how: &Reduction, x: &CpuArray, out: &Meta) -> Result<CpuArray> {
        kernel(|| reduce::reduce(op, how, x, out))
    }

    fn scan(op: &ScanOp, inputs: &[&CpuArray], out: &Meta) -> Result<CpuArray> {
        kernel(|| scan::scan(op, inputs, out))
    }

    fn view(op: &ViewOp, x: &CpuArray, layout: Layout) -> Result<CpuArray> {
        let dtype = op.dtype(x.dtype);
        if dtype != x.dtype {
            x.buffer.admit(dtype)?;
        }
        Ok(x.seen_as(layout, dtype))
    }

    fn index(op: &IndexOp, inputs: &[&CpuArray], out: &Meta) -> Result<CpuArray> {
        kernel(|| index::index(op, inputs, out))
    }

    fn index_into(op: &IndexOp, dst: &CpuArray, rest: &[&CpuArray]) -> Result<()> {
        kernel(|| scatter::scatter_into(op, dst, rest))
    }

    fn sort(op: &SortOp, x: &[&CpuArray], out: &Meta) -> Result<CpuArray> {
        kernel(|| sort::sort(op, x, out))
    }

    fn order(op: &OrderOp, x: &CpuArray, out: &[Meta]) -> Result<Results<CpuArray>> {
        kernel(|| order::order(op, x, out))
    }

    fn contract(op: &ContractOp, a: &CpuArray, b: &CpuArray, out: &Meta) -> Result<CpuArray> {
        match op {
            ContractOp::MatMul { .. } => kernel(|| matmul::matmul(a, b, out)),
        }
    }

    fn linalg(op: &LinalgOp, inputs: &[&CpuArray], out: &Meta) -> Result<CpuArray> {
        kernel(|| linalg::linalg(op, inputs, out))
    }

    fn decomposition(op: &DecompositionOp, inputs: &[&CpuArray], out: &[Meta]) -> Result<Results<CpuArray>> {
        kernel(|| decomposition::decomposition(op, inputs, out))
    }

    fn fft(op: &FftOp, x: &CpuArray, out: &Meta) -> Result<CpuArray> {
        kernel(|| fft::fft(op, x, out))
    }

    fn conv(op: &ConvOp, inputs: &[&CpuArray], out: &Meta) -> Result<CpuArray> {
        kernel(|| conv::conv(op, inputs, out))
    }

    fn pool(op: &PoolOp, inputs: &[&CpuArray], out: &Meta) -> Result<CpuArray> {
        kernel(|| pool::pool(op, inputs, out))
    }

    fn nn(op: &NnOp, inputs: &[&CpuArray], out: &Meta) -> Result<CpuArray> {
        kernel(|| fused::nn(op, inputs, out))
    }

    fn normalization(op: &NormalizationOp, inputs: &[&CpuArray], out: &[Meta]) -> Result<Results<CpuArray>> {
        kernel(|| norm::normalization(op, inputs, out))
    }

    fn recurrent(op: &RecurrentOp, inputs: &[&CpuArray], out: &[Meta]) -> Result<Results<CpuArray>> {
        kernel(|| rnn_layer::recurrent(op, inputs, out))
    }

    fn norm(op: &NormOp, inputs: &[&CpuArray], out: &Meta) -> Result<CpuArray> {
        kernel(|| norm::norm(op, inputs, out))
    }

    fn quantize(op: &QuantizeOp, x: &CpuArray, out: &[Meta]) -> Result<Results<CpuArray>> {
        kernel(|| quantized::quantize(op, x, out))
    }

    fn quantized(op: &QuantizedOp, inputs: &[&CpuArray], out: &Meta) -> Result<CpuArray> {
        kernel(|| quantized::quantized(op, inputs, out))
    }
    fn loss(op: &LossOp, inputs: &[&CpuArray], out: &Meta) -> Result<CpuArray> {
        kernel(|| loss::loss(op, inputs, out))
    }

    fn fuses(op: &ElementOp, inputs: &[DType], out: DType) -> bool {
        fused_loop::fuses(op, inputs, out)
    }

    fn fused(fused: &FusedKernel, inputs: &[&CpuArray]) -> Result<Option<Vec<CpuArray>>> {
        kernel(|| fused_loop::fused(fused, inputs))
    }

    fn copy(x: &CpuArray) -> Result<CpuArray> {
        kernel(|| copy::copy(x))
    }

    fn nonzero(x: &CpuArray) -> Result<CpuArray> {
        kernel(|| copy::nonzero(x))
    }

    fn assign(dst: &CpuArray, src: &CpuArray, donated: bool) -> Result<()> {
        kernel(|| copy::assign(dst, src, donated))
    }

    fn steps(batches: &[(Step, Vec<Vec<&CpuArray>>)]) -> Result<()> {
        kernel(|| optim::steps(batches))
    }

    fn from_bytes(bytes: &[u8], out: &Meta) -> Result<CpuArray> {
        copy::from_bytes(bytes, out)
    }

    fn with_bytes(x: &CpuArray, f: &mut dyn FnMut(&[u8])) -> Result<()> {
        kernel(|| copy::with_bytes(x, f))
    }

    fn eval(_: &[&CpuArray], _: bool) -> Result<()> {
        Ok(())
    }

    fn expose(x: &CpuArray, _: bool) -> Result<Exposed> {
        let owner = Box::new(x.buffer.clone());
        Ok(Exposed { address: x.buffer.expose()?, writable: x.buffer.writable(), owner })
    }

    fn memory() -> MemoryStats {
        let simd::alloc::Stats { current, peak, cached, allocations } = simd::alloc::stats();
        MemoryStats { current, peak, cached, allocations: allocations as u64 }
    }

    fn reset_peak_memory() {
        simd::alloc::reset_peak();
    }

    fn empty_cache() -> Result<()> {
        simd::alloc::empty_cache();
        Ok(())
    }

    fn set_cache_limit(bytes: usize) -> Result<usize> {
        Ok(simd::alloc::set_cache_limit(bytes))
    }
}
