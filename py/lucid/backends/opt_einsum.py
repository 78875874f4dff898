"""The order of products in `lucid.einsum`, as `torch.backends.opt_einsum`: from left to right. The package
opt_einsum is not asked for another, so the switches say what PyTorch's say where it is not installed."""

from __future__ import annotations

import sys
import types
from typing import Any

from lucid import errors


def is_available() -> bool:
    """Does opt_einsum choose the order?

    Returns:
        bool: False.

    Example:
        >>> lucid.backends.opt_einsum.is_available()
        False
    """
    return False


def get_opt_einsum() -> Any:
    """The package opt_einsum where it chooses the order.

    Returns:
        None: it does not.

    Example:
        >>> lucid.backends.opt_einsum.get_opt_einsum()
    """


class _Switches(types.ModuleType):
    @property
    def enabled(self) -> bool:
        """Is another order than from left to right looked for? False; True is a ValueError."""
        return False

    @enabled.setter
    def enabled(self, value: bool) -> None:
        if value:
            raise errors.ValueError("opt_einsum is not used: einsum multiplies from left to right")

    @property
    def strategy(self) -> str | None:
        """How another order is looked for: None; any other is a ValueError."""
        return None

    @strategy.setter
    def strategy(self, value: str | None) -> None:
        if value is not None:
            raise errors.ValueError(f"opt_einsum is not used: there is no strategy {value!r}")


sys.modules[__name__].__class__ = _Switches
