//! Images of CUDA kernels: compiled without MLX's headers, which take ten times as long as the kernels themselves, and kept
//! in a folder from process to process.
//!
//! Depends on CUDA's compiler as MLX has loaded it. Invariant: an image is used for exactly the text, the compiler and the
//! kind of GPU that it was made for; a file that is broken, foreign or not to be written costs time only.

use mlx_ffi::cuda::{self, CompiledKernel};
use mlx_ffi::{device, Array, Dtype};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// How a file begins.
const MAGIC: &[u8] = b"lucid kernel 1\n";
/// Larger files are no kernels.
const MOST_BYTES: u64 = 16 << 20;

/// What a pointer's elements are called in a function's head; `None` of dtypes that no kernel takes.
fn element(dtype: Dtype) -> Option<&'static str> {
    Some(match dtype {
        Dtype::Bool => "bool",
        Dtype::Uint8 => "unsigned char",
        Dtype::Uint16 => "unsigned short",
        Dtype::Uint32 => "unsigned int",
        Dtype::Uint64 => "unsigned long long",
        Dtype::Int8 => "signed char",
        Dtype::Int16 => "short",
        Dtype::Int32 => "int",
        Dtype::Int64 => "long long",
        Dtype::Float16 => "__half",
        Dtype::Bfloat16 => "__nv_bfloat16",
        Dtype::Float32 => "float",
        Dtype::Float64 => "double",
        Dtype::Complex64 => return None,
    })
}

/// A function to be compiled: what precedes it, its parameters' names and its body.
pub(super) struct Function<'a> {
    /// What it is called in profiles.
    pub name: &'a str,
    pub header: &'a str,
    pub inputs: &'a [String],
    pub outputs: &'a [String],
    pub body: &'a str,
    /// The most threads of a group, and how many groups a processor runs at once.
    pub group: [usize; 2],
}

impl Function<'_> {
    /// The whole text, `@` standing for the function's name.
    fn text(&self, inputs: &[&Array], outputs: &[(&[i32], Dtype)]) -> Option<String> {
        let floats = include_str!("preludes/cuda_floats.h");
        let [group, at_once] = self.group;
        let bounds = if at_once == 1 { format!("{group}") } else { format!("{group}, {at_once}") };
        let mut text = format!("{floats}{}extern \"C\" __global__ void __launch_bounds__({bounds}) @(", self.header);
        let mut comma = "";
        // A launch's outputs are new memory, so that no pointer to one is another's.
        for (name, x) in self.inputs.iter().zip(inputs) {
            let _ = write!(text, "{comma}const {}* __restrict__ {name}", element(x.dtype())?);
            comma = ", ";
        }
        for (name, (_, dtype)) in self.outputs.iter().zip(outputs) {
            let _ = write!(text, "{comma}{}* __restrict__ {name}", element(*dtype)?);
            comma = ", ";
        }
        let _ = write!(text, ") {{\n{}\n}}\n", self.body);
        Some(text)
    }

    /// The function for arrays of these dtypes, compiled or found; `None` where MLX's own way must do.
    pub(super) fn compiled(&self, inputs: &[&Array], outputs: &[(&[i32], Dtype)]) -> Option<Arc<CompiledKernel>> {
        static MADE: Mutex<Option<HashMap<String, Option<Arc<CompiledKernel>>>>> = Mutex::new(None);
        let target = Target::here()?;
        let text = self.text(inputs, outputs)?;
        let name = format!("lucid_{}_{:016x}", self.name, hash(text.as_bytes()));
        let mut made = MADE.lock();
        let made = made.get_or_insert_default();
        if let Some(known) = made.get(&text) {
            return known.clone();
        }
        let image = target.image(&name, &text.replacen('@', &name, 1));
        let kernel = image.and_then(|image| CompiledKernel::new(&name, image).ok()).map(Arc::new);
        made.insert(text, kernel.clone());
        kernel
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

/// What images are made by and for.
#[derive(Clone, Debug)]
struct Target {
    compiler: u32,
    capability: u32,
    /// The folder of images; `None` where the user has none.
    folder: Option<PathBuf>,
}

impl Target {
    /// This process's; `None` where MLX has not loaded CUDA's compiler.
    fn here() -> Option<&'static Target> {
        static HERE: OnceLock<Option<Target>> = OnceLock::new();
        let find = || {
            let (major, minor) = device::info().ok()?.compute_capability?;
            let capability = u32::try_from(major * 10 + minor).ok()?;
            Some(Target { compiler: cuda::compiler_version()?, capability, folder: folder() })
        };
        HERE.get_or_init(find).as_ref()
    }

    /// The image of a text: kept from before, or compiled now and kept.
    fn image(&self, name: &str, text: &str) -> Option<Vec<u8>> {
        let told = format!("{} {}\n{text}", self.compiler, self.capability);
        let file = self.folder.as_ref().map(|folder| folder.join(format!("{:016x}.cubin", hash(told.as_bytes()))));
        if let Some(image) = file.as_deref().and_then(|file| read(file, &told)) {
            return Some(image);
        }
        let image = cuda::compile(text, name, self.capability).ok()?;
        if let Some(file) = &file {
            // Where nothing can be written, each process compiles.
            let _ = keep(file, &told, &image);
        }
        Some(image)
    }
}

