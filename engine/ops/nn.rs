//! Layers' functions: linear maps, softmax, activations, dropout, embedding, attention.
//!
//! The primitives here are single passes on both backends (`cpu/fused.rs`, `mlx/nn.rs`); the rest is made of other ops.

use super::attention;
use super::macros::define_ops;
use super::OpRow;
use crate::autograd::{Grads, OpScope};
use crate::dispatch::{self, Meta, Prim};
use crate::shape::{self, Shape};
use crate::{DType, Error, Generator, Result, Scalar, Tensor};
use lucid_ir::nn_ops;
pub use lucid_ir::ops::nn::*;

nn_ops!(define_ops);

/// A tensor's last dimension as columns, everything before as rows.
fn rows(x: &Tensor) -> Result<Tensor> {
    match x.ndim() {
        2 => Ok(x.clone()),
        n => super::view::reshape_to(x, &[shape::numel(&x.shape()[..n - 1]), x.shape()[n - 1]]),
    }
}

fn linear_body(x: &Tensor, w: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    schema::linear.check(x.dtype())?;
    if let Some(odd) = std::iter::once(w).chain(bias).find(|t| t.dtype() != x.dtype()) {
        let why = "input, weight and bias must have the same dtype; cast with .to()";
        return Err(Error::dtype("linear", why, &[x.dtype(), odd.dtype()]));
    }
    if w.ndim() == 1 && bias.is_none() {
        // One output feature, without a dimension of its own.
        return linear_body(x, &w.unsqueeze(0)?, None)?.squeeze(Some(&[-1]));
    }
    let fits = x.ndim() >= 1 && w.ndim() == 2 && x.shape()[x.ndim() - 1] == w.shape()[1];
    if !fits {
        let why = "input's last dimension must be the weight's second (out_features, in_features)";
        return Err(Error::shape("linear", why, &[x.shape(), w.shape()]));
    }
    // The steps have the names of what PyTorch calls.
    match (x.ndim(), bias) {
        (2, _) => {}
        (1, None) => OpScope::rename("linear", "vecmat"),
        (2.., Some(_)) if !x.layout().is_contiguous() => OpScope::rename("linear", "add"),
        _ => OpScope::rename("linear", "unsafe_view"),
    }
    let mut shape = Shape::from_slice(x.shape());
    shape.pop();
    shape.push(w.shape()[0]);
    if let Some(b) = bias.filter(|b| b.shape() != [w.shape()[0]]) {
        // PyTorch adds what broadcasts, too.
        if !shape::broadcast("linear", b.shape(), &shape).is_ok_and(|both| both == shape) {
            let why = "bias must have one element per output feature";
            return Err(Error::shape("linear", why, &[w.shape(), b.shape()]));
        }
        return linear_body(x, w, None)? + b;
    }
    if !x.dtype().is_float() {
        // The primitive is for what networks are made of; complex and whole numbers take the long way.
        let y = x.matmul(&w.t()?)?;
        return bias.map_or(Ok(y.clone()), |b| &y + b);
    }
    let meta = Meta { shape, dtype: x.dtype() };
    if x.ndim() == 1 {
        return linear_body(&x.unsqueeze(0)?, w, bias)?.squeeze(Some(&[0]));
    }
    match bias {
        Some(b) => dispatch::apply1(Prim::Nn(NnOp::Linear), &[x, w, b], meta),
        None => dispatch::apply1(Prim::Nn(NnOp::Linear), &[x, w], meta),
    }
}

fn along(op: fn(usize) -> NnOp, x: &Tensor, dim: isize, dtype: Option<DType>) -> Result<Tensor> {
    let schema = op(0).schema();
    let axis = shape::wrap_dim(schema.name, dim, x.ndim())?;
    let x = x.cast(dtype.unwrap_or(x.dtype()))?;
    if let Err(refused) = schema.check(x.dtype()) {
        // Of nothing PyTorch makes nothing, whatever the dtype.
        return if x.numel() == 0 { x.copy() } else { Err(refused) };
    }
    if x.ndim() == 0 {
        return along(op, &x.reshape(&[1])?, 0, None)?.reshape(());
    }
    dispatch::apply1(Prim::Nn(op(axis)), &[&x], Meta::new(x.shape(), x.dtype()))
}

