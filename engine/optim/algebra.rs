//! The optimizers' formulas over tensors, for differentiable steps.

use crate::{Error, Result, Tensor};
use lucid_ir::optim::algebra::Algebra;

/// Whole tensors, whose operations the tape records.
pub(crate) struct Recorded;

impl Algebra for Recorded {
    type V = Tensor;
    type E = Box<Error>;

    fn add(&self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        a + b
    }
    fn sub(&self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        a - b
    }
    fn mul(&self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        a * b
    }
    fn div(&self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        a / b
    }
    fn max(&self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        a.maximum(b)
    }
    fn times(&self, a: &Tensor, c: f64) -> Result<Tensor> {
        a * c
    }
    fn plus(&self, a: &Tensor, c: f64) -> Result<Tensor> {
        a + c
    }
    fn neg(&self, a: &Tensor) -> Result<Tensor> {
        -a
    }
    fn abs(&self, a: &Tensor) -> Result<Tensor> {
        a.abs()
    }
    fn sqrt(&self, a: &Tensor) -> Result<Tensor> {
        a.sqrt()
    }
    fn square(&self, a: &Tensor) -> Result<Tensor> {
        a * a
    }
    fn sign(&self, a: &Tensor) -> Result<Tensor> {
        a.sign()
    }
    fn clamp(&self, a: &Tensor, low: f64, high: f64) -> Result<Tensor> {
        a.clamp(Some(low.into()), Some(high.into()))
    }
    fn by_sign(&self, s: &Tensor, below: f64, above: f64) -> Result<Tensor> {
        let number = |c: f64| Tensor::full_of(&[], c.into(), s.dtype(), s.device());
        let rest = crate::ops::compare::select::r#where(&s.gt(0.0)?, &number(above)?, 1.0)?;
        crate::ops::compare::select::r#where(&s.lt(0.0)?, &number(below)?, &rest)
    }
    fn unless_negative(&self, s: &Tensor, a: &Tensor) -> Result<Tensor> {
        crate::ops::compare::select::r#where(&s.lt(0.0)?, 0.0, a)
    }
}
