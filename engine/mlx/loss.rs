//! The negative log-likelihood of class indices, and the gradient through it.
//!
//! Depends on `array`, `bounds`, `rows` and mlx-ffi. 16-bit floats are summed in float32. Invariant: a target that is no class
//! and not ignored is an error before anything is read by it.
#![allow(unsafe_code)] // MLX checks no index, and no kernel.

use super::array::GpuArray;
use super::bounds;
use super::convert::{self, constant, ints};
use super::elementwise::cast_array;
use super::host_kernel;
use super::kernel_error::Made;
use super::reduce;
use super::row_kernels;
use super::special::{choose, number};
use super::value::{Value, ValueRange};
use crate::shape::numel;
use crate::{DType, Error};
use lucid_cpu::CpuBackend;
use lucid_ir::backend::Backend;
use lucid_ir::ops::loss::{LossOp, Reduction};
use lucid_ir::Meta;
use mlx_ffi::{ops, Array, Dtype};

pub(super) fn loss(op: &LossOp, inputs: &[&GpuArray], out: &Meta) -> Made<GpuArray> {
    if let LossOp::BceLogits | LossOp::BceLogitsGradient = op {
        return logits(op, inputs, out);
    }
    let &[x, target] = inputs else {
        return Err(Error::runtime(op.name(), format!("does not take {} arrays", inputs.len())).into());
    };
    let name = op.name();
    let array = match *op {
        LossOp::Nll { ignore, reduction } => {
            let targets = Targets::of(name, target, x.shape().last().copied().unwrap_or(1), ignore, reduction)?;
            targets.forward(&*x.value()?.logical()?, out)?
        }
        LossOp::BceLogits | LossOp::BceLogitsGradient => {
            return Err(Error::runtime(name, format!("does not take {} arrays", inputs.len())).into());
        }
        LossOp::NllGradient { classes, ignore, reduction } => {
            Targets::of(name, target, classes, ignore, reduction)?.backward(&*x.value()?.logical()?, out)?
        }
    };
    GpuArray::new(Value::plain(array), &out.shape, out.dtype)
}

/// Binary cross-entropy of logits, element by element, and its gradient; computed in float32.
fn logits(op: &LossOp, inputs: &[&GpuArray], out: &Meta) -> Made<GpuArray> {
    if host_kernel::takes(out.dtype) {
        let op = op.clone();
        return host_kernel::run(c"LucidLogits", inputs, out, move |x, out| CpuBackend::loss(&op, x, out));
    }
    let wide = |x: &GpuArray| -> Made<Array> { cast_array(&*x.value()?.logical()?, out.dtype, DType::F32) };
    let made = match (op, inputs) {
        (LossOp::BceLogits, &[x, t]) => {
            let (x, t) = (wide(x)?, wide(t)?);
            let (nil, one) = (number(0.0)?, number(1.0)?);
            let less = ops::negative(&x)?;
            let above = choose(&ops::less(&x, &nil)?, &less, &nil)?;
            let tail = ops::add(&above, &ops::log1p(&ops::exp(&ops::negative(&ops::abs(&x)?)?)?)?)?;
            ops::add(&ops::multiply(&ops::subtract(&one, &t)?, &x)?, &tail)?
        }
        (LossOp::BceLogitsGradient, &[g, x, t]) => {
            ops::multiply(&wide(g)?, &ops::subtract(&ops::sigmoid(&wide(x)?)?, &wide(t)?)?)?
        }
        _ => return Err(Error::runtime(op.name(), format!("does not take {} arrays", inputs.len())).into()),
    };
    GpuArray::new(Value::plain(cast_array(&made, DType::F32, out.dtype)?), &out.shape, out.dtype)
}

/// Batches of classes.
struct Targets {
    array: Array,
    classes: usize,
    /// What counts nothing, if any target may be that.
    ignore: Option<i64>,
    reduction: Reduction,
}

