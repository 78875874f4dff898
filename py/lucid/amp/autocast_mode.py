"""`autocast` as context manager and decorator, its state, and what functions with gradients of their own need.

The casts themselves are the engine's, at the entry of each op, by the policy in its row of the op table.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, TypeVar, cast

import lucid
from lucid import _C, Tensor, errors
from lucid._warnings import warn

__all__ = [
    "autocast",
    "clear_autocast_cache",
    "custom_bwd",
    "custom_fwd",
    "get_autocast_dtype",
    "is_autocast_available",
    "is_autocast_cache_enabled",
    "is_autocast_enabled",
    "set_autocast_cache_enabled",
    "set_autocast_dtype",
    "set_autocast_enabled",
]

F = TypeVar("F", bound=Callable[..., Any])

# PyTorch's names of GPU back ends all mean the one GPU device.
_DEVICES = {"cpu": "cpu", **dict.fromkeys(("gpu", "cuda", "mps", "metal", "mlx"), "gpu")}
# Those of its other back ends, of which code may ask whether autocast is on.
_ELSEWHERE = ("hpu", "ipu", "maia", "mtia", "privateuseone", "xla", "xpu")


def _place(device_type: Any) -> str:
    if not isinstance(device_type, str):
        raise errors.ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    place = _DEVICES.get(device_type.partition(":")[0])
    if place is None:
        raise errors.RuntimeError(
            f"User specified an unsupported autocast device_type '{device_type}'; there are {', '.join(_DEVICES)}"
        )
    return place


def is_autocast_available(device_type: str) -> bool:
    """Does autocast know this type of device?

    Args:
        device_type (str): "cpu", "gpu" or another name of the GPU.

    Returns:
        bool: whether it does.

    Example:
        >>> lucid.amp.is_autocast_available("cpu")
        True
    """
    return _DEVICES.get(device_type.partition(":")[0]) is not None


def is_autocast_enabled(device_type: str | None = None) -> bool:
    """Is autocast on for the device on this thread? Without a device, as in PyTorch, for the GPU device.

    Of PyTorch's other types of devices, which are not there, it is not.

    Args:
        device_type (str, optional): "cpu", "gpu" or another name of the GPU.

    Returns:
        bool: whether it is on.

    Example:
        >>> lucid.is_autocast_enabled("cpu")
        False
    """
    if isinstance(device_type, str) and device_type.partition(":")[0] in _ELSEWHERE:
        return False
    return _C._autocast_enabled(_place("gpu" if device_type is None else device_type))


def set_autocast_enabled(device_type: str, enabled: bool) -> None:
    """Turns autocast on or off for the device, on this thread.

    Args:
        device_type (str): "cpu", "gpu" or another name of the GPU.
        enabled (bool): turns it on.

    Example:
        >>> lucid.set_autocast_enabled("cpu", False)
    """
    _C._set_autocast_enabled(_place(device_type), bool(enabled))


def get_autocast_dtype(device_type: str) -> lucid.dtype:
    """The low-precision dtype: bfloat16 on the CPU and float16 on the GPU device, unless set.

    Args:
        device_type (str): "cpu", "gpu" or another name of the GPU.

    Returns:
        lucid.dtype: the dtype.

    Example:
        >>> lucid.get_autocast_dtype("cpu")
        lucid.bfloat16
    """
    return _C._autocast_dtype(_place(device_type))


def set_autocast_dtype(device_type: str, dtype: lucid.dtype) -> None:
    """Sets the low-precision dtype, float16 or bfloat16, on this thread.

    Args:
        device_type (str): "cpu", "gpu" or another name of the GPU.
        dtype (lucid.dtype): float16 or bfloat16.

    Example:
        >>> lucid.set_autocast_dtype("cpu", lucid.bfloat16)
    """
    _C._set_autocast_dtype(_place(device_type), dtype)


def _older(name: str, newer: str) -> None:
    warn(f"lucid.{name} is deprecated. Please use lucid.{newer}, with the device's name, instead.", DeprecationWarning)


def is_autocast_cpu_enabled() -> bool:
    """Is autocast on for the CPU? The older name of `is_autocast_enabled("cpu")`, as the following are of theirs."""
    _older("is_autocast_cpu_enabled", "is_autocast_enabled")
    return is_autocast_enabled("cpu")


def set_autocast_cpu_enabled(enabled: bool) -> None:
    """Turns autocast on or off for the CPU, on this thread. An older name of `set_autocast_enabled("cpu", …)`; warns.

    Args:
        enabled (bool): whether ops cast.

    Raises:
        TypeError: `enabled` is no bool.

    Example:
        >>> lucid.set_autocast_cpu_enabled(False)
    """
    if not isinstance(enabled, bool):
        raise errors.TypeError(f"enabled must be a bool (got {type(enabled).__name__})")
    _older("set_autocast_cpu_enabled", "set_autocast_enabled")
    set_autocast_enabled("cpu", enabled)


def get_autocast_cpu_dtype() -> lucid.dtype:
    """The low-precision dtype of the CPU."""
    _older("get_autocast_cpu_dtype", "get_autocast_dtype")
    return get_autocast_dtype("cpu")


def set_autocast_cpu_dtype(dtype: lucid.dtype) -> None:
    """Sets the lower precision of autocast on the CPU, on this thread. An older name of `set_autocast_dtype`; warns.

    Args:
        dtype (dtype): such as `lucid.bfloat16`.

    Example:
        >>> lucid.set_autocast_cpu_dtype(lucid.bfloat16)
    """
    _older("set_autocast_cpu_dtype", "set_autocast_dtype")
    set_autocast_dtype("cpu", dtype)


def get_autocast_gpu_dtype() -> lucid.dtype:
    """The low-precision dtype of the GPU device."""
    _older("get_autocast_gpu_dtype", "get_autocast_dtype")
    return get_autocast_dtype("gpu")


def set_autocast_gpu_dtype(dtype: lucid.dtype) -> None:
    """Sets the lower precision of autocast on the GPU device, on this thread. An older name of `set_autocast_dtype`;
    warns.

    Args:
        dtype (dtype): such as `lucid.float16`.

    Example:
        >>> lucid.set_autocast_gpu_dtype(lucid.float16)
    """
    _older("set_autocast_gpu_dtype", "set_autocast_dtype")
    set_autocast_dtype("gpu", dtype)


def is_autocast_cache_enabled() -> bool:
    """Are casts of leaves kept until the outermost block ends?"""
    return _C._autocast_cache_enabled()


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Says whether casts of leaves are kept.

    Args:
        enabled (bool): keeps them until the outermost block ends.

    Example:
        >>> lucid.set_autocast_cache_enabled(True)
    """
    _C._set_autocast_cache_enabled(bool(enabled))


