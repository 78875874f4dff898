//! Smooth functions as sums of Chebyshev polynomials, from values that a slower way computes once.
//!
//! Invariant: where the coefficients fall to the last place of float64, so does the error.

use std::f64::consts::PI;

/// `Σ c_k T_k(t)` with `t` from -1 to 1 over the interval from 0 to `end`.
pub struct Expansion<const N: usize> {
    scale: f64,
    coefficients: [f64; N],
    /// How many of them a float32 needs.
    few: usize,
}

impl<const N: usize> Expansion<N> {
    /// Of what `f` gives at the `N` zeros of `T_N` (Numerical Recipes, 5.8).
    pub fn of(end: f64, f: impl Fn(f64) -> f64) -> Expansion<N> {
        let angle = |i: usize| PI * (i as f64 + 0.5) / N as f64;
        let values: [f64; N] = std::array::from_fn(|i| f(end / 2.0 * (1.0 + angle(i).cos())));
        let coefficients: [f64; N] = std::array::from_fn(|k| {
            let sum: f64 = values.iter().enumerate().map(|(i, v)| v * (k as f64 * angle(i)).cos()).sum();
            sum * if k == 0 { 1.0 } else { 2.0 } / N as f64
        });
        let most = coefficients.iter().fold(0.0, |most: f64, c| most.max(c.abs()));
        let few = coefficients.iter().rposition(|c| c.abs() > most * 1e-12).map_or(1, |last| last + 1);
        Expansion { scale: 4.0 / end, coefficients, few }
    }

    /// The sum at `x`, by Clenshaw's recurrence.
    #[inline]
    pub fn at(&self, x: f64) -> f64 {
        let twice = x * self.scale - 2.0;
        let (mut last, mut before) = (0.0, 0.0);
        for &c in self.coefficients[1..].iter().rev() {
            (last, before) = (twice * last + (c - before), last);
        }
        0.5 * twice * last + (self.coefficients[0] - before)
    }

    /// The sums at several numbers, side by side.
    #[inline(always)]
    pub fn lanes<const FMA: bool, const L: usize>(&self, x: &[f64; L]) -> [f64; L] {
        self.sums::<FMA, L>(&self.coefficients, x)
    }

    /// [`lanes`](Expansion::lanes) without terms below 1e-12 of the largest, of which a float32 away from zeros has nothing.
    #[inline(always)]
    pub fn few<const FMA: bool, const L: usize>(&self, x: &[f64; L]) -> [f64; L] {
        self.sums::<FMA, L>(&self.coefficients[..self.few], x)
    }

    #[inline(always)]
    fn sums<const FMA: bool, const L: usize>(&self, coefficients: &[f64], x: &[f64; L]) -> [f64; L] {
        let add = |a: f64, b: f64, c: f64| if FMA { a.mul_add(b, c) } else { a * b + c };
        let (mut twice, mut last, mut before) = (*x, [0.0; L], [0.0; L]);
        for v in &mut twice {
            *v = *v * self.scale - 2.0;
        }
        for &c in coefficients[1..].iter().rev() {
            for i in 0..L {
                (last[i], before[i]) = (add(twice[i], last[i], c - before[i]), last[i]);
            }
        }
        for i in 0..L {
            last[i] = add(0.5 * twice[i], last[i], coefficients[0] - before[i]);
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exponential() {
        let expansion = Expansion::<20>::of(3.0, f64::exp);
        for i in 0..=30 {
            let x = f64::from(i) / 10.0;
            assert!((expansion.at(x) - x.exp()).abs() < 1e-14 * x.exp(), "{x}");
        }
    }
}
