"""Experimental parts of PyTorch's distributed tensors, which are not there: each says so when it is called."""

from __future__ import annotations

from typing import Any

from lucid import errors

__all__ = ["context_parallel", "implicit_replication", "local_map", "register_sharding"]


def _absent(name: str, instead: str) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        raise errors.NotImplementedError(f"distributed.tensor.experimental.{name}: {instead}")

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"""Not there: {instead}.

    Args:
        args (object): anything.
        kwargs (object): anything, by name.

    Returns:
        Nothing.

    Raises:
        NotImplementedError: always.

    Example:
        >>> from lucid.distributed.tensor import experimental
        >>> try:
        ...     experimental.context_parallel()
        ... except NotImplementedError as e:
        ...     print("context_parallel" in str(e))
        True
    """
    return call


context_parallel = _absent(
    "context_parallel", "sequences are not divided among processes; divide the batch by DistributedDataParallel"
)
implicit_replication = _absent("implicit_replication", "make plain tensors distributed by distribute_tensor")
local_map = _absent(
    "local_map", "call the function with to_local() of each tensor, and DTensor.from_local of the result"
)
register_sharding = _absent("register_sharding", "the rules of distributed tensors are fixed; compute with to_local()")
