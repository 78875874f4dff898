//! Optimizers: all parameters of a step in one backend call.
//!
//! `step` declares the kinds of step and runs them; `rules` holds their formulas, once, over an `algebra` that both
//! backends and the tape implement (`cpu/optim.rs`, `mlx/optim.rs`). `matrix` and
//! `lbfgs` have the steps that are made of tensor ops. [`Sgd`] and [`Adam`] keep the state for Rust.

mod algebra;
pub mod lbfgs;
pub mod matrix;
pub mod step;

pub use matrix::{run_matrix_steps, MatrixBatch, MatrixStep};
pub use step::{run_steps, run_steps_recorded, Batch, Step};

use crate::{no_grad, Result, Tensor};
use std::collections::BTreeMap;

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
        let buffers = params.iter().map(|_| None).collect();
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
            let step = step::Sgd { lr, momentum, dampening: 0.0, weight_decay, nesterov, maximize: false, first };
            run_steps(&[(Step::from(step), lists)])?;
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
        let batch = |(t, lists): (u64, Vec<Vec<Tensor>>)| {
            let step = step::Adam {
                lr,
                beta1: betas.0,
                beta2: betas.1,
                eps,
                weight_decay,
                decoupled_weight_decay: decoupled,
                amsgrad: false,
                maximize: false,
                t: t as f64,
            };
            (step.into(), lists)
        };
        run_steps(&by_step.into_iter().map(batch).collect::<Vec<_>>())
    }
}
