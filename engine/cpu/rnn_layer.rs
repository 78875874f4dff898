//! Recurrent layers, all steps in one kernel: a product with the hidden weights and one pass over the gates for each step.
//!
//! Depends on `blas` and `simd`. 16-bit floats are computed with in `float32`. Sequences are packed: step t has `sizes[t]`
//! rows, never more than the step before. Invariant: agrees with the composition of plain ops in `ops/rnn.rs`.

use super::blas::{gemm, Matrix, Product};
use super::cast;
use super::fused::Compute;
use super::simd::{run, Math, Task};
use super::CpuArray;
use crate::fallible::scratch;
use crate::{DType, Element, Error, Result};
use lucid_ir::backend::Array;
use lucid_ir::ops::nn::RecurrentCell;
use lucid_ir::Meta;
use std::ops::Range;

/// A layer in one direction.
pub struct Layer<'a> {
    pub cell: RecurrentCell,
    /// Rows of each step.
    pub sizes: &'a [usize],
    /// From the last step to the first?
    pub reverse: bool,
}

/// Where a step's rows are, and where the states before it come from.
struct Step {
    rows: Range<usize>,
    /// How many of its rows follow a row of the step before, and where that step begins; the others follow the first states.
    follows: usize,
    before: usize,
}

impl Layer<'_> {
    /// The steps in the order in which they are computed.
    fn steps(&self) -> Vec<Step> {
        let mut begin = 0;
        let mut made: Vec<Step> = crate::fallible::scratch_room(self.sizes.len());
        for (t, &rows) in self.sizes.iter().enumerate() {
            let (follows, before) = match (self.reverse, t) {
                (false, 0) => (0, 0),
                (false, _) => (rows, begin - self.sizes[t - 1]),
                (true, _) => (self.sizes.get(t + 1).copied().unwrap_or(0), begin + rows),
            };
            made.push(Step { rows: begin..begin + rows, follows, before });
            begin += rows;
        }
        if self.reverse {
            made.reverse();
        }
        made
    }
}

/// Runs `$body` with `$T` bound to what elements of this dtype are computed in.
macro_rules! with_compute {
    ($op:literal, $dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            DType::F64 => {
                type $T = f64;
                $body
            }
            DType::F32 | DType::F16 | DType::BF16 => {
                type $T = f32;
                $body
            }
            other => Err(Error::dtype($op, "expected a floating dtype", &[other])),
        }
    };
}

/// Row-major elements of the dtype that is computed in.
fn dense(x: &CpuArray, dtype: DType) -> Result<CpuArray> {
    if x.dtype() == dtype {
        x.contiguous()
    } else {
        cast::cast(x, dtype)?.contiguous()
    }
}

/// The array's own elements, of those that were read.
fn own<'a, T>(x: &CpuArray, read: &'a [T]) -> &'a [T] {
    let from = x.layout().offset;
    read.get(from..from + x.layout().numel()).unwrap_or_default()
}

fn absent(op: &'static str) -> Box<Error> {
    Error::runtime(op, "takes more arrays than it was given")
}

/// Refuses what does not belong together, as a graph that was read from a file may not.
fn check(op: &'static str, layer: &Layer<'_>, inputs: &[&CpuArray], hx: usize, out: &Meta) -> Result<()> {
    let (rows, falling) = (layer.sizes.iter().sum::<usize>(), layer.sizes.windows(2).all(|w| w[1] <= w[0]));
    let cell = layer.cell;
    let (state, weight) = (inputs.get(hx), inputs.get(hx + 1 + usize::from(cell.has_cells())));
    let fits = || {
        let &[batch, hidden] = state?.shape() else { return None };
        let steps = falling && layer.sizes.first() == Some(&batch) && layer.sizes.iter().all(|&n| n > 0) && hidden > 0;
        let mut good = steps && weight?.shape() == [cell.gates() * hidden, hidden];
        if cell.has_cells() {
            good &= inputs.get(hx + 1)?.shape() == [batch, hidden];
        }
        if hx == 1 {
            // Forward: the gates in front, a bias behind.
            good &= inputs[0].shape() == [rows, cell.gates() * hidden];
            let bias = inputs.get(hx + 2 + usize::from(cell.has_cells()));
            good &= bias.is_none_or(|b| b.shape() == [cell.gates() * hidden] && cell == RecurrentCell::Gru);
            let blocks = 1 + usize::from(cell.has_cells());
            let len = out.shape.iter().product::<usize>();
            good &= out.shape.len() == 1
                && [blocks, blocks + cell.activations()].iter().any(|blocks| len == rows * blocks * hidden);
        } else {
            let blocks = 1 + usize::from(cell.has_cells()) + cell.activations();
            good &= inputs[0].shape() == [rows, hidden] && inputs[1].shape() == [batch, hidden];
            good &= inputs[hx - 1].shape() == [rows * blocks * hidden];
            good &= !cell.has_cells() || inputs[2].shape() == [batch, hidden];
            let states = batch * hidden * (1 + usize::from(cell.has_cells()));
            good &= out.shape[..] == [rows * cell.gate_gradients() * hidden + states];
        }
        Some(good)
    };
    if fits() == Some(true) {
        return Ok(());
    }
    let shapes: Vec<&[usize]> = inputs.iter().map(|x| x.shape()).collect();
    Err(Error::shape(op, format!("operands and batch sizes {:?} do not belong to one layer", layer.sizes), &shapes))
}

