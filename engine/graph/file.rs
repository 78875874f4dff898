//! Graphs with their weights as files: written by `lucid.export`, loaded and run here without Python.
//!
//! What is stable for who embeds it:
//!
//! ```text
//! lucid::graph::load(path) -> Result<Exported>                  on the cpu
//! lucid::graph::load_to(path, Device) -> Result<Exported>
//! Exported::run(&self, &[Tensor]) -> Result<Vec<Tensor>>        inputs in order, any number of threads
//! Exported::inputs(&self) -> &[Spec]                            name, dtype, sizes: Extent::Fixed(n) or Extent::Symbol(i)
//! Exported::outputs(&self) -> &[Spec]
//! Exported::symbols(&self) -> &[Symbol]                         name, smallest and largest size
//! Exported::weights(&self) -> impl Iterator<(&str, &Tensor)>
//! Exported::metadata(&self, key) -> Option<&str>
//! Exported::of(&Graph, names, weights) and Exported::save(path)
//! ```
//!
//! A file is a safetensors file: the weights and constants are its tensors, its metadata hold the format's version, the graph
//! as JSON, the signature, and a checksum of all of it. It is written in one step. Invariant: no file makes the process crash
//! or read memory that is not the graph's: steps are checked as [`contract`](super::contract) says before anything runs.

use super::code::{Code, Template};
use super::contract::restrided;
use super::json::{from_json, to_json};
use super::passes::{Passes, Standard};
use super::{Graph, Program, Step, Value};
use crate::{DType, Device, Error, Result, Tensor};
use lucid_ir::codec::{Arg, Codec};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::Path;
use std::sync::Arc;

const FORMAT: &str = "lucid.graph";
const VERSION: &str = "1";
/// Programs for different sizes that one [`Exported`] keeps.
const PROGRAMS: usize = 64;

/// A size of an input or result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Always the same.
    Fixed(usize),
    /// The symbol of this number.
    Symbol(usize),
}

/// What an input or a result is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Its name.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Sizes; empty for results whose sizes are formulas of the inputs'.
    pub sizes: Vec<Extent>,
}

/// A size that varies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Its name.
    pub name: String,
    /// The smallest size.
    pub min: usize,
    /// The largest size.
    pub max: usize,
}

/// A graph with its weights, ready to run.
pub struct Exported {
    code: Code,
    symbols: Vec<Symbol>,
    inputs: Vec<Spec>,
    outputs: Vec<Spec>,
    weights: Vec<(String, Tensor)>,
    metadata: BTreeMap<String, String>,
    programs: Mutex<Vec<(Vec<usize>, Arc<Program>)>>,
}

/// Reads an exported graph, to run on the cpu.
///
/// # Errors
/// [`Error::Io`] where the file cannot be read, is of another format or version, or is damaged.
///
/// # Examples
/// ```
/// use lucid::graph::{load, Exported, Recorder};
/// use lucid::{tensor, testing::assert_close};
/// let x = tensor([1.0, 2.0])?;
/// let recorder = Recorder::begin(&[x.clone()], false)?;
/// let y = (&x * 3.0)?;
/// let made = recorder.value_of(&y);
/// let mut graph = recorder.finish()?.graph;
/// graph.outputs = made.into_iter().collect();
/// let folder = tempfile::tempdir().unwrap();
/// let path = folder.path().join("triple.lucid");
/// Exported::of(&graph, &["x"], vec![])?.save(&path)?;
/// assert_close(&load(&path)?.run(&[tensor([5.0, 7.0])?])?[0], [15.0, 21.0]);
/// # lucid::Result::<()>::Ok(())
/// ```
pub fn load(path: impl AsRef<Path>) -> Result<Exported> {
    load_to(path, Device::Cpu)
}

