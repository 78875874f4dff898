//! Comparisons, logic between tensors, and choosing elements by a condition.
//!
//! Kernels are in `cpu/elementwise.rs` and `mlx/elementwise.rs`. Results are `bool`, but for `where` and what is made of it.

use super::index::Target;
use super::macros::define_ops;
use super::{result_type, Operand};
use crate::dispatch::{self, Meta, Prim};
use crate::ops::OpRow;
use crate::{autograd, shape, DType, Error, Result, Scalar, Tensor};
use lucid_ir::compare_ops;
pub use lucid_ir::ops::compare::*;

compare_ops!(define_ops);

/// Choosing by a condition.
pub mod select {
    use super::*;

    pub use lucid_ir::ops::select::SelectOp;
    use lucid_ir::select_ops;

    select_ops!(define_ops);

    fn where_body(condition: &Tensor, a: Operand<'_>, b: Operand<'_>) -> Result<Tensor> {
        let condition = &match condition.dtype() {
            DType::Bool => condition.clone(),
            // PyTorch's older masks.
            DType::U8 => {
                crate::warnings::warn_once!(
                    "where received a uint8 condition tensor. This is deprecated. Use a boolean condition instead."
                );
                condition.cast(DType::Bool)?
            }
            other => {
                let why = "where expected condition to be a boolean tensor";
                return Err(Error::dtype("where", why, &[other]));
            }
        };
        let dtype = result_type([a, b])?;
        let (a, b) = (materialise(a, dtype, condition)?, materialise(b, dtype, condition)?);
        let inner = shape::broadcast("where", a.shape(), b.shape())?;
        let shape = shape::broadcast("where", condition.shape(), &inner)?;
        dispatch::apply1(Prim::Select(SelectOp::Where), &[condition, &a, &b], Meta { shape, dtype })
    }

    fn materialise(x: Operand<'_>, dtype: DType, like: &Tensor) -> Result<Tensor> {
        match x {
            Operand::Tensor(t) => t.cast(dtype),
            Operand::Scalar(s) => Tensor::constant(s, dtype, like.device()),
        }
    }

    fn masked_fill_body(to: Target, x: &Tensor, mask: &Tensor, value: Operand<'_>) -> Result<Tensor> {
        if mask.dtype() != DType::Bool {
            let why = format!("only supports boolean masks, but got mask with dtype {}", mask.dtype());
            return Err(Error::dtype("masked_fill", why, &[mask.dtype()]));
        }
        let value = match value {
            Operand::Scalar(s @ Scalar::Complex(..)) if !x.dtype().is_complex() => {
                let why = format!("value {s} cannot be converted to {}", x.dtype());
                return Err(Error::runtime("masked_fill", why));
            }
            Operand::Scalar(s) => crate::ops::create::held("masked_fill", s, x)?,
            Operand::Tensor(t) if t.dtype().is_complex() && !x.dtype().is_complex() => {
                let why = format!("value of {} cannot be converted to {}", t.dtype(), x.dtype());
                return Err(Error::dtype("masked_fill", why, &[x.dtype(), t.dtype()]));
            }
            Operand::Tensor(t) if t.ndim() == 0 => t.cast(x.dtype())?,
            Operand::Tensor(t) => {
                let why =
                    format!("value must be a number or a 0-dimensional tensor, got one with {} dimensions", t.ndim());
                return Err(Error::shape("masked_fill", why, &[t.shape()]));
            }
        };
        match to {
            // Row-major, as PyTorch makes it.
            Target::Copy => r#where(&mask.contiguous()?, &value, &x.contiguous()?),
            Target::Itself => {
                x.refuse_shared("masked_fill_", mask, false)?;
                crate::warnings::of_expanded("masked_fill_", x);
                let _name = autograd::OpScope::of("masked_fill", 0);
                crate::ops::aliased_write::write_where("masked_fill_", x, mask, &value)
            }
        }
    }

