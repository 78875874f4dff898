"""Shapes and dtypes of a graph's values, from running it on an example."""

from __future__ import annotations

from typing import Any, NamedTuple

import lucid
from lucid.fx.interpreter import Interpreter
from lucid.fx.node import Node, map_aggregate

__all__ = ["ShapeProp", "TensorMetadata"]


class TensorMetadata(NamedTuple):
    """What `ShapeProp` notes of a node's result, in `node.meta["tensor_meta"]`.

    Args:
        shape (Size): the result's sizes.
        dtype (dtype): the result's dtype.
        requires_grad (bool): whether the result requires a gradient.
        stride (tuple of int): the result's strides, in elements.

    Example:
        >>> from lucid.fx.passes.shape_prop import ShapeProp
        >>> traced = lucid.fx.symbolic_trace(lambda x: x @ x)
        >>> _ = ShapeProp(traced).propagate(lucid.ones(2, 2))
        >>> [node.meta["tensor_meta"].shape for node in traced.graph.nodes if node.op == "call_function"]
        [lucid.Size([2, 2])]
    """

    shape: lucid.Size
    dtype: lucid.dtype
    requires_grad: bool
    stride: tuple[int, ...]


class ShapeProp(Interpreter):
    """Runs a graph and notes in each node's `meta` the shape and dtype (`"tensor_meta"`) and the type (`"type"`).

    Args:
        module (Module): the module with the graph.
        garbage_collect_values (bool, default: True): frees values as soon as they are not needed.
        graph (Graph, optional): the graph; that of `module` by default.

    Example:
        >>> from lucid import nn
        >>> traced = lucid.fx.symbolic_trace(nn.ReLU())
        >>> _ = lucid.fx.passes.shape_prop.ShapeProp(traced).propagate(lucid.ones(2, 3))
        >>> list(traced.graph.nodes)[-1].meta["tensor_meta"].shape
        lucid.Size([2, 3])
    """

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        found = False

        def note(v: Any) -> Any:
            nonlocal found
            if not isinstance(v, lucid.Tensor):
                return v
            found = True
            return TensorMetadata(v.shape, v.dtype, v.requires_grad, v.stride())

        meta = map_aggregate(result, note)
        if found:
            n.meta["tensor_meta"] = meta
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: Any) -> Any:
        """Runs the graph on an example and gives its result."""
        return super().run(*args)
