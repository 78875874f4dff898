//! The graph as a user may look at it: nodes, what they lead to, hooks on them.

use super::hooks::{PostHook, PreHook};
use super::node::{Edge, Kind, Node};
use super::record::{edge_of, requires_grad};
use crate::{Result, Tensor};
use std::any::Any;
use std::borrow::Cow;
use std::sync::{Arc, Weak};

/// A step of the tape, held: what computes the gradients of one op's inputs from those of its results.
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

impl Node {
    /// The name, as PyTorch shows it: the op's in camel case. PyTorch numbers overloads; here the number is always 0.
    pub(crate) fn name(&self) -> Cow<'static, str> {
        match &self.kind {
            Kind::Accumulate(_) => Cow::Borrowed("AccumulateGrad"),
            Kind::Write(_) => Cow::Borrowed("CopySlices"),
            Kind::Custom(custom) => Cow::Borrowed(custom.name),
            Kind::Op(_) => Cow::Owned(camel(torch_name(self.op())) + "Backward0"),
        }
    }
}

/// PyTorch's name for the step that an op of ours records, where that is not the op's own.
fn torch_name(op: &str) -> &str {
    match op {
        "reshape" | "view" | "flatten" | "unflatten" | "ravel" => "view",
        "copy" | "contiguous" | "clone" => "clone",
        "cast" => "to_copy",
        "narrow" => "slice",
        "chunk" => "split",
        "movedim" => "permute",
        "broadcast_to" => "expand",
        "max_dim" => "max",
        "min_dim" => "min",
        "square" | "float_power" => "pow",
        "rint" => "round",
        "matmul" | "mm" => "mm",
        "linear" => "addmm",
        "conv1d" | "conv2d" | "conv3d" | "conv_transpose1d" | "conv_transpose2d" | "conv_transpose3d" => "convolution",
        "max_pool2d" => "max_pool2d_with_indices",
        "max_pool3d" => "max_pool3d_with_indices",
        "layer_norm" => "native_layer_norm",
        "group_norm" => "native_group_norm",
        "batch_norm" => "native_batch_norm",
        "relu6" => "hardtanh",
        "l1_loss" => "mean",
        "cross_entropy" => "nll_loss",
        "i0e" => "special_i0e",
        "i1" => "special_i1",
        "i1e" => "special_i1e",
        "erfcx" => "special_erfcx",
        "zeta" => "special_zeta",
        "xlog1py" => "special_xlog1py",
        own => own,
    }
}

/// `max_pool2d` as `MaxPool2D`: upper case after underscores and after digits.
fn camel(name: &str) -> String {
    let mut upper = true;
    let mut out = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '_' => upper = true,
            c => {
                out.push(if upper { c.to_ascii_uppercase() } else { c });
                upper = c.is_ascii_digit();
            }
        }
    }
    out
}

impl GraphNode {
    /// The name, as PyTorch shows it, such as `AddBackward0`.
    pub fn name(&self) -> Cow<'static, str> {
        self.0.name()
    }

    /// Where the gradients of the inputs go: a node and which of its results, or `None` for an input without gradient.
    pub fn next(&self) -> Vec<Option<(GraphNode, u32)>> {
        self.0.edges.iter().map(|e| e.as_ref().map(|e| (GraphNode(Arc::clone(&e.node)), e.nr))).collect()
    }

    /// The leaf that this node adds to, if it is one that does.
    pub fn leaf(&self) -> Option<Tensor> {
        match &self.0.kind {
            Kind::Accumulate(leaf) => Some(leaf.clone()),
            Kind::Op(_) | Kind::Write(_) | Kind::Custom(_) => None,
        }
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

    /// What the embedding language keeps with the node.
    pub fn metadata(&self, make: impl FnOnce() -> Arc<dyn Any + Send + Sync>) -> Arc<dyn Any + Send + Sync> {
        self.0.extra.metadata(make)
    }

    /// An address that tells nodes apart while they live.
    pub fn address(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }

    /// Runs the node by itself on gradients of its results.
    ///
    /// # Errors
    /// What the gradient rule reports.
    pub fn call(&self, grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        super::run::alone(&self.0, grads)
    }
}

impl Tensor {
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
        edge_of(self).map(|Edge { node, nr }| (GraphNode(node), nr))
    }

    /// Which result of its node this tensor is; 0 for a leaf.
    pub fn output_nr(&self) -> u32 {
        self.0.auto.own_edge().map_or(0, |e| e.nr)
    }
}
