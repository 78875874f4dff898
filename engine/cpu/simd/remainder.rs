//! Remainders and floored quotients of `f32` and `f64`, and integer division of `i64`, vectorised.
//!
//! Depends on the loops beside it. Of `f32` the quotient is taken in double precision: while it is below 2^27 it is on the right
//! side of every integer, and the product that is subtracted is exact. Of `f64` it may be rounded up to an integer, never
//! down below one: the rest, which a fused product leaves exact, then has the other sign, and a divisor too little.
//! Invariant: the results are those of the functions for single elements, which also compute what is beyond.

use super::dispatch::{by_rows, run, Arg, Task};
use num_traits::Float;

/// What is asked of a division.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quotient {
    /// The rest, with the divisor's sign.
    Remainder,
    /// The rest, with the dividend's sign.
    Fmod,
    /// The quotient, rounded down.
    Floor,
}

const BLOCK: usize = 256;
/// Quotients from which on the vector form of `f32` is not exact.
const MOST: f64 = 134_217_728.0;
/// The same of `f64`.
const MOST_WIDE: f64 = 4_503_599_627_370_496.0;

/// Floats that are divided so.
pub trait Divisible: Float + Default {
    /// The rest of `a / b` with the sign of `a`, and whether it is exact.
    fn rest<const F: bool>(a: Self, b: Self) -> (Self, bool);
}

impl Divisible for f32 {
    #[inline(always)]
    fn rest<const F: bool>(a: f32, b: f32) -> (f32, bool) {
        let (x, y) = (f64::from(a), f64::from(b));
        let q = (x / y).trunc();
        let ordinary = (q.abs() < MOST) & (b.abs() < f32::INFINITY);
        (((x - q * y) as f32).copysign(a), ordinary)
    }
}

impl Divisible for f64 {
    #[inline(always)]
    fn rest<const F: bool>(a: f64, b: f64) -> (f64, bool) {
        let q = (a / b).trunc();
        // Without fused products each element is computed alone.
        let ordinary = F & (q.abs() < MOST_WIDE) & (b.abs() < f64::INFINITY);
        let r = if F { (-q).mul_add(b, a) } else { a };
        let beyond = (r != 0.0) & ((r < 0.0) != (a < 0.0));
        let back = r + b.abs().copysign(a);
        ((if beyond { back } else { r }).copysign(a), ordinary)
    }
}

struct Division<'a, T> {
    ask: Quotient,
    a: &'a [T],
    b: &'a [T],
    out: &'a mut [T],
}

impl<T: Divisible> Task for Division<'_, T> {
    type Out = bool;
    /// Were all elements ordinary?
    #[inline(always)]
    fn run<const F: bool>(self) -> bool {
        let Division { ask, a, b, out } = self;
        let half = T::one() / (T::one() + T::one());
        let mut ordinary = true;
        let each = out.iter_mut().zip(a).zip(b);
        match ask {
            Quotient::Fmod => each.for_each(|((o, &a), &b)| {
                let (r, fine) = T::rest::<F>(a, b);
                *o = r;
                ordinary &= fine;
            }),
            Quotient::Remainder => each.for_each(|((o, &a), &b)| {
                let (r, fine) = T::rest::<F>(a, b);
                let moved = r + b;
                *o = if (r != T::zero()) & ((b < T::zero()) != (r < T::zero())) { moved } else { r };
                ordinary &= fine;
            }),
            Quotient::Floor => each.for_each(|((o, &a), &b)| {
                let (r, fine) = T::rest::<F>(a, b);
                let q = (a - r) / b;
                let q = if (r != T::zero()) & ((b < T::zero()) != (r < T::zero())) { q - T::one() } else { q };
                let floor = q.floor();
                let near = if q - floor > half { floor + T::one() } else { floor };
                *o = if q == T::zero() { T::zero().copysign(a / b) } else { near };
                ordinary &= fine;
            }),
        }
        ordinary
    }
}

