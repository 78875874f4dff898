"""What PyTorch's file of the functions of nested tensors has that packages call; the functions are `lucid.nested`'s."""

from __future__ import annotations

from typing import Any

from lucid.nested._tensor import NestedTensor


def extract_kwargs(arg: NestedTensor) -> dict[str, Any]:
    """What `NestedTensor(values, **kwargs)` makes one of the same lengths with."""
    return {"offsets": arg.offsets(), "lengths": arg.lengths(), "_ragged_idx": arg._ragged}
