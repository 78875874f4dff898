//! Pooling over windows in one to three dimensions.
//!
//! Where a gradient is recorded on the CPU, max-pooling finds the places of the maxima, the first of each window at a tie
//! as in PyTorch, and takes what is there; it keeps the places. On the GPU it saves its input, and the gradient finds the
//! maxima again, within one kernel. `MaxPick` and `MaxScatter` are each other's gradient, and so are `Take` and `Put`.
//! Kernels are in `cpu/pool` and `mlx/pool.rs`.

use super::conv::{spatial, Spatial};
use super::macros::define_ops;
use super::Rounding;
use crate::autograd;
use crate::dispatch::{self, Meta, Prim};
use crate::shape::{numel, Layout, Shape};
use crate::MemoryFormat;
use crate::{DType, Device, Error, Result, Scalar, Tensor};
pub use lucid_ir::ops::pool::*;
use lucid_ir::pool_ops;

pool_ops!(define_ops);

#[allow(clippy::too_many_arguments)]
fn pool_args(
    op: &'static str,
    x: &[usize],
    kernel: &[isize],
    stride: &[isize],
    padding: &[isize],
    dilation: &[isize],
    ceil_mode: bool,
    n: usize,
) -> Result<Box<PoolArgs>> {
    let kernel = spatial(op, "kernel_size", kernel, n, 1)?;
    let stride = if stride.is_empty() { kernel.clone() } else { spatial(op, "stride", stride, n, 1)? };
    let (padding, dilation) = (spatial(op, "padding", padding, n, 0)?, spatial(op, "dilation", dilation, n, 1)?);
    if x.len() != n + 2 {
        return Err(Error::shape(op, format!("expected {}D or {}D input", n + 1, n + 2), &[x]));
    }
    if x[1] == 0 {
        return Err(Error::shape(op, "expected non-zero sizes for all dimensions but the batch", &[x]));
    }
    let mut output = Spatial::new();
    for i in 0..n {
        if padding[i] * 2 > dilation[i] * (kernel[i] - 1) + 1 {
            let why = format!(
                "pad should be at most half of effective kernel size, but got pad={}, kernel_size={}",
                padding[i], kernel[i]
            );
            return Err(Error::runtime(op, why));
        }
        let (size, reach) = (x[i + 2] + 2 * padding[i], dilation[i] * (kernel[i] - 1) + 1);
        // Rounded up, even the first window may hang over.
        let room = if ceil_mode { (size + stride[i] - 1).checked_sub(reach) } else { size.checked_sub(reach) };
        let mut count = room.filter(|_| x[i + 2] > 0).map_or(0, |room| room / stride[i] + 1);
        // A window must start inside the input or the padding before it.
        if ceil_mode && count > 0 && (count - 1) * stride[i] >= x[i + 2] + padding[i] {
            count -= 1;
        }
        if count == 0 {
            return Err(Error::shape(op, format!("the window {kernel:?} is larger than the padded input"), &[x]));
        }
        output.push(count);
    }
    Ok(Box::new(PoolArgs { kernel, stride, padding, dilation, output, count_include_pad: true, divisor: None }))
}

fn pooled_shape(x: &[usize], args: &PoolArgs) -> Shape {
    let mut shape = Shape::from_slice(&x[..2]);
    shape.extend_from_slice(&args.output);
    shape
}

fn run(op: PoolOp, inputs: &[&Tensor], shape: Shape, dtype: DType) -> Result<Tensor> {
    dispatch::apply1(Prim::Pool(op), inputs, Meta { shape, dtype })
}

/// Is a gradient recorded for which the places of maxima are kept?
fn keeps_places(x: &Tensor) -> bool {
    let fits = x.device() == Device::Cpu && i32::try_from(numel(&x.shape()[2..])).is_ok();
    fits && autograd::grad_enabled() && x.requires_grad()
}

fn max(x: &Tensor, args: Box<PoolArgs>) -> Result<Tensor> {
    schema::max_pool.check(x.dtype())?;
    if keeps_places(x) {
        return take(x, &max_indices(x, args, DType::I32)?);
    }
    let shape = pooled_shape(x.shape(), &args);
    run(PoolOp::Max { args }, &[x], shape, x.dtype())
}

fn max_pick(x: &Tensor, source: &Tensor, args: &PoolArgs) -> Result<Tensor> {
    let op = PoolOp::MaxPick { args: Box::new(args.clone()) };
    run(op, &[&x.detach()?, source], pooled_shape(x.shape(), args), source.dtype())
}

fn max_scatter(x: &Tensor, g: &Tensor, args: &PoolArgs) -> Result<Tensor> {
    let op = PoolOp::MaxScatter { args: Box::new(args.clone()) };
    run(op, &[&x.detach()?, g], Shape::from_slice(x.shape()), g.dtype())
}

