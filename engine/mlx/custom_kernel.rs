//! Kernels that the engine writes itself, for Metal and for CUDA, where one launch replaces many primitives.
//!
//! Depends on mlx-ffi's custom kernels. The bodies keep to what both languages share: numbers are loaded from the inputs
//! and stored to the outputs by index alone, so address spaces never show. MLX's CPU stream has no such kernels. Invariant:
//! the primitives that a kernel stands for stay beside it, as its reference and for all other cases.
#![allow(unsafe_code)] // MLX checks no index, and no kernel.

use super::convert::int;
use super::emulator::{self, Language};
use super::kernel_cache::Function;
use super::kernel_error::Made;
use super::kernel_name::KernelName;
use super::lower;
use crate::Error;
use mlx_ffi::device::{self, Kind};
use mlx_ffi::fast::{CudaKernel, Launch, MetalKernel, Source};
use mlx_ffi::{Array, Dtype, Primitive};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Threads of one group.
pub(super) const GROUP: usize = 256;

/// A kernel's text: the body runs once for every `i` below the number of elements that it checks by itself. Threads of a
/// group, of `LUCID_GROUP`, know their place in it as `lane`, share what is `LUCID_SHARED` and wait for one another at
/// `LUCID_BARRIER`, which all of them must reach.
#[derive(Clone, Debug, Hash)]
pub(super) struct Text {
    /// What it is called in profiles.
    pub name: KernelName,
    pub inputs: Vec<String>,
    pub outputs: Vec<String>,
    pub body: String,
    /// Threads of one group, [`GROUP`] unless the kernel asks for more.
    pub group: usize,
}

/// How many inputs and outputs one launch may have; `None` where kernels cannot be written, or lowerings are off.
pub(super) fn room() -> Option<usize> {
    if !lower::is_on() {
        return None;
    }
    match language()? {
        // Metal has 31 buffers, of which MLX takes some for shapes.
        Language::Metal => Some(28),
        // Pointers are passed in 4 KB.
        Language::Cuda => Some(256),
    }
}

/// The language that kernels are written in; `None` where MLX has neither Metal nor CUDA and there is no emulator.
pub(super) fn language() -> Option<Language> {
    let installed = || match device::kind() {
        Ok(Kind::Metal) => Some(Language::Metal),
        Ok(Kind::Cuda) => Some(Language::Cuda),
        Ok(Kind::Cpu) | Err(_) => None,
    };
    emulator::language().or_else(installed)
}

/// What differs between the languages. All else of a kernel's text is the same for both.
struct Prelude {
    /// The thread's place in the grid. MLX declares Metal's attributes that the body names, and does not look for them in
    /// the header, so that this and `lane` are no macros.
    index: &'static str,
    /// The thread's place in its group.
    lane: &'static str,
    /// Macros, which come before the function.
    header: &'static str,
}

impl Prelude {
    fn of(language: Language) -> &'static Prelude {
        match language {
            Language::Metal => &Prelude {
                index: "thread_position_in_grid.x",
                lane: "thread_position_in_threadgroup.x",
                header: include_str!("preludes/metal.h"),
            },
            Language::Cuda => &Prelude {
                index: "blockIdx.x * blockDim.x + threadIdx.x",
                lane: "threadIdx.x",
                header: include_str!("preludes/cuda.h"),
            },
        }
    }

    /// The header and the body of a kernel of this text.
    fn source(&self, text: &Text) -> (String, String) {
        let mut body = format!("unsigned int i = {};\n", self.index);
        if text.body.contains("lane") {
            body += &format!("unsigned int lane = {};\n", self.lane);
        }
        body += &text.body;
        (format!("#define LUCID_GROUP {}\n{}", text.group, self.header), body)
    }
}

/// Do numbers that change from call to call come one by one? CUDA's smallest arrays are in memory that both processors see;
/// larger ones, once the host has written them, move to the GPU with whatever is on their page: 100 µs at its next use.
pub(super) fn apart() -> bool {
    language() == Some(Language::Cuda)
}

impl Text {
    /// Does the kernel read its inputs wherever they are? MLX tells it their strides, by this name.
    fn takes_strides(&self) -> bool {
        self.body.contains("_strides[")
    }

