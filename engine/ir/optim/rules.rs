//! The update formulas of all optimizers whose elements step on their own.
//!
//! Depends on `algebra` only. A rule is its constants, worked out once per step from the options in [`Step`], and the
//! formula, which is PyTorch's. Invariant: `update` reads and writes `state` in the order that its [`Step`] documents.

use super::algebra::Algebra;
use super::step::{self, Step};

/// A value or the algebra's error.
type Made<A> = std::result::Result<<A as Algebra>::V, <A as Algebra>::E>;

/// An update of every element by itself.
pub trait Rule: Copy + Sync {
    /// The parameter's new value, from the old one, the gradient and the state, which is brought up to date.
    fn update<A: Algebra>(&self, a: &A, p: A::V, g: A::V, state: &mut [A::V]) -> Made<A>;
}

/// What is done with a step's rule; `S` is the number of state arrays.
pub trait Visit {
    /// What is given back.
    type Out;
    /// Takes the rule.
    fn rule<R: Rule, const S: usize>(self, rule: R) -> Self::Out;
}

impl Step {
    /// Calls `v` with the rule of this step.
    pub fn visit<V: Visit>(&self, v: V) -> V::Out {
        match *self {
            Step::Sgd(s) if s.momentum == 0.0 => v.rule::<_, 0>(s),
            Step::Sgd(s) => v.rule::<_, 1>(s),
            Step::Adam(s) if s.amsgrad => v.rule::<_, 3>(Adam::new(s)),
            Step::Adam(s) => v.rule::<_, 2>(Adam::new(s)),
            Step::SparseAdam(s) => v.rule::<_, 2>(s),
            Step::Adagrad(s) => v.rule::<_, 1>(s),
            Step::Adadelta(s) => v.rule::<_, 2>(s),
            Step::Adamax(s) => v.rule::<_, 2>(Adamax { s, rate: s.lr / (1.0 - s.beta1.powf(s.t)) }),
            Step::NAdam(s) => v.rule::<_, 2>(NAdam::new(s)),
            Step::RAdam(s) => v.rule::<_, 2>(RAdam::new(s)),
            Step::RmsProp(s) => match usize::from(s.centered) + usize::from(s.momentum > 0.0) {
                0 => v.rule::<_, 1>(s),
                1 => v.rule::<_, 2>(s),
                _ => v.rule::<_, 3>(s),
            },
            Step::Rprop(s) => v.rule::<_, 2>(s),
            Step::Asgd(s) => v.rule::<_, 1>(s),
            Step::Lion(s) => v.rule::<_, 1>(s),
        }
    }
}

/// The gradient to go by: turned round to ascend, with the penalty's share.
#[inline(always)]
fn gradient<A: Algebra>(a: &A, maximize: bool, decay: f64, p: &A::V, g: A::V) -> Made<A> {
    let g = if maximize { a.neg(&g)? } else { g };
    if decay == 0.0 {
        return Ok(g);
    }
    a.axpy(&g, decay, p)
}

/// Penalty on gradient or parameter: the two of them, in this order.
#[inline(always)]
fn penalised<A: Algebra>(
    a: &A,
    (maximize, decay, decoupled, lr): (bool, f64, bool, f64),
    p: A::V,
    g: A::V,
) -> Result<(A::V, A::V), A::E> {
    if decay == 0.0 || !decoupled {
        let g = gradient(a, maximize, decay, &p, g)?;
        return Ok((p, g));
    }
    let g = gradient(a, maximize, 0.0, &p, g)?;
    Ok((a.times(&p, 1.0 - lr * decay)?, g))
}

/// First and second moment.
#[inline(always)]
fn moments<A: Algebra>(a: &A, (b1, b2): (f64, f64), g: &A::V, state: &mut [A::V]) -> Result<(), A::E> {
    state[0] = a.blend(&state[0], b1, g, 1.0 - b1)?;
    state[1] = a.blend(&state[1], b2, &a.square(g)?, 1.0 - b2)?;
    Ok(())
}

impl Rule for step::Sgd {
    #[inline(always)]
    fn update<A: Algebra>(&self, a: &A, p: A::V, g: A::V, state: &mut [A::V]) -> Made<A> {
        let mut g = gradient(a, self.maximize, self.weight_decay, &p, g)?;
        if let [b] = state {
            *b = if self.first { g.clone() } else { a.blend(b, self.momentum, &g, 1.0 - self.dampening)? };
            g = if self.nesterov { a.axpy(&g, self.momentum, b)? } else { b.clone() };
        }
        a.axpy(&p, -self.lr, &g)
    }
}

#[derive(Clone, Copy)]
struct Adam {
    s: step::Adam,
    /// `lr · √(1 - β₂ᵗ) / (1 - β₁ᵗ)`
    rate: f64,
    /// `eps · √(1 - β₂ᵗ)`
    eps: f64,
}

