//! Element-wise arithmetic on two tensors, with broadcasting and promotion.
//!
//! Kernels are in `cpu/elementwise.rs` and `mlx/elementwise.rs`. Both operands reach them in one dtype; the tape sums
//! gradients back to each operand's shape.

use super::macros::define_ops;
use super::{result_type, Operand, Rounding};
use crate::dispatch::{self, Meta, Prim};
use crate::dtype::Category;
use crate::ops::OpRow;
use crate::{autograd, shape, DType, Error, Result, Scalar, Tensor};
use lucid_ir::binary_ops;
pub use lucid_ir::ops::binary::*;
use num_complex::Complex64;

binary_ops!(define_ops);

/// The dtype that two operands are computed in.
fn common(a: &Tensor, b: Operand<'_>) -> Result<DType> {
    match b {
        Operand::Tensor(t) if t.dtype() == a.dtype() => Ok(t.dtype()),
        b => result_type([Operand::Tensor(a), b]),
    }
}

fn binary(op: BinaryOp, a: &Tensor, b: Operand<'_>) -> Result<Tensor> {
    binary_in(op, a, b, common(a, b)?)
}

/// [`binary`] of operands whose common dtype has been worked out.
fn binary_in(op: BinaryOp, a: &Tensor, b: Operand<'_>, common: DType) -> Result<Tensor> {
    if let Operand::Tensor(b) = b
        && let Some(made) = dispatch::few(&op, a, b)
    {
        return made;
    }
    let schema = op.schema();
    schema.check(common)?;
    let dtype = schema.result.of(common);
    if let Operand::Tensor(b) = b {
        // What most calls are: nothing to convert.
        if a.dtype() == dtype && b.dtype() == dtype {
            let shape = shape::broadcast(schema.name, a.shape(), b.shape())?;
            return dispatch::apply1(Prim::Binary(op), &[a, b], Meta { shape, dtype });
        }
    }
    // 16-bit floats are multiplied and divided by a number as float32, where 1e5 is finite and 1e-8 is not 0; a second
    // operand of one element is a number. So it is in PyTorch.
    let wide = matches!(op, BinaryOp::Mul | BinaryOp::Div | BinaryOp::FloorDivide) && dtype.is_half();
    let a = a.cast(dtype)?;
    let b = match b {
        Operand::Tensor(b) if wide && b.numel() == 1 && b.dtype() != dtype => b.cast(DType::F32)?,
        Operand::Tensor(b) => b.cast(dtype)?,
        Operand::Scalar(s) if wide && !s.is_exact(dtype) => Tensor::constant(s, DType::F32, a.device())?,
        Operand::Scalar(s) => Tensor::constant(s, dtype, a.device())?,
    };
    in_dtype(op, &a, &b, dtype)
}

/// An op of two tensors that gives `dtype`, whatever theirs: where one is a 16-bit float, rounded once.
fn in_dtype(op: BinaryOp, a: &Tensor, b: &Tensor, dtype: DType) -> Result<Tensor> {
    let shape = shape::broadcast(op.name(), a.shape(), b.shape())?;
    dispatch::apply1(Prim::Binary(op), &[a, b], Meta { shape, dtype })
}

/// `x^(a-1) e^-x / Γ(a)`, the slope of the incomplete gamma function.
fn gamma_density(c: &crate::autograd::Ctx<'_>) -> Result<Tensor> {
    let (a, x) = (c.x(0)?, c.x(1)?);
    (((&a - 1)? * &x.log()?)? - &(&x + &a.lgamma()?)?)?.exp()
}

fn extremum(op: BinaryOp, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    binary(op, a, Operand::Tensor(b))
}

/// The factor, which the dtype has to have room for.
pub(super) fn representable(op: &'static str, factor: Scalar, dtype: DType) -> Result<Scalar> {
    match factor.converts(dtype) {
        true => Ok(factor),
        false => {
            Err(Error::runtime(op, format!("value {factor} cannot be converted to type {dtype} without overflow")))
        }
    }
}

