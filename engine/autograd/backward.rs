//! Walking the tape backwards.
//!
//! One pass counts how often each node is reached, a second runs nodes whose gradients are complete. Gradients are summed
//! to the input's shape and cast to its dtype here, so rules need not know about broadcasting.

use super::accumulate::accumulate;
use super::anomaly::examined;
use super::backward_pass::{call_back, key, Build, ByNode, Pass};
use super::copy_slices::write_gradient;
use super::custom::tied;
use super::node::{Ctx, Edge, Grads, Kind, Node, Saved};
use super::record::pieces_gradient;
use super::unbroadcast::{unbroadcast, unbroadcast_all};
use super::{grad_dtype, grad_enabled, modes, with_grad};
use crate::batching;
use crate::compat::composite_node::Region;
use crate::ops::OpRow;
use crate::{sparse, Error, Result, Scalar, Tensor};
use smallvec::SmallVec;
use std::collections::hash_map::Entry;
use std::collections::{BinaryHeap, HashSet};
use std::sync::Arc;

/// What is left after a backward pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct BackwardOptions {
    /// Keep the saved tensors, for another backward pass.
    pub graph: bool,
    /// Record the backward pass, for gradients of gradients. Keeps the graph too.
    pub create_graph: bool,
}

/// Adds the gradients of `tensors` to their leaves, or to `inputs` alone where given. Each of `grads` weighs its tensor;
/// `None` stands for 1 and is for tensors of one element only.
///
/// # Errors
/// [`Error::Runtime`] where a tensor has no history or a weight is missing, [`Error::ShapeMismatch`] where a weight has
/// another shape, and what the gradients' ops report.
pub fn backward(
    tensors: &[Tensor],
    grads: &[Option<Tensor>],
    keep: BackwardOptions,
    inputs: Option<&[Tensor]>,
) -> Result<()> {
    if tensors.iter().chain(grads.iter().flatten()).any(Tensor::is_batched) {
        let why = "backward() called inside of vmap. This is not supported, please use lucid.func.grad or \
                   lucid.func.vjp, or lucid.autograd.grad, instead.";
        return Err(Error::runtime("backward", why));
    }
    crate::graph::note_backward();
    let roots = roots("backward", tensors, grads, keep)?;
    if keep.create_graph {
        crate::warnings::warn_once!(
            "backward() with create_graph=True keeps a tensor and the graph of its gradient alive in a cycle. Use \
             autograd.grad, or set .grad to None afterwards."
        );
    }
    match inputs {
        None => walk(roots, keep, None).map(drop),
        Some(inputs) => {
            let targets = targets("backward", inputs)?;
            // What is no leaf keeps its gradient as by a call of `retain_grad`, of which this is one in PyTorch too.
            inputs.iter().filter(|t| !t.is_leaf()).try_for_each(Tensor::retain_grad)?;
            let found = walk(roots, keep, Some(InputMask { edges: &targets, since: 0, ends: None }))?;
            for ((input, edge), g) in inputs.iter().zip(&targets).zip(found) {
                if let Some(g) = g.filter(|_| input.is_leaf()) {
                    accumulate(input, g, keep.create_graph)?;
                    edge.node.with_extra(|e| e.accumulated(input))?;
                }
            }
            Ok(())
        }
    }
}

/// The gradients of `outputs` with respect to `inputs`; `None` for an input that none depends on.
///
/// # Errors
/// As [`backward`].
///
/// # Examples
/// ```
/// use lucid::{tensor, testing::assert_close};
/// use lucid::autograd::{grad, BackwardOptions};
/// let x = tensor(3.0)?.requires_grad_(true)?;
/// let keep = BackwardOptions { create_graph: true, ..BackwardOptions::default() };
/// let first = grad(&[x.pow(3)?], &[x.clone()], &[None], keep)?.remove(0).unwrap();
/// let second = grad(&[first.clone()], &[x], &[None], BackwardOptions::default())?.remove(0).unwrap();
/// assert_close(first, 27.0);
/// assert_close(second, 18.0);
/// # lucid::Result::<()>::Ok(())
/// ```
pub fn grad(
    outputs: &[Tensor],
    inputs: &[Tensor],
    grads: &[Option<Tensor>],
    keep: BackwardOptions,
) -> Result<Vec<Option<Tensor>>> {
    grad_since(0, outputs, inputs, grads, keep)
}

