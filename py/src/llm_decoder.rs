//! The decoder, its rotations and its sampling, for `lucid.llm` and its tests.
//!
//! Depends on the engine's `llm`. Work on the CPU releases the GIL.

use crate::args::{kinds, required, Arg, At};
use crate::device::device_of;
use crate::engine_call;
use crate::errors;
use crate::functions::path_of;
use crate::random::PyGenerator;
use crate::tensor::{wrap, PyTensor};
use lucid::llm::config::{Activation, Config};
use lucid::llm::decoder::{Cache, Decoder};
use lucid::llm::rope::{rotate, Angles};
use lucid::llm::sampling::{scores, Settings};
use lucid::llm::weights::Tensors;
use lucid::{Error, Tensor};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use std::collections::{BTreeMap, HashMap};

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
struct _Decoder {
    decoder: Decoder,
    /// The tensors that it was made of, and what they were then.
    watched: Vec<(Py<PyTensor>, Tensor)>,
}

/// A `lucid.llm.Config` as the engine has it.
fn config_of(config: &Bound<'_, PyAny>) -> PyResult<Config> {
    fn get<'py, T: for<'a> FromPyObject<'a, 'py, Error = PyErr>>(of: &Bound<'py, PyAny>, name: &str) -> PyResult<T> {
        of.getattr(name)?.extract()
    }
    let py = config.py();
    let scaling: String = py.import("json")?.call_method1("dumps", (config.getattr("rope_scaling")?,))?.extract()?;
    let theta: f64 = get(config, "rope_theta")?;
    let (dim, context): (usize, usize) = (get(config, "rotary_dim")?, get(config, "max_position_embeddings")?);
    let rope = engine_call::quick(py, || Angles::parsed(dim, theta, context, &scaling))?;
    let local: Option<f64> = get(config, "rope_local_theta")?;
    let local_rope = local.map(|theta| Angles { theta, scaling: Angles::unscaled(), ..rope.clone() });
    let activation = match get::<String>(config, "hidden_act")?.as_str() {
        "silu" => Activation::Silu,
        "gelu_pytorch_tanh" => Activation::GeluTanh,
        _ => Activation::Gelu,
    };
    let head_dim: usize = get(config, "head_dim")?;
    let scalar: Option<f64> = get(config, "query_pre_attn_scalar")?;
    Ok(Config {
        model_type: get(config, "model_type")?,
        vocab_size: get(config, "vocab_size")?,
        hidden_size: get(config, "hidden_size")?,
        intermediate_size: get(config, "intermediate_size")?,
        heads: get(config, "num_attention_heads")?,
        kv_heads: get(config, "num_key_value_heads")?,
        head_dim,
        eps: get(config, "rms_norm_eps")?,
        rope,
        local_rope,
        context: get(config, "context")?,
        tied: get(config, "tie_word_embeddings")?,
        qkv_bias: get(config, "qkv_bias")?,
        o_bias: get(config, "o_bias")?,
        mlp_bias: get(config, "mlp_bias")?,
        activation,
        windows: get(config, "layer_windows")?,
        qk_norm: get(config, "qk_norm")?,
        unit_offset: get(config, "unit_offset")?,
        post_norms: get(config, "post_norms")?,
        scale_embeddings: get(config, "scale_embeddings")?,
        attention_cap: get(config, "attn_logit_softcapping")?,
        logit_cap: get(config, "final_logit_softcapping")?,
        scale: scalar.filter(|&s| s != 0.0).unwrap_or(head_dim as f64).powf(-0.5),
        // Models that have experts run by their modules.
        mixture: None,
        ends: Vec::new(),
    })
}

