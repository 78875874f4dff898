//! What a view op shows of a value, and what writing through it makes of the value.
//!
//! Depends on `array` and mlx-ffi. Invariant: `apply(op, write(op, v, x)) = x` for each view whose elements are distinct.
#![allow(unsafe_code)] // MLX checks no index, and no kernel.

use super::convert::{int, ints, Ints};
use super::index::put_axis;
use super::kernel_error::Made;
use super::layout_kernels::row_major;
use super::max_pool::Pooled;
use super::value::{axes_between, identity, physical, reduced, Perm, Value};
use crate::shape::{numel, Layout, SliceDim, Slices};
use crate::{DType, Error};
use lucid_ir::ops::view::ViewOp;
use mlx_ffi::{ops, Array, Dtype};
use smallvec::SmallVec;

/// Is this the view that shows a shape as it is?
pub(super) fn changes_nothing(op: &ViewOp, shape: &[usize]) -> bool {
    match op {
        ViewOp::Reshape { shape: to } | ViewOp::Expand { shape: to } => to.as_slice() == shape,
        ViewOp::Permute { axes } => axes.iter().enumerate().all(|(i, &a)| i == a),
        ViewOp::Slice { dims } => dims.iter().all(|d| d.start == 0 && d.step == 1 && d.len == shape[d.axis]),
        ViewOp::AsStrided { .. } | ViewOp::AsReal | ViewOp::AsComplex | ViewOp::Recast { .. } => false,
    }
}

/// One op for two in a row, where there is one.
pub(super) fn merge(first: &ViewOp, second: &ViewOp) -> Option<ViewOp> {
    match (first, second) {
        // The elements' row-major order is the same in between.
        (ViewOp::Reshape { .. }, ViewOp::Reshape { shape }) => Some(ViewOp::Reshape { shape: shape.clone() }),
        (ViewOp::Expand { .. }, ViewOp::Expand { shape }) => Some(ViewOp::Expand { shape: shape.clone() }),
        (ViewOp::Permute { axes: a }, ViewOp::Permute { axes: b }) => {
            Some(ViewOp::Permute { axes: b.iter().map(|&i| a[i]).collect() })
        }
        (ViewOp::Slice { dims: a }, ViewOp::Slice { dims: b }) => Some(ViewOp::Slice { dims: merge_slices(a, b) }),
        (ViewOp::Recast { from, .. }, ViewOp::Recast { dtype, .. }) => {
            Some(ViewOp::Recast { from: *from, dtype: *dtype })
        }
        (
            ViewOp::Reshape { .. }
            | ViewOp::Expand { .. }
            | ViewOp::Permute { .. }
            | ViewOp::Slice { .. }
            | ViewOp::AsStrided { .. }
            | ViewOp::AsReal
            | ViewOp::AsComplex
            | ViewOp::Recast { .. },
            _,
        ) => None,
    }
}

fn merge_slices(a: &Slices, b: &Slices) -> Slices {
    let mut out = a.clone();
    for d in b {
        match out.iter_mut().find(|o| o.axis == d.axis) {
            Some(o) => {
                *o = SliceDim {
                    axis: o.axis,
                    start: o.start + d.start * o.step,
                    step: o.step.saturating_mul(d.step),
                    len: d.len,
                }
            }
            None => out.push(*d),
        }
    }
    out
}

/// The physical axis that shows a logical one.
pub(super) fn physical_axis(perm: Option<&Perm>, axis: usize) -> usize {
    perm.map_or(axis, |p| p.iter().position(|&a| usize::from(a) == axis).unwrap_or(axis))
}

/// Starts, ends and steps of a slice of a value of this physical shape.
pub(super) fn slice_ends(dims: &[SliceDim], perm: Option<&Perm>, shape: &[i32]) -> Made<(Ints, Ints, Ints)> {
    let (mut start, mut stop, mut step) =
        (Ints::from_elem(0, shape.len()), Ints::from_slice(shape), Ints::from_elem(1, shape.len()));
    for d in dims {
        let axis = physical_axis(perm, d.axis);
        start[axis] = int(d.start)?;
        // Steps beyond the only element say nothing, and may be larger than MLX's numbers.
        step[axis] = if d.len <= 1 { 1 } else { int(d.step)? };
        stop[axis] = if d.len == 0 { start[axis] } else { int(d.start + (d.len - 1) * d.step + 1)? };
    }
    Ok((start, stop, step))
}

