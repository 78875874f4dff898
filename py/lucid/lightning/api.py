"""The integrated API: convolutions and attention as blocks, by the engine that was set.

Each name is `lucid.lightning.lightning_NAME` too.
"""

from __future__ import annotations

import statistics
import threading
import time
from typing import Any

from lucid import errors
from lucid.lightning import _arrays, _attention, _conv, _direct, _dispatch, _engines, _matmul
from lucid.lightning._arrays import given, number, output, sizes
from lucid.lightning._engines import get_backend as get_backend
from lucid.lightning._engines import get_engine as get_engine
from lucid.lightning._engines import set_backend as set_backend
from lucid.lightning._engines import set_engine as set_engine
from lucid.lightning._layers import Linear as Linear
from lucid.lightning._layers import Sequential as Sequential
from lucid.lightning._sessions import ConvAttention
from lucid.lightning._trace import RING
from lucid.lightning.graph.ir import GraphIR

__all__ = [
    "Linear",
    "Sequential",
    "attention",
    "attention_into",
    "clear_attention_session_cache",
    "conv_attention_torchstrong_nchw",
    "conv_attention_torchstrong_nchw_ab_report",
    "conv_attention_torchstrong_nchw_into",
    "conv_relu_nchw",
    "conv_relu_nchw_into",
    "get_backend",
    "get_engine",
    "matmul",
    "matmul_into",
    "set_backend",
    "set_engine",
]


def clear_attention_session_cache() -> int:
    """Drops the attention sessions and graphs that are kept for later calls. Returns how many there were."""
    with _graph_lock:
        graphs = len(_graphs)
        _graphs.clear()
    return graphs + _attention.clear_attention2d_session_cache()


def matmul(a: Any, b: Any, device: Any = "metal") -> Any:
    """Computes the product of two matrices by the engine that `lightning_set_backend` has set.

    Args:
        a (array, list or Tensor): of shape (m, k), float32.
        b (array, list or Tensor): of shape (k, n), float32.
        device (device or str, optional): `"metal"`, `"cuda"`, `"cpu"` or `"auto"`; small work is computed on the CPU
            (see `CrossoverPolicy`). Default: `"metal"`.

    Returns:
        array, list or Tensor: of shape (m, n), float32, of the operands' kind.

    Raises:
        ShapeMismatch: the shapes do not fit.
        DtypeMismatch: an operand is not float32.

    Example:
        >>> import lucid.lightning as lc
        >>> lc.lightning_matmul([[1.0, 2.0]], [[3.0], [4.0]], "cpu")
        [[11.0]]
    """
    engine = get_engine()
    if engine == "lightning":
        return _matmul.matmul2d(a, b, device)
    op = "api.matmul()"
    ga, gb = _matmul._operands(op, a, b)
    result = _engines.Foreign(engine, device).matmul(_engines.hosted(ga), _engines.hosted(gb))
    return _engines.finish([ga, gb], result, False, None, op, result.shape)


def matmul_into(a: Any, b: Any, out: Any, device: Any = "metal") -> None:
    """Computes the product of two matrices by the engine that was set, into the caller's memory.

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
        >>> lc.lightning_matmul_into([[1.0, 2.0]], [[3.0], [4.0]], out, "cpu")
        >>> out
        array([[11.]], dtype=float32)
    """
    engine = get_engine()
    if engine == "lightning":
        return _matmul.matmul2d_into(a, b, out, device)
    op = "api.matmul_into()"
    ga, gb = _matmul._operands(op, a, b)
    shape = (ga.tensor.shape[0], gb.tensor.shape[1])
    output(op, out, shape)
    result = _engines.Foreign(engine, device).matmul(_engines.hosted(ga), _engines.hosted(gb))
    _engines.finish([ga, gb], result, False, out, op, shape)
    return None


def _attend(op: str, q: Any, k: Any, v: Any, seq: Any, dim: Any, causal: Any, device: Any, out: Any, into: bool) -> Any:
    if into and out is None:
        raise errors.TypeError(f"{op}: out must be a float32 NumPy array or lucid.Tensor, got NoneType")
    engine = get_engine()
    if engine == "lightning":
        return _attention.forward(op, q, k, v, seq, dim, causal, device, out)
    listed, tensors = _attention._sized(op, q, k, v, seq, dim)
    shape = tuple(tensors[0].shape)
    if into:
        output(op, out, shape)
    arrays = [t.detach().cpu().contiguous().numpy() for t in tensors]
    masked = _attention.flag(op, "causal", causal)
    result = _engines.Foreign(engine, device).attention(arrays[0], arrays[1], arrays[2], masked)
    return _engines.finish(listed, result, len(listed[0].tensor.shape) == 1, out, op, shape)


