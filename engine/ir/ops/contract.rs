//! Matrix products: the rows of the family, and the primitives and arguments that they make.

use super::macros::define_primitives;

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! contract_ops {
    ($cb:ident) => {
        $crate::rows! { $cb "contract" ContractOp :
            /// The product of matrices, with PyTorch's rules: vectors get a dimension that is dropped again, leading
            /// dimensions broadcast.
            method matmul(other: Tensor) -> Tensor {
                amp: Low, dtypes: NUMERIC.and(DTypes::FLOAT8), result: Same,
                primitive: MatMul { columns: [bool; 2] }, saves: Cross,
                gradient: |c, g| [
                    in_layout(columns[0], g, &adjoint(&c.x(1)?)?),
                    in_layout(columns[1], &adjoint(&c.x(0)?)?, g),
                ],
                run: matmul_body, node: "mm",
                samples: [
                    "N(3, 4), N(4, 5)",
                    "N(4), N(4)",
                    "N(3, 4), N(4)",
                    "N(4), N(4, 3)",
                    "N(2, 3, 4), N(4, 5)",
                    "N(2, 1, 3, 4), N(5, 4, 2)",
                    "N(0, 4), N(4, 3)",
                ],
                example: [
                    "let (a, b) = (tensor([[1.0, 2.0], [3.0, 4.0]])?, tensor([10.0, 1.0])?);",
                    "assert_close(a.matmul(&b)?, [12.0, 34.0]);",
                    "assert_close(a.matmul(&a)?, [[7.0, 10.0], [15.0, 22.0]]);",
                ],
            }
            /// The product of two matrices.
            method mm(mat2: Tensor) -> Tensor {
                amp: Low, dtypes: NUMERIC.and(DTypes::FLOAT8), result: Same,
                run: of_rank["mm", 2, 2], node: "mm",
                samples: ["N(3, 4), N(4, 5)"],
                example: ["assert_close(tensor([[1.0, 2.0]])?.mm(&tensor([[3.0], [4.0]])?)?, [[11.0]]);"],
            }
            /// The products of two batches of matrices.
            method bmm(mat2: Tensor) -> Tensor {
                amp: Low, dtypes: NUMERIC.and(DTypes::FLOAT8), result: Same,
                run: bmm_body,
                samples: ["N(2, 3, 4), N(2, 4, 5)"],
                example: [
                    "let (a, b) = (tensor([[[1.0, 2.0]], [[3.0, 4.0]]])?, tensor([[[1.0], [1.0]], [[2.0], [2.0]]])?);",
                    "assert_close(a.bmm(&b)?, [[[3.0]], [[14.0]]]);",
                ],
            }
            /// The product of a matrix and a vector.
            method mv(vec: Tensor) -> Tensor {
                amp: LowGpu, dtypes: NUMERIC.and(DTypes::FLOAT8), result: Same,
                run: of_rank["mv", 2, 1],
                samples: ["N(3, 4), N(4)"],
                example: ["assert_close(tensor([[1.0, 2.0], [3.0, 4.0]])?.mv(&tensor([10.0, 1.0])?)?, [12.0, 34.0]);"],
            }
            /// The inner product of two vectors.
            method dot(tensor: Tensor) -> Tensor {
                amp: PromoteGpu, dtypes: NUMERIC, result: Same,
                run: of_rank["dot", 1, 1],
                samples: ["N(4), N(4)"],
                example: ["assert_close(tensor([1.0, 2.0])?.dot(&tensor([3.0, 4.0])?)?, 11.0);"],
            }
            /// The inner product of two vectors, the first one conjugated.
            method vdot(other: Tensor) -> Tensor {
                amp: PromoteGpu, dtypes: NUMERIC, result: Same,
                run: vdot_body,
                samples: ["N(4), N(4)"],
                example: ["assert_close(tensor([(0.0, 1.0)])?.vdot(&tensor([(0.0, 2.0)])?)?, (2.0, 0.0));"],
            }
            /// The products of all pairs of elements of two vectors.
            method outer(vec2: Tensor) -> Tensor {
                out: cast, flags: [steps], dtypes: NUMERIC, result: Same,
                run: outer_body, node: "mul",
                samples: ["N(3), N(4)"],
                example: ["assert_close(tensor([1.0, 2.0])?.outer(&tensor([3.0, 4.0])?)?, [[3.0, 4.0], [6.0, 8.0]]);"],
            }
            /// `beta * input + alpha * (mat1 @ mat2)`.
            method addmm(mat1: Tensor, mat2: Tensor; beta: Number = 1, alpha: Number = 1) -> Tensor {
                in_place: yes, flags: [old_numbers], amp: Low, dtypes: NUMERIC.and(DTypes::FLOAT8), result: Same,
                run: add_product["addmm", mm],
                samples: [
                    "N(3, 5), N(3, 4), N(4, 5)",
                    "N(5), N(3, 4), N(4, 5), beta=0.5, alpha=2",
                    "N(3, 5), N(3, 4), N(4, 5), beta=0",
                ],
                example: [
                    "let (a, b) = (tensor([[1.0, 2.0]])?, tensor([[3.0], [4.0]])?);",
                    "assert_close(tensor([[100.0]])?.addmm(&a, &b, 1, 2)?, [[122.0]]);",
                ],
            }
            /// `beta * input + alpha * (mat @ vec)`.
            method addmv(mat: Tensor, vec: Tensor; beta: Number = 1, alpha: Number = 1) -> Tensor {
                in_place: yes, flags: [old_numbers], amp: LowGpu, dtypes: NUMERIC, result: Same,
                run: add_product["addmv", mv],
                samples: ["N(3), N(3, 4), N(4)", "N(1), N(3, 4), N(4), beta=0.5, alpha=2"],
                example: [
                    "let (a, x) = (tensor([[1.0, 2.0], [3.0, 4.0]])?, tensor([10.0, 1.0])?);",
                    "assert_close(tensor([100.0, 200.0])?.addmv(&a, &x, 1, 1)?, [112.0, 234.0]);",
                ],
            }
            /// `beta * input + alpha * outer(vec1, vec2)`.
            method addr(vec1: Tensor, vec2: Tensor; beta: Number = 1, alpha: Number = 1) -> Tensor {
                in_place: yes, out: cast, flags: [old_numbers], amp: LowGpu, dtypes: NUMERIC, result: Same,
                run: add_outer,
                samples: ["N(3, 4), N(3), N(4)", "N(4), N(3), N(4), beta=0.5, alpha=2"],
                example: [
                    "let x = tensor([[1.0, 1.0], [1.0, 1.0]])?;",
                    "let made = x.addr(&tensor([1.0, 2.0])?, &tensor([3.0, 4.0])?, 10, 1)?;",
                    "assert_close(made, [[13.0, 14.0], [16.0, 18.0]]);",
                ],
            }
            /// `beta * input + alpha * (batch1 @ batch2)`, batch by batch.
            method baddbmm(batch1: Tensor, batch2: Tensor; beta: Number = 1, alpha: Number = 1) -> Tensor {
                in_place: yes, flags: [old_numbers], amp: Low, dtypes: NUMERIC, result: Same,
                run: add_product["baddbmm", bmm],
                samples: ["N(2, 3, 5), N(2, 3, 4), N(2, 4, 5)", "N(5), N(2, 3, 4), N(2, 4, 5), alpha=2"],
                example: [
                    "let (a, b) = (tensor([[[1.0, 2.0]], [[3.0, 4.0]]])?, tensor([[[1.0], [1.0]], [[2.0], [2.0]]])?);",
                    "assert_close(tensor([[[100.0]], [[200.0]]])?.baddbmm(&a, &b, 1, 1)?, [[[103.0]], [[214.0]]]);",
                ],
            }
            /// `beta * input + alpha * (batch1 @ batch2)`, summed over the batch.
            method addbmm(batch1: Tensor, batch2: Tensor; beta: Number = 1, alpha: Number = 1) -> Tensor {
                in_place: yes, flags: [old_numbers], amp: Low, dtypes: NUMERIC, result: Same,
                run: add_product["addbmm", summed_bmm],
                samples: ["N(3, 5), N(2, 3, 4), N(2, 4, 5)", "N(5), N(2, 3, 4), N(2, 4, 5), beta=0.5, alpha=2"],
                example: [
                    "let (a, b) = (tensor([[[1.0, 2.0]], [[3.0, 4.0]]])?, tensor([[[1.0], [1.0]], [[2.0], [2.0]]])?);",
                    "assert_close(tensor([[100.0]])?.addbmm(&a, &b, 1, 1)?, [[117.0]]);",
                ],
            }
        }
    };
}
contract_ops!(define_primitives);
