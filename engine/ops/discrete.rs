//! Random integers of given distributions: geometric, Poisson, binomial, multinomial.
//!
//! Bodies of rows in `random.rs`. Depends on its draws, and on additions, products, quotients, square roots and choices of
//! tensors: these are rounded alike on every device, which logarithms and exponentials are not. With the functions below, made
//! of these, a comparison comes out alike everywhere, and so does the integer that it decides.

use super::compare::select::r#where;
use super::random::{draw, key_of, linked, schema, working, RandomOp};
use crate::batching::{everywhere, refuse_same};
use crate::random::Key;
use crate::shape::Shape;
use crate::{DType, Error, Generator, Result, Scalar, Tensor};
use std::f64::consts::{LOG2_E, SQRT_2, TAU};

// ---- functions of exactly rounded steps ------------------------------------------------------------------------------

/// `ln 2` in two parts, of which the first has so few bits that its products with exponents are exact.
const LN_2: [f64; 2] = [0.693_359_375, -2.121_944_400_546_905_8e-4];

/// `c[0] + c[1] x + c[2] x² + …`.
fn poly(x: &Tensor, c: &[f64]) -> Result<Tensor> {
    let mut terms = c.iter().rev();
    let mut y = (x * (terms.next().copied().unwrap_or(0.0)))?;
    if let Some(next) = terms.next() {
        y = (y + *next)?;
    }
    for c in terms {
        y = ((y * x)? + *c)?;
    }
    Ok(y)
}

/// `2 atanh v = ln((1 + v) / (1 - v))` by `n` terms of its series.
fn double_atanh(v: &Tensor, n: u32) -> Result<Tensor> {
    let odd: Vec<f64> = (0..n).map(|i| 1.0 / f64::from(2 * i + 1)).collect();
    (v * 2.0)? * &poly(&(v * v)?, &odd)?
}

/// The natural logarithm of positive numbers.
pub(super) fn ln(x: &Tensor) -> Result<Tensor> {
    let (m, e) = (super::unary::frexp_mantissa(x)?, super::unary::frexp_exponent(x)?);
    let low = m.lt(0.5 * SQRT_2)?;
    let m = r#where(&low, &(&m * 2.0)?, &m)?;
    let e = (e - &low.cast(x.dtype())?)?;
    let log = double_atanh(&((&m - 1.0)? / &(&m + 1.0)?)?, 6)?;
    (&e * LN_2[0])? + &(log + &(e * LN_2[1])?)?
}

/// `-ln(1 - u)`, for `u` in [0, 1); near zero as exact as elsewhere.
fn neg_ln_below(u: &Tensor) -> Result<Tensor> {
    let near = double_atanh(&(u / &(2.0 - u)?)?, 10)?;
    // `u` may have been rounded up to 1.
    let rest = super::binary::maximum(&(1.0 - u)?, &number(0.5f64.powi(53), u)?)?;
    r#where(&u.lt(0.5)?, &near, &ln(&rest)?.neg()?)
}

/// `exp(-x)`, for `x` in [0, 20].
fn exp_neg(x: &Tensor) -> Result<Tensor> {
    let n = (x * LOG2_E)?.round(0)?;
    let r = (((&n * LN_2[0])? - x)? + &(&n * LN_2[1])?)?;
    let factorials: Vec<f64> = (0..9)
        .scan(1.0, |f, i| {
            let c = 1.0 / *f;
            *f *= f64::from(i + 1);
            Some(c)
        })
        .collect();
    let powers: Vec<f32> = (0..32).map(|i| 0.5f32.powi(i)).collect();
    let powers = Tensor::of_elements(&powers, &[powers.len()], x.device())?.cast(x.dtype())?;
    let scale = super::index::index(&powers, &[0], &[n.cast(DType::I64)?])?;
    poly(&r, &factorials)? * &scale
}

/// What Stirling's formula for `ln k!` lacks, for `k` from 1 on: the continued fraction of Stieltjes.
fn stirling_rest(k: &Tensor) -> Result<Tensor> {
    const A: [f64; 5] = [1.0 / 12.0, 1.0 / 30.0, 53.0 / 210.0, 195.0 / 371.0, 22_999.0 / 22_737.0];
    let mut y = k.clone();
    for (i, a) in A.iter().enumerate().rev() {
        y = (*a / &y)?;
        if i > 0 {
            y = (k + &y)?;
        }
    }
    Ok(y)
}

