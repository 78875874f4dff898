//! Primitives that reduce, move, compare positions or multiply matrices, in terms of the smallest set.
//!
//! Reading by index is a sum over products with `position = index`, which is 1 in one place; windows are overlapping views.
//! Depends on [`elements`](super::elements) and on views. Optional: an op that has no rule here stays as it is.

use super::curves;
use super::elements::{choose, div, equal, exp, fill, less, log, maximum, neg, not, sub, tanh};
use crate::dispatch::Prim;
use crate::shape::Strides;
use crate::tensor::signed;
use crate::{DType, Result, Scalar, Tensor};
use lucid_ir::ops::index::{IndexOp, ScatterMode};
use lucid_ir::ops::loss::Reduction as LossReduction;
use lucid_ir::ops::reduce::{ReduceOp, Reduction};
use lucid_ir::ops::{
    contract::ContractOp, conv::ConvOp, create::CreateOp, loss::LossOp, nn::NnOp, norm::NormOp,
    normalization::NormalizationOp, order::OrderOp, pool::PoolOp, scan::ScanOp, sort::SortOp,
};
use lucid_ir::Meta;
use std::ops::Range;

fn all_of(axes: &[usize]) -> Vec<isize> {
    axes.iter().map(|&axis| axis as isize).collect()
}

fn sum(x: &Tensor, axis: usize, keep: bool) -> Result<Tensor> {
    x.sum(Some(&[axis as isize]), keep, None)
}

fn most(x: &Tensor, axis: usize, keep: bool) -> Result<Tensor> {
    x.amax(Some(&[axis as isize]), keep)
}

/// The numbers `0..n` along one of `ndim` dimensions.
fn positions(n: usize, axis: usize, ndim: usize, like: &Tensor, dtype: DType) -> Result<Tensor> {
    let made = crate::ops::create::arange_of(n, like.device())?.cast(dtype)?;
    let mut shape: Vec<isize> = std::iter::repeat_n(1, ndim).collect();
    shape[axis] = n as isize;
    made.reshape(&shape)
}

/// `out[…, i, …] = Σ_j x[…, j, …] · weight[i, j]` along a dimension.
fn along(x: &Tensor, axis: usize, weight: &Tensor) -> Result<Tensor> {
    let last = x.movedim(&[axis as isize], &[-1])?.unsqueeze(-2)?;
    let made = (&last * weight)?.sum(Some(&[-1]), false, None)?;
    made.movedim(&[-1], &[axis as isize])
}

/// The same with a weight of 1 where the column's position is what `of` makes of the row's.
fn moved(x: &Tensor, axis: usize, rows: usize, of: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    let row = of(&positions(rows, 0, 2, x, x.dtype())?)?;
    let column = positions(x.shape()[axis], 1, 2, x, x.dtype())?;
    along(x, axis, &equal(&row, &column, x.dtype())?)
}

fn matmul(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    (&a.unsqueeze(-1)? * &b.unsqueeze(-3)?)?.sum(Some(&[-2]), false, None)
}

fn softmax(x: &Tensor, axis: usize, logarithm: bool) -> Result<Tensor> {
    let x = sub(x, &most(x, axis, true)?)?;
    let total = sum(&exp(&x)?, axis, true)?;
    if logarithm {
        sub(&x, &log(&total)?)
    } else {
        div(&exp(&x)?, &total)
    }
}

pub(super) fn expand(prim: &Prim, x: &[Tensor], meta: &Meta) -> Result<Option<Tensor>> {
    let integral = x.iter().any(|t| !t.dtype().is_float());
    match (prim, x) {
        (Prim::Create(op), []) => create(op, meta),
        (Prim::Reduce(op, how), [x]) => reduce(op, how, x, meta),
        (Prim::Scan(op), [x]) if !integral => scan(op, x),
        (Prim::Index(op), x) if x[0].dtype().is_float() => index(op, x, meta),
        (Prim::Sort(op), x) if !integral => sort(op, x),
        (Prim::Contract(ContractOp::MatMul { .. }), [a, b]) if !integral => matmul(a, b).map(Some),
        (Prim::Conv(op), x) if !integral => convolve(op, x),
        (Prim::Pool(op), [x]) if !integral => pool(op, x),
        (Prim::Nn(op), x) if x[0].dtype().is_float() => layer(op, x),
        (Prim::Norm(op), x) if !integral => norm(op, x),
        (Prim::Loss(op), [x, target]) => loss(op, x, target),
        _ => Ok(None),
    }
}

