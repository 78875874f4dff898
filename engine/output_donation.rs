//! In-place ops whose result is written over its operand by the kernel itself, where nobody needs the operand any more.
//!
//! An in-place op computes its row and then writes the result over the tensor, which costs memory traffic twice. While it
//! computes, its tensor is noted here; the primitive that is the row itself, and reads it first, may write over it.
//! Depends on the tape and on tensors. Invariant: what is given out by [`taken`] is neither followed by the tape, nor shown
//! by another operand's layout, and is what the result looks like.

use crate::dispatch::Meta;
use crate::ops::Schema;
use crate::{autograd, Device, Result, Tensor};
use std::cell::{Cell, RefCell};

thread_local! {
    /// The tensor to be written over, and the row that computes what.
    static NOTED: RefCell<Option<(Tensor, &'static str)>> = const { RefCell::new(None) };
    /// Is there one? Every op asks, and most have none.
    static IS_NOTED: Cell<bool> = const { Cell::new(false) };
}

/// Forgets the note when a row is done, also where it failed.
struct Noted;

impl Drop for Noted {
    fn drop(&mut self) {
        IS_NOTED.set(false);
        NOTED.take();
    }
}

/// Computes the row of an in-place op of `t`, whose result may be in `t` itself.
pub(crate) fn computed(t: &Tensor, schema: &'static Schema, row: impl FnOnce() -> Result<Tensor>) -> Result<Tensor> {
    if crate::graph::recording()
        || !schema.primitive
        || t.device() != Device::Cpu
        || !t.layout().is_contiguous()
        || autograd::is_followed(t)
    {
        return row();
    }
    // What the write would refuse is refused by it.
    if t.layout().repeats() || autograd::check_in_place(schema.name, t, t).is_err() {
        return row();
    }
    NOTED.replace(Some((t.clone(), schema.name)));
    IS_NOTED.set(true);
    let _noted = Noted;
    row()
}

/// May the primitive of this name write its result over its first operand? Asked once.
#[inline]
pub(crate) fn taken(name: &'static str, inputs: &[&Tensor], out: &Meta) -> bool {
    IS_NOTED.get() && take(name, inputs, out)
}

#[cold]
fn take(name: &'static str, inputs: &[&Tensor], out: &Meta) -> bool {
    let fits = |noted: &(Tensor, &'static str)| {
        let (t, row) = noted;
        *row == name
            && inputs.first().is_some_and(|x| x.is_same(t))
            && t.shape() == &out.shape[..]
            && t.dtype() == out.dtype
            && !inputs.iter().any(|x| autograd::is_followed(x))
            && !inputs[1..].iter().any(|x| x.shares_storage(t))
    };
    NOTED.with_borrow_mut(|noted| noted.take_if(|noted| fits(noted)).is_some())
}
