//! The dynamic tape: what was computed from what, and the gradients that follow.
//!
//! `node` is the graph, `autograd_meta` a tensor's place on it, `record` writes it while ops run, `backward` runs
//! it, `hooks` watch, `copy_slices` has the gradients of writes, `multi_output` has primitives with several results, `custom` adds functions with gradients of their own, `graph` shows it as
//! `compat` says, `host_refs` tells garbage collectors what its hooks hold, `forward` carries
//! tangents along, at the dual levels of `dual_level`, `transform_leaf` finds the leaf that a history leads to.
//! Rules stand in the op table and are written in tensor ops, so with `create_graph` the backward pass is itself recorded. No backward pass and no
//! drop recurses.

mod accumulate;
mod anomaly;
mod autograd_meta;
mod backward;
mod backward_pass;
mod copy_slices;
mod custom;
mod dual_level;
mod dual_tensor;
pub(crate) mod forward;
mod grad_dtype;
mod graph;
mod hooks;
mod host_refs;
mod modes;
mod multi_output;
mod node;
mod record;
mod transform_leaf;
mod transforms;
pub(crate) mod unbroadcast;

pub use crate::compat::saved_attributes::SavedArg;
pub(crate) use autograd_meta::{Auto, Origin, Standing};
pub use custom::{custom, rewritten, Backward, CustomNode, Record};
pub(crate) use custom::{flat, leading_nowhere, refuse_recorded, refusing};
pub use dual_level::{
    close_level, enter_dual_level, exit_dual_level, forward_active, forward_enabled, leave_level, open_level,
    set_bound, set_forward_enabled,
};
#[doc(hidden)]
pub use dual_tensor::set_tangent;
pub use dual_tensor::{make_dual, unpack_dual};
pub(crate) use forward::carries;
#[doc(hidden)]
pub use forward::cut;
pub use graph::{GraphNode, WeakNode};
pub use hooks::{GradList, Hook, LeafHook, PostHook, PreHook};
pub use host_refs::{clear_node_hosts, clear_tensor_hosts, visit_node_hosts, visit_tensor_hosts, HostRef};
pub use modes::OpScope;
pub use modes::{
    anomaly, enable_grad, grad_enabled, inference_mode_enabled, layout_enforced, led_by_number, named, no_grad,
    packing, pop_packing, push_packing, restore_mode, set_detect_anomaly, set_grad_enabled, set_inference_mode,
    set_layout_enforced, set_tracer, Former, Pack, SavedTensorHooks, Tracer, Unpack,
};
pub(crate) use modes::{
    called, op_name, piecewise_linear, with_grad, with_grad_layout, GradLayoutGuard, GradLayoutRule,
};
pub(crate) use multi_output::record_multi;
pub(crate) use node::{Ctx, Edge, Grads, InputMeta, Kind, Node, SavedTensor, SplitInfo};
pub(crate) use record::{
    apart, as_input, before, check_followed, check_in_place, edge_of, has_seen, is_recorded, record, record_fill,
    record_pieces, record_view, record_write, requires_grad, unviewed,
};
pub use record::{custom_view, handed_out};

/// Is there something to carry on for what is computed from `t`: a gradient that is recorded, or a tangent?
pub(crate) fn is_followed(t: &crate::Tensor) -> bool {
    grad_enabled() && requires_grad(t) || forward::carries(t)
}

pub use transforms::{
    check_hooks, check_untransformed, current_transform, enter_transform, is_transformed, leave_transform, Transform,
};

#[doc(hidden)]
pub use backward::grad_apart;
pub use backward::{backward, grad, BackwardOptions};
#[doc(hidden)]
pub use backward_pass::{chosen_alone, current_pass, queue_callback};
#[doc(hidden)]
pub use transform_leaf::{leads_elsewhere, retire};