fn create(op: &CreateOp, meta: &Meta) -> Result<Option<Tensor>> {
    let like = Tensor::constant(Scalar::Float(0.0), DType::F32, crate::Device::Meta)?;
    match op {
        CreateOp::Eye => {
            let (rows, columns) = (meta.shape[0], meta.shape[1]);
            let row = positions(rows, 0, 2, &like, DType::F32)?;
            let made = equal(&row, &positions(columns, 1, 2, &like, DType::F32)?, DType::F32)?;
            made.cast(meta.dtype).map(Some)
        }
        CreateOp::Linspace { start, end, base: None } if meta.dtype.is_float() && meta.shape[0] > 1 => {
            let (start, end) = (start.to_f64(), end.to_f64());
            let step = (end - start) / (meta.shape[0] - 1) as f64;
            let at = positions(meta.shape[0], 0, 1, &like, meta.dtype)?;
            (&(&at * step)? + start).map(Some)
        }
        _ => Ok(None),
    }
}

fn reduce(op: &ReduceOp, how: &Reduction, x: &Tensor, meta: &Meta) -> Result<Option<Tensor>> {
    let (axes, keep, dtype) = (all_of(&how.axes), how.keepdim, x.dtype());
    let total = |x: &Tensor| if axes.is_empty() { Ok(x.clone()) } else { x.sum(Some(&axes), keep, None) };
    let largest = |x: &Tensor| if axes.is_empty() { Ok(x.clone()) } else { x.amax(Some(&axes), keep) };
    let made = match op {
        ReduceOp::Sum | ReduceOp::Max => return Ok(None),
        ReduceOp::SumOfSquares => total(&(x * x)?)?,
        ReduceOp::Min if dtype.is_float() => neg(&largest(&neg(x)?)?)?,
        ReduceOp::Prod if dtype.is_float() => {
            // The product of the sizes, negative where the count of negative factors is odd.
            let negative = less(x, &fill(x, 0.0)?, dtype)?;
            let size = (x * &(&(&negative * -2.0)? + 1.0)?)?;
            let count = total(&negative)?;
            let odd = count.remainder(&fill(&count, 2.0)?)?;
            (total(&size.log2()?)?.exp2()? * &(&(&odd * -2.0)? + 1.0)?)?
        }
        ReduceOp::Any | ReduceOp::All => {
            let x = if dtype.is_float() { x.clone() } else { x.cast(DType::F32)? };
            let none = equal(&x, &fill(&x, 0.0)?, DType::F32)?;
            match op {
                ReduceOp::Any => largest(&not(&none)?)?,
                _ => not(&largest(&none)?)?,
            }
        }
        ReduceOp::ArgMax | ReduceOp::ArgMin if dtype.is_float() && how.axes.len() == 1 => {
            let x = if matches!(op, ReduceOp::ArgMin) { neg(x)? } else { x.clone() };
            let (axis, n) = (how.axes[0], x.shape()[how.axes[0]]);
            let tie = equal(&x, &most(&x, axis, true)?, dtype)?;
            // The first at a tie is the one with the most elements behind it.
            let behind = (&neg(&positions(n, axis, x.ndim(), &x, dtype)?)? + n as f64)?;
            (&neg(&most(&(&tie * &behind)?, axis, keep)?)? + n as f64)?
        }
        _ => return Ok(None),
    };
    made.cast(meta.dtype).map(Some)
}

