//! Shapes, strides and the arithmetic on them.
//!
//! Depends on `error`. A [`Layout`] says where each element of a tensor is in its storage, in units of elements;
//! on the GPU, whose arrays have a layout of their own, it is what PyTorch would report. Invariant: every index that a
//! layout can produce is inside the storage it was made for.

use crate::error::{Error, Result};
use smallvec::{smallvec, SmallVec};

/// Sizes, one per dimension.
pub type Shape = SmallVec<[usize; 4]>;
/// Steps in elements, one per dimension. Never negative, 0 where a dimension is expanded.
pub type Strides = SmallVec<[usize; 4]>;
/// Sizes, dimensions or strides as ops take them, one or two per dimension: those of most tensors need no allocation.
pub type Sizes = SmallVec<[isize; 8]>;
/// The slices of a `ViewOp::Slice`, at most one per dimension.
pub type Slices = SmallVec<[SliceDim; 2]>;
/// Dimension numbers, already wrapped into `0..ndim`.
pub type Axes = SmallVec<[usize; 4]>;

/// Where each element is in the storage.
#[derive(Debug, PartialEq, Eq)]
pub struct Layout {
    /// Sizes.
    pub shape: Shape,
    /// Steps in elements.
    pub strides: Strides,
    /// Element index of the first element.
    pub offset: usize,
}

/// A slice of one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceDim {
    /// Which dimension.
    pub axis: usize,
    /// Index of the first element.
    pub start: usize,
    /// Distance between elements, at least 1.
    pub step: usize,
    /// How many elements.
    pub len: usize,
}

/// The numbers as a list of its own. `SmallVec`'s way to copy them calls a function for any number of bytes, which takes longer
/// than to move so few.
#[inline]
fn list(from: &[usize]) -> SmallVec<[usize; 4]> {
    match *from {
        [] => SmallVec::new(),
        [a] => SmallVec::from_buf_and_len([a, 0, 0, 0], 1),
        [a, b] => SmallVec::from_buf_and_len([a, b, 0, 0], 2),
        [a, b, c] => SmallVec::from_buf_and_len([a, b, c, 0], 3),
        [a, b, c, d] => SmallVec::from_buf([a, b, c, d]),
        _ => SmallVec::from_slice(from),
    }
}

/// Are the shapes the same? As above: shapes are short.
#[inline]
pub fn is_same(a: &[usize], b: &[usize]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(x, y)| x == y)
}

/// Number of elements; the largest number there is where the sizes overflow, see [`countable`].
#[inline]
pub fn numel(shape: &[usize]) -> usize {
    shape.iter().fold(1, |product, &n| product.saturating_mul(n))
}

/// The product of sizes; the largest number there is where it overflows.
#[inline]
pub fn product(sizes: impl IntoIterator<Item = usize>) -> usize {
    sizes.into_iter().fold(1, usize::saturating_mul)
}

/// An error where a tensor of these sizes would have more elements than can be counted.
#[inline]
pub fn countable(op: &'static str, shape: &[usize]) -> Result<()> {
    if numel(shape) <= isize::MAX as usize {
        return Ok(());
    }
    Err(Error::shape(op, "the number of elements overflows: these sizes are too large", &[shape]))
}

/// Row-major strides, as PyTorch gives them (a dimension of size 0 counts as 1).
#[inline]
pub fn contiguous_strides(shape: &[usize]) -> Strides {
    // The commonest, whose numbers need not go through memory.
    match *shape {
        [] => return Strides::new(),
        [_] => return list(&[1]),
        [_, n] => return list(&[n.max(1), 1]),
        _ => {}
    }
    let mut strides = Strides::from_slice(shape);
    let mut step: usize = 1;
    for place in strides.iter_mut().rev() {
        let n = std::mem::replace(place, step);
        step = step.saturating_mul(n.max(1));
    }
    strides
}

