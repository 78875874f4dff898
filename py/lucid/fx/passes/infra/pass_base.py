"""Passes over graphs, as `torch.fx.passes.infra.pass_base`."""

from __future__ import annotations

import abc
from typing import NamedTuple

from lucid.fx.graph_module import GraphModule

__all__ = ["PassBase", "PassResult"]


class PassResult(NamedTuple):
    """What a pass gives back.

    Args:
        graph_module (GraphModule): the module, changed or not.
        modified (bool): whether it was changed.

    Example:
        >>> from lucid.fx.passes.infra.pass_base import PassResult
        >>> PassResult(lucid.fx.symbolic_trace(lambda x: x + 1), False).modified
        False
    """

    graph_module: GraphModule
    modified: bool


class PassBase(abc.ABC):
    """A pass: `call` changes a module; `requires` and `ensures` check it before and after."""

    def __call__(self, graph_module: GraphModule) -> PassResult | None:
        self.requires(graph_module)
        result = self.call(graph_module)
        self.ensures(graph_module)
        return result

    @abc.abstractmethod
    def call(self, graph_module: GraphModule) -> PassResult | None:
        """Changes the module."""

    def requires(self, graph_module: GraphModule) -> None:  # noqa: B027
        """Checks the module before; may raise."""

    def ensures(self, graph_module: GraphModule) -> None:  # noqa: B027
        """Checks the module after; may raise."""
