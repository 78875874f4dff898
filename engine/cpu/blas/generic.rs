//! Matrix products in loops, for the dtypes that BLAS has not.
//!
//! Depends on `simd`. Integers wrap; 16-bit floats are multiplied and summed in `f32`. Invariant: panels are packed in
//! the same order as BLAS would read them, so that any transposition runs the same inner loop over contiguous rows.

#[cfg(target_arch = "x86_64")]
use super::few_rows;
use super::{Gemm, Matrix, Product};
use crate::fallible::scratch;
use crate::simd::{map1, run, threads, Narrow, Sum, Task, Wide, Widen};
use half::{bf16, f16};

/// Rows of `b` packed at once, and columns.
const DEPTH: usize = 256;
const WIDTH: usize = 256;

struct Panel<'a, T> {
    a: Matrix<'a, T>,
    row: usize,
    k0: usize,
    depth: usize,
    /// `depth` rows of `width` elements.
    packed: &'a [T],
    width: usize,
    alpha: T,
    /// `width` elements to add to.
    c: &'a mut [T],
}

impl<T: Gemm + Sum + Wide<W = T>> Task for Panel<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        let Panel { a, row, k0, depth, packed, width, alpha, c } = self;
        let zero = T::W_ZERO;
        for l in 0..depth {
            let x = if a.trans { a.data[(k0 + l) * a.ld + row] } else { a.data[row * a.ld + k0 + l] };
            let x = T::mul_add::<F>(alpha, x, zero);
            for (c, &b) in c.iter_mut().zip(&packed[l * width..][..width]) {
                *c = T::mul_add::<F>(x, b, *c);
            }
        }
    }
}

/// The inner product of two rows, in partial sums.
struct Inner<'a, T>(&'a [T], &'a [T]);

impl<T: Gemm + Sum + Wide<W = T>> Task for Inner<'_, T> {
    type Out = T;
    #[inline(always)]
    fn run<const F: bool>(self) -> T {
        let Inner(x, w) = self;
        let mut sums = [T::W_ZERO; 4 * LANES];
        let whole = x.len() - x.len() % sums.len();
        for (x, w) in x[..whole].chunks_exact(sums.len()).zip(w.chunks_exact(sums.len())) {
            for ((s, &x), &w) in sums.iter_mut().zip(x).zip(w) {
                *s = T::mul_add::<F>(x, w, *s);
            }
        }
        let rest = x[whole..].iter().zip(&w[whole..]).fold(T::W_ZERO, |s, (&x, &w)| T::mul_add::<F>(x, w, s));
        sums.into_iter().fold(rest, |s, x| T::mul_add::<F>(x, T::ONE, s))
    }
}

/// The same product where it has one column, or one row, as one row of `a` and rows of `b`: inner products of what is
/// contiguous.
pub fn as_one_row<'a, T: Copy>(product: &Product<'a, T>) -> Option<Product<'a, T>> {
    let Product { m, n, k, alpha, a, b, beta, ldc } = *product;
    let row = |x: Matrix<'a, T>, along: bool| match x.trans == along {
        true if x.ld == 1 => Some(Matrix { ld: k, trans: !along, ..x }),
        true => None,
        false => Some(x),
    };
    match (m, n) {
        _ if k == 0 => None,
        (1, _) if n > 1 && !b.trans => None,
        (1, _) => Some(Product { a: row(a, true)?, b: if n == 1 { row(b, false)? } else { b }, ..*product }),
        (_, 1) if ldc == 1 && !a.trans => {
            let (a, b) = (Matrix { trans: false, ..row(b, false)? }, Matrix { trans: true, ..a });
            Some(Product { m: 1, n: m, k, alpha, a, b, beta, ldc: m })
        }
        _ => None,
    }
}

