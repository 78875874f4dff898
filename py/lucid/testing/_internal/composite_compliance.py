"""What the name of an op says of its result: is it a view, or one of its operands?"""

from __future__ import annotations

import re
from typing import Any

from lucid._tags import INPLACE_VIEWS

_VIEWS = frozenset(
    [
        *(
            "as_strided",
            "detach",
            "diagonal",
            "expand",
            "expand_as",
            "movedim",
            "narrow",
            "permute",
            "select",
            "squeeze",
        ),
        *("transpose", "t", "real", "imag", "view_as_real", "view_as_complex", "unflatten", "unfold", "unsqueeze"),
        *("view", "view_as", "unbind", "split", "split_with_sizes", "vsplit", "hsplit", "tensor_split", "chunk"),
        *("swapaxes", "slice", "_reshape_alias", "_unsafe_view", "_conj", "alias"),
    ]
)


def _name(func: Any) -> str:
    packet = func.overloadpacket
    return str(getattr(packet, "_opname", None) or packet.__name__)


def is_view_fn(func: Any) -> bool:
    """Is an op's result a view of its operand?"""
    return _name(func) in _VIEWS


def is_inplace_view_fn(func: Any) -> bool:
    """Does an op change its operand's shape or strides?"""
    return _name(func) in INPLACE_VIEWS


def is_inplace(func: Any) -> bool:
    """Does an op write to its operand?"""
    name = _name(func)
    return name.startswith("__i") if re.fullmatch("__.+__", name) else name.endswith("_")
