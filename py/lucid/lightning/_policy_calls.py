"""Calls under an IO policy: behind each is a session that is kept for the thread and the shape."""

from __future__ import annotations

import threading
from typing import Any

from lucid import _C, errors
from lucid.lightning import _arrays, _conv
from lucid.lightning._policy import Conv2dIoPolicy, MatMulIoPolicy, MatrixElementwiseIoPolicy, VectorAddIoPolicy
from lucid.lightning._sessions import (
    Conv2dMetalResidentSession,
    MatMulMetalResidentSession,
    MatrixElemwiseMetalResidentSession,
    VectorAddMetalResidentSession,
    _Runs,
)

__all__ = [
    "conv2d_nchw_metal_resident",
    "matmul_np_into_with_policy",
    "matmul_np_with_policy",
    "matmul_with_policy",
    "matrix_sub_with_policy",
    "vector_add_with_policy",
]

_kept: dict[tuple[Any, ...], _Runs] = {}
MOST_KEPT = 64


def _kept_session(kind: type[_Runs], *arguments: Any) -> Any:
    key = (threading.get_ident(), kind, *(str(a) for a in arguments))
    session = _kept.get(key)
    if session is None:
        session = kind(*arguments)
        while len(_kept) >= MOST_KEPT:
            _kept.pop(next(iter(_kept)), None)
        _kept[key] = session
    return session


def _with_policy(session: Any, method: str, a: Any, b: Any, policy: Any, out: Any = None, into: bool = False) -> Any:
    session.set_policy(policy)
    for name, operand in (("a", a), ("b", b)):
        if operand is None and policy._often(f"upload_{name}") == "always":
            raise errors.TypeError(
                f"{method}(): {name} is None, and the policy uploads it; pass an array, or upload_{name}=False"
            )
    return session._do(
        method, {"a": a, "b": b}, out, into=into, synchronize=policy._often("synchronize"), running=False
    )


def matmul_with_policy(
    a: Any, b: Any, m: int, k: int, n: int, device: Any = "metal", policy: MatMulIoPolicy | None = None
) -> Any:
    """Computes `matmul` under an IO policy.

    What is not uploaded is what this thread's last call of the same shape left on the device.

    Args:
        a (array, list or Tensor): of shape (m, k), or flat, float32.
        b (array, list or Tensor): of shape (k, n), or flat, float32.
        m (int): rows of `a`.
        k (int): columns of `a`, rows of `b`.
        n (int): columns of `b`.
        device (device or str, optional): `"metal"`, `"cuda"`, `"cpu"` or `"auto"`; small work is computed on the CPU
            (see `CrossoverPolicy`). Default: `"metal"`.
        policy (MatMulIoPolicy, optional): what is uploaded, downloaded and waited for. Default: all at each call.

    Returns:
        array, list or Tensor: of shape (m, n), flat where `a` is; None where the policy downloads nothing.

    Raises:
        TypeError: an operand is None that the policy uploads.
        SessionError: an operand is not uploaded, and none is resident.

    Example:
        >>> import lucid.lightning as lc
        >>> once = lc.MatMulIoPolicy(upload_b="once")
        >>> lc.matmul_with_policy([1.0, 2.0], [3.0, 4.0], 1, 2, 1, "cpu", once)
        [11.0]
        >>> lc.matmul_with_policy([1.0, 1.0], None, 1, 2, 1, "cpu", once)  # b is resident
        [7.0]
    """
    session = _kept_session(MatMulMetalResidentSession, m, k, n, device)
    return _with_policy(session, "matmul_with_policy", a, b, MatMulIoPolicy() if policy is None else policy)


