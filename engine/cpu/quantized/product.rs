//! Products with quantised matrices.
//!
//! Few rows of `x` (decoding) read each packed row once, as it is: its elements are widened in registers and
//! multiplied with
//! `x`, whose order in a group has been changed to the one in which shifts and masks give them. Many rows (a prompt)
//! unpack some rows at a time and leave the rest to BLAS. Depends on `pack`, `blas` and `simd`. Invariant: sums are in
//! float32, or in float64 for float64.

use super::super::blas::{gemm, Matrix, Product};
use super::super::fused::{Compute, Float};
use super::super::simd::{run, threads, Task};
use super::pack::{unpack, Rows, Unpacked};
use crate::fallible::{scratch, scratch_from};
use crate::DType;
use num_traits::Zero;

/// Rows of `x` up to which packed rows are multiplied as they are.
const FEW: usize = 6;
/// Elements that are unpacked at a time.
const BLOCK: usize = 1 << 19;
/// Partial sums of a row.
const LANES: usize = 16;

/// `y = x wᵀ`, or `x w` where it is not to be transposed.
pub fn product<T: Float>(x: &[T], w: &Rows<'_, T>, transpose: bool, y: &mut [T]) {
    let (inner, outer) = if transpose { (w.columns, w.rows) } else { (w.rows, w.columns) };
    if y.is_empty() {
        return;
    }
    if inner == 0 {
        return y.fill(T::narrow(T::W::of(0.0)));
    }
    let count = y.len() / outer;
    let x: Vec<T::W> = scratch_from(x.iter().map(|x| x.widen()));
    if transpose && count <= FEW && T::DTYPE != DType::F64 {
        return few(&x, w, count, y);
    }
    let mut sums = scratch(T::W::of(0.0), y.len());
    if transpose {
        by_columns(&x, w, count, &mut sums);
    } else {
        by_rows(&x, w, count, &mut sums);
    }
    y.iter_mut().zip(&sums).for_each(|(y, &s)| *y = T::narrow(s));
}

/// Rows `from..` of the matrix as floats, as many as fit `out`.
fn unpack_rows<T: Float>(w: &Rows<'_, T>, from: usize, out: &mut [T::W]) {
    threads::for_chunks(out, w.columns, threads::GRAIN / 2, |first, out| {
        for (i, out) in out.chunks_mut(w.columns).enumerate() {
            run(Unpacked { row: w.row(from + first / w.columns + i), format: w.format, out });
        }
    });
}

fn by_columns<T: Float>(x: &[T::W], w: &Rows<'_, T>, count: usize, y: &mut [T::W]) {
    let each = (BLOCK / w.columns).clamp(1, w.rows);
    let mut block = scratch(T::W::of(0.0), each * w.columns);
    for from in (0..w.rows).step_by(each) {
        let rows = each.min(w.rows - from);
        let block = &mut block[..rows * w.columns];
        unpack_rows(w, from, block);
        let a = Matrix { data: x, ld: w.columns, trans: false };
        let b = Matrix { data: &*block, ld: w.columns, trans: true };
        gemm(&Product { ldc: w.rows, ..Product::of([count, rows, w.columns], a, b) }, &mut y[from..]);
    }
}

fn by_rows<T: Float>(x: &[T::W], w: &Rows<'_, T>, count: usize, y: &mut [T::W]) {
    let each = (BLOCK / w.columns).clamp(1, w.rows);
    let mut block = scratch(T::W::of(0.0), each * w.columns);
    for from in (0..w.rows).step_by(each) {
        let rows = each.min(w.rows - from);
        let block = &mut block[..rows * w.columns];
        unpack_rows(w, from, block);
        let a = Matrix { data: &x[from..], ld: w.rows, trans: false };
        let b = Matrix { data: &*block, ld: w.columns, trans: false };
        let beta = if from == 0 { T::W::zero() } else { T::W::of(1.0) };
        gemm(&Product { beta, ..Product::of([count, w.columns, rows], a, b) }, y);
    }
}

