//! Tensors put together, turned and repeated: the bodies of `cat`, `flip`, `roll`, `repeat` and their kin.

use super::aliased_write::write_where;
use super::index::{cat, run, IndexOp, Target};
use super::{result_type, Operand};
use crate::format::made_in;
use crate::shape::{self, Axes, Layout, Shape, SliceDim, Slices};
use crate::MemoryFormat;
use crate::{Device, Error, Result, Scalar, Tensor};

pub(super) fn cat_body(tensors: &[Tensor], dim: isize) -> Result<Tensor> {
    let Some(first) = tensors.first() else {
        return Err(Error::value("cat", "expected a non-empty list of Tensors"));
    };
    // PyTorch skips empty vectors, whatever the others' dimensions.
    let legacy = |t: &&Tensor| !(t.ndim() == 1 && t.numel() == 0);
    let parts: Vec<&Tensor> = tensors.iter().filter(legacy).collect();
    let dtype = result_type(tensors.iter().map(Operand::Tensor))?;
    let Some(&lead) = parts.first() else {
        let empty: Vec<Tensor> = tensors.iter().map(|t| t.cast(dtype)).collect::<Result<_>>()?;
        return run(IndexOp::Concat { axis: 0 }, &empty.iter().collect::<Vec<_>>(), first.shape());
    };
    if lead.is_batched() && lead.ndim() == 0 {
        return Err(Error::index("cat", shape::NO_DIMENSION));
    }
    if lead.ndim() == 0 {
        return Err(Error::runtime("cat", "zero-dimensional tensor cannot be concatenated"));
    }
    let axis = shape::wrap_dim("cat", dim, lead.ndim())?;
    let mut shape = Shape::from_slice(lead.shape());
    shape[axis] = 0;
    for (i, t) in parts.iter().enumerate() {
        let same =
            t.ndim() == lead.ndim() && t.shape().iter().enumerate().all(|(a, &n)| a == axis || n == lead.shape()[a]);
        if !same {
            // Skipped ones are counted, so that the number is the list's.
            let place = tensors.iter().enumerate().filter(|(_, t)| legacy(t)).nth(i).map_or(i, |(at, _)| at);
            let why = match (t.ndim() == lead.ndim())
                .then(|| (0..t.ndim()).find(|&a| a != axis && t.shape()[a] != lead.shape()[a]))
                .flatten()
            {
                Some(a) => format!(
                    "Sizes of tensors must match except in dimension {axis}. Expected size {} but got size {} in dimension {a} for tensor number {place} in the list",
                    lead.shape()[a],
                    t.shape()[a]
                ),
                None => format!(
                    "Sizes of tensors must match except in dimension {axis}: tensor number {place} in the list has {} dimensions where the first has {}",
                    t.ndim(),
                    lead.ndim()
                ),
            };
            return Err(Error::shape("cat", why, &parts.iter().map(|t| t.shape()).collect::<Vec<_>>()));
        }
        shape[axis] += t.shape()[axis];
    }
    let cast: Vec<Tensor> = parts.iter().map(|t| t.cast(dtype)).collect::<Result<_>>()?;
    let joined = run(IndexOp::Concat { axis }, &cast.iter().collect::<Vec<_>>(), &shape)?;
    let skipped = tensors.iter().filter(|t| !legacy(t) && crate::autograd::is_followed(t));
    skipped.into_iter().try_fold(joined, |joined, t| joined.in_steps_of(&t.sum(None, false, None)?))
}

pub(super) fn cat_gradient(c: &crate::autograd::Ctx<'_>, g: &Tensor, axis: usize) -> Result<crate::autograd::Grads> {
    let mut start = 0;
    (0..c.len())
        .map(|i| {
            let len = c.shape(i)[axis];
            let dim = SliceDim { axis, start, step: 1, len };
            start += len;
            if c.needs(i) {
                super::view::slice_dims(g, smallvec::smallvec![dim]).map(Some)
            } else {
                Ok(None)
            }
        })
        .collect()
}

