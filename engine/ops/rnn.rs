//! Recurrent layers: one layer and direction of an RNN, LSTM or GRU over a batch of sequences, and single steps.
//!
//! Sequences come packed, as PyTorch's `PackedSequence` has them: the rows of step 0, then of step 1, …, where step t
//! has `batch_sizes[t]` rows, never more than the step before. Sequences of one length are the case of equal sizes. The
//! products with the inputs are one matrix product for all steps, and what follows it is one kernel, in `recurrent.rs`, or, where
//! there is none, made of other ops, here.

use super::macros::define_composites;
use super::nn::linear;
use super::recurrent::{self, RecurrentCell};
use crate::autograd::OpScope;
use crate::fallible::{collected, filled};
use crate::{Error, Result, Tensor};
use smallvec::SmallVec;

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! rnn_ops {
    ($cb:ident) => {
        $crate::rows! { $cb "rnn" :
            /// `h' = tanh(W_ih x + b_ih + W_hh h + b_hh)` (or relu) over packed rows (sum of `batch_sizes`, in) from
            /// `hx` (batch, hidden); `reverse` runs from the last step. Gives the states of all steps, packed, and the
            /// last ones.
            function rnn_sequence(
                input: Tensor, hx: Tensor, batch_sizes: Dims, w_ih: Tensor, w_hh: Tensor, b_ih: OptTensor = None,
                b_hh: OptTensor = None, nonlinearity: Text = "tanh", reverse: Bool = false
            ) -> Pair {
                flags: [internal], amp: Low, dtypes: FLOAT, result: Same,
                run: rnn_body, node: "cat", torch: "-",
                samples: [],
                example: [
                    "let (x, h, one) = (tensor([[1.0], [2.0]])?, tensor([[0.0]])?, tensor([[1.0]])?);",
                    r#"let (states, last) = rnn_sequence(&x, &h, &[1, 1], &one, &one, None, None, Nonlinearity::Relu, false)?;"#,
                    "assert_close(states, [[1.0], [3.0]]);",
                    "assert_close(last, [[3.0]]);",
                ],
            }
            /// A long short-term memory (Hochreiter and Schmidhuber, 1997) with gates in PyTorch's order i, f, g, o, as
            /// [`rnn_sequence`]; `w_hr` projects the states. Gives all states, the last ones, and the last cells.
            function lstm_sequence(
                input: Tensor, hx: Tensor, cx: Tensor, batch_sizes: Dims, w_ih: Tensor, w_hh: Tensor,
                b_ih: OptTensor = None, b_hh: OptTensor = None, w_hr: OptTensor = None, reverse: Bool = false
            ) -> Tensors {
                flags: [internal], amp: Low, dtypes: FLOAT, result: Same,
                run: lstm_body, node: "cat", torch: "-",
                samples: [],
                example: [
                    "let (x, zero, w) = (tensor([[1.0]])?, tensor([[0.0]])?, tensor([[0.0], [0.0], [0.0], [0.0]])?);",
                    "let made = lstm_sequence(&x, &zero, &tensor([[4.0]])?, &[1], &w, &w, None, None, None, false)?;",
                    "assert_close(&made[1], [[0.48201]]);",
                    "assert_close(&made[2], [[2.0]]);",
                ],
            }
            /// A gated recurrent unit (Cho et al., 2014) with gates in PyTorch's order r, z, n, as [`rnn_sequence`].
            function gru_sequence(
                input: Tensor, hx: Tensor, batch_sizes: Dims, w_ih: Tensor, w_hh: Tensor, b_ih: OptTensor = None,
                b_hh: OptTensor = None, reverse: Bool = false
            ) -> Pair {
                flags: [internal], amp: Low, dtypes: FLOAT, result: Same,
                run: gru_body, node: "cat", torch: "-",
                samples: [],
                example: [
                    "let (x, h, w) = (tensor([[1.0]])?, tensor([[4.0]])?, tensor([[0.0], [0.0], [0.0]])?);",
                    "let (_, last) = gru_sequence(&x, &h, &[1], &w, &w, None, None, false)?;",
                    "assert_close(last, [[2.0]]);",
                ],
            }
        }
    };
}
rnn_ops!(define_composites);

