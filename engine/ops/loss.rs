//! Losses, each with PyTorch's `reduction`: `"mean"`, `"sum"` or `"none"`.
//!
//! The negative log-likelihood of class indices and binary cross-entropy of logits are primitives (`cpu/loss.rs`, `mlx/loss.rs`),
//! and so is CTC, whose body is in `ctc.rs`; the others are made of other ops.

use super::compare::select::r#where;
use super::ctc::{ctc_back, ctc_body, ctc_gradient_body, ctc_once, ctc_total};
use super::macros::define_ops;
use super::nn::{element, ElementFn};
use crate::autograd;
use crate::dispatch::{self, Meta, Prim};
use crate::shape::{Shape, Sizes};
use crate::{DType, Error, Result, Scalar, Tensor};
use lucid_ir::loss_ops;
pub use lucid_ir::ops::loss::*;

loss_ops!(define_ops);

fn reduce(op: &'static str, loss: Tensor, reduction: &str) -> Result<Tensor> {
    match Reduction::of(op, reduction)? {
        Reduction::Mean => loss.mean(None, false, None),
        Reduction::Sum => loss.sum(None, false, None),
        Reduction::None => Ok(loss),
    }
}

fn difference(op: &'static str, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    // Each is given the other's shape first, so that none counts as a number.
    let common = x.dtype().promote(y.dtype())?;
    // Absolute differences are of any numbers.
    if !common.is_float() && op != "l1_loss" {
        return Err(Error::dtype(op, "expected a floating input or target", &[x.dtype(), y.dtype()]));
    }
    if op == "l1_loss" && (x.dtype() == DType::Bool || y.dtype() == DType::Bool) {
        return Err(Error::dtype(op, "Subtraction with a bool tensor is not supported", &[x.dtype(), y.dtype()]));
    }
    x.cast(common)?
        .sub(&y.cast(common)?, 1)
        .map_err(|_| Error::shape(op, "input and target must have shapes that broadcast", &[x.shape(), y.shape()]))
}

/// [`difference`], with row-major gradients, as PyTorch's kernels make them.
fn apart(op: &'static str, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    let _lies = autograd::GradLayoutGuard::set(autograd::GradLayoutRule::RowMajor);
    difference(op, x, y)
}

fn mse_body(x: &Tensor, y: &Tensor, reduction: &str) -> Result<Tensor> {
    reduce("mse_loss", apart("mse_loss", x, y)?.square()?, reduction)
}

fn l1_body(x: &Tensor, y: &Tensor, reduction: &str) -> Result<Tensor> {
    let d = if reduction == "none" { difference("l1_loss", x, y)? } else { apart("l1_loss", x, y)? };
    reduce("l1_loss", d.abs()?, reduction)
}

fn smooth_l1_body(x: &Tensor, y: &Tensor, reduction: &str, beta: f64) -> Result<Tensor> {
    if beta.is_nan() || beta < 0.0 {
        return Err(Error::runtime("smooth_l1_loss", format!("does not support negative values for beta, got {beta}")));
    }
    if beta == 0.0 {
        return l1_body(x, y, reduction);
    }
    let d = apart("smooth_l1_loss", x, y)?;
    reduce("smooth_l1_loss", element(&d, ElementFn::SmoothL1, [beta, 0.0, 0.0])?, reduction)
}

fn huber_body(x: &Tensor, y: &Tensor, reduction: &str, delta: f64) -> Result<Tensor> {
    if delta.is_nan() || delta <= 0.0 {
        return Err(Error::runtime(
            "huber_loss",
            format!("does not support non-positive values for delta, got {delta}"),
        ));
    }
    let d = apart("huber_loss", x, y)?;
    // The result has the input's dtype, whatever the target's.
    check_holds("huber_loss", d.dtype(), x.dtype())?;
    let loss = element(&d, ElementFn::Huber, [delta, 0.0, 0.0])?;
    reduce("huber_loss", loss.cast(x.dtype())?, reduction)
}

