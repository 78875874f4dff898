"""oneDNN, as in `torch.backends.mkldnn`: it is not used, so that its switches are off. One that is turned on is kept
and read back, with one warning that it has no effect."""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator
from typing import Any

from lucid._warnings import warn_without_effect

__all__ = ["flags", "is_acl_available", "is_available", "set_flags", "verbose"]

VERBOSE_OFF, VERBOSE_ON, VERBOSE_ON_CREATION = 0, 1, 2

enabled: bool = False
deterministic: bool = False
allow_tf32: bool | None = None

_WHY = "the CPU's kernels are Lucid's own, not oneDNN's"


def is_available() -> bool:
    """False: the CPU's kernels are Lucid's own."""
    return False


def is_acl_available() -> bool:
    """False: neither are those of Arm's library."""
    return False


def set_flags(
    _enabled: bool | None = None, _deterministic: bool | None = None, _allow_tf32: bool | None = None
) -> tuple[bool, bool, bool | None]:
    """Sets the switches that are given.

    Args:
        _enabled (bool, optional): the switch `enabled`, which changes nothing.
        _deterministic (bool, optional): the switch `deterministic`, which changes nothing.
        _allow_tf32 (bool, optional): the switch `allow_tf32`, which changes nothing.

    Returns:
        tuple: the former ones.

    Example:
        >>> lucid.backends.mkldnn.set_flags(_enabled=False)
        (False, False, None)
    """
    here = sys.modules[__name__]
    former = (enabled, deterministic, allow_tf32)
    for name, value in (("enabled", _enabled), ("deterministic", _deterministic), ("allow_tf32", _allow_tf32)):
        if value is not None:
            setattr(here, name, value)
    return former


@contextlib.contextmanager
def flags(enabled: bool = False, deterministic: bool = False, allow_tf32: bool | None = None) -> Iterator[None]:
    """A block in which the switches are as given.

    Args:
        enabled (bool, default: False): the switch `enabled`, which changes nothing.
        deterministic (bool, default: False): the switch `deterministic`, which changes nothing.
        allow_tf32 (bool, optional): the switch `allow_tf32`, which changes nothing.

    Returns:
        context manager: the block.

    Example:
        >>> with lucid.backends.mkldnn.flags(enabled=False):
        ...     print(lucid.backends.mkldnn.enabled)
        False
    """
    former = set_flags(enabled, deterministic, allow_tf32)
    try:
        yield
    finally:
        globals().update(zip(("enabled", "deterministic", "allow_tf32"), former, strict=True))


class verbose:
    """A block in which PyTorch's oneDNN prints its calls; here one warning says that there are none.

    Args:
        level (int): `VERBOSE_OFF`, `VERBOSE_ON` or `VERBOSE_ON_CREATION`.

    Example:
        >>> with lucid.backends.mkldnn.verbose(lucid.backends.mkldnn.VERBOSE_OFF):
        ...     pass
    """

    def __init__(self, level: int) -> None:
        self.level = level

    def __enter__(self) -> verbose:
        warn_without_effect("lucid.backends.mkldnn", _WHY, verbose=self.level != VERBOSE_OFF)
        return self

    def __exit__(self, *exc: object) -> None:
        """Nothing was printed."""


class _Switches(types.ModuleType):
    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("enabled", "deterministic", "allow_tf32"):
            warn_without_effect("lucid.backends.mkldnn", _WHY, **{name: bool(value)})
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Switches
