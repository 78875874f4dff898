"""What ops take and give: NumPy arrays, lists and Lucid's tensors on one side, tensors of the engine on the other.

A contiguous float32 array in the CPU's memory is shown to the engine where it is. Everything is checked before anything
is computed, so that a call that fails has written nothing.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from typing import Any

from lucid import _C, errors
from lucid._convert import from_numpy
from lucid._convert import to_numpy as _show
from lucid.lightning._trace import RING

__all__ = ["INPUT_CHECKS", "Given", "runtime_input_check_get", "runtime_input_check_set"]

Tensor = _C.Tensor
_from_dlpack = _C._from_dlpack
_FLOAT32 = _C.float32
MOST_ELEMENTS = 1 << 61
# Below this many bytes copying a result costs less than showing it to NumPy.
SMALL_BYTES = 1 << 16

INPUT_CHECKS = ("none", "nan", "finite")


class _Settings:
    input_check = "none"
    # NumPy's array class and its float32, once somebody has imported it.
    ndarray: Any = None
    float32: Any = None


def runtime_input_check_set(check: str) -> None:
    """Sets which values of operands are errors. The check reads all operands of an op once more before it computes.

    Args:
        check (str): `"none"` (at first), `"nan"`, or `"finite"`: NaN and infinities are errors.

    Raises:
        ValueError: `check` is none of these.

    Example:
        >>> import lucid.lightning as lc
        >>> lc.runtime_input_check_set("finite")
        >>> lc.vector_add([float("inf")], [1.0], "cpu")
        Traceback (most recent call last):
        ...
        lucid.errors.ValueError: vector_add()...
        >>> lc.runtime_input_check_set("none")
    """
    if check not in INPUT_CHECKS:
        raise errors.ValueError(f"runtime_input_check_set(): expected one of {', '.join(INPUT_CHECKS)}, got {check!r}")
    _Settings.input_check = check


def runtime_input_check_get() -> str:
    """Which values of operands are errors: `"none"`, `"nan"` or `"finite"`."""
    return _Settings.input_check


def _ndarray() -> Any:
    """NumPy's array class; `None` while nobody has imported NumPy, so that nothing can be one."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not hasattr(numpy, "ndarray"):
        return None
    _Settings.ndarray, _Settings.float32 = numpy.ndarray, numpy.dtype("float32")
    return numpy.ndarray


def numpy() -> Any:
    """NumPy, or an error that says how to install it."""
    from lucid._convert import _numpy

    return _numpy()


class Given:
    """An operand: the tensor that shows it and what it was, so that the result can be of the same kind."""

    __slots__ = ("address", "kind", "tensor")

    def __init__(self, tensor: Tensor, kind: str, address: int) -> None:
        self.tensor = tensor
        self.kind = kind
        self.address = address


def _kind_error(op: str, name: str, x: object) -> errors.TypeError:
    return errors.TypeError(
        f"{op}: {name} must be a float32 NumPy array, a list of numbers or a float32 lucid.Tensor, "
        f"got {type(x).__name__}"
    )


def _check_values(op: str, name: str, tensor: Tensor) -> None:
    bad = _C.isnan(tensor) if _Settings.input_check == "nan" else ~_C.isfinite(tensor)
    if bad.any().item():
        raise errors.ValueError(
            f"{op}: {name} has values that are {'NaN' if _Settings.input_check == 'nan' else 'NaN or infinite'}; "
            'runtime_input_check_set("none") lets them through'
        )


