"""The resident sessions of products, elementwise ops, convolutions and the fused convolution and attention.

`start` uploads and launches, `run` launches, `sync` launches, waits and downloads, `finish` does that and ends the
session. The forms that end in `_into` write into the caller's memory as the session's IO policy says; the others keep
the result on the device until `sync` or `finish`.
"""

from __future__ import annotations

from typing import Any

from lucid import _C, errors
from lucid.lightning import _conv, _elementwise, _matmul
from lucid.lightning._arrays import given, sizes
from lucid.lightning._attention import Attention
from lucid.lightning._policy import (
    Conv2dIoPolicy,
    MatMulIoPolicy,
    MatrixElementwiseIoPolicy,
    VectorAddIoPolicy,
    _IoPolicy,
)
from lucid.lightning._session import Session

__all__ = [
    "Conv2dMetalResidentSession",
    "ConvAttentionResidentSession",
    "MatMulMetalResidentSession",
    "MatrixElemwiseMetalResidentSession",
    "VectorAddMetalResidentSession",
    "matmul2d_resident_session",
]

Tensor = _C.Tensor


def _loops(op: str, loops: Any) -> int:
    if not isinstance(loops, int) or isinstance(loops, bool):
        raise errors.TypeError(f"{op}: loops must be an int, got {type(loops).__name__}")
    if not 1 <= loops < 1 << 31:
        raise errors.ValueError(f"{op}: loops must be from 1 on and below 2^31, got {loops}")
    return loops


class _Runs(Session):
    """Start, run, sync, finish and batches over named operands."""

    _policy_class: type[_IoPolicy] = MatMulIoPolicy
    _policy: _IoPolicy
    _needs_policy = True

    def set_policy(self, policy: Any) -> None:
        """Sets what runs upload, download and wait for."""
        if not isinstance(policy, self._policy_class):
            wanted = self._policy_class.__name__
            raise errors.TypeError(f"{self._name}.set_policy(): expected a {wanted}, got {type(policy).__name__}")
        self._policy = policy

    def _settle_default(self) -> None:
        self._settle(self._policy._often("synchronize"))

    def _do(
        self,
        method: str,
        operands: dict[str, Any],
        out: Any = None,
        *,
        into: bool = False,
        upload: str | None = None,
        download: str | None = None,
        synchronize: str = "always",
        loops: int = 1,
        running: bool = True,
        restarts: bool = False,
        ends: bool = False,
    ) -> Any:
        """One method: `upload` and `download` override the policy; `None` is what the policy says."""
        op = f"{type(self).__name__}.{method}()"
        with self._using(op, running=running, restarts=restarts):
            target = self._target(op, out) if into else None
            often = {name: upload or self._policy._often(f"upload_{name}") for name in self._shapes}
            if restarts:
                self._downloads = 0
            self._bring(op, operands, often, target)
            result = self._launch(op, target, download or self._policy._often("download_out"), loops)
            if target is None or result is None:
                # What was brought to the caller's memory was waited for.
                self._settle(synchronize)
            given_back = None if into else self._give(result)
            if ends:
                self._drop()
            return given_back

    def _start(self, operands: dict[str, Any], out: Any = None, into: bool = False, method: str = "start") -> None:
        self._do(
            method,
            operands,
            out,
            into=into,
            download=None if into else "never",
            synchronize="never",
            running=False,
            restarts=True,
        )

    def _run(self, operands: dict[str, Any], out: Any = None, into: bool = False, method: str = "run") -> None:
        # Launches alone: an operand that is resident already is not brought again.
        self._do(
            method,
            operands,
            out,
            into=into,
            upload=self._renew("once"),
            download=None if into else "never",
            synchronize="never",
        )

    def _renew(self, default: str) -> str | None:
        """`default`, unless the policy was set to something else than "at each call"."""
        names = [f"upload_{name}" for name in self._shapes]
        return default if all(self._policy._often(name) == "always" for name in names) else None

    def _sync(self, operands: dict[str, Any], out: Any = None, into: bool = False, method: str = "sync") -> Any:
        return self._do(method, operands, out, into=into, download="always")

    def _finish(self, operands: dict[str, Any], out: Any = None, into: bool = False, method: str = "finish") -> Any:
        return self._do(method, operands, out, into=into, download="always", ends=True)


