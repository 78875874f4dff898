"""Pruning: masks that hold parts of a parameter at zero, set before each call.

A pruned parameter lives on as `name_orig`, its mask as the buffer `name_mask`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import lucid
from lucid import Tensor, errors
from lucid._naming import named
from lucid.nn.parameter import Parameter

__all__ = [
    "custom_from_mask",
    "global_unstructured",
    "identity",
    "is_pruned",
    "l1_unstructured",
    "ln_structured",
    "random_structured",
    "random_unstructured",
    "remove",
]


class _Mask:
    """The hook that sets `name` to `name_orig · name_mask`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def apply(self, module: Any) -> Tensor:
        """The masked parameter."""
        original, mask = getattr(module, self.name + "_orig"), getattr(module, self.name + "_mask")
        made: Tensor = original * mask.to(original.dtype)
        return made

    def __call__(self, module: Any, inputs: Any) -> None:
        setattr(module, self.name, self.apply(module))


def _hook(module: Any, name: str) -> int | None:
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, _Mask) and hook.name == name:
            return int(key)
    return None


@named
def custom_from_mask(module: Any, name: str, mask: Tensor) -> Any:
    """Prunes what the mask (zeros and ones) leaves out, besides what is pruned already."""
    key = _hook(module, name)
    if key is not None:
        kept = getattr(module, name + "_mask")
        kept.copy_(kept * mask.to(kept.dtype))
        hook = module._forward_pre_hooks[key]
    else:
        original = module._parameters[name]
        if tuple(mask.shape) != tuple(original.shape):
            raise AssertionError(f"mask of shape {tuple(mask.shape)} for a parameter of shape {tuple(original.shape)}")
        del module._parameters[name]
        module.register_parameter(name + "_orig", original)
        module.register_buffer(name + "_mask", mask.to(original.dtype).clone())
        hook = _Mask(name)
        module.register_forward_pre_hook(hook)
    setattr(module, name, hook.apply(module))
    return module


def identity(module: Any, name: str) -> Any:
    """Pruning of nothing."""
    return custom_from_mask(module, name, lucid.ones_like(getattr(module, name).detach()))


def _count(amount: float, size: int) -> int:
    """How many of `size` an amount is: a share for floats, a number for integers."""
    if isinstance(amount, bool) or not isinstance(amount, (int, float)):
        raise errors.TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    if isinstance(amount, int):
        if amount < 0:
            raise errors.ValueError(f"Invalid amount={amount}, should be a positive integer")
        if amount > size:
            raise errors.ValueError(f"amount={amount} should be smaller than the number of parameters to prune={size}")
        return amount
    if not 0.0 <= amount <= 1.0:
        raise errors.ValueError(f"amount={amount} should be a float in the range [0, 1]")
    return round(amount * size)


def _present(module: Any, name: str) -> tuple[Tensor, Tensor]:
    """The parameter, flat, and which of it is not pruned yet."""
    tensor = getattr(module, name + "_orig") if _hook(module, name) is not None else getattr(module, name)
    kept = getattr(module, name + "_mask", None)
    flat = tensor.detach().reshape([-1])
    return flat, lucid.ones_like(flat) if kept is None else kept.reshape([-1])


def _without(flat: Tensor, kept: Tensor, scores: Tensor, count: int) -> Tensor:
    """A mask without the `count` lowest scores of those still kept."""
    if count == 0:
        return lucid.ones_like(flat)
    held = scores.masked_fill(kept == 0, float("inf"))
    lowest = held.argsort()[:count]
    return lucid.ones_like(flat).scatter(0, lowest, 0.0)


def _unstructured(module: Any, name: str, amount: float, scores: Any) -> Any:
    flat, kept = _present(module, name)
    count = _count(amount, int(kept.sum().item()))
    mask = _without(flat, kept, scores(flat), count)
    return custom_from_mask(module, name, mask.reshape(tuple(getattr(module, name).shape)))


@named
def l1_unstructured(module: Any, name: str, amount: float, importance_scores: Tensor | None = None) -> Any:
    """Prunes the elements that are smallest in size; `amount` is their number, or their share as a float."""
    if importance_scores is not None:
        given = importance_scores.reshape([-1])
        return _unstructured(module, name, amount, lambda flat: given.abs())
    return _unstructured(module, name, amount, lambda flat: flat.abs())


@named
def random_unstructured(module: Any, name: str, amount: float) -> Any:
    """Prunes random elements."""
    return _unstructured(module, name, amount, lambda flat: lucid.rand_like(flat))


def _structured(module: Any, name: str, amount: float, dim: int, scores: Any) -> Any:
    tensor = getattr(module, name).detach()
    if tensor.dim() <= 1:
        raise errors.ValueError("Structured pruning can only be applied to multidimensional tensors.")
    axis = dim % tensor.dim()
    rows = tensor.transpose(0, axis).reshape([tensor.shape[axis], -1])
    used = (rows != 0).any(1).to(tensor.dtype) if _hook(module, name) is not None else lucid.ones_like(rows[:, 0])
    count = _count(amount, int(used.sum().item()))
    mask = _without(rows[:, 0], used, scores(rows), count)
    view = [1] * tensor.dim()
    view[axis] = -1
    return custom_from_mask(module, name, mask.reshape(view).expand(tuple(tensor.shape)))


@named
def ln_structured(
    module: Any, name: str, amount: float, n: float, dim: int, importance_scores: Tensor | None = None
) -> Any:
    """Prunes whole slices along `dim`: those whose norm of order `n` is smallest."""
    from lucid.nn._functional.distance import norm

    return _structured(module, name, amount, dim, lambda rows: norm(rows, n, 1))


@named
def random_structured(module: Any, name: str, amount: float, dim: int) -> Any:
    """Prunes random slices along `dim`."""
    return _structured(module, name, amount, dim, lambda rows: lucid.rand(rows.shape[0], device=rows.device))


@named
def global_unstructured(
    parameters: Iterable[tuple[Any, str]], pruning_method: Any, importance_scores: Any = None, **kwargs: Any
) -> None:
    """Prunes the smallest (`l1_unstructured`) or random elements of several parameters, compared with each other."""
    pairs = list(parameters)
    found = [_present(module, name) for module, name in pairs]
    flat, kept = (lucid.cat([pair[i] for pair in found]) for i in (0, 1))
    random = "andom" in getattr(pruning_method, "__name__", "")
    count = _count(kwargs.get("amount", 0), int(kept.sum().item()))
    mask = _without(flat, kept, lucid.rand_like(flat) if random else flat.abs(), count)
    at = 0
    for module, name in pairs:
        tensor = getattr(module, name)
        custom_from_mask(module, name, mask.narrow(0, at, tensor.numel()).reshape(tuple(tensor.shape)))
        at += tensor.numel()


@named
def remove(module: Any, name: str) -> Any:
    """Makes the pruned values the parameter for good."""
    key = _hook(module, name)
    if key is None:
        raise errors.ValueError(f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed")
    hook = module._forward_pre_hooks.pop(key)
    with lucid.no_grad():
        value = hook.apply(module).detach()
    original: Parameter = module._parameters[name + "_orig"]
    delattr(module, name)
    original.data = value
    del module._parameters[name + "_orig"], module._buffers[name + "_mask"]
    setattr(module, name, original)
    return module


def is_pruned(module: Any) -> bool:
    """Is any parameter of the tree pruned?"""
    return any(isinstance(h, _Mask) for m in module.modules() for h in m._forward_pre_hooks.values())
