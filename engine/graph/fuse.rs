//! Fusing: which element-wise steps become one kernel, and in which order everything runs then.
//!
//! Depends on `dispatch` for what a device can fuse. Steps are grouped by how many steps that cannot be fused are on the
//! longest way to them, and by the layout of their results: no way from a group leads through another step back into it, so
//! that a group can run as a whole. Invariant: steps stay on their side of every step of the host, evaluation and of the
//! split, and what a storage that is written shows is read before and after the same writes as in the graph.

use super::composite::Pass;
use super::{Composite, Graph, Info, Step, Value, Values};
use crate::dispatch::{self, Prim};
use crate::shape::{Layout, Shape, Strides};
use crate::{DType, Device};
use lucid_ir::fused::{is_narrow, ElementOp, FusedKernel, Instruction, Operand};
use lucid_ir::ops::transfer::TransferOp;
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};

/// The most inputs and outputs of a kernel together, and the most instructions: Metal has 31 buffers.
const MOST_ARRAYS: usize = 24;
const MOST_INSTRUCTIONS: usize = 96;

/// What a program runs as one.
#[derive(Debug)]
pub(super) enum Item {
    /// A step by itself.
    Step(usize),
    /// Element-wise steps as one kernel.
    Fused(Box<Fused>),
    /// Casts that a device makes at once.
    Casts(Box<Casts>),
    /// Steps that a device does in one pass.
    Pass(Box<Pass>),
}

/// Casts of tensors that have nothing to do with one another, before all else that needs them or after all else.
#[derive(Debug)]
pub(super) struct Casts {
    pub device: Device,
    /// Of what dtype the results are.
    pub dtype: DType,
    pub inputs: Values,
    pub outputs: Values,
    /// The steps that it stands for, in the order of inputs and outputs.
    pub steps: Vec<usize>,
}

/// Element-wise steps as one kernel.
#[derive(Debug)]
pub(super) struct Fused {
    pub kernel: FusedKernel,
    pub device: Device,
    /// What the kernel reads.
    pub inputs: Values,
    /// What it makes.
    pub outputs: Values,
    /// What only it sees.
    pub inner: Values,
    /// The steps that it stands for, in order.
    pub steps: Vec<usize>,
}

/// The order in which a program runs.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub items: Vec<Item>,
    /// Where the items of the steps up to each of these begin, in order: (steps before, items before).
    pub bounds: Vec<(usize, usize)>,
}

impl Plan {
    /// Each step by itself.
    pub fn plain(graph: &Graph) -> Plan {
        let count = graph.steps.len();
        Plan { items: (0..count).map(Item::Step).collect(), bounds: (0..=count).map(|at| (at, at)).collect() }
    }

    /// Fused steps, where there are some.
    pub fn fused(graph: &Graph) -> Plan {
        let mut plan = Plan::default();
        let uses = Uses::of(graph);
        let barrier = |at: usize| matches!(graph.steps[at], Step::Host { .. } | Step::Eval { .. });
        let mut at = 0;
        while at < graph.steps.len() {
            plan.bounds.push((at, plan.items.len()));
            let mut end = at;
            while end < graph.steps.len() && !barrier(end) && (end == at || end != graph.split) {
                end += 1;
            }
            if end == at {
                plan.items.push(Item::Step(at));
                at += 1;
            } else {
                Segment::new(graph, &uses, at, end).schedule(&mut plan.items);
                at = end;
            }
        }
        plan.bounds.push((graph.steps.len(), plan.items.len()));
        plan
    }

    /// The steps of each fused kernel.
    pub fn groups(&self) -> Vec<Vec<usize>> {
        let groups = self.items.iter().filter_map(|item| match item {
            Item::Fused(fused) => Some(fused.steps.clone()),
            Item::Casts(casts) => Some(casts.steps.clone()),
            Item::Step(_) | Item::Pass(_) => None,
        });
        groups.collect()
    }

    /// How many items run for the first `steps` steps: those of the last bound at or before them.
    pub fn position(&self, steps: usize) -> usize {
        let after = self.bounds.partition_point(|(before, _)| *before <= steps);
        after.checked_sub(1).map_or(0, |i| self.bounds[i].1)
    }
}

/// Who reads values, in all of the graph.
struct Uses {
    readers: HashMap<Value, SmallVec<[usize; 4]>>,
    outputs: HashSet<Value>,
    written: HashSet<Value>,
}

