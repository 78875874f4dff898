//! Sparse tensors in PyTorch's COO layout: the indices of some elements or rows, and their values.
//!
//! The storage of a sparse tensor holds two dense tensors: `indices`, int64 (sparse_dim, nnz), and `values` (nnz, and the
//! sizes of the dimensions that are not indexed). What is at an index that occurs twice is the sum. `dispatch` hands
//! every primitive with a sparse input to `rules`, which knows the few that make sense, and refuses the others. The tape
//! sees the values: a sparse tensor requires a gradient where its values do, and has no history but theirs.
//! Depends on the ops. Invariant: every index is inside of the shape, and both parts are on one device.

mod products;
mod rules;
#[cfg(test)]
mod tests;

pub(crate) use products::product;
pub(crate) use rules::{accumulated, apply, detached, refuse, view, write};

use crate::dispatch::Storage;
use crate::ops::index::{index_axes, put_axes, Target};
use crate::ops::view::reshape_to;
use crate::ops::Rounding;
use crate::shape::{contiguous_strides, countable, numel, Axes, Layout, Shape};
use crate::{no_grad, DType, Device, Error, Result, Tensor};
use parking_lot::RwLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// A sparse tensor's data. What is written in place is the parts, whole.
#[derive(Debug)]
pub(crate) struct Coo {
    /// The shape, with strides as of a dense tensor.
    pub(crate) layout: Layout,
    pub(crate) dtype: DType,
    pub(crate) device: Device,
    sparse_dim: usize,
    parts: RwLock<Parts>,
    version: AtomicU32,
}

/// The two tensors.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    /// (sparse_dim, nnz), int64.
    pub(crate) indices: Tensor,
    /// (nnz, dense sizes).
    pub(crate) values: Tensor,
    /// Is every index there once, in order?
    pub(crate) coalesced: bool,
}

impl Coo {
    pub(crate) fn parts(&self) -> Parts {
        self.parts.read().clone()
    }

    pub(crate) fn version(&self) -> u32 {
        self.version.load(Ordering::Acquire)
    }

    /// Indices and values.
    pub(crate) fn both(&self) -> [Tensor; 2] {
        let Parts { indices, values, .. } = self.parts();
        [indices, values]
    }

