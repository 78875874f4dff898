//! Recurrent layers by kernels for whole sequences: one primitive and one node of the graph for a layer and direction, which gives
//! the states of all steps, the last ones, and what its gradient reads.
//!
//! The kernels are in `cpu/rnn_layer.rs` and `mlx/rnn_layer.rs`. The composition of plain ops in `rnn.rs` is the reference, and
//! what runs under `vmap`, with tangents, and where gradients of gradients are asked for.

use super::macros::define_ops;
use super::rnn::Operands;
use crate::autograd::{self, carries, grad_apart, BackwardOptions, Ctx, Grads};
use crate::dispatch::{self, Prim};
use crate::fallible::collected;
use crate::{Error, Result, Tensor};
use lucid_ir::backend::Results;
pub use lucid_ir::ops::recurrent::*;
use lucid_ir::recurrent_ops;
use std::sync::Arc;

recurrent_ops!(define_ops);

/// Are there kernels for these operands?
pub(super) fn takes(x: &Operands<'_>) -> bool {
    let all = || x.tensors().into_iter();
    // One step shows the ops that it is made of, as a cell.
    let filled = x.sizes.len() > 1 && x.gates.numel() > 0 && x.hx.numel() > 0;
    filled && x.projection.is_none() && !all().any(|t| t.is_batched() || carries(t))
}

/// The hidden states of all steps, the last ones, and an LSTM's last cells.
pub(super) fn run(x: &Operands<'_>) -> Result<Vec<Tensor>> {
    let save = autograd::grad_enabled() && x.tensors().into_iter().any(autograd::requires_grad);
    let sizes = collected(x.sizes.iter().map(|&n| n as usize))?.into();
    let layer = Layer { cell: x.cell, sizes, reverse: x.reverse };
    let made = layer.forward(&x.tensors(), x.hx, save)?;
    Ok(made.into_iter().take(2 + usize::from(x.cell.has_cells())).collect())
}

/// A layer in one direction.
struct Layer {
    cell: RecurrentCell,
    sizes: Arc<[usize]>,
    reverse: bool,
}

/// A step: where its rows begin and how many there are; how many follow a row of the step before, which begins at `before`.
struct Step {
    begin: usize,
    rows: usize,
    follows: usize,
    before: usize,
}

impl Layer {
    fn rows(&self) -> usize {
        self.sizes.iter().sum()
    }

    /// The steps in the order in which they are computed.
    fn steps(&self) -> Result<Vec<Step>> {
        let mut begin = 0;
        let mut made: Vec<Step> = collected(self.sizes.iter().enumerate().map(|(t, &rows)| {
            let (follows, before) = match (self.reverse, t) {
                (false, 0) => (0, 0),
                (false, _) => (rows, begin - self.sizes[t - 1]),
                (true, _) => (self.sizes.get(t + 1).copied().unwrap_or(0), begin + rows),
            };
            begin += rows;
            Step { begin: begin - rows, rows, follows, before }
        }))?;
        if self.reverse {
            made.reverse();
        }
        Ok(made)
    }