/// Refuses operands that do not fit together; `gates` times the hidden size are the rows of both weights.
#[allow(clippy::too_many_arguments)]
fn check(
    op: &'static str,
    x: &Tensor,
    hx: &Tensor,
    sizes: &[isize],
    w_ih: &Tensor,
    w_hh: &Tensor,
    biases: [Option<&Tensor>; 2],
    gates: usize,
) -> Result<()> {
    schema::rnn_sequence.check(x.dtype())?;
    let rest = [hx, w_ih, w_hh].into_iter().chain(biases.into_iter().flatten());
    for t in rest {
        if t.dtype() != x.dtype() {
            let why = "input, hidden state and weights must have the same dtype";
            return Err(Error::dtype(op, why, &[x.dtype(), t.dtype()]));
        }
    }
    let ordered = sizes.windows(2).all(|w| w[1] <= w[0]) && sizes.iter().all(|&n| n > 0);
    let fits = x.ndim() == 2 && hx.ndim() == 2 && w_ih.ndim() == 2 && w_hh.ndim() == 2;
    if !fits || sizes.is_empty() || !ordered {
        let why = format!(
            "expected packed rows, a state of (batch, hidden), two matrices and falling batch sizes, got {sizes:?}"
        );
        return Err(Error::shape(op, why, &[x.shape(), hx.shape(), w_ih.shape(), w_hh.shape()]));
    }
    let rows = w_ih.shape()[0];
    let good = sizes.iter().sum::<isize>() as usize == x.shape()[0]
        && sizes[0] as usize == hx.shape()[0]
        && x.shape()[1] == w_ih.shape()[1]
        && hx.shape()[1] == w_hh.shape()[1]
        && w_hh.shape()[0] == rows
        && rows.is_multiple_of(gates)
        && biases.iter().flatten().all(|b| b.shape() == [rows]);
    if !good {
        let why = format!("input, hidden state, weights and batch sizes {sizes:?} do not belong to one layer");
        return Err(Error::shape(op, why, &[x.shape(), hx.shape(), w_ih.shape(), w_hh.shape()]));
    }
    Ok(())
}

/// Runs `step(rows of the projected input, states)` over all steps. Rows leave (or, in reverse, enter) as sizes change.
fn over_steps(
    gx: &Tensor,
    first: &[&Tensor],
    sizes: &[isize],
    reverse: bool,
    step: impl Fn(&Tensor, &[Tensor]) -> Result<Vec<Tensor>>,
) -> Result<(Tensor, Vec<Tensor>)> {
    // Cut once: a gradient for each piece alone would cost a pass over all of them.
    let inputs = gx.split_with_sizes(sizes, 0)?;
    let mut order: Vec<usize> = collected(0..sizes.len())?;
    if reverse {
        order.reverse();
    }
    let mut rows = sizes[order[0]] as i64;
    let mut states: Vec<Tensor> = first.iter().map(|s| s.narrow(0, 0, rows)).collect::<Result<_>>()?;
    let mut done: Vec<Vec<Tensor>> = first.iter().map(|_| Vec::new()).collect();
    let mut outs: Vec<Option<Tensor>> = filled(None, sizes.len())?;
    for t in order {
        let now = sizes[t] as i64;
        if now != rows {
            for (i, s) in states.iter_mut().enumerate() {
                *s = if now < rows {
                    done[i].push(s.narrow(0, now, rows - now)?);
                    s.narrow(0, 0, now)?
                } else {
                    super::index::cat(&[s.clone(), first[i].narrow(0, rows, now - rows)?], 0)?
                };
            }
            rows = now;
        }
        states = step(&inputs[t], &states)?;
        outs[t] = Some(states[0].clone());
    }
    let outs: Vec<Tensor> = outs.into_iter().flatten().collect();
    let last = states
        .into_iter()
        .zip(done)
        .map(|(s, done)| match done.is_empty() {
            true => Ok(s),
            // The longest sequences come first; those that left last are next to them.
            false => super::index::cat(&std::iter::once(s).chain(done.into_iter().rev()).collect::<Vec<_>>(), 0),
        })
        .collect::<Result<_>>()?;
    Ok((super::index::cat(&outs, 0)?, last))
}

/// What a layer in one direction is computed from, once the products with its inputs are there.
pub(super) struct Operands<'a> {
    pub cell: RecurrentCell,
    /// `W_ih x` with the biases; of a GRU without `b_hh`.
    pub gates: &'a Tensor,
    pub hx: &'a Tensor,
    pub cx: Option<&'a Tensor>,
    pub w_hh: &'a Tensor,
    /// Of a GRU alone.
    pub b_hh: Option<&'a Tensor>,
    /// An LSTM's projection of its hidden states.
    pub projection: Option<&'a Tensor>,
    pub sizes: &'a [isize],
    pub reverse: bool,
}

impl Operands<'_> {
    /// The tensors, in the order of the primitive's inputs.
    pub(super) fn tensors(&self) -> SmallVec<[&Tensor; 5]> {
        [Some(self.gates), Some(self.hx), self.cx, Some(self.w_hh), self.b_hh].into_iter().flatten().collect()
    }

    fn run(&self) -> Result<Vec<Tensor>> {
        if recurrent::takes(self) {
            recurrent::run(self)
        } else {
            by_parts(self)
        }
    }
}

/// The hidden states of all steps, the last ones, and an LSTM's last cells, made of other ops.
pub(super) fn by_parts(x: &Operands<'_>) -> Result<Vec<Tensor>> {
    let first: SmallVec<[&Tensor; 2]> = std::iter::once(x.hx).chain(x.cx).collect();
    let (out, last) = over_steps(x.gates, &first, x.sizes, x.reverse, |gates, s| match x.cell {
        RecurrentCell::Tanh => Ok(vec![(gates + &linear(&s[0], x.w_hh, None)?)?.tanh()?]),
        RecurrentCell::Relu => Ok(vec![(gates + &linear(&s[0], x.w_hh, None)?)?.relu()?]),
        RecurrentCell::Lstm => lstm_step(x, gates, s),
        RecurrentCell::Gru => {
            let (a, b) = (gates.chunk(3, 1)?, linear(&s[0], x.w_hh, x.b_hh)?.chunk(3, 1)?);
            let (r, z) = ((&a[0] + &b[0])?.sigmoid()?, (&a[1] + &b[1])?.sigmoid()?);
            let n = (&a[2] + &(r * &b[2])?)?.tanh()?;
            // (1 - z) n + z h
            Ok(vec![(&n + &(z * &(&s[0] - &n)?)?)?])
        }
    })?;
    Ok(std::iter::once(out).chain(last).collect())
}

