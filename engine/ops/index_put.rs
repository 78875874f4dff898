//! `x[…] = values`, where indices and masks stand along dimensions: the body of `index_put`, whose row is in `scatter`.

use super::index::{as_index, beside, put_axes, Target};
use super::scatter::same_dtype;
use crate::shape::Axes;
use crate::{DType, Error, Result, Tensor};

/// Leading dimensions and the int64 indices along them, of indices and masks as `x[…]` takes them.
pub(super) fn spread_masks(op: &'static str, x: &Tensor, indices: &[Tensor]) -> Result<(Axes, Vec<Tensor>)> {
    let mut wide = Vec::new();
    for t in indices {
        let t = &beside(x, t)?;
        if !matches!(t.dtype(), DType::Bool | DType::U8) {
            wide.push(as_index(op, t)?);
            continue;
        }
        let at = wide.len();
        check_mask(op, x, at, t)?;
        wide.extend(places(t)?);
    }
    if wide.len() > x.ndim() {
        let why = format!("too many indices for tensor of dimension {} (got {})", x.ndim(), wide.len());
        return Err(Error::index(op, why));
    }
    Ok(((0..wide.len()).collect(), wide))
}

/// Refuses a mask that is not in the shape of the dimensions of `x` from `at` on.
pub fn check_mask(op: &'static str, x: &Tensor, at: usize, mask: &Tensor) -> Result<()> {
    for (i, &n) in mask.shape().iter().enumerate() {
        if x.shape().get(at + i) != Some(&n) {
            let why = format!(
                "The shape of the mask {:?} at index {i} does not match the shape of the indexed tensor {:?} at index {}",
                mask.shape(),
                x.shape(),
                at + i
            );
            return Err(Error::index(op, why));
        }
    }
    Ok(())
}

/// The indices where a mask holds, one vector for each of its dimensions. Evaluates.
pub fn places(mask: &Tensor) -> Result<Vec<Tensor>> {
    mask.nonzero()?.unbind(1)
}

/// One mask and one number are a `masked_fill` in PyTorch, which casts.
fn as_filled(x: &Tensor, indices: &[Tensor], values: &Tensor) -> Result<Option<Tensor>> {
    if !(matches!(indices, [mask] if mask.dtype() == DType::Bool) && values.numel() == 1) {
        return Ok(None);
    }
    let values = values.reshape(())?;
    if values.dtype() == x.dtype() {
        return Ok(Some(values));
    }
    if values.dtype().is_complex() {
        super::create::check_held("index_put", values.detach()?.item()?, x.dtype())?;
        return super::complex::real(&values)?.cast(x.dtype()).map(Some);
    }
    values.cast(x.dtype()).map(Some)
}

pub(super) fn index_put_body(
    to: Target,
    x: &Tensor,
    indices: &[Tensor],
    values: &Tensor,
    accumulate: bool,
) -> Result<Tensor> {
    if to == Target::Itself {
        crate::warnings::of_expanded("index_put_", x);
    }
    if let Err(odd) = same_dtype("index_put", x, values, "Index put requires the source and destination dtypes match") {
        return match if accumulate { None } else { as_filled(x, indices, values)? } {
            Some(values) => index_put_body(to, x, indices, &values, false),
            None => Err(odd),
        };
    }
    let filled = if values.ndim() > 1 && !accumulate { as_filled(x, indices, values)? } else { None };
    let (given, values) = (indices, filled.as_ref().unwrap_or(values));
    let (axes, indices) = spread_masks("index_put", x, given)?;
    if axes.is_empty() {
        if given.is_empty() {
            return Err(Error::index("index_put", "expected at least one index tensor"));
        }
        // Truth values without dimensions take all of the tensor, or nothing of it.
        let mut all = true;
        for mask in given {
            all &= mask.detach()?.item_f64()? != 0.0;
        }
        let once = super::create::arange_of(usize::from(all), x.device())?;
        let out = put_axes(to, &x.unsqueeze(0)?, &[0], &[once], values, accumulate, false)?;
        return if to == Target::Itself { Ok(x.clone()) } else { out.squeeze(Some(&[0])) };
    }
    put_axes(to, x, &axes, &indices, values, accumulate, false)
}

/// `x[…] = values` where the index tensors stand along `dims`: writes in place.
///
/// # Errors
/// For indices out of range, values that do not broadcast, and what every in-place op refuses.
pub fn index_assign(x: &Tensor, dims: &[isize], indices: &[Tensor], values: &Tensor) -> Result<()> {
    same_dtype("index_put", x, values, "Index put requires the source and destination dtypes match")?;
    let (axes, indices) = super::index::checked_indices("index_put", x, dims, indices)?;
    crate::warnings::of_expanded("index_put_", x);
    let _name = crate::autograd::named("index_put");
    put_axes(Target::Itself, x, &axes, &indices, values, false, false).map(drop)
}
