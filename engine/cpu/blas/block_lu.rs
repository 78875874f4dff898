//! `P L U` of large float32 matrices, and what is solved by it, by halves: nearly all of the work is in products, for which
//! this crate's own (`gemm_f32`) take a third of the time that OpenBLAS's do.
//!
//! Depends on `gemm_f32` and `simd`. Invariant: matrices are by columns, as LAPACK's; pivots count from 1.

use super::{gemm_f32, Matrix, Product};
use crate::fallible::scratch;
use crate::simd::{run, Task};
use std::ffi::c_int;

/// Columns that are factored, and rows that are solved, one by one.
const FEW: usize = 16;
/// Columns of right sides that are solved side by side: with as many rows as [`FEW`] they fit the first cache level.
const SIDES: usize = 128;

/// Is this way a good one for matrices of `n` rows and columns here?
pub(super) fn suits(n: usize) -> bool {
    n >= 64 && gemm_f32::is_available()
}

/// Is it a good one for `k` right sides?
pub(super) fn suits_sides(n: usize, k: usize) -> bool {
    suits(n) && k >= FEW
}

/// Factors `m` by `n` columns in place: 0, or the number of the first pivot that is zero.
pub(super) fn lu(m: usize, n: usize, a: &mut [f32], pivots: &mut [c_int]) -> c_int {
    let mut info = 0;
    factor(m, 0, &mut a[..m * n], &mut pivots[..m.min(n)], &mut info);
    info
}

/// Factors the rows from `top` on of columns of `rows` elements, as many as there are pivots, and solves for the columns beyond.
fn factor(rows: usize, top: usize, a: &mut [f32], pivots: &mut [c_int], info: &mut c_int) {
    let (n, k) = (a.len() / rows, pivots.len());
    if n <= FEW {
        return run(Panel { rows, top, a, pivots, info });
    }
    let first = if k <= FEW { k } else { (k / 2).next_multiple_of(FEW).min(k) };
    let (left, right) = a.split_at_mut(first * rows);
    let (early, late) = pivots.split_at_mut(first);
    factor(rows, top, left, early, info);
    swap_rows(rows, top, early, right);
    let lower = Triangle { a: &left[top..], ld: rows, upper: false, transposed: false, unit: true };
    lower.solve(first, n - first, &mut right[top..], rows);
    let below = top + first;
    if below < rows {
        let solved = negated(first, n - first, &right[top..], rows);
        let by = Matrix { data: &left[below..], ld: rows, trans: false };
        add_product([n - first, rows - below, first], &solved, by, &mut right[below..], rows);
    }
    if !late.is_empty() {
        factor(rows, below, right, late, info);
        swap_rows(rows, below, late, left);
    }
}

/// Swaps rows of columns as the pivots say, of which the first is that of row `top`.
fn swap_rows(rows: usize, top: usize, pivots: &[c_int], columns: &mut [f32]) {
    for column in columns.chunks_mut(rows) {
        for (i, &pivot) in pivots.iter().enumerate() {
            column.swap(top + i, pivot as usize - 1);
        }
    }
}

/// `rows` elements of each of `columns` columns, one column after the other, negated.
fn negated(rows: usize, columns: usize, x: &[f32], ld: usize) -> Vec<f32> {
    let mut out = scratch(0f32, rows * columns);
    for (to, x) in out.chunks_mut(rows).zip(x.chunks(ld)) {
        to.iter_mut().zip(x).for_each(|(to, x)| *to = -x);
    }
    out
}

/// `c += a b` for rows of `a` without gaps; `sizes` are m, n and k.
fn add_product(sizes: [usize; 3], a: &[f32], b: Matrix<f32>, c: &mut [f32], ldc: usize) {
    let a = Matrix { data: a, ld: sizes[2], trans: false };
    gemm_f32::add(&Product { beta: 1.0, ldc, ..Product::of(sizes, a, b) }, c);
}

/// A few columns, one after the other.
struct Panel<'a> {
    rows: usize,
    top: usize,
    a: &'a mut [f32],
    pivots: &'a mut [c_int],
    info: &'a mut c_int,
}

impl Task for Panel<'_> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        let Panel { rows, top, a, pivots, info } = self;
        for (j, pivot) in pivots.iter_mut().enumerate() {
            let at = top + j;
            let best = at + largest(&a[j * rows + at..(j + 1) * rows]);
            *pivot = best as c_int + 1;
            if best != at {
                a.chunks_mut(rows).for_each(|column| column.swap(at, best));
            }
            let (column, rest) = a[j * rows..].split_at_mut(rows);
            let by = column[at];
            if by == 0.0 {
                *info = if *info == 0 { at as c_int + 1 } else { *info };
                continue;
            }
            let column = &mut column[at + 1..];
            column.iter_mut().for_each(|x| *x /= by);
            for other in rest.chunks_mut(rows) {
                let by = other[at];
                other[at + 1..].iter_mut().zip(&*column).for_each(|(y, x)| *y -= x * by);
            }
        }
    }
}