/// `b * alpha` for a sum in `common`; `None` where alpha is 1.
fn scaled(
    name: &'static str,
    b: Operand<'_>,
    alpha: Scalar,
    common: DType,
    device: crate::Device,
) -> Result<Option<Tensor>> {
    if alpha == Scalar::ONE {
        return Ok(None);
    }
    let refused = match (common.category(), alpha.category()) {
        (Category::Integer | Category::Float | Category::Complex, Category::Bool) => {
            Some("Boolean alpha only supported for Boolean results")
        }
        (Category::Bool | Category::Integer, Category::Float | Category::Complex) => {
            Some("For integral input tensors, argument alpha must not be a floating point number")
        }
        (Category::Float, Category::Complex) => {
            Some("For non-complex input tensors, argument alpha must not be a complex number")
        }
        _ => None,
    };
    if let Some(why) = refused {
        return Err(Error::runtime(name, format!("{why}, got {alpha}")));
    }
    let alpha = match common {
        DType::Bool => Scalar::Bool(alpha.to_bool()),
        _ => representable(name, alpha, common)?,
    };
    let product = match b {
        // A number of a higher category than `b` must not say the dtype.
        Operand::Tensor(b) => times(&b.cast(common)?, alpha)?,
        Operand::Scalar(s) => Tensor::constant(s, super::scalar_dtype(s), device)?.mul(alpha)?,
    };
    Ok(Some(product))
}

/// `b * alpha`; of 16-bit floats as float32, for a sum that is rounded once.
fn times(b: &Tensor, alpha: Scalar) -> Result<Tensor> {
    match b.dtype().is_half() {
        true => in_dtype(BinaryOp::Mul, b, &Tensor::constant(alpha, b.dtype(), b.device())?, DType::F32),
        false => b.mul(alpha),
    }
}

/// A sum or difference with such a product.
fn with_product(op: BinaryOp, a: &Tensor, product: &Tensor, common: DType) -> Result<Tensor> {
    match common.is_half() {
        true => in_dtype(op, a, product, common),
        false => binary_in(op, a, product.into(), common),
    }
}

/// `a + alpha · b`, or the difference.
fn sum_scaled(op: BinaryOp, a: &Tensor, b: Operand<'_>, alpha: Scalar) -> Result<Tensor> {
    let dtype = common(a, b)?;
    if matches!(alpha, Scalar::Int(1)) {
        return binary_in(op, a, b, dtype);
    }
    match scaled(op.name(), b, alpha, dtype, a.device())? {
        Some(product) => with_product(op, a, &product, dtype),
        None => binary_in(op, a, b, dtype),
    }
}

fn add_scaled(a: &Tensor, b: Operand<'_>, alpha: Scalar) -> Result<Tensor> {
    sum_scaled(BinaryOp::Add, a, b, alpha)
}

/// A truth value has no difference to anything.
fn refuse_bool(name: &'static str, a: &Tensor, b: Operand<'_>) -> Result<()> {
    let truth = match b {
        Operand::Tensor(b) => b.dtype() == DType::Bool,
        Operand::Scalar(s) => s.category() == Category::Bool,
    };
    if a.dtype() != DType::Bool && !truth {
        return Ok(());
    }
    let why =
        "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, use the `~` or `logical_not()` operator instead.";
    Err(Error::dtype(name, why, &[a.dtype()]))
}

