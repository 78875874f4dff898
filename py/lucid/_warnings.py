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


def warn_without_effect(call: str, why: str, /, **asked: bool) -> None:
    """Warns, once in a process for each of a call's options that asks for something, that it has no effect, and why.

    Args:
        call (str): the function or class, or with dots the module whose setting it is.
        why (str): the reason.
        **asked (bool): by the names of options, whether it asks for what does not happen anyway.

    Example:
        >>> lucid._warnings.warn_without_effect("save", "one thread writes", thread_count=False)
    """
    for name, is_asked in asked.items():
        if is_asked:
            place = f"{call}." if "." in call else f"{call}(): "
            warn_once(f"{call}({name})", f"{place}{name} has no effect: {why}")


def warn_once(reason: str, message: str, category: type[Warning] = UserWarning) -> None:
    """Gives a warning for a reason once in a process, unless `set_warn_always` wants it each time."""
    from lucid import _C

    if reason not in _given or _C._warn_always():
        _given.add(reason)
        warn(message, category)
