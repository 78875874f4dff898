"""Linear algebra with PyTorch's names: decompositions, systems, norms.

The ops are rows of the op table (`linalg_svd` and so on). Matrices are the last two dimensions, those before them a
batch. They are float32, float64 or, on the CPU device, complex. On the GPU device MLX factors on its CPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lucid._absent import teller
from lucid._C import LinAlgError as LinAlgError
from lucid._C import dot as dot
from lucid._C import inner as inner
from lucid._C import linalg_cholesky as cholesky
from lucid._C import linalg_cholesky_ex as cholesky_ex
from lucid._C import linalg_cond as cond
from lucid._C import linalg_cross as cross
from lucid._C import linalg_det as det
from lucid._C import linalg_diagonal as diagonal
from lucid._C import linalg_eig as eig
from lucid._C import linalg_eigh as eigh
from lucid._C import linalg_eigvals as eigvals
from lucid._C import linalg_eigvalsh as eigvalsh
from lucid._C import linalg_householder_product as householder_product
from lucid._C import linalg_inv as inv
from lucid._C import linalg_inv_ex as inv_ex
from lucid._C import linalg_ldl_factor as ldl_factor
from lucid._C import linalg_ldl_factor_ex as ldl_factor_ex
from lucid._C import linalg_ldl_solve as ldl_solve
from lucid._C import linalg_lstsq as lstsq
from lucid._C import linalg_lu as lu
from lucid._C import linalg_lu_factor as lu_factor
from lucid._C import linalg_lu_factor_ex as lu_factor_ex
from lucid._C import linalg_lu_solve as lu_solve
from lucid._C import linalg_matrix_exp as matrix_exp
from lucid._C import linalg_matrix_norm as matrix_norm
from lucid._C import linalg_matrix_power as matrix_power
from lucid._C import linalg_matrix_rank as matrix_rank
from lucid._C import linalg_multi_dot as multi_dot
from lucid._C import linalg_norm as norm
from lucid._C import linalg_pinv as pinv
from lucid._C import linalg_qr as qr
from lucid._C import linalg_slogdet as slogdet
from lucid._C import linalg_solve as solve
from lucid._C import linalg_solve_ex as solve_ex
from lucid._C import linalg_solve_triangular as solve_triangular
from lucid._C import linalg_svd as svd
from lucid._C import linalg_svdvals as svdvals
from lucid._C import linalg_tensorinv as tensorinv
from lucid._C import linalg_tensorsolve as tensorsolve
from lucid._C import linalg_vander as vander
from lucid._C import linalg_vecdot as vecdot
from lucid._C import linalg_vector_norm as vector_norm
from lucid._C import matmul as matmul
from lucid._C import outer as outer

__all__ = [
    "LinAlgError",
    "cholesky",
    "cholesky_ex",
    "cond",
    "cross",
    "det",
    "diagonal",
    "dot",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "householder_product",
    "inner",
    "inv",
    "inv_ex",
    "ldl_factor",
    "ldl_factor_ex",
    "ldl_solve",
    "lstsq",
    "lu",
    "lu_factor",
    "lu_factor_ex",
    "lu_solve",
    "matmul",
    "matrix_exp",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "multi_dot",
    "norm",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_ex",
    "solve_triangular",
    "svd",
    "svdvals",
    "tensorinv",
    "tensorsolve",
    "vander",
    "vecdot",
    "vector_norm",
]

if not TYPE_CHECKING:
    __getattr__ = teller(__name__)