fn empty(shape: &[usize], dtype: Dtype) -> Made<Value> {
    Ok(Value::plain(ops::zeros(&ints(shape)?, dtype)?))
}

/// What `op` shows of a value of the logical shape `from`.
pub(super) fn apply(op: &ViewOp, v: &Value, from: &[usize]) -> Made<Value> {
    let shown = match op {
        ViewOp::Reshape { shape } => reshape(v, from, shape)?,
        ViewOp::Permute { axes } => Value::new(v.array()?.clone(), permuted(v, axes)?),
        ViewOp::Expand { shape } => expand(v, from, shape)?,
        ViewOp::Slice { dims } => {
            let (start, stop, step) = slice_ends(dims, v.perm.as_ref(), v.array()?.shape())?;
            Value::new(ops::slice(v.array()?, &start, &stop, &step)?, v.perm.clone())
        }
        ViewOp::AsStrided { layout, .. } => {
            if layout.numel() == 0 {
                return empty(&layout.shape, v.array()?.dtype());
            }
            // MLX's kernel takes row-major arrays only, and its own flattening keeps a stride that all elements share.
            Value::plain(strided(&ops::contiguous(&*v.logical()?, false)?, layout)?)
        }
        // Parts of numbers are not known by the numbers.
        ViewOp::AsReal => return pairs(&*v.logical()?, from),
        ViewOp::AsComplex => return complexes(&*v.logical()?, &from[..from.len().saturating_sub(1)]),
        ViewOp::Recast { from: own, dtype } if own.size() == dtype.size() => {
            return Ok(Value::new(recast(v.array()?, *dtype)?, v.perm.clone()))
        }
        ViewOp::Recast { dtype, .. } => return Ok(Value::plain(recast(&*v.logical()?, *dtype)?)),
    };
    Ok(shown.knowing(v.known))
}

/// The elements that a layout shows of a row-major array. No array comes of this whose elements overlap in memory, other than by
/// broadcasting: MLX's reductions take such an array for contiguous, and write out of bounds.
pub(super) fn strided(whole: &Array, layout: &Layout) -> Made<Array> {
    fits("as_strided", layout, whole.size())?;
    let mut once = layout.clone();
    once.shape.iter_mut().zip(&layout.strides).filter(|&(_, &stride)| stride == 0).for_each(|(n, _)| *n = 1);
    let strides: SmallVec<[i64; 8]> = once.strides.iter().map(|&s| s as i64).collect();
    let shown = ops::as_strided(whole, &ints(&once.shape)?, &strides, once.offset)?;
    let shown = if once.may_overlap() { ops::contiguous(&shown, false)? } else { shown };
    match once.shape == layout.shape {
        true => Ok(shown),
        false => Ok(ops::broadcast_to(&shown, &ints(&layout.shape)?)?),
    }
}

/// Refuses a layout that reaches beyond an array: MLX checks no place that it reads from or writes to.
pub(super) fn fits(op: &'static str, layout: &Layout, size: usize) -> Made<()> {
    if layout.numel() == 0 || layout.span() <= size {
        return Ok(());
    }
    let why = format!("a layout that spans {} elements does not fit an array of {size}", layout.span());
    Err(Error::shape(op, why, &[&layout.shape]).into())
}

/// Complex numbers of a logical shape as float32, in a last dimension of size 2.
fn pairs(a: &Array, shape: &[usize]) -> Made<Value> {
    let flat = ops::view(&ops::reshape(a, &[int(numel(shape))?])?, Dtype::Float32)?;
    let mut to = ints(shape)?;
    to.push(2);
    Ok(Value::plain(ops::reshape(&flat, &to)?))
}

