//! Recurrent layers and cells. A layer's direction is one op.

use super::module::located;
use super::options::{dtype_or_default, filled, options, uniform};
use super::{Module, Name, Nonlinearity, Place, Slot, SlotMut};
use crate::fallible::ensure_room;
use crate::ops::index::{cat, stack};
use crate::ops::{nn, rnn};
use crate::shape::numel;
use crate::{DType, Device, Error, Result, Tensor};

/// The weights of all layers and directions, in the order of their names.
#[derive(Clone, Debug)]
struct Weights(Vec<(String, Tensor)>);

impl Module for Weights {
    fn slots(&self) -> Vec<(Name, Slot<'_>)> {
        self.0.iter().map(|(name, t)| (name.clone().into(), Slot::Parameter(t))).collect()
    }
    fn slots_mut(&mut self) -> Vec<(Name, SlotMut<'_>)> {
        self.0.iter_mut().map(|(name, t)| (name.clone().into(), SlotMut::Parameter(t))).collect()
    }
}

/// One layer's direction: all states, then the last one (and the last cell).
struct Direction {
    out: Tensor,
    last: Vec<Tensor>,
}

/// The weights of one direction.
struct Own<'a> {
    w_ih: &'a Tensor,
    w_hh: &'a Tensor,
    b_ih: Option<&'a Tensor>,
    b_hh: Option<&'a Tensor>,
    w_hr: Option<&'a Tensor>,
}

/// What a recurrent layer computes in a step.
#[derive(Clone, Copy, Debug)]
enum Mode {
    Rnn(Nonlinearity),
    Lstm,
    Gru,
}

impl Mode {
    fn gates(self) -> usize {
        match self {
            Mode::Rnn(_) => 1,
            Mode::Lstm => 4,
            Mode::Gru => 3,
        }
    }

    fn run(self, x: &Tensor, hidden: &[Tensor], sizes: &[isize], w: &Own<'_>, reverse: bool) -> Result<Direction> {
        let Own { w_ih, w_hh, b_ih, b_hh, w_hr } = *w;
        let short = || Error::runtime("rnn", "a state is missing");
        let h = hidden.first().ok_or_else(short)?;
        let pair = |(out, last): (Tensor, Tensor)| Direction { out, last: vec![last] };
        match self {
            Mode::Rnn(kind) => rnn::rnn_sequence(x, h, sizes, w_ih, w_hh, b_ih, b_hh, kind, reverse).map(pair),
            Mode::Gru => rnn::gru_sequence(x, h, sizes, w_ih, w_hh, b_ih, b_hh, reverse).map(pair),
            Mode::Lstm => {
                let c = hidden.get(1).ok_or_else(short)?;
                let mut made = rnn::lstm_sequence(x, h, c, sizes, w_ih, w_hh, b_ih, b_hh, w_hr, reverse)?.into_iter();
                let out = made.next().ok_or_else(short)?;
                Ok(Direction { out, last: made.collect() })
            }
        }
    }
}

/// What recurrent layers share: the weights, and the way over layers, directions and steps.
#[derive(Clone, Debug, Module)]
struct Recurrent {
    #[module(flatten)]
    weights: Weights,
    #[module(skip)]
    mode: Mode,
    input_size: usize,
    hidden_size: usize,
    proj_size: usize,
    num_layers: usize,
    batch_first: bool,
    bias: bool,
    dropout: f64,
    bidirectional: bool,
    training: bool,
}

