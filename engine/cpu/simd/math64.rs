//! Elementary functions of one `f64`: the hot ones without branches, for the loops in `dispatch`, the rest through the
//! standard library and `libm`.
//!
//! Depends on `libm`. Invariant: at most 4 ulp from the true value, and IEEE results for NaN, infinities, zeros,
//! subnormals and overflow; `sin`, `cos` and `tan` hold for arguments up to [`TRIG_MAX`] only.

// Coefficients are given as published.
#![allow(clippy::excessive_precision)]

use std::f64::consts::{FRAC_2_PI, LN_2, LOG10_E, LOG2_E};

/// 1.5 × 2^52: adding it to a small number leaves the nearest integer in the low bits.
const MAGIC: f64 = 6_755_399_441_055_744.0;
const LN2_HI: f64 = 6.931_471_803_691_238_16e-1;
const LN2_LO: f64 = 1.908_214_929_270_587_70e-10;
/// The largest magnitude that the reduction by multiples of π/2 is good for.
pub const TRIG_MAX: f64 = 1_000_000.0;

#[inline(always)]
pub(super) fn fma<const F: bool>(a: f64, b: f64, c: f64) -> f64 {
    if F {
        a.mul_add(b, c)
    } else {
        a * b + c
    }
}

/// Horner's rule, highest coefficient first.
#[inline(always)]
pub(super) fn poly<const F: bool, const N: usize>(x: f64, c: [f64; N]) -> f64 {
    let mut y = c[0];
    let mut i = 1;
    while i < N {
        y = fma::<F>(y, x, c[i]);
        i += 1;
    }
    y
}

/// The nearest integer of a number below 2^51, as a float and as an integer.
#[inline(always)]
fn nearest(x: f64) -> (f64, i64) {
    let t = x + MAGIC;
    (t - MAGIC, (t.to_bits() as i64).wrapping_sub(MAGIC.to_bits() as i64))
}

/// 2^n for n in the range of normal numbers.
#[inline(always)]
fn pow2(n: i64) -> f64 {
    f64::from_bits((n.wrapping_add(1023) << 52) as u64)
}

/// p × 2^n, in two steps so that n may exceed the range of normal numbers.
#[inline(always)]
fn scale(p: f64, n: i64) -> f64 {
    // There is no arithmetic 64-bit shift before AVX-512; n is small, so that 32 bits do.
    let half = i64::from((n as i32) >> 1);
    p * pow2(half) * pow2(n.wrapping_sub(half))
}

/// NaN stays NaN.
#[inline(always)]
pub(super) fn clamp(x: f64, lo: f64, hi: f64) -> f64 {
    let x = if x > hi { hi } else { x };
    if x < lo {
        lo
    } else {
        x
    }
}

/// (r, n) with x = n ln 2 + r and |r| ≤ ln 2 / 2.
#[inline(always)]
fn reduce_ln2<const F: bool>(x: f64) -> (f64, i64) {
    let (n, i) = nearest(x * LOG2_E);
    (fma::<F>(n, -LN2_LO, fma::<F>(n, -LN2_HI, x)), i)
}

/// e^r − 1, for |r| ≤ ln 2 / 2.
#[inline(always)]
fn expm1_poly<const F: bool>(r: f64) -> f64 {
    // Taylor's series: the first term left out is 4e-18 of the result.
    let p = poly::<F, 12>(
        r,
        [
            1.0 / 6_227_020_800.0,
            1.0 / 479_001_600.0,
            1.0 / 39_916_800.0,
            1.0 / 3_628_800.0,
            1.0 / 362_880.0,
            1.0 / 40_320.0,
            1.0 / 5_040.0,
            1.0 / 720.0,
            1.0 / 120.0,
            1.0 / 24.0,
            1.0 / 6.0,
            0.5,
        ],
    );
    fma::<F>(r * r, p, r)
}

#[inline(always)]
pub fn exp<const F: bool>(x: f64) -> f64 {
    let (r, n) = reduce_ln2::<F>(clamp(x, -750.0, 720.0));
    scale(1.0 + expm1_poly::<F>(r), n)
}

