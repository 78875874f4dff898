//! Optimizer steps: the new values of all parameters and of their state, in one graph and one evaluation.
//!
//! Depends on `array`, `align`, `convert` and mlx-ffi, and on `optim` for the formulas. 16-bit floats are computed with in
//! float32, as on the CPU. Invariant: nothing is written before all is recorded.

use super::align::align;
use super::array::{GpuArray, Perm, Value};
use super::convert::{constant, dtype};
use super::fault::{Fault, Made};
use super::lazy;
use crate::optim::algebra::{is_half, Algebra};
use crate::optim::rules::{Rule, Visit};
use crate::optim::Step;
use crate::{DType, Error};
use mlx_ffi::{ops, transforms, Array};
use smallvec::SmallVec;

/// The arrays of one parameter, all in one order of axes.
type Slots = SmallVec<[Array; 5]>;

pub(super) fn steps(batches: &[(Step, Vec<Vec<&GpuArray>>)]) -> Made<()> {
    let mut results = Vec::new();
    for (step, lists) in batches {
        for list in lists {
            if list.len() != step.arity() {
                let why = format!("{} does not take {} arrays per parameter", step.name(), list.len());
                return Err(Error::runtime("step", why).into());
            }
            let (slots, perm, element) = open(list)?;
            let wide = if is_half(element) { DType::F32 } else { element };
            let mut new = step.visit(One { slots, graph: Graph(wide) })?;
            if wide != element {
                let narrow = dtype(element)?;
                new = new.iter().map(|a| Ok(ops::astype(a, narrow)?)).collect::<Made<_>>()?;
            }
            results.push((list, new, perm));
        }
    }
    let mut fresh: Vec<Array> = Vec::new();
    for (list, new, perm) in results {
        // The gradient, second in the list, stays as it is.
        let targets = list.iter().enumerate().filter(|(i, _)| *i != 1).map(|(_, t)| t);
        for (target, array) in targets.zip(new) {
            fresh.push(array.clone());
            target.replace(Value::new(array, perm.clone()))?;
        }
    }
    transforms::async_eval(&fresh.iter().collect::<Vec<_>>())?;
    lazy::settle();
    Ok(())
}

fn open(list: &[&GpuArray]) -> Made<(Slots, Option<Perm>, DType)> {
    let Some(first) = list.first() else {
        return Err(Error::runtime("step", "a parameter without arrays").into());
    };
    let element = first.element();
    let held = list.iter().map(|t| t.value()).collect::<Made<SmallVec<[_; 5]>>>()?;
    let values: SmallVec<[&Value; 5]> = held.iter().map(|v| &**v).collect();
    let (arrays, perm) = align(&values, first.ndim())?;
    let wide = |a: Array| if is_half(element) { ops::astype(&a, mlx_ffi::Dtype::Float32) } else { Ok(a) };
    let slots = arrays.into_iter().map(|a| Ok(wide(a.into_owned())?)).collect::<Made<_>>()?;
    Ok((slots, perm, element))
}

/// A parameter with its gradient and state, to be stepped.
struct One {
    slots: Slots,
    graph: Graph,
}

impl Visit for One {
    type Out = Made<Slots>;

    fn rule<R: Rule, const S: usize>(self, rule: R) -> Made<Slots> {
        let [p, g, state @ ..] = self.slots.as_slice() else {
            return Err(Error::runtime("step", "a parameter without a gradient").into());
        };
        let mut state: Slots = state.iter().cloned().collect();
        let p = rule.update(&self.graph, p.clone(), g.clone(), &mut state)?;
        state.insert(0, p);
        Ok(state)
    }
}

/// MLX's lazy arrays, with constants of one dtype.
struct Graph(DType);

impl Algebra for Graph {
    type V = Array;
    type E = Fault;

    fn add(&self, a: &Array, b: &Array) -> Made<Array> {
        Ok(ops::add(a, b)?)
    }
    fn sub(&self, a: &Array, b: &Array) -> Made<Array> {
        Ok(ops::subtract(a, b)?)
    }
    fn mul(&self, a: &Array, b: &Array) -> Made<Array> {
        Ok(ops::multiply(a, b)?)
    }
    fn div(&self, a: &Array, b: &Array) -> Made<Array> {
        Ok(ops::divide(a, b)?)
    }
    fn max(&self, a: &Array, b: &Array) -> Made<Array> {
        Ok(ops::maximum(a, b)?)
    }
    fn times(&self, a: &Array, c: f64) -> Made<Array> {
        match c {
            1.0 => Ok(a.clone()),
            -1.0 => Ok(ops::negative(a)?),
            c => Ok(ops::multiply(a, &constant(c, self.0)?)?),
        }
    }
    fn plus(&self, a: &Array, c: f64) -> Made<Array> {
        match c {
            0.0 => Ok(a.clone()),
            c => Ok(ops::add(a, &constant(c, self.0)?)?),
        }
    }
    fn neg(&self, a: &Array) -> Made<Array> {
        Ok(ops::negative(a)?)
    }
    fn abs(&self, a: &Array) -> Made<Array> {
        Ok(ops::abs(a)?)
    }
    fn sqrt(&self, a: &Array) -> Made<Array> {
        Ok(ops::sqrt(a)?)
    }
    fn square(&self, a: &Array) -> Made<Array> {
        Ok(ops::square(a)?)
    }
    fn sign(&self, a: &Array) -> Made<Array> {
        Ok(ops::sign(a)?)
    }
    fn clamp(&self, a: &Array, low: f64, high: f64) -> Made<Array> {
        Ok(ops::minimum(&ops::maximum(a, &constant(low, self.0)?)?, &constant(high, self.0)?)?)
    }
    fn by_sign(&self, s: &Array, below: f64, above: f64) -> Made<Array> {
        let zero = constant(0.0, self.0)?;
        let rest = ops::where_(&ops::greater(s, &zero)?, &constant(above, self.0)?, &constant(1.0, self.0)?)?;
        Ok(ops::where_(&ops::less(s, &zero)?, &constant(below, self.0)?, &rest)?)
    }
    fn unless_negative(&self, s: &Array, a: &Array) -> Made<Array> {
        let zero = constant(0.0, self.0)?;
        Ok(ops::where_(&ops::less(s, &zero)?, &zero, a)?)
    }
}
