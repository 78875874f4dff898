//! Extrema of slices, and where they are; NaN is propagated.
//!
//! Depends on `dispatch`, `half` and `reduce`.

use super::dispatch::{run, Map2, Task};
use super::half::Wide;
use super::reduce::{join_all, BLOCK, MIDDLE, SHORT, WIDE};
use half::{bf16, f16};
use std::marker::PhantomData;

/// Elements with an order, in which NaN counts as larger than everything and smaller than everything.
pub trait Extreme: Wide + PartialEq + Send + Sync + 'static {
    /// Is `a` to be preferred to `b` as the maximum (`MAX`) or the minimum? False where they are equal.
    fn beats<const MAX: bool>(a: Self, b: Self) -> bool;
    /// Are both the same number, or both NaN?
    fn same(a: Self, b: Self) -> bool;
    /// Is `a` the larger (`MAX`) or the smaller of two numbers? False where one is NaN.
    fn exceeds<const MAX: bool>(a: Self, b: Self) -> bool;
    /// Is it NaN?
    fn is_none(self) -> bool;
    /// May it be none? Without, the compiler makes vectors of a plain loop, and of lanes it would make gathers.
    const MAY_BE_NONE: bool;
}

macro_rules! extreme {
    ($($t:ty),* ; $($f:ty),*) => {
        $(impl Extreme for $t {
            #[inline(always)]
            fn beats<const MAX: bool>(a: $t, b: $t) -> bool { if MAX { a > b } else { a < b } }
            #[inline(always)]
            fn same(a: $t, b: $t) -> bool { a == b }
            #[inline(always)]
            fn exceeds<const MAX: bool>(a: $t, b: $t) -> bool { if MAX { a > b } else { a < b } }
            #[inline(always)]
            fn is_none(self) -> bool { false }
            const MAY_BE_NONE: bool = false;
        })*
        $(impl Extreme for $f {
            #[inline(always)]
            #[allow(clippy::eq_op)]
            fn beats<const MAX: bool>(a: $f, b: $f) -> bool {
                let (a, b) = (a.widen(), b.widen());
                (if MAX { a > b } else { a < b }) | ((a != a) & (b == b))
            }
            #[inline(always)]
            #[allow(clippy::eq_op)]
            fn same(a: $f, b: $f) -> bool {
                let (a, b) = (a.widen(), b.widen());
                (a == b) | ((a != a) & (b != b))
            }
            #[inline(always)]
            fn exceeds<const MAX: bool>(a: $f, b: $f) -> bool {
                let (a, b) = (a.widen(), b.widen());
                if MAX { a > b } else { a < b }
            }
            #[inline(always)]
            #[allow(clippy::eq_op)]
            fn is_none(self) -> bool {
                let x = self.widen();
                x != x
            }
            const MAY_BE_NONE: bool = true;
        })*
    };
}
extreme!(bool, u8, i8, i16, i32, i64; f16, bf16, f32, f64);

/// The better of two elements: a kernel for `map2`.
#[derive(Clone, Copy)]
pub struct Better<const MAX: bool>;
impl<T: Extreme, const MAX: bool> Map2<T, T, T> for Better<MAX> {
    #[inline(always)]
    fn map<const F: bool>(self, a: T, b: T) -> T {
        better::<T, MAX>(a, b)
    }
}

#[inline(always)]
fn better<T: Extreme, const MAX: bool>(a: T, b: T) -> T {
    if T::beats::<MAX>(b, a) {
        b
    } else {
        a
    }
}

/// The better of two numbers; `b` is passed over where it is NaN.
#[inline(always)]
fn better_number<T: Extreme, const MAX: bool>(a: T, b: T) -> T {
    if T::exceeds::<MAX>(b, a) {
        b
    } else {
        a
    }
}

/// [`Better`] of elements and a number: one instruction, as a NaN among the elements is not passed over.
#[derive(Clone, Copy)]
pub struct BetterNumber<const MAX: bool>;
impl<T: Extreme, const MAX: bool> Map2<T, T, T> for BetterNumber<MAX> {
    #[inline(always)]
    fn map<const F: bool>(self, a: T, b: T) -> T {
        better_number::<T, MAX>(a, b)
    }
}

/// The best number of a slice, beside `first`, and whether it holds NaN; by `K` times [`WIDE`] lanes.
#[inline(always)]
fn best_number<T: Extreme, const MAX: bool, const K: usize>(x: &[T], first: T) -> (T, bool) {
    let mut lanes = [[first; WIDE]; K];
    let mut none = [false; WIDE];
    let (chunks, tail) = x.as_chunks::<WIDE>();
    let (groups, rest) = chunks.as_chunks::<K>();
    for group in groups {
        for k in 0..K {
            for j in 0..WIDE {
                none[j] |= group[k][j].is_none();
                lanes[k][j] = better_number::<T, MAX>(lanes[k][j], group[k][j]);
            }
        }
    }
    for chunk in rest {
        for j in 0..WIDE {
            none[j] |= chunk[j].is_none();
            lanes[0][j] = better_number::<T, MAX>(lanes[0][j], chunk[j]);
        }
    }
    let mut any = false;
    for none in none {
        any |= none;
    }
    let mut best = join_all(lanes, better_number::<T, MAX>);
    for &x in tail {
        any |= x.is_none();
        best = better_number::<T, MAX>(best, x);
    }
    (best, any)
}

