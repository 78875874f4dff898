//! The Airy function of one number.
//!
//! Near 0 its Maclaurin series (DLMF 9.4.1); beyond, with `ζ = ⅔ |x|^(3/2)`, what remains of it without its exponential or its
//! waves, as Chebyshev polynomials of `1 / ζ`. Their coefficients come from the integral
//! `∫ t^(-1/6) e^-t (1 + t / (2ζ))^(-1/6) dt` of DLMF 9.5.8, by Gauss and Laguerre's rule (Gil, Segura and Temme, "Computing complex
//! Airy functions by numerical quadrature", 2002). Depends on `quadrature`. Invariant: a few roundings of float64 beside the
//! envelope, and of the angle `ζ` far below 0.

use super::chebyshev::Expansion;
use super::quadrature;
use std::f64::consts::{FRAC_PI_4, PI};
use std::sync::LazyLock;

/// `Ai(0)` and `-Ai'(0)`.
pub const AT_ZERO: [f64; 2] = [0.355_028_053_887_817_2, 0.258_819_403_792_806_8];

/// Where the series ends, below and above 0.
const NEAR: (f64, f64) = (-2.5, 1.7);

/// `Ai(x)`; NaN at both infinities, as in PyTorch.
pub fn ai(x: f64) -> f64 {
    if !x.is_finite() {
        return f64::NAN;
    }
    if (NEAR.0..NEAR.1).contains(&x) {
        return series(x);
    }
    let size = x.abs();
    let root = size.sqrt();
    let zeta = 2.0 / 3.0 * size * root;
    let scale = (PI * root).sqrt();
    if x > 0.0 {
        return (-zeta).exp() / (2.0 * scale) * DECAY.at(1.0 / zeta);
    }
    let (re, im) = (WAVES.0.at(1.0 / zeta), WAVES.1.at(1.0 / zeta));
    let (sine, cosine) = (zeta - FRAC_PI_4).sin_cos();
    (cosine * re + sine * im) / scale
}

/// `1 / ζ` where the series ends.
fn end(x: f64) -> f64 {
    1.5 / (x.abs() * x.abs().sqrt())
}

/// What is summed of each node of the integral.
fn integral(inverse: f64, f: impl Fn(f64) -> f64) -> f64 {
    let rule = quadrature::airy();
    rule.nodes.iter().zip(&rule.weights).map(|(t, w)| w * f(t * inverse / 2.0)).sum()
}

/// Right of the series.
static DECAY: LazyLock<Expansion<26>> =
    LazyLock::new(|| Expansion::of(end(NEAR.1), |v| integral(v, |u| (1.0 + u).powf(-1.0 / 6.0))));

/// Left of it: both values on the rays at ±60° (DLMF 9.2.14), where `ζ` is imaginary, and they are each other's conjugates.
static WAVES: LazyLock<(Expansion<26>, Expansion<26>)> = LazyLock::new(|| {
    let part = |angle: fn(f64) -> f64| {
        let term = move |u: f64| (1.0 + u * u).powf(-1.0 / 12.0) * angle(u.atan() / 6.0);
        Expansion::of(end(NEAR.0), |v| integral(v, term))
    };
    (part(f64::cos), part(f64::sin))
});

const TERMS: usize = 20;

/// The factors of `x^(3k)` in the two series.
const SERIES: [[f64; TERMS]; 2] = {
    let mut out = [[AT_ZERO[0]; TERMS], [AT_ZERO[1]; TERMS]];
    let mut k = 1;
    while k < TERMS {
        let n = 3.0 * k as f64;
        out[0][k] = out[0][k - 1] / (n * (n - 1.0));
        out[1][k] = out[1][k - 1] / (n * (n + 1.0));
        k += 1;
    }
    out
};

fn series(x: f64) -> f64 {
    let cube = x * x * x;
    let [even, odd] = SERIES.map(|factors| factors.iter().rev().fold(0.0, |sum, c| sum * cube + c));
    even - x * odd
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        // By mpmath, with 40 digits.
        for (x, y) in [
            (-30.0, -0.087_968_188_456_842_16),
            (-10.0, 0.040_241_238_486_443_19),
            (-2.6, -0.178_502_428_936_403_4),
            (-2.4, -0.043_334_140_440_309_45),
            (-1.0, 0.535_560_883_292_352_1),
            (0.0, 0.355_028_053_887_817_2),
            (0.5, 0.231_693_606_480_833_48),
            (1.6, 0.062_536_907_968_931_95),
            (1.8, 0.047_036_216_866_845_8),
            (3.0, 0.006_591_139_357_460_719),
            (10.0, 1.104_753_255_289_868_6e-10),
            (50.0, 4.584_941_724_074_828_5e-104),
        ] {
            assert!((ai(x) - y).abs() <= 4e-14 * y.abs(), "Ai({x}): {} for {y}", ai(x));
        }
        assert!(ai(104.0) < 1e-300 && ai(1e30) == 0.0);
    }

    #[test]
    fn both_ways_meet() {
        for x in [-2.5f64, 1.7] {
            let beside = x * (1.0 + 1e-15);
            assert!((series(x) - ai(beside)).abs() < 1e-14, "{x}");
        }
    }
}
