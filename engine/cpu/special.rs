//! Special functions of one and two numbers, in double precision.
//!
//! Depends on libm and `simd`. Scalar code but for one: these are rare. Invariant: relative errors near 1e-14 away from zeros of the functions;
//! every loop has a bound that does not depend on its arguments.

use super::simd::{call2, run, Arg, Task};
use std::f64::consts::{FRAC_2_SQRT_PI, PI, TAU};

/// `B₂ₖ / (2k)` for k = 1, 2, …: the asymptotic series of digamma.
const DIGAMMA: [f64; 7] =
    [1.0 / 12.0, -1.0 / 120.0, 1.0 / 252.0, -1.0 / 240.0, 1.0 / 132.0, -691.0 / 32760.0, 1.0 / 12.0];

/// The logarithmic derivative of the gamma function, with PyTorch's values at the poles.
pub fn digamma(x: f64) -> f64 {
    if x == 0.0 {
        return f64::INFINITY.copysign(-x);
    }
    if x < 0.0 {
        if x == x.trunc() {
            return f64::NAN;
        }
        return digamma(1.0 - x) - PI / (PI * x.fract()).tan();
    }
    let (mut x, mut sum) = (x, 0.0);
    while x < 10.0 {
        sum -= 1.0 / x;
        x += 1.0;
    }
    let z = 1.0 / (x * x);
    let tail = DIGAMMA.iter().rev().fold(0.0, |t, c| t * z + c) * z;
    sum + x.ln() - 0.5 / x - tail
}

/// `B₂ₖ / (2k)!` for k = 1, 2, …: the corrections of Euler and Maclaurin's formula.
const MACLAURIN: [f64; 8] = [
    1.0 / 12.0,
    -1.0 / 720.0,
    1.0 / 30_240.0,
    -1.0 / 1_209_600.0,
    1.0 / 47_900_160.0,
    -691.0 / 1_307_674_368_000.0,
    1.0 / 74_724_249_600.0,
    -3617.0 / 10_670_622_842_880_000.0,
];

/// `B₂ₖ` for k = 1, 2, …: the asymptotic series of the derivative of digamma.
const TRIGAMMA: [f64; 7] = [1.0 / 6.0, -1.0 / 30.0, 1.0 / 42.0, -1.0 / 30.0, 5.0 / 66.0, -691.0 / 2730.0, 7.0 / 6.0];

/// `Σ (q + k)^-2`, for `q > 0`: the derivative of digamma.
fn trigamma(q: f64) -> f64 {
    let (mut a, mut sum) = (q, 0.0);
    while a < 10.0 {
        sum += 1.0 / (a * a);
        a += 1.0;
    }
    let inverse = 1.0 / a;
    let z = inverse * inverse;
    let tail = TRIGAMMA.iter().rev().fold(0.0, |t, c| t * z + c) * z;
    sum + inverse * (1.0 + 0.5 * inverse + tail)
}

/// Elements that are looked at together.
const BLOCK: usize = 256;

/// `ζ(2, q)` of float32 above 0, as [`trigamma`]: from 6 on the series is exact enough for them.
struct Trigamma<'a>(&'a [f32], &'a mut [f32]);
impl Task for Trigamma<'_> {
    type Out = bool;
    /// Were all elements above 0, and finite?
    #[inline(always)]
    fn run<const F: bool>(self) -> bool {
        let mut ordinary = true;
        for (&q, o) in self.0.iter().zip(self.1) {
            ordinary &= (q > 0.0) & (q < f32::INFINITY);
            let q = f64::from(q);
            let mut sum = 0.0;
            for k in 0..6 {
                let a = q + f64::from(k);
                sum += 1.0 / (a * a);
            }
            let inverse = 1.0 / (q + 6.0);
            let z = inverse * inverse;
            let mut tail = 0.0;
            for c in TRIGAMMA.iter().rev() {
                tail = tail * z + c;
            }
            *o = (sum + inverse * (1.0 + 0.5 * inverse + tail * z)) as f32;
        }
        ordinary
    }
}

/// [`zeta`] of float32.
pub fn zetas(s: Arg<f32>, q: Arg<f32>, out: &mut [f32]) {
    let one = |s: f32, q: f32| zeta(s.into(), q.into()) as f32;
    match (s, q) {
        (Arg::Value(s), Arg::Slice(q)) if s == 2.0 => {
            for (q, out) in q.chunks(BLOCK).zip(out.chunks_mut(BLOCK)) {
                if !run(Trigamma(q, &mut *out)) {
                    out.iter_mut().zip(q).for_each(|(o, &q)| *o = one(s, q));
                }
            }
        }
        (s, q) => call2(one, s, q, out),
    }
}