/// `k ln(k / m) - (k - m)` for positive `k` and `m`, exact also where they are close (Loader, "Fast and accurate computation
/// of binomial probabilities", 2000).
pub(super) fn deviance(k: &Tensor, m: &Tensor) -> Result<Tensor> {
    let d = (k - m)?;
    let v = (&d / &(k + m)?)?;
    let z = (&v * &v)?;
    let series = ((&z * &poly(&z, &[1.0 / 3.0, 1.0 / 5.0, 1.0 / 7.0, 1.0 / 9.0])?)? * &((k * 2.0)? * &v)?)?;
    let near = ((&d * &v)? + &series)?;
    let far = ((k * &ln(&(k / m)?)?)? - &d)?;
    r#where(&v.abs()?.lt(0.1)?, &near, &far)
}

/// A 0-d tensor like another.
pub(super) fn number(n: f64, like: &Tensor) -> Result<Tensor> {
    Tensor::constant(Scalar::Float(n), like.dtype(), like.device())
}

// ---- draws -----------------------------------------------------------------------------------------------------------

/// Uniform numbers in [0, 1).
pub(super) fn uniform(key: Key, like: &Tensor) -> Result<Tensor> {
    draw(RandomOp::Uniform { key }, like.shape(), like.dtype(), like.device())
}

/// Exponential numbers of rate 1, in the shape and dtype of `like`. Of two words each, so that small ones are as dense as the
/// dtype allows: ties would go to the first.
pub(super) fn race(key: Key, like: &Tensor) -> Result<Tensor> {
    let step = 0.5f64.powi(super::random::uniform_bits(like.dtype()) as i32);
    neg_ln_below(&(uniform(key.child(0), like)? + &(uniform(key.child(1), like)? * step)?)?)
}

/// [`super::random::geometric`]: the trials that an exponential time spans.
pub(super) fn geometric(x: &Tensor, p: f64, generator: Option<&Generator>) -> Result<Tensor> {
    const OP: &str = "geometric_";
    schema::geometric.check(x.dtype())?;
    if !(p > 0.0 && p < 1.0) {
        return Err(Error::runtime(OP, format!("geometric_ expects p to be in (0, 1), but got p={p}")));
    }
    let key = key_of(OP, generator, x.device())?;
    let like = x.detach()?.cast(working(x.dtype()))?;
    ((race(key, &like)? / -(-p).ln_1p())?.floor()? + 1.0)?.cast(x.dtype())
}

/// The number of steps whose cumulative probability is not above `u`: `first` is the probability of 0, `ratio(j)` that of
/// `j + 1` over that of `j`. Ends where what is left is lost in rounding.
fn inverted(u: &Tensor, first: Tensor, steps: usize, ratio: impl Fn(f64) -> Result<Tensor>) -> Result<Tensor> {
    let (mut at, mut sum) = (first.clone(), first);
    let mut count = u.zeros_like()?;
    for j in 0..steps {
        at = (at * &ratio(j as f64)?)?;
        let more = u.ge(&sum)?.logical_and(&at.gt(&(&sum * 0.5f64.powi(26))?)?)?;
        count = (count + &more.cast(u.dtype())?)?;
        sum = (sum + &at)?;
    }
    Ok(count)
}

/// Steps that [`inverted`] needs for a mean of up to 10: the rest has a probability below 1e-12.
fn steps_for(mean: f64) -> usize {
    (mean + 7.0 * mean.sqrt() + 8.0).ceil() as usize
}

/// A hat over a discrete distribution: the transform `(2 a / (½ - |u|) + b) u + center` of a uniform `u`.
struct Hat {
    center: Tensor,
    a: Tensor,
    b: Tensor,
    /// Below it no comparison is needed.
    quick: Tensor,
    scale: Tensor,
}

