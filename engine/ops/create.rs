//! New tensors from nothing but numbers.
//!
//! Kernels are in `cpu/create.rs` and `gpu/create.rs`.

use super::macros::define_ops;
use crate::dispatch::{self, Meta, Prim};
use crate::shape::Shape;
use crate::{DType, Device, Error, Result, Scalar, Tensor};

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! create_ops {
    ($cb:ident) => { $cb! { "create" CreateOp :
        /// A tensor of `size` filled with one number; its dtype follows from the number unless given.
        function full(size: Sizes, fill_value: Number; dtype: OptDtype = None, device: OptDevice = None) -> Tensor {
            [nograd] Keep Yes DTypes::ALL, Own,
            prim Full { value: Scalar } Nothing {none},
            run full_body, torch "", samples ["(2, 3), 1.5", "(2, 3), 7", "(), True", "(0, 3), 2, dtype=DT.float64"]
        }
        /// The numbers from `start` to before `end`, `step` apart: int64 for integers, else the default float.
        function arange(start: Number, end: OptNumber = None, step: Number = 1; dtype: OptDtype = None, device: OptDevice = None) -> Tensor {
            [nograd] Keep Yes DTypes::REAL, Own,
            prim Arange { start: Scalar, step: Scalar } Nothing {none},
            run arange_body, torch "", samples ["5", "2, 9, 3", "0.5, 3.0, 0.5", "5, 0, -2", "0, 4, dtype=DT.float32"]
        }
        /// Ones on the diagonal of an `n` by `m` (by default `n`) matrix, zeros elsewhere.
        function eye(n: Int, m: OptInt = None; dtype: OptDtype = None, device: OptDevice = None) -> Tensor {
            [nograd] Keep Yes DTypes::ALL, Own,
            prim Eye Nothing {none},
            run eye_body, torch "", samples ["3", "2, 4", "4, 2"]
        }
        /// Zeros.
        function zeros(size: Sizes; dtype: OptDtype = None, device: OptDevice = None) -> Tensor {
            [nograd] Keep Yes DTypes::ALL, Own,
            run filled[Scalar::ZERO], torch "", samples ["(2, 3)", "()"]
        }
        /// Ones.
        function ones(size: Sizes; dtype: OptDtype = None, device: OptDevice = None) -> Tensor {
            [nograd] Keep Yes DTypes::ALL, Own,
            run filled[Scalar::ONE], torch "", samples ["(2, 3)", "()"]
        }
        /// A tensor whose elements may be anything; here they are zeros.
        function empty(size: Sizes; dtype: OptDtype = None, device: OptDevice = None) -> Tensor {
            [nograd] Keep Yes DTypes::ALL, Own,
            run filled[Scalar::ZERO], torch "-", samples []
        }
        /// `steps` numbers from `start` to `end`, both included, evenly spaced.
        function linspace(start: Number, end: Number, steps: Int; dtype: OptDtype = None, device: OptDevice = None) -> Tensor {
            [nograd] Keep Yes DTypes::REAL, Own,
            run linspace_body, torch "", samples ["0, 1, 5", "-2.0, 3.0, 7", "1, 2, 1", "1, 2, 0"]
        }
        /// Zeros of the tensor's shape, dtype and device, where not given.
        function zeros_like(input: Tensor; dtype: OptDtype = None, device: OptDevice = None) -> Tensor {
            [nograd] Keep Yes DTypes::ALL, Own,
            run like[Scalar::ZERO], torch "", samples ["N(2, 3)"]
        }
        /// Ones of the tensor's shape, dtype and device, where not given.
        function ones_like(input: Tensor; dtype: OptDtype = None, device: OptDevice = None) -> Tensor {
            [nograd] Keep Yes DTypes::ALL, Own,
            run like[Scalar::ONE], torch "", samples ["N(2, 3)"]
        }
        /// One number in the tensor's shape, dtype and device, where not given.
        function full_like(input: Tensor, fill_value: Number; dtype: OptDtype = None, device: OptDevice = None) -> Tensor {
            [nograd] Keep Yes DTypes::ALL, Own,
            run full_like_body, torch "", samples ["N(2, 3), 4"]
        }
    }};
}
create_ops!(define_ops);

fn create(op: CreateOp, shape: &[usize], dtype: DType, device: Device) -> Result<Tensor> {
    dispatch::create(Prim::Create(op), Meta::new(shape, dtype), device)
}

/// Sizes that a user gave, checked.
pub(crate) fn sizes(op: &'static str, size: &[isize]) -> Result<Shape> {
    if let Some(bad) = size.iter().find(|&&n| n < 0) {
        let why = format!("Trying to create tensor with negative dimension {bad}: {size:?}");
        return Err(Error::runtime(op, why));
    }
    let shape: Shape = size.iter().map(|&n| n as usize).collect();
    let total = shape.iter().try_fold(16usize, |sum, &n| sum.checked_mul(n.max(1)));
    match total.filter(|&t| t <= isize::MAX as usize) {
        Some(_) => Ok(shape),
        None => Err(Error::runtime(op, format!("a tensor of size {size:?} has more elements than can be addressed"))),
    }
}

