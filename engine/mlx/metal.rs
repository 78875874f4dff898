//! Kernels that the user writes in Metal's language or in CUDA's, run over arrays of the GPU device.
//!
//! Depends on mlx-ffi's custom kernels. MLX writes a kernel's head by itself and takes a body; so the user's whole function
//! becomes a plain one that the body calls. Invariant: where MLX has not the language's GPU this is an error before anything
//! is recorded.
#![allow(unsafe_code)] // MLX checks no index, and no kernel.

use super::array::GpuArray;
use super::convert;
use super::custom_kernel;
use super::emulator;
pub use super::emulator::Language;
use super::kernel_error::Made;
use super::value::Value;
use crate::shape::numel;
use crate::{DType, Error, Result};
use mlx_ffi::fast::{CudaKernel, Launch, MetalKernel, Source};
use mlx_ffi::{ops, Array};

const OP: &str = "run_kernel";

/// A kernel and how to launch it.
#[derive(Clone, Copy, Debug)]
pub struct Kernel<'a> {
    /// The language of the source.
    pub language: Language,
    /// Source with the kernel's function in it.
    pub source: &'a str,
    /// The function's name.
    pub name: &'a str,
    /// Shape of the output.
    pub shape: &'a [usize],
    /// Element type of the output.
    pub dtype: DType,
    /// Threads in each direction; one per element of the output if not given.
    pub grid: Option<[i32; 3]>,
    /// Threads of one group.
    pub group: Option<[i32; 3]>,
}

/// Arrays below this size MLX passes in Metal's constant memory.
const CONSTANT: usize = 8;

/// A parameter of the user's function.
#[derive(Debug, PartialEq)]
enum Parameter<'a> {
    /// Elements that are read: in constant memory or not, by reference or by pointer; and the type, where `const` is to be
    /// taken off what MLX declares.
    Input { constant: bool, reference: bool, mutable: Option<&'a str> },
    /// Elements that are written.
    Output,
    /// What the thread knows of itself: the type wanted, and Metal's name of it.
    Attribute { kind: &'a str, name: &'a str },
}

fn refused(why: impl Into<String>) -> Box<Error> {
    Error::value(OP, why.into())
}

/// Splits at commas outside of brackets.
fn split(list: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0i32, 0);
    for (i, c) in list.char_indices() {
        match c {
            '(' | '[' | '<' => depth += 1,
            ')' | ']' | '>' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&list[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    parts.push(&list[start..]);
    parts.retain(|p| !p.trim().is_empty());
    parts
}

/// The source with the kernel as a plain function, and its parameters.
fn taken_apart<'a>(source: &'a str, name: &str, language: Language) -> Result<(String, Vec<Parameter<'a>>)> {
    let (words, plain_word): (&[&str], _) = match language {
        Language::Metal => (&["kernel", "[[kernel]]"], ""),
        Language::Cuda => (&["__global__"], "__device__ "),
    };
    let missing = || refused(format!("the source has no function `{} void {name}(...)`", words[0]));
    let word = |c: char| c.is_alphanumeric() || c == '_';
    // The function's name, as a whole word with a parameter list after it and `kernel void` before it.
    let (start, open) = source
        .match_indices(name)
        .filter(|(i, _)| !source[..*i].ends_with(word))
        .find_map(|(i, _)| {
            let rest = &source[i + name.len()..];
            let before = source[..i].trim_end().strip_suffix("void")?.trim_end();
            let before = words.iter().find_map(|word| before.strip_suffix(word))?;
            rest.trim_start().starts_with('(').then(|| (before.len(), i + name.len() + rest.find('(').unwrap_or(0)))
        })
        .ok_or_else(missing)?;
    let mut depth = 0;
    let close = source[open..]
        .char_indices()
        .find(|&(_, c)| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            depth == 0
        })
        .map(|(i, _)| open + i)
        .ok_or_else(missing)?;
    let (mut parameters, mut plain) = (Vec::new(), Vec::new());
    for text in split(&source[open + 1..close]) {
        let (declared, attribute) = match text.split_once("[[") {
            Some((declared, rest)) => (declared.trim(), rest.split("]]").next().unwrap_or("").trim()),
            None => (text.trim(), ""),
        };
        let words: Vec<&str> = declared.split(|c| !word(c)).filter(|w| !w.is_empty()).collect();
        if words.contains(&"threadgroup") {
            return Err(refused(format!("`{}`: threadgroup memory as a parameter is not supported", text.trim())));
        }
        let constant = words.contains(&"constant");
        if language == Language::Cuda {
            parameters.push(cuda_parameter(declared, &words));
            plain.push(declared);
            continue;
        }
        parameters.push(match attribute {
            "" => elements(declared, constant, &words),
            a if a.starts_with("buffer") => elements(declared, constant, &words),
            a => Parameter::Attribute { kind: words.first().copied().unwrap_or("uint"), name: a },
        });
        plain.push(declared);
    }
    let header = format!("{}{plain_word}void {name}({}{}", &source[..start], plain.join(", "), &source[close..]);
    Ok((header, parameters))
}

