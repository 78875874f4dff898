//! Elementary functions of one `f32`, without branches, for the loops in `dispatch`.
//!
//! Depends on nothing. Invariant: at most 2.5 ulp from the true value, 3 without FMA, and IEEE results for NaN, infinities, zeros,
//! subnormals and overflow; `sin`, `cos` and `tan` hold for arguments up to [`TRIG_MAX`] only.

// Coefficients are given as published.
#![allow(clippy::excessive_precision)]

use std::f32::consts::{FRAC_PI_2, LN_2, LOG10_E, LOG2_E, PI};

/// 1.5 × 2^23: adding it to a small number leaves the nearest integer in the low bits.
const MAGIC: f32 = 12_582_912.0;
pub(super) const LN2_HI: f32 = 0.693_359_4;
pub(super) const LN2_LO: f32 = -2.121_944_4e-4;
/// π/2 less its float.
const PI_2_LO: f32 = -4.371_139e-8;
/// The largest magnitude that the reduction by multiples of π/2 is good for.
pub const TRIG_MAX: f32 = 100_000.0;

#[inline(always)]
pub fn fma<const F: bool>(a: f32, b: f32, c: f32) -> f32 {
    if F {
        a.mul_add(b, c)
    } else {
        a * b + c
    }
}

/// Horner's rule, highest coefficient first.
#[inline(always)]
pub fn poly<const F: bool, const N: usize>(x: f32, c: [f32; N]) -> f32 {
    let mut y = c[0];
    let mut i = 1;
    while i < N {
        y = fma::<F>(y, x, c[i]);
        i += 1;
    }
    y
}

/// The nearest integer of a number below 2^22, as a float and as an integer.
#[inline(always)]
pub(super) fn nearest(x: f32) -> (f32, i32) {
    let t = x + MAGIC;
    (t - MAGIC, (t.to_bits() as i32).wrapping_sub(MAGIC.to_bits() as i32))
}

/// 2^n for n in the range of normal numbers.
#[inline(always)]
pub(super) fn pow2(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) << 23) as u32)
}

/// p × 2^n, in two steps so that n may exceed the range of normal numbers.
#[inline(always)]
fn scale(p: f32, n: i32) -> f32 {
    let half = n >> 1;
    p * pow2(half) * pow2(n.wrapping_sub(half))
}

/// NaN stays NaN.
#[inline(always)]
pub(super) fn clamp(x: f32, lo: f32, hi: f32) -> f32 {
    let x = if x > hi { hi } else { x };
    if x < lo {
        lo
    } else {
        x
    }
}

/// (r, n) with x = n ln 2 + r and |r| ≤ ln 2 / 2.
#[inline(always)]
pub(super) fn reduce_ln2<const F: bool>(x: f32) -> (f32, i32) {
    let (n, i) = nearest(x * LOG2_E);
    (fma::<F>(n, -LN2_LO, fma::<F>(n, -LN2_HI, x)), i)
}

/// (e^r − 1 − r) / r², for |r| ≤ ln 2 / 2: least squares, weighted anew until the error of e^r is even (4e-9).
#[inline(always)]
pub(super) fn exp_poly<const F: bool>(r: f32) -> f32 {
    poly::<F, 5>(r, [1.395_054e-3, 8.368_918e-3, 4.166_620_6e-2, 1.666_651_8e-1, 0.5])
}

/// e^x × 2^k for k from -1 to 1.
#[inline(always)]
fn exp_scaled<const F: bool>(x: f32, k: i32) -> f32 {
    // Beyond, the result is infinite or zero; so far, the exponent below does not overflow.
    let x = clamp(x, -106.0, 89.0 - k as f32 * LN_2);
    let t = fma::<F>(x, LOG2_E, MAGIC);
    let n = t - MAGIC;
    let r = fma::<F>(n, -LN2_LO, fma::<F>(n, -LN2_HI, x));
    let p = fma::<F>(r * r, exp_poly::<F>(r), r);
    // Twice e^r, and half of 2^n, so that n = 128 does not overflow before it must. What may be subnormal is made 2^32 times
    // larger on the way, and is rounded by the last product.
    let small = x < -86.0;
    let half = 126 + k + if small { 32 } else { 0 };
    let power = f32::from_bits(t.to_bits().wrapping_add(half as u32) << 23);
    let y = fma::<F>(p, 2.0, 2.0) * power;
    if small {
        y * (1.0 / 4_294_967_296.0)
    } else {
        y
    }
}

