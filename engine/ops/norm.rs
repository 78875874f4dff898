//! Normalisation over features, channels or the batch.
//!
//! Layer norm is a primitive of the family `norm`, one pass on both backends (`cpu/norm.rs`, `mlx/nn.rs`). Batch and group norm, and
//! the gradients of all three, have several results: their primitives are in `normalization`. RMS norm is made of reductions.

use super::macros::define_ops;
use super::normalization::{self, NormalizationOp};
use crate::autograd::{self, Ctx, Grads};
use crate::dispatch::{self, Meta, Prim};
use crate::shape::{product, Axes, Sizes};
use crate::{DType, Device, Error, MemoryFormat, Result, Scalar, Tensor};
use lucid_ir::norm_ops;
pub use lucid_ir::ops::norm::*;
use lucid_ir::ops::normalization::statistics_dtype;
use smallvec::SmallVec;

norm_ops!(define_ops);

fn standardize(x: &Tensor, dims: usize, eps: f64) -> Result<Tensor> {
    dispatch::apply1(Prim::Norm(NormOp::Standardize { dims, eps }), &[x], Meta::new(x.shape(), x.dtype()))
}

fn standardize_back(g: &Tensor, x: &Tensor, dims: usize, eps: f64) -> Result<Tensor> {
    let op = NormOp::StandardizeGradient { dims, eps };
    dispatch::apply1(Prim::Norm(op), &[g, x], Meta::new(x.shape(), x.dtype()))
}

fn standardize_gradient_body(g: &Tensor, x: &Tensor, dims: i64, eps: f64) -> Result<Tensor> {
    let schema = &schema::normalize_last_gradient;
    schema.check(x.dtype())?;
    if g.shape() != x.shape() || dims < 1 || dims as usize > x.ndim() {
        let why = format!("takes a gradient and an input of one shape, of {dims} dimensions at least");
        return Err(Error::shape(schema.name, why, &[g.shape(), x.shape()]));
    }
    if g.dtype() != x.dtype() {
        return Err(Error::dtype(schema.name, "takes a gradient of the input's dtype", &[g.dtype(), x.dtype()]));
    }
    standardize_back(g, x, dims as usize, eps)
}

/// With `s = 1/σ`, means `M` and the incoming `v`: `⟨v, s (g - M g - y M(g y))⟩` depends on `x` by `∂s = -s² M(y ∂x)` and by
/// `∂y`, whose transpose is the same map as that of `g`, which is symmetric.
fn standardize_second(c: &Ctx<'_>, v: &Tensor, dims: usize, eps: f64) -> Result<Grads> {
    let (g, x) = (c.x(0)?, c.x(1)?);
    let mut grads = Grads::new();
    grads.push(if c.needs(0) { Some(standardize_back(v, &x, dims, eps)?) } else { None });
    if !c.needs(1) {
        grads.push(None);
        return Ok(grads);
    }
    let over: Vec<isize> = (1..=dims as isize).map(|d| -d).collect();
    let mean = |t: &Tensor| t.mean(Some(&over), true, None);
    let square = ((x.var(Some(&over), 0, true)? + eps)?.reciprocal())?;
    let y = standardize(&x, dims, eps)?;
    let (gy, vy) = (mean(&(&g * &y)?)?, mean(&(v * &y)?)?);
    let met = ((mean(&(v * &g)?)? - &(mean(v)? * &mean(&g)?)?)? - &(&vy * &gy)?)?;
    let through_y = standardize_back(&((v * &gy)? + &(&g * &vy)?)?, &x, dims, eps)?;
    let by_scale = ((y * &met)? * &square)?;
    grads.push(Some(((through_y * &square.sqrt()?)? + &by_scale)?.neg()?));
    Ok(grads)
}

