//! Tensors that travel over MLX's ring in pieces, of which one is read and another written while a third is under way.
//!
//! Depends on tensor ops, and on the GPU backend's way to MLX's arrays. The ring sends both ways at once from [`BOTH_WAYS`] bytes for
//! each member on: the thread of a socket then receives and sends, and sleeps up to a tick of the system's clock in one
//! while the other could go on. No piece is that large. Invariant: all members cut alike, and each adds in the order of the
//! ranks, so that they have the same bits.

use super::collectives::{carried, unbits};
use crate::dispatch;
use crate::shape::Layout;
use crate::{DType, Device, Result, Tensor};
use lucid_cpu::{Buffer, CpuArray};
use lucid_ir::ops::communication::Reduce;
use lucid_ir::Meta;
use lucid_mlx::communication;
use mlx_ffi::distributed as mlx;
use std::ops::Range;

/// From how many bytes for each member on MLX's ring sends both ways at once: two of its smallest messages.
const BOTH_WAYS: usize = 2 * 262_144;
/// Up to how many bytes in all that arrive a gather, which goes round the ring once, is done before a sum, which goes round twice.
const FEW: usize = 256 << 10;

/// Begins one piece after another, and gives each to `end` once it has arrived and the next is under way.
fn in_turn(
    (count, piece): (usize, usize),
    begin: impl Fn(&Range<usize>) -> Result<mlx::Travelling>,
    mut end: impl FnMut(&Range<usize>, mlx::Travelling) -> Result<()>,
) -> Result<()> {
    let mut before: Option<(Range<usize>, mlx::Travelling)> = None;
    for at in (0..count).step_by(piece) {
        let span = at..count.min(at + piece);
        let begun = begin(&span)?;
        if let Some((span, arrived)) = before.replace((span, begun)) {
            end(&span, arrived)?;
        }
    }
    before.map_or(Ok(()), |(span, arrived)| end(&span, arrived))
}

/// How many elements each of as few pieces as there can be has, of fewer bytes than `below`.
fn piece(count: usize, below: usize, dtype: DType) -> usize {
    let most = (below - 1) / dtype.size().max(1);
    count.div_ceil(count.div_ceil(most).max(1))
}

fn part(x: &Tensor, span: &Range<usize>) -> Result<Tensor> {
    x.narrow(-1, span.start as i64, span.len() as i64)
}

/// Memory of the host's for a result, with arbitrary elements.
fn room(shape: &[usize], dtype: DType) -> Result<Tensor> {
    let layout = Layout::contiguous(shape);
    let buffer = Buffer::uninit(dtype, shape.iter().product())?;
    Ok(dispatch::of_cpu_array(CpuArray::on(buffer, layout)?))
}

fn begun(
    op: &'static str,
    x: &Tensor,
    begin: impl FnOnce(mlx_ffi::Array) -> mlx_ffi::Result<mlx::Travelling>,
) -> Result<mlx::Travelling> {
    let there = x.contiguous()?.to_device(Device::Gpu)?;
    let array = communication::array_of(op, dispatch::gpu_arrays(op, &[&there])?[0])?;
    // What was copied for this alone is MLX's to write over.
    drop(there);
    communication::begun(op, || begin(array))
}

fn arrived(op: &'static str, travelling: mlx::Travelling, shape: &[usize], dtype: DType) -> Result<Tensor> {
    let made = communication::arrived(op, travelling, &Meta::new(shape, dtype))?;
    dispatch::of_gpu_array(made).to_device(Device::Cpu)
}

/// All members' elements of a vector in the host's memory, one row for each.
fn gathered_vector(op: &'static str, ring: &mlx::Group, x: &Tensor) -> Result<Tensor> {
    let (n, count, dtype) = (ring.size(), x.numel(), x.dtype());
    let piece = piece(count, BOTH_WAYS, dtype);
    let begin = |span: &Range<usize>| begun(op, &part(x, span)?.unsqueeze(0)?, |a| ring.begin_all_gather(a));
    if count <= piece {
        return arrived(op, begin(&(0..count))?, &[n, count], dtype);
    }
    let out = room(&[n, count], dtype)?;
    in_turn((count, piece), begin, |span, travelling| {
        part(&out, span)?.copy_(&arrived(op, travelling, &[n, span.len()], dtype)?)
    })?;
    Ok(out)
}

/// All members' tensors, along a new first dimension.
pub(super) fn gathered(op: &'static str, ring: &mlx::Group, x: &Tensor) -> Result<Tensor> {
    let carried = carried(x)?.to_device(Device::Cpu)?;
    let all = gathered_vector(op, ring, &carried.reshape(&[-1])?)?;
    let mut shape = Vec::from([ring.size() as isize]);
    shape.extend(carried.shape().iter().map(|&n| n as isize));
    unbits(&all.reshape(&shape)?, x.dtype())?.to_device(x.device())
}

fn folded(how: Reduce, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    match how {
        Reduce::Sum | Reduce::Avg => a.add(b, 1),
        Reduce::Product => a.mul(b),
        Reduce::Min => a.minimum(b),
        Reduce::Max => a.maximum(b),
        Reduce::BitAnd => a.bitwise_and(b),
        Reduce::BitOr => a.bitwise_or(b),
        Reduce::BitXor => a.bitwise_xor(b),
    }
}

