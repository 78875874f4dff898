//! The negative log-likelihood of class indices, and the gradient through it.
//!
//! Depends on `array`, `bounds`, `rows` and mlx-ffi. 16-bit floats are summed in float32. Invariant: a target that is no class
//! and not ignored is an error before anything is read by it.
#![allow(unsafe_code)] // MLX checks no index, and no kernel.

use super::array::GpuArray;
use super::bounds;
use super::convert::{self, constant, ints};
use super::cross_entropy::{LogSoftmax, OneClass};
use super::ctc;
use super::custom_kernel;
use super::elementwise::cast_array;
use super::host_kernel;
use super::kernel_error::Made;
use super::lower::Origin;
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
    match op {
        LossOp::BceLogits | LossOp::BceLogitsGradient => return logits(op, inputs, out),
        LossOp::Ctc { .. } | LossOp::CtcGradient { .. } => return ctc::ctc(op, inputs, out),
        LossOp::Nll { .. } | LossOp::NllGradient { .. } => {}
    }
    let &[x, target] = inputs else {
        return Err(Error::runtime(op.name(), format!("does not take {} arrays", inputs.len())).into());
    };
    let name = op.name();
    let array = match *op {
        LossOp::Nll { ignore, reduction } => {
            let targets = Targets::of(name, target, x.shape().last().copied().unwrap_or(1), ignore, reduction)?;
            let v = x.value()?;
            let later = match v.origin() {
                Some(Origin::LogSoftmax(logs)) if v.ready().is_none() => Some(logs),
                _ => None,
            };
            match later {
                Some(logs) => targets.of_logits(logs, out)?,
                None => targets.forward(&*v.logical()?, out)?,
            }
        }
        LossOp::BceLogits | LossOp::BceLogitsGradient | LossOp::Ctc { .. } | LossOp::CtcGradient { .. } => {
            return Err(Error::runtime(name, format!("does not take {} arrays", inputs.len())).into());
        }
        LossOp::NllGradient { classes, ignore, reduction } => {
            let targets = Targets::of(name, target, classes, ignore, reduction)?;
            let v = x.value()?;
            let g = v.logical()?;
            if classes >= LONG && targets.array.ndim() == 1 && custom_kernel::room().is_some() {
                return GpuArray::new(targets.backward_later(&g, out)?, &out.shape, out.dtype);
            }
            targets.backward(&g, out)?
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

/// Classes from which on a gradient that reaches one of each row is worth looking through.
const LONG: usize = 129;

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
        self.reduced(rows, used, out.dtype, out.dtype)
    }

    /// The losses of the rows, reduced; from one dtype to another.
    fn reduced(&self, rows: Array, used: Option<Array>, from: DType, to: DType) -> Made<Array> {
        let rows = match &used {
            Some(used) => ops::where_(used, &rows, &constant(0, from)?)?,
            None => rows,
        };
        if self.reduction == Reduction::None {
            return cast_array(&rows, from, to);
        }
        let sum = reduce::sum(&cast_array(&rows, from, DType::F32)?, &[-1], false, DType::F32)?;
        let mean = self.reduction == Reduction::Mean;
        let sum = if mean { ops::divide(&sum, &self.count(used.as_ref())?)? } else { sum };
        cast_array(&sum, DType::F32, to)
    }

    /// [`Targets::forward`] of the logarithms of softmax, of which it reads one for each row.
    fn of_logits(&self, logs: &LogSoftmax, out: &Meta) -> Made<Array> {
        if self.array.ndim() != 1 || self.array.size() == 0 {
            return self.forward(&logs.make()?, out);
        }
        let used = self.used()?;
        let safe = match &used {
            Some(used) => ops::where_(used, &self.array, &constant(0, DType::I64)?)?,
            None => self.array.clone(),
        };
        // SAFETY: classes, which were checked; one that is ignored counts as 0, and there is a class.
        let picked = unsafe { ops::take_along_axis(&logs.x, &ops::expand_dims(&safe, -1)?, -1) }?;
        let rows = ops::negative(&logs.pick(&picked)?)?;
        self.reduced(rows, used, DType::F32, out.dtype)
    }

    /// [`Targets::backward`], to be looked through by the gradient of the logarithms of softmax.
    fn backward_later(&self, g: &Array, out: &Meta) -> Made<Value> {
        let plain = self.backward(g, out)?;
        let (used, g) = (self.used()?, cast_array(g, out.dtype, DType::F32)?);
        let share = ops::negative(&g)?;
        let share = match self.reduction {
            Reduction::Mean => ops::divide(&share, &self.count(used.as_ref())?)?,
            Reduction::Sum | Reduction::None => share,
        };
        let share = ops::broadcast_to(&share, self.array.shape())?;
        let share = match &used {
            Some(used) => ops::where_(used, &share, &constant(0.0, DType::F32)?)?,
            None => share,
        };
        Value::later(Origin::OneClass(OneClass { target: self.array.clone(), share, plain }), None)
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