/// May a loss of one dtype be given in the other? Fractions are no integers.
fn check_holds(op: &'static str, made: DType, wanted: DType) -> Result<()> {
    match made.can_cast(wanted) {
        true => Ok(()),
        false => {
            let why = format!("result type {made} can't be cast to the desired output type {wanted}");
            Err(Error::dtype(op, why, &[made, wanted]))
        }
    }
}

/// Class dimension of (C), (N, C) or (N, C, …).
fn class_dim(x: &Tensor) -> isize {
    if x.ndim() < 2 {
        0
    } else {
        1
    }
}

fn check_batch(op: &'static str, x: &Tensor, target: &Tensor) -> Result<()> {
    if x.ndim() > 1 && target.ndim() > 0 && target.shape()[0] != x.shape()[0] {
        let why = format!(
            "Expected input batch_size ({}) to match target batch_size ({}), got shapes {:?} and {:?}.",
            x.shape()[0],
            target.shape()[0],
            x.shape(),
            target.shape()
        );
        return Err(Error::value(op, why));
    }
    Ok(())
}

fn check_classes(op: &'static str, x: &Tensor, target: &Tensor, weight: Option<&Tensor>) -> Result<()> {
    let mut want = Shape::from_slice(x.shape());
    if x.ndim() == 0 {
        return Err(Error::value(op, "Expected 1 or more dimensions (got 0): input [] needs one of classes"));
    }
    let classes = want.remove(class_dim(x) as usize);
    check_batch(op, x, target)?;
    if target.shape() != want.as_slice() {
        let why = format!("Expected target size {want:?}, got {:?}", target.shape());
        return Err(Error::shape(op, why, &[x.shape(), target.shape()]));
    }
    match weight {
        Some(w) if w.shape() != [classes] => {
            Err(Error::shape(op, format!("weight tensor should be defined for all {classes} classes"), &[w.shape()]))
        }
        _ => Ok(()),
    }
}

fn nll_body(x: &Tensor, target: &Tensor, weight: Option<&Tensor>, ignore: i64, reduction: &str) -> Result<Tensor> {
    nll("nll_loss", x, target, weight, ignore, reduction, 0.0)
}

/// The negative log-likelihood, with a share `smoothing` of it spread over all classes.
fn nll(
    op: &'static str,
    x: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    ignore: i64,
    reduction: &str,
    smoothing: f64,
) -> Result<Tensor> {
    schema::nll_loss.check(x.dtype())?;
    let torch = if x.ndim() > 2 { "nll_loss2d_forward" } else { "nll_loss_forward" };
    autograd::refuse_recorded(op, torch, "weight", weight)?;
    check_batch(op, x, target)?;
    if target.dtype() != DType::I64 && (target.dtype() != DType::U8 || x.ndim() > 2) {
        return Err(Error::dtype(
            op,
            "expected target of class indices as int64, or as uint8 of rows",
            &[target.dtype()],
        ));
    }
    if let Some(weight) = weight.filter(|w| w.dtype() != x.dtype()) {
        return Err(Error::dtype(op, "expected weight to have the input's dtype", &[x.dtype(), weight.dtype()]));
    }
    // One row's class may be in a vector of its own.
    let target = match (x.ndim(), target.shape()) {
        (1, [1]) => target.reshape(())?,
        (1, [n]) => {
            let why = format!("For 1D input, 1D target must have size 1, but got target size: {n}");
            return Err(Error::value(op, why));
        }
        _ => target.clone(),
    };
    check_classes(op, x, &target, weight)?;
    let dim = class_dim(x);
    let target = target.cast(DType::I64)?;
    if weight.is_none() && smoothing == 0.0 && x.ndim() <= 2 {
        let how = Reduction::of(op, reduction)?;
        if x.ndim() == 2 {
            return nll_of_rows(x, &target, ignore, how);
        }
        let loss = nll_of_rows(&x.unsqueeze(0)?, &target.unsqueeze(0)?, ignore, how)?;
        return if how == Reduction::None { loss.squeeze(Some(&[0])) } else { Ok(loss) };
    }
    // PyTorch's ops for more dimensions, and what it makes of them.
    let last = match (x.ndim(), reduction) {
        _ if smoothing > 0.0 => "cross_entropy_smooth",
        (4, _) => "nll_loss2d",
        (3 | 5.., "none") => "nll_loss_flat",
        (3 | 5.., _) => "nll_loss2d",
        _ => "nll_loss",
    };
    autograd::OpScope::rename(op, last);
    let classes = x.shape()[dim as usize] as i64;
    let used = target.ne(ignore)?;
    // Ignored targets gather class 0, and then count nothing; any other one out of range is the gather's error.
    let safe = target.where_else_zero(&used)?;
    let mut loss = -&x.gather(dim, &safe.unsqueeze(dim)?)?.squeeze(Some(&[dim]))?;
    let mut share = None;
    if let Some(w) = weight {
        let picked = super::index::index(&w.cast(x.dtype())?, &[0], std::slice::from_ref(&safe))?;
        loss = loss?.mul(&picked);
        share = Some(picked);
    }
    let mask = |t: Tensor| t.where_else_zero(&used);
    let mut loss = mask(loss?)?;
    if smoothing > 0.0 {
        let spread = weight.map_or(Ok(x.clone()), |w| {
            let mut wide = Sizes::from_elem(1, x.ndim());
            wide[dim as usize] = -1;
            x * &w.cast(x.dtype())?.reshape(&wide)?
        })?;
        let uniform = mask((-&spread.sum(Some(&[dim]), false, None)?)?)?;
        loss = ((loss * (1.0 - smoothing))? + &(uniform * (smoothing / classes as f64))?)?;
    }
    match reduction {
        "mean" => {
            let total = match share {
                Some(share) => mask(share)?.sum(None, false, None)?,
                None => used.sum(None, false, None)?.cast(x.dtype())?,
            };
            loss.sum(None, false, None)? / &total
        }
        _ => reduce(op, loss, reduction),
    }
}

