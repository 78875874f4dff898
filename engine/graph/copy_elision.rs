//! Removes copies of arrays that nobody else has, such as the one that keeps a gradient apart from what it was made of.
//!
//! Invariant: an array is handed on only where its storage is a fresh one, which nothing writes to, shows as a result or reads
//! after the copy.

use super::passes::Pass;
use super::{Graph, Step, Value};
use crate::dispatch::Prim;
use crate::Result;
use lucid_ir::ops::transfer::TransferOp;
use std::collections::{HashMap, HashSet};

/// Hands an array on in the place of its copy.
#[derive(Clone, Copy, Debug, Default)]
pub struct CopyElision;

impl Pass for CopyElision {
    fn name(&self) -> &'static str {
        "copy elision"
    }

    fn run(&self, graph: &mut Graph) -> Result<usize> {
        let (written, escaping) = (graph.written(), graph.escaping());
        let mut made: HashMap<Value, usize> = HashMap::new();
        let mut last: HashMap<Value, usize> = HashMap::new();
        for (at, step) in graph.steps.iter().enumerate() {
            if let (Step::Op { .. }, Some(out)) = (step, step.out()) {
                made.insert(out, at);
            }
            for value in step.uses() {
                last.insert(graph.root(value), at);
            }
        }
        let mut moved: HashMap<Value, Value> = HashMap::new();
        let mut gone: HashSet<usize> = HashSet::new();
        for (at, step) in graph.steps.iter().enumerate() {
            let Step::Op { prim: Prim::Transfer(TransferOp::Copy), inputs, out, .. } = step else { continue };
            let [x] = inputs[..] else { continue };
            let (from, to) = (graph.info(x)?, graph.info(*out)?);
            let alike = (&from.shape, &from.strides, from.offset, from.dtype, from.device)
                == (&to.shape, &to.strides, to.offset, to.dtype, to.device);
            // A second part may run again, each time on what the first one made.
            let together = made.get(&x).is_some_and(|&m| (m < graph.split) == (at < graph.split));
            let own = from.root == x && last.get(&x) == Some(&at);
            // Chains of copies lose one copy a run.
            let free = !written.contains(&x) && !escaping.contains(&x) && !moved.contains_key(&x);
            if alike && together && own && free && !moved.values().any(|&v| v == x) {
                moved.insert(x, *out);
                gone.insert(at);
            }
        }
        let to = |v: Value| moved.get(&v).copied().unwrap_or(v);
        for step in &mut graph.steps {
            step.rename(to);
            if let Step::Op { out, .. } = step {
                *out = to(*out);
            }
        }
        graph.infos.iter_mut().for_each(|info| info.root = to(info.root));
        graph.composites.iter_mut().for_each(|pass| pass.rename(to));
        let before = gone.iter().filter(|&&at| at < graph.split).count();
        let mut at = 0;
        graph.steps.retain(|_| {
            at += 1;
            !gone.contains(&(at - 1))
        });
        graph.split -= before;
        Ok(gone.len())
    }
}