pub(super) fn stack_body(tensors: &[Tensor], dim: isize) -> Result<Tensor> {
    let Some(first) = tensors.first() else {
        return Err(Error::runtime("stack", "expects a non-empty TensorList"));
    };
    let axis = shape::wrap_dim("stack", dim, first.ndim() + 1)?;
    if let Some(odd) = tensors.iter().find(|t| t.shape() != first.shape()) {
        return Err(Error::shape("stack", "expects each tensor to be equal size", &[first.shape(), odd.shape()]));
    }
    if axis < first.ndim() {
        // Side by side along the dimension that the new one comes before: the result has the layout of that, as in PyTorch.
        let mut shape = Shape::from_slice(first.shape());
        shape.insert(axis, tensors.len());
        return super::view::reshape_to(&cat(tensors, axis as isize)?, &shape).map(Tensor::alone_on_storage);
    }
    let parts: Vec<Tensor> = tensors.iter().map(|t| t.unsqueeze(-1)).collect::<Result<_>>()?;
    cat(&parts, -1)
}

pub(super) fn flip_axes(x: &Tensor, axes: &[usize]) -> Result<Tensor> {
    run(IndexOp::Flip { axes: Axes::from_slice(axes) }, &[x], x.shape())
}

pub(super) fn flip_body(x: &Tensor, dims: &[isize]) -> Result<Tensor> {
    let axes = shape::wrap_dims("flip", dims, x.ndim())?;
    if x.ndim() == 0 {
        x.copy()
    } else {
        flip_axes(x, &axes)
    }
}

pub(super) fn roll_body(x: &Tensor, shifts: &[isize], dims: Option<&[isize]>) -> Result<Tensor> {
    let dims = dims.unwrap_or(&[]);
    if dims.is_empty() && shifts.len() == 1 {
        let flat = roll_body(&x.reshape(&[-1])?, shifts, Some(&[0]))?;
        return super::view::reshape_to(&flat, x.shape()).map(Tensor::alone_on_storage);
    }
    if shifts.len() != dims.len() || shifts.is_empty() {
        let why = format!("shifts and dimensions must align. shifts: {}, dims: {}", shifts.len(), dims.len());
        return Err(Error::runtime("roll", why));
    }
    if x.numel() == 0 {
        return x.copy();
    }
    let mut y = x.clone();
    if x.ndim() == 0 {
        let why = format!("Dimension specified as {} but tensor has no dimensions", dims[0]);
        return Err(Error::index("roll", why));
    }
    for (&shift, &dim) in shifts.iter().zip(dims) {
        let axis = shape::wrap_dim("roll", dim, x.ndim())?;
        let n = x.shape().get(axis).copied().unwrap_or(0);
        if n == 0 {
            continue;
        }
        let cut = (n - shift.rem_euclid(n as isize) as usize) % n;
        let d = axis as isize;
        // Two pieces of one tensor: their gradients are put side by side, without zeros.
        let mut pieces = super::split::split_body(&y, super::Sections::List(&[cut as isize, (n - cut) as isize]), d)?;
        pieces.reverse();
        y = cat(&pieces, d)?;
    }
    // Where nothing is there to move, too, the result is a tensor of its own.
    if y.is_same(x) {
        return x.copy();
    }
    Ok(y)
}

pub(super) fn pad_body(x: &Tensor, pad: &[isize], value: Scalar) -> Result<Tensor> {
    padded_by(x, pad, value, true)
}

/// Padding on the way to another result: its gradient is a view.
pub(super) fn padded(x: &Tensor, pad: &[isize], value: Scalar) -> Result<Tensor> {
    padded_by(x, pad, value, false)
}

