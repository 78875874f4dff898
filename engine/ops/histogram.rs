//! Counting elements in bins: the bodies of `bincount`, `histc` and the histograms.

use super::sort::search_rows;
use super::{search, Operand};
use crate::fallible::{ensure_room, filled, with_capacity, TENSOR};
use crate::shape::Shape;
use crate::{DType, Error, Result, Scalar, Tensor};
use smallvec::SmallVec;

pub(super) fn bincount_body(x: &Tensor, weights: Option<&Tensor>, minlength: i64) -> Result<Tensor> {
    const OP: &str = "bincount";
    search::schema::bincount.check(x.dtype())?;
    let fail = |why: &str| Err(Error::runtime(OP, why));
    if minlength < 0 {
        return fail("minlength should be >= 0");
    }
    if x.ndim() != 1 {
        return fail("only supports 1-d non-negative integral inputs.");
    }
    if weights.is_some_and(|w| w.shape() != x.shape()) {
        return fail("weights should be 1-d and have the same length as input");
    }
    let (x, device) = (x.detach()?.cast(DType::I64)?, x.device());
    let mut size = minlength;
    if x.numel() > 0 {
        let (least, most) = (x.amin(None, false)?.item()?.to_i64(), x.amax(None, false)?.item()?.to_i64());
        if least < 0 {
            return fail("only supports 1-d non-negative integral inputs.");
        }
        size = size.max(most.saturating_add(1));
    }
    let shape = super::create::sizes(OP, &[size as isize])?;
    let given = weights;
    let (weights, dtype) = match weights {
        None => (Tensor::full_of(x.shape(), Scalar::ONE, DType::I64, device)?, DType::I64),
        Some(w) => {
            let dtype = match (w.dtype(), device) {
                (DType::F32, _) | (_, crate::Device::Gpu) => DType::F32,
                (_, crate::Device::Cpu | crate::Device::Meta) => DType::F64,
            };
            (w.detach()?.cast(dtype)?, dtype)
        }
    };
    let zeros = Tensor::full_of(&shape, Scalar::ZERO, dtype, device)?;
    if x.numel() == 0 {
        return Ok(zeros);
    }
    let counts = zeros.scatter_add(0, &x, &weights)?;
    if let Some(weights) = given {
        crate::autograd::refusing(OP, &counts, "NotImplemented", &[weights], || underivable(OP))?;
    }
    Ok(counts)
}

/// The ends of a histogram, as numbers: those given, else the least and the largest element. Evaluates in the latter case.
fn ends_of(op: &'static str, x: &Tensor, given: Option<(f64, f64)>) -> Result<(f64, f64)> {
    let (mut low, mut high) = match given {
        Some(ends) => ends,
        None if x.numel() == 0 => (0.0, 1.0),
        None => (x.amin(None, false)?.item_f64()?, x.amax(None, false)?.item_f64()?),
    };
    if low == high {
        (low, high) = (
            low - 0.5 - 0.5 * f64::from(u8::from(op == "histc")),
            high + 0.5 + 0.5 * f64::from(u8::from(op == "histc")),
        );
    }
    if !(low.is_finite() && high.is_finite()) {
        return Err(Error::runtime(op, format!("range of [{low}, {high}] is not finite")));
    }
    if low > high {
        return Err(Error::runtime(op, format!("max must be larger than min, got [{low}, {high}]")));
    }
    Ok((low, high))
}

pub(super) fn histc_body(x: &Tensor, bins: i64, min: Scalar, max: Scalar) -> Result<Tensor> {
    search::schema::histc.check(x.dtype())?;
    if bins <= 0 {
        return Err(Error::runtime("histc", "bins must be > 0"));
    }
    if let Some(odd) = [min, max].iter().find(|s| !s.fits(x.dtype())) {
        return Err(Error::runtime(
            "histc",
            format!("value {odd} cannot be converted to {} without overflow", x.dtype()),
        ));
    }
    let size = super::create::sizes("histc", &[bins as isize])?;
    let (min, max) = (min.to_f64(), max.to_f64());
    let x = x.detach()?.reshape(&[-1])?;
    let given = if min == max && x.numel() > 0 { None } else { Some((min, max)) };
    if x.device() == crate::Device::Meta {
        return Tensor::full_of(&size, Scalar::ZERO, x.dtype(), x.device());
    }
    let (low, high) = ends_of("histc", &x, given)?;
    // Which bin, in the elements' own precision, as PyTorch computes it.
    let float = if x.dtype().is_float() { x.clone() } else { x.cast(DType::F32)? };
    let (low, high) = match float.dtype() {
        DType::F32 => (f64::from(low as f32), f64::from(high as f32)),
        _ => (low, high),
    };
    let held = |number: f64| Tensor::constant(number.into(), float.dtype(), x.device());
    let place = float.sub(low, Scalar::ONE)?.mul(&held(bins as f64)?)?.div(&held(high - low)?, None)?.floor()?;
    let inside = float.ge(low)?.logical_and(&float.le(high)?)?;
    let place = place.where_else_zero(&inside)?.cast(DType::I64)?.clamp(Some(0.into()), Some((bins - 1).into()))?;
    let zeros = Tensor::full_of(&size, Scalar::ZERO, DType::I64, x.device())?;
    if x.numel() == 0 {
        return zeros.cast(x.dtype());
    }
    zeros.scatter_add(0, &place, &inside.cast(DType::I64)?)?.cast(x.dtype())
}