/// `kernels` in the folder that Python's `lucid` keeps its caches in.
fn folder() -> Option<PathBuf> {
    let named = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let caches = || Some(named("XDG_CACHE_HOME").or_else(|| Some(named("HOME")?.join(".cache")))?.join("lucid"));
    named("LUCID_CACHE_DIR").or_else(caches).map(|folder| folder.join("kernels"))
}

/// The image in a file, if it is one of what was told.
fn read(file: &Path, told: &str) -> Option<Vec<u8>> {
    let size = fs::metadata(file).ok().filter(|m| m.is_file())?.len();
    let bytes = fs::read(file).ok().filter(|_| size <= MOST_BYTES)?;
    let rest = bytes.strip_prefix(MAGIC)?.strip_prefix(&(told.len() as u64).to_le_bytes())?;
    let (sum, image) = rest.strip_prefix(told.as_bytes())?.split_first_chunk()?;
    (u64::from_le_bytes(*sum) == hash(image)).then(|| image.to_vec())
}

/// Writes a file that others see whole or not at all.
fn keep(file: &Path, told: &str, image: &[u8]) -> std::io::Result<()> {
    let Some(folder) = file.parent() else { return Ok(()) };
    fs::create_dir_all(folder)?;
    let mut new = tempfile::NamedTempFile::new_in(folder)?;
    for part in [MAGIC, &(told.len() as u64).to_le_bytes(), told.as_bytes(), &hash(image).to_le_bytes(), image] {
        new.write_all(part)?;
    }
    new.persist(file)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_read_for_its_own_text_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kernels").join("one.cubin");
        assert_eq!(read(&file, "text"), None);
        keep(&file, "text", b"image").unwrap();
        assert_eq!(read(&file, "text").as_deref(), Some(&b"image"[..]));
        assert_eq!(read(&file, "tex"), None);
        assert_eq!(read(&file, "next"), None);
        let whole = fs::read(&file).unwrap();
        for broken in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[broken] ^= 1;
            fs::write(&file, &bytes).unwrap();
            assert_eq!(read(&file, "text"), None, "byte {broken}");
            fs::write(&file, &whole[..broken]).unwrap();
            assert_eq!(read(&file, "text"), None, "{broken} bytes");
        }
    }

    #[test]
    fn parameters_are_the_inputs_and_then_the_outputs() {
        let (inputs, outputs) = (["x".to_string(), "n".into()], ["y".to_string()]);
        let (x, n) = (Array::from_slice(&[1f32], &[1]).unwrap(), Array::from_slice(&[1i64], &[1]).unwrap());
        let function = Function {
            name: "f",
            header: "#define A\n",
            inputs: &inputs,
            outputs: &outputs,
            body: "y[0] = x[n[0]];",
            group: [64, 1],
        };
        let text = function.text(&[&x, &n], &[(&[1], Dtype::Bfloat16)]).unwrap();
        let head = "__launch_bounds__(64) @(const float* __restrict__ x, const long long* __restrict__ n, \
                    __nv_bfloat16* __restrict__ y) {\ny[0] = x[n[0]];\n}\n";
        assert!(text.ends_with(head) && text.contains("#define A\n"), "{text}");
    }
}