impl Adam {
    fn new(s: step::Adam) -> Adam {
        let correction = (1.0 - s.beta2.powf(s.t)).sqrt();
        Adam { s, rate: s.lr * correction / (1.0 - s.beta1.powf(s.t)), eps: s.eps * correction }
    }
}

impl Rule for Adam {
    #[inline(always)]
    fn update<A: Algebra>(&self, a: &A, p: A::V, g: A::V, state: &mut [A::V]) -> Made<A> {
        let s = &self.s;
        let (p, g) = penalised(a, (s.maximize, s.weight_decay, s.decoupled_weight_decay, s.lr), p, g)?;
        moments(a, (s.beta1, s.beta2), &g, state)?;
        if let [_, v, top] = state {
            *top = a.max(top, v)?;
        }
        // √(v / c) + eps, with c multiplied out of the fraction.
        let below = a.plus(&a.sqrt(&state[state.len() - 1])?, self.eps)?;
        a.sub(&p, &a.div(&a.times(&state[0], self.rate)?, &below)?)
    }
}

impl Rule for step::SparseAdam {
    #[inline(always)]
    fn update<A: Algebra>(&self, a: &A, p: A::V, g: A::V, state: &mut [A::V]) -> Made<A> {
        let g = gradient(a, self.maximize, 0.0, &p, g)?;
        state[0] = a.axpy(&state[0], 1.0 - self.beta1, &a.sub(&g, &state[0])?)?;
        state[1] = a.axpy(&state[1], 1.0 - self.beta2, &a.sub(&a.square(&g)?, &state[1])?)?;
        let rate = self.lr * (1.0 - self.beta2.powf(self.t)).sqrt() / (1.0 - self.beta1.powf(self.t));
        let below = a.plus(&a.sqrt(&state[1])?, self.eps)?;
        a.axpy(&p, -rate, &a.div(&state[0], &below)?)
    }
}

impl Rule for step::Adagrad {
    #[inline(always)]
    fn update<A: Algebra>(&self, a: &A, p: A::V, g: A::V, state: &mut [A::V]) -> Made<A> {
        let g = gradient(a, self.maximize, self.weight_decay, &p, g)?;
        state[0] = a.add(&state[0], &a.square(&g)?)?;
        let rate = self.lr / (1.0 + (self.t - 1.0) * self.lr_decay);
        let below = a.plus(&a.sqrt(&state[0])?, self.eps)?;
        a.sub(&p, &a.div(&a.times(&g, rate)?, &below)?)
    }
}

impl Rule for step::Adadelta {
    #[inline(always)]
    fn update<A: Algebra>(&self, a: &A, p: A::V, g: A::V, state: &mut [A::V]) -> Made<A> {
        let g = gradient(a, self.maximize, self.weight_decay, &p, g)?;
        state[0] = a.blend(&state[0], self.rho, &a.square(&g)?, 1.0 - self.rho)?;
        let ratio = a.div(&a.plus(&state[1], self.eps)?, &a.plus(&state[0], self.eps)?)?;
        let delta = a.mul(&a.sqrt(&ratio)?, &g)?;
        state[1] = a.blend(&state[1], self.rho, &a.square(&delta)?, 1.0 - self.rho)?;
        a.axpy(&p, -self.lr, &delta)
    }
}

#[derive(Clone, Copy)]
struct Adamax {
    s: step::Adamax,
    /// `lr / (1 - β₁ᵗ)`
    rate: f64,
}

impl Rule for Adamax {
    #[inline(always)]
    fn update<A: Algebra>(&self, a: &A, p: A::V, g: A::V, state: &mut [A::V]) -> Made<A> {
        let s = &self.s;
        let g = gradient(a, s.maximize, s.weight_decay, &p, g)?;
        state[0] = a.blend(&state[0], s.beta1, &g, 1.0 - s.beta1)?;
        state[1] = a.max(&a.times(&state[1], s.beta2)?, &a.plus(&a.abs(&g)?, s.eps)?)?;
        a.sub(&p, &a.div(&a.times(&state[0], self.rate)?, &state[1])?)
    }
}

#[derive(Clone, Copy)]
struct NAdam {
    s: step::NAdam,
    /// `√(1 - β₂ᵗ)`
    correction: f64,
    /// The gradient's share of the change, times `correction`.
    by_gradient: f64,
    /// The first moment's.
    by_moment: f64,
}

impl NAdam {
    fn new(s: step::NAdam) -> NAdam {
        let correction = (1.0 - s.beta2.powf(s.t)).sqrt();
        let by_gradient = s.lr * (1.0 - s.mu) / (1.0 - s.mu_product) * correction;
        let by_moment = s.lr * s.mu_next / (1.0 - s.mu_product * s.mu_next) * correction;
        NAdam { s, correction, by_gradient, by_moment }
    }
}