fn take(x: &Tensor, places: &Tensor) -> Result<Tensor> {
    run(PoolOp::Take, &[x, places], Shape::from_slice(places.shape()), x.dtype())
}

fn put(g: &Tensor, places: &Tensor, shape: &[usize]) -> Result<Tensor> {
    let shape = Shape::from_slice(shape);
    run(PoolOp::Put { shape: shape.clone() }, &[g, places], shape, g.dtype())
}

fn average(x: &Tensor, args: &PoolArgs) -> Result<Tensor> {
    let op = PoolOp::Average { args: Box::new(args.clone()) };
    run(op, &[x], pooled_shape(x.shape(), args), x.dtype())
}

fn average_spread(g: &Tensor, args: &PoolArgs, shape: &[usize]) -> Result<Tensor> {
    let shape = Shape::from_slice(shape);
    run(PoolOp::AverageSpread { args: Box::new(args.clone()), shape: shape.clone() }, &[g], shape, g.dtype())
}

/// Do sequences have the layout of images of one row with their channels last? PyTorch pools, and convolves, them as such.
pub(crate) fn are_channels_last(x: &Tensor) -> bool {
    let &[n, c, l] = x.shape() else { return false };
    if x.is_batched() || x.is_contiguous() {
        return false;
    }
    let (shape, own) = ([n, c, 1, l], x.strides());
    let strides = [own[0], own[1], own[2].saturating_mul(l), own[2]];
    let layout = Layout { shape: shape.as_slice().into(), strides: strides.as_slice().into(), offset: 0 };
    layout.suggested_format() == MemoryFormat::ChannelsLast
}

/// Arguments for sequences as those for images of one row.
fn of_images(args: &[isize], of_row: isize) -> [isize; 2] {
    [of_row, args.first().copied().unwrap_or(of_row)]
}

/// Runs a pool on a batch of one where the input has no batch dimension.
fn batched(n: usize, x: &Tensor, pool: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    match x.ndim() == n + 1 {
        true => pool(&x.unsqueeze(0)?)?.squeeze(Some(&[0])),
        false => pool(x),
    }
}

fn max_pool_nd(
    n: usize,
    x: &Tensor,
    kernel: &[isize],
    stride: Option<&[isize]>,
    padding: &[isize],
    dilation: &[isize],
    ceil_mode: bool,
) -> Result<Tensor> {
    let op = ["max_pool1d", "max_pool2d", "max_pool3d"][n - 1];
    if n == 1 && are_channels_last(x) && autograd::grad_enabled() && x.requires_grad() {
        pool_args(op, x.shape(), kernel, stride.unwrap_or(&[]), padding, dilation, ceil_mode, n)?;
        let stride = stride.filter(|s| !s.is_empty()).map(|s| of_images(s, 1));
        let (kernel, padding, dilation) = (of_images(kernel, 1), of_images(padding, 0), of_images(dilation, 1));
        let images = x.unsqueeze(2)?;
        return max_pool_nd(2, &images, &kernel, stride.as_ref().map(|s| &s[..]), &padding, &dilation, ceil_mode)?
            .squeeze(Some(&[2]));
    }
    batched(n, x, |x| max(x, pool_args(op, x.shape(), kernel, stride.unwrap_or(&[]), padding, dilation, ceil_mode, n)?))
}

/// The indices that PyTorch's `return_indices=True` gives beside the pooled values, for (N, C, space…) or (C, space…).
///
/// # Errors
/// As [`max_pool2d`].
pub fn max_pool_with_indices(
    n: usize,
    x: &Tensor,
    kernel: &[isize],
    stride: &[isize],
    padding: &[isize],
    dilation: &[isize],
    ceil_mode: bool,
) -> Result<(Tensor, Tensor)> {
    if x.ndim() == n + 1 {
        let (y, i) = max_pool_with_indices(n, &x.unsqueeze(0)?, kernel, stride, padding, dilation, ceil_mode)?;
        return Ok((y.squeeze(Some(&[0]))?, i.squeeze(Some(&[0]))?));
    }
    let args = pool_args("max_pool", x.shape(), kernel, stride, padding, dilation, ceil_mode, n)?;
    if keeps_places(x) {
        schema::max_pool.check(x.dtype())?;
        let places = max_indices(x, args, DType::I32)?;
        return Ok((take(x, &places)?, places.cast(DType::I64)?));
    }
    Ok((max(x, args.clone())?, max_indices(x, args, DType::I64)?))
}

/// Places of the maxima, int64, or int32 for planes of fewer than 2^31 elements.
fn max_indices(x: &Tensor, args: Box<PoolArgs>, dtype: DType) -> Result<Tensor> {
    let shape = pooled_shape(x.shape(), &args);
    run(PoolOp::MaxIndices { args }, &[&x.detach()?], shape, dtype)
}

