//! Reductions over any dimensions, and the statistics made of them.
//!
//! Kernels are in `cpu/reduce.rs` and `mlx/reduce.rs`; they get the wrapped axes and whether to keep them.

use super::macros::define_ops;
use crate::autograd::{self, Ctx};
use crate::batching::everywhere;
use crate::dispatch::{self, Meta, Prim};
use crate::graph::OnePass;
use crate::ops::OpRow;
use crate::shape::{self, product, Axes, Sizes};
use crate::{DType, Device, Error, Result, Tensor};
pub use lucid_ir::ops::reduce::*;
use lucid_ir::reduce_ops;
use smallvec::SmallVec;

reduce_ops!(define_ops);

pub(crate) fn axes_of(op: &'static str, dim: Option<&[isize]>, x: &Tensor) -> Result<Axes> {
    match dim {
        // PyTorch reads an empty list as every dimension.
        None | Some([]) => Ok(shape::every_axis(x.ndim())),
        Some(dims) if x.ndim() == 0 => shape::wrap_dims(op, dims, 0).map(|_| Axes::new()),
        Some(dims) => {
            // One that does not exist is named before one that comes twice.
            dims.iter().try_for_each(|&dim| shape::wrap_dim(op, dim, x.ndim()).map(drop))?;
            shape::wrap_dims(op, dims, x.ndim())
        }
    }
}

fn reduce(op: ReduceOp, x: &Tensor, axes: Axes, keepdim: bool, dtype: DType) -> Result<Tensor> {
    let shape = shape::reduced_shape(x.shape(), &axes, keepdim);
    dispatch::apply1(Prim::Reduce(op, Reduction { axes, keepdim }), &[x], Meta { shape, dtype })
}

fn sum_body(op: ReduceOp, x: &Tensor, dim: Option<&[isize]>, keepdim: bool, dtype: Option<DType>) -> Result<Tensor> {
    let schema = op.schema();
    let dtype = dtype.unwrap_or(schema.result.of(x.dtype()));
    crate::warnings::of_cast(x.dtype(), dtype);
    // The CPU's kernel widens integers as it reads them.
    let widens = dtype == DType::I64 && matches!(op, ReduceOp::Sum) && is_plain(x);
    let cast = (dtype != x.dtype() && !widens).then(|| x.cast(dtype)).transpose()?;
    let x = cast.as_ref().unwrap_or(x);
    schema.check(dtype)?;
    reduce(op, x, axes_of(schema.name, dim, x)?, keepdim, dtype)
}

/// Are these small integers of the CPU, outside of graphs and transforms?
fn is_plain(x: &Tensor) -> bool {
    let narrow = matches!(x.dtype(), DType::Bool | DType::U8 | DType::I8 | DType::I16 | DType::I32);
    narrow && x.device() == Device::Cpu && x.storage().is_array() && !crate::graph::recording()
}

fn sum_of_squares_body(x: &Tensor, dim: Option<&[isize]>, keepdim: bool) -> Result<Tensor> {
    let schema = &schema::sum_of_squares;
    schema.check(x.dtype())?;
    reduce(ReduceOp::SumOfSquares, x, axes_of(schema.name, dim, x)?, keepdim, x.dtype())
}

fn prod_body(x: &Tensor, dim: Option<isize>, keepdim: bool, dtype: Option<DType>) -> Result<Tensor> {
    sum_body(ReduceOp::Prod, x, dim.as_ref().map(std::slice::from_ref), keepdim, dtype)
}

fn extremum(op: ReduceOp, x: &Tensor, dim: Option<&[isize]>, keepdim: bool) -> Result<Tensor> {
    let schema = op.schema();
    let axes = match axes_of(schema.name, dim, x) {
        Ok(axes) => axes,
        // One that comes twice is named behind one without elements.
        Err(twice) if x.ndim() == 0 => return Err(twice),
        Err(twice) => {
            let each = dim.unwrap_or_default().iter().map(|&d| shape::wrap_dim(schema.name, d, x.ndim()));
            refuse_empty(schema.name, x, &each.collect::<Result<Axes>>()?)?;
            return Err(twice);
        }
    };
    if dim.is_none_or(<[isize]>::is_empty) && x.numel() == 0 {
        let why = "Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the 'dim' argument.";
        return Err(Error::runtime(schema.name, why));
    }
    refuse_empty(schema.name, x, &axes)?;
    if let Err(refused) = schema.check(x.dtype()) {
        let nothing = x.numel() == 0;
        return if nothing { x.sum(dim, keepdim, Some(x.dtype())) } else { Err(refused) };
    }
    reduce(op, x, axes, keepdim, x.dtype())
}

