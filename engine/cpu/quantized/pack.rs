//! The packed format: rows of elements of 2 to 8 bits, lowest bits first, with a scale and a bias for each group.
//!
//! Depends on `simd` for threads and half floats. Invariant: rounding and order of operations are MLX's, so that the
//! same matrix gives the same bits on both devices.

use super::super::fused::{Compute, Float};
use super::super::simd::threads::{self, Batched};
use super::super::simd::{as_bytes, run, Task, Wide};
use super::super::CpuArray;
use crate::fallible::scratch;
use crate::{Error, Result};
use lucid_ir::backend::Results;
use lucid_ir::ops::quantized::Affine;
use lucid_ir::Meta;

/// The largest group.
const MOST: usize = 128;

/// A quantised matrix.
pub struct Rows<'a, T> {
    pub bytes: &'a [u8],
    pub scales: &'a [T],
    pub biases: &'a [T],
    pub rows: usize,
    pub columns: usize,
    pub format: Affine,
}

impl<'a, T: Copy> Rows<'a, T> {
    /// Bytes of a row.
    pub fn stride(&self) -> usize {
        self.columns / 8 * self.format.bits
    }

    /// Row `i`: packed bytes, scales and biases.
    pub fn row(&self, i: usize) -> (&'a [u8], &'a [T], &'a [T]) {
        let (stride, groups) = (self.stride(), self.columns / self.format.group);
        (
            &self.bytes[i * stride..(i + 1) * stride],
            &self.scales[i * groups..(i + 1) * groups],
            &self.biases[i * groups..(i + 1) * groups],
        )
    }
}

/// Scale and bias of a group, in float32 as MLX computes them.
fn affine(group: &[f32], bins: f32) -> (f32, f32) {
    let (mut low, mut high) = (f32::INFINITY, f32::NEG_INFINITY);
    for &w in group {
        high = if high < w { w } else { high };
        low = if w < low { w } else { low };
    }
    let below = low.abs() > high.abs();
    let least = ((high - low) / bins).max(1e-7);
    let scale = if below { least } else { -least };
    let edge = if below { low } else { high };
    let steps = (edge / scale).round_ties_even();
    match steps == 0.0 {
        true => (scale, 0.0),
        false => (edge / steps, edge),
    }
}

/// The element that stands for `w`; 0 for what is no number.
fn element(w: f32, (scale, bias): (f32, f32), bins: f32) -> u8 {
    let q = ((w - bias) / scale).round_ties_even();
    q.max(0.0).min(bins) as u8
}

/// Packed words, scales and biases: each group is read once.
pub fn quantize<T: Float>(x: &CpuArray, format: Affine, out: &[Meta]) -> Result<Results<CpuArray>> {
    let [packed, scales, biases] = out else {
        return Err(Error::runtime("quantize_affine", format!("has three results, not {}", out.len())));
    };
    let x = x.contiguous()?;
    let guard = x.read::<T>();
    let data = x.slice(&guard);
    let Affine { group, bits } = format;
    let bins = ((1u32 << bits) - 1) as f32;
    let each = group / 32 * bits;
    let fill = |words: &mut [i32], scales: &mut [T], biases: &mut [T]| {
        let count = scales.len();
        let all = (Batched(words, each), Batched(scales, 1), Batched(biases, 1));
        threads::for_batches(count, threads::GRAIN / group, all, |first, words, scales, biases| {
            let mut values = [0f32; MOST];
            let values = &mut values[..group];
            let to = words.chunks_mut(each).zip(scales).zip(biases);
            for (x, ((words, scale), bias)) in data[first * group..].chunks(group).zip(to) {
                values.iter_mut().zip(x).for_each(|(value, x)| *value = Into::<f64>::into(x.widen()) as f32);
                let by = affine(values, bins);
                // 32 elements at a time are as many words as an element has bits.
                for (values, words) in values.chunks(32).zip(words.chunks_mut(bits)) {
                    pack(values, by, bits, words);
                }
                let narrow = |one: f32| T::narrow(T::W::of(f64::from(one)));
                (*scale, *bias) = (narrow(by.0), narrow(by.1));
            }
        });
        Ok(())
    };
    let (mut second, mut third) = (None, None);
    let first = CpuArray::build(&packed.shape, |words: &mut [i32]| {
        second = Some(CpuArray::build(&scales.shape, |scales: &mut [T]| {
            third = Some(CpuArray::build(&biases.shape, |biases: &mut [T]| fill(words, scales, biases))?);
            Ok(())
        })?);
        Ok(())
    })?;
    Ok([first].into_iter().chain(second).chain(third).collect())
}

