//! Derivatives of gamma and beta numbers in their concentrations, by implicit reparameterisation.
//!
//! Both differentiate the series or the continued fraction of the distribution function term by term (Moore, "Derivatives of
//! the incomplete gamma integral", 1982; Boik and Robison-Cox, "Derivatives of the incomplete beta function", 1998).
//! Depends on `special`. Computed in float64, whatever the dtype.

use super::cast::cast;
use super::elementwise::apply2;
use super::simd::{call2, threads::GRAIN};
use super::special::digamma;
use super::strided::each3;
use super::CpuArray;
use crate::{DType, Error, Result};
use lucid_ir::ops::random::RandomOp;
use lucid_ir::Meta;

/// Elements from which the functions go to the pool.
const COSTLY: usize = GRAIN / 16;
/// Terms of a series or levels of a fraction at the most; the square root of a concentration is needed.
const TERMS: u32 = 200_000;
/// From here on the expansion in powers of `1/√a` is exact.
const LARGE: f64 = 1e5;
const PRECISION: f64 = 1e-16;

/// The kernels of the `random` family that take arrays.
pub fn derivative(op: &RandomOp, inputs: &[&CpuArray], out: &Meta) -> Result<CpuArray> {
    let wide = inputs.iter().map(|x| cast(x, DType::F64)).collect::<Result<Vec<_>>>()?;
    let made = match (op, wide.as_slice()) {
        (RandomOp::StandardGammaGrad, [a, x]) => {
            apply2::<f64, f64>(a, x, &out.shape, COSTLY, &|a, x, out| call2(gamma, a, x, out))?
        }
        (RandomOp::DirichletGrad, [x, alpha, total]) => {
            let (x, a, t) = (x.contiguous()?, alpha.contiguous()?, total.contiguous()?);
            let (xs, alphas, totals) = (x.read::<f64>(), a.read::<f64>(), t.read::<f64>());
            let shape = &out.shape[..];
            CpuArray::build(shape, |out: &mut [f64]| {
                let (x, a, t) = (x.source(&xs, shape), a.source(&alphas, shape), t.source(&totals, shape));
                each3(&x, &a, &t, out, COSTLY, &|x, a, t, out| {
                    out.iter_mut().enumerate().for_each(|(i, o)| *o = dirichlet(x.at(i), a.at(i), t.at(i)));
                });
                Ok(())
            })?
        }
        _ => return Err(Error::runtime(op.name(), format!("takes no {} arrays", inputs.len()))),
    };
    cast(&made, out.dtype)
}

/// `-(∂P(a, x)/∂a) / p(x)` of the gamma distribution with concentration `a`.
fn gamma(a: f64, x: f64) -> f64 {
    if a.is_nan() || x.is_nan() || a <= 0.0 || x < 0.0 {
        f64::NAN
    } else if x == 0.0 || a.is_infinite() || x.is_infinite() {
        f64::from(u8::from(x != 0.0))
    } else if a > LARGE {
        gamma_expanded(a, x)
    } else if x < a + 1.0 {
        gamma_series(a, x)
    } else {
        gamma_fraction(a, x)
    }
}

/// Of `P / p = Σ x^(n+1) / (a (a+1) … (a+n))`.
fn gamma_series(a: f64, x: f64) -> f64 {
    // ψ(a) + 1/a = ψ(a + 1): nothing is lost to 1/a where a is small.
    let shift = digamma(a + 1.0) - x.ln();
    let (mut term, mut harmonic, mut sum) = (x / a, 0.0, x / a * shift);
    for n in 1..TERMS {
        let k = a + f64::from(n);
        term *= x / k;
        harmonic += 1.0 / k;
        let more = term * (harmonic + shift);
        sum += more;
        if term * (harmonic + shift.abs()) < PRECISION * sum.abs() {
            break;
        }
    }
    sum
}

/// Of `(1 - P) / p = x / (x + 1 - a - 1 (1 - a) / (x + 3 - a - …))`, Legendre's continued fraction.
fn gamma_fraction(a: f64, x: f64) -> f64 {
    let mut b = x + 1.0 - a;
    let (mut c, mut dc) = (f64::MAX.sqrt(), 0.0);
    let mut d = 1.0 / b;
    let mut dd = d * d;
    let (mut h, mut dh) = (d, dd);
    for i in 1..TERMS {
        let i = f64::from(i);
        // Numerator -i (i - a), with derivative i; the derivative of b is -1.
        let numerator = -i * (i - a);
        b += 2.0;
        let below = numerator * d + b;
        dd = -(i * d + numerator * dd - 1.0) / (below * below);
        d = 1.0 / below;
        dc = i / c - numerator * dc / (c * c) - 1.0;
        c = b + numerator / c;
        let (ratio, dratio) = (c * d, dc * d + c * dd);
        dh = dh * ratio + h * dratio;
        h *= ratio;
        if (ratio - 1.0).abs() < PRECISION && dratio.abs() * h < PRECISION * dh.abs().max(h) {
            break;
        }
    }
    x * ((x.ln() - digamma(a)) * h + dh)
}

/// Cornish and Fisher's expansion of x in the normal quantile z, differentiated with z held.
fn gamma_expanded(a: f64, x: f64) -> f64 {
    let root = a.sqrt();
    let mut z = (x - a) / root;
    for _ in 0..4 {
        let at = a + z * root + (z * z - 1.0) / 3.0 + (z * z - 7.0) * z / (36.0 * root);
        let slope = root + 2.0 * z / 3.0 + (3.0 * z * z - 7.0) / (36.0 * root);
        z -= (at - x) / slope;
    }
    let third = (z * z - 7.0) * z / (72.0 * a * root);
    1.0 + z / (2.0 * root) - third + ((3.0 * z * z + 7.0) * z * z - 16.0) / (810.0 * a * a)
}

