//! Gathering and scattering, joining, flipping.
//!
//! Depends on `array`, `bounds`, `view` and mlx-ffi. Invariant: an index reaches MLX, which checks none, only after its
//! range is known to be inside (`bounds`).
#![allow(unsafe_code)] // MLX checks no index, and no kernel.

use super::align::align;
use super::array::GpuArray;
use super::bounds;
use super::convert::{self, constant, int, ints, Ints};
use super::custom_kernel;
use super::elementwise::union;
use super::emulator::Language;
use super::framed::Framed;
use super::kernel_error::Made;
use super::value::{reduced, Perm, Value, ValueRange};
use super::view::{fits, physical_axis, places, slice_ends};
use crate::shape::{numel, Layout, Shape, SliceDim, Slices};
use crate::{DType, Error};
use lucid_ir::ops::index::{index_position, IndexOp, ScatterMode};
use lucid_ir::Meta;
use mlx_ffi::{ops, Array, Dtype};
use smallvec::SmallVec;

pub(super) fn index(op: &IndexOp, inputs: &[&GpuArray], out: &Meta) -> Made<GpuArray> {
    GpuArray::new(value_of(op, inputs, out)?, &out.shape, out.dtype)
}

/// The same written over `dst`, whose storage gets the new value.
pub(super) fn index_into(op: &IndexOp, dst: &GpuArray, rest: &[&GpuArray]) -> Made<()> {
    let inputs: SmallVec<[&GpuArray; 4]> = std::iter::once(dst).chain(rest.iter().copied()).collect();
    dst.replace(value_of(op, &inputs, &Meta::new(dst.shape(), dst.element()))?)
}

fn value_of(op: &IndexOp, inputs: &[&GpuArray], out: &Meta) -> Made<Value> {
    Ok(match (op, inputs) {
        (IndexOp::Gather { axis }, [x, at]) => gather(x, *axis, at, out)?,
        (IndexOp::Scatter { axis, mode } | IndexOp::Reduce { axis, mode }, [x, at, src]) => {
            Value::plain(scatter(x, *axis, *mode, at, src)?)
        }
        (IndexOp::Index { axes, strict }, [x, at @ ..]) => take(x, axes, *strict, at, out)?,
        (IndexOp::IndexPut { axes, accumulate, strict }, [x, values, at @ ..]) => {
            Value::plain(put(x, (axes, *strict), *accumulate, values, at)?)
        }
        (IndexOp::SliceScatter { dims, .. }, [x, src]) => slice_scatter(x, src, dims)?,
        (IndexOp::StridedAdd { layout, shape }, [x]) => Value::plain(strided_add(x, layout, shape)?),
        (IndexOp::Concat { .. }, _) if numel(&out.shape) == 0 => nothing(out)?,
        (IndexOp::Concat { axis }, parts) => concat(parts, *axis)?,
        (IndexOp::Flip { axes }, [x]) => flip(x, axes)?,
        (
            IndexOp::Gather { .. }
            | IndexOp::Scatter { .. }
            | IndexOp::Reduce { .. }
            | IndexOp::Index { .. }
            | IndexOp::IndexPut { .. }
            | IndexOp::SliceScatter { .. }
            | IndexOp::StridedAdd { .. }
            | IndexOp::Flip { .. },
            _,
        ) => return Err(Error::runtime(op.name(), format!("does not take {} arrays", inputs.len())).into()),
    })
}

/// The rows of a table at indices.
pub(super) fn rows(x: &GpuArray, at: &GpuArray, out: &Meta) -> Made<Value> {
    take(x, &[0], true, &[at], out)
}

fn nothing(out: &Meta) -> Made<Value> {
    Ok(Value::plain(ops::zeros(&ints(&out.shape)?, convert::dtype(out.dtype)?)?))
}

