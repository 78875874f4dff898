//! Rewriting graphs: small passes that compose as tuples.
//!
//! No pass touches a step that is an effect (a write in place, a draw, a call of the host, a collective), nor what reads or shows a
//! storage that is written. Each leaves a graph that [`Graph::verify`] accepts; [`Passes::run_all`] checks that.

use super::{fuse, CopyElision, Graph, Step, Value};
use crate::dispatch::{self, Prim};
use crate::{Device, Result, Tensor};
use std::collections::{HashMap, HashSet};

/// A rewriting of graphs.
pub trait Pass {
    /// Its name, for reports.
    fn name(&self) -> &'static str;

    /// Rewrites, and gives how many steps changed or went.
    ///
    /// # Errors
    /// What steps that it runs report.
    fn run(&self, graph: &mut Graph) -> Result<usize>;
}

/// Passes, one after the other.
pub trait Passes {
    /// Runs them, each with a check behind it; gives their names with how many steps each changed.
    ///
    /// # Errors
    /// What a pass reports, and [`crate::Error::Runtime`] where one leaves a graph that does not fit together.
    fn run_all(&self, graph: &mut Graph) -> Result<Vec<(&'static str, usize)>>;
}

macro_rules! compose {
    ($($P:ident $i:tt),*) => {
        impl<$($P: Pass),*> Passes for ($($P,)*) {
            fn run_all(&self, graph: &mut Graph) -> Result<Vec<(&'static str, usize)>> {
                Ok(vec![$({
                    let changed = (self.$i.name(), self.$i.run(graph)?);
                    graph.verify()?;
                    changed
                }),*])
            }
        }
    };
}
compose!(A 0);
compose!(A 0, B 1);
compose!(A 0, B 1, C 2);
compose!(A 0, B 1, C 2, D 3);
compose!(A 0, B 1, C 2, D 3, E 4);

impl Passes for () {
    fn run_all(&self, _: &mut Graph) -> Result<Vec<(&'static str, usize)>> {
        Ok(Vec::new())
    }
}

/// What `lucid.compile` runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Standard;

impl Passes for Standard {
    fn run_all(&self, graph: &mut Graph) -> Result<Vec<(&'static str, usize)>> {
        (DeadCode, Cse, ConstantFold, CopyElision, DeadCode).run_all(graph)
    }
}

/// Removes steps whose results nobody reads.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeadCode;

impl Pass for DeadCode {
    fn name(&self) -> &'static str {
        "dead code"
    }

    fn run(&self, graph: &mut Graph) -> Result<usize> {
        // What is written into a storage that somebody sees, or that is an input's, is needed.
        let given: HashSet<Value> = graph.inputs.iter().map(|&v| graph.root(v)).collect();
        let mut live: HashSet<Value> = graph.outputs.iter().copied().collect();
        let mut roots: HashSet<Value> = graph.escaping();
        #[allow(clippy::disallowed_methods)] // As many as steps that are there.
        let mut kept = vec![false; graph.steps.len()];
        // A write is needed where its storage is read later, which may be found out after the write was passed.
        loop {
            let before = (live.len(), roots.len(), kept.iter().filter(|k| **k).count());
            for (at, step) in graph.steps.iter().enumerate().rev() {
                let needed = match step {
                    // The other processes wait for it.
                    Step::Op { prim: Prim::Communication(_), .. } => true,
                    Step::Op { .. } | Step::MultiOp { .. } | Step::View { .. } => {
                        step.outs().iter().any(|out| live.contains(out))
                    }
                    Step::Assign { dst, .. } | Step::IndexInto { dst, .. } => {
                        let root = graph.root(*dst);
                        roots.contains(&root) || given.contains(&root)
                    }
                    Step::Draw { .. } | Step::Host { .. } | Step::Eval { .. } => true,
                };
                if needed {
                    kept[at] = true;
                    // Evaluating keeps nothing alive that is not needed otherwise.
                    if !matches!(step, Step::Eval { .. }) {
                        for used in step.uses() {
                            live.insert(used);
                            roots.insert(graph.root(used));
                        }
                    }
                }
            }
            if before == (live.len(), roots.len(), kept.iter().filter(|k| **k).count()) {
                break;
            }
        }
        let split = graph.split - kept[..graph.split].iter().filter(|k| !**k).count();
        let before = graph.steps.len();
        let mut at = 0;
        graph.steps.retain(|_| {
            at += 1;
            kept[at - 1]
        });
        let made: HashSet<Value> = graph.steps.iter().flat_map(Step::outs).chain(&graph.inputs).copied().collect();
        graph.constants.retain(|(v, _)| live.contains(v));
        let there: HashSet<Value> = made.into_iter().chain(graph.constants.iter().map(|(v, _)| *v)).collect();
        for step in &mut graph.steps {
            if let Step::Eval { values, .. } = step {
                values.retain(|v| there.contains(v));
            }
        }
        graph.split = split;
        Ok(before - graph.steps.len())
    }
}

/// Computes once what does not depend on the inputs, where it is small.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConstantFold;

/// Elements up to which a constant is kept rather than made anew.
const LARGEST_CONSTANT: usize = 4096;

