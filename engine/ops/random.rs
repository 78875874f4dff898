//! Random tensors, from the engine's own counter-based generator.
//!
//! A call takes one key from the [`Generator`] and the kernels (`cpu/random.rs`, `gpu/random.rs`) draw threefry blocks
//! from it, so a seed gives the same bits on both devices and on every thread.

use super::macros::define_ops;
use crate::dispatch::{self, Meta, Prim};
use crate::random::{self, Key};
use crate::shape::Shape;
use crate::{DType, Device, Error, Generator, Result, Tensor};

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! random_ops {
    ($cb:ident) => { $cb! { "random" RandomOp :
        /// Uniform numbers in [0, 1).
        function rand(size: Sizes; generator: OptGenerator = None, dtype: OptDtype = None, device: OptDevice = None) -> Tensor {
            [nograd] Keep Seeded DTypes::FLOAT, Own,
            prim Uniform { key: Key } Nothing {none},
            run rand_body, torch "-", samples []
        }
        /// Normal numbers of mean 0 and variance 1.
        function randn(size: Sizes; generator: OptGenerator = None, dtype: OptDtype = None, device: OptDevice = None) -> Tensor {
            [nograd] Keep Seeded DTypes::FLOAT, Own,
            prim Normal { key: Key } Nothing {none},
            run randn_body, torch "-", samples []
        }
        /// Integers from `low` to before `high`, evenly spread.
        function randint(low: Int, high: Int, size: Sizes; generator: OptGenerator = None, dtype: OptDtype = None, device: OptDevice = None) -> Tensor {
            [nograd] Keep Seeded DTypes::REAL, Own,
            prim Integers { key: Key, low: i64, high: i64 } Nothing {none},
            run randint_body, torch "-", samples []
        }
        /// The integers 0 to `n - 1` in random order.
        function randperm(n: Int; generator: OptGenerator = None, dtype: OptDtype = None, device: OptDevice = None) -> Tensor {
            [nograd] Keep Seeded DTypes::REAL, Own,
            run randperm_body, torch "-", samples []
        }
        /// 1 with the probability that the tensor's element gives, else 0.
        method bernoulli(; generator: OptGenerator = None) -> Tensor {
            [nograd] Keep Seeded DTypes::FLOAT, Same,
            run bernoulli_body, torch "-", samples []
        }
        /// [`rand`] in the tensor's shape, dtype and device, where not given.
        function rand_like(input: Tensor; generator: OptGenerator = None, dtype: OptDtype = None, device: OptDevice = None) -> Tensor {
            [nograd] Keep Seeded DTypes::FLOAT, Own,
            run rand_like_body, torch "-", samples []
        }
        /// [`randn`] in the tensor's shape, dtype and device, where not given.
        function randn_like(input: Tensor; generator: OptGenerator = None, dtype: OptDtype = None, device: OptDevice = None) -> Tensor {
            [nograd] Keep Seeded DTypes::FLOAT, Own,
            run randn_like_body, torch "-", samples []
        }
    }};
}
random_ops!(define_ops);

fn key_of(generator: Option<&Generator>) -> Key {
    generator.map_or_else(random::next_key, Generator::next_key)
}

/// Draws in `dtype`: 16-bit floats are rounded from float32, so that every device draws alike.
fn draw(op: RandomOp, shape: &[usize], dtype: DType, device: Device) -> Result<Tensor> {
    op.schema().check(dtype)?;
    let drawn = if matches!(dtype, DType::F16 | DType::BF16) { DType::F32 } else { dtype };
    dispatch::create(Prim::Random(op), Meta::new(shape, drawn), device)?.cast(dtype)
}

/// Uniform numbers in [0, 1).
pub(crate) fn uniform_of(
    shape: &[usize],
    dtype: DType,
    device: Device,
    generator: Option<&Generator>,
) -> Result<Tensor> {
    draw(RandomOp::Uniform { key: key_of(generator) }, shape, dtype, device)
}

fn normal_of(shape: &[usize], dtype: DType, device: Device, generator: Option<&Generator>) -> Result<Tensor> {
    draw(RandomOp::Normal { key: key_of(generator) }, shape, dtype, device)
}

fn defaults(dtype: Option<DType>, device: Option<Device>) -> (DType, Device) {
    (dtype.unwrap_or(crate::default_dtype()), device.unwrap_or(crate::default_device()))
}