pub(super) fn softmax_back(g: &Tensor, y: &Tensor, axis: usize, log: bool) -> Result<Tensor> {
    dispatch::apply1(Prim::Nn(NnOp::SoftmaxGradient { axis, log }), &[g, y], Meta::new(y.shape(), y.dtype()))
}

fn softmax_gradient_body(g: &Tensor, y: &Tensor, dim: isize, log: bool) -> Result<Tensor> {
    let schema = &schema::softmax_gradient;
    schema.check(y.dtype())?;
    if g.shape() != y.shape() || y.ndim() == 0 {
        let why = "takes a gradient and a result of one shape, of one dimension at least";
        return Err(Error::shape(schema.name, why, &[g.shape(), y.shape()]));
    }
    if g.dtype() != y.dtype() {
        return Err(Error::dtype(schema.name, "takes a gradient of the result's dtype", &[g.dtype(), y.dtype()]));
    }
    softmax_back(g, y, shape::wrap_dim(schema.name, dim, y.ndim())?, log)
}

/// Both are linear in `g`, so that what meets the incoming gradient `v` there is the same map, or its transpose.
fn softmax_gradient_gradient(c: &crate::autograd::Ctx<'_>, v: &Tensor, axis: usize, log: bool) -> Result<Grads> {
    let (g, y) = (c.x(0)?, c.x(1)?);
    let sum = |t: &Tensor| t.sum(Some(&[axis as isize]), true, None);
    let mut grads = Grads::new();
    if log {
        let met = (v * &y.exp()?)?;
        grads.push(if c.needs(0) { Some((v - &sum(&met)?)?) } else { None });
        grads.push(if c.needs(1) { Some((met.neg()? * &sum(&g)?)?) } else { None });
    } else {
        grads.push(if c.needs(0) { Some(softmax_back(v, &y, axis, false)?) } else { None });
        grads.push(match c.needs(1) {
            true => Some(((v * &(&g - &sum(&(&g * &y)?)?)?)? - &(&g * &sum(&(v * &y)?)?)?)?),
            false => None,
        });
    }
    Ok(grads)
}

fn gelu_body(x: &Tensor, approximate: &str) -> Result<Tensor> {
    schema::gelu.check(x.dtype())?;
    let tanh = match approximate {
        "none" => false,
        "tanh" => true,
        other => {
            return Err(Error::runtime(
                "gelu",
                format!("approximate argument must be either none or tanh, got {other}"),
            ))
        }
    };
    dispatch::apply1(Prim::Nn(NnOp::Gelu { tanh }), &[x], Meta::new(x.shape(), x.dtype()))
}

fn gelu_back(g: &Tensor, x: &Tensor, tanh: bool) -> Result<Tensor> {
    dispatch::apply1(Prim::Nn(NnOp::GeluGradient { tanh }), &[g, x], Meta::new(x.shape(), x.dtype()))
}

fn gelu_gradient_body(g: &Tensor, x: &Tensor, tanh: bool) -> Result<Tensor> {
    let schema = &schema::gelu_gradient;
    schema.check(x.dtype())?;
    if g.shape() != x.shape() {
        let why = "takes a gradient and an input of one shape";
        return Err(Error::shape(schema.name, why, &[g.shape(), x.shape()]));
    }
    if g.dtype() != x.dtype() {
        return Err(Error::dtype(schema.name, "takes a gradient of the input's dtype", &[g.dtype(), x.dtype()]));
    }
    gelu_back(g, x, tanh)
}

/// The second derivative of gelu: `φ(x) (2 - x²)`, or, with `t` the tanh of `u`, `(1 - t²) (u' + x u'' / 2 - x t u'²)`.
fn gelu_bend(x: &Tensor, tanh: bool) -> Result<Tensor> {
    let square = x.square()?;
    if tanh {
        let t = ((x * &((&square * GELU_CUBIC)? + 1.0)?)? * GELU_SCALE)?.tanh()?;
        let first = (((&square * (3.0 * GELU_CUBIC))? + 1.0)? * GELU_SCALE)?;
        let second = (&square * (3.0 * GELU_CUBIC * GELU_SCALE))?;
        let steep = ((x * &t)? * &first.square()?)?;
        return (1.0 - &t.square()?)? * &((first + &second)? - &steep)?;
    }
    let density = ((&square * -0.5)?.exp()? * (GELU_SCALE * 0.5))?;
    density * &(2.0 - &square)?
}

