//! Recurrent layers by kernels for whole sequences: one node of the graph for a layer and direction.
//!
//! The rows are in `nn.rs`, the kernels in `cpu/rnn_layer.rs` and `mlx/rnn_layer.rs`. The composition of plain ops in `rnn.rs` is the
//! reference, and what runs under `vmap`, with tangents, and where gradients of gradients are asked for. On a GPU one
//! launch computes short states of few sequences; else each step is a primitive of its own, so that nothing is joined but the
//! results.

use super::nn::{schema, NnOp, RecurrentCell};
use super::rnn::Operands;
use crate::autograd::{self, carries, custom, grad_apart, BackwardOptions, CustomNode, Record};
use crate::dispatch::{self, Meta, Prim};
use crate::fallible::collected;
use crate::{Device, Error, Result, Tensor};
use std::sync::Arc;

/// The hidden states of all steps, the last ones, and an LSTM's last cells.
pub(super) type States = Vec<Tensor>;

/// Are there kernels for these operands?
pub(super) fn takes(x: &Operands<'_>) -> bool {
    let all = || x.tensors().into_iter();
    // One step shows the ops that it is made of, as a cell.
    let filled = x.sizes.len() > 1 && x.gates.numel() > 0 && x.hx.numel() > 0;
    filled && x.projection.is_none() && !all().any(|t| t.is_batched() || carries(t))
}