    fn split<'a>(&self, inputs: &'a [Tensor]) -> Result<Inputs<'a>> {
        let cells = usize::from(self.cell.has_cells());
        match inputs {
            [gates, hx, rest @ ..] if rest.len() > cells => {
                Ok(Inputs { gates, hx, cx: rest[..cells].first(), w_hh: &rest[cells], b_hh: rest.get(cells + 1) })
            }
            _ => Err(Error::runtime("recurrent", "takes more tensors than it was given")),
        }
    }

    /// All results of the steps. `hx` is among the inputs.
    fn forward(&self, inputs: &[&Tensor], hx: &Tensor, save: bool) -> Result<Results<Tensor>> {
        let Layer { cell, ref sizes, reverse } = *self;
        self.apply(RecurrentOp::Forward { cell, sizes: Arc::clone(sizes), reverse, save }, inputs, hx)
    }

    fn apply(&self, op: RecurrentOp, inputs: &[&Tensor], hx: &Tensor) -> Result<Results<Tensor>> {
        let metas = op.results(hx.shape()[0], hx.shape()[1], hx.dtype());
        dispatch::apply_multi(Prim::Recurrent(op), inputs, &metas)
    }

    /// The gradients of the inputs, from those of the results and what was saved of them: the hidden states first.
    fn gradient(&self, inputs: &[Tensor], saved: &[Tensor], grads: &[Option<Tensor>], needs: &[bool]) -> Result<Grads> {
        let x = self.split(inputs)?;
        let (rows, hidden) = (self.rows(), x.hx.shape()[1]);
        let zeros = |shape: &[usize]| Tensor::full_of(shape, crate::Scalar::ZERO, x.gates.dtype(), x.gates.device());
        let given = |i: usize, shape: &[usize]| grads.get(i).cloned().flatten().map_or_else(|| zeros(shape), Ok);
        let each = given(0, &[rows, hidden])?;
        let last = given(1, x.hx.shape())?;
        let last_cells = x.cx.map(|cx| given(2, cx.shape())).transpose()?;
        let all = [Some(&each), Some(&last), last_cells.as_ref()].into_iter().flatten().chain(saved);
        let all: Vec<&Tensor> = all.chain([x.hx]).chain(x.cx).chain([x.w_hh]).collect();
        let Layer { cell, ref sizes, reverse } = *self;
        let op = RecurrentOp::Gradient { cell, sizes: Arc::clone(sizes), reverse };
        let mut made = self.apply(op, &all, x.hx)?.into_iter();
        let lacking = || Error::runtime("recurrent", "a gradient is missing");
        let (sums, of_hx) = made.next().zip(made.next()).ok_or_else(lacking)?;
        let states = saved.first().ok_or_else(lacking)?;
        let columns = |from: usize, count: usize| sums.narrow(1, (from * hidden) as i64, (count * hidden) as i64);
        // Of `W_hh h + b_hh`, which are the gates' sums but for a GRU's n.
        let inner = || match cell {
            RecurrentCell::Gru => super::index::cat(&[columns(0, 2)?, columns(3, 1)?], 1),
            RecurrentCell::Tanh | RecurrentCell::Relu | RecurrentCell::Lstm => Ok(sums.clone()),
        };
        let need = |i: usize| needs.get(i).copied().unwrap_or(false);
        let weight = 2 + usize::from(cell.has_cells());
        let mut grads = Grads::new();
        grads.push(need(0).then(|| columns(0, cell.gates())).transpose()?);
        grads.push(need(1).then_some(of_hx));
        grads.extend(made.next().map(|of_cx| need(2).then_some(of_cx)));
        let of_weight = || inner()?.transpose(0, 1)?.matmul(&self.before(states, x.hx)?);
        grads.push(need(weight).then(of_weight).transpose()?);
        if x.b_hh.is_some() {
            grads.push(need(weight + 1).then(|| inner()?.sum(Some(&[0]), false, None)).transpose()?);
        }
        Ok(grads)
    }

    /// The hidden state before each row.
    fn before(&self, all: &Tensor, first: &Tensor) -> Result<Tensor> {
        let mut pieces = Vec::new();
        let mut steps = self.steps()?;
        steps.sort_by_key(|step| step.begin);
        for step in steps {
            if step.follows > 0 {
                pieces.push((step.before, step.before + step.follows));
            }
            if step.follows < step.rows {
                // First states count from beyond all rows.
                pieces.push((self.rows() + step.follows, self.rows() + step.rows));
            }
        }
        // Rows that are next to one another are one piece.
        let mut joined: Vec<(usize, usize)> = Vec::new();
        for (from, to) in pieces {
            match joined.last_mut() {
                Some(last) if last.1 == from && from != self.rows() => last.1 = to,
                _ => joined.push((from, to)),
            }
        }
        let part = |&(from, to): &(usize, usize)| match from.checked_sub(self.rows()) {
            Some(of_first) => first.narrow(0, of_first as i64, (to - from) as i64),
            None => all.narrow(0, from as i64, (to - from) as i64),
        };
        super::index::cat(&joined.iter().map(part).collect::<Result<Vec<_>>>()?, 0)
    }

    /// The gradients of the composition, recorded for another walk.
    fn gradient_of_parts(&self, inputs: &[Tensor], grads: &[Option<Tensor>], needs: &[bool]) -> Result<Grads> {
        // Tensors of their own: an input that leads to another is none of the layer's business.
        let apart: Vec<Tensor> = inputs.iter().map(|t| t * 1.0).collect::<Result<_>>()?;
        let x = self.split(&apart)?;
        let sizes: Vec<isize> = collected(self.sizes.iter().map(|&n| n as isize))?;
        let operands = Operands {
            cell: self.cell,
            gates: x.gates,
            hx: x.hx,
            cx: x.cx,
            w_hh: x.w_hh,
            b_hh: x.b_hh,
            projection: None,
            sizes: &sizes,
            reverse: self.reverse,
        };
        let made = super::rnn::by_parts(&operands)?;
        let given: Vec<(Tensor, Option<Tensor>)> =
            made.into_iter().zip(grads.iter().cloned()).filter(|(_, g)| g.is_some()).collect();
        let (outputs, grads): (Vec<Tensor>, Vec<Option<Tensor>>) = given.into_iter().unzip();
        let wanted: Vec<Tensor> = apart.iter().zip(needs).filter(|(_, n)| **n).map(|(t, _)| t.clone()).collect();
        let keep = BackwardOptions { create_graph: true, ..BackwardOptions::default() };
        let mut found = grad_apart(&outputs, &wanted, &grads, keep)?.into_iter();
        Ok(needs.iter().map(|&need| if need { found.next().flatten() } else { None }).collect())
    }
}