/// 32 elements as words, the first in the lowest bits.
fn pack(values: &[f32], by: (f32, f32), bits: usize, words: &mut [i32]) {
    let bins = ((1u32 << bits) - 1) as f32;
    let mut pending = 0u64;
    let (mut held, mut next) = (0, 0);
    for &w in values {
        pending |= u64::from(element(w, by, bins)) << held;
        held += bits;
        if held >= 32 {
            words[next] = pending as u32 as i32;
            (pending, held, next) = (pending >> 32, held - 32, next + 1);
        }
    }
}

/// The elements of packed bytes, one after the other.
#[inline(always)]
pub fn unpack(bytes: &[u8], bits: usize, out: &mut [u8]) {
    match bits {
        8 => out.copy_from_slice(bytes),
        4 => {
            for (o, &b) in out.chunks_exact_mut(2).zip(bytes) {
                o[0] = b & 15;
                o[1] = b >> 4;
            }
        }
        2 => {
            for (o, &b) in out.chunks_exact_mut(4).zip(bytes) {
                (o[0], o[1], o[2], o[3]) = (b & 3, b >> 2 & 3, b >> 4 & 3, b >> 6);
            }
        }
        // 8 elements in as many bytes as one has bits.
        _ => {
            let mask = (1u64 << bits) - 1;
            for (o, b) in out.chunks_exact_mut(8).zip(bytes.chunks_exact(bits)) {
                let mut word = [0u8; 8];
                word[..bits].copy_from_slice(b);
                let word = u64::from_le_bytes(word);
                for (k, o) in o.iter_mut().enumerate() {
                    *o = (word >> (k * bits) & mask) as u8;
                }
            }
        }
    }
}

/// One row, as floats.
pub struct Unpacked<'a, T: Wide> {
    pub row: (&'a [u8], &'a [T], &'a [T]),
    pub format: Affine,
    pub out: &'a mut [T::W],
}

impl<T: Float> Task for Unpacked<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        let Affine { group, bits } = self.format;
        let (bytes, scales, biases) = self.row;
        let mut elements = [0u8; MOST];
        let groups = self.out.chunks_exact_mut(group).zip(bytes.chunks_exact(group / 8 * bits));
        for ((out, bytes), (s, b)) in groups.zip(scales.iter().zip(biases)) {
            unpack(bytes, bits, &mut elements[..group]);
            let (s, b) = (s.widen(), b.widen());
            for (o, &q) in out.iter_mut().zip(&elements) {
                *o = T::W::of(f64::from(q)) * s + b;
            }
        }
    }
}

pub fn dequantize<T: Float>(
    w: &CpuArray,
    scales: &CpuArray,
    biases: &CpuArray,
    format: Affine,
    out: &Meta,
) -> Result<CpuArray> {
    let (w, scales, biases) = (w.contiguous()?, scales.contiguous()?, biases.contiguous()?);
    let (ws, ss, bs) = (w.read::<i32>(), scales.read::<T>(), biases.read::<T>());
    let columns = out.shape[out.shape.len() - 1];
    let matrix = Rows {
        bytes: as_bytes(w.slice(&ws)),
        scales: scales.slice(&ss),
        biases: biases.slice(&bs),
        rows: out.shape[..out.shape.len() - 1].iter().product(),
        columns,
        format,
    };
    CpuArray::build(&out.shape, |out: &mut [T]| {
        if columns == 0 {
            return Ok(());
        }
        threads::for_chunks(out, columns, threads::GRAIN / 4, |first, out| {
            let mut wide = scratch(T::W::of(0.0), columns);
            for (i, out) in out.chunks_mut(columns).enumerate() {
                run(Unpacked { row: matrix.row(first / columns + i), format, out: &mut wide });
                out.iter_mut().zip(&wide).for_each(|(o, &w)| *o = T::narrow(w));
            }
        });
        Ok(())
    })
}
