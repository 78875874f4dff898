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
    """`matmul` under an IO policy. What is not uploaded is what this thread's last call of the same shape left on the
    device; without a download the result is `None` and stays there.

    Raises:
        SessionError: The policy uploads an operand never, and none is resident.
    """
    session = _kept_session(MatMulMetalResidentSession, m, k, n, device)
    return _with_policy(session, "matmul_with_policy", a, b, MatMulIoPolicy() if policy is None else policy)


def matmul_np_with_policy(
    a: Any, b: Any, m: int, k: int, n: int, device: Any = "metal", policy: MatMulIoPolicy | None = None
) -> Any:
    """`matmul_with_policy` whose result is a NumPy array always, or `None`."""
    result = matmul_with_policy(a, b, m, k, n, device, policy)
    np = _arrays.numpy()
    if result is None or isinstance(result, np.ndarray):
        return result
    return np.asarray(getattr(result, "cpu", lambda: result)(), np.float32)


def matmul_np_into_with_policy(
    a: Any, b: Any, out: Any, m: int, k: int, n: int, device: Any = "metal", policy: MatMulIoPolicy | None = None
) -> None:
    """`matmul_with_policy` into the caller's memory; it stays as it is where the policy downloads nothing."""
    session = _kept_session(MatMulMetalResidentSession, m, k, n, device)
    chosen = MatMulIoPolicy() if policy is None else policy
    _with_policy(session, "matmul_np_into_with_policy", a, b, chosen, out, True)


def matrix_sub_with_policy(
    a: Any, b: Any, rows: int, cols: int, device: Any = "metal", policy: MatrixElementwiseIoPolicy | None = None
) -> Any:
    """`matrix_sub` under an IO policy (see `matmul_with_policy`)."""
    session = _kept_session(MatrixElemwiseMetalResidentSession, rows, cols, device)
    chosen = MatrixElementwiseIoPolicy() if policy is None else policy
    return _with_policy(session, "matrix_sub_with_policy", a, b, chosen)


def vector_add_with_policy(
    a: Any, b: Any, n: int, device: Any = "metal", policy: VectorAddIoPolicy | None = None
) -> Any:
    """`vector_add` of vectors of length `n` under an IO policy (see `matmul_with_policy`)."""
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
    """`conv2d_nchw` by a session that is kept for this thread and shape, whose weights are uploaded once.

    An array of weights that is another than the last call's is uploaded again; one whose values changed since is not.
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
