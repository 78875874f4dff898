//! The Airy function, from MLX's arithmetic, in float32: the ways of `cpu::airy`, with fewer terms and nodes.
//!
//! Depends on `special` and on the quadrature rules of `cpu`. The nodes run along a dimension of their own.

use super::kernel_error::Made;
use super::special::{choose, line, number, poly};
use lucid_cpu::airy::AT_ZERO;
use lucid_cpu::quadrature::airy_narrow;
use mlx_ffi::{ops, Array};
use std::f64::consts::{FRAC_PI_4, PI};

/// `Ai(x)`; NaN at both infinities, as in PyTorch.
pub(super) fn ai(x: &Array) -> Made<Array> {
    let one = number(1.0)?;
    let near = ops::less_equal(&ops::abs(x)?, &one)?;
    let size = ops::maximum(&ops::abs(x)?, &one)?;
    let root = ops::sqrt(&size)?;
    let zeta = ops::multiply(&ops::multiply(&size, &root)?, &number(2.0 / 3.0)?)?;
    let scale = ops::rsqrt(&ops::multiply(&root, &number(PI)?)?)?;
    let rule = airy_narrow();
    let (nodes, weights) = (line(&rule.nodes)?, line(&rule.weights)?);
    let half = ops::expand_dims(&ops::divide(&number(0.5)?, &zeta)?, -1)?;
    let u = ops::multiply(&half, &nodes)?;
    let axis = u.ndim() as i32 - 1;
    let sum = |f: &Array| -> Made<Array> { Ok(ops::sum_axes(&ops::multiply(f, &weights)?, &[axis], false)?) };
    let falling = sum(&ops::power(&ops::add(&u, &one)?, &number(-1.0 / 6.0)?)?)?;
    let falling = ops::multiply(&ops::multiply(&falling, &ops::exp(&ops::negative(&zeta)?)?)?, &number(0.5)?)?;
    let radius = ops::power(&ops::add(&ops::square(&u)?, &one)?, &number(-1.0 / 12.0)?)?;
    let angle = ops::multiply(&ops::arctan(&u)?, &number(1.0 / 6.0)?)?;
    let re = sum(&ops::multiply(&radius, &ops::cos(&angle)?)?)?;
    let im = sum(&ops::multiply(&radius, &ops::sin(&angle)?)?)?;
    let turn = ops::subtract(&zeta, &number(FRAC_PI_4)?)?;
    let wave = ops::add(&ops::multiply(&ops::cos(&turn)?, &re)?, &ops::multiply(&ops::sin(&turn)?, &im)?)?;
    let right = ops::greater(x, &number(0.0)?)?;
    let far = ops::multiply(&choose(&right, &falling, &wave)?, &scale)?;
    let y = choose(&near, &series(&ops::clip(x, Some(&number(-1.0)?), Some(&one))?)?, &far)?;
    choose(&ops::isfinite(x)?, &y, &number(f64::NAN)?)
}

/// The Maclaurin series, for `|x| ≤ 1`.
fn series(x: &Array) -> Made<Array> {
    const EVEN: [f64; 5] = [1.0 / 1_710_720.0, 1.0 / 12_960.0, 1.0 / 180.0, 1.0 / 6.0, 1.0];
    const ODD: [f64; 5] = [1.0 / 7_076_160.0, 1.0 / 45_360.0, 1.0 / 504.0, 1.0 / 12.0, 1.0];
    let cube = ops::multiply(&ops::square(x)?, x)?;
    let even = ops::multiply(&poly(&cube, &EVEN)?, &number(AT_ZERO[0])?)?;
    let odd = ops::multiply(&ops::multiply(&poly(&cube, &ODD)?, x)?, &number(AT_ZERO[1])?)?;
    Ok(ops::subtract(&even, &odd)?)
}
