//! The static graph: the primitives that a computation runs, in order, with the shape, dtype, strides and device of each value.
//!
//! A [`Recorder`] watches `dispatch` of its thread and notes what runs there, below autograd, `vmap` and autocast, so that
//! backward passes and composites are nothing but more primitives. Over meta tensors nothing is computed while it records.
//! [`passes`] rewrite a graph, each small, and [`Graph::verify`] checks the result; an [`Execution`] runs one again on the
//! arrays of its inputs. Values are single assignments; writes in place are steps of their own, in program order, and what
//! they reach is left as it is by every pass.
//!
//! ```
//! use lucid::graph::passes::{Passes, Standard};
//! use lucid::graph::{Program, Recorder};
//! use lucid::{tensor, testing::assert_close, Device};
//! // Of meta tensors, so that nothing is computed yet.
//! let x = tensor([0.0, 0.0])?.to_device(Device::Meta)?;
//! let recorder = Recorder::begin(&[x.clone()], false)?;
//! let y = ((&x * 2.0)? + &(&x * 2.0)?)?;
//! let result = recorder.value_of(&y);
//! let mut graph = recorder.finish()?.graph;
//! graph.outputs = result.into_iter().collect();
//! graph.place(Device::Cpu)?;
//! let before = graph.steps.len();
//! Standard.run_all(&mut graph)?;
//! assert!(graph.steps.len() < before);
//! let program = Program::new(graph, &[])?;
//! let mut run = program.begin(&[tensor([3.0, 4.0])?])?;
//! run.run(None)?;
//! assert_close(&run.value(program.graph().outputs[0])?, [12.0, 16.0]);
//! # lucid::Result::<()>::Ok(())
//! ```

mod code;
mod composite;
mod contract;
mod copy_elision;
pub mod decompose;
mod execute;
#[cfg(feature = "safetensors")]
mod file;
mod fuse;
#[cfg(feature = "safetensors")]
mod json;
pub mod luminal;
pub mod passes;
mod recorder;
mod svg;
mod text;

use crate::dispatch::Prim;
use crate::ops::index::IndexOp;
use crate::ops::view::ViewOp;
use crate::shape::{Layout, Shape, Strides};
use crate::{DType, Device, Error, Generator, Result, Tensor};
use lucid_ir::{Meta, Metas};
use smallvec::SmallVec;
use std::collections::HashSet;

pub use code::Template;
pub use composite::{Composite, OnePass};
pub use copy_elision::CopyElision;
pub use execute::{set_fusing, Execution, Program};
#[cfg(feature = "safetensors")]
pub use file::{load, load_to, Exported, Extent, Spec, Symbol};
pub use recorder::{is_recording, set_break_hook, Capture, Paused, Recorder, Recording};
pub(crate) use recorder::{
    note_assign, note_backward, note_break, note_composite, note_constant, note_eval, note_index_into, note_multi_op,
    note_op, note_view, recorded_values, recording,
};

/// A value's number in its graph.
pub type Value = u32;
/// The values that a step reads.
pub type Values = SmallVec<[Value; 4]>;

/// What is known of a value before anything runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// Sizes.
    pub shape: Shape,
    /// Steps in elements.
    pub strides: Strides,
    /// Index of the first element in its storage.
    pub offset: usize,
    /// Element type.
    pub dtype: DType,
    /// Where it is computed.
    pub device: Device,
    /// The value whose storage it shows: itself, unless it is a view.
    pub root: Value,
}

impl Info {
    /// Number of elements.
    pub fn numel(&self) -> usize {
        crate::shape::numel(&self.shape)
    }
}

/// Where the key of a random step comes from: the number of a draw, and which child of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyFrom {
    /// The draw, counted from 0.
    pub draw: u32,
    /// Which of its children; itself where `None`.
    pub child: Option<u32>,
}