    pub(crate) fn touch(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    fn replace(&self, parts: Parts) {
        let old = std::mem::replace(&mut *self.parts.write(), parts);
        self.touch();
        drop(old);
    }
}

/// A sparse tensor of parts that fit.
pub(crate) fn made(parts: Parts, shape: &[usize]) -> Tensor {
    let layout = Layout { shape: Shape::from_slice(shape), strides: contiguous_strides(shape), offset: 0 };
    let coo = Coo {
        layout,
        dtype: parts.values.dtype(),
        device: parts.values.device(),
        sparse_dim: parts.indices.shape()[0],
        parts: RwLock::new(parts),
        version: AtomicU32::new(0),
    };
    Tensor::from_storage(Storage::sparse(coo))
}

/// Says why a tensor that is not sparse cannot be asked.
fn wants_sparse(op: &'static str) -> Box<Error> {
    Error::runtime(op, format!("{op} expected sparse coordinate tensor layout but got Strided"))
}

/// Each index as one number, row-major in these sizes; 0 where there are none.
fn numbers(indices: &Tensor, sizes: &[usize]) -> Result<Tensor> {
    let mut flat = Tensor::full_of(&indices.shape()[1..], 0.into(), DType::I64, indices.device())?;
    for (row, &step) in contiguous_strides(sizes).iter().enumerate() {
        flat = (flat + &(indices.select(0, row as i64)? * step as i64)?)?;
    }
    Ok(flat)
}

/// The least shape that the indices fit into, with the values' own sizes behind. Evaluates.
fn least_shape(indices: &Tensor, values: &Tensor) -> Result<Shape> {
    let (dim, nnz) = (indices.shape()[0], indices.shape()[1]);
    let mut shape = Shape::from_elem(0, dim);
    if nnz > 0 && dim > 0 {
        let most = no_grad(|| indices.amax(Some(&[1]), false)?.to_vec::<i64>())?;
        for (size, most) in shape.iter_mut().zip(most) {
            *size = usize::try_from(most.saturating_add(1)).unwrap_or(0);
        }
    }
    shape.extend_from_slice(&values.shape()[1..]);
    Ok(shape)
}

/// Refuses indices outside of the shape. Evaluates.
fn check_range(op: &'static str, indices: &Tensor, shape: &[usize]) -> Result<()> {
    if indices.numel() == 0 {
        return Ok(());
    }
    let ends = |t: Tensor| t.to_vec::<i64>();
    let least = no_grad(|| indices.amin(Some(&[1]), false))?;
    let most = no_grad(|| indices.amax(Some(&[1]), false))?;
    for (dim, (least, most)) in ends(least)?.into_iter().zip(ends(most)?).enumerate() {
        if least < 0 {
            return Err(Error::runtime(op, format!("found negative index {least} for dim {dim}")));
        }
        if most >= shape[dim] as i64 {
            let why = format!(
                "size is inconsistent with indices: for dim {dim}, size is {} but found index {most}",
                shape[dim]
            );
            return Err(Error::runtime(op, why));
        }
    }
    Ok(())
}

impl Tensor {
    /// A sparse tensor with `values` (nnz, …) at `indices` (sparse_dim, nnz), integers, and zero elsewhere. Values at one
    /// index count as their sum. Without a shape the least that fits is taken. Gradients go to the values. Evaluates, since
    /// the indices are checked in any case.
    ///
    /// # Errors
    /// [`Error::Runtime`] where indices, values and shape do not fit together, or an index is out of range.
    ///
    /// ```
    /// # use lucid::{Device, Tensor};
    /// # fn main() -> lucid::Result<()> {
    /// let rows = Tensor::from_slice(&[0i64, 2], &[1, 2], Device::Cpu)?;
    /// let values = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2], Device::Cpu)?;
    /// let x = Tensor::sparse_coo(&rows, &values, Some(&[3, 2]), false)?;
    /// assert_eq!(x.to_dense()?.to_vec::<f32>()?, [1.0, 2.0, 0.0, 0.0, 3.0, 4.0]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn sparse_coo(indices: &Tensor, values: &Tensor, shape: Option<&[usize]>, coalesced: bool) -> Result<Tensor> {
        const OP: &str = "sparse_coo_tensor";
        let fail = |why: String| Err(Error::runtime(OP, why));
        if indices.is_sparse() || values.is_sparse() || indices.is_batched() || values.is_batched() {
            return fail("expected indices and values to be dense tensors outside of vmap".into());
        }
        if indices.device() != values.device() {
            let devices = [indices.device(), values.device()];
            return Err(Error::device(OP, "indices and values must be on one device; move one with .to()", &devices));
        }
        if indices.ndim() != 2 {
            return fail(format!("indices must be sparse_dim x nnz, but got: {:?}", indices.shape()));
        }
        if indices.dtype().is_float() || indices.dtype().is_complex() || indices.dtype() == DType::Bool {
            return Err(Error::dtype(OP, "expected integer indices", &[indices.dtype()]));
        }
        let (dim, nnz) = (indices.shape()[0], indices.shape()[1]);
        let own = values.shape().first().copied();
        if own != Some(nnz) {
            let own = own.map_or("none: values are 0-d".into(), |n| n.to_string());
            return fail(format!(
                "indices and values must have same nnz, but got nnz from indices: {nnz}, nnz from values: {own}"
            ));
        }
        let indices = no_grad(|| indices.cast(DType::I64))?;
        let shape = match shape {
            Some(shape) => Shape::from_slice(shape),
            None => least_shape(&indices, values)?,
        };
        countable(OP, &shape)?;
        let dense = values.ndim() - 1;
        if shape.len() != dim + dense {
            return fail(format!(
                "'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {}, sparse_dim = {dim}, dense_dim = \
                 {dense}",
                shape.len()
            ));
        }
        if values.shape()[1..] != shape[dim..] {
            let mut wanted = Shape::from_slice(&[nnz]);
            wanted.extend_from_slice(&shape[dim..]);
            return fail(format!("values has incorrect size, expected {wanted:?}, got {:?}", values.shape()));
        }
        check_range(OP, &indices, &shape)?;
        Ok(made(Parts { indices, values: values.clone(), coalesced }, &shape))
    }

