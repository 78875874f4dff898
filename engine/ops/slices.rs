//! Whole slices at a vector of indices along one dimension: the bodies of `index_select`, `index_add`, `index_copy`,
//! `index_fill` and `index_reduce`.
//!
//! A body that writes takes a [`Target`] first: a copy, or the tensor itself.

use super::index::{as_index, index_axes, indexed_shape, put_axes, with_dims, Target};
use super::scatter::{reduced, same_dtype, schema};
use super::Operand;
use crate::shape::{self, Shape};
use crate::warnings::warn_once;
use crate::{DType, Error, Result, Scalar, Tensor};

fn vector_index(op: &'static str, index: &Tensor) -> Result<Tensor> {
    match index.ndim() {
        0 | 1 => as_index(op, &with_dims(index)?),
        _ => Err(Error::index(op, format!("Index is supposed to be a vector, got shape {:?}", index.shape()))),
    }
}

pub(super) fn index_select_body(x: &Tensor, dim: isize, index: &Tensor) -> Result<Tensor> {
    let axis = shape::wrap_dim("index_select", dim, x.ndim())?;
    let index = vector_index("index_select", index)?;
    if x.ndim() == 0 {
        return index_axes(&with_dims(x)?, &[0], &[index], true)?.reshape(());
    }
    index_axes(x, &[axis], &[index], true)
}

/// The axis, the index and the source of an op on slices, checked.
fn slices(
    op: &'static str,
    x: &Tensor,
    dim: isize,
    index: &Tensor,
    source: &Tensor,
) -> Result<(Tensor, usize, Tensor, Tensor)> {
    let axis = shape::wrap_dim(op, dim, x.ndim())?;
    let found = vector_index(op, index)
        .and_then(|i| same_dtype(op, x, source, "self and source expected to have the same dtype").map(|()| i));
    let index = match found {
        Ok(index) => index,
        // `index_copy` looks at its dtypes last.
        Err(odd) if op == "index_copy" && index.ndim() < 2 => return check_ranks(x, index, source).and(Err(odd)),
        Err(odd) => return Err(odd),
    };
    let wide = with_dims(x)?;
    let (expected, _) = indexed_shape(op, &wide, &[axis], std::slice::from_ref(&index))?;
    if op == "index_copy" {
        check_copied(x, axis, &index, source)?;
    }
    if source.ndim() == 0 && index.numel() != 1 && op == "index_add" {
        return Err(Error::index(op, format!("Dimension specified as {dim} but tensor has no dimensions")));
    }
    let alone = source.ndim() == 0 && x.ndim() == 1 && op == "index_copy";
    let source = if x.ndim() == 0 || alone { with_dims(source)? } else { source.clone() };
    if source.shape() != expected.as_slice() {
        let why =
            format!("source must have the shape {expected:?}: that of the tensor, and along dim {axis} that of index");
        return Err(Error::shape(op, why, &[x.shape(), source.shape()]));
    }
    Ok((wide, axis, index, source))
}

/// What `index_copy` says of its source is an `IndexError`.
fn check_copied(x: &Tensor, axis: usize, index: &Tensor, source: &Tensor) -> Result<()> {
    check_ranks(x, index, source)?;
    match (source.shape().get(axis), index.numel()) {
        (Some(&size), n) if size != n => {
            let why = format!("Number of indices ({n}) should be equal to source.size(dim) ({size})");
            Err(Error::index("index_copy", why))
        }
        _ => Ok(()),
    }
}

fn check_ranks(x: &Tensor, index: &Tensor, source: &Tensor) -> Result<()> {
    let why = match (x.ndim(), source.ndim(), index.numel()) {
        (_, 0, 1) => return Ok(()),
        (_, 0, n) => format!("When source is scalar, index should have one element (got {n})"),
        (from, to, _) if from > 0 && from != to => {
            format!("When source and destination are not scalars, their dimensionality must match, got {to} and {from}")
        }
        _ => return Ok(()),
    };
    Err(Error::index("index_copy", why))
}

pub(super) fn index_add_body(
    to: Target,
    x: &Tensor,
    dim: isize,
    index: &Tensor,
    source: &Tensor,
    alpha: Scalar,
) -> Result<Tensor> {
    let (wide, axis, index, source) = slices("index_add", x, dim, index, source)?;
    if to == Target::Itself {
        x.refuse_expanded("index_add_")?;
    }
    let alpha = super::binary::within(x, alpha);
    let source = if alpha == Scalar::ONE { source } else { source.mul(alpha)?.cast(x.dtype())? };
    let out = put_axes(to, &wide, &[axis], &[index], &source, true, true)?;
    super::view::reshape_to(&out, x.shape())
}

