//! A call's steps as one node: what an op that is made of others shows of itself, where PyTorch's is one step.
//!
//! The steps of a call are those that it numbers alike, seen from the node of its result on; results know that they are, by what
//! they were told. Recording knows nothing of it.

use super::node_names::Given;
use super::saved_attributes::{ArgSource, SavedArg, SavedAttribute};
use crate::autograd::{unbroadcast::unbroadcast, Edge, Grads, GraphNode, InputMeta, Kind, Node};
use crate::ops::OpRow;
use crate::{sparse, Result, Tensor};
use std::collections::hash_map::Entry;
use std::collections::HashMap;
use std::sync::Arc;

/// The steps of one call that lead to one of its results.
pub(crate) struct Region {
    /// The result's, then the others.
    pub(crate) nodes: Vec<Arc<Node>>,
    places: HashMap<*const Node, usize>,
}

impl Node {
    /// Is it a step of the call that `of` was recorded in, and no result of that?
    pub(crate) fn is_within(&self, of: &Node) -> bool {
        let (Some(own), Some(called)) = (&self.called, &of.called) else { return false };
        own.since == called.since && self.told.get().is_none()
    }
}

impl Region {
    /// Those that `node` stands for.
    pub(crate) fn of(node: &Arc<Node>) -> Region {
        let mut nodes = vec![Arc::clone(node)];
        let mut places = HashMap::from([(Arc::as_ptr(node), 0)]);
        let mut at = 0;
        while let Some(step) = nodes.get(at).map(Arc::clone) {
            at += 1;
            for edge in step.edges.iter().flatten().filter(|edge| edge.node.is_within(node)) {
                if let Entry::Vacant(place) = places.entry(Arc::as_ptr(&edge.node)) {
                    place.insert(nodes.len());
                    nodes.push(Arc::clone(&edge.node));
                }
            }
        }
        Region { nodes, places }
    }

    /// The edges that leave it, each once: those of the result's step in their order, what is behind a step in its place.
    fn leaving(&self) -> Vec<Edge> {
        let mut found: Vec<Edge> = Vec::new();
        #[allow(clippy::disallowed_methods)] // As many as nodes that are there.
        let mut seen = vec![false; self.nodes.len()];
        let mut stack: Vec<Edge> =
            self.nodes.first().into_iter().map(|node| Edge { node: Arc::clone(node), nr: 0 }).collect();
        while let Some(edge) = stack.pop() {
            match self.position(&edge.node) {
                Some(i) if !std::mem::replace(&mut seen[i], true) => {
                    stack.extend(edge.node.edges.iter().rev().flatten().cloned());
                }
                None if !found.iter().any(|known| same(known, &edge)) => found.push(edge),
                Some(_) | None => {}
            }
        }
        found
    }

    /// The steps that `node` stands for, where hooks wait for what they make together: a walk runs these one after the other then.
    /// None where others lead into them, too, as `pending` says, which counts what has yet to come to a step.
    pub(crate) fn watched(
        node: &Arc<Node>,
        pending: impl Fn(&Arc<Node>) -> Option<usize>,
        targets: Option<&[Edge]>,
    ) -> Option<Region> {
        if !node.extra.has_after() {
            return None;
        }
        let region = Region::of(node);
        #[allow(clippy::disallowed_methods)] // As many as nodes that are there.
        let mut within = vec![0; region.nodes.len()];
        for edge in region.nodes.iter().flat_map(|step| step.edges.iter().flatten()) {
            if let Some(at) = region.position(&edge.node) {
                within[at] += 1;
            }
        }
        let asked = |step: &Arc<Node>| targets.into_iter().flatten().any(|e| Arc::ptr_eq(&e.node, step));
        let mut steps = region.nodes.iter().zip(within).skip(1);
        let alone = steps.all(|(step, within)| pending(step) == Some(within) && !asked(step));
        (region.nodes.len() > 1 && alone).then_some(region)
    }

    /// The edges that leave it, as often as there are.
    pub(crate) fn left(&self) -> Vec<Edge> {
        let edges = self.nodes.iter().flat_map(|step| step.edges.iter().flatten());
        edges.filter(|edge| self.position(&edge.node).is_none()).cloned().collect()
    }

    fn position(&self, node: &Arc<Node>) -> Option<usize> {
        self.places.get(&Arc::as_ptr(node)).copied()
    }

