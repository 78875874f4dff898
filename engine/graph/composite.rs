//! Steps that a device runs in one pass over memory, such as the gradient through attention: the recorder notes which steps
//! stand for it, and a program runs the pass in their place.
//!
//! Depends on `dispatch`. Invariant: the steps stay in the graph, as the reference and for all other cases; where the pass
//! gives another layout than theirs they run.

use super::{Graph, Step, Value, Values};
use crate::{dispatch, Result, Tensor};
use smallvec::SmallVec;
use std::collections::{HashMap, HashSet};

/// The most steps that stand for a pass.
const MOST_STEPS: usize = 48;

/// What is done in one pass.
#[derive(Clone, Debug)]
pub enum OnePass {
    /// The gradient through attention without a mask, from the gradient, query, key and value to those three.
    AttentionGradient {
        /// Does no query see later keys?
        causal: bool,
        /// What scores are multiplied by.
        scale: f64,
    },
    /// A variance, in float64 only where float32 overflows: steps of a graph cannot ask, and take float64 in any case.
    Variance {
        /// Over which dimensions; all where `None`.
        dim: Option<SmallVec<[isize; 4]>>,
        /// What is less than the number of elements in the divisor.
        correction: f64,
        /// Are the dimensions kept?
        keepdim: bool,
    },
}

/// Steps that stand for something that a device can do in one pass.
#[derive(Clone, Debug)]
pub struct Composite {
    /// What.
    pub kind: OnePass,
    /// What it reads.
    pub inputs: Values,
    /// What it makes, where that is asked for.
    pub outputs: SmallVec<[Option<Value>; 3]>,
}

/// Values, with what they are.
pub type Results = SmallVec<[(Value, Tensor); 3]>;

impl Composite {
    /// Gives its values other numbers.
    pub(super) fn rename(&mut self, to: impl Fn(Value) -> Value) {
        self.inputs.iter_mut().for_each(|v| *v = to(*v));
        self.outputs.iter_mut().flatten().for_each(|v| *v = to(*v));
    }

    /// The steps between `start` and `end` that make the outputs and nothing that anybody else reads, as places from `start`
    /// on, in order; nothing where some output is made otherwise.
    #[allow(clippy::redundant_closure)] // It is made anew in each round.
    pub(super) fn steps(
        &self,
        graph: &Graph,
        readers: &HashMap<Value, SmallVec<[usize; 4]>>,
        made: &HashMap<Value, usize>,
        start: usize,
    ) -> Option<Vec<usize>> {
        let outputs: Values = self.outputs.iter().flatten().copied().collect();
        let mut found: HashSet<usize> = HashSet::new();
        let mut open: Vec<usize> = Vec::new();
        for output in &outputs {
            open.push(*made.get(output)?);
        }
        while let Some(at) = open.pop() {
            if !found.insert(at) {
                continue;
            }
            let pure = match &graph.steps[start + at] {
                Step::Op { key, .. } => key.is_none(),
                Step::View { .. } => true,
                Step::MultiOp { .. }
                | Step::Assign { .. }
                | Step::IndexInto { .. }
                | Step::Draw { .. }
                | Step::Eval { .. }
                | Step::Host { .. } => false,
            };
            if !pure || found.len() > MOST_STEPS {
                return None;
            }
            let inner = graph.steps[start + at].uses().into_iter().filter(|v| !self.inputs.contains(v));
            open.extend(inner.filter_map(|v| made.get(&v).copied()));
        }
        // What others read as well stays a step of its own, and with it what it is made of.
        loop {
            let seen = |&at: &usize| {
                let Some(out) = graph.steps[start + at].out() else { return true };
                if outputs.contains(&out) {
                    return false;
                }
                let outside = |r: &usize| r.checked_sub(start).is_none_or(|r| !found.contains(&r));
                graph.outputs.contains(&out) || readers.get(&out).is_some_and(|all| all.iter().any(outside))
            };
            let gone: Vec<usize> = found.iter().copied().filter(|at| seen(at)).collect();
            if gone.is_empty() {
                break;
            }
            for at in gone {
                found.remove(&at);
            }
        }
        let mut steps: Vec<usize> = found.into_iter().collect();
        steps.sort_unstable();
        Some(steps)
    }
}

/// A pass of a program.
#[derive(Debug)]
pub(super) struct Pass {
    pub composite: Composite,
    /// The steps that it stands for, in order.
    pub steps: Vec<usize>,
}

impl Pass {
    /// The outputs that are asked for; nothing where the steps have to run.
    pub fn run(&self, graph: &Graph, inputs: &[&Tensor]) -> Result<Option<Results>> {
        let asked = |i: usize| self.composite.outputs.get(i).is_some_and(Option::is_some);
        let made: SmallVec<[Option<Tensor>; 3]> = match (&self.composite.kind, inputs) {
            (OnePass::AttentionGradient { causal, scale }, &[_, _, _, _]) => {
                let asked = [asked(0), asked(1), asked(2)];
                let Some(made) = dispatch::attention_gradients(inputs, *causal, *scale, asked)? else {
                    return Ok(None);
                };
                made.into_iter().collect()
            }
            (OnePass::Variance { dim, correction, keepdim }, &[x]) => {
                let made = crate::ops::reduce::variance_alone(x, dim.as_deref(), *correction, *keepdim)?;
                std::iter::once(Some(made)).collect()
            }
            (OnePass::AttentionGradient { .. } | OnePass::Variance { .. }, _) => {
                return Ok(None);
            }
        };
        let mut given: SmallVec<[(Value, Tensor); 3]> = SmallVec::new();
        for (output, t) in self.composite.outputs.iter().zip(made) {
            let (Some(value), Some(t)) = (output, t) else { continue };
            let info = graph.info(*value)?;
            if t.shape() != &info.shape[..] || t.strides() != &info.strides[..] || t.dtype() != info.dtype {
                return Ok(None);
            }
            given.push((*value, t));
        }
        Ok(Some(given))
    }
}
