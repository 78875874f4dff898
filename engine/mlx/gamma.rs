//! The incomplete gamma functions, from MLX's arithmetic, in float32.
//!
//! Sums run along a dimension of their own, so that there are few operations. Depends on `special` and on the quadrature
//! rules of `cpu`. The number of operations does not depend on the elements.

use super::kernel_error::Made;
use super::special::{choose, lgamma, line, number, poly};
use lucid_cpu::quadrature::{laguerre, legendre, Rule};
use mlx_ffi::{ops, Array, Dtype};

fn lines(rule: &Rule) -> Made<(Array, Array)> {
    Ok((line(&rule.nodes)?, line(&rule.weights)?))
}

/// From here on the integrand is close to a Gaussian.
const LARGE: f64 = 16.0;
/// Enough terms of the series for all that is below `LARGE`.
const TERMS: f64 = 64.0;

/// `P(a, x)`, or with `upper` `Q(a, x)`, one of which is computed and the other made of it: by the power series where x is
/// below a + 1, by an integral of `e^-t` beyond it, and for large a by an integral over what the Gaussian reaches.
pub(super) fn igamma(a: &Array, x: &Array, upper: bool) -> Made<Array> {
    let (zero, one, nan) = (number(0.0)?, number(1.0)?, number(f64::NAN)?);
    let infinite = number(f64::INFINITY)?;
    let large = ops::greater(a, &number(LARGE)?)?;
    let right = ops::greater(x, &ops::add(a, &one)?)?;
    // Each way gets numbers that it can take.
    let sound = ops::logical_and(&ops::isfinite(a)?, &ops::isfinite(x)?)?;
    let sound = ops::logical_and(&sound, &ops::logical_and(&ops::greater(a, &zero)?, &ops::greater(x, &zero)?)?)?;
    let small = ops::logical_and(&sound, &ops::logical_not(&large)?)?;
    let (sa, sx) = (choose(&small, a, &one)?, choose(&small, x, &one)?);
    let below = choose(&right, &one, &sx)?;
    let lower = ops::multiply(&density(&sa, &below)?, &series(&sa, &below)?)?;
    let beyond = choose(&right, &sx, &number(3.0 * LARGE)?)?;
    let tail = ops::multiply(&density(&sa, &beyond)?, &integral(&sa, &beyond)?)?;
    let big = ops::logical_and(&sound, &large)?;
    let hundred = number(100.0)?;
    let gauss = gaussian(&choose(&big, a, &hundred)?, &choose(&big, x, &hundred)?)?;
    let rest = |y: &Array| -> Made<Array> { Ok(ops::subtract(&one, y)?) };
    let left = ops::less(x, a)?;
    let (near, far) = if upper { (rest(&lower)?, tail) } else { (lower, rest(&tail)?) };
    // The Gaussian integral is that of the side which is the smaller.
    let of_large = if upper { choose(&left, &rest(&gauss)?, &gauss)? } else { choose(&left, &gauss, &rest(&gauss)?)? };
    let y = choose(&large, &of_large, &choose(&right, &far, &near)?)?;
    let ends = if upper { [&one, &zero] } else { [&zero, &one] };
    let y = choose(&ops::equal(x, &zero)?, ends[0], &y)?;
    let y = choose(&ops::equal(a, &zero)?, ends[1], &y)?;
    let y = choose(&ops::equal(a, &infinite)?, ends[0], &y)?;
    let y = choose(&ops::equal(x, &infinite)?, ends[1], &y)?;
    let both = |n: &Array| -> Made<Array> { Ok(ops::logical_and(&ops::equal(a, n)?, &ops::equal(x, n)?)?) };
    let none = ops::logical_or(&ops::less(a, &zero)?, &ops::less(x, &zero)?)?;
    // At the ends the other may be NaN, as in PyTorch.
    let ended = ops::logical_or(&ops::equal(x, &zero)?, &ops::equal(x, &infinite)?)?;
    let lost_a = ops::logical_and(&ops::isnan(a)?, &ops::logical_not(&ended)?)?;
    let lost_x = ops::logical_and(&ops::isnan(x)?, &ops::not_equal(a, &infinite)?)?;
    let none = ops::logical_or(&none, &ops::logical_or(&lost_a, &lost_x)?)?;
    let none = ops::logical_or(&none, &ops::logical_or(&both(&zero)?, &both(&infinite)?)?)?;
    choose(&none, &nan, &y)
}

/// `x^a e^-x / Γ(a)`.
fn density(a: &Array, x: &Array) -> Made<Array> {
    let power = ops::subtract(&ops::multiply(a, &ops::log(x)?)?, x)?;
    Ok(ops::exp(&ops::subtract(&power, &lgamma(a)?)?)?)
}

