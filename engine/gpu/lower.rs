//! Lowerings that look through how a value was made.
//!
//! A value that has not been computed remembers its making where a consumer may do better than to ask for it: a pool over
//! `relu(convolution + bias)` pools first, since the maximum commutes with both, and adds and clips a quarter of the
//! elements. What is looked through is never computed unless something else needs it. Depends on `array`. Invariant: with
//! and without lowering results are the same (an infinite bias on infinite elements apart).

use super::array::Value;
use super::chain::Chain;
use super::convert::{constant, spread};
use super::fault::Made;
use super::tiles::{Pooled, Returned};
use crate::DType;
use mlx_ffi::{ops, Array};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

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
    Relu { input: Value },
    /// A convolution's result with a number added per channel, the last physical axis.
    BiasAdd { raw: Value, bias: Array },
    /// The maxima of windows, by a kernel of our own.
    Pool(Pooled),
    /// What went back through them.
    PoolBack(Returned),
    /// Linear layers.
    Linear(Chain),
}

impl Origin {
    /// The origin of `relu(input)`, where something below could be looked through.
    pub(super) fn relu(input: &Value) -> Option<Arc<Origin>> {
        input.origin.as_ref()?;
        worth_it(input).then(|| Arc::new(Origin::Relu { input: input.clone() }))
    }

    /// The origin of a convolution with a bias.
    pub(super) fn bias_add(raw: Value, bias: Array) -> Option<Arc<Origin>> {
        is_on().then(|| Arc::new(Origin::BiasAdd { raw, bias }))
    }
}

/// Is the value still to be computed, so that looking through it saves that?
pub(super) fn worth_it(v: &Value) -> bool {
    is_on() && !v.array.is_evaluated()
}

/// What is left to do on the maximum of what lies below a value.
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
        while worth_it(below) {
            peeled = match below.origin.as_deref() {
                None | Some(Origin::Pool(_) | Origin::PoolBack(_) | Origin::Linear(_)) => break,
                Some(Origin::Relu { input }) => {
                    below = input;
                    Some(Peeled { raw: input.clone(), bias: None, relu: true })
                }
                Some(Origin::BiasAdd { raw, bias }) => {
                    let relu = peeled.is_some();
                    return Some(Peeled { raw: raw.clone(), bias: Some(bias.clone()), relu });
                }
            };
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
            let mut made = Value::new(ops::add(&v.array, &bias)?, v.perm.clone());
            made.origin = Origin::bias_add(v, bias);
            v = made;
        }
        if self.relu {
            let mut made =
                Value::new(ops::maximum(&v.array, &spread(&constant(0, dtype)?, &v.array)?)?, v.perm.clone());
            made.origin = Origin::relu(&v);
            v = made;
        }
        Ok(v)
    }
}
