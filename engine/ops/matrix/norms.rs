//! What the norms of vectors and matrices are made of; their rows are the family's.

use super::{linalg_vector_norm, schema};
use crate::ops::{linalg, NormOrder};
use crate::warnings::warn_once;
use crate::{shape, DType, Error, Result, Scalar, Tensor};

pub(super) fn vector_norm_body(
    x: &Tensor,
    ord: Scalar,
    dim: Option<&[isize]>,
    keepdim: bool,
    dtype: Option<DType>,
) -> Result<Tensor> {
    let op = "linalg.vector_norm";
    let axes = crate::ops::reduce::axes_of(op, dim, x)?;
    let p = ord.to_f64();
    if (p < 0.0 || p == f64::INFINITY) && axes.iter().any(|&a| x.shape()[a] == 0) {
        let why =
            format!("cannot compute the {p} norm on an empty tensor because the operation does not have an identity");
        return Err(Error::runtime(op, why));
    }
    // Of one number each the norm is its size, whatever the order.
    let alone = (x.ndim() > 0 || dim.is_none_or(<[isize]>::is_empty))
        && x.numel() > 0
        && p != 0.0
        && axes.iter().all(|&a| x.shape()[a] == 1);
    if alone && !crate::autograd::is_followed(x) && schema::linalg_vector_norm.dtypes.has(x.dtype()) {
        crate::ops::distance::check_norm_dtype(op, x, dtype)?;
        let size = dtype.map_or(Ok(x.clone()), |d| x.cast(d))?.abs()?;
        return super::super::view::reshape_to(&size, &shape::reduced_shape(x.shape(), &axes, keepdim));
    }
    x.norm(ord, dim, keepdim, dtype)
}

/// The largest of these numbers, none of which is negative; 0 where there are none.
pub(super) fn largest_of(x: &Tensor, dim: isize, keepdim: bool) -> Result<Tensor> {
    match x.shape()[shape::wrap_dim("amax", dim, x.ndim())?] {
        0 => x.sum(Some(&[dim]), keepdim, None),
        _ => x.amax(Some(&[dim]), keepdim),
    }
}

pub(super) fn matrix_norm_body(
    a: &Tensor,
    ord: Option<NormOrder>,
    dim: &[isize],
    keepdim: bool,
    dtype: Option<DType>,
) -> Result<Tensor> {
    let op = "linalg.matrix_norm";
    schema::linalg_matrix_norm.check(a.dtype())?;
    if a.ndim() < 2 {
        return Err(Error::shape(op, "The input tensor A must have at least 2 dimensions.", &[a.shape()]));
    }
    let &[first, second] = dim else {
        return Err(Error::runtime(op, format!("dim must be a 2-tuple. Got {dim:?}")));
    };
    let (rows, columns) = (shape::wrap_dim(op, first, a.ndim())?, shape::wrap_dim(op, second, a.ndim())?);
    if rows == columns {
        return Err(Error::runtime(op, format!("dims must be different. Got ({first}, {second})")));
    }
    crate::ops::distance::check_norm_dtype(op, a, dtype)?;
    let ord = ord.unwrap_or(NormOrder::Fro);
    let a = a.cast(dtype.unwrap_or(a.dtype()))?;
    let (row, column) = (rows as isize, columns as isize);
    let sums = |over: isize, of: isize, largest: bool| {
        let sums = linalg_vector_norm(&a, Scalar::Int(1), Some(&[over]), keepdim, None)?;
        let of = if !keepdim && of > over { of - 1 } else { of };
        if largest {
            largest_of(&sums, of, keepdim)
        } else {
            sums.amin(Some(&[of]), keepdim)
        }
    };
    let values = |f: fn(&Tensor, bool) -> Result<Tensor>| {
        let y = f(&linalg::linalg_svdvals(&a.movedim(&[row, column], &[-2, -1])?, None)?, keepdim)?;
        match keepdim {
            true => y.unsqueeze(-1)?.movedim(&[-2, -1], &[row, column]),
            false => Ok(y),
        }
    };
    match ord {
        NormOrder::Fro => linalg_vector_norm(&a, Scalar::Int(2), Some(&[row, column]), keepdim, None),
        NormOrder::Nuc => values(|s, keepdim| s.sum(Some(&[-1]), keepdim, None)),
        NormOrder::Number(2.0) => values(|s, keepdim| largest_of(s, -1, keepdim)),
        NormOrder::Number(-2.0) => values(|s, keepdim| s.amin(Some(&[-1]), keepdim)),
        NormOrder::Number(1.0) => sums(row, column, true),
        NormOrder::Number(-1.0) => sums(row, column, false),
        NormOrder::Number(f64::INFINITY) => sums(column, row, true),
        NormOrder::Number(f64::NEG_INFINITY) => sums(column, row, false),
        NormOrder::Number(other) => Err(Error::runtime(op, format!("Order {other} not supported."))),
    }
}

pub(super) fn linalg_norm_body(
    x: &Tensor,
    ord: Option<NormOrder>,
    dim: Option<&[isize]>,
    keepdim: bool,
    dtype: Option<DType>,
) -> Result<Tensor> {
    let op = "linalg.norm";
    match (dim, ord) {
        (Some([_] | [_, _]), _) | (None, None) => {}
        (Some(dims), _) => {
            let why = format!("If dim is specified, it must be of length 1 or 2. Got {dims:?}");
            return Err(Error::runtime(op, why));
        }
        (None, Some(_)) if matches!(x.ndim(), 1 | 2) => {}
        (None, Some(_)) => {
            let why = "If dim is not specified but ord is, the input must be 1D or 2D";
            return Err(Error::shape(op, why, &[x.shape()]));
        }
    }
    let pair = dim.map_or(x.ndim(), <[isize]>::len) == 2;
    match ord {
        Some(NormOrder::Fro | NormOrder::Nuc) => matrix_norm_body(x, ord, dim.unwrap_or(&[-2, -1]), keepdim, dtype),
        Some(_) if pair => matrix_norm_body(x, ord, dim.unwrap_or(&[-2, -1]), keepdim, dtype),
        Some(NormOrder::Number(p)) => vector_norm_body(x, Scalar::Float(p), dim, keepdim, dtype),
        None => vector_norm_body(x, Scalar::Int(2), dim, keepdim, dtype),
    }
}

pub(super) fn nuclear_norm_body(x: &Tensor, dim: Option<&[isize]>, keepdim: bool) -> Result<Tensor> {
    warn_once!("nuclear_norm is deprecated in favor of linalg.matrix_norm with \"nuc\".");
    if dim.is_none() && x.ndim() != 2 {
        return Err(Error::shape("nuclear_norm", "takes matrices unless 'dim' names two dimensions", &[x.shape()]));
    }
    matrix_norm_body(x, Some(NormOrder::Nuc), dim.unwrap_or(&[-2, -1]), keepdim, None)
}
