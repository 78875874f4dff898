"""`NestedTensor`: rows of all sequences one after the other, and the functions that make one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NoReturn

import lucid
from lucid import Tensor, errors
from lucid._wrapped import Rules, name_of

#: What `NestedTensor` knows; `_ops` fills it.
RULES = Rules("nested tensors")


class RaggedSize(int):
    """The size of the dimension that differs: -1 for functions that infer it, `j` and the row count to readers."""

    total: int

    def __new__(cls, total: int) -> RaggedSize:
        made = super().__new__(cls, -1)
        made.total = total
        return made

    def __repr__(self) -> str:
        return f"j{self.total}"

    __str__ = __repr__


class NestedTensor(Tensor):
    """A batch of tensors whose sizes in one dimension differ: shape `(N, j, …)`, with rows one after another in memory.

    `lucid.nested.nested_tensor` makes it of a list.

    Args:
        args (object): the rows, (sum of lengths, …), with `offsets`; else what `Tensor` is made of.
        offsets (Tensor, optional): (N + 1): where each sequence begins, and the end.
        lengths (Tensor, optional): (N,): not taken, since sequences are without holes.
        dtype (dtype, optional): the values' dtype.
        device (device or str, optional): where the values are.
        requires_grad (bool, optional): whether the values get a gradient. Default: False.

    Example:
        >>> x = lucid.nested.nested_tensor([lucid.ones(2, 3), lucid.ones(4, 3)], layout=lucid.jagged)
        >>> type(x).__name__, x.offsets().tolist()
        ('NestedTensor', [0, 2, 6])
    """

    #: What transforms read of a tensor is not all there is of this one.
    _of_parts = True
    _rows: Tensor
    _offsets: Tensor
    _ragged: int
    _bounds: list[int]

    @staticmethod
    def __new__(cls: Any, *args: Any, offsets: Any = None, lengths: Any = None, **kwargs: Any) -> Any:
        """The rows with their offsets, as PyTorch's class takes them."""
        if offsets is None:
            return Tensor.__new__(cls, *args, **kwargs)
        from lucid.nested._internal.nested_tensor import nested_view_from_values_offsets

        if lengths is not None:
            raise errors.NotImplementedError("NestedTensor: sequences are without holes; leave lengths out")
        return nested_view_from_values_offsets(args[0], offsets, kwargs.get("_ragged_idx", 1))

    @classmethod
    def make(cls, values: Tensor, offsets: Tensor, ragged: int = 1, bounds: list[int] | None = None) -> NestedTensor:
        """A nested tensor of these parts: dimension `ragged - 1` of the values holds the rows."""
        made: NestedTensor = Tensor._make_subclass(cls, values.detach())
        made._rows, made._offsets, made._ragged = values, offsets, ragged
        made._bounds = [int(n) for n in offsets.tolist()] if bounds is None else bounds
        return made

    def like(self, values: Tensor, ragged: int | None = None) -> NestedTensor:
        """Other values with the same offsets."""
        return NestedTensor.make(values, self._offsets, self._ragged if ragged is None else ragged, self._bounds)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") == "__get__":
            # What is the same of the values: `dtype`, `is_cpu`, …
            return getattr(args[0]._rows, name_of(func))
        return RULES.run(func, tuple(args), dict(kwargs or {}))

    # ---- parts -------------------------------------------------------------------------------------------------------

    def values(self) -> Tensor:
        """The rows of all sequences: (sum of lengths, …)."""
        return self._rows

    def offsets(self) -> Tensor:
        """Where each sequence begins, and the end: (N + 1), int64."""
        return self._offsets

    def lengths(self) -> Tensor | None:
        """None: sequences are without holes."""
        return None

    def unbind(self, dim: int = 0) -> tuple[Tensor, ...]:  # type: ignore[override]
        """The sequences, views of the values."""
        if dim % self.ndim:
            raise errors.RuntimeError(f"unbind(): only supported for dim=0 on nested tensors, got {dim}")
        at = self._ragged - 1
        return tuple(self._rows.narrow(at, a, b - a) for a, b in self.spans())

    def spans(self) -> list[tuple[int, int]]:
        """The first row of each sequence, and the one after its last."""
        return list(pairwise(self._bounds))

    def to_padded_tensor(self, padding: float, output_size: Sequence[int] | None = None) -> Tensor:
        """`lucid.nested.to_padded_tensor` of this tensor."""
        return to_padded_tensor(self, padding, output_size)

    # ---- what tensors tell -------------------------------------------------------------------------------------------

    @property
    def shape(self) -> Any:
        """N, then the values' sizes, with the one that differs as `RaggedSize`."""
        sizes: list[int] = list(self._rows.shape)
        sizes[self._ragged - 1] = RaggedSize(sizes[self._ragged - 1])
        return (len(self._bounds) - 1, *sizes)

    def size(self, dim: int | None = None) -> Any:
        """The shape, or one size."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        """How many dimensions, with that of the batch."""
        return self._rows.ndim + 1

    ndim = property(dim)
    is_nested = property(lambda self: True)
    layout = property(lambda self: lucid.jagged)
    requires_grad = property(lambda self: self._rows.requires_grad, lambda self, on: self._rows.requires_grad_(on))
    is_leaf = property(lambda self: self._rows.is_leaf)
    grad_fn = property(lambda self: self._rows.grad_fn)

    @property  # type: ignore[misc]
    def grad(self) -> Any:
        """The gradient, nested as this tensor."""
        found = self._rows.grad
        return None if found is None else self.like(found)

    def requires_grad_(self, requires_grad: bool = True) -> NestedTensor:
        """Says whether gradients are wanted of the values."""
        self._rows.requires_grad_(requires_grad)
        return self

    def numel(self) -> int:
        """How many elements the sequences have together."""
        return self._rows.numel()

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.unbind())

    def __repr__(self, **_: Any) -> str:
        rows = ",\n  ".join(repr(t).replace("\n", "\n  ") for t in self.unbind())
        return f"nested_tensor([\n  {rows}\n])"

    __str__ = __repr__
    __hash__ = object.__hash__

    def __reduce_ex__(self, protocol: Any) -> Any:
        return NestedTensor.make, (self._rows, self._offsets, self._ragged)


def _fail(op: str, why: str) -> NoReturn:
    raise errors.RuntimeError(f"{op}(): {why}")


def _check_layout(op: str, layout: Any) -> None:
    if layout is not None and layout is not lucid.jagged:
        why = f"the layout of nested tensors is lucid.jagged, got {layout}"
        raise errors.NotImplementedError(f"{op}: {why}")


def _offsets(lengths: Sequence[int], device: Any) -> Tensor:
    ends = [0]
    for n in lengths:
        ends.append(ends[-1] + n)
    return lucid.tensor(ends, dtype=lucid.int64, device=device)


def as_nested_tensor(
    ts: Tensor | Sequence[Tensor], dtype: lucid.dtype | None = None, device: Any = None, layout: Any = None
) -> NestedTensor:
    """A nested tensor of tensors, which get gradients through it.

    Args:
        ts (Tensor | Sequence[Tensor]): Tensors (j, …) that differ in their first size alone; or one tensor (N, L,
            …), whose rows are of one length.
        dtype (lucid.dtype, optional): Those of the result; the tensors' where not given.
        device (lucid.device or str, optional): Those of the result; the tensors' where not given.
        layout (object, optional): `lucid.jagged`.

    Returns:
        NestedTensor: of the tensors.

    Raises:
        RuntimeError: tensors of no or of differing other dimensions.
        NotImplementedError: another layout.

    Example:
        >>> lucid.nested.as_nested_tensor([lucid.ones(2), lucid.ones(3)]).size(0)
        2
    """
    op = "as_nested_tensor"
    _check_layout(op, layout)
    if isinstance(ts, NestedTensor):
        return ts.like(ts._rows.to(device=device, dtype=dtype))
    if isinstance(ts, Tensor):
        if ts.ndim < 2:
            _fail(op, f"expected a tensor of at least 2 dimensions, got shape {list(ts.shape)}")
        lengths = [int(ts.shape[1])] * ts.shape[0]
        values = ts.flatten(0, 1)
    else:
        parts = list(ts)
        if not parts or not all(isinstance(t, Tensor) for t in parts):
            _fail(op, "expected a non-empty sequence of tensors")
        if parts[0].ndim == 0 or any(t.shape[1:] != parts[0].shape[1:] or t.ndim != parts[0].ndim for t in parts):
            shapes = ", ".join(str(list(t.shape)) for t in parts[:5])
            _fail(op, f"the tensors may differ in their first size alone, got shapes {shapes}")
        lengths = [int(t.shape[0]) for t in parts]
        values = lucid.cat(parts)
    if dtype is not None or device is not None:
        values = values.to(device=device, dtype=dtype)
    return NestedTensor.make(values, _offsets(lengths, values.device))


def nested_tensor(
    tensor_list: Sequence[Any],
    *,
    dtype: lucid.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> NestedTensor:
    """A new nested tensor, a leaf, of copies of tensors or lists of numbers.

    Args:
        tensor_list (Sequence[Any]): Tensors (j, …) or nested lists that differ in their first size alone.
        dtype (lucid.dtype, optional): Those of the result; the first tensor's where not given.
        layout (object, optional): `lucid.jagged`.
        device (lucid.device or str, optional): Those of the result; the first tensor's where not given.
        requires_grad (bool, default: False): Whether `backward` leaves a gradient in it.
        pin_memory (bool, default: False): without effect: there is one host memory.

    Returns:
        NestedTensor: of the tensors.

    Raises:
        RuntimeError: no tensors, or sizes that differ elsewhere.

    Example:
        >>> nt = lucid.nested.nested_tensor([[1.0, 2.0], [3.0]])
        >>> (nt * 2).to_padded_tensor(0.0)
        tensor([[2., 4.],
                [6., 0.]])
    """
    _check_layout("nested_tensor", layout)
    parts = [t.detach() if isinstance(t, Tensor) else lucid.tensor(t, dtype=dtype) for t in tensor_list]
    made = as_nested_tensor(parts, dtype, device)
    values = made._rows.clone() if len(parts) == 1 else made._rows
    return made.like(values.requires_grad_(requires_grad))


def nested_tensor_from_jagged(
    values: Tensor,
    offsets: Tensor | None = None,
    lengths: Tensor | None = None,
    jagged_dim: int | None = None,
    min_seqlen: int | None = None,
    max_seqlen: int | None = None,
) -> NestedTensor:
    """A nested tensor of rows that are one after the other, without a copy.

    Args:
        values (Tensor): (sum of lengths, …).
        offsets (Tensor, optional): (N + 1): where each sequence begins, and the end; rising from 0 to the number
            of rows.
        lengths (Tensor, optional): (N): in the place of offsets.
        jagged_dim (int, optional): Which dimension of the result differs: 1.
        min_seqlen (int, optional): without effect: the offsets tell both.
        max_seqlen (int, optional): without effect: the offsets tell both.

    Returns:
        NestedTensor: of the rows.

    Raises:
        RuntimeError: neither offsets nor lengths, both, or such that do not fit the values.

    Example:
        >>> lucid.nested.nested_tensor_from_jagged(lucid.arange(5), lucid.tensor([0, 2, 5])).size(0)
        2
    """
    op = "nested_tensor_from_jagged"
    if (offsets is None) == (lengths is None):
        _fail(op, "expected offsets or lengths, and not both")
    if jagged_dim not in (None, 1):
        raise errors.NotImplementedError(f"{op}: jagged_dim is 1, got {jagged_dim}; transpose the result")
    if offsets is None:
        assert lengths is not None
        offsets = lucid.cat([lengths.new_zeros([1]), lengths.cumsum(0)])
    ends = [int(n) for n in offsets.tolist()] if offsets.ndim == 1 else []
    rising = all(a <= b for a, b in pairwise(ends))
    if values.ndim == 0 or len(ends) < 2 or ends[0] != 0 or ends[-1] != values.shape[0] or not rising:
        _fail(op, f"offsets must rise from 0 to the {values.shape[:1]} rows of the values, got {ends[:8]}")
    return NestedTensor.make(values, offsets, 1, ends)


def to_padded_tensor(
    input: Tensor, padding: float, output_size: Sequence[int] | None = None, out: Tensor | None = None
) -> Tensor:
    """The sequences side by side, each filled up with `padding` to the longest: (N, longest, …).

    Args:
        input (Tensor): a nested tensor, of shape (N, j, …).
        padding (float): The number that fills.
        output_size (Sequence[int], optional): the sizes of the result; the longest ones by default.
        out (Tensor, optional): a tensor that the result is written to, of its shape.

    Returns:
        Tensor: (N, longest, …).

    Raises:
        RuntimeError: `input` is not nested, or `output_size` is too small.

    Example:
        >>> x = lucid.nested.nested_tensor([lucid.ones(2), lucid.ones(3)], layout=lucid.jagged)
        >>> lucid.nested.to_padded_tensor(x, 0.0)
        tensor([[1., 1., 0.],
                [1., 1., 1.]])
    """
    op = "to_padded_tensor"
    if not isinstance(input, NestedTensor):
        _fail(op, "expected a nested tensor")
    if out is not None:
        raise errors.NotImplementedError(f"{op}: out is not taken")
    at = input._ragged - 1
    spans = input.spans()
    longest = max((b - a for a, b in spans), default=0)
    rows = []
    for part in input.unbind():
        pad = [0, 0] * (part.ndim - 1 - at) + [0, longest - part.shape[at]]
        rows.append(lucid.constant_pad_nd(part, pad, padding))
    made = lucid.stack(rows)
    if output_size is not None:
        wanted = list(output_size)
        if len(wanted) != made.ndim or any(w < n for w, n in zip(wanted, made.shape, strict=True)):
            _fail(op, f"output_size {wanted} is smaller than the padded shape {list(made.shape)}")
        pads = [p for w, n in zip(reversed(wanted), reversed(made.shape), strict=True) for p in (0, w - n)]
        made = lucid.constant_pad_nd(made, pads, padding)
    return made


def narrow(tensor: Tensor, dim: int, start: int | Tensor, length: int | Tensor, layout: Any = None) -> NestedTensor:
    """Of each row of a tensor (N, L, …) the part from `start` on, `length` long: numbers, or one per row (N).

    The parts are copied; PyTorch keeps holes between them.

    Args:
        tensor (Tensor): (N, L, …).
        dim (int): the dimension, 1.
        start (int or Tensor): the first index, a number or one for each row, (N,).
        length (int or Tensor): the number of elements, a number or one for each row, (N,).
        layout (lucid.layout, optional): only `lucid.jagged`.

    Returns:
        NestedTensor: of the parts.

    Raises:
        RuntimeError: another dimension than 1, or a part beyond its row.

    Example:
        >>> x = lucid.arange(6).view(2, 3)
        >>> lucid.nested.narrow(x, 1, 0, lucid.tensor([1, 2]), layout=lucid.jagged).size(0)
        2
    """
    op = "narrow"
    _check_layout(op, layout)
    if dim != 1 or tensor.ndim < 2:
        _fail(op, f"expected dim=1 of a tensor of at least 2 dimensions, got dim={dim}")
    n = int(tensor.shape[0])
    size = int(tensor.shape[1])
    starts, lengths = (
        v.to("cpu", lucid.int64) if isinstance(v, Tensor) else lucid.full([n], int(v), dtype=lucid.int64)
        for v in (start, length)
    )
    if starts.shape != (n,) or lengths.shape != (n,):
        _fail(op, f"expected one start and length for each of {n} rows")
    if bool(((starts < 0) | (lengths < 0) | (starts > size) | (lengths > size - starts)).any()):
        _fail(op, f"a start and length reach beyond rows of {size} elements")
    offsets = lucid.cat([lengths.new_zeros([1]), lengths.cumsum(0)])
    # All rows by one index: the first place of each part, less the places before it, and then on from there.
    first = lucid.arange(n) * size + starts - offsets[:-1]
    places = lucid.arange(int(offsets[-1])) + first.repeat_interleave(lengths)
    values = tensor.flatten(0, 1).index_select(0, places.to(tensor.device))
    return NestedTensor.make(values, offsets.to(tensor.device), 1, [int(v) for v in offsets.tolist()])


def masked_select(tensor: Tensor, mask: Tensor) -> NestedTensor:
    """Of each row of a tensor (N, L) the elements where `mask` is true.

    Args:
        tensor (Tensor): (N, L).
        mask (Tensor): which elements are taken, bool, (N, L).

    Returns:
        NestedTensor: of the elements of each row.

    Raises:
        RuntimeError: a mask that is not bool or has another shape than the two dimensions.

    Example:
        >>> x = lucid.arange(4).view(2, 2)
        >>> lucid.nested.masked_select(x, x > 0).size(0)
        2
    """
    op = "masked_select"
    if tensor.ndim != 2 or mask.dtype is not lucid.bool:
        _fail(op, f"expected a tensor of 2 dimensions and a bool mask, got {tensor.ndim} and {mask.dtype}")
    mask = mask.expand(tensor.shape)
    lengths = mask.sum(1).tolist()
    return NestedTensor.make(tensor.masked_select(mask), _offsets(lengths, tensor.device))