/// `-(∂I_x(α, β)/∂α) / p(x) / (1 - x)` of the beta distribution, with `β = total - α`: the derivative of one number of the
/// Dirichlet distribution in its own concentration, over what is left for the others.
fn dirichlet(x: f64, alpha: f64, total: f64) -> f64 {
    let beta = total - alpha;
    if x.is_nan() || alpha.is_nan() || total.is_nan() || alpha <= 0.0 || beta <= 0.0 || !(0.0..=1.0).contains(&x) {
        return f64::NAN;
    }
    if x == 0.0 {
        return 0.0;
    }
    let log = x.ln() + digamma(total);
    if x * (total + 2.0) < alpha + 1.0 {
        let (h, dh) = beta_fraction(alpha, beta, x, true);
        -x / alpha * (h * (log - digamma(alpha + 1.0)) + dh)
    } else {
        let (h, dh) = beta_fraction(beta, alpha, 1.0 - x, false);
        x / beta * (h * (log - digamma(alpha)) + dh)
    }
}

/// The continued fraction of `a I_x(a, b) B(a, b) / (x^a (1 - x)^b)`, and its derivative in `a` or in `b`.
fn beta_fraction(a: f64, b: f64, x: f64, in_a: bool) -> (f64, f64) {
    let first = 1.0 - (a + b) * x / (a + 1.0);
    let dfirst = if in_a { x * (b - 1.0) / ((a + 1.0) * (a + 1.0)) } else { -x / (a + 1.0) };
    let (mut c, mut dc) = (1.0, 0.0);
    let mut d = 1.0 / first;
    let mut dd = -dfirst * d * d;
    let (mut h, mut dh) = (d, dd);
    let mut level = |numerator: f64, slope: f64| {
        let below = 1.0 + numerator * d;
        dd = -(slope * d + numerator * dd) / (below * below);
        d = 1.0 / below;
        dc = slope / c - numerator * dc / (c * c);
        c = 1.0 + numerator / c;
        let (ratio, dratio) = (c * d, dc * d + c * dd);
        dh = dh * ratio + h * dratio;
        h *= ratio;
        (ratio - 1.0).abs() < PRECISION && (dratio * h).abs() < PRECISION * dh.abs().max(h.abs())
    };
    for m in 1..TERMS {
        let m = f64::from(m);
        let (low, mid, high) = (a - 1.0 + 2.0 * m, a + 2.0 * m, a + 1.0 + 2.0 * m);
        let scale = m * x / (low * mid);
        let even = scale * (b - m);
        level(even, if in_a { -even * (1.0 / low + 1.0 / mid) } else { scale });
        let scale = -x / (mid * high);
        let odd = scale * (a + m) * (a + b + m);
        let slope = match in_a {
            true => scale * (2.0 * (a + m) + b) - odd * (1.0 / mid + 1.0 / high),
            false => scale * (a + m),
        };
        if level(odd, slope) {
            break;
        }
    }
    (h, dh)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::special::{igamma, lgamma};

    fn close(got: f64, want: f64, tolerance: f64, what: &str) {
        assert!((got - want).abs() <= tolerance * want.abs().max(1e-3), "{what}: {got}, not {want}");
    }

    #[test]
    fn gamma_derivatives_are_those_of_the_distribution_function() {
        for a in [0.05, 0.3, 1.0, 2.5, 17.0, 90.0] {
            for ratio in [0.2, 0.6, 0.95, 1.1, 1.7, 3.0] {
                let x = a * ratio + 0.01;
                let step = 2e-5 * a;
                let slope = |upper| (igamma(a + step, x, upper) - igamma(a - step, x, upper)) / (2.0 * step);
                let slope = if x > a { -slope(true) } else { slope(false) };
                let want = -slope / ((a - 1.0) * x.ln() - x - lgamma(a)).exp();
                close(gamma(a, x), want, 1e-4, &format!("{a} {x}"));
            }
        }
    }

    #[test]
    fn gamma_derivatives_fit_together() {
        for z in [-3.0, -0.4, 0.0, 1.0, 4.0] {
            let a = 0.999 * LARGE;
            let x = a + z * a.sqrt();
            let by_terms = if x < a + 1.0 { gamma_series(a, x) } else { gamma_fraction(a, x) };
            close(gamma_expanded(a, x), by_terms, 1e-8, "expansion");
            close(gamma_fraction(30.0, 31.0), gamma_series(30.0, 31.0), 1e-12, "fraction");
        }
        assert_eq!(gamma(2.0, 0.0), 0.0);
        assert!(gamma(-1.0, 1.0).is_nan() && gamma(1.0, f64::NAN).is_nan());
        assert!(gamma(1e-30, 1e-30) > 0.0);
    }

    #[test]
    fn beta_derivatives_in_closed_cases() {
        for x in [1e-6, 0.1, 0.4, 0.6, 0.9, 0.9999] {
            for a in [0.1, 0.7, 3.0, 40.0] {
                // F = x^a where β = 1.
                let want = -x * f64::ln(x) / a / (1.0 - x);
                close(dirichlet(x, a, a + 1.0), want, 1e-11, &format!("{x} {a}"));
            }
        }
        // Both branches, where they meet.
        for (a, b) in [(0.5, 0.5), (2.0, 5.0), (300.0, 20.0), (5e3, 7e3)] {
            let x = (a + 1.0) / (a + b + 2.0);
            let (below, above) = (dirichlet(x * (1.0 - 1e-9), a, a + b), dirichlet(x * (1.0 + 1e-9), a, a + b));
            close(below, above, 1e-6, "where the branches meet");
        }
        assert!(dirichlet(0.5, 1.0, 0.5).is_nan());
    }
}