    /// Is it sparse?
    #[inline]
    pub fn is_sparse(&self) -> bool {
        self.storage().coo().is_some()
    }

    pub(crate) fn sparse_parts(&self, op: &'static str) -> Result<Parts> {
        self.storage().coo().map(Coo::parts).ok_or_else(|| wants_sparse(op))
    }

    /// How many dimensions are indexed; 0 for a dense tensor.
    pub fn sparse_dim(&self) -> usize {
        self.storage().coo().map_or(0, |coo| coo.sparse_dim)
    }

    /// How many dimensions are not indexed.
    pub fn dense_dim(&self) -> usize {
        self.ndim() - self.sparse_dim()
    }

    /// How many indices there are, those that occur twice counted twice.
    ///
    /// # Errors
    /// For a dense tensor.
    pub fn nnz(&self) -> Result<usize> {
        Ok(self.sparse_parts("_nnz")?.indices.shape()[1])
    }

    /// The indices as they are, (sparse_dim, nnz).
    ///
    /// # Errors
    /// For a dense tensor.
    pub fn sparse_indices(&self) -> Result<Tensor> {
        Ok(self.sparse_parts("_indices")?.indices)
    }

    /// The values as they are, (nnz, …). Writes to them are seen by the sparse tensor.
    ///
    /// # Errors
    /// For a dense tensor.
    pub fn sparse_values(&self) -> Result<Tensor> {
        Ok(self.sparse_parts("_values")?.values)
    }

    /// Is every index there once, in order?
    ///
    /// # Errors
    /// For a dense tensor.
    pub fn is_coalesced(&self) -> Result<bool> {
        Ok(self.sparse_parts("is_coalesced")?.coalesced)
    }

    /// The same tensor with every index once, in order, its values summed; itself where it is so already. Evaluates.
    ///
    /// # Errors
    /// For a dense tensor, and what the ops report.
    pub fn coalesce(&self) -> Result<Tensor> {
        let parts = self.sparse_parts("coalesce")?;
        if parts.coalesced {
            return Ok(self.clone());
        }
        self.coalesced_parts(parts).map(|parts| made(parts, self.shape()))
    }

    pub(super) fn coalesced_parts(&self, parts: Parts) -> Result<Parts> {
        let Parts { indices, values, coalesced } = parts;
        let (dim, nnz) = (indices.shape()[0], indices.shape()[1]);
        if coalesced {
            return Ok(Parts { indices, values, coalesced });
        }
        if nnz < 2 {
            return Ok(Parts { indices, values: values.copy()?, coalesced: true });
        }
        let sizes = &self.shape()[..dim];
        let (indices, place, count) = no_grad(|| {
            let (flat, steps) = (numbers(&indices, sizes)?, contiguous_strides(sizes));
            let mut found = flat.unique(true, true, false, None)?.into_iter();
            let (Some(flat), Some(place)) = (found.next(), found.next()) else {
                return Err(Error::runtime("coalesce", "unique gave no places"));
            };
            let of_dim =
                |(&step, &n): (&usize, &usize)| flat.div(step as i64, Rounding::Floor)?.remainder(n.max(1) as i64);
            let rows = steps.iter().zip(sizes).map(of_dim).collect::<Result<Vec<_>>>()?;
            let count = flat.numel();
            let indices = match dim {
                0 => Tensor::full_of(&[0, count], 0.into(), DType::I64, indices.device())?,
                _ => crate::ops::index::stack(&rows, 0)?,
            };
            Ok((indices, place, count))
        })?;
        let mut shape = Shape::from_slice(values.shape());
        shape[0] = count;
        let zeros = Tensor::full_of(&shape, 0.into(), values.dtype(), values.device())?;
        let values = put_axes(Target::Copy, &zeros, &[0], &[place], &values, true, true)?;
        Ok(Parts { indices, values, coalesced: true })
    }

    /// The dense tensor; itself where it is dense.
    ///
    /// # Errors
    /// What the ops report.
    pub fn to_dense(&self) -> Result<Tensor> {
        let Some(coo) = self.storage().coo() else { return Ok(self.clone()) };
        let zeros = Tensor::full_of(self.shape(), 0.into(), self.dtype(), self.device())?;
        rules::added(&zeros, coo)
    }