#[inline(always)]
pub fn exp<const F: bool>(x: f32) -> f32 {
    exp_scaled::<F>(x, 0)
}

/// e^x for the magnitudes that [`exp_is_ordinary`] tells: the result and its power of two are normal numbers.
#[inline(always)]
pub fn exp_quick<const F: bool>(x: f32) -> f32 {
    let t = fma::<F>(x, LOG2_E, MAGIC);
    let n = t - MAGIC;
    let r = fma::<F>(n, -LN2_LO, fma::<F>(n, -LN2_HI, x));
    let p = fma::<F>(r * r, exp_poly::<F>(r), r);
    let power = f32::from_bits(t.to_bits().wrapping_add(127) << 23);
    fma::<F>(p, power, power)
}

/// Is [`exp_quick`] good for it?
#[inline(always)]
pub fn exp_is_ordinary(x: f32) -> bool {
    x.abs() < 87.0
}

#[inline(always)]
pub fn exp2<const F: bool>(x: f32) -> f32 {
    let x = clamp(x, -151.0, 129.0);
    let (n, i) = nearest(x);
    let r = (x - n) * LN_2;
    scale(fma::<F>(r * r, exp_poly::<F>(r), r) + 1.0, i)
}

#[inline(always)]
pub fn expm1<const F: bool>(x: f32) -> f32 {
    // Beyond 88.9 the result is infinite, and n would leave the range of `pow2`.
    let c = clamp(x, -20.0, 88.9);
    let (r, n) = reduce_ln2::<F>(c);
    let p = fma::<F>(r * r, exp_poly::<F>(r), r);
    // Half of 2^n, so that n = 128 does not overflow before it must.
    let s = pow2(n.wrapping_sub(1));
    let y = fma::<F>(s, p, s - 0.5) * 2.0;
    // Below this e^x − 1 rounds to x, and -0 keeps its sign.
    if x.abs() < 1e-8 {
        x
    } else {
        y
    }
}

/// The bits of 2/3, from where to 4/3 a number's logarithm is that of a series.
const TWO_THIRDS: u32 = 0x3f2a_aaab;

/// (f, e) with x = (1 + f) 2^e and 2/3 ≤ 1 + f < 4/3, for positive normal x.
#[inline(always)]
fn log_parts_normal(x: f32) -> (f32, f32) {
    let t = x.to_bits().wrapping_sub(TWO_THIRDS);
    (f32::from_bits(x.to_bits().wrapping_sub(t & 0xff80_0000)) - 1.0, (t as i32 >> 23) as f32)
}

/// The same for positive finite x.
#[inline(always)]
fn log_parts(x: f32) -> (f32, f32) {
    let tiny = x < f32::MIN_POSITIVE;
    let (f, e) = log_parts_normal(if tiny { x * 8_388_608.0 } else { x });
    (f, e - if tiny { 23.0 } else { 0.0 })
}

/// ln(1 + f) − f, for |f| ≤ 1/3: least squares, weighted anew until the error of ln(1 + f) is even (5e-9 of it).
#[inline(always)]
fn log_poly<const F: bool>(f: f32) -> f32 {
    let p = poly::<F, 8>(
        f,
        [
            -1.289_167_9e-1,
            1.398_444e-1,
            -1.218_426_2e-1,
            1.400_586_8e-1,
            -1.668_048_7e-1,
            2.001_040_4e-1,
            -2.499_979_8e-1,
            3.333_321_6e-1,
        ],
    );
    let z = f * f;
    fma::<F>(f * z, p, -0.5 * z)
}

/// The logarithm's value outside the positive finite numbers.
#[inline(always)]
fn log_special(x: f32, y: f32) -> f32 {
    let y = if x == f32::INFINITY { x } else { y };
    let y = if x == 0.0 { f32::NEG_INFINITY } else { y };
    if x >= 0.0 {
        y
    } else {
        f32::NAN
    }
}

