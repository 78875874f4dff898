//! Linear algebra: the rows of the family, and the primitives and arguments that they make.

use super::macros::define_primitives;

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! linalg_ops {
    ($cb:ident) => {
        $crate::rows! { $cb "linalg" LinalgOp :
            /// `x` of `A x = B` from what `ldl_parts` gave, of one batch shape, with pivots of int32. An error where
            /// these are none. On the GPU device all is read back, which evaluates.
            function ldl_solve_matrices(a: Tensor, pivots: Tensor, b: Tensor, hermitian: Bool) -> Tensor {
                flags: [internal], amp: Full, dtypes: FACTORED, result: Same,
                primitive: LdlSolve { hermitian: bool }, gradient: |c, g| all c.not_differentiable(),
                run: ldl_solve_body, torch: "-",
                samples: [],
                example: [
                    "let (factors, pivots) = (tensor([[2.0, 0.0], [0.5, 2.5]])?, tensor([1, 2])?.cast(DType::I32)?);",
                    "let x = ldl_solve_matrices(&factors, &pivots, &tensor([[3.0], [4.0]])?, false)?;",
                    "assert_close(x, [[1.0], [1.0]]);",
                ],
            }
            /// The order of `n` rows that exchanging them one after the other leads to, by pivots counted from 1. On
            /// the GPU device they are read back, which evaluates.
            function row_permutation(pivots: Tensor, n: Int) -> Tensor {
                flags: [no_gradient, internal], dtypes: of(&[$crate::DType::I64]), result: Same,
                primitive: Permutation { n: usize }, gradient: none,
                run: permutation_body, torch: "-",
                samples: [],
                example: ["assert_close(row_permutation(&tensor([2, 2])?, 2)?, [1, 0]);"],
            }
            /// `x` of `A x = B` for triangular matrices, whose other half is not read, and the columns of `B`, of one
            /// batch shape; with `unit` the diagonal counts as ones.
            function solve_triangle(a: Tensor, b: Tensor, upper: Bool, unit: Bool) -> Tensor {
                flags: [internal], amp: Full, dtypes: FACTORED, result: Same,
                primitive: SolveTriangular { upper: bool, unit: bool }, saves: Both,
                gradient: |c, g| all triangle_gradient(c, g, *upper, *unit),
                run: triangle_body, torch: "-",
                samples: [],
                example: [
                    "let x = solve_triangle(&tensor([[2.0, 0.0], [1.0, 3.0]])?, &tensor([[2.0], [4.0]])?, false, false)?;",
                    "assert_close(x, [[1.0], [1.0]]);",
                ],
            }
            /// The eigenvalues of each symmetric matrix in ascending order. Reads the lower half, with `UPLO` "U" the
            /// upper one.
            function linalg_eigvalsh(A: Tensor, UPLO: Text = "L") -> Tensor {
                amp: Full, dtypes: FACTORED, result: Real,
                primitive: Eigenvalues, saves: First, gradient: |c, g| [eigenvalues_gradient(c, g)],
                run: eigenvalues_body, node: "linalg_eigh", torch: "linalg.eigvalsh",
                samples: ["SYM(3, 3)", "SYM(2, 4, 4), 'U'", "SYM(1, 1)", "N(0, 0)"],
                example: [
                    "assert_close(linalg_eigvalsh(&tensor([[2.0, 1.0], [1.0, 2.0]])?, Triangle::Lower)?, [1.0, 3.0]);",
                ],
            }
            /// The singular values of each matrix, in descending order.
            function linalg_svdvals(A: Tensor; driver: OptText = None) -> Tensor {
                amp: Full, dtypes: FACTORED, result: Real,
                primitive: SingularValues, saves: First, gradient: |c, g| [singular_values_gradient(c, g)],
                run: singular_values_body, node: "linalg_svd", torch: "linalg.svdvals",
                samples: ["N(3, 3)", "N(2, 3, 4)", "N(4, 2)", "N(2, 0)"],
                example: ["assert_close(linalg_svdvals(&tensor([[0.0, 2.0], [-3.0, 0.0]])?, None)?, [3.0, 2.0]);"],
            }
            /// The pseudoinverse of each matrix: singular values up to the larger of `atol` and `rtol` times the
            /// largest count as 0. Of `hermitian` matrices the lower half is read, and the gradient is that of matrices
            /// that are.
            function pseudo_inverse(input: Tensor, atol: Float, rtol: Float, hermitian: Bool) -> Tensor {
                flags: [internal], amp: Full, dtypes: FACTORED, result: Same,
                primitive: PseudoInverse { atol: f64, rtol: f64, hermitian: bool }, saves: Both,
                gradient: |c, g| [pseudo_inverse_gradient(c, g)],
                run: pseudo_inverse_body, torch: "-",
                samples: [],
                example: [
                    "let x = pseudo_inverse(&tensor([[2.0, 0.0], [0.0, 0.0]])?, 0.0, 1e-6, false)?;",
                    "assert_close(x, [[0.5, 0.0], [0.0, 0.0]]);",
                ],
            }
            /// The exponential of each matrix, `Σ Aᵏ / k!`, by scaling and squaring (Moler and Van Loan, 2003). On the
            /// GPU device the largest norm is read back, which evaluates.
            function linalg_matrix_exp(A: Tensor) -> Tensor {
                out: none, amp: Full, dtypes: INEXACT, result: Same,
                primitive: Exponential, saves: First, gradient: |c, g| [exponential_gradient(c, g)],
                run: exponential_body, torch: "linalg.matrix_exp",
                samples: ["N(3, 3)", "N(2, 2, 2)", "N(1, 1)", "N(0, 0)"],
                example: [
                    "assert_close(linalg_matrix_exp(&tensor([[0.0, 1.0], [0.0, 0.0]])?)?, [[1.0, 1.0], [0.0, 1.0]]);",
                ],
            }
            /// The inverse of each matrix; an error where one is singular. On the GPU device that is read back, which
            /// evaluates.
            method inverse() -> Tensor {
                amp: Full, dtypes: FACTORED, result: Same,
                primitive: Inverse, saves: Output, gradient: |c, g| [inverse_gradient(c, g)],
                run: inverse_body, node: "linalg_inv_ex",
                samples: ["N(2, 3, 3)", "N(1, 1, 1)", "N(0, 2, 2)"],
                example: ["assert_close(tensor([[2.0, 0.0], [0.0, 4.0]])?.inverse()?, [[0.5, 0.0], [0.0, 0.25]]);"],
            }
            /// `x` of `A x = B` for each matrix `A` and the columns of `B`, whose batches broadcast; an error where an
            /// `A` is singular. On the GPU device that is read back, which evaluates.
            function solve_matrices(a: Tensor, b: Tensor) -> Tensor {
                flags: [internal], amp: Full, dtypes: FACTORED, result: Same,
                primitive: SolveMatrices, saves: Both, gradient: |c, g| all solve_gradient(c, g),
                run: solve_body, torch: "-",
                samples: [],
                example: [
                    "let x = solve_matrices(&tensor([[2.0, 1.0], [1.0, 3.0]])?, &tensor([[3.0], [4.0]])?)?;",
                    "assert_close(x, [[1.0], [1.0]]);",
                ],
            }
            /// The determinant of each matrix. The gradient is that of its cofactors, also where the matrix is
            /// singular.
            method det() -> Tensor {
                out: none, amp: Full, dtypes: FACTORED, result: Same,
                run: det_body, node: "linalg_det",
                samples: ["N(2, 3, 3)", "N(1, 2, 2)", "N(2, 0, 0)"],
                example: ["assert_close(tensor([[1.0, 2.0], [3.0, 4.0]])?.det()?, -2.0);"],
            }
            /// The logarithm of the determinant of each matrix: -inf where it is 0, NaN where it is negative.
            method logdet() -> Tensor {
                out: none, amp: Full, dtypes: FACTORED, result: Same,
                run: logdet_body, node: "where",
                samples: ["P(2, 1, 1)"],
                example: ["assert_close(tensor([[2.0, 0.0], [0.0, 3.0]])?.logdet()?, 6f64.ln());"],
            }
            /// Sign and logarithm of the absolute value of the determinant of each matrix.
            method slogdet() -> SignLogabsdet {
                amp: Full, dtypes: FACTORED, result: Same,
                run: slogdet_body, node: "linalg_slogdet",
                samples: ["N(2, 3, 3)", "N(1, 2, 2)"],
                example: [
                    "let (sign, logabsdet) = tensor([[1.0, 2.0], [3.0, 4.0]])?.slogdet()?;",
                    "assert_close(sign, -1.0);",
                    "assert_close(logabsdet, 2f64.ln());",
                ],
            }
        }
    };
}
linalg_ops!(define_primitives);

impl LinalgOp {
    /// Is the result matrices, which are column-major, as LAPACK leaves them?
    pub fn gives_columns(&self) -> bool {
        matches!(
            self,
            LinalgOp::Inverse | LinalgOp::SolveMatrices | LinalgOp::SolveTriangular { .. } | LinalgOp::LdlSolve { .. }
        )
    }
}
