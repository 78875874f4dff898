//! Order along one dimension: sorting, what stands at a rank, and searching in what is sorted.
//!
//! The primitives are the stable `argsort`, of elements, of the first of them, and of rows, and bisection; sorted values are gathered by indices, so their gradient is that
//! of `gather`. Kernels are in `cpu/sort.rs` and `mlx/sort.rs`. NaN is the largest number, as in PyTorch.

use super::compare::select::r#where;
use super::macros::define_ops;
use super::Operand;
use crate::dispatch::{self, Meta, Prim};
use crate::shape::{self, Layout, Shape};
use crate::{DType, Error, Result, Scalar, Tensor};
pub use lucid_ir::ops::sort::*;
use lucid_ir::sort_ops;

sort_ops!(define_ops);

fn argsort_body(x: &Tensor, dim: isize, descending: bool, _stable: bool) -> Result<Tensor> {
    schema::argsort.check(x.dtype())?;
    let axis = shape::wrap_dim("argsort", dim, x.ndim())?;
    if x.ndim() == 0 {
        return x.zeros_like()?.cast(DType::I64);
    }
    dispatch::apply1(
        Prim::Sort(SortOp::ArgSort { axis, descending }),
        &[&x.detach()?],
        Meta::new(x.shape(), DType::I64),
    )
}

fn first_body(x: &Tensor, k: i64, dim: isize, descending: bool, start: i64) -> Result<Tensor> {
    let schema = &schema::first_of_argsort;
    schema.check(x.dtype())?;
    let axis = shape::wrap_dim(schema.name, dim, x.ndim())?;
    let Some(&n) = x.shape().get(axis) else {
        return Err(Error::shape(schema.name, "takes a tensor of one dimension at least", &[x.shape()]));
    };
    let Some(k) = usize::try_from(k).ok().filter(|&k| k <= n) else {
        let why = format!("selected index k out of range: k is {k}, dimension {axis} has {n} elements");
        return Err(Error::runtime(schema.name, why));
    };
    let Some(start) = usize::try_from(start).ok().filter(|&start| start <= k) else {
        let why = format!("start {start} out of range: the first {k} are asked for");
        return Err(Error::runtime(schema.name, why));
    };
    let mut shape = Shape::from_slice(x.shape());
    shape[axis] = k - start;
    let meta = Meta { shape, dtype: DType::I64 };
    dispatch::apply1(Prim::Sort(SortOp::ArgFirst { axis, descending, start, k }), &[&x.detach()?], meta)
}

fn argsort_rows_body(x: &Tensor) -> Result<Tensor> {
    schema::argsort_rows.check(x.dtype())?;
    let [lead @ .., n, _] = x.shape() else {
        return Err(Error::shape("argsort_rows", "takes matrices", &[x.shape()]));
    };
    let shape: Shape = lead.iter().chain([n]).copied().collect();
    let meta = Meta { shape, dtype: DType::I64 };
    dispatch::apply1(Prim::Sort(SortOp::ArgSortRows), &[&x.detach()?], meta)
}

fn search_body(rows: &Tensor, values: &Tensor, right: bool) -> Result<Tensor> {
    schema::search_rows.check(rows.dtype())?;
    let lead = |t: &Tensor| t.shape().split_last().map(|(_, lead)| Shape::from_slice(lead));
    let same = rows.ndim() == 1 || (rows.ndim() == values.ndim() && lead(rows) == lead(values));
    if rows.ndim() == 0 || !same || rows.dtype() != values.dtype() {
        let why = "values must be of the rows' dtype, and in as many rows, unless there is one row";
        return Err(Error::shape("search_rows", why, &[rows.shape(), values.shape()]));
    }
    let inputs = [&rows.detach()?, &values.detach()?];
    dispatch::apply1(Prim::Sort(SortOp::Search { right }), &inputs, Meta::new(values.shape(), DType::I64))
}

fn sort_body(x: &Tensor, dim: isize, descending: bool, stable: bool) -> Result<(Tensor, Tensor)> {
    let indices = x.argsort(dim, descending, stable)?;
    // PyTorch scatters gradients into row-major zeros.
    let _lies = crate::autograd::GradLayoutGuard::set(crate::autograd::GradLayoutRule::RowMajor);
    if indices.layout().is_contiguous() || indices.is_batched() {
        return Ok((x.gather(dim, &indices)?, indices));
    }
    // The indices have the layout of the input, and so do the values.
    let axis = shape::wrap_dim("sort", dim, x.ndim())?;
    let Layout { shape, strides, .. } = indices.layout();
    let values = crate::format::in_memory_order(shape, strides, |order| {
        let at = order.iter().position(|&a| a == axis).unwrap_or(axis);
        super::view::permute_axes(x, order)?.gather(at as isize, &super::view::permute_axes(&indices, order)?)
    })?;
    Ok((values, indices))
}

