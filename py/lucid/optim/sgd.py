"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid
from lucid import _C, Tensor, errors
from lucid.optim.optimizer import Optimizer, Params

__all__ = ["SGD"]

# Parameters, their gradients, their momentum buffers.
_Lists = tuple[list[Tensor], list[Tensor], list[Tensor]]


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum as PyTorch has it (Sutskever et al., 2013).

    `g += weight_decay · p`; `b = momentum · b + (1 - dampening) · g`, but `b = g` at first; `p -= lr · b`, or with
    `nesterov` `p -= lr · (g + momentum · b)`.

    Args:
        params: Parameters, pairs of name and parameter, or dicts of groups.
        lr: Learning rate. Default: 1e-3.
        momentum: Default: 0, which keeps no buffer.
        dampening: Of the gradient's entry into the buffer. Default: 0.
        weight_decay: L2 penalty. Default: 0.
        nesterov: Default: False.
        maximize: Ascend instead. Default: False.
        foreach: Accepted; a step is one engine call in any case.
        fused: Accepted likewise.
        differentiable: Not supported; only False.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        if lr < 0.0:
            raise errors.ValueError(f"Invalid learning rate: {lr}")
        if momentum < 0.0:
            raise errors.ValueError(f"Invalid momentum value: {momentum}")
        if weight_decay < 0.0:
            raise errors.ValueError(f"Invalid weight_decay value: {weight_decay}")
        if nesterov and (momentum <= 0 or dampening != 0):
            raise errors.ValueError("Nesterov momentum requires a momentum and zero dampening")
        if differentiable:
            raise errors.NotImplementedError("SGD: differentiable=True is not supported")
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
            "foreach": foreach,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, defaults)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates every parameter that has a gradient, in one engine call per group; asynchronous on the GPU device."""
        loss = self._evaluate(closure)
        for group in self.param_groups:
            momentum = float(group["momentum"])
            # Parameters whose buffer is new take the gradient as it is, so they step apart from the others.
            fresh: _Lists = ([], [], [])
            used: _Lists = ([], [], [])
            for param in group["params"]:
                grad = param.grad
                if grad is None:
                    continue
                lists = used
                if momentum != 0.0:
                    state = self.state[param]
                    buffer = state.get("momentum_buffer")
                    if buffer is None:
                        lists = fresh
                        buffer = state["momentum_buffer"] = lucid.zeros_like(param.detach())
                    lists[2].append(buffer)
                lists[0].append(param)
                lists[1].append(grad)
            for first, lists in ((True, fresh), (False, used)):
                if lists[0]:
                    params, grads, buffers = lists
                    _C.sgd_step(
                        params,
                        grads,
                        buffers,
                        lr=float(group["lr"]),
                        momentum=momentum,
                        dampening=float(group["dampening"]),
                        weight_decay=float(group["weight_decay"]),
                        nesterov=group["nesterov"],
                        maximize=group["maximize"],
                        first=first,
                    )
        return loss
