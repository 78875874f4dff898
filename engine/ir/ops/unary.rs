//! Element-wise ops on one tensor: the rows of the family, and the primitives and arguments that they make.

use super::macros::define_primitives;

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! unary_ops {
    ($cb:ident) => { $crate::rows! { $cb "unary" UnaryOp, each method () run unary :
        /// The negative of each element. `bool` has none.
        neg = Neg {
            in_place: yes, dtypes: NUMERIC, result: Same,
            gradient: |c, g| [-g],
            samples: ["N(3, 4)", "N()", "N(0, 3)"],
            example: ["assert_close(tensor([1.0, -2.0])?.neg()?, [-1.0, 2.0]);"],
        }
        /// The absolute value. The gradient at 0 is 0, as in PyTorch.
        abs = Abs {
            in_place: of_reals, out: rule, dtypes: NUMERIC.and(DTypes::FLOAT8), result: Real,
            saves: Inputs, gradient: |c, g| [g * &c.x(0)?.sgn()?],
            samples: ["N(3, 4)"],
            example: [
                "assert_close(tensor([1.0, -2.0])?.abs()?, [1.0, 2.0]);",
                "assert_close(tensor([(3.0, 4.0)])?.abs()?, [5.0f32]);",
            ],
        }
        /// -1, 0 or 1 by each element's sign. Its gradient is 0.
        sign = Sign {
            in_place: yes, dtypes: ORDERED, result: Same,
            gradient: |c, g| [g.zeros_like()],
            samples: ["N(3, 4)"],
            example: ["assert_close(tensor([-2.0, 0.0, 3.0])?.sign()?, [-1.0, 0.0, 1.0]);"],
        }
        /// The complex conjugate, computed (PyTorch's `conj` puts it off); real tensors are given back as they are.
        conj_physical = Conj {
            in_place: yes, dtypes: ALL, result: Same,
            gradient: |c, g| [g.conj_physical()],
            samples: ["N(3, 4)"],
            example: ["assert_close(tensor([(1.0, 2.0)])?.conj_physical()?, [(1.0, -2.0)]);"],
        }
        /// `e` to each element.
        exp = Exp {
            in_place: yes, amp: FullGpu, dtypes: NOT_FLOAT8, result: Float,
            saves: Output, gradient: |c, g| [g * &c.out()?.conjugated()?],
            samples: ["N(3, 4)"],
            example: ["assert_close(tensor([0.0, 1.0])?.exp()?, [1.0, 2.71828]);"],
        }
        /// 2 to each element.
        exp2 = Exp2 {
            in_place: yes, dtypes: NOT_FLOAT8, result: Float,
            saves: Output, gradient: |c, g| [(g * &c.out()?.conjugated()?)? * LN_2],
            samples: ["N(3, 4)"],
            example: ["assert_close(tensor([-1.0, 0.0, 3.0])?.exp2()?, [0.5, 1.0, 8.0]);"],
        }
        /// `e^x - 1`, accurate near 0.
        expm1 = Expm1 {
            in_place: yes, amp: FullGpu, dtypes: NOT_FLOAT8, result: Float,
            saves: Output, gradient: |c, g| [g * &(c.out()? + 1.0)?.conjugated()?],
            samples: ["N(3, 4)"],
            example: ["assert_close(tensor([0.0, 1.0])?.expm1()?, [0.0, 1.71828]);"],
        }
        /// The natural logarithm; NaN below 0, -inf at 0.
        log = Log {
            in_place: yes, amp: FullGpu, dtypes: NOT_FLOAT8, result: Float,
            saves: Inputs, gradient: |c, g| [g / &c.x(0)?.conjugated()?],
            samples: ["P(3, 4)"],
            example: ["assert_close(tensor([0.0, 1.0, 2.71828])?.log()?, [f64::NEG_INFINITY, 0.0, 1.0]);"],
        }
        /// The logarithm to base 2.
        log2 = Log2 {
            in_place: yes, amp: FullGpu, dtypes: NOT_FLOAT8, result: Float,
            saves: Inputs, gradient: |c, g| [g / &(c.x(0)?.conjugated()? * LN_2)?],
            samples: ["P(3, 4)"],
            example: ["assert_close(tensor([0.5, 1.0, 8.0])?.log2()?, [-1.0, 0.0, 3.0]);"],
        }
        /// The logarithm to base 10.
        log10 = Log10 {
            in_place: yes, amp: FullGpu, dtypes: NOT_FLOAT8, result: Float,
            saves: Inputs, gradient: |c, g| [g / &(c.x(0)?.conjugated()? * LN_10)?],
            samples: ["P(3, 4)"],
            example: ["assert_close(tensor([0.1, 1.0, 100.0])?.log10()?, [-1.0, 0.0, 2.0]);"],
        }
        /// `log(1 + x)`, accurate near 0.
        log1p = Log1p {
            in_place: yes, amp: FullGpu, dtypes: NOT_FLOAT8, result: Float,
            saves: Inputs, gradient: |c, g| [g / &(c.x(0)?.conjugated()? + 1.0)?],
            samples: ["P(3, 4)"],
            example: ["assert_close(tensor([0.0, 1.0])?.log1p()?, [0.0, 0.69315]);"],
        }
        /// The square root; NaN below 0.
        sqrt = Sqrt {
            in_place: yes, dtypes: NOT_FLOAT8, result: Float,
            saves: Output, gradient: |c, g| [g / &(c.out()?.conjugated()? * 2.0)?],
            samples: ["P(3, 4)"],
            example: ["assert_close(tensor([4.0, 2.0, -1.0])?.sqrt()?, [2.0, 1.41421, f64::NAN]);"],
        }
        /// `1 / sqrt(x)`.
        rsqrt = Rsqrt {
            in_place: yes, amp: FullGpu, dtypes: NOT_FLOAT8, result: Float,
            saves: Output, gradient: |c, g| [(g * -0.5)? * &c.out()?.pow(3)?.conjugated()?],
            samples: ["P(3, 4)"],
            example: ["assert_close(tensor([4.0, 0.25])?.rsqrt()?, [0.5, 2.0]);"],
        }
        /// `x * x`; of `bool` as int64.
        square = Square {
            in_place: yes, out: cast, dtypes: COMPUTED, result: Own,
            saves: Inputs, gradient: |c, g| [g * &(c.x(0)?.conjugated()? * 2)?],
            node: "pow",
            samples: ["N(3, 4)"],
            example: ["assert_close(tensor([-3, 2])?.square()?, [9, 4]);"],
        }
        /// `1 / x`.
        reciprocal = Reciprocal {
            in_place: yes, amp: FullGpu, dtypes: NOT_FLOAT8, result: Float,
            saves: Output, gradient: |c, g| [(-g)? * &c.out()?.square()?.conjugated()?],
            samples: ["P(3, 4)"],
            example: ["assert_close(tensor([4.0, 0.5])?.reciprocal()?, [0.25, 2.0]);"],
        }
        /// The largest integer not above. Its gradient is 0.
        floor = Floor {
            in_place: yes, dtypes: REAL.and(DTypes::UNSIGNED), result: Same,
            gradient: |c, g| [g.zeros_like()],
            samples: ["N(3, 4)"],
            example: ["assert_close(tensor([1.5, -1.5])?.floor()?, [1.0, -2.0]);"],
        }
        /// The smallest integer not below. Its gradient is 0.
        ceil = Ceil {
            in_place: yes, dtypes: REAL.and(DTypes::UNSIGNED), result: Same,
            gradient: |c, g| [g.zeros_like()],
            samples: ["N(3, 4)"],
            example: ["assert_close(tensor([1.5, -1.5])?.ceil()?, [2.0, -1.0]);"],
        }
        /// The integer part. Its gradient is 0.
        trunc = Trunc {
            in_place: yes, dtypes: REAL.and(DTypes::UNSIGNED), result: Same,
            gradient: |c, g| [g.zeros_like()],
            samples: ["N(3, 4)"],
            example: ["assert_close(tensor([1.5, -1.5])?.trunc()?, [1.0, -1.0]);"],
        }
        /// The nearest integer, halves to even. Its gradient is 0.
        rint = Round {
            in_place: yes, python: function, dtypes: REAL.and(DTypes::UNSIGNED), result: Same,
            gradient: |c, g| [g.zeros_like()],
            node: "round", torch: "round",
            samples: ["N(3, 4)"],
            example: ["assert_close(tensor([0.5, 1.5, 2.4])?.rint()?, [0.0, 2.0, 2.0]);"],
        }
        /// The sine, of radians.
        sin = Sin {
            in_place: yes, dtypes: NOT_FLOAT8, result: Float,
            saves: Inputs, gradient: |c, g| [g * &c.x(0)?.conjugated()?.cos()?],
            samples: ["N(3, 4)"],
            example: ["assert_close(tensor([0.0, 1.0])?.sin()?, [0.0, 0.84147]);"],
        }
        /// The cosine, of radians.
        cos = Cos {
            in_place: yes, dtypes: NOT_FLOAT8, result: Float,
            saves: Inputs, gradient: |c, g| [-&(g * &c.x(0)?.conjugated()?.sin()?)?],
            samples: ["N(3, 4)"],
            example: ["assert_close(tensor([0.0, 1.0])?.cos()?, [1.0, 0.54030]);"],
        }
        /// The tangent, of radians.
        tan = Tan {
            in_place: yes, amp: FullGpu, dtypes: NOT_FLOAT8, result: Float,
            saves: Output, gradient: |c, g| [g * &(c.out()?.conjugated()?.square()? + 1.0)?],
            samples: ["U(3, 4)"],
            example: ["assert_close(tensor([0.0, 1.0])?.tan()?, [0.0, 1.55741]);"],
        }
        /// The angle in radians whose sine this is; NaN outside -1 to 1.
        asin = Asin {
            in_place: yes, amp: FullGpu, dtypes: NOT_FLOAT8, result: Float,
            saves: Inputs, gradient: |c, g| [g * &(1.0 - &c.x(0)?.square()?)?.rsqrt()?.conjugated()?],
            samples: ["U(3, 4)"],
            example: ["assert_close(tensor([0.5, 1.0])?.asin()?, [0.52360, 1.57080]);"],
        }
        /// The angle in radians whose cosine this is; NaN outside -1 to 1.
        acos = Acos {
            in_place: yes, amp: FullGpu, dtypes: NOT_FLOAT8, result: Float,
            saves: Inputs, gradient: |c, g| [-&(g * &(1.0 - &c.x(0)?.square()?)?.rsqrt()?.conjugated()?)?],
            samples: ["U(3, 4)"],
            example: ["assert_close(tensor([0.5, 1.0])?.acos()?, [1.04720, 0.0]);"],
        }
        /// The angle in radians whose tangent this is.
        atan = Atan {
            in_place: yes, dtypes: NOT_FLOAT8, result: Float,
            saves: Inputs, gradient: |c, g| [g / &(c.x(0)?.conjugated()?.square()? + 1.0)?],
            samples: ["N(3, 4)"],
            example: ["assert_close(tensor([0.0, 1.0])?.atan()?, [0.0, 0.78540]);"],
        }
        /// The hyperbolic sine.
        sinh = Sinh {
            in_place: yes, amp: FullGpu, dtypes: NOT_FLOAT8, result: Float,
            saves: Inputs, gradient: |c, g| [g * &c.x(0)?.conjugated()?.cosh()?],
            samples: ["N(3, 4)"],
            example: ["assert_close(tensor([0.0, 1.0])?.sinh()?, [0.0, 1.17520]);"],
        }
        /// The hyperbolic cosine.
        cosh = Cosh {
            in_place: yes, amp: FullGpu, dtypes: NOT_FLOAT8, result: Float,
            saves: Inputs, gradient: |c, g| [g * &c.x(0)?.conjugated()?.sinh()?],
            samples: ["N(3, 4)"],
            example: ["assert_close(tensor([0.0, 1.0])?.cosh()?, [1.0, 1.54308]);"],
        }
        /// The hyperbolic tangent.
        tanh = Tanh {
            in_place: yes, dtypes: NOT_FLOAT8, result: Float,
            saves: Output, gradient: |c, g| [tanh_gradient(g, &c.out()?)],
            samples: ["N(3, 4)"],
            example: ["assert_close(tensor([0.0, 1.0])?.tanh()?, [0.0, 0.76159]);"],
        }
        /// The inverse of the hyperbolic sine.
        asinh = Asinh {
            in_place: yes, dtypes: NOT_FLOAT8, result: Float,
            saves: Inputs, gradient: |c, g| [g * &(c.x(0)?.square()? + 1.0)?.rsqrt()?.conjugated()?],
            samples: ["N(3, 4)"],
            example: ["assert_close(tensor([0.0, 1.0])?.asinh()?, [0.0, 0.88137]);"],
        }
        /// The inverse of the hyperbolic cosine; NaN below 1.
        acosh = Acosh {
            in_place: yes, dtypes: NOT_FLOAT8, result: Float,
            saves: Inputs, gradient: |c, g| [g * &acosh_slope(&c.x(0)?)?.conjugated()?],
            samples: ["P(3, 4, lo=1.1)"],
            example: ["assert_close(tensor([1.0, 2.0])?.acosh()?, [0.0, 1.31696]);"],
        }
        /// The inverse of the hyperbolic tangent; NaN outside -1 to 1.
        atanh = Atanh {
            in_place: yes, dtypes: NOT_FLOAT8, result: Float,
            saves: Inputs, gradient: |c, g| [g / &(1.0 - &c.x(0)?.conjugated()?.square()?)?],
            samples: ["U(3, 4)"],
            example: ["assert_close(tensor([0.0, 0.5])?.atanh()?, [0.0, 0.54931]);"],
        }
        /// The error function, `2/√π ∫₀ˣ e^(-t²) dt`.
        erf = Erf {
            in_place: yes, dtypes: ORDERED.and(DTypes::UNSIGNED), result: Float,
            saves: Inputs, gradient: |c, g| [((-&c.x(0)?.square()?)?.exp()? * FRAC_2_SQRT_PI)? * g],
            samples: ["N(3, 4)"],
            example: ["assert_close(tensor([0.0, 1.0])?.erf()?, [0.0, 0.84270]);"],
        }
        /// `1 - erf(x)`, accurate for large x.
        erfc = Erfc {
            in_place: yes, dtypes: ORDERED.and(DTypes::UNSIGNED), result: Float,
            saves: Inputs, gradient: |c, g| [((-&c.x(0)?.square()?)?.exp()? * -FRAC_2_SQRT_PI)? * g],
            samples: ["N(3, 4)"],
            example: ["assert_close(tensor([0.0, 1.0])?.erfc()?, [1.0, 0.15730]);"],
        }
        /// The inverse of the error function; ±inf at ±1, NaN beyond.
        erfinv = Erfinv {
            in_place: yes, amp: FullGpu, dtypes: ORDERED.and(DTypes::UNSIGNED), result: Float,
            saves: Inputs, gradient: |c, g| [(c.x(0)?.erfinv()?.square()?.exp()? * (1.0 / FRAC_2_SQRT_PI))? * g],
            samples: ["U(3, 4)"],
            example: ["assert_close(tensor([0.0, 0.5])?.erfinv()?, [0.0, 0.47694]);"],
        }
        /// The logistic function, `1 / (1 + e^-x)`.
        sigmoid = Sigmoid {
            in_place: yes, dtypes: NOT_FLOAT8, result: Float,
            saves: Output, gradient: |c, g| [sigmoid_gradient(g, &c.out()?)],
            samples: ["N(3, 4)"],
            example: ["assert_close(tensor([0.0, 1.0])?.sigmoid()?, [0.5, 0.73106]);"],
        }
        /// `max(x, 0)`. The gradient at 0 is 0; NaN stays NaN and lets its gradient by.
        relu = Relu {
            in_place: yes, out: none, dtypes: REAL.and(DTypes::UNSIGNED), result: Same,
            saves: Output, gradient: |c, g| [super::binary::relu_gradient(g, &c.out()?)],
            samples: ["N(3, 4)"],
            example: ["assert_close(tensor([-1.0, 2.0])?.relu()?, [0.0, 2.0]);"],
        }
        /// `x * sigmoid(x)`, also called swish (Ramachandran et al., 2017).
        silu = Silu {
            in_place: yes, dtypes: INEXACT, result: Same,
            saves: Inputs, gradient: |c, g| [silu_gradient(g, &c.x(0)?)],
            torch: "nn.functional.silu",
            samples: ["N(3, 4)"],
            example: ["assert_close(tensor([-1.0, 1.0])?.silu()?, [-0.26894, 0.73106]);"],
        }
        /// The logarithm of the absolute value of the gamma function; inf at 0 and the negative integers.
        lgamma = Lgamma {
            in_place: yes, dtypes: ORDERED.and(DTypes::UNSIGNED), result: Float,
            saves: Inputs, gradient: |c, g| [g * &c.x(0)?.digamma()?],
            samples: ["P(3, 4)", "N(3, 4)"],
            example: ["assert_close(tensor([0.5, 4.0])?.lgamma()?, [0.57236, 6f64.ln()]);"],
        }
        /// The logarithmic derivative of the gamma function, `ψ = Γ'/Γ`; -inf at 0, NaN at the negative integers.
        digamma = Digamma {
            in_place: yes, dtypes: ORDERED.and(DTypes::UNSIGNED), result: Float,
            saves: Inputs, gradient: |c, g| [g * &super::pointwise::polygamma(1, &c.x(0)?)?],
            samples: ["P(3, 4)", "N(3, 4)"],
            example: ["assert_close(tensor([0.5, 1.0])?.digamma()?, [-1.96351, -0.57722]);"],
        }
        /// The modified Bessel function of the first kind, of order 0: `Σ (x²/4)^k / (k!)²`.
        i0 = I0 {
            in_place: yes, dtypes: ORDERED.and(DTypes::UNSIGNED), result: Float,
            saves: Inputs, gradient: |c, g| [g * &c.x(0)?.i1()?],
            samples: ["N(3, 4)"],
            example: ["assert_close(tensor([0.0, 1.0])?.i0()?, [1.0, 1.26607]);"],
        }
        /// `e^-|x| i0(x)`, which does not overflow.
        i0e = I0e {
            python: function, dtypes: ORDERED, result: Float,
            saves: Both, gradient: |c, g| [g * &(c.x(0)?.i1e()? - &(c.x(0)?.sign()? * &c.out()?)?)?],
            node: "special_i0e", torch: "special.i0e",
            samples: ["N(3, 4)"],
            example: ["assert_close(tensor([0.0, 1.0])?.i0e()?, [1.0, 0.46576]);"],
        }
        /// The modified Bessel function of the first kind, of order 1: `x/2 Σ (x²/4)^k / (k! (k+1)!)`.
        i1 = I1 {
            python: function, dtypes: ORDERED, result: Float,
            saves: Both, gradient: |c, g| [g * &(c.x(0)?.i0()? - &over_x(&c.out()?, &c.x(0)?)?)?],
            node: "special_i1", torch: "special.i1",
            samples: ["N(3, 4)"],
            example: ["assert_close(tensor([0.0, 1.0])?.i1()?, [0.0, 0.56516]);"],
        }
        /// `e^-|x| i1(x)`, which does not overflow.
        i1e = I1e {
            python: function, dtypes: ORDERED, result: Float,
            saves: Both,
            gradient: |c, g| [
                g * &((c.x(0)?.i0e()? - &(c.x(0)?.sign()? * &c.out()?)?)? - &over_x(&c.out()?, &c.x(0)?)?)?,
            ],
            node: "special_i1e", torch: "special.i1e",
            samples: ["N(3, 4)"],
            example: ["assert_close(tensor([0.0, 1.0])?.i1e()?, [0.0, 0.20791]);"],
        }
        /// The scaled complementary error function, `e^(x²) erfc(x)`.
        erfcx = Erfcx {
            python: function, dtypes: ORDERED, result: Float,
            saves: Both, gradient: |c, g| [(((c.x(0)? * 2.0)? * &c.out()?)? - FRAC_2_SQRT_PI)? * g],
            node: "special_erfcx", torch: "special.erfcx",
            samples: ["N(3, 4)", "P(3, 4)"],
            example: ["assert_close(tensor([0.0, 1.0])?.erfcx()?, [1.0, 0.42758]);"],
        }
        /// The entropy of one probability, `-x log x`: 0 at 0, -inf below.
        entr = Entr {
            python: function, dtypes: ORDERED, result: Float,
            saves: Inputs, gradient: |c, g| [-&(g * &(c.x(0)?.log()? + 1.0)?)?],
            node: "special_entr", torch: "special.entr",
            samples: ["P(3, 4)"],
            example: ["assert_close(tensor([0.0, 0.5, 1.0])?.entr()?, [0.0, 0.34657, 0.0]);"],
        }
        /// The argument at which the normal distribution [`ndtr`](crate::ops::pointwise::ndtr) has this value; NaN
        /// outside 0 to 1.
        ndtri = Ndtri {
            python: function, dtypes: ORDERED, result: Float,
            saves: Output, gradient: |c, g| [(g * SQRT_TAU)? * &(c.out()?.square()? * 0.5)?.exp()?],
            node: "special_ndtri", torch: "special.ndtri",
            samples: ["P(3, 4, lo=0.05, hi=0.95)"],
            example: ["assert_close(tensor([0.5, 0.97725])?.ndtri()?, [0.0, 2.0]);"],
        }
        /// The Bessel function of the first kind, of order 0. PyTorch has no gradient of this and the following.
        bessel_j0 = J0 {
            python: function, dtypes: ORDERED, result: Float,
            saves: Inputs, gradient: |c, g| [-&(g * &bessel_j1(&c.x(0)?)?)?],
            node: "special_bessel_j0", torch: "special.bessel_j0",
            samples: ["N(3, 4)", "P(3, 4)"],
            example: ["assert_close(tensor([0.0, 1.0])?.bessel_j0()?, [1.0, 0.76520]);"],
        }
        /// The Bessel function of the first kind, of order 1.
        bessel_j1 = J1 {
            python: function, dtypes: ORDERED, result: Float,
            saves: Both, gradient: |c, g| [g * &(bessel_j0(&c.x(0)?)? - &over_x(&c.out()?, &c.x(0)?)?)?],
            node: "special_bessel_j1", torch: "special.bessel_j1",
            samples: ["N(3, 4)", "P(3, 4)"],
            example: ["assert_close(tensor([0.0, 1.0])?.bessel_j1()?, [0.0, 0.44005]);"],
        }
        /// The Bessel function of the second kind, of order 0; -inf at 0, NaN below.
        bessel_y0 = Y0 {
            python: function, dtypes: ORDERED, result: Float,
            saves: Inputs, gradient: |c, g| [-&(g * &bessel_y1(&c.x(0)?)?)?],
            node: "special_bessel_y0", torch: "special.bessel_y0",
            samples: ["P(3, 4)"],
            example: ["assert_close(tensor([0.5, 1.0])?.bessel_y0()?, [-0.44452, 0.08826]);"],
        }
        /// The Bessel function of the second kind, of order 1; -inf at 0, NaN below.
        bessel_y1 = Y1 {
            python: function, dtypes: ORDERED, result: Float,
            saves: Both, gradient: |c, g| [g * &(bessel_y0(&c.x(0)?)? - &(c.out()? / &c.x(0)?)?)?],
            node: "special_bessel_y1", torch: "special.bessel_y1",
            samples: ["P(3, 4)"],
            example: ["assert_close(tensor([0.5, 1.0])?.bessel_y1()?, [-1.47147, -0.78121]);"],
        }
        /// The modified Bessel function of the second kind, of order 0; inf at 0, NaN below.
        modified_bessel_k0 = K0 {
            python: function, dtypes: ORDERED, result: Float,
            saves: Inputs, gradient: |c, g| [-&(g * &modified_bessel_k1(&c.x(0)?)?)?],
            node: "special_modified_bessel_k0", torch: "special.modified_bessel_k0",
            samples: ["P(3, 4)"],
            example: ["assert_close(tensor([0.5, 1.0])?.modified_bessel_k0()?, [0.92442, 0.42102]);"],
        }
        /// The modified Bessel function of the second kind, of order 1; inf at 0, NaN below.
        modified_bessel_k1 = K1 {
            python: function, dtypes: ORDERED, result: Float,
            saves: Both, gradient: |c, g| [-&(g * &(modified_bessel_k0(&c.x(0)?)? + &(c.out()? / &c.x(0)?)?)?)?],
            node: "special_modified_bessel_k1", torch: "special.modified_bessel_k1",
            samples: ["P(3, 4)"],
            example: ["assert_close(tensor([0.5, 1.0])?.modified_bessel_k1()?, [1.65644, 0.60191]);"],
        }
        /// `e^x` times [`modified_bessel_k0`], which does not underflow.
        scaled_modified_bessel_k0 = K0e {
            python: function, dtypes: ORDERED, result: Float,
            saves: Both, gradient: |c, g| [g * &(c.out()? - &scaled_modified_bessel_k1(&c.x(0)?)?)?],
            torch: "special.scaled_modified_bessel_k0",
            samples: ["P(3, 4)"],
            example: ["assert_close(tensor([0.5, 1.0])?.scaled_modified_bessel_k0()?, [1.52411, 1.14446]);"],
        }
        /// `e^x` times [`modified_bessel_k1`], which does not underflow.
        scaled_modified_bessel_k1 = K1e {
            python: function, dtypes: ORDERED, result: Float,
            saves: Both,
            gradient: |c, g| [g * &((c.out()? - &(c.out()? / &c.x(0)?)?)? - &scaled_modified_bessel_k0(&c.x(0)?)?)?],
            torch: "special.scaled_modified_bessel_k1",
            samples: ["P(3, 4)"],
            example: ["assert_close(tensor([0.5, 1.0])?.scaled_modified_bessel_k1()?, [2.73101, 1.63615]);"],
        }
        /// The Airy function `Ai`, the solution of `y'' = x y` that falls for positive x; NaN at both infinities. No
        /// gradient, as in PyTorch.
        airy_ai = AiryAi {
            python: function, dtypes: ORDERED, result: Float,
            gradient: none,
            torch: "special.airy_ai",
            samples: ["N(3, 4)", "U(3, 4)"],
            example: ["assert_close(tensor([-2.0, 0.0, 1.0])?.airy_ai()?, [0.22741, 0.35503, 0.13529]);"],
        }
        /// The exponent `e` of `x = m 2^e` with `½ ≤ |m| < 1`, in `x`'s dtype; 0 for 0, infinities and NaN.
        frexp_exponent = Exponent {
            python: function, flags: [internal], dtypes: FLOAT, result: Same,
            gradient: none,
            torch: "-",
            samples: ["N(3, 4)"],
            example: ["assert_close(tensor([6.0, 0.5])?.frexp_exponent()?, [3.0, 0.0]);"],
        }
        /// The mantissa `m` of `x = m 2^e` with `½ ≤ |m| < 1`; `x` itself for 0, infinities and NaN.
        frexp_mantissa = Mantissa {
            python: function, flags: [internal], dtypes: FLOAT, result: Same,
            saves: Inputs, gradient: |c, g| [without_exponent(g, &frexp_exponent(&c.x(0)?)?)],
            torch: "-",
            samples: ["N(3, 4)"],
            example: ["assert_close(tensor([6.0, 0.5])?.frexp_mantissa()?, [0.75, 0.5]);"],
        }
        /// True where the sign bit is set: of negative numbers, of -0.0, and of NaN by its bit.
        signbit = SignBit {
            dtypes: ORDERED.and(DTypes::UNSIGNED), result: Bool,
            gradient: none,
            samples: ["N(3, 4)"],
            example: ["assert_close(tensor([1.0, 0.0, -0.0])?.signbit()?, [false, false, true]);"],
        }
        /// True where the element is zero.
        logical_not = LogicalNot {
            in_place: unrecorded, out: cast, dtypes: COMPUTED, result: Bool,
            gradient: none,
            samples: ["N(3, 4)", "I(0, 2, 3, 4)"],
            example: ["assert_close(tensor([0, 2])?.logical_not()?, [true, false]);"],
        }
        /// Every bit flipped; for `bool`, logical not.
        bitwise_not = BitwiseNot {
            in_place: yes, dtypes: INTEGRAL, result: Same,
            gradient: none,
            samples: ["I(0, 100, 3, 4)"],
            example: ["assert_close(tensor([0, 5])?.bitwise_not()?, [-1, -6]);"],
        }
        /// True where the element is not a number.
        isnan = IsNan {
            out: none, dtypes: ALL, result: Bool,
            gradient: none,
            samples: ["N(3, 4)"],
            example: ["assert_close(tensor([1.0, f64::NAN])?.isnan()?, [false, true]);"],
        }
        /// True where the element is infinite.
        isinf = IsInf {
            out: none, dtypes: ALL, result: Bool,
            gradient: none,
            samples: ["N(3, 4)"],
            example: ["assert_close(tensor([1.0, f64::NEG_INFINITY])?.isinf()?, [false, true]);"],
        }
        /// True where the element is neither infinite nor NaN.
        isfinite = IsFinite {
            out: none, dtypes: ALL, result: Bool,
            gradient: none,
            samples: ["N(3, 4)"],
            example: ["assert_close(tensor([1.0, f64::NAN, f64::INFINITY])?.isfinite()?, [true, false, false]);"],
        }
    }};
}
unary_ops!(define_primitives);
