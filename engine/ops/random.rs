//! Random tensors, from the engine's own counter-based generator.
//!
//! A call takes one key from the [`Generator`] and the kernels (`cpu/random.rs`, `mlx/random.rs`) draw threefry blocks
//! from it, so a seed gives the same bits on both devices and on every thread. What is not uniform, normal or integer is
//! made of such draws by tensor ops, here and in `discrete.rs`: one body serves both devices and `vmap`.
//!
//! Samples have no gradient in their parameters. As in PyTorch, ops that take tensors are recorded with gradients of zero.

use super::macros::define_ops;
use super::{continuous, discrete, reparameterized, Operand};
use crate::batching::refuse_same;
use crate::dispatch::{self, Meta, Prim};
use crate::ops::OpRow;
use crate::random::{self, Key};
use crate::shape::Shape;
use crate::{DType, Device, Error, Generator, MemoryFormat, Result, Scalar, Tensor};
pub use lucid_ir::ops::random::*;
use lucid_ir::random_ops;

random_ops!(define_ops);

/// The least and the largest integer that `random_` draws in a dtype, or that floats hold with all below them.
fn whole_numbers(dtype: DType) -> (i64, i64) {
    match dtype {
        DType::Bool => (0, 1),
        DType::U8 => (0, u8::MAX.into()),
        DType::I8 => (i8::MIN.into(), i8::MAX.into()),
        DType::I16 => (i16::MIN.into(), i16::MAX.into()),
        DType::I32 => (i32::MIN.into(), i32::MAX.into()),
        DType::I64 => (i64::MIN, i64::MAX),
        DType::U16 => (0, u16::MAX.into()),
        DType::U32 => (0, u32::MAX.into()),
        DType::U64 => (0, i64::MAX),
        DType::F8E4M3FN => (-16, 16),
        DType::F8E5M2 => (-8, 8),
        DType::F16 | DType::BF16 | DType::F32 | DType::F64 | DType::C64 | DType::C128 => {
            let most = 1 << uniform_bits(dtype);
            (-most, most)
        }
    }
}

/// The largest finite number of a floating dtype.
pub(super) fn largest(dtype: DType) -> f64 {
    match dtype.to_real() {
        DType::F16 => half::f16::MAX.to_f64(),
        DType::BF16 => half::bf16::MAX.to_f64(),
        DType::F64 => f64::MAX,
        _ => f32::MAX.into(),
    }
}

pub(super) fn key_of(op: &'static str, generator: Option<&Generator>, device: Device) -> Result<Key> {
    generator.map_or_else(|| Ok(random::next_key()), |g| g.key_for(op, device))
}

/// Draws in `dtype`. The parts of complex numbers are the two columns of a matrix of floats.
pub(super) fn draw(op: RandomOp, shape: &[usize], dtype: DType, device: Device) -> Result<Tensor> {
    op.schema().check(dtype)?;
    if dtype.is_complex() {
        let mut parts = Shape::from_slice(shape);
        parts.push(2);
        let scale = if matches!(op, RandomOp::Normal { .. }) { std::f64::consts::FRAC_1_SQRT_2 } else { 1.0 };
        let parts = (draw(op, &parts, dtype.to_real(), device)? * scale)?;
        return super::view::view_as_complex(&parts);
    }
    dispatch::create(Prim::Random(op), Meta::new(shape, dtype), device)
}

/// Uniform numbers in [0, 1).
pub(crate) fn uniform_of(
    shape: &[usize],
    dtype: DType,
    device: Device,
    generator: Option<&Generator>,
) -> Result<Tensor> {
    schema::rand.check(dtype)?;
    draw(RandomOp::Uniform { key: key_of("rand", generator, device)? }, shape, dtype, device)
}

pub(super) fn normal_of(
    shape: &[usize],
    dtype: DType,
    device: Device,
    generator: Option<&Generator>,
) -> Result<Tensor> {
    schema::randn.check(dtype)?;
    draw(RandomOp::Normal { key: key_of("randn", generator, device)? }, shape, dtype, device)
}