class MatMulMetalResidentSession(_Runs):
    """Products of one shape whose operands stay on the device.

    Operands are `(m, k)` and `(k, n)` or flat, float32; `out` is `(m, n)` or flat. An operand that is `None` is the
    resident one. `run` uploads an array that is another than the resident one, and not one whose values changed since;
    batches upload at their begin.

    Example::

        >>> import lucid.lightning as lc
        >>> session = lc.MatMulMetalResidentSession(1, 2, 1, device="cpu")
        >>> session.start([1.0, 2.0], [3.0, 4.0])
        >>> session.finish()
        [11.0]

    Args:
        m (int): `(m, k)` by `(k, n)`.
        k (int): `(m, k)` by `(k, n)`.
        n (int): `(m, k)` by `(k, n)`.
        device (lucid.device or str, default: "metal"): `"metal"`, `"cuda"`, `"cpu"` or `"auto"`.
        policy (MatMulIoPolicy, optional): What runs upload, download and wait for.

    Raises:
        SessionError: A method before `start` or after `finish`, without an operand, or beside another thread.
        ShapeMismatch, DtypeMismatch, ValueError: As in `matmul2d_into`.
    """

    def __init__(self, m: int, k: int, n: int, device: Any = "metal", policy: MatMulIoPolicy | None = None) -> None:
        op = "MatMulMetalResidentSession()"
        m, k, n = sizes(op, m=m, k=k, n=n)
        super().__init__(op, {"a": (m, k), "b": (k, n)}, (m, n), device, "matmul", m * k * n)
        self.set_policy(MatMulIoPolicy() if policy is None else policy)

    def _compute(self, tensors: dict[str, Tensor], out: Tensor | None) -> Tensor:
        return _matmul.compute(tensors["a"], tensors["b"], out)

    def start(self, a: Any, b: Any) -> None:
        """Uploads both operands and launches."""
        self._start({"a": a, "b": b})

    def run(self, a: Any = None, b: Any = None) -> None:
        """Launches."""
        self._run({"a": a, "b": b})

    def sync(self, a: Any = None, b: Any = None) -> Any:
        """Launches, waits, and gives the product."""
        return self._sync({"a": a, "b": b})

    def finish(self, a: Any = None, b: Any = None) -> Any:
        """Launches, waits, gives the product and ends the session."""
        return self._finish({"a": a, "b": b})

    def run_batch_sync(self, a: Any, b: Any, loops: int) -> Any:
        """Uploads, launches `loops` times, waits, and gives the product."""
        loops = _loops("MatMulMetalResidentSession.run_batch_sync()", loops)
        return self._do("run_batch_sync", {"a": a, "b": b}, loops=loops, running=False)

    def start_into(self, a: Any, b: Any, out: Any) -> None:
        """Uploads both operands, launches, and writes `out`."""
        self._start({"a": a, "b": b}, out, True, "start_into")

    def run_into(self, a: Any, b: Any, out: Any) -> None:
        """Launches and writes `out`."""
        self._run({"a": a, "b": b}, out, True, "run_into")

    def sync_into(self, a: Any, b: Any, out: Any) -> None:
        """Launches, waits and writes `out`."""
        self._sync({"a": a, "b": b}, out, True, "sync_into")

    def finish_into(self, a: Any, b: Any, out: Any) -> None:
        """Launches, waits, writes `out` and ends the session."""
        self._finish({"a": a, "b": b}, out, True, "finish_into")

    def run_batch_sync_into(self, a: Any, b: Any, out: Any, loops: int) -> None:
        """Uploads, launches `loops` times, waits, and writes `out` once."""
        loops = _loops("MatMulMetalResidentSession.run_batch_sync_into()", loops)
        self._do("run_batch_sync_into", {"a": a, "b": b}, out, into=True, loops=loops, running=False)

    def run_batch_sync_no_download_into(self, a: Any, b: Any, out: Any, loops: int) -> None:
        """Uploads, launches `loops` times and waits; `out` is checked and not written."""
        method = "run_batch_sync_no_download_into"
        loops = _loops(f"MatMulMetalResidentSession.{method}()", loops)
        self._do(method, {"a": a, "b": b}, out, into=True, download="never", loops=loops, running=False)

    def run_batch_sync_cached_no_download(self, loops: int) -> None:
        """Launches `loops` times on what is resident, and waits; nothing is uploaded or downloaded."""
        method = "run_batch_sync_cached_no_download"
        loops = _loops(f"MatMulMetalResidentSession.{method}()", loops)
        self._do(method, {}, download="never", loops=loops)