fn scan(op: &ScanOp, x: &Tensor) -> Result<Option<Tensor>> {
    let prefix = |x: &Tensor, axis: usize| {
        let n = x.shape()[axis];
        let (row, column) = (positions(n, 0, 2, x, x.dtype())?, positions(n, 1, 2, x, x.dtype())?);
        along(x, axis, &not(&less(&row, &column, x.dtype())?)?)
    };
    match op {
        ScanOp::Sum { axis } => prefix(x, *axis).map(Some),
        ScanOp::LogSumExp { axis } => {
            let top = most(x, *axis, true)?;
            (&log(&prefix(&exp(&sub(x, &top)?)?, *axis)?)? + &top).map(Some)
        }
        // Without a rule, which `reason` says.
        _ => Ok(None),
    }
}

fn index(op: &IndexOp, x: &[Tensor], meta: &Meta) -> Result<Option<Tensor>> {
    let dtype = x[0].dtype();
    match (op, x) {
        (IndexOp::Gather { axis }, [x, index]) => {
            // Along the dimension each result looks at every element; the others are cut to the index's sizes.
            let mut part = x.clone();
            for (i, &n) in index.shape().iter().enumerate().filter(|(i, _)| i != axis) {
                part = part.narrow(i as isize, 0, n as i64)?;
            }
            let part = part.movedim(&[*axis as isize], &[-1])?.unsqueeze(*axis as isize)?;
            let at = positions(x.shape()[*axis], x.ndim(), x.ndim() + 1, x, dtype)?;
            let here = equal(&index.cast(dtype)?.unsqueeze(-1)?, &at, dtype)?;
            (&part * &here)?.sum(Some(&[-1]), false, None).map(Some)
        }
        (IndexOp::Scatter { axis, mode: ScatterMode::Add }, [x, index, source]) => {
            let same = index.shape().iter().zip(source.shape()).all(|(a, b)| a == b);
            let whole = x.shape().iter().zip(index.shape()).enumerate().all(|(i, (a, b))| i == *axis || a == b);
            if !same || !whole {
                return Ok(None);
            }
            let at = positions(x.shape()[*axis], *axis, x.ndim() + 1, x, dtype)?;
            let spread = |t: &Tensor| t.movedim(&[*axis as isize], &[-1])?.unsqueeze(*axis as isize);
            let here = equal(&spread(&index.cast(dtype)?)?, &at, dtype)?;
            (x + &(&here * &spread(source)?)?.sum(Some(&[-1]), false, None)?).map(Some)
        }
        (IndexOp::Index { axes, .. }, [x, index]) if axes.len() == 1 => {
            // The index's dimensions take the place of the one that is indexed.
            // Indices below 0 count from the end.
            let flat = index.reshape(&[-1])?.remainder(x.shape()[axes[0]] as i64)?.cast(dtype)?;
            let here = equal(&flat.unsqueeze(-1)?, &positions(x.shape()[axes[0]], 1, 2, x, dtype)?, dtype)?;
            along(x, axes[0], &here)?.reshape(&signed(&meta.shape)).map(Some)
        }
        (IndexOp::SliceScatter { dims, .. }, [x, source]) if dims.len() == 1 => {
            let dim = dims[0];
            let n = x.shape()[dim.axis];
            // Which element of the source each place takes, if any does.
            let back = |row: &Tensor| &(row + -(dim.start as f64))? * (1.0 / dim.step as f64);
            let put = moved(source, dim.axis, n, back)?;
            let taken = moved(&fill(source, 1.0)?, dim.axis, n, back)?;
            choose(&taken, &put, x).map(Some)
        }
        (IndexOp::Concat { axis }, parts) => {
            let (n, mut start, mut made) = (meta.shape[*axis], 0usize, None::<Tensor>);
            for part in parts {
                let placed = moved(part, *axis, n, |row| row + -(start as f64))?;
                start += part.shape()[*axis];
                made = Some(match made {
                    Some(made) => (&made + &placed)?,
                    None => placed,
                });
            }
            Ok(made)
        }
        (IndexOp::Flip { axes }, [x]) => {
            let mut made = x.clone();
            for &axis in axes {
                let n = made.shape()[axis];
                made = moved(&made, axis, n, |row| &neg(row)? + (n as f64 - 1.0))?;
            }
            Ok(Some(made))
        }
        _ => Ok(None),
    }
}