/// Reads an exported graph, to run on a device.
///
/// # Errors
/// As [`load`], and where the device has not a dtype of the graph.
pub fn load_to(path: impl AsRef<Path>, device: Device) -> Result<Exported> {
    let path = path.as_ref();
    let header = read_header(path)?;
    let fail = |why: &str| Error::file(path, format!("not a graph of lucid.export: {why}"));
    if header.get("format").map(String::as_str) != Some(FORMAT) {
        return Err(fail("its metadata name another format, or none"));
    }
    if header.get("version").map(String::as_str) != Some(VERSION) {
        let found = header.get("version").map_or("none", String::as_str);
        return Err(fail(&format!("it is of version {found}, this is version {VERSION}; export it again")));
    }
    let tensors = crate::io::load(path, Device::Cpu)?;
    if header.get("checksum") != Some(&checksum(&header, &tensors)?) {
        return Err(fail("its checksum is another, so it is damaged"));
    }
    let part = |name: &str| {
        let text = header.get(name).ok_or_else(|| fail(&format!("it has no {name}")))?;
        from_json(text).ok_or_else(|| fail(&format!("its {name} is damaged")))
    };
    let (arg, signature) = (part("graph")?, part("signature")?);
    Exported::decoded(&arg, &signature, tensors, header, device)
        .ok_or_else(|| fail("its signature is damaged"))?
        .map_err(|error| fail(&error.to_string()))
}

fn read_header(path: &Path) -> Result<BTreeMap<String, String>> {
    use std::io::Read;
    let io = |e| Error::io(path, e);
    let mut file = std::fs::File::open(path).map_err(io)?;
    let size = file.metadata().map_err(io)?.len();
    let mut head = Vec::new();
    file.by_ref().take(8).read_to_end(&mut head).map_err(io)?;
    let len = crate::io::header_len(path, &head, size)?;
    file.take((len - head.len()) as u64).read_to_end(&mut head).map_err(io)?;
    Ok(crate::io::header(path, &head, size)?.metadata)
}

/// A number that a change of any part changes: against damage, not against malice.
fn checksum(header: &BTreeMap<String, String>, tensors: &BTreeMap<String, Tensor>) -> Result<String> {
    let mut sum = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |bytes: &[u8]| {
        let mut word = |w: u64| sum = (sum ^ w).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
        word(bytes.len() as u64);
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            word(chunk.iter().rev().fold(0, |w, &b| w << 8 | u64::from(b)));
        }
        chunks.remainder().iter().for_each(|&b| word(u64::from(b)));
    };
    for (key, text) in header.iter().filter(|(key, _)| key.as_str() != "checksum") {
        add(key.as_bytes());
        add(text.as_bytes());
    }
    for (name, t) in tensors {
        add(name.as_bytes());
        add(&t.to_bytes()?);
    }
    Ok(format!("{sum:016x}"))
}

impl Codec for Spec {
    fn encode(&self) -> Arg {
        let size = |extent: &Extent| match extent {
            Extent::Fixed(n) => n.encode(),
            Extent::Symbol(i) => Arg::List(vec![i.encode()]),
        };
        let sizes = self.sizes.iter().map(size).collect();
        Arg::List(vec![Arg::Str(self.name.clone()), self.dtype.encode(), Arg::List(sizes)])
    }

    fn decode(arg: &Arg) -> Option<Spec> {
        let [Arg::Str(name), dtype, sizes] = arg.exactly()? else { return None };
        let size = |arg: &Arg| match arg.list() {
            Some([symbol]) => usize::decode(symbol).map(Extent::Symbol),
            Some(_) => None,
            None => usize::decode(arg).map(Extent::Fixed),
        };
        let sizes = sizes.list()?.iter().map(size).collect::<Option<_>>()?;
        Some(Spec { name: name.clone(), dtype: Codec::decode(dtype)?, sizes })
    }
}

impl Codec for Symbol {
    fn encode(&self) -> Arg {
        Arg::List(vec![Arg::Str(self.name.clone()), self.min.encode(), self.max.encode()])
    }

    fn decode(arg: &Arg) -> Option<Symbol> {
        let [Arg::Str(name), min, max] = arg.exactly()? else { return None };
        Some(Symbol { name: name.clone(), min: Codec::decode(min)?, max: Codec::decode(max)? })
    }
}

