//! The op table as Python data.

use crate::dtype::dtype_object;
use lucid::ops::{schemas, Amp, Determinism, OutDType, ResultDType, Schema};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// Every row of the op table as a dict, family by family.
#[pyfunction]
fn _op_schemas(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let rows: Vec<_> = schemas().map(|s| row(py, s)).collect::<PyResult<_>>()?;
    PyList::new(py, rows)
}

fn row<'py>(py: Python<'py>, s: &'static Schema) -> PyResult<Bound<'py, PyDict>> {
    let amp = match s.amp {
        Amp::Low => "low",
        Amp::LowGpu => "low on gpu",
        Amp::Full => "full",
        Amp::FullGpu => "full on gpu",
        Amp::FullCpu => "full on cpu",
        Amp::Promote => "promote",
        Amp::PromoteGpu => "promote on gpu",
        Amp::Keep => "keep",
        Amp::Own => "own",
    };
    let (determinism, reason) = match s.determinism {
        Determinism::Yes => ("yes", None),
        Determinism::Seeded => ("seeded", None),
        Determinism::No(why) => ("no", Some(why)),
    };
    let result = match s.result {
        ResultDType::Same => "same",
        ResultDType::Float => "float",
        ResultDType::Bool => "bool",
        ResultDType::Index => "index",
        ResultDType::Sum => "sum",
        ResultDType::Real => "real",
        ResultDType::Own => "own",
    };
    let out = match s.out {
        OutDType::Cast => "cast",
        OutDType::Own => "own",
        OutDType::Asked => "asked",
    };
    let dtypes: Vec<_> = s.dtypes.iter().map(|d| dtype_object(py, d)).collect::<PyResult<_>>()?;
    let params = s.params.iter().map(|p| {
        let dict = PyDict::new(py);
        dict.set_item("name", p.name)?;
        dict.set_item("kind", p.kind)?;
        dict.set_item("default", p.default)?;
        dict.set_item("keyword_only", p.keyword_only)?;
        Ok(dict)
    });
    let params = PyList::new(py, params.collect::<PyResult<Vec<_>>>()?)?;
    let dict = PyDict::new(py);
    dict.set_item("name", s.name.trim_start_matches("r#"))?;
    dict.set_item("family", s.family)?;
    dict.set_item("version", s.version)?;
    dict.set_item("amp", amp)?;
    dict.set_item("determinism", determinism)?;
    dict.set_item("determinism_reason", reason)?;
    dict.set_item("dtypes", PyList::new(py, dtypes)?)?;
    dict.set_item("result", result)?;
    dict.set_item("out", out)?;
    dict.set_item("saves", format!("{:?}", s.saves).to_lowercase())?;
    dict.set_item("method", s.method)?;
    dict.set_item("in_place", s.in_place)?;
    dict.set_item("primitive", s.primitive)?;
    dict.set_item("internal", s.internal)?;
    dict.set_item("differentiable", s.differentiable)?;
    dict.set_item("params", params)?;
    dict.set_item("returns", s.returns)?;
    dict.set_item("torch", torch_path(s))?;
    dict.set_item("samples", PyList::new(py, s.samples)?)?;
    dict.set_item("doc", s.doc.trim())?;
    Ok(dict)
}

/// PyTorch's path for a row: the row's own name unless it says another.
fn torch_path(s: &Schema) -> &'static str {
    if s.torch.is_empty() {
        s.name.trim_start_matches("r#")
    } else {
        s.torch
    }
}

/// Do users find the row's function as `lucid.<name>`? Internal ones are the engine's own; others may be those of another
/// module, `lucid.nn.functional` or `lucid.special`, by PyTorch's path.
pub fn is_top(s: &Schema) -> bool {
    match torch_path(s) {
        _ if s.internal => false,
        // PyTorch has none of its kind.
        "-" => true,
        // A path inside of PyTorch's own module is that of a public function of ours (`pad`).
        // Where a row for methods only has a function too, it was added by hand.
        torch if torch.starts_with("Tensor.") => true,
        torch => torch.trim_start_matches("_C._nn.") == s.name.trim_start_matches("r#"),
    }
}

/// Adds the function.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(_op_schemas, m)?)
}
