//! Recurrent layers: a product and one kernel of our own for each step, or the primitives that it stands for.
//!
//! Depends on `custom_kernel`. Invariant: as `cpu/rnn_layer.rs`, whose results these are; MLX's CPU stream runs that one.

use super::array::GpuArray;
use super::convert::{self, int, ints};
use super::custom_kernel::{self, Text, GROUP};
use super::kernel_error::Made;
use super::kernel_name::KernelName;
use super::value::Value;
use super::{host_kernel, rnn_sequence};
use crate::Error;
use lucid_cpu::{CpuArray, CpuBackend};
use lucid_ir::backend::{Backend, Results};
use lucid_ir::ops::recurrent::{RecurrentCell, RecurrentOp};
use lucid_ir::{DType, Meta};
use mlx_ffi::{ops, Array, Dtype};

/// A layer in one direction.
pub(super) struct Layer<'a> {
    pub cell: RecurrentCell,
    pub sizes: &'a [usize],
    pub reverse: bool,
}

/// A step's rows, and how many of them follow a row of the step computed before it.
struct Step {
    begin: i32,
    rows: i32,
    follows: i32,
}

impl Layer<'_> {
    /// Is there a kernel for all of the steps? `all` has their rows, `first` the sequences' first states.
    fn in_one_launch(&self, all: &Array, first: &Array) -> bool {
        let (&[rows, _], &[batch, hidden]) = (all.shape(), first.shape()) else { return false };
        let float = all.dtype() == Dtype::Float32;
        let [hidden, batch, rows] = [hidden, batch, rows].map(|n| n as usize);
        self.sizes.len() > 1 && float && rnn_sequence::takes(self.cell, DType::F32, hidden, batch, rows)
    }

    fn steps(&self) -> Made<Vec<Step>> {
        let mut begin = 0;
        let mut made = Vec::new();
        for (t, &rows) in self.sizes.iter().enumerate() {
            let follows = match (self.reverse, t) {
                (false, 0) => 0,
                (false, _) => rows,
                (true, _) => self.sizes.get(t + 1).copied().unwrap_or(0),
            };
            made.push(Step { begin: int(begin)?, rows: int(rows)?, follows: int(follows)? });
            begin += rows;
        }
        if self.reverse {
            made.reverse();
        }
        Ok(made)
    }
}

/// Rows `from` to `to` of a matrix.
fn rows(a: &Array, from: i32, to: i32) -> Made<Array> {
    match *a.shape() {
        [all, _] if from == 0 && to == all => Ok(a.clone()),
        [_, columns] => Ok(ops::slice(a, &[from, 0], &[to, columns], &[1, 1])?),
        _ => Err(Error::backend("recurrent", "expected a matrix").into()),
    }
}

/// Columns of one block of `hidden` after the other, from block `from` to block `to`.
fn columns(a: &Array, hidden: i32, from: i32, to: i32) -> Made<Array> {
    let &[all, _] = a.shape() else { return Err(Error::backend("recurrent", "expected a matrix").into()) };
    Ok(ops::slice(a, &[0, from * hidden], &[all, to * hidden], &[1, 1])?)
}

/// Arrays in row-major order; refused where there are too few.
fn operands(inputs: &[&GpuArray], least: usize) -> Made<Vec<Array>> {
    if inputs.len() < least {
        return Err(Error::runtime("recurrent", format!("does not take {} arrays", inputs.len())).into());
    }
    inputs.iter().map(|x| Ok(x.value()?.logical()?.into_owned())).collect()
}

/// May a kernel of our own compute a step over these elements?
fn writes(a: &Array) -> bool {
    a.dtype() == Dtype::Float32 && (1..=i32::MAX as usize / 8).contains(&a.size()) && custom_kernel::room().is_some()
}

fn strings(names: &[&str]) -> Vec<String> {
    names.iter().map(|n| n.to_string()).collect()
}

/// The first `rows` of `now` are there; those of `whole` follow.
fn with_rest(now: &Array, whole: &Array) -> Made<Array> {
    let (have, all) = (now.shape()[0], whole.shape()[0]);
    match have == all {
        true => Ok(now.clone()),
        false => Ok(ops::concatenate_axis(&[now, &rows(whole, have, all)?], 0)?),
    }
}