/// Pairs of float32 as complex numbers of a logical shape.
fn complexes(a: &Array, shape: &[usize]) -> Made<Value> {
    let flat = ops::view(&ops::reshape(a, &[int(2 * numel(shape))?])?, Dtype::Complex64)?;
    Ok(Value::plain(ops::reshape(&flat, &ints(shape)?)?))
}

/// An array's bytes as elements of another dtype; where these are of another size, along the last axis.
fn recast(a: &Array, dtype: DType) -> Made<Array> {
    if dtype != DType::Bool {
        return Ok(ops::view(a, super::convert::dtype(dtype)?)?);
    }
    // Bytes other than 0 and 1 are no truth values to MLX's kernels.
    let bytes = ops::view(a, Dtype::Uint8)?;
    Ok(ops::not_equal(&bytes, &Array::scalar(0u8)?)?)
}

/// A value's order of axes once its logical axes are permuted.
fn permuted(v: &Value, axes: &[usize]) -> Made<Option<Perm>> {
    let to = |old: u16| axes.iter().position(|&a| a == usize::from(old)).unwrap_or(0) as u16;
    Ok(reduced(v.order()?.iter().map(|&old| to(old)).collect()))
}

fn reshape(v: &Value, from: &[usize], to: &[usize]) -> Made<Value> {
    if numel(to) == 0 {
        return empty(to, v.array()?.dtype());
    }
    if let Some(own) = &v.perm {
        if let Some(perm) = moved_ones(own, from, to) {
            return Ok(Value::new(ops::reshape(v.array()?, &ints(&physical(to, Some(&perm)))?)?, reduced(perm)));
        }
        if let Some(planar) = Pooled::planar(v)? {
            return Ok(Value::plain(ops::reshape(&planar, &ints(to)?)?));
        }
        if permuted_layout(own, from).reshaped(to).is_none() {
            return Ok(Value::plain(ops::reshape(&row_major(v)?, &ints(to)?)?));
        }
    }
    Ok(Value::plain(ops::reshape(&*v.logical()?, &ints(to)?)?))
}

/// Where the elements of a logical shape are in memory that is row-major in another order of axes.
fn permuted_layout(own: &Perm, shape: &[usize]) -> Layout {
    let mut layout = Layout::contiguous(shape);
    let mut stride = 1;
    for &axis in own.iter().rev() {
        let axis = usize::from(axis);
        layout.strides[axis] = stride;
        stride *= shape[axis].max(1);
    }
    layout
}

/// The order of axes after a reshape that only puts in or takes out dimensions of size 1.
fn moved_ones(own: &Perm, from: &[usize], to: &[usize]) -> Option<Perm> {
    let wide = |shape: &[usize]| -> SmallVec<[usize; 8]> { (0..shape.len()).filter(|&i| shape[i] != 1).collect() };
    let (old, new) = (wide(from), wide(to));
    if old.len() != new.len() || old.iter().zip(&new).any(|(&a, &b)| from[a] != to[b]) {
        return None;
    }
    // Dimensions of size 1 are anywhere: put them in front.
    let mut perm: Perm = (0..to.len()).filter(|&i| to[i] == 1).map(|i| i as u16).collect();
    for &a in own {
        if let Some(i) = old.iter().position(|&o| o == usize::from(a)) {
            perm.push(new[i] as u16);
        }
    }
    Some(perm)
}

fn expand(v: &Value, from: &[usize], to: &[usize]) -> Made<Value> {
    let lead = to.len() - from.len();
    let perm: Option<Perm> =
        v.perm.as_ref().map(|p| (0..lead as u16).chain(p.iter().map(|&a| a + lead as u16)).collect());
    Ok(Value::new(ops::broadcast_to(v.array()?, &ints(&physical(to, perm.as_ref()))?)?, perm))
}

