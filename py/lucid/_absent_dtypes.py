"""Dtypes of PyTorch's that no tensor has here: names for tables, which say so when they are used."""

from __future__ import annotations

from typing import Any

from lucid import _C

_WHOLE = "integers have 8 bits at least; use lucid.int8 or lucid.uint8, or lucid.quantization for packed weights"
_FLOAT8 = "8-bit floats are lucid.float8_e4m3fn and lucid.float8_e5m2"
_SCALES = "scales of blocks are kept as lucid.uint8 or lucid.float32"
_FLOAT4 = "4-bit floats come packed in lucid.uint8"
_BITS = "bytes without a meaning are lucid.uint8"
_HALVES = "complex numbers are lucid.complex64 and lucid.complex128"

_REASONS: dict[str, str] = {
    **{f"{kind}{bits}": _WHOLE for kind in ("int", "uint") for bits in range(1, 8)},
    **dict.fromkeys(("float8_e4m3fnuz", "float8_e5m2fnuz"), _FLOAT8),
    "float8_e8m0fnu": _SCALES,
    "float4_e2m1fn_x2": _FLOAT4,
    **dict.fromkeys(("bits1x8", "bits2x4", "bits4x2", "bits8", "bits16"), _BITS),
    **dict.fromkeys(("complex32", "chalf", "bcomplex32"), _HALVES),
}

#: Largest number, smallest normal one and the step after 1 of the absent floating dtypes.
LIMITS = {
    "float8_e4m3fnuz": (240.0, 2.0**-7, 2.0**-3),
    "float8_e5m2fnuz": (57344.0, 2.0**-15, 2.0**-2),
    "float8_e8m0fnu": (2.0**127, 2.0**-127, 1.0),
}


class AbsentDtype:
    """A dtype that no tensor has here. It can be compared, hashed and looked up; where a dtype is needed, it is a
    TypeError that says what there is instead.

    Args:
        name (str): the name in PyTorch.

    Example:
        >>> lucid.uint4, lucid.uint4 == lucid.uint8, lucid.uint4.itemsize
        (lucid.uint4, False, 1)
    """

    __slots__ = ("_name", "is_complex", "is_floating_point", "is_signed", "itemsize", "sentence")

    def __init__(self, name: str) -> None:
        self._name = "complex32" if name == "chalf" else name
        self.is_floating_point = name.startswith("float")
        self.is_complex = _REASONS[name] is _HALVES
        self.is_signed = not name.startswith(("uint", "bits"))
        self.itemsize = 4 if self.is_complex else 2 if name == "bits16" else 1
        self.sentence = f"lucid.{self._name}, which no tensor has here: {_REASONS[name]}"

    def __repr__(self) -> str:
        return repr(_C.float32).replace("float32", self._name)

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return get, (self._name,)


_made: dict[str, AbsentDtype] = {}


def names() -> list[str]:
    """The names of the dtypes.

    Returns:
        list of str: the names.

    Example:
        >>> "uint4" in lucid._absent_dtypes.names()
        True
    """
    return list(_REASONS)


def get(name: str) -> AbsentDtype:
    """The dtype of a name, the same object each time.

    Args:
        name (str): one of `names()`.

    Returns:
        AbsentDtype: the dtype.

    Raises:
        KeyError: there is no such name.

    Example:
        >>> lucid._absent_dtypes.get("chalf") is lucid._absent_dtypes.get("complex32")
        True
    """
    _REASONS[name]
    kept = "complex32" if name == "chalf" else name
    if kept not in _made:
        _made[kept] = AbsentDtype(kept)
    return _made[kept]