    fn clamp_body(x: &Tensor, min: Option<Operand<'_>>, max: Option<Operand<'_>>) -> Result<Tensor> {
        let bounds = || min.into_iter().chain(max);
        if bounds().next().is_none() {
            return Err(Error::runtime("clamp", "At least one of 'min' or 'max' must not be None"));
        }
        let dtype = result_type(std::iter::once(Operand::Tensor(x)).chain(bounds()))?;
        if dtype.is_float8() {
            schema::clamp.check(dtype)?;
        }
        let x = &x.cast(dtype)?;
        // A bound beyond the numbers of an integer dtype says nothing, or leaves none.
        let bound = |b: Option<Operand<'_>>, name: &str| match b {
            Some(Operand::Tensor(t)) => t.cast(dtype).map(Some),
            Some(Operand::Scalar(s)) if s.fits(dtype) => crate::ops::create::held("clamp", s, x).map(Some),
            Some(Operand::Scalar(s)) if (s.to_f64() < 0.0) == (name == "min") => Ok(None),
            Some(Operand::Scalar(s)) => {
                let why = format!("{name} value {s} is outside the representable range of {dtype}");
                Err(Error::runtime("clamp", why))
            }
            None => Ok(None),
        };
        let (low, high) = (bound(min, "min")?, bound(max, "max")?);
        // The value: NaN from wherever it comes, and `max` where the bounds are the wrong way round.
        let between = |x: &Tensor| -> Result<Tensor> {
            let x = low.as_ref().map_or(Ok(x.clone()), |low| x.maximum(low))?;
            high.as_ref().map_or(Ok(x.clone()), |high| x.minimum(high))
        };
        let tracked = |t: &Tensor| dtype.is_differentiable() && autograd::is_followed(t);
        if bounds().all(|b| matches!(b, Operand::Scalar(_))) {
            // NaN stands for no bound there, and as a bound makes everything NaN.
            let number = |b: Option<Operand<'_>>| match b {
                Some(Operand::Scalar(s)) => s.to_f64(),
                _ => f64::NAN,
            };
            // As the dtype holds them.
            let held = |v: f64| match dtype {
                DType::F16 => half::f16::from_f64(v).to_f64(),
                DType::BF16 => half::bf16::from_f64(v).to_f64(),
                _ => v,
            };
            let (from, to) = (held(number(min)), held(number(max)));
            if dtype.is_float() && from.is_nan() == min.is_none() && to.is_nan() == max.is_none() {
                return crate::ops::nn::element(x, crate::ops::nn::ElementFn::Clamp, [from, to, 0.0]);
            }
            if !tracked(x) {
                return between(x);
            }
            let above = low.as_ref().map(|low| x.gt(low)).transpose()?;
            let below = high.as_ref().map(|high| x.lt(high)).transpose()?;
            let inside = match (above, below) {
                (Some(above), Some(below)) => above.logical_and(&below)?,
                (one, other) => one.or(other).map_or_else(|| x.isfinite(), Ok)?,
            };
            return r#where(&inside, x, &between(&x.detach()?)?);
        }
        match (&low, &high) {
            (Some(low), Some(high)) if [x, low, high].into_iter().any(tracked) => {
                // Where the bounds meet, or are the wrong way round, one of the three has it all.
                let met = r#where(&x.lt(low)?, low, &r#where(&x.gt(high)?, high, x)?)?;
                let closed = r#where(&low.eq(high)?, &met, high)?;
                r#where(&low.ge(high)?, &closed, &between(x)?)
            }
            _ => between(x),
        }
    }

    fn isclose_body(x: &Tensor, y: &Tensor, rtol: f64, atol: f64, equal_nan: bool) -> Result<Tensor> {
        if !(rtol >= 0.0 && atol >= 0.0) {
            return Err(Error::runtime(
                "isclose",
                format!("rtol and atol must not be negative, got {rtol} and {atol}"),
            ));
        }
        if x.dtype() != y.dtype() {
            let why = "both tensors must have the same dtype; cast one with .to()";
            return Err(Error::dtype("isclose", why, &[x.dtype(), y.dtype()]));
        }
        let dtype = if x.dtype().is_integral() { DType::F32 } else { x.dtype() };
        let (a, b) = (x.detach()?.cast(dtype)?, y.detach()?.cast(dtype)?);
        let bound = ((b.abs()? * rtol)? + atol)?;
        let apart = (&a - &b)?.abs()?;
        let near = apart.le(&bound)?.logical_and(&apart.isfinite()?)?;
        let close = a.eq(&b)?.logical_or(&near)?;
        match equal_nan {
            true => close.logical_or(&a.isnan()?.logical_and(&b.isnan()?)?),
            false => Ok(close),
        }
    }

    fn allclose_body(x: &Tensor, y: &Tensor, rtol: f64, atol: f64, equal_nan: bool) -> Result<bool> {
        isclose_body(x, y, rtol, atol, equal_nan)?.all(None, false)?.item_bool()
    }

    fn equal_body(x: &Tensor, y: &Tensor) -> Result<bool> {
        if x.shape() != y.shape() {
            return Ok(false);
        }
        x.eq(y)?.all(None, false)?.item_bool()
    }
}

