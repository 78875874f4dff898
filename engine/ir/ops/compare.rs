//! Comparisons and logic: the rows of the family, and the primitives and arguments that they make.

use super::macros::define_primitives;

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! compare_ops {
    ($cb:ident) => {
        $crate::rows! { $cb "compare" CompareOp, each method (other: Operand) run compare :
            /// True where the elements are equal. NaN equals nothing.
            eq = Eq {
                in_place: comparison, dtypes: ALL, result: Bool,
                gradient: none,
                samples: ["I(0, 3, 3, 4), I(0, 3, 3, 4)", "I(0, 3, 3, 4), 1", "N(3, 4), N(4)"],
                example: ["assert_close(tensor([1, 2, 3])?.eq(2)?, [false, true, false]);"],
            }
            /// True where the elements differ. NaN differs from everything.
            ne = Ne {
                in_place: comparison, dtypes: ALL, result: Bool,
                gradient: none,
                samples: ["I(0, 3, 3, 4), I(0, 3, 4)", "I(0, 3, 3, 4), 1"],
                example: ["assert_close(tensor([1, 2, 3])?.ne(2)?, [true, false, true]);"],
            }
            /// True where `input < other`.
            lt = Lt {
                in_place: comparison, dtypes: ORDERED, result: Bool,
                gradient: none,
                samples: ["I(0, 3, 3, 4), I(0, 3, 4)", "N(3, 4), 0.1"],
                example: ["assert_close(tensor([1, 2, 3])?.lt(2)?, [true, false, false]);"],
            }
            /// True where `input <= other`.
            le = Le {
                in_place: comparison, dtypes: ORDERED, result: Bool,
                gradient: none,
                samples: ["I(0, 3, 3, 4), I(0, 3, 4)", "N(3, 4), 0.1"],
                example: ["assert_close(tensor([1, 2, 3])?.le(2)?, [true, true, false]);"],
            }
            /// True where `input > other`.
            gt = Gt {
                in_place: comparison, dtypes: ORDERED, result: Bool,
                gradient: none,
                samples: ["I(0, 3, 3, 4), I(0, 3, 4)", "N(3, 4), 0.1"],
                example: ["assert_close(tensor([1, 2, 3])?.gt(&tensor([3, 2, 1])?)?, [false, false, true]);"],
            }
            /// True where `input >= other`.
            ge = Ge {
                in_place: comparison, dtypes: ORDERED, result: Bool,
                gradient: none,
                samples: ["I(0, 3, 3, 4), I(0, 3, 4)", "N(3, 4), 0.1"],
                example: ["assert_close(tensor([1, 2, 3])?.ge(&tensor([3, 2, 1])?)?, [false, true, true]);"],
            }
            /// True where both are not zero.
            logical_and = And {
                in_place: unrecorded, dtypes: COMPUTED, result: Bool,
                gradient: none,
                samples: ["I(0, 2, 3, 4), I(0, 2, 4)", "B(3, 4), B(4)"],
                example: ["assert_close(tensor([0, 1, 2])?.logical_and(&tensor([1, 0, 1])?)?, [false, false, true]);"],
            }
            /// True where either is not zero.
            logical_or = Or {
                in_place: unrecorded, dtypes: COMPUTED, result: Bool,
                gradient: none,
                samples: ["I(0, 2, 3, 4), I(0, 2, 4)", "B(3, 4), B(4)"],
                example: ["assert_close(tensor([0, 0, 2])?.logical_or(&tensor([1, 0, 1])?)?, [true, false, true]);"],
            }
            /// True where exactly one is not zero.
            logical_xor = Xor {
                in_place: unrecorded, dtypes: COMPUTED, result: Bool,
                gradient: none,
                samples: ["I(0, 2, 3, 4), I(0, 2, 4)", "B(3, 4), B(4)"],
                example: ["assert_close(tensor([0, 0, 2])?.logical_xor(&tensor([1, 0, 1])?)?, [true, false, false]);"],
            }
        }
    };
}
compare_ops!(define_primitives);
