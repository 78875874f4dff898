"""`sparse_csc_tensor` and `sparse_bsr_tensor`: sparse matrices by columns, and by rows of dense blocks, as PyTorch's.

A CSC matrix is kept as the CSR matrix of its transpose. Functions of elements work on the values; products and sums are
those of the COO layout, to which both layouts are converted, and whose results they give where these are sparse.
Gradients go to the values, and to dense factors.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import lucid
from lucid import Tensor, errors
from lucid._sparse_batches import batch_of, from_dense
from lucid._sparse_csr import (
    _OF_VALUES,
    CompressedMatrix,
    SparseCsrTensor,
    _fail,
    batched,
    checked,
    linear_of,
    to_sparse_csr,
)
from lucid._wrapped import Rules, name_of


class _Compressed(CompressedMatrix):
    """What both layouts share: a CSR tensor of the places, and the values."""

    #: What transforms read of a tensor is not all there is of this one.
    _of_parts = True
    _rules: ClassVar[Rules]
    _layout: ClassVar[str]
    _places: SparseCsrTensor

    @classmethod
    def of(cls, places: SparseCsrTensor, values: Tensor) -> Any:
        """A tensor of these parts, which are not checked again."""
        made = Tensor._make_subclass(cls, values.detach())
        made._places, made._kept = places, values
        return made

    def like(self, values: Tensor) -> Any:
        """Other values at the same places."""
        return type(self).of(self._places, values)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") == "__get__":
            return getattr(args[0]._kept, name_of(func))
        return cls._rules.run(func, tuple(args), dict(kwargs or {}))

    def values(self) -> Tensor:
        """The elements, or blocks of elements, in the order of their places."""
        return self._kept

    def _nnz(self) -> int:
        return int(self._kept.shape[0])

    def to_sparse(self, sparse_dim: Any = None, *, layout: Any = None, blocksize: Any = None, **_: Any) -> Tensor:
        """The matrix in COO layout, or in the layout asked for."""
        if layout is None or layout is lucid.sparse_coo:
            return self._coo()
        made: Tensor = in_layout("to_sparse", self._coo(), layout, blocksize)
        return made

    def to_sparse_coo(self) -> Tensor:
        """The matrix in COO layout."""
        return self._coo()

    def _coo(self) -> Tensor:
        raise NotImplementedError

    def to_sparse_csr(self, dense_dim: int | None = None) -> Any:
        """The matrix in CSR layout."""
        return to_sparse_csr(self._coo(), dense_dim)

    def to_sparse_csc(self, dense_dim: int | None = None) -> Any:
        """The matrix in CSC layout."""
        return self if isinstance(self, SparseCscTensor) else to_sparse_csc(self._coo(), dense_dim)

    def to_sparse_bsr(self, blocksize: Any, dense_dim: int | None = None) -> Any:
        """The matrix in BSR layout, without blocks of zeros alone."""
        coo = self._coo().coalesce()
        used = coo.values() != 0
        coo = lucid.sparse_coo_tensor(coo.indices()[:, used], coo.values()[used], self.shape)
        return to_sparse_bsr(coo, blocksize, dense_dim)

    def to_dense(self, dtype: lucid.dtype | None = None, **_: Any) -> Tensor:
        """The matrix with all its zeros; gradients go through."""
        made = self._coo().to_dense()
        return made if dtype is None else made.to(dtype)

    layout = property(lambda self: getattr(lucid, self._layout))
    is_sparse_csr = property(lambda self: False)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            memo[id(self)] = type(self).of(copy.deepcopy(self._places, memo), copy.deepcopy(self._kept, memo))
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return type(self).of, (self._places, self._kept)


class SparseCscTensor(_Compressed):
    """A matrix in CSC layout. See `sparse_csc_tensor`."""

    _rules = Rules("CSC tensors")
    _layout = "sparse_csc"

    @property
    def shape(self) -> lucid.Size:
        """(n, m)."""
        return lucid.Size(self._places._sizes[::-1])

    def ccol_indices(self) -> Tensor:
        """Where each column's elements begin, and the end: (m + 1)."""
        return self._places.crow_indices()

    def row_indices(self) -> Tensor:
        """The row of each element: (nnz)."""
        return self._places.col_indices()

    def _coo(self) -> Tensor:
        indices = lucid.stack([self._places.col_indices().long(), self._places.row_indices()])
        return lucid.sparse_coo_tensor(indices, self._kept, self.shape)

    def _named_parts(self) -> tuple[tuple[str, Tensor], ...]:
        return ("ccol_indices", self.ccol_indices()), ("row_indices", self.row_indices()), ("values", self._kept)


