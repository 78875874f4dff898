//! The CPU backend: strided arrays over shared buffers, Accelerate or OpenBLAS and our own vector kernels.
//!
//! One file per family of kernels, over `strided` (walking any layout), `simd` (loops, memory, threads) and `blas`.
//! `unsafe` is in the last two only. Invariant: a layout never reaches outside of its buffer.

pub(crate) mod airy;
mod attention;
mod bessel;
pub(crate) mod blas;
mod cast;
mod channels;
mod compare;
mod complex;
mod conv;
pub(crate) mod copy;
mod create;
mod elementwise;
pub(crate) mod factor;
mod fused;
mod gradients;
mod index;
pub(crate) mod linalg;
mod loss;
mod matmul;
mod norm;
mod numbers;
mod optim;
mod pool;
pub(crate) mod quadrature;
mod random;
mod reduce;
mod scan;
mod scatter;
pub(crate) mod simd;
mod sort;
mod special;
mod strided;
#[cfg(test)]
pub(crate) mod tests;

use crate::backend::{Array, Backend, Exposed, MemoryStats};
use crate::dispatch::Meta;
use crate::dtype::Element;
use crate::ops::binary::BinaryOp;
use crate::ops::compare::{select::SelectOp, CompareOp};
use crate::ops::contract::ContractOp;
use crate::ops::conv::ConvOp;
use crate::ops::create::CreateOp;
use crate::ops::index::IndexOp;
use crate::ops::linalg::LinalgOp;
use crate::ops::loss::LossOp;
use crate::ops::nn::NnOp;
use crate::ops::norm::NormOp;
use crate::ops::pool::PoolOp;
use crate::ops::random::RandomOp;
use crate::ops::reduce::{ReduceOp, Reduction};
use crate::ops::scan::ScanOp;
use crate::ops::sort::SortOp;
use crate::ops::unary::UnaryOp;
use crate::ops::view::ViewOp;
use crate::optim::Step;
use crate::shape::{Axes, Layout, Shape, Strides};
use crate::{DType, Error, Result};
pub(crate) use norm::affine_gradients;
pub(crate) use simd::shared::release_names;
pub(crate) use simd::threads::{num_threads, set_num_threads};
pub(crate) use simd::{as_bytes, from_bytes};
pub(crate) use simd::{Buffer, Offer};
pub use simd::{Foreign, Owner};
use simd::{ReadGuard, Word, WriteGuard};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use strided::Source;

/// An array of the CPU backend: a view of a buffer.
#[derive(Clone, Debug)]
pub(crate) struct CpuArray {
    buffer: Arc<Buffer>,
    layout: Layout,
    /// The buffer's, or what a view sees it as; the layout counts elements of this one.
    dtype: DType,
    /// The count of writes that it goes by where that is not the buffer's.
    apart: Option<Arc<AtomicU32>>,
}

impl CpuArray {
    /// A new row-major array, its elements written by `fill`.
    pub fn build<T: Element>(shape: &[usize], fill: impl FnOnce(&mut [T]) -> Result<()>) -> Result<CpuArray> {
        let layout = Layout::contiguous(shape);
        let mut buffer = Buffer::uninit(T::DTYPE, layout.numel())?;
        fill(buffer.get_mut::<T>())?;
        Ok(CpuArray { buffer: Arc::new(buffer), layout, dtype: T::DTYPE, apart: None })
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
        self.buffer.read::<T>()
    }

