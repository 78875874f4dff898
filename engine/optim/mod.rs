//! Optimizers: all parameters of a step in one backend call.
//!
//! [`Step`] is what the backends implement (`cpu/optim.rs`, `gpu/optim.rs`); [`Sgd`] and [`Adam`] keep the state.

use crate::{dispatch, no_grad, Error, Result, Tensor};
use std::collections::BTreeMap;

/// One optimizer step, as the backends see it. The arrays of each parameter are listed in the variant's order.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Arrays: parameter, gradient, and the momentum buffer where `momentum` is not 0.
    ///
    /// `b = momentum · b + (1 - dampening) · g` (or `b = g` at the first step), then `p -= lr · b` (with Nesterov,
    /// `p -= lr · (g + momentum · b)`).
    Sgd {
        /// Learning rate.
        lr: f64,
        /// Momentum.
        momentum: f64,
        /// Dampening of the gradient's entry into the buffer.
        dampening: f64,
        /// L2 penalty, added to the gradient.
        weight_decay: f64,
        /// Nesterov's momentum?
        nesterov: bool,
        /// Ascend instead?
        maximize: bool,
        /// Is this the buffers' first step?
        first: bool,
    },
    /// Arrays: parameter, gradient, first moment, second moment, and its maximum where `amsgrad`.
    ///
    /// `m = β₁ m + (1 - β₁) g`, `v = β₂ v + (1 - β₂) g²`, `p -= lr / (1 - β₁ᵗ) · m / (√v / √(1 - β₂ᵗ) + eps)`
    /// (Kingma and Ba, 2015).
    Adam {
        /// Learning rate.
        lr: f64,
        /// Decay rates of the moments.
        betas: (f64, f64),
        /// Added to the denominator.
        eps: f64,
        /// Penalty.
        weight_decay: f64,
        /// Does the penalty shrink the parameter directly (AdamW; Loshchilov and Hutter, 2019)?
        decoupled: bool,
        /// Divide by the largest second moment so far (Reddi et al., 2018)?
        amsgrad: bool,
        /// Ascend instead?
        maximize: bool,
        /// Which step this is, from 1.
        t: u64,
    },
}

impl Step {
    fn name(&self) -> &'static str {
        match self {
            Step::Sgd { .. } => "sgd_step",
            Step::Adam { .. } => "adam_step",
        }
    }

    /// How many arrays each parameter brings.
    fn arity(&self) -> usize {
        match self {
            Step::Sgd { momentum, .. } => 2 + usize::from(*momentum != 0.0),
            Step::Adam { amsgrad, .. } => 4 + usize::from(*amsgrad),
        }
    }

    /// Runs the step over all parameters; `tensors` holds, per parameter, the arrays that the variant lists. Parameters and
    /// state are written in place, unseen by the tape. On the GPU the work is started and not waited for.
    ///
    /// # Errors
    /// Where a list has the wrong length, or its tensors differ in shape, dtype or device, or are not floating.
    pub fn run(&self, tensors: &[Vec<Tensor>]) -> Result<()> {
        let op = self.name();
        for list in tensors {
            self.check(op, list)?;
        }
        no_grad(|| {
            // Kernels walk plain rows of memory: what does not lie so takes part as a copy.
            let dense = |list: &Vec<Tensor>| list.iter().map(Tensor::contiguous).collect::<Result<Vec<_>>>();
            let lists: Vec<Vec<Tensor>> = tensors.iter().map(dense).collect::<Result<_>>()?;
            dispatch::step(op, self, &lists)?;
            for (own, used) in tensors.iter().flatten().zip(lists.iter().flatten()) {
                if !own.is_same(used) {
                    own.copy_(used)?;
                }
            }
            Ok(())
        })
    }

    fn check(&self, op: &'static str, list: &[Tensor]) -> Result<()> {
        let [param, rest @ ..] = list else {
            return Err(Error::runtime(op, "a parameter without arrays"));
        };
        if list.len() != self.arity() {
            let why = format!("expected {} arrays per parameter, got {}", self.arity(), list.len());
            return Err(Error::runtime(op, why));
        }
        if !param.dtype().is_float() {
            return Err(Error::dtype(op, "parameters must be of a floating dtype", &[param.dtype()]));
        }
        for t in rest {
            if t.shape() != param.shape() {
                return Err(Error::shape(
                    op,
                    "gradient and state must have the parameter's shape",
                    &[param.shape(), t.shape()],
                ));
            }
            if t.dtype() != param.dtype() {
                let why = "gradient and state must have the parameter's dtype";
                return Err(Error::dtype(op, why, &[param.dtype(), t.dtype()]));
            }
            if t.device() != param.device() {
                let why = "gradient and state must be on the parameter's device";
                return Err(Error::device(op, why, &[param.device(), t.device()]));
            }
        }
        Ok(())
    }
}

