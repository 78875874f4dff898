"""`Adam`: the first moment of gradients over the root of the second."""

from __future__ import annotations

from typing import Any

from lucid import Tensor
from lucid.optim.optimizer import ParamsT
from lucid.optim.options import RULES, check, checked, rate
from lucid.optim.stepping import Stepping

__all__ = ["Adam"]


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

    State per parameter: `step` (0-d float32 on the CPU), `exp_avg`, `exp_avg_sq`, and `max_exp_avg_sq` with `amsgrad`.

    Args:
        params (ParamsT): the parameters to optimize, pairs of a name and a parameter, or dicts of groups with
            options of their own.
        lr (float, default: 0.001): Learning rate.
        betas (tuple[float, float], optional): Decay rates of the moments. Default: (0.9, 0.999).
        eps (float, default: 1e-08): Added to the denominator.
        weight_decay (float, default: 0): L2 penalty.
        amsgrad (bool, default: False): Divide by the largest second moment so far (Reddi et al., 2018).
        foreach (bool, optional): Accepted; a step is one engine call in any case.
        maximize (bool, default: False): Ascend instead.
        capturable (bool, default: False): For parameters on the GPU device; True gives one warning that it has no
            effect.
        differentiable (bool, default: False): Record the step, for gradients through it; parameters must not be
            leaves then.
        fused (bool, optional): Accepted as `foreach`.
        decoupled_weight_decay (bool, default: False): Shrink parameters by the penalty directly, which makes it
            AdamW.

    Raises:
        ValueError: an option is out of its range.

    Example:
        >>> x = lucid.ones(1, requires_grad=True)
        >>> optimizer = lucid.optim.Adam([x], lr=0.1)
        >>> (x * x).sum().backward()
        >>> optimizer.step()
        >>> x.detach()
        tensor([0.9000])
    """

    _kind = "adam"
    _numbers = ("lr", "betas", "eps", "weight_decay", "maximize", "amsgrad", "decoupled_weight_decay")
    _instead = ", please consider SparseAdam instead"

    def __init__(
        self,
        params: ParamsT,
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
