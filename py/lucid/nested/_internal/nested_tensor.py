"""The class of nested tensors, and what makes one of its parts, by the names of PyTorch's file."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import lucid
from lucid import Tensor, errors
from lucid.nested._tensor import NestedTensor, as_nested_tensor, narrow, nested_tensor_from_jagged
from lucid.utils.weak import WeakTensorKeyDictionary

#: Where PyTorch keeps the symbol of each tensor of offsets. Sizes are numbers here, so that nothing is put there.
_tensor_symint_registry = WeakTensorKeyDictionary()

__all__ = [
    "NestedTensor",
    "buffer_from_jagged",
    "jagged_from_list",
    "jagged_from_tensor_and_lengths",
    "nested_from_padded",
    "nested_view_from_values_offsets",
    "nested_view_from_values_offsets_lengths",
]


def buffer_from_jagged(jagged: NestedTensor) -> Tensor:
    """The rows of a nested tensor, one after another."""
    return jagged.values()


def jagged_from_list(
    tensors: Sequence[Tensor], offsets: Tensor | None, dtype: Any = None, device: Any = None
) -> tuple[NestedTensor, Tensor]:
    """A nested tensor of tensors that differ in their first size, and its offsets: those given where they are its."""
    made = as_nested_tensor(list(tensors), dtype, device)
    if offsets is None:
        return made, made.offsets()
    if offsets.tolist() != made.offsets().tolist():
        raise errors.RuntimeError(
            "jagged_from_list(): the lengths of the tensors are not those of the offsets: "
            f"{made.offsets().tolist()[:8]} and {offsets.tolist()[:8]}"
        )
    return NestedTensor.make(made.values(), offsets, 1), offsets


def jagged_from_tensor_and_lengths(tensor: Tensor, starts: Tensor, lengths: Tensor) -> tuple[NestedTensor, Tensor, Any]:
    """A nested tensor of parts of a tensor's rows (N, L, …), copied without holes, its offsets, and None."""
    made = narrow(tensor, 1, starts, lengths)
    return made, made.offsets(), None


def nested_view_from_values_offsets(
    values: Tensor, offsets: Tensor, ragged_idx: int = 1, min_seqlen: int | None = None, max_seqlen: int | None = None
) -> NestedTensor:
    """A nested tensor of rows in dimension `ragged_idx - 1` of the values, without a copy.

    `min_seqlen` and `max_seqlen` have no effect: the offsets tell both.
    """
    if ragged_idx == 1:
        return nested_tensor_from_jagged(values, offsets)
    ends = [int(n) for n in offsets.tolist()]
    at = ragged_idx - 1
    if not 0 <= at < values.dim() or ends[:1] != [0] or ends[-1] != values.shape[at]:
        raise errors.RuntimeError(
            f"nested_view_from_values_offsets(): offsets {ends[:8]} do not fit dimension {at} of values of shape "
            f"{list(values.shape)}"
        )
    if any(a > b for a, b in pairwise(ends)):
        raise errors.RuntimeError(f"nested_view_from_values_offsets(): offsets must rise, got {ends[:8]}")
    return NestedTensor.make(values, offsets, ragged_idx, ends)


def nested_view_from_values_offsets_lengths(
    values: Tensor,
    offsets: Tensor,
    lengths: Tensor,
    ragged_idx: int = 1,
    min_seqlen: int | None = None,
    max_seqlen: int | None = None,
) -> NestedTensor:
    """The same where lengths leave holes between sequences, which are left out: the rows are copied then.

    `min_seqlen` and `max_seqlen` have no effect: the lengths tell both.
    """
    if ragged_idx != 1:
        raise errors.NotImplementedError(
            "nested_view_from_values_offsets_lengths: ragged_idx is 1 where there are holes"
        )
    starts = [int(n) for n in offsets.tolist()][: len(lengths)]
    parts = [values.narrow(0, a, int(n)) for a, n in zip(starts, lengths.tolist(), strict=True)]
    return as_nested_tensor(parts)


def nested_from_padded(
    padded: Tensor,
    offsets: Tensor,
    ragged_idx: int = 1,
    min_seqlen: int | None = None,
    max_seqlen: int | None = None,
    sum_S: int | None = None,
) -> NestedTensor:
    """A nested tensor of the first rows of each sample of a padded batch (N, longest, …).

    `min_seqlen`, `max_seqlen` and `sum_S` have no effect: the offsets tell them.
    """
    if ragged_idx != 1:
        raise errors.RuntimeError("nested_from_padded(): only ragged_idx == 1 supported for jagged layout")
    return narrow(padded, 1, 0, lucid.diff(offsets))
