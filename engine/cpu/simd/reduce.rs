//! Reductions of slices: sums and products that stay accurate, extrema that propagate NaN.
//!
//! Depends on `dispatch` and `half`. Invariant: floating sums add at most 64 numbers in a row in their own precision
//! before they go on in double precision, so that the error does not grow with the length.

use super::dispatch::{run, Map2, Task};
use super::half::Wide;
use half::{bf16, f16};
use num_complex::{Complex32, Complex64};
use std::marker::PhantomData;

const LANES: usize = 64;
/// Elements summed in their own precision, in `LANES` lanes, before going on in double precision.
const BLOCK: usize = 16 * LANES;

/// Elements that can be summed and multiplied.
pub trait Sum: Wide + Send + Sync + 'static {
    /// What sums are kept in: double precision for floats, the type itself (wrapping) for integers.
    type Acc: Copy + Send + Sync + 'static;
    /// The empty sum.
    const ZERO: Self::Acc;
    /// The empty product.
    const UNIT: Self::Acc;
    /// An element as an accumulator.
    fn acc(w: Self::W) -> Self::Acc;
    /// Rounded back.
    fn finish(acc: Self::Acc) -> Self;
    /// The sum of two accumulators.
    fn plus(a: Self::Acc, b: Self::Acc) -> Self::Acc;
    /// The product of two accumulators.
    fn times(a: Self::Acc, b: Self::Acc) -> Self::Acc;
    /// The product of two elements, in their own precision.
    fn mul(a: Self::W, b: Self::W) -> Self::W;
    /// One, as an element.
    const W_UNIT: Self::W;
    /// The sum of two elements, in the precision of a block.
    fn add(a: Self::W, b: Self::W) -> Self::W;
    /// a · b + c, in the precision of a block.
    fn mul_add<const F: bool>(a: Self::W, b: Self::W, c: Self::W) -> Self::W;
    /// Zero, in the precision of a block.
    const W_ZERO: Self::W;
}

macro_rules! float {
    ($($t:ty, $w:ty, $from:expr;)*) => {
        $(impl Sum for $t {
            type Acc = f64;
            const ZERO: f64 = 0.0;
            const UNIT: f64 = 1.0;
            const W_ZERO: $w = 0.0;
            const W_UNIT: $w = 1.0;
            #[inline(always)]
            fn mul(a: $w, b: $w) -> $w { a * b }
            #[inline(always)]
            fn acc(w: $w) -> f64 { w.into() }
            #[inline(always)]
            fn finish(acc: f64) -> $t { $from(acc) }
            #[inline(always)]
            fn plus(a: f64, b: f64) -> f64 { a + b }
            #[inline(always)]
            fn times(a: f64, b: f64) -> f64 { a * b }
            #[inline(always)]
            fn add(a: $w, b: $w) -> $w { a + b }
            #[inline(always)]
            fn mul_add<const F: bool>(a: $w, b: $w, c: $w) -> $w { if F { a.mul_add(b, c) } else { a * b + c } }
        })*
    };
}
float! {
    f32, f32, |x| x as f32;
    f64, f64, |x| x;
    f16, f32, |x| f16::narrow(x as f32);
    bf16, f32, |x| bf16::narrow(x as f32);
}
macro_rules! integer {
    ($($t:ty),*) => {
        $(impl Sum for $t {
            type Acc = $t;
            const ZERO: $t = 0;
            const UNIT: $t = 1;
            const W_ZERO: $t = 0;
            const W_UNIT: $t = 1;
            #[inline(always)]
            fn mul(a: $t, b: $t) -> $t { a.wrapping_mul(b) }
            #[inline(always)]
            fn acc(w: $t) -> $t { w }
            #[inline(always)]
            fn finish(acc: $t) -> $t { acc }
            #[inline(always)]
            fn plus(a: $t, b: $t) -> $t { a.wrapping_add(b) }
            #[inline(always)]
            fn times(a: $t, b: $t) -> $t { a.wrapping_mul(b) }
            #[inline(always)]
            fn add(a: $t, b: $t) -> $t { a.wrapping_add(b) }
            #[inline(always)]
            fn mul_add<const F: bool>(a: $t, b: $t, c: $t) -> $t { a.wrapping_mul(b).wrapping_add(c) }
        })*
    };
}
integer!(u8, i8, i16, i32, i64);

