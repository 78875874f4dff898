//! Distances as modules.

use super::module::located;
use super::Module;
use crate::{Result, Tensor};

/// `‖x₁ - x₂ + eps‖ₚ` along the last dimension.
pub(super) fn pairwise(a: &Tensor, b: &Tensor, p: f64, eps: f64, keepdim: bool) -> Result<Tensor> {
    crate::ops::matrix::linalg_vector_norm(&((a - b)? + eps)?, p, Some(&[-1]), keepdim, None)
}

/// The norm of the difference of rows.
#[derive(Clone, Debug, Module)]
pub struct PairwiseDistance {
    /// Which norm. Default: 2.
    pub p: f64,
    /// Added to differences. Default: 1e-6.
    pub eps: f64,
    /// Is the last dimension kept? Default: false.
    pub keepdim: bool,
}

impl Default for PairwiseDistance {
    fn default() -> PairwiseDistance {
        PairwiseDistance { p: 2.0, eps: 1e-6, keepdim: false }
    }
}

impl PairwiseDistance {
    /// (…, D) and (…, D) to (…).
    ///
    /// # Errors
    /// For shapes that do not fit.
    pub fn forward(&self, x1: &Tensor, x2: &Tensor) -> Result<Tensor> {
        located(self, || pairwise(x1, x2, self.p, self.eps, self.keepdim))
    }
}

/// `x₁ · x₂ / (|x₁| |x₂|)` along a dimension.
#[derive(Clone, Debug, Module)]
pub struct CosineSimilarity {
    /// Which. Default: 1.
    pub dim: isize,
    /// The least norm. Default: 1e-8.
    pub eps: f64,
}

impl Default for CosineSimilarity {
    fn default() -> CosineSimilarity {
        CosineSimilarity { dim: 1, eps: 1e-8 }
    }
}

impl CosineSimilarity {
    /// Tensors of one shape to that without the dimension.
    ///
    /// # Errors
    /// For shapes that do not fit.
    pub fn forward(&self, x1: &Tensor, x2: &Tensor) -> Result<Tensor> {
        located(self, || {
            let unit = |x: &Tensor| {
                let norm = crate::ops::matrix::linalg_vector_norm(x, 2.0, Some(&[self.dim]), true, None)?;
                x / &norm.clamp(Some(self.eps.into()), None)?
            };
            (unit(x1)? * &unit(x2)?)?.sum(Some(&[self.dim]), false, None)
        })
    }
}
