//! Running optimizer steps, many of them in one call.
//!
//! Depends on `dispatch`. Invariant: every tensor of every batch is checked before the first one is written.

use super::algebra::Recorded;
use crate::ops::index::{put_axes, Target};
use crate::{dispatch, no_grad, sparse, Error, Result, Tensor};
use lucid_ir::optim::rules::{Rule, Visit};

pub use lucid_ir::optim::step::*;

/// Parameters that take the same step. Per parameter: itself, its gradient, and its state in the step's order.
pub type Batch = (Step, Vec<Vec<Tensor>>);

/// Does an element without a gradient stay as it is, with its state? Then a sparse gradient's rows may step alone.
fn steps_rows(step: &Step) -> Result<()> {
    let (op, decay) = match step {
        Step::SparseAdam(_) => return Ok(()),
        Step::Sgd(s) if s.momentum == 0.0 => ("sgd", s.weight_decay),
        Step::Adagrad(s) => ("adagrad", s.weight_decay),
        other => {
            let why = "does not support sparse gradients; please consider SparseAdam, or to_dense()";
            return Err(Error::runtime(other.name(), why));
        }
    };
    match decay == 0.0 {
        true => Ok(()),
        false => Err(Error::runtime(op, "weight_decay option is not compatible with sparse gradients")),
    }
}

/// A parameter whose gradient is sparse: what of it steps.
struct Rows<'a> {
    list: &'a [Tensor],
    indices: Tensor,
    rows: Vec<Tensor>,
}

