//! Functions of one element with numbers of their own, and products of gradients with their derivatives.
//!
//! Depends on `convert`, `special` and mlx-ffi. Invariants: 16-bit floats are computed in float32 and rounded once; an element
//! that a function cuts off has the derivative 0 whatever the gradient.

use super::kernel_error::Made;
use super::special::{choose, number};
use lucid_ir::ops::nn::ElementFn;
use mlx_ffi::{ops, Array};

/// `e^t` up to where its square is no number any more; beyond, the functions that use it have reached their limits.
fn power(x: &Array) -> Made<Array> {
    let top = number(20.0)?;
    Ok(ops::exp(&choose(&ops::greater(x, &top)?, &top, x)?)?)
}

/// tanh(log(1 + e)) of `e`, and what it lacks to 1.
fn gate(e: &Array) -> Made<(Array, Array)> {
    let w = ops::multiply(e, &ops::add(e, &number(2.0)?)?)?;
    let all = ops::add(&w, &number(2.0)?)?;
    Ok((ops::divide(&w, &all)?, ops::divide(&number(2.0)?, &all)?))
}

/// Is `|x| <= a`?
fn within(x: &Array, a: &Array) -> Made<Array> {
    Ok(ops::less_equal(&ops::abs(x)?, a)?)
}

/// `f` of each element of a float32 array.
pub(super) fn value(f: ElementFn, numbers: [f64; 3], x: &Array) -> Made<Array> {
    let [a, b, c] = numbers;
    let nil = number(0.0)?;
    Ok(match f {
        ElementFn::LeakyRelu => choose(&ops::greater(x, &nil)?, x, &ops::multiply(x, &number(a)?)?)?,
        ElementFn::Elu => {
            let low = ops::less_equal(x, &nil)?;
            let curved = ops::expm1(&ops::multiply(&choose(&low, x, &nil)?, &number(c)?)?)?;
            choose(&low, &ops::multiply(&curved, &number(a * b)?)?, &ops::multiply(x, &number(b)?)?)?
        }
        ElementFn::Softplus => {
            let z = ops::multiply(x, &number(a)?)?;
            let curved = ops::multiply(&ops::log1p(&ops::exp(&z)?)?, &number(c)?)?;
            choose(&ops::greater(&z, &number(b)?)?, x, &curved)?
        }
        ElementFn::Hardtanh | ElementFn::Clamp => {
            let mut y = x.clone();
            if !a.is_nan() {
                y = choose(&ops::less(&y, &number(a)?)?, &number(a)?, &y)?;
            }
            if !b.is_nan() {
                y = choose(&ops::greater(&y, &number(b)?)?, &number(b)?, &y)?;
            }
            y
        }
        ElementFn::Hardswish => {
            let three = number(3.0)?;
            let y = ops::add(x, &three)?;
            let y = choose(&ops::less(&y, &nil)?, &nil, &y)?;
            let y = ops::multiply(&ops::multiply(x, &y)?, &number(1.0 / 6.0)?)?;
            choose(&ops::less(x, &three)?, &y, x)?
        }
        ElementFn::Hardsigmoid => {
            let y = ops::add(x, &number(3.0)?)?;
            let y = choose(&ops::less(&y, &nil)?, &nil, &y)?;
            let y = choose(&ops::greater(&y, &number(6.0)?)?, &number(6.0)?, &y)?;
            ops::multiply(&y, &number(1.0 / 6.0)?)?
        }
        ElementFn::LogSigmoid => {
            let low = choose(&ops::less(x, &nil)?, x, &nil)?;
            ops::subtract(&low, &ops::log1p(&ops::exp(&ops::negative(&ops::abs(x)?)?)?)?)?
        }
        ElementFn::Mish => ops::multiply(x, &gate(&power(x)?)?.0)?,
        ElementFn::Silu => ops::multiply(x, &ops::sigmoid(x)?)?,
        ElementFn::SigmoidResult | ElementFn::TanhResult => x.clone(),
        ElementFn::Huber | ElementFn::SmoothL1 => {
            let far = ops::subtract(&ops::abs(x)?, &number(a * 0.5)?)?;
            let scale = if f == ElementFn::Huber { (0.5, a) } else { (0.5 / a, 1.0) };
            let near = ops::multiply(&ops::square(x)?, &number(scale.0)?)?;
            let far = ops::multiply(&far, &number(scale.1)?)?;
            choose(&ops::less(&ops::abs(x)?, &number(a)?)?, &near, &far)?
        }
        ElementFn::NanToNum => {
            let y = choose(&ops::isnan(x)?, &number(a)?, x)?;
            let y = choose(&ops::equal(x, &number(f64::INFINITY)?)?, &number(b)?, &y)?;
            choose(&ops::equal(x, &number(f64::NEG_INFINITY)?)?, &number(c)?, &y)?
        }
        ElementFn::Threshold => choose(&ops::less_equal(x, &number(a)?)?, &number(b)?, x)?,
        ElementFn::Hardshrink => choose(&within(x, &number(a)?)?, &nil, x)?,
        ElementFn::Softshrink => {
            let a = number(a)?;
            let y = choose(&ops::less(x, &nil)?, &ops::add(x, &a)?, &ops::subtract(x, &a)?)?;
            choose(&within(x, &a)?, &nil, &y)?
        }
    })
}