/// The results of the `recurrent` family.
pub(super) fn recurrent(op: &RecurrentOp, inputs: &[&GpuArray], out: &[Meta]) -> Made<Results<GpuArray>> {
    let (RecurrentOp::Forward { cell, sizes, reverse, .. } | RecurrentOp::Gradient { cell, sizes, reverse }) = op;
    let layer = Layer { cell: *cell, sizes, reverse: *reverse };
    let made = if out.first().is_some_and(|out| host_kernel::takes(out.dtype)) {
        by_host(op, inputs, out)?
    } else {
        let x = operands(inputs, op.before_states() + 2 + usize::from(cell.has_cells()))?;
        match op {
            RecurrentOp::Forward { save, .. } => forward(&layer, *save, &x)?,
            RecurrentOp::Gradient { .. } => backward(&layer, &x)?,
        }
    };
    if made.len() != out.len() {
        return Err(Error::runtime(op.name(), format!("made {} results, not {}", made.len(), out.len())).into());
    }
    made.into_iter().zip(out).map(|(made, out)| GpuArray::new(Value::plain(made), &out.shape, out.dtype)).collect()
}

/// The CPU device's kernel as a node of MLX's graph.
fn by_host(op: &RecurrentOp, inputs: &[&GpuArray], out: &[Meta]) -> Made<Vec<Array>> {
    let x = operands(inputs, 0)?;
    let refs: Vec<&Array> = x.iter().collect();
    let shapes = out.iter().map(|out| ints(&out.shape)).collect::<Made<Vec<_>>>()?;
    let dtypes = out.iter().map(|out| convert::dtype(out.dtype)).collect::<Made<Vec<_>>>()?;
    let to: Vec<(&[i32], Dtype)> = shapes.iter().map(|shape| &**shape).zip(dtypes).collect();
    let (op, out) = (op.clone(), out.to_vec());
    let kernel = move |x: &[&CpuArray]| CpuBackend::recurrent(&op, x, &out).map(|made| made.into_vec());
    host_kernel::nodes(c"LucidRecurrent", &refs, inputs.iter().map(|x| x.element()).collect(), &to, kernel)
}

// ---- forward ---------------------------------------------------------------------------------------------------------

/// Hidden states of all steps, the last ones, and last cells; with `save` hidden states, cells and activations of all steps.
fn forward(layer: &Layer<'_>, save: bool, x: &[Array]) -> Made<Vec<Array>> {
    let cells = usize::from(layer.cell.has_cells());
    let (gates, first, weight, bias) = (&x[0], &x[1], &x[2 + cells], x.get(3 + cells));
    let (last, parts) = if layer.in_one_launch(gates, first) {
        rnn_sequence::forward(layer, save, x)?
    } else {
        let transposed = ops::transpose_axes(weight, &[1, 0])?;
        // The hidden states, and an LSTM's cells: of as many rows as sequences, of which the first ones are at work.
        let mut last: Vec<Array> = x[1..2 + cells].to_vec();
        let mut made = Vec::new();
        for step in &layer.steps()? {
            let now = rows(gates, step.begin, step.begin + step.rows)?;
            let old = last.iter().map(|all| rows(all, 0, step.rows)).collect::<Made<Vec<_>>>()?;
            let mut parts = one_step(layer.cell, save, &now, &old[0], old.get(1), &transposed, bias)?;
            for (all, new) in last.iter_mut().zip(&parts) {
                *all = with_rest(new, all)?;
            }
            if !save {
                parts.truncate(1);
            }
            made.push((step.begin, parts));
        }
        (last, joined(made)?)
    };
    let states = parts.first().cloned();
    Ok(states.into_iter().chain(last).chain(if save { parts } else { Vec::new() }).collect())
}

/// Each step's parts in the order of rows.
fn joined(mut made: Vec<(i32, Vec<Array>)>) -> Made<Vec<Array>> {
    if let [(_, only)] = made.as_slice() {
        return Ok(only.clone());
    }
    made.sort_by_key(|(begin, _)| *begin);
    let count = made.first().map_or(0, |(_, parts)| parts.len());
    let all = |k: usize| made.iter().filter_map(|(_, parts)| parts.get(k)).collect::<Vec<&Array>>();
    (0..count).map(|k| Ok(ops::concatenate_axis(&all(k), 0)?)).collect()
}

