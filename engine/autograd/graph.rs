//! The graph as a user may look at it: nodes, what they lead to, hooks on them.

use super::autograd_meta::Auto;
use super::hooks::{PostHook, PreHook};
use super::modes::OpCall;
use super::node::{Ctx, Edge, Kind, Node};
use super::record::{edge_of, requires_grad};
use crate::dispatch::Prim;
use crate::ops::contract::ContractOp;
use crate::ops::schema::{Saves, Schema};
use crate::ops::OpRow;
use crate::{Error, Result, Tensor};
use std::any::Any;
use std::borrow::Cow;
use std::sync::{Arc, Weak};

/// A node of the graph, held: what computes the gradients of one op's inputs from those of its results.
#[derive(Clone)]
pub struct GraphNode(pub(crate) Arc<Node>);

/// A [`GraphNode`] that may be gone.
#[derive(Clone, Default)]
pub struct WeakNode(Weak<Node>);

impl WeakNode {
    /// The node, unless it is gone.
    pub fn upgrade(&self) -> Option<GraphNode> {
        self.0.upgrade().map(GraphNode)
    }
}

impl GraphNode {
    /// How many results it has, and so gradients to be called with.
    pub fn results(&self) -> usize {
        match &self.0.kind {
            Kind::Op(_) | Kind::Write(..) | Kind::Accumulate(_) => 1,
            Kind::MultiOp(op) => op.results.len(),
            Kind::SplitInfo(pieces) => pieces.sizes.len(),
            Kind::Custom(custom) => custom.results(),
        }
    }

    /// Is it a function with a gradient of its own?
    pub fn is_custom(&self) -> bool {
        matches!(self.0.kind, Kind::Custom(_))
    }

