//! Norms with several results: batch and group norm with their statistics as one primitive each, and the gradients through norms.
//! `batch_norm` and `group_norm` themselves, which check and fill in what is not given, are in `norm.rs`.
//!
//! The kernels are in `cpu/norm.rs` and `mlx/normalization.rs`. Gradients that are followed themselves, or of batched tensors, are
//! made of the steps that they stand for.

use super::macros::define_ops;
use super::norm::{standardized, standardized_back};
use crate::autograd::{self, Ctx, Grads};
use crate::dispatch::{self, Prim};
use crate::shape::{Shape, Sizes};
use crate::{DType, Error, Result, Tensor};
use lucid_ir::backend::Results;
use lucid_ir::normalization_ops;
pub use lucid_ir::ops::normalization::*;
use smallvec::SmallVec;

normalization_ops!(define_ops);

/// All results of a primitive.
pub(super) fn apply(op: NormalizationOp, inputs: &[&Tensor]) -> Result<Results<Tensor>> {
    let given: SmallVec<[(&[usize], DType); 5]> = inputs.iter().map(|t| (t.shape(), t.dtype())).collect();
    let Some(metas) = op.results(&given) else {
        let shapes: SmallVec<[&[usize]; 5]> = inputs.iter().map(|t| t.shape()).collect();
        return Err(Error::shape(op.name(), "shapes and dtypes that do not fit together", &shapes));
    };
    dispatch::apply_multi(Prim::Normalization(op), inputs, &metas)
}

/// The result of batch norm, and means, variances and `1 / sqrt(var + eps)` of the channels.
pub(super) fn batch(inputs: &[&Tensor; 3], eps: f64) -> Result<[Tensor; 4]> {
    let made = apply(NormalizationOp::Batch { eps }, inputs)?;
    <[Tensor; 4]>::try_from(made.into_vec())
        .map_err(|made| Error::runtime("batch_norm", format!("{} results, not 4", made.len())))
}

/// Is a gradient from these made of steps: followed itself, by tape or tangents, or of a batch?
pub(super) fn in_steps(of: &[&Tensor]) -> bool {
    autograd::grad_enabled() || of.iter().any(|t| t.is_batched() || autograd::forward::carries(t))
}

/// The gradient through [`batch_norm_parts`].
fn batch_back(c: &Ctx<'_>, eps: f64) -> Result<Grads> {
    let (x, w) = (c.x(0)?, c.x(1)?);
    let g = c.grad_or_zeros(0)?;
    let statistics = (1..4).any(|nr| c.grad(nr).is_some());
    if !statistics && !in_steps(&[&g, &x, &w]) {
        let (mean, scale) = (c.result(1)?, c.result(3)?);
        let made = apply(NormalizationOp::BatchGradient, &[&g, &x, &w, &mean, &scale])?;
        return Ok(made.into_iter().enumerate().map(|(i, g)| c.needs(i).then_some(g)).collect());
    }
    let wide = statistics_dtype(x.dtype());
    let (given, of) = (x.dtype(), w.dtype());
    let (x, g, w) = (x.cast(wide)?, g.cast(wide)?, w.cast(wide)?);
    let (mut along, mut own) = (Shape::from_elem(1, x.ndim()), Sizes::from_elem(1, x.ndim()));
    (along[1], own[1]) = (x.shape()[1], -1);
    let over: Sizes = (0..x.ndim() as isize).filter(|&d| d != 1).collect();
    let summed = |t: &Tensor| t.sum(Some(&over), false, None)?.cast(of);
    let mut grads = Grads::new();
    grads.push(match c.needs(0) {
        true => {
            let mut made = standardized_back(&(&g * &super::view::reshape_to(&w, &along)?)?, &x, 0, eps)?;
            if statistics {
                let of = |nr: usize| c.grad_or_zeros(nr)?.reshape(&own);
                let (to_mean, to_var, to_scale) = (of(1)?, of(2)?, of(3)?);
                let of = [Some(&to_mean), Some(&to_var), Some(&to_scale)];
                made = (made + &through_statistics(&x, &over, of, eps)?)?;
            }
            Some(made.cast(given)?)
        }
        false => None,
    });
    grads.push(if c.needs(1) { Some(summed(&(&g * &standardized(&x, 0, 0, eps)?)?)?) } else { None });
    grads.push(if c.needs(2) { Some(summed(&g)?) } else { None });
    Ok(grads)
}

