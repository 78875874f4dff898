"""How far results may lie apart, per dtype: the one place where tolerances are stated."""

from __future__ import annotations

# (relative, absolute)
FORWARD: dict[str, tuple[float, float]] = {
    "float64": (1e-9, 1e-10),
    "float32": (3e-5, 1e-5),
    "float16": (4e-3, 4e-3),
    "bfloat16": (3e-2, 3e-2),
    "complex64": (1e-4, 1e-5),
    "complex128": (1e-9, 1e-10),
}
# Gradients pass through several roundings more.
BACKWARD: dict[str, tuple[float, float]] = {
    "float64": (1e-7, 1e-8),
    "float32": (3e-4, 1e-4),
    "float16": (3e-2, 3e-2),
    "bfloat16": (2e-1, 2e-1),
    "complex64": (1e-3, 1e-4),
    "complex128": (1e-7, 1e-8),
}
# One rounding of a number of magnitude 1, for what is rounded as the largest number beside it is.
EPSILON: dict[str, float] = {"float64": 2.0**-52, "float32": 2.0**-23, "complex64": 2.0**-23, "complex128": 2.0**-52}
EXACT = (0.0, 0.0)
#: Of sums of large terms of both signs, added up in another order: float32's, as a part of the largest result.
SUMS = 1e-6


def forward(dtype: str) -> tuple[float, float]:
    """Tolerances of a result; integers and Booleans are exact."""
    return FORWARD.get(dtype, EXACT)


def backward(dtype: str) -> tuple[float, float]:
    """Tolerances of a gradient."""
    return BACKWARD.get(dtype, EXACT)
