//! Convolutions, over MLX's channels-last arrays.
//!
//! Inputs and results are physically (N, space…, C), which their order of axes says, so that neighbours need no
//! transposition. Depends on `array`, `view` and mlx-ffi. Invariant: `contiguous` is called on
//! what MLX would otherwise get with strides.

use super::array::GpuArray;
use super::convert::{self, int, ints, Ints};
use super::custom_kernel;
use super::emulator::Language;
use super::host_kernel;
use super::kernel_error::Made;
use super::lower::Origin;
use super::value::{physical, Perm, Ref, Value};
use crate::shape::numel;
use crate::Error;
use lucid_cpu::CpuBackend;
use lucid_ir::backend::Backend;
use lucid_ir::ops::conv::{ConvArgs, ConvOp, Spatial};
use lucid_ir::Meta;
use mlx_ffi::device::Kind;
use mlx_ffi::{ops, Array, Dtype};

pub(super) fn conv(op: &ConvOp, inputs: &[&GpuArray], out: &Meta) -> Made<GpuArray> {
    if numel(&out.shape) == 0 || inputs[..inputs.len().min(2)].iter().any(|x| x.numel() == 0) {
        return GpuArray::new(of_nothing(op, inputs, out)?, &out.shape, out.dtype);
    }
    if host_kernel::takes(out.dtype) {
        let op = op.clone();
        return host_kernel::run(c"LucidConvolution", inputs, out, move |x, out| CpuBackend::conv(&op, x, out));
    }
    let value = match (op, inputs) {
        (ConvOp::Forward { args }, [x, w, rest @ ..]) => forward(x, w, rest.first().copied(), args)?,
        (ConvOp::InputGradient { args, shape }, [g, w]) => input_gradient(g, w, args, shape)?,
        (ConvOp::WeightGradient { args, shape }, [x, g]) => weight_gradient(x, g, args, shape)?,
        (ConvOp::Forward { .. } | ConvOp::InputGradient { .. } | ConvOp::WeightGradient { .. }, _) => {
            return Err(Error::runtime(op.name(), format!("does not take {} arrays", inputs.len())).into());
        }
    };
    GpuArray::new(value, &out.shape, out.dtype)
}

/// Sums of nothing are zero, and a bias.
fn of_nothing(op: &ConvOp, inputs: &[&GpuArray], out: &Meta) -> Made<Value> {
    let shape = ints(&out.shape)?;
    if let (ConvOp::Forward { .. }, Some(bias)) = (op, inputs.get(2))
        && numel(&out.shape) > 0
    {
        let mut wide = Ints::from_elem(1, shape.len());
        wide[1] = -1;
        let wide = ops::reshape(&*bias.value()?.logical()?, &wide)?;
        return Ok(Value::plain(ops::broadcast_to(&wide, &shape)?));
    }
    Ok(Value::plain(ops::zeros(&shape, convert::dtype(out.dtype)?)?))
}

/// The order of axes (0, 2, 3, …, 1): channels last.
pub(super) fn channels_last(ndim: usize) -> Perm {
    let mut perm: Perm = (0..ndim as u16).collect();
    perm.remove(1);
    perm.push(1);
    perm
}

/// A value in an order of axes, with its elements in that order too.
fn packed<'a>(v: &'a Value, perm: &Perm) -> Made<Ref<'a>> {
    let own = v.order()?;
    let shape = v.array()?.shape();
    let wide = |order: &Perm| -> Perm {
        // Only axes of more than one element say the layout of elements.
        let size = |a: u16| own.iter().position(|&o| o == a).map_or(1, |i| shape[i]);
        order.iter().copied().filter(|&a| size(a) != 1).collect()
    };
    let turned = v.ordered(Some(perm))?;
    if wide(&own) == wide(perm) {
        return Ok(turned);
    }
    // A strided input makes MLX's convolution take a path that is several times slower.
    Ok(Ref::Fresh(ops::contiguous(&turned, false)?))
}