impl Uses {
    fn of(graph: &Graph) -> Uses {
        let mut readers: HashMap<Value, SmallVec<[usize; 4]>> = HashMap::new();
        for (at, step) in graph.steps.iter().enumerate() {
            for value in step.uses() {
                readers.entry(value).or_default().push(at);
            }
        }
        Uses { readers, outputs: graph.outputs.iter().copied().collect(), written: graph.written() }
    }
}

/// What casts have in common that can be one: are they the first of a segment, and not the last; from and to which dtype; where.
type CastKind = (bool, DType, DType, Device);
/// A cast: its step in the segment, what it reads and what it makes.
type CastStep = (usize, Value, Value);

/// What kernels have in common that can be one: layout and device.
type Kind = (Shape, Strides, Device);

/// Steps between two that nothing crosses.
struct Segment<'g> {
    graph: &'g Graph,
    uses: &'g Uses,
    start: usize,
    /// Per step, those of the segment that it comes after.
    before: Vec<SmallVec<[usize; 4]>>,
    /// Per step, its op and kind, where it can be fused.
    ops: Vec<Option<(ElementOp, usize)>>,
    kinds: Vec<Kind>,
    /// What runs as one pass, and the steps that stand for it, in order.
    passes: Vec<(Composite, Vec<usize>)>,
}

impl<'g> Segment<'g> {
    fn new(graph: &'g Graph, uses: &'g Uses, start: usize, end: usize) -> Segment<'g> {
        let (before, ops, kinds, passes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut segment = Segment { graph, uses, start, before, ops, kinds, passes };
        let mut numbers: HashMap<Kind, usize> = HashMap::new();
        let mut made: HashMap<Value, usize> = HashMap::new();
        let mut writes: HashMap<Value, usize> = HashMap::new();
        let mut reads: HashMap<Value, Vec<usize>> = HashMap::new();
        let (mut draw, mut collective) = (None, None);
        for (at, step) in graph.steps[start..end].iter().enumerate() {
            let mut before: SmallVec<[usize; 4]> = SmallVec::new();
            let target = match step {
                Step::Assign { dst, .. } | Step::IndexInto { dst, .. } => Some(graph.root(*dst)),
                Step::Op { .. }
                | Step::MultiOp { .. }
                | Step::View { .. }
                | Step::Draw { .. }
                | Step::Eval { .. }
                | Step::Host { .. } => None,
            };
            for value in step.uses() {
                before.extend(made.get(&value).copied());
                let root = graph.root(value);
                if uses.written.contains(&root) {
                    before.extend(writes.get(&root).copied());
                    if target != Some(root) {
                        reads.entry(root).or_default().push(at);
                    }
                }
            }
            if let Some(root) = target {
                before.extend(reads.remove(&root).unwrap_or_default().into_iter().filter(|&r| r != at));
                writes.insert(root, at);
            }
            match step {
                Step::Draw { .. } => before.extend(draw.replace(at)),
                // In the same order on every process.
                Step::Op { prim: Prim::Communication(_), .. } => before.extend(collective.replace(at)),
                Step::Op { key: Some(_), .. } => before.extend(draw),
                Step::Op { .. }
                | Step::MultiOp { .. }
                | Step::View { .. }
                | Step::Assign { .. }
                | Step::IndexInto { .. }
                | Step::Eval { .. }
                | Step::Host { .. } => {}
            }
            for &out in step.outs() {
                made.insert(out, at);
            }
            before.sort_unstable();
            before.dedup();
            segment.before.push(before);
            let op = element_op(graph, uses, step).map(|(op, kind)| {
                let next = segment.kinds.len();
                let number = *numbers.entry(kind.clone()).or_insert(next);
                if number == next {
                    segment.kinds.push(kind);
                }
                (op, number)
            });
            segment.ops.push(op);
        }
        segment.find_passes(&made);
        segment
    }

    /// Takes steps together that run as one pass: none of them is fused with others, and all wait for what one waits for.
    fn find_passes(&mut self, made: &HashMap<Value, usize>) {
        let mut taken: HashSet<usize> = HashSet::new();
        for composite in &self.graph.composites {
            // What another one makes already need not be made again.
            let mut pass = composite.clone();
            for output in &mut pass.outputs {
                *output = output.filter(|v| made.get(v).is_some_and(|at| !taken.contains(at)));
            }
            let Some(steps) = pass.steps(self.graph, &self.uses.readers, made, self.start) else { continue };
            let written = |v: &Value| self.uses.written.contains(&self.graph.root(*v));
            let touched = pass.inputs.iter().chain(pass.outputs.iter().flatten()).any(written);
            if steps.len() < 2 || touched || steps.iter().any(|at| taken.contains(at)) {
                continue;
            }
            let mut before: SmallVec<[usize; 4]> = pass.inputs.iter().filter_map(|v| made.get(v).copied()).collect();
            before.extend(steps.iter().flat_map(|&at| self.before[at].iter().copied()));
            before.retain(|b| !steps.contains(b));
            before.sort_unstable();
            before.dedup();
            for &at in &steps {
                self.ops[at] = None;
                self.before[at] = before.clone();
                taken.insert(at);
            }
            self.passes.push((pass, steps));
        }
    }

