//! Hiding and showing batch dimensions, and what the tape needs of that.
//!
//! Levels may be asked for in any order: taking off an outer one reaches through the inner ones.

use super::{level, Batch, Input};
use crate::ops::view::{expand_to, permute_axes, reshape_to};
use crate::shape::{wrap_dim, Axes, Shape};
use crate::{Error, Result, Tensor};
use smallvec::SmallVec;

/// The first dimension moved to `to`.
pub(crate) fn front_to(x: &Tensor, to: usize) -> Result<Tensor> {
    if to == 0 {
        return Ok(x.clone());
    }
    let mut axes: Axes = (1..x.ndim()).collect();
    axes.insert(to, 0);
    permute_axes(x, &axes)
}

/// Dimension `from` moved to the front.
pub(crate) fn to_front(x: &Tensor, from: usize) -> Result<Tensor> {
    if from == 0 {
        return Ok(x.clone());
    }
    let mut axes: Axes = (0..x.ndim()).filter(|&a| a != from).collect();
    axes.insert(0, from);
    permute_axes(x, &axes)
}

/// Dimensions in the order that `axes` lists them.
pub(crate) fn ordered(x: &Tensor, axes: &[usize]) -> Result<Tensor> {
    match axes.iter().enumerate().all(|(i, &a)| i == a) {
        true => Ok(x.clone()),
        false => permute_axes(x, axes),
    }
}

/// The tensor with dimension `dim` hidden from a level that this thread is inside of.
///
/// # Errors
/// Where there is no such dimension, or it has not the level's size, or the level is not running.
pub fn hide(x: &Tensor, dim: isize, level: u64) -> Result<Tensor> {
    if let Some(refused) = crate::sparse::refuse("vmap", &[x]) {
        return Err(refused);
    }
    let size = level::find("vmap", level)?.size;
    let axis = wrap_dim("vmap", dim, x.ndim())?;
    if x.ndim() == 0 || x.shape()[axis] != size {
        let why = format!("expected size {size} in the mapped dimension {dim}");
        return Err(Error::shape("vmap", why, &[x.shape()]));
    }
    wrap_at(&to_front(x, axis)?, level)
}

/// Hides the first dimension of what is seen outside of `level`; inner levels stay outermost.
pub(crate) fn wrap_at(x: &Tensor, level: u64) -> Result<Tensor> {
    match x.storage().batch() {
        Some(b) if b.level == level => Err(Error::runtime("vmap", "the tensor is batched at this level already")),
        Some(b) if b.level > level => Ok(b.with(wrap_at(&to_front(&b.value, 1)?, level)?)),
        _ => Ok(Batch::wrap(level, x.clone())),
    }
}

/// The tensor with the dimension that `level` hides at the front; repeated `size` times where it hides none.
pub(crate) fn unwrap_at(x: &Tensor, level: u64, size: usize) -> Result<Tensor> {
    match x.storage().batch() {
        Some(b) if b.level == level => Ok(b.value.clone()),
        Some(b) if b.level > level => Ok(b.with(front_to(&unwrap_at(&b.value, level, size)?, 1)?)),
        _ => {
            if let Some(wide) = crate::autograd::forward::spread(x, level, size)? {
                return Ok(wide);
            }
            let mut shape = Shape::from_slice(&[size]);
            shape.extend_from_slice(x.shape());
            expand_to(x, &shape)
        }
    }
}

/// The tensor with the dimension that `level` hides at `dim`; repeated where it hides none.
///
/// # Errors
/// Where the level is not running, the tensor is batched by an inner level, or `dim` is out of range.
pub fn show(x: &Tensor, level: u64, dim: isize) -> Result<Tensor> {
    let size = level::find("vmap", level)?.size;
    if let Some(b) = x.storage().batch().filter(|b| b.level > level) {
        level::find("vmap", b.level)?;
    }
    let y = unwrap_at(x, level, size)?;
    let axis = wrap_dim("vmap", dim, y.ndim())?;
    front_to(&y, axis)
}

/// The tensor with a level's dimension in front where it has none but a tangent of it has; `None` elsewhere.
///
/// # Errors
/// Where the level is not running.
pub fn spread(x: &Tensor, level: u64) -> Result<Option<Tensor>> {
    let size = level::find("vmap", level)?.size;
    crate::autograd::forward::spread(x, level, size)
}

