//! Distances as modules.

use super::module::located;
use super::{Module, Place};
use crate::ops::Integer;
use crate::{Result, Tensor};

/// `‖x₁ - x₂ + eps‖ₚ` along the last dimension.
pub(super) fn pairwise(a: &Tensor, b: &Tensor, p: f64, eps: f64, keepdim: bool) -> Result<Tensor> {
    crate::ops::matrix::linalg_vector_norm(&((a - b)? + eps)?, p, Some(&[-1]), keepdim, None)
}

/// The norm of the difference of rows.
#[derive(Clone, Debug, Module)]
pub struct PairwiseDistance {
    p: f64,
    eps: f64,
    keepdim: bool,
    place: Place,
}

impl Default for PairwiseDistance {
    fn default() -> PairwiseDistance {
        PairwiseDistance { p: 2.0, eps: 1e-6, keepdim: false, place: Place::default() }
    }
}

impl PairwiseDistance {
    /// With PyTorch's defaults.
    pub fn new() -> PairwiseDistance {
        PairwiseDistance::default()
    }

    /// Which norm. Default: 2.
    #[must_use]
    pub fn p(mut self, p: f64) -> PairwiseDistance {
        self.p = p;
        self
    }

    /// Added to differences. Default: 1e-6.
    #[must_use]
    pub fn eps(mut self, eps: f64) -> PairwiseDistance {
        self.eps = eps;
        self
    }

    /// Is the last dimension kept? Default: false.
    #[must_use]
    pub fn keepdim(mut self, on: bool) -> PairwiseDistance {
        self.keepdim = on;
        self
    }

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
    dim: isize,
    eps: f64,
    place: Place,
}

impl Default for CosineSimilarity {
    fn default() -> CosineSimilarity {
        CosineSimilarity { dim: 1, eps: 1e-8, place: Place::default() }
    }
}

impl CosineSimilarity {
    /// With PyTorch's defaults.
    pub fn new() -> CosineSimilarity {
        CosineSimilarity::default()
    }

    /// Along which dimension. Default: 1.
    #[must_use]
    pub fn dim(mut self, dim: impl Integer) -> CosineSimilarity {
        self.dim = dim.wide() as isize;
        self
    }

    /// The least norm. Default: 1e-8.
    #[must_use]
    pub fn eps(mut self, eps: f64) -> CosineSimilarity {
        self.eps = eps;
        self
    }

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