fn refuse_empty(op: &'static str, x: &Tensor, axes: &[usize]) -> Result<()> {
    match axes.iter().find(|&&a| x.shape()[a] == 0) {
        Some(a) => {
            let why = format!("Expected reduction dim {a} to have non-zero size");
            Err(Error::index(op, format!("{why} (shape: {:?})", x.shape())))
        }
        None => Ok(()),
    }
}

fn logical(op: ReduceOp, x: &Tensor, dim: Option<&[isize]>, keepdim: bool) -> Result<Tensor> {
    // As in PyTorch, of uint8 the result is uint8, and an empty list means no dimension here.
    let result = if x.dtype() == DType::U8 { DType::U8 } else { DType::Bool };
    let x = x.detach()?.cast(DType::Bool)?;
    if dim.is_some_and(<[isize]>::is_empty) {
        return x.cast(result);
    }
    let axes = axes_of(op.name(), dim, &x)?;
    reduce(op, &x, axes, keepdim, DType::Bool)?.cast(result)
}

fn arg_extremum(op: ReduceOp, x: &Tensor, dim: Option<isize>, keepdim: bool) -> Result<Tensor> {
    let schema = op.schema();
    schema.check(x.dtype())?;
    let x = x.detach()?;
    if dim.is_none() {
        refuse_empty(schema.name, &x, &(0..x.ndim()).collect::<Axes>())?;
        let flat = reduce(op, &x.reshape(&[-1])?, Axes::from_slice(&[0]), false, DType::I64)?;
        return if keepdim { flat.reshape(&Sizes::from_elem(1, x.ndim())) } else { Ok(flat) };
    }
    let axes = axes_of(schema.name, dim.as_ref().map(std::slice::from_ref), &x)?;
    if axes.is_empty() {
        return x.zeros_like()?.cast(DType::I64);
    }
    refuse_empty(schema.name, &x, &axes)?;
    reduce(op, &x, axes, keepdim, DType::I64)
}

fn mean_body(x: &Tensor, dim: Option<&[isize]>, keepdim: bool, dtype: Option<DType>) -> Result<Tensor> {
    let dtype = dtype.unwrap_or(x.dtype());
    if dtype.is_integral() {
        let why = "could not infer output dtype. Input dtype must be either a floating point or complex dtype. Got: ";
        return Err(Error::not_implemented("mean", format!("{why}{dtype}")));
    }
    if dtype.is_half() {
        // The sum of 16-bit floats overflows, or rounds, where their mean does not.
        return mean_body(x, dim, keepdim, Some(DType::F32))?.cast(dtype);
    }
    crate::warnings::of_cast(x.dtype(), dtype);
    schema::mean.check(dtype)?;
    let x = x.cast(dtype)?;
    let n = product(axes_of("mean", dim, &x)?.iter().map(|&a| x.shape()[a]));
    let sum = {
        // PyTorch divides the gradient behind repeating it: it can be written to. Not so within other ops.
        let called = matches!(autograd::op_name(), Some("mean"));
        let _lies = called.then(|| autograd::GradLayoutGuard::set(autograd::GradLayoutRule::Dense));
        x.sum(dim, keepdim, None)?
    };
    // The mean of nothing is 0/0.
    sum.mul(1.0 / n as f64)
}

