//! Batched tensors: what `vmap` computes with.
//!
//! A batched tensor hides the first dimension of another, its *value*: ops see the shape of one sample, so that shape
//! checks, composites and gradient rules hold as they are. `dispatch` hands every primitive with a batched input to
//! `apply`, which takes off the innermost level and computes with the values; these may be batched by outer levels
//! themselves, so nesting needs no care. The tape records what is computed in the end, never a batched tensor.
//! Levels belong to the thread. Invariant: an inner level has a larger id than an outer one, ids are never used twice,
//! and a batched tensor's value is batched by smaller ids only.

mod batch_dim;
mod contract;
mod conv_pool_rules;
mod index;
mod level;
mod rules;

pub(crate) use batch_dim::{
    bare, bare_by, bare_like, everywhere, levels_of, rewrapped, rewrapped_by, unwrap_at, wrap_at,
};
pub use batch_dim::{fresh, hide, parts, show, spread};
pub(crate) use level::depth;
pub use level::{active, depth_of, enter, exit, fallbacks, is_active, resume, suspend, Level, Randomness};

use crate::dispatch::{self, Meta, Metas, Prim};
use crate::ops::view::ViewOp;
use crate::shape::{Layout, Shape};
use crate::{Device, Error, Result, Tensor};
use lucid_ir::backend::Results;

/// A tensor seen without its first dimension.
#[derive(Debug)]
pub(crate) struct Batch {
    /// The id of the `vmap` that hides the dimension.
    pub(crate) level: u64,
    /// The tensor with that dimension, in front.
    pub(crate) value: Tensor,
    /// The value's layout without it.
    pub(crate) layout: Layout,
}

impl Batch {
    /// Hides the first dimension of `value` from the level.
    pub(crate) fn wrap(level: u64, value: Tensor) -> Tensor {
        let Layout { shape, strides, offset } = value.layout();
        let layout = Layout {
            shape: Shape::from_slice(&shape[1..]),
            strides: Shape::from_slice(&strides[1..]),
            offset: *offset,
        };
        Tensor::from_storage(dispatch::Storage::batched(Batch { level, value, layout }))
    }

    /// Another value at the same level.
    pub(crate) fn with(&self, value: Tensor) -> Tensor {
        Batch::wrap(self.level, value)
    }

    /// The size of the hidden dimension.
    pub(crate) fn size(&self) -> usize {
        self.value.shape()[0]
    }
}

/// Why `item` cannot be.
pub(crate) const ITEM: &str =
    "vmap: It looks like you're calling .item() on a Tensor. We don't support vmap over calling .item() on a Tensor, \
     please try to rewrite what you're doing with other operations.";

/// Why a value cannot decide what runs.
pub const CONTROL_FLOW: &str =
    "vmap: It looks like you're attempting to use a Tensor in some data-dependent control flow. We don't support that \
     yet; use lucid.where or other operations instead.";

const IN_PLACE: &str =
    "is not possible because there exists a Tensor `other` in extra_args that has more elements than `self`. This \
     happened due to `other` being vmapped over but `self` not being vmapped over in a vmap. Please try to use \
     out-of-place operators instead of inplace arithmetic.";

/// The innermost level that any of these is batched at.
fn top<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Option<u64> {
    tensors.into_iter().filter_map(|t| t.storage().batch()).map(|b| b.level).max()
}

/// One input of a primitive, with one level taken off.
pub(crate) struct Input<'a> {
    /// The tensor, with the batch in front where it is batched.
    pub(crate) value: &'a Tensor,
    /// Is it?
    pub(crate) batched: bool,
}

impl Input<'_> {
    /// Number of dimensions of a sample.
    pub(crate) fn ndim(&self) -> usize {
        self.value.ndim() - usize::from(self.batched)
    }

    /// Sizes of a sample.
    pub(crate) fn shape(&self) -> &[usize] {
        &self.value.shape()[usize::from(self.batched)..]
    }
}

fn peel<'a>(t: &'a Tensor, level: u64) -> Input<'a> {
    match t.storage().batch().filter(|b| b.level == level) {
        Some(b) => Input { value: &b.value, batched: true },
        None => Input { value: t, batched: false },
    }
}

/// An input with the level's dimension hidden in it, where it has none but a tangent of it has: the values are the same for
/// all samples, their tangents are not.
fn spread_at(t: &Tensor, level: u64, size: usize) -> Result<Option<Tensor>> {
    if t.storage().batch().is_some_and(|b| b.level == level) {
        return Ok(None);
    }
    let wide = crate::autograd::forward::spread(t, level, size)?;
    Ok(wide.map(|wide| Batch::wrap(level, wide)))
}

/// Runs a primitive that has a batched input: on the values, with the batch as one dimension more.
pub(crate) fn apply(prim: Prim, inputs: &[&Tensor], meta: Meta) -> Result<Tensor> {
    let name = prim.name();
    let Some(id) = top(inputs.iter().copied()) else { return dispatch::apply1(prim, inputs, meta) };
    let Level { size, .. } = level::find(name, id)?;
    let spread = inputs.iter().map(|t| spread_at(t, id, size)).collect::<Result<Vec<_>>>()?;
    let inputs: Vec<Input<'_>> =
        inputs.iter().zip(&spread).map(|(t, wide)| peel(wide.as_ref().unwrap_or(t), id)).collect();
    let mut shape = Shape::from_slice(&[size]);
    shape.extend_from_slice(&meta.shape);
    let out = rules::run(prim, &inputs, size, Meta { shape, dtype: meta.dtype })?;
    debug_assert_eq!(&out.shape()[1..], meta.shape.as_slice(), "{name}");
    Ok(Batch::wrap(id, out))
}

