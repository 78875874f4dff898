//! Writes into a tensor: the end of every in-place op, and what of a tensor's memory refuses one.
//!
//! Depends on `dispatch` for the write itself and on the tape, which records it. Invariant: what is refused, PyTorch refuses.

use crate::autograd;
use crate::shape::Layout;
use crate::{dispatch, Device, Error, Result, Tensor};

/// Why a tensor with expanded dimensions is not written, nor its gradient.
pub(crate) const REPEATED: &str =
    "unsupported operation: more than one element of the written-to tensor refers to a single memory location. Please \
     clone() the tensor before performing the operation.";

/// Refuses to write a real result over complex numbers.
pub(crate) fn refuse_complex(op: &'static str, t: &Tensor) -> Result<()> {
    match t.dtype().is_complex() {
        true => Err(Error::dtype(op, "in place it is not supported for complex tensors", &[t.dtype()])),
        false => Ok(()),
    }
}

/// Refuses to write doubles over narrower numbers. On the GPU device float32 stands in for them, complex64 for pairs.
pub(crate) fn refuse_narrower(op: &'static str, t: &Tensor) -> Result<()> {
    use crate::DType;
    match (t.device(), t.dtype()) {
        (_, DType::F64 | DType::C128) | (Device::Gpu, DType::F32 | DType::C64) => Ok(()),
        (_, d) => Err(Error::dtype(op, "the base has another dtype than the result, which is float64", &[d])),
    }
}

impl Tensor {
    /// Writes `value`, which is broadcast and cast, over this tensor's elements.
    ///
    /// # Errors
    /// Where it does not broadcast, for a leaf that requires gradients, and for expanded tensors.
    ///
    /// # Examples
    /// ```
    /// use lucid::{tensor, testing::assert_close};
    /// let x = tensor([[1.0, 2.0], [3.0, 4.0]])?;
    /// x.select(0, 1)?.copy_(&tensor(9.0)?)?;
    /// assert_close(&x, [[1.0, 2.0], [9.0, 9.0]]);
    /// # lucid::Result::<()>::Ok(())
    /// ```
    pub fn copy_(&self, value: &Tensor) -> Result<()> {
        if self.dtype() != value.dtype() {
            self.refuse_shared("copy_", value, false)?;
        }
        crate::warnings::of_cast(value.dtype(), self.dtype());
        // The cast happens where both dtypes exist: the GPU has no float64.
        let value = match self.device() {
            device @ (Device::Gpu | Device::Meta) => value.cast(self.dtype())?.to_device(device)?,
            Device::Cpu if dispatch::fits_in_place(self, value) => value.clone(),
            Device::Cpu => value.to_device(Device::Cpu)?.cast(self.dtype())?,
        };
        let _name = autograd::OpScope::of("copy_", 0);
        self.write_in_place("copy_", value)
    }

    /// [`copy_`](Tensor::copy_) of a tensor that is not needed any more, such as an op's result for `out=`: where nobody else
    /// holds it, and it has this one's layout, its memory becomes this tensor's and nothing is copied.
    ///
    /// # Errors
    /// As `copy_`.
    #[doc(hidden)]
    pub fn take_(&self, value: Tensor) -> Result<()> {
        if value.device() != self.device() {
            return self.copy_(&value);
        }
        let cast = value.cast(self.dtype())?;
        drop(value);
        self.write_in_place("copy_", cast)
    }

    /// Writes what an op made of this tensor over it, as the op's form in place does: on the tape, too, it takes this one's place.
    ///
    /// # Errors
    /// As [`Tensor::copy_`], and for a dtype that cannot be cast to this tensor's.
    #[doc(hidden)]
    pub fn overwrite_(&self, value: Tensor) -> Result<()> {
        self.write_in_place("overwrite_", value)
    }

    /// May the tape have kept this tensor for the gradient of `value`, so that it must not be written over?
    pub(crate) fn is_saved_by(&self, schema: &crate::ops::Schema, value: &Tensor) -> bool {
        // The tangent's own history may need that of this one, which is written over, too.
        if autograd::forward::tangents(value).unwrap_or_default().iter().any(Tensor::requires_grad) {
            return true;
        }
        value.requires_grad() && (!schema.primitive || schema.saves.input(0, |_| true))
    }

    /// Refuses a write to a tensor of which some dimension is expanded. Others that show an element of their storage several
    /// times are written, as in PyTorch.
    pub(crate) fn refuse_expanded(&self, op: &'static str) -> Result<()> {
        if !self.layout().repeats() {
            return Ok(());
        }
        Err(Error::runtime(op, REPEATED))
    }