/// The indices that sort, from `ranks.start` to `ranks.end`.
fn ranked(x: &Tensor, axis: usize, descending: bool, ranks: Range<usize>) -> Result<Tensor> {
    let x = if descending { neg(x)? } else { x.clone() };
    let (n, dtype, ndim) = (x.shape()[axis], x.dtype(), x.ndim());
    let last = x.movedim(&[axis as isize], &[-1])?;
    let (own, other) = (last.unsqueeze(-1)?, last.unsqueeze(-2)?);
    let (i, j) = (positions(n, ndim - 1, ndim + 1, &x, dtype)?, positions(n, ndim, ndim + 1, &x, dtype)?);
    let before = (&equal(&other, &own, dtype)? * &less(&j, &i, dtype)?)?;
    let rank = (&less(&other, &own, dtype)? + &before)?.sum(Some(&[-1]), false, None)?;
    let row = (&positions(ranks.len(), ndim - 1, ndim + 1, &x, dtype)? + ranks.start as f64)?;
    let here = equal(&rank.unsqueeze(-2)?, &row, dtype)?;
    let made = (&here * &j)?.sum(Some(&[-1]), false, None)?;
    made.movedim(&[-1], &[axis as isize])?.cast(DType::I64)
}

/// Values and indices; of numbers alone, among which there is no NaN.
pub(super) fn order(op: &OrderOp, x: &Tensor) -> Result<Option<Vec<Tensor>>> {
    let (Some(&n), true) = (x.shape().get(op.axis()), x.dtype().is_float()) else { return Ok(None) };
    let extremum = |op: &ReduceOp, axis: usize| {
        let how = Reduction { axes: [axis].into_iter().collect(), keepdim: true };
        reduce(op, &how, x, &Meta::new(x.shape(), DType::I64))
    };
    let indices = match *op {
        OrderOp::Sort { axis, descending } => Some(ranked(x, axis, descending, 0..n)?),
        OrderOp::TopK { axis, k, largest } => Some(ranked(x, axis, largest, 0..k)?),
        OrderOp::KthValue { axis, k, .. } => Some(ranked(x, axis, false, k - 1..k)?),
        OrderOp::Median { axis, .. } | OrderOp::NanMedian { axis, .. } => {
            Some(ranked(x, axis, false, (n - 1) / 2..n.div_ceil(2))?)
        }
        OrderOp::Max { axis, .. } => extremum(&ReduceOp::ArgMax, axis)?,
        OrderOp::Min { axis, .. } => extremum(&ReduceOp::ArgMin, axis)?,
        // Without a rule, which `reason` says.
        OrderOp::Mode { .. } | OrderOp::CumMax { .. } | OrderOp::CumMin { .. } => None,
    };
    let (Some(indices), Some(out)) = (indices, op.results(x.shape(), x.dtype())) else { return Ok(None) };
    let gather = IndexOp::Gather { axis: op.axis() };
    let Some(values) = index(&gather, &[x.clone(), indices.clone()], &out[0])? else { return Ok(None) };
    let shaped = |made: Tensor| made.reshape(&signed(&out[0].shape));
    Ok(Some(vec![shaped(values)?, shaped(indices)?]))
}

fn sort(op: &SortOp, x: &[Tensor]) -> Result<Option<Tensor>> {
    match (op, x) {
        (SortOp::ArgSort { axis, descending }, [x]) => ranked(x, *axis, *descending, 0..x.shape()[*axis]).map(Some),
        (SortOp::Search { right }, [rows, values]) => {
            let (row, value) = (rows.unsqueeze(-2)?, values.unsqueeze(-1)?);
            let row = if rows.ndim() == 1 { rows.clone() } else { row };
            let before = match right {
                true => not(&less(&value, &row, rows.dtype())?)?,
                false => less(&row, &value, rows.dtype())?,
            };
            before.sum(Some(&[-1]), false, None)?.cast(DType::I64).map(Some)
        }
        _ => Ok(None),
    }
}

