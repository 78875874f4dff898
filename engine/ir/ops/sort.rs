//! Sorting and searching: the rows of the family, and the primitives and arguments that they make.

use super::macros::define_primitives;

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! sort_ops {
    ($cb:ident) => {
        $crate::rows! { $cb "sort" SortOp :
            /// The indices that sort along `dim`; equal elements keep their order, NaN is largest.
            method argsort(dim: Dim = -1, descending: Bool = false, stable: Bool = true) -> Tensor {
                out: with(stable), dtypes: ORDERED.and(DTypes::UNSIGNED), result: Index,
                primitive: ArgSort { axis: usize, descending: bool }, gradient: none,
                run: argsort_body,
                samples: ["N(3, 4)", "N(3, 4), 0, descending=True", "N(), 0", "N(3, 0)"],
                example: ["assert_close(tensor([3, 1, 2])?.argsort(-1, false, true)?, [1, 2, 0]);"],
            }
            /// For each element of `values`, row by row, the place in the sorted row of `rows` where it belongs: before
            /// its
            /// equals, or with `right` behind them. What [`searchsorted`](crate::ops::search::searchsorted) is made of.
            function search_rows(rows: Tensor, values: Tensor, right: Bool) -> Tensor {
                flags: [no_gradient, internal], dtypes: ORDERED, result: Index,
                primitive: Search { right: bool }, gradient: none,
                run: search_body, torch: "-",
                samples: [],
                example: ["assert_close(search_rows(&tensor([[1, 3, 3, 5]])?, &tensor([[3, 4]])?, false)?, [[1, 3]]);"],
            }
            /// The order of a matrix's rows by their first element, then their second, and so on; equal rows keep their
            /// order. Dimensions before the last two are a batch.
            function argsort_rows(rows: Tensor) -> Tensor {
                flags: [no_gradient, internal], dtypes: ORDERED, result: Index,
                primitive: ArgSortRows, gradient: none,
                run: argsort_rows_body, torch: "-",
                samples: [],
                example: ["assert_close(argsort_rows(&tensor([[2, 1], [1, 9], [1, 3]])?)?, [2, 1, 0]);"],
            }
            /// The elements in order along the first dimension.
            method msort() -> Tensor {
                dtypes: ORDERED.and(DTypes::UNSIGNED), result: Same,
                run: msort_body, node: "sort",
                samples: ["N(3, 4)", "N(5)"],
                example: ["assert_close(tensor([[3, 1], [2, 4]])?.msort()?, [[2, 1], [3, 4]]);"],
            }
            /// The `q`-quantiles along `dim` (of all elements by default): of `n` ordered elements the one at place `q
            /// (n - 1)`. Between two places `interpolation` decides: "linear", "lower", "higher", "midpoint" or
            /// "nearest". A vector of several `q` gives a new first dimension. NaN where there is one. float32 and
            /// float64 only.
            method quantile(
                q: Operand, dim: OptDim = None, keepdim: Bool = false; interpolation: Text = "linear"
            ) -> Tensor {
                amp: FullCpu, dtypes: FLOAT, result: Same,
                run: quantile_body[false], node: ("squeeze", 4),
                samples: [
                    "N(3, 4), 0.3",
                    "N(3, 5), 0.6, 1",
                    "N(4, 3), P(2, lo=0.1, hi=0.9), 0, keepdim=True",
                    "N(3, 5), 0.3, 1, interpolation='lower'",
                    "N(3, 5), 0.3, 1, interpolation='higher'",
                    "N(3, 6), 0.5, 1, interpolation='midpoint'",
                    "N(3, 5), 0.7, 1, interpolation='nearest'",
                    "N(7), 1.0",
                    "N(7), 0.0",
                ],
                example: [
                    "let x = tensor([1.0, 2.0, 3.0, 4.0])?;",
                    "assert_close(x.quantile(0.5, None, false, QuantileInterpolation::Linear)?, 2.5);",
                    "assert_close(x.quantile(&tensor([0.0, 1.0])?, None, false, QuantileInterpolation::Linear)?, [1.0, 4.0]);",
                ],
            }
            /// [`quantile`] of the elements that are not NaN.
            method nanquantile(
                q: Operand, dim: OptDim = None, keepdim: Bool = false; interpolation: Text = "linear"
            ) -> Tensor {
                amp: FullCpu, dtypes: FLOAT, result: Same,
                run: quantile_body[true], node: ("squeeze", 4),
                samples: ["N(3, 4), 0.3", "N(3, 5), 0.6, 1", "N(4, 3), P(2, lo=0.1, hi=0.9), 0, keepdim=True"],
                example: [
                    "let made = tensor([1.0, f64::NAN, 3.0])?.nanquantile(0.5, None, false, QuantileInterpolation::Linear)?;",
                    "assert_close(made, 2.0);",
                ],
            }
        }
    };
}
sort_ops!(define_primitives);
