//! GGUF's block formats: elements as floats, and the same matrices in the packed layout of `quantized_matmul`.
//!
//! All but `Q6_K` are affine in groups of 32, so that [`repack`] loses nothing but the rounding of scales to the dtype
//! that is asked for. Invariant: a tensor of bytes of the wrong size is an error. Reference: ggml's `ggml-quants.c`.

use crate::fallible::filled;
use crate::{DType, Device, Error, Result, Tensor};
use half::f16;

macro_rules! kinds {
    ($(
        $(#[doc = $doc:literal])+
        $Kind:ident = $code:literal, $name:literal, $block:literal, $bytes:literal, $dtype:expr;
    )*) => {
        /// How a tensor's elements are stored.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(non_camel_case_types)] // ggml's names.
        pub enum Kind { $($(#[doc = $doc])+ $Kind,)* }

        impl Kind {
            /// Every kind.
            pub const ALL: &'static [Kind] = &[$(Kind::$Kind),*];

            /// The one of ggml's number.
            pub fn of_code(code: u32) -> Option<Kind> {
                match code { $($code => Some(Kind::$Kind),)* _ => None }
            }

            /// ggml's number.
            pub fn code(self) -> u32 {
                match self { $(Kind::$Kind => $code,)* }
            }

            /// ggml's name.
            pub fn name(self) -> &'static str {
                match self { $(Kind::$Kind => $name,)* }
            }

            /// The one of that name.
            pub fn of_name(name: &str) -> Option<Kind> {
                Kind::ALL.iter().copied().find(|k| k.name() == name)
            }

            /// Elements and bytes of a block.
            pub fn block(self) -> (usize, usize) {
                match self { $(Kind::$Kind => ($block, $bytes),)* }
            }

            /// The dtype of what is stored element by element.
            pub fn dtype(self) -> Option<DType> {
                match self { $(Kind::$Kind => $dtype,)* }
            }
        }
    };
}

kinds! {
    /// float32
    F32 = 0, "F32", 1, 4, Some(DType::F32);
    /// float16
    F16 = 1, "F16", 1, 2, Some(DType::F16);
    /// 4 bits, a scale for 32.
    Q4_0 = 2, "Q4_0", 32, 18, None;
    /// 4 bits, a scale and a minimum for 32.
    Q4_1 = 3, "Q4_1", 32, 20, None;
    /// 5 bits, a scale for 32.
    Q5_0 = 6, "Q5_0", 32, 22, None;
    /// 5 bits, a scale and a minimum for 32.
    Q5_1 = 7, "Q5_1", 32, 24, None;
    /// 8 bits, a scale for 32.
    Q8_0 = 8, "Q8_0", 32, 34, None;
    /// 4 bits, 6-bit scales and minimums for 32 of 256.
    Q4_K = 12, "Q4_K", 256, 144, None;
    /// 5 bits, 6-bit scales and minimums for 32 of 256.
    Q5_K = 13, "Q5_K", 256, 176, None;
    /// 6 bits, 8-bit scales for 16 of 256.
    Q6_K = 14, "Q6_K", 256, 210, None;
    /// int8
    I8 = 24, "I8", 1, 1, Some(DType::I8);
    /// int16
    I16 = 25, "I16", 1, 2, Some(DType::I16);
    /// int32
    I32 = 26, "I32", 1, 4, Some(DType::I32);
    /// int64
    I64 = 27, "I64", 1, 8, Some(DType::I64);
    /// float64
    F64 = 28, "F64", 1, 8, Some(DType::F64);
    /// bfloat16
    BF16 = 30, "BF16", 1, 2, Some(DType::BF16);
}

impl Kind {
    /// Bytes of a tensor; `None` where its rows are no whole blocks or no memory holds it.
    pub fn bytes_of(self, shape: &[usize]) -> Option<usize> {
        let (block, bytes) = self.block();
        let numel = shape.iter().try_fold(1usize, |n, &size| n.checked_mul(size))?;
        let whole = block == 1 || shape.last().is_some_and(|&n| n.is_multiple_of(block));
        let size = (numel / block).checked_mul(bytes).filter(|&n| n <= isize::MAX as usize);
        size.filter(|_| whole)
    }
}

/// A group of 32 elements: `scale · q + bias`.
struct Group {
    q: [u8; 32],
    scale: f32,
    bias: f32,
}

fn half(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

/// Elements of 4 bits: the lower halves of all bytes first.
fn nibbles(bytes: &[u8]) -> [u8; 32] {
    std::array::from_fn(|i| if i < 16 { bytes[i] & 15 } else { bytes[i - 16] >> 4 })
}

/// The same with a fifth bit each.
fn fives(high: &[u8], bytes: &[u8]) -> [u8; 32] {
    let low = nibbles(bytes);
    std::array::from_fn(|i| low[i] | (high[i / 8] >> (i % 8) & 1) << 4)
}

/// Scale and minimum `j` of 8 that are packed into 12 bytes.
fn six_bits(packed: &[u8], j: usize) -> (f32, f32) {
    let (scale, least) = match j < 4 {
        true => (packed[j] & 63, packed[j + 4] & 63),
        false => (packed[j + 4] & 15 | packed[j - 4] >> 6 << 4, packed[j + 4] >> 4 | packed[j] >> 6 << 4),
    };
    (scale.into(), least.into())
}

/// The groups of a block of a kind that is affine in groups of 32.
fn groups(kind: Kind, b: &[u8], mut each: impl FnMut(Group)) {
    match kind {
        Kind::Q4_0 => {
            let scale = half(b, 0);
            each(Group { q: nibbles(&b[2..]), scale, bias: -8.0 * scale });
        }
        Kind::Q4_1 => each(Group { q: nibbles(&b[4..]), scale: half(b, 0), bias: half(b, 2) }),
        Kind::Q5_0 => {
            let scale = half(b, 0);
            each(Group { q: fives(&b[2..6], &b[6..]), scale, bias: -16.0 * scale });
        }
        Kind::Q5_1 => each(Group { q: fives(&b[4..8], &b[8..]), scale: half(b, 0), bias: half(b, 2) }),
        Kind::Q8_0 => {
            let scale = half(b, 0);
            // Signed bytes, counted from -128 on.
            each(Group { q: std::array::from_fn(|i| b[2 + i] ^ 128), scale, bias: -128.0 * scale });
        }
        Kind::Q4_K | Kind::Q5_K => {
            let (scale, least) = (half(b, 0), half(b, 2));
            let five = kind == Kind::Q5_K;
            let low = &b[if five { 48 } else { 16 }..];
            for j in 0..8 {
                let (s, m) = six_bits(&b[4..16], j);
                let shift = 4 * (j % 2);
                let q = std::array::from_fn(|i| {
                    let fifth = if five { (b[16 + i] >> j & 1) << 4 } else { 0 };
                    low[j / 2 * 32 + i] >> shift & 15 | fifth
                });
                each(Group { q, scale: scale * s, bias: -least * m });
            }
        }
        Kind::Q6_K | Kind::F32 | Kind::F16 | Kind::BF16 | Kind::F64 | Kind::I8 | Kind::I16 | Kind::I32 | Kind::I64 => {}
    }
}

/// 256 elements of 6 bits.
fn sixes(b: &[u8], out: &mut [f32]) {
    let (low, high, scales) = (&b[..128], &b[128..192], &b[192..208]);
    let d = half(b, 208);
    for (i, o) in out.iter_mut().enumerate() {
        let (part, at) = (i / 128, i % 128);
        let nibble = low[64 * part + at % 64] >> (4 * (at / 64)) & 15;
        let two = high[32 * part + at % 32] >> (2 * (at / 32)) & 3;
        let scale = f32::from(scales[i / 16] as i8);
        *o = d * scale * (f32::from(nibble | two << 4) - 32.0);
    }
}

fn checked(op: &'static str, blocks: &Tensor, kind: Kind, shape: &[usize]) -> Result<Vec<u8>> {
    if blocks.dtype() != DType::U8 {
        return Err(Error::dtype(op, "expected blocks as bytes, dtype uint8", &[blocks.dtype()]));
    }
    if kind.bytes_of(shape) != Some(blocks.numel()) {
        let why = format!("{} bytes are no {} tensor of shape {shape:?}", blocks.numel(), kind.name());
        return Err(Error::shape(op, why, &[blocks.shape(), shape]));
    }
    blocks.to_bytes()
}

/// The elements of blocks of bytes as float32, on the CPU.
///
/// # Errors
/// For bytes that are not uint8, whose number does not fit the shape, or of a kind that has no blocks.
pub fn dequantize(blocks: &Tensor, kind: Kind, shape: &[usize]) -> Result<Tensor> {
    const OP: &str = "dequantize_gguf";
    let bytes = checked(OP, blocks, kind, shape)?;
    let (size, width) = kind.block();
    if kind.dtype().is_some() {
        return Err(Error::value(OP, format!("{} is not stored in blocks", kind.name())));
    }
    let mut out = filled(0f32, bytes.len() / width * size)?;
    for (block, out) in bytes.chunks_exact(width).zip(out.chunks_exact_mut(size)) {
        if kind == Kind::Q6_K {
            sixes(block, out);
            continue;
        }
        let mut rest = out.chunks_exact_mut(32);
        groups(kind, block, |g| {
            if let Some(out) = rest.next() {
                out.iter_mut().zip(g.q).for_each(|(o, q)| *o = f32::from(q) * g.scale + g.bias);
            }
        });
    }
    Tensor::of_elements(&out, shape, Device::Cpu)
}

/// The bits of an element in the packed layout; `None` for what has no such form.
pub fn repacked_bits(kind: Kind) -> Option<usize> {
    match kind {
        Kind::Q4_0 | Kind::Q4_1 | Kind::Q4_K => Some(4),
        Kind::Q5_0 | Kind::Q5_1 | Kind::Q5_K => Some(5),
        Kind::Q8_0 => Some(8),
        Kind::Q6_K | Kind::F32 | Kind::F16 | Kind::BF16 | Kind::F64 | Kind::I8 | Kind::I16 | Kind::I32 | Kind::I64 => {
            None
        }
    }
}

/// Packed words, scales and biases (float32) of a matrix in groups of 32, with the elements that it has in blocks.
///
/// # Errors
/// As [`dequantize`], and for `Q6_K`, whose groups of 16 the layout has not.
pub fn repack(blocks: &Tensor, kind: Kind, shape: &[usize]) -> Result<[Tensor; 3]> {
    const OP: &str = "repack_gguf";
    let bytes = checked(OP, blocks, kind, shape)?;
    let bits = repacked_bits(kind)
        .ok_or_else(|| Error::value(OP, format!("{} has no groups of 32; dequantize it", kind.name())))?;
    let (size, width) = kind.block();
    let count = bytes.len() / width * size / 32;
    let mut words = filled(0i32, count * bits)?;
    let (mut scales, mut biases) = (filled(0f32, count)?, filled(0f32, count)?);
    let mut to = words.chunks_exact_mut(bits).zip(scales.iter_mut().zip(&mut biases));
    for block in bytes.chunks_exact(width) {
        groups(kind, block, |g| {
            let Some((words, (scale, bias))) = to.next() else { return };
            (*scale, *bias) = (g.scale, g.bias);
            let mut pending = 0u64;
            let (mut held, mut next) = (0, 0);
            for q in g.q {
                pending |= u64::from(q) << held;
                held += bits;
                if held >= 32 {
                    words[next] = pending as u32 as i32;
                    (pending, held, next) = (pending >> 32, held - 32, next + 1);
                }
            }
        });
    }
    let (last, lead) = shape.split_last().unwrap_or((&1, &[]));
    let of = |n: usize| [lead, &[n]].concat();
    Ok([
        Tensor::of_elements(&words, &of(last / 32 * bits), Device::Cpu)?,
        Tensor::of_elements(&scales, &of(last / 32), Device::Cpu)?,
        Tensor::of_elements(&biases, &of(last / 32), Device::Cpu)?,
    ])
}
