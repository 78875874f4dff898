//! Recurrent layers: the rows of the family, and the primitives that they make, each with all results of a layer's steps.

use super::macros::define_primitives;
use crate::primitive::Metas;
use crate::{DType, Meta};

/// What a step of a recurrent layer computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecurrentCell {
    /// `h' = tanh(gates)`.
    Tanh,
    /// `h' = relu(gates)`.
    Relu,
    /// A long short-term memory, gates in the order i, f, g, o.
    Lstm,
    /// A gated recurrent unit, gates in the order r, z, n.
    Gru,
}

impl RecurrentCell {
    /// The cell of this name.
    pub fn named(name: &str) -> Option<RecurrentCell> {
        match name {
            "tanh" => Some(RecurrentCell::Tanh),
            "relu" => Some(RecurrentCell::Relu),
            "lstm" => Some(RecurrentCell::Lstm),
            "gru" => Some(RecurrentCell::Gru),
            _ => None,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            RecurrentCell::Tanh => "tanh",
            RecurrentCell::Relu => "relu",
            RecurrentCell::Lstm => "lstm",
            RecurrentCell::Gru => "gru",
        }
    }

    /// Rows of the weights for each hidden unit.
    pub fn gates(self) -> usize {
        match self {
            RecurrentCell::Tanh | RecurrentCell::Relu => 1,
            RecurrentCell::Lstm => 4,
            RecurrentCell::Gru => 3,
        }
    }

    /// Numbers for each hidden unit that the gradient reads beside the states: the gates, and a GRU's `W_hh h + b_hh` of n.
    pub fn activations(self) -> usize {
        match self {
            RecurrentCell::Tanh | RecurrentCell::Relu => 0,
            RecurrentCell::Lstm | RecurrentCell::Gru => 4,
        }
    }

    /// Gradients for each hidden unit that a step gives: of the gates' sums, and of a GRU's `W_hh h + b_hh` of n.
    pub fn gate_gradients(self) -> usize {
        self.gates().max(self.activations())
    }

    /// Has it cells beside its hidden states?
    pub fn has_cells(self) -> bool {
        self == RecurrentCell::Lstm
    }
}

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! recurrent_ops {
    ($cb:ident) => { $crate::rows! { $cb "recurrent" RecurrentOp :
        /// All steps of a recurrent layer in one direction. `gates` (rows, gates · hidden) has the products with the
        /// inputs of all steps, packed; `w_hh` is (gates · hidden, hidden), `hx` and `cx` (batch, hidden). `b_hh` is
        /// added to `W_hh h`, of a GRU alone. Gives the hidden states of all steps (rows, hidden), the last ones, and
        /// an LSTM's last cells; with `save` what the gradient reads, too: the hidden states once more, an LSTM's cells
        /// of all steps, and the activations of its gates or a GRU's.
        function recurrent(
            gates: Tensor, hx: Tensor, cx: OptTensor, w_hh: Tensor, b_hh: OptTensor, batch_sizes: Dims, cell: Text,
            reverse: Bool = false, save: Bool = false
        ) -> Tensors {
            out: none, flags: [internal], amp: Low, dtypes: FLOAT, result: Same,
            primitive: Forward { cell: RecurrentCell, sizes: std::sync::Arc<[usize]>, reverse: bool, save: bool },
            saves: Recurrent, gradient: |c, g| all layer_gradient(c, *cell, sizes, *reverse),
            run: body, torch: "-",
            samples: [],
            example: [
                "let (gates, h, w) = (tensor([[1.0], [2.0]])?, tensor([[0.0]])?, tensor([[1.0]])?);",
                r#"let states = recurrent(&gates, &h, None, &w, None, &[1, 1], RecurrentCell::Relu, false, false)?;"#,
                "assert_close(&states[0], [[1.0], [3.0]]);",
                "assert_close(&states[1], [[3.0]]);",
            ],
        }
        /// The gradient through [`recurrent`]: from the gradients `grad` (rows, hidden) of all hidden states,
        /// `grad_h` of the last ones and `grad_c` of the last cells, and from what [`recurrent`] gave with `save`
        /// behind them. Gives the gradients of the gates' sums (rows, gates · hidden; of a GRU beside them that of
        /// `W_hh h + b_hh` of n), of `hx`, and of `cx`.
        function recurrent_gradient(
            grad: Tensor, grad_h: Tensor, grad_c: OptTensor, saved: Tensors, hx: Tensor, cx: OptTensor, w_hh: Tensor,
            batch_sizes: Dims, cell: Text, reverse: Bool = false
        ) -> Tensors {
            out: none, flags: [internal], amp: Own, dtypes: FLOAT, result: Same,
            primitive: Gradient { cell: RecurrentCell, sizes: std::sync::Arc<[usize]>, reverse: bool }, gradient: none,
            run: gradient_body, torch: "-",
            samples: [],
            example: [
                "let (g, h, w) = (tensor([[1.0], [1.0]])?, tensor([[0.0]])?, tensor([[1.0]])?);",
                "let states = tensor([[1.0], [3.0]])?;",
                r#"let made = recurrent_gradient(&g, &h, None, &[states], &h, None, &w, &[1, 1], RecurrentCell::Relu, false)?;"#,
                "assert_close(&made[0], [[2.0], [1.0]]);",
                "assert_close(&made[1], [[2.0]]);",
            ],
        }
    }};
}
recurrent_ops!(define_primitives);

