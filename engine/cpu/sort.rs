//! Order along one dimension.
//!
//! Depends on `simd` for threads. Each element becomes an unsigned number in the same order, with its place behind it, so
//! that one sort of plain integers is stable. Invariant: NaN is the largest number, and -0 equals 0.

use super::fused::{axis_back, axis_last};
use super::index::stored_only;
use super::simd::{run, threads, Task, Wide};
use super::{search, CpuArray};
use crate::dtype::Element;
use crate::fallible::{scratch, scratch_from, scratch_reserve, scratch_resize};
use crate::{DType, Error, Result};
use half::{bf16, f16};
use lucid_ir::ops::sort::SortOp;
use lucid_ir::Meta;
use std::ops::Range;

/// Elements with an order.
pub(super) trait Ordered: Element {
    /// Do the keys fit 32 bits?
    const NARROW: bool;
    /// A number in the element's order.
    fn key(self) -> u64;
    /// Is it none?
    fn is_nan(self) -> bool;
}

macro_rules! ordered {
    ($($t:ty, $narrow:expr, $x:ident => $key:expr;)*) => {
        $(impl Ordered for $t {
            const NARROW: bool = $narrow;
            #[inline(always)]
            fn key(self) -> u64 {
                let $x = self;
                $key
            }
            #[inline(always)]
            #[allow(clippy::eq_op)]
            fn is_nan(self) -> bool {
                self != self
            }
        })*
    };
}
ordered! {
    bool, true, x => u64::from(x);
    u8, true, x => u64::from(x);
    i8, true, x => u64::from(x as u8 ^ 1 << 7);
    i16, true, x => u64::from(x as u16 ^ 1 << 15);
    i32, true, x => u64::from(x as u32 ^ 1 << 31);
    i64, false, x => x as u64 ^ 1 << 63;
    f16, true, x => x.widen().key();
    bf16, true, x => x.widen().key();
    f32, true, x => {
        let bits = (x + 0.0).to_bits();
        let key = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
        u64::from(if x.is_nan() { u32::MAX } else { key })
    };
    f64, false, x => {
        let bits = (x + 0.0).to_bits();
        let key = if bits >> 63 == 1 { !bits } else { bits | 1 << 63 };
        if x.is_nan() { u64::MAX } else { key }
    };
}

/// Runs `$body` with `$T` bound to the type of an array's elements, which have an order.
macro_rules! with_ordered {
    ($op:literal, $x:expr, $T:ident => $body:expr) => {
        with_ordered!(@ $op, $x, $T => $body; Bool bool, U8 u8, I8 i8, I16 i16, I32 i32, I64 i64, F16 f16, BF16 bf16,
            F32 f32, F64 f64)
    };
    (@ $op:literal, $x:expr, $T:ident => $body:expr; $($D:ident $t:ty),*) => {
        match lucid_ir::backend::Array::dtype($x) {
            $(DType::$D => {
                type $T = $t;
                $body
            })*
            dtype @ (DType::C64 | DType::C128) => Err(Error::dtype($op, "complex numbers have no order", &[dtype])),
            dtype @ (DType::U16 | DType::U32 | DType::U64 | DType::F8E4M3FN | DType::F8E5M2) => {
                Err(stored_only($op, dtype))
            }
        }
    };
}

pub(super) use with_ordered;

/// The kernels of the `sort` family.
pub fn sort(op: &SortOp, inputs: &[&CpuArray], out: &Meta) -> Result<CpuArray> {
    match (op, inputs) {
        (SortOp::ArgSort { axis, descending }, [x]) => order_along(x, *axis, Ranks::All { descending: *descending }),
        (SortOp::ArgSortRows, [x]) => with_ordered!("argsort_rows", *x, T => argsort_rows::<T>(x, out)),
        (SortOp::Search { right }, [rows, values]) => {
            with_ordered!("searchsorted", *rows, T => search::search::<T>(rows, values, *right, out))
        }
        (SortOp::ArgSort { .. } | SortOp::ArgSortRows | SortOp::Search { .. }, _) => {
            Err(Error::runtime(op.name(), format!("does not take {} arrays", inputs.len())))
        }
    }
}

