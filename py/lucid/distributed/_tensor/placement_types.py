"""The older path of `lucid.distributed.tensor.placement_types`, with what describes a sharded tensor as data."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import lucid
from lucid.distributed.device_mesh import DeviceMesh
from lucid.distributed.tensor import Partial as Partial
from lucid.distributed.tensor import Placement as Placement
from lucid.distributed.tensor import Replicate as Replicate
from lucid.distributed.tensor import Shard as Shard


class TensorMeta(NamedTuple):
    """The whole tensor's shape, strides and dtype."""

    shape: lucid.Size
    stride: tuple[int, ...]
    dtype: Any


@dataclasses.dataclass
class DTensorSpec:
    """How a tensor is placed on a mesh. A `DTensor` here is made by `distribute_tensor` and `DTensor.from_local`."""

    mesh: DeviceMesh
    placements: tuple[Placement, ...]
    tensor_meta: TensorMeta | None = None

    @property
    def shape(self) -> lucid.Size:
        """The whole tensor's shape."""
        return self._meta().shape

    @property
    def stride(self) -> tuple[int, ...]:
        """The whole tensor's strides."""
        return self._meta().stride

    @property
    def ndim(self) -> int:
        """How many dimensions the tensor has."""
        return len(self._meta().shape)

    @property
    def num_shards(self) -> int:
        """How many parts there are of the whole tensor."""
        parts = 1
        for size, placement in zip(self.mesh.shape, self.placements, strict=True):
            parts *= size if isinstance(placement, Shard) else 1
        return parts

    def is_replicated(self) -> bool:
        """Does every process have the whole tensor?"""
        return all(isinstance(placement, Replicate) for placement in self.placements)

    def is_sharded(self) -> bool:
        """Has a process a part of the tensor?"""
        return any(isinstance(placement, Shard) for placement in self.placements)

    def _meta(self) -> TensorMeta:
        if self.tensor_meta is None:
            raise lucid.errors.ValueError("tensor_meta is not set")
        return self.tensor_meta
