"""The engines of the integrated API: Lucid's own, and PyTorch and MLX where installed, over the same arrays."""

from __future__ import annotations

import importlib
import importlib.util
import math
import os
from collections.abc import Callable
from typing import Any

from lucid import errors
from lucid._warnings import warn_once
from lucid.lightning import _arrays, _conv
from lucid.lightning._arrays import Given, given, output, shaped

__all__ = ["ENGINES", "get_backend", "get_engine", "resolve", "set_backend", "set_engine"]

ENGINES = ("lightning", "torch", "mlx", "auto")


class _Chosen:
    name = "lightning"


def set_backend(name: str) -> None:
    """Sets the engine of the integrated API.

    Args:
        name (str): `"lightning"` (Lucid's), `"torch"`, `"mlx"`, or `"auto"`, which is Lucid's: it computes
            wherever it can be imported.

    Raises:
        ValueError: There is no such engine.
        RuntimeError: Its package is not installed.

    Example:
        >>> import lucid.lightning as lc
        >>> lc.lightning_set_backend("auto")
        >>> lc.lightning_set_backend("lightning")
    """
    if name not in ENGINES:
        raise errors.ValueError(f"set_backend(): expected one of {', '.join(ENGINES)}, got {name!r}")
    if name in ("torch", "mlx"):
        package(name)
    _Chosen.name = name


def get_backend() -> str:
    """The engine that was set."""
    return _Chosen.name


def package(name: str) -> Any:
    """PyTorch or MLX."""
    modules = {"torch": "torch", "mlx": "mlx.core"}
    if name not in modules:
        raise errors.ValueError(f"package(): expected one of {', '.join(modules)}, got {name!r}")
    try:
        return importlib.import_module(modules[name])
    except ImportError as e:
        raise errors.RuntimeError(f"the engine {name!r} needs a package that is not installed: {e}") from None


def resolve(engine: str | None = None) -> str:
    """The engine that computes: the one named or set, where `"auto"` is Lucid's."""
    name = _Chosen.name if engine is None else engine
    if name not in ENGINES:
        raise errors.ValueError(f"engine: expected one of {', '.join(ENGINES)}, got {name!r}")
    # Lucid computes on every machine that it can be imported on, so that "auto" never needs another.
    return "lightning" if name == "auto" else name


set_engine = set_backend


def get_engine() -> str:
    """The engine that computes: `get_backend` with `"auto"` resolved."""
    return resolve()


def torch_device_for(device: str) -> str:
    """PyTorch's device for a device's name. Where PyTorch does not have it, its CPU with one warning; with
    `LUCID_STRICT_DEVICE=1` that is an error."""
    torch = package("torch")
    wanted = {"metal": "mps", "mps": "mps", "cuda": "cuda", "cpu": "cpu", "gpu": "gpu", "auto": "auto"}.get(str(device))
    if wanted is None:
        raise errors.ValueError(f"torch: no device {device!r}")
    there = [n for n, a in (("mps", torch.backends.mps), ("cuda", torch.cuda)) if a.is_available()]
    if wanted in there or wanted == "cpu":
        return wanted
    if wanted in ("gpu", "auto") and there:
        return there[0]
    if wanted == "auto":
        return "cpu"
    if os.environ.get("LUCID_STRICT_DEVICE"):
        raise errors.GpuNotAvailable(f"torch: PyTorch has no device {device!r} here")
    warn_once(f"torch {device}", f"the engine torch has no device {device!r} here and computes on its CPU")
    return "cpu"


def _host(operand: Given, shape: tuple[int, ...] | None = None, op: str = "", name: str = "") -> Any:
    tensor = operand.tensor if shape is None else shaped(op, name, operand, shape)
    return tensor.detach().cpu().contiguous().numpy()