/// A weight as MLX takes it, (out, window…, in), with whatever strides it has. One that is used again and again is moved
/// into that order at the next evaluation; an optimizer's step keeps it there.
fn weight(w: &GpuArray) -> Made<Array> {
    let perm = channels_last(w.ndim());
    let v = w.value()?;
    let array = v.ordered(Some(&perm))?.into_owned();
    if v.is_evaluated() && v.perm.as_ref() != Some(&perm) {
        w.wish_order(perm);
    }
    Ok(array)
}

/// Moves a value's elements into an order of axes.
pub(super) fn settle_into(v: &Value, perm: Perm) -> Made<Value> {
    let array = packed(v, &perm)?.into_owned();
    Ok(Value::new(array, Some(perm)).knowing(v.known))
}

fn sizes(values: &Spatial) -> Made<Ints> {
    ints(values)
}

/// The planes, in elements, of which cuDNN's choice for float32 asks for more memory than there is (an H100, 80 GB, from four
/// images of 128² and 64 channels on; 112² and 256² work), after which nothing works in the process.
const REFUSED: std::ops::Range<usize> = 120 * 120..200 * 200;
/// Products of channels below which it has another choice.
const NARROW: i32 = 32 * 64;
/// Elements of the windows that are copied side by side at a time.
const COLUMNS: usize = 1 << 25;

/// Is this a convolution that MLX on CUDA must not be given?
fn refused(x: &Array, kernel: &Array) -> Made<bool> {
    let (&[_, rows, columns, inward], &[outward, h, w, _]) = (x.shape(), kernel.shape()) else { return Ok(false) };
    let planes = REFUSED.contains(&(rows as usize * columns as usize));
    let wide = inward.saturating_mul(outward) > NARROW && h * w > 1;
    Ok(planes && wide && x.dtype() == Dtype::Float32 && custom_kernel::language() == Some(Language::Cuda))
}

/// A convolution as products of windows, some images at a time.
fn by_columns(x: &Array, kernel: &Array, how: [&Ints; 3], flip: bool) -> Made<Array> {
    let [stride, low, high] = how;
    let kernel = match flip {
        true => {
            let ends: Ints = kernel.shape().iter().map(|&n| n - 1).collect();
            let (start, stop, step) =
                ([0, ends[1], ends[2], 0], [ends[0] + 1, -ends[1] - 2, -ends[2] - 2, ends[3] + 1], [1, -1, -1, 1]);
            ops::slice(kernel, &start, &stop, &step)?
        }
        false => kernel.clone(),
    };
    let (k, images) = (Ints::from_slice(kernel.shape()), x.shape()[0]);
    let x = ops::pad(x, &[1, 2], low, high, &zero_like(x)?, "constant")?;
    let dims: Vec<i64> = x.shape().iter().map(|&d| i64::from(d)).collect();
    let count = |i: usize| (x.shape()[i + 1] - k[i + 1]) / stride[i] + 1;
    let (rows, columns) = (count(0), count(1));
    let line = dims[2] * dims[3];
    let steps = [dims[1] * line, line * i64::from(stride[0]), dims[3] * i64::from(stride[1]), line, dims[3], 1];
    let window = k[1] * k[2] * k[3];
    let weights = ops::transpose_axes(&ops::reshape(&kernel, &[k[0], window])?, &[1, 0])?;
    let per_image = (rows as usize * columns as usize * window as usize).max(1);
    let each = int((COLUMNS / per_image).max(1))?;
    let mut parts: Vec<Array> = Vec::new();
    let mut first = 0;
    while first < images {
        let n = each.min(images - first);
        let sizes = [n, rows, columns, k[1], k[2], k[3]];
        let windows = ops::as_strided(&x, &sizes, &steps, first as usize * dims[1] as usize * line as usize)?;
        // As in `by_patches`: the product would copy windows that overlap, too.
        let windows = ops::reshape(&ops::contiguous(&windows, false)?, &[n * rows * columns, window])?;
        parts.push(ops::reshape(&ops::matmul(&windows, &weights)?, &[n, rows, columns, k[0]])?);
        first += n;
    }
    match parts.len() {
        1 => Ok(parts.swap_remove(0)),
        _ => Ok(ops::concatenate_axis(&parts.iter().collect::<Vec<_>>(), 0)?),
    }
}