def clear_autocast_cache() -> None:
    """Forgets the casts of leaves that are kept."""
    _C._clear_autocast_cache()


class autocast:
    """Runs matrix products and convolutions in 16 bits, and what needs float32 in float32.

    As context manager or decorator; blocks nest, and the state belongs to the thread. Which ops are cast is stated by
    the op table (`lucid.op_schemas()`, `amp`) and follows PyTorch's lists for its CPU and CUDA back ends. float64 and
    integers are never touched. Backward passes run outside of it, in the dtypes of their forward pass.

    A dtype that is neither warns and leaves autocast off, as in PyTorch.

    Args:
        device_type (str, optional): "cpu", "gpu" or another name of the GPU.
        dtype (lucid.dtype, optional): the 16-bit dtype; bfloat16 on the cpu and float16 on the GPU device by
            default.
        enabled (bool, default: True): casts; else the block computes as without autocast.
        cache_enabled (bool, optional): keeps the casts of leaves until the outermost block ends.

    Example:
        >>> with lucid.autocast("cpu"):
        ...     y = lucid.ones(2, 2) @ lucid.ones(2, 2)
        >>> y.dtype
        lucid.bfloat16
    """

    def __init__(
        self,
        device_type: str | None = None,
        dtype: lucid.dtype | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        self.device = "gpu" if device_type is None else _place(device_type)
        self._beside = autocast("cpu", dtype, enabled, cache_enabled) if device_type is None else None
        self.fast_dtype = _C._autocast_dtype(self.device) if dtype is None else dtype
        self._cache_enabled = _C._autocast_cache_enabled() if cache_enabled is None else cache_enabled
        if enabled and self.fast_dtype not in (lucid.float16, lucid.bfloat16):
            warn(
                f"In {self.device.upper()} autocast, but the target dtype is not supported. Disabling autocast.\n"
                f"{self.device.upper()} Autocast only supports dtype of lucid.bfloat16, lucid.float16 currently."
            )
            enabled = False
        self._enabled = bool(enabled)
        self._former: list[tuple[bool, lucid.dtype, bool]] = []

    def __enter__(self) -> autocast:
        if self._beside is not None:
            self._beside.__enter__()
        device = self.device
        self._former.append((_C._autocast_enabled(device), _C._autocast_dtype(device), _C._autocast_cache_enabled()))
        _C._autocast_enter()
        if self._enabled:
            _C._set_autocast_dtype(device, self.fast_dtype)
        _C._set_autocast_enabled(device, self._enabled)
        _C._set_autocast_cache_enabled(self._cache_enabled)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        _C._autocast_exit()
        enabled, dtype, cache_enabled = self._former.pop()
        _C._set_autocast_dtype(self.device, dtype)
        _C._set_autocast_enabled(self.device, enabled)
        _C._set_autocast_cache_enabled(cache_enabled)
        if self._beside is not None:
            self._beside.__exit__(kind, value, trace)

    def __call__(self, function: F) -> F:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return cast(F, wrapper)


def _cast(value: Any, device: str, dtype: lucid.dtype) -> Any:
    """A value with the floating tensors of the device in it cast; float64 stays."""
    if isinstance(value, Tensor):
        wanted = value.is_floating_point() and value.dtype != lucid.float64 and value.is_cpu == (device == "cpu")
        return value.to(dtype) if wanted else value
    if isinstance(value, (str, bytes)):
        return value
    if isinstance(value, Mapping):
        return {_cast(k, device, dtype): _cast(v, device, dtype) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        items = [_cast(v, device, dtype) for v in value]
        return type(value)(items)
    return value


def custom_fwd(
    fwd: Callable[..., Any] | None = None, *, device_type: str, cast_inputs: lucid.dtype | None = None
) -> Any:
    """Decorates the `forward` of an `autograd.Function`: notes autocast's state for `custom_bwd`.

    With `cast_inputs`, and where autocast is on, floating inputs are cast to that dtype and `forward` runs with
    autocast off.

    Args:
        fwd (callable, optional): the `forward` to decorate.
        device_type (str): "cpu", "gpu" or another name of the GPU.
        cast_inputs (lucid.dtype, optional): the dtype that floating inputs are cast to.

    Returns:
        callable: the decorated function, or a decorator.

    Example:
        >>> class Double(lucid.autograd.Function):
        ...     @staticmethod
        ...     @lucid.amp.custom_fwd(device_type="cpu")
        ...     def forward(ctx, x):
        ...         return x * 2
        >>> Double.apply(lucid.ones(1))
        tensor([2.])
    """
    device = _place(device_type)
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        context = args[0]
        enabled = _C._autocast_enabled(device)
        context._dtype = _C._autocast_dtype(device)
        if cast_inputs is None or not enabled:
            context._fwd_used_autocast = enabled
            return fwd(*args, **kwargs)
        context._fwd_used_autocast = False
        with autocast(device, enabled=False):
            return fwd(*_cast(args, device, cast_inputs), **_cast(kwargs, device, cast_inputs))

    return decorated


def custom_bwd(bwd: Callable[..., Any] | None = None, *, device_type: str) -> Any:
    """Decorates the `backward` of an `autograd.Function`: it runs under the autocast that `forward` ran under.

    Args:
        bwd (callable, optional): the `backward` to decorate.
        device_type (str): "cpu", "gpu" or another name of the GPU.

    Returns:
        callable: the decorated function, or a decorator.

    Example:
        >>> class Double(lucid.autograd.Function):
        ...     @staticmethod
        ...     @lucid.amp.custom_fwd(device_type="cpu")
        ...     def forward(ctx, x):
        ...         return x * 2
        ...     @staticmethod
        ...     @lucid.amp.custom_bwd(device_type="cpu")
        ...     def backward(ctx, grad):
        ...         return grad * 2
        >>> x = lucid.ones(1, requires_grad=True)
        >>> Double.apply(x).backward()
        >>> x.grad
        tensor([2.])
    """
    device = _place(device_type)
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        context = args[0]
        with autocast(device, enabled=context._fwd_used_autocast, dtype=context._dtype):
            return bwd(*args, **kwargs)

    return decorated