#[pymethods]
impl _Decoder {
    /// Of a folder or a GGUF file; if `rounds`, activations are rounded to 8 bits.
    #[new]
    #[pyo3(signature = (path, device, rounds=false))]
    fn new(path: &Bound<'_, PyAny>, device: &Bound<'_, PyAny>, rounds: bool) -> PyResult<_Decoder> {
        let py = path.py();
        let (path, device) = (path_of(path)?, device_of(device)?);
        let device = device.ok_or_else(|| errors::type_error(py, "_Decoder: expected a device"))?;
        let decoder = engine_call::long(py, || Decoder::load_with(&path, device, rounds))?;
        Ok(_Decoder { decoder, watched: Vec::new() })
    }

    /// Of a `lucid.llm.Config` and tensors under Hugging Face's names, whose memory it shares.
    #[staticmethod]
    fn of_tensors(config: &Bound<'_, PyAny>, tensors: HashMap<String, Py<PyTensor>>) -> PyResult<_Decoder> {
        let py = config.py();
        let config = config_of(config)?;
        let watched: Vec<_> = tensors.values().map(|t| (t.clone_ref(py), t.get().share())).collect();
        let named = tensors.into_iter().map(|(name, t)| Ok((name, t.get().share().detach()?)));
        let named = engine_call::quick(py, || named.collect::<lucid::Result<BTreeMap<_, _>>>())?;
        let Some(device) = watched.first().map(|(_, t)| t.device()) else {
            return Err(errors::value_error(py, "_Decoder: there are no tensors"));
        };
        let made = engine_call::quick(py, || Decoder::of_tensors(config, Tensors::of_named(named), device));
        Ok(_Decoder { decoder: made?, watched })
    }

    /// Are the tensors that it was made of still what they were?
    fn is_current(&self) -> bool {
        self.watched.iter().all(|(object, then)| object.get().share().is_same(then))
    }

    /// The logits (B, vocab_size) after the last of more tokens (B, L), behind `at` others in the layers' keys and values, two
    /// tensors for each layer, which are written; `None` where the model itself must compute them.
    fn step<'py>(
        &self,
        py: Python<'py>,
        tokens: Arg<'_, 'py>,
        buffers: Vec<(PyRef<'py, PyTensor>, PyRef<'py, PyTensor>)>,
        at: usize,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let tokens = tensor(py, "step", "tokens", tokens)?;
        let buffers: Vec<[Tensor; 2]> = buffers.iter().map(|(k, v)| [k.share(), v.share()]).collect();
        let step = || self.decoder.step(&tokens, &buffers, at);
        // A prompt waits for its first layers.
        let made =
            if tokens.shape().last() == Some(&1) { engine_call::quick(py, step) } else { engine_call::long(py, step) }?;
        made.map(|logits| wrap(py, logits)).transpose()
    }

    /// Bytes of its matrices.
    fn bytes(&self) -> usize {
        self.decoder.bytes()
    }

    /// The logits after pieces of one text, which go through the model one after the other.
    fn logits<'py>(&self, py: Python<'py>, pieces: Vec<Vec<u32>>) -> PyResult<Bound<'py, PyAny>> {
        let made = engine_call::long(py, || {
            let mut cache = Cache::default();
            let mut last = Err(Error::value("llm", "there are no tokens"));
            for piece in &pieces {
                last = self.decoder.logits(piece, &mut cache);
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
            self.decoder.generate(&prompt, most, &settings, generator.as_ref(), &mut cache, |token| {
                made.push(token);
                Ok(true)
            })?;
            Ok((made, cache.bytes()))
        })
    }

    /// Up to `most` tokens that go on with each of several prompts.
    #[pyo3(signature = (prompts, most, temperature=0.0, generator=None))]
    fn generate_batch(
        &self,
        py: Python<'_>,
        prompts: Vec<Vec<u32>>,
        most: usize,
        temperature: f64,
        generator: Option<&Bound<'_, PyGenerator>>,
    ) -> PyResult<Vec<Vec<u32>>> {
        let settings = Settings { temperature, ..Settings::default() };
        let generator = generator.map(|g| g.get().0.clone());
        engine_call::long(py, || {
            let mut made: Vec<Vec<u32>> = prompts.iter().map(|_| Vec::new()).collect();
            self.decoder.generate_batch(&prompts, most, &settings, generator.as_ref(), |text, token| {
                made[text].push(token);
                Ok(true)
            })?;
            Ok(made)
        })
    }

    /// The best continuation that a beam search finds.
    fn beam_search(
        &self,
        py: Python<'_>,
        prompt: Vec<u32>,
        most: usize,
        beams: usize,
        length_penalty: f64,
    ) -> PyResult<Vec<u32>> {
        engine_call::long(py, || self.decoder.beam_search(&prompt, most, beams, length_penalty))
    }

    /// As `generate`, where another decoder proposes `ahead` tokens at a time.
    #[pyo3(signature = (draft, ahead, prompt, most, temperature=0.0, generator=None))]
    #[allow(clippy::too_many_arguments)]
    fn generate_with_draft(
        &self,
        py: Python<'_>,
        draft: &Bound<'_, _Decoder>,
        ahead: usize,
        prompt: Vec<u32>,
        most: usize,
        temperature: f64,
        generator: Option<&Bound<'_, PyGenerator>>,
    ) -> PyResult<Vec<u32>> {
        let settings = Settings { temperature, ..Settings::default() };
        let (draft, generator) = (draft.get(), generator.map(|g| g.get().0.clone()));
        engine_call::long(py, || {
            let mut made = Vec::new();
            let each = |token| {
                made.push(token);
                Ok(true)
            };
            let (draft, generator) = (&draft.decoder, generator.as_ref());
            self.decoder.generate_with_draft(draft, ahead, &prompt, most, &settings, generator, each)?;
            Ok(made)
        })
    }
}