/// Hidden states, cells and activations of all steps, one after the other.
///
/// # Errors
/// [`Error::ShapeMismatch`] where the operands are none of one layer; where memory cannot be had.
pub fn forward(layer: &Layer<'_>, save: bool, inputs: &[&CpuArray], out: &Meta) -> Result<CpuArray> {
    check("recurrent", layer, inputs, 1, out)?;
    let made = with_compute!("recurrent", out.dtype, T => {
        let inputs = inputs.iter().map(|x| dense(x, T::DTYPE)).collect::<Result<Vec<_>>>()?;
        steps::<T>(layer, save, &inputs, out.shape.iter().product())
    })?;
    if made.dtype() == out.dtype {
        Ok(made)
    } else {
        cast::cast(&made, out.dtype)
    }
}

fn steps<T: Compute>(layer: &Layer<'_>, save: bool, inputs: &[CpuArray], len: usize) -> Result<CpuArray> {
    let cell = layer.cell;
    let mut given = inputs.iter();
    let mut next = || given.next().ok_or_else(|| absent("recurrent"));
    let (gates, first) = (next()?, next()?);
    let cells = if cell.has_cells() { Some(next()?) } else { None };
    let weight = next()?;
    let bias = next().ok();
    let held = [gates, first, weight].map(CpuArray::read::<T>);
    let also = [cells, bias].map(|x| x.map(CpuArray::read::<T>));
    let (gates, first, weight) = (own(gates, &held[0]), own(first, &held[1]), own(weight, &held[2]));
    let [cells, bias] = [(cells, &also[0]), (bias, &also[1])].map(|(x, held)| Some(own(x?, held.as_ref()?)));
    let hidden = inputs[1].shape()[1];
    let rows: usize = layer.sizes.iter().sum();
    let wide = cell.gates() * hidden;
    CpuArray::build(&[len], |out: &mut [T]| {
        let (states, rest) = out.split_at_mut(rows * hidden);
        let (memory, saved) = rest.split_at_mut(if cell.has_cells() { rows * hidden } else { 0 });
        let kept = cell.activations() * hidden;
        let largest = layer.sizes.iter().copied().max().unwrap_or(0);
        let mut sums = scratch(T::of(0.0), largest * wide);
        let mut inner = scratch(T::of(0.0), if cell == RecurrentCell::Gru { largest * wide } else { 0 });
        let mut unsaved = scratch(T::of(0.0), if save { 0 } else { kept });
        let mut row = scratch(T::of(0.0), hidden);
        for Step { rows: now, follows, before } in layer.steps() {
            let count = now.len();
            let sums = &mut sums[..count * wide];
            let of_inputs = &gates[now.start * wide..now.end * wide];
            // An LSTM's products are added to those with the inputs; a GRU scales its own first.
            let into: &mut [T] = if cell == RecurrentCell::Gru {
                let inner = &mut inner[..count * wide];
                match &bias {
                    Some(bias) => inner.chunks_exact_mut(wide).for_each(|to| to.copy_from_slice(&bias[..wide])),
                    None => inner.fill(T::of(0.0)),
                }
                inner
            } else {
                sums.copy_from_slice(of_inputs);
                sums
            };
            // The states before, which are two pieces where sequences begin at this step.
            let pieces = [
                (&states[before * hidden..(before + follows) * hidden], 0..follows),
                (&first[follows.min(count) * hidden..count * hidden], follows.min(count)..count),
            ];
            for (from, to) in pieces {
                if !to.is_empty() {
                    let a = Matrix { data: from, ld: hidden, trans: false };
                    let b = Matrix { data: weight, ld: hidden, trans: true };
                    let product = Product { beta: T::of(1.0), ..Product::of([to.len(), wide, hidden], a, b) };
                    gemm(&product, &mut into[to.start * wide..to.end * wide]);
                }
            }
            for r in 0..count {
                let at = (now.start + r) * hidden..(now.start + r + 1) * hidden;
                let was = if r < follows { before + r } else { r } * hidden;
                let was = was..was + hidden;
                let act: &mut [T] = match save {
                    true => &mut saved[(now.start + r) * kept..(now.start + r + 1) * kept],
                    false => &mut unsaved,
                };
                let range = r * wide..(r + 1) * wide;
                match cell {
                    RecurrentCell::Tanh => T::math(Math::Tanh, &sums[range], &mut states[at]),
                    RecurrentCell::Relu => {
                        for (h, &s) in states[at].iter_mut().zip(&sums[range]) {
                            // NaN stays.
                            *h = if s < T::of(0.0) { T::of(0.0) } else { s };
                        }
                    }
                    RecurrentCell::Lstm => {
                        let from = &sums[range];
                        T::math(Math::Sigmoid, &from[..2 * hidden], &mut act[..2 * hidden]);
                        T::math(Math::Tanh, &from[2 * hidden..3 * hidden], &mut act[2 * hidden..3 * hidden]);
                        T::math(Math::Sigmoid, &from[3 * hidden..], &mut act[3 * hidden..]);
                        match &cells {
                            _ if r < follows => row.copy_from_slice(&memory[was]),
                            Some(cells) => row.copy_from_slice(&cells[was]),
                            None => row.fill(T::of(0.0)),
                        }
                        run(LstmCells { act, row: &mut row });
                        memory[at.clone()].copy_from_slice(&row);
                        T::math(Math::Tanh, &memory[at.clone()], &mut row);
                        states[at].iter_mut().zip(&act[3 * hidden..]).zip(&row).for_each(|((h, &o), &c)| *h = o * c);
                    }
                    RecurrentCell::Gru => {
                        let (x, h) = (&of_inputs[range.clone()], &mut inner[range]);
                        h[..2 * hidden].iter_mut().zip(x).for_each(|(h, &x)| *h = *h + x);
                        let (r_z, n_m) = act.split_at_mut(2 * hidden);
                        let (n, m) = n_m.split_at_mut(hidden);
                        T::math(Math::Sigmoid, &h[..2 * hidden], r_z);
                        m.copy_from_slice(&h[2 * hidden..]);
                        let of_n = x[2 * hidden..].iter().zip(&*r_z).zip(&*m);
                        row.iter_mut().zip(of_n).for_each(|(s, ((&x, &r), &m))| *s = x + r * m);
                        T::math(Math::Tanh, &row, n);
                        let old = if r < follows { &states[was] } else { &first[was] };
                        let mixed = n.iter().zip(&r_z[hidden..]).zip(old);
                        row.iter_mut().zip(mixed).for_each(|(h, ((&n, &z), &old))| *h = n + z * (old - n));
                        states[at].copy_from_slice(&row);
                    }
                }
            }
        }
        Ok(())
    })
}

