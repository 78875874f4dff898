//! The graph as a user may look at it: nodes, what they lead to, hooks on them.

use super::autograd_meta::Auto;
use super::hooks::{PostHook, PreHook};
use super::modes::OpCall;
use super::node::{Ctx, Edge, Kind, Node};
use super::record::{edge_of, requires_grad};
use crate::dispatch::Prim;
use crate::ops::contract::ContractOp;
use crate::ops::OpRow;
use crate::{Error, Result, Tensor};
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
    /// The name, as PyTorch shows it: the op's in camel case, and which of its overloads was called.
    pub(crate) fn name(&self) -> Cow<'static, str> {
        match &self.kind {
            Kind::Accumulate(_) => Cow::Borrowed("AccumulateGrad"),
            Kind::Write(ops, _) if !ops.is_empty() || self.called.is_none() => Cow::Borrowed("CopySlices"),
            Kind::Custom(custom) => Cow::Borrowed(custom.name),
            Kind::Op(_) | Kind::Write(..) | Kind::SplitInfo(_) => {
                let (op, given) = self.called.map_or((self.op(), 0), |called| (called.name, called.given));
                match op {
                    "copy_" => return Cow::Borrowed("CopyBackwards"),
                    "diag" => return Cow::Borrowed("DiagonalBackward0_copy"),
                    // Around: the other kinds have names of their own. PyTorch fills an empty tensor part by part.
                    "pad" => return Cow::Borrowed("CopySlices"),
                    _ => {}
                }
                let (name, overload) = torch_name(op, &Given { op, given });
                Cow::Owned(format!("{}Backward{overload}", camel(name)))
            }
        }
    }
}

/// Which arguments an op was called with, as `mark!` of the op table says it.
pub(super) struct Given {
    pub(super) op: &'static str,
    pub(super) given: u64,
}

impl Given {
    /// The mark of a parameter of the op's row.
    fn mark(&self, param: &str) -> u64 {
        let row = crate::ops::schemas().find(|s| s.name == self.op.trim_end_matches('_'));
        let place = row.and_then(|row| row.params.iter().rev().position(|p| p.name == param));
        place.filter(|&i| i < 32).map_or(0, |i| (self.given >> (2 * i)) & 3)
    }

    /// 1 where the parameter was given.
    pub(super) fn has(&self, param: &str) -> u64 {
        self.mark(param).min(1)
    }

    /// Was there a number before the tensor?
    pub(super) fn led(&self) -> bool {
        self.given >> 63 == 1
    }

    /// 1 where it is a tensor.
    fn tensor(&self, param: &str) -> u64 {
        u64::from(self.mark(param) == 1)
    }

    /// 1 where it is a number in a tensor's place.
    pub(super) fn number(&self, param: &str) -> u64 {
        u64::from(self.mark(param) == 2)
    }
}

