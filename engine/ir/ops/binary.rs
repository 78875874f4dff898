//! Element-wise ops on two tensors: the rows of the family, and the primitives and arguments that they make.

use super::macros::define_primitives;

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! binary_ops {
    ($cb:ident) => { $crate::rows! { $cb "binary" BinaryOp :
        /// `input + alpha * other`. For `bool`, logical or.
        method add(other: Operand; alpha: Number = 1) -> Tensor {
            in_place: yes, flags: [old_numbers], dtypes: COMPUTED, result: Same,
            primitive: Add, gradient: |c, g| [Ok(g.clone()), Ok(g.clone())],
            run: add_scaled,
            samples: ["N(3, 4), N(3, 4)", "N(3, 4), N(4)", "N(3, 1), N(1, 4)", "N(3, 4), 2.5", "N(3, 4), N(), alpha=2"],
            example: [
                "assert_close(tensor([1, 2])?.add(&tensor([10, 20])?, 1)?, [11, 22]);",
                "assert_close(tensor([1.0, 2.0])?.add(5.0, 2)?, [11.0, 12.0]);",
            ],
        }
        /// `input - alpha * other`. Not for `bool`.
        method sub(other: Operand; alpha: Number = 1) -> Tensor {
            in_place: yes, flags: [old_numbers], dtypes: NUMERIC, result: Same,
            primitive: Sub, gradient: |c, g| [Ok(g.clone()), -g],
            run: sub_scaled,
            samples: ["N(3, 4), N(3, 4)", "N(3, 4), N(4)", "N(3, 4), 2.5", "N(3, 4), N(4), alpha=3"],
            example: ["assert_close(tensor([10, 20])?.sub(&tensor([1, 2])?, 1)?, [9, 18]);"],
        }
        /// `input * other`. For `bool`, logical and.
        method mul(other: Operand) -> Tensor {
            in_place: yes, dtypes: ALL, result: Same,
            primitive: Mul, saves: Cross, gradient: |c, g| [g * &c.x(1)?.conjugated()?, g * &c.x(0)?.conjugated()?],
            run: binary[BinaryOp::Mul],
            samples: ["N(3, 4), N(3, 4)", "N(3, 4), N(4)", "N(2, 1, 4), N(3, 1)", "N(3, 4), 3"],
            example: ["assert_close(tensor([1.0, 2.0])?.mul(&tensor([[3.0], [4.0]])?)?, [[3.0, 6.0], [4.0, 8.0]]);"],
        }
        /// `input / other`, always in a floating dtype. `rounding_mode` may be `"trunc"` or `"floor"`, which keep
        /// integers.
        method div(other: Operand; rounding_mode: OptText = None) -> Tensor {
            in_place: yes, dtypes: NOT_FLOAT8, result: Float,
            primitive: Div, saves: Quotient,
            gradient: |c, g| [g / &c.x(1)?.conjugated()?, (-g)? * &(c.x(0)? / &c.x(1)?.square()?)?.conjugated()?],
            run: div_rounded, node: |given| ("div", 2 * given.has("rounding_mode")),
            samples: [
                "N(3, 4), P(3, 4)",
                "N(3, 4), P(4)",
                "N(3, 4), 2",
                "N(3, 4), P(3, 4), rounding_mode='floor'",
                "N(3, 4), P(4), rounding_mode='trunc'",
            ],
            example: [
                "assert_close(tensor([7, -7])?.div(2, None)?, [3.5, -3.5]);",
                "assert_close(tensor([7, -7])?.div(2, Rounding::Floor)?, [3, -4]);",
            ],
        }
        /// `floor(input / other)`. Integer division by zero raises. Its backward raises, as PyTorch's: `div` with
        /// `rounding_mode="floor"` has gradient 0.
        method floor_divide(other: Operand) -> Tensor {
            in_place: yes, dtypes: REAL, result: Same,
            primitive: FloorDivide, gradient: none,
            run: floor_divide_body,
            samples: ["I(-9, 9, 3, 4), I(1, 5, 3, 4)", "N(3, 4), 2"],
            example: ["assert_close(tensor([7, -7])?.floor_divide(2)?, [3, -4]);"],
        }
        /// `input - other * floor(input / other)`: the divisor's sign, as Python's `%`.
        method remainder(other: Operand) -> Tensor {
            in_place: yes, dtypes: REAL, result: Same,
            primitive: Remainder, saves: Remainder,
            gradient: |c, g| [Ok(g.clone()), (-g)? * &c.x(0)?.div(&c.x(1)?, Rounding::Floor)?],
            run: binary[BinaryOp::Remainder], node: |given| ("remainder", given.tensor("other")),
            samples: ["N(3, 4), P(3, 4)", "I(-9, 9, 3, 4), I(1, 5, 4)", "N(3, 4), 0.7"],
            example: ["assert_close(tensor([7, -7])?.remainder(3)?, [1, 2]);"],
        }
        /// `input - other * trunc(input / other)`: the dividend's sign, as C's `fmod`.
        method fmod(other: Operand) -> Tensor {
            in_place: yes, dtypes: REAL, result: Same,
            primitive: Fmod, saves: Remainder,
            gradient: |c, g| [Ok(g.clone()), (-g)? * &c.x(0)?.div(&c.x(1)?, Rounding::Trunc)?],
            run: binary[BinaryOp::Fmod], node: |given| ("fmod", given.tensor("other")),
            samples: ["N(3, 4), P(3, 4)", "I(-9, 9, 3, 4), I(1, 5, 4)"],
            example: ["assert_close(tensor([7, -7])?.fmod(3)?, [1, -1]);"],
        }
        /// `input` to the power `exponent`. Integers take no negative number as exponent.
        method pow(exponent: Operand) -> Tensor {
            in_place: yes, amp: FullGpu, dtypes: NUMERIC, result: Same,
            primitive: Pow, saves: Power, gradient: |c, g| [pow_grad_base(c, g), pow_grad_exponent(c, g)],
            run: pow_checked, node: |given| ("pow", if given.led() { 2 } else { given.tensor("exponent") }),
            samples: ["P(3, 4), N(3, 4)", "N(3, 4), 2", "N(3, 4), 3", "P(3, 4), 0.5", "P(3, 4), -1.5", "N(3, 4), 0"],
            example: ["assert_close(tensor([2.0, 3.0])?.pow(2)?, [4.0, 9.0]);"],
        }
        /// The larger of the two; NaN where either is. At a tie each gets half of the gradient, at a NaN each all of
        /// it.
        method maximum(other: Tensor) -> Tensor {
            in_place: yes, dtypes: ORDERED.and(DTypes::UNSIGNED), result: Same,
            primitive: Maximum, saves: Inputs,
            gradient: |c, g| [of_winner(c, &c.x(0)?.lt(&c.x(1)?)?, g), of_winner(c, &c.x(1)?.lt(&c.x(0)?)?, g)],
            run: extremum[BinaryOp::Maximum],
            samples: ["N(3, 4), N(3, 4)", "N(3, 4), N(4)"],
            example: ["assert_close(tensor([1.0, 5.0])?.maximum(&tensor([3.0, 2.0])?)?, [3.0, 5.0]);"],
        }
        /// The smaller of the two; NaN where either is. At a tie each gets half of the gradient.
        method minimum(other: Tensor) -> Tensor {
            in_place: yes, dtypes: ORDERED.and(DTypes::UNSIGNED), result: Same,
            primitive: Minimum, saves: Inputs,
            gradient: |c, g| [of_winner(c, &c.x(0)?.gt(&c.x(1)?)?, g), of_winner(c, &c.x(1)?.gt(&c.x(0)?)?, g)],
            run: extremum[BinaryOp::Minimum],
            samples: ["N(3, 4), N(3, 4)", "N(3, 4), N(4)"],
            example: ["assert_close(tensor([1.0, 5.0])?.minimum(&tensor([3.0, 2.0])?)?, [1.0, 2.0]);"],
        }
        /// The angle in radians of the point (`other`, `input`), in -π to π.
        method atan2(other: Tensor) -> Tensor {
            in_place: yes, amp: PromoteGpu, dtypes: ORDERED.and(DTypes::UNSIGNED), result: Float,
            primitive: Atan2, saves: Inputs,
            gradient: |c, g| [
                g * &(c.x(1)? * &of_length(&c.x(0)?, &c.x(1)?)?)?,
                -&(g * &(c.x(0)? * &of_length(&c.x(0)?, &c.x(1)?)?)?)?,
            ],
            run: extremum[BinaryOp::Atan2],
            samples: ["N(3, 4), P(3, 4)", "N(3, 4), N(4)"],
            example: ["assert_close(tensor([1.0, -1.0])?.atan2(&tensor([0.0, -1.0])?)?, [1.57080, -2.35619]);"],
        }
        /// `log(e^input + e^other)` without overflow.
        method logaddexp(other: Tensor) -> Tensor {
            amp: Own, dtypes: INEXACT, result: Same,
            primitive: LogAddExp, saves: Inputs,
            gradient: |c, g| [g / &((c.x(1)? - &c.x(0)?)?.exp()? + 1.0)?, g / &((c.x(0)? - &c.x(1)?)?.exp()? + 1.0)?],
            run: log_add_exp,
            samples: ["N(3, 4), N(3, 4)", "N(3, 4), N(4)"],
            example: [
                "assert_close(tensor([0.0, 1000.0])?.logaddexp(&tensor([0.0, 1000.0])?)?, [0.69315, 1000.69315]);",
            ],
        }
        /// The gradient through [`relu`](super::unary::relu) from `grad` and its result `output`: `grad`, and 0 where
        /// `output <= 0`. Both have one shape.
        function relu_gradient(grad: Tensor, output: Tensor) -> Tensor {
            flags: [internal], amp: Own, dtypes: FLOAT, result: Same,
            primitive: ReluGradient, saves: Second, gradient: |c, v| [relu_gradient(v, &c.x(1)?), c.zeros(1)],
            run: extremum[BinaryOp::ReluGradient], torch: "-",
            samples: ["N(3, 4), N(3, 4)"],
            example: [
                "let (grad, output) = (tensor([5.0, 6.0])?, tensor([-1.0, 2.0])?.relu()?);",
                "assert_close(relu_gradient(&grad, &output)?, [0.0, 6.0]);",
            ],
        }
        /// The magnitude of `size` with the sign of `sign`, which may be that of a zero. Both have one dtype; followed
        /// by a tape it is made of steps.
        function with_sign(size: Tensor, sign: Tensor) -> Tensor {
            flags: [internal], amp: Own, dtypes: FLOAT, result: Same,
            primitive: CopySign, gradient: none,
            run: extremum[BinaryOp::CopySign], torch: "-",
            samples: ["N(3, 4), N(3, 4)", "N(3, 4), N(4)"],
            example: ["assert_close(with_sign(&tensor([1.0, -2.0])?, &tensor([-0.0, 5.0])?)?, [-1.0, 2.0]);"],
        }
        /// Bitwise and; for `bool`, logical and.
        method bitwise_and(other: Operand) -> Tensor {
            in_place: yes, dtypes: INTEGRAL.and(DTypes::UNSIGNED), result: Same,
            primitive: BitwiseAnd, gradient: none,
            run: binary[BinaryOp::BitwiseAnd],
            samples: ["I(0, 99, 3, 4), I(0, 99, 4)", "I(0, 99, 3, 4), 6"],
            example: ["assert_close(tensor([0b1100])?.bitwise_and(0b1010)?, [0b1000]);"],
        }
        /// Bitwise or; for `bool`, logical or.
        method bitwise_or(other: Operand) -> Tensor {
            in_place: yes, dtypes: INTEGRAL.and(DTypes::UNSIGNED), result: Same,
            primitive: BitwiseOr, gradient: none,
            run: binary[BinaryOp::BitwiseOr],
            samples: ["I(0, 99, 3, 4), I(0, 99, 4)", "I(0, 99, 3, 4), 6"],
            example: ["assert_close(tensor([0b1100])?.bitwise_or(0b1010)?, [0b1110]);"],
        }
        /// Bitwise exclusive or; for `bool`, logical exclusive or.
        method bitwise_xor(other: Operand) -> Tensor {
            in_place: yes, dtypes: INTEGRAL.and(DTypes::UNSIGNED), result: Same,
            primitive: BitwiseXor, gradient: none,
            run: binary[BinaryOp::BitwiseXor],
            samples: ["I(0, 99, 3, 4), I(0, 99, 4)", "I(0, 99, 3, 4), 6"],
            example: ["assert_close(tensor([0b1100])?.bitwise_xor(0b1010)?, [0b0110]);"],
        }
        /// Bits shifted up by `other`; 0 where `other` is negative or not below the width.
        method bitwise_left_shift(other: Operand) -> Tensor {
            in_place: yes, dtypes: INTEGER, result: Same,
            primitive: LeftShift, gradient: none,
            run: binary[BinaryOp::LeftShift],
            samples: ["I(0, 99, 3, 4), I(0, 5, 4)", "I(0, 99, 3, 4), 2"],
            example: ["assert_close(tensor([1, 3])?.bitwise_left_shift(2)?, [4, 12]);"],
        }
        /// Bits shifted down by `other`, keeping the sign.
        method bitwise_right_shift(other: Operand) -> Tensor {
            in_place: yes, dtypes: INTEGER, result: Same,
            primitive: RightShift, gradient: none,
            run: binary[BinaryOp::RightShift],
            samples: ["I(0, 99, 3, 4), I(0, 5, 4)", "I(0, 99, 3, 4), 2"],
            example: ["assert_close(tensor([8, -8])?.bitwise_right_shift(2)?, [2, -2]);"],
        }
        /// `√(input² + other²)` without overflow.
        method hypot(other: Tensor) -> Tensor {
            in_place: yes, dtypes: FLOAT, result: Same,
            primitive: Hypot, saves: Both, gradient: |c, g| [g * &(c.x(0)? / &c.out()?)?, g * &(c.x(1)? / &c.out()?)?],
            run: extremum[BinaryOp::Hypot],
            samples: ["N(3, 4), N(3, 4)", "N(3, 4), N(4)"],
            example: ["assert_close(tensor([3.0, 5.0])?.hypot(&tensor([4.0, 12.0])?)?, [5.0, 13.0]);"],
        }
        /// The next representable number after `input` towards `other`. The gradient is 1 for `input` where both
        /// differ, and 0 for `other`.
        method nextafter(other: Tensor) -> Tensor {
            in_place: yes, dtypes: FLOAT, result: Same,
            primitive: NextAfter, saves: Inputs,
            gradient: |c, g| [g.where_else_zero(&c.x(0)?.ne(&c.x(1)?)?), g.zeros_like()],
            run: extremum[BinaryOp::NextAfter],
            samples: ["N(3, 4), N(3, 4)", "N(3, 4), N(4)"],
            example: [
                "let next = tensor([1.0f32])?.nextafter(&tensor([2.0f32])?)?;",
                "assert_eq!(next.to_vec::<f32>()?, [1.0 + f32::EPSILON]);",
            ],
        }
        /// The greatest common divisor, never negative; `gcd(0, 0)` is 0.
        method gcd(other: Tensor) -> Tensor {
            in_place: yes, dtypes: INTEGER, result: Same,
            primitive: Gcd, gradient: none,
            run: extremum[BinaryOp::Gcd],
            samples: ["I(-30, 30, 3, 4), I(-30, 30, 3, 4)", "I(0, 99, 3, 4), I(0, 99, 4)"],
            example: ["assert_close(tensor([12, -9, 0])?.gcd(&tensor([18, 6, 0])?)?, [6, 3, 0]);"],
        }
        /// The least common multiple, never negative; 0 where either is 0.
        method lcm(other: Tensor) -> Tensor {
            in_place: yes, dtypes: INTEGER, result: Same,
            primitive: Lcm, gradient: none,
            run: extremum[BinaryOp::Lcm],
            samples: ["I(-30, 30, 3, 4), I(-30, 30, 3, 4)", "I(0, 99, 3, 4), I(0, 99, 4)"],
            example: ["assert_close(tensor([4, -3, 0])?.lcm(&tensor([6, 5, 7])?)?, [12, 15, 0]);"],
        }
        /// The Hurwitz zeta function `Σ (other + k)^-input` over `k ≥ 0`; inf at its poles. It has a gradient to
        /// `other` only.
        method zeta(other: Operand) -> Tensor {
            python: function, dtypes: ORDERED, result: Float,
            primitive: Zeta, saves: Remainder,
            gradient: |c, g| [
                Err(Error::runtime("zeta", "the derivative for 'input' is not implemented")),
                -&((g * &c.x(0)?)? * &zeta(&(c.x(0)? + 1.0)?, &c.x(1)?)?)?,
            ],
            run: binary[BinaryOp::Zeta], node: "special_zeta", torch: "special.zeta",
            samples: ["FIXED(P(3, 4, lo=1.5, hi=6.0)), P(3, 4)", "FIXED(P(3, 4, lo=1.5, hi=6.0)), 2.5"],
            example: ["assert_close(tensor([2.0, 4.0])?.zeta(1.0)?, [1.64493, 1.08232]);"],
        }
        /// The regularized lower incomplete gamma function `P(input, other) = 1/Γ(a) ∫₀ˣ tᵃ⁻¹ e⁻ᵗ dt`; NaN where either
        /// is negative. It has a gradient to `other` only.
        method igamma(other: Tensor) -> Tensor {
            in_place: yes, dtypes: FLOAT, result: Same,
            primitive: Igamma, saves: Remainder,
            gradient: |c, g| [
                Err(Error::not_implemented("igamma", "the derivative for 'igamma: input' is not implemented.")),
                g * &gamma_density(c)?,
            ],
            run: extremum[BinaryOp::Igamma],
            samples: [
                "FIXED(P(3, 4, lo=0.3, hi=6.0)), P(3, 4)",
                "FIXED(P(4, lo=0.5, hi=300.0)), P(3, 4, lo=0.5, hi=300.0)",
            ],
            example: ["assert_close(tensor([1.0, 2.0])?.igamma(&tensor([1.0, 1.0])?)?, [0.63212, 0.26424]);"],
        }
        /// The regularized upper incomplete gamma function, `1 - P`. It has a gradient to `other` only.
        method igammac(other: Tensor) -> Tensor {
            in_place: yes, dtypes: FLOAT, result: Same,
            primitive: Igammac, saves: Remainder,
            gradient: |c, g| [
                Err(Error::not_implemented("igammac", "the derivative for 'igammac: input' is not implemented.")),
                -&(g * &gamma_density(c)?)?,
            ],
            run: extremum[BinaryOp::Igammac],
            samples: [
                "FIXED(P(3, 4, lo=0.3, hi=6.0)), P(3, 4)",
                "FIXED(P(4, lo=0.5, hi=300.0)), P(3, 4, lo=0.5, hi=300.0)",
            ],
            example: ["assert_close(tensor([1.0, 2.0])?.igammac(&tensor([1.0, 1.0])?)?, [0.36788, 0.73576]);"],
        }
        /// `other - alpha * input`.
        method rsub(other: Operand; alpha: Number = 1) -> Tensor {
            out: none, dtypes: NUMERIC, result: Same,
            run: rsub_scaled, node: |given| ("rsub", given.number("other")),
            samples: ["N(3, 4), N(3, 4)", "N(3, 4), 2.5"],
            example: ["assert_close(tensor([1, 2])?.rsub(10, 1)?, [9, 8]);"],
        }
        /// `input + value * tensor1 * tensor2`.
        method addcmul(tensor1: Tensor, tensor2: Tensor; value: Number = 1) -> Tensor {
            in_place: yes, flags: [old_numbers], amp: PromoteGpu, dtypes: NUMERIC, result: Same,
            run: addcmul_body,
            samples: ["N(3, 4), N(3, 4), N(4), value=0.5"],
            example: [
                "let x = tensor([1.0, 1.0])?.addcmul(&tensor([2.0, 3.0])?, &tensor([4.0, 5.0])?, 0.5)?;",
                "assert_close(x, [5.0, 8.5]);",
            ],
        }
        /// `input + value * tensor1 / tensor2`.
        method addcdiv(tensor1: Tensor, tensor2: Tensor; value: Number = 1) -> Tensor {
            in_place: yes, flags: [old_numbers], amp: PromoteGpu, dtypes: INEXACT, result: Same,
            run: addcdiv_body,
            samples: ["N(3, 4), N(3, 4), P(4), value=0.5"],
            example: [
                "let x = tensor([1.0, 1.0])?.addcdiv(&tensor([4.0, 6.0])?, &tensor([2.0, 3.0])?, 0.5)?;",
                "assert_close(x, [2.0, 2.0]);",
            ],
        }
        /// `input + weight * (end - input)`.
        method lerp(end: Tensor, weight: Operand) -> Tensor {
            in_place: yes, out: rule, dtypes: INEXACT, result: Same,
            run: lerp_body, node: |given| ("lerp", given.tensor("weight")),
            samples: ["N(3, 4), N(3, 4), 0.3", "N(3, 4), N(4), U(3, 4)"],
            example: ["assert_close(tensor([0.0, 10.0])?.lerp(&tensor([4.0, 20.0])?, 0.25)?, [1.0, 12.5]);"],
        }
    }};
}
binary_ops!(define_primitives);