impl Recurrent {
    fn filled_in(mut self, dtype: Option<DType>, device: Device) -> Result<Recurrent> {
        let bad = |why: String| Err(Error::value("rnn", why));
        if self.input_size == 0 || self.hidden_size == 0 || self.num_layers == 0 {
            return bad("input_size, hidden_size and num_layers must be greater than zero".into());
        }
        if !(0.0..=1.0).contains(&self.dropout) {
            return bad(format!("dropout should be a number in range [0, 1], got {}", self.dropout));
        }
        if self.proj_size >= self.hidden_size {
            let why = "proj_size has to be smaller than hidden_size, got";
            return bad(format!("{why} {} and {}", self.proj_size, self.hidden_size));
        }
        let (dtype, bound) = (dtype_or_default(dtype), 1.0 / (self.hidden_size as f64).sqrt());
        // Sizes that no memory has saturate, and are refused where tensors of them are made.
        let (gates, state) = (numel(&[self.mode.gates(), self.hidden_size]), self.state_size());
        ensure_room(numel(&[self.num_layers, self.directions()]), size_of::<(String, Tensor)>())?;
        for layer in 0..self.num_layers {
            for direction in 0..self.directions() {
                let size = if layer == 0 { self.input_size } else { numel(&[state, self.directions()]) };
                let suffix = format!("_l{layer}{}", if direction == 1 { "_reverse" } else { "" });
                let mut add = |name: &str, shape: &[usize]| -> Result<()> {
                    self.weights.0.push((format!("{name}{suffix}"), uniform(shape, bound, dtype, device)?));
                    Ok(())
                };
                add("weight_ih", &[gates, size])?;
                add("weight_hh", &[gates, state])?;
                if self.bias {
                    add("bias_ih", &[gates])?;
                    add("bias_hh", &[gates])?;
                }
                if self.proj_size > 0 {
                    add("weight_hr", &[self.proj_size, self.hidden_size])?;
                }
            }
        }
        Ok(self)
    }

    fn directions(&self) -> usize {
        1 + usize::from(self.bidirectional)
    }

    fn state_size(&self) -> usize {
        if self.proj_size > 0 {
            self.proj_size
        } else {
            self.hidden_size
        }
    }