impl<'a> Rows<'a> {
    /// The rows of parameter and state that the gradient has. `None` where it has none.
    fn of(list: &'a [Tensor]) -> Result<Option<Rows<'a>>> {
        let sparse::Parts { indices, values, .. } = list[1].coalesce()?.sparse_parts("step")?;
        if values.numel() == 0 {
            return Ok(None);
        }
        let row = |(i, t): (usize, &Tensor)| match i {
            1 => values.contiguous(),
            _ => sparse::rows_at(t, &indices),
        };
        let rows = list.iter().enumerate().map(row).collect::<Result<_>>()?;
        Ok(Some(Rows { list, indices, rows }))
    }

    /// Writes the stepped rows back.
    fn write(&self) -> Result<()> {
        let (axes, at) = sparse::places(&self.indices)?;
        let all = self.list.iter().zip(&self.rows).enumerate().filter(|(i, _)| *i != 1);
        all.map(|(_, own)| own)
            .try_for_each(|(own, rows)| put_axes(Target::Itself, own, &axes, &at, rows, false, true).map(drop))
    }
}

/// Runs many steps at once. Parameters and state are written in place, unseen by the tape. On the GPU the work is one
/// graph, which is started and not waited for. Where a gradient is sparse, its rows alone step, which evaluates.
///
/// # Errors
/// Where a list has the wrong length, or its tensors differ in shape, dtype or device, or are not floating.
pub fn run_steps(batches: &[Batch]) -> Result<()> {
    batches.iter().try_for_each(|(step, lists)| lists.iter().try_for_each(|l| check(step, l)))?;
    no_grad(|| {
        let is_sparse = |list: &Vec<Tensor>| list[1].is_sparse();
        if batches.iter().any(|(_, lists)| lists.iter().any(is_sparse)) {
            return run_mixed(batches);
        }
        // Kernels walk plain rows of memory: what does not have that layout takes part as a copy.
        let dense = |list: &Vec<Tensor>| list.iter().map(Tensor::contiguous).collect::<Result<Vec<_>>>();
        let used: Vec<Batch> = batches
            .iter()
            .map(|(step, lists)| Ok((*step, lists.iter().map(dense).collect::<Result<_>>()?)))
            .collect::<Result<_>>()?;
        dispatch::steps(&used)?;
        for (own, used) in
            batches.iter().flat_map(|b| b.1.iter().flatten()).zip(used.iter().flat_map(|b| b.1.iter().flatten()))
        {
            if !own.is_same(used) {
                own.copy_(used)?;
            }
        }
        Ok(())
    })
}

/// [`run_steps`] where some gradients are sparse: dense parameters step as they are, of the others the rows.
fn run_mixed(batches: &[Batch]) -> Result<()> {
    #[allow(clippy::disallowed_methods)] // As many as groups of parameters that are there.
    let mut plain: Vec<Batch> = Vec::with_capacity(batches.len());
    let mut parts: Vec<Rows<'_>> = Vec::new();
    for (step, lists) in batches {
        #[allow(clippy::disallowed_methods)] // As many as parameters that are there.
        let mut own = Vec::with_capacity(lists.len());
        for list in lists {
            if !list[1].is_sparse() {
                own.push(list.clone());
            } else if let Some(rows) = Rows::of(list)? {
                own.push(rows.rows.clone());
                parts.push(rows);
            }
        }
        plain.push((*step, own));
    }
    run_steps(&plain)?;
    parts.iter().try_for_each(Rows::write)
}

/// Runs many steps in tensor ops, which the tape records: for gradients through the steps themselves.
///
/// # Errors
/// As [`run_steps`], and where a parameter is a leaf that requires a gradient.
pub fn run_steps_recorded(batches: &[Batch]) -> Result<()> {
    struct Record<'a>(&'a [Tensor]);
    impl Visit for Record<'_> {
        type Out = Result<()>;
        fn rule<R: Rule, const S: usize>(self, rule: R) -> Result<()> {
            let [p, g, state @ ..] = self.0 else { return Ok(()) };
            // The tape keeps copies, since the tensors themselves are written.
            let mut new = state.iter().map(Tensor::copy).collect::<Result<Vec<_>>>()?;
            let next = rule.update(&Recorded, p.copy()?, g.copy()?, &mut new)?;
            p.copy_(&next)?;
            state.iter().zip(&new).try_for_each(|(own, new)| own.copy_(new))
        }
    }
    batches.iter().try_for_each(|(step, lists)| lists.iter().try_for_each(|l| check(step, l)))?;
    if let Some((step, _)) = batches.iter().find(|(_, lists)| lists.iter().any(|l| l[1].is_sparse())) {
        return Err(Error::runtime(step.name(), "differentiable steps take dense gradients; call to_dense()"));
    }
    batches.iter().try_for_each(|(step, lists)| lists.iter().try_for_each(|list| step.visit(Record(list))))
}

fn check(step: &Step, list: &[Tensor]) -> Result<()> {
    let op = step.name();
    let [param, rest @ ..] = list else {
        return Err(Error::runtime(op, "a parameter without arrays"));
    };
    if list.len() != step.arity() {
        let why = format!("expected {} arrays per parameter, got {}", step.arity(), list.len());
        return Err(Error::runtime(op, why));
    }
    if !param.dtype().is_float() {
        return Err(Error::dtype(op, "parameters must be of a floating dtype", &[param.dtype()]));
    }
    if list.iter().enumerate().any(|(i, t)| i != 1 && t.is_sparse()) {
        return Err(Error::runtime(op, "parameters and state must be dense; only gradients may be sparse"));
    }
    if list[1].is_sparse() {
        steps_rows(step)?;
    }
    for t in rest {
        if t.shape() != param.shape() {
            let why = "gradient and state must have the parameter's shape";
            return Err(Error::shape(op, why, &[param.shape(), t.shape()]));
        }
        if t.dtype() != param.dtype() {
            let why = "gradient and state must have the parameter's dtype";
            return Err(Error::dtype(op, why, &[param.dtype(), t.dtype()]));
        }
        if t.device() != param.device() {
            let why = "gradient and state must be on the parameter's device";
            return Err(Error::device(op, why, &[param.device(), t.device()]));
        }
    }
    Ok(())
}
