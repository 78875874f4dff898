//! The negative log-likelihood of class indices, and what goes back through it, in one pass over the targets.
//!
//! Depends on `fused` and `index`. Sums go on in double precision. Invariant: a target that is no class and not ignored is an
//! error before anything is read by it.

use super::fused::{with_float, Compute, Float};
use super::{index, CpuArray};
use crate::fallible::scratch_from;
use crate::{Error, Result};
use lucid_ir::ops::loss::{LossOp, Reduction};
use lucid_ir::Meta;

/// The kernels of the `loss` family.
pub fn loss(op: &LossOp, inputs: &[&CpuArray], out: &Meta) -> Result<CpuArray> {
    let &[x, target] = inputs else {
        return Err(Error::runtime(op.name(), format!("does not take {} arrays", inputs.len())));
    };
    let target = target.settled()?;
    let guard = target.read::<i64>();
    let targets = target.slice(&guard);
    let rows = target.shape().last().copied().unwrap_or(1);
    match *op {
        LossOp::Nll { ignore, reduction } => {
            let classes = x.shape().last().copied().unwrap_or(1);
            let batch = Batch { targets, rows, classes, ignore };
            batch.check(op)?;
            with_float!("nll_loss", out.dtype, T => batch.forward::<T>(x, reduction, out))
        }
        LossOp::NllGradient { classes, ignore, reduction } => {
            let batch = Batch { targets, rows, classes, ignore };
            batch.check(op)?;
            with_float!("nll_loss_gradient", out.dtype, T => batch.backward::<T>(x, reduction, out))
        }
    }
}

/// The classes of some batches of rows.
struct Batch<'a> {
    targets: &'a [i64],
    /// Of one batch.
    rows: usize,
    classes: usize,
    ignore: i64,
}

impl Batch<'_> {
    fn check(&self, op: &LossOp) -> Result<()> {
        // What is ignored may be any number; mostly it does not occur.
        let counted: Vec<i64>;
        let targets = match self.targets.contains(&self.ignore) {
            true => {
                counted = scratch_from(self.targets.iter().copied().filter(|&t| t != self.ignore));
                &counted
            }
            false => self.targets,
        };
        index::within(op.name(), targets, 1, self.classes, 0)
    }

    /// The targets of each batch; none where batches are empty.
    fn batches(&self) -> impl Iterator<Item = &[i64]> {
        self.targets.chunks(self.rows.max(1))
    }

    fn counted(&self, targets: &[i64]) -> f64 {
        targets.iter().filter(|&&t| t != self.ignore).count() as f64
    }

    fn forward<T: Float>(&self, x: &CpuArray, reduction: Reduction, out: &Meta) -> Result<CpuArray> {
        let x = x.contiguous()?;
        let guard = x.read::<T>();
        let logs = x.slice(&guard);
        let row = |(i, &t): (usize, &i64)| match t == self.ignore {
            true => T::W::of(0.0),
            false => -logs[i * self.classes + t as usize].widen(),
        };
        CpuArray::build(&out.shape, |out: &mut [T]| {
            if reduction == Reduction::None {
                out.iter_mut().zip(self.targets.iter().enumerate()).for_each(|(o, t)| *o = T::narrow(row(t)));
                return Ok(());
            }
            let nothing = if reduction == Reduction::Mean { f64::NAN } else { 0.0 };
            out.fill(T::narrow(T::W::of(nothing)));
            let mut first = 0;
            for (o, targets) in out.iter_mut().zip(self.batches()) {
                let sum: f64 = (first..).zip(targets).map(|t| -> f64 { row(t).into() }).sum();
                let sum = if reduction == Reduction::Mean { sum / self.counted(targets) } else { sum };
                *o = T::narrow(T::W::of(sum));
                first += targets.len();
            }
            Ok(())
        })
    }

    fn backward<T: Float>(&self, g: &CpuArray, reduction: Reduction, out: &Meta) -> Result<CpuArray> {
        let g = g.contiguous()?;
        let guard = g.read::<T>();
        let gs = g.slice(&guard);
        CpuArray::build(&out.shape, |out: &mut [T]| {
            out.fill(T::narrow(T::W::of(0.0)));
            let mut first = 0;
            for (batch, targets) in self.batches().enumerate() {
                let count = T::W::of(if reduction == Reduction::Mean { self.counted(targets) } else { 1.0 });
                for (i, &t) in (first..).zip(targets).filter(|&(_, &t)| t != self.ignore) {
                    let at = if reduction == Reduction::None { i } else { batch };
                    out[i * self.classes + t as usize] = T::narrow(-gs[at].widen() / count);
                }
                first += targets.len();
            }
            Ok(())
        })
    }
}