class SparseBsrTensor(_Compressed):
    """A matrix in BSR layout. See `sparse_bsr_tensor`."""

    _rules = Rules("BSR tensors")
    _layout = "sparse_bsr"

    @property
    def shape(self) -> lucid.Size:
        """(n, m)."""
        return lucid.Size(n * block for n, block in zip(self._places._sizes, self._kept.shape[1:], strict=True))

    def crow_indices(self) -> Tensor:
        """Where each row's blocks begin, and the end: (n / block rows + 1)."""
        return self._places.crow_indices()

    def col_indices(self) -> Tensor:
        """The column of each block, in blocks: (nnz)."""
        return self._places.col_indices()

    def _coo(self) -> Tensor:
        height, width = self._kept.shape[1:]
        device = self._kept.device
        rows = self._places.row_indices()[:, None, None] * height + lucid.arange(height, device=device)[:, None]
        columns = self._places.col_indices().long()[:, None, None] * width + lucid.arange(width, device=device)
        places = lucid.stack([rows.expand(self._kept.shape).flatten(), columns.expand(self._kept.shape).flatten()])
        return lucid.sparse_coo_tensor(places, self._kept.flatten(), self.shape)

    def _named_parts(self) -> tuple[tuple[str, Tensor], ...]:
        return ("crow_indices", self.crow_indices()), ("col_indices", self.col_indices()), ("values", self._kept)


def _values(op: str, given: Any, dims: int | None, dtype: Any, device: Any, requires_grad: bool) -> Tensor:
    """Values of so many dimensions, or of any, as given or converted."""
    values = given if isinstance(given, Tensor) else lucid.tensor(given, dtype=dtype, device=device)
    if dtype is not None or device is not None:
        values = values.to(device=device, dtype=dtype)
    if dims is not None and values.ndim != dims:
        _fail(op, f"expected values of {dims} dimension{'s' * (dims > 1)}, got shape {list(values.shape)}")
    return values.detach().requires_grad_() if requires_grad else values


def _check_layout(op: str, layout: Any, own: str) -> None:
    if layout is not None and layout is not getattr(lucid, own):
        _fail(op, f"expected layout lucid.{own}, got {layout}")


