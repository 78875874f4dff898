//! The negative log-likelihood of class indices, and of logits of truth values, and the gradients through them, each in one pass.
//!
//! Depends on `fused` and `index`. Sums go on in double precision. Invariant: a target that is no class and not ignored is an
//! error before anything is read by it.

use super::elementwise::{Call2, Loops2, F as Pairs};
use super::fused::{with_float, Compute, Float};
use super::simd::{kernel, map2, run, threads, Arg, Map1, Map2, Task};
use super::strided::each3;
use super::{ctc, index, CpuArray};
use crate::fallible::scratch_from;
use crate::{Error, Result};
use lucid_ir::ops::loss::{LossOp, Reduction};
use lucid_ir::Meta;

/// The kernels of the `loss` family.
pub fn loss(op: &LossOp, inputs: &[&CpuArray], out: &Meta) -> Result<CpuArray> {
    if let LossOp::Ctc { .. } | LossOp::CtcGradient { .. } = op {
        return ctc::ctc(op, inputs, out);
    }
    let &[x, target] = inputs else {
        if let (LossOp::BceLogitsGradient, &[g, x, target]) = (op, inputs) {
            return with_float!("bce_logits_gradient", out.dtype, T => logits_back::<T>(g, x, target, out));
        }
        return Err(Error::runtime(op.name(), format!("does not take {} arrays", inputs.len())));
    };
    if *op == LossOp::BceLogits {
        let narrow: &Pairs<f32, f32> = &|x, t, out| map2(Logits, x, t, out);
        let wide: &Pairs<f64, f64> = &|x, t, out| map2(Logits, x, t, out);
        let loops = Loops2 { f32: Some(narrow), f64: Some(wide), ..Loops2::default() };
        return loops.run(Call2 { op: op.name(), a: x, b: target, shape: &out.shape, over: false }, SOME);
    }
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
        LossOp::BceLogits | LossOp::BceLogitsGradient | LossOp::Ctc { .. } | LossOp::CtcGradient { .. } => {
            Err(Error::runtime(op.name(), format!("does not take {} arrays", inputs.len())))
        }
        LossOp::NllGradient { classes, ignore, reduction } => {
            let batch = Batch { targets, rows, classes, ignore };
            batch.check(op)?;
            with_float!("nll_loss_gradient", out.dtype, T => batch.backward::<T>(x, reduction, out))
        }
    }
}

/// Elements of a loss from which it goes to the pool.
const SOME: usize = threads::GRAIN / 4;

/// `(1 - t) x + log(1 + e^-x)`
#[derive(Clone, Copy)]
struct Logits;
macro_rules! logits {
    ($t:ident) => {
        impl Map2<$t, $t, $t> for Logits {
            #[inline(always)]
            fn map<const F: bool>(self, x: $t, t: $t) -> $t {
                let tail = kernel::Log1p.map::<F>(kernel::Exp.map::<F>(-x.abs()));
                (1.0 - t) * x + ((if x < 0.0 { -x } else { 0.0 }) + tail)
            }
        }
    };
}
logits!(f32);
logits!(f64);

/// `g (sigmoid(x) - t)`
struct LogitsBack<'a, T> {
    g: Arg<'a, T>,
    x: Arg<'a, T>,
    t: Arg<'a, T>,
    out: &'a mut [T],
}
#[inline(always)]
fn logit_back<T: Float, const F: bool>(g: T, x: T, t: T) -> T {
    let one = T::W::of(1.0);
    let s = one / (one + (-x.widen()).power::<F>());
    T::narrow(g.widen() * (s - t.widen()))
}
impl<T: Float> Task for LogitsBack<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        let LogitsBack { g, x, t, out } = self;
        match (g, x, t) {
            (Arg::Value(g), Arg::Slice(x), Arg::Slice(t)) => {
                out.iter_mut().zip(x).zip(t).for_each(|((o, &x), &t)| *o = logit_back::<T, F>(g, x, t));
            }
            (Arg::Slice(g), Arg::Slice(x), Arg::Slice(t)) => {
                out.iter_mut().zip(g).zip(x).zip(t).for_each(|(((o, &g), &x), &t)| *o = logit_back::<T, F>(g, x, t));
            }
            _ => out.iter_mut().enumerate().for_each(|(i, o)| *o = logit_back::<T, F>(g.at(i), x.at(i), t.at(i))),
        }
    }
}

fn logits_back<T: Float>(g: &CpuArray, x: &CpuArray, t: &CpuArray, out: &Meta) -> Result<CpuArray> {
    let (g, x, t) = (g.packed()?, x.packed()?, t.packed()?);
    let (gs, xs, ts) = (g.read::<T>(), x.read::<T>(), t.read::<T>());
    let shape = &out.shape[..];
    CpuArray::build(shape, |out: &mut [T]| {
        let (g, x, t) = (g.source(&gs, shape), x.source(&xs, shape), t.source(&ts, shape));
        each3(&g, &x, &t, out, SOME, &|g, x, t, out| run(LogitsBack { g, x, t, out }));
        Ok(())
    })
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
