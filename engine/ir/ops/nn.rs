//! Linear layers, softmax, embeddings and attention: the rows of the family, and the primitives and arguments that they make.

use super::macros::define_primitives;
use lucid_core::{Error, Result};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

/// The factor of the argument in the tanh form of GELU, `√(2/π)`.
pub const GELU_SCALE: f64 = FRAC_2_SQRT_PI * FRAC_1_SQRT_2;

/// The factor of the cube there.
pub const GELU_CUBIC: f64 = 0.044715;

/// Declares the functions of [`ElementFn`].
macro_rules! element_fns {
    ($($(#[$doc:meta])* $Name:ident $text:literal;)*) => {
        /// A function of each element with up to three numbers `a`, `b` and `c`, which is computed in one pass, and so is the
        /// product of a gradient with its derivative.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum ElementFn { $($(#[$doc])* $Name,)* }

        impl ElementFn {
            /// The one of that name.
            ///
            /// # Errors
            /// [`Error::InvalidValue`] for any other.
            pub fn of(op: &'static str, text: &str) -> Result<ElementFn> {
                match text {
                    $($text => Ok(ElementFn::$Name),)*
                    other => Err(Error::value(op, format!("has no function {other:?}; it has {}", [$($text),*].join(", ")))),
                }
            }

            /// Its name.
            pub fn name(self) -> &'static str {
                match self {
                    $(ElementFn::$Name => $text,)*
                }
            }
        }
    };
}

element_fns! {
    /// `x` above 0, `a x` below.
    LeakyRelu "leaky_relu";
    /// `b x` above 0, `a b (e^(c x) - 1)` below.
    Elu "elu";
    /// `log(1 + e^(a x)) c` with `c = 1 / a`; `x` where `a x > b`.
    Softplus "softplus";
    /// `x` within `a` to `b`, both numbers. NaN has the derivative 1.
    Hardtanh "hardtanh";
    /// `x` within `a` to `b`, of which one may be NaN for none. NaN has the derivative 0.
    Clamp "clamp";
    /// `x min(max(x + 3, 0), 6) / 6`
    Hardswish "hardswish";
    /// `min(max(x + 3, 0), 6) / 6`
    Hardsigmoid "hardsigmoid";
    /// `-log(1 + e^-x)`
    LogSigmoid "logsigmoid";
    /// `x tanh(log(1 + e^x))`
    Mish "mish";
    /// `x / (1 + e^-x)`
    Silu "silu";
    /// `x`, which is a sigmoid: the derivative is the sigmoid's, `x (1 - x)`.
    SigmoidResult "sigmoid_result";
    /// `x`, which is a tanh: the derivative is the tanh's, `1 - x²`.
    TanhResult "tanh_result";
    /// `x² / 2` where `|x| < a`, `a (|x| - a / 2)` elsewhere.
    Huber "huber";
    /// `x² / 2a` where `|x| < a`, `|x| - a / 2` elsewhere.
    SmoothL1 "smooth_l1";
    /// `a` for NaN, `b` for infinity and `c` for minus infinity.
    NanToNum "nan_to_num";
    /// `b` up to `a`, `x` above.
    Threshold "threshold";
    /// 0 within `-a` to `a`.
    Hardshrink "hardshrink";
    /// `x` moved towards 0 by `a`, and 0 within it.
    Softshrink "softshrink";
}

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! nn_ops {
    ($cb:ident) => { $crate::rows! { $cb "nn" NnOp :
        /// `input @ weight.T + bias`: (…, in) with (out, in) and (out).
        function linear(input: Tensor, weight: Tensor, bias: OptTensor = None) -> Tensor {
            amp: Low, dtypes: NUMERIC.and(DTypes::FLOAT8), result: Same,
            primitive: Linear, saves: Cross,
            gradient: |c, g| [
                g.matmul(&c.x(1)?),
                rows(g)?.t()?.matmul(&rows(&c.x(0)?)?),
                rows(g)?.sum(Some(&[0]), false, None),
            ],
            run: linear_body, node: |given| (if given.has("bias") == 0 { "mm" } else { "addmm" }, 0),
            torch: "nn.functional.linear",
            samples: ["N(3, 4), N(5, 4), N(5)", "N(2, 3, 4), N(5, 4)", "N(4), N(5, 4), N(5)"],
            example: [
                "let (x, weight, bias) = (tensor([[1.0, 2.0]])?, tensor([[3.0, 4.0]])?, tensor([10.0])?);",
                "assert_close(linear(&x, &weight, Some(&bias))?, [[21.0]]);",
            ],
        }
        /// `exp(x) / sum(exp(x))` along `dim`.
        method softmax(dim: Dim, dtype: OptDtype = None) -> Tensor {
            out: own, amp: FullGpu, dtypes: FLOAT, result: Same,
            primitive: Softmax { axis: usize }, saves: Output,
            gradient: |c, g| [softmax_back(g, &c.out()?, *axis, false)],
            run: along[|axis| NnOp::Softmax { axis }],
            samples: ["N(3, 4), 1", "N(2, 3, 4), 0", "N(), 0"],
            example: ["assert_close(tensor([0.0, 3f64.ln()])?.softmax(0, None)?, [0.25, 0.75]);"],
        }
        /// `log(softmax(x))` along `dim`, without overflow.
        method log_softmax(dim: Dim, dtype: OptDtype = None) -> Tensor {
            out: own, amp: FullGpu, dtypes: FLOAT, result: Same,
            primitive: LogSoftmax { axis: usize }, saves: Output,
            gradient: |c, g| [softmax_back(g, &c.out()?, *axis, true)],
            run: along[|axis| NnOp::LogSoftmax { axis }],
            samples: ["N(3, 4), 1", "N(2, 3, 4), 0"],
            example: ["assert_close(tensor([0.0, 0.0])?.log_softmax(0, None)?, [-0.69315, -0.69315]);"],
        }
        /// The gradient through [`softmax`] from `grad` and the result `output`: `y (g - Σ g y)` along `dim`; with
        /// `log` through [`log_softmax`]: `g - e^y Σ g`.
        function softmax_gradient(grad: Tensor, output: Tensor, dim: Dim, log: Bool) -> Tensor {
            flags: [internal], amp: Own, dtypes: FLOAT, result: Same,
            primitive: SoftmaxGradient { axis: usize, log: bool }, saves: Inputs,
            gradient: |c, g| all softmax_gradient_gradient(c, g, *axis, *log),
            run: softmax_gradient_body, torch: "-",
            samples: [
                "N(3, 4), N(3, 4), 1, False",
                "N(3, 4), N(3, 4), 1, True",
                "N(2, 3, 4), N(2, 3, 4), 0, False",
                "N(2, 3, 4), N(2, 3, 4), 1, True",
            ],
            example: [
                "let made = softmax_gradient(&tensor([1.0, 0.0])?, &tensor([0.25, 0.75])?, 0, false)?;",
                "assert_close(made, [0.1875, -0.1875]);",
            ],
        }
        /// `x Φ(x)` (Hendrycks and Gimpel, 2016); `approximate="tanh"` takes the usual approximation.
        function gelu(input: Tensor; approximate: Text = "none") -> Tensor {
            dtypes: FLOAT, result: Same,
            primitive: Gelu { tanh: bool }, saves: Inputs, gradient: |c, g| [gelu_back(g, &c.x(0)?, *tanh)],
            run: gelu_body, torch: "nn.functional.gelu",
            samples: ["N(3, 4)", "N(3, 4), approximate='tanh'"],
            example: ["assert_close(gelu(&tensor([-1.0, 1.0])?, Approximate::None)?, [-0.15866, 0.84134]);"],
        }
        /// The gradient through [`gelu`] from `grad`: `grad` times the slope at `input`.
        function gelu_gradient(grad: Tensor, input: Tensor, tanh: Bool) -> Tensor {
            flags: [internal], amp: Own, dtypes: FLOAT, result: Same,
            primitive: GeluGradient { tanh: bool }, saves: Inputs,
            gradient: |c, g| [gelu_back(g, &c.x(1)?, *tanh), g * &(&c.x(0)? * &gelu_bend(&c.x(1)?, *tanh)?)?],
            run: gelu_gradient_body, torch: "-",
            samples: ["N(3, 4), N(3, 4), False", "N(3, 4), N(3, 4), True"],
            example: [
                "assert_close(gelu_gradient(&tensor([1.0, 1.0])?, &tensor([0.0, 1.0])?, false)?, [0.5, 1.08332]);",
            ],
        }
        /// A function of each element, by name, with its numbers: what activations and losses are made of. `"huber"`
        /// with `a = 1` is `x² / 2` where `|x| < 1` and `|x| - ½` elsewhere, and so on for each name that the error of
        /// an unknown one lists.
        function elementwise(input: Tensor, function: Text, a: Float = 0.0, b: Float = 0.0, c: Float = 0.0) -> Tensor {
            flags: [internal], amp: Own, dtypes: FLOAT, result: Same,
            primitive: Elementwise { f: ElementFn, numbers: [f64; 3] }, saves: Inputs,
            gradient: |c, g| [element_first(c, g, *f, *numbers)],
            run: elementwise_body, torch: "-",
            samples: [
                "N(3, 4), 'leaky_relu', 0.1",
                "N(3, 4), 'elu', 0.7, 1.5, 0.8",
                "N(3, 4), 'softplus', 2.0, 1.5, 0.5",
                "N(3, 4), 'hardtanh', -0.7, 0.6",
                "N(3, 4), 'clamp', -0.7, 0.6",
                "N(3, 4), 'hardswish'",
                "N(3, 4), 'hardsigmoid'",
                "N(3, 4), 'logsigmoid'",
                "N(3, 4), 'mish'",
                "N(3, 4), 'silu'",
                "N(3, 4), 'huber', 0.6",
                "N(3, 4), 'smooth_l1', 0.6",
                "N(3, 4), 'threshold', 0.2, 3.0",
                "N(3, 4), 'hardshrink', 0.4",
                "N(3, 4), 'softshrink', 0.4",
                "N(3, 4), 'nan_to_num', 1.0, 2.0, 3.0",
            ],
            example: [
                r#"assert_close(elementwise(&tensor([0.5, -3.0])?, ElementFn::Huber, 1.0, 0.0, 0.0)?, [0.125, 2.5]);"#,
            ],
        }
        /// The gradient through [`elementwise`] from `grad`: `grad` times the derivative at `input`.
        function elementwise_gradient(
            grad: Tensor, input: Tensor, function: Text, a: Float = 0.0, b: Float = 0.0, c: Float = 0.0
        ) -> Tensor {
            flags: [internal], amp: Own, dtypes: FLOAT, result: Same,
            primitive: ElementwiseGradient { f: ElementFn, numbers: [f64; 3] }, saves: Inputs,
            gradient: |c, v| [element_back(v, &c.x(1)?, *f, *numbers), element_second(c, v, *f, *numbers)],
            run: elementwise_gradient_body, torch: "-",
            samples: [
                "N(3, 4), N(3, 4), 'leaky_relu', 0.1",
                "N(3, 4), N(3, 4), 'elu', 0.7, 1.5, 0.8",
                "N(3, 4), N(3, 4), 'softplus', 2.0, 1.5, 0.5",
                "N(3, 4), N(3, 4), 'hardswish'",
                "N(3, 4), N(3, 4), 'logsigmoid'",
                "N(3, 4), N(3, 4), 'mish'",
                "N(3, 4), N(3, 4), 'silu'",
                "N(3, 4), U(3, 4), 'sigmoid_result'",
                "N(3, 4), U(3, 4), 'tanh_result'",
                "N(3, 4), N(3, 4), 'huber', 0.6",
                "N(3, 4), N(3, 4), 'smooth_l1', 0.6",
            ],
            example: [
                "let x = tensor([0.5, -3.0])?;",
                r#"let made = elementwise_gradient(&tensor([1.0, 1.0])?, &x, ElementFn::Huber, 1.0, 0.0, 0.0)?;"#,
                "assert_close(made, [0.5, -1.0]);",
            ],
        }
        /// `x` above 0, `negative_slope * x` below.
        function leaky_relu(input: Tensor, negative_slope: Float = 0.01) -> Tensor {
            flags: [piecewise_linear], dtypes: FLOAT, result: Same,
            run: leaky_relu_body, node: |given| ("leaky_relu", given.in_place()), torch: "nn.functional.leaky_relu",
            samples: ["N(3, 4)", "N(3, 4), 0.2"],
            example: ["assert_close(leaky_relu(&tensor([-2.0, 2.0])?, 0.1)?, [-0.2, 2.0]);"],
        }
        /// `x` above 0, `alpha * (e^x - 1)` below (Clevert et al., 2015).
        function elu(input: Tensor, alpha: Float = 1.0) -> Tensor {
            dtypes: FLOAT, result: Same,
            run: elu_body, node: |given| ("elu", given.in_place()), torch: "nn.functional.elu",
            samples: ["N(3, 4)", "N(3, 4), 0.5"],
            example: ["assert_close(elu(&tensor([-1.0, 2.0])?, 1.0)?, [-0.63212, 2.0]);"],
        }
        /// `log(1 + e^(beta x)) / beta`; `x` itself where `beta x > threshold`.
        function softplus(input: Tensor, beta: Float = 1.0, threshold: Float = 20.0) -> Tensor {
            amp: FullGpu, dtypes: FLOAT, result: Same,
            run: softplus_body, torch: "nn.functional.softplus",
            samples: ["N(3, 4)", "N(3, 4), 2.0, 1.0"],
            example: ["assert_close(softplus(&tensor([0.0, 100.0])?, 1.0, 20.0)?, [0.69315, 100.0]);"],
        }
        /// `min(max(x, 0), 6)`.
        function relu6(input: Tensor) -> Tensor {
            dtypes: REAL, result: Same,
            run: relu6_body, node: "hardtanh", torch: "nn.functional.relu6",
            samples: ["N(3, 4)"],
            example: ["assert_close(relu6(&tensor([-1.0, 2.0, 9.0])?)?, [0.0, 2.0, 6.0]);"],
        }
        /// Zero with probability `p`, else divided by `1 - p`; the input itself unless `training`.
        function dropout(
            input: Tensor, p: Float = 0.5, training: Bool = true; generator: OptGenerator = None
        ) -> Tensor {
            deterministic: Seeded, dtypes: INEXACT, result: Same,
            run: dropout_body, node: "mul", torch: "nn.functional.dropout",
            samples: ["N(3, 4), 0.5, False"],
            example: [
                "let x = dropout(&tensor([1.0; 100])?, 0.5, true, None)?;",
                "assert!(x.to_vec::<f32>()?.iter().all(|x| *x == 0.0 || *x == 2.0));",
            ],
        }
        /// The rows of `weight` (count, size) at `input`'s indices: shape (…, size). The row `padding_idx` gets no
        /// gradient. With `sparse` the gradient holds the rows that were looked up, and no others.
        function embedding(input: Tensor, weight: Tensor, padding_idx: OptInt = None; sparse: Bool = false) -> Tensor {
            dtypes: ALL, result: Same,
            primitive: Embedding { padding: Option<usize>, sparse: bool }, saves: Second,
            gradient: |c, g| [embedding_gradient(c, g, *padding, *sparse)],
            run: embedding_body, torch: "nn.functional.embedding",
            samples: ["I(0, 5, 2, 3), N(5, 4)", "I(0, 4, 7), N(5, 4), -1"],
            example: [
                "let weight = tensor([[1.0, 2.0], [3.0, 4.0]])?;",
                "assert_close(embedding(&tensor([1, 0])?, &weight, None, false)?, [[3.0, 4.0], [1.0, 2.0]]);",
            ],
        }
        /// `scale` times the sum of the rows of `weight` (count, size) at the indices of `input` (…, length), each
        /// times its factor in `factors` (…, length): shape (…, size). With `sparse` the gradient holds the rows that
        /// were looked up, and no others.
        function embedding_sum(
            input: Tensor, weight: Tensor, factors: OptTensor = None; scale: Float = 1.0, sparse: Bool = false
        ) -> Tensor {
            flags: [internal], dtypes: FLOAT, result: Same,
            primitive: EmbeddingSum { scale: f64, sparse: bool }, saves: Rest,
            gradient: |c, g| all embedding_sum_gradient(c, g, *scale, *sparse),
            run: embedding_sum_body, torch: "-",
            samples: [
                "I(0, 5, 2, 3), N(5, 4)",
                "I(0, 5, 2, 3), N(5, 4), FIXED(N(2, 3)), scale=0.5",
                "I(0, 4, 2, 3, 2), N(4, 3)",
            ],
            example: [
                "let weight = tensor([[1.0, 2.0], [3.0, 4.0]])?;",
                "let made = embedding_sum(&tensor([[1, 0], [1, 1]])?, &weight, None, 0.5, false)?;",
                "assert_close(made, [[2.0, 3.0], [3.0, 4.0]]);",
            ],
        }
        /// One-hot vectors (int64) of indices (int64): `num_classes` elements; -1 takes the largest index plus one,
        /// which evaluates.
        function one_hot(input: Tensor, num_classes: Int = -1) -> Tensor {
            call: creates, out: none, dtypes: of(&[$crate::DType::I64]), result: Index,
            run: one_hot_body, torch: "nn.functional.one_hot",
            samples: ["I(0, 5, 2, 3), 5", "I(0, 5, 4)"],
            example: ["assert_close(one_hot(&tensor([2, 0])?, 3)?, [[0, 0, 1], [1, 0, 0]]);"],
        }
        /// `softmax(scale · q kᵀ + mask) v` for `query` (…, L, E), `key` (…, S, E) and `value` (…, S, V), as (…, L, V),
        /// without keeping the (L, S) weights (Vaswani et al., 2017; Rabe and Staats, 2021). `attn_mask`, expandable to
        /// (…, L, S), is `bool`, true where to look, or numbers to add, and gets a gradient; a query that may look
        /// nowhere gets zeros. `is_causal` hides key `j` from query `i < j`, and takes no mask beside it. `scale`
        /// defaults to `1 / sqrt(E)`. With `enable_gqa` the last dimension but two counts heads, and several of the
        /// query share one of key and value. `dropout_p` above 0 drops weights, whether in training or not, and makes
        /// the result from its parts.
        function scaled_dot_product_attention(
            query: Tensor, key: Tensor, value: Tensor, attn_mask: OptTensor = None, dropout_p: Float = 0.0,
            is_causal: Bool = false; scale: OptFloat = None, enable_gqa: Bool = false
        ) -> Tensor {
            out: none, amp: Low, dtypes: FLOAT, result: Same,
            primitive: Attention { causal: bool, scale: f64 }, saves: Inputs,
            gradient: |c, g| all attention::gradient(c, g, *causal, *scale),
            run: attention::body, torch: "nn.functional.scaled_dot_product_attention",
            samples: [
                "N(2, 3, 4), N(2, 5, 4), N(2, 5, 6)",
                "N(2, 2, 3, 4), N(2, 2, 3, 4), N(2, 2, 3, 4), is_causal=True",
                "N(2, 3, 4), N(2, 5, 4), N(2, 5, 6), N(3, 5)",
                "N(3, 4), N(5, 4), N(5, 2), is_causal=True, scale=0.3",
                "N(2, 4, 3, 2), N(2, 2, 5, 2), N(2, 2, 5, 3), N(2, 4, 3, 5), enable_gqa=True",
                "N(4, 3, 2), N(2, 3, 2), N(2, 3, 3), is_causal=True, enable_gqa=True",
                "N(2, 1, 3, 4), N(2, 5, 4), N(5, 6)",
                "N(1, 2, 2, 3, 4), N(1, 2, 2, 5, 4), N(1, 2, 2, 5, 6), N(1, 1, 3, 5)",
            ],
            example: [
                "let (q, k, v) = (tensor([[0.0], [0.0]])?, tensor([[1.0], [2.0]])?, tensor([[2.0], [4.0]])?);",
                "let made = scaled_dot_product_attention(&q, &k, &v, None, 0.0, true, None, false)?;",
                "assert_close(made, [[2.0], [3.0]]);",
            ],
        }
    }};
}
nn_ops!(define_primitives);

impl NnOp {
    /// Has the result the order of the second input in memory, where that of the first differs?
    pub fn is_led_by_second(&self) -> bool {
        use ElementFn::{Clamp, LeakyRelu, Threshold};
        matches!(self, NnOp::ElementwiseGradient { f: LeakyRelu | Clamp | Threshold, .. })
    }

    /// Is each element of the result computed from those at its place alone?
    pub fn is_by_element(&self) -> bool {
        matches!(
            self,
            NnOp::Gelu { .. } | NnOp::GeluGradient { .. } | NnOp::Elementwise { .. } | NnOp::ElementwiseGradient { .. }
        )
    }
}
