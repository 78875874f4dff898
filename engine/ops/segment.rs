//! Reductions over runs of neighbours, whose lengths are data.
//!
//! No primitives: a row's body is in Tensor ops, so that it runs on both backends and needs no gradient rule of its own.

use super::compare::select::r#where;
use super::macros::define_composites;
use super::Combine;
use crate::batching::everywhere;
use crate::shape::Sizes;
use crate::{shape, DType, Error, Result, Scalar, Tensor};

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! segment_ops {
    ($cb:ident) => { $crate::rows! { $cb "segment" :
        /// The segments of dimension `axis` reduced, each by `reduce`: "sum", "mean", "max", "min" or "prod". `lengths`
        /// says how long they are, or `offsets` where each begins and, last, where they end; both int32 or int64 with
        /// `axis` as their last dimension and `data`'s sizes before it. They are checked to cover the dimension, which
        /// evaluates, but with `unsafe`; what they leave out does not count then. `initial` counts once in each segment
        /// (but not in a mean's number of elements), and is what an empty one gives; by default that is 0, NaN, -inf,
        /// inf and 1. The gradient of an extremum goes to all that are equal to it, in equal parts. `indices` is there
        /// for PyTorch's signature alone.
        function segment_reduce(
            data: Tensor, reduce: Text; lengths: OptTensor = None, indices: OptTensor = None, offsets: OptTensor = None,
            axis: Dim = 0, r#unsafe: Bool = false, initial: OptNumber = None
        ) -> Tensor {
            out: none, deterministic: No("the order of additions is not defined on the GPU"), dtypes: FLOAT,
            result: Same,
            run: segment_reduce_body,
            samples: [
                "N(5), 'sum', lengths=I(5, 6, 1)",
                "N(6, 2), 'mean', offsets=OFFSETS(6, 4)",
                "N(6, 2), 'max', lengths=LENGTHS(6, 3)",
                "N(2, 4), 'min', lengths=LENGTHS(4, 2, 3), axis=1",
                "P(6), 'prod', lengths=LENGTHS(6, 4), initial=2",
                "N(6), 'mean', lengths=LENGTHS(6, 2), initial=1.5",
                "N(6), 'max', lengths=LENGTHS(6, 2), initial=0.5, unsafe=True",
            ],
            example: [
                "let (x, lengths) = (tensor([1.0, 2.0, 3.0])?, tensor([2, 1])?);",
                "let made = segment_reduce(&x, SegmentReduction::Sum, &lengths, None, None, 0, false, None)?;",
                "assert_close(made, [3.0, 3.0]);",
            ],
        }
    }};
}
segment_ops!(define_composites);

/// Where segments begin, and where the last ends, for each row; checked unless `unchecked`.
fn bounds(x: &Tensor, list: &Tensor, are_lengths: bool, axis: isize, unchecked: bool) -> Result<(usize, Tensor)> {
    const OP: &str = "segment_reduce";
    let name = if are_lengths { "lengths" } else { "offsets" };
    let axis = shape::wrap_dim(OP, axis, x.ndim())?;
    if !matches!(list.dtype(), DType::I32 | DType::I64) {
        return Err(Error::dtype(OP, format!("{name} must be int32 or int64"), &[list.dtype()]));
    }
    if x.ndim() == 0 || list.ndim() != axis + 1 || list.shape()[..axis] != x.shape()[..axis] {
        let why =
            format!("expected dimension {axis} to be the last of {name}, behind the sizes that data has before it");
        return Err(Error::shape(OP, why, &[x.shape(), list.shape()]));
    }
    if !are_lengths && list.shape()[axis] == 0 {
        return Err(Error::shape(OP, "offsets must hold at least where the first segment begins", &[list.shape()]));
    }
    let list = list.detach()?.cast(DType::I64)?;
    let (last, n) = (axis as isize, x.shape()[axis] as i64);
    let starts =
        if are_lengths { super::concat::padded(&list, &[1, 0], Scalar::ZERO)?.cumsum(last, None)? } else { list };
    if !unchecked && x.device() != crate::Device::Meta {
        let rising = starts.diff(1, last, None, None)?.ge(0)?.all(None, false)?;
        if !everywhere(&rising)? {
            let why = if are_lengths { "lengths contains negative value!" } else { "offsets must not descend" };
            return Err(Error::runtime(OP, why));
        }
        let ends = starts.select(last, -1)?.eq(n)?;
        let covers = ends.logical_and(&starts.select(last, 0)?.eq(0)?)?.all(None, false)?;
        if !everywhere(&covers)? {
            let why = format!("expected all rows of {name} along axis to cover data.size({axis}) = {n} when !unsafe");
            return Err(Error::runtime(OP, why));
        }
    }
    Ok((axis, starts))
}

