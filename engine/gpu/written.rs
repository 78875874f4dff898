//! Kernels that the engine writes itself, for Metal and for CUDA, where one launch replaces many primitives.
//!
//! Depends on mlx-ffi's custom kernels. The bodies keep to what both languages share: numbers are loaded from the inputs
//! and stored to the outputs by index alone, so address spaces never show. MLX's CPU stream has no such kernels. Invariant:
//! the primitives that a kernel stands for stay beside it, as its reference and for all other cases.

use super::convert::int;
use super::fault::Made;
use super::lower;
use mlx_ffi::device::{self, Kind};
use mlx_ffi::fast::{CudaKernel, Launch, MetalKernel, Source};
use mlx_ffi::{Array, Dtype};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Threads of one group.
const GROUP: usize = 256;

/// A kernel's text: the body runs once for every `i` below the number of elements that it checks by itself.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Text {
    /// What it is called in profiles.
    pub name: &'static str,
    pub inputs: Vec<String>,
    pub outputs: Vec<String>,
    pub body: String,
}

/// How many inputs and outputs one launch may have; `None` where kernels cannot be written, or lowerings are off.
pub(super) fn room() -> Option<usize> {
    if !lower::is_on() {
        return None;
    }
    match device::kind() {
        // Metal has 31 buffers, of which MLX takes some for shapes.
        Ok(Kind::Metal) => Some(28),
        // Pointers are passed in 4 KB.
        Ok(Kind::Cuda) => Some(256),
        Ok(Kind::Cpu) | Err(_) => None,
    }
}

enum Kernel {
    Metal(MetalKernel),
    Cuda(CudaKernel),
}

/// The kernel of this key, made once. Compiling takes a second, so texts hold no sizes: these come as arrays.
fn kernel(key: &str, text: impl FnOnce() -> Text) -> Made<Arc<Kernel>> {
    static MADE: Mutex<Option<HashMap<String, Arc<Kernel>>>> = Mutex::new(None);
    let mut made = MADE.lock();
    let made = made.get_or_insert_default();
    if let Some(kernel) = made.get(key) {
        return Ok(Arc::clone(kernel));
    }
    let text = text();
    // MLX tells kernels apart by their names alone, also those that it keeps on disk.
    let mut hash = DefaultHasher::new();
    text.hash(&mut hash);
    let name = format!("lucid_{}_{:016x}", text.name, hash.finish());
    let inputs: Vec<&str> = text.inputs.iter().map(String::as_str).collect();
    let outputs: Vec<&str> = text.outputs.iter().map(String::as_str).collect();
    let metal = device::kind()? == Kind::Metal;
    let place = if metal { "thread_position_in_grid.x" } else { "blockIdx.x * blockDim.x + threadIdx.x" };
    let body = format!("unsigned int i = {place};\n{}", text.body);
    let source = Source {
        name: &name,
        inputs: &inputs,
        outputs: &outputs,
        body: &body,
        header: "",
        ensure_row_contiguous: true,
    };
    let kernel = Arc::new(match metal {
        true => Kernel::Metal(MetalKernel::new(source, false)?),
        false => Kernel::Cuda(CudaKernel::new(source, 0)?),
    });
    made.insert(key.to_owned(), Arc::clone(&kernel));
    Ok(kernel)
}

/// Records a launch over `threads` elements of the kernel of this key, giving float32 outputs of these shapes.
pub(super) fn launch(
    key: &str,
    text: impl FnOnce() -> Text,
    inputs: &[&Array],
    outputs: &[&[i32]],
    threads: usize,
) -> Made<Vec<Array>> {
    let outputs: Vec<(&[i32], Dtype)> = outputs.iter().map(|&shape| (shape, Dtype::Float32)).collect();
    let launch = Launch {
        outputs: &outputs,
        grid: [int(threads)?, 1, 1],
        thread_group: [int(threads.clamp(1, GROUP))?, 1, 1],
        template: &[],
        init_value: None,
        verbose: false,
    };
    Ok(match &*kernel(key, text)? {
        Kernel::Metal(k) => k.launch(inputs, &launch)?,
        Kernel::Cuda(k) => k.launch(inputs, &launch)?,
    })
}

// ---- max pools -------------------------------------------------------------------------------------------------------

/// Windows that tile planes of channels-last images: sizes and windows along height and width, and the channels.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub(super) struct Tiles {
    /// Rows, columns.
    pub size: [usize; 2],
    /// Rows, columns.
    pub window: [usize; 2],
    pub channels: usize,
}