/// What every optimizer does.
pub trait Optimizer {
    /// Updates the parameters that have a gradient.
    ///
    /// # Errors
    /// What the backend reports.
    fn step(&mut self) -> Result<()>;

    /// The parameters.
    fn parameters(&self) -> &[Tensor];

    /// Forgets all gradients.
    ///
    /// # Errors
    /// None today; a `Result` so that it reads as the ops do.
    fn zero_grad(&self) -> Result<()> {
        self.parameters().iter().try_for_each(|p| p.set_grad(None))
    }
}

/// Stochastic gradient descent, with momentum as PyTorch has it.
///
/// ```
/// # use lucid::{optim::{Optimizer, Sgd}, Device, Tensor};
/// # fn main() -> lucid::Result<()> {
/// let w = Tensor::from_slice(&[1.0f32], &[1], Device::Cpu)?.requires_grad_(true)?;
/// let mut sgd = Sgd::new(vec![w.clone()], 0.1);
/// w.square()?.sum(None, false, None)?.backward()?;
/// sgd.step()?;
/// assert_eq!(w.to_vec::<f32>()?, [0.8]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Sgd {
    params: Vec<Tensor>,
    buffers: Vec<Option<Tensor>>,
    /// Learning rate.
    pub lr: f64,
    /// Momentum.
    pub momentum: f64,
    /// L2 penalty.
    pub weight_decay: f64,
    /// Nesterov's momentum?
    pub nesterov: bool,
}

impl Sgd {
    /// Plain gradient descent; set the other fields as needed.
    pub fn new(params: Vec<Tensor>, lr: f64) -> Sgd {
        let buffers = vec![None; params.len()];
        Sgd { params, buffers, lr, momentum: 0.0, weight_decay: 0.0, nesterov: false }
    }
}

impl Optimizer for Sgd {
    fn parameters(&self) -> &[Tensor] {
        &self.params
    }

    fn step(&mut self) -> Result<()> {
        // Parameters whose buffer is new take their gradient as it, so they step apart from the others.
        let (mut fresh, mut used) = (Vec::new(), Vec::new());
        for (p, buffer) in self.params.iter().zip(&mut self.buffers) {
            let Some(g) = p.grad() else { continue };
            if self.momentum == 0.0 {
                used.push(vec![p.clone(), g]);
                continue;
            }
            let lists = if buffer.is_none() { &mut fresh } else { &mut used };
            let b = match buffer {
                Some(b) => b.clone(),
                None => buffer.insert(no_grad(|| p.zeros_like())?).clone(),
            };
            lists.push(vec![p.clone(), g, b]);
        }
        for (first, lists) in [(true, fresh), (false, used)] {
            let &mut Sgd { lr, momentum, weight_decay, nesterov, .. } = self;
            Step::Sgd { lr, momentum, dampening: 0.0, weight_decay, nesterov, maximize: false, first }.run(&lists)?;
        }
        Ok(())
    }
}

/// Adam (Kingma and Ba, 2015), and AdamW (Loshchilov and Hutter, 2019) where `decoupled`.
#[derive(Debug)]
pub struct Adam {
    params: Vec<Tensor>,
    state: Vec<Option<Moments>>,
    /// Learning rate.
    pub lr: f64,
    /// Decay rates of the moments.
    pub betas: (f64, f64),
    /// Added to the denominator.
    pub eps: f64,
    /// Penalty.
    pub weight_decay: f64,
    /// Shrink parameters directly rather than through the gradient?
    pub decoupled: bool,
}

#[derive(Debug)]
struct Moments {
    first: Tensor,
    second: Tensor,
    steps: u64,
}

impl Adam {
    /// Adam with PyTorch's defaults; set the other fields as needed.
    pub fn new(params: Vec<Tensor>, lr: f64) -> Adam {
        let state = params.iter().map(|_| None).collect();
        Adam { params, state, lr, betas: (0.9, 0.999), eps: 1e-8, weight_decay: 0.0, decoupled: false }
    }
}

impl Optimizer for Adam {
    fn parameters(&self) -> &[Tensor] {
        &self.params
    }

    fn step(&mut self) -> Result<()> {
        let mut by_step: BTreeMap<u64, Vec<Vec<Tensor>>> = BTreeMap::new();
        for (p, state) in self.params.iter().zip(&mut self.state) {
            let Some(g) = p.grad() else { continue };
            if state.is_none() {
                let zeros = || no_grad(|| p.zeros_like());
                *state = Some(Moments { first: zeros()?, second: zeros()?, steps: 0 });
            }
            if let Some(m) = state {
                m.steps += 1;
                by_step.entry(m.steps).or_default().push(vec![p.clone(), g, m.first.clone(), m.second.clone()]);
            }
        }
        let &mut Adam { lr, betas, eps, weight_decay, decoupled, .. } = self;
        for (t, lists) in by_step {
            Step::Adam { lr, betas, eps, weight_decay, decoupled, amsgrad: false, maximize: false, t }.run(&lists)?;
        }
        Ok(())
    }
}