def given(op: str, name: str, x: Any) -> Given:
    """An operand of an op, checked; without a copy where it is an array or a tensor.

    Raises:
        TypeError: It is neither array, list nor tensor.
        DtypeMismatch: An array's or a tensor's dtype is not float32.
        ValueError: It is empty, or the input check refuses a value.
    """
    ndarray = _Settings.ndarray or _ndarray()
    if ndarray is not None and isinstance(x, ndarray):
        # NumPy's own dtype object, which most arrays have, says at once what the longer question asks.
        if x.dtype is not _Settings.float32 and (x.dtype.char != "f" or not x.dtype.isnative):
            raise errors.DtypeMismatch(
                f"{op}: {name} must be float32 of the machine's byte order, got {x.dtype}; use astype(np.float32)"
            )
        if x.size == 0:
            raise errors.ValueError(f"{op}: {name} is empty, of shape {x.shape}")
        try:
            tensor = _from_dlpack(x.__dlpack__())[0]
        except (BufferError, ValueError):
            # DLPack of this kind cannot say "read-only", nor have strides that are no whole elements.
            tensor = _odd(x)
        kind, address = "numpy", id(x)
    elif isinstance(x, Tensor):
        tensor = x
        if tensor.dtype is not _FLOAT32:
            raise errors.DtypeMismatch(f"{op}: {name} must be float32, got {tensor.dtype}; use float()")
        if tensor.numel() == 0:
            raise errors.ValueError(f"{op}: {name} is empty, of shape {tuple(tensor.shape)}")
        kind, address = "tensor", id(x)
    elif isinstance(x, (list, tuple)):
        try:
            tensor = _C.tensor(x, dtype=_FLOAT32)
        except (TypeError, ValueError, RuntimeError) as e:
            raise errors.TypeError(f"{op}: {name} is no (nested) list of numbers: {e}") from None
        if tensor.numel() == 0:
            raise errors.ValueError(f"{op}: {name} is empty")
        kind, address = "list", 0
    else:
        raise _kind_error(op, name, x)
    if _Settings.input_check != "none":
        _check_values(op, name, tensor)
    return Given(tensor, kind, address)


