//! `lucid.autograd.graph.Node`: a node of the graph, as `Tensor.grad_fn` shows it.

use super::{call_python, callable, grads_of, grads_tuple, PyRefs};
use crate::tensor::{object_of, wrap, PyTensor};
use crate::{engine_call, errors};
use lucid::autograd::{GradList, GraphNode, HostRef, SavedArg};
use lucid::Tensor;
use parking_lot::Mutex;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType, PyWeakrefMethods, PyWeakrefReference};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A backward node of the graph: computes the gradients of an op's inputs from those of its results.
///
/// `tensor.grad_fn` gives it; `next_functions` leads on to the nodes of the op's inputs.
///
/// Args:
///     node (Node): a node; the new object stands for the same one.
///
/// Example:
///     >>> x = lucid.ones(2, requires_grad=True)
///     >>> y = (x * 2).sum()
///     >>> y.grad_fn.name(), y.grad_fn.next_functions[0][0].name()
///     ('SumBackward0', 'MulBackward0')
#[pyclass(name = "Node", module = "lucid.autograd.graph", subclass, frozen, weakref)]
pub struct PyNode(pub GraphNode);

/// The living objects of nodes by address, so that one node is one object.
static OBJECTS: Mutex<BTreeMap<usize, Py<PyWeakrefReference>>> = Mutex::new(BTreeMap::new());

impl Drop for PyNode {
    /// Takes the object off the list, unless another one of the same node is there.
    fn drop(&mut self) {
        Python::attach(|py| {
            let mut listed = OBJECTS.lock();
            let gone = match listed.entry(self.0.address()) {
                Entry::Occupied(known) if known.get().bind(py).upgrade().is_none() => Some(known.remove()),
                Entry::Occupied(_) | Entry::Vacant(_) => None,
            };
            drop(listed);
            drop(gone);
        });
    }
}

/// The Python object of a node: one while anybody has it.
pub fn node_object(py: Python<'_>, node: GraphNode) -> PyResult<Bound<'_, PyAny>> {
    let address = node.address();
    let known = OBJECTS.lock().get(&address).map(|object| object.clone_ref(py));
    if let Some(object) = known.and_then(|object| object.bind(py).upgrade()) {
        return Ok(object);
    }
    let object = new_object(py, node)?;
    let weak = PyWeakrefReference::new(&object)?.unbind();
    let former = OBJECTS.lock().insert(address, weak);
    // Not under the lock: what goes may run code of the user's.
    drop(former);
    Ok(object)
}

/// An object of a class that is named as the node.
fn new_object(py: Python<'_>, node: GraphNode) -> PyResult<Bound<'_, PyAny>> {
    static CLASSES: PyOnceLock<Mutex<HashMap<String, Py<PyType>>>> = PyOnceLock::new();
    let name = node.name();
    let classes = CLASSES.get_or_init(py, Mutex::default);
    let found = classes.lock().get(name.as_ref()).map(|c| c.clone_ref(py));
    let class = match found {
        Some(class) => class.into_bound(py),
        None => {
            let bases = PyTuple::new(py, [py.get_type::<PyNode>()])?;
            let own = PyDict::new(py);
            if !node.is_custom() {
                // Nothing can be set on it: what a user keeps with a node goes into its `metadata`.
                own.set_item("__slots__", PyTuple::empty(py))?;
            }
            let made = py.get_type::<PyType>().call1((name.as_ref(), bases, own))?.cast_into::<PyType>()?;
            made.setattr("__module__", "lucid.autograd.graph")?;
            classes.lock().insert(name.into_owned(), made.clone().unbind());
            made
        }
    };
    class.call1((Bound::new(py, PyNode(node))?,))
}

/// A tensor as a node saved it, for hooks on it alone.
#[pyclass(name = "SavedTensor", module = "lucid.autograd.graph", frozen)]
struct PySavedTensor {
    node: GraphNode,
    name: String,
}

#[pymethods]
impl PySavedTensor {
    /// Saves `pack_hook(tensor)` in the tensor's place, which `unpack_hook` turns back when a gradient asks. Once.
    fn register_hooks(
        &self,
        py: Python<'_>,
        pack_hook: &Bound<'_, PyAny>,
        unpack_hook: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let pack = super::modes::pack_of(pack_hook, unpack_hook)?;
        engine_call::quick(py, || self.node.pack_saved(&self.name, &pack))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        super::visit_node(&self.node, &visit)
    }

    fn __clear__(&self) {
        lucid::autograd::clear_node_hosts(&self.node);
    }
}

/// What a hook on a node gave: `None`, or a tuple of as many gradients as it was given.
fn maybe_grads(py: Python<'_>, out: &Bound<'_, PyAny>) -> PyResult<Option<GradList>> {
    if out.is_none() {
        return Ok(None);
    }
    if !out.is_instance_of::<PyTuple>() {
        let got = crate::args::kind_name(out);
        return Err(errors::type_error(py, format!("expected tuple, but hook returned '{got}'")));
    }
    Ok(Some(grads_of(py, "hook", Some(out), 0)?.into_iter().collect()))
}

/// An argument of a call as PyTorch shows what it saved of it: integers without sign, so that -1 is 2**64 - 1, and the
/// reduction of a loss as a number.
fn told_object<'py>(py: Python<'py>, name: &str, told: SavedArg) -> PyResult<Bound<'py, PyAny>> {
    let unsigned = |n: i64| n as u64;
    Ok(match told {
        SavedArg::Nothing => py.None().into_bound(py),
        SavedArg::Truth(truth) => truth.into_pyobject(py)?.to_owned().into_any(),
        SavedArg::Int(n) => unsigned(n).into_pyobject(py)?.into_any(),
        SavedArg::Float(x) => x.into_pyobject(py)?.into_any(),
        SavedArg::Number(s) => crate::tensor::scalar_object(py, s)?,
        SavedArg::Ints(list) => PyTuple::new(py, list.iter().map(|&n| unsigned(n)))?.into_any(),
        SavedArg::Text(word) if name == "reduction" => {
            let place = ["none", "mean", "sum"].iter().position(|known| *known == &*word);
            place.into_pyobject(py)?.into_any()
        }
        SavedArg::Text(word) => word.into_pyobject(py)?.into_any(),
    })
}