/// Where window `i` begins in `x`, and a loop over its elements, `v` at `at`; `d` as [`Tiles::numbers`] has it.
const WINDOWS: &str = "unsigned int per = d[0], per_row = d[1], channels = d[2];
if (i >= (unsigned int)x_shape[0] * per) return;
unsigned int channel = i % channels, column = i % per_row / channels, row = i % per / per_row;
unsigned int start = i / per * d[3] + row * d[4] + column * d[5] + channel;
float best = x[start];
unsigned int where = start;
for (int y = 0; y < d[6]; y++) for (int z = 0; z < d[7]; z++) {
  unsigned int at = start + y * d[8] + z * channels;
  float v = x[at];
";

impl Tiles {
    fn counts(&self) -> [usize; 2] {
        [self.size[0] / self.window[0], self.size[1] / self.window[1]]
    }

    /// Windows of one image, over all channels.
    pub(super) fn per_image(&self) -> usize {
        self.counts().iter().product::<usize>() * self.channels
    }

    /// What the kernels know of the sizes, none above 2³¹: windows of an image and of a row, channels, elements of an
    /// image, from a window to the one below and to the next, rows and columns of a window, elements of a line.
    pub(super) fn numbers(&self) -> [i32; 9] {
        let ([_, columns], [h, w], c) = (self.counts(), self.window, self.channels);
        let (image, line) = (self.size[0] * self.size[1] * c, self.size[1] * c);
        [self.per_image(), columns * c, c, image, h * line, w * c, h, w, line].map(|n| n as i32)
    }

    /// The numbers as an array, made once.
    fn table(&self) -> Made<Array> {
        static TABLES: Mutex<Option<HashMap<Tiles, Array>>> = Mutex::new(None);
        let mut tables = TABLES.lock();
        let tables = tables.get_or_insert_default();
        if let Some(table) = tables.get(self) {
            return Ok(table.clone());
        }
        let table = Array::from_slice(&self.numbers(), &[9])?;
        tables.insert(*self, table.clone());
        Ok(table)
    }

    /// The largest element of every window of `x`, then with its channel's number added, then clipped below 0.
    pub(super) fn max(&self, x: &Array, bias: Option<&Array>, relu: bool, shape: &[i32]) -> Made<Array> {
        let table = self.table()?;
        let inputs: Vec<&Array> = [x, &table].into_iter().chain(bias).collect();
        let key = match (bias.is_some(), relu) {
            (false, false) => "max pool",
            (false, true) => "max pool, relu",
            (true, false) => "max pool, bias",
            (true, true) => "max pool, bias, relu",
        };
        let threads = self.threads(x);
        let made = launch(key, || largest(bias.is_some(), relu), &inputs, &[shape], threads);
        made.map(|mut made| made.swap_remove(0))
    }

    /// Every window's gradient at its first largest element, zeros elsewhere.
    pub(super) fn max_back(&self, x: &Array, g: &Array) -> Made<Array> {
        let made = launch("max pool back", route_back, &[x, &self.table()?, g], &[x.shape()], self.threads(x));
        made.map(|mut made| made.swap_remove(0))
    }

    fn threads(&self, x: &Array) -> usize {
        x.shape().first().map_or(0, |&n| n as usize) * self.per_image()
    }
}

/// See [`Tiles::max`]; NaN is the largest of all.
pub(super) fn largest(bias: bool, relu: bool) -> Text {
    let mut body = format!("{WINDOWS}  if (v > best || v != v) best = v;\n}}\n");
    if bias {
        body += "best += b[channel];\n";
    }
    if relu {
        body += "best = best < 0.0f ? 0.0f : best;\n";
    }
    body += "out[i] = best;\n";
    let inputs = ["x", "d", "b"].iter().take(2 + usize::from(bias)).map(|s| s.to_string()).collect();
    Text { name: "max_pool", inputs, outputs: vec!["out".into()], body }
}

/// See [`Tiles::max_back`].
pub(super) fn route_back() -> Text {
    // The first NaN is the largest; after it nothing is.
    let each = "out[at] = 0.0f;\n  if (best == best && (v > best || v != v)) { best = v; where = at; }";
    let body = format!("{WINDOWS}  {each}\n}}\nout[where] = g[i];\n");
    let inputs = ["x", "d", "g"].map(String::from).to_vec();
    Text { name: "max_pool_back", inputs, outputs: vec!["out".into()], body }
}

// ---- optimizer steps -------------------------------------------------------------------------------------------------

/// The text of one step of `count` parameters: `formula` over the variables `x0` to `x<loaded - 1>`, whose results are the
/// names it gives. Elements of all parameters are counted through, up to the numbers in `n`; constants come in `c`, since they
/// change from step to step.
pub(super) fn step(count: usize, loaded: usize, formula: &str, results: &[String]) -> Text {
    let mut text = Text { name: "step", inputs: vec!["n".into(), "c".into()], ..Text::default() };
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

    /// Compiles the text, which is C too, and runs it for `threads` elements, giving the outputs. The input at `whole` holds
    /// integers.
    pub(crate) fn run(
        text: &Text,
        images: usize,
        whole: usize,
        inputs: &[&[f32]],
        outputs: &[usize],
        threads: usize,
    ) -> Vec<Vec<f32>> {
        let folder = tempfile::tempdir().unwrap();
        let mut program = String::from("#include <math.h>\n#include <stdio.h>\n");
        let _ = writeln!(program, "static const int x_shape[] = {{{images}}};");
        for (at, (name, values)) in text.inputs.iter().zip(inputs).enumerate() {
            let kind = if at == whole { "int" } else { "float" };
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
                    v if at == whole => format!("{v}"),
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
