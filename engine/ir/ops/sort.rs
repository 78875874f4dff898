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
            /// The first `k` of what [`argsort`] gives along `dim`, from number `start` on.
            function first_of_argsort(
                input: Tensor, k: Int, dim: Dim = -1, descending: Bool = false, start: Int = 0
            ) -> Tensor {
                flags: [no_gradient, internal], dtypes: ORDERED, result: Index,
                primitive: ArgFirst { axis: usize, descending: bool, start: usize, k: usize }, gradient: none,
                run: first_body, torch: "-",
                samples: [],
                example: ["assert_close(first_of_argsort(&tensor([3, 1, 2])?, 2, -1, true, 0)?, [0, 2]);"],
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
            /// The elements in order along `dim`, and the indices they came from. Equal elements keep their order.
            method sort(dim: Dim = -1, descending: Bool = false, stable: Whether = true) -> ValuesIndices {
                dtypes: ORDERED.and(DTypes::UNSIGNED), result: Same,
                run: sort_body,
                samples: ["N(3, 4)", "N(3, 4), 0, descending=True", "N(), 0", "N(0, 3)"],
                example: [
                    "let (values, indices) = tensor([3, 1, 2])?.sort(-1, true, true)?;",
                    "assert_close(values, [3, 2, 1]);",
                    "assert_close(indices, [0, 2, 1]);",
                ],
            }
            /// The elements in order along the first dimension.
            method msort() -> Tensor {
                dtypes: ORDERED.and(DTypes::UNSIGNED), result: Same,
                run: msort_body, node: "sort",
                samples: ["N(3, 4)", "N(5)"],
                example: ["assert_close(tensor([[3, 1], [2, 4]])?.msort()?, [[2, 1], [3, 4]]);"],
            }
            /// The `k` largest (or smallest) elements along `dim`, in order, and their indices.
            method topk(k: Int, dim: Dim = -1, largest: Bool = true, sorted: Bool = true) -> ValuesIndices {
                dtypes: REAL, result: Same,
                run: topk_body,
                samples: ["N(3, 6), 2", "N(6, 3), 3, 0, largest=False", "N(3), 0", "N(), 1"],
                example: [
                    "let (values, indices) = tensor([3, 1, 4, 2])?.topk(2, -1, true, true)?;",
                    "assert_close(values, [4, 3]);",
                    "assert_close(indices, [2, 0]);",
                ],
            }
            /// The `k`-th smallest element along `dim`, counted from 1, and its index.
            method kthvalue(k: Int, dim: Dim = -1, keepdim: Bool = false) -> ValuesIndices {
                dtypes: REAL, result: Same,
                run: kthvalue_body,
                samples: ["N(3, 6), 2", "N(6, 3), 6, 0, keepdim=True", "N(), 1"],
                example: [
                    "let (value, index) = tensor([3, 1, 4, 2])?.kthvalue(2, -1, false)?;",
                    "assert_close(value, 2);",
                    "assert_close(index, 3);",
                ],
            }
            /// The middle element in order along `dim`, the lower one of two, and its index; without `dim` the middle
            /// one of all elements alone, whose equals share the gradient. NaN where there is one.
            method median(dim: SomeDim = None, keepdim: Bool = false) -> MaybeIndices {
                out: with(dim), dtypes: REAL, result: Same,
                run: median_body[false], node: |given| ("median", given.has("dim")),
                samples: ["N(3, 4)", "N(3, 5), 1", "N(4, 3), 0, keepdim=True", "N(), 0"],
                example: [
                    "let (value, index) = tensor([3, 1, 4, 2])?.median(Some(0), false)?;",
                    "assert_close(value, 2);",
                    "assert_close(index.unwrap(), 3);",
                ],
            }
            /// [`median`] of the elements that are not NaN.
            method nanmedian(dim: SomeDim = None, keepdim: Bool = false) -> MaybeIndices {
                out: with(dim), dtypes: REAL, result: Same,
                run: median_body[true], node: |given| ("nanmedian", given.has("dim")),
                samples: ["N(3, 4)", "N(3, 5), 1", "N(4, 3), 0, keepdim=True"],
                example: [
                    "let (value, _) = tensor([3.0, f64::NAN, 1.0, 2.0])?.nanmedian(None, false)?;",
                    "assert_close(value, 2.0);",
                ],
            }
            /// The most frequent element along `dim`, the smallest of several, and the last index it has.
            method mode(dim: Dim = -1, keepdim: Bool = false) -> ValuesIndices {
                dtypes: ORDERED, result: Same,
                run: mode_body,
                samples: ["N(3, 5)", "I(0, 3, 4, 7)", "I(0, 3, 9, 2), 0, keepdim=True"],
                example: [
                    "let (value, index) = tensor([1, 2, 2, 3])?.mode(-1, false)?;",
                    "assert_close(value, 2);",
                    "assert_close(index, 2);",
                ],
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
            /// The largest element along `dim` and its index; the first at a tie, which gets the whole gradient.
            function max_dim(input: Tensor, dim: Dim, keepdim: Bool = false) -> ValuesIndices {
                dtypes: ORDERED, result: Same,
                run: extremum_dim[true], node: "max", torch: "max",
                samples: ["N(3, 4), 1", "N(2, 3, 4), 0, True"],
                example: [
                    "let (values, indices) = max_dim(&tensor([[1, 4], [3, 2]])?, 1, false)?;",
                    "assert_close(values, [4, 3]);",
                    "assert_close(indices, [1, 0]);",
                ],
            }
            /// The smallest element along `dim` and its index; the first at a tie, which gets the whole gradient.
            function min_dim(input: Tensor, dim: Dim, keepdim: Bool = false) -> ValuesIndices {
                dtypes: ORDERED, result: Same,
                run: extremum_dim[false], node: "min", torch: "min",
                samples: ["N(3, 4), 1", "N(2, 3, 4), 0, True"],
                example: [
                    "let (values, indices) = min_dim(&tensor([[1, 4], [3, 2]])?, 1, false)?;",
                    "assert_close(values, [1, 2]);",
                    "assert_close(indices, [0, 1]);",
                ],
            }
        }
    };
}
sort_ops!(define_primitives);