impl Targets {
    fn of(name: &'static str, target: &GpuArray, classes: usize, ignore: i64, reduction: Reduction) -> Made<Targets> {
        bounds::check_but(name, target, classes, ignore)?;
        let v = target.value()?;
        let never = matches!(v.known, ValueRange::Within(low, high) if !(low..=high).contains(&ignore));
        let array = v.logical()?.into_owned();
        Ok(Targets { array, classes, ignore: (!never).then_some(ignore), reduction })
    }

    /// Where a target counts; `None` where all do.
    fn used(&self) -> Made<Option<Array>> {
        self.ignore.map(|i| Ok(ops::not_equal(&self.array, &constant(i, DType::I64)?)?)).transpose()
    }

    /// How many targets of each batch count, as float32.
    fn count(&self, used: Option<&Array>) -> Made<Array> {
        let rows = self.array.shape().last().copied().unwrap_or(1);
        match used {
            None => constant(f64::from(rows), DType::F32),
            Some(used) => reduce::sum(&ops::astype(used, Dtype::Float32)?, &[-1], false, DType::F32),
        }
    }

    fn forward(&self, logs: &Array, out: &Meta) -> Made<Array> {
        let mean = self.reduction == Reduction::Mean;
        if self.array.size() == 0 {
            let nothing = constant(if mean { f64::NAN } else { 0.0 }, out.dtype)?;
            return Ok(ops::broadcast_to(&nothing, &ints(&out.shape)?)?);
        }
        if let Some(made) = row_kernels::nll(logs, &self.array, self.ignore, self.reduction)? {
            return Ok(made);
        }
        let used = self.used()?;
        let safe = match &used {
            Some(used) => ops::where_(used, &self.array, &constant(0, DType::I64)?)?,
            None => self.array.clone(),
        };
        // SAFETY: classes, which were checked; one that is ignored counts as 0, and there is a class.
        let picked = unsafe { ops::take_along_axis(logs, &ops::expand_dims(&safe, -1)?, -1) }?;
        let rows = ops::negative(&ops::squeeze_axis(&picked, -1)?)?;
        let rows = match &used {
            Some(used) => ops::where_(used, &rows, &constant(0, out.dtype)?)?,
            None => rows,
        };
        if self.reduction == Reduction::None {
            return Ok(rows);
        }
        let sum = reduce::sum(&cast_array(&rows, out.dtype, DType::F32)?, &[-1], false, DType::F32)?;
        let sum = if mean { ops::divide(&sum, &self.count(used.as_ref())?)? } else { sum };
        cast_array(&sum, DType::F32, out.dtype)
    }

    fn backward(&self, g: &Array, out: &Meta) -> Made<Array> {
        if numel(&out.shape) == 0 {
            return Ok(ops::zeros(&ints(&out.shape)?, convert::dtype(out.dtype)?)?);
        }
        if let Some(made) = row_kernels::nll_back(g, &self.array, self.classes, self.ignore, self.reduction)? {
            return Ok(made);
        }
        let used = self.used()?;
        let share = ops::negative(g)?;
        let share = match self.reduction {
            Reduction::Mean => {
                let share = cast_array(&share, out.dtype, DType::F32)?;
                cast_array(&ops::divide(&share, &self.count(used.as_ref())?)?, DType::F32, out.dtype)?
            }
            Reduction::Sum | Reduction::None => share,
        };
        let share = if self.reduction == Reduction::None { share } else { ops::expand_dims(&share, -1)? };
        let classes = ops::arange(0.0, self.classes as f64, 1.0, Dtype::Int64)?;
        let mut here = ops::equal(&ops::expand_dims(&self.array, -1)?, &classes)?;
        if let Some(used) = used {
            here = ops::logical_and(&here, &ops::expand_dims(&used, -1)?)?;
        }
        Ok(ops::where_(&here, &ops::expand_dims(&share, -1)?, &constant(0, out.dtype)?)?)
    }
}
