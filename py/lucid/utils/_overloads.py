"""Which of an op's signatures takes given arguments, by PyTorch's names of them."""

from __future__ import annotations

from typing import Any

from lucid import Tensor

_ALWAYS = {
    **dict.fromkeys(("add", "sub", "mul", "div", "add_", "sub_", "mul_", "div_", "index", "slice", "split"), "Tensor"),
    **dict.fromkeys(("transpose", "select", "unbind"), "int"),
    **dict.fromkeys(("var", "std", "var_mean", "std_mean"), "correction"),
    **{"where": "self", "empty": "memory_format", "bernoulli_": "float"},
}
#: Those whose second operand, a tensor or a number, is named.
_SECOND = frozenset(
    f"{name}{end}"
    for name in ("eq", "ne", "lt", "le", "gt", "ge", "remainder", "fmod", "bitwise_and", "bitwise_or", "bitwise_xor")
    for end in ("", "_")
)
_DIMS = {
    **{"sum": "dim_IntList", "mean": "dim", "max": "dim", "min": "dim", "any": "dim", "all": "dim", "median": "dim"},
    **{"squeeze": "dim", "prod": "dim_int"},
}


def overload(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Which of an op's signatures takes these arguments: `Tensor` of `aten.add.Tensor`."""
    second = args[1] if len(args) > 1 else kwargs.get("other", kwargs.get("value"))
    if name == "div" and kwargs.get("rounding_mode") is not None:
        return "Tensor_mode"
    if name in _ALWAYS:
        return _ALWAYS[name]
    if name in _SECOND:
        return "Tensor" if isinstance(second, Tensor) else "Scalar"
    if name in ("fill_", "masked_fill", "masked_fill_"):
        value = args[-1] if args else None
        return "Tensor" if isinstance(kwargs.get("value", value), Tensor) else "Scalar"
    if name in ("pow", "pow_"):
        kinds = ["Tensor" if isinstance(v, Tensor) else "Scalar" for v in (args[0], second)] if args else []
        return "default" if not kinds else "Scalar" if kinds[0] == "Scalar" else "_".join(kinds)
    if name in _DIMS and (len(args) > 1 or "dim" in kwargs):
        if isinstance(second, Tensor):
            return "other"
        return "dims" if name == "squeeze" and isinstance(second, (tuple, list)) else _DIMS[name]
    return "default"
