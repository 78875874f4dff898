//! Convolutions in one to three dimensions, and their transposes.
//!
//! Three primitives close over each other's gradients: the convolution, and its products with a gradient towards the
//! input and towards the weight. Kernels are in `cpu/conv/` and `mlx/conv.rs`. Shapes are (batch, channels, space…).

use super::macros::define_ops;
use super::pool::are_channels_last;
use crate::autograd::OpScope;
use crate::dispatch::{self, Meta, Prim};
use crate::shape::{numel, Shape, Sizes};
use crate::tensor::signed;
use crate::{DType, Error, Result, Tensor};
use lucid_ir::conv_ops;
pub use lucid_ir::ops::conv::*;

conv_ops!(define_ops);

/// One number per spatial dimension from one number or a list.
pub(crate) fn spatial(op: &'static str, what: &str, values: &[isize], n: usize, least: isize) -> Result<Spatial> {
    if let Some(bad) = values.iter().find(|&&v| v < least) {
        return Err(Error::runtime(op, format!("{what} must be at least {least}, got {bad}")));
    }
    if let Some(bad) = values.iter().find(|&&v| v > i32::MAX as isize) {
        return Err(Error::runtime(op, format!("{what} is out of range: {bad}")));
    }
    match values.len() {
        1 => Ok(Spatial::from_elem(values[0] as usize, n)),
        len if len == n => Ok(values.iter().map(|&v| v as usize).collect()),
        len => Err(Error::runtime(
            op,
            format!("expected {what} to be a single integer or a list of {n}, got {len} values"),
        )),
    }
}

/// The size of one output dimension; `None` where the window does not fit.
pub(crate) fn window_count(
    size: usize,
    window: usize,
    stride: usize,
    padding: usize,
    dilation: usize,
) -> Option<usize> {
    Some((size + 2 * padding).checked_sub(dilation * window.checked_sub(1)? + 1)? / stride + 1)
}

fn conv_args(
    op: &'static str,
    n: usize,
    stride: &[isize],
    padding: &[isize],
    dilation: &[isize],
    groups: i64,
) -> Result<Box<ConvArgs>> {
    if groups < 1 {
        return Err(Error::runtime(op, format!("non-positive groups is not supported, got {groups}")));
    }
    Ok(Box::new(ConvArgs {
        stride: spatial(op, "stride", stride, n, 1)?,
        padding: spatial(op, "padding", padding, n, 0)?,
        dilation: spatial(op, "dilation", dilation, n, 1)?,
        groups: groups as usize,
    }))
}

fn check_dtypes(op: &'static str, x: &Tensor, rest: &[&Tensor]) -> Result<()> {
    if let Some(row) = SCHEMAS.iter().find(|row| row.name == op) {
        row.check(x.dtype())?;
    }
    if let Some(odd) = rest.iter().find(|t| t.dtype() != x.dtype()) {
        let why = "Input type and weight or bias type should be the same; cast with .to()";
        return Err(Error::dtype(op, why, &[x.dtype(), odd.dtype()]));
    }
    Ok(())
}

#[allow(clippy::too_many_arguments)]
fn conv_nd(
    op: &'static str,
    n: usize,
    x: &Tensor,
    w: &Tensor,
    bias: Option<&Tensor>,
    stride: &[isize],
    padding: &[isize],
    dilation: &[isize],
    groups: i64,
) -> Result<Tensor> {
    check_dtypes(op, x, &[w])?;
    if w.ndim() != n + 2 || !(x.ndim() == n + 2 || x.ndim() == n + 1) {
        let why = format!("expected {}D (unbatched) or {}D (batched) input and {}D weight", n + 1, n + 2, n + 2);
        return Err(Error::shape(op, why, &[x.shape(), w.shape()]));
    }
    let args = conv_args(op, n, stride, padding, dilation, groups)?;
    if n == 1 && x.ndim() == 3 && are_channels_last(w) {
        // In PyTorch images of one row, whose format is that of the weight.
        let args = ConvArgs {
            stride: of_images(&args.stride, 1),
            padding: of_images(&args.padding, 0),
            dilation: of_images(&args.dilation, 1),
            groups: args.groups,
        };
        return conv_checked(op, &x.contiguous()?.unsqueeze(2)?, &w.unsqueeze(2)?, bias, &args)?.squeeze(Some(&[2]));
    }
    if x.ndim() == n + 1 {
        let _steps = OpScope::apart(&[op], None);
        let x = x.unsqueeze(0)?;
        let y = {
            let _name = OpScope::of(op, 0);
            conv_checked(op, &x, w, bias, &args)?
        };
        return y.squeeze(Some(&[0]));
    }
    conv_checked(op, x, w, bias, &args)
}

