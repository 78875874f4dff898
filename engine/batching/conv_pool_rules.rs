//! Batching rules of convolutions and pools: the batch goes into the images, or into the channels as groups.

use super::batch_dim::{batched, ordered, to_front};
use super::rules::each_sample;
use super::Input;
use crate::dispatch::{apply1, Meta, Prim};
use crate::ops::conv::{ConvArgs, ConvOp};
use crate::ops::pool::PoolOp;
use crate::ops::view::reshape_to;
use crate::shape::{Axes, Shape};
use crate::{Result, Tensor};

/// The first two dimensions as one.
fn merged(x: &Tensor) -> Result<Tensor> {
    let mut shape = Shape::from_slice(&x.shape()[1..]);
    shape[0] *= x.shape()[0];
    reshape_to(x, &shape)
}

/// A sample's shape whose first size has grown by `size`.
fn grown(shape: &[usize], axis: usize, size: usize) -> Shape {
    let mut out = Shape::from_slice(shape);
    out[axis] *= size;
    out
}

/// (batch, N, C, …) as (N, batch · C, …).
fn into_channels(x: &Tensor) -> Result<Tensor> {
    let axes: Axes = [1, 0].into_iter().chain(2..x.ndim()).collect();
    let swapped = ordered(x, &axes)?;
    let mut shape = Shape::from_slice(&swapped.shape()[1..]);
    shape[0] *= swapped.shape()[2];
    shape.remove(1);
    shape.insert(0, swapped.shape()[0]);
    reshape_to(&swapped, &shape)
}

/// The inverse of [`into_channels`].
fn out_of_channels(x: &Tensor, size: usize) -> Result<Tensor> {
    let mut shape = Shape::from_slice(x.shape());
    shape[1] /= size.max(1);
    shape.insert(1, size);
    to_front(&reshape_to(x, &shape)?, 1)
}

fn run(op: ConvOp, x: &[&Tensor], shape: &[usize], out: &Meta) -> Result<Tensor> {
    apply1(Prim::Conv(op), x, Meta::new(shape, out.dtype))
}

fn by_groups(args: &ConvArgs, size: usize) -> Box<ConvArgs> {
    Box::new(ConvArgs { groups: args.groups * size, ..args.clone() })
}

/// (batch, groups · O, …) as (groups · batch · O, …): each group has the outputs of every sample.
fn within_groups(x: &Tensor, groups: usize) -> Result<Tensor> {
    let (size, outs) = (x.shape()[0], x.shape()[1]);
    let mut shape = Shape::from_slice(&[size, groups, outs / groups]);
    shape.extend_from_slice(&x.shape()[2..]);
    let axes: Axes = [1, 0].into_iter().chain(2..shape.len()).collect();
    let split = ordered(&reshape_to(x, &shape)?, &axes)?;
    let mut flat = Shape::from_slice(&[size * outs]);
    flat.extend_from_slice(&x.shape()[2..]);
    reshape_to(&split, &flat)
}

