//! Optimizer steps: the new values of all parameters and of their state, in one graph and one evaluation.
//!
//! Depends on `array`, `align`, `convert` and mlx-ffi. Invariant: formulas are PyTorch's; constants are folded on the host,
//! so that each costs one operation at most.

use super::align::align;
use super::array::{GpuArray, Perm, Value};
use super::convert::constant;
use super::fault::Made;
use super::lazy;
use crate::optim::Step;
use crate::{DType, Error};
use mlx_ffi::{ops, transforms, Array};
use smallvec::SmallVec;

/// The arrays of one parameter, all in one order of axes.
type Slots = SmallVec<[Array; 5]>;

pub(super) fn step(step: &Step, tensors: &[Vec<&GpuArray>]) -> Made<()> {
    let mut results = Vec::with_capacity(tensors.len());
    for list in tensors {
        let (slots, perm, dtype) = open(list)?;
        let new = match step {
            Step::Sgd { .. } => sgd(step, &slots, dtype)?,
            Step::Adam { .. } => adam(step, &slots, dtype)?,
        };
        results.push((list, new, perm));
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
    let held = list.iter().map(|t| t.value()).collect::<Made<SmallVec<[_; 5]>>>()?;
    let values: SmallVec<[&Value; 5]> = held.iter().map(|v| &**v).collect();
    let (arrays, perm) = align(&values, first.ndim())?;
    Ok((arrays.into_iter().map(|a| a.into_owned()).collect(), perm, first.element()))
}

fn wrong(what: &str, n: usize) -> super::fault::Fault {
    Error::runtime("step", format!("{what} does not take {n} arrays per parameter")).into()
}

/// `x * c`, less the multiplication by one.
fn times(x: &Array, c: f64, dtype: DType) -> Made<Array> {
    match c {
        1.0 => Ok(x.clone()),
        -1.0 => Ok(ops::negative(x)?),
        c => Ok(ops::multiply(x, &constant(c, dtype)?)?),
    }
}

/// The new parameter and the new momentum buffer.
fn sgd(step: &Step, slots: &[Array], dtype: DType) -> Made<Slots> {
    let Step::Sgd { lr, momentum, dampening, weight_decay, nesterov, maximize, first } = *step else {
        return Err(wrong("sgd", slots.len()));
    };
    let (p, g, buffer) = match slots {
        [p, g] if momentum == 0.0 => (p, g, None),
        [p, g, b] => (p, g, Some(b)),
        other => return Err(wrong("sgd", other.len())),
    };
    let mut g = if maximize { ops::negative(g)? } else { g.clone() };
    if weight_decay != 0.0 {
        g = ops::add(&g, &times(p, weight_decay, dtype)?)?;
    }
    let mut new = Slots::new();
    if let Some(b) = buffer {
        let b = match first {
            true => g.clone(),
            false => ops::add(&times(b, momentum, dtype)?, &times(&g, 1.0 - dampening, dtype)?)?,
        };
        g = if nesterov { ops::add(&g, &times(&b, momentum, dtype)?)? } else { b.clone() };
        new.push(b);
    }
    new.insert(0, ops::subtract(p, &times(&g, lr, dtype)?)?);
    Ok(new)
}

/// The new parameter, its moments, and the largest second moment.
fn adam(step: &Step, slots: &[Array], dtype: DType) -> Made<Slots> {
    let Step::Adam { lr, betas: (b1, b2), eps, weight_decay, decoupled, amsgrad, maximize, t } = *step else {
        return Err(wrong("adam", slots.len()));
    };
    let (p, g, m, v, top) = match slots {
        [p, g, m, v] if !amsgrad => (p, g, m, v, None),
        [p, g, m, v, top] if amsgrad => (p, g, m, v, Some(top)),
        other => return Err(wrong("adam", other.len())),
    };
    let mut g = if maximize { ops::negative(g)? } else { g.clone() };
    let mut p = p.clone();
    if weight_decay != 0.0 {
        match decoupled {
            true => p = times(&p, 1.0 - lr * weight_decay, dtype)?,
            false => g = ops::add(&g, &times(&p, weight_decay, dtype)?)?,
        }
    }
    let m = ops::add(&times(m, b1, dtype)?, &times(&g, 1.0 - b1, dtype)?)?;
    let v = ops::add(&times(v, b2, dtype)?, &times(&ops::square(&g)?, 1.0 - b2, dtype)?)?;
    let top = top.map(|top| ops::maximum(top, &v)).transpose()?;
    // lr / c₁ · m / (√v / √c₂ + eps), with √c₂ multiplied out of the denominator.
    let t = t as i32;
    let (c1, c2) = (1.0 - b1.powi(t), (1.0 - b2.powi(t)).sqrt());
    let below = ops::add(&ops::sqrt(top.as_ref().unwrap_or(&v))?, &constant(eps * c2, dtype)?)?;
    let change = ops::divide(&times(&m, lr * c2 / c1, dtype)?, &below)?;
    let mut new: Slots = [ops::subtract(&p, &change)?, m, v].into_iter().collect();
    new.extend(top);
    Ok(new)
}