impl Tensor {
    /// `masked_fill` whose result has the layout of the mask and the tensor, as those of other element-wise ops.
    pub(crate) fn filled(&self, mask: &Tensor, value: f64) -> Result<Tensor> {
        select::r#where(mask, &super::create::held("masked_fill", Scalar::Float(value), self)?, self)
    }

    /// The tensor's elements where `condition` holds, zero elsewhere.
    pub(crate) fn where_else_zero(&self, condition: &Tensor) -> Result<Tensor> {
        select::r#where(condition, self, &Tensor::constant(Scalar::ZERO, self.dtype(), self.device())?)
    }

    /// The same elements, on the tape as made of `of` too, whose gradient is zeros, itself made of nothing: of what an op goes
    /// by in steps.
    pub(crate) fn in_steps_of(self, of: &Tensor) -> Result<Tensor> {
        match autograd::is_followed(of) && !of.dtype().is_complex() {
            true => self.also_of(&of.floor()?),
            false => self.also_of(of),
        }
    }

    /// The same elements, on the tape as made of `of` too, whose gradient is zero: of what an op took and did not need.
    pub(crate) fn also_of(self, of: &Tensor) -> Result<Tensor> {
        if !autograd::is_followed(of) || !self.dtype().is_differentiable() {
            return Ok(self);
        }
        let never = Tensor::constant(Scalar::Bool(false), DType::Bool, self.device())?;
        select::r#where(&never, &of.cast(self.dtype())?, &self)
    }
}

/// The in-place form of a comparison: what is written has gradient 0 to both operands. PyTorch puts integers on the tape too,
/// where nearly every op then refuses them; here they stay off it.
fn write_compared(
    (schema, op): (&'static super::Schema, &'static str),
    x: &Tensor,
    other: Operand<'_>,
    row: impl FnOnce(&Tensor, Operand<'_>) -> Result<Tensor>,
) -> Result<()> {
    if let Operand::Tensor(other) = other {
        x.refuse_shared(op, other, false)?;
    }
    let over = crate::output_donation::offered(x, x, schema);
    let value = row(over.as_ref().unwrap_or(x), other)?;
    drop(over);
    let _name = autograd::OpScope::of(schema.name, 0);
    match other {
        Operand::Tensor(other)
            if x.dtype().is_differentiable() && [x, other].into_iter().any(autograd::is_followed) =>
        {
            let value = value.cast(x.dtype())?;
            let (first, rest) = schema.name.split_at(1);
            autograd::flat(&value, &format!("{}{rest}Backward1", first.to_uppercase()), &[x, other])?;
            x.write_in_place(op, value)
        }
        _ => x.write_in_place(op, value),
    }
}

fn compare(op: CompareOp, a: &Tensor, b: Operand<'_>) -> Result<Tensor> {
    let schema = op.schema();
    let dtype = result_type([Operand::Tensor(a), b])?;
    schema.check(dtype)?;
    let a = a.detach()?.cast(dtype)?;
    let b = match b {
        Operand::Tensor(b) => b.detach()?.cast(dtype)?,
        Operand::Scalar(s) => Tensor::constant(s, dtype, a.device())?,
    };
    let shape = shape::broadcast(schema.name, a.shape(), b.shape())?;
    dispatch::apply1(Prim::Compare(op), &[&a, &b], Meta { shape, dtype: DType::Bool })
}
