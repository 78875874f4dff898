//! Tensors in a memory format.
//!
//! Depends on `lucid_core::memory_format` and the ops. Tensors of a format have a storage of their own, in which the dimensions
//! are permuted: on both devices it is row-major in that order, and the strides say so.

use crate::autograd::{Auto, OpScope};
use crate::ops::view::{permute_axes, ViewOp};
use crate::shape::{contiguous_strides, inverse, Axes, Layout, Shape, Strides};
use crate::{dispatch, Error, MemoryFormat, Result, Tensor};

/// What `make` gives for the dimensions in the order in which they are to be in memory, with the dimensions back in their
/// places: a tensor with these strides, on a storage of its own.
pub(crate) fn in_memory_order(
    shape: &[usize],
    strides: &Strides,
    make: impl FnOnce(&[usize]) -> Result<Tensor>,
) -> Result<Tensor> {
    let mut order: Axes = (0..shape.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(strides[i]));
    let made = make(&order)?;
    let axes = inverse(&order);
    if made.is_batched() {
        return permute_axes(&made, &axes);
    }
    let layout = Layout { shape: Shape::from_slice(shape), strides: strides.clone(), offset: 0 };
    dispatch::view(ViewOp::Permute { axes }, &made, layout).map(Tensor::alone_on_storage)
}

impl Tensor {
    /// A view of what nobody else has, as a tensor of its own: to the user it is no view.
    pub(crate) fn alone_on_storage(self) -> Tensor {
        if self.is_batched() || self.is_sparse() {
            return self;
        }
        let auto = self.0.auto.own_edge().map_or_else(Auto::default, Auto::recorded);
        let own = Tensor::with_auto(self.storage().clone(), auto);
        crate::autograd::forward::hand_over(&self, &own);
        own
    }

    /// A new tensor of this one's sizes in a format; `make` makes it row-major, of the sizes that it is given.
    pub(crate) fn like_in(
        &self,
        op: &'static str,
        format: MemoryFormat,
        make: impl FnOnce(&[usize]) -> Result<Tensor>,
    ) -> Result<Tensor> {
        made_in(op, self.layout(), format, make)
    }