fn max_pool_body(
    x: &Tensor,
    kernel: &[isize],
    stride: &[isize],
    padding: &[isize],
    dilation: &[isize],
    ceil: bool,
) -> Result<Tensor> {
    max(x, pool_args("max_pool", x.shape(), kernel, stride, padding, dilation, ceil, kernel.len())?)
}

fn max_indices_body(
    x: &Tensor,
    kernel: &[isize],
    stride: &[isize],
    padding: &[isize],
    dilation: &[isize],
    ceil: bool,
) -> Result<Tensor> {
    schema::max_pool.check(x.dtype())?;
    let args = pool_args("max_pool_indices", x.shape(), kernel, stride, padding, dilation, ceil, kernel.len())?;
    max_indices(x, args, DType::I64)
}

fn max_pick_body(
    x: &Tensor,
    source: &Tensor,
    kernel: &[isize],
    stride: &[isize],
    padding: &[isize],
    dilation: &[isize],
    ceil: bool,
) -> Result<Tensor> {
    let args = pool_args("max_pool_pick", x.shape(), kernel, stride, padding, dilation, ceil, kernel.len())?;
    expect("max_pool_pick", x, source, x.shape())?;
    max_pick(x, source, &args)
}

fn max_scatter_body(
    x: &Tensor,
    g: &Tensor,
    kernel: &[isize],
    stride: &[isize],
    padding: &[isize],
    dilation: &[isize],
    ceil: bool,
) -> Result<Tensor> {
    let args = pool_args("max_pool_scatter", x.shape(), kernel, stride, padding, dilation, ceil, kernel.len())?;
    expect("max_pool_scatter", x, g, &pooled_shape(x.shape(), &args))?;
    max_scatter(x, g, &args)
}

/// Planes of the shapes `space` and `places`, where both are (N, C, …) of one N and one C.
fn expect_planes(op: &'static str, dtype: DType, space: &[usize], places: &Tensor) -> Result<()> {
    schema::max_pool.check(dtype)?;
    if places.dtype() != DType::I32 {
        return Err(Error::dtype(op, "takes places as int32", &[places.dtype()]));
    }
    match space.len() > 2 && places.ndim() == space.len() && places.shape()[..2] == space[..2] {
        true => Ok(()),
        false => {
            Err(Error::shape(op, "expected places (N, C, windows...) for (N, C, space...)", &[space, places.shape()]))
        }
    }
}

fn take_body(x: &Tensor, places: &Tensor) -> Result<Tensor> {
    expect_planes("max_pool_take", x.dtype(), x.shape(), places)?;
    take(x, places)
}

fn put_body(g: &Tensor, places: &Tensor, input_size: &[isize]) -> Result<Tensor> {
    const OP: &str = "max_pool_put";
    let shape: Shape = input_size.iter().map(|&n| n.max(0) as usize).collect();
    expect_planes(OP, g.dtype(), &shape, places)?;
    match g.shape() == places.shape() {
        true => put(g, places, &shape),
        false => Err(Error::shape(OP, "expected a gradient and places of one shape", &[g.shape(), places.shape()])),
    }
}

fn expect(op: &'static str, x: &Tensor, other: &Tensor, shape: &[usize]) -> Result<()> {
    schema::max_pool.check(x.dtype())?;
    match other.shape() == shape {
        true => Ok(()),
        false => Err(Error::shape(
            op,
            format!("expected the second tensor to have the shape {shape:?}"),
            &[x.shape(), other.shape()],
        )),
    }
}

#[allow(clippy::too_many_arguments)]
fn avg_args(
    op: &'static str,
    x: &[usize],
    kernel: &[isize],
    stride: &[isize],
    padding: &[isize],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: Option<i64>,
    n: usize,
) -> Result<Box<PoolArgs>> {
    let mut args = pool_args(op, x, kernel, stride, padding, &[1], ceil_mode, n)?;
    args.count_include_pad = count_include_pad;
    args.divisor = match divisor {
        Some(0) => return Err(Error::runtime(op, "divisor must be not zero")),
        d => d.map(|d| d.unsigned_abs() as usize),
    };
    Ok(args)
}

