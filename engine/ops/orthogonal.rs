//! Orthogonal polynomials, by their recurrences over the degree (Abramowitz and Stegun, 22.7).
//!
//! `p₀ = 1`, `p₁ = s x + t` and `pₖ₊₁ = (aₖ x + bₖ) pₖ - cₖ pₖ₋₁`. No kernels of their own. Degrees below 0 give 0, fractions count as
//! the integer below. PyTorch takes cosines for high degrees of some, and has no gradient of any.

use super::compare::select::r#where;
use super::macros::define_composites;
use super::{result_type, Operand};
use crate::{DType, Error, Result, Scalar, Tensor};

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! orthogonal_ops {
    ($cb:ident) => { $crate::rows! { $cb "orthogonal" :
        /// The Chebyshev polynomial of the first kind, `cos(n arccos x)`. The degrees `n` are evaluated.
        function chebyshev_polynomial_t(input: Operand, n: Operand) -> Tensor {
            out: cast, dtypes: ORDERED, result: Float,
            run: polynomial[Kind::FIRST], torch: "special.chebyshev_polynomial_t",
            samples: ["U(3, 4), 3", "U(3, 4), I(0, 6, 4)"],
            example: ["assert_close(chebyshev_polynomial_t(&tensor([0.25, 0.5])?, 3)?, [-0.6875, -1.0]);"],
        }
        /// The Chebyshev polynomial of the second kind. The degrees `n` are evaluated.
        function chebyshev_polynomial_u(input: Operand, n: Operand) -> Tensor {
            out: cast, dtypes: ORDERED, result: Float,
            run: polynomial[Kind::SECOND], torch: "special.chebyshev_polynomial_u",
            samples: ["U(3, 4), 3", "U(3, 4), I(0, 6, 4)"],
            example: ["assert_close(chebyshev_polynomial_u(&tensor([0.25, 0.5])?, 3)?, [-0.875, -1.0]);"],
        }
        /// The Chebyshev polynomial of the third kind. The degrees `n` are evaluated.
        function chebyshev_polynomial_v(input: Operand, n: Operand) -> Tensor {
            out: cast, dtypes: ORDERED, result: Float,
            run: polynomial[Kind::THIRD], torch: "special.chebyshev_polynomial_v",
            samples: ["U(3, 4), 3", "U(3, 4), I(0, 6, 4)"],
            example: ["assert_close(chebyshev_polynomial_v(&tensor([0.25, 0.5])?, 3)?, [-0.125, -1.0]);"],
        }
        /// The Chebyshev polynomial of the fourth kind. The degrees `n` are evaluated.
        function chebyshev_polynomial_w(input: Operand, n: Operand) -> Tensor {
            out: cast, dtypes: ORDERED, result: Float,
            run: polynomial[Kind::FOURTH], torch: "special.chebyshev_polynomial_w",
            samples: ["U(3, 4), 3", "U(3, 4), I(0, 6, 4)"],
            example: ["assert_close(chebyshev_polynomial_w(&tensor([0.25, 0.5])?, 3)?, [-1.625, -1.0]);"],
        }
        /// [`chebyshev_polynomial_t`] of `2x - 1`.
        function shifted_chebyshev_polynomial_t(input: Operand, n: Operand) -> Tensor {
            out: cast, dtypes: ORDERED, result: Float,
            run: shifted[Kind::FIRST], torch: "special.shifted_chebyshev_polynomial_t",
            samples: ["U(3, 4), 3", "U(3, 4), I(0, 6, 4)"],
            example: ["assert_close(shifted_chebyshev_polynomial_t(&tensor([0.625, 0.75])?, 3)?, [-0.6875, -1.0]);"],
        }
        /// [`chebyshev_polynomial_u`] of `2x - 1`.
        function shifted_chebyshev_polynomial_u(input: Operand, n: Operand) -> Tensor {
            out: cast, dtypes: ORDERED, result: Float,
            run: shifted[Kind::SECOND], torch: "special.shifted_chebyshev_polynomial_u",
            samples: ["U(3, 4), 3", "U(3, 4), I(0, 6, 4)"],
            example: ["assert_close(shifted_chebyshev_polynomial_u(&tensor([0.625, 0.75])?, 3)?, [-0.875, -1.0]);"],
        }
        /// [`chebyshev_polynomial_v`] of `2x - 1`.
        function shifted_chebyshev_polynomial_v(input: Operand, n: Operand) -> Tensor {
            out: cast, dtypes: ORDERED, result: Float,
            run: shifted[Kind::THIRD], torch: "special.shifted_chebyshev_polynomial_v",
            samples: ["U(3, 4), 3", "U(3, 4), I(0, 6, 4)"],
            example: ["assert_close(shifted_chebyshev_polynomial_v(&tensor([0.625, 0.75])?, 3)?, [-0.125, -1.0]);"],
        }
        /// [`chebyshev_polynomial_w`] of `2x - 1`.
        function shifted_chebyshev_polynomial_w(input: Operand, n: Operand) -> Tensor {
            out: cast, dtypes: ORDERED, result: Float,
            run: shifted[Kind::FOURTH], torch: "special.shifted_chebyshev_polynomial_w",
            samples: ["U(3, 4), 3", "U(3, 4), I(0, 6, 4)"],
            example: ["assert_close(shifted_chebyshev_polynomial_w(&tensor([0.625, 0.75])?, 3)?, [-1.625, -1.0]);"],
        }
        /// The physicist's Hermite polynomial. The degrees `n` are evaluated.
        function hermite_polynomial_h(input: Operand, n: Operand) -> Tensor {
            out: cast, dtypes: ORDERED, result: Float,
            run: polynomial[Kind::HERMITE], torch: "special.hermite_polynomial_h",
            samples: ["U(3, 4), 3", "U(3, 4), I(0, 6, 4)"],
            example: ["assert_close(hermite_polynomial_h(&tensor([0.25, 0.5])?, 3)?, [-2.875, -5.0]);"],
        }
        /// The probabilist's Hermite polynomial. The degrees `n` are evaluated.
        function hermite_polynomial_he(input: Operand, n: Operand) -> Tensor {
            out: cast, dtypes: ORDERED, result: Float,
            run: polynomial[Kind::HERMITE_E], torch: "special.hermite_polynomial_he",
            samples: ["U(3, 4), 3", "U(3, 4), I(0, 6, 4)"],
            example: ["assert_close(hermite_polynomial_he(&tensor([0.25, 0.5])?, 3)?, [-0.73438, -1.375]);"],
        }
        /// The Laguerre polynomial. The degrees `n` are evaluated.
        function laguerre_polynomial_l(input: Operand, n: Operand) -> Tensor {
            out: cast, dtypes: ORDERED, result: Float,
            run: polynomial[Kind::LAGUERRE], torch: "special.laguerre_polynomial_l",
            samples: ["U(3, 4), 3", "U(3, 4), I(0, 6, 4)"],
            example: ["assert_close(laguerre_polynomial_l(&tensor([0.25, 0.5])?, 3)?, [0.34115, -0.14583]);"],
        }
        /// The Legendre polynomial. The degrees `n` are evaluated.
        function legendre_polynomial_p(input: Operand, n: Operand) -> Tensor {
            out: cast, dtypes: ORDERED, result: Float,
            run: polynomial[Kind::LEGENDRE], torch: "special.legendre_polynomial_p",
            samples: ["U(3, 4), 3", "U(3, 4), I(0, 6, 4)"],
            example: ["assert_close(legendre_polynomial_p(&tensor([0.25, 0.5])?, 3)?, [-0.33594, -0.4375]);"],
        }
    }};
}
orthogonal_ops!(define_composites);