    /// What `make`, an op on elements whose results are new and row-major, makes of the tensor, in a format.
    fn mapped_in(
        &self,
        op: &'static str,
        format: MemoryFormat,
        make: impl FnOnce(&Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        if self.is_sparse() {
            return make(self);
        }
        let strides = self.layout().strides_in(op, format)?;
        if strides == contiguous_strides(self.shape()) {
            return make(self);
        }
        in_memory_order(self.shape(), &strides, |order| make(&permute_axes(self, order)?))
    }

    /// A copy in a format, in memory of its own; gradients pass through.
    ///
    /// # Errors
    /// For a format of tensors with another number of dimensions, and where there is no room.
    #[doc(hidden)]
    pub fn copy_in(&self, format: MemoryFormat) -> Result<Tensor> {
        let _name = OpScope::of("clone", 0);
        self.mapped_in("clone", format, Tensor::copy)
    }

    /// A copy that has the layout of the template where that is dense, row-major otherwise; gradients pass through.
    pub(crate) fn copy_lying_as(&self, template: &Tensor) -> Result<Tensor> {
        let like = template.layout();
        if self.is_sparse() || self.is_batched() || like.is_contiguous() || !like.is_dense() {
            return self.copy();
        }
        let _name = OpScope::of("clone", 0);
        in_memory_order(self.shape(), &like.strides, |order| permute_axes(self, order)?.copy())
    }

    /// The tensor in the format that the strides of `images` show, as PyTorch gives what it makes of them.
    ///
    /// # Errors
    /// Where there is no room.
    #[doc(hidden)]
    pub fn in_format_of(&self, images: &Tensor) -> Result<Tensor> {
        match images.layout().suggested_format() {
            MemoryFormat::Contiguous => Ok(self.clone()),
            _ if images.is_batched() || self.ndim() != images.ndim() => Ok(self.clone()),
            format => self.contiguous_in(format),
        }
    }

    /// This tensor, made of `input`, as a result of its own that has the layout of a format: no view, and a copy where it has
    /// another layout or shows the input's elements. Nobody else may have what it is a view of.
    ///
    /// # Errors
    /// As [`Tensor::copy_in`].
    #[doc(hidden)]
    pub fn result_of(self, input: &Tensor, format: MemoryFormat) -> Result<Tensor> {
        if self.is_batched() || self.is_sparse() {
            return Ok(self);
        }
        let has_format = self.layout().is_contiguous_in(format);
        match has_format && !self.shares_storage(input) {
            true => Ok(crate::autograd::unviewed(self)),
            false => self.copy_in(format),
        }
    }

    /// The tensor in another dtype or on another device, in a format; a copy also where it has both already.
    ///
    /// # Errors
    /// As [`Tensor::copy_in`], and where the device has not the dtype.
    #[doc(hidden)]
    pub fn copy_to(&self, dtype: crate::DType, device: crate::Device, format: MemoryFormat) -> Result<Tensor> {
        let _name = OpScope::of("cast", 0);
        crate::warnings::of_cast(self.dtype(), dtype);
        self.mapped_in("to", format, |t| {
            let (casts, moves) = (dtype != t.dtype(), device != t.device());
            // A cast keeps the order in which the elements are.
            let t = &if casts { t.contiguous()? } else { t.clone() };
            // Narrow before moving, widen after: fewer bytes cross, and float64 never reaches a device without it.
            match (casts, moves) {
                (false, false) => t.copy(),
                (true, false) => t.cast(dtype),
                (false, true) => t.to_device(device),
                (true, true) if dtype.size() <= t.dtype().size() => t.cast(dtype)?.to_device(device),
                (true, true) => t.to_device(device)?.cast(dtype),
            }
        })
    }

    /// The tensor itself where its elements have the layout of the format, else a copy that does.
    ///
    /// # Errors
    /// For a format of tensors with another number of dimensions; for [`MemoryFormat::Preserve`], which asks for nothing,
    /// where the tensor is not row-major.
    #[doc(hidden)]
    pub fn contiguous_in(&self, format: MemoryFormat) -> Result<Tensor> {
        if self.layout().is_contiguous_in(format) {
            return Ok(self.clone());
        }
        if format == MemoryFormat::Preserve {
            return Err(Error::runtime(
                "contiguous",
                "preserve memory format is unsupported by the contiguous operator",
            ));
        }
        self.copy_in(format)
    }

    /// The tensor itself where its elements are without gaps and with the dimensions in this order, the outermost first,
    /// else a copy that does.
    pub(crate) fn contiguous_by(&self, order: &[usize]) -> Result<Tensor> {
        let turned = permute_axes(self, order)?;
        match turned.layout().is_contiguous() {
            true => Ok(self.clone()),
            false => permute_axes(&turned.copy()?, &inverse(order)).map(Tensor::alone_on_storage),
        }
    }

    /// Do the elements have the layout of the format, without gaps?
    pub fn is_contiguous_in(&self, format: MemoryFormat) -> bool {
        self.layout().is_contiguous_in(format)
    }

    /// The format that the strides show: row-major unless the channels are last.
    pub fn suggested_format(&self) -> MemoryFormat {
        self.layout().suggested_format()
    }

    /// The dimensions from the outermost in memory to the innermost.
    pub fn dim_order(&self) -> Vec<usize> {
        self.layout().memory_order().into_iter().rev().collect()
    }

    /// May several orders of the dimensions be read from the strides?
    #[doc(hidden)]
    pub fn has_open_order(&self) -> bool {
        let (shape, mut strides) = (self.shape(), self.strides().to_vec());
        strides.sort_unstable();
        shape.contains(&1) || strides.windows(2).any(|w| w[0] == w[1])
    }
}

/// A new tensor of a layout's sizes in a format; `make` makes it row-major, of the sizes that it is given.
pub(crate) fn made_in(
    op: &'static str,
    like: &Layout,
    format: MemoryFormat,
    make: impl FnOnce(&[usize]) -> Result<Tensor>,
) -> Result<Tensor> {
    let strides = like.strides_in(op, format)?;
    if strides == contiguous_strides(&like.shape) {
        return make(&like.shape);
    }
    in_memory_order(&like.shape, &strides, |order| make(&order.iter().map(|&i| like.shape[i]).collect::<Shape>()))
}
