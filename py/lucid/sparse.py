"""Functions of sparse tensors, with PyTorch's names. The layout is COO: indices and values; there is no compressed one.

A sparse tensor is no leaf of the tape: gradients go to the values that it was made of, and to dense factors.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import lucid
from lucid import Tensor, errors
from lucid._absent import teller
from lucid._sparse_types import BFloat16Tensor as BFloat16Tensor
from lucid._sparse_types import ByteTensor as ByteTensor
from lucid._sparse_types import CharTensor as CharTensor
from lucid._sparse_types import DoubleTensor as DoubleTensor
from lucid._sparse_types import FloatTensor as FloatTensor
from lucid._sparse_types import HalfTensor as HalfTensor
from lucid._sparse_types import IntTensor as IntTensor
from lucid._sparse_types import LongTensor as LongTensor
from lucid._sparse_types import ShortTensor as ShortTensor

__all__ = ["addmm", "check_sparse_tensor_invariants", "log_softmax", "mm", "sampled_addmm", "softmax", "spdiags", "sum"]


def mm(mat1: Tensor, mat2: Tensor, reduce: str = "sum") -> Tensor:
    """The product of matrices of which at least one is sparse, (n, m) and (m, p): dense where one is dense, else sparse
    and coalesced.

    With `reduce` the elements of a row of the result are the mean, the largest or the smallest of the products that the
    sum is of, and 0 where there are none; `mat1` is then in the CSR layout.

    Differs from PyTorch: the product of two sparse matrices has a gradient too.

    Args:
        mat1 (Tensor): the first factor, (n, k), sparse.
        mat2 (Tensor): the second factor, (k, m).
        reduce (str, default: "sum"): "sum", "mean", "amax" or "amin".

    Returns:
        Tensor: (n, m).

    Raises:
        RuntimeError: these are no matrices, their sizes do not fit, a sparse one has dense dimensions, or `reduce` is
            another word.
        NotImplementedError: `reduce` of a matrix in another layout.

    Example:
        >>> lucid.sparse.mm(lucid.eye(2).to_sparse(), lucid.ones(2, 1))
        tensor([[1.],
                [1.]])
    """
    if reduce == "sum":
        return lucid.mm(mat1, mat2)
    if reduce not in ("mean", "amax", "amin"):
        raise errors.RuntimeError(f"sparse.mm: reduce type of {reduce} has not been enabled")
    if mat1.layout != lucid.sparse_csr or mat2.layout != lucid.strided:
        raise errors.NotImplementedError(
            f"sparse.mm: reduce={reduce!r} needs a matrix in the CSR layout and a dense one; got {mat1.layout} and "
            f"{mat2.layout}"
        )
    matrix: Any = mat1
    rows, columns = matrix.crow_indices(), matrix.col_indices()
    if reduce == "mean":
        counts = (rows[1:] - rows[:-1]).clamp(min=1).unsqueeze(1)
        return lucid.div(lucid.mm(mat1, mat2), counts.to(mat2.dtype))
    from lucid._older_ops import _convert_indices_from_csr_to_coo

    products: Tensor = matrix.values().unsqueeze(1) * mat2[columns]
    made = lucid.zeros(mat1.shape[0], mat2.shape[1], dtype=products.dtype, device=products.device)
    index = _convert_indices_from_csr_to_coo(rows, columns)[0].unsqueeze(1).expand_as(products)
    return made.scatter_reduce(0, index, products, reduce, include_self=False)


# Older names, which PyTorch has at the top level.
spmm = dsmm = mm


def addmm(mat: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1.0, alpha: float = 1.0) -> Tensor:
    """`beta * mat + alpha * (mat1 @ mat2)` of a sparse `mat1` (n, m) and dense others, (n, p) and (m, p).

    Args:
        mat (Tensor): the matrix to add, (n, m).
        mat1 (Tensor): the sparse matrix, (n, k).
        mat2 (Tensor): the dense matrix, (k, m).
        beta (float, default: 1.0): the factor of `mat`.
        alpha (float, default: 1.0): the factor of the product.

    Returns:
        Tensor: (n, m), dense.

    Raises:
        RuntimeError: the sizes do not fit.

    Example:
        >>> lucid.sparse.addmm(lucid.ones(2, 2), lucid.eye(2).to_sparse(), lucid.eye(2))
        tensor([[2., 1.],
                [1., 2.]])
    """
    return lucid.addmm(mat, mat1, mat2, beta=beta, alpha=alpha)


def sum(input: Tensor, dim: int | Sequence[int] | None = None, dtype: lucid.dtype | None = None) -> Tensor:
    """The sums over `dim`, over all dimensions unless given: sparse and coalesced as long as an indexed dimension is
    left, else dense.

    Args:
        input (Tensor): a sparse tensor of any shape.
        dim (int | Sequence[int], optional): the dimensions to reduce; all by default.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.

    Returns:
        Tensor: sparse where a sparse dimension is left, else dense.

    Raises:
        IndexError: there is no such dimension.
        RuntimeError: `input` is dense.

    Example:
        >>> lucid.sparse.sum(lucid.eye(2).to_sparse())
        tensor(2.)
    """
    _check_sparse("sparse.sum", input)
    if dim is None:
        return input.sum(dtype=dtype)
    return input.sum(dim if isinstance(dim, int) else tuple(dim), dtype=dtype)


def sampled_addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1.0, alpha: float = 1.0, out: Tensor | None = None
) -> Tensor:
    """Computes a product of dense matrices at the places of a sparse one alone.

        alpha * (mat1 @ mat2) * pattern(input) + beta * input

    Args:
        input (Tensor): (n, m), of the layout `sparse_csr`.
        mat1 (Tensor): (n, k), dense.
        mat2 (Tensor): (k, m), dense.
        beta (float, default: 1.0): the factor of `input`.
        alpha (float, default: 1.0): the factor of the product.
        out (Tensor, optional): (n, m) in PyTorch; must be None here.

    Returns:
        Tensor: (n, m), of the layout and with the places of `input`. Gradients go to all three.

    Raises:
        RuntimeError: another layout, or shapes that do not fit.
        NotImplementedError: with `out`.

    Example:
        >>> x = lucid.sparse_csr_tensor([0, 1, 2], [1, 0], [1.0, 1.0], (2, 2))
        >>> lucid.sparse.sampled_addmm(x, lucid.ones(2, 3), lucid.ones(3, 2)).values()
        tensor([4., 4.])
    """
    from lucid._sparse_csr import SparseCsrTensor

    op = "sampled_addmm"
    if out is not None:
        raise errors.NotImplementedError(f"{op}: results are not written to out; leave it out")
    if not isinstance(input, SparseCsrTensor):
        raise errors.RuntimeError(f"{op}: Expected input to be of the layout sparse_csr, got {input.layout}")
    shapes = f"{list(input.shape)}, {list(mat1.shape)} and {list(mat2.shape)}"
    if mat1.layout is not lucid.strided or mat2.layout is not lucid.strided or mat1.ndim != 2 or mat2.ndim != 2:
        raise errors.RuntimeError(f"{op}: Expected mat1 and mat2 to be dense matrices, got shapes {shapes}")
    if mat1.shape[1] != mat2.shape[0] or (mat1.shape[0], mat2.shape[1]) != tuple(input.shape):
        raise errors.RuntimeError(f"{op}: the shapes of input, mat1 and mat2 do not fit: {shapes}")
    dtypes = {input.dtype, mat1.dtype, mat2.dtype}
    if len(dtypes) > 1:
        found = f"{input.dtype}, {mat1.dtype} and {mat2.dtype}"
        raise errors.RuntimeError(f"{op}: Expected input, mat1 and mat2 to have the same dtype, got {found}")
    left, right = mat1[input.row_indices()], mat2.t()[input.col_indices().long()]
    values = (left * right).sum(-1) * alpha
    return input.like(values if beta == 0 else values + input.values() * beta)


def softmax(input: Tensor, dim: int, *, dtype: lucid.dtype | None = None) -> Tensor:
    """The softmax over the elements along `dim` that there is an index for; the others count as minus infinity.
    Coalesced, of the input's shape. Gradients go to the values.

    Args:
        input (Tensor): a sparse tensor of any shape.
        dim (int): the dimension along which the result sums to 1.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.

    Returns:
        Tensor: a sparse tensor of the shape of `input`.

    Raises:
        IndexError: there is no such dimension.
        RuntimeError: `input` is dense.

    Example:
        >>> lucid.sparse.softmax(lucid.eye(2).to_sparse(), 1).to_dense()
        tensor([[1., 0.],
                [0., 1.]])
    """
    x, shifted, sums = _shifted("sparse.softmax", input, dim, dtype)
    return _with_values(x, shifted.exp() / sums)


def log_softmax(input: Tensor, dim: int, *, dtype: lucid.dtype | None = None) -> Tensor:
    """The logarithm of `softmax`, at the same indices.

    Args:
        input (Tensor): a sparse tensor of any shape.
        dim (int): the dimension to work along.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.

    Returns:
        Tensor: a sparse tensor of the shape of `input`.

    Raises:
        IndexError: there is no such dimension.
        RuntimeError: `input` is dense.

    Example:
        >>> lucid.sparse.log_softmax(lucid.eye(2).to_sparse(), 1).to_dense()
        tensor([[0., 0.],
                [0., 0.]])
    """
    x, shifted, sums = _shifted("sparse.log_softmax", input, dim, dtype)
    return _with_values(x, shifted - sums.log())


def spdiags(diagonals: Tensor, offsets: Tensor, shape: Sequence[int], layout: lucid.layout | None = None) -> Tensor:
    """A sparse matrix with the rows of `diagonals` (d, k) along the diagonals `offsets` (d,), integers: 0 is the main
    one, below it they are negative. What stands in column j of the result comes from column j of `diagonals`. Coalesced
    by diagonals, not by rows.

    Args:
        diagonals (Tensor): the diagonals, one in each row, (d, n) or (n,).
        offsets (Tensor): which diagonal each row is, (d,) or ().
        shape (Sequence[int]): the shape of the matrix.
        layout (lucid.layout, optional): only `lucid.strided`, the dense layout.

    Returns:
        Tensor: a sparse matrix.

    Raises:
        RuntimeError: an offset is given twice, sizes do not fit, or `layout` is another than `lucid.sparse_coo`.

    Example:
        >>> lucid.sparse.spdiags(lucid.tensor([[1.0, 2.0]]), lucid.tensor([0]), (2, 2)).to_dense()
        tensor([[1., 0.],
                [0., 2.]])
    """
    op = "spdiags"
    _check_tensor(op, "diagonals", diagonals)
    _check_tensor(op, "offsets", offsets)
    if layout is not None and layout is not lucid.sparse_coo:
        raise errors.RuntimeError(f"{op}(): only output layouts (sparse_coo) are supported, got {layout}")
    if offsets.dtype != lucid.int64:
        raise errors.RuntimeError(f"{op}(): expected offsets of dtype int64, got {offsets.dtype}")
    if len(shape) != 2:
        raise errors.RuntimeError(f"{op}(): Output shape must be 2d, got {tuple(shape)}")
    rows, offsets = (t.unsqueeze(0) if t.ndim < n else t for t, n in ((diagonals, 2), (offsets, 1)))
    if rows.ndim != 2 or offsets.ndim != 1 or len(offsets) != len(rows):
        raise errors.RuntimeError(
            f"{op}(): Offsets must be 1D and diagonals 2D, one row for each offset; got shapes "
            f"{tuple(diagonals.shape)} and {tuple(offsets.shape)}"
        )
    if len(lucid.unique(offsets)) != len(offsets):
        raise errors.RuntimeError(f"{op}(): Offset tensor contains duplicate values: {offsets.tolist()}")
    width = min(rows.shape[1], shape[1])
    columns = lucid.arange(width, device=rows.device).expand(len(rows), width)
    at = columns - offsets.unsqueeze(1)
    inside = (at >= 0) & (at < shape[0])
    indices = lucid.stack([at[inside], columns[inside]])
    return lucid.sparse_coo_tensor(indices, rows[:, :width][inside], tuple(shape))


class check_sparse_tensor_invariants(contextlib.ContextDecorator):
    """Switches the checks of sparse tensors' indices on or off, as a `with` block, a decorator, or by methods.

    Differences from PyTorch: indices are checked in any case, so that nothing reads beyond a tensor; the switch is kept
    and can be asked for.

    Args:
        enable (bool, optional): the switch within the block. Default: True.

    Example:
        >>> with lucid.sparse.check_sparse_tensor_invariants():
        ...     lucid.sparse.check_sparse_tensor_invariants.is_enabled()
        True
    """

    _on = False

    def __init__(self, enable: bool = True) -> None:
        self._wanted, self._before = enable, False

    def __enter__(self) -> None:
        self._before = type(self)._on
        type(self)._on = self._wanted

    def __exit__(self, *_: object) -> None:
        type(self)._on = self._before

    @staticmethod
    def is_enabled() -> bool:
        """Were the checks asked for?"""
        return check_sparse_tensor_invariants._on

    @staticmethod
    def enable() -> None:
        """Asks for the checks."""
        check_sparse_tensor_invariants._on = True

    @staticmethod
    def disable() -> None:
        """Asks for them no more."""
        check_sparse_tensor_invariants._on = False


def _check_tensor(op: str, name: str, x: Tensor) -> None:
    if not isinstance(x, Tensor):
        raise errors.TypeError(f"{op}(): argument '{name}' must be Tensor, not {lucid.typename(x)}")


def _check_sparse(op: str, x: Tensor) -> None:
    _check_tensor(op, "input", x)
    if not x.is_sparse:
        raise errors.RuntimeError(f"{op}: expected a sparse tensor, got a dense one: call to_sparse() on it first")


def _with_values(x: Tensor, values: Tensor) -> Tensor:
    return lucid.sparse_coo_tensor(x._indices(), values, x.shape, is_coalesced=True)


def _shifted(op: str, input: Tensor, dim: int, dtype: lucid.dtype | None) -> tuple[Tensor, Tensor, Tensor]:
    """The coalesced input, its values less the largest along `dim`, and beside each the sum of their exponentials."""
    _check_sparse(op, input)
    x = input.coalesce() if dtype is None else input.coalesce().to(dtype)
    if not -x.ndim <= dim < x.ndim:
        raise errors.IndexError(
            f"{op}: Dimension out of range (expected to be in range of [{-x.ndim}, {x.ndim - 1}], but got {dim})"
        )
    dim %= x.ndim
    indices, values = x._indices(), x._values()
    indexed = x.sparse_dim()
    if dim >= indexed:
        along = dim - indexed + 1
        shifted = values - values.detach().amax(along, keepdim=True)
        return x, shifted, shifted.exp().sum(along, keepdim=True).expand_as(shifted)
    # Elements are of one group where all indices but the one along `dim` are the same.
    others = lucid.cat([indices[:dim], indices[dim + 1 :]])
    kinds, group = others.unique(dim=1, return_inverse=True)
    zeros = values.new_zeros((kinds.shape[1], *values.shape[1:]))
    places = group.view(-1, *[1] * (values.ndim - 1)).expand_as(values)
    largest = zeros.scatter_reduce(0, places, values.detach(), "amax", include_self=False)
    shifted = values - largest.index_select(0, group)
    sums = zeros.index_add(0, group, shifted.exp())
    return x, shifted, sums.index_select(0, group)


if not TYPE_CHECKING:
    __getattr__ = teller(__name__)
