//! New tensors from nothing but numbers.
//!
//! Kernels are in `cpu/create.rs` and `mlx/create.rs`.

use super::macros::define_ops;
use super::Operand;
use crate::dispatch::{self, Meta, Prim};
use crate::format::made_in;
use crate::shape::{Layout, Shape, Sizes};
use crate::{DType, Device, Error, MemoryFormat, Result, Scalar, Tensor};
use lucid_ir::create_ops;
pub use lucid_ir::ops::create::*;

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

/// Refuses a number that the dtype cannot hold: beyond its range, or complex where it is real.
pub(crate) fn check_held(op: &'static str, value: Scalar, dtype: DType) -> Result<()> {
    match value.converts(dtype) {
        true => Ok(()),
        false => Err(Error::runtime(op, format!("value {value} cannot be converted to {dtype} without overflow"))),
    }
}

/// [`check_held`] for all elements of a tensor. One alone that is a 16-bit float becomes infinite instead, as in PyTorch.
pub(crate) fn check_filled(op: &'static str, value: Scalar, dtype: DType, shape: &[usize]) -> Result<()> {
    let alone = dtype.is_half() && shape.iter().all(|&n| n == 1);
    let real = !matches!(value, Scalar::Complex(..));
    if alone && real {
        Ok(())
    } else {
        check_held(op, value, dtype)
    }
}

/// A number to be written to elements of `x`, as a 0-d tensor.
pub(crate) fn held(op: &'static str, value: Scalar, x: &Tensor) -> Result<Tensor> {
    check_held(op, value, x.dtype())?;
    Tensor::constant(value, x.dtype(), x.device())
}

fn full_body(size: &[isize], value: Scalar, dtype: Option<DType>, device: Option<Device>) -> Result<Tensor> {
    let dtype = dtype.unwrap_or(super::scalar_dtype(value));
    let shape = sizes("full", size)?;
    check_filled("full", value, dtype, &shape)?;
    Tensor::full_of(&shape, value, dtype, device.unwrap_or(crate::default_device()))
}

fn filled(value: Scalar, size: &[isize], dtype: Option<DType>, device: Option<Device>) -> Result<Tensor> {
    full_body(size, value, Some(dtype.unwrap_or(crate::default_dtype())), device)
}

fn empty_strided_body(
    size: &[isize],
    stride: &[isize],
    dtype: Option<DType>,
    device: Option<Device>,
) -> Result<Tensor> {
    let like = (dtype.unwrap_or(crate::default_dtype()), device.unwrap_or(crate::default_device()));
    Tensor::strided_of("empty_strided", size, stride, like)
}

fn empty_permuted_body(
    size: &[isize],
    physical_layout: &[isize],
    dtype: Option<DType>,
    device: Option<Device>,
) -> Result<Tensor> {
    const OP: &str = "empty_permuted";
    if size.len() != physical_layout.len() {
        let why = format!(
            "Number of dimensions in size does not match the length of the physical_layout; i.e. len(size) = {} is not equal to len(physical_layout) = {}",
            size.len(),
            physical_layout.len()
        );
        return Err(Error::runtime(OP, why));
    }
    let n = physical_layout.len() as isize;
    let mut strides = Sizes::from_elem(0, physical_layout.len());
    let mut step = 1isize;
    for &axis in physical_layout.iter().rev() {
        if !(0..n).contains(&axis) {
            let why = format!("Dimension out of range (expected to be between 0 and {}, but got {axis})", n - 1);
            return Err(Error::runtime(OP, why));
        }
        if strides[axis as usize] != 0 {
            return Err(Error::runtime(OP, format!("Duplicate dim not allowed: {axis}")));
        }
        strides[axis as usize] = step;
        step = step.saturating_mul(size[axis as usize].max(1));
    }
    let like = (dtype.unwrap_or(crate::default_dtype()), device.unwrap_or(crate::default_device()));
    Tensor::strided_of(OP, size, &strides, like)
}

fn scalar_tensor_body(s: Scalar, dtype: Option<DType>, device: Option<Device>) -> Result<Tensor> {
    let dtype = dtype.unwrap_or(crate::default_dtype());
    check_held("scalar_tensor", s, dtype)?;
    full_body(&[], s, Some(dtype), device)
}