#[inline(always)]
pub fn exp2<const F: bool>(x: f64) -> f64 {
    let x = clamp(x, -1080.0, 1030.0);
    let (n, i) = nearest(x);
    scale(1.0 + expm1_poly::<F>((x - n) * LN_2), i)
}

#[inline(always)]
pub fn expm1<const F: bool>(x: f64) -> f64 {
    let (r, n) = reduce_ln2::<F>(clamp(x, -45.0, 720.0));
    let n = if n > 1025 { 1025 } else { n };
    // Half of 2^n, so that n = 1024 does not overflow before it must.
    let s = pow2(n.wrapping_sub(1));
    let y = fma::<F>(s, expm1_poly::<F>(r), s - 0.5) * 2.0;
    let y = if x > 710.0 { f64::INFINITY } else { y };
    // Below this e^x − 1 rounds to x, and -0 keeps its sign.
    if x.abs() < 1e-17 {
        x
    } else {
        y
    }
}

/// (f, e) with x = (1 + f) 2^e and √½ ≤ 1 + f < √2, for positive finite x.
#[inline(always)]
fn log_parts(x: f64) -> (f64, f64) {
    let tiny = x < f64::MIN_POSITIVE;
    let x = if tiny { x * 18_014_398_509_481_984.0 } else { x };
    let t = x.to_bits().wrapping_sub(0x3fe6_a09e_667f_3bcd);
    // The exponent is in the upper half: a 32-bit shift, and a conversion by way of the magic number.
    let e = i64::from((t >> 32) as i32 >> 20);
    let e = f64::from_bits((MAGIC.to_bits() as i64).wrapping_add(e) as u64) - MAGIC;
    let m = f64::from_bits(x.to_bits().wrapping_sub(t & 0xfff0_0000_0000_0000));
    (m - 1.0, e - if tiny { 54.0 } else { 0.0 })
}

/// ln(1 + f) − f, for √½ ≤ 1 + f < √2. (The method of FreeBSD's msun.)
#[inline(always)]
fn log_poly<const F: bool>(f: f64) -> f64 {
    let s = f / (2.0 + f);
    let z = s * s;
    let r = poly::<F, 7>(
        z,
        [
            1.479_819_860_511_658_59e-1,
            1.531_383_769_920_937_33e-1,
            1.818_357_216_161_805_01e-1,
            2.222_219_843_214_978_4e-1,
            2.857_142_874_366_239_15e-1,
            3.999_999_999_940_941_91e-1,
            6.666_666_666_666_735_13e-1,
        ],
    );
    let h = 0.5 * f * f;
    s * (h + z * r) - h
}

/// The logarithm's value outside the positive finite numbers.
#[inline(always)]
fn log_special(x: f64, y: f64) -> f64 {
    let y = if x == f64::INFINITY { x } else { y };
    let y = if x == 0.0 { f64::NEG_INFINITY } else { y };
    if x >= 0.0 {
        y
    } else {
        f64::NAN
    }
}

#[inline(always)]
pub fn log<const F: bool>(x: f64) -> f64 {
    let (f, e) = log_parts(x);
    let y = fma::<F>(e, LN2_LO, log_poly::<F>(f)) + f;
    log_special(x, fma::<F>(e, LN2_HI, y))
}

#[inline(always)]
pub fn log2<const F: bool>(x: f64) -> f64 {
    let (f, e) = log_parts(x);
    log_special(x, fma::<F>(f, LOG2_E, log_poly::<F>(f) * LOG2_E) + e)
}

#[inline(always)]
pub fn log10<const F: bool>(x: f64) -> f64 {
    let (f, e) = log_parts(x);
    let y = fma::<F>(e, 3.694_239_077_158_930_79e-13, fma::<F>(f, LOG10_E, log_poly::<F>(f) * LOG10_E));
    log_special(x, fma::<F>(e, 3.010_299_956_636_117_71e-1, y))
}

#[inline(always)]
pub fn log1p<const F: bool>(x: f64) -> f64 {
    let u = 1.0 + x;
    // What rounding 1 + x lost, relative to it.
    let lost = if x.abs() > 1.0 { 1.0 - (u - x) } else { x - (u - 1.0) };
    let y = log::<F>(u) + if u > 0.0 && u < f64::INFINITY { lost / u } else { 0.0 };
    if x.abs() < 1e-17 {
        x
    } else {
        y
    }
}

