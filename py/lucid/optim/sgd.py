"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid
from lucid import _C, Tensor, errors
from lucid.optim.optimizer import Optimizer, ParamsT
from lucid.optim.options import checked, rate
from lucid.optim.stepping import Batch, as_real

__all__ = ["SGD"]


def _not_negative(value: Any) -> Any:
    return not value < 0.0


# NaN passes, as it does in PyTorch.
_RULES = {
    "lr": rate(accepts=_not_negative),
    **{name: rate(f"Invalid {name} value: ", _not_negative) for name in ("momentum", "weight_decay")},
}


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum as PyTorch has it (Sutskever et al., 2013).

    `g += weight_decay · p`; `b = momentum · b + (1 - dampening) · g`, but `b = g` at first; `p -= lr · b`, or with
    `nesterov` `p -= lr · (g + momentum · b)`.

    State per parameter: `momentum_buffer`, where `momentum` is not 0.

    Of a sparse gradient the rows alone step; with momentum all rows that ever had one, and the buffer is sparse too.

    Args:
        params (ParamsT): the parameters to optimize, pairs of a name and a parameter, or dicts of groups with
            options of their own.
        lr (float, default: 0.001): Learning rate.
        momentum (float, default: 0): Default: 0, which keeps no buffer.
        dampening (float, default: 0): Of the gradient's entry into the buffer.
        weight_decay (float, default: 0): L2 penalty.
        nesterov (bool, default: False): Default: False.
        maximize (bool, default: False): Ascend instead.
        foreach (bool, optional): Accepted; a step is one engine call in any case.
        differentiable (bool, default: False): Record the step, for gradients through it; parameters must not be
            leaves then.
        fused (bool, optional): Accepted likewise.

    Raises:
        ValueError: an option is out of its range.

    Example:
        >>> x = lucid.ones(1, requires_grad=True)
        >>> optimizer = lucid.optim.SGD([x], lr=0.1)
        >>> (x * x).sum().backward()
        >>> optimizer.step()
        >>> x.detach()
        tensor([0.8000])
    """

    def __init__(
        self,
        params: ParamsT,
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
        options = checked(locals(), **_RULES)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise errors.ValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(params, options)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates every parameter that has a gradient, in one engine call; asynchronous on the GPU device."""
        loss = self._evaluate(closure)
        batches: list[Batch] = []
        for group in self.param_groups:
            momentum = float(group["momentum"])
            # Parameters whose buffer is new take the gradient as it is, so they step apart from the others; so do those
            # with sparse gradients, which have taken part in the momentum already.
            lists: dict[str, list[list[Tensor]]] = {}
            for param in group["params"]:
                grad = param.grad
                if grad is None:
                    continue
                if grad.is_sparse:
                    grad = self._sparse(group, param, grad)
                    together = lists.setdefault("sparse", [[], []])
                elif momentum == 0.0:
                    together = lists.setdefault("used", [[], []])
                else:
                    state = self.state[param]
                    buffer = state.get("momentum_buffer")
                    together = lists.setdefault("first" if buffer is None else "used", [[], [], []])
                    if buffer is None:
                        buffer = state["momentum_buffer"] = lucid.zeros_like(param.detach())
                    together[2].append(buffer)
                together[0].append(param)
                together[1].append(grad)
                if param.is_complex():
                    if group["fused"]:
                        raise errors.RuntimeError("`fused=True` requires all the params to be floating point Tensors")
                    for tensors in together:
                        tensors[-1] = as_real(tensors[-1])
            options = {
                "lr": float(group["lr"]),
                "momentum": momentum,
                "dampening": float(group["dampening"]),
                "weight_decay": float(group["weight_decay"]),
                "nesterov": group["nesterov"],
                "maximize": group["maximize"],
            }
            for kind, together in lists.items():
                own = {"momentum": 0.0, "nesterov": False, "maximize": False} if kind == "sparse" else {}
                batches.append(("sgd", {**options, "first": kind == "first", **own}, together))
        if batches:
            _C._optimizer_step(batches, bool(self.defaults["differentiable"]))
        return loss

    def _sparse(self, group: dict[str, Any], param: Tensor, grad: Tensor) -> Tensor:
        """What a parameter moves along, of a sparse gradient."""
        if group["fused"]:
            raise errors.RuntimeError("`_fused_sgd` does not support sparse gradients")
        if group["weight_decay"] != 0:
            raise errors.RuntimeError("SGD: weight_decay option is not compatible with sparse gradients")
        momentum = float(group["momentum"])
        with lucid.no_grad():
            grad = -grad if group["maximize"] else grad
            if momentum == 0.0:
                return grad
            state = self.state[param]
            buffer = state.get("momentum_buffer")
            if buffer is None:
                buffer = state["momentum_buffer"] = grad.detach().clone()
            else:
                # In place, and each row once, or the buffer would grow with every step.
                buffer.copy_((buffer * momentum + grad * (1 - float(group["dampening"]))).coalesce())
            return grad + buffer * momentum if group["nesterov"] else buffer
