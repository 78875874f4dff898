//! The error function of one `f32` and its relatives, without branches, for the loops in `dispatch`.
//!
//! Depends on `math32`. Invariant: that of `math32`.

// Coefficients are given as published, or as fitted.
#![allow(clippy::excessive_precision)]

use super::math32::{clamp, exp_poly, fma, log, nearest, poly, pow2, reduce_ln2, LN2_HI, LN2_LO};

/// erf x for |x| < 0.93, given x².
#[inline(always)]
fn erf_small<const F: bool>(x: f32, s: f32) -> f32 {
    fma::<F>(
        poly::<F, 6>(
            s,
            [-5.967_617e-4, 4.991_194_2e-3, -2.676_813_5e-2, 1.128_199_25e-1, -3.761_253_4e-1, 1.283_791_7e-1],
        ),
        x,
        x,
    )
}

#[inline(always)]
pub fn erf<const F: bool>(x: f32) -> f32 {
    let t = x.abs();
    let s = x * x;
    let small = erf_small::<F>(x, s);
    let c = clamp(t, 0.0, 4.2);
    let p = poly::<F, 6>(
        c,
        [-1.728_534_7e-5, 3.831_971_3e-4, -3.883_964_4e-3, 2.425_462_2e-2, -1.067_778_8e-1, -6.348_466_9e-1],
    );
    // The exponent is between -18 and 0: its power of 2 is a normal number.
    let (r, n) = reduce_ln2::<F>(fma::<F>(fma::<F>(p, c, -1.287_175_1e-1), c, -c));
    let large = 1.0 - (fma::<F>(r * r, exp_poly::<F>(r), r) + 1.0) * pow2(n);
    if t > 0.927_734_4 {
        large.copysign(x)
    } else {
        small
    }
}

/// x · ½ (1 + erf(x / √2)), where what is added to ½ is x P(x²) / Q(x²), by least squares weighted anew until the error is even
/// (1e-8). For `erf` itself such a ratio is not good enough: near 1 it is 5 ulp off.
#[inline(always)]
pub fn gelu<const F: bool>(x: f32) -> f32 {
    let s = x * x;
    let p =
        poly::<F, 6>(s, [2.158_030_4e-8, 6.374_148_6e-6, 1.793_916_6e-4, 4.740_814e-3, 3.494_094_7e-2, 3.989_422e-1]);
    let q = poly::<F, 6>(s, [1.164_959_9e-6, 7.676_705e-5, 1.944_540_1e-3, 2.926_056_3e-2, 2.542_494_2e-1, 1.0]);
    // Beyond, the factor of x is nearer to 0 or 1 than the error.
    let h = if x.abs() > 5.5 { 0.5f32.copysign(x) } else { x * p / q };
    x * (h + 0.5)
}

#[inline(always)]
pub fn erfinv<const F: bool>(x: f32) -> f32 {
    // The form of Giles, "Approximating the erfinv function"; least squares weighted anew until the error is even (6e-9 and 2e-9).
    let w = -log::<F>(if x.abs() < 0.5 { fma::<F>(-x, x, 1.0) } else { (1.0 - x) * (1.0 + x) });
    let (a, b) = (w - 2.5, w.sqrt() - 3.0);
    // Less √π/2, whose product with x is added last.
    let central = poly::<F, 10>(
        a,
        [
            -8.791_057e-9,
            2.323_264_4e-8,
            4.661_706_6e-7,
            -3.462_704_9e-6,
            -4.963_347_7e-6,
            2.183_444_5e-4,
            -1.252_741_9e-3,
            -4.177_387e-3,
            2.466_402_8e-1,
            6.151_824_6e-1,
        ],
    );
    let tail = poly::<F, 11>(
        b,
        [
            -3.055_298e-5,
            1.614_156_6e-4,
            -2.756_818_7e-4,
            -1.212_345_7e-4,
            1.473_916_2e-3,
            -3.566_571_3e-3,
            5.688_041e-3,
            -7.642_839_6e-3,
            9.445_268e-3,
            1.001_675_3,
            2.832_976_8,
        ],
    );
    let central = fma::<F>(x, 0.886_226_9, x * (central - 2.662_32e-8));
    let y = if w < 5.0 { central } else { tail * x };
    if x.abs() == 1.0 {
        f32::INFINITY.copysign(x)
    } else {
        y
    }
}

/// 1 - erf x, with its digits also where it is small: `e^(-x²) P((x - 2) / (x + 2)) / (1 + 2x)` (Shepherd and Laframboise, "Chebyshev
/// approximation of (1 + 2x) exp(x²) erfc x", 1981), `P - 1` by least squares weighted anew until the error is even (1e-8).
#[inline(always)]
pub fn erfc<const F: bool>(x: f32) -> f32 {
    // Beyond 10.06 the result is 0.
    let a = clamp(x.abs(), 0.0, 10.2);
    let under = fma::<F>(2.0, a, 1.0);
    let q = (a - 2.0) / (a + 2.0);
    let p = poly::<F, 10>(
        q,
        [
            -3.994_488e-4,
            -1.228_000_7e-3,
            1.313_309_9e-3,
            8.630_096e-3,
            -8.060_143e-3,
            -5.420_387e-2,
            1.640_554_2e-1,
            -1.660_314_6e-1,
            -9.276_398e-2,
            2.769_784e-1,
        ],
    );
    // The quotient, and what rounding left of it.
    let over = 1.0 + p;
    let inverse = 1.0 / under;
    let y = over * inverse;
    let left = fma::<F>(-y, under, over) + ((p - (over - 1.0)) - y * fma::<F>(2.0, a, 1.0 - under));
    // -a² in two parts.
    let s = a * a;
    let (n, i) = nearest(-s * std::f32::consts::LOG2_E);
    let r = fma::<F>(n, -LN2_LO, fma::<F>(n, -LN2_HI, -s)) - if F { fma::<F>(a, a, -s) } else { square_rest(a, s) };
    let e = fma::<F>(r * r, exp_poly::<F>(r), r);
    let y = y + fma::<F>(left, inverse, y * e);
    // 2^n in two steps, since the result may be subnormal.
    let half = i >> 1;
    let y = y * pow2(half) * pow2(i.wrapping_sub(half));
    if a < 0.47 {
        1.0 - erf_small::<F>(x, s)
    } else if x < 0.0 {
        2.0 - y
    } else {
        y
    }
}

/// a² - s, where s is a² rounded.
#[inline(always)]
fn square_rest(a: f32, s: f32) -> f32 {
    (f64::from(a) * f64::from(a) - f64::from(s)) as f32
}