    /// What `run` makes of each step's gradients, from those of the result to those of the call's tensors: in the order in which
    /// the edges to these are shown, each with its edge.
    pub(crate) fn gradients(
        &self,
        grads: &Grads,
        mut run: impl FnMut(&Arc<Node>, Grads) -> Result<Grads>,
    ) -> Result<Vec<(Option<Edge>, Option<Tensor>)>> {
        let mut made: Vec<(Option<Edge>, Option<Tensor>)> = self.shown().into_iter().map(|edge| (edge, None)).collect();
        #[allow(clippy::disallowed_methods)] // As many as nodes that are there.
        let mut waiting = vec![Grads::new(); self.nodes.len()];
        if let Some(first) = waiting.first_mut() {
            *first = grads.clone();
        }
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        order.sort_by_key(|&i| std::cmp::Reverse(self.nodes[i].seq));
        for i in order {
            let (step, grads) = (&self.nodes[i], std::mem::take(&mut waiting[i]));
            if grads.iter().all(Option::is_none) {
                continue;
            }
            for ((g, edge), meta) in run(step, grads)?.into_iter().zip(&step.edges).zip(&step.metas) {
                let (Some(g), Some(edge)) = (g, edge) else { continue };
                let g = unbroadcast(g, meta, Some(edge))?;
                let place = match self.position(&edge.node) {
                    Some(at) => {
                        let slots = &mut waiting[at];
                        let nr = edge.nr as usize;
                        slots.resize(slots.len().max(nr + 1), None);
                        &mut slots[nr]
                    }
                    None => match made.iter_mut().find(|(to, _)| to.as_ref().is_some_and(|to| same(to, edge))) {
                        Some((_, slot)) => slot,
                        None => continue,
                    },
                };
                *place = Some(match place.take() {
                    Some(old) => sparse::accumulated(&old, &g)?,
                    None => g,
                });
            }
        }
        Ok(made)
    }

    /// Where the gradients of the inputs go: see [`GraphNode::next`].
    fn shown(&self) -> Vec<Option<Edge>> {
        let Some(node) = self.nodes.first().map(|node| GraphNode(Arc::clone(node))) else { return Vec::new() };
        let mut next = match (&node.0.kind, node.whole()) {
            (Kind::Op(_), whole) if self.nodes.len() > 1 || whole.is_none() => self.next(),
            (Kind::SplitInfo(_), _) if self.nodes.len() > 1 => self.next(),
            (Kind::MultiOp(_), _) => self.next(),
            (Kind::Op(_), _) => node.next_of_one(),
            _ => node.0.edges.to_vec(),
        };
        match (node.0.op(), next.len()) {
            // PyTorch adds the product to the bias, and solves with the factors.
            ("linear", 3) | ("lu_solve", 2) => next.rotate_right(1),
            _ => {}
        }
        let called = node.0.called.map(|called| Given { op: called.name, given: called.given });
        match called {
            // PyTorch makes tensors of the numbers that these are given, and convolutions have a place for the bias.
            Some(called) if next.len() == 1 && is_of_tensors(called.op) && called.number("other") == 1 => {
                next.push(None)
            }
            Some(called) if next.len() == 2 && called.op.starts_with("conv") => next.push(None),
            _ => {}
        }
        next
    }

    /// Where the gradients of the call's tensors go, in PyTorch's order: the call's. `None` for those that need none.
    fn next(&self) -> Vec<Option<Edge>> {
        let Some(node) = self.nodes.first() else { return Vec::new() };
        let told = node.told.get().into_iter().flat_map(|told| told.iter());
        let tensors = told.filter_map(|(name, known)| match known {
            _ if is_fixed(node.op(), name) => None,
            SavedAttribute::Tensor(_, ArgSource::NotDifferentiable) if (node.op(), *name) == ("ldexp", "other") => {
                Some(ArgSource::NoGrad)
            }
            SavedAttribute::Tensor(_, came) => Some(*came),
            SavedAttribute::Arg(SavedArg::Number(_)) if node.op() == "where" => Some(ArgSource::NoGrad),
            // A bias that was not given.
            SavedAttribute::Arg(SavedArg::Nothing) if is_left_out(node.op(), name) => Some(ArgSource::NoGrad),
            SavedAttribute::Arg(_) | SavedAttribute::Result(_) => None,
        });
        let mut rest: Vec<(Edge, bool)> = self.leaving().into_iter().map(|edge| (edge, false)).collect();
        let mut found = Vec::new();
        for came in tensors {
            match came {
                ArgSource::NotDifferentiable => {}
                ArgSource::NoGrad => found.push(None),
                ArgSource::Node(address, nr) => {
                    let at = rest.iter_mut().find(|(e, _)| Arc::as_ptr(&e.node).addr() == address && e.nr == nr);
                    let Some((edge, named)) = at else { continue };
                    *named = true;
                    found.push(Some(edge.clone()));
                }
            }
        }
        found.extend(rest.into_iter().filter(|(_, named)| !named).map(|(edge, _)| Some(edge)));
        found
    }
}

