"""Small helpers: of the modules' arguments, and of their state dicts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["consume_prefix_in_state_dict_if_present", "tuple_of"]


def consume_prefix_in_state_dict_if_present(state_dict: dict[str, Any], prefix: str) -> None:
    """Takes a prefix such as "module." from the keys that begin with it, in place, and from those of `_metadata`.

    The order of the keys stays.
    """
    for names in (state_dict, getattr(state_dict, "_metadata", {})):
        items = list(names.items())
        names.clear()
        for name, value in items:
            # Of the prefix itself, without its dot, the metadata speaks as the root.
            names["" if name and name == prefix.rstrip(".") else name.removeprefix(prefix)] = value


def tuple_of(value: Any, n: int) -> tuple[int, ...]:
    """One number per dimension, from a number or a sequence."""
    if isinstance(value, Iterable):
        return tuple(value)
    return (value,) * n
