//! What a storage cell holds: an MLX array, or what makes one when it is asked for, with what the engine knows of it.
//!
//! Depends on mlx-ffi and `lower`. Invariants: an array is made once for all values that share it; a value's axes are in one
//! order, and its elements in another or broadcast are kept with it once somebody asked.

use super::kernel_error::Made;
use super::lower::{self, Origin};
use super::written::Written;
use crate::shape::Shape;
use mlx_ffi::{ops, Array};
use smallvec::SmallVec;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

/// An order of axes: axis `i` of the physical array is axis `perm[i]` of the logical one.
pub(super) type Perm = SmallVec<[u16; 8]>;

/// What is known of a value's elements without computing them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ValueRange {
    Nothing,
    /// Integers, all of them in this closed range.
    Within(i64, i64),
    /// All elements are this number.
    Constant(f64),
}

/// A physical array, or what makes it once somebody asks.
#[derive(Clone)]
enum Slot {
    Now(Array),
    Later(Arc<Later>),
}

/// An array that is made when it is asked for, once for all values that share it.
struct Later {
    origin: Origin,
    made: OnceLock<Array>,
}

impl Later {
    fn array(&self) -> Made<&Array> {
        match self.made.get() {
            Some(array) => Ok(array),
            None => {
                let array = self.origin.make()?;
                Ok(self.made.get_or_init(|| array))
            }
        }
    }
}

impl Slot {
    /// The array, if it has been made.
    fn ready(&self) -> Option<&Array> {
        match self {
            Slot::Now(array) => Some(array),
            Slot::Later(later) => later.made.get(),
        }
    }
}

/// An MLX array with what the engine knows of it.
pub(super) struct Value {
    slot: Slot,
    /// The layout of its axes; `None` as the logical ones.
    pub perm: Option<Perm>,
    pub known: ValueRange,
    /// The same elements with their axes in another order, once somebody asked.
    other: OnceLock<Box<(Perm, Array)>>,
    /// The same elements broadcast, likewise.
    wide: OnceLock<Box<Array>>,
}

/// An array that a value holds, or one made for the moment.
pub(super) enum Ref<'a> {
    Held(&'a Array),
    Fresh(Array),
}

impl Deref for Ref<'_> {
    type Target = Array;
    #[inline(always)]
    fn deref(&self) -> &Array {
        match self {
            Ref::Held(a) => a,
            Ref::Fresh(a) => a,
        }
    }
}

impl Ref<'_> {
    pub(super) fn into_owned(self) -> Array {
        match self {
            Ref::Held(a) => a.clone(),
            Ref::Fresh(a) => a,
        }
    }
}

impl Clone for Value {
    fn clone(&self) -> Value {
        Value::of(self.slot.clone(), self.perm.clone()).knowing(self.known)
    }
}

impl Value {
    pub(super) fn new(array: Array, perm: Option<Perm>) -> Value {
        Value::of(Slot::Now(array), perm)
    }

    fn of(slot: Slot, perm: Option<Perm>) -> Value {
        Value { slot, perm, known: ValueRange::Nothing, other: OnceLock::new(), wide: OnceLock::new() }
    }

    /// What `origin` makes, when somebody asks for it: lowerings look through it and may do without. At once where they
    /// are off.
    pub(super) fn later(origin: Origin, perm: Option<Perm>) -> Made<Value> {
        Ok(match lower::is_on() {
            true => Value::of(Slot::Later(Arc::new(Later { origin, made: OnceLock::new() })), perm),
            false => Value::new(origin.make()?, perm),
        })
    }

    /// The physical array.
    #[inline(always)]
    pub(super) fn array(&self) -> Made<&Array> {
        match &self.slot {
            Slot::Now(array) => Ok(array),
            Slot::Later(later) => later.array(),
        }
    }

    /// How it is made, where that is still to be done, so that looking through it saves that.
    pub(super) fn origin(&self) -> Option<&Origin> {
        match &self.slot {
            Slot::Later(later) if lower::is_on() && !self.is_evaluated() => Some(&later.origin),
            Slot::Later(_) | Slot::Now(_) => None,
        }
    }

    pub(super) fn is_evaluated(&self) -> bool {
        self.ready().is_some_and(Array::is_evaluated)
    }

    /// What kernels write in place, where no other value holds it and nobody has asked for a copy.
    pub(super) fn written(&self) -> Option<&Written> {
        match &self.slot {
            Slot::Later(later) if Arc::strong_count(later) == 1 && later.made.get().is_none() => match &later.origin {
                Origin::Written(written) => Some(written),
                _ => None,
            },
            Slot::Later(_) | Slot::Now(_) => None,
        }
    }

