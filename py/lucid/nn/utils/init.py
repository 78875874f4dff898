"""Modules whose parameters are not set to first values."""

from __future__ import annotations

from typing import Any

from lucid import errors

__all__ = ["skip_init"]


def skip_init(module_cls: type[Any], *args: Any, **kwargs: Any) -> Any:
    """A module whose parameters may hold anything. (Here they hold what they would anyway.)"""
    from lucid.nn import Module

    if not issubclass(module_cls, Module):
        raise errors.RuntimeError(f"Expected a Module; got {module_cls}")
    return module_cls(*args, **kwargs)