/// Integers of `from` to `to`, that one included.
fn integers_of(
    op: &'static str,
    (from, to): (i64, i64),
    shape: &[usize],
    (dtype, device): (DType, Device),
    generator: Option<&Generator>,
) -> Result<Tensor> {
    if dtype.is_complex() {
        let why = "handles only integral, floating-point and boolean types";
        return Err(Error::dtype(op, why, &[dtype]));
    }
    if dtype.is_float8() {
        schema::randint.check(dtype)?;
    }
    let (least, most) = match dtype.is_float() {
        // What is beyond all integers is still drawn, rounded, with a warning.
        true => ((-largest(dtype)) as i64, largest(dtype) as i64),
        false => whole_numbers(dtype),
    };
    for (name, bound) in [("from", from), ("to - 1", to)] {
        if bound < least || bound > most {
            return Err(Error::runtime(op, format!("{name} is out of bounds for {dtype}, got {bound}")));
        }
        let whole = whole_numbers(dtype).1;
        if dtype.is_float() && !(-whole..=whole).contains(&bound) {
            crate::warnings::warn(format!(
                "{name} is out of bounds [-{whole}, {whole}], up to which {dtype} holds all integers: not all numbers can be drawn."
            ));
        }
    }
    let key = key_of(op, generator, device)?;
    draw(RandomOp::Integers { key, low: from, high: to.wrapping_add(1) }, shape, DType::I64, device)?.cast(dtype)
}

/// The dtype to compute in: float32 for what is rounded from it.
pub(super) fn working(dtype: DType) -> DType {
    if dtype == DType::F64 {
        DType::F64
    } else {
        DType::F32
    }
}

/// A sample that is recorded as made of these tensors, with gradients of zero.
pub(super) fn linked(mut drawn: Tensor, parameters: &[&Tensor]) -> Result<Tensor> {
    for t in parameters {
        if crate::autograd::is_followed(t) {
            let all = Tensor::constant(Scalar::Bool(true), DType::Bool, drawn.device())?;
            drawn = super::compare::select::r#where(&all, &drawn, &t.cast(drawn.dtype())?)?;
        }
    }
    Ok(drawn)
}

pub(super) fn defaults(dtype: Option<DType>, device: Option<Device>) -> (DType, Device) {
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
    let (dtype, device) = (dtype.unwrap_or(DType::I64), device.unwrap_or(crate::default_device()));
    integers_of("randint", range("randint", low, high)?, &shape, (dtype, device), generator)
}

/// The first and the last integer of `low` to before `high`.
fn range(op: &'static str, low: i64, high: i64) -> Result<(i64, i64)> {
    if low >= high {
        let why = format!("random_ expects 'from' to be less than 'to', but got from={low} >= to={high}");
        return Err(Error::runtime(op, why));
    }
    Ok((low, high - 1))
}

fn randint_like_body(
    x: &Tensor,
    low: i64,
    high: i64,
    generator: Option<&Generator>,
    dtype: Option<DType>,
    device: Option<Device>,
    format: Option<MemoryFormat>,
) -> Result<Tensor> {
    let kind = (dtype.unwrap_or(x.dtype()), device.unwrap_or(x.device()));
    let bounds = range("randint_like", low, high)?;
    in_format(x, format, |shape| integers_of("randint_like", bounds, shape, kind, generator))
}

fn randperm_body(
    n: i64,
    generator: Option<&Generator>,
    dtype: Option<DType>,
    device: Option<Device>,
) -> Result<Tensor> {
    let shape = super::create::sizes("randperm", &[n as isize])?;
    let device = device.unwrap_or(crate::default_device());
    let dtype = dtype.unwrap_or(DType::I64);
    schema::randperm.check(dtype)?;
    let most = whole_numbers(dtype).1;
    if n - 1 > most {
        return Err(Error::runtime("randperm", format!("n is too large for {dtype}: {n} - 1 > {most}")));
    }
    // 62 random bits each: equal keys are too rare to bias the order.
    let op = RandomOp::Integers { key: key_of("randperm", generator, device)?, low: 0, high: 1 << 62 };
    draw(op, &shape, DType::I64, device)?.argsort(0, false, true)?.cast(dtype)
}

fn bernoulli_body(x: &Tensor, p: Option<f64>, generator: Option<&Generator>) -> Result<Tensor> {
    refuse_same("bernoulli", &[x])?;
    let drawn = match p {
        Some(p) => successes("bernoulli", p, x, generator)?,
        None => {
            schema::bernoulli.check(x.dtype())?;
            trials("bernoulli", x, x.shape(), x.dtype(), generator)?
        }
    };
    linked(drawn, &[x])
}

/// 1 with a probability of `p`, else 0, in the shape and dtype of `like`.
fn successes(op: &'static str, p: f64, like: &Tensor, generator: Option<&Generator>) -> Result<Tensor> {
    if !(0.0..=1.0).contains(&p) {
        return Err(Error::runtime(op, format!("bernoulli_ expects p to be in [0, 1], but got p={p}")));
    }
    if like.dtype().is_complex() {
        return Err(Error::dtype(op, "not implemented for complex numbers", &[like.dtype()]));
    }
    let op = RandomOp::Uniform { key: key_of(op, generator, like.device())? };
    draw(op, like.shape(), working(like.dtype()), like.device())?.lt(p)?.cast(like.dtype())
}