def attention(q: Any, k: Any, v: Any, seq_len: int, head_dim: int, causal: bool = False, device: Any = "metal") -> Any:
    """Computes `attention_forward` by the engine that was set: `softmax(q kᵀ / √head_dim) v`.

    Args:
        q (array, list or Tensor): queries of shape (seq_len, head_dim), or flat, float32.
        k (array, list or Tensor): keys of the same shape.
        v (array, list or Tensor): values of the same shape.
        seq_len (int): how many queries and keys there are.
        head_dim (int): features of each.
        causal (bool, optional): whether query `i` sees keys `0 … i` alone. Default: False.
        device (device or str, optional): `"metal"`, `"cuda"`, `"cpu"` or `"auto"`; small work is computed on the CPU
            (see `CrossoverPolicy`). Default: `"metal"`.

    Returns:
        array, list or Tensor: of shape (seq_len, head_dim), flat where `q` is, of the operands' kind.

    Raises:
        ShapeMismatch: the shapes do not fit.
        DtypeMismatch: an operand is not float32.

    Example:
        >>> import lucid.lightning as lc
        >>> lc.lightning_attention([1.0], [2.0], [5.0], 1, 1, False, "cpu")
        [5.0]
    """
    return _attend("api.attention()", q, k, v, seq_len, head_dim, causal, device, None, False)


def attention_into(
    q: Any, k: Any, v: Any, out: Any, seq_len: int, head_dim: int, causal: bool = False, device: Any = "metal"
) -> None:
    """Computes `attention_forward` by the engine that was set, into the caller's memory.

    Args:
        q (array, list or Tensor): queries of shape (seq_len, head_dim), or flat, float32.
        k (array, list or Tensor): keys of the same shape.
        v (array, list or Tensor): values of the same shape.
        out (array or Tensor): of shape (seq_len, head_dim) or flat, float32, contiguous, writable.
        seq_len (int): how many queries and keys there are.
        head_dim (int): features of each.
        causal (bool, optional): whether query `i` sees keys `0 … i` alone. Default: False.
        device (device or str, optional): `"metal"`, `"cuda"`, `"cpu"` or `"auto"`; small work is computed on the CPU
            (see `CrossoverPolicy`). Default: `"metal"`.

    Raises:
        ShapeMismatch: the shapes do not fit.
        DtypeMismatch: an operand is not float32.
        TypeError: `out` is no array or tensor.

    Example:
        >>> import numpy as np
        >>> import lucid.lightning as lc
        >>> out = np.empty(1, np.float32)
        >>> lc.lightning_attention_into([1.0], [2.0], [5.0], out, 1, 1, False, "cpu")
        >>> out
        array([5.], dtype=float32)
    """
    _attend("api.attention_into()", q, k, v, seq_len, head_dim, causal, device, out, True)


def _conv_relu(op: str, x: Any, w: Any, b: Any, steps: tuple[Any, ...], device: Any, out: Any, into: bool) -> Any:
    engine = get_engine()
    if engine == "lightning":
        if into:
            return _conv.conv_into(op, x, w, b, out, steps, device, True)
        return _conv.conv(op, x, w, b, steps, device, True)
    listed, shape = _conv.operands(op, x, w, b, steps)
    if into:
        output(op, out, shape.out)
    arrays = [_engines.hosted(g) for g in listed]
    bias = arrays[2] if b is not None else None
    result = _engines.Foreign(engine, device).conv_relu(arrays[0], arrays[1], bias, shape)
    return _engines.finish(listed, result, False, out if into else None, op, shape.out)