impl Sum for bool {
    type Acc = bool;
    const ZERO: bool = false;
    const UNIT: bool = true;
    const W_ZERO: bool = false;
    const W_UNIT: bool = true;
    #[inline(always)]
    fn mul(a: bool, b: bool) -> bool {
        a & b
    }
    #[inline(always)]
    fn acc(w: bool) -> bool {
        w
    }
    #[inline(always)]
    fn finish(acc: bool) -> bool {
        acc
    }
    #[inline(always)]
    fn plus(a: bool, b: bool) -> bool {
        a | b
    }
    #[inline(always)]
    fn times(a: bool, b: bool) -> bool {
        a & b
    }
    #[inline(always)]
    fn add(a: bool, b: bool) -> bool {
        a | b
    }
    #[inline(always)]
    fn mul_add<const F: bool>(a: bool, b: bool, c: bool) -> bool {
        (a & b) | c
    }
}

impl Sum for Complex32 {
    type Acc = Complex64;
    const ZERO: Complex64 = Complex64::new(0.0, 0.0);
    const UNIT: Complex64 = Complex64::new(1.0, 0.0);
    const W_ZERO: Complex32 = Complex32::new(0.0, 0.0);
    const W_UNIT: Complex32 = Complex32::new(1.0, 0.0);
    #[inline(always)]
    fn mul(a: Complex32, b: Complex32) -> Complex32 {
        a * b
    }
    #[inline(always)]
    fn acc(w: Complex32) -> Complex64 {
        Complex64::new(w.re.into(), w.im.into())
    }
    #[inline(always)]
    fn finish(acc: Complex64) -> Complex32 {
        Complex32::new(acc.re as f32, acc.im as f32)
    }
    #[inline(always)]
    fn plus(a: Complex64, b: Complex64) -> Complex64 {
        a + b
    }
    #[inline(always)]
    fn times(a: Complex64, b: Complex64) -> Complex64 {
        a * b
    }
    #[inline(always)]
    fn add(a: Complex32, b: Complex32) -> Complex32 {
        a + b
    }
    #[inline(always)]
    fn mul_add<const F: bool>(a: Complex32, b: Complex32, c: Complex32) -> Complex32 {
        a * b + c
    }
}

/// The sum of the lanes, halving them.
#[inline(always)]
fn fold_lanes<W: Copy, const N: usize>(mut lanes: [W; N], f: impl Fn(W, W) -> W) -> W {
    let mut width = N / 2;
    while width > 0 {
        for j in 0..width {
            lanes[j] = f(lanes[j], lanes[j + width]);
        }
        width /= 2;
    }
    lanes[0]
}

/// Lanes of rows so short that joining many lanes would take longer than summing.
const FEW: usize = 16;
/// Elements from which rows are not so short, and lanes of them.
const SHORT: usize = 64;
const SOME: usize = 32;
/// Elements from which rows are long.
const MIDDLE: usize = 512;

/// The sum of at most [`BLOCK`] elements, by `N` lanes.
#[inline(always)]
fn sum_of_block<T: Sum, const N: usize>(x: &[T]) -> T::Acc {
    let mut lanes = [T::W_ZERO; N];
    let chunks = x.chunks_exact(N);
    for (lane, x) in lanes.iter_mut().zip(chunks.remainder()) {
        *lane = x.widen();
    }
    for c in chunks {
        for j in 0..N {
            lanes[j] = T::add(lanes[j], c[j].widen());
        }
    }
    T::acc(fold_lanes(lanes, T::add))
}

/// [`sum`], for use inside of a task.
#[inline(always)]
pub fn sum_of<T: Sum>(x: &[T]) -> T::Acc {
    match x.len() {
        0..SHORT => sum_of_block::<T, FEW>(x),
        SHORT..MIDDLE => sum_of_block::<T, SOME>(x),
        _ => {
            let mut total = T::ZERO;
            for x in x.chunks(BLOCK) {
                total = T::plus(total, sum_of_block::<T, LANES>(x));
            }
            total
        }
    }
}

struct SumTask<'a, T>(&'a [T]);
impl<T: Sum> Task for SumTask<'_, T> {
    type Out = T::Acc;
    #[inline(always)]
    fn run<const F: bool>(self) -> T::Acc {
        sum_of(self.0)
    }
}

/// The sum of a slice.
pub fn sum<T: Sum>(x: &[T]) -> T::Acc {
    run(SumTask(x))
}

struct SumsTask<'a, T>(&'a [T], usize, &'a mut [T]);
impl<T: Sum> Task for SumsTask<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        let SumsTask(x, n, out) = self;
        // No closure: its body would not be compiled for this function's instruction set.
        for (x, o) in x.chunks(n).zip(out) {
            *o = T::finish(sum_of(x));
        }
    }
}

