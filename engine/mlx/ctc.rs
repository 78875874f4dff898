//! Connectionist temporal classification: the recursions over the steps, as primitives for all sequences at once.
//!
//! Depends on `bounds`, `index` and mlx-ffi. Computed in float32. Invariant: as `cpu/ctc.rs`, whose results these are and which
//! names what is computed; MLX's CPU stream runs that one. A label that is no class is an error before anything is read by it.
#![allow(unsafe_code)] // MLX checks no index.

use super::array::GpuArray;
use super::bounds;
use super::convert::{self, constant, int, ints};
use super::elementwise::cast_array;
use super::host_kernel;
use super::index::add_axis;
use super::kernel_error::Made;
use super::special::{choose, number};
use super::value::{Value, ValueRange};
use crate::shape::numel;
use crate::{DType, Error};
use lucid_cpu::CpuBackend;
use lucid_ir::backend::Backend;
use lucid_ir::ops::loss::{Alignment, LossOp};
use lucid_ir::Meta;
use mlx_ffi::{ops, Array};

/// The losses, or the gradient of `log_probs`.
pub(super) fn ctc(op: &LossOp, inputs: &[&GpuArray], out: &Meta) -> Made<GpuArray> {
    let (alignment, g, logs, targets) = match (op, inputs) {
        (LossOp::Ctc { alignment }, &[logs, targets]) => (alignment, None, logs, targets),
        (LossOp::CtcGradient { alignment }, &[g, logs, targets]) => (alignment, Some(g), logs, targets),
        _ => return Err(Error::runtime(op.name(), format!("does not take {} arrays", inputs.len())).into()),
    };
    let Some(sizes) = alignment.sizes(logs.shape(), targets.shape()) else {
        let why = "lengths do not fit";
        return Err(Error::shape(op.name(), why, &[logs.shape(), targets.shape()]).into());
    };
    let labels = used(op.name(), alignment, targets, sizes)?;
    if host_kernel::takes(out.dtype) {
        let op = op.clone();
        return host_kernel::run(c"LucidCtc", inputs, out, move |x, out| CpuBackend::loss(&op, x, out));
    }
    if numel(&out.shape) == 0 {
        let none = ops::zeros(&ints(&out.shape)?, convert::dtype(out.dtype)?)?;
        return GpuArray::new(Value::plain(none), &out.shape, out.dtype);
    }
    let made = match g {
        None => Paths::of(alignment, logs, &labels, sizes)?.loss()?,
        Some(g) => {
            let paths = Paths::of(alignment, logs, &labels, sizes)?;
            paths.gradient(&*g.value()?.logical()?, g.element(), alignment.zero_infinity, out)?
        }
    };
    let made = ops::reshape(&cast_array(&made, DType::F32, out.dtype)?, &ints(&out.shape)?)?;
    GpuArray::new(Value::plain(made), &out.shape, out.dtype)
}

/// The labels, the blank where a row has none, as (batch, N, S). They are looked at, unless their range is known.
fn used(op: &'static str, alignment: &Alignment, targets: &GpuArray, sizes: [usize; 4]) -> Made<Array> {
    let [_, count, classes, room] = sizes;
    let (whole, known) = (targets.value()?.logical()?.into_owned(), targets.value()?.known);
    if targets.numel() == 0 {
        return Ok(whole);
    }
    let places = ops::arange(0.0, room as f64, 1.0, mlx_ffi::Dtype::Int64)?;
    let lengths = column(alignment.labels.iter().map(|&n| n as i64), count)?;
    let labels = choose(&ops::less(&places, &lengths)?, &whole, &constant(alignment.blank as i64, DType::I64)?)?;
    if !matches!(known, ValueRange::Within(low, high) if low >= 0 && high < classes as i64) {
        let looked = GpuArray::new(Value::plain(labels.clone()), targets.shape(), DType::I64)?;
        bounds::check(op, &looked, classes, 1, false)?;
    }
    Ok(labels)
}

/// Numbers of the sequences, as a column.
fn column(numbers: impl Iterator<Item = i64>, count: usize) -> Made<Array> {
    Ok(Array::from_slice(&numbers.collect::<Vec<_>>(), &[int(count)?, 1])?)
}

/// Columns `from` to `to` of a matrix.
fn columns(a: &Array, from: i32, to: i32) -> Made<Array> {
    Ok(ops::slice(a, &[0, from], &[a.shape()[0], to], &[1, 1])?)
}

