//! Reductions over any dimensions.
//!
//! Depends on `simd` and `strided`. The kept and the reduced dimensions are joined apart; then either the reduced ones end
//! dense and slices are reduced, or the kept ones do and rows are accumulated; anything else is copied into the first
//! order. Invariant: the pieces that threads take are fixed by the sizes, so that results do not depend on their number.

use super::cast::cast;
use super::simd::{self, threads, Extreme, Sum};
use super::strided::{collapse, Dims};
use super::CpuArray;
use crate::dtype::Element;
use crate::fallible::scratch;
use crate::shape::Layout;
use crate::{DType, Error, Result};
use half::{bf16, f16};
use lucid_ir::backend::Array;
use lucid_ir::ops::reduce::{ReduceOp, Reduction};
use lucid_ir::Meta;
use num_complex::{Complex32, Complex64};
use std::marker::PhantomData;

mod squares;
mod widened;

use widened::Widened;

/// Elements reduced as one piece.
const PIECE: usize = threads::GRAIN;

/// A way to reduce.
trait Fold<T>: Copy + Sync {
    type Acc: Copy + Send + Sync;
    type Out: Element;
    /// Of a slice that is not empty, whose first element has the given number in the reduction.
    fn slice(self, x: &[T], first: usize) -> Self::Acc;
    /// Of one element, which has the given number.
    fn one(self, x: T, at: usize) -> Self::Acc;
    /// Of as many slices of `n` elements, one after another, as there are results.
    fn slices(self, x: &[T], n: usize, out: &mut [Self::Out]) {
        x.chunks(n).zip(out).for_each(|(x, o)| *o = self.finish(self.slice(x, 0)));
    }
    /// Of two parts, the first of which comes first.
    fn merge(self, a: Self::Acc, b: Self::Acc) -> Self::Acc;
    /// `rows` rows as long as `acc` and `stride` elements apart, merged into what `acc` holds of earlier ones.
    fn rows(self, x: &[T], stride: usize, rows: usize, first: usize, acc: &mut [Self::Acc]);
    fn finish(self, acc: Self::Acc) -> Self::Out;
    /// Of no element at all.
    fn empty(self) -> Option<Self::Out>;
}

struct Total<T>(PhantomData<fn() -> T>);
struct Squares<T>(PhantomData<fn() -> T>);
struct Product<T>(PhantomData<fn() -> T>);
struct Extremum<T, const MAX: bool>(PhantomData<fn() -> T>);
struct ArgExtremum<T, const MAX: bool>(PhantomData<fn() -> T>);
type Largest<T> = Extremum<T, true>;
type Smallest<T> = Extremum<T, false>;
type ArgLargest<T> = ArgExtremum<T, true>;
type ArgSmallest<T> = ArgExtremum<T, false>;
/// Any for `true`, all for `false`: the value that decides.
#[derive(Clone, Copy)]
struct Decided(bool);

macro_rules! copyable {
    ($($K:ident [$($c:tt)*] [$($g:tt)*];)*) => {
        $(
            impl<T, $($c)*> Clone for $K<T, $($g)*> {
                fn clone(&self) -> Self {
                    *self
                }
            }
            impl<T, $($c)*> Copy for $K<T, $($g)*> {}
            impl<T, $($c)*> Default for $K<T, $($g)*> {
                fn default() -> Self {
                    $K(PhantomData)
                }
            }
        )*
    };
}
copyable! {
    Total [] [];
    Squares [] [];
    Product [] [];
    Extremum [const MAX: bool] [MAX];
    ArgExtremum [const MAX: bool] [MAX];
}

