//! Pools, one spatial axis after the other.
//!
//! A window's maximum or sum is taken along the last axis first and then over the others, each time as a fold over
//! strided slices; these commute with the order of axes, so the physical order stays as it is. Depends on `array`,
//! `lower` and mlx-ffi. Invariant: of equals the first in row-major order is the maximum, and NaN is one.
#![allow(unsafe_code)] // MLX checks no index, and no kernel.

use super::array::GpuArray;
use super::bounds;
use super::conv::channels_last;
use super::convert::{self, constant, int, integer_range, ints, Ints};
use super::elementwise::cast_array;
use super::host_kernel;
use super::index::add_axis;
use super::kernel_error::Made;
use super::lower::Peeled;
use super::max_pool::{self, Image, Tiles};
use super::pool_windows::Windows;
use super::value::{physical, Perm, Value, ValueRange};
use super::view::physical_axis;
use crate::shape::numel;
use crate::{DType, Error, Scalar};
use lucid_cpu::CpuBackend;
use lucid_ir::backend::Backend;
use lucid_ir::ops::pool::{PoolArgs, PoolOp};
use lucid_ir::Meta;
use mlx_ffi::{ops, Array, Dtype};

/// From this many elements on, folds over slices beat a reduction over windows.
const LARGE: usize = 1 << 15;

pub(super) fn pool(op: &PoolOp, inputs: &[&GpuArray], out: &Meta) -> Made<GpuArray> {
    if numel(&out.shape) == 0 || inputs[0].numel() == 0 {
        let zeros = ops::zeros(&ints(&out.shape)?, convert::dtype(out.dtype)?)?;
        return GpuArray::new(Value::plain(zeros), &out.shape, out.dtype);
    }
    // What looks at places says at once where they are out of bounds.
    let looks = matches!(op, PoolOp::Take | PoolOp::Put { .. });
    if !looks && host_kernel::takes(inputs[0].element()) {
        let op = op.clone();
        return host_kernel::run(c"LucidPool", inputs, out, move |x, out| CpuBackend::pool(&op, x, out));
    }
    let value = match (op, inputs) {
        (PoolOp::Max { args }, [x]) => max(x, args)?,
        (PoolOp::MaxIndices { args }, [x]) => max_indices(x, args, out.dtype)?,
        (PoolOp::MaxPick { args }, [x, source]) => max_pick(x, source, args)?,
        (PoolOp::MaxScatter { args }, [x, g]) => max_scatter(x, g, args)?,
        (PoolOp::Take, [x, places]) => take(x, places)?,
        (PoolOp::Put { shape }, [g, places]) => put(g, places, shape)?,
        (PoolOp::Average { args }, [x]) => average(x, args)?,
        (PoolOp::AverageSpread { args, shape }, [g]) => average_spread(g, args, shape)?,
        (
            PoolOp::Max { .. }
            | PoolOp::MaxIndices { .. }
            | PoolOp::MaxPick { .. }
            | PoolOp::MaxScatter { .. }
            | PoolOp::Take
            | PoolOp::Put { .. }
            | PoolOp::Average { .. }
            | PoolOp::AverageSpread { .. },
            _,
        ) => return Err(Error::runtime(op.name(), format!("does not take {} arrays", inputs.len())).into()),
    };
    GpuArray::new(value, &out.shape, out.dtype)
}

/// The windows along one physical axis.
#[derive(Clone, Copy)]
struct Line {
    axis: usize,
    kernel: usize,
    stride: usize,
    padding: usize,
    dilation: usize,
    /// Number of windows.
    count: usize,
    /// Elements along the axis.
    size: usize,
}

impl Line {
    /// Elements from the first padding to the end of the last window.
    fn extent(&self) -> usize {
        (self.count - 1) * self.stride + self.dilation * (self.kernel - 1) + 1
    }

    /// Is each element in one window, and all windows inside?
    fn tiles(&self) -> bool {
        self.kernel == self.stride && self.dilation == 1 && self.padding == 0 && self.extent() <= self.size
    }

    /// Do the windows cover the axis exactly?
    fn fits(&self) -> bool {
        self.tiles() && self.extent() == self.size
    }