/// MLX's convolution; `how` holds stride, padding before and after, and the dilations of kernel and input. MLX has no
/// groups in three dimensions: there each group is a convolution of its own.
fn convolve(x: &Array, kernel: &Array, how: [&Ints; 5], groups: usize, flip: bool) -> Made<Array> {
    let [stride, low, high, dilation, spread] = how;
    let plain = groups == 1 && dilation.iter().chain(spread).all(|&d| d == 1);
    if plain && stride.len() == 2 && refused(x, kernel)? {
        return by_columns(x, kernel, [stride, low, high], flip);
    }
    let one = |x: &Array, w: &Array, groups: usize| -> Made<Array> {
        Ok(ops::conv_general(x, w, stride, low, high, dilation, spread, int(groups)?, flip)?)
    };
    if groups == 1 || stride.len() < 3 {
        return one(x, kernel, groups);
    }
    let part = |a: &Array, axis: usize, i: usize| -> Made<Array> {
        let (mut start, mut stop) = (Ints::from_elem(0, a.ndim()), Ints::from_slice(a.shape()));
        let n = stop[axis] / int(groups)?;
        start[axis] = n * int(i)?;
        stop[axis] = start[axis] + n;
        Ok(ops::slice(a, &start, &stop, &Ints::from_elem(1, a.ndim()))?)
    };
    let last = x.ndim() - 1;
    let parts: Vec<Array> =
        (0..groups).map(|i| one(&part(x, last, i)?, &part(kernel, 0, i)?, 1)).collect::<Made<_>>()?;
    Ok(ops::concatenate_axis(&parts.iter().collect::<Vec<_>>(), last as i32)?)
}

fn forward(x: &GpuArray, w: &GpuArray, bias: Option<&GpuArray>, args: &ConvArgs) -> Made<Value> {
    let perm = channels_last(x.ndim());
    let kernel = weight(w)?;
    let v = x.value()?;
    let input = packed(&v, &perm)?;
    let (stride, padding, dilation) = (sizes(&args.stride)?, sizes(&args.padding)?, sizes(&args.dilation)?);
    let unit = Ints::from_elem(1, stride.len());
    let raw = convolve(&input, &kernel, [&stride, &padding, &padding, &dilation, &unit], args.groups, false)?;
    let raw = Value::new(raw, Some(perm));
    let Some(bias) = bias else { return Ok(raw) };
    let bias = bias.value()?;
    let wide = bias.broadcast(raw.array()?.shape())?.into_owned();
    let perm = raw.perm.clone();
    Value::later(Origin::BiasAdd { raw, bias: bias.logical()?.into_owned(), wide }, perm)
}

/// What a stride-1 convolution over the spread-out gradient needs: padding, which may be negative.
struct Spread {
    low: Vec<i64>,
    high: Vec<i64>,
}

