//! Gathering and scattering by index tensors, joining, padding and flipping.
//!
//! Kernels are in `cpu/index.rs` and `mlx/index.rs`. Index tensors reach them as int64 on the op's own device; both
//! backends check their range.

use super::concat::{
    cat_body, cat_gradient, flip_axes, flip_body, pad_body, repeat_body, roll_body, stack_body, tril_body, triu_body,
};
use super::macros::define_ops;
use super::scatter;
use crate::dispatch::{self, Meta, Prim};
use crate::shape::{self, Axes, Layout, Shape, SliceDim, Slices};
use crate::{DType, Device, Error, Result, Scalar, Tensor};
use lucid_ir::index_ops;
pub use lucid_ir::ops::index::*;
use smallvec::SmallVec;

/// Where a write at indices goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Into a copy.
    Copy,
    /// Into the tensor itself.
    Itself,
}

index_ops!(define_ops);

pub(super) fn run(op: IndexOp, inputs: &[&Tensor], shape: &[usize]) -> Result<Tensor> {
    let dtype = inputs[0].dtype();
    dispatch::apply1(Prim::Index(op), inputs, Meta::new(shape, dtype))
}

/// An index tensor as the kernels take it: int64. Which other dtypes are taken is for the op to say, as in PyTorch.
pub(super) fn as_index(op: &'static str, index: &Tensor) -> Result<Tensor> {
    let long_only = matches!(op, "index_copy" | "index_fill" | "put" | "take" | "take_along_dim");
    // Where nothing is indexed PyTorch does not look.
    let nothing = index.numel() == 0 && (op == "gather" || op.starts_with("scatter"));
    match index.dtype() {
        DType::I64 => Ok(index.clone()),
        DType::I32 if !long_only => index.cast(DType::I64),
        _ if nothing => index.cast(DType::I64),
        other if matches!(op, "index" | "index_put") => {
            let why = "tensors used as indices must be long, int, byte or bool tensors";
            Err(Error::index(op, format!("{why}, got {other}")))
        }
        other if op == "index_fill" => Err(Error::index(op, format!("Expected dtype int64 for index, got {other}"))),
        other => {
            let taken = if long_only { "int64" } else { "int32 or int64" };
            Err(Error::dtype(op, format!("Expected dtype {taken} for index"), &[other]))
        }
    }
}

/// PyTorch's rule for `gather` and `scatter`: as many dimensions, and no size above the other's but along `axis`.
pub(super) fn check_extent(op: &'static str, index: &Tensor, other: &Tensor, axis: Option<usize>) -> Result<()> {
    let fits = |(i, (&a, &b)): (usize, (&usize, &usize))| Some(i) == axis || a <= b;
    let same_rank = index.ndim().max(1) == other.ndim().max(1);
    if same_rank && (index.numel() == 0 || index.shape().iter().zip(other.shape()).enumerate().all(fits)) {
        return Ok(());
    }
    let apart = axis.map_or(String::new(), |a| format!(" apart from dimension {a}"));
    let why = format!("Expected index {:?} to be no larger than {:?}{apart}", index.shape(), other.shape());
    Err(Error::shape(op, why, &[index.shape(), other.shape()]))
}

/// Runs an op along a dimension on 0-d tensors as on vectors of one element.
pub(super) fn with_dims(x: &Tensor) -> Result<Tensor> {
    if x.ndim() == 0 {
        x.reshape(&[1])
    } else {
        Ok(x.clone())
    }
}

fn gather_body(x: &Tensor, dim: isize, index: &Tensor) -> Result<Tensor> {
    let axis = shape::wrap_dim("gather", dim, x.ndim())?;
    let wide = as_index("gather", index)?;
    if index.numel() == 0 && index.ndim() != x.ndim() {
        return super::view::reshape_to(&x.reshape(&[-1])?.narrow(0, 0, 0)?.copy()?, index.shape());
    }
    check_extent("gather", index, x, Some(axis))?;
    if x.ndim() == 0 || index.ndim() == 0 {
        let out = gather_body(&with_dims(x)?, dim, &with_dims(&wide)?)?;
        return super::view::reshape_to(&out, index.shape());
    }
    run(IndexOp::Gather { axis }, &[x, &wide], index.shape())
}

pub(super) fn scatter_along(
    mode: ScatterMode,
    x: &Tensor,
    axis: usize,
    index: &Tensor,
    src: &Tensor,
) -> Result<Tensor> {
    run(IndexOp::Scatter { axis, mode }, &[x, index, src], x.shape())
}