def conv_relu_nchw(
    x: Any,
    w: Any,
    b: Any = None,
    stride_h: int = 1,
    stride_w: int = 1,
    pad_h: int = 0,
    pad_w: int = 0,
    device: Any = "metal",
) -> Any:
    """Computes `max(conv2d_nchw(x, w, b, …), 0)` by the engine that was set.

    Args:
        x (array, list or Tensor): images of shape (n, c, h, w), float32.
        w (array, list or Tensor): kernels of shape (out, c, kh, kw), float32.
        b (array, list or Tensor, optional): biases of shape (out,), float32; None: no bias.
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
        >>> lc.lightning_conv_relu_nchw([[[[-1.0, 2.0]]]], [[[[3.0]]]], device="cpu")
        [[[[0.0, 6.0]]]]
    """
    return _conv_relu("api.conv_relu_nchw()", x, w, b, (stride_h, stride_w, pad_h, pad_w), device, None, False)


def conv_relu_nchw_into(
    x: Any,
    w: Any,
    b: Any,
    out: Any,
    stride_h: int = 1,
    stride_w: int = 1,
    pad_h: int = 0,
    pad_w: int = 0,
    device: Any = "metal",
) -> None:
    """Computes `max(conv2d_nchw(x, w, b, …), 0)` by the engine that was set, into the caller's memory.

    Args:
        x (array, list or Tensor): images of shape (n, c, h, w), float32.
        w (array, list or Tensor): kernels of shape (out, c, kh, kw), float32.
        b (array, list or Tensor or None): biases of shape (out,), float32; None: no bias.
        out (array or Tensor): of shape (n, out, h', w') or flat, float32, contiguous, writable, apart from the
            operands.
        stride_h (int, optional): rows between windows, from 1 on. Default: 1.
        stride_w (int, optional): columns between windows, from 1 on. Default: 1.
        pad_h (int, optional): rows of zeros above and below. Default: 0.
        pad_w (int, optional): columns of zeros left and right. Default: 0.
        device (device or str, optional): `"metal"`, `"cuda"`, `"cpu"` or `"auto"`; small work is computed on the CPU
            (see `CrossoverPolicy`). Default: `"metal"`.

    Raises:
        ShapeMismatch: the shapes do not fit.
        DtypeMismatch: an operand is not float32.
        ValueError: a stride or padding is out of its range, or `out` cannot be written to.

    Example:
        >>> import numpy as np
        >>> import lucid.lightning as lc
        >>> out = np.empty((1, 1, 1, 2), np.float32)
        >>> lc.lightning_conv_relu_nchw_into([[[[-1.0, 2.0]]]], [[[[3.0]]]], None, out, device="cpu")
        >>> out.ravel()
        array([0., 6.], dtype=float32)
    """
    _conv_relu("api.conv_relu_nchw_into()", x, w, b, (stride_h, stride_w, pad_h, pad_w), device, out, True)


# ---- convolution and attention as one --------------------------------------------------------------------------------

EXECUTION_MODES = ("eager", "graph")
MOST_GRAPHS = 64
_graphs: dict[tuple[Any, ...], tuple[GraphIR, int]] = {}
_graph_lock = threading.Lock()


def _graph(shapes: tuple[tuple[int, ...], ...], shape: _conv.ConvShape, seq: int, dim: int) -> tuple[GraphIR, int]:
    """The fused graph of the pipeline for these shapes, made at its first use, and its result's number."""
    key = (shapes, shape.stride, shape.padding, seq, dim)
    with _graph_lock:
        found = _graphs.get(key)
    if found is not None:
        return found
    g = GraphIR()
    inputs = [g.add_tensor(s, name=n) for s, n in zip(shapes, "xwb", strict=False)]
    y, z = g.add_tensor(shape.out), g.add_tensor(shape.out)
    q, k, v = (g.add_tensor((seq, dim)) for _ in range(3))
    out = g.add_tensor((seq, dim), name="out")
    steps = dict(zip(("stride_h", "stride_w", "pad_h", "pad_w"), (*shape.stride, *shape.padding), strict=True))
    g.add_node("conv2d_nchw", inputs, [y], steps)
    g.add_node("relu", [y], [z])
    g.add_node("qkv_arrange", [z], [q, k, v], {"seq_len": seq, "head_dim": dim})
    g.add_node("attention", [q, k, v], [out])
    fused, _ = g.fuse("cpu")
    with _graph_lock:
        while len(_graphs) >= MOST_GRAPHS:
            _graphs.pop(next(iter(_graphs)))
        _graphs[key] = (fused, out)
    return fused, out


