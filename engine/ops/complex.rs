//! Complex numbers: making them, and taking them apart.
//!
//! All are made of other ops. Parts are views, so that writes through them are seen. `conj` computes its result (PyTorch
//! marks a view instead), so nothing is ever left to resolve.

use super::compare::select::r#where;
use super::macros::define_composites;
use super::view::{permute_axes, view_as_complex, view_as_real};
use crate::{DType, Error, Result, Tensor};

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! complex_ops {
    ($cb:ident) => {
        $crate::rows! { $cb "complex" :
            /// The complex numbers of these real and imaginary parts: complex64 of float32, complex128 of float64.
            function complex(real: Tensor, imag: Tensor) -> Tensor {
                out: own, dtypes: WIDE, result: Own,
                run: complex_body,
                samples: ["N(3, 4), N(3, 4)", "N(3, 4), N(4)"],
                example: [
                    "assert_close(complex(&tensor([1.0, 2.0])?, &tensor([3.0, 4.0])?)?, [(1.0, 3.0), (2.0, 4.0)]);",
                ],
            }
            /// The complex numbers `abs · e^(i angle)`: complex64 of float32, complex128 of float64.
            function polar(abs: Tensor, angle: Tensor) -> Tensor {
                out: own, flags: [piecewise_linear], amp: FullCpu, dtypes: WIDE, result: Own,
                run: polar_body,
                samples: ["P(3, 4), N(3, 4)", "P(3, 4), N(4)"],
                example: ["assert_close(polar(&tensor([2.0])?, &tensor([1.57080])?)?, [(0.0, 2.0)]);"],
            }
            /// The real part, a view; a real tensor itself.
            function real(input: Tensor) -> Tensor {
                out: none, dtypes: ALL, result: Real,
                run: real_body,
                samples: ["N(3, 4)", "N()"],
                example: ["assert_close(real(&tensor([(1.0, 3.0), (2.0, 4.0)])?)?, [1.0, 2.0]);"],
            }
            /// The imaginary part of a complex tensor, a view.
            function imag(input: Tensor) -> Tensor {
                out: none, flags: [steps], dtypes: COMPLEX, result: Real,
                run: imag_body, node: "select",
                samples: ["N(3, 4)", "N()"],
                example: ["assert_close(imag(&tensor([(1.0, 3.0), (2.0, 4.0)])?)?, [3.0, 4.0]);"],
            }
            /// The angle in radians, in -π to π; of real numbers 0 or π. NaN stays NaN, and the gradient at 0 is 0.
            method angle() -> Tensor {
                dtypes: ALL, result: Own,
                run: angle_body,
                samples: ["N(3, 4)"],
                example: ["assert_close(tensor([(1.0, 1.0), (0.0, -1.0)])?.angle()?, [0.78540, -1.57080]);"],
            }
            /// `x / |x|`, 0 at 0; of real numbers the sign.
            method sgn() -> Tensor {
                in_place: yes, out: own, dtypes: COMPUTED, result: Same,
                run: sgn_body,
                samples: ["N(3, 4)"],
                example: ["assert_close(tensor([(3.0, 4.0), (0.0, 0.0)])?.sgn()?, [(0.6, 0.8), (0.0, 0.0)]);"],
            }
            /// True where the imaginary part is zero: everywhere for real tensors.
            method isreal() -> Tensor {
                out: none, flags: [no_gradient], dtypes: ALL, result: Bool,
                run: isreal_body,
                samples: ["N(3, 4)"],
                example: ["assert_close(tensor([(1.0, 0.0), (1.0, 2.0)])?.isreal()?, [true, false]);"],
            }
            /// The tensor itself: conjugation is never put off here.
            method resolve_conj() -> Tensor {
                out: none, dtypes: ALL, result: Same,
                run: itself,
                samples: ["N(3, 4)"],
                example: ["assert_close(tensor([(1.0, 2.0)])?.resolve_conj()?, [(1.0, 2.0)]);"],
            }
            /// The tensor itself: negation is never put off here.
            method resolve_neg() -> Tensor {
                out: none, dtypes: ALL, result: Same,
                run: itself,
                samples: ["N(3, 4)"],
                example: ["assert_close(tensor([1.0, -2.0])?.resolve_neg()?, [1.0, -2.0]);"],
            }
            /// Is conjugation put off? Never.
            method is_conj() -> Truth {
                out: none, flags: [no_gradient], dtypes: ALL, result: Bool,
                run: never,
                samples: ["N(3, 4)"],
                example: ["assert!(!tensor([(1.0, 2.0)])?.conj_physical()?.is_conj()?);"],
            }
            /// Is negation put off? Never.
            method is_neg() -> Truth {
                out: none, flags: [no_gradient], dtypes: ALL, result: Bool,
                run: never,
                samples: ["N(3, 4)"],
                example: ["assert!(!tensor([1.0])?.neg()?.is_neg()?);"],
            }
        }
    };
}
complex_ops!(define_composites);