#[inline(always)]
pub fn log<const F: bool>(x: f32) -> f32 {
    let (f, e) = log_parts(x);
    let y = fma::<F>(e, LN2_LO, log_poly::<F>(f)) + f;
    log_special(x, fma::<F>(e, LN2_HI, y))
}

/// ln x for the positive normal numbers.
#[inline(always)]
pub fn log_quick<const F: bool>(x: f32) -> f32 {
    let (f, e) = log_parts_normal(x);
    let y = fma::<F>(e, LN2_LO, log_poly::<F>(f)) + f;
    fma::<F>(e, LN2_HI, y)
}

/// Is [`log_quick`] good for it?
#[inline(always)]
pub fn log_is_ordinary(x: f32) -> bool {
    x.to_bits().wrapping_sub(f32::MIN_POSITIVE.to_bits()) < f32::INFINITY.to_bits() - f32::MIN_POSITIVE.to_bits()
}

#[inline(always)]
pub fn log2<const F: bool>(x: f32) -> f32 {
    let (f, e) = log_parts(x);
    let r = log_poly::<F>(f);
    // f and r are multiplied apart: the sum would be rounded first.
    log_special(x, fma::<F>(f, LOG2_E, r * LOG2_E) + e)
}

#[inline(always)]
pub fn log10<const F: bool>(x: f32) -> f32 {
    let (f, e) = log_parts(x);
    let y = fma::<F>(e, 4.605_039e-6, fma::<F>(f, LOG10_E, log_poly::<F>(f) * LOG10_E));
    log_special(x, fma::<F>(e, 0.301_025_39, y))
}

#[inline(always)]
pub fn log1p<const F: bool>(x: f32) -> f32 {
    let u = 1.0 + x;
    let (f, e) = log_parts_normal(u);
    // What rounding 1 + x lost, in f's units: 2^-e times it, which is 0 where e is large.
    let power = u.to_bits().wrapping_sub(TWO_THIRDS) & 0xff80_0000;
    let power = 0x3f80_0000i32.wrapping_sub(power as i32).max(0) as u32;
    let lost = f32::from_bits(power) * if x > 1.0 { 1.0 - (u - x) } else { x - (u - 1.0) };
    let rest = log_poly::<F>(f + lost) + fma::<F>(e, LN2_LO, lost);
    // The first sum is exact where e is small; elsewhere the larger one comes last.
    let y = if e.abs() < 1.5 { fma::<F>(e, LN2_HI, f) + rest } else { fma::<F>(e, LN2_HI, f + rest) };
    let y = log_special(u, y);
    // Also keeps the sign of -0.
    if x.abs() < 1e-8 {
        x
    } else {
        y
    }
}

/// (r, quadrant) with x = n π/2 + r and |r| ≤ π/4.
#[inline(always)]
fn reduce_pio2<const F: bool>(x: f32) -> (f32, i32) {
    if F {
        let (n, i) = nearest(x * std::f32::consts::FRAC_2_PI);
        let r = fma::<F>(n, -1.570_796_4, x);
        let r = fma::<F>(n, 4.371_139e-8, r);
        (fma::<F>(n, 1.716_123_2e-15, r), i)
    } else {
        // Without FMA the products would round: double precision holds them.
        let t = f64::from(x) * std::f64::consts::FRAC_2_PI + 6_755_399_441_055_744.0;
        let n = t - 6_755_399_441_055_744.0;
        ((f64::from(x) - n * std::f64::consts::FRAC_PI_2) as f32, t.to_bits() as i32)
    }
}

/// Sine and cosine of |r| ≤ π/4.
#[inline(always)]
fn sin_cos_poly<const F: bool>(r: f32) -> (f32, f32) {
    let z = r * r;
    let s = poly::<F, 3>(z, [-1.951_529_6e-4, 8.332_161e-3, -1.666_665_5e-1]);
    let c = poly::<F, 3>(z, [2.443_315_7e-5, -1.388_731_6e-3, 4.166_664_6e-2]);
    (fma::<F>(r * z, s, r), fma::<F>(z * z, c, fma::<F>(z, -0.5, 1.0)))
}

