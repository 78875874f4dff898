//! Bessel functions of orders 0 and 1, and the normal quantile, of one number.
//!
//! `J` and `Y` are libm's. Invariant: a few roundings of float64 in relative error, away from zeros.

use super::chebyshev::Expansion;
use std::sync::LazyLock;

/// Euler's constant.
pub(super) const GAMMA: f64 = 0.577_215_664_901_532_9;

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

/// `e^x K_n(x)` for `x ≥ 2`: the trapezoidal rule over `∫ e^(-x (cosh t - 1)) cosh(nt) dt`, whose error falls as `e^(-π² / h)`
/// with the step `h`, for large `x` as `e^(-2π² / (x h²))`.
fn integral(n: u8, x: f64) -> f64 {
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

/// `√x e^x K_n(x)` for `x ≥ 2`, of `1 / x`.
pub(super) static FAR: LazyLock<[Expansion<26>; 2]> =
    LazyLock::new(|| [0, 1].map(|n| Expansion::of(0.5, |inverse| integral(n, 1.0 / inverse) / inverse.sqrt())));

pub(super) const TERMS: usize = 14;

/// Of DLMF 10.31.1 and 10.31.2, the factors of `(x² / 4)^k`: `1 / (k! (k + n)!)`, and that times the mean of the harmonic numbers
/// of `k` and `k + n`.
pub(super) const NEAR: [[[f64; TERMS]; 2]; 2] = {
    let mut out = [[[0.0; TERMS]; 2]; 2];
    let mut n = 0;
    while n < 2 {
        let (mut k, mut factor) = (0, 1.0);
        let mut harmonic = [0.0, if n == 0 { 0.0 } else { 1.0 }];
        while k < TERMS {
            out[n][0][k] = factor;
            out[n][1][k] = factor * (harmonic[0] + harmonic[1]) / 2.0;
            k += 1;
            let next = [k as f64, (k + n) as f64];
            factor /= next[0] * next[1];
            harmonic = [harmonic[0] + 1.0 / next[0], harmonic[1] + 1.0 / next[1]];
        }
        n += 1;
    }
    out
};

/// `e^x K_n(x)` for `x > 0`: the power series, or beyond 2 Chebyshev polynomials of `1 / x`.
fn modified(n: u8, x: f64) -> f64 {
    match x {
        x if x.is_nan() || x < 0.0 => return f64::NAN,
        0.0 => return f64::INFINITY,
        f64::INFINITY => return 0.0,
        x if x >= 2.0 => return FAR[usize::from(n)].at(1.0 / x) / x.sqrt(),
        _ => {}
    }
    let quarter = x * x / 4.0;
    let [plain, harmonic] =
        NEAR[usize::from(n)].map(|factors| factors.iter().rev().fold(0.0, |sum, c| sum * quarter + c));
    let rest = harmonic - plain * ((x / 2.0).ln() + GAMMA);
    x.exp() * if n == 0 { rest } else { 1.0 / x - x / 2.0 * rest }
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

/// The quantile of the normal distribution: the rational functions of Wichura's algorithm AS 241 (1988), whose error is a rounding
/// of float64 or two.
pub fn normal_quantile(p: f64) -> f64 {
    const MIDDLE: [[f64; 8]; 2] = [
        [
            3.387_132_872_796_366_5,
            133.141_667_891_784_38,
            1_971.590_950_306_551_3,
            13_731.693_765_509_46,
            45_921.953_931_549_87,
            67_265.770_927_008_7,
            33_430.575_583_588_13,
            2_509.080_928_730_122_7,
        ],
        [
            1.0,
            42.313_330_701_600_91,
            687.187_007_492_057_9,
            5_394.196_021_424_751,
            21_213.794_301_586_597,
            39_307.895_800_092_71,
            28_729.085_735_721_943,
            5_226.495_278_852_854,
        ],
    ];
    const TAIL: [[f64; 8]; 2] = [
        [
            1.423_437_110_749_683_5,
            4.630_337_846_156_546,
            5.769_497_221_460_691,
            3.647_848_324_763_204_5,
            1.270_458_252_452_368_4,
            0.241_780_725_177_450_6,
            0.022_723_844_989_269_184,
            7.745_450_142_783_414e-4,
        ],
        [
            1.0,
            2.053_191_626_637_759,
            1.676_384_830_183_803_8,
            0.689_767_334_985_1,
            0.148_103_976_427_480_08,
            0.015_198_666_563_616_457,
            5.475_938_084_995_345e-4,
            1.050_750_071_644_416_9e-9,
        ],
    ];
    const FAR_TAIL: [[f64; 8]; 2] = [
        [
            6.657_904_643_501_103,
            5.463_784_911_164_114,
            1.784_826_539_917_291_3,
            0.296_560_571_828_504_87,
            0.026_532_189_526_576_124,
            0.001_242_660_947_388_078_4,
            2.711_555_568_743_487_6e-5,
            2.010_334_399_292_288_1e-7,
        ],
        [
            1.0,
            0.599_832_206_555_888,
            0.136_929_880_922_735_8,
            0.014_875_361_290_850_615,
            7.868_691_311_456_133e-4,
            1.846_318_317_510_054_8e-5,
            1.421_511_758_316_446e-7,
            2.044_263_103_389_939_8e-15,
        ],
    ];
    fn rational(factors: &[[f64; 8]; 2], r: f64) -> f64 {
        let [over, under] = factors.each_ref().map(|f| f.iter().rev().fold(0.0, |sum, c| sum * r + c));
        over / under
    }
    match p {
        0.0 => return f64::NEG_INFINITY,
        1.0 => return f64::INFINITY,
        p if !(0.0..=1.0).contains(&p) => return f64::NAN,
        _ => {}
    }
    let q = p - 0.5;
    if q.abs() <= 0.425 {
        return q * rational(&MIDDLE, 0.180_625 - q * q);
    }
    let r = (-p.min(1.0 - p).ln()).sqrt();
    let size = if r <= 5.0 { rational(&TAIL, r - 1.6) } else { rational(&FAR_TAIL, r - 5.0) };
    size.copysign(q)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(got: f64, want: f64) {
        assert!((got - want).abs() <= 4e-15 * want.abs(), "{got} for {want}");
    }

    #[test]
    fn known_values() {
        // By mpmath, with 40 digits.
        for (x, zero, one) in [
            (1e-300, 690.891_459_413_872_1, 1.0e+300),
            (1e-5, 11.628_973_270_095_617, 100_000.999_944_355_12),
            (0.5, 1.524_109_385_773_909_4, 2.731_009_708_211_786),
            (1.9, 0.861_450_616_751_755_7, 1.067_470_929_814_57),
            (2.0, 0.841_568_215_070_771_4, 1.033_476_847_068_688_6),
            (2.1, 0.823_017_152_531_662_1, 1.002_368_052_740_579_2),
            (10.0, 0.391_631_934_436_598_66, 0.410_766_570_595_788_75),
            (700.0, 0.047_362_369_454_613_57, 0.047_396_187_653_494_54),
            (1e6, 0.001_253_313_980_651_321_3, 0.001_253_314_607_308_154_9),
        ] {
            near(k0e(x), zero);
            near(k1e(x), one);
        }
        for (p, x) in [
            (1e-300, -37.047_096_299_361_2),
            (1e-12, -7.034_483_825_301_132),
            (0.001, -3.090_232_306_167_813_6),
            (0.07, -1.475_791_028_179_170_6),
            (0.3, -0.524_400_512_708_040_8),
            (0.5, 0.0),
            (0.93, 1.475_791_028_179_171),
            (0.999, 3.090_232_306_167_813),
        ] {
            near(normal_quantile(p), x);
        }
    }

    #[test]
    fn both_ways_meet() {
        for n in [0, 1] {
            let (below, at) = (modified(n, 2.0 - 1e-15), modified(n, 2.0));
            assert!((below - at).abs() < 5e-15 * at, "{below} and {at}");
        }
    }
}