    /// Hands the whole source in a language to the function.
    fn with_source<T>(&self, prelude: &Prelude, f: impl FnOnce(Source<'_>) -> Made<T>) -> Made<T> {
        // MLX tells kernels apart by their names alone, also those that it keeps on disk.
        let mut hash = DefaultHasher::new();
        self.hash(&mut hash);
        let name = format!("lucid_{}_{:016x}", self.name.text(), hash.finish());
        let inputs: Vec<&str> = self.inputs.iter().map(String::as_str).collect();
        let outputs: Vec<&str> = self.outputs.iter().map(String::as_str).collect();
        let (header, body) = prelude.source(self);
        f(Source {
            name: &name,
            inputs: &inputs,
            outputs: &outputs,
            body: &body,
            header: &header,
            ensure_row_contiguous: !self.takes_strides(),
        })
    }

    /// Records a launch of the kernel as this engine compiles and keeps it; `None` where MLX must compile it.
    fn launch_kept(&self, inputs: &[&Array], launch: &Launch<'_>) -> Made<Option<Vec<Array>>> {
        if self.takes_strides() {
            return Ok(None);
        }
        let (header, body) = Prelude::of(Language::Cuda).source(self);
        let function = Function {
            name: self.name.text(),
            header: &header,
            inputs: &self.inputs,
            outputs: &self.outputs,
            body: &body,
            group: [self.group, self.name.groups_at_once()],
        };
        let Some(kernel) = function.compiled(inputs, launch.outputs) else { return Ok(None) };
        // SAFETY: the engine's own source, whose threads leave where they count beyond their elements.
        Ok(Some(unsafe { kernel.launch(inputs, launch) }?))
    }
}

enum Compiled {
    Metal(MetalKernel),
    Cuda(CudaKernel),
}

/// A kernel, and the launches of it that were recorded before: MLX puts its whole text together at each call.
struct Kernel {
    compiled: Compiled,
    text: Text,
    launches: Mutex<HashMap<Like, Arc<Primitive>>>,
}

/// What MLX makes a launch of, the arrays themselves apart: how many threads, and what the kernel's head says of each
/// input.
type Like = (usize, SmallVec<[u8; 16]>);

/// Launches kept for one kernel, and lists of sizes; a program of more than these starts anew.
const LAUNCHES: usize = 64;
const TABLES: usize = 1024;

fn like(inputs: &[&Array], threads: usize) -> Like {
    // Single numbers, and on Metal few numbers, are handed over in ways of their own.
    let traits = |a: &&Array| a.dtype() as u8 | u8::from(a.ndim() == 0) << 6 | u8::from(a.size() < 8) << 7;
    (threads, inputs.iter().map(traits).collect())
}

/// The kernel of this key, made once. Compiling takes a second, so texts hold no sizes: these come as arrays.
fn kernel(key: &str, language: Language, text: impl FnOnce() -> Text) -> Made<Arc<Kernel>> {
    static MADE: Mutex<Option<HashMap<String, Arc<Kernel>>>> = Mutex::new(None);
    let mut made = MADE.lock();
    let made = made.get_or_insert_default();
    if let Some(kernel) = made.get(key) {
        return Ok(Arc::clone(kernel));
    }
    let text = text();
    let compiled = text.with_source(Prelude::of(language), |source| match language {
        Language::Metal => Ok(Compiled::Metal(MetalKernel::new(source, false)?)),
        Language::Cuda => Ok(Compiled::Cuda(CudaKernel::new(source, 0)?)),
    })?;
    let kernel = Arc::new(Kernel { compiled, text, launches: Mutex::default() });
    made.insert(key.to_owned(), Arc::clone(&kernel));
    Ok(kernel)
}

/// Whole numbers as an array, made once for each list of them.
pub(super) fn numbers(values: &[i64]) -> Made<Array> {
    static MADE: Mutex<Option<HashMap<SmallVec<[i64; 10]>, Array>>> = Mutex::new(None);
    let mut made = MADE.lock();
    let made = made.get_or_insert_default();
    if let Some(array) = made.get(values) {
        return Ok(array.clone());
    }
    if made.len() >= TABLES {
        made.clear();
    }
    let array = Array::from_slice(values, &[int(values.len())?])?;
    made.insert(SmallVec::from_slice(values), array.clone());
    Ok(array)
}

/// Numbers as a float32 array, made once for each list of them.
pub(super) fn floats(values: &[f32]) -> Made<Array> {
    static MADE: Mutex<Option<HashMap<SmallVec<[u32; 4]>, Array>>> = Mutex::new(None);
    let bits: SmallVec<[u32; 4]> = values.iter().map(|v| v.to_bits()).collect();
    let mut made = MADE.lock();
    let made = made.get_or_insert_default();
    if let Some(array) = made.get(&bits) {
        return Ok(array.clone());
    }
    if made.len() >= TABLES {
        made.clear();
    }
    let array = Array::from_slice(values, &[int(values.len())?])?;
    made.insert(bits, array.clone());
    Ok(array)
}

/// Records a launch over `threads` elements of the kernel of this key, giving float32 outputs of these shapes.
pub(super) fn launch(
    key: &str,
    text: impl FnOnce() -> Text,
    inputs: &[&Array],
    outputs: &[&[i32]],
    threads: usize,
) -> Made<Vec<Array>> {
    let outputs: SmallVec<[(&[i32], Dtype); 8]> = outputs.iter().map(|&shape| (shape, Dtype::Float32)).collect();
    launch_typed(key, text, inputs, &outputs, threads)
}

/// [`launch_typed`] of a kernel that writes some of its inputs, which its text names; those after it come second. The caller
/// answers for it that nothing else reads them as they were.
pub(super) fn launch_in_place(
    key: &str,
    text: impl FnOnce() -> Text,
    inputs: &[&Array],
    written: &[usize],
    outputs: &[(&[i32], Dtype)],
    threads: usize,
) -> Made<(Vec<Array>, Vec<Array>)> {
    let mut made = launch_typed(key, text, inputs, outputs, threads)?;
    // An emulator, which has copies of the inputs, gives what became of them behind the outputs.
    let changed = match made.split_off(outputs.len()) {
        changed if changed.is_empty() => written.iter().map(|&i| inputs[i].clone()).collect(),
        changed => changed,
    };
    Ok((made, changed))
}

/// [`launch`] with outputs of these shapes and dtypes.
pub(super) fn launch_typed(
    key: &str,
    text: impl FnOnce() -> Text,
    inputs: &[&Array],
    outputs: &[(&[i32], Dtype)],
    threads: usize,
) -> Made<Vec<Array>> {
    let geometry = |group: usize| -> Made<Launch<'_>> {
        Ok(Launch {
            outputs,
            grid: [int(threads)?, 1, 1],
            thread_group: [int(threads.clamp(1, group))?, 1, 1],
            template: &[],
            init_value: None,
            verbose: false,
        })
    };
    if let Some(language) = emulator::language() {
        let (text, missing) =
            (text(), || Error::backend("custom_kernel", "the emulator was ended during the launch").into());
        let launch = geometry(text.group)?;
        return text.with_source(Prelude::of(language), |source| {
            emulator::launch(&source, inputs, &launch).unwrap_or_else(|| Err(missing()))
        });
    }
    let language = language().ok_or_else(|| Error::backend("custom_kernel", "MLX has neither Metal nor CUDA"))?;
    let kernel = kernel(key, language, text)?;
    let like = like(inputs, threads);
    let known = kernel.launches.lock().get(&like).cloned();
    if let Some(known) = known {
        // SAFETY: inputs and outputs like those of the launch that it was taken from, which `like` tells apart.
        return Ok(unsafe { known.repeat_all(inputs, outputs) }?);
    }
    let launch = geometry(kernel.text.group)?;
    let made = match &kernel.compiled {
        // SAFETY: the engine's own source, whose threads leave where they count beyond their elements.
        Compiled::Metal(k) => unsafe { k.launch(inputs, &launch) }?,
        Compiled::Cuda(k) => match kernel.text.launch_kept(inputs, &launch)? {
            Some(made) => made,
            // SAFETY: as above.
            None => unsafe { k.launch(inputs, &launch) }?,
        },
    };
    // SAFETY: nobody else has the arrays yet.
    if let Some(primitive) = made.first().and_then(|a| unsafe { Primitive::of(a, inputs) }) {
        let mut launches = kernel.launches.lock();
        if launches.len() >= LAUNCHES {
            launches.clear();
        }
        launches.insert(like, Arc::new(primitive));
    }
    Ok(made)
}