/// Warns where nothing is left to divide by.
fn check_freedom(ops: [&'static str; 2], x: &Tensor, dim: Option<&[isize]>, correction: crate::Scalar) -> Result<()> {
    let axes = axes_of(ops[0], dim, x)?;
    let left = x.shape().iter().enumerate().all(|(a, &n)| n > 0 || axes.contains(&a));
    let n = if left { product(axes.iter().map(|&a| x.shape()[a])) } else { 0 };
    crate::warnings::of_freedom(ops, n, correction.to_f64());
    Ok(())
}

fn var_body(x: &Tensor, dim: Option<&[isize]>, correction: crate::Scalar, keepdim: bool) -> Result<Tensor> {
    check_freedom(["var", "var_mean"], x, dim, correction)?;
    variance(x, dim, correction, keepdim)
}

fn variance(x: &Tensor, dim: Option<&[isize]>, correction: crate::Scalar, keepdim: bool) -> Result<Tensor> {
    if x.dtype().is_complex() {
        let of = |part: Tensor| variance(&part, dim, correction, keepdim);
        return of(super::complex::real(x)?)? + &of(super::complex::imag(x)?)?;
    }
    if !x.dtype().is_float() {
        let why = format!("std and var only support floating point dtypes. Got: {}", x.dtype());
        return Err(Error::not_implemented("var", why));
    }
    if x.dtype().is_half() {
        return variance(&x.cast(DType::F32)?, dim, correction, keepdim)?.cast(x.dtype());
    }
    let known = match crate::graph::recording() && !autograd::is_followed(x) && !crate::autocast::active() {
        true => crate::graph::recorded_values([x]),
        false => None,
    };
    let y = plain_var(x, dim, correction, keepdim)?;
    if !overflowed(x, &y) {
        return Ok(y);
    }
    let y = variance(&x.cast(DType::F64)?, dim, correction, keepdim)?.cast(x.dtype())?;
    if let Some(inputs) = known {
        let (dim, correction) = (dim.map(SmallVec::from_slice), correction.to_f64());
        crate::graph::note_composite(OnePass::Variance { dim, correction, keepdim }, &inputs, &[Some(&y)]);
    }
    Ok(y)
}

/// [`variance`] as it is without a graph, a tape or autocast, for a graph's replay.
pub(crate) fn variance_alone(x: &Tensor, dim: Option<&[isize]>, correction: f64, keepdim: bool) -> Result<Tensor> {
    crate::autocast::without(|| variance(x, dim, crate::Scalar::Float(correction), keepdim))
}

/// The mean of the squared distances from the mean, in the elements' own precision.
fn plain_var(x: &Tensor, dim: Option<&[isize]>, correction: crate::Scalar, keepdim: bool) -> Result<Tensor> {
    let n = product(axes_of("var", dim, x)?.iter().map(|&a| x.shape()[a]));
    let mean = x.mean(dim, true, None)?;
    let freedom = (n as f64 - correction.to_f64()).max(0.0);
    if !crate::autograd::is_followed(x) {
        return (x - &mean)?.square()?.sum(dim, keepdim, None)?.mul(1.0 / freedom);
    }
    // The mean passes nothing to the gradient, nor the NaN that it has beside infinities, but to the gradient's own: by
    // what the squares of the distances from a fixed point have more than those from the mean, which is 0 there.
    let fixed = mean.detach()?;
    let squares = (x - &fixed)?.square()?.sum(dim, keepdim, None)?;
    let moved = (mean - &fixed)?.filled(&fixed.isfinite()?.logical_not()?, 0.0)?.square()?;
    let moved = if keepdim { moved } else { without(x, dim, false, moved)? };
    (squares - &(moved * n as f64)?)?.mul(1.0 / freedom)
}

/// May squares have overflowed? Asked on the CPU alone, where nothing waits for the answer.
fn overflowed(x: &Tensor, y: &Tensor) -> bool {
    // A graph holds no question: what float64 gives is right in any case.
    if crate::graph::recording() {
        return x.device() == Device::Cpu && x.dtype() == DType::F32;
    }
    let finite = || everywhere(&y.detach()?.isfinite()?.all(None, false)?);
    x.device() == Device::Cpu && x.dtype() == DType::F32 && matches!(finite(), Ok(false))
}

/// On the GPU device, without float64, what makes the elements small enough to be summed and squared: the largest |x|,
/// with the reduced dimensions kept.
fn scale(x: &Tensor, dim: Option<&[isize]>) -> Result<Option<Tensor>> {
    if x.device() == Device::Cpu || axes_of("var", dim, x)?.iter().any(|&a| x.shape()[a] == 0) {
        return Ok(None);
    }
    let size = x.detach()?.abs()?.amax(dim, true)?;
    let usable = size.isfinite()?.logical_and(&size.gt(0)?)?;
    super::compare::select::r#where(&usable, &size, crate::Scalar::ONE).map(Some)
}

/// A result that has kept its dimensions, without them unless they are wanted.
fn without(x: &Tensor, dim: Option<&[isize]>, keepdim: bool, y: Tensor) -> Result<Tensor> {
    let axes = axes_of("var", dim, x)?;
    match keepdim {
        true => Ok(y),
        false => y.squeeze(Some(&axes.iter().map(|&a| a as isize).collect::<Vec<_>>())),
    }
}

fn std_body(x: &Tensor, dim: Option<&[isize]>, correction: crate::Scalar, keepdim: bool) -> Result<Tensor> {
    check_freedom(["std", "std_mean"], x, dim, correction)?;
    deviation(x, dim, correction, keepdim)
}

fn deviation(x: &Tensor, dim: Option<&[isize]>, correction: crate::Scalar, keepdim: bool) -> Result<Tensor> {
    if x.dtype().is_half() {
        // The variance overflows 16 bits where its root does not.
        return deviation(&x.cast(DType::F32)?, dim, correction, keepdim)?.cast(x.dtype());
    }
    if !x.dtype().is_float() {
        return root(&x.var(dim, correction, keepdim)?);
    }
    if let Some(size) = scale(x, dim)? {
        let y = (root(&plain_var(&(x / &size)?, dim, correction, true)?)? * &size)?;
        return without(x, dim, keepdim, y);
    }
    let y = x.var(dim, correction, keepdim)?;
    // Squares that have become 0 are as bad as those that have become infinite.
    let positive = || everywhere(&y.detach()?.ne(0)?.all(None, false)?);
    match x.dtype() == DType::F32 && (overflowed(x, &y) || matches!(positive(), Ok(false))) {
        true => root(&x.cast(DType::F64)?.var(dim, correction, keepdim)?)?.cast(x.dtype()),
        false => root(&y),
    }
}

/// The root of a variance. Where that is 0 so is its gradient, as in PyTorch.
fn root(y: &Tensor) -> Result<Tensor> {
    if !crate::autograd::is_followed(y) {
        return y.sqrt();
    }
    let zero = y.detach()?.eq(0)?;
    y.filled(&zero, 1.0)?.sqrt()?.filled(&zero, 0.0)
}

/// Elements from which on a second pass costs more than a look at a result.
const MANY: usize = 1 << 14;

fn nansum_body(x: &Tensor, dim: Option<&[isize]>, keepdim: bool, dtype: Option<DType>) -> Result<Tensor> {
    axes_of("nansum", dim, x)?;
    schema::nansum.check(x.dtype())?;
    if x.dtype().is_integral() {
        return x.sum(dim, keepdim, dtype);
    }
    if crate::autograd::is_followed(x) {
        return x.filled(&x.detach()?.isnan()?, 0.0)?.sum(dim, keepdim, dtype);
    }
    let at_once = x.device() == Device::Cpu && !x.is_batched() && !crate::graph::recording();
    if at_once && x.numel() >= MANY && dtype.is_none_or(|dtype| dtype.is_float()) {
        // Where there is none the sum says so.
        let sum = x.sum(dim, keepdim, dtype)?;
        if !sum.isnan()?.any(None, false)?.to_scalar::<bool>()? {
            return Ok(sum);
        }
    }
    // In one pass; infinities stay what they are.
    let inf = Some(f64::INFINITY);
    x.nan_to_num(Some(0.0), inf, inf.map(|i| -i))?.sum(dim, keepdim, dtype)
}

fn nanmean_body(x: &Tensor, dim: Option<&[isize]>, keepdim: bool, dtype: Option<DType>) -> Result<Tensor> {
    schema::nanmean.check(x.dtype())?;
    // NaN alone is not itself.
    let own = x.detach()?;
    let count = own.eq(&own)?.sum(dim, keepdim, None)?;
    let (wide, narrow) = match dtype.unwrap_or(x.dtype()) {
        own @ (DType::F16 | DType::BF16) => (DType::F32, own),
        own => (own, own),
    };
    (x.nansum(dim, keepdim, Some(wide))? / &count)?.cast(narrow)
}

fn aminmax_body(x: &Tensor, dim: Option<isize>, keepdim: bool) -> Result<(Tensor, Tensor)> {
    let dims = dim.as_ref().map(std::slice::from_ref);
    schema::amax.check(x.dtype())?;
    if dim.is_none() && x.numel() == 0 {
        let why = "cannot compute aminmax over an empty dimension as the operation has no identity";
        return Err(Error::runtime("aminmax", why));
    }
    Ok((x.amin(dims, keepdim)?, x.amax(dims, keepdim)?))
}

fn trace_body(x: &Tensor) -> Result<Tensor> {
    schema::trace.check(x.dtype())?;
    if x.ndim() != 2 {
        return Err(Error::shape("trace", "expected a matrix", &[x.shape()]));
    }
    x.diagonal(0, 0, 1)?.sum(None, false, None)
}

fn logsumexp_body(x: &Tensor, dim: &[isize], keepdim: bool) -> Result<Tensor> {
    let x = if x.dtype().is_integral() { x.cast(crate::default_dtype())? } else { x.clone() };
    let axes = axes_of("logsumexp", Some(dim), &x)?;
    if axes.iter().any(|&a| x.shape()[a] == 0) {
        return x.sum(Some(dim), keepdim, None)?.log();
    }
    let top = super::complex::real(&x.detach()?)?.amax(Some(dim), true)?;
    // An infinite maximum would give inf - inf.
    let top = top.where_else_zero(&top.isfinite()?)?;
    let sum = (&x - &top)?.exp()?.sum(Some(dim), true, None)?;
    let y = sum.log()? + &top;
    if keepdim {
        y
    } else {
        y?.squeeze(Some(&axes.iter().map(|&a| a as isize).collect::<Vec<_>>()))
    }
}

fn count_nonzero_body(x: &Tensor, dim: Option<&[isize]>) -> Result<Tensor> {
    x.ne(0)?.sum(dim, false, None)
}

/// The product of all the others: the result by the element, and without a division where one of them is zero.
fn prod_gradient(c: &Ctx<'_>, g: &Tensor) -> Result<Tensor> {
    let x = c.x(0)?;
    let zero = x.detach()?.eq(0)?;
    let filled = super::compare::select::r#where(&zero, crate::Scalar::ONE, &x)?;
    let plain = c.spread(&c.out()?)?.div(&filled, None)?;
    let (axes, dims) = (c.axes()?, c.reduction_dims()?);
    // Asked on the CPU alone, where nothing waits for the answer.
    let none = x.device() == Device::Cpu && matches!(zero.any(None, false)?.item_bool(), Ok(false));
    if axes.is_empty() {
        return c.spread(g);
    }
    if none {
        return c.spread(g)? * &plain.conjugated()?;
    }
    // Beside two zeros among all elements PyTorch asks no further: nothing changes the product, whatever is there.
    let two = || zero.sum(None, false, None)?.gt(1)?.item_bool();
    if axes.len() > 1 && x.device() == Device::Cpu && matches!(two(), Ok(true)) {
        return x.zeros_like();
    }
    let any = c.spread(&zero.any(Some(&dims), c.keeps_dims())?)?;
    // Where there is no zero, the products of what is before and behind may overflow, and are not needed.
    let safe = super::compare::select::r#where(&any, &x, crate::Scalar::ONE)?;
    let rest = match axes.len() {
        1 => super::scan::product_of_others(&safe, axes[0])?,
        _ => super::view::reshape_to(&super::scan::product_of_others(&safe.reshape(&[-1])?, 0)?, x.shape())?,
    };
    c.spread(g)? * &super::compare::select::r#where(&any, &rest, &plain)?.conjugated()?
}
