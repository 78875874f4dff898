"""Floating-point operations of the ops where they count, from the shapes of their tensors.

A product that is added to a sum counts as two, as PyTorch and the makers of processors count.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

Shape = list[int]


def _attention(x: list[Shape], made: Shape) -> int:
    q, k, v = x[:3]
    return 2 * prod(q[:-1]) * k[-2] * (q[-1] + v[-1])


# By op, of the shapes of its tensors and of its result. Convolutions' weights are (out, in / groups, window…).
_COUNTS: dict[str, Callable[[list[Shape], Shape], int]] = {
    "matmul": lambda x, made: 2 * prod(made) * x[0][-1],
    "linear": lambda x, made: 2 * prod(made) * x[0][-1],
    "convolution": lambda x, made: 2 * prod(made) * prod(x[1][1:]),
    "convolution_input_gradient": lambda x, made: 2 * prod(x[0]) * prod(x[1][1:]),
    "convolution_weight_gradient": lambda x, made: 2 * prod(x[1]) * prod(made[1:]),
    "scaled_dot_product_attention": _attention,
    "add": lambda x, made: prod(made),
    "mul": lambda x, made: prod(made),
}


def flops(name: str, shapes: list[Shape], made: Shape) -> int:
    """The operations of one run of an op; 0 for those that are not counted."""
    count = _COUNTS.get(name)
    return count(shapes, made) if count is not None and shapes else 0


# The ops that are counted.
COUNTED = frozenset(_COUNTS)
