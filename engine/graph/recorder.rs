//! Watching what runs: a graph of the primitives that the calling thread dispatches.
//!
//! Depends on `dispatch`, which tells it. Invariant: while it records it keeps every array that it has seen, so that an
//! array is known by its storage's address and layout.

use super::{Composite, Graph, Info, KeyFrom, OnePass, Step, Value, Values};
use crate::dispatch::{self, Prim, Storage};
use crate::ops::index::IndexOp;
use crate::ops::random::RandomOp;
use crate::ops::view::ViewOp;
use crate::random::{self, Key};
use crate::shape::Layout;
use crate::{autograd, DType, Device, Error, Result, Tensor};
use lucid_ir::Meta;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::OnceLock;

/// How many children of a drawn key are looked through for the one that a random op draws from.
const CHILDREN: u32 = 64;

thread_local! {
    static ACTIVE: Cell<bool> = const { Cell::new(false) };
    static STATE: RefCell<Option<State>> = const { RefCell::new(None) };
}

/// An array that the computation reads, and did not make.
#[derive(Clone)]
pub struct Capture {
    /// Its number in the graph.
    pub value: Value,
    /// It, cut off from the tape.
    pub tensor: Tensor,
}

/// The values that show parts of one storage.
type Shown = Vec<(Layout, DType, Value)>;

#[derive(Default)]
struct State {
    graph: Graph,
    known: HashMap<(usize, Device), Shown>,
    roots: HashMap<(usize, Device), Value>,
    /// Keeps storages, so that no other one gets an address that is known.
    kept: Vec<Storage>,
    captures: Vec<Capture>,
    keys: Vec<Key>,
    hosts: u32,
    broken: Vec<String>,
    strict: bool,
    backward: bool,
}

/// What hears of each break while a thread records.
static BREAK_HOOK: OnceLock<fn(&str)> = OnceLock::new();

/// Has `hook` called, on the thread that records, whenever something happens that no graph can hold. The first one stays.
pub fn set_break_hook(hook: fn(&str)) {
    let _ = BREAK_HOOK.set(hook);
}

/// Does the calling thread record?
#[inline(always)]
pub(crate) fn recording() -> bool {
    ACTIVE.get()
}

/// Does the calling thread record a graph?
pub fn is_recording() -> bool {
    STATE.with_borrow(Option::is_some)
}

/// Records what the calling thread runs until it is dropped or finished.
pub struct Recorder(());

/// What a [`Recorder`] has seen.
pub struct Recording {
    /// The graph; its inputs are those that were declared, then the captures.
    pub graph: Graph,
    /// What the computation read beside the declared inputs, in the order of the graph's inputs.
    pub captures: Vec<Capture>,
    /// Why the graph is not all of the computation; empty where it is.
    pub broken: Vec<String>,
    /// Did a backward pass run?
    pub backward: bool,
}

impl Recorder {
    /// Begins to record, with these tensors as the first inputs. `strict` makes what no graph can hold an error.
    ///
    /// # Errors
    /// [`Error::Runtime`] where the thread records already, or an input is not an array of a device.
    pub fn begin(inputs: &[Tensor], strict: bool) -> Result<Recorder> {
        if is_recording() {
            return Err(Error::runtime("graph", "the thread records a graph already"));
        }
        let mut state = State { strict, ..State::default() };
        for t in inputs {
            if !t.storage().is_array() {
                return Err(Error::runtime("graph", "inputs of a graph are dense tensors, outside of vmap"));
            }
            let value = state.add(t.storage());
            state.graph.inputs.push(value);
        }
        STATE.set(Some(state));
        resume();
        Ok(Recorder(()))
    }

    /// The value that an array is, if the graph has it.
    pub fn value_of(&self, t: &Tensor) -> Option<Value> {
        STATE.with_borrow(|state| state.as_ref()?.find(t.storage()))
    }

    /// Declares another input, which nothing has made.
    ///
    /// # Errors
    /// [`Error::Runtime`] where it is not an array of a device.
    pub fn input(&self, t: &Tensor) -> Result<Value> {
        if !t.storage().is_array() {
            return Err(Error::runtime("graph", "inputs of a graph are dense tensors, outside of vmap"));
        }
        Ok(STATE.with_borrow_mut(|state| {
            let Some(state) = state.as_mut() else { return 0 };
            if let Some(value) = state.find(t.storage()) {
                return value;
            }
            let value = state.add(t.storage());
            state.graph.inputs.push(value);
            state.captures.push(Capture { value, tensor: Tensor::from_storage(t.storage().clone()) });
            value
        }))
    }

    /// Says that the steps from here on are the second part.
    pub fn split(&self) {
        STATE.with_borrow_mut(|state| state.iter_mut().for_each(|s| s.graph.split = s.graph.steps.len()));
    }

    /// Why the graph is not all of the computation, so far.
    pub fn broken(&self) -> Vec<String> {
        with(State::draws);
        STATE.with_borrow(|state| state.as_ref().map_or_else(Vec::new, |s| s.broken.clone()))
    }