pub(super) fn histogram_body(
    x: &Tensor,
    bins: Operand<'_>,
    range: Option<&[f64]>,
    weight: Option<&Tensor>,
    density: bool,
) -> Result<(Tensor, Tensor)> {
    const OP: &str = "histogram";
    search::schema::histogram.check(x.dtype())?;
    let bins = match bins {
        Operand::Scalar(s @ (Scalar::Bool(_) | Scalar::Float(_) | Scalar::Complex(..))) => {
            return Err(Error::kind(OP, format!("argument 'bins' must be int or Tensor, not {s}")));
        }
        Operand::Tensor(_) if range.is_some() => {
            return Err(Error::kind(OP, "'range' goes with a number of bins, not with their edges"));
        }
        Operand::Scalar(s) => Tensor::constant(s, DType::I64, x.device())?,
        Operand::Tensor(t) => t.clone(),
    };
    if weight.is_some_and(|w| w.shape() != x.shape()) {
        let why = "if weight tensor is provided it should have the same shape as the input tensor";
        return Err(Error::runtime("histogram", why));
    }
    let (own, bins) = (weight, [bins]);
    let weight = weight.map(|w| w.reshape(&[-1])).transpose()?;
    let points = x.reshape(&[-1, 1])?;
    let (counts, mut edges) = histogramdd_of("histogram", &points, &bins, range, weight.as_ref(), density)?;
    match edges.pop() {
        Some(edges) => {
            let inputs: SmallVec<[&Tensor; 3]> = [Some(x), bins.first(), own].into_iter().flatten().collect();
            for made in [&counts, &edges] {
                let why = || underivable("histogram");
                crate::autograd::refusing("histogram", made, "NotImplemented", &inputs, why)?;
            }
            Ok((counts, edges))
        }
        None => Err(Error::runtime("histogram", "has no edges")),
    }
}

pub(super) fn histogramdd_body(
    x: &Tensor,
    bins: &[Tensor],
    range: Option<&[f64]>,
    weight: Option<&Tensor>,
    density: bool,
) -> Result<(Tensor, Vec<Tensor>)> {
    search::schema::histogramdd.check(x.dtype())?;
    if x.ndim() < 2 {
        return Err(Error::shape("histogramdd", "input tensor should have at least 2 dimensions", &[x.shape()]));
    }
    let d = x.shape()[x.ndim() - 1];
    let points = x.reshape(&[-1, d as isize])?;
    if weight.is_some_and(|w| w.numel() != points.shape()[0]) {
        let why = "if weight tensor is provided it should have the same shape as the input tensor excluding its innermost dimension";
        return Err(Error::runtime("histogramdd", why));
    }
    let own = weight;
    let weight = weight.map(|w| w.reshape(&[-1])).transpose()?;
    let (counts, edges) = histogramdd_of("histogramdd", &points, bins, range, weight.as_ref(), density)?;
    let inputs: SmallVec<[&Tensor; 4]> = std::iter::once(x).chain(bins).chain(own).collect();
    let why = || underivable("_histogramdd_from_bin_cts");
    crate::autograd::refusing("histogramdd", &counts, "NotImplemented", &inputs, why)?;
    for edges in &edges {
        let why = || underivable("_histogramdd_bin_edges");
        crate::autograd::refusing("histogramdd", edges, "NotImplemented", &inputs, why)?;
    }
    Ok((counts, edges))
}

fn underivable(torch: &'static str) -> Box<Error> {
    Error::runtime(torch, format!("derivative for aten::{torch} is not implemented"))
}

pub(super) fn histogram2d_body(
    x: &Tensor,
    y: &Tensor,
    bins: &[Tensor],
    range: Option<&[f64]>,
    density: bool,
    weights: Option<&Tensor>,
) -> Result<Vec<Tensor>> {
    if x.ndim() != 1 || x.shape() != y.shape() {
        return Err(Error::shape("histogram2d", "x and y must be vectors of one length", &[x.shape(), y.shape()]));
    }
    let ten = [Tensor::constant(Scalar::Int(10), DType::I64, x.device())?];
    let bins = if bins.is_empty() { &ten } else { bins };
    let points = super::index::stack(&[x.clone(), y.clone()], 1)?;
    let (counts, edges) = histogramdd_body(&points, bins, range, weights, density)?;
    Ok(std::iter::once(counts).chain(edges).collect())
}

