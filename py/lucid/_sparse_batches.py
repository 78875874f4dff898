"""Batches of matrices in CSR, CSC and BSR layout: as many elements in each, and parts with the batch's dimensions.

Functions of elements work on the values. Sums of two batches at other places, products, and what has no rule in PyTorch
either go by way of the dense form.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import lucid
from lucid import Tensor, errors
from lucid._sparse_csr import _OF_VALUES, CompressedMatrix, SparseCsrTensor, _fail, checked
from lucid._wrapped import Rules, name_of

RULES = Rules("batches of compressed matrices")

_NAMES = {
    "sparse_csr": ("crow_indices", "col_indices"),
    "sparse_csc": ("ccol_indices", "row_indices"),
    "sparse_bsr": ("crow_indices", "col_indices"),
}


class SparseBatch(CompressedMatrix):
    """A batch of matrices in a compressed layout: pointers (*batch, lines + 1), indices (*batch, nnz), values (*batch,
    nnz), or (*batch, nnz, height, width) in the layout of blocks.
    """

    #: What transforms read of a tensor is not all there is of this one.
    _of_parts = True
    _kind: str
    _pointers: Tensor
    _inner: Tensor
    _kept: Tensor
    _sizes: tuple[int, ...]

    @classmethod
    def make(cls, kind: str, pointers: Tensor, indices: Tensor, values: Tensor, sizes: Sequence[int]) -> SparseBatch:
        """A tensor of these parts, which are not checked again."""
        made: SparseBatch = Tensor._make_subclass(cls, values.detach())
        made._kind, made._pointers, made._inner, made._kept = kind, pointers, indices, values
        made._sizes = tuple(int(s) for s in sizes)
        return made

    def like(self, values: Tensor) -> SparseBatch:
        """Other values at the same places."""
        places = self._pointers.to(values.device), self._inner.to(values.device)
        return SparseBatch.make(self._kind, *places, values, self._sizes)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") == "__get__":
            return getattr(args[0]._kept, name_of(func))
        return RULES.run(func, tuple(args), dict(kwargs or {}))

    @property
    def shape(self) -> lucid.Size:
        """(*batch, n, m)."""
        return lucid.Size(self._sizes)

    def dim(self) -> int:
        """The number of the batch's dimensions and 2."""
        return len(self._sizes)

    def numel(self) -> int:
        """The number of elements, zeros too."""
        return math.prod(self._sizes)

    ndim = property(dim)
    layout = property(lambda self: getattr(lucid, self._kind))
    is_sparse_csr = property(lambda self: self._kind == "sparse_csr")
    mT = property(lambda self: self.transpose(-2, -1))

    def _part(self, name: str, part: int) -> Tensor:
        if _NAMES[self._kind][part] != name:
            _fail(name, f"the layout {self.layout} has {' and '.join(_NAMES[self._kind])}")
        return (self._pointers, self._inner)[part]

    def crow_indices(self) -> Tensor:
        """Where each row's elements begin, and the end: (*batch, n + 1)."""
        return self._part("crow_indices", 0)

    def ccol_indices(self) -> Tensor:
        """Where each column's elements begin, and the end: (*batch, m + 1)."""
        return self._part("ccol_indices", 0)

    def col_indices(self) -> Tensor:
        """The column of each element, or block: (*batch, nnz)."""
        return self._part("col_indices", 1)

    def row_indices(self) -> Tensor:
        """The row of each element: (*batch, nnz)."""
        return self._part("row_indices", 1)

    def values(self) -> Tensor:
        """The elements, or blocks of elements, in the order of their places."""
        return self._kept

    def _nnz(self) -> int:
        return int(self._inner.shape[-1])

    def _named_parts(self) -> tuple[tuple[str, Tensor], ...]:
        first, second = _NAMES[self._kind]
        return (first, self._pointers), (second, self._inner), ("values", self._kept)

    def _places(self) -> tuple[Tensor, Tensor, Tensor]:
        """Of each element, or block, its matrix, its line and its index within the line."""
        pointers = self._pointers.reshape(-1, self._pointers.shape[-1]).long()
        count, lines, device = int(pointers.shape[0]), int(pointers.shape[1]) - 1, pointers.device
        line = lucid.arange(lines, device=device).repeat(count)
        line = line.repeat_interleave((pointers[:, 1:] - pointers[:, :-1]).flatten(), 0)
        matrix = lucid.arange(count, device=device).repeat_interleave(self._nnz(), 0)
        return matrix, line, self._inner.flatten().long()

    def to_dense(self, dtype: lucid.dtype | None = None, **_: Any) -> Tensor:
        """The matrices with all their zeros; gradients go through."""
        matrix, line, index = self._places()
        count, (n, m) = math.prod(self._sizes[:-2]), self._sizes[-2:]
        if self._kind == "sparse_bsr":
            h, w = self._kept.shape[-2:]
            blocks = self._kept.reshape(-1, h, w)
            tiles = self._kept.new_zeros([count, n // h, m // w, h, w]).index_put((matrix, line, index), blocks)
            made = tiles.transpose(2, 3)
        else:
            rows, columns = (line, index) if self._kind == "sparse_csr" else (index, line)
            made = self._kept.new_zeros([count, n, m]).index_put((matrix, rows, columns), self._kept.flatten())
        made = made.reshape(self._sizes)
        return made if dtype is None else made.to(dtype)

    def to_sparse(self, sparse_dim: Any = None, *, layout: Any = None, blocksize: Any = None, **_: Any) -> Any:
        """The matrices in COO layout, without zeros, or in the layout asked for."""
        if layout is None or layout is lucid.sparse_coo:
            return self.to_dense().to_sparse()
        kind = str(layout).rpartition(".")[2]
        if kind not in _NAMES:
            raise errors.NotImplementedError(f"to_sparse: there is no layout {layout} here")
        return self if kind == self._kind else from_dense(kind, self.to_dense(), blocksize)

    def to_sparse_coo(self) -> Any:
        """The matrices in COO layout, without zeros."""
        return self.to_sparse()

    def to_sparse_csr(self, dense_dim: int | None = None) -> Any:
        """The matrices in CSR layout."""
        _no_dense("to_sparse_csr", dense_dim)
        return self.to_sparse(layout=lucid.sparse_csr)

    def to_sparse_csc(self, dense_dim: int | None = None) -> Any:
        """The matrices in CSC layout."""
        _no_dense("to_sparse_csc", dense_dim)
        return self.to_sparse(layout=lucid.sparse_csc)

    def to_sparse_bsr(self, blocksize: Any, dense_dim: int | None = None) -> Any:
        """The matrices in BSR layout."""
        _no_dense("to_sparse_bsr", dense_dim)
        return from_dense("sparse_bsr", self.to_dense(), blocksize)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            first, second, kept = (copy.deepcopy(part, memo) for part in (self._pointers, self._inner, self._kept))
            memo[id(self)] = SparseBatch.make(self._kind, first, second, kept, self._sizes)
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return SparseBatch.make, (self._kind, self._pointers, self._inner, self._kept, self._sizes)


def _no_dense(op: str, dense_dim: int | None) -> None:
    if dense_dim:
        raise errors.NotImplementedError(f"{op}: values are single numbers, got dense_dim={dense_dim}")


def _single(kind: str, pointers: Tensor, indices: Tensor, values: Tensor, sizes: Sequence[int]) -> Any:
    """One matrix of these parts."""
    from lucid._sparse_compressed import SparseBsrTensor, SparseCscTensor

    n, m = (int(s) for s in sizes)
    if kind == "sparse_csr":
        return SparseCsrTensor.make(pointers, indices, values, (n, m))
    if kind == "sparse_csc":
        return SparseCscTensor.of(SparseCsrTensor.make(pointers, indices, values.detach(), (m, n)), values)
    h, w = values.shape[1:]
    places = SparseCsrTensor.make(pointers, indices, values.detach()[:, 0, 0], (n // h, m // w))
    return SparseBsrTensor.of(places, values)


def from_dense(kind: str, x: Tensor, blocksize: Any = None) -> SparseBatch:
    """A dense batch in a compressed layout; each matrix must have as many elements, or blocks, that are not 0.

    Raises:
        RuntimeError: they differ, or blocks do not fit.
    """
    op = f"to_{kind}"
    if x.is_sparse:
        x = x.to_dense()
    n, m = x.shape[-2:]
    flat = x.reshape(-1, n, m)
    if kind == "sparse_bsr":
        if blocksize is None:
            _fail(op, "lucid.sparse_bsr needs a blocksize, such as (2, 2)")
        h, w = (blocksize,) * 2 if isinstance(blocksize, int) else tuple(int(b) for b in blocksize)
        if min(h, w) < 1 or n % h or m % w:
            _fail(op, f"tensor sparse size ({n}, {m}) must be divisible by given blocksize {(h, w)}")
        lines = flat.reshape(-1, n // h, h, m // w, w).transpose(2, 3)
        there = (lines != 0).flatten(3).any(3)
    else:
        lines = flat if kind == "sparse_csr" else flat.transpose(1, 2)
        there = lines != 0
    each = there.flatten(1).sum(1)
    if len(each) and not bool((each == each[0]).all()):
        _fail(op, "Expect the same number of specified elements per batch.")
    places = there.nonzero()
    values = lines[places[:, 0], places[:, 1], places[:, 2]]
    batch, nnz = x.shape[:-2], int(each[0]) if len(each) else 0
    counts = there.sum(2).cumsum(1)
    pointers = lucid.cat([counts.new_zeros([len(counts), 1]), counts], 1)
    parts = pointers.reshape(*batch, -1), places[:, 2].reshape(*batch, nnz)
    return SparseBatch.make(kind, *parts, values.reshape(*batch, nnz, *values.shape[1:]), x.shape)


def batch_of(op: str, kind: str, pointers: Any, indices: Any, values: Tensor, size: Any, device: Any) -> SparseBatch:
    """A batch of parts that fit one another; each matrix is checked as one alone is.

    Raises:
        RuntimeError: they do not fit.
    """

    def index(given: Any) -> Tensor:
        made = given if isinstance(given, Tensor) else lucid.tensor(given, dtype=lucid.int64)
        return made if device is None else made.to(device)

    pointers, indices = index(pointers), index(indices)
    batch = tuple(pointers.shape[:-1])
    blocks = tuple(values.shape[-2:]) if kind == "sparse_bsr" else (1, 1)
    if values.ndim != len(batch) + (3 if kind == "sparse_bsr" else 1) or 0 in blocks:
        _fail(op, f"expected values of one number or block for each index, got shape {list(values.shape)}")
    if tuple(indices.shape[:-1]) != batch or tuple(values.shape[: len(batch)]) != batch:
        shapes = [list(t.shape) for t in (pointers, indices, values)]
        _fail(op, f"expected the batch's dimensions {list(batch)} first in each part, got shapes {shapes}")
    lines = (int(pointers.shape[-1]) - 1) * blocks[0]
    if size is None:
        most = (int(indices.max()) + 1 if indices.numel() else 0) * blocks[1]
        size = (*batch, most, lines) if kind == "sparse_csc" else (*batch, lines, most)
    if len(size) != len(batch) + 2 or tuple(size[:-2]) != batch or size[-2] % blocks[0] or size[-1] % blocks[1]:
        _fail(op, f"expected a size of {list(batch)} and that of a matrix of blocks {blocks}, got {tuple(size)}")
    inner = (size[-2] // blocks[0], size[-1] // blocks[1])
    inner = inner[::-1] if kind == "sparse_csc" else inner
    nnz = int(indices.shape[-1])
    firsts = values.detach().reshape(-1, nnz, *values.shape[len(batch) + 1 :])
    firsts = firsts[:, :, 0, 0] if kind == "sparse_bsr" else firsts
    for p, i, v in zip(pointers.reshape(-1, pointers.shape[-1]), indices.reshape(-1, nnz), firsts, strict=True):
        checked(op, _NAMES[kind], (p, i, v), inner, None)
    return SparseBatch.make(kind, pointers, indices, values, size)


# ---- the rules -------------------------------------------------------------------------------------------------------


def _of_values(func: Any, input: Any, *args: Any, **kwargs: Any) -> SparseBatch:
    """A function that is 0 at 0."""
    made: SparseBatch = input.like(func(input._kept, *args, **kwargs))
    return made


RULES.direct.add(_of_values)
for _name in _OF_VALUES.split():
    RULES.table[_name] = _of_values


def _dense(x: Any) -> Any:
    return x.to_dense() if isinstance(x, CompressedMatrix) else x


@RULES.add("matmul", "bmm", "rmatmul")
def _product(func: Any, input: Any, other: Any) -> Any:
    a, b = (other, input) if name_of(func) == "__rmatmul__" else (input, other)
    return lucid.matmul(_dense(a), _dense(b))


@RULES.add("add", "sub")
def _add(func: Any, input: Any, other: Any, *, alpha: Any = 1) -> Any:
    sign = -alpha if name_of(func).strip("_") == "sub" else alpha
    if not isinstance(other, Tensor):
        _fail(name_of(func), "a number is added to every element, those that are not there too: call to_dense() first")
    if not (isinstance(input, SparseBatch) and isinstance(other, SparseBatch)):
        return lucid.add(_dense(input), _dense(other), alpha=sign)
    same = input._kind == other._kind and input._sizes == other._sizes and input._kept.shape == other._kept.shape
    if same and lucid.equal(input._pointers, other._pointers) and lucid.equal(input._inner, other._inner):
        return input.like(lucid.add(input._kept, other._kept, alpha=sign))
    blocks = tuple(input._kept.shape[-2:]) if input._kind == "sparse_bsr" else None
    return from_dense(input._kind, lucid.add(input.to_dense(), other.to_dense(), alpha=sign), blocks)


@RULES.add("mul", "div", "true_divide", "rmul", "truediv")
def _scale(func: Any, input: Any, other: Any) -> Any:
    if not isinstance(input, SparseBatch):
        input, other = other, input
    if isinstance(other, Tensor) and other.ndim:
        _fail(name_of(func), "a batch of compressed matrices is scaled by a number alone; call to_dense() first")
    return input.like(input._kept / other if "div" in name_of(func) else input._kept * other)


@RULES.add("transpose")
def _transpose(func: Any, input: Any, dim0: int, dim1: int) -> Any:
    n = input.dim()
    if {dim0 % n, dim1 % n} != {n - 2, n - 1}:
        _fail("transpose", f"a batch's matrices are transposed by dimensions -2 and -1, got {dim0} and {dim1}")
    sizes = (*input._sizes[:-2], input._sizes[-1], input._sizes[-2])
    if input._kind == "sparse_bsr":
        return from_dense("sparse_bsr", input.to_dense().transpose(-2, -1), tuple(input._kept.shape[:-3:-1]))
    kind = "sparse_csc" if input._kind == "sparse_csr" else "sparse_csr"
    return SparseBatch.make(kind, input._pointers, input._inner, input._kept, sizes)


@RULES.add("sum")
def _sum(func: Any, input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    return input._kept.sum(dtype=dtype) if dim is None else input.to_dense().sum(dim, keepdim, dtype=dtype)


def _at(input: Any, i: int) -> Any:
    """The matrix, or smaller batch, at a place of the first dimension."""
    parts = input._pointers[i], input._inner[i], input._kept[i], input._sizes[1:]
    return (_single if input.dim() == 3 else SparseBatch.make)(input._kind, *parts)


@RULES.add("select", "getitem")
def _select(func: Any, input: Any, *where: Any) -> Any:
    if name_of(func) == "select":
        dim, i = where
        return _at(input, i) if dim % input.dim() == 0 else input.to_dense().select(dim, i)
    key = where[0] if isinstance(where[0], tuple) else where
    if not key or isinstance(key[0], bool) or not isinstance(key[0], int):
        return input.to_dense()[where[0]]
    first = _at(input, key[0])
    return first[key[1:] if len(key) > 2 else key[1]] if len(key) > 1 else first


@RULES.add("unbind")
def _unbind(func: Any, input: Any, dim: int = 0) -> Any:
    if dim % input.dim():
        return input.to_dense().unbind(dim)
    return tuple(_at(input, i) for i in range(input._sizes[0]))


@RULES.add("backward")
def _backward(func: Any, input: Any, gradient: Any = None, *args: Any, **kwargs: Any) -> None:
    input._kept.backward(gradient._kept if isinstance(gradient, SparseBatch) else gradient, *args, **kwargs)


@RULES.add("is_floating_point", "is_complex", "element_size", "get_device")
def _told(func: Any, input: Any, *args: Any) -> Any:
    return func(input._kept, *args)