impl Hat {
    /// Draws until every element is `done`. `ratio` gives of an outcome two factors of its probability, up to constants that
    /// `scale` holds: the inverse of the first and the logarithm of the second.
    fn sample(
        &self,
        key: Key,
        most: Option<&Tensor>,
        mut done: Tensor,
        ratio: impl Fn(&Tensor) -> Result<(Tensor, Tensor)>,
    ) -> Result<Tensor> {
        // Each round accepts two of three at the least: this many fail with a probability of 1e-100.
        const ROUNDS: u32 = 200;
        let mut kept = self.center.zeros_like()?;
        for round in 0..ROUNDS {
            let u = (uniform(key.child(2 * round), &kept)? - 0.5)?;
            let v = (1.0 - &uniform(key.child(2 * round + 1), &kept)?)?;
            let near = (0.5 - &u.abs()?)?;
            let k = (((((&self.a * 2.0)? / &near)? + &self.b)? * &u)? + &self.center)?.floor()?;
            let mut inside = k.ge(0)?;
            if let Some(most) = most {
                inside = inside.logical_and(&k.le(most)?)?;
            }
            let quick = near.ge(0.07)?.logical_and(&v.le(&self.quick)?)?;
            let (inverse, log) = ratio(&r#where(&inside, &k, &self.center.floor()?)?)?;
            let slope = ((&self.a / &(&near * &near)?)? + &self.b)?;
            let below = ln(&(((&v * &self.scale)? * &inverse)? / &slope)?)?.le(&log)?;
            let taken = inside.logical_and(&quick.logical_or(&below)?)?;
            kept = r#where(&taken.logical_and(&done.logical_not()?)?, &k, &kept)?;
            done = done.logical_or(&taken)?;
            if everywhere(&done.all(None, false)?)? {
                return Ok(kept);
            }
        }
        Err(Error::runtime("random", "transformed rejection did not end"))
    }
}

/// `√k e^(what Stirling's formula lacks)` of `k!`, in its two factors, with the right product at 0.
fn factorial(k: &Tensor) -> Result<(Tensor, Tensor)> {
    let zero = k.lt(0.5)?;
    let positive = super::binary::maximum(k, &number(1.0, k)?)?;
    let root = r#where(&zero, &number(1.0 / TAU.sqrt(), k)?, &positive.sqrt()?)?;
    Ok((root, r#where(&zero, &number(0.0, k)?, &stirling_rest(&positive)?)?))
}

/// [`deviance`] with its limit at `k = 0`.
fn deviance_from_zero(k: &Tensor, m: &Tensor) -> Result<Tensor> {
    let positive = super::binary::maximum(k, &number(1.0, k)?)?;
    r#where(&k.lt(0.5)?, m, &deviance(&positive, m)?)
}

// ---- Poisson and binomial --------------------------------------------------------------------------------------------

/// Where inversion ends and rejection begins.
const FEW: f64 = 10.0;
/// Means above which the deviation is less than the distance of neighbouring floats.
pub(super) fn beyond(dtype: DType) -> f64 {
    2f64.powi(if dtype == DType::F64 { 110 } else { 60 })
}

/// The largest element over all samples of `vmap`; 0 where there is none. Evaluates.
fn peak(x: &Tensor) -> Result<f64> {
    let x = crate::batching::bare(x).detach()?;
    if x.numel() == 0 {
        return Ok(0.0);
    }
    x.amax(None, false)?.item_f64()
}

/// [`super::random::poisson`].
pub(super) fn poisson(x: &Tensor, generator: Option<&Generator>) -> Result<Tensor> {
    const OP: &str = "poisson";
    schema::poisson.check(x.dtype())?;
    refuse_same(OP, &[x])?;
    let rate = x.detach()?.cast(working(x.dtype()))?;
    if rate.numel() > 0 && !everywhere(&rate.ge(0)?.all(None, false)?)? {
        return Err(Error::runtime(OP, "invalid Poisson rate, expected rate to be non-negative"));
    }
    let key = key_of(OP, generator, x.device())?;
    let top = peak(&rate)?;
    // All elements go both ways where both are needed, with a mean that suits it.
    let small = super::binary::minimum(&rate, &number(FEW, &rate)?)?;
    let ratio = |j: f64| &small / (j + 1.0);
    let mut k = inverted(&uniform(key.child(0), &rate)?, exp_neg(&small)?, steps_for(top.min(FEW)), ratio)?;
    if top >= FEW {
        let (few, huge) = (rate.lt(FEW)?, rate.gt(beyond(rate.dtype()))?);
        let mean = r#where(&few.logical_or(&huge)?, &number(FEW, &rate)?, &rate)?;
        let b = ((mean.sqrt()? * 2.53)? + 0.931)?;
        let hat = Hat {
            center: (&mean + 0.43)?,
            a: ((&b * 0.02483)? - 0.059)?,
            quick: (0.9277 - &(3.6224 / &(&b - 2.0)?)?)?,
            scale: (((1.1328 / &(&b - 3.4)?)? + 1.1239)? * TAU.sqrt())?,
            b,
        };
        let many = hat.sample(key.child(1), None, few.logical_or(&huge)?, |k| {
            let (root, rest) = factorial(k)?;
            Ok((root, (rest + &deviance_from_zero(k, &mean)?)?.neg()?))
        })?;
        k = r#where(&huge, &rate, &r#where(&few, &k, &many)?)?;
    }
    linked(k.cast(x.dtype())?, &[x])
}

/// [`super::random::binomial`].
pub(super) fn binomial(count: &Tensor, prob: &Tensor, generator: Option<&Generator>) -> Result<Tensor> {
    const OP: &str = "binomial";
    refuse_same(OP, &[count, prob])?;
    for (name, t) in [("count", count), ("prob", prob)] {
        if !t.dtype().is_float() {
            let why = format!("binomial only supports floating-point dtypes for {name}, got: {}", t.dtype());
            return Err(Error::value(OP, why));
        }
    }
    if count.dtype() != prob.dtype() {
        let dtypes = [count.dtype(), prob.dtype()];
        return Err(Error::dtype(OP, format!("Found dtype {} but expected {}", dtypes[1], dtypes[0]), &dtypes));
    }
    let shape = crate::shape::broadcast(OP, count.shape(), prob.shape())?;
    let key = key_of(OP, generator, count.device())?;
    let dtype = working(count.dtype());
    let full = super::view::expand_to(&count.detach()?.cast(dtype)?, &shape)?;
    let p = super::view::expand_to(&prob.detach()?.cast(dtype)?, &shape)?;
    let zero = number(0.0, &p)?;
    let wrong = full.isnan()?.logical_or(&p.isnan()?)?;
    let endless = full.gt(beyond(dtype))?;
    let settled = wrong.logical_or(&endless)?.logical_or(&full.lt(1)?)?.logical_or(&p.le(0)?)?.logical_or(&p.ge(1)?)?;
    let n = r#where(&settled, &zero, &full.floor()?)?;
    let chance = r#where(&settled, &zero, &p)?;
    // Of success and failure the rarer is counted.
    let flip = chance.gt(0.5)?;
    let q = r#where(&flip, &(1.0 - &chance)?, &chance)?;
    let mean = (&n * &q)?;
    let top = peak(&mean)?;
    let few = mean.lt(FEW)?;
    let (fn_, fq) = (r#where(&few, &n, &zero)?, r#where(&few, &q, &zero)?);
    let odds = (&fq / &(1.0 - &fq)?)?;
    let ratio = |j: f64| &(((&fn_ - j)? / (j + 1.0))?) * &odds;
    let none = exp_neg(&(&fn_ * &neg_ln_below(&fq)?)?)?;
    let mut k = inverted(&uniform(key.child(0), &p)?, none, steps_for(top.min(FEW)), ratio)?;
    if top >= FEW {
        // For those that do not need it a distribution that does.
        let n = r#where(&few, &number(4.0 * FEW, &n)?, &n)?;
        let q = r#where(&few, &number(0.5, &q)?, &q)?;
        let (mean, rest) = ((&n * &q)?, (&n * &(1.0 - &q)?)?);
        let deviation = (&mean * &(1.0 - &q)?)?.sqrt()?;
        let b = ((&deviation * 2.53)? + 1.15)?;
        let part = |k: &Tensor| -> Result<(Tensor, Tensor)> {
            let left = (&n - k)?;
            let ((r0, s0), (r1, s1)) = (factorial(k)?, factorial(&left)?);
            let apart = (deviance_from_zero(k, &mean)? + &deviance_from_zero(&left, &rest)?)?;
            Ok((((r0 / &n.sqrt()?)? * &r1)?, ((s0 + &s1)? + &apart)?.neg()?))
        };
        let mode = ((&n + 1.0)? * &q)?.floor()?;
        let (root, log) = part(&mode)?;
        let hat = Hat {
            center: (&mean + 0.5)?,
            a: (((&b * 0.0248)? - 0.0873)? + &(&q * 0.01)?)?,
            quick: (0.92 - &(4.2 / &b)?)?,
            scale: ((((5.1 / &b)? + 2.83)? * &deviation)? / &root)?,
            b,
        };
        let many = hat.sample(key.child(1), Some(&n), few.clone(), |k| {
            let (r, l) = part(k)?;
            Ok((r, (l - &log)?))
        })?;
        k = r#where(&few, &k, &many)?;
    }
    let k = r#where(&flip, &(&n - &k)?, &k)?;
    // So many trials that their share is all that floats show, and certain ones.
    let share = super::binary::minimum(&super::binary::maximum(&p, &zero)?, &number(1.0, &p)?)?;
    let k = r#where(&endless, &(&full * &share)?, &k)?;
    let whole = p.ge(1)?.logical_and(&full.ge(1)?)?;
    let k = r#where(&whole, &full.floor()?, &k)?;
    let k = r#where(&wrong, &number(f64::NAN, &p)?, &k)?;
    linked(k.cast(count.dtype())?, &[count, prob])
}

// ---- multinomial -----------------------------------------------------------------------------------------------------

/// Categories up to which the weights of all are told apart.
const CATEGORIES: usize = 1 << 24;
/// Bits of the sum of all weights, as integers.
const SUM_BITS: u32 = 55;

/// [`super::random::multinomial`].
pub(super) fn multinomial(
    x: &Tensor,
    num_samples: i64,
    replacement: bool,
    generator: Option<&Generator>,
) -> Result<Tensor> {
    const OP: &str = "multinomial";
    refuse_same(OP, &[x])?;
    let fail = |why: &str| Err(Error::runtime(OP, why));
    if !x.dtype().is_float() {
        let why = format!("multinomial only supports floating-point dtypes for input, got: {}", x.dtype());
        return Err(Error::dtype(OP, why, &[x.dtype()]));
    }
    if x.ndim() != 1 && x.ndim() != 2 {
        return fail("prob_dist must be 1 or 2 dim");
    }
    let n = x.shape()[x.ndim() - 1];
    if num_samples <= 0 {
        return fail("cannot sample n_sample <= 0 samples");
    }
    if !replacement && num_samples as usize > n {
        return fail("cannot sample n_sample > prob_dist.size(-1) samples without replacement");
    }
    if n > CATEGORIES {
        return fail("number of categories cannot exceed 2^24");
    }
    if n == 0 {
        return fail("invalid multinomial distribution (there are no categories)");
    }
    let key = key_of(OP, generator, x.device())?;
    let mut shape = Shape::from_slice(x.shape());
    shape[x.ndim() - 1] = num_samples as usize;
    if x.numel() == 0 {
        return Tensor::full_of(&shape, Scalar::ZERO, DType::I64, x.device());
    }
    let p = x.detach()?.cast(working(x.dtype()))?;
    if !everywhere(&p.ge(0)?.logical_and(&p.lt(f64::INFINITY)?)?.all(None, false)?)? {
        return fail("probability tensor contains either `inf`, `nan` or element < 0");
    }
    let most = p.amax(Some(&[-1]), true)?;
    if !everywhere(&most.gt(0)?.all(None, false)?)? {
        return fail("invalid multinomial distribution (sum of probabilities <= 0)");
    }
    let p = (p / &most)?;
    if !replacement && num_samples > 1 {
        let times = (race(key, &p)? / &p)?;
        let times = r#where(&p.gt(0)?, &times, &number(f64::INFINITY, &p)?)?;
        return times.argsort(-1, false, true)?.narrow(-1, 0, num_samples)?.contiguous();
    }
    // Weights as integers: their running sums are exact, and so the same on every device.
    let bits = SUM_BITS - n.next_power_of_two().trailing_zeros();
    let sums = (p * 2f64.powi(bits as i32))?.cast(DType::I64)?.cumsum(-1, None)?;
    let total = sums.narrow(-1, n as i64 - 1, 1)?;
    let op = RandomOp::Integers { key, low: 0, high: 1 << 62 };
    let points = scaled(&draw(op, &shape, DType::I64, x.device())?, &total)?;
    super::search::searchsorted(&sums.contiguous()?, &points, false, true, None, None)
}

/// `w total / 2^62` rounded down, for `w` below 2^62 and a total of up to 2^55, in integers of 64 bits.
fn scaled(w: &Tensor, total: &Tensor) -> Result<Tensor> {
    let split = |x: &Tensor, bits: i64| -> Result<[Tensor; 2]> {
        Ok([x.bitwise_right_shift(bits)?, x.bitwise_and((1i64 << bits) - 1)?])
    };
    let ([w1, w0], [t1, t0]) = (split(w, 31)?, split(total, 28)?);
    let last = ((&w0 * &t1)? + &(&w0 * &t0)?.bitwise_right_shift(28)?)?.bitwise_right_shift(3)?;
    let low = ((&w1 * &t0)? + &last)?.bitwise_right_shift(28)?;
    ((&w1 * &t1)? + &low)?.bitwise_right_shift(3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;

    fn floats(values: &[f64]) -> Tensor {
        Tensor::of_elements(values, &[values.len()], Device::Cpu).unwrap()
    }

    /// The values of `f` against those of the standard library, in float64.
    fn compare(at: &[f64], f: impl Fn(&Tensor) -> Result<Tensor>, want: impl Fn(f64) -> f64, tolerance: f64) {
        for (x, y) in at.iter().zip(f(&floats(at)).unwrap().to_vec::<f64>().unwrap()) {
            let want = want(*x);
            assert!((y - want).abs() <= tolerance * want.abs().max(1e-3), "{x}: {y}, not {want}");
        }
    }

    #[test]
    fn functions_of_exact_steps_are_right() {
        let points = [1e-12, 1e-5, 0.01, 0.3, 0.499, 0.5, 0.7, 0.99, 1.0, 1.5, 4.0, 12.0, 1e4, 3e9];
        compare(&points, ln, f64::ln, 1e-9);
        compare(&points[..8], neg_ln_below, |u| -(-u).ln_1p(), 1e-9);
        compare(&points[..12], exp_neg, |x| (-x).exp(), 1e-8);
        let whole = [1.0, 2.0, 3.0, 10.0, 500.0];
        let rest = |k: f64| libm::lgamma(k + 1.0) - ((k + 0.5) * k.ln() - k + 0.5 * TAU.ln());
        compare(&whole, stirling_rest, rest, 3e-2);
        compare(&whole[1..], stirling_rest, rest, 2e-4);
        let mean = floats(&[11.0]);
        compare(&[1.0, 5.0, 10.0, 11.0, 12.0, 40.0], |k| deviance(k, &mean), |k| k * (k / 11.0).ln() - k + 11.0, 1e-8);
    }

    #[test]
    fn shares_of_a_total_are_exact() {
        let w = [0i64, 1, (1 << 62) - 1, 0x2aaa_aaaa_aaaa_aaaa, 0x1234_5678_9abc_def0];
        for total in [1i64, 3, 1 << 20, (1 << 55) - 12_345, 1 << 55] {
            let t = |v: &[i64]| Tensor::of_elements(v, &[v.len()], Device::Cpu).unwrap();
            let got = scaled(&t(&w), &t(&[total])).unwrap().to_vec::<i64>().unwrap();
            let want: Vec<i64> = w.iter().map(|&w| ((i128::from(w) * i128::from(total)) >> 62) as i64).collect();
            assert_eq!(got, want, "{total}");
        }
    }
}