fn lstm_step(x: &Operands<'_>, gates: &Tensor, s: &[Tensor]) -> Result<Vec<Tensor>> {
    let gates = (gates + &linear(&s[0], x.w_hh, None)?)?.chunk(4, 1)?;
    let kept = (gates[1].sigmoid()? * &s[1])?;
    // One step's cells have a name of their own.
    OpScope::rename("lstm_cell", "lstm_cell_state");
    let c = (kept + &(gates[0].sigmoid()? * &gates[2].tanh()?)?)?;
    OpScope::rename("lstm_cell_state", "lstm_cell");
    let h = (gates[3].sigmoid()? * &c.tanh()?)?;
    let h = x.projection.map_or(Ok(h.clone()), |w| linear(&h, w, None))?;
    Ok(vec![h, c])
}

/// The products with the inputs, and both biases: what each step adds is added once.
fn gates_of(x: &Tensor, w_ih: &Tensor, b_ih: Option<&Tensor>, b_hh: Option<&Tensor>) -> Result<Tensor> {
    match (b_ih, b_hh) {
        (Some(a), Some(b)) => linear(x, w_ih, Some(&(a + b)?)),
        (a, b) => linear(x, w_ih, a.or(b)),
    }
}

#[allow(clippy::too_many_arguments)]
fn rnn_body(
    x: &Tensor,
    hx: &Tensor,
    sizes: &[isize],
    w_ih: &Tensor,
    w_hh: &Tensor,
    b_ih: Option<&Tensor>,
    b_hh: Option<&Tensor>,
    nonlinearity: &str,
    reverse: bool,
) -> Result<(Tensor, Tensor)> {
    const OP: &str = "rnn_sequence";
    check(OP, x, hx, sizes, w_ih, w_hh, [b_ih, b_hh], 1)?;
    let cell = match nonlinearity {
        "tanh" => RecurrentCell::Tanh,
        "relu" => RecurrentCell::Relu,
        other => return Err(Error::value(OP, format!("Unknown nonlinearity: {other}"))),
    };
    let gates = &gates_of(x, w_ih, b_ih, b_hh)?;
    let operands = Operands { cell, gates, hx, cx: None, w_hh, b_hh: None, projection: None, sizes, reverse };
    both(operands.run()?)
}

/// The states of all steps and the last ones.
fn both(made: Vec<Tensor>) -> Result<(Tensor, Tensor)> {
    let [all, last] = made.try_into().map_err(|_| Error::runtime("rnn_sequence", "expected two results"))?;
    Ok((all, last))
}

#[allow(clippy::too_many_arguments)]
fn lstm_body(
    x: &Tensor,
    hx: &Tensor,
    cx: &Tensor,
    sizes: &[isize],
    w_ih: &Tensor,
    w_hh: &Tensor,
    b_ih: Option<&Tensor>,
    b_hh: Option<&Tensor>,
    w_hr: Option<&Tensor>,
    reverse: bool,
) -> Result<Vec<Tensor>> {
    const OP: &str = "lstm_sequence";
    check(OP, x, hx, sizes, w_ih, w_hh, [b_ih, b_hh], 4)?;
    let hidden = w_ih.shape()[0] / 4;
    if cx.shape() != [hx.shape()[0], hidden] || w_hr.is_some_and(|w| w.shape() != [hx.shape()[1], hidden]) {
        let why = format!("expected cells of (batch, {hidden}), and a projection to the hidden state's size");
        return Err(Error::shape(OP, why, &[hx.shape(), cx.shape()]));
    }
    let gates = &gates_of(x, w_ih, b_ih, b_hh)?;
    let cell = RecurrentCell::Lstm;
    Operands { cell, gates, hx, cx: Some(cx), w_hh, b_hh: None, projection: w_hr, sizes, reverse }.run()
}

#[allow(clippy::too_many_arguments)]
fn gru_body(
    x: &Tensor,
    hx: &Tensor,
    sizes: &[isize],
    w_ih: &Tensor,
    w_hh: &Tensor,
    b_ih: Option<&Tensor>,
    b_hh: Option<&Tensor>,
    reverse: bool,
) -> Result<(Tensor, Tensor)> {
    check("gru_sequence", x, hx, sizes, w_ih, w_hh, [b_ih, b_hh], 3)?;
    let gates = &linear(x, w_ih, b_ih)?;
    let cell = RecurrentCell::Gru;
    both(Operands { cell, gates, hx, cx: None, w_hh, b_hh, projection: None, sizes, reverse }.run()?)
}
