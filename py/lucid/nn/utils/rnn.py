"""Sequences of different lengths: padded in one tensor, or packed step by step for recurrent layers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import lucid
from lucid import Tensor, errors
from lucid._public_names import named

__all__ = [
    "PackedSequence",
    "invert_permutation",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpack_sequence",
    "unpad_sequence",
]


class _Packed(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


class PackedSequence(_Packed):
    """The elements of all sequences by step, longest sequence first: `data`, and how many sequences each step has.

    Made by `pack_padded_sequence`. `batch_sizes` (int64) is on the CPU; `sorted_indices` say how the sequences were
    sorted, `unsorted_indices` how to undo that.

    Args:
        data (Tensor): the elements by step, (total, …).
        batch_sizes (Tensor, optional): how many sequences each step has, (T,), int64 on the cpu.
        sorted_indices (Tensor, optional): how the sequences were sorted, (N,).
        unsorted_indices (Tensor, optional): what undoes it, (N,).

    Returns:
        PackedSequence: a named tuple of the four.

    Example:
        >>> from lucid import nn
        >>> packed = nn.utils.rnn.pack_sequence([lucid.tensor([1, 2]), lucid.tensor([3])])
        >>> packed.data, packed.batch_sizes
        (tensor([1, 3, 2]), tensor([2, 1]))
    """

    __slots__ = ()

    def __new__(
        cls,
        data: Tensor,
        batch_sizes: Tensor | None = None,
        sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> PackedSequence:
        if batch_sizes is None:
            raise errors.ValueError("batch_sizes should not be None")
        if not batch_sizes.is_cpu:
            raise errors.ValueError(
                "batch_sizes should always be on CPU. Instances of PackedSequence should never be created manually. "
                "They should be instantiated by functions like pack_sequence and pack_padded_sequences in nn.utils.rnn."
            )
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same sequences with the data elsewhere, or of another dtype."""
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self
        moved = [None if i is None else i.to(data.device) for i in (self.sorted_indices, self.unsorted_indices)]
        return type(self)(data, self.batch_sizes, *moved)

    def cpu(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same sequences on the CPU, and as `to` says."""
        return self.to("cpu", *args, **kwargs)

    def cuda(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same sequences on the GPU device, and as `to` says."""
        return self.to("cuda", *args, **kwargs)

    def pin_memory(self) -> PackedSequence:
        """The same sequences in memory that GPUs read without help of the CPU."""
        order = [None if i is None else i.pin_memory() for i in (self.sorted_indices, self.unsorted_indices)]
        return type(self)(self.data.pin_memory(), self.batch_sizes.pin_memory(), *order)

    def is_pinned(self) -> bool:
        """Is the data in such memory?"""
        return self.data.is_pinned()

    def double(self) -> PackedSequence:
        """The data as float64."""
        return self.to(dtype=lucid.float64)

    def float(self) -> PackedSequence:
        """The data as float32."""
        return self.to(dtype=lucid.float32)

    def half(self) -> PackedSequence:
        """The data as float16."""
        return self.to(dtype=lucid.float16)

    def long(self) -> PackedSequence:
        """The data as int64."""
        return self.to(dtype=lucid.int64)

    def int(self) -> PackedSequence:
        """The data as int32."""
        return self.to(dtype=lucid.int32)

    def short(self) -> PackedSequence:
        """The data as int16."""
        return self.to(dtype=lucid.int16)

    def char(self) -> PackedSequence:
        """The data as int8."""
        return self.to(dtype=lucid.int8)

    def byte(self) -> PackedSequence:
        """The data as uint8."""
        return self.to(dtype=lucid.uint8)

    @property
    def is_cuda(self) -> bool:
        """Is the data on a CUDA GPU?"""
        return self.data.is_cuda


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The permutation that undoes one.

    Args:
        permutation (Tensor, optional): indices, (N,).

    Returns:
        Tensor: (N,), int64; None for None.

    Example:
        >>> from lucid import nn
        >>> nn.utils.rnn.invert_permutation(lucid.tensor([2, 0, 1]))
        tensor([1, 2, 0])
    """
    if permutation is None:
        return None
    places = lucid.arange(permutation.numel(), device=permutation.device)
    return lucid.zeros_like(permutation).scatter(0, permutation, places)


@named
def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Packs padded sequences (T, N, …), or (N, T, …) with `batch_first`.

    Args:
        input (Tensor): the sequences, each padded to T: (T, N, …), or (N, T, …) with `batch_first`.
        lengths (Tensor or list of ints): the length of each sequence, (N,), on the cpu.
        batch_first (bool, default: False): `input` is (N, T, …), rather than (T, N, …).
        enforce_sorted (bool, default: True): Whether lengths must fall already; otherwise they are sorted.

    Returns:
        PackedSequence: the elements without the padding.

    Raises:
        RuntimeError: the lengths rise, with `enforce_sorted`, are not positive, or do not fit the input.

    Example:
        >>> from lucid import nn
        >>> x = lucid.tensor([[1, 2], [3, 0]])
        >>> nn.utils.rnn.pack_padded_sequence(x, [2, 1], batch_first=True).data
        tensor([1, 3, 2])
    """
    if isinstance(lengths, Tensor):
        if not lengths.is_cpu:
            raise errors.RuntimeError(
                "'lengths' argument should be a 1D CPU int64 tensor, but got a tensor on " + str(lengths.device)
            )
        sizes = [int(n) for n in lengths.tolist()]
    else:
        sizes = [int(n) for n in lengths]
    x = input.transpose(0, 1) if batch_first else input
    if x.dim() < 2 or x.shape[1] != len(sizes):
        raise errors.RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(sizes)} (batch_size={x.shape[1]})"
        )
    if not sizes or min(sizes) <= 0:
        raise errors.RuntimeError("Length of all samples has to be greater than 0, but found an element that is <= 0")
    order = None
    if not enforce_sorted:
        ranks = sorted(range(len(sizes)), key=lambda i: -sizes[i])
        order = lucid.tensor(ranks, device=input.device)
        x, sizes = x.index_select(1, order), [sizes[i] for i in ranks]
    elif any(a < b for a, b in pairwise(sizes)):
        raise errors.RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass "
            "`enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this requirement if "
            "you do not need ONNX exportability."
        )
    if sizes[0] > x.shape[0]:
        raise errors.RuntimeError(f"Expected lengths of at most {x.shape[0]}, got {sizes[0]}")
    steps = [sum(n > t for n in sizes) for t in range(sizes[0])]
    places = lucid.tensor([t * len(sizes) + i for t, n in enumerate(steps) for i in range(n)], device=input.device)
    flat = x.reshape([x.shape[0] * x.shape[1], *x.shape[2:]]).index_select(0, places)
    return PackedSequence(flat, lucid.tensor(steps, device="cpu"), order, invert_permutation(order))