/// PyTorch's name for the step that an op of ours records, and the number that it gives the overload that was called.
fn torch_name<'a>(op: &'a str, given: &Given) -> (&'a str, u64) {
    // PyTorch numbers overloads in the order in which it declares their derivatives.
    match op {
        _ if op.ends_with("_number") => (op.trim_end_matches("_number"), 1),
        "sum" | "mean" | "prod" | "median" | "nanmedian" => (op, given.has("dim")),
        "squeeze" => (op, given.mark("dim")),
        "squeeze_" => ("squeeze", 3 + given.mark("dim")),
        "pairwise_distance" => ("norm", 1),
        "cross_entropy_sum" => ("neg", 0),
        "cross_entropy_mean" => ("div", 1),
        "cross_entropy_smooth" => ("add", 0),
        "nll_loss_flat" => ("view", 0),
        "sum_over" => ("sum", 1),
        "lstm_cell" => ("mul", 0),
        "gru_cell" | "lstm_cell_state" => ("add", 0),
        "elu_" | "selu_" => ("elu", 1),
        "celu_" | "leaky_relu_" | "threshold_" | "rrelu_with_noise_" => (op.trim_end_matches('_'), 1),
        "t_" | "transpose_" | "unsqueeze_" | "as_strided_" => (op.trim_end_matches('_'), 1),
        "div" => (op, 2 * given.has("rounding_mode")),
        "remainder" | "fmod" => (op, given.tensor("other")),
        "pow" | "float_power" if given.led() => ("pow", 2),
        "pow" => (op, given.tensor("exponent")),
        "float_power" => ("pow", given.tensor("exponent")),
        "xlogy" if given.led() => (op, 1),
        "max_all" => ("max", 1),
        "min_all" => ("min", 1),
        "masked_fill" => (op, given.tensor("value")),
        "fill_" => ("fill", 2 + given.given),
        "corrcoef" => ("clamp", 1),
        "quantile" | "nanquantile" => ("squeeze", 4),
        "vecmat" => ("squeeze", 4),
        "max_pool1d" | "avg_pool1d" | "unbatched" => ("squeeze", 1),
        "linear" if given.has("bias") == 0 => ("mm", 0),
        "rsub" | "copysign" => (op, given.number("other")),
        "xlogy" => (op, 2 * given.number("other")),
        "xlog1py" => ("special_xlog1py", 2 * given.number("other")),
        "lerp" => (op, given.tensor("weight")),
        "round" => (op, given.has("decimals")),
        "clamp_min" => (op, given.tensor("min")),
        "clamp_max" => (op, given.tensor("max")),
        "clamp" => (op, given.number("min").max(given.number("max"))),
        "scatter" => (op, given.number("src").max(given.has("value"))),
        "normal" => (op, given.tensor("mean") + 2 * given.tensor("std")),
        // Half of `erfc`, by a number in place.
        "ndtr" => ("mul", 1),
        // These say which overload it was.
        "bernoulli_" | "random_" => (op.trim_end_matches('_'), given.given),
        "normal_" | "uniform_" => (op.trim_end_matches('_'), 0),
        "index_fill" | "fill" => (op, given.tensor("value")),
        "split" if given.has("split_size_or_sections") == 1 => ("split_with_sizes", 0),
        "repeat_interleave" if given.tensor("repeats") == 1 => ("index_select", 0),
        _ => (stands_for(op), 0),
    }
}

