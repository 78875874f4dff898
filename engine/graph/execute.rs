//! Running a graph on arrays.
//!
//! Depends on `fuse` for the order of the steps and on `dispatch` for each. Invariant: a value is given up with the step that reads it last, so that its memory
//! may become that step's result.

use super::composite::Pass;
use super::fuse::{Casts, Fused, Item, Plan};
use super::recorder::with_key;
use super::{Graph, Step, Value};
use crate::dispatch::{self, Prim};
use crate::random::{self, Key};
use crate::{Device, Error, Result, Tensor};
use smallvec::SmallVec;
use std::cell::Cell;
use std::collections::HashSet;
use std::sync::Arc;

thread_local! {
    static FUSING: Cell<bool> = const { Cell::new(true) };
}

/// Are element-wise steps of the programs that this thread makes fused?
fn is_fusing() -> bool {
    FUSING.try_with(Cell::get).unwrap_or(true)
}

/// Turns fusing on or off for the programs that this thread makes, for comparing fused kernels with the steps that they stand
/// for. Gives what it was.
pub fn set_fusing(on: bool) -> bool {
    FUSING.try_with(|fusing| fusing.replace(on)).unwrap_or(true)
}

/// A graph that has been made ready to run.
pub struct Program {
    graph: Graph,
    plan: Plan,
    /// Per item of the plan, the values that nothing reads after it.
    ends: Vec<SmallVec<[Value; 2]>>,
    /// The storages that are written to or handed out.
    changing: HashSet<Value>,
    /// The inputs that a run begins with.
    early: Vec<Value>,
}

/// One run of a [`Program`], which may stop at steps of the host. A clone goes on from the same place by itself.
#[derive(Clone)]
pub struct Execution {
    program: Arc<Program>,
    values: Vec<Option<Tensor>>,
    keys: Vec<Key>,
    at: usize,
}

impl Program {
    /// Checks a graph, and works out how long each value is needed. The inputs in `late` are not given at first, but by
    /// [`Execution::set`] before they are read.
    ///
    /// # Errors
    /// As [`Graph::verify`].
    pub fn new(graph: Graph, late: &[Value]) -> Result<Arc<Program>> {
        graph.verify()?;
        let plan = if is_fusing() { Plan::fused(&graph) } else { Plan::plain(&graph) };
        #[allow(clippy::disallowed_methods)] // As many as values that are there.
        let mut last: Vec<Option<usize>> = vec![None; graph.infos.len()];
        for (at, item) in plan.items.iter().enumerate() {
            match item {
                Item::Step(step) => {
                    let step = &graph.steps[*step];
                    step.uses()
                        .into_iter()
                        .chain(step.outs().iter().copied())
                        .for_each(|v| last[v as usize] = Some(at));
                }
                Item::Fused(fused) => {
                    let values = fused.inputs.iter().chain(&fused.outputs).chain(&fused.inner);
                    values.for_each(|&v| last[v as usize] = Some(at));
                }
                Item::Casts(casts) => {
                    casts.inputs.iter().chain(&casts.outputs).for_each(|&v| last[v as usize] = Some(at));
                }
                // Its steps may have to run after all.
                Item::Pass(pass) => {
                    let used = pass.steps.iter().flat_map(|&at| graph.steps[at].uses());
                    let made = pass.steps.iter().flat_map(|&at| graph.steps[at].outs()).copied();
                    let values = used.chain(made).chain(pass.composite.inputs.iter().copied());
                    values.for_each(|v| last[v as usize] = Some(at));
                }
            }
        }
        let stays = graph.outputs.iter().chain(graph.constants.iter().map(|(v, _)| v));
        stays.for_each(|&v| last[v as usize] = None);
        #[allow(clippy::disallowed_methods)] // As many as steps that are there.
        let mut ends = vec![SmallVec::new(); plan.items.len()];
        for (value, last) in last.iter().enumerate() {
            if let Some(at) = last {
                ends[*at].push(value as Value);
            }
        }
        let mut changing = graph.written();
        changing.extend(graph.escaping());
        let early = graph.inputs.iter().copied().filter(|v| !late.contains(v)).collect();
        Ok(Arc::new(Program { graph, plan, ends, changing, early }))
    }

