//! Sums of squares.
//!
//! Depends on `simd`. Slices are squared and added up in one pass, rows in the first cache level, in the precision of sums.

use super::super::simd::{self, light1, Map1, Sum};
use super::{Fold, Squares};
use crate::dtype::Element;
use std::ops::Mul;

#[derive(Clone, Copy)]
struct Square;
impl<T: Copy + Mul<Output = T>> Map1<T, T> for Square {
    #[inline(always)]
    fn map<const F: bool>(self, x: T) -> T {
        x * x
    }
}

/// Rows whose sums are kept before they are rounded.
const ROWS: usize = 64;
/// Squares that are added up while they are in the first cache level.
const BLOCK: usize = 1024;

impl<T: Element + Sum + Mul<Output = T>> Fold<T> for Squares<T> {
    type Acc = T::Acc;
    type Out = T;
    fn slice(self, x: &[T], _: usize) -> T::Acc {
        let mut sum = [T::ZERO];
        simd::sums_of_squares(x, x.len().max(1), &mut sum);
        sum[0]
    }
    fn slices(self, x: &[T], n: usize, out: &mut [T]) {
        let mut sums = [T::ZERO; ROWS];
        for (x, out) in x.chunks(ROWS * n).zip(out.chunks_mut(ROWS)) {
            simd::sums_of_squares(x, n, &mut sums[..out.len()]);
            out.iter_mut().zip(sums).for_each(|(o, sum)| *o = T::finish(sum));
        }
    }
    fn one(self, x: T, _: usize) -> T::Acc {
        T::acc((x * x).widen())
    }
    fn merge(self, a: T::Acc, b: T::Acc) -> T::Acc {
        T::plus(a, b)
    }
    fn rows(self, x: &[T], stride: usize, rows: usize, _: usize, acc: &mut [T::Acc]) {
        let mut squares = [T::default(); BLOCK];
        for r in 0..rows {
            for (x, acc) in x[r * stride..][..acc.len()].chunks(BLOCK).zip(acc.chunks_mut(BLOCK)) {
                let squares = &mut squares[..x.len()];
                light1(Square, x, squares);
                simd::sum_rows(squares, 0, 1, acc);
            }
        }
    }
    fn finish(self, acc: T::Acc) -> T {
        T::finish(acc)
    }
    fn empty(self) -> Option<T> {
        Some(T::finish(T::ZERO))
    }
}