/// PyTorch's name where that is not the op's own, for what it makes of other ops or calls otherwise inside.
fn stands_for(op: &str) -> &str {
    match op {
        "reshape" | "view" | "flatten" | "unflatten" | "ravel" | "repeat_interleave" => "view",
        "copy" | "contiguous" | "clone" => "clone",
        "cast" => "to_copy",
        "narrow" | "tensor_split" | "hsplit" | "vsplit" | "dsplit" => "slice",
        "chunk" => "split",
        "unsafe_chunk" => "unsafe_split",
        "log_ndtr" => "special_log_ndtr",
        "movedim" => "permute",
        "adjoint" => "transpose",
        "broadcast_to" | "broadcast_tensors" | "meshgrid" => "expand",
        "imag" => "select",
        "tile" => "repeat",
        "hstack" | "vstack" | "dstack" | "column_stack" => "cat",
        "lstm_sequence" | "gru_sequence" | "rnn_sequence" => "cat",
        "cartesian_prod" => "stack",
        "combinations" => "index",
        "fliplr" | "flipud" => "flip",
        "diagflat" => "diag_embed",
        "take_along_dim" => "gather",
        "msort" => "sort",
        "max_dim" => "max",
        "min_dim" => "min",
        "square" => "pow",
        "rint" => "round",
        "matmul" | "mm" => "mm",
        "tensordot" | "chain_matmul" | "linalg_multi_dot" | "linalg_tensorsolve" => "view",
        "kron" => "unsafe_view",
        "cov" => "squeeze",
        "cross" => "linalg_cross",
        "logdet" => "where",
        "rms_norm" | "dropout" => "mul",
        "pinverse" => "linalg_pinv",
        "matrix_exp" => "linalg_matrix_exp",
        "linalg_cholesky" => "linalg_cholesky_ex",
        "linalg_diagonal" => "diagonal",
        "linalg_eigvalsh" => "linalg_eigh",
        "linalg_inv" => "linalg_inv_ex",
        "lu" => "linalg_lu_factor_ex",
        "lu_solve" => "linalg_lu_solve",
        "orgqr" => "linalg_householder_product",
        "svd" => "linalg_svd",
        "linalg_lu_factor" => "linalg_lu_factor_ex",
        "linalg_solve" => "linalg_solve_ex",
        "linalg_svdvals" => "linalg_svd",
        "linalg_tensorinv" => "reshape_alias",
        "linalg_vander" => "cat",
        "outer" => "mul",
        "diff" | "tanhshrink" => "sub",
        "nanmean" | "softsign" => "div",
        "norm" | "linalg_norm" => "linalg_vector_norm",
        "inverse" => "linalg_inv_ex",
        "det" => "linalg_det",
        "slogdet" => "linalg_slogdet",
        "linear" => "addmm",
        "conv1d" | "conv2d" | "conv3d" | "conv_transpose1d" | "conv_transpose2d" | "conv_transpose3d" => "convolution",
        "max_pool2d" => "max_pool2d_with_indices",
        "max_pool3d" => "max_pool3d_with_indices",
        "layer_norm" => "native_layer_norm",
        "group_norm" => "native_group_norm",
        "batch_norm" => "native_batch_norm",
        "relu6" => "hardtanh",
        "selu" => "elu",
        "prelu" => "prelu_kernel",
        "logsigmoid" => "log_sigmoid",
        "l1_loss" => "mean",
        "cross_entropy" => "nll_loss",
        "i0e" => "special_i0e",
        "i1" => "special_i1",
        "i1e" => "special_i1e",
        "erfcx" => "special_erfcx",
        "zeta" => "special_zeta",
        "entr" => "special_entr",
        "ndtri" => "special_ndtri",
        "bessel_j0" => "special_bessel_j0",
        "bessel_j1" => "special_bessel_j1",
        "bessel_y0" => "special_bessel_y0",
        "bessel_y1" => "special_bessel_y1",
        "modified_bessel_k0" => "special_modified_bessel_k0",
        "modified_bessel_k1" => "special_modified_bessel_k1",
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
    /// How many results it has, and so gradients to be called with.
    pub fn results(&self) -> usize {
        match &self.0.kind {
            Kind::Op(_) | Kind::Write(..) | Kind::Accumulate(_) => 1,
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
            Kind::Op(_) | Kind::Write(..) | Kind::SplitInfo(_) | Kind::Custom(_) => None,
        }
    }

    /// A tensor whose gradient goes where that of result `nr` goes, to be named in its place: the leaf of a node that adds
    /// to one, else one that shows the elements of `like`, of the result's shape where it is to be a root.
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
    pub(super) fn whole(&self) -> Option<&Prim> {
        let Kind::Op(prim) = &self.0.kind else { return None };
        let product = matches!(prim, Prim::Contract(ContractOp::MatMul { .. }));
        let is_it = |called: OpCall| {
            let name = called.name;
            name.trim_end_matches('_') == prim.name() || product && matches!(name, "mm" | "bmm" | "mv" | "dot")
        };
        self.0.called.is_none_or(is_it).then_some(prim)
    }

    /// The name of input `i`.
    pub(super) fn input_name(&self, i: usize) -> Option<&'static str> {
        self.input_param(i).map(|(name, _)| name)
    }

    /// The name of input `i`, and what the op takes there.
    pub(super) fn input_param(&self, i: usize) -> Option<(&'static str, &'static str)> {
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
            // A primitive may call another one of one tensor in its place: a square for a power.
            let row = crate::ops::schemas().find(|row| row.name == self.0.op());
            if name == "self" && self.0.metas.len() == 1 && row.is_some_and(|row| row.primitive) {
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
    pub fn is_reached(&self) -> Option<bool> {
        super::backward::reaches(&self.0)
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
    pub fn set_hook_host(&self, handle: u64, host: super::HostRef) {
        self.0.set_hook_host(handle, host);
    }

    /// The same of what the gradient of a custom function holds. Once.
    pub fn set_host(&self, host: super::HostRef) {
        if let Kind::Custom(custom) = &self.0.kind {
            custom.set_host(host);
        }
    }

    /// What the embedding language keeps with the node.
    pub fn metadata(&self, make: impl FnOnce() -> Arc<dyn Any + Send + Sync>) -> Arc<dyn Any + Send + Sync> {
        self.0.extra.metadata(make)
    }

    /// An address that tells nodes apart while they live.
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
    pub fn check_followed(&self) -> Result<()> {
        super::check_followed("grad_fn", self)
    }

    /// Is it a view of that very tensor?
    pub fn is_view_of(&self, base: &Tensor) -> bool {
        self.0.auto.view.as_ref().is_some_and(|v| !v.itself && v.base.is_same(base))
    }

    /// What an embedding language put there to find its own object of this tensor by.
    pub fn object(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.0.auto.object()
    }

    /// Puts it there. It lives as long as the tensor, and must not own it.
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