/// (r, tail, quadrant) with x = n π/2 + r + tail and |r| ≤ π/4.
#[inline(always)]
fn reduce_pio2(x: f64) -> (f64, f64, i64) {
    let (n, i) = nearest(x * FRAC_2_PI);
    // Two parts of π/2 with 33 bits, whose products with n are exact, and the rest.
    let a = x - n * 1.570_796_326_734_125_61;
    let b = n * 6.077_100_506_303_965_98e-11;
    let c = a - b;
    let lost = (a - c) - b;
    let d = n * 2.022_266_248_795_950_63e-21 - lost;
    let r = c - d;
    (r, (c - r) - d, i)
}

#[inline(always)]
fn sin_quadrant<const F: bool>(r: f64, tail: f64, q: i64) -> f64 {
    let z = r * r;
    let s = poly::<F, 6>(
        z,
        [
            1.589_690_995_211_550_1e-10,
            -2.505_076_025_340_686_34e-8,
            2.755_731_370_707_006_77e-6,
            -1.984_126_982_985_794_93e-4,
            8.333_333_333_322_489_46e-3,
            -1.666_666_666_666_663_24e-1,
        ],
    );
    let c = poly::<F, 6>(
        z,
        [
            -1.135_964_755_778_819_48e-11,
            2.087_572_321_298_174_83e-9,
            -2.755_731_435_139_066_33e-7,
            2.480_158_728_947_672_94e-5,
            -1.388_888_888_887_410_96e-3,
            4.166_666_666_666_660_19e-2,
        ],
    );
    let sin = r + fma::<F>(r * z, s, tail);
    let h = 0.5 * z;
    let w = 1.0 - h;
    let cos = w + (((1.0 - w) - h) + (z * z * c - r * tail));
    let y = if q & 1 == 0 { sin } else { cos };
    f64::from_bits(y.to_bits() ^ (((q & 2) as u64) << 62))
}

#[inline(always)]
pub fn sin<const F: bool>(x: f64) -> f64 {
    let (r, tail, q) = reduce_pio2(x);
    // The reduction turns -0 into 0.
    if x == 0.0 {
        x
    } else {
        sin_quadrant::<F>(r, tail, q)
    }
}

#[inline(always)]
pub fn cos<const F: bool>(x: f64) -> f64 {
    let (r, tail, q) = reduce_pio2(x);
    sin_quadrant::<F>(r, tail, q.wrapping_add(1))
}

#[inline(always)]
pub fn tanh<const F: bool>(x: f64) -> f64 {
    let t = expm1::<F>(2.0 * clamp(x.abs(), 0.0, 20.0));
    (t / (t + 2.0)).copysign(x)
}

#[inline(always)]
pub fn sigmoid<const F: bool>(x: f64) -> f64 {
    1.0 / (1.0 + exp::<F>(-x))
}

/// log2 of a magnitude that is zero or in the range of normal numbers, to about 37 bits.
#[inline(always)]
fn log2_core<const F: bool>(a: f64) -> f64 {
    let t = a.to_bits().wrapping_sub(0x3fe6_a09e_667f_3bcd);
    let e = i64::from((t >> 32) as i32 >> 20);
    let e = f64::from_bits((MAGIC.to_bits() as i64).wrapping_add(e) as u64) - MAGIC;
    let m = f64::from_bits(a.to_bits().wrapping_sub(t & 0xfff0_0000_0000_0000));
    // 1 / (m + 1) in single precision, whose division takes a third of the time, and a step of Newton's method.
    let d = m + 1.0;
    let q = f64::from(1.0 / d as f32);
    let s = (m - 1.0) * (q * fma::<F>(-d, q, 2.0));
    // 2 / ln 2 times the series of artanh(s) / s, by least squares weighted anew until the error is even (2^-37).
    let p = poly::<F, 5>(
        s * s,
        [
            3.407_280_829_943_026_3e-1,
            4.116_728_233_748_675_5e-1,
            5.770_835_833_151_99e-1,
            9.617_966_733_499_27e-1,
            2.885_390_081_790_080_7,
        ],
    );
    let y = fma::<F>(s, p, e);
    let y = if a == 0.0 { f64::NEG_INFINITY } else { y };
    if a < f64::INFINITY {
        y
    } else {
        a
    }
}

