//! Element-wise ops on one tensor.
//!
//! The whole of an op is its row here, its arm in `cpu/elementwise.rs` and its arm in `gpu/elementwise.rs`.

use super::macros::define_ops;
use crate::dispatch::{self, Meta, Prim};
use crate::{Result, Tensor};
use std::f64::consts::{FRAC_2_SQRT_PI, LN_10, LN_2};

/// √(2π).
const SQRT_TAU: f64 = 2.506_628_274_631_000_5;

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! unary_ops {
    ($cb:ident) => { $crate::define_uniform! { $cb "unary" UnaryOp method () run unary :
        /// The negative of each element. `bool` has none.
        neg = Neg [inplace] Keep DTypes::NUMERIC, Same, Nothing {|c, g| [-g]}, samples ["N(3, 4)", "N()", "N(0, 3)"];
        /// The absolute value. The gradient at 0 is 0, as in PyTorch.
        abs = Abs [out_rule inplace] Keep DTypes::NUMERIC, Real, Inputs {|c, g| [g * &c.x(0)?.sgn()?]}, samples ["N(3, 4)"];
        /// -1, 0 or 1 by each element's sign. Its gradient is 0.
        sign = Sign [inplace] Keep DTypes::ORDERED, Same, Nothing {|c, g| [g.zeros_like()]}, samples ["N(3, 4)"];
        /// The complex conjugate, computed (PyTorch's `conj` puts it off); real tensors are given back as they are.
        conj_physical = Conj [inplace] Keep DTypes::ALL, Same, Nothing {|c, g| [g.conj_physical()]}, samples ["N(3, 4)"];
        /// `e` to each element.
        exp = Exp [inplace] FullGpu DTypes::ALL, Float, Output {|c, g| [g * &c.out()?.conjugated()?]}, samples ["N(3, 4)"];
        /// 2 to each element.
        exp2 = Exp2 [inplace] Keep DTypes::ALL, Float, Output {|c, g| [(g * &c.out()?.conjugated()?)? * LN_2]}, samples ["N(3, 4)"];
        /// `e^x - 1`, accurate near 0.
        expm1 = Expm1 [inplace] FullGpu DTypes::ALL, Float, Output {|c, g| [g * &(c.out()? + 1.0)?.conjugated()?]}, samples ["N(3, 4)"];
        /// The natural logarithm; NaN below 0, -inf at 0.
        log = Log [inplace] FullGpu DTypes::ALL, Float, Inputs {|c, g| [g / &c.x(0)?.conjugated()?]}, samples ["P(3, 4)"];
        /// The logarithm to base 2.
        log2 = Log2 [inplace] FullGpu DTypes::ALL, Float, Inputs {|c, g| [g / &(c.x(0)?.conjugated()? * LN_2)?]}, samples ["P(3, 4)"];
        /// The logarithm to base 10.
        log10 = Log10 [inplace] FullGpu DTypes::ALL, Float, Inputs {|c, g| [g / &(c.x(0)?.conjugated()? * LN_10)?]}, samples ["P(3, 4)"];
        /// `log(1 + x)`, accurate near 0.
        log1p = Log1p [inplace] FullGpu DTypes::ALL, Float, Inputs {|c, g| [g / &(c.x(0)?.conjugated()? + 1.0)?]}, samples ["P(3, 4)"];
        /// The square root; NaN below 0.
        sqrt = Sqrt [inplace] Keep DTypes::ALL, Float, Output {|c, g| [g / &(c.out()?.conjugated()? * 2.0)?]}, samples ["P(3, 4)"];
        /// `1 / sqrt(x)`.
        rsqrt = Rsqrt [inplace] FullGpu DTypes::ALL, Float, Output {|c, g| [(g * -0.5)? * &c.out()?.pow(3)?.conjugated()?]}, samples ["P(3, 4)"];
        /// `x * x`; of `bool` as int64.
        square = Square [casts_out inplace] Keep DTypes::ALL, Own, Inputs {|c, g| [g * &(c.x(0)?.conjugated()? * 2)?]}, samples ["N(3, 4)"];
        /// `1 / x`.
        reciprocal = Reciprocal [inplace] FullGpu DTypes::ALL, Float, Output
            {|c, g| [-&(g * &c.out()?.square()?.conjugated()?)?]}, samples ["P(3, 4)"];
        /// The largest integer not above. Its gradient is 0.
        floor = Floor [inplace] Keep DTypes::REAL, Same, Nothing {|c, g| [g.zeros_like()]}, samples ["N(3, 4)"];
        /// The smallest integer not below. Its gradient is 0.
        ceil = Ceil [inplace] Keep DTypes::REAL, Same, Nothing {|c, g| [g.zeros_like()]}, samples ["N(3, 4)"];
        /// The integer part. Its gradient is 0.
        trunc = Trunc [inplace] Keep DTypes::REAL, Same, Nothing {|c, g| [g.zeros_like()]}, samples ["N(3, 4)"];
        /// The nearest integer, halves to even. Its gradient is 0.
        rint = Round [inplace only_function] Keep DTypes::REAL, Same, Nothing {|c, g| [g.zeros_like()]}, torch "round", samples ["N(3, 4)"];
        /// The sine, of radians.
        sin = Sin [inplace] Keep DTypes::ALL, Float, Inputs {|c, g| [g * &c.x(0)?.conjugated()?.cos()?]}, samples ["N(3, 4)"];
        /// The cosine, of radians.
        cos = Cos [inplace] Keep DTypes::ALL, Float, Inputs {|c, g| [-&(g * &c.x(0)?.conjugated()?.sin()?)?]}, samples ["N(3, 4)"];
        /// The tangent, of radians.
        tan = Tan [inplace] FullGpu DTypes::ALL, Float, Output {|c, g| [g * &(c.out()?.conjugated()?.square()? + 1.0)?]}, samples ["U(3, 4)"];
        /// The angle in radians whose sine this is; NaN outside -1 to 1.
        asin = Asin [inplace] FullGpu DTypes::ALL, Float, Inputs
            {|c, g| [g * &(1.0 - &c.x(0)?.square()?)?.rsqrt()?.conjugated()?]}, samples ["U(3, 4)"];
        /// The angle in radians whose cosine this is; NaN outside -1 to 1.
        acos = Acos [inplace] FullGpu DTypes::ALL, Float, Inputs
            {|c, g| [-&(g * &(1.0 - &c.x(0)?.square()?)?.rsqrt()?.conjugated()?)?]}, samples ["U(3, 4)"];
        /// The angle in radians whose tangent this is.
        atan = Atan [inplace] Keep DTypes::ALL, Float, Inputs {|c, g| [g / &(c.x(0)?.conjugated()?.square()? + 1.0)?]}, samples ["N(3, 4)"];
        /// The hyperbolic sine.
        sinh = Sinh [inplace] FullGpu DTypes::ALL, Float, Inputs {|c, g| [g * &c.x(0)?.conjugated()?.cosh()?]}, samples ["N(3, 4)"];
        /// The hyperbolic cosine.
        cosh = Cosh [inplace] FullGpu DTypes::ALL, Float, Inputs {|c, g| [g * &c.x(0)?.conjugated()?.sinh()?]}, samples ["N(3, 4)"];
        /// The hyperbolic tangent.
        tanh = Tanh [inplace] Keep DTypes::ALL, Float, Output {|c, g| [g * &(1.0 - &c.out()?.conjugated()?.square()?)?]}, samples ["N(3, 4)"];
        /// The inverse of the hyperbolic sine.
        asinh = Asinh [inplace] Keep DTypes::ALL, Float, Inputs
            {|c, g| [g * &(c.x(0)?.square()? + 1.0)?.rsqrt()?.conjugated()?]}, samples ["N(3, 4)"];
        /// The inverse of the hyperbolic cosine; NaN below 1.
        acosh = Acosh [inplace] Keep DTypes::ALL, Float, Inputs
            {|c, g| [g * &acosh_slope(&c.x(0)?)?.conjugated()?]}, samples ["P(3, 4, lo=1.1)"];
        /// The inverse of the hyperbolic tangent; NaN outside -1 to 1.
        atanh = Atanh [inplace] Keep DTypes::ALL, Float, Inputs {|c, g| [g / &(1.0 - &c.x(0)?.conjugated()?.square()?)?]}, samples ["U(3, 4)"];
        /// The error function, `2/√π ∫₀ˣ e^(-t²) dt`.
        erf = Erf [inplace] Keep DTypes::ORDERED, Float, Inputs
            {|c, g| [(g * &(-&c.x(0)?.square()?)?.exp()?)? * FRAC_2_SQRT_PI]}, samples ["N(3, 4)"];
        /// `1 - erf(x)`, accurate for large x.
        erfc = Erfc [inplace] Keep DTypes::ORDERED, Float, Inputs
            {|c, g| [(g * &(-&c.x(0)?.square()?)?.exp()?)? * -FRAC_2_SQRT_PI]}, samples ["N(3, 4)"];
        /// The inverse of the error function; ±inf at ±1, NaN beyond.
        erfinv = Erfinv [inplace] FullGpu DTypes::ORDERED, Float, Output
            {|c, g| [(g * &c.out()?.square()?.exp()?)? * (1.0 / FRAC_2_SQRT_PI)]}, samples ["U(3, 4)"];
        /// The logistic function, `1 / (1 + e^-x)`.
        sigmoid = Sigmoid [inplace] Keep DTypes::ALL, Float, Output
            {|c, g| [(g * &c.out()?.conjugated()?)? * &(1.0 - &c.out()?.conjugated()?)?]}, samples ["N(3, 4)"];
        /// `max(x, 0)`. The gradient at 0 is 0; NaN stays NaN and lets its gradient by.
        relu = Relu [inplace] Keep DTypes::REAL, Same, Output
            {|c, g| [super::binary::relu_gradient(g, &c.out()?)]}, samples ["N(3, 4)"];
        /// `x * sigmoid(x)`, also called swish (Ramachandran et al., 2017).
        silu = Silu [inplace] Keep DTypes::INEXACT, Same, Inputs
            {|c, g| [g * &silu_slope(&c.x(0)?.conjugated()?)?]}, torch "nn.functional.silu", samples ["N(3, 4)"];
        /// The logarithm of the absolute value of the gamma function; inf at 0 and the negative integers.
        lgamma = Lgamma [inplace] Keep DTypes::ORDERED, Float, Inputs {|c, g| [g * &c.x(0)?.digamma()?]}, samples ["P(3, 4)", "N(3, 4)"];
        /// The logarithmic derivative of the gamma function, `ψ = Γ'/Γ`; -inf at 0, NaN at the negative integers.
        digamma = Digamma [inplace] Keep DTypes::ORDERED, Float, Inputs
            {|c, g| [g * &super::pointwise::polygamma(1, &c.x(0)?)?]}, samples ["P(3, 4)", "N(3, 4)"];
        /// The modified Bessel function of the first kind, of order 0: `Σ (x²/4)^k / (k!)²`.
        i0 = I0 [inplace] Keep DTypes::ORDERED, Float, Inputs {|c, g| [g * &c.x(0)?.i1()?]}, samples ["N(3, 4)"];
        /// `e^-|x| i0(x)`, which does not overflow.
        i0e = I0e [only_function] Keep DTypes::ORDERED, Float, Both
            {|c, g| [g * &(c.x(0)?.i1e()? - &(c.x(0)?.sign()? * &c.out()?)?)?]}, torch "special.i0e", samples ["N(3, 4)"];
        /// The modified Bessel function of the first kind, of order 1: `x/2 Σ (x²/4)^k / (k! (k+1)!)`.
        i1 = I1 [only_function] Keep DTypes::ORDERED, Float, Both
            {|c, g| [g * &(c.x(0)?.i0()? - &over_x(&c.out()?, &c.x(0)?)?)?]}, torch "special.i1", samples ["N(3, 4)"];
        /// `e^-|x| i1(x)`, which does not overflow.
        i1e = I1e [only_function] Keep DTypes::ORDERED, Float, Both
            {|c, g| [g * &((c.x(0)?.i0e()? - &(c.x(0)?.sign()? * &c.out()?)?)? - &over_x(&c.out()?, &c.x(0)?)?)?]},
            torch "special.i1e", samples ["N(3, 4)"];
        /// The scaled complementary error function, `e^(x²) erfc(x)`.
        erfcx = Erfcx [only_function] Keep DTypes::ORDERED, Float, Both
            {|c, g| [g * &(((c.x(0)? * 2.0)? * &c.out()?)? - FRAC_2_SQRT_PI)?]}, torch "special.erfcx", samples ["N(3, 4)", "P(3, 4)"];
        /// The entropy of one probability, `-x log x`: 0 at 0, -inf below.
        entr = Entr [only_function] Keep DTypes::ORDERED, Float, Inputs
            {|c, g| [-&(g * &(c.x(0)?.log()? + 1.0)?)?]}, torch "special.entr", samples ["P(3, 4)"];
        /// The argument at which the normal distribution [`ndtr`](crate::ops::pointwise::ndtr) has this value; NaN outside 0 to 1.
        ndtri = Ndtri [only_function] Keep DTypes::ORDERED, Float, Output
            {|c, g| [g * &((c.out()?.square()? * 0.5)?.exp()? * SQRT_TAU)?]}, torch "special.ndtri", samples ["P(3, 4, lo=0.05, hi=0.95)"];
        /// The Bessel function of the first kind, of order 0. PyTorch has no gradient of this and the following.
        bessel_j0 = J0 [only_function] Keep DTypes::ORDERED, Float, Inputs
            {|c, g| [-&(g * &bessel_j1(&c.x(0)?)?)?]}, torch "special.bessel_j0", samples ["N(3, 4)", "P(3, 4)"];
        /// The Bessel function of the first kind, of order 1.
        bessel_j1 = J1 [only_function] Keep DTypes::ORDERED, Float, Both
            {|c, g| [g * &(bessel_j0(&c.x(0)?)? - &over_x(&c.out()?, &c.x(0)?)?)?]}, torch "special.bessel_j1", samples ["N(3, 4)", "P(3, 4)"];
        /// The Bessel function of the second kind, of order 0; -inf at 0, NaN below.
        bessel_y0 = Y0 [only_function] Keep DTypes::ORDERED, Float, Inputs
            {|c, g| [-&(g * &bessel_y1(&c.x(0)?)?)?]}, torch "special.bessel_y0", samples ["P(3, 4)"];
        /// The Bessel function of the second kind, of order 1; -inf at 0, NaN below.
        bessel_y1 = Y1 [only_function] Keep DTypes::ORDERED, Float, Both
            {|c, g| [g * &(bessel_y0(&c.x(0)?)? - &(c.out()? / &c.x(0)?)?)?]}, torch "special.bessel_y1", samples ["P(3, 4)"];
        /// The modified Bessel function of the second kind, of order 0; inf at 0, NaN below.
        modified_bessel_k0 = K0 [only_function] Keep DTypes::ORDERED, Float, Inputs
            {|c, g| [-&(g * &modified_bessel_k1(&c.x(0)?)?)?]}, torch "special.modified_bessel_k0", samples ["P(3, 4)"];
        /// The modified Bessel function of the second kind, of order 1; inf at 0, NaN below.
        modified_bessel_k1 = K1 [only_function] Keep DTypes::ORDERED, Float, Both
            {|c, g| [-&(g * &(modified_bessel_k0(&c.x(0)?)? + &(c.out()? / &c.x(0)?)?)?)?]}, torch "special.modified_bessel_k1", samples ["P(3, 4)"];
        /// `e^x` times [`modified_bessel_k0`], which does not underflow.
        scaled_modified_bessel_k0 = K0e [only_function] Keep DTypes::ORDERED, Float, Both
            {|c, g| [g * &(c.out()? - &scaled_modified_bessel_k1(&c.x(0)?)?)?]}, torch "special.scaled_modified_bessel_k0", samples ["P(3, 4)"];
        /// `e^x` times [`modified_bessel_k1`], which does not underflow.
        scaled_modified_bessel_k1 = K1e [only_function] Keep DTypes::ORDERED, Float, Both
            {|c, g| [g * &((c.out()? - &(c.out()? / &c.x(0)?)?)? - &scaled_modified_bessel_k0(&c.x(0)?)?)?]},
            torch "special.scaled_modified_bessel_k1", samples ["P(3, 4)"];
        /// The exponent `e` of `x = m 2^e` with `½ ≤ |m| < 1`, in `x`'s dtype; 0 for 0, infinities and NaN.
        frexp_exponent = Exponent [only_function] Keep DTypes::FLOAT, Same, Nothing {none}, torch "-", samples ["N(3, 4)"];
        /// The mantissa `m` of `x = m 2^e` with `½ ≤ |m| < 1`; `x` itself for 0, infinities and NaN.
        frexp_mantissa = Mantissa [only_function] Keep DTypes::FLOAT, Same, Inputs
            {|c, g| [g * &(-&frexp_exponent(&c.x(0)?)?)?.exp2()?]}, torch "-", samples ["N(3, 4)"];
        /// True where the sign bit is set: of negative numbers, of -0.0, and of NaN by its bit.
        signbit = SignBit [] Keep DTypes::ORDERED, Bool, Nothing {none}, samples ["N(3, 4)"];
        /// True where the element is zero.
        logical_not = LogicalNot [casts_out inplace] Keep DTypes::ALL, Bool, Nothing {none}, samples ["N(3, 4)", "I(0, 2, 3, 4)"];
        /// Every bit flipped; for `bool`, logical not.
        bitwise_not = BitwiseNot [inplace] Keep DTypes::INTEGRAL, Same, Nothing {none}, samples ["I(0, 100, 3, 4)"];
        /// True where the element is not a number.
        isnan = IsNan [] Keep DTypes::ALL, Bool, Nothing {none}, samples ["N(3, 4)"];
        /// True where the element is infinite.
        isinf = IsInf [] Keep DTypes::ALL, Bool, Nothing {none}, samples ["N(3, 4)"];
        /// True where the element is neither infinite nor NaN.
        isfinite = IsFinite [] Keep DTypes::ALL, Bool, Nothing {none}, samples ["N(3, 4)"];
    }};
}
unary_ops!(define_ops);