/// The hidden states, an LSTM's cells, and the activations, which are made where they are saved.
fn one_step(
    cell: RecurrentCell,
    save: bool,
    gates: &Array,
    h: &Array,
    c: Option<&Array>,
    transposed: &Array,
    bias: Option<&Array>,
) -> Made<Vec<Array>> {
    let hidden = h.shape()[1];
    if cell == RecurrentCell::Gru {
        let inner = match bias {
            Some(bias) => ops::add(&ops::matmul(h, transposed)?, bias)?,
            None => ops::matmul(h, transposed)?,
        };
        if writes(&inner) {
            return launch(cell, save, &[gates, &inner, h], h);
        }
        let both = ops::add(&columns(gates, hidden, 0, 2)?, &columns(&inner, hidden, 0, 2)?)?;
        let both = ops::sigmoid(&both)?;
        let (r, z) = (columns(&both, hidden, 0, 1)?, columns(&both, hidden, 1, 2)?);
        let m = columns(&inner, hidden, 2, 3)?;
        let n = ops::tanh(&ops::add(&columns(gates, hidden, 2, 3)?, &ops::multiply(&r, &m)?)?)?;
        let mut made = vec![ops::add(&n, &ops::multiply(&z, &ops::subtract(h, &n)?)?)?];
        if save {
            made.push(ops::concatenate_axis(&[&r, &z, &n, &m], 1)?);
        }
        return Ok(made);
    }
    let sums = ops::addmm(gates, h, transposed)?;
    let c = match (cell, c) {
        (RecurrentCell::Tanh, _) => return Ok(vec![ops::tanh(&sums)?]),
        (RecurrentCell::Relu, _) => {
            let zero = ops::zeros(&[], sums.dtype())?;
            return Ok(vec![ops::maximum(&sums, &zero)?]);
        }
        (RecurrentCell::Lstm | RecurrentCell::Gru, Some(c)) => c,
        (RecurrentCell::Lstm | RecurrentCell::Gru, None) => {
            return Err(Error::runtime("recurrent", "expected cells").into())
        }
    };
    if writes(&sums) {
        return launch(cell, save, &[&sums, c], h);
    }
    let (i_f, o) = (ops::sigmoid(&columns(&sums, hidden, 0, 2)?)?, ops::sigmoid(&columns(&sums, hidden, 3, 4)?)?);
    let g = ops::tanh(&columns(&sums, hidden, 2, 3)?)?;
    let (i, f) = (columns(&i_f, hidden, 0, 1)?, columns(&i_f, hidden, 1, 2)?);
    let new = ops::add(&ops::multiply(&f, c)?, &ops::multiply(&i, &g)?)?;
    let mut made = vec![ops::multiply(&o, &ops::tanh(&new)?)?, new];
    if save {
        made.push(ops::concatenate_axis(&[&i_f, &g, &o], 1)?);
    }
    Ok(made)
}

/// Launches the cell's kernel, a thread for each element of the states `like`.
fn launch(cell: RecurrentCell, save: bool, inputs: &[&Array], like: &Array) -> Made<Vec<Array>> {
    let &[count, hidden] = like.shape() else { return Err(Error::backend("recurrent", "expected a matrix").into()) };
    let d = custom_kernel::numbers(&[i64::from(count), i64::from(hidden)])?;
    let all: Vec<&Array> = inputs.iter().copied().chain([&d]).collect();
    let (key, text): (_, fn() -> Text) = match (cell, save) {
        (RecurrentCell::Gru, true) => ("gru step saved", || gru_text(true)),
        (RecurrentCell::Gru, false) => ("gru step", || gru_text(false)),
        (_, true) => ("lstm step saved", || lstm_text(true)),
        (_, false) => ("lstm step", || lstm_text(false)),
    };
    let (state, kept) = ([count, hidden], [count, 4 * hidden]);
    let shapes: &[&[i32]] = match (cell.has_cells(), save) {
        (true, true) => &[&state, &state, &kept],
        (true, false) => &[&state, &state],
        (false, true) => &[&state, &kept],
        (false, false) => &[&state],
    };
    custom_kernel::launch(key, text, &all, shapes, like.size())
}