/// Numbers that are sorted by parts of their range first, and places behind them.
trait Keyed: Copy + Ord + Default {
    fn leading(self) -> u64;
}
impl Keyed for u64 {
    fn leading(self) -> u64 {
        self
    }
}
impl Keyed for (u64, i64) {
    fn leading(self) -> u64 {
        self.0
    }
}

/// Keys from which on they are spread over parts of their range first.
const MANY: usize = 4096;

/// Sorts numbers: many are put into parts of their range, a few in each where they are evenly spread, which a comparison sort
/// then finds in the first cache level. Others it sorts as a whole.
fn sort_keys<K: Keyed>(keys: &mut [K]) {
    let ends = keys.iter().map(|k| k.leading()).fold((u64::MAX, 0), |(low, high), k| (low.min(k), high.max(k)));
    let (low, span) = (ends.0, ends.1.saturating_sub(ends.0));
    let bits = (usize::BITS - (keys.len() / 8).leading_zeros()).min(14);
    if keys.len() < MANY || span >> bits == 0 {
        return keys.sort_unstable();
    }
    let shift = (u64::BITS - span.leading_zeros()).saturating_sub(bits);
    let part = |k: K| ((k.leading() - low) >> shift) as usize;
    let mut starts = scratch(0usize, (span >> shift) as usize + 2);
    keys.iter().for_each(|&k| starts[part(k) + 1] += 1);
    // Crowded in few parts, as they may be, they would only be moved.
    if starts.iter().any(|&count| count > keys.len() / 8) {
        return keys.sort_unstable();
    }
    let mut sum = 0;
    for start in &mut starts {
        sum += *start;
        *start = sum;
    }
    let mut spread = scratch(K::default(), keys.len());
    for &k in keys.iter() {
        let at = &mut starts[part(k)];
        spread[*at] = k;
        *at += 1;
    }
    // Each start has become the end of its part.
    let mut from = 0;
    for &end in &starts {
        if end > from + 1 {
            spread[from..end].sort_unstable();
        }
        from = from.max(end);
    }
    keys.copy_from_slice(&spread);
}

/// Which of a row's elements in order are asked for.
#[derive(Clone, Copy)]
pub(super) enum Ranks {
    All {
        descending: bool,
    },
    First {
        k: usize,
        largest: bool,
    },
    At(usize),
    /// The lower one of two in the middle; with `skip` of those that are not NaN, else the first NaN if there is one.
    Middle {
        skip: bool,
    },
}

impl Ranks {
    /// How many of `n`.
    fn count(self, n: usize) -> usize {
        match self {
            Ranks::All { .. } => n,
            Ranks::First { k, .. } => k.min(n),
            Ranks::At(_) | Ranks::Middle { .. } => n.min(1),
        }
    }

    /// The places in order of a row's elements.
    fn of<T: Ordered>(self, row: &[T]) -> Range<usize> {
        match self {
            Ranks::All { .. } | Ranks::First { .. } => 0..self.count(row.len()),
            Ranks::At(at) => at..at + 1,
            Ranks::Middle { skip } => {
                // NaN is behind all others.
                let numbers = row.len() - row.iter().filter(|x| x.is_nan()).count();
                let at = if skip || numbers == row.len() { numbers.saturating_sub(1) / 2 } else { numbers };
                at..at + 1
            }
        }
    }
}

/// The indices along a dimension that are asked for, in its place.
pub(super) fn order_along(x: &CpuArray, axis: usize, ranks: Ranks) -> Result<CpuArray> {
    let x = axis_last(x, axis)?;
    axis_back(&with_ordered!("argsort", &x, T => argsort::<T>(&x, ranks))?, axis)
}

