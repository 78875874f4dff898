"""The base class of constraints."""

from __future__ import annotations

from typing import Any

from lucid import Tensor


class Constraint:
    """A region of values; the base class of all constraints.

    Attributes:
        is_discrete (bool): whether the region is discrete. Default: False.
        event_dim (int): how many of the last dimensions make one event. Default: 0.

    Example:
        >>> from lucid.distributions import constraints
        >>> constraints.positive.check(lucid.tensor([-1.0, 1.0]))
        tensor([False,  True])
    """

    is_discrete: Any = False
    event_dim: Any = 0
    #: The numbers or tensors that the region depends on, for `repr`.
    _bounds: tuple[str, ...] = ()

    def check(self, value: Tensor) -> Tensor:
        """Says which events are in the region.

        Args:
            value (Tensor): events, of shape `(..., *event)`.

        Returns:
            Tensor: bool, without the last `event_dim` dimensions.

        Example:
            >>> from lucid.distributions import constraints
            >>> constraints.simplex.check(lucid.tensor([0.25, 0.75]))
            tensor(True)
        """
        raise NotImplementedError

    def __repr__(self) -> str:
        bounds = ", ".join(f"{name}={getattr(self, name)}" for name in self._bounds)
        return f"{self.__class__.__name__.removeprefix('_')}({bounds})"


# ---- what depends on others ------------------------------------------------------------------------------------------
