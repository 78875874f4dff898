//! Bringing the operands of an element-wise op to one order of axes.
//!
//! Depends on `array` and `view`. Invariant: arrays handed out broadcast as their logical shapes would, in the order of
//! axes that is returned with them.

use super::convert::ints;
use super::kernel_error::Made;
use super::value::{physical, Perm, Ref, Value};
use super::view::with_leading_ones;
use mlx_ffi::ops;
use smallvec::SmallVec;

/// Operands, and the order of axes that they and the result have.
pub(super) type Aligned<'a> = (SmallVec<[Ref<'a>; 3]>, Option<Perm>);

/// Do all have one order of axes and as many of them, so that they can be used in their own layout?
#[inline]
pub(super) fn agree(x: &Value, y: &Value) -> Made<bool> {
    Ok(match (&x.perm, &y.perm) {
        (None, None) => true,
        (Some(p), Some(q)) => p == q,
        // A single number has no order.
        (Some(_), None) => y.array()?.ndim() == 0,
        (None, Some(_)) => x.array()?.ndim() == 0,
    })
}

/// Brings the operands to the order of axes of the first one that has an own, if they all can follow.
pub(super) fn align<'a>(values: &[&'a Value], ndim: usize) -> Made<Aligned<'a>> {
    // Of operands with different orders, the largest one keeps its own.
    let mut leader: Option<(&Perm, usize)> = None;
    for v in values {
        let Some(perm) = v.perm.as_ref().filter(|p| p.len() == ndim) else { continue };
        let size = v.array()?.size();
        if leader.is_none_or(|(_, most)| size >= most) {
            leader = Some((perm, size));
        }
    }
    let Some((perm, _)) = leader else {
        return Ok((values.iter().map(|v| v.logical()).collect::<Made<_>>()?, None));
    };
    let arrays = values.iter().map(|v| follow(v, perm, ndim)).collect::<Made<_>>()?;
    Ok((arrays, Some(perm.clone())))
}

/// A value that broadcasts to `ndim` dimensions, brought to an order of axes.
fn follow<'a>(v: &'a Value, perm: &Perm, ndim: usize) -> Made<Ref<'a>> {
    let shape = v.array()?.shape();
    if v.array()?.ndim() == ndim {
        let own = v.order()?;
        // An axis of size 1 may be anywhere, so a vector along one axis needs no transposition but a new shape.
        if own != *perm && shape.iter().filter(|&&n| n != 1).count() > 1 {
            return v.ordered(Some(perm));
        }
        if own == *perm {
            return Ok(Ref::Held(v.array()?));
        }
    }
    if v.array()?.size() == 1 && shape.len() <= ndim {
        return Ok(Ref::Held(v.array()?));
    }
    let logical = v.logical()?;
    let wide = with_leading_ones(logical.shape(), ndim);
    let sizes: SmallVec<[usize; 8]> = wide.iter().map(|&n| n as usize).collect();
    let target = ints(&physical(&sizes, Some(perm)))?;
    if wide.iter().filter(|&&n| n != 1).count() <= 1 {
        return Ok(if target.as_slice() == logical.shape() {
            logical
        } else {
            Ref::Fresh(ops::reshape(&logical, &target)?)
        });
    }
    let wide = ops::reshape(&logical, &wide)?;
    Ok(Ref::Fresh(super::view::to_physical(&wide, perm)?))
}
