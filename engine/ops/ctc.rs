//! Connectionist temporal classification (Graves et al., 2006): shapes, lengths and labels, and the primitives of them.
//!
//! The recursions are kernels (`cpu/ctc.rs`, `mlx/ctc.rs`). Depends on `dispatch`. Invariant: what a primitive is given are
//! `log_probs` (T, N, C), targets (N, S), and lengths that fit both.

use super::compare::select::r#where;
use super::loss::{schema, Alignment, LossOp, Reduction};
use crate::dispatch::{self, Meta, Prim};
use crate::fallible::{collected, filled};
use crate::{DType, Error, Result, Tensor};

const OP: &str = "ctc_loss";

fn refuse<T>(why: String) -> Result<T> {
    Err(Error::runtime(OP, why))
}

#[allow(clippy::too_many_arguments)]
pub(super) fn ctc_body(
    log_probs: &Tensor,
    targets: &Tensor,
    inputs: &[isize],
    labels: &[isize],
    blank: i64,
    reduction: &str,
    zero_infinity: bool,
) -> Result<Tensor> {
    schema::ctc_loss.check(log_probs.dtype())?;
    let reduction = Reduction::of(OP, reduction)?;
    let alone = log_probs.ndim() == 2;
    let log_probs = if alone { log_probs.unsqueeze(1)? } else { log_probs.clone() };
    let alignment = alignment(log_probs.shape(), inputs, labels, blank, zero_infinity)?;
    let targets = padded(targets, &alignment, log_probs.device())?;
    let count = log_probs.shape()[1];
    let meta = Meta::new(&[count], log_probs.dtype());
    let prim = Prim::Loss(LossOp::Ctc { alignment: alignment.clone() });
    let mut loss = dispatch::apply1(prim, &[&log_probs, &targets], meta)?;
    if zero_infinity {
        loss = r#where(&loss.detach()?.ne(f64::INFINITY)?, &loss, &loss.detach()?.zeros_like()?)?;
    }
    match reduction {
        Reduction::None if alone => loss.squeeze(Some(&[0])),
        Reduction::None => Ok(loss),
        Reduction::Sum => loss.sum(None, false, None),
        Reduction::Mean => {
            let sizes = collected(alignment.labels.iter().map(|&n| n.max(1) as i64))?;
            let sizes = Tensor::of_elements(&sizes, &[count], loss.device())?.cast(loss.dtype())?;
            (loss / &sizes)?.mean(None, false, None)
        }
    }
}

/// The lengths of the sequences of `log_probs` (T, N, C) and of their labels.
fn alignment(
    shape: &[usize],
    inputs: &[isize],
    labels: &[isize],
    blank: i64,
    zero_infinity: bool,
) -> Result<Alignment> {
    let &[steps, count, classes] = shape else {
        return refuse(format!("log_probs must be (T, N, C) or (T, C), got {shape:?}"));
    };
    let blank = match usize::try_from(blank) {
        Ok(blank) if blank < classes => blank,
        _ => return refuse(format!("blank must be in label range, got {blank} for {classes} labels")),
    };
    let lengths = |what: &str, given: &[isize], most: usize| {
        if given.len() != count {
            return refuse(format!("{what}_lengths must be of size batch_size {count}, got {}", given.len()));
        }
        if let Some(bad) = given.iter().find(|&&n| n < 0) {
            return refuse(format!("Expected {what}_lengths to have value at least 0, but got {bad}"));
        }
        match given.iter().max() {
            Some(&n) if n as usize > most => {
                refuse(format!("Expected {what}_lengths to have value at most {most}, but got {n}"))
            }
            _ => Ok(collected(given.iter().map(|&n| n as usize))?.into()),
        }
    };
    let (inputs, labels) = (lengths("input", inputs, steps)?, lengths("target", labels, usize::MAX)?);
    Ok(Alignment { inputs, labels, blank, zero_infinity })
}

