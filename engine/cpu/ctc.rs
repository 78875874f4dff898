//! Connectionist temporal classification: the recursions over a sequence's steps, in the space of logarithms.
//!
//! A path has the labels of a sequence with blanks around them; `alpha[t][s]` is the logarithm of what all ways to place `s` of the
//! path at step `t` have in probability, `beta[t][s]` of all ways from there, both with the step's own. Rows have two places
//! more, of probability 0, so that no place of the path is a case of its own. Depends on `fused`. 16-bit floats are computed with
//! in float32. Invariant: labels are classes before anything is read by them.

use super::fused::{with_float, Compute, Float};
use super::simd::{run, threads, Task};
use super::{index, CpuArray};
use crate::fallible::{scratch, scratch_from};
use crate::{Error, Result};
use lucid_ir::ops::loss::{Alignment, LossOp};
use lucid_ir::Meta;

/// The kernels: the losses, and the gradient of `log_probs`.
pub(super) fn ctc(op: &LossOp, inputs: &[&CpuArray], out: &Meta) -> Result<CpuArray> {
    match (op, inputs) {
        (LossOp::Ctc { alignment }, &[logs, targets]) => {
            let paths = Paths::of(op, alignment, logs, targets)?;
            with_float!(op.name(), out.dtype, T => paths.losses::<T>(logs, out))
        }
        (LossOp::CtcGradient { alignment }, &[g, logs, targets]) => {
            let paths = Paths::of(op, alignment, logs, targets)?;
            with_float!(op.name(), out.dtype, T => paths.gradient::<T>(g, logs, out))
        }
        _ => Err(Error::runtime(op.name(), format!("does not take {} arrays", inputs.len()))),
    }
}

/// Places of a row beside those of its path.
const MORE: usize = 2;

/// The paths of some sequences: `width` classes each, of which the first `2 labels + 1` are the sequence's.
struct Paths<'a> {
    alignment: &'a Alignment,
    classes: Vec<usize>,
    width: usize,
    steps: usize,
    count: usize,
    all: usize,
}

impl<'a> Paths<'a> {
    fn of(op: &LossOp, alignment: &'a Alignment, logs: &CpuArray, targets: &CpuArray) -> Result<Paths<'a>> {
        let Some([steps, count, all, room]) = alignment.sizes(logs.shape(), targets.shape()) else {
            return Err(Error::shape(op.name(), "lengths do not fit", &[logs.shape(), targets.shape()]));
        };
        let targets = targets.settled()?;
        let guard = targets.read::<i64>();
        let labels = targets.slice(&guard);
        let rows = labels.chunks(room.max(1)).zip(alignment.labels.iter().cycle());
        for (row, &n) in rows {
            index::within(op.name(), &row[..n], 1, all, 0)?;
        }
        let longest = alignment.labels.iter().copied().max().unwrap_or(0);
        let (width, batches) = (2 * longest + 1, crate::shape::numel(&logs.shape()[..logs.shape().len() - 3]));
        let mut classes = scratch(alignment.blank, batches * count * width);
        for (i, path) in classes.chunks_mut(width).enumerate() {
            let n = alignment.labels[i % count];
            let row = labels.get(i * room..i * room + n).unwrap_or(&[]);
            path.iter_mut().skip(1).step_by(2).zip(row).for_each(|(class, &label)| *class = label as usize);
        }
        Ok(Paths { alignment, classes, width, steps, count, all })
    }

    /// Of sequence `i` of all batches: its path, what skipping over a blank costs, its steps, and where its first logarithm is.
    fn path<W: Compute>(&self, i: usize) -> Path<'_, W> {
        let n = i % self.count;
        let labels = self.alignment.labels[n];
        let classes = &self.classes[i * self.width..][..2 * labels + 1];
        let never = W::of(f64::NEG_INFINITY);
        let toll = |s: usize| s >= 2 && classes[s] != classes[s - 2];
        let tolls = scratch_from((0..classes.len() + MORE).map(|s| match s < classes.len() && toll(s) {
            true => W::of(0.0),
            false => never,
        }));
        let first = (i / self.count) * self.steps * self.count * self.all + n * self.all;
        Path { classes, tolls, steps: self.alignment.inputs[n], first, stride: self.count * self.all }
    }

