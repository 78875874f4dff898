//! Per primitive, what it demands of its operands and its result.
//!
//! Depends on shapes and dtypes alone. Optional: without a rule, an op runs everywhere but in graphs that come from a file or
//! are made again for other sizes. Invariant: a primitive that has no rule is refused.
#![allow(
    unreachable_patterns,
    reason = "the default of a family, for ops to come, is there where each op has its rule"
)]

use super::Info;
use crate::dispatch::Prim;
use crate::ops::OpRow;
use crate::shape::{self, Layout, Shape, SliceDim};
use crate::DType;
use lucid_ir::ops::conv::{ConvArgs, ConvOp};
use lucid_ir::ops::loss::{LossOp, Reduction as LossReduction};
use lucid_ir::ops::pool::{PoolArgs, PoolOp};
use lucid_ir::ops::quantize::QuantizeOp;
use lucid_ir::ops::reduce::{ReduceOp, Reduction};
use lucid_ir::ops::{
    binary::BinaryOp, communication::CommunicationOp, contract::ContractOp, create::CreateOp, fft::FftOp,
    index::IndexOp, linalg::LinalgOp, nn::NnOp, norm::NormOp, random::RandomOp, scan::ScanOp, sort::SortOp,
    transfer::TransferOp,
};
use lucid_ir::Meta;
use smallvec::SmallVec;

/// One behind the last element that a layout reaches; `None` where that overflows.
pub(super) fn last_element(layout: &Layout) -> Option<usize> {
    if layout.numel() == 0 {
        return Some(layout.offset);
    }
    let mut last = layout.offset;
    for (&n, &step) in layout.shape.iter().zip(&layout.strides) {
        last = last.checked_add((n - 1).checked_mul(step)?)?;
    }
    last.checked_add(1)
}

pub(super) fn sliceable(dim: &SliceDim, shape: &[usize]) -> bool {
    let Some(&n) = shape.get(dim.axis) else { return false };
    let last = dim.len.saturating_sub(1).checked_mul(dim.step).and_then(|reach| reach.checked_add(dim.start));
    dim.step > 0 && dim.start <= n && (dim.len == 0 || last.is_some_and(|last| last < n))
}

/// Does the first shape broadcast to the second?
pub(super) fn expands(from: &[usize], to: &[usize]) -> bool {
    let Some(lead) = to.len().checked_sub(from.len()) else { return false };
    from.iter().zip(&to[lead..]).all(|(&a, &b)| a == b || a == 1)
}

/// Do shapes broadcast to just this one?
fn broadcasts(shapes: &[&[usize]], to: &[usize]) -> bool {
    let mut all: Shape = Shape::new();
    for shape in shapes {
        match shape::broadcast("graph", &all, shape) {
            Ok(next) => all = next,
            Err(_) => return false,
        }
    }
    all[..] == *to
}

/// A shape with the size of one dimension replaced.
fn with(shape: &[usize], axis: usize, n: usize) -> Option<Shape> {
    let mut made = Shape::from_slice(shape);
    *made.get_mut(axis)? = n;
    Some(made)
}

/// The shape without its last `n` sizes, and those.
fn lead(shape: &[usize], n: usize) -> Option<(&[usize], &[usize])> {
    shape.len().checked_sub(n).map(|at| shape.split_at(at))
}

/// Do all have the first one's dtype?
fn alike(x: &[&Info], out: &Info) -> bool {
    x.iter().all(|x| x.dtype == out.dtype)
}

