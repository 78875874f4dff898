"""A `GradScaler` for gradients in shards: a step is left out on every process where one has overflowed."""

from __future__ import annotations

from typing import Any

import lucid
from lucid import Tensor
from lucid.amp.grad_scaler import GradScaler
from lucid.distributed import _collectives as base
from lucid.distributed._state import resolve
from lucid.distributed._work import ReduceOp
from lucid.optim import Optimizer


class ShardedGradScaler(GradScaler):
    """`lucid.amp.GradScaler` whose decisions all processes of a group share.

    Args:
        process_group: The group; all processes where it is None.
        args: The other arguments are those of `GradScaler`.
    """

    def __init__(self, device: str = "gpu", *args: Any, process_group: Any = None, **kwargs: Any) -> None:
        super().__init__(device, *args, **kwargs)
        self._process_group = process_group

    def _unscale(self, optimizer: Optimizer, allow_half: bool) -> list[Tensor]:
        found = super()._unscale(optimizer, allow_half)
        if resolve(self._process_group, "ShardedGradScaler") is None:
            return found
        # A process whose shards are all empty has nothing of its own to tell.
        scale, _ = self._tensors("unscale_")
        total = lucid.zeros((), device=scale.device)
        for value in found:
            total = total + value.reshape(()).to(scale.device).float()
        base.all_reduce(total, ReduceOp.MAX, group=self._process_group)
        return [total]