/// `c = alpha a b + beta c`, sizes checked by the caller.
pub fn block<T: Gemm + Sum + Wide<W = T>>(product: &Product<T>, c: &mut [T]) {
    let Product { m, n, k, alpha, a, b, beta, ldc } = *product;
    if let Some(Product { n, a, b, .. }) = as_one_row(product) {
        for (j, c) in c.iter_mut().take(n).enumerate() {
            let old = if beta == T::W_ZERO { T::W_ZERO } else { T::mul_add::<false>(beta, *c, T::W_ZERO) };
            *c = T::mul_add::<false>(alpha, run(Inner(&a.data[..k], &b.data[j * b.ld..][..k])), old);
        }
        return;
    }
    for row in c.chunks_mut(ldc).take(m) {
        for x in &mut row[..n] {
            *x = if beta == T::W_ZERO { T::W_ZERO } else { T::mul_add::<false>(beta, *x, T::W_ZERO) };
        }
    }
    let mut packed = scratch(T::W_ZERO, DEPTH.min(k) * WIDTH.min(n));
    for j in (0..n).step_by(WIDTH) {
        let width = WIDTH.min(n - j);
        for k0 in (0..k).step_by(DEPTH) {
            let depth = DEPTH.min(k - k0);
            pack(b, k0, depth, j, width, &mut packed);
            for row in 0..m {
                let c = &mut c[row * ldc + j..][..width];
                run(Panel { a, row, k0, depth, packed: &packed, width, alpha, c });
            }
        }
    }
}

/// Rows `k0..` and columns `j..` of `b`, by rows.
fn pack<T: Copy>(b: Matrix<T>, k0: usize, depth: usize, j: usize, width: usize, to: &mut [T]) {
    for (l, to) in to.chunks_mut(width).take(depth).enumerate() {
        match b.trans {
            false => to.copy_from_slice(&b.data[(k0 + l) * b.ld + j..][..width]),
            true => to.iter_mut().enumerate().for_each(|(i, x)| *x = b.data[(j + i) * b.ld + k0 + l]),
        }
    }
}

/// Rows of 16-bit floats whose products are summed in `f32` at once.
const HEIGHT: usize = 512;
/// Rows of `a` up to which elements of `b` are widened where they are met: it is read once, and nothing is written.
const FEW: usize = 4;
/// Those where an instruction multiplies pairs, and packing the right factor would take longer than multiplying it.
#[cfg(target_arch = "x86_64")]
const FEW_PAIRED: usize = 16;
/// Partial sums of such a row.
const LANES: usize = 16;

/// The inner products of a row and of `R` rows of 16-bit floats: several streams of memory are read faster than one.
struct Dots<'a, T, const R: usize> {
    x: &'a [f32],
    w: [&'a [T]; R],
}

impl<T: Wide<W = f32>, const R: usize> Task for Dots<'_, T, R> {
    type Out = [f32; R];
    #[inline(always)]
    fn run<const F: bool>(self) -> [f32; R] {
        let Dots { x, w } = self;
        let add = |s: f32, x: f32, w: T| if F { x.mul_add(w.widen(), s) } else { s + x * w.widen() };
        let mut sums = [[[0f32; LANES]; 2]; R];
        let whole = x.len() - x.len() % (2 * LANES);
        for at in (0..whole).step_by(2 * LANES) {
            for (sums, w) in sums.iter_mut().zip(w) {
                for (half, sums) in sums.iter_mut().enumerate() {
                    let from = at + half * LANES;
                    let (x, w) = (&x[from..from + LANES], &w[from..from + LANES]);
                    for ((s, &x), &w) in sums.iter_mut().zip(x).zip(w) {
                        *s = add(*s, x, w);
                    }
                }
            }
        }
        let mut made = [0f32; R];
        for ((made, [mut all, other]), w) in made.iter_mut().zip(sums).zip(w) {
            all.iter_mut().zip(other).for_each(|(s, o)| *s += o);
            let mut width = LANES / 2;
            while width > 0 {
                for i in 0..width {
                    all[i] += all[i + width];
                }
                width /= 2;
            }
            *made = x[whole..].iter().zip(&w[whole..]).fold(all[0], |s, (&x, &w)| add(s, x, w));
        }
        made
    }
}

