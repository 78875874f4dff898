"""Adam and its relatives: AdamW, Adamax, NAdam, RAdam."""

from __future__ import annotations

from typing import Any

import lucid
from lucid import Tensor
from lucid.optim.optimizer import Params
from lucid.optim.options import RULES, check, checked, rate
from lucid.optim.stepping import Counts, Stepping

__all__ = ["Adam", "AdamW", "Adamax", "NAdam", "RAdam"]


def _tensor_rate(refused: bool) -> Any:
    def run(lr: Any) -> None:
        why = "lr as a Tensor is not supported for capturable=False and foreach=True"
        check(not (refused and isinstance(lr, Tensor)), why)
        rate()(lr)

    return run


def _one_kind(tensors_refused: bool) -> Any:
    def run(betas: Any) -> None:
        RULES["betas"](betas)
        first = betas[0], betas[1]
        same = any(all(isinstance(beta, kind) for beta in first) for kind in (float, Tensor))
        check(same, "betas must be either both floats or both Tensors")
        why = "betas as Tensors are not supported for capturable=False and foreach=True"
        check(not (tensors_refused and isinstance(betas[0], Tensor)), why)

    return run


class Adam(Stepping):
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
        capturable: Accepted for parameters on the GPU device; no effect.
        differentiable: Record the step, for gradients through it; parameters must not be leaves then. Default: False.
        fused: Accepted as `foreach`.
        decoupled_weight_decay: Shrink parameters by the penalty directly, which makes it AdamW. Default: False.

    State per parameter: `step` (0-d float32 on the CPU), `exp_avg`, `exp_avg_sq`, and `max_exp_avg_sq` with `amsgrad`.
    """

    _kind = "adam"
    _numbers = ("lr", "betas", "eps", "weight_decay", "maximize", "amsgrad", "decoupled_weight_decay")
    _instead = ", please consider SparseAdam instead"

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
        options = checked(
            locals(),
            lr=_tensor_rate(bool(foreach) and not capturable),
            betas=_one_kind(bool(foreach) and not capturable),
        )
        options["betas"] = (float(betas[0]), float(betas[1]))
        super().__init__(params, options)

    def _arrays(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq", *(("max_exp_avg_sq",) if group["amsgrad"] else ()))


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


class Adamax(Stepping):
    """Adam with the infinity norm in place of the second moment (Kingma and Ba, 2015).

    `u = max(β₂ u, |g| + eps)`, `p -= lr / (1 - β₁ᵗ) · m / u`.

    Args:
        params: Parameters, pairs of name and parameter, or dicts of groups.
        lr: Learning rate. Default: 2e-3.
        betas: Decay rates of the first moment and the norm. Default: (0.9, 0.999).
        eps: Added to the gradient's magnitude. Default: 1e-8.
        weight_decay: L2 penalty. Default: 0.
        foreach: Accepted; a step is one engine call in any case.
        maximize: Ascend instead. Default: False.
        differentiable: Record the step, for gradients through it. Default: False.
        capturable: Accepted for parameters on the GPU device; no effect.

    State per parameter: `step`, `exp_avg`, `exp_inf`.
    """

    _kind = "adamax"
    _state = ("exp_avg", "exp_inf")
    _numbers = ("lr", "betas", "eps", "weight_decay", "maximize")

    def __init__(
        self,
        params: Params,
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        super().__init__(params, checked(locals()))


class NAdam(Stepping):
    """Adam with Nesterov's momentum (Dozat, 2016).

    With `μₜ = β₁ (1 - 0.5 · 0.96^(t · momentum_decay))` and `Mₜ` the product of all so far,
    `p -= lr · ((1 - μₜ) / (1 - Mₜ) · g + μₜ₊₁ / (1 - Mₜ₊₁) · m) / (sqrt(v / (1 - β₂ᵗ)) + eps)`.

    Args:
        params: Parameters, pairs of name and parameter, or dicts of groups.
        lr: Learning rate. Default: 2e-3.
        betas: Decay rates of the moments. Default: (0.9, 0.999).
        eps: Added to the denominator. Default: 1e-8.
        weight_decay: Penalty. Default: 0.
        momentum_decay: How fast the momentum approaches β₁. Default: 4e-3.
        decoupled_weight_decay: Shrink parameters by the penalty directly. Default: False.
        foreach: Accepted; a step is one engine call in any case.
        maximize: Ascend instead. Default: False.
        capturable: Accepted for parameters on the GPU device; no effect.
        differentiable: Record the step, for gradients through it. Default: False.

    State per parameter: `step` and `mu_product` (0-d float32 on the CPU), `exp_avg`, `exp_avg_sq`.
    """

    _kind = "nadam"
    _state = ("exp_avg", "exp_avg_sq")
    _numbers = ("lr", "betas", "eps", "weight_decay", "maximize", "decoupled_weight_decay")
    _counts = ("step", "mu_product")

    def __init__(
        self,
        params: Params,
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, checked(locals()))

    def _first_counts(self, group: dict[str, Any]) -> Counts:
        return {"step": 0.0, "mu_product": 1.0}

    def _advance(self, group: dict[str, Any], counts: Counts) -> tuple[dict[str, float], Counts]:
        t = counts["step"] + 1.0
        beta1, decay = float(group["betas"][0]), float(group["momentum_decay"])
        mu, mu_next = (beta1 * (1.0 - 0.5 * 0.96 ** (n * decay)) for n in (t, t + 1.0))
        # Kept in float32, and used as it is kept.
        product = lucid.tensor(counts["mu_product"], dtype=lucid.float32).mul(mu).item()
        return (
            {"t": t, "mu": mu, "mu_next": mu_next, "mu_product": product},
            {"step": t, "mu_product": product},
        )


class RAdam(Stepping):
    """Adam whose rate follows how well the variance is known (Liu et al., 2020); at first the momentum alone leads.

    Args:
        params: Parameters, pairs of name and parameter, or dicts of groups.
        lr: Learning rate. Default: 1e-3.
        betas: Decay rates of the moments. Default: (0.9, 0.999).
        eps: Added to the denominator. Default: 1e-8.
        weight_decay: Penalty. Default: 0.
        decoupled_weight_decay: Shrink parameters by the penalty directly. Default: False.
        foreach: Accepted; a step is one engine call in any case.
        maximize: Ascend instead. Default: False.
        capturable: Accepted for parameters on the GPU device; no effect.
        differentiable: Record the step, for gradients through it. Default: False.

    State per parameter: `step`, `exp_avg`, `exp_avg_sq`.
    """

    _kind = "radam"
    _state = ("exp_avg", "exp_avg_sq")
    _numbers = ("lr", "betas", "eps", "weight_decay", "maximize", "decoupled_weight_decay")

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, checked(locals()))
