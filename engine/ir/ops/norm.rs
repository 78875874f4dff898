//! Normalisation: the rows of the family, and the primitives and arguments that they make. Primitives with several results, of
//! which batch and group norm are made, are in `normalization`.

use super::macros::define_primitives;

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! norm_ops {
    ($cb:ident) => { $crate::rows! { $cb "norm" NormOp :
        /// `(x - mean) / sqrt(var + eps) * weight + bias` over the last dimensions, `normalized_shape` (Ba et al.,
        /// 2016).
        function layer_norm(
            input: Tensor, normalized_shape: Sizes, weight: OptTensor = None, bias: OptTensor = None, eps: Float = 1e-5
        ) -> Tensor {
            amp: FullGpu, dtypes: FLOAT, result: Same,
            run: layer_norm_body, node: "native_layer_norm", torch: "nn.functional.layer_norm",
            samples: ["N(3, 4), (4,)", "N(2, 3, 4), (4,), N(4), N(4)", "N(2, 3, 4), (3, 4), N(3, 4), N(3, 4), 0.1"],
            example: [
                "let x = tensor([[1.0, 3.0], [2.0, 2.0]])?;",
                "assert_close(layer_norm(&x, &[2], None, None, 1e-5)?, [[-1.0, 1.0], [0.0, 0.0]]);",
            ],
        }
        /// `(x - mean) / sqrt(var + eps)` over the last `dims` dimensions: what [`layer_norm`] scales and shifts.
        function normalize_last(input: Tensor, dims: Int, eps: Float) -> Tensor {
            flags: [internal], amp: Own, dtypes: FLOAT, result: Same,
            primitive: Standardize { dims: usize, eps: f64 }, saves: Inputs,
            gradient: |c, g| [standardize_back(g, &c.x(0)?, *dims, *eps)],
            run: standardize_body, torch: "-",
            samples: [],
            example: [
                "let made = normalize_last(&tensor([[1.0, 3.0], [5.0, 9.0]])?, 1, 0.0)?;",
                "assert_close(made, [[-1.0, 1.0], [-1.0, 1.0]]);",
            ],
        }
        /// The gradient through [`normalize_last`] from `grad`: `(g - mean(g) - y mean(g y)) / sqrt(var + eps)`, with
        /// the result `y` made again from its `input`.
        function normalize_last_gradient(grad: Tensor, input: Tensor, dims: Int, eps: Float) -> Tensor {
            flags: [internal], amp: Own, dtypes: FLOAT, result: Same,
            primitive: StandardizeGradient { dims: usize, eps: f64 }, saves: Inputs,
            gradient: |c, g| all standardize_second(c, g, *dims, *eps),
            run: standardize_gradient_body, torch: "-",
            samples: ["N(3, 4), N(3, 4), 1, 1e-5", "N(2, 3, 4), N(2, 3, 4), 2, 0.1"],
            example: [
                "let (grad, x) = (tensor([[1.0, 0.0, 0.0]])?, tensor([[-1.0, 0.0, 1.0]])?);",
                "assert_close(normalize_last_gradient(&grad, &x, 1, 0.0)?, [[0.20412, -0.40825, 0.20412]]);",
            ],
        }
        /// `(x - mean) / sqrt(var + eps) * weight + bias`, as one pass on the CPU: over the last `dims` dimensions,
        /// which are the shape of `weight` and `bias`. All have one dtype.
        function normalize_affine(input: Tensor, weight: Tensor, bias: Tensor, dims: Int, eps: Float) -> Tensor {
            flags: [internal], amp: Own, dtypes: FLOAT, result: Same,
            primitive: Affine { dims: usize, eps: f64 }, saves: Pair,
            gradient: |c, g| all affine_back(c, g, *dims, *eps),
            run: affine_body, torch: "-",
            samples: ["N(2, 3, 4), N(4), N(4), 1, 1e-5", "N(2, 3, 4), N(3, 4), N(3, 4), 2, 0.1"],
            example: [
                "let (x, weight, bias) = (tensor([[1.0, 3.0]])?, tensor([2.0, 2.0])?, tensor([10.0, 10.0])?);",
                "assert_close(normalize_affine(&x, &weight, &bias, 1, 0.0)?, [[8.0, 12.0]]);",
            ],
        }
        /// `x / sqrt(mean(x²) + eps) * weight` over the last dimensions (Zhang and Sennrich, 2019).
        function rms_norm(
            input: Tensor, normalized_shape: Sizes, weight: OptTensor = None, eps: OptFloat = None
        ) -> Tensor {
            flags: [steps], amp: FullGpu, dtypes: INEXACT, result: Same,
            run: rms_norm_body, node: "mul", torch: "nn.functional.rms_norm",
            samples: ["N(3, 4), (4,), None, 1e-5", "N(2, 3, 4), (4,), N(4)"],
            example: ["assert_close(rms_norm(&tensor([[3.0, 4.0]])?, &[2], None, Some(0.0))?, [[0.84853, 1.13137]]);"],
        }
        /// [`layer_norm`] over groups of channels of (N, C, …), `weight` and `bias` per channel (Wu and He, 2018).
        function group_norm(
            input: Tensor, num_groups: Int, weight: OptTensor = None, bias: OptTensor = None, eps: Float = 1e-5
        ) -> Tensor {
            amp: FullGpu, dtypes: FLOAT, result: Same,
            run: group_norm_body, node: "native_group_norm", torch: "nn.functional.group_norm",
            samples: ["N(2, 4, 3), 2", "N(2, 4, 3, 3), 4, N(4), N(4)"],
            example: [
                "let x = tensor([[[1.0, 3.0], [5.0, 9.0]]])?;",
                "assert_close(group_norm(&x, 2, None, None, 0.0)?, [[[-1.0, 1.0], [-1.0, 1.0]]]);",
            ],
        }
        /// Normalises each channel of (N, C, …) by the batch's mean and variance in training, which also update
        /// `running_mean` and `running_var` in place; by the running ones otherwise (Ioffe and Szegedy, 2015).
        function batch_norm(
            input: Tensor, running_mean: OptTensor, running_var: OptTensor, weight: OptTensor = None,
            bias: OptTensor = None, training: Bool = false, momentum: Float = 0.1, eps: Float = 1e-5
        ) -> Tensor {
            amp: Own, dtypes: FLOAT, result: Same,
            run: batch_norm_body, node: "native_batch_norm", torch: "nn.functional.batch_norm",
            samples: [
                "N(4, 3), None, None, N(3), N(3), True",
                "N(2, 2, 4, 4), None, None, N(2), N(2), True",
                "N(4, 3, 2, 2), FIXED(N(3)), FIXED(P(3)), N(3), N(3)",
            ],
            example: [
                "let (x, mean, var) = (tensor([[1.0], [3.0]])?, tensor([0.0])?, tensor([1.0])?);",
                "assert_close(batch_norm(&x, Some(&mean), Some(&var), None, None, true, 0.1, 1e-5)?, [[-1.0], [1.0]]);",
                "assert_close(mean, [0.2]);",
            ],
        }
    }};
}
norm_ops!(define_primitives);
