//! Choosing elements by a condition: the rows of the family, and the primitives and arguments that they make.

use super::macros::define_primitives;

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! select_ops {
    ($cb:ident) => { $crate::rows! { $cb "select" SelectOp :
        /// `input` where `condition` holds, else `other`; all three broadcast.
        function r#where(condition: Tensor, input: Operand, other: Operand) -> Tensor {
            dtypes: ALL, result: Same,
            primitive: Where, saves: First,
            gradient: |c, g| [g.zeros_like(), g.where_else_zero(&c.x(0)?), g.where_else_zero(&c.x(0)?.logical_not()?)],
            run: where_body, torch: "where",
            samples: ["B(3, 4), N(3, 4), N(3, 4)", "B(4), N(3, 4), 0.0", "B(3, 1), 1.0, N(4)"],
            example: [
                "let condition = tensor([true, false])?;",
                "assert_close(r#where(&condition, &tensor([1.0, 2.0])?, 0.0)?, [1.0, 0.0]);",
            ],
        }
        /// `value` where `mask` holds, else the tensor's own element.
        method masked_fill(mask: Tensor, value: Operand) -> Tensor {
            in_place: body, out: none, dtypes: ALL, result: Same,
            run: masked_fill_body[Target::Copy], node: |given| ("masked_fill", given.tensor("value")),
            samples: ["N(3, 4), B(3, 4), 2.0", "N(3, 4), B(4), -1.0"],
            example: ["assert_close(tensor([1.0, 2.0])?.masked_fill(&tensor([true, false])?, -1.0)?, [-1.0, 2.0]);"],
        }
        /// Each element brought into `min` to `max`; either may be left out. The gradient is 0 at a bound that is a
        /// number; at one that is a tensor each of the two gets half, and the input all where both bounds meet it.
        method clamp(min: OptOperand = None, max: OptOperand = None) -> Tensor {
            in_place: yes, out: rule, dtypes: REAL.and(DTypes::UNSIGNED), result: Same,
            run: clamp_body, node: |given| ("clamp", given.number("min").max(given.number("max"))),
            samples: ["N(3, 4), -0.5, 0.5", "N(3, 4), min=0.1", "N(3, 4), None, 0.3"],
            example: [
                "let made = tensor([-2.0, 0.5, 2.0])?.clamp(Some((-1.0).into()), Some(1.0.into()))?;",
                "assert_close(made, [-1.0, 0.5, 1.0]);",
            ],
        }
        /// True where `|input - other| <= atol + rtol * |other|`.
        method isclose(other: Tensor, rtol: Float = 1e-5, atol: Float = 1e-8, equal_nan: Bool = false) -> Tensor {
            out: none, flags: [no_gradient], dtypes: NOT_FLOAT8, result: Bool,
            run: isclose_body,
            samples: ["I(0, 3, 3, 4), I(0, 3, 3, 4)", "N(3, 4), N(3, 4), atol=0.5"],
            example: [
                "let made = tensor([1.0, 2.0])?.isclose(&tensor([1.000001, 2.1])?, 1e-5, 1e-8, false)?;",
                "assert_close(made, [true, false]);",
            ],
        }
        /// Are all elements close, as [`isclose`] has it? Evaluates.
        method allclose(other: Tensor, rtol: Float = 1e-5, atol: Float = 1e-8, equal_nan: Bool = false) -> Truth {
            out: none, flags: [no_gradient], dtypes: NOT_FLOAT8, result: Bool,
            run: allclose_body,
            samples: ["N(3, 4), N(3, 4), atol=0.5"],
            example: ["assert!(tensor([1.0, 2.0])?.allclose(&tensor([1.000001, 2.0])?, 1e-5, 1e-8, false)?);"],
        }
        /// Have both the same shape and elements? Evaluates.
        method equal(other: Tensor) -> Truth {
            out: none, flags: [no_gradient], dtypes: NOT_FLOAT8, result: Bool,
            run: equal_body,
            samples: ["I(0, 1, 3), I(0, 1, 3)", "N(3), N(4)"],
            example: [
                "assert!(tensor([1, 2])?.equal(&tensor([1, 2])?)?);",
                "assert!(!tensor([1, 2])?.equal(&tensor([1, 2, 3])?)?);",
            ],
        }
    }};
}
select_ops!(define_primitives);
