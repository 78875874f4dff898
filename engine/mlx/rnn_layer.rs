//! Recurrent layers: a product and one kernel of our own for each step, or the primitives that it stands for.
//!
//! Depends on `custom_kernel`. Invariant: as `cpu/rnn_layer.rs`, whose layout of results this has; MLX's CPU stream runs that one.

use super::array::GpuArray;
use super::convert::{int, ints};
use super::custom_kernel::{self, Text, GROUP};
use super::kernel_error::Made;
use super::kernel_name::KernelName;
use super::rnn_sequence;
use crate::Error;
use lucid_ir::ops::nn::RecurrentCell;
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

fn flat(a: &Array) -> Made<Array> {
    Ok(ops::reshape(a, &[int(a.size())?])?)
}

/// Elements from `from` on, as rows of `columns`.
fn part(packed: &Array, from: i32, shape: [i32; 2]) -> Made<Array> {
    let len = shape[0] * shape[1];
    let cut = match int(packed.size())? == len {
        true => packed.clone(),
        false => ops::slice(packed, &[from], &[from + len], &[1])?,
    };
    Ok(ops::reshape(&cut, &shape)?)
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

// ---- forward ---------------------------------------------------------------------------------------------------------

/// Hidden states, cells and activations of all steps, one after the other.
pub(super) fn forward(layer: &Layer<'_>, save: bool, inputs: &[&GpuArray], out: &Meta) -> Made<Array> {
    let cells = usize::from(layer.cell.has_cells());
    let x = operands(inputs, 3 + cells)?;
    let (gates, first, weight, bias) = (&x[0], &x[1], &x[2 + cells], x.get(3 + cells));
    if layer.in_one_launch(gates, first) {
        return Ok(ops::reshape(&rnn_sequence::forward(layer, save, &x)?, &ints(&out.shape)?)?);
    }
    let transposed = ops::transpose_axes(weight, &[1, 0])?;
    let hidden = first.shape()[1];
    let (mut h, mut c) = (first.clone(), layer.cell.has_cells().then(|| x[2].clone()));
    let steps = layer.steps()?;
    let mut made = Vec::new();
    for step in &steps {
        let (now, old) = (rows(gates, step.begin, step.begin + step.rows)?, rows(&h, 0, step.rows)?);
        let cells = c.as_ref().map(|c| rows(c, 0, step.rows)).transpose()?;
        let packed = one_step(layer.cell, save, &now, &old, cells.as_ref(), &transposed, bias)?;
        if steps.len() == 1 {
            return Ok(packed);
        }
        let blocks = step.rows * hidden;
        let state = part(&packed, 0, [step.rows, hidden])?;
        h = with_rest(&state, &h)?;
        let mut pieces = vec![flat(&state)?];
        if let Some(c) = &mut c {
            let new = part(&packed, blocks, [step.rows, hidden])?;
            *c = with_rest(&new, c)?;
            pieces.push(flat(&new)?);
        }
        if save && layer.cell.activations() > 0 {
            let from = blocks * pieces.len() as i32;
            pieces.push(ops::slice(&packed, &[from], &[int(packed.size())?], &[1])?);
        }
        made.push((step.begin, pieces));
    }
    joined(made, out)
}

/// Each step's first pieces in the order of rows, then the second ones, and so on.
fn joined(mut made: Vec<(i32, Vec<Array>)>, out: &Meta) -> Made<Array> {
    made.sort_by_key(|(begin, _)| *begin);
    let count = made.first().map_or(0, |(_, pieces)| pieces.len());
    let all: Vec<&Array> = (0..count).flat_map(|k| made.iter().filter_map(move |(_, p)| p.get(k))).collect();
    let flat = ops::concatenate_axis(&all, 0)?;
    Ok(ops::reshape(&flat, &ints(&out.shape)?)?)
}

fn one_step(
    cell: RecurrentCell,
    save: bool,
    gates: &Array,
    h: &Array,
    c: Option<&Array>,
    transposed: &Array,
    bias: Option<&Array>,
) -> Made<Array> {
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
        let new = ops::add(&n, &ops::multiply(&z, &ops::subtract(h, &n)?)?)?;
        let kept = ops::concatenate_axis(&[&r, &z, &n, &m], 1)?;
        return match save {
            true => Ok(ops::concatenate_axis(&[&flat(&new)?, &flat(&kept)?], 0)?),
            false => flat(&new),
        };
    }
    let sums = ops::addmm(gates, h, transposed)?;
    let c = match (cell, c) {
        (RecurrentCell::Tanh, _) => return flat(&ops::tanh(&sums)?),
        (RecurrentCell::Relu, _) => {
            let zero = ops::zeros(&[], sums.dtype())?;
            return flat(&ops::maximum(&sums, &zero)?);
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
    let state = ops::multiply(&o, &ops::tanh(&new)?)?;
    let mut all = vec![flat(&state)?, flat(&new)?];
    if save {
        all.push(flat(&ops::concatenate_axis(&[&i_f, &g, &o], 1)?)?);
    }
    Ok(ops::concatenate_axis(&all.iter().collect::<Vec<_>>(), 0)?)
}

/// Launches the cell's kernel, a thread for each element of the states `like`.
fn launch(cell: RecurrentCell, save: bool, inputs: &[&Array], like: &Array) -> Made<Array> {
    let &[count, hidden] = like.shape() else { return Err(Error::backend("recurrent", "expected a matrix").into()) };
    let d = custom_kernel::numbers(&[i64::from(count), i64::from(hidden)])?;
    let blocks = 1 + i32::from(cell.has_cells()) + if save { int(cell.activations())? } else { 0 };
    let all: Vec<&Array> = inputs.iter().copied().chain([&d]).collect();
    let (key, text): (_, fn() -> Text) = match (cell, save) {
        (RecurrentCell::Gru, true) => ("gru step saved", || gru_text(true)),
        (RecurrentCell::Gru, false) => ("gru step", || gru_text(false)),
        (_, true) => ("lstm step saved", || lstm_text(true)),
        (_, false) => ("lstm step", || lstm_text(false)),
    };
    let shape = [blocks * count * hidden];
    let made = custom_kernel::launch(key, text, &all, &[&shape], like.size())?;
    made.into_iter().next().ok_or_else(|| Error::backend("recurrent", "a launch without an output").into())
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
            "int to = 2 * n + r * 4 * hidden + col;
out[to] = a;
out[to + hidden] = f;
out[to + 2 * hidden] = g;
out[to + 3 * hidden] = o;
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
out[n + j] = made;
{saved}"
    );
    let name = if save { KernelName::LstmStepSaved } else { KernelName::LstmStep };
    Text { name, inputs: strings(&["s", "c", "d"]), outputs: strings(&["out"]), body, group: GROUP }
}

/// A step of a GRU from the inputs' products `x`, those of the hidden states `m` and these themselves, `h`.
pub(super) fn gru_text(save: bool) -> Text {
    let saved = match save {
        true => {
            "int to = n + r * 4 * hidden + col;
out[to] = p;
out[to + hidden] = z;
out[to + 2 * hidden] = made;
out[to + 3 * hidden] = m[from + 2 * hidden];
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
    Text { name, inputs: strings(&["x", "m", "h", "d"]), outputs: strings(&["out"]), body, group: GROUP }
}

// ---- backward --------------------------------------------------------------------------------------------------------

/// Gradients of the gates' sums, of the first states and of the first cells, one after the other.
pub(super) fn backward(layer: &Layer<'_>, through: bool, inputs: &[&GpuArray], out: &Meta) -> Made<Array> {
    let cell = layer.cell;
    let cells = usize::from(cell.has_cells());
    let x = operands(inputs, 5 + 2 * cells)?;
    let (grads, packed, first, weight) = (&x[0], &x[2 + cells], &x[3 + cells], &x[4 + 2 * cells]);
    if through && layer.in_one_launch(grads, first) {
        return Ok(ops::reshape(&rnn_sequence::backward(layer, &x)?, &ints(&out.shape)?)?);
    }
    let (mut dh, mut dc) = (x[1].clone(), cell.has_cells().then(|| x[2].clone()));
    let first_cells = cell.has_cells().then(|| x[4 + cells].clone());
    let hidden = first.shape()[1];
    let total = grads.shape()[0];
    let steps = layer.steps()?;
    let wide = int(cell.gate_gradients())? * hidden;
    let kept = int(cell.activations())? * hidden;
    let saved_at = total * hidden * (1 + i32::from(cell.has_cells()));
    let mut made = Vec::new();
    for (i, step) in steps.iter().enumerate().rev() {
        let (begin, count) = (step.begin, step.rows);
        let of_rows = |from: i32| part(packed, from + begin * hidden, [count, hidden]);
        // What the step started from: the step before, and first states where sequences begin.
        let old = |from: i32, first: &Array| -> Made<Array> {
            match (i.checked_sub(1).and_then(|i| steps.get(i)), step.follows) {
                (Some(before), follows) if follows > 0 => {
                    let was = part(packed, from + before.begin * hidden, [follows, hidden])?;
                    with_rest(&was, &rows(first, 0, count)?)
                }
                _ => rows(first, 0, count),
            }
        };
        let grad = rows(grads, begin, begin + count)?;
        let into = rows(&dh, 0, count)?;
        let act = match kept {
            0 => None,
            _ => Some(part(packed, saved_at + begin * kept, [count, kept])?),
        };
        let (sums, own, of_c) = match (cell, act) {
            (RecurrentCell::Lstm, Some(act)) => {
                let (Some(dc), Some(first)) = (&dc, &first_cells) else {
                    return Err(Error::runtime("recurrent_gradient", "expected cells").into());
                };
                let (new, old) = (of_rows(total * hidden)?, old(total * hidden, first)?);
                let (sums, of_c) = lstm_back([&grad, &into, &rows(dc, 0, count)?, &act, &new, &old], wide)?;
                (sums, None, Some(of_c))
            }
            (RecurrentCell::Gru, Some(act)) => {
                let (sums, own) = gru_back([&grad, &into, &act, &old(0, first)?], wide)?;
                (sums, Some(own), None)
            }
            (cell, _) => {
                let (g, h) = (ops::add(&grad, &into)?, of_rows(0)?);
                let slope = match cell {
                    RecurrentCell::Relu => {
                        ops::astype(&ops::logical_not(&ops::less_equal(&h, &ops::zeros(&[], h.dtype())?)?)?, h.dtype())?
                    }
                    _ => ops::subtract(&ops::ones(&[], h.dtype())?, &ops::multiply(&h, &h)?)?,
                };
                (ops::multiply(&g, &slope)?, None, None)
            }
        };
        let back = match (through, own) {
            (false, None) => ops::zeros(&[count, hidden], sums.dtype())?,
            (false, Some(own)) => own,
            (true, None) => ops::matmul(&sums, weight)?,
            (true, Some(own)) => {
                let parts = [&columns(&sums, hidden, 0, 2)?, &columns(&sums, hidden, 3, 4)?];
                ops::add(&own, &ops::matmul(&ops::concatenate_axis(&parts, 1)?, weight)?)?
            }
        };
        dh = with_rest(&back, &dh)?;
        if let (Some(new), Some(old)) = (of_c, &dc) {
            dc = Some(with_rest(&new, old)?);
        }
        made.push((begin, vec![flat(&sums)?]));
    }
    made.sort_by_key(|(begin, _)| *begin);
    let mut all: Vec<Array> = made.into_iter().flat_map(|(_, pieces)| pieces).collect();
    all.push(flat(&dh)?);
    all.extend(dc.as_ref().map(flat).transpose()?);
    Ok(ops::reshape(&ops::concatenate_axis(&all.iter().collect::<Vec<_>>(), 0)?, &ints(&out.shape)?)?)
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