impl<T: Element + Sum> Fold<T> for Total<T> {
    type Acc = T::Acc;
    type Out = T;
    fn slice(self, x: &[T], _: usize) -> T::Acc {
        simd::sum(x)
    }
    fn one(self, x: T, _: usize) -> T::Acc {
        T::acc(x.widen())
    }
    fn slices(self, x: &[T], n: usize, out: &mut [T]) {
        simd::sums(x, n, out);
    }
    fn merge(self, a: T::Acc, b: T::Acc) -> T::Acc {
        T::plus(a, b)
    }
    fn rows(self, x: &[T], stride: usize, rows: usize, _: usize, acc: &mut [T::Acc]) {
        simd::sum_rows(x, stride, rows, acc);
    }
    fn finish(self, acc: T::Acc) -> T {
        T::finish(acc)
    }
    fn empty(self) -> Option<T> {
        Some(T::finish(T::ZERO))
    }
}

/// In the elements' own precision, as PyTorch has it: what overflows on the way does not come back.
impl<T: Element + Sum + simd::Wide<W = T>> Fold<T> for Product<T> {
    type Acc = T;
    type Out = T;
    fn slice(self, x: &[T], _: usize) -> T {
        simd::product(x)
    }
    fn one(self, x: T, _: usize) -> T {
        x
    }
    fn merge(self, a: T, b: T) -> T {
        T::mul(a, b)
    }
    fn rows(self, x: &[T], stride: usize, rows: usize, _: usize, acc: &mut [T]) {
        for r in 0..rows {
            acc.iter_mut().zip(&x[r * stride..]).for_each(|(a, x)| *a = T::mul(*a, *x));
        }
    }
    fn finish(self, acc: T) -> T {
        acc
    }
    fn empty(self) -> Option<T> {
        Some(T::W_UNIT)
    }
}

impl<T: Element + Extreme, const MAX: bool> Fold<T> for Extremum<T, MAX> {
    type Acc = T;
    type Out = T;
    fn slice(self, x: &[T], _: usize) -> T {
        simd::extremum::<T, MAX>(x).unwrap_or_default()
    }
    fn one(self, x: T, _: usize) -> T {
        x
    }
    fn slices(self, x: &[T], n: usize, out: &mut [T]) {
        simd::extrema::<T, MAX>(x, n, out);
    }
    fn merge(self, a: T, b: T) -> T {
        if T::beats::<MAX>(b, a) {
            b
        } else {
            a
        }
    }
    fn rows(self, x: &[T], stride: usize, rows: usize, _: usize, acc: &mut [T]) {
        simd::extreme_rows::<T, MAX>(x, stride, rows, acc);
    }
    fn finish(self, acc: T) -> T {
        acc
    }
    fn empty(self) -> Option<T> {
        None
    }
}

impl<T: Element + Extreme, const MAX: bool> Fold<T> for ArgExtremum<T, MAX> {
    type Acc = (T, i64);
    type Out = i64;
    fn slice(self, x: &[T], first: usize) -> (T, i64) {
        let at = simd::arg_extremum::<T, MAX>(x).unwrap_or_default();
        (x[at], (first + at) as i64)
    }
    fn one(self, x: T, at: usize) -> (T, i64) {
        (x, at as i64)
    }
    fn merge(self, a: (T, i64), b: (T, i64)) -> (T, i64) {
        if T::beats::<MAX>(b.0, a.0) {
            b
        } else {
            a
        }
    }
    fn rows(self, x: &[T], stride: usize, rows: usize, first: usize, acc: &mut [(T, i64)]) {
        let (mut best, mut index): (Vec<T>, Vec<i64>) = acc.iter().copied().unzip();
        for r in 0..rows {
            simd::arg_row::<T, MAX>(&x[r * stride..], (first + r) as i64, &mut best, &mut index);
        }
        acc.iter_mut().zip(best.into_iter().zip(index)).for_each(|(acc, new)| *acc = new);
    }
    fn finish(self, acc: (T, i64)) -> i64 {
        acc.1
    }
    fn empty(self) -> Option<i64> {
        None
    }
}