impl Pass for ConstantFold {
    fn name(&self) -> &'static str {
        "constant folding"
    }

    fn run(&self, graph: &mut Graph) -> Result<usize> {
        let (written, escaping) = (graph.written(), graph.escaping());
        let fixed = |graph: &Graph, v: Value| {
            let root = graph.root(v);
            !written.contains(&root) && !escaping.contains(&root)
        };
        let mut known: HashMap<Value, Tensor> =
            graph.constants.iter().filter(|(v, _)| fixed(graph, *v)).map(|(v, t)| (*v, t.clone())).collect();
        let mut folded = Vec::new();
        for (at, step) in graph.steps.iter().enumerate() {
            let Some(out) = step.out().filter(|&out| fixed(graph, out)) else { continue };
            let info = graph.info(out)?;
            if info.numel() > LARGEST_CONSTANT || info.device == Device::Meta {
                continue;
            }
            let made = match step {
                Step::Op { prim, inputs, meta, key: None, .. }
                    if !matches!(prim, Prim::Random(_) | Prim::Communication(_)) =>
                {
                    let Some(held) = inputs.iter().map(|v| known.get(v)).collect::<Option<Vec<_>>>() else { continue };
                    let device = held.first().map_or(info.device, |t| t.device());
                    // What fails now fails where it is run, too, in its place.
                    dispatch::run(prim, &held, meta, device, false).ok()
                }
                Step::View { op, of, layout, .. } => {
                    let Some(of) = known.get(of) else { continue };
                    dispatch::run_view(op, of, layout.clone()).ok()
                }
                Step::Op { .. }
                | Step::MultiOp { .. }
                | Step::Assign { .. }
                | Step::IndexInto { .. }
                | Step::Draw { .. }
                | Step::Eval { .. }
                | Step::Host { .. } => None,
            };
            if let Some(storage) = made {
                let t = Tensor::from_storage(storage);
                known.insert(out, t.clone());
                folded.push((at, out, t));
            }
        }
        let gone: HashSet<usize> = folded.iter().map(|(at, ..)| *at).collect();
        let before = gone.iter().filter(|&&at| at < graph.split).count();
        let mut at = 0;
        graph.steps.retain(|_| {
            at += 1;
            !gone.contains(&(at - 1))
        });
        graph.split -= before;
        let count = folded.len();
        graph.constants.extend(folded.into_iter().map(|(_, v, t)| (v, t)));
        Ok(count)
    }
}

/// Computes once what is computed several times from the same values.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cse;

impl Pass for Cse {
    fn name(&self) -> &'static str {
        "common subexpressions"
    }

    fn run(&self, graph: &mut Graph) -> Result<usize> {
        let (written, escaping) = (graph.written(), graph.escaping());
        let mut same: HashMap<Value, Value> = HashMap::new();
        let mut seen: HashMap<String, Value> = HashMap::new();
        let mut gone = HashSet::new();
        let host = graph.steps.iter().any(|step| matches!(step, Step::Host { .. }));
        let given: HashSet<Value> = graph.inputs.iter().map(|&v| graph.root(v)).collect();
        for at in 0..graph.steps.len() {
            let to = |v: Value| same.get(&v).copied().unwrap_or(v);
            graph.steps[at].rename(to);
            let step = &graph.steps[at];
            let Some(out) = step.out() else { continue };
            // The host may write to inputs between the steps.
            let steady = |v: &Value| {
                let root = graph.root(*v);
                !(written.contains(&root) || (host && given.contains(&root)))
            };
            if !steady(&out) || escaping.contains(&graph.root(out)) || !step.uses().iter().all(steady) {
                continue;
            }
            let text = match step {
                Step::Op { prim, inputs, meta, key: None, .. }
                    if !matches!(prim, Prim::Random(_) | Prim::Communication(_)) =>
                {
                    let device = graph.info(out)?.device;
                    format!("{prim:?} {inputs:?} {meta:?} {device:?}")
                }
                Step::View { op, of, layout, .. } => format!("{op:?} {of} {layout:?}"),
                Step::Op { .. }
                | Step::MultiOp { .. }
                | Step::Assign { .. }
                | Step::IndexInto { .. }
                | Step::Draw { .. }
                | Step::Eval { .. }
                | Step::Host { .. } => continue,
            };
            match seen.get(&text) {
                Some(&first) if !escaping.contains(&graph.root(first)) => {
                    same.insert(out, first);
                    gone.insert(at);
                    // A view of what is gone shows the storage of what stays.
                    let (old, new) = (graph.root(out), graph.root(first));
                    if old != new {
                        graph.infos.iter_mut().filter(|info| info.root == old).for_each(|info| info.root = new);
                    }
                }
                Some(_) => {}
                None => drop(seen.insert(text, out)),
            }
        }
        graph.composites.iter_mut().for_each(|pass| pass.rename(|v| same.get(&v).copied().unwrap_or(v)));
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

/// The element-wise steps that a program runs as one kernel, as places in the graph's steps.
pub fn elementwise_groups(graph: &Graph) -> Vec<Vec<usize>> {
    fuse::Plan::fused(graph).groups()
}