    /// One element of every window.
    fn pick(&self, x: &Array, at: usize) -> Made<Array> {
        let (mut start, mut stop) = (Ints::from_elem(0, x.ndim()), Ints::from_slice(x.shape()));
        let mut step = Ints::from_elem(1, x.ndim());
        start[self.axis] = int(at * self.dilation)?;
        stop[self.axis] = int(at * self.dilation + (self.count - 1) * self.stride + 1)?;
        step[self.axis] = int(self.stride)?;
        Ok(ops::slice(x, &start, &stop, &step)?)
    }

    /// The array with the padding that the windows reach into.
    fn padded(&self, x: &Array, with: &Array) -> Made<Array> {
        let high = self.extent().saturating_sub(self.size + self.padding);
        if self.padding == 0 && high == 0 {
            return Ok(x.clone());
        }
        Ok(ops::pad(x, &[int(self.axis)?], &[int(self.padding)?], &[int(high)?], with, "constant")?)
    }

    /// Folds every window into one element.
    fn fold(&self, x: &Array, with: &Array, f: fn(&Array, &Array) -> mlx_ffi::Result<Array>) -> Made<Array> {
        if self.kernel == 1 && self.stride == 1 && self.padding == 0 {
            return Ok(x.clone());
        }
        let x = self.padded(x, with)?;
        let mut all = self.pick(&x, 0)?;
        for at in 1..self.kernel {
            all = f(&all, &self.pick(&x, at)?)?;
        }
        Ok(all)
    }
}

/// The windows along each spatial axis, the last axis first.
fn lines(shape: &[usize], perm: Option<&Perm>, args: &PoolArgs) -> Vec<Line> {
    let line = |i: usize| Line {
        axis: physical_axis(perm, i + 2),
        kernel: args.kernel[i],
        stride: args.stride[i],
        padding: args.padding[i],
        dilation: args.dilation[i],
        count: args.output[i],
        size: shape[i + 2],
    };
    (0..args.kernel.len()).rev().map(line).collect()
}

/// The number that is below all others of a dtype.
fn lowest(dtype: DType) -> Made<Array> {
    match integer_range(dtype) {
        Some((low, _)) => constant(low, dtype),
        None => constant(f64::NEG_INFINITY, dtype),
    }
}

/// The array with each window as axes of its own, and these axes. For lines that fit.
fn split_windows(x: &Array, lines: &[Line]) -> Made<(Array, Ints)> {
    let mut sorted = lines.to_vec();
    sorted.sort_by_key(|l| l.axis);
    let (mut shape, mut axes) = (Ints::new(), Ints::new());
    for (axis, &n) in x.shape().iter().enumerate() {
        match sorted.iter().find(|l| l.axis == axis) {
            Some(l) => {
                shape.push(int(l.count)?);
                axes.push(shape.len() as i32);
                shape.push(int(l.kernel)?);
            }
            None => shape.push(n),
        }
    }
    Ok((ops::reshape(x, &shape)?, axes))
}

fn max(x: &GpuArray, args: &PoolArgs) -> Made<Value> {
    let v = x.value()?;
    let smaller = numel(&args.output) < numel(&x.shape()[2..]);
    if let Some(tiles) = tiles(&v, x, args) {
        return tiles.pool(image(&v, tiles.channels)?);
    }
    let pooled = |v: &Value| match Windows::of(v.array()?, v.perm.as_ref(), args)? {
        Some(windows) => windows.max(v.array()?, v.perm.clone()),
        None => max_value(v, x, args),
    };
    match Peeled::of(&v).filter(|_| smaller) {
        Some(peeled) => {
            let below = pooled(&peeled.raw)?;
            peeled.finish(below, x.element())
        }
        None => pooled(&v),
    }
}

/// The windows of a channels-last float32 image that they tile, where a kernel of our own may take them.
fn tiles(v: &Value, x: &GpuArray, args: &PoolArgs) -> Option<Tiles> {
    let fits = x.element() == DType::F32 && x.ndim() == 4 && max_pool::available(v.perm.as_ref());
    let &[_, channels, rows, columns] = x.shape() else { return None };
    // Indices within a kernel have 32 bits.
    let fits = fits && x.numel() <= i32::MAX as usize && lines(x.shape(), v.perm.as_ref(), args).iter().all(Line::fits);
    fits.then(|| Tiles { size: [rows, columns], window: [args.kernel[0], args.kernel[1]], channels })
}

