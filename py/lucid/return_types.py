"""Named tuples that ops with several results give back."""

from __future__ import annotations

from typing import Any, NamedTuple

from lucid import _C
from lucid._C import Tensor


class ValuesIndices(NamedTuple):
    """Elements, and the indices along the dimension where they were."""

    values: Tensor
    indices: Tensor


class MinMax(NamedTuple):
    """The smallest and the largest elements."""

    min: Tensor
    max: Tensor


class SignLogabsdet(NamedTuple):
    """Signs of determinants, and the logarithms of their absolute values."""

    sign: Tensor
    logabsdet: Tensor


class MantissaExponent(NamedTuple):
    """Mantissas, and the exponents of the powers of 2 that they are to be multiplied by."""

    mantissa: Tensor
    exponent: Tensor


class HistEdges(NamedTuple):
    """Counts, and the edges of the bins."""

    hist: Tensor
    bin_edges: Tensor


class HistEdgesList(NamedTuple):
    """Counts, and for each dimension the edges of its bins."""

    hist: Tensor
    bin_edges: tuple[Tensor, ...]


# Decompositions, by the op's name: what their parts are called.
_PARTS: dict[str, tuple[str, ...]] = {
    "geqrf": ("a", "tau"),
    "linalg_cholesky_ex": ("L", "info"),
    "linalg_eig": ("eigenvalues", "eigenvectors"),
    "linalg_eigh": ("eigenvalues", "eigenvectors"),
    "linalg_inv_ex": ("inverse", "info"),
    "linalg_ldl_factor": ("LD", "pivots"),
    "linalg_ldl_factor_ex": ("LD", "pivots", "info"),
    "linalg_lstsq": ("solution", "residuals", "rank", "singular_values"),
    "linalg_lu": ("P", "L", "U"),
    "linalg_lu_factor": ("LU", "pivots"),
    "linalg_lu_factor_ex": ("LU", "pivots", "info"),
    "linalg_qr": ("Q", "R"),
    "linalg_solve_ex": ("result", "info"),
    "linalg_svd": ("U", "S", "Vh"),
    "lu_unpack": ("P", "L", "U"),
    "svd": ("U", "S", "V"),
    "triangular_solve": ("solution", "cloned_coefficient"),
}


def _make(name: str, kind: type[Any]) -> type[Any]:
    def show(self: Any) -> str:
        fields = ",\n".join(f"{field}={value!r}" for field, value in zip(self._fields, self, strict=True))
        return f"lucid.return_types.{name}(\n{fields})"

    body = {"__slots__": (), "__repr__": show, "__module__": __name__, "__doc__": kind.__doc__}
    return type(name, (kind,), body)


_KINDS: dict[str, type[Any]] = {
    **{
        kind.__name__: kind
        for kind in (ValuesIndices, MinMax, SignLogabsdet, MantissaExponent, HistEdges, HistEdgesList)
    },
    # Without indices where no dimension is named.
    "MaybeIndices": ValuesIndices,
}
_ROWS = {row["name"]: row["returns"] for row in _C._op_schemas() if row["returns"] in _KINDS}
# By the op's name; `max` and `min` have no row of that name.
CLASSES = {
    name: _make(name.removesuffix("_dim"), _KINDS[kind])
    for name, kind in (*_ROWS.items(), ("max", "ValuesIndices"), ("min", "ValuesIndices"))
}
for _name, _fields in _PARTS.items():
    _kind = NamedTuple(_name, [(field, Tensor) for field in _fields])  # type: ignore[misc]
    _kind.__doc__ = "The parts that the op gives."
    CLASSES[_name] = _make(_name, _kind)
globals().update({cls.__name__: cls for cls in CLASSES.values()})