impl RecurrentOp {
    /// Its results, for states of so many sequences and elements: their shapes are matrices of one dtype.
    pub fn results(&self, batch: usize, hidden: usize, dtype: DType) -> Metas {
        let part = |rows: usize, blocks: usize| Meta::new(&[rows, hidden.saturating_mul(blocks)], dtype);
        let (cell, RecurrentOp::Forward { sizes, .. } | RecurrentOp::Gradient { sizes, .. }) = (self.cell(), self);
        let rows = sizes.iter().fold(0, |sum: usize, &n| sum.saturating_add(n));
        let (cells, kept) = (usize::from(cell.has_cells()), cell.activations());
        let mut made = Metas::new();
        match self {
            RecurrentOp::Forward { save, .. } => {
                made.push(part(rows, 1));
                made.extend((0..1 + cells).map(|_| part(batch, 1)));
                if *save {
                    made.extend((0..1 + cells).map(|_| part(rows, 1)));
                    made.extend((kept > 0).then(|| part(rows, kept)));
                }
            }
            RecurrentOp::Gradient { .. } => {
                made.push(part(rows, cell.gate_gradients()));
                made.extend((0..1 + cells).map(|_| part(batch, 1)));
            }
        }
        made
    }

    /// Are inputs of these shapes those of one layer?
    pub fn takes(&self, inputs: &[&[usize]]) -> bool {
        let (cell, RecurrentOp::Forward { sizes, .. } | RecurrentOp::Gradient { sizes, .. }) = (self.cell(), self);
        let (hx, cells) = (self.before_states(), usize::from(cell.has_cells()));
        let Some(&&[batch, hidden]) = inputs.get(hx) else { return false };
        let falling = sizes.windows(2).all(|w| w[1] <= w[0]) && sizes.iter().all(|&n| n > 0);
        let rows = sizes.iter().try_fold(0usize, |sum, &n| sum.checked_add(n));
        let (Some(rows), true) = (rows, falling && sizes.first() == Some(&batch) && hidden > 0) else { return false };
        let wide = |blocks: usize| hidden.saturating_mul(blocks);
        let are = |which: std::ops::Range<usize>, shape: &[usize]| {
            inputs.get(which).is_some_and(|inputs| inputs.iter().all(|input| *input == shape))
        };
        let states = are(hx..hx + 1 + cells, &[batch, hidden]);
        let weight = are(hx + 1 + cells..hx + 2 + cells, &[wide(cell.gates()), hidden]);
        states
            && weight
            && match self {
                RecurrentOp::Forward { .. } => {
                    let bias = cell == RecurrentCell::Gru && are(hx + 2 + cells..hx + 3 + cells, &[wide(cell.gates())]);
                    are(0..1, &[rows, wide(cell.gates())])
                        && (inputs.len() == hx + 2 + cells || bias && inputs.len() == hx + 3 + cells)
                }
                RecurrentOp::Gradient { .. } => {
                    are(0..1, &[rows, hidden])
                        && are(1..2 + cells, &[batch, hidden])
                        && are(2 + cells..3 + 2 * cells, &[rows, hidden])
                        && are(3 + 2 * cells..hx, &[rows, wide(cell.activations())])
                        && inputs.len() == hx + 2 + cells
                }
            }
    }

    /// What its steps compute.
    pub fn cell(&self) -> RecurrentCell {
        match self {
            RecurrentOp::Forward { cell, .. } | RecurrentOp::Gradient { cell, .. } => *cell,
        }
    }

    /// How many inputs there are before the first states: the gates; or the gradients of the results, and what was saved.
    pub fn before_states(&self) -> usize {
        let cells = usize::from(self.cell().has_cells());
        match self {
            RecurrentOp::Forward { .. } => 1,
            RecurrentOp::Gradient { cell, .. } => 2 + cells + 1 + cells + usize::from(cell.activations() > 0),
        }
    }
}
