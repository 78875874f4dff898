//! What update formulas are written in: one statement of each formula serves the kernels of the CPU, the graph of the GPU
//! and, for differentiable steps, recorded tensors.
//!
//! Depends on nothing. Invariant: every operation is element by element.

/// Arithmetic on the elements of a parameter and its state.
pub trait Algebra {
    /// A value: one element, or all of them.
    type V: Clone;
    /// What may go wrong.
    type E;

    /// `a + b`
    fn add(&self, a: &Self::V, b: &Self::V) -> Result<Self::V, Self::E>;
    /// `a - b`
    fn sub(&self, a: &Self::V, b: &Self::V) -> Result<Self::V, Self::E>;
    /// `a · b`
    fn mul(&self, a: &Self::V, b: &Self::V) -> Result<Self::V, Self::E>;
    /// `a / b`
    fn div(&self, a: &Self::V, b: &Self::V) -> Result<Self::V, Self::E>;
    /// The larger one; NaN wins.
    fn max(&self, a: &Self::V, b: &Self::V) -> Result<Self::V, Self::E>;
    /// `a · c`
    fn times(&self, a: &Self::V, c: f64) -> Result<Self::V, Self::E>;
    /// `a + c`
    fn plus(&self, a: &Self::V, c: f64) -> Result<Self::V, Self::E>;
    /// `-a`
    fn neg(&self, a: &Self::V) -> Result<Self::V, Self::E>;
    /// `|a|`
    fn abs(&self, a: &Self::V) -> Result<Self::V, Self::E>;
    /// `√a`
    fn sqrt(&self, a: &Self::V) -> Result<Self::V, Self::E>;
    /// `a²`
    fn square(&self, a: &Self::V) -> Result<Self::V, Self::E>;
    /// -1, 0 or 1; 0 for NaN, as PyTorch's.
    fn sign(&self, a: &Self::V) -> Result<Self::V, Self::E>;
    /// `a` limited to `low` to `high`.
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
