//! GGUF files, tokenizers and chat templates, for `lucid.llm`.
//!
//! Depends on the engine's `llm`. Encoding and decoding release the GIL.

use crate::args::{kinds, required, Arg, At};
use crate::engine_call;
use crate::functions::path_of;
use crate::tensor::wrap;
use lucid::llm::blocks::{self, Kind};
use lucid::llm::constraint::{Constraint, Rule, Vocabulary};
use lucid::llm::gguf::{self, Gguf, Value};
use lucid::llm::gguf_writer;
use lucid::llm::template;
use lucid::llm::tokenizer::Tokenizer;
use lucid::Error;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyList, PyTuple};
use std::collections::BTreeMap;

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

fn value_of(object: &Bound<'_, PyAny>, in_list: bool) -> PyResult<Value> {
    if object.is_instance_of::<PyBool>() {
        return Ok(Value::Bool(object.extract()?));
    }
    if let Ok(text) = object.extract::<String>() {
        return Ok(Value::Text(text));
    }
    // Lists of integers are signed in GGUF files.
    if let Ok(n) = object.extract::<u64>() {
        return Ok(if in_list { Value::Signed(n as i64) } else { Value::Unsigned(n) });
    }
    if let Ok(n) = object.extract::<i64>() {
        return Ok(Value::Signed(n));
    }
    if let Ok(list) = object.cast::<PyList>() {
        return list.iter().map(|v| value_of(&v, true)).collect::<PyResult<Vec<_>>>().map(Value::List);
    }
    Ok(Value::Float(object.extract()?))
}

/// Writes a GGUF file of metadata and of tensors, each a name, a format and elements.
#[pyfunction]
fn _gguf_write(
    py: Python<'_>,
    path: &Bound<'_, PyAny>,
    metadata: &Bound<'_, PyDict>,
    tensors: Vec<(String, String, Bound<'_, PyAny>)>,
) -> PyResult<()> {
    let path = path_of(path)?;
    let entry = |(key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| -> PyResult<(String, Value)> {
        Ok((key.extract()?, value_of(&value, false)?))
    };
    let metadata = metadata.iter().map(entry).collect::<PyResult<BTreeMap<_, _>>>()?;
    let mut held = Vec::new();
    for (name, kind, tensor) in &tensors {
        let x =
            required::<kinds::Tensor>(py, At { op: "write_gguf", arg: "tensors" }, Arg(Some(tensor.as_borrowed())))?
                .clone();
        held.push((name.clone(), engine_call::quick(py, || kind_of(kind))?, x));
    }
    engine_call::long(py, || gguf_writer::write(path.as_ref(), &metadata, &held))
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

/// A vocabulary of the engine, ready for constraints.
#[pyclass(module = "lucid._C", frozen)]
struct _Vocabulary(Vocabulary);

/// Output under a rule.
#[pyclass(module = "lucid._C", frozen)]
struct _Constraint(Mutex<Constraint>);

#[pymethods]
impl _Vocabulary {
    #[new]
    fn new(py: Python<'_>, tokenizer: &_Tokenizer, size: usize, end: u32) -> PyResult<_Vocabulary> {
        engine_call::long(py, || Vocabulary::new(&tokenizer.0, size, end)).map(_Vocabulary)
    }

    /// A constraint of the kind "json_schema", "regex" or "lark".
    fn constraint(&self, py: Python<'_>, kind: &str, text: &str) -> PyResult<_Constraint> {
        engine_call::long(py, || {
            let rule = match kind {
                "json_schema" => Rule::JsonSchema(text),
                "regex" => Rule::Regex(text),
                "lark" => Rule::Lark(text),
                _ => return Err(Error::value("constraint", format!("{kind:?} is not json_schema, regex or lark"))),
            };
            self.0.constraint(rule)
        })
        .map(|c| _Constraint(Mutex::new(c)))
    }
}

#[pymethods]
impl _Constraint {
    /// A byte for each token: 1 for those that may come next.
    fn allowed<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let allowed = engine_call::long(py, || self.0.lock().allowed())?;
        let bytes: Vec<u8> = allowed.into_iter().map(u8::from).collect();
        Ok(PyBytes::new(py, &bytes))
    }

    fn take(&self, py: Python<'_>, token: u32) -> PyResult<()> {
        engine_call::long(py, || self.0.lock().take(token))
    }

    fn is_complete(&self, py: Python<'_>) -> PyResult<bool> {
        engine_call::long(py, || Ok(self.0.lock().is_complete()))
    }
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<_Tokenizer>()?;
    m.add_class::<_Vocabulary>()?;
    m.add_class::<_Constraint>()?;
    m.add_function(wrap_pyfunction!(_gguf_header, m)?)?;
    m.add_function(wrap_pyfunction!(_gguf_write, m)?)?;
    m.add_function(wrap_pyfunction!(_gguf_dequantize, m)?)?;
    m.add_function(wrap_pyfunction!(_gguf_repack, m)?)?;
    m.add_function(wrap_pyfunction!(_gguf_bits, m)?)?;
    m.add_function(wrap_pyfunction!(_render_chat, m)?)
}
