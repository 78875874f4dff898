//! A stand-in for the GPU's compiler and its threads: while one is set, custom kernels are handed to it, source and arrays,
//! and not to MLX, so that tests run them where there is no GPU.
//!
//! Depends on mlx-ffi's arrays. Everything else stays on MLX's stream of this machine. Invariant: what is handed over is what
//! MLX would be given.

use super::kernel_error::Made;
use crate::Error;
use mlx_ffi::fast::{Launch, Source};
use mlx_ffi::{Array, Dtype};
use parking_lot::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// A language that custom kernels are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// Metal's, of Apple's GPUs.
    Metal,
    /// CUDA's, of NVIDIA's.
    Cuda,
}

/// An input of a launch.
#[derive(Debug)]
pub struct KernelInput<'a> {
    /// Its name in the body.
    pub name: &'a str,
    /// MLX's name of the element type.
    pub dtype: &'static str,
    /// The shape.
    pub shape: Vec<i32>,
    /// The elements in row-major order.
    pub bytes: Vec<u8>,
}

/// An output of a launch.
#[derive(Debug)]
pub struct KernelOutput<'a> {
    /// Its name in the body.
    pub name: &'a str,
    /// MLX's name of the element type.
    pub dtype: &'static str,
    /// The shape.
    pub shape: Vec<i32>,
}

/// One launch of a custom kernel, as MLX would be given it.
#[derive(Debug)]
pub struct KernelLaunch<'a> {
    /// The language of the source.
    pub language: Language,
    /// The kernel's name.
    pub name: &'a str,
    /// What precedes the function.
    pub header: &'a str,
    /// The body of the function.
    pub body: &'a str,
    /// The inputs.
    pub inputs: Vec<KernelInput<'a>>,
    /// The outputs.
    pub outputs: Vec<KernelOutput<'a>>,
    /// The number of threads in each direction.
    pub grid: [i32; 3],
    /// The number of threads of one group.
    pub thread_group: [i32; 3],
}

/// Runs a launch and gives the bytes of each output, and behind them those of each input that the body says is written in
/// place, or says what is wrong with the kernel.
pub type Emulator = Arc<dyn Fn(&KernelLaunch<'_>) -> Result<Vec<Vec<u8>>, String> + Send + Sync>;

/// How a body says which of its inputs it writes.
const IN_PLACE: &str = "// written in place: ";

static ON: AtomicBool = AtomicBool::new(false);
static EMULATOR: RwLock<Option<(Language, Emulator)>> = RwLock::new(None);

/// Hands custom kernels in this language to a function, for the whole process; `None` ends it.
pub fn set_emulator(emulator: Option<(Language, Emulator)>) {
    ON.store(emulator.is_some(), Ordering::Release);
    *EMULATOR.write() = emulator;
}

/// The language of the emulator, if there is one.
#[inline]
pub(super) fn language() -> Option<Language> {
    if !ON.load(Ordering::Acquire) {
        return None;
    }
    EMULATOR.read().as_ref().map(|(language, _)| *language)
}

/// Runs a launch by the emulator; `None` where there is none. Evaluates the inputs.
pub(super) fn launch(source: &Source<'_>, inputs: &[&Array], launch: &Launch<'_>) -> Option<Made<Vec<Array>>> {
    if !ON.load(Ordering::Acquire) {
        return None;
    }
    let (language, emulator) = EMULATOR.read().clone()?;
    Some(run(language, &emulator, source, inputs, launch))
}

fn run(
    language: Language,
    emulator: &Emulator,
    source: &Source<'_>,
    inputs: &[&Array],
    launch: &Launch<'_>,
) -> Made<Vec<Array>> {
    let each = source.inputs.iter().zip(inputs);
    let told = source.body.lines().find_map(|line| line.strip_prefix(IN_PLACE)).unwrap_or_default();
    let changed = told.split(", ").filter_map(|name| {
        let (_, array) = source.inputs.iter().zip(inputs).find(|(input, _)| **input == name)?;
        Some((array.shape(), array.dtype()))
    });
    let inputs = each
        .map(|(&name, a)| {
            let (dtype, shape) = (a.dtype().name(), a.shape().to_vec());
            Ok(KernelInput { name, dtype, shape, bytes: a.read(<[u8]>::to_vec)? })
        })
        .collect::<Made<Vec<_>>>()?;
    let outputs = source.outputs.iter().zip(launch.outputs);
    let handed = KernelLaunch {
        language,
        name: source.name,
        header: source.header,
        body: source.body,
        inputs,
        outputs: outputs
            .map(|(&name, (shape, dtype))| KernelOutput { name, dtype: dtype.name(), shape: shape.to_vec() })
            .collect(),
        grid: launch.grid,
        thread_group: launch.thread_group,
    };
    let made = emulator(&handed).map_err(|why| Error::backend("custom_kernel", format!("{}: {why}", source.name)))?;
    let all: Vec<(&[i32], Dtype)> = launch.outputs.iter().copied().chain(changed).collect();
    if made.len() != all.len() {
        let why = format!("the emulator gave {} outputs for {}", made.len(), all.len());
        return Err(Error::backend("custom_kernel", why).into());
    }
    let made = made.iter().zip(&all);
    made.map(|(bytes, (shape, dtype))| Ok(Array::from_bytes(bytes, shape, *dtype)?)).collect()
}