/// `row = f row + i g`, a row's cells from its gates.
struct LstmCells<'a, T> {
    act: &'a [T],
    row: &'a mut [T],
}

impl<T: Compute> Task for LstmCells<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        let n = self.row.len();
        let (i, rest) = self.act.split_at(n);
        let (f, g) = rest.split_at(n);
        for (((c, &i), &f), &g) in self.row.iter_mut().zip(i).zip(f).zip(g) {
            *c = f * *c + i * g;
        }
    }
}

/// Gradients of the gates' sums, of the first states and of the first cells, one after the other.
///
/// # Errors
/// As [`forward`].
pub fn backward(layer: &Layer<'_>, through: bool, inputs: &[&CpuArray], out: &Meta) -> Result<CpuArray> {
    check("recurrent_gradient", layer, inputs, 3 + usize::from(layer.cell.has_cells()), out)?;
    let made = with_compute!("recurrent_gradient", out.dtype, T => {
        let inputs = inputs.iter().map(|x| dense(x, T::DTYPE)).collect::<Result<Vec<_>>>()?;
        steps_back::<T>(layer, through, &inputs, out.shape.iter().product())
    })?;
    if made.dtype() == out.dtype {
        Ok(made)
    } else {
        cast::cast(&made, out.dtype)
    }
}