/// `n` elements of an operand that is no rows.
fn block<T: Copy>(x: Arg<T>, from: usize, n: usize, room: &mut [T; BLOCK]) {
    match x {
        Arg::Slice(x) => room[..n].copy_from_slice(&x[from..from + n]),
        x => room[..n].fill(x.at(0)),
    }
}

/// `out[i]` of `a[i] / b[i]`, over the shortest; `one` computes what is out of the ordinary.
pub fn quotients<T: Divisible>(ask: Quotient, one: fn(T, T) -> T, a: Arg<T>, b: Arg<T>, out: &mut [T]) {
    by_rows(a, b, out, |a, b, out| {
        let (mut left, mut right) = ([T::default(); BLOCK], [T::default(); BLOCK]);
        for (i, out) in out.chunks_mut(BLOCK).enumerate() {
            let n = out.len();
            block(a, i * BLOCK, n, &mut left);
            block(b, i * BLOCK, n, &mut right);
            let ordinary = run(Division { ask, a: &left[..n], b: &right[..n], out: &mut *out });
            if !ordinary {
                for (o, (&a, &b)) in out.iter_mut().zip(left.iter().zip(&right)) {
                    *o = one(a, b);
                }
            }
        }
    });
}

/// Divisions of integers as such of `f64`, which has all of `i32` and rounds no quotient of two over an integer.
struct IntegerDivision<'a> {
    ask: Quotient,
    a: &'a [i64],
    b: &'a [i64],
    out: &'a mut [i64],
}

/// What is added to a number so that its last bits are those of the integer next to it.
const INTEGER: f64 = 6_755_399_441_055_744.0;

impl Task for IntegerDivision<'_> {
    type Out = bool;
    /// Did all elements fit `i32`?
    #[inline(always)]
    fn run<const F: bool>(self) -> bool {
        let IntegerDivision { ask, a, b, out } = self;
        if !F {
            // Rounding is a call there.
            return false;
        }
        let outside = |x: i64| x.wrapping_add(1 << 31) as u64 >> 32;
        if a.iter().zip(b).fold(0, |found, (&a, &b)| found | outside(a) | outside(b)) != 0 {
            return false;
        }
        let whole = |x: f64| (x + INTEGER).to_bits().wrapping_sub(INTEGER.to_bits()) as i64;
        for ((o, &a), &b) in out.iter_mut().zip(a).zip(b) {
            let (a, b) = (f64::from(a as i32), f64::from(b as i32));
            let q = a / b;
            *o = match ask {
                Quotient::Floor => whole(q.floor()),
                Quotient::Remainder => whole((-q.floor()).mul_add(b, a)),
                Quotient::Fmod => whole((-q.trunc()).mul_add(b, a)),
            };
        }
        true
    }
}

