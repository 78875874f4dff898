"""`op_schemas`: the op table, for whoever wants to look at it."""

from __future__ import annotations

from typing import Any

from lucid import _C


class OpSchema(dict[str, Any]):
    """One op as the table declares it: a dict whose keys are attributes too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def op_schemas() -> list[OpSchema]:
    """Every op: name, family, version, autocast policy, determinism, dtypes, parameters, samples, PyTorch's name, …"""
    return [OpSchema(row) for row in _C._op_schemas()]