/// The windows of images that are padded with a number: (N, C, outputs…, window…).
fn windows(x: &Tensor, pad: &[usize], fillers: f64, view: [&[usize]; 4]) -> Result<Tensor> {
    let [output, window, stride, dilation] = view;
    let mut x = x.clone();
    for (i, &pad) in pad.iter().enumerate() {
        // The last windows may reach beyond the padding.
        let reach = (output[i] - 1) * stride[i] + (window[i] - 1) * dilation[i] + 1;
        let n = reach.max(x.shape()[i + 2] + pad);
        let shift = |row: &Tensor| row + -(pad as f64);
        let inside = moved(&fill(&x, 1.0)?, i + 2, n, shift)?;
        let placed = moved(&x, i + 2, n, shift)?;
        x = choose(&inside, &placed, &fill(&placed, fillers)?)?;
    }
    let x = x.contiguous()?;
    let mut shape: Vec<isize> = x.shape()[..2].iter().map(|&n| n as isize).collect();
    let mut strides = Strides::from_slice(&x.strides()[..2]);
    for (i, &n) in output.iter().enumerate() {
        shape.push(n as isize);
        strides.push(x.strides()[i + 2] * stride[i]);
    }
    for (i, &n) in window.iter().enumerate() {
        shape.push(n as isize);
        strides.push(x.strides()[i + 2] * dilation[i]);
    }
    x.as_strided(&shape, &signed(&strides), None)
}

fn convolve(op: &ConvOp, x: &[Tensor]) -> Result<Option<Tensor>> {
    let (ConvOp::Forward { args }, [image, weight, bias @ ..]) = (op, x) else { return Ok(None) };
    let (space, groups) = (args.stride.len(), args.groups);
    let count = |i: usize| {
        let reach = (weight.shape()[i + 2] - 1) * args.dilation[i] + 1;
        (image.shape()[i + 2] + 2 * args.padding[i] - reach) / args.stride[i] + 1
    };
    let output: Vec<usize> = (0..space).map(count).collect();
    let view = [&output[..], &weight.shape()[2..], &args.stride[..], &args.dilation[..]];
    let parts = windows(image, &args.padding, 0.0, view)?;
    // (N, G, 1, C/G, outputs…, window…) with (G, O/G, C/G, 1…, window…)
    let (n, own, out) = (image.shape()[0], weight.shape()[1], weight.shape()[0]);
    let mut shape: Vec<isize> = [n, groups, 1, own].iter().map(|&n| n as isize).collect();
    shape.extend(signed(&parts.shape()[2..]));
    let parts = parts.contiguous()?.reshape(&shape)?;
    let mut shape: Vec<isize> = [groups, out / groups, own].iter().map(|&n| n as isize).collect();
    shape.extend(std::iter::repeat_n(1, space));
    shape.extend(signed(&weight.shape()[2..]));
    let product = (&parts * &weight.contiguous()?.reshape(&shape)?)?;
    let mut axes: Vec<isize> = vec![3];
    axes.extend((4 + space..4 + 2 * space).map(|axis| axis as isize));
    let mut shape: Vec<isize> = [n, out].iter().map(|&n| n as isize).collect();
    shape.extend(signed(&output));
    let made = product.sum(Some(&axes), false, None)?.reshape(&shape)?;
    match bias {
        [] => Ok(Some(made)),
        [bias] => {
            let mut shape: Vec<isize> = vec![-1];
            shape.extend(std::iter::repeat_n(1, space));
            (&made + &bias.reshape(&shape)?).map(Some)
        }
        _ => Ok(None),
    }
}

