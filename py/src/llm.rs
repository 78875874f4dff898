//! GGUF files, tokenizers and chat templates, for `lucid.llm`.
//!
//! Depends on the engine's `llm`. Encoding and decoding release the GIL.

use crate::args::{kinds, required, Arg, At};
use crate::engine_call;
use crate::functions::path_of;
use crate::tensor::wrap;
use lucid::llm::blocks::{self, Kind};
use lucid::llm::gguf::{self, Gguf, Value};
use lucid::llm::template;
use lucid::llm::tokenizer::Tokenizer;
use lucid::Error;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

fn value_object<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Unsigned(n) => n.into_pyobject(py)?.into_any(),
        Value::Signed(n) => n.into_pyobject(py)?.into_any(),
        Value::Float(x) => x.into_pyobject(py)?.into_any(),
        Value::Bool(b) => b.into_pyobject(py)?.to_owned().into_any(),
        Value::Text(s) => s.into_pyobject(py)?.into_any(),
        Value::List(list) => {
            let objects = list.iter().map(|v| value_object(py, v)).collect::<PyResult<Vec<_>>>()?;
            PyList::new(py, objects)?.into_any()
        }
    })
}

fn header_objects<'py>(
    py: Python<'py>,
    header: &gguf::Header,
) -> PyResult<(Bound<'py, PyDict>, Vec<Bound<'py, PyTuple>>)> {
    let metadata = PyDict::new(py);
    for (key, value) in &header.metadata {
        metadata.set_item(key, value_object(py, value)?)?;
    }
    let entry = |e: &gguf::Entry| {
        let shape = PyTuple::new(py, &e.shape)?;
        (e.name.as_str(), e.kind.name(), shape, e.start, e.len).into_pyobject(py)
    };
    Ok((metadata, header.entries.iter().map(entry).collect::<PyResult<_>>()?))
}

/// The metadata of a GGUF file, and its tensors as (name, format, shape, start, bytes).
#[pyfunction]
fn _gguf_header<'py>(path: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyDict>, Vec<Bound<'py, PyTuple>>)> {
    let py = path.py();
    let path = path_of(path)?;
    let header = engine_call::long(py, || Gguf::open(&path).map(|file| file.header().clone()))?;
    header_objects(py, &header)
}

fn kind_of(name: &str) -> lucid::Result<Kind> {
    Kind::of_name(name).ok_or_else(|| Error::value("gguf", format!("there is no format {name:?}")))
}

/// The elements of GGUF blocks (bytes, uint8) as float32.
#[pyfunction]
fn _gguf_dequantize<'py>(
    py: Python<'py>,
    blocks: Arg<'_, 'py>,
    kind: &str,
    shape: Vec<usize>,
) -> PyResult<Bound<'py, PyAny>> {
    let x = required::<kinds::Tensor>(py, At { op: "dequantize_gguf", arg: "blocks" }, blocks)?.clone();
    wrap(py, engine_call::long(py, || blocks::dequantize(&x, kind_of(kind)?, &shape))?)
}

/// The same matrix as packed words, scales and biases in groups of 32.
#[pyfunction]
fn _gguf_repack<'py>(
    py: Python<'py>,
    blocks: Arg<'_, 'py>,
    kind: &str,
    shape: Vec<usize>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let x = required::<kinds::Tensor>(py, At { op: "repack_gguf", arg: "blocks" }, blocks)?.clone();
    let made = engine_call::long(py, || blocks::repack(&x, kind_of(kind)?, &shape))?;
    made.into_iter().map(|t| wrap(py, t)).collect()
}

/// Bits of an element of a format in the packed layout; None where it has no such form.
#[pyfunction]
fn _gguf_bits(py: Python<'_>, kind: &str) -> PyResult<Option<usize>> {
    engine_call::quick(py, || Ok(blocks::repacked_bits(kind_of(kind)?)))
}

/// The prompt that a chat template makes of variables (JSON).
#[pyfunction]
fn _render_chat(py: Python<'_>, template: &str, variables: &str) -> PyResult<String> {
    engine_call::long(py, || template::render(template, variables))
}

/// A tokenizer of the engine.
#[pyclass(module = "lucid._C", frozen)]
struct _Tokenizer(Tokenizer);

#[pymethods]
impl _Tokenizer {
    /// Of the bytes of a `tokenizer.json`.
    #[staticmethod]
    fn from_json(py: Python<'_>, data: &[u8]) -> PyResult<_Tokenizer> {
        engine_call::long(py, || Tokenizer::from_json(data)).map(_Tokenizer)
    }

    /// Of the vocabulary in a GGUF file.
    #[staticmethod]
    fn from_gguf(path: &Bound<'_, PyAny>) -> PyResult<_Tokenizer> {
        let py = path.py();
        let path = path_of(path)?;
        engine_call::long(py, || Tokenizer::from_gguf(&Gguf::open(&path)?.header().metadata)).map(_Tokenizer)
    }

    fn encode(&self, py: Python<'_>, text: &str, special: bool) -> PyResult<Vec<u32>> {
        engine_call::long(py, || self.0.encode(text, special))
    }

    fn decode(&self, py: Python<'_>, ids: Vec<u32>, skip_special: bool) -> PyResult<String> {
        engine_call::long(py, || self.0.decode(&ids, skip_special))
    }

    fn token_to_id(&self, token: &str) -> Option<u32> {
        self.0.token_to_id(token)
    }

    fn id_to_token(&self, id: u32) -> Option<String> {
        self.0.id_to_token(id)
    }

    fn vocab_size(&self) -> usize {
        self.0.vocab_size()
    }

    fn to_json(&self, py: Python<'_>) -> PyResult<String> {
        engine_call::long(py, || self.0.to_json())
    }
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<_Tokenizer>()?;
    m.add_function(wrap_pyfunction!(_gguf_header, m)?)?;
    m.add_function(wrap_pyfunction!(_gguf_dequantize, m)?)?;
    m.add_function(wrap_pyfunction!(_gguf_repack, m)?)?;
    m.add_function(wrap_pyfunction!(_gguf_bits, m)?)?;
    m.add_function(wrap_pyfunction!(_render_chat, m)?)
}