fn msort_body(x: &Tensor) -> Result<Tensor> {
    sort_body(x, 0, false, true).map(|(values, _)| values)
}

/// The size of a dimension; a 0-d tensor has one of 1.
fn length(x: &Tensor, axis: usize) -> usize {
    x.shape().get(axis).copied().unwrap_or(1)
}

fn topk_body(x: &Tensor, k: i64, dim: isize, largest: bool, _sorted: bool) -> Result<(Tensor, Tensor)> {
    schema::topk.check(x.dtype())?;
    let axis = shape::wrap_dim("topk", dim, x.ndim())?;
    let n = length(x, axis);
    if k < 0 || k as usize > n {
        let why = format!("selected index k out of range: k is {k}, dimension {axis} has {n} elements");
        return Err(Error::runtime("topk", why));
    }
    if x.ndim() == 0 {
        return one_alone(x);
    }
    let indices = first_of_argsort(x, k, dim, largest, 0)?;
    Ok((x.gather(dim, &indices)?, indices))
}

/// The elements at `at`, which has size 1 along `dim`, with that dimension kept or not.
fn picked(x: &Tensor, dim: isize, at: Tensor, keepdim: bool) -> Result<(Tensor, Tensor)> {
    let values = x.gather(dim, &at)?;
    if keepdim || x.ndim() == 0 {
        return Ok((values, at));
    }
    Ok((values.squeeze(Some(&[dim]))?, at.squeeze(Some(&[dim]))?))
}

/// Zeros in the shape of a reduction along `axis`, which is kept with one element.
fn first_of_each(x: &Tensor, axis: usize) -> Result<Tensor> {
    let mut shape = Shape::from_slice(x.shape());
    shape[axis] = 1;
    Tensor::full_of(&shape, Scalar::ZERO, DType::I64, x.device())
}

fn kthvalue_body(x: &Tensor, k: i64, dim: isize, keepdim: bool) -> Result<(Tensor, Tensor)> {
    let axis = shape::wrap_dim("kthvalue", dim, x.ndim())?;
    let n = length(x, axis);
    refuse_nothing("kthvalue", x, axis)?;
    if k < 1 || k as usize > n {
        let why = format!("selected number k out of range for dimension {axis}: k is {k}, of {n} elements");
        return Err(Error::runtime("kthvalue", why));
    }
    if x.ndim() == 0 {
        return one_alone(x);
    }
    schema::kthvalue.check(x.dtype())?;
    let at = first_of_argsort(x, k, dim, false, k - 1)?;
    picked(x, dim, at, keepdim)
}

/// Refuses a dimension without elements, of which none can be chosen.
fn refuse_nothing(op: &'static str, x: &Tensor, axis: usize) -> Result<()> {
    if length(x, axis) > 0 {
        return Ok(());
    }
    let why = format!("Expected reduction dim {axis} to have non-zero size (shape: {:?})", x.shape());
    Err(Error::index(op, why))
}

/// The one element of a tensor without dimensions, and its place. It is of any dtype: nothing is compared.
fn one_alone(x: &Tensor) -> Result<(Tensor, Tensor)> {
    Ok((x.copy()?, x.zeros_like()?.cast(DType::I64)?))
}

/// How many elements along `dim` are NaN, with that dimension kept; NaN is last in order.
fn count_nan(x: &Tensor, dim: isize) -> Result<Tensor> {
    x.detach()?.isnan()?.sum(Some(&[dim]), true, None)
}

/// Is there surely no NaN? Asked on the CPU alone, where nothing waits for the answer, and not within a graph.
fn has_no_nan(x: &Tensor) -> Result<bool> {
    let asked = x.device() == crate::Device::Cpu && !crate::graph::recording();
    Ok(asked && crate::batching::everywhere(&x.detach()?.isnan()?.logical_not()?.all(None, false)?)?)
}

fn median_body(skip: bool, x: &Tensor, dim: Option<isize>, keepdim: bool) -> Result<(Tensor, Option<Tensor>)> {
    let op = if skip { "nanmedian" } else { "median" };
    let Some(dim) = dim else { return median_of_all(skip, x).map(|m| (m, None)) };
    let axis = shape::wrap_dim(op, dim, x.ndim())?;
    let n = length(x, axis) as i64;
    refuse_nothing(op, x, axis)?;
    schema::median.check(x.dtype())?;
    let middle = || first_of_argsort(x, (n + 1) / 2, dim, false, (n - 1) / 2);
    let at = if x.ndim() == 0 {
        x.argsort(dim, false, true)?
    } else if !x.dtype().is_float() || skip && has_no_nan(x)? {
        middle()?
    } else if skip {
        // Of nothing but NaN the first.
        let place = ((-&count_nan(x, dim)?)? + (n - 1))?.clamp(Some(0.into()), None)?.floor_divide(2)?;
        x.argsort(dim, false, true)?.gather(dim, &place)?
    } else {
        let nan = x.detach()?.isnan()?;
        r#where(&nan.any(Some(&[dim]), true)?, &nan.cast(DType::U8)?.argmax(Some(dim), true)?, &middle()?)?
    };
    picked(x, dim, at, keepdim).map(|(values, indices)| (values, Some(indices)))
}