/// The gradient through [`normalize_affine`]: one primitive where nothing of it is followed, else the steps.
fn affine_back(c: &Ctx<'_>, g: &Tensor, dims: usize, eps: f64) -> Result<Grads> {
    let (x, w) = (c.x(0)?, c.x(1)?);
    if !normalization::in_steps(&[g, &x, &w]) {
        let made = normalization::apply(NormalizationOp::LayerGradient { dims, eps }, &[g, &x, &w])?;
        return Ok(made.into_iter().enumerate().map(|(i, g)| c.needs(i).then_some(g)).collect());
    }
    // The dimensions that weight and bias do not have.
    let over: Vec<isize> = (0..(x.ndim() - dims) as isize).collect();
    let summed = |t: &Tensor| match over.is_empty() {
        true => Ok(t.clone()),
        false => t.sum(Some(&over), false, None),
    };
    let mut grads = Grads::new();
    grads.push(if c.needs(0) { Some(standardize_back(&(g * &w)?, &x, dims, eps)?) } else { None });
    grads.push(if c.needs(1) { Some(summed(&(g * &standardized(&x, 0, dims, eps)?)?)?) } else { None });
    grads.push(if c.needs(2) { Some(summed(g)?) } else { None });
    Ok(grads)
}

fn standardize_body(x: &Tensor, dims: i64, eps: f64) -> Result<Tensor> {
    schema::layer_norm.check(x.dtype())?;
    if dims < 1 || dims as usize > x.ndim() {
        return Err(Error::shape("normalize_last", format!("cannot normalize over {dims} dimensions"), &[x.shape()]));
    }
    standardize(x, dims as usize, eps)?.contiguous()
}

fn check_last(op: &'static str, x: &Tensor, normalized: &[isize], affine: &[Option<&Tensor>]) -> Result<()> {
    match op {
        "rms_norm" => schema::rms_norm.check(x.dtype())?,
        _ => schema::layer_norm.check(x.dtype())?,
    }
    let want: Vec<usize> = normalized.iter().map(|&n| n.max(0) as usize).collect();
    if want.is_empty() || !x.shape().ends_with(&want) {
        let why = format!("Given normalized_shape={normalized:?}, expected input with shape [*, {normalized:?}]");
        return Err(Error::shape(op, why, &[x.shape()]));
    }
    match affine.iter().flatten().find(|t| t.shape() != want.as_slice()) {
        Some(t) => {
            Err(Error::shape(op, "weight and bias must have the shape of normalized_shape", &[&want, t.shape()]))
        }
        None => Ok(()),
    }
}

/// Parameters and statistics have one dtype, which is the input's; beside a 16-bit input it may be float32.
fn check_dtypes(op: &'static str, x: &Tensor, parameters: &[Option<&Tensor>]) -> Result<()> {
    let mut dtypes = parameters.iter().flatten().map(|t| t.dtype());
    let Some(first) = dtypes.next() else { return Ok(()) };
    let wide = first == DType::F32 && x.dtype().is_half();
    if (first == x.dtype() || wide) && dtypes.clone().all(|other| other == first) {
        return Ok(());
    }
    let why = "expected weight, bias and statistics to have the input's dtype, or all float32 beside a 16-bit input";
    let found: Vec<DType> = [x.dtype(), first].into_iter().chain(dtypes).collect();
    Err(Error::dtype(op, why, &found))
}

/// `y · weight + bias`; 16-bit inputs keep their dtype beside float32 parameters, as in PyTorch.
fn scale_and_shift(y: Tensor, weight: Option<&Tensor>, bias: Option<&Tensor>, dtype: DType) -> Result<Tensor> {
    let y = weight.map_or(Ok(y.clone()), |w| y * w)?;
    let y = bias.map_or(Ok(y.clone()), |b| y + b)?;
    match dtype {
        DType::F16 | DType::BF16 => y.cast(dtype),
        _ => Ok(y),
    }
}

fn layer_norm_body(
    x: &Tensor,
    normalized: &[isize],
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    eps: f64,
) -> Result<Tensor> {
    check_last("layer_norm", x, normalized, &[weight, bias])?;
    check_dtypes("layer_norm", x, &[weight, bias])?;
    if let Some((weight, bias)) = taken(x, weight, bias) {
        return affine(x, weight, bias, normalized.len(), eps);
    }
    scale_and_shift(standardize(x, normalized.len(), eps)?.contiguous()?, weight, bias, x.dtype())
}