    /// The steps that run as one kernel, as groups of their places in the graph.
    pub fn fused(&self) -> Vec<Vec<usize>> {
        self.plan.groups()
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Begins a run on these inputs.
    ///
    /// # Errors
    /// Where there are too many or too few, or one is not of the shape, dtype, strides and device that the graph was made for.
    pub fn begin(self: &Arc<Program>, inputs: &[Tensor]) -> Result<Execution> {
        let graph = &self.graph;
        if inputs.len() != self.early.len() {
            let why = format!("takes {} inputs, got {}", self.early.len(), inputs.len());
            return Err(Error::runtime("graph", why));
        }
        #[allow(clippy::disallowed_methods)] // As many as values that are there.
        let mut values = vec![None; graph.infos.len()];
        for (&value, t) in self.early.iter().zip(inputs) {
            let info = graph.info(value)?;
            let fits = t.shape() == &info.shape[..] && t.dtype() == info.dtype && t.device() == info.device;
            if !fits || t.strides() != &info.strides[..] {
                let why = format!("the graph was made for another input {value}");
                return Err(Error::shape("graph", why, &[&info.shape, t.shape()]));
            }
            values[value as usize] = Some(Tensor::from_storage(t.storage().clone()));
        }
        for (value, t) in &graph.constants {
            // What is written to, or handed out, is a copy.
            let own = self.changing.contains(&graph.infos[*value as usize].root);
            let t = if own { Tensor::from_storage(dispatch::copied_storage(t)?) } else { t.clone() };
            values[*value as usize] = Some(t);
        }
        Ok(Execution { program: Arc::clone(self), values, keys: Vec::new(), at: 0 })
    }
}

impl Execution {
    /// Runs to the next step of the host, whose number it gives, or through the first `end` steps; all where that is `None`.
    /// Fused steps run together, so that `end` counts where it is the graph's `split`, or next to a step of the host.
    ///
    /// # Errors
    /// What the kernels report.
    pub fn run(&mut self, end: Option<usize>) -> Result<Option<u32>> {
        let program = Arc::clone(&self.program);
        let end = end.map_or(program.plan.items.len(), |end| program.plan.position(end));
        while self.at < end {
            let at = self.at;
            self.at += 1;
            match &program.plan.items[at] {
                Item::Step(step) => match &program.graph.steps[*step] {
                    Step::Host { call } => return Ok(Some(*call)),
                    step => self.step(&program, &program.ends[at], step)?,
                },
                Item::Fused(fused) => self.fused(&program, fused)?,
                Item::Casts(casts) => self.casts(&program, casts)?,
                Item::Pass(pass) => self.pass(&program, pass)?,
            }
            for &value in &program.ends[at] {
                self.values[value as usize] = None;
            }
        }
        Ok(None)
    }

    fn pass(&mut self, program: &Program, pass: &Pass) -> Result<()> {
        let made = {
            let inputs = pass.composite.inputs.iter().map(|&v| self.read(v));
            pass.run(&program.graph, &inputs.collect::<Result<SmallVec<[&Tensor; 3]>>>()?)?
        };
        let Some(made) = made else {
            return pass.steps.iter().try_for_each(|&at| self.step(program, &[], &program.graph.steps[at]));
        };
        for (value, t) in made {
            self.values[value as usize] = Some(t);
        }
        Ok(())
    }

    fn fused(&mut self, program: &Program, fused: &Fused) -> Result<()> {
        let made = {
            let inputs = fused.inputs.iter().map(|&v| self.read(v)).collect::<Result<SmallVec<[&Tensor; 8]>>>()?;
            dispatch::run_fused(&fused.kernel, &inputs, fused.device)?
        };
        let Some(made) = made else {
            return fused.steps.iter().try_for_each(|&at| self.step(program, &[], &program.graph.steps[at]));
        };
        for (&value, storage) in fused.outputs.iter().zip(made) {
            self.values[value as usize] = Some(Tensor::from_storage(storage));
        }
        Ok(())
    }

    fn casts(&mut self, program: &Program, casts: &Casts) -> Result<()> {
        let made = {
            let inputs = casts.inputs.iter().map(|&v| self.read(v)).collect::<Result<SmallVec<[&Tensor; 16]>>>()?;
            dispatch::cast_all(&inputs, casts.dtype, casts.device)?
        };
        let Some(made) = made else {
            return casts.steps.iter().try_for_each(|&at| self.step(program, &[], &program.graph.steps[at]));
        };
        for (&value, storage) in casts.outputs.iter().zip(made) {
            self.values[value as usize] = Some(Tensor::from_storage(storage));
        }
        Ok(())
    }

    /// Gives a value from outside, such as an input of the second part.
    pub fn set(&mut self, value: Value, t: &Tensor) {
        if let Some(place) = self.values.get_mut(value as usize) {
            *place = Some(Tensor::from_storage(t.storage().clone()));
        }
    }