/// What the gradients of means, variances and `1 / sqrt(var + eps)` over these dimensions give to the input.
fn through_statistics(x: &Tensor, over: &[isize], of: [Option<&Tensor>; 3], eps: f64) -> Result<Tensor> {
    let mean = x.mean(Some(over), true, None)?;
    let n = (x.numel() / mean.numel().max(1)) as f64;
    let apart = (x - &mean)?;
    let mut to_var = mean.zeros_like()?;
    if let Some(to) = of[1] {
        to_var = (to_var + to)?;
    }
    if let Some(to) = of[2] {
        let scale = (apart.square()?.mean(Some(over), true, None)? + eps)?.rsqrt()?;
        to_var = (to_var - &((to * &(scale.square()? * &scale)?)? * 0.5)?)?;
    }
    let made = ((apart * &to_var)? * (2.0 / n))?;
    of[0].map_or(Ok(made.clone()), |to| made + &(to * (1.0 / n))?)
}

/// The result of group norm.
pub(super) fn group(inputs: &[&Tensor; 3], groups: usize, eps: f64) -> Result<Tensor> {
    let made = apply(NormalizationOp::Group { groups, eps }, inputs)?;
    made.into_iter().next().ok_or_else(|| Error::runtime("group_norm", "no results"))
}

/// The gradient through [`group_norm_parts`].
fn group_back(c: &Ctx<'_>, groups: usize, eps: f64) -> Result<Grads> {
    let (x, w) = (c.x(0)?, c.x(1)?);
    let g = c.grad_or_zeros(0)?;
    let statistics = (1..3).any(|nr| c.grad(nr).is_some());
    if !statistics && !in_steps(&[&g, &x, &w]) {
        let (mean, scale) = (c.result(1)?, c.result(2)?);
        let made = apply(NormalizationOp::GroupGradient, &[&g, &x, &w, &mean, &scale])?;
        return Ok(made.into_iter().enumerate().map(|(i, g)| c.needs(i).then_some(g)).collect());
    }
    let wide = statistics_dtype(x.dtype());
    let (given, of) = (x.dtype(), w.dtype());
    let (x, g, w) = (x.cast(wide)?, g.cast(wide)?, w.cast(wide)?);
    let mut along = Shape::from_elem(1, x.ndim());
    along[1] = x.shape()[1];
    let rows = |t: &Tensor| t.reshape(&[x.shape()[0] as isize, groups as isize, -1]);
    let over: Sizes = (0..x.ndim() as isize).filter(|&d| d != 1).collect();
    let summed = |t: &Tensor| t.sum(Some(&over), false, None)?.cast(of);
    let mut grads = Grads::new();
    grads.push(match c.needs(0) {
        true => {
            let v = (&g * &super::view::reshape_to(&w, &along)?)?;
            let mut made = standardized_back(&rows(&v)?, &rows(&x)?, 1, eps)?;
            if statistics {
                let own = [x.shape()[0] as isize, groups as isize, 1];
                let (to_mean, to_scale) = (c.grad_or_zeros(1)?.reshape(&own)?, c.grad_or_zeros(2)?.reshape(&own)?);
                made = (made + &through_statistics(&rows(&x)?, &[-1], [Some(&to_mean), None, Some(&to_scale)], eps)?)?;
            }
            Some(super::view::reshape_to(&made, x.shape())?.cast(given)?)
        }
        false => None,
    });
    grads.push(match c.needs(1) {
        true => {
            let y = super::view::reshape_to(&standardized(&rows(&x)?, 0, 1, eps)?, x.shape())?;
            Some(summed(&(&g * &y)?)?)
        }
        false => None,
    });
    grads.push(if c.needs(2) { Some(summed(&g)?) } else { None });
    Ok(grads)
}

fn made(results: Results<Tensor>) -> Vec<Tensor> {
    results.into_vec()
}

fn batch_body(x: &Tensor, weight: &Tensor, bias: &Tensor, eps: f64) -> Result<Vec<Tensor>> {
    apply(NormalizationOp::Batch { eps }, &[x, weight, bias]).map(made)
}

fn batch_gradient_body(g: &Tensor, x: &Tensor, weight: &Tensor, mean: &Tensor, scale: &Tensor) -> Result<Vec<Tensor>> {
    apply(NormalizationOp::BatchGradient, &[g, x, weight, mean, scale]).map(made)
}

fn group_body(x: &Tensor, weight: &Tensor, bias: &Tensor, groups: i64, eps: f64) -> Result<Vec<Tensor>> {
    let groups = usize::try_from(groups).unwrap_or(0);
    apply(NormalizationOp::Group { groups, eps }, &[x, weight, bias]).map(made)
}

fn group_gradient_body(g: &Tensor, x: &Tensor, weight: &Tensor, mean: &Tensor, scale: &Tensor) -> Result<Vec<Tensor>> {
    apply(NormalizationOp::GroupGradient, &[g, x, weight, mean, scale]).map(made)
}

fn layer_gradient_body(g: &Tensor, x: &Tensor, weight: &Tensor, dims: i64, eps: f64) -> Result<Vec<Tensor>> {
    let dims = usize::try_from(dims).unwrap_or(0);
    apply(NormalizationOp::LayerGradient { dims, eps }, &[g, x, weight]).map(made)
}