fn steps_back<T: Compute>(layer: &Layer<'_>, through: bool, inputs: &[CpuArray], len: usize) -> Result<CpuArray> {
    let cell = layer.cell;
    let mut given = inputs.iter();
    let mut next = || given.next().ok_or_else(|| absent("recurrent_gradient"));
    let (grads, last) = (next()?, next()?);
    let last_cells = if cell.has_cells() { Some(next()?) } else { None };
    let (packed, first) = (next()?, next()?);
    let cells = if cell.has_cells() { Some(next()?) } else { None };
    let weight = next()?;
    let hidden = first.shape()[1];
    let batch = first.shape()[0];
    let held = [grads, last, packed, first, weight].map(CpuArray::read::<T>);
    let also = [last_cells, cells].map(|x| x.map(CpuArray::read::<T>));
    let (grads, last, packed) = (own(grads, &held[0]), own(last, &held[1]), own(packed, &held[2]));
    let (first, weight) = (own(first, &held[3]), own(weight, &held[4]));
    let [last_cells, cells] =
        [(last_cells, &also[0]), (cells, &also[1])].map(|(x, held)| Some(own(x?, held.as_ref()?)));
    let rows: usize = layer.sizes.iter().sum();
    let (wide, parts) = (cell.gates() * hidden, cell.gate_gradients() * hidden);
    let (states, rest) = packed.split_at(rows * hidden);
    let (memory, saved) = rest.split_at(if cell.has_cells() { rows * hidden } else { 0 });
    let kept = cell.activations() * hidden;
    CpuArray::build(&[len], |out: &mut [T]| {
        let (made, rest) = out.split_at_mut(rows * parts);
        let (dh, dc) = rest.split_at_mut(batch * hidden);
        dh.copy_from_slice(&last[..batch * hidden]);
        match &last_cells {
            Some(last) => dc.copy_from_slice(&last[..batch * hidden]),
            None => dc.fill(T::of(0.0)),
        }
        let largest = layer.sizes.iter().copied().max().unwrap_or(0);
        let mut row = scratch(T::of(0.0), hidden);
        // A GRU's gradients of `W_hh h + b_hh`: those of r, z, and of n's part.
        let mut inner = scratch(T::of(0.0), if cell == RecurrentCell::Gru { largest * wide } else { 0 });
        for Step { rows: now, follows, before } in layer.steps().into_iter().rev() {
            let count = now.len();
            for r in 0..count {
                let at = (now.start + r) * hidden..(now.start + r + 1) * hidden;
                let was = if r < follows { before + r } else { r } * hidden;
                let was = was..was + hidden;
                let dh = &mut dh[r * hidden..(r + 1) * hidden];
                dh.iter_mut().zip(&grads[at.clone()]).for_each(|(d, &g)| *d = *d + g);
                let made = &mut made[(now.start + r) * parts..(now.start + r + 1) * parts];
                let act = &saved[(now.start + r) * kept..(now.start + r + 1) * kept];
                match cell {
                    RecurrentCell::Tanh => {
                        let each = made.iter_mut().zip(&*dh).zip(&states[at]);
                        each.for_each(|((m, &d), &h)| *m = d * (T::of(1.0) - h * h));
                    }
                    RecurrentCell::Relu => {
                        let each = made.iter_mut().zip(&*dh).zip(&states[at]);
                        each.for_each(|((m, &d), &h)| *m = if h <= T::of(0.0) { T::of(0.0) } else { d });
                    }
                    RecurrentCell::Lstm => {
                        T::math(Math::Tanh, &memory[at], &mut row);
                        let old = match &cells {
                            _ if r < follows => &memory[was],
                            Some(cells) => &cells[was],
                            None => return Err(absent("recurrent_gradient")),
                        };
                        let dc = &mut dc[r * hidden..(r + 1) * hidden];
                        run(LstmBack { act, tanh: &row, old, dh, dc, made });
                    }
                    RecurrentCell::Gru => {
                        let old = if r < follows { &states[was] } else { &first[was] };
                        run(GruBack { act, old, dh, made });
                        let inner = &mut inner[r * wide..(r + 1) * wide];
                        inner[..2 * hidden].copy_from_slice(&made[..2 * hidden]);
                        inner[2 * hidden..].copy_from_slice(&made[3 * hidden..]);
                    }
                }
            }
            if through {
                let data = match cell {
                    RecurrentCell::Gru => &inner[..count * wide],
                    RecurrentCell::Tanh | RecurrentCell::Relu | RecurrentCell::Lstm => {
                        &made[now.start * parts..now.end * parts]
                    }
                };
                // What a GRU keeps of its state is there already.
                let beta = if cell == RecurrentCell::Gru { T::of(1.0) } else { T::of(0.0) };
                let a = Matrix { data, ld: wide, trans: false };
                let b = Matrix { data: weight, ld: hidden, trans: false };
                let product = Product { beta, ..Product::of([count, hidden, wide], a, b) };
                gemm(&product, &mut dh[..count * hidden]);
            }
        }
        Ok(())
    })
}