/// Refuses parts that are not of one dtype that complex numbers have.
fn check_parts(op: &'static str, a: &Tensor, b: &Tensor) -> Result<()> {
    if crate::dtype::DTypes::WIDE.has(a.dtype()) && a.dtype() == b.dtype() {
        return Ok(());
    }
    let why = "Expected both inputs to be float32 tensors, or both float64";
    if !a.dtype().is_float() || !b.dtype().is_float() {
        return Err(Error::not_implemented(op, format!("{why}, but got {} and {}", a.dtype(), b.dtype())));
    }
    Err(Error::dtype(op, why, &[a.dtype(), b.dtype()]))
}

fn complex_body(real: &Tensor, imag: &Tensor) -> Result<Tensor> {
    check_parts("complex", real, imag)?;
    let shape = crate::shape::broadcast("complex", real.shape(), imag.shape())?;
    let parts = [super::view::expand_to(real, &shape)?, super::view::expand_to(imag, &shape)?];
    let made = |parts: &[Tensor]| view_as_complex(&super::index::stack(parts, -1)?);
    let plain = |t: &Tensor| !t.is_batched() && !t.is_sparse();
    match lucid_core::memory_format::common_order(&[real.layout(), imag.layout()], &shape)
        .filter(|_| parts.iter().all(plain))
    {
        Some((order, back)) => {
            let parts = parts.iter().map(|t| permute_axes(t, &order)).collect::<Result<Vec<_>>>()?;
            permute_axes(&made(&parts)?, &back)
        }
        None => made(&parts),
    }
}

fn polar_body(abs: &Tensor, angle: &Tensor) -> Result<Tensor> {
    check_parts("polar", abs, angle)?;
    // PyTorch keeps the result alone: what the operands become does not matter to the gradient.
    let followed = crate::autograd::is_followed;
    let angle = &if followed(angle) { angle.copy()? } else { angle.clone() };
    let abs = &match followed(abs) {
        // As in PyTorch the gradient of the length is along the result: none at 0, and turned round where it is negative.
        true => {
            let fixed = abs.detach()?;
            let finite = fixed.isfinite()?;
            let moved = ((abs - &fixed)? * &fixed.sgn()?)?;
            let moved = r#where(&fixed.eq(0)?, &fixed, &(moved + &fixed)?)?;
            // An infinite one along no direction: its gradient is NaN, as that of 1/∞ is.
            let far = abs.filled(&finite, 1.0)?.reciprocal()?.reciprocal()?;
            r#where(&finite, &moved, &far)?
        }
        false if followed(angle) => abs.copy()?,
        false => abs.clone(),
    };
    complex_body(&(abs * &angle.cos()?)?, &(abs * &angle.sin()?)?)
}

fn real_body(x: &Tensor) -> Result<Tensor> {
    match x.dtype().is_complex() {
        true => view_as_real(x)?.select(-1, 0),
        false => Ok(x.clone()),
    }
}

fn imag_body(x: &Tensor) -> Result<Tensor> {
    if !x.dtype().is_complex() {
        return Err(Error::dtype("imag", "imag is not implemented for tensors with non-complex dtypes.", &[x.dtype()]));
    }
    view_as_real(x)?.select(-1, 1)
}

fn angle_body(x: &Tensor) -> Result<Tensor> {
    if x.dtype().is_complex() {
        let (still, zero) = (x.detach()?, x.eq(0)?);
        // atan2 has no gradient at 0, where PyTorch's is 0: there it is taken of a constant.
        let angle = imag_body(x)?.atan2(&real_body(x)?.filled(&zero, 1.0)?)?;
        return r#where(&zero, &imag_body(&still)?.atan2(&real_body(&still)?)?, &angle);
    }
    let dtype = if x.dtype().is_integral() { crate::default_dtype() } else { x.dtype() };
    let x = x.cast(dtype)?;
    let angle = (x.lt(0)?.cast(dtype)? * std::f64::consts::PI)?;
    let nan = x.isnan()?;
    r#where(&nan, &x.detach()?, &(angle + &(x.filled(&nan, 0.0)?.sign()? * 0.0)?)?)
}

fn sgn_body(x: &Tensor) -> Result<Tensor> {
    if !x.dtype().is_complex() {
        return x.sign();
    }
    let zero = x.eq(0)?;
    (x / &x.abs()?.filled(&zero, 1.0)?)?.filled(&zero, 0.0)
}

fn isreal_body(x: &Tensor) -> Result<Tensor> {
    match x.dtype().is_complex() {
        true => imag_body(&x.detach()?)?.eq(0),
        false => {
            let all = |shape: &[usize]| Tensor::full_of(shape, true.into(), DType::Bool, x.device());
            x.like_in("isreal", crate::MemoryFormat::Preserve, all)
        }
    }
}

fn itself(x: &Tensor) -> Result<Tensor> {
    Ok(x.clone())
}

fn never(_: &Tensor) -> Result<bool> {
    Ok(false)
}