/// What a layer's primitive reads.
#[derive(Clone, Copy)]
struct Inputs<'a> {
    gates: &'a Tensor,
    hx: &'a Tensor,
    cx: Option<&'a Tensor>,
    w_hh: &'a Tensor,
    b_hh: Option<&'a Tensor>,
}

/// The gradient of a layer: by its primitive, or that of the composition where it is recorded itself.
fn layer_gradient(c: &Ctx<'_>, cell: RecurrentCell, sizes: &Arc<[usize]>, reverse: bool) -> Result<Grads> {
    let layer = Layer { cell, sizes: Arc::clone(sizes), reverse };
    let inputs = c.rest(0)?;
    let needs: Vec<bool> = (0..c.len()).map(|i| c.needs(i)).collect();
    let results = 2 + usize::from(cell.has_cells());
    if autograd::grad_enabled() {
        let grads: Vec<Option<Tensor>> = (0..results).map(|nr| c.grad(nr).cloned()).collect();
        return layer.gradient_of_parts(&inputs, &grads, &needs);
    }
    let saved = 1 + usize::from(cell.has_cells()) + usize::from(cell.activations() > 0);
    let saved = (results..results + saved).map(|nr| c.result(nr)).collect::<Result<Vec<Tensor>>>()?;
    layer.gradient(&inputs, &saved, c.grads, &needs)
}

/// The layer that a row's arguments name, whose sizes fit together.
#[allow(clippy::too_many_arguments)]
fn layer(
    op: &'static str,
    dtypes: &[&Tensor],
    hx: &Tensor,
    cx: Option<&Tensor>,
    w_hh: &Tensor,
    sizes: &[isize],
    cell: &str,
    reverse: bool,
) -> Result<Layer> {
    let Some(cell) = RecurrentCell::named(cell) else {
        return Err(Error::value(op, format!("expected the cell tanh, relu, lstm or gru, got {cell}")));
    };
    let first = dtypes.first().map_or(w_hh, |t| t);
    schema::recurrent.check(first.dtype())?;
    if let Some(odd) = dtypes.iter().chain([&w_hh, &hx]).find(|t| t.dtype() != first.dtype()) {
        return Err(Error::dtype(op, "all operands must have the same dtype", &[first.dtype(), odd.dtype()]));
    }
    let ordered = sizes.windows(2).all(|w| w[1] <= w[0]) && sizes.iter().all(|&n| n > 0) && !sizes.is_empty();
    let states = hx.ndim() == 2 && ordered && hx.shape()[0] == sizes[0] as usize && hx.numel() > 0;
    let fits = states
        && w_hh.shape() == [cell.gates() * hx.shape()[1], hx.shape()[1]]
        && cx.is_some() == cell.has_cells()
        && cx.is_none_or(|cx| cx.shape() == hx.shape());
    if !fits {
        let why = format!("states, weights and falling batch sizes {sizes:?} do not belong to one layer");
        return Err(Error::shape(op, why, &[hx.shape(), w_hh.shape()]));
    }
    Ok(Layer { cell, sizes: collected(sizes.iter().map(|&n| n as usize))?.into(), reverse })
}