    /// A value that has been made and is still there.
    ///
    /// # Errors
    /// [`Error::Runtime`] where it is not.
    pub fn value(&self, value: Value) -> Result<Tensor> {
        let found = self.values.get(value as usize).and_then(Option::as_ref);
        let t = found.ok_or_else(|| Error::runtime("graph", format!("%{value} is not there (any more)")))?;
        Ok(Tensor::from_storage(t.storage().clone()))
    }

    fn read(&self, value: Value) -> Result<&Tensor> {
        let found = self.values.get(value as usize).and_then(Option::as_ref);
        found.ok_or_else(|| Error::runtime("graph", format!("%{value} is not there (any more)")))
    }

    fn step(&mut self, program: &Program, ends: &[Value], step: &Step) -> Result<()> {
        match step {
            Step::Op { prim, inputs, out, meta, key } => {
                let keyed = match key {
                    None => None,
                    Some(from) => {
                        let drawn = self.keys.get(from.draw as usize).copied();
                        let drawn = drawn.ok_or_else(|| Error::runtime("graph", "a key that was not drawn"))?;
                        Some(with_key(prim, from.child.map_or(drawn, |i| drawn.child(i))))
                    }
                };
                let prim = keyed.as_ref().unwrap_or(prim);
                // What is read here for the last time is nobody's but this step's.
                let mut held: SmallVec<[Tensor; 4]> = SmallVec::new();
                for (i, &value) in inputs.iter().enumerate() {
                    let again = inputs[i + 1..].contains(&value) || inputs[..i].contains(&value);
                    let last = !again && ends.contains(&value);
                    let taken = if last { self.values[value as usize].take() } else { None };
                    held.push(match taken {
                        Some(t) => t,
                        None => self.read(value)?.clone(),
                    });
                }
                let over = held.first().is_some_and(|x| may_donate(prim, x, meta, program, *out));
                let refs: SmallVec<[&Tensor; 4]> = held.iter().collect();
                let device = match prim {
                    Prim::Transfer(_) => held.first().map(Tensor::device),
                    _ => None,
                };
                let device = device.unwrap_or(program.graph.info(*out)?.device);
                let made = dispatch::run(prim, &refs, meta, device, over)?;
                self.values[*out as usize] = Some(Tensor::from_storage(made));
            }
            Step::MultiOp { prim, inputs, outs, metas } => {
                let device = program.graph.info(outs.first().copied().unwrap_or_default())?.device;
                let made = {
                    let x = inputs.iter().map(|&v| self.read(v)).collect::<Result<SmallVec<[&Tensor; 4]>>>()?;
                    dispatch::run_multi(prim, &x, metas, device)?
                };
                for (&out, storage) in outs.iter().zip(made) {
                    self.values[out as usize] = Some(Tensor::from_storage(storage));
                }
            }
            Step::View { op, of, out, layout } => {
                let made = dispatch::run_view(op, self.read(*of)?, layout.clone())?;
                self.values[*out as usize] = Some(Tensor::from_storage(made));
            }
            Step::Assign { dst, src } => {
                let (dst, src) = (self.read(*dst)?, self.read(*src)?);
                dispatch::assign("copy_", dst, src, false)?;
            }
            Step::IndexInto { op, dst, rest } => {
                let rest = rest.iter().map(|&v| self.read(v)).collect::<Result<SmallVec<[&Tensor; 4]>>>()?;
                dispatch::index_into(op, self.read(*dst)?, &rest)?;
            }
            Step::Draw { draw } => {
                let key = match program.graph.draws.get(*draw as usize) {
                    Some(Some(generator)) => generator.next_key(),
                    Some(None) | None => random::next_key(),
                };
                self.keys.push(key);
            }
            Step::Eval { values, wait } => {
                let all = values.iter().map(|&v| self.read(v)).collect::<Result<Vec<&Tensor>>>()?;
                dispatch::eval(&all, *wait)?;
            }
            Step::Host { .. } => {}
        }
        Ok(())
    }
}

/// May an element-wise step write over its first operand, since nobody reads that again?
fn may_donate(prim: &Prim, x: &Tensor, meta: &lucid_ir::Meta, program: &Program, out: Value) -> bool {
    matches!(prim, Prim::Unary(_) | Prim::Binary(_))
        && x.device() == Device::Cpu
        && x.is_unshared()
        && x.is_contiguous()
        && x.layout().offset == 0
        && x.storage_numel() == x.numel()
        && x.shape() == &meta.shape[..]
        && x.dtype() == meta.dtype
        && program.graph.info(out).is_ok_and(|info| info.strides[..] == *x.strides())
}