fn full_body(size: &[isize], value: Scalar, dtype: Option<DType>, device: Option<Device>) -> Result<Tensor> {
    let dtype = dtype.unwrap_or(super::scalar_dtype(value));
    Tensor::full_of(&sizes("full", size)?, value, dtype, device.unwrap_or(crate::default_device()))
}

fn filled(value: Scalar, size: &[isize], dtype: Option<DType>, device: Option<Device>) -> Result<Tensor> {
    full_body(size, value, Some(dtype.unwrap_or(crate::default_dtype())), device)
}

fn like(value: Scalar, x: &Tensor, dtype: Option<DType>, device: Option<Device>) -> Result<Tensor> {
    Tensor::full_of(x.shape(), value, dtype.unwrap_or(x.dtype()), device.unwrap_or(x.device()))
}

fn full_like_body(x: &Tensor, value: Scalar, dtype: Option<DType>, device: Option<Device>) -> Result<Tensor> {
    like(value, x, dtype, device)
}

fn arange_body(
    start: Scalar,
    end: Option<Scalar>,
    step: Scalar,
    dtype: Option<DType>,
    device: Option<Device>,
) -> Result<Tensor> {
    let (start, end) = end.map_or((Scalar::ZERO, start), |end| (start, end));
    let real = [start, end, step].iter().any(|s| s.category() == crate::dtype::Category::Float);
    let dtype = dtype.unwrap_or(if real { crate::default_dtype() } else { DType::I64 });
    schema::arange.check(dtype)?;
    let (a, b, s) = (start.to_f64(), end.to_f64(), step.to_f64());
    if s == 0.0 {
        return Err(Error::runtime("arange", "step must be nonzero"));
    }
    if !(a.is_finite() && b.is_finite()) || s.is_nan() {
        return Err(Error::runtime("arange", format!("unsupported range: {start} -> {end}")));
    }
    if (b - a) * s.signum() < 0.0 {
        return Err(Error::runtime("arange", "upper bound and lower bound inconsistent with step sign"));
    }
    let count = if real { ((b - a) / s).ceil() } else { exact_count(start.to_i64(), end.to_i64(), step.to_i64()) };
    let count = sizes("arange", &[count.min(isize::MAX as f64) as isize])?[0];
    create(CreateOp::Arange { start, step }, &[count], dtype, device.unwrap_or(crate::default_device()))
}

/// How many integers a range has; exact beyond 2^53.
fn exact_count(start: i64, end: i64, step: i64) -> f64 {
    let (span, step) = (i128::from(end) - i128::from(start), i128::from(step));
    ((span + step - step.signum()) / step) as f64
}

/// 0 to `n - 1` as int64.
pub(crate) fn arange_of(n: usize, device: Device) -> Result<Tensor> {
    create(CreateOp::Arange { start: Scalar::ZERO, step: Scalar::ONE }, &[n], DType::I64, device)
}

fn eye_body(n: i64, m: Option<i64>, dtype: Option<DType>, device: Option<Device>) -> Result<Tensor> {
    let shape = sizes("eye", &[n as isize, m.unwrap_or(n) as isize])?;
    create(CreateOp::Eye, &shape, dtype.unwrap_or(crate::default_dtype()), device.unwrap_or(crate::default_device()))
}

fn linspace_body(
    start: Scalar,
    end: Scalar,
    steps: i64,
    dtype: Option<DType>,
    device: Option<Device>,
) -> Result<Tensor> {
    let dtype = dtype.unwrap_or(crate::default_dtype());
    schema::linspace.check(dtype)?;
    let device = device.unwrap_or(crate::default_device());
    let n = sizes("linspace", &[steps as isize])?[0];
    let (a, b) = (start.to_f64(), end.to_f64());
    if n < 2 {
        return Tensor::full_of(&[n], start, dtype, device);
    }
    let step = (b - a) / (n as f64 - 1.0);
    // Counted from both ends, as PyTorch does, so that the last element is `end` exactly.
    let wide = if device == Device::Cpu { DType::F64 } else { DType::F32 };
    let i = arange_of(n, device)?.cast(wide)?;
    let (up, down) = (((&i * step)? + a)?, ((&i - (n as f64 - 1.0))? * step)? + b);
    super::compare::select::r#where(&i.lt((n / 2) as i64)?, &up, &down?)?.cast(dtype)
}

impl Tensor {
    /// A tensor of one number.
    ///
    /// # Errors
    /// Where the device cannot hold the dtype, or has no room.
    pub fn full_of(shape: &[usize], value: Scalar, dtype: DType, device: Device) -> Result<Tensor> {
        create(CreateOp::Full { value }, shape, dtype, device)
    }

    /// Zeros of this tensor's shape, dtype and device.
    ///
    /// # Errors
    /// Where the device has no room.
    pub fn zeros_like(&self) -> Result<Tensor> {
        Tensor::full_of(self.shape(), Scalar::ZERO, self.dtype(), self.device())
    }
}