impl Fold<bool> for Decided {
    type Acc = bool;
    type Out = bool;
    fn slice(self, x: &[bool], _: usize) -> bool {
        if x.contains(&self.0) {
            self.0
        } else {
            !self.0
        }
    }
    fn one(self, x: bool, _: usize) -> bool {
        x
    }
    fn merge(self, a: bool, b: bool) -> bool {
        if self.0 {
            a | b
        } else {
            a & b
        }
    }
    fn rows(self, x: &[bool], stride: usize, rows: usize, _: usize, acc: &mut [bool]) {
        for r in 0..rows {
            acc.iter_mut().zip(&x[r * stride..]).for_each(|(a, &x)| *a = self.merge(*a, x));
        }
    }
    fn finish(self, acc: bool) -> bool {
        acc
    }
    fn empty(self) -> Option<bool> {
        Some(!self.0)
    }
}

/// The offsets that dimensions give, in row-major order, from number `first` on.
struct Offsets<'a> {
    dims: &'a [(usize, usize)],
    next: usize,
}

impl Iterator for Offsets<'_> {
    type Item = usize;
    fn next(&mut self) -> Option<usize> {
        let (mut i, mut offset) = (self.next, 0);
        self.next += 1;
        for &(n, s) in self.dims.iter().rev() {
            offset += i % n * s;
            i /= n;
        }
        (i == 0).then_some(offset)
    }
}

fn offsets(dims: &[(usize, usize)], first: usize) -> Offsets<'_> {
    Offsets { dims, next: first }
}

fn count(dims: &[(usize, usize)]) -> usize {
    dims.iter().map(|d| d.0).product()
}

/// Kept and reduced dimensions, each collapsed; the reduced ones as they are in memory where their order does not count.
fn group(layout: &Layout, axes: &[usize], ordered: bool) -> (Dims, Dims) {
    let dims = || layout.shape.iter().copied().zip(layout.strides.iter().copied()).enumerate();
    let kept = collapse(dims().filter(|(i, _)| !axes.contains(i)).map(|(_, d)| d));
    let mut reduced: Dims = dims().filter(|(i, _)| axes.contains(i)).map(|(_, d)| d).collect();
    if !ordered && reduced.len() > 1 {
        // What is repeated goes outermost.
        reduced.sort_by_key(|&(_, stride)| std::cmp::Reverse(stride.wrapping_sub(1)));
    }
    (kept, collapse(reduced))
}

/// The same elements with the kept dimensions first, row-major.
fn kept_first(x: &CpuArray, axes: &[usize]) -> Result<CpuArray> {
    let order: Vec<usize> = (0..x.shape().len())
        .filter(|i| !axes.contains(i))
        .chain(axes.iter().copied().collect::<std::collections::BTreeSet<_>>())
        .collect();
    let Layout { shape, strides, offset } = x.layout();
    let layout = Layout {
        shape: order.iter().map(|&i| shape[i]).collect(),
        strides: order.iter().map(|&i| strides[i]).collect(),
        offset: *offset,
    };
    super::copy::copy(&x.with_layout(layout))
}

fn fold<T: Element, K: Fold<T>>(op: &ReduceOp, k: K, how: &Reduction, x: &CpuArray, out: &Meta) -> Result<CpuArray> {
    let shape = &out.shape[..];
    if x.numel() == 0 {
        return CpuArray::build(shape, |out: &mut [K::Out]| match (out.is_empty(), k.empty()) {
            (true, _) => Ok(()),
            (false, Some(value)) => {
                out.fill(value);
                Ok(())
            }
            (false, None) => Err(Error::index(op.name(), "cannot reduce over a dimension of size 0")),
        });
    }
    let ordered = matches!(op, ReduceOp::ArgMax | ReduceOp::ArgMin);
    let (mut kept, mut reduced) = group(x.layout(), &how.axes, ordered);
    let mut x = x.clone();
    let dense = |dims: &Dims, least: usize| matches!(dims.last(), Some(&(n, 1)) if n >= least);
    let by_rows = !dense(&reduced, 8) && dense(&kept, 4);
    if !by_rows && !dense(&reduced, 1) && !reduced.is_empty() {
        let lead = x.shape().len() - how.axes.len();
        x = kept_first(&x, &how.axes)?;
        let all: Vec<usize> = (lead..x.shape().len()).collect();
        (kept, reduced) = group(x.layout(), &all, ordered);
    }
    let start = x.layout().offset;
    let guard = x.read::<T>();
    let data = &guard[start..];
    CpuArray::build(shape, |out: &mut [K::Out]| {
        match by_rows {
            true => fold_rows(k, data, &kept, &reduced, out),
            false => fold_slices(k, data, &kept, &reduced, out),
        }
        Ok(())
    })
}

