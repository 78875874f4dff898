//! Order along one dimension.
//!
//! One primitive, the stable `argsort`; sorted values are gathered by it, so their gradient is that of `gather`.
//! Kernels are in `cpu/sort.rs` and `gpu/index.rs`.

use super::macros::define_ops;
use crate::dispatch::{self, Meta, Prim};
use crate::{shape, DType, Error, Result, Tensor};

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! sort_ops {
    ($cb:ident) => {
        $cb! { "sort" SortOp :
            /// The indices that sort along `dim`; equal elements keep their order, NaN is largest.
            method argsort(dim: Dim = -1, descending: Bool = false, stable: Bool = true) -> Tensor {
                [] Keep Yes DTypes::ORDERED, Index,
                prim ArgSort { axis: usize, descending: bool } Nothing {none},
                run argsort_body, torch "", samples ["N(3, 4)", "N(3, 4), 0, descending=True"]
            }
            /// The elements in order along `dim`, and the indices they came from.
            method sort(dim: Dim = -1, descending: Bool = false, stable: Bool = true) -> ValuesIndices {
                [] Keep Yes DTypes::ORDERED, Same,
                run sort_body, torch "", samples ["N(3, 4)", "N(3, 4), 0, descending=True"]
            }
            /// The `k` largest (or smallest) elements along `dim`, in order, and their indices.
            method topk(k: Int, dim: Dim = -1, largest: Bool = true, sorted: Bool = true) -> ValuesIndices {
                [] Keep Yes DTypes::REAL, Same,
                run topk_body, torch "", samples ["N(3, 6), 2", "N(6, 3), 3, 0, largest=False"]
            }
            /// The largest element along `dim` and its index; the first at a tie, which gets the whole gradient.
            function max_dim(input: Tensor, dim: Dim, keepdim: Bool = false) -> ValuesIndices {
                [] Keep Yes DTypes::ORDERED, Same,
                run extremum_dim[true], torch "max", samples ["N(3, 4), 1", "N(2, 3, 4), 0, True"]
            }
            /// The smallest element along `dim` and its index; the first at a tie, which gets the whole gradient.
            function min_dim(input: Tensor, dim: Dim, keepdim: Bool = false) -> ValuesIndices {
                [] Keep Yes DTypes::ORDERED, Same,
                run extremum_dim[false], torch "min", samples ["N(3, 4), 1", "N(2, 3, 4), 0, True"]
            }
        }
    };
}
sort_ops!(define_ops);

fn argsort_body(x: &Tensor, dim: isize, descending: bool, _stable: bool) -> Result<Tensor> {
    schema::argsort.check(x.dtype())?;
    let axis = shape::wrap_dim("argsort", dim, x.ndim())?;
    if x.ndim() == 0 {
        return x.zeros_like()?.cast(DType::I64);
    }
    dispatch::apply1(
        Prim::Sort(SortOp::ArgSort { axis, descending }),
        &[&x.detach()?],
        Meta::new(x.shape(), DType::I64),
    )
}

fn sort_body(x: &Tensor, dim: isize, descending: bool, stable: bool) -> Result<(Tensor, Tensor)> {
    let indices = x.argsort(dim, descending, stable)?;
    Ok((x.gather(dim, &indices)?, indices))
}

fn topk_body(x: &Tensor, k: i64, dim: isize, largest: bool, _sorted: bool) -> Result<(Tensor, Tensor)> {
    schema::topk.check(x.dtype())?;
    let axis = shape::wrap_dim("topk", dim, x.ndim())?;
    let n = x.shape().get(axis).copied().unwrap_or(1);
    if k < 0 || k as usize > n {
        let why = format!("selected index k out of range: k is {k}, dimension {axis} has {n} elements");
        return Err(Error::runtime("topk", why));
    }
    if x.ndim() == 0 {
        return Ok((x.clone(), x.zeros_like()?.cast(DType::I64)?));
    }
    let indices = x.argsort(dim, largest, true)?.narrow(dim, 0, k)?;
    Ok((x.gather(dim, &indices)?, indices))
}

fn extremum_dim(largest: bool, x: &Tensor, dim: isize, keepdim: bool) -> Result<(Tensor, Tensor)> {
    let order = if x.dtype() == DType::Bool { x.cast(DType::U8)? } else { x.clone() };
    let at = if largest { order.argmax(Some(dim), true)? } else { order.argmin(Some(dim), true)? };
    let values = x.gather(dim, &at)?;
    match keepdim {
        true => Ok((values, at)),
        false => Ok((values.squeeze(Some(&[dim]))?, at.squeeze(Some(&[dim]))?)),
    }
}

impl Tensor {
    /// The largest element along `dim` and its index: see [`max_dim`].
    pub fn max_dim(&self, dim: isize, keepdim: bool) -> Result<(Tensor, Tensor)> {
        max_dim(self, dim, keepdim)
    }

    /// The smallest element along `dim` and its index: see [`min_dim`].
    pub fn min_dim(&self, dim: isize, keepdim: bool) -> Result<(Tensor, Tensor)> {
        min_dim(self, dim, keepdim)
    }
}
