//! What update formulas are written in: one statement of each formula serves the kernels of the CPU, the graph of the GPU
//! and, for differentiable steps, recorded tensors.
//!
//! Depends on nothing but, for [`Recorded`], tensors. Invariant: every operation is element by element.

use crate::{Error, Result, Tensor};

/// Arithmetic on the elements of a parameter and its state.
pub(crate) trait Algebra {
    /// A value: one element, or all of them.
    type V: Clone;
    /// What may go wrong.
    type E;

    fn add(&self, a: &Self::V, b: &Self::V) -> Result<Self::V, Self::E>;
    fn sub(&self, a: &Self::V, b: &Self::V) -> Result<Self::V, Self::E>;
    fn mul(&self, a: &Self::V, b: &Self::V) -> Result<Self::V, Self::E>;
    fn div(&self, a: &Self::V, b: &Self::V) -> Result<Self::V, Self::E>;
    /// The larger one; NaN wins.
    fn max(&self, a: &Self::V, b: &Self::V) -> Result<Self::V, Self::E>;
    /// `a · c`
    fn times(&self, a: &Self::V, c: f64) -> Result<Self::V, Self::E>;
    /// `a + c`
    fn plus(&self, a: &Self::V, c: f64) -> Result<Self::V, Self::E>;
    fn neg(&self, a: &Self::V) -> Result<Self::V, Self::E>;
    fn abs(&self, a: &Self::V) -> Result<Self::V, Self::E>;
    fn sqrt(&self, a: &Self::V) -> Result<Self::V, Self::E>;
    fn square(&self, a: &Self::V) -> Result<Self::V, Self::E>;
    /// -1, 0 or 1; 0 for NaN, as PyTorch's.
    fn sign(&self, a: &Self::V) -> Result<Self::V, Self::E>;
    fn clamp(&self, a: &Self::V, low: f64, high: f64) -> Result<Self::V, Self::E>;
    /// `below` where `s < 0`, `above` where `s > 0`, else 1.
    fn by_sign(&self, s: &Self::V, below: f64, above: f64) -> Result<Self::V, Self::E>;
    /// 0 where `s < 0`, else `a`.
    fn unless_negative(&self, s: &Self::V, a: &Self::V) -> Result<Self::V, Self::E>;

    /// `a + c · b`
    #[inline(always)]
    fn axpy(&self, a: &Self::V, c: f64, b: &Self::V) -> Result<Self::V, Self::E> {
        if c < 0.0 {
            self.sub(a, &self.times(b, -c)?)
        } else {
            self.add(a, &self.times(b, c)?)
        }
    }
    /// `keep · a + new · b`: a running average's step.
    #[inline(always)]
    fn blend(&self, a: &Self::V, keep: f64, b: &Self::V, new: f64) -> Result<Self::V, Self::E> {
        self.add(&self.times(a, keep)?, &self.times(b, new)?)
    }
}

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
