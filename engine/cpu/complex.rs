//! Elementary functions of complex numbers, computed in double precision and rounded once.
//!
//! Depends on num-complex for the number itself. Branch cuts and signs of zero are C99's (Kahan, "Branch cuts for complex
//! elementary functions", 1987), and so PyTorch's. Invariant: what float32 parts can hold never overflows
//! on the way; nor do quotients, roots, logarithms and inverse functions of float64 parts.

use super::simd::Math;
use crate::dtype::{narrow, wide, Part};
use num_complex::{Complex, Complex64 as C};
use std::f64::consts::{FRAC_PI_2, LN_10, LN_2};

/// `e` to a complex power.
fn exp(z: C) -> C {
    if z.im == 0.0 {
        return C::new(z.re.exp(), z.im);
    }
    let size = z.re.exp();
    if size == 0.0 && !z.im.is_finite() {
        return C::new(0.0, 0.0);
    }
    if size == f64::INFINITY && !z.im.is_finite() {
        return C::new(size, f64::NAN);
    }
    C::new(size * z.im.cos(), size * z.im.sin())
}

fn log(z: C) -> C {
    let (large, small) = if z.re.abs() < z.im.abs() { (z.im.abs(), z.re) } else { (z.re.abs(), z.im) };
    // Beside the unit circle the logarithm is small, and the size has lost what it is made of.
    let re = match (0.5..2.0).contains(&large) {
        true => 0.5 * ((large - 1.0) * (large + 1.0) + small * small).ln_1p(),
        false => z.re.hypot(z.im).ln(),
    };
    C::new(re, z.im.atan2(z.re))
}

fn log1p(z: C) -> C {
    if far(z).is_some() {
        return log(z);
    }
    C::new(0.5 * (z.re * (2.0 + z.re) + z.im * z.im).ln_1p(), z.im.atan2(1.0 + z.re))
}

fn expm1(z: C) -> C {
    let half = (z.im / 2.0).sin();
    C::new(z.re.exp_m1() * z.im.cos() - 2.0 * half * half, z.re.exp() * z.im.sin())
}

fn sqrt(z: C) -> C {
    if z.re == 0.0 && z.im == 0.0 {
        return C::new(0.0, z.im);
    }
    if z.im.is_infinite() {
        return C::new(f64::INFINITY, z.im);
    }
    let size = z.re.hypot(z.im);
    // The sum of two large ones overflows, half of a small one may be 0.
    let t = if size > 1.0 { z.re.abs() / 2.0 + size / 2.0 } else { (z.re.abs() + size) / 2.0 }.sqrt();
    if z.re >= 0.0 {
        C::new(t, z.im / (2.0 * t))
    } else {
        C::new(z.im.abs() / (2.0 * t), t.copysign(z.im))
    }
}

fn sinh(z: C) -> C {
    if z.im == 0.0 {
        return C::new(z.re.sinh(), z.im);
    }
    if !z.im.is_finite() && (z.re == 0.0 || z.re.is_infinite()) {
        return C::new(if z.re == 0.0 { z.re } else { f64::INFINITY }, f64::NAN);
    }
    C::new(z.re.sinh() * z.im.cos(), z.re.cosh() * z.im.sin())
}

fn cosh(z: C) -> C {
    if z.im == 0.0 {
        return C::new(z.re.cosh(), z.im.copysign(z.re * z.im));
    }
    if !z.im.is_finite() && (z.re == 0.0 || z.re.is_infinite()) {
        return if z.re == 0.0 { C::new(f64::NAN, 0.0) } else { C::new(f64::INFINITY, f64::NAN) };
    }
    C::new(z.re.cosh() * z.im.cos(), z.re.sinh() * z.im.sin())
}

fn tanh(z: C) -> C {
    if z.im == 0.0 {
        return C::new(z.re.tanh(), z.im);
    }
    if z.re == 0.0 && !z.im.is_finite() {
        return C::new(z.re, f64::NAN);
    }
    if z.re.abs() > 20.0 {
        // Beyond, the real part is ±1 and the imaginary one what is left of it.
        let tail = if z.im.is_finite() { 4.0 * z.im.sin() * z.im.cos() * (-2.0 * z.re.abs()).exp() } else { 0.0 };
        return C::new(1f64.copysign(z.re), tail);
    }
    let (t, s) = (z.im.tan(), z.re.sinh());
    let (b, r) = (1.0 + t * t, (1.0 + s * s).sqrt());
    let d = 1.0 + b * s * s;
    C::new(b * r * s / d, t / d)
}

