//! The error function of one `f64` and its relatives, without branches, for the loops in `dispatch`.
//!
//! Depends on `math64`. Invariant: that of `math64`.

// Coefficients are given as fitted.
#![allow(clippy::excessive_precision)]

use super::math64::{clamp, exp, fma, log, poly};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

/// erf x for |x| < 0.85, by Chebyshev interpolation of `erf(x) / x - 1` in x² (1e-19).
#[inline(always)]
fn erf_small<const F: bool>(x: f64) -> f64 {
    let p = poly::<F, 12>(
        x * x,
        [
            -8.837_207_342_835_496e-10,
            1.418_958_429_413_536_9e-8,
            -1.630_049_599_806_511_8e-7,
            1.645_767_649_621_406_5e-6,
            -1.492_545_009_091_294_2e-5,
            0.000_120_553_269_320_546_55,
            -0.000_854_832_690_288_647_1,
            0.005_223_977_623_916_789,
            -0.026_866_170_645_017_26,
            0.112_837_916_709_546_85,
            -0.376_126_389_031_837_5,
            0.128_379_167_095_512_6,
        ],
    );
    fma::<F>(x, p, x)
}

/// e^(-a²)
#[inline(always)]
fn gaussian<const F: bool>(a: f64) -> f64 {
    let s = a * a;
    let rest = if F {
        a.mul_add(a, -s)
    } else {
        // Half of the digits, whose square is exact, and the others.
        let high = f64::from_bits(a.to_bits() & !0x7ff_ffff);
        let low = a - high;
        (high * high - s) + 2.0 * high * low + low * low
    };
    let e = exp::<F>(-s);
    e - e * rest
}

/// 1 - erf a for a from 0.49 on, given e^(-a²): that times `P((a - 3) / (a + 3)) / (1 + 2a)` (Shepherd and Laframboise, "Chebyshev
/// approximation of (1 + 2x) exp(x²) erfc x", 1981), by Chebyshev interpolation (2e-18).
#[inline(always)]
fn erfc_tail<const F: bool>(a: f64, gaussian: f64) -> f64 {
    let p = poly::<F, 23>(
        (a - 3.0) / (a + 3.0),
        [
            -4.556_832_163_965_276e-9,
            -1.045_178_561_051_203e-8,
            3.485_122_851_404_862_4e-8,
            9.822_326_539_616_366e-8,
            -1.350_372_353_676_037_5e-7,
            -6.140_087_527_169_763e-7,
            3.531_608_137_627_798e-7,
            3.471_219_248_574_543e-6,
            -7.302_461_529_408_182e-7,
            -2.010_022_159_923_499_5e-5,
            4.949_221_993_460_684e-6,
            0.000_125_099_289_726_467_58,
            -0.000_105_159_768_770_108_68,
            -0.000_779_832_265_692_358_2,
            0.001_888_690_357_342_771_4,
            0.002_529_391_815_802_921,
            -0.023_770_514_918_597_12,
            0.068_308_027_343_971_07,
            -0.119_273_663_415_309_73,
            0.129_645_158_702_761_41,
            -0.047_562_294_353_450_72,
            -0.135_621_106_124_581_17,
            1.253_008_058_269_729_6,
        ],
    );
    gaussian * (p / fma::<F>(2.0, a, 1.0))
}

#[inline(always)]
pub fn erf<const F: bool>(x: f64) -> f64 {
    // From 6 on the result is 1.
    let a = clamp(x.abs(), 0.5, 6.5);
    let large = (1.0 - erfc_tail::<F>(a, gaussian::<F>(a))).copysign(x);
    if x.abs() < 0.85 {
        erf_small::<F>(x)
    } else if x.is_nan() {
        x
    } else {
        large
    }
}

/// 1 - erf x, with its digits also where it is small.
#[inline(always)]
pub fn erfc<const F: bool>(x: f64) -> f64 {
    // Beyond 27.3 the result is 0.
    let a = clamp(x.abs(), 0.49, 27.5);
    let tail = erfc_tail::<F>(a, gaussian::<F>(a));
    if x.abs() < 0.5 {
        1.0 - erf_small::<F>(x)
    } else if x < 0.0 {
        2.0 - tail
    } else if x.is_nan() {
        x
    } else {
        tail
    }
}

#[inline(always)]
pub fn gelu<const F: bool>(x: f64) -> f64 {
    0.5 * x * (1.0 + erf::<F>(x * FRAC_1_SQRT_2))
}

/// The inverse of the error function: polynomials in the logarithm, or its root, of 1 - x² (after Giles, "Approximating the
/// erfinv function"; 1e-7), then two steps of Halley's method, which is cubic.
#[inline(always)]
pub fn erfinv<const F: bool>(x: f64) -> f64 {
    let a = x.abs();
    let w = -log::<F>((1.0 - a) * (1.0 + a));
    let central = a * poly::<F, 10>(
        w - 2.5,
        [
            -8.791_056_77e-9,
            2.323_264_43e-8,
            4.661_706_61e-7,
            -3.462_704_85e-6,
            -4.963_347_69e-6,
            0.000_218_344_445,
            -0.001_252_741_9,
            -0.004_177_386_87,
            0.246_640_28,
            1.501_409_384_452_757_8,
        ],
    );
    let tail = a * poly::<F, 10>(
        w.sqrt() - 4.0,
        [
            6.152_553_242_79e-7,
            -1.605_922_148_38e-6,
            -5.143_327_602_24e-6,
            2.850_543_749_41e-5,
            -8.465_041_856_13e-5,
            0.000_285_907_529_958,
            -0.000_853_456_798_918,
            0.001_257_932_960_15,
            1.009_494_858_82,
            3.839_783_259_33,
        ],
    );
    let mut y = if w < 5.0 { central } else { tail };
    // The start is off by a thousandth where both forms meet, so that one step does not do.
    for _ in 0..2 {
        let density = gaussian::<F>(y);
        // erfc keeps its digits where erf is near 1.
        let tail = erfc_tail::<F>(clamp(y, 0.49, 27.5), density);
        let miss = if a > 0.55 { (1.0 - a) - tail } else { erf_small::<F>(y) - a };
        let step = miss / (FRAC_2_SQRT_PI * density);
        y -= step / (1.0 + y * step);
    }
    let y = if a == 1.0 { f64::INFINITY } else { y };
    if a <= 1.0 {
        y.copysign(x)
    } else {
        f64::NAN
    }
}