/// The median of all elements: its equals share the gradient, as in PyTorch.
fn median_of_all(skip: bool, x: &Tensor) -> Result<Tensor> {
    let flat = x.reshape(&[-1])?;
    if flat.numel() == 0 {
        let nothing = match x.dtype() {
            DType::Bool => Scalar::Bool(true),
            d if d.is_integral() => Scalar::Int(i64::MIN),
            _ => Scalar::Float(f64::NAN),
        };
        return Tensor::constant(nothing, x.dtype(), x.device());
    }
    let (value, _) = median_body(skip, &flat.detach()?, Some(0), false)?;
    if !crate::autograd::is_followed(&flat) {
        return Ok(value);
    }
    // Where the median is NaN, what is NaN shares it.
    let none = flat.detach()?.isnan()?.logical_and(&value.isnan()?)?;
    let equal = flat.detach()?.eq(&value)?.logical_or(&none)?;
    r#where(&equal, &flat, Scalar::Float(f64::NEG_INFINITY))?.amax(None, false)
}

fn mode_body(x: &Tensor, dim: isize, keepdim: bool) -> Result<(Tensor, Tensor)> {
    let axis = shape::wrap_dim("mode", dim, x.ndim())?;
    refuse_nothing("mode", x, axis)?;
    if x.ndim() == 0 {
        return one_alone(x);
    }
    let n = x.shape()[axis] as i64;
    if let Err(refused) = schema::mode.check(x.dtype()) {
        return if x.numel() == 0 { picked(x, dim, first_of_each(x, axis)?, keepdim) } else { Err(refused) };
    }
    let order = x.argsort(dim, false, true)?;
    let sorted = x.detach()?.gather(dim, &order)?;
    let mut line = Shape::from_elem(1, x.ndim());
    line[axis] = n as usize;
    let place = super::view::reshape_to(&super::create::arange_of(n as usize, x.device())?, &line)?;
    let place = super::view::expand_to(&place, x.shape())?;
    let starts = if n == 1 {
        place.clone()
    } else {
        // Where an element differs from the one before, a run begins.
        let (this, last) = (sorted.narrow(dim, 1, n - 1)?, sorted.narrow(dim, 0, n - 1)?);
        let rest = place.narrow(dim, 1, n - 1)?.where_else_zero(&this.ne(&last)?)?;
        super::index::cat(&[place.narrow(dim, 0, 1)?, rest], dim)?.cummax(dim)?.0
    };
    let longest = (&place - &starts)?.argmax(Some(dim), true)?;
    picked(x, dim, order.gather(dim, &longest)?, keepdim)
}

/// The dimensions of a quantile as one, the last; and the shape of what is left, with the reduced ones kept as 1 or not.
fn reduced_last(op: &'static str, x: &Tensor, dim: Option<&[isize]>, keepdim: bool) -> Result<(Tensor, Shape)> {
    let axes = match dim {
        None => (0..x.ndim()).collect(),
        Some(dims) => shape::wrap_dims(op, dims, x.ndim())?,
    };
    if x.ndim() == 0 {
        return Ok((x.reshape(&[1])?, Shape::new()));
    }
    let mut order: shape::Axes = (0..x.ndim()).filter(|a| !axes.contains(a)).collect();
    let mut lead: Shape = order.iter().map(|&a| x.shape()[a]).collect();
    order.extend_from_slice(&axes);
    lead.push(crate::shape::product(axes.iter().map(|&a| x.shape()[a])));
    let moved = super::view::permute_axes(x, &order)?;
    Ok((super::view::reshape_to(&moved, &lead)?, shape::reduced_shape(x.shape(), &axes, keepdim)))
}

