//! Order statistics: elements chosen along a dimension with their indices, of one primitive each; the rows of the family, and
//! the primitives that they make.

use super::macros::define_primitives;
use crate::primitive::Metas;
use crate::shape::Shape;
use crate::{DType, Meta};

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! order_ops {
    ($cb:ident) => {
        $crate::rows! { $cb "order" OrderOp :
            /// The elements in order along `dim`, and the indices they came from. Equal elements keep their order.
            method sort(dim: Dim = -1, descending: Bool = false, stable: Whether = true) -> ValuesIndices {
                dtypes: ORDERED.and(DTypes::UNSIGNED), result: Same,
                primitive: Sort { axis: usize, descending: bool }, saves: Indices,
                gradient: |c, g| [chosen_gradient(c, g, *axis)],
                run: sort_body,
                samples: ["N(3, 4)", "N(3, 4), 0, descending=True", "N(), 0", "N(0, 3)"],
                example: [
                    "let (values, indices) = tensor([3, 1, 2])?.sort(-1, true, true)?;",
                    "assert_close(values, [3, 2, 1]);",
                    "assert_close(indices, [0, 2, 1]);",
                ],
            }
            /// The `k` largest (or smallest) elements along `dim`, in order, and their indices.
            method topk(k: Int, dim: Dim = -1, largest: Bool = true, sorted: Bool = true) -> ValuesIndices {
                dtypes: REAL, result: Same,
                primitive: TopK { axis: usize, k: usize, largest: bool }, saves: Indices,
                gradient: |c, g| [chosen_gradient(c, g, *axis)],
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
                primitive: KthValue { axis: usize, k: usize, keepdim: bool }, saves: Indices,
                gradient: |c, g| [chosen_gradient(c, g, *axis)],
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
                primitive: Median { axis: usize, keepdim: bool }, saves: Indices,
                gradient: |c, g| [chosen_gradient(c, g, *axis)],
                run: median_body[|axis, keepdim| OrderOp::Median { axis, keepdim }],
                node: |given| ("median", given.has("dim")),
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
                primitive: NanMedian { axis: usize, keepdim: bool }, saves: Indices,
                gradient: |c, g| [chosen_gradient(c, g, *axis)],
                run: median_body[|axis, keepdim| OrderOp::NanMedian { axis, keepdim }],
                node: |given| ("nanmedian", given.has("dim")),
                samples: ["N(3, 4)", "N(3, 5), 1", "N(4, 3), 0, keepdim=True"],
                example: [
                    "let (value, _) = tensor([3.0, f64::NAN, 1.0, 2.0])?.nanmedian(None, false)?;",
                    "assert_close(value, 2.0);",
                ],
            }
            /// The most frequent element along `dim`, the smallest of several, and the last index it has.
            method mode(dim: Dim = -1, keepdim: Bool = false) -> ValuesIndices {
                dtypes: ORDERED, result: Same,
                primitive: Mode { axis: usize, keepdim: bool }, saves: Indices,
                gradient: |c, g| [chosen_gradient(c, g, *axis)],
                run: reduced_body[|axis, keepdim| OrderOp::Mode { axis, keepdim }],
                samples: ["N(3, 5)", "I(0, 3, 4, 7)", "I(0, 3, 9, 2), 0, keepdim=True"],
                example: [
                    "let (value, index) = tensor([1, 2, 2, 3])?.mode(-1, false)?;",
                    "assert_close(value, 2);",
                    "assert_close(index, 2);",
                ],
            }
            /// The largest element along `dim` and its index; the first at a tie, which gets the whole gradient.
            function max_dim(input: Tensor, dim: Dim, keepdim: Bool = false) -> ValuesIndices {
                dtypes: ORDERED, result: Same,
                primitive: Max { axis: usize, keepdim: bool }, saves: Indices,
                gradient: |c, g| [chosen_gradient(c, g, *axis)],
                run: reduced_body[|axis, keepdim| OrderOp::Max { axis, keepdim }], node: "max", torch: "max",
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
                primitive: Min { axis: usize, keepdim: bool }, saves: Indices,
                gradient: |c, g| [chosen_gradient(c, g, *axis)],
                run: reduced_body[|axis, keepdim| OrderOp::Min { axis, keepdim }], node: "min", torch: "min",
                samples: ["N(3, 4), 1", "N(2, 3, 4), 0, True"],
                example: [
                    "let (values, indices) = min_dim(&tensor([[1, 4], [3, 2]])?, 1, false)?;",
                    "assert_close(values, [1, 2]);",
                    "assert_close(indices, [0, 1]);",
                ],
            }
            /// The largest element so far along `dim`, and its index.
            method cummax(dim: Dim) -> ValuesIndices {
                dtypes: ORDERED, result: Same,
                primitive: CumMax { axis: usize }, saves: Indices, gradient: |c, g| [chosen_gradient(c, g, *axis)],
                run: running_body[|axis| OrderOp::CumMax { axis }],
                samples: ["N(3, 4), 0", "I(0, 3, 3, 6), -1"],
                example: [
                    "let (values, indices) = tensor([1.0, 3.0, 2.0, 4.0])?.cummax(0)?;",
                    "assert_close(values, [1.0, 3.0, 3.0, 4.0]);",
                    "assert_close(indices, [0, 1, 1, 3]);",
                ],
            }
            /// The smallest element so far along `dim`, and its index.
            method cummin(dim: Dim) -> ValuesIndices {
                dtypes: ORDERED, result: Same,
                primitive: CumMin { axis: usize }, saves: Indices, gradient: |c, g| [chosen_gradient(c, g, *axis)],
                run: running_body[|axis| OrderOp::CumMin { axis }],
                samples: ["N(3, 4), 0", "I(0, 3, 3, 6), -1"],
                example: [
                    "let (values, indices) = tensor([3.0, 1.0, 2.0, 0.0])?.cummin(0)?;",
                    "assert_close(values, [3.0, 1.0, 1.0, 0.0]);",
                    "assert_close(indices, [0, 1, 1, 3]);",
                ],
            }
        }
    };
}
order_ops!(define_primitives);