impl Rule for NAdam {
    #[inline(always)]
    fn update<A: Algebra>(&self, a: &A, p: A::V, g: A::V, state: &mut [A::V]) -> Made<A> {
        let s = &self.s;
        let (p, g) = penalised(a, (s.maximize, s.weight_decay, s.decoupled_weight_decay, s.lr), p, g)?;
        moments(a, (s.beta1, s.beta2), &g, state)?;
        let below = a.plus(&a.sqrt(&state[1])?, s.eps * self.correction)?;
        let above = a.blend(&g, self.by_gradient, &state[0], self.by_moment)?;
        a.sub(&p, &a.div(&above, &below)?)
    }
}

#[derive(Clone, Copy)]
struct RAdam {
    s: step::RAdam,
    /// The step's length, with all corrections in it.
    rate: f64,
    /// Is the variance known well enough to divide by it?
    rectified: bool,
}

impl RAdam {
    fn new(s: step::RAdam) -> RAdam {
        let (c1, c2) = (1.0 - s.beta1.powf(s.t), 1.0 - s.beta2.powf(s.t));
        let most = 2.0 / (1.0 - s.beta2) - 1.0;
        let now = most - 2.0 * s.t * s.beta2.powf(s.t) / c2;
        let rectified = now > 5.0;
        let rect = (now - 4.0) * (now - 2.0) * most / ((most - 4.0) * (most - 2.0) * now);
        RAdam { s, rate: if rectified { s.lr / c1 * (rect * c2).sqrt() } else { s.lr / c1 }, rectified }
    }
}

impl Rule for RAdam {
    #[inline(always)]
    fn update<A: Algebra>(&self, a: &A, p: A::V, g: A::V, state: &mut [A::V]) -> Made<A> {
        let s = &self.s;
        let (p, g) = penalised(a, (s.maximize, s.weight_decay, s.decoupled_weight_decay, s.lr), p, g)?;
        moments(a, (s.beta1, s.beta2), &g, state)?;
        if !self.rectified {
            return a.axpy(&p, -self.rate, &state[0]);
        }
        let below = a.plus(&a.sqrt(&state[1])?, s.eps)?;
        a.sub(&p, &a.div(&a.times(&state[0], self.rate)?, &below)?)
    }
}

impl Rule for step::RmsProp {
    #[inline(always)]
    fn update<A: Algebra>(&self, a: &A, p: A::V, g: A::V, state: &mut [A::V]) -> Made<A> {
        let g = gradient(a, self.maximize, self.weight_decay, &p, g)?;
        state[0] = a.blend(&state[0], self.alpha, &a.square(&g)?, 1.0 - self.alpha)?;
        let variance = if self.centered {
            state[1] = a.blend(&state[1], self.alpha, &g, 1.0 - self.alpha)?;
            a.sub(&state[0], &a.square(&state[1])?)?
        } else {
            state[0].clone()
        };
        let below = a.plus(&a.sqrt(&variance)?, self.eps)?;
        if self.momentum <= 0.0 {
            return a.sub(&p, &a.div(&a.times(&g, self.lr)?, &below)?);
        }
        let buffer = &mut state[1 + usize::from(self.centered)];
        *buffer = a.add(&a.times(buffer, self.momentum)?, &a.div(&g, &below)?)?;
        a.axpy(&p, -self.lr, buffer)
    }
}

impl Rule for step::Rprop {
    #[inline(always)]
    fn update<A: Algebra>(&self, a: &A, p: A::V, g: A::V, state: &mut [A::V]) -> Made<A> {
        let g = gradient(a, self.maximize, 0.0, &p, g)?;
        let sign = a.sign(&a.mul(&g, &state[0])?)?;
        let factor = a.by_sign(&sign, self.eta_minus, self.eta_plus)?;
        state[1] = a.clamp(&a.mul(&state[1], &factor)?, self.step_min, self.step_max)?;
        state[0] = a.unless_negative(&sign, &g)?;
        a.sub(&p, &a.mul(&a.sign(&state[0])?, &state[1])?)
    }
}

impl Rule for step::Asgd {
    #[inline(always)]
    fn update<A: Algebra>(&self, a: &A, p: A::V, g: A::V, state: &mut [A::V]) -> Made<A> {
        let g = gradient(a, self.maximize, self.weight_decay, &p, g)?;
        let p = a.axpy(&a.times(&p, 1.0 - self.lambd * self.eta)?, -self.eta, &g)?;
        state[0] = if self.mu == 1.0 { p.clone() } else { a.blend(&state[0], 1.0 - self.mu, &p, self.mu)? };
        Ok(p)
    }
}

impl Rule for step::Lion {
    #[inline(always)]
    fn update<A: Algebra>(&self, a: &A, p: A::V, g: A::V, state: &mut [A::V]) -> Made<A> {
        let (p, g) = penalised(a, (self.maximize, self.weight_decay, true, self.lr), p, g)?;
        let direction = a.sign(&a.blend(&state[0], self.beta1, &g, 1.0 - self.beta1)?)?;
        state[0] = a.blend(&state[0], self.beta2, &g, 1.0 - self.beta2)?;
        a.axpy(&p, -self.lr, &direction)
    }
}