    /// Groups of steps that can be one kernel, each of more than one, in order.
    fn groups(&self) -> Vec<Vec<usize>> {
        let count = self.ops.len();
        let mut depth: Vec<usize> = vec_of(count, 0);
        let kind = |at: usize| self.ops[at].as_ref().map(|(_, kind)| *kind);
        // The longest ways; the steps of a pass may wait for some behind them.
        for _ in 0..=count {
            let mut longer = false;
            for at in 0..count {
                let own = kind(at);
                let over = |&b: &usize| depth[b] + usize::from(own.is_some() && kind(b) != own);
                let most = self.before[at].iter().map(over).max().unwrap_or(0);
                longer |= most > depth[at];
                depth[at] = depth[at].max(most);
            }
            if !longer {
                break;
            }
        }
        // Of one depth and kind, those that are connected: by what one makes for another, or by what both read.
        let mut parent: Vec<usize> = (0..count).collect();
        let mut readers: HashMap<(usize, usize, Value), usize> = HashMap::new();
        for at in 0..count {
            let Some(own) = kind(at) else { continue };
            for &b in &self.before[at] {
                if kind(b) == Some(own) && depth[b] == depth[at] {
                    join(&mut parent, at, b);
                }
            }
            for value in self.graph.steps[self.start + at].uses() {
                // Numbers are read by steps that have nothing else to do with one another.
                if self.graph.infos.get(value as usize).is_some_and(|info| info.numel() > 1) {
                    let first = *readers.entry((depth[at], own, value)).or_insert(at);
                    join(&mut parent, at, first);
                }
            }
        }
        let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for at in (0..count).filter(|&at| self.ops[at].is_some()) {
            groups.entry(root(&mut parent, at)).or_default().push(at);
        }
        groups.into_values().flat_map(|group| self.pieces(group)).filter(|group| group.len() > 1).collect()
    }

    /// Casts that are not in `taken` and can be made at once: those that wait for nothing of the segment, and those that nothing
    /// of it waits for.
    fn casts(&self, taken: &HashSet<usize>) -> Vec<Casts> {
        let count = self.ops.len();
        let mut waited: HashSet<usize> = HashSet::new();
        self.before.iter().for_each(|before| waited.extend(before.iter().copied()));
        let mut found: Vec<(CastKind, Vec<CastStep>)> = Vec::new();
        for at in (0..count).filter(|at| !taken.contains(at)) {
            let first = self.before[at].is_empty();
            if !first && waited.contains(&at) {
                continue;
            }
            let Step::Op { prim: Prim::Transfer(TransferOp::Cast { .. }), inputs, out, key: None, .. } =
                &self.graph.steps[self.start + at]
            else {
                continue;
            };
            let &[input] = inputs.as_slice() else { continue };
            let (Some(x), Some(y)) = (self.graph.infos.get(input as usize), self.graph.infos.get(*out as usize)) else {
                continue;
            };
            let float = |dtype: DType| dtype == DType::F32 || is_narrow(dtype);
            let dense = |info: &Info| {
                let layout = Layout { shape: info.shape.clone(), strides: info.strides.clone(), offset: info.offset };
                layout.offset == 0 && layout.is_contiguous() && !layout.shape.is_empty()
            };
            let still = |info: &Info| !self.uses.written.contains(&info.root);
            if [x, y].iter().all(|i| float(i.dtype) && dense(i) && still(i) && i.numel() > 0 && i.device == y.device) {
                let kind = (first, x.dtype, y.dtype, y.device);
                match found.iter_mut().find(|(other, _)| *other == kind) {
                    Some((_, members)) => members.push((at, input, *out)),
                    None => found.push((kind, Vec::from([(at, input, *out)]))),
                }
            }
        }
        let mut made = Vec::new();
        for ((_, _, dtype, device), members) in found {
            let most = dispatch::most_casts(device);
            for part in members.chunks(most.max(1)).filter(|part| part.len() > 1) {
                let inputs = part.iter().map(|(_, input, _)| *input).collect();
                let outputs = part.iter().map(|(_, _, out)| *out).collect();
                let steps = part.iter().map(|(at, ..)| self.start + at).collect();
                made.push(Casts { device, dtype, inputs, outputs, steps });
            }
        }
        made
    }

