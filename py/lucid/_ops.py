"""The classes of ops by PyTorch's names, for `isinstance`; `lucid.ops` has the ops."""

from __future__ import annotations

from typing import Any

from lucid import errors


class _OfOps(type):
    """An instance is what `lucid.ops` gives, and what a dispatch mode is given."""

    def __instancecheck__(cls, instance: object) -> bool:
        return cls is not HigherOrderOperator and type(instance).__name__ in ("Op", "_Native", "Operator")


class OperatorBase(metaclass=_OfOps):
    """Any op."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise errors.NotImplementedError(
            f"{type(self).__name__}: ops are not made by their class; lucid.library.custom_op makes one"
        )


class OpOverload(OperatorBase):
    """An op's overload, which here is the op: `lucid.ops.aten.add.Tensor`."""


class OpOverloadPacket(OperatorBase):
    """An op with its overloads: `lucid.ops.aten.add`."""


class HigherOrderOperator(OperatorBase):
    """An op of functions. Here these are Python functions, such as `lucid.cond`: nothing is an instance."""