/// `g` times the derivative of `f` at `x`, both float32.
pub(super) fn back(f: ElementFn, numbers: [f64; 3], g: &Array, x: &Array) -> Made<Array> {
    let [a, b, c] = numbers;
    let (nil, one) = (number(0.0)?, number(1.0)?);
    Ok(match f {
        ElementFn::LeakyRelu => choose(&ops::greater(x, &nil)?, g, &ops::multiply(g, &number(a)?)?)?,
        ElementFn::Elu => {
            let low = ops::less_equal(x, &nil)?;
            let curved = ops::exp(&ops::multiply(&choose(&low, x, &nil)?, &number(c)?)?)?;
            let curved = ops::multiply(&ops::multiply(g, &number(a * b * c)?)?, &curved)?;
            choose(&low, &curved, &ops::multiply(g, &number(b)?)?)?
        }
        ElementFn::Softplus => {
            let z = ops::multiply(x, &number(a)?)?;
            choose(&ops::greater(&z, &number(b)?)?, g, &ops::multiply(g, &ops::sigmoid(&z)?)?)?
        }
        ElementFn::Hardtanh => {
            let out = ops::logical_or(&ops::less_equal(x, &number(a)?)?, &ops::greater_equal(x, &number(b)?)?)?;
            choose(&out, &nil, g)?
        }
        ElementFn::Clamp => {
            let mut y = g.clone();
            if !a.is_nan() {
                y = choose(&ops::greater(x, &number(a)?)?, &y, &nil)?;
            }
            if !b.is_nan() {
                y = choose(&ops::less(x, &number(b)?)?, &y, &nil)?;
            }
            y
        }
        ElementFn::Hardswish => {
            let inside = ops::add(&ops::multiply(x, &number(1.0 / 3.0)?)?, &number(0.5)?)?;
            let low = choose(&ops::less_equal(x, &number(-3.0)?)?, &nil, &ops::multiply(g, &inside)?)?;
            choose(&ops::less(x, &number(3.0)?)?, &low, g)?
        }
        ElementFn::Hardsigmoid => {
            let inside = ops::less(&ops::abs(x)?, &number(3.0)?)?;
            choose(&inside, &ops::multiply(g, &number(1.0 / 6.0)?)?, &nil)?
        }
        ElementFn::LogSigmoid => ops::multiply(g, &ops::sigmoid(&ops::negative(x)?)?)?,
        ElementFn::Mish => {
            let e = power(x)?;
            let (t, rest) = gate(&e)?;
            let s = ops::divide(&e, &ops::add(&e, &one)?)?;
            let left = ops::multiply(&rest, &ops::add(&one, &t)?)?;
            let left = choose(&ops::greater(x, &number(20.0)?)?, &nil, &left)?;
            ops::multiply(g, &ops::add(&t, &ops::multiply(x, &ops::multiply(&s, &left)?)?)?)?
        }
        ElementFn::Silu => {
            let s = ops::sigmoid(x)?;
            let line = ops::add(&one, &ops::multiply(x, &ops::subtract(&one, &s)?)?)?;
            ops::multiply(g, &ops::multiply(&s, &line)?)?
        }
        ElementFn::SigmoidResult => ops::multiply(g, &ops::multiply(&ops::subtract(&one, x)?, x)?)?,
        ElementFn::TanhResult => ops::multiply(g, &ops::subtract(&one, &ops::square(x)?)?)?,
        ElementFn::Huber | ElementFn::SmoothL1 => {
            let (top, scale) = if f == ElementFn::Huber { (a, 1.0) } else { (1.0, 1.0 / a) };
            let y = ops::multiply(x, &number(scale)?)?;
            let y = choose(&ops::less_equal(x, &number(-a)?)?, &number(-top)?, &y)?;
            ops::multiply(g, &choose(&ops::greater_equal(x, &number(a)?)?, &number(top)?, &y)?)?
        }
        ElementFn::NanToNum => choose(&ops::less(&ops::abs(x)?, &number(f64::INFINITY)?)?, g, &nil)?,
        ElementFn::Threshold => choose(&ops::less_equal(x, &number(a)?)?, &nil, g)?,
        ElementFn::Hardshrink | ElementFn::Softshrink => choose(&within(x, &number(a)?)?, &nil, g)?,
    })
}

