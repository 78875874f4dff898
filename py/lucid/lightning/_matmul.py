"""Products of matrices: the plain calls, the forms that write into the caller's memory, and tuned ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid import _C, errors
from lucid._tuning import Tuner, shared
from lucid.lightning import _arrays, _direct, _dispatch, _env
from lucid.lightning._arrays import Given, given, output, shaped, sizes

__all__ = [
    "matmul",
    "matmul2d",
    "matmul2d_into",
    "matmul_np",
    "matmul_np_into",
    "matmul_reset_tuning",
    "matmul_tuning",
]

Tensor = _C.Tensor

# Products of fewer multiply-accumulates are computed by the library: timing others would cost more than they save.
LARGE_MACS = 1 << 27
# Products of more take seconds, and are not computed several times to learn which way is the fastest.
MOST_TIMED_MACS = 1 << 36
PANEL = 512


def _library(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    if out is None:
        return _C.matmul(a, b)
    return out if _C._matmul_into(a, b, out) else _C.matmul(a, b, out=out)


def _transposed(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """Bᵀ Aᵀ, transposed: other operands are packed, and the result is read along its columns."""
    result = _C.matmul(b.t(), a.t()).t()
    return result if out is None else out.copy_(result)


def _panels(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """Panels of rows one after the other, so that one panel and all of B stay in the caches."""
    rows = a.shape[0]
    parts = range(0, rows, PANEL)
    if out is None:
        return _C.cat([_C.matmul(a[i : i + PANEL], b) for i in parts])
    for i in parts:
        _C.matmul(a[i : i + PANEL], b, out=out[i : i + PANEL])
    return out


MODES: dict[str, Callable[..., Tensor]] = {"library": _library, "transposed": _transposed, "panels": _panels}


def _tuner() -> Tuner:
    """The tuner of the cache file that the environment names now."""
    return shared(_env.MATMUL_CACHE_FILE.raw or None)


def _bucket(size: int) -> int:
    """The power of two from which on a size is in its bucket."""
    return 1 << (size.bit_length() - 1)


def mode_of(a: Tensor, b: Tensor) -> str:
    """The way a product is computed: as remembered or timed now where it is large, else by the library."""
    m, k = a.shape
    n = b.shape[1]
    macs = m * k * n
    if not LARGE_MACS <= macs <= MOST_TIMED_MACS or a.requires_grad or b.requires_grad:
        return "library"
    prefer = _env.MATMUL_PREFER_LIBRARY.flag()
    if not _env.MATMUL_TRY_KERNEL.flag():
        return "library"
    shape = (m, k, n) if _env.MATMUL_NO_BUCKETS.flag() else (_bucket(m), _bucket(k), _bucket(n))
    exact = "shape" if _env.MATMUL_NO_BUCKETS.flag() else "bucket"
    key = f"matmul float32 {exact} {'x'.join(map(str, shape))} on {a.device.type}"
    works = {name: _timed(way, a, b) for name, way in MODES.items()}
    margin = _env.MATMUL_HYSTERESIS.number()
    return _tuner().choose(
        key + (" library preferred" if prefer else ""),
        works,
        prefer="library",
        margin_pct=margin if prefer else 1.0,
        rounds=2,
    )


def _timed(way: Callable[..., Tensor], a: Tensor, b: Tensor) -> Callable[[], Tensor]:
    # In the form that is asked of it: a result of its own, in order.
    return lambda: _dispatch.evaluate(way(a, b).contiguous())


def compute(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """The product, in the way that is fastest here."""
    mode = mode_of(a, b)
    return _library(a, b, out) if mode == "library" else MODES[mode](a, b, out)


def matmul_reset_tuning(*, file: bool = False) -> None:
    """Forgets how products are computed best, so that the cache file is read again and what it lacks is timed again.

    Args:
        file (bool, optional): whether the entries for products in the cache file are removed, too. Default: False.

    Example:
        >>> import lucid.lightning as lc
        >>> lc.matmul_reset_tuning()
    """
    if file:
        _tuner().forget("matmul ")
    _tuner().reset()


def matmul_tuning() -> dict[str, dict[str, Any]]:
    """The remembered ways of products: by bucket or shape, the choice and the times in microseconds."""
    return {key: entry.to_json() for key, entry in _tuner().entries().items() if key.startswith("matmul ")}


def _operands(op: str, a: Any, b: Any) -> tuple[Given, Given]:
    ga, gb = given(op, "a", a), given(op, "b", b)
    sa, sb = tuple(ga.tensor.shape), tuple(gb.tensor.shape)
    if len(sa) != 2 or len(sb) != 2 or sa[1] != sb[0]:
        raise errors.ShapeMismatch(f"{op}: expected matrices (m, k) and (k, n), got {sa} and {sb}")
    return ga, gb


def _macs(a: Tensor, b: Tensor) -> int:
    return int(a.shape[0] * a.shape[1] * b.shape[1])


def matmul2d(a: Any, b: Any, device: Any = "metal") -> Any:
    """The product of two matrices.

    `out[i, j] = sum_k a[i, k] * b[k, j]`

    Example::

        >>> import lucid.lightning as lc
        >>> lc.matmul2d([[1.0, 2.0]], [[3.0], [4.0]], "cpu")
        [[11.0]]

    Args:
        a (object): `(m, k)`, float32: a NumPy array, a list of lists or a `lucid.Tensor`.
        b (object): `(k, n)`, as `a`.
        device (lucid.device or str, default: "metal"): `"metal"`, `"cuda"`, `"cpu"` or `"auto"`.

    Returns:
        `(m, n)`, float32, of the operands' kind; a tensor is on the device that was asked for.

    Raises:
        ShapeMismatch: They are no matrices whose inner sizes agree.
        DtypeMismatch: One is not float32.
        TypeError, ValueError: An operand is no array, list or tensor, or is empty; the device is not known.
    """
    tensors = _direct.shown(device, (a, b))
    if tensors is not None and len(a.shape) == len(b.shape) == 2 and a.shape[1] == b.shape[0]:
        return _direct.given_back(compute(*tensors), (a.shape[0], b.shape[1]))
    op = "matmul2d()"
    ga, gb = _operands(op, a, b)
    kind = _dispatch.kind_of((ga, gb))
    work = _macs(ga.tensor, gb.tensor)
    return _arrays.result(kind, _dispatch.run(op, "matmul", device, kind, (ga.tensor, gb.tensor), work, compute))


def matmul2d_into(a: Any, b: Any, out: Any, device: Any = "metal") -> None:
    """Computes `matmul2d` into the caller's memory: `out[i, j] = sum_k a[i, k] * b[k, j]`.

    Args:
        a (array, list or Tensor): of shape (m, k), float32.
        b (array, list or Tensor): of shape (k, n), float32.
        out (array or Tensor): of shape (m, n) or flat, float32, contiguous, writable, apart from the operands.
        device (device or str, optional): `"metal"`, `"cuda"`, `"cpu"` or `"auto"`; small work is computed on the CPU
            (see `CrossoverPolicy`). Default: `"metal"`.

    Raises:
        ShapeMismatch: the shapes do not fit.
        DtypeMismatch: an operand is not float32.
        ValueError: `out` is read-only, not contiguous, or overlaps an operand.

    Example:
        >>> import numpy as np
        >>> import lucid.lightning as lc
        >>> out = np.empty((1, 1), np.float32)
        >>> lc.matmul2d_into([[1.0, 2.0]], [[3.0], [4.0]], out, "cpu")
        >>> out
        array([[11.]], dtype=float32)
    """
    if _direct.product_into(a, b, out, device, LARGE_MACS):
        return
    op = "matmul2d_into()"
    ga, gb = _operands(op, a, b)
    _product_into(op, ga, gb, ga.tensor, gb.tensor, out, device)


def _product_into(op: str, ga: Given, gb: Given, ta: Tensor, tb: Tensor, out: Any, device: Any) -> None:
    target = output(op, out, (ta.shape[0], tb.shape[1]))
    _arrays.apart(op, target, a=ta, b=tb)
    kind = _dispatch.kind_of((ga, gb))
    _dispatch.run(op, "matmul", device, kind, (ta, tb), _macs(ta, tb), compute, target)


def _sized(op: str, a: Any, b: Any, m: Any, k: Any, n: Any) -> tuple[Given, Given, Tensor, Tensor]:
    m, k, n = sizes(op, m=m, k=k, n=n)
    ga, gb = given(op, "a", a), given(op, "b", b)
    return ga, gb, shaped(op, "a", ga, (m, k)), shaped(op, "b", gb, (k, n))


def _matmul(op: str, a: Any, b: Any, m: Any, k: Any, n: Any, device: Any) -> Any:
    ga, gb, ta, tb = _sized(op, a, b, m, k, n)
    kind = _dispatch.kind_of((ga, gb))
    result = _dispatch.run(op, "matmul", device, kind, (ta, tb), _macs(ta, tb), compute)
    return _arrays.result(kind, result, len(ga.tensor.shape) == 1)


def matmul(a: Any, b: Any, m: int, k: int, n: int, device: Any = "metal") -> Any:
    """The product of two matrices whose sizes are given, so that they may be flat.

    Example::

        >>> import lucid.lightning as lc
        >>> lc.matmul([1.0, 2.0], [3.0, 4.0], 1, 2, 1, "cpu")
        [11.0]

    Args:
        a (object): `(m, k)` or `(m * k,)`, float32.
        b (object): `(k, n)` or `(k * n,)`, float32.
        m (int): The sizes.
        k (int): The sizes.
        n (int): The sizes.
        device (lucid.device or str, default: "metal"): As in `matmul2d`.

    Returns:
        `(m * n,)` where `a` is flat, else `(m, n)`, of the operands' kind.

    Raises:
        As `matmul2d`.
    """
    return _matmul("matmul()", a, b, m, k, n, device)


def matmul_np(a: Any, b: Any, m: int, k: int, n: int, device: Any = "metal") -> Any:
    """Computes the product of two matrices whose sizes are given; the result is always a NumPy array.

    Args:
        a (array, list or Tensor): of shape (m, k), or flat, float32.
        b (array, list or Tensor): of shape (k, n), or flat, float32.
        m (int): rows of `a`.
        k (int): columns of `a`, rows of `b`.
        n (int): columns of `b`.
        device (device or str, optional): `"metal"`, `"cuda"`, `"cpu"` or `"auto"`; small work is computed on the CPU
            (see `CrossoverPolicy`). Default: `"metal"`.

    Returns:
        array: of shape (m, n), flat where `a` is, float32.

    Raises:
        ShapeMismatch: the shapes do not fit.
        DtypeMismatch: an operand is not float32.

    Example:
        >>> import lucid.lightning as lc
        >>> lc.matmul_np([1.0, 2.0], [3.0, 4.0], 1, 2, 1, "cpu")
        array([11.], dtype=float32)
    """
    result = _matmul("matmul_np()", a, b, m, k, n, device)
    np = _arrays.numpy()
    return (
        result if isinstance(result, np.ndarray) else np.asarray(getattr(result, "cpu", lambda: result)(), np.float32)
    )


def matmul_np_into(a: Any, b: Any, out: Any, m: int, k: int, n: int, device: Any = "metal") -> None:
    """Computes the product of two matrices whose sizes are given into the caller's memory.

    Args:
        a (array, list or Tensor): of shape (m, k), or flat, float32.
        b (array, list or Tensor): of shape (k, n), or flat, float32.
        out (array or Tensor): of shape (m, n) or flat, float32, contiguous, writable, apart from the operands.
        m (int): rows of `a`.
        k (int): columns of `a`, rows of `b`.
        n (int): columns of `b`.
        device (device or str, optional): `"metal"`, `"cuda"`, `"cpu"` or `"auto"`; small work is computed on the CPU
            (see `CrossoverPolicy`). Default: `"metal"`.

    Raises:
        ShapeMismatch: the shapes do not fit.
        DtypeMismatch: an operand is not float32.
        ValueError: `out` is read-only, not contiguous, or overlaps an operand.

    Example:
        >>> import numpy as np
        >>> import lucid.lightning as lc
        >>> out = np.empty(1, np.float32)
        >>> lc.matmul_np_into([1.0, 2.0], [3.0, 4.0], out, 1, 2, 1, "cpu")
        >>> out
        array([11.], dtype=float32)
    """
    op = "matmul_np_into()"
    ga, gb, ta, tb = _sized(op, a, b, m, k, n)
    _product_into(op, ga, gb, ta, tb, out, device)