/// 16-bit floats, whose rows are multiplied in place.
pub trait Half: Wide<W = f32> {
    /// The inner products of `x` and each row.
    fn dots<const R: usize>(x: &[f32], w: [&[Self]; R]) -> [f32; R] {
        run(Dots { x, w })
    }
    /// Rows of the left factor up to which elements of the right one are met in place.
    fn few() -> usize {
        FEW
    }
    /// What all rows of a product make of the rows of its right factor from `first` on, one after another, by instructions that
    /// widen nothing; false where there are none.
    fn in_place(product: &Product<Self>, first: usize, made: &mut [f32]) -> bool {
        let _ = (product, first, made);
        false
    }
}
macro_rules! half {
    ($($t:ty { $($few:item)? } { $($in_place:item)? })*) => {$(
        impl Half for $t {
            $($few)?
            $($in_place)?
            #[cfg(target_arch = "x86_64")]
            fn dots<const R: usize>(x: &[f32], w: [&[$t]; R]) -> [f32; R] {
                match few_rows::is_there() {
                    true => few_rows::dots(x, w),
                    false => run(Dots { x, w }),
                }
            }
        }
    )*};
}
half!(f16 {} {} bf16 {
    #[cfg(target_arch = "x86_64")]
    fn few() -> usize {
        if few_rows::has_pairs() {
            FEW_PAIRED
        } else {
            FEW
        }
    }
} {
    #[cfg(target_arch = "x86_64")]
    fn in_place(product: &Product<bf16>, first: usize, made: &mut [f32]) -> bool {
        few_rows::has_pairs() && {
            by_pairs(product, first, made);
            true
        }
    }
});

/// [`Half::in_place`] of bfloat16: four rows at a time, with two rows of the left factor.
#[cfg(target_arch = "x86_64")]
fn by_pairs(product: &Product<bf16>, first: usize, made: &mut [f32]) {
    let Product { m, k, a, b, .. } = *product;
    let (x, row) = (|i: usize| &a.data[i * a.ld..][..k], |j: usize| &b.data[j * b.ld..][..k]);
    for (block, made) in made.chunks_mut(4 * m).enumerate() {
        let j = first + 4 * block;
        if made.len() < 4 * m {
            for (r, made) in made.chunks_mut(m).enumerate() {
                made.iter_mut().enumerate().for_each(|(i, s)| [[*s]] = few_rows::paired([x(i)], [row(j + r)]));
            }
            continue;
        }
        let rows = [row(j), row(j + 1), row(j + 2), row(j + 3)];
        let mut put = |i: usize, sums: [f32; 4]| sums.into_iter().enumerate().for_each(|(r, s)| made[r * m + i] = s);
        for i in (0..m).step_by(2) {
            if i + 1 < m {
                let [low, high] = few_rows::paired([x(i), x(i + 1)], rows);
                put(i, low);
                put(i + 1, high);
            } else {
                let [low] = few_rows::paired([x(i)], rows);
                put(i, low);
            }
        }
    }
}

/// Is this a product of few rows, whose right factor is best read in place?
pub fn is_few<T: Half>(product: &Product<T>) -> bool {
    product.m <= T::few() && product.k > 0 && product.b.trans && !product.a.trans
}

