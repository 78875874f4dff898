//! Products of sparse tensors: with dense factors, with each other, and element by element. Each is made of gathers and
//! scattered sums of the values, so that gradients go to the values and to the dense factor, and nothing dense of the
//! sparse shape is made.

use super::{made, numbers, Parts};
use crate::ops::create::arange;
use crate::ops::index::{cat, stack};
use crate::ops::search::searchsorted;
use crate::ops::view::reshape_to;
use crate::shape::numel;
use crate::{no_grad, DType, Error, Result, Tensor};

/// Refuses sparse tensors with dimensions that are not indexed.
fn all_indexed(op: &'static str, inputs: &[&Tensor]) -> Result<()> {
    match inputs.iter().find(|t| t.is_sparse() && t.dense_dim() > 0) {
        Some(t) => {
            let dims = t.dense_dim();
            let why = format!("takes sparse tensors whose dimensions are all indexed, {dims} are not: call to_dense()");
            Err(Error::shape(op, why, &[t.shape()]))
        }
        None => Ok(()),
    }
}

/// The matrix product where one factor is sparse, or both: of matrices, a matrix and a vector, or batches of matrices of one
/// size. Two sparse factors give a sparse, coalesced product; one gives a dense one.
///
/// # Errors
/// [`Error::Shape`] where the sizes do not fit, or there are other numbers of dimensions; [`Error::Runtime`] where values are
/// not single elements.
pub(crate) fn product(op: &'static str, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let fail = |why: String| Err(Error::shape(op, why, &[a.shape(), b.shape()]));
    all_indexed(op, &[a, b])?;
    if a.device() != b.device() {
        let why = "Expected all tensors to be on the same device; move one with .to()";
        return Err(Error::device(op, why, &[a.device(), b.device()]));
    }
    let (k, l) = match (a.shape(), b.shape()) {
        (&[_, k], &[l, _]) | (&[_, k], &[l]) | (&[k], &[l, _]) => (k, l),
        (&[n, _, k], &[m, l, _]) if n == m => (k, l),
        _ => return fail("a sparse tensor is multiplied by matrices, vectors and batches of its own size".into()),
    };
    if k != l {
        return fail(format!("the shapes cannot be multiplied: {k} columns and {l} rows"));
    }
    match (a.is_sparse(), b.is_sparse()) {
        (true, true) if a.ndim() == 2 && b.ndim() == 2 => of_two(op, a, b),
        (true, true) => fail("two sparse tensors are multiplied where both are matrices".into()),
        (true, false) => with_dense(op, a, b),
        // Both turned around.
        _ if a.ndim() == 1 => with_dense(op, &b.transpose(0, 1)?, a),
        _ => with_dense(op, &b.transpose(-2, -1)?, &a.transpose(-2, -1)?)?.transpose(-2, -1),
    }
}

/// Every index takes the dense factor's row of its column, times its value, to its own row.
fn with_dense(op: &'static str, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let Parts { indices, values, .. } = a.sparse_parts(op)?;
    let lead = a.ndim() - 1;
    // A batch of matrices is one tall one, beside one of their columns.
    let batched = lead == 2;
    let columns = |indices: &Tensor| stack(&[indices.select(0, 0)?, indices.select(0, 2)?], 0);
    let (to, from) = no_grad(|| -> Result<_> {
        Ok(match batched {
            true => {
                (numbers(&indices.narrow(0, 0, 2)?, &a.shape()[..2])?, numbers(&columns(&indices)?, &b.shape()[..2])?)
            }
            false => (indices.select(0, 0)?, indices.select(0, 1)?),
        })
    })?;
    let wide: &[usize] = &b.shape()[lead.min(b.ndim())..];
    let tall = |rows: usize| [&[rows], wide].concat();
    let b = reshape_to(b, &tall(numel(&b.shape()[..b.ndim() - wide.len()])))?;
    let rows = b.index_select(0, &from)?;
    let factor = match wide {
        [] => values,
        _ => values.unsqueeze(1)?,
    };
    let zeros = Tensor::full_of(&tall(numel(&a.shape()[..lead])), 0.into(), b.dtype(), b.device())?;
    let y = zeros.index_add(0, &to, &(rows * &factor)?, 1)?;
    match batched {
        true => reshape_to(&y, &[&a.shape()[..lead], wide].concat()),
        false => Ok(y),
    }
}