/// `Σ (q + k)^-s`, for `q > 0`.
fn zeta_right(s: f64, q: f64) -> f64 {
    const DIRECT: u8 = 12;
    if s == 2.0 {
        return trigamma(q);
    }
    // Powers of small whole numbers, as derivatives of digamma have them, are products.
    let whole = (s == s.trunc() && s <= 8.0).then_some(s as i32);
    let inverse = |a: f64| whole.map_or_else(|| a.powf(-s), |s| 1.0 / a.powi(s));
    let (mut sum, mut a) = (0.0, q);
    for _ in 0..DIRECT {
        let term = inverse(a);
        sum += term;
        if term < 1e-17 * sum {
            return sum;
        }
        a += 1.0;
    }
    let b = inverse(a);
    sum += b * a / (s - 1.0) + 0.5 * b;
    let (mut factor, mut power, mut k) = (s, b / a, s);
    for c in MACLAURIN {
        let term = c * factor * power;
        sum += term;
        if term.abs() < 1e-17 * sum.abs() {
            break;
        }
        factor *= (k + 1.0) * (k + 2.0);
        power /= a * a;
        k += 2.0;
    }
    sum
}

/// The Hurwitz zeta function `ζ(s, q)`.
pub fn zeta(s: f64, q: f64) -> f64 {
    // The corners are PyTorch's, in its order: a pole comes before a NaN, and of q = ∞ it knows nothing.
    if s == 1.0 {
        return f64::INFINITY;
    }
    if s < 1.0 || q.is_nan() {
        return f64::NAN;
    }
    if q <= 0.0 && q == q.floor() {
        return f64::INFINITY;
    }
    if q == f64::INFINITY || s.is_nan() {
        return f64::NAN;
    }
    if q > 0.0 {
        return zeta_right(s, q);
    }
    if s == f64::INFINITY {
        return s;
    }
    if s != s.floor() {
        return f64::NAN;
    }
    // The terms below zero are powers of 1 - f, 2 - f, …, -q, where f is q's distance from the integer below.
    let f = q - q.floor();
    let left = zeta_right(s, 1.0 - f) - zeta_right(s, 1.0 - q);
    zeta_right(s, f) + if s % 2.0 == 0.0 { left } else { -left }
}

/// `e^-|x| I_n(x)` for n = 0 or 1: the power series, whose terms are positive, or for large |x| the asymptotic one.
fn bessel_scaled(n: u8, x: f64) -> f64 {
    let (a, n) = (x.abs(), f64::from(n));
    let y = if a < 25.0 {
        let z = a * a / 4.0;
        let (mut term, mut sum) = (1.0, 1.0);
        for k in 1..80 {
            let k = f64::from(k);
            term *= z / (k * (k + n));
            sum += term;
            if term < 1e-17 * sum {
                break;
            }
        }
        sum * if n == 0.0 { 1.0 } else { a / 2.0 } * (-a).exp()
    } else {
        let (mut term, mut sum) = (1.0, 1.0);
        for k in 1..30 {
            let k = f64::from(k);
            term *= -(4.0 * n * n - (2.0 * k - 1.0) * (2.0 * k - 1.0)) / (8.0 * a * k);
            sum += term;
            if term.abs() < 1e-17 {
                break;
            }
        }
        sum / (TAU.sqrt() * a.sqrt())
    };
    if n == 0.0 {
        y
    } else {
        y.copysign(x)
    }
}

pub fn i0e(x: f64) -> f64 {
    bessel_scaled(0, x)
}

pub fn i1e(x: f64) -> f64 {
    bessel_scaled(1, x)
}

/// `e^|x|` times the scaled function, in two factors, so that it overflows only where the result does. At infinity it is
/// NaN, as in PyTorch.
fn unscaled(y: f64, x: f64) -> f64 {
    let half = (x.abs() / 2.0).exp();
    y * half * half
}

pub fn i0(x: f64) -> f64 {
    unscaled(i0e(x), x)
}

pub fn i1(x: f64) -> f64 {
    unscaled(i1e(x), x)
}

