//! Reductions of slices: sums and products that stay accurate.
//!
//! Depends on `dispatch` and `half`. Invariant: floating sums add at most 64 numbers in a row in their own precision
//! before they go on in double precision, so that the error does not grow with the length.

use super::dispatch::{run, Task};
use super::half::Wide;
use half::{bf16, f16};
use num_complex::{Complex32, Complex64};

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
    /// Is a sum the same in any order? Then the compiler makes vectors of a plain loop, and of lanes it would make gathers.
    const ANY_ORDER: bool;
}

macro_rules! float {
    ($($t:ty, $w:ty, $from:expr;)*) => {
        $(impl Sum for $t {
            type Acc = f64;
            const ZERO: f64 = 0.0;
            const UNIT: f64 = 1.0;
            const W_ZERO: $w = 0.0;
            const ANY_ORDER: bool = false;
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
            const ANY_ORDER: bool = true;
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
    const ANY_ORDER: bool = true;
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

macro_rules! complex {
    ($($t:ty, $part:ty;)*) => {
        $(impl Sum for $t {
            type Acc = Complex64;
            const ZERO: Complex64 = Complex64::new(0.0, 0.0);
            const UNIT: Complex64 = Complex64::new(1.0, 0.0);
            const W_ZERO: $t = <$t>::new(0.0, 0.0);
            const ANY_ORDER: bool = false;
            const W_UNIT: $t = <$t>::new(1.0, 0.0);
            #[inline(always)]
            fn mul(a: $t, b: $t) -> $t { a * b }
            #[inline(always)]
            fn acc(w: $t) -> Complex64 { Complex64::new(w.re.into(), w.im.into()) }
            #[inline(always)]
            fn finish(acc: Complex64) -> $t { <$t>::new(acc.re as $part, acc.im as $part) }
            #[inline(always)]
            fn plus(a: Complex64, b: Complex64) -> Complex64 { a + b }
            #[inline(always)]
            fn times(a: Complex64, b: Complex64) -> Complex64 { a * b }
            #[inline(always)]
            fn add(a: $t, b: $t) -> $t { a + b }
            #[inline(always)]
            fn mul_add<const F: bool>(a: $t, b: $t, c: $t) -> $t { a * b + c }
        })*
    };
}
complex! {
    Complex32, f32;
    Complex64, f64;
}

/// Numbers that one vector holds, or two narrower ones.
pub(super) const WIDE: usize = 16;
/// Elements summed in their own precision, in 64 lanes, before going on in double precision.
pub(super) const BLOCK: usize = 64 * WIDE;
/// Elements from which rows are not so short that joining many lanes would take longer than summing.
pub(super) const SHORT: usize = 64;
/// Elements from which rows are long.
pub(super) const MIDDLE: usize = 512;

/// What `f` makes of all lanes, halving them; for use at the end of a task's loop.
///
/// Such a loop keeps its lanes in registers, as vectors, only if the compiler sees every index as a number and no pairs or
/// quarters of lanes that it could take for narrower vectors. So lanes go to memory here, all at once, and are joined from
/// there; and what is left over at the end of a slice does not go to lanes. Else a reduction takes two to three times as long.
#[inline(always)]
pub fn join<W: Copy, const N: usize>(lanes: [W; N], f: impl Fn(W, W) -> W) -> W {
    let mut lanes = std::hint::black_box(lanes);
    let mut width = N / 2;
    while width > 0 {
        for j in 0..width {
            lanes[j] = f(lanes[j], lanes[j + width]);
        }
        width /= 2;
    }
    lanes[0]
}

/// [`join`] of `K` vectors of lanes.
#[inline(always)]
pub(super) fn join_all<W: Copy, const K: usize>(lanes: [[W; WIDE]; K], f: impl Fn(W, W) -> W) -> W {
    let mut all = lanes[0];
    for more in &lanes[1..] {
        for j in 0..WIDE {
            all[j] = f(all[j], more[j]);
        }
    }
    join(all, f)
}

/// One more element of a sum, or its square.
#[inline(always)]
fn added<T: Sum, const SQUARED: bool, const F: bool>(sum: T::W, x: T::W) -> T::W {
    if SQUARED {
        T::mul_add::<F>(x, x, sum)
    } else {
        T::add(sum, x)
    }
}

/// The sum of at most [`BLOCK`] elements, or of their squares, by `K` times [`WIDE`] lanes.
#[inline(always)]
fn sum_of_block<T: Sum, const K: usize, const SQUARED: bool, const F: bool>(x: &[T]) -> T::Acc {
    let mut lanes = [[T::W_ZERO; WIDE]; K];
    let (chunks, tail) = x.as_chunks::<WIDE>();
    let (groups, rest) = chunks.as_chunks::<K>();
    for group in groups {
        for k in 0..K {
            for j in 0..WIDE {
                lanes[k][j] = added::<T, SQUARED, F>(lanes[k][j], group[k][j].widen());
            }
        }
    }
    for chunk in rest {
        for j in 0..WIDE {
            lanes[0][j] = added::<T, SQUARED, F>(lanes[0][j], chunk[j].widen());
        }
    }
    let mut total = T::acc(join_all(lanes, T::add));
    for x in tail {
        total = T::plus(total, T::acc(added::<T, SQUARED, F>(T::W_ZERO, x.widen())));
    }
    total
}

/// [`sum`], for use inside of a task.
#[inline(always)]
pub fn sum_of<T: Sum>(x: &[T]) -> T::Acc {
    total_of::<T, false, false>(x)
}

/// The sum of a slice, or of its squares.
#[inline(always)]
fn total_of<T: Sum, const SQUARED: bool, const F: bool>(x: &[T]) -> T::Acc {
    let mut total = T::ZERO;
    let plain = if T::ANY_ORDER { usize::MAX } else { WIDE };
    match x.len() {
        len if len < plain => {
            for x in x {
                total = T::plus(total, T::acc(added::<T, SQUARED, F>(T::W_ZERO, x.widen())));
            }
        }
        0..SHORT => total = sum_of_block::<T, 1, SQUARED, F>(x),
        SHORT..MIDDLE => total = sum_of_block::<T, 2, SQUARED, F>(x),
        _ => {
            for x in x.chunks(BLOCK) {
                total = T::plus(total, sum_of_block::<T, 4, SQUARED, F>(x));
            }
        }
    }
    total
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

struct SquaresTask<'a, T>(&'a [T], usize, &'a mut [T::Acc])
where
    T: Sum;
impl<T: Sum> Task for SquaresTask<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        let SquaresTask(x, n, out) = self;
        for (x, o) in x.chunks(n).zip(out) {
            *o = total_of::<T, true, F>(x);
        }
    }
}

/// The sums of the squares of slices of `n` elements, one after another.
///
/// # Panics
/// If `n` is 0.
pub fn sums_of_squares<T: Sum>(x: &[T], n: usize, out: &mut [T::Acc]) {
    run(SquaresTask(x, n, out));
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
        let mut left = rows;
        while left > 0 {
            let x = &x[(rows - left) * stride..];
            left -= match left {
                8.. => add_rows::<T, 8>(x, stride, acc),
                4.. => add_rows::<T, 4>(x, stride, acc),
                2.. => add_rows::<T, 2>(x, stride, acc),
                _ => add_rows::<T, 1>(x, stride, acc),
            };
        }
    }
}

/// Adds `R` rows, a power of two, up before they are added to `acc`; says how many.
#[inline(always)]
fn add_rows<T: Sum, const R: usize>(x: &[T], stride: usize, acc: &mut [T::Acc]) -> usize {
    let mut rows = [x; R];
    for (i, row) in rows.iter_mut().enumerate() {
        *row = &x[i * stride..][..acc.len()];
    }
    for j in 0..acc.len() {
        let mut sums = [T::W_UNIT; R];
        for (sum, row) in sums.iter_mut().zip(rows) {
            *sum = row[j].widen();
        }
        let mut n = R;
        while n > 1 {
            n /= 2;
            for i in 0..n {
                sums[i] = T::add(sums[2 * i], sums[2 * i + 1]);
            }
        }
        acc[j] = T::plus(acc[j], T::acc(sums[0]));
    }
    R
}

/// Adds `rows` rows, `stride` elements apart and as long as `acc`, to `acc`.
///
/// # Panics
/// If a row reaches beyond `x`.
pub fn sum_rows<T: Sum>(x: &[T], stride: usize, rows: usize, acc: &mut [T::Acc]) {
    run(SumRows { x, stride, rows, acc });
}