impl GraphNode {
    /// Where the gradients of the inputs go: a node and which of its results, or `None` for an input without gradient. The
    /// steps of an op that is made of several are one node.
    ///
    /// Inputs of an op that never have one, such as indices and masks, are not among them, nor numbers.
    pub fn next(&self) -> Vec<Option<(GraphNode, u32)>> {
        let shown = Region::of(&self.0).shown();
        shown.into_iter().map(|edge| edge.map(|e| (GraphNode(Arc::clone(&e.node)), e.nr + e.node.place()))).collect()
    }

    /// The same of a node that is all of its op.
    fn next_of_one(&self) -> Vec<Option<Edge>> {
        let given = self.0.called.map(|called| Given { op: called.name, given: called.given });
        let is_number = |i: usize| {
            let Some(given) = &given else { return false };
            match self.input_name(i) {
                _ if i == 0 => given.led(),
                Some(name) => given.number(name) == 1 && given.op != "where",
                None => false,
            }
        };
        let shows = |(i, (edge, meta)): (usize, (&Option<Edge>, &InputMeta))| {
            let (name, kind) = self.input_param(i).unwrap_or_default();
            // In a number's place there may be a tensor of any dtype.
            let counts = meta.dtype.is_differentiable() || kind.contains("Operand");
            edge.is_some() || counts && !is_number(i) && !is_fixed(self.0.op(), name)
        };
        let inputs = self.0.edges.iter().zip(&self.0.metas).enumerate();
        let mut next: Vec<_> = inputs.filter(|input| shows(*input)).map(|(_, (edge, _))| edge.clone()).collect();
        let row = self.whole().map(|prim| prim.schema());
        let params = row.into_iter().flat_map(|row| row.params).filter(|p| is_left_out(self.0.op(), p.name));
        next.extend(params.filter(|p| given.as_ref().is_some_and(|given| given.has(p.name) == 0)).map(|_| None));
        next
    }
}

impl Node {
    /// Which of its call's results it is of.
    pub(crate) fn place(&self) -> u32 {
        // A result of several has its number on the tape.
        if matches!(self.kind, Kind::MultiOp(_)) {
            return 0;
        }
        // PyTorch's singular values are those of a whole decomposition.
        if matches!(self.op(), "linalg_svdvals") && self.told.get().is_some() {
            return 1;
        }
        let told = self.told.get().into_iter().flat_map(|told| told.iter());
        let mut places = told.filter_map(|(_, known)| match known {
            SavedAttribute::Result(at) => Some(*at),
            SavedAttribute::Arg(_) | SavedAttribute::Tensor(..) => None,
        });
        let place = places.next().unwrap_or(0);
        // The permutation has no gradient, and is none of the results of PyTorch's step.
        if matches!(self.op(), "linalg_lu" | "lu_unpack") {
            place.saturating_sub(1)
        } else {
            place
        }
    }
}

/// Does PyTorch make a tensor of a number that it is given?
fn is_of_tensors(op: &str) -> bool {
    matches!(op, "add" | "sub" | "mul" | "div")
}

/// Has the step a place for that tensor also where it was not given?
fn is_left_out(op: &str, name: &str) -> bool {
    matches!((op, name), ("layer_norm" | "group_norm" | "batch_norm", "weight" | "bias"))
        || op.starts_with("conv") && name == "bias"
}

/// Tensors that PyTorch has no gradient of, whatever their dtype: its steps do not lead to them.
fn is_fixed(op: &str, name: &str) -> bool {
    matches!(
        (op, name),
        ("binary_cross_entropy" | "nll_loss" | "cross_entropy", "weight")
            | ("binary_cross_entropy_with_logits", "weight" | "pos_weight")
            | ("batch_norm", "running_mean" | "running_var")
    )
}

fn same(a: &Edge, b: &Edge) -> bool {
    Arc::ptr_eq(&a.node, &b.node) && a.nr == b.nr
}
