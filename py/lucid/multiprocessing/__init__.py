"""Tensors between processes: what `multiprocessing` sends of a CPU tensor is a handle on shared memory, not its bytes.

All names of Python's `multiprocessing` are here too, so that one import can stand for the other. `init_reductions` sees
to the handles, for every pickle that `multiprocessing` makes afterwards in this process; importing this module and
`share_memory_` call it. The receiver and the sender see each other's writes. The memory lives until both have dropped
it; the sender must live until the tensor is received. GPU tensors are sent as bytes.
"""

from __future__ import annotations

import atexit
import multiprocessing
from multiprocessing import *  # noqa: F403
from multiprocessing.reduction import ForkingPickler
from typing import Any

from lucid import _C
from lucid._C import Tensor
from lucid._spawn import ProcessContext as ProcessContext
from lucid._spawn import ProcessException as ProcessException
from lucid._spawn import ProcessExitedException as ProcessExitedException
from lucid._spawn import ProcessRaisedException as ProcessRaisedException
from lucid._spawn import SpawnContext as SpawnContext
from lucid._spawn import spawn as spawn
from lucid._spawn import start_processes as start_processes

__all__ = [
    "ProcessContext",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SpawnContext",
    "get_all_sharing_strategies",
    "get_sharing_strategy",
    "init_reductions",
    "set_sharing_strategy",
    "spawn",
    "start_processes",
]
__all__ += multiprocessing.__all__


def _rebuild_shared(
    cls: type[Tensor],
    handle: tuple[str, int, int, list[int], list[int]],
    dtype: Any,
    requires_grad: bool,
    state: dict[str, Any] | None,
) -> Tensor:
    init_reductions()
    tensor = _C._from_shared(*handle, dtype)
    if cls is not Tensor:
        tensor = Tensor._make_subclass(cls, tensor, requires_grad)
    elif requires_grad:
        tensor.requires_grad_()
    if state:
        tensor.__dict__.update(state)
    return tensor


def _reduce(tensor: Tensor) -> Any:
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError(
            "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd does not support "
            "crossing process boundaries.  If you just want to transfer the data, call detach() on the tensor before "
            "serializing (e.g., putting it on the queue)."
        )
    if not tensor.is_cpu or tensor.numel() == 0:
        return tensor.__reduce_ex__(4)
    handle = tensor.detach()._lend()
    return _rebuild_shared, (type(tensor), handle, tensor.dtype, tensor.requires_grad, tensor.__dict__ or None)


_done = False


def init_reductions() -> None:
    """From now on `multiprocessing` sends CPU tensors of this process as handles."""
    global _done
    if _done:
        return
    _done = True
    from lucid.nn.parameter import Buffer, Parameter

    for cls in (Tensor, Parameter, Buffer):
        ForkingPickler.register(cls, _reduce)
    atexit.register(_C._release_shared_memory)


def get_all_sharing_strategies() -> set[str]:
    """The ways in which memory is shared: by names that the system knows, PyTorch's "file_system"."""
    return {"file_system"}


def get_sharing_strategy() -> str:
    """The way in which memory is shared."""
    return "file_system"


def set_sharing_strategy(new_strategy: str) -> None:
    """Says in which way memory is shared: there is one.

    Args:
        new_strategy (str): the only strategy.

    Raises:
        AssertionError: another strategy.

    Example:
        >>> lucid.multiprocessing.set_sharing_strategy(lucid.multiprocessing.get_sharing_strategy())
    """
    ways = get_all_sharing_strategies()
    if new_strategy not in ways:
        raise ValueError(f"set_sharing_strategy: expected one of {ways}, but got {new_strategy!r}")


init_reductions()
