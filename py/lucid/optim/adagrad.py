"""Optimizers that divide by a running size of the gradient: Adagrad, Adadelta, RMSprop."""

from __future__ import annotations

from typing import Any

from lucid import Tensor, errors
from lucid.optim.optimizer import Params
from lucid.optim.options import checked
from lucid.optim.stepping import Stepping

__all__ = ["Adadelta", "Adagrad", "RMSprop"]


class Adagrad(Stepping):
    """Adagrad (Duchi et al., 2011): `s += g²`, `p -= lr / (1 + (t - 1) · lr_decay) · g / (sqrt(s) + eps)`.

    Args:
        params: Parameters, pairs of name and parameter, or dicts of groups.
        lr: Learning rate. Default: 1e-2.
        lr_decay: Decay of the learning rate. Default: 0.
        weight_decay: L2 penalty. Default: 0.
        initial_accumulator_value: What the sum of squares starts with. Default: 0.
        eps: Added to the denominator. Default: 1e-10.
        foreach: Accepted; a step is one engine call in any case.
        maximize: Ascend instead. Default: False.
        differentiable: Record the step, for gradients through it. Default: False.
        fused: Accepted as `foreach`.

    State per parameter, from the start: `step` (0-d float32 on the CPU), `sum`.

    Of a sparse gradient the rows alone step.
    """

    _kind = "adagrad"
    _state = ("sum",)
    _numbers = ("lr", "lr_decay", "weight_decay", "eps", "maximize")
    _takes_sparse = True

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(params, checked(locals()))
        for group in self.param_groups:
            for param in group["params"]:
                self._begin(group, param, self.state[param])

    def _first_value(self, group: dict[str, Any], name: str) -> float:
        return float(self.defaults["initial_accumulator_value"])

    def share_memory(self) -> None:
        """Accepted for PyTorch's sake: nothing is shared between processes."""

    def _check_grad(self, group: dict[str, Any], grad: Tensor) -> None:
        if grad.is_sparse and group["fused"]:
            raise errors.RuntimeError("`fused` does not support sparse grad or complex param")


class Adadelta(Stepping):
    """Adadelta (Zeiler, 2012).

    `s = ρ s + (1 - ρ) g²`, `d = sqrt(u + eps) / sqrt(s + eps) · g`, `u = ρ u + (1 - ρ) d²`, `p -= lr · d`.

    Args:
        params: Parameters, pairs of name and parameter, or dicts of groups.
        lr: Factor on the change. Default: 1.
        rho: Decay rate of the means. Default: 0.9.
        eps: Added below the roots. Default: 1e-6.
        weight_decay: L2 penalty. Default: 0.
        foreach: Accepted; a step is one engine call in any case.
        capturable: Accepted for parameters on the GPU device; no effect.
        maximize: Ascend instead. Default: False.
        differentiable: Record the step, for gradients through it. Default: False.

    State per parameter: `step`, `square_avg`, `acc_delta`.
    """

    _kind = "adadelta"
    _state = ("square_avg", "acc_delta")
    _numbers = ("lr", "rho", "eps", "weight_decay", "maximize")

    def __init__(
        self,
        params: Params,
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, checked(locals()))


class RMSprop(Stepping):
    """RMSprop (Hinton, 2012): `s = α s + (1 - α) g²`, `p -= lr · g / (sqrt(s) + eps)`.

    Args:
        params: Parameters, pairs of name and parameter, or dicts of groups.
        lr: Learning rate. Default: 1e-2.
        alpha: Decay rate of the means. Default: 0.99.
        eps: Added to the denominator. Default: 1e-8.
        weight_decay: L2 penalty. Default: 0.
        momentum: Default: 0, which keeps no buffer.
        centered: Divide by the root of the variance (Graves, 2013). Default: False.
        capturable: Accepted for parameters on the GPU device; no effect.
        foreach: Accepted; a step is one engine call in any case.
        maximize: Ascend instead. Default: False.
        differentiable: Record the step, for gradients through it. Default: False.

    State per parameter: `step`, `square_avg`, `momentum_buffer` with `momentum`, `grad_avg` where `centered`.
    """

    _kind = "rmsprop"
    _numbers = ("lr", "alpha", "eps", "weight_decay", "momentum", "centered", "maximize")

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, checked(locals()))

    def _arrays(self, group: dict[str, Any]) -> tuple[str, ...]:
        names = ["square_avg"]
        names += ["grad_avg"] if group["centered"] else []
        names += ["momentum_buffer"] if group["momentum"] > 0 else []
        return tuple(names)

    def _state_order(self, group: dict[str, Any]) -> tuple[str, ...]:
        first, *rest = self._arrays(group)
        return (first, *reversed(rest))
