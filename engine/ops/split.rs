//! Cutting a dimension into pieces, each of them a view: the bodies of `chunk`, `split` and `unbind`.

use super::view::slice_dims;
use crate::autograd::{self, SplitInfo};
use crate::fallible::{collected, ensure_room, filled, TENSOR};
use crate::shape::{self, SliceDim};
use crate::{Error, Result, Tensor};
use smallvec::smallvec;

fn pieces(x: &Tensor, axis: usize, sizes: impl Iterator<Item = usize>) -> Result<Vec<Tensor>> {
    ensure_room(sizes.size_hint().0, TENSOR)?;
    let pieces = SplitInfo { axis, sizes: collected(sizes)?, drops_axis: false };
    autograd::record_pieces(x, pieces, |pieces| {
        let mut start = 0;
        let cut = |&len: &usize| {
            let dim = SliceDim { axis, start, step: 1, len };
            start += len;
            slice_dims(x, smallvec![dim])
        };
        pieces.sizes.iter().map(cut).collect()
    })
}

fn equal_pieces(x: &Tensor, axis: usize, size: usize) -> Result<Vec<Tensor>> {
    let n = x.shape()[axis];
    let count = n.div_ceil(size.max(1)).max(1);
    pieces(x, axis, (0..count).map(|i| size.min(n - (i * size).min(n))))
}

pub(super) fn chunk_body(x: &Tensor, chunks: i64, dim: isize) -> Result<Vec<Tensor>> {
    let axis = dim_to_cut("chunk", x, dim)?;
    if chunks < 1 {
        return Err(Error::runtime("chunk", format!("expects `chunks` to be greater than 0, got: {chunks}")));
    }
    let n = x.shape()[axis];
    if n == 0 {
        // Of nothing there are as many pieces as asked for.
        return pieces(x, axis, std::iter::repeat_n(0, chunks as usize));
    }
    equal_pieces(x, axis, n.div_ceil(chunks as usize))
}

pub(super) fn split_body(x: &Tensor, sections: super::Sections<'_>, dim: isize) -> Result<Vec<Tensor>> {
    let axis = dim_to_cut("split", x, dim)?;
    let n = x.shape()[axis];
    match sections {
        super::Sections::Count(size) if size < 0 => {
            Err(Error::runtime("split", format!("expects split_size be non-negative, but got split_size={size}")))
        }
        super::Sections::Count(0) if n > 0 => {
            Err(Error::runtime("split", "split_size can only be 0 if dimension size is 0"))
        }
        super::Sections::Count(size) => equal_pieces(x, axis, size as usize),
        super::Sections::List(sizes) => {
            let sum = sizes.iter().try_fold(0isize, |sum, &s| sum.checked_add(s));
            if sizes.iter().any(|&s| s < 0) || sum != Some(n as isize) {
                let why = format!(
                    "expects split_sizes {sizes:?} to be non-negative and to sum exactly to {n} (input tensor's size at dimension {axis})"
                );
                return Err(Error::shape("split", why, &[x.shape()]));
            }
            pieces(x, axis, sizes.iter().map(|&s| s as usize))
        }
    }
}

pub(super) fn split_with_sizes_body(x: &Tensor, split_sizes: &[isize], dim: isize) -> Result<Vec<Tensor>> {
    split_body(x, super::Sections::List(split_sizes), dim)
}

pub(super) fn unsafe_chunk_body(x: &Tensor, chunks: i64, dim: isize) -> Result<Vec<Tensor>> {
    chunk_body(x, chunks, dim).map(autograd::apart)
}

pub(super) fn unsafe_split_body(x: &Tensor, sections: super::Sections<'_>, dim: isize) -> Result<Vec<Tensor>> {
    if matches!(sections, super::Sections::List(_)) {
        let why = "argument 'split_size' must be int, not list; unsafe_split_with_sizes takes lists";
        return Err(Error::kind("unsafe_split", why));
    }
    split_body(x, sections, dim).map(autograd::apart)
}

pub(super) fn unsafe_sizes_body(x: &Tensor, split_sizes: &[isize], dim: isize) -> Result<Vec<Tensor>> {
    split_with_sizes_body(x, split_sizes, dim).map(autograd::apart)
}

fn dim_to_cut(op: &'static str, x: &Tensor, dim: isize) -> Result<usize> {
    match x.ndim() {
        // PyTorch's rule for samples looks at the dimension alone.
        0 if x.is_batched() && op.starts_with("split") => Err(Error::index(op, shape::NO_DIMENSION)),
        0 => Err(Error::runtime(op, "expects at least a 1-dimensional tensor")),
        n => shape::wrap_dim(op, dim, n),
    }
}

pub(super) fn unbind_body(x: &Tensor, dim: isize) -> Result<Vec<Tensor>> {
    if x.ndim() == 0 {
        return Err(Error::index("unbind", format!("Dimension specified as {dim} but tensor has no dimensions")));
    }
    let axis = shape::wrap_dim("unbind", dim, x.ndim())?;
    ensure_room(x.shape()[axis], TENSOR)?;
    let pieces = SplitInfo { axis, sizes: filled(1, x.shape()[axis])?, drops_axis: true };
    autograd::record_pieces(x, pieces, |pieces| {
        (0..pieces.sizes.len()).map(|i| x.select(axis as isize, i as i64)).collect()
    })
}