/// 2^t to about 34 bits, for results in the range of `f32`; beyond it, something beyond it.
#[inline(always)]
fn exp2_core<const F: bool>(t: f64) -> f64 {
    let t = clamp(t, -160.0, 130.0);
    let (n, i) = nearest(t);
    // By least squares, as above.
    let p = poly::<F, 8>(
        t - n,
        [
            1.520_191_973_979_707_5e-5,
            1.546_929_110_358_242_4e-4,
            1.333_392_257_080_964_2e-3,
            9.618_027_253_786_77e-3,
            5.550_410_353_439_795e-2,
            2.402_265_119_815_656_7e-1,
            6.931_471_807_284_493e-1,
            9.999_999_999_616_824e-1,
        ],
    );
    p * pow2(i)
}

/// x^y to about 30 bits.
#[inline(always)]
pub(super) fn pow_core<const F: bool>(x: f32, y: f32) -> f64 {
    let a = x.abs();
    let p = exp2_core::<F>(f64::from(y) * log2_core::<F>(f64::from(a)));
    // Parity of y. From 2^24 on all numbers are even, as the bound is.
    let c = clamp(y.into(), -1_073_741_824.0, 1_073_741_824.0);
    let (n, i) = nearest(c);
    let whole = n == c;
    let p = if x.is_sign_negative() && whole && i & 1 == 1 { -p } else { p };
    let p = if x < 0.0 && x != f32::NEG_INFINITY && !whole { f64::NAN } else { p };
    if x == 1.0 || y == 0.0 || (a == 1.0 && y.abs() == f32::INFINITY) {
        1.0
    } else {
        p
    }
}

#[inline(always)]
pub fn pow<const F: bool>(x: f64, y: f64) -> f64 {
    x.powf(y)
}

#[inline(always)]
pub fn tan<const F: bool>(x: f64) -> f64 {
    let (r, tail, q) = reduce_pio2(x);
    let (s, c) = (sin_quadrant::<F>(r, tail, q), sin_quadrant::<F>(r, tail, q.wrapping_add(1)));
    if x == 0.0 {
        x
    } else {
        s / c
    }
}

/// (arcsine of a) / a - 1, divided by z = a², for z ≤ ¼, by Chebyshev interpolation (2e-17).
#[inline(always)]
fn asin_poly<const F: bool>(z: f64) -> f64 {
    poly::<F, 13>(
        z,
        [
            0.028_778_442_612_593_04,
            -0.014_881_409_392_818_066,
            0.017_419_357_964_884_856,
            0.005_450_878_187_720_55,
            0.010_324_318_288_744_113,
            0.011_478_952_690_257_387,
            0.013_971_235_301_124_539,
            0.017_352_391_265_909_227,
            0.022_372_173_002_005_596,
            0.030_381_944_137_085_216,
            0.044_642_857_146_373_38,
            0.074_999_999_999_984_25,
            0.166_666_666_666_666_69,
        ],
    )
}

/// π/2 less its float.
const PI_2_LO: f64 = 6.123_233_995_736_766e-17;

#[inline(always)]
pub fn asin<const F: bool>(x: f64) -> f64 {
    let a = x.abs();
    let big = a > 0.5;
    let z = if big { 0.5 * (1.0 - a) } else { a * a };
    let s = if big { z.sqrt() } else { a };
    let p = s * z * asin_poly::<F>(z);
    // π/2 - 2s is exact where the result is small.
    let y = if big { (std::f64::consts::FRAC_PI_2 - 2.0 * s) - (2.0 * p - PI_2_LO) } else { s + p };
    y.copysign(x)
}

#[inline(always)]
pub fn acos<const F: bool>(x: f64) -> f64 {
    let a = x.abs();
    let big = a > 0.5;
    let z = if big { 0.5 * (1.0 - a) } else { a * a };
    let s = if big { z.sqrt() } else { a };
    let p = s * z * asin_poly::<F>(z);
    let folded = if x < 0.0 { std::f64::consts::PI - 2.0 * (s + (p - PI_2_LO)) } else { 2.0 * (s + p) };
    if big {
        folded
    } else {
        std::f64::consts::FRAC_PI_2 - ((s + p).copysign(x) - PI_2_LO)
    }
}