/// The shape that advanced indexing gives, and the shape of the broadcast index.
pub(super) fn indexed_shape(
    op: &'static str,
    x: &Tensor,
    axes: &[usize],
    indices: &[Tensor],
) -> Result<(Shape, Shape)> {
    if axes.len() > x.ndim() {
        let why = format!("too many indices for tensor of dimension {}", x.ndim());
        return Err(Error::index(op, why));
    }
    let mut index = Shape::new();
    for i in indices {
        index = shape::broadcast(op, &index, i.shape()).map_err(|_| {
            let shapes: Vec<_> = indices.iter().map(Tensor::shape).collect();
            Error::index(
                op,
                format!("shape mismatch: indexing tensors could not be broadcast together with shapes {shapes:?}"),
            )
        })?;
    }
    let mut out: Shape = x.shape().iter().enumerate().filter(|(a, _)| !axes.contains(a)).map(|(_, &n)| n).collect();
    let at = index_position(axes);
    out.insert_many(at, index.iter().copied());
    Ok((out, index))
}

/// The indices of a read or write without elements, which PyTorch does not look at, as zeros; others as they are. Of a
/// dimension of size 0 only indices without elements read nothing: `index` is what all of them broadcast to.
fn unread<'a>(
    x: &Tensor,
    axes: &[usize],
    indices: &'a [Tensor],
    (shape, index): (&[usize], &[usize]),
    strict: bool,
) -> Result<std::borrow::Cow<'a, [Tensor]>> {
    if strict || shape::numel(shape) > 0 {
        return Ok(indices.into());
    }
    if shape::numel(index) == 0 {
        let none = || Tensor::full_of(index, Scalar::Int(0), DType::I64, x.device());
        return Ok(indices.iter().map(|_| none()).collect::<Result<Vec<_>>>()?.into());
    }
    match axes.iter().all(|&axis| x.shape()[axis] > 0) {
        true => Ok(indices.iter().map(Tensor::zeros_like).collect::<Result<Vec<_>>>()?.into()),
        false => Ok(indices.into()),
    }
}

/// Reads at index tensors along sorted axes; with `strict` negative ones are refused, as PyTorch does outside of `x[…]`.
pub(crate) fn index_axes(x: &Tensor, axes: &[usize], indices: &[Tensor], strict: bool) -> Result<Tensor> {
    if crate::autograd::is_followed(x) {
        // PyTorch says that before it looks at the indices.
        crate::autograd::check_followed("index", x)?;
    }
    let (shape, index) = indexed_shape("index", x, axes, indices)?;
    let indices = unread(x, axes, indices, (&shape, &index), strict)?;
    let indices = indices.iter();
    let inputs: SmallVec<[&Tensor; 4]> = std::iter::once(x).chain(indices).collect();
    run(IndexOp::Index { axes: Axes::from_slice(axes), strict }, &inputs, &shape)
}

fn index_put_axes(
    x: &Tensor,
    axes: &[usize],
    indices: &[Tensor],
    values: &Tensor,
    accumulate: bool,
    strict: bool,
) -> Result<Tensor> {
    put_axes(Target::Copy, x, axes, indices, values, accumulate, strict)
}

/// Writes or adds values at index tensors along sorted axes.
pub(crate) fn put_axes(
    to: Target,
    x: &Tensor,
    axes: &[usize],
    indices: &[Tensor],
    values: &Tensor,
    accumulate: bool,
    strict: bool,
) -> Result<Tensor> {
    let (shape, index) = indexed_shape("index_put", x, axes, indices)?;
    let fits = shape::broadcast("index_put", values.shape(), &shape).is_ok_and(|s| s == shape);
    if !fits {
        let (values, shape) = (values.shape(), shape.as_slice());
        let why = format!(
            "shape mismatch: value tensor of shape {values:?} cannot be broadcast to indexing result of shape {shape:?}"
        );
        return Err(Error::shape("index_put", why, &[values, shape]));
    }
    if to == Target::Itself && values.ndim() > 0 {
        x.refuse_shared("index_put_", values, true)?;
    }
    let indices = unread(x, axes, indices, (&shape, &index), strict)?;
    let indices = indices.iter();
    // A number may be on the CPU, too.
    let number = if values.ndim() == 0 { Some(beside(x, values)?) } else { None };
    let values = super::view::expand_to(number.as_ref().unwrap_or(values), &shape)?;
    let rest: SmallVec<[&Tensor; 4]> = std::iter::once(&values).chain(indices).collect();
    write_at(to, IndexOp::IndexPut { axes: Axes::from_slice(axes), accumulate, strict }, x, &rest)
}