/// What the windows are of, with what has not been computed taken off.
fn image(v: &Value, channels: usize) -> Made<Image> {
    let Some(peeled) = Peeled::of(v) else { return Ok(Image { raw: v.array()?.clone(), bias: None, relu: false }) };
    let (bias, relu) = peeled.taken();
    let bias = bias.map(|b| max_pool::by_channel(b, channels)).transpose()?;
    Ok(Image { raw: peeled.raw.array()?.clone(), bias, relu })
}

fn max_value(v: &Value, x: &GpuArray, args: &PoolArgs) -> Made<Value> {
    let lines = lines(x.shape(), v.perm.as_ref(), args);
    if x.numel() < LARGE && lines.iter().all(Line::fits) {
        let (windows, axes) = split_windows(v.array()?, &lines)?;
        return Ok(Value::new(ops::max_axes(&windows, &axes, false)?, v.perm.clone()));
    }
    let low = lowest(x.element())?;
    let mut y = v.array()?.clone();
    for line in &lines {
        y = line.fold(&y, &low, ops::maximum)?;
    }
    Ok(Value::new(y, v.perm.clone()))
}

/// Is this a maximum? NaN is, whatever it is compared with.
fn is_best(x: &Array, best: &Array, dtype: DType) -> Made<Array> {
    let same = ops::equal(x, best)?;
    if dtype.is_integral() {
        return Ok(same);
    }
    Ok(ops::logical_or(&same, &ops::isnan(x)?)?)
}

/// A vector along one physical axis.
fn along(line: &Line, ndim: usize, values: impl Iterator<Item = i32>) -> Made<Array> {
    let values: Vec<i32> = values.collect();
    let mut shape = Ints::from_elem(1, ndim);
    shape[line.axis] = int(values.len())?;
    Ok(Array::from_slice(&values, &shape)?)
}

/// Each window's maximum as an index into its plane, in the physical order of the array.
fn plane_indices(x: &Array, lines: &[Line], dtype: DType) -> Made<Array> {
    let low = lowest(dtype)?;
    let (mut best, mut wide) = (x.clone(), x.clone());
    for line in lines {
        best = line.fold(&best, &low, ops::maximum)?;
        wide = line.padded(&wide, &low)?;
    }
    // From the last element of the windows to the first: the first maximum is written last.
    let mut places: Vec<Vec<usize>> = vec![vec![]];
    for line in lines.iter().rev() {
        places = places.iter().flat_map(|p| (0..line.kernel).map(move |k| [&[k], p.as_slice()].concat())).collect();
    }
    places.sort_by_key(|p| p.iter().rev().copied().collect::<Vec<_>>());
    let first = |l: &Line, o: usize| (o * l.stride) as i64 - l.padding as i64;
    let mut found: Option<Array> = None;
    for place in places.iter().rev() {
        let (mut part, mut offset, mut step, mut inside) = (wide.clone(), 0, 1, None);
        for (line, &k) in lines.iter().zip(place) {
            part = line.pick(&part, k)?;
            offset += (k * line.dilation) as i64 * step;
            step *= line.size as i64;
            let covers = |o: usize| (0..line.size as i64).contains(&(first(line, o) + (k * line.dilation) as i64));
            if !(0..line.count).all(covers) {
                let mask =
                    ops::astype(&along(line, x.ndim(), (0..line.count).map(|o| i32::from(covers(o))))?, Dtype::Bool)?;
                inside = Some(match inside {
                    None => mask,
                    Some(m) => ops::logical_and(&m, &mask)?,
                });
            }
        }
        let offset = Array::scalar(offset as i32)?;
        found = Some(match found {
            None => ops::full(part.shape(), &offset, Dtype::Int32)?,
            Some(later) => {
                let mut hit = is_best(&part, &best, dtype)?;
                if let Some(inside) = inside {
                    hit = ops::logical_and(&hit, &inside)?;
                }
                ops::where_(&hit, &offset, &later)?
            }
        });
    }
    let mut found = found.map_or_else(|| ops::zeros(best.shape(), Dtype::Int32), Ok)?;
    let mut step = 1;
    for line in lines {
        found = ops::add(&found, &along(line, x.ndim(), (0..line.count).map(|o| (first(line, o) * step) as i32))?)?;
        step *= line.size as i64;
    }
    Ok(found)
}

