//! Functions of one element with numbers of their own, and products of gradients with their slopes, in terms of the smallest set.
//!
//! Depends on [`elements`](super::elements) alone.

use super::elements::{absolute, choose, exp, fill, less, log, maximum, neg, not, sigmoid, sub, tanh, zero};
use crate::{Result, Tensor};
use lucid_ir::ops::nn::ElementFn;

/// `-max(-x, -high)`
fn minimum(x: &Tensor, high: f64) -> Result<Tensor> {
    neg(&maximum(&neg(x)?, &fill(x, -high)?)?)
}

/// `log(1 + e^x)`
fn log_of_more(x: &Tensor) -> Result<Tensor> {
    log(&(&exp(x)? + 1.0)?)
}

/// 1 where the element is above a number, 0 elsewhere.
fn above(x: &Tensor, number: f64) -> Result<Tensor> {
    less(&fill(x, number)?, x, x.dtype())
}

/// The same below it.
fn below(x: &Tensor, number: f64) -> Result<Tensor> {
    less(x, &fill(x, number)?, x.dtype())
}

/// `(1 - target) x + log(1 + e^-x)`
pub(super) fn logits(x: &Tensor, target: &Tensor) -> Result<Tensor> {
    let tail = (&maximum(&neg(x)?, &zero(x)?)? + &log_of_more(&neg(&absolute(x)?)?)?)?;
    &(&not(target)? * x)? + &tail
}

/// `f` of each element; `None` where it tells infinities apart, which a choice that is a product does not.
pub(super) fn value(f: ElementFn, [a, b, c]: [f64; 3], x: &Tensor) -> Result<Option<Tensor>> {
    let made = match f {
        ElementFn::LeakyRelu => choose(&above(x, 0.0)?, x, &(x * a)?)?,
        ElementFn::Elu => {
            let up = above(x, 0.0)?;
            let curved = (&exp(&(&(&not(&up)? * x)? * c)?)? + -1.0)?;
            choose(&up, &(x * b)?, &(&curved * (a * b))?)?
        }
        ElementFn::Softplus => {
            let scaled = (x * a)?;
            let linear = above(&scaled, b)?;
            choose(&linear, x, &(&log_of_more(&(&not(&linear)? * &scaled)?)? * c)?)?
        }
        ElementFn::Hardtanh | ElementFn::Clamp => {
            let low = if a.is_nan() { x.clone() } else { maximum(x, &fill(x, a)?)? };
            if b.is_nan() {
                low
            } else {
                minimum(&low, b)?
            }
        }
        ElementFn::Hardsigmoid => hard(x)?,
        ElementFn::Hardswish => (x * &hard(x)?)?,
        ElementFn::LogSigmoid => sub(&minimum(x, 0.0)?, &log_of_more(&neg(&absolute(x)?)?)?)?,
        ElementFn::Mish => (x * &tanh(&log_of_more(x)?)?)?,
        ElementFn::Silu => (x * &sigmoid(x)?)?,
        ElementFn::SigmoidResult | ElementFn::TanhResult => x.clone(),
        ElementFn::Huber | ElementFn::SmoothL1 => {
            let size = absolute(x)?;
            let (near, far) = if f == ElementFn::Huber { (0.5, a) } else { (0.5 / a, 1.0) };
            choose(&below(&size, a)?, &(&(x * x)? * near)?, &(&(&size + (-0.5 * a))? * far)?)?
        }
        ElementFn::Threshold => choose(&above(x, a)?, x, &fill(x, b)?)?,
        ElementFn::Hardshrink => (x * &above(&absolute(x)?, a)?)?,
        ElementFn::Softshrink => {
            let (up, down) = (above(x, a)?, below(x, -a)?);
            (&(&up * &(x + -a)?)? + &(&down * &(x + a)?)?)?
        }
        ElementFn::NanToNum => return Ok(None),
    };
    Ok(Some(made))
}

/// `min(max(x + 3, 0), 6) / 6`
fn hard(x: &Tensor) -> Result<Tensor> {
    let moved = (x + 3.0)?;
    &minimum(&maximum(&moved, &zero(x)?)?, 6.0)? * (1.0 / 6.0)
}

/// `g` times the derivative of `f` at `x`; `None` as for [`value`].
pub(super) fn back(f: ElementFn, [a, b, c]: [f64; 3], g: &Tensor, x: &Tensor) -> Result<Option<Tensor>> {
    let slope = match f {
        ElementFn::LeakyRelu => (&(&above(x, 0.0)? * (1.0 - a))? + a)?,
        ElementFn::Elu => {
            let up = above(x, 0.0)?;
            let low = not(&up)?;
            let curved = (&exp(&(&(&low * x)? * c)?)? * (a * b * c))?;
            (&(&up * b)? + &(&low * &curved)?)?
        }
        ElementFn::Softplus => {
            let scaled = (x * a)?;
            let linear = above(&scaled, b)?;
            choose(&linear, &fill(x, 1.0)?, &sigmoid(&scaled)?)?
        }
        ElementFn::Hardtanh | ElementFn::Clamp => {
            let low = if a.is_nan() { fill(x, 1.0)? } else { above(x, a)? };
            if b.is_nan() {
                low
            } else {
                (&low * &below(x, b)?)?
            }
        }
        ElementFn::Hardsigmoid => (&(&above(x, -3.0)? * &below(x, 3.0)?)? * (1.0 / 6.0))?,
        ElementFn::Hardswish => {
            let inside = (&(x * (1.0 / 3.0))? + 0.5)?;
            let low = below(x, 3.0)?;
            (&(&(&above(x, -3.0)? * &low)? * &inside)? + &not(&low)?)?
        }
        ElementFn::LogSigmoid => sigmoid(&neg(x)?)?,
        ElementFn::Mish => {
            let (t, s) = (tanh(&log_of_more(x)?)?, sigmoid(x)?);
            (&t + &(&(x * &s)? * &not(&(&t * &t)?)?)?)?
        }
        ElementFn::Silu => {
            let s = sigmoid(x)?;
            (&s * &(&(x * &not(&s)?)? + 1.0)?)?
        }
        ElementFn::SigmoidResult => (x * &not(x)?)?,
        ElementFn::TanhResult => not(&(x * x)?)?,
        ElementFn::Huber => minimum(&maximum(x, &fill(x, -a)?)?, a)?,
        ElementFn::SmoothL1 => (&minimum(&maximum(x, &fill(x, -a)?)?, a)? * (1.0 / a))?,
        ElementFn::Threshold => above(x, a)?,
        ElementFn::Hardshrink | ElementFn::Softshrink => above(&absolute(x)?, a)?,
        ElementFn::NanToNum => return Ok(None),
    };
    (g * &slope).map(Some)
}
