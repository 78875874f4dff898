//! Matrix products in loops, for the dtypes that BLAS has not.
//!
//! Depends on `simd`. Integers wrap; 16-bit floats are multiplied and summed in `f32`. Invariant: panels are packed in
//! the same order as BLAS would read them, so that any transposition runs the same inner loop over contiguous rows.

use super::{Gemm, Matrix};
use crate::cpu::simd::{map1, run, Narrow, Sum, Task, Wide, Widen};

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

/// `c = alpha a b + beta c`, sizes checked by the caller.
#[allow(clippy::too_many_arguments)]
pub fn block<T: Gemm + Sum + Wide<W = T>>(
    m: usize,
    n: usize,
    k: usize,
    alpha: T,
    a: Matrix<T>,
    b: Matrix<T>,
    beta: T,
    c: &mut [T],
    ldc: usize,
) {
    for row in c.chunks_mut(ldc).take(m) {
        for x in &mut row[..n] {
            *x = if beta == T::W_ZERO { T::W_ZERO } else { T::mul_add::<false>(beta, *x, T::W_ZERO) };
        }
    }
    let mut packed = vec![T::W_ZERO; DEPTH.min(k) * WIDTH.min(n)];
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

/// The same for 16-bit floats: products of `f32` blocks, rounded once at the end.
#[allow(clippy::too_many_arguments)]
pub fn widened<T: Gemm + Wide<W = f32>>(
    m: usize,
    n: usize,
    k: usize,
    alpha: T,
    a: Matrix<T>,
    b: Matrix<T>,
    beta: T,
    c: &mut [T],
    ldc: usize,
) {
    // Enough rows and columns that converting is cheap beside multiplying; all of k, so that sums are rounded once.
    const EDGE: usize = 512;
    let mut wide_b = vec![0f32; k * EDGE.min(n)];
    let mut wide_a = vec![0f32; k * EDGE.min(m)];
    let mut sums = vec![0f32; EDGE.min(m) * EDGE.min(n)];
    let (alpha, beta) = (alpha.widen(), beta.widen());
    for j in (0..n).step_by(EDGE) {
        let width = EDGE.min(n - j);
        convert(b, 0, k, j, width, &mut wide_b);
        for i in (0..m).step_by(EDGE) {
            let height = EDGE.min(m - i);
            convert(a, i, height, 0, k, &mut wide_a);
            let (wa, wb) =
                (Matrix { data: &wide_a, ld: k, trans: false }, Matrix { data: &wide_b, ld: width, trans: false });
            f32::block(height, width, k, alpha, wa, wb, 0.0, &mut sums, width);
            for (sums, c) in sums.chunks(width).zip(c[i * ldc..].chunks_mut(ldc)).take(height) {
                let c = &mut c[j..][..width];
                if beta == 0.0 {
                    map1(Narrow, sums, c);
                } else {
                    c.iter_mut().zip(sums).for_each(|(c, s)| *c = T::narrow(s + beta * c.widen()));
                }
            }
        }
    }
}

/// A piece of a matrix in `f32`, by rows.
fn convert<T: Wide<W = f32>>(x: Matrix<T>, r: usize, rows: usize, j: usize, cols: usize, to: &mut [f32]) {
    for (i, to) in to.chunks_mut(cols).take(rows).enumerate() {
        match x.trans {
            false => map1(Widen, &x.data[(r + i) * x.ld + j..][..cols], to),
            true => to.iter_mut().enumerate().for_each(|(l, to)| *to = x.data[(j + l) * x.ld + r + i].widen()),
        }
    }
}