    /// Has a backward pass run?
    pub fn backward_ran(&self) -> bool {
        STATE.with_borrow(|state| state.as_ref().is_some_and(|s| s.backward))
    }

    /// Ends, with the graph.
    ///
    /// # Errors
    /// [`Error::Runtime`] where the thread does not record any more.
    pub fn finish(self) -> Result<Recording> {
        with(State::draws);
        let state = take().ok_or_else(|| Error::runtime("graph", "the thread does not record a graph"))?;
        let State { mut graph, captures, broken, backward, .. } = state;
        if graph.split == 0 {
            graph.split = graph.steps.len();
        }
        Ok(Recording { graph, captures, broken, backward })
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        drop(take());
    }
}

fn take() -> Option<State> {
    ACTIVE.set(false);
    drop(random::take_draws());
    STATE.take()
}

fn resume() {
    random::log_draws();
    ACTIVE.set(true);
}

/// While it lives, what runs is no part of the graph.
pub struct Paused(bool);

impl Paused {
    /// Stops recording, with a step of the host where `host`; gives the number of that.
    pub fn new(host: bool) -> (Paused, u32) {
        let was = ACTIVE.get();
        let mut call = 0;
        if was {
            with(|s| {
                s.draws();
                if host {
                    call = s.hosts;
                    s.hosts += 1;
                    s.graph.steps.push(Step::Host { call });
                }
            });
            drop(random::take_draws());
            ACTIVE.set(false);
        }
        (Paused(was), call)
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        if self.0 && is_recording() {
            resume();
        }
    }
}

fn with(f: impl FnOnce(&mut State)) {
    STATE.with_borrow_mut(|state| {
        if let Some(state) = state.as_mut() {
            f(state);
        }
    });
}

impl State {
    fn place(storage: &Storage) -> (usize, Device) {
        (storage.storage_key(), storage.device())
    }

    fn find(&self, storage: &Storage) -> Option<Value> {
        let same =
            |(layout, dtype, _): &&(Layout, DType, Value)| layout == storage.layout() && *dtype == storage.dtype();
        self.known.get(&State::place(storage))?.iter().rev().find(same).map(|&(_, _, value)| value)
    }

    /// A new value for an array.
    fn add(&mut self, storage: &Storage) -> Value {
        let value = self.graph.infos.len() as Value;
        let place = State::place(storage);
        let root = *self.roots.entry(place).or_insert(value);
        let Layout { shape, strides, offset } = storage.layout().clone();
        let (dtype, device) = (storage.dtype(), storage.device());
        self.graph.infos.push(Info { shape, strides, offset, dtype, device, root });
        self.known.entry(place).or_default().push((storage.layout().clone(), dtype, value));
        self.kept.push(storage.clone());
        value
    }

    /// The value of an array that is read: a capture where nothing here made it.
    fn of(&mut self, storage: &Storage) -> Value {
        if let Some(value) = self.find(storage) {
            return value;
        }
        let value = self.add(storage);
        self.graph.inputs.push(value);
        self.captures.push(Capture { value, tensor: Tensor::from_storage(storage.clone()) });
        value
    }

    /// Notes what was drawn of generators since the last look.
    fn draws(&mut self) {
        if random::take_set() {
            self.broken.push("manual_seed: the state of a random generator is set".to_string());
        }
        for (generator, key) in random::recent_draws() {
            let draw = self.graph.draws.len() as u32;
            let own = (!generator.is_same(random::default_generator())).then_some(generator);
            self.graph.draws.push(own);
            self.keys.push(key);
            self.graph.steps.push(Step::Draw { draw });
        }
    }

    /// Where the key of a random primitive comes from.
    fn key_of(&mut self, prim: &Prim) -> Option<KeyFrom> {
        let key = key_in(prim)?;
        if let Some(draw) = self.keys.iter().rposition(|k| *k == key) {
            return Some(KeyFrom { draw: draw as u32, child: None });
        }
        let found = self.keys.iter().enumerate().rev().find_map(|(draw, k)| {
            let child = (0..CHILDREN).find(|&i| k.child(i) == key)?;
            Some(KeyFrom { draw: draw as u32, child: Some(child) })
        });
        if found.is_none() {
            self.broken.push(format!("{} draws from a key of unknown origin", prim.name()));
        }
        found
    }
}

/// The key that a primitive draws from.
fn key_in(prim: &Prim) -> Option<Key> {
    match prim {
        Prim::Random(RandomOp::Uniform { key } | RandomOp::Normal { key } | RandomOp::Integers { key, .. }) => {
            Some(*key)
        }
        _ => None,
    }
}

/// The same primitive with another key.
pub(super) fn with_key(prim: &Prim, key: Key) -> Prim {
    match prim {
        Prim::Random(RandomOp::Uniform { .. }) => Prim::Random(RandomOp::Uniform { key }),
        Prim::Random(RandomOp::Normal { .. }) => Prim::Random(RandomOp::Normal { key }),
        Prim::Random(RandomOp::Integers { low, high, .. }) => {
            Prim::Random(RandomOp::Integers { key, low: *low, high: *high })
        }
        other => other.clone(),
    }
}

