"""Elementwise ops of vectors and matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid import _C, errors
from lucid.lightning import _arrays, _direct, _dispatch
from lucid.lightning._arrays import given, output, shaped, sizes

__all__ = [
    "matrix_div",
    "matrix_div_into",
    "matrix_sub",
    "matrix_sub_into",
    "vector_add",
    "vector_add_into",
]

Tensor = _C.Tensor


class Arithmetic:
    """An elementwise op of two operands as something to call."""

    __slots__ = ("function", "in_place", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.function: Callable[[Tensor, Tensor], Tensor] = getattr(_C, name)
        self.in_place: Callable[[Tensor, Tensor], Tensor] = getattr(Tensor, f"{name}_")

    def __call__(self, a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
        if out is None:
            return self.function(a, b)
        if _C._arithmetic_into(self.name, a, b, out):
            return out
        # Memory that is an operand's, or a layout of its own.
        address = out.data_ptr()
        if b.data_ptr() == address:
            return out.copy_(self.function(a, b))
        return self.in_place(out if a.data_ptr() == address else out.copy_(a), b)


ADD, SUB, DIV = Arithmetic("add"), Arithmetic("sub"), Arithmetic("div")


def _vectors(op: str, a: Any, b: Any) -> tuple[Any, Tensor, Tensor]:
    ga, gb = given(op, "a", a), given(op, "b", b)
    if ga.tensor.shape != gb.tensor.shape:
        raise errors.ShapeMismatch(
            f"{op}: a and b must have one shape, got {tuple(ga.tensor.shape)} and {tuple(gb.tensor.shape)}"
        )
    return _dispatch.kind_of((ga, gb)), ga.tensor, gb.tensor


def vector_add(a: Any, b: Any, device: Any = "metal") -> Any:
    """`a + b` of two vectors, or arrays of one shape.

    Example::

        >>> import lucid.lightning as lc
        >>> lc.vector_add([1.0, 2.0], [3.0, 4.0], "cpu")
        [4.0, 6.0]

    Args:
        a (object): float32 NumPy arrays, lists or tensors of one shape.
        b (object): float32 NumPy arrays, lists or tensors of one shape.
        device (lucid.device or str, default: "metal"): `"metal"`, `"cuda"`, `"cpu"` or `"auto"`.

    Returns:
        The sum, of the operands' kind and shape.

    Raises:
        ShapeMismatch: The shapes differ; nothing is broadcast.
        DtypeMismatch: One is not float32.
    """
    direct = _direct.binary(a, b, device, ADD.function)
    if direct is not None:
        return direct
    kind, ta, tb = _vectors("vector_add()", a, b)
    result = _dispatch.run("vector_add()", "elementwise", device, kind, (ta, tb), ta.numel(), ADD)
    return _arrays.result(kind, result)


def vector_add_into(a: Any, b: Any, out: Any, device: Any = "metal") -> None:
    """Computes `a + b` into the caller's memory, which may be an operand's own. On the CPU nothing is allocated.

    Args:
        a (array, list or Tensor): of any shape, float32.
        b (array, list or Tensor): of `a`'s shape, float32.
        out (array or Tensor): of `a`'s shape or flat, float32, contiguous, writable.
        device (device or str, optional): `"metal"`, `"cuda"`, `"cpu"` or `"auto"`; small work is computed on the CPU
            (see `CrossoverPolicy`). Default: `"metal"`.

    Raises:
        ShapeMismatch: the shapes do not fit.
        DtypeMismatch: an operand is not float32.
        ValueError: `out` cannot be written to, or overlaps a part of an operand.

    Example:
        >>> import numpy as np
        >>> import lucid.lightning as lc
        >>> out = np.empty(2, np.float32)
        >>> lc.vector_add_into([1.0, 2.0], [3.0, 4.0], out, "cpu")
        >>> out
        array([4., 6.], dtype=float32)
    """
    if _direct.binary_into(a, b, out, device, ADD.name, ADD.in_place):
        return
    kind, ta, tb = _vectors("vector_add_into()", a, b)
    target = _exact(output("vector_add_into()", out, ta.shape), "vector_add_into()", ta, tb)
    _dispatch.run("vector_add_into()", "elementwise", device, kind, (ta, tb), ta.numel(), ADD, target)


def _exact(target: Tensor, op: str, *operands: Tensor) -> Tensor:
    """Refuses an output that overlaps an operand otherwise than by being the same memory."""
    for name, tensor in zip("ab", operands, strict=True):
        same = tensor.is_cpu and target.is_cpu and tensor.data_ptr() == target.data_ptr() and tensor.is_contiguous()
        if not same:
            _arrays.apart(op, target, **{name: tensor})
    return target


def _matrices(op: str, a: Any, b: Any, rows: Any, cols: Any) -> tuple[Any, bool, Tensor, Tensor]:
    ga, gb = given(op, "a", a), given(op, "b", b)
    if rows is None and cols is None:
        shape = tuple(ga.tensor.shape)
        if len(shape) != 2:
            raise errors.ShapeMismatch(f"{op}: a is no matrix, of shape {shape}; give rows and cols")
    else:
        shape = sizes(op, rows=rows, cols=cols)
    flat = len(ga.tensor.shape) == 1
    return _dispatch.kind_of((ga, gb)), flat, shaped(op, "a", ga, shape), shaped(op, "b", gb, shape)


def _plain(a: Any, rows: Any, cols: Any) -> bool:
    """Is it a matrix whose sizes are its own, or as many elements?"""
    shape = getattr(a, "shape", ())
    if rows is None and cols is None:
        return len(shape) == 2
    return rows.__class__ is cols.__class__ is int and rows > 0 and shape in ((rows, cols), (rows * cols,))


def _matrix(op: str, compute: Arithmetic, a: Any, b: Any, rows: Any, cols: Any, device: Any) -> Any:
    direct = _direct.binary(a, b, device, compute.function) if _plain(a, rows, cols) else None
    if direct is not None:
        return direct
    kind, flat, ta, tb = _matrices(op, a, b, rows, cols)
    result = _dispatch.run(op, "elementwise", device, kind, (ta, tb), ta.numel(), compute)
    return _arrays.result(kind, result, flat)


def _matrix_into(op: str, compute: Arithmetic, a: Any, b: Any, out: Any, rows: Any, cols: Any, device: Any) -> None:
    if _plain(a, rows, cols) and _direct.binary_into(a, b, out, device, compute.name, compute.in_place):
        return
    kind, _, ta, tb = _matrices(op, a, b, rows, cols)
    target = _exact(output(op, out, ta.shape), op, ta, tb)
    _dispatch.run(op, "elementwise", device, kind, (ta, tb), ta.numel(), compute, target)


def matrix_sub(a: Any, b: Any, rows: int | None = None, cols: int | None = None, device: Any = "metal") -> Any:
    """`a - b` of two matrices.

    Example::

        >>> import lucid.lightning as lc
        >>> lc.matrix_sub([3.0, 4.0], [1.0, 1.0], 1, 2, "cpu")
        [2.0, 3.0]

    Args:
        a (object): `(rows, cols)` or `(rows * cols,)`, float32 NumPy arrays, lists or tensors.
        b (object): `(rows, cols)` or `(rows * cols,)`, float32 NumPy arrays, lists or tensors.
        rows (int, optional): The sizes; needed where the operands are flat.
        cols (int, optional): The sizes; needed where the operands are flat.
        device (lucid.device or str, default: "metal"): As in `vector_add`.

    Returns:
        The difference, flat where `a` is, of the operands' kind.

    Raises:
        ShapeMismatch: An operand has another size.
        DtypeMismatch: One is not float32.
    """
    return _matrix("matrix_sub()", SUB, a, b, rows, cols, device)


def matrix_div(a: Any, b: Any, rows: int | None = None, cols: int | None = None, device: Any = "metal") -> Any:
    """Computes `a / b` of two matrices, element by element; a division by 0 gives an infinity or NaN.

    Args:
        a (array, list or Tensor): of shape (rows, cols), or flat, float32.
        b (array, list or Tensor): of shape (rows, cols), or flat, float32.
        rows (int, optional): needed where the operands are flat.
        cols (int, optional): needed where the operands are flat.
        device (device or str, optional): `"metal"`, `"cuda"`, `"cpu"` or `"auto"`; small work is computed on the CPU
            (see `CrossoverPolicy`). Default: `"metal"`.

    Returns:
        array, list or Tensor: the quotients, flat where `a` is, of the operands' kind.

    Raises:
        ShapeMismatch: the shapes do not fit.
        DtypeMismatch: an operand is not float32.

    Example:
        >>> import lucid.lightning as lc
        >>> lc.matrix_div([3.0, 4.0], [2.0, 4.0], 1, 2, "cpu")
        [1.5, 1.0]
    """
    return _matrix("matrix_div()", DIV, a, b, rows, cols, device)


def matrix_sub_into(
    a: Any, b: Any, out: Any, rows: int | None = None, cols: int | None = None, device: Any = "metal"
) -> None:
    """Computes `a - b` of two matrices into the caller's memory, which may be an operand's own.

    Args:
        a (array, list or Tensor): of shape (rows, cols), or flat, float32.
        b (array, list or Tensor): of shape (rows, cols), or flat, float32.
        out (array or Tensor): of shape (rows, cols) or flat, float32, contiguous, writable.
        rows (int, optional): needed where the operands are flat.
        cols (int, optional): needed where the operands are flat.
        device (device or str, optional): `"metal"`, `"cuda"`, `"cpu"` or `"auto"`; small work is computed on the CPU
            (see `CrossoverPolicy`). Default: `"metal"`.

    Raises:
        ShapeMismatch: the shapes do not fit.
        DtypeMismatch: an operand is not float32.
        ValueError: `out` cannot be written to, or overlaps a part of an operand.

    Example:
        >>> import numpy as np
        >>> import lucid.lightning as lc
        >>> a = np.array([[3.0, 4.0]], np.float32)
        >>> lc.matrix_sub_into(a, np.ones((1, 2), np.float32), a, device="cpu")
        >>> a
        array([[2., 3.]], dtype=float32)
    """
    _matrix_into("matrix_sub_into()", SUB, a, b, out, rows, cols, device)


def matrix_div_into(
    a: Any, b: Any, out: Any, rows: int | None = None, cols: int | None = None, device: Any = "metal"
) -> None:
    """Computes `a / b` of two matrices into the caller's memory, which may be an operand's own.

    Args:
        a (array, list or Tensor): of shape (rows, cols), or flat, float32.
        b (array, list or Tensor): of shape (rows, cols), or flat, float32.
        out (array or Tensor): of shape (rows, cols) or flat, float32, contiguous, writable.
        rows (int, optional): needed where the operands are flat.
        cols (int, optional): needed where the operands are flat.
        device (device or str, optional): `"metal"`, `"cuda"`, `"cpu"` or `"auto"`; small work is computed on the CPU
            (see `CrossoverPolicy`). Default: `"metal"`.

    Raises:
        ShapeMismatch: the shapes do not fit.
        DtypeMismatch: an operand is not float32.
        ValueError: `out` cannot be written to, or overlaps a part of an operand.

    Example:
        >>> import numpy as np
        >>> import lucid.lightning as lc
        >>> out = np.empty((1, 2), np.float32)
        >>> lc.matrix_div_into([[3.0, 4.0]], [[2.0, 4.0]], out, device="cpu")
        >>> out
        array([[1.5, 1. ]], dtype=float32)
    """
    _matrix_into("matrix_div_into()", DIV, a, b, out, rows, cols, device)