/// The part of an array that an index of this shape can reach, all of it along `axis`.
fn within_reach(x: &Array, index: &[usize], axis: usize) -> Made<(Option<Array>, Ints)> {
    let mut stop = Ints::from_slice(x.shape());
    for (a, (s, &n)) in stop.iter_mut().zip(index).enumerate() {
        if a != axis {
            *s = int(n)?;
        }
    }
    if stop.as_slice() == x.shape() {
        return Ok((None, stop));
    }
    let zeros = Ints::from_elem(0, stop.len());
    Ok((Some(ops::slice(x, &zeros, &stop, &Ints::from_elem(1, stop.len()))?), stop))
}

fn gather(x: &GpuArray, axis: usize, at: &GpuArray, out: &Meta) -> Made<Value> {
    bounds::check("gather", at, x.shape()[axis], axis, false)?;
    if numel(&out.shape) == 0 {
        return nothing(out);
    }
    let (v, at) = (x.value()?, at.value()?);
    let whole = v.logical()?;
    let (part, _) = within_reach(&whole, &out.shape, axis)?;
    // SAFETY: the indices were checked above.
    let array = unsafe { ops::take_along_axis(part.as_ref().unwrap_or(&whole), &*at.logical()?, int(axis)?) }?;
    Ok(Value::plain(array).knowing(v.known))
}

fn scatter(x: &GpuArray, axis: usize, mode: ScatterMode, at: &GpuArray, src: &GpuArray) -> Made<Array> {
    bounds::check("scatter", at, x.shape()[axis], axis, false)?;
    let shape: Shape = at.shape().into();
    let element = x.element();
    let (x, at, src) = (x.value()?, at.value()?, src.value()?);
    let (whole, at, src) = (x.logical()?, at.logical()?, src.logical()?);
    if numel(&shape) == 0 {
        return Ok(whole.into_owned());
    }
    let (part, stop) = within_reach(&whole, &shape, axis)?;
    let target = part.as_ref().unwrap_or(&whole);
    let written = match mode {
        // SAFETY: the indices were checked above.
        ScatterMode::Set => unsafe { put_axis(target, &at, &src, axis) }?,
        // MLX adds up bools as numbers.
        ScatterMode::Add if element == DType::Bool => meeting(target, axis, ScatterMode::Max, &at, &src, element)?,
        // SAFETY: as above.
        ScatterMode::Add => unsafe { add_axis(target, &at, &src, axis) }?,
        ScatterMode::Prod | ScatterMode::Max | ScatterMode::Min => meeting(target, axis, mode, &at, &src, element)?,
    };
    if part.is_none() {
        return Ok(written);
    }
    Ok(ops::slice_update(&whole, &written, &Ints::from_elem(0, stop.len()), &stop, &Ints::from_elem(1, stop.len()))?)
}

/// Does MLX refuse to scatter these elements? On Metal it scatters none of eight bytes, but for complex sums.
fn refused(x: &Array, sum: bool) -> bool {
    let wide = x.dtype().size() == 8 && !(sum && x.dtype() == Dtype::Complex64);
    wide && custom_kernel::language() == Some(Language::Metal)
}

/// `x` with `src` written at `at` along an axis; along the others `x` is as long as the index.
///
/// # Safety
/// The indices are within the axis.
pub(super) unsafe fn put_axis(x: &Array, at: &Array, src: &Array, axis: usize) -> Made<Array> {
    let along = int(axis)?;
    if !refused(x, false) {
        // SAFETY: the promise of who calls this.
        return Ok(unsafe { ops::put_along_axis(x, at, src, along) }?);
    }
    // Who writes is scattered, as a number of four bytes; what it writes is gathered. So no element has halves of two.
    let (n, zero) = (at.shape()[axis], constant(0, DType::I32)?);
    let mut line = Ints::from_elem(1, at.ndim());
    line[axis] = n;
    let line = ops::reshape(&ops::arange(0.0, f64::from(n), 1.0, Dtype::Int32)?, &line)?;
    let nobody = ops::full(x.shape(), &constant(-1, DType::I32)?, Dtype::Int32)?;
    // SAFETY: the promise of who calls this.
    let writer = unsafe { ops::put_along_axis(&nobody, at, &ops::broadcast_to(&line, at.shape())?, along) }?;
    let src = ops::broadcast_to(src, at.shape())?;
    // SAFETY: who wrote is a place in `src`, or 0.
    let written = unsafe { ops::take_along_axis(&src, &ops::maximum(&writer, &zero)?, along) }?;
    Ok(ops::where_(&ops::greater_equal(&writer, &zero)?, &written, x)?)
}