/// The reduced dimensions end dense: each result is made of slices.
fn fold_slices<T: Element, K: Fold<T>>(k: K, data: &[T], kept: &Dims, reduced: &Dims, out: &mut [K::Out]) {
    let (n, outer) = reduced.split_last().map_or((1, &[][..]), |(d, rest)| (d.0, rest));
    let slices = count(outer);
    let one = |base: usize| {
        let mut parts = offsets(outer, 0).enumerate().map(|(i, o)| k.slice(&data[base + o..][..n], i * n));
        let first = parts.next();
        parts.fold(first, |a, b| a.map(|a| k.merge(a, b)))
    };
    if out.len() >= 2 * threads::num_threads() || n * slices < 2 * PIECE {
        if let ([] | [(_, _)], 1) = (kept.as_slice(), slices) {
            // Slices that follow one another, which short ones need not be handed over one by one for.
            if kept.first().is_none_or(|&(_, stride)| stride == n) {
                threads::for_chunks(out, 1, (PIECE / n).max(1), |first, out| {
                    k.slices(&data[first * n..][..out.len() * n], n, out);
                });
                return;
            }
        }
        threads::for_chunks(out, 1, (PIECE / (n * slices)).max(1), |first, out| {
            for (out, base) in out.iter_mut().zip(offsets(kept, first)) {
                if let Some(acc) = one(base) {
                    *out = k.finish(acc);
                }
            }
        });
        return;
    }
    // Few long results: each is cut into pieces.
    let cuts = n.div_ceil(PIECE);
    let per_piece = if cuts > 1 { 1 } else { (PIECE / n).max(1) };
    for (out, base) in out.iter_mut().zip(offsets(kept, 0)) {
        let mut parts: Vec<Option<K::Acc>> = scratch(None, slices.div_ceil(per_piece) * cuts);
        threads::for_chunks(&mut parts, 1, 1, |first, parts| {
            for (i, part) in parts.iter_mut().enumerate() {
                let (slice, cut) = ((first + i) / cuts * per_piece, (first + i) % cuts * PIECE);
                let end = (cut + PIECE).min(n);
                let (cut, end) = if cuts > 1 { (cut, end) } else { (0, n) };
                for (j, o) in offsets(outer, slice).take(per_piece).enumerate() {
                    let acc = k.slice(&data[base + o..][cut..end], (slice + j) * n + cut);
                    *part = Some(part.map_or(acc, |p| k.merge(p, acc)));
                }
            }
        });
        let mut parts = parts.into_iter().flatten();
        if let Some(first) = parts.next() {
            *out = k.finish(parts.fold(first, |a, b| k.merge(a, b)));
        }
    }
}