/// Do these operands and this result fit the primitive? `None` stands for no.
pub(super) fn fits(prim: &Prim, x: &[&Info], out: &Info) -> Option<bool> {
    let shapes: SmallVec<[&[usize]; 4]> = x.iter().map(|x| &x.shape[..]).collect();
    let same = |i: usize| x.get(i).is_some_and(|x| x.shape == out.shape);
    let by_row = |dtype: DType| prim.schema().result.of(dtype) == out.dtype;
    Some(match prim {
        Prim::Create(op) => {
            let plain = match op {
                CreateOp::Eye => out.shape.len() == 2,
                CreateOp::Arange { .. } | CreateOp::Linspace { .. } => out.shape.len() == 1,
                CreateOp::Full { .. } => true,
            };
            plain && x.is_empty()
        }
        Prim::Random(op) => match op {
            RandomOp::Uniform { .. } | RandomOp::Normal { .. } => x.is_empty() && out.dtype.is_float(),
            RandomOp::Integers { low, high, .. } => x.is_empty() && low < high,
            // Samples are drawn apart from the graph.
            _ => false,
        },
        Prim::Transfer(op) => match op {
            TransferOp::Cast { dtype } => x.len() == 1 && same(0) && out.dtype == *dtype,
            TransferOp::Move { device } => x.len() == 1 && same(0) && alike(x, out) && out.device == *device,
            TransferOp::Copy => x.len() == 1 && same(0) && alike(x, out),
        },
        Prim::Unary(_) => x.len() == 1 && same(0) && (x[0].dtype == out.dtype || by_row(x[0].dtype)),
        // Operands of other dtypes are cast.
        Prim::Binary(op) => {
            let dtypes = alike(x, out) || (out.dtype.is_float() && x.iter().all(|x| x.dtype.is_float()));
            let apart = matches!(op, BinaryOp::ReluGradient) && !alike(x, out);
            x.len() == 2 && dtypes && !apart && broadcasts(&shapes, &out.shape)
        }
        Prim::Compare(_) => {
            x.len() == 2 && x[0].dtype == x[1].dtype && out.dtype == DType::Bool && broadcasts(&shapes, &out.shape)
        }
        Prim::Select(_) => {
            x.len() == 3 && x[0].dtype == DType::Bool && alike(&x[1..], out) && broadcasts(&shapes, &out.shape)
        }
        Prim::Reduce(op, how) => x.len() == 1 && reduced(&x[0].shape, how)? == out.shape && reduces(op, x[0], how, out),
        Prim::Scan(op) => {
            let axis = match op {
                ScanOp::Sum { axis } | ScanOp::Prod { axis } | ScanOp::Recur { axis } | ScanOp::LogSumExp { axis } => {
                    *axis
                }
                _ => return None,
            };
            let count = if matches!(op, ScanOp::Recur { .. }) { 2 } else { 1 };
            x.len() == count && axis < out.shape.len() && (0..count).all(same) && alike(x, out)
        }
        Prim::View(_) => false,
        Prim::Index(op) => return indexes(op, x, out),
        Prim::Sort(op) => match op {
            SortOp::ArgSort { axis, .. } => {
                x.len() == 1 && *axis < out.shape.len() && same(0) && out.dtype == DType::I64
            }
            SortOp::Search { .. } => {
                let [rows, values] = x else { return None };
                let rows_fit = rows.shape.len() == 1
                    || (rows.shape.len() == values.shape.len() && lead(&rows.shape, 1)?.0 == lead(&values.shape, 1)?.0);
                rows.dtype == values.dtype && rows_fit && values.shape == out.shape && out.dtype == DType::I64
            }
            SortOp::ArgSortRows => {
                let (rows, _) = lead(&x.first()?.shape, 1)?;
                x.len() == 1 && !rows.is_empty() && *rows == out.shape[..] && out.dtype == DType::I64
            }
            _ => false,
        },
        Prim::Contract(op) => {
            let (ContractOp::MatMul { .. }, [a, b]) = (op, x) else { return None };
            let ((batch, m), (others, n)) = (lead(&a.shape, 2)?, lead(&b.shape, 2)?);
            let (given, made) = lead(&out.shape, 2)?;
            alike(x, out) && m[1] == n[0] && *made == [m[0], n[1]] && broadcasts(&[batch, others], given)
        }
        Prim::Linalg(op) => return factors(op, x, out),
        // They have several results.
        Prim::Order(_) | Prim::Recurrent(_) | Prim::Decomposition(_) | Prim::Normalization(_) | Prim::Quantize(_) => {
            false
        }
        Prim::Fft(op) => {
            let x = x.first()?;
            let (axes, dtype) = match op {
                FftOp::ComplexToComplex { axes, .. } => (axes.clone(), x.dtype.is_complex() && out.dtype == x.dtype),
                FftOp::RealToComplex { axes, .. } => {
                    (axes.clone(), !x.dtype.is_complex() && out.dtype == x.dtype.to_complex())
                }
                FftOp::ComplexToReal { axes, n, .. } => {
                    let half = axes.last().and_then(|&last| x.shape.get(last)) == Some(&(n / 2 + 1));
                    (axes.clone(), x.dtype.is_complex() && out.dtype == x.dtype.to_real() && half)
                }
            };
            let mut sorted = axes.clone();
            sorted.sort_unstable();
            sorted.dedup();
            let inside = axes.iter().all(|&axis| x.shape.get(axis).is_some_and(|&n| n > 0));
            shapes.len() == 1 && inside && sorted.len() == axes.len() && dtype && op.shape(&x.shape) == out.shape
        }
        Prim::Conv(op) => return convolves(op, x, out),
        Prim::Pool(op) => return pools(op, x, out),
        Prim::Nn(op) => return layers(op, x, out),
        Prim::Norm(op) => match op {
            NormOp::Standardize { dims, .. } => x.len() == 1 && same(0) && alike(x, out) && *dims <= out.shape.len(),
            NormOp::StandardizeGradient { dims, .. } => {
                x.len() == 2 && same(0) && same(1) && alike(x, out) && *dims <= out.shape.len()
            }
            NormOp::Affine { dims, .. } => {
                let [_, weight, bias] = x else { return None };
                let count = shape::numel(lead(&out.shape, *dims)?.1);
                let fits = |p: &Info| shape::numel(&p.shape) == count;
                *dims > 0 && same(0) && alike(x, out) && fits(weight) && fits(bias)
            }
            _ => false,
        },
        Prim::Loss(LossOp::BceLogits) => x.len() == 2 && same(0) && same(1) && alike(x, out) && out.dtype.is_float(),
        Prim::Loss(LossOp::BceLogitsGradient) => {
            x.len() == 3 && (0..3).all(same) && alike(x, out) && out.dtype.is_float()
        }
        Prim::Loss(LossOp::Ctc { alignment }) => {
            let [logs, targets] = x else { return None };
            let (lead, last) = lead(&logs.shape, 3)?;
            let dtypes = logs.dtype == out.dtype && out.dtype.is_float() && targets.dtype == DType::I64;
            dtypes
                && alignment.sizes(&logs.shape, &targets.shape).is_some()
                && out.shape.split_last() == Some((&last[1], lead))
        }
        Prim::Loss(LossOp::CtcGradient { alignment }) => {
            let [g, logs, targets] = x else { return None };
            let (lead, last) = lead(&logs.shape, 3)?;
            let dtypes = logs.dtype == out.dtype && out.dtype.is_float() && targets.dtype == DType::I64;
            dtypes
                && g.dtype == out.dtype
                && logs.shape == out.shape
                && alignment.sizes(&logs.shape, &targets.shape).is_some()
                && g.shape.split_last() == Some((&last[1], lead))
        }
        Prim::Loss(op) => {
            let [a, target] = x else { return None };
            let shape = |reduction: &LossReduction| match reduction {
                LossReduction::None => Some(target.shape.clone()),
                LossReduction::Sum | LossReduction::Mean => {
                    lead(&target.shape, 1).map(|(lead, _)| Shape::from_slice(lead))
                }
            };
            let dtypes = a.dtype == out.dtype && out.dtype.is_float() && target.dtype == DType::I64;
            match op {
                LossOp::Nll { reduction, .. } => {
                    dtypes && lead(&a.shape, 1)?.0 == &target.shape[..] && shape(reduction)? == out.shape
                }
                LossOp::NllGradient { classes, reduction, .. } => {
                    let (rows, last) = lead(&out.shape, 1)?;
                    dtypes && last[0] == *classes && rows == &target.shape[..] && shape(reduction)? == a.shape
                }
                _ => return None,
            }
        }
        Prim::Communication(op) => {
            let [x] = x else { return None };
            let shapes = match op {
                CommunicationOp::AllReduce { .. }
                | CommunicationOp::AllReduceExtreme { .. }
                | CommunicationOp::Broadcast { .. }
                | CommunicationOp::AllToAll { .. } => x.shape == out.shape,
                CommunicationOp::AllGather { .. } => out.shape.get(1..)? == &x.shape[..],
                CommunicationOp::ReduceScatter { .. } => x.shape.get(1..)? == &out.shape[..],
            };
            shapes && x.dtype == out.dtype
        }
        // Their packed words are checked by the ops alone.
        Prim::Quantized(_) => false,
    })
}