fn like(
    value: Scalar,
    x: &Tensor,
    dtype: Option<DType>,
    device: Option<Device>,
    format: Option<MemoryFormat>,
) -> Result<Tensor> {
    if let Some(batch) = x.storage().batch() {
        // One for each sample, so that what differs between them may be written there.
        return like(value, &batch.value, dtype, device, format).map(|made| batch.with(made));
    }
    let (dtype, device) = (dtype.unwrap_or(x.dtype()), device.unwrap_or(x.device()));
    check_filled("full_like", value, dtype, x.shape())?;
    let format = format.unwrap_or(MemoryFormat::Preserve);
    x.like_in("empty_like", format, |shape| Tensor::full_of(shape, value, dtype, device))
}

/// One number in the given sizes, as `x` makes it: inside of `vmap` one such tensor for each of its samples.
///
/// # Errors
/// As [`full`].
pub fn new_full(x: &Tensor, size: &[isize], value: Scalar, dtype: DType, device: Device) -> Result<Tensor> {
    let Some(batch) = x.storage().batch() else { return full(size, value, Some(dtype), Some(device)) };
    let all: Vec<isize> = std::iter::once(batch.size() as isize).chain(size.iter().copied()).collect();
    new_full(&batch.value, &all, value, dtype, device).map(|made| batch.with(made))
}

fn full_like_body(
    x: &Tensor,
    value: Scalar,
    dtype: Option<DType>,
    device: Option<Device>,
    format: Option<MemoryFormat>,
) -> Result<Tensor> {
    like(value, x, dtype, device, format)
}

fn empty_body(
    size: &[isize],
    dtype: Option<DType>,
    device: Option<Device>,
    format: Option<MemoryFormat>,
) -> Result<Tensor> {
    const OP: &str = "empty";
    let format = format.unwrap_or(MemoryFormat::Contiguous);
    if format == MemoryFormat::Preserve {
        return Err(Error::runtime(OP, "unsupported memory format Preserve"));
    }
    let like = Layout::contiguous(&sizes(OP, size)?);
    let (dtype, device) = (dtype.unwrap_or(crate::default_dtype()), device.unwrap_or(crate::default_device()));
    made_in(OP, &like, format, |shape| Tensor::full_of(shape, Scalar::ZERO, dtype, device))
}

/// Refuses complex numbers as ends and steps of a range.
fn check_real(op: &'static str, numbers: &[Scalar]) -> Result<()> {
    numbers.iter().try_for_each(|&s| check_held(op, s, DType::F64))
}

fn arange_body(
    start: Scalar,
    end: Option<Scalar>,
    step: Scalar,
    dtype: Option<DType>,
    device: Option<Device>,
) -> Result<Tensor> {
    let (start, end) = end.map_or((Scalar::ZERO, start), |end| (start, end));
    check_real("arange", &[start, end, step])?;
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
    // Of fractions, integers keep what is before the point; how many they are follows from the numbers as given.
    let whole = |s: Scalar| if real && dtype.is_integral() { Scalar::Int(s.to_i64()) } else { s };
    let (first, apart) = (whole(start), whole(step));
    let count = if real { ((b - a) / s).ceil() } else { exact_count(start.to_i64(), end.to_i64(), step.to_i64()) };
    let count = sizes("arange", &[count.min(isize::MAX as f64) as isize])?[0];
    let device = device.unwrap_or(crate::default_device());
    if apart.to_f64() == 0.0 {
        return Tensor::full_of(&[count], first, dtype, device);
    }
    create(CreateOp::Arange { start: first, step: apart }, &[count], dtype, device)
}