/// What tells one family of polynomials from the others.
struct Kind {
    name: &'static str,
    /// `s` and `t` of `p₁ = s x + t`.
    first: (f64, f64),
    /// `aₖ`, `bₖ` and `cₖ`, of `pₖ₊₁` for `k` from 1 on.
    step: fn(f64) -> (f64, f64, f64),
}

impl Kind {
    const fn chebyshev(name: &'static str, first: (f64, f64)) -> Kind {
        Kind { name, first, step: |_| (2.0, 0.0, 1.0) }
    }
    const FIRST: Kind = Kind::chebyshev("chebyshev_polynomial_t", (1.0, 0.0));
    const SECOND: Kind = Kind::chebyshev("chebyshev_polynomial_u", (2.0, 0.0));
    const THIRD: Kind = Kind::chebyshev("chebyshev_polynomial_v", (2.0, -1.0));
    const FOURTH: Kind = Kind::chebyshev("chebyshev_polynomial_w", (2.0, 1.0));
    const HERMITE: Kind = Kind { name: "hermite_polynomial_h", first: (2.0, 0.0), step: |k| (2.0, 0.0, 2.0 * k) };
    const HERMITE_E: Kind = Kind { name: "hermite_polynomial_he", first: (1.0, 0.0), step: |k| (1.0, 0.0, k) };
    const LAGUERRE: Kind = Kind {
        name: "laguerre_polynomial_l",
        first: (-1.0, 1.0),
        step: |k| (-1.0 / (k + 1.0), (2.0 * k + 1.0) / (k + 1.0), k / (k + 1.0)),
    };
    const LEGENDRE: Kind = Kind {
        name: "legendre_polynomial_p",
        first: (1.0, 0.0),
        step: |k| ((2.0 * k + 1.0) / (k + 1.0), 0.0, k / (k + 1.0)),
    };
}

