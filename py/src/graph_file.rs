//! Graphs for sizes that vary, and graphs as files: the handles behind `lucid.export` and `lucid.compile(dynamic=True)`.

use crate::args::{tensors_of, At};
use crate::graph::PyGraph;
use crate::tensor::{wrap, PyTensor};
use crate::{device, dtype, engine_call, errors};
use lucid::graph::{Exported, Extent, Spec, Symbol, Template};
use lucid::Tensor;
use pyo3::prelude::*;
use std::collections::HashMap;
use std::path::PathBuf;

/// A graph for sizes that vary, of recordings at several sizes.
#[pyclass(name = "_GraphTemplate", module = "lucid._C", frozen)]
struct PyTemplate(Template);

#[pymethods]
impl PyTemplate {
    /// Of pairs of sizes and graphs that no pass has rewritten.
    #[new]
    fn new(py: Python<'_>, samples: Vec<(Vec<usize>, PyRef<'_, PyGraph>)>) -> PyResult<PyTemplate> {
        let guards: Vec<_> = samples.iter().map(|(sizes, graph)| (sizes.clone(), graph.0.lock())).collect();
        let samples: Vec<_> = guards.iter().map(|(sizes, graph)| (sizes.clone(), &**graph)).collect();
        engine_call::quick(py, || Template::new(&samples)).map(PyTemplate)
    }

    /// Per symbol the smallest and the largest size.
    fn ranges(&self) -> Vec<(usize, usize)> {
        self.0.ranges().to_vec()
    }

    /// The graph for these sizes.
    fn at(&self, py: Python<'_>, sizes: Vec<usize>) -> PyResult<PyGraph> {
        engine_call::quick(py, || self.0.at(&sizes)).map(PyGraph::new)
    }
}

/// Per input or result: name, dtype, and sizes, those that vary as tuples of the symbol's number.
type PySpec<'py> = (String, Py<dtype::PyDType>, Vec<Bound<'py, PyAny>>);

/// A graph with its weights.
#[pyclass(name = "_Exported", module = "lucid._C", frozen)]
struct PyExported(Exported);

fn specs<'py>(py: Python<'py>, specs: &[Spec]) -> PyResult<Vec<PySpec<'py>>> {
    let size = |extent: &Extent| match extent {
        Extent::Fixed(n) => n.into_pyobject(py).map(Bound::into_any).map_err(PyErr::from),
        Extent::Symbol(i) => (*i,).into_pyobject(py).map(Bound::into_any),
    };
    let one = |spec: &Spec| {
        let sizes = spec.sizes.iter().map(size).collect::<PyResult<_>>()?;
        Ok((spec.name.clone(), dtype::dtype_object(py, spec.dtype)?.clone_ref(py), sizes))
    };
    specs.iter().map(one).collect()
}

