//! Matrices with NaN, which OpenBLAS's `getrf` takes for singular: factored here, as LAPACK's reference does it.
//!
//! Depends on `dtype`. Invariant: other matrices are not touched.

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

/// Factors `m` by `n` columns that hold NaN: 0, or the number of the first pivot that is zero. `None` for others.
pub(super) fn lu<T: Number>(m: usize, n: usize, a: &mut [T], pivots: &mut [c_int]) -> Option<c_int> {
    if !a.iter().any(|x| x.size().is_nan()) {
        return None;
    }
    let mut info = 0;
    for k in 0..m.min(n) {
        // Nothing is larger than NaN, nor NaN than another.
        let top = (k + 1..m).fold(k, |best, i| if a[k * m + i].size() > a[k * m + best].size() { i } else { best });
        pivots[k] = top as c_int + 1;
        (0..n).for_each(|j| a.swap(j * m + k, j * m + top));
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

#[cfg(test)]
mod tests {
    use super::lu;

    #[test]
    fn only_nan_is_factored_here() {
        let (mut a, mut pivots) = ([f64::NAN, 1.0, 1.0, 1.0], [0; 2]);
        assert_eq!(lu(2, 2, &mut a, &mut pivots), Some(0));
        assert_eq!(pivots, [1, 2]);
        assert!(a[0].is_nan() && a[1].is_nan() && a[2] == 1.0 && a[3].is_nan());
        assert_eq!(lu(1, 1, &mut [0.0f32], &mut pivots), None);
    }
}