    fn losses<T: Float>(&self, logs: &CpuArray, out: &Meta) -> Result<CpuArray> {
        let logs = logs.contiguous()?;
        let guard = logs.read::<T>();
        let logs = logs.slice(&guard);
        CpuArray::build(&out.shape, |out: &mut [T]| {
            threads::for_chunks(out, 1, self.grain(1), |start, out| {
                for (i, loss) in (start..).zip(out) {
                    *loss = T::narrow(run(Forward { path: self.path(i), logs, keep: &mut [] }));
                }
            });
            Ok(())
        })
    }

    /// Sequences, or elements of `each` per sequence, that are worth another thread.
    fn grain(&self, each: usize) -> usize {
        // A place of a step takes three exponentials and a logarithm.
        let work = 8usize.saturating_mul(self.steps).saturating_mul(self.width).max(1);
        (threads::GRAIN / work).max(1).saturating_mul(each)
    }

    fn gradient<T: Float>(&self, g: &CpuArray, logs: &CpuArray, out: &Meta) -> Result<CpuArray> {
        let (g, logs) = (g.contiguous()?, logs.contiguous()?);
        let (g_guard, guard) = (g.read::<T>(), logs.read::<T>());
        let (g, logs) = (g.slice(&g_guard), logs.slice(&guard));
        // How probable each place is at each step among all alignments.
        let each = self.steps * (self.width + MORE);
        let sequences = self.classes.len() / self.width;
        let mut shares = scratch(T::W::of(0.0), sequences * (each + 1));
        threads::for_chunks(&mut shares, each + 1, self.grain(each + 1), |start, shares| {
            for (i, part) in (start / (each + 1)..).zip(shares.chunks_mut(each + 1)) {
                let (loss, keep) = part.split_at_mut(1);
                loss[0] = run(Forward { path: self.path(i), logs, keep });
                run(Backward { path: self.path(i), logs, loss: loss[0], shares: keep });
            }
        });
        CpuArray::build(&out.shape, |out: &mut [T]| {
            let row = self.all;
            threads::for_chunks(out, row, threads::GRAIN, |start, out| {
                let mut wide = scratch(T::W::of(0.0), row);
                for (r, out) in (start / row..).zip(out.chunks_mut(row)) {
                    let (t, n) = (r / self.count % self.steps, r % self.count);
                    let i = r / (self.count * self.steps) * self.count + n;
                    let (loss, shares) = (shares[i * (each + 1)], &shares[i * (each + 1) + 1..][..each]);
                    let logs = &logs[r * row..][..row];
                    if t >= self.alignment.inputs[n] || self.alignment.zero_infinity && loss == T::W::of(f64::INFINITY)
                    {
                        out.fill(T::narrow(T::W::of(0.0)));
                        continue;
                    }
                    let places = 2 * self.alignment.labels[n] + 1;
                    let path = &self.classes[i * self.width..][..places];
                    let shares = &shares[t * (places + MORE)..][..places];
                    run(Row { g: g[i].widen(), loss, logs, path, shares, wide: &mut wide, out });
                }
            });
            Ok(())
        })
    }
}

/// A sequence.
struct Path<'a, W> {
    classes: &'a [usize],
    /// Of each place: 0 where it may follow the one two before it, else the logarithm of 0.
    tolls: Vec<W>,
    steps: usize,
    first: usize,
    stride: usize,
}

impl<W: Compute> Path<'_, W> {
    /// The logarithms of a step along the path.
    #[inline(always)]
    fn emitted<T: Float<W = W>>(&self, logs: &[T], t: usize, out: &mut [W]) {
        let row = &logs[self.first + t * self.stride..];
        out.iter_mut().zip(self.classes).for_each(|(o, &class)| *o = row[class].widen());
    }
}

/// The larger of two; of NaN and a number either.
#[inline(always)]
fn above<W: Compute>(a: W, b: W) -> W {
    if a > b {
        a
    } else {
        b
    }
}

/// The logarithm of a sum of three, by their logarithms.
#[inline(always)]
fn log_sum<W: Compute, const F: bool>(a: W, b: W, c: W) -> W {
    let most = above(a, above(b, c));
    let shift = if most == W::of(f64::NEG_INFINITY) { W::of(0.0) } else { most };
    let sum = (a - shift).power::<F>() + (b - shift).power::<F>() + (c - shift).power::<F>();
    shift + sum.logarithm::<F>()
}