/// One thing that a graph does.
#[derive(Clone, Debug)]
pub enum Step {
    /// A primitive makes a new value.
    Op {
        /// Which, with its arguments.
        prim: Prim,
        /// What it reads.
        inputs: Values,
        /// What it makes.
        out: Value,
        /// Shape and dtype of that.
        meta: Meta,
        /// Where its key comes from, of a random one.
        key: Option<KeyFrom>,
    },
    /// A primitive makes several new values.
    MultiOp {
        /// Which, with its arguments.
        prim: Prim,
        /// What it reads.
        inputs: Values,
        /// What it makes, in order.
        outs: Values,
        /// Shape and dtype of each.
        metas: Metas,
    },
    /// Another look at a value's storage.
    View {
        /// Which.
        op: ViewOp,
        /// Of what.
        of: Value,
        /// What it makes.
        out: Value,
        /// Where that is.
        layout: Layout,
    },
    /// Writes a value over the elements that another shows.
    Assign {
        /// What is written.
        dst: Value,
        /// What it becomes.
        src: Value,
    },
    /// Writes over some elements of a value.
    IndexInto {
        /// Which, and how.
        op: IndexOp,
        /// What is written.
        dst: Value,
        /// Indices and values.
        rest: Values,
    },
    /// A generator moves on by one key.
    Draw {
        /// The number of the draw.
        draw: u32,
    },
    /// Pending work is started, or waited for.
    Eval {
        /// What of.
        values: Values,
        /// Waited for?
        wait: bool,
    },
    /// Who runs the graph does something between the steps, such as an optimizer's step.
    Host {
        /// The number of the call.
        call: u32,
    },
}

impl Step {
    /// The values that it makes.
    pub fn outs(&self) -> &[Value] {
        match self {
            Step::Op { out, .. } | Step::View { out, .. } => std::slice::from_ref(out),
            Step::MultiOp { outs, .. } => outs,
            Step::Assign { .. }
            | Step::IndexInto { .. }
            | Step::Draw { .. }
            | Step::Eval { .. }
            | Step::Host { .. } => &[],
        }
    }

    /// The one value that it makes, where it makes one.
    pub fn out(&self) -> Option<Value> {
        match self {
            Step::Op { out, .. } | Step::View { out, .. } => Some(*out),
            Step::MultiOp { .. }
            | Step::Assign { .. }
            | Step::IndexInto { .. }
            | Step::Draw { .. }
            | Step::Eval { .. }
            | Step::Host { .. } => None,
        }
    }

    /// The values that it reads or writes to.
    pub fn uses(&self) -> Values {
        match self {
            Step::Op { inputs, .. } | Step::MultiOp { inputs, .. } => inputs.clone(),
            Step::View { of, .. } => SmallVec::from_slice(&[*of]),
            Step::Assign { dst, src } => SmallVec::from_slice(&[*dst, *src]),
            Step::IndexInto { dst, rest, .. } => std::iter::once(*dst).chain(rest.iter().copied()).collect(),
            Step::Eval { values, .. } => values.clone(),
            Step::Draw { .. } | Step::Host { .. } => Values::new(),
        }
    }

    /// Gives its uses other numbers.
    fn rename(&mut self, to: impl Fn(Value) -> Value) {
        match self {
            Step::Op { inputs, .. } | Step::MultiOp { inputs, .. } => inputs.iter_mut().for_each(|v| *v = to(*v)),
            Step::View { of, .. } => *of = to(*of),
            Step::Assign { dst, src } => (*dst, *src) = (to(*dst), to(*src)),
            Step::IndexInto { dst, rest, .. } => {
                *dst = to(*dst);
                rest.iter_mut().for_each(|v| *v = to(*v));
            }
            Step::Eval { values, .. } => values.iter_mut().for_each(|v| *v = to(*v)),
            Step::Draw { .. } | Step::Host { .. } => {}
        }
    }
}

/// A graph: inputs, constants, steps and results.
#[derive(Clone, Default)]
pub struct Graph {
    /// What is known of each value.
    pub infos: Vec<Info>,
    /// The values that whoever runs it gives.
    pub inputs: Vec<Value>,
    /// The values that are always the same.
    pub constants: Vec<(Value, Tensor)>,
    /// What it does, in this order.
    pub steps: Vec<Step>,
    /// Where the steps of the second part begin, such as a backward pass; what the first part makes for it lives on between.
    pub split: usize,
    /// The values that it is run for.
    pub outputs: Vec<Value>,
    /// The generator of each draw; the process's own where `None`.
    pub draws: Vec<Option<Generator>>,
    /// Which steps stand for what a device can do in one pass.
    pub composites: Vec<Composite>,
}

impl Graph {
    /// What is known of a value.
    ///
    /// # Errors
    /// [`Error::Runtime`] where there is no such value.
    pub fn info(&self, value: Value) -> Result<&Info> {
        self.infos.get(value as usize).ok_or_else(|| {
            Error::runtime("graph", format!("there is no value %{value} in a graph of {}", self.infos.len()))
        })
    }

    /// Has what was recorded over meta tensors run on a device.
    ///
    /// # Errors
    /// [`Error::NotImplemented`] where it holds constants of the device meta, which have no elements.
    pub fn place(&mut self, device: Device) -> Result<()> {
        if let Some((value, _)) = self.constants.iter().find(|(_, t)| t.device() == Device::Meta) {
            let why = format!("%{value} is a constant that was made on the device meta, and has no elements");
            return Err(Error::not_implemented("graph", why));
        }
        self.infos.iter_mut().filter(|info| info.device == Device::Meta).for_each(|info| info.device = device);
        Ok(())
    }

