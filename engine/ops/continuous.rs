//! Random floats of other distributions than the uniform one, and what fills tensors with them.
//!
//! Bodies of rows in `random.rs`. Depends on its draws. Invariant: 16-bit floats are computed in float32 and rounded once.

use super::random::{defaults, draw, key_of, largest, linked, schema, uniform_bits, working, RandomOp};
use super::Operand;
use crate::batching::refuse_same;
use crate::random::Key;
use crate::shape::Shape;
use crate::{DType, Device, Error, Generator, Result, Scalar, Tensor};

pub(super) fn normal(
    mean: Operand<'_>,
    std: Option<Operand<'_>>,
    size: Option<&[isize]>,
    generator: Option<&Generator>,
    dtype: Option<DType>,
    device: Option<Device>,
) -> Result<Tensor> {
    const OP: &str = "normal";
    let std = std.unwrap_or(Operand::Scalar(Scalar::Int(1)));
    check_std(OP, &std)?;
    let tensors: Vec<&Tensor> = [mean, std].into_iter().filter_map(tensor).collect();
    refuse_same(OP, &tensors)?;
    if let Some(first) = tensors.first() {
        // A binding names the device that a result is written to.
        if size.is_some() || dtype.is_some() || device.is_some_and(|d| d != first.device()) {
            return Err(Error::kind(OP, "takes 'size', 'dtype' and 'device' only where mean and std are numbers"));
        }
        let shape = match tensors.as_slice() {
            [a, b] => crate::shape::broadcast(OP, a.shape(), b.shape())?,
            _ => Shape::from_slice(first.shape()),
        };
        schema::normal.check(first.dtype())?;
        let kind = if first.dtype().is_complex() { first.dtype() } else { working(first.dtype()) };
        let drawn =
            draw(RandomOp::Normal { key: key_of(OP, generator, first.device())? }, &shape, kind, first.device())?;
        let plain = |o: &Operand<'_>| -> Result<Held> {
            Ok(match o {
                Operand::Tensor(t) => Held::Tensor(t.detach()?),
                Operand::Scalar(s) => Held::Scalar(*s),
            })
        };
        let scaled = super::binary::mul(&drawn, plain(&std)?.lend())?;
        let moved = super::binary::add(&scaled, plain(&mean)?.lend(), Scalar::ONE)?;
        return linked(moved.cast(first.dtype())?, &tensors);
    }
    let Some(size) = size else {
        return Err(Error::kind(OP, "needs 'size' where mean and std are numbers"));
    };
    let (dtype, device) = defaults(dtype, device);
    let shape = super::create::sizes(OP, size)?;
    schema::normal.check(dtype)?;
    let key = key_of(OP, generator, device)?;
    let number = |o: Operand<'_>| match o {
        Operand::Scalar(s) => s.to_f64(),
        Operand::Tensor(_) => 0.0,
    };
    scaled_normal(key, &shape, dtype, device, (number(mean), number(std)))
}

fn tensor(o: Operand<'_>) -> Option<&Tensor> {
    match o {
        Operand::Tensor(t) => Some(t),
        Operand::Scalar(_) => None,
    }
}

/// An operand without a history.
enum Held {
    Tensor(Tensor),
    Scalar(Scalar),
}

impl Held {
    fn lend(&self) -> Operand<'_> {
        match self {
            Held::Tensor(t) => Operand::Tensor(t),
            Held::Scalar(s) => Operand::Scalar(*s),
        }
    }
}

/// Refuses standard deviations that are negative, NaN or complex. Evaluates those of a tensor.
fn check_std(op: &'static str, std: &Operand<'_>) -> Result<()> {
    match std {
        Operand::Scalar(s) if s.to_f64() >= 0.0 => Ok(()),
        Operand::Scalar(s) => {
            Err(Error::runtime(op, format!("normal expects std >= 0.0, but found std {}", s.to_f64())))
        }
        Operand::Tensor(t) if t.dtype().is_complex() => {
            Err(Error::dtype(op, "normal expects standard deviation to be non-complex", &[t.dtype()]))
        }
        Operand::Tensor(t) if t.numel() > 0 && !crate::batching::everywhere(&t.detach()?.ge(0)?.all(None, false)?)? => {
            Err(Error::runtime(op, "normal expects all elements of std >= 0.0"))
        }
        Operand::Tensor(_) => Ok(()),
    }
}

/// Normal numbers of a mean and a standard deviation; complex ones have the mean in both parts.
fn scaled_normal(key: Key, shape: &[usize], dtype: DType, device: Device, (mean, std): (f64, f64)) -> Result<Tensor> {
    let kind = if dtype.is_complex() { dtype } else { working(dtype) };
    let mean = if dtype.is_complex() { Scalar::Complex(mean, mean) } else { Scalar::Float(mean) };
    let drawn = (draw(RandomOp::Normal { key }, shape, kind, device)? * std)?;
    super::binary::add(&drawn, mean, Scalar::ONE)?.cast(dtype)
}