/// By the first elements where these differ, which decides most comparisons without a look at the rows.
fn argsort_rows<T: Ordered>(x: &CpuArray, out: &Meta) -> Result<CpuArray> {
    let x = x.contiguous()?;
    let (n, m) = match x.shape() {
        [.., n, m] => (*n, *m),
        _ => (0, 0),
    };
    let guard = x.read::<T>();
    let data = x.slice(&guard);
    CpuArray::build(&out.shape, |out: &mut [i64]| {
        if m == 0 || n == 0 {
            out.chunks_mut(n.max(1)).for_each(|out| out.iter_mut().zip(0..).for_each(|(o, i)| *o = i));
            return Ok(());
        }
        threads::for_chunks(out, n, threads::GRAIN / 32, |start, out| {
            for (i, out) in out.chunks_mut(n).enumerate() {
                let rows = &data[(start + i * n) * m..(start + (i + 1) * n) * m];
                let row = |i: usize| rows[i * m + 1..(i + 1) * m].iter().map(|x| x.key());
                let mut order: Vec<(u64, usize)> = scratch_from((0..n).map(|i| (rows[i * m].key(), i)));
                order.sort_unstable_by(|a, b| {
                    a.0.cmp(&b.0).then_with(|| row(a.1).cmp(row(b.1))).then_with(|| a.1.cmp(&b.1))
                });
                out.iter_mut().zip(&order).for_each(|(o, &(_, i))| *o = i as i64);
            }
        });
        Ok(())
    })
}

/// Puts those of the numbers that are `wanted` of their order in their places; the others are in any order around them.
fn in_order<K: Keyed>(keys: &mut [K], wanted: Range<usize>) {
    let (start, end) = (wanted.start, wanted.end.min(keys.len()));
    if start >= end {
        return;
    }
    if start > 0 {
        keys.select_nth_unstable(start);
    }
    let rest = &mut keys[start..];
    if end - start < rest.len() && end - start > usize::from(start > 0) {
        rest.select_nth_unstable(end - start - 1);
    }
    sort_keys(&mut rest[..end - start]);
}

/// Keys of 32 bits and places, of the elements that can be among the first `k`: none beyond the least of the lasts of as
/// many blocks as make `k` together. Reading that bound costs less than sorting what it leaves out.
fn candidates<T: Ordered>(row: &[T], mask: u64, k: usize, found: &mut Vec<u64>, keys: &mut Vec<u32>) {
    found.clear();
    if k == 0 || k * 16 > row.len() {
        scratch_reserve(found, row.len());
        return found.extend((0u64..).zip(row).map(|(i, x)| (x.key() ^ mask) << 32 | i));
    }
    keys.clear();
    scratch_resize(keys, row.len(), 0);
    run(Candidates { row, mask: mask as u32, k, keys, found });
}

/// The elements up to the largest of the least of each block.
struct Candidates<'a, T> {
    row: &'a [T],
    mask: u32,
    k: usize,
    /// As many as elements, to work in.
    keys: &'a mut [u32],
    found: &'a mut Vec<u64>,
}

impl<T: Ordered> Task for Candidates<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        const LANES: usize = 16;
        let Candidates { row, mask, k, keys, found } = self;
        for (key, x) in keys.iter_mut().zip(row) {
            *key = x.key() as u32 ^ mask;
        }
        // `k` whole blocks: what is left over would be a short one, with a worse bound. Of parts of vectors, where they have any.
        let block = row.len() / k;
        let whole = block / LANES * LANES;
        let mut bound = 0;
        for x in keys.chunks_exact(block) {
            let mut lanes = [u32::MAX; LANES];
            for c in x[..whole].chunks_exact(LANES) {
                for j in 0..LANES {
                    lanes[j] = lanes[j].min(c[j]);
                }
            }
            let mut width = LANES / 2;
            while width > 0 {
                for j in 0..width {
                    lanes[j] = lanes[j].min(lanes[j + width]);
                }
                width /= 2;
            }
            bound = bound.max(lanes[0]);
        }
        let mut places = [0u64; LANES];
        let parts = keys.chunks_exact(LANES);
        let rest = parts.remainder();
        let last = row.len() - rest.len();
        for (part, keys) in parts.enumerate() {
            // Most parts have none, and vectors tell.
            let mut least = u32::MAX;
            for &key in keys {
                least = least.min(key);
            }
            if least <= bound {
                // Where they are is a guess that would often be wrong: each is written, and counted if it is one.
                let mut count = 0;
                for (j, &key) in keys.iter().enumerate() {
                    places[count % LANES] = u64::from(key) << 32 | (part * LANES + j) as u64;
                    count += usize::from(key <= bound);
                }
                scratch_reserve(found, LANES);
                found.extend_from_slice(&places[..count.min(LANES)]);
            }
        }
        for (i, &key) in (last..).zip(rest) {
            if key <= bound {
                scratch_reserve(found, 1);
                found.push(u64::from(key) << 32 | i as u64);
            }
        }
    }
}

