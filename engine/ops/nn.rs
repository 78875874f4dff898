//! Layers' functions: linear maps, softmax, activations, dropout, embedding, attention.
//!
//! The primitives here are single passes on both backends (`cpu/fused.rs`, `gpu/nn.rs`); the rest is made of other ops.

use super::attention;
use super::macros::define_ops;
use crate::autograd::{Grads, Naming};
use crate::dispatch::{self, Meta, Prim};
use crate::shape::{self, Shape};
use crate::{DType, Error, Generator, Result, Scalar, Tensor};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! nn_ops {
    ($cb:ident) => { $cb! { "nn" NnOp :
        /// `input @ weight.T + bias`: (…, in) with (out, in) and (out).
        function linear(input: Tensor, weight: Tensor, bias: OptTensor = None) -> Tensor {
            [] Low Yes DTypes::NUMERIC, Same,
            prim Linear Cross {|c, g| [
                g.matmul(&c.x(1)?),
                rows(g)?.t()?.matmul(&rows(&c.x(0)?)?),
                rows(g)?.sum(Some(&[0]), false, None)
            ]},
            run linear_body, torch "nn.functional.linear", samples ["N(3, 4), N(5, 4), N(5)", "N(2, 3, 4), N(5, 4)", "N(4), N(5, 4), N(5)"],
            example [
                "let (x, weight, bias) = (tensor([[1.0, 2.0]])?, tensor([[3.0, 4.0]])?, tensor([10.0])?);",
                "assert_close(linear(&x, &weight, Some(&bias))?, [[21.0]]);",
            ]
        }
        /// `exp(x) / sum(exp(x))` along `dim`.
        method softmax(dim: Dim, dtype: OptDtype = None) -> Tensor {
            [own_out] FullGpu Yes DTypes::FLOAT, Same,
            prim Softmax { axis: usize } Output {|c, g| [softmax_back(g, &c.out()?, *axis, false)]},
            run along[|axis| NnOp::Softmax { axis }], torch "", samples ["N(3, 4), 1", "N(2, 3, 4), 0", "N(), 0"],
            example ["assert_close(tensor([0.0, 3f64.ln()])?.softmax(0, None)?, [0.25, 0.75]);"]
        }
        /// `log(softmax(x))` along `dim`, without overflow.
        method log_softmax(dim: Dim, dtype: OptDtype = None) -> Tensor {
            [own_out] FullGpu Yes DTypes::FLOAT, Same,
            prim LogSoftmax { axis: usize } Output {|c, g| [softmax_back(g, &c.out()?, *axis, true)]},
            run along[|axis| NnOp::LogSoftmax { axis }], torch "", samples ["N(3, 4), 1", "N(2, 3, 4), 0"],
            example ["assert_close(tensor([0.0, 0.0])?.log_softmax(0, None)?, [-0.69315, -0.69315]);"]
        }
        /// What goes back through [`softmax`] from `grad` and the result `output`: `y (g - Σ g y)` along `dim`; with `log`
        /// through [`log_softmax`]: `g - e^y Σ g`.
        function softmax_gradient(grad: Tensor, output: Tensor, dim: Dim, log: Bool) -> Tensor {
            [] Own Yes DTypes::FLOAT, Same,
            prim SoftmaxGradient { axis: usize, log: bool } Inputs {|c, g| all softmax_gradient_gradient(c, g, *axis, *log)},
            run softmax_gradient_body, torch "-", samples ["N(3, 4), N(3, 4), 1, False", "N(3, 4), N(3, 4), 1, True", "N(2, 3, 4), N(2, 3, 4), 0, False", "N(2, 3, 4), N(2, 3, 4), 1, True"],
            example [
                "let made = softmax_gradient(&tensor([1.0, 0.0])?, &tensor([0.25, 0.75])?, 0, false)?;",
                "assert_close(made, [0.1875, -0.1875]);",
            ]
        }
        /// `x Φ(x)` (Hendrycks and Gimpel, 2016); `approximate="tanh"` takes the usual approximation.
        function gelu(input: Tensor; approximate: Text = "none") -> Tensor {
            [] Keep Yes DTypes::FLOAT, Same,
            prim Gelu { tanh: bool } Inputs {|c, g| [gelu_back(g, &c.x(0)?, *tanh)]},
            run gelu_body, torch "nn.functional.gelu", samples ["N(3, 4)", "N(3, 4), approximate='tanh'"],
            example [r#"assert_close(gelu(&tensor([-1.0, 1.0])?, "none")?, [-0.15866, 0.84134]);"#]
        }
        /// What goes back through [`gelu`] from `grad`: `grad` times the slope at `input`.
        function gelu_gradient(grad: Tensor, input: Tensor, tanh: Bool) -> Tensor {
            [] Own Yes DTypes::FLOAT, Same,
            prim GeluGradient { tanh: bool } Inputs {|c, g| [
                gelu_back(g, &c.x(1)?, *tanh),
                g * &(&c.x(0)? * &gelu_bend(&c.x(1)?, *tanh)?)?,
            ]},
            run gelu_gradient_body, torch "-", samples ["N(3, 4), N(3, 4), False", "N(3, 4), N(3, 4), True"],
            example ["assert_close(gelu_gradient(&tensor([1.0, 1.0])?, &tensor([0.0, 1.0])?, false)?, [0.5, 1.08332]);"]
        }
        /// `x` above 0, `negative_slope * x` below.
        function leaky_relu(input: Tensor, negative_slope: Float = 0.01) -> Tensor {
            [bends] Keep Yes DTypes::FLOAT, Same,
            run leaky_relu_body, torch "nn.functional.leaky_relu", samples ["N(3, 4)", "N(3, 4), 0.2"],
            example ["assert_close(leaky_relu(&tensor([-2.0, 2.0])?, 0.1)?, [-0.2, 2.0]);"]
        }
        /// `x` above 0, `alpha * (e^x - 1)` below (Clevert et al., 2015).
        function elu(input: Tensor, alpha: Float = 1.0) -> Tensor {
            [] Keep Yes DTypes::FLOAT, Same,
            run elu_body, torch "nn.functional.elu", samples ["N(3, 4)", "N(3, 4), 0.5"],
            example ["assert_close(elu(&tensor([-1.0, 2.0])?, 1.0)?, [-0.63212, 2.0]);"]
        }
        /// `log(1 + e^(beta x)) / beta`; `x` itself where `beta x > threshold`.
        function softplus(input: Tensor, beta: Float = 1.0, threshold: Float = 20.0) -> Tensor {
            [] FullGpu Yes DTypes::FLOAT, Same,
            run softplus_body, torch "nn.functional.softplus", samples ["N(3, 4)", "N(3, 4), 2.0, 1.0"],
            example ["assert_close(softplus(&tensor([0.0, 100.0])?, 1.0, 20.0)?, [0.69315, 100.0]);"]
        }
        /// `min(max(x, 0), 6)`.
        function relu6(input: Tensor) -> Tensor {
            [] Keep Yes DTypes::REAL, Same,
            run relu6_body, torch "nn.functional.relu6", samples ["N(3, 4)"],
            example ["assert_close(relu6(&tensor([-1.0, 2.0, 9.0])?)?, [0.0, 2.0, 6.0]);"]
        }
        /// Zero with probability `p`, else divided by `1 - p`; the input itself unless `training`.
        function dropout(input: Tensor, p: Float = 0.5, training: Bool = true; generator: OptGenerator = None) -> Tensor {
            [] Keep Seeded DTypes::INEXACT, Same,
            run dropout_body, torch "nn.functional.dropout", samples ["N(3, 4), 0.5, False"],
            example [
                "let x = dropout(&tensor([1.0; 100])?, 0.5, true, None)?;",
                "assert!(x.to_vec::<f32>()?.iter().all(|x| *x == 0.0 || *x == 2.0));",
            ]
        }
        /// The rows of `weight` (count, size) at `input`'s indices: shape (…, size). The row `padding_idx` gets no gradient.
        /// With `sparse` the gradient holds the rows that were looked up, and no others.
        function embedding(input: Tensor, weight: Tensor, padding_idx: OptInt = None; sparse: Bool = false) -> Tensor {
            [] Keep Yes DTypes::ALL, Same,
            prim Embedding { padding: Option<usize>, sparse: bool } Second {|c, g| [embedding_gradient(c, g, *padding, *sparse)]},
            run embedding_body, torch "nn.functional.embedding", samples ["I(0, 5, 2, 3), N(5, 4)", "I(0, 4, 7), N(5, 4), -1"],
            example [
                "let weight = tensor([[1.0, 2.0], [3.0, 4.0]])?;",
                "assert_close(embedding(&tensor([1, 0])?, &weight, None, false)?, [[3.0, 4.0], [1.0, 2.0]]);",
            ]
        }
        /// One-hot vectors (int64) of indices (int64): `num_classes` elements; -1 takes the largest index plus one, which evaluates.
        function one_hot(input: Tensor, num_classes: Int = -1) -> Tensor {
            [no_out nograd] Keep Yes DTypes::of(&[$crate::DType::I64]), Index,
            run one_hot_body, torch "nn.functional.one_hot", samples ["I(0, 5, 2, 3), 5", "I(0, 5, 4)"],
            example ["assert_close(one_hot(&tensor([2, 0])?, 3)?, [[0, 0, 1], [1, 0, 0]]);"]
        }
        /// `softmax(scale · q kᵀ + mask) v` for `query` (…, L, E), `key` (…, S, E) and `value` (…, S, V), as (…, L, V), without
        /// keeping the (L, S) weights (Vaswani et al., 2017; Rabe and Staats, 2021). `attn_mask`, expandable to (…, L, S), is
        /// `bool`, true where to look, or numbers to add, and gets a gradient; a query that may look nowhere gets zeros.
        /// `is_causal` hides key `j` from query `i < j`, and takes no mask beside it. `scale` defaults to `1 / sqrt(E)`. With
        /// `enable_gqa` the last dimension but two counts heads, and several of the query share one of key and value.
        /// `dropout_p` above 0 drops weights, whether in training or not, and makes the result from its parts.
        function scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: OptTensor = None, dropout_p: Float = 0.0, is_causal: Bool = false; scale: OptFloat = None, enable_gqa: Bool = false) -> Tensor {
            [no_out] Low Yes DTypes::FLOAT, Same,
            prim Attention { causal: bool, scale: f64 } Inputs {|c, g| all attention::gradient(c, g, *causal, *scale)},
            run attention::body, torch "nn.functional.scaled_dot_product_attention", samples ["N(2, 3, 4), N(2, 5, 4), N(2, 5, 6)", "N(2, 2, 3, 4), N(2, 2, 3, 4), N(2, 2, 3, 4), is_causal=True", "N(2, 3, 4), N(2, 5, 4), N(2, 5, 6), N(3, 5)", "N(3, 4), N(5, 4), N(5, 2), is_causal=True, scale=0.3", "N(2, 4, 3, 2), N(2, 2, 5, 2), N(2, 2, 5, 3), N(2, 4, 3, 5), enable_gqa=True", "N(4, 3, 2), N(2, 3, 2), N(2, 3, 3), is_causal=True, enable_gqa=True", "N(2, 1, 3, 4), N(2, 5, 4), N(5, 6)", "N(1, 2, 2, 3, 4), N(1, 2, 2, 5, 4), N(1, 2, 2, 5, 6), N(1, 1, 3, 5)"],
            example [
                "let (q, k, v) = (tensor([[0.0], [0.0]])?, tensor([[1.0], [2.0]])?, tensor([[2.0], [4.0]])?);",
                "let made = scaled_dot_product_attention(&q, &k, &v, None, 0.0, true, None, false)?;",
                "assert_close(made, [[2.0], [3.0]]);",
            ]
        }
    }};
}
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
        (1, None) => Naming::rename("linear", "vecmat"),
        (2.., Some(_)) if !x.layout().is_contiguous() => Naming::rename("linear", "add"),
        _ => Naming::rename("linear", "unsafe_view"),
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
        return along(op, &x.reshape(&[1])?, 0, None)?.reshape(&[]);
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

