//! Named tensors as safetensors files. The header's format and checks are the `safetensors` crate's; tensors are written and read
//! one at a time, so that no file is in memory whole.

use super::replace;
use crate::fallible::{filled, grow};
use crate::{DType, Device, Error, Result, Tensor};
use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

const DTYPES: [(DType, Dtype); 16] = [
    (DType::Bool, Dtype::BOOL),
    (DType::U8, Dtype::U8),
    (DType::I8, Dtype::I8),
    (DType::I16, Dtype::I16),
    (DType::I32, Dtype::I32),
    (DType::I64, Dtype::I64),
    (DType::F16, Dtype::F16),
    (DType::BF16, Dtype::BF16),
    (DType::F32, Dtype::F32),
    (DType::F64, Dtype::F64),
    (DType::C64, Dtype::C64),
    (DType::U16, Dtype::U16),
    (DType::U32, Dtype::U32),
    (DType::U64, Dtype::U64),
    (DType::F8E4M3FN, Dtype::F8_E4M3),
    (DType::F8E5M2, Dtype::F8_E5M2),
];
/// The format's own limit, in bytes.
const LARGEST_HEADER: u64 = 100_000_000;
const PREFIX: usize = 8;

/// One tensor of a file: what it is and where its bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Sizes.
    pub shape: Vec<usize>,
    /// Where in the file its first byte is.
    pub start: usize,
    /// How many bytes.
    pub len: usize,
}

/// What a file says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The tensors, in the file's order.
    pub entries: Vec<Entry>,
    /// Free text by name.
    pub metadata: BTreeMap<String, String>,
}

/// How many bytes the prefix and the header have, by the file's first eight.
///
/// # Errors
/// [`Error::Io`] where the file is too short for it.
pub fn header_len(path: &Path, prefix: &[u8], file_len: u64) -> Result<usize> {
    let bytes: [u8; PREFIX] = prefix
        .get(..PREFIX)
        .and_then(|b| b.try_into().ok())
        .ok_or_else(|| Error::file(path, "not a safetensors file: it has less than 8 bytes"))?;
    let n = u64::from_le_bytes(bytes);
    if n > LARGEST_HEADER || n > file_len.saturating_sub(PREFIX as u64) {
        return Err(Error::file(path, format!("not a safetensors file: a header of {n} bytes")));
    }
    Ok(PREFIX + n as usize)
}

/// Reads the header of a file of `file_len` bytes from its beginning, which must have all of it.
///
/// # Errors
/// [`Error::Io`] with the path for anything that is not as the format demands.
pub fn header(path: &Path, head: &[u8], file_len: u64) -> Result<Header> {
    let bad = |why: String| Error::file(path, format!("not a safetensors file: {why}"));
    let len = header_len(path, head, file_len)?;
    let text = head.get(PREFIX..len).ok_or_else(|| bad("its header is truncated".into()))?;
    let parsed: Metadata = serde_json::from_slice(text).map_err(|e| bad(format!("its header is damaged: {e}")))?;
    if (parsed.data_len() as u64).checked_add(len as u64) != Some(file_len) {
        return Err(bad(format!("its tensors have {} bytes, the file {}", parsed.data_len(), file_len - len as u64)));
    }
    let mut entries = Vec::new();
    for name in parsed.offset_keys() {
        let Some(info) = parsed.info(&name) else { continue };
        let dtype = DTYPES.iter().find(|(_, d)| *d == info.dtype).map(|(d, _)| *d);
        let dtype = dtype
            .ok_or_else(|| Error::file(path, format!("tensor {name} has dtype {:?}, unknown here", info.dtype)))?;
        let (start, end) = info.data_offsets;
        let shape = info.shape.clone();
        if shape.iter().any(|&n| n > isize::MAX as usize) {
            return Err(Error::file(path, format!("tensor {name} has sizes {shape:?}, which do not fit into 63 bits")));
        }
        entries.push(Entry { name, dtype, shape, start: len + start, len: end - start });
    }
    let metadata = parsed.metadata().iter().flatten().map(|(k, v)| (k.clone(), v.clone())).collect();
    Ok(Header { entries, metadata })
}

/// Writes tensors under their names; evaluates them. The target is replaced in one step.
///
/// # Errors
/// [`Error::Io`] with the path where the file cannot be written, and what the evaluation reports.
///
/// # Examples
/// ```
/// use lucid::{tensor, testing::assert_close, Device};
/// let folder = tempfile::tempdir().unwrap();
/// let path = folder.path().join("one.safetensors");
/// lucid::io::save(&path, &[("w".to_string(), tensor([1.0, 2.0])?)].into())?;
/// let read = lucid::io::load(&path, Device::Cpu)?;
/// assert_close(&read["w"], [1.0, 2.0]);
/// # lucid::Result::<()>::Ok(())
/// ```
pub fn save(path: impl AsRef<Path>, tensors: &BTreeMap<String, Tensor>) -> Result<()> {
    save_with(path, tensors, &BTreeMap::new())
}