/// [`grad`] where nothing that this thread recorded before node number `since` leads to an input: it is not visited.
pub(crate) fn grad_since(
    since: u64,
    outputs: &[Tensor],
    inputs: &[Tensor],
    grads: &[Option<Tensor>],
    keep: BackwardOptions,
) -> Result<Vec<Option<Tensor>>> {
    let targets = targets("grad", inputs)?;
    let wanted = InputMask { edges: &targets, since, ends: None };
    gradients(inputs, roots("grad", outputs, grads, keep)?, keep, wanted)
}

/// [`grad`] by inputs none of which leads to another, as those that transforms make: what is behind them is not visited.
///
/// # Errors
/// As [`grad`].
pub fn grad_apart(
    outputs: &[Tensor],
    inputs: &[Tensor],
    grads: &[Option<Tensor>],
    keep: BackwardOptions,
) -> Result<Vec<Option<Tensor>>> {
    let targets = targets("grad", inputs)?;
    let ends = targets.iter().filter(|e| !e.node.edges.is_empty()).map(|e| key(&e.node)).collect();
    let wanted = InputMask { edges: &targets, since: 0, ends: Some(&ends) };
    gradients(inputs, roots("grad", outputs, grads, keep)?, keep, wanted)
}

fn gradients(
    inputs: &[Tensor],
    roots: Vec<(Edge, Tensor)>,
    keep: BackwardOptions,
    wanted: InputMask<'_>,
) -> Result<Vec<Option<Tensor>>> {
    let _for = super::transforms::Differentiated::by(inputs);
    let found = walk(roots, keep, Some(wanted))?;
    let of_input = |(g, t): (Option<Tensor>, &Tensor)| g.map(|g| batching::rewrapped(g, t)).transpose();
    with_grad(keep.create_graph, || found.into_iter().zip(inputs).map(of_input).collect())
}

fn targets(op: &'static str, inputs: &[Tensor]) -> Result<Vec<Edge>> {
    let why = "One of the differentiated Tensors does not require grad";
    if inputs.iter().any(Tensor::is_sparse) {
        return Err(Error::not_implemented(op, "gradients go to the values of a sparse tensor, not to itself"));
    }
    inputs.iter().try_for_each(|t| super::check_followed(op, t))?;
    let edge = |t: &Tensor| match t.edge() {
        // A view made without recording requires a gradient as its base does, and nothing leads to it.
        None if t.requires_grad() => {
            let node = Node::new(Kind::Accumulate(t.clone()), SmallVec::new(), SmallVec::new(), Saved::default());
            Ok(Edge { node, nr: 0 })
        }
        edge => edge.ok_or_else(|| Error::runtime(op, why)),
    };
    inputs.iter().map(edge).collect()
}

fn roots(
    op: &'static str,
    tensors: &[Tensor],
    grads: &[Option<Tensor>],
    keep: BackwardOptions,
) -> Result<Vec<(Edge, Tensor)>> {
    if tensors.len() != grads.len() {
        return Err(Error::runtime(op, format!("got {} tensors and {} gradients", tensors.len(), grads.len())));
    }
    if tensors.iter().any(Tensor::is_sparse) {
        return Err(Error::not_implemented(op, "a sparse tensor is no root; call to_dense() or sum() on it first"));
    }
    tensors.iter().try_for_each(|t| super::check_followed(op, t))?;
    let root = |(t, g): (&Tensor, &Option<Tensor>)| {
        let edge = t.edge().ok_or_else(|| {
            Error::runtime(op, "element 0 of tensors does not require grad and does not have a grad_fn")
        })?;
        let g = match g {
            Some(g) if g.shape() != t.shape() => {
                let why = "Mismatch in shape: the gradient must have the shape of the tensor";
                return Err(Error::shape(op, why, &[t.shape(), g.shape()]));
            }
            Some(g) if g.device() != t.device() => {
                return Err(Error::device(
                    op,
                    "the gradient must be on the tensor's device",
                    &[t.device(), g.device()],
                ));
            }
            Some(g) if g.dtype().is_complex() != t.dtype().is_complex() => {
                let why = "For complex Tensors, both grad_output and output are required to have the same dtype";
                return Err(Error::dtype(op, why, &[g.dtype(), t.dtype()]));
            }
            Some(g) => g.clone(),
            None if t.numel() == 1 && t.dtype().is_complex() => {
                let why = format!("grad can be implicitly created only for real scalar outputs but got {}", t.dtype());
                return Err(Error::runtime(op, why));
            }
            None if t.numel() == 1 => Tensor::full_of(t.shape(), Scalar::ONE, t.dtype(), t.device())?,
            None => {
                let why = format!("grad can be implicitly created only for scalar outputs (shape: {:?})", t.shape());
                return Err(Error::runtime(op, why));
            }
        };
        let g = with_grad(keep.create_graph, || batching::bare_like(grad_dtype::cast(&edge, g, t.dtype())?, t))?;
        Ok((edge, g))
    };
    tensors.iter().zip(grads).map(root).collect()
}

