"""Seeding and forking the process's random numbers, under PyTorch's names.

One generator serves every device: the same seed gives the same numbers on each of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from lucid._C import Generator as Generator
from lucid._C import default_generator as default_generator
from lucid._C import get_rng_state as get_rng_state
from lucid._C import initial_seed as initial_seed
from lucid._C import manual_seed as manual_seed
from lucid._C import seed as seed
from lucid._C import set_rng_state as set_rng_state

__all__ = ["fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state"]


@contextlib.contextmanager
def fork_rng(
    devices: Iterable[Any] | None = None,
    enabled: bool = True,
    _caller: str = "fork_rng",
    _devices_kw: str = "devices",
    device_type: str | None = None,
) -> Iterator[None]:
    """A block after which the random numbers go on as if it had drawn none.

    `devices` and `device_type` are PyTorch's and have no effect: all devices share the one state. With `enabled=False`
    nothing is kept.

    Args:
        devices (Iterable[Any], optional): without effect: all devices share one state.
        enabled (bool, default: True): keeps the state; else the block changes it.
        device_type (str, optional): without effect likewise.

    Returns:
        context manager: the block.

    Example:
        >>> with lucid.random.fork_rng():
        ...     a = lucid.rand(1)
        >>> bool(a == lucid.rand(1))
        True
    """
    if not enabled:
        yield
        return
    state = get_rng_state()
    try:
        yield
    finally:
        set_rng_state(state)