    /// The name, as PyTorch shows it, such as `AddBackward0`.
    pub fn name(&self) -> Cow<'static, str> {
        self.0.name()
    }

    /// The leaf that this node adds to, if it is one that does.
    pub fn leaf(&self) -> Option<Tensor> {
        match &self.0.kind {
            Kind::Accumulate(leaf) => Some(leaf.0.auto.heir().unwrap_or_else(|| leaf.clone())),
            Kind::Op(_) | Kind::MultiOp(_) | Kind::Write(..) | Kind::SplitInfo(_) | Kind::Custom(_) => None,
        }
    }

    /// A tensor whose gradient goes where that of result `nr` goes, to be named in its place: the leaf of a node that adds
    /// to one, else one that shows the elements of `like`, of the result's shape where it is to be a root.
    #[doc(hidden)]
    pub fn stand_in(&self, nr: u32, like: &Tensor) -> Tensor {
        self.leaf().unwrap_or_else(|| {
            let nr = nr.saturating_sub(self.0.place());
            Tensor::with_auto(like.storage().clone(), Auto::recorded(Edge { node: Arc::clone(&self.0), nr }))
        })
    }

    /// The tensors that the node saved, in the order of its inputs; `None` where it saved none.
    ///
    /// # Errors
    /// [`crate::Error::VersionMismatch`] where one was written since, [`crate::Error::Runtime`] where they were freed.
    pub fn saved(&self) -> Result<Vec<Option<Tensor>>> {
        let n = {
            let saved = self.0.saved.lock();
            if saved.freed {
                return Err(self.0.freed());
            }
            saved.inputs.len()
        };
        (0..n).map(|i| self.0.saved(i)).collect()
    }

    /// The names of what the node saved, as PyTorch calls the op's arguments: `self` for the first tensor, the parameter's
    /// own name for others, `result` for the result. None for a step of an op that is made of several.
    pub fn saved_names(&self) -> Vec<&'static str> {
        let Some(prim) = self.whole() else { return Vec::new() };
        let row = prim.schema();
        let inputs = (0..self.0.metas.len()).filter(|&i| row.saves.input(i, |_| true)).map(|i| self.input_name(i));
        inputs.flatten().chain(row.saves.output(|_| true).then_some("result")).collect()
    }

    /// The primitive, where it is all of the op that was called.
    pub(crate) fn whole(&self) -> Option<&Prim> {
        let Kind::Op(prim) = &self.0.kind else { return None };
        let product = matches!(prim, Prim::Contract(ContractOp::MatMul { .. }));
        let is_it = |called: OpCall| {
            let name = called.name;
            name.trim_end_matches('_') == prim.name() || product && matches!(name, "mm" | "bmm" | "mv" | "dot")
        };
        self.0.called.is_none_or(is_it).then_some(prim)
    }

    /// The name of input `i`.
    pub(crate) fn input_name(&self, i: usize) -> Option<&'static str> {
        self.input_param(i).map(|(name, _)| name)
    }

    /// The name of input `i`, and what the op takes there.
    pub(crate) fn input_param(&self, i: usize) -> Option<(&'static str, &'static str)> {
        let prim = self.whole()?;
        if matches!(prim, Prim::Contract(ContractOp::MatMul { .. })) {
            return ["self", "mat2"].get(i).map(|name| (*name, "Tensor"));
        }
        let tensors = prim.schema().params.iter().filter(|p| p.kind.contains("Tensor") || p.kind.contains("Operand"));
        tensors.map(|p| (if p.name == "input" { "self" } else { p.name }, p.kind)).nth(i)
    }

    /// What the node saved under that one of [`GraphNode::saved_names`]; `None` where there is none of that name, and
    /// within where no gradient needs it.
    ///
    /// # Errors
    /// As [`GraphNode::saved`].
    #[doc(hidden)]
    pub fn saved_as(&self, name: &str) -> Result<Option<Option<Tensor>>> {
        let Some(prim) = self.whole() else {
            let (has_output, freed) = {
                let saved = self.0.saved.lock();
                (saved.output.is_some(), saved.freed)
            };
            // What the last step saved of its result is the result.
            if name == "result" && self.0.told.get().is_some() && (has_output || freed) {
                return Ctx::new(&self.0, &[], None).out().map(Some).map(Some);
            }
            // A primitive may call another one of one tensor in its place: a square for a power. One that keeps indices kept
            // no tensor: the median of all elements is made of others.
            let row = crate::ops::schemas().find(|row| row.name == self.0.op());
            let keeps = |row: &Schema| row.primitive && row.saves != Saves::Indices;
            if name == "self" && self.0.metas.len() == 1 && row.is_some_and(keeps) {
                if let Some(found) = self.0.saved(0)? {
                    return Ok(Some(Some(found)));
                }
            }
            return Ok(match self.0.saved_argument(name)? {
                None if name == "indices" => self.0.saved_indices()?.map(Some),
                found => found.map(Some),
            });
        };
        let row = prim.schema();
        if name == "result" && row.saves.output(|_| true) {
            let saved = self.0.saved.lock();
            if saved.output.is_none() && !saved.freed {
                return Ok(Some(None));
            }
            drop(saved);
            return Ctx::new(&self.0, &[], None).out().map(Some).map(Some);
        }
        let is_it = |&i: &usize| row.saves.input(i, |_| true) && self.input_name(i) == Some(name);
        let Some(i) = (0..self.0.metas.len()).find(is_it) else { return Ok(None) };
        if self.0.saved.lock().freed {
            return Err(self.0.freed());
        }
        self.0.saved(i).map(Some)
    }

    /// Lets what the node saved under a name go through a hook now, and back when it is asked for.
    ///
    /// # Errors
    /// [`crate::Error::Runtime`] where there is nothing of that name, it was freed or went through a hook already; what
    /// the hook reports.
    #[doc(hidden)]
    pub fn pack_saved(&self, name: &str, pack: &super::Pack) -> Result<()> {
        let fail = |why: &str| Err(Error::runtime(self.0.op(), why));
        let Some(prim) = self.whole() else { return fail("the node has saved nothing of that name") };
        let row = prim.schema();
        let is_it = |&i: &usize| row.saves.input(i, |_| true) && self.input_name(i) == Some(name);
        let place = match name {
            "result" if row.saves.output(|_| true) => None,
            _ => match (0..self.0.metas.len()).find(is_it) {
                Some(i) => Some(i),
                None => return fail("the node has saved nothing of that name"),
            },
        };
        let (kept, freed) = {
            let saved = self.0.saved.lock();
            let kept = match place {
                Some(i) => saved.inputs.get(i).cloned().flatten(),
                None => saved.output.clone(),
            };
            (kept, saved.freed)
        };
        let packed = match kept {
            None if freed => return Err(self.0.freed()),
            None => return fail("Calling register_hooks on a saved tensor with value None is forbidden"),
            Some(kept) => kept.packed_by(&self.0, pack)?,
        };
        let mut saved = self.0.saved.lock();
        let old = match place {
            Some(i) => saved.inputs.get_mut(i).and_then(|slot| slot.replace(packed)),
            None => saved.output.replace(packed),
        };
        drop(saved);
        drop(old);
        Ok(())
    }

    /// Will the backward pass that runs in this thread reach the node? `None` where none runs.
    #[doc(hidden)]
    pub fn is_reached(&self) -> Option<bool> {
        super::backward_pass::reaches(&self.0)
    }

    /// A handle that does not keep the node.
    pub fn downgrade(&self) -> WeakNode {
        WeakNode(Arc::downgrade(&self.0))
    }

    /// Counts up within a thread; later nodes run first.
    pub fn sequence_number(&self) -> u64 {
        self.0.seq
    }

    /// Calls `hook` before the node runs, with the gradients of its results. The handle is for
    /// [`GraphNode::remove_hook`].
    pub fn register_prehook(&self, hook: PreHook) -> u64 {
        self.0.add_pre_hook(hook)
    }

    /// Calls `hook` after the node ran, with the gradients of its inputs and of its results.
    pub fn register_hook(&self, hook: PostHook) -> u64 {
        self.0.add_post_hook(hook)
    }

    /// Takes a hook away; does nothing where it is gone already.
    pub fn remove_hook(&self, handle: u64) {
        self.0.remove_hook(handle);
    }

    /// Tells a garbage collector, through [`visit_node_hosts`](super::visit_node_hosts), what a hook holds.
    #[doc(hidden)]
    pub fn set_hook_host(&self, handle: u64, host: super::HostRef) {
        self.0.set_hook_host(handle, host);
    }

    /// The same of what the gradient of a custom function holds. Once.
    #[doc(hidden)]
    pub fn set_host(&self, host: super::HostRef) {
        if let Kind::Custom(custom) = &self.0.kind {
            custom.set_host(host);
        }
    }

    /// What the embedding language keeps with the node.
    #[doc(hidden)]
    pub fn metadata(&self, make: impl FnOnce() -> Arc<dyn Any + Send + Sync>) -> Arc<dyn Any + Send + Sync> {
        self.0.extra.metadata(make)
    }

    /// An address that tells nodes apart while they live.
    #[doc(hidden)]
    pub fn address(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }

    /// Runs the node by itself on gradients of its results. No hook is called, as in PyTorch.
    ///
    /// # Errors
    /// What the gradient rule reports.
    pub fn call(&self, grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        super::backward::alone(&self.0, grads)
    }
}

