//! Dual tensors, made and taken apart: a tensor with a tangent beside its elements.

use super::dual_level::{around, current};
use super::forward::{put, tangent, zeros_as};
use super::modes;
use crate::tensor::signed;
use crate::{batching, Error, Result, Tensor};

/// A dual tensor: a view of `primal` that carries `tangent`, itself where it has the layout of the primal, so that writes
/// to the dual tensor are seen there.
///
/// ```
/// use lucid::autograd::{enter_dual_level, exit_dual_level, make_dual, unpack_dual};
/// use lucid::{Device, Tensor};
/// # fn main() -> lucid::Result<()> {
/// let x = Tensor::from_slice(&[3.0f32], &[1], Device::Cpu)?;
/// enter_dual_level()?;
/// let dual = make_dual(&x, &Tensor::from_slice(&[1.0f32], &[1], Device::Cpu)?)?;
/// let (value, slope) = unpack_dual(&(&dual * &dual)?)?;
/// assert_eq!(value.to_vec::<f32>()?, [9.0]);
/// assert_eq!(slope.unwrap().to_vec::<f32>()?, [6.0]);
/// exit_dual_level()?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Error::Runtime`] where no level is open or `primal` has a tangent, and where the shapes differ;
/// [`Error::DtypeMismatch`] for dtypes without gradients; [`Error::DeviceMismatch`] for tensors of two devices.
pub fn make_dual(primal: &Tensor, tangent: &Tensor) -> Result<Tensor> {
    const OP: &str = "make_dual";
    if current() == 0 {
        let why = "Trying to create a dual Tensor for forward AD but no level exists, make sure to enter_dual_level() \
                   first.";
        return Err(Error::runtime(OP, why));
    }
    if self::tangent(primal)?.is_some() {
        let why = "Making a dual Tensor based on a Tensor that already has a forward gradient at the same level 0 is \
                   not supported.";
        return Err(Error::runtime(OP, why));
    }
    let _name = modes::named("view");
    let dual = primal.alias()?;
    set_tangent(OP, &dual, tangent)?;
    Ok(dual)
}

/// Gives a tensor that has none a tangent, as `op`, which is at work here.
///
/// # Errors
/// As [`make_dual`].
pub fn set_tangent(op: &'static str, t: &Tensor, tangent: &Tensor) -> Result<()> {
    if t.is_sparse() || tangent.is_sparse() {
        return Err(Error::not_implemented(op, "sparse tensors carry no tangents; call to_dense() first"));
    }
    for (x, what) in [(t, "primal"), (tangent, "tangent")] {
        if !x.dtype().is_differentiable() {
            let why = format!("Expected {what} to be floating point or complex, but got: {}", x.dtype());
            return Err(Error::dtype(op, why, &[x.dtype()]));
        }
    }
    if t.shape() != tangent.shape() {
        let why = format!(
            "Trying to set a forward gradient that has a different size than that of the original Tensor, this is not \
             supported. Tensor is of size {:?} while the given forward gradient is of size {:?}.",
            t.shape(),
            tangent.shape()
        );
        return Err(Error::runtime(op, why));
    }
    if t.device() != tangent.device() {
        let why = "the tangent must be on the tensor's device; move one with .to()";
        return Err(Error::device(op, why, &[t.device(), tangent.device()]));
    }
    bind(t, tangent)
}

pub(super) fn bind(t: &Tensor, tangent: &Tensor) -> Result<()> {
    if let Some(batch) = t.storage().batch() {
        // All samples have the same tangent where it is not batched as they are.
        let whole = around(|| batching::unwrap_at(tangent, batch.level, batch.size()))?;
        return bind(&batch.value, &whole);
    }
    put(t, Some(around(|| laid_as(tangent, t))?), false);
    Ok(())
}

/// The tensor without its tangent, and that. The first is a view, on the tape.
///
/// # Errors
/// What the view reports.
pub fn unpack_dual(t: &Tensor) -> Result<(Tensor, Option<Tensor>)> {
    if t.is_sparse() || current() == 0 {
        return Ok((t.clone(), None));
    }
    let _name = modes::named("view");
    let found = tangent(t)?;
    let primal = around(|| t.alias())?;
    put(crate::batching::bare(&primal), None, false);
    Ok((primal, found))
}

/// A tangent for `t`: the tensor itself where it has the layout of `t`, in a storage as large, else a copy that does. So what views
/// show of the storage beyond `t` has a tangent, too, and it is nobody else's.
fn laid_as(v: &Tensor, t: &Tensor) -> Result<Tensor> {
    let samples = v.is_batched() || t.is_batched();
    let place = |t: &Tensor| (t.layout().offset, t.storage_numel());
    let fits = if samples { !v.layout().may_overlap() } else { place(v) == place(t) };
    if v.strides() == t.strides() && fits {
        return Ok(v.clone());
    }
    // A storage that was resized may end before `t` does.
    let cut = t.storage_numel() < t.layout().span();
    if samples || cut || t.layout().may_overlap() || t.storage_numel() == t.numel() {
        return copied_as(v, t);
    }
    let copy = zeros_as(t, v.dtype())?;
    copy.copy_(v)?;
    Ok(copy)
}

pub(super) fn copied_as(v: &Tensor, t: &Tensor) -> Result<Tensor> {
    if t.is_contiguous() || t.layout().may_overlap() {
        return v.copy();
    }
    let bare = batching::bare_by(v.clone(), &batching::levels_of(v))?;
    let lead = bare.ndim() - t.ndim();
    let mut strides = signed(t.strides()).to_vec();
    let mut step = t.layout().span() as isize;
    for &size in bare.shape()[..lead].iter().rev() {
        strides.insert(0, step);
        step *= size as isize;
    }
    let copy = Tensor::strided_of("make_dual", &signed(bare.shape()), &strides, (v.dtype(), v.device()))?;
    copy.copy_(&bare)?;
    batching::rewrapped_by(copy, &batching::levels_of(v))
}