class Foreign:
    """PyTorch or MLX: arrays go in, a NumPy array comes back."""

    def __init__(self, name: str, device: Any) -> None:
        self.name = name
        self.lib = package(name)
        if name == "torch":
            self.device = torch_device_for(device)
        elif device not in ("metal", "mps", "gpu", "cuda", "cpu", "auto"):
            raise errors.ValueError(f"mlx: no device {device!r}")
        else:
            gpu = device != "cpu" and self.lib.default_device().type == self.lib.gpu
            self.device = self.lib.gpu if gpu else self.lib.cpu

    def take(self, array: Any) -> Any:
        """An array of the engine."""
        if self.name == "torch":
            return self.lib.from_numpy(array.copy() if not array.flags.writeable else array).to(self.device)
        return self.lib.array(array)

    def give(self, array: Any) -> Any:
        """The NumPy array of an engine's."""
        if self.name == "torch":
            return array.detach().cpu().contiguous().numpy()
        self.lib.eval(array)
        return _arrays.numpy().array(array)

    def run(self, work: Callable[..., Any], *arrays: Any) -> Any:
        """Work on arrays of the engine."""
        if self.name == "torch":
            with self.lib.no_grad():
                return self.give(work(*map(self.take, arrays)))
        with self.lib.stream(self.device):
            return self.give(work(*map(self.take, arrays)))

    def matmul(self, a: Any, b: Any) -> Any:
        """The product."""
        return self.run(lambda x, y: x @ y, a, b)

    def _attend(self, q: Any, k: Any, v: Any, causal: bool) -> Any:
        if self.name == "torch":
            attend = self.lib.nn.functional.scaled_dot_product_attention
            return attend(q[None, None], k[None, None], v[None, None], is_causal=causal)[0, 0]
        scale = 1 / math.sqrt(q.shape[1])
        mask = "causal" if causal else None
        fast = self.lib.fast.scaled_dot_product_attention
        return fast(q[None, None], k[None, None], v[None, None], scale=scale, mask=mask)[0, 0]

    def attention(self, q: Any, k: Any, v: Any, causal: bool) -> Any:
        """Attention of one head."""
        return self.run(lambda x, y, z: self._attend(x, y, z, causal), q, k, v)

    def _convolve(self, x: Any, w: Any, b: Any, shape: _conv.ConvShape) -> Any:
        if self.name == "torch":
            return self.lib.nn.functional.conv2d(x, w, b, shape.stride, shape.padding).relu()
        y = self.lib.conv2d(x.transpose(0, 2, 3, 1), w.transpose(0, 2, 3, 1), shape.stride, shape.padding)
        return self.lib.maximum((y if b is None else y + b).transpose(0, 3, 1, 2), 0)

    def conv_relu(self, x: Any, w: Any, b: Any, shape: _conv.ConvShape) -> Any:
        """Convolution and relu."""
        arrays = [x, w] if b is None else [x, w, b]
        return self.run(lambda *t: self._convolve(t[0], t[1], t[2] if len(t) > 2 else None, shape), *arrays)

    def conv_attention(self, x: Any, w: Any, b: Any, shape: _conv.ConvShape, seq_len: int, head_dim: int) -> Any:
        """Convolution, relu, arrangement and attention."""
        arrays = [x, w] if b is None else [x, w, b]
        need = seq_len * head_dim

        def work(*t: Any) -> Any:
            flat = self._convolve(t[0], t[1], t[2] if len(t) > 2 else None, shape).reshape(-1)
            count = flat.shape[0]
            if count < 3 * need:
                times = -(-3 * need // count)
                flat = flat.repeat(times) if self.name == "torch" else self.lib.concatenate([flat] * times)
            q, k, v = (flat[i * need : (i + 1) * need].reshape(seq_len, head_dim) for i in range(3))
            return self._attend(q, k, v, False)

        return self.run(work, *arrays)


def finish(listed: list[Given], result: Any, flat: bool, out: Any, op: str, shape: tuple[int, ...]) -> Any:
    """A foreign engine's result as the operands' kind, or in the caller's memory."""
    tensor = given(op, "result", result).tensor
    if out is not None:
        output(op, out, shape).copy_(tensor.reshape(shape))
        return None
    from lucid.lightning._dispatch import kind_of

    return _arrays.result(kind_of(listed), tensor.reshape(shape), flat)


hosted = _host
