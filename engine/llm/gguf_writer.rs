//! Writes GGUF files (version 3, little endian), and quantises matrices to their formats of 32 elements a block.
//!
//! Depends on `gguf` for values and `blocks` for formats. Invariant: what is written, `gguf::read` reads as the same.
//! Reference: the GGUF specification and the reference quantisation (`quantize_row_*_ref`) of the ggml project.

use super::blocks::Kind;
use super::gguf::Value;
use crate::fallible::with_capacity;
use crate::{DType, Error, Result, Tensor};
use half::f16;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

const OP: &str = "write_gguf";
/// Tensors start at multiples of so many bytes.
const ALIGNMENT: usize = 32;

/// Formats that [`encode`] writes.
pub const WRITABLE: &[Kind] =
    &[Kind::F32, Kind::F16, Kind::BF16, Kind::Q4_0, Kind::Q4_1, Kind::Q5_0, Kind::Q5_1, Kind::Q8_0];

/// Rounds and clamps as C does it: the fraction is cut.
fn cut(x: f32, most: f32) -> u8 {
    x.max(0.0).min(most) as u8
}

/// The element that is farthest from 0, with its sign, or NaN where there is one.
fn extreme(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |a: f32, &b| if b.abs() > a.abs() || b.is_nan() { b } else { a })
}

/// The inverse of a scale, 0 for 0.
fn inverse(scale: f32) -> f32 {
    if scale == 0.0 {
        0.0
    } else {
        1.0 / scale
    }
}

/// Appends 32 elements of 4 bits, after the fifth bits where there are any.
fn push_nibbles(q: &[u8; 32], fifth: bool, out: &mut Vec<u8>) {
    if fifth {
        let high = q.iter().enumerate().fold(0u32, |bits, (i, q)| bits | u32::from(q >> 4 & 1) << i);
        out.extend(high.to_le_bytes());
    }
    out.extend((0..16).map(|i| q[i] & 15 | (q[i + 16] & 15) << 4));
}

/// Appends a block of 32 elements.
fn push_block(x: &[f32], kind: Kind, out: &mut Vec<u8>) {
    let half = |x: f32| f16::from_f32(x).to_le_bytes();
    let mut q = [0u8; 32];
    match kind {
        Kind::Q8_0 => {
            let scale = extreme(x).abs() / 127.0;
            let by = inverse(scale);
            out.extend(half(scale));
            out.extend(x.iter().map(|x| ((x * by).round() as i8).to_le_bytes()[0]));
        }
        Kind::Q4_0 | Kind::Q5_0 => {
            let middle = if kind == Kind::Q4_0 { 8.0 } else { 16.0 };
            let scale = extreme(x) / -middle;
            let by = inverse(scale);
            q.iter_mut().zip(x).for_each(|(q, x)| *q = cut(x * by + middle + 0.5, 2.0 * middle - 1.0));
            out.extend(half(scale));
            push_nibbles(&q, kind == Kind::Q5_0, out);
        }
        Kind::Q4_1 | Kind::Q5_1 => {
            let most = if kind == Kind::Q4_1 { 15.0 } else { 31.0 };
            let (low, high) = x.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(l, h), &x| (l.min(x), h.max(x)));
            let scale = (high - low) / most;
            let by = inverse(scale);
            q.iter_mut().zip(x).for_each(|(q, x)| *q = cut((x - low) * by + 0.5, most));
            out.extend(half(scale));
            out.extend(half(low));
            push_nibbles(&q, kind == Kind::Q5_1, out);
        }
        Kind::F32 | Kind::F16 | Kind::BF16 | Kind::F64 | Kind::I8 | Kind::I16 | Kind::I32 | Kind::I64 => {}
        // Of 256 elements: not written.
        Kind::Q4_K | Kind::Q5_K | Kind::Q6_K => {}
    }
}