def matmul_np_with_policy(
    a: Any, b: Any, m: int, k: int, n: int, device: Any = "metal", policy: MatMulIoPolicy | None = None
) -> Any:
    """Computes `matmul` under an IO policy; the result is always a NumPy array.

    Args:
        a (array, list or Tensor): of shape (m, k), or flat, float32.
        b (array, list or Tensor): of shape (k, n), or flat, float32.
        m (int): rows of `a`.
        k (int): columns of `a`, rows of `b`.
        n (int): columns of `b`.
        device (device or str, optional): `"metal"`, `"cuda"`, `"cpu"` or `"auto"`; small work is computed on the CPU
            (see `CrossoverPolicy`). Default: `"metal"`.
        policy (MatMulIoPolicy, optional): what is uploaded, downloaded and waited for. Default: all at each call.

    Returns:
        array: of shape (m, n), flat where `a` is, float32; None where the policy downloads nothing.

    Raises:
        TypeError: an operand is None that the policy uploads.
        SessionError: an operand is not uploaded, and none is resident.

    Example:
        >>> import lucid.lightning as lc
        >>> lc.matmul_np_with_policy([1.0, 2.0], [3.0, 4.0], 1, 2, 1, "cpu", lc.MatMulIoPolicy())
        array([11.], dtype=float32)
    """
    result = matmul_with_policy(a, b, m, k, n, device, policy)
    np = _arrays.numpy()
    if result is None or isinstance(result, np.ndarray):
        return result
    return np.asarray(getattr(result, "cpu", lambda: result)(), np.float32)


def matmul_np_into_with_policy(
    a: Any, b: Any, out: Any, m: int, k: int, n: int, device: Any = "metal", policy: MatMulIoPolicy | None = None
) -> None:
    """Computes `matmul` under an IO policy into the caller's memory, which stays as it is where nothing is downloaded.

    Args:
        a (array, list or Tensor): of shape (m, k), or flat, float32.
        b (array, list or Tensor): of shape (k, n), or flat, float32.
        out (array or Tensor): of shape (m, n) or flat, float32, contiguous, writable.
        m (int): rows of `a`.
        k (int): columns of `a`, rows of `b`.
        n (int): columns of `b`.
        device (device or str, optional): `"metal"`, `"cuda"`, `"cpu"` or `"auto"`; small work is computed on the CPU
            (see `CrossoverPolicy`). Default: `"metal"`.
        policy (MatMulIoPolicy, optional): what is uploaded, downloaded and waited for. Default: all at each call.

    Raises:
        TypeError: an operand is None that the policy uploads.
        SessionError: an operand is not uploaded, and none is resident.

    Example:
        >>> import numpy as np
        >>> import lucid.lightning as lc
        >>> out = np.empty(1, np.float32)
        >>> lc.matmul_np_into_with_policy([1.0, 2.0], [3.0, 4.0], out, 1, 2, 1, "cpu")
        >>> out
        array([11.], dtype=float32)
    """
    session = _kept_session(MatMulMetalResidentSession, m, k, n, device)
    chosen = MatMulIoPolicy() if policy is None else policy
    _with_policy(session, "matmul_np_into_with_policy", a, b, chosen, out, True)


def matrix_sub_with_policy(
    a: Any, b: Any, rows: int, cols: int, device: Any = "metal", policy: MatrixElementwiseIoPolicy | None = None
) -> Any:
    """Computes `a - b` of two matrices under an IO policy.

    Args:
        a (array, list or Tensor): of shape (rows, cols), or flat, float32.
        b (array, list or Tensor): of shape (rows, cols), or flat, float32.
        rows (int): the operands' first size.
        cols (int): the operands' second size.
        device (device or str, optional): `"metal"`, `"cuda"`, `"cpu"` or `"auto"`; small work is computed on the CPU
            (see `CrossoverPolicy`). Default: `"metal"`.
        policy (MatrixElementwiseIoPolicy, optional): what is uploaded, downloaded and waited for. Default: all at each
            call.

    Returns:
        array, list or Tensor: the differences, flat where `a` is; None where the policy downloads nothing.

    Raises:
        TypeError: an operand is None that the policy uploads.
        SessionError: an operand is not uploaded, and none is resident.

    Example:
        >>> import lucid.lightning as lc
        >>> lc.matrix_sub_with_policy([3.0, 4.0], [1.0, 1.0], 1, 2, "cpu")
        [2.0, 3.0]
    """
    session = _kept_session(MatrixElemwiseMetalResidentSession, rows, cols, device)
    chosen = MatrixElementwiseIoPolicy() if policy is None else policy
    return _with_policy(session, "matrix_sub_with_policy", a, b, chosen)


