"""`Adagrad`: gradients over the root of the sum of their squares."""

from __future__ import annotations

from typing import Any

from lucid import Tensor, errors
from lucid.optim.optimizer import ParamsT
from lucid.optim.options import checked
from lucid.optim.stepping import Stepping

__all__ = ["Adagrad"]


class Adagrad(Stepping):
    """Adagrad (Duchi et al., 2011): `s += g²`, `p -= lr / (1 + (t - 1) · lr_decay) · g / (sqrt(s) + eps)`.

    State per parameter, from the start: `step` (0-d float32 on the CPU), `sum`.

    Of a sparse gradient the rows alone step.

    Args:
        params (ParamsT): the parameters to optimize, pairs of a name and a parameter, or dicts of groups with
            options of their own.
        lr (float, default: 0.01): Learning rate.
        lr_decay (float, default: 0): Decay of the learning rate.
        weight_decay (float, default: 0): L2 penalty.
        initial_accumulator_value (float, default: 0): What the sum of squares starts with.
        eps (float, default: 1e-10): Added to the denominator.
        foreach (bool, optional): Accepted; a step is one engine call in any case.
        maximize (bool, default: False): Ascend instead.
        differentiable (bool, default: False): Record the step, for gradients through it.
        fused (bool, optional): Accepted as `foreach`.

    Raises:
        ValueError: an option is out of its range.

    Example:
        >>> x = lucid.ones(1, requires_grad=True)
        >>> optimizer = lucid.optim.Adagrad([x], lr=0.1)
        >>> (x * x).sum().backward()
        >>> optimizer.step()
        >>> x.detach()
        tensor([0.9000])
    """

    _kind = "adagrad"
    _state = ("sum",)
    _numbers = ("lr", "lr_decay", "weight_decay", "eps", "maximize")
    _takes_sparse = True

    def __init__(
        self,
        params: ParamsT,
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