/// Bits that tell the places of `n` elements apart.
fn place_bits(n: usize) -> u32 {
    usize::BITS - n.saturating_sub(1).leading_zeros()
}

/// Puts the `wanted` of a row in order as numbers of one word, places in their last bits, which takes half as long as pairs
/// do. Keys that are too far apart lose their last bits: what is equal then, few elements where numbers are spread, is
/// compared once more. False where that cannot be done, since only some are wanted, or does not pay.
fn packed<T: Ordered>(row: &[T], mask: u64, wanted: Range<usize>, found: &mut Vec<u64>) -> bool {
    let key = |x: &T| x.key() ^ mask;
    let (low, high) = row.iter().map(key).fold((u64::MAX, 0), |(low, high), k| (low.min(k), high.max(k)));
    let bits = place_bits(row.len());
    let lost = bits.saturating_sub(high.saturating_sub(low).leading_zeros());
    let all = wanted.start == 0 && wanted.end >= row.len();
    if bits > 32 || lost > 0 && !all {
        return false;
    }
    found.clear();
    scratch_reserve(found, row.len());
    found.extend((0u64..).zip(row).map(|(i, x)| (key(x) - low) >> lost << bits | i));
    in_order(found, wanted);
    if lost > 0 {
        let places = (1u64 << bits) - 1;
        let place = |x: u64| (x & places) as usize;
        for equal in found.chunk_by_mut(|a, b| a >> bits == b >> bits).filter(|equal| equal.len() > 1) {
            equal.sort_unstable_by_key(|&x| (key(&row[place(x)]), x));
        }
    }
    true
}