/// Runs an op that writes into its first input, on a copy or in place. Where its gradient needs what was there before, in
/// place too a copy is made.
pub(super) fn write_at(to: Target, op: IndexOp, x: &Tensor, rest: &[&Tensor]) -> Result<Tensor> {
    let read = if to == Target::Itself { crate::autograd::rewritten(x) } else { None };
    let read = read.as_ref().unwrap_or(x);
    let inputs: SmallVec<[&Tensor; 4]> = std::iter::once(read).chain(rest.iter().copied()).collect();
    if to == Target::Copy {
        return run(op, &inputs, x.shape());
    }
    let name = op.name();
    let keeps = matches!(op, IndexOp::Reduce { .. }) && inputs.iter().any(|t| crate::autograd::is_followed(t));
    if keeps || inputs.iter().any(|t| t.is_batched()) {
        let copy = read.copy()?;
        let made = run(
            op,
            &std::iter::once(&copy).chain(rest.iter().copied()).collect::<SmallVec<[&Tensor; 4]>>(),
            x.shape(),
        )?;
        x.write_in_place(name, made)?;
        return Ok(x.clone());
    }
    rest.iter().try_for_each(|t| crate::autograd::check_in_place(name, x, t))?;
    if let (IndexOp::IndexPut { .. }, [values, ..]) = (&op, rest)
        && super::aliased_write::ends_the_tape(x, values)
    {
        rest.iter().try_for_each(|t| x.refuse_shared(name, t, true))?;
        let write = || super::aliased_write::write_at(&op, x, rest);
        return crate::autograd::record_fill(name, x, values, write).map(|()| x.clone());
    }
    let recorded = || crate::grad_enabled() && inputs.iter().any(|t| t.requires_grad());
    // Of an expanded tensor the tape could not say how often a gradient counts.
    if !matches!(op, IndexOp::IndexPut { .. }) || x.layout().repeats() && recorded() {
        x.refuse_expanded(name)?;
    }
    rest.iter().try_for_each(|t| x.refuse_shared(name, t, true))?;
    // A view of what is written may have lost its place on the tape when the op is recorded: its copy has one.
    let lost = |t: &Tensor| t.shares_storage(x) && crate::autograd::is_followed(t);
    if rest.iter().any(|t| lost(t)) {
        let apart = rest.iter().map(|t| if lost(t) { t.copy() } else { Ok((*t).clone()) });
        let apart = apart.collect::<Result<SmallVec<[Tensor; 4]>>>()?;
        return write_at(to, op, x, &apart.iter().collect::<SmallVec<[&Tensor; 4]>>());
    }
    match x.layout().may_overlap() {
        true => super::aliased_write::write_at(&op, x, rest)?,
        false => dispatch::index_into(&op, x, rest)?,
    }
    // The rule needs the indices alone, so the op can be recorded after the fact.
    let made = crate::autograd::record(Prim::Index(op), &inputs, x.storage().clone())?;
    crate::autograd::record_write(x, &made, false)?;
    Ok(x.clone())
}

pub(super) fn checked_indices(
    op: &'static str,
    x: &Tensor,
    dims: &[isize],
    indices: &[Tensor],
) -> Result<(Axes, Vec<Tensor>)> {
    if dims.len() != indices.len() || dims.is_empty() {
        return Err(Error::index(op, format!("{} dims and {} index tensors given", dims.len(), indices.len())));
    }
    let axes = shape::wrap_dims(op, dims, x.ndim())?;
    let indices: Vec<Tensor> = indices.iter().map(|i| as_index(op, &beside(x, i)?)).collect::<Result<_>>()?;
    if axes.is_sorted() {
        return Ok((axes, indices));
    }
    let mut order: Vec<_> = axes.into_iter().zip(indices).collect();
    order.sort_by_key(|(a, _)| *a);
    Ok(order.into_iter().unzip())
}

/// An index or mask on the device of `x`: PyTorch takes those of the CPU for tensors of any device.
///
/// # Errors
/// As [`Tensor::to_device`].
pub fn beside(x: &Tensor, index: &Tensor) -> Result<Tensor> {
    match (index.device(), x.device()) {
        (Device::Cpu, device @ (Device::Gpu | Device::Meta)) => index.to_device(device),
        _ => Ok(index.clone()),
    }
}

fn index_body(x: &Tensor, dims: &[isize], indices: &[Tensor]) -> Result<Tensor> {
    let (axes, indices) = checked_indices("index", x, dims, indices)?;
    index_axes(x, &axes, &indices, false)
}

fn index_put_body(x: &Tensor, dims: &[isize], indices: &[Tensor], values: &Tensor, accumulate: bool) -> Result<Tensor> {
    let (axes, indices) = checked_indices("index_put", x, dims, indices)?;
    if x.dtype() != values.dtype() {
        let why = "Index put requires the source and destination dtypes match";
        return Err(Error::dtype("index_put", why, &[x.dtype(), values.dtype()]));
    }
    index_put_axes(x, &axes, &indices, values, accumulate, false)
}

