//! A tensor's place on the tape: its edge, what it has as a leaf, and what it is a view of.
//!
//! A tensor with an edge is a result; without one it is a leaf, whose gradient, hooks and node that adds to it are here.

use super::forward::Tangent;
use super::hooks::Extra;
use super::host_refs::OwnedPart;
use super::node::{if_last, Edge, Node, Owned};
use super::{modes, transforms};
use crate::ops::view::ViewOp;
use crate::tensor::Inner;
use crate::{DType, Scalar, Tensor};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicU8, Ordering};
use std::sync::{Arc, Weak};

/// A tensor's place on the tape.
pub(crate) struct Auto {
    requires_grad: AtomicBool,
    /// Made in inference mode.
    pub(crate) inference: bool,
    pub(crate) standing: Standing,
    /// The call of a function transform that it was made in, 0 for none.
    pub(crate) made_in: AtomicU64,
    /// Did the user get to have it?
    pub(crate) handed_out: AtomicBool,
    /// Recorded writes to this tensor, as a base of views.
    pub(crate) writes: AtomicU32,
    pub(crate) view: Option<Box<ViewInfo>>,
    state: Mutex<State>,
}

/// What an op may do with a tensor that it is given, or knows of it, besides.
pub(crate) enum Standing {
    Plain,
    /// The number that an op was given, which the tensor stands for; hooks on what the tape saves do not see it.
    Number(Scalar),
    /// The row of this name may be written over its elements, which nobody needs afterwards.
    Overwritable(&'static str),
}

/// What a view is a view of, for recording writes through it.
pub(crate) struct ViewInfo {
    pub(crate) base: Tensor,
    pub(crate) ops: SmallVec<[ViewOp; 1]>,
    /// How often the base had changed when this view's edge was made.
    pub(crate) seen: AtomicU32,
    /// Is the base what this tensor itself was before it changed its shape, so that it is no view to the user?
    pub(crate) itself: bool,
    /// Is it a view of a transform's input? Then it requires a gradient as that does, whatever the base is.
    pub(crate) of_input: bool,
    origin: AtomicU8,
}

impl ViewInfo {
    pub(crate) fn new(
        base: Tensor,
        ops: SmallVec<[ViewOp; 1]>,
        seen: u32,
        itself: bool,
        of_input: bool,
        origin: Origin,
    ) -> ViewInfo {
        ViewInfo { base, ops, seen: AtomicU32::new(seen), itself, of_input, origin: AtomicU8::new(origin as u8) }
    }

    pub(crate) fn origin(&self) -> Origin {
        let origin = self.origin.load(Ordering::Relaxed);
        Origin::ALL.into_iter().find(|&o| o as u8 == origin).unwrap_or(Origin::Plain)
    }

    /// Says so of a view that was made just now.
    pub(crate) fn set_origin(&self, origin: Origin) {
        self.origin.store(origin as u8, Ordering::Relaxed);
    }
}

/// How a view was made, where the tape cannot follow a write through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// By itself, while gradients were recorded.
    Plain,
    /// With others, by one node of several results.
    SplitInfo,
    /// While gradients were not recorded.
    NoGrad,
    /// Inside of a function with a gradient of its own, which the tape would pass by.
    Custom,
    /// By a transform, as its input: a leaf to the function that is transformed.
    Input,
    /// By itself, of such an input.
    OfInput,
}

impl Origin {
    const ALL: [Origin; 6] =
        [Origin::Plain, Origin::SplitInfo, Origin::NoGrad, Origin::Custom, Origin::Input, Origin::OfInput];
}

#[derive(Default)]
struct State {
    edge: Option<Edge>,
    leaf: Option<Box<Leaf>>,
}

#[derive(Default)]
struct Leaf {
    grad: Option<Tensor>,
    /// The dtype that it has, where one was set; any where that is `None`.
    grad_dtype: Option<Option<DType>>,
    accumulate: Weak<Node>,
    extra: Arc<Extra>,
    retains: bool,
    retired: bool,
    /// At most one of each level.
    tangents: Vec<Tangent>,
    /// The tensor that the user has in this leaf's place, one after another as its data are replaced.
    bearer: Option<Arc<Mutex<Weak<Inner>>>>,
    /// What an embedding language finds its own object of the tensor by.
    object: Option<Arc<dyn Any + Send + Sync>>,
}

