//! Remainders and floored quotients of `f32`, vectorised.
//!
//! Depends on the loops beside it. The quotient is taken in double precision: while it is below 2^27 it is on the right side of
//! every integer, and the product that is subtracted is exact. Invariant: the results are those of the functions for single
//! elements, which also compute what is beyond.

use super::dispatch::{by_rows, run, Arg, Task};

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
/// Quotients from which on the vector form is not exact.
const MOST: f64 = 134_217_728.0;

struct Division<'a> {
    ask: Quotient,
    a: &'a [f32],
    b: &'a [f32],
    out: &'a mut [f32],
}

/// The rest of `a / b` with the sign of `a`, and whether it is exact.
#[inline(always)]
fn rest(a: f32, b: f32) -> (f32, bool) {
    let (x, y) = (f64::from(a), f64::from(b));
    let q = (x / y).trunc();
    let ordinary = (q.abs() < MOST) & (b.abs() < f32::INFINITY);
    (((x - q * y) as f32).copysign(a), ordinary)
}

impl Task for Division<'_> {
    type Out = bool;
    /// Were all elements ordinary?
    #[inline(always)]
    fn run<const F: bool>(self) -> bool {
        let Division { ask, a, b, out } = self;
        let mut ordinary = true;
        let each = out.iter_mut().zip(a).zip(b);
        match ask {
            Quotient::Fmod => each.for_each(|((o, &a), &b)| {
                let (r, fine) = rest(a, b);
                *o = r;
                ordinary &= fine;
            }),
            Quotient::Remainder => each.for_each(|((o, &a), &b)| {
                let (r, fine) = rest(a, b);
                let moved = r + b;
                *o = if (r != 0.0) & ((b < 0.0) != (r < 0.0)) { moved } else { r };
                ordinary &= fine;
            }),
            Quotient::Floor => each.for_each(|((o, &a), &b)| {
                let (r, fine) = rest(a, b);
                let q = (a - r) / b;
                let q = if (r != 0.0) & ((b < 0.0) != (r < 0.0)) { q - 1.0 } else { q };
                let floor = q.floor();
                let near = if q - floor > 0.5 { floor + 1.0 } else { floor };
                *o = if q == 0.0 { 0f32.copysign(a / b) } else { near };
                ordinary &= fine;
            }),
        }
        ordinary
    }
}

/// `n` elements of an operand that is no rows.
fn block(x: Arg<f32>, from: usize, n: usize, room: &mut [f32; BLOCK]) {
    match x {
        Arg::Slice(x) => room[..n].copy_from_slice(&x[from..from + n]),
        x => room[..n].fill(x.at(0)),
    }
}

/// `out[i]` of `a[i] / b[i]`, over the shortest; `one` computes what is out of the ordinary.
pub fn quotients(ask: Quotient, one: fn(f32, f32) -> f32, a: Arg<f32>, b: Arg<f32>, out: &mut [f32]) {
    by_rows(a, b, out, |a, b, out| {
        let (mut left, mut right) = ([0f32; BLOCK], [0f32; BLOCK]);
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

#[cfg(test)]
mod tests {
    use super::*;

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
        let random: Vec<(f32, f32)> = (0..5000).map(|_| (bits(), bits())).collect();
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
}
