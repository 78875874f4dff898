//! Normalisation with several results: batch norm with its statistics, and the gradients through norms; the rows of the family,
//! and the primitives that they make.
//!
//! Statistics, and what is computed, are float32 beside 16-bit floats, whose weight and bias may be float32 too.

use super::macros::define_primitives;
use crate::primitive::Metas;
use crate::shape::{self, Shape};
use crate::{DType, Meta};

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! normalization_ops {
    ($cb:ident) => { $crate::rows! { $cb "normalization" NormalizationOp :
        /// `(x - mean) / sqrt(var + eps) * weight + bias` of each channel of (N, C, …) over all else; then the means,
        /// the biased variances and `1 / sqrt(var + eps)`, each (C). What [`batch_norm`](crate::ops::norm::batch_norm)
        /// is made of in training.
        function batch_norm_parts(input: Tensor, weight: Tensor, bias: Tensor, eps: Float) -> Tensors {
            out: none, flags: [internal], amp: Own, dtypes: FLOAT, result: Same,
            primitive: Batch { eps: f64 }, saves: Moments, gradient: |c, g| all batch_back(c, *eps),
            run: batch_body, torch: "-",
            samples: [],
            example: [
                "let (x, weight, bias) = (tensor([[1.0], [3.0]])?, tensor([2.0])?, tensor([10.0])?);",
                "let parts = batch_norm_parts(&x, &weight, &bias, 0.0)?;",
                "assert_close(&parts[0], [[8.0], [12.0]]);",
                "assert_close(&parts[1], [2.0]);",
                "assert_close(&parts[2], [1.0]);",
                "assert_close(&parts[3], [1.0]);",
            ],
        }
        /// The gradient through [`batch_norm_parts`] from `grad` of its first result, with the means and `1 / sqrt(var
        /// + eps)` that it gave: of the input, the weight and the bias.
        function batch_norm_gradient(
            grad: Tensor, input: Tensor, weight: Tensor, mean: Tensor, scale: Tensor
        ) -> Tensors {
            out: none, flags: [internal], amp: Own, dtypes: FLOAT, result: Same,
            primitive: BatchGradient, gradient: none,
            run: batch_gradient_body, torch: "-",
            samples: [],
            example: [
                "let (grad, x) = (tensor([[1.0], [0.0], [0.0], [0.0]])?, tensor([[1.0], [1.0], [3.0], [3.0]])?);",
                "let (weight, mean, scale) = (tensor([2.0])?, tensor([2.0])?, tensor([1.0])?);",
                "let made = batch_norm_gradient(&grad, &x, &weight, &mean, &scale)?;",
                "assert_close(&made[0], [[1.0], [-1.0], [0.0], [0.0]]);",
                "assert_close(&made[1], [-1.0]);",
                "assert_close(&made[2], [1.0]);",
            ],
        }
        /// `(x - mean) / sqrt(var + eps) * weight + bias` of each of `groups` groups of channels of each image of (N,
        /// C, …), by weights and biases of the channels; then the means and `1 / sqrt(var + eps)`, each (N, groups).
        /// What [`group_norm`](crate::ops::norm::group_norm) is made of.
        function group_norm_parts(input: Tensor, weight: Tensor, bias: Tensor, groups: Int, eps: Float) -> Tensors {
            out: none, flags: [internal], amp: Own, dtypes: FLOAT, result: Same,
            primitive: Group { groups: usize, eps: f64 }, saves: Moments,
            gradient: |c, g| all group_back(c, *groups, *eps),
            run: group_body, torch: "-",
            samples: [],
            example: [
                "let (x, weight, bias) = (tensor([[[1.0], [3.0]]])?, tensor([2.0, 1.0])?, tensor([0.0, 10.0])?);",
                "let parts = group_norm_parts(&x, &weight, &bias, 1, 0.0)?;",
                "assert_close(&parts[0], [[[-2.0], [11.0]]]);",
                "assert_close(&parts[1], [[2.0]]);",
                "assert_close(&parts[2], [[1.0]]);",
            ],
        }
        /// The gradient through [`group_norm_parts`] from `grad` of its first result, with the means and `1 / sqrt(var
        /// + eps)` that it gave: of the input, the weight and the bias.
        function group_norm_gradient(
            grad: Tensor, input: Tensor, weight: Tensor, mean: Tensor, scale: Tensor
        ) -> Tensors {
            out: none, flags: [internal], amp: Own, dtypes: FLOAT, result: Same,
            primitive: GroupGradient, gradient: none,
            run: group_gradient_body, torch: "-",
            samples: [],
            example: [
                "let (grad, x) = (tensor([[[1.0, 0.0], [0.0, 0.0]]])?, tensor([[[1.0, 1.0], [3.0, 3.0]]])?);",
                "let (weight, mean, scale) = (tensor([2.0, 1.0])?, tensor([[2.0]])?, tensor([[1.0]])?);",
                "let made = group_norm_gradient(&grad, &x, &weight, &mean, &scale)?;",
                "assert_close(&made[0], [[[1.0, -1.0], [0.0, 0.0]]]);",
                "assert_close(&made[1], [-1.0, 0.0]);",
                "assert_close(&made[2], [1.0, 0.0]);",
            ],
        }
        /// The gradient through [`normalize_affine`](crate::ops::norm::normalize_affine) from `grad`: of the input, the
        /// weight and the bias, which have the last `dims` dimensions.
        function layer_norm_gradient(grad: Tensor, input: Tensor, weight: Tensor, dims: Int, eps: Float) -> Tensors {
            out: none, flags: [internal], amp: Own, dtypes: FLOAT, result: Same,
            primitive: LayerGradient { dims: usize, eps: f64 }, gradient: none,
            run: layer_gradient_body, torch: "-",
            samples: [],
            example: [
                "let (grad, x) = (tensor([[1.0, 0.0, 0.0, 0.0]])?, tensor([[1.0, 1.0, 3.0, 3.0]])?);",
                "let made = layer_norm_gradient(&grad, &x, &tensor([1.0, 1.0, 1.0, 1.0])?, 1, 0.0)?;",
                "assert_close(&made[0], [[0.5, -0.5, 0.0, 0.0]]);",
                "assert_close(&made[1], [-1.0, 0.0, 0.0, 0.0]);",
                "assert_close(&made[2], [1.0, 0.0, 0.0, 0.0]);",
            ],
        }
    }};
}
normalization_ops!(define_primitives);