def matmul2d_resident_session(a: Any, b: Any, device: Any = "metal") -> MatMulMetalResidentSession:
    """Makes a session for products of the operands' shapes; it is not started.

    Args:
        a (array, list or Tensor): of shape (m, k), float32; only its shape counts.
        b (array, list or Tensor): of shape (k, n), float32; only its shape counts.
        device (device or str, optional): `"metal"`, `"cuda"`, `"cpu"` or `"auto"`; small work is computed on the CPU
            (see `CrossoverPolicy`). Default: `"metal"`.

    Returns:
        MatMulMetalResidentSession: its operands stay on the device between runs.

    Raises:
        ShapeMismatch: the shapes do not fit.
        DtypeMismatch: an operand is not float32.

    Example:
        >>> import lucid.lightning as lc
        >>> session = lc.matmul2d_resident_session([[1.0, 2.0]], [[3.0], [4.0]], "cpu")
        >>> session.start([[1.0, 2.0]], [[3.0], [4.0]])
        >>> session.finish([[1.0, 2.0]], [[3.0], [4.0]])
        [[11.0]]
    """
    op = "matmul2d_resident_session()"
    sa, sb = tuple(given(op, "a", a).tensor.shape), tuple(given(op, "b", b).tensor.shape)
    if len(sa) != 2 or len(sb) != 2 or sa[1] != sb[0]:
        raise errors.ShapeMismatch(f"{op}: expected matrices (m, k) and (k, n), got {sa} and {sb}")
    return MatMulMetalResidentSession(sa[0], sa[1], sb[1], device)


class MatrixElemwiseMetalResidentSession(_Runs):
    """Differences and quotients of matrices of one shape that stay on the device.

    Example::

        >>> import lucid.lightning as lc
        >>> session = lc.MatrixElemwiseMetalResidentSession(1, 2, device="cpu")
        >>> session.sub([3.0, 4.0], [1.0, 1.0])
        [2.0, 3.0]

    Args:
        rows (int): The shape of the operands and of the result, all of which may be flat.
        cols (int): The shape of the operands and of the result, all of which may be flat.
        device (lucid.device or str, default: "metal"): As in `MatMulMetalResidentSession`.
        policy (MatrixElementwiseIoPolicy, optional): As in `MatMulMetalResidentSession`.
    """

    _policy_class = MatrixElementwiseIoPolicy

    def __init__(
        self, rows: int, cols: int, device: Any = "metal", policy: MatrixElementwiseIoPolicy | None = None
    ) -> None:
        op = "MatrixElemwiseMetalResidentSession()"
        shape = sizes(op, rows=rows, cols=cols)
        self._elementwise = _elementwise.SUB
        super().__init__(op, {"a": shape, "b": shape}, shape, device, "elementwise", shape[0] * shape[1])
        self.set_policy(MatrixElementwiseIoPolicy() if policy is None else policy)

    def _compute(self, tensors: dict[str, Tensor], out: Tensor | None) -> Tensor:
        return self._elementwise(tensors["a"], tensors["b"], out)

    def sub_start(self, a: Any, b: Any) -> None:
        """Uploads both operands and launches `a - b`."""
        self._elementwise = _elementwise.SUB
        self._start({"a": a, "b": b}, method="sub_start")

    def sub_run(self, a: Any = None, b: Any = None) -> None:
        """Launches `a - b`."""
        self._elementwise = _elementwise.SUB
        self._run({"a": a, "b": b}, method="sub_run")

    def sub_finish(self, a: Any = None, b: Any = None) -> Any:
        """Launches `a - b`, waits, gives it and ends the session."""
        self._elementwise = _elementwise.SUB
        return self._finish({"a": a, "b": b}, method="sub_finish")

    def sub(self, a: Any, b: Any) -> Any:
        """`a - b` at once; the session goes on."""
        self._elementwise = _elementwise.SUB
        return self._do("sub", {"a": a, "b": b}, running=False)

    def div_start(self, a: Any, b: Any) -> None:
        """Uploads both operands and launches `a / b`."""
        self._elementwise = _elementwise.DIV
        self._start({"a": a, "b": b}, method="div_start")

    def div_run(self, a: Any = None, b: Any = None) -> None:
        """Launches `a / b`."""
        self._elementwise = _elementwise.DIV
        self._run({"a": a, "b": b}, method="div_run")

    def div_finish(self, a: Any = None, b: Any = None) -> Any:
        """Launches `a / b`, waits, gives it and ends the session."""
        self._elementwise = _elementwise.DIV
        return self._finish({"a": a, "b": b}, method="div_finish")

    def div(self, a: Any, b: Any) -> Any:
        """`a / b` at once; the session goes on."""
        self._elementwise = _elementwise.DIV
        return self._do("div", {"a": a, "b": b}, running=False)

    def sub_start_into(self, a: Any, b: Any, out: Any) -> None:
        """Uploads both operands, launches `a - b` and writes `out`."""
        self._elementwise = _elementwise.SUB
        self._start({"a": a, "b": b}, out, True, "sub_start_into")

    def sub_run_into(self, a: Any, b: Any, out: Any) -> None:
        """Launches `a - b` and writes `out`."""
        self._elementwise = _elementwise.SUB
        self._run({"a": a, "b": b}, out, True, "sub_run_into")

    def sub_finish_into(self, a: Any, b: Any, out: Any) -> None:
        """Launches `a - b`, waits, writes `out` and ends the session."""
        self._elementwise = _elementwise.SUB
        self._finish({"a": a, "b": b}, out, True, "sub_finish_into")

    def div_start_into(self, a: Any, b: Any, out: Any) -> None:
        """Uploads both operands, launches `a / b` and writes `out`."""
        self._elementwise = _elementwise.DIV
        self._start({"a": a, "b": b}, out, True, "div_start_into")

    def div_run_into(self, a: Any, b: Any, out: Any) -> None:
        """Launches `a / b` and writes `out`."""
        self._elementwise = _elementwise.DIV
        self._run({"a": a, "b": b}, out, True, "div_run_into")

    def div_finish_into(self, a: Any, b: Any, out: Any) -> None:
        """Launches `a / b`, waits, writes `out` and ends the session."""
        self._elementwise = _elementwise.DIV
        self._finish({"a": a, "b": b}, out, True, "div_finish_into")


