//! Static graphs for `lucid.compile`: recording them, and running them again.
//!
//! Python decides what is compiled and when a graph still holds (`lucid/compiler/_dynamic.py`); here are the handles.

use crate::args::{tensors_of, At};
use crate::tensor::{wrap, PyTensor};
use crate::{engine_call, errors};
use lucid::graph::decompose;
use lucid::graph::passes::{elementwise_groups, Passes, Standard};
use lucid::graph::{is_recording, set_fusing, Execution, Graph, Paused, Program, Recorder, Step, Value};
use lucid::Tensor;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use std::sync::Arc;

/// Records what its thread runs.
#[pyclass(name = "_GraphRecorder", module = "lucid._C", unsendable)]
struct PyRecorder {
    recorder: Option<Recorder>,
    paused: Vec<Paused>,
}

impl PyRecorder {
    fn get(&self, py: Python<'_>) -> PyResult<&Recorder> {
        self.recorder.as_ref().ok_or_else(|| errors::runtime_error(py, "the recording has ended"))
    }
}

#[pymethods]
impl PyRecorder {
    /// Begins to record, with these tensors as the graph's first inputs.
    #[new]
    fn new(py: Python<'_>, inputs: &Bound<'_, PyAny>, strict: bool) -> PyResult<PyRecorder> {
        let inputs = tensors_of(At { op: "graph", arg: "inputs" }, inputs.as_borrowed())?;
        let recorder = engine_call::quick(py, || Recorder::begin(&inputs, strict))?;
        Ok(PyRecorder { recorder: Some(recorder), paused: Vec::new() })
    }

    /// The value that a tensor is in the graph.
    fn value_of(&self, py: Python<'_>, t: &Bound<'_, PyTensor>) -> PyResult<Option<Value>> {
        Ok(self.get(py)?.value_of(&t.get().share()))
    }

    /// Declares another input.
    fn input(&self, py: Python<'_>, t: &Bound<'_, PyTensor>) -> PyResult<Value> {
        let t = t.get().share();
        let recorder = self.get(py)?;
        engine_call::quick(py, || recorder.input(&t))
    }

    /// Says that the second part begins.
    fn split(&self, py: Python<'_>) -> PyResult<()> {
        self.get(py).map(Recorder::split)
    }

    /// Why the graph is not all of the computation.
    fn broken(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.get(py).map(Recorder::broken)
    }

    /// Has a backward pass run?
    fn backward_ran(&self, py: Python<'_>) -> PyResult<bool> {
        self.get(py).map(Recorder::backward_ran)
    }

    /// Stops until `resume`, with a step of the host where `host`, whose number it gives.
    fn pause(&mut self, host: bool) -> u32 {
        let (paused, call) = Paused::new(host);
        self.paused.push(paused);
        call
    }

    /// Goes on.
    fn resume(&mut self) {
        drop(self.paused.pop());
    }

    /// Ends: the graph, the captures as pairs of value and tensor, and why it is not all of the computation.
    #[allow(clippy::type_complexity)]
    fn finish<'py>(&mut self, py: Python<'py>) -> PyResult<(PyGraph, Vec<(Value, Bound<'py, PyAny>)>, Vec<String>)> {
        self.paused.clear();
        let recorder = self.recorder.take().ok_or_else(|| errors::runtime_error(py, "the recording has ended"))?;
        let made = engine_call::quick(py, || recorder.finish())?;
        let captures =
            made.captures.into_iter().map(|c| Ok((c.value, wrap(py, c.tensor)?))).collect::<PyResult<_>>()?;
        Ok((PyGraph(Mutex::new(made.graph)), captures, made.broken))
    }

    /// Ends without a graph.
    fn abort(&mut self) {
        self.paused.clear();
        self.recorder = None;
    }
}

/// A static graph.
#[pyclass(name = "_Graph", module = "lucid._C", frozen)]
pub struct PyGraph(pub(crate) Mutex<Graph>);

impl PyGraph {
    /// Of a graph.
    pub(crate) fn new(graph: Graph) -> PyGraph {
        PyGraph(Mutex::new(graph))
    }
}

#[pymethods]
impl PyGraph {
    /// Says which values it is run for.
    fn set_outputs(&self, outputs: Vec<Value>) {
        self.0.lock().outputs = outputs;
    }

    /// A graph of its own, as this one is now.
    fn copy(&self) -> PyGraph {
        PyGraph::new(self.0.lock().clone())
    }

    /// Runs the pass that leaves nothing but the smallest primitives; gives why other ones stay, by name.
    fn decompose(&self, py: Python<'_>) -> PyResult<Vec<(&'static str, &'static str)>> {
        engine_call::quick(py, || decompose::decompose(&mut self.0.lock()))
    }