fn pool(op: &PoolOp, x: &Tensor) -> Result<Option<Tensor>> {
    let (PoolOp::Max { args } | PoolOp::Average { args }) = op else { return Ok(None) };
    let space = args.kernel.len();
    let view = [&args.output[..], &args.kernel[..], &args.stride[..], &args.dilation[..]];
    let axes: Vec<isize> = (2 + space..2 + 2 * space).map(|axis| axis as isize).collect();
    if matches!(op, PoolOp::Max { .. }) {
        // Below all that a test or a network has; −∞ times 0 would be NaN.
        let made = windows(x, &args.padding, f64::from(f32::MIN) / 4.0, view)?;
        return made.amax(Some(&axes), false).map(Some);
    }
    let reaches = |i: usize| (args.output[i] - 1) * args.stride[i] + args.kernel[i];
    if (0..space).any(|i| reaches(i) > x.shape()[i + 2] + 2 * args.padding[i]) {
        return Ok(None);
    }
    let total = windows(x, &args.padding, 0.0, view)?.sum(Some(&axes), false, None)?;
    let count = match args.divisor {
        Some(n) => return (&total * (1.0 / n as f64)).map(Some),
        None if args.count_include_pad => {
            return (&total * (1.0 / args.kernel.iter().product::<usize>() as f64)).map(Some)
        }
        None => windows(&fill(x, 1.0)?, &args.padding, 0.0, view)?.sum(Some(&axes), false, None)?,
    };
    div(&total, &count).map(Some)
}

fn layer(op: &NnOp, x: &[Tensor]) -> Result<Option<Tensor>> {
    let made = match (op, x) {
        (NnOp::Linear, [x, weight, bias @ ..]) => {
            let made = (&x.unsqueeze(-2)? * weight)?.sum(Some(&[-1]), false, None)?;
            match bias {
                [bias] => (&made + bias)?,
                _ => made,
            }
        }
        (NnOp::Softmax { axis }, [x]) => softmax(x, *axis, false)?,
        (NnOp::LogSoftmax { axis }, [x]) => softmax(x, *axis, true)?,
        (NnOp::SoftmaxGradient { axis, log: false }, [g, y]) => (y * &sub(g, &sum(&(g * y)?, *axis, true)?)?)?,
        (NnOp::SoftmaxGradient { axis, log: true }, [g, y]) => sub(g, &(&exp(y)? * &sum(g, *axis, true)?)?)?,
        (NnOp::Gelu { tanh: true }, [x]) => {
            let cube = (&(x * x)? * x)?;
            let inner = (&(x + &(&cube * 0.044715)?)? * (2.0 / std::f64::consts::PI).sqrt())?;
            (&(x * 0.5)? * &(&tanh(&inner)? + 1.0)?)?
        }
        (NnOp::Elementwise { f, numbers }, [x]) => return curves::value(*f, *numbers, x),
        (NnOp::ElementwiseGradient { f, numbers }, [g, x]) => return curves::back(*f, *numbers, g, x),
        (NnOp::Embedding { sparse: false, .. }, [weight, index]) => {
            let (dtype, ndim) = (weight.dtype(), index.ndim());
            let at = positions(weight.shape()[0], ndim, ndim + 1, weight, dtype)?;
            let here = equal(&index.cast(dtype)?.unsqueeze(-1)?, &at, dtype)?;
            matmul_last(&here, weight)?
        }
        (NnOp::EmbeddingSum { scale, sparse: false }, [weight, index, factors @ ..]) => {
            let op = NnOp::Embedding { padding: None, sparse: false };
            let Some(rows) = layer(&op, &[weight.clone(), index.clone()])? else { return Ok(None) };
            let rows = match factors {
                [f] => (&rows * &f.unsqueeze(-1)?)?,
                _ => rows,
            };
            (&rows.sum(Some(&[-2]), false, None)? * *scale)?
        }
        (NnOp::Attention { causal: false, scale }, [q, k, v]) if q.shape()[1] == k.shape()[1] => {
            let scores = (&matmul(q, &k.transpose(-1, -2)?)? * *scale)?;
            matmul(&softmax(&scores, 3, false)?, v)?
        }
        _ => return Ok(None),
    };
    Ok(Some(made))
}

