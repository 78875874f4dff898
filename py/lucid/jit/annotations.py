"""Types for annotations, as `torch.jit.annotations`: those of `typing`, and lists that a number may stand for."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple, Union  # noqa: UP035

from lucid.jit._future import Future as Future

__all__ = ["BroadcastingList1", "BroadcastingList2", "BroadcastingList3", "Dict", "Future", "List", "Optional"]
__all__ += ["Tuple", "Union"]


class _BroadcastingList:
    """`BroadcastingList2[int]` annotates a list of two ints, or one int that stands for both."""

    def __getitem__(self, kind: Any) -> Any:
        return Union[kind, List[kind]]  # noqa: UP006, UP007


BroadcastingList1 = _BroadcastingList()
BroadcastingList2 = _BroadcastingList()
BroadcastingList3 = _BroadcastingList()
