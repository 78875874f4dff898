//! Scaled dot-product attention over blocks of queries, so that the weights of all queries are never held at once.
//!
//! Depends on `blas`, `matmul` for reading matrices in place, and `fused` for softmax. 16-bit floats are computed
//! with in `float32`. Invariant: as the composition in `ops/attention.rs`; a query that may look nowhere gets zeros.

use super::blas::{gemm_here, Matrix, Product};
use super::fused::{largest, total, Compute, Float};
use super::matmul::{readable, starts};
use super::simd::{run, threads, Math, Task, Wide};
use super::{cast, CpuArray};
use crate::fallible::{scratch, scratch_of, scratch_room};
use crate::shape::Layout;
use crate::{DType, Error, Result};
use lucid_ir::backend::Array;
use lucid_ir::Meta;

/// Queries whose weights are held at once, at least and at most: products of so many rows take a quarter less time each than those
/// of few. Behind a causal mask half of a block's own square is computed for nothing.
const ROWS: (usize, usize) = (32, 96);
const CAUSAL_ROWS: usize = 64;
/// Weights that are held at once, but for those of the fewest rows: with what they are shifted to, half of a cache.
const HELD: usize = 1 << 17;
/// Rows that products are made of at a time (`TALL` of `blas/gemm_f32.rs`, which is x86-64's alone).
const TALL: usize = 6;

/// Queries of each block, so that none is of a few.
fn rows_of(length: usize, keys: usize, causal: bool) -> usize {
    let most = (HELD / keys.max(1)).clamp(ROWS.0, if causal { CAUSAL_ROWS } else { ROWS.1 });
    let count = length.div_ceil(most).max(1);
    length.div_ceil(count).next_multiple_of(TALL).min(length)
}

pub fn attention(inputs: &[&CpuArray], causal: bool, scale: f64, out: &Meta) -> Result<CpuArray> {
    match out.dtype {
        DType::F64 => blocks::<f64>(inputs, causal, scale, &out.shape),
        DType::F32 => blocks::<f32>(inputs, causal, scale, &out.shape),
        DType::F16 | DType::BF16 => cast::cast(&blocks::<f32>(inputs, causal, scale, &out.shape)?, out.dtype),
        other => Err(Error::dtype("scaled_dot_product_attention", "expected a floating dtype", &[other])),
    }
}

/// A batch of matrices, read in place.
struct Matrices {
    array: CpuArray,
    ld: usize,
    trans: bool,
    starts: Vec<usize>,
}

impl Matrices {
    fn new(x: &CpuArray, dtype: DType) -> Result<Matrices> {
        let x = if x.dtype() == dtype { x.clone() } else { cast::cast(x, dtype)? };
        let (array, ld, trans) = readable(&x)?;
        let starts = starts(&array, &x.shape()[..2]);
        Ok(Matrices { array, ld, trans, starts })
    }

    /// Matrix `i` from row `row` on.
    fn at<'a, T>(&self, data: &'a [T], i: usize, row: usize) -> Matrix<'a, T> {
        let skip = if self.trans { row } else { row * self.ld };
        Matrix { data: &data[self.starts[i] + skip..], ld: self.ld, trans: self.trans }
    }
}

/// What the mask says of one query: its elements and how far they are apart.
#[derive(Clone, Copy)]
enum Hides<'a, T> {
    Nothing,
    Where(&'a [bool], usize),
    By(&'a [T], usize),
}

/// A row of scores times `scale`, with the mask.
struct Masked<'a, T> {
    row: &'a mut [T],
    scale: T,
    mask: Hides<'a, T>,
}
impl<T: Compute> Task for Masked<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        let Masked { row, scale, mask } = self;
        match mask {
            Hides::Nothing => row.iter_mut().for_each(|x| *x = *x * scale),
            Hides::Where(seen, step) => {
                for (j, x) in row.iter_mut().enumerate() {
                    *x = if seen[j * step] { *x * scale } else { T::neg_infinity() };
                }
            }
            Hides::By(add, 1) => row.iter_mut().zip(add).for_each(|(x, &m)| *x = *x * scale + m),
            Hides::By(add, step) => row.iter_mut().enumerate().for_each(|(j, x)| *x = *x * scale + add[j * step]),
        }
    }
}

/// Rows less their largest element, times `scale`, which is positive. NaN stays, and makes its row's sum NaN.
struct Shift<'a, T> {
    x: &'a [T],
    n: usize,
    scale: T,
    out: &'a mut [T],
}
impl<T: Compute> Task for Shift<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        for (x, out) in self.x.chunks(self.n).zip(self.out.chunks_mut(self.n)) {
            let most = largest::<T>(x);
            x.iter().zip(out).for_each(|(&x, o)| *o = (x - most) * self.scale);
        }
    }
}

/// What each row is divided by: the sum of its weights. Rows are short, so that what they are multiplied with is divided instead.
struct Sums<'a, T> {
    rows: &'a [T],
    n: usize,
    sums: &'a mut Vec<f64>,
}
impl<T: Compute> Task for Sums<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        self.sums.extend(self.rows.chunks(self.n).map(|row| total::<T>(row, |x| x)));
    }
}