/// The sums of slices of `n` elements, one after another.
///
/// # Panics
/// If `n` is 0.
pub fn sums<T: Sum>(x: &[T], n: usize, out: &mut [T]) {
    run(SumsTask(x, n, out));
}

/// Elements that one round of a product takes, each into a factor of its own.
const ROUND: usize = 32;

struct ProductTask<'a, T>(&'a [T]);
impl<T: Sum> Task for ProductTask<'_, T> {
    type Out = T::W;
    #[inline(always)]
    fn run<const F: bool>(self) -> T::W {
        let rounds = self.0.chunks_exact(ROUND);
        let rest = rounds.remainder();
        let mut factors = [T::W_UNIT; ROUND];
        for round in rounds {
            for (factor, x) in factors.iter_mut().zip(round) {
                *factor = T::mul(*factor, x.widen());
            }
        }
        // Quarters together, then what is left element by element: the order decides where a part of a product overflows.
        let quarter = ROUND / 4;
        let at = |i: usize| {
            T::mul(T::mul(factors[i], factors[i + quarter]), T::mul(factors[i + 2 * quarter], factors[i + 3 * quarter]))
        };
        let whole = (1..quarter).fold(at(0), |product, i| T::mul(product, at(i)));
        rest.iter().fold(whole, |product, x| T::mul(product, x.widen()))
    }
}

/// The product of a slice, in the elements' own precision and in PyTorch's order.
pub fn product<T: Sum>(x: &[T]) -> T::W {
    run(ProductTask(x))
}

struct SumRows<'a, T: Sum> {
    x: &'a [T],
    stride: usize,
    rows: usize,
    acc: &'a mut [T::Acc],
}
impl<T: Sum> Task for SumRows<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        let SumRows { x, stride, rows, acc } = self;
        let n = acc.len();
        let row = |i: usize| &x[i * stride..][..n];
        let mut i = 0;
        while i + 8 <= rows {
            let (a, b, c, d) = (row(i), row(i + 1), row(i + 2), row(i + 3));
            let (e, f, g, h) = (row(i + 4), row(i + 5), row(i + 6), row(i + 7));
            for j in 0..n {
                let ab = T::add(a[j].widen(), b[j].widen());
                let cd = T::add(c[j].widen(), d[j].widen());
                let ef = T::add(e[j].widen(), f[j].widen());
                let gh = T::add(g[j].widen(), h[j].widen());
                acc[j] = T::plus(acc[j], T::acc(T::add(T::add(ab, cd), T::add(ef, gh))));
            }
            i += 8;
        }
        for i in i..rows {
            for (acc, x) in acc.iter_mut().zip(row(i)) {
                *acc = T::plus(*acc, T::acc(x.widen()));
            }
        }
    }
}

/// Adds `rows` rows, `stride` elements apart and as long as `acc`, to `acc`.
///
/// # Panics
/// If a row reaches beyond `x`.
pub fn sum_rows<T: Sum>(x: &[T], stride: usize, rows: usize, acc: &mut [T::Acc]) {
    run(SumRows { x, stride, rows, acc });
}

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

/// The best number of a slice, beside `first`, and whether it holds NaN; by `N` lanes.
#[inline(always)]
fn best_number<T: Extreme, const MAX: bool, const N: usize>(x: &[T], first: T) -> (T, bool) {
    let mut lanes = [first; N];
    let mut none = false;
    let chunks = x.chunks_exact(N);
    for (lane, &x) in lanes.iter_mut().zip(chunks.remainder()) {
        none |= x.is_none();
        *lane = better_number::<T, MAX>(*lane, x);
    }
    for c in chunks {
        for j in 0..N {
            none |= c[j].is_none();
            lanes[j] = better_number::<T, MAX>(lanes[j], c[j]);
        }
    }
    (fold_lanes(lanes, better_number::<T, MAX>), none)
}

/// Comparing numbers alone takes one instruction, and NaN is rare: whether there is any is looked at block by block.
#[inline(always)]
fn extremum_of<T: Extreme, const MAX: bool>(x: &[T], first: T) -> T {
    let mut best = first;
    for x in x.chunks(BLOCK) {
        let (found, none) = match x.len() {
            0..SHORT => best_number::<T, MAX, FEW>(x, best),
            SHORT..MIDDLE => best_number::<T, MAX, SOME>(x, best),
            _ => best_number::<T, MAX, LANES>(x, best),
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
            for j in 0..n {
                let (ab, cd) = (better::<T, MAX>(a[j], b[j]), better::<T, MAX>(c[j], d[j]));
                acc[j] = better::<T, MAX>(acc[j], better::<T, MAX>(ab, cd));
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
