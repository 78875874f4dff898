//! Decompositions of matrices, whose primitives have several results: the rows of the family, and the primitives that they make.
//!
//! Each gives its parts as results of their own, with their own shapes and dtypes: singular values are real beside complex
//! vectors, pivots int32 beside floating factors.

use super::macros::define_primitives;
use crate::primitive::Metas;
use crate::shape::Shape;
use crate::{DType, Meta};

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! decomposition_ops {
    ($cb:ident) => {
        $crate::rows! { $cb "decomposition" DecompositionOp :
            /// Sign, logarithm of the absolute value, and value of the determinant.
            function determinant_parts(input: Tensor) -> Tensors {
                out: none, flags: [internal], amp: Full, dtypes: FACTORED, result: Same,
                primitive: DeterminantParts, saves: Both, gradient: |c, g| all determinant_gradient(c),
                run: determinant_parts_body["determinant_parts"], torch: "-",
                samples: [],
                example: [
                    "let parts = determinant_parts(&tensor([[1.0, 2.0], [3.0, 4.0]])?)?;",
                    "assert_close(&parts[0], -1.0);",
                    "assert_close(&parts[1], 2f64.ln());",
                    "assert_close(&parts[2], -2.0);",
                ],
            }
            /// The lower Cholesky factor of each matrix, and 0, or the order of the leading minor that is not positive,
            /// as int32. Reads the lower half.
            function cholesky_parts(input: Tensor) -> Tensors {
                out: none, flags: [internal], amp: Full, dtypes: FACTORED, result: Same,
                primitive: CholeskyParts, saves: Output, gradient: |c, g| [cholesky_gradient(c)],
                run: cholesky_parts_body, torch: "-",
                samples: [],
                example: [
                    "let parts = cholesky_parts(&tensor([[4.0, 2.0], [2.0, 10.0]])?)?;",
                    "assert_close(&parts[0], [[2.0, 0.0], [1.0, 3.0]]);",
                    "assert_close(&parts[1], 0);",
                ],
            }
            /// Q and R of each matrix, with min(m, n) columns and rows.
            function qr_parts(input: Tensor) -> Tensors {
                out: none, flags: [internal], amp: Full, dtypes: FACTORED, result: Same,
                primitive: QrParts, saves: Output, gradient: |c, g| [qr_gradient(c)],
                run: qr_parts_body, torch: "-",
                samples: [],
                example: [
                    "let parts = qr_parts(&tensor([[3.0], [4.0]])?)?;",
                    "assert_close(parts[0].abs()?, [[0.6], [0.8]]);",
                    "assert_close(parts[1].abs()?, [[5.0]]);",
                ],
            }
            /// Eigenvalues in ascending order, which are real, and the eigenvectors of each symmetric matrix. Reads the
            /// lower half. An error where a number is not finite; on the GPU device that is read back.
            function eigh_parts(input: Tensor) -> Tensors {
                out: none, flags: [internal], amp: Full, dtypes: FACTORED, result: Same,
                primitive: EighParts, saves: Output, gradient: |c, g| [eigh_gradient(c)],
                run: eigh_parts_body, torch: "-",
                samples: [],
                example: [
                    "let parts = eigh_parts(&tensor([[3.0, 0.0], [0.0, 2.0]])?)?;",
                    "assert_close(&parts[0], [2.0, 3.0]);",
                    "assert_close(parts[1].abs()?, [[0.0, 1.0], [1.0, 0.0]]);",
                ],
            }
            /// Eigenvalues, then with `vectors` eigenvectors of norm 1, of each square matrix, as complex numbers. An
            /// error where a number is not finite; on the GPU device that is read back.
            function eig_parts(input: Tensor, vectors: Bool) -> Tensors {
                out: none, flags: [internal], amp: Full, dtypes: FACTORED, result: Own,
                primitive: EigParts { vectors: bool }, saves: Both, gradient: |c, g| [eig_gradient(c, *vectors)],
                run: eig_parts_body, torch: "-",
                samples: [],
                example: [
                    "let parts = eig_parts(&tensor([[0.0, -1.0], [1.0, 0.0]])?, false)?;",
                    "assert_close(parts[0].abs()?, [1.0f32, 1.0]);",
                ],
            }
            /// U, the singular values in descending order, which are real, and Vᴴ of each matrix; with `full` all
            /// columns of U and V. An error where a number is not finite; on the GPU device that is read back.
            function svd_parts(input: Tensor, full: Bool) -> Tensors {
                out: none, flags: [internal], amp: Full, dtypes: FACTORED, result: Same,
                primitive: SvdParts { full: bool }, saves: Output, gradient: |c, g| [svd_gradient(c)],
                run: svd_parts_body, torch: "-",
                samples: [],
                example: [
                    "let parts = svd_parts(&tensor([[0.0, 2.0], [3.0, 0.0]])?, false)?;",
                    "assert_close(parts[0].abs()?, [[0.0, 1.0], [1.0, 0.0]]);",
                    "assert_close(&parts[1], [3.0, 2.0]);",
                    "assert_close(parts[2].abs()?, [[1.0, 0.0], [0.0, 1.0]]);",
                ],
            }
            /// `P L U` of each matrix: L below the diagonal and U from it on in one matrix; the rows that were
            /// exchanged, counted from 1, and the number of the first pivot that is zero, or 0, as int32.
            function lu_parts(input: Tensor) -> Tensors {
                out: none, flags: [internal], amp: Full, dtypes: FACTORED, result: Same,
                primitive: LuParts, saves: Output, gradient: |c, g| [lu_gradient(c)],
                run: lu_parts_body, torch: "-",
                samples: [],
                example: [
                    "let parts = lu_parts(&tensor([[2.0, 1.0], [4.0, 3.0]])?)?;",
                    "assert_close(&parts[0], [[4.0, 3.0], [0.5, -0.5]]);",
                    "assert_close(&parts[1], [2, 2]);",
                    "assert_close(&parts[2], 0);",
                ],
            }
            /// `R` from the diagonal on and the vectors of Householder's reflections below it, in one matrix, and the
            /// reflections' factors. On the GPU device the matrices are read back, which evaluates.
            function reflector_parts(input: Tensor) -> Tensors {
                out: none, flags: [internal], amp: Full, dtypes: FACTORED, result: Same,
                primitive: ReflectorParts, gradient: |c, g| all c.not_differentiable(),
                run: reflector_parts_body, torch: "-",
                samples: [],
                example: [
                    "let parts = reflector_parts(&tensor([[3.0], [4.0]])?)?;",
                    "assert_close(&parts[0], [[-5.0], [0.5]]);",
                    "assert_close(&parts[1], [1.6]);",
                ],
            }
            /// `L D Lᵀ`, if `hermitian` `L D Lᴴ`, of each symmetric matrix, in the lower half of one matrix; the pivots
            /// of Bunch and Kaufman, and the number of the first block of `D` that is zero, or 0, as int32. Reads the
            /// lower half. On the GPU device the matrices are read back, which evaluates.
            function ldl_parts(input: Tensor, hermitian: Bool) -> Tensors {
                out: none, flags: [internal], amp: Full, dtypes: FACTORED, result: Same,
                primitive: LdlParts { hermitian: bool }, gradient: |c, g| all c.not_differentiable(),
                run: ldl_parts_body, torch: "-",
                samples: [],
                example: [
                    "let parts = ldl_parts(&tensor([[2.0, 0.0], [1.0, 3.0]])?, false)?;",
                    "assert_close(&parts[1], [1, 2]);",
                    "assert_close(&parts[2], 0);",
                ],
            }
        }
    };
}
decomposition_ops!(define_primitives);