/// Where the mask's row for (batch, head, query) begins, and how far its elements are apart.
fn mask_row(layout: &Layout, at: [usize; 3]) -> (usize, usize) {
    let step = |d: usize| if layout.shape[d] == 1 { 0 } else { layout.strides[d] };
    (layout.offset + (0..3).map(|d| at[d] * step(d)).sum::<usize>(), step(3))
}

fn blocks<T: Float + Wide<W = T> + Compute>(
    inputs: &[&CpuArray],
    causal: bool,
    scale: f64,
    shape: &[usize],
) -> Result<CpuArray> {
    let (q, k, v) =
        (Matrices::new(inputs[0], T::DTYPE)?, Matrices::new(inputs[1], T::DTYPE)?, Matrices::new(inputs[2], T::DTYPE)?);
    let (heads, length, width) = (shape[1], shape[2], shape[3]);
    let (size, keys) = (inputs[0].shape()[3], inputs[1].shape()[2]);
    let share = heads / inputs[1].shape()[1].max(1);
    let mask = match inputs.get(3) {
        Some(m) if m.dtype() != DType::Bool && m.dtype() != T::DTYPE => Some(cast::cast(m, T::DTYPE)?),
        other => other.map(|m| (*m).clone()),
    };
    let truth = mask.as_ref().filter(|m| m.dtype() == DType::Bool).map(|m| m.read::<bool>());
    let numbers = mask.as_ref().filter(|m| m.dtype() != DType::Bool).map(|m| m.read::<T>());
    let hides = |at: [usize; 3]| {
        let Some(m) = &mask else { return Hides::Nothing };
        let (start, step) = mask_row(m.layout(), at);
        match (&truth, &numbers) {
            (Some(seen), _) => Hides::Where(&seen[start..], step),
            (None, Some(add)) => Hides::By(&add[start..], step),
            (None, None) => Hides::Nothing,
        }
    };
    let (q_data, k_data, v_data) = (q.array.read::<T>(), k.array.read::<T>(), v.array.read::<T>());
    // Without a mask scores are scaled where their largest is taken away.
    let scaled_last = mask.is_none() && scale > 0.0 && scale.is_finite();
    // Work that is worth a thread, but no less than a block.
    let held = rows_of(length, keys, causal);
    let rows = (4 * threads::GRAIN / (keys * (size + width)).max(1)).max(held).max(1);
    CpuArray::build(shape, |out: &mut [T]| {
        threads::for_chunks(out, width, rows * width, |first, out| {
            let mut scores = scratch(T::of(0.0), held * keys);
            let (mut shifted, mut hidden, mut sums) = (scratch_of(&scores), scratch_room(held), scratch_room(held));
            let (mut row, mut rest) = (first / width, out);
            while !rest.is_empty() {
                let (i, start) = (row / length, row % length);
                let count = held.min(length - start).min(rest.len() / width);
                let (out, others) = rest.split_at_mut(count * width);
                let seen = if causal { keys.min(start + count) } else { keys };
                let (scores, shifted) = (&mut scores[..count * seen], &mut shifted[..count * seen]);
                let of_key = i / heads * (heads / share) + i % heads / share;
                let kt = k.at(&k_data, of_key, 0);
                let kt = Matrix { trans: !kt.trans, ..kt };
                gemm_here(&Product::of([count, seen, size], q.at(&q_data, i, start), kt), scores);
                hidden.clear();
                for (j, line) in scores.chunks_mut(seen).enumerate() {
                    if !scaled_last {
                        run(Masked { row: line, scale: T::of(scale), mask: hides([i / heads, i % heads, start + j]) });
                    }
                    if causal {
                        line[seen.min(start + j + 1)..].fill(T::neg_infinity());
                    }
                    hidden.push(mask.is_some() && line.iter().all(|&x| x == T::neg_infinity()));
                }
                let scale = if scaled_last { T::of(scale) } else { T::of(1.0) };
                run(Shift { x: &*scores, n: seen, scale, out: shifted });
                T::math(Math::Exp, shifted, scores);
                sums.clear();
                run(Sums { rows: &*scores, n: seen, sums: &mut sums });
                let hidden_rows = scores.chunks_mut(seen).zip(&mut sums).zip(&hidden).filter(|&(_, &hidden)| hidden);
                for ((line, sum), _) in hidden_rows {
                    line.fill(T::of(0.0));
                    *sum = 1.0;
                }
                let weights = Matrix { data: &*scores, ld: seen, trans: false };
                gemm_here(&Product::of([count, width, seen], weights, v.at(&v_data, of_key, 0)), out);
                for (line, &sum) in out.chunks_mut(width).zip(&sums) {
                    let share = T::of(1.0 / sum);
                    line.iter_mut().for_each(|x| *x = *x * share);
                }
                (row, rest) = (row + count, others);
            }
        });
        Ok(())
    })
}