    /// Refuses a write to a tensor whose memory that of what is read overlaps in part, or with `whole` at all.
    ///
    /// # Errors
    /// [`Error::Runtime`] where it does.
    #[doc(hidden)]
    pub fn refuse_shared(&self, op: &'static str, read: &Tensor, whole: bool) -> Result<()> {
        if !(self.overlaps_partly(read) || whole && self.is_over(read)) {
            return Ok(());
        }
        let why =
            "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single \
                   memory location. Please clone() the tensor before performing the operation.";
        Err(Error::runtime(op, why))
    }

    /// Is each element that of `value`, repeated to this shape, in the same place? Then there is nothing to be written.
    fn shows_all_of(&self, value: &Tensor) -> bool {
        let same = |shown: &Layout| shown.offset == self.layout().offset && shown.strides == self.layout().strides;
        let alike = value.dtype() == self.dtype() && self.shares_storage(value);
        let fits = || {
            crate::shape::broadcast("copy_", self.shape(), value.shape()).is_ok_and(|s| s.as_slice() == self.shape())
        };
        alike && value.ndim() <= self.ndim() && fits() && same(&value.layout().broadcast_to(self.shape()))
    }

    /// Do both show the same elements in the same places, without gaps?
    fn is_over(&self, other: &Tensor) -> bool {
        let array = |t: &Tensor| !t.is_batched() && !t.is_sparse() && t.numel() > 0;
        array(self)
            && array(other)
            && self.shares_storage(other)
            && self.dtype() == other.dtype()
            && self.layout() == other.layout()
            && self.layout().is_dense()
    }

    /// Does the memory of both overlap, without being the same elements in the same places? Where gaps leave that open, no.
    #[doc(hidden)]
    pub fn overlaps_partly(&self, other: &Tensor) -> bool {
        let (a, b) = (self.layout(), other.layout());
        let array = |t: &Tensor| !t.is_batched() && !t.is_sparse() && t.numel() > 0;
        if self.is_same(other) || !self.shares_storage(other) || !array(self) || !array(other) {
            return false;
        }
        if !a.is_dense() || !b.is_dense() {
            return false;
        }
        let bytes = |l: &Layout, size: usize| (l.offset * size, l.span() * size);
        let (first, second) = (bytes(a, self.dtype().size()), bytes(b, other.dtype().size()));
        match first == second {
            true => a.strides != b.strides,
            false => first.0 < second.1 && second.0 < first.1,
        }
    }

    /// The end of every in-place op: writes `value` over this tensor's elements, records that, and raises the version. Where
    /// nobody else holds the value, its memory may become this tensor's.
    pub(crate) fn write_in_place(&self, op: &'static str, value: Tensor) -> Result<()> {
        if self.is_batched() || value.is_batched() {
            return crate::batching::write(op, self, &value);
        }
        if self.is_sparse() || value.is_sparse() {
            return crate::sparse::write(op, self, &value);
        }
        autograd::check_in_place(op, self, &value)?;
        // PyTorch repeats the value before it is set, but not before it is copied.
        let itself = (op != "copy_" || value.shape() == self.shape()) && self.shows_all_of(&value);
        if !itself {
            self.refuse_expanded(op)?;
            self.refuse_shared(op, &value, false)?;
        }
        // Where nothing is added up PyTorch copies, which casts.
        let copied = || matches!(op, "cumsum_" | "cumprod_") && (self.ndim() == 0 || self.numel() == 0);
        if !value.dtype().can_cast(self.dtype()) && !copied() {
            let why =
                format!("result type {} can't be cast to the desired output type {}", value.dtype(), self.dtype());
            return Err(Error::dtype(op, why, &[value.dtype(), self.dtype()]));
        }
        if value.ndim() > self.ndim()
            || crate::shape::broadcast(op, self.shape(), value.shape())?.as_slice() != self.shape()
        {
            let why =
                format!("output with shape {:?} doesn't match the broadcast shape {:?}", self.shape(), value.shape());
            return Err(Error::shape(op, why, &[self.shape(), value.shape()]));
        }
        let cast = value.cast(self.dtype())?;
        drop(value);
        let value = crate::ops::view::expand_to(&cast, self.shape())?;
        drop(cast);
        match self.layout().may_overlap() && !itself {
            true => crate::ops::aliased_write::assign(self, &value)?,
            // Its own kernel has written it, or it is written to itself.
            false if itself || value.is_over(self) => self.storage().touch(),
            false => dispatch::assign(op, self, &value, value.is_unshared())?,
        }
        autograd::record_write(self, &value, op == "copy_")
    }
}