/// Points (n, d) counted in a grid. Each bin has its lower end, the last one both.
fn histogramdd_of(
    op: &'static str,
    points: &Tensor,
    bins: &[Tensor],
    range: Option<&[f64]>,
    weight: Option<&Tensor>,
    density: bool,
) -> Result<(Tensor, Vec<Tensor>)> {
    let (n, d) = (points.shape()[0], points.shape()[1]);
    let (points, dtype, device) = (points.detach()?, points.dtype(), points.device());
    // Each dimension makes a dozen tensors, one by one.
    ensure_room(d, 12 * TENSOR)?;
    let bins: Vec<Tensor> = match bins {
        [one] if one.ndim() == 0 => filled(one.clone(), d)?,
        many if many.len() == d => many.to_vec(),
        many => {
            let why = format!("expected {d} sequences of bin edges or numbers of bins, got {}", many.len());
            return Err(Error::runtime(op, why));
        }
    };
    if range.is_some_and(|r| r.len() != 2 * d) {
        return Err(Error::runtime(
            op,
            format!("range should have {} elements, got {:?}", 2 * d, range.unwrap_or(&[])),
        ));
    }
    if weight.is_some_and(|w| w.dtype() != dtype) {
        let why = "if weight tensor is provided, input tensor and weight tensor should have the same dtype";
        return Err(Error::dtype(op, why, &[dtype]));
    }
    let mut edges = with_capacity(d)?;
    let mut inside = Tensor::full_of(&[n], Scalar::Bool(true), DType::Bool, device)?;
    let mut place = Tensor::full_of(&[n], Scalar::ZERO, DType::I64, device)?;
    let mut shape = Shape::new();
    for (j, bins) in bins.iter().enumerate() {
        let x = points.select(1, j as i64)?.contiguous()?;
        let own = edges_of(op, &x, bins, range.map(|r| (r[2 * j], r[2 * j + 1])))?;
        let count = own.numel() as i64 - 1;
        let at = (search_rows(&own, &x, true)? - 1i64)?;
        // The largest edge belongs to the last bin.
        let at = super::compare::select::r#where(&x.eq(&own.select(0, -1)?)?, count - 1, &at)?;
        inside = inside.logical_and(&at.ge(0)?.logical_and(&at.lt(count)?)?)?;
        place = ((place * count)? + &at)?;
        shape.push(count as usize);
        edges.push(own);
    }
    let total: usize = shape.iter().try_fold(1usize, |a, &b| a.checked_mul(b)).unwrap_or(usize::MAX);
    let size = super::create::sizes(op, &[isize::try_from(total).unwrap_or(isize::MAX)])?;
    let one = match weight {
        Some(w) => w.detach()?,
        None => Tensor::full_of(&[n], Scalar::ONE, dtype, device)?,
    };
    let mut counts = Tensor::full_of(&size, Scalar::ZERO, dtype, device)?;
    if n > 0 {
        let one = one.where_else_zero(&inside)?;
        counts = counts.index_add(0, &place.where_else_zero(&inside)?, &one, Scalar::ONE)?;
    }
    let mut counts = super::view::reshape_to(&counts, &shape)?;
    if density {
        counts = (&counts / &counts.sum(None, false, None)?)?;
        for (j, own) in edges.iter().enumerate() {
            let widths = (&own.narrow(0, 1, shape[j] as i64)? - &own.narrow(0, 0, shape[j] as i64)?)?;
            let mut line = Shape::from_elem(1, d);
            line[j] = shape[j];
            counts = (counts / &super::view::reshape_to(&widths, &line)?)?;
        }
    }
    Ok((counts, edges))
}

/// The edges of one dimension's bins: those given, or a number of equal parts.
fn edges_of(op: &'static str, x: &Tensor, bins: &Tensor, range: Option<(f64, f64)>) -> Result<Tensor> {
    if bins.ndim() == 1 {
        if bins.dtype() != x.dtype() {
            let why = "input tensor and bins tensors should have the same dtype";
            return Err(Error::dtype(op, why, &[x.dtype(), bins.dtype()]));
        }
        if bins.numel() < 2 {
            return Err(Error::shape(op, "bins tensor should have at least 2 elements", &[bins.shape()]));
        }
        return bins.detach()?.copy();
    }
    if bins.ndim() > 1 {
        return Err(Error::shape(op, "bins tensor should have one dimension", &[bins.shape()]));
    }
    let n = bins.item()?.to_i64();
    if n < 1 {
        return Err(Error::runtime(op, format!("bins must be > 0, but got {n}")));
    }
    let (low, high) = ends_of(op, x, range)?;
    super::create::linspace(low, high, n.saturating_add(1), Some(x.dtype()), Some(x.device()))
}