def _direct_pipeline(
    op: str, x: Any, w: Any, b: Any, size: tuple[Any, Any], steps: tuple[Any, ...], device: Any, out: Any, into: bool
) -> Any:
    """The pipeline on arrays that need none of what is general, into `out` where asked; `None` where it did not."""
    seq, dim = size
    if seq.__class__ is not int or dim.__class__ is not int or min(seq, dim) < 1 or get_engine() != "lightning":
        return None
    tensors = _direct.shown(device, (x, w, *(() if b is None else (b,)), *((out,) if into else ())))
    if tensors is None:
        return None
    shape = _conv.shape_of(op, x.shape, w.shape, None if b is None else b.shape, steps)
    if not into:
        return _direct.given_back(ConvAttention(shape, seq, dim)(*tensors), (seq, dim))
    to = tensors.pop()
    if out.shape not in ((seq, dim), (seq * dim,)) or not to.is_contiguous() or not _direct.apart(to, tensors):
        return None
    bias = None if b is None else tensors[2]
    return ConvAttention(shape, seq, dim)(tensors[0], tensors[1], bias, to.reshape(seq, dim))


def _pipeline(
    op: str,
    x: Any,
    w: Any,
    b: Any,
    size: tuple[Any, Any],
    steps: tuple[Any, ...],
    device: Any,
    mode: Any,
    out: Any,
    into: bool,
) -> Any:
    if mode not in EXECUTION_MODES:
        raise errors.ValueError(f"{op}: execution_mode must be eager or graph, got {mode!r}")
    if mode == "eager":
        made = _direct_pipeline(op, x, w, b, size, steps, device, out, into)
        if made is not None:
            return None if into else made
    seq, dim = sizes(op, seq_len=size[0], head_dim=size[1])
    listed, shape = _conv.operands(op, x, w, b, steps)
    target = output(op, out, (seq, dim)) if into else None
    tensors = [g.tensor for g in listed]
    if target is not None:
        _arrays.apart(op, target, **dict(zip("xwb", tensors, strict=False)))
    engine = get_engine()
    if engine != "lightning":
        if mode == "graph":
            raise errors.NotImplementedError(f"{op}: the engine {engine!r} has no graph; set_backend('lightning')")
        arrays = [_engines.hosted(g) for g in listed]
        bias = arrays[2] if b is not None else None
        result = _engines.Foreign(engine, device).conv_attention(arrays[0], arrays[1], bias, shape, seq, dim)
        return _engines.finish(listed, result, False, out if into else None, op, (seq, dim))
    kind = _dispatch.kind_of(listed)
    work = shape.macs + 2 * seq * seq * dim
    compute: Any = ConvAttention(shape, seq, dim)
    if mode == "graph":
        graph, number_ = _graph(tuple(tuple(t.shape) for t in tensors), shape, seq, dim)

        def compute(*here: Any, out: Any = None) -> Any:
            result = graph._compute(dict(enumerate(here)), number_, here[0].device)
            return result if out is None else out.copy_(result)

    result = _dispatch.run(op, "conv2d", device, kind, tensors, work, compute, target)
    return None if into else _arrays.result(kind, result)