#[inline(always)]
fn sin_quadrant<const F: bool>(r: f32, q: i32) -> f32 {
    let (s, c) = sin_cos_poly::<F>(r);
    let y = if q & 1 == 0 { s } else { c };
    f32::from_bits(y.to_bits() ^ (((q & 2) as u32) << 30))
}

#[inline(always)]
pub fn sin<const F: bool>(x: f32) -> f32 {
    let (r, q) = reduce_pio2::<F>(x);
    // The reduction turns -0 into 0.
    if x == 0.0 {
        x
    } else {
        sin_quadrant::<F>(r, q)
    }
}

#[inline(always)]
pub fn cos<const F: bool>(x: f32) -> f32 {
    let (r, q) = reduce_pio2::<F>(x);
    sin_quadrant::<F>(r, q.wrapping_add(1))
}

#[inline(always)]
pub fn tan<const F: bool>(x: f32) -> f32 {
    let (r, q) = reduce_pio2::<F>(x);
    let z = r * r;
    let p = poly::<F, 6>(
        z,
        [9.395_678_5e-3, 3.102_857_2e-3, 2.444_057_9e-2, 5.340_841_4e-2, 1.333_883_3e-1, 3.333_315_6e-1],
    );
    let t = fma::<F>(r * z, p, r);
    // What rounding lost of the tangent, and of its inverse, is put back: both would add up to 2.5 ulp.
    let lost = fma::<F>(r * z, p, r - t);
    let inverse = -1.0 / t;
    let inverse = fma::<F>(inverse, fma::<F>(inverse, t, 1.0) + inverse * lost, inverse);
    // At a pole the product is not a number.
    let inverse = if r == 0.0 { -1.0 / r } else { inverse };
    let y = if q & 1 == 0 { t } else { inverse };
    if x == 0.0 {
        x
    } else {
        y
    }
}

/// (arcsine of a) / a − 1, divided by z = a², for z ≤ ¼.
#[inline(always)]
fn asin_poly<const F: bool>(z: f32) -> f32 {
    poly::<F, 5>(z, [4.216_32e-2, 2.418_131_1e-2, 4.547_002_6e-2, 7.495_3e-2, 1.666_675_2e-1])
}

#[inline(always)]
pub fn asin<const F: bool>(x: f32) -> f32 {
    let a = x.abs();
    let big = a > 0.5;
    let z = if big { 0.5 * (1.0 - a) } else { a * a };
    let s = if big { z.sqrt() } else { a };
    let p = s * z * asin_poly::<F>(z);
    // π/2 - 2s is exact where the result is small.
    let y = if big { (FRAC_PI_2 - 2.0 * s) - fma::<F>(2.0, p, -PI_2_LO) } else { s + p };
    y.copysign(x)
}

#[inline(always)]
pub fn acos<const F: bool>(x: f32) -> f32 {
    let a = x.abs();
    let big = a > 0.5;
    let z = if big { 0.5 * (1.0 - a) } else { a * a };
    let s = if big { z.sqrt() } else { a };
    let p = fma::<F>(s * z, asin_poly::<F>(z), s);
    let folded = if x < 0.0 { PI - 2.0 * p } else { 2.0 * p };
    if big {
        folded
    } else {
        // π/2 rounds to more than itself: put the difference back.
        FRAC_PI_2 - (p.copysign(x) - PI_2_LO)
    }
}

/// The arctangent of t ≤ 1, or what is left of π/2 for its inverse.
#[inline(always)]
fn angle<const F: bool>(t: f32, inverse: bool) -> f32 {
    let z = t * t;
    let p = poly::<F, 9>(
        z,
        [
            -1.793_616e-3,
            1.091_458_2e-2,
            -3.117_780_3e-2,
            5.795_755_6e-2,
            -8.403_448e-2,
            1.095_218_5e-1,
            -1.426_424_1e-1,
            1.999_854_9e-1,
            -3.333_33e-1,
        ],
    );
    let rest = t * z * p;
    if inverse {
        (FRAC_PI_2 - t) - (rest - PI_2_LO)
    } else {
        t + rest
    }
}