class VectorAddMetalResidentSession(_Runs):
    """Sums of vectors of one length that stay on the device.

    Example::

        >>> import lucid.lightning as lc
        >>> lc.VectorAddMetalResidentSession(2, device="cpu").add([1.0, 2.0], [3.0, 4.0])
        [4.0, 6.0]

    Args:
        n (int): The length.
        device (lucid.device or str, default: "metal"): As in `MatMulMetalResidentSession`.
        policy (VectorAddIoPolicy, optional): As in `MatMulMetalResidentSession`.
    """

    _policy_class = VectorAddIoPolicy

    def __init__(self, n: int, device: Any = "metal", policy: VectorAddIoPolicy | None = None) -> None:
        op = "VectorAddMetalResidentSession()"
        shape = sizes(op, n=n)
        super().__init__(op, {"a": shape, "b": shape}, shape, device, "elementwise", shape[0])
        self.set_policy(VectorAddIoPolicy() if policy is None else policy)

    def _compute(self, tensors: dict[str, Tensor], out: Tensor | None) -> Tensor:
        return _elementwise.ADD(tensors["a"], tensors["b"], out)

    def start(self, a: Any, b: Any) -> None:
        """Uploads both operands and launches."""
        self._start({"a": a, "b": b})

    def run(self, a: Any = None, b: Any = None) -> None:
        """Launches."""
        self._run({"a": a, "b": b})

    def finish(self, a: Any = None, b: Any = None) -> Any:
        """Launches, waits, gives the sum and ends the session."""
        return self._finish({"a": a, "b": b})

    def add(self, a: Any, b: Any) -> Any:
        """The sum at once; the session goes on."""
        return self._do("add", {"a": a, "b": b}, running=False)

    def start_into(self, a: Any, b: Any, out: Any) -> None:
        """Uploads both operands, launches and writes `out`."""
        self._start({"a": a, "b": b}, out, True, "start_into")

    def run_into(self, a: Any, b: Any, out: Any) -> None:
        """Launches and writes `out`."""
        self._run({"a": a, "b": b}, out, True, "run_into")

    def finish_into(self, a: Any, b: Any, out: Any) -> None:
        """Launches, waits, writes `out` and ends the session."""
        self._finish({"a": a, "b": b}, out, True, "finish_into")