/// The id of a batched tensor's innermost level, and its value.
pub fn parts(x: &Tensor) -> Option<(u64, Tensor)> {
    x.storage().batch().map(|b| (b.level, b.value.clone()))
}

/// What is computed with in the end.
pub(crate) fn bare(x: &Tensor) -> &Tensor {
    let mut x = x;
    while let Some(b) = x.storage().batch() {
        x = &b.value;
    }
    x
}

/// Is this 0-d `bool` true in every sample? Evaluates.
pub(crate) fn everywhere(x: &Tensor) -> Result<bool> {
    match x.is_batched() {
        true => bare(x).detach()?.all(None, false)?.item_bool(),
        false => x.item_bool(),
    }
}

/// Ids and sizes of the levels that a tensor is batched at, the innermost first.
pub(crate) type Levels = SmallVec<[(u64, usize); 2]>;

/// The levels of `t`.
pub(crate) fn levels_of(t: &Tensor) -> Levels {
    let (mut t, mut levels) = (t, Levels::new());
    while let Some(b) = t.storage().batch() {
        levels.push((b.level, b.size()));
        t = &b.value;
    }
    levels
}

/// A weight of a tensor of these levels as a weight of what it is in the end: its levels are taken off, others stay.
pub(crate) fn bare_by(g: Tensor, levels: &Levels) -> Result<Tensor> {
    levels.iter().try_fold(g, |g, &(level, size)| unwrap_at(&g, level, size))
}

/// The inverse of [`bare_by`]: a gradient of what a tensor is in the end as a gradient of the tensor.
pub(crate) fn rewrapped_by(g: Tensor, levels: &Levels) -> Result<Tensor> {
    levels.iter().rev().try_fold(g, |g, &(level, _)| wrap_at(&g, level))
}

/// [`bare_by`] the levels of `t`.
pub(crate) fn bare_like(g: Tensor, t: &Tensor) -> Result<Tensor> {
    if t.is_batched() {
        bare_by(g, &levels_of(t))
    } else {
        Ok(g)
    }
}

/// [`rewrapped_by`] the levels of `t`.
pub(crate) fn rewrapped(g: Tensor, t: &Tensor) -> Result<Tensor> {
    if t.is_batched() {
        rewrapped_by(g, &levels_of(t))
    } else {
        Ok(g)
    }
}

/// The tensor as an input of a differentiation that starts here: a leaf, or where gradients are recorded for it already
/// a step on the tape of its own. At each running level whose samples differ it is batched, so that gradients are those of each
/// sample.
///
/// # Errors
/// For a dtype without gradients.
pub fn fresh(x: &Tensor) -> Result<Tensor> {
    let mut x = x.clone();
    for level in level::active().into_iter().filter(|level| !level.alike) {
        let mut own = &x;
        let has = loop {
            match own.storage().batch() {
                Some(b) if b.level == level.id => break true,
                Some(b) => own = &b.value,
                None => break false,
            }
        };
        if !has {
            x = wrap_at(&unwrap_at(&x, level.id, level.size)?, level.id)?;
        }
    }
    fresh_value(&x)
}

fn fresh_value(x: &Tensor) -> Result<Tensor> {
    if let Some(b) = x.storage().batch() {
        level::find("grad", b.level)?;
        return Ok(b.with(fresh_value(&b.value)?));
    }
    match x.requires_grad() && crate::grad_enabled() {
        true => {
            let same = crate::ops::view::ViewOp::Permute { axes: (0..x.ndim()).collect() };
            crate::dispatch::view(same, x, x.layout().clone()).map(crate::autograd::as_input)
        }
        false => crate::autograd::cut(x)?.requires_grad_(true),
    }
}

/// An input for a pointwise op on samples of `ndim` dimensions: with ones between its batch and its own sizes.
pub(crate) fn aligned(x: &Input<'_>, ndim: usize) -> Result<Tensor> {
    let missing = ndim - x.ndim();
    if !x.batched || missing == 0 {
        return Ok(x.value.clone());
    }
    let mut shape = Shape::from_slice(x.value.shape());
    shape.insert_many(1, std::iter::repeat_n(1, missing));
    reshape_to(x.value, &shape)
}

/// An input with the batch in front, repeated where it has none.
pub(crate) fn batched(x: &Input<'_>, size: usize) -> Result<Tensor> {
    if x.batched {
        return Ok(x.value.clone());
    }
    let mut shape = Shape::from_slice(&[size]);
    shape.extend_from_slice(x.value.shape());
    expand_to(x.value, &shape)
}