fn reduced(x: &[usize], how: &Reduction) -> Option<Shape> {
    if how.axes.iter().any(|&axis| axis >= x.len()) {
        return None;
    }
    let mut sorted = how.axes.clone();
    sorted.sort_unstable();
    sorted.dedup();
    if sorted.len() != how.axes.len() {
        return None;
    }
    let kept = |(axis, &n): (usize, &usize)| match (how.axes.contains(&axis), how.keepdim) {
        (true, false) => None,
        (true, true) => Some(1),
        (false, _) => Some(n),
    };
    Some(x.iter().enumerate().filter_map(kept).collect())
}

fn reduces(op: &ReduceOp, x: &Info, how: &Reduction, out: &Info) -> bool {
    let filled = how.axes.iter().all(|&axis| x.shape.get(axis).is_some_and(|&n| n > 0));
    match op {
        ReduceOp::Sum | ReduceOp::Prod => x.dtype == out.dtype,
        ReduceOp::SumOfSquares => x.dtype == out.dtype && out.dtype.is_float(),
        ReduceOp::Max | ReduceOp::Min => x.dtype == out.dtype && filled,
        ReduceOp::Any | ReduceOp::All => matches!(out.dtype, DType::Bool | DType::U8),
        ReduceOp::ArgMax | ReduceOp::ArgMin => out.dtype == DType::I64 && filled && how.axes.len() <= 1,
    }
}