fn last(shape: &[usize]) -> usize {
    shape.last().copied().unwrap_or(1)
}

/// The negative log-likelihood of `target` (…, N) under (…, N, C); sums and means are over the N.
fn nll_of_rows(x: &Tensor, target: &Tensor, ignore: i64, reduction: Reduction) -> Result<Tensor> {
    let mut shape = Shape::from_slice(target.shape());
    if reduction != Reduction::None {
        shape.pop();
    }
    let meta = Meta { shape, dtype: x.dtype() };
    dispatch::apply1(Prim::Loss(LossOp::Nll { ignore, reduction }), &[x, target], meta)
}

fn nll_spread(g: &Tensor, target: &Tensor, classes: usize, ignore: i64, reduction: Reduction) -> Result<Tensor> {
    let mut shape = Shape::from_slice(target.shape());
    shape.push(classes);
    let meta = Meta { shape, dtype: g.dtype() };
    dispatch::apply1(Prim::Loss(LossOp::NllGradient { classes, ignore, reduction }), &[g, target], meta)
}

fn nll_gradient_body(g: &Tensor, target: &Tensor, classes: i64, ignore: i64, reduction: &str) -> Result<Tensor> {
    let schema = &schema::nll_loss_gradient;
    schema.check(g.dtype())?;
    let reduction = Reduction::of(schema.name, reduction)?;
    if target.dtype() != DType::I64 || target.ndim() == 0 {
        return Err(Error::dtype(
            schema.name,
            "expected targets as int64, of one dimension at least",
            &[target.dtype()],
        ));
    }
    let Ok(classes) = usize::try_from(classes) else {
        return Err(Error::value(schema.name, format!("there are no {classes} classes")));
    };
    let all = target.shape();
    let want = if reduction == Reduction::None { all } else { &all[..all.len() - 1] };
    if g.shape() != want {
        return Err(Error::shape(schema.name, "takes a gradient of the loss's shape", &[g.shape(), all]));
    }
    nll_spread(g, target, classes, ignore, reduction)
}

