"""`sparse_csr_tensor`: sparse matrices by rows, as in PyTorch's CSR layout.

Row i's elements are `values[crow_indices[i] : crow_indices[i + 1]]`, in the columns `col_indices` says there. Products
and sums are those of the COO layout, to which the row pointers are expanded; results that are sparse have CSR layout.
Gradients go to the values, and to dense factors.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import lucid
from lucid import Tensor, errors
from lucid._repr import compressed_repr
from lucid._wrapped import Rules, name_of

RULES = Rules("CSR tensors")


def _fail(op: str, why: str) -> NoReturn:
    raise errors.RuntimeError(f"{op}(): {why}")


class CompressedMatrix(Tensor):
    """What matrices in CSR, CSC and BSR layout share: sizes, and what is asked of their values, which are `_kept`."""

    _kept: Tensor

    def like(self, values: Tensor) -> Any:
        """Other values at the same places."""
        raise NotImplementedError

    def _nnz(self) -> int:
        raise NotImplementedError

    def size(self, dim: int | None = None) -> Any:
        """The shape, or one size."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        """2."""
        return 2

    def sparse_dim(self) -> int:
        """2."""
        return 2

    def dense_dim(self) -> int:
        """0."""
        return 0

    def numel(self) -> int:
        """n · m."""
        return int(self.shape[0] * self.shape[1])

    ndim = property(dim)
    is_sparse = property(lambda self: False)
    requires_grad = property(lambda self: self._kept.requires_grad, lambda self, on: self._kept.requires_grad_(on))
    is_leaf = property(lambda self: self._kept.is_leaf)
    grad_fn = property(lambda self: self._kept.grad_fn)

    @property  # type: ignore[misc]
    def grad(self) -> Any:
        """The gradient of the values, at their places."""
        found = self._kept.grad
        return None if found is None else self.like(found)

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        """Says whether gradients are wanted of the values."""
        self._kept.requires_grad_(requires_grad)
        return self

    def __len__(self) -> int:
        return int(self.shape[0])

    def _named_parts(self) -> tuple[tuple[str, Tensor], ...]:
        raise NotImplementedError

    def __repr__(self, **_: Any) -> str:
        return compressed_repr(self, self._named_parts(), self._nnz())

    __str__ = __repr__
    __hash__ = object.__hash__


class SparseCsrTensor(CompressedMatrix):
    """A matrix in CSR layout. See `sparse_csr_tensor`."""

    #: What transforms read of a tensor is not all there is of this one.
    _of_parts = True
    _crow: Tensor
    _col: Tensor
    _kept: Tensor
    _sizes: tuple[int, int]

    @classmethod
    def make(cls, crow: Tensor, col: Tensor, values: Tensor, size: tuple[int, int]) -> SparseCsrTensor:
        """A tensor of these parts, which are not checked again."""
        made: SparseCsrTensor = Tensor._make_subclass(cls, values.detach())
        made._crow, made._col, made._kept, made._sizes = crow, col, values, size
        return made

    def like(self, values: Tensor) -> SparseCsrTensor:
        """Other values at the same places."""
        return SparseCsrTensor.make(self._crow, self._col, values, self._sizes)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") == "__get__":
            return getattr(args[0]._kept, name_of(func))
        return RULES.run(func, tuple(args), dict(kwargs or {}))

    def crow_indices(self) -> Tensor:
        """Where each row's elements begin, and the end: (n + 1)."""
        return self._crow

    def col_indices(self) -> Tensor:
        """The column of each element: (nnz)."""
        return self._col

    def values(self) -> Tensor:
        """The elements, row by row: (nnz)."""
        return self._kept

    def _nnz(self) -> int:
        return int(self._kept.shape[0])

    def row_indices(self) -> Tensor:
        """The row of each element: (nnz)."""
        rows = lucid.arange(self._sizes[0], device=self._crow.device)
        return rows.repeat_interleave((self._crow[1:] - self._crow[:-1]).long(), 0)

    def to_sparse(self, sparse_dim: Any = None, *, layout: Any = None, blocksize: Any = None, **_: Any) -> Tensor:
        """The matrix in COO layout, coalesced, or in the layout asked for."""
        indices = lucid.stack([self.row_indices(), self._col.long()])
        # Rows come in order, and columns rise within each.
        made = lucid.sparse_coo_tensor(indices, self._kept, self._sizes, is_coalesced=True)
        return made if layout is None else made.to_sparse(layout=layout, blocksize=blocksize)

    def to_sparse_coo(self) -> Tensor:
        """The matrix in COO layout."""
        return self.to_sparse()

    def to_sparse_csr(self, dense_dim: int | None = None) -> SparseCsrTensor:
        """This tensor."""
        return self

    def to_sparse_csc(self, dense_dim: int | None = None) -> Tensor:
        """The matrix in CSC layout."""
        return self.to_sparse().to_sparse_csc(dense_dim)

    def to_sparse_bsr(self, blocksize: Any, dense_dim: int | None = None) -> Tensor:
        """The matrix in BSR layout."""
        return self.to_sparse().to_sparse_bsr(blocksize, dense_dim)

    def to_dense(self, dtype: lucid.dtype | None = None, **_: Any) -> Tensor:
        """The matrix with all its zeros; gradients go through."""
        made = self.to_sparse().to_dense()
        return made if dtype is None else made.to(dtype)

    @property
    def shape(self) -> lucid.Size:
        """(n, m)."""
        return lucid.Size(self._sizes)

    layout = property(lambda self: lucid.sparse_csr)
    is_sparse_csr = property(lambda self: True)

    def _named_parts(self) -> tuple[tuple[str, Tensor], ...]:
        return ("crow_indices", self._crow), ("col_indices", self._col), ("values", self._kept)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            crow, col, kept = (copy.deepcopy(part, memo) for part in (self._crow, self._col, self._kept))
            memo[id(self)] = SparseCsrTensor.make(crow, col, kept, self._sizes)
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return SparseCsrTensor.make, (self._crow, self._col, self._kept, self._sizes)