/// The outputs of a step's kernel or a layer's: hidden states, `cells` of an LSTM, and what is saved.
pub(super) fn outputs(cells: bool, save: bool) -> Vec<String> {
    let named = [(true, "out"), (cells, "cells"), (save, "kept")];
    named.into_iter().filter(|(there, _)| *there).map(|(_, name)| name.to_string()).collect()
}

const EACH_STATE: &str = "int n = (int)d[0] * (int)d[1];
if (i >= (unsigned int)n) return;
int hidden = d[1];
int j = i;
int r = j / hidden;
int col = j - r * hidden;
";

/// A step of an LSTM from the gates' sums `s` and the cells `c`.
pub(super) fn lstm_text(save: bool) -> Text {
    let saved = match save {
        true => {
            "kept[from] = a;
kept[from + hidden] = f;
kept[from + 2 * hidden] = g;
kept[from + 3 * hidden] = o;
"
        }
        false => "",
    };
    let body = format!(
        "{EACH_STATE}int from = r * 4 * hidden + col;
float a = 1.0f / (1.0f + exp(-s[from]));
float f = 1.0f / (1.0f + exp(-s[from + hidden]));
float g = tanh(s[from + 2 * hidden]);
float o = 1.0f / (1.0f + exp(-s[from + 3 * hidden]));
float made = f * c[j] + a * g;
out[j] = o * tanh(made);
cells[j] = made;
{saved}"
    );
    let name = if save { KernelName::LstmStepSaved } else { KernelName::LstmStep };
    Text { name, inputs: strings(&["s", "c", "d"]), outputs: outputs(true, save), body, group: GROUP }
}

/// A step of a GRU from the inputs' products `x`, those of the hidden states `m` and these themselves, `h`.
pub(super) fn gru_text(save: bool) -> Text {
    let saved = match save {
        true => {
            "int to = r * 4 * hidden + col;
kept[to] = p;
kept[to + hidden] = z;
kept[to + 2 * hidden] = made;
kept[to + 3 * hidden] = m[from + 2 * hidden];
"
        }
        false => "",
    };
    let body = format!(
        "{EACH_STATE}int from = r * 3 * hidden + col;
float p = 1.0f / (1.0f + exp(-(x[from] + m[from])));
float z = 1.0f / (1.0f + exp(-(x[from + hidden] + m[from + hidden])));
float made = tanh(x[from + 2 * hidden] + p * m[from + 2 * hidden]);
out[j] = made + z * (h[j] - made);
{saved}"
    );
    let name = if save { KernelName::GruStepSaved } else { KernelName::GruStep };
    Text { name, inputs: strings(&["x", "m", "h", "d"]), outputs: outputs(false, save), body, group: GROUP }
}

// ---- backward --------------------------------------------------------------------------------------------------------