/// Comparing numbers alone takes one instruction, and NaN is rare: whether there is any is looked at block by block.
#[inline(always)]
fn extremum_of<T: Extreme, const MAX: bool>(x: &[T], first: T) -> T {
    let mut best = first;
    if x.len() < WIDE || !T::MAY_BE_NONE {
        for &x in x {
            best = better::<T, MAX>(best, x);
        }
        return best;
    }
    for x in x.chunks(BLOCK) {
        let (found, none) = match x.len() {
            0..SHORT => best_number::<T, MAX, 1>(x, best),
            SHORT..MIDDLE => best_number::<T, MAX, 2>(x, best),
            _ => best_number::<T, MAX, 4>(x, best),
        };
        if none {
            return x.iter().copied().find(|x| x.is_none()).unwrap_or(best);
        }
        best = found;
    }
    best
}

struct ExtremeTask<'a, T, const MAX: bool>(&'a [T], T, PhantomData<[(); 0]>);
impl<T: Extreme, const MAX: bool> Task for ExtremeTask<'_, T, MAX> {
    type Out = T;
    #[inline(always)]
    fn run<const F: bool>(self) -> T {
        extremum_of::<T, MAX>(self.0, self.1)
    }
}

/// The largest (`MAX`) or smallest element, NaN where there is one; None of nothing.
pub fn extremum<T: Extreme, const MAX: bool>(x: &[T]) -> Option<T> {
    let &first = x.first()?;
    Some(run(ExtremeTask::<T, MAX>(x, first, PhantomData)))
}

struct ExtremaTask<'a, T, const MAX: bool>(&'a [T], usize, &'a mut [T]);
impl<T: Extreme, const MAX: bool> Task for ExtremaTask<'_, T, MAX> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        let ExtremaTask(x, n, out) = self;
        for (x, o) in x.chunks(n).zip(out) {
            *o = extremum_of::<T, MAX>(x, x[0]);
        }
    }
}

/// The same of slices of `n` elements, one after another.
///
/// # Panics
/// If `n` is 0.
pub fn extrema<T: Extreme, const MAX: bool>(x: &[T], n: usize, out: &mut [T]) {
    run(ExtremaTask::<T, MAX>(x, n, out));
}

struct ExtremeRows<'a, T, const MAX: bool> {
    x: &'a [T],
    stride: usize,
    rows: usize,
    acc: &'a mut [T],
}
impl<T: Extreme, const MAX: bool> Task for ExtremeRows<'_, T, MAX> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        let ExtremeRows { x, stride, rows, acc } = self;
        let n = acc.len();
        let row = |i: usize| &x[i * stride..][..n];
        let mut i = 0;
        while i + 4 <= rows {
            let (a, b, c, d) = (row(i), row(i + 1), row(i + 2), row(i + 3));
            // Numbers alone, and again where there is NaN: as in `extremum_of`.
            let mut none = false;
            for j in 0..n {
                let (ab, cd) = (better_number::<T, MAX>(a[j], b[j]), better_number::<T, MAX>(c[j], d[j]));
                none |= a[j].is_none() | b[j].is_none() | c[j].is_none() | d[j].is_none();
                acc[j] = better_number::<T, MAX>(acc[j], better_number::<T, MAX>(ab, cd));
            }
            if none {
                for j in 0..n {
                    let (ab, cd) = (better::<T, MAX>(a[j], b[j]), better::<T, MAX>(c[j], d[j]));
                    acc[j] = better::<T, MAX>(acc[j], better::<T, MAX>(ab, cd));
                }
            }
            i += 4;
        }
        for i in i..rows {
            for (acc, &x) in acc.iter_mut().zip(row(i)) {
                *acc = better::<T, MAX>(*acc, x);
            }
        }
    }
}

/// Takes `rows` rows, `stride` elements apart and as long as `acc`, into the extrema `acc`.
///
/// # Panics
/// If a row reaches beyond `x`.
pub fn extreme_rows<T: Extreme, const MAX: bool>(x: &[T], stride: usize, rows: usize, acc: &mut [T]) {
    run(ExtremeRows::<T, MAX> { x, stride, rows, acc });
}

/// The index of the first such element; None of nothing.
pub fn arg_extremum<T: Extreme, const MAX: bool>(x: &[T]) -> Option<usize> {
    let best = extremum::<T, MAX>(x)?;
    x.iter().position(|&v| T::same(v, best))
}

struct ArgRow<'a, T, const MAX: bool> {
    x: &'a [T],
    row: i64,
    best: &'a mut [T],
    index: &'a mut [i64],
}
impl<T: Extreme, const MAX: bool> Task for ArgRow<'_, T, MAX> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        for ((&x, best), index) in self.x.iter().zip(self.best).zip(self.index) {
            let wins = T::beats::<MAX>(x, *best);
            *best = if wins { x } else { *best };
            *index = if wins { self.row } else { *index };
        }
    }
}

/// Takes the elements of a row into `best`, and `row` into `index`, where they beat what is there.
pub fn arg_row<T: Extreme, const MAX: bool>(x: &[T], row: i64, best: &mut [T], index: &mut [i64]) {
    run(ArgRow::<T, MAX> { x, row, best, index });
}