def sparse_csr_tensor(
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
    """Makes a sparse matrix of compressed rows (CSR), or a batch of them.

    Args:
        crow_indices (Tensor or list): of shape (*, n + 1), rising from 0 to the number of elements; int32 or int64.
        col_indices (Tensor or list): of shape (*, nnz) and the same dtype; rising within a row, each below m.
        values (Tensor or list): of shape (*, nnz).
        size (sequence of int, optional): (*, n, m). Default: as small as the indices allow.
        dtype (dtype, optional): the values' dtype. Default: that of `values`.
        layout (layout, optional): `lucid.sparse_csr`.
        device (device or str, optional): where the parts are. Default: where `values` are.
        pin_memory (bool, optional): without effect: there is one host memory.
        requires_grad (bool, optional): whether the values get a gradient. Default: False.
        check_invariants (bool, optional): the indices are checked in any case.

    Returns:
        Tensor: of shape (*, n, m), of the layout `sparse_csr`.

    Raises:
        RuntimeError: parts that do not fit one another, or a column beyond the size.
        NotImplementedError: values that are no single numbers.

    Differences from PyTorch: values are single numbers.

    Example:
        >>> x = lucid.sparse_csr_tensor([0, 1, 2], [1, 0], [2.0, 3.0], (2, 2))
        >>> (x @ lucid.ones(2, 1)).tolist()
        [[2.0], [3.0]]
    """
    op = "sparse_csr_tensor"
    if layout is not None and layout is not lucid.sparse_csr:
        _fail(op, f"expected layout lucid.sparse_csr, got {layout}")

    if not isinstance(values, Tensor):
        values = lucid.tensor(values, dtype=dtype, device=device)
    elif dtype is not None or device is not None:
        values = values.to(device=device, dtype=dtype)
    if batched(crow_indices):
        from lucid._sparse_batches import batch_of

        values = values.detach().requires_grad_() if requires_grad else values
        return batch_of(op, "sparse_csr", crow_indices, col_indices, values, size, device)
    if values.ndim != 1:
        raise errors.NotImplementedError(
            f"{op}: values are single numbers, got a shape of {list(values.shape)} for a matrix; a COO tensor "
            "(sparse_coo_tensor) takes values of any dimensions"
        )
    if requires_grad:
        values = values.detach().requires_grad_()
    return checked(op, ("crow_indices", "col_indices"), (crow_indices, col_indices, values), size, device)


def batched(pointers: Any) -> bool:
    """Are these the pointers of several matrices?"""
    if isinstance(pointers, Tensor):
        return pointers.ndim > 1
    return isinstance(pointers, (list, tuple)) and len(pointers) > 0 and isinstance(pointers[0], (list, tuple))


def checked(
    op: str, names: tuple[str, str], parts: tuple[Any, Any, Tensor], size: Sequence[int] | None, device: Any
) -> SparseCsrTensor:
    """A CSR tensor of pointers, indices and values that fit one another, by these names; `size` is that of its rows."""

    def index(name: str, given: Any) -> Tensor:
        made = given if isinstance(given, Tensor) else lucid.tensor(given, dtype=lucid.int64)
        if made.ndim != 1 or made.dtype not in (lucid.int32, lucid.int64):
            _fail(op, f"expected {name} of 1 dimension and dtype int32 or int64, got {made.ndim} and {made.dtype}")
        return made if device is None else made.to(device)

    (starts, places), values = names, parts[2]
    pointers, indices = index(starts, parts[0]), index(places, parts[1])
    if pointers.dtype != indices.dtype:
        _fail(op, f"{starts} and {places} must have the same dtype, got {pointers.dtype} and {indices.dtype}")
    if len({pointers.device, indices.device, values.device}) > 1:
        _fail(op, f"the parts are on {pointers.device}, {indices.device} and {values.device}; move them to one device")
    n = int(indices.shape[0])
    if int(values.shape[0]) != n:
        _fail(op, f"expected one value for each of {n} {places}, got shape {list(values.shape)}")
    lines = int(pointers.shape[0]) - 1
    ends = [int(pointers[0]), int(pointers[-1])] if lines >= 0 else []
    if ends != [0, n] or not bool((pointers[1:] >= pointers[:-1]).all()):
        _fail(op, f"{starts} must rise from 0 to nnz={n}, got {pointers[:8].tolist()}")
    least, most = (int(indices.min()), int(indices.max())) if n else (0, -1)
    if size is None:
        size = (lines, most + 1)
    if len(size) != 2 or size[0] != lines:
        _fail(op, f"expected the sizes of a matrix that fit {lines} + 1 {starts}, got {tuple(size)} of it")
    if least < 0 or most >= size[1]:
        _fail(op, f"{places} must be in the range of 0 to {size[1] - 1}, got {least} to {most}")
    if n > 1:
        first = lucid.zeros(n + 1, dtype=lucid.bool, device=indices.device)
        first[pointers.long()] = True
        if not bool(((indices[1:] > indices[:-1]) | first[1:-1]).all()):
            _fail(op, f"{places} must rise between two of {starts}, each once")
    return SparseCsrTensor.make(pointers, indices, values, (int(size[0]), int(size[1])))


def to_sparse_csr(x: Tensor, dense_dim: int | None = None) -> Any:
    """The CSR form of a matrix, dense or COO, or of a batch of them: `x.to_sparse_csr()`."""
    op = "to_sparse_csr"
    if dense_dim:
        raise errors.NotImplementedError(f"{op}: values are single numbers, got dense_dim={dense_dim}")
    if x.ndim > 2:
        from lucid._sparse_batches import from_dense

        return from_dense("sparse_csr", x)
    if x.ndim != 2:
        _fail(op, f"expected a matrix, got shape {list(x.shape)}")
    coo = (x if x.is_sparse else x.to_sparse()).coalesce()
    rows, cols = coo.indices()
    counts = lucid.bincount(rows, minlength=int(x.shape[0]))
    crow = lucid.cat([counts.new_zeros([1]), counts.cumsum(0)])
    return SparseCsrTensor.make(crow, cols.contiguous(), coo.values(), (int(x.shape[0]), int(x.shape[1])))


# ---- the rules -------------------------------------------------------------------------------------------------------

_OF_VALUES = """abs asin asinh atan atanh ceil clone deg2rad detach erf erfinv expm1 floor frac isinf isnan log1p neg
positive rad2deg relu round sgn sign sin sinh sqrt square tan tanh trunc to float double half bfloat16 cpu cuda
zeros_like isposinf isneginf angle"""


def _of_values(func: Callable[..., Any], input: Any, *args: Any, **kwargs: Any) -> SparseCsrTensor:
    """A function that is 0 at 0."""
    values = func(input._kept, *args, **kwargs)
    moved = input._crow.to(values.device), input._col.to(values.device)
    return SparseCsrTensor.make(*moved, values, input._sizes)


RULES.direct.add(_of_values)
for _name in _OF_VALUES.split():
    RULES.table[_name] = _of_values


def _coo(x: Any) -> Any:
    return x.to_sparse() if isinstance(x, SparseCsrTensor) else x


def _back(x: Any) -> Any:
    return to_sparse_csr(x) if isinstance(x, Tensor) and x.is_sparse and x.ndim == 2 else x


@RULES.add("matmul", "mm", "rmatmul", "mv", "spmm", "dsmm")
def _product(func: Any, input: Any, other: Any) -> Any:
    if name_of(func) == "__rmatmul__":
        input, other = other, input
    return _back(lucid.matmul(_coo(input), _coo(other)))


@RULES.add("addmm")
def _addmm(func: Any, input: Any, mat1: Any, mat2: Any, **kwargs: Any) -> Any:
    return _back(lucid.addmm(_coo(input), _coo(mat1), _coo(mat2), **kwargs))


@RULES.add("add", "sub")
def _add(func: Any, input: Any, other: Any, *, alpha: Any = 1) -> Any:
    sign = -alpha if name_of(func).strip("_") == "sub" else alpha
    if not isinstance(other, Tensor):
        _fail(name_of(func), "a number is added to every element, those that are not there too: call to_dense() first")
    if not isinstance(input, SparseCsrTensor):
        return lucid.add(input, _coo(other), alpha=sign)
    if not isinstance(other, SparseCsrTensor):
        return lucid.add(input.to_dense(), _coo(other) * sign)
    return _back(lucid.add(_coo(input), _coo(other), alpha=sign))


@RULES.add("mul", "div", "true_divide", "rmul", "truediv")
def _scale(func: Any, input: Any, other: Any, **kwargs: Any) -> Any:
    if not isinstance(input, SparseCsrTensor):
        input, other = other, input
    if not isinstance(other, Tensor) or other.ndim == 0:
        division = "div" in name_of(func)
        return input.like(input._kept / other if division else input._kept * other)
    if "div" in name_of(func):
        _fail("div", "a sparse matrix is divided by a number alone")
    if isinstance(other, SparseCsrTensor):
        return _back(lucid.mul(_coo(input), _coo(other)))
    if other.ndim != 2:
        _fail("mul", f"expected a matrix or a number, got shape {list(other.shape)}")
    return input.like(input._kept * other.expand(input._sizes)[input.row_indices(), input._col.long()])


@RULES.add("t", "transpose")
def _transpose(func: Any, input: Any, *dims: int) -> SparseCsrTensor:
    made: SparseCsrTensor = to_sparse_csr(_coo(input).t())
    return made


@RULES.add("sum")
def _sum(func: Any, input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    if dim is None:
        return input._kept.sum(dtype=dtype)  # type: ignore[no-any-return]
    return input.to_dense().sum(dim, keepdim, dtype=dtype)  # type: ignore[no-any-return]


@RULES.add("linear")
def linear_of(func: Any, input: Any, weight: Any, bias: Any = None) -> Any:
    """`input @ weight.T + bias` of a sparse weight."""
    if hasattr(input, "_named_parts"):
        return func(input.to_dense(), weight, bias)
    flat = input.reshape(-1, input.shape[-1]) if input.ndim != 2 else input
    made = (weight @ flat.t()).t().reshape(*input.shape[:-1], weight.shape[0])
    return made if bias is None else made + bias


@RULES.add("select", "getitem")
def _select(func: Any, input: Any, *where: Any) -> Any:
    dense = input.to_dense()
    return dense.select(*where) if name_of(func) == "select" else dense[where[0]]


@RULES.add("backward")
def _backward(func: Any, input: Any, gradient: Any = None, *args: Any, **kwargs: Any) -> None:
    input._kept.backward(gradient._kept if isinstance(gradient, SparseCsrTensor) else gradient, *args, **kwargs)


@RULES.add("is_floating_point", "is_complex", "element_size", "get_device")
def _told(func: Any, input: Any, *args: Any) -> Any:
    return func(input._kept, *args)
