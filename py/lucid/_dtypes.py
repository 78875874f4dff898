"""`finfo` and `iinfo`: the limits of dtypes; `dtypes`: all of them; `CLASSES`: what older classes call them."""

from __future__ import annotations

from lucid import _C, _absent_dtypes
from lucid._C import dtype as DType

#: Every dtype, once.
dtypes: tuple[DType, ...] = tuple(
    sorted({v for v in vars(_C).values() if isinstance(v, DType)}, key=lambda d: (d.is_complex, d.itemsize, repr(d)))
)

#: How PyTorch's older classes of each dtype begin: `FloatTensor`, `FloatStorage`.
CLASSES: dict[str, DType] = {
    "Bool": _C.bool,
    "Byte": _C.uint8,
    "Char": _C.int8,
    "Short": _C.int16,
    "Int": _C.int32,
    "Long": _C.int64,
    "Half": _C.float16,
    "BFloat16": _C.bfloat16,
    "Float": _C.float32,
    "Double": _C.float64,
    "ComplexFloat": _C.complex64,
    "ComplexDouble": _C.complex128,
}

# name: (bits of the significand after the point, largest exponent, decimal digits)
_FLOATS = {
    _C.float8_e4m3fn: (3, 8, 0),
    _C.float8_e5m2: (2, 15, 0),
    _C.float16: (10, 15, 3),
    _C.bfloat16: (7, 127, 2),
    _C.float32: (23, 127, 6),
    _C.float64: (52, 1023, 15),
    _C.complex64: (23, 127, 6),
    _C.complex128: (52, 1023, 15),
}


class finfo:
    """Limits of a floating dtype (the default one where none is given).

    Args:
        type (DType, optional): a floating dtype.

    Raises:
        TypeError: another dtype.

    Example:
        >>> lucid.finfo(lucid.float32).eps
        1.1920928955078125e-07
    """

    bits: int
    dtype: str
    eps: float
    max: float
    min: float
    resolution: float
    smallest_normal: float
    tiny: float

    def __init__(self, type: DType | _absent_dtypes.AbsentDtype | None = None) -> None:
        if isinstance(type, _absent_dtypes.AbsentDtype):
            limits = _absent_dtypes.LIMITS.get(type._name)
            if limits is None:
                raise TypeError(f"lucid.finfo() requires a floating point input type, got {type!r}")
            self.dtype, self.bits = type._name, 8
            self.max, self.smallest_normal, self.eps = limits
            self.min = self.smallest_normal if type._name == "float8_e8m0fnu" else -self.max
            self.tiny, self.resolution = self.smallest_normal, 1.0
            return
        dtype = _C.get_default_dtype() if type is None else type
        if dtype not in _FLOATS:
            raise TypeError(f"lucid.finfo() requires a floating point input type, got {dtype!r}. Use lucid.iinfo.")
        bits, top, digits = _FLOATS[dtype]
        real = dtype.to_real()
        self.dtype = repr(real).removeprefix("lucid.")
        self.bits = 8 * real.itemsize
        self.eps = 2.0**-bits
        # The largest bits of float8_e4m3fn mean NaN.
        self.max = 448.0 if dtype is _C.float8_e4m3fn else (2.0 - 2.0**-bits) * 2.0**top
        self.min = -self.max
        self.smallest_normal = 2.0**-6 if dtype is _C.float8_e4m3fn else 2.0 ** (1 - top)
        self.tiny = self.smallest_normal
        self.resolution = 10.0**-digits

    def __repr__(self) -> str:
        return (
            f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, eps={self.eps:g}, "
            f"smallest_normal={self.smallest_normal:g}, tiny={self.tiny:g}, dtype={self.dtype})"
        )


class iinfo:
    """Limits of an integer dtype.

    Args:
        type (DType): an integer dtype.

    Raises:
        TypeError: another dtype.

    Example:
        >>> lucid.iinfo(lucid.int8).max
        127
    """

    def __init__(self, type: DType) -> None:
        if not isinstance(type, DType) or type.is_floating_point or type.is_complex or type is _C.bool:
            raise TypeError(f"lucid.iinfo() requires an integer input type, got {type!r}. Use lucid.finfo.")
        self.dtype = repr(type).removeprefix("lucid.")
        self.bits = 8 * type.itemsize
        self.min = -(2 ** (self.bits - 1)) if type.is_signed else 0
        self.max = 2 ** (self.bits - 1) - 1 if type.is_signed else 2**self.bits - 1

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"