@named
def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """Packed sequences as a padded tensor (T, N, …), or (N, T, …) with `batch_first`, and their lengths.

    Args:
        sequence (PackedSequence): what `pack_padded_sequence` or a recurrent layer returned.
        batch_first (bool, default: False): the batch is the first dimension, (N, L, …), rather than the second.
        padding_value (float, default: 0.0): what short sequences are padded with.
        total_length (int, optional): the length T; that of the longest sequence by default.

    Returns:
        tuple of Tensors: (T, N, …), or (N, T, …) with `batch_first`, and the lengths (N,), int64 on the cpu.

    Raises:
        ValueError: `total_length` is below the longest sequence.

    Example:
        >>> from lucid import nn
        >>> packed = nn.utils.rnn.pack_sequence([lucid.tensor([1, 2]), lucid.tensor([3])])
        >>> nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
        (tensor([[1, 2],
                [3, 0]]), tensor([2, 1]))
    """
    data, batch_sizes, _, unsorted = sequence
    steps = [int(n) for n in batch_sizes.tolist()]
    count, longest = steps[0], len(steps)
    total = longest if total_length is None else total_length
    if total < longest:
        raise errors.ValueError(
            f"Expected total_length to be at least the length of the longest sequence in input, but got "
            f"total_length={total_length} and max sequence length being {longest}"
        )
    places = lucid.tensor([t * count + i for t, n in enumerate(steps) for i in range(n)], device=data.device)
    rest = list(data.shape[1:])
    view = [-1] + [1] * len(rest)
    blank = lucid.full([total * count, *rest], padding_value, dtype=data.dtype, device=data.device)
    padded = blank.scatter(0, places.reshape(view).expand([places.shape[0], *rest]), data)
    padded = padded.reshape([total, count, *rest])._result_of(data, True)
    lengths = lucid.tensor([sum(n > i for n in steps) for i in range(count)], device="cpu")
    if unsorted is not None:
        padded, lengths = padded.index_select(1, unsorted), lengths.index_select(0, unsorted.cpu())
    return (padded.transpose(0, 1) if batch_first else padded), lengths


