//! The decoder, its rotations and its sampling, for `lucid.llm` and its tests.
//!
//! Depends on the engine's `llm`. Work on the CPU releases the GIL.

use crate::args::{kinds, required, Arg, At};
use crate::device::device_of;
use crate::engine_call;
use crate::errors;
use crate::functions::path_of;
use crate::random::PyGenerator;
use crate::tensor::wrap;
use lucid::llm::decoder::{Cache, Decoder};
use lucid::llm::rope::{rotate, Angles};
use lucid::llm::sampling::{scores, Settings};
use lucid::{Error, Tensor};
use pyo3::prelude::*;

fn tensor<'py>(py: Python<'py>, op: &'static str, arg: &'static str, x: Arg<'_, 'py>) -> PyResult<Tensor> {
    Ok(required::<kinds::Tensor>(py, At { op, arg }, x)?.clone())
}

/// Angles per position of the pairs of a head for texts of `length` tokens, and what cosines and sines are multiplied by.
/// `scaling` is JSON.
#[pyfunction]
fn _rope_frequencies(
    py: Python<'_>,
    dim: usize,
    theta: f64,
    context: usize,
    scaling: &str,
    length: usize,
) -> PyResult<(Vec<f64>, f64)> {
    engine_call::quick(py, || Angles::parsed(dim, theta, context, scaling)?.frequencies(length))
}

/// `x` (…, L, D) with its first elements rotated by cosines and sines (…, L, dim / 2).
#[pyfunction]
fn _rope_rotate<'py>(
    py: Python<'py>,
    x: Arg<'_, 'py>,
    cos: Arg<'_, 'py>,
    sin: Arg<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let (x, cos, sin) =
        (tensor(py, "rotate", "x", x)?, tensor(py, "rotate", "cos", cos)?, tensor(py, "rotate", "sin", sin)?);
    wrap(py, engine_call::op(py, x.numel(), || rotate(&x, &cos, &sin))?)
}

/// Log-probabilities (B, V), up to a constant, of the tokens that may be drawn.
#[pyfunction]
fn _sampling_scores<'py>(
    py: Python<'py>,
    logits: Arg<'_, 'py>,
    temperature: f64,
    top_k: usize,
    top_p: f64,
    min_p: f64,
) -> PyResult<Bound<'py, PyAny>> {
    let x = tensor(py, "sampling", "logits", logits)?;
    let settings = Settings { temperature, top_k, top_p, min_p };
    wrap(py, engine_call::op(py, x.numel(), || scores(&x, &settings))?)
}

/// A decoder of the engine.
#[pyclass(module = "lucid._C", frozen)]
struct _Decoder(Decoder);

#[pymethods]
impl _Decoder {
    /// Of a folder or a GGUF file; if `rounds`, activations are rounded to 8 bits.
    #[new]
    #[pyo3(signature = (path, device, rounds=false))]
    fn new(path: &Bound<'_, PyAny>, device: &Bound<'_, PyAny>, rounds: bool) -> PyResult<_Decoder> {
        let py = path.py();
        let (path, device) = (path_of(path)?, device_of(device)?);
        let device = device.ok_or_else(|| errors::type_error(py, "_Decoder: expected a device"))?;
        engine_call::long(py, || Decoder::load_with(&path, device, rounds)).map(_Decoder)
    }

    /// Bytes of its matrices.
    fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// The logits after pieces of one text, which go through the model one after the other.
    fn logits<'py>(&self, py: Python<'py>, pieces: Vec<Vec<u32>>) -> PyResult<Bound<'py, PyAny>> {
        let made = engine_call::long(py, || {
            let mut cache = Cache::default();
            let mut last = Err(Error::value("llm", "there are no tokens"));
            for piece in &pieces {
                last = self.0.logits(piece, &mut cache);
                if last.is_err() {
                    break;
                }
            }
            last
        })?;
        wrap(py, made)
    }

    /// Up to `most` tokens that go on with a prompt, and the bytes of the cache then.
    #[pyo3(signature = (prompt, most, temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, generator=None))]
    #[allow(clippy::too_many_arguments)]
    fn generate(
        &self,
        py: Python<'_>,
        prompt: Vec<u32>,
        most: usize,
        temperature: f64,
        top_k: usize,
        top_p: f64,
        min_p: f64,
        generator: Option<&Bound<'_, PyGenerator>>,
    ) -> PyResult<(Vec<u32>, usize)> {
        let settings = Settings { temperature, top_k, top_p, min_p };
        let generator = generator.map(|g| g.get().0.clone());
        engine_call::long(py, || {
            let (mut made, mut cache) = (Vec::new(), Cache::default());
            self.0.generate(&prompt, most, &settings, generator.as_ref(), &mut cache, |token| {
                made.push(token);
                Ok(true)
            })?;
            Ok((made, cache.bytes()))
        })
    }
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<_Decoder>()?;
    m.add_function(wrap_pyfunction!(_rope_frequencies, m)?)?;
    m.add_function(wrap_pyfunction!(_rope_rotate, m)?)?;
    m.add_function(wrap_pyfunction!(_sampling_scores, m)?)
}