/// `log(e^a + e^b)`; of complex numbers the one with the larger real part is taken out.
fn log_add_exp(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let dtype = result_type([Operand::Tensor(a), b.into()])?;
    if !dtype.is_complex() {
        return extremum(BinaryOp::LogAddExp, a, b);
    }
    let (a, b) = (a.cast(dtype)?, b.cast(dtype)?);
    let select = super::compare::select::r#where;
    let (still_a, still_b) = (a.detach()?, b.detach()?);
    let (ra, rb) = (super::complex::real(&still_a)?, super::complex::real(&still_b)?);
    let first = ra.ge(&rb)?;
    // What is decided by infinities: nothing is added to one, and beside -inf the other one stays.
    let (high, low) = (ra.maximum(&rb)?, ra.minimum(&rb)?);
    let decided = high.isinf()?.logical_or(&low.isinf()?)?;
    let zero = |x: &Tensor| x.filled(&decided, 0.0);
    let top = zero(&select(&first, &still_a, &still_b)?)?;
    let usual = (((zero(&a)? - &top)?.exp()? + &(zero(&b)? - &top)?.exp()?)?.log()? + &top)?;
    let even = ra.eq(&rb)?;
    let sum = (still_a.exp()? + &still_b.exp()?)?.log()?;
    let larger = select(&first, &a, &b)?;
    let larger = select(&even.logical_and(&ra.lt(0)?)?, &b, &larger)?;
    let edge = select(&even.logical_and(&ra.gt(0)?)?, &sum, &larger)?;
    let nan = still_a.isnan()?.logical_or(&still_b.isnan()?)?;
    let none = Tensor::constant(Scalar::Complex(f64::NAN, f64::NAN), dtype, a.device())?;
    select(&nan, &none, &select(&decided, &edge, &usual)?)
}

fn sub_scaled(a: &Tensor, b: Operand<'_>, alpha: Scalar) -> Result<Tensor> {
    refuse_bool("sub", a, b)?;
    sum_scaled(BinaryOp::Sub, a, b, alpha)
}

fn rsub_scaled(a: &Tensor, b: Operand<'_>, alpha: Scalar) -> Result<Tensor> {
    refuse_bool("rsub", a, b)?;
    let dtype = common(a, b)?;
    let number;
    let b = match b {
        Operand::Tensor(b) => b,
        Operand::Scalar(s) => {
            number = Tensor::constant(s, dtype, a.device())?;
            &number
        }
    };
    match scaled("rsub", Operand::Tensor(a), alpha, a.dtype(), a.device())? {
        Some(product) => with_product(BinaryOp::Sub, b, &product, dtype),
        None => binary_in(BinaryOp::Sub, b, a.into(), dtype),
    }
}

/// A function that is steps, with gradient 0 everywhere.
fn stepped(a: &Tensor, b: Operand<'_>, run: impl Fn(&Tensor, Operand<'_>) -> Result<Tensor>) -> Result<Tensor> {
    let other = if let Operand::Tensor(b) = b { Some(b) } else { None };
    if !autograd::is_followed(a) && !other.is_some_and(autograd::is_followed) {
        return run(a, b);
    }
    let still = other.map(Tensor::detach).transpose()?;
    let q = run(&a.detach()?, still.as_ref().map_or(b, Operand::Tensor))?.in_steps_of(a)?;
    other.map_or(Ok(q.clone()), |b| q.in_steps_of(b))
}

fn floor_divide_body(a: &Tensor, b: Operand<'_>) -> Result<Tensor> {
    let y = binary(BinaryOp::FloorDivide, a, b)?;
    let refusal = || Error::runtime("floor_divide", "derivative for aten::floor_divide is not implemented");
    let refuse = |inputs: &[&Tensor]| autograd::refusing("floor_divide", &y, "NotImplemented", inputs, refusal);
    match b {
        Operand::Tensor(b) => refuse(&[a, b])?,
        Operand::Scalar(_) => refuse(&[a])?,
    }
    Ok(y)
}

fn div_rounded(a: &Tensor, b: Operand<'_>, rounding_mode: Option<&str>) -> Result<Tensor> {
    match rounding_mode {
        None => binary(BinaryOp::Div, a, b),
        Some("floor") => stepped(a, b, |a, b| binary(BinaryOp::FloorDivide, a, b)),
        Some("trunc") => {
            let common = result_type([Operand::Tensor(a), b])?;
            let q = match common.is_integral() {
                // (a - fmod(a, b)) is a multiple of b, so the floor is exact.
                true => binary(BinaryOp::FloorDivide, &a.sub(&a.fmod(b)?, 1)?, b)?,
                // Not of the quotient: by 0 the gradient of what is steps would be `0 · ∞`.
                false => stepped(a, b, |a, b| binary(BinaryOp::Div, a, b)?.trunc())?,
            };
            Ok(q)
        }
        Some(other) => {
            let why = format!("div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '{other}'");
            Err(Error::runtime("div", why))
        }
    }
}