/// A step of an array of steps.
fn step(a: &Array, t: usize) -> Made<Array> {
    let (t, rows, width) = (int(t)?, a.shape()[1], a.shape()[2]);
    let row = ops::slice(a, &[t, 0, 0], &[t + 1, rows, width], &[1, 1, 1])?;
    Ok(ops::reshape(&row, &[rows, width])?)
}

/// All sequences of all batches, in a row: `rows` of them, with `width` places on their paths.
struct Paths {
    steps: usize,
    rows: usize,
    width: i32,
    /// How often all sequences come.
    batches: usize,
    /// (T, rows, C)
    logs: Array,
    /// (T, rows, width): the classes of the paths, and their logarithms.
    classes: Array,
    own: Array,
    /// (rows, width): 0 where a place may follow the one two before it, else the logarithm of 0.
    tolls: Array,
    inputs: Vec<i64>,
    labels: Vec<i64>,
    never: Array,
}

impl Paths {
    fn of(alignment: &Alignment, logs: &GpuArray, labels: &Array, sizes: [usize; 4]) -> Made<Paths> {
        let [steps, count, all, room] = sizes;
        let batches = numel(&logs.shape()[..logs.shape().len() - 3]);
        let rows = batches * count;
        let wide = cast_array(&*logs.value()?.logical()?, logs.element(), DType::F32)?;
        let wide = ops::reshape(&wide, &ints(&[batches, steps, count, all])?)?;
        let wide = ops::reshape(&ops::transpose_axes(&wide, &[1, 0, 2, 3])?, &ints(&[steps, rows, all])?)?;
        let width = int(2 * room + 1)?;
        let blank = constant(alignment.blank as i64, DType::I64)?;
        let labels = ops::reshape(labels, &ints(&[rows, room, 1])?)?;
        let pairs = ops::concatenate_axis(&[&ops::broadcast_to(&blank, labels.shape())?, &labels], 2)?;
        let pairs = ops::reshape(&pairs, &ints(&[rows, 2 * room])?)?;
        let edge = ops::broadcast_to(&blank, &[int(rows)?, 1])?;
        let path = ops::concatenate_axis(&[&pairs, &edge], 1)?;
        let before = ops::concatenate_axis(&[&edge, &edge, &path], 1)?;
        let never = number(f64::NEG_INFINITY)?;
        let same = ops::equal(&path, &columns(&before, 0, width)?)?;
        let tolls = choose(&same, &never, &number(0.0)?)?;
        let shape = ints(&[steps, rows, width as usize])?;
        let classes = ops::broadcast_to(&ops::expand_dims(&path, 0)?, &shape)?;
        // SAFETY: the labels were checked, and the blank is a class.
        let own = unsafe { ops::take_along_axis(&wide, &classes, 2) }?;
        let repeated = |lengths: &[usize]| (0..rows).map(|i| lengths[i % count] as i64).collect::<Vec<_>>();
        let (inputs, labels) = (repeated(&alignment.inputs), repeated(&alignment.labels));
        Ok(Paths { steps, rows, width, batches, logs: wide, classes, own, tolls, inputs, labels, never })
    }

    /// Which sequences this is true of, as a column.
    fn column(&self, is: impl Fn(i64, i64) -> bool) -> Made<Array> {
        let truths = self.inputs.iter().zip(&self.labels).map(|(&steps, &labels)| i64::from(is(steps, labels)));
        Ok(ops::not_equal(&column(truths, self.rows)?, &constant(0i64, DType::I64)?)?)
    }

    /// Places of probability 0, beside a row.
    fn more(&self) -> Made<Array> {
        Ok(ops::broadcast_to(&self.never, &[int(self.rows)?, 2])?)
    }

    /// The places that a path may begin with, or end with.
    fn edge(&self, last: bool) -> Made<Array> {
        let at = ops::arange(0.0, f64::from(self.width), 1.0, mlx_ffi::Dtype::Int64)?;
        let low = column(self.labels.iter().map(|&n| if last { (2 * n - 1).max(0) } else { 0 }), self.rows)?;
        let high = column(self.labels.iter().map(|&n| if last { 2 * n } else { i64::from(n > 0) }), self.rows)?;
        Ok(ops::logical_and(&ops::greater_equal(&at, &low)?, &ops::less_equal(&at, &high)?)?)
    }

    /// The logarithms of a step, of what three places have, which is behind the others.
    fn follow(&self, three: [&Array; 3], tolls: &Array, t: usize) -> Made<Array> {
        let two = ops::add(three[2], tolls)?;
        let sum = ops::logaddexp(&ops::logaddexp(three[0], three[1])?, &two)?;
        Ok(ops::add(&sum, &step(&self.own, t)?)?)
    }