/// The bytes of a float tensor in a format.
///
/// # Errors
/// [`Error::InvalidValue`] for a format that is not in [`WRITABLE`], rows that are no whole blocks, and elements that are
/// not finite where the format has blocks; [`Error::UnsupportedDtype`] or a dtype error for tensors that are not floats.
pub fn encode(tensor: &Tensor, kind: Kind) -> Result<Vec<u8>> {
    if !WRITABLE.contains(&kind) {
        let names: Vec<_> = WRITABLE.iter().map(|k| k.name()).collect();
        return Err(Error::value(OP, format!("{} is not written; {} are", kind.name(), names.join(", "))));
    }
    if !tensor.dtype().is_float() {
        return Err(Error::dtype(OP, "expected a tensor of floats", &[tensor.dtype()]));
    }
    let len = kind.bytes_of(tensor.shape()).ok_or_else(|| {
        let why = format!("rows are no whole blocks of {} elements ({})", kind.block().0, kind.name());
        Error::shape(OP, why, &[tensor.shape()])
    })?;
    if let Some(dtype) = kind.dtype() {
        return tensor.cast(dtype)?.to_bytes();
    }
    let bytes = tensor.cast(DType::F32)?.to_bytes()?;
    let mut out = with_capacity(len)?;
    let mut block = [0f32; 32];
    for chunk in bytes.chunks_exact(4 * block.len()) {
        for (x, b) in block.iter_mut().zip(chunk.chunks_exact(4)) {
            *x = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        }
        if !block.iter().all(|x| x.is_finite()) {
            return Err(Error::value(OP, format!("an element is not finite, which {} cannot hold", kind.name())));
        }
        push_block(&block, kind, &mut out);
    }
    Ok(out)
}

fn push_text(text: &str, out: &mut Vec<u8>) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

/// The number of a value's type: 32 bits where they hold it.
fn type_of(value: &Value) -> u32 {
    match value {
        Value::Unsigned(n) if u32::try_from(*n).is_ok() => 4,
        Value::Unsigned(_) => 10,
        Value::Signed(n) if i32::try_from(*n).is_ok() => 5,
        Value::Signed(_) => 11,
        Value::Float(_) => 6,
        Value::Bool(_) => 7,
        Value::Text(_) => 8,
        Value::List(_) => 9,
    }
}

fn push_value(key: &str, value: &Value, kind: u32, out: &mut Vec<u8>) -> Result<()> {
    match (value, kind) {
        (Value::Unsigned(n), 4) => out.extend((*n as u32).to_le_bytes()),
        (Value::Unsigned(n), _) => out.extend(n.to_le_bytes()),
        (Value::Signed(n), 5) => out.extend((*n as i32).to_le_bytes()),
        (Value::Signed(n), _) => out.extend(n.to_le_bytes()),
        (Value::Float(x), _) => out.extend((*x as f32).to_le_bytes()),
        (Value::Bool(b), _) => out.push((*b).into()),
        (Value::Text(text), _) => push_text(text, out),
        (Value::List(list), _) => {
            // Numbers of one list have one type: the widest that is needed.
            let of = list.iter().map(type_of).max().unwrap_or(8);
            if list.iter().any(|v| std::mem::discriminant(v) != std::mem::discriminant(&list[0])) {
                return Err(Error::value(OP, format!("the list {key:?} holds values of several types")));
            }
            out.extend(of.to_le_bytes());
            out.extend((list.len() as u64).to_le_bytes());
            for value in list {
                push_value(key, value, of, out)?;
            }
        }
    }
    Ok(())
}

/// Writes a file: metadata, and tensors by name, each in a format.
///
/// # Errors
/// [`Error::Io`] with the path; as [`encode`] for the tensors.
pub fn write(path: &Path, metadata: &BTreeMap<String, Value>, tensors: &[(String, Kind, Tensor)]) -> Result<()> {
    let mut head = Vec::new();
    head.extend(b"GGUF");
    head.extend(3u32.to_le_bytes());
    head.extend((tensors.len() as u64).to_le_bytes());
    head.extend((metadata.len() as u64).to_le_bytes());
    for (key, value) in metadata {
        push_text(key, &mut head);
        let kind = type_of(value);
        head.extend(kind.to_le_bytes());
        push_value(key, value, kind, &mut head)?;
    }
    let mut start = 0usize;
    for (name, kind, tensor) in tensors {
        push_text(name, &mut head);
        head.extend((tensor.shape().len() as u32).to_le_bytes());
        for &size in tensor.shape().iter().rev() {
            head.extend((size as u64).to_le_bytes());
        }
        head.extend(kind.code().to_le_bytes());
        head.extend((start as u64).to_le_bytes());
        let len = kind.bytes_of(tensor.shape()).ok_or_else(|| {
            let why = format!("the rows of {name:?} are no whole blocks of {} elements", kind.block().0);
            Error::shape(OP, why, &[tensor.shape()])
        })?;
        start = (start + len).next_multiple_of(ALIGNMENT);
    }
    crate::io::replace(path, |out| {
        let failed = |e| Error::io(path, e);
        let padding = |len: usize| zeros(len.next_multiple_of(ALIGNMENT) - len);
        out.write_all(&head).and_then(|()| out.write_all(padding(head.len()))).map_err(failed)?;
        for (_, kind, tensor) in tensors {
            let bytes = encode(tensor, *kind)?;
            out.write_all(&bytes).and_then(|()| out.write_all(padding(bytes.len()))).map_err(failed)?;
        }
        Ok(())
    })
}