/// `input` as a tensor of the dtype that the polynomial is computed in.
fn argument(op: &'static str, input: Operand<'_>, n: Operand<'_>) -> Result<Tensor> {
    let dtype = match result_type([input, n])? {
        d if d.is_integral() => crate::default_dtype(),
        d => d,
    };
    match (input, n) {
        (Operand::Tensor(x), _) => x.cast(dtype),
        (Operand::Scalar(s), Operand::Tensor(n)) => Tensor::constant(s, dtype, n.device()),
        (Operand::Scalar(_), Operand::Scalar(_)) => {
            Err(Error::kind(op, "'input' or 'n' must be a tensor, not both numbers"))
        }
    }
}

fn shifted(kind: Kind, input: Operand<'_>, n: Operand<'_>) -> Result<Tensor> {
    let x = argument(kind.name, input, n)?;
    polynomial(kind, Operand::Tensor(&((x * 2.0)? - 1.0)?), n)
}

/// 2^63: where whole numbers of 64 bits end.
const HIGHEST: f64 = 9_223_372_036_854_775_808.0;

fn polynomial(kind: Kind, input: Operand<'_>, n: Operand<'_>) -> Result<Tensor> {
    let x = argument(kind.name, input, n)?;
    schema::chebyshev_polynomial_t.check(x.dtype())?;
    // Sixteen bits are too few to recur in.
    let wide = if x.dtype().size() == 2 { x.cast(DType::F32)? } else { x.clone() };
    let (degrees, most) = match n {
        // What is no number of 64 bits counts as a degree below 0, as in PyTorch.
        Operand::Scalar(s) => (None, Some(s.to_f64().trunc()).filter(|n| n.abs() < HIGHEST).unwrap_or(-1.0)),
        Operand::Tensor(t) => {
            let t = t.detach()?;
            let t = match t.dtype().is_float() {
                true => t.filled(&t.lt(HIGHEST)?.logical_not()?, -1.0)?,
                false => t,
            };
            let t = t.cast(DType::I64)?;
            let all = crate::batching::bare(&t);
            let most = match all.device() {
                _ if all.numel() == 0 => -1.0,
                // Degrees are not known there; the strides are those after two steps.
                crate::Device::Meta => 2.0,
                _ => all.amax(None, false)?.item()?.to_f64(),
            };
            (Some(t), most)
        }
    };
    if most > f64::from(1 << 20) {
        return Err(Error::runtime(kind.name, format!("a degree of {most} is too high; at most 2^20 is taken")));
    }
    let one = Tensor::full_of(wide.shape(), Scalar::ONE, wide.dtype(), wide.device())?;
    let (mut before, mut now) = (wide.zeros_like()?, one);
    let mut y = match &degrees {
        None if most < 0.0 => return x.zeros_like(),
        None => now.clone(),
        Some(n) => r#where(&n.eq(0)?, &now, Scalar::ZERO)?,
    };
    for k in 0..most.max(0.0) as u32 {
        let next = match k {
            0 => ((&wide * kind.first.0)? + kind.first.1)?,
            k => {
                let (a, b, c) = (kind.step)(f64::from(k));
                (((&wide * a)? + b)? * &now)? - &(before * c)?
            }?,
        };
        (before, now) = (now, next);
        y = match &degrees {
            None => now.clone(),
            Some(n) => r#where(&n.eq(i64::from(k) + 1)?, &now, &y)?,
        };
    }
    y.cast(x.dtype())
}