/// Numbers as a kernel's text has them; `None` where one of those that are used is no number there.
fn literals<const N: usize>(numbers: &[f64; 3]) -> Option<[String; N]> {
    let used = &numbers[..N];
    used.iter().all(|n| (*n as f32).is_finite()).then(|| std::array::from_fn(|i| format!("({:?}f)", used[i] as f32)))
}

/// `f` of `x` as a kernel's text; `None` where that has no short form in both languages.
pub(super) fn value_text(f: ElementFn, numbers: [f64; 3], x: &str) -> Option<String> {
    Some(match f {
        ElementFn::LeakyRelu => {
            let [a] = literals(&numbers)?;
            format!("({x} > 0.0f ? {x} : {x} * {a})")
        }
        ElementFn::Clamp if numbers[0].is_nan() => {
            let [b] = literals(&[numbers[1]; 3])?;
            format!("({x} > {b} ? {b} : {x})")
        }
        ElementFn::Clamp if numbers[1].is_nan() => {
            let [a] = literals(&numbers)?;
            format!("({x} < {a} ? {a} : {x})")
        }
        ElementFn::Hardtanh | ElementFn::Clamp => {
            let [a, b] = literals(&numbers)?;
            format!("({x} < {a} ? ({a} > {b} ? {b} : {a}) : ({x} > {b} ? {b} : {x}))")
        }
        ElementFn::Hardswish => {
            format!("({x} < 3.0f ? {x} * ({x} + 3.0f < 0.0f ? 0.0f : {x} + 3.0f) * 0.16666667f : {x})")
        }
        ElementFn::Hardsigmoid => {
            format!("({x} < -3.0f ? 0.0f : ({x} > 3.0f ? 6.0f : {x} + 3.0f) * 0.16666667f)")
        }
        ElementFn::Silu => format!("({x} / (1.0f + exp(-{x})))"),
        ElementFn::SigmoidResult | ElementFn::TanhResult => x.to_string(),
        ElementFn::Huber => {
            let [a] = literals(&numbers)?;
            format!("(fabs({x}) < {a} ? {x} * {x} * 0.5f : (fabs({x}) - {a} * 0.5f) * {a})")
        }
        ElementFn::SmoothL1 => {
            let [a] = literals(&numbers)?;
            format!("(fabs({x}) < {a} ? {x} * {x} * (0.5f / {a}) : fabs({x}) - {a} * 0.5f)")
        }
        ElementFn::Threshold => {
            let [a, b] = literals(&numbers)?;
            format!("({x} <= {a} ? {b} : {x})")
        }
        ElementFn::Hardshrink => {
            let [a] = literals(&numbers)?;
            format!("(fabs({x}) <= {a} ? 0.0f : {x})")
        }
        ElementFn::Softshrink => {
            let [a] = literals(&numbers)?;
            format!("(fabs({x}) <= {a} ? 0.0f : ({x} < 0.0f ? {x} + {a} : {x} - {a}))")
        }
        ElementFn::Elu | ElementFn::Softplus | ElementFn::LogSigmoid | ElementFn::Mish | ElementFn::NanToNum => {
            return None
        }
    })
}