/// Gradients of the gates' sums, of the first states and of the first cells.
fn backward(layer: &Layer<'_>, x: &[Array]) -> Made<Vec<Array>> {
    let cell = layer.cell;
    let (cells, kept) = (usize::from(cell.has_cells()), usize::from(cell.activations() > 0));
    let (grads, first, weight) = (&x[0], &x[3 + 2 * cells + kept], &x[4 + 3 * cells + kept]);
    if layer.in_one_launch(grads, first) {
        return rnn_sequence::backward(layer, x);
    }
    let (states, memory) = (&x[2 + cells], &x[2 + 2 * cells]);
    let first_cells = &x[3 + 3 * cells + kept];
    let (mut dh, mut dc) = (x[1].clone(), cell.has_cells().then(|| x[2].clone()));
    let steps = layer.steps()?;
    let hidden = first.shape()[1];
    let wide = int(cell.gate_gradients())? * hidden;
    let mut made = Vec::new();
    for (i, step) in steps.iter().enumerate().rev() {
        let (begin, count) = (step.begin, step.rows);
        let now = |all: &Array| rows(all, begin, begin + count);
        // What the step started from: the step before, and first states where sequences begin.
        let old = |all: &Array, first: &Array| -> Made<Array> {
            match (i.checked_sub(1).and_then(|i| steps.get(i)), step.follows) {
                (Some(before), follows) if follows > 0 => {
                    with_rest(&rows(all, before.begin, before.begin + follows)?, &rows(first, 0, count)?)
                }
                _ => rows(first, 0, count),
            }
        };
        let (grad, into) = (now(grads)?, rows(&dh, 0, count)?);
        let act = if kept == 1 { Some(now(&x[3 + 2 * cells])?) } else { None };
        let (sums, own, of_c) = match (cell, act) {
            (RecurrentCell::Lstm, Some(act)) => {
                let Some(dc) = &dc else {
                    return Err(Error::runtime("recurrent_gradient", "expected cells").into());
                };
                let (new, old) = (now(memory)?, old(memory, first_cells)?);
                let (sums, of_c) = lstm_back([&grad, &into, &rows(dc, 0, count)?, &act, &new, &old], wide)?;
                (sums, None, Some(of_c))
            }
            (RecurrentCell::Gru, Some(act)) => {
                let (sums, own) = gru_back([&grad, &into, &act, &old(states, first)?], wide)?;
                (sums, Some(own), None)
            }
            (cell, _) => {
                let (g, h) = (ops::add(&grad, &into)?, now(states)?);
                let slope = match cell {
                    RecurrentCell::Relu => {
                        ops::astype(&ops::logical_not(&ops::less_equal(&h, &ops::zeros(&[], h.dtype())?)?)?, h.dtype())?
                    }
                    _ => ops::subtract(&ops::ones(&[], h.dtype())?, &ops::multiply(&h, &h)?)?,
                };
                (ops::multiply(&g, &slope)?, None, None)
            }
        };
        let back = match own {
            None => ops::matmul(&sums, weight)?,
            Some(own) => {
                let parts = [&columns(&sums, hidden, 0, 2)?, &columns(&sums, hidden, 3, 4)?];
                ops::add(&own, &ops::matmul(&ops::concatenate_axis(&parts, 1)?, weight)?)?
            }
        };
        dh = with_rest(&back, &dh)?;
        if let (Some(new), Some(old)) = (of_c, &dc) {
            dc = Some(with_rest(&new, old)?);
        }
        made.push((begin, vec![sums]));
    }
    Ok(joined(made)?.into_iter().chain([dh]).chain(dc).collect())
}

/// Gradients of an LSTM step's gates and of its cells, from those of its states (two that are added), of its cells, its
/// gates, its new cells and its old ones.
fn lstm_back([grad, into, dc, act, new, old]: [&Array; 6], wide: i32) -> Made<(Array, Array)> {
    let &[count, hidden] = new.shape() else { return Err(Error::backend("recurrent", "expected a matrix").into()) };
    if writes(act) {
        let d = custom_kernel::numbers(&[i64::from(count), i64::from(hidden)])?;
        let shapes: [&[i32]; 2] = [&[count, wide], &[count, hidden]];
        let inputs = [grad, into, dc, act, new, old, &d];
        let mut made =
            custom_kernel::launch("lstm step back", lstm_back_text, &inputs, &shapes, new.size())?.into_iter();
        if let (Some(sums), Some(of_c)) = (made.next(), made.next()) {
            return Ok((sums, of_c));
        }
        return Err(Error::backend("recurrent", "a launch without its outputs").into());
    }
    let one = ops::ones(&[], act.dtype())?;
    let block = |k: i32| columns(act, hidden, k, k + 1);
    let (i, f, g, o) = (block(0)?, block(1)?, block(2)?, block(3)?);
    let h = ops::add(grad, into)?;
    let t = ops::tanh(new)?;
    let times = |a: &Array, b: &Array| ops::multiply(a, b);
    let c = ops::add(dc, &times(&times(&h, &o)?, &ops::subtract(&one, &times(&t, &t)?)?)?)?;
    let slope = |s: &Array| -> Made<Array> { Ok(times(s, &ops::subtract(&one, s)?)?) };
    let di = times(&times(&c, &g)?, &slope(&i)?)?;
    let df = times(&times(&c, old)?, &slope(&f)?)?;
    let dg = times(&times(&c, &i)?, &ops::subtract(&one, &times(&g, &g)?)?)?;
    let d_o = times(&times(&h, &t)?, &slope(&o)?)?;
    Ok((ops::concatenate_axis(&[&di, &df, &dg, &d_o], 1)?, times(&c, &f)?))
}