/// Means of int64: the sums of the windows, divided and cut off towards zero.
fn average_of_integers(x: &Tensor, args: &PoolArgs) -> Result<Tensor> {
    let n = args.kernel.len();
    let (mut windows, mut counts) = (x.clone(), Tensor::full_of(&[1], Scalar::ONE, DType::I64, x.device())?);
    for i in 0..n {
        let (size, kernel, stride, pad) = (x.shape()[i + 2], args.kernel[i], args.stride[i], args.padding[i]);
        // Only as many zeros as the windows reach; what no window reaches is left out.
        let reach = (args.output[i] - 1) * stride + kernel;
        let (axis, behind) = (i as isize + 2, reach.saturating_sub(pad + size));
        let zeros = |len: usize| {
            let mut shape = Shape::from_slice(windows.shape());
            shape[i + 2] = len;
            Tensor::full_of(&shape, Scalar::ZERO, DType::I64, x.device())
        };
        let padded = super::index::cat(&[zeros(pad)?, windows.clone(), zeros(behind)?], axis)?;
        windows = padded.narrow(axis, 0, reach as i64)?.unfold(axis, kernel as i64, stride as i64)?;
        let count = |o: usize| {
            let (from, to) = (o * stride, (o * stride + kernel).min(size + 2 * pad));
            match args.count_include_pad {
                true => to - from,
                false => to.min(size + pad).saturating_sub(from.max(pad)),
            }
        };
        let own: Vec<i64> = (0..args.output[i]).map(|o| count(o).max(1) as i64).collect();
        counts = (counts.unsqueeze(-1)? * &Tensor::of_elements(&own, &[own.len()], x.device())?)?;
    }
    let sum = windows.sum(Some(&(0..n).map(|i| -1 - i as isize).collect::<Vec<_>>()), false, None)?;
    match args.divisor {
        Some(divisor) => sum.div(divisor as i64, Rounding::Trunc),
        None => sum.div(&counts.squeeze(Some(&[0]))?, Rounding::Trunc),
    }
}

#[allow(clippy::too_many_arguments)]
fn avg_pool_nd(
    n: usize,
    x: &Tensor,
    kernel: &[isize],
    stride: Option<&[isize]>,
    padding: &[isize],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: Option<i64>,
) -> Result<Tensor> {
    let op = ["avg_pool1d", "avg_pool2d", "avg_pool3d"][n - 1];
    schema::avg_pool1d.check(x.dtype())?;
    if n == 1 && are_channels_last(x) {
        avg_args(op, x.shape(), kernel, stride.unwrap_or(&[]), padding, ceil_mode, count_include_pad, divisor, n)?;
        let stride = stride.filter(|s| !s.is_empty()).map(|s| of_images(s, 1));
        let (kernel, padding, images) = (of_images(kernel, 1), of_images(padding, 0), x.unsqueeze(2)?);
        let stride = stride.as_ref().map(|s| &s[..]);
        return avg_pool_nd(2, &images, &kernel, stride, &padding, ceil_mode, count_include_pad, divisor)?
            .squeeze(Some(&[2]));
    }
    batched(n, x, |x| {
        let stride = stride.unwrap_or(&[]);
        let args = avg_args(op, x.shape(), kernel, stride, padding, ceil_mode, count_include_pad, divisor, n)?;
        // PyTorch has this limit in three dimensions alone, and does not count the padding.
        if n == 3 && args.kernel.iter().zip(&x.shape()[2..]).any(|(k, size)| k > size) {
            return Err(Error::shape(op, format!("input is smaller than the window {:?}", args.kernel), &[x.shape()]));
        }
        let mean = if x.dtype() == DType::I64 { average_of_integers(x, &args)? } else { average(x, &args)? };
        if divisor.is_some_and(|d| d < 0) {
            mean.neg()
        } else {
            Ok(mean)
        }
    })
}

fn avg_pool_1d(
    x: &Tensor,
    kernel: &[isize],
    stride: Option<&[isize]>,
    padding: &[isize],
    ceil_mode: bool,
    count_include_pad: bool,
) -> Result<Tensor> {
    avg_pool_nd(1, x, kernel, stride, padding, ceil_mode, count_include_pad, None)
}

fn avg_pool_body(
    x: &Tensor,
    kernel: &[isize],
    stride: &[isize],
    padding: &[isize],
    ceil: bool,
    count_include_pad: bool,
    divisor: Option<i64>,
) -> Result<Tensor> {
    avg_pool_nd(kernel.len().clamp(1, 3), x, kernel, Some(stride), padding, ceil, count_include_pad, divisor)
}

#[allow(clippy::too_many_arguments)]
fn avg_spread_body(
    g: &Tensor,
    input_size: &[isize],
    kernel: &[isize],
    stride: &[isize],
    padding: &[isize],
    ceil: bool,
    count_include_pad: bool,
    divisor: Option<i64>,
) -> Result<Tensor> {
    const OP: &str = "avg_pool_spread";
    schema::avg_pool.check(g.dtype())?;
    let shape: Shape = input_size.iter().map(|&n| n.max(0) as usize).collect();
    let args = avg_args(OP, &shape, kernel, stride, padding, ceil, count_include_pad, divisor, kernel.len())?;
    if g.shape() != pooled_shape(&shape, &args).as_slice() {
        return Err(Error::shape(OP, "the gradient's shape is not that of the pooled input", &[g.shape(), &shape]));
    }
    average_spread(g, &args, &shape)
}