impl Tensor {
    /// Refuses a view that has no place on the tape any more: one that was made while nothing was recorded, or among several by
    /// one function, and whose base was written since while gradients were recorded.
    ///
    /// # Errors
    /// [`Error::Runtime`](crate::Error::Runtime) for such a view.
    #[doc(hidden)]
    pub fn check_followed(&self) -> Result<()> {
        super::check_followed("grad_fn", self)
    }

    /// Is it a view of that very tensor?
    #[doc(hidden)]
    pub fn is_view_of(&self, base: &Tensor) -> bool {
        self.0.auto.view.as_ref().is_some_and(|v| !v.itself && v.base.is_same(base))
    }

    /// What an embedding language put there to find its own object of this tensor by.
    #[doc(hidden)]
    pub fn object(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.0.auto.object()
    }

    /// Puts it there. It lives as long as the tensor, and must not own it.
    #[doc(hidden)]
    pub fn set_object(&self, object: Arc<dyn Any + Send + Sync>) {
        self.0.auto.set_object(object);
    }

    /// The op that made this tensor, and none for a leaf.
    pub fn grad_fn(&self) -> Option<GraphNode> {
        if self.is_sparse() {
            return self.sparse_values().ok()?.grad_fn();
        }
        let edge = requires_grad(self).then(|| crate::batching::bare(self).0.auto.own_edge()).flatten();
        edge.map(|e| GraphNode(e.node))
    }

    /// Where this tensor's gradient goes: its node (for a leaf, the one that adds to it) and which result it is.
    pub fn gradient_edge(&self) -> Option<(GraphNode, u32)> {
        edge_of(self).map(|Edge { node, nr }| (GraphNode(Arc::clone(&node)), nr + node.place()))
    }

    /// Which result of its node this tensor is; 0 for a leaf.
    pub fn output_nr(&self) -> u32 {
        self.0.auto.own_edge().map_or(0, |e| e.nr + e.node.place())
    }
}