/// `out[i]` of `a[i] / b[i]`, where no divisor is 0; `one` computes what does not fit `i32`.
pub fn integer_quotients(ask: Quotient, one: fn(i64, i64) -> i64, a: Arg<i64>, b: Arg<i64>, out: &mut [i64]) {
    by_rows(a, b, out, |a, b, out| {
        let (mut left, mut right) = ([0; BLOCK], [0; BLOCK]);
        for (i, out) in out.chunks_mut(BLOCK).enumerate() {
            let n = out.len();
            block(a, i * BLOCK, n, &mut left);
            block(b, i * BLOCK, n, &mut right);
            if !run(IntegerDivision { ask, a: &left[..n], b: &right[..n], out: &mut *out }) {
                for (o, (&a, &b)) in out.iter_mut().zip(left.iter().zip(&right)) {
                    *o = one(a, b);
                }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers::RealNumber;
    use crate::tests::many;

    #[test]
    fn integer_quotients_are_those_of_single_elements() {
        let (low, high) = (i64::from(i32::MIN), i64::from(i32::MAX));
        let mut values = vec![0, 1, -1, 2, -2, 3, -7, 10, low, low + 1, high, high - 1, 1 << 16, (1 << 16) + 1, 46_341];
        for far in [false, true] {
            if far {
                values.extend([low - 1, high + 1, i64::MIN, i64::MAX, (1 << 53) + 1]);
            }
            let pairs: Vec<_> = values.iter().flat_map(|&a| values.iter().map(move |&b| (a, b))).collect();
            let (a, b): (Vec<i64>, Vec<i64>) = pairs.into_iter().filter(|&(_, b)| b != 0).unzip();
            for (ask, one) in [
                (Quotient::Floor, i64::floor_divide as fn(i64, i64) -> i64),
                (Quotient::Remainder, i64::remainder),
                (Quotient::Fmod, i64::fmod),
            ] {
                let mut out = vec![0; a.len()];
                integer_quotients(ask, one, Arg::Slice(&a), Arg::Slice(&b), &mut out);
                for (i, &o) in out.iter().enumerate() {
                    assert_eq!(o, one(a[i], b[i]), "{ask:?} {} {}", a[i], b[i]);
                }
            }
        }
    }

    #[test]
    fn rests_are_those_of_single_elements() {
        let values = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.3,
            -0.7,
            2.0,
            3.5,
            1e-40,
            1e30,
            -1e30,
            16_777_215.0,
            0.1,
            7.0,
            f32::MAX,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
            f32::MIN_POSITIVE,
            0.999_999_94,
            1.000_000_1,
        ];
        let one = |a: f32, b: f32| {
            let r = a % b;
            if r != 0.0 && (b < 0.0) != (r < 0.0) {
                r + b
            } else {
                r
            }
        };
        let pairs: Vec<(f32, f32)> = values.iter().flat_map(|&a| values.iter().map(move |&b| (a, b))).collect();
        let mut seed = 1u32;
        let mut bits = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f32::from_bits(0x3000_0000 + (seed >> 3))
        };
        let random: Vec<(f32, f32)> = (0..many(5000, 200)).map(|_| (bits(), bits())).collect();
        for pairs in [pairs, random] {
            let (a, b): (Vec<f32>, Vec<f32>) = pairs.into_iter().unzip();
            let mut out = vec![0f32; a.len()];
            let same = |x: f32, y: f32| x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan();
            quotients(Quotient::Fmod, |a, b| a % b, Arg::Slice(&a), Arg::Slice(&b), &mut out);
            for (i, &o) in out.iter().enumerate() {
                assert!(same(o, a[i] % b[i]), "{} fmod {}: {o}", a[i], b[i]);
            }
            quotients(Quotient::Remainder, one, Arg::Slice(&a), Arg::Value(0.7), &mut out);
            for (i, &o) in out.iter().enumerate() {
                assert!(same(o, one(a[i], 0.7)), "{} % 0.7: {o}", a[i]);
            }
        }
    }

    #[test]
    fn rests_of_doubles_are_those_of_single_elements() {
        let mut seed = 1u64;
        let mut bits = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            seed >> 8
        };
        let special = [0.0, -0.0, 0.3, -0.7, 3.0, 5e-324, 1e300, f64::MIN_POSITIVE, f64::INFINITY, f64::NAN];
        let mut pairs: Vec<(f64, f64)> = special.iter().flat_map(|&a| special.iter().map(move |&b| (a, b))).collect();
        for _ in 0..many(20_000, 100) {
            let b = f64::from_bits(0x3fe0_0000_0000_0000 | bits() >> 4) * if bits() & 1 == 0 { 1.0 } else { -1.0 };
            // Products of integers, which are rounded, and what is next to them: where quotients are rounded up.
            let near = b * (bits() >> (bits() % 50 + 6)) as f64;
            pairs.push((f64::from_bits(near.to_bits().wrapping_add(bits() % 3).wrapping_sub(1)), b));
        }
        let same = |x: f64, y: f64| x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan();
        // One that is out of the ordinary sends its whole block the other way: alone, each goes the way of its own.
        for (a, b) in pairs {
            let mut out = [0f64];
            quotients(Quotient::Fmod, |a, b| a % b, Arg::Slice(&[a]), Arg::Slice(&[b]), &mut out);
            assert!(same(out[0], a % b), "{a:e} fmod {b:e}: {:e}", out[0]);
        }
    }
}