impl OrderOp {
    fn axis_mut(&mut self) -> &mut usize {
        match self {
            OrderOp::Sort { axis, .. }
            | OrderOp::TopK { axis, .. }
            | OrderOp::KthValue { axis, .. }
            | OrderOp::Median { axis, .. }
            | OrderOp::NanMedian { axis, .. }
            | OrderOp::Mode { axis, .. }
            | OrderOp::Max { axis, .. }
            | OrderOp::Min { axis, .. }
            | OrderOp::CumMax { axis }
            | OrderOp::CumMin { axis } => axis,
        }
    }

    /// The dimension along which elements are compared. A tensor without dimensions has one of one element.
    pub fn axis(&self) -> usize {
        *self.clone().axis_mut()
    }

    /// The same along another dimension.
    pub fn along(mut self, axis: usize) -> OrderOp {
        *self.axis_mut() = axis;
        self
    }

    /// The shape in which `axis` is kept, with as many elements as are chosen of `n`; `None` where it takes none of so many.
    pub fn kept(&self, shape: &[usize]) -> Option<Shape> {
        let axis = self.axis();
        let mut made = Shape::from_slice(shape);
        let n = match (made.get(axis), axis) {
            (Some(&n), _) => n,
            (None, 0) if made.is_empty() => 1,
            (None, _) => return None,
        };
        let count = match *self {
            OrderOp::Sort { .. } | OrderOp::CumMax { .. } | OrderOp::CumMin { .. } => n,
            OrderOp::TopK { k, .. } => (k <= n).then_some(k)?,
            OrderOp::KthValue { k, .. } => (1..=n).contains(&k).then_some(1)?,
            OrderOp::Median { .. }
            | OrderOp::NanMedian { .. }
            | OrderOp::Mode { .. }
            | OrderOp::Max { .. }
            | OrderOp::Min { .. } => (n > 0).then_some(1)?,
        };
        match made.get_mut(axis) {
            Some(size) => *size = count,
            // Of the one element, which there is no dimension for.
            None if count == 1 => {}
            None => return None,
        }
        Some(made)
    }

    /// What it gives for elements of this shape and dtype, the values and their indices; `None` where it takes none of this shape.
    pub fn results(&self, shape: &[usize], dtype: DType) -> Option<Metas> {
        let mut shape = self.kept(shape)?;
        let drops = match *self {
            OrderOp::Sort { .. } | OrderOp::TopK { .. } | OrderOp::CumMax { .. } | OrderOp::CumMin { .. } => false,
            OrderOp::KthValue { keepdim, .. }
            | OrderOp::Median { keepdim, .. }
            | OrderOp::NanMedian { keepdim, .. }
            | OrderOp::Mode { keepdim, .. }
            | OrderOp::Max { keepdim, .. }
            | OrderOp::Min { keepdim, .. } => !keepdim,
        };
        if drops && !shape.is_empty() {
            shape.remove(self.axis());
        }
        Some(Metas::from_iter([Meta { shape: shape.clone(), dtype }, Meta { shape, dtype: DType::I64 }]))
    }
}