/// The name of a tensor in the file.
fn stored(kind: &str, i: usize, name: &str) -> String {
    format!("{kind}.{i}.{name}")
}

impl Exported {
    /// Of a graph: the names of its first inputs, and the weights, which are its other inputs, in order.
    ///
    /// # Errors
    /// [`Error::Runtime`] where the inputs are not as many, or the graph has a step that no file can hold.
    pub fn of(graph: &Graph, names: &[&str], weights: Vec<(String, Tensor)>) -> Result<Exported> {
        let spec = |name: &str, v: Value| -> Result<Spec> {
            let info = graph.info(v)?;
            let sizes = info.shape.iter().map(|&n| Extent::Fixed(n)).collect();
            Ok(Spec { name: name.to_string(), dtype: info.dtype, sizes })
        };
        let inputs = names.iter().zip(&graph.inputs).map(|(name, &v)| spec(name, v)).collect::<Result<_>>()?;
        let outputs = graph.outputs.iter().enumerate();
        let outputs = outputs.map(|(i, &v)| spec(&format!("output{i}"), v)).collect::<Result<_>>()?;
        Exported::new(Code::of(graph), Vec::new(), inputs, outputs, weights)
    }

    /// Of a graph for sizes that vary. `symbols` names each of the template's, in order.
    ///
    /// # Errors
    /// As [`Exported::of`].
    pub fn of_template(
        template: &Template,
        symbols: Vec<Symbol>,
        inputs: Vec<Spec>,
        outputs: Vec<Spec>,
        weights: Vec<(String, Tensor)>,
    ) -> Result<Exported> {
        let inside = |(symbol, (low, high)): (&Symbol, &(usize, usize))| symbol.min >= *low && symbol.max <= *high;
        if symbols.len() != template.ranges.len() || !symbols.iter().zip(&template.ranges).all(inside) {
            let why = format!("sizes vary in {:?}, which does not hold {symbols:?}", template.ranges);
            return Err(Error::runtime("export", why));
        }
        Exported::new(template.code.clone(), symbols, inputs, outputs, weights)
    }

    fn new(
        code: Code,
        symbols: Vec<Symbol>,
        inputs: Vec<Spec>,
        outputs: Vec<Spec>,
        weights: Vec<(String, Tensor)>,
    ) -> Result<Exported> {
        if code.draws.iter().any(Option::is_some) {
            let why = "the graph draws from a generator of its own; draw from the default one";
            return Err(Error::not_implemented("export", why));
        }
        let (programs, metadata) = (Mutex::default(), BTreeMap::new());
        let made = Exported { code, symbols, inputs, outputs, weights, metadata, programs };
        // What the smallest and the largest sizes give is checked now.
        let ends: [Vec<usize>; 2] =
            [made.symbols.iter().map(|s| s.min).collect(), made.symbols.iter().map(|s| s.max).collect()];
        for sizes in ends {
            made.program(sizes)?;
        }
        Ok(made)
    }

    fn decoded(
        arg: &Arg,
        signature: &Arg,
        mut tensors: BTreeMap<String, Tensor>,
        metadata: BTreeMap<String, String>,
        device: Device,
    ) -> Option<Result<Exported>> {
        let [symbols, inputs, outputs, weights, draws] = signature.exactly()?;
        let names: Vec<(String, Arg)> = weights
            .list()?
            .iter()
            .map(|weight| match weight.list()? {
                [Arg::Str(name), strides] => Some((name.clone(), strides.clone())),
                _ => None,
            })
            .collect::<Option<_>>()?;
        let mut weights = Vec::new();
        for (i, (name, strides)) in names.into_iter().enumerate() {
            let t = tensors.remove(&stored("weight", i, &name))?;
            let strides: crate::shape::Strides = Codec::decode(&strides)?;
            if strides.len() != t.ndim() {
                return None;
            }
            let strided = t.to_device(device).and_then(|t| restrided(&t, &strides));
            match strided {
                Ok(t) => weights.push((name, t)),
                Err(error) => return Some(Err(error)),
            }
        }
        let mut constants = Vec::new();
        while let Some(t) = tensors.remove(&stored("constant", constants.len(), "")) {
            match t.to_device(device) {
                Ok(t) => constants.push(t),
                Err(error) => return Some(Err(error)),
            }
        }
        let draws = usize::decode(draws)?;
        if draws > 1 << 24 {
            return None;
        }
        let code = Code { arg: placed(arg, device), constants, draws: std::iter::repeat_n(None, draws).collect() };
        let symbols: Vec<Symbol> = symbols.all()?;
        let made = Exported::new(code, symbols, inputs.all()?, outputs.all()?, weights);
        Some(made.map(|made| Exported { metadata, ..made }))
    }