/// Dictionaries that are looked at before each token: whether they have what they had, whether all of some are empty, and
/// whether a name is in some. A model has 1,500 entries, which Python alone takes longer to look at than a GPU computes.
#[pyclass(module = "lucid._C", frozen)]
struct _Watched {
    entries: Vec<(Py<PyDict>, Py<PyString>, Py<PyAny>)>,
    hooks: Vec<Py<PyDict>>,
    attributes: Vec<Py<PyDict>>,
    name: Py<PyString>,
}

#[pymethods]
impl _Watched {
    #[new]
    fn new(
        entries: Vec<(Py<PyDict>, Py<PyString>, Py<PyAny>)>,
        hooks: Vec<Py<PyDict>>,
        attributes: Vec<Py<PyDict>>,
        name: Py<PyString>,
    ) -> _Watched {
        _Watched { entries, hooks, attributes, name }
    }

    /// Has a dictionary of `hooks` anything, or one of `attributes` the name?
    fn is_changed(&self, py: Python<'_>) -> PyResult<bool> {
        if self.hooks.iter().any(|hooks| !hooks.bind(py).is_empty()) {
            return Ok(true);
        }
        for attributes in &self.attributes {
            if attributes.bind(py).contains(self.name.bind(py))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Are the entries' values the very objects that they were?
    fn holds(&self, py: Python<'_>) -> PyResult<bool> {
        for (table, name, value) in &self.entries {
            if !table.bind(py).get_item(name.bind(py))?.is_some_and(|now| now.is(value)) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Has the GPU device kernels for layers of decoders?
#[pyfunction]
fn _runs_decoder_layers() -> bool {
    lucid::llm::decoder::runs_decoder_layers()
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<_Decoder>()?;
    m.add_class::<_Watched>()?;
    m.add_function(wrap_pyfunction!(_runs_decoder_layers, m)?)?;
    m.add_function(wrap_pyfunction!(_rope_frequencies, m)?)?;
    m.add_function(wrap_pyfunction!(_rope_rotate, m)?)?;
    m.add_function(wrap_pyfunction!(_sampling_scores, m)?)
}