/// Runs the layer's kernels and records them as one node.
pub(super) fn run(x: &Operands<'_>) -> Result<States> {
    let tensors: Vec<Tensor> = x.tensors().into_iter().cloned().collect();
    let save = autograd::grad_enabled() && tensors.iter().any(autograd::requires_grad);
    let layer =
        Layer { cell: x.cell, sizes: collected(x.sizes.iter().map(|&n| n as usize))?.into(), reverse: x.reverse };
    let (states, packed) = autograd::no_grad(|| layer.forward(&tensors, save))?;
    if save {
        let (each, count) = (packed.len(), tensors.len());
        let saved: Vec<Option<Tensor>> = tensors.iter().chain(&packed).cloned().map(Some).collect();
        let backward = move |node: &CustomNode, grads: &[Option<Tensor>]| {
            let saved = node.saved()?;
            let mut held = saved.into_iter().flatten();
            let inputs: Vec<Tensor> = held.by_ref().take(count).collect();
            let packed: Vec<Tensor> = held.collect();
            if inputs.len() != count || packed.len() != each {
                return Err(Error::runtime("recurrent", "its saved tensors are gone"));
            }
            let needs: Vec<bool> = (0..count).map(|i| node.needs(i)).collect();
            match autograd::grad_enabled() {
                true => layer.gradient_of_parts(&inputs, grads, &needs),
                false => layer.gradient(&inputs, &packed, grads, &needs),
            }
            .map(|made| made.into_iter().collect())
        };
        custom(
            &states,
            Record {
                // PyTorch shows how it joins the states of all steps.
                name: "CatBackward0",
                inputs: &tensors,
                non_differentiable: &[],
                saved: &saved,
                materialize: false,
                backward: Arc::new(backward),
            },
        )?;
    }
    Ok(states)
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

    /// Is each step a primitive of its own, and not the whole sequence? `first` has the first states.
    fn by_steps(&self, x: &Tensor, first: &Tensor) -> bool {
        let (batch, hidden) = (first.shape()[0], first.shape()[1]);
        x.device() == Device::Gpu
            && !dispatch::memory::gpu_runs_host_kernels(x.dtype())
            && !dispatch::memory::gpu_runs_whole_sequences(self.cell, x.dtype(), [self.rows(), batch, hidden])
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

    fn forward_prim(&self, x: &Inputs<'_>, save: bool) -> Result<Tensor> {
        let hidden = x.hx.shape()[1];
        let cell = self.cell;
        let blocks = 1 + usize::from(cell.has_cells()) + if save { cell.activations() } else { 0 };
        let prim = Prim::Nn(NnOp::Recurrent { cell, sizes: Arc::clone(&self.sizes), reverse: self.reverse, save });
        let inputs: Vec<&Tensor> =
            [Some(x.gates), Some(x.hx), x.cx, Some(x.w_hh), x.b_hh].into_iter().flatten().collect();
        dispatch::apply1(prim, &inputs, Meta::new(&[self.rows() * blocks * hidden], x.gates.dtype()))
    }

    /// The results, and what the gradient reads: what the primitive gave, or each step's.
    fn forward(&self, inputs: &[Tensor], save: bool) -> Result<(States, Vec<Tensor>)> {
        let x = self.split(inputs)?;
        if self.by_steps(x.gates, x.hx) {
            return self.forward_by_steps(&x, save);
        }
        let (rows, hidden) = (self.rows(), x.hx.shape()[1]);
        let packed = self.forward_prim(&x, save)?;
        let part = |i: usize| block(&packed, i * rows * hidden, [rows, hidden]);
        let all = part(0)?;
        let mut made = vec![all.copy()?, self.last(&all)?];
        if self.cell.has_cells() {
            made.push(self.last(&part(1)?)?);
        }
        Ok((made, if save { vec![packed] } else { Vec::new() }))
    }

    /// The states after each sequence's last step, of those of all steps.
    fn last(&self, all: &Tensor) -> Result<Tensor> {
        let narrow = |from: usize, rows: usize| all.narrow(0, from as i64, rows as i64);
        if self.reverse {
            return narrow(0, self.sizes[0])?.copy();
        }
        let mut end = self.rows();
        let mut pieces = Vec::new();
        let mut done = 0;
        for &rows in self.sizes.iter().rev() {
            if rows > done {
                pieces.push(narrow(end - rows + done, rows - done)?);
                done = rows;
            }
            end -= rows;
        }
        match pieces.as_slice() {
            [one] => one.copy(),
            several => super::index::cat(several, 0),
        }
    }

    fn forward_by_steps(&self, x: &Inputs<'_>, save: bool) -> Result<(States, Vec<Tensor>)> {
        let hidden = x.hx.shape()[1];
        let mut states: Vec<(usize, Tensor)> = Vec::new();
        let mut cells: Vec<(usize, Tensor)> = Vec::new();
        let mut kept = Vec::new();
        let steps = self.steps()?;
        // As many rows as sequences: those at work are the first ones.
        let (mut h, mut c) = (x.hx.clone(), x.cx.cloned());
        for step in &steps {
            let now = |t: &Tensor| first_rows(t, step.rows);
            let one = Layer { cell: self.cell, sizes: Arc::from([step.rows]), reverse: false };
            let gates = x.gates.narrow(0, step.begin as i64, step.rows as i64)?;
            let (hx, cx) = (now(&h)?, c.as_ref().map(now).transpose()?);
            let given = Inputs { gates: &gates, hx: &hx, cx: cx.as_ref(), ..*x };
            let packed = one.forward_prim(&given, save)?;
            let state = block(&packed, 0, [step.rows, hidden])?;
            h = with_rest(&state, &h)?;
            states.push((step.begin, state));
            if let Some(c) = &mut c {
                let cell = block(&packed, step.rows * hidden, [step.rows, hidden])?;
                *c = with_rest(&cell, c)?;
                cells.push((step.begin, cell));
            }
            if save {
                kept.push(packed);
            }
        }
        states.sort_by_key(|(begin, _)| *begin);
        let ordered: Vec<Tensor> = states.into_iter().map(|(_, state)| state).collect();
        let mut made = vec![super::index::cat(&ordered, 0)?, h.copy()?];
        if let Some(c) = c {
            made.push(c.copy()?);
        }
        Ok((made, kept))
    }

    /// The gradients of the inputs.
    fn gradient(
        &self,
        inputs: &[Tensor],
        packed: &[Tensor],
        grads: &[Option<Tensor>],
        needs: &[bool],
    ) -> Result<Vec<Option<Tensor>>> {
        let x = self.split(inputs)?;
        let (rows, hidden) = (self.rows(), x.hx.shape()[1]);
        let zeros = |shape: &[usize]| Tensor::full_of(shape, crate::Scalar::ZERO, x.gates.dtype(), x.gates.device());
        let given = |i: usize, shape: &[usize]| grads.get(i).cloned().flatten().map_or_else(|| zeros(shape), Ok);
        let each = given(0, &[rows, hidden])?;
        let last = given(1, x.hx.shape())?;
        let last_cells = x.cx.map(|cx| given(2, cx.shape())).transpose()?;
        let (sums, of_hx, of_cx, states) = match packed {
            [packed] if !self.by_steps(x.gates, x.hx) => {
                let (sums, hx, cx) = self.gradient_prim(&x, packed, &each, &last, last_cells.as_ref(), true)?;
                (sums, hx, cx, block(packed, 0, [rows, hidden])?)
            }
            _ => self.gradient_by_steps(&x, packed, &each, &last, last_cells)?,
        };
        let columns = |from: usize, count: usize| sums.narrow(1, (from * hidden) as i64, (count * hidden) as i64);
        let gates = self.cell.gates();
        // Of `W_hh h + b_hh`, which are the gates' sums but for a GRU's n.
        let inner = || match self.cell {
            RecurrentCell::Gru => super::index::cat(&[columns(0, 2)?, columns(3, 1)?], 1),
            RecurrentCell::Tanh | RecurrentCell::Relu | RecurrentCell::Lstm => Ok(sums.clone()),
        };
        let need = |i: usize| needs.get(i).copied().unwrap_or(false);
        let weight = 2 + usize::from(self.cell.has_cells());
        let mut made = vec![need(0).then(|| columns(0, gates)).transpose()?, need(1).then_some(of_hx)];
        made.extend(of_cx.map(|of_cx| need(2).then_some(of_cx)));
        let of_weight = || inner()?.transpose(0, 1)?.matmul(&self.before(&states, x.hx)?);
        made.push(need(weight).then(of_weight).transpose()?);
        if x.b_hh.is_some() {
            made.push(need(weight + 1).then(|| inner()?.sum(Some(&[0]), false, None)).transpose()?);
        }
        Ok(made)
    }

    /// The primitive's three results: of the gates' sums (rows, all gradients), of `hx` and of `cx`.
    fn gradient_prim(
        &self,
        x: &Inputs<'_>,
        packed: &Tensor,
        each: &Tensor,
        last: &Tensor,
        last_cells: Option<&Tensor>,
        through: bool,
    ) -> Result<(Tensor, Tensor, Option<Tensor>)> {
        let (rows, batch, hidden) = (self.rows(), x.hx.shape()[0], x.hx.shape()[1]);
        let cell = self.cell;
        let sizes = Arc::clone(&self.sizes);
        let prim = Prim::Nn(NnOp::RecurrentGradient { cell, sizes, reverse: self.reverse, through });
        let inputs = [Some(each), Some(last), last_cells, Some(packed), Some(x.hx), x.cx, Some(x.w_hh)];
        let inputs: Vec<&Tensor> = inputs.into_iter().flatten().collect();
        let wide = cell.gate_gradients() * hidden;
        let (of_sums, of_state) = (rows * wide, batch * hidden);
        let len = of_sums + of_state * (1 + usize::from(cell.has_cells()));
        let made = dispatch::apply1(prim, &inputs, Meta::new(&[len], x.gates.dtype()))?;
        let of_cx = || block(&made, of_sums + of_state, [batch, hidden]);
        Ok((
            block(&made, 0, [rows, wide])?,
            block(&made, of_sums, [batch, hidden])?,
            cell.has_cells().then(of_cx).transpose()?,
        ))
    }

    /// As [`Layer::gradient_prim`] gives them, and the hidden states of all steps.
    #[allow(clippy::type_complexity)]
    fn gradient_by_steps(
        &self,
        x: &Inputs<'_>,
        packed: &[Tensor],
        each: &Tensor,
        last: &Tensor,
        last_cells: Option<Tensor>,
    ) -> Result<(Tensor, Tensor, Option<Tensor>, Tensor)> {
        let hidden = x.hx.shape()[1];
        let (mut dh, mut dc) = (last.clone(), last_cells);
        let steps = self.steps()?;
        if steps.len() != packed.len() {
            return Err(Error::runtime("recurrent", "a saved tensor of each step is needed"));
        }
        let states: Vec<Tensor> = steps
            .iter()
            .zip(packed)
            .map(|(step, packed)| block(packed, 0, [step.rows, hidden]))
            .collect::<Result<_>>()?;
        let cells: Vec<Option<Tensor>> = steps
            .iter()
            .zip(packed)
            .map(|(step, packed)| x.cx.map(|_| block(packed, step.rows * hidden, [step.rows, hidden])).transpose())
            .collect::<Result<_>>()?;
        let mut sums: Vec<(usize, Tensor)> = Vec::new();
        for (i, step) in steps.iter().enumerate().rev() {
            // What the step started from: the step before, and first states where sequences begin.
            let from = |all: &dyn Fn(usize) -> Option<Tensor>, first: &Tensor| match (i.checked_sub(1), step.follows) {
                (Some(before), follows) if follows > 0 => {
                    let was = all(before).ok_or_else(|| Error::runtime("recurrent", "a step has no cells"))?;
                    with_rest(&first_rows(&was, follows)?, &first_rows(first, step.rows)?)
                }
                _ => first_rows(first, step.rows),
            };
            let hx = from(&|i| states.get(i).cloned(), x.hx)?;
            let cx = x.cx.map(|first| from(&|i| cells.get(i).cloned().flatten(), first)).transpose()?;
            let one = Layer { cell: self.cell, sizes: Arc::from([step.rows]), reverse: false };
            let grad = each.narrow(0, step.begin as i64, step.rows as i64)?;
            let grad_h = first_rows(&dh, step.rows)?;
            let grad_c = dc.as_ref().map(|c| first_rows(c, step.rows)).transpose()?;
            let given = Inputs { gates: x.gates, hx: &hx, cx: cx.as_ref(), w_hh: x.w_hh, b_hh: None };
            let (made, kept, of_c) = one.gradient_prim(&given, &packed[i], &grad, &grad_h, grad_c.as_ref(), false)?;
            let gates = (self.cell.gates() * hidden) as i64;
            let back = match self.cell {
                RecurrentCell::Gru => {
                    let parts = [made.narrow(1, 0, 2 * hidden as i64)?, made.narrow(1, gates, hidden as i64)?];
                    (super::index::cat(&parts, 1)?.matmul(x.w_hh)? + &kept)?
                }
                RecurrentCell::Tanh | RecurrentCell::Relu | RecurrentCell::Lstm => made.matmul(x.w_hh)?,
            };
            dh = with_rest(&back, &dh)?;
            dc = match (of_c, dc) {
                (Some(new), Some(old)) => Some(with_rest(&new, &old)?),
                (_, old) => old,
            };
            sums.push((step.begin, made));
        }
        let joined = |mut pieces: Vec<(usize, Tensor)>| {
            pieces.sort_by_key(|(begin, _)| *begin);
            super::index::cat(&pieces.into_iter().map(|(_, t)| t).collect::<Vec<_>>(), 0)
        };
        let states = steps.iter().map(|step| step.begin).zip(states).collect();
        Ok((joined(sums)?, dh, dc, joined(states)?))
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
    fn gradient_of_parts(
        &self,
        inputs: &[Tensor],
        grads: &[Option<Tensor>],
        needs: &[bool],
    ) -> Result<Vec<Option<Tensor>>> {
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

/// Rows from element `from` on.
fn block(packed: &Tensor, from: usize, shape: [usize; 2]) -> Result<Tensor> {
    packed.narrow(0, from as i64, (shape[0] * shape[1]) as i64)?.view(&shape.map(|n| n as isize))
}

fn first_rows(t: &Tensor, rows: usize) -> Result<Tensor> {
    if t.shape()[0] == rows {
        Ok(t.clone())
    } else {
        t.narrow(0, 0, rows as i64)
    }
}

/// `rows`, and after them those of `whole` that it lacks.
fn with_rest(rows: &Tensor, whole: &Tensor) -> Result<Tensor> {
    let (have, all) = (rows.shape()[0] as i64, whole.shape()[0] as i64);
    match all - have {
        0 => Ok(rows.clone()),
        rest => super::index::cat(&[rows.clone(), whole.narrow(0, have, rest)?], 0),
    }
}

// ---- the rows --------------------------------------------------------------------------------------------------------

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
pub(super) fn body(
    gates: &Tensor,
    hx: &Tensor,
    cx: Option<&Tensor>,
    w_hh: &Tensor,
    b_hh: Option<&Tensor>,
    sizes: &[isize],
    cell: &str,
    reverse: bool,
    save: bool,
) -> Result<Tensor> {
    const OP: &str = "recurrent";
    let others: Vec<&Tensor> = [Some(gates), cx, b_hh].into_iter().flatten().collect();
    let layer = layer(OP, &others, hx, cx, w_hh, sizes, cell, reverse)?;
    let wide = w_hh.shape()[0];
    let takes_bias = b_hh.is_none_or(|b| layer.cell == RecurrentCell::Gru && b.shape() == [wide]);
    if gates.shape() != [layer.rows(), wide] || !takes_bias {
        let why = "expected gates of (rows, gates * hidden), and a bias for a GRU alone";
        return Err(Error::shape(OP, why, &[gates.shape(), w_hh.shape()]));
    }
    layer.forward_prim(&Inputs { gates, hx, cx, w_hh, b_hh }, save)
}

#[allow(clippy::too_many_arguments)]
pub(super) fn gradient_body(
    grad: &Tensor,
    grad_h: &Tensor,
    grad_c: Option<&Tensor>,
    states: &Tensor,
    hx: &Tensor,
    cx: Option<&Tensor>,
    w_hh: &Tensor,
    sizes: &[isize],
    cell: &str,
    reverse: bool,
    through: bool,
) -> Result<Tensor> {
    const OP: &str = "recurrent_gradient";
    let others: Vec<&Tensor> = [Some(grad), Some(grad_h), grad_c, Some(states), cx].into_iter().flatten().collect();
    let layer = layer(OP, &others, hx, cx, w_hh, sizes, cell, reverse)?;
    let (rows, hidden) = (layer.rows(), hx.shape()[1]);
    let blocks = 1 + usize::from(layer.cell.has_cells()) + layer.cell.activations();
    let fits = grad.shape() == [rows, hidden]
        && grad_h.shape() == hx.shape()
        && grad_c.map(Tensor::shape) == cx.map(Tensor::shape)
        && states.shape() == [rows * blocks * hidden]
        && (through || sizes.len() == 1);
    if !fits {
        let why = "gradients and saved states do not belong to the layer";
        return Err(Error::shape(OP, why, &[grad.shape(), grad_h.shape(), states.shape(), hx.shape()]));
    }
    let x = Inputs { gates: grad, hx, cx, w_hh, b_hh: None };
    let wide = layer.cell.gate_gradients() * hidden;
    let len = rows * wide + hx.numel() * (1 + usize::from(layer.cell.has_cells()));
    let (sums, of_hx, of_cx) = layer.gradient_prim(&x, states, grad, grad_h, grad_c, through)?;
    let flat = |t: Tensor| t.reshape(&[-1]);
    let mut parts = vec![flat(sums)?, flat(of_hx)?];
    parts.extend(of_cx.map(flat).transpose()?);
    let made = super::index::cat(&parts, 0)?;
    debug_assert_eq!(made.numel(), len);
    Ok(made)
}
