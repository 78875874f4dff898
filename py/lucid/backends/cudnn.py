"""PyTorch's switches for cuDNN, as in `torch.backends.cudnn`: kept and read back, so that scripts can set them.

MLX chooses how it convolves. Where it computes with cuDNN, a switch that is changed gives one warning that it has no
effect; elsewhere there is nothing to switch, as in PyTorch without CUDA. Which ops may give other numbers when run
again `lucid.op_schemas()` says, and
`lucid.use_deterministic_algorithms` makes such calls an error. Float32 is float32 unless `MLX_ENABLE_TF32=1`.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator
from typing import Any

from lucid import _gpu
from lucid._warnings import warn_without_effect

__all__ = ["allow_tf32", "benchmark", "benchmark_limit", "deterministic", "enabled", "flags", "is_available", "version"]

enabled: bool = True
benchmark: bool = False
benchmark_limit: int | None = 10
deterministic: bool = False
allow_tf32: bool = True


def is_available() -> bool:
    """Does MLX compute on an NVIDIA GPU? It convolves with cuDNN there."""
    return _gpu.kind() == "cuda"


def version() -> int | None:
    """`None`: MLX does not tell which cuDNN it loaded."""
    return None


@contextlib.contextmanager
def flags(
    enabled: bool = False,
    benchmark: bool = False,
    benchmark_limit: int | None = 10,
    deterministic: bool = False,
    allow_tf32: bool = True,
) -> Iterator[None]:
    """A block in which the switches are as given.

    Args:
        enabled (bool, default: False): the switch `enabled`, which changes nothing.
        benchmark (bool, default: False): the switch `benchmark`, which changes nothing.
        benchmark_limit (int, default: 10): the switch `benchmark_limit`, which changes nothing.
        deterministic (bool, default: False): the switch `deterministic`, which changes nothing.
        allow_tf32 (bool, default: True): the switch `allow_tf32`, which changes nothing.

    Returns:
        context manager: the block.

    Example:
        >>> with lucid.backends.cudnn.flags(deterministic=True):
        ...     print(lucid.backends.cudnn.deterministic)
        True
    """
    given: dict[str, Any] = dict(locals())
    here = sys.modules[__name__]
    former = {name: getattr(here, name) for name in given}
    try:
        for name, value in given.items():
            setattr(here, name, value)
        yield
    finally:
        globals().update(former)


class _Switches(types.ModuleType):
    def __setattr__(self, name: str, value: Any) -> None:
        if name in _NAMES and is_available():
            changed = getattr(self, name) != value
            warn_without_effect("lucid.backends.cudnn", "MLX chooses how it convolves", **{name: changed})
        super().__setattr__(name, value)


_NAMES = ("allow_tf32", "benchmark", "benchmark_limit", "deterministic", "enabled")
sys.modules[__name__].__class__ = _Switches