/// `i z`, and back.
fn times_i(z: C) -> C {
    C::new(-z.im, z.re)
}
fn times_minus_i(z: C) -> C {
    C::new(z.im, -z.re)
}

/// Of a number so large that 1 beside it is nothing: the angle between it, or its conjugate above the axis, and the
/// positive real ones, and the logarithm of twice its size.
fn far(z: C) -> Option<(f64, f64)> {
    let large = z.re.abs() > 1e150 || z.im.abs() > 1e150;
    large.then(|| (z.im.abs().atan2(z.re), (z.re / 2.0).hypot(z.im / 2.0).ln() + 2.0 * LN_2))
}

fn asin(z: C) -> C {
    if z.re == 0.0 && z.im.is_nan() {
        return z;
    }
    if let Some((_, size)) = far(z) {
        return C::new(z.re.atan2(z.im.abs()), size.copysign(z.im));
    }
    let (a, b) = (sqrt(C::new(1.0 - z.re, -z.im)), sqrt(C::new(1.0 + z.re, z.im)));
    C::new(z.re.atan2((a * b).re), (a.conj() * b).im.asinh())
}

fn acos(z: C) -> C {
    if z.re == 0.0 && z.im.is_nan() {
        return C::new(FRAC_PI_2, z.im);
    }
    if let Some((angle, size)) = far(z) {
        return C::new(angle, -size.copysign(z.im));
    }
    let (a, b) = (sqrt(C::new(1.0 - z.re, -z.im)), sqrt(C::new(1.0 + z.re, z.im)));
    C::new(2.0 * a.re.atan2(b.re), (b.conj() * a).im.asinh())
}

fn acosh(z: C) -> C {
    if z.re == 0.0 && z.im.is_nan() {
        return C::new(z.im, FRAC_PI_2);
    }
    if let Some((angle, size)) = far(z) {
        return C::new(size, angle.copysign(z.im));
    }
    let (a, b) = (sqrt(C::new(z.re - 1.0, z.im)), sqrt(C::new(z.re + 1.0, z.im)));
    C::new((a.conj() * b).re.asinh(), 2.0 * a.im.atan2(b.re))
}

fn atanh(z: C) -> C {
    let (x, y) = (z.re, z.im);
    if !x.is_finite() || !y.is_finite() {
        let lost = if x.is_nan() { !y.is_infinite() } else { y.is_nan() && x != 0.0 && x.is_finite() };
        let re = if lost { f64::NAN } else { 0f64.copysign(x) };
        let im = if y.is_nan() || x.is_nan() && y.is_finite() { f64::NAN } else { FRAC_PI_2.copysign(y) };
        return C::new(re, im);
    }
    if far(z).is_some() {
        return C::new(quotient(C::new(1.0, 0.0), z).re, FRAC_PI_2.copysign(y));
    }
    // Of the right half plane: on the left the logarithm would be that of a small difference.
    let size = x.abs();
    let gap = (1.0 - size) * (1.0 - size) + y * y;
    let re = (0.25 * (4.0 * size / gap).ln_1p()).copysign(x);
    C::new(re, 0.5 * (2.0 * y).atan2((1.0 - x) * (1.0 + x) - y * y))
}

fn sigmoid(z: C) -> C {
    // The exponential that cannot overflow.
    if z.re < 0.0 {
        let e = exp(z);
        return e / (e + 1.0);
    }
    (exp(-z) + 1.0).inv()
}

/// A function of the table, if it has a complex form here.
fn function(op: Math) -> Option<fn(C) -> C> {
    Some(match op {
        Math::Exp => exp,
        Math::Exp2 => |z| exp(z * LN_2),
        Math::Expm1 => expm1,
        Math::Log => log,
        Math::Log2 => |z| log(z) / LN_2,
        Math::Log10 => |z| log(z) / LN_10,
        Math::Log1p => log1p,
        Math::Sqrt => sqrt,
        Math::Rsqrt => |z| quotient(C::new(1.0, 0.0), sqrt(z)),
        Math::Sin => |z| times_minus_i(sinh(times_i(z))),
        Math::Cos => |z| cosh(times_i(z)),
        Math::Tan => |z| times_minus_i(tanh(times_i(z))),
        Math::Asin => asin,
        Math::Acos => acos,
        Math::Atan => |z| times_minus_i(atanh(times_i(z))),
        Math::Sinh => sinh,
        Math::Cosh => cosh,
        Math::Tanh => tanh,
        Math::Asinh => |z| times_minus_i(asin(times_i(z))),
        Math::Acosh => acosh,
        Math::Atanh => atanh,
        Math::Sigmoid => sigmoid,
        Math::Silu => |z| z * sigmoid(z),
        Math::Erf | Math::Erfc | Math::Erfinv | Math::Gelu | Math::GeluTanh => return None,
    })
}