/// Along the last dimension of a row-major array: the indices of these ranks in each row's order.
pub(super) fn argsort<T: Ordered>(x: &CpuArray, ranks: Ranks) -> Result<CpuArray> {
    let n = x.shape().last().copied().unwrap_or(1).max(1);
    let descending = matches!(ranks, Ranks::All { descending: true } | Ranks::First { largest: true, .. });
    let each = ranks.count(n);
    let guard = x.read::<T>();
    let data = x.slice(&guard);
    let mut shape = crate::shape::Shape::from_slice(x.shape());
    if let Some(last) = shape.last_mut() {
        *last = each.min(*last);
    }
    CpuArray::build(&shape, |out: &mut [i64]| {
        if each == 0 {
            return Ok(());
        }
        // A comparison sort takes some 20 ns per element.
        threads::for_chunks(out, each, (threads::GRAIN / 16 / n).max(1) * each, |first, out| {
            let (mut narrow, mut wide, mut keys) = (Vec::new(), Vec::new(), Vec::new());
            for (row, out) in data[first / each * n..].chunks(n).zip(out.chunks_mut(each)) {
                let Range { start, end: k } = ranks.of(row);
                if T::NARROW && u32::try_from(n).is_ok() {
                    let mask = if descending { u64::from(u32::MAX) } else { 0 };
                    candidates(row, mask, k, &mut narrow, &mut keys);
                    in_order(&mut narrow, start..k);
                    out.iter_mut().zip(&narrow[start..]).for_each(|(o, &x)| *o = (x & u64::from(u32::MAX)) as i64);
                } else {
                    let mask = if descending { u64::MAX } else { 0 };
                    if packed(row, mask, start..k, &mut narrow) {
                        let places = (1u64 << place_bits(n)) - 1;
                        out.iter_mut().zip(&narrow[start..]).for_each(|(o, &x)| *o = (x & places) as i64);
                        continue;
                    }
                    wide.clear();
                    scratch_reserve(&mut wide, row.len());
                    wide.extend((0i64..).zip(row).map(|(i, x)| (x.key() ^ mask, i)));
                    in_order(&mut wide, start..k);
                    out.iter_mut().zip(&wide[start..]).for_each(|(o, &(_, i))| *o = i);
                }
            }
        });
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{array, layouts, show};

    fn order(x: &CpuArray, axis: usize, descending: bool) -> Vec<i64> {
        let meta = Meta::new(x.shape(), DType::I64);
        show(&sort(&SortOp::ArgSort { axis, descending }, &[x], &meta).unwrap())
    }

    #[test]
    fn many_are_sorted_as_few() {
        let mut seed = 7u64;
        let mut next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            seed >> 1
        };
        let spread: Vec<u64> = (0..20_000).map(|_| next()).collect();
        let crowded: Vec<u64> = (0..20_000).map(|i| if i % 3 == 0 { next() } else { next() % 50 }).collect();
        let few: Vec<u64> = (0..9_000).map(|_| next() % 100).collect();
        let ends: Vec<u64> = (0..9_000).map(|i| if i % 2 == 0 { u64::MAX } else { 0 }).collect();
        for keys in [spread, crowded, few, ends] {
            let mut pairs: Vec<(u64, i64)> = keys.iter().copied().zip(0..).collect();
            let mut expected = pairs.clone();
            expected.sort();
            sort_keys(&mut pairs);
            assert_eq!(pairs, expected);
            let mut alone = keys;
            sort_keys(&mut alone);
            assert!(alone.is_sorted());
        }
    }

    #[test]
    fn words_with_places_in_their_last_bits_are_in_order() {
        let mut seed = 3u64;
        let mut next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            seed as i64
        };
        let spread: Vec<i64> = (0..5000).map(|_| next()).collect();
        let near: Vec<i64> = (0..300).map(|i| if i == 7 { i64::MIN } else { i64::MAX - (next() & 63) }).collect();
        let small: Vec<i64> = (0..300).map(|_| next() & 31).collect();
        for x in [spread, near, small, vec![5], vec![i64::MAX, i64::MIN]] {
            let given = array(&[x.len()], &x);
            let mut expected: Vec<i64> = (0..x.len() as i64).collect();
            expected.sort_by_key(|&i| x[i as usize]);
            assert_eq!(order(&given, 0, false), expected);
            let first = Ranks::First { k: x.len().div_ceil(3), largest: false };
            let some = show::<i64>(&order_along(&given, 0, first).unwrap());
            assert_eq!(some, expected[..x.len().div_ceil(3)]);
            expected = (0..x.len() as i64).collect();
            expected.sort_by_key(|&i| std::cmp::Reverse(x[i as usize]));
            assert_eq!(order(&given, 0, true), expected);
        }
    }

    #[test]
    fn ties_keep_their_order_and_nan_is_largest() {
        let data = [2f32, f32::NAN, -1.0, 0.0, -0.0, f32::INFINITY, -f32::NAN, 2.0, f32::NEG_INFINITY];
        for x in layouts(&[9], &data) {
            assert_eq!(order(&x, 0, false), [8, 2, 3, 4, 0, 7, 5, 1, 6]);
            assert_eq!(order(&x, 0, true), [1, 6, 5, 0, 7, 3, 4, 2, 8]);
        }
        let wide: Vec<f64> = data.iter().map(|&x| f64::from(x)).collect();
        assert_eq!(order(&array(&[9], &wide), 0, false), [8, 2, 3, 4, 0, 7, 5, 1, 6]);
        let half: Vec<f16> = data.iter().map(|&x| f16::from_f32(x)).collect();
        assert_eq!(order(&array(&[9], &half), 0, true), [1, 6, 5, 0, 7, 3, 4, 2, 8]);
    }

    #[test]
    fn every_axis() {
        for x in layouts(&[2, 3], &[3i32, 1, 2, -3, 5, 2]) {
            assert_eq!(order(&x, 1, false), [1, 2, 0, 0, 2, 1]);
            assert_eq!(order(&x, 0, false), [1, 0, 0, 0, 1, 1]);
            assert_eq!(order(&x, 0, true), [0, 1, 0, 1, 0, 1]);
        }
        assert!(order(&array::<i32>(&[2, 0], &[]), 1, false).is_empty());
        assert!(order(&array::<i32>(&[0, 2], &[]), 0, false).is_empty());
    }

    #[test]
    fn rows_are_ordered_by_their_first_difference() {
        for x in layouts(&[4, 2], &[2f32, 1.0, -0.0, 5.0, 2.0, f32::NAN, 0.0, -5.0]) {
            let meta = Meta::new(&[4], DType::I64);
            assert_eq!(show::<i64>(&sort(&SortOp::ArgSortRows, &[&x], &meta).unwrap()), [3, 1, 0, 2]);
        }
        let same = array(&[2, 2, 1], &[7u8, 7, 3, 1]);
        assert_eq!(
            show::<i64>(&sort(&SortOp::ArgSortRows, &[&same], &Meta::new(&[2, 2], DType::I64)).unwrap()),
            [0, 1, 1, 0]
        );
        let none = array::<i64>(&[2, 0], &[]);
        assert_eq!(show::<i64>(&sort(&SortOp::ArgSortRows, &[&none], &Meta::new(&[2], DType::I64)).unwrap()), [0, 1]);
    }

    #[test]
    fn integers_of_every_width() {
        assert_eq!(order(&array(&[3], &[1i8, -128, 127]), 0, false), [1, 0, 2]);
        assert_eq!(order(&array(&[3], &[1i16, i16::MIN, i16::MAX]), 0, true), [2, 0, 1]);
        assert_eq!(order(&array(&[3], &[1i64, i64::MIN, i64::MAX]), 0, false), [1, 0, 2]);
        assert_eq!(order(&array(&[3], &[1u8, 0, 255]), 0, false), [1, 0, 2]);
        assert_eq!(order(&array(&[3], &[true, false, true]), 0, true), [0, 2, 1]);
        let x = array(&[1], &[num_complex::Complex32::default()]);
        assert!(sort(&SortOp::ArgSort { axis: 0, descending: false }, &[&x], &Meta::new(&[1], DType::I64)).is_err());
    }

    #[test]
    fn the_first_are_those_of_the_whole_order() {
        let data: Vec<f32> = (0..3 * 400).map(|i| ((i * 7919) % 211) as f32 - 100.0).collect();
        let mut odd = data.clone();
        odd[17] = f32::NAN;
        odd[555] = f32::NEG_INFINITY;
        for data in [data, odd, vec![1.0; 1200]] {
            for (axis, shape) in [(1, [3, 400]), (0, [400, 3])] {
                for x in layouts(&shape, &data) {
                    let check = |ranks: Ranks, descending: bool, wanted: Range<usize>| {
                        let got = show::<i64>(&order_along(&x, axis, ranks).unwrap());
                        let all = order(&x, axis, descending);
                        let want: Vec<i64> = match axis {
                            1 => all.chunks(400).flat_map(|row| row[wanted.clone()].to_vec()).collect(),
                            _ => all[3 * wanted.start..3 * wanted.end].to_vec(),
                        };
                        assert_eq!(got, want, "{shape:?} {wanted:?} {descending}");
                    };
                    for k in [0, 1, 7, 24, 25, 399, 400] {
                        for largest in [false, true] {
                            check(Ranks::First { k, largest }, largest, 0..k);
                        }
                        check(Ranks::At(k.min(399)), false, k.min(399)..k.min(399) + 1);
                    }
                }
            }
        }
        let wide: Vec<i64> = (0..50).map(|i| (i * 31) % 47).collect();
        let got = order_along(&array(&[50], &wide), 0, Ranks::First { k: 3, largest: true });
        let got = show::<i64>(&got.unwrap());
        assert_eq!(got, order(&array(&[50], &wide), 0, true)[..3]);
    }

    #[test]
    fn long_rows_are_sorted() {
        let data: Vec<i32> = (0..50_000).map(|i: i32| i.wrapping_mul(40_503) % 1009).collect();
        let at = order(&array(&[2, 25_000], &data), 1, false);
        for (row, at) in data.chunks(25_000).zip(at.chunks(25_000)) {
            let key = |i: i64| (row[i as usize], i);
            assert!(at.windows(2).all(|w| key(w[0]) < key(w[1])));
        }
    }
}