/// So many zeros, below the alignment.
fn zeros(len: usize) -> &'static [u8] {
    static ZEROS: [u8; ALIGNMENT] = [0; ALIGNMENT];
    &ZEROS[..len]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::blocks::dequantize;
    use crate::llm::gguf::Gguf;
    use crate::Device;

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.gguf");
        let values: Vec<f32> = (0..192).map(|i| ((i * 37 % 101) as f32 - 50.0) / 25.0).collect();
        let x = Tensor::of_elements(&values, &[3, 64], Device::Cpu).unwrap();
        let metadata: BTreeMap<String, Value> = [
            ("general.architecture", Value::Text("llama".into())),
            ("a.u", Value::Unsigned(7)),
            ("a.big", Value::Unsigned(1 << 40)),
            ("a.s", Value::Signed(-7)),
            ("a.f", Value::Float(0.5)),
            ("a.b", Value::Bool(true)),
            ("a.l", Value::List(vec![Value::Text("é".into()), Value::Text(String::new())])),
            ("a.n", Value::List(vec![Value::Signed(1), Value::Signed(1 << 40)])),
        ]
        .map(|(k, v)| (k.to_string(), v))
        .into();
        let tensors: Vec<_> = WRITABLE.iter().map(|&k| (format!("w.{}", k.name()), k, x.clone())).collect();
        write(&path, &metadata, &tensors).unwrap();
        let mut file = Gguf::open(&path).unwrap();
        assert_eq!(file.header().metadata, metadata);
        for (name, kind, _) in &tensors {
            let got: Vec<f32> = file.tensor(name).unwrap().cast(DType::F32).unwrap().to_vec().unwrap();
            // Half a step of a format's scale, for elements within 2.
            let bound = match kind {
                Kind::F32 => 0.0,
                Kind::F16 | Kind::BF16 => 0.008,
                Kind::Q8_0 => 0.01,
                Kind::Q5_0 | Kind::Q5_1 => 0.13,
                _ => 0.26,
            };
            for (a, b) in got.iter().zip(&values) {
                assert!((a - b).abs() <= bound, "{name}: {a} for {b}");
            }
        }
        let odd = Tensor::of_elements(&values[..33], &[33], Device::Cpu).unwrap();
        assert!(encode(&odd, Kind::Q8_0).is_err() && encode(&x, Kind::Q6_K).is_err());
        let nan = Tensor::of_elements(&[f32::NAN; 32], &[32], Device::Cpu).unwrap();
        assert!(encode(&nan, Kind::Q4_0).is_err() && encode(&nan, Kind::F16).is_ok());
        let zero = Tensor::of_elements(&[0f32; 32], &[32], Device::Cpu).unwrap();
        for kind in [Kind::Q4_0, Kind::Q4_1, Kind::Q5_0, Kind::Q5_1, Kind::Q8_0] {
            let bytes = encode(&zero, kind).unwrap();
            let blocks = Tensor::of_elements(&bytes, &[bytes.len()], Device::Cpu).unwrap();
            let back: Vec<f32> = dequantize(&blocks, kind, &[32]).unwrap().to_vec().unwrap();
            assert!(back.iter().all(|&x| x == 0.0), "{}", kind.name());
        }
    }
}