    /// A group in pieces that a kernel has room for.
    fn pieces(&self, group: Vec<usize>) -> Vec<Vec<usize>> {
        let mut pieces: Vec<Vec<usize>> = Vec::new();
        for at in group {
            match pieces.last_mut() {
                Some(piece) if piece.len() < MOST_INSTRUCTIONS && self.arrays(piece, at) <= MOST_ARRAYS => {
                    piece.push(at);
                }
                _ => pieces.push(Vec::from([at])),
            }
        }
        pieces
    }

    /// The inputs and outputs of a kernel of these steps and one more.
    fn arrays(&self, piece: &[usize], more: usize) -> usize {
        let steps: Vec<usize> = piece.iter().copied().chain([more]).collect();
        let (inputs, outputs, _) = self.ends(&steps);
        inputs.len() + outputs.len()
    }

    /// What steps read of others, what they make for others, and what they make for themselves.
    fn ends(&self, group: &[usize]) -> (Values, Values, Values) {
        let within: HashSet<usize> = group.iter().map(|at| self.start + at).collect();
        let (mut inputs, mut outputs, mut inner) = (Values::new(), Values::new(), Values::new());
        let mut made: HashSet<Value> = HashSet::new();
        for &at in group {
            let step = &self.graph.steps[self.start + at];
            for value in step.uses() {
                if !made.contains(&value) && !inputs.contains(&value) {
                    inputs.push(value);
                }
            }
            made.extend(step.out());
        }
        for out in group.iter().filter_map(|at| self.graph.steps[self.start + at].out()) {
            let readers = self.uses.readers.get(&out);
            let seen = readers.is_some_and(|readers| readers.iter().any(|r| !within.contains(r)));
            match seen || self.uses.outputs.contains(&out) || readers.is_none() {
                true => outputs.push(out),
                false => inner.push(out),
            }
        }
        (inputs, outputs, inner)
    }

    /// The kernel of a group.
    fn fuse(&self, group: &[usize]) -> Option<Fused> {
        let (inputs, outputs, inner) = self.ends(group);
        let mut instructions: Vec<Instruction> = Vec::new();
        let mut made: HashMap<Value, u16> = HashMap::new();
        for &at in group {
            let (op, _) = self.ops[at].as_ref()?;
            let Step::Op { inputs: read, out, meta, .. } = &self.graph.steps[self.start + at] else { return None };
            let operand = |value: &Value| match made.get(value) {
                Some(&i) => Some(Operand::Made(i)),
                None => inputs.iter().position(|v| v == value).map(|i| Operand::Input(i as u16)),
            };
            let args = read.iter().map(operand).collect::<Option<SmallVec<[Operand; 3]>>>()?;
            made.insert(*out, instructions.len() as u16);
            instructions.push(Instruction { op: op.clone(), args, dtype: meta.dtype });
        }
        let (shape, strides, device) = &self.kinds[self.ops[*group.first()?].as_ref()?.1];
        let layout = Layout { shape: shape.clone(), strides: strides.clone(), offset: 0 };
        let dtypes = inputs.iter().map(|&v| self.graph.infos.get(v as usize).map(|info| info.dtype));
        let dtypes = dtypes.collect::<Option<Vec<DType>>>()?;
        let given = outputs.iter().map(|v| made.get(v).copied()).collect::<Option<Vec<u16>>>()?;
        let kernel = FusedKernel::new(&layout, dtypes, instructions, given);
        let steps = group.iter().map(|at| self.start + at).collect();
        Some(Fused { kernel, device: *device, inputs, outputs, inner, steps })
    }

    fn pass(&self, composite: &Composite, steps: &[usize]) -> Pass {
        let steps: Vec<usize> = steps.iter().map(|at| self.start + at).collect();
        Pass { composite: composite.clone(), steps }
    }

