"""IO policies, which say per call what is uploaded, downloaded and waited for, and the CPU crossover of this layer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, ClassVar

from lucid import _C, errors
from lucid._tuning import Tuner
from lucid.lightning import _env
from lucid.lightning._arrays import number

__all__ = [
    "AttentionIoPolicy",
    "Conv2dIoPolicy",
    "CrossoverPolicy",
    "MatMulIoPolicy",
    "MatrixElementwiseIoPolicy",
    "VectorAddIoPolicy",
    "crossover_policy_get",
    "crossover_policy_set",
]

# How often: at each call, at the first alone, never. A bool is the first or the last.
FREQUENCIES = ("always", "once", "never")


def frequency(op: str, name: str, value: Any) -> str:
    """A policy's field as how often it is done."""
    if value is True:
        return "always"
    if value is False:
        return "never"
    if isinstance(value, str) and value in FREQUENCIES:
        return value
    raise errors.ValueError(f"{op}: {name} must be True, False or one of {', '.join(FREQUENCIES)}, got {value!r}")


class _IoPolicy:
    """Fields with defaults; setting an unknown field, or a value that a field cannot have, is an error."""

    _frequencies: ClassVar[dict[str, Any]] = {}
    _numbers: ClassVar[dict[str, float]] = {}
    _others: ClassVar[dict[str, Any]] = {}

    def __init__(self, **fields: Any) -> None:
        for defaults in (self._frequencies, self._numbers, self._others):
            for name, default in defaults.items():
                object.__setattr__(self, name, default)
        for name, value in fields.items():
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        kind = type(self).__name__
        if name in self._frequencies:
            frequency(kind, name, value)
        elif name in self._numbers:
            value = number(kind, name, value)
        elif name in self._others:
            default = self._others[name]
            if type(value) is not type(default) or (isinstance(default, int) and value < 0):
                raise errors.ValueError(f"{kind}: {name} must be of {type(default).__name__} from 0 on, got {value!r}")
        else:
            known = ", ".join([*self._frequencies, *self._numbers, *self._others])
            raise errors.ValueError(f"{kind}: no field {name!r}; there are {known}")
        object.__setattr__(self, name, value)

    def _often(self, name: str) -> str:
        return frequency(type(self).__name__, name, getattr(self, name))

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in vars(self).items())})"


class _PairIoPolicy(_IoPolicy):
    """The fields of policies for ops of two operands."""

    upload_a: Any
    upload_b: Any
    download_out: Any
    synchronize: Any
    _frequencies: ClassVar[dict[str, Any]] = {
        "upload_a": True,
        "upload_b": True,
        "download_out": True,
        "synchronize": True,
    }


class MatMulIoPolicy(_PairIoPolicy):
    """What a product of matrices uploads, downloads and waits for.

    Args:
        fields (bool or str): by name: `upload_a` and `upload_b` bring an operand to the device, `download_out` brings
            the result to the host, `synchronize` waits for the device at the end. True or `"always"` (the default): at
            each call; `"once"`: where none is resident yet, or at the first run; False or `"never"`. What is downloaded
            is waited for in any case.

    Raises:
        ValueError: there is no such field, or it cannot have that value.

    Example:
        >>> import lucid.lightning as lc
        >>> policy = lc.MatMulIoPolicy(upload_b="once")
        >>> policy.upload_b, policy.download_out
        ('once', True)
    """


class MatrixElementwiseIoPolicy(_PairIoPolicy):
    """What an elementwise op of two matrices uploads, downloads and waits for.

    Args:
        fields (bool or str): `upload_a`, `upload_b`, `download_out` and `synchronize`, with the values of
            `MatMulIoPolicy`.

    Raises:
        ValueError: there is no such field, or it cannot have that value.

    Example:
        >>> import lucid.lightning as lc
        >>> lc.MatrixElementwiseIoPolicy(download_out=False).download_out
        False
    """


class VectorAddIoPolicy(_PairIoPolicy):
    """What a sum of two vectors uploads, downloads and waits for.

    Args:
        fields (bool or str): `upload_a`, `upload_b`, `download_out` and `synchronize`, with the values of
            `MatMulIoPolicy`.

    Raises:
        ValueError: there is no such field, or it cannot have that value.

    Example:
        >>> import lucid.lightning as lc
        >>> lc.VectorAddIoPolicy(synchronize="never").synchronize
        'never'
    """


class Conv2dIoPolicy(_IoPolicy):
    """What a convolution uploads, downloads and waits for.

    Args:
        fields (bool or str): `upload_x`, `upload_w`, `upload_b`, `download_out` and `synchronize`, with the values of
            `MatMulIoPolicy`.

    Raises:
        ValueError: there is no such field, or it cannot have that value.

    Example:
        >>> import lucid.lightning as lc
        >>> lc.Conv2dIoPolicy(upload_w="once", upload_b="once").upload_w
        'once'
    """

    upload_x: Any
    upload_w: Any
    upload_b: Any
    download_out: Any
    synchronize: Any
    _frequencies: ClassVar[dict[str, Any]] = {
        "upload_x": True,
        "upload_w": True,
        "upload_b": True,
        "download_out": True,
        "synchronize": True,
    }


