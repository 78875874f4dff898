//! Lowerings that look through how a value was made.
//!
//! A value remembers its making where a consumer may do better than to ask for it: a pool over `relu(convolution + bias)`
//! pools first, since the maximum commutes with both, and adds and clips a quarter of the elements. What is looked through
//! is never computed, nor made a node of MLX's graph, unless something else needs it. Depends on `array`. Invariant: with
//! and without lowering results are the same (an infinite bias on infinite elements apart).

use super::convert::{constant, spread};
use super::cross_entropy::{LogSoftmax, OneClass};
use super::framed::Framed;
use super::fused_linear::Chain;
use super::kernel_error::Made;
use super::max_pool::{Pooled, Returned};
use super::value::Value;
use super::written::Written;
use crate::DType;
use mlx_ffi::{ops, Array};
use smallvec::{smallvec, SmallVec};
use std::sync::atomic::{AtomicBool, Ordering};

static ON: AtomicBool = AtomicBool::new(true);

/// Turns lowerings on or off, for comparing both.
pub fn set_lowering(on: bool) {
    ON.store(on, Ordering::Relaxed);
}

/// Are lowerings on?
pub(super) fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// How a value was made.
pub(super) enum Origin {
    /// `max(input, 0)`.
    Relu { input: Value, dtype: DType },
    /// A convolution's result with a number added per channel, the last physical axis; `wide` is the bias broadcast.
    BiasAdd { raw: Value, bias: Array, wide: Array },
    /// The maxima of windows, by a kernel of our own.
    Pool(Pooled),
    /// The gradients through them.
    PoolBack(Returned),
    /// Linear layers.
    Linear(Chain),
    /// The logarithm of softmax over long rows.
    LogSoftmax(LogSoftmax),
    /// A gradient of the negative log-likelihood.
    OneClass(OneClass),
    /// Zeros around the gradients of slices.
    Framed(Framed),
    /// Memory that kernels write in place.
    Written(Written),
}

impl Origin {
    /// What was made so.
    pub(super) fn make(&self) -> Made<Array> {
        match self {
            Origin::Framed(framed) => framed.make(),
            Origin::Written(written) => written.copied(),
            Origin::Relu { input, dtype } => relu(input.array()?, *dtype),
            Origin::BiasAdd { raw, wide, .. } => Ok(ops::add(raw.array()?, wide)?),
            Origin::Pool(pooled) => pooled.make(),
            Origin::PoolBack(returned) => returned.make(),
            Origin::Linear(chain) => chain.make(),
            Origin::LogSoftmax(logs) => logs.make(),
            Origin::OneClass(gradient) => Ok(gradient.plain.clone()),
        }
    }

    /// Where what was made so is large and may never be asked for: what to evaluate in its place when the lazy graph is full.
    pub(super) fn stands_on(&self) -> Option<SmallVec<[&Array; 4]>> {
        match self {
            Origin::LogSoftmax(logs) => Some(smallvec![&logs.most, &logs.low]),
            Origin::OneClass(gradient) => Some(smallvec![&gradient.share, &gradient.target]),
            Origin::Framed(framed) => Some(framed.parts().collect()),
            Origin::Written(written) => Some(smallvec![&written.by]),
            Origin::Relu { .. }
            | Origin::BiasAdd { .. }
            | Origin::Pool(_)
            | Origin::PoolBack(_)
            | Origin::Linear(_) => None,
        }
    }
}

/// `max(x, 0)`.
pub(super) fn relu(x: &Array, dtype: DType) -> Made<Array> {
    Ok(ops::maximum(x, &spread(&constant(0, dtype)?, x)?)?)
}

/// `max(v, 0)` as a value, to be looked through where `v` is. Over another relu it is not: however many there are, none has
/// to be made by way of more than one.
pub(super) fn relu_of(v: &Value, dtype: DType) -> Made<Value> {
    match v.origin() {
        None | Some(Origin::Relu { .. }) => Ok(Value::new(relu(v.array()?, dtype)?, v.perm.clone())),
        Some(_) => Value::later(Origin::Relu { input: v.clone(), dtype }, v.perm.clone()),
    }
}

/// What is left to do on the maximum of what is below a value.
pub(super) struct Peeled {
    /// What to take the maximum of.
    pub raw: Value,
    bias: Option<Array>,
    relu: bool,
}

impl Peeled {
    /// Takes off what commutes with the maximum; `None` where there is nothing of the kind.
    pub(super) fn of(v: &Value) -> Option<Peeled> {
        let (mut peeled, mut below) = (None, v);
        loop {
            match below.origin() {
                None
                | Some(
                    Origin::Pool(_)
                    | Origin::PoolBack(_)
                    | Origin::Linear(_)
                    | Origin::LogSoftmax(_)
                    | Origin::OneClass(_)
                    | Origin::Framed(_)
                    | Origin::Written(_),
                ) => break,
                Some(Origin::Relu { input, .. }) => {
                    below = input;
                    peeled = Some(Peeled { raw: input.clone(), bias: None, relu: true });
                }
                Some(Origin::BiasAdd { raw, bias, .. }) => {
                    let relu = peeled.is_some();
                    return Some(Peeled { raw: raw.clone(), bias: Some(bias.clone()), relu });
                }
            }
        }
        peeled
    }

    /// What was taken off: the number added per channel, and whether what is below 0 was clipped.
    pub(super) fn taken(&self) -> (Option<&Array>, bool) {
        (self.bias.as_ref(), self.relu)
    }

    /// Puts back on the maximum what was taken off, giving the value with its own way of making.
    pub(super) fn finish(self, pooled: Value, dtype: DType) -> Made<Value> {
        let mut v = pooled;
        if let Some(bias) = self.bias {
            let perm = v.perm.clone();
            v = Value::later(Origin::BiasAdd { raw: v, wide: bias.clone(), bias }, perm)?;
        }
        if self.relu {
            relu_of(&v, dtype)
        } else {
            Ok(v)
        }
    }
}
