//! Tensors of which a part is read or replaced: the bodies of the `masked_…` and `…_scatter` ops, and of `fill`.

use super::index::{index_axes, put_axes, Target};
use super::scatter::{put_body, same_dtype};
use super::Operand;
use crate::shape::{self, SliceDim};
use crate::{DType, Error, Result, Scalar, Tensor};

pub(super) fn masked_select_body(x: &Tensor, mask: &Tensor) -> Result<Tensor> {
    if mask.dtype() != DType::Bool {
        return Err(Error::dtype("masked_select", "expected a bool tensor for mask", &[mask.dtype()]));
    }
    let shape = shape::broadcast("masked_select", x.shape(), mask.shape())?;
    let flat = super::view::expand_to(mask, &shape)?.reshape(&[-1])?;
    let places = flat.nonzero()?.reshape(&[-1])?;
    let all = {
        // PyTorch's gradient is scattered into zeros that have the layout of the input.
        let _lies = crate::autograd::GradLayoutGuard::set(crate::autograd::GradLayoutRule::AsInput);
        super::view::expand_to(x, &shape)?.reshape(&[-1])?
    };
    index_axes(&all, &[0], &[places], true)
}

pub(super) fn masked_scatter_body(to: Target, x: &Tensor, mask: &Tensor, source: &Tensor) -> Result<Tensor> {
    const OP: &str = "masked_scatter";
    if mask.dtype() == DType::U8 {
        crate::warnings::warn("masked_scatter received a mask of uint8, please use one of bool instead.".into());
    }
    if mask.dtype() != DType::Bool {
        return Err(Error::dtype(OP, "only supports boolean masks", &[mask.dtype()]));
    }
    same_dtype(OP, x, source, "expected self and source to have same dtypes")?;
    let shape = shape::broadcast(OP, x.shape(), mask.shape())?;
    let wide = match to {
        Target::Copy => super::view::expand_to(x, &shape)?,
        Target::Itself if shape.as_slice() == x.shape() => x.clone(),
        Target::Itself => {
            let why = format!("output with shape {:?} doesn't match the broadcast shape {shape:?}", x.shape());
            return Err(Error::shape(OP, why, &[x.shape(), mask.shape()]));
        }
    };
    if x.device() == crate::Device::Meta {
        return if to == Target::Copy { wide.copy() } else { Ok(wide) };
    }
    let places = super::view::expand_to(mask, &shape)?.reshape(&[-1])?.nonzero()?.reshape(&[-1])?;
    let n = places.numel();
    if n > source.numel() {
        let why = format!("Number of elements of source < number of ones in mask ({} < {n})", source.numel());
        return Err(Error::shape(OP, why, &[source.shape(), mask.shape()]));
    }
    // What is written is read first.
    let source = if to == Target::Itself && x.shares_storage(source) { source.copy()? } else { source.clone() };
    put_body(to, &wide, &places, &source.reshape(&[-1])?.narrow(0, 0, n as i64)?, false)
}

/// What is put in the place of a part: of its shape, in the tensor's dtype.
pub(super) fn for_part(op: &'static str, x: &Tensor, src: &Tensor, part: &[usize]) -> Result<Tensor> {
    if part != src.shape() {
        let why = format!("expected src to have a size equal to the slice of self: {part:?}");
        return Err(Error::shape(op, why, &[x.shape(), src.shape()]));
    }
    if src.device() != x.device() {
        return Err(Error::device(op, "expected src on the tensor's device", &[x.device(), src.device()]));
    }
    src.cast(x.dtype())
}

pub(super) fn fill_body(x: &Tensor, value: Operand<'_>) -> Result<Tensor> {
    let value = match value {
        Operand::Scalar(s) => super::create::held("fill", s, x)?,
        Operand::Tensor(t) if t.ndim() > 0 => {
            let why =
                format!("fill only supports 0-dimension value tensor but got tensor with {} dimensions.", t.ndim());
            return Err(Error::shape("fill", why, &[x.shape(), t.shape()]));
        }
        Operand::Tensor(t) => t.cast(x.dtype())?,
    };
    // Chosen everywhere; what was there gets zeros for a gradient, and says where elements are in memory.
    let all = Tensor::full_of(&[], Scalar::Bool(true), crate::DType::Bool, x.device())?;
    super::compare::select::r#where(&all, &value, &x.detach()?)?.in_steps_of(x)
}

pub(super) fn select_scatter_body(x: &Tensor, src: &Tensor, dim: isize, index: i64) -> Result<Tensor> {
    // Its checks are those of `select`.
    let part = x.detach()?.select(dim, index)?;
    let src = for_part("select_scatter", x, src, part.shape())?;
    let axis = shape::wrap_dim("select_scatter", dim, x.ndim())?;
    let start = if index < 0 { index + x.shape()[axis] as i64 } else { index } as usize;
    let dims = smallvec::smallvec![SliceDim { axis, start, step: 1, len: 1 }];
    super::index::slice_scatter_dims(x, &src.unsqueeze(axis as isize)?, dims)
}

pub(super) fn diagonal_scatter_body(x: &Tensor, src: &Tensor, offset: i64, dim1: isize, dim2: isize) -> Result<Tensor> {
    let part = x.detach()?.diagonal(offset, dim1, dim2)?;
    let src = for_part("diagonal_scatter", x, src, part.shape())?;
    let (a, b) = (shape::wrap_dim("diagonal", dim1, x.ndim())?, shape::wrap_dim("diagonal", dim2, x.ndim())?);
    let line = super::create::arange_of(*part.shape().last().unwrap_or(&0), x.device())?;
    let mut at = [(a, (&line + (-offset).max(0))?), (b, (&line + offset.max(0))?)];
    at.sort_by_key(|(axis, _)| *axis);
    let [(a, i), (b, j)] = at;
    // The diagonal is the source's last dimension, and in an indexed tensor where its axes were.
    let place = super::index::index_position(&[a, b]) as isize;
    put_axes(Target::Copy, x, &[a, b], &[i, j], &src.movedim(&[-1], &[place])?, false, false)
}

pub(super) fn as_strided_scatter_body(
    x: &Tensor,
    src: &Tensor,
    size: &[isize],
    stride: &[isize],
    offset: Option<i64>,
) -> Result<Tensor> {
    use super::index::{strided_add, strided_read};
    // Strides are those of the storage; under `vmap` each sample has one of its own, row-major.
    let own = x.layout();
    let (flat, offset) = match x.is_batched() || (own.offset == 0 && own.is_contiguous()) {
        true => (x.reshape(&[-1])?, offset.unwrap_or(0)),
        false => (x.as_strided(&[x.storage_numel() as isize], &[1], Some(0))?, offset.unwrap_or(own.offset as i64)),
    };
    let whole = Tensor::full_of(flat.shape(), Scalar::ZERO, crate::DType::Bool, x.device())?;
    let part = whole.as_strided(size, stride, Some(offset))?;
    let src = for_part("as_strided_scatter", x, src, part.shape())?;
    part.refuse_expanded("as_strided_scatter")?;
    let layout = part.layout();
    part.fill_(Scalar::Bool(true))?;
    let dtype = if x.dtype() == crate::DType::Bool { crate::DType::U8 } else { x.dtype() };
    let put = strided_add(&src.cast(dtype)?, layout, flat.shape())?.cast(x.dtype())?;
    let written = super::compare::select::r#where(&whole, &put, &flat)?;
    match x.is_batched() || (own.offset == 0 && own.is_contiguous()) {
        true => super::view::reshape_to(&written, x.shape()),
        false => strided_read(&written, own),
    }
}