/// Coefficients of the tanh form of gelu.
pub(crate) const GELU_SCALE: f64 = FRAC_2_SQRT_PI * FRAC_1_SQRT_2;
pub(crate) const GELU_CUBIC: f64 = 0.044715;

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

fn leaky_relu_body(x: &Tensor, slope: f64) -> Result<Tensor> {
    super::compare::select::r#where(&x.gt(0)?, x, &(x * slope)?)
}

fn elu_body(x: &Tensor, alpha: f64) -> Result<Tensor> {
    schema::elu.check(x.dtype())?;
    // NaN is with the positive numbers: its gradient is 1.
    let low = x.le(0)?;
    // The branch not taken must stay finite, or its gradient is 0 · inf.
    let below = super::compare::select::r#where(&low, x, Scalar::ZERO)?.expm1()?;
    super::compare::select::r#where(&low, &(below * alpha)?, x)
}

fn softplus_body(x: &Tensor, beta: f64, threshold: f64) -> Result<Tensor> {
    schema::softplus.check(x.dtype())?;
    let scaled = (x * beta)?;
    let linear = scaled.gt(threshold)?;
    let scaled = scaled.filled(&linear, 0.0)?;
    let mut curved = (scaled.exp()?.log1p()? * (1.0 / beta))?;
    if beta == 0.0 {
        // Infinite, with a slope all the same: PyTorch's rule does not divide by `beta`, the chain rule would.
        let slope = scaled.detach()?.sigmoid()?;
        curved = (((x - &x.detach()?)? * &slope)? + &curved.detach()?)?;
    }
    super::compare::select::r#where(&linear, x, &curved)
}