/// Where the first of the largest absolute values is.
#[inline(always)]
fn largest(x: &[f32]) -> usize {
    const LANES: usize = 16;
    let mut lanes = [0f32; LANES];
    let parts = x.chunks_exact(LANES);
    let rest = parts.remainder();
    for part in parts {
        for (lane, x) in lanes.iter_mut().zip(part) {
            *lane = if x.abs() > *lane { x.abs() } else { *lane };
        }
    }
    let most = lanes.iter().chain(rest).fold(0f32, |most, x| if x.abs() > most { x.abs() } else { most });
    x.iter().position(|x| x.abs() == most).unwrap_or(0)
}

/// A triangle of a stored matrix, whose other half is not read.
#[derive(Clone, Copy)]
struct Triangle<'a> {
    /// From its first element on.
    a: &'a [f32],
    ld: usize,
    /// Is it the upper one of what is stored?
    upper: bool,
    /// Is the matrix the transpose of what is stored?
    transposed: bool,
    /// Is its diagonal taken for ones?
    unit: bool,
}

impl Triangle<'_> {
    /// Does the matrix, as it is read, begin with the row of one element?
    fn is_lower(&self) -> bool {
        self.upper == self.transposed
    }

    /// Solves for `k` columns of `n` elements, `ldb` apart, in place.
    fn solve(&self, n: usize, k: usize, b: &mut [f32], ldb: usize) {
        if n <= FEW {
            return self.solve_few(n, k, b, ldb);
        }
        let first = (n / 2).next_multiple_of(FEW);
        let rest = Triangle { a: &self.a[first * self.ld + first..], ..*self };
        // The half beside the diagonal's, as what the product takes on its right.
        let at = if self.upper { first * self.ld } else { first };
        let by = Matrix { data: &self.a[at..], ld: self.ld, trans: self.transposed };
        if self.is_lower() {
            self.solve(first, k, b, ldb);
            let solved = negated(first, k, b, ldb);
            add_product([k, n - first, first], &solved, by, &mut b[first..], ldb);
            rest.solve(n - first, k, &mut b[first..], ldb);
        } else {
            rest.solve(n - first, k, &mut b[first..], ldb);
            let solved = negated(n - first, k, &b[first..], ldb);
            add_product([k, first, n - first], &solved, by, b, ldb);
            self.solve(first, k, b, ldb);
        }
    }

    /// The same for a few rows, from a copy by rows, in which the columns are side by side.
    fn solve_few(&self, n: usize, k: usize, b: &mut [f32], ldb: usize) {
        let mut room = [0f32; FEW * SIDES];
        for from in (0..k).step_by(SIDES) {
            let sides = SIDES.min(k - from);
            let columns = &mut b[from * ldb..];
            for (j, column) in columns.chunks(ldb).take(sides).enumerate() {
                (0..n).for_each(|i| room[i * SIDES + j] = column[i]);
            }
            run(Rows { triangle: *self, n, rows: &mut room });
            for (j, column) in columns.chunks_mut(ldb).take(sides).enumerate() {
                (0..n).for_each(|i| column[i] = room[i * SIDES + j]);
            }
        }
    }
}

/// `n` rows of [`SIDES`] right sides.
struct Rows<'a> {
    triangle: Triangle<'a>,
    n: usize,
    rows: &'a mut [f32; FEW * SIDES],
}

impl Task for Rows<'_> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        let Rows { triangle: Triangle { a, ld, transposed, unit, .. }, n, rows } = self;
        let lower = self.triangle.is_lower();
        let (down, across) = if transposed { (ld, 1) } else { (1, ld) };
        for step in 0..n {
            let i = if lower { step } else { n - 1 - step };
            let mut row = [0f32; SIDES];
            row.copy_from_slice(&rows[i * SIDES..(i + 1) * SIDES]);
            if !unit {
                let by = a[i * ld + i];
                row.iter_mut().for_each(|x| *x /= by);
                rows[i * SIDES..(i + 1) * SIDES].copy_from_slice(&row);
            }
            for j in if lower { i + 1..n } else { 0..i } {
                let by = a[j * down + i * across];
                rows[j * SIDES..(j + 1) * SIDES].iter_mut().zip(&row).for_each(|(y, x)| *y -= x * by);
            }
        }
    }
}