@named
def pad_sequence(
    sequences: Tensor | Sequence[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Sequences (L_i, …) as one tensor (T, N, …), or (N, T, …) with `batch_first`, padded on the right or left.

    Args:
        sequences (Tensor | Sequence[Tensor]): the sequences, each (L_i, …).
        batch_first (bool, default: False): the batch is the first dimension, (N, L, …), rather than the second.
        padding_value (float, default: 0.0): what short sequences are padded with.
        padding_side (str, default: "right"): "right" or "left".

    Returns:
        Tensor: (T, N, …), or (N, T, …) with `batch_first`.

    Raises:
        RuntimeError: what is no sequence of tensors, or another `padding_side`.

    Example:
        >>> from lucid import nn
        >>> nn.utils.rnn.pad_sequence([lucid.tensor([1, 2]), lucid.tensor([3])], batch_first=True)
        tensor([[1, 2],
                [3, 0]])
    """
    if not isinstance(sequences, Iterable):
        raise errors.RuntimeError(
            f"pad_sequence: Expected iterable for input sequences, but got arg of type: {type(sequences)}"
        )
    if padding_side not in ("left", "right"):
        raise errors.RuntimeError(f"Expected padding_side to be one of left or right, but got {padding_side}.")
    rows = list(sequences)
    if not rows:
        raise errors.RuntimeError("received an empty list of sequences, []")
    longest = max(row.shape[0] for row in rows)
    padded = []
    for row in rows:
        missing = longest - row.shape[0]
        around = [0, 0] * (row.dim() - 1) + ([missing, 0] if padding_side == "left" else [0, missing])
        padded.append(lucid.constant_pad_nd(row, around, padding_value) if missing else row)
    return lucid.stack(padded, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False) -> list[Tensor]:
    """A padded tensor as a list of sequences of the given lengths: `pad_sequence` undone.

    Args:
        padded_sequences (Tensor): (T, N, …), or (N, T, …) with `batch_first`.
        lengths (Tensor): the length of each sequence, (N,).
        batch_first (bool, default: False): the batch is the first dimension, (N, L, …), rather than the second.

    Returns:
        list of Tensors: each (L_i, …).

    Example:
        >>> from lucid import nn
        >>> x = lucid.tensor([[1, 2], [3, 0]])
        >>> nn.utils.rnn.unpad_sequence(x, lucid.tensor([2, 1]), batch_first=True)
        [tensor([1, 2]), tensor([3])]
    """
    x = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [row.narrow(0, 0, int(n)) for row, n in zip(x.unbind(0), lengths.tolist(), strict=True)]


@named
def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Packs a list of sequences (L_i, …).

    Args:
        sequences (Sequence[Tensor]): the sequences, each (L_i, …).
        enforce_sorted (bool, default: True): the lengths must not rise; else the sequences are sorted.

    Returns:
        PackedSequence: the elements by step.

    Example:
        >>> from lucid import nn
        >>> nn.utils.rnn.pack_sequence([lucid.tensor([1, 2]), lucid.tensor([3])]).data
        tensor([1, 3, 2])
    """
    lengths = [row.shape[0] for row in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """Packed sequences as a list: `pack_sequence` undone.

    Args:
        packed_sequences (PackedSequence): what `pack_sequence` returned.

    Returns:
        list of Tensors: each (L_i, …).

    Example:
        >>> from lucid import nn
        >>> packed = nn.utils.rnn.pack_sequence([lucid.tensor([1, 2]), lucid.tensor([3])])
        >>> nn.utils.rnn.unpack_sequence(packed)
        [tensor([1, 2]), tensor([3])]
    """
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
