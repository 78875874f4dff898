"""Limits on gradients, and their norm."""

from __future__ import annotations

import math
from collections.abc import Iterable
from types import GeneratorType
from typing import Any

import lucid
from lucid import _C, Tensor, errors
from lucid._public_names import named
from lucid._warnings import warn

__all__ = ["clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm"]


def _listed(tensors: Tensor | Iterable[Tensor]) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def get_total_norm(
    tensors: Tensor | Iterable[Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The norm of all tensors as if they were one vector.

    Args:
        tensors (Tensor | Iterable[Tensor]): one or several, of any shapes.
        norm_type (float, default: 2.0): Of which order; may be infinite.
        error_if_nonfinite (bool, default: False): Whether NaN or an infinite norm is an error, which evaluates.
        foreach (bool, optional): Accepted and without effect.

    Returns:
        Tensor: 0-d.

    Raises:
        RuntimeError: the norm is not finite, with `error_if_nonfinite`.

    Example:
        >>> from lucid import nn
        >>> nn.utils.get_total_norm([lucid.tensor([3.0]), lucid.tensor([4.0])])
        tensor(5.)
    """
    norm_type = float(norm_type)
    # A sparse tensor's values with every index once: what they leave out is zero.
    found = [t.detach().coalesce().values() if t.is_sparse else t.detach() for t in _listed(tensors)]
    if not found:
        return lucid.tensor(0.0)
    home = found[0].device

    def squares(t: Tensor) -> Tensor:
        made: Tensor = _C.sum_of_squares(t) if t.is_floating_point() else t.abs().square().sum()
        return made

    def one(t: Tensor) -> Tensor:
        if norm_type == math.inf:
            return t.abs().max()
        if norm_type == -math.inf:
            return t.abs().min()
        if norm_type == 0:
            return (t != 0).sum().to(t.dtype)
        if norm_type == 2:
            return squares(t).sqrt()
        return t.abs().pow(norm_type).sum().pow(1.0 / norm_type)

    if norm_type == 2 and all(t.dtype == lucid.float32 for t in found):
        # What each root would be squared again for.
        total = lucid.stack([squares(t).to(home) for t in found]).sum().sqrt()
    else:
        total = one(lucid.stack([one(t).to(home) for t in found]))
    if error_if_nonfinite and not math.isfinite(total.item()):
        raise errors.RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it cannot be "
            "clipped. To disable this error and scale the gradients by the non-finite norm anyway, set "
            "`error_if_nonfinite=False`"
        )
    return total


def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scales the gradients in place by `max_norm / (total_norm + 1e-6)`, where that is below 1.

    Args:
        parameters (Tensor | Iterable[Tensor]): the parameters whose gradients are meant, of any shapes.
        max_norm (float): the largest norm.
        total_norm (Tensor): the norm of the gradients, 0-d.
        foreach (bool, optional): all gradients are scaled in one pass in any case.

    Example:
        >>> from lucid import nn
        >>> x = lucid.zeros(1, requires_grad=True)
        >>> x.grad = lucid.tensor([4.0])
        >>> nn.utils.clip_grads_with_norm_(x, 1.0, lucid.tensor(4.0))
        >>> x.grad
        tensor([1.0000])
    """
    scale = (float(max_norm) / (total_norm + 1e-6)).clamp(max=1.0)
    scales = {scale.device: scale}
    with lucid.no_grad():
        for p in _listed(parameters):
            grad = p.grad
            if grad is None:
                continue
            device = grad.device
            if device not in scales:
                scales[device] = scale.to(device)
            (grad.detach() if grad.requires_grad else grad).mul_(scales[device])


@named
def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scales the gradients in place so that their common norm is at most `max_norm`; gives the norm before.

    Of parameters that `fully_shard` or `parallelize_module` sharded, all parts count, and every process has to call it.

    Args:
        parameters (Tensor | Iterable[Tensor]): the parameters whose gradients are meant, of any shapes.
        max_norm (float): the largest norm.
        norm_type (float, default: 2.0): the order of the norm; may be infinite.
        error_if_nonfinite (bool, default: False): raises an error where the norm is NaN or infinite, which
            evaluates.
        foreach (bool, optional): all gradients are scaled in one pass in any case.

    Returns:
        Tensor: the norm before clipping, 0-d.

    Example:
        >>> from lucid import nn
        >>> x = lucid.zeros(2, requires_grad=True)
        >>> x.grad = lucid.tensor([3.0, 4.0])
        >>> nn.utils.clip_grad_norm_(x, 1.0)
        tensor(5.)
        >>> x.grad
        tensor([0.6000, 0.8000])
    """
    params = _listed(parameters)
    if not params and isinstance(parameters, GeneratorType):
        warn("`parameters` is an empty generator, no gradient clipping will occur.")
    if any(hasattr(p, "_sharding") for p in params):
        from lucid.distributed.tensor import sharded_norm

        total = get_total_norm(sharded_norm(params, float(norm_type)), math.inf, error_if_nonfinite)
    else:
        total = get_total_norm([p.grad for p in params if p.grad is not None], norm_type, error_if_nonfinite, foreach)
    clip_grads_with_norm_(params, max_norm, total, foreach)
    return total


def clip_grad_norm(*args: Any, **kwargs: Any) -> Tensor:
    """Scales gradients down to a norm: `clip_grad_norm_` by its old name; warns.

    Args:
        args (object): the arguments of `clip_grad_norm_`: parameters and the largest norm.
        kwargs (object): its options, such as `norm_type`.

    Returns:
        Tensor: the norm of all gradients together before, 0-d.

    Example:
        >>> x = lucid.zeros(2, requires_grad=True)
        >>> x.grad = lucid.tensor([3.0, 4.0])
        >>> lucid.nn.utils.clip_grad_norm(x, 1.0)
        tensor(5.)
    """
    warn("`nn.utils.clip_grad_norm` is now deprecated in favor of `nn.utils.clip_grad_norm_`.", FutureWarning)
    return clip_grad_norm_(*args, **kwargs)


@named
def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None) -> None:
    """Brings every element of the gradients into ±`clip_value`, in place.

    Args:
        parameters (Tensor | Iterable[Tensor]): the parameters whose gradients are meant, of any shapes.
        clip_value (float): the largest magnitude.
        foreach (bool, optional): all gradients are scaled in one pass in any case.

    Example:
        >>> from lucid import nn
        >>> x = lucid.zeros(2, requires_grad=True)
        >>> x.grad = lucid.tensor([3.0, -0.5])
        >>> nn.utils.clip_grad_value_(x, 1.0)
        >>> x.grad
        tensor([ 1.0000, -0.5000])
    """
    bound = float(clip_value)
    with lucid.no_grad():
        for p in _listed(parameters):
            if p.grad is not None:
                p.grad.detach().clamp_(-bound, bound)