pub(super) fn exponential(x: &Tensor, lambd: f64, generator: Option<&Generator>) -> Result<Tensor> {
    const OP: &str = "exponential_";
    continuous(OP, "Exponential", x)?;
    if lambd.is_nan() || lambd <= 0.0 {
        return Err(Error::runtime(OP, format!("exponential_ expects lambda > 0.0, but found lambda={lambd}")));
    }
    let dtype = working(x.dtype());
    let u = draw(RandomOp::Uniform { key: key_of(OP, generator, x.device())? }, x.shape(), dtype, x.device())?;
    // What is drawn as 0 stands for all below half of the next: no infinite logarithm of it later.
    let half = 0.5f64.powi(uniform_bits(dtype) as i32 + 1);
    let unit = super::binary::maximum(&u.neg()?.log1p()?.neg()?, &Tensor::constant(half.into(), dtype, x.device())?)?;
    (unit / lambd)?.cast(x.dtype())
}

pub(super) fn cauchy(x: &Tensor, median: f64, sigma: f64, generator: Option<&Generator>) -> Result<Tensor> {
    const OP: &str = "cauchy_";
    continuous(OP, "Cauchy", x)?;
    if sigma.is_nan() || sigma <= 0.0 {
        return Err(Error::runtime(OP, format!("cauchy_ expects sigma > 0.0, but found sigma={sigma}")));
    }
    let dtype = working(x.dtype());
    let u = draw(RandomOp::Uniform { key: key_of(OP, generator, x.device())? }, x.shape(), dtype, x.device())?;
    // Odd multiples of the last bit, from before -1 to before 1, exactly: the tangent of a right angle is never taken.
    let t = (((u * 2.0)? - 1.0)? + 0.5f64.powi(uniform_bits(dtype) as i32))?;
    let a = t.abs()?;
    let far = a.gt(0.5)?;
    // tan(x) = 1 / tan(π/2 - x): towards the pole the difference is exact and the tangent small.
    let near = super::compare::select::r#where(&far, &(1.0 - &a)?, &a)?;
    let tan = (near * std::f64::consts::FRAC_PI_2)?.tan()?;
    let tan = super::compare::select::r#where(&far, &tan.reciprocal()?, &tan)?;
    (((tan * &t.sign()?)? * sigma)? + median)?.cast(x.dtype())
}

pub(super) fn log_normal(x: &Tensor, mean: f64, std: f64, generator: Option<&Generator>) -> Result<Tensor> {
    const OP: &str = "log_normal_";
    schema::log_normal.check(x.dtype())?;
    if std.is_nan() || std <= 0.0 {
        return Err(Error::runtime(OP, format!("log_normal_ expects std > 0.0, but found std={std}")));
    }
    let key = key_of(OP, generator, x.device())?;
    scaled_normal(key, x.shape(), working(x.dtype()), x.device(), (mean, std))?.exp()?.cast(x.dtype())
}

fn continuous(op: &'static str, name: &str, x: &Tensor) -> Result<()> {
    match x.dtype().is_float() {
        true => Ok(()),
        false => {
            let dtype = x.dtype();
            let why = format!(
                "{name} distribution is a continuous probability distribution. dtype must be a floating point but you specified {dtype}"
            );
            Err(Error::dtype(op, why, &[dtype]))
        }
    }
}

impl Tensor {
    /// Fills the tensor in place with uniform numbers from `from` to `to`.
    ///
    /// # Errors
    /// For a dtype that is not floating or complex, and bounds in the wrong order or beyond the dtype's range.
    pub fn uniform_(&self, from: f64, to: f64, generator: Option<&Generator>) -> Result<()> {
        const OP: &str = "uniform_";
        let _name = crate::autograd::OpScope::of("uniform_", 0);
        schema::rand.check(self.dtype())?;
        let most = largest(self.dtype());
        for (name, bound) in [("from", from), ("to", to)] {
            if !(-most..=most).contains(&bound) {
                return Err(Error::runtime(OP, format!("{name} is out of bounds for {}, got {bound}", self.dtype())));
            }
        }
        let why = if from > to {
            "expects to return a [from, to) range, but found"
        } else if to - from > most {
            "expects to-from to be within the dtype's range, but found"
        } else {
            let key = key_of(OP, generator, self.device())?;
            let u = draw(RandomOp::Uniform { key }, self.shape(), self.dtype(), self.device())?;
            // 16-bit floats are scaled in float32, and rounded once.
            let kind = if self.dtype().is_complex() { self.dtype() } else { working(self.dtype()) };
            let from = if kind.is_complex() { Scalar::Complex(from, from) } else { Scalar::Float(from) };
            let moved = super::binary::add(&(u.cast(kind)? * (to - from.to_f64()))?, from, Scalar::ONE)?;
            return self.write_in_place(OP, moved.cast(self.dtype())?);
        };
        Err(Error::runtime(OP, format!("uniform_ {why} from={from} > to={to}")))
    }

    /// Fills the tensor in place with normal numbers.
    ///
    /// # Errors
    /// For a dtype that is not floating or complex, or a negative deviation.
    pub fn normal_(&self, mean: f64, std: f64, generator: Option<&Generator>) -> Result<()> {
        const OP: &str = "normal_";
        let _name = crate::autograd::OpScope::of("normal_", 0);
        check_std(OP, &Operand::Scalar(Scalar::Float(std)))?;
        schema::randn.check(self.dtype())?;
        let key = key_of(OP, generator, self.device())?;
        let drawn = scaled_normal(key, self.shape(), self.dtype(), self.device(), (mean, std))?;
        self.write_in_place(OP, drawn)
    }
}