#[inline(always)]
pub fn atan<const F: bool>(x: f32) -> f32 {
    let a = x.abs();
    let swap = a > 1.0;
    // For infinity the quotient is 0, which is right.
    angle::<F>(if swap { 1.0 / a } else { a }, swap).copysign(x)
}

#[inline(always)]
pub fn atan2<const F: bool>(y: f32, x: f32) -> f32 {
    let (a, b) = (y.abs(), x.abs());
    let swap = a > b;
    let (mn, mx) = if swap { (b, a) } else { (a, b) };
    // Two infinities count as equal, two zeros as angle 0.
    let (mn, mx) = if mn == f32::INFINITY { (1.0, 1.0) } else { (mn, mx) };
    let t = angle::<F>(mn / if mx == 0.0 { 1.0 } else { mx }, swap);
    let t = if x.is_sign_negative() { PI - (t - 2.0 * PI_2_LO) } else { t };
    if x.is_nan() || y.is_nan() {
        f32::NAN
    } else {
        t.copysign(y)
    }
}

#[inline(always)]
pub fn sinh<const F: bool>(x: f32) -> f32 {
    let a = x.abs();
    let t = expm1::<F>(a);
    // Half of e^a, which overflows later than e^a.
    let h = exp_scaled::<F>(a, -1);
    let y = if a < 1.0 { 0.5 * (t + t / (t + 1.0)) } else { h - 0.25 / h };
    y.copysign(x)
}

#[inline(always)]
pub fn cosh<const F: bool>(x: f32) -> f32 {
    let h = exp_scaled::<F>(x.abs(), -1);
    h + 0.25 / h
}

#[inline(always)]
pub fn tanh<const F: bool>(x: f32) -> f32 {
    let a = x.abs();
    let z = x * x;
    let p = poly::<F, 5>(z, [-6.274_243_4e-3, 2.107_168_2e-2, -5.385_231e-2, 1.333_258_6e-1, -3.333_331_6e-1]);
    let small = fma::<F>(x * z, p, x);
    // 1 - 1 / ((e^2|x| + 1) / 2), half of e^2|x| as in `expm1`: from 10 on the result is 1.
    let (r, n) = reduce_ln2::<F>(2.0 * clamp(a, 0.0, 10.0));
    let s = pow2(n.wrapping_sub(1));
    let large = 1.0 - 1.0 / fma::<F>(s, fma::<F>(r * r, exp_poly::<F>(r), r), s + 0.5);
    if a < 0.55 {
        small
    } else {
        large.copysign(x)
    }
}

#[inline(always)]
pub fn asinh<const F: bool>(x: f32) -> f32 {
    let a = x.abs();
    let z = a * a;
    let small = log1p::<F>(a + z / (1.0 + (z + 1.0).sqrt()));
    let large = log::<F>(a) + LN_2;
    (if a > 1e9 { large } else { small }).copysign(x)
}

#[inline(always)]
pub fn acosh<const F: bool>(x: f32) -> f32 {
    let t = x - 1.0;
    let small = log1p::<F>(t + fma::<F>(t, t, 2.0 * t).sqrt());
    let y = if x > 1e9 { log::<F>(x) + LN_2 } else { small };
    if x >= 1.0 {
        y
    } else {
        f32::NAN
    }
}

#[inline(always)]
pub fn atanh<const F: bool>(x: f32) -> f32 {
    let a = x.abs();
    let z = x * x;
    let p =
        poly::<F, 6>(z, [1.766_904e-1, 5.135_883_4e-2, 1.182_371_3e-1, 1.422_276_5e-1, 2.000_251_9e-1, 3.333_33e-1]);
    let small = fma::<F>(x * z, p, x);
    let large = 0.5 * log1p::<F>((a + a) / (1.0 - a));
    if a < 0.5 {
        small
    } else {
        large.copysign(x)
    }
}

#[inline(always)]
pub fn sigmoid<const F: bool>(x: f32) -> f32 {
    1.0 / (1.0 + exp::<F>(-x))
}

#[inline(always)]
pub fn pow<const F: bool>(x: f32, y: f32) -> f32 {
    // Double precision, since an error in the logarithm is multiplied by the exponent.
    super::math64::pow_core::<F>(x, y) as f32
}