pub(super) fn index_copy_body(to: Target, x: &Tensor, dim: isize, index: &Tensor, source: &Tensor) -> Result<Tensor> {
    let (wide, axis, index, source) = slices("index_copy", x, dim, index, source)?;
    if to == Target::Itself {
        x.refuse_expanded("index_copy_")?;
    }
    let out = put_axes(to, &wide, &[axis], &[index], &source, false, true)?;
    super::view::reshape_to(&out, x.shape())
}

pub(super) fn index_fill_body(
    to: Target,
    x: &Tensor,
    dim: isize,
    index: &Tensor,
    value: Operand<'_>,
) -> Result<Tensor> {
    let axis = shape::wrap_dim("index_fill", dim, x.ndim())?;
    let index = vector_index("index_fill", index)?;
    let value = match value {
        Operand::Tensor(v) if v.ndim() == 0 => v.cast(x.dtype())?,
        Operand::Tensor(v) => {
            let why =
                format!("only supports a 0-dimensional value tensor, but got tensor with {} dimension(s)", v.ndim());
            return Err(Error::shape("index_fill", why, &[v.shape()]));
        }
        Operand::Scalar(s) => super::create::held("index_fill", s, x)?,
    };
    // PyTorch fills with the number, which may be an element of the tensor itself.
    let own = to == Target::Itself && !crate::autograd::is_followed(&value) && value.shares_storage(x);
    let value = if own { value.copy()? } else { value };
    let wide = with_dims(x)?;
    let followed = crate::autograd::is_followed(&value);
    if followed && to == Target::Copy {
        // An index that comes twice fills once, and counts once for the number's gradient.
        let n = wide.shape()[axis];
        let truth = |b| {
            Tensor::full_of(if b { &[] } else { std::slice::from_ref(&n) }, Scalar::Bool(b), DType::Bool, x.device())
        };
        let filled = put_axes(Target::Copy, &truth(false)?, &[0], &[index], &truth(true)?, false, false)?;
        let mut line = Shape::from_elem(1, wide.ndim());
        line[axis] = n;
        let out = super::compare::select::r#where(&super::view::reshape_to(&filled, &line)?, &value, &wide)?;
        return super::view::reshape_to(&out, x.shape());
    }
    if followed {
        x.write_in_place("index_fill_", index_fill_body(Target::Copy, x, dim, &index, Operand::Tensor(&value))?)?;
        return Ok(x.clone());
    }
    if to == Target::Itself && x.strides().contains(&0) && x.layout().may_overlap() && !x.is_batched() {
        crate::warnings::of_expanded("index_fill_", x);
        return fill_expanded(x, axis, &index, &value);
    }
    let out = put_axes(to, &wide, &[axis], &[index], &value, false, false)?;
    super::view::reshape_to(&out, x.shape())
}

/// `index_fill_` of a tensor with expanded dimensions: it writes the elements that there are, as in PyTorch (which warns).
fn fill_expanded(x: &Tensor, axis: usize, index: &Tensor, value: &Tensor) -> Result<Tensor> {
    let once = |(&n, &s): (&usize, &usize)| if s == 0 { n.min(1) as isize } else { n as isize };
    let size: Vec<isize> = x.shape().iter().zip(x.strides()).map(once).collect();
    let strides: Vec<isize> = x.strides().iter().map(|&s| s as isize).collect();
    let shown = crate::no_grad(|| x.as_strided(&size, &strides, None))?;
    let mut index = index.clone();
    if x.strides()[axis] == 0 {
        // Any place along it is the one that there is; what is out of range is still an error.
        let line = Tensor::full_of(&[x.shape()[axis]], Scalar::Bool(false), DType::Bool, x.device())?;
        let truth = Tensor::full_of(&[], Scalar::Bool(true), DType::Bool, x.device())?;
        put_axes(Target::Copy, &line, &[0], std::slice::from_ref(&index), &truth, false, false)?;
        index = index.zeros_like()?;
    }
    let write = || put_axes(Target::Itself, &shown, &[axis], &[index], value, false, false).map(drop);
    crate::autograd::record_fill("index_fill_", x, value, write)?;
    Ok(x.clone())
}

pub(super) fn index_reduce_body(
    to: Target,
    x: &Tensor,
    dim: isize,
    index: &Tensor,
    source: &Tensor,
    reduce: &str,
    include_self: bool,
) -> Result<Tensor> {
    const OP: &str = "index_reduce";
    if reduce == "sum" {
        let why = "reduce argument must be either prod, mean, amax or amin, got sum (that is index_add)";
        return Err(Error::runtime(OP, why));
    }
    schema::index_reduce.check(x.dtype())?;
    warn_once!("index_reduce() is in beta and the API may change at any time.");
    let (_, axis, index, source) = slices(OP, x, dim, index, source)?;
    let mut line = Shape::from_elem(1, source.ndim());
    line[axis] = index.numel();
    let index = super::view::expand_to(&super::view::reshape_to(&index, &line)?, source.shape())?;
    reduced(OP, to, (x, dim), (&index, &source), reduce, include_self)
}