    /// The shape and strides of a value.
    fn layout(&self, py: Python<'_>, value: Value) -> PyResult<(Vec<usize>, Vec<usize>)> {
        engine_call::quick(py, || self.0.lock().info(value).map(|i| (i.shape.to_vec(), i.strides.to_vec())))
    }

    /// The values of its inputs.
    fn inputs(&self) -> Vec<Value> {
        self.0.lock().inputs.clone()
    }

    /// Where the second part begins.
    fn split(&self) -> usize {
        self.0.lock().split
    }

    /// Checks that it fits together.
    fn verify(&self, py: Python<'_>) -> PyResult<()> {
        engine_call::quick(py, || self.0.lock().verify())
    }

    /// Runs the standard passes; gives each one's name with how many steps it changed.
    fn optimize(&self, py: Python<'_>) -> PyResult<Vec<(&'static str, usize)>> {
        engine_call::quick(py, || Standard.run_all(&mut self.0.lock()))
    }

    /// The values that are written to in place, as those that their storages were made as.
    fn written(&self) -> Vec<Value> {
        let mut written: Vec<Value> = self.0.lock().written().into_iter().collect();
        written.sort_unstable();
        written
    }

    /// The value that the storage of each of these was made as.
    fn roots(&self, values: Vec<Value>) -> Vec<Value> {
        let graph = self.0.lock();
        values.into_iter().map(|v| graph.infos.get(v as usize).map_or(v, |info| info.root)).collect()
    }

    /// A dictionary per step: what it does, of what, and what it makes.
    fn steps<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let graph = self.0.lock();
        let one = |step: &Step| -> PyResult<Bound<'py, PyDict>> {
            let row = PyDict::new(py);
            let name = match step {
                Step::Op { prim, .. } | Step::MultiOp { prim, .. } => prim.name(),
                Step::View { op, .. } => op.name(),
                Step::Assign { .. } => "assign",
                Step::IndexInto { op, .. } => op.name(),
                Step::Draw { .. } => "draw",
                Step::Eval { .. } => "eval",
                Step::Host { .. } => "host",
            };
            row.set_item("op", name)?;
            row.set_item("inputs", step.uses().to_vec())?;
            // Of a step of several values the first, which says the shape; all of them are beside it.
            let outs = step.outs();
            row.set_item("output", outs.first())?;
            row.set_item("outputs", outs.to_vec())?;
            if let Some(info) = outs.first().and_then(|&out| graph.infos.get(out as usize)) {
                row.set_item("shape", info.shape.to_vec())?;
                row.set_item("dtype", info.dtype.to_string())?;
                row.set_item("device", info.device.name())?;
                let made = outs.iter().filter_map(|&out| graph.infos.get(out as usize));
                let bytes: usize = made.map(|info| info.numel().saturating_mul(info.dtype.size())).sum();
                row.set_item("bytes", bytes)?;
            }
            Ok(row)
        };
        graph.steps.iter().map(one).collect()
    }

    /// The element-wise steps that could be one kernel, as lists of places in `steps`.
    fn groups(&self) -> Vec<Vec<usize>> {
        elementwise_groups(&self.0.lock())
    }

    /// The graph in Graphviz's language.
    fn to_dot(&self) -> String {
        self.0.lock().to_dot()
    }

    /// The graph as a picture.
    fn to_svg(&self) -> String {
        self.0.lock().to_svg()
    }

    fn __str__(&self) -> String {
        self.0.lock().to_string()
    }

    /// A program that runs it; the inputs in `late` are set while it runs.
    fn program(&self, py: Python<'_>, late: Vec<Value>) -> PyResult<PyProgram> {
        let graph = self.0.lock().clone();
        engine_call::quick(py, || Program::new(graph, &late)).map(PyProgram)
    }
}

/// A graph that is ready to run.
#[pyclass(name = "_Program", module = "lucid._C", frozen)]
struct PyProgram(Arc<Program>);

#[pymethods]
impl PyProgram {
    /// The steps that run as one kernel, as lists of places in the graph's steps.
    fn fused(&self) -> Vec<Vec<usize>> {
        self.0.fused()
    }

    /// Begins a run.
    fn begin(&self, py: Python<'_>, inputs: &Bound<'_, PyAny>) -> PyResult<PyExecution> {
        let inputs = tensors_of(At { op: "graph", arg: "inputs" }, inputs.as_borrowed())?;
        engine_call::quick(py, || self.0.begin(&inputs)).map(|run| PyExecution(Mutex::new(run)))
    }

    /// Runs all of it for these values.
    fn call<'py>(
        &self,
        py: Python<'py>,
        inputs: &Bound<'py, PyAny>,
        outputs: Vec<Value>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let inputs = tensors_of(At { op: "graph", arg: "inputs" }, inputs.as_borrowed())?;
        let made: Vec<Tensor> = engine_call::long(py, || {
            let mut run = self.0.begin(&inputs)?;
            run.run(None)?;
            outputs.iter().map(|&v| run.value(v)).collect()
        })?;
        made.into_iter().map(|t| wrap(py, t)).collect()
    }
}