pub(crate) fn slice_scatter_dims(x: &Tensor, src: &Tensor, dims: Slices) -> Result<Tensor> {
    run(IndexOp::SliceScatter { dims, pads: false }, &[x, src], x.shape())
}

fn slice_scatter_body(
    x: &Tensor,
    src: &Tensor,
    dim: isize,
    start: Option<i64>,
    end: Option<i64>,
    step: i64,
) -> Result<Tensor> {
    if x.ndim() == 0 {
        return Err(Error::index("slice_scatter", "cannot be applied to a 0-dim tensor."));
    }
    let axis = shape::wrap_dim("slice_scatter", dim, x.ndim())?;
    if step < 1 {
        return Err(Error::runtime("slice_scatter", "slice step must be positive"));
    }
    let slice = slice_of("slice_scatter", x, axis, start, end, step)?;
    let mut expected = Shape::from_slice(x.shape());
    expected[axis] = slice.len;
    let src = super::masked::for_part("slice_scatter", x, src, &expected)?;
    slice_scatter_dims(x, &src, smallvec::smallvec![slice])
}

/// Python's slice of one dimension, with its ends clamped.
pub fn slice_of(
    op: &'static str,
    x: &Tensor,
    axis: usize,
    start: Option<i64>,
    end: Option<i64>,
    step: i64,
) -> Result<SliceDim> {
    if step < 1 {
        return Err(Error::value(op, "slice step must be positive"));
    }
    let n = x.shape()[axis] as i64;
    let clamp = |i: i64| (if i < 0 { i.saturating_add(n) } else { i }).clamp(0, n);
    let (start, end) = (clamp(start.unwrap_or(0)), clamp(end.unwrap_or(n)));
    let len = (end - start).max(0).div_euclid(step) + i64::from((end - start).max(0) % step != 0);
    Ok(SliceDim { axis, start: start as usize, step: step as usize, len: len as usize })
}

/// The view that such a slice gives.
///
/// # Errors
/// What the view reports.
pub fn sliced(x: &Tensor, slice: SliceDim) -> Result<Tensor> {
    super::view::slice_dims(x, smallvec::smallvec![slice])
}

/// Zeros of `shape` with `g` added where `layout` reads.
pub(crate) fn strided_add(g: &Tensor, layout: &Layout, shape: &[usize]) -> Result<Tensor> {
    let op = IndexOp::StridedAdd { layout: Box::new(layout.clone()), shape: Shape::from_slice(shape) };
    run(op, &[g], shape)
}

/// What `layout` reads from a tensor whose elements are in row-major order.
pub(crate) fn strided_read(x: &Tensor, layout: &Layout) -> Result<Tensor> {
    let offset = Some(layout.offset as i64);
    let signed = |v: &[usize]| v.iter().map(|&n| n as isize).collect::<Vec<_>>();
    // The layout counts from the storage's start: give it a storage of its own.
    let base = if x.layout().offset == 0 && x.layout().is_contiguous() { x.clone() } else { x.copy()? };
    base.as_strided(&signed(&layout.shape), &signed(&layout.strides), offset)
}

fn strided_add_unit(x: &Tensor, size: &[isize]) -> Result<Tensor> {
    let shape = shape::infer_size("strided_scatter_add", size, x.shape())?;
    strided_add(x, &Layout::contiguous(x.shape()), &shape)
}

fn nonzero_body(x: &Tensor) -> Result<Tensor> {
    dispatch::nonzero(&x.detach()?)?.transpose(0, 1)
}

fn nonzero_static_body(x: &Tensor, size: Option<i64>, fill_value: i64) -> Result<Tensor> {
    let size = size.ok_or_else(|| Error::kind("nonzero_static", "missing 1 required keyword-only argument: 'size'"))?;
    if size < 0 {
        return Err(Error::runtime("nonzero_static", format!("'size' must be a non-negative number, got {size}")));
    }
    if x.device() == crate::Device::Meta {
        let wanted = super::create::sizes("nonzero_static", &[size as isize, x.ndim() as isize])?;
        return Tensor::full_of(&wanted, Scalar::Int(fill_value), crate::DType::I64, x.device());
    }
    let found = nonzero_body(x)?;
    let rows = found.shape()[0] as i64;
    if rows >= size {
        return found.narrow(0, 0, size)?.copy();
    }
    let wanted = super::create::sizes("nonzero_static", &[(size - rows) as isize, found.shape()[1] as isize])?;
    let rest = Tensor::full_of(&wanted, Scalar::Int(fill_value), crate::DType::I64, x.device())?;
    cat(&[found, rest], 0)
}