// ---- optimizer steps -------------------------------------------------------------------------------------------------

/// The text of one step of `count` parameters: `formula` over the variables `x0` to `x<loaded - 1>`, whose results are the
/// names it gives. Elements of all parameters are counted through, up to the numbers in `n`; `constants` are inputs, since
/// they change from step to step.
pub(super) fn step(count: usize, loaded: usize, constants: Vec<String>, formula: &str, results: &[String]) -> Text {
    let mut text = Text {
        name: KernelName::Step,
        inputs: vec!["n".into()],
        outputs: Vec::new(),
        body: String::new(),
        group: GROUP,
    };
    text.inputs.extend(constants);
    let names: Vec<String> = (0..loaded).map(|k| format!("x{k}")).collect();
    let mut body = format!("if (i >= (unsigned int)n[{}]) return;\nfloat {};\n", count - 1, names.join(", "));
    let mut stores = String::new();
    for j in 0..count {
        let open = match j {
            0 => format!("if (i < (unsigned int)n[{j}]) {{ unsigned int k = i; "),
            _ => format!("else if (i < (unsigned int)n[{j}]) {{ unsigned int k = i - n[{}]; ", j - 1),
        };
        body += &open;
        stores += &open;
        for (k, name) in names.iter().enumerate() {
            body += &format!("{name} = p{j}_{k}[k]; ");
            text.inputs.push(format!("p{j}_{k}"));
        }
        for (k, result) in results.iter().enumerate() {
            stores += &format!("o{j}_{k}[k] = {result}; ");
            text.outputs.push(format!("o{j}_{k}"));
        }
        body += "}\n";
        stores += "}\n";
    }
    text.body = body + formula + &stores;
    text
}