fn pow_checked(a: &Tensor, exponent: Operand<'_>) -> Result<Tensor> {
    if let Operand::Scalar(s) = exponent {
        // Of truth values only false to the power of true is false.
        if let (DType::Bool, Scalar::Bool(e)) = (a.dtype(), s) {
            return if e { a.copy() } else { a.logical_or(true) };
        }
        if a.dtype().is_integral() && s.category() < Category::Float && s.to_i64() < 0 {
            return Err(Error::runtime("pow", "Integers to negative integer powers are not allowed."));
        }
        // PyTorch takes roots here, which differ for -0 and -inf; not in float16.
        if a.dtype() != DType::F16 && !a.dtype().is_integral() && s.category() <= Category::Float {
            match s.to_f64() {
                0.5 => return root(a, s, Tensor::sqrt),
                -0.5 => return root(a, s, Tensor::rsqrt),
                _ => {}
            }
        }
        // As a number 0 makes 1 of everything, of complex zeros too.
        let dtype = result_type([Operand::Tensor(a), exponent])?;
        if s.to_complex() == Complex64::default() && (dtype.is_complex() || autograd::is_followed(a)) {
            return super::create::ones_like(&a.detach()?, Some(dtype), None, None)?.in_steps_of(a);
        }
        if s.to_f64() == 2.0 && a.dtype() != DType::Bool && !s.outranks(a.dtype()) {
            return a.square();
        }
    }
    binary(BinaryOp::Pow, a, exponent)
}

/// A root for a power. Its gradient is that of the power, which needs the base: the result may be written in place.
fn root(a: &Tensor, exponent: Scalar, take: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    if !autograd::is_followed(a) || a.is_batched() || a.is_sparse() {
        return take(a);
    }
    let value = autograd::with_grad(false, || take(&a.detach()?))?;
    let exponent = Tensor::constant(exponent, a.dtype(), a.device())?;
    autograd::record(Prim::Binary(BinaryOp::Pow), &[a, &exponent], value.storage().clone())
}

/// `g · e · x^(e-1)`, and 0 where the exponent is 0 (also at x = 0).
fn pow_grad_base(c: &crate::autograd::Ctx<'_>, g: &Tensor) -> Result<Tensor> {
    let (x, e) = (c.x(0)?, c.x(1)?);
    // Of an exponent that is a number the power is as in the forward pass, where some are roots.
    let power = match e.number() {
        Some(Scalar::Complex(re, im)) => x.pow(Scalar::Complex(re - 1.0, im))?,
        Some(number) => x.pow(number.to_f64() - 1.0)?,
        None => x.pow(&(&e - 1)?)?,
    };
    let slope = (&e * &power)?.conjugated()?;
    (g * &slope)?.where_else_zero(&e.ne(0)?)
}

/// `g · x^e · ln x`, and 0 where x is 0 and the exponent is not negative.
fn pow_grad_exponent(c: &crate::autograd::Ctx<'_>, g: &Tensor) -> Result<Tensor> {
    let (x, e) = (c.x(0)?, c.x(1)?);
    let flat = x.eq(0)?.logical_and(&super::complex::real(&e.detach()?)?.ge(0)?)?;
    let slope = (c.out()? * &x.log()?)?.conjugated()?;
    (g * &slope)?.where_else_zero(&flat.logical_not()?)
}