fn quantile_body(
    skip: bool,
    x: &Tensor,
    q: Operand<'_>,
    dim: Option<isize>,
    keepdim: bool,
    interpolation: &str,
) -> Result<Tensor> {
    let dim = dim.as_ref().map(std::slice::from_ref);
    let op = if skip { "nanquantile" } else { "quantile" };
    if !matches!(x.dtype(), DType::F32 | DType::F64) {
        return Err(Error::dtype(op, "input tensor must be either float or double dtype", &[x.dtype()]));
    }
    if !matches!(interpolation, "linear" | "lower" | "higher" | "midpoint" | "nearest") {
        let why =
            format!("interpolation must be one of linear, lower, higher, midpoint or nearest, but got {interpolation}");
        return Err(Error::runtime(op, why));
    }
    if x.numel() == 0 {
        return Err(Error::shape(op, "input tensor must be non-empty", &[x.shape()]));
    }
    let q = match q {
        Operand::Scalar(s) => Tensor::constant(Scalar::Float(s.to_f64()), x.dtype(), x.device())?,
        Operand::Tensor(q) if q.dtype() != x.dtype() => {
            return Err(Error::dtype(op, "q tensor must be same dtype as the input tensor", &[x.dtype(), q.dtype()]))
        }
        Operand::Tensor(q) if q.ndim() > 1 => {
            return Err(Error::shape(op, "q must be a scalar or 1D tensor", &[q.shape()]))
        }
        // Only between two elements does the place matter.
        Operand::Tensor(q) if interpolation != "linear" => q.detach()?,
        Operand::Tensor(q) => q.clone(),
    };
    // Under vmap, and of meta tensors, nothing can be read, and so nothing refused.
    let readable = !q.is_batched() && q.device() != crate::Device::Meta;
    if readable && !q.detach()?.ge(0)?.logical_and(&q.detach()?.le(1)?)?.all(None, false)?.item_bool()? {
        return Err(Error::runtime(op, "q values must be in the range [0, 1]"));
    }
    let (rows, left) = reduced_last(op, x, dim, keepdim)?;
    let n = rows.shape().last().copied().unwrap_or(1);
    let sorted = sort_body(&rows, -1, false, true)?.0;
    let nans = count_nan(&rows, -1)?;
    // Places (…, q) of the rows (…, n).
    let place = match skip {
        true => q.mul(&((-&nans)? + (n as i64 - 1))?.clamp(Some(0.into()), None)?.cast(q.dtype())?)?,
        false => {
            let place = super::view::expand_to(&q.mul((n - 1) as f64)?.reshape(&[-1])?, &wide(&rows, q.numel()))?;
            r#where(&nans.eq(0)?, &place, Scalar::Float((n - 1) as f64))?
        }
    };
    let place = match interpolation {
        "lower" => place.floor()?,
        "higher" => place.ceil()?,
        "nearest" => place.round(0)?,
        _ => place,
    };
    let at = |p: &Tensor| sorted.gather(-1, &p.detach()?.cast(DType::I64)?);
    let below = place.floor()?;
    let mut values = at(&below)?;
    if matches!(interpolation, "linear" | "midpoint") {
        let above = at(&place.ceil()?)?;
        let weight =
            if interpolation == "midpoint" { ((&place * 0.0)? + 0.5)? } else { (&place - &below.detach()?)? };
        let (span, rest) = ((&above - &values)?, (1.0 - &weight)?);
        // From the nearer end, as PyTorch's `lerp`.
        let near = (&values + &(&span * &weight)?)?;
        values = r#where(&weight.detach()?.lt(0.5)?, &near, &(&above - &(&span * &rest)?)?)?;
    }
    // (…, q) to (q, …).
    if q.ndim() == 0 {
        return super::view::reshape_to(&values, &left);
    }
    let mut whole: Shape = left;
    whole.insert(0, q.numel());
    super::view::reshape_to(&values.movedim(&[-1], &[0])?, &whole)
}

/// The rows' leading dimensions and `n`.
fn wide(rows: &Tensor, n: usize) -> Shape {
    let mut shape = Shape::from_slice(rows.shape());
    shape.pop();
    shape.push(n);
    shape
}

fn extremum_dim(largest: bool, x: &Tensor, dim: isize, keepdim: bool) -> Result<(Tensor, Tensor)> {
    if x.dtype().is_complex() {
        // The dimension is looked at before the dtype.
        refuse_nothing("max", x, shape::wrap_dim("max", dim, x.ndim())?)?;
    }
    let order = if x.dtype() == DType::Bool { x.cast(DType::U8)? } else { x.clone() };
    let at = if largest { order.argmax(Some(dim), true)? } else { order.argmin(Some(dim), true)? };
    picked(x, dim, at, keepdim)
}

impl Tensor {
    /// The largest element along `dim` and its index: see [`max_dim`].
    pub fn max_dim(&self, dim: isize, keepdim: bool) -> Result<(Tensor, Tensor)> {
        max_dim(self, dim, keepdim)
    }

    /// The smallest element along `dim` and its index: see [`min_dim`].
    pub fn min_dim(&self, dim: isize, keepdim: bool) -> Result<(Tensor, Tensor)> {
        min_dim(self, dim, keepdim)
    }
}
