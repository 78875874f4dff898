//! Bessel functions of orders 0 and 1 and the normal quantile, from MLX's arithmetic, in float32.
//!
//! Depends on `special`. The fits are those of Abramowitz and Stegun, 9.4.1 to 9.4.6 and 9.8.5 to 9.8.8: absolute errors of 5e-8
//! for `J` and `Y`, relative ones of 2e-7 for `K`.

use super::elementwise::erfc;
use super::kernel_error::Made;
use super::special::{bessel, choose, number, poly};
use mlx_ffi::{ops, Array};
use std::f64::consts::{FRAC_2_PI, FRAC_PI_4, LN_2, SQRT_2, TAU};

/// Modulus and phase of `J + iY` from 3 on, in powers of `3 / x`, highest first; the phase without `x`.
const FAR: [[[f64; 7]; 2]; 2] = [
    [
        [0.00014476, -0.00072805, 0.00137237, -0.00009512, -0.00552740, -0.00000077, 0.79788456],
        [0.00013558, -0.00029333, -0.00054125, 0.00262573, -0.00003954, -0.04166397, -FRAC_PI_4],
    ],
    [
        [-0.00020033, 0.00113653, -0.00249511, 0.00017105, 0.01659667, 0.00000156, 0.79788456],
        [-0.00029166, 0.00079824, 0.00074348, -0.00637879, 0.00005650, 0.12499612, -2.35619449],
    ],
];

/// Both solutions for `a = |x|`, which must be at least 3.
fn far(n: u8, a: &Array, second: bool) -> Made<Array> {
    let t = ops::divide(&number(3.0)?, a)?;
    let [modulus, phase] = FAR[usize::from(n)];
    let angle = ops::add(a, &poly(&t, &phase)?)?;
    let wave = if second { ops::sin(&angle)? } else { ops::cos(&angle)? };
    Ok(ops::multiply(&ops::multiply(&poly(&t, &modulus)?, &wave)?, &ops::rsqrt(a)?)?)
}

/// `J_n(a)` for `0 ≤ a ≤ 3`.
fn near(n: u8, a: &Array) -> Made<Array> {
    const SERIES: [[f64; 7]; 2] = [
        [0.0002100, -0.0039444, 0.0444479, -0.3163866, 1.2656208, -2.2499997, 1.0],
        [0.00001109, -0.00031761, 0.00443319, -0.03954289, 0.21093573, -0.56249985, 0.5],
    ];
    let t = ops::square(&ops::divide(a, &number(3.0)?)?)?;
    let y = poly(&t, &SERIES[usize::from(n)])?;
    Ok(if n == 0 { y } else { ops::multiply(&y, a)? })
}

/// The Bessel function of the first kind, `J_n`.
pub(super) fn first(n: u8, x: &Array) -> Made<Array> {
    let (a, three) = (ops::abs(x)?, number(3.0)?);
    let low = near(n, &ops::minimum(&a, &three)?)?;
    let y = choose(&ops::less(&a, &three)?, &low, &far(n, &ops::maximum(&a, &three)?, false)?)?;
    // At infinity the wave is NaN, as in PyTorch.
    Ok(if n == 0 { y } else { ops::multiply(&y, &ops::sign(x)?)? })
}

/// What is outside of `0 < x`: `pole` at 0, NaN below.
fn from_zero(x: &Array, y: &Array, pole: f64) -> Made<Array> {
    let zero = number(0.0)?;
    let y = choose(&ops::equal(x, &zero)?, &number(pole)?, y)?;
    choose(&ops::less(x, &zero)?, &number(f64::NAN)?, &y)
}

/// `log(a / 2)`, of the smallest numbers too.
fn log_half(a: &Array) -> Made<Array> {
    Ok(ops::subtract(&ops::log(a)?, &number(LN_2)?)?)
}

/// The Bessel function of the second kind, `Y_n`.
pub(super) fn second(n: u8, x: &Array) -> Made<Array> {
    const REST: [[f64; 7]; 2] = [
        [-0.00024846, 0.00427916, -0.04261214, 0.25300117, -0.74350384, 0.60559366, 0.36746691],
        [0.0027873, -0.0400976, 0.3123951, -1.3164827, 2.1682709, 0.2212091, -FRAC_2_PI],
    ];
    let three = number(3.0)?;
    let a = ops::minimum(x, &three)?;
    let log = ops::multiply(&log_half(&a)?, &number(FRAC_2_PI)?)?;
    let rest = poly(&ops::square(&ops::divide(&a, &three)?)?, &REST[usize::from(n)])?;
    let rest = if n == 0 { rest } else { ops::divide(&rest, &a)? };
    let low = ops::add(&ops::multiply(&log, &near(n, &a)?)?, &rest)?;
    let y = choose(&ops::less(x, &three)?, &low, &far(n, &ops::maximum(x, &three)?, true)?)?;
    from_zero(x, &y, f64::NEG_INFINITY)
}