/// The same with free text beside the tensors.
///
/// # Errors
/// As [`save`].
pub fn save_with(
    path: impl AsRef<Path>,
    tensors: &BTreeMap<String, Tensor>,
    metadata: &BTreeMap<String, String>,
) -> Result<()> {
    let path = path.as_ref();
    crate::eval(&tensors.values().collect::<Vec<_>>(), true)?;
    // Wide elements first, as the crate itself orders them: then each tensor is aligned.
    let mut order: Vec<(&String, &Tensor)> = tensors.iter().collect();
    order.sort_by_key(|(_, t)| std::cmp::Reverse(t.dtype().size()));
    let mut at = 0;
    let mut infos = Vec::new();
    for (name, t) in &order {
        let Some(&(_, dtype)) = DTYPES.iter().find(|(d, _)| *d == t.dtype()) else {
            let why = format!("the format has no {}; save the parts, view_as_real shows them, of {name:?}", t.dtype());
            return Err(Error::dtype("save_safetensors", why, &[t.dtype()]));
        };
        let end = at + t.numel() * t.dtype().size();
        infos.push(((*name).clone(), TensorInfo { dtype, shape: t.shape().to_vec(), data_offsets: (at, end) }));
        at = end;
    }
    let text: HashMap<String, String> = metadata.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    let made = Metadata::new((!text.is_empty()).then_some(text), infos);
    let made = made.map_err(|e| Error::file(path, e.to_string()))?;
    let mut header = serde_json::to_vec(&made).map_err(|e| Error::file(path, e.to_string()))?;
    while !header.len().is_multiple_of(PREFIX) {
        header.push(b' ');
    }
    if header.len() as u64 > LARGEST_HEADER {
        return Err(Error::file(path, format!("the header would have {} bytes, too many", header.len())));
    }
    replace(path, |file| {
        let io = |e| Error::io(path, e);
        file.write_all(&(header.len() as u64).to_le_bytes()).map_err(io)?;
        file.write_all(&header).map_err(io)?;
        order.iter().try_for_each(|(_, t)| file.write_all(&t.to_bytes()?).map_err(io))
    })
}

/// Reads all tensors of a file to a device.
///
/// # Errors
/// [`Error::Io`] with the path where the file cannot be read or is no safetensors file, and [`Error::DtypeMismatch`] where
/// the device has not a tensor's dtype.
pub fn load(path: impl AsRef<Path>, device: Device) -> Result<BTreeMap<String, Tensor>> {
    let path = path.as_ref();
    let io = |e| Error::io(path, e);
    let mut file = File::open(path).map_err(io)?;
    let size = file.metadata().map_err(io)?.len();
    let mut head = filled(0, PREFIX.min(size as usize))?;
    file.read_exact(&mut head).map_err(io)?;
    let len = header_len(path, &head, size)?;
    grow(&mut head, len)?;
    file.read_exact(&mut head[PREFIX..]).map_err(io)?;
    let header = header(path, &head, size)?;
    let mut bytes = Vec::new();
    let read = |e: Entry| {
        grow(&mut bytes, e.len)?;
        file.seek(SeekFrom::Start(e.start as u64)).map_err(io)?;
        file.read_exact(&mut bytes).map_err(io)?;
        Ok((e.name, Tensor::of_bytes(&bytes, &e.shape, e.dtype, device)?))
    };
    header.entries.into_iter().map(read).collect()
}

/// Reads all tensors from the bytes of a safetensors file to a device.
///
/// # Errors
/// As [`load`], with `bytes` for the path.
pub fn from_bytes(data: &[u8], device: Device) -> Result<BTreeMap<String, Tensor>> {
    let path = Path::new("bytes");
    let header = header(path, data, data.len() as u64)?;
    let read = |e: Entry| {
        let bytes = e.start.checked_add(e.len).and_then(|end| data.get(e.start..end));
        let bytes = bytes.ok_or_else(|| Error::file(path, format!("tensor {} is outside of the file", e.name)))?;
        Ok((e.name, Tensor::of_bytes(bytes, &e.shape, e.dtype, device)?))
    };
    header.entries.into_iter().map(read).collect()
}