/// The parent's value, of the logical shape `from`, with `child` (of shape `to`) written where `op` shows it.
pub(super) fn write(op: &ViewOp, v: &Value, from: &[usize], to: &[usize], child: Value) -> Made<Value> {
    match op {
        ViewOp::Reshape { .. } => reshape(&child, to, from),
        ViewOp::Permute { axes } => {
            let order: Perm = child.order()?.iter().map(|&a| axes[usize::from(a)] as u16).collect();
            Ok(Value::new(child.array()?.clone(), reduced(order)))
        }
        ViewOp::AsReal => complexes(&*child.logical()?, from),
        ViewOp::AsComplex => pairs(&*child.logical()?, to),
        ViewOp::Recast { from: own, dtype } if own.size() == dtype.size() => {
            Ok(Value::new(recast(child.array()?, *own)?, child.perm.clone()))
        }
        ViewOp::Recast { from: own, .. } => Ok(Value::plain(recast(&*child.logical()?, *own)?)),
        ViewOp::Expand { .. } if numel(from) == numel(to) => reshape(&child, to, from),
        ViewOp::Expand { .. } => {
            let why =
                "more than one element of the written-to tensor refers to a single memory location; clone() it first";
            Err(Error::runtime("expand", why).into())
        }
        ViewOp::Slice { dims } => {
            if numel(to) == 0 {
                return Ok(v.clone());
            }
            let (start, stop, step) = slice_ends(dims, v.perm.as_ref(), v.array()?.shape())?;
            let part = child.ordered(v.perm.as_ref())?;
            Ok(Value::new(ops::slice_update(v.array()?, &part, &start, &stop, &step)?, v.perm.clone()))
        }
        ViewOp::AsStrided { layout, .. } => {
            if numel(to) == 0 {
                return Ok(v.clone());
            }
            let flat = ops::reshape(&*v.logical()?, &[-1])?;
            fits("as_strided", layout, flat.size())?;
            let part = ops::reshape(&*child.logical()?, &[int(layout.numel())?])?;
            // SAFETY: `fits` has checked that the places are in the storage.
            let written = unsafe { put_axis(&flat, &places(layout)?, &part, 0) }?;
            Ok(Value::plain(ops::reshape(&written, &ints(from)?)?))
        }
    }
}

/// The storage index of each element that a layout shows, flattened in row-major order.
pub(super) fn places(layout: &Layout) -> Made<Array> {
    let ndim = layout.ndim();
    let wide = layout.span() > i32::MAX as usize;
    let dtype = if wide { Dtype::Int64 } else { Dtype::Int32 };
    let mut sum: Option<Array> = None;
    for (axis, (&n, &stride)) in layout.shape.iter().zip(&layout.strides).enumerate() {
        if n == 1 {
            continue;
        }
        let stop = n as f64 * stride.max(1) as f64;
        let line = match stride {
            0 => ops::zeros(&[int(n)?], dtype)?,
            _ => ops::arange(0.0, stop, stride as f64, dtype)?,
        };
        let mut shape = Ints::from_elem(1, ndim);
        shape[axis] = int(n)?;
        let line = ops::reshape(&line, &shape)?;
        sum = Some(match sum {
            None => line,
            Some(s) => ops::add(&s, &line)?,
        });
    }
    let offset = if wide { Array::scalar(layout.offset as i64)? } else { Array::scalar(layout.offset as i32)? };
    let all = match sum {
        None => offset,
        Some(s) if layout.offset == 0 => s,
        Some(s) => ops::add(&s, &offset)?,
    };
    Ok(ops::reshape(&all, &[int(layout.numel())?])?)
}

/// A logical shape as one with `ndim` dimensions, ones in front.
pub(super) fn with_leading_ones(shape: &[i32], ndim: usize) -> Ints {
    let mut out = Ints::from_elem(1, ndim.saturating_sub(shape.len()));
    out.extend_from_slice(shape);
    out
}

/// The transposition that brings an array from the logical order into `perm`.
pub(super) fn to_physical(a: &Array, perm: &Perm) -> Made<Array> {
    Ok(ops::transpose_axes(a, &axes_between(&identity(perm.len()), perm))?)
}
