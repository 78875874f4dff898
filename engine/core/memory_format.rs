//! Memory formats: the order of a tensor's dimensions in memory.
//!
//! Depends on `shape`. Which results propagate the format of their inputs is decided in the engine's `layout_propagation`.

use crate::shape::{contiguous_strides, inverse, Axes, Layout, Strides};
use crate::{Error, Result};
use smallvec::{smallvec, SmallVec};

/// An order of the dimensions in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryFormat {
    /// Row-major.
    Contiguous,
    /// As it is, without gaps and repetitions.
    Preserve,
    /// Of images, (N, C, H, W): the channels next to each other.
    ChannelsLast,
    /// Of volumes, (N, C, D, H, W): the channels next to each other.
    ChannelsLast3d,
}

impl MemoryFormat {
    /// All of them.
    pub const ALL: [MemoryFormat; 4] =
        [MemoryFormat::Contiguous, MemoryFormat::Preserve, MemoryFormat::ChannelsLast, MemoryFormat::ChannelsLast3d];

    /// PyTorch's name.
    pub const fn name(self) -> &'static str {
        match self {
            MemoryFormat::Contiguous => "contiguous_format",
            MemoryFormat::Preserve => "preserve_format",
            MemoryFormat::ChannelsLast => "channels_last",
            MemoryFormat::ChannelsLast3d => "channels_last_3d",
        }
    }

    /// The dimensions that tensors of the format have, where that is given.
    const fn rank(self) -> Option<usize> {
        match self {
            MemoryFormat::Contiguous | MemoryFormat::Preserve => None,
            MemoryFormat::ChannelsLast => Some(4),
            MemoryFormat::ChannelsLast3d => Some(5),
        }
    }

    fn check_rank(self, op: &'static str, shape: &[usize]) -> Result<()> {
        match self.rank() {
            Some(n) if n != shape.len() => {
                Err(Error::shape(op, format!("required rank {n} tensor to use {} format", self.name()), &[shape]))
            }
            _ => Ok(()),
        }
    }
}

/// The dimensions of images or volumes from the innermost on, where the channels are innermost.
fn channels_first(ndim: usize) -> Axes {
    std::iter::once(1).chain((2..ndim).rev()).chain(std::iter::once(0)).collect()
}

/// The order of dimensions in memory of a format whose channels are innermost, and the one that leads back.
#[inline]
pub fn channels_order(format: MemoryFormat) -> Option<(Axes, Axes)> {
    let ndim = match format {
        MemoryFormat::ChannelsLast => 4,
        MemoryFormat::ChannelsLast3d => 5,
        MemoryFormat::Contiguous | MemoryFormat::Preserve => return None,
    };
    let mut order = channels_first(ndim);
    order.reverse();
    let back = inverse(&order);
    Some((order, back))
}

/// Strides with the channels innermost; sizes of 0 count as they are, as in PyTorch.
fn channels_last_strides(shape: &[usize]) -> Strides {
    let mut strides: Strides = smallvec![0; shape.len()];
    let mut step = 1usize;
    for axis in channels_first(shape.len()) {
        strides[axis] = step;
        step = step.saturating_mul(shape[axis]).min(isize::MAX as usize);
    }
    strides
}

/// The dimensions of `shape` from the innermost in memory on, as far as the strides of arrays that broadcast to it tell, those
/// of the first before those of the next; an expanded one says nothing of its place.
fn memory_order(layouts: &[&Layout], shape: &[usize]) -> Axes {
    let n = shape.len();
    let stride = |layout: &Layout, axis: usize| match (axis + layout.ndim()).checked_sub(n) {
        Some(own) if layout.shape[own] == shape[axis] => layout.strides[own],
        _ => 0,
    };
    let after = |a: usize, b: usize| -> Option<bool> {
        layouts.iter().find_map(|layout| {
            let (s, t) = (stride(layout, a), stride(layout, b));
            match s.cmp(&t) {
                _ if s == 0 || t == 0 => None,
                std::cmp::Ordering::Less => Some(false),
                std::cmp::Ordering::Greater => Some(true),
                std::cmp::Ordering::Equal => (shape[a] > shape[b]).then_some(true),
            }
        })
    };
    let mut order: Axes = (0..n).rev().collect();
    for i in 1..n {
        let mut at = i;
        for before in (0..i).rev() {
            match after(order[before], order[at]) {
                Some(true) => {
                    order.swap(before, at);
                    at = before;
                }
                Some(false) => break,
                None => {}
            }
        }
    }
    order
}

/// The order of dimensions in memory, outermost first, that an element-wise op gives its result of `shape`, where that is
/// not row-major, with the order that leads back. As in PyTorch it is the one in which the operands are.
#[inline]
pub fn common_order(operands: &[&Layout], shape: &[usize]) -> Option<(Axes, Axes)> {
    let whole = operands.iter().find(|x| x.ndim() > 0).filter(|_| !shape.contains(&0))?;
    let alike = |x: &&Layout| x.ndim() == 0 || x.shape == whole.shape && x.strides == whole.strides;
    if operands.iter().all(alike) {
        if let Some(orders) = whole.permuted() {
            return Some(orders);
        }
    }
    let mut order = memory_order(operands, shape);
    order.reverse();
    if order.iter().enumerate().all(|(place, &axis)| place == axis) {
        return None;
    }
    let mut back: Axes = order.clone();
    order.iter().enumerate().for_each(|(place, &axis)| back[axis] = place);
    Some((order, back))
}