/// The arctangent of t ≤ 1, or what is left of π/2 for its inverse. What is above √2 - 1 is moved below by π/4.
#[inline(always)]
fn angle<const F: bool>(mn: f64, mx: f64, inverse: bool) -> f64 {
    const PI_4_LO: f64 = 3.061_616_997_868_383e-17;
    let big = mn > mx * 0.414_213_562_373_095_05;
    let t = if big { mn - mx } else { mn } / if big { mn + mx } else { mx };
    let z = t * t;
    let p = poly::<F, 12>(
        z,
        [
            1.628_437_505_004_339_3e-2,
            -3.456_933_305_632_51e-2,
            4.551_544_734_022_161_5e-2,
            -5.230_443_640_686_948e-2,
            5.878_927_554_473_807e-2,
            -6.666_424_760_200_52e-2,
            7.692_296_368_042_296e-2,
            -9.090_908_753_259_112e-2,
            1.111_111_110_515_058_8e-1,
            -1.428_571_428_565_977_9e-1,
            1.999_999_999_999_980_4e-1,
            -3.333_333_333_333_333e-1,
        ],
    );
    let rest = t * z * p;
    let quarter = if big { std::f64::consts::FRAC_PI_4 } else { 0.0 };
    let rest = rest + if big { PI_4_LO } else { 0.0 };
    if inverse {
        (std::f64::consts::FRAC_PI_2 - quarter) - (t + (rest - 2.0 * PI_4_LO))
    } else {
        quarter + (t + rest)
    }
}

#[inline(always)]
pub fn atan<const F: bool>(x: f64) -> f64 {
    let a = x.abs();
    let swap = a > 1.0;
    // For infinity the quotient is 0, which is right.
    angle::<F>(if swap { 1.0 / a } else { a }, 1.0, swap).copysign(x)
}

#[inline(always)]
pub fn atan2<const F: bool>(y: f64, x: f64) -> f64 {
    let (a, b) = (y.abs(), x.abs());
    let swap = a > b;
    let (mn, mx) = if swap { (b, a) } else { (a, b) };
    // Two infinities count as equal, two zeros as angle 0; sums and products neither overflow nor lose digits.
    let f = if mx > 1e300 { 0.25 } else { 1.0 };
    let f = if mx < 1e-290 { 1.329_227_995_784_916e36 } else { f };
    let (mn, mx) = if mn == f64::INFINITY { (1.0, 1.0) } else { (mn * f, mx * f) };
    let t = angle::<F>(mn, if mx == 0.0 { 1.0 } else { mx }, swap);
    let t = if x.is_sign_negative() { std::f64::consts::PI - (t - 1.224_646_799_147_353_2e-16) } else { t };
    if x.is_nan() || y.is_nan() {
        f64::NAN
    } else {
        t.copysign(y)
    }
}

/// Half of e^x, which overflows later than e^x, for x ≥ 0.
#[inline(always)]
fn half_exp<const F: bool>(x: f64) -> f64 {
    let (r, n) = reduce_ln2::<F>(clamp(x, 0.0, 720.0));
    scale(1.0 + expm1_poly::<F>(r), n.wrapping_sub(1))
}

#[inline(always)]
pub fn sinh<const F: bool>(x: f64) -> f64 {
    let a = x.abs();
    let t = expm1::<F>(a);
    let h = half_exp::<F>(a);
    let y = if a < 1.0 { 0.5 * (t + t / (t + 1.0)) } else { h - 0.25 / h };
    y.copysign(x)
}

#[inline(always)]
pub fn cosh<const F: bool>(x: f64) -> f64 {
    let h = half_exp::<F>(x.abs());
    h + 0.25 / h
}

#[inline(always)]
pub fn asinh<const F: bool>(x: f64) -> f64 {
    libm::asinh(x)
}

#[inline(always)]
pub fn acosh<const F: bool>(x: f64) -> f64 {
    // Below 1 it gives numbers.
    if x < 1.0 {
        f64::NAN
    } else {
        libm::acosh(x)
    }
}

#[inline(always)]
pub fn atanh<const F: bool>(x: f64) -> f64 {
    libm::atanh(x)
}