#[allow(clippy::too_many_arguments)]
fn segment_reduce_body(
    x: &Tensor,
    reduce: &str,
    lengths: Option<&Tensor>,
    indices: Option<&Tensor>,
    offsets: Option<&Tensor>,
    axis: isize,
    unchecked: bool,
    initial: Option<Scalar>,
) -> Result<Tensor> {
    const OP: &str = "segment_reduce";
    let (mode, unit) = match reduce {
        "sum" | "mean" => (Combine::Sum, 0.0),
        "max" | "amax" => (Combine::Amax, f64::NEG_INFINITY),
        "min" | "amin" => (Combine::Amin, f64::INFINITY),
        "prod" => (Combine::Prod, 1.0),
        other => {
            let why = format!("reduce argument must be either sum, prod, mean, max or min, got {other}");
            return Err(Error::runtime(OP, why));
        }
    };
    schema::segment_reduce.check(x.dtype())?;
    if indices.is_some() {
        return Err(Error::runtime(OP, "indices based reduction is not supported yet"));
    }
    let (axis, starts) = match (lengths, offsets) {
        (Some(list), _) => bounds(x, list, true, axis, unchecked)?,
        (None, Some(list)) => bounds(x, list, false, axis, unchecked)?,
        (None, None) => return Err(Error::runtime(OP, "Either lengths or offsets must be defined.")),
    };
    let (dim, n, segments) = (axis as isize, x.shape()[axis], starts.shape()[axis] - 1);
    // Each element's segment, counted from 1: what is before the first, or behind the last, is put into one of its own.
    let mut rows: Vec<isize> = x.shape()[..axis].iter().map(|&n| n as isize).collect();
    rows.push(n as isize);
    let places = super::create::arange_of(n, x.device())?.expand(&rows)?.contiguous()?;
    let at = super::search::searchsorted(&starts, &places, false, true, None, None)?;
    let number = |mut shape: Vec<usize>, at: Scalar| -> Result<Tensor> {
        shape[axis] = segments + 2;
        Tensor::full_of(&shape, at, x.dtype(), x.device())
    };
    let mut wide = Sizes::from_elem(1, x.ndim());
    wide[..=axis].copy_from_slice(&rows);
    let all: Vec<isize> = x.shape().iter().map(|&n| n as isize).collect();
    let index = at.reshape(&wide)?.expand(&all)?;
    let within = |t: &Tensor| t.narrow(dim, 1, segments as i64)?.contiguous();
    let start = initial.unwrap_or(Scalar::Float(unit));
    let whole = x.shape().to_vec();
    if mode != Combine::Amax && mode != Combine::Amin {
        let total = within(&number(whole.clone(), start)?.scatter_reduce(dim, &index, x, mode, true)?)?;
        if reduce != "mean" {
            return Ok(total);
        }
        let counts = within(&number(whole, Scalar::ZERO)?.scatter_add(
            dim,
            &index,
            &super::create::ones_like(x, None, None, None)?,
        )?)?;
        let none = counts.eq(0)?;
        let mean = (&total / &counts.masked_fill(&none, 1.0)?)?;
        return mean.masked_fill(&none, initial.unwrap_or(Scalar::Float(f64::NAN)));
    }
    let best = within(&extremum(&number(whole, start)?, dim, &index, x, mode)?)?;
    let Some(initial) = initial else { return Ok(best) };
    // Where the initial number is beyond them, no element decides; at a tie the elements do.
    let beyond = if mode == Combine::Amax { best.lt(initial)? } else { best.gt(initial)? };
    r#where(&beyond, initial, &best)
}

/// [`scatter_reduce`](crate::ops::index::scatter_reduce) to extrema whose gradient, where one is NaN, goes to what is NaN.
fn extremum(start: &Tensor, dim: isize, index: &Tensor, x: &Tensor, mode: Combine) -> Result<Tensor> {
    if !(crate::grad_enabled() && x.requires_grad()) {
        return start.scatter_reduce(dim, index, x, mode, false);
    }
    let _lies = crate::autograd::GradLayoutGuard::set(crate::autograd::GradLayoutRule::RowMajor);
    let nan = x.detach()?.isnan()?;
    let best = start.scatter_reduce(dim, index, &x.filled(&nan, 0.0)?, mode, false)?;
    let counts = start.zeros_like()?.scatter_add(dim, index, &nan.cast(x.dtype())?)?;
    let spoilt = counts.gt(0)?;
    // The mean of the NaN there: NaN, and each has its share of the gradient.
    let own = x.where_else_zero(&nan)?;
    let mean = start.zeros_like()?.scatter_add(dim, index, &own)? / &counts.clamp_min(1.0)?;
    r#where(&spoilt, &mean?, &best)
}