/// Every row of `x` with every packed row.
fn few<T: Float>(x: &[T::W], w: &Rows<'_, T>, count: usize, y: &mut [T]) {
    let x: Vec<f32> = scratch_from(x.iter().map(|&x| Into::<f64>::into(x) as f32));
    let (group, bits) = (w.format.group, w.format.bits);
    let groups = w.columns / group;
    // Elements of a group in the order in which a shift and a mask give them: of all bytes the lowest first.
    let parts = if matches!(bits, 2 | 4) { 8 / bits } else { 1 };
    let mut ordered = scratch(0f32, x.len());
    for (to, from) in ordered.chunks_mut(group).zip(x.chunks(group)) {
        for (part, to) in to.chunks_mut(group / parts).enumerate() {
            to.iter_mut().zip(from.iter().skip(part).step_by(parts)).for_each(|(t, &f)| *t = f);
        }
    }
    let sums: Vec<f32> = scratch_from(x.chunks(group).map(|g| g.iter().sum::<f32>()));
    let grain = (2 * threads::GRAIN / w.columns.max(1)).max(1);
    let fill = |first: usize, made: &mut [f32]| {
        let mut wide = (scratch(0f32, groups), scratch(0f32, groups));
        for (i, made) in made.chunks_mut(count).enumerate() {
            let (bytes, scales, biases) = w.row(first / count + i);
            wide.0.iter_mut().zip(scales).for_each(|(o, s)| *o = Into::<f64>::into(s.widen()) as f32);
            wide.1.iter_mut().zip(biases).for_each(|(o, b)| *o = Into::<f64>::into(b.widen()) as f32);
            for (m, made) in made.iter_mut().enumerate() {
                let x = &ordered[m * w.columns..(m + 1) * w.columns];
                let sums = &sums[m * groups..(m + 1) * groups];
                *made = run(Dot { x, sums, bytes, scales: &wide.0, biases: &wide.1, group, bits });
            }
        }
    };
    // One row of packed elements after the other, so that it is in the cache for all rows of x.
    let mut columns = scratch(0f32, y.len());
    threads::for_chunks(&mut columns, count, grain * count, fill);
    for (m, y) in y.chunks_mut(w.rows).enumerate() {
        y.iter_mut()
            .zip(columns.iter().skip(m).step_by(count))
            .for_each(|(y, &c)| *y = T::narrow(T::W::of(f64::from(c))));
    }
}

/// The inner product of a row of `x`, in the order of [`few`], and a packed row.
struct Dot<'a> {
    x: &'a [f32],
    sums: &'a [f32],
    bytes: &'a [u8],
    scales: &'a [f32],
    biases: &'a [f32],
    group: usize,
    bits: usize,
}

#[inline(always)]
fn fma<const F: bool>(a: f32, b: f32, c: f32) -> f32 {
    if F {
        a.mul_add(b, c)
    } else {
        a * b + c
    }
}

/// `sums += elements · x`, where `read` makes an element of a byte.
#[inline(always)]
fn add<const F: bool>(sums: &mut [f32; LANES], bytes: &[u8], x: &[f32], read: impl Fn(u8) -> u8) {
    for (bytes, x) in bytes.chunks_exact(LANES).zip(x.chunks_exact(LANES)) {
        for ((s, &b), &x) in sums.iter_mut().zip(bytes).zip(x) {
            *s = fma::<F>(f32::from(read(b)), x, *s);
        }
    }
}