/// `f` of each element; of a floating dtype.
pub(super) fn element(x: &Tensor, f: ElementFn, numbers: [f64; 3]) -> Result<Tensor> {
    dispatch::apply1(Prim::Nn(NnOp::Elementwise { f, numbers }), &[x], Meta::new(x.shape(), x.dtype()))
}

/// `g` times the derivative of `f` at `x`.
pub(super) fn element_back(g: &Tensor, x: &Tensor, f: ElementFn, numbers: [f64; 3]) -> Result<Tensor> {
    let meta = Meta::new(x.shape(), x.dtype());
    dispatch::apply1(Prim::Nn(NnOp::ElementwiseGradient { f, numbers }), &[g, x], meta)
}

/// The gradient of [`element`]. Choices among numbers have none of it at `x`, as in PyTorch.
fn element_first(c: &crate::autograd::Ctx<'_>, g: &Tensor, f: ElementFn, numbers: [f64; 3]) -> Result<Tensor> {
    let x = c.x(0)?;
    match f {
        ElementFn::Clamp | ElementFn::NanToNum if x.requires_grad() => element_back(g, &x.detach()?, f, numbers),
        _ => element_back(g, &x, f, numbers),
    }
}

/// `v g` times the second derivative of `f` at `x`, for the inputs `g` and `x` of a gradient.
fn element_second(c: &crate::autograd::Ctx<'_>, v: &Tensor, f: ElementFn, [a, b, slope]: [f64; 3]) -> Result<Tensor> {
    use super::compare::select::r#where;
    let x = c.x(1)?;
    // `s (1 - s)` of `s = sigmoid(t)`.
    let bell = |t: &Tensor| -> Result<Tensor> {
        let s = t.sigmoid()?;
        &s * &(1.0 - &s)?
    };
    let second = match f {
        ElementFn::LeakyRelu
        | ElementFn::Hardtanh
        | ElementFn::Clamp
        | ElementFn::Hardsigmoid
        | ElementFn::NanToNum
        | ElementFn::Threshold
        | ElementFn::Hardshrink
        | ElementFn::Softshrink => return c.zeros(1),
        ElementFn::Elu => {
            let low = x.le(0)?;
            let curved = (r#where(&low, &x, Scalar::ZERO)? * slope)?.exp()?;
            r#where(&low, &(curved * (a * b * slope * slope))?, Scalar::ZERO)?
        }
        ElementFn::Softplus => {
            let scaled = (&x * a)?;
            (bell(&scaled)? * a)?.filled(&scaled.gt(b)?, 0.0)?
        }
        ElementFn::Hardswish => (x.abs()?.lt(3)?.cast(x.dtype())? * (1.0 / 3.0))?,
        ElementFn::LogSigmoid => (-&bell(&x)?)?,
        ElementFn::Mish => {
            let s = x.sigmoid()?;
            let t = softplus(&x, 1.0, 20.0)?.tanh()?;
            let left = (1.0 - &t.square()?)?;
            let rest = ((1.0 - &s)? - &((&t * &s)? * 2.0)?)?;
            ((&s * &left)? * &((&x * &rest)? + 2.0)?)?
        }
        ElementFn::Silu => {
            let s = x.sigmoid()?;
            let rest = (1.0 - &(&s * 2.0)?)?;
            ((&s * &(1.0 - &s)?)? * &((&x * &rest)? + 2.0)?)?
        }
        ElementFn::SigmoidResult => (1.0 - &(&x * 2.0)?)?,
        ElementFn::TanhResult => (&x * -2.0)?,
        ElementFn::Huber => x.abs()?.lt(a)?.cast(x.dtype())?,
        ElementFn::SmoothL1 => (x.abs()?.lt(a)?.cast(x.dtype())? * (1.0 / a))?,
    };
    v * &(&c.x(0)? * &second)?
}

fn elementwise_body(x: &Tensor, function: &str, a: f64, b: f64, c: f64) -> Result<Tensor> {
    schema::elementwise.check(x.dtype())?;
    element(x, ElementFn::of("elementwise", function)?, [a, b, c])
}

fn elementwise_gradient_body(g: &Tensor, x: &Tensor, function: &str, a: f64, b: f64, c: f64) -> Result<Tensor> {
    let schema = &schema::elementwise_gradient;
    schema.check(x.dtype())?;
    if g.shape() != x.shape() {
        let why = "takes a gradient and an input of one shape";
        return Err(Error::shape(schema.name, why, &[g.shape(), x.shape()]));
    }
    if g.dtype() != x.dtype() {
        return Err(Error::dtype(schema.name, "takes a gradient of the input's dtype", &[g.dtype(), x.dtype()]));
    }
    element_back(g, x, ElementFn::of(schema.name, function)?, [a, b, c])
}

fn leaky_relu_body(x: &Tensor, slope: f64) -> Result<Tensor> {
    schema::leaky_relu.check(x.dtype())?;
    element(x, ElementFn::LeakyRelu, [slope, 0.0, 0.0])
}

fn elu_body(x: &Tensor, alpha: f64) -> Result<Tensor> {
    schema::elu.check(x.dtype())?;
    element(x, ElementFn::Elu, [alpha, 1.0, 1.0])
}

fn softplus_body(x: &Tensor, beta: f64, threshold: f64) -> Result<Tensor> {
    schema::softplus.check(x.dtype())?;
    element(x, ElementFn::Softplus, [beta, threshold, 1.0 / beta])
}

fn relu6_body(x: &Tensor) -> Result<Tensor> {
    schema::relu6.check(x.dtype())?;
    if x.dtype().is_float() {
        // PyTorch gives no gradient at the bounds themselves.
        return element(x, ElementFn::Hardtanh, [0.0, 6.0, 0.0]);
    }
    let y = x.relu()?;
    super::compare::select::r#where(&y.ge(6)?, &Tensor::constant(Scalar::Int(6), x.dtype(), x.device())?, &y)
}

fn dropout_body(x: &Tensor, p: f64, training: bool, generator: Option<&Generator>) -> Result<Tensor> {
    if !(0.0..=1.0).contains(&p) {
        return Err(Error::value("dropout", format!("dropout probability has to be between 0 and 1, but got {p}")));
    }
    if !training || p == 0.0 {
        return Ok(x.clone());
    }
    if p == 1.0 {
        // Not zeros: what is no number stays none. Integers stay integers.
        return x * &Tensor::constant(Scalar::ZERO, x.dtype(), x.device())?;
    }
    schema::dropout.check(x.dtype())?;
    let dtype = if x.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    let keep = super::random::uniform_of(x.shape(), dtype, x.device(), generator)?.ge(p)?;
    x * &(keep.cast(x.dtype())? * (1.0 / (1.0 - p)))?
}

fn embedding_body(input: &Tensor, weight: &Tensor, padding_idx: Option<i64>, sparse: bool) -> Result<Tensor> {
    if weight.ndim() != 2 {
        return Err(Error::shape("embedding", "'weight' must be 2-D", &[weight.shape()]));
    }
    let n = weight.shape()[0] as i64;
    if let Some(p) = padding_idx.filter(|&p| p < -n || p >= n) {
        return Err(Error::value("embedding", format!("padding_idx {p} must be within the {n} embeddings")));
    }
    let padding = padding_idx.map(|p| p.rem_euclid(n) as usize);
    let index = super::index::as_index("embedding", input)?;
    let mut shape = Shape::from_slice(index.shape());
    shape.push(weight.shape()[1]);
    let meta = Meta { shape, dtype: weight.dtype() };
    dispatch::apply1(Prim::Nn(NnOp::Embedding { padding, sparse }), &[weight, &index], meta)
}

fn embedding_sum_body(
    input: &Tensor,
    weight: &Tensor,
    factors: Option<&Tensor>,
    scale: f64,
    sparse: bool,
) -> Result<Tensor> {
    let schema = &schema::embedding_sum;
    schema.check(weight.dtype())?;
    if weight.ndim() != 2 || input.ndim() == 0 {
        let why = "takes indices of one dimension or more and a 2-D weight";
        return Err(Error::shape(schema.name, why, &[input.shape(), weight.shape()]));
    }
    let index = super::index::as_index(schema.name, input)?;
    if let Some(f) = factors {
        if f.shape() != index.shape() {
            return Err(Error::shape(schema.name, "takes a factor for each index", &[f.shape(), index.shape()]));
        }
        if f.dtype() != weight.dtype() {
            return Err(Error::dtype(schema.name, "takes factors of the weight's dtype", &[f.dtype(), weight.dtype()]));
        }
        if crate::autograd::is_followed(f) {
            let rows = embedding_body(input, weight, None, sparse)?;
            let sum = (&rows * &f.unsqueeze(-1)?)?.sum(Some(&[-2]), false, None)?;
            return sum * scale;
        }
    }
    let mut shape = Shape::from_slice(&index.shape()[..index.ndim() - 1]);
    shape.push(weight.shape()[1]);
    let (prim, meta) = (Prim::Nn(NnOp::EmbeddingSum { scale, sparse }), Meta { shape, dtype: weight.dtype() });
    match factors {
        Some(f) => dispatch::apply1(prim, &[weight, &index, f], meta),
        None => dispatch::apply1(prim, &[weight, &index], meta),
    }
}

/// The gradient of the table; indices and factors have none.
fn embedding_sum_gradient(
    c: &crate::autograd::Ctx<'_>,
    g: &Tensor,
    scale: f64,
    sparse: bool,
) -> Result<crate::autograd::Grads> {
    let mut grads: crate::autograd::Grads = (0..c.len()).map(|_| None).collect();
    if !c.needs(0) {
        return Ok(grads);
    }
    let index = c.x(1)?;
    let g = if scale == 1.0 { g.clone() } else { (g * scale)? }.unsqueeze(-2)?;
    let rows = if c.len() > 2 {
        (&g * &c.x(2)?.unsqueeze(-1)?)?
    } else {
        let mut shape = Shape::from_slice(index.shape());
        shape.extend(g.shape().last().copied());
        super::view::expand_to(&g, &shape)?
    };
    grads[0] = Some(gradient_of_rows(c.shape(0), &index, &rows, None, sparse)?);
    Ok(grads)
}

fn embedding_gradient(
    c: &crate::autograd::Ctx<'_>,
    g: &Tensor,
    padding: Option<usize>,
    sparse: bool,
) -> Result<Tensor> {
    gradient_of_rows(c.shape(0), &c.x(1)?, g, padding, sparse)
}

/// The gradient of a table of that shape from those of the rows at indices.
fn gradient_of_rows(
    shape: &[usize],
    index: &Tensor,
    g: &Tensor,
    padding: Option<usize>,
    sparse: bool,
) -> Result<Tensor> {
    if sparse {
        return crate::sparse::of_rows(shape, index, g, padding);
    }
    let g = match padding {
        Some(p) => &g.masked_fill(&index.eq(p as i64)?.unsqueeze(-1)?, 0.0)?,
        None => g,
    };
    // One zero, seen as many: the copy that is written to need not read them all.
    let zeros = Tensor::constant(Scalar::ZERO, g.dtype(), g.device())?;
    let zeros = super::view::expand_to(&zeros, shape)?;
    super::index::put_axes(super::index::Target::Copy, &zeros, &[0], std::slice::from_ref(index), g, true, true)
}

fn one_hot_body(x: &Tensor, num_classes: i64) -> Result<Tensor> {
    schema::one_hot.check(x.dtype())?;
    let fail = |why: &str| Err(Error::runtime("one_hot", why));
    if x.is_batched() && num_classes == -1 {
        return fail("vmap: the number of classes depends on the data; give num_classes");
    }
    // The range is that of all samples.
    let (sample, x) = (x, crate::batching::bare(x));
    if x.device() == crate::Device::Meta && num_classes > 0 {
        let classes = super::create::arange_of(num_classes as usize, x.device())?;
        return sample.contiguous()?.unsqueeze(-1)?.eq(&classes)?.cast(DType::I64);
    }
    if x.numel() > 0 && x.amin(None, false)?.item()?.to_i64() < 0 {
        return fail("Class values must be non-negative.");
    }
    let least = if x.numel() > 0 { x.amax(None, false)?.item()?.to_i64() + 1 } else { 0 };
    let classes = match num_classes {
        -1 if least == 0 => return fail("Can not infer total number of classes from empty tensor."),
        -1 => least,
        n if n < 1 && least == 0 => return fail("Number of classes must be positive for an empty tensor."),
        n if n < least => return fail("Class values must be smaller than num_classes."),
        n => n,
    };
    sample.contiguous()?.unsqueeze(-1)?.eq(&super::create::arange_of(classes as usize, x.device())?)?.cast(DType::I64)
}