fn padded_by(x: &Tensor, pad: &[isize], value: Scalar, copies: bool) -> Result<Tensor> {
    if !pad.len().is_multiple_of(2) || pad.len() / 2 > x.ndim() {
        let why = format!("Padding length {} must be even and at most twice the number of dimensions", pad.len());
        return Err(Error::shape("constant_pad_nd", why, &[x.shape()]));
    }
    // Far beyond what memory holds, and far from where the sums below overflow.
    if let Some(p) = pad.iter().find(|p| p.unsigned_abs() > 1 << 60) {
        return Err(Error::shape("constant_pad_nd", format!("a padding of {p} is too large"), &[x.shape()]));
    }
    let (mut shape, mut from, mut to) = (Shape::from_slice(x.shape()), Slices::new(), Slices::new());
    for (i, ends) in pad.chunks(2).enumerate() {
        let axis = x.ndim() - 1 - i;
        let n = x.shape()[axis] as isize;
        let size = n + ends[0] + ends[1];
        let len = (n + ends[0].min(0) + ends[1].min(0)).max(0) as usize;
        if size < 0 || n + ends[0].min(0) + ends[1].min(0) < 0 {
            let why = format!("the padding {ends:?} makes dimension {axis} of size {n} negative");
            return Err(Error::shape("constant_pad_nd", why, &[x.shape()]));
        }
        shape[axis] = size as usize;
        from.push(SliceDim { axis, start: (-ends[0]).max(0) as usize, step: 1, len });
        to.push(SliceDim { axis, start: ends[0].max(0) as usize, step: 1, len });
    }
    super::create::check_held("constant_pad_nd", value, x.dtype())?;
    let full = |shape: &[usize]| Tensor::full_of(shape, value, x.dtype(), x.device());
    let base = match x.layout().suggested_format() {
        // One number, seen everywhere, is written around what is inside.
        MemoryFormat::Contiguous if x.device() == Device::Cpu && !x.is_batched() => {
            super::view::expand_to(&full(&[])?, &shape)?
        }
        MemoryFormat::Contiguous => full(&shape)?,
        _ if x.is_batched() => full(&shape)?,
        format => made_in("constant_pad_nd", &Layout::contiguous(&shape), format, full)?,
    };
    let inner = if pad.iter().any(|&p| p < 0) { super::view::slice_dims(x, from)? } else { x.clone() };
    run(IndexOp::SliceScatter { dims: to, pads: copies }, &[&base, &inner], base.shape())
}

pub(super) fn repeat_body(x: &Tensor, repeats: &[isize]) -> Result<Tensor> {
    let Some(lead) = repeats.len().checked_sub(x.ndim()) else {
        let why = "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor";
        return Err(Error::shape("repeat", why, &[x.shape()]));
    };
    if repeats.iter().any(|&r| r < 0) {
        return Err(Error::runtime("repeat", format!("repeats must not be negative, got {repeats:?}")));
    }
    // Each dimension n becomes (r, n), expanded and merged.
    let (mut split, mut wide, mut out) = (Shape::new(), Shape::new(), Shape::new());
    for (i, &r) in repeats.iter().enumerate() {
        let n = i.checked_sub(lead).map_or(1, |j| x.shape()[j]);
        split.extend_from_slice(&[1, n]);
        wide.extend_from_slice(&[r as usize, n]);
        out.push((r as usize).saturating_mul(n));
    }
    shape::countable("repeat", &out)?;
    let wide = super::view::expand_to(&super::view::reshape_to(x, &split)?, &wide)?;
    super::view::reshape_to(&wide.copy()?, &out).map(Tensor::alone_on_storage)
}

pub(super) fn tril_body(to: Target, x: &Tensor, diagonal: i64) -> Result<Tensor> {
    triangle(true, to, x, diagonal)
}

pub(super) fn triu_body(to: Target, x: &Tensor, diagonal: i64) -> Result<Tensor> {
    triangle(false, to, x, diagonal)
}

fn triangle(lower: bool, to: Target, x: &Tensor, diagonal: i64) -> Result<Tensor> {
    let name = if lower { "tril" } else { "triu" };
    if x.ndim() < 2 {
        return Err(Error::shape(name, "input tensor must have at least 2 dimensions", &[x.shape()]));
    }
    let [rows, cols] = [x.shape()[x.ndim() - 2], x.shape()[x.ndim() - 1]];
    let line = |n: usize| super::create::arange_of(n, x.device());
    let (i, j) = (line(rows)?.unsqueeze(1)?, line(cols)?);
    let edge = (i + diagonal)?;
    let kept = if lower { j.le(&edge)? } else { j.ge(&edge)? };
    match to {
        Target::Copy => x.contiguous()?.where_else_zero(&kept),
        Target::Itself => {
            let zero = Tensor::constant(Scalar::ZERO, x.dtype(), x.device())?;
            let _name = crate::autograd::OpScope::of(name, 0);
            write_where(if lower { "tril_" } else { "triu_" }, x, &kept.logical_not()?, &zero)
        }
    }
}
