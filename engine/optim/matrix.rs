//! Steps that look at a parameter as a matrix: Muon and Adafactor, over all parameters in one call.
//!
//! They are written in tensor ops, unseen by the tape; on the GPU the work is one graph, which is started and not waited
//! for. Invariant: every tensor of every batch is checked before the first one is written.

use crate::{dispatch, no_grad, DType, Error, Result, Tensor};
use lucid_ir::define_steps;

define_steps! { MatrixStep
    /// State: the momentum buffer. For matrices.
    ///
    /// `b += (1 - momentum) · (g - b)`, `u` the gradient's blend with it (with Nesterov) or `b`, then
    /// `p = (1 - lr · weight_decay) p - rate · orthogonal(u)`, the last in bfloat16 (Jordan et al., 2024).
    Muon "muon" {
        /// Learning rate, for the penalty.
        lr: f64,
        /// Learning rate times the factor of the matrix's shape.
        rate: f64,
        /// Penalty, which shrinks the parameter directly.
        weight_decay: f64,
        /// Momentum.
        momentum: f64,
        /// Nesterov's momentum?
        nesterov: bool,
        /// The polynomial's coefficient of `x`.
        a: f64,
        /// Of `x³`.
        b: f64,
        /// Of `x⁵`.
        c: f64,
        /// Least norm to divide by.
        eps: f64,
        /// Iterations.
        iterations: f64,
    }
    /// State: mean squares of rows (…, n, 1) and columns (…, 1, m), or of all elements for vectors and numbers.
    ///
    /// The step that Shazeer and Stern (2018) describe, sized relative to the parameter.
    Adafactor "adafactor" {
        /// The most that a step's relative size may be.
        lr: f64,
        /// The mean squares take `t^beta2_decay` of the new one.
        beta2_decay: f64,
        /// Least root of a mean square.
        eps1: f64,
        /// Least size of a parameter.
        eps2: f64,
        /// Largest root mean square of an update.
        d: f64,
        /// Penalty, which shrinks the parameter directly.
        weight_decay: f64,
        /// Ascend instead?
        maximize: bool,
        /// Which step this is, from 1.
        t: f64,
    }
}

/// Parameters that take the same step. Per parameter: itself, its gradient, and its state in the step's order.
pub type MatrixBatch = (MatrixStep, Vec<Vec<Tensor>>);

/// Runs many steps at once. Parameters and state are written in place.
///
/// # Errors
/// Where a list has the wrong length, or its tensors differ in dtype or device, or are not dense and floating, or have not
/// the shapes that the step documents.
pub fn run_matrix_steps(batches: &[MatrixBatch]) -> Result<()> {
    batches.iter().try_for_each(|(step, lists)| lists.iter().try_for_each(|list| check(step, list)))?;
    no_grad(|| {
        for (step, lists) in batches {
            for list in lists {
                match (step, list.as_slice()) {
                    (MatrixStep::Muon(s), [p, g, buffer]) => muon(s, p, g, buffer)?,
                    (MatrixStep::Adafactor(s), [p, g, state @ ..]) => adafactor(s, p, g, state)?,
                    (MatrixStep::Muon(_) | MatrixStep::Adafactor(_), _) => {}
                }
            }
        }
        let written: Vec<&Tensor> = batches.iter().flat_map(|(_, lists)| lists.iter().flatten()).collect();
        dispatch::eval(&written, false)
    })
}

fn check(step: &MatrixStep, list: &[Tensor]) -> Result<()> {
    let op = step.name();
    let (Some(p), Some(g)) = (list.first(), list.get(1)) else {
        return Err(Error::runtime(op, "a parameter without a gradient"));
    };
    if !p.dtype().is_float() || list.iter().any(Tensor::is_sparse) {
        return Err(Error::dtype(op, "parameters must be dense and of a floating dtype", &[p.dtype()]));
    }
    if let Some(odd) = list.iter().find(|t| t.dtype() != p.dtype()) {
        return Err(Error::dtype(op, "gradient and state must have the parameter's dtype", &[p.dtype(), odd.dtype()]));
    }
    if let Some(odd) = list.iter().find(|t| t.device() != p.device()) {
        let why = "gradient and state must be on the parameter's device";
        return Err(Error::device(op, why, &[p.device(), odd.device()]));
    }
    let shape = p.shape();
    let states: Vec<&[usize]> = list[2..].iter().map(Tensor::shape).collect();
    let fits = match (step, shape, states.as_slice()) {
        (MatrixStep::Muon(_), [_, _], [b]) => *b == shape,
        (MatrixStep::Muon(_), _, _) => false,
        (MatrixStep::Adafactor(_), [lead @ .., n, m], [rows, columns]) => {
            *rows == [lead, &[*n, 1]].concat() && *columns == [lead, &[1, *m]].concat()
        }
        (MatrixStep::Adafactor(_), [] | [_], [v]) => *v == shape,
        (MatrixStep::Adafactor(_), _, _) => false,
    };
    if !fits || g.shape() != shape {
        let shapes: Vec<&[usize]> = list.iter().map(Tensor::shape).collect();
        return Err(Error::shape(op, "gradient and state have not the shapes that the parameter needs", &shapes));
    }
    Ok(())
}

fn muon(s: &Muon, p: &Tensor, g: &Tensor, buffer: &Tensor) -> Result<()> {
    buffer.copy_(&buffer.lerp(g, 1.0 - s.momentum)?)?;
    let update = if s.nesterov { g.lerp(buffer, s.momentum)? } else { buffer.clone() };
    p.copy_(&p.mul(1.0 - s.lr * s.weight_decay)?.add(&orthogonal(s, &update)?, -s.rate)?)
}