/// What MLX's ring reduces by itself, of dtypes that MLX has.
fn of_mlx(how: Reduce, dtype: DType) -> Option<mlx::Reduce> {
    match how {
        _ if matches!(dtype, DType::F64 | DType::C128) => None,
        Reduce::Sum | Reduce::Avg => Some(mlx::Reduce::Sum),
        Reduce::Min => Some(mlx::Reduce::Min),
        Reduce::Max => Some(mlx::Reduce::Max),
        _ => None,
    }
}

/// All members' tensors as one, element by element.
pub(super) fn reduced(op: &'static str, ring: &mlx::Group, x: &Tensor, how: Reduce) -> Result<Tensor> {
    let host = x.to_device(Device::Cpu)?;
    let vector = |x: &Tensor, how| reduced_vector(op, ring, &x.reshape(&[-1])?, how, None);
    let made = match (x.dtype(), how) {
        // Is one of them true? Are all?
        (DType::Bool, Reduce::Sum | Reduce::Max) => vector(&host.cast(DType::U8)?, Reduce::Max)?.cast(DType::Bool)?,
        (DType::Bool, Reduce::Min | Reduce::Product) => {
            vector(&host.cast(DType::U8)?, Reduce::Min)?.cast(DType::Bool)?
        }
        (_, Reduce::Avg) => vector(&host, how)?.div(ring.size() as f64, None)?,
        _ => vector(&host, how)?,
    };
    let shape: Vec<isize> = x.shape().iter().map(|&n| n as isize).collect();
    made.reshape(&shape)?.to_device(x.device())
}

/// Can [`reduced_over`] do it?
pub(super) fn can_be_over(x: &Tensor) -> bool {
    x.device() == Device::Cpu && x.dtype() != DType::Bool && x.is_contiguous()
}

/// The same, written over the tensor. Nothing is written before `agreed` says that all call this.
pub(super) fn reduced_over(
    op: &'static str,
    ring: &mlx::Group,
    x: Tensor,
    how: Reduce,
    agreed: &dyn Fn() -> Result<()>,
) -> Result<Tensor> {
    reduced_vector(op, ring, &x.reshape(&[-1])?, how, Some(agreed))?;
    if how == Reduce::Avg {
        x.div_(ring.size() as f64, None)?;
    }
    Ok(x)
}

/// A vector in the host's memory of all members' vectors; with `over` it is their own one.
fn reduced_vector(
    op: &'static str,
    ring: &mlx::Group,
    x: &Tensor,
    how: Reduce,
    over: Option<&dyn Fn() -> Result<()>>,
) -> Result<Tensor> {
    let (n, count, dtype) = (ring.size(), x.numel(), x.dtype());
    let few = count * dtype.size() * (n - 1) <= FEW;
    if let Some(direct) = of_mlx(how, dtype).filter(|_| n > 2 && !few) {
        let begin = |span: &Range<usize>| begun(op, &part(x, span)?, |a| ring.begin_all_reduce(a, direct));
        let end = |span: &Range<usize>, travelling| arrived(op, travelling, &[span.len()], dtype);
        return joined(x, piece(count, n * BOTH_WAYS, dtype), over, begin, end);
    }
    let carried = carried(x)?.reshape(&[-1])?;
    // Pairs travel as two elements.
    let wide = carried.numel() / count.max(1);
    let begin = |span: &Range<usize>| {
        let own = part(&carried, &(span.start * wide..span.end * wide))?.unsqueeze(0)?;
        begun(op, &own, |a| ring.begin_all_gather(a))
    };
    let end = |span: &Range<usize>, travelling| {
        let all = arrived(op, travelling, &[n, span.len() * wide], carried.dtype())?;
        let row = |i: usize| {
            let row = all.select(0, i as i64)?;
            unbits(&if wide == 2 { row.reshape(&[-1, 2])? } else { row }, dtype)
        };
        (1..n).try_fold(row(0)?, |so_far, i| folded(how, &so_far, &row(i)?))
    };
    joined(x, piece(count, BOTH_WAYS, dtype), over, begin, end)
}

/// A vector like `x` of what is made of its pieces; with `over` it is `x`, which is written once that agrees.
fn joined(
    x: &Tensor,
    piece: usize,
    over: Option<&dyn Fn() -> Result<()>>,
    begin: impl Fn(&Range<usize>) -> Result<mlx::Travelling>,
    end: impl Fn(&Range<usize>, mlx::Travelling) -> Result<Tensor>,
) -> Result<Tensor> {
    let count = x.numel();
    if count <= piece && over.is_none() {
        let whole = 0..count;
        return end(&whole, begin(&whole)?);
    }
    let out = if over.is_some() { x.clone() } else { room(&[count], x.dtype())? };
    in_turn((count, piece), begin, |span, travelling| {
        let made = end(span, travelling)?;
        over.map_or(Ok(()), |agreed| agreed())?;
        part(&out, span)?.copy_(&made)
    })?;
    Ok(out)
}