    /// The elements that are not zero as a sparse tensor, with the first `sparse_dim` dimensions indexed (all unless said);
    /// itself where it is sparse. Evaluates.
    ///
    /// # Errors
    /// Where there are not that many dimensions.
    pub fn to_sparse(&self, sparse_dim: Option<usize>) -> Result<Tensor> {
        if self.is_sparse() {
            return Ok(self.clone());
        }
        let dim = sparse_dim.unwrap_or(self.ndim());
        if dim > self.ndim() || (dim == 0 && self.ndim() > 0) {
            let why = format!(
                "sparse_dim argument must be in >=0 and <={} (and >0 if input is not scalar), but got {dim}",
                self.ndim()
            );
            return Err(Error::runtime("to_sparse", why));
        }
        let lead = &self.shape()[..dim];
        let indices = no_grad(|| {
            let there = self.detach()?.ne(0)?;
            let mut rows = Shape::from_slice(lead);
            rows.push(numel(&self.shape()[dim..]));
            // A row counts where any of its elements does.
            let there = reshape_to(&there, &rows)?.any(Some(&[-1]), false)?;
            match dim {
                0 => {
                    let count = usize::from(there.item_bool()?);
                    Tensor::full_of(&[0, count], 0.into(), DType::I64, self.device())
                }
                _ => there.nonzero()?.t()?.contiguous(),
            }
        })?;
        let values = match dim {
            0 => self.reshape(&[1])?.narrow(0, 0, indices.shape()[1] as i64)?,
            _ => rows_at(self, &indices)?,
        };
        Ok(made(Parts { indices, values, coalesced: true }, self.shape()))
    }
}

impl Tensor {
    /// A sparse tensor of what this dense one has at the indices of `mask`, a sparse tensor of its shape.
    ///
    /// # Errors
    /// Where this is sparse, `mask` is dense, or the shapes differ.
    pub fn sparse_mask(&self, mask: &Tensor) -> Result<Tensor> {
        const OP: &str = "sparse_mask";
        let Parts { indices, coalesced, .. } = mask.sparse_parts(OP)?;
        if let Some(refused) = refuse(OP, &[self]) {
            return Err(refused);
        }
        if self.shape() != mask.shape() {
            let why = "operands have incompatible sizes: the mask must have the tensor's shape";
            return Err(Error::shape(OP, why, &[self.shape(), mask.shape()]));
        }
        let values = rows_at(self, &indices)?;
        Ok(made(Parts { indices, values, coalesced }, self.shape()))
    }
}

/// The index tensors, one per indexed dimension, and these dimensions.
pub(crate) fn places(indices: &Tensor) -> Result<(Axes, Vec<Tensor>)> {
    let dim = indices.shape()[0];
    Ok(((0..dim).collect(), (0..dim as i64).map(|i| indices.select(0, i)).collect::<Result<_>>()?))
}

/// What a dense tensor has at the indices, (nnz, …).
pub(crate) fn rows_at(x: &Tensor, indices: &Tensor) -> Result<Tensor> {
    let (axes, at) = places(indices)?;
    index_axes(x, &axes, &at, true)
}

/// The gradient of a table whose rows were looked up: those rows alone, but for the row `skipped`.
pub(crate) fn of_rows(shape: &[usize], index: &Tensor, rows: &Tensor, skipped: Option<usize>) -> Result<Tensor> {
    let n = index.numel();
    let mut wide = Shape::from_slice(&[n]);
    wide.extend_from_slice(&shape[1..]);
    let (mut index, mut values) = (reshape_to(index, &[n])?, reshape_to(rows, &wide)?);
    if let Some(skipped) = skipped {
        let kept = no_grad(|| index.ne(skipped as i64)?.nonzero()?.select(1, 0))?;
        if kept.numel() < n {
            index = index.index_select(0, &kept)?;
            values = values.index_select(0, &kept)?;
        }
    }
    let indices = reshape_to(&index, &[1, values.shape()[0]])?;
    Ok(made(Parts { indices, values, coalesced: false }, shape))
}