class _ConvRuns(_Runs):
    """The methods of sessions whose operands are an image, weights and a bias."""

    _policy_class = Conv2dIoPolicy

    def start_into(self, x: Any, w: Any, b: Any, out: Any) -> None:
        """Uploads the operands, launches and writes `out`."""
        self._start({"x": x, "w": w, "b": b}, out, True, "start_into")

    def run_into(self, x: Any, w: Any, b: Any, out: Any) -> None:
        """Launches and writes `out`; operands that are resident are not uploaded again."""
        self._run({"x": x, "w": w, "b": b}, out, True, "run_into")

    def sync_into(self, x: Any, w: Any, b: Any, out: Any) -> None:
        """Launches, waits and writes `out`."""
        self._sync({"x": x, "w": w, "b": b}, out, True, "sync_into")

    def finish_into(self, x: Any, w: Any, b: Any, out: Any) -> None:
        """Launches, waits, writes `out` and ends the session."""
        self._finish({"x": x, "w": w, "b": b}, out, True, "finish_into")

    def run_batch_sync_into(self, x: Any, w: Any, b: Any, out: Any, loops: int) -> None:
        """Uploads, launches `loops` times, waits, and writes `out` once."""
        loops = _loops(f"{type(self).__name__}.run_batch_sync_into()", loops)
        self._do("run_batch_sync_into", {"x": x, "w": w, "b": b}, out, into=True, loops=loops, running=False)


class Conv2dMetalResidentSession(_ConvRuns):
    """Convolutions of one shape whose operands stay on the device between runs.

    Args:
        batch (int): how many images there are.
        in_channels (int): the images' channels.
        height (int): the images' rows.
        width (int): the images' columns.
        out_channels (int): the kernels' number, and the size of the bias.
        kernel_h (int): rows of a kernel.
        kernel_w (int): columns of a kernel.
        stride_h (int, optional): rows between windows, from 1 on. Default: 1.
        stride_w (int, optional): columns between windows, from 1 on. Default: 1.
        pad_h (int, optional): rows of zeros above and below. Default: 0.
        pad_w (int, optional): columns of zeros left and right. Default: 0.
        device (device or str, optional): `"metal"`, `"cuda"`, `"cpu"` or `"auto"`; small work is computed on the CPU
            (see `CrossoverPolicy`). Default: `"metal"`.
        relu (bool, optional): whether the result's negative values are 0. Default: False.
        policy (Conv2dIoPolicy, optional): what runs upload, download and wait for. Default: all at each run.

    Example:
        >>> import numpy as np
        >>> import lucid.lightning as lc
        >>> session = lc.Conv2dMetalResidentSession(1, 1, 1, 2, 1, 1, 1, device="cpu")
        >>> out = np.empty((1, 1, 1, 2), np.float32)
        >>> session.run_batch_sync_into([[[[1.0, 2.0]]]], [[[[3.0]]]], [1.0], out, loops=1)
        >>> out.ravel()
        array([4., 7.], dtype=float32)
    """

    def __init__(
        self,
        batch: int,
        in_channels: int,
        height: int,
        width: int,
        out_channels: int,
        kernel_h: int,
        kernel_w: int,
        stride_h: int = 1,
        stride_w: int = 1,
        pad_h: int = 0,
        pad_w: int = 0,
        device: Any = "metal",
        relu: bool = False,
        policy: Conv2dIoPolicy | None = None,
    ) -> None:
        op = "Conv2dMetalResidentSession()"
        x = sizes(op, batch=batch, in_channels=in_channels, height=height, width=width)
        w = sizes(op, out_channels=out_channels, in_channels=in_channels, kernel_h=kernel_h, kernel_w=kernel_w)
        shape = _conv.ConvShape(op, x, w, (w[0],), (stride_h, stride_w, pad_h, pad_w))
        self._conv = _conv.Conv(shape, bool(relu))
        super().__init__(op, {"x": x, "w": w, "b": (w[0],)}, shape.out, device, "conv2d", shape.macs)
        self.set_policy(Conv2dIoPolicy() if policy is None else policy)

    def _compute(self, tensors: dict[str, Tensor], out: Tensor | None) -> Tensor:
        return self._conv(tensors["x"], tensors["w"], tensors["b"], out)