    /// The weights of a layer's direction, counted through.
    fn own(&self, at: usize) -> Result<Own<'_>> {
        let each = 2 + 2 * usize::from(self.bias) + usize::from(self.proj_size > 0);
        let list = self.weights.0.get(at * each..(at + 1) * each);
        let list = list.ok_or_else(|| Error::runtime("rnn", "a weight is missing"))?;
        let get = |i: usize| list.get(i).map(|(_, t)| t);
        let (Some(w_ih), Some(w_hh)) = (get(0), get(1)) else {
            return Err(Error::runtime("rnn", "a weight is missing"));
        };
        let (b_ih, b_hh) = if self.bias { (get(2), get(3)) } else { (None, None) };
        Ok(Own { w_ih, w_hh, b_ih, b_hh, w_hr: if self.proj_size > 0 { list.last().map(|(_, t)| t) } else { None } })
    }

    /// The last layer's states of all steps, and the last states (and cells) of every layer's direction.
    fn run(&self, input: &Tensor, states: Option<Vec<Tensor>>) -> Result<(Tensor, Vec<Tensor>)> {
        let bad = |why: String| Err(Error::shape("rnn", why, &[input.shape()]));
        if !matches!(input.ndim(), 2 | 3) {
            return bad(format!("expected input to be 2D or 3D, got {}D instead", input.ndim()));
        }
        let alone = input.ndim() == 2;
        let x = match (alone, self.batch_first) {
            (true, _) => input.unsqueeze(1)?,
            (false, true) => input.transpose(0, 1)?,
            (false, false) => input.clone(),
        };
        let (length, count, size) = (x.shape()[0], x.shape()[1], x.shape()[2]);
        if size != self.input_size {
            return bad(format!("input.size(-1) must be equal to input_size {}", self.input_size));
        }
        if length == 0 || count == 0 {
            return bad("expected sequences with steps, and at least one".into());
        }
        let layers = self.num_layers * self.directions();
        let wanted = match self.mode {
            Mode::Lstm => vec![self.state_size(), self.hidden_size],
            _ => vec![self.hidden_size],
        };
        let mut hidden = match states {
            None => {
                let zeros = |size: &usize| filled(&[layers, count, *size], 0.0, x.dtype(), x.device());
                wanted.iter().map(zeros).collect::<Result<Vec<_>>>()?
            }
            Some(states) if alone => states.iter().map(|s| s.unsqueeze(1)).collect::<Result<Vec<_>>>()?,
            Some(states) => states,
        };
        for (state, size) in hidden.iter().zip(&wanted) {
            if state.shape() != [layers, count, *size] {
                let why = format!("expected hidden size ({layers}, {count}, {size})");
                return Err(Error::shape("rnn", why, &[state.shape()]));
            }
        }
        let sizes: Vec<isize> = (0..length).map(|_| count as isize).collect();
        let mut rows = x.reshape(&[(length * count) as isize, size as isize])?;
        let mut lasts: Vec<Vec<Tensor>> = hidden.iter().map(|_| Vec::new()).collect();
        for layer in 0..self.num_layers {
            if layer > 0 && self.dropout > 0.0 && self.training {
                rows = nn::dropout(&rows, self.dropout, true, None)?;
            }
            let mut outs = Vec::new();
            for direction in 0..self.directions() {
                let at = layer * self.directions() + direction;
                let own = hidden.iter().map(|h| h.select(0, at as i64)).collect::<Result<Vec<_>>>()?;
                let made = self.mode.run(&rows, &own, &sizes, &self.own(at)?, direction == 1)?;
                lasts.iter_mut().zip(made.last).for_each(|(list, last)| list.push(last));
                outs.push(made.out);
            }
            rows = if let [one] = &outs[..] { one.clone() } else { cat(&outs, 1)? };
        }
        let wide = (self.state_size() * self.directions()) as isize;
        let out = rows.reshape(&[length as isize, count as isize, wide])?;
        let out = match (alone, self.batch_first) {
            (true, _) => out.squeeze(Some(&[1]))?,
            (false, true) => out.transpose(0, 1)?,
            (false, false) => out,
        };
        hidden = lasts.iter().map(|list| stack(list, 0)).collect::<Result<Vec<_>>>()?;
        if alone {
            hidden = hidden.iter().map(|h| h.squeeze(Some(&[1]))).collect::<Result<Vec<_>>>()?;
        }
        Ok((out, hidden))
    }
}