/// The same, where the product of the sizes is a number.
pub fn contiguous_strides_checked(shape: &[usize]) -> Option<Strides> {
    shape.iter().try_fold(1usize, |product, &n| product.checked_mul(n.max(1)))?;
    Some(contiguous_strides(shape))
}

/// Wraps a possibly negative dimension into `0..ndim` (a 0-d tensor counts as 1-d, as in PyTorch).
#[inline]
pub fn wrap_dim(op: &'static str, dim: isize, ndim: usize) -> Result<usize> {
    let n = ndim.max(1) as isize;
    if dim < -n || dim >= n {
        let why = format!("Dimension out of range (expected to be in range of [{}, {}], but got {dim})", -n, n - 1);
        return Err(Error::index(op, why));
    }
    Ok(if dim < 0 { dim + n } else { dim } as usize)
}

/// Why a sample without dimensions has none to work along.
pub const NO_DIMENSION: &str = "Dimension out of range: a sample without dimensions has none";

/// Wraps a list of dimensions and refuses duplicates.
pub fn wrap_dims(op: &'static str, dims: &[isize], ndim: usize) -> Result<Axes> {
    let mut axes = Axes::with_capacity(dims.len());
    for &dim in dims {
        let axis = wrap_dim(op, dim, ndim)?;
        if axes.contains(&axis) {
            return Err(Error::runtime(op, format!("dim {axis} appears multiple times in the list of dims")));
        }
        axes.push(axis);
    }
    Ok(axes)
}

/// [`wrap_dims`] of an op for which a tensor without dimensions has none to name.
pub fn wrap_own_dims(op: &'static str, dims: &[isize], ndim: usize) -> Result<Axes> {
    match (dims, ndim) {
        ([dim, ..], 0) => Err(Error::index(op, format!("Dimension specified as {dim} but tensor has no dimensions"))),
        _ => wrap_dims(op, dims, ndim),
    }
}

/// The shape that two shapes broadcast to.
#[inline]
pub fn broadcast(op: &'static str, a: &[usize], b: &[usize]) -> Result<Shape> {
    if is_same(a, b) {
        return Ok(list(a));
    }
    let n = a.len().max(b.len());
    let mut out: Shape = smallvec![1; n];
    for i in 0..n {
        let x = if i + a.len() >= n { a[i + a.len() - n] } else { 1 };
        let y = if i + b.len() >= n { b[i + b.len() - n] } else { 1 };
        out[i] = match (x, y) {
            (x, y) if x == y => x,
            (1, y) => y,
            (x, 1) => x,
            (x, y) => {
                let why = format!(
                    "The size of tensor a ({x}) must match the size of tensor b ({y}) at non-singleton dimension {i}"
                );
                return Err(Error::shape(op, why, &[a, b]));
            }
        };
    }
    Ok(out)
}

/// Resolves one `-1` in a target shape of `numel` elements.
pub fn infer_size(op: &'static str, target: &[isize], shape: &[usize]) -> Result<Shape> {
    let total = numel(shape);
    let mut known: usize = 1;
    let mut hole = None;
    for (i, &n) in target.iter().enumerate() {
        match n {
            -1 if hole.is_none() => hole = Some(i),
            -1 => return Err(Error::runtime(op, "only one dimension can be inferred")),
            n if n < 0 => return Err(Error::runtime(op, format!("invalid shape dimension {n}"))),
            n => {
                known = known
                    .checked_mul(n as usize)
                    .ok_or_else(|| Error::runtime(op, format!("shape {target:?} overflows")))?;
            }
        }
    }
    let fail = || Error::shape(op, format!("shape '{target:?}' is invalid for input of size {total}"), &[shape]);
    let mut out = Shape::from_elem(0, target.len());
    out.iter_mut().zip(target).for_each(|(out, &n)| *out = n.max(0) as usize);
    match hole {
        Some(_) if known == 0 => {
            let why = format!("cannot reshape tensor of {total} elements into shape {target:?} because the unspecified dimension size -1 can be any value and is ambiguous");
            return Err(Error::shape(op, why, &[shape]));
        }
        Some(i) if total.is_multiple_of(known) => out[i] = total / known,
        None if known == total => {}
        _ => return Err(fail()),
    }
    Ok(out)
}