def conv_attention_torchstrong_nchw(
    x: Any,
    w: Any,
    b: Any,
    seq_len: int,
    head_dim: int,
    stride_h: int = 1,
    stride_w: int = 1,
    pad_h: int = 0,
    pad_w: int = 0,
    device: Any = "metal",
    execution_mode: str = "eager",
) -> Any:
    """Computes convolution, relu, and attention over its elements, without a trip to the host between.

    `out = attention(q, k, v)`, where q, k and v are the elements of `relu(conv2d(x, w, b))` in order, `seq_len *
    head_dim` each, repeated where they are too few.

    Args:
        x (array, list or Tensor): images of shape (n, c, h, w), float32.
        w (array, list or Tensor): kernels of shape (out, c, kh, kw), float32.
        b (array, list or Tensor or None): biases of shape (out,), float32; None: no bias.
        seq_len (int): how many queries and keys there are.
        head_dim (int): features of each.
        stride_h (int, optional): rows between windows, from 1 on. Default: 1.
        stride_w (int, optional): columns between windows, from 1 on. Default: 1.
        pad_h (int, optional): rows of zeros above and below. Default: 0.
        pad_w (int, optional): columns of zeros left and right. Default: 0.
        device (device or str, optional): `"metal"`, `"cuda"`, `"cpu"` or `"auto"`; small work is computed on the CPU
            (see `CrossoverPolicy`). Default: `"metal"`.
        execution_mode (str, optional): `"eager"`: op after op; `"graph"`: a `GraphIR`, fused, kept for each shape.
            Default: `"eager"`.

    Returns:
        array, list or Tensor: of shape (seq_len, head_dim), of the operands' kind.

    Raises:
        ShapeMismatch: the shapes do not fit.
        DtypeMismatch: an operand is not float32.
        ValueError: a stride or padding is out of its range, or another mode.
        NotImplementedError: `"graph"` with another engine than Lucid's.

    Example:
        >>> import lucid.lightning as lc
        >>> x, w = [[[[1.0, 2.0, 3.0]]]], [[[[1.0]]]]
        >>> lc.lightning_conv_attention_torchstrong_nchw(x, w, None, 1, 1, device="cpu")  # q = 1, k = 2, v = 3
        [[3.0]]
    """
    op = "api.conv_attention_torchstrong_nchw()"
    steps = (stride_h, stride_w, pad_h, pad_w)
    return _pipeline(op, x, w, b, (seq_len, head_dim), steps, device, execution_mode, None, False)


def conv_attention_torchstrong_nchw_into(
    x: Any,
    w: Any,
    b: Any,
    out: Any,
    seq_len: int,
    head_dim: int,
    stride_h: int = 1,
    stride_w: int = 1,
    pad_h: int = 0,
    pad_w: int = 0,
    device: Any = "metal",
    execution_mode: str = "eager",
) -> None:
    """Computes convolution, relu, and attention over its elements into the caller's memory.

    Args:
        x (array, list or Tensor): images of shape (n, c, h, w), float32.
        w (array, list or Tensor): kernels of shape (out, c, kh, kw), float32.
        b (array, list or Tensor or None): biases of shape (out,), float32; None: no bias.
        out (array or Tensor): of shape (seq_len, head_dim) or flat, float32, contiguous, writable, apart from the
            operands.
        seq_len (int): how many queries and keys there are.
        head_dim (int): features of each.
        stride_h (int, optional): rows between windows, from 1 on. Default: 1.
        stride_w (int, optional): columns between windows, from 1 on. Default: 1.
        pad_h (int, optional): rows of zeros above and below. Default: 0.
        pad_w (int, optional): columns of zeros left and right. Default: 0.
        device (device or str, optional): `"metal"`, `"cuda"`, `"cpu"` or `"auto"`; small work is computed on the CPU
            (see `CrossoverPolicy`). Default: `"metal"`.
        execution_mode (str, optional): `"eager"` (the default) or `"graph"`.

    Raises:
        ShapeMismatch: the shapes do not fit.
        DtypeMismatch: an operand is not float32.
        ValueError: a stride or padding is out of its range, another mode, or `out` cannot be written to.

    Example:
        >>> import numpy as np
        >>> import lucid.lightning as lc
        >>> out = np.empty((1, 1), np.float32)
        >>> x, w = [[[[1.0, 2.0, 3.0]]]], [[[[1.0]]]]
        >>> lc.lightning_conv_attention_torchstrong_nchw_into(x, w, None, out, 1, 1, device="cpu")
        >>> out
        array([[3.]], dtype=float32)
    """
    op = "api.conv_attention_torchstrong_nchw_into()"
    steps = (stride_h, stride_w, pad_h, pad_w)
    _pipeline(op, x, w, b, (seq_len, head_dim), steps, device, execution_mode, out, True)


