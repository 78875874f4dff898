"""Adam on sparse gradients."""

from __future__ import annotations

from typing import Any

from lucid import Tensor, errors
from lucid.optim.optimizer import ParamsT
from lucid.optim.options import check, checked, rate
from lucid.optim.stepping import Stepping

__all__ = ["SparseAdam"]


def _positive(value: Any) -> Any:
    return value > 0.0


def _positive_eps(eps: Any) -> None:
    check(eps > 0.0, f"Invalid epsilon value: {eps}")


class SparseAdam(Stepping):
    """Adam on the rows that a sparse gradient holds: other rows stay as they are, and so do their moments.

    `m += (1 - β₁) (g - m)`, `v += (1 - β₂) (g² - v)`,
    `p -= lr · sqrt(1 - β₂ᵗ) / (1 - β₁ᵗ) · m / (sqrt(v) + eps)`. A step reads and writes those rows alone, so
    that it costs as much for a large table as for a small one.

    State per parameter: `step` (an int), `exp_avg`, `exp_avg_sq`, both as large as the parameter.

    Args:
        params (ParamsT): Parameters, pairs of name and parameter, or dicts of groups; dense and real.
        lr (float, default: 0.001): Learning rate.
        betas (tuple[float, float], optional): Decay rates of the moments. Default: (0.9, 0.999).
        eps (float, default: 1e-08): Added to the denominator.
        maximize (bool, default: False): Ascend instead.

    Raises:
        ValueError: for sparse or complex parameters.
        RuntimeError: at a step, for dense gradients.
        ValueError: an option is out of its range, or a parameter is sparse itself.

    Example:
        >>> from lucid import nn
        >>> from lucid import nn
        >>> table = nn.Embedding(4, 2, sparse=True)
        >>> optimizer = lucid.optim.SparseAdam(table.parameters())
        >>> table(lucid.tensor([1])).sum().backward()
        >>> optimizer.step()
    """

    _kind = "sparse_adam"
    _state = ("exp_avg", "exp_avg_sq")
    _numbers = ("lr", "betas", "eps", "maximize")
    _takes_sparse = True

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, checked(locals(), lr=rate(accepts=_positive), eps=_positive_eps))
        at = [(i, j, p) for i, group in enumerate(self.param_groups) for j, p in enumerate(group["params"])]
        sparse = [[i, j] for i, j, p in at if p.is_sparse]
        check(not sparse, f"Sparse params at indices {sparse}: SparseAdam requires dense parameter tensors")
        odd = [[i, j] for i, j, p in at if p.is_complex()]
        check(not odd, f"Complex params at indices {odd}: SparseAdam does not support complex parameters")

    def _check_grad(self, group: dict[str, Any], grad: Tensor) -> None:
        if not grad.is_sparse:
            raise errors.RuntimeError("SparseAdam does not support dense gradients, please consider Adam instead")

    def _count(self, value: float) -> int:
        return int(value)
