//! Reductions: the rows of the family, and the primitives and arguments that they make.

use super::macros::define_primitives;
use lucid_core::shape::Axes;

/// Which dimensions a reduction runs over.
#[derive(Clone, Debug, PartialEq)]
pub struct Reduction {
    /// The dimensions, wrapped.
    pub axes: Axes,
    /// Do they stay, with size 1?
    pub keepdim: bool,
}

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! reduce_ops {
    ($cb:ident) => { $crate::rows! { $cb "reduce" ReduceOp :
        /// The sum over `dim` (all by default); integers and `bool` sum in int64. Empty sums are 0.
        method sum(dim: OptDims = None, keepdim: Bool = false; dtype: OptDtype = None) -> Tensor {
            out: with(dim), amp: FullGpu, dtypes: NOT_FLOAT8, result: Sum,
            primitive: Sum, gradient: |c, g| [c.spread(g)],
            run: sum_body[ReduceOp::Sum], node: |given| ("sum", given.has("dim")),
            samples: ["N(3, 4)", "N(3, 4), 1", "N(2, 3, 4), (0, -1), keepdim=True", "N(0, 3), 0", "N()"],
            example: [
                "let x = tensor([[1.0, 2.0], [3.0, 4.0]])?;",
                "assert_close(x.sum(None, false, None)?, 10.0);",
                "assert_close(x.sum(Some(&[0]), true, None)?, [[4.0, 6.0]]);",
            ],
        }
        /// The sum of the squares over `dim` (all by default), in one pass: what norms are the roots of.
        function sum_of_squares(input: Tensor, dim: OptDims = None, keepdim: Bool = false) -> Tensor {
            flags: [internal], amp: FullGpu, dtypes: FLOAT, result: Same,
            primitive: SumOfSquares, saves: Inputs, gradient: |c, g| [(c.spread(g)? * &c.x(0)?)? * 2.0],
            run: sum_of_squares_body, torch: "-",
            samples: ["N(3, 4)", "N(3, 4), 1", "N(2, 3, 4), (0, -1), keepdim=True", "N(0, 3), 0", "N()"],
            example: [
                "let x = tensor([[3.0, 4.0], [1.0, 2.0]])?;",
                "assert_close(sum_of_squares(&x, Some(&[1]), false)?, [25.0, 5.0]);",
            ],
        }
        /// The product over one dimension (all by default); integers and `bool` multiply in int64. Empty products are
        /// 1. A part of the product that overflows, or vanishes, stays so; parts are taken in the order of the
        /// elements.
        method prod(dim: SomeDim = None, keepdim: Bool = false; dtype: OptDtype = None) -> Tensor {
            out: with(dim), amp: Full, dtypes: NOT_FLOAT8, result: Sum,
            primitive: Prod, saves: Both, gradient: |c, g| [prod_gradient(c, g)],
            run: prod_body, node: |given| ("prod", given.has("dim")),
            samples: ["N(3, 4)", "N(3, 4), 1", "N(2, 3, 4), -1, keepdim=True", "N()", "N(2, 0), 1"],
            example: ["assert_close(tensor([[1, 2], [3, 4]])?.prod(Some(1), false, None)?, [2, 12]);"],
        }
        /// The largest element over `dim` (all by default); NaN wins. Ties share the gradient evenly.
        method amax(dim: OptDims = None, keepdim: Bool = false) -> Tensor {
            dtypes: ORDERED, result: Same,
            primitive: Max, saves: Both, gradient: |c, g| [c.spread_to_ties(g)],
            run: extremum[ReduceOp::Max],
            samples: ["N(3, 4)", "N(3, 4), 1", "N(2, 3, 4), (0, 2), keepdim=True"],
            example: ["assert_close(tensor([[1.0, 4.0], [3.0, 2.0]])?.amax(Some(&[0]), false)?, [3.0, 4.0]);"],
        }
        /// The smallest element over `dim` (all by default); NaN wins. Ties share the gradient evenly.
        method amin(dim: OptDims = None, keepdim: Bool = false) -> Tensor {
            dtypes: ORDERED, result: Same,
            primitive: Min, saves: Both, gradient: |c, g| [c.spread_to_ties(g)],
            run: extremum[ReduceOp::Min],
            samples: ["N(3, 4)", "N(3, 4), 1", "N(2, 3, 4), (0, 2), keepdim=True"],
            example: ["assert_close(tensor([[1.0, 4.0], [3.0, 2.0]])?.amin(Some(&[0]), false)?, [1.0, 2.0]);"],
        }
        /// Is any element not zero, over `dim` (all by default)? As bool, for uint8 as uint8.
        method any(dim: OptDims = None, keepdim: Bool = false) -> Tensor {
            out: rule, dtypes: ALL, result: Own,
            primitive: Any, gradient: none,
            run: logical[ReduceOp::Any],
            samples: ["B(3, 4)", "I(0, 2, 3, 4), 1"],
            example: ["assert_close(tensor([[0, 0], [0, 1]])?.any(Some(&[1]), false)?, [false, true]);"],
        }
        /// Are all elements not zero, over `dim` (all by default)? As bool, for uint8 as uint8.
        method all(dim: OptDims = None, keepdim: Bool = false) -> Tensor {
            out: rule, dtypes: ALL, result: Own,
            primitive: All, gradient: none,
            run: logical[ReduceOp::All],
            samples: ["B(3, 4)", "I(0, 2, 3, 4), 1"],
            example: ["assert_close(tensor([[1, 1], [0, 1]])?.all(Some(&[1]), false)?, [true, false]);"],
        }
        /// The index of the largest element over `dim` (of the flattened tensor by default); the first at a tie, NaN
        /// wins.
        method argmax(dim: OptDim = None, keepdim: Bool = false) -> Tensor {
            dtypes: REAL, result: Index,
            primitive: ArgMax, gradient: none,
            run: arg_extremum[ReduceOp::ArgMax],
            samples: ["N(3, 4)", "N(3, 4), 1", "N(2, 3, 4), 0, keepdim=True"],
            example: [
                "assert_close(tensor([[1.0, 4.0], [3.0, 2.0]])?.argmax(Some(1), false)?, [1, 0]);",
                "assert_close(tensor([[1.0, 4.0], [3.0, 2.0]])?.argmax(None, false)?, 1);",
            ],
        }
        /// The index of the smallest element over `dim` (of the flattened tensor by default); the first at a tie, NaN
        /// wins.
        method argmin(dim: OptDim = None, keepdim: Bool = false) -> Tensor {
            dtypes: REAL, result: Index,
            primitive: ArgMin, gradient: none,
            run: arg_extremum[ReduceOp::ArgMin],
            samples: ["N(3, 4)", "N(3, 4), 1", "N(2, 3, 4), 0, keepdim=True"],
            example: ["assert_close(tensor([[1.0, 4.0], [3.0, 2.0]])?.argmin(Some(1), false)?, [0, 1]);"],
        }
        /// The mean over `dim` (all by default). Floating and complex tensors only, unless `dtype` says so.
        method mean(dim: OptDims = None, keepdim: Bool = false; dtype: OptDtype = None) -> Tensor {
            out: rule, amp: Own, dtypes: INEXACT, result: Same,
            run: mean_body, node: |given| ("mean", given.has("dim")),
            samples: ["N(3, 4)", "N(3, 4), 1", "N(2, 3, 4), (0, -1), keepdim=True"],
            example: ["assert_close(tensor([[1.0, 2.0], [3.0, 4.0]])?.mean(Some(&[1]), false, None)?, [1.5, 3.5]);"],
        }
        /// The variance over `dim` (all by default), divided by `n - correction`; of complex numbers that of both
        /// parts.
        method var(dim: OptDims = None; correction: Number = 1, keepdim: Bool = false) -> Tensor {
            python: function, out: rule, amp: Own, dtypes: INEXACT, result: Real,
            run: var_body,
            samples: ["N(3, 4)", "N(3, 4), 1", "N(2, 3, 4), (0, -1), correction=0, keepdim=True"],
            example: [
                "assert_close(tensor([1.0, 2.0, 3.0, 4.0])?.var(None, 1, false)?, 1.66667);",
                "assert_close(tensor([1.0, 2.0, 3.0, 4.0])?.var(None, 0, false)?, 1.25);",
            ],
        }
        /// The square root of [`var`].
        method std(dim: OptDims = None; correction: Number = 1, keepdim: Bool = false) -> Tensor {
            python: function, out: rule, amp: Own, dtypes: INEXACT, result: Real,
            run: std_body,
            samples: ["N(3, 4)", "N(3, 4), 1", "N(2, 3, 4), (0, -1), correction=0, keepdim=True"],
            example: ["assert_close(tensor([1.0, 2.0, 3.0])?.std(None, 1, false)?, 1.0);"],
        }
        /// The sum over `dim` (all by default) of what is not NaN.
        method nansum(dim: OptDims = None, keepdim: Bool = false; dtype: OptDtype = None) -> Tensor {
            out: rule, amp: Own, dtypes: ORDERED, result: Sum,
            run: nansum_body,
            samples: ["N(3, 4)", "N(3, 4), 1", "N(2, 3, 4), (0, -1), keepdim=True"],
            example: ["assert_close(tensor([1.0, f64::NAN, 3.0])?.nansum(None, false, None)?, 4.0);"],
        }
        /// The mean over `dim` (all by default) of what is not NaN; NaN where nothing is left.
        method nanmean(dim: OptDims = None, keepdim: Bool = false; dtype: OptDtype = None) -> Tensor {
            out: rule, flags: [steps], amp: Own, dtypes: FLOAT, result: Same,
            run: nanmean_body, node: "div",
            samples: ["N(3, 4)", "N(3, 4), 1", "N(2, 3, 4), (0, -1), keepdim=True"],
            example: ["assert_close(tensor([1.0, f64::NAN, 3.0])?.nanmean(None, false, None)?, 2.0);"],
        }
        /// The smallest and the largest element, over `dim` if given; NaN wins. Ties share the gradients evenly.
        method aminmax(; dim: OptDim = None, keepdim: Bool = false) -> MinMax {
            dtypes: ORDERED, result: Same,
            run: aminmax_body,
            samples: ["N(3, 4)", "N(3, 4), dim=1", "N(2, 3), dim=0, keepdim=True", "N()"],
            example: [
                "let (min, max) = tensor([3, 1, 2])?.aminmax(None, false)?;",
                "assert_close(min, 1);",
                "assert_close(max, 3);",
            ],
        }
        /// The sum of a matrix's diagonal.
        method trace() -> Tensor {
            out: none, amp: FullCpu, dtypes: NUMERIC, result: Sum,
            run: trace_body,
            samples: ["N(3, 3)", "N(2, 4)", "N(0, 3)"],
            example: ["assert_close(tensor([[1, 2], [3, 4]])?.trace()?, 5);"],
        }
        /// `log(sum(exp(x)))` over `dim`, without overflow.
        method logsumexp(dim: Dims, keepdim: Bool = false) -> Tensor {
            out: rule, amp: FullGpu, dtypes: INEXACT, result: Same,
            run: logsumexp_body,
            samples: ["N(3, 4), 1", "N(2, 3, 4), (0, 1), keepdim=True"],
            example: ["assert_close(tensor([1000.0, 1000.0])?.logsumexp(&[0], false)?, 1000.69315);"],
        }
        /// The number of elements that are not zero, over `dim` (all by default).
        method count_nonzero(dim: OptDims = None) -> Tensor {
            out: none, flags: [no_gradient], dtypes: ALL, result: Index,
            run: count_nonzero_body,
            samples: ["I(0, 2, 3, 4)", "I(0, 2, 3, 4), 1"],
            example: ["assert_close(tensor([[0, 1], [2, 3]])?.count_nonzero(Some(&[1]))?, [1, 2]);"],
        }
    }};
}
reduce_ops!(define_primitives);