/// `x` with `src` added at `at` along an axis; along the others `x` is as long as the index.
///
/// # Safety
/// The indices are within the axis.
pub(super) unsafe fn add_axis(x: &Array, at: &Array, src: &Array, axis: usize) -> Made<Array> {
    if !refused(x, true) {
        // SAFETY: the promise of who calls this.
        return Ok(unsafe { ops::scatter_add_axis(x, at, src, int(axis)?) }?);
    }
    meeting(x, axis, ScatterMode::Add, at, &ops::broadcast_to(src, at.shape())?, DType::I64)
}

/// `src` combined with `x` at `at` along an axis, by an index array for every axis: MLX has no shorter form of these.
fn meeting(x: &Array, axis: usize, mode: ScatterMode, at: &Array, src: &Array, element: DType) -> Made<Array> {
    let ndim = x.ndim();
    let mut places: SmallVec<[Array; 4]> = SmallVec::new();
    for (a, &n) in at.shape().iter().enumerate() {
        if a == axis {
            places.push(ops::astype(at, Dtype::Int64)?);
            continue;
        }
        let mut line = Ints::from_elem(1, ndim);
        line[a] = n;
        places.push(ops::reshape(&ops::arange(0.0, f64::from(n), 1.0, Dtype::Int64)?, &line)?);
    }
    let places: SmallVec<[&Array; 4]> = places.iter().collect();
    let axes: Ints = (0..ndim).map(int).collect::<Made<_>>()?;
    let mut sizes = Ints::from_slice(src.shape());
    sizes.extend(std::iter::repeat_n(1, ndim));
    combine(x, &places, &ops::reshape(src, &sizes)?, &axes, mode, element)
}

/// MLX's scatter of each mode. Its extrema pass over NaN, which wins here, and bools go as bytes.
fn combine(x: &Array, at: &[&Array], src: &Array, axes: &[i32], mode: ScatterMode, element: DType) -> Made<Array> {
    if element == DType::Bool && mode != ScatterMode::Set {
        let (x, src) = (ops::astype(x, Dtype::Uint8)?, ops::astype(src, Dtype::Uint8)?);
        let mode = match mode {
            ScatterMode::Set | ScatterMode::Add | ScatterMode::Max => ScatterMode::Max,
            ScatterMode::Prod | ScatterMode::Min => ScatterMode::Min,
        };
        return Ok(ops::astype(&combine(&x, at, &src, axes, mode, DType::U8)?, Dtype::Bool)?);
    }
    if element.size() == 8 {
        return combine_wide(x, at, src, axes, mode);
    }
    // SAFETY: who calls this has checked the indices, or made them of ranges.
    let made = unsafe {
        match mode {
            ScatterMode::Set => ops::scatter(x, at, src, axes)?,
            ScatterMode::Add => ops::scatter_add(x, at, src, axes)?,
            ScatterMode::Prod => ops::scatter_prod(x, at, src, axes)?,
            ScatterMode::Max => ops::scatter_max(x, at, src, axes)?,
            ScatterMode::Min => ops::scatter_min(x, at, src, axes)?,
        }
    };
    if !element.is_float() || !matches!(mode, ScatterMode::Max | ScatterMode::Min) {
        return Ok(made);
    }
    let flag = |a: &Array| -> Made<Array> { Ok(ops::astype(&ops::isnan(a)?, Dtype::Int32)?) };
    // SAFETY: as above.
    let nan = ops::astype(&unsafe { ops::scatter_max(&flag(x)?, at, &flag(src)?, axes) }?, Dtype::Bool)?;
    Ok(ops::where_(&nan, &constant(f64::NAN, element)?, &made)?)
}