    /// Is there nothing left to compute, should nobody ask for it?
    pub(super) fn is_settled(&self) -> bool {
        self.is_evaluated() || self.written().is_some_and(|written| written.by.is_evaluated())
    }

    /// The physical array, if it has been made.
    pub(super) fn ready(&self) -> Option<&Array> {
        self.slot.ready()
    }

    /// Does it know how it was made?
    pub(super) fn remembers(&self) -> bool {
        matches!(self.slot, Slot::Later(_))
    }

    /// Forgets that where it has been made, so that nothing below it is kept.
    pub(super) fn forget_origin(&mut self) {
        if let Some(array) = self.ready().cloned() {
            self.slot = Slot::Now(array);
        }
    }

    /// Are both the same array?
    pub(super) fn is(&self, other: &Value) -> bool {
        match (&self.slot, &other.slot) {
            (Slot::Later(a), Slot::Later(b)) if Arc::ptr_eq(a, b) => true,
            (a, b) => a.ready().zip(b.ready()).is_some_and(|(a, b)| a.id() == b.id()),
        }
    }

    pub(super) fn plain(array: Array) -> Value {
        Value::new(array, None)
    }

    pub(super) fn knowing(self, known: ValueRange) -> Value {
        Value { known, ..self }
    }

    /// The array with its axes in logical order.
    #[inline]
    pub(super) fn logical(&self) -> Made<Ref<'_>> {
        match self.perm {
            None => Ok(Ref::Held(self.array()?)),
            Some(_) => self.reordered(&identity(self.array()?.ndim())),
        }
    }

    /// The array with its axes in the given order (`None`: the logical one).
    pub(super) fn ordered(&self, perm: Option<&Perm>) -> Made<Ref<'_>> {
        match perm {
            None => self.logical(),
            Some(p) => self.reordered(p),
        }
    }

    /// The array in logical order, broadcast to a shape. A weight is so again and again, and is looked at but once.
    pub(super) fn broadcast(&self, shape: &[i32]) -> Made<Ref<'_>> {
        let array = self.logical()?;
        if array.shape() == shape {
            return Ok(array);
        }
        match self.wide.get() {
            Some(kept) if kept.shape() == shape => Ok(Ref::Held(kept)),
            Some(_) => Ok(Ref::Fresh(ops::broadcast_to(&array, shape)?)),
            None => {
                let made = ops::broadcast_to(&array, shape)?;
                Ok(Ref::Held(self.wide.get_or_init(|| Box::new(made))))
            }
        }
    }

    /// The order of the physical axes, spelled out.
    pub(super) fn order(&self) -> Made<Perm> {
        match &self.perm {
            Some(perm) => Ok(perm.clone()),
            None => Ok(identity(self.array()?.ndim())),
        }
    }

    fn reordered(&self, want: &Perm) -> Made<Ref<'_>> {
        let (array, own) = (self.array()?, self.order()?);
        if own == *want {
            return Ok(Ref::Held(array));
        }
        let make = || ops::transpose_axes(array, &axes_between(&own, want));
        match self.other.get() {
            Some(kept) if kept.0 == *want => Ok(Ref::Held(&kept.1)),
            Some(_) => Ok(Ref::Fresh(make()?)),
            None => {
                let made = make()?;
                Ok(Ref::Held(&self.other.get_or_init(|| Box::new((want.clone(), made))).1))
            }
        }
    }
}

/// The order that changes nothing.
pub(super) fn identity(ndim: usize) -> Perm {
    (0..ndim as u16).collect()
}

/// A perm, or `None` where it changes nothing.
pub(super) fn reduced(perm: Perm) -> Option<Perm> {
    let plain = perm.iter().enumerate().all(|(i, &p)| i == usize::from(p));
    (!plain).then_some(perm)
}

/// The axes by which MLX's transpose takes one physical order to another.
pub(super) fn axes_between(own: &Perm, want: &Perm) -> SmallVec<[i32; 8]> {
    want.iter().map(|w| own.iter().position(|o| o == w).unwrap_or(0) as i32).collect()
}

/// A logical shape with its axes in a physical order.
pub(super) fn physical(shape: &[usize], perm: Option<&Perm>) -> Shape {
    match perm {
        None => Shape::from_slice(shape),
        Some(p) => p.iter().map(|&a| shape[usize::from(a)]).collect(),
    }
}
