//! In-place ops whose result is written over their operand by the kernel itself, where nobody needs the operand any more.
//!
//! An in-place op computes its row and then writes the result over the tensor, which costs memory traffic twice. So it gives
//! its row, where it may, a handle on the tensor that says so: the primitive that is the row itself, and reads that handle
//! first, writes over it. What a row makes of the handle on the way (a cast, a view) is another tensor, which says nothing.
//! Depends on the tape and on tensors. Invariant: such a handle is neither followed by the tape nor kept by a row.

use crate::autograd::{self, Standing};
use crate::dispatch::Meta;
use crate::ops::Schema;
use crate::{Device, Tensor};

/// A handle on `t` whose elements the row may be written over, if an in-place op of `t` that reads `read` allows that.
#[inline]
pub(crate) fn offered(t: &Tensor, read: &Tensor, schema: &'static Schema) -> Option<Tensor> {
    let fits = schema.primitive && t.device() == Device::Cpu && read.is_same(t);
    match fits && t.layout().is_contiguous() && !crate::graph::recording() && !autograd::is_followed(t) {
        // What the write would refuse is refused by it.
        true if !t.layout().repeats() && autograd::check_in_place(schema.name, t, t).is_ok() => {
            let mut auto = t.0.auto.cut_off();
            auto.standing = Standing::Overwritable(schema.name);
            Some(Tensor::with_auto(t.storage().clone(), auto))
        }
        _ => None,
    }
}

/// Does the handle say that a row may be written over its elements?
#[inline]
pub(crate) fn offers(t: &Tensor) -> bool {
    matches!(t.0.auto.standing, Standing::Overwritable(_))
}

/// May the primitive of this name write its result over its first operand?
#[inline]
pub(crate) fn accepts(name: &'static str, inputs: &[&Tensor], out: &Meta) -> bool {
    match inputs {
        [x, others @ ..] if matches!(x.0.auto.standing, Standing::Overwritable(row) if row == name) => {
            x.shape() == &out.shape[..]
                && x.dtype() == out.dtype
                && !others.iter().any(|other| autograd::is_followed(other) || other.shares_storage(x))
        }
        _ => false,
    }
}
