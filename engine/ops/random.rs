//! Random tensors, from the engine's own counter-based generator.
//!
//! A call takes one key from the [`Generator`] and the kernels (`cpu/random.rs`, `gpu/random.rs`) draw threefry blocks
//! from it, so a seed gives the same bits on both devices and on every thread. What is not uniform, normal or integer is
//! made of such draws by tensor ops, here and in `discrete.rs`: one body serves both devices and `vmap`.
//!
//! Samples have no gradient in their parameters. As in PyTorch, ops that take tensors are recorded with gradients of zero.

use super::macros::define_ops;
use super::{continuous, discrete, Operand};
use crate::batching::refuse_same;
use crate::dispatch::{self, Meta, Prim};
use crate::random::{self, Key};
use crate::shape::Shape;
use crate::{DType, Device, Error, Generator, MemoryFormat, Result, Scalar, Tensor};

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! random_ops {
    ($cb:ident) => { $cb! { "random" RandomOp :
        /// Uniform numbers in [0, 1); those of a complex dtype have both parts so.
        function rand(size: Sizes; generator: OptGenerator = None, dtype: OptDtype = None, device: OptDevice = None) -> Tensor {
            [nograd] Keep Seeded DTypes::INEXACT, Own,
            prim Uniform { key: Key } Nothing {none},
            run rand_body, torch "-", samples [],
            example [
                "lucid::manual_seed(7);",
                "let x = rand(&[2, 3], None, None, None)?;",
                "assert!(x.to_vec::<f32>()?.iter().all(|x| (0.0..1.0).contains(x)));",
                "lucid::manual_seed(7);",
                "assert_close(rand(&[2, 3], None, None, None)?, &x);",
            ]
        }
        /// Normal numbers of mean 0 and variance 1; those of a complex dtype have parts of variance 1/2 each.
        function randn(size: Sizes; generator: OptGenerator = None, dtype: OptDtype = None, device: OptDevice = None) -> Tensor {
            [nograd] Keep Seeded DTypes::INEXACT, Own,
            prim Normal { key: Key } Nothing {none},
            run randn_body, torch "-", samples [],
            example [
                "let x = randn(&[10000], None, None, None)?;",
                "assert!(x.mean(None, false, None)?.item_f64()?.abs() < 0.1);",
                "assert!((x.std(None, 1, false)?.item_f64()? - 1.0).abs() < 0.1);",
            ]
        }
        /// Integers from `low` to before `high`, evenly spread. An error where the dtype cannot hold them.
        function randint(low: Int, high: Int, size: Sizes; generator: OptGenerator = None, dtype: OptDtype = None, device: OptDevice = None) -> Tensor {
            [nograd] Keep Seeded DTypes::ORDERED, Own,
            prim Integers { key: Key, low: i64, high: i64 } Nothing {none},
            run randint_body, torch "-", samples [],
            example [
                "let dice = randint(1, 7, &[100], None, None, None)?;",
                "assert!(dice.to_vec::<i64>()?.iter().all(|n| (1..7).contains(n)));",
            ]
        }
        /// The integers 0 to `n - 1` in random order.
        function randperm(n: Int; generator: OptGenerator = None, dtype: OptDtype = None, device: OptDevice = None) -> Tensor {
            [nograd] Keep Seeded DTypes::REAL, Own,
            run randperm_body, torch "-", samples [],
            example [
                "let (order, _) = randperm(5, None, None, None)?.sort(0, false, true)?;",
                "assert_close(order, [0, 1, 2, 3, 4]);",
            ]
        }
        /// 1 with the probability that the tensor's element gives, or `p` where that is given, else 0. Evaluates, to check
        /// that the elements are within 0 to 1.
        method bernoulli(p: OptFloat = None; generator: OptGenerator = None) -> Tensor {
            [out_rule] Keep Seeded DTypes::FLOAT, Same,
            run bernoulli_body, torch "-", samples [],
            example ["assert_close(tensor([0.0, 1.0])?.bernoulli(None, None)?, [0.0, 1.0]);"]
        }
        /// [`rand`] in the tensor's shape, dtype and device, where not given.
        function rand_like(input: Tensor; generator: OptGenerator = None, dtype: OptDtype = None, device: OptDevice = None, memory_format: OptFormat = None) -> Tensor {
            [no_out nograd] Keep Seeded DTypes::INEXACT, Own,
            run rand_like_body, torch "-", samples [],
            example [
                "let x = rand_like(&tensor([[1.0f32, 2.0]])?, None, Some(DType::F64), None, None)?;",
                "assert_eq!((x.shape(), x.dtype()), (&[1, 2][..], DType::F64));",
            ]
        }
        /// [`randn`] in the tensor's shape, dtype and device, where not given.
        function randn_like(input: Tensor; generator: OptGenerator = None, dtype: OptDtype = None, device: OptDevice = None, memory_format: OptFormat = None) -> Tensor {
            [no_out nograd] Keep Seeded DTypes::INEXACT, Own,
            run randn_like_body, torch "-", samples [],
            example [
                "let x = tensor([[1.0, 2.0]])?;",
                "let seeded = || { let g = Generator::new(); g.manual_seed(3); g };",
                "let (a, b) = (randn_like(&x, Some(&seeded()), None, None, None)?, randn_like(&x, Some(&seeded()), None, None, None)?);",
                "assert_close(a, &b);",
            ]
        }
        /// [`randint`] in the tensor's shape, dtype and device, where not given.
        function randint_like(input: Tensor, low: Int, high: Int; generator: OptGenerator = None, dtype: OptDtype = None, device: OptDevice = None, memory_format: OptFormat = None) -> Tensor {
            [no_out nograd] Keep Seeded DTypes::ORDERED, Own,
            run randint_like_body, torch "-", samples [],
            example [
                "let x = randint_like(&tensor([[1, 2, 3]])?, 5, 7, None, None, None, None)?;",
                "assert!(x.to_vec::<i64>()?.iter().all(|n| *n == 5 || *n == 6));",
            ]
        }
        /// Normal numbers of the given means and standard deviations, which broadcast; numbers of `size` where both are
        /// numbers. The dtype is that of `mean`, or of `std` where only that is a tensor.
        function normal(mean: Operand, std: OptOperand = None, size: OptDims = None; generator: OptGenerator = None, dtype: OptDtype = None, device: OptDevice = None) -> Tensor {
            [casts_out nograd] Keep Seeded DTypes::INEXACT, Own,
            run continuous::normal, torch "-", samples [],
            example [
                "let x = normal(&tensor([1.0, 100.0])?, Some(0.0.into()), None, None, None, None)?;",
                "assert_close(x, [1.0, 100.0]);",
            ]
        }
        /// Poisson numbers whose means are the elements, in their dtype. Infinite means give infinity; so large ones that
        /// neighbouring floats are further apart than the deviation give themselves. Evaluates.
        ///
        /// Inversion below a mean of 10; above it transformed rejection (Hörmann, "The transformed rejection method for
        /// generating Poisson random variables", 1993).
        method poisson(generator: OptGenerator = None) -> Tensor {
            [no_out only_function] Keep Seeded DTypes::FLOAT, Same,
            run discrete::poisson, torch "-", samples [],
            example [
                "assert_close(tensor([0.0, f64::INFINITY])?.poisson(None)?, [0.0, f64::INFINITY]);",
                "let mean = tensor([4.0])?.expand(&[10000])?.poisson(None)?.mean(None, false, None)?;",
                "assert!((mean.item_f64()? - 4.0).abs() < 0.2);",
            ]
        }
        /// How many of `count` trials succeed, each with probability `prob`; both broadcast. What is below 0 counts as 0, a
        /// probability above 1 as 1, and parts of trials not at all. NaN gives NaN. Evaluates.
        ///
        /// Inversion below a mean of 10; above it transformed rejection (Hörmann, "The generation of binomial random
        /// variates", 1993).
        function binomial(count: Tensor, prob: Tensor, generator: OptGenerator = None) -> Tensor {
            [no_out] Keep Seeded DTypes::FLOAT, Same,
            run discrete::binomial, torch "-", samples [],
            example [
                "let heads = binomial(&tensor([10.0, 10.0, 10.0])?, &tensor([0.0, 0.5, 1.0])?, None)?.to_vec::<f32>()?;",
                "assert!(heads[0] == 0.0 && (0.0..=10.0).contains(&heads[1]) && heads[2] == 10.0);",
            ]
        }
        /// Indices of the last dimension, drawn with probabilities in proportion to the elements of a vector, or of each row
        /// of a matrix: int64, `num_samples` of them. Without `replacement` each index is drawn at most once, and those of
        /// probability zero come last. Evaluates.
        ///
        /// With replacement by inversion of the running sum, in integers; without it by exponential races: the smallest of
        /// `Exp(1) / probability` come first.
        method multinomial(num_samples: Int, replacement: Bool = false; generator: OptGenerator = None) -> Tensor {
            [own_out nograd] Keep Seeded DTypes::FLOAT, Index,
            run discrete::multinomial, torch "-", samples [],
            example ["assert_close(tensor([0.0, 1.0, 0.0])?.multinomial(3, true, None)?, [1, 1, 1]);"]
        }
        /// Fills with exponential numbers of rate `lambd`: density `lambd exp(-lambd x)`. They are above 0 for a finite rate.
        method exponential(lambd: Float = 1.0; generator: OptGenerator = None) -> Tensor {
            [inplace only_inplace nograd] Keep Seeded DTypes::FLOAT, Same,
            run continuous::exponential, torch "-", samples [],
            example [
                "let x = tensor([0.0; 10000])?.exponential(2.0, None)?;",
                "assert!((x.mean(None, false, None)?.item_f64()? - 0.5).abs() < 0.05);",
            ]
        }
        /// Fills with the number of trials up to the first success, each of probability `p`: 1, 2, and so on.
        method geometric(p: Float; generator: OptGenerator = None) -> Tensor {
            [inplace only_inplace nograd] Keep Seeded DTypes::REAL, Same,
            run discrete::geometric, torch "-", samples [],
            example [
                "let x = tensor([0.0; 10000])?.geometric(0.5, None)?;",
                "assert!((x.mean(None, false, None)?.item_f64()? - 2.0).abs() < 0.1);",
            ]
        }
        /// Fills with Cauchy numbers: density `sigma / (π ((x - median)² + sigma²))`.
        method cauchy(median: Float = 0.0, sigma: Float = 1.0; generator: OptGenerator = None) -> Tensor {
            [inplace only_inplace nograd] Keep Seeded DTypes::FLOAT, Same,
            run continuous::cauchy, torch "-", samples [],
            example [
                "let (middle, _) = tensor([0.0; 10001])?.cauchy(3.0, 1.0, None)?.median(None, false)?;",
                "assert!((middle.item_f64()? - 3.0).abs() < 0.2);",
            ]
        }
        /// Fills with the exponentials of normal numbers of this mean and standard deviation.
        method log_normal(mean: Float = 1.0, std: Float = 2.0; generator: OptGenerator = None) -> Tensor {
            [inplace only_inplace nograd] Keep Seeded DTypes::FLOAT, Same,
            run continuous::log_normal, torch "-", samples [],
            example [
                "let (middle, _) = tensor([0.0; 10001])?.log_normal(1.0, 0.5, None)?.log()?.median(None, false)?;",
                "assert!((middle.item_f64()? - 1.0).abs() < 0.1);",
            ]
        }
    }};
}
random_ops!(define_ops);

/// Random bits of a uniform number: as many as the dtype's significand holds.
pub(crate) fn uniform_bits(dtype: DType) -> u32 {
    match dtype {
        DType::F16 => 11,
        DType::BF16 => 8,
        DType::F64 => 53,
        _ => 24,
    }
}

/// The least and the largest integer that `random_` draws in a dtype, or that floats hold with all below them.
fn whole_numbers(dtype: DType) -> (i64, i64) {
    match dtype {
        DType::Bool => (0, 1),
        DType::U8 => (0, u8::MAX.into()),
        DType::I8 => (i8::MIN.into(), i8::MAX.into()),
        DType::I16 => (i16::MIN.into(), i16::MAX.into()),
        DType::I32 => (i32::MIN.into(), i32::MAX.into()),
        DType::I64 => (i64::MIN, i64::MAX),
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
        let _name = crate::autograd::Naming::of(OP, if matches!(p, Operand::Tensor(_)) { 1 } else { 2 });
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
        let _name = crate::autograd::Naming::of(OP, if from.is_some() { 0 } else { 2 - u64::from(to.is_some()) });
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