fn input_gradient(g: &GpuArray, w: &GpuArray, args: &ConvArgs, shape: &[usize]) -> Made<Value> {
    let perm = channels_last(g.ndim());
    let kernel = transposed_weight(w, args.groups)?;
    let n = args.stride.len();
    let mut pads = Spread { low: Vec::new(), high: Vec::new() };
    for i in 0..n {
        let reach = (args.dilation[i] * (w.shape()[i + 2] - 1)) as i64;
        let spread = (1 + args.stride[i] * (g.shape()[i + 2] - 1)) as i64;
        pads.low.push(reach - args.padding[i] as i64);
        pads.high.push(shape[i + 2] as i64 - spread + args.padding[i] as i64);
    }
    let clamped = |pads: &[i64]| -> Made<Ints> { pads.iter().map(|&p| int(p.max(0) as usize)).collect() };
    let v = g.value()?;
    let input = packed(&v, &perm)?;
    let unit = Ints::from_elem(1, n);
    let (low, high) = (clamped(&pads.low)?, clamped(&pads.high)?);
    let (stride, dilation) = (sizes(&args.stride)?, sizes(&args.dilation)?);
    let mut y = convolve(&input, &kernel, [&unit, &low, &high, &dilation, &stride], args.groups, true)?;
    if pads.low.iter().chain(&pads.high).any(|&p| p < 0) {
        // A negative padding cuts.
        let (mut start, mut stop) = (Ints::from_elem(0, n + 2), Ints::from_slice(y.shape()));
        for i in 0..n {
            start[i + 1] = int((-pads.low[i]).max(0) as usize)?;
            stop[i + 1] = start[i + 1] + int(shape[i + 2])?;
        }
        y = ops::slice(&y, &start, &stop, &Ints::from_elem(1, n + 2))?;
    }
    Ok(Value::new(y, Some(perm)))
}

/// The weight (out, in / groups, window…) as (in, window…, out / groups).
fn transposed_weight(w: &GpuArray, groups: usize) -> Made<Array> {
    let ndim = w.ndim();
    let v = w.value()?;
    if groups == 1 {
        let mut turned: Perm = (1..ndim as u16).collect();
        turned.push(0);
        return Ok(v.ordered(Some(&turned))?.into_owned());
    }
    let w = v.ordered(Some(&channels_last(ndim)))?;
    let per = |n: i32| n / groups as i32;
    let mut split = Ints::from_slice(w.shape());
    let out = split[0];
    split[0] = per(out);
    split.insert(0, int(groups)?);
    let swapped = ops::swapaxes(&ops::reshape(&w, &split)?, 1, -1)?;
    let mut merged = Ints::from_slice(&swapped.shape()[1..]);
    merged[0] *= groups as i32;
    Ok(ops::reshape(&swapped, &merged)?)
}

fn weight_gradient(x: &GpuArray, g: &GpuArray, args: &ConvArgs, shape: &[usize]) -> Made<Value> {
    let perm = channels_last(x.ndim());
    let (v, u) = (x.value()?, g.value()?);
    let plain = args.groups == 1 && args.dilation.iter().all(|&d| d == 1);
    let kernel = match plain && !by_cudnn(&g.shape()[2..], &shape[2..]) {
        true => by_patches(&*v.ordered(Some(&perm))?, &*u.ordered(Some(&perm))?, args, shape)?,
        false => by_convolution(x.shape(), &v, &u, args, shape)?,
    };
    Ok(Value::new(kernel, Some(perm)))
}

/// Has cuDNN the quicker way, with less memory than all windows take? MLX tells it that a convolution is a gradient by images
/// that are wider than what comes of them.
fn by_cudnn(images: &[usize], window: &[usize]) -> bool {
    let wider = images.len() == 2 && images[1] > window[1] && window.iter().product::<usize>() > 1;
    wider && mlx_ffi::device::kind().is_ok_and(|kind| kind == Kind::Cuda)
}

/// One matrix product of the gradient with all windows of the input.
fn by_patches(x: &Array, g: &Array, args: &ConvArgs, shape: &[usize]) -> Made<Array> {
    let n = args.stride.len();
    let axes: Ints = (1..=n as i32).collect();
    let pad = sizes(&args.padding)?;
    let x = match args.padding.iter().all(|&p| p == 0) {
        // Windows need row-major elements, which a slice's own layout may not be.
        true => ops::contiguous(x, false)?,
        false => ops::pad(x, &axes, &pad, &pad, &zero_like(x)?, "constant")?,
    };
    let dims: Vec<i64> = x.shape().iter().map(|&d| i64::from(d)).collect();
    let step = |axis: usize| dims[axis + 1..].iter().product::<i64>();
    let (mut sizes, mut steps) = (Ints::from_slice(&g.shape()[..=n]), vec![step(0)]);
    steps.extend((0..n).map(|i| step(i + 1) * args.stride[i] as i64));
    for i in 0..n {
        sizes.push(int(shape[i + 2])?);
        steps.push(step(i + 1));
    }
    sizes.push(int(shape[1])?);
    steps.push(1);
    // As in `view::strided`: the product would copy windows that overlap, too.
    let windows = ops::contiguous(&ops::as_strided(&x, &sizes, &steps, 0)?, false)?;
    let rows: i32 = g.shape()[..=n].iter().product();
    let columns: i32 = sizes[n + 1..].iter().product();
    let g = ops::reshape(g, &[rows, int(shape[0])?])?;
    let product = ops::matmul(&ops::transpose_axes(&g, &[1, 0])?, &ops::reshape(&windows, &[rows, columns])?)?;
    Ok(ops::reshape(&product, &ints(&physical(shape, Some(&channels_last(shape.len()))))?)?)
}

