"""`op_schemas`: the op table, for whoever wants to look at it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lucid import _C


class OpSchema(dict[str, Any]):
    """One op as the table declares it: a dict whose keys are attributes too.

    Args:
        row (Mapping[str, Any]): what the table says.

    Raises:
        TypeError: for what is no mapping.

    Example:
        >>> lucid.op_schemas()[0].name in [row["name"] for row in lucid.op_schemas()]
        True
    """

    def __init__(self, row: Mapping[str, Any]) -> None:
        # Of a sequence, such as a tensor, a dict would take every element before it looks at one.
        if not isinstance(row, Mapping):
            raise TypeError(f"lucid.OpSchema() takes a mapping, not '{type(row).__name__}'")
        super().__init__(row)

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def op_schemas() -> list[OpSchema]:
    """Every op: name, family, version, autocast policy, determinism, dtypes, parameters, samples, PyTorch's name, …"""
    return [OpSchema(row) for row in _C._op_schemas()]