/// The product of two sparse matrices: an index for each pair of an element in a column and one in the row of its number,
/// merged at the end.
fn of_two(op: &'static str, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let x = a.sparse_parts(op)?;
    let y = b.coalesced_parts(b.sparse_parts(op)?)?;
    let (left, right, indices) = no_grad(|| -> Result<_> {
        let (columns, rows) = (x.indices.select(0, 1)?.contiguous()?, y.indices.select(0, 0)?.contiguous()?);
        let first = searchsorted(&rows, &columns, false, false, None, None)?;
        let counts = (searchsorted(&rows, &columns, false, true, None, None)? - &first)?;
        let left = counts.repeat_interleave(None, None, None)?;
        // The n-th of a run is n behind the run's first.
        let begun = (counts.cumsum(0, None)? - &counts)?;
        let right = (arange(0, Some((left.numel() as i64).into()), 1, None, Some(left.device()))?
            + &(first - &begun)?.index_select(0, &left)?)?;
        let rows = x.indices.select(0, 0)?.index_select(0, &left)?;
        let columns = y.indices.select(0, 1)?.index_select(0, &right)?;
        let indices = stack(&[rows, columns], 0)?;
        Ok((left, right, indices))
    })?;
    let values = (x.values.index_select(0, &left)? * &y.values.index_select(0, &right)?)?;
    made(Parts { indices, values, coalesced: false }, &[a.shape()[0], b.shape()[1]]).coalesce()
}

/// The product of two sparse tensors of one shape, element by element: what both have an index for.
pub(super) fn by_element(op: &'static str, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    if a.shape() != b.shape() || a.sparse_dim() != b.sparse_dim() {
        let why = "sparse tensors are multiplied where they have one shape and as many sparse dimensions";
        return Err(Error::shape(op, why, &[a.shape(), b.shape()]));
    }
    let x = a.coalesced_parts(a.sparse_parts(op)?)?;
    let y = b.coalesced_parts(b.sparse_parts(op)?)?;
    let (left, right) = no_grad(|| -> Result<_> {
        let number = |indices: &Tensor| numbers(indices, &a.shape()[..a.sparse_dim()]);
        let (x, y) = (number(&x.indices)?, number(&y.indices)?);
        let there = searchsorted(&y, &x, false, true, None, None)?;
        let before = searchsorted(&y, &x, false, false, None, None)?;
        let left = there.ne(&before)?.nonzero()?.select(1, 0)?;
        let right = before.index_select(0, &left)?;
        Ok((left, right))
    })?;
    let values = (x.values.index_select(0, &left)? * &y.values.index_select(0, &right)?)?;
    let indices = no_grad(|| x.indices.index_select(1, &left))?;
    Ok(made(Parts { indices, values, coalesced: true }, a.shape()))
}

/// Sparse tensors one after the other along an indexed dimension, or side by side along one that is not.
pub(super) fn joined(op: &'static str, axis: usize, inputs: &[&Tensor], shape: &[usize]) -> Result<Tensor> {
    let parts = inputs.iter().map(|t| t.sparse_parts(op)).collect::<Result<Vec<_>>>()?;
    let dim = inputs[0].sparse_dim();
    if inputs.iter().any(|t| t.sparse_dim() != dim) {
        return Err(Error::runtime(op, "the sparse tensors must have the same number of sparse dimensions"));
    }
    if axis >= dim {
        return Err(Error::not_implemented(
            op,
            format!("{op} along a dimension that is not indexed: call to_dense() first"),
        ));
    }
    let mut begun = 0i64;
    let mut indices = Vec::new();
    for (part, t) in parts.iter().zip(inputs) {
        let moved = Tensor::full_of(&[dim, 1], 0.into(), DType::I64, t.device())?;
        moved.select(0, axis as i64)?.fill_(begun.into())?;
        indices.push((&part.indices + &moved)?);
        begun += t.shape()[axis] as i64;
    }
    let values: Vec<Tensor> = parts.into_iter().map(|p| p.values).collect();
    let parts = Parts { indices: no_grad(|| cat(&indices, 1))?, values: cat(&values, 0)?, coalesced: false };
    Ok(made(parts, shape))
}
