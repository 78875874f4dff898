//! GGUF files: metadata and tensors of a language model in one file (versions 2 and 3, little endian).
//!
//! Lengths are checked against what is left of the file before anything is allocated, and strings are UTF-8. Depends on
//! `blocks` for the tensors' formats. Reference: the GGUF specification of the ggml project.

use super::blocks::Kind;
use crate::fallible::{filled, with_capacity};
use crate::{DType, Device, Error, Result, Tensor};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 4] = b"GGUF";
/// Dimensions that a tensor may have.
const MOST_DIMENSIONS: u32 = 8;
/// Arrays in arrays.
const DEEPEST: usize = 4;

/// A value of the metadata.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Any unsigned integer.
    Unsigned(u64),
    /// Any signed integer.
    Signed(i64),
    /// float32 or float64.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// Text.
    Text(String),
    /// Values of one type.
    List(Vec<Value>),
}

/// One tensor of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// How its elements are stored.
    pub kind: Kind,
    /// Sizes, the slowest first, as PyTorch has them; GGUF writes them the other way round.
    pub shape: Vec<usize>,
    /// Where in the file its first byte is.
    pub start: u64,
    /// How many bytes.
    pub len: usize,
}

/// What a file says about itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// The version of the format.
    pub version: u32,
    /// The metadata by key.
    pub metadata: BTreeMap<String, Value>,
    /// The tensors, in the file's order.
    pub entries: Vec<Entry>,
}

/// Reads and counts what is left.
struct Source<'a, R> {
    path: &'a Path,
    reader: R,
    left: u64,
}

impl<R: Read> Source<'_, R> {
    fn bad(&self, why: impl std::fmt::Display) -> Box<Error> {
        Error::file(self.path, format!("not a GGUF file: {why}"))
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut out = [0; N];
        if self.left < N as u64 {
            return Err(self.bad("it is truncated"));
        }
        self.reader.read_exact(&mut out).map_err(|e| Error::io(self.path, e))?;
        self.left -= N as u64;
        Ok(out)
    }

    fn u32(&mut self) -> Result<u32> {
        self.bytes().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64> {
        self.bytes().map(u64::from_le_bytes)
    }

    /// How many things of at least so many bytes each come next.
    fn count(&mut self, each: u64, what: &str) -> Result<usize> {
        let n = self.u64()?;
        match n.checked_mul(each).is_some_and(|bytes| bytes <= self.left) {
            true => Ok(n as usize),
            false => Err(self.bad(format!("{n} {what} do not fit into the {} bytes that are left", self.left))),
        }
    }

    fn text(&mut self) -> Result<String> {
        let len = self.count(1, "bytes of text")?;
        let mut out = filled(0u8, len)?;
        self.reader.read_exact(&mut out).map_err(|e| Error::io(self.path, e))?;
        self.left -= len as u64;
        String::from_utf8(out).map_err(|_| self.bad("a text is not UTF-8"))
    }

    fn value(&mut self, kind: u32, depth: usize) -> Result<Value> {
        Ok(match kind {
            0 => Value::Unsigned(self.bytes::<1>()?[0].into()),
            1 => Value::Signed(i8::from_le_bytes(self.bytes()?).into()),
            2 => Value::Unsigned(u16::from_le_bytes(self.bytes()?).into()),
            3 => Value::Signed(i16::from_le_bytes(self.bytes()?).into()),
            4 => Value::Unsigned(self.u32()?.into()),
            5 => Value::Signed(i32::from_le_bytes(self.bytes()?).into()),
            6 => Value::Float(f32::from_le_bytes(self.bytes()?).into()),
            7 => match self.bytes::<1>()?[0] {
                byte @ 0..=1 => Value::Bool(byte == 1),
                byte => return Err(self.bad(format!("a truth value is {byte}"))),
            },
            8 => Value::Text(self.text()?),
            9 => {
                let of = self.u32()?;
                if depth == DEEPEST {
                    return Err(self.bad(format!("arrays are nested more than {DEEPEST} deep")));
                }
                let each = match of {
                    0 | 1 | 7 => 1,
                    2 | 3 => 2,
                    4..=6 => 4,
                    9 => 12,
                    _ => 8,
                };
                let n = self.count(each, "elements of an array")?;
                let mut list = with_capacity(n)?;
                for _ in 0..n {
                    list.push(self.value(of, depth + 1)?);
                }
                Value::List(list)
            }
            10 => Value::Unsigned(self.u64()?),
            11 => Value::Signed(i64::from_le_bytes(self.bytes()?)),
            12 => Value::Float(f64::from_le_bytes(self.bytes()?)),
            other => return Err(self.bad(format!("a value has the unknown type {other}"))),
        })
    }

    fn entry(&mut self) -> Result<Entry> {
        let name = self.text()?;
        let dims = self.u32()?;
        if dims > MOST_DIMENSIONS {
            return Err(self.bad(format!("tensor {name:?} has {dims} dimensions")));
        }
        let mut shape = Vec::new();
        for _ in 0..dims {
            let size = usize::try_from(self.u64()?).ok().filter(|&n| n <= isize::MAX as usize);
            shape.push(size.ok_or_else(|| self.bad(format!("tensor {name:?} has sizes that no memory holds")))?);
        }
        shape.reverse();
        let code = self.u32()?;
        let kind = Kind::of_code(code);
        let kind = kind.ok_or_else(|| {
            let why = format!("tensor {name:?} has the format {code}, unknown here; convert it to Q4_K, Q8_0 or F16");
            Error::file(self.path, why)
        })?;
        let len = kind.bytes_of(&shape);
        let len = len.ok_or_else(|| {
            self.bad(format!("tensor {name:?} of shape {shape:?} has no whole number of {} blocks", kind.name()))
        })?;
        Ok(Entry { name, kind, shape, start: self.u64()?, len })
    }
}