/// The inverse from [`lu`]'s factors, in their place.
pub(super) fn inverse(n: usize, a: &mut [f32], pivots: &[c_int]) {
    let mut columns = scratch(0f32, n * n);
    columns.iter_mut().step_by(n + 1).for_each(|x| *x = 1.0);
    swap_rows(n, 0, pivots, &mut columns);
    let lower = Triangle { a, ld: n, upper: false, transposed: false, unit: true };
    lower.solve(n, n, &mut columns, n);
    Triangle { upper: true, unit: false, ..lower }.solve(n, n, &mut columns, n);
    a[..n * n].copy_from_slice(&columns);
}

/// Solves `Aᵀ x = b` for columns of `n` elements from [`lu`]'s factors of `A`.
pub(super) fn solve_transposed(n: usize, k: usize, a: &[f32], pivots: &[c_int], b: &mut [f32]) {
    let upper = Triangle { a, ld: n, upper: true, transposed: true, unit: false };
    upper.solve(n, k, b, n);
    Triangle { upper: false, unit: true, ..upper }.solve(n, k, b, n);
    for column in b[..n * k].chunks_mut(n) {
        for (i, &pivot) in pivots[..n].iter().enumerate().rev() {
            column.swap(i, pivot as usize - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that no factorisation is bad at.
    fn numbers(len: usize) -> Vec<f32> {
        let mut seed = 5u32;
        let mut next = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        (0..len).map(|_| next()).collect()
    }

    /// The largest distance between `A x` and `b`, columns of n.
    fn distance(n: usize, a: impl Fn(usize, usize) -> f32, x: &[f32], b: &[f32]) -> f64 {
        let row = |i: usize, x: &[f32]| -> f64 { (0..n).map(|j| f64::from(a(i, j)) * f64::from(x[j])).sum() };
        let of = |(x, b): (&[f32], &[f32])| (0..n).map(|i| (row(i, x) - f64::from(b[i])).abs()).fold(0.0, f64::max);
        x.chunks(n).zip(b.chunks(n)).map(of).fold(0.0, f64::max)
    }

    #[test]
    fn factors_multiply_to_the_permuted_matrix() {
        for (m, n) in [(1, 1), (5, 40), (40, 5), (17, 17), (70, 100), (100, 70), (131, 131)] {
            let a = numbers(m * n);
            let (mut factors, mut pivots) = (a.clone(), vec![0; m.min(n)]);
            assert_eq!(lu(m, n, &mut factors, &mut pivots), 0);
            let mut permuted = a;
            swap_rows(m, 0, &pivots, &mut permuted);
            for j in 0..n {
                for i in 0..m {
                    let k = m.min(n);
                    let l = |p: usize| if p == i { 1.0 } else { f64::from(factors[p * m + i]) };
                    let sum: f64 = (0..=i.min(j).min(k - 1)).map(|p| l(p) * f64::from(factors[j * m + p])).sum();
                    assert!((sum - f64::from(permuted[j * m + i])).abs() < 1e-4, "{m} {n}: {i} {j}");
                    assert!(
                        i <= j || i >= m || j >= k || factors[j * m + i].abs() <= 1.0,
                        "a pivot was not the largest"
                    );
                }
            }
        }
    }

    #[test]
    fn inverses_and_solutions_fit_the_matrix() {
        for n in [1, 16, 33, 64, 129] {
            let mut a = numbers(n * n);
            a.iter_mut().step_by(n + 1).for_each(|x| *x += 4.0);
            let (mut factors, mut pivots) = (a.clone(), vec![0; n]);
            assert_eq!(lu(n, n, &mut factors, &mut pivots), 0);
            let mut inverted = factors.clone();
            inverse(n, &mut inverted, &pivots);
            let mut identity = vec![0f32; n * n];
            identity.iter_mut().step_by(n + 1).for_each(|x| *x = 1.0);
            assert!(distance(n, |i, j| a[j * n + i], &inverted, &identity) < 1e-4);
            for k in [1, 20, 150] {
                let b = numbers(n * k);
                let mut x = b.clone();
                solve_transposed(n, k, &factors, &pivots, &mut x);
                assert!(distance(n, |i, j| a[i * n + j], &x, &b) < 1e-4);
            }
        }
    }

    #[test]
    fn the_first_zero_pivot_is_told() {
        let n = 40;
        let mut a = numbers(n * n);
        [20, 30].iter().for_each(|j| a[j * n..(j + 1) * n].fill(0.0));
        assert_eq!(lu(n, n, &mut a, &mut vec![0; n]), 21);
    }
}