def vector_add_with_policy(
    a: Any, b: Any, n: int, device: Any = "metal", policy: VectorAddIoPolicy | None = None
) -> Any:
    """Computes `a + b` of two vectors under an IO policy.

    Args:
        a (array, list or Tensor): of shape (n,), float32.
        b (array, list or Tensor): of shape (n,), float32.
        n (int): how many elements they have.
        device (device or str, optional): `"metal"`, `"cuda"`, `"cpu"` or `"auto"`; small work is computed on the CPU
            (see `CrossoverPolicy`). Default: `"metal"`.
        policy (VectorAddIoPolicy, optional): what is uploaded, downloaded and waited for. Default: all at each call.

    Returns:
        array, list or Tensor: of shape (n,), of the operands' kind; None where the policy downloads nothing.

    Raises:
        TypeError: an operand is None that the policy uploads.
        SessionError: an operand is not uploaded, and none is resident.

    Example:
        >>> import lucid.lightning as lc
        >>> lc.vector_add_with_policy([1.0, 2.0], [3.0, 4.0], 2, "cpu")
        [4.0, 6.0]
    """
    session = _kept_session(VectorAddMetalResidentSession, n, device)
    return _with_policy(session, "vector_add_with_policy", a, b, VectorAddIoPolicy() if policy is None else policy)


def conv2d_nchw_metal_resident(
    x: Any,
    w: Any,
    b: Any,
    stride_h: int = 1,
    stride_w: int = 1,
    pad_h: int = 0,
    pad_w: int = 0,
    device: Any = "metal",
) -> Any:
    """Computes `conv2d_nchw` by a session that is kept for this thread and shape, whose weights are uploaded once.

    An array of weights that is another than the last call's is uploaded again; one whose values changed since is not.

    Args:
        x (array, list or Tensor): images of shape (n, c, h, w), float32.
        w (array, list or Tensor): kernels of shape (out, c, kh, kw), float32.
        b (array, list or Tensor or None): biases of shape (out,), float32; None: no bias.
        stride_h (int, optional): rows between windows, from 1 on. Default: 1.
        stride_w (int, optional): columns between windows, from 1 on. Default: 1.
        pad_h (int, optional): rows of zeros above and below. Default: 0.
        pad_w (int, optional): columns of zeros left and right. Default: 0.
        device (device or str, optional): `"metal"`, `"cuda"`, `"cpu"` or `"auto"`; small work is computed on the CPU
            (see `CrossoverPolicy`). Default: `"metal"`.

    Returns:
        array, list or Tensor: of shape (n, out, h', w'), of the operands' kind.

    Raises:
        ShapeMismatch: the shapes do not fit.
        DtypeMismatch: an operand is not float32.
        ValueError: a stride or padding is out of its range.

    Example:
        >>> import lucid.lightning as lc
        >>> lc.conv2d_nchw_metal_resident([[[[1.0, 2.0]]]], [[[[3.0]]]], [1.0], device="cpu")
        [[[[4.0, 7.0]]]]
    """
    op = "conv2d_nchw_metal_resident()"
    listed, _ = _conv.operands(op, x, w, b, (stride_h, stride_w, pad_h, pad_w))
    sx, sw = (tuple(g.tensor.shape) for g in listed[:2])
    if b is None:
        b = _C.zeros(sw[0])
    steps = (stride_h, stride_w, pad_h, pad_w)
    session = _kept_session(Conv2dMetalResidentSession, *sx, sw[0], sw[2], sw[3], *steps, device)
    session.set_policy(Conv2dIoPolicy(upload_w="once", upload_b="once"))
    return session._do("conv2d_nchw_metal_resident", {"x": x, "w": w, "b": b}, running=False)