/// A product with one matrix along the last dimension.
fn matmul_last(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    (&a.unsqueeze(-1)? * b)?.sum(Some(&[-2]), false, None)
}

fn norm(op: &NormOp, x: &[Tensor]) -> Result<Option<Tensor>> {
    let standardized = |x: &Tensor, dims: usize, eps: f64| {
        let axes: Vec<isize> = (x.ndim() - dims..x.ndim()).map(|axis| axis as isize).collect();
        let n: usize = x.shape()[x.ndim() - dims..].iter().product();
        let mean = (&x.sum(Some(&axes), true, None)? * (1.0 / n as f64))?;
        let apart = sub(x, &mean)?;
        let spread = (&(&apart * &apart)?.sum(Some(&axes), true, None)? * (1.0 / n as f64))?;
        &apart * &(&spread + eps)?.sqrt()?.reciprocal()?
    };
    match (op, x) {
        (NormOp::Standardize { dims, eps }, [x]) if *dims > 0 && x.numel() > 0 => {
            standardized(x, *dims, *eps).map(Some)
        }
        (NormOp::Affine { dims, eps }, [x, weight, bias]) if x.numel() > 0 => {
            let shape = signed(&x.shape()[x.ndim() - dims..]);
            let (weight, bias) = (weight.reshape(&shape)?, bias.reshape(&shape)?);
            (&(&standardized(x, *dims, *eps)? * &weight)? + &bias).map(Some)
        }
        _ => Ok(None),
    }
}

/// The results of a norm that has several.
pub(super) fn normalization(op: &NormalizationOp, x: &[Tensor]) -> Result<Option<Vec<Tensor>>> {
    let over = |x: &Tensor, axes: &[isize], keep: bool| x.sum(Some(axes), keep, None);
    let share = |x: &Tensor, axes: &[isize], n: usize| &over(x, axes, true)? * (1.0 / n as f64);
    let made = match (op, x) {
        (NormalizationOp::Batch { eps }, [x, weight, bias]) => {
            let (axes, wide) = channels(x);
            let n = x.numel() / x.shape()[1];
            let mean = share(x, &axes, n)?;
            let apart = sub(x, &mean)?;
            let var = share(&(&apart * &apart)?, &axes, n)?;
            let scale = (&var + *eps)?.sqrt()?.reciprocal()?;
            let y = (&(&(&apart * &scale)? * &weight.reshape(&wide)?)? + &bias.reshape(&wide)?)?;
            vec![y, mean.reshape(&[-1])?, var.reshape(&[-1])?, scale.reshape(&[-1])?]
        }
        (NormalizationOp::BatchGradient, [g, x, weight, mean, scale]) => {
            let (axes, wide) = channels(x);
            let n = x.numel() / x.shape()[1];
            let (mean, scale) = (mean.reshape(&wide)?, scale.reshape(&wide)?);
            let y = (&sub(x, &mean)? * &scale)?;
            let (to_bias, to_weight) = (over(g, &axes, true)?, over(&(g * &y)?, &axes, true)?);
            let mean = sub(&sub(g, &(&to_bias * (1.0 / n as f64))?)?, &(&(&y * &to_weight)? * (1.0 / n as f64))?)?;
            let to_x = (&mean * &(&weight.reshape(&wide)? * &scale)?)?;
            vec![to_x, to_weight.reshape(&[-1])?, to_bias.reshape(&[-1])?]
        }
        (NormalizationOp::Group { groups, eps }, [x, weight, bias]) => {
            let (_, wide) = channels(x);
            let rows = x.reshape(&[x.shape()[0] as isize, *groups as isize, -1])?;
            let n = rows.shape()[2];
            let mean = share(&rows, &[2], n)?;
            let apart = sub(&rows, &mean)?;
            let scale = (&share(&(&apart * &apart)?, &[2], n)? + *eps)?.sqrt()?.reciprocal()?;
            let y = (&apart * &scale)?.reshape(&signed(x.shape()))?;
            let y = (&(&y * &weight.reshape(&wide)?)? + &bias.reshape(&wide)?)?;
            vec![y, mean.squeeze(Some(&[2]))?, scale.squeeze(Some(&[2]))?]
        }
        (NormalizationOp::GroupGradient, [g, x, weight, mean, scale]) => {
            let (axes, wide) = channels(x);
            let rows = |t: &Tensor| t.reshape(&[x.shape()[0] as isize, mean.shape()[1] as isize, -1]);
            let (mean, scale) = (mean.unsqueeze(-1)?, scale.unsqueeze(-1)?);
            let y = (&sub(&rows(x)?, &mean)? * &scale)?;
            let v = rows(&(g * &weight.reshape(&wide)?)?)?;
            let n = v.shape()[2];
            let inner = sub(&sub(&v, &share(&v, &[2], n)?)?, &(&y * &share(&(&v * &y)?, &[2], n)?)?)?;
            let to_x = (&inner * &scale)?.reshape(&signed(x.shape()))?;
            let y = y.reshape(&signed(x.shape()))?;
            vec![to_x, over(&(g * &y)?, &axes, false)?, over(g, &axes, false)?]
        }
        (NormalizationOp::LayerGradient { dims, eps }, [g, x, weight]) => {
            let lead = x.ndim() - dims;
            let (axes, rows): (Vec<isize>, Vec<isize>) =
                ((lead..x.ndim()).map(|axis| axis as isize).collect(), (0..lead).map(|axis| axis as isize).collect());
            let n: usize = x.shape()[lead..].iter().product();
            let apart = sub(x, &share(x, &axes, n)?)?;
            let scale = (&share(&(&apart * &apart)?, &axes, n)? + *eps)?.sqrt()?.reciprocal()?;
            let y = (&apart * &scale)?;
            let v = (g * &weight.reshape(&signed(&x.shape()[lead..]))?)?;
            let inner = sub(&sub(&v, &share(&v, &axes, n)?)?, &(&y * &share(&(&v * &y)?, &axes, n)?)?)?;
            let summed = |t: &Tensor| -> Result<Tensor> {
                if rows.is_empty() { t.copy() } else { over(t, &rows, false) }?.reshape(&signed(weight.shape()))
            };
            vec![(&inner * &scale)?, summed(&(g * &y)?)?, summed(g)?]
        }
        _ => return Ok(None),
    };
    Ok(Some(made))
}