/// The dtype of statistics: float32 of 16-bit floats.
pub fn statistics_dtype(dtype: DType) -> DType {
    if dtype.is_half() {
        DType::F32
    } else {
        dtype
    }
}

impl NormalizationOp {
    /// What it gives for inputs of these shapes and dtypes, in order; `None` where they do not fit together.
    pub fn results(&self, inputs: &[(&[usize], DType)]) -> Option<Metas> {
        let meta = |shape: &[usize], dtype: DType| Meta { shape: Shape::from_slice(shape), dtype };
        let (x, rest) = match (self, inputs) {
            (NormalizationOp::Batch { .. } | NormalizationOp::Group { .. }, [x, rest @ ..]) => (*x, rest),
            (_, [g, x, rest @ ..]) if g == x => (*x, rest),
            _ => return None,
        };
        let ((shape, dtype), wide) = (x, statistics_dtype(x.1));
        let &(own, of) = rest.first()?;
        if !dtype.is_float() || of != dtype && of != wide {
            return None;
        }
        let channels = || shape.get(1..2).filter(|channels| *channels == own);
        match (self, rest) {
            (NormalizationOp::Batch { .. }, [weight, bias]) if weight == bias => {
                let own = channels()?;
                Some(Metas::from_iter([meta(shape, dtype), meta(own, wide), meta(own, wide), meta(own, wide)]))
            }
            (NormalizationOp::BatchGradient, [_, mean, scale]) if *mean == (own, wide) && mean == scale => {
                channels()?;
                Some(Metas::from_iter([meta(shape, dtype), meta(own, of), meta(own, of)]))
            }
            (NormalizationOp::Group { groups, .. }, [weight, bias]) if weight == bias => {
                let &[channels] = channels()? else { return None };
                let own = [shape[0], (*groups > 0 && channels.is_multiple_of(*groups)).then_some(*groups)?];
                Some(Metas::from_iter([meta(shape, dtype), meta(&own, wide), meta(&own, wide)]))
            }
            (NormalizationOp::GroupGradient, [_, mean, scale]) if mean == scale && mean.1 == wide => {
                let &[channels] = channels()? else { return None };
                let &[images, groups] = mean.0 else { return None };
                let fits = images == shape[0] && groups > 0 && channels.is_multiple_of(groups);
                fits.then(|| Metas::from_iter([meta(shape, dtype), meta(own, of), meta(own, of)]))
            }
            (NormalizationOp::LayerGradient { dims, .. }, [_]) if *dims > 0 && of == dtype => {
                let last = shape.get(shape.len().checked_sub(*dims)?..)?;
                (shape::numel(last) == shape::numel(own))
                    .then(|| Metas::from_iter([meta(shape, dtype), meta(own, of), meta(own, of)]))
            }
            _ => None,
        }
    }
}
