"""`torch.distributed._functional_collectives`' functions: new tensors instead of overwritten ones, with gradients."""

from __future__ import annotations

from typing import Any

import lucid
from lucid import Tensor
from lucid.distributed._work import ReduceOp
from lucid.distributed.nn import functional as with_grad

__all__ = ["all_gather_tensor", "all_reduce", "all_to_all_single", "broadcast", "reduce_scatter_tensor", "wait_tensor"]


def wait_tensor(tensor: Tensor) -> Tensor:
    """The tensor: these collectives are done when they return."""
    return tensor


def _op(name: str | ReduceOp) -> ReduceOp:
    return name if isinstance(name, ReduceOp) else ReduceOp[name.upper()]


def all_reduce(self: Tensor, reduceOp: str, group: Any, tag: str = "") -> Tensor:
    """The reduction, by name: `sum`, `avg`, …"""
    return with_grad.all_reduce(self, _op(reduceOp), group)


def broadcast(self: Tensor, src: int, group: Any, tag: str = "") -> Tensor:
    """Rank `src`'s tensor."""
    return with_grad.broadcast(self, src, group)


def all_gather_tensor(self: Tensor, gather_dim: int, group: Any, tag: str = "") -> Tensor:
    """All members' tensors, joined along a dimension."""
    return lucid.cat(list(with_grad.all_gather(self, group)), gather_dim)


def reduce_scatter_tensor(
    self: Tensor,
    reduceOp: str,
    scatter_dim: int,
    group: Any,
    tag: str = "",
) -> Tensor:
    """This member's part of the reduction, along a dimension."""
    found = with_grad._group(group, "reduce_scatter_tensor")
    parts = list(self.chunk(found.size(), scatter_dim))
    return with_grad.reduce_scatter(parts[0], parts, _op(reduceOp), group)


def all_to_all_single(
    self: Tensor, output_split_sizes: Any, input_split_sizes: Any, group: Any, tag: str = ""
) -> Tensor:
    """Equal parts, exchanged."""
    if output_split_sizes or input_split_sizes:
        raise NotImplementedError(
            "all_to_all_single with gradients takes equal parts; see distributed.all_to_all_single"
        )
    return with_grad.all_to_all_single(self, self, group)