impl Layout {
    /// Is each element at a place of its own, and are there no gaps?
    pub fn is_dense(&self) -> bool {
        let mut dims: SmallVec<[(usize, usize); 4]> =
            self.shape.iter().zip(&self.strides).filter(|&(&n, _)| n > 1).map(|(&n, &s)| (s, n)).collect();
        if self.shape.contains(&0) {
            // Nothing is anywhere, but a size of 0 beside a wrong stride counts in PyTorch.
            return self.shape.len() == 1 || self.strides == contiguous_strides(&self.shape) || self.dense_empty();
        }
        dims.sort_unstable();
        let mut step = 1;
        dims.iter().all(|&(s, n)| {
            let dense = s == step;
            step = step.saturating_mul(n);
            dense
        })
    }

    /// The same where a size is 0: dimensions by their strides, those of sizes 0 and 1 last, must follow each other.
    fn dense_empty(&self) -> bool {
        let mut order: Axes = (0..self.ndim()).collect();
        order.sort_by_key(|&i| (self.shape[i] < 2, self.strides[i]));
        let mut step = 1;
        for i in order {
            if self.shape[i] < 2 {
                return true;
            }
            if self.strides[i] != step {
                return false;
            }
            step = step.saturating_mul(self.shape[i]);
        }
        true
    }

    /// The dimensions from the innermost in memory on, as far as strides tell.
    pub fn memory_order(&self) -> Axes {
        memory_order(&[self], &self.shape)
    }

    /// The strides of a dense copy whose dimensions are in the same order.
    fn dense_strides(&self) -> Strides {
        if self.is_dense() {
            return self.strides.clone();
        }
        let mut strides: Strides = smallvec![0; self.ndim()];
        let mut step = 1usize;
        for axis in self.memory_order() {
            strides[axis] = step;
            step = step.saturating_mul(self.shape[axis].max(1));
        }
        strides
    }

    /// The strides of a tensor like this one in a format.
    pub fn strides_in(&self, op: &'static str, format: MemoryFormat) -> Result<Strides> {
        format.check_rank(op, &self.shape)?;
        Ok(match format {
            MemoryFormat::Contiguous => contiguous_strides(&self.shape),
            MemoryFormat::Preserve => self.dense_strides(),
            MemoryFormat::ChannelsLast | MemoryFormat::ChannelsLast3d => channels_last_strides(&self.shape),
        })
    }

    /// Do the elements have the layout of the format, without gaps?
    pub fn is_contiguous_in(&self, format: MemoryFormat) -> bool {
        if matches!(format, MemoryFormat::Contiguous | MemoryFormat::Preserve) {
            return self.is_contiguous();
        }
        if format.rank() != Some(self.ndim()) {
            return false;
        }
        let mut step = 1;
        for axis in channels_first(self.ndim()) {
            if self.shape[axis] != 1 {
                if self.strides[axis] != step {
                    return false;
                }
                step *= self.shape[axis];
            }
        }
        true
    }

    /// Do the strides fall as a format's do? What could be either counts as row-major.
    fn resembles(&self, format: MemoryFormat) -> bool {
        if format.rank() != Some(self.ndim()) || self.strides[1] == 0 {
            return false;
        }
        let mut least = 0;
        for axis in channels_first(self.ndim()) {
            let (n, s) = (self.shape[axis], self.strides[axis]);
            if n == 0 || s < least || axis == 0 && least == self.strides[1] {
                return false;
            }
            least = if n > 1 { s.saturating_mul(n) } else { s };
        }
        true
    }

    /// The format that the strides show: row-major unless the channels are last.
    pub fn suggested_format(&self) -> MemoryFormat {
        let last = [MemoryFormat::ChannelsLast, MemoryFormat::ChannelsLast3d];
        last.into_iter().find(|&f| self.resembles(f)).unwrap_or(MemoryFormat::Contiguous)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(shape: &[usize], strides: &[usize]) -> Layout {
        Layout { shape: shape.into(), strides: strides.into(), offset: 0 }
    }

    #[test]
    fn formats_have_strides() {
        let x = Layout::contiguous(&[2, 3, 4, 5]);
        let last = x.strides_in("test", MemoryFormat::ChannelsLast).unwrap();
        assert_eq!(last.as_slice(), [60, 1, 15, 3]);
        let y = layout(&[2, 3, 4, 5], &last);
        assert!(y.is_contiguous_in(MemoryFormat::ChannelsLast) && !y.is_contiguous() && y.is_dense());
        assert_eq!(y.suggested_format(), MemoryFormat::ChannelsLast);
        assert_eq!(y.dense_strides(), last);
        assert!(x.strides_in("test", MemoryFormat::ChannelsLast3d).is_err());
    }

    #[test]
    fn gaps_and_repetitions_go() {
        assert_eq!(layout(&[2, 5], &[1, 4]).dense_strides().as_slice(), [1, 2]);
        assert_eq!(layout(&[5, 3, 2, 4], &[1, 20, 0, 5]).dense_strides().as_slice(), [1, 40, 5, 10]);
        assert!(!layout(&[3, 2], &[0, 1]).is_dense() && !layout(&[3], &[2]).is_dense());
    }
}