impl DecompositionOp {
    /// What it gives for matrices of this shape and dtype, in order; `None` where it takes none of this shape. Results of as
    /// many dimensions as the matrices are matrices, which are column by column in memory, as LAPACK leaves them.
    pub fn results(&self, shape: &[usize], dtype: DType) -> Option<Metas> {
        let [lead @ .., m, n] = shape else { return None };
        let (m, n) = (*m, *n);
        let k = m.min(n);
        let part = |sizes: &[usize], dtype: DType| {
            let mut shape = Shape::from_slice(lead);
            shape.extend_from_slice(sizes);
            Meta { shape, dtype }
        };
        let (same, real) = (|sizes: &[usize]| part(sizes, dtype), |sizes: &[usize]| part(sizes, dtype.to_real()));
        let whole = |sizes: &[usize]| part(sizes, DType::I32);
        let any_sides = matches!(
            self,
            DecompositionOp::QrParts
                | DecompositionOp::SvdParts { .. }
                | DecompositionOp::LuParts
                | DecompositionOp::ReflectorParts
        );
        if m != n && !any_sides {
            return None;
        }
        Some(match self {
            DecompositionOp::DeterminantParts => Metas::from_iter([same(&[]), real(&[]), same(&[])]),
            DecompositionOp::CholeskyParts => Metas::from_iter([same(&[n, n]), whole(&[])]),
            DecompositionOp::QrParts => Metas::from_iter([same(&[m, k]), same(&[k, n])]),
            DecompositionOp::EighParts => Metas::from_iter([real(&[n]), same(&[n, n])]),
            DecompositionOp::EigParts { vectors } => {
                let values = part(&[n], dtype.to_complex());
                let pair = [values, part(&[n, n], dtype.to_complex())];
                pair.into_iter().take(if *vectors { 2 } else { 1 }).collect()
            }
            DecompositionOp::SvdParts { full } => {
                let (of_u, of_v) = if *full { (m, n) } else { (k, k) };
                Metas::from_iter([same(&[m, of_u]), real(&[k]), same(&[of_v, n])])
            }
            DecompositionOp::LuParts => Metas::from_iter([same(&[m, n]), whole(&[k]), whole(&[])]),
            DecompositionOp::ReflectorParts => Metas::from_iter([same(&[m, n]), same(&[k])]),
            DecompositionOp::LdlParts { .. } => Metas::from_iter([same(&[n, n]), whole(&[n]), whole(&[])]),
        })
    }
}
