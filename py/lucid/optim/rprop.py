"""`Rprop`: steps by the gradient's sign, each of a size of its own."""

from __future__ import annotations

from typing import Any

from lucid.optim.optimizer import ParamsT
from lucid.optim.options import checked
from lucid.optim.stepping import Stepping

__all__ = ["Rprop"]


class Rprop(Stepping):
    """Resilient backpropagation (Riedmiller and Braun, 1993): each element has a step size of its own.

    Where the gradient kept its sign the size grows by `etas[1]`; where it turned the size shrinks by `etas[0]` and the
    element rests; then `p -= sign(g) · size`.

    State per parameter: `step`, `prev`, `step_size`.

    Args:
        params (ParamsT): the parameters to optimize, pairs of a name and a parameter, or dicts of groups with
            options of their own.
        lr (float, default: 0.01): The first step size.
        etas (tuple[float, float], optional): Factors of the step size. Default: (0.5, 1.2).
        step_sizes (tuple[float, float], optional): Smallest and largest step.
        capturable (bool, default: False): For parameters on the GPU device; True gives one warning that it has no
            effect.
        foreach (bool, optional): Accepted; a step is one engine call in any case.
        maximize (bool, default: False): Ascend instead.
        differentiable (bool, default: False): Record the step, for gradients through it.

    Raises:
        ValueError: an option is out of its range.

    Example:
        >>> x = lucid.ones(1, requires_grad=True)
        >>> optimizer = lucid.optim.Rprop([x], lr=0.1)
        >>> (x * x).sum().backward()
        >>> optimizer.step()
        >>> x.detach()
        tensor([0.9000])
    """

    _kind = "rprop"
    _state = ("prev", "step_size")

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, checked(locals()))

    def _first_value(self, group: dict[str, Any], name: str) -> float:
        return float(group["lr"]) if name == "step_size" else 0.0

    def _options(self, group: dict[str, Any]) -> dict[str, float]:
        (minus, plus), (least, most) = group["etas"], group["step_sizes"]
        return {
            "eta_minus": float(minus),
            "eta_plus": float(plus),
            "step_min": float(least),
            "step_max": float(most),
            "maximize": group["maximize"],
        }