def sparse_csc_tensor(
    ccol_indices: Any,
    row_indices: Any,
    values: Any,
    size: Sequence[int] | None = None,
    *,
    dtype: lucid.dtype | None = None,
    layout: lucid.layout | None = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> Any:
    """Makes a sparse matrix by columns, or a batch of them.

    Differences from PyTorch: values are single numbers.

    Args:
        ccol_indices (Tensor | list): (*, m + 1), rising from 0 to the number of elements; int32 or int64.
        row_indices (Tensor | list): (*, nnz), of the same dtype; rising within a column, each below n.
        values (Tensor | list): (*, nnz).
        size (Sequence[int], optional): (*, n, m); as small as the indices allow where not given.
        dtype (lucid.dtype, optional): that of the values where not given.
        layout (lucid.layout, optional): `lucid.sparse_csc`.
        device (lucid.device or str, optional): that of the parts where not given.
        pin_memory (bool, default: False): without effect: there is one host memory.
        requires_grad (bool, default: False): whether gradients are wanted of the values.
        check_invariants (bool, optional): the indices are checked in any case.

    Returns:
        SparseCscTensor: the matrix, of layout `lucid.sparse_csc`.

    Raises:
        RuntimeError: parts that do not fit one another, or a row beyond the size.

    Example:
        >>> x = lucid.sparse_csc_tensor([0, 1, 2], [1, 0], [2.0, 3.0], (2, 2))
        >>> x.to_dense().tolist()
        [[0.0, 3.0], [2.0, 0.0]]
    """
    op = "sparse_csc_tensor"
    _check_layout(op, layout, "sparse_csc")
    if batched(ccol_indices):
        kept = _values(op, values, None, dtype, device, requires_grad)
        return batch_of(op, "sparse_csc", ccol_indices, row_indices, kept, size, device)
    kept = _values(op, values, 1, dtype, device, requires_grad)
    transposed = None if size is None else tuple(size)[::-1]
    # The rows of the transpose are the columns.
    parts = (ccol_indices, row_indices, kept.detach())
    places = checked(op, ("ccol_indices", "row_indices"), parts, transposed, device)
    made: SparseCscTensor = SparseCscTensor.of(places, kept)
    return made


def sparse_bsr_tensor(
    crow_indices: Any,
    col_indices: Any,
    values: Any,
    size: Sequence[int] | None = None,
    *,
    dtype: lucid.dtype | None = None,
    layout: lucid.layout | None = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> Any:
    """Makes a sparse matrix of dense blocks, by rows of blocks, or a batch of them.

    Differences from PyTorch: there are single numbers in the blocks.

    Args:
        crow_indices (Tensor | list): (*, n / block rows + 1), rising from 0 to the number of blocks; int32 or int64.
        col_indices (Tensor | list): (*, nnz), of the same dtype: the columns, in blocks, rising in a row.
        values (Tensor | list): (*, nnz, block rows, block columns).
        size (Sequence[int], optional): (*, n, m), multiples of the blocks' sizes; as small as the indices allow
            where not given.
        dtype (lucid.dtype, optional): that of the values where not given.
        layout (lucid.layout, optional): `lucid.sparse_bsr`.
        device (lucid.device or str, optional): that of the parts where not given.
        pin_memory (bool, default: False): without effect: there is one host memory.
        requires_grad (bool, default: False): whether gradients are wanted of the values.
        check_invariants (bool, optional): the indices are checked in any case.

    Returns:
        SparseBsrTensor: the matrix, of layout `lucid.sparse_bsr`.

    Raises:
        RuntimeError: parts that do not fit one another, or a block beyond the size.

    Example:
        >>> x = lucid.sparse_bsr_tensor([0, 1], [1], [[[2.0, 3.0]]], (1, 4))
        >>> x.to_dense().tolist()
        [[0.0, 0.0, 2.0, 3.0]]
    """
    op = "sparse_bsr_tensor"
    _check_layout(op, layout, "sparse_bsr")
    if batched(crow_indices):
        kept = _values(op, values, None, dtype, device, requires_grad)
        return batch_of(op, "sparse_bsr", crow_indices, col_indices, kept, size, device)
    kept = _values(op, values, 3, dtype, device, requires_grad)
    blocks = tuple(kept.shape[1:])
    if 0 in blocks or (size is not None and (len(size) != 2 or size[0] % blocks[0] or size[1] % blocks[1])):
        _fail(op, f"expected a size of multiples of the blocks' {blocks}, got {size}")
    sizes = None if size is None else (size[0] // blocks[0], size[1] // blocks[1])
    parts = (crow_indices, col_indices, kept.detach()[:, 0, 0])
    places = checked(op, ("crow_indices", "col_indices"), parts, sizes, device)
    made: SparseBsrTensor = SparseBsrTensor.of(places, kept)
    return made


def to_sparse_csc(x: Any, dense_dim: int | None = None) -> Any:
    """The CSC form of a matrix, or of a batch of them: `x.to_sparse_csc()`."""
    if x.ndim > 2 and not dense_dim:
        return from_dense("sparse_csc", x)
    coo = _matrix("to_sparse_csc", x, dense_dim)
    places = to_sparse_csr(coo.t())
    made: SparseCscTensor = SparseCscTensor.of(places, places._kept)
    return made


def to_sparse_bsr(x: Any, blocksize: Any, dense_dim: int | None = None) -> Any:
    """The BSR form of a matrix, or of a batch: `x.to_sparse_bsr((2, 2))`. Blocks of zeros alone are left out."""
    op = "to_sparse_bsr"
    if x.ndim > 2 and not dense_dim:
        return from_dense("sparse_bsr", x, blocksize)
    matrix = _matrix(op, x, dense_dim) if x.is_sparse or x.ndim != 2 or dense_dim or isinstance(x, _OTHERS) else x
    blocks = (blocksize,) * 2 if isinstance(blocksize, int) else tuple(int(n) for n in blocksize)
    if len(blocks) != 2 or min(blocks) < 1 or x.shape[0] % blocks[0] or x.shape[1] % blocks[1]:
        _fail(op, f"tensor sparse size ({', '.join(map(str, x.shape))}) must be divisible by given blocksize {blocks}")
    height, width = blocks
    wide = int(x.shape[1]) // width
    if matrix.is_sparse:
        rows, columns = matrix.indices()
        at = lucid.div(rows, height, rounding_mode="floor") * wide + lucid.div(columns, width, rounding_mode="floor")
        used, which = lucid.unique(at, return_inverse=True)
        flat = (which * height + rows % height) * width + columns % width
        values = matrix.values()
        kept = values.new_zeros([len(used) * height * width]).index_put((flat,), values).reshape(-1, height, width)
    else:
        tiles = matrix.reshape(-1, height, wide, width).transpose(1, 2).reshape(-1, height, width)
        used = (tiles != 0).flatten(1).any(1).nonzero().flatten()
        kept = tiles[used]
    counts = lucid.bincount(lucid.div(used, wide, rounding_mode="floor"), minlength=int(x.shape[0]) // height)
    crow = lucid.cat([counts.new_zeros([1]), counts.cumsum(0)])
    sizes = (int(x.shape[0]) // height, wide)
    places = SparseCsrTensor.make(crow, used % wide, kept.detach()[:, 0, 0], sizes)
    made: SparseBsrTensor = SparseBsrTensor.of(places, kept)
    return made


_OTHERS = (SparseCsrTensor, _Compressed)


def _matrix(op: str, x: Any, dense_dim: int | None) -> Tensor:
    """A matrix in COO layout, coalesced."""
    if dense_dim:
        raise errors.NotImplementedError(f"{op}: values are single numbers, got dense_dim={dense_dim}")
    if x.ndim != 2:
        _fail(op, f"expected a matrix, got shape {list(x.shape)}")
    return (x if x.is_sparse else x.to_sparse()).coalesce()  # type: ignore[no-any-return]


def in_layout(op: str, coo: Tensor, layout: Any, blocksize: Any) -> Any:
    """A matrix in that compressed layout."""
    if layout is not lucid.sparse_bsr and blocksize is not None:
        _fail(op, f"{layout} takes no blocksize")
    if layout is lucid.sparse_csr:
        return to_sparse_csr(coo)
    if layout is lucid.sparse_csc:
        return to_sparse_csc(coo)
    if layout is lucid.sparse_bsr:
        if blocksize is None:
            _fail(op, "lucid.sparse_bsr needs a blocksize, such as (2, 2)")
        return to_sparse_bsr(coo, blocksize)
    raise errors.NotImplementedError(f"{op}: there is no layout {layout} here")


# ---- the rules -------------------------------------------------------------------------------------------------------


def _of_values(func: Callable[..., Any], input: Any, *args: Any, **kwargs: Any) -> Any:
    """A function that is 0 at 0."""
    values = func(input._kept, *args, **kwargs)
    places = input._places
    device = values.device
    moved = SparseCsrTensor.make(
        places._crow.to(device), places._col.to(device), places._kept.detach().to(device), places._sizes
    )
    return type(input).of(moved, values)


def _coo(x: Any) -> Any:
    return x._coo() if isinstance(x, _Compressed) else x.to_sparse() if isinstance(x, SparseCsrTensor) else x


def _by_coo(func: Any, *args: Any, **kwargs: Any) -> Any:
    """A function of the COO forms: sparse results stay in that layout."""
    name = name_of(func).strip("_")
    if name == "rmatmul":
        name, args = "matmul", args[::-1]
    return getattr(lucid, name)(*map(_coo, args), **kwargs)


def _scale(func: Any, input: Any, other: Any, **kwargs: Any) -> Any:
    if not isinstance(input, _Compressed):
        input, other = other, input
    if isinstance(other, Tensor) and other.ndim:
        if "div" in name_of(func):
            _fail("div", "a sparse matrix is divided by a number alone")
        return lucid.mul(_coo(input), _coo(other))
    return input.like(input._kept / other if "div" in name_of(func) else input._kept * other)


def _transpose(func: Any, input: Any, *dims: int) -> Any:
    if isinstance(input, SparseCscTensor):
        return input._places.like(input._kept)
    transposed = input.to_sparse().t()
    return to_sparse_bsr(transposed, tuple(input._kept.shape[:0:-1]))


def _sum(func: Any, input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    return input._kept.sum(dtype=dtype) if dim is None else input.to_dense().sum(dim, keepdim, dtype=dtype)


def _select(func: Any, input: Any, *where: Any) -> Any:
    return func(input.to_dense(), *where)


def _backward(func: Any, input: Any, gradient: Any = None, *args: Any, **kwargs: Any) -> None:
    input._kept.backward(gradient._kept if isinstance(gradient, _Compressed) else gradient, *args, **kwargs)


for _rules in (SparseCscTensor._rules, SparseBsrTensor._rules):
    _rules.direct.add(_of_values)
    for _name in _OF_VALUES.split():
        _rules.table[_name] = _of_values
    _rules.add("matmul", "mm", "rmatmul", "mv", "addmm", "add", "sub")(_by_coo)
    _rules.add("mul", "div", "true_divide", "rmul", "truediv")(_scale)
    _rules.add("t", "transpose")(_transpose)
    _rules.add("sum")(_sum)
    _rules.add("linear")(linear_of)
    _rules.add("select", "getitem")(_select)
    _rules.add("backward")(_backward)
    _rules.add("is_floating_point", "is_complex", "element_size", "get_device")(
        lambda func, input, *args: func(input._kept, *args)
    )