fn max_indices(x: &GpuArray, args: &PoolArgs, dtype: DType) -> Made<Value> {
    let v = x.value()?;
    let places = match Windows::of(v.array()?, v.perm.as_ref(), args)? {
        Some(windows) => windows.places(v.array()?)?,
        None => plane_indices(v.array()?, &lines(x.shape(), v.perm.as_ref(), args), x.element())?,
    };
    let last = numel(&x.shape()[2..]) as i64 - 1;
    Ok(Value::new(ops::astype(&places, convert::dtype(dtype)?)?, v.perm.clone()).knowing(ValueRange::Within(0, last)))
}

/// Where the spatial axes are together: the perm to work in and their place in it.
fn plane(v: &Value, ndim: usize) -> (Option<Perm>, usize) {
    let last = channels_last(ndim);
    if v.perm.as_ref() == Some(&last) {
        (Some(last), 1)
    } else {
        (None, 2)
    }
}

/// The shape with the spatial axes as one.
fn flat_plane(shape: &[i32], at: usize, n: usize) -> Ints {
    let mut flat = Ints::from_slice(shape);
    let plane = flat.drain(at..at + n).product();
    flat.insert(at, plane);
    flat
}

/// The elements of a source at places of its planes, whose axes are together from `at` on.
fn taken(source: &Array, places: &Array, at: usize, n: usize) -> Made<Array> {
    let flat = ops::reshape(source, &flat_plane(source.shape(), at, n))?;
    let index = ops::reshape(places, &flat_plane(places.shape(), at, n))?;
    // SAFETY: places of planes, checked where they are given, or found by a pool over such planes.
    Ok(ops::reshape(&unsafe { ops::take_along_axis(&flat, &index, at as i32) }?, places.shape())?)
}

/// Zeros of a shape with `g` added at places of the planes.
fn added(g: &Array, places: &Array, shape: &[i32], at: usize, n: usize) -> Made<Array> {
    let zeros = ops::zeros(&flat_plane(shape, at, n), g.dtype())?;
    let index = ops::reshape(places, &flat_plane(places.shape(), at, n))?;
    let flat = ops::reshape(g, index.shape())?;
    // SAFETY: as in `taken`.
    Ok(ops::reshape(&unsafe { add_axis(&zeros, &index, &flat, at) }?, shape)?)
}

fn take(x: &GpuArray, places: &GpuArray) -> Made<Value> {
    bounds::check("max_pool_take", places, numel(&x.shape()[2..]), 2, false)?;
    let (v, at) = (x.value()?, places.value()?);
    let (perm, first) = plane(&v, x.ndim());
    let at = at.ordered(perm.as_ref())?;
    Ok(Value::new(taken(&*v.ordered(perm.as_ref())?, &at, first, x.ndim() - 2)?, perm))
}

fn put(g: &GpuArray, places: &GpuArray, shape: &[usize]) -> Made<Value> {
    bounds::check("max_pool_put", places, numel(&shape[2..]), 2, false)?;
    let (u, at) = (g.value()?, places.value()?);
    let (perm, first) = plane(&u, g.ndim());
    let (g, at) = (u.ordered(perm.as_ref())?, at.ordered(perm.as_ref())?);
    Ok(Value::new(added(&g, &at, &ints(&physical(shape, perm.as_ref()))?, first, shape.len() - 2)?, perm))
}

fn max_pick(x: &GpuArray, source: &GpuArray, args: &PoolArgs) -> Made<Value> {
    let (v, s) = (x.value()?, source.value()?);
    let (perm, at) = plane(&v, x.ndim());
    let images = v.ordered(perm.as_ref())?;
    let places = match Windows::of(&images, perm.as_ref(), args)? {
        Some(windows) => windows.places(&images)?,
        None => plane_indices(&images, &lines(x.shape(), perm.as_ref(), args), x.element())?,
    };
    Ok(Value::new(taken(&*s.ordered(perm.as_ref())?, &places, at, args.kernel.len())?, perm))
}