/// The modified Bessel function of the second kind, `K_n`; `scaled` by `e^x`.
pub(super) fn modified(n: u8, x: &Array, scaled: bool) -> Made<Array> {
    const NEAR: [[f64; 7]; 2] = [
        [0.00000740, 0.00010750, 0.00262698, 0.03488590, 0.23069756, 0.42278420, -0.57721566],
        [-0.00004686, -0.00110404, -0.01919402, -0.18156897, -0.67278579, 0.15443144, 1.0],
    ];
    const FAR: [[f64; 7]; 2] = [
        [0.00053208, -0.00251540, 0.00587872, -0.01062446, 0.02189568, -0.07832358, 1.25331414],
        [-0.00068245, 0.00325614, -0.00780353, 0.01504268, -0.03655620, 0.23498619, 1.25331414],
    ];
    let (two, order) = (number(2.0)?, usize::from(n));
    let a = ops::minimum(x, &two)?;
    let half = ops::divide(&a, &two)?;
    let log = ops::multiply(&log_half(&a)?, &bessel(n, &a)?)?;
    let rest = poly(&ops::square(&half)?, &NEAR[order])?;
    let low = match n {
        0 => ops::subtract(&rest, &log)?,
        _ => ops::add(&log, &ops::divide(&rest, &a)?)?,
    };
    let b = ops::maximum(x, &two)?;
    let high = ops::multiply(&poly(&ops::divide(&two, &b)?, &FAR[order])?, &ops::rsqrt(&b)?)?;
    let (low, high) = match scaled {
        true => (ops::multiply(&low, &ops::exp(&a)?)?, high),
        false => (low, ops::multiply(&high, &ops::exp(&ops::negative(&b)?)?)?),
    };
    let y = choose(&ops::less_equal(x, &two)?, &low, &high)?;
    from_zero(x, &choose(&ops::isinf(x)?, &number(0.0)?, &y)?, f64::INFINITY)
}

/// `-x log x`, continued by 0 at 0 and by -inf below.
pub(super) fn entropy(x: &Array) -> Made<Array> {
    let zero = number(0.0)?;
    let y = ops::multiply(&ops::negative(x)?, &ops::log(x)?)?;
    let y = choose(&ops::equal(x, &zero)?, &zero, &y)?;
    choose(&ops::less(x, &zero)?, &number(f64::NEG_INFINITY)?, &y)
}

/// The quantile of the normal distribution: in the middle by `erfinv`, in the tails by Newton's steps on the logarithm of the
/// distribution, from the guess of Abramowitz and Stegun, 26.2.23.
pub(super) fn normal_quantile(p: &Array) -> Made<Array> {
    let (one, half) = (number(1.0)?, number(0.5)?);
    let middle =
        ops::multiply(&ops::erfinv(&ops::multiply(&ops::subtract(p, &half)?, &number(2.0)?)?)?, &number(SQRT_2)?)?;
    let low = ops::less(p, &half)?;
    let q = choose(&low, p, &ops::subtract(&one, p)?)?;
    let log = ops::log(&q)?;
    let t = ops::sqrt(&ops::multiply(&log, &number(-2.0)?)?)?;
    let over = poly(&t, &[0.010328, 0.802853, 2.515517])?;
    let under = poly(&t, &[0.001308, 0.189269, 1.432788, 1.0])?;
    let mut x = ops::subtract(&t, &ops::divide(&over, &under)?)?;
    for _ in 0..2 {
        // Mills' ratio: the tail beyond `x`, in units of the density there.
        let tail = ops::multiply(&erfc(&ops::multiply(&x, &number(SQRT_2 / 2.0)?)?, true)?, &half)?;
        let ratio = ops::multiply(&tail, &number(TAU.sqrt())?)?;
        let square = ops::multiply(&ops::square(&x)?, &half)?;
        let off = ops::subtract(&ops::subtract(&ops::log(&tail)?, &square)?, &log)?;
        x = ops::add(&x, &ops::multiply(&off, &ratio)?)?;
    }
    let x = choose(&low, &ops::negative(&x)?, &x)?;
    let inner = ops::less(&ops::abs(&ops::subtract(p, &half)?)?, &number(0.4)?)?;
    let x = choose(&inner, &middle, &x)?;
    let x = choose(&ops::equal(p, &number(0.0)?)?, &number(f64::NEG_INFINITY)?, &x)?;
    let x = choose(&ops::equal(p, &one)?, &number(f64::INFINITY)?, &x)?;
    let outside = ops::logical_or(&ops::less(p, &number(0.0)?)?, &ops::greater(p, &one)?)?;
    choose(&outside, &number(f64::NAN)?, &x)
}