impl Task for Dot<'_> {
    type Out = f32;
    #[inline(always)]
    fn run<const F: bool>(self) -> f32 {
        let Dot { x, sums, bytes, scales, biases, group, bits } = self;
        let mut total = [0f32; LANES];
        let mut offset = 0f32;
        let mut elements = [0u8; 128];
        let groups = x.chunks_exact(group).zip(bytes.chunks_exact(group / 8 * bits));
        for ((x, bytes), ((&s, &b), &sum)) in groups.zip(scales.iter().zip(biases).zip(sums)) {
            let mut part = [0f32; LANES];
            match bits {
                8 => add::<F>(&mut part, bytes, x, |b| b),
                4 => {
                    let (low, high) = x.split_at(group / 2);
                    add::<F>(&mut part, bytes, low, |b| b & 15);
                    add::<F>(&mut part, bytes, high, |b| b >> 4);
                }
                2 if group > 32 => {
                    for (k, x) in x.chunks_exact(group / 4).enumerate() {
                        add::<F>(&mut part, bytes, x, |b| b >> (2 * k) & 3);
                    }
                }
                2 => {
                    // 8 bytes: too few for a vector of them.
                    for (k, x) in x.chunks_exact(8).enumerate() {
                        for ((p, &b), &x) in part.iter_mut().zip(bytes).zip(x) {
                            *p = fma::<F>(f32::from(b >> (2 * k) & 3), x, *p);
                        }
                    }
                }
                _ => {
                    let elements = &mut elements[..group];
                    unpack(bytes, bits, elements);
                    add::<F>(&mut part, elements, x, |b| b);
                }
            }
            for (t, &p) in total.iter_mut().zip(&part) {
                *t = fma::<F>(s, p, *t);
            }
            offset = fma::<F>(b, sum, offset);
        }
        let mut width = LANES / 2;
        while width > 0 {
            for i in 0..width {
                total[i] += total[i + width];
            }
            width /= 2;
        }
        total[0] + offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lucid_ir::ops::quantized::Affine;

    /// Numbers without a pattern.
    fn noise(n: usize, seed: u32) -> Vec<u32> {
        let next = |s: &mut u32| {
            *s = s.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            Some(*s >> 8)
        };
        std::iter::successors(Some(seed), |&s| next(&mut s.clone()).map(|v| v ^ s.rotate_left(9))).take(n).collect()
    }

    fn floats(n: usize, seed: u32) -> Vec<f32> {
        noise(n, seed).iter().map(|&v| (v % 2001) as f32 / 1000.0 - 1.0).collect()
    }

    #[test]
    fn products_equal_the_sum_over_unpacked_elements() {
        for bits in [2, 3, 4, 5, 6, 8] {
            for group in [32, 64, 128] {
                let (rows, columns) = (7, 256);
                let bytes: Vec<u8> = noise(rows * columns * bits / 8, 3).iter().map(|&v| (v >> 4) as u8).collect();
                let groups = rows * columns / group;
                let (scales, biases) = (floats(groups, 1), floats(groups, 2));
                let format = Affine { group, bits };
                let w = Rows { bytes: &bytes, scales: &scales, biases: &biases, rows, columns, format };
                // Element k of a row begins at its bit k · bits.
                let at = |r: usize, k: usize| {
                    let bit = |i: usize| u32::from(bytes[r * columns / 8 * bits + i / 8] >> (i % 8) & 1);
                    let q = (0..bits).map(|i| bit(k * bits + i) << i).sum::<u32>() as f64;
                    let g = r * columns / group + k / group;
                    q * f64::from(scales[g]) + f64::from(biases[g])
                };
                for count in [1, 2, 9] {
                    let x = floats(count * columns, 5);
                    let mut y = vec![0f32; count * rows];
                    product(&x, &w, true, &mut y);
                    for m in 0..count {
                        for r in 0..rows {
                            let want: f64 = (0..columns).map(|k| f64::from(x[m * columns + k]) * at(r, k)).sum();
                            let size: f64 = (0..columns).map(|k| at(r, k).abs()).sum();
                            assert!((f64::from(y[m * rows + r]) - want).abs() < 1e-6 * size, "{bits} {group} {count}");
                        }
                    }
                    let x = floats(count * rows, 6);
                    let mut y = vec![0f32; count * columns];
                    product(&x, &w, false, &mut y);
                    for m in 0..count {
                        for k in 0..columns {
                            let want: f64 = (0..rows).map(|r| f64::from(x[m * rows + r]) * at(r, k)).sum();
                            let size: f64 = (0..rows).map(|r| at(r, k).abs()).sum();
                            assert!((f64::from(y[m * columns + k]) - want).abs() < 1e-6 * size, "{bits} {group}");
                        }
                    }
                }
            }
        }
    }
}