fn rms_norm_body(x: &Tensor, normalized: &[isize], weight: Option<&Tensor>, eps: Option<f64>) -> Result<Tensor> {
    check_last("rms_norm", x, normalized, &[weight])?;
    let eps = eps.unwrap_or(match x.dtype() {
        DType::F64 | DType::C128 => f64::EPSILON,
        _ => f64::from(f32::EPSILON),
    });
    let over: Vec<isize> = (1..=normalized.len() as isize).map(|d| -d).collect();
    // Squares of 16-bit numbers overflow.
    let wide = if x.dtype().size() == 2 { x.contiguous()?.cast(DType::F32)? } else { x.contiguous()? };
    let mean = wide.square()?.mean(Some(&over), true, None)?;
    let scale = {
        let _name = crate::autograd::named("add_number");
        (mean + eps)?
    };
    let scale = scale.rsqrt()?;
    // A weight of any dtype changes nothing about the result's.
    scale_and_shift((wide * &scale)?.cast(x.dtype())?, weight, None, x.dtype())?.cast(x.dtype())
}

/// A per-channel vector seen as (1, C, 1, …).
fn per_channel(op: &'static str, x: &Tensor, v: Option<&Tensor>) -> Result<Option<Tensor>> {
    let Some(v) = v else { return Ok(None) };
    if v.shape() != [x.shape()[1]] {
        return Err(Error::shape(op, "expected one element per channel", &[x.shape(), v.shape()]));
    }
    let mut wide = Sizes::from_elem(1, x.ndim());
    wide[1] = -1;
    v.reshape(&wide).map(Some)
}

fn group_norm_body(
    x: &Tensor,
    groups: i64,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    eps: f64,
) -> Result<Tensor> {
    schema::group_norm.check(x.dtype())?;
    if x.ndim() >= 2 && x.shape()[2..].contains(&0) {
        return Err(Error::shape("group_norm", "Expected HxW to be greater than 0, got 0", &[x.shape()]));
    }
    if x.ndim() >= 2 && x.shape()[1] == 0 {
        return Err(Error::shape(
            "group_norm",
            "Expected number of channels to be greater than 0, got 0",
            &[x.shape()],
        ));
    }
    if x.ndim() < 2 || groups < 1 || !x.shape()[1].is_multiple_of(groups as usize) {
        let why = format!("Expected number of channels in input to be divisible by num_groups={groups}");
        return Err(Error::shape("group_norm", why, &[x.shape()]));
    }
    check_dtypes("group_norm", x, &[weight, bias])?;
    for p in [weight, bias] {
        per_channel("group_norm", x, p)?;
    }
    let inner = x.numel() / (x.shape()[0] * groups as usize).max(1);
    if x.shape()[0] * inner == 1 {
        let why = format!("Expected more than 1 value per channel when training, got input size {:?}", x.shape());
        return Err(Error::value("group_norm", why));
    }
    let x = match x.layout().suggested_format() {
        MemoryFormat::Contiguous => x.contiguous()?,
        _ => x.clone(),
    };
    let [weight, bias] = parameters("group_norm", &x, [weight, bias])?;
    normalization::group(&[&x, &weight, &bias], groups as usize, eps)
}

/// Weight and bias of the channels: ones and zeros where there are none.
fn parameters(op: &'static str, x: &Tensor, given: [Option<&Tensor>; 2]) -> Result<[Tensor; 2]> {
    let devices: SmallVec<[Device; 3]> =
        std::iter::once(x.device()).chain(given.iter().flatten().map(|p| p.device())).collect();
    if devices.iter().any(|&device| device != x.device()) {
        let why = "Expected all tensors to be on the same device; move one with .to()";
        return Err(Error::device(op, why, &devices));
    }
    let like = given.iter().flatten().next().map_or(statistics_dtype(x.dtype()), |p| p.dtype());
    let of = |p: Option<&Tensor>, fill: f64| match p {
        Some(p) => Ok(p.clone()),
        None => Tensor::full_of(&x.shape()[1..2], Scalar::Float(fill), like, x.device()),
    };
    Ok([of(given[0], 1.0)?, of(given[1], 0.0)?])
}

/// The layout of a gradient in PyTorch: as images do that have their channels last, else row-major.
fn as_images(x: &Tensor) -> autograd::GradLayoutRule {
    match x.suggested_format() {
        MemoryFormat::Contiguous => autograd::GradLayoutRule::RowMajor,
        _ => autograd::GradLayoutRule::AsInput,
    }
}

