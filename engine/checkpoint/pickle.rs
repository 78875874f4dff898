//! The part of Python's pickle format that PyTorch's state dicts are written in. Nothing of the file is run: of functions,
//! those that rebuild tensors and dictionaries are known, and every other one is an error.
//!
//! Objects live in one list and name each other by number, so that no file can make them a deep or endless structure to drop.

use super::zip::Archive;
use crate::{DType, Device, Error, Result, Tensor};
use std::collections::HashMap;

/// An object of the file.
#[derive(Clone, Debug)]
pub(super) enum Object {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    List(Vec<usize>),
    Dict(Vec<(usize, usize)>),
    Global(String),
    Storage(Tensor),
    Tensor(Tensor),
    Mark,
}

/// The machine that reads the format.
pub(super) struct Reader<'a> {
    archive: &'a mut Archive,
    folder: String,
    code: Vec<u8>,
    at: usize,
    pub(super) objects: Vec<Object>,
    stack: Vec<usize>,
    memo: HashMap<u32, usize>,
    storages: HashMap<String, Tensor>,
}

/// More objects than this are no state dict's.
const MOST_OBJECTS: usize = 50_000_000;

impl<'a> Reader<'a> {
    pub(super) fn new(archive: &'a mut Archive, folder: String, code: Vec<u8>) -> Reader<'a> {
        Reader {
            archive,
            folder,
            code,
            at: 0,
            objects: Vec::new(),
            stack: Vec::new(),
            memo: HashMap::new(),
            storages: HashMap::new(),
        }
    }

    fn bad<T>(&self, why: &str) -> Result<T> {
        Err(self.archive.damaged(&format!("its pickle, at byte {}: {why}", self.at)))
    }

    fn take(&mut self, n: usize) -> Result<&[u8]> {
        let start = self.at;
        match start.checked_add(n).filter(|&end| end <= self.code.len()) {
            Some(end) => {
                self.at = end;
                Ok(&self.code[start..end])
            }
            None => self.bad("it ends too early"),
        }
    }

    fn skip(&mut self, n: usize) -> Result<()> {
        self.take(n).map(|_| ())
    }

    fn number<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N)?);
        Ok(bytes)
    }

    fn text(&mut self, n: usize) -> Result<String> {
        match std::str::from_utf8(self.take(n)?) {
            Ok(text) => Ok(text.to_string()),
            Err(_) => self.bad("a text is not UTF-8"),
        }
    }

    fn line(&mut self) -> Result<String> {
        match self.code[self.at..].iter().position(|&b| b == b'\n') {
            Some(n) => {
                let text = self.text(n)?;
                self.at += 1;
                Ok(text)
            }
            None => self.bad("a line has no end"),
        }
    }

    fn push(&mut self, object: Object) -> Result<()> {
        if self.objects.len() >= MOST_OBJECTS {
            return self.bad("it has too many objects");
        }
        self.stack.push(self.objects.len());
        self.objects.push(object);
        Ok(())
    }

    fn pop(&mut self) -> Result<usize> {
        match self.stack.pop() {
            Some(id) => Ok(id),
            None => self.bad("it takes more than there is"),
        }
    }

    fn top(&mut self) -> Result<usize> {
        let id = self.pop()?;
        self.stack.push(id);
        Ok(id)
    }

    /// What has been pushed since the last mark.
    fn marked(&mut self) -> Result<Vec<usize>> {
        let mark = self.stack.iter().rposition(|&id| matches!(self.objects[id], Object::Mark));
        match mark {
            Some(i) => {
                let found = self.stack.split_off(i + 1);
                self.stack.pop();
                Ok(found)
            }
            None => self.bad("a mark is missing"),
        }
    }

    fn last(&mut self, n: usize) -> Result<()> {
        match self.stack.len().checked_sub(n) {
            Some(at) => {
                let items = self.stack.split_off(at);
                self.push(Object::List(items))
            }
            None => self.bad("it takes more than there is"),
        }
    }

    fn append(&mut self, items: Vec<usize>) -> Result<()> {
        let id = self.top()?;
        match &mut self.objects[id] {
            Object::List(list) => list.extend(items),
            _ => return self.bad("only lists are appended to"),
        }
        Ok(())
    }

    fn set(&mut self, items: Vec<usize>) -> Result<()> {
        let id = self.top()?;
        match &mut self.objects[id] {
            Object::Dict(dict) => dict.extend(items.chunks_exact(2).map(|pair| (pair[0], pair[1]))),
            _ => return self.bad("only dictionaries have items"),
        }
        Ok(())
    }

    fn memoize(&mut self, key: u32) -> Result<()> {
        let id = self.top()?;
        self.memo.insert(key, id);
        Ok(())
    }

    fn recall(&mut self, key: u32) -> Result<()> {
        match self.memo.get(&key) {
            Some(&id) => {
                self.stack.push(id);
                Ok(())
            }
            None => self.bad("it refers to what is not there"),
        }
    }

    /// Reads the whole, and gives the number of its object.
    pub(super) fn run(&mut self) -> Result<usize> {
        loop {
            let [op] = self.number()?;
            match op {
                b'.' => return self.pop(),
                0x80 => self.skip(1)?,
                0x95 => self.skip(8)?,
                b'(' => self.push(Object::Mark)?,
                b'N' => self.push(Object::None)?,
                0x88 => self.push(Object::Bool(true))?,
                0x89 => self.push(Object::Bool(false))?,
                b'J' => {
                    let n = i32::from_le_bytes(self.number()?);
                    self.push(Object::Int(n.into()))?;
                }
                b'K' => {
                    let [n] = self.number()?;
                    self.push(Object::Int(n.into()))?;
                }
                b'M' => {
                    let n = u16::from_le_bytes(self.number()?);
                    self.push(Object::Int(n.into()))?;
                }
                0x8a => {
                    let [n] = self.number()?;
                    if n > 8 {
                        return self.bad("an integer has more than 64 bits");
                    }
                    let bytes = self.take(n.into())?;
                    let sign = if bytes.last().is_some_and(|b| b & 0x80 != 0) { 0xff } else { 0 };
                    let mut wide = [sign; 8];
                    wide[..bytes.len()].copy_from_slice(bytes);
                    self.push(Object::Int(i64::from_le_bytes(wide)))?;
                }
                b'G' => {
                    let x = f64::from_be_bytes(self.number()?);
                    self.push(Object::Float(x))?;
                }
                b'X' => {
                    let n = u32::from_le_bytes(self.number()?);
                    let text = self.text(n as usize)?;
                    self.push(Object::Text(text))?;
                }
                0x8c | b'U' => {
                    let [n] = self.number()?;
                    let text = self.text(n.into())?;
                    self.push(Object::Text(text))?;
                }
                b'}' => self.push(Object::Dict(Vec::new()))?,
                b']' | b')' => self.push(Object::List(Vec::new()))?,
                b't' => {
                    let items = self.marked()?;
                    self.push(Object::List(items))?;
                }
                0x85 => self.last(1)?,
                0x86 => self.last(2)?,
                0x87 => self.last(3)?,
                b'a' => {
                    let item = self.pop()?;
                    self.append(vec![item])?;
                }
                b'e' => {
                    let items = self.marked()?;
                    self.append(items)?;
                }
                b's' => {
                    let (value, key) = (self.pop()?, self.pop()?);
                    self.set(vec![key, value])?;
                }
                b'u' => {
                    let items = self.marked()?;
                    self.set(items)?;
                }
                b'q' => {
                    let [key] = self.number()?;
                    self.memoize(key.into())?;
                }
                b'r' => {
                    let key = u32::from_le_bytes(self.number()?);
                    self.memoize(key)?;
                }
                0x94 => {
                    let key = self.memo.len() as u32;
                    self.memoize(key)?;
                }
                b'h' => {
                    let [key] = self.number()?;
                    self.recall(key.into())?;
                }
                b'j' => {
                    let key = u32::from_le_bytes(self.number()?);
                    self.recall(key)?;
                }
                b'c' => {
                    let name = format!("{}.{}", self.line()?, self.line()?);
                    self.push(Object::Global(name))?;
                }
                0x93 => {
                    let (name, module) = (self.pop()?, self.pop()?);
                    let (Object::Text(name), Object::Text(module)) = (&self.objects[name], &self.objects[module])
                    else {
                        return self.bad("a name is no text");
                    };
                    let name = format!("{module}.{name}");
                    self.push(Object::Global(name))?;
                }
                b'Q' => self.storage()?,
                b'R' | 0x81 => self.call()?,
                b'b' => {
                    // Attributes of an ordered dictionary (PyTorch's `_metadata`) or a parameter: of no weight.
                    self.pop()?;
                }
                op => return self.bad(&format!("opcode {op:#x} is not one of a state dict's")),
            }
        }
    }

    /// The first objects of a tuple, as many as any call here takes.
    fn list(&self, id: usize) -> Result<Vec<&Object>> {
        match &self.objects[id] {
            Object::List(items) => Ok(items.iter().take(8).map(|&i| &self.objects[i]).collect()),
            _ => self.bad("arguments are no tuple"),
        }
    }

    /// A storage by its persistent id: ("storage", class, key, device, length).
    fn storage(&mut self) -> Result<()> {
        let id = self.pop()?;
        let list = self.list(id)?;
        let [Object::Text(_), Object::Global(class), Object::Text(key), ..] = &list[..] else {
            return self.bad("a storage is not described as PyTorch's are");
        };
        if let Some(known) = self.storages.get(key).cloned() {
            return self.push(Object::Storage(known));
        }
        let (key, class) = (key.clone(), class.clone());
        let dtype = match class.rsplit('.').next().unwrap_or(&class) {
            "FloatStorage" => DType::F32,
            "DoubleStorage" => DType::F64,
            "HalfStorage" => DType::F16,
            "BFloat16Storage" => DType::BF16,
            "LongStorage" => DType::I64,
            "IntStorage" => DType::I32,
            "ShortStorage" => DType::I16,
            "CharStorage" => DType::I8,
            "ByteStorage" | "UntypedStorage" => DType::U8,
            "BoolStorage" => DType::Bool,
            "ComplexFloatStorage" => DType::C64,
            "ComplexDoubleStorage" => DType::C128,
            _ => return self.bad(&format!("elements of {class} are unknown here")),
        };
        let bytes = self.archive.read(&format!("{}data/{key}", self.folder))?;
        let count = bytes.len() / dtype.size();
        let made = Tensor::of_bytes(&bytes[..count * dtype.size()], &[count], dtype, Device::Cpu)?;
        self.storages.insert(key, made.clone());
        self.push(Object::Storage(made))
    }

    /// A call of one of the known functions.
    fn call(&mut self) -> Result<()> {
        let (arguments, function) = (self.pop()?, self.pop()?);
        let Object::Global(name) = self.objects[function].clone() else {
            return self.bad("what is called is no function");
        };
        let list = self.list(arguments)?;
        let leaf = name.rsplit('.').next().unwrap_or(&name);
        match leaf {
            "OrderedDict" => self.push(Object::Dict(Vec::new())),
            "_rebuild_parameter" | "_rebuild_parameter_with_state" => match list.first() {
                Some(Object::Tensor(t)) => {
                    let t = t.clone();
                    self.push(Object::Tensor(t))
                }
                _ => self.bad("a parameter has no tensor"),
            },
            "_rebuild_tensor_v2" | "_rebuild_tensor" => {
                let [Object::Storage(storage), Object::Int(offset), sizes, strides, ..] = &list[..] else {
                    return self.bad("a tensor is not described as PyTorch's are");
                };
                let (sizes, strides) = (self.integers(sizes)?, self.integers(strides)?);
                let made = storage.as_strided(&sizes, &strides, Some(*offset)).and_then(|t| t.contiguous());
                let made = made.map_err(|e| self.archive.damaged(&format!("a tensor of it: {e}")))?;
                self.push(Object::Tensor(made))
            }
            "Size" => match &self.objects[arguments] {
                Object::List(items) if !items.is_empty() => {
                    self.stack.push(items[0]);
                    Ok(())
                }
                _ => self.push(Object::List(Vec::new())),
            },
            _ => Err(Error::runtime(
                "load",
                format!("the file asks for {name}, which is no weight; save a state dict, and nothing but tensors"),
            )),
        }
    }

    fn integers(&self, object: &Object) -> Result<Vec<isize>> {
        let Object::List(items) = object else { return self.bad("sizes are no tuple") };
        let one = |&i: &usize| match self.objects[i] {
            Object::Int(n) => Ok(n as isize),
            _ => self.bad("a size is no integer"),
        };
        items.iter().map(one).collect()
    }
}
