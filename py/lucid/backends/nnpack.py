"""NNPACK, as in `torch.backends.nnpack`: it is not used."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from lucid._warnings import warn_without_effect

__all__ = ["flags", "is_available", "set_flags"]

_enabled = False


def is_available() -> bool:
    """False: the CPU's kernels are Lucid's own."""
    return False


def set_flags(_enabled: bool) -> tuple[bool]:
    """Sets whether PyTorch convolves with NNPACK; turned on, one warning says that this has no effect.

    Args:
        _enabled (bool): the switch.

    Returns:
        tuple of bool: the former one.

    Example:
        >>> lucid.backends.nnpack.set_flags(False)
        (False,)
    """
    warn_without_effect("lucid.backends.nnpack", "the CPU's kernels are Lucid's own, not NNPACK's", enabled=_enabled)
    former = (bool(globals()["_enabled"]),)
    globals()["_enabled"] = _enabled
    return former


@contextlib.contextmanager
def flags(enabled: bool = False) -> Iterator[None]:
    """A block in which the switch is as given.

    Args:
        enabled (bool, default: False): the switch, which changes nothing.

    Returns:
        context manager: the block.

    Example:
        >>> with lucid.backends.nnpack.flags(enabled=False):
        ...     pass
    """
    (former,) = set_flags(enabled)
    try:
        yield
    finally:
        globals()["_enabled"] = former