/// [`combine`] for elements of eight bytes, which MLX's general scatter refuses on a GPU: along the one axis of the
/// flattened array. `src` is, as for MLX, the places' dimensions and then those of `x`.
fn combine_wide(x: &Array, at: &[&Array], src: &Array, axes: &[i32], mode: ScatterMode) -> Made<Array> {
    let long = |n: i64| -> Made<Array> { Ok(ops::full(&[], &constant(n, DType::I64)?, Dtype::Int64)?) };
    let (ndim, lead) = (x.ndim(), src.ndim() - x.ndim());
    let mut sum = long(0)?;
    let mut stride = 1i64;
    for axis in (0..ndim).rev() {
        let n = x.shape()[axis];
        let part = match axes.iter().position(|&a| a as usize == axis) {
            Some(i) => {
                let index = ops::astype(at[i], Dtype::Int64)?;
                let wrapped = ops::add(&index, &long(i64::from(n))?)?;
                let index = ops::where_(&ops::less(&index, &long(0)?)?, &wrapped, &index)?;
                let mut sizes = Ints::from_slice(index.shape());
                sizes.extend(std::iter::repeat_n(1, ndim));
                ops::reshape(&index, &sizes)?
            }
            None => {
                let mut line = Ints::from_elem(1, lead + ndim);
                line[lead + axis] = n;
                ops::reshape(&ops::arange(0.0, f64::from(n), 1.0, Dtype::Int64)?, &line)?
            }
        };
        sum = ops::add(&sum, &ops::multiply(&part, &long(stride)?)?)?;
        stride *= i64::from(n);
    }
    let at = ops::reshape(&ops::broadcast_to(&sum, src.shape())?, &[-1])?;
    let (flat, src) = (ops::reshape(x, &[-1])?, ops::reshape(src, &[-1])?);
    let made = match mode {
        // SAFETY: places made of indices that were checked, each in its dimension.
        ScatterMode::Set => unsafe { put_axis(&flat, &at, &src, 0) }?,
        ScatterMode::Add if refused(&flat, true) => combine_runs(&flat, &at, &src, ops::add)?,
        // SAFETY: as above.
        ScatterMode::Add => unsafe { ops::scatter_add_axis(&flat, &at, &src, 0) }?,
        ScatterMode::Prod => combine_runs(&flat, &at, &src, ops::multiply)?,
        ScatterMode::Max => combine_runs(&flat, &at, &src, ops::maximum)?,
        ScatterMode::Min => combine_runs(&flat, &at, &src, ops::minimum)?,
    };
    Ok(ops::reshape(&made, x.shape())?)
}

/// What goes to one place is sorted together and combined by doubling; the last of each run has it all.
fn combine_runs(x: &Array, at: &Array, src: &Array, join: fn(&Array, &Array) -> mlx_ffi::Result<Array>) -> Made<Array> {
    let (n, size) = (at.shape()[0], x.shape()[0]);
    let order = ops::argsort_axis(at, 0)?;
    // SAFETY: a sort's order is a permutation, and both have as many elements.
    let (at, mut run) = unsafe { (ops::take_axis(at, &order, 0)?, ops::take_axis(src, &order, 0)?) };
    let part = |a: &Array, start: i32, stop: i32| ops::slice(a, &[start], &[stop], &[1]);
    let mut reach = 1;
    while reach < n {
        let same = ops::equal(&part(&at, reach, n)?, &part(&at, 0, n - reach)?)?;
        let (here, before) = (part(&run, reach, n)?, part(&run, 0, n - reach)?);
        let joined = ops::where_(&same, &join(&here, &before)?, &here)?;
        run = ops::concatenate_axis(&[&part(&run, 0, reach)?, &joined], 0)?;
        reach *= 2;
    }
    // SAFETY: places of `x`, as who calls this has checked.
    let total = join(&unsafe { ops::take_axis(x, &at, 0) }?, &run)?;
    // All but the last of a run go to one place more, which is cut off again.
    let last = ops::concatenate_axis(
        &[
            &ops::not_equal(&part(&at, 1, n)?, &part(&at, 0, n - 1)?)?,
            &ops::full(&[1], &constant(1, DType::Bool)?, Dtype::Bool)?,
        ],
        0,
    )?;
    let spare = constant(i64::from(size), DType::I64)?;
    let to = ops::where_(&last, &at, &spare)?;
    let room = ops::concatenate_axis(&[x, &part(&run, 0, 1)?], 0)?;
    // SAFETY: places of `x`, or the one behind its last.
    let made = unsafe { put_axis(&room, &to, &total, 0) }?;
    Ok(part(&made, 0, size)?)
}