fn indexes(op: &IndexOp, x: &[&Info], out: &Info) -> Option<bool> {
    let first = *x.first()?;
    let data = first.dtype == out.dtype;
    let along = |axis: usize, index: &Info, source: &Info| {
        let sizes = index.shape.iter().zip(&source.shape).enumerate();
        index.dtype == DType::I64
            && index.shape.len() == source.shape.len()
            && axis < source.shape.len()
            && sizes.into_iter().all(|(i, (a, b))| i == axis || a <= b)
    };
    Some(match op {
        IndexOp::Gather { axis } => {
            let [x, index] = x else { return None };
            data && along(*axis, index, x) && index.shape == out.shape
        }
        IndexOp::Scatter { axis, .. } | IndexOp::Reduce { axis, .. } => {
            let [x, index, source] = x else { return None };
            let inside = index.shape.iter().zip(&source.shape).all(|(a, b)| a <= b);
            let source_fits = index.shape.len() == source.shape.len() && inside && source.dtype == out.dtype;
            data && x.shape == out.shape && along(*axis, index, x) && source_fits
        }
        IndexOp::Index { axes, .. } => {
            let (x, rest) = x.split_first()?;
            let taken = indexed(&x.shape, axes, rest)?;
            data && taken == out.shape
        }
        IndexOp::IndexPut { axes, .. } => {
            let [x, values, rest @ ..] = x else { return None };
            let taken = indexed(&x.shape, axes, rest)?;
            data && values.dtype == out.dtype && x.shape == out.shape && taken == values.shape
        }
        IndexOp::SliceScatter { dims, .. } => {
            let [x, source] = x else { return None };
            let mut part = x.shape.clone();
            let mut seen: SmallVec<[usize; 4]> = SmallVec::new();
            for dim in dims {
                if !sliceable(dim, &x.shape) || seen.contains(&dim.axis) {
                    return None;
                }
                seen.push(dim.axis);
                part[dim.axis] = dim.len;
            }
            data && source.dtype == out.dtype && x.shape == out.shape && part == source.shape
        }
        IndexOp::StridedAdd { layout, shape } => {
            let room = shape::numel(shape);
            data && x.len() == 1
                && first.shape == layout.shape
                && layout.strides.len() == layout.shape.len()
                && *shape == out.shape
                && last_element(layout).is_some_and(|last| last <= room)
        }
        IndexOp::Concat { axis } => {
            let mut total = 0usize;
            for part in x {
                let n = *part.shape.get(*axis)?;
                total = total.checked_add(n)?;
                if with(&part.shape, *axis, 0)? != with(&out.shape, *axis, 0)? || part.dtype != out.dtype {
                    return None;
                }
            }
            out.shape[*axis] == total
        }
        IndexOp::Flip { axes } => {
            data && x.len() == 1 && first.shape == out.shape && axes.iter().all(|&axis| axis < out.shape.len())
        }
        _ => false,
    })
}

