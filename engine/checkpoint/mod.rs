//! Checkpoints: named tensors from and to files.
//!
//! [`load`] reads safetensors and PyTorch's `.pt` (which `lucid.save` writes, too), by what the file is; no code of a file is
//! run. [`save`] writes safetensors and replaces the file in one step.

mod pickle;
mod zip;

use crate::nn::StateDict;
use crate::{Device, Error, Result, Tensor};
use pickle::{Object, Reader};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use zip::Archive;

/// Reads all tensors of a file to a device: of a safetensors file, or of a `.pt` of PyTorch's or Lucid's.
///
/// Dictionaries and lists in a `.pt` become names with dots: `{"model": {"weight": …}}` is `model.weight`, and [`section`]
/// takes one of them apart. Numbers become 0-d tensors; text is left out.
///
/// ```
/// use lucid::prelude::*;
/// # fn main() -> Result<()> {
/// let folder = tempfile::tempdir().unwrap();
/// let path = folder.path().join("run.safetensors");
/// let model = nn::Linear::new(2, 1, Device::Cpu)?;
/// checkpoint::save(&path, &checkpoint::joined([("model", &model.state_dict()?)])?)?;
/// let run = checkpoint::load(&path, Device::Cpu)?;
/// nn::Linear::new(2, 1, Device::Cpu)?.load_state_dict(&checkpoint::section(&run, "model"))?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Error::Io`] with the path where the file cannot be read, is damaged or of another format, and [`Error::Runtime`] where
/// a `.pt` asks for other than tensors, numbers, text, lists and dictionaries.
pub fn load(path: impl AsRef<Path>, device: Device) -> Result<StateDict> {
    let path = path.as_ref();
    let mut start = [0; 4];
    let mut file = File::open(path).map_err(|e| Error::io(path, e))?;
    let read = file.read(&mut start).map_err(|e| Error::io(path, e))?;
    if read < 4 || start != *b"PK\x03\x04" {
        return named(path, device);
    }
    let mut archive = Archive::open(path)?;
    let name = archive.names().find(|n| n.ends_with("data.pkl")).map(str::to_string);
    let name = name.ok_or_else(|| archive.damaged("it has no data.pkl"))?;
    let folder = name.trim_end_matches("data.pkl").to_string();
    if archive.names().any(|n| n == format!("{folder}byteorder")) {
        let order = archive.read(&format!("{folder}byteorder"))?;
        if order != b"little" {
            return Err(archive.damaged("its numbers are big-endian"));
        }
    }
    let code = archive.read(&name)?;
    let mut reader = Reader::new(&mut archive, folder, code);
    let root = reader.run()?;
    let mut state = StateDict::new();
    flatten(&reader.objects, root, path, device, &mut state)?;
    Ok(state)
}

#[cfg(feature = "safetensors")]
fn named(path: &Path, device: Device) -> Result<StateDict> {
    crate::io::load(path, device)
}

#[cfg(not(feature = "safetensors"))]
fn named(path: &Path, _: Device) -> Result<StateDict> {
    Err(Error::file(path, "not a .pt file; safetensors files need the feature `safetensors` of the crate lucid"))
}

/// Puts the tensors under `root` into the state dict. Files can name an object in itself, so depth and number are bounded.
fn flatten(objects: &[Object], root: usize, path: &Path, device: Device, state: &mut StateDict) -> Result<()> {
    const DEEPEST: usize = 100;
    // What names a list twice, and that one another twice, would have names without end.
    const MOST: usize = 1 << 20;
    let mut open = vec![(String::new(), root, 0)];
    let mut seen = 0;
    while let Some((name, id, depth)) = open.pop() {
        seen += 1;
        if seen > MOST {
            return Err(Error::file(path, format!("it has more than {MOST} names of objects")));
        }
        if depth > DEEPEST {
            return Err(Error::file(path, format!("dictionaries are nested more than {DEEPEST} deep")));
        }
        let inner = |key: &str| if name.is_empty() { key.to_string() } else { format!("{name}.{key}") };
        let made = match &objects[id] {
            Object::Tensor(t) => t.to_device(device)?,
            Object::Int(n) => Tensor::of_elements(&[*n], &[], device)?,
            Object::Bool(b) => Tensor::of_elements(&[*b], &[], device)?,
            Object::Float(x) => Tensor::of_elements(&[*x], &[], Device::Cpu)?,
            Object::Dict(items) => {
                for &(key, value) in items {
                    let key = match &objects[key] {
                        Object::Text(text) => text.clone(),
                        Object::Int(n) => n.to_string(),
                        _ => {
                            return Err(Error::file(path, format!("a key in {name:?} is neither text nor an integer")))
                        }
                    };
                    open.push((inner(&key), value, depth + 1));
                }
                continue;
            }
            Object::List(items) => {
                open.extend(items.iter().enumerate().map(|(i, &value)| (inner(&i.to_string()), value, depth + 1)));
                continue;
            }
            Object::None | Object::Text(_) | Object::Global(_) | Object::Storage(_) | Object::Mark => continue,
        };
        state.insert(name, made);
    }
    Ok(())
}

/// Writes tensors under their names as a safetensors file; evaluates them. The file is replaced in one step.
///
/// # Errors
/// As [`crate::io::save`].
#[cfg(feature = "safetensors")]
pub fn save(path: impl AsRef<Path>, state: &StateDict) -> Result<()> {
    crate::io::save(path, state)
}

/// The tensors whose names begin with `name.`, without it.
pub fn section(state: &StateDict, name: &str) -> StateDict {
    let own = |(key, t): (&String, &Tensor)| Some((key.strip_prefix(name)?.strip_prefix('.')?.to_string(), t.clone()));
    state.iter().filter_map(own).collect()
}

/// State dicts as one, each under a name that [`section`] takes it apart by.
///
/// # Errors
/// Where a tensor would have the name of another.
pub fn joined<'a>(parts: impl IntoIterator<Item = (&'a str, &'a StateDict)>) -> Result<StateDict> {
    let mut all = StateDict::new();
    for (name, part) in parts {
        for (key, t) in part {
            if all.insert(format!("{name}.{key}"), t.clone()).is_some() {
                return Err(Error::value("checkpoint", format!("two tensors are called {name}.{key}")));
            }
        }
    }
    Ok(all)
}