macro_rules! recurrent {
    ($($(#[$doc:meta])* $Name:ident $Options:ident $mode:expr, $proj:expr; { $($extra:tt)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Module)]
        pub struct $Name {
            #[module(flatten)]
            layers: Recurrent,
            place: Place,
        }

        options! {
            /// What the layers are made of.
            $Options for $Name (
                /// Size of each step's input.
                input_size: usize, usize;
                /// Size of the hidden state.
                hidden_size: usize, usize;
            )
            /// Layers on top of each other. Default: 1.
            num_layers: usize, usize = 1usize;
            /// Are biases added? Default: true.
            bias: bool, bool = true;
            /// Are sequences (N, L, …) rather than (L, N, …)? Default: false.
            batch_first: bool, bool = false;
            /// Probability of dropout between layers, in training. Default: 0.
            dropout: f64, f64 = 0.0;
            /// Does each layer run backwards, too? Default: false.
            bidirectional: bool, bool = false;
            $($extra)*
        }

        impl $Options {
            fn make(&self, device: Device) -> Result<$Name> {
                let layers = Recurrent {
                    weights: Weights(Vec::new()),
                    mode: $mode(self),
                    input_size: self.input_size,
                    hidden_size: self.hidden_size,
                    proj_size: $proj(self),
                    num_layers: self.num_layers,
                    batch_first: self.batch_first,
                    bias: self.bias,
                    dropout: self.dropout,
                    bidirectional: self.bidirectional,
                    training: true,
                };
                Ok($Name { layers: layers.filled_in(self.dtype, device)?, place: Place::default() })
            }
        }
    )*};
}
recurrent! {
    /// `h' = tanh(W_ih x + b_ih + W_hh h + b_hh)`, or with relu, over sequences (Elman, 1990).
    Rnn RnnOptions |o: &RnnOptions| Mode::Rnn(o.nonlinearity), |_: &RnnOptions| 0; {
        /// What the state goes through. Default: tanh.
        nonlinearity: Nonlinearity, Nonlinearity = Nonlinearity::Tanh;
    }
    /// A long short-term memory (Hochreiter and Schmidhuber, 1997) over sequences.
    Lstm LstmOptions |_: &LstmOptions| Mode::Lstm, |o: &LstmOptions| o.proj_size; {
        /// Size that the states are projected to; 0 for none. Default: 0.
        proj_size: usize, usize = 0usize;
    }
    /// A gated recurrent unit (Cho et al., 2014) over sequences.
    Gru GruOptions |_: &GruOptions| Mode::Gru, |_: &GruOptions| 0; {}
}

fn one(states: Vec<Tensor>) -> Result<Tensor> {
    states.into_iter().next().ok_or_else(|| Error::runtime("rnn", "a state is missing"))
}

macro_rules! single_state {
    ($($Name:ident)*) => {$(
        impl $Name {
            /// Runs over (L, N, in), (N, L, in) with `batch_first`, or (L, in), from the state (layers · directions, N,
            /// hidden), zeros where `None`. Gives the last layer's states of all steps, and every layer's last one.
            ///
            /// # Errors
            /// For shapes that do not fit.
            pub fn forward(&self, input: &Tensor, state: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
                located(self, || {
                    let (out, last) = self.layers.run(input, state.map(|h| vec![h.clone()]))?;
                    Ok((out, one(last)?))
                })
            }
        }
    )*};
}
single_state!(Rnn Gru);

impl Lstm {
    /// Runs over (L, N, in), (N, L, in) with `batch_first`, or (L, in), from state and cell (layers · directions, N, hidden),
    /// zeros where `None`. Gives the last layer's states of all steps, and every layer's last state and cell.
    ///
    /// # Errors
    /// For shapes that do not fit.
    pub fn forward(&self, input: &Tensor, state: Option<(&Tensor, &Tensor)>) -> Result<(Tensor, (Tensor, Tensor))> {
        located(self, || {
            let (out, last) = self.layers.run(input, state.map(|(h, c)| vec![h.clone(), c.clone()]))?;
            match <[Tensor; 2]>::try_from(last) {
                Ok([h, c]) => Ok((out, (h, c))),
                Err(_) => Err(Error::runtime("lstm", "a state is missing")),
            }
        })
    }
}

macro_rules! cells {
    ($($(#[$doc:meta])* $Name:ident $Options:ident $gates:literal { $($extra:tt)* } { $($field:ident: $Ty:ty)? })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Module)]
        pub struct $Name {
            /// (gates · hidden, in)
            pub weight_ih: Tensor,
            /// (gates · hidden, hidden)
            pub weight_hh: Tensor,
            /// (gates · hidden)
            pub bias_ih: Option<Tensor>,
            /// (gates · hidden)
            pub bias_hh: Option<Tensor>,
            $(#[module(skip)] $field: $Ty,)?
            place: Place,
        }

        options! {
            /// What the cell is made of.
            $Options for $Name (
                /// Size of each step's input.
                input_size: usize, usize;
                /// Size of the hidden state.
                hidden_size: usize, usize;
            )
            /// Are biases added? Default: true.
            bias: bool, bool = true;
            $($extra)*
        }

        impl $Options {
            fn make(&self, device: Device) -> Result<$Name> {
                let (dtype, bound) = (dtype_or_default(self.dtype), 1.0 / (self.hidden_size.max(1) as f64).sqrt());
                let rows = numel(&[$gates, self.hidden_size]);
                let weight = |columns: usize| uniform(&[rows, columns], bound, dtype, device);
                let bias = || self.bias.then(|| uniform(&[rows], bound, dtype, device)).transpose();
                Ok($Name {
                    weight_ih: weight(self.input_size)?,
                    weight_hh: weight(self.hidden_size)?,
                    bias_ih: bias()?,
                    bias_hh: bias()?,
                    $($field: self.$field,)?
                    place: Place::default(),
                })
            }
        }

        impl $Name {
            /// One step over (N, in) or (in), from these states (zeros where there are none).
            fn step(&self, mode: Mode, input: &Tensor, states: Vec<Tensor>, count: usize) -> Result<Vec<Tensor>> {
                let alone = input.ndim() == 1;
                if !matches!(input.ndim(), 1 | 2) {
                    let why = format!("expected input to be 1D or 2D, got {}D instead", input.ndim());
                    return Err(Error::shape("rnn_cell", why, &[input.shape()]));
                }
                let batch = |t: &Tensor| if alone { t.unsqueeze(0) } else { Ok(t.clone()) };
                let x = batch(input)?;
                let (n, hidden) = (x.shape()[0], self.weight_hh.shape()[1]);
                let states = match states.is_empty() {
                    true => (0..count).map(|_| filled(&[n, hidden], 0.0, x.dtype(), x.device())).collect(),
                    false => states.iter().map(batch).collect::<Result<Vec<_>>>(),
                }?;
                let own = Own {
                    w_ih: &self.weight_ih,
                    w_hh: &self.weight_hh,
                    b_ih: self.bias_ih.as_ref(),
                    b_hh: self.bias_hh.as_ref(),
                    w_hr: None,
                };
                let made = mode.run(&x, &states, &[n as isize], &own, false)?.last;
                made.into_iter().map(|t| if alone { t.squeeze(Some(&[0])) } else { Ok(t) }).collect()
            }
        }
    )*};
}
cells! {
    /// One step of an [`Rnn`].
    RnnCell RnnCellOptions 1 {
        /// What the state goes through. Default: tanh.
        nonlinearity: Nonlinearity, Nonlinearity = Nonlinearity::Tanh;
    } { nonlinearity: Nonlinearity }
    /// One step of an [`Lstm`].
    LstmCell LstmCellOptions 4 {} {}
    /// One step of a [`Gru`].
    GruCell GruCellOptions 3 {} {}
}

impl RnnCell {
    /// (N, in) and the state (N, hidden) to the next state.
    ///
    /// # Errors
    /// For shapes that do not fit.
    pub fn forward(&self, input: &Tensor, state: Option<&Tensor>) -> Result<Tensor> {
        let mode = Mode::Rnn(self.nonlinearity);
        located(self, || one(self.step(mode, input, state.cloned().into_iter().collect(), 1)?))
    }
}

impl GruCell {
    /// (N, in) and the state (N, hidden) to the next state.
    ///
    /// # Errors
    /// For shapes that do not fit.
    pub fn forward(&self, input: &Tensor, state: Option<&Tensor>) -> Result<Tensor> {
        located(self, || one(self.step(Mode::Gru, input, state.cloned().into_iter().collect(), 1)?))
    }
}

impl LstmCell {
    /// (N, in), state and cell (N, hidden) to the next state and cell.
    ///
    /// # Errors
    /// For shapes that do not fit.
    pub fn forward(&self, input: &Tensor, state: Option<(&Tensor, &Tensor)>) -> Result<(Tensor, Tensor)> {
        located(self, || {
            let states = state.map(|(h, c)| vec![h.clone(), c.clone()]).unwrap_or_default();
            match <[Tensor; 2]>::try_from(self.step(Mode::Lstm, input, states, 2)?) {
                Ok([h, c]) => Ok((h, c)),
                Err(_) => Err(Error::runtime("lstm_cell", "a state is missing")),
            }
        })
    }
}
