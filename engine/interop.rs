//! Sharing memory with what is not a tensor: others' arrays shown as tensors, tensors' memory shown to others and to other
//! processes.
//!
//! Depends on the tensor and its storage; all `unsafe` is in the CPU backend's memory module. What is shared so is read and
//! written without the engine's locks by the other side, which must not do that while an op works on it.

use crate::shape::{numel, Layout, Shape, Strides};
use crate::{autograd, dispatch, DType, Device, Error, Result, Scalar, Tensor};
use lucid_cpu::{CpuArray, Foreign, Owner};
use lucid_ir::backend::Exposed;
use lucid_ir::ops::binary::BinaryOp;

/// A tensor's elements in the memory of this process.
pub struct Export {
    /// Where the first element is; of no meaning where there are none.
    pub address: usize,
    /// Sizes.
    pub shape: Shape,
    /// Steps in elements.
    pub strides: Strides,
    /// Element type.
    pub dtype: DType,
    /// May the elements be written to? Not on the GPU device, whose arrays never change, nor where they cannot be.
    pub writable: bool,
    /// Keeps the memory.
    pub owner: Owner,
}

/// What another process needs to map a tensor's elements: made by [`Tensor::lend`], used up by [`Tensor::from_shared`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handle {
    /// The segment's name.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// How many elements the segment holds.
    pub storage_numel: usize,
    /// What the tensor shows of them.
    pub layout: Layout,
}

/// A layout that sizes and strides from elsewhere give, with the number of elements it spans.
fn checked(op: &'static str, shape: &[usize], strides: &[usize], offset: usize) -> Result<(Layout, usize)> {
    let fail = || Error::value(op, format!("sizes {shape:?} with strides {strides:?} overflow or do not match"));
    if shape.len() != strides.len() {
        return Err(fail());
    }
    let total = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).ok_or_else(fail)?;
    let mut span = offset;
    if total > 0 {
        for (&n, &s) in shape.iter().zip(strides) {
            span = (n - 1).checked_mul(s).and_then(|reach| span.checked_add(reach)).ok_or_else(fail)?;
        }
        span = span.checked_add(1).ok_or_else(fail)?;
    }
    if total.max(span) > isize::MAX as usize / 16 {
        return Err(fail());
    }
    Ok((Layout { shape: Shape::from_slice(shape), strides: Strides::from_slice(strides), offset }, span))
}

impl Tensor {
    /// A CPU tensor that shows somebody else's memory: writes through either are seen by both. `strides` are in elements.
    /// Writing to a tensor on memory that is not writable is an error.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] where the elements are not in the memory, it is not aligned for the dtype, or a Boolean is
    /// neither 0 nor 1.
    #[doc(hidden)]
    pub fn from_foreign(memory: Foreign, shape: &[usize], strides: &[usize], dtype: DType) -> Result<Tensor> {
        let (layout, span) = checked("from_foreign", shape, strides, 0)?;
        let buffer = lucid_cpu::Buffer::foreign(memory, dtype, span)?;
        Ok(dispatch::of_cpu_array(CpuArray::on(buffer, layout)?))
    }

    /// The address of the first element, as PyTorch gives it: equal for views at one offset of one storage, 0 where there
    /// are no elements. Evaluates. On the GPU device it is where the host sees the elements, until the next in-place write. A
    /// copy there gets memory of its own when it is written to, or when both are asked for their addresses.
    ///
    /// # Errors
    /// What the evaluation reports.
    pub fn data_ptr(&self) -> Result<usize> {
        if self.numel() == 0 || self.storage_bytes() == 0 {
            return Ok(0);
        }
        Ok(dispatch::expose(self, true)?.address + self.storage_offset() * self.dtype().size())
    }

    /// The elements in place, without a copy. Evaluates.
    ///
    /// # Errors
    /// What the evaluation reports.
    #[doc(hidden)]
    pub fn export(&self) -> Result<Export> {
        let Exposed { address, writable, owner } = dispatch::expose(self, false)?;
        let Layout { shape, strides, offset } = self.layout().clone();
        let address = if numel(&shape) == 0 { 0 } else { address + offset * self.dtype().size() };
        Ok(Export { address, shape, strides, dtype: self.dtype(), writable, owner })
    }

    /// A number that tensors have in common exactly when they show one storage, while one of them lives.
    #[doc(hidden)]
    pub fn storage_key(&self) -> usize {
        self.storage().storage_key()
    }

    /// May the elements be written to? Those in somebody else's read-only memory may not.
    #[doc(hidden)]
    pub fn is_writable(&self) -> bool {
        dispatch::cpu_array(self).is_none_or(|a| a.buffer().writable())
    }

    /// The whole storage as a vector of its elements, cut off from the tape.
    ///
    /// # Errors
    /// None on the CPU; on the GPU, what the view reports.
    #[doc(hidden)]
    pub fn storage_vector(&self) -> Result<Tensor> {
        Ok(self.detach()?.as_strided(&[self.storage_numel() as isize], &[1], Some(0))?.alone_on_storage())
    }

    /// Size of the storage in bytes.
    #[doc(hidden)]
    pub fn storage_bytes(&self) -> usize {
        self.storage().storage_bytes()
    }

    /// May the storage get another size? Not where its memory is somebody else's, or another library or process shows it.
    #[doc(hidden)]
    pub fn is_resizable(&self) -> bool {
        dispatch::cpu_array(self).is_none_or(|a| a.buffer().is_resizable())
    }

    /// Says that an array of another library shows the memory: the storage keeps its size from now on.
    #[doc(hidden)]
    pub fn hold_storage(&self) {
        if let Some(array) = dispatch::cpu_array(self) {
            array.buffer().hold();
        }
    }