/// The index arrays, all in range, and their common shape.
fn indices(
    op: &'static str,
    x: &GpuArray,
    (axes, strict): (&[usize], bool),
    at: &[&GpuArray],
) -> Made<(SmallVec<[Array; 2]>, Shape)> {
    let mut shape = Shape::new();
    let mut arrays = SmallVec::new();
    for (&axis, &i) in axes.iter().zip(at) {
        bounds::check(op, i, x.shape()[axis], axis, !strict)?;
        shape = crate::shape::broadcast(op, &shape, i.shape())?;
        arrays.push(i.value()?.logical()?.into_owned());
    }
    Ok((arrays, shape))
}

/// PyTorch's order of an indexed result's axes, from MLX's with the broadcast ones in front.
fn moved_back(at: usize, broadcast: usize, ndim: usize) -> Perm {
    // MLX: broadcast, others. PyTorch: others[..at], broadcast, others[at..].
    let mut perm: Perm = (at..at + broadcast).map(|i| i as u16).collect();
    perm.extend((0..ndim as u16).filter(|&i| !(at..at + broadcast).contains(&usize::from(i))));
    perm
}

fn take(x: &GpuArray, axes: &[usize], strict: bool, at: &[&GpuArray], out: &Meta) -> Made<Value> {
    let (at, shape) = indices("index", x, (axes, strict), at)?;
    if numel(&out.shape) == 0 {
        return nothing(out);
    }
    let v = x.value()?;
    let whole = v.logical()?;
    if let ([axis], [at]) = (axes, at.as_slice()) {
        // SAFETY: `indices` has checked them.
        return Ok(Value::plain(unsafe { ops::take_axis(&whole, at, int(*axis)?) }?).knowing(v.known));
    }
    let mut sizes = ints(x.shape())?;
    axes.iter().for_each(|&a| sizes[a] = 1);
    let mlx_axes: Ints = axes.iter().map(|&a| int(a)).collect::<Made<_>>()?;
    let at: SmallVec<[&Array; 4]> = at.iter().collect();
    // SAFETY: `indices` has checked them; slices have one element along their axes and whole dimensions along the others.
    let found = unsafe { ops::gather(&whole, &at, &mlx_axes, &sizes) }?;
    let ones: Ints = axes.iter().map(|&a| int(shape.len() + a)).collect::<Made<_>>()?;
    let found = ops::squeeze_axes(&found, &ones)?;
    // The broadcast dimensions stay in front physically; only the order of axes says where they belong.
    let perm = reduced(moved_back(index_position(axes), shape.len(), out.shape.len()));
    Ok(Value::new(found, perm).knowing(v.known))
}

fn put(
    x: &GpuArray,
    (axes, strict): (&[usize], bool),
    accumulate: bool,
    values: &GpuArray,
    at: &[&GpuArray],
) -> Made<Array> {
    let (at, shape) = indices("index_put", x, (axes, strict), at)?;
    let (v, new) = (x.value()?, values.value()?);
    let whole = v.logical()?;
    if values.numel() == 0 {
        return Ok(whole.into_owned());
    }
    let front = moved_back(index_position(axes), shape.len(), values.ndim());
    let new = new.ordered(Some(&front))?;
    let mut sizes = ints(&shape)?;
    for (a, &n) in x.shape().iter().enumerate() {
        sizes.push(if axes.contains(&a) { 1 } else { int(n)? });
    }
    let new = ops::reshape(&new, &sizes)?;
    let mlx_axes: Ints = axes.iter().map(|&a| int(a)).collect::<Made<_>>()?;
    let at: SmallVec<[&Array; 4]> = at.iter().collect();
    let mode = if accumulate { ScatterMode::Add } else { ScatterMode::Set };
    combine(&whole, &at, &new, &mlx_axes, mode, x.element())
}