/// The kept dimensions end dense: rows of results are accumulated.
fn fold_rows<T: Element, K: Fold<T>>(k: K, data: &[T], kept: &Dims, reduced: &Dims, out: &mut [K::Out]) {
    let (width, lead) = kept.split_last().map_or((1, &[][..]), |(d, rest)| (d.0, rest));
    let ((rows, stride), outer) = reduced.split_last().map_or(((1, 0), &[][..]), |(d, rest)| (*d, rest));
    let total = rows * count(outer);
    // Rows `from..to` of all that are reduced, columns from `column` on.
    let part = |base: usize, column: usize, from: usize, to: usize, acc: &mut Vec<K::Acc>, width: usize| {
        acc.clear();
        let mut at = from;
        while at < to {
            let offset = offsets(outer, at / rows).next().unwrap_or(0) + base + column;
            let (row, end) = (at % rows, rows.min(at % rows + to - at));
            let x = &data[offset..];
            let mut row_from = row;
            if acc.is_empty() {
                let first = &x[row * stride..][..width];
                acc.extend(first.iter().map(|&v| k.one(v, at)));
                row_from += 1;
            }
            if row_from < end {
                k.rows(&x[row_from * stride..], stride, end - row_from, at + row_from - row, acc);
            }
            at += end - row;
        }
    };
    let store = |acc: &[K::Acc], out: &mut [K::Out]| out.iter_mut().zip(acc).for_each(|(o, &a)| *o = k.finish(a));
    if out.len() * total >= 2 * PIECE && out.len() < 1024 && count(lead) == 1 {
        // Few columns and many rows: pieces of rows.
        let height = (PIECE / width).max(1);
        let mut parts: Vec<Vec<K::Acc>> = scratch(Vec::new(), total.div_ceil(height));
        threads::for_chunks(&mut parts, 1, 1, |first, parts| {
            for (i, acc) in parts.iter_mut().enumerate() {
                let from = (first + i) * height;
                part(0, 0, from, (from + height).min(total), acc, width);
            }
        });
        let mut parts = parts.into_iter();
        if let Some(mut sum) = parts.next() {
            parts.for_each(|p| sum.iter_mut().zip(p).for_each(|(a, b)| *a = k.merge(*a, b)));
            store(&sum, out);
        }
        return;
    }
    // Blocks of columns, narrow enough that their accumulators stay in the first cache level.
    let grain = (PIECE / total).clamp(16, 1 << 20);
    threads::for_chunks(out, 16, grain, |first, out| {
        let mut acc = Vec::new();
        let mut done = 0;
        while done < out.len() {
            let (row, column) = ((first + done) / width, (first + done) % width);
            let n = (width - column).min(out.len() - done).min(1024);
            let base = offsets(lead, row).next().unwrap_or(0);
            part(base, column, 0, total, &mut acc, n);
            store(&acc, &mut out[done..done + n]);
            done += n;
        }
    });
}

/// The dtype that a reduction of this one is computed in; it holds all its numbers.
fn wide(op: &ReduceOp, dtype: DType) -> DType {
    match (op, dtype) {
        (ReduceOp::Any | ReduceOp::All, _) => DType::Bool,
        (_, DType::F16 | DType::BF16) => DType::F32,
        (_, DType::U16 | DType::U32 | DType::U64 | DType::F8E4M3FN | DType::F8E5M2) => dtype.computed_in(),
        (_, DType::Bool | DType::U8 | DType::I8 | DType::I16 | DType::I32) => DType::I64,
        (_, DType::I64 | DType::F32 | DType::F64 | DType::C64 | DType::C128) => dtype,
    }
}

/// The kernels of the `reduce` family.
pub fn reduce(op: &ReduceOp, how: &Reduction, x: &CpuArray, out: &Meta) -> Result<CpuArray> {
    let y = computed(op, how, x, out)?;
    if y.dtype() == out.dtype {
        Ok(y)
    } else {
        cast(&y, out.dtype)
    }
}