/// Shape after reducing the given axes.
#[inline]
pub fn reduced_shape(shape: &[usize], axes: &[usize], keepdim: bool) -> Shape {
    if !keepdim && axes.len() == shape.len() {
        return Shape::new();
    }
    let keep = |(i, &n): (usize, &usize)| match axes.contains(&i) {
        false => Some(n),
        true if keepdim => Some(1),
        true => None,
    };
    shape.iter().enumerate().filter_map(keep).collect()
}

/// The permutation that undoes this one.
#[inline]
pub fn inverse(axes: &[usize]) -> Axes {
    let mut out: Axes = smallvec![0; axes.len()];
    for (i, &a) in axes.iter().enumerate() {
        out[a] = i;
    }
    out
}

/// All dimensions, in their order.
#[inline]
pub fn every_axis(ndim: usize) -> Axes {
    // `SmallVec`'s own collecting pushes one element after the other.
    let mut axes = Axes::from_elem(0, ndim);
    axes.iter_mut().enumerate().for_each(|(i, axis)| *axis = i);
    axes
}

/// The numbers at these places.
#[inline]
fn taken(from: &[usize], at: &[usize]) -> SmallVec<[usize; 4]> {
    let mut taken = SmallVec::from_slice(at);
    taken.iter_mut().for_each(|place| *place = from[*place]);
    taken
}

impl Clone for Layout {
    // `SmallVec`'s own clones push one element after the other.
    #[inline]
    fn clone(&self) -> Layout {
        let (shape, strides) = (list(&self.shape), list(&self.strides));
        Layout { shape, strides, offset: self.offset }
    }
}

impl Layout {
    /// The row-major layout of a fresh storage.
    #[inline]
    pub fn contiguous(shape: &[usize]) -> Layout {
        Layout { shape: list(shape), strides: contiguous_strides(shape), offset: 0 }
    }

    /// Number of elements.
    #[inline]
    pub fn numel(&self) -> usize {
        numel(&self.shape)
    }

    /// Number of dimensions.
    #[inline]
    pub fn ndim(&self) -> usize {
        self.shape.len()
    }

