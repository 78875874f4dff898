"""Gradients: backward passes, gradients as values, checks against finite differences, grad modes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from lucid import _C
from lucid._C import Tensor
from lucid._C import is_grad_enabled as is_grad_enabled
from lucid._grad_mode import enable_grad as enable_grad
from lucid._grad_mode import inference_mode as inference_mode
from lucid._grad_mode import no_grad as no_grad
from lucid._grad_mode import set_grad_enabled as set_grad_enabled

if TYPE_CHECKING:
    from lucid.autograd._gradcheck import gradcheck as gradcheck
    from lucid.autograd._gradcheck import gradgradcheck as gradgradcheck
    from lucid.autograd.anomaly_mode import detect_anomaly as detect_anomaly
    from lucid.autograd.anomaly_mode import is_anomaly_check_nan_enabled as is_anomaly_check_nan_enabled
    from lucid.autograd.anomaly_mode import is_anomaly_enabled as is_anomaly_enabled
    from lucid.autograd.anomaly_mode import set_detect_anomaly as set_detect_anomaly
    from lucid.autograd.function import Function as Function
    from lucid.autograd.function import FunctionCtx as FunctionCtx
    from lucid.autograd.functional import hessian as hessian
    from lucid.autograd.functional import hvp as hvp
    from lucid.autograd.functional import jacobian as jacobian
    from lucid.autograd.functional import jvp as jvp
    from lucid.autograd.functional import vhp as vhp
    from lucid.autograd.functional import vjp as vjp
    from lucid.autograd.variable import Variable as Variable
    from lucid.utils.checkpoint import checkpoint as checkpoint

_Tensors: TypeAlias = Tensor | Sequence[Tensor]
_Grads: TypeAlias = Tensor | Sequence[Tensor | None] | None


def _listed(tensors: _Tensors) -> Sequence[Tensor]:
    return (tensors,) if isinstance(tensors, Tensor) else tuple(tensors)


def backward(
    tensors: _Tensors,
    grad_tensors: _Grads = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: _Tensors | None = None,
) -> None:
    """Adds the gradients of `tensors` to their leaves, or to `inputs` alone.

    Each tensor is weighed by its entry of `grad_tensors`, which may be `None` for a tensor of one element. The graph is
    let go of unless `retain_graph` or `create_graph`.
    """
    keep = create_graph if retain_graph is None else retain_graph
    targets = None if inputs is None else _listed(inputs)
    if targets is not None and not targets:
        raise RuntimeError("'inputs' argument to backward() cannot be empty")
    _C._backward(_listed(tensors), grad_tensors, keep, create_graph, targets)


def grad(
    outputs: _Tensors,
    inputs: _Tensors,
    grad_outputs: _Grads = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """The gradients of `outputs`, weighed by `grad_outputs`, with respect to `inputs`; leaves' `grad` stay as they are.

    An input that no output depends on is an error, `None` with `allow_unused`, and zeros with `materialize_grads`. With
    `is_grads_batched`, `grad_outputs` have a leading dimension, and so have the gradients: one pass makes them all.
    """
    if not only_inputs:
        warnings.warn(
            "only_inputs argument is deprecated and is ignored now (defaults to True). To accumulate gradient for "
            "other parts of the graph, please use lucid.autograd.backward.",
            FutureWarning,
            stacklevel=2,
        )
    if materialize_grads and allow_unused is False:
        raise ValueError("grad(): with materialize_grads, allow_unused must not be False")
    keep = create_graph if retain_graph is None else retain_graph
    targets = _listed(inputs)
    found: tuple[Any, ...]
    if is_grads_batched:
        found = _batched_grad(_listed(outputs), targets, grad_outputs, keep, create_graph)
    else:
        found = _C._grad(_listed(outputs), targets, grad_outputs, keep, create_graph)
    if materialize_grads:
        return tuple(_C.zeros_like(t) if g is None else g for t, g in zip(targets, found, strict=True))
    if not allow_unused and any(g is None for g in found):
        raise RuntimeError(
            "One of the differentiated Tensors appears to not have been used in the graph. "
            "Set allow_unused=True if this is the desired behavior."
        )
    return found


def _batched_grad(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], grads: _Grads, keep: bool, create_graph: bool
) -> tuple[Any, ...]:
    """`grad` over the first dimension of `grads`."""
    from lucid.func import vmap

    if grads is None:
        raise RuntimeError("grad(): with is_grads_batched, grad_outputs must be given")
    used: list[bool] = []

    def one(weights: Any) -> tuple[Tensor, ...]:
        found = _C._grad(outputs, inputs, weights, keep, create_graph)
        used[:] = [g is not None for g in found]
        return tuple(g for g in found if g is not None)

    listed = (grads,) if isinstance(grads, Tensor) else tuple(grads)
    made = iter(vmap(one)(listed))
    return tuple(next(made) if u else None for u in used)


class RemovableHandle:
    """What registering a hook on a tensor or a node gives: `remove()` takes the hook away again."""

    def __init__(self, owner: Any, id: int) -> None:
        self._owner: Any = owner
        self.id = id

    def remove(self) -> None:
        """Takes the hook away; a second time it does nothing."""
        if self._owner is not None:
            self._owner._remove_hook(self.id)
        self._owner = None

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


# What is imported on first use, and where it lives.
_NAMES = {
    "Function": "lucid.autograd.function",
    "FunctionCtx": "lucid.autograd.function",
    "Variable": "lucid.autograd.variable",
    "checkpoint": "lucid.utils.checkpoint",
    "detect_anomaly": "lucid.autograd.anomaly_mode",
    "gradcheck": "lucid.autograd._gradcheck",
    "gradgradcheck": "lucid.autograd._gradcheck",
    "is_anomaly_check_nan_enabled": "lucid.autograd.anomaly_mode",
    "is_anomaly_enabled": "lucid.autograd.anomaly_mode",
    "hessian": "lucid.autograd.functional",
    "hvp": "lucid.autograd.functional",
    "jacobian": "lucid.autograd.functional",
    "jvp": "lucid.autograd.functional",
    "vhp": "lucid.autograd.functional",
    "vjp": "lucid.autograd.functional",
    "set_detect_anomaly": "lucid.autograd.anomaly_mode",
}
_MODULES = {"anomaly_mode", "forward_ad", "function", "functional", "graph", "profiler", "variable"}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"lucid.autograd.{name}")
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_NAMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES, *_MODULES})