/// A pointer to what is read or written, or a number, which an input of one element gives.
fn cuda_parameter<'a>(declared: &str, words: &[&str]) -> Parameter<'a> {
    match declared.contains('*') {
        true if words.contains(&"const") => Parameter::Input { constant: false, reference: false, mutable: None },
        true => Parameter::Output,
        false => Parameter::Input { constant: false, reference: true, mutable: None },
    }
}

fn elements<'a>(declared: &'a str, constant: bool, words: &[&str]) -> Parameter<'a> {
    let fixed = words.contains(&"const");
    let name = words.last().copied().unwrap_or_default();
    // MLX's own declarations all say `const`, which C++ does not drop by itself.
    let mutable = declared.strip_suffix(name).map(str::trim_end).filter(|kind| !fixed && kind.ends_with(['*', '&']));
    match constant || fixed {
        true => Parameter::Input { constant, reference: declared.contains('&'), mutable },
        false => Parameter::Output,
    }
}

/// The call of the user's function, from inside of MLX's kernel.
fn call(name: &str, parameters: &[Parameter]) -> String {
    let (mut inputs, mut outputs) = (0, 0);
    let arguments: Vec<String> = parameters
        .iter()
        .map(|p| match *p {
            Parameter::Input { reference, mutable, .. } => {
                inputs += 1;
                let given = format!("in{}{}", inputs - 1, if reference { "[0]" } else { "" });
                mutable.map_or(given.clone(), |kind| format!("const_cast<{kind}>({given})"))
            }
            Parameter::Output => {
                outputs += 1;
                format!("out{}", outputs - 1)
            }
            Parameter::Attribute { kind, name } => {
                // MLX gives these as three numbers each; the rest of Metal's attributes are single ones.
                let three = ["thread_position", "threadgroup_position", "threads_per_grid", "threads_per_threadgroup"];
                let more = ["threadgroups_per_grid", "grid_", "dispatch_threads"];
                let parts = match kind.chars().last() {
                    _ if !three.iter().chain(&more).any(|t| name.starts_with(t)) => "",
                    Some('3') => "",
                    Some('2') => ".xy",
                    _ => ".x",
                };
                format!("{kind}({name}{parts})")
            }
        })
        .collect();
    format!("{name}({});", arguments.join(", "))
}

/// Records one launch; the kernel is compiled when the output is evaluated.
///
/// # Errors
/// [`Error::GpuNotAvailable`] where MLX has not the language's GPU; [`Error::InvalidValue`] where the function's parameters are not one
/// per input, and one output; what MLX reports.
///
/// # Safety
/// As `lucid::metal::run_kernel`.
pub unsafe fn run_kernel(kernel: &Kernel<'_>, arrays: &[&GpuArray]) -> Result<GpuArray> {
    if custom_kernel::language() != Some(kernel.language) {
        let why = format!("{OP}: the installed MLX has no {:?} device", kernel.language);
        return Err(Box::new(Error::GpuNotAvailable(why.into())));
    }
    let (header, parameters) = taken_apart(kernel.source, kernel.name, kernel.language)?;
    let constants: Vec<bool> = parameters
        .iter()
        .filter_map(|p| if let Parameter::Input { constant, .. } = p { Some(*constant) } else { None })
        .collect();
    let outputs = parameters.iter().filter(|p| **p == Parameter::Output).count();
    if constants.len() != arrays.len() || outputs != 1 {
        let (inputs, given) = (constants.len(), arrays.len());
        return Err(refused(format!(
            "{} takes {inputs} inputs (const pointers) and {outputs} outputs (others); {given} inputs are given, and one \
             output is made",
            kernel.name
        )));
    }
    // SAFETY: the caller's promise.
    unsafe { launch(kernel, &header, &call(kernel.name, &parameters), &constants, arrays) }.map_err(|e| e.of(OP))
}