fn cross_entropy_body(
    x: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    ignore: i64,
    reduction: &str,
    smoothing: f64,
) -> Result<Tensor> {
    const OP: &str = "cross_entropy";
    schema::cross_entropy.check(x.dtype())?;
    // Below 0 it is none, as in PyTorch.
    let smoothing = smoothing.max(0.0);
    if smoothing > 1.0 {
        return Err(Error::runtime(OP, format!("label_smoothing must be between 0.0 and 1.0. Got: {smoothing}")));
    }
    if x.ndim() == 0 {
        return Err(Error::shape(OP, "input needs a class dimension", &[x.shape()]));
    }
    let dim = class_dim(x);
    let logs = x.log_softmax(dim, None)?;
    if !(target.dtype().is_float() && target.shape() == x.shape()) {
        return nll(OP, &logs, target, weight, ignore, reduction, smoothing);
    }
    if ignore >= 0 {
        return Err(Error::runtime(OP, "ignore_index is not supported for floating point target"));
    }
    let classes = x.shape()[dim as usize];
    let target = match smoothing > 0.0 {
        true => ((target * (1.0 - smoothing))? + smoothing / classes as f64)?,
        false => target.clone(),
    };
    let mut terms = (logs * &target)?;
    if let Some(w) = weight {
        if w.shape() != [classes] {
            return Err(Error::shape(
                OP,
                format!("weight tensor should be defined for all {classes} classes"),
                &[w.shape()],
            ));
        }
        let mut wide = Sizes::from_elem(1, x.ndim());
        wide[dim as usize] = -1;
        terms = (terms * &w.reshape(&wide)?)?;
    }
    autograd::OpScope::rename(OP, if reduction == "mean" { "cross_entropy_mean" } else { "cross_entropy_sum" });
    let loss = (-&terms.sum(Some(&[dim]), false, None)?)?;
    reduce(OP, loss, reduction)
}

fn same_shape(op: &'static str, x: &Tensor, y: &Tensor) -> Result<()> {
    match x.shape() == y.shape() {
        true => Ok(()),
        false => {
            let why = format!("Target size {:?} must be the same as input size {:?}", y.shape(), x.shape());
            Err(Error::value(op, why))
        }
    }
}

fn bce_body(p: &Tensor, t: &Tensor, weight: Option<&Tensor>, reduction: &str) -> Result<Tensor> {
    schema::binary_cross_entropy.check(p.dtype())?;
    same_shape("binary_cross_entropy", p, t)?;
    autograd::refuse_recorded("binary_cross_entropy", "binary_cross_entropy", "weight", weight)?;
    if p.dtype() != t.dtype() {
        let why = format!("expected input and target of one dtype, but found {} and {}", p.dtype(), t.dtype());
        return Err(Error::dtype("binary_cross_entropy", why, &[p.dtype(), t.dtype()]));
    }
    if p.dtype().size() == 2 {
        // The gradient beside 0 and 1 is large, and its products are not those of 16 bits.
        let (p32, t32) = (p.cast(DType::F32)?, t.cast(DType::F32)?);
        return bce_body(&p32, &t32, weight, reduction)?.cast(p.dtype());
    }
    let loss = match autograd::is_followed(p) {
        false => bce_of(p, t)?,
        true => {
            // At 0 and 1 PyTorch's slope is (p - t) / 1e-12 (in float32), that of a line there.
            const LEAST: f64 = 1e-12f32 as f64;
            let still = p.detach()?;
            let edge = (&still * &(1.0 - &still)?)?.lt(LEAST)?;
            let slope = ((&still - &t.detach()?)?.where_else_zero(&edge)? * (1.0 / LEAST))?;
            let line = (bce_of(&still, t)? + &((p - &still)? * &slope)?)?;
            r#where(&edge, &line, &bce_of(&p.filled(&edge, 0.5)?, t)?)?
        }
    };
    let loss = weight.map_or(Ok(loss.clone()), |w| (loss * w)?.cast(p.dtype()))?;
    reduce("binary_cross_entropy", loss, reduction)
}

fn bce_of(p: &Tensor, t: &Tensor) -> Result<Tensor> {
    let floor = |x: Tensor| x.clamp(Some(crate::Operand::Scalar(Scalar::Float(-100.0))), None);
    let (yes, no) = (floor(p.log()?)?, floor((1.0 - p)?.log()?)?);
    -&((t * &yes)? + &((1.0 - t)? * &no)?)?
}

