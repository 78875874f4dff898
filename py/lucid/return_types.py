"""Named tuples that ops with several results give back."""

from __future__ import annotations

from typing import Any, NamedTuple

from lucid import _C
from lucid._C import Tensor


class ValuesIndices(NamedTuple):
    """Elements, and the indices along the dimension where they were."""

    values: Tensor
    indices: Tensor


def _make(name: str) -> type[ValuesIndices]:
    def show(self: Any) -> str:
        return f"lucid.return_types.{name}(\nvalues={self.values!r},\nindices={self.indices!r})"

    body = {"__slots__": (), "__repr__": show, "__module__": __name__, "__doc__": ValuesIndices.__doc__}
    return type(name, (ValuesIndices,), body)


# By the op's name; `max` and `min` have no row of that name.
CLASSES = {
    name: _make(name.removesuffix("_dim"))
    for name in (*(row["name"] for row in _C._op_schemas() if row["returns"] == "ValuesIndices"), "max", "min")
}
globals().update({cls.__name__: cls for cls in CLASSES.values()})
