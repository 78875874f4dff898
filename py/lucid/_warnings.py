"""Warnings at the line of the user's program that led to them, however deep in Lucid the reason is found."""

from __future__ import annotations

import os
import sys
import warnings

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Gives a warning, of the first line on the stack that is not Lucid's own; a filter may make it an error.

    Args:
        message (str): what it says.
        category (type[Warning], optional): its class.

    Example:
        >>> lucid.autograd.warn("old")
    """
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


_given: set[str] = set()


def warn_once(reason: str, message: str, category: type[Warning] = UserWarning) -> None:
    """Gives a warning for a reason once in a process, unless `set_warn_always` wants it each time."""
    from lucid import _C

    if reason not in _given or _C._warn_always():
        _given.add(reason)
        warn(message, category)