/// The gradient where this side won, half of it at a tie, 0 elsewhere, whatever it is there.
fn of_winner(c: &crate::autograd::Ctx<'_>, lost: &Tensor, g: &Tensor) -> Result<Tensor> {
    let tie = c.x(0)?.eq(&c.x(1)?)?;
    (g * &(1.0 - &(tie.cast(g.dtype())? * 0.5)?)?)?.where_else_zero(&lost.logical_not()?)
}

/// A factor as PyTorch applies it to integers: without its fraction.
pub(crate) fn within(x: &Tensor, factor: Scalar) -> Scalar {
    if x.dtype().is_integral() {
        Scalar::Int(factor.to_i64())
    } else {
        factor
    }
}

/// `1 / (y² + x²)`, and 0 at the origin, where an angle has no gradient.
fn of_length(y: &Tensor, x: &Tensor) -> Result<Tensor> {
    let square = (y.square()? + &x.square()?)?;
    let origin = square.detach()?.eq(0)?;
    square.filled(&origin, 1.0)?.reciprocal()?.filled(&origin, 0.0)
}

fn addcmul_body(x: &Tensor, a: &Tensor, b: &Tensor, value: Scalar) -> Result<Tensor> {
    let dtype = result_type([Operand::Tensor(x), a.into(), b.into()])?;
    schema::addcmul.check(dtype)?;
    if dtype.is_half() {
        return added(x, BinaryOp::Mul, a, b, value, dtype);
    }
    let value =
        if dtype.is_integral() { Scalar::Int(representable("addcmul", value, dtype)?.to_i64()) } else { number(value) };
    if let Some(made) = added_in_one_pass(x, BinaryOp::Mul, a, b, value)? {
        return Ok(made);
    }
    // In the dtype of the result: the operands' own may be too narrow for their product.
    x.add(&in_dtype(BinaryOp::Mul, a, b, dtype)?, value)
}

/// `x + value · (a op b)` of 16-bit floats, rounded once.
fn added(x: &Tensor, op: BinaryOp, a: &Tensor, b: &Tensor, value: Scalar, dtype: DType) -> Result<Tensor> {
    let part = in_dtype(op, a, b, DType::F32)?;
    let part = if value == Scalar::ONE { part } else { part.mul(number(value))? };
    in_dtype(BinaryOp::Add, x, &part, dtype)
}

fn addcdiv_body(x: &Tensor, a: &Tensor, b: &Tensor, value: Scalar) -> Result<Tensor> {
    if a.dtype().is_integral() && b.dtype().is_integral() {
        let why = "Integer division with addcdiv is no longer supported; cast one of the tensors to a floating dtype, or add div(a, b, rounding_mode)";
        return Err(Error::dtype("addcdiv", why, &[a.dtype(), b.dtype()]));
    }
    let dtype = result_type([Operand::Tensor(x), a.into(), b.into()])?;
    if dtype.is_half() {
        return added(x, BinaryOp::Div, a, b, value, dtype);
    }
    if let Some(made) = added_in_one_pass(x, BinaryOp::Div, a, b, value)? {
        return Ok(made);
    }
    x.add(&in_dtype(BinaryOp::Div, a, b, dtype)?, number(value))
}

/// `x + value · (a op b)`, where the device has one pass for it and nothing follows what is computed.
fn added_in_one_pass(x: &Tensor, op: BinaryOp, a: &Tensor, b: &Tensor, value: Scalar) -> Result<Option<Tensor>> {
    use lucid_ir::fused::ElementOp::Binary;
    use lucid_ir::fused::Operand::{Input, Made};
    if x.dtype() != DType::F32 || matches!(value, Scalar::Complex(..)) {
        return Ok(None);
    }
    let value = Tensor::constant(value, DType::F32, x.device())?;
    let steps = [
        (Binary(op), &[Input(1), Input(2)][..]),
        (Binary(BinaryOp::Mul), &[Made(0), Input(3)]),
        (Binary(BinaryOp::Add), &[Input(0), Made(1)]),
    ];
    dispatch::in_one_pass(&[x, a, b, &value], &steps)
}