#[pymethods]
impl PyNode {
    #[new]
    fn new_py(node: &Bound<'_, PyNode>) -> PyNode {
        PyNode(node.get().0.clone())
    }

    /// The name, such as `AddBackward0`; of what is no op's step as PyTorch has it, `torch::autograd::AccumulateGrad`.
    fn name(&self) -> String {
        match self.0.name() {
            own if own == "AccumulateGrad" || own == "CopySlices" => format!("torch::autograd::{own}"),
            own => own.into_owned(),
        }
    }

    /// Where the gradients of the inputs go: pairs of a node and the number of its result, `(None, 0)` for none.
    #[getter]
    fn next_functions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let pair = |next: Option<(GraphNode, u32)>| match next {
            Some((node, nr)) => Ok((Some(node_object(py, node)?), nr)),
            None => Ok((None, 0)),
        };
        PyTuple::new(py, self.0.next().into_iter().map(pair).collect::<PyResult<Vec<_>>>()?)
    }

    /// The leaf that the node adds to.
    #[getter]
    fn variable<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self.0.leaf() {
            Some(leaf) => object_of(py, leaf),
            None => {
                let why = format!("'{}' object has no attribute 'variable'", self.0.name());
                Err(pyo3::exceptions::PyAttributeError::new_err(why))
            }
        }
    }

    /// The tensors that the op saved for its gradient, and `None` where it saved none.
    #[getter]
    fn saved_tensors<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let saved = engine_call::quick(py, || self.0.saved())?;
        grads_tuple(py, &saved)
    }

    /// Leads it to something that requires a gradient? Always, since no other steps are recorded.
    #[getter]
    fn requires_grad(&self) -> bool {
        true
    }

    /// A dictionary that lives with the node.
    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let held = self.0.metadata(|| Arc::new(PyDict::new(py).unbind()));
        match held.downcast_ref::<Py<PyDict>>() {
            Some(dict) => Ok(dict.bind(py).clone()),
            None => Err(errors::runtime_error(py, "the node's metadata is not Python's")),
        }
    }

    /// Calls `fn(grad_inputs, grad_outputs)` after the node ran; what it returns, unless `None`, takes the place of
    /// `grad_inputs`.
    #[pyo3(signature = (r#fn))]
    fn register_hook<'py>(slf: &Bound<'py, Self>, r#fn: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let refs = PyRefs::of(vec![callable(r#fn)?]);
        let host: HostRef = refs.clone();
        let id = slf.get().0.register_hook(Arc::new(move |inputs: &[Option<Tensor>], outputs: &[Option<Tensor>]| {
            call_python(|py| {
                maybe_grads(py, &refs.bind(py, 0).call1((grads_tuple(py, inputs)?, grads_tuple(py, outputs)?))?)
            })
        }));
        slf.get().0.set_hook_host(id, host);
        super::handle(slf, id)
    }

    /// Calls `fn(grad_outputs)` before the node runs; what it returns, unless `None`, takes their place.
    #[pyo3(signature = (r#fn))]
    fn register_prehook<'py>(slf: &Bound<'py, Self>, r#fn: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let refs = PyRefs::of(vec![callable(r#fn)?]);
        let host: HostRef = refs.clone();
        let id = slf.get().0.register_prehook(Arc::new(move |outputs: &[Option<Tensor>]| {
            call_python(|py| maybe_grads(py, &refs.bind(py, 0).call1((grads_tuple(py, outputs)?,))?))
        }));
        slf.get().0.set_hook_host(id, host);
        super::handle(slf, id)
    }

    /// Will the backward pass that runs in this thread reach it? `None` where none runs.
    fn _is_reached(&self) -> Option<bool> {
        self.0.is_reached()
    }

    /// How many results it has.
    fn _results(&self) -> usize {
        self.0.results()
    }

    /// A tensor to name in the place of result `nr`, as `GradientEdge` does.
    fn _stand_in<'py>(&self, py: Python<'py>, nr: u32, like: &Bound<'py, PyTensor>) -> PyResult<Bound<'py, PyAny>> {
        wrap(py, self.0.stand_in(nr, &like.get().share()))
    }

    /// What is saved under PyTorch's name: see `GraphNode::saved_as` and `GraphNode::told`.
    fn __getattr__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        let missing = || {
            let why = format!("'{}' object has no attribute '{name}'", self.0.name());
            pyo3::exceptions::PyAttributeError::new_err(why)
        };
        if let Some(asked) = name.strip_prefix("_raw_saved_") {
            if !self.0.saved_names().contains(&asked) {
                return Err(missing());
            }
            let raw = PySavedTensor { node: self.0.clone(), name: asked.into() };
            return Ok(Some(Bound::new(py, raw)?.into_any()));
        }
        let Some(asked) = name.strip_prefix("_saved_") else {
            // Of a custom function it has what `forward` put on its context.
            let context = py.import("lucid.autograd.function")?.getattr("context_of")?.call1((self.0.address(),))?;
            let hidden = name.starts_with("__") || context.is_none();
            return if hidden { Err(missing()) } else { context.getattr_opt(name)?.map(Some).ok_or_else(missing) };
        };
        // First of all numbers as they were given: an exponent may also be kept as a tensor.
        if let Some(told) = self.0.told(asked) {
            return told_object(py, asked, told).map(Some);
        }
        match engine_call::quick(py, || self.0.saved_as(asked))? {
            None => Err(missing()),
            Some(saved) => saved.map(|t| if t.is_leaf() { object_of(py, t) } else { wrap(py, t) }).transpose(),
        }
    }

    fn __dir__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let own = slf.py().get_type::<PyAny>().call_method1("__dir__", (slf,))?;
        let list = own.cast_into::<pyo3::types::PyList>()?;
        for name in slf.get().0.saved_names() {
            list.append(format!("_saved_{name}"))?;
            list.append(format!("_raw_saved_{name}"))?;
        }
        for name in slf.get().0.told_names() {
            list.append(format!("_saved_{name}"))?;
        }
        Ok(list.into_any())
    }

    fn _remove_hook(&self, handle: u64) {
        self.0.remove_hook(handle);
    }

    /// Counts up within a thread; later nodes run first.
    fn _sequence_nr(&self) -> u64 {
        self.0.sequence_number()
    }

    /// Runs the node by itself on gradients of its results. No hook is called.
    #[pyo3(signature = (*grads))]
    fn __call__<'py>(&self, py: Python<'py>, grads: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        let (wanted, got) = (self.0.results(), grads.len());
        if got != wanted {
            return Err(errors::type_error(py, format!("expected {wanted} arguments, got {got} instead")));
        }
        let grads = grads_of(py, "Node", Some(grads.as_any()), 0)?;
        let node = self.0.clone();
        let out = engine_call::long(py, || node.call(&grads))?;
        let out = grads_tuple(py, &out)?;
        match out.len() {
            1 => out.get_item(0),
            _ => Ok(out.into_any()),
        }
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<PyNode>().is_ok_and(|o| o.get().0.address() == self.0.address())
    }

    fn __hash__(&self) -> usize {
        self.0.address() >> 4
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        super::visit_node(&self.0, &visit)
    }

    fn __clear__(&self) {
        lucid::autograd::clear_node_hosts(&self.0);
    }

    fn __repr__(&self) -> String {
        format!("<{} object at {:#x}>", self.0.name(), self.0.address())
    }
}

/// Adds the class.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("_Node", m.py().get_type::<PyNode>())
}