def _odd(x: Any) -> Tensor:
    """A tensor of an array that DLPack does not show: one that is read-only, which the engine refuses to write to, or
    else a copy."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return from_numpy(x.copy() if x.flags.writeable else x)


def shaped(op: str, name: str, operand: Given, shape: Sequence[int]) -> Tensor:
    """The operand in `shape`: as it is, or flat with as many elements.

    Raises:
        ShapeMismatch: It has another shape.
    """
    tensor = operand.tensor
    have = tensor.shape
    wanted = tuple(shape)
    if have == wanted:
        return tensor
    if len(have) == 1 and have[0] == math.prod(wanted):
        return tensor.reshape(wanted)
    raise errors.ShapeMismatch(f"{op}: {name} must have shape {wanted} (or be flat), got {tuple(have)}")


def sizes(op: str, **named: Any) -> tuple[int, ...]:
    """Sizes given as arguments: whole numbers from 1 on whose product an array can have.

    Raises:
        TypeError: One is no int.
        ValueError: One is smaller than 1, or all are too large together.
    """
    out = []
    for name, value in named.items():
        if type(value) is int and 0 < value < 1 << 31:
            out.append(value)
            continue
        index = getattr(value, "__index__", None)
        if index is None or isinstance(value, bool):
            raise errors.TypeError(f"{op}: {name} must be an int, got {type(value).__name__}")
        size = int(index())
        if size < 1:
            raise errors.ValueError(f"{op}: {name} must be at least 1, got {size}")
        out.append(size)
    if math.prod(out) >= MOST_ELEMENTS:
        raise errors.ValueError(f"{op}: sizes {tuple(out)} are too large")
    return tuple(out)


def number(op: str, name: str, value: Any, *, least: float | None = None) -> float:
    """A finite number given as an argument.

    Raises:
        TypeError: It is no number.
        ValueError: It is NaN, infinite, or below `least`.
    """
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        raise errors.TypeError(f"{op}: {name} must be a number, got {type(value).__name__}")
    out = float(value)
    if not math.isfinite(out) or (least is not None and out < least):
        bound = "" if least is None else f" from {least} on"
        raise errors.ValueError(f"{op}: {name} must be a finite number{bound}, got {out}")
    return out


def output(op: str, x: Any, shape: Sequence[int], name: str = "out") -> Tensor:
    """The memory a call writes its result into: exactly `shape`, or flat with as many elements.

    Raises:
        TypeError: It is neither array nor tensor.
        DtypeMismatch: It is not float32.
        ShapeMismatch: It has another shape.
        ValueError: It is read-only or not contiguous.
    """
    ndarray = _ndarray()
    wanted = tuple(shape)
    if ndarray is not None and isinstance(x, ndarray):
        if x.dtype.char != "f" or not x.dtype.isnative:
            raise errors.DtypeMismatch(f"{op}: {name} must be float32 of the machine's byte order, got {x.dtype}")
        if x.shape != wanted and x.shape != (math.prod(wanted),):
            raise errors.ShapeMismatch(f"{op}: {name} must have shape {wanted} (or be flat), got {x.shape}")
        flags = x.flags
        if not flags.writeable:
            raise errors.ValueError(f"{op}: {name} is read-only")
        if not flags.c_contiguous:
            raise errors.ValueError(f"{op}: {name} is not contiguous; use np.empty({wanted}, np.float32)")
        tensor = _from_dlpack(x.__dlpack__())[0]
    elif isinstance(x, Tensor):
        if x.dtype is not _FLOAT32:
            raise errors.DtypeMismatch(f"{op}: {name} must be float32, got {x.dtype}")
        if tuple(x.shape) != wanted and tuple(x.shape) != (math.prod(wanted),):
            raise errors.ShapeMismatch(f"{op}: {name} must have shape {wanted} (or be flat), got {tuple(x.shape)}")
        if x.requires_grad:
            raise errors.ValueError(f"{op}: {name} requires a gradient; pass {name}.detach()")
        if not x.is_contiguous():
            raise errors.ValueError(f"{op}: {name} is not contiguous")
        tensor = x
    else:
        raise errors.TypeError(f"{op}: {name} must be a float32 NumPy array or lucid.Tensor, got {type(x).__name__}")
    return tensor if tuple(tensor.shape) == wanted else tensor.view(wanted)


def apart(op: str, out: Tensor, **operands: Tensor) -> None:
    """Refuses an output that overlaps an operand, which would be read after it was written.

    Raises:
        ValueError: They overlap.
    """
    if not out.is_cpu:
        return
    start = out.data_ptr()
    end = start + 4 * out.numel()
    for name, tensor in operands.items():
        if tensor.is_cpu:
            begin = tensor.data_ptr()
            if begin >= end:
                continue
            if tensor.is_contiguous():
                spans = tensor.numel()
            else:
                spans = sum((n - 1) * abs(s) for n, s in zip(tensor.shape, tensor.stride(), strict=True)) + 1
            if start < begin + 4 * spans:
                raise errors.ValueError(f"{op}: out overlaps {name}; pass memory of its own")


def _downloaded(tensor: Tensor) -> Tensor:
    """The tensor in the CPU's memory; the event in the trace is the computing of what was pending too."""
    if not RING.enabled:
        return tensor.cpu()
    start = time.perf_counter_ns()
    home = tensor.cpu()
    device = tensor.device.type
    RING.add("download", "to", start, device, "cpu", shape=home.shape, nbytes=4 * home.numel())
    return home


def result(kind: str, tensor: Tensor, flat: bool = False) -> Any:
    """A result as the kind of the operands: an array or a list on the CPU, a tensor where it was computed."""
    if flat:
        tensor = tensor.reshape(-1)
    if kind == "tensor":
        return tensor
    home = tensor if tensor.is_cpu else _downloaded(tensor)
    if kind == "list":
        return home.tolist()
    if 4 * home.numel() <= SMALL_BYTES and _Settings.ndarray is not None:
        array = _Settings.ndarray(home.shape, _Settings.float32)
        _from_dlpack(array.__dlpack__())[0].copy_(home)
        return array
    return _show(home.contiguous())