fn bce_logits_body(
    x: &Tensor,
    t: &Tensor,
    weight: Option<&Tensor>,
    reduction: &str,
    pos_weight: Option<&Tensor>,
) -> Result<Tensor> {
    const OP: &str = "binary_cross_entropy_with_logits";
    schema::binary_cross_entropy_with_logits.check(x.dtype())?;
    same_shape(OP, x, t)?;
    autograd::refuse_recorded(OP, OP, "weight", weight)?;
    autograd::refuse_recorded(OP, OP, "pos_weight", pos_weight)?;
    if weight.is_none() && pos_weight.is_none() && x.dtype() == t.dtype() && x.dtype().is_float() {
        return reduce(OP, bce_logits(x, t)?, reduction);
    }
    let tail = super::activation::one_plus_exp(&(-x)?)?;
    let loss = match pos_weight {
        Some(p) => {
            // Whole numbers less one, so that bytes wrap around as in PyTorch.
            let positive = (((p - 1)? * t)? + 1)?;
            (((1.0 - t)? * x)? + &(positive * &tail)?)?
        }
        None => (((1.0 - t)? * x)? + &tail)?,
    };
    let loss = weight.map_or(Ok(loss.clone()), |w| loss * w)?;
    // The result has the target's dtype.
    check_holds(OP, loss.dtype(), t.dtype())?;
    reduce(OP, loss.cast(t.dtype())?, reduction)
}

fn bce_logits(x: &Tensor, t: &Tensor) -> Result<Tensor> {
    dispatch::apply1(Prim::Loss(LossOp::BceLogits), &[x, t], Meta::new(x.shape(), x.dtype()))
}

/// `g` times the derivative of [`bce_logits`] at `x`.
fn bce_logits_back(g: &Tensor, x: &Tensor, t: &Tensor) -> Result<Tensor> {
    dispatch::apply1(Prim::Loss(LossOp::BceLogitsGradient), &[g, x, t], Meta::new(x.shape(), x.dtype()))
}

/// The slope of the sigmoid, `s (1 - s)`.
fn bell(x: &Tensor) -> Result<Tensor> {
    let s = x.sigmoid()?;
    &s * &(1.0 - &s)?
}

/// Have all the first one's shape and floating dtype?
fn check_alike(schema: &super::Schema, x: &[&Tensor]) -> Result<()> {
    schema.check(x[0].dtype())?;
    if let Some(other) = x.iter().find(|t| t.dtype() != x[0].dtype()) {
        return Err(Error::dtype(schema.name, "takes tensors of one dtype", &[x[0].dtype(), other.dtype()]));
    }
    match x.iter().find(|t| t.shape() != x[0].shape()) {
        Some(other) => Err(Error::shape(schema.name, "takes tensors of one shape", &[x[0].shape(), other.shape()])),
        None => Ok(()),
    }
}

fn bce_logits_terms_body(x: &Tensor, t: &Tensor) -> Result<Tensor> {
    check_alike(&schema::bce_logits_terms, &[x, t])?;
    bce_logits(x, t)
}

fn bce_logits_gradient_body(g: &Tensor, x: &Tensor, t: &Tensor) -> Result<Tensor> {
    check_alike(&schema::bce_logits_gradient, &[g, x, t])?;
    bce_logits_back(g, x, t)
}

fn kl_div_body(x: &Tensor, t: &Tensor, reduction: &str, log_target: bool) -> Result<Tensor> {
    schema::kl_div.check(x.dtype())?;
    let loss = match log_target {
        true => (t.exp()? * &(t - x)?)?,
        false => {
            // 0 log 0 counts nothing.
            (t.xlogy(t)? - &(t * x)?)?
        }
    };
    match (reduction, x.ndim()) {
        ("batchmean", 0) => loss.sum(None, false, None),
        ("batchmean", _) => loss.sum(None, false, None)? / x.shape()[0] as f64,
        _ => reduce("kl_div", loss, reduction),
    }
}