#[allow(clippy::too_many_arguments)]
fn body(
    gates: &Tensor,
    hx: &Tensor,
    cx: Option<&Tensor>,
    w_hh: &Tensor,
    b_hh: Option<&Tensor>,
    sizes: &[isize],
    cell: &str,
    reverse: bool,
    save: bool,
) -> Result<Vec<Tensor>> {
    const OP: &str = "recurrent";
    let others: Vec<&Tensor> = [Some(gates), cx, b_hh].into_iter().flatten().collect();
    let layer = layer(OP, &others, hx, cx, w_hh, sizes, cell, reverse)?;
    let wide = w_hh.shape()[0];
    let takes_bias = b_hh.is_none_or(|b| layer.cell == RecurrentCell::Gru && b.shape() == [wide]);
    if gates.shape() != [layer.rows(), wide] || !takes_bias {
        let why = "expected gates of (rows, gates * hidden), and a bias for a GRU alone";
        return Err(Error::shape(OP, why, &[gates.shape(), w_hh.shape()]));
    }
    let inputs: Vec<&Tensor> = [Some(gates), Some(hx), cx, Some(w_hh), b_hh].into_iter().flatten().collect();
    layer.forward(&inputs, hx, save).map(|made| made.into_vec())
}

#[allow(clippy::too_many_arguments)]
fn gradient_body(
    grad: &Tensor,
    grad_h: &Tensor,
    grad_c: Option<&Tensor>,
    saved: &[Tensor],
    hx: &Tensor,
    cx: Option<&Tensor>,
    w_hh: &Tensor,
    sizes: &[isize],
    cell: &str,
    reverse: bool,
) -> Result<Vec<Tensor>> {
    const OP: &str = "recurrent_gradient";
    let others: Vec<&Tensor> =
        [Some(grad), Some(grad_h), grad_c, cx].into_iter().flatten().chain(saved.iter()).collect();
    let layer = layer(OP, &others, hx, cx, w_hh, sizes, cell, reverse)?;
    let (rows, hidden) = (layer.rows(), hx.shape()[1]);
    let forward = RecurrentOp::Forward { cell: layer.cell, sizes: Arc::clone(&layer.sizes), reverse, save: true };
    let kept = forward.results(hx.shape()[0], hidden, hx.dtype());
    let kept = kept.iter().skip(2 + usize::from(layer.cell.has_cells())).map(|kept| &kept.shape[..]);
    let fits = grad.shape() == [rows, hidden]
        && grad_h.shape() == hx.shape()
        && grad_c.map(Tensor::shape) == cx.map(Tensor::shape)
        && saved.iter().map(Tensor::shape).eq(kept);
    if !fits {
        let why = "gradients and saved states do not belong to the layer";
        return Err(Error::shape(OP, why, &[grad.shape(), grad_h.shape(), hx.shape()]));
    }
    let all = [Some(grad), Some(grad_h), grad_c].into_iter().flatten().chain(saved.iter());
    let all: Vec<&Tensor> = all.chain([hx]).chain(cx).chain([w_hh]).collect();
    let op = RecurrentOp::Gradient { cell: layer.cell, sizes: Arc::clone(&layer.sizes), reverse };
    layer.apply(op, &all, hx).map(|made| made.into_vec())
}