/// The shape of what several index tensors take: the one that they broadcast to in the place of the dimensions that they
/// index, in front unless those are neighbours.
fn indexed(x: &[usize], axes: &[usize], index: &[&Info]) -> Option<Shape> {
    let increasing = axes.windows(2).all(|pair| pair[0] < pair[1]);
    if index.len() != axes.len() || index.is_empty() || !increasing || axes.iter().any(|&axis| axis >= x.len()) {
        return None;
    }
    let mut shape = Shape::new();
    for i in index.iter().filter(|i| i.dtype == DType::I64) {
        shape = shape::broadcast("graph", &shape, &i.shape).ok()?;
    }
    if index.iter().any(|i| i.dtype != DType::I64) {
        return None;
    }
    let neighbours = axes.windows(2).all(|pair| pair[0] + 1 == pair[1]);
    let at = if neighbours { axes[0] } else { 0 };
    let rest: Shape = x.iter().enumerate().filter(|(axis, _)| !axes.contains(axis)).map(|(_, &n)| n).collect();
    Some(rest[..at].iter().chain(&shape).chain(&rest[at..]).copied().collect())
}

/// Do these operands and these results fit a primitive of several results?
pub(super) fn fits_multi(prim: &Prim, x: &[&Info], out: &[Meta]) -> bool {
    if let Prim::Recurrent(op) = prim {
        let shapes: SmallVec<[&[usize]; 9]> = x.iter().map(|x| &x.shape[..]).collect();
        let Some(first) = x.get(op.before_states()) else { return false };
        let &[batch, hidden] = &first.shape[..] else { return false };
        let one = x.iter().all(|x| x.dtype == first.dtype) && first.dtype.is_float();
        return one && op.takes(&shapes) && op.results(batch, hidden, first.dtype)[..] == *out;
    }
    if let Prim::Normalization(op) = prim {
        let inputs: SmallVec<[(&[usize], DType); 5]> = x.iter().map(|x| (&x.shape[..], x.dtype)).collect();
        return op.results(&inputs).is_some_and(|made| made[..] == *out);
    }
    let [a] = x else { return false };
    let made = match prim {
        Prim::Order(op) => op.results(&a.shape, a.dtype),
        Prim::Decomposition(op) => op.results(&a.shape, a.dtype),
        Prim::Quantize(QuantizeOp::Affine { format }) => format.results(&a.shape, a.dtype),
        _ => None,
    };
    prim.schema().dtypes.has(a.dtype) && made.is_some_and(|made| made[..] == *out)
}

fn factors(op: &LinalgOp, x: &[&Info], out: &Info) -> Option<bool> {
    let a = *x.first()?;
    let (batch, size) = lead(&a.shape, 2)?;
    let square = size[0] == size[1] && (a.dtype.is_float() || a.dtype.is_complex()) && a.dtype == out.dtype;
    Some(match op {
        LinalgOp::Inverse | LinalgOp::Exponential => x.len() == 1 && square && a.shape == out.shape,
        LinalgOp::SolveMatrices | LinalgOp::SolveTriangular { .. } => {
            let [_, b] = x else { return None };
            let (others, rows) = lead(&b.shape, 2)?;
            square && b.dtype == a.dtype && others == batch && rows[0] == size[0] && b.shape == out.shape
        }
        _ => false,
    })
}

/// How many windows there are along a dimension.
fn windows(n: usize, window: usize, stride: usize, padding: usize, dilation: usize) -> Option<usize> {
    let padded = n.checked_add(padding.checked_mul(2)?)?;
    let reach = window.checked_sub(1)?.checked_mul(dilation)?.checked_add(1)?;
    padded.checked_sub(reach)?.checked_div(stride)?.checked_add(1)
}