/// Runs `f` on tensors that show their dimension behind `batch` others after the next one, and turns the result back: what
/// is to be standardised over all dimensions but one is seen as rows, which need not be moved for that.
fn by_channels(batch: usize, x: &[&Tensor], f: impl Fn(&[&Tensor], usize) -> Result<Tensor>) -> Result<Tensor> {
    let ndim = x[0].ndim();
    let mut axes: Axes = (0..ndim).collect();
    axes.swap(batch, batch + 1);
    let rows: Vec<Tensor> =
        x.iter().map(|x| super::view::permute_axes(&x.contiguous()?, &axes)).collect::<Result<_>>()?;
    let y = {
        // Gradients come back through the permutation: row-major behind it.
        let _lies = autograd::GradLayoutGuard::set(autograd::GradLayoutRule::AsInput);
        f(&rows.iter().collect::<Vec<_>>(), ndim - batch - 1)?
    };
    let y = super::view::permute_axes(&y, &axes)?;
    match x[0].layout().suggested_format() {
        MemoryFormat::Contiguous => y.contiguous(),
        _ if x[0].is_batched() => y.contiguous(),
        format => y.contiguous_in(format),
    }
}

/// `(x - mean) / sqrt(var + eps)` over the last dimensions, or, for `dims` 0, over all but the second behind a batch.
pub(crate) fn standardized(x: &Tensor, batch: usize, dims: usize, eps: f64) -> Result<Tensor> {
    match dims {
        0 => by_channels(batch, &[x], |x, dims| standardize(x[0], dims, eps)),
        _ => standardize(x, dims, eps)?.contiguous(),
    }
}

/// The gradient through that, without a batch.
pub(super) fn standardized_back(g: &Tensor, x: &Tensor, dims: usize, eps: f64) -> Result<Tensor> {
    match dims {
        0 => by_channels(0, &[g, x], |t, dims| standardize_back(t[0], t[1], dims, eps)),
        _ => standardize_back(g, x, dims, eps),
    }
}

fn affine(x: &Tensor, weight: &Tensor, bias: &Tensor, dims: usize, eps: f64) -> Result<Tensor> {
    let meta = Meta::new(x.shape(), x.dtype());
    dispatch::apply1(Prim::Norm(NormOp::Affine { dims, eps }), &[x, weight, bias], meta)
}

/// Has the device a pass that takes weight and bias along?
fn has_pass(device: Device) -> bool {
    match device {
        Device::Cpu => true,
        Device::Gpu => dispatch::runs_custom_kernels(),
        Device::Meta => false,
    }
}

/// Weight and bias, where one pass of the device may take them with an input.
fn taken<'a>(x: &Tensor, weight: Option<&'a Tensor>, bias: Option<&'a Tensor>) -> Option<(&'a Tensor, &'a Tensor)> {
    let (w, b) = (weight?, bias?);
    let alike = [w, b].iter().all(|p| p.device() == x.device() && p.dtype() == x.dtype());
    (alike && has_pass(x.device())).then_some((w, b))
}

fn affine_body(x: &Tensor, weight: &Tensor, bias: &Tensor, dims: i64, eps: f64) -> Result<Tensor> {
    let schema = &schema::normalize_affine;
    schema.check(x.dtype())?;
    let shape = match usize::try_from(dims) {
        Ok(dims @ 1..) if dims <= x.ndim() => &x.shape()[x.ndim() - dims..],
        _ => return Err(Error::shape(schema.name, format!("cannot normalize over {dims} dimensions"), &[x.shape()])),
    };
    if [weight, bias].iter().any(|p| p.shape() != shape) {
        let why = format!("takes weight and bias of the shape {shape:?}");
        return Err(Error::shape(schema.name, why, &[x.shape(), weight.shape(), bias.shape()]));
    }
    if [weight, bias].iter().any(|p| p.dtype() != x.dtype()) {
        let why = "takes weight and bias of the input's dtype";
        return Err(Error::dtype(schema.name, why, &[x.dtype(), weight.dtype(), bias.dtype()]));
    }
    affine(x, weight, bias, dims as usize, eps)
}

const UNKNOWN: &str = "expected running_mean and running_var to be defined when training=False";