/// 1 with the probabilities `p`, which expand to `shape`, else 0.
fn trials(
    op: &'static str,
    p: &Tensor,
    shape: &[usize],
    dtype: DType,
    generator: Option<&Generator>,
) -> Result<Tensor> {
    let p = p.detach()?.cast(working(p.dtype()))?;
    if p.numel() > 0 && !crate::batching::everywhere(&p.ge(0)?.logical_and(&p.le(1)?)?.all(None, false)?)? {
        return Err(Error::runtime(op, "Expected p_in >= 0 && p_in <= 1 to be true, but got false"));
    }
    let op = RandomOp::Uniform { key: key_of(op, generator, p.device())? };
    draw(op, shape, p.dtype(), p.device())?.lt(&p)?.cast(dtype)
}

/// Numbers in the sizes of `x` and a format, drawn in the order of memory.
fn in_format(
    x: &Tensor,
    format: Option<MemoryFormat>,
    draw: impl FnOnce(&[usize]) -> Result<Tensor>,
) -> Result<Tensor> {
    x.like_in("empty_like", format.unwrap_or(MemoryFormat::Preserve), draw)
}

fn rand_like_body(
    x: &Tensor,
    generator: Option<&Generator>,
    dtype: Option<DType>,
    device: Option<Device>,
    format: Option<MemoryFormat>,
) -> Result<Tensor> {
    let (dtype, device) = (dtype.unwrap_or(x.dtype()), device.unwrap_or(x.device()));
    in_format(x, format, |shape| uniform_of(shape, dtype, device, generator))
}

fn randn_like_body(
    x: &Tensor,
    generator: Option<&Generator>,
    dtype: Option<DType>,
    device: Option<Device>,
    format: Option<MemoryFormat>,
) -> Result<Tensor> {
    let (dtype, device) = (dtype.unwrap_or(x.dtype()), device.unwrap_or(x.device()));
    in_format(x, format, |shape| normal_of(shape, dtype, device, generator))
}

impl Tensor {
    /// Fills the tensor in place with 1 with a probability of `p`, a number or a tensor that expands to this one's shape,
    /// else with 0.
    ///
    /// # Errors
    /// For complex tensors, probabilities that are not within 0 to 1 or not of a floating dtype.
    pub fn bernoulli_<'p>(&self, p: impl Into<Operand<'p>>, generator: Option<&Generator>) -> Result<()> {
        const OP: &str = "bernoulli_";
        let p = p.into();
        let _name = crate::autograd::OpScope::of(OP, if matches!(p, Operand::Tensor(_)) { 1 } else { 2 });
        match p {
            Operand::Scalar(p) => self.write_in_place(OP, successes(OP, p.to_f64(), self, generator)?),
            Operand::Tensor(p) => {
                schema::bernoulli.check(p.dtype())?;
                if self.dtype().is_complex() {
                    return Err(Error::dtype(OP, "not implemented for complex numbers", &[self.dtype()]));
                }
                if p.ndim() > self.ndim() || crate::shape::broadcast(OP, self.shape(), p.shape())?[..] != *self.shape()
                {
                    let why = format!("the shape {:?} of p does not expand to {:?}", p.shape(), self.shape());
                    return Err(Error::shape(OP, why, &[p.shape(), self.shape()]));
                }
                let drawn = trials(OP, p, self.shape(), self.dtype(), generator)?;
                self.write_in_place(OP, linked(drawn, &[p])?)
            }
        }
    }

    /// Fills the tensor in place with integers, evenly spread: from `from`, or 0, to before `to`. Without `to`, to the
    /// largest one of the dtype; for floats that is the largest up to which they hold all integers.
    ///
    /// # Errors
    /// For complex tensors, an empty range, and one that the dtype does not hold.
    pub fn random_(&self, from: Option<i64>, to: Option<i64>, generator: Option<&Generator>) -> Result<()> {
        const OP: &str = "random_";
        let _name = crate::autograd::OpScope::of(OP, if from.is_some() { 0 } else { 2 - u64::from(to.is_some()) });
        let from = from.unwrap_or(0);
        let bounds = match to {
            Some(to) => range(OP, from, to)?,
            None => {
                let most = whole_numbers(self.dtype()).1;
                if from > most {
                    return Err(Error::runtime(OP, format!("from is out of bounds for {}, got {from}", self.dtype())));
                }
                (from, most)
            }
        };
        let drawn = integers_of(OP, bounds, self.shape(), (self.dtype(), self.device()), generator)?;
        self.write_in_place(OP, drawn)
    }
}