/// Targets (N, S) of int64 on a device, of such or of all labels in a row.
fn padded(targets: &Tensor, alignment: &Alignment, device: crate::Device) -> Result<Tensor> {
    if !targets.dtype().is_integral() {
        return Err(Error::dtype(OP, "expected targets of class indices, as integers", &[targets.dtype()]));
    }
    let (lengths, count) = (&*alignment.labels, alignment.labels.len());
    let longest = lengths.iter().copied().max().unwrap_or(0);
    let targets = targets.cast(DType::I64)?;
    let targets = match *targets.shape() {
        [n] => {
            let all = lengths.iter().fold(0usize, |sum, &n| sum.saturating_add(n));
            if n != all {
                return refuse(format!("Expected targets to have {all} elements, got {n}"));
            }
            // Each row's own labels, and its last one until the longest ends.
            let mut places = filled(0i64, count.saturating_mul(longest))?;
            let mut start = 0;
            for (row, &n) in places.chunks_mut(longest.max(1)).zip(lengths) {
                row.iter_mut().enumerate().for_each(|(s, at)| *at = (start + s.min(n.saturating_sub(1))) as i64);
                start += n;
            }
            // Past the end of all there is nothing to be read, where the last rows have no labels.
            places.iter_mut().for_each(|at| *at = (*at).min(all.saturating_sub(1) as i64));
            let places = Tensor::of_elements(&places, &[places.len()], targets.device())?;
            targets.index_select(0, &places)?.reshape(&[count as isize, longest as isize])?
        }
        [rows, room] if rows == count && room >= longest => targets.narrow(1, 0, longest as i64)?,
        _ => return refuse(format!("Expected targets of at least {count} x {longest}, got {:?}", targets.shape())),
    };
    targets.to_device(device)
}

/// The gradient of `log_probs` from that of each loss.
pub(super) fn ctc_back(g: &Tensor, log_probs: &Tensor, targets: &Tensor, alignment: &Alignment) -> Result<Tensor> {
    let prim = Prim::Loss(LossOp::CtcGradient { alignment: alignment.clone() });
    dispatch::apply1(prim, &[g, log_probs, targets], Meta::new(log_probs.shape(), log_probs.dtype()))
}

/// What `v` is to each loss through its gradient, which is a multiple of the loss's own.
pub(super) fn ctc_total(
    v: &Tensor,
    g: &Tensor,
    log_probs: &Tensor,
    targets: &Tensor,
    alignment: &Alignment,
) -> Result<Tensor> {
    (v * &ctc_back(&g.ones_like()?, log_probs, targets, alignment)?)?.sum(Some(&[0, 2]), false, None)
}

/// The gradient's own derivative by `log_probs`, which PyTorch has not either.
pub(super) fn ctc_once() -> Result<Tensor> {
    const TORCH: &str = "_ctc_loss_backward";
    Err(Error::not_implemented(TORCH, format!("the derivative for '{TORCH}' is not implemented.")))
}

#[allow(clippy::too_many_arguments)]
pub(super) fn ctc_gradient_body(
    g: &Tensor,
    log_probs: &Tensor,
    targets: &Tensor,
    inputs: &[isize],
    labels: &[isize],
    blank: i64,
    zero_infinity: bool,
) -> Result<Tensor> {
    let schema = &schema::ctc_loss_gradient;
    schema.check(log_probs.dtype())?;
    let alignment = alignment(log_probs.shape(), inputs, labels, blank, zero_infinity)?;
    if alignment.sizes(log_probs.shape(), targets.shape()).is_none() || g.shape() != [alignment.labels.len()] {
        let why = "takes a gradient (N) and targets (N, S) for log_probs (T, N, C)";
        return Err(Error::shape(schema.name, why, &[g.shape(), log_probs.shape(), targets.shape()]));
    }
    if g.dtype() != log_probs.dtype() || targets.dtype() != DType::I64 {
        let why = "takes a gradient of log_probs' dtype, and targets as int64";
        return Err(Error::dtype(schema.name, why, &[g.dtype(), log_probs.dtype(), targets.dtype()]));
    }
    ctc_back(g, log_probs, targets, &alignment)
}