fn conv_checked(op: &'static str, x: &Tensor, w: &Tensor, bias: Option<&Tensor>, args: &ConvArgs) -> Result<Tensor> {
    let (channels, out) = (x.shape()[1], w.shape()[0]);
    if w.shape()[1] * args.groups != channels || !out.is_multiple_of(args.groups) {
        let why = format!(
            "Given groups={}, weight of size {:?}, expected input {:?} to have {} channels, but got {channels} channels instead",
            args.groups,
            w.shape(),
            x.shape(),
            w.shape()[1] * args.groups
        );
        return Err(Error::shape(op, why, &[x.shape(), w.shape()]));
    }
    if x.shape()[2..].contains(&0) {
        return Err(Error::shape(op, "expected an input with elements in each place", &[x.shape()]));
    }
    if let Some(b) = bias {
        check_dtypes(op, x, &[b])?;
        if b.shape() != [out] {
            return Err(Error::shape(
                op,
                format!("expected bias to be 1-dimensional with {out} elements"),
                &[b.shape()],
            ));
        }
    }
    if output_space(x.shape(), w.shape(), args).is_none() {
        let why = "Calculated padded input size per channel is smaller than the kernel: kernel size can't be greater than actual input size";
        return Err(Error::shape(op, why, &[x.shape(), w.shape()]));
    }
    match x.dtype() {
        dtype if dtype.is_float() => conv_forward(x, w, bias, args),
        DType::C64 | DType::C128 => by_parts(x, w, bias, |x, w| conv_forward(x, w, None, args)),
        _ => with_bias(by_windows(op, x, w, args)?, bias),
    }
}