/// A flag as the number that it stands for, which `add` would refuse.
fn number(value: Scalar) -> Scalar {
    match value {
        Scalar::Bool(b) => Scalar::Int(i64::from(b)),
        other => other,
    }
}

fn lerp_body(x: &Tensor, end: &Tensor, weight: Operand<'_>) -> Result<Tensor> {
    // A weight without dimensions is a number.
    let weight_dtype = match weight {
        Operand::Tensor(w) if w.ndim() > 0 => w.dtype(),
        Operand::Tensor(_) | Operand::Scalar(_) => x.dtype(),
    };
    for (name, dtype) in [("end", end.dtype()), ("weight", weight_dtype)] {
        if dtype != x.dtype() {
            let why = format!("expected dtype {} for `{name}` but got dtype {dtype}", x.dtype());
            return Err(Error::dtype("lerp", why, &[x.dtype(), dtype]));
        }
    }
    schema::lerp.check(x.dtype())?;
    // Of 16-bit floats all but the last step is in float32.
    let inside = if x.dtype().is_half() { DType::F32 } else { x.dtype() };
    if let Operand::Scalar(w) = weight {
        super::create::check_held("lerp", w, inside)?;
    }
    let cast = match weight {
        Operand::Tensor(w) => Some(w.cast(inside)?),
        Operand::Scalar(_) => None,
    };
    let weight = cast.as_ref().map_or(weight, Operand::Tensor);
    if let Operand::Scalar(w) = weight
        && x.dtype() == DType::F32
    {
        use lucid_ir::fused::ElementOp::Binary;
        use lucid_ir::fused::Operand::{Input, Made};
        let near = w.to_f64().abs() < 0.5;
        let part = if near { w.to_f64() } else { 1.0 - w.to_f64() };
        let part = Tensor::constant(Scalar::Float(part), DType::F32, x.device())?;
        let last = if near {
            (Binary(BinaryOp::Add), &[Input(0), Made(1)][..])
        } else {
            (Binary(BinaryOp::Sub), &[Input(1), Made(1)][..])
        };
        let steps = [
            (Binary(BinaryOp::Sub), &[Input(1), Input(0)][..]),
            (Binary(BinaryOp::Mul), &[Made(0), Input(2)][..]),
            last,
        ];
        if let Some(made) = dispatch::in_one_pass(&[x, end, &part], &steps)? {
            return Ok(made);
        }
    }
    let way = in_dtype(BinaryOp::Sub, end, x, inside)?;
    let near = |w: Operand<'_>| in_dtype(BinaryOp::Add, x, &way.mul(w)?, x.dtype());
    let far = |w: Operand<'_>| {
        let rest = match w {
            Operand::Tensor(w) => w.mul(-1)?.add(1, Scalar::ONE)?,
            Operand::Scalar(w) => Tensor::constant(w, inside, x.device())?.mul(-1)?.add(1, Scalar::ONE)?,
        };
        in_dtype(BinaryOp::Sub, end, &(&way * &rest)?, x.dtype())
    };
    // From the nearer end, so that both ends are met exactly.
    match weight {
        Operand::Scalar(Scalar::Complex(re, im)) if re.hypot(im) < 0.5 => near(weight),
        Operand::Scalar(Scalar::Complex(..)) => far(weight),
        Operand::Scalar(w) if w.to_f64().abs() < 0.5 => near(weight),
        Operand::Scalar(_) => far(weight),
        Operand::Tensor(w) => {
            use super::compare::select::r#where;
            let is_near = w.detach()?.abs()?.lt(0.5)?;
            if ![x, end, w].into_iter().any(crate::autograd::is_followed) {
                return r#where(&is_near, &near(weight)?, &far(weight)?);
            }
            // A side that is not taken passes 0 back, which an infinite weight would make NaN.
            let (for_near, for_far) = (r#where(&is_near, w, 0.0)?, r#where(&is_near, 1.0, w)?);
            r#where(&is_near, &near(Operand::Tensor(&for_near))?, &far(Operand::Tensor(&for_far))?)
        }
    }
}