/// `e^(x²) erfc(x)`.
pub fn erfcx(x: f64) -> f64 {
    if x < -27.0 {
        return f64::INFINITY;
    }
    if x < 25.0 {
        // The rounding of x² would be magnified by the exponential: it is made up for.
        let square = x * x;
        let lost = x.mul_add(x, -square);
        return square.exp() * (1.0 + lost) * libm::erfc(x);
    }
    let z = 1.0 / (x * x);
    let series = [-1.0 / 2.0, 3.0 / 4.0, -15.0 / 8.0, 105.0 / 16.0, -945.0 / 32.0];
    FRAC_2_SQRT_PI / (2.0 * x) * (1.0 + series.iter().rev().fold(0.0, |t, c| (t + c) * z))
}

/// `P(a, x)`, or with `upper` `Q(a, x)`, the regularized incomplete gamma functions: by the power series where x is below
/// a + 1, by Legendre's continued fraction beyond it, and for large a by an integral over what a Gaussian reaches.
pub fn igamma(a: f64, x: f64, upper: bool) -> f64 {
    if upper && a > 0.0 && a < 1.0 && x > 0.0 && x < 1.0 {
        return gamma_rest(a, x);
    }
    let (is_lower, y) =
        if a < 0.0 || x < 0.0 || (a == 0.0 && (x == 0.0 || x.is_nan())) || (a.is_infinite() && x.is_infinite()) {
            return f64::NAN;
        } else if a == 0.0 || x.is_infinite() {
            (true, 1.0)
        } else if x == 0.0 || a.is_infinite() {
            // Also where the other is NaN, as in PyTorch.
            (true, 0.0)
        } else if a.is_nan() || x.is_nan() {
            return f64::NAN;
        } else if a > 200.0 {
            (x < a, gamma_gaussian(a, x))
        } else if x < a + 1.0 {
            (true, gamma_series(a, x))
        } else {
            (false, gamma_fraction(a, x))
        };
    if is_lower == upper {
        1.0 - y
    } else {
        y
    }
}

/// `x^a e^-x / Γ(a)`.
fn gamma_density(a: f64, x: f64) -> f64 {
    (a * x.ln() - x - lgamma(a)).exp()
}

fn gamma_series(a: f64, x: f64) -> f64 {
    let (mut term, mut sum, mut k) = (1.0 / a, 1.0 / a, a);
    for _ in 0..2000 {
        k += 1.0;
        term *= x / k;
        sum += term;
        if term < 1e-17 * sum {
            break;
        }
    }
    gamma_density(a, x) * sum
}

/// `Q(a, x)` below 1, where `1 - P(a, x)` would cancel: `1 - x^a / Γ(1 + a)`, and what is left of the power series.
fn gamma_rest(a: f64, x: f64) -> f64 {
    // log Γ(1 + a) / a, by its Taylor series (-γ, ζ(2)/2, -ζ(3)/3, …) where Γ(1 + a) is near 1.
    let slope = if a < 1e-3 {
        let series =
            [0.270_580_808_427_784_5, -0.400_685_634_386_531_4, 0.822_467_033_424_113_2, -0.577_215_664_901_532_9];
        series.iter().fold(0.0, |sum, c| sum * a + c)
    } else {
        lgamma(1.0 + a) / a
    };
    let power = a * (x.ln() - slope);
    let (mut factor, mut sum) = (1.0, 0.0);
    for k in 1..30 {
        let k = f64::from(k);
        factor *= -x / k;
        sum += factor / (a + k);
        if factor.abs() < 1e-18 * sum.abs() {
            break;
        }
    }
    -power.exp_m1() - power.exp() * a * sum
}

/// Evaluated from the front, by Lentz's method as Thompson and Barnett changed it (1986).
fn gamma_fraction(a: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let away = |v: f64| if v.abs() < TINY { TINY } else { v };
    let mut b = x + 1.0 - a;
    let (mut c, mut d) = (1.0 / TINY, 1.0 / away(b));
    let mut h = d;
    for i in 1..2000 {
        let i = f64::from(i);
        let n = -i * (i - a);
        b += 2.0;
        d = 1.0 / away(n * d + b);
        c = away(b + n / c);
        let step = d * c;
        h *= step;
        if (step - 1.0).abs() < 1e-16 {
            break;
        }
    }
    gamma_density(a, x) * h
}

