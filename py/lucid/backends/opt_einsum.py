"""The order of products in `lucid.einsum`, as `torch.backends.opt_einsum`.

At first more than two operands are multiplied from left to right. `enabled = True` has the engine look for a cheaper
order by the operands' sizes, as `strategy` says; the package opt_einsum is not needed. Results differ by rounding.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator
from typing import Any

from lucid import _C, errors

__all__ = ["enabled", "flags", "get_opt_einsum", "is_available", "set_flags", "strategy"]

# By the engine's numbers of orders; 0 is from left to right. "auto-hq" is the package's own word.
_ORDERS = {"auto": 1, "greedy": 2, "optimal": 3, "auto-hq": 3}
_strategy = "auto"


def is_available() -> bool:
    """Can another order than from left to right be looked for?

    Returns:
        bool: True.

    Example:
        >>> lucid.backends.opt_einsum.is_available()
        True
    """
    return True


def get_opt_einsum() -> Any:
    """The package opt_einsum, if it is installed. It is not used: the engine looks for the order.

    Returns:
        module: the package, or None.

    Example:
        >>> _ = lucid.backends.opt_einsum.get_opt_einsum()
    """
    with contextlib.suppress(ImportError):
        import opt_einsum  # type: ignore[import-not-found, unused-ignore]

        return opt_einsum
    return None


class _Switches(types.ModuleType):
    @property
    def enabled(self) -> bool:
        """Is another order than from left to right looked for? At first it is not."""
        return _C._einsum_order() != 0

    @enabled.setter
    def enabled(self, value: bool) -> None:
        _C._einsum_order(_ORDERS[_strategy] if value else 0)

    @property
    def strategy(self) -> str:
        """How: "optimal" finds the fewest multiplications of up to 10 operands, "auto" of up to 6; of more, and with
        "greedy", the pair whose product takes the least memory comes next. Set it after `enabled`."""
        return _strategy

    @strategy.setter
    def strategy(self, value: str) -> None:
        global _strategy
        if value not in _ORDERS:
            raise errors.ValueError(f"`strategy` must be one of {', '.join(_ORDERS)}, but is {value!r}")
        if not self.enabled:
            raise errors.ValueError(
                f"opt_einsum is not enabled, so setting `strategy` to {value!r} has no effect; set `enabled` to True"
            )
        _strategy = value
        _C._einsum_order(_ORDERS[value])


def set_flags(_enabled: bool | None = None, _strategy: str | None = None) -> tuple[bool, str]:
    """Sets the switches that are given.

    Args:
        _enabled (bool, optional): the switch `enabled`.
        _strategy (str, optional): the switch `strategy`.

    Returns:
        tuple: what both were before.

    Raises:
        ValueError: there is no such strategy, or `enabled` is off.

    Example:
        >>> former = lucid.backends.opt_einsum.set_flags(True, "greedy")
        >>> _ = lucid.backends.opt_einsum.set_flags(_strategy="auto"), lucid.backends.opt_einsum.set_flags(False)
        >>> former
        (False, 'auto')
    """
    here: Any = sys.modules[__name__]
    former = (here.enabled, here.strategy)
    if _enabled is not None:
        here.enabled = _enabled
    if _strategy is not None:
        here.strategy = _strategy
    return former


@contextlib.contextmanager
def flags(enabled: bool | None = None, strategy: str | None = None) -> Iterator[None]:
    """A block in which the switches are as given.

    Args:
        enabled (bool, optional): the switch `enabled`.
        strategy (str, optional): the switch `strategy`.

    Returns:
        context manager: the block.

    Raises:
        ValueError: there is no such strategy, or `enabled` is off.

    Example:
        >>> a, b = lucid.ones(2, 30), lucid.ones(30, 30)
        >>> with lucid.backends.opt_einsum.flags(enabled=True):
        ...     print(lucid.einsum("ij,jk,kl->i", a, b, b))
        tensor([27000., 27000.])
    """
    global _strategy
    order, former = _C._einsum_order(), _strategy
    try:
        set_flags(enabled, strategy)
        yield
    finally:
        _strategy = former
        _C._einsum_order(order)


enabled: bool
strategy: str
sys.modules[__name__].__class__ = _Switches