fn max_scatter(x: &GpuArray, g: &GpuArray, args: &PoolArgs) -> Made<Value> {
    let (v, u) = (x.value()?, g.value()?);
    let (perm, at) = plane(&v, x.ndim());
    let lines = lines(x.shape(), perm.as_ref(), args);
    if let Some(tiles) = tiles(&v, x, args) {
        return tiles.route(&v, image(&v, tiles.channels)?, &u);
    }
    let (x, dtype) = (v.ordered(perm.as_ref())?, x.element());
    let g = u.ordered(perm.as_ref())?;
    if let Some(windows) = Windows::of(&x, perm.as_ref(), args)?
        && let Some(made) = windows.back(&x, &g)?
    {
        return Ok(Value::new(made, perm));
    }
    if lines.iter().all(Line::tiles) {
        return Ok(Value::new(route_back(&x, &g, &lines, dtype)?, perm));
    }
    let places = plane_indices(&x, &lines, dtype)?;
    Ok(Value::new(added(&g, &places, x.shape(), at, args.kernel.len())?, perm))
}

/// The gradient of windows that do not overlap: down the axes it is noted who won, up again the winner is given all.
fn route_back(x: &Array, g: &Array, lines: &[Line], dtype: DType) -> Made<Array> {
    let zero = constant(0, dtype)?;
    let mut rounds: Vec<(Line, Vec<Array>)> = Vec::new();
    let mut level = cropped(x, lines)?;
    for (i, line) in lines.iter().enumerate() {
        let parts = (0..line.kernel).map(|at| line.pick(&level, at)).collect::<Made<Vec<_>>>()?;
        let last = i + 1 == lines.len();
        let (won, best) = winners(&parts, last, dtype)?;
        rounds.push((*line, won));
        if let Some(best) = best {
            level = best;
        }
    }
    let mut grad = g.clone();
    for (line, won) in rounds.iter().rev() {
        let mut shares = Vec::new();
        for w in won {
            shares.push(ops::where_(w, &grad, &zero)?);
            grad = ops::where_(w, &zero, &grad)?;
        }
        shares.push(grad);
        let inner = line.axis + 1;
        let mut shape = Ints::from_slice(shares[0].shape());
        shape[line.axis] *= int(line.kernel)?;
        let woven = ops::stack_axis(&shares.iter().collect::<Vec<_>>(), inner as i32)?;
        grad = ops::reshape(&woven, &shape)?;
    }
    let mut high = Ints::new();
    let mut axes = Ints::new();
    for line in lines.iter().filter(|l| !l.fits()) {
        axes.push(int(line.axis)?);
        high.push(int(line.size - line.extent())?);
    }
    if axes.is_empty() {
        return Ok(grad);
    }
    let low = Ints::from_elem(0, axes.len());
    Ok(ops::pad(&grad, &axes, &low, &high, &zero, "constant")?)
}

/// The array without what no window reaches.
fn cropped(x: &Array, lines: &[Line]) -> Made<Array> {
    if lines.iter().all(Line::fits) {
        return Ok(x.clone());
    }
    let mut stop = Ints::from_slice(x.shape());
    for line in lines {
        stop[line.axis] = int(line.extent())?;
    }
    Ok(ops::slice(x, &Ints::from_elem(0, x.ndim()), &stop, &Ints::from_elem(1, x.ndim()))?)
}

/// Which part, but for the last, holds the first maximum where no part before does; and the maximum, unless not needed.
fn winners(parts: &[Array], last: bool, dtype: DType) -> Made<(Vec<Array>, Option<Array>)> {
    if let ([a, b], true) = (parts, last) {
        let ahead = ops::greater_equal(a, b)?;
        let won = if dtype.is_integral() { ahead } else { ops::logical_or(&ahead, &ops::isnan(a)?)? };
        return Ok((vec![won], None));
    }
    let mut best = parts[0].clone();
    for p in &parts[1..] {
        best = ops::maximum(&best, p)?;
    }
    let won = parts[..parts.len() - 1].iter().map(|p| is_best(p, &best, dtype)).collect::<Made<_>>()?;
    Ok((won, Some(best)))
}

/// What a window's sum along each line is multiplied by: one number, or one per window.
enum Scale {
    One(f64),
    Each(Vec<Vec<f32>>),
}