fn slice_scatter(x: &GpuArray, src: &GpuArray, dims: &Slices) -> Made<Value> {
    let (v, part) = (x.value()?, src.value()?);
    if src.numel() == 0 {
        return Ok(Value::new(v.array()?.clone(), v.perm.clone()));
    }
    let zero = matches!(v.known, ValueRange::Constant(0.0) | ValueRange::Within(0, 0));
    if zero && dims.iter().all(|d| d.step == 1) {
        return pad(x, &part, src.shape(), dims);
    }
    // Of the two the smaller one is transposed.
    let part = part.ordered(v.perm.as_ref())?;
    let (start, stop, step) = slice_ends(dims, v.perm.as_ref(), v.array()?.shape())?;
    Ok(Value::new(ops::slice_update(v.array()?, &part, &start, &stop, &step)?, v.perm.clone()))
}

/// Zeros around a part, in the part's own order of axes: one operation in place of a fill and a copy.
fn pad(x: &GpuArray, part: &Value, from: &[usize], dims: &[SliceDim]) -> Made<Value> {
    if let [d] = dims {
        return Framed::around(part, d.axis, d.start, x.shape()[d.axis]);
    }
    let (mut axes, mut low, mut high) = (Ints::new(), Ints::new(), Ints::new());
    for d in dims {
        axes.push(int(physical_axis(part.perm.as_ref(), d.axis))?);
        low.push(int(d.start)?);
        high.push(int(x.shape()[d.axis] - d.start - from[d.axis])?);
    }
    let zero = constant(0, x.element())?;
    Ok(Value::new(ops::pad(part.array()?, &axes, &low, &high, &zero, "constant")?, part.perm.clone()))
}

fn strided_add(x: &GpuArray, layout: &Layout, shape: &[usize]) -> Made<Array> {
    let dtype = convert::dtype(x.element())?;
    let sizes = ints(shape)?;
    if x.numel() == 0 || numel(shape) == 0 {
        return Ok(ops::zeros(&sizes, dtype)?);
    }
    fits("strided_scatter_add", layout, numel(shape))?;
    let zeros = ops::zeros(&[int(numel(shape))?], dtype)?;
    let flat = ops::reshape(&*x.value()?.logical()?, &[int(layout.numel())?])?;
    // SAFETY: the places that a layout shows are in the storage that it was made for.
    Ok(ops::reshape(&unsafe { add_axis(&zeros, &places(layout)?, &flat, 0) }?, &sizes)?)
}

fn concat(parts: &[&GpuArray], axis: usize) -> Made<Value> {
    let held = parts.iter().filter(|p| p.numel() > 0).map(|p| p.value()).collect::<Made<SmallVec<[_; 8]>>>()?;
    let values: SmallVec<[&Value; 8]> = held.iter().map(|v| &**v).collect();
    let known = values.iter().map(|v| v.known).reduce(union).unwrap_or(ValueRange::Nothing);
    let (arrays, perm) = match values.as_slice() {
        [one] => return Ok(Value::new(one.array()?.clone(), one.perm.clone()).knowing(known)),
        many => align(many, parts[0].ndim())?,
    };
    let refs: SmallVec<[&Array; 8]> = arrays.iter().map(|a| &**a).collect();
    let place = int(physical_axis(perm.as_ref(), axis))?;
    Ok(Value::new(ops::concatenate_axis(&refs, place)?, perm).knowing(known))
}

fn flip(x: &GpuArray, axes: &[usize]) -> Made<Value> {
    let v = x.value()?;
    if x.numel() == 0 || axes.is_empty() {
        return Ok(Value::new(v.array()?.clone(), v.perm.clone()));
    }
    let at: Ints = axes.iter().map(|&a| int(physical_axis(v.perm.as_ref(), a))).collect::<Made<_>>()?;
    Ok(Value::new(ops::flip_axes(v.array()?, &at)?, v.perm.clone()).knowing(v.known))
}