    /// Writes it, with what is to be kept beside it, in one step.
    ///
    /// # Errors
    /// [`Error::Io`] where the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        self.save_with(path, &BTreeMap::new())
    }

    /// The same with more text beside it.
    ///
    /// # Errors
    /// As [`Exported::save`].
    pub fn save_with(&self, path: impl AsRef<Path>, more: &BTreeMap<String, String>) -> Result<()> {
        let weight = |(name, t): &(String, Tensor)| {
            Arg::List(vec![Arg::Str(name.clone()), crate::shape::Strides::from_slice(t.strides()).encode()])
        };
        let signature = Arg::List(vec![
            Arg::of(&self.symbols),
            Arg::of(&self.inputs),
            Arg::of(&self.outputs),
            Arg::List(self.weights.iter().map(weight).collect()),
            self.code.draws.len().encode(),
        ]);
        let mut metadata = self.metadata.clone();
        metadata.extend(more.clone());
        for (key, text) in [
            ("format", FORMAT.to_string()),
            ("version", VERSION.to_string()),
            ("graph", to_json(&self.code.arg)),
            ("signature", to_json(&signature)),
        ] {
            metadata.insert(key.to_string(), text);
        }
        metadata.remove("checksum");
        let weights = self.weights.iter().enumerate();
        let weights = weights.map(|(i, (name, t))| (stored("weight", i, name), t.clone()));
        let constants = self.code.constants.iter().enumerate().map(|(i, t)| (stored("constant", i, ""), t.clone()));
        let tensors: BTreeMap<String, Tensor> = weights.chain(constants).collect();
        let sum = checksum(&metadata, &tensors)?;
        metadata.insert("checksum".to_string(), sum);
        crate::io::save_with(path, &tensors, &metadata)
    }

    /// Its inputs, in order.
    pub fn inputs(&self) -> &[Spec] {
        &self.inputs
    }

    /// Its results, in order.
    pub fn outputs(&self) -> &[Spec] {
        &self.outputs
    }

    /// The sizes that vary.
    pub fn symbols(&self) -> &[Symbol] {
        &self.symbols
    }

    /// Its weights by name. What the graph writes to, such as the statistics of batch norm, is written here.
    pub fn weights(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.weights.iter().map(|(name, t)| (name.as_str(), t))
    }

    /// Text that is kept beside the graph.
    pub fn metadata(&self, key: &str) -> Option<&str> {
        self.metadata.get(key).map(String::as_str)
    }

    /// Keeps text beside the graph; keys of the format itself are replaced when it is saved.
    pub fn set_metadata(&mut self, key: &str, text: &str) {
        self.metadata.insert(key.to_string(), text.to_string());
    }

    /// The graph for these sizes, one per symbol.
    ///
    /// # Errors
    /// [`Error::Runtime`] where a size is outside of its range, or the file's graph is not one.
    pub fn graph(&self, sizes: &[usize]) -> Result<Graph> {
        let inside = |(n, symbol): (&usize, &Symbol)| *n >= symbol.min && *n <= symbol.max;
        if sizes.len() != self.symbols.len() || !sizes.iter().zip(&self.symbols).all(inside) {
            let why = format!("sizes {sizes:?} are outside of what was exported, {:?}", self.symbols);
            return Err(Error::runtime("run", why));
        }
        let graph = self.code.graph(sizes, false)?;
        let hosted = graph.steps.iter().any(|step| matches!(step, Step::Host { .. }));
        if hosted || graph.inputs.len() != self.inputs.len() + self.weights.len() {
            return Err(Error::runtime("run", "the graph has other inputs than its signature"));
        }
        Ok(graph)
    }

    fn program(&self, sizes: Vec<usize>) -> Result<Arc<Program>> {
        if let Some((_, found)) = self.programs.lock().iter().find(|(known, _)| *known == sizes) {
            return Ok(Arc::clone(found));
        }
        let mut graph = self.graph(&sizes)?;
        Standard.run_all(&mut graph)?;
        let made = Program::new(graph, &[])?;
        let mut programs = self.programs.lock();
        if programs.len() >= PROGRAMS {
            programs.remove(0);
        }
        programs.push((sizes, Arc::clone(&made)));
        Ok(made)
    }

    /// The symbols' sizes in these inputs.
    fn sizes(&self, inputs: &[Tensor]) -> Result<Vec<usize>> {
        let fail = |why: String| Err(Error::runtime("run", why));
        if inputs.len() != self.inputs.len() {
            return fail(format!("takes {} inputs, got {}", self.inputs.len(), inputs.len()));
        }
        let mut sizes: Vec<Option<usize>> = self.symbols.iter().map(|_| None).collect();
        for (spec, t) in self.inputs.iter().zip(inputs) {
            let wrong = || {
                let why = format!("input {:?} must be {} with sizes {:?}", spec.name, spec.dtype, spec.sizes);
                Error::shape("run", format!("{why}, got {}", t.dtype()), &[t.shape()])
            };
            if t.ndim() != spec.sizes.len() || t.dtype() != spec.dtype {
                return Err(wrong());
            }
            for (extent, &n) in spec.sizes.iter().zip(t.shape()) {
                let fits = match extent {
                    Extent::Fixed(size) => *size == n,
                    Extent::Symbol(i) => sizes.get_mut(*i).is_some_and(|known| *known.get_or_insert(n) == n),
                };
                if !fits {
                    return Err(wrong());
                }
            }
        }
        // One that no input has keeps its smallest size.
        Ok(sizes.into_iter().zip(&self.symbols).map(|(n, symbol)| n.unwrap_or(symbol.min)).collect())
    }

    /// Runs the graph.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`] where inputs are not as [`Exported::inputs`] says, [`Error::Runtime`] where there are more or
    /// fewer, [`Error::DeviceMismatch`] where they are on another device, and what the kernels report.
    pub fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let program = self.program(self.sizes(inputs)?)?;
        let graph = program.graph();
        let mut all = Vec::new();
        for (t, &value) in inputs.iter().zip(&graph.inputs) {
            let info = graph.info(value)?;
            if info.device != t.device() {
                let why = "an input is on another device than the graph; load the graph there, or move the input";
                return Err(Error::device("run", why, &[info.device, t.device()]));
            }
            // What the graph was made for has the layout that it says.
            all.push(if t.strides() == &info.strides[..] {
                t.detach()?
            } else {
                restrided(&t.detach()?, &info.strides)?
            });
        }
        all.extend(self.weights.iter().map(|(_, t)| t.clone()));
        // A kernel that panics on a graph that somebody made up must not take the program with it.
        let run = catch_unwind(AssertUnwindSafe(|| -> Result<Vec<Tensor>> {
            let mut run = program.begin(&all)?;
            run.run(None)?;
            graph.outputs.iter().map(|&v| run.value(v)).collect()
        }));
        run.unwrap_or_else(|_| Err(Error::runtime("run", "a kernel refused a step of the graph")))
    }
}

/// The same tree with all values on another device.
fn placed(arg: &Arg, device: Device) -> Arg {
    let names = [Device::Cpu.encode(), Device::Gpu.encode()];
    match arg {
        Arg::Str(_) if names.contains(arg) => device.encode(),
        Arg::List(list) => Arg::List(list.iter().map(|arg| placed(arg, device)).collect()),
        Arg::Null | Arg::Bool(_) | Arg::Int(_) | Arg::Float(_) | Arg::Str(_) | Arg::Size { .. } => arg.clone(),
    }
}
