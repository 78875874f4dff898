//! `P L U` of small matrices, whose LAPACK calls would cost more than their arithmetic, and of those with NaN, which OpenBLAS's
//! `getrf` takes for singular: factored and solved here, as LAPACK's reference does it.
//!
//! Depends on `dtype`. Invariant: matrices are by columns, as LAPACK's; pivots count from 1.

use crate::dtype::Part;
use num_complex::Complex;
use num_traits::Num;
use std::ffi::c_int;

/// A number with the size that pivots are chosen by.
pub(super) trait Number: Num + Copy {
    fn size(self) -> f64;
}
impl Number for f32 {
    fn size(self) -> f64 {
        self.abs().into()
    }
}
impl Number for f64 {
    fn size(self) -> f64 {
        self.abs()
    }
}
impl<P: Part> Number for Complex<P> {
    fn size(self) -> f64 {
        (self.re.abs() + self.im.abs()).into()
    }
}

/// Up to this many rows matrices are small.
pub(super) const LARGEST: usize = 8;

/// Factors `m` by `n` columns that are small or hold NaN: 0, or the number of the first pivot that is zero. `None` for others.
pub(super) fn lu<T: Number>(m: usize, n: usize, a: &mut [T], pivots: &mut [c_int]) -> Option<c_int> {
    if m.max(n) > LARGEST && !a.iter().any(|x| x.size().is_nan()) {
        return None;
    }
    let mut info = 0;
    for k in 0..m.min(n) {
        // Nothing is larger than NaN, nor NaN than another.
        let top = (k + 1..m).fold(k, |best, i| if a[k * m + i].size() > a[k * m + best].size() { i } else { best });
        pivots[k] = top as c_int + 1;
        if top != k {
            (0..n).for_each(|j| a.swap(j * m + k, j * m + top));
        }
        let pivot = a[k * m + k];
        if pivot.is_zero() {
            info = if info == 0 { k as c_int + 1 } else { info };
            continue;
        }
        (k + 1..m).for_each(|i| a[k * m + i] = a[k * m + i] / pivot);
        for j in k + 1..n {
            let by = a[j * m + k];
            (k + 1..m).for_each(|i| a[j * m + i] = a[j * m + i] - a[k * m + i] * by);
        }
    }
    Some(info)
}

/// The inverse of a small matrix from [`lu`]'s factors, in their place.
pub(super) fn inverse<T: Number>(n: usize, a: &mut [T], pivots: &[c_int]) {
    let mut columns = [T::zero(); LARGEST * LARGEST];
    for (j, b) in columns.chunks_mut(n).take(n).enumerate() {
        b[j] = T::one();
        for (k, &pivot) in pivots[..n].iter().enumerate() {
            b.swap(k, pivot as usize - 1);
        }
        for k in 0..n {
            let by = b[k];
            (k + 1..n).for_each(|i| b[i] = b[i] - a[k * n + i] * by);
        }
        for k in (0..n).rev() {
            b[k] = b[k] / a[k * n + k];
            let by = b[k];
            (0..k).for_each(|i| b[i] = b[i] - a[k * n + i] * by);
        }
    }
    a[..n * n].copy_from_slice(&columns[..n * n]);
}

/// Solves `Aᵀ x = b` for columns of `n` elements from [`lu`]'s factors of `A`.
pub(super) fn solve_transposed<T: Number>(n: usize, a: &[T], pivots: &[c_int], b: &mut [T]) {
    for b in b.chunks_mut(n) {
        for k in 0..n {
            let sum = (0..k).fold(b[k], |sum, i| sum - a[k * n + i] * b[i]);
            b[k] = sum / a[k * n + k];
        }
        for k in (0..n).rev() {
            b[k] = (k + 1..n).fold(b[k], |sum, i| sum - a[k * n + i] * b[i]);
        }
        for (k, &pivot) in pivots[..n].iter().enumerate().rev() {
            b.swap(k, pivot as usize - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{inverse, lu, solve_transposed};

    #[test]
    fn small_matrices_and_nan_are_factored_here() {
        let (mut a, mut pivots) = ([f64::NAN, 1.0, 1.0, 1.0], [0; 2]);
        assert_eq!(lu(2, 2, &mut a, &mut pivots), Some(0));
        assert_eq!(pivots, [1, 2]);
        assert!(a[0].is_nan() && a[1].is_nan() && a[2] == 1.0 && a[3].is_nan());
        assert_eq!(lu(1, 1, &mut [0.0f32], &mut pivots), Some(1));
        assert_eq!(lu(9, 9, &mut [1.0f32; 81], &mut [0; 9]), None);
    }

    #[test]
    fn factors_invert_and_solve() {
        // By columns.
        let a = [0.0, 2.0, -1.0, 3.0, 1.0, 4.0, 1.0, -2.0, 5.0];
        let (mut factors, mut pivots) = (a, [0; 3]);
        assert_eq!(lu(3, 3, &mut factors, &mut pivots), Some(0));
        let mut inverted = factors;
        inverse(3, &mut inverted, &pivots);
        let mut x = [1.0, -2.0, 0.5, 4.0, 3.0, 2.0];
        let b = x;
        solve_transposed(3, &factors, &pivots, &mut x);
        for (row, column) in (0..9).map(|i| (i % 3, i / 3)) {
            let product: f64 = (0..3).map(|k| a[k * 3 + row] * inverted[column * 3 + k]).sum();
            assert!((product - f64::from(u8::from(row == column))).abs() < 1e-12);
        }
        for (i, side) in (0..6).map(|i| (i % 3, i / 3)) {
            let product: f64 = (0..3).map(|k| a[i * 3 + k] * x[side * 3 + k]).sum();
            assert!((product - b[side * 3 + i]).abs() < 1e-12);
        }
    }
}