/// A primitive made `made` of these tensors.
pub(crate) fn note_op(prim: &Prim, inputs: &[&Tensor], made: &Storage, meta: &Meta) {
    with(|s| {
        s.draws();
        let inputs: Values = inputs.iter().map(|t| s.of(t.storage())).collect();
        let key = s.key_of(prim);
        let out = s.add(made);
        s.graph.steps.push(Step::Op { prim: prim.clone(), inputs, out, meta: meta.clone(), key });
    });
}

/// A primitive made these of those tensors.
pub(crate) fn note_multi_op(prim: &Prim, inputs: &[&Tensor], made: &[Storage], metas: &[Meta]) {
    with(|s| {
        s.draws();
        let inputs: Values = inputs.iter().map(|t| s.of(t.storage())).collect();
        let outs = made.iter().map(|made| s.add(made)).collect();
        s.graph.steps.push(Step::MultiOp { prim: prim.clone(), inputs, outs, metas: metas.into() });
    });
}

/// A view showed `x` as `made`.
pub(crate) fn note_view(op: &ViewOp, x: &Tensor, made: &Storage) {
    with(|s| {
        let of = s.of(x.storage());
        let out = s.add(made);
        s.graph.steps.push(Step::View { op: op.clone(), of, out, layout: made.layout().clone() });
    });
}

/// `src` was written over `dst`.
pub(crate) fn note_assign(dst: &Tensor, src: &Tensor) {
    with(|s| {
        s.draws();
        let (dst, src) = (s.of(dst.storage()), s.of(src.storage()));
        s.graph.steps.push(Step::Assign { dst, src });
    });
}

/// Some elements of `dst` were written.
pub(crate) fn note_index_into(op: &IndexOp, dst: &Tensor, rest: &[&Tensor]) {
    with(|s| {
        s.draws();
        let dst = s.of(dst.storage());
        let rest = rest.iter().map(|t| s.of(t.storage())).collect();
        s.graph.steps.push(Step::IndexInto { op: op.clone(), dst, rest });
    });
}

/// A tensor was made of numbers that the program has.
///
/// # Errors
/// Where there is no room for the copy that stays as it is, whatever the program writes to its own.
pub(crate) fn note_constant(made: &Storage) -> Result<()> {
    let t = Tensor::from_storage(made.clone());
    let copy = match t.numel() {
        0 => t.clone(),
        _ => Tensor::from_storage(dispatch::copied_storage(&t)?),
    };
    with(|s| {
        let value = s.add(made);
        s.graph.constants.push((value, copy));
    });
    Ok(())
}

/// Tensors were evaluated.
pub(crate) fn note_eval(tensors: &[&Tensor], wait: bool) {
    with(|s| {
        let known = |t: &&Tensor| t.storage().is_array().then(|| s.find(t.storage())).flatten();
        let values: Values = tensors.iter().filter_map(known).collect();
        s.graph.steps.push(Step::Eval { values, wait });
    });
}

/// The values that tensors are so far; nothing where one is none of the graph's.
pub(crate) fn recorded_values<const N: usize>(tensors: [&Tensor; N]) -> Option<[Value; N]> {
    STATE.with_borrow(|state| {
        let state = state.as_ref()?;
        let mut values = [0; N];
        for (value, t) in values.iter_mut().zip(tensors) {
            *value = t.storage().is_array().then(|| state.find(t.storage())).flatten()?;
        }
        Some(values)
    })
}

/// Something that a device can do in one pass has been recorded, as the steps that made `outputs`.
pub(crate) fn note_composite(kind: OnePass, inputs: &[Value], outputs: &[Option<&Tensor>]) {
    let value = |t: &Option<&Tensor>| t.and_then(|t| recorded_values([t])).map(|[value]| value);
    let composite = Composite { kind, inputs: inputs.into(), outputs: outputs.iter().map(value).collect() };
    if composite.outputs.iter().flatten().all(|v| !inputs.contains(v)) {
        with(|s| s.graph.composites.push(composite));
    }
}

/// A backward pass begins.
pub(crate) fn note_backward() {
    with(|s| s.backward = true);
}

/// Something happens that no graph can hold.
///
/// # Errors
/// [`Error::Runtime`] where the recorder is strict.
pub(crate) fn note_break(op: &'static str, why: &str) -> Result<()> {
    if !recording() {
        return Ok(());
    }
    let op = autograd::op_name().unwrap_or(op);
    let reason = format!("{op}: {why}");
    if let Some(hook) = BREAK_HOOK.get() {
        hook(&reason);
    }
    let mut strict = false;
    with(|s| {
        strict = s.strict;
        s.broken.push(reason);
    });
    match strict {
        true => Err(Error::runtime(op, format!("{why}, which cannot be part of a graph (fullgraph=True)"))),
        false => Ok(()),
    }
}