/// See [`lstm_back`].
pub(super) fn lstm_back_text() -> Text {
    let body = format!(
        "{EACH_STATE}int from = r * 4 * hidden + col;
float a = act[from];
float f = act[from + hidden];
float k = act[from + 2 * hidden];
float o = act[from + 3 * hidden];
float dh = g[j] + h[j];
float t = tanh(made[j]);
float dc = c[j] + dh * o * (1.0f - t * t);
sums[from] = dc * k * a * (1.0f - a);
sums[from + hidden] = dc * old[j] * f * (1.0f - f);
sums[from + 2 * hidden] = dc * a * (1.0f - k * k);
sums[from + 3 * hidden] = dh * t * o * (1.0f - o);
cells[j] = dc * f;
"
    );
    let inputs = strings(&["g", "h", "c", "act", "made", "old", "d"]);
    Text { name: KernelName::LstmStepBack, inputs, outputs: strings(&["sums", "cells"]), body, group: GROUP }
}

/// Gradients of a GRU step's gates with that of `W_hh h + b_hh` of n, and what the state keeps of its own.
fn gru_back([grad, into, act, old]: [&Array; 4], wide: i32) -> Made<(Array, Array)> {
    let &[count, hidden] = old.shape() else { return Err(Error::backend("recurrent", "expected a matrix").into()) };
    if writes(act) {
        let d = custom_kernel::numbers(&[i64::from(count), i64::from(hidden)])?;
        let shapes: [&[i32]; 2] = [&[count, wide], &[count, hidden]];
        let inputs = [grad, into, act, old, &d];
        let mut made = custom_kernel::launch("gru step back", gru_back_text, &inputs, &shapes, old.size())?.into_iter();
        if let (Some(sums), Some(own)) = (made.next(), made.next()) {
            return Ok((sums, own));
        }
        return Err(Error::backend("recurrent", "a launch without its outputs").into());
    }
    let one = ops::ones(&[], act.dtype())?;
    let block = |k: i32| columns(act, hidden, k, k + 1);
    let (r, z, n, m) = (block(0)?, block(1)?, block(2)?, block(3)?);
    let h = ops::add(grad, into)?;
    let times = |a: &Array, b: &Array| ops::multiply(a, b);
    let rest = |s: &Array| ops::subtract(&one, s);
    let dn = times(&times(&h, &rest(&z)?)?, &rest(&times(&n, &n)?)?)?;
    let dz = times(&times(&h, &ops::subtract(old, &n)?)?, &times(&z, &rest(&z)?)?)?;
    let dr = times(&times(&dn, &m)?, &times(&r, &rest(&r)?)?)?;
    let dm = times(&dn, &r)?;
    Ok((ops::concatenate_axis(&[&dr, &dz, &dn, &dm], 1)?, times(&h, &z)?))
}

/// See [`gru_back`].
pub(super) fn gru_back_text() -> Text {
    let body = format!(
        "{EACH_STATE}int from = r * 4 * hidden + col;
float p = act[from];
float z = act[from + hidden];
float k = act[from + 2 * hidden];
float m = act[from + 3 * hidden];
float dh = g[j] + h[j];
float dn = dh * (1.0f - z) * (1.0f - k * k);
sums[from] = dn * m * p * (1.0f - p);
sums[from + hidden] = dh * (old[j] - k) * z * (1.0f - z);
sums[from + 2 * hidden] = dn;
sums[from + 3 * hidden] = dn * p;
own[j] = dh * z;
"
    );
    let inputs = strings(&["g", "h", "act", "old", "d"]);
    Text { name: KernelName::GruStepBack, inputs, outputs: strings(&["sums", "own"]), body, group: GROUP }
}
