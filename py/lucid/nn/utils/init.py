"""Modules whose parameters are not set to first values."""

from __future__ import annotations

from typing import Any

from lucid import errors

__all__ = ["skip_init"]


def skip_init(module_cls: type[Any], *args: Any, **kwargs: Any) -> Any:
    """A module whose parameters may hold anything. (Here they hold what they would anyway.)

    Args:
        module_cls (type[Any]): the module's class.
        *args (object): the arguments of its constructor.
        **kwargs (object): the keyword arguments of its constructor, `device` among them.

    Returns:
        Module: the module.

    Raises:
        RuntimeError: the class takes no `device`.

    Example:
        >>> from lucid import nn
        >>> nn.utils.skip_init(nn.Linear, 3, 2)
        Linear(in_features=3, out_features=2, bias=True)
    """
    from lucid.nn import Module

    if not issubclass(module_cls, Module):
        raise errors.RuntimeError(f"Expected a Module; got {module_cls}")
    return module_cls(*args, **kwargs)