/// A sequence's loss; `keep` gets a row of `alpha` for each step, where it has room.
struct Forward<'a, T: Float> {
    path: Path<'a, T::W>,
    logs: &'a [T],
    keep: &'a mut [T::W],
}
impl<T: Float> Task for Forward<'_, T> {
    type Out = T::W;
    #[inline(always)]
    fn run<const F: bool>(self) -> T::W {
        let Forward { path, logs, keep } = self;
        let (never, places) = (T::W::of(f64::NEG_INFINITY), path.classes.len());
        if path.steps == 0 {
            return if places == 1 { T::W::of(0.0) } else { T::W::of(f64::INFINITY) };
        }
        let mut now = scratch(never, places + MORE);
        let (mut next, mut own) = (scratch(never, places + MORE), scratch(never, places));
        path.emitted(logs, 0, &mut own);
        // The path begins with its first blank or its first label.
        let begin = places.min(2);
        now[MORE..MORE + begin].copy_from_slice(&own[..begin]);
        if let Some(keep) = keep.get_mut(..places + MORE) {
            keep[..places].copy_from_slice(&now[MORE..]);
        }
        for t in 1..path.steps {
            path.emitted(logs, t, &mut own);
            let (stay, one, two) = (&now[2..2 + places], &now[1..1 + places], &now[..places]);
            let (tolls, own, out) = (&path.tolls[..places], &own[..places], &mut next[MORE..MORE + places]);
            for s in 0..places {
                out[s] = log_sum::<T::W, F>(stay[s], one[s], two[s] + tolls[s]) + own[s];
            }
            std::mem::swap(&mut now, &mut next);
            if let Some(keep) = keep.get_mut(t * (places + MORE)..(t + 1) * (places + MORE)) {
                keep[..places].copy_from_slice(&now[MORE..]);
            }
        }
        // It ends with its last blank or its last label.
        let last = if places == 1 { never } else { now[MORE + places - 2] };
        -log_sum::<T::W, F>(now[MORE + places - 1], last, never)
    }
}

/// Makes of the rows of `alpha`, by those of `beta`, how probable each place is at each step.
struct Backward<'a, T: Float> {
    path: Path<'a, T::W>,
    logs: &'a [T],
    loss: T::W,
    shares: &'a mut [T::W],
}
impl<T: Float> Task for Backward<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        let Backward { path, logs, loss, shares } = self;
        let (never, places) = (T::W::of(f64::NEG_INFINITY), path.classes.len());
        let mut now = scratch(never, places + MORE);
        let (mut next, mut own) = (scratch(never, places + MORE), scratch(never, places));
        for t in (0..path.steps).rev() {
            path.emitted(logs, t, &mut own);
            if t + 1 == path.steps {
                let end = places - places.min(2);
                next[end..places].copy_from_slice(&own[end..]);
            } else {
                let (stay, one, two) = (&now[..places], &now[1..1 + places], &now[2..2 + places]);
                let (tolls, own, out) = (&path.tolls[2..2 + places], &own[..places], &mut next[..places]);
                for s in 0..places {
                    out[s] = log_sum::<T::W, F>(stay[s], one[s], two[s] + tolls[s]) + own[s];
                }
            }
            std::mem::swap(&mut now, &mut next);
            let row = &mut shares[t * (places + MORE)..][..places];
            let (beta, own) = (&now[..places], &own[..places]);
            for s in 0..places {
                // What cannot be is no number where its own logarithm is taken from it.
                let reached = row[s] != never && beta[s] != never;
                let share = (row[s] + beta[s] - own[s] + loss).power::<F>();
                row[s] = if reached { share } else { T::W::of(0.0) };
            }
        }
    }
}

/// A step's gradient: the probabilities of all classes less the shares of those on the path.
struct Row<'a, T: Float> {
    g: T::W,
    loss: T::W,
    logs: &'a [T],
    path: &'a [usize],
    shares: &'a [T::W],
    wide: &'a mut [T::W],
    out: &'a mut [T],
}
impl<T: Float> Task for Row<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        let Row { g, loss, logs, path, shares, wide, out } = self;
        // A sequence that cannot be aligned has no gradient that is a number.
        let shift = if loss == T::W::of(f64::INFINITY) { T::W::of(f64::NAN) } else { T::W::of(0.0) };
        wide.iter_mut().zip(logs).for_each(|(o, x)| *o = x.widen().power::<F>() + shift);
        path.iter().zip(shares).for_each(|(&class, &share)| wide[class] = wide[class] - share);
        out.iter_mut().zip(&*wide).for_each(|(o, &x)| *o = T::narrow(x * g));
    }
}
