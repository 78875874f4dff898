"""Adam and AdamW."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid
from lucid import _C, Tensor, errors
from lucid.optim.optimizer import Optimizer, Params

__all__ = ["Adam", "AdamW"]


class _Together:
    """Parameters that take the same step: which one it is, and their gradients and state."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.params: list[Tensor] = []
        self.grads: list[Tensor] = []
        self.states: list[dict[str, Any]] = []

    def join(self, other: _Together) -> None:
        self.params += other.params
        self.grads += other.grads
        self.states += other.states


class Adam(Optimizer):
    """Adam (Kingma and Ba, 2015).

    `m = β₁ m + (1 - β₁) g`, `v = β₂ v + (1 - β₂) g²`, `p -= lr / (1 - β₁ᵗ) · m / (sqrt(v / (1 - β₂ᵗ)) + eps)`.

    Args:
        params: Parameters, pairs of name and parameter, or dicts of groups.
        lr: Learning rate. Default: 1e-3.
        betas: Decay rates of the moments. Default: (0.9, 0.999).
        eps: Added to the denominator. Default: 1e-8.
        weight_decay: L2 penalty. Default: 0.
        amsgrad: Divide by the largest second moment so far (Reddi et al., 2018). Default: False.
        foreach: Accepted; a step is one engine call in any case.
        maximize: Ascend instead. Default: False.
        capturable: Accepted; no effect.
        differentiable: Not supported; only False.
        fused: Accepted as `foreach`.
        decoupled_weight_decay: Shrink parameters by the penalty directly, which makes it AdamW. Default: False.

    State per parameter: `step` (0-d float32 on the CPU), `exp_avg`, `exp_avg_sq`, and `max_exp_avg_sq` with `amsgrad`.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        if not lr >= 0.0:
            raise errors.ValueError(f"Invalid learning rate: {lr}")
        if not eps >= 0.0:
            raise errors.ValueError(f"Invalid epsilon value: {eps}")
        for i in range(2):
            if not 0.0 <= betas[i] < 1.0:
                raise errors.ValueError(f"Invalid beta parameter at index {i}: {betas[i]}")
        if not weight_decay >= 0.0:
            raise errors.ValueError(f"Invalid weight_decay value: {weight_decay}")
        if differentiable:
            raise errors.NotImplementedError(f"{type(self).__name__}: differentiable=True is not supported")
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
            "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay,
        }
        super().__init__(params, defaults)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for own in self.state.values():
            if "step" in own and not isinstance(own["step"], Tensor):
                own["step"] = lucid.tensor(float(own["step"]))

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates every parameter that has a gradient, in one engine call per group; asynchronous on the GPU device.

        Parameters of a group that have stepped a different number of times take one call per number.
        """
        loss = self._evaluate(closure)
        for group in self.param_groups:
            amsgrad = group["amsgrad"]
            # Parameters that step together share one count, so its number is read once.
            shared: dict[int, _Together] = {}
            for param in group["params"]:
                grad = param.grad
                if grad is None:
                    continue
                state = self.state[param]
                if not state:
                    state["step"] = None
                    state["exp_avg"] = lucid.zeros_like(param.detach())
                    state["exp_avg_sq"] = lucid.zeros_like(param.detach())
                    if amsgrad:
                        state["max_exp_avg_sq"] = lucid.zeros_like(param.detach())
                count = state["step"]
                together = shared.get(id(count))
                if together is None:
                    together = shared[id(count)] = _Together(1 if count is None else int(count.item()) + 1)
                together.params.append(param)
                together.grads.append(grad)
                together.states.append(state)
            by_number: dict[int, _Together] = {}
            for together in shared.values():
                by_number.setdefault(together.number, _Together(together.number)).join(together)
            beta1, beta2 = group["betas"]
            for number, together in by_number.items():
                _C.adam_step(
                    together.params,
                    together.grads,
                    [state["exp_avg"] for state in together.states],
                    [state["exp_avg_sq"] for state in together.states],
                    [state["max_exp_avg_sq"] for state in together.states] if amsgrad else [],
                    lr=float(group["lr"]),
                    beta1=float(beta1),
                    beta2=float(beta2),
                    eps=float(group["eps"]),
                    weight_decay=float(group["weight_decay"]),
                    decoupled=group["decoupled_weight_decay"],
                    amsgrad=amsgrad,
                    maximize=group["maximize"],
                    t=number,
                )
                stepped = lucid.tensor(float(number), dtype=lucid.float32)
                for state in together.states:
                    state["step"] = stepped
        return loss


class AdamW(Adam):
    """Adam whose weight decay shrinks parameters directly: `p -= lr · weight_decay · p` (Loshchilov and Hutter, 2019).

    Arguments as in `Adam`, but `weight_decay` is 0.01 by default.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=True,
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        # State dicts from before the option existed are AdamW's all the same.
        for group in self.param_groups:
            group["decoupled_weight_decay"] = True
