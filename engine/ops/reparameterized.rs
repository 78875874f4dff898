//! Gamma, Dirichlet and von Mises numbers, which have gradients in their parameters by implicit reparameterisation: with
//! the distribution function held, `dx/da = -(∂F/∂a) / p(x)` (Figurnov, Mohamed and Mnih, 2018).
//!
//! Bodies of rows in `random.rs`. Depends on the functions of `discrete.rs` whose steps are rounded alike on every device:
//! rejections compare nothing else, so a seed accepts the same proposals everywhere.

use super::compare::select::r#where;
use super::discrete::{beyond, deviance, ln, number, race, uniform};
use super::random::{key_of, working, RandomOp};
use crate::batching::{everywhere, refuse_same};
use crate::dispatch::{self, Meta, Prim};
use crate::random::Key;
use crate::{DType, Error, Generator, Result, Tensor};
use lucid_cpu::quadrature::legendre;

/// Rounds of rejection; each accepts two of three proposals at the least.
const ROUNDS: u32 = 200;

/// The smallest normal number of a dtype to compute in.
fn tiny(like: &Tensor) -> Result<Tensor> {
    number(if like.dtype() == DType::F64 { f64::MIN_POSITIVE } else { f32::MIN_POSITIVE.into() }, like)
}

/// Refuses what is not floating.
fn check_floating(op: &'static str, x: &Tensor) -> Result<()> {
    match x.dtype().is_float() {
        true => Ok(()),
        false => Err(Error::dtype(op, "only supports floating-point dtypes", &[x.dtype()])),
    }
}

/// Records `sample` as a result of the primitive with these parameters; the gradient goes to the parameters.
fn recorded(op: RandomOp, parameter: &Tensor, sample: &Tensor) -> Result<Tensor> {
    let sample = sample.cast(parameter.dtype())?;
    let meta = Meta::new(sample.shape(), sample.dtype());
    dispatch::apply1(Prim::Random(op), &[parameter, &sample], meta)
}

/// Gamma numbers of a concentration above 1, where `open` holds: rejection from Student's t distribution with two degrees
/// of freedom (Best, "Letters to the editors", Applied Statistics 27, 1978).
fn gamma_above_one(key: Key, a: &Tensor, open: &Tensor) -> Result<Tensor> {
    let (b, c) = ((a - 1.0)?, ((a * 3.0)? - 0.75)?);
    let one = number(1.0, a)?;
    let mut kept = a.clone();
    let mut done = open.logical_not()?;
    for round in 0..ROUNDS {
        let u = (uniform(key.child(2 * round), a)? - 0.5)?;
        let v = (1.0 - &uniform(key.child(2 * round + 1), a)?)?;
        let w = ((0.5 - &u)? * &(&u + 0.5)?)?;
        let y = ((&c / &w)?.sqrt()? * &u)?;
        let x = (&b + &y)?;
        let inside = x.gt(0)?.logical_and(&w.gt(0)?)?;
        let x = r#where(&inside, &x, &one)?;
        let w = r#where(&inside, &w, &one)?;
        let z = ((((&w * &w)? * &w)? * 64.0)? * &(&v * &v)?)?;
        let quick = z.le(&(1.0 - &(((&y * &y)? * 2.0)? / &x)?)?)?;
        let exact = ln(&z)?.le(&(deviance(&b, &x)? * -2.0)?)?;
        let taken = inside.logical_and(&quick.logical_or(&exact)?)?;
        kept = r#where(&taken.logical_and(&done.logical_not()?)?, &x, &kept)?;
        done = done.logical_or(&taken)?;
        if everywhere(&done.all(None, false)?)? {
            return Ok(kept);
        }
    }
    Err(Error::runtime("_standard_gamma", "rejection did not end"))
}

