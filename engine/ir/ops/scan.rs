//! Cumulative ops: the rows of the family, and the primitives and arguments that they make.

use super::macros::define_primitives;

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! scan_ops {
    ($cb:ident) => { $crate::rows! { $cb "scan" ScanOp :
        /// The running sum along `dim`; integers and `bool` sum in int64.
        method cumsum(dim: Dim; dtype: OptDtype = None) -> Tensor {
            in_place: yes, amp: FullGpu, dtypes: NOT_FLOAT8, result: Sum,
            primitive: Sum { axis: usize }, gradient: |c, g| [cumsum_reversed(g, *axis)],
            run: accumulate[|axis| ScanOp::Sum { axis }],
            samples: ["N(3, 4), 0", "N(3, 4), -1", "I(0, 9, 3, 4), 1"],
            example: [
                "let x = tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])?;",
                "assert_close(x.cumsum(1, None)?, [[1.0, 3.0, 6.0], [4.0, 9.0, 15.0]]);",
            ],
        }
        /// The running product along `dim`; integers and `bool` multiply in int64. Any number of zeros may be there:
        /// the gradient divides by elements only where none is zero.
        method cumprod(dim: Dim; dtype: OptDtype = None) -> Tensor {
            in_place: yes, amp: FullGpu, dtypes: NOT_FLOAT8, result: Sum,
            primitive: Prod { axis: usize }, saves: Both, gradient: |c, g| [cumprod_gradient(c, g, *axis)],
            run: accumulate[|axis| ScanOp::Prod { axis }],
            samples: ["P(3, 4), 0", "N(3, 4), -1", "N(2, 7, 3), 1", "I(0, 9, 3, 4), 1"],
            example: [
                "let x = tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])?;",
                "assert_close(x.cumprod(1, None)?, [[1.0, 2.0, 6.0], [4.0, 20.0, 120.0]]);",
            ],
        }
        /// `y[i] = terms[i] + factors[i] y[i - 1]` along `dim`, from `y[-1] = 0`: what the gradients of running
        /// products and of `logcumsumexp` are made of, and its own gradient as well.
        function linear_recurrence(factors: Tensor, terms: Tensor, dim: Dim) -> Tensor {
            flags: [internal], dtypes: INEXACT, result: Same,
            primitive: Recur { axis: usize }, saves: Both, gradient: |c, g| all recurrence_gradient(c, g, *axis),
            run: recurrence_body, torch: "-",
            samples: ["N(3, 4), N(3, 4), 0", "N(2, 9, 3), N(2, 9, 3), 1", "N(5), N(5), -1", "N(3, 0), N(3, 0), -1"],
            example: [
                "let (factors, terms) = (tensor([0.5, 0.5, 0.5])?, tensor([1.0, 1.0, 1.0])?);",
                "assert_close(linear_recurrence(&factors, &terms, 0)?, [1.0, 1.5, 1.75]);",
            ],
        }
        /// `log(cumsum(exp(x)))` along `dim`, without overflow. Phases of complex numbers go on from the larger of two
        /// neighbours, as in PyTorch, also beyond -π to π.
        method logcumsumexp(dim: Dim) -> Tensor {
            dtypes: INEXACT, result: Same,
            primitive: LogSumExp { axis: usize }, saves: Both, gradient: |c, g| [logcumsumexp_gradient(c, g, *axis)],
            run: logcumsumexp_body,
            samples: ["N(3, 4), 0", "N(2, 7, 3), 1", "N(3, 4), -1", "N(), 0", "N(3, 0), 1"],
            example: ["assert_close(tensor([0.0, 0.0, 1000.0])?.logcumsumexp(0)?, [0.0, 0.69315, 1000.0]);"],
        }
    }};
}
scan_ops!(define_primitives);
