"""Anomaly mode: a backward pass that fails, or makes NaN, names the forward op and the line that called it."""

from __future__ import annotations

from typing import Any

from lucid import _C
from lucid._warnings import warn


def is_anomaly_enabled() -> bool:
    """Is anomaly mode on?"""
    return _C._anomaly()[0]


def is_anomaly_check_nan_enabled() -> bool:
    """Does anomaly mode look for NaN?"""
    return _C._anomaly()[1]


class set_detect_anomaly:
    """Sets anomaly mode for the process at once; as a context manager, for the block only.

    Args:
        mode (bool): turns it on.
        check_nan (bool, default: True): looks for NaN in gradients.

    Raises:
        TypeError: `mode` is no bool.

    Example:
        >>> with lucid.autograd.set_detect_anomaly(True):
        ...     print(lucid.is_anomaly_enabled())
        True
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        if not isinstance(mode, bool):
            raise TypeError(f"set_detect_anomaly(): argument 'mode' must be bool, not {type(mode).__name__}")
        self._former = _C._anomaly()
        _C._set_detect_anomaly(bool(mode), bool(check_nan))

    def __enter__(self) -> None: ...

    def __exit__(self, *exc: Any) -> None:
        _C._set_detect_anomaly(*self._former)


class detect_anomaly(set_detect_anomaly):
    """A block in anomaly mode: ops remember where they were called; an error in their backward, and with `check_nan` a
    NaN that it makes (a RuntimeError), is reported with that place. Slow: for finding mistakes. Evaluates gradients.

    Args:
        check_nan (bool, default: True): looks for NaN in gradients.

    Example:
        >>> with lucid.autograd.detect_anomaly():
        ...     print(lucid.is_anomaly_enabled())
        True
    """

    def __init__(self, check_nan: bool = True) -> None:
        self._former = _C._anomaly()
        self._check_nan = check_nan
        warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should only be enabled for "
            "debugging."
        )

    def __enter__(self) -> None:
        self._former = _C._anomaly()
        _C._set_detect_anomaly(True, bool(self._check_nan))