/// A product of complex tensors, bilinear as `f`, from four products of their parts; with a bias for each channel.
fn by_parts(
    x: &Tensor,
    w: &Tensor,
    bias: Option<&Tensor>,
    f: impl Fn(&Tensor, &Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    let (a, b, c, d) =
        (super::complex::real(x)?, super::complex::imag(x)?, super::complex::real(w)?, super::complex::imag(w)?);
    let (re, im) = ((f(&a, &c)? - &f(&b, &d)?)?, (f(&a, &d)? + &f(&b, &c)?)?);
    with_bias(super::complex::complex(&re, &im)?, bias)
}

fn with_bias(y: Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let Some(bias) = bias else { return Ok(y) };
    let mut wide = Sizes::from_elem(1, y.ndim());
    wide[1] = -1;
    y + &bias.reshape(&wide)?
}

/// The convolution of integers, exact up to wrapping: a product of the weight with every window, which are views.
fn by_windows(op: &'static str, x: &Tensor, w: &Tensor, args: &ConvArgs) -> Result<Tensor> {
    let space = output_space(x.shape(), w.shape(), args)
        .ok_or_else(|| Error::shape(op, "the window is larger than the padded input", &[x.shape(), w.shape()]))?;
    let n = args.stride.len();
    let pads: Vec<isize> = args.padding.iter().rev().flat_map(|&p| [p as isize, p as isize]).collect();
    let mut windows = super::concat::padded(x, &pads, crate::Scalar::ZERO)?;
    for i in 0..n {
        let reach = args.dilation[i] * (w.shape()[i + 2] - 1) + 1;
        windows = windows.unfold(i as isize + 2, reach as i64, args.stride[i] as i64)?;
        let taps = super::create::arange_of(w.shape()[i + 2], x.device())?;
        windows = windows.index_select(-1, &(taps * args.dilation[i] as i64)?)?;
    }
    // (N, C, space…, window…) to (N, groups, C / groups × window…, space…).
    let (batch, groups) = (x.shape()[0], args.groups);
    let (places, depth): (usize, usize) = (numel(&space), numel(&w.shape()[1..]));
    let mut order: Vec<isize> = vec![0, 1];
    order.extend((n + 2..2 * n + 2).chain(2..n + 2).map(|a| a as isize));
    let columns = windows.permute(&order)?.reshape(&signed(&[batch, groups, depth, places]))?;
    let rows = w.reshape(&signed(&[1, groups, w.shape()[0] / groups, depth]))?;
    let mut shape = vec![batch, w.shape()[0]];
    shape.extend(space);
    rows.matmul(&columns)?.cast(x.dtype())?.reshape(&signed(&shape))
}

/// The transposed convolution of integers: a convolution of the input with zeros in between by the weight turned round.
fn spread_by_windows(op: &'static str, x: &Tensor, w: &Tensor, args: &ConvArgs, shape: &[usize]) -> Result<Tensor> {
    let (n, groups) = (args.stride.len(), args.groups);
    let mut x = x.clone();
    let mut pads = Vec::new();
    for i in 0..n {
        let (dim, size, step) = (i as isize + 2, x.shape()[i + 2], args.stride[i]);
        let mut gaps = x.unsqueeze(dim + 1)?;
        let mut ends = Sizes::from_elem(0, 2 * (gaps.ndim() - 1 - dim as usize));
        ends[2 * (gaps.ndim() - 2 - dim as usize) + 1] = step as isize - 1;
        gaps = super::concat::padded(&gaps, &ends, crate::Scalar::ZERO)?;
        let spread = (size * step).saturating_sub(step - 1);
        x = gaps.flatten(dim, dim + 1)?.narrow(dim, 0, spread as i64)?;
        let low = (args.dilation[i] * (w.shape()[i + 2] - 1)) as isize - args.padding[i] as isize;
        let reach = (args.dilation[i] * (w.shape()[i + 2] - 1)) as isize;
        pads.push([low, shape[i + 2] as isize - spread as isize - low + reach]);
    }
    let pads: Vec<isize> = pads.into_iter().rev().flatten().collect();
    let x = super::concat::padded(&x, &pads, crate::Scalar::ZERO)?;
    // (in, out / groups, window…) to (out, in / groups, window…) with the windows turned round.
    let turned: Vec<isize> = (2..n as isize + 2).collect();
    let w = w.flip(&turned)?.unflatten(0, &[groups as isize, -1])?.transpose(1, 2)?.flatten(0, 1)?;
    let one = Spatial::from_elem(1, n);
    let how = ConvArgs { stride: one, padding: Spatial::from_elem(0, n), dilation: args.dilation.clone(), groups };
    by_windows(op, &x, &w, &how)
}

fn output_space(x: &[usize], w: &[usize], args: &ConvArgs) -> Option<Spatial> {
    let one = |i: usize| window_count(x[i + 2], w[i + 2], args.stride[i], args.padding[i], args.dilation[i]);
    (0..args.stride.len()).map(one).collect()
}

fn conv_forward(x: &Tensor, w: &Tensor, bias: Option<&Tensor>, args: &ConvArgs) -> Result<Tensor> {
    let space = output_space(x.shape(), w.shape(), args).ok_or_else(|| {
        Error::shape("convolution", "the window is larger than the padded input", &[x.shape(), w.shape()])
    })?;
    let mut shape = Shape::from_slice(&[x.shape()[0], w.shape()[0]]);
    shape.extend_from_slice(&space);
    let meta = Meta { shape, dtype: x.dtype() };
    let prim = Prim::Conv(ConvOp::Forward { args: Box::new(args.clone()) });
    match bias {
        Some(b) => dispatch::apply1(prim, &[x, w, b], meta),
        None => dispatch::apply1(prim, &[x, w], meta),
    }
}

fn conv_input_gradient(g: &Tensor, w: &Tensor, args: &ConvArgs, shape: &[usize]) -> Result<Tensor> {
    let op = ConvOp::InputGradient { args: Box::new(args.clone()), shape: Shape::from_slice(shape) };
    dispatch::apply1(Prim::Conv(op), &[g, w], Meta::new(shape, g.dtype()))
}

fn conv_weight_gradient(x: &Tensor, g: &Tensor, args: &ConvArgs, shape: &[usize]) -> Result<Tensor> {
    let op = ConvOp::WeightGradient { args: Box::new(args.clone()), shape: Shape::from_slice(shape) };
    dispatch::apply1(Prim::Conv(op), &[x, g], Meta::new(shape, g.dtype()))
}

/// The sum over everything but the channels: a bias's gradient.
fn sum_to_channels(g: &Tensor) -> Result<Tensor> {
    let dims: Vec<isize> = std::iter::once(0).chain(2..g.ndim() as isize).collect();
    g.sum(Some(&dims), false, None)
}

fn convolution_body(
    x: &Tensor,
    w: &Tensor,
    bias: Option<&Tensor>,
    stride: &[isize],
    padding: &[isize],
    dilation: &[isize],
    groups: i64,
) -> Result<Tensor> {
    conv_nd("convolution", w.ndim().saturating_sub(2), x, w, bias, stride, padding, dilation, groups)
}

fn sizes_of(op: &'static str, sizes: &[isize]) -> Result<Shape> {
    match sizes.iter().find(|&&n| n < 0) {
        Some(bad) => Err(Error::runtime(op, format!("sizes must not be negative, got {bad}"))),
        None => Ok(sizes.iter().map(|&n| n as usize).collect()),
    }
}

/// Do the three shapes belong to one convolution?
fn check_triple(op: &'static str, x: &[usize], w: &[usize], g: &[usize], args: &ConvArgs) -> Result<()> {
    let n = args.stride.len();
    let fits = [x, w, g].iter().all(|s| s.len() == n + 2)
        && x[0] == g[0]
        && w[0] == g[1]
        && w[1] * args.groups == x[1]
        && w[0].is_multiple_of(args.groups)
        && output_space(x, w, args).is_some_and(|s| s.as_slice() == &g[2..]);
    match fits {
        true => Ok(()),
        false => Err(Error::shape(op, "input, weight and gradient do not belong to one convolution", &[x, w, g])),
    }
}

fn input_gradient_body(
    g: &Tensor,
    w: &Tensor,
    input_size: &[isize],
    stride: &[isize],
    padding: &[isize],
    dilation: &[isize],
    groups: i64,
) -> Result<Tensor> {
    const OP: &str = "convolution_input_gradient";
    check_dtypes(OP, g, &[w])?;
    let (shape, args) =
        (sizes_of(OP, input_size)?, conv_args(OP, w.ndim().saturating_sub(2), stride, padding, dilation, groups)?);
    check_triple(OP, &shape, w.shape(), g.shape(), &args)?;
    conv_input_gradient(g, w, &args, &shape)
}

fn weight_gradient_body(
    x: &Tensor,
    g: &Tensor,
    weight_size: &[isize],
    stride: &[isize],
    padding: &[isize],
    dilation: &[isize],
    groups: i64,
) -> Result<Tensor> {
    const OP: &str = "convolution_weight_gradient";
    check_dtypes(OP, x, &[g])?;
    let (shape, args) =
        (sizes_of(OP, weight_size)?, conv_args(OP, x.ndim().saturating_sub(2), stride, padding, dilation, groups)?);
    check_triple(OP, x.shape(), &shape, g.shape(), &args)?;
    conv_weight_gradient(x, g, &args, &shape)
}

/// Arguments for sequences as those for images of one row.
fn of_images(args: &[usize], of_row: usize) -> Spatial {
    args.iter().fold(Spatial::from_elem(of_row, 1), |mut all, &n| {
        all.push(n);
        all
    })
}

#[allow(clippy::too_many_arguments)]
fn conv_transpose_nd(
    op: &'static str,
    n: usize,
    x: &Tensor,
    w: &Tensor,
    bias: Option<&Tensor>,
    stride: &[isize],
    padding: &[isize],
    output_padding: &[isize],
    groups: i64,
    dilation: &[isize],
) -> Result<Tensor> {
    check_dtypes(op, x, &[w])?;
    // PyTorch adds a bias in place to most dtypes' results, which casts it.
    let added = matches!(x.dtype(), DType::F32 | DType::F64 | DType::I64);
    if let Some(bias) = bias.filter(|b| !(added && b.dtype().can_cast(x.dtype()))) {
        check_dtypes(op, x, &[bias])?;
    }
    let cast = bias.filter(|b| b.dtype() != x.dtype()).map(|b| b.cast(x.dtype())).transpose()?;
    let bias = cast.as_ref().or(bias);
    if x.ndim() == n + 1 {
        let _steps = OpScope::apart(&[op], None);
        let batched = x.unsqueeze(0)?;
        let y = {
            let _name = OpScope::of(op, 0);
            conv_transpose_nd(op, n, &batched, w, bias, stride, padding, output_padding, groups, dilation)?
        };
        return y.squeeze(Some(&[0]));
    }
    if n == 1 && x.ndim() == 3 && are_channels_last(w) {
        let args = conv_args(op, n, stride, padding, dilation, groups)?;
        let extra = spatial(op, "output_padding", output_padding, n, 0)?;
        let of = |list: &[usize], of_row| of_images(list, of_row).iter().map(|&n| n as isize).collect::<Vec<_>>();
        let (stride, padding, dilation) = (of(&args.stride, 1), of(&args.padding, 0), of(&args.dilation, 1));
        let (x, w, extra) = (x.contiguous()?.unsqueeze(2)?, w.unsqueeze(2)?, of(&extra, 0));
        return conv_transpose_nd(op, 2, &x, &w, bias, &stride, &padding, &extra, groups, &dilation)?
            .squeeze(Some(&[2]));
    }
    let args = conv_args(op, n, stride, padding, dilation, groups)?;
    let extra = spatial(op, "output_padding", output_padding, n, 0)?;
    if w.ndim() == n + 2 && w.shape()[2..].contains(&0) {
        return Err(Error::shape(op, "expected a weight that is not empty", &[w.shape()]));
    }
    if x.ndim() != n + 2
        || w.ndim() != n + 2
        || x.shape()[1] != w.shape()[0]
        || !w.shape()[0].is_multiple_of(args.groups)
    {
        let why =
            format!("expected a {}D input whose channels are the weight's first dimension, groups={groups}", n + 2);
        return Err(Error::shape(op, why, &[x.shape(), w.shape()]));
    }
    if x.shape()[1..].contains(&0) || w.shape().contains(&0) {
        let why = "expected an input with elements, but for the batch, and a weight that is not empty";
        return Err(Error::shape(op, why, &[x.shape(), w.shape()]));
    }
    let mut shape = Shape::from_slice(&[x.shape()[0], w.shape()[1] * args.groups]);
    for i in 0..n {
        if extra[i] >= args.stride[i].max(args.dilation[i]) {
            let why = format!("output padding must be smaller than either stride or dilation, but got {}", extra[i]);
            return Err(Error::runtime(op, why));
        }
        let steps = (x.shape()[i + 2].max(1) - 1).saturating_mul(args.stride[i]);
        let window = args.dilation[i].saturating_mul(w.shape()[i + 2].max(1) - 1);
        let reach = steps.saturating_add(window).saturating_add(extra[i] + 1);
        if reach > isize::MAX as usize {
            return Err(Error::shape(op, "the output's size overflows", &[x.shape(), w.shape()]));
        }
        shape.push(reach.checked_sub(2 * args.padding[i]).filter(|&s| s > 0).ok_or_else(|| {
            Error::shape(
                op,
                "Given input size and padding, the calculated output size is too small",
                &[x.shape(), w.shape()],
            )
        })?);
    }
    let spread = |x: &Tensor, w: &Tensor| conv_transpose_sized(x, w, &args, &extra, &shape);
    if let Some(b) = bias.filter(|b| b.shape() != [shape[1]]) {
        return Err(Error::shape(op, format!("expected bias with {} elements", shape[1]), &[b.shape()]));
    }
    match x.dtype() {
        dtype if dtype.is_float() => with_bias(spread(x, w)?, bias),
        DType::C64 | DType::C128 => by_parts(x, w, bias, spread),
        _ => with_bias(spread_by_windows(op, x, w, &args, &shape)?, bias),
    }
}

/// The transposed convolution with the output's shape known, `extra` of it being padding at the ends.
fn conv_transpose_sized(x: &Tensor, w: &Tensor, args: &ConvArgs, extra: &Spatial, shape: &Shape) -> Result<Tensor> {
    let n = args.stride.len();
    if (0..n).all(|i| extra[i] < args.stride[i]) {
        conv_input_gradient(x, w, args, shape)
    } else {
        // A convolution of so large a result would have more windows than there are inputs: cut out of the whole instead.
        let whole = ConvArgs { padding: Spatial::from_elem(0, n), ..args.clone() };
        let mut full = shape.clone();
        let mut ends = Vec::new();
        for i in (0..n).rev() {
            full[i + 2] = shape[i + 2] + 2 * args.padding[i] - extra[i];
            ends.extend([-(args.padding[i] as isize), extra[i] as isize - args.padding[i] as isize]);
        }
        super::concat::padded(&conv_input_gradient(x, w, &whole, &full)?, &ends, crate::Scalar::ZERO)
    }
}
