//! What changes a tensor's own sizes, strides or storage and writes no element: in-place views, `resize_`, `set_`.
//!
//! PyTorch changes the tensor that all handles share. Here a tensor never changes its shape: the handle that the method was
//! called on becomes another one, on the same storage and with the same history. Depends on the tensor and view ops.

use crate::autograd::{self, Auto};
use crate::ops::create::sizes;
use crate::shape::{numel, Layout};
use crate::{dispatch, Error, MemoryFormat, Result, Scalar, Tensor};
use std::sync::Arc;

impl Tensor {
    /// Makes this handle the view of it that `make` gives, and raises the storage's version.
    ///
    /// # Errors
    /// For leaves that require gradients and views of such, where the tape records; and what `make` reports.
    pub(crate) fn become_view(&mut self, op: &'static str, make: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<()> {
        autograd::check_in_place(op, self, self)?;
        if self.is_batched() {
            let bare = crate::batching::bare(self);
            autograd::check_in_place(op, bare, bare)?;
        }
        // Without other tensors on the storage, nothing that is written later can have to find its way to a base.
        let alone = !self.is_batched() && !self.is_view() && self.storage().is_unshared();
        let (wanted, leaf) = (self.requires_grad(), self.is_leaf());
        let retains = wanted && !leaf && self.retains_grad();
        // A recorded tensor stays one, whatever the mode: its gradient must have its new shape.
        let view = autograd::with_grad(wanted && !leaf || autograd::grad_enabled(), || make(self))?;
        self.storage().touch();
        let new = match (wanted && leaf, alone) {
            (true, _) => {
                let new = Tensor::with_auto(view.storage().clone(), Auto::detached(self.is_inference()));
                new.requires_grad_(true)?;
                new.0.auto.set_grad(self.grad());
                new
            }
            (false, true) => {
                let new = Tensor::with_auto(view.storage().clone(), Auto::detached(self.is_inference()));
                if let Some(edge) = view.0.auto.own_edge() {
                    new.0.auto.set_edge(Some(edge));
                }
                new
            }
            (false, false) => {
                let mut view = view;
                // To the user it is no view, unless it was one.
                let itself = !self.is_view();
                if let Some(info) = Arc::get_mut(&mut view.0).and_then(|own| own.auto.view.as_mut()) {
                    info.itself = itself;
                }
                autograd::has_seen(&view);
                *self = view;
                return if retains { self.retain_grad() } else { Ok(()) };
            }
        };
        autograd::forward::hand_over(&view, &new);
        *self = new;
        if retains {
            self.retain_grad()
        } else {
            Ok(())
        }
    }

    /// A view that shows all of the tensor as it is.
    ///
    /// # Errors
    /// None today; a `Result` so that it reads as the ops do.
    #[doc(hidden)]
    pub fn alias(&self) -> Result<Tensor> {
        if self.is_sparse() {
            return Ok(self.clone());
        }
        let _name = crate::autograd::OpScope::of("alias", 0);
        crate::ops::view::permute_axes(self, &(0..self.ndim()).collect::<crate::shape::Axes>())
    }

    /// Gives this handle other sizes, row-major from its offset on. Where the storage has too few elements it gets more: zeros
    /// (PyTorch lets them be anything). On the GPU device the handle then gets another storage, and views of the old one stay
    /// there.
    ///
    /// # Errors
    /// [`Error::Runtime`] for tensors that require gradients, for negative sizes, and where a storage would have to grow whose
    /// memory is not the engine's own, or which an array of another library shows.
    pub fn resize_(&mut self, size: &[isize]) -> Result<()> {
        self.resize_in(size, MemoryFormat::Contiguous)
    }