    /// The same as words of the dtype's size, for code that only moves them (see [`simd::with_word`]).
    ///
    /// # Panics
    /// If `W` does not fit the dtype.
    pub fn read_words<W: Word>(&self) -> ReadGuard<'_, W> {
        self.buffer.read_words::<W>()
    }

    /// The array's elements in what a guard shows, under the shape of a result.
    pub fn source<'a, T: Copy>(&self, guard: &'a ReadGuard<'_, T>, shape: &[usize]) -> Source<'a, T> {
        Source::new(guard, &self.layout, shape)
    }

    /// Itself where its elements lie row-major without gaps, else a copy that does.
    pub fn contiguous(&self) -> Result<CpuArray> {
        if self.layout.is_contiguous() {
            return Ok(self.clone());
        }
        copy::copy(self)
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
        let turned = |x: &CpuArray, axes| x.layout.view(&ViewOp::Permute { axes }).map(|layout| x.with_layout(layout));
        let flat = turned(self, order).unwrap_or_else(|| self.clone()).contiguous()?;
        Ok(turned(&flat, back).unwrap_or(flat))
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

    /// An array of an MLX array's elements where they lie; `None` where they have to be copied.
    pub fn lent(lasting: mlx_ffi::Lasting, out: &Meta) -> Option<CpuArray> {
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
        let turned = |i: &usize| shape[*i] > 1 && input.strides()[*i] < 0;
        let turned: Axes = (0..shape.len()).filter(turned).collect();
        let foreign = Foreign::input(input);
        let len = foreign.bytes() / dtype.size();
        let array = CpuArray::on(Buffer::foreign(foreign, dtype, len)?, Layout { shape, strides, offset: 0 })?;
        if turned.is_empty() {
            return Ok(array);
        }
        // From the lowest address on, axes with negative strides are seen from their other end.
        let out = Meta::new(array.shape(), dtype);
        CpuBackend::index(&IndexOp::Flip { axes: turned }, &[&array], &out)
    }

    /// The whole buffer, for [`Buffer::offer`], where it is what the array shows, as it lies.
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
pub(crate) struct CpuBackend;

impl Backend for CpuBackend {
    type Array = CpuArray;

    fn supports(_: DType) -> bool {
        true
    }

    fn create(op: &CreateOp, out: &Meta) -> Result<CpuArray> {
        create::create(op, out)
    }

    fn random(op: &RandomOp, out: &Meta) -> Result<CpuArray> {
        random::random(op, out)
    }

    fn cast(x: &CpuArray, dtype: DType) -> Result<CpuArray> {
        cast::cast(x, dtype)
    }

    fn unary(op: &UnaryOp, x: &CpuArray, _: &Meta) -> Result<CpuArray> {
        elementwise::unary(op, x, false)
    }

    fn unary_over(op: &UnaryOp, x: &CpuArray, _: &Meta) -> Result<CpuArray> {
        elementwise::unary(op, x, x.buffer.writable())
    }

    fn binary(op: &BinaryOp, a: &CpuArray, b: &CpuArray, out: &Meta) -> Result<CpuArray> {
        elementwise::binary(op, a, b, out, false)
    }

    fn binary_over(op: &BinaryOp, a: &CpuArray, b: &CpuArray, out: &Meta) -> Result<CpuArray> {
        elementwise::binary(op, a, b, out, a.buffer.writable() && !a.buffer.overlaps(&b.buffer))
    }

    fn compare(op: &CompareOp, a: &CpuArray, b: &CpuArray, out: &Meta) -> Result<CpuArray> {
        compare::compare(op, a, b, out)
    }

    fn select(op: &SelectOp, c: &CpuArray, a: &CpuArray, b: &CpuArray, out: &Meta) -> Result<CpuArray> {
        compare::select(op, c, a, b, out)
    }

    fn reduce(op: &ReduceOp, how: &Reduction, x: &CpuArray, out: &Meta) -> Result<CpuArray> {
        reduce::reduce(op, how, x, out)
    }

    fn scan(op: &ScanOp, inputs: &[&CpuArray], out: &Meta) -> Result<CpuArray> {
        scan::scan(op, inputs, out)
    }

    fn view(op: &ViewOp, x: &CpuArray, layout: Layout) -> Result<CpuArray> {
        let dtype = op.dtype(x.dtype);
        if dtype != x.dtype {
            x.buffer.admit(dtype)?;
        }
        Ok(x.seen_as(layout, dtype))
    }

    fn index(op: &IndexOp, inputs: &[&CpuArray], out: &Meta) -> Result<CpuArray> {
        index::index(op, inputs, out)
    }

    fn index_into(op: &IndexOp, dst: &CpuArray, rest: &[&CpuArray]) -> Result<()> {
        scatter::scatter_into(op, dst, rest)
    }

    fn sort(op: &SortOp, x: &[&CpuArray], out: &Meta) -> Result<CpuArray> {
        sort::sort(op, x, out)
    }

    fn contract(op: &ContractOp, a: &CpuArray, b: &CpuArray, out: &Meta) -> Result<CpuArray> {
        match op {
            ContractOp::MatMul { .. } => matmul::matmul(a, b, out),
        }
    }

    fn linalg(op: &LinalgOp, inputs: &[&CpuArray], out: &Meta) -> Result<CpuArray> {
        linalg::linalg(op, inputs, out)
    }

    fn conv(op: &ConvOp, inputs: &[&CpuArray], out: &Meta) -> Result<CpuArray> {
        conv::conv(op, inputs, out)
    }

    fn pool(op: &PoolOp, inputs: &[&CpuArray], out: &Meta) -> Result<CpuArray> {
        pool::pool(op, inputs, out)
    }

    fn nn(op: &NnOp, inputs: &[&CpuArray], out: &Meta) -> Result<CpuArray> {
        fused::nn(op, inputs, out)
    }

    fn norm(op: &NormOp, inputs: &[&CpuArray], out: &Meta) -> Result<CpuArray> {
        norm::norm(op, inputs, out)
    }

    fn loss(op: &LossOp, inputs: &[&CpuArray], out: &Meta) -> Result<CpuArray> {
        loss::loss(op, inputs, out)
    }

    fn copy(x: &CpuArray) -> Result<CpuArray> {
        copy::copy(x)
    }

    fn nonzero(x: &CpuArray) -> Result<CpuArray> {
        copy::nonzero(x)
    }

    fn assign(dst: &CpuArray, src: &CpuArray, spent: bool) -> Result<()> {
        copy::assign(dst, src, spent)
    }

    fn steps(batches: &[(Step, Vec<Vec<&CpuArray>>)]) -> Result<()> {
        optim::steps(batches)
    }

    fn from_bytes(bytes: &[u8], out: &Meta) -> Result<CpuArray> {
        copy::from_bytes(bytes, out)
    }

    fn with_bytes(x: &CpuArray, f: &mut dyn FnMut(&[u8])) -> Result<()> {
        copy::with_bytes(x, f)
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
