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
use lucid_ir::backend::{Array, Results};
use lucid_ir::ops::recurrent::{RecurrentCell, RecurrentOp};
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

/// The kernels of the `recurrent` family.
///
/// # Errors
/// [`Error::ShapeMismatch`] where the operands are none of one layer; where memory cannot be had.
pub fn recurrent(op: &RecurrentOp, inputs: &[&CpuArray], out: &[Meta]) -> Result<Results<CpuArray>> {
    let (RecurrentOp::Forward { cell, sizes, reverse, .. } | RecurrentOp::Gradient { cell, sizes, reverse }) = op;
    let layer = Layer { cell: *cell, sizes, reverse: *reverse };
    let shapes: Vec<&[usize]> = inputs.iter().map(|x| x.shape()).collect();
    if !op.takes(&shapes) {
        let why = format!("operands and batch sizes {sizes:?} do not belong to one layer");
        return Err(Error::shape(op.name(), why, &shapes));
    }
    let dtype = out.first().map_or(DType::F32, |out| out.dtype);
    let made = with_compute!("recurrent", dtype, T => {
        let inputs = inputs.iter().map(|x| dense(x, T::DTYPE)).collect::<Result<Vec<_>>>()?;
        match op {
            RecurrentOp::Forward { save, .. } => steps::<T>(&layer, *save, &inputs, out),
            RecurrentOp::Gradient { .. } => steps_back::<T>(&layer, &inputs, out),
        }
    })?;
    made.into_iter().map(|made| if made.dtype() == dtype { Ok(made) } else { cast::cast(&made, dtype) }).collect()
}

fn steps<T: Compute>(layer: &Layer<'_>, save: bool, inputs: &[CpuArray], out: &[Meta]) -> Result<Results<CpuArray>> {
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
    let wide = cell.gates() * hidden;
    CpuArray::build_several(out, Vec::new(), |out: &mut [&mut [T]]| {
        let mut parts = out.iter_mut().map(|part| &mut **part);
        let mut part = |there: bool| if there { parts.next().unwrap_or_default() } else { &mut [] };
        let (states, h, c) = (part(true), part(true), part(cell.has_cells()));
        let (again, memory, saved) = (part(save), part(save && cell.has_cells()), part(save));
        // Each sequence's states, from the first ones on: those at work are the first rows.
        h.copy_from_slice(&first[..h.len()]);
        if let Some(cells) = cells {
            c.copy_from_slice(&cells[..c.len()]);
        }
        let kept = cell.activations() * hidden;
        let largest = layer.sizes.iter().copied().max().unwrap_or(0);
        let mut sums = scratch(T::of(0.0), largest * wide);
        let mut inner = scratch(T::of(0.0), if cell == RecurrentCell::Gru { largest * wide } else { 0 });
        let mut unsaved = scratch(T::of(0.0), if save { 0 } else { kept });
        let mut row = scratch(T::of(0.0), hidden);
        for Step { rows: now, .. } in layer.steps() {
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
            let a = Matrix { data: &h[..count * hidden], ld: hidden, trans: false };
            let b = Matrix { data: weight, ld: hidden, trans: true };
            gemm(&Product { beta: T::of(1.0), ..Product::of([count, wide, hidden], a, b) }, into);
            for r in 0..count {
                let at = (now.start + r) * hidden..(now.start + r + 1) * hidden;
                let h = &mut h[r * hidden..(r + 1) * hidden];
                let act: &mut [T] = match save {
                    true => &mut saved[(now.start + r) * kept..(now.start + r + 1) * kept],
                    false => &mut unsaved,
                };
                let range = r * wide..(r + 1) * wide;
                match cell {
                    RecurrentCell::Tanh => T::math(Math::Tanh, &sums[range], h),
                    RecurrentCell::Relu => {
                        for (h, &s) in h.iter_mut().zip(&sums[range]) {
                            // NaN stays.
                            *h = if s < T::of(0.0) { T::of(0.0) } else { s };
                        }
                    }
                    RecurrentCell::Lstm => {
                        let from = &sums[range];
                        let c = &mut c[r * hidden..(r + 1) * hidden];
                        T::math(Math::Sigmoid, &from[..2 * hidden], &mut act[..2 * hidden]);
                        T::math(Math::Tanh, &from[2 * hidden..3 * hidden], &mut act[2 * hidden..3 * hidden]);
                        T::math(Math::Sigmoid, &from[3 * hidden..], &mut act[3 * hidden..]);
                        run(LstmCells { act, row: c });
                        if save {
                            memory[at.clone()].copy_from_slice(c);
                        }
                        T::math(Math::Tanh, c, &mut row);
                        h.iter_mut().zip(&act[3 * hidden..]).zip(&row).for_each(|((h, &o), &c)| *h = o * c);
                    }
                    RecurrentCell::Gru => {
                        let (x, m) = (&of_inputs[range.clone()], &mut inner[range]);
                        m[..2 * hidden].iter_mut().zip(x).for_each(|(m, &x)| *m = *m + x);
                        let (r_z, n_m) = act.split_at_mut(2 * hidden);
                        let (n, own) = n_m.split_at_mut(hidden);
                        T::math(Math::Sigmoid, &m[..2 * hidden], r_z);
                        own.copy_from_slice(&m[2 * hidden..]);
                        let of_n = x[2 * hidden..].iter().zip(&*r_z).zip(&*own);
                        row.iter_mut().zip(of_n).for_each(|(s, ((&x, &r), &m))| *s = x + r * m);
                        T::math(Math::Tanh, &row, n);
                        let mixed = n.iter().zip(&r_z[hidden..]);
                        h.iter_mut().zip(mixed).for_each(|(h, (&n, &z))| *h = n + z * (*h - n));
                    }
                }
                states[at.clone()].copy_from_slice(h);
                if save {
                    again[at].copy_from_slice(h);
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

/// Gradients of the gates' sums, of the first states and of the first cells.
fn steps_back<T: Compute>(layer: &Layer<'_>, inputs: &[CpuArray], out: &[Meta]) -> Result<Results<CpuArray>> {
    let cell = layer.cell;
    let held: Vec<_> = inputs.iter().map(CpuArray::read::<T>).collect();
    let mut given = inputs.iter().zip(&held).map(|(x, held)| own(x, held));
    let mut part = |there: bool| if there { given.next().unwrap_or_default() } else { &[] };
    let (grads, last, last_cells) = (part(true), part(true), part(cell.has_cells()));
    let (states, memory, saved) = (part(true), part(cell.has_cells()), part(cell.activations() > 0));
    let (first, cells, weight) = (part(true), part(cell.has_cells()), part(true));
    let hidden = out.get(1).and_then(|out| out.shape.get(1)).copied().unwrap_or(0);
    let (wide, parts) = (cell.gates() * hidden, cell.gate_gradients() * hidden);
    let kept = cell.activations() * hidden;
    CpuArray::build_several(out, Vec::new(), |out: &mut [&mut [T]]| {
        let [made, dh, rest @ ..] = out else { return Err(absent("recurrent_gradient")) };
        let dc: &mut [T] = rest.first_mut().map_or(&mut [], |dc| &mut **dc);
        dh.copy_from_slice(&last[..dh.len()]);
        dc.copy_from_slice(&last_cells[..dc.len()]);
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
                        let old = if r < follows { &memory[was] } else { &cells[was] };
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