/// The result, in the elements' own dtype or a wider one.
fn computed(op: &ReduceOp, how: &Reduction, x: &CpuArray, out: &Meta) -> Result<CpuArray> {
    let dtype = x.dtype();
    let widened = || {
        let dtype = wide(op, dtype);
        if dtype == x.dtype() {
            return Err(Error::dtype(op.name(), format!("has no CPU kernel for {dtype}"), &[dtype]));
        }
        computed(op, how, &cast(x, dtype)?, &Meta { shape: out.shape.clone(), dtype })
    };
    macro_rules! by {
        ($K:ident: $($D:ident $t:ty),*; $($N:ident $n:ty),*) => {
            match dtype {
                $(DType::$D => fold(op, <$K<$t>>::default(), how, x, out),)*
                $(DType::$N => fold::<$n, _>(op, Widened::<$K<<$n as widened::Narrow>::Up>>::default(), how, x, out),)*
                #[allow(unreachable_patterns)]
                DType::Bool | DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::F16 | DType::BF16
                | DType::F32 | DType::F64 | DType::C64 | DType::C128 | DType::U16 | DType::U32 | DType::U64 | DType::F8E4M3FN | DType::F8E5M2 => {
                    widened()
                }
            }
        };
    }
    match op {
        ReduceOp::Sum => by!(Total: I64 i64, F32 f32, F64 f64, C64 Complex32, C128 Complex64;
            F16 f16, BF16 bf16, Bool bool, U8 u8, I8 i8, I16 i16, I32 i32),
        ReduceOp::SumOfSquares => by!(Squares: F32 f32, F64 f64; F16 f16, BF16 bf16),
        ReduceOp::Prod => by!(Product: I64 i64, F32 f32, F64 f64, C64 Complex32, C128 Complex64; F16 f16, BF16 bf16),
        ReduceOp::Max => by!(Largest: U8 u8, I8 i8, I16 i16, I32 i32, I64 i64, F32 f32, F64 f64; F16 f16, BF16 bf16),
        ReduceOp::Min => by!(Smallest: U8 u8, I8 i8, I16 i16, I32 i32, I64 i64, F32 f32, F64 f64; F16 f16, BF16 bf16),
        ReduceOp::ArgMax => by!(ArgLargest: I32 i32, I64 i64, F32 f32, F64 f64; F16 f16, BF16 bf16),
        ReduceOp::ArgMin => by!(ArgSmallest: I32 i32, I64 i64, F32 f32, F64 f64; F16 f16, BF16 bf16),
        ReduceOp::Any | ReduceOp::All if dtype != DType::Bool => widened(),
        ReduceOp::Any => fold(op, Decided(true), how, x, out),
        ReduceOp::All => fold(op, Decided(false), how, x, out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::reduced_shape;
    use crate::tests::{array, layouts, show};
    use smallvec::smallvec;

    fn run<O: Element>(op: ReduceOp, x: &CpuArray, axes: &[usize]) -> Vec<O> {
        let shape = reduced_shape(x.shape(), axes, false);
        let how = Reduction { axes: axes.into(), keepdim: false };
        show::<O>(&reduce(&op, &how, x, &Meta { shape, dtype: O::DTYPE }).unwrap())
    }

    /// Sums by index arithmetic.
    fn naive(data: &[f64], shape: &[usize], axes: &[usize], f: impl Fn(f64, f64) -> f64) -> Vec<f64> {
        let out_shape = reduced_shape(shape, axes, false);
        let mut out: Vec<Option<f64>> = vec![None; out_shape.iter().product()];
        for (i, &x) in data.iter().enumerate() {
            let (mut rest, mut at, mut step) = (i, 0, 1);
            for (d, &n) in shape.iter().enumerate().rev() {
                if !axes.contains(&d) {
                    at += rest % n * step;
                    step *= n;
                }
                rest /= n;
            }
            out[at] = Some(out[at].map_or(x, |o| f(o, x)));
        }
        out.into_iter().map(|x| x.unwrap()).collect()
    }

    #[test]
    fn any_axes_of_any_layout() {
        for threads in [1, 2] {
            threads::set_num_threads(threads);
            for shape in [&[5, 7, 9][..], &[2, 100, 40], &[40_000, 3], &[3, 70_000], &[1, 1, 1], &[4, 50, 2, 100]] {
                let n: usize = shape.iter().product();
                let data: Vec<f64> = (0..n).map(|i| ((i * 7919) % 1013) as f64 - 500.0).collect();
                for x in layouts(shape, &data) {
                    for mask in 0..1 << shape.len() {
                        let axes: Vec<usize> = (0..shape.len()).filter(|i| mask >> i & 1 == 1).collect();
                        let sum = naive(&data, shape, &axes, |a, b| a + b);
                        assert_eq!(run::<f64>(ReduceOp::Sum, &x, &axes), sum, "{shape:?} {axes:?}");
                        assert_eq!(run::<f64>(ReduceOp::Max, &x, &axes), naive(&data, shape, &axes, f64::max));
                        assert_eq!(run::<f64>(ReduceOp::Min, &x, &axes), naive(&data, shape, &axes, f64::min));
                    }
                }
            }
        }
    }

    #[test]
    fn indices_are_the_firsts() {
        for x in layouts(&[2, 4], &[1i32, 5, 5, 0, 7, 7, -1, -1]) {
            assert_eq!(run::<i64>(ReduceOp::ArgMax, &x, &[1]), [1, 0]);
            assert_eq!(run::<i64>(ReduceOp::ArgMin, &x, &[1]), [3, 2]);
            assert_eq!(run::<i64>(ReduceOp::ArgMax, &x, &[0]), [1, 1, 0, 0]);
        }
        for n in [100, 200_000] {
            let mut data = vec![1f32; n];
            data[n - 7] = f32::NAN;
            data[n - 3] = f32::NAN;
            assert_eq!(run::<i64>(ReduceOp::ArgMin, &array(&[n], &data), &[0]), [n as i64 - 7]);
            let tall: Vec<f32> = data.iter().flat_map(|&x| [x, 1.0, x, 2.0]).collect();
            let y = run::<i64>(ReduceOp::ArgMax, &array(&[n, 4], &tall), &[0]);
            assert_eq!(y, [n as i64 - 7, 0, n as i64 - 7, 0]);
        }
    }

    #[test]
    fn truth_products_and_emptiness() {
        let x = array(&[2, 2], &[true, false, true, true]);
        assert_eq!(run::<bool>(ReduceOp::All, &x, &[1]), [false, true]);
        assert_eq!(run::<bool>(ReduceOp::Any, &x, &[0]), [true, true]);
        assert_eq!(run::<i64>(ReduceOp::Prod, &array(&[3], &[2i64, 3, 4]), &[0]), [24]);
        let empty = array::<f32>(&[0, 2], &[]);
        assert_eq!(run::<f32>(ReduceOp::Sum, &empty, &[0]), [0.0, 0.0]);
        assert_eq!(run::<f32>(ReduceOp::Prod, &empty, &[0, 1]), [1.0]);
        assert_eq!(run::<f32>(ReduceOp::Max, &empty, &[1]), Vec::<f32>::new());
        assert_eq!(run::<bool>(ReduceOp::All, &array::<bool>(&[0], &[]), &[0]), [true]);
        let how = Reduction { axes: smallvec![0], keepdim: false };
        assert!(reduce(&ReduceOp::Max, &how, &empty, &Meta { shape: smallvec![2], dtype: DType::F32 }).is_err());
        assert_eq!(run::<f32>(ReduceOp::Sum, &array(&[], &[3f32]), &[]), [3.0]);
    }

    #[test]
    fn halves_sum_in_more_precision() {
        let x = array(&[4096], &[half::f16::from_f32(1.0); 4096]);
        assert_eq!(run::<f16>(ReduceOp::Sum, &x, &[0])[0].to_f32(), 4096.0);
        let z = array(&[2], &[Complex32::new(1.0, 2.0), Complex32::new(3.0, -5.0)]);
        assert_eq!(run::<Complex32>(ReduceOp::Sum, &z, &[0]), [Complex32::new(4.0, -3.0)]);
    }
}
