//! Convolutions: the rows of the family, and the primitives and arguments that they make.

use super::macros::define_primitives;
use lucid_core::shape::Shape;
use smallvec::SmallVec;

/// One number per spatial dimension.
pub type Spatial = SmallVec<[usize; 3]>;

/// How a convolution moves over its input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConvArgs {
    /// Steps between windows.
    pub stride: Spatial,
    /// Zeros added at both ends.
    pub padding: Spatial,
    /// Steps between a window's elements.
    pub dilation: Spatial,
    /// Channel groups that do not see each other.
    pub groups: usize,
}

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! conv_ops {
    ($cb:ident) => { $crate::rows! { $cb "conv" ConvOp :
        /// Convolution over (N, C, space…) or (C, space…) with `weight` (out, C / groups, window…), in as many spatial
        /// dimensions as the weight has. `stride`, `padding` and `dilation` are numbers or one per dimension.
        function convolution(
            input: Tensor, weight: Tensor, bias: OptTensor, stride: Dims, padding: Dims, dilation: Dims, groups: Int
        ) -> Tensor {
            flags: [internal], amp: Low, deterministic: No("the GPU's gradients may be summed in any order"),
            dtypes: NUMERIC, result: Same,
            primitive: Forward { args: Box<ConvArgs> }, saves: Cross,
            gradient: |c, g| [
                conv_input_gradient(g, &c.x(1)?, args, c.shape(0)),
                conv_weight_gradient(&c.x(0)?, g, args, c.shape(1)),
                sum_to_channels(g),
            ],
            run: convolution_body, torch: "-",
            samples: [],
            example: [
                "let (x, weight) = (tensor([[[1.0, 2.0, 3.0, 4.0]]])?, tensor([[[1.0, -1.0]]])?);",
                "assert_close(convolution(&x, &weight, None, &[1], &[0], &[1], 1)?, [[[-1.0, -1.0, -1.0]]]);",
            ],
        }
        /// The gradient of [`convolution`] towards its input, which is also the transposed convolution.
        function convolution_input_gradient(
            grad: Tensor, weight: Tensor, input_size: Sizes, stride: Dims, padding: Dims, dilation: Dims, groups: Int
        ) -> Tensor {
            flags: [internal], amp: Low, deterministic: No("the GPU's gradients may be summed in any order"),
            dtypes: FLOAT, result: Same,
            primitive: InputGradient { args: Box<ConvArgs>, shape: Shape }, saves: Cross,
            gradient: |c, g| [
                conv_forward(g, &c.x(1)?, None, args),
                conv_weight_gradient(g, &c.x(0)?, args, c.shape(1)),
            ],
            run: input_gradient_body, torch: "-",
            samples: [],
            example: [
                "let (grad, weight) = (tensor([[[1.0, 1.0, 1.0]]])?, tensor([[[1.0, -1.0]]])?);",
                "let made = convolution_input_gradient(&grad, &weight, &[1, 1, 4], &[1], &[0], &[1], 1)?;",
                "assert_close(made, [[[1.0, 0.0, 0.0, -1.0]]]);",
            ],
        }
        /// The gradient of [`convolution`] towards its weight.
        function convolution_weight_gradient(
            input: Tensor, grad: Tensor, weight_size: Sizes, stride: Dims, padding: Dims, dilation: Dims, groups: Int
        ) -> Tensor {
            flags: [internal], amp: Low, deterministic: No("the GPU's gradients may be summed in any order"),
            dtypes: FLOAT, result: Same,
            primitive: WeightGradient { args: Box<ConvArgs>, shape: Shape }, saves: Cross,
            gradient: |c, g| [
                conv_input_gradient(&c.x(1)?, g, args, c.shape(0)),
                conv_forward(&c.x(0)?, g, None, args),
            ],
            run: weight_gradient_body, torch: "-",
            samples: [],
            example: [
                "let (x, grad) = (tensor([[[1.0, 2.0, 3.0, 4.0]]])?, tensor([[[1.0, 1.0, 1.0]]])?);",
                "let made = convolution_weight_gradient(&x, &grad, &[1, 1, 2], &[1], &[0], &[1], 1)?;",
                "assert_close(made, [[[6.0, 9.0]]]);",
            ],
        }
        /// 1-D convolution: (N, C, L) with (out, C / groups, window).
        function conv1d(
            input: Tensor, weight: Tensor, bias: OptTensor = None, stride: Dims = &[1], padding: Dims = &[0],
            dilation: Dims = &[1], groups: Int = 1
        ) -> Tensor {
            amp: Low, deterministic: No("the GPU's gradients may be summed in any order"), dtypes: NUMERIC,
            result: Same,
            run: conv_nd["conv1d", 1], node: "convolution", torch: "nn.functional.conv1d",
            samples: ["N(2, 3, 8), N(4, 3, 3), N(4)", "N(2, 4, 9), N(6, 2, 3), None, 2, 1, 2, 2"],
            example: [
                "let (x, weight, bias) = (tensor([[[1.0, 2.0, 3.0]]])?, tensor([[[1.0, 1.0]]])?, tensor([10.0])?);",
                "assert_close(conv1d(&x, &weight, Some(&bias), &[1], &[0], &[1], 1)?, [[[13.0, 15.0]]]);",
            ],
        }
        /// 2-D convolution: (N, C, H, W) with (out, C / groups, window height, window width).
        function conv2d(
            input: Tensor, weight: Tensor, bias: OptTensor = None, stride: Dims = &[1], padding: Dims = &[0],
            dilation: Dims = &[1], groups: Int = 1
        ) -> Tensor {
            amp: Low, deterministic: No("the GPU's gradients may be summed in any order"), dtypes: NUMERIC,
            result: Same,
            run: conv_nd["conv2d", 2], node: "convolution", torch: "nn.functional.conv2d",
            samples: [
                "N(2, 3, 6, 6), N(4, 3, 3, 3), N(4)",
                "N(2, 4, 7, 6), N(6, 2, 3, 3), N(6), (2, 1), 1, 1, 2",
                "N(1, 2, 7, 7), N(2, 1, 3, 3), None, 1, (2, 2), (2, 2), 2",
                "N(3, 6, 6), N(4, 3, 3, 3)",
            ],
            example: [
                "let (x, weight) = (tensor([[[[1.0, 2.0], [3.0, 4.0]]]])?, tensor([[[[1.0, 10.0]]]])?);",
                "assert_close(conv2d(&x, &weight, None, &[1], &[0], &[1], 1)?, [[[[21.0], [43.0]]]]);",
            ],
        }
        /// 3-D convolution: (N, C, D, H, W) with (out, C / groups, window depth, height, width).
        function conv3d(
            input: Tensor, weight: Tensor, bias: OptTensor = None, stride: Dims = &[1], padding: Dims = &[0],
            dilation: Dims = &[1], groups: Int = 1
        ) -> Tensor {
            amp: Low, deterministic: No("the GPU's gradients may be summed in any order"), dtypes: NUMERIC,
            result: Same,
            run: conv_nd["conv3d", 3], node: "convolution", torch: "nn.functional.conv3d",
            samples: [
                "N(1, 2, 4, 4, 4), N(3, 2, 2, 2, 2), N(3)",
                "N(2, 4, 3, 4, 3), N(4, 2, 2, 2, 2), None, (1, 2, 1), 1, 1, 2",
            ],
            example: [
                "let (x, weight) = (tensor([[[[[1.0, 2.0], [3.0, 4.0]]]]])?, tensor([[[[[1.0, 10.0]]]]])?);",
                "assert_close(conv3d(&x, &weight, None, &[1], &[0], &[1], 1)?, [[[[[21.0], [43.0]]]]]);",
            ],
        }
        /// 1-D transposed convolution: the gradient of `conv1d` towards its input, with a bias.
        function conv_transpose1d(
            input: Tensor, weight: Tensor, bias: OptTensor = None, stride: Dims = &[1], padding: Dims = &[0],
            output_padding: Dims = &[0], groups: Int = 1, dilation: Dims = &[1]
        ) -> Tensor {
            amp: Low, deterministic: No("the GPU's gradients may be summed in any order"),
            dtypes: INEXACT.and(DTypes::of(&[$crate::DType::I64])), result: Same,
            run: conv_transpose_nd["conv_transpose1d", 1], node: "convolution", torch: "nn.functional.conv_transpose1d",
            samples: ["N(2, 3, 5), N(3, 4, 3), N(4)", "N(1, 4, 4), N(4, 1, 3), None, 2, 1, 1, 2"],
            example: [
                "let (x, weight) = (tensor([[[1.0, 2.0]]])?, tensor([[[1.0, 10.0]]])?);",
                "let made = conv_transpose1d(&x, &weight, None, &[2], &[0], &[0], 1, &[1])?;",
                "assert_close(made, [[[1.0, 10.0, 2.0, 20.0]]]);",
            ],
        }
        /// 2-D transposed convolution: the gradient of `conv2d` towards its input, with a bias.
        function conv_transpose2d(
            input: Tensor, weight: Tensor, bias: OptTensor = None, stride: Dims = &[1], padding: Dims = &[0],
            output_padding: Dims = &[0], groups: Int = 1, dilation: Dims = &[1]
        ) -> Tensor {
            amp: Low, deterministic: No("the GPU's gradients may be summed in any order"),
            dtypes: INEXACT.and(DTypes::of(&[$crate::DType::I64])), result: Same,
            run: conv_transpose_nd["conv_transpose2d", 2], node: "convolution", torch: "nn.functional.conv_transpose2d",
            samples: [
                "N(2, 3, 4, 4), N(3, 4, 3, 3), N(4)",
                "N(1, 4, 4, 4), N(4, 1, 3, 3), None, 2, 1, 1, 2",
                "N(1, 2, 3, 3), N(2, 2, 2, 2), N(2), (3, 2), (1, 3), (2, 3), 1, 4",
            ],
            example: [
                "let (x, weight) = (tensor([[[[1.0, 2.0]]]])?, tensor([[[[1.0, 10.0]]]])?);",
                "let made = conv_transpose2d(&x, &weight, None, &[1], &[0], &[0], 1, &[1])?;",
                "assert_close(made, [[[[1.0, 12.0, 20.0]]]]);",
            ],
        }
        /// 3-D transposed convolution: the gradient of `conv3d` towards its input, with a bias.
        function conv_transpose3d(
            input: Tensor, weight: Tensor, bias: OptTensor = None, stride: Dims = &[1], padding: Dims = &[0],
            output_padding: Dims = &[0], groups: Int = 1, dilation: Dims = &[1]
        ) -> Tensor {
            amp: Low, deterministic: No("the GPU's gradients may be summed in any order"),
            dtypes: INEXACT.and(DTypes::of(&[$crate::DType::I64])), result: Same,
            run: conv_transpose_nd["conv_transpose3d", 3], node: "convolution", torch: "nn.functional.conv_transpose3d",
            samples: [
                "N(1, 2, 2, 3, 2), N(2, 2, 2, 2, 2), N(2)",
                "N(1, 2, 2, 2, 2), N(2, 1, 3, 3, 3), None, 2, 1, 1, 2",
            ],
            example: [
                "let (x, weight) = (tensor([[[[[1.0, 2.0]]]]])?, tensor([[[[[1.0, 10.0]]]]])?);",
                "let made = conv_transpose3d(&x, &weight, None, &[1], &[0], &[0], 1, &[1])?;",
                "assert_close(made, [[[[[1.0, 12.0, 20.0]]]]]);",
            ],
        }
    }};
}
conv_ops!(define_primitives);