impl Default for Auto {
    fn default() -> Auto {
        Auto {
            requires_grad: AtomicBool::new(false),
            inference: modes::inference_mode_enabled(),
            standing: Standing::Plain,
            made_in: AtomicU64::new(transforms::current()),
            handed_out: AtomicBool::new(false),
            writes: AtomicU32::new(0),
            view: None,
            state: Mutex::default(),
        }
    }
}

impl Auto {
    /// Of another tensor's storage, cut off from the tape.
    pub(crate) fn detached(inference: bool) -> Auto {
        Auto { inference, ..Auto::default() }
    }

    /// The same for a tensor that shows all of this one's.
    pub(crate) fn cut_off(&self) -> Auto {
        let auto = Auto { inference: self.inference, ..Auto::default() };
        auto.made_where(self);
        auto
    }

    /// From now on it counts as made where the other was.
    pub(crate) fn made_where(&self, other: &Auto) {
        self.made_in.store(other.made_in.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    pub(crate) fn recorded(edge: Edge) -> Auto {
        let state = State { edge: Some(edge), leaf: None };
        Auto { requires_grad: AtomicBool::new(true), state: Mutex::new(state), ..Auto::default() }
    }

    pub(crate) fn requires_grad(&self) -> bool {
        self.requires_grad.load(Ordering::Relaxed)
    }

    pub(crate) fn set_requires_grad(&self, on: bool) {
        self.requires_grad.store(on, Ordering::Relaxed);
    }

    pub(crate) fn is_leaf(&self) -> bool {
        self.state.lock().edge.is_none()
    }

    pub(crate) fn own_edge(&self) -> Option<Edge> {
        self.state.lock().edge.clone()
    }

    pub(crate) fn set_edge(&self, edge: Option<Edge>) {
        self.set_requires_grad(edge.is_some());
        let old = std::mem::replace(&mut self.state.lock().edge, edge);
        drop(old);
    }

    pub(crate) fn grad(&self) -> Option<Tensor> {
        self.state.lock().leaf.as_ref()?.grad.clone()
    }

    pub(crate) fn set_grad(&self, grad: Option<Tensor>) {
        let mut state = self.state.lock();
        if grad.is_none() && state.leaf.is_none() {
            return;
        }
        let old = std::mem::replace(&mut state.leaf.get_or_insert_default().grad, grad);
        drop(state);
        drop(old);
    }

    /// The dtype that was set for the gradient.
    pub(crate) fn grad_dtype(&self) -> Option<Option<DType>> {
        self.state.lock().leaf.as_ref()?.grad_dtype
    }

    pub(crate) fn set_grad_dtype(&self, dtype: Option<DType>) {
        self.state.lock().leaf.get_or_insert_default().grad_dtype = Some(dtype);
    }

    /// Marks a result whose gradient is to be kept; false where it was marked before.
    pub(crate) fn start_retaining(&self) -> bool {
        !std::mem::replace(&mut self.state.lock().leaf.get_or_insert_default().retains, true)
    }

    /// Says that nobody asks for this leaf's gradient any more.
    pub(crate) fn retire(&self) {
        self.state.lock().leaf.get_or_insert_default().retired = true;
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.state.lock().leaf.as_ref().is_some_and(|l| l.retired)
    }

    /// Makes `heir` the leaf that gradients of this one go to from now on, with its hooks and the node that adds to it.
    pub(crate) fn pass_to(&self, heir: &Tensor) {
        let (bearer, extra, accumulate, object, grad_dtype) = {
            let mut state = self.state.lock();
            let leaf = state.leaf.get_or_insert_default();
            let bearer = Arc::clone(leaf.bearer.get_or_insert_default());
            (bearer, Arc::clone(&leaf.extra), Weak::clone(&leaf.accumulate), leaf.object.clone(), leaf.grad_dtype)
        };
        *bearer.lock() = Arc::downgrade(&heir.0);
        let mut state = heir.0.auto.state.lock();
        let leaf = state.leaf.get_or_insert_default();
        (leaf.bearer, leaf.extra, leaf.accumulate, leaf.object) = (Some(bearer), extra, accumulate, object);
        leaf.grad_dtype = grad_dtype;
    }

    /// The leaf that has this one's gradients, where that is another.
    pub(crate) fn heir(&self) -> Option<Tensor> {
        let bearer = self.state.lock().leaf.as_ref()?.bearer.clone()?;
        let heir = bearer.lock().upgrade();
        heir.map(Tensor)
    }

    /// What an embedding language finds its own object of the tensor by.
    pub(crate) fn object(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.state.lock().leaf.as_ref()?.object.clone()
    }

    pub(crate) fn set_object(&self, object: Arc<dyn Any + Send + Sync>) {
        let old = self.state.lock().leaf.get_or_insert_default().object.replace(object);
        // Not under the lock: what goes is the embedding language's.
        drop(old);
    }

    pub(crate) fn is_retaining(&self) -> bool {
        self.state.lock().leaf.as_ref().is_some_and(|leaf| leaf.retains)
    }

    /// The hooks on this tensor as a leaf. They outlive the node that adds to it.
    pub(crate) fn leaf_extra(&self) -> Arc<Extra> {
        Arc::clone(&self.state.lock().leaf.get_or_insert_default().extra)
    }

    /// The node that adds to this leaf: one at a time, so that a backward pass meets it once.
    pub(crate) fn accumulate_node(&self, make: impl FnOnce() -> Arc<Node>) -> Arc<Node> {
        let mut state = self.state.lock();
        let leaf = state.leaf.get_or_insert_default();
        leaf.accumulate.upgrade().unwrap_or_else(|| {
            let node = make();
            leaf.accumulate = Arc::downgrade(&node);
            node
        })
    }

    /// What the tensor carries in forward mode, at all levels.
    pub(crate) fn tangents(&self) -> Vec<Tangent> {
        self.state.lock().leaf.as_ref().map_or_else(Vec::new, |leaf| leaf.tangents.clone())
    }

    /// What it carries at one level.
    pub(crate) fn tangent(&self, level: u64) -> Option<Tangent> {
        self.state.lock().leaf.as_ref()?.tangents.iter().find(|t| t.level == level).cloned()
    }

    /// Replaces that, and gives what was there.
    pub(crate) fn put_tangent(&self, tangent: Tangent) -> Option<Tangent> {
        let mut state = self.state.lock();
        let tangents = &mut state.leaf.get_or_insert_default().tangents;
        match tangents.iter_mut().find(|t| t.level == tangent.level) {
            Some(own) => Some(std::mem::replace(own, tangent)),
            None => {
                tangents.push(tangent);
                None
            }
        }
    }

    /// Removes it, and gives what was there.
    pub(crate) fn drop_tangent(&self, level: u64) -> Option<Tangent> {
        let mut state = self.state.lock();
        let tangents = &mut state.leaf.as_mut()?.tangents;
        let at = tangents.iter().position(|t| t.level == level)?;
        Some(tangents.swap_remove(at))
    }

    /// Calls `f` with the parts of the graph that the tensor has references to. What another thread works on is left out.
    pub(super) fn each_owned(&self, f: &mut dyn FnMut(OwnedPart<'_>)) {
        if let Some(view) = &self.view {
            f(OwnedPart::Tensor(&view.base));
        }
        let Some(state) = self.state.try_lock() else { return };
        if let Some(edge) = &state.edge {
            f(OwnedPart::Node(&edge.node));
        }
        let Some(leaf) = &state.leaf else { return };
        leaf.grad
            .iter()
            .chain(leaf.tangents.iter().filter_map(|t| t.value.as_ref()))
            .for_each(|t| f(OwnedPart::Tensor(t)));
        // A leaf whose data were replaced shares its hooks with the one in its place.
        if Arc::strong_count(&leaf.extra) == 1 {
            f(OwnedPart::Extra(&leaf.extra));
        }
    }

    pub(super) fn unlink(&mut self, stack: &mut SmallVec<[Owned; 8]>) {
        let state = self.state.get_mut();
        stack.extend(state.edge.take().map(|e| Owned::Node(e.node)));
        let tangents = state.leaf.as_mut().map(|leaf| std::mem::take(&mut leaf.tangents)).unwrap_or_default();
        stack.extend(tangents.into_iter().filter_map(|t| t.value).map(Owned::Tensor));
        stack.extend(self.view.take().map(|v| Owned::Tensor(v.base)));
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // A view's base may be the last handle on a long history: hand it to the iterative drop.
        if let Some(view) = self.auto.view.take() {
            let mut stack = SmallVec::new();
            if_last(view.base.0, |inner| inner.auto.unlink(&mut stack));
            drop(stack);
        }
    }
}