/// [`widened`] for few rows of `a` and a transposed `b`, as a decoder's layers meet one token.
fn dots<T: Gemm + Half>(product: &Product<T>, c: &mut [T]) {
    let Product { m, n, k, alpha, a, b, beta, ldc } = *product;
    let mut x = scratch(0f32, m * k);
    widen(a, 0, 0, k, &mut x);
    let mut made = scratch(0f32, m * n);
    // What all rows make of a row of `b` is contiguous.
    threads::for_chunks(&mut made, m, (threads::GRAIN / k).max(1) * m, |start, made| {
        let row = |j: usize| &b.data[j * b.ld..][..k];
        let first = start / m;
        if T::in_place(product, first, made) {
            return;
        }
        for (p, made) in made.chunks_mut(4 * m).enumerate() {
            let j = first + 4 * p;
            for (i, x) in x.chunks(k).enumerate() {
                match made.len() == 4 * m {
                    true => {
                        let sums = T::dots(x, [row(j), row(j + 1), row(j + 2), row(j + 3)]);
                        sums.into_iter().enumerate().for_each(|(r, s)| made[r * m + i] = s);
                    }
                    false => (0..made.len() / m).for_each(|r| [made[r * m + i]] = T::dots(x, [row(j + r)])),
                }
            }
        }
    });
    let (alpha, beta) = (alpha.widen(), beta.widen());
    for (i, c) in c.chunks_mut(ldc).enumerate() {
        for (c, s) in c.iter_mut().zip(made[i..].iter().step_by(m)).take(n) {
            let old = if beta == 0.0 { 0.0 } else { beta * c.widen() };
            *c = T::narrow(alpha * s + old);
        }
    }
}

/// The same for 16-bit floats over the pool: products of `f32`, rounded once at the end. `b` is widened once for all
/// threads, `a` by the thread that needs it; which is transposed stays so. Always true: there is no better way.
pub fn widened<T: Gemm + Half>(product: &Product<T>, c: &mut [T]) -> bool {
    let row = as_one_row(product);
    let product = row.as_ref().unwrap_or(product);
    let Product { m, n, k, alpha, a, b, beta, ldc } = *product;
    let c = &mut c[..(m - 1) * ldc + n];
    if is_few(product) {
        dots(product, c);
        return true;
    }
    let (lines, length) = if b.trans { (n, k) } else { (k, n) };
    let mut wide = scratch(0f32, lines * length);
    threads::for_chunks(&mut wide, length, threads::GRAIN, |start, to| widen(b, start / length, 0, length, to));
    let wide = Matrix { data: &wide[..], ld: length, trans: b.trans };
    // A region costs as much as 2^18 multiplications.
    let rows = ((1usize << 19) / (n * k)).max(8);
    threads::for_chunks(c, ldc, rows.saturating_mul(ldc), |start, c| {
        let (top, count) = (start / ldc, c.len().div_ceil(ldc));
        let height = HEIGHT.min(count);
        let (mut left, mut sums) = (scratch(0f32, height * k), scratch(0f32, height * n));
        for r in (0..count).step_by(height) {
            let height = height.min(count - r);
            let (left, sums) = (&mut left[..height * k], &mut sums[..height * n]);
            let ld = if a.trans { height } else { k };
            match a.trans {
                true => widen(a, 0, top + r, height, left),
                false => widen(a, top + r, 0, k, left),
            }
            let left = Matrix { data: &left[..], ld, trans: a.trans };
            f32::block(&Product { alpha: alpha.widen(), ..Product::of([height, n, k], left, wide) }, sums);
            for (sums, c) in sums.chunks(n).zip(c[r * ldc..].chunks_mut(ldc)) {
                let c = &mut c[..n];
                match beta.widen() {
                    0.0 => map1(Narrow, sums, c),
                    beta => c.iter_mut().zip(sums).for_each(|(c, s)| *c = T::narrow(s + beta * c.widen())),
                }
            }
        }
    });
    true
}

/// [`widened`] as a block of a product.
pub fn widened_here<T: Gemm + Half>(product: &Product<T>, c: &mut [T]) {
    widened(product, c);
}

/// Stored rows of a matrix from `row` on, `length` elements of each from `column` on, one after another in `f32`.
fn widen<T: Wide<W = f32>>(x: Matrix<T>, row: usize, column: usize, length: usize, to: &mut [f32]) {
    for (i, to) in to.chunks_mut(length).enumerate() {
        map1(Widen, &x.data[(row + i) * x.ld + column..][..length], to);
    }
}