fn unary(op: UnaryOp, x: &Tensor) -> Result<Tensor> {
    let schema = op.schema();
    schema.check(x.dtype())?;
    // What is real is its own conjugate.
    if op == UnaryOp::Conj && !x.dtype().is_complex() {
        return Ok(x.clone());
    }
    match schema.result {
        super::ResultDType::Own if x.dtype() == crate::DType::Bool => unary_as(op, &x.cast(crate::DType::I64)?),
        super::ResultDType::Float if x.dtype().is_integral() => unary_as(op, &x.cast(crate::default_dtype())?),
        _ => unary_as(op, x),
    }
}

fn unary_as(op: UnaryOp, x: &Tensor) -> Result<Tensor> {
    let dtype = op.schema().result.of(x.dtype());
    dispatch::apply1(Prim::Unary(op), &[x], Meta::new(x.shape(), dtype))
}

/// The slope of `silu`: `s (1 + x (1 - s))` with `s = sigmoid(x)`.
fn silu_slope(x: &Tensor) -> Result<Tensor> {
    let s = x.sigmoid()?;
    &s * &((x * &(1.0 - &s)?)? + 1.0)?
}

/// `y / x` for an odd function `y` of slope ½ at 0: ½ there.
fn over_x(y: &Tensor, x: &Tensor) -> Result<Tensor> {
    let zero = x.eq(0)?;
    let safe = x.masked_fill(&zero, 1.0)?;
    (y / &safe)?.masked_fill(&zero, 0.5)
}

/// `1 / √(x² - 1)`; of complex numbers the product of two roots, whose branch cuts are those of `acosh`.
fn acosh_slope(x: &Tensor) -> Result<Tensor> {
    match x.dtype().is_complex() {
        true => (x - 1.0)?.rsqrt()? * &(x + 1.0)?.rsqrt()?,
        false => (x.square()? - 1.0)?.rsqrt(),
    }
}

impl Tensor {
    /// The complex conjugate; real tensors as they are.
    pub(crate) fn conjugated(&self) -> Result<Tensor> {
        match self.dtype().is_complex() {
            true => self.conj_physical(),
            false => Ok(self.clone()),
        }
    }
}
