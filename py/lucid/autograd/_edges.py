"""Edges of the graph, which `grad` and `backward` take in the place of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from lucid import _C
from lucid._C import Tensor
from lucid._C import _Node as Node


class _Fields(NamedTuple):
    node: Node
    output_nr: int
    ownership_token: Any = None


class GradientEdge(_Fields):
    """Names a result of a backward node, where a gradient arrives. `grad` and `backward` take it in place of a tensor.

    Unlike a tensor it does not keep the elements. As an output without a weight it must be that of a tensor of one
    element, and come from `get_gradient_edge`.

    Args:
        node (Node): the backward node.
        output_nr (int): which of the op's results, from 0.
        ownership_token (object, optional): as in PyTorch; here the node keeps all that it needs.

    Example:
        >>> x = lucid.tensor([1.0, 2.0], requires_grad=True)
        >>> y = x * 3
        >>> edge = lucid.autograd.graph.GradientEdge(y.grad_fn, 0)
        >>> lucid.autograd.grad(y.sum(), edge)
        (tensor([1., 1.]),)
    """

    _like: Tensor | None = None
    """Something of the result's shape, dtype and device, in memory of one element."""

    def _stand_in(self, weight: Tensor | None = None) -> Tensor:
        """A tensor to name in its place, as a root with this weight or as an input."""
        like = weight if self._like is None else self._like
        return self.node._stand_in(self.output_nr, _C.zeros(0) if like is None else like)


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """Where the gradient of `tensor` goes. For a leaf it is the node that adds to its `grad`.

    Args:
        tensor (Tensor): a tensor of any shape that requires gradients.

    Returns:
        GradientEdge: the edge.

    Raises:
        RuntimeError: the tensor requires no gradients.

    Example:
        >>> x = lucid.ones(1, requires_grad=True)
        >>> edge = lucid.autograd.graph.get_gradient_edge(x * 2)
        >>> edge.output_nr
        0
    """
    found = tensor._gradient_edge()
    if found is None:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    edge = GradientEdge(*found)
    edge._like = _C.zeros((), dtype=tensor.dtype, device=tensor.device).expand(tuple(tensor.shape))
    return edge


Place: TypeAlias = Tensor | GradientEdge
Places: TypeAlias = Place | Sequence[Place]


def listed(places: Places) -> tuple[Place, ...]:
    """One tensor or edge, or several, as a tuple."""
    return (places,) if isinstance(places, (Tensor, GradientEdge)) else tuple(places)


def inputs_of(places: Sequence[Place]) -> tuple[Tensor, ...]:
    """Tensors to differentiate by."""
    for p in places:
        if not isinstance(p, (Tensor, GradientEdge)):
            raise RuntimeError(f"all inputs have to be Tensors or GradientEdges, but got {type(p).__name__}")
    return tuple(p._stand_in() if isinstance(p, GradientEdge) else p for p in places)


def outputs_of(places: Sequence[Place], weights: Any) -> tuple[Tensor, ...]:
    """Tensors to differentiate, which have these weights."""
    if not any(isinstance(p, GradientEdge) for p in places):
        return places  # type: ignore[return-value]
    given = [weights] * len(places) if weights is None or isinstance(weights, Tensor) else list(weights)
    if len(given) != len(places):
        raise RuntimeError(f"got {len(places)} tensors and {len(given)} gradients")
    found = []
    for p, w in zip(places, given, strict=True):
        if not isinstance(p, GradientEdge):
            found.append(p)
            continue
        if w is None and p._like is None:
            raise RuntimeError("grad can be implicitly created only for scalar outputs")
        found.append(p._stand_in(w))
    return tuple(found)