/// All dimensions but the second, and the shape of what has that alone.
fn channels(x: &Tensor) -> (Vec<isize>, Vec<isize>) {
    let axes = (0..x.ndim() as isize).filter(|&axis| axis != 1).collect();
    (axes, (0..x.ndim()).map(|axis| if axis == 1 { -1 } else { 1 }).collect())
}

fn loss(op: &LossOp, x: &Tensor, target: &Tensor) -> Result<Option<Tensor>> {
    if *op == LossOp::BceLogits && x.dtype().is_float() && x.dtype() == target.dtype() {
        return curves::logits(x, target).map(Some);
    }
    let LossOp::Nll { ignore, reduction } = op else { return Ok(None) };
    if !x.dtype().is_float() || target.dtype() != DType::I64 {
        return Ok(None);
    }
    let (dtype, ndim) = (x.dtype(), x.ndim());
    let classes = x.shape()[ndim - 1];
    let label = target.cast(dtype)?;
    let counts = not(&equal(&label, &fill(&label, *ignore as f64)?, dtype)?)?;
    let at = positions(classes, ndim - 1, ndim, x, dtype)?;
    let here = equal(&label.unsqueeze(-1)?, &at, dtype)?;
    let own = neg(&(&(&here * x)?.sum(Some(&[-1]), false, None)? * &counts)?)?;
    if *reduction == LossReduction::None {
        return Ok(Some(own));
    }
    let last = target.ndim() - 1;
    let total = sum(&own, last, false)?;
    Ok(Some(match reduction {
        LossReduction::Mean => div(&total, &maximum(&sum(&counts, last, false)?, &fill(&total, 1.0)?)?)?,
        LossReduction::None | LossReduction::Sum => total,
    }))
}
