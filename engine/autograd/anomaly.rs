//! What anomaly mode looks for in the gradients of each step.

use super::node::{Grads, Node};
use super::{modes, with_grad};
use crate::{Error, Result};
use std::sync::Arc;

/// In anomaly mode: an error where a gradient holds NaN, and a report of any error.
pub(super) fn examined(node: &Arc<Node>, made: Result<Grads>) -> Result<Grads> {
    let found = made.and_then(|grads| {
        if modes::anomaly().1 {
            for (i, g) in grads.iter().enumerate() {
                let Some(g) = g else { continue };
                let g = if g.is_sparse() { &g.sparse_values()? } else { g };
                if with_grad(false, || g.isnan()?.any(None, false)?.item_bool())? {
                    let place = node.extra.trace().map(|t| format!(" It was called at {}", last_frame(&t)));
                    let place = place.unwrap_or_default();
                    let why = format!("Function '{}' returned nan values in its {i}th output.{place}", node.name());
                    return Err(Error::runtime(node.op(), why));
                }
            }
        }
        Ok(grads)
    });
    if found.is_err() {
        modes::report(&node.name(), node.extra.trace().as_deref());
    }
    found
}

/// The innermost place of a trace: its last two lines.
fn last_frame(trace: &str) -> String {
    let mut lines: Vec<&str> = trace.lines().rev().map(str::trim).filter(|l| !l.is_empty()).take(2).collect();
    lines.reverse();
    lines.join(": ")
}
