//! The batching rules: a primitive with its arguments, and inputs with a dimension in front, to a result with one.
//!
//! A rule calls the primitive, or other ops, with the dimension as data. Families whose ops differ in what dimensions mean to
//! them end in [`each_sample`], which is right for every op: a new one needs a rule for its speed alone.
#![allow(
    unreachable_patterns,
    reason = "the default of a family, for ops to come, is there where each op has its rule"
)]

use super::batch_dim::{aligned, batched};
use super::{contract, conv_pool_rules, index, level, Input};
use crate::dispatch::{apply1, apply_multi, Meta, Prim};
use crate::ops::nn::NnOp;
use crate::ops::norm::NormOp;
use crate::ops::normalization::NormalizationOp;
use crate::ops::quantized::QuantizedOp;
use crate::ops::reduce::{ReduceOp, Reduction};
use crate::ops::scan::ScanOp;
use crate::ops::sort::SortOp;
use crate::ops::transfer::TransferOp;
use crate::ops::view::reshape_to;
use crate::shape::{Axes, Shape};
use crate::{DType, Error, Result, Scalar, Tensor};
use lucid_ir::backend::Results;

/// The result of a primitive for every sample; `out` has the batch, of `size`, in front.
pub(super) fn run(prim: Prim, x: &[Input<'_>], size: usize, out: Meta) -> Result<Tensor> {
    match prim {
        Prim::Create(_) => Err(Error::runtime(prim.name(), "takes no tensors")),
        // All inputs have the result's shape.
        Prim::Random(_) => leading(prim, x, size, out),
        Prim::Transfer(TransferOp::Cast { .. } | TransferOp::Copy | TransferOp::Move { .. }) => same(prim, x, out),
        Prim::Unary(_) => same(prim, x, out),
        Prim::Binary(_) | Prim::Compare(_) | Prim::Select(_) => pointwise(prim, x, out),
        Prim::Reduce(op, how) => reduce(op, how, x, out),
        Prim::Scan(op) => {
            let op = match op {
                ScanOp::Sum { axis } => ScanOp::Sum { axis: axis + 1 },
                ScanOp::Prod { axis } => ScanOp::Prod { axis: axis + 1 },
                ScanOp::LogSumExp { axis } => ScanOp::LogSumExp { axis: axis + 1 },
                ScanOp::Recur { axis } => {
                    return leading(Prim::Scan(ScanOp::Recur { axis: axis + 1 }), x, size, out);
                }
                op => return each_sample(Prim::Scan(op), x, size, out),
            };
            along(Prim::Scan(op), x, out)
        }
        Prim::Sort(SortOp::ArgSort { axis, descending }) => {
            along(Prim::Sort(SortOp::ArgSort { axis: axis + 1, descending }), x, out)
        }
        Prim::Sort(SortOp::ArgSortRows) => same(prim, x, out),
        Prim::Sort(SortOp::Search { right }) => search(right, x, size, out),
        Prim::Sort(_) => each_sample(prim, x, size, out),
        Prim::View(op) => Err(Error::runtime(op.name(), "a view has a layout")),
        Prim::Index(op) => index::run(op, x, size, out),
        Prim::Contract(op) => contract::run(op, x, size, out),
        Prim::Linalg(_) => leading(prim, x, size, out),
        Prim::Order(_) | Prim::Recurrent(_) | Prim::Decomposition(_) | Prim::Normalization(_) | Prim::Quantize(_) => {
            Err(Error::runtime(prim.name(), "has several results"))
        }
        Prim::Fft(op) => same(Prim::Fft(op.moved(|axis| axis + 1)), x, out),
        Prim::Conv(op) => conv_pool_rules::conv(op, x, size, out),
        Prim::Pool(op) => conv_pool_rules::pool(op, x, size, out),
        Prim::Nn(NnOp::Embedding { padding, sparse }) => index::embedding(padding, sparse, x, size, out),
        Prim::Nn(NnOp::Linear) => contract::linear(x, out),
        Prim::Nn(NnOp::Softmax { axis }) => along(Prim::Nn(NnOp::Softmax { axis: axis + 1 }), x, out),
        Prim::Nn(NnOp::LogSoftmax { axis }) => along(Prim::Nn(NnOp::LogSoftmax { axis: axis + 1 }), x, out),
        Prim::Nn(NnOp::SoftmaxGradient { axis, log }) => {
            leading(Prim::Nn(NnOp::SoftmaxGradient { axis: axis + 1, log }), x, size, out)
        }
        Prim::Nn(NnOp::Gelu { .. } | NnOp::Elementwise { .. }) => same(prim, x, out),
        Prim::Nn(NnOp::GeluGradient { .. } | NnOp::ElementwiseGradient { .. }) => leading(prim, x, size, out),
        Prim::Nn(NnOp::Attention { .. }) => contract::attention(prim, x, size, out),
        // Of the rows of embeddings and of recurrent layers, whose functions are made of other ops where inputs are batched.
        Prim::Nn(_) => each_sample(prim, x, size, out),
        Prim::Norm(NormOp::Standardize { .. }) => same(prim, x, out),
        Prim::Norm(NormOp::Affine { dims, eps }) => affine(dims, eps, x, size),
        Prim::Norm(NormOp::StandardizeGradient { .. }) => leading(prim, x, size, out),
        Prim::Norm(_) => each_sample(prim, x, size, out),
        Prim::Loss(_) => leading(prim, x, size, out),
        Prim::Quantized(op) => quantized(op, x, size, out),
        Prim::Communication(op) => Err(Error::value(
            op.name(),
            "tensors inside of vmap cannot be sent to other processes; send the whole batch",
        )),
    }
}

/// The results of a primitive that has several, for every sample; each of `out` has the batch, of `size`, in front.
pub(super) fn run_multi(prim: Prim, x: &[Input<'_>], size: usize, out: &[Meta]) -> Result<Results<Tensor>> {
    match prim {
        Prim::Order(op) => {
            let along = op.axis() + 1;
            if x[0].ndim() > 0 {
                return apply_multi(Prim::Order(op.along(along)), &[x[0].value], out);
            }
            // Samples of no dimensions are chosen themselves.
            let indices = Tensor::full_of(&[size], Scalar::ZERO, DType::I64, x[0].value.device())?;
            Ok(Results::from_iter([x[0].value.copy()?, indices]))
        }
        // Matrices take leading dimensions as they come.
        Prim::Decomposition(_) | Prim::Quantize(_) => {
            let x: Vec<Tensor> = x.iter().map(|x| batched(x, size)).collect::<Result<_>>()?;
            apply_multi(prim, &x.iter().collect::<Vec<_>>(), out)
        }
        Prim::Normalization(NormalizationOp::Batch { eps }) => batch_norm(eps, x, size, out),
        Prim::Normalization(NormalizationOp::Group { groups, eps }) => group_norm(groups, eps, x, size, out),
        prim => Err(Error::runtime(prim.name(), "vmap: has no batching rule")),
    }
}

/// One input, and an op that does not see dimensions, or only the last ones.
fn same(prim: Prim, x: &[Input<'_>], out: Meta) -> Result<Tensor> {
    apply1(prim, &[x[0].value], out)
}

/// An op along one dimension, which has been counted from the batch on; samples of no dimensions get one.
fn along(prim: Prim, x: &[Input<'_>], out: Meta) -> Result<Tensor> {
    if x[0].ndim() > 0 {
        return same(prim, x, out);
    }
    let wide = Meta::new(&[out.shape[0], 1], out.dtype);
    reshape_to(&apply1(prim, &[&reshape_to(x[0].value, &[out.shape[0], 1])?], wide)?, &out.shape)
}

/// Each sample's values among its own rows, or all among the one row there is.
fn search(right: bool, x: &[Input<'_>], size: usize, out: Meta) -> Result<Tensor> {
    let prim = Prim::Sort(SortOp::Search { right });
    if x[0].ndim() > 1 {
        return leading(prim, x, size, out);
    }
    if !x[0].batched {
        return apply1(prim, &[x[0].value, x[1].value], out);
    }
    let values = batched(&x[1], size)?;
    let each: usize = out.shape[1..].iter().product();
    let meta = Meta::new(&[size, each], out.dtype);
    let found = apply1(prim, &[x[0].value, &reshape_to(&values, &[size, each])?], meta)?;
    reshape_to(&found, &out.shape)
}

/// An op that broadcasts its inputs.
fn pointwise(prim: Prim, x: &[Input<'_>], out: Meta) -> Result<Tensor> {
    let ndim = out.shape.len() - 1;
    let x: Vec<Tensor> = x.iter().map(|x| aligned(x, ndim)).collect::<Result<_>>()?;
    apply1(prim, &x.iter().collect::<Vec<_>>(), out)
}

fn reduce(op: ReduceOp, how: Reduction, x: &[Input<'_>], out: Meta) -> Result<Tensor> {
    let Reduction { axes, keepdim } = how;
    if !axes.is_empty() {
        let axes: Axes = axes.iter().map(|a| a + 1).collect();
        return same(Prim::Reduce(op, Reduction { axes, keepdim }), x, out);
    }
    // Over no dimensions: over one of size 1.
    let mut shape = Shape::from_slice(x[0].value.shape());
    let axes = Axes::from_slice(&[shape.len()]);
    shape.push(1);
    apply1(Prim::Reduce(op, Reduction { axes, keepdim: false }), &[&reshape_to(x[0].value, &shape)?], out)
}

/// Every input with the batch in front: for a primitive that takes leading dimensions as they come.
pub(super) fn leading(prim: Prim, x: &[Input<'_>], size: usize, out: Meta) -> Result<Tensor> {
    let x: Vec<Tensor> = x.iter().map(|x| batched(x, size)).collect::<Result<_>>()?;
    apply1(prim, &x.iter().collect::<Vec<_>>(), out)
}

/// Weights that are not batched take samples as rows more; each with its own has no kernel.
fn quantized(op: QuantizedOp, x: &[Input<'_>], size: usize, out: Meta) -> Result<Tensor> {
    let products = matches!(
        op,
        QuantizedOp::QuantizedMatmul { .. } | QuantizedOp::DynamicMatmul { .. } | QuantizedOp::GatherQmm { .. }
    );
    if !products {
        return leading(Prim::Quantized(op), x, size, out);
    }
    if matches!(op, QuantizedOp::GatherQmm { .. }) || x[1..].iter().any(|x| x.batched) {
        let why = "vmap has no batching rule for quantised weights or indices of each sample's own; dequantise them";
        return Err(Error::not_implemented(op.name(), why));
    }
    let first = batched(&x[0], size)?;
    let all: Vec<&Tensor> = std::iter::once(&first).chain(x[1..].iter().map(|x| x.value)).collect();
    apply1(Prim::Quantized(op), &all, out)
}

/// Each sample's weight and bias are its own: the steps, with the batch as data.
fn affine(dims: usize, eps: f64, x: &[Input<'_>], size: usize) -> Result<Tensor> {
    let input = batched(&x[0], size)?;
    let y = crate::ops::norm::standardized(&input, 1, dims, eps)?;
    let parameter = |p: &Input<'_>| {
        let mut shape = Shape::from_elem(1, input.ndim());
        let own = &p.value.shape()[usize::from(p.batched)..];
        let first = input.ndim() - dims;
        shape[first..first + own.len()].copy_from_slice(own);
        if p.batched {
            shape[0] = size;
        }
        reshape_to(p.value, &shape)
    };
    (y * &parameter(&x[1])?)? + &parameter(&x[2])?
}

/// What is standardised by weights and biases of its channels, which stand behind the batch and the images.
fn by_channel(y: Tensor, weight: &Input<'_>, bias: &Input<'_>, size: usize) -> Result<Tensor> {
    let parameter = |p: &Input<'_>| {
        let mut shape = Shape::from_elem(1, y.ndim());
        shape[2] = y.shape()[2];
        if p.batched {
            shape[0] = size;
        }
        reshape_to(p.value, &shape)
    };
    (&y * &parameter(weight)?)? + &parameter(bias)?
}

/// Groups of channels of each sample's images: the steps, with the batch as data.
fn group_norm(groups: usize, eps: f64, x: &[Input<'_>], size: usize, out: &[Meta]) -> Result<Results<Tensor>> {
    let Some(Meta { dtype, .. }) = out.get(1) else { return Err(Error::runtime("group_norm", "has three results")) };
    let input = batched(&x[0], size)?.cast(*dtype)?;
    let inner = input.numel() / (size * input.shape()[1] * groups).max(1);
    let rows = reshape_to(&input, &[size, input.shape()[1], groups, inner])?;
    let y = reshape_to(&crate::ops::norm::standardized(&rows, 1, 1, eps)?, input.shape())?;
    let y = by_channel(y, &x[1], &x[2], size)?.cast(out[0].dtype)?;
    let (mean, var) = (rows.mean(Some(&[-1]), false, None)?, rows.var(Some(&[-1]), 0, false)?);
    Ok(Results::from_iter([y, mean, (var + eps)?.rsqrt()?]))
}

/// Channels of each sample: the steps, with the batch as data.
fn batch_norm(eps: f64, x: &[Input<'_>], size: usize, out: &[Meta]) -> Result<Results<Tensor>> {
    let Some(Meta { dtype, .. }) = out.get(1) else { return Err(Error::runtime("batch_norm", "has four results")) };
    let input = batched(&x[0], size)?.cast(*dtype)?;
    let over: Vec<isize> = (1..input.ndim() as isize).filter(|&d| d != 2).collect();
    let y = crate::ops::norm::standardized(&input, 1, 0, eps)?;
    let y = by_channel(y, &x[1], &x[2], size)?.cast(out[0].dtype)?;
    let (mean, var) = (input.mean(Some(&over), false, None)?, input.var(Some(&over), 0, false)?);
    let scale = (&var + eps)?.rsqrt()?;
    Ok(Results::from_iter([y, mean, var, scale]))
}

/// One sample after the other: right for every primitive, and slow.
pub(super) fn each_sample(prim: Prim, x: &[Input<'_>], size: usize, out: Meta) -> Result<Tensor> {
    let name = prim.name();
    level::note_fallback(name);
    if size == 0 {
        return Err(Error::runtime(name, "vmap: has no batching rule, and so takes no batch of size 0"));
    }
    let meta = Meta::new(&out.shape[1..], out.dtype);
    let one = |i: usize| {
        let x: Vec<Tensor> = x
            .iter()
            .map(|x| if x.batched { x.value.select(0, i as i64) } else { Ok(x.value.clone()) })
            .collect::<Result<_>>()?;
        apply1(prim.clone(), &x.iter().collect::<Vec<_>>(), meta.clone())
    };
    crate::ops::index::stack(&(0..size).map(one).collect::<Result<Vec<_>>>()?, 0)
}
