"""`DeviceMesh`: the job's processes as a grid, with a group for each of its lines."""

from __future__ import annotations

import math
from typing import Any

import lucid
from lucid import Tensor, errors
from lucid.distributed._groups import get_rank, get_world_size, new_group
from lucid.distributed._state import ProcessGroup, init_process_group, is_initialized

__all__ = ["DeviceMesh", "init_device_mesh"]


class DeviceMesh:
    """The job's ranks in a grid: each dimension has a group for each row of ranks along it.

    Every process of the job makes the same meshes in the same order.

    Args:
        device_type (str): the device that tensors are on: `cpu` or `gpu`.
        mesh (Tensor or nested list of int): the ranks, of the grid's shape, such as `(data, model)`.
        mesh_dim_names (tuple of str, optional): a name for each dimension, which `mesh[name]` and `get_group(name)`
            take.

    Raises:
        ValueError: there are more or fewer names than dimensions.

    Example:
        >>> import lucid.distributed as dist
        >>> from lucid.distributed.device_mesh import DeviceMesh
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> mesh = DeviceMesh("cpu", [[0]], mesh_dim_names=("data", "model"))
        >>> mesh.size(0), mesh.get_local_rank("model")
        (1, 0)
        >>> dist.destroy_process_group()
    """

    def __init__(
        self, device_type: str, mesh: Any, *, mesh_dim_names: tuple[str, ...] | None = None, _groups: Any = None
    ) -> None:
        self.device_type = device_type
        self.mesh = mesh if isinstance(mesh, Tensor) else lucid.tensor(mesh, dtype=lucid.int64, device="cpu")
        if self.mesh.ndim == 0:
            self.mesh = self.mesh.reshape(1)
        self.mesh_dim_names = tuple(mesh_dim_names) if mesh_dim_names else None
        if self.mesh_dim_names is not None and len(self.mesh_dim_names) != self.mesh.ndim:
            raise errors.ValueError(f"DeviceMesh: {len(self.mesh_dim_names)} names for {self.mesh.ndim} dimensions")
        rank = get_rank()
        flat = [int(r) for r in self.mesh.reshape(-1).tolist()]
        self._coordinate: list[int] | None = None
        if rank in flat:
            at = flat.index(rank)
            self._coordinate = []
            for n in reversed(self.mesh.shape):
                self._coordinate.insert(0, at % n)
                at //= n
        self._groups: list[Any] = _groups if _groups is not None else self._make()

    def _make(self) -> list[Any]:
        own: list[Any] = []
        whole = list(range(get_world_size()))
        for dim in range(self.mesh.ndim):
            mine = None
            for ranks in self.mesh.movedim(dim, -1).reshape(-1, self.mesh.shape[dim]).tolist():
                made = new_group(sorted(int(r) for r in ranks)) if ranks != whole else new_group()
                if get_rank() in ranks:
                    mine = made
            own.append(mine)
        return own

    @property
    def ndim(self) -> int:
        """How many dimensions the grid has."""
        return self.mesh.ndim

    @property
    def shape(self) -> tuple[int, ...]:
        """The grid's sizes."""
        return tuple(self.mesh.shape)

    def _dim(self, dim: int | str | None) -> int:
        if dim is None:
            if self.ndim > 1:
                raise errors.RuntimeError(f"a mesh of {self.ndim} dimensions: say which, mesh_dim=")
            return 0
        if isinstance(dim, str):
            if self.mesh_dim_names is None or dim not in self.mesh_dim_names:
                raise errors.ValueError(f"the mesh has no dimension '{dim}', but {self.mesh_dim_names}")
            return self.mesh_dim_names.index(dim)
        if not -self.ndim <= dim < self.ndim:
            raise errors.ValueError(f"the mesh has {self.ndim} dimensions, not a dimension {dim}")
        return dim % self.ndim

    def size(self, mesh_dim: int | str | None = None) -> int:
        """How many processes there are, in all or along a dimension."""
        return math.prod(self.shape) if mesh_dim is None else self.shape[self._dim(mesh_dim)]

    def get_group(self, mesh_dim: int | str | None = None) -> ProcessGroup:
        """The group of this process's line along a dimension."""
        found: ProcessGroup = self._groups[self._dim(mesh_dim)]
        return found

    def get_all_groups(self) -> list[ProcessGroup]:
        """The groups of this process's lines."""
        return list(self._groups)

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """This process's number along a dimension."""
        if self._coordinate is None:
            raise errors.RuntimeError("this process is not in the mesh")
        return self._coordinate[self._dim(mesh_dim)]

    def get_rank(self) -> int:
        """This process's rank in the job."""
        return get_rank()

    def get_coordinate(self) -> list[int] | None:
        """This process's place in the grid; None where it is not in it."""
        return self._coordinate

    def __getitem__(self, names: str | tuple[str, ...]) -> DeviceMesh:
        """The mesh of this process's own lines along the named dimensions."""
        wanted = (names,) if isinstance(names, str) else tuple(names)
        dims = [self._dim(n) for n in wanted]
        if self._coordinate is None:
            raise errors.RuntimeError("this process is not in the mesh")
        if dims != sorted(dims) or len(set(dims)) != len(dims):
            raise errors.ValueError(f"{wanted} are not in the order of {self.mesh_dim_names}")
        part = self.mesh
        for dim in reversed(range(self.ndim)):
            if dim not in dims:
                part = part.select(dim, self._coordinate[dim])
        return DeviceMesh(self.device_type, part, mesh_dim_names=wanted, _groups=[self._groups[d] for d in dims])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceMesh) and self.shape == other.shape and self.mesh.tolist() == other.mesh.tolist()

    def __hash__(self) -> int:
        return hash((self.shape, tuple(self.mesh.reshape(-1).tolist())))

    def __repr__(self) -> str:
        return f"DeviceMesh('{self.device_type}', {self.mesh.tolist()}, mesh_dim_names={self.mesh_dim_names})"


def init_device_mesh(
    device_type: str, mesh_shape: tuple[int, ...], *, mesh_dim_names: tuple[str, ...] | None = None
) -> DeviceMesh:
    """Makes a mesh of all processes of the job, in the order of their ranks. Makes the job where there is none.

    Args:
        device_type (str): the device that tensors are on: `cpu` or `gpu`.
        mesh_shape (tuple of int): the grid's sizes, whose product is the world size.
        mesh_dim_names (tuple of str, optional): a name for each dimension.

    Returns:
        DeviceMesh: the mesh; the rank at `(i, j)` is `i * mesh_shape[1] + j`.

    Raises:
        ValueError: the product of `mesh_shape` is not the world size.

    Example:
        >>> import lucid.distributed as dist
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> mesh = dist.init_device_mesh("cpu", (1, 1), mesh_dim_names=("data", "model"))
        >>> mesh["data"].size()
        1
        >>> dist.destroy_process_group()
    """
    if not is_initialized():
        init_process_group()
    if math.prod(mesh_shape) != get_world_size():
        raise errors.ValueError(f"init_device_mesh: {mesh_shape} does not hold a world of {get_world_size()} processes")
    ranks = lucid.arange(get_world_size(), dtype=lucid.int64, device="cpu").reshape(*mesh_shape)
    return DeviceMesh(device_type, ranks, mesh_dim_names=mesh_dim_names)