    /// [`Tensor::resize_`] to elements that have the layout of a format, row-major for [`MemoryFormat::Contiguous`].
    ///
    /// # Errors
    /// As there, for a format of tensors with another number of dimensions, and for [`MemoryFormat::Preserve`].
    pub fn resize_in(&mut self, size: &[isize], format: MemoryFormat) -> Result<()> {
        const OP: &str = "resize_";
        if format == MemoryFormat::Preserve {
            return Err(Error::runtime(OP, "Unsupported memory format Preserve"));
        }
        if self.requires_grad() {
            return Err(Error::runtime(OP, "cannot resize variables that require grad"));
        }
        if autograd::forward::carries(self) {
            return Err(Error::runtime(OP, "cannot resize variables that has a forward grad"));
        }
        let shape = sizes(OP, size)?;
        if shape.as_slice() == self.shape() && format == MemoryFormat::Contiguous {
            return Ok(());
        }
        let layout = Layout::contiguous(&shape);
        let strides: Vec<isize> = layout.strides_in(OP, format)?.iter().map(|&s| s as isize).collect();
        let room = self.storage_numel().saturating_sub(self.storage_offset());
        let needed = numel(&shape);
        if needed <= room {
            let offset = self.storage_offset() as i64;
            return self.become_view(OP, |x| x.as_strided(size, &strides, Some(offset)));
        }
        if !self.is_resizable() {
            return Err(Error::runtime(OP, "Trying to resize storage that is not resizable"));
        }
        if self.storage().resize((self.storage_offset() + needed) * self.dtype().size())? {
            let offset = self.storage_offset() as i64;
            return self.become_view(OP, |x| x.as_strided(size, &strides, Some(offset)));
        }
        let old =
            self.storage_vector()?.narrow(0, self.storage_offset().min(self.storage_numel()) as i64, room as i64)?;
        let new = Tensor::full_of(&[needed], Scalar::ZERO, self.dtype(), self.device())?;
        new.narrow(0, 0, room as i64)?.copy_(&old)?;
        let shown = match format {
            MemoryFormat::Contiguous => new.reshape(size)?,
            _ => new.as_strided(size, &strides, None)?,
        };
        *self = Tensor::from_storage(shown.storage().clone());
        Ok(())
    }

    /// Makes this handle show the storage of `source` as `source` does, cut off from the tape.
    ///
    /// # Errors
    /// Where dtype or device differ, and for leaves that require gradients while the tape records.
    pub fn set_(&mut self, source: &Tensor) -> Result<()> {
        const OP: &str = "set_";
        autograd::check_in_place(OP, self, self)?;
        if source.dtype() != self.dtype() {
            let why = format!("Could not set tensor of type {} to a tensor of type {}", source.dtype(), self.dtype());
            return Err(Error::dtype(OP, why, &[self.dtype(), source.dtype()]));
        }
        if source.device() != self.device() {
            let why = "the source must be on the tensor's own device";
            return Err(Error::device(OP, why, &[self.device(), source.device()]));
        }
        let wanted = self.requires_grad();
        *self = source.detach()?.requires_grad_(wanted)?;
        Ok(())
    }

    /// Puts the elements of `source`, with its sizes, dtype and device, in the place of this handle's, and leaves the rest as
    /// it is: its place on the tape and its gradient. No gradient notices.
    ///
    /// # Errors
    /// [`Error::Runtime`] where a gradient is wanted that the new dtype cannot have.
    #[doc(hidden)]
    pub fn set_data(&mut self, source: &Tensor) -> Result<()> {
        let shown = source.detach()?;
        let wanted = self.requires_grad();
        if self.is_sparse() || shown.is_sparse() || self.is_batched() || shown.is_batched() {
            *self = shown.requires_grad_(wanted && self.is_leaf())?;
            return Ok(());
        }
        if wanted && !shown.dtype().is_differentiable() {
            let why = "data set to a tensor that requires gradients must be floating point or complex dtype";
            return Err(Error::runtime("data", why));
        }
        let same =
            |a: &Tensor, b: &Tensor| a.shape() == b.shape() && a.dtype() == b.dtype() && a.device() == b.device();
        let new = Tensor::with_auto(shown.storage().clone(), Auto::detached(source.is_inference()));
        match self.edge().filter(|_| !self.is_leaf()) {
            Some(edge) => {
                new.0.auto.set_edge(Some(edge));
                if self.retains_grad() {
                    new.retain_grad()?;
                }
            }
            None if wanted => {
                new.0.auto.set_requires_grad(true);
                if same(self, &new) {
                    self.0.auto.pass_to(&new);
                }
            }
            None => {}
        }
        if let Some(dtype) = self.0.auto.grad_dtype() {
            new.0.auto.set_grad_dtype(dtype);
        }
        new.0.auto.set_grad(self.grad());
        *self = new;
        Ok(())
    }

    /// Writes one number over the diagonal: of more than two dimensions, which must be equal, the elements whose indices are
    /// all the same. With `wrap` the diagonal of a tall matrix begins again after each block of columns, a row apart.
    ///
    /// # Errors
    /// For tensors of less than two dimensions, for unequal dimensions where there are more, and as all writes in place.
    pub fn fill_diagonal_(&self, fill_value: impl Into<Scalar>, wrap: bool) -> Result<()> {
        const OP: &str = "fill_diagonal_";
        let shape = self.shape();
        if shape.len() < 2 {
            return Err(Error::shape(OP, "dimensions must larger than 1", &[shape]));
        }
        if shape.len() > 2 && shape.iter().any(|&n| n != shape[0]) {
            return Err(Error::shape(OP, "all dimensions of input must be of equal length", &[shape]));
        }
        let step: usize = self.strides().iter().sum();
        let least = shape.iter().copied().min().unwrap_or(0);
        let value = fill_value.into();
        self.diagonal_piece(least, step, 0)?.fill_(value)?;
        let (rows, cols) = (shape[0], shape[1]);
        if wrap && shape.len() == 2 && rows > cols + 1 {
            // Each block is as long as there are columns, and a row is between two.
            let block = self.strides()[0] * (cols + 1);
            let mut first = cols + 1;
            let mut start = block;
            while first < rows && cols > 0 {
                self.diagonal_piece(cols.min(rows - first), step, start)?.fill_(value)?;
                first += cols + 1;
                start += block;
            }
        }
        Ok(())
    }