    /// A row of `alpha` for each step; of those after a sequence's last one its last one once more.
    fn alphas(&self) -> Made<Vec<Array>> {
        let mut made: Vec<Array> = Vec::new();
        for t in 0..self.steps {
            let next = match made.last() {
                None => choose(&self.edge(false)?, &step(&self.own, 0)?, &self.never)?,
                Some(last) => {
                    let wide = ops::concatenate_axis(&[&self.more()?, last], 1)?;
                    let (one, two) = (columns(&wide, 1, 1 + self.width)?, columns(&wide, 0, self.width)?);
                    let next = self.follow([last, &one, &two], &self.tolls, t)?;
                    match self.inputs.iter().all(|&n| n > t as i64) {
                        true => next,
                        false => choose(&self.column(|steps, _| steps > t as i64)?, &next, last)?,
                    }
                }
            };
            made.push(next);
        }
        Ok(made)
    }

    /// The losses, as a column.
    fn losses(&self, alphas: &[Array]) -> Made<Array> {
        let empty = choose(&self.column(|_, labels| labels == 0)?, &number(0.0)?, &number(f64::INFINITY)?)?;
        let Some(last) = alphas.last() else { return Ok(empty) };
        let ends = choose(&self.edge(true)?, last, &self.never)?;
        let loss = ops::negative(&ops::logsumexp_axis(&ends, 1, true)?)?;
        choose(&self.column(|steps, _| steps > 0)?, &loss, &empty)
    }

    fn loss(&self) -> Made<Array> {
        self.losses(&self.alphas()?)
    }

    fn gradient(&self, g: &Array, dtype: DType, zero_infinity: bool, out: &Meta) -> Made<Array> {
        let alphas = self.alphas()?;
        let loss = self.losses(&alphas)?;
        let ends = self.edge(true)?;
        let tolls = columns(&ops::concatenate_axis(&[&self.tolls, &self.more()?], 1)?, 2, 2 + self.width)?;
        let mut beta: Option<Array> = None;
        let mut shares = Vec::new();
        for t in (0..self.steps).rev() {
            let (now, own) = (t as i64, step(&self.own, t)?);
            let mut next = choose(&ops::logical_and(&ends, &self.column(|n, _| n == now + 1)?)?, &own, &self.never)?;
            if let Some(beta) = &beta {
                let wide = ops::concatenate_axis(&[beta, &self.more()?], 1)?;
                let (one, two) = (columns(&wide, 1, 1 + self.width)?, columns(&wide, 2, 2 + self.width)?);
                let inner = self.follow([beta, &one, &two], &tolls, t)?;
                next = choose(&self.column(|n, _| n > now + 1)?, &inner, &next)?;
            }
            let alpha = &alphas[t];
            let reached = ops::logical_and(&ops::greater(alpha, &self.never)?, &ops::greater(&next, &self.never)?)?;
            let share = ops::add(&ops::subtract(&ops::add(alpha, &next)?, &own)?, &loss)?;
            let share = choose(&reached, &ops::exp(&share)?, &number(0.0)?)?;
            shares.push(ops::expand_dims(&ops::negative(&share)?, 0)?);
            beta = Some(next);
        }
        shares.reverse();
        let shares = ops::concatenate_axis(&shares.iter().collect::<Vec<_>>(), 0)?;
        // SAFETY: as in `of`.
        let rest = unsafe { add_axis(&ops::exp(&self.logs)?, &self.classes, &shares, 2) }?;
        let infinite = ops::equal(&loss, &number(f64::INFINITY)?)?;
        let instead = number(if zero_infinity { 0.0 } else { f64::NAN })?;
        let g = ops::reshape(&cast_array(g, dtype, DType::F32)?, &ints(&[self.rows, 1])?)?;
        let rest = choose(&infinite, &instead, &ops::multiply(&rest, &g)?)?;
        let at = ops::arange(0.0, self.steps as f64, 1.0, mlx_ffi::Dtype::Int64)?;
        let at = ops::reshape(&at, &ints(&[self.steps, 1, 1])?)?;
        let read = ops::less(&at, &column(self.inputs.iter().copied(), self.rows)?)?;
        let rest = choose(&read, &rest, &number(0.0)?)?;
        let all = out.shape.last().copied().unwrap_or(1);
        let wide = [self.steps, self.batches, self.rows / self.batches.max(1), all];
        Ok(ops::transpose_axes(&ops::reshape(&rest, &ints(&wide)?)?, &[1, 0, 2, 3])?)
    }
}