/// Gamma numbers, as a factor of a concentration above 1 and the logarithm of another, which is 0 for most.
fn gamma_parts(key: Key, a: &Tensor) -> Result<(Tensor, Tensor)> {
    let (zero, two) = (number(0.0, a)?, number(2.0, a)?);
    let open = a.gt(0)?.logical_and(&a.le(beyond(a.dtype()))?)?;
    let small = a.le(1)?.logical_and(&open)?;
    let raised = r#where(&small, &(a + 1.0)?, &r#where(&open, a, &two)?)?;
    let x = gamma_above_one(key.child(0), &raised, &open)?;
    // `X U^(1/a)` has a concentration less by one.
    let power = (race(key.child(1), a)? / &r#where(&small, a, &two)?)?.neg()?;
    let x = r#where(&open, &x, &r#where(&a.lt(0)?, &number(f64::NAN, a)?, a)?)?;
    Ok((x, r#where(&small, &power, &zero)?))
}

/// [`super::random::_standard_gamma`].
pub(super) fn standard_gamma(concentration: &Tensor, generator: Option<&Generator>) -> Result<Tensor> {
    const OP: &str = "_standard_gamma";
    refuse_same(OP, &[concentration])?;
    check_floating(OP, concentration)?;
    let key = key_of(OP, generator, concentration.device())?;
    let a = concentration.detach()?.cast(working(concentration.dtype()))?;
    let (x, power) = gamma_parts(key, &a)?;
    let x = (x * &power.exp()?)?;
    let x = r#where(&a.gt(0)?, &super::binary::maximum(&x, &tiny(&x)?)?, &x)?;
    recorded(RandomOp::StandardGamma, concentration, &x)
}

/// [`super::random::_sample_dirichlet`].
pub(super) fn sample_dirichlet(concentration: &Tensor, generator: Option<&Generator>) -> Result<Tensor> {
    const OP: &str = "_sample_dirichlet";
    refuse_same(OP, &[concentration])?;
    check_floating(OP, concentration)?;
    if concentration.ndim() == 0 {
        return Err(Error::runtime(OP, "expected a tensor of at least one dimension, got a number"));
    }
    let key = key_of(OP, generator, concentration.device())?;
    let a = concentration.detach()?.cast(working(concentration.dtype()))?;
    let (x, power) = gamma_parts(key, &a)?;
    // By logarithms: small concentrations give gamma numbers that no float holds.
    let x = (x.log()? + &power)?.softmax(-1, None)?;
    let below = number(
        if a.dtype() == DType::F64 { 1.0 - f64::EPSILON / 2.0 } else { 1.0 - f64::from(f32::EPSILON) / 2.0 },
        &x,
    )?;
    let x = super::binary::minimum(&super::binary::maximum(&x, &tiny(&x)?)?, &below)?;
    recorded(RandomOp::SampleDirichlet, concentration, &x)
}

/// The derivatives are recorded, so that a second gradient is refused and not taken without what they would add.
pub(super) fn no_second(op: &'static str) -> Result<Tensor> {
    Err(Error::not_implemented(op, format!("the derivative for '{op}' is not implemented.")))
}

/// Brings tensors to one shape and the dtype of the first.
fn together<const N: usize>(op: &'static str, tensors: [&Tensor; N]) -> Result<[Tensor; N]> {
    let mut shape = crate::shape::Shape::from_slice(tensors[0].shape());
    for t in tensors {
        check_floating(op, t)?;
        if t.dtype() != tensors[0].dtype() {
            let dtypes = [tensors[0].dtype(), t.dtype()];
            return Err(Error::dtype(op, format!("Found dtype {} but expected {}", dtypes[1], dtypes[0]), &dtypes));
        }
        shape = crate::shape::broadcast(op, &shape, t.shape())?;
    }
    let mut made = tensors.map(Tensor::clone);
    for t in &mut made {
        *t = super::view::expand_to(t, &shape)?;
    }
    Ok(made)
}

/// [`super::random::_standard_gamma_grad`].
pub(super) fn standard_gamma_grad(concentration: &Tensor, output: &Tensor) -> Result<Tensor> {
    let [a, x] = together("_standard_gamma_grad", [concentration, output])?;
    let meta = Meta::new(a.shape(), a.dtype());
    dispatch::apply1(Prim::Random(RandomOp::StandardGammaGrad), &[&a, &x], meta)
}

/// [`super::random::_dirichlet_grad`].
pub(super) fn dirichlet_grad(x: &Tensor, alpha: &Tensor, total: &Tensor) -> Result<Tensor> {
    let [x, alpha, total] = together("_dirichlet_grad", [x, alpha, total])?;
    let meta = Meta::new(x.shape(), x.dtype());
    dispatch::apply1(Prim::Random(RandomOp::DirichletGrad), &[&x, &alpha, &total], meta)
}

/// The gradient of [`sample_dirichlet`]: that of one number in its own concentration moves all others in proportion.
pub(super) fn sample_dirichlet_gradient(g: &Tensor, x: &Tensor, concentration: &Tensor) -> Result<Tensor> {
    let total = concentration.sum(Some(&[-1]), true, None)?;
    let own = dirichlet_grad(x, concentration, &total)?;
    own * &(g - &(x * g)?.sum(Some(&[-1]), true, None)?)?
}

/// [`super::random::_standard_von_mises`].
///
/// Best and Fisher's rejection ("Efficient simulation of the von Mises distribution", 1979). Its cosine of a uniform angle
/// is that of twice the angle of a point (a, b) in the unit disc, whose squared radius is the uniform number of the test.
pub(super) fn standard_von_mises(concentration: &Tensor, generator: Option<&Generator>) -> Result<Tensor> {
    const OP: &str = "_standard_von_mises";
    refuse_same(OP, &[concentration])?;
    check_floating(OP, concentration)?;
    let key = key_of(OP, generator, concentration.device())?;
    let k = concentration.detach()?.cast(working(concentration.dtype()))?;
    let (one, open) = (number(1.0, &k)?, k.ge(0)?.logical_and(&k.lt(f64::INFINITY)?)?);
    let kappa = r#where(&open, &k, &one)?;
    // With h = √(1 + 4κ²), τ = 1 + h and t = τ + √(2τ): ρ = 2κ/t, and 1 - ρ without cancellation.
    let far = kappa.gt(1e8)?;
    let near = r#where(&far, &one, &kappa)?;
    let h = r#where(&far, &(&kappa * 2.0)?, &(((&near * &near)? * 4.0)? + 1.0)?.sqrt()?)?;
    let tau = (&h + 1.0)?;
    let root = (&tau * 2.0)?.sqrt()?;
    let t = (&tau + &root)?;
    let rho = ((&kappa * 2.0)? / &t)?;
    let rest = (((1.0 / &(&h + &(&kappa * 2.0)?)?)? + &(&root + 1.0)?)? / &t)?;
    let square = (&rest * &rest)?;
    let base = (&square * &(t * 0.25)?)?;
    let mut kept = kappa.zeros_like()?;
    let mut done = open.logical_not()?;
    for round in 0..ROUNDS {
        let side = |i: u32| -> Result<Tensor> { (uniform(key.child(2 * round + i), &kappa)? * 2.0)? - 1.0 };
        let (a, b) = (side(0)?, side(1)?);
        let (a2, b2) = ((&a * &a)?, (&b * &b)?);
        let radius = (&a2 + &b2)?;
        let inside = radius.gt(0)?.logical_and(&radius.le(1)?)?;
        let safe = r#where(&inside, &radius, &one)?;
        // κ (1 - cos θ), of the two parts that are positive.
        let under = ((&square * &safe)? + &((&rho * &a2)? * 4.0)?)?;
        let apart = (((&square * &b2)? * 2.0)? / &super::binary::maximum(&under, &tiny(&under)?)?)?;
        let c = (&base + &(&kappa * &apart)?)?;
        let quick = (&c * &(2.0 - &c)?)?.gt(&safe)?;
        let exact = ((ln(&(&c / &safe)?)? + 1.0)? - &c)?.ge(0)?;
        let taken = inside.logical_and(&quick.logical_or(&exact)?)?;
        let angle = ((&rest * &b)?.atan2(&((&rho + 1.0)? * &a.abs()?)?)? * 2.0)?;
        kept = r#where(&taken.logical_and(&done.logical_not()?)?, &angle, &kept)?;
        done = done.logical_or(&taken)?;
        if everywhere(&done.all(None, false)?)? {
            let kept = r#where(&open, &kept, &number(f64::NAN, &kept)?)?;
            let kept = r#where(&k.eq(f64::INFINITY)?, &number(0.0, &kept)?, &kept)?;
            return recorded(RandomOp::StandardVonMises, concentration, &kept);
        }
    }
    Err(Error::runtime(OP, "rejection did not end"))
}

/// `1 - I₁(κ) / I₀(κ)`, without cancellation.
fn one_less_mean(kappa: &Tensor) -> Result<Tensor> {
    let large = kappa.gt(if kappa.dtype() == DType::F64 { 1e4 } else { 50.0 })?;
    let one = number(1.0, kappa)?;
    let near = r#where(&large, &one, kappa)?;
    let near = (1.0 - &(super::unary::i1e(&near)? / &super::unary::i0e(&near)?)?)?;
    let v = r#where(&large, kappa, &one)?.reciprocal()?;
    let series = [25.0 / 128.0, 0.125, 0.125, 0.5].into_iter().try_fold(number(0.0, &v)?, |y, c| (y + c)? * &v)?;
    r#where(&large, &series, &near)
}

/// The derivative of a von Mises number in its concentration: `∫ (cos t - I₁/I₀) exp(κ (cos t - cos x)) dt` from |x| to π,
/// with the sign of x, by Gauss and Legendre's rule where the integrand is not negligible.
pub(super) fn von_mises_gradient(kappa: &Tensor, x: &Tensor) -> Result<Tensor> {
    const NEGLIGIBLE: f64 = 45.0;
    let dtype = kappa.dtype();
    let (k, x) = (kappa.cast(working(dtype))?, x.cast(working(dtype))?);
    let size = x.abs()?;
    let tiny = tiny(&k)?;
    let k = super::binary::maximum(&k, &tiny)?;
    // sin²(t/2) rises by half of what the cosine falls. The end passes no gradient: it is π, or nothing is left there.
    let half = (size.detach()? * 0.5)?.sin()?;
    let end = ((&half * &half)? + &(NEGLIGIBLE / 2.0 / &k.detach()?)?)?;
    let end = (super::binary::minimum(&end, &number(1.0, &end)?)?.sqrt()?.asin()? * 2.0)?;
    let width = super::binary::maximum(&(end - &size)?, &number(0.0, &k)?)?;
    let rule = legendre();
    let row = |values: &[f64]| {
        Tensor::of_elements(values, &[values.len()], crate::Device::Cpu)?.cast(k.dtype())?.to_device(k.device())
    };
    let (nodes, weights) = (row(&rule.nodes)?, row(&rule.weights)?);
    let wide = |t: &Tensor| t.unsqueeze(-1);
    let step = (wide(&width)? * &nodes)?;
    let t = (wide(&size)? + &step)?;
    // cos t - cos |x| as a product.
    let fall = (((&(&t + &wide(&size)?)? * 0.5)?.sin()? * &(&step * 0.5)?.sin()?)? * -2.0)?;
    let s = (&t * 0.5)?.sin()?;
    let score = (wide(&one_less_mean(&k)?)? - &((&s * &s)? * 2.0)?)?;
    let sum = ((score * &(wide(&k)? * &fall)?.exp()?)? * &weights)?.sum(Some(&[-1]), false, None)?;
    ((sum * &width)? * &x.sign()?)?.cast(dtype)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;

    fn floats(values: &[f64]) -> Tensor {
        Tensor::of_elements(values, &[values.len()], Device::Cpu).unwrap()
    }

    #[test]
    fn von_mises_gradients_are_those_of_the_distribution_function() {
        // F(x, κ) by the trapezoidal rule, whose derivatives are by differences.
        let f = |x: f64, k: f64| {
            let n = 20_000;
            let at = |i: usize| -std::f64::consts::PI + (x + std::f64::consts::PI) * i as f64 / f64::from(n);
            let p = |t: f64| (k * (t.cos() - 1.0)).exp();
            let part: f64 = (0..n as usize).map(|i| (p(at(i)) + p(at(i + 1))) / 2.0).sum::<f64>() * (at(1) - at(0));
            let whole = |i: usize| std::f64::consts::TAU * i as f64 / f64::from(n);
            part / ((0..n as usize).map(|i| p(whole(i))).sum::<f64>() * whole(1))
        };
        let (kappas, xs) = ([0.1, 0.7, 2.0, 9.0, 40.0], [-2.5, 0.6, 1.4, -0.3, 0.2]);
        let got = von_mises_gradient(&floats(&kappas), &floats(&xs)).unwrap().to_vec::<f64>().unwrap();
        for ((k, x), got) in kappas.into_iter().zip(xs).zip(got) {
            let slope = (f(x, k + 1e-4) - f(x, k - 1e-4)) / 2e-4;
            let density = (f(x + 1e-4, k) - f(x - 1e-4, k)) / 2e-4;
            let want = -slope / density;
            assert!((got - want).abs() < 1e-5 * want.abs().max(0.01), "{k} {x}: {got}, not {want}");
        }
    }

    #[test]
    fn samples_of_odd_parameters() {
        let odd = [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-30, 1e300];
        let x = standard_gamma(&floats(&odd), None).unwrap().to_vec::<f64>().unwrap();
        assert!(x[0] == 0.0 && x[1].is_nan() && x[2].is_nan() && x[3].is_infinite());
        assert!(x[4] > 0.0 && x[5] == 1e300);
        let x = standard_von_mises(&floats(&odd), None).unwrap().to_vec::<f64>().unwrap();
        assert!(x[0].abs() <= std::f64::consts::PI && x[1].is_nan() && x[2].is_nan() && x[3] == 0.0);
        assert!(x[4].abs() <= std::f64::consts::PI && x[5].abs() < 1e-100);
    }
}
