"""`lucid._foreach_*`: an op of each tensor of a list, under PyTorch's names for it, which optimizers of others call.

Each is the op of that name, called once per tensor: on the GPU device the calls are recorded and run together, on the
CPU one after the other. Results come as a tuple; what ends in an underscore writes to the tensors and returns the list
that it was given. Operands are a number or a tensor without dimensions for all, or a list with one number or tensor
each.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from lucid import _C, errors
from lucid._C import Tensor

_ALONE = (
    *("abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor", "frac", "lgamma"),
    *("log", "log10", "log1p", "log2", "neg", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt"),
    *("tan", "tanh", "trunc"),
)
_OF_TWO = ("add", "sub", "mul", "div", "pow", "clamp_max", "clamp_min", "maximum", "minimum")
_OF_THREE = ("addcdiv", "addcmul")


@functools.cache
def names() -> frozenset[str]:
    """The functions that there are."""
    both = (*_ALONE, *_OF_TWO, *_OF_THREE, "lerp")
    rest = ("clone", "copy_", "max", "mm", "norm", "powsum", "zero_")
    return frozenset(f"_foreach_{name}" for name in (*both, *(f"{name}_" for name in both), *rest))


def _tensors(op: str, given: Any, at: str = "self") -> list[Tensor]:
    if not isinstance(given, (list, tuple)):
        raise errors.TypeError(f"{op}(): argument '{at}' must be a tuple of Tensors, not {type(given).__name__}")
    for i, x in enumerate(given):
        if not isinstance(x, Tensor):
            raise errors.TypeError(f"{op}(): expected Tensor as element {i} of argument '{at}', got {type(x).__name__}")
    if not given:
        raise errors.RuntimeError(f"{op}(): Tensor list must have at least one tensor.")
    return list(given)


def _number(x: Any) -> bool:
    return isinstance(x, (bool, int, float, complex))


def _each(op: str, n: int, given: Any, at: str) -> list[Any]:
    """An operand for each of `n` tensors."""
    if _number(given):
        return [given] * n
    if isinstance(given, Tensor):
        if given.dim() != 0:
            raise errors.RuntimeError(
                f"{op}(): scalar tensor expected to be 0 dim but it has {given.dim()} dimensions and {given.numel()} "
                "elements."
            )
        return [given] * n
    if not isinstance(given, (list, tuple)) or not (
        all(isinstance(x, Tensor) for x in given) or all(map(_number, given))
    ):
        raise errors.TypeError(
            f"{op}(): argument '{at}' must be a number, a list of numbers or a list of Tensors, got "
            f"{type(given).__name__}"
        )
    if len(given) != n:
        if given and _number(given[0]):
            raise errors.RuntimeError(
                f"{op}(): Tensor list must have same number of elements as scalar list, got {n} and {len(given)}."
            )
        raise errors.RuntimeError(
            f"{op}(): Tensor lists must have the same number of tensors, got {n} and {len(given)}"
        )
    return list(given)


def _done(given: Any, made: list[Tensor], in_place: bool) -> Any:
    return given if in_place else tuple(made)


def _alone(op: str, method: str, in_place: bool) -> Callable[..., Any]:
    def call(self: Any) -> Any:
        return _done(self, [getattr(x, method)() for x in _tensors(op, self)], in_place)

    return call


def _of_two(op: str, name: str, in_place: bool) -> Callable[..., Any]:
    # The larger or smaller of two is a clamp, which takes numbers too.
    method = {"maximum": "clamp_min", "minimum": "clamp_max"}.get(name, name) + "_" * in_place

    def call(self: Any, *args: Any, alpha: Any = None, **named: Any) -> Any:
        at = next(iter(named), "exponent" if name == "pow" else "other")
        if len(args) + len(named) != 1 or at not in ("other", "scalar", "scalars", "exponent"):
            raise errors.TypeError(f"{op}() takes a list of tensors and one operand, a number or a list")
        other = args[0] if args else named[at]
        if name == "pow" and not in_place and _number(self):
            return tuple(_C.pow(self, x) for x in _tensors(op, other, "exponent"))
        xs = _tensors(op, self)
        pairs = list(zip(xs, _each(op, len(xs), other, at), strict=True))
        if alpha is None:
            return _done(self, [getattr(x, method)(o) for x, o in pairs], in_place)
        if name not in ("add", "sub") or any(map(_number, (o for _, o in pairs))):
            raise errors.TypeError(f"{op}() takes 'alpha' only where it adds or subtracts tensors, not numbers")
        return _done(self, [getattr(x, method)(o, alpha=alpha) for x, o in pairs], in_place)

    return call


def _of_three(op: str, method: str, in_place: bool) -> Callable[..., Any]:
    def call(self: Any, tensor1: Any, tensor2: Any, value: Any = 1, *, scalars: Any = None) -> Any:
        xs = _tensors(op, self)
        n = len(xs)
        factors = value if scalars is None else scalars
        if isinstance(factors, Tensor):
            if factors.dim() != 1:
                raise errors.RuntimeError(
                    f"{op}(): Expected packed scalar Tensor to be of dimension 1. Got {factors.dim()}"
                )
            factors = factors.tolist()
        parts = (_each(op, n, _tensors(op, t, at), at) for t, at in ((tensor1, "tensor1"), (tensor2, "tensor2")))
        pairs = zip(xs, *parts, _each(op, n, factors, "scalars"), strict=True)
        return _done(self, [getattr(x, method)(a, b, value=v) for x, a, b, v in pairs], in_place)

    return call


def _lerp(op: str, method: str, in_place: bool) -> Callable[..., Any]:
    def call(self: Any, tensors1: Any, weight: Any = None, *, weights: Any = None) -> Any:
        xs = _tensors(op, self)
        ends = _each(op, len(xs), _tensors(op, tensors1, "tensors1"), "tensors1")
        by = _each(op, len(xs), weight if weights is None else weights, "weight")
        return _done(self, [getattr(x, method)(e, w) for x, e, w in zip(xs, ends, by, strict=True)], in_place)

    return call


def _clone(self: Any) -> tuple[Tensor, ...]:
    return tuple(x.clone() for x in _tensors("_foreach_clone", self))


def _zero_(self: Any) -> Any:
    return _done(self, [x.zero_() for x in _tensors("_foreach_zero_", self)], True)


def _copy_(self: Any, src: Any, non_blocking: bool = False) -> Any:
    xs = _tensors("_foreach_copy_", self)
    sources = _each("_foreach_copy_", len(xs), _tensors("_foreach_copy_", src, "src"), "src")
    return _done(self, [x.copy_(s, non_blocking) for x, s in zip(xs, sources, strict=True)], True)


def _max(self: Any) -> tuple[Tensor, ...]:
    return tuple(x.max() for x in _tensors("_foreach_max", self))


def _mm(self: Any, mat2: Any) -> tuple[Tensor, ...]:
    xs = _tensors("_foreach_mm", self)
    others = _each("_foreach_mm", len(xs), _tensors("_foreach_mm", mat2, "mat2"), "mat2")
    return tuple(x.mm(y) for x, y in zip(xs, others, strict=True))


def _norm(self: Any, ord: Any = 2, dtype: Any = None) -> tuple[Tensor, ...]:
    return tuple(_C.linalg_vector_norm(x, ord, dtype=dtype) for x in _tensors("_foreach_norm", self))


def _powsum(self: Any, ord: Any = 2, dtype: Any = None) -> tuple[Tensor, ...]:
    return tuple(x.abs().pow(ord).sum(dtype=dtype) for x in _tensors("_foreach_powsum", self))


_OTHERS: dict[str, Callable[..., Any]] = {
    "clone": _clone,
    "copy_": _copy_,
    "max": _max,
    "mm": _mm,
    "norm": _norm,
    "powsum": _powsum,
    "zero_": _zero_,
}


def make(name: str) -> Callable[..., Any]:
    """One of the functions of `names()`."""
    method = name.removeprefix("_foreach_")
    plain, in_place = method.removesuffix("_"), method.endswith("_")
    if method in _OTHERS:
        function = _OTHERS[method]
    elif plain in _ALONE:
        function = _alone(name, method, in_place)
    elif plain in _OF_TWO:
        function = _of_two(name, plain, in_place)
    elif plain in _OF_THREE:
        function = _of_three(name, method, in_place)
    else:
        function = _lerp(name, method, in_place)
    function.__name__ = function.__qualname__ = name
    function.__module__ = "lucid"
    return function