#[pymethods]
impl PyExported {
    /// Of a graph whose inputs are those named, then the weights.
    #[staticmethod]
    fn of(
        py: Python<'_>,
        graph: &PyGraph,
        names: Vec<String>,
        weights: Vec<(String, Bound<'_, PyTensor>)>,
        metadata: HashMap<String, String>,
    ) -> PyResult<PyExported> {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let weights = weights.into_iter().map(|(name, t)| (name, t.get().share())).collect();
        let mut made = engine_call::quick(py, || Exported::of(&graph.0.lock(), &names, weights))?;
        metadata.iter().for_each(|(key, text)| made.set_metadata(key, text));
        Ok(PyExported(made))
    }

    /// Of a graph for sizes that vary: symbols as name, smallest and largest size; inputs as name and sizes, negative ones
    /// standing for symbols (-1 for the first).
    #[staticmethod]
    #[allow(clippy::too_many_arguments)]
    fn of_template(
        py: Python<'_>,
        template: &PyTemplate,
        symbols: Vec<(String, usize, usize)>,
        inputs: Vec<(String, Py<PyAny>, Vec<i64>)>,
        outputs: Vec<(String, Py<PyAny>, Vec<i64>)>,
        weights: Vec<(String, Bound<'_, PyTensor>)>,
        metadata: HashMap<String, String>,
    ) -> PyResult<PyExported> {
        let symbols = symbols.into_iter().map(|(name, min, max)| Symbol { name, min, max }).collect();
        let spec = |(name, of, sizes): (String, Py<PyAny>, Vec<i64>)| {
            let size = |n: i64| match usize::try_from(n) {
                Ok(n) => Extent::Fixed(n),
                Err(_) => Extent::Symbol((-1 - n) as usize),
            };
            let dtype = dtype::dtype_of(of.bind(py));
            let dtype = dtype.ok_or_else(|| errors::type_error(py, "export: expected a dtype"))?;
            Ok(Spec { name, dtype, sizes: sizes.into_iter().map(size).collect() })
        };
        let inputs = inputs.into_iter().map(spec).collect::<PyResult<_>>()?;
        let outputs = outputs.into_iter().map(spec).collect::<PyResult<_>>()?;
        let weights = weights.into_iter().map(|(name, t)| (name, t.get().share())).collect();
        let made = engine_call::quick(py, || Exported::of_template(&template.0, symbols, inputs, outputs, weights));
        let mut made = made?;
        metadata.iter().for_each(|(key, text)| made.set_metadata(key, text));
        Ok(PyExported(made))
    }

    /// Reads a file.
    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf, device: &Bound<'_, PyAny>) -> PyResult<PyExported> {
        let device = device::device_of(device)?;
        let device = device.ok_or_else(|| errors::type_error(py, "export.load: expected a device"))?;
        engine_call::long(py, || lucid::graph::load_to(&path, device)).map(PyExported)
    }

    /// Writes a file.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        engine_call::long(py, || self.0.save(&path))
    }

    /// Writes a file with other text beside the graph.
    fn save_with(&self, py: Python<'_>, path: PathBuf, metadata: HashMap<String, String>) -> PyResult<()> {
        let metadata = metadata.into_iter().collect();
        engine_call::long(py, || self.0.save_with(&path, &metadata))
    }

    /// Runs the graph.
    fn run<'py>(&self, py: Python<'py>, inputs: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let inputs = tensors_of(At { op: "run", arg: "inputs" }, inputs.as_borrowed())?;
        let made: Vec<Tensor> = engine_call::long(py, || self.0.run(&inputs))?;
        made.into_iter().map(|t| wrap(py, t)).collect()
    }

    /// The graph for these sizes.
    fn graph(&self, py: Python<'_>, sizes: Vec<usize>) -> PyResult<PyGraph> {
        engine_call::quick(py, || self.0.graph(&sizes)).map(PyGraph::new)
    }

    /// Its inputs.
    fn inputs<'py>(&self, py: Python<'py>) -> PyResult<Vec<PySpec<'py>>> {
        specs(py, self.0.inputs())
    }

    /// Its results.
    fn outputs<'py>(&self, py: Python<'py>) -> PyResult<Vec<PySpec<'py>>> {
        specs(py, self.0.outputs())
    }

    /// Its sizes that vary: name, smallest, largest.
    fn symbols(&self) -> Vec<(String, usize, usize)> {
        self.0.symbols().iter().map(|s| (s.name.clone(), s.min, s.max)).collect()
    }

    /// Its weights by name.
    fn weights<'py>(&self, py: Python<'py>) -> PyResult<Vec<(String, Bound<'py, PyAny>)>> {
        self.0.weights().map(|(name, t)| Ok((name.to_string(), wrap(py, t.clone())?))).collect()
    }

    /// Text that is kept beside the graph.
    fn metadata(&self, key: &str) -> Option<String> {
        self.0.metadata(key).map(str::to_string)
    }
}

/// Adds the classes.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyTemplate>()?;
    m.add_class::<PyExported>()
}