fn convolves(op: &ConvOp, x: &[&Info], out: &Info) -> Option<bool> {
    let (args, image, weight, made) = match op {
        ConvOp::Forward { args } => (args, x.first()?.shape.clone(), x.get(1)?.shape.clone(), out.shape.clone()),
        ConvOp::InputGradient { args, shape } => {
            (args, shape.clone(), x.get(1)?.shape.clone(), x.first()?.shape.clone())
        }
        ConvOp::WeightGradient { args, shape } => {
            (args, x.first()?.shape.clone(), shape.clone(), x.get(1)?.shape.clone())
        }
        _ => return None,
    };
    let ConvArgs { stride, padding, dilation, groups } = &**args;
    let space = stride.len();
    let listed = [padding.len(), dilation.len()].iter().all(|&n| n == space) && (1..=3).contains(&space);
    let ranks = [&image, &weight, &made].iter().all(|shape| shape.len() == space + 2);
    if !listed || !ranks || *groups == 0 || dilation.contains(&0) || !alike(x, out) {
        return None;
    }
    for i in 0..space {
        if windows(image[i + 2], weight[i + 2], stride[i], padding[i], dilation[i])? != made[i + 2] {
            return None;
        }
    }
    let channels = weight[1].checked_mul(*groups)? == image[1] && weight[0].is_multiple_of(*groups);
    let sizes = channels && made[0] == image[0] && made[1] == weight[0];
    Some(
        sizes
            && match op {
                ConvOp::Forward { .. } => match x {
                    [_, _] => true,
                    [_, _, bias] => bias.shape[..] == weight[..1],
                    _ => false,
                },
                ConvOp::InputGradient { .. } => x.len() == 2 && image == out.shape,
                ConvOp::WeightGradient { .. } => x.len() == 2 && weight == out.shape,
                _ => false,
            },
    )
}

fn pools(op: &PoolOp, x: &[&Info], out: &Info) -> Option<bool> {
    let first = *x.first()?;
    let fits = |args: &PoolArgs, image: &[usize], made: &[usize]| {
        let space = args.kernel.len();
        let lists = [&args.stride, &args.padding, &args.dilation, &args.output];
        let listed = lists.iter().all(|list| list.len() == space) && (1..=3).contains(&space);
        if !listed || image.len() != space + 2 || made.len() != space + 2 || args.divisor == Some(0) {
            return false;
        }
        let along = |i: usize| {
            let (n, out, pad) = (image[i + 2], args.output[i], args.padding[i]);
            let small = args.kernel[i] > 0 && args.stride[i] > 0 && args.dilation[i] > 0 && pad <= args.kernel[i] / 2;
            let last = out.checked_sub(1).and_then(|last| last.checked_mul(args.stride[i]));
            // The last window begins inside of the image or of the padding before it, with ceil_mode too.
            // A window that is larger than what it slides over would only take time.
            let reach = args.kernel[i].saturating_sub(1).saturating_mul(args.dilation[i]).saturating_add(1);
            let inside = reach <= n.saturating_add(pad.saturating_mul(2));
            small && inside && made[i + 2] == out && last.is_some_and(|last| n > 0 && last < n.saturating_add(pad))
        };
        made[..2] == image[..2] && (0..space).all(along)
    };
    Some(match op {
        PoolOp::Max { args } => x.len() == 1 && first.dtype == out.dtype && fits(args, &first.shape, &out.shape),
        PoolOp::MaxIndices { args } => {
            x.len() == 1 && matches!(out.dtype, DType::I64 | DType::I32) && fits(args, &first.shape, &out.shape)
        }
        PoolOp::MaxPick { args } => {
            x.len() == 2 && alike(x, out) && x[1].shape == first.shape && fits(args, &first.shape, &out.shape)
        }
        PoolOp::MaxScatter { args } => {
            x.len() == 2 && alike(x, out) && out.shape == first.shape && fits(args, &out.shape, &x[1].shape)
        }
        PoolOp::Average { args } => x.len() == 1 && first.dtype == out.dtype && fits(args, &first.shape, &out.shape),
        PoolOp::AverageSpread { args, shape } => {
            x.len() == 1 && first.dtype == out.dtype && *shape == out.shape && fits(args, &out.shape, &first.shape)
        }
        // They index with what a kernel found: see the check of graphs that are not our own.
        PoolOp::Take | PoolOp::Put { .. } => {
            let places = *x.get(1)?;
            let (space, read) = match op {
                PoolOp::Put { shape } => (shape, places.shape == first.shape && *shape == out.shape),
                _ => (&first.shape, places.shape == out.shape),
            };
            let planes = space.len() > 2 && places.shape.len() == space.len() && places.shape[..2] == space[..2];
            x.len() == 2 && first.dtype == out.dtype && places.dtype == DType::I32 && planes && read
        }
        _ => false,
    })
}