fn relu6_body(x: &Tensor) -> Result<Tensor> {
    // PyTorch gives no gradient at the bounds themselves.
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

fn embedding_gradient(
    c: &crate::autograd::Ctx<'_>,
    g: &Tensor,
    padding: Option<usize>,
    sparse: bool,
) -> Result<Tensor> {
    let index = c.x(1)?;
    if sparse {
        return crate::sparse::of_rows(c.shape(0), &index, g, padding);
    }
    let g = match padding {
        Some(p) => &g.masked_fill(&index.eq(p as i64)?.unsqueeze(-1)?, 0.0)?,
        None => g,
    };
    // One zero, seen as many: the copy that is written to need not read them all.
    let zeros = Tensor::constant(Scalar::ZERO, g.dtype(), g.device())?;
    let zeros = super::view::expand_to(&zeros, c.shape(0))?;
    super::index::put_axes(super::index::Target::Copy, &zeros, &[0], &[index], g, true, true)
}

fn one_hot_body(x: &Tensor, num_classes: i64) -> Result<Tensor> {
    schema::one_hot.check(x.dtype())?;
    let fail = |why: &str| Err(Error::runtime("one_hot", why));
    if x.is_batched() && num_classes == -1 {
        return fail("vmap: the number of classes depends on the data; give num_classes");
    }
    // The range is that of all samples.
    let (sample, x) = (x, crate::batching::bare(x));
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