    /// Are the elements in row-major order without gaps (from `offset` on)?
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        let mut step = 1;
        for (&n, &s) in self.shape.iter().zip(&self.strides).rev() {
            if n == 0 {
                return true;
            }
            if n != 1 {
                if s != step {
                    // Of nothing any strides are as good.
                    return self.shape.contains(&0);
                }
                step = step.saturating_mul(n);
            }
        }
        true
    }

    /// The order of dimensions in memory, outermost first, of a layout without gaps that is not row-major; with the order
    /// that leads back.
    #[inline]
    pub fn permuted(&self) -> Option<(Axes, Axes)> {
        let Layout { shape, strides, .. } = self;
        if self.is_contiguous() || shape.contains(&0) {
            return None;
        }
        let mut order: Axes = (0..shape.len()).collect();
        order.sort_by_key(|&axis| std::cmp::Reverse((strides[axis], shape[axis])));
        let mut step = 1;
        for &axis in order.iter().rev().filter(|&&axis| shape[axis] != 1) {
            if strides[axis] != step {
                return None;
            }
            step *= shape[axis];
        }
        let mut back: Axes = order.clone();
        order.iter().enumerate().for_each(|(place, &axis)| back[axis] = place);
        Some((order, back))
    }

    /// The number of storage elements that this layout needs: one past the largest index it can produce.
    #[inline]
    pub fn span(&self) -> usize {
        if self.numel() == 0 {
            return self.offset;
        }
        self.offset + self.shape.iter().zip(&self.strides).map(|(&n, &s)| (n - 1) * s).sum::<usize>() + 1
    }

    /// Is some dimension expanded, so that all its indices name the same elements?
    #[inline]
    pub fn repeats(&self) -> bool {
        self.numel() > 0 && self.shape.iter().zip(&self.strides).any(|(&n, &s)| n > 1 && s == 0)
    }

    /// Could two index tuples of this layout name the same element? (True for expanded dimensions.)
    #[inline]
    pub fn may_overlap(&self) -> bool {
        if self.numel() == 0 {
            return false;
        }
        let mut dims: SmallVec<[(usize, usize); 4]> =
            self.shape.iter().zip(&self.strides).filter(|&(&n, _)| n > 1).map(|(&n, &s)| (s, n)).collect();
        dims.sort_unstable();
        let mut reach = 0;
        for (s, n) in dims {
            if s <= reach {
                return true;
            }
            reach = s.saturating_mul(n - 1).saturating_add(reach);
        }
        false
    }

    /// This layout under another shape of as many elements; `None` where no strides can express it (PyTorch's `view` fails
    /// then, and `reshape` copies).
    #[inline]
    pub fn reshaped(&self, to: &[usize]) -> Option<Layout> {
        let strides = self.reshape_strides(to)?;
        Some(Layout { shape: Shape::from_slice(to), strides, offset: self.offset })
    }

    /// This layout with its dimensions in another order.
    #[inline]
    pub fn permuted_by(&self, axes: &[usize]) -> Layout {
        Layout { shape: taken(&self.shape, axes), strides: taken(&self.strides, axes), offset: self.offset }
    }

    /// This layout broadcast to a shape, by strides of 0.
    #[inline]
    pub fn broadcast_to(&self, to: &[usize]) -> Layout {
        let Layout { shape, strides, offset } = self;
        let lead = to.len() - shape.len();
        let mut steps: Strides = smallvec![0; to.len()];
        for i in (0..to.len()).rev() {
            steps[i] = match i.checked_sub(lead) {
                Some(j) if shape[j] == to[i] => strides[j],
                // The stride of a new dimension of size 1 spans the next dimension, as in PyTorch.
                None if to[i] == 1 => match to.get(i + 1) {
                    Some(n) => n.saturating_mul(steps[i + 1]).min(isize::MAX as usize),
                    None => 1,
                },
                _ => 0,
            };
        }
        Layout { shape: Shape::from_slice(to), strides: steps, offset: *offset }
    }

    /// This layout sliced along some of its dimensions.
    #[inline]
    pub fn sliced(&self, dims: &[SliceDim]) -> Layout {
        let mut out = self.clone();
        for d in dims {
            // The start of an empty slice is not an element: keep the offset inside the storage.
            if d.len > 0 && !self.shape.contains(&0) {
                out.offset += d.start * self.strides[d.axis];
            }
            out.strides[d.axis] = self.strides[d.axis].saturating_mul(d.step).min(isize::MAX as usize);
            out.shape[d.axis] = d.len;
        }
        out
    }

    /// Complex numbers as pairs of reals, in a new last dimension.
    pub fn as_real(&self) -> Layout {
        let strides = self.strides.iter().map(|s| s * 2).collect();
        let mut out = Layout { shape: self.shape.clone(), strides, offset: self.offset * 2 };
        out.shape.push(2);
        out.strides.push(1);
        out
    }

    /// Pairs of reals, adjacent in the last dimension, as complex numbers; `None` where they are not.
    pub fn as_complex(&self) -> Option<Layout> {
        let (2, [rest @ .., 1]) = (*self.shape.last()?, self.strides.as_slice()) else { return None };
        if rest.iter().chain([&self.offset]).any(|n| n % 2 != 0) {
            return None;
        }
        let inner = &self.shape[..self.shape.len() - 1];
        Some(Layout { shape: inner.into(), strides: rest.iter().map(|s| s / 2).collect(), offset: self.offset / 2 })
    }

    /// This layout in elements of another size; `None` where they do not have that layout.
    pub fn recast(&self, from: usize, to: usize) -> Option<Layout> {
        if from == to {
            return Some(self.clone());
        }
        let (n, [rest @ .., 1]) = (*self.shape.last()?, self.strides.as_slice()) else { return None };
        let (parts, whole) = (from / from.min(to), to / from.min(to));
        let scale = |n: usize| if n.is_multiple_of(whole) { (n / whole).checked_mul(parts) } else { None };
        let mut strides: Strides = rest.iter().map(|&s| scale(s)).collect::<Option<_>>()?;
        strides.push(1);
        let mut shape = self.shape.clone();
        *shape.last_mut()? = scale(n)?;
        Some(Layout { shape, strides, offset: scale(self.offset)? })
    }

    /// Strides that show this layout's elements under another shape of as many elements, where there are any.
    /// (PyTorch's `computeStride`.)
    fn reshape_strides(&self, to: &[usize]) -> Option<Strides> {
        if self.numel() == 0 {
            return Some(if to == self.shape.as_slice() { self.strides.clone() } else { contiguous_strides(to) });
        }
        if self.shape.is_empty() {
            return Some(smallvec![1; to.len()]);
        }
        let mut out: Strides = smallvec![0; to.len()];
        let mut view = to.len();
        // Runs of old dimensions that are gap-free in memory, from the last to the first.
        let (mut run, mut filled) = (1, 1);
        let mut base = *self.strides.last()?;
        for d in (0..self.ndim()).rev() {
            run *= self.shape[d];
            let ends = d == 0 || (self.shape[d - 1] != 1 && self.strides[d - 1] != run * base);
            if !ends {
                continue;
            }
            while view > 0 && (filled < run || to[view - 1] == 1) {
                view -= 1;
                out[view] = filled * base;
                filled *= to[view];
            }
            if filled != run {
                return None;
            }
            if d > 0 {
                base = self.strides[d - 1];
                (run, filled) = (1, 1);
            }
        }
        (view == 0).then_some(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(shape: &[usize], strides: &[usize]) -> Layout {
        Layout { shape: shape.into(), strides: strides.into(), offset: 0 }
    }

    #[test]
    fn reshape_of_a_transpose_is_no_view() {
        let t = layout(&[3, 2], &[1, 3]);
        assert!(t.reshaped(&[6]).is_none());
        let split = t.reshaped(&[3, 1, 2]).unwrap();
        assert_eq!(split.strides.as_slice()[0], 1);
        assert_eq!(split.strides.as_slice()[2], 3);
    }

    #[test]
    fn reshape_of_an_expanded_dimension() {
        let e = layout(&[2, 3, 4], &[0, 4, 1]);
        let merged = e.reshaped(&[2, 12]).unwrap();
        assert_eq!(merged.strides.as_slice(), &[0, 1]);
        assert!(e.reshaped(&[24]).is_none());
    }

    #[test]
    fn overlap_is_seen() {
        assert!(layout(&[3, 3], &[0, 1]).may_overlap());
        assert!(layout(&[3, 2], &[1, 1]).may_overlap());
        assert!(!layout(&[3, 2], &[1, 3]).may_overlap());
        assert!(!layout(&[1, 2], &[0, 1]).may_overlap());
        assert!(!layout(&[4, 0], &[0, 1]).may_overlap());
    }

    #[test]
    fn broadcast_names_the_dimension() {
        assert_eq!(broadcast("add", &[3, 1], &[4]).unwrap().as_slice(), &[3, 4]);
        let err = broadcast("add", &[2, 3], &[2, 4]).unwrap_err().to_string();
        assert!(err.contains("add") && err.contains("[2, 3]") && err.contains("[2, 4]"), "{err}");
    }
}