/// A run of a program.
#[pyclass(name = "_Execution", module = "lucid._C", frozen)]
struct PyExecution(Mutex<Execution>);

#[pymethods]
impl PyExecution {
    /// Runs to the next step of the host, whose number it gives, or to step `end`.
    #[pyo3(signature = (end=None))]
    fn run(&self, py: Python<'_>, end: Option<usize>) -> PyResult<Option<u32>> {
        engine_call::long(py, || self.0.lock().run(end))
    }

    /// Values that were made.
    fn values<'py>(&self, py: Python<'py>, values: Vec<Value>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let made: Vec<Tensor> = engine_call::quick(py, || {
            let run = self.0.lock();
            values.iter().map(|&v| run.value(v)).collect()
        })?;
        made.into_iter().map(|t| wrap(py, t)).collect()
    }

    /// Gives a value from outside.
    fn set(&self, value: Value, t: &Bound<'_, PyTensor>) {
        let t = t.get().share();
        self.0.lock().set(value, &t);
    }

    /// A run that goes on from the same place by itself.
    fn fork(&self) -> PyExecution {
        PyExecution(Mutex::new(self.0.lock().clone()))
    }
}

/// Does something wait for the gradients of a tensor, such as a hook?
#[pyfunction]
fn _has_hooks(t: &Bound<'_, PyTensor>) -> bool {
    t.get().read().has_hooks()
}

/// How many wait for the gradients of a tensor, such as hooks.
#[pyfunction]
fn _hook_count(t: &Bound<'_, PyTensor>) -> usize {
    t.get().read().hook_count()
}

/// Turns fusing of element-wise steps on or off for the programs that this thread makes; gives what it was.
#[pyfunction]
fn _set_graph_fusing(on: bool) -> bool {
    set_fusing(on)
}

/// Does the calling thread record a graph?
#[pyfunction]
fn _graph_recording() -> bool {
    is_recording()
}

/// What a graph depends on of tensors, as bytes: sizes, strides, dtypes, devices, places on the tape, and which of them share
/// a storage.
#[pyfunction]
fn _tensor_guards<'py>(py: Python<'py>, tensors: &Bound<'py, PyList>) -> PyResult<Bound<'py, PyBytes>> {
    let mut text: Vec<u8> = Vec::new();
    let mut keys: Vec<usize> = Vec::new();
    let word = |n: usize, text: &mut Vec<u8>| text.extend_from_slice(&n.to_le_bytes());
    for object in tensors.iter() {
        let Ok(object) = object.cast::<PyTensor>() else {
            return Err(errors::type_error(py, "guards are of tensors"));
        };
        let t = object.get().read();
        let kind = u8::from(t.requires_grad())
            | u8::from(t.is_leaf()) << 1
            | u8::from(t.is_inference()) << 2
            | u8::from(t.is_batched()) << 3
            | u8::from(t.is_sparse()) << 4
            | u8::from(t.is_view()) << 5
            | u8::from(t.grad().is_some()) << 6;
        text.extend_from_slice(&[t.dtype() as u8, t.device() as u8, kind, u8::from(t.has_hooks())]);
        word(t.ndim(), &mut text);
        t.shape().iter().chain(t.strides()).for_each(|&n| word(n, &mut text));
        word(t.storage_offset(), &mut text);
        let key = t.storage_key();
        let first = keys.iter().position(|&k| k == key).unwrap_or(keys.len());
        keys.push(key);
        word(first, &mut text);
    }
    Ok(PyBytes::new(py, &text))
}

/// Tells Python, whose frames know the line, of a break.
fn broke(reason: &str) {
    Python::attach(|py| {
        let told = py.import("lucid.compiler._trace").and_then(|m| m.call_method1("broke", (reason,)));
        if let Err(error) = told {
            error.write_unraisable(py, None);
        }
    });
}

/// Adds the classes and functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    lucid::graph::set_break_hook(broke);
    m.add_class::<PyRecorder>()?;
    m.add_class::<PyGraph>()?;
    m.add_class::<PyProgram>()?;
    m.add_class::<PyExecution>()?;
    m.add_function(wrap_pyfunction!(_graph_recording, m)?)?;
    m.add_function(wrap_pyfunction!(_set_graph_fusing, m)?)?;
    m.add_function(wrap_pyfunction!(_has_hooks, m)?)?;
    m.add_function(wrap_pyfunction!(_hook_count, m)?)?;
    m.add_function(wrap_pyfunction!(_tensor_guards, m)?)
}
