//! Indexing as in Python: `x.i((.., 1..3, 0))`, with a tuple of ranges, numbers, new dimensions and tensors.

use crate::ops::index::index;
use crate::{DType, Error, Result, Tensor};
use std::ops::{Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// One part of an index.
#[derive(Clone, Debug)]
pub enum Index {
    /// The element of that number, from the end where negative; the dimension goes.
    At(i64),
    /// From a number to before another, counted from the end where negative, in steps.
    Slice(Option<i64>, Option<i64>, i64),
    /// All dimensions that no other part is for.
    Ellipsis,
    /// A new dimension of size 1.
    New,
    /// The elements that a tensor of integers, or of bools, names.
    Tensor(Tensor),
}

/// All dimensions that no other part of the index is for: Python's `...`.
pub fn ellipsis() -> Index {
    Index::Ellipsis
}

macro_rules! numbers {
    ($($int:ty)*) => {$(
        impl From<$int> for Index {
            fn from(i: $int) -> Index {
                // A number beyond 63 bits is out of range in any case.
                Index::At(i64::try_from(i).unwrap_or(i64::MAX))
            }
        }
        ranges! { $int: Range<$int> RangeFrom<$int> RangeTo<$int> RangeInclusive<$int> RangeToInclusive<$int> }
    )*};
}
macro_rules! ranges {
    ($int:ty: $($Range:ty)*) => {$(
        impl From<$Range> for Index {
            fn from(range: $Range) -> Index {
                let wide = |i: $int| i64::try_from(i).unwrap_or(i64::MAX);
                let start = match range.start_bound() {
                    Bound::Included(&i) => Some(wide(i)),
                    Bound::Excluded(&i) => Some(wide(i).saturating_add(1)),
                    Bound::Unbounded => None,
                };
                let end = match range.end_bound() {
                    // Up to and with the last is up to the end.
                    Bound::Included(&i) => Some(wide(i)).filter(|&i| i != -1).map(|i| i.saturating_add(1)),
                    Bound::Excluded(&i) => Some(wide(i)),
                    Bound::Unbounded => None,
                };
                Index::Slice(start, end, 1)
            }
        }
    )*};
}
numbers!(i32 i64 usize);

impl From<RangeFull> for Index {
    fn from(_: RangeFull) -> Index {
        Index::Slice(None, None, 1)
    }
}
impl From<Option<()>> for Index {
    /// `None` is a new dimension, as in Python; `Some(())` is a whole one.
    fn from(given: Option<()>) -> Index {
        match given {
            None => Index::New,
            Some(()) => Index::Slice(None, None, 1),
        }
    }
}
impl From<&Tensor> for Index {
    fn from(t: &Tensor) -> Index {
        Index::Tensor(t.clone())
    }
}
impl From<Tensor> for Index {
    fn from(t: Tensor) -> Index {
        Index::Tensor(t)
    }
}

/// What [`Tensor::i`] takes: one part, or a tuple of up to six.
pub trait Indexing {
    /// The parts.
    fn parts(self) -> Vec<Index>;
}

impl<T: Into<Index>> Indexing for T {
    fn parts(self) -> Vec<Index> {
        vec![self.into()]
    }
}

macro_rules! tuples {
    ($($($T:ident)+;)*) => {$(
        impl<$($T: Into<Index>),+> Indexing for ($($T,)+) {
            #[allow(non_snake_case)]
            fn parts(self) -> Vec<Index> {
                let ($($T,)+) = self;
                vec![$($T.into()),+]
            }
        }
    )*};
}
tuples! { A; A B; A B C; A B C D; A B C D E; A B C D E F; }

impl Tensor {
    /// A part of the tensor, as Python's `x[…]` gives it: a view for numbers and ranges, a copy where tensors index.
    ///
    /// # Errors
    /// [`Error::IndexOutOfRange`] for more parts than dimensions, and numbers outside of one.
    ///
    /// # Examples
    /// ```
    /// use lucid::prelude::*;
    /// # fn main() -> Result<()> {
    /// let x = tensor!([[1, 2, 3], [4, 5, 6]])?;
    /// assert_close(x.i((.., 1..3))?, [[2, 3], [5, 6]]);
    /// assert_close(x.i((-1, 0))?, 4);
    /// assert_close(x.i((ellipsis(), -2..))?, [[2, 3], [5, 6]]);
    /// assert_eq!(x.i((.., None, 0))?.shape(), [2, 1]);
    /// assert_close(x.i((&tensor!([1, 0])?, 2))?, [6, 3]);
    /// assert_close(x.i(&x.gt(4)?)?, [5, 6]);
    /// assert!(x.i((0, 3)).is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn i(&self, indices: impl Indexing) -> Result<Tensor> {
        let parts = indices.parts();
        let taken = |part: &Index| match part {
            Index::At(_) | Index::Slice(..) => 1,
            Index::Tensor(t) if t.dtype() == DType::Bool => t.ndim(),
            Index::Tensor(_) => 1,
            Index::Ellipsis | Index::New => 0,
        };
        let used: usize = parts.iter().map(taken).sum();
        let free = self.ndim().checked_sub(used).ok_or_else(|| {
            Error::index("index", format!("too many indices for tensor of dimension {}: {used}", self.ndim()))
        })?;
        if parts.iter().filter(|p| matches!(p, Index::Ellipsis)).count() > 1 {
            return Err(Error::index("index", "an index can only have a single ellipsis"));
        }
        let (mut x, mut dim) = (self.clone(), 0usize);
        let (mut dims, mut tensors) = (Vec::new(), Vec::new());
        for part in parts {
            match part {
                Index::At(i) => x = x.select(dim as isize, i)?,
                Index::Slice(start, end, step) => {
                    if (start, end, step) != (None, None, 1) {
                        let slice = crate::ops::index::slice_of("index", &x, dim, start, end, step)?;
                        x = crate::ops::index::sliced(&x, slice)?;
                    }
                    dim += 1;
                }
                Index::Ellipsis => dim += free,
                Index::New => {
                    x = x.unsqueeze(dim as isize)?;
                    dim += 1;
                }
                Index::Tensor(t) if t.dtype() == DType::Bool => {
                    crate::ops::scatter::check_mask("index", &x, dim, &t)?;
                    for place in crate::ops::scatter::places(&t)? {
                        dims.push(dim as isize);
                        tensors.push(place);
                        dim += 1;
                    }
                }
                Index::Tensor(t) => {
                    dims.push(dim as isize);
                    tensors.push(t);
                    dim += 1;
                }
            }
        }
        if tensors.is_empty() {
            Ok(x)
        } else {
            index(&x, &dims, &tensors)
        }
    }
}