/// The smaller side of large a: below x where x is below a, else above it. With `u = t/b - 1`, where b is a - 1, the
/// integrand is `e^(b (log(1 + u) - u))`, whose whole integral is `√(2π/b)` times Stirling's series.
fn gamma_gaussian(a: f64, x: f64) -> f64 {
    let b = a - 1.0;
    let width = b.sqrt();
    // In units of b from b on, so that nothing is lost between large numbers.
    let from = (x - a + 1.0) / b;
    let to = match x < a {
        true => (-7.5 / width).min(from - 5.0 / width).max(-1.0),
        false => (11.5 / width).max(from + 6.0 / width),
    };
    let rule = super::quadrature::legendre();
    let mut sum = 0.0;
    for (node, weight) in rule.nodes.iter().zip(&rule.weights) {
        let u = from + (to - from) * node;
        sum += weight * (b * log1p_less(u)).exp();
    }
    let stirling = (1.0 / 12.0 - (1.0 / 360.0 - 1.0 / (1260.0 * b * b)) / (b * b)) / b;
    (to - from).abs() * sum * width / TAU.sqrt() * (-stirling).exp()
}

/// `log(1 + u) - u`, for small u by the series `log(1 + u) = 2 Σ r^(2k+1) / (2k+1)` of `r = u / (2 + u)`: `2r - u = -u r`.
fn log1p_less(u: f64) -> f64 {
    if u.abs() > 0.3 {
        return u.ln_1p() - u;
    }
    let r = u / (2.0 + u);
    let tail = (1..10).rev().fold(0.0, |sum, k| (sum + 2.0 / f64::from(2 * k + 1)) * r * r);
    r * (tail - u)
}

pub fn lgamma(x: f64) -> f64 {
    libm::lgamma(x)
}

/// The exponent `e` of `x = m 2^e`, and the mantissa `m`.
pub fn frexp(x: f64) -> (f64, f64) {
    if !x.is_finite() {
        return (x, 0.0);
    }
    let (m, e) = libm::frexp(x);
    (m, f64::from(e))
}

/// The greatest common divisor of two magnitudes.
pub fn gcd(a: u64, b: u64) -> u64 {
    let (mut a, mut b) = (a, b);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(got: f64, want: f64) {
        assert!((got - want).abs() <= 1e-13 * want.abs(), "{got} for {want}");
    }

    #[test]
    fn known_values() {
        near(digamma(1.0), -0.577_215_664_901_532_9);
        near(digamma(-0.5), 0.036_489_973_978_576_52);
        near(zeta(2.0, 1.0), PI * PI / 6.0);
        near(zeta(2.0, -0.5), PI * PI / 2.0 + 4.0);
        near(zeta(4.0, 0.5), PI.powi(4) / 6.0);
        near(i0(1.0), 1.266_065_877_752_008_4);
        near(i1(-1.0), -0.565_159_103_992_485_1);
        near(i0e(30.0), 0.073_145_946_482_237_3);
        near(erfcx(2.0), 0.255_395_676_310_505_7);
        near(erfcx(30.0), 0.018_795_888_861_416_75);
        near(igamma(0.5, 1.0, false), 0.842_700_792_949_714_9);
        near(igamma(3.0, 2.0, true), 0.676_676_416_183_063_5);
        near(igamma(1.0, 40.0, true), (-40f64).exp());
        // a E₁(x), and erfc(√x) for a = ½.
        near(igamma(1e-40, 1e-8, true), 17.843_465_089_050_832e-40);
        near(igamma(0.5, 0.25, true), 0.479_500_122_186_953_5);
        near(igamma(2.0, 1e-3, false), 4.996_667_916_333_403e-7);
        assert!((igamma(1e4, 1e4, false) - 0.501_329_808_339_955).abs() < 1e-12);
        assert_eq!(frexp(-0.75), (-0.75, 0.0));
        assert_eq!(frexp(3.0), (0.75, 2.0));
        assert_eq!(gcd(12, 18), 6);
    }

    #[test]
    fn the_edges_end() {
        assert!(zeta(2.0, f64::NEG_INFINITY).is_infinite() && zeta(3.0, -1e18).is_infinite());
        assert!(digamma(-1e300).is_nan() && i0(f64::INFINITY).is_nan() && i0e(f64::INFINITY) == 0.0);
        assert!(zeta(f64::INFINITY, 2.0).is_nan() && erfcx(f64::NEG_INFINITY).is_infinite());
    }
}