/// `g` times the derivative of `f` at `x` as a kernel's text; `None` as for [`value_text`].
pub(super) fn gradient_text(f: ElementFn, numbers: [f64; 3], g: &str, x: &str) -> Option<String> {
    let logistic = |x: &str| format!("(1.0f / (1.0f + exp(-{x})))");
    Some(match f {
        ElementFn::LeakyRelu => {
            let [a] = literals(&numbers)?;
            format!("({x} > 0.0f ? {g} : {g} * {a})")
        }
        ElementFn::Elu => {
            let [a, b, c] = literals(&numbers)?;
            format!("({x} <= 0.0f ? {g} * ({a} * {b} * {c}) * exp({x} * {c}) : {g} * {b})")
        }
        ElementFn::Softplus => {
            let [a, b] = literals(&numbers)?;
            format!("({x} * {a} > {b} ? {g} : {g} * {})", logistic(&format!("({x} * {a})")))
        }
        ElementFn::Hardtanh => {
            let [a, b] = literals(&numbers)?;
            format!("(({x} <= {a} || {x} >= {b}) ? 0.0f : {g})")
        }
        ElementFn::Clamp if numbers[0].is_nan() => {
            let [b] = literals(&[numbers[1]; 3])?;
            format!("({x} < {b} ? {g} : 0.0f)")
        }
        ElementFn::Clamp if numbers[1].is_nan() => {
            let [a] = literals(&numbers)?;
            format!("({x} > {a} ? {g} : 0.0f)")
        }
        ElementFn::Clamp => {
            let [a, b] = literals(&numbers)?;
            format!("(({x} > {a} && {x} < {b}) ? {g} : 0.0f)")
        }
        ElementFn::Hardswish => {
            format!("({x} < 3.0f ? ({x} <= -3.0f ? 0.0f : {g} * ({x} * 0.33333334f + 0.5f)) : {g})")
        }
        ElementFn::Hardsigmoid => format!("(({x} > -3.0f && {x} < 3.0f) ? {g} * 0.16666667f : 0.0f)"),
        ElementFn::LogSigmoid => format!("({g} * {})", logistic(&format!("(-{x})"))),
        ElementFn::Silu => {
            let s = logistic(x);
            format!("({g} * ({s} * (1.0f + {x} * (1.0f - {s}))))")
        }
        ElementFn::SigmoidResult => format!("({g} * ((1.0f - {x}) * {x}))"),
        ElementFn::TanhResult => format!("({g} * (1.0f - {x} * {x}))"),
        ElementFn::Huber => {
            let [a] = literals(&numbers)?;
            format!("({g} * ({x} >= {a} ? {a} : ({x} <= -{a} ? -{a} : {x})))")
        }
        ElementFn::SmoothL1 => {
            let [a] = literals(&numbers)?;
            format!("({g} * ({x} >= {a} ? 1.0f : ({x} <= -{a} ? -1.0f : {x} / {a})))")
        }
        ElementFn::Threshold => {
            let [a] = literals(&numbers)?;
            format!("({x} <= {a} ? 0.0f : {g})")
        }
        ElementFn::Hardshrink | ElementFn::Softshrink => {
            let [a] = literals(&numbers)?;
            format!("(fabs({x}) <= {a} ? 0.0f : {g})")
        }
        ElementFn::NanToNum | ElementFn::Mish => return None,
    })
}