/// [`apply`] of a primitive with several results.
pub(crate) fn apply_multi(prim: Prim, inputs: &[&Tensor], metas: &[Meta]) -> Result<Results<Tensor>> {
    let name = prim.name();
    let Some(id) = top(inputs.iter().copied()) else { return dispatch::apply_multi(prim, inputs, metas) };
    let Level { size, .. } = level::find(name, id)?;
    let spread = inputs.iter().map(|t| spread_at(t, id, size)).collect::<Result<Vec<_>>>()?;
    let inputs: Vec<Input<'_>> =
        inputs.iter().zip(&spread).map(|(t, wide)| peel(wide.as_ref().unwrap_or(t), id)).collect();
    let wide = |meta: &Meta| {
        let mut shape = Shape::from_slice(&[size]);
        shape.extend_from_slice(&meta.shape);
        Meta { shape, dtype: meta.dtype }
    };
    let made = rules::run_multi(prim, &inputs, size, &metas.iter().map(wide).collect::<Metas>())?;
    Ok(made.into_iter().map(|value| Batch::wrap(id, value)).collect())
}

/// A view of a batched tensor, whose layout has been worked out: the same view of each sample.
pub(crate) fn view(op: ViewOp, batch: &Batch, layout: Layout) -> Result<Tensor> {
    level::find(op.name(), batch.level)?;
    index::view(op, batch, layout).map(|value| batch.with(value))
}

/// Writes `value` over `dst`, either of which is batched.
pub(crate) fn write(op: &'static str, dst: &Tensor, value: &Tensor) -> Result<()> {
    let Some(id) = top([dst, value]) else { return dst.write_in_place(op, value.clone()) };
    let Level { size, .. } = level::find(op, id)?;
    let wide = spread_at(value, id, size)?;
    let (to, from) = (peel(dst, id), peel(wide.as_ref().unwrap_or(value), id));
    if !to.batched {
        return Err(Error::runtime(op, format!("vmap: inplace arithmetic(self, *extra_args) {IN_PLACE}")));
    }
    if from.ndim() > to.ndim() || crate::shape::broadcast(op, to.shape(), from.shape())?.as_slice() != to.shape() {
        let why = format!("output with shape {:?} doesn't match the broadcast shape {:?}", to.shape(), from.shape());
        return Err(Error::shape(op, why, &[to.shape(), from.shape()]));
    }
    to.value.write_in_place(op, batch_dim::aligned(&from, to.ndim())?)
}

/// Random numbers inside of `vmap`: one draw per sample, one for all, or none, as each level says.
pub(crate) fn draw(prim: Prim, meta: Meta, device: Device) -> Result<Tensor> {
    let name = prim.name();
    let levels = level::active();
    let mut own = Vec::new();
    let mut shape = Shape::new();
    for level in &levels {
        match level.randomness {
            Randomness::Error => return Err(Error::runtime(name, RANDOM)),
            Randomness::Same => {}
            Randomness::Different => {
                shape.push(level.size);
                own.push(level.id);
            }
        }
    }
    shape.extend_from_slice(&meta.shape);
    let mut drawn = dispatch::create_plain(prim, Meta { shape, dtype: meta.dtype }, device)?;
    for id in own {
        drawn = Batch::wrap(id, drawn);
    }
    Ok(drawn)
}

/// Refuses numbers drawn by parameters that differ between samples where all samples are to get the same, as PyTorch does.
pub(crate) fn refuse_same(op: &'static str, parameters: &[&Tensor]) -> Result<()> {
    if !parameters.iter().any(|t| t.is_batched()) {
        return Ok(());
    }
    let same = |id: u64| level::active().iter().any(|l| l.id == id && l.randomness == Randomness::Same);
    match parameters.iter().flat_map(|t| levels_of(t)).any(|(id, _)| same(id)) {
        true => Err(Error::runtime(op, "Vmap does not currently support same randomness with a batched tensor input.")),
        false => Ok(()),
    }
}

const RANDOM: &str =
    "vmap: called random operation while in randomness error mode. Please either use the 'same' or 'different' \
     randomness flags on vmap or perform the randomness operation out of vmap";

/// The error for a batched tensor where only plain ones can be, if there is one among the inputs.
pub(crate) fn refuse(op: &'static str, inputs: &[&Tensor]) -> Option<Box<Error>> {
    inputs.iter().any(|t| t.is_batched()).then(|| {
        let why = match op {
            "nonzero" => {
                "vmap: We do not support batching operators that can output dynamic shape. Attempted to vmap over \
                 nonzero; use lucid.where or a mask instead."
            }
            "to_bytes" => "vmap: the elements of a batched tensor cannot be read; return it from the function instead",
            _ => "vmap: this operation takes no tensors that are being vmapped over",
        };
        Error::runtime(op, why)
    })
}