def arrange(y: Tensor, seq_len: int, head_dim: int) -> list[Tensor]:
    """q, k and v from a convolution's result: its elements in order, repeated where they are too few."""
    need = seq_len * head_dim
    flat = y.reshape(-1)
    count = flat.shape[0]
    if count < 3 * need:
        flat = flat.repeat(-(-3 * need // count))
    return [flat[i * need : (i + 1) * need].reshape(seq_len, head_dim) for i in range(3)]


class ConvAttention:
    """Convolution, relu, arrangement and attention as something to call."""

    __slots__ = ("attention", "conv", "head_dim", "seq_len")

    def __init__(self, shape: _conv.ConvShape, seq_len: int, head_dim: int, causal: bool = False) -> None:
        self.conv = _conv.Conv(shape, True)
        self.attention = Attention(causal)
        self.seq_len = seq_len
        self.head_dim = head_dim

    def __call__(self, x: Tensor, w: Tensor, b: Tensor | None = None, out: Tensor | None = None) -> Tensor:
        q, k, v = arrange(self.conv(x, w, b), self.seq_len, self.head_dim)
        return self.attention(q, k, v, out)


class ConvAttentionResidentSession(_ConvRuns):
    """Convolution, relu and attention as one: what is between never leaves the device.

    Queries, keys and values are the convolution's elements in order, repeated where these are too few.

    Args:
        batch (int): how many images there are.
        in_channels (int): the images' channels.
        height (int): the images' rows.
        width (int): the images' columns.
        out_channels (int): the kernels' number, and the size of the bias.
        kernel_h (int): rows of a kernel.
        kernel_w (int): columns of a kernel.
        seq_len (int): how many queries and keys there are.
        head_dim (int): features of each.
        stride_h (int, optional): rows between windows, from 1 on. Default: 1.
        stride_w (int, optional): columns between windows, from 1 on. Default: 1.
        pad_h (int, optional): rows of zeros above and below. Default: 0.
        pad_w (int, optional): columns of zeros left and right. Default: 0.
        device (device or str, optional): `"metal"`, `"cuda"`, `"cpu"` or `"auto"`; small work is computed on the CPU
            (see `CrossoverPolicy`). Default: `"metal"`.
        causal (bool, optional): whether query `i` sees keys `0 … i` alone. Default: False.
        policy (Conv2dIoPolicy, optional): what runs upload, download and wait for. Default: all at each run.

    Example:
        >>> import numpy as np
        >>> import lucid.lightning as lc
        >>> session = lc.ConvAttentionResidentSession(1, 1, 1, 3, 1, 1, 1, 1, 1, device="cpu")
        >>> out = np.empty((1, 1), np.float32)
        >>> session.run_batch_sync_into([[[[1.0, 2.0, 3.0]]]], [[[[1.0]]]], [0.0], out, loops=1)  # q = 1, k = 2, v = 3
        >>> out
        array([[3.]], dtype=float32)
    """

    def __init__(
        self,
        batch: int,
        in_channels: int,
        height: int,
        width: int,
        out_channels: int,
        kernel_h: int,
        kernel_w: int,
        seq_len: int,
        head_dim: int,
        stride_h: int = 1,
        stride_w: int = 1,
        pad_h: int = 0,
        pad_w: int = 0,
        device: Any = "metal",
        causal: bool = False,
        policy: Conv2dIoPolicy | None = None,
    ) -> None:
        op = "ConvAttentionResidentSession()"
        x = sizes(op, batch=batch, in_channels=in_channels, height=height, width=width)
        w = sizes(op, out_channels=out_channels, in_channels=in_channels, kernel_h=kernel_h, kernel_w=kernel_w)
        out = sizes(op, seq_len=seq_len, head_dim=head_dim)
        shape = _conv.ConvShape(op, x, w, (w[0],), (stride_h, stride_w, pad_h, pad_w))
        self._pipeline = ConvAttention(shape, out[0], out[1], bool(causal))
        work = shape.macs + 2 * out[0] * out[0] * out[1]
        super().__init__(op, {"x": x, "w": w, "b": (w[0],)}, out, device, "conv2d", work)
        self.set_policy(Conv2dIoPolicy() if policy is None else policy)

    def _compute(self, tensors: dict[str, Tensor], out: Tensor | None) -> Tensor:
        return self._pipeline(tensors["x"], tensors["w"], tensors["b"], out)
