"""Names of `torch._C` that packages touch when they are imported, for `lucid._C` to have on first use.

What they ask is answered (nothing is traced, nothing is logged); switches of PyTorch's own compiler give `False`.
"""

from __future__ import annotations

import enum
import sys
from typing import Any

from lucid import _C

__all__ = ["install"]


#: Whether there are Intel's GPUs.
_has_xpu = False


def _log_api_usage_once(event: str) -> None:
    """Logs the use of an interface, in PyTorch at its makers' own. Nothing is logged."""


def _get_tracing_state() -> None:
    """What PyTorch's tracer has recorded: `None`, for it is not there."""


def _get_privateuse1_backend_name() -> str:
    """The name of a device that an extension of PyTorch adds."""
    return "privateuseone"


def _get_accelerator(check: bool | None = None) -> Any:
    """The GPU device."""
    import lucid

    return lucid.device("gpu")


def _cuda_getCurrentRawStream(device: int) -> int:
    """The address of the queue of CUDA, for libraries that launch kernels of their own: MLX shows none."""
    from lucid import errors

    raise errors.NotImplementedError("_C._cuda_getCurrentRawStream: MLX does not show the address of its stream")


def _cuda_isInBadFork() -> bool:
    """Whether this process was forked after CUDA was used, which breaks it: `False`."""
    return False


class _DisableTorchDispatch:
    """Keeps modes and classes from being asked about calls, from when it is made to when it is deleted or left."""

    def __init__(self) -> None:
        self._guard: Any = _C.DisableTorchFunction()
        self._guard.__enter__()

    def __enter__(self) -> _DisableTorchDispatch:
        return self

    def __exit__(self, *_exc: object) -> None:
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.__exit__(None, None, None)

    def __del__(self) -> None:
        self.__exit__()


def _former(*args: Any, **kwargs: Any) -> bool:
    """A switch of PyTorch's compiler of scripts, which is not there: off, before and after."""
    return False


def _are_functorch_transforms_active() -> bool:
    """Is this inside of a function that `vmap`, `grad` or another transform of `lucid.func` calls?"""
    return bool(_C._vmap_active()) or _C._is_transformed()


def _is_torch_function_mode_enabled() -> bool:
    """Is this inside of a `TorchFunctionMode`?"""
    return bool(_C._torch_function_modes())


def _is_alias_of(a: Any, b: Any) -> bool:
    """Do two tensors have the same storage?"""
    return bool(a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr())


def _get_default_device() -> str:
    """The type of the default tensor type's device: `set_default_tensor_type` has the CPU's alone."""
    return "cpu"


def _get_cudnn_enabled() -> bool:
    """The switch `backends.cudnn.enabled`."""
    from lucid.backends import cudnn

    return cudnn.enabled


class DispatchKey(enum.Enum):
    """Kinds of kernels by which `lucid.library` registers functions."""

    CPU = "CPU"
    CUDA = "CUDA"
    MPS = "MPS"
    Meta = "Meta"
    Autograd = "Autograd"
    AutogradCPU = "AutogradCPU"
    AutogradCUDA = "AutogradCUDA"
    AutocastCPU = "AutocastCPU"
    AutocastCUDA = "AutocastCUDA"
    AutocastXPU = "AutocastXPU"
    CompositeImplicitAutograd = "CompositeImplicitAutograd"
    CompositeExplicitAutograd = "CompositeExplicitAutograd"
    Undefined = "Undefined"


class DispatchKeySet:
    """A set of `DispatchKey`."""

    def __init__(self, *keys: DispatchKey) -> None:
        self.keys = frozenset(keys)

    def has(self, key: DispatchKey) -> bool:
        return key in self.keys

    def __or__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(*self.keys, *other.keys)


_AUTOCAST = {"AutocastCPU": "cpu", "AutocastCUDA": "gpu"}


class _ExcludeDispatchKeyGuard:
    """A block without some kinds of kernels: of `AutocastCPU` and `AutocastCUDA` autocast is off inside of it."""

    def __init__(self, keys: DispatchKeySet) -> None:
        import lucid

        # From construction on, as the C++ guard, and until it is freed or left.
        self._blocks = [lucid.autocast(d, enabled=False) for k, d in _AUTOCAST.items() if DispatchKey[k] in keys.keys]
        for block in self._blocks:
            block.__enter__()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        self.__del__()

    def __del__(self) -> None:
        while self._blocks:
            self._blocks.pop().__exit__(None, None, None)


class Graph:
    """A graph of PyTorch's scripts, for annotations and `isinstance`: there is none."""


class Value:
    """A value of a graph of PyTorch's scripts, for annotations and `isinstance`: there is none."""


class ScriptFunction:
    """A script of PyTorch, for annotations and `isinstance`: there is none."""


class _nn:
    """Functions of layers by the names of PyTorch's module of them."""

    @staticmethod
    def _parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
        """The arguments of `Module.to`: the device, the dtype, `non_blocking`, and the memory format."""
        import lucid
        from lucid.nn.modules.move import parse_to

        made = parse_to(args, kwargs)
        device = None if made.device is None else lucid.device(made.device)
        waits = kwargs.get("non_blocking", next((a for a in args if isinstance(a, bool)), False))
        return device, made.dtype, waits, made.memory_format


_NAMES = frozenset(
    (
        "_DisableTorchDispatch",
        *("DispatchKey", "DispatchKeySet", "Graph", "ScriptFunction", "Value", "_ExcludeDispatchKeyGuard", "_nn"),
        *(
            "_are_functorch_transforms_active",
            "_cuda_getCurrentRawStream",
            "_cuda_isInBadFork",
            "_get_accelerator",
            "_get_cudnn_enabled",
            "_get_default_device",
            "_get_privateuse1_backend_name",
            "_get_tracing_state",
            "_has_xpu",
            "_is_alias_of",
            "_is_torch_function_mode_enabled",
            "_log_api_usage_once",
        ),
    )
)


def _get(name: str) -> Any:
    if name.startswith(("_jit_set_", "_jit_override_can_fuse_on_", "_jit_can_fuse_on_", "_jit_pass_")):
        return _former
    if name == "_functorch":
        return sys.modules["lucid._C._functorch"]
    if name == "_autograd":
        from lucid import _autograd_names

        return _autograd_names
    if name == "parse_schema":
        from lucid._function_schema import parse_schema

        return parse_schema
    if name == "_TensorMeta":
        return type(_C.Tensor)
    if name in _NAMES:
        return globals()[name]
    raise AttributeError(f"module 'lucid._C' has no attribute {name!r}")


def install() -> None:
    """Gives `lucid._C` these names, found on first use."""
    from lucid import _functorch_names

    # `import torch._C._functorch` finds it there: an extension module has no files below it.
    vars(_C)["__getattr__"] = _get
    sys.modules["lucid._C._functorch"] = _functorch_names