fn range_body(
    start: Scalar,
    end: Scalar,
    step: Scalar,
    dtype: Option<DType>,
    device: Option<Device>,
) -> Result<Tensor> {
    check_real("range", &[start, end, step])?;
    crate::warnings::warn(
        "range is deprecated, since it includes its end where Python's builtin does not. Use arange instead.".into(),
    );
    let dtype = dtype.unwrap_or(crate::default_dtype());
    schema::range.check(dtype)?;
    if dtype == DType::Bool {
        return Err(Error::not_implemented("range", "does not count in bool"));
    }
    if step.to_f64() == 0.0 {
        return Err(Error::runtime("range", "step must be nonzero"));
    }
    if ![start, end, step].iter().all(|s| s.to_f64().is_finite()) {
        return Err(Error::runtime("range", format!("unsupported range: {start} -> {end} by {step}")));
    }
    if (end.to_f64() - start.to_f64()) * step.to_f64().signum() < 0.0 {
        return Err(Error::runtime("range", "upper bound and lower bound inconsistent with step sign"));
    }
    let whole = |s: Scalar| if dtype.is_integral() { Scalar::Int(s.to_i64()) } else { s };
    let (start, end, step) = (whole(start), whole(end), whole(step));
    let (a, b, s) = (start.to_f64(), end.to_f64(), step.to_f64());
    if s == 0.0 {
        return Err(Error::runtime("range", format!("a step below 1 is 0 in {dtype}")));
    }
    let count = sizes("range", &[(((b - a) / s).floor() + 1.0).min(isize::MAX as f64) as isize])?[0];
    create(CreateOp::Arange { start, step }, &[count], dtype, device.unwrap_or(crate::default_device()))
}

/// How many integers a range has; exact beyond 2^53.
fn exact_count(start: i64, end: i64, step: i64) -> f64 {
    let (span, step) = (i128::from(end) - i128::from(start), i128::from(step));
    ((span + step - step.signum()) / step) as f64
}

/// Room for that many indices.
pub(super) fn room(op: &'static str, indices: usize) -> Result<Vec<i64>> {
    let mut places = Vec::new();
    match places.try_reserve_exact(indices) {
        Ok(()) => Ok(places),
        Err(_) => {
            let why = format!("{op} takes {indices} indices, which do not fit");
            Err(Box::new(Error::OutOfMemory { device: Device::Cpu, why: why.into() }))
        }
    }
}

/// 0 to `n - 1` as int64.
pub(crate) fn arange_of(n: usize, device: Device) -> Result<Tensor> {
    create(CreateOp::Arange { start: Scalar::ZERO, step: Scalar::ONE }, &[n], DType::I64, device)
}

/// The identity of `n` rows.
pub(crate) fn identity(n: usize, dtype: DType, device: Device) -> Result<Tensor> {
    create(CreateOp::Eye, &[n, n], dtype, device)
}

fn eye_body(n: i64, m: Option<i64>, dtype: Option<DType>, device: Option<Device>) -> Result<Tensor> {
    let shape = sizes("eye", &[n as isize, m.unwrap_or(n) as isize])?;
    create(CreateOp::Eye, &shape, dtype.unwrap_or(crate::default_dtype()), device.unwrap_or(crate::default_device()))
}

