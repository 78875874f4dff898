//! The dynamic tape: what was computed from what, and the gradients that follow.
//!
//! `node` is the graph, `record` writes it while ops run, `run` walks it backwards, `hooks` watch, `custom` adds functions
//! with gradients of their own, `graph` shows it. Rules stand in the op table and are written in tensor ops, so with
//! `create_graph` the walk is itself recorded. No walk and no drop recurses.

mod custom;
mod graph;
mod hooks;
mod modes;
mod node;
mod record;
mod run;

pub use custom::{custom, Backward, CustomNode, Record};
pub use graph::{GraphNode, WeakNode};
pub use hooks::{GradList, Hook, LeafHook, PostHook, PreHook};
pub(crate) use modes::with_grad;
pub use modes::Naming;
pub use modes::{
    anomaly, enable_grad, grad_enabled, inference_mode_enabled, led_by_number, named, no_grad, packing, pop_packing,
    push_packing, restore_mode, set_detect_anomaly, set_grad_enabled, set_inference_mode, set_tracer, Former, Pack,
    Packing, Tracer, Unpack,
};
pub(crate) use node::{Auto, Ctx, Edge, Grads, Pieces};
pub(crate) use record::{
    apart, check_in_place, edge_of, record, record_pieces, record_view, record_write, requires_grad,
};
pub use run::{backward, grad, leads_elsewhere, retire, Keep};