fn rand_body(
    size: &[isize],
    generator: Option<&Generator>,
    dtype: Option<DType>,
    device: Option<Device>,
) -> Result<Tensor> {
    let (dtype, device) = defaults(dtype, device);
    uniform_of(&super::create::sizes("rand", size)?, dtype, device, generator)
}

fn randn_body(
    size: &[isize],
    generator: Option<&Generator>,
    dtype: Option<DType>,
    device: Option<Device>,
) -> Result<Tensor> {
    let (dtype, device) = defaults(dtype, device);
    normal_of(&super::create::sizes("randn", size)?, dtype, device, generator)
}

fn randint_body(
    low: i64,
    high: i64,
    size: &[isize],
    generator: Option<&Generator>,
    dtype: Option<DType>,
    device: Option<Device>,
) -> Result<Tensor> {
    let shape: Shape = super::create::sizes("randint", size)?;
    if low >= high {
        return Err(Error::runtime(
            "randint",
            format!("random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"),
        ));
    }
    let dtype = dtype.unwrap_or(DType::I64);
    schema::randint.check(dtype)?;
    let op = RandomOp::Integers { key: key_of(generator), low, high };
    draw(op, &shape, DType::I64, device.unwrap_or(crate::default_device()))?.cast(dtype)
}

fn randperm_body(
    n: i64,
    generator: Option<&Generator>,
    dtype: Option<DType>,
    device: Option<Device>,
) -> Result<Tensor> {
    let shape = super::create::sizes("randperm", &[n as isize])?;
    let device = device.unwrap_or(crate::default_device());
    // 62 random bits each: equal keys are too rare to bias the order.
    let op = RandomOp::Integers { key: key_of(generator), low: 0, high: 1 << 62 };
    draw(op, &shape, DType::I64, device)?.argsort(0, false, true)?.cast(dtype.unwrap_or(DType::I64))
}

fn bernoulli_body(p: &Tensor, generator: Option<&Generator>) -> Result<Tensor> {
    schema::bernoulli.check(p.dtype())?;
    let p = p.detach()?;
    let drawn = if p.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    if p.numel() > 0 {
        let inside = crate::batching::everywhere(&p.ge(0)?.logical_and(&p.le(1)?)?.all(None, false)?)?;
        if !inside {
            return Err(Error::runtime("bernoulli", "Expected p_in >= 0 && p_in <= 1 to be true, but got false"));
        }
    }
    uniform_of(p.shape(), drawn, p.device(), generator)?.lt(&p.cast(drawn)?)?.cast(p.dtype())
}

fn rand_like_body(
    x: &Tensor,
    generator: Option<&Generator>,
    dtype: Option<DType>,
    device: Option<Device>,
) -> Result<Tensor> {
    uniform_of(x.shape(), dtype.unwrap_or(x.dtype()), device.unwrap_or(x.device()), generator)
}

fn randn_like_body(
    x: &Tensor,
    generator: Option<&Generator>,
    dtype: Option<DType>,
    device: Option<Device>,
) -> Result<Tensor> {
    normal_of(x.shape(), dtype.unwrap_or(x.dtype()), device.unwrap_or(x.device()), generator)
}

impl Tensor {
    /// Fills the tensor in place with uniform numbers from `from` to `to`.
    ///
    /// # Errors
    /// For a dtype that is not floating, or bounds in the wrong order.
    pub fn uniform_(&self, from: f64, to: f64, generator: Option<&Generator>) -> Result<()> {
        if from > to {
            return Err(Error::runtime(
                "uniform_",
                format!("expects to return a [from, to) range, but found from={from} > to={to}"),
            ));
        }
        let draw = uniform_of(self.shape(), self.dtype(), self.device(), generator)?;
        self.write_in_place("uniform_", &((draw * (to - from))? + from)?)
    }

    /// Fills the tensor in place with normal numbers.
    ///
    /// # Errors
    /// For a dtype that is not floating, or a negative deviation.
    pub fn normal_(&self, mean: f64, std: f64, generator: Option<&Generator>) -> Result<()> {
        if std < 0.0 {
            return Err(Error::runtime("normal_", format!("expects std >= 0.0, but found std {std}")));
        }
        let draw = normal_of(self.shape(), self.dtype(), self.device(), generator)?;
        self.write_in_place("normal_", &((draw * std)? + mean)?)
    }
}