/// The gradients that a backward pass is for, the number of the first node that can lead there, and the nodes behind which none of them
/// is.
#[derive(Clone, Copy)]
struct InputMask<'a> {
    edges: &'a [Edge],
    since: u64,
    ends: Option<&'a HashSet<*const Node, Build>>,
}

/// Where a backward pass goes on from a node.
fn edges_of<'n>(node: &'n Arc<Node>, wanted: Option<InputMask<'_>>) -> &'n [Option<Edge>] {
    match wanted.and_then(|w| w.ends) {
        Some(ends) if ends.contains(&key(node)) => &[],
        _ => &node.edges,
    }
}

/// How often each node will receive a gradient, and which of them lead to a target.
struct Plan {
    reached: HashSet<*const Node, Build>,
    pending: ByNode<usize>,
    useful: Option<HashSet<*const Node, Build>>,
}

fn plan(roots: &[(Edge, Tensor)], targets: Option<InputMask<'_>>) -> Plan {
    let since = targets.map_or(0, |t| t.since);
    let mut pending: ByNode<usize> = ByNode::default();
    let mut seen: HashSet<*const Node, Build> = HashSet::default();
    let mut stack: Vec<Arc<Node>> = Vec::new();
    for (edge, _) in roots {
        if seen.insert(key(&edge.node)) {
            stack.push(Arc::clone(&edge.node));
        }
    }
    while let Some(node) = stack.pop() {
        for edge in edges_of(&node, targets).iter().flatten().filter(|e| e.node.seq >= since) {
            *pending.entry(key(&edge.node)).or_insert(0) += 1;
            if seen.insert(key(&edge.node)) {
                stack.push(Arc::clone(&edge.node));
            }
        }
    }
    let useful = targets.map(|targets| useful(targets, pending.clone(), roots));
    Plan { reached: seen, pending, useful }
}

/// The nodes from which a target can be reached: found in an order where every node comes after all that lead to it.
fn useful(targets: InputMask<'_>, mut pending: ByNode<usize>, roots: &[(Edge, Tensor)]) -> HashSet<*const Node, Build> {
    let mut ready: Vec<Arc<Node>> = roots.iter().map(|(e, _)| Arc::clone(&e.node)).collect();
    ready.retain(|n| !pending.contains_key(&key(n)));
    ready.dedup_by_key(|n| key(n));
    let mut order: Vec<Arc<Node>> = Vec::new();
    while let Some(node) = ready.pop() {
        for edge in edges_of(&node, Some(targets)).iter().flatten() {
            if let Some(n) = pending.get_mut(&key(&edge.node)) {
                *n -= 1;
                if *n == 0 {
                    ready.push(Arc::clone(&edge.node));
                }
            }
        }
        order.push(node);
    }
    let mut useful: HashSet<*const Node, Build> = targets.edges.iter().map(|e| key(&e.node)).collect();
    for node in order.iter().rev() {
        if edges_of(node, Some(targets)).iter().flatten().any(|e| useful.contains(&key(&e.node))) {
            useful.insert(key(node));
        }
    }
    useful
}

fn walk(
    roots: Vec<(Edge, Tensor)>,
    keep: BackwardOptions,
    targets: Option<InputMask<'_>>,
) -> Result<Vec<Option<Tensor>>> {
    // Rules were written for the dtypes of their forward pass.
    crate::autocast::without(|| with_grad(keep.create_graph, || walk_recorded(roots, keep, targets)))
}