fn spaced(
    op: &'static str,
    base: Option<f64>,
    start: Operand<'_>,
    end: Operand<'_>,
    steps: i64,
    dtype: Option<DType>,
    device: Option<Device>,
) -> Result<Tensor> {
    let number = |end: Operand<'_>, name: &str| match end {
        Operand::Scalar(s) => Ok(s),
        Operand::Tensor(t) if t.ndim() == 0 => t.detach()?.item(),
        Operand::Tensor(t) => {
            let why = format!(
                "only supports 0-dimensional start and end tensors, but got {name} with {} dimension(s)",
                t.ndim()
            );
            Err(Error::shape(op, why, &[t.shape()]))
        }
    };
    let (start, end) = (number(start, "start")?, number(end, "end")?);
    let complex = [start, end].iter().any(|s| matches!(s, Scalar::Complex(..)));
    let dtype = dtype.unwrap_or(match complex {
        true => crate::default_dtype().to_complex(),
        false => crate::default_dtype(),
    });
    if steps > 1 || dtype != DType::Bool {
        schema::linspace.check(dtype)?;
    }
    if steps < 0 {
        return Err(Error::runtime(op, format!("number of steps must be non-negative, got {steps}")));
    }
    // What is not written need not fit: where there is one step, the end.
    let real = |s: &Scalar| !matches!(*s, Scalar::Complex(_, im) if im != 0.0);
    let written = match steps {
        0 => true,
        1 => real(&start) || dtype == DType::Bool && base.is_none(),
        _ => !complex,
    };
    if !written && !dtype.is_complex() {
        return Err(Error::dtype(op, "complex ends cannot be cast to a real dtype", &[dtype]));
    }
    let n = sizes(op, &[steps as isize])?[0];
    if dtype == DType::Bool {
        let first = base.map_or(start, |base| Scalar::Float(base.powf(start.to_f64())));
        return Tensor::full_of(&[n], first, dtype, device.unwrap_or(crate::default_device()));
    }
    // Bytes take negative integers, which wrap.
    let wrapped = |s: Scalar| match (s, dtype) {
        (Scalar::Int(i @ -255..0), DType::U8) if steps > 1 || base.is_none() => Scalar::Int(i + 256),
        (Scalar::Complex(re, _), dtype) if steps <= 1 && !dtype.is_complex() => Scalar::Float(re),
        _ => s,
    };
    let (start, end) = (wrapped(start), wrapped(end));
    let holds = |s: &Scalar| match (*s, dtype) {
        (Scalar::Complex(..), _) => true,
        (s, DType::F16) => !s.to_f64().is_finite() || s.to_f64().abs() <= 65504.0,
        (s, DType::F32) => s.converts(DType::F32),
        (s, dtype) => s.fits(dtype),
    };
    let ends: &[Scalar] = if steps > 1 { &[start, end] } else { &[] };
    if let Some(odd) = ends.iter().find(|s| !holds(s)) {
        return Err(Error::runtime(op, format!("value {odd} cannot be converted to {dtype} without overflow")));
    }
    if n == 1 && !dtype.is_complex() {
        // One number is filled in, and has to fit.
        let first = base.map_or(start, |base| Scalar::Float(base.powf(start.to_f64())));
        if !dtype.is_half() {
            check_held(op, first, dtype)?;
        }
        return Tensor::full_of(&[1], first, dtype, device.unwrap_or(crate::default_device()));
    }
    create(CreateOp::Linspace { start, end, base }, &[n], dtype, device.unwrap_or(crate::default_device()))
}

fn logspace_body(
    start: Operand<'_>,
    end: Operand<'_>,
    steps: i64,
    base: f64,
    dtype: Option<DType>,
    device: Option<Device>,
) -> Result<Tensor> {
    spaced("logspace", Some(base), start, end, steps, dtype, device)
}

fn triangle_indices(
    lower: bool,
    row: i64,
    col: i64,
    offset: i64,
    dtype: Option<DType>,
    device: Option<Device>,
) -> Result<Tensor> {
    let op = if lower { "tril_indices" } else { "triu_indices" };
    if let Some(other) = dtype.filter(|&d| !matches!(d, DType::I32 | DType::I64)) {
        return Err(Error::dtype(op, format!("makes indices of int32 or int64, not {other}"), &[other]));
    }
    if row < 0 || col < 0 {
        return Err(Error::runtime(op, format!("row and col must be non-negative, got {row} and {col}")));
    }
    // The columns of each row; counted first, so that a size without memory is an error.
    let span = |r: i64| {
        let edge = r.saturating_add(offset);
        if lower {
            (0, edge.saturating_add(1).clamp(0, col))
        } else {
            (edge.clamp(0, col), col)
        }
    };
    let filled = if col == 0 { 0 } else { row };
    let rows = || 0..filled;
    sizes(op, &[row as isize, col as isize, 2])?;
    let total: i64 = rows().map(|r| span(r).1 - span(r).0).sum();
    let n = sizes(op, &[total as isize, 2])?[0];
    let mut places = room(op, 2 * n)?;
    rows().for_each(|r| places.extend((span(r).0..span(r).1).map(|_| r)));
    rows().for_each(|r| places.extend(span(r).0..span(r).1));
    let made = Tensor::of_elements(&places, &[2, n], device.unwrap_or(crate::default_device()))?;
    made.cast(dtype.unwrap_or(DType::I64))
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
        let zeros = |shape: &[usize]| Tensor::full_of(shape, Scalar::ZERO, self.dtype(), self.device());
        match self.layout().is_contiguous() || self.is_batched() {
            true => zeros(self.shape()),
            false => self.like_in("zeros_like", crate::MemoryFormat::Preserve, zeros),
        }
    }
}