pub(super) fn conv(op: ConvOp, x: &[Input<'_>], size: usize, out: Meta) -> Result<Tensor> {
    if size == 0 {
        return Tensor::full_of(&out.shape, crate::Scalar::ZERO, out.dtype, x[0].value.device());
    }
    match op {
        ConvOp::Forward { args } => forward(&args, x, size, out),
        ConvOp::InputGradient { args, shape } => input_gradient(&args, &shape, x, size, out),
        ConvOp::WeightGradient { args, shape } => weight_gradient(&args, &shape, x, size, out),
        #[allow(unreachable_patterns, reason = "for ops to come")]
        op => each_sample(Prim::Conv(op), x, size, out),
    }
}

fn forward(args: &ConvArgs, x: &[Input<'_>], size: usize, out: Meta) -> Result<Tensor> {
    let (input, weight, bias) = (&x[0], &x[1], x.get(2));
    let sample = &out.shape[1..];
    if !weight.batched && input.batched && !bias.is_some_and(|b| b.batched) {
        let folded = merged(input.value)?;
        let mut inputs = vec![&folded, weight.value];
        inputs.extend(bias.map(|b| b.value));
        let y = run(ConvOp::Forward { args: Box::new(args.clone()) }, &inputs, &grown(sample, 0, size), &out)?;
        return reshape_to(&y, &out.shape);
    }
    let y = if !input.batched && !weight.batched {
        let y = run(ConvOp::Forward { args: Box::new(args.clone()) }, &[input.value, weight.value], sample, &out)?;
        crate::ops::view::expand_to(&y, &out.shape)?
    } else if !weight.batched {
        let y = run(
            ConvOp::Forward { args: Box::new(args.clone()) },
            &[&merged(input.value)?, weight.value],
            &grown(sample, 0, size),
            &out,
        )?;
        reshape_to(&y, &out.shape)?
    } else if !input.batched {
        // (N, groups · batch · O, …): the sample's channels are spread over the groups.
        let weight = within_groups(weight.value, args.groups)?;
        let op = ConvOp::Forward { args: Box::new(args.clone()) };
        let y = run(op, &[input.value, &weight], &grown(sample, 1, size), &out)?;
        let mut shape = Shape::from_slice(&[sample[0], args.groups, size, sample[1] / args.groups]);
        shape.extend_from_slice(&sample[2..]);
        let axes: Axes = [2, 0, 1].into_iter().chain(3..shape.len()).collect();
        reshape_to(&ordered(&reshape_to(&y, &shape)?, &axes)?, &out.shape)?
    } else {
        let op = ConvOp::Forward { args: by_groups(args, size) };
        let y = run(op, &[&into_channels(input.value)?, &merged(weight.value)?], &grown(sample, 1, size), &out)?;
        out_of_channels(&y, size)?
    };
    let Some(bias) = bias else { return Ok(y) };
    let mut wide = Shape::from_elem(1, out.shape.len());
    wide[2] = sample[1];
    if bias.batched {
        wide[0] = size;
    }
    y + &reshape_to(bias.value, &wide)?
}

fn input_gradient(args: &ConvArgs, shape: &[usize], x: &[Input<'_>], size: usize, out: Meta) -> Result<Tensor> {
    let (g, weight) = (&x[0], &x[1]);
    if !weight.batched {
        let wide = grown(shape, 0, size);
        let op = ConvOp::InputGradient { args: Box::new(args.clone()), shape: wide.clone() };
        return reshape_to(&run(op, &[&merged(g.value)?, weight.value], &wide, &out)?, &out.shape);
    }
    let wide = grown(shape, 1, size);
    let op = ConvOp::InputGradient { args: by_groups(args, size), shape: wide.clone() };
    let g = into_channels(&batched(g, size)?)?;
    out_of_channels(&run(op, &[&g, &merged(weight.value)?], &wide, &out)?, size)
}

fn weight_gradient(args: &ConvArgs, shape: &[usize], x: &[Input<'_>], size: usize, out: Meta) -> Result<Tensor> {
    let (input, g) = (&x[0], &x[1]);
    let wide = grown(shape, 0, size);
    if !input.batched {
        // (N, groups · batch · O, …) gives (groups · batch · O, …).
        let axes: Axes = [0, 2, 1].into_iter().chain(3..g.value.ndim()).collect();
        let outs_first = ordered(g.value, &axes)?;
        let grouped = within_groups(&outs_first, args.groups)?;
        let g = to_front(&grouped, 1)?;
        let op = ConvOp::WeightGradient { args: Box::new(args.clone()), shape: wide.clone() };
        let y = run(op, &[input.value, &g], &wide, &out)?;
        let mut split = Shape::from_slice(&[args.groups, size, shape[0] / args.groups]);
        split.extend_from_slice(&shape[1..]);
        let axes: Axes = [1, 0].into_iter().chain(2..split.len()).collect();
        return reshape_to(&ordered(&reshape_to(&y, &split)?, &axes)?, &out.shape);
    }
    let op = ConvOp::WeightGradient { args: by_groups(args, size), shape: wide.clone() };
    let g = into_channels(&batched(g, size)?)?;
    reshape_to(&run(op, &[&into_channels(input.value)?, &g], &wide, &out)?, &out.shape)
}

/// Pools see each image alone: the batch goes into the images.
pub(super) fn pool(op: PoolOp, x: &[Input<'_>], size: usize, out: Meta) -> Result<Tensor> {
    let op = match op {
        PoolOp::AverageSpread { args, shape } => PoolOp::AverageSpread { args, shape: grown(&shape, 0, size) },
        PoolOp::Put { shape } => PoolOp::Put { shape: grown(&shape, 0, size) },
        PoolOp::Max { .. }
        | PoolOp::MaxIndices { .. }
        | PoolOp::MaxPick { .. }
        | PoolOp::MaxScatter { .. }
        | PoolOp::Take
        | PoolOp::Average { .. } => op,
        #[allow(unreachable_patterns, reason = "for ops to come")]
        op => return each_sample(Prim::Pool(op), x, size, out),
    };
    let x: Vec<Tensor> = x.iter().map(|x| merged(&batched(x, size)?)).collect::<Result<_>>()?;
    let wide = grown(&out.shape[1..], 0, size);
    let y = apply1(Prim::Pool(op), &x.iter().collect::<Vec<_>>(), Meta { shape: wide, dtype: out.dtype })?;
    reshape_to(&y, &out.shape)
}