fn zero_like(x: &Array) -> Made<Array> {
    Ok(ops::zeros(&[], x.dtype())?)
}

/// The convolution of the input with the gradient, both with batch and channels exchanged.
fn by_convolution(input: &[usize], x: &Value, g: &Value, args: &ConvArgs, shape: &[usize]) -> Made<Array> {
    let n = args.stride.len();
    let ndim = n + 2;
    let swapped: Perm = std::iter::once(1).chain(2..ndim as u16).chain([0]).collect();
    let x = grouped_input(x, args.groups, &swapped)?;
    let g = g.ordered(Some(&swapped))?;
    let (mut low, mut high) = (Ints::new(), Ints::new());
    for i in 0..n {
        let spread = (1 + args.stride[i] * (g.shape()[i + 1] as usize - 1)) as i64;
        let reach = (args.dilation[i] * (shape[i + 2] - 1)) as i64;
        low.push(int(args.padding[i])?);
        high.push((spread - input[i + 2] as i64 + reach - args.padding[i] as i64) as i32);
    }
    let x = cut_negative(x, &mut high)?;
    let (stride, dilation) = (sizes(&args.stride)?, sizes(&args.dilation)?);
    let unit = Ints::from_elem(1, n);
    let y = match args.groups {
        // What cuDNN must not be given is a question of planes and channels, which this has in other places.
        1 => ops::conv_general(&x, &g, &dilation, &low, &high, &stride, &unit, 1, false)?,
        groups => convolve(&x, &g, [&dilation, &low, &high, &stride, &unit], groups, false)?,
    };
    Ok(ops::swapaxes(&y, 0, -1)?)
}

/// Rows that no window reaches are cut off where MLX would have to pad by less than nothing.
fn cut_negative(x: Array, high: &mut Ints) -> Made<Array> {
    if high.iter().all(|&p| p >= 0) {
        return Ok(x);
    }
    let mut stop = Ints::from_slice(x.shape());
    for (i, p) in high.iter_mut().enumerate() {
        stop[i + 1] += (*p).min(0);
        *p = (*p).max(0);
    }
    let ndim = stop.len();
    Ok(ops::slice(&x, &Ints::from_elem(0, ndim), &stop, &Ints::from_elem(1, ndim))?)
}

/// The input (in, space…, batch), or with groups (in / groups, space…, groups × batch).
fn grouped_input(x: &Value, groups: usize, swapped: &Perm) -> Made<Array> {
    if groups == 1 {
        return Ok(x.ordered(Some(swapped))?.into_owned());
    }
    let last = x.ordered(Some(&channels_last(swapped.len())))?;
    let mut split = Ints::from_slice(last.shape());
    let channels = split.pop().unwrap_or(1);
    split.extend_from_slice(&[int(groups)?, channels / groups as i32]);
    let split = ops::reshape(&last, &split)?;
    // (batch, space…, groups, in / groups) to (in / groups, space…, groups, batch)
    let swapped = ops::swapaxes(&split, 0, -1)?;
    let ndim = swapped.ndim() as i32;
    Ok(ops::flatten(&swapped, ndim - 2, ndim - 1)?)
}