class AttentionIoPolicy(_IoPolicy):
    """What attention and its training step upload, download and wait for, and what follows the product.

    The result is `output_scale * attention + output_bias`, and 0 where that is negative with `output_relu`.

    Args:
        fields (bool, str, int or float): `upload_q`, `upload_k`, `upload_v`, `upload_target`, `download_out` and
            `synchronize`, with the values of `MatMulIoPolicy`; `download_v`, which brings trained values to the host;
            `loss_every` (1): a training step reads its loss every so many steps and gives the last one between, 0 never
            reads it; `output_scale` (1.0), `output_bias` (0.0) and `output_relu` (False).

    Raises:
        ValueError: there is no such field, or it cannot have that value.

    Example:
        >>> import lucid.lightning as lc
        >>> policy = lc.AttentionIoPolicy(output_scale=2.0)
        >>> lc.AttentionSession(1, 1, device="cpu", policy=policy).forward([1.0], [2.0], [5.0])
        [10.0]
    """

    upload_q: Any
    upload_k: Any
    upload_v: Any
    upload_target: Any
    download_out: Any
    download_v: Any
    synchronize: Any
    loss_every: int
    output_scale: float
    output_bias: float
    output_relu: bool
    _frequencies: ClassVar[dict[str, Any]] = {
        "upload_q": True,
        "upload_k": True,
        "upload_v": True,
        "upload_target": True,
        "download_out": True,
        "download_v": True,
        "synchronize": True,
    }
    _numbers: ClassVar[dict[str, float]] = {"output_scale": 1.0, "output_bias": 0.0}
    _others: ClassVar[dict[str, Any]] = {"loss_every": 1, "output_relu": False}


class CrossoverPolicy(_IoPolicy):
    """When work that was asked for on a GPU is computed on the CPU.

    It holds for arrays and lists alone: results of tensors stay on the device that was asked for.

    Args:
        fields (str or float): `mode`: `"static"` (the default): work of at most the op's threshold; `"measured"`: both
            are timed once per op and shape, and the faster one is remembered; `"off"`: never. `conv2d`, `matmul` and
            `attention`: thresholds in multiply-accumulates; that of convolutions follows the variable
            `CJ_CONV2D_CPU_CROSSOVER_MACS` while `conv2d` is -1. `elementwise`: a threshold in elements.

    Raises:
        ValueError: there is no such field, or it cannot have that value.

    Example:
        >>> import lucid.lightning as lc
        >>> lc.CrossoverPolicy(mode="off").mode
        'off'
        >>> lc.CrossoverPolicy().matmul
        262144.0
    """

    mode: str
    conv2d: float
    matmul: float
    attention: float
    elementwise: float
    _numbers: ClassVar[dict[str, float]] = {
        "conv2d": -1.0,
        "matmul": 262144.0,
        "attention": 262144.0,
        "elementwise": 262144.0,
    }
    _others: ClassVar[dict[str, Any]] = {"mode": "static"}

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "mode" and value not in ("static", "measured", "off"):
            raise errors.ValueError(f"CrossoverPolicy: mode must be static, measured or off, got {value!r}")
        super().__setattr__(name, value)


class _Crossover:
    policy = CrossoverPolicy()
    conv_macs: int | None = None
    tuner: Tuner | None = None
    lock = threading.Lock()


def crossover_policy_set(policy: CrossoverPolicy) -> None:
    """Sets when small work that was asked for on a GPU is computed on the CPU.

    Args:
        policy (CrossoverPolicy): the thresholds, from now on.

    Raises:
        TypeError: `policy` is no `CrossoverPolicy`.

    Example:
        >>> import lucid.lightning as lc
        >>> former = lc.crossover_policy_get()
        >>> lc.crossover_policy_set(lc.CrossoverPolicy(matmul=0))
        >>> lc.crossover_policy_set(former)
    """
    if not isinstance(policy, CrossoverPolicy):
        raise errors.TypeError(f"crossover_policy_set(): expected a CrossoverPolicy, got {type(policy).__name__}")
    _Crossover.policy = policy
    _Crossover.conv_macs = None


def crossover_policy_get() -> CrossoverPolicy:
    """When small work that was asked for on a GPU is computed on the CPU."""
    return _Crossover.policy


def _threshold(family: str) -> float:
    given = getattr(_Crossover.policy, family)
    if family != "conv2d" or given >= 0:
        return float(given)
    if _env.CONV_CROSSOVER_DYNAMIC.flag() or _Crossover.conv_macs is None:
        _Crossover.conv_macs = _env.CONV_CROSSOVER_MACS.integer()
    return _Crossover.conv_macs


def select(
    family: str,
    key: str,
    device: _C.device,
    work: float,
    run: Callable[[_C.device], Any] | None = None,
) -> _C.device:
    """The device that computes: the one asked for, or the CPU where the crossover policy says so.

    Args:
        family: `conv2d`, `matmul`, `attention` or `elementwise`.
        key: The op and its shapes, for what is measured.
        device: The device asked for.
        work: Multiply-accumulates, or elements.
        run: Computes on a device and waits, for what is measured.
    """
    if device.type == "cpu" or _Crossover.policy.mode == "off":
        return device
    cpu = _C.device("cpu")
    if _Crossover.policy.mode == "static" or run is None:
        return cpu if work <= _threshold(family) else device
    with _Crossover.lock:
        if _Crossover.tuner is None:
            from lucid._tuning import cache_folder

            _Crossover.tuner = Tuner(cache_folder() / "lightning-crossover.json")
        tuner = _Crossover.tuner
    choice = tuner.choose(
        f"{key} on {device.type}", {"cpu": lambda: run(cpu), "device": lambda: run(device)}, budget_s=0.2
    )
    return cpu if choice == "cpu" else device