/// Gradients of a row's gates and cells, and of what its hidden state comes from.
struct LstmBack<'a, T> {
    act: &'a [T],
    /// `tanh` of the cells.
    tanh: &'a [T],
    old: &'a [T],
    dh: &'a [T],
    dc: &'a mut [T],
    made: &'a mut [T],
}

impl<T: Compute> Task for LstmBack<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        let n = self.tanh.len();
        let one = T::of(1.0);
        let (i, rest) = self.act.split_at(n);
        let (f, rest) = rest.split_at(n);
        let (g, o) = rest.split_at(n);
        let (di, rest) = self.made.split_at_mut(n);
        let (df, rest) = rest.split_at_mut(n);
        let (dg, d_o) = rest.split_at_mut(n);
        let (o, d_o, dg, df, di) = (&o[..n], &mut d_o[..n], &mut dg[..n], &mut df[..n], &mut di[..n]);
        let (old, dh, dc) = (&self.old[..n], &self.dh[..n], &mut self.dc[..n]);
        for j in 0..n {
            let t = self.tanh[j];
            let c = dc[j] + dh[j] * o[j] * (one - t * t);
            d_o[j] = dh[j] * t * o[j] * (one - o[j]);
            di[j] = c * g[j] * i[j] * (one - i[j]);
            df[j] = c * old[j] * f[j] * (one - f[j]);
            dg[j] = c * i[j] * (one - g[j] * g[j]);
            dc[j] = c * f[j];
        }
    }
}

/// Gradients of a row's gates, of `W_hh h + b_hh` of n, and what the state keeps of its own, in `dh`.
struct GruBack<'a, T> {
    act: &'a [T],
    old: &'a [T],
    dh: &'a mut [T],
    made: &'a mut [T],
}

impl<T: Compute> Task for GruBack<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        let n = self.old.len();
        let one = T::of(1.0);
        let (r, rest) = self.act.split_at(n);
        let (z, rest) = rest.split_at(n);
        let (new, m) = rest.split_at(n);
        let (dr, rest) = self.made.split_at_mut(n);
        let (dz, rest) = rest.split_at_mut(n);
        let (dn, dm) = rest.split_at_mut(n);
        let (m, dm, dn, dz, dr) = (&m[..n], &mut dm[..n], &mut dn[..n], &mut dz[..n], &mut dr[..n]);
        let dh = &mut self.dh[..n];
        for j in 0..n {
            let d = dh[j] * (one - z[j]) * (one - new[j] * new[j]);
            dz[j] = dh[j] * (self.old[j] - new[j]) * z[j] * (one - z[j]);
            dr[j] = d * m[j] * r[j] * (one - r[j]);
            dn[j] = d;
            dm[j] = d * r[j];
            dh[j] = dh[j] * z[j];
        }
    }
}
