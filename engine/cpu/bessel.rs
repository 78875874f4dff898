//! Bessel functions of orders 0 and 1, and the normal quantile, of one number.
//!
//! `J` and `Y` are libm's. Invariant: a few roundings of float64 in relative error, away from zeros.

use super::special::erfcx;
use std::f64::consts::{FRAC_1_SQRT_2, TAU};

/// Euler's constant.
const GAMMA: f64 = 0.577_215_664_901_532_9;

/// At infinity `J` and `Y` are NaN, as in PyTorch.
fn finite(x: f64, f: fn(f64) -> f64) -> f64 {
    if x.is_infinite() {
        f64::NAN
    } else {
        f(x)
    }
}

pub fn j0(x: f64) -> f64 {
    finite(x, libm::j0)
}

pub fn j1(x: f64) -> f64 {
    finite(x, libm::j1)
}

/// libm's pole at -0 has the other sign.
pub fn y0(x: f64) -> f64 {
    finite(x + 0.0, libm::y0)
}

pub fn y1(x: f64) -> f64 {
    finite(x + 0.0, libm::y1)
}

/// `e^x K_n(x)` for `x > 0`: the trapezoidal rule over `∫ e^(-x (cosh t - 1)) cosh(nt) dt`, whose error falls as `e^(-π² / h)`
/// with the step `h`, for large `x` as `e^(-2π² / (x h²))`; near 0 the first terms of the series.
fn modified(n: i32, x: f64) -> f64 {
    match x {
        x if x.is_nan() || x < 0.0 => return f64::NAN,
        0.0 => return f64::INFINITY,
        f64::INFINITY => return 0.0,
        x if x < 1e-4 => {
            let log = (x / 2.0).ln() + GAMMA;
            let quarter = x * x / 4.0;
            let y = if n == 0 { quarter - log * (1.0 + quarter) } else { 1.0 / x + x / 2.0 * (log - 0.5) };
            return y * x.exp();
        }
        _ => {}
    }
    let step = 0.125f64.min(0.7 / x.sqrt());
    let mut sum = 0.5;
    for k in 1.. {
        let t = step * f64::from(k);
        let half = (t / 2.0).sinh();
        let term = (-2.0 * x * half * half).exp() * if n == 0 { 1.0 } else { t.cosh() };
        sum += term;
        if term < sum * 1e-18 {
            break;
        }
    }
    sum * step
}

pub fn k0e(x: f64) -> f64 {
    modified(0, x)
}

pub fn k1e(x: f64) -> f64 {
    modified(1, x)
}

pub fn k0(x: f64) -> f64 {
    if x == f64::INFINITY {
        0.0
    } else {
        modified(0, x) * (-x).exp()
    }
}

pub fn k1(x: f64) -> f64 {
    if x == f64::INFINITY {
        0.0
    } else {
        modified(1, x) * (-x).exp()
    }
}

/// `-x log x`, continued by 0 at 0 and by -inf below.
pub fn entropy(x: f64) -> f64 {
    match x {
        x if x < 0.0 => f64::NEG_INFINITY,
        0.0 => 0.0,
        x => -x * x.ln(),
    }
}

/// The quantile of the normal distribution: Newton's steps on the logarithm of the distribution, from the guess of Abramowitz
/// and Stegun, 26.2.23, whose error is below 4.5e-4.
pub fn normal_quantile(p: f64) -> f64 {
    match p {
        0.0 => return f64::NEG_INFINITY,
        1.0 => return f64::INFINITY,
        0.5 => return 0.0,
        p if !(0.0..=1.0).contains(&p) => return f64::NAN,
        _ => {}
    }
    let log = p.min(1.0 - p).ln();
    let t = (-2.0 * log).sqrt();
    let over = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let under = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    let mut x = t - over / under;
    for _ in 0..3 {
        let tail = 0.5 * erfcx(x * FRAC_1_SQRT_2);
        x += (tail.ln() - x * x / 2.0 - log) * tail * TAU.sqrt();
    }
    if p < 0.5 {
        -x
    } else {
        x
    }
}
