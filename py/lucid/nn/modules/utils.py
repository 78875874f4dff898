"""Small helpers: of the modules' arguments, and of their state dicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from lucid import errors

__all__ = ["consume_prefix_in_state_dict_if_present"]


def consume_prefix_in_state_dict_if_present(state_dict: dict[str, Any], prefix: str) -> None:
    """Takes a prefix such as "module." from the keys that begin with it, in place, and from those of `_metadata`.

    The order of the keys stays.

    Args:
        state_dict (dict[str, Any]): a state dict, which is changed.
        prefix (str): what is removed from the keys that begin with it.

    Example:
        >>> from lucid import nn
        >>> state = {"module.weight": lucid.zeros(1)}
        >>> nn.modules.utils.consume_prefix_in_state_dict_if_present(state, "module.")
        >>> list(state)
        ['weight']
    """
    for names in (state_dict, getattr(state_dict, "_metadata", {})):
        items = list(names.items())
        names.clear()
        for name, value in items:
            # Of the prefix itself, without its dot, the metadata speaks as the root.
            names["" if name and name == prefix.rstrip(".") else name.removeprefix(prefix)] = value


def _ntuple(n: int, name: str = "parse") -> Callable[[Any], tuple[Any, ...]]:
    """A function that makes one value per dimension, from a value for all of them or from a sequence."""

    def parse(x: Any) -> tuple[Any, ...]:
        return tuple(x) if isinstance(x, Iterable) else (x,) * n

    parse.__name__ = name
    return parse


_single = _ntuple(1, "_single")
_pair = _ntuple(2, "_pair")
_triple = _ntuple(3, "_triple")
_quadruple = _ntuple(4, "_quadruple")


def _reverse_repeat_tuple(t: Iterable[Any], n: int) -> tuple[Any, ...]:
    """Each value `n` times, the last first: what `pad` takes, from what convolutions do."""
    return tuple(value for value in reversed(tuple(t)) for _ in range(n))


def _list_with_default(out_size: Any, defaults: list[int]) -> Any:
    """Sizes, with those of `defaults`' end in the place of `None`; a number stays one."""
    if isinstance(out_size, int):
        return out_size
    if len(defaults) <= len(out_size):
        raise errors.ValueError(f"Input dimension should be at least {len(out_size) + 1}")
    return [d if v is None else v for v, d in zip(out_size, defaults[-len(out_size) :], strict=True)]