fn scale(lines: &[Line], args: &PoolArgs) -> Scale {
    if let Some(d) = args.divisor {
        return Scale::One(1.0 / d as f64);
    }
    let count = |l: &Line, o: usize| {
        let (start, size, pad) = ((o * l.stride) as i64 - l.padding as i64, l.size as i64, l.padding as i64);
        let end = (start + l.kernel as i64).min(size + pad);
        let n = if args.count_include_pad { end - start } else { end.min(size) - start.max(0) };
        n.max(1) as usize
    };
    if lines.iter().all(|l| (0..l.count).all(|o| count(l, o) == l.kernel)) {
        return Scale::One(1.0 / lines.iter().map(|l| l.kernel).product::<usize>() as f64);
    }
    Scale::Each(lines.iter().map(|l| (0..l.count).map(|o| 1.0 / count(l, o) as f32).collect()).collect())
}

fn scaled(x: &Array, lines: &[Line], args: &PoolArgs) -> Made<Array> {
    match scale(lines, args) {
        Scale::One(1.0) => Ok(x.clone()),
        Scale::One(s) => Ok(ops::multiply(x, &constant(s, DType::F32)?)?),
        Scale::Each(factors) => {
            let mut y = x.clone();
            for (line, f) in lines.iter().zip(factors) {
                let mut shape = Ints::from_elem(1, x.ndim());
                shape[line.axis] = int(f.len())?;
                y = ops::multiply(&y, &Array::from_slice(&f, &shape)?)?;
            }
            Ok(y)
        }
    }
}

fn average(x: &GpuArray, args: &PoolArgs) -> Made<Value> {
    let v = x.value()?;
    let lines = lines(x.shape(), v.perm.as_ref(), args);
    // 16-bit floats are summed in float32.
    let wide = cast_array(v.array()?, x.element(), DType::F32)?;
    let sum = if x.numel() < LARGE && lines.iter().all(Line::fits) {
        let (windows, axes) = split_windows(&wide, &lines)?;
        super::reduce::sum(&windows, &axes, false, DType::F32)?
    } else {
        let zero = constant(Scalar::ZERO, DType::F32)?;
        let mut y = wide;
        for line in &lines {
            y = line.fold(&y, &zero, ops::add)?;
        }
        y
    };
    Ok(Value::new(cast_array(&scaled(&sum, &lines, args)?, DType::F32, x.element())?, v.perm.clone()))
}

fn average_spread(g: &GpuArray, args: &PoolArgs, shape: &[usize]) -> Made<Value> {
    let u = g.value()?;
    let (perm, dtype) = (u.perm.clone(), g.element());
    let lines = lines(shape, perm.as_ref(), args);
    let mut y = scaled(&cast_array(u.array()?, dtype, DType::F32)?, &lines, args)?;
    for line in &lines {
        y = spread(&y, line)?;
    }
    Ok(Value::new(cast_array(&y, DType::F32, dtype)?, perm))
}

/// Each element added to all places of its window along one axis.
fn spread(g: &Array, line: &Line) -> Made<Array> {
    let mut shape = Ints::from_slice(g.shape());
    if line.fits() {
        let mut split = shape.clone();
        split.insert(line.axis + 1, 1);
        let mut wide = split.clone();
        wide[line.axis + 1] = int(line.kernel)?;
        shape[line.axis] *= int(line.kernel)?;
        return Ok(ops::reshape(&ops::broadcast_to(&ops::reshape(g, &split)?, &wide)?, &shape)?);
    }
    let room = line.extent().max(line.size + line.padding);
    shape[line.axis] = int(room)?;
    let mut all = ops::zeros(&shape, g.dtype())?;
    let (mut start, mut stop, mut step) = (Ints::from_elem(0, g.ndim()), shape.clone(), Ints::from_elem(1, g.ndim()));
    step[line.axis] = int(line.stride)?;
    for at in 0..line.kernel {
        start[line.axis] = int(at)?;
        stop[line.axis] = int(at + (line.count - 1) * line.stride + 1)?;
        all = ops::slice_update_add(&all, g, &start, &stop, &step)?;
    }
    if line.padding == 0 && room == line.size {
        return Ok(all);
    }
    start[line.axis] = int(line.padding)?;
    stop[line.axis] = int(line.padding + line.size)?;
    Ok(ops::slice(&all, &start, &stop, &Ints::from_elem(1, g.ndim()))?)
}