#[allow(clippy::too_many_arguments)]
fn batch_norm_body(
    x: &Tensor,
    running_mean: Option<&Tensor>,
    running_var: Option<&Tensor>,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    training: bool,
    momentum: f64,
    eps: f64,
) -> Result<Tensor> {
    const OP: &str = "batch_norm";
    schema::batch_norm.check(x.dtype())?;
    check_dtypes(OP, x, &[weight, bias, running_mean, running_var])?;
    for (name, statistic) in [("running_mean", running_mean), ("running_var", running_var)] {
        autograd::refuse_recorded(OP, "native_batch_norm", name, statistic)?;
    }
    let dtype = x.dtype();
    // The result has PyTorch's strides: row-major, unless the channels of an image are last.
    let x = match x.layout().suggested_format() {
        MemoryFormat::Contiguous => x.contiguous()?,
        _ => x.clone(),
    };
    let x = &x;
    if let (true, Some(&count)) = (training, x.shape().first())
        && product([count].into_iter().chain(x.shape().iter().skip(2).copied())) == 1
    {
        let why = format!("Expected more than 1 value per channel when training, got input size {:?}", x.shape());
        return Err(Error::value(OP, why));
    }
    if x.numel() == 0 {
        // As in PyTorch nothing else of the arguments is looked at.
        let first = |v: Option<&Tensor>| v.map(|v| v.select(0, 0)).transpose();
        return scale_and_shift(x.copy()?, first(weight)?.as_ref(), first(bias)?.as_ref(), dtype);
    }
    if x.ndim() < 2 {
        let shape = x.shape();
        return Err(match (running_mean, training) {
            (Some(mean), _) if x.ndim() > 0 || !training => {
                let why = format!("running_mean should contain 0 elements not {}, for an input of shape {shape:?}, which has no channels", mean.numel());
                Error::runtime(OP, why)
            }
            (None, false) => Error::runtime(OP, UNKNOWN),
            _ => {
                let why = format!("Dimension out of range: expected at least 2 dimensions (N, C, ...), got {shape:?}");
                Error::index(OP, why)
            }
        });
    }
    let per = |p: Option<&Tensor>| per_channel(OP, x, p);
    let (wide_weight, wide_bias) = (per(weight)?, per(bias)?);
    if eps < 0.0 && !training {
        return Err(Error::value(OP, format!("batch_norm eps must be non-negative, but got {eps}")));
    }
    if !training {
        let (Some(mean), Some(var)) = (per(running_mean)?, per(running_var)?) else {
            return Err(Error::runtime(OP, UNKNOWN));
        };
        let x = &match dtype {
            DType::F16 | DType::BF16 => x.cast(DType::F32)?,
            _ => x.clone(),
        };
        let followed =
            |t: &Tensor| autograd::forward::carries(t) || autograd::grad_enabled() && autograd::requires_grad(t);
        let inputs = [Some(x), weight, bias, running_mean, running_var];
        let plain = !inputs.into_iter().flatten().any(followed);
        let _lies = autograd::GradLayoutGuard::set(as_images(x));
        // Scales are multiplied first, and where nothing is followed shifts are put together: they are of the size of channels.
        let scale = (&var + eps)?.rsqrt()?;
        let scale = wide_weight.map_or(Ok(scale.clone()), |w| scale * &w)?;
        if !plain {
            return scale_and_shift(((x - &mean)? * &scale)?, None, wide_bias.as_ref(), dtype);
        }
        let shift = (mean * &scale)?.neg()?;
        let shift = wide_bias.map_or(Ok(shift.clone()), |b| shift + &b)?;
        return scale_and_shift((x * &scale)?, None, Some(&shift), dtype);
    }
    if eps <= 0.0 {
        return Err(Error::value(OP, format!("batch_norm eps must be positive during training, but got {eps}")));
    }
    let [weight, bias] = parameters(OP, x, [weight, bias])?;
    let [y, mean, var, _] = normalization::batch(&[x, &weight, &bias], eps)?;
    let n = (x.numel() / x.shape()[1].max(1)) as f64;
    for (running, batch, factor) in [(running_mean, &mean, 1.0), (running_var, &var, n / (n - 1.0))] {
        if let Some(r) = running {
            per(Some(r))?;
            let fresh = (batch.detach()?.cast(r.dtype())? * (momentum * factor))?;
            r.write_in_place(OP, ((r.detach()? * (1.0 - momentum))? + &fresh)?)?;
        }
    }
    Ok(y)
}