/// About `U Vᵀ` of the matrix `U S Vᵀ`, by a quintic Newton-Schulz iteration in bfloat16.
fn orthogonal(s: &Muon, g: &Tensor) -> Result<Tensor> {
    let tall = g.shape()[0] > g.shape()[1];
    let x = g.cast(DType::BF16)?;
    let mut x = if tall { x.t()? } else { x };
    let norm = x.cast(DType::F32)?.square()?.sum(None, false, None)?.sqrt()?.cast(DType::BF16)?;
    x = (&x / &norm.clamp(Some(s.eps.into()), None)?)?;
    for _ in 0..s.iterations as usize {
        let gram = x.matmul(&x.t()?)?;
        x = x.addmm(&gram.addmm(&gram, &gram, s.b, s.c)?, &x, s.a, 1)?;
    }
    if tall {
        x.t()
    } else {
        Ok(x)
    }
}

fn adafactor(s: &Adafactor, p: &Tensor, g: &Tensor, state: &[Tensor]) -> Result<()> {
    let g = if s.maximize { &g.neg()? } else { g };
    let new = s.t.powf(s.beta2_decay);
    let size = (root_mean_square(p)?.clamp(Some(s.eps2.into()), None)? * s.lr.min(1.0 / s.t.sqrt()))?;
    let shrunk = if s.weight_decay == 0.0 { p.clone() } else { (p * (1.0 - s.lr * s.weight_decay))? };
    let square = g.square()?;
    let estimate = match state {
        [rows, columns] => {
            rows.copy_(&rows.lerp(&square.mean(Some(&[-1]), true, None)?, new)?)?;
            columns.copy_(&columns.lerp(&square.mean(Some(&[-2]), true, None)?, new)?)?;
            let least = rows.mean(Some(&[-2]), true, None)?.clamp(Some(s.eps1.into()), None)?;
            (rows.matmul(columns)? / &least)?
        }
        _ => {
            state[0].copy_(&state[0].lerp(&square, new)?)?;
            state[0].clone()
        }
    };
    let update = (estimate.clamp(Some((s.eps1 * s.eps1).into()), None)?.rsqrt()? * g)?;
    let excess = (root_mean_square(&update)? / s.d)?.clamp(Some(1.0.into()), None)?;
    p.copy_(&(&shrunk - &(&update * &(size / &excess)?.cast(update.dtype())?)?)?)
}

fn root_mean_square(x: &Tensor) -> Result<Tensor> {
    // In float32 at least: sums of squares leave the range of 16 bits.
    let wide = if x.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    x.cast(wide)?.square()?.mean(None, false, None)?.sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;

    fn muon_step() -> MatrixStep {
        let (a, b, c) = (3.4445, -4.7750, 2.0315);
        let (lr, rate, weight_decay, momentum, eps, iterations) = (0.1, 0.1, 0.0, 0.9, 1e-7, 5.0);
        Muon { lr, rate, weight_decay, momentum, nesterov: true, a, b, c, eps, iterations }.into()
    }

    #[test]
    fn muon_moves_along_an_orthogonal_matrix() {
        for device in [Device::Cpu, Device::Gpu] {
            let tensor = |x: &[f32]| Tensor::of_elements(x, &[2, 2], device).unwrap();
            let (p, g, b) = (tensor(&[0.0; 4]), tensor(&[3.0, 0.0, 0.0, 0.5]), tensor(&[0.0; 4]));
            run_matrix_steps(&[(muon_step(), vec![vec![p.clone(), g, b.clone()]])]).unwrap();
            let moved = p.to_vec::<f32>().unwrap();
            // Singular values end between 0.7 and 1.2.
            assert!(moved[0] < -0.06 && moved[0] > -0.13 && moved[3] < -0.06 && moved[3] > -0.13, "{moved:?}");
            assert!(moved[1].abs() < 1e-6 && (b.to_vec::<f32>().unwrap()[0] - 0.3).abs() < 1e-6);
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_before_anything_is_written() {
        let tensor = |shape: &[usize]| Tensor::full_of(shape, 1.0.into(), DType::F32, Device::Cpu).unwrap();
        let good = vec![tensor(&[2, 3]), tensor(&[2, 3]), tensor(&[2, 3])];
        let vector = vec![tensor(&[3]), tensor(&[3]), tensor(&[3])];
        assert!(run_matrix_steps(&[(muon_step(), vec![good.clone(), vector])]).is_err());
        assert!(run_matrix_steps(&[(muon_step(), vec![good[..2].to_vec()])]).is_err());
        assert!(run_matrix_steps(&[(muon_step(), vec![vec![]])]).is_err());
        let (lr, beta2_decay, eps1, eps2, d, t) = (0.1, -0.8, 1e-7, 1e-3, 1.0, 1.0);
        let step = Adafactor { lr, beta2_decay, eps1, eps2, d, weight_decay: 0.0, maximize: false, t };
        assert!(run_matrix_steps(&[(step.into(), vec![good.clone()])]).is_err());
        assert_eq!(good[0].version(), 0);
        let state = [tensor(&[2, 1]), tensor(&[1, 3])];
        run_matrix_steps(&[(step.into(), vec![[good[..2].to_vec(), state.to_vec()].concat()])]).unwrap();
        assert!((good[0].to_vec::<f32>().unwrap()[0] - 0.9).abs() < 1e-6);
    }
}