    /// Gives the storage another size in bytes, for all tensors on it: the first bytes as they were, then zeros. Tensors that
    /// show what is beyond its end keep their sizes, and show zeros (PyTorch's then read memory that is not theirs). The
    /// version stays. False, and nothing done, where the memory is not the engine's own, and on the GPU device where it would
    /// become larger than it was at first.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] where there is no room.
    #[doc(hidden)]
    pub fn resize_storage(&self, bytes: usize) -> Result<bool> {
        if self.device() == Device::Gpu && bytes < self.storage_bytes() {
            // What is cut off becomes zeros; a count of writes of its own, so that no tensor notices.
            let whole = Tensor::from_storage(self.storage().apart()).storage_vector()?.view_dtype(DType::U8)?;
            let kept = bytes as i64;
            autograd::with_grad(false, || whole.narrow(0, kept, whole.numel() as i64 - kept)?.fill_(Scalar::ZERO))?;
        }
        self.storage().resize(bytes)
    }

    /// Writes the sum, difference, product or quotient of `a` and `b` over this tensor's elements in one pass, without memory for
    /// a result. False, and nothing written, unless all are row-major float32 of one shape on the CPU that no tape or graph
    /// follows, and the memory is no operand's.
    ///
    /// # Errors
    /// [`Error::Runtime`] where the memory is read-only.
    #[doc(hidden)]
    pub fn arithmetic_into(&self, op: &BinaryOp, a: &Tensor, b: &Tensor) -> Result<bool> {
        match self.written_from([a, b]) {
            Some([a, b, out]) => lucid_cpu::arithmetic_into(op, a, b, out),
            None => Ok(false),
        }
    }

    /// Writes the product of two matrices over this tensor's elements, without memory for a result. False, and nothing written,
    /// unless all are float32 on the CPU that no tape or graph follows, this one row-major, and its memory no operand's.
    ///
    /// # Errors
    /// [`Error::Runtime`] where the memory is read-only.
    #[doc(hidden)]
    pub fn matmul_into(&self, a: &Tensor, b: &Tensor) -> Result<bool> {
        match self.written_from([a, b]) {
            Some([a, b, out]) => lucid_cpu::matmul_into(a, b, out),
            None => Ok(false),
        }
    }

    /// The arrays of operands and of this tensor, where a kernel may write over it.
    fn written_from<'a>(&'a self, [a, b]: [&'a Tensor; 2]) -> Option<[&'a lucid_cpu::CpuArray; 3]> {
        let followed = crate::graph::recording() || [self, a, b].iter().any(|t| autograd::is_followed(t));
        // What a write in place would refuse is refused by it.
        if followed || autograd::check_in_place("out", self, self).is_err() {
            return None;
        }
        let [a, b, out] = [a, b, self].map(dispatch::cpu_array);
        Some([a?, b?, out?])
    }

    /// Does this tensor alone show its storage?
    #[doc(hidden)]
    pub fn storage_is_unshared(&self) -> bool {
        self.storage().is_unshared()
    }

    /// Are the elements in memory that other processes can map? On the GPU device they never are.
    #[doc(hidden)]
    pub fn is_shared(&self) -> bool {
        dispatch::cpu_array(self).is_some_and(|a| a.buffer().is_shared())
    }

    /// Moves the storage, for all tensors that show it, to memory that other processes can map. Addresses that were handed
    /// out before show what was there then.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] where the system has not enough shared memory, [`Error::DeviceMismatch`] on the GPU device.
    #[doc(hidden)]
    pub fn share_memory(&self) -> Result<()> {
        match dispatch::cpu_array(self) {
            Some(array) => array.buffer().share(),
            None => {
                let why = "memory is shared between processes on the cpu only; move the tensor with .cpu()";
                Err(Error::device("share_memory_", why, &[self.device()]))
            }
        }
    }

    /// What one other process needs to map this tensor's elements, which are moved to shared memory first if need be. The
    /// memory lives until that process, too, has dropped it.
    ///
    /// # Errors
    /// As [`Tensor::share_memory`].
    #[doc(hidden)]
    pub fn lend(&self) -> Result<Handle> {
        self.share_memory()?;
        let name = dispatch::cpu_array(self).and_then(|a| a.buffer().lend());
        let name = name.ok_or_else(|| Error::runtime("share_memory_", "the tensor is not in shared memory"))?;
        let (storage_numel, layout) = (self.storage_numel(), self.layout().clone());
        Ok(Handle { name, dtype: self.dtype(), storage_numel, layout })
    }

    /// The tensor that another process lent.
    ///
    /// # Errors
    /// [`Error::Runtime`] where its memory is gone or is none of ours, [`Error::InvalidValue`] where the sizes do not fit it.
    ///
    /// # Safety
    /// Until no tensor shows the memory any more, the other processes that map it must not make it smaller, and must write to it
    /// only while no op of this process works on it. What they write is this process's data, whatever bytes it is.
    #[allow(unsafe_code)] // The promise is all that is unsafe about it.
    #[doc(hidden)]
    pub unsafe fn from_shared(handle: &Handle) -> Result<Tensor> {
        let Handle { name, dtype, storage_numel, layout } = handle;
        let (layout, _) = checked("from_shared", &layout.shape, &layout.strides, layout.offset)?;
        let buffer = lucid_cpu::Buffer::open(name, *dtype, *storage_numel)?;
        Ok(dispatch::of_cpu_array(CpuArray::on(buffer, layout)?))
    }
}

/// Removes what only this process shares; call it when the process ends and tensors may still be alive.
#[doc(hidden)]
pub fn release_shared_memory() {
    lucid_cpu::release_names();
}