fn walk_recorded(
    roots: Vec<(Edge, Tensor)>,
    keep: BackwardOptions,
    wanted: Option<InputMask<'_>>,
) -> Result<Vec<Option<Tensor>>> {
    let Plan { reached, mut pending, useful } = plan(&roots, wanted);
    let reached = match &useful {
        Some(useful) => reached.intersection(useful).copied().collect(),
        None => reached,
    };
    let _pass = Pass::begin(reached, wanted.is_some());
    let targets = wanted.map(|w| w.edges);
    let mut incoming: ByNode<Grads> = ByNode::default();
    let mut ready: BinaryHeap<Ready> = BinaryHeap::new();
    for (edge, g) in roots {
        let first = add(&mut incoming, &edge, g)?;
        if first && !pending.contains_key(&key(&edge.node)) {
            ready.push(Ready(edge.node));
        }
    }
    let mut captured: Vec<Option<Tensor>> = crate::fallible::filled(None, targets.map_or(0, <[Edge]>::len))?;
    while let Some(Ready(node)) = ready.pop() {
        let grads = incoming.remove(&key(&node)).unwrap_or_default();
        let reached = grads.iter().any(Option::is_some);
        // Where the backward pass is for some gradients only, a node makes those that lead to them.
        let edges = edges_of(&node, wanted);
        let leads: Option<SmallVec<[bool; 4]>> = useful
            .as_ref()
            .map(|u| edges.iter().map(|e| e.as_ref().is_some_and(|e| u.contains(&key(&e.node)))).collect());
        let runs = reached && leads.as_ref().is_none_or(|leads| leads.contains(&true));
        let mut capture = |grads: &Grads| {
            for (slot, target) in captured.iter_mut().zip(targets.unwrap_or(&[])) {
                if Arc::ptr_eq(&target.node, &node) {
                    *slot = grads.get(target.nr as usize).cloned().flatten();
                }
            }
        };
        // As in PyTorch, who asks for the gradient of a result and for others behind it gets it as it was before the hooks.
        if runs {
            capture(&grads);
        }
        let grads = if reached { node.with_extra(|e| e.before(node.op(), grads))? } else { grads };
        if !runs {
            capture(&grads);
        }
        // A gradient that has come by another result already would be left behind.
        let untouched =
            |step: &Arc<Node>| pending.get(&key(step)).copied().filter(|_| !incoming.contains_key(&key(step)));
        let region = if runs { Region::watched(&node, untouched, targets) } else { None };
        let mut passed = |edge: &Edge| {
            if let Some(n) = pending.get_mut(&key(&edge.node)) {
                *n -= 1;
                if *n == 0 {
                    ready.push(Ready(Arc::clone(&edge.node)));
                }
            }
        };
        if let Some(region) = region {
            let useful = useful.as_ref();
            let leads = |e: &Edge| useful.is_none_or(|u| u.contains(&key(&e.node)));
            let made = region.gradients(&grads, |step, grads| {
                let leads: SmallVec<[bool; 4]> = step.edges.iter().map(|e| e.as_ref().is_some_and(&leads)).collect();
                match leads.contains(&true) {
                    true => run_step(step, &grads, useful.map(|_| &*leads), keep, |made| made),
                    false => Ok(Grads::new()),
                }
            })?;
            let (edges, made): (Vec<_>, Grads) = made.into_iter().unzip();
            let made = node.extra.after(node.op(), made, &grads)?;
            for (edge, g) in edges.iter().zip(made) {
                if let (Some(edge), Some(g)) = (edge, g) {
                    add(&mut incoming, edge, g)?;
                }
            }
            region.left().iter().for_each(&mut passed);
            continue;
        }
        let out = if runs { run(&node, grads, leads.as_deref(), keep, targets.is_some())? } else { Grads::new() };
        let mut out = out.into_iter();
        for (i, edge) in edges.iter().enumerate() {
            let g = out.next().flatten();
            let Some(edge) = edge else { continue };
            let g = g.filter(|_| leads.as_ref().is_none_or(|leads| leads[i]));
            if let Some(g) = g {
                add(&mut incoming, edge, unbroadcast(g, &node.metas[i], Some(edge))?)?;
            }
            passed(edge);
        }
    }
    call_back()?;
    Ok(captured)
}

/// A node whose gradients are complete; the one recorded last comes first.
struct Ready(Arc<Node>);