#[cfg(test)]
pub(super) mod host {
    //! The texts as a program for this machine's processor, since no GPU may be at hand.

    use super::Text;
    use std::fmt::Write;
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    /// Compiles the text, which is C too, and runs it for `threads` elements, giving the outputs. Inputs at `whole` hold
    /// integers.
    pub(crate) fn run(
        text: &Text,
        whole: &[usize],
        inputs: &[&[f32]],
        outputs: &[usize],
        threads: usize,
    ) -> Vec<Vec<f32>> {
        let folder = tempfile::tempdir().unwrap();
        // One thread after the other: each is a group of its own.
        let mut program = String::from("#include <math.h>\n#include <stdio.h>\n#define exp expf\n#define log logf\n");
        program +=
            "#define LUCID_GROUP 1\n#define LUCID_SHARED static\n#define LUCID_BARRIER\nstatic const int lane = 0;\n";
        for (at, (name, values)) in text.inputs.iter().zip(inputs).enumerate() {
            let kind = if whole.contains(&at) { "int" } else { "float" };
            let literals: Vec<String> = values
                .iter()
                .map(|v| match v {
                    v if v.is_nan() => "NAN".into(),
                    v if v.is_infinite() => {
                        if *v > 0.0 {
                            "INFINITY".into()
                        } else {
                            "-INFINITY".into()
                        }
                    }
                    v if whole.contains(&at) => format!("{v}"),
                    v => format!("{v:e}f"),
                })
                .collect();
            let _ = writeln!(program, "static const {kind} {name}[] = {{{}}};", literals.join(", "));
        }
        for (name, n) in text.outputs.iter().zip(outputs) {
            let _ = writeln!(program, "static float {name}[{n}];");
        }
        let _ = writeln!(program, "static void one(unsigned int i) {{\n{}\n}}", text.body);
        let _ = writeln!(program, "int main() {{ for (unsigned int i = 0; i < {}u; i++) one(i);", threads + 7);
        for (name, n) in text.outputs.iter().zip(outputs) {
            let _ = writeln!(program, "for (int i = 0; i < {n}; i++) printf(\"%.9g \", {name}[i]); printf(\"\\n\");");
        }
        program += "}\n";
        let binary = folder.path().join("kernel");
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
        let mut child = Command::new(compiler)
            .args(["-x", "c", "-", "-lm", "-o"])
            .arg(&binary)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(program.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success(), "{program}");
        let said = Command::new(binary).output().unwrap();
        assert!(said.status.success());
        let lines = String::from_utf8(said.stdout).unwrap();
        lines.lines().map(|l| l.split_whitespace().map(|v| v.parse().unwrap()).collect()).collect()
    }
}
