//! Zeros around parts: the gradients of slices, of which several make up the gradient of what they were cut from.
//!
//! Depends on `value` and mlx-ffi. Invariant: parts do not overlap, so that their sum is all of them side by side, in one pass,
//! where each by itself would be filled up with zeros and added.

use super::convert::{int, Ints};
use super::kernel_error::Made;
use super::lower::Origin;
use super::value::{identity, Perm, Value};
use super::view::physical_axis;
use mlx_ffi::{ops, Array};
use smallvec::{smallvec, SmallVec};

/// A part in the physical order of the whole, and the place along the axis where it begins.
type Part = (i32, Array);

/// Parts along one axis, in the order of their places, with zeros before, between and behind them.
pub(super) struct Framed {
    parts: SmallVec<[Part; 4]>,
    /// The logical axis, and the whole's size along it.
    axis: usize,
    size: i32,
    /// The physical order of axes.
    perm: Option<Perm>,
}

impl Framed {
    /// Zeros around a part that begins at `start` of `size` places along a logical axis.
    pub(super) fn around(part: &Value, axis: usize, start: usize, size: usize) -> Made<Value> {
        let framed = Framed {
            parts: smallvec![(int(start)?, part.array()?.clone())],
            axis,
            size: int(size)?,
            perm: part.perm.clone(),
        };
        Value::later(Origin::Framed(framed), part.perm.clone())
    }

    /// The sum of two values that are zeros around parts, where no two parts overlap.
    pub(super) fn sum(x: &Value, y: &Value) -> Made<Option<Value>> {
        let (Some(Origin::Framed(a)), Some(Origin::Framed(b))) = (x.origin(), y.origin()) else { return Ok(None) };
        if (a.axis, a.size) != (b.axis, b.size) {
            return Ok(None);
        }
        let Some((_, first)) = a.parts.first() else { return Ok(None) };
        let mut parts = a.parts.clone();
        for (start, part) in &b.parts {
            let part = Value::new(part.clone(), y.perm.clone());
            let order: Perm = x.perm.clone().unwrap_or_else(|| identity(first.ndim()));
            parts.push((*start, part.ordered(Some(&order))?.into_owned()));
        }
        parts.sort_by_key(|(start, _)| *start);
        let along = physical_axis(x.perm.as_ref(), a.axis);
        let rest = |part: &Array| -> Ints {
            part.shape().iter().enumerate().filter(|&(i, _)| i != along).map(|(_, &n)| n).collect()
        };
        let alike = |part: &Array| part.dtype() == first.dtype() && rest(part) == rest(first);
        let apart = parts.windows(2).all(|w| w[0].0 + w[0].1.shape()[along] <= w[1].0);
        if !apart || !parts.iter().all(|(_, part)| alike(part)) {
            return Ok(None);
        }
        Value::later(Origin::Framed(Framed { parts, axis: a.axis, size: a.size, perm: x.perm.clone() }), x.perm.clone())
            .map(Some)
    }

    pub(super) fn parts(&self) -> impl Iterator<Item = &Array> {
        self.parts.iter().map(|(_, part)| part)
    }

    /// All of it, in its physical order.
    pub(super) fn make(&self) -> Made<Array> {
        let along = physical_axis(self.perm.as_ref(), self.axis);
        if let [(start, part)] = &self.parts[..] {
            let high = self.size - start - part.shape()[along];
            let zero = ops::zeros(&[], part.dtype())?;
            return Ok(ops::pad(part, &[int(along)?], &[*start], &[high], &zero, "constant")?);
        }
        let mut all: SmallVec<[Array; 8]> = SmallVec::new();
        let mut end = 0;
        let zeros = |from: i32, to: i32, like: &Array, all: &mut SmallVec<[Array; 8]>| -> Made<()> {
            if to > from {
                let mut shape = Ints::from_slice(like.shape());
                shape[along] = to - from;
                all.push(ops::zeros(&shape, like.dtype())?);
            }
            Ok(())
        };
        for (start, part) in &self.parts {
            zeros(end, *start, part, &mut all)?;
            all.push(part.clone());
            end = start + part.shape()[along];
        }
        if let Some((_, part)) = self.parts.last() {
            zeros(end, self.size, part, &mut all)?;
        }
        let all: SmallVec<[&Array; 8]> = all.iter().collect();
        Ok(ops::concatenate_axis(&all, int(along)?)?)
    }
}