fn layers(op: &NnOp, x: &[&Info], out: &Info) -> Option<bool> {
    let first = *x.first()?;
    let same = |i: usize| x.get(i).is_some_and(|x| x.shape == out.shape);
    Some(match op {
        NnOp::Linear => {
            let [x, weight, bias @ ..] = x else { return None };
            let ((rows, columns), (given, made)) = (lead(&x.shape, 1)?, lead(&out.shape, 1)?);
            let bias_fits = match bias {
                [] => true,
                [b] => b.shape[..] == *made && b.dtype == out.dtype,
                _ => false,
            };
            let dtypes = x.dtype == out.dtype && weight.dtype == out.dtype;
            dtypes && rows == given && weight.shape[..] == [made[0], columns[0]] && bias_fits
        }
        NnOp::Softmax { axis } | NnOp::LogSoftmax { axis } => {
            x.len() == 1 && same(0) && first.dtype == out.dtype && out.dtype.is_float() && *axis < out.shape.len()
        }
        NnOp::SoftmaxGradient { axis, .. } => {
            x.len() == 2 && same(0) && same(1) && alike(x, out) && *axis < out.shape.len()
        }
        NnOp::Gelu { .. } | NnOp::Elementwise { .. } => {
            x.len() == 1 && same(0) && alike(x, out) && out.dtype.is_float()
        }
        NnOp::GeluGradient { .. } | NnOp::ElementwiseGradient { .. } => {
            x.len() == 2 && same(0) && same(1) && alike(x, out) && out.dtype.is_float()
        }
        NnOp::Embedding { sparse, .. } => {
            let [weight, index] = x else { return None };
            let (rows, columns) = lead(&out.shape, 1)?;
            let table = weight.shape.len() == 2 && weight.shape[1] == columns[0];
            !sparse && table && index.dtype == DType::I64 && index.shape[..] == *rows && weight.dtype == out.dtype
        }
        NnOp::EmbeddingSum { sparse, .. } => {
            let [weight, index, factors @ ..] = x else { return None };
            let ((bags, columns), (given, _)) = (lead(&out.shape, 1)?, lead(&index.shape, 1)?);
            let table = weight.shape.len() == 2 && weight.shape[1] == columns[0] && weight.dtype == out.dtype;
            let factors_fit = match factors {
                [] => true,
                [f] => f.shape == index.shape && f.dtype == out.dtype,
                _ => false,
            };
            !sparse && table && index.dtype == DType::I64 && bags == given && factors_fit && out.dtype.is_float()
        }
        NnOp::Attention { .. } => {
            let [q, k, v, mask @ ..] = x else { return None };
            let four = [q, k, v].iter().all(|t| t.shape.len() == 4 && t.dtype == out.dtype);
            if !four || out.shape.len() != 4 {
                return None;
            }
            let (q, k, v) = (&q.shape, &k.shape, &v.shape);
            let mask_fits = match mask {
                [] => true,
                [m] => (m.dtype == DType::Bool || m.dtype == out.dtype) && expands(&m.shape, &[q[0], q[1], q[2], k[2]]),
                _ => false,
            };
            let heads = k[1] > 0 && q[1].is_multiple_of(k[1]) && k[1] == v[1];
            let batches = q[0] == k[0] && k[0] == v[0];
            batches && heads && q[3] == k[3] && k[2] == v[2] && out.shape[..] == [q[0], q[1], q[2], v[3]] && mask_fits
        }
        _ => false,
    })
}