/// `Σ xᵏ / (a (a + 1) … (a + k))`.
fn series(a: &Array, x: &Array) -> Made<Array> {
    let steps = ops::arange(1.0, TERMS, 1.0, Dtype::Float32)?;
    let ratio = ops::divide(&ops::expand_dims(x, -1)?, &ops::add(&ops::expand_dims(a, -1)?, &steps)?)?;
    let axis = ratio.ndim() as i32 - 1;
    let terms = ops::sum_axes(&ops::cumprod_axis(&ratio, axis, false, true, None)?, &[axis], false)?;
    Ok(ops::divide(&ops::add(&terms, &number(1.0)?)?, a)?)
}

/// `1/x ∫ e^-t (1 + t/x)^(a-1) dt` from 0 on.
fn integral(a: &Array, x: &Array) -> Made<Array> {
    let (nodes, weights) = lines(laguerre())?;
    let grown = ops::log1p(&ops::divide(&nodes, &ops::expand_dims(x, -1)?)?)?;
    let power = ops::multiply(&ops::expand_dims(&ops::subtract(a, &number(1.0)?)?, -1)?, &grown)?;
    let axis = power.ndim() as i32 - 1;
    let sum = ops::sum_axes(&ops::multiply(&ops::exp(&power)?, &weights)?, &[axis], false)?;
    Ok(ops::divide(&sum, x)?)
}

/// The smaller side of large a: below x where x is below a, else above it. The integrand is `e^(b (log(1 + u) - u))` of
/// `u = t/b - 1`, where b is a - 1, and `√(2πb)` times a series in 1/b is what its whole integral is. All is in units of b
/// from b on, so that nothing is lost between large numbers.
fn gaussian(a: &Array, x: &Array) -> Made<Array> {
    let (zero, one) = (number(0.0)?, number(1.0)?);
    let b = ops::subtract(a, &one)?;
    let width = ops::sqrt(&b)?;
    let left = ops::less(x, a)?;
    let from = ops::divide(&ops::add(&ops::subtract(x, a)?, &one)?, &b)?;
    let reach = |far: f64, near: f64| -> Made<(Array, Array)> {
        Ok((ops::divide(&number(far)?, &width)?, ops::add(&from, &ops::divide(&number(near)?, &width)?)?))
    };
    let (far, near) = reach(11.5, 6.0)?;
    let above = ops::maximum(&far, &near)?;
    let (far, near) = reach(-7.5, -5.0)?;
    // Zero itself has no logarithm.
    let below = ops::maximum(&ops::minimum(&far, &near)?, &ops::divide(&ops::subtract(&zero, &b)?, &b)?)?;
    let to = choose(&left, &below, &above)?;
    let (nodes, weights) = lines(legendre())?;
    let span = ops::subtract(&to, &from)?;
    let u = ops::add(&ops::expand_dims(&from, -1)?, &ops::multiply(&ops::expand_dims(&span, -1)?, &nodes)?)?;
    let power = ops::multiply(&ops::expand_dims(&b, -1)?, &log1p_less(&u)?)?;
    let axis = power.ndim() as i32 - 1;
    let sum = ops::sum_axes(&ops::multiply(&ops::exp(&power)?, &weights)?, &[axis], false)?;
    let scale = ops::multiply(&number(1.0 / std::f64::consts::TAU.sqrt())?, &width)?;
    let inverse = ops::divide(&one, &b)?;
    let stirling = ops::multiply(&inverse, &number(-1.0 / 12.0)?)?;
    let scale = ops::multiply(&scale, &ops::exp(&stirling)?)?;
    Ok(ops::multiply(&ops::multiply(&ops::abs(&span)?, &sum)?, &scale)?)
}

/// `log(1 + u) - u`, for small u by the series `log(1 + u) = 2 Σ r^(2k+1) / (2k+1)` of `r = u / (2 + u)`: `2r - u = -u r`.
fn log1p_less(u: &Array) -> Made<Array> {
    let near = ops::less(&ops::abs(u)?, &number(0.4)?)?;
    let small = choose(&near, u, &number(0.0)?)?;
    let r = ops::divide(&small, &ops::add(&small, &number(2.0)?)?)?;
    let square = ops::square(&r)?;
    let tail = poly(&square, &[2.0 / 11.0, 2.0 / 9.0, 2.0 / 7.0, 2.0 / 5.0, 2.0 / 3.0])?;
    let tail = ops::multiply(&ops::multiply(&square, &r)?, &tail)?;
    let y = ops::subtract(&tail, &ops::multiply(&small, &r)?)?;
    choose(&near, &y, &ops::subtract(&ops::log1p(u)?, u)?)
}