impl PartialEq for Ready {
    fn eq(&self, other: &Ready) -> bool {
        self.0.seq == other.0.seq
    }
}
impl Eq for Ready {}
impl PartialOrd for Ready {
    fn partial_cmp(&self, other: &Ready) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Ready {
    fn cmp(&self, other: &Ready) -> std::cmp::Ordering {
        self.0.seq.cmp(&other.0.seq)
    }
}

fn run(
    node: &Arc<Node>,
    grads: Grads,
    wanted: Option<&[bool]>,
    keep: BackwardOptions,
    captures: bool,
) -> Result<Grads> {
    if let Kind::Accumulate(leaf) = &node.kind {
        if !captures {
            node.with_extra(|e| {
                // Given away, unless a hook asks for it afterwards: what nothing else holds is kept as it is.
                let shown = if e.is_empty() { Grads::new() } else { grads.clone() };
                arrive(node, leaf, grads, keep.create_graph)?;
                e.after(node.op(), Grads::new(), &shown).map(drop)
            })?;
        }
        return Ok(Grads::new());
    }
    run_step(node, &grads, wanted, keep, |made| match node.extra.has_after() {
        true => {
            // Hooks see them as the inputs have them.
            node.extra.after(node.op(), unbroadcast_all(node, made?)?, &grads)
        }
        false => made,
    })
}

/// Runs a node that is no leaf's, with what comes after it.
fn run_step(
    node: &Arc<Node>,
    grads: &Grads,
    wanted: Option<&[bool]>,
    keep: BackwardOptions,
    after: impl FnOnce(Result<Grads>) -> Result<Grads>,
) -> Result<Grads> {
    let made = after(gradient(node, grads, wanted));
    let made = if modes::anomaly().0 { examined(node, made) } else { made };
    if !keep.graph && !keep.create_graph && !matches!(node.kind, Kind::Write(..)) {
        node.free();
    }
    made
}

/// Adds what comes to a leaf's node to the leaf's gradient.
fn arrive(node: &Node, leaf: &Tensor, grads: Grads, create_graph: bool) -> Result<()> {
    let heir = leaf.0.auto.heir();
    let leaf = heir.as_ref().unwrap_or(leaf);
    if !leaf.0.auto.requires_grad() {
        // Nobody wants its gradient any more.
        return Ok(());
    }
    for g in grads.into_iter().flatten() {
        accumulate(leaf, g, create_graph)?;
    }
    node.with_extra(|e| e.accumulated(leaf))
}

fn gradient(node: &Arc<Node>, grads: &Grads, wanted: Option<&[bool]>) -> Result<Grads> {
    let _name = modes::OpScope::none();
    let ctx = Ctx::new(node, grads, wanted);
    // A hook, or who calls a node by hand, may have taken every gradient away; only custom functions are run then.
    if grads.iter().all(Option::is_none) && !matches!(node.kind, Kind::Custom(_)) {
        return Ok(node.edges.iter().map(|_| None).collect());
    }
    match &node.kind {
        Kind::Op(prim) => {
            let made = prim.gradient(&ctx)?;
            if !(grad_enabled() && node.piecewise_linear()) {
                return Ok(made);
            }
            Ok(made.into_iter().enumerate().map(|(i, g)| g.map(|g| tied(g, node, i))).collect())
        }
        Kind::MultiOp(op) => op.prim.gradient(&ctx),
        Kind::Custom(custom) => custom.gradient(&ctx),
        Kind::Write(ops, base) => {
            write_gradient(ctx.g(), ops, base.as_deref(), ctx.shape(1), [ctx.needs(0), ctx.needs(1)])
        }
        Kind::SplitInfo(pieces) => pieces_gradient(&ctx, pieces),
        // Handled by the caller: a leaf has no inputs.
        Kind::Accumulate(_) => Ok(Grads::new()),
    }
}

/// Runs one node on gradients given for its results, without its hooks, which belong to a backward pass.
pub(crate) fn alone(node: &Arc<Node>, grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
    let grads: Grads = grads.iter().cloned().collect();
    let region = Region::of(node);
    let out = match &node.kind {
        Kind::Accumulate(leaf) => {
            arrive(node, leaf, grads, false)?;
            Grads::new()
        }
        _ if region.nodes.len() > 1 => {
            let made = region.gradients(&grads, |step, grads| gradient(step, &grads, None))?;
            return Ok(made.into_iter().map(|(_, g)| g).collect());
        }
        _ => gradient(node, &grads, None)?,
    };
    unbroadcast_all(node, out).map(Grads::into_vec)
}

/// Adds a gradient to those that wait for a node. Says whether it is the first one.
fn add(incoming: &mut ByNode<Grads>, edge: &Edge, g: Tensor) -> Result<bool> {
    let slots = match incoming.entry(key(&edge.node)) {
        Entry::Occupied(e) => e.into_mut(),
        Entry::Vacant(e) => e.insert(Grads::new()),
    };
    let first = slots.is_empty();
    let nr = edge.nr as usize;
    if slots.len() <= nr {
        slots.resize(nr + 1, None);
    }
    slots[nr] = Some(match slots[nr].take() {
        Some(old) => sparse::accumulated(&old, &g)?,
        None => g,
    });
    Ok(first)
}