def conv_attention_torchstrong_nchw_ab_report(
    x: Any,
    w: Any,
    b: Any,
    seq_len: int,
    head_dim: int,
    stride_h: int = 1,
    stride_w: int = 1,
    pad_h: int = 0,
    pad_w: int = 0,
    device: Any = "metal",
    warmup: int = 2,
    iters: int = 10,
    atol: float = 1e-4,
) -> dict[str, Any]:
    """Runs the pipeline of `conv_attention_torchstrong_nchw` in both modes, in turns, and compares times and results.

    Args:
        x (array, list or Tensor): images of shape (n, c, h, w), float32.
        w (array, list or Tensor): kernels of shape (out, c, kh, kw), float32.
        b (array, list or Tensor or None): biases of shape (out,), float32; None: no bias.
        seq_len (int): how many queries and keys there are.
        head_dim (int): features of each.
        stride_h (int, optional): rows between windows, from 1 on. Default: 1.
        stride_w (int, optional): columns between windows, from 1 on. Default: 1.
        pad_h (int, optional): rows of zeros above and below. Default: 0.
        pad_w (int, optional): columns of zeros left and right. Default: 0.
        device (device or str, optional): `"metal"`, `"cuda"`, `"cpu"` or `"auto"`; small work is computed on the CPU
            (see `CrossoverPolicy`). Default: `"metal"`.
        warmup (int, optional): untimed runs of each mode, from 0 on. Default: 2.
        iters (int, optional): timed runs of each mode, from 1 on. Default: 10.
        atol (float, optional): the largest difference with which `allclose` is true. Default: 1e-4.

    Returns:
        dict: `winner` (`"eager"`, `"graph"`, or `"tie"` within 1 %), `eager_ms` and `graph_ms` (medians),
        `graph_over_eager` (their ratio), `max_abs_diff`, `allclose`, `host_dispatch_delta_us` (how much longer a call
        of the graph keeps the host, by the fastest runs), `fallbacks` (runs of each mode computed on the CPU though
        asked for on a GPU), `device`, `iters`.

    Raises:
        ShapeMismatch: the shapes do not fit.
        DtypeMismatch: an operand is not float32.
        ValueError: `warmup`, `iters` or `atol` is out of its range.

    Example:
        >>> import lucid.lightning as lc
        >>> x, w = [[[[1.0, 2.0, 3.0]]]], [[[[1.0]]]]
        >>> report = lc.lightning_conv_attention_torchstrong_nchw_ab_report(x, w, None, 1, 1, device="cpu", iters=2)
        >>> report["allclose"], report["max_abs_diff"]
        (True, 0.0)
    """
    op = "api.conv_attention_torchstrong_nchw_ab_report()"
    (iters,) = sizes(op, iters=iters)
    if not isinstance(warmup, int) or warmup < 0:
        raise errors.ValueError(f"{op}: warmup must be an int from 0 on, got {warmup!r}")
    atol = number(op, "atol", atol, least=0.0)
    steps = (stride_h, stride_w, pad_h, pad_w)

    def call(mode: str) -> Any:
        return _pipeline(op, x, w, b, (seq_len, head_dim), steps, device, mode, None, False)

    for _ in range(warmup):
        call("eager"), call("graph")
    times: dict[str, list[float]] = {"eager": [], "graph": []}
    results: dict[str, Any] = {}
    for _ in range(iters):
        for mode, noted in times.items():
            start = time.perf_counter_ns()
            results[mode] = call(mode)
            noted.append((time.perf_counter_ns() - start) / 1e6)
    fallbacks = _fallbacks(call)
    eager, graph = (statistics.median(times[mode]) for mode in ("eager", "graph"))
    tensors = [given(op, mode, results[mode]).tensor.cpu() for mode in ("eager", "graph")]
    difference = (tensors[0] - tensors[1]).abs().max().item()
    ratio = graph / eager
    return {
        "winner": "tie" if abs(ratio - 1) <= 0.01 else ("graph" if ratio < 1 else "eager"),
        "eager_ms": eager,
        "graph_ms": graph,
        "graph_over_eager": ratio,
        "max_abs_diff": difference,
        "allclose": difference <= atol,
        "host_dispatch_delta_us": (min(times["graph"]) - min(times["eager"])) * 1e3,
        "fallbacks": fallbacks,
        "device": str(device),
        "iters": iters,
    }


def _fallbacks(call: Any) -> dict[str, int]:
    """Runs of each mode that were not computed where they were asked for, of one run each."""
    out = {}
    with _report_lock:
        was = RING.enabled
        for mode in EXECUTION_MODES:
            before = RING.made
            RING.enabled = True
            try:
                call(mode)
            finally:
                RING.enabled = was
            with RING.lock:
                out[mode] = sum(e["fallback"] for e in RING.events if e["seq"] >= before)
    return out


_report_lock = threading.Lock()