    /// `len` elements, `step` apart, from `start` elements after the first.
    fn diagonal_piece(&self, len: usize, step: usize, start: usize) -> Result<Tensor> {
        let offset = self.storage_offset() + start;
        self.as_strided(&[len as isize], &[step as isize], Some(offset as i64))
    }

    /// Writes a number over all elements. Where dimensions are expanded it writes the elements that there are: as in PyTorch
    /// this is the one write that such tensors take.
    ///
    /// # Errors
    /// For a leaf that requires gradients.
    pub fn fill_(&self, value: Scalar) -> Result<()> {
        let _name = crate::autograd::OpScope::of("fill_", 0);
        const OP: &str = "fill_";
        crate::ops::create::check_filled(OP, value, self.dtype(), self.shape())?;
        let value = Tensor::constant(value, self.dtype(), self.device())?;
        if self.is_batched() || !self.strides().contains(&0) || !self.layout().may_overlap() {
            return self.write_in_place(OP, value);
        }
        let once = |(&n, &s): (&usize, &usize)| if s == 0 { n.min(1) as isize } else { n as isize };
        let size: Vec<isize> = self.shape().iter().zip(self.strides()).map(once).collect();
        let strides: Vec<isize> = self.strides().iter().map(|&s| s as isize).collect();
        let write = || self.as_strided(&size, &strides, None)?.write_in_place(OP, value.clone());
        // A tangent may have elements of its own where this tensor has one for many.
        autograd::record_fill(OP, self, &value, || autograd::forward::without(write))?;
        match autograd::forward::active() {
            true => autograd::forward::write(self, &value),
            false => Ok(()),
        }
    }

    /// Writes a 0-d tensor, which is cast and moved, over all elements.
    ///
    /// # Errors
    /// Where `value` has dimensions, and as all writes in place.
    pub fn fill_with(&self, value: &Tensor) -> Result<()> {
        const OP: &str = "fill_";
        if value.ndim() > 0 {
            let why = format!(
                "fill_ only supports 0-dimension value tensor but got tensor with {} dimensions.",
                value.ndim()
            );
            return Err(Error::shape(OP, why, &[value.shape()]));
        }
        let _name = crate::autograd::OpScope::of("fill_", 1);
        // An element of the tensor itself is read before it is written over.
        match self.overlaps_partly(value) {
            true => self.copy_(&value.copy()?),
            false => self.copy_(value),
        }
    }

    /// A tensor of the given sizes and strides, in elements. Its elements may be anything; here they are zeros.
    ///
    /// # Errors
    /// For negative numbers, lists of different lengths, and where there is no room.
    pub(crate) fn strided_of(
        op: &'static str,
        size: &[isize],
        stride: &[isize],
        like: (crate::DType, crate::Device),
    ) -> Result<Tensor> {
        if size.len() != stride.len() {
            let why = format!(
                "dimensionality of sizes ({}) must match dimensionality of strides ({})",
                size.len(),
                stride.len()
            );
            return Err(Error::runtime(op, why));
        }
        let (shape, steps) = (sizes(op, size)?, sizes(op, stride)?);
        let reach = shape.iter().zip(&steps).try_fold(0usize, |sum, (&n, &s)| {
            n.checked_sub(1).map_or(Some(sum), |n| n.checked_mul(s)?.checked_add(sum))
        });
        let span = reach.and_then(|r| r.checked_add(1)).unwrap_or(usize::MAX).min(isize::MAX as usize);
        let span = if shape.contains(&0) { 0 } else { sizes(op, &[span as isize])?[0] };
        let whole = Tensor::full_of(&[span], Scalar::ZERO, like.0, like.1)?;
        let view = dispatch::view(
            crate::ops::view::ViewOp::AsStrided {
                layout: Box::new(Layout { shape, strides: steps, offset: 0 }),
                source: crate::ops::view::Source::Plain,
            },
            &whole,
            Layout { shape: sizes(op, size)?, strides: sizes(op, stride)?, offset: 0 },
        )?;
        Ok(Tensor::from_storage(view.storage().clone()))
    }
}
