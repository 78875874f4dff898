"""`RMSprop`: gradients over the root of their mean square."""

from __future__ import annotations

from typing import Any

from lucid.optim.optimizer import ParamsT
from lucid.optim.options import checked
from lucid.optim.stepping import Stepping

__all__ = ["RMSprop"]


class RMSprop(Stepping):
    """RMSprop (Hinton, 2012): `s = α s + (1 - α) g²`, `p -= lr · g / (sqrt(s) + eps)`.

    State per parameter: `step`, `square_avg`, `momentum_buffer` with `momentum`, `grad_avg` where `centered`.

    Args:
        params (ParamsT): the parameters to optimize, pairs of a name and a parameter, or dicts of groups with
            options of their own.
        lr (float, default: 0.01): Learning rate.
        alpha (float, default: 0.99): Decay rate of the means.
        eps (float, default: 1e-08): Added to the denominator.
        weight_decay (float, default: 0): L2 penalty.
        momentum (float, default: 0): Default: 0, which keeps no buffer.
        centered (bool, default: False): Divide by the root of the variance (Graves, 2013).
        capturable (bool, default: False): For parameters on the GPU device; True gives one warning that it has no
            effect.
        foreach (bool, optional): Accepted; a step is one engine call in any case.
        maximize (bool, default: False): Ascend instead.
        differentiable (bool, default: False): Record the step, for gradients through it.

    Raises:
        ValueError: an option is out of its range.

    Example:
        >>> x = lucid.ones(1, requires_grad=True)
        >>> optimizer = lucid.optim.RMSprop([x], lr=0.1)
        >>> (x * x).sum().backward()
        >>> optimizer.step()
        >>> x.detach()
        tensor([5.9605e-08])
    """

    _kind = "rmsprop"
    _numbers = ("lr", "alpha", "eps", "weight_decay", "momentum", "centered", "maximize")

    def __init__(
        self,
        params: ParamsT,
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