/// `out[i] = op(x[i])`; nothing where `op` has no complex form.
pub fn math<P: Part>(op: Math, x: &[Complex<P>], out: &mut [Complex<P>]) {
    if let Some(f) = function(op) {
        out.iter_mut().zip(x).for_each(|(o, &z)| *o = narrow(f(wide(z))));
    }
}

/// Has the function a complex form?
pub fn has(op: Math) -> bool {
    function(op).is_some()
}

/// Smith's way ("Algorithm 116: Complex division", 1962), which no square of a part overflows in; zeros divide each part.
fn quotient(a: C, b: C) -> C {
    if b.re == 0.0 && b.im == 0.0 {
        return C::new(a.re / b.re.abs(), a.im / b.im.abs());
    }
    if b.re.abs() >= b.im.abs() {
        let ratio = b.im / b.re;
        let by = b.re + b.im * ratio;
        C::new((a.re + a.im * ratio) / by, (a.im - a.re * ratio) / by)
    } else {
        let ratio = b.re / b.im;
        let by = b.re * ratio + b.im;
        C::new((a.re * ratio + a.im) / by, (a.im * ratio - a.re) / by)
    }
}

pub fn div<P: Part>(a: Complex<P>, b: Complex<P>) -> Complex<P> {
    narrow(quotient(wide(a), wide(b)))
}

pub fn reciprocal<P: Part>(z: Complex<P>) -> Complex<P> {
    narrow(quotient(C::new(1.0, 0.0), wide(z)))
}

/// `a^b = e^(b log a)`; 1 where the exponent is 0, NaN where the base is, too, as in PyTorch, and 0 where the base is and the
/// exponent's real part is positive.
pub fn pow<P: Part>(a: Complex<P>, b: Complex<P>) -> Complex<P> {
    let (a, b) = (wide(a), wide(b));
    let zero = C::new(0.0, 0.0);
    if b == zero {
        return narrow(if a == zero { C::new(f64::NAN, f64::NAN) } else { C::new(1.0, 0.0) });
    }
    if a == zero && b.re > 0.0 {
        return narrow(zero);
    }
    narrow(exp(b * log(a)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(got: C, re: f64, im: f64) {
        assert!((got - C::new(re, im)).norm() < 1e-12 * C::new(re, im).norm(), "{got} for {re} {im}");
    }

    #[test]
    fn functions_and_their_inverses() {
        for z in [C::new(0.3, 0.4), C::new(-0.3, 0.4), C::new(0.7, -1.2), C::new(-0.2, -0.1)] {
            let back = |f: Math, g: Math| function(f).unwrap()(function(g).unwrap()(z));
            for (f, g) in [
                (Math::Sin, Math::Asin),
                (Math::Cos, Math::Acos),
                (Math::Tan, Math::Atan),
                (Math::Sinh, Math::Asinh),
                (Math::Cosh, Math::Acosh),
                (Math::Tanh, Math::Atanh),
                (Math::Exp, Math::Log),
                (Math::Expm1, Math::Log1p),
            ] {
                near(back(f, g), z.re, z.im);
            }
            near(sqrt(z) * sqrt(z), z.re, z.im);
        }
    }

    #[test]
    fn branch_cuts_keep_the_sign_of_zero() {
        near(sqrt(C::new(-4.0, -0.0)), 0.0, -2.0);
        near(log(C::new(-1.0, -0.0)), 0.0, -std::f64::consts::PI);
        assert!(asin(C::new(2.0, -0.0)).im < 0.0 && asin(C::new(2.0, 0.0)).im > 0.0);
        assert!(acos(C::new(2.0, 0.0)).im < 0.0 && atanh(C::new(2.0, -0.0)).im < 0.0);
    }
}