    /// Appends the segment's items: each after those that it depends on, else in the order of its last step.
    fn schedule(&self, items: &mut Vec<Item>) {
        let count = self.ops.len();
        let mut cluster: Vec<usize> = (0..count).collect();
        let mut members: HashMap<usize, Vec<usize>> = HashMap::new();
        let mut taken: HashSet<usize> = self.passes.iter().flat_map(|(_, steps)| steps.iter().copied()).collect();
        for group in self.groups() {
            let Some(&last) = group.last() else { continue };
            group.iter().for_each(|&at| cluster[at] = last);
            taken.extend(&group);
            members.insert(last, group);
        }
        let mut together: HashMap<usize, Casts> = HashMap::new();
        for casts in self.casts(&taken) {
            let Some(&last) = casts.steps.last() else { continue };
            casts.steps.iter().for_each(|&at| cluster[at - self.start] = last - self.start);
            together.insert(last - self.start, casts);
        }
        let mut passes: HashMap<usize, (&Composite, &[usize])> = HashMap::new();
        for (composite, steps) in &self.passes {
            let Some(&last) = steps.last() else { continue };
            steps.iter().for_each(|&at| cluster[at] = last);
            passes.insert(last, (composite, steps));
        }
        let mut waits: Vec<usize> = vec_of(count, 0);
        let mut after: Vec<SmallVec<[usize; 4]>> = vec_of(count, SmallVec::new());
        for at in 0..count {
            for &b in &self.before[at] {
                let (from, to) = (cluster[b], cluster[at]);
                if from != to {
                    after[from].push(to);
                    waits[to] += 1;
                }
            }
        }
        let mut ready: BinaryHeap<Reverse<usize>> = BinaryHeap::new();
        let heads = (0..count).filter(|&at| cluster[at] == at);
        let clusters = heads.clone().count();
        ready.extend(heads.filter(|&at| waits[at] == 0).map(Reverse));
        let mut order: Vec<usize> = Vec::new();
        while let Some(Reverse(at)) = ready.pop() {
            order.push(at);
            for &next in &after[at] {
                waits[next] -= 1;
                if waits[next] == 0 {
                    ready.push(Reverse(next));
                }
            }
        }
        debug_assert_eq!(order.len(), clusters, "groups of steps that wait for one another");
        if order.len() != clusters {
            items.extend((0..count).map(|at| Item::Step(self.start + at)));
            return;
        }
        for at in order {
            if let Some((composite, steps)) = passes.get(&at) {
                items.push(Item::Pass(Box::new(self.pass(composite, steps))));
                continue;
            }
            if let Some(casts) = together.remove(&at) {
                items.push(Item::Casts(Box::new(casts)));
                continue;
            }
            match members.get(&at).map(|group| (group, self.fuse(group))) {
                Some((_, Some(fused))) => items.push(Item::Fused(Box::new(fused))),
                Some((group, None)) => items.extend(group.iter().map(|at| Item::Step(self.start + at))),
                None => items.push(Item::Step(self.start + at)),
            }
        }
    }
}

#[allow(clippy::disallowed_methods)] // As many as steps that are there.
fn vec_of<T: Clone>(count: usize, value: T) -> Vec<T> {
    vec![value; count]
}

fn root(parent: &mut [usize], mut at: usize) -> usize {
    while parent[at] != at {
        parent[at] = parent[parent[at]];
        at = parent[at];
    }
    at
}

fn join(parent: &mut [usize], a: usize, b: usize) {
    let (a, b) = (root(parent, a), root(parent, b));
    parent[a.max(b)] = a.min(b);
}

/// The op and the kind of a step that can be fused.
fn element_op(graph: &Graph, uses: &Uses, step: &Step) -> Option<(ElementOp, Kind)> {
    let Step::Op { prim, inputs, out, meta, key: None } = step else { return None };
    let op = ElementOp::of(prim)?;
    let info = graph.infos.get(*out as usize)?;
    let Info { shape, strides, offset, dtype, device, root } = info;
    let layout = Layout { shape: shape.clone(), strides: strides.clone(), offset: *offset };
    let dense = *offset == 0 && (layout.is_contiguous() || layout.permuted().is_some());
    if !dense || info.numel() == 0 || uses.written.contains(root) {
        return None;
    }
    let read = inputs.iter().map(|&v| graph.infos.get(v as usize)).collect::<Option<SmallVec<[&Info; 4]>>>()?;
    if read.iter().any(|x| x.device != *device || x.numel() == 0 || x.shape.len() > meta.shape.len()) {
        return None;
    }
    let dtypes: SmallVec<[DType; 3]> = read.iter().map(|x| x.dtype).collect();
    dispatch::fuses(*device, &op, &dtypes, *dtype).then_some((op, (layout.shape, layout.strides, *device)))
}
