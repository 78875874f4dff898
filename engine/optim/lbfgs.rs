//! What L-BFGS does with vectors: the gradient of all parameters as one, the direction of a step, movement along it.
//!
//! Written in tensor ops, unseen by the tape; each function is one call for all parameters. The decisions (when to stop,
//! how far to go) are the caller's, who calls the loss. Invariant: no function looks at a number that it does not return,
//! so on the GPU each waits once at most.

use crate::ops::index::{cat, stack};
use crate::ops::view::view_as_real;
use crate::{no_grad, DType, Error, Result, Tensor};

/// The last changes of the gradient and of the parameters, oldest first, from which the direction follows.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// Changes of the gradient.
    pub changes: Vec<Tensor>,
    /// Changes of the parameters.
    pub steps: Vec<Tensor>,
    /// `1 / (change · step)`, per pair.
    pub inverses: Vec<Tensor>,
    /// What the inverse Hessian's first guess multiplies by; 1 where there is none.
    pub scale: Option<Tensor>,
}

impl History {
    /// The lists with the names that PyTorch saves them by.
    pub(super) fn named(&self) -> [(&'static str, &Vec<Tensor>); 3] {
        [("old_dirs", &self.changes), ("old_stps", &self.steps), ("ro", &self.inverses)]
    }

    /// The same, to fill.
    pub(super) fn named_mut(&mut self) -> [(&'static str, &mut Vec<Tensor>); 3] {
        [("old_dirs", &mut self.changes), ("old_stps", &mut self.steps), ("ro", &mut self.inverses)]
    }

    /// Takes in the newest pair, and forgets the oldest beyond `size`. A pair along which the slope hardly grew is left
    /// out, as its curvature says nothing.
    ///
    /// # Errors
    /// Where the vectors do not fit together.
    pub fn remember(&mut self, change: Tensor, step: Tensor, size: usize) -> Result<()> {
        let product = change.dot(&step)?;
        if product.item_f64()? <= 1e-10 {
            return Ok(());
        }
        if self.changes.len() >= size.max(1) {
            self.changes.remove(0);
            self.steps.remove(0);
            self.inverses.remove(0);
        }
        self.scale = Some((&product / &change.dot(&change)?)?);
        self.inverses.push(product.reciprocal()?);
        self.changes.push(change);
        self.steps.push(step);
        Ok(())
    }

    /// The estimated inverse Hessian times the negative gradient, by the two-loop recursion (Nocedal and Wright, 2006,
    /// algorithm 7.4), and the factors of its first loop.
    ///
    /// # Errors
    /// Where the vectors do not fit together.
    pub fn direction(&self, gradient: &Tensor) -> Result<(Tensor, Vec<Tensor>)> {
        let mut d = gradient.neg()?;
        let mut factors = Vec::new();
        for ((change, step), inverse) in self.changes.iter().zip(&self.steps).zip(&self.inverses).rev() {
            let factor = (&step.dot(&d)? * inverse)?;
            d = (&d - &(change * &factor)?)?;
            factors.push(factor);
        }
        factors.reverse();
        if let Some(scale) = &self.scale {
            d = (&d * scale)?;
        }
        for (((change, step), inverse), factor) in
            self.changes.iter().zip(&self.steps).zip(&self.inverses).zip(&factors)
        {
            let along = (factor - &(&change.dot(&d)? * inverse)?)?;
            d = (&d + &(step * &along)?)?;
        }
        Ok((d, factors))
    }
}

/// A complex tensor as pairs of numbers, in the same storage; others as they are.
fn real(t: &Tensor) -> Result<Tensor> {
    if t.dtype().is_complex() {
        return view_as_real(t);
    }
    Ok(t.clone())
}

/// The gradients of all parameters as one vector, zeros where there is none; negated to ascend.
///
/// # Errors
/// Where there are no parameters, or they are on different devices.
pub fn flat_gradient(params: &[Tensor], negate: bool) -> Result<Tensor> {
    no_grad(|| {
        let piece = |p: &Tensor| match p.grad() {
            Some(g) => real(&if g.is_sparse() { g.to_dense()? } else { g.detach()? })?.reshape(&[-1]),
            None => real(&p.detach()?.zeros_like()?)?.reshape(&[-1]),
        };
        let flat = cat(&params.iter().map(piece).collect::<Result<Vec<_>>>()?, 0)?;
        if negate {
            return flat.neg();
        }
        Ok(flat)
    })
}

/// Adds `length` times the direction to the parameters, in place.
///
/// # Errors
/// Where the direction has not as many elements as the parameters (complex ones count twice).
pub fn move_along(params: &[Tensor], direction: &Tensor, length: f64) -> Result<()> {
    no_grad(|| {
        let views = params.iter().map(real).collect::<Result<Vec<_>>>()?;
        let total: usize = views.iter().map(Tensor::numel).sum();
        if direction.shape() != [total] {
            let why = format!("a direction of shape {:?} for {total} numbers in all", direction.shape());
            return Err(Error::shape("lbfgs", why, &[direction.shape()]));
        }
        let mut at = 0;
        for p in &views {
            let count = p.numel() as i64;
            let sizes: Vec<isize> = p.shape().iter().map(|&n| n as isize).collect();
            p.copy_(&p.add(&direction.narrow(0, at, count)?.reshape(&sizes)?, length)?)?;
            at += count;
        }
        Ok(())
    })
}

/// Gives the parameters the values that `start` holds.
///
/// # Errors
/// Where there are not as many, or their shapes differ.
pub fn move_back(params: &[Tensor], start: &[Tensor]) -> Result<()> {
    if params.len() != start.len() {
        let why = format!("{} parameters, but {} values to give them", params.len(), start.len());
        return Err(Error::value("lbfgs", why));
    }
    no_grad(|| params.iter().zip(start).try_for_each(|(p, old)| p.copy_(old)))
}

/// What decides how a step goes on: the slope along `d` of a function with this gradient, the largest elements of both by
/// size, and the sum of the gradient's sizes. Evaluates once.
///
/// # Errors
/// Where the vectors do not fit together or are empty.
pub fn measures(gradient: &Tensor, d: &Tensor) -> Result<[f64; 4]> {
    no_grad(|| {
        let sizes = gradient.abs()?;
        let parts =
            [gradient.dot(d)?, d.abs()?.amax(None, false)?, sizes.amax(None, false)?, sizes.sum(None, false, None)?];
        let found = stack(&parts, 0)?;
        let found: Vec<f64> = match found.dtype() {
            DType::F64 => found.to_vec()?,
            _ => found.cast(DType::F32)?.to_vec::<f32>()?.into_iter().map(f64::from).collect(),
        };
        Ok([0, 1, 2, 3].map(|i| found[i]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;

    /// Minimises `Σ cᵢ (xᵢ - i)²` by whole steps: for a quadratic the directions are conjugate, so few are needed.
    #[test]
    fn a_quadratic_is_solved_in_a_few_steps() {
        for device in [Device::Cpu, Device::Gpu] {
            let tensor = |x: &[f32]| Tensor::of_elements(x, &[x.len()], device).unwrap();
            let (a, b) = (tensor(&[5.0, -3.0]), tensor(&[0.5]));
            let params = [a.requires_grad_(true).unwrap(), b.requires_grad_(true).unwrap()];
            let (curvature, goal) = ([1.0f32, 4.0, 2.0], [0.0f32, 1.0, 2.0]);
            let gradient = || {
                let x: Vec<f32> = params.iter().flat_map(|p| p.to_vec::<f32>().unwrap()).collect();
                let g: Vec<f32> = (0..3).map(|i| 2.0 * curvature[i] * (x[i] - goal[i])).collect();
                params[0].set_grad(Some(tensor(&g[..2]))).unwrap();
                params[1].set_grad(Some(tensor(&g[2..]))).unwrap();
                (flat_gradient(&params, false).unwrap(), g)
            };
            let mut history = History::default();
            let (mut flat, mut last) = gradient();
            for _ in 0..12 {
                let (d, factors) = history.direction(&flat).unwrap();
                assert_eq!(factors.len(), history.changes.len());
                let [slope, _, largest, sum] = measures(&flat, &d).unwrap();
                if largest < 1e-5 {
                    break;
                }
                assert!(slope < 0.0 && (sum - last.iter().map(|g| f64::from(g.abs())).sum::<f64>()).abs() < 1e-3);
                let along = d.to_vec::<f32>().unwrap();
                // The exact minimum along the direction.
                let curvature_along: f32 = (0..3).map(|i| 2.0 * curvature[i] * along[i] * along[i]).sum();
                let length = -slope / f64::from(curvature_along);
                move_along(&params, &d, length).unwrap();
                let before = flat;
                (flat, last) = gradient();
                history.remember((&flat - &before).unwrap(), (&d * length).unwrap(), 2).unwrap();
                assert!(history.changes.len() <= 2);
            }
            let x: Vec<f32> = params.iter().flat_map(|p| p.to_vec::<f32>().unwrap()).collect();
            assert!(x.iter().zip(goal).all(|(x, goal)| (x - goal).abs() < 1e-3), "{x:?}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_before_anything_is_written() {
        let ones = |shape: &[usize]| Tensor::full_of(shape, 1.0.into(), DType::F32, Device::Cpu).unwrap();
        let params = [ones(&[2]), ones(&[1, 3])];
        assert!(move_along(&params, &ones(&[4]), 1.0).is_err() && move_along(&params, &ones(&[5, 1]), 1.0).is_err());
        assert!(move_back(&params, &[ones(&[2])]).is_err());
        assert!(flat_gradient(&[], false).is_err());
        assert_eq!(params[0].version() + params[1].version(), 0);
        move_along(&params, &ones(&[5]), 0.5).unwrap();
        assert_eq!(params[1].to_vec::<f32>().unwrap(), [1.5; 3]);
    }
}
