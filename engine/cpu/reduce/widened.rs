//! Reductions of narrow numbers in wider ones, which a few at a time become while they are in the first cache level.
//!
//! Depends on `simd`. Invariant: the result is that of the reduction of a whole array of wide numbers, in the same order.

use super::super::simd::{run, Task, Wide};
use super::Fold;
use crate::dtype::Element;
use half::{bf16, f16};

/// Numbers with a wider dtype that reductions are computed in.
pub(super) trait Narrow: Element {
    type Up: Element;
    fn up(self) -> Self::Up;
    /// All of a slice, over the shorter of the two.
    fn up_all(x: &[Self], out: &mut [Self::Up]);
}

macro_rules! floats {
    ($($t:ty),*) => {
        $(impl Narrow for $t {
            type Up = f32;
            fn up(self) -> f32 {
                self.widen()
            }
            fn up_all(x: &[$t], out: &mut [f32]) {
                <$t>::widen_all(x, out);
            }
        })*
    };
}
floats!(f16, bf16);

struct Integers<'a, T>(&'a [T], &'a mut [i64]);
impl<T: Copy + Into<i64>> Task for Integers<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        for (o, &x) in self.1.iter_mut().zip(self.0) {
            *o = x.into();
        }
    }
}

macro_rules! integers {
    ($($t:ty),*) => {
        $(impl Narrow for $t {
            type Up = i64;
            fn up(self) -> i64 {
                self.into()
            }
            fn up_all(x: &[$t], out: &mut [i64]) {
                run(Integers(x, out));
            }
        })*
    };
}
integers!(bool, u8, i8, i16, i32);

/// The fold `K` of what the elements become.
#[derive(Clone, Copy, Default)]
pub(super) struct Widened<K>(K);

/// Elements that become wider at a time.
const BLOCK: usize = 1024;
/// Columns of rows that do.
const COLUMNS: usize = 128;

impl<T: Narrow, K: Fold<T::Up>> Fold<T> for Widened<K> {
    type Acc = K::Acc;
    type Out = K::Out;
    fn slice(self, x: &[T], first: usize) -> K::Acc {
        let mut wide = [T::Up::default(); BLOCK];
        let mut part = |i: usize, x: &[T]| {
            T::up_all(x, &mut wide);
            self.0.slice(&wide[..x.len()], first + i * BLOCK)
        };
        let (head, rest) = x.split_at(x.len().min(BLOCK));
        let head = part(0, head);
        (1..).zip(rest.chunks(BLOCK)).fold(head, |acc, (i, x)| self.0.merge(acc, part(i, x)))
    }
    fn one(self, x: T, at: usize) -> K::Acc {
        self.0.one(x.up(), at)
    }
    fn slices(self, x: &[T], n: usize, out: &mut [K::Out]) {
        if n > BLOCK / 2 {
            x.chunks(n).zip(out).for_each(|(x, o)| *o = self.0.finish(self.slice(x, 0)));
            return;
        }
        let mut wide = [T::Up::default(); BLOCK];
        let together = BLOCK / n;
        for (x, out) in x.chunks(together * n).zip(out.chunks_mut(together)) {
            T::up_all(x, &mut wide);
            self.0.slices(&wide[..x.len()], n, out);
        }
    }
    fn merge(self, a: K::Acc, b: K::Acc) -> K::Acc {
        self.0.merge(a, b)
    }
    fn rows(self, x: &[T], stride: usize, rows: usize, first: usize, acc: &mut [K::Acc]) {
        let mut wide = [T::Up::default(); BLOCK];
        let together = BLOCK / COLUMNS;
        for (c, acc) in acc.chunks_mut(COLUMNS).enumerate() {
            for from in (0..rows).step_by(together) {
                let count = together.min(rows - from);
                for (r, wide) in wide.chunks_mut(COLUMNS).take(count).enumerate() {
                    let at = (from + r) * stride + c * COLUMNS;
                    T::up_all(&x[at..at + acc.len()], wide);
                }
                self.0.rows(&wide, COLUMNS, count, first + from, acc);
            }
        }
    }
    fn finish(self, acc: K::Acc) -> K::Out {
        self.0.finish(acc)
    }
    fn empty(self) -> Option<K::Out> {
        self.0.empty()
    }
}