/// Records the launch.
///
/// # Safety
/// As [`run_kernel`].
unsafe fn launch(
    kernel: &Kernel,
    header: &str,
    body: &str,
    constants: &[bool],
    arrays: &[&GpuArray],
) -> Made<GpuArray> {
    let mut inputs = Vec::new();
    for (x, &constant) in arrays.iter().zip(constants) {
        let value = x.value()?;
        let flat = ops::reshape(&*value.logical()?, &[convert::int(x.numel())?])?;
        inputs.push(match x.numel() {
            n if constant && n >= CONSTANT => {
                return Err(
                    refused(format!("`constant` parameters take fewer than {CONSTANT} elements, got {n}")).into()
                )
            }
            n if !constant && n < CONSTANT => {
                let more = ops::zeros(&[convert::int(CONSTANT - n)?], flat.dtype())?;
                ops::concatenate(&[&flat, &more])?
            }
            _ => flat,
        });
    }
    let names: Vec<String> = (0..inputs.len()).map(|i| format!("in{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let source =
        Source { name: kernel.name, inputs: &names, outputs: &["out0"], body, header, ensure_row_contiguous: true };
    let shape: Vec<i32> = kernel.shape.iter().map(|&n| convert::int(n)).collect::<Made<_>>()?;
    let grid = kernel.grid.unwrap_or([convert::int(numel(kernel.shape))?, 1, 1]);
    let group = kernel.group.unwrap_or([grid[0].clamp(1, 256), 1, 1]);
    let launch = Launch {
        outputs: &[(&shape, convert::dtype(kernel.dtype)?)],
        grid,
        thread_group: group,
        template: &[],
        init_value: None,
        verbose: false,
    };
    let inputs: Vec<&Array> = inputs.iter().collect();
    let mut made = match emulator::launch(&source, &inputs, &launch) {
        Some(made) => made?,
        // SAFETY: what the kernel does is the promise of who calls `run_kernel`.
        None => unsafe {
            match kernel.language {
                Language::Metal => MetalKernel::new(source, false)?.launch(&inputs, &launch),
                Language::Cuda => CudaKernel::new(source, 0)?.launch(&inputs, &launch),
            }
        }?,
    };
    GpuArray::new(Value::plain(made.swap_remove(0)), kernel.shape, kernel.dtype)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "#define K 2.0f
        kernel void scale(device const float* x [[buffer(0)]],
                          constant float& by,
                          device float* y,
                          uint gid [[thread_position_in_grid]],
                          uint2 group [[threadgroup_position_in_grid]],
                          uint lane [[thread_index_in_simdgroup]]) {
            y[gid] = x[gid] * by;
        }";

    #[test]
    fn a_kernel_becomes_a_function_and_its_call() {
        let (header, parameters) = taken_apart(SOURCE, "scale", Language::Metal).unwrap();
        assert!(header.contains("void scale(device const float* x, constant float& by, device float* y, uint gid, uint2 group, uint lane) {"));
        assert!(header.starts_with("#define K 2.0f") && header.ends_with('}') && !header.contains("kernel"));
        let call = call("scale", &parameters);
        let position = "uint(thread_position_in_grid.x), uint2(threadgroup_position_in_grid.xy)";
        assert_eq!(
            call,
            format!(
                "scale(in0, const_cast<constant float&>(in1[0]), out0, {position}, uint(thread_index_in_simdgroup));"
            )
        );
    }

    #[test]
    fn a_cuda_kernel_becomes_a_device_function() {
        let source = "extern \"C\" __global__ void add(const float* x, const float *y, float by, float* out) {}";
        let (header, parameters) = taken_apart(source, "add", Language::Cuda).unwrap();
        assert_eq!(header, source.replace("__global__", "__device__"));
        assert_eq!(call("add", &parameters), "add(in0, in1, in2[0], out0);");
    }

    #[test]
    fn other_sources_are_refused() {
        for source in
            ["", "void scale(device float* x) {}", "kernel void rescale(device float* y) {}", "kernel void scale("]
        {
            assert!(taken_apart(source, "scale", Language::Metal).is_err(), "{source}");
            assert!(taken_apart(source, "scale", Language::Cuda).is_err(), "{source}");
        }
        let shared = "kernel void f(threadgroup float* s [[threadgroup(0)]]) {}";
        assert!(taken_apart(shared, "f", Language::Metal).is_err_and(|e| e.to_string().contains("threadgroup memory")));
    }
}
