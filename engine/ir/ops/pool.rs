//! Pools: the rows of the family, and the primitives and arguments that they make.

use super::conv::Spatial;
use super::macros::define_primitives;
use lucid_core::shape::Shape;

/// The layout of a pool's windows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolArgs {
    /// Window sizes.
    pub kernel: Spatial,
    /// Steps between windows.
    pub stride: Spatial,
    /// Places added at both ends: -inf for max, 0 for average.
    pub padding: Spatial,
    /// Steps between a window's elements.
    pub dilation: Spatial,
    /// Output sizes, which `ceil_mode` may have rounded up: the last windows may reach beyond the padding.
    pub output: Spatial,
    /// Do averages count the padding?
    pub count_include_pad: bool,
    /// What averages divide by, in place of the window's size.
    pub divisor: Option<usize>,
}

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! pool_ops {
    ($cb:ident) => { $crate::rows! { $cb "pool" PoolOp :
        /// The largest element of each window, in as many spatial dimensions as `kernel_size` has; NaN wins.
        function max_pool(
            input: Tensor, kernel_size: Dims, stride: Dims, padding: Dims, dilation: Dims, ceil_mode: Bool
        ) -> Tensor {
            flags: [internal], dtypes: REAL, result: Same,
            primitive: Max { args: Box<PoolArgs> }, saves: Inputs, gradient: |c, g| [max_scatter(&c.x(0)?, g, args)],
            run: max_pool_body, torch: "-",
            samples: [],
            example: [
                "let x = tensor([[[1.0, 3.0, 2.0, 5.0]]])?;",
                "assert_close(max_pool(&x, &[2], &[2], &[0], &[1], false)?, [[[3.0, 5.0]]]);",
            ],
        }
        /// Where in its plane each window's largest element is, row-major; the first at a tie.
        function max_pool_indices(
            input: Tensor, kernel_size: Dims, stride: Dims, padding: Dims, dilation: Dims, ceil_mode: Bool
        ) -> Tensor {
            call: creates, flags: [internal], dtypes: REAL, result: Index,
            primitive: MaxIndices { args: Box<PoolArgs> }, gradient: none,
            run: max_indices_body, torch: "-",
            samples: [],
            example: [
                "let x = tensor([[[1.0, 3.0, 2.0, 5.0]]])?;",
                "assert_close(max_pool_indices(&x, &[2], &[2], &[0], &[1], false)?, [[[1, 3]]]);",
            ],
        }
        /// The elements of `source` at the places of each window's largest element of `input`.
        function max_pool_pick(
            input: Tensor, source: Tensor, kernel_size: Dims, stride: Dims, padding: Dims, dilation: Dims,
            ceil_mode: Bool
        ) -> Tensor {
            flags: [internal], dtypes: REAL, result: Same,
            primitive: MaxPick { args: Box<PoolArgs> }, saves: First,
            gradient: |c, g| [c.zeros(0), max_scatter(&c.x(0)?, g, args)],
            run: max_pick_body, torch: "-",
            samples: [],
            example: [
                "let (x, source) = (tensor([[[1.0, 3.0, 2.0, 5.0]]])?, tensor([[[6.0, 7.0, 8.0, 9.0]]])?);",
                "assert_close(max_pool_pick(&x, &source, &[2], &[2], &[0], &[1], false)?, [[[7.0, 9.0]]]);",
            ],
        }
        /// Zeros of `input`'s shape with `grad` added at the places of each window's largest element.
        function max_pool_scatter(
            input: Tensor, grad: Tensor, kernel_size: Dims, stride: Dims, padding: Dims, dilation: Dims, ceil_mode: Bool
        ) -> Tensor {
            flags: [internal], dtypes: REAL, result: Same,
            primitive: MaxScatter { args: Box<PoolArgs> }, saves: First,
            gradient: |c, g| [c.zeros(0), max_pick(&c.x(0)?, g, args)],
            run: max_scatter_body, torch: "-",
            samples: [],
            example: [
                "let (x, grad) = (tensor([[[1.0, 3.0, 2.0, 5.0]]])?, tensor([[[6.0, 7.0]]])?);",
                "assert_close(max_pool_scatter(&x, &grad, &[2], &[2], &[0], &[1], false)?, [[[0.0, 6.0, 0.0, 7.0]]]);",
            ],
        }
        /// The elements of (N, C, space…) at `places` (N, C, windows…), int32: row-major numbers within their plane.
        function max_pool_take(input: Tensor, places: Tensor) -> Tensor {
            flags: [internal], dtypes: REAL, result: Same,
            primitive: Take, saves: Second, gradient: |c, g| [put(g, &c.x(1)?, c.shape(0)), c.zeros(1)],
            run: take_body, torch: "-",
            samples: [],
            example: [
                "let (x, places) = (tensor([[[1.0, 3.0, 2.0, 5.0]]])?, tensor([[[1, 3]]])?.cast(DType::I32)?);",
                "assert_close(max_pool_take(&x, &places)?, [[[3.0, 5.0]]]);",
            ],
        }
        /// Zeros of the shape `input_size` with `grad` added at `places` of each plane: the gradient through
        /// [`max_pool_take`].
        function max_pool_put(grad: Tensor, places: Tensor, input_size: Sizes) -> Tensor {
            flags: [internal], dtypes: REAL, result: Same,
            primitive: Put { shape: Shape }, saves: Second, gradient: |c, g| [take(g, &c.x(1)?), c.zeros(1)],
            run: put_body, torch: "-",
            samples: [],
            example: [
                "let (grad, places) = (tensor([[[6.0, 7.0]]])?, tensor([[[1, 3]]])?.cast(DType::I32)?);",
                "assert_close(max_pool_put(&grad, &places, &[1, 1, 4])?, [[[0.0, 6.0, 0.0, 7.0]]]);",
            ],
        }
        /// The mean of each window, in as many spatial dimensions as `kernel_size` has.
        function avg_pool(
            input: Tensor, kernel_size: Dims, stride: Dims, padding: Dims, ceil_mode: Bool, count_include_pad: Bool,
            divisor_override: OptInt
        ) -> Tensor {
            flags: [internal], dtypes: FLOAT, result: Same,
            primitive: Average { args: Box<PoolArgs> }, gradient: |c, g| [average_spread(g, args, c.shape(0))],
            run: avg_pool_body, torch: "-",
            samples: [],
            example: [
                "let x = tensor([[[1.0, 3.0, 2.0, 5.0]]])?;",
                "assert_close(avg_pool(&x, &[2], &[2], &[0], false, true, None)?, [[[2.0, 3.5]]]);",
            ],
        }
        /// The gradient of [`avg_pool`]: each element of `grad` spread over its window.
        function avg_pool_spread(
            grad: Tensor, input_size: Sizes, kernel_size: Dims, stride: Dims, padding: Dims, ceil_mode: Bool,
            count_include_pad: Bool, divisor_override: OptInt
        ) -> Tensor {
            flags: [internal], dtypes: FLOAT, result: Same,
            primitive: AverageSpread { args: Box<PoolArgs>, shape: Shape }, gradient: |c, g| [average(g, args)],
            run: avg_spread_body, torch: "-",
            samples: [],
            example: [
                "let grad = tensor([[[6.0, 8.0]]])?;",
                "let made = avg_pool_spread(&grad, &[1, 1, 4], &[2], &[2], &[0], false, true, None)?;",
                "assert_close(made, [[[3.0, 3.0, 4.0, 4.0]]]);",
            ],
        }
        /// Max-pooling over (N, C, L) or (C, L). `stride` defaults to the window.
        function max_pool1d(
            input: Tensor, kernel_size: Dims, stride: OptDims = None, padding: Dims = &[0], dilation: Dims = &[1],
            ceil_mode: Bool = false
        ) -> Tensor {
            dtypes: REAL, result: Same,
            run: max_pool_nd[1], node: ("squeeze", 1), torch: "nn.functional.max_pool1d",
            samples: ["N(2, 3, 8), 2", "N(2, 3, 9), 3, 2, 1"],
            example: [
                "let made = max_pool1d(&tensor([[[1.0, 3.0, 2.0, 5.0]]])?, &[2], None, &[0], &[1], false)?;",
                "assert_close(made, [[[3.0, 5.0]]]);",
            ],
        }
        /// Max-pooling over (N, C, H, W) or (C, H, W). `stride` defaults to the window.
        function max_pool2d(
            input: Tensor, kernel_size: Dims, stride: OptDims = None, padding: Dims = &[0], dilation: Dims = &[1],
            ceil_mode: Bool = false
        ) -> Tensor {
            dtypes: REAL, result: Same,
            run: max_pool_nd[2], node: "max_pool2d_with_indices", torch: "nn.functional.max_pool2d",
            samples: [
                "N(2, 3, 6, 6), 2",
                "N(2, 3, 7, 6), 3, 2, 1",
                "N(1, 2, 7, 7), (2, 3), (2, 1), 0, (1, 2)",
                "N(1, 2, 7, 7), 2, ceil_mode=True",
                "N(2, 5, 5), 2",
            ],
            example: [
                "let x = tensor([[[[1.0, 3.0], [2.0, 5.0]]]])?;",
                "assert_close(max_pool2d(&x, &[2], None, &[0], &[1], false)?, [[[[5.0]]]]);",
            ],
        }
        /// Max-pooling over (N, C, D, H, W) or (C, D, H, W). `stride` defaults to the window.
        function max_pool3d(
            input: Tensor, kernel_size: Dims, stride: OptDims = None, padding: Dims = &[0], dilation: Dims = &[1],
            ceil_mode: Bool = false
        ) -> Tensor {
            amp: FullCpu, dtypes: REAL, result: Same,
            run: max_pool_nd[3], node: "max_pool3d_with_indices", torch: "nn.functional.max_pool3d",
            samples: ["N(1, 2, 4, 4, 4), 2"],
            example: [
                "let x = tensor([[[[[1.0, 3.0], [2.0, 5.0]]]]])?;",
                "assert_close(max_pool3d(&x, &[1, 1, 2], None, &[0], &[1], false)?, [[[[[3.0], [5.0]]]]]);",
            ],
        }
        /// Average pooling over (N, C, L) or (C, L). Means of int64 are cut off towards zero.
        function avg_pool1d(
            input: Tensor, kernel_size: Dims, stride: OptDims = None, padding: Dims = &[0], ceil_mode: Bool = false,
            count_include_pad: Bool = true
        ) -> Tensor {
            dtypes: AVERAGED, result: Same,
            run: avg_pool_1d, node: ("squeeze", 1), torch: "nn.functional.avg_pool1d",
            samples: ["N(2, 3, 8), 2", "N(2, 3, 9), 3, 2, 1"],
            example: [
                "let made = avg_pool1d(&tensor([[[1.0, 3.0, 2.0, 5.0]]])?, &[2], None, &[0], false, true)?;",
                "assert_close(made, [[[2.0, 3.5]]]);",
            ],
        }
        /// Average pooling over (N, C, H, W) or (C, H, W). `stride` defaults to the window. Means of int64 are cut off
        /// towards zero.
        function avg_pool2d(
            input: Tensor, kernel_size: Dims, stride: OptDims = None, padding: Dims = &[0], ceil_mode: Bool = false,
            count_include_pad: Bool = true, divisor_override: OptInt = None
        ) -> Tensor {
            out: own, dtypes: AVERAGED, result: Same,
            run: avg_pool_nd[2], torch: "nn.functional.avg_pool2d",
            samples: [
                "N(2, 3, 6, 6), 2",
                "N(2, 3, 7, 6), 3, 2, 1",
                "N(2, 3, 7, 6), 3, 2, 1, True, False",
                "N(1, 2, 7, 7), 2, divisor_override=3",
            ],
            example: [
                "let x = tensor([[[[1.0, 3.0], [2.0, 6.0]]]])?;",
                "assert_close(avg_pool2d(&x, &[2], None, &[0], false, true, None)?, [[[[3.0]]]]);",
            ],
        }
        /// Average pooling over (N, C, D, H, W) or (C, D, H, W). Means of int64 are cut off towards zero.
        function avg_pool3d(
            input: Tensor, kernel_size: Dims, stride: OptDims = None, padding: Dims = &[0], ceil_mode: Bool = false,
            count_include_pad: Bool = true, divisor_override: OptInt = None
        ) -> Tensor {
            out: own, amp: FullCpu, dtypes: AVERAGED, result: Same,
            run: avg_pool_nd[3], torch: "nn.functional.avg_pool3d",
            samples: [
                "N(1, 2, 4, 4, 4), 2",
                "N(1, 2, 4, 5, 4), 3, 2, 1, True, False",
                "N(1, 2, 4, 4, 4), 2, divisor_override=3",
            ],
            example: [
                "let x = tensor([[[[[1.0, 3.0], [2.0, 6.0]]]]])?;",
                "assert_close(avg_pool3d(&x, &[1, 1, 2], None, &[0], false, true, None)?, [[[[[2.0], [4.0]]]]]);",
            ],
        }
    }};
}
pool_ops!(define_primitives);