    /// The storage that a value is in, by the value that it was made as.
    fn root(&self, value: Value) -> Value {
        self.infos.get(value as usize).map_or(value, |info| info.root)
    }

    /// The storages that are written in place.
    pub fn written(&self) -> HashSet<Value> {
        let written = |step: &Step| match step {
            Step::Assign { dst, .. } | Step::IndexInto { dst, .. } => Some(self.root(*dst)),
            Step::Op { .. }
            | Step::MultiOp { .. }
            | Step::View { .. }
            | Step::Draw { .. }
            | Step::Eval { .. }
            | Step::Host { .. } => None,
        };
        self.steps.iter().filter_map(written).collect()
    }

    /// The storages that somebody sees when the graph has run.
    pub fn escaping(&self) -> HashSet<Value> {
        self.outputs.iter().map(|&v| self.root(v)).collect()
    }

    /// Checks that each value is made once and before it is used, that layouts fit the storages that they show, and that
    /// primitives make what they say.
    ///
    /// # Errors
    /// [`Error::Runtime`] with the step that does not.
    pub fn verify(&self) -> Result<()> {
        let fail = |at: usize, why: String| Err(Error::runtime("graph", format!("step {at}: {why}")));
        #[allow(clippy::disallowed_methods)] // As many as values that are there.
        let mut made = vec![false; self.infos.len()];
        let known = self.inputs.iter().copied().chain(self.constants.iter().map(|(v, _)| *v));
        for value in known {
            self.info(value)?;
            if std::mem::replace(&mut made[value as usize], true) {
                return fail(0, format!("%{value} is an input or a constant twice"));
            }
        }
        let mut drawn = 0;
        for (at, step) in self.steps.iter().enumerate() {
            for used in step.uses() {
                self.info(used)?;
                if !made[used as usize] {
                    return fail(at, format!("%{used} is used before it is made"));
                }
            }
            match step {
                Step::Op { prim, out, meta, key, .. } => {
                    let info = self.info(*out)?;
                    if info.shape != meta.shape || info.dtype != meta.dtype || info.root != *out {
                        return fail(at, format!("{} does not make what is known of %{out}", prim.name()));
                    }
                    if key.is_some_and(|key| key.draw >= drawn) {
                        return fail(at, format!("{} takes a key that is drawn later", prim.name()));
                    }
                }
                Step::MultiOp { prim, outs, metas, .. } => {
                    if outs.len() != metas.len() || outs.is_empty() {
                        return fail(at, format!("{} makes {} values of {}", prim.name(), outs.len(), metas.len()));
                    }
                    for (out, meta) in outs.iter().zip(metas) {
                        let info = self.info(*out)?;
                        if info.shape != meta.shape || info.dtype != meta.dtype || info.root != *out {
                            return fail(at, format!("{} does not make what is known of %{out}", prim.name()));
                        }
                    }
                }
                Step::View { op, of, out, layout } => {
                    let (info, base) = (self.info(*out)?, self.info(*of)?);
                    let fits = info.shape == layout.shape
                        && info.strides == layout.strides
                        && info.dtype == op.dtype(base.dtype)
                        && info.root == base.root
                        && info.device == base.device;
                    if !fits {
                        return fail(at, format!("{} does not make what is known of %{out}", op.name()));
                    }
                }
                Step::Assign { dst, src } => {
                    let (dst, src) = (self.info(*dst)?, self.info(*src)?);
                    if dst.shape != src.shape || dst.dtype != src.dtype {
                        return fail(at, "what is written is of another shape or dtype".to_string());
                    }
                }
                Step::Draw { draw } => {
                    if *draw != drawn || *draw as usize >= self.draws.len() {
                        return fail(at, format!("draw {draw} is not the next one"));
                    }
                    drawn += 1;
                }
                Step::IndexInto { .. } | Step::Eval { .. } | Step::Host { .. } => {}
            }
            for &out in step.outs() {
                if std::mem::replace(&mut made[out as usize], true) {
                    return fail(at, format!("%{out} is made twice"));
                }
            }
        }
        if self.split > self.steps.len() {
            return fail(self.split, "the second part begins behind the end".to_string());
        }
        match self.outputs.iter().find(|&&v| !made.get(v as usize).copied().unwrap_or(false)) {
            Some(missing) => fail(self.steps.len(), format!("the result %{missing} is never made")),
            None => Ok(()),
        }
    }
}
