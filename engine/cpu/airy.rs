//! The Airy function of one number.
//!
//! Near 0 its Maclaurin series (DLMF 9.4.1); beyond, the integral `∫ t^(-1/6) e^-t (1 + t / (2ζ))^(-1/6) dt` of DLMF 9.5.8, by
//! Gauss and Laguerre's rule (Gil, Segura and Temme, "Computing complex Airy functions by numerical quadrature", 2002), with
//! `ζ = ⅔ |x|^(3/2)`. Depends on `quadrature`. Invariant: a few roundings of float64 beside the envelope, and of the angle `ζ`
//! far below 0.

use super::quadrature;
use std::f64::consts::{FRAC_PI_4, PI};

/// `Ai(0)` and `-Ai'(0)`.
pub const AT_ZERO: [f64; 2] = [0.355_028_053_887_817_2, 0.258_819_403_792_806_8];

/// `Ai(x)`; NaN at both infinities, as in PyTorch.
pub fn ai(x: f64) -> f64 {
    if !x.is_finite() {
        return f64::NAN;
    }
    if (-2.5..1.7).contains(&x) {
        return series(x);
    }
    let size = x.abs();
    let zeta = 2.0 / 3.0 * size * size.sqrt();
    let scale = (PI * size.sqrt()).sqrt();
    let rule = quadrature::airy();
    let terms = rule.nodes.iter().zip(&rule.weights).map(|(t, w)| (t / (2.0 * zeta), w));
    if x > 0.0 {
        let sum: f64 = terms.map(|(u, w)| w * (1.0 + u).powf(-1.0 / 6.0)).sum();
        return (-zeta).exp() / (2.0 * scale) * sum;
    }
    // Both values on the rays at ±60° (DLMF 9.2.14): there ζ is imaginary, and they are each other's conjugates.
    let (mut re, mut im) = (0.0, 0.0);
    for (u, w) in terms {
        let (size, angle) = (w * (1.0 + u * u).powf(-1.0 / 12.0), u.atan() / 6.0);
        re += size * angle.cos();
        im += size * angle.sin();
    }
    let (sine, cosine) = (zeta - FRAC_PI_4).sin_cos();
    (cosine * re + sine * im) / scale
}

fn series(x: f64) -> f64 {
    let cube = x * x * x;
    let (mut even, mut odd) = (AT_ZERO[0], AT_ZERO[1] * x);
    let mut sum = even - odd;
    for k in 1..20 {
        let k = f64::from(3 * k);
        even *= cube / (k * (k - 1.0));
        odd *= cube / (k * (k + 1.0));
        sum += even - odd;
    }
    sum
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