/// Reads the header of a file of `len` bytes.
///
/// # Errors
/// [`Error::Io`] with the path for anything that is not as the format demands.
pub fn read(path: &Path, reader: impl Read, len: u64) -> Result<Header> {
    let mut source = Source { path, reader, left: len };
    if &source.bytes::<4>()? != MAGIC {
        return Err(source.bad("it does not begin with GGUF"));
    }
    let version = source.u32()?;
    if !(2..=3).contains(&version) {
        let why = match version.swap_bytes() {
            2 | 3 => "it is big endian, which is not read here".to_string(),
            _ => format!("it has version {version}; 2 and 3 are read"),
        };
        return Err(source.bad(why));
    }
    // A tensor has a name, a number of dimensions, a type and an offset; an entry a key, a type and a value.
    let tensors = source.count(24, "tensors")?;
    let entries = source.count(13, "metadata entries")?;
    let mut metadata = BTreeMap::new();
    for _ in 0..entries {
        let key = source.text()?;
        let kind = source.u32()?;
        let value = source.value(kind, 0)?;
        if metadata.contains_key(&key) {
            return Err(source.bad(format!("the key {key:?} is there twice")));
        }
        metadata.insert(key, value);
    }
    let alignment = match metadata.get("general.alignment") {
        None => 32,
        Some(&Value::Unsigned(n)) if n.is_power_of_two() && n <= 1 << 20 => n,
        Some(other) => return Err(source.bad(format!("its alignment is {other:?}, no small power of two"))),
    };
    let mut listed = with_capacity(tensors)?;
    let mut names = std::collections::HashSet::new();
    for _ in 0..tensors {
        let entry = source.entry()?;
        if !names.insert(entry.name.clone()) {
            return Err(source.bad(format!("the tensor {:?} is there twice", entry.name)));
        }
        listed.push(entry);
    }
    let data = (len - source.left).next_multiple_of(alignment);
    for entry in &mut listed {
        let start = entry.start.checked_add(data);
        let end = start.and_then(|start| start.checked_add(entry.len as u64));
        if end.is_none_or(|end| end > len) || !entry.start.is_multiple_of(alignment) {
            let why = format!("tensor {:?} is outside of the file, or is not aligned", entry.name);
            return Err(Error::file(path, format!("not a GGUF file: {why}")));
        }
        entry.start += data;
    }
    Ok(Header { version, metadata, entries: listed })
}

/// An open file.
///
/// # Examples
/// ```no_run
/// let mut file = lucid::llm::gguf::Gguf::open("model.gguf")?;
/// println!("{:?}", file.header().metadata.get("general.architecture"));
/// let embeddings = file.tensor("token_embd.weight")?;
/// # lucid::Result::<()>::Ok(())
/// ```
#[derive(Debug)]
pub struct Gguf {
    path: PathBuf,
    file: File,
    header: Header,
}

impl Gguf {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    /// [`Error::Io`] with the path.
    pub fn open(path: impl AsRef<Path>) -> Result<Gguf> {
        let path = path.as_ref().to_path_buf();
        let file = File::open(&path).map_err(|e| Error::io(&path, e))?;
        let len = file.metadata().map_err(|e| Error::io(&path, e))?.len();
        let header = read(&path, BufReader::new(&file), len)?;
        Ok(Gguf { path, file, header })
    }

    /// What it says about itself.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// A tensor's bytes as they are stored.
    ///
    /// # Errors
    /// [`Error::Io`] with the path, also where there is no tensor of that name.
    pub fn bytes(&mut self, name: &str) -> Result<(Entry, Vec<u8>)> {
        let entry = self.header.entries.iter().find(|e| e.name == name).cloned();
        let entry = entry.ok_or_else(|| Error::file(&self.path, format!("there is no tensor {name:?}")))?;
        let mut bytes = filled(0u8, entry.len)?;
        let read = self.file.seek(SeekFrom::Start(entry.start)).and_then(|_| self.file.read_exact(&mut bytes));
        read.map_err(|e| Error::io(&self.path, e))?;
        Ok((entry, bytes))
    }

    /// A tensor, its elements as float32, or as they are where they are floats or integers.
    ///
    /// # Errors
    /// As [`bytes`](Gguf::bytes).
    pub fn tensor(&mut self, name: &str) -> Result<Tensor> {
        let (entry, bytes) = self.bytes(name)?;
        match entry.kind.dtype() {
            Some(dtype) => Tensor::of_bytes(&bytes, &entry.shape, dtype, Device::Cpu),
            None => {
                let blocks = Tensor::of_bytes(&bytes, &[bytes.len()], DType::U8, Device::Cpu)?;
                super::blocks::dequantize(&blocks, entry.kind, &entry.shape)
            }
        }
    }
}
