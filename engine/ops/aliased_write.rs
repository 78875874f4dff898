//! Writes to tensors that show some element of their storage several times.
//!
//! PyTorch refuses them where a dimension is expanded, and takes windows that overlap; ops that write at chosen places
//! (`masked_fill_`, `index_put_`, `tril_`, `triu_`) take expanded tensors too. Such a write goes to the storage, as a vector:
//! of values that meet, the last in row-major order stays. What an op reads is what was there before it; PyTorch's loops
//! read some elements after they have written them. The tape is the caller's business.

use super::index::{index_axes, run, IndexOp, ScatterMode};
use crate::autograd;
use crate::dispatch;
use crate::shape::{self, Axes};
use crate::{DType, Error, Result, Tensor};

/// The storage of `x` as a vector, and the place in it of each element.
fn opened(x: &Tensor) -> Result<(Tensor, Tensor)> {
    let (layout, all) = (x.layout(), x.storage_numel());
    let signed = |v: &[usize]| v.iter().map(|&n| n as isize).collect::<Vec<_>>();
    let whole = x.detach()?.as_strided(&[all as isize], &[1], Some(0))?;
    let places = super::create::arange_of(all, x.device())?;
    let places = places.as_strided(&signed(&layout.shape), &signed(&layout.strides), Some(layout.offset as i64))?;
    Ok((whole, places))
}

fn put(whole: &Tensor, places: &Tensor, values: &Tensor, mode: ScatterMode) -> Result<()> {
    let (places, values) = (places.reshape(&[-1])?, values.detach()?.reshape(&[-1])?);
    match mode {
        ScatterMode::Set => {
            let op = IndexOp::IndexPut { axes: Axes::from_slice(&[0]), accumulate: false, strict: true };
            dispatch::index_into(&op, whole, &[&values, &places])
        }
        mode => dispatch::index_into(&IndexOp::Scatter { axis: 0, mode }, whole, &[&places, &values]),
    }
}

/// Writes `value`, of its shape and dtype, over `x`.
pub(crate) fn assign(x: &Tensor, value: &Tensor) -> Result<()> {
    let (whole, places) = opened(x)?;
    put(&whole, &places, value, ScatterMode::Set)
}

/// Writes a number in a tensor to the elements of `x` for which `mask`, which broadcasts, holds. Evaluates.
pub(super) fn fill_where(x: &Tensor, mask: &Tensor, value: &Tensor) -> Result<()> {
    let (whole, places) = opened(x)?;
    let places = places.masked_select(mask)?;
    let values = super::view::expand_to(value, places.shape())?;
    put(&whole, &places, &values, ScatterMode::Set)
}

/// Writes values at places among the elements of `x`, counted in row-major order, or adds them there.
pub(super) fn put_at(x: &Tensor, index: &Tensor, values: &Tensor, accumulate: bool) -> Result<()> {
    let (whole, places) = opened(x)?;
    let places = index_axes(&places.reshape(&[-1])?, &[0], std::slice::from_ref(index), false)?;
    put(&whole, &places, values, if accumulate { ScatterMode::Add } else { ScatterMode::Set })
}

/// What an op that writes at indices into its first input, `x`, does there.
pub(super) fn write_at(op: &IndexOp, x: &Tensor, rest: &[&Tensor]) -> Result<()> {
    let (whole, places) = opened(x)?;
    match (op, rest) {
        (IndexOp::IndexPut { axes, accumulate, strict }, [values, at @ ..]) => {
            let at: Vec<Tensor> = at.iter().map(|t| (*t).clone()).collect();
            let mode = if *accumulate { ScatterMode::Add } else { ScatterMode::Set };
            put(&whole, &index_axes(&places, axes, &at, *strict)?, values, mode)
        }
        (IndexOp::Scatter { axis, mode } | IndexOp::Reduce { axis, mode }, [at, values]) => {
            let at = run(IndexOp::Gather { axis: *axis }, &[&places, at], at.shape())?;
            put(&whole, &at, values, *mode)
        }
        (op, _) => Err(Error::runtime(op.name(), "does not write to memory that overlaps itself")),
    }
}

/// Is `x` expanded and on the tape, and the value that goes there no more than numbers? Then PyTorch writes, and refuses to go
/// backward through that.
pub(super) fn ends_the_tape(x: &Tensor, value: &Tensor) -> bool {
    let carries = autograd::forward::carries;
    let recorded = crate::grad_enabled() && x.requires_grad() && !value.requires_grad();
    recorded && x.layout().repeats() && !x.is_batched() && !carries(x) && !carries(value)
}

/// Writes a number in a tensor over the elements of `x` for which `mask`, which broadcasts, holds, and records that.
pub(super) fn write_where(op: &'static str, x: &Tensor, mask: &Tensor, value: &Tensor) -> Result<Tensor> {
    let tracked = autograd::is_followed(x) || autograd::is_followed(value);
    let plain = !x.is_batched() && !x.is_sparse() && !mask.is_batched() && mask.dtype() == DType::Bool;
    let fits = || shape::broadcast(op, x.shape(), mask.shape()).is_ok_and(|s| s.as_slice() == x.shape());
    let meets = plain && x.layout().may_overlap() && fits();
    if meets && ends_the_tape(x, value) {
        autograd::record_fill(op, x, value, || fill_where(x, mask, value))?;
    } else if !meets || tracked && x.layout().repeats() {
        let read = autograd::rewritten(x);
        let written = super::compare::select::r#where(mask, value, read.as_ref().unwrap_or(x))?;
        x.write_in_place(op, written)?;
    } else {
        autograd::check_in_place(op, x, value)?;
        let read = autograd::rewritten(x);
        let made = || super::compare::select::r#where(mask, value, read.as_ref().unwrap_or(x));
        let made = if tracked { Some(made()?) } else { None };
        // An element that is shown elsewhere, too, where the mask does not hold, is written.
        fill_where(x, mask, value)?;
        made.map_or(Ok(()), |made| autograd::record_write(x, &made, false))?;
    }
    Ok(x.clone())
}
